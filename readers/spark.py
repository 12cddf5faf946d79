"""The Spark source: planned stretches of files as partitions, decoded to Arrow batches of exactly Spark's schema (`spark_schema`)."""

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

from logwright.codec.fault import Fault, Severity, UsageError
from logwright.codec.table import Column, Table
from logwright.readers import filter as filters
from logwright.readers.plan import Reading
from logwright.readers.process import keep_freed_memory
from logwright.readers.record import HeardReport, Recorder, Write, described
from logwright.readers.report import Report
from logwright.readers.spark_request import Request
from logwright.readers.spark_schema import METADATA, RECORD, castable, check_corrupt_name, fit, outer, spelled
from logwright.readers.stream import CORRUPT, Mode
from logwright.readers.task import Work, note, run, split_tasks
from logwright.readers.traceback import short_traceback

BATCH_ROWS = 100_000
"""Measured: a source is about twice as fast with such batches as with Spark's usual 10,000 rows."""
_log = logging.getLogger("logwright")
"""Where nobody set up logging this is standard error: of the driver for what planning finds, of an executor for what a task
meets. With `spark.sql.pyspark.worker.logging.enabled` Spark collects it."""


@dataclass
class Stretch(InputPartition):
    """What one Spark task reads: neighbours of at most `maxPartitionBytes` together."""

    number: int
    tasks: tuple[Work, ...]
    faults: tuple[tuple[str, Fault], ...]
    """What planning found in these files, for `badRecordsPath`: they are written down by the task that reads the first of it."""

    def __init__(self, number: int, tasks: Sequence[Work], faults: Sequence[tuple[str, Fault]] = ()) -> None:
        super().__init__(None)
        self.number, self.tasks, self.faults = number, tuple(tasks), tuple(faults)


class SparkSource(DataSourceReader):
    """Reads the columns of `schema`, which may be fewer than there are, in any order.

    As in Spark's own sources a column for damaged records is filled in mode PERMISSIVE only, and null in others; where the
    schema has none, the row of a damaged region is all null.
    """

    def __init__(
        self,
        request: Request,
        schema: StructType,
        recorder: Recorder | None = None,
        found: Reading | None = None,
    ) -> None:
        self._request, self._schema, self._recorder = request, schema, recorder
        found = request.reading() if found is None else found
        self._mode = request.mode
        self._tasks: tuple[Work, ...] = found.tasks if found is not None else ()
        self._ready: tuple[pa.RecordBatch, ...] = found.ready if found is not None else ()
        self._faults: tuple[tuple[str, Fault], ...] = found.faults if found is not None else ()
        self._filter: filters.Filter | None = None
        self._columns: dict[str, str] = {}
        """The column of the table for each column of Spark."""
        self._table: Table | None = found.table if found is not None else None
        if found is not None:
            report = Report(self._shown())
            note(found.faults, report, self._mode)
            _tell(report, {one.file: one.path for task in found.tasks for one in task.files})
            for said in found.notes:
                _log.warning("logwright: %s", said)
            for field in to_arrow_schema(schema, timezone="UTC"):
                self._columns[field.name] = self._inner(field, found.table)

    def _shown(self) -> str:
        return ", ".join(self._request.paths)

    def _inner(self, wanted: pa.Field, table: Table) -> str:
        """The column that a column of the schema stands for."""
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
        name = wanted.name
        if name not in known:
            lower = {one.lower(): one for one in known}
            near = difflib.get_close_matches(name.lower(), lower, n=1)
            hint = f"Did you mean {lower[near[0]]!r}?" if near else f"There are: {', '.join(known)}"
            raise UsageError(f"no column {name!r}", advice=hint)
        inner: str = known[name][0]
        field = known[name][1]
        if not (castable(field.type, wanted.type) or (inner == RECORD and pa.types.is_string(wanted.type))):
            raise UsageError(
                f"column {name!r} is {spelled(field.type)}, the schema says {spelled(wanted.type)}",
                advice=f"Say {spelled(field.type)}, and cast it with Spark",
            )
        empty = permissive and field is not METADATA[0]
        if not wanted.nullable and (field.nullable or empty):
            why = "" if field.nullable else " where a region is damaged"
            raise UsageError(
                f"column {name!r} can be null{why}, the schema says NOT NULL", advice="Leave NOT NULL away"
            )
        return inner

    @short_traceback
    def partitions(self) -> Sequence[InputPartition]:
        return self.shared(self._tasks)

    def shared(self, tasks: Sequence[Work]) -> Sequence[Stretch]:
        """What is to be read, shared out."""
        limit = self._request.words["maxPartitionBytes"]
        least, most = self._request.words["minPartitions"], self._request.words["maxRecordsPerPartition"]
        if least is not None:
            limit = min(limit, max(1, sum(task.length or 0 for task in tasks) // least))
        groups: list[list[Work]] = [[]]
        size = 0
        for task in split_tasks(tasks, limit):
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
            Stretch(number, group, [one for one in faults if first.get(one[0], 0) == number])
            for number, group in enumerate(groups)
        ]

    @short_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        keep_freed_memory()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        corrupt = {field.name for field in CORRUPT}
        table = self._table
        if table is None:
            return
        wanted = [
            n
            for n in dict.fromkeys(self._columns.values())
            if n not in corrupt and n in table.names(detail=True)
        ]
        if self._ready:
            yield from (self._fit(batch, "", schema) for batch in self._ready)
            return
        report = HeardReport(self._shown())
        shown = {one.file: one.path for task in partition.tasks for one in task.files}
        with contextlib.ExitStack() as stack:
            if self._mode is not Mode.FAILFAST:
                stack.callback(_tell, report, shown)
            if self._recorder is not None:
                self._write_down(
                    partition, report, stack.enter_context(self._recorder.task(partition.number))
                )
            for task in partition.tasks:
                batches = run([task], wanted, report, mode=self._mode, filter=self._filter)
                for batch in _larger(batches):
                    yield self._fit(batch, task.path, schema)

    def _write_down(self, partition: Stretch, report: HeardReport, write: Write) -> None:
        """What planning found is written down now, the rest as it is met."""
        tasks = {one.file: one for task in partition.tasks for one in task.files}

        def hear(file: str, fault: Fault) -> None:
            task = tasks.get(file)
            if fault.severity is not Severity.INFO:
                path = file or self._shown() if task is None else task.path
                write(described(path, fault, None if task is None else task.open))

        for file, fault in partition.faults:
            hear(file, fault)
        report.hear = hear

    def _fit(self, batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
        """The same rows in Spark's form."""
        arrays = []
        for wanted in schema:
            inner = self._columns[wanted.name]
            if not inner:
                arrays.append(pa.repeat(pa.scalar(path, wanted.type), batch.num_rows))
            elif inner not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, wanted.type))
            else:
                arrays.append(fit(batch.column(inner), wanted, inner, path))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class PushingSource(SparkSource):
    """The same where Spark hands over its filters. Apart, since a reader with `pushFilters` fails unless Spark is told to."""

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
        for one in filters_:
            sign = signs.get(type(one))
            attribute: tuple[str, ...] = getattr(one, "attribute", ())
            column = self._prunable(attribute[0]) if len(attribute) == 1 else None
            if sign is None or column is None:
                yield one
                continue
            value: Any = getattr(one, "value", None)
            terms.append((column.name, sign, list(value) if sign == "in" else value))
            yield one  # Spark checks once more: frames are skipped, rows are not promised
        if terms and self._table is not None:
            self._filter = filters.understand(terms, self._table)

    def _prunable(self, name: str) -> Column | None:
        inner = self._columns.get(name)
        if not inner or self._table is None or inner not in self._table.names(detail=True):
            return None
        column = self._table[inner]
        return column if column.prunes else None


def _tell(report: Report, shown: Mapping[str, str]) -> None:
    """Say what was met, a line for each file by its path, where nobody looks at reports."""
    for file in report.files:
        faults = [fault for fault in file.faults if fault.severity is not Severity.INFO]
        if not faults:
            continue
        first = min(faults, key=lambda fault: (fault.severity is not Severity.ERROR, fault.offset))
        lost = "" if first.rows_lost is None else f", {first.rows_lost} rows lost"
        more = "" if file.faults_total == 1 else f"; it has {file.faults_total} faults"
        _log.warning(
            "logwright: %s: at byte %d, %d bytes: %s: %s%s%s",
            shown.get(file.path, file.path or report.path), first.offset, first.length, first.kind, first.detail, lost, more,
        )  # fmt: skip


def _larger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of about `BATCH_ROWS`."""
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
