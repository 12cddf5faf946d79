"""Reading: `read` and `scan`, and the stream of record batches with its report that they give."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.fault import DamageWarning, Severity, UsageError
from logwright.codec.option import flag, number, word
from logwright.readers import plan, resolve, task, usage
from logwright.readers import verify as _verify
from logwright.readers.filter import Given, understand
from logwright.readers.report import Report
from logwright.readers.report_data import MAX_FAULTS
from logwright.readers.resolve import Path
from logwright.readers.stable_open import stable_open
from logwright.readers.stream import Mode, output_schema

Paths = Path | Sequence[Path]


def read(
    path: Paths,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    as_system: str | None = None,
    clean: bool | None = None,
    jobs: int | str = 1,
    **options: Any,
) -> pa.Table:
    """A file, a directory, or several, as a table. Arguments as for `scan`.

    Warns (`DamageWarning`) when something was met that is worth knowing and did not raise.
    """
    found = scan(
        path,
        codec,
        view=view,
        columns=columns,
        filter=filter,
        limit=limit,
        mode=mode,
        as_system=as_system,
        clean=clean,
        jobs=jobs,
        **options,
    )
    table = found.to_table()
    if found.report.worst in (Severity.ERROR, Severity.WARNING) or found.report.missing:
        warnings.warn(found.report.text(), DamageWarning, stacklevel=2)
    return table


def scan(
    path: Paths,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    as_system: str | None = None,
    clean: bool | None = None,
    jobs: int | str = 1,
    max_faults: int = MAX_FAULTS,
    **options: Any,
) -> Scan:
    """A file, a directory, or several, as a stream of record batches that pandas, Polars and DuckDB take as it is.

    `path`: a file, a directory, a list, a glob, a URI of a file system that `pyarrow.fs` knows, "-" for standard input, or the
    system's own configuration file, for the directories that it names. `codec`: the format's name, found out when None. `view`:
    what of it; `codecs(name)` lists them. `columns`: None for the core ones, "*" for all, names, or text with commas. `filter`:
    `[("offset", ">=", 5), ("key", "==", b"x")]`, a list of such lists of which one must hold, text ("offset >= 5 and key contains x"), or
    a pyarrow expression. `limit`: so many rows at most. `mode`: FAILFAST, PERMISSIVE, DROPMALFORMED, or AS_SYSTEM for exactly what
    the real system would serve of a directory: of version `as_system` (None: the newest known), started after a clean stop or an
    unclean one (`clean`; None: its own marker says). `jobs`: so many processes share the reading; the rows and their order are the
    same. With one, threads of this process read ahead, as many as pyarrow takes (`pyarrow.set_cpu_count`). Further options are the
    codec's and the layout's own.

    Raises `LogwrightError`: `NotFoundError`, `AccessError`, `UsageError` at once, `DamageError` on the way, or at once where
    the system would not open what it is asked about.
    """
    return Scan(
        path,
        codec,
        view,
        columns,
        filter,
        limit,
        mode,
        max_faults,
        options,
        as_system,
        clean,
        number("jobs", jobs, 1),
    )


class Scan:
    """A stream of record batches, and the report of what was met. Each iteration reads anew; `.report` is of the last one."""

    def __init__(
        self,
        path: Paths,
        codec: str | None,
        view: str | None,
        columns: Sequence[str] | str | None,
        filter: Given,
        limit: int | None,
        mode: str,
        max_faults: int,
        options: dict[str, Any],
        as_system: str | None = None,
        clean: bool | None = None,
        jobs: int = 1,
    ) -> None:
        self._mode, self._jobs = Mode.of(mode), jobs
        if self._mode is not Mode.AS_SYSTEM and (as_system is not None or clean is not None):
            raise UsageError(
                "as_system and clean say which system is asked",
                advice="They go with mode=AS_SYSTEM, and with verify",
            )
        started = None
        if self._mode is Mode.AS_SYSTEM:
            started = plan.AsSystem(None if as_system is None else str(as_system), flag("clean", clean))
        self._limit = None if limit is None else number("limit", limit)
        self._resolve = functools.partial(resolve.resolve, path, codec, options, gathered=True)
        self._view, self._started, self._passed = word("view", view), started, list[str]()
        self._targets = targets = self._resolve(passed=self._passed)
        usage.check_jobs(targets, jobs)
        self._reading = plan.reading(targets, self._view, started)
        table = self._reading.table
        self._columns = table.select(columns)
        self._filter = understand(filter, table)
        self._path, self._max_faults = shown(path), max_faults
        self._codec = codec_of(targets)
        # What is known without reading a file holds no damaged rows.
        mode_of_rows = Mode.FAILFAST if self._reading.ready else self._mode
        self.schema: pa.Schema = output_schema(table, self._columns, mode_of_rows)
        self.report: Report = self._new_report()
        # The columns whose numbers people read so.
        self.hexadecimal = frozenset(name for name in self._columns if table[name].hexadecimal)

    def _new_report(self) -> Report:
        report = Report(self._path, self._codec, live=self._reading.live, max_faults=self._max_faults)
        report.notes += [*self._passed, *self._reading.notes]
        if len(self._reading.systems) == 1:
            report.system = self._reading.systems[0]
        report.checked = False
        if len(self._targets) == 1:
            _verify.introduce(report, self._targets[0])
        return report

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        report = self.report = self._new_report()
        with stable_open(lambda: self._resolve(passed=[]), self._view, self._started, self._reading) as found:
            task.note(found.faults, report, self._mode)
            yield from plan.ready(found, self._columns, self._filter, self._limit)
            yield from task.run_shared(
                found.tasks,
                self._columns,
                report,
                self._jobs,
                mode=self._mode,
                filter=self._filter,
                limit=self._limit,
            )

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def size(self) -> int | None:
        """Bytes that are to be read, which `report.bytes` counts up to; None where that is not known."""
        sizes = [task.length for task in self._reading.tasks]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def __repr__(self) -> str:
        return f"<Scan {self._path}: {', '.join(self.schema.names)}>"


def shown(path: Paths) -> str:
    """A path, or several, as a report has it."""
    return (
        os.fspath(path) if isinstance(path, str | os.PathLike) else ", ".join(os.fspath(one) for one in path)
    )


def codec_of(targets: Sequence[resolve.Target]) -> str | None:
    """What all of them are; None where they are not alike."""
    names = {resolve.kind(target) for target in targets}
    return names.pop() if len(names) == 1 else None
