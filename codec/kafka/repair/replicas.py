"""Replicas of one partition put together: each batch from whichever copy has it sound.

Replicas hold the same bytes at the same offsets, cut into segments as each broker did, but for two things. Each compacts for
itself, so a batch may have fewer records in one, or be gone. And a leader that was cut off may have gone on with batches that the
next leader never saw: then, from some offset on, batches of equal offsets differ, and so do their leader epochs (KIP-101).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.layout import DELETE_HORIZON
from logwright.codec.kafka.repair.order import Order
from logwright.codec.kafka.repair.runs import Copies, Run, offsets

_SAME = ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_offset")
"""What compaction leaves as it is in a batch."""

Heads = npt.NDArray[Any]


@dataclass
class Merged:
    """Runs in order, each with the base of the segment it is to be in."""

    runs: list[tuple[Run, int]] = field(default_factory=list)
    cut: list[Removed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge(copies: Copies, orders: Sequence[Order], bases: Sequence[int], replicas: str) -> Merged:
    """`bases` are those of the first copy's segments. Raises `UsageError` where the copies diverged, unless `replicas` is "first"."""
    merged = Merged([(run, run.base) for run in orders[0].runs], list(orders[0].cut), list(orders[0].notes))
    if len(orders) == 1:
        return merged
    # What is left of a batch counts where no copy has all of it.
    runs = [run for run in orders[0].runs if not run.partial]
    parts = [run for run in orders[0].runs if run.partial]
    for number, order in enumerate(orders[1:], 1):
        whole = [run for run in order.runs if not run.partial]
        missing, end = _compare(copies, runs, whole, number, replicas)
        if end is not None:
            merged.notes.append(
                f"Copy {number + 1} differs from offset {end} on: what it has from there on is not used."
            )
        parts += [run for run in order.runs if run.partial and (end is None or run.last < end)]
        found = [part for run in _pick(copies, whole, missing) for part in copies.split(run, bases)]
        if found:
            rows = sum(_rows(copies, run) for run in found)
            merged.notes.append(f"{rows} record(s) come from copy {number + 1}.")
            runs = sorted([*_open(copies, runs, found), *found], key=lambda run: run.first)
    merged.cut = [_mended(cut, runs) for cut in merged.cut]
    for run in parts:
        _fill(copies, runs, run)
    merged.runs = _placed(runs, sorted(bases))
    return merged


def _fill(copies: Copies, runs: list[Run], part: Run) -> None:
    """Put what is left of a batch between others, unless its offsets are there."""
    at = bisect_right(runs, part.first, key=lambda run: run.first)
    before = [one for run in runs[max(0, at - 1) : at] for one in copies.split(run, [part.first])]
    if not any(run.first <= part.last and part.first <= run.last for run in [*before, *runs[at : at + 1]]):
        runs[max(0, at - 1) : at] = sorted([*before, part], key=lambda run: run.first)


def _rows(copies: Copies, run: Run) -> int:
    return sum(
        int(some.frames.header["records_count"].astype(np.int64).sum()) for some in copies.batches(run)
    )


def _pick(copies: Copies, runs: Sequence[Run], ranges: Sequence[tuple[int, int]]) -> list[Run]:
    """The batches of some runs that lie in some ranges of offsets, both ascending."""
    lows = [low for low, _ in ranges]
    out: list[Run] = []
    for run in runs:
        first = max(0, bisect_right(lows, run.first) - 1)
        some = ranges[first : bisect_right(lows, run.last)]
        for part in copies.split(run, [edge for low, high in some for edge in (low, high + 1)]):
            i = bisect_right(lows, part.first) - 1
            if i >= 0 and part.last <= ranges[i][1]:
                out.append(part)
    return out


def _open(copies: Copies, runs: Sequence[Run], found: Sequence[Run]) -> list[Run]:
    """Runs taken apart where others are to be put in between."""
    firsts = [run.first for run in found]
    return [
        part
        for run in runs
        for part in copies.split(
            run, firsts[bisect_right(firsts, run.first) : bisect_right(firsts, run.last)]
        )
    ]


def _placed(runs: Sequence[Run], bases: Sequence[int]) -> list[tuple[Run, int]]:
    """In which segment each run is to be: those of the first copy where it has one, else as in the other."""
    ahead: list[int | None] = []
    following: int | None = None
    for run in reversed(runs):
        ahead.append(following)
        following = run.base if run.copy == 0 else following
    out: list[tuple[Run, int]] = []
    current = end = -1
    for run, later in zip(runs, reversed(ahead), strict=True):
        if run.copy == 0:
            current = max(current, run.base)
        else:
            own = bisect_right(bases, run.first) - 1
            current = max(current, bases[own] if own >= 0 else -1)
            # Between two segments of the first copy, or behind its last: its boundaries say nothing there.
            if run.base > max(current, end) and (later is None or later > current):
                current = run.base
            current = current if current >= 0 else run.base
        out.append((run, current))
        end = run.last
    return out


def _mended(cut: Removed, runs: Sequence[Run]) -> Removed:
    """A region of the first copy whose offsets are all taken from another is no loss."""
    first, last = cut.lost.get("first_offset"), cut.lost.get("last_offset")
    if cut.rows_lost == 0 or first is None:
        return cut
    at = first
    for run in runs:
        if run.first > at:
            break
        at = max(at, run.last + 1)
    if (last is None and at > first and at > max(run.last for run in runs)) or (
        last is not None and at > last
    ):
        return replace(cut, why=f"{cut.why}; taken from another copy", rows_lost=0, lost={})
    return cut


# Divergence


def _compare(
    copies: Copies, ours: Sequence[Run], theirs: Sequence[Run], number: int, replicas: str
) -> tuple[list[tuple[int, int]], int | None]:
    """The ranges of offsets of batches that only the other copy has, and the first offset where both differ (None for nowhere)."""
    missing: list[tuple[int, int]] = []
    mine = _heads(copies, ours)
    a = next(mine, None)
    joined = False
    for b in _heads(copies, theirs):
        base, last = offsets(b)
        alone = np.ones(len(b), np.bool_)
        while a is not None:
            our_base, our_last = offsets(a)
            i = np.minimum(np.searchsorted(our_last, base), len(a) - 1)
            alone &= (our_base[i] > last) | (our_last[i] < base)
            where = _first_difference(a, b)
            if where is not None:
                end = _told(a[where[0]], b[where[1]], number, replicas)
                alone &= last < end
                return _ranges(missing, base[alone], last[alone], alone, joined), end
            if our_last[-1] >= last[-1]:
                break
            a = next(mine, None)
        missing = _ranges(missing, base[alone], last[alone], alone, joined)
        joined = bool(alone[-1])
    return missing, None


def _ranges(
    before: list[tuple[int, int]], base: Any, last: Any, alone: npt.NDArray[np.bool_], joined: bool
) -> list[tuple[int, int]]:
    """Ranges, and those of more batches: neighbours are one range. `joined`: so are the last range and the first batch."""
    numbers = np.flatnonzero(alone)
    if not len(numbers):
        return before
    breaks = (np.flatnonzero(np.diff(numbers) > 1) + 1).tolist()
    found = [(int(base[low]), int(last[high - 1])) for low, high in pairwise([0, *breaks, len(numbers)])]
    if joined and before and numbers[0] == 0:
        found[0] = (before[-1][0], found[0][1])
        before = before[:-1]
    return [*before, *found]


def _told(ours: Any, theirs: Any, number: int, replicas: str) -> int:
    """Where two copies differ, if it is allowed that they do. Raises `UsageError`."""
    offset = max(int(ours["base_offset"]), int(theirs["base_offset"]))
    mine, other = int(ours["partition_leader_epoch"]), int(theirs["partition_leader_epoch"])
    if replicas == "first":
        return offset
    epochs = f"leader epoch {mine} in the first and {other} in the other"
    if mine == other:
        epochs = f"both of leader epoch {mine}"
    first = "first" if mine >= other else "other"
    raise UsageError(
        f"copy {number + 1} is another log than the first from offset {offset} on: batches of the same offsets differ,"
        f" {epochs}",
        advice=f"The copy with the highest leader epoch is the one that the cluster went on with (here the {first}): name it"
        " first and pass replicas=first, which takes from the others only what lies before that offset",
    )


def _heads(copies: Copies, runs: Sequence[Run]) -> Iterator[Heads]:
    for run in runs:
        for some in copies.batches(run):
            yield some.frames.header


def _first_difference(a: Heads, b: Heads) -> tuple[int, int] | None:
    """The first two batches that overlap, and are not one and the same."""
    base, last = offsets(a)
    other, other_last = offsets(b)
    i = np.searchsorted(last, other)  # the first of ours that does not end before theirs starts
    there = i < len(base)
    j = np.flatnonzero(there)
    i = i[there]
    over = base[i] <= other_last[j]
    i, j = i[over], j[over]
    same = (a["crc"][i] == b["crc"][j]) & (base[i] == other[j]) & (last[i] == other_last[j])
    for k in np.flatnonzero(~same).tolist():
        mine, theirs = a[i[k]], b[j[k]]
        compacted = int(base[i[k]]) == int(other[j[k]]) and all(mine[name] == theirs[name] for name in _SAME)
        flags = (int(mine["attributes"]) ^ int(theirs["attributes"])) & DELETE_HORIZON
        if not compacted or (mine["records_count"] == theirs["records_count"] and not flags):
            return int(i[k]), int(j[k])
    return None
