"""`read` and `scan`: a table, or a stream of record batches with a report."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.fault import DamageWarning, Severity, UsageError
from logwright.codec.option import Verb, flag, number, word
from logwright.readers import plan, resolve, task, usage
from logwright.readers import verify as _verify
from logwright.readers.corrected import note_corrections
from logwright.readers.corrections import corrected, corrections_in, find_corrections
from logwright.readers.filter import Conditions, understand
from logwright.readers.paths import Path
from logwright.readers.report import Report
from logwright.readers.report_data import MAX_FAULTS
from logwright.readers.stable_open import stable_open
from logwright.readers.startup import check_start
from logwright.readers.stream import Mode, ReadOptions, output_schema, stored_columns
from logwright.readers.target import Skipped, Target, kind
from logwright.readers.traceback import short_traceback
from logwright.readers.usage import suggest_parameters

Paths = Path | Sequence[Path]


@short_traceback
def read(
    path: Paths,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Conditions = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    as_system: str | None = None,
    clean: bool | None = None,
    correct: bool = False,
    jobs: int | str = 1,
    **options: Any,
) -> pa.Table:
    """Read a file, a directory or several into a table.

        lw.read("/data/kafka-logs/orders-0", columns=["offset", "key"], filter="offset >= 5 and key == x", limit=10)

    The arguments are those of `scan`, which describes them and returns a stream for data larger than memory. Warns (`DamageWarning`) about
    faults that did not raise.
    """
    stream = scan(
        path,
        codec,
        view=view,
        columns=columns,
        filter=filter,
        limit=limit,
        mode=mode,
        as_system=as_system,
        clean=clean,
        correct=correct,
        jobs=jobs,
        **options,
    )
    table = stream.to_table()
    report = stream.report
    if report.worst in (Severity.ERROR, Severity.WARNING) or report.missing or report.corrected:
        warnings.warn(stream.report.text(), DamageWarning, stacklevel=3)  # past `short_traceback`
    return table


class Scan:
    """A file, a directory or several as a stream of record batches, which pandas, Polars and DuckDB accept as it is, and a report.

    Each iteration reads the files again; `.report` describes the last one.

    `path`: a file, a directory, a list, a glob, a URI of a file system that `pyarrow.fs` knows, "-" for standard input, or a system's
    configuration file, which stands for the directories that it names. `codec`: name of the format; None detects it. `view`: what to read;
    `codecs(name)` lists the views. `columns`: None for the core columns, "*" for all, a list of names, or text with commas. `filter`:
    `[("offset", ">=", 5), ("key", "==", b"x")]`, a list of such lists (any of them must match), text ("offset >= 5 and key contains x"), or
    a pyarrow expression. `limit`: maximum number of rows. `mode`: FAILFAST, PERMISSIVE, DROPMALFORMED, or AS_SYSTEM for exactly the rows
    that the real system would serve: version `as_system` (None: the newest known), started after a clean or unclean stop (`clean`; None: as
    the system's own marker says). With `correct` the files are read once more beforehand, and single flipped bits are corrected where
    checksums and other evidence prove them, each with a warning. `jobs`: number of processes; the rows and their order do not depend on it.
    With one, threads of this process read ahead, as many as pyarrow uses (`pyarrow.set_cpu_count`). Further options are those of the
    codec and of the layout.

    Raises `LogwrightError`. `NotFoundError`, `AccessError` and `UsageError` are raised by this call; `DamageError` while iterating, or by
    this call if the real system would not open the directory.
    """

    @suggest_parameters
    def __init__(
        self,
        path: Paths,
        codec: str | None = None,
        *,
        view: str | None = None,
        columns: Sequence[str] | str | None = None,
        filter: Conditions = None,
        limit: int | None = None,
        mode: str = "FAILFAST",
        as_system: str | None = None,
        clean: bool | None = None,
        correct: bool = False,
        jobs: int | str = 1,
        max_faults: int = MAX_FAULTS,
        **options: Any,
    ) -> None:
        self._jobs, corrects = number("jobs", jobs, 1), flag("correct", correct)
        self._mode = Mode.of(mode)
        if self._mode is not Mode.AS_SYSTEM and (as_system is not None or clean is not None):
            raise UsageError(
                "as_system and clean need mode AS_SYSTEM",
                advice="Add mode='AS_SYSTEM', or use `verify`",
            )
        started = None
        if self._mode is Mode.AS_SYSTEM:
            started = plan.AsSystem(None if as_system is None else str(as_system), flag("clean", clean))
        self._limit = None if limit is None else number("limit", limit)
        self._view, self._started, self._skipped = word("view", view), started, Skipped()
        self._resolve = functools.partial(
            resolve.resolve, path, codec, options, stores_only=True, served=True, view=self._view,
            verb=Verb.READ if started is None else Verb.AS_SYSTEM,
        )  # fmt: skip
        targets = self._resolve(skipped=self._skipped)
        if started is not None:
            check_start(path, codec, version=started.version)
        if corrects:
            self._resolve = functools.partial(corrected, self._resolve, find_corrections(targets))
            targets = self._resolve(skipped=Skipped())
        self._targets = targets
        usage.check_jobs(targets, self._jobs)
        self._reading = plan.reading(targets, self._view, started)
        table = self._reading.table
        self._columns = table.select(stored_columns(columns, self._mode))
        self._filter = understand(filter, table)
        self._paths, self._max_faults = paths_of(path), number("max_faults", max_faults)
        self._codec = codec_of(targets)
        # Rows that are known without reading a file include no damaged ones.
        mode_of_rows = Mode.FAILFAST if self._reading.ready else self._mode
        self.schema: pa.Schema = output_schema(table, self._columns, mode_of_rows)
        self.report: Report = self._new_report()
        # Columns whose numbers are usually printed in hexadecimal.
        self.hexadecimal = frozenset(name for name in self._columns if table[name].hexadecimal)

    def _new_report(self) -> Report:
        report = Report(self._paths, self._codec, live=self._reading.live, max_faults=self._max_faults)
        report.notes += [*self._skipped.sentences, *self._reading.notes]
        if len(self._reading.systems) == 1:
            report.system = self._reading.systems[0]
        if corrections := corrections_in(self._targets):
            note_corrections(report, corrections)
        report.checked = False
        if len(self._targets) == 1:
            _verify.introduce(report, self._targets[0])
        return report

    @short_traceback
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        report = self.report = self._new_report()
        with stable_open(
            lambda: self._resolve(skipped=Skipped()), self._view, self._started, self._reading
        ) as current:
            task.note(current.faults, report, self._mode, several=current.several)
            yield from plan.ready(current, self._columns, self._filter, self._limit)
            options = ReadOptions(self._mode, self._filter, self._limit)
            yield from task.run(current.tasks, self._columns, report, options, jobs=self._jobs)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def size(self) -> int | None:
        """Number of bytes to read, for `report.bytes` to count up to; None if unknown."""
        sizes = [task.length for task in self._reading.tasks]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def __repr__(self) -> str:
        return f"<Scan {', '.join(self._paths)}: {', '.join(self.schema.names)}>"


scan = Scan
"""`logwright.scan(...)`."""


def paths_of(path: Paths) -> list[str]:
    """Return a path, or several, as a list."""
    return [os.fspath(part) for part in ([path] if isinstance(path, str | os.PathLike) else path)]


def codec_of(targets: Sequence[Target]) -> str | None:
    """Return the codec or layout of the targets; None if they differ."""
    names = {kind(target) for target in targets}
    return names.pop() if len(names) == 1 else None
