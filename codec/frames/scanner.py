"""The scanner of a frame specification: follow the lengths from frame to frame, and test each frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.frames.prefixes import BUDGET, DIRECT, Prefixes, Sum, algorithm_of, range_sum
from logwright.codec.frames.specification import (
    CERTAIN,
    IMPOSSIBLE,
    PLAUSIBLE,
    FrameSpec,
    claim_constants,
    length_constants,
    marker_constants,
    named_kernel,
    no_rule,
    span_of,
    test_of,
)
from logwright.codec.kernels.intrinsics import copy, load_u8, prefetch
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Window

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
"""Why a scan ended: end of file; more bytes needed; arrays full; torn frame at the end of the file; terminating length of 0; length out
of limits; wrong magic or type; claim of another position; wrong last byte; frame refused by its rule; wrong checksum; plausible frame
that no plausible frame follows."""

MAIN, MARKER, HEADER, FILLER = range(4)
"""Kinds of frames: the main one, the marker of the specification, the file header, and a run of the fill byte."""

NO_BASE = -(1 << 62)
"""The base of a file if it is unknown."""

LONGEST_FILL = 4096
"""A longer run of the fill byte is split into several frames, so that frames do not depend on the window."""
ZEROS = 64
"""Zero bytes, or as many as the file has left, that show that no more frames follow."""
_NO_NUMBERS = np.empty(0, np.int64)
_ROOM = 1 << 16
"""Frames that one call of a scanner finds at most."""
_AHEAD, _AT_ONCE, _LINE = 1024, 512, 64
"""Bytes that are prefetched with each frame, unless frames are shorter than a cache line: where they start, counted from the start of the
frame, how many they are, and the size of a cache line. The processor itself stops prefetching at the end of each page and each checksum."""

Scan = Callable[[Bytes, int, int, int, int, Int64s, Bytes, Int64s, Int64s], tuple[int, int, int, int, int]]


@kernel("u1[], i8, const u1[], i8, i8, i8, i8")
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int, kind: int, width: int) -> None:
    """Copy the first `width` bytes of a frame of `size` bytes to `place`, followed by its kind."""
    if size >= width:
        copy(heads, place, buf, at, width)
    else:
        copy(heads, place, buf, at, size)
        for i in range(place + size, place + width):
            heads[i] = 0
    heads[place + width] = kind


@kernel("u1[], i8, const u1[], i8, i8")
def no_put(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Keep nothing of a head."""


def direct_sum(spec: FrameSpec, index: int) -> Sum:
    """Return a kernel with the arguments of `range_sum` that sums every range directly."""
    checksum = algorithm_of(spec, index).of

    def summed(buf: Bytes, known: Int64s, filled: Int64s, start: int, end: int) -> int:
        return checksum(buf, start, end)

    name = f"direct_sum{index or ''}"
    return named_kernel("const u1[], i8[], i8[], i8, i8", spec, name, summed, inline=True)  # type: ignore[return-value]


def scanner(spec: FrameSpec, *, prefixed: bool = False) -> Scan:
    """Return the kernel `scan(buf, at, left, base, check, starts, heads, known, filled) -> (frames, where it stopped, why, bytes needed
    from there, odd)`.

    `left` is the number of bytes of the file from `at` on, of which `buf` may hold fewer. `base` is the position that a frame at `buf[0]`
    would claim, or `NO_BASE`. Frames are adjacent: `starts` gets the start of each. `heads` gets an entry of dtype `FrameSpec.head` per
    frame, while the head is in the cache; fields beyond a short frame are 0. With `prefixed`, checksums of long frames come from the
    `Prefixes` in `known` and `filled`, which are unused otherwise.

    `odd` is 0 if each frame has a complete head whose ascending field continues that of the frame before.
    """
    peek = spec.peek
    width = spec.struct.head_size
    row = spec.head.itemsize
    puts, put = (0, no_put) if spec.heads is None else (1, spec.heads.put)
    verdicts = 1 if spec.verdicts else 0
    fills, fill = (0, 0) if spec.fill is None else (1, spec.fill)
    load_length, length_at, bias = length_constants(spec)
    low, high = spec.length.low, spec.length.high
    prefetched = _AT_ONCE if low > _LINE else 0
    zero_ends = 1 if spec.zero_ends else 0
    passes = test_of(spec)
    (
        markers, sized, load_marker, marker_at, marker_value, load_size, size_at, size_bias, size_low, size_end,
    ) = marker_constants(spec)  # fmt: skip
    claims, ascends, load_claim, claim_at, spans, load_delta, delta_at = claim_constants(spec)
    marks, mark_value = (0, 0) if spec.mark is None else (1, spec.mark.values[0])
    full_head = width + marks
    sums = len(spec.checksums)
    span_a, mask_a = span_of(spec, 0)
    span_b, mask_b = span_of(spec, 1)
    rules = 0 if spec.rule is None else 1
    chained = 1 if spec.followers else 0
    rule = no_rule if spec.rule is None else spec.rule

    bounded = 1 if prefixed else 0
    sum_a, sum_b = (range_sum(spec, i) if prefixed else direct_sum(spec, i) for i in (0, 1))

    plain = 0 if markers else 1

    def peeked(buf: Bytes, at: int, left: int) -> tuple[int, int, int]:
        """Return (reason or 0, size, kind) from the first bytes of a frame, which are in the buffer."""
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
        if not passes(buf, at):
            return BAD_TEST, 0, 0
        size = length + bias
        return (BAD_LENGTH if size < low or size > high else END), size, MAIN

    peek_at: Any = named_kernel("const u1[], i8, i8", spec, "peek", peeked)

    def follows(buf: Bytes, at: int, left: int) -> int:
        """Return 1 if a plausible frame, zeros or the end of the file is at `at`, 0 if not, or minus the number of bytes needed."""
        if left <= 0:
            return 1
        if fills and at < len(buf) and load_u8(buf, at) == fill:
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
            zeros = min(left, ZEROS)
            for i in range(at, at + min(here, zeros)):
                if load_u8(buf, i) != 0:
                    return 0
            return 1 if here >= zeros else -zeros
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
        buf: Bytes, at: int, left: int, base: int, check: int, starts: Int64s, heads: Bytes, known: Int64s, filled: Int64s,
    ) -> tuple[int, int, int, int, int]:  # fmt: skip
        n = 0
        odd = 0
        verdict = PLAUSIBLE
        due = load_claim(buf, at + claim_at) if ascends and len(buf) - at >= width else 0
        while True:
            if left <= 0:
                return n, at, END, 0, odd
            if n >= len(starts):
                return n, at, FULL, 0, odd
            here = len(buf) - at
            for i in range(0, prefetched, _LINE):
                prefetch(buf, at + _AHEAD + i)
            run = 0
            if fills:
                while run < min(here, LONGEST_FILL) and load_u8(buf, at + run) == fill:
                    run += 1
                if run == here and run < min(left, LONGEST_FILL):
                    return n, at, NEED, min(left, LONGEST_FILL), odd
            if run == 0 and here < peek:
                return n, at, (NEED if here < left else TORN), min(left, peek), odd
            if run:
                why, size, kind = END, run, FILLER
            elif plain:
                # The body of `peeked`, inlined by hand.
                length = load_length(buf, at + length_at)
                if zero_ends and length == 0:
                    return n, at, ZERO, 0, odd
                if not passes(buf, at):
                    return n, at, BAD_TEST, 0, odd
                why, size, kind = END, length + bias, MAIN
                if size < low or size > high:
                    return n, at, BAD_LENGTH, 0, odd
            else:
                why, size, kind = peek_at(buf, at, left)
                if why != END:
                    return n, at, why, size, odd
            if size > left:
                return n, at, TORN, size, odd
            if kind == MAIN:
                if claims and base != NO_BASE:
                    if here < low:
                        return n, at, NEED, size, odd
                    if load_claim(buf, at + claim_at) != base + at:
                        return n, at, BAD_CLAIM, size, odd
                if size > here:
                    return n, at, NEED, size, odd
                if marks and load_u8(buf, at + size - 1) != mark_value:
                    return n, at, BAD_MARK, size, odd
                if rules:
                    costly = bounded and size > DIRECT
                    deep = 0 if costly and filled[1] + size > BUDGET * len(buf) else check
                    verdict = rule(buf, at, at + size, deep)
                    if verdict == IMPOSSIBLE:
                        return n, at, BAD_RULE, size, odd
                    if check and verdict < CERTAIN:
                        if costly and deep:
                            filled[1] += size
                        after = follow(buf, at + size, left - size)
                        if after < 0:
                            return n, at, NEED, size - after, odd
                        if after == 0:
                            return n, at, UNFOLLOWED, size, odd
                if check and sums:
                    start, stop, stored = span_a(buf, at, at + size)
                    if start >= 0 and sum_a(buf, known, filled, start, stop) & mask_a != stored:
                        return n, at, BAD_CHECKSUM, size, odd
                    if sums > 1:
                        start, stop, stored = span_b(buf, at, at + size)
                        if start >= 0 and sum_b(buf, known, filled, start, stop) & mask_b != stored:
                            return n, at, BAD_CHECKSUM, size, odd
            elif size > here:
                return n, at, NEED, size, odd
            elif check and chained:
                after = follow(buf, at + size, left - size)
                if after < 0:
                    return n, at, NEED, size - after, odd
                if after == 0:
                    return n, at, UNFOLLOWED, size, odd
            if ascends:
                if size >= full_head:
                    claim = load_claim(buf, at + claim_at)
                    odd |= claim ^ due
                    due = claim + 1
                    if spans:
                        due += load_delta(buf, at + delta_at)
                else:
                    odd = 1
            starts[n] = at
            if puts:
                put(heads, n * row, buf, at, size)
            elif size >= width:
                copy(heads, n * row, buf, at, width)
                heads[n * row + width] = kind
            else:
                put_head(heads, n * row, buf, at, size, kind, width)
            if verdicts:
                heads[n * row + width + 1] = verdict
            n += 1
            at += size
            left -= size

    scan_kernel: Scan = named_kernel(
        "const u1[], i8, i8, i8, i8, i8[], u1[], i8[], i8[]",
        spec,
        "bounded_scan" if prefixed else "scan",
        scan,
    )  # type: ignore[assignment]
    return scan_kernel


def concatenate_heads(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays of heads as bytes. Field by field NumPy takes ten times as long, and converts the byte order."""
    return np.concatenate([part.view(np.uint8) for part in parts]).view(parts[0].dtype)


@dataclass(slots=True)
class Scanned:
    """The frames that a scanner found in a window. `why` is the reason why it stopped at `stop`; `need` are the bytes needed from there
    if the reason is `NEED`."""

    start: Int64s
    end: Int64s
    head: npt.NDArray[Any]
    stop: int
    why: int
    need: int
    consecutive: bool
    """The ascending field of each frame is known to continue that of the frame before."""

    def up_to(self, limit: int) -> Scanned:
        """Return the frames before the first one that ends after `limit`, as if the scanner had stopped there at a wrong position."""
        n = int(np.searchsorted(self.end, limit, "right"))
        start, size = int(self.start[n]), int(self.end[n] - self.start[n])
        return Scanned(self.start[:n], self.end[:n], self.head[:n], start, BAD_CLAIM, size, self.consecutive)


class Scanner:
    """The scanner of a specification, on windows."""

    def __init__(self, spec: FrameSpec) -> None:
        self.spec = spec

    @cached_property
    def scan(self) -> Scan:
        return scanner(self.spec)

    @cached_property
    def bounded_scan(self) -> Scan:
        return scanner(self.spec, prefixed=True)

    def frames(
        self,
        window: Window,
        at: int,
        base: int = NO_BASE,
        *,
        check: bool = True,
        prefixes: Prefixes | None = None,
        most: int | None = None,
    ) -> Scanned:
        """Find the frames from `window.data[at]` on. `base` is the position that a frame at `window.data[0]` would claim.

        With the `prefixes` of the window, which a search in it leaves, long frames are not summed again in each scan. After `most` frames
        the scan stops, and `why` is `FULL`.
        """
        data, head = window.data, self.spec.head
        left = window.size - window.offset - at
        scan, known = self._scan(prefixes)
        parts: list[tuple[Int64s, npt.NDArray[Any]]] = []
        why, need, odd = FULL, 0, 0
        while why == FULL and not (parts and most):
            room = max(1, min(most or _ROOM, (len(data) - at) // self.spec.least + 1))
            bounds, heads = np.empty(room + 1, np.int64), np.empty(room * head.itemsize, np.uint8)
            count, stop, why, need, odd = scan(data, at, left, base, int(check), bounds[:room], heads, *known)
            bounds[count] = stop
            parts.append((bounds[: count + 1], heads[: count * head.itemsize].view(head)))
            left -= int(stop) - at
            at = int(stop)
        bounds, heads = parts[0]
        if len(parts) > 1:
            bounds = np.concatenate([*(part[0][:-1] for part in parts), np.array([at], np.int64)])
            heads = concatenate_heads([part[1] for part in parts])
        # Frames are adjacent: one ends where the next starts.
        return Scanned(bounds[:-1], bounds[1:], heads, at, int(why), int(need), not odd and len(parts) == 1)

    def first(
        self, data: Bytes, at: int, left: int, base: int = NO_BASE, prefixes: Prefixes | None = None
    ) -> bool:
        """Return whether a good frame is at `data[at]`. `left` are the bytes of the file from there on."""
        scan, known = self._scan(prefixes)
        start, head = np.empty(1, np.int64), np.empty(self.spec.head.itemsize, np.uint8)
        return bool(scan(data, at, left, base, 1, start, head, *known)[0])

    def _scan(self, prefixes: Prefixes | None) -> tuple[Scan, tuple[Int64s, Int64s]]:
        if prefixes is None:
            return self.scan, (_NO_NUMBERS, _NO_NUMBERS)
        return self.bounded_scan, (prefixes.known, prefixes.filled)
