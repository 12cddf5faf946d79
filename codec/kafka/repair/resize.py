"""Apply retention, and resize segments: batches are dropped with their segments or move between segments, and keep their bytes.

Source: `UnifiedLog.deleteOldSegments` and `deletableSegments`, `LogSegment.shouldRoll` of Kafka's storage module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import CONTROL
from logwright.codec.kafka.repair.runs import Run
from logwright.codec.option import Option, Options
from logwright.codec.store.listing import Listing, PlannedFile

_INT_MAX = (1 << 31) - 1
OPTIONS = (
    Option("segment.bytes", None, "The largest segment of the result. By default segments are kept", low=14, high=_INT_MAX),
    Option("segment.ms", None, "Time between the first batches of two segments of the result", low=1),
    Option("retention.ms", None, "Remove the oldest segments whose records are all older at the time `now`. -1 removes nothing", low=-1),
    Option("retention.bytes", None, "Remove the oldest segments as long as the rest has at least this size. -1 removes nothing", low=-1),
    Option("delete.before.offset", None, "Remove the records below this offset, as kafka-delete-records does", low=0),
)  # fmt: skip
"""Options that drop or move batches."""

Segment = tuple[int, Iterable[Run], str | None]
"""The base offset, the batches, and the file whose owner and mode are kept. See `PartitionPlan`."""


class Resizer:
    """Divides the batches of undamaged segments by `OPTIONS`. `notes` gets a sentence on the removed records. `cut` has the ranges
    of edited batches."""

    def __init__(
        self, listing: Listing, files: Sequence[PlannedFile], options: Options, deriver: PartitionDeriver, now: int, notes: list[str],
        cut: Sequence[Removed],
    ) -> None:  # fmt: skip
        self.listing, self.files, self.options, self.deriver = listing, files, options, deriver
        self.now, self.notes, self.cut = now, notes, cut
        self.below: int | None = options["delete.before.offset"]
        self._rows, self._last = 0, -1

    def segments(self, segments: Sequence[tuple[int, Iterable[Run], str]]) -> Iterator[Segment]:
        """Yield the segments of the result."""
        gone = self._deleted()
        for file in self.files[:gone]:
            self.deriver.begin_segment(file.hints["base_offset"])
            for run in self._headers(file):
                self._drop(run)
        if gone:
            self.deriver.end_removed()
        left = segments[gone:]
        if not left:
            yield self._last + 1, (), None
        elif self.options["segment.bytes"] is None and self.options["segment.ms"] is None:
            for number, (base, runs, name) in enumerate(left):
                yield from self._first(base, runs, name) if not number else [(base, runs, name)]
        else:
            yield from self._rolled(left)
        self._note(gone)

    def _first(self, base: int, runs: Iterable[Run], name: str) -> Iterator[Segment]:
        """Yield the first remaining segment. If its first batches are removed, it starts at the next one."""
        before = self._last
        kept = self._kept(runs)
        first = next(kept, None)
        removed = self._last > before
        base = base if not removed else self._last + 1 if first is None else first.first
        yield base, () if first is None else chain((first,), kept), None if removed else name

    # Retention

    def _deleted(self) -> int:
        """Return the number of the oldest segments that are removed."""
        files, options = self.files, self.options
        if self.below is not None and files and self.below > (end := self._end()):
            raise UsageError(f"delete.before.offset {self.below} is above the log end offset {end}")
        gone = 0
        while (
            self.below is not None
            and gone + 1 < len(files)
            and files[gone + 1].hints["base_offset"] <= self.below
        ):
            gone += 1
        if options["retention.bytes"] not in (None, -1):
            over = sum(file.size for file in files[gone:]) - options["retention.bytes"]
            while gone < len(files) and files[gone].size and over >= files[gone].size:
                over -= files[gone].size
                gone += 1
        if options["retention.ms"] not in (None, -1):
            while gone < len(files) and (newest := self._newest(files[gone])) >= 0:
                if self.now - newest <= options["retention.ms"]:
                    break
                gone += 1
        return gone

    def _newest(self, file: PlannedFile) -> int:
        """Return the largest timestamp of a segment; -1 without timestamps. A broker then uses the modification time, which is unknown here."""
        return max((int(run.heads["max_timestamp"].max()) for run in self._headers(file)), default=-1)

    def _end(self) -> int:
        last = self.files[-1]
        return max((run.last + 1 for run in self._headers(last)), default=last.hints["base_offset"])

    def _headers(self, file: PlannedFile) -> Iterator[Run]:
        for window, frames in good_frames(walk_file(self.listing, file, log.CODEC, check=False)):
            yield Run.of(0, file, window, frames)

    def _drop(self, run: Run) -> None:
        """Remove batches. The state of their producers is kept, as by a broker."""
        self.deriver.add_removed(run.heads, run.markers)
        data = run.heads["attributes"] & CONTROL == 0
        self._rows += int(np.maximum(run.heads["records_count"].astype(np.int64), 0)[data].sum())
        self._last = run.last

    def _kept(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Yield the batches that reach option delete.before.offset."""
        for run in runs:
            cut = 0 if self.below is None else int(np.searchsorted(run.heads["last_offset"], self.below))
            if not cut:
                yield run
                continue
            removed, *rest = run.parts(cut)
            self._drop(removed)
            yield from rest

    def _note(self, gone: int) -> None:
        edited = 0 if self.below is None else sum(removed.rows_lost or 0 for removed in self.cut)
        rows = self._rows + edited
        if self._last >= 0 or rows:
            names = f"{plural.count(gone, 'segment')}, " if gone else ""
            below = max(self._last + 1, self.below or 0)
            self.notes.append(f"removed: {names}{plural.count(rows, 'record')} below offset {below}")

    # Rolling

    def _rolled(self, segments: Sequence[tuple[int, Iterable[Run], str]]) -> Iterator[Segment]:
        """Divide batches into segments as if they were appended."""
        base, _, name = segments[0]
        before = self._last
        numbered = self._numbered(base, self._kept(run for _, runs, _ in segments for run in runs))
        empty = True
        for number, group in groupby(numbered, key=lambda item: item[0]):
            runs = (run for _, run in group)
            first = next(runs)
            same = number == 0 and self._last == before
            yield base if same else first.first, chain((first,), runs), name if same else None
            empty = False
        if empty:
            yield base if self._last == before else self._last + 1, (), None

    def _numbered(self, base: int, runs: Iterable[Run]) -> Iterator[tuple[int, Run]]:
        """Yield runs with the numbers of their segments. A batch larger than a segment gets its own segment."""
        most = self.options["segment.bytes"] or _INT_MAX
        period = self.options["segment.ms"]
        number = size = 0
        oldest = -1
        for run in runs:
            rest: Any = run
            while rest is not None:
                times, edges = rest.heads["max_timestamp"].astype(np.int64), rest.edges
                over = (size + edges[1:] > most) | (rest.heads["last_offset"] - base > _INT_MAX)
                since = oldest if size else int(times[0])
                if period is not None and since >= 0:
                    over |= times - since > period
                if not size:
                    over[0] = False
                fit = int(np.argmax(over)) if over.any() else len(over)
                if not fit:
                    number, size, base = number + 1, 0, rest.first
                    continue
                part, *left = rest.parts(fit)
                size, oldest = size + int(edges[fit]), since
                yield number, part
                rest = left[0] if left else None
