"""Views whose rows are combined from several files (`codec.capability.Combine`). The files are read as streams; damage in them is reported,
and the layout combines the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.fault import DamageError, Fault, Kind
from logwright.codec.frames.walk import WINDOW
from logwright.codec.table import Table
from logwright.codec.window import RowFrames
from logwright.readers.filter import Filter
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.report import Report
from logwright.readers.stream import ALL_ROWS, CORRUPT, RECORD_LIMIT, Mode, ReadOptions, output_schema
from logwright.readers.task import ReadJob, Task, Work, run_jobs, table_of

_SMALLEST = 256 << 10
"""Smallest window in bytes, used when many runs are open at a time."""
_OPEN = 8
"""Number of runs that are read in windows of full size."""


@dataclass(frozen=True)
class TaskRun:
    """A `codec.store.view.Run`."""

    tasks: tuple[Task, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Combined:
    """A `codec.store.view.Group`, or the rows of a range of its key: `low` inclusive, `high` exclusive. See `readers.task.Work`."""

    path: str
    layout: str
    view: str
    runs: tuple[TaskRun, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    low: Any = None
    high: Any = None
    ordered: bool = False
    already_reported: frozenset[str] = frozenset()
    """Files whose damage is reported by other parts that read them too."""

    @property
    def files(self) -> Sequence[Task]:
        return [task for run in self.runs for task in run.tasks]

    @property
    def length(self) -> int | None:
        lengths = [task.length for task in self.files]
        return None if None in lengths else sum(length for length in lengths if length is not None)

    def with_files(self, change: Callable[[Task], Task]) -> Work:
        files = [[change(task) for task in run.tasks] for run in self.runs]
        names = {
            task.file: new.file
            for run, tasks in zip(self.runs, files, strict=True)
            for task, new in zip(run.tasks, tasks, strict=True)
        }
        return replace(
            self,
            runs=tuple(replace(run, tasks=tuple(tasks)) for run, tasks in zip(self.runs, files, strict=True)),
            already_reported=frozenset(names[name] for name in self.already_reported),
        )

    @property
    def table(self) -> Table:
        return table_of(registry.get_layout(self.layout).views[self.view], {})

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row: those of the view's own table, or else the column whose equal values are merged."""
        own = registry.get_layout(self.layout).views[self.view].rows
        if own is not None and own.key:
            return own.key
        return () if self.key is None else (self.key,)

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        options: ReadOptions = ALL_ROWS,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        combine = registry.get_layout(self.layout).capabilities.combine
        assert combine is not None
        filter = options.filter
        window = max(WINDOW * _OPEN // max(_OPEN, len(self.runs)), min(WINDOW, _SMALLEST))
        reading = _Reading(self, report, options, window, prefetcher)
        needed = tuple(dict.fromkeys((*columns, *(filter.columns if filter is not None else ()))))
        if reading.range is not None:
            needed = tuple(dict.fromkeys((*needed, *reading.range.columns)))
        # A table without columns has no number of rows.
        needed = needed or self.table.names()[:1]
        schema = output_schema(self.table, columns, options.mode)
        left = options.limit
        runs = [_Stream(reading, run) for run in self.runs]
        combined = combine(self.view, self.params, runs, needed, reading.report_fault)
        while left != 0:
            batch = next(combined, None)
            results = [*reading.damaged(schema)]
            if batch is not None:
                if reading.range is not None:
                    batch = reading.range.apply(batch)
                results.append(_shown(batch, filter, columns, schema))
            for rows in results:
                limited = rows.slice(0, left)
                left = None if left is None else left - limited.num_rows
                if batch is not None and rows is results[-1]:
                    report.combined_rows += limited.num_rows
                if limited.num_rows:
                    yield limited
            if batch is None:
                return

    # Splitting

    def split(self, max_bytes: int, mode: Mode = Mode.FAILFAST) -> Sequence[Work]:
        """Split into ranges of the key, at the first keys of files whose bounds are known. Files without bounds are read for every range."""
        # Salvage returns rows outside of the bounds of their file, and must see all of a key.
        cuts = [] if self.ordered and mode is not Mode.FAILFAST else self._cuts(max_bytes)
        if not cuts:
            return [self]
        reported: set[str] = set()
        out: list[Work] = []
        for low, high in zip([self.low, *cuts], [*cuts, self.high], strict=True):
            runs = [
                replace(run, tasks=tuple(task for task in run.tasks if self._touches(task, low, high)))
                for run in self.runs
            ]
            files = {task.file for run in runs for task in run.tasks}
            part = replace(
                self,
                runs=tuple(run for run in runs if run.tasks),
                low=low,
                high=high,
                already_reported=self.already_reported | (files & reported),
            )
            reported |= files
            if part.runs:
                out.append(part)
        return out

    def _cuts(self, max_bytes: int) -> list[Any]:
        if self.key is None:
            return []
        known = sorted(
            ((task.bounds[self.key][0], task.size or 0) for task in self.files if self.key in task.bounds),
            key=lambda file: file[0],
        )
        cuts: list[Any] = []
        size = 0
        for low, length in known:
            inside = (self.low is None or low > self.low) and (self.high is None or low < self.high)
            if size and size + length > max_bytes and inside and (not cuts or low > cuts[-1]):
                cuts.append(low)
                size = 0
            size += length
        return cuts

    def _touches(self, task: Task, low: Any, high: Any) -> bool:
        smallest, largest = task.bounds.get(self.key or "", (None, None))
        return not (
            (high is not None and smallest is not None and smallest >= high)
            or (low is not None and largest is not None and largest < low)
        )


class _Reading:
    """State that the runs of one group share while they are read."""

    def __init__(
        self, group: Combined, report: Report, options: ReadOptions, window: int, prefetcher: Prefetcher
    ) -> None:
        self.group, self.report, self.mode = group, report, options.mode
        self.window, self.prefetcher = window, prefetcher
        self.silent = Report(report.path, max_faults=0)
        # All rows of one key must stay together, so only conditions on the key may be applied before combining.
        asked = options.filter
        self.filter = asked.only(group.key) if asked is not None and group.key is not None else None
        self.trusted = not group.ordered or self.mode is Mode.FAILFAST
        """Whether a file has only rows within its bounds: else the read fails."""
        self.range: Filter | None = None
        """The range of an ordered group, for the combined rows."""
        if group.ordered and group.key is not None and not (group.low is None and group.high is None):
            self.range = Filter.between(None, group.table[group.key], group.low, group.high)
        self.corrupt_rows: list[pa.RecordBatch] = []
        self.reported: set[str] = set(group.already_reported)
        """Files whose damage has been reported."""

    def report_fault(self, fault: Fault, file: str = "", data: bytes = b"") -> None:
        """See `codec.capability.Report`."""
        self.report.file(file, fault.codec).add(fault)
        if self.mode is Mode.FAILFAST and fault.stops:
            raise DamageError.of(fault, f"{self.report.path}/{file}" if file else self.report.path)
        if self.mode is Mode.PERMISSIVE and file and fault.stops:
            values = data[:RECORD_LIMIT], fault.offset, fault.length
            arrays = [pa.array([value], kind.type) for value, kind in zip(values, CORRUPT, strict=True)]
            self.corrupt_rows.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(CORRUPT)))

    def filters_of(self, task: Task) -> tuple[Filter | None, Filter | None]:
        """Return the filter for the rows of a file, and the one for its frames: see `FileStream`."""
        group = self.group
        within = self._within(task)
        if group.ordered and self.trusted and group.key in task.bounds:
            # Rows outside of the range show that a block is in the wrong place.
            return self.filter, within
        return within, within if self.trusted else None

    def _within(self, task: Task) -> Filter | None:
        """Return the filter with the bounds of the range unless the file is inside it."""
        group = self.group
        if group.key is None or (group.low is None and group.high is None):
            return self.filter
        if not self.trusted:
            return Filter.between(self.filter, group.table[group.key], group.low, group.high)
        smallest, largest = task.bounds.get(group.key, (None, None))
        low = group.low if smallest is None or group.low is None or smallest < group.low else None
        high = group.high if largest is None or group.high is None or largest >= group.high else None
        if low is None and high is None:
            return self.filter
        return Filter.between(self.filter, group.table[group.key], low, high)

    def damaged(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows of damaged regions since the last call."""
        rows = self.corrupt_rows[:]
        self.corrupt_rows.clear()
        for row in rows:
            arrays = [
                row.column(field.name) if field in CORRUPT else pa.nulls(row.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Stream:
    """One run. See `codec.store.view.Stream`."""

    def __init__(self, reading: _Reading, run: TaskRun) -> None:
        self._reading, self._run, self.params = reading, run, run.params
        self._read: dict[str, str] = {}

    @property
    def damaged(self) -> bool:
        """See `codec.store.view.Stream`."""
        reports = (self._reading.report, self._reading.silent)
        return any(
            report.file(name, codec).errors for name, codec in self._read.items() for report in reports
        )

    @property
    def salvaged(self) -> bool:
        """See `codec.store.view.Stream`."""
        return self._reading.mode is not Mode.FAILFAST

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._jobs(columns)

    def survey(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `codec.store.view.RowStream`."""
        return self._jobs(columns, reported=not self.salvaged)

    def frames(self) -> Iterator[RowFrames]:
        """See `codec.store.view.Stream`."""
        return self._jobs(None)

    def _jobs(self, columns: Sequence[str] | None, *, reported: bool = True) -> Iterator[Any]:
        reading = self._reading
        jobs: list[ReadJob] = []
        for task in self._run.tasks:
            filter, frame_filter = reading.filters_of(task)
            if reading.trusted and frame_filter is not None and frame_filter.skips(task.bounds):
                continue
            self._read[task.file] = task.codec
            loud = reported and task.file not in reading.reported
            if loud:
                reading.reported.add(task.file)
            reading.report.file(task.file, task.codec).combined = True
            report = reading.report if loud else reading.silent
            on_corrupt = reading.corrupt_rows.append if loud else _forget
            jobs.append(ReadJob(task, filter, report, on_corrupt, frame_filter))
        # Without its report, damage needs no rows and no search for flipped bits.
        mode = reading.mode if reported else Mode.DROPMALFORMED
        rows = run_jobs(jobs, columns, mode, reading.window, reading.prefetcher)
        if reading.range is None or not reading.trusted or columns is None or not jobs:
            return rows
        return self._checked(rows, jobs[0].task, jobs[-1].task)

    def _checked(
        self, batches: Iterable[pa.RecordBatch], first: Task, last: Task
    ) -> Iterator[pa.RecordBatch]:
        """Report a row outside of the bounds of the files and of the range, where other parts of a split have its key. A merge sees
        whether the rows in between are in order."""
        group = self._reading.group
        assert group.key is not None
        smallest, _ = first.bounds.get(group.key, (None, None))
        _, largest = last.bounds.get(group.key, (None, None))
        for batch in batches:
            if batch.num_rows and group.key in batch.schema.names:
                keys = batch.column(group.key)
                low, high = keys[0].as_py(), keys[-1].as_py()
                for task, outside in (
                    (first, None not in (smallest, group.low) and low < smallest and low < group.low),
                    (last, None not in (largest, group.high) and high > largest and high >= group.high),
                ):
                    if outside:
                        text = f"a {group.key} is outside of the range of the file that other files state"
                        self._reading.report_fault(Fault(task.codec, 0, 0, Kind.ORDER, text), task.file)
            yield batch


def _forget(row: pa.RecordBatch) -> None: ...


def _shown(
    batch: pa.RecordBatch, filter: Filter | None, columns: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch:
    """Return the matching rows, with the columns of the output."""
    if filter is not None:
        batch = filter.apply(batch)
    if len(schema) == len(columns) == batch.num_columns:
        return batch
    if not len(schema):
        return batch.select([])
    arrays = [batch.column(name) for name in columns]
    arrays += [pa.nulls(batch.num_rows, field.type) for field in list(schema)[len(columns) :]]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
