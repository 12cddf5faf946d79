"""The undamaged messages of commit log files, and where they belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.codec import Part
from logwright.codec.rocketmq.formats.commitlog.read import store_timestamps
from logwright.codec.store.extents import Copy

LEAST_BLANK = 8
"""Size of the smallest blank record in bytes."""


@dataclass(order=True)
class Run:
    """A range of contiguous undamaged messages. `stored` is the store time of the last one.

    All places are those where the messages belong, in a file. They are in the file `name`, `moved` bytes before these places.
    """

    start: int
    stop: int
    count: int
    first_stop: int
    last_start: int
    stored: int
    name: str
    moved: int

    def copied(self, start: int, stop: int) -> Copy:
        """Return messages of the run."""
        return Copy(self.name, start - self.moved, stop - self.moved)


@dataclass
class LogFile:
    """A file of the commit log. `blank` is the offset of the final blank record, or -1. `damaged`: it has bytes that are neither messages nor
    zeros after them."""

    name: str
    base: int
    size: int
    runs: list[Run] = field(default_factory=list)
    blank: int = -1
    damaged: bool = False

    @property
    def end(self) -> int:
        return self.runs[-1].stop if self.runs else 0

    @property
    def stored(self) -> int:
        return self.runs[-1].stored if self.runs else 0

    @property
    def moved(self) -> int:
        return self.runs[-1].moved if self.runs else 0

    @property
    def moved_runs(self) -> list[Run]:
        """The runs that are not where they belong."""
        return [run for run in self.runs if run.moved or run.name != self.name]

    @property
    def whole(self) -> bool:
        """Whether no message is missing before the last one."""
        return len(self.runs) == 1 and not self.runs[0].start and not self.moved_runs

    def mark_damaged(self) -> None:
        self.damaged = True

    def lacks(
        self, start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64], size: int
    ) -> npt.NDArray[np.bool_]:
        """Return which ranges hold no message so far, and can hold one in a file of `size` bytes."""
        edges = np.array([(-1, 0), *((run.start, run.stop) for run in self.runs)], np.int64)
        before = np.searchsorted(edges[:, 0], stop) - 1
        limit = size - LEAST_BLANK if self.blank < 0 else self.blank
        missing: npt.NDArray[np.bool_] = (edges[before, 1] <= start) & (stop <= limit)
        return missing

    def add(self, runs: Iterable[Run]) -> None:
        """Add runs at the end."""
        for run in runs:
            last = self.runs[-1] if self.runs else run
            if last.stop == run.start and (last.name, last.moved) == (run.name, run.moved):
                self.runs.pop()
                run = replace(run, start=last.start, count=last.count + run.count, first_stop=last.first_stop)
            self.runs.append(run)


def runs_of(name: str, part: Part, base: int) -> Iterator[Run]:
    """Yield the runs of undamaged messages of a file. Their places are relative to the physical offset `base`."""
    places = part.head["physical_offset"].astype(np.int64) - base
    moved, ends = places - part.start - part.offset, places + part.end - part.start
    edges = np.flatnonzero((places[1:] != ends[:-1]) | (moved[1:] != moved[:-1])) + 1
    firsts, lasts = np.r_[0, edges], np.r_[edges, len(places)] - 1
    times = store_timestamps(part.pick(lasts))
    columns = (places[firsts], ends[lasts], lasts - firsts + 1, ends[firsts], places[lasts], times)
    for numbers, by in zip(np.stack(columns, 1).tolist(), moved[firsts].tolist(), strict=True):
        start, stop, count, first_stop, last_start, stored = numbers
        yield Run(start, stop, count, first_stop, last_start, stored, name, by)
