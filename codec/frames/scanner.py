"""The scanner that a frame specification makes: follow the lengths from frame to frame, and test each frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.specification import (
    CERTAIN,
    IMPOSSIBLE,
    NO_ALGORITHM,
    FrameSpec,
    Position,
    load_of,
    named_kernel,
    no_rule,
    span_of,
)
from logwright.codec.kernels.intrinsics import Bytes, copy, load_u8
from logwright.codec.kernels.kernel import kernel

Int64s = npt.NDArray[np.int64]

(
    END,
    NEED,
    FULL,
    TORN,
    ZERO,
    BAD_LENGTH,
    BAD_TEST,
    BAD_CLAIM,
    BAD_MARK,
    BAD_RULE,
    BAD_CHECKSUM,
    UNFOLLOWED,
) = range(12)
"""Why a scan ended: the end of the file; more bytes are needed; the arrays are full; the file ends in a frame; a length of 0 where that ends
the frames; a length out of its limits; a wrong magic or type; a frame that claims another place; a wrong last byte; a frame that its rule
refuses; a wrong checksum; a frame that is only plausible, and what follows it is not."""

MAIN, MARKER, HEADER = range(3)
"""Kinds of frames: the main one, that of the specification's marker, and the header of the file."""

NO_BASE = -(1 << 62)
"""The base of a file whose base is not known."""

Scan = Callable[[Bytes, int, int, int, int, Int64s, Bytes], tuple[int, int, int, int]]


@kernel("u1[], i8, const u1[], i8, i8, i8, i8")
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int, kind: int, width: int) -> None:
    """Put the first `width` bytes of a frame of `size` bytes, and its kind, at `place`."""
    if size >= width:
        copy(heads, place, buf, at, width)
    else:
        copy(heads, place, buf, at, size)
        for i in range(place + size, place + width):
            heads[i] = 0
    heads[place + width] = kind


def scanner(spec: FrameSpec) -> Scan:
    """Return the kernel `scan(buf, at, left, base, check, starts, heads) -> (frames, where it stopped, why, bytes needed from there)`.

    `left` are the bytes of the file from `at` on, of which `buf` may hold fewer. `base` is the position that a frame at `buf[0]` would
    claim, or `NO_BASE`. Frames lie side by side: `starts` gets where each starts. `heads`, unless it is empty, gets the fixed-width head of
    each, what a short frame lacks as 0, and its kind, one after the other: what was looked at is in the cache still.
    """
    struct = spec.struct
    peek = spec.peek
    width = struct.head_size
    load_length = load_of(struct, spec.length.field)
    length_at, bias, low, high = (
        struct.offset(spec.length.field), spec.length.bias, spec.length.low, spec.length.high,
    )  # fmt: skip
    zero_ends = 1 if spec.zero_ends else 0
    tests = 0 if spec.test is None else 1
    test_values: tuple[int, ...] = (0,)
    load_test, test_at = load_length, 0
    if spec.test is not None:
        load_test, test_at = load_of(struct, spec.test.field), struct.offset(spec.test.field)
        test_values = spec.test.values
    markers, sized = 0, 0
    load_marker, marker_at, marker_value = load_length, 0, 0
    load_size, size_at, size_bias, size_low, size_end = load_length, 0, 0, 0, 0
    if spec.marker is not None:
        marker = spec.marker
        markers = 1
        load_marker, marker_at, marker_value = (
            load_of(struct, marker.field),
            struct.offset(marker.field),
            marker.value,
        )
        size_low = marker.struct.min_size
        size_end = marker.struct.head_size
        if marker.length is not None:
            sized = 1
            load_size, size_at = (
                load_of(marker.struct, marker.length.field),
                marker.struct.offset(marker.length.field),
            )
            size_bias, size_low = marker.length.bias, marker.length.low
    claims = 1 if isinstance(spec.claims, Position) else 0
    load_claim, claim_at = load_length, 0
    if isinstance(spec.claims, Position):
        load_claim, claim_at = load_of(struct, spec.claims.field), struct.offset(spec.claims.field)
    marks, mark_value = (0, 0) if spec.mark is None else (1, spec.mark.values[0])
    algorithm = spec.checksums[0].algorithm if spec.checksums else NO_ALGORITHM
    checksum = algorithm.of
    sums = len(spec.checksums)
    span_a, mask_a = span_of(spec, 0)
    span_b, mask_b = span_of(spec, 1)
    rules = 0 if spec.rule is None else 1
    chained = 1 if spec.followers else 0
    rule = no_rule if spec.rule is None else spec.rule

    plain = 0 if markers or tests else 1

    def peeked(buf: Bytes, at: int, left: int) -> tuple[int, int, int]:
        """(reason or 0, size, kind) from the first bytes of a frame, which are there."""
        length = load_length(buf, at + length_at)
        if zero_ends and length == 0:
            return ZERO, 0, 0
        if markers and load_marker(buf, at + marker_at) == marker_value:
            if not sized:
                return END, size_low, MARKER
            if left < size_end:
                return TORN, 0, 0
            if len(buf) - at < size_end:
                return NEED, size_end, MARKER
            size = load_size(buf, at + size_at) + size_bias
            return (BAD_LENGTH if size < size_low or size > high else END), size, MARKER
        if tests:
            value = load_test(buf, at + test_at)
            passed = False
            for one in test_values:
                if value == one:
                    passed = True
            if not passed:
                return BAD_TEST, 0, 0
        size = length + bias
        return (BAD_LENGTH if size < low or size > high else END), size, MAIN

    peek_at: Any = named_kernel("const u1[], i8, i8", spec, "peek", peeked)

    def follows(buf: Bytes, at: int, left: int) -> int:
        """1 where a plausible frame, zeros or the end of the file is at `at`; 0 where not; below 0 the bytes that it takes to tell."""
        if left <= 0:
            return 1
        here = len(buf) - at
        if here < peek and here < left:
            return -min(peek, left)
        if left < peek:
            for i in range(at, at + left):
                if load_u8(buf, i) != 0:
                    return 0
            return 1
        why, size, kind = peek_at(buf, at, left)
        if why == ZERO:
            for i in range(at, at + min(here, 64)):
                if load_u8(buf, i) != 0:
                    return 0
            return 1
        if why == NEED:
            return int(-size)
        if why != END or size > left:
            return 0
        if kind == MARKER:
            return 1
        if size > here:
            return int(-size)
        return 1 if rule(buf, at, at + size, 0) != IMPOSSIBLE else 0

    follow: Any = named_kernel("const u1[], i8, i8", spec, "follows", follows)

    def scan(
        buf: Bytes, at: int, left: int, base: int, check: int, starts: Int64s, heads: Bytes
    ) -> tuple[int, int, int, int]:
        n = 0
        while True:
            if left <= 0:
                return n, at, END, 0
            if n >= len(starts):
                return n, at, FULL, 0
            here = len(buf) - at
            if here < peek:
                return n, at, (NEED if here < left else TORN), min(left, peek)
            if plain:
                # As `peeked`, without the price of a call.
                length = load_length(buf, at + length_at)
                if zero_ends and length == 0:
                    return n, at, ZERO, 0
                why, size, kind = END, length + bias, MAIN
                if size < low or size > high:
                    return n, at, BAD_LENGTH, 0
            else:
                why, size, kind = peek_at(buf, at, left)
                if why != END:
                    return n, at, why, size
            if size > left:
                return n, at, TORN, size
            if kind == MAIN:
                if claims and base != NO_BASE:
                    if here < low:
                        return n, at, NEED, size
                    if load_claim(buf, at + claim_at) != base + at:
                        return n, at, BAD_CLAIM, size
                if size > here:
                    return n, at, NEED, size
                if marks and load_u8(buf, at + size - 1) != mark_value:
                    return n, at, BAD_MARK, size
                if rules:
                    verdict = rule(buf, at, at + size, check)
                    if verdict == IMPOSSIBLE:
                        return n, at, BAD_RULE, size
                    if check and verdict != CERTAIN:
                        after = follow(buf, at + size, left - size)
                        if after < 0:
                            return n, at, NEED, size - after
                        if after == 0:
                            return n, at, UNFOLLOWED, size
                if check and sums:
                    start, stop, stored = span_a(buf, at, at + size)
                    if start >= 0 and checksum(buf, start, stop) & mask_a != stored:
                        return n, at, BAD_CHECKSUM, size
                    if sums > 1:
                        start, stop, stored = span_b(buf, at, at + size)
                        if start >= 0 and checksum(buf, start, stop) & mask_b != stored:
                            return n, at, BAD_CHECKSUM, size
            elif size > here:
                return n, at, NEED, size
            elif check and chained:
                after = follow(buf, at + size, left - size)
                if after < 0:
                    return n, at, NEED, size - after
                if after == 0:
                    return n, at, UNFOLLOWED, size
            starts[n] = at
            if len(heads) > 0:
                if size >= width:
                    copy(heads, n * (width + 1), buf, at, width)
                    heads[n * (width + 1) + width] = kind
                else:
                    put_head(heads, n * (width + 1), buf, at, size, kind, width)
            n += 1
            at += size
            left -= size

    made: Scan = named_kernel("const u1[], i8, i8, i8, i8, i8[], u1[]", spec, "scan", scan)  # type: ignore[assignment]
    return made
