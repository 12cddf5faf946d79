"""Tasks: what is to be read, a stretch of a single file or several of them to be combined. A task is small and stands on its own:
another process can run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import DamageError, Fault, Severity
from logwright.codec.option import Option, Options, fold
from logwright.readers.filter import Filter
from logwright.readers.report import Report
from logwright.readers.rescue import Rescue
from logwright.readers.source import Source, open_source
from logwright.readers.split import split
from logwright.readers.stream import Mode, stream
from logwright.readers.walk import WINDOW


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
    ) -> Iterator[pa.RecordBatch]:
        """Its rows, in batches of `stream.output_schema`."""
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
        aside: Any = None,
    ) -> Iterator[pa.RecordBatch]:
        """`aside` as in `stream`."""
        if filter is not None and filter.skips(self.bounds):
            return
        codec = registry.get(self.codec)
        source = self.open()
        try:
            yield from stream(
                source,
                codec,
                self.table,
                columns,
                context=self.context(codec),
                report=report.file(self.file, self.codec),
                mode=mode,
                start=self.start,
                stop=self.stop,
                filter=filter,
                limit=limit,
                window=window,
                aside=aside,
            )
        finally:
            if self.source is None:
                source.close()

    def split(self, max_bytes: int) -> Sequence[Task]:
        codec = registry.get(self.codec)
        if self.table == "file" or codec.whole or (self.length is not None and self.length <= max_bytes):
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
) -> Iterator[pa.RecordBatch]:
    """The rows of tasks, one after the other."""
    for task in tasks:
        if limit == 0:
            return
        for batch in task.rows(columns, report, mode=mode, filter=filter, limit=limit, window=window):
            if limit is not None:
                limit -= batch.num_rows
            yield batch


def note(faults: Sequence[tuple[str, Fault]], report: Report, mode: Mode) -> None:
    """Put a plan's faults, by file, into a report; in mode `FAILFAST` raise the first error among them."""
    for file, fault in faults:
        report.file(file, fault.codec).add(fault)
        if mode is Mode.FAILFAST and fault.severity is Severity.ERROR:
            raise DamageError.of(fault, file or report.path)


def split_tasks(tasks: Sequence[Work], max_bytes: int) -> list[Work]:
    """The same rows from tasks of at most `max_bytes` each (or of one frame, where that is larger)."""
    return [part for task in tasks for part in task.split(max_bytes)]


def known_options(options: Mapping[str, Any], declared: Sequence[Option]) -> dict[str, Any]:
    names = {fold(option.name) for option in declared}
    return {name: value for name, value in options.items() if fold(name) in names}


def codec_options(codec: Codec, given: Mapping[str, Any]) -> Options:
    """A codec's options from all that were given; those of others are left out."""
    return Options(codec.options, known_options(given, codec.options))
