"""Tasks: what is to be read, a stretch of a single file or several of them to be combined. A task is small and stands on its own:
another process can run it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Protocol, cast

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import DamageError, Fault
from logwright.codec.frames.walk import WINDOW
from logwright.codec.option import Option, Options, fold
from logwright.codec.window import RowFrames
from logwright.readers import jobs as _jobs
from logwright.readers.filter import Filter
from logwright.readers.prefetch import FEW, INLINE, Prefetcher, usable
from logwright.readers.report import Report
from logwright.readers.rescue import Rescue
from logwright.readers.source import Source, open_source
from logwright.readers.split import split
from logwright.readers.stream import FileStream, FrameStream, Mode

PIECE = 16 << 20
"""Bytes of a file that another process reads at a time; smaller files are read several at a time by threads."""


class Work(Protocol):
    """Something to be read. Picklable but for what comes from standard input."""

    @property
    def path(self) -> str:
        """As people see it: of a file, or of the directory that it is read from."""
        ...

    @property
    def length(self) -> int | None:
        """So many bytes of files are read; None where that is not known."""
        ...

    @property
    def files(self) -> Sequence[Task]:
        """The files that are read for it."""
        ...

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        *,
        mode: Mode = Mode.FAILFAST,
        filter: Filter | None = None,
        limit: int | None = None,
        window: int = WINDOW,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        """Its rows, in batches of `stream.output_schema`. The prefetcher may read ahead."""
        ...

    def split(self, max_bytes: int) -> Sequence[Work]:
        """The same rows from work of at most `max_bytes` each, as far as it can be cut."""
        ...

    def with_files(self, change: Callable[[Task], Task]) -> Work:
        """The same with each file changed."""
        ...


@dataclass(frozen=True)
class Task:
    """A stretch of one file, to be read on its own. See `Work`."""

    path: str
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

    @property
    def length(self) -> int | None:
        stop = self.stop if self.stop is not None else self.size
        return None if stop is None else stop - self.start

    @property
    def files(self) -> Sequence[Task]:
        return (self,)

    def open(self) -> Source:
        return self.source or open_source(self.real, self.path, Rescue.of(self.options))

    def context(self, codec: Codec) -> Any:
        name = self.path.rstrip("/").rpartition("/")[2]
        return codec.context(name, codec_options(codec, self.options), **self.hints)

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        *,
        mode: Mode = Mode.FAILFAST,
        filter: Filter | None = None,
        limit: int | None = None,
        window: int = WINDOW,
        prefetcher: Prefetcher = INLINE,
        on_corrupt: Callable[[pa.RecordBatch], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """`on_corrupt` as in `FileStream`."""
        if filter is not None and filter.skips(self.bounds):
            return
        yield from self._read(
            FileStream,
            columns,
            report,
            mode=mode,
            filter=filter,
            limit=limit,
            window=window,
            on_corrupt=on_corrupt,
            prefetcher=prefetcher,
        )

    def frames(self, report: Report, **rest: Any) -> Iterator[RowFrames]:
        """The frames that hold the rows, as they are stored; the rest as in `rows`."""
        return self._read(FrameStream, (), report, **rest)

    def _read(
        self, kind: type[FileStream], columns: Sequence[str], report: Report, **rest: Any
    ) -> Iterator[Any]:
        codec = registry.get(self.codec)
        source = self.open()
        try:
            yield from kind(
                source,
                codec,
                self.table,
                columns,
                context=self.context(codec),
                report=report.file(self.file, self.codec),
                start=self.start,
                stop=self.stop,
                **rest,
            )
        finally:
            if self.source is None:
                source.close()

    def split(self, max_bytes: int) -> Sequence[Task]:
        codec = registry.get(self.codec)
        if (
            self.table == "file"
            or codec.single_frame
            or (self.length is not None and self.length <= max_bytes)
        ):
            return [self]
        with open_source(self.real, self.path, Rescue.of(self.options)) as source:
            stretches = split(source, codec, self.context(codec), max_bytes)
        out = []
        for start, stop in stretches:
            start, stop = max(start, self.start), stop if self.stop is None else min(stop, self.stop)
            if start < stop:
                out.append(replace(self, start=start, stop=stop))
        return out

    def with_files(self, change: Callable[[Task], Task]) -> Task:
        return change(self)

    def named(self) -> Task:
        """The same with the file called by its path."""
        return replace(self, file=self.path)


def run(
    tasks: Sequence[Work],
    columns: Sequence[str],
    report: Report,
    *,
    mode: Mode = Mode.FAILFAST,
    filter: Filter | None = None,
    limit: int | None = None,
    window: int = WINDOW,
    prefetcher: Prefetcher = INLINE,
) -> Iterator[pa.RecordBatch]:
    """The rows of tasks, one after the other."""
    whole = limit is None
    for files, some in groupby(tasks, lambda task: isinstance(task, Task)):
        if files and whole:
            jobs = [ReadJob(task, filter, report) for task in some if isinstance(task, Task)]
            yield from run_jobs(jobs, columns, mode, window, prefetcher)
            continue
        for task in some:
            if limit == 0:
                return
            for batch in task.rows(
                columns, report, mode=mode, filter=filter, limit=limit, window=window, prefetcher=prefetcher
            ):
                if limit is not None:
                    limit -= batch.num_rows
                yield batch


@dataclass(frozen=True)
class ReadJob:
    """A file to be read: of which rows, where what is met is noted, and where the rows of damaged regions go, if not among the others."""

    task: Task
    filter: Filter | None
    report: Report
    on_corrupt: Callable[[pa.RecordBatch], None] | None = None

    def read(
        self,
        columns: Sequence[str] | None,
        report: Report,
        mode: Mode,
        window: int,
        on_corrupt: Callable[[pa.RecordBatch], None] | None,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[Any]:
        """The rows with these columns; the frames that hold them where no columns are named."""
        if columns is None:
            return self.task.frames(
                report, mode=mode, window=window, on_corrupt=on_corrupt, prefetcher=prefetcher
            )
        return self.task.rows(
            columns,
            report,
            mode=mode,
            filter=self.filter,
            window=window,
            prefetcher=prefetcher,
            on_corrupt=on_corrupt,
        )


def run_jobs(
    jobs: Sequence[ReadJob], columns: Sequence[str] | None, mode: Mode, window: int, prefetcher: Prefetcher
) -> Iterator[Any]:
    """The rows of files (without columns the frames that hold them), one after the other. Small files are read several at a time."""
    for small, some in groupby(jobs, lambda one: one.task.length is not None and one.task.length <= PIECE):
        group = list(some)
        if small and len(group) > 1 and prefetcher.threads > 1:
            for found in prefetcher.iterate(
                [partial(_apart, one, columns, mode, window) for one in group], _weight
            ):
                if callable(found):
                    found()
                else:
                    yield found
            continue
        for one in group:
            yield from one.read(columns, one.report, mode, window, one.on_corrupt, prefetcher)


def _apart(
    job: ReadJob, columns: Sequence[str] | None, mode: Mode, window: int
) -> Iterator[pa.RecordBatch | RowFrames | Callable[[], object]]:
    """The rows of a file that another thread may read, and between them what the caller is to do about what was met."""
    part = Report(job.report.path, max_faults=job.report.max_faults)
    damaged: list[pa.RecordBatch] = []
    on_corrupt = None if job.on_corrupt is None else damaged.append
    try:
        for batch in job.read(columns, part, mode, window, on_corrupt):
            yield from _put_aside(job, damaged)
            yield batch
        yield from _put_aside(job, damaged)
    except Exception:
        yield partial(job.report.merge, part)
        raise
    yield partial(job.report.merge, part)


def _put_aside(job: ReadJob, damaged: list[pa.RecordBatch]) -> Iterator[Callable[[], object]]:
    for row in damaged:
        assert job.on_corrupt is not None
        yield partial(job.on_corrupt, row)
    damaged.clear()


def _weight(found: pa.RecordBatch | RowFrames | Callable[[], object]) -> int:
    if isinstance(found, RowFrames):
        return len(found.window.data)
    return found.nbytes if isinstance(found, pa.RecordBatch) else 0


@dataclass(frozen=True)
class _Piece:
    """Work for another process."""

    task: Work
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
    tasks: Sequence[Work],
    columns: Sequence[str],
    report: Report,
    jobs: int,
    *,
    mode: Mode = Mode.FAILFAST,
    filter: Filter | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `run`, by so many processes: the same rows in the same order. Twice as many pieces are held at a time. What is open already,
    like standard input, is read by one, of as many threads as are of use."""
    if jobs < 2 or limit == 0 or any(file.source is not None for task in tasks for file in task.files):
        known = [task.length for task in tasks]
        few = None not in known and sum(length or 0 for length in known) < FEW
        # What is wanted with a limit comes soon, and the rest not at all.
        with Prefetcher(1 if few or limit is not None else usable()) as prefetcher:
            yield from run(
                tasks, columns, report, mode=mode, filter=filter, limit=limit, prefetcher=prefetcher
            )
        return
    wanted = [
        task
        for task in tasks
        if filter is None or not isinstance(task, Task) or not filter.skips(task.bounds)
    ]
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
        if mode is Mode.FAILFAST and fault.stops:
            # With several targets a file is named by its path.
            raise DamageError.of(fault, file if "/" in file else report.shown(file))


def split_tasks(tasks: Sequence[Work], max_bytes: int) -> list[Work]:
    """The same rows from tasks of at most `max_bytes` each (or of one frame, where that is larger)."""
    return [part for task in tasks for part in task.split(max_bytes)]


def known_options(options: Mapping[str, Any], declared: Sequence[Option]) -> dict[str, Any]:
    names = {fold(option.name) for option in declared}
    return {name: value for name, value in options.items() if fold(name) in names}


def codec_options(codec: Codec, given: Mapping[str, Any]) -> Options:
    """A codec's options from all that were given; those of others are left out."""
    if not given:
        return _defaults(cast(Hashable, codec))
    return Options(codec.options, known_options(given, codec.options))


@lru_cache(maxsize=64)
def _defaults(codec: Hashable) -> Options:
    return Options(cast(Codec, codec).options)
