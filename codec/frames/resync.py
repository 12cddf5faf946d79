"""The search for the next frame after damage, as a frame specification makes it.

With checksums, a candidate is a place where length, test and claimed position are possible, and whose checksums are right. Checksums of
long candidates come from those of prefixes, which are kept for a window, so that a file of heads that each claim the rest of it takes no
longer than others. Without checksums, a candidate counts only if a chain of plausible frames, or the end of the frames, follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.scanner import NO_BASE
from logwright.codec.frames.specification import (
    CERTAIN,
    IMPOSSIBLE,
    NO_ALGORITHM,
    Ascending,
    FrameSpec,
    Position,
    load_of,
    named_kernel,
    no_rule,
    span_of,
)
from logwright.codec.kernels.intrinsics import Bytes, load_u8

Int64s = npt.NDArray[np.int64]

SOUND, UNSURE, NONE = range(3)
"""What a search found: a frame; what may be one, and needs more bytes; nothing."""

STEP = 1024
"""Bytes between two checksums of prefixes."""
DIRECT = 4 * STEP
"""Spans up to this size are summed as they are."""
BUDGET = 8
"""Rules may look at this number of times the bytes of a window; then candidates are judged by their fields and by what follows them."""
_ZEROS = 64
"""Zero bytes at the end of a chain that show that its file has no more frames."""

LOWEST = -(1 << 63)

Find = Callable[..., tuple[int, int, int]]


@dataclass
class Prefixes:
    """Checksums of prefixes of one window, kept from one search to the next."""

    data: Bytes
    known: Int64s
    filled: Int64s
    """How many are known; and how many bytes of candidates rules have looked at, which `BUDGET` bounds."""

    @classmethod
    def of(cls, data: Bytes, empty: int) -> Prefixes:
        known = np.empty(len(data) // STEP + 2, np.int64)
        known[0] = empty
        return cls(data, known, np.array([1, 0], np.int64))


def finder(spec: FrameSpec) -> Find:
    """Return the kernel `find(buf, at, left, base, above, known, filled) -> (place, what was found, bytes needed from there)`.

    `left` and `base` as in `scanner`. `above` is the last value of the ascending field. `known` and `filled` are those of `Prefixes`.
    """
    struct = spec.struct
    peek, low, least = spec.peek, spec.length.low, spec.least
    load_length, length_at = load_of(struct, spec.length.field), struct.offset(spec.length.field)
    bias, high = spec.length.bias, min(spec.length.high, spec.length.reach)
    tests = 0 if spec.test is None else 1
    test_values: tuple[int, ...] = (0,)
    load_test, test_at = load_length, 0
    if spec.test is not None:
        load_test, test_at = load_of(struct, spec.test.field), struct.offset(spec.test.field)
        test_values = spec.test.values
    position = 1 if isinstance(spec.claims, Position) else 0
    ascending = 1 if isinstance(spec.claims, Ascending) else 0
    load_claim, claim_at = load_length, 0
    if spec.claims is not None:
        load_claim, claim_at = load_of(struct, spec.claims.field), struct.offset(spec.claims.field)
    marks, mark_value = (0, 0) if spec.mark is None else (1, spec.mark.values[0])
    algorithm = spec.checksums[0].algorithm if spec.checksums else NO_ALGORITHM
    checksum, update, between = algorithm.of, algorithm.update, algorithm.between
    span_a, mask_a = span_of(spec, 0)
    span_b, mask_b = span_of(spec, 1)
    sums = len(spec.checksums)
    rule = no_rule if spec.rule is None else spec.rule
    alignment = spec.alignment
    followers = spec.followers
    chained = 1 if followers else 0
    markers, marker_sized = 0, 0
    load_marker, marker_at, marker_value, load_size, size_at, size_bias, size_low, size_end = (
        load_length, 0, 0, load_length, 0, 0, 0, 0,
    )  # fmt: skip
    if spec.marker is not None:
        marker = spec.marker
        markers = 1
        load_marker, marker_at, marker_value = (
            load_of(struct, marker.field),
            struct.offset(marker.field),
            marker.value,
        )
        size_low, size_end = marker.struct.min_size, marker.struct.head_size
        if marker.length is not None:
            marker_sized = 1
            load_size, size_at = (
                load_of(marker.struct, marker.length.field),
                marker.struct.offset(marker.length.field),
            )
            size_bias, size_low = marker.length.bias, marker.length.low

    def summed(buf: Bytes, known: Int64s, filled: Int64s, start: int, end: int) -> int:
        """The checksum of `buf[start:end]`; of long spans from those of prefixes."""
        if end - start <= DIRECT:
            return checksum(buf, start, end)
        upto = end // STEP + 1
        k = filled[0]
        while k < upto:
            known[k] = update(known[k - 1], buf, (k - 1) * STEP, k * STEP)
            k += 1
        filled[0] = max(filled[0], upto)
        first = update(known[start // STEP], buf, start // STEP * STEP, start)
        second = update(known[end // STEP], buf, end // STEP * STEP, end)
        return between(first, second, end - start)

    sum_of: Any = named_kernel("const u1[], i8[], i8[], i8, i8", spec, "sum", summed)

    def chain(buf: Bytes, at: int, left: int) -> tuple[int, int, int]:
        """Follow plausible frames from the end of a candidate: (links, or -1 where it breaks; -2 and the bytes that it takes to tell; main
        frames among them)."""
        links = 0
        mains = 0
        while links < followers:
            if left <= 0:
                return followers, 0, mains
            here = len(buf) - at
            if here < peek and here < left:
                return -2, at + peek, mains
            zeros = 0
            while zeros < min(here, _ZEROS) and load_u8(buf, at + zeros) == 0:
                zeros += 1
            if zeros == min(left, _ZEROS):
                return followers, 0, mains
            if left < peek:
                return -1, 0, mains
            size = 0
            if markers and load_marker(buf, at + marker_at) == marker_value:
                if left < size_end:
                    return -1, 0, mains
                if here < size_end:
                    return -2, at + size_end, mains
                size = size_low
                if marker_sized:
                    size = load_size(buf, at + size_at) + size_bias
                if size < size_low or size > left:
                    return -1, 0, mains
            else:
                size = load_length(buf, at + length_at) + bias
                if size < low or size > high or size > left:
                    return -1, 0, mains
                if size > here:
                    return -2, at + size, mains
                verdict = rule(buf, at, at + size, 0)
                if verdict == IMPOSSIBLE:
                    return -1, 0, mains
                if verdict == CERTAIN:
                    return followers, 0, mains + 1
                mains += 1
            links += 1
            at += size
            left -= size
        return links, 0, mains

    chain_of: Any = named_kernel("const u1[], i8, i8", spec, "chain", chain)

    def find(
        buf: Bytes, at: int, left: int, base: int, above: int, origin: int, known: Int64s, filled: Int64s
    ) -> tuple[int, int, int]:
        end = at + left
        here = len(buf)
        p = at
        # Places in the file, not in the window, are aligned.
        if alignment > 1:
            p += -(origin + p) % alignment
        while end - p >= least:
            if here - p < peek:
                return p, NONE, 0
            if tests:
                value = load_test(buf, p + test_at)
                passed = False
                for one in test_values:
                    if value == one:
                        passed = True
                if not passed:
                    p += alignment
                    continue
            size = load_length(buf, p + length_at) + bias
            if size < low or size > high or size > end - p:
                p += alignment
                continue
            if here - p < low:
                return p, UNSURE, low
            if position and base != NO_BASE and load_claim(buf, p + claim_at) != base + p:
                p += alignment
                continue
            if ascending and load_claim(buf, p + claim_at) <= above:
                p += alignment
                continue
            if here - p < size:
                return p, UNSURE, size
            if marks and load_u8(buf, p + size - 1) != mark_value:
                p += alignment
                continue
            verdict = rule(buf, p, p + size, 0)
            if verdict == IMPOSSIBLE:
                p += alignment
                continue
            if chained and verdict != CERTAIN and filled[1] + size <= BUDGET * here:
                filled[1] += size
                verdict = rule(buf, p, p + size, 1)
            if chained and verdict != CERTAIN:
                links, need, mains = chain_of(buf, p + size, end - p - size)
                if links == -2:
                    return p, UNSURE, need - p
                if links < followers or mains == 0:
                    p += alignment
                    continue
            if sums:
                start, stop, stored = span_a(buf, p, p + size)
                covered = start >= 0 and stop > start
                if start >= 0 and sum_of(buf, known, filled, start, stop) & mask_a != stored:
                    p += alignment
                    continue
                if sums > 1:
                    start, stop, stored = span_b(buf, p, p + size)
                    covered = covered or start >= 0
                    if start >= 0 and sum_of(buf, known, filled, start, stop) & mask_b != stored:
                        p += alignment
                        continue
            return p, SOUND, 0
        return p, NONE, 0

    made: Find = named_kernel("const u1[], i8, i8, i8, i8, i8, i8[], i8[]", spec, "find", find)  # type: ignore[assignment]
    return made
