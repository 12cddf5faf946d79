"""Replicas of one partition put together: each batch from whichever copy has it sound.

Replicas hold the same bytes at the same offsets, cut into segments as each broker did, but for two things. Each compacts for
itself, so a batch may have fewer records in one, or be gone. And a leader that was cut off may have gone on with batches that the
next leader never saw: then, from some offset on, batches of equal offsets differ, and so do their leader epochs (KIP-101).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Cut
from logwright.codec.fault import UsageError
from logwright.codec.kafka.mend.order import Order
from logwright.codec.kafka.mend.runs import Copies, Run, offsets

_TOP = (1 << 63) - 1
_SAME = ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_offset_delta")
"""What compaction leaves as it is in a batch."""

Heads = npt.NDArray[Any]


@dataclass
class Merged:
    """Runs in order, each with the base of the segment it is to be in."""

    runs: list[tuple[Run, int]] = field(default_factory=list)
    cut: list[Cut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge(copies: Copies, orders: Sequence[Order], bases: Sequence[int], replicas: str) -> Merged:
    """`bases` are those of the first copy's segments. Raises `UsageError` where the copies diverged, unless `replicas` is "first"."""
    merged = Merged([(run, run.base) for run in orders[0].runs], list(orders[0].cut), list(orders[0].notes))
    if len(orders) == 1:
        return merged
    runs = list(orders[0].runs)
    for number, order in enumerate(orders[1:], 1):
        end = _diverged(copies, runs, order.runs, number, replicas)
        if end is not None:
            merged.notes.append(
                f"Copy {number + 1} differs from offset {end} on: what it has from there on is not used."
            )
        found = _fill(copies, runs, order.runs, _TOP if end is None else end - 1)
        if found:
            rows = sum(_rows(copies, run) for run in found)
            merged.notes.append(f"{rows} record(s) come from copy {number + 1}.")
            runs = sorted([*runs, *found], key=lambda run: run.first)
    merged.runs = _placed(runs, bases)
    merged.cut = [_mended(cut, runs) for cut in merged.cut]
    return merged


def _rows(copies: Copies, run: Run) -> int:
    return sum(
        int(some.frames.header["records_count"].astype(np.int64).sum()) for some in copies.batches(run)
    )


def _fill(copies: Copies, runs: Sequence[Run], others: Sequence[Run], high: int) -> list[Run]:
    """What of other runs fits between these, up to an offset."""
    gaps: list[tuple[int, int]] = []
    low = 0
    for run in runs:
        if run.first > low:
            gaps.append((low, run.first - 1))
        low = run.last + 1
    gaps.append((low, _TOP))
    out: list[Run] = []
    at = 0
    for run in others:
        while at < len(gaps) and gaps[at][1] < run.first:
            at += 1
        k = at
        while k < len(gaps) and gaps[k][0] <= min(run.last, high):
            out += copies.cut(run, gaps[k][0], min(gaps[k][1], high))
            k += 1
    return out


def _placed(runs: Sequence[Run], bases: Sequence[int]) -> list[tuple[Run, int]]:
    """In which segment each run is to be: those of the first copy where it has one, else as in the other."""
    out: list[tuple[Run, int]] = []
    later: list[int | None] = [None] * len(runs)
    following: int | None = None
    for i in range(len(runs) - 1, -1, -1):
        later[i] = following
        if runs[i].copy == 0:
            following = runs[i].base
    current = -1
    known = sorted(bases)
    for i, run in enumerate(runs):
        if run.copy == 0:
            key = max(current, run.base)
        else:
            own = max((base for base in known if base <= run.first), default=-1)
            key = max(current, own)
            ahead = later[i]
            # Between two segments of the first copy, or behind its last: its boundaries say nothing there.
            if run.base > key and (ahead is None or ahead > key):
                key = run.base
            key = key if key >= 0 else run.base
        out.append((run, key))
        current = key
    return out


def _mended(cut: Cut, runs: Sequence[Run]) -> Cut:
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


def _diverged(
    copies: Copies, ours: Sequence[Run], theirs: Sequence[Run], number: int, replicas: str
) -> int | None:
    """The first offset where two copies differ; None where they don't."""
    for a, b in _side_by_side(_heads(copies, ours), _heads(copies, theirs)):
        where = _first_difference(a, b)
        if where is None:
            continue
        i, j = where
        offset = max(int(a["base_offset"][i]), int(b["base_offset"][j]))
        mine, other = (int(one["partition_leader_epoch"][k]) for one, k in ((a, i), (b, j)))
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
    return None


def _heads(copies: Copies, runs: Sequence[Run]) -> Iterator[Heads]:
    for run in runs:
        for some in copies.batches(run):
            yield some.frames.header


def _side_by_side(ours: Iterator[Heads], theirs: Iterator[Heads]) -> Iterator[tuple[Heads, Heads]]:
    """The headers of both copies by stretches of offsets, all that overlap in the same pair."""
    a, b = next(ours, None), next(theirs, None)
    while a is not None and b is not None:
        yield a, b
        if int(offsets(a)[1].max()) <= int(offsets(b)[1].max()):
            a = next(ours, None)
        else:
            b = next(theirs, None)


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
        if not compacted or mine["records_count"] == theirs["records_count"]:
            return int(i[k]), int(j[k])
    return None
