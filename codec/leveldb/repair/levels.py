"""Choose levels for tables whose level is unknown.

LevelDB requires that tables of a level below 0 do not overlap, and that of overlapping tables the one searched first has the newer entries
of a key. It searches level 0 first, from the highest file number down, then one level after the other (`Version::Get`). Level 6 is never
compacted for its size, so tables go as deep as possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logwright.codec.leveldb.formats.manifest.layout import LEVELS


@dataclass(frozen=True, slots=True)
class Span:
    """The range of user keys and sequence numbers of a table. `level` is its known level, if any."""

    number: int
    smallest: bytes
    largest: bytes
    low: int
    high: int
    level: int | None = None

    def overlaps(self, other: Span) -> bool:
        return self.smallest <= other.largest and other.smallest <= self.largest


OLDER, NEWER, APART, TANGLED = range(4)
"""How two overlapping tables compare on their common keys: the first is older in all, newer in all, there are no common keys, or each is
newer for some key."""
Compare = Callable[[Span, Span], int]


@dataclass
class Assignment:
    """Levels by number of the table."""

    levels: dict[int, int] = field(default_factory=dict)
    level_0: list[int] = field(default_factory=list)
    """The tables of level 0, oldest first. Their numbers must be in this order."""
    tangled: set[int] = field(default_factory=set)
    """Tables for which no level is right: Get may return an older value than an iterator."""


def assign_levels(tables: Sequence[Span], compare: Compare) -> Assignment:
    """Choose a level for each table, its known one if possible. `compare` is called if sequence numbers alone do not decide."""
    spans = {table.number: table for table in tables}
    older: dict[int, set[int]] = {number: set() for number in spans}
    newer: dict[int, set[int]] = {number: set() for number in spans}
    beside: dict[int, set[int]] = {number: set() for number in spans}
    places = Assignment()
    for a, b in _overlapping(tables):
        relation = _how(a, b, compare)
        if relation == TANGLED:
            places.tangled |= {a.number, b.number}
        beside[a.number].add(b.number)
        beside[b.number].add(a.number)
        if relation in (OLDER, NEWER):
            first, second = (a, b) if relation == OLDER else (b, a)
            older[second.number].add(first.number)
            newer[first.number].add(second.number)
    for number in _by_age(spans, older, newer, places):
        table = spans[number]
        above = min(
            (places.levels[other] for other in older[number] if other in places.levels), default=LEVELS
        )
        taken = {places.levels[other] for other in beside[number] if other in places.levels}
        level = 0
        if number not in places.tangled:
            level = _level(table.level, above, taken)
        places.levels[number] = level
        if level == 0:
            places.level_0.append(number)
    return places


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
    """Return all pairs of tables whose keys overlap."""
    out: list[tuple[Span, Span]] = []
    open_: list[Span] = []
    for span in sorted(tables, key=lambda table: (table.smallest, table.number)):
        open_ = [other for other in open_ if other.largest >= span.smallest]
        out += [(other, span) for other in open_]
        open_.append(span)
    return out


def _by_age(
    spans: dict[int, Span], older: dict[int, set[int]], newer: dict[int, set[int]], places: Assignment
) -> list[int]:
    """Return the tables, oldest first. Cycles are tangled."""
    waits = {number: len(before) for number, before in older.items()}
    ready = [(spans[number].high, number) for number, count in waits.items() if not count]
    heapq.heapify(ready)
    out: list[int] = []
    while len(out) < len(spans):
        if not ready:
            left = set(spans) - set(out)
            places.tangled |= left
            return [*out, *sorted(left, key=lambda number: (spans[number].high, number))]
        _, number = heapq.heappop(ready)
        out.append(number)
        for other in newer[number]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (spans[other].high, other))
    return out
