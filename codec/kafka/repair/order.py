"""Sound batches in the order of their offsets: what is there twice goes, what is out of its place goes where it belongs.

A log's offsets ascend, from batch to batch and from segment to segment. base_offset is covered by no checksum, so a batch that
does not fit may be whole, and its offset wrong: where it lies between two others that leave exactly as many offsets free as it
takes, it gets these. A batch that fits elsewhere in its file is put there. What is left is cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.engine.repair import Removed
from logwright.codec.kafka.formats.log.scan import MAX_OFFSET_DELTA
from logwright.codec.kafka.repair.examine import Examined
from logwright.codec.kafka.repair.runs import Copies, Numbers, Run, lost, offsets, removed_run

_TOP = (1 << 63) - 1
_UNSIGNED = (1 << 64) - 1


@dataclass
class Order:
    """The runs of one copy in the order of their offsets, which don't overlap; and what had to be done for that."""

    runs: list[Run] = field(default_factory=list)
    cut: list[Removed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Heads:
    """All batches of a run."""

    header: npt.NDArray[Any]
    start: Numbers
    stop: Numbers
    base: Numbers
    last: Numbers

    def part(self, which: slice) -> _Heads:
        return _Heads(
            self.header[which], self.start[which], self.stop[which], self.base[which], self.last[which]
        )


def arrange(copies: Copies, examined: Sequence[Examined]) -> Order:
    """Put the segments of one copy together."""
    return _Arranger(copies, examined).run()


class _Arranger:
    def __init__(self, copies: Copies, examined: Sequence[Examined]) -> None:
        self.copies, self.examined = copies, examined
        self.order = Order()
        self.runs = self.order.runs
        self._known: dict[Run, _Heads] = {}
        self._stops: dict[tuple[str, int], Run] = {}
        self._begins: dict[tuple[str, int], Run] = {}
        self._files: Counter[str] = Counter()
        """The runs that are kept, by where they end and begin in a file, and how many there are of each file."""
        self._last_good = max((i for i, one in enumerate(examined) if one.good), default=-1)
        self._known_end = max((one.file.hints.get("known_end") or 0 for one in examined), default=0)

    def run(self) -> Order:
        odd: list[tuple[int, Run]] = []
        for number, one in enumerate(self.examined):
            self.order.cut += one.cut
            self.order.notes += one.notes
            for run in one.good:
                odd += [(number, early) for early in self._append(run)]
            odd += [(number, run) for run in one.odd]
        for number, run in sorted(odd, key=lambda each: each[1].first):
            self._odd(number, run)
        return self.order

    def _append(self, run: Run) -> list[Run]:
        """Put a run behind all others. Returns what of it is not above them."""
        end = self.runs[-1].last if self.runs else -1
        if run.first > end:
            self._put(len(self.runs), 0, run)
            return []
        above = self.copies.cut(run, end + 1, _TOP)
        if not above:
            return [run]
        self._put(len(self.runs), 0, *above)
        return [replace(run, stop=above[0].start, last=min(run.last, above[0].first - 1))]

    # What is not in its place

    def _odd(self, number: int, run: Run) -> None:
        for one, head in self.copies.single(run):
            placed = (
                self._is_twice(one, head)
                or (one.first < one.base and self._fits_between(number, one))
                or self._continues(one)
                or self._fits_between(number, one)
                or self._is_one_bit_off(number, one)
                or self._is_free(number, one)
                or self._gets_what_is_free(number, one)
            )
            if not placed:
                self._refuse(one, head)
            elif one.patch:
                self._note_header(one)

    def _is_twice(self, one: Run, head: Any) -> bool:
        """Whether the same batch is kept already."""
        at = max(0, bisect_right(self.runs, one.first, key=lambda run: run.first) - 1)
        for run in self.runs[at : at + 1]:
            if not run.first <= one.first <= one.last <= run.last:
                continue
            heads = self._heads(run)
            i = int(np.searchsorted(heads.base, one.first))
            if i < len(heads.base) and (heads.base[i], heads.last[i]) == (one.first, one.last):
                if heads.header["crc"][i] != head["crc"]:
                    return False
                self.order.cut.append(
                    removed_run(
                        one,
                        f"bad order: offsets {one.first} to {one.last} are there twice, kept at byte {heads.start[i]} of {run.file}",
                        0,
                        {},
                    )
                )
                return True
        return False

    def _continues(self, one: Run) -> bool:
        """Put a batch where its offsets are free, and those next to them are in its own file."""
        at = bisect_left(self.runs, one.first, key=lambda run: run.first)
        left, right = self.runs[at - 1] if at else None, self.runs[at] if at < len(self.runs) else None
        if left is not None and left.last > one.last and left.file == one.file and not left.patch:
            heads = self._heads(left)
            i = int(np.searchsorted(heads.base, one.first))
            joins = heads.last[i - 1] + 1 == one.first
            joins = joins or (i < len(heads.base) and heads.base[i] == one.last + 1)
            return bool(joins) and self._insert(one)
        joins = (left is not None and left.file == one.file and left.last + 1 == one.first) or (
            right is not None and right.file == one.file and right.first == one.last + 1
        )
        joins = joins or one.first == one.base
        return joins and self._insert(one)

    def _fits_between(self, number: int, one: Run) -> bool:
        """Give a batch the offsets that its neighbours in the file leave free, if these are as many as it takes."""
        low, high = self._room(number, one)
        if low is None or high is None or high - low != one.last - one.first:
            return False
        return self._move(one, low, "the batches around it leave just these offsets")

    def _is_one_bit_off(self, number: int, one: Run) -> bool:
        """Give a batch with an offset that its segment can't hold the only one within reach of one flipped bit."""
        low, high = self._room(number, one)
        base = self.examined[number].base
        if low is None or base <= one.first <= one.last <= base + MAX_OFFSET_DELTA:
            return False
        top = base + MAX_OFFSET_DELTA if high is None else high
        near = [(one.first & _UNSIGNED) ^ (1 << bit) for bit in range(64)]
        fit = [to for to in near if low <= to <= top - (one.last - one.first)]
        if len(fit) != 1:
            return False
        return self._move(
            one, fit[0], "the segment can't hold that offset, and one flipped bit makes the difference"
        )

    def _gets_what_is_free(self, number: int, one: Run) -> bool:
        """Give a batch the first offsets that its neighbours in the file leave free, if these are more than it takes. A broker
        would give its records to consumers at offsets that are wrong, or lose what follows."""
        low, high = self._room(number, one)
        if low is None or (high is not None and high - low < one.last - one.first):
            return False
        upto = "" if high is None else f" up to {high}"
        return self._move(
            one, low, f"these are the first of those that the batches around it leave free{upto}"
        )

    def _room(self, number: int, one: Run) -> tuple[int | None, int | None]:
        """The first and the last offset between the neighbours of a batch in its file, None where that is not known."""
        segment = self.examined[number]
        left, right = self._stops.get((one.file, one.begin)), self._begins.get((one.file, one.stop))
        low = left.last + 1 if left else segment.base if one.begin == 0 else None
        at_end, after = one.stop >= segment.file.size, segment.file.hints.get("next_base")
        high = right.first - 1 if right else after - 1 if at_end and after is not None else None
        return low, high

    def _move(self, one: Run, to: int, why: str) -> bool:
        patch = to.to_bytes(8, "big") + one.patch[8:]
        start = one.start if one.patch else one.start + len(patch)
        moved = replace(
            one, first=to, last=to + one.last - one.first, start=start, patch=patch, origin=one.begin
        )
        if not self._insert(moved):
            return False
        self.order.notes.append(
            f"{one.file}: base_offset of the batch at byte {one.begin} is set from {one.first} to {to}: {why} (no checksum covers"
            " the field)."
        )
        return True

    def _note_header(self, one: Run) -> None:
        self.order.notes.append(
            f"{one.file}: batch_length or magic of the batch at byte {one.begin} is set right: its checksum, which does not cover"
            " them, is that of all the rest."
        )

    def _is_free(self, number: int, one: Run) -> bool:
        """Put a batch where its offsets belong, if that is in its own file, or at the end of the log."""
        if one.first < 0:
            return False
        at = bisect_left(self.runs, one.first, key=lambda run: run.first)
        beside = [run for run in self.runs[max(0, at - 1) : at + 1] if run.file == one.file]
        if beside or not self._files[one.file]:
            end = self.runs[-1].last + 1 if self.runs else 0
            # The log went so far once, when a snapshot of the producers was called after its end.
            credible = one.first == end or one.last < self._known_end
            if one.first >= end and not credible and not self._is_last(number, one):
                return False
            return self._insert(one)
        return False

    def _is_last(self, number: int, one: Run) -> bool:
        """Whether nothing of the log lies behind a batch."""
        good = self.examined[number].good
        return number >= self._last_good and (not good or good[-1].begin < one.begin)

    def _refuse(self, one: Run, head: Any) -> None:
        rows, what = lost(self.copies.listings[one.copy], np.array([head]))
        if one.patch:
            self.order.cut = [
                each for each in self.order.cut if (each.file, each.offset) != (one.file, one.begin)
            ]
        why = f"bad order: offsets {one.first} to {one.last} are not in the place of the batch, and others have them or lie around"
        self.order.cut.append(removed_run(one, why, rows, what))

    # The runs kept

    def _insert(self, one: Run) -> bool:
        """Put a run among the others, if its offsets are free."""
        at = bisect_left(self.runs, one.first, key=lambda run: run.first)
        if at and self.runs[at - 1].last >= one.first:
            if not self._split(at - 1, one):
                return False
            at = bisect_left(self.runs, one.first, key=lambda run: run.first)
        if at < len(self.runs) and self.runs[at].first <= one.last:
            return False
        self._put(at, 0, one)
        return True

    def _put(self, at: int, count: int, *new: Run) -> None:
        """Runs in place of some others."""
        for run in self.runs[at : at + count]:
            del self._stops[run.file, run.stop], self._begins[run.file, run.begin]
        self.runs[at : at + count] = new
        for run in new:
            self._stops[run.file, run.stop] = self._begins[run.file, run.begin] = run
            self._files[run.file] += 1

    def _heads(self, run: Run) -> _Heads:
        """The headers of the run that was asked for last are kept: whoever asks, asks for it or its neighbour next."""
        if run not in self._known:
            found = list(self.copies.batches(run))
            header = np.concatenate([some.frames.header for some in found])
            start = np.concatenate([some.at for some in found]) + run.begin
            size = np.concatenate([some.frames.end - some.frames.start for some in found])
            base, last = offsets(header)
            self._known = {run: _Heads(header, start, start + size, base, last)}
        return self._known[run]

    def _split(self, at: int, one: Run) -> bool:
        """Make two runs of one that leaves the offsets of a batch free, if it does."""
        run = self.runs[at]
        if run.patch or not run.first < one.first <= one.last < run.last:
            return False
        heads = self._heads(run)
        i = int(np.searchsorted(heads.base, one.first))
        if heads.last[i - 1] >= one.first or heads.base[i] <= one.last:
            return False
        place = int(heads.start[i])
        low = replace(run, stop=place, last=int(heads.last[i - 1]))
        high = replace(run, start=place, first=int(heads.base[i]))
        self._put(at, 1, low, high)
        self._known = {low: heads.part(slice(0, i)), high: heads.part(slice(i, None))}
        return True
