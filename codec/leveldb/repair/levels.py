"""A level for each table of which no manifest tells it.

What LevelDB needs: tables of a level from 1 on don't overlap; where tables overlap, those that are looked into first have the newer
entries of a key. It looks into level 0 first, from the highest file number down, then into one level after the other
(`Version::Get`). Level 6 is never compacted for its size, so tables go as deep as they can.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logwright.codec.leveldb.formats.manifest.layout import LEVELS


@dataclass(frozen=True, slots=True)
class Span:
    """A table by the user keys and sequence numbers that it has; `level` is what is known of it."""

    number: int
    smallest: bytes
    largest: bytes
    low: int
    high: int
    level: int | None = None

    def overlaps(self, other: Span) -> bool:
        return self.smallest <= other.largest and other.smallest <= self.largest


OLDER, NEWER, APART, TANGLED = range(4)
"""How two overlapping tables compare, by the keys that both have: all entries of the one are older than those of the other, or newer;
they have no key in common; or for one key the one is newer, for another key the other."""
Compare = Callable[[Span, Span], int]


@dataclass
class Places:
    """Levels by number of the table."""

    levels: dict[int, int] = field(default_factory=dict)
    level_0: list[int] = field(default_factory=list)
    """The tables of level 0, the oldest first. Their numbers have to be in this order."""
    tangled: set[int] = field(default_factory=set)
    """Tables for which there is no level that is right: Get may give an older value than an iterator."""


def place(tables: Sequence[Span], compare: Compare) -> Places:
    """Find a level for each table, the known one where it fits. `compare` is asked where sequence numbers alone don't tell."""
    spans = {one.number: one for one in tables}
    older: dict[int, set[int]] = {number: set() for number in spans}
    newer: dict[int, set[int]] = {number: set() for number in spans}
    beside: dict[int, set[int]] = {number: set() for number in spans}
    found = Places()
    for a, b in _overlapping(tables):
        how = _how(a, b, compare)
        if how == TANGLED:
            found.tangled |= {a.number, b.number}
        beside[a.number].add(b.number)
        beside[b.number].add(a.number)
        if how in (OLDER, NEWER):
            first, second = (a, b) if how == OLDER else (b, a)
            older[second.number].add(first.number)
            newer[first.number].add(second.number)
    for number in _by_age(spans, older, newer, found):
        one = spans[number]
        above = min((found.levels[other] for other in older[number] if other in found.levels), default=LEVELS)
        taken = {found.levels[other] for other in beside[number] if other in found.levels}
        level = 0
        if number not in found.tangled:
            level = _level(one.level, above, taken)
        found.levels[number] = level
        if level == 0:
            found.level_0.append(number)
    return found


def _level(known: int | None, above: int, taken: set[int]) -> int:
    if known is not None and known < above and (known == 0 or known not in taken):
        return known
    level = above - 1
    while level > 0 and level in taken:
        level -= 1
    return max(level, 0)


def _how(a: Span, b: Span, compare: Compare) -> int:
    if a.high < b.low:
        return OLDER
    return NEWER if b.high < a.low else compare(a, b)


def _overlapping(tables: Sequence[Span]) -> list[tuple[Span, Span]]:
    """All pairs of tables whose keys overlap."""
    out: list[tuple[Span, Span]] = []
    open_: list[Span] = []
    for one in sorted(tables, key=lambda table: (table.smallest, table.number)):
        open_ = [other for other in open_ if other.largest >= one.smallest]
        out += [(other, one) for other in open_]
        open_.append(one)
    return out


def _by_age(
    spans: dict[int, Span], older: dict[int, set[int]], newer: dict[int, set[int]], found: Places
) -> list[int]:
    """The tables, the oldest first. Those that are each older than the other, over others, are tangled."""
    waits = {number: len(before) for number, before in older.items()}
    ready = [(spans[number].high, number) for number, count in waits.items() if not count]
    heapq.heapify(ready)
    out: list[int] = []
    while len(out) < len(spans):
        if not ready:
            left = set(spans) - set(out)
            found.tangled |= left
            return [*out, *sorted(left, key=lambda number: (spans[number].high, number))]
        _, number = heapq.heappop(ready)
        out.append(number)
        for other in newer[number]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (spans[other].high, other))
    return out
