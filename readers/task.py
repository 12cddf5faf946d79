"""Tasks: stretches of single files to be read. A task is small and stands on its own: another process can run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import DamageError, Fault, Severity
from logwright.codec.option import Option, Options, fold
from logwright.readers import jobs as _jobs
from logwright.readers.filter import Filter
from logwright.readers.report import Report
from logwright.readers.rescue import Rescue
from logwright.readers.source import Source, open_source
from logwright.readers.split import split
from logwright.readers.stream import Mode, stream
from logwright.readers.walk import WINDOW

PIECE = 16 << 20
"""Bytes of a file that another process reads at a time."""


@dataclass(frozen=True)
class Task:
    """A stretch of one file, to be read on its own. Picklable but for one of standard input."""

    path: str
    """As people see it."""
    real: str
    """Where the bytes are: `open_source` takes it."""
    file: str
    """The file's name in the report."""
    codec: str
    table: str
    hints: Mapping[str, Any]
    options: Mapping[str, Any]
    start: int = 0
    stop: int | None = None
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    size: int | None = None
    source: Source | None = None

    def open(self) -> Source:
        return self.source or open_source(self.real, self.path, Rescue.of(self.options))

    def context(self, codec: Codec) -> Any:
        name = self.path.rstrip("/").rpartition("/")[2]
        return codec.context(name, codec_options(codec, self.options), **self.hints)


def run(
    tasks: Sequence[Task],
    columns: Sequence[str],
    report: Report,
    *,
    mode: Mode = Mode.FAILFAST,
    filter: Filter | None = None,
    limit: int | None = None,
    window: int = WINDOW,
) -> Iterator[pa.RecordBatch]:
    """The rows of tasks, one after the other."""
    for task in tasks:
        if limit == 0:
            return
        if filter is not None and filter.skips(task.bounds):
            continue
        codec = registry.get(task.codec)
        source = task.open()
        try:
            batches = stream(
                source,
                codec,
                task.table,
                columns,
                context=task.context(codec),
                report=report.file(task.file, task.codec),
                mode=mode,
                start=task.start,
                stop=task.stop,
                filter=filter,
                limit=limit,
                window=window,
            )
            for batch in batches:
                if limit is not None:
                    limit -= batch.num_rows
                yield batch
        finally:
            if task.source is None:
                source.close()


@dataclass(frozen=True)
class _Piece:
    """A task as a piece of work for another process."""

    task: Task
    columns: Sequence[str]
    mode: Mode
    filter: Filter | None
    limit: int | None
    max_faults: int

    def __call__(self) -> tuple[list[pa.RecordBatch], Report]:
        report = Report(self.task.path, max_faults=self.max_faults)
        batches = run([self.task], self.columns, report, mode=self.mode, filter=self.filter, limit=self.limit)
        return list(batches), report


def run_shared(
    tasks: Sequence[Task],
    columns: Sequence[str],
    report: Report,
    jobs: int,
    *,
    mode: Mode = Mode.FAILFAST,
    filter: Filter | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `run`, by so many processes: the same rows in the same order. Twice as many pieces are held at a time. Standard input is
    read here, by one."""
    if jobs < 2 or limit == 0 or any(task.source is not None for task in tasks):
        yield from run(tasks, columns, report, mode=mode, filter=filter, limit=limit)
        return
    wanted = [task for task in tasks if filter is None or not filter.skips(task.bounds)]
    pieces = [
        _Piece(task, columns, mode, filter, limit, report.max_faults) for task in split_tasks(wanted, PIECE)
    ]
    for batches, part in _jobs.run(pieces, jobs, 2 * jobs):
        report.merge(part)
        for batch in batches:
            if limit is not None:
                batch = batch.slice(0, limit)
                limit -= batch.num_rows
            yield batch
            if limit == 0:
                return


def note(faults: Sequence[tuple[str, Fault]], report: Report, mode: Mode) -> None:
    """Put a plan's faults, by file, into a report; in mode `FAILFAST` raise the first error among them."""
    for file, fault in faults:
        report.file(file, fault.codec).add(fault)
        if mode is Mode.FAILFAST and fault.severity is Severity.ERROR:
            raise DamageError.of(fault, file or report.path)


def split_tasks(tasks: Sequence[Task], max_bytes: int) -> list[Task]:
    """The same rows from tasks of at most `max_bytes` each (or of one frame, where that is larger)."""
    out: list[Task] = []
    for task in tasks:
        codec = registry.get(task.codec)
        if task.table == "file" or codec.whole or (task.size is not None and task.size <= max_bytes):
            out.append(task)
            continue
        with open_source(task.real, task.path, Rescue.of(task.options)) as source:
            stretches = split(source, codec, task.context(codec), max_bytes)
        for start, stop in stretches:
            start, stop = max(start, task.start), stop if task.stop is None else min(stop, task.stop)
            if start < stop:
                out.append(replace(task, start=start, stop=stop))
    return out


def known_options(options: Mapping[str, Any], declared: Sequence[Option]) -> dict[str, Any]:
    names = {fold(option.name) for option in declared}
    return {name: value for name, value in options.items() if fold(name) in names}


def codec_options(codec: Codec, given: Mapping[str, Any]) -> Options:
    """A codec's options from all that were given; those of others are left out."""
    return Options(codec.options, known_options(given, codec.options))
