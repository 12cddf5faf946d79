"""The Spark source: planned stretches of files as partitions, decoded to Arrow batches of exactly Spark's schema.

Spark checks the type, nullability and order of what comes, and knows times in microseconds only: so a batch has two forms of
one logical schema, Arrow's own and this one.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from logwright.codec import registry
from logwright.codec.fault import Fault, NotFoundError, Severity, UsageError
from logwright.codec.layout import Follows, Layout
from logwright.codec.option import Option, Options, fold, parse_bool, parse_int, parse_text
from logwright.codec.table import Column, Table
from logwright.readers import filter as filters
from logwright.readers.copies import one_of_each
from logwright.readers.follow import PACE_OPTIONS, Following
from logwright.readers.plainly import plainly
from logwright.readers.plan import Reading, Started, reading
from logwright.readers.record import HeardReport, Recorder, Write, described
from logwright.readers.report import Report
from logwright.readers.resolve import DirectoryTarget, Target, expand, resolve
from logwright.readers.source import is_remote, local_path
from logwright.readers.stream import CORRUPT, Mode
from logwright.readers.task import Task, Work, known_options, note, run, split_tasks

BATCH_ROWS = 100_000
"""Measured: a source is about twice as fast with such batches as with Spark's usual 10,000 rows."""
_MAX_MICROSECONDS = (1 << 63) // 1000
_RECORD = CORRUPT[0].name
_METADATA = (pa.field("_path", pa.string(), False), pa.field("_position", pa.int64()))
_log = logging.getLogger("logwright")
"""Where nobody set up logging this is standard error: of the driver for what planning finds, of an executor for what a task
meets. With `spark.sql.pyspark.worker.logging.enabled` Spark collects it."""

OPTIONS = (
    Option("codec", None, "What lies at the path; recognised when left away.", parse_text),
    Option("view", None, "What to see of it.", parse_text),
    Option("mode", "FAILFAST", "FAILFAST, PERMISSIVE, DROPMALFORMED or AS_SYSTEM.", parse_text),
    Option(
        "as_system",
        None,
        "The version of the system asked about, in mode AS_SYSTEM; the newest known.",
        parse_text,
    ),
    Option(
        "clean", None, "Whether its last stop was a clean one; by default its own marker says.", parse_bool
    ),
    Option("columns", None, 'Comma-separated; "*" is all, detail columns too.', parse_text),
    Option(
        "columnNameOfCorruptRecord",
        "_corrupt_record",
        "The name of the column with the bytes of a damaged region, in mode PERMISSIVE.",
        parse_text,
    ),
    Option(
        "badRecordsPath",
        None,
        "A folder where every fault met is written down: a dated folder for each read, JSON lines, a file for each task.",
        parse_text,
    ),
    Option("includeMetadata", False, "Add _path and _position (the byte of the frame).", parse_bool),
    Option("maxPartitionBytes", 128 << 20, "Bytes of files that one task reads.", parse_int, low=1),
    Option("pathGlobFilter", None, "Only files and directories with such names.", parse_text),
    Option(
        "recursiveFileLookup", False, "Take the path as a folder of directories at any depth.", parse_bool
    ),
    Option("ignoreMissingFiles", False, "A path that does not exist has no rows.", parse_bool),
    Option(
        "failOnDataLoss",
        True,
        "Whether it is an error that rows are gone which were not read yet.",
        parse_bool,
    ),
    Option("minPartitions", None, "So many tasks at least, as far as the files can be cut.", low=1),
    Option(
        "maxRecordsPerPartition",
        None,
        "So many offsets at most for one task, as far as the files can be cut.",
        low=1,
    ),
    *PACE_OPTIONS,
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
    follow: Mapping[str, str] = field(default_factory=dict)
    """What is for `Follows.follow_options`."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Request:
        known = {fold(option.name) for option in OPTIONS}
        words = {name: value for name, value in given.items() if fold(name) in known}
        rest = {name: value for name, value in given.items() if fold(name) not in known | {"path", "paths"}}
        follow = {name: value for name, value in rest.items() if fold(name) in _follow_names()}
        rest = {name: value for name, value in rest.items() if name not in follow}
        return cls(Options(OPTIONS, words), paths_of(given), rest, follow)

    def reading(self) -> Reading | None:
        """What is to be read; None when nothing is there and that is allowed."""
        targets = self.targets()
        if not targets:
            return None
        if not self.follow:
            return reading(targets, self.words["view"], self.started)
        if self.started is not None:
            raise UsageError(
                f"{next(iter(self.follow))} does not go with mode=AS_SYSTEM", advice="Leave one of them away"
            )
        return self._part_of(targets)

    def _part_of(self, targets: Sequence[Target]) -> Reading:
        """What the words for following cut out."""
        following = self.following(self.layout_of(targets), lambda: targets)
        found = reading(targets, following.view)
        tasks: list[Work] = []
        for name, (target, low, high) in following.spans(stream=False).items():
            some = following.of(name).between(target, low, high, self.words["maxRecordsPerPartition"])
            tasks += [one.with_files(Task.named) if len(targets) > 1 else one for one in some]
        return replace(found, tasks=tuple(tasks))

    def following(self, layout: Layout, look: Callable[[], Sequence[Target]]) -> Following:
        """What follows directories of a layout."""

        def directories() -> list[DirectoryTarget]:
            found = look()
            return [one for one in one_of_each(found) if isinstance(one, DirectoryTarget)] if found else []

        words, view = self.follow_words(layout), self.words["view"]
        return Following(directories, layout, view, words, fail_on_loss=self.words["failOnDataLoss"])

    def follow_words(self, layout: Layout) -> Options:
        """The words for following, of this layout. Raises `UsageError` where it can't be followed."""
        if not isinstance(layout, Follows):
            word = next(iter(self.follow), None)
            said = "can't be followed" if word is None else f"knows no {word}"
            raise UsageError(
                f"a {layout.name} {said}: its rows have no positions that last, since its system writes its files anew",
                path=", ".join(self.paths),
                advice="Read it as it is now: spark.read",
            )
        return Options(layout.follow_options, self.follow)

    def layout_of(self, targets: Sequence[Target]) -> Layout:
        """That of the targets, or the one that is named. Raises `UsageError` for files, and for different ones."""
        named = {layout.name: layout for layout in registry.layouts()}.get(self.words["codec"])
        layouts = {one.layout.name: one.layout for one in targets if isinstance(one, DirectoryTarget)}
        if any(not isinstance(one, DirectoryTarget) for one in targets):
            raise UsageError("this is a file, only a directory can be followed", path=", ".join(self.paths))
        if len(layouts) > 1:
            raise UsageError(
                f"these are of different kinds: {', '.join(layouts)}", path=", ".join(self.paths)
            )
        found = next(iter(layouts.values()), named)
        if found is None:
            raise NotFoundError(
                "nothing of what is asked for is there",
                path=", ".join(self.paths),
                advice='Say what it will be: .option("codec", ...)',
            )
        return found

    def targets(self) -> list[Target]:
        """What lies at the paths, and is asked for; nothing when nothing is there and that is allowed."""
        paths = [found for path in self.paths for found in self._below(path)]
        if self.words["ignoreMissingFiles"]:
            paths = [path for path in paths if is_remote(path) or os.path.exists(local_path(path))]
        if pattern := self.words["pathGlobFilter"]:
            paths = [
                path for path in paths if fnmatch.fnmatchcase(os.path.basename(path.rstrip("/")), pattern)
            ]
        if not paths:
            if self.words["ignoreMissingFiles"]:
                return []
            raise NotFoundError(
                "nothing to read here", path=", ".join(self.paths), advice="Check pathGlobFilter"
            )
        found = self._resolve(paths)
        if not self.follow:
            return found
        return [
            one
            for one in found
            if not isinstance(one, DirectoryTarget)
            or not isinstance(one.layout, Follows)
            or one.layout.wanted(one.directory.name, self.follow_words(one.layout))
        ]

    def left_out(self) -> Sequence[str]:
        """Columns that are not given, where none are named."""
        if not self.follow or self.words["columns"] is not None:
            return ()
        out: list[str] = []
        for layout in registry.layouts():
            if isinstance(layout, Follows):
                words = Options(layout.follow_options, known_options(self.follow, layout.follow_options))
                out += layout.leaves_out(words)
        return out

    @property
    def mode(self) -> Mode:
        return Mode.of(self.words["mode"])

    @property
    def started(self) -> Started | None:
        """The system that is asked what it would serve, in mode `AS_SYSTEM`."""
        asked = Started(self.words["as_system"], self.words["clean"])
        if self.mode is Mode.AS_SYSTEM:
            return asked
        if asked != Started():
            raise UsageError(
                "as_system and clean say which system is asked", advice="They go with mode=AS_SYSTEM"
            )
        return None

    def _resolve(self, paths: Sequence[str]) -> list[Target]:
        try:
            found = resolve(paths, self.words["codec"], self.options, passed=[])
            if all(one.path in paths for one in found):
                return found
            # A folder stands for the directories in it that can be followed, a log directory for its partitions.
            inside = [
                one for one in found if isinstance(one, DirectoryTarget) and isinstance(one.layout, Follows)
            ]
            return list(inside) or resolve(paths, self.words["codec"], self.options, passed=[], gathered=True)
        except UsageError as error:
            for name in self.options:
                ours = {fold(option.name): option.name for option in OPTIONS} | _follow_names()
                near = difflib.get_close_matches(fold(name), ours, n=1, cutoff=0.7)
                if near and error.message == f"unknown option {name!r}":
                    error.advice = f"Did you mean {ours[near[0]]!r}?"
            raise

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
        found = Reading(_table_of_nothing(request), ())
    left_out = request.left_out()
    fields = [
        column.field()
        for column in map(found.table.__getitem__, found.table.select(request.words["columns"]))
        if column.name not in left_out
    ]
    # What is known without reading a file holds no damaged rows.
    if request.mode is Mode.PERMISSIVE and not found.ready:
        _check_corrupt_name(request, found.table)
        fields = [field.with_nullable(True) for field in fields]
        fields += [field.with_name(_outer(field.name, request)) for field in CORRUPT]
    if request.words["includeMetadata"]:
        fields += _METADATA
    times = [
        pa.field(f.name, pa.timestamp("us", "UTC"), f.nullable) if pa.types.is_timestamp(f.type) else f
        for f in fields
    ]
    schema: StructType = from_arrow_schema(pa.schema(times))
    return schema


def _table_of_nothing(request: Request) -> Table:
    """The table of a layout that is named and can be followed: its directories may come."""
    for layout in registry.layouts():
        if layout.name == request.words["codec"] and isinstance(layout, Follows):
            return registry.table_of(layout.views[request.following(layout, list).view])
    raise UsageError("nothing is there, so the columns are not known", advice="Give a schema: .schema(...)")


def _follow_names() -> dict[str, str]:
    """All words for following, by what they are when folded."""
    layouts = [layout for layout in registry.layouts() if isinstance(layout, Follows)]
    return {fold(option.name): option.name for layout in layouts for option in layout.follow_options}


def _outer(name: str, request: Request) -> str:
    return request.words["columnNameOfCorruptRecord"] if name == _RECORD else name


def _check_corrupt_name(request: Request, table: Table) -> None:
    name = request.words["columnNameOfCorruptRecord"]
    if name in {*table.names(detail=True), "_path", "_position", *(field.name for field in CORRUPT[1:])}:
        raise UsageError(
            f"columnNameOfCorruptRecord: {name!r} is a column already", advice="Give it another name"
        )


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
            _check_corrupt_name(self._request, table)
        known = {_outer(field.name, self._request): (field.name, field) for field in CORRUPT}
        known |= {
            column.name: (column.name, column.field())
            for column in map(table.__getitem__, table.names(detail=True))
        }
        if self._request.words["includeMetadata"]:
            known |= {
                field.name: (inner, field) for field, inner in zip(_METADATA, ("", "position"), strict=True)
            }
        name = wanted.name
        if name not in known:
            lower = {one.lower(): one for one in known}
            near = difflib.get_close_matches(name.lower(), lower, n=1)
            hint = f"Did you mean {lower[near[0]]!r}?" if near else f"There are: {', '.join(known)}"
            raise UsageError(f"no column {name!r}", advice=hint)
        inner: str = known[name][0]
        field = known[name][1]
        if not (_castable(field.type, wanted.type) or (inner == _RECORD and pa.types.is_string(wanted.type))):
            raise UsageError(
                f"column {name!r} is {_said(field.type)}, the schema says {_said(wanted.type)}",
                advice=f"Say {_said(field.type)}, and cast it with Spark",
            )
        empty = permissive and field is not _METADATA[0]
        if not wanted.nullable and (field.nullable or empty):
            why = "" if field.nullable else " where a region is damaged"
            raise UsageError(
                f"column {name!r} can be null{why}, the schema says NOT NULL", advice="Leave NOT NULL away"
            )
        return inner

    @plainly
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

    @plainly
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
                arrays.append(_fit(batch.column(inner), wanted, inner, path))
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


def _castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values of a column can be given as another type without a change of what they mean."""
    if have == want:
        return True
    is_ = pa.types
    if is_.is_list(have) and is_.is_list(want):
        return _castable(have.value_type, want.value_type)
    if is_.is_struct(have) and is_.is_struct(want):
        return [one.name for one in have] == [one.name for one in want] and all(
            _castable(a.type, b.type) for a, b in zip(have, want, strict=True)
        )
    if is_.is_timestamp(have):
        return bool(is_.is_timestamp(want) and want.tz)
    if is_.is_integer(have):
        return bool(
            is_.is_integer(want) or is_.is_floating(want) or is_.is_decimal(want) or is_.is_string(want)
        )
    bytes_ = (is_.is_binary, is_.is_string)
    return any(one(have) for one in bytes_) and any(one(want) for one in bytes_)


def _said(kind: pa.DataType) -> str:
    """A type as Spark writes it."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    said: str = from_arrow_schema(pa.schema([pa.field("x", kind)]))[0].dataType.simpleString()
    return said


def _fit(array: pa.Array, field: pa.Field, name: str, path: str) -> pa.Array:
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(array.type) and array.type.unit == "ms":
        raw = array.cast(pa.int64())
        beyond = pc.greater(pc.abs(raw), _MAX_MICROSECONDS)
        if pc.any(beyond).as_py():
            warnings.warn(
                f"{name}: times beyond what Spark's microseconds hold are null; the detail column {name}_ms has them",
                stacklevel=2,
            )
            array = pc.if_else(beyond, pa.scalar(None, array.type), array)
    if array.type == field.type:
        return array
    if name == _RECORD:
        # Text was asked for, what is there may be anything: none of it gets lost.
        said = [None if one is None else one.decode(errors="backslashreplace") for one in array.to_pylist()]
        return pa.array(said, field.type)
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"column {field.name!r} can't be given as {_said(field.type)}: {str(error).splitlines()[0]}",
            path=path,
            advice=f"Say {_said(array.type)} in the schema, and convert it with Spark",
        ) from None


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
