"""Put sound batches into the order of their offsets: drop duplicates, and move misplaced batches to where they belong.

Offsets ascend in a log, from batch to batch and from segment to segment. No checksum covers base_offset, so a batch that does not
fit may be complete, with a wrong offset. If the two batches around it leave exactly as many offsets free as it takes, it
gets these. A batch that fits elsewhere in its file is moved there. All others are cut.

But a file may also have a wrong name, or the batches of two. Several batches in a row, or the only one of a file, then keep their offsets
if these are free, and get the segment that they belong to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from logwright.codec.engine.repair import Removed
from logwright.codec.kafka.formats.log.layout import COMPRESSION, MAGIC, MAX_OFFSET_DELTA
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.runs import Run, join, lost, removed_run
from logwright.codec.kafka.repair.survey import SegmentSurvey
from logwright.codec.store.listing import Listing

_TOP = (1 << 63) - 1
_UNSIGNED = (1 << 64) - 1
_MOST_RUNS = 1000
"""Segments with more runs are taken as the survey left them: the time is quadratic in their number."""


@dataclass
class Order:
    """The runs of one copy in the order of their offsets, without overlaps, and what was changed for that."""

    runs: list[Run] = field(default_factory=list)
    cut: list[Removed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong_names: set[int] = field(default_factory=set)
    """The base offsets in the names of files all of whose batches belong to other segments."""


def reorder(
    listing: Listing,
    surveys: Sequence[SegmentSurvey],
    strays: Sequence[SegmentSurvey] = (),
    *,
    correct: bool = True,
) -> Order:
    """Put the segments of one copy into order. `strays` are logs whose names are not those of segments. `correct`: whether single flipped
    bits of offsets are corrected."""
    reorderer = _Reorderer(listing, surveys, correct=correct)
    order = reorderer.run()
    for stray in strays:
        reorderer.add_stray(stray)
    return order


def _follow_most(segment: SegmentSurvey) -> None:
    """Take the ascending runs with the most batches as the good ones. A survey takes the first ones, of which a few may have wrong offsets
    that are not below those of the others."""
    runs = sorted([*segment.good, *segment.misplaced], key=lambda run: run.begin)
    if not segment.misplaced or len(runs) > _MOST_RUNS:
        return
    good = [any(run is kept for kept in segment.good) for run in runs]
    ranks: list[int] = []
    before: list[int] = []
    reached = -1
    for i, run in enumerate(runs):
        reached = max(reached, run.last) if good[i] else reached
        rank, previous = _begins(segment, run), -1
        for j in range(i):
            joined = ranks[j] + (runs[j].last + 1 == run.first)
            if ranks[j] and runs[j].last < run.first and joined >= rank:
                rank, previous = joined, j
        # One that is above the good ones before it is misplaced for another reason.
        fits = good[i] or segment.base <= run.first <= reached
        ranks.append(rank + 2 * len(run.heads) if fits else 0)
        before.append(previous)
    at = max(range(len(runs)), key=lambda i: ranks[i])
    chain: list[Run] = []
    most = ranks[at]
    while at >= 0:
        chain.insert(0, runs[at])
        at = before[at]
    if most > _rank(segment):
        segment.good = join(chain)
        segment.misplaced = join([run for run in runs if not any(run is kept for kept in chain)])


def _rank(segment: SegmentSurvey) -> int:
    """Return the rank of the good runs as `_follow_most` counts it."""
    good = segment.good
    joined = sum(left.last + 1 == right.first for left, right in pairwise(good))
    begins = _begins(segment, good[0]) if good else 0
    return 2 * sum(len(run.heads) for run in good) + joined + begins


def _begins(segment: SegmentSurvey, run: Run) -> int:
    """Return 1 for a run with the offset that the file is named after, -1 for another one at its start."""
    return 1 if run.first == segment.base else -1 if not run.begin else 0


def _shift(batch: Run) -> int:
    """Return the difference between the offset that a batch stores and its first one: a wrapper of magic 0 or 1 stores its last one."""
    return batch.last - batch.first if batch.heads["magic"][0] < MAGIC else 0


class _Reorderer:
    def __init__(self, listing: Listing, surveys: Sequence[SegmentSurvey], *, correct: bool) -> None:
        self.listing, self.surveys, self.correct = listing, surveys, correct
        self.order = Order()
        self.runs = self.order.runs
        self._stops: dict[tuple[str, int], Run] = {}
        self._begins: dict[tuple[str, int], Run] = {}
        self._files: Counter[str] = Counter()
        """The runs that are kept, by file and the byte where they end and begin, and their number for each file."""
        self._last_good = max((i for i, segment in enumerate(surveys) if segment.good), default=-1)
        self._names = {segment.base for segment in surveys}
        self._known_end = max((segment.file.hints.get("known_end") or 0 for segment in surveys), default=0)

    def run(self) -> Order:
        misplaced: list[tuple[int, Run]] = []
        for number, segment in enumerate(self.surveys):
            _follow_most(segment)
            self.order.cut += segment.cut
            self.order.notes += segment.notes
            for run in segment.good:
                misplaced += [(number, early) for early in self._append(run)]
            misplaced += [(number, run) for run in segment.misplaced]
        misplaced.sort(key=lambda item: item[1].first)
        for number, run in self._without_certain(misplaced):
            for batch in run.parts(*range(1, len(run.heads))):
                self._place(number, batch)
        self.order.wrong_names -= {run.base for run in self.runs}
        return self.order

    def add_stray(self, stray: SegmentSurvey) -> None:
        """Put the batches of a log whose name is not that of a segment where these are missing."""
        for run in stray.good:
            if run.patch or run.first < 0 or not self._is_reached(run):
                continue
            batches = replace(run, base=run.first).parts(*range(1, len(run.heads)))
            unused = [self._is_unused(batch.first, batch.last) for batch in batches]
            missing = [batch for batch, new in zip(batches, unused, strict=True) if new]
            rest = [batch for batch, new in zip(batches, unused, strict=True) if not new]
            if not missing or any(self._copy_of(batch) is None for batch in rest):
                continue
            for batch in missing:
                self._insert(batch)
            self.order.notes.append(
                f"{run.file}: the batches with offsets {missing[0].first} to {missing[-1].last} are in no other file, and are moved to"
                f" {segment_name(run.first, '.log')}. The broker does not read a file of that name."
            )

    def _append(self, run: Run) -> list[Run]:
        """Put a run after all others. Return the part of it that is not above them."""
        end = self.runs[-1].last if self.runs else -1
        if run.first > end:
            self._put(len(self.runs), 0, run)
            return []
        above = run.within(end + 1, _TOP)
        if not above:
            return [run]
        self._put(len(self.runs), 0, *above)
        return [run.parts(len(run.heads) - len(above[0].heads))[0]]

    # Batches in a file of another segment

    def _without_certain(self, misplaced: Sequence[tuple[int, Run]]) -> list[tuple[int, Run]]:
        """Put the runs whose offsets are certain where these are free. Return the others."""
        left = list(misplaced)
        for least in (2, 1, 1):  # Single batches may join those that are moved before.
            certain = [least <= len(run.heads) and self._is_certain(number, run) for number, run in left]
            for (number, run), moved in zip(left, certain, strict=True):
                if moved:
                    self._move_segment(number, run)
            left = [item for item, moved in zip(left, certain, strict=True) if not moved]
        return left

    def _is_certain(self, number: int, run: Run) -> bool:
        """Return whether batches outside of the range of their file have right offsets: several in a row, one that fills a gap of the log, or
        the only one of a file that joins others, or has the offset of another file's name."""
        segment = self.surveys[number]
        high, after = segment.base + MAX_OFFSET_DELTA, segment.file.hints.get("next_base")
        high = high if after is None else min(high, after - 1)
        if run.patch or run.first < 0 or segment.base <= run.first <= run.last <= high:
            return False
        if len(run.heads) > 1:
            return number >= self._last_good or self._is_reached(run)
        at = bisect_left(self.runs, run.first, key=lambda other: other.first)
        left, right = self.runs[at - 1 : at], self.runs[at : at + 1]
        if any(other.last >= run.first for other in left) or any(other.first <= run.last for other in right):
            return False
        joins = [
            run.first == (left[0].last + 1 if left else 0),
            bool(right) and right[0].first == run.last + 1,
        ]
        alone = run.begin == 0 and run.stop == segment.file.size
        return all(joins) or (alone and (any(joins) or run.first in self._names))

    def _is_reached(self, run: Run) -> bool:
        """Return whether the log is known to reach the offsets of a run."""
        return not self.runs or run.first <= self.runs[-1].last + 1 or run.last < self._known_end

    def _move_segment(self, number: int, run: Run) -> None:
        """Put the batches of a run where their offsets are free: as a new segment, unless their file continues with the next one."""
        segment, behind = self.surveys[number], self._begins.get((run.file, run.stop))
        moved = run if behind is not None and behind.first > run.last else replace(run, base=run.first)
        if self._insert(moved):
            rest = [moved]
        else:
            parts = moved.parts(*range(1, len(moved.heads)))
            rest = [batch for batch in parts if not self._is_duplicate(batch)]
            if all(self._is_unused(batch.first, batch.last) for batch in rest):
                rest = [batch for batch in rest if self._insert(batch)]
            else:
                # The log has other batches at some of these offsets: they are of another partition, or of a former leader.
                for batch in rest:
                    self._refuse(batch)
                return
        self.order.wrong_names.add(segment.base)
        if not rest or moved is run:
            return
        to = segment_name(moved.base, ".log")
        text = f"{run.file}: the batches with offsets {rest[0].first} to {rest[-1].last} are of another segment, and are moved to {to}."
        if rest == [moved] and not run.begin and run.stop == segment.file.size:
            text = f"{run.file} is renamed to {to}: its batches are those of that segment."
        self.order.notes.append(text)

    def _is_unused(self, first: int, last: int) -> bool:
        """Return whether no batch that is kept has one of these offsets."""
        at = bisect_right(self.runs, last, key=lambda run: run.first)
        for run in self.runs[max(0, at - 1) : at]:
            i = bisect_left(run.heads["last_offset"], first)
            if i < len(run.heads) and run.heads["base_offset"][i] <= last:
                return False
        return True

    # Misplaced batches

    def _place(self, number: int, batch: Run) -> None:
        placed = (
            self._is_duplicate(batch)
            or self._fills_a_loss(number, batch)
            or (batch.first < batch.base and self._fits_between(number, batch))
            or self._continues(batch)
            or self._fits_between(number, batch)
            or self._is_one_bit_off(number, batch)
            or self._is_free(number, batch)
            or self._gets_what_is_free(number, batch)
        )
        if not placed:
            self._refuse(batch)
        elif batch.patch:
            self.order.notes.append(
                f"{batch.file}: batch_length or magic of the batch at byte {batch.begin} is corrected: no checksum covers them, and the"
                " checksum of the batch proves all the rest of it."
            )

    def _copy_of(self, batch: Run) -> tuple[Run, int] | None:
        """Return the run that is kept and has the same batch, and which one of it that is."""
        at = max(0, bisect_right(self.runs, batch.first, key=lambda run: run.first) - 1)
        for run in self.runs[at : at + 1]:
            i = bisect_left(run.heads["base_offset"], batch.first)
            names = ("base_offset", "last_offset", "crc")
            if i < len(run.heads) and all(batch.heads[0][name] == run.heads[i][name] for name in names):
                return run, i
        return None

    def _is_duplicate(self, batch: Run) -> bool:
        """Return whether the same batch is kept already."""
        copy = self._copy_of(batch)
        if copy is None:
            return False
        where = f"the batch at byte {copy[0].begin + copy[0].edges[copy[1]]} of {copy[0].file} is kept"
        why = f"bad order: offsets {batch.first} to {batch.last} occur twice; {where}"
        self.order.cut.append(removed_run(batch, why, 0, {}))
        return True

    def _fills_a_loss(self, number: int, batch: Run) -> bool:
        """Put a batch where damage has lost its offsets, or the file of its segment has something else at its place. But if no other batch
        has the offset that is due at its own place, and one bit makes the difference, the bit is flipped."""
        low, _ = self._room(number, batch)
        base = max((base for base in self._names if base <= batch.first), default=None)
        if base is None:
            return False
        if low is not None:
            shift = _shift(batch)
            bits = (batch.first + shift ^ low + shift) & _UNSIGNED
            if bits.bit_count() <= 1 and self._is_unused(low, low + batch.last - batch.first):
                return False
        lost = any(low <= batch.first <= batch.last <= high for low, high in self._lost)
        return (lost or self._has_room(base, batch)) and self._insert(replace(batch, base=base))

    def _has_room(self, base: int, batch: Run) -> bool:
        """Return whether the file of another segment, by its name, has something else between the batches that this one belongs between."""
        name = segment_name(base, ".log")
        at = bisect_left(self.runs, batch.first, key=lambda run: run.first)
        left, right = (
            next((run for run in runs if run.file == name and run.first >= base), None)
            for runs in (self.runs[max(0, at - 1) : at], self.runs[at : at + 1])
        )
        if batch.file == name or (left is None and right is None):
            return False
        size = next(segment.file.size for segment in self.surveys if segment.base == base)
        return (0 if left is None else left.stop) < (size if right is None else right.begin)

    @cached_property
    def _lost(self) -> list[tuple[int, int]]:
        """The ranges of offsets that damage has lost."""
        lost = [cut.lost for segment in self.surveys for cut in segment.cut if cut.rows_lost != 0]
        return [
            (item["first_offset"], item["last_offset"])
            for item in lost
            if item.keys() >= {"first_offset", "last_offset"}
        ]

    def _continues(self, batch: Run) -> bool:
        """Put a batch where its offsets are free, if those next to them are in its own file."""
        at = bisect_left(self.runs, batch.first, key=lambda run: run.first)
        left, right = self.runs[at - 1] if at else None, self.runs[at] if at < len(self.runs) else None
        if left is not None and left.last > batch.last and left.file == batch.file and not left.patch:
            i = bisect_left(left.heads["base_offset"], batch.first)
            joins = bool(left.heads["last_offset"][i - 1] + 1 == batch.first) or (
                i < len(left.heads) and bool(left.heads["base_offset"][i] == batch.last + 1)
            )
            return joins and self._insert(batch)
        joins = (left is not None and left.file == batch.file and left.last + 1 == batch.first) or (
            right is not None and right.file == batch.file and right.first == batch.last + 1
        )
        return (joins or batch.first == batch.base) and self._insert(batch)

    def _fits_between(self, number: int, batch: Run) -> bool:
        """Give a batch the offsets that its neighbours in the file leave free, if these are as many as it takes."""
        low, high = self._room(number, batch)
        if low is None or high is None or high - low != batch.last - batch.first:
            return False
        return self._move(batch, low, "only these offsets are free between the batches around it")

    def _is_one_bit_off(self, number: int, batch: Run) -> bool:
        """Correct an offset that is outside the segment, if flipping one bit gives exactly one offset that fits, or the one that is due."""
        low, _ = self._room(number, batch)
        base = self.surveys[number].base
        if low is None or base <= batch.first <= batch.last <= base + MAX_OFFSET_DELTA:
            return False
        fit = self._one_bit_off(number, batch)
        if len(fit) != 1 and low not in fit:
            return False
        return self._move(
            batch,
            low if low in fit else fit[0],
            "the segment cannot hold that offset, and they differ by one bit",
        )

    def _one_bit_off(self, number: int, batch: Run) -> list[int]:
        """Return the offsets that the neighbours of a batch in its file leave free, and that differ from its own in one bit."""
        low, high = self._room(number, batch)
        assert low is not None
        top = self.surveys[number].base + MAX_OFFSET_DELTA if high is None else high
        shift = _shift(batch)
        near = [((batch.first + shift & _UNSIGNED) ^ (1 << bit)) - shift for bit in range(64)]
        return [offset for offset in near if low <= offset <= top - (batch.last - batch.first)]

    def _gets_what_is_free(self, number: int, batch: Run) -> bool:
        """Give a batch the only offset one bit off that its neighbours in the file leave free, or the first one of those, if they are more
        than it takes. A broker would give its records to consumers at wrong offsets, or lose what follows."""
        low, high = self._room(number, batch)
        if low is None or (high is not None and high - low < batch.last - batch.first):
            return False
        fit = self._one_bit_off(number, batch)
        if len(fit) == 1:
            free = f"from {low} on" if high is None else f"{low} to {high}"
            return self._move(
                batch,
                fit[0],
                f"of the offsets that are free there ({free}), only that one differs by one bit",
            )
        upto = "" if high is None else f" up to {high}"
        return self._move(batch, low, f"it is the first offset that the batches around it leave free{upto}")

    def _room(self, number: int, batch: Run) -> tuple[int | None, int | None]:
        """Return the first and the last offset between the neighbours of a batch in its file, None where it is unknown."""
        segment = self.surveys[number]
        left, right = self._stops.get((batch.file, batch.begin)), self._begins.get((batch.file, batch.stop))
        named = batch.begin == 0 and segment.base not in self.order.wrong_names
        low = left.last + 1 if left else segment.base if named else None
        at_end, after = batch.stop >= segment.file.size, segment.file.hints.get("next_base")
        high = right.first - 1 if right else after - 1 if at_end and after is not None else None
        return low, high

    def _move(self, batch: Run, to: int, why: str) -> bool:
        head, shift = batch.heads[0], _shift(batch)
        if head["magic"] == 0 and head["attributes"] & COMPRESSION:
            return False  # Its messages have absolute offsets, which the checksum covers.
        if ((batch.first + shift ^ to + shift) & _UNSIGNED).bit_count() == 1 and not self.correct:
            return False
        patch = (to + shift).to_bytes(8, "big") + batch.patch[8:]
        start = batch.start if batch.patch else batch.start + len(patch)
        heads, marks = batch.heads.copy(), batch.markers.copy()
        for column in (heads["base_offset"], heads["last_offset"], marks["offset"]):
            # In two steps: the difference of the offsets may not fit 64 bits.
            column -= batch.first
            column += to
        moved = replace(batch, heads=heads, markers=marks, start=start, patch=patch, origin=batch.begin)
        if not self._insert(moved):
            return False
        field = "base_offset" if head["magic"] >= MAGIC else "offset"
        self.order.notes.append(
            f"{batch.file}: {field} of the batch at byte {batch.begin} is changed from {batch.first + shift} to {to + shift}: {why} (no"
            " checksum covers the field)."
        )
        return True

    def _is_free(self, number: int, batch: Run) -> bool:
        """Put a batch where its offsets belong, if that is in its own file, or at the end of the log."""
        if batch.first < 0:
            return False
        at = bisect_left(self.runs, batch.first, key=lambda run: run.first)
        beside = [run for run in self.runs[max(0, at - 1) : at + 1] if run.file == batch.file]
        if not beside and self._files[batch.file]:
            return False
        end = self.runs[-1].last + 1 if self.runs else 0
        # A snapshot of the producers that is named after the batch proves that the log reached it.
        credible = batch.first == end or batch.last < self._known_end
        if batch.first >= end and not credible and not self._is_last(number, batch):
            return False
        wrong = self.surveys[number].base in self.order.wrong_names
        return self._insert(replace(batch, base=batch.first) if wrong else batch)

    def _is_last(self, number: int, batch: Run) -> bool:
        """Return whether a batch is the last of the log."""
        good = self.surveys[number].good
        return number >= self._last_good and (not good or good[-1].begin < batch.begin)

    def _refuse(self, batch: Run) -> None:
        rows, where = lost(self.listing, batch.heads)
        if batch.patch:
            self.order.cut = [
                cut for cut in self.order.cut if (cut.file, cut.offset) != (batch.file, batch.begin)
            ]
        why = (
            f"bad order: offsets {batch.first} to {batch.last} do not fit the position of the batch, and other batches have them or "
            "offsets on both sides of them"
        )
        self.order.cut.append(removed_run(batch, why, rows, where))

    # The runs that are kept

    def _insert(self, batch: Run) -> bool:
        """Put a batch among the runs, if its offsets are free."""
        at = bisect_left(self.runs, batch.first, key=lambda run: run.first)
        if at and self.runs[at - 1].last >= batch.first:
            if not self._split(at - 1, batch):
                return False
            at = bisect_left(self.runs, batch.first, key=lambda run: run.first)
        if at < len(self.runs) and self.runs[at].first <= batch.last:
            return False
        self._put(at, 0, batch)
        return True

    def _put(self, at: int, count: int, *new: Run) -> None:
        """Put runs in place of `count` others."""
        for run in self.runs[at : at + count]:
            del self._stops[run.file, run.stop], self._begins[run.file, run.begin]
        self.runs[at : at + count] = new
        for run in new:
            self._stops[run.file, run.stop] = self._begins[run.file, run.begin] = run
            self._files[run.file] += 1

    def _split(self, at: int, batch: Run) -> bool:
        """Split a run that leaves the offsets of a batch free. Return whether it does."""
        run = self.runs[at]
        if run.patch or not run.first < batch.first <= batch.last < run.last:
            return False
        i = bisect_left(run.heads["base_offset"], batch.first)
        if run.heads["last_offset"][i - 1] >= batch.first or run.heads["base_offset"][i] <= batch.last:
            return False
        self._put(at, 1, *run.parts(i))
        return True
