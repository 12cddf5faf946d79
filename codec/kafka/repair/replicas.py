"""Merge replicas of one partition: each batch from a copy in which it is sound.

Replicas hold the same bytes at the same offsets, in segments that each broker rolled for itself, with two exceptions. Each broker
compacts for itself, so that a batch may have fewer records in one copy, or be absent. And a leader that was cut off may have
appended batches that the next leader never saw: from some offset on, batches of the same offsets then differ, and so do their
leader epochs (KIP-101).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.heads import HEADS
from logwright.codec.kafka.formats.log.layout import DELETE_HORIZON
from logwright.codec.kafka.repair.reorder import Order
from logwright.codec.kafka.repair.runs import Heads, Run, offsets

_SAME = ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_offset")
"""The fields of a batch that compaction does not change."""


@dataclass
class Merged:
    """Runs in order, each with the base offset of its segment in the result."""

    runs: list[tuple[Run, int]] = field(default_factory=list)
    cut: list[Removed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge(orders: Sequence[Order], bases: Sequence[int], replicas: str) -> Merged:
    """Merge copies. `bases` are the base offsets of the first copy's segments.

    Raises `UsageError` if the copies diverge, unless `replicas` is "first".
    """
    merged = Merged([(run, run.base) for run in orders[0].runs], list(orders[0].cut), list(orders[0].notes))
    if len(orders) == 1:
        return merged
    # A partial batch counts only if no copy has all of it.
    runs = [run for run in orders[0].runs if not run.partial]
    partial = [run for run in orders[0].runs if run.partial]
    for number, order in enumerate(orders[1:], 1):
        complete = [run for run in order.runs if not run.partial]
        missing, end = _compare(runs, complete, number, replicas)
        if end is not None:
            merged.notes.append(
                f"Copy {number + 1} differs from offset {end} on: nothing is taken from it from there on."
            )
        partial += [run for run in order.runs if run.partial and (end is None or run.last < end)]
        taken = [part for run in _pick(complete, missing) for part in run.split(bases)]
        if taken:
            rows = sum(int(run.heads["records_count"].astype(np.int64).sum()) for run in taken)
            merged.notes.append(f"{plural.count(rows, 'record')} taken from copy {number + 1}.")
            firsts = np.array([run.first for run in taken], np.int64)
            runs = sorted(
                [*(part for run in runs for part in run.split(firsts)), *taken], key=lambda run: run.first
            )
    merged.cut = [_recovered(cut, runs) for cut in merged.cut]
    for run in partial:
        _fill(runs, run)
    merged.runs = _placed(runs, sorted(bases))
    return merged


def _fill(runs: list[Run], partial: Run) -> None:
    """Put a partial batch between the runs, unless its offsets are taken."""
    at = bisect_right(runs, partial.first, key=lambda run: run.first)
    before = [part for run in runs[max(0, at - 1) : at] for part in run.split([partial.first])]
    if not any(
        run.first <= partial.last and partial.first <= run.last for run in [*before, *runs[at : at + 1]]
    ):
        runs[max(0, at - 1) : at] = sorted([*before, partial], key=lambda run: run.first)


def _pick(runs: Sequence[Run], ranges: Sequence[tuple[int, int]]) -> list[Run]:
    """Return the batches of runs within ranges of offsets. Both ascend."""
    lows = [low for low, _ in ranges]
    out: list[Run] = []
    for run in runs:
        first = max(0, bisect_right(lows, run.first) - 1)
        near = ranges[first : bisect_right(lows, run.last)]
        for part in run.split([edge for low, high in near for edge in (low, high + 1)]):
            i = bisect_right(lows, part.first) - 1
            if i >= 0 and part.last <= ranges[i][1]:
                out.append(part)
    return out


def _placed(runs: Sequence[Run], bases: Sequence[int]) -> list[tuple[Run, int]]:
    """Return the runs with their segments: those of the first copy where it has one, else as in the other copy."""
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
            # Between two segments of the first copy, or after its last one, its boundaries do not matter.
            if run.base > max(current, end) and (later is None or later > current):
                current = run.base
            current = current if current >= 0 else run.base
        out.append((run, current))
        end = run.last
    return out


def _recovered(cut: Removed, runs: Sequence[Run]) -> Removed:
    """Return what was removed of the first copy. It is not a loss if all its offsets are taken from another copy."""
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
    ours: Sequence[Run], theirs: Sequence[Run], number: int, replicas: str
) -> tuple[list[tuple[int, int]], int | None]:
    """Return the ranges of offsets of batches that only the other copy has, and the first offset where the copies differ (None:
    nowhere)."""
    mine, other = _heads(ours), _heads(theirs)
    base, last = offsets(other)
    alone = np.ones(len(other), np.bool_)
    if len(mine):
        our_base, our_last = offsets(mine)
        i = np.minimum(np.searchsorted(our_last, base), len(mine) - 1)
        alone = (our_base[i] > last) | (our_last[i] < base)
    end = None
    difference = _first_difference(mine, other)
    if difference is not None:
        end = _divergence(mine[difference[0]], other[difference[1]], number, replicas)
        alone &= last < end
    # Neighbours are one range.
    numbers = np.flatnonzero(alone)
    groups = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return [(int(base[group[0]]), int(last[group[-1]])) for group in groups if len(group)], end


def _divergence(ours: Any, theirs: Any, number: int, replicas: str) -> int:
    """Return the offset where two copies diverge. Raises `UsageError` unless that is allowed."""
    offset = max(int(ours["base_offset"]), int(theirs["base_offset"]))
    mine, other = int(ours["partition_leader_epoch"]), int(theirs["partition_leader_epoch"])
    if replicas == "first":
        return offset
    epochs = f"leader epoch {mine} in the first and {other} in the other"
    if mine == other:
        epochs = f"both of leader epoch {mine}"
    first = "first" if mine >= other else "other"
    raise UsageError(
        f"copy {number + 1} diverges from the first copy at offset {offset}: their batches at the same offsets differ, {epochs}",
        advice=f"The cluster continued with the copy that has the highest leader epoch (here the {first}): pass it first, with"
        " replicas=first, which takes only batches before that offset from the others",
    )


def _heads(runs: Sequence[Run]) -> Heads:
    return np.concatenate([np.empty(0, HEADS), *(run.heads for run in runs)])


def _first_difference(a: Heads, b: Heads) -> tuple[int, int] | None:
    """Return the first two batches that overlap and are not the same one."""
    base, last = offsets(a)
    other, other_last = offsets(b)
    i = np.searchsorted(last, other)  # the first of ours that does not end before theirs starts
    j = np.flatnonzero(i < len(base))
    i = i[j]
    over = base[i] <= other_last[j]
    i, j = i[over], j[over]
    same = (a["crc"][i] == b["crc"][j]) & (base[i] == other[j]) & (last[i] == other_last[j])
    for k in np.flatnonzero(~same).tolist():
        mine, theirs = a[i[k]], b[j[k]]
        compacted = mine["base_offset"] == theirs["base_offset"] and all(
            mine[name] == theirs[name] for name in _SAME
        )
        flags = (int(mine["attributes"]) ^ int(theirs["attributes"])) & DELETE_HORIZON
        if not compacted or (mine["records_count"] == theirs["records_count"] and not flags):
            return int(i[k]), int(j[k])
    return None
