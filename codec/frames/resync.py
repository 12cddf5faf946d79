"""The search for the next frame after damage, compiled from a frame specification.

With checksums, a candidate is a position where length, test and claimed position are possible and the checksums match. Long candidates are
checked by `prefixes`, so that heads which each claim the rest of the file take linear time. Without checksums, a candidate counts only if a
chain of plausible frames, or the end of the frames, follows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.describe import Int
from logwright.codec.frames.prefixes import BUDGET, Prefixes, range_sum
from logwright.codec.frames.scanner import LONGEST_FILL, NO_BASE, ZEROS
from logwright.codec.frames.specification import (
    CERTAIN,
    IMPOSSIBLE,
    FrameSpec,
    any_head,
    claim_constants,
    length_constants,
    load_of,
    marker_constants,
    named_kernel,
    no_rule,
    span_of,
    test_of,
)
from logwright.codec.kernels.intrinsics import load_i64le, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Window

SOUND, UNSURE, NONE = range(3)
"""Results of a search: a frame; a possible frame that needs more bytes; nothing."""

_TRIED = 16
"""Positions that a search tries before it looks again whether zeros follow, which it skips."""
_EACH_BYTE, _EACH_SIGN = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
"""The lowest and the highest bit of each byte of a signed integer of eight bytes."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""Bounds of the ascending field."""
BROKEN, CUT, OVER = range(3)
"""Why a chain of good frames ends: no good frame follows; the window ends; the end of the range is reached."""

Find = Callable[..., tuple[int, int, int]]
Follow = Callable[..., tuple[int, int, int]]
Collect = Callable[[Bytes, int, int, Int64s, Int64s, Int64s], tuple[int, int]]


def chain_of(spec: FrameSpec) -> Callable[[Bytes, int, int], tuple[int, int, int]]:
    """Return the kernel `chain(buf, at, left)`, which follows plausible frames from the end of a candidate: (links, or -1 if the chain
    is broken, or -2 if more bytes are needed; the number of bytes needed from the start of `buf`; main frames among the links)."""
    peek, low = spec.peek, spec.length.low
    load_length, length_at, bias = length_constants(spec)
    high = min(spec.length.high, spec.length.reach)
    rule = no_rule if spec.rule is None else spec.rule
    fills, fill = (0, 0) if spec.fill is None else (1, spec.fill)
    followers = spec.followers
    (
        markers, sized, load_marker, marker_at, marker_value, load_size, size_at, size_bias, size_low, size_end,
    ) = marker_constants(spec)  # fmt: skip

    def chain(buf: Bytes, at: int, left: int) -> tuple[int, int, int]:
        links = 0
        mains = 0
        while links < followers:
            if left <= 0:
                return followers, 0, mains
            here = len(buf) - at
            if fills and here and load_u8(buf, at) == fill:
                run = 1
                while run < min(here, LONGEST_FILL) and load_u8(buf, at + run) == fill:
                    run += 1
                at += run
                left -= run
                continue
            if here < peek and here < left:
                return -2, at + peek, mains
            enough = min(left, ZEROS)
            zeros = 0
            while zeros < min(here, enough) and load_u8(buf, at + zeros) == 0:
                zeros += 1
            if zeros == enough:
                return followers, 0, mains
            if zeros == here:
                return -2, at + enough, mains
            if left < peek:
                return -1, 0, mains
            size = 0
            if markers and load_marker(buf, at + marker_at) == marker_value:
                if left < size_end:
                    return -1, 0, mains
                if here < size_end:
                    return -2, at + size_end, mains
                size = size_low
                if sized:
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
                if verdict >= CERTAIN:
                    return followers, 0, mains + 1
                mains += 1
            links += 1
            at += size
            left -= size
        return links, 0, mains

    chain_kernel: Any = named_kernel("const u1[], i8, i8", spec, "chain", chain)
    return chain_kernel  # type: ignore[no-any-return]


@kernel("const u1[], i8, i8")
def no_padding(buf: Bytes, at: int, size: int) -> bool:
    """Stand for `padding_test` in formats without padding records."""
    return False


def padding_test(spec: FrameSpec) -> Callable[[Bytes, int, int], bool]:
    """Return the kernel `in_padding(buf, at, size)`: whether a candidate is the second part of a padding record.

    Its length field is then that of the record, before which the record's mark stands, and all that follows is zeros.
    """
    marker = spec.marker
    assert marker is not None
    assert marker.length is not None
    length_at = spec.struct.offset(spec.length.field)
    width = spec.struct[spec.length.field].type.min_size
    load_mark, mark_value = load_of(marker.struct, marker.field), marker.value
    back = marker.struct.offset(marker.length.field) - length_at
    mark_at = marker.struct.offset(marker.field) - back

    def in_padding(buf: Bytes, at: int, size: int) -> bool:
        if at < back or load_mark(buf, at + mark_at) != mark_value:
            return False
        i, end = at + length_at + width, min(at + size, len(buf))
        while i < end and load_u8(buf, i) == 0:
            i += 1
        return i >= end

    test: Any = named_kernel("const u1[], i8, i8", spec, "padding", in_padding)
    return test  # type: ignore[no-any-return]


@cache
def validate(spec: FrameSpec) -> Find:
    """Return the kernel `validate(buf, at, left, base, low, high, known, filled) -> (outcome, size or bytes needed, next claim)`.

    The test and the size of the frame at `at` are known to be possible. `left` and `base` are those of `scanner`. The ascending field must
    be in `[low, high]`, and the next claim is the value that follows the frame. `known` and `filled` are those of `Prefixes`.
    """
    least = spec.length.low
    load_length, length_at, bias = length_constants(spec)
    position, ascending, load_claim, claim_at, spans, load_delta, delta_at = claim_constants(spec)
    marks, mark_value = (0, 0) if spec.mark is None else (1, spec.mark.values[0])
    sum_a, sum_b = range_sum(spec, 0), range_sum(spec, 1)
    span_a, mask_a = span_of(spec, 0)
    span_b, mask_b = span_of(spec, 1)
    sums = len(spec.checksums)
    rule = no_rule if spec.rule is None else spec.rule
    followers = spec.followers
    chained = 1 if followers else 0
    chain = chain_of(spec)

    def validated(
        buf: Bytes, p: int, left: int, base: int, low: int, high: int, known: Int64s, filled: Int64s
    ) -> tuple[int, int, int]:
        here = len(buf) - p
        size = load_length(buf, p + length_at) + bias
        if here < least:
            return UNSURE, least, 0
        if position and base != NO_BASE and load_claim(buf, p + claim_at) != base + p:
            return NONE, 0, 0
        after = 0
        if ascending:
            claim = load_claim(buf, p + claim_at)
            delta = 0
            if spans:
                delta = load_delta(buf, p + delta_at)
            if claim < low or delta < 0 or claim > high - delta:
                return NONE, 0, 0
            after = claim + delta + 1
        if here < size:
            return UNSURE, size, after
        if marks and load_u8(buf, p + size - 1) != mark_value:
            return NONE, 0, 0
        verdict = rule(buf, p, p + size, 0)
        if verdict == IMPOSSIBLE:
            return NONE, 0, 0
        if chained and verdict < CERTAIN and filled[1] + size <= BUDGET * len(buf):
            filled[1] += size
            verdict = rule(buf, p, p + size, 1)
        if chained and verdict < CERTAIN:
            links, need, mains = chain(buf, p + size, left - size)
            if links == -2:
                return UNSURE, need - p, after
            if links < followers or mains == 0:
                return NONE, 0, 0
        if sums:
            start, stop, stored = span_a(buf, p, p + size)
            if start >= 0 and sum_a(buf, known, filled, start, stop) & mask_a != stored:
                return NONE, 0, 0
            if sums > 1:
                start, stop, stored = span_b(buf, p, p + size)
                if start >= 0 and sum_b(buf, known, filled, start, stop) & mask_b != stored:
                    return NONE, 0, 0
        return SOUND, size, after

    validate_kernel: Find = named_kernel(
        "const u1[], i8, i8, i8, i8, i8, i8[], i8[]", spec, "validate", validated
    )  # type: ignore[assignment]
    return validate_kernel


@cache
def finder(spec: FrameSpec) -> Find:
    """Return the kernel `find(buf, at, left, base, low, high, due, known, filled) -> (place, outcome, bytes needed from there)`.

    See `validate` for the arguments. A frame above the length's `reach` must claim `low` or `due`.
    """
    peek, least, shortest = spec.peek, spec.least, spec.length.low
    load_length, length_at, bias = length_constants(spec)
    _, ascending, load_claim, claim_at, *_ = claim_constants(spec)
    reach = min(spec.length.high, spec.length.reach)
    longest = spec.length.high if ascending else reach
    tests_head, head_rule = (0, any_head) if spec.head_rule is None else (1, spec.head_rule)
    head = max(shortest, spec.struct.head_size if tests_head else 0)
    passes = test_of(spec)
    padded, in_padding = (
        (0, no_padding) if spec.marker is None or spec.marker.length is None else (1, padding_test(spec))
    )
    # Whether a candidate of zeros is rejected by its length or its test.
    skips = 0 if head <= bias <= longest and (spec.test is None or 0 in spec.test.values) else 1
    length = spec.struct[spec.length.field].type
    assert isinstance(length, Int)
    highest_at = length_at + (0 if length.order == ">" else length.width - 1)
    lower_bits, eight = 8 * (length.width - 1), 1 if bias <= head else 0
    validated = validate(spec)

    def find(
        buf: Bytes, at: int, left: int, base: int, low: int, high: int, due: int, known: Int64s, filled: Int64s,
    ) -> tuple[int, int, int]:  # fmt: skip
        end = at + left
        p = at
        last = min(end - least, len(buf) - peek)
        while p <= last:
            if skips and load_u8(buf, p) == 0:
                zeros = p
                while len(buf) - zeros >= 32 and (
                    load_i64le(buf, zeros)
                    | load_i64le(buf, zeros + 8)
                    | load_i64le(buf, zeros + 16)
                    | load_i64le(buf, zeros + 24)
                ) == 0:  # fmt: skip
                    zeros += 32
                if zeros - p > peek + 1:
                    p += zeros - p - peek
                    continue
            # Eight positions at once, if the highest byte of each length is above that of the largest possible length.
            above = (min(longest, end - p) - bias >> lower_bits) + 1
            while eight and above < 128 and p + 7 <= last:
                highest = load_i64le(buf, p + highest_at)
                if (highest - above * _EACH_BYTE) & ~highest & _EACH_SIGN:
                    break
                p += 8
            for q in range(p, min(p + _TRIED, last + 1)):
                p = q + 1
                if not passes(buf, q):
                    continue
                size = load_length(buf, q + length_at) + bias
                if size < head or size > longest or size > end - q:
                    continue
                if len(buf) - q < head:
                    return q, UNSURE, head
                passed = True
                if ascending:
                    # Cheaper than the rule of the head, and enough for most candidates.
                    claim = load_claim(buf, q + claim_at)
                    passed = low <= claim <= high and (size <= reach or claim in (low, due))
                if passed and tests_head:
                    passed = head_rule(buf, q)
                if passed and padded:
                    passed = not in_padding(buf, q, size)
                if passed:
                    outcome, need, _ = validated(buf, q, end - q, base, low, high, known, filled)
                    if outcome != NONE:
                        return q, outcome, need
        return p, NONE, 0

    find_kernel: Find = named_kernel("const u1[], i8, i8, i8, i8, i8, i8, i8[], i8[]", spec, "find", find)  # type: ignore[assignment]
    return find_kernel


@cache
def collector(spec: FrameSpec) -> Collect:
    """Return the kernel `collect(buf, at, left, known, filled, entries) -> (candidates, where to continue, or -1)`.

    `entries` gets the place, the outcome, the bytes needed and the claim of each candidate from `at` on, whatever position it claims. The
    claim is not known if the outcome is `UNSURE` and the shortest frame is longer than the rest of `buf`.
    """
    find, shortest = finder(spec), spec.length.low
    _, _, load_claim, claim_at, *_ = claim_constants(spec)

    def collect(
        buf: Bytes, at: int, left: int, known: Int64s, filled: Int64s, entries: Int64s
    ) -> tuple[int, int]:
        for n in range(len(entries)):
            place, outcome, need = find(buf, at, left, NO_BASE, LOWEST, HIGHEST, LOWEST, known, filled)
            if outcome == NONE:
                return n, -1
            entries[n, 0] = place
            entries[n, 1] = outcome
            entries[n, 2] = need
            if len(buf) - place >= shortest:
                entries[n, 3] = load_claim(buf, place + claim_at)
            left -= place + 1 - at
            at = place + 1
        return len(entries), at

    collect_kernel: Collect = named_kernel("const u1[], i8, i8, i8[], i8[], i8[,]", spec, "collect", collect)  # type: ignore[assignment]
    return collect_kernel


@cache
def follower(spec: FrameSpec) -> Follow:
    """Return the kernel `follow(buf, at, end, left, low, high, known, filled) -> (where the chain ends, why, next claim)`.

    It follows good frames of the main kind with ascending claims from `at` to `end` or beyond. See `validate` for the arguments.
    """
    peek, shortest, longest = spec.peek, spec.length.low, spec.length.high
    load_length, length_at, bias = length_constants(spec)
    passes = test_of(spec)
    validated = validate(spec)

    def follow(
        buf: Bytes, at: int, end: int, left: int, low: int, high: int, known: Int64s, filled: Int64s
    ) -> tuple[int, int, int]:
        while at < end:
            here = len(buf) - at
            if here < peek:
                return at, CUT if left > here else BROKEN, low
            if not passes(buf, at):
                return at, BROKEN, low
            size = load_length(buf, at + length_at) + bias
            if size < shortest or size > longest or size > left:
                return at, BROKEN, low
            outcome, size, due = validated(buf, at, left, NO_BASE, low, high, known, filled)
            if outcome != SOUND:
                return at, CUT if outcome == UNSURE else BROKEN, low
            low = due
            at += size
            left -= size
        return at, OVER, low

    follow_kernel: Follow = named_kernel("const u1[], i8, i8, i8, i8, i8, i8[], i8[]", spec, "follow", follow)  # type: ignore[assignment]
    return follow_kernel


class Finder:
    """The search of a specification, on windows."""

    def __init__(self, spec: FrameSpec) -> None:
        self.spec = spec

    @cached_property
    def find(self) -> Find:
        return finder(self.spec)

    def prefixes(self, data: Bytes, kept: Prefixes | None = None) -> Prefixes:
        """Return the prefixes of `data`: the kept ones, if they are of the same window."""
        return kept if kept is not None and kept.data is data else Prefixes.of(self.spec, data)

    def next(
        self, window: Window, at: int, prefixes: Prefixes, *, base: int = NO_BASE, low: int = LOWEST, high: int = HIGHEST, due: int = LOWEST,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Return the next candidate from `window.data[at]` on, its outcome, and the bytes needed from there. See `validate`."""
        left = window.size - window.offset - at
        result = self.find(window.data, at, left, base, low, high, due, prefixes.known, prefixes.filled)
        place, outcome, need = map(int, result)
        return place, outcome, need

    def candidates(self, window: Window, at: int, prefixes: Prefixes, kept: Candidates | None) -> Candidates:
        """Return the candidates of the window from `at` on: the kept ones, if they are of the same window."""
        if kept is not None and kept.window.data is window.data and kept.start <= at:
            return kept
        return Candidates(self, window, at, prefixes)


_FEW, _MANY = 16, 4096
"""The number of candidates that are collected at first, and the largest number that is collected at once."""
_DIRECT = 2
"""Direct searches may look at each byte of a window this many times on average."""


@dataclass
class Candidates:
    """The candidates of a window by the position that a frame at its start would claim, if it were displaced as they are.

    Frames that are each displaced by another number of bytes would have the same bytes searched again and again for the next one that is
    displaced as the last. With the candidates each byte is searched once more. The first searches are direct, because few are enough as a
    rule.
    """

    finder: Finder
    window: Window
    start: int
    """Where the search began."""
    prefixes: Prefixes
    at: int = field(init=False)
    """Where the search continues, or -1."""
    by_base: dict[int | None, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Place, outcome and bytes needed of each candidate so far. The key is None if the window ends before the claim."""

    def __post_init__(self) -> None:
        self.at, self._count, self._searched = self.start, _FEW, 0

    def next(self, at: int, base: int) -> tuple[int, int, int]:
        """Return the next candidate from `at` on, as `Finder.next` does."""
        if self._searched < _DIRECT * len(self.window.data):
            candidate = self.finder.next(self.window, at, self.prefixes, base=base)
            self._searched += candidate[0] - at
            return candidate
        while True:
            # Those without a known claim are the last ones.
            for key in (base, None):
                candidates = self.by_base.get(key, [])
                i = bisect_left(candidates, (at,))
                if i < len(candidates):
                    return candidates[i]
            if self.at < 0:
                return at, NONE, 0
            self.collect()

    def collect(self) -> None:
        """Continue the search, for a bounded number of candidates."""
        data, entries = self.window.data, np.empty((self._count, 4), np.int64)
        left = self.window.size - self.window.offset - self.at
        count, self.at = collector(self.finder.spec)(
            data, self.at, left, self.prefixes.known, self.prefixes.filled, entries
        )
        for place, outcome, need, claim in entries[:count].tolist():
            known = len(data) - place >= self.finder.spec.length.low
            self.by_base.setdefault(claim - place if known else None, []).append((place, outcome, need))
        self._count = min(4 * self._count, _MANY)
