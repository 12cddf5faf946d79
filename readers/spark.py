"""The Spark source: planned ranges of files as partitions, decoded to Arrow batches with exactly Spark's schema (`spark_schema`)."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from logwright.codec import plural
from logwright.codec.fault import Fault, Severity, UsageError
from logwright.codec.table import Column, Table
from logwright.readers import filter as filters
from logwright.readers.plan import Reading
from logwright.readers.process import keep_freed_memory
from logwright.readers.record import HeardReport, Recorder, Write, described
from logwright.readers.report import Report
from logwright.readers.spark_request import Request
from logwright.readers.spark_schema import METADATA, RECORD, castable, check_corrupt_name, fit, outer, spelled
from logwright.readers.stream import CORRUPT, CORRUPT_NAMES, Mode, ReadOptions
from logwright.readers.task import Work, note, run, split_tasks
from logwright.readers.traceback import short_traceback

BATCH_ROWS = 100_000
"""Measured: a source is about twice as fast with these batches as with Spark's default of 10,000 rows."""
_log = logging.getLogger("logwright")
"""By default this is standard error: of the driver for faults found by planning, of an executor for faults met by a task. With
`spark.sql.pyspark.worker.logging.enabled` Spark collects it."""


@dataclass
class Stretch(InputPartition):
    """The part of one Spark task: adjacent ranges of at most `maxPartitionBytes` together."""

    number: int
    tasks: tuple[Work, ...]
    faults: tuple[tuple[str, Fault], ...]
    """Faults that planning found in these files. The task that reads the first range of a file writes them to `badRecordsPath`."""

    def __init__(self, number: int, tasks: Sequence[Work], faults: Sequence[tuple[str, Fault]] = ()) -> None:
        super().__init__(None)
        self.number, self.tasks, self.faults = number, tuple(tasks), tuple(faults)


class SparkSource(DataSourceReader):
    """Reads the columns of `schema`, a selection in any order.

    As in Spark's own sources, the column for damaged records is filled in mode PERMISSIVE only. Without that column the row of a damaged
    region is all null.
    """

    def __init__(
        self,
        request: Request,
        schema: StructType,
        recorder: Recorder | None = None,
        plan: Reading | None = None,
    ) -> None:
        self._request, self._schema, self._recorder = request, schema, recorder
        plan = request.reading() if plan is None else plan
        self._mode = request.mode
        self._tasks: tuple[Work, ...] = plan.tasks if plan is not None else ()
        self._ready: tuple[pa.RecordBatch, ...] = plan.ready if plan is not None else ()
        self._faults: tuple[tuple[str, Fault], ...] = plan.faults if plan is not None else ()
        self._filter: filters.Filter | None = None
        self._columns: dict[str, str] = {}
        """The table's column for each column of Spark."""
        self._table: Table | None = plan.table if plan is not None else None
        if plan is not None:
            report = Report(self._request.paths)
            note(plan.faults, report, self._mode, several=plan.several)
            _tell(report, {file.file: file.path for task in plan.tasks for file in task.files})
            for sentence in plan.notes:
                _log.warning("logwright: %s", sentence)
            for field in to_arrow_schema(schema, timezone="UTC"):
                self._columns[field.name] = self._inner(field, plan.table)

    def _inner(self, requested: pa.Field, table: Table) -> str:
        """Return the table's column for a column of the schema."""
        permissive = self._mode is Mode.PERMISSIVE and not self._ready
        if permissive:
            check_corrupt_name(self._request, table)
        known = {outer(field.name, self._request): (field.name, field) for field in CORRUPT}
        known |= {
            column.name: (column.name, column.field())
            for column in map(table.__getitem__, table.names(detail=True))
        }
        if self._request.words["includeMetadata"]:
            known |= {
                field.name: (inner, field) for field, inner in zip(METADATA, ("", "position"), strict=True)
            }
        name = requested.name
        if name not in known:
            lower = {column_name.lower(): column_name for column_name in known}
            near = difflib.get_close_matches(name.lower(), lower, n=1)
            hint = f"Did you mean {lower[near[0]]!r}?" if near else f"Valid values: {', '.join(known)}"
            raise UsageError(f"unknown column {name!r}", advice=hint)
        inner: str = known[name][0]
        field = known[name][1]
        if not (
            castable(field.type, requested.type) or (inner == RECORD and pa.types.is_string(requested.type))
        ):
            raise UsageError(
                f"column {name!r} is {spelled(field.type)}, but the schema says {spelled(requested.type)}",
                advice=f"Use {spelled(field.type)} in the schema, and cast it with Spark",
            )
        empty = permissive and field is not METADATA[0]
        if not requested.nullable and (field.nullable or empty):
            why = "" if field.nullable else " for damaged regions"
            raise UsageError(
                f"column {name!r} can be null{why}, but the schema says NOT NULL", advice="Remove NOT NULL"
            )
        return inner

    @short_traceback
    def partitions(self) -> Sequence[InputPartition]:
        return self.shared(self._tasks)

    def shared(self, tasks: Sequence[Work]) -> Sequence[Stretch]:
        """Divide tasks into partitions."""
        limit = self._request.words["maxPartitionBytes"]
        least, most = self._request.words["minPartitions"], self._request.words["maxRecordsPerPartition"]
        if least is not None:
            limit = min(limit, max(1, sum(task.length or 0 for task in tasks) // least))
        groups: list[list[Work]] = [[]]
        size = 0
        for task in split_tasks(tasks, limit, self._mode):
            length = task.length or 0
            if groups[-1] and (size + length > limit or most is not None):
                groups.append([])
                size = 0
            groups[-1].append(task)
            size += length
        faults = self._faults if self._recorder is not None else ()
        first: dict[str, int] = {}
        for number, group in enumerate(groups):
            for file in (file.file for task in group for file in task.files):
                first.setdefault(file, number)
        return [
            Stretch(number, group, [fault for fault in faults if first.get(fault[0], 0) == number])
            for number, group in enumerate(groups)
        ]

    @short_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        keep_freed_memory()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        corrupt = set(CORRUPT_NAMES)
        table = self._table
        if table is None:
            return
        needed = [
            n
            for n in dict.fromkeys(self._columns.values())
            if n not in corrupt and n in table.names(detail=True)
        ]
        if self._ready:
            yield from (self._fit(batch, "", schema) for batch in self._ready)
            return
        report = HeardReport(self._request.paths)
        shown = {file.file: file.path for task in partition.tasks for file in task.files}
        with contextlib.ExitStack() as stack:
            if self._mode is not Mode.FAILFAST:
                stack.callback(_tell, report, shown)
            if self._recorder is not None:
                self._write_down(
                    partition, report, stack.enter_context(self._recorder.task(partition.number))
                )
            for task in partition.tasks:
                batches = run([task], needed, report, ReadOptions(self._mode, self._filter))
                for batch in _larger(batches):
                    yield self._fit(batch, task.path, schema)

    def _write_down(self, partition: Stretch, report: HeardReport, write: Write) -> None:
        """Write the faults that planning found, then each fault as it is met."""
        tasks = {file.file: file for task in partition.tasks for file in task.files}

        def hear(file: str, fault: Fault) -> None:
            task = tasks.get(file)
            if fault.severity is not Severity.INFO:
                path = file or ", ".join(self._request.paths) if task is None else task.path
                write(described(path, fault, None if task is None else task.open))

        for file, fault in partition.faults:
            hear(file, fault)
        report.hear = hear

    def _fit(self, batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
        """Convert to Spark's schema."""
        arrays = []
        for target in schema:
            inner = self._columns[target.name]
            if not inner:
                arrays.append(pa.repeat(pa.scalar(path, target.type), batch.num_rows))
            elif inner not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, target.type))
            else:
                arrays.append(fit(batch.column(inner), target, inner, path))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class PushingSource(SparkSource):
    """A source that receives Spark's filters. It is a separate class, since Spark fails on a reader with `pushFilters` unless pushdown is
    enabled."""

    def pushFilters(self, filters_: list[Filter]) -> Iterator[Filter]:
        signs = {
            EqualTo: "==",
            GreaterThan: ">",
            GreaterThanOrEqual: ">=",
            LessThan: "<",
            LessThanOrEqual: "<=",
            In: "in",
        }
        terms = []
        for pushed in filters_:
            sign = signs.get(type(pushed))
            attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
            column = self._prunable(attribute[0]) if len(attribute) == 1 else None
            if sign is None or column is None:
                yield pushed
                continue
            value: Any = getattr(pushed, "value", None)
            terms.append((column.name, sign, list(value) if sign == "in" else value))
            yield pushed  # Spark filters again: skipping frames does not filter rows
        if terms and self._table is not None:
            self._filter = filters.understand(terms, self._table)

    def _prunable(self, name: str) -> Column | None:
        inner = self._columns.get(name)
        if not inner or self._table is None or inner not in self._table.names(detail=True):
            return None
        column = self._table[inner]
        return column if column.prunes else None


def _tell(report: Report, shown: Mapping[str, str]) -> None:
    """Log the faults, one line per file with its path."""
    for file in report.files:
        faults = [fault for fault in file.faults if fault.severity is not Severity.INFO]
        if not faults:
            continue
        first = min(faults, key=lambda fault: (fault.severity is not Severity.ERROR, fault.offset))
        lost = "" if first.rows_lost is None else f", {plural.count(first.rows_lost, 'row')} lost"
        more = "" if file.faults_total == 1 else f"; {file.faults_total} faults in all"
        _log.warning(
            "logwright: %s: at byte %d, %d bytes: %s: %s%s%s",
            shown.get(file.path, file.path or report.path), first.offset, first.length, first.kind, first.detail, lost, more,
        )  # fmt: skip


def _larger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine batches into batches of about `BATCH_ROWS`."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows and rows + batch.num_rows > BATCH_ROWS:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows = [], 0
        while batch.num_rows > BATCH_ROWS:
            yield batch.slice(0, BATCH_ROWS)
            batch = batch.slice(BATCH_ROWS)
        held.append(batch)
        rows += batch.num_rows
    if rows:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)
