"""Tasks: units of reading, each a range of one file or several files to combine. A task is small, and another process can run it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.deferred import deferred
from logwright.codec.engine.correct import Fix
from logwright.codec.fault import DamageError, Fault
from logwright.codec.option import Option, Options, fold
from logwright.codec.store.view import View
from logwright.codec.table import Table
from logwright.codec.window import RowFrames
from logwright.readers.corrected import with_corrections
from logwright.readers.filter import Filter
from logwright.readers.prefetch import FEW, INLINE, Prefetcher, usable
from logwright.readers.report import Report
from logwright.readers.rescue import Rescue
from logwright.readers.source import Source, open_source
from logwright.readers.stream import ALL_ROWS, FileStream, FrameStream, Mode, ReadOptions

if TYPE_CHECKING:
    from logwright.readers import jobs as _jobs
    from logwright.readers import split as _split
else:
    _jobs, _split = deferred("logwright.readers", "jobs", "split")

SPLIT_SIZE = 16 << 20
"""Size in bytes of the parts that processes share. Of smaller files, threads read several at a time."""


class Work(Protocol):
    """A unit of reading. It can be pickled, unless it reads standard input."""

    @property
    def path(self) -> str:
        """Path for messages: of the file, or of the directory that it is read from."""
        ...

    @property
    def length(self) -> int | None:
        """Number of bytes of files to read; None if unknown."""
        ...

    @property
    def files(self) -> Sequence[Task]:
        """The files to read."""
        ...

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        options: ReadOptions = ALL_ROWS,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows, in batches of `stream.output_schema`."""
        ...

    def split(self, max_bytes: int, mode: Mode = Mode.FAILFAST) -> Sequence[Work]:
        """Return parts of at most `max_bytes` each that have the same rows in this mode; a part that cannot be divided may be larger."""
        ...

    def with_files(self, change: Callable[[Task], Task]) -> Work:
        """Return a copy with `change` applied to each file."""
        ...


@dataclass(frozen=True)
class Task:
    """A range of one file. See `Work`."""

    path: str
    real: str
    """Where the bytes are, for `open_source`."""
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
    corrections: Sequence[Fix] = ()
    """Flipped bits that are corrected as the file is read."""
    leftover: bool = False
    rest: bytes = b""
    """See `codec.store.view.Part`."""

    @property
    def length(self) -> int | None:
        stop = self.stop if self.stop is not None else self.size
        return None if stop is None else stop - self.start

    @property
    def files(self) -> Sequence[Task]:
        return (self,)

    def open(self) -> Source:
        return self.source or with_corrections(
            open_source(self.real, self.path, Rescue.of(self.options)), self.corrections, self.rest
        )

    def context(self, codec: Codec) -> Any:
        name = self.path.rstrip("/").rpartition("/")[2]
        return codec.context(name, codec_options(codec, self.options), **self.hints)

    def rows(
        self,
        columns: Sequence[str] | None,
        report: Report,
        options: ReadOptions = ALL_ROWS,
        prefetcher: Prefetcher = INLINE,
        **settings: Any,
    ) -> Iterator[Any]:
        """Iterate over the rows in batches; with `columns` None over the stored frames that hold them (`RowFrames`).

        `settings` are further ones of `FileStream`.
        """
        if self.skipped(options):
            return
        codec = registry.get(self.codec)
        source = self.open()
        mode = Mode.DROPMALFORMED if self.leftover and options.mode is Mode.FAILFAST else options.mode
        try:
            yield from (FrameStream if columns is None else FileStream)(
                source,
                codec,
                self.table,
                columns or (),
                context=self.context(codec),
                report=report.file(self.file, self.codec),
                start=self.start,
                stop=self.stop,
                mode=mode,
                filter=options.filter,
                limit=options.limit,
                prefetcher=prefetcher,
                **settings,
            )
            if self.leftover:
                report.file(self.file, self.codec).lower()
        finally:
            if self.source is None:
                source.close()

    def skipped(self, options: ReadOptions) -> bool:
        """Return whether no row can match the filter. A salvage read does not rely on bounds for blocks that may be in the wrong place."""
        if options.filter is None or (options.mode is not Mode.FAILFAST and registry.get(self.codec).indexed):
            return False
        return options.filter.skips(self.bounds)

    def split(self, max_bytes: int, mode: Mode = Mode.FAILFAST) -> Sequence[Task]:
        codec = registry.get(self.codec)
        if (
            self.table == "file"
            or codec.single_frame
            or (self.length is not None and self.length <= max_bytes)
        ):
            return [self]
        with self.open() as source:
            ranges = _split.split(source, codec, self.context(codec), max_bytes)
        out = []
        for start, stop in ranges:
            start, stop = max(start, self.start), stop if self.stop is None else min(stop, self.stop)
            if start < stop:
                out.append(replace(self, start=start, stop=stop))
        return out

    def with_files(self, change: Callable[[Task], Task]) -> Task:
        return change(self)

    def named(self) -> Task:
        """Return a copy that names the file by its path."""
        return replace(self, file=self.path)


def run(
    tasks: Sequence[Work],
    columns: Sequence[str],
    report: Report,
    options: ReadOptions = ALL_ROWS,
    *,
    jobs: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Iterate over the rows of tasks, in order, read by `jobs` processes or, with one, by threads of this process.

    Sources that are open already, such as standard input, are read by this process alone.
    """
    limit = options.limit
    if jobs > 1 and limit != 0 and not any(file.source is not None for task in tasks for file in task.files):
        yield from _by_processes(tasks, columns, report, options, jobs)
        return
    with Prefetcher(_threads(tasks, limit)) as prefetcher:
        for is_file, group in groupby(tasks, lambda task: isinstance(task, Task)):
            if is_file and limit is None:
                files = [ReadJob(task, options.filter, report) for task in group if isinstance(task, Task)]
                yield from run_jobs(files, columns, options.mode, None, prefetcher)
                continue
            for task in group:
                if limit == 0:
                    return
                for batch in task.rows(columns, report, replace(options, limit=limit), prefetcher):
                    if limit is not None:
                        limit -= batch.num_rows
                    yield batch


def _threads(tasks: Sequence[Work], limit: int | None) -> int:
    """Return the number of threads: one for little data, and for a limit, since the rest is then never read."""
    lengths = [task.length for task in tasks]
    small = None not in lengths and sum(length or 0 for length in lengths) < FEW
    return 1 if small or limit is not None else usable()


@dataclass(frozen=True)
class ReadJob:
    """A file to read: with which filter, the report to fill, and where rows of damaged regions go, if not among the others."""

    task: Task
    filter: Filter | None
    report: Report
    on_corrupt: Callable[[pa.RecordBatch], None] | None = None
    frame_filter: Filter | None = None
    """See `FileStream`."""


def run_jobs(
    jobs: Sequence[ReadJob],
    columns: Sequence[str] | None,
    mode: Mode,
    window: int | None,
    prefetcher: Prefetcher,
) -> Iterator[Any]:
    """Iterate over the rows of files, in order; with `columns` None over the frames that hold them.

    Several small files are read at a time. Of a large file, threads read the bytes ahead.
    """
    for small, group in groupby(
        jobs, lambda job: job.task.length is not None and job.task.length <= SPLIT_SIZE
    ):
        files = list(group)
        if small and len(files) > 1 and prefetcher.threads > 1:
            begin = [partial(_in_thread, job, columns, mode, window) for job in files]
            for result in prefetcher.iterate(begin, _weight):
                if callable(result):
                    result()
                else:
                    yield result
            continue
        for job in files:
            options = ReadOptions(mode, job.filter if columns is not None else None)
            yield from job.task.rows(
                columns,
                job.report,
                options,
                prefetcher,
                on_corrupt=job.on_corrupt,
                window=window,
                frame_filter=job.frame_filter if columns is not None else None,
            )


def _in_thread(
    job: ReadJob, columns: Sequence[str] | None, mode: Mode, window: int | None
) -> Iterator[pa.RecordBatch | RowFrames | Callable[[], object]]:
    """Iterate over the rows of a file in any thread, and over calls that the reading thread makes to fill the report."""
    report = Report(job.report.path, max_faults=job.report.max_faults)
    corrupt: list[pa.RecordBatch] = []
    options = ReadOptions(mode, job.filter if columns is not None else None)
    on_corrupt = None if job.on_corrupt is None else corrupt.append
    try:
        frame_filter = job.frame_filter if columns is not None else None
        settings: dict[str, Any] = {"on_corrupt": on_corrupt, "window": window, "frame_filter": frame_filter}
        for batch in job.task.rows(columns, report, options, **settings):
            yield from _corrupt_rows(job, corrupt)
            yield batch
        yield from _corrupt_rows(job, corrupt)
    except Exception:
        yield partial(job.report.merge, report)
        raise
    yield partial(job.report.merge, report)


def _corrupt_rows(job: ReadJob, rows: list[pa.RecordBatch]) -> Iterator[Callable[[], object]]:
    for row in rows:
        assert job.on_corrupt is not None
        yield partial(job.on_corrupt, row)
    rows.clear()


def _weight(result: pa.RecordBatch | RowFrames | Callable[[], object]) -> int:
    if isinstance(result, RowFrames):
        return len(result.window.data)
    return result.nbytes if isinstance(result, pa.RecordBatch) else 0


@dataclass(frozen=True)
class _InProcess:
    """A task that another process runs."""

    task: Work
    columns: Sequence[str]
    options: ReadOptions
    max_faults: int

    def __call__(self) -> tuple[list[pa.RecordBatch], Report]:
        report = Report(self.task.path, max_faults=self.max_faults)
        return list(run([self.task], self.columns, report, self.options)), report


def _by_processes(
    tasks: Sequence[Work],
    columns: Sequence[str],
    report: Report,
    options: ReadOptions,
    jobs: int,
) -> Iterator[pa.RecordBatch]:
    """As `run`, by `jobs` processes. The results of at most twice as many parts are in memory."""
    limit = options.limit
    needed = [task for task in tasks if not isinstance(task, Task) or not task.skipped(options)]
    parts = [
        _InProcess(task, columns, options, report.max_faults)
        for task in split_tasks(needed, SPLIT_SIZE, options.mode)
    ]
    for batches, part in _jobs.run(parts, jobs, 2 * jobs):
        report.merge(part)
        for batch in batches:
            if limit is not None:
                batch = batch.slice(0, limit)
                limit -= batch.num_rows
            yield batch
            if limit == 0:
                return


def note(faults: Sequence[tuple[str, Fault]], report: Report, mode: Mode, *, several: bool = False) -> None:
    """Add the faults of a plan to a report. With `several` targets, files are named by their paths. Raises the first error in mode
    `FAILFAST`."""
    for file, fault in faults:
        report.file(file, fault.codec).add(fault)
        if mode is Mode.FAILFAST and fault.stops:
            raise DamageError.of(fault, file if several else report.shown(file))


def split_tasks(tasks: Sequence[Work], max_bytes: int, mode: Mode = Mode.FAILFAST) -> list[Work]:
    """Return tasks of at most `max_bytes` each that have the same rows in this mode. A frame that is larger is one task."""
    return [part for task in tasks for part in task.split(max_bytes, mode)]


def known_options(options: Mapping[str, Any], declared: Sequence[Option]) -> dict[str, Any]:
    names = {fold(option.name) for option in declared}
    return {name: value for name, value in options.items() if fold(name) in names}


def separated(
    options: Mapping[str, Any], declared: Sequence[Option], shared: Sequence[Option]
) -> tuple[Options, dict[str, Any]]:
    """Divide options into those declared by a verb, and those for reading: the others, and those that are also `shared` by reading."""
    own = {fold(option.name) for option in declared} - {fold(option.name) for option in shared}
    reading = {name: value for name, value in options.items() if fold(name) not in own}
    return Options(declared, known_options(options, declared)), reading


def codec_options(codec: Codec, options: Mapping[str, Any]) -> Options:
    """Return a codec's options, picked out of all options that were passed."""
    if not options:
        return _defaults(cast(Hashable, codec))
    return Options(codec.options, known_options(options, codec.options))


@lru_cache(maxsize=64)
def _defaults(codec: Hashable) -> Options:
    return Options(cast(Codec, codec).options)


def typed_table(codec: str, table: str, options: Mapping[str, Any]) -> Table:
    """Return a table of a codec, with the column types that options choose."""
    owner = registry.get(codec)
    return owner.table_of(table, owner.context("", codec_options(owner, options)))


def table_of(view: View, options: Mapping[str, Any]) -> Table:
    """Return the table of a view's rows, with the column types that options choose."""
    return view.rows or typed_table(view.codec, view.table, options)
