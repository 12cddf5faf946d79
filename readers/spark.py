"""The Spark source: planned stretches of files as partitions, decoded to Arrow batches of exactly Spark's schema.

Spark checks the type, nullability and order of what comes, and knows times in microseconds only: so a batch has two forms of
one logical schema, Arrow's own and this one.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.option import Option, Options, fold, parse_bool, parse_int, parse_text
from logwright.codec.table import Column, Table
from logwright.readers import filter as filters
from logwright.readers.plan import Reading, reading
from logwright.readers.report import Report
from logwright.readers.resolve import expand, resolve
from logwright.readers.source import is_remote, local_path
from logwright.readers.stream import CORRUPT, Mode
from logwright.readers.task import Task, note, run, split_tasks

BATCH_ROWS = 100_000
"""Measured: a source is about twice as fast with such batches as with Spark's usual 10,000 rows."""
_MAX_MICROSECONDS = (1 << 63) // 1000

OPTIONS = (
    Option("codec", None, "What lies at the path; recognised when left away.", parse_text),
    Option("view", None, "What to see of it.", parse_text),
    Option("mode", "FAILFAST", "FAILFAST, PERMISSIVE or DROPMALFORMED.", parse_text),
    Option("columns", None, 'Comma-separated; "*" is all, detail columns too.', parse_text),
    Option("columnNameOfCorruptRecord", "_corrupt_record", "Its name in mode PERMISSIVE.", parse_text),
    Option("includeMetadata", False, "Add _path and _position (the byte of the frame).", parse_bool),
    Option("maxPartitionBytes", 128 << 20, "Bytes of files that one task reads.", parse_int, low=1),
    Option("pathGlobFilter", None, "Only files and directories with such names.", parse_text),
    Option(
        "recursiveFileLookup", False, "Take the path as a folder of directories at any depth.", parse_bool
    ),
    Option("ignoreMissingFiles", False, "A path that does not exist has no rows.", parse_bool),
    Option(
        "pushFilters",
        False,
        "Skip frames by Spark's filters; needs spark.sql.python.filterPushdown.enabled.",
        parse_bool,
    ),
)
"""What the source takes besides the options of the codec."""


@dataclass(frozen=True)
class Request:
    """What `spark.read` was given, understood."""

    words: Options
    paths: tuple[str, ...]
    options: Mapping[str, str]
    """The rest: for the codec or layout."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Request:
        known = {fold(option.name) for option in OPTIONS}
        words = {name: value for name, value in given.items() if fold(name) in known}
        rest = {name: value for name, value in given.items() if fold(name) not in known | {"path", "paths"}}
        return cls(Options(OPTIONS, words), paths_of(given), rest)

    def reading(self) -> Reading | None:
        """What is to be read; None when nothing is there and that is allowed."""
        paths = [found for path in self.paths for found in self._below(path)]
        if self.words["ignoreMissingFiles"]:
            paths = [path for path in paths if is_remote(path) or os.path.exists(local_path(path))]
        if pattern := self.words["pathGlobFilter"]:
            paths = [
                path for path in paths if fnmatch.fnmatchcase(os.path.basename(path.rstrip("/")), pattern)
            ]
        if not paths:
            if self.words["ignoreMissingFiles"]:
                return None
            raise NotFoundError(
                "nothing to read here", path=", ".join(self.paths), advice="Check pathGlobFilter"
            )
        return reading(resolve(paths, self.words["codec"], self.options), self.words["view"])

    def _below(self, path: str) -> Iterator[str]:
        try:
            found = expand(path)
        except NotFoundError:
            if self.words["ignoreMissingFiles"]:
                return
            raise
        for one in found:
            if self.words["recursiveFileLookup"] and not is_remote(one):
                inner = [
                    os.path.join(base, name) for base, names, _ in os.walk(local_path(one)) for name in names
                ]
                yield from sorted(folder for folder in [one, *inner] if _recognised(folder))
            else:
                yield one


def _recognised(folder: str) -> bool:
    from logwright.codec import registry
    from logwright.readers.listing import open_listing

    return registry.detect_layout(open_listing(folder)) is not None


def paths_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """`load(path)` comes as `path`, `load([a, b])` as JSON under `paths`."""
    found = [given["path"]] if given.get("path") else []
    if given.get("paths"):
        found += json.loads(given["paths"])
    if not found:
        raise UsageError("no path", advice="Name one: .load(path)")
    return tuple(path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path
                 for path in found)  # fmt: skip


def schema_of(request: Request) -> StructType:
    """The schema of what `load` gives when the user gives none."""
    found = request.reading()
    if found is None:
        raise UsageError(
            "nothing is there, so the columns are not known", advice="Give a schema: .schema(...)"
        )
    fields = [
        column.field()
        for column in map(found.table.__getitem__, found.table.select(request.words["columns"]))
    ]
    if Mode.of(request.words["mode"]) is Mode.PERMISSIVE:
        fields = [field.with_nullable(True) for field in fields]
        fields += [field.with_name(_outer(field.name, request)) for field in CORRUPT]
    if request.words["includeMetadata"]:
        fields += [pa.field("_path", pa.string(), False), pa.field("_position", pa.int64())]
    times = [
        pa.field(f.name, pa.timestamp("us", "UTC"), f.nullable) if pa.types.is_timestamp(f.type) else f
        for f in fields
    ]
    schema: StructType = from_arrow_schema(pa.schema(times))
    return schema


def _outer(name: str, request: Request) -> str:
    return request.words["columnNameOfCorruptRecord"] if name == "_corrupt_record" else name


@dataclass
class Stretch(InputPartition):
    """What one Spark task reads: neighbours of at most `maxPartitionBytes` together."""

    tasks: tuple[Task, ...]

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(None)
        self.tasks = tuple(tasks)


class SparkSource(DataSourceReader):
    """Reads the columns of `schema`, which may be fewer than there are, in any order."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._request, self._schema = request, schema
        found = request.reading()
        self._mode = Mode.of(request.words["mode"])
        self._tasks: tuple[Task, ...] = found.tasks if found is not None else ()
        self._ready: tuple[pa.RecordBatch, ...] = found.ready if found is not None else ()
        self._filter: filters.Filter | None = None
        self._columns: dict[str, str] = {}
        """The column of the table for each column of Spark."""
        self._table: Table | None = found.table if found is not None else None
        if found is not None:
            note(found.faults, Report(request.paths[0]), self._mode)
            self._columns = {field.name: self._inner(field.name, found.table) for field in schema}

    def _inner(self, name: str, table: Table) -> str:
        permissive = self._mode is Mode.PERMISSIVE
        corrupt = {_outer(field.name, self._request): field.name for field in CORRUPT} if permissive else {}
        extra = {"_path": "", "_position": "position"} if self._request.words["includeMetadata"] else {}
        known: dict[str, str] = {**{n: n for n in table.names(detail=True)}, **corrupt, **extra}
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"
            raise UsageError(f"no column {name!r}", advice=hint)
        return known[name]

    def partitions(self) -> Sequence[InputPartition]:
        limit = self._request.words["maxPartitionBytes"]
        out: list[Stretch] = []
        held: list[Task] = []
        size = 0
        for task in split_tasks(self._tasks, limit):
            length = (task.stop if task.stop is not None else task.size or 0) - task.start
            if held and size + length > limit:
                out.append(Stretch(held))
                held, size = [], 0
            held.append(task)
            size += length
        if held or not out:
            out.append(Stretch(held))
        return out

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        corrupt = {field.name for field in CORRUPT}
        table = self._table
        if table is None:
            return
        wanted = [
            n
            for n in dict.fromkeys(self._columns.values())
            if n and n not in corrupt and n in table.names(detail=True)
        ]
        if self._ready:
            yield from (self._fit(batch, "", schema) for batch in self._ready)
            return
        report = Report(self._request.paths[0])
        for task in partition.tasks:
            batches = run([task], wanted, report, mode=self._mode, filter=self._filter)
            for batch in _larger(batches):
                yield self._fit(batch, task.path, schema)

    def _fit(self, batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
        """The same rows in Spark's form."""
        arrays = []
        for field in schema:
            inner = self._columns[field.name]
            if not inner:
                arrays.append(pa.repeat(pa.scalar(path, field.type), batch.num_rows))
            elif inner not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(_fit(batch.column(inner), field, inner))
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


def _fit(array: pa.Array, field: pa.Field, name: str) -> pa.Array:
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(array.type) and array.type.unit == "ms":
        raw = array.cast(pa.int64())
        beyond = pc.greater(pc.abs(raw), _MAX_MICROSECONDS)
        if pc.any(beyond).as_py():
            warnings.warn(
                f"{name}: times beyond what Spark's microseconds hold are null; the detail column {name}_ms has them",
                stacklevel=2,
            )
            array = pc.if_else(beyond, pa.scalar(None, array.type), array)
    return array if array.type == field.type else array.cast(field.type)


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
