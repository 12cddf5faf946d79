"""Compare two sides by their rows, through a view: `readers.diff`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import Severity, UnreadableError, UsageError
from logwright.codec.frames.walk import Hole
from logwright.codec.table import Table
from logwright.readers import plan
from logwright.readers.combined import Combined
from logwright.readers.compare import Disordered, Pairs, changed, match, unequal
from logwright.readers.diff_fields import Opened, Span, fields, row_fields, row_place
from logwright.readers.diff_frames import same_bytes
from logwright.readers.difference import Difference, row_of
from logwright.readers.filter import Conditions, Filter, understand
from logwright.readers.report import Report
from logwright.readers.stream import Mode, ReadOptions
from logwright.readers.target import Target, kind
from logwright.readers.task import Task, Work, codec_options, note

_POSITION = "position"
_IN_MEMORY = 512 << 20
"""Limit of bytes of rows of one side to sort."""


@dataclass(frozen=True)
class DiffOptions:
    """Options of a comparison. `key`: columns that match rows, () for none, None for those of the view. `limit`: number of differences to
    describe."""

    by: str = "rows"
    view: str | None = None
    columns: Sequence[str] | str | None = None
    filter: Conditions = None
    key: Sequence[str] | str | None = None
    mode: Mode = Mode.FAILFAST
    limit: int = 10


@dataclass(frozen=True)
class Loose:
    """Rows of a table file."""

    path: str
    schema: pa.Schema
    open: Any
    """Returns the record batches from the start."""


@dataclass
class _Side:
    """The rows of one side."""

    name: str
    path: str
    works: list[Work] = field(default_factory=list)
    ready: tuple[pa.RecordBatch, ...] = ()
    loose: Loose | None = None
    report: Report = field(default_factory=lambda: Report(""))
    starts: list[tuple[int, Work]] = field(default_factory=list)
    """First row of each unit of work, counted among the compared rows."""
    before: int = 0
    """Number of equal rows skipped at the start."""
    order: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """Original index of each row, if rows were sorted for the comparison."""

    def rows(
        self, columns: Sequence[str], mode: Mode, filter: Filter | None
    ) -> Generator[pa.RecordBatch, None, None]:
        self.starts, self.report, self.order = [], Report(self.path), None
        if self.loose is not None:
            needed = list(dict.fromkeys((*columns, *(filter.columns if filter is not None else ()))))
            for batch in self.loose.open():
                selected = batch.select(needed)
                yield (selected if filter is None else filter.apply(selected)).select(list(columns))
            return
        for batch in self.ready:
            yield (batch if filter is None else filter.apply(batch)).select(list(columns))
        at = 0
        for work in self.works:
            self.starts.append((at, work))
            for batch in work.rows(columns, self.report, ReadOptions(mode, filter)):
                at += len(batch)
                yield batch.select(list(columns))

    def sorted_rows(
        self, columns: Sequence[str], mode: Mode, filter: Filter | None, key: Sequence[str]
    ) -> Generator[pa.RecordBatch, None, None]:
        """Iterate over the rows sorted by key. Raises `Disordered` if they do not fit in memory or have a column without an order."""
        held: list[pa.RecordBatch] = []
        size = 0
        with contextlib.closing(self.rows(columns, mode, filter)) as rows:
            for batch in rows:
                held.append(batch)
                size += batch.nbytes
                if size > _IN_MEMORY:
                    raise Disordered("too many rows to sort in memory")
        if not held:
            return
        table = pa.Table.from_batches(held)
        by = [(name.lstrip("-"), "descending" if name.startswith("-") else "ascending") for name in key]
        try:
            order = pc.sort_indices(table, sort_keys=by)
        except pa.ArrowException as error:
            raise Disordered(f"the rows cannot be sorted by {', '.join(key)}") from error
        self.order = order.to_numpy().astype(np.int64)
        yield from table.take(order).combine_chunks().to_batches()

    def work(self, row: int) -> Work | None:
        """Return the unit of work that a row came from."""
        i = int(np.searchsorted([at for at, _ in self.starts], row, "right")) - 1
        return self.starts[i][1] if i >= 0 else None


class Rows:
    """Compare two sides row by row. Raises `UsageError` if they have no common columns."""

    def __init__(self, a: Target | Loose, b: Target | Loose, options: DiffOptions) -> None:
        self.options = options
        tables: list[Table] = []
        sides: list[_Side] = []
        self.notes: list[str] = []
        for name, side in (("a", a), ("b", b)):
            if isinstance(side, Loose):
                sides.append(_Side(name, side.path, loose=side))
                continue
            reading = plan.reading([side], options.view)
            report = Report(side.path)
            note(reading.faults, report, options.mode)
            tables.append(reading.table)
            sides.append(_Side(name, side.path, list(reading.tasks), reading.ready))
            self.notes += [f"{name}: {each}" for each in reading.notes]
        self.a, self.b = sides
        self.native = [side for side in (a, b) if not isinstance(side, Loose)]
        if len(tables) == 2 and tables[0] is not tables[1]:
            raise UsageError(
                f"{a.path} is {kind(self.native[0])}, but {b.path} is {kind(self.native[1])}: their rows cannot be compared",
                advice="Compare their bytes with by='files' (--by files)",
            )
        self.table = tables[0] if tables else None
        self.columns = self._columns()
        self.filter = self._filter()
        self.key = self._key()
        self.result = Difference(
            a.path, b.path, "rows", kind(self.native[0]) if self.native else "table", options.view, self.key
        )

    @property
    def place(self) -> str | None:
        """Column with the byte of the file at which the frame of a row starts."""
        names = () if self.table is None else self._all()
        return (
            _POSITION
            if self.table is not None and _POSITION in names and not self.table[_POSITION].elsewhere
            else None
        )

    skips = False
    """Whether equal bytes are equal rows."""

    # Columns

    def _names(self, side: _Side) -> list[str]:
        return list(side.loose.schema.names) if side.loose is not None else list(self._all())

    def _all(self) -> tuple[str, ...]:
        assert self.table is not None
        return self.table.names(detail=True)

    def _columns(self) -> list[str]:
        """Return the requested columns; by default the core columns of both sides, without those that come from names of files."""
        requested = self.options.columns
        if self.table is None:
            there = set(self._names(self.b))
            names = self._names(self.a) if requested is None else _list(requested)
            chosen = [name for name in names if name in there]
        else:
            chosen = list(self.table.select(requested))
            loose = [side for side in (self.a, self.b) if side.loose is not None]
            if requested is None:
                for side in loose:
                    missing = [name for name in chosen if name not in self._names(side)]
                    if missing:
                        self.notes.append(f"{', '.join(missing)}: not in {side.path}, not compared")
                    chosen = [name for name in chosen if name not in missing]
        for side in (self.a, self.b):
            lost = [name for name in chosen if name not in self._names(side)]
            if lost:
                raise UsageError(f"no column {lost[0]!r}", path=side.path)
        if not chosen:
            raise UsageError("the two sides have no column in common")
        if self.table is None:
            return chosen
        around = self._around(chosen)
        self.skips = not around or requested is None
        if requested is None:
            chosen = [
                name for name in chosen if name not in (*around, self.place)
            ]  # it follows from the rows before
            if around:
                self.notes.append(
                    f"{', '.join(around)}: derived from directory names, not compared; "
                    f"use columns (--columns {around[0]}) to compare"
                )
        return chosen

    def _around(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that differ for equal bytes, because they come from the path of the file."""
        works = [work.works[0] if work.works else None for work in (self.a, self.b)]
        if not all(isinstance(work, Task) for work in works):
            return []
        first, second = works
        assert isinstance(first, Task)
        assert isinstance(second, Task)
        codec = registry.get(first.codec)
        if codec.name != second.codec or codec.single_frame:
            return []
        file = Opened.of(first)
        with file.source:
            for step in file.walk():
                if isinstance(step, Hole) or not len(step.frames):
                    continue
                batches: list[pa.RecordBatch] = []
                for task in (first, second):
                    hints = {name: task.hints[name] for name in ("directory",) if name in task.hints}
                    context = codec.context(first.file, codec_options(codec, task.options), **hints)
                    codec.prepare(file.source.pread, file.source.size, context)
                    results = codec.decode(step.window, step.frames, task.table, columns, context)
                    batches += [work.batch.slice(0, 1) for work in itertools.islice(results, 1)]
                if len(batches) < 2 or any(not len(batch) for batch in batches):
                    continue
                a, b = batches
                return [name for name in columns if unequal(a.column(name), b.column(name)).any()]
        return []

    def _filter(self) -> Filter | None:
        if self.options.filter is None or self.table is not None:
            return understand(self.options.filter, self.table) if self.table is not None else None
        raise UsageError("two table files cannot be filtered", advice="Filter them first")

    def _key(self) -> tuple[str, ...]:
        if self.options.key is not None:
            key = tuple(_list(self.options.key))
            for side in (self.a, self.b):
                for name in key:
                    if name.lstrip("-") not in self._names(side):
                        raise UsageError(f"no column {name!r} to match rows by", path=side.path)
            return key
        key = ()
        for side in (self.a, self.b):
            combined = [work.row_key for work in side.works if isinstance(work, Combined)]
            if combined and combined[0]:
                key = combined[0]
                break
        else:
            key = self.table.key if self.table is not None else ()
        if all(name.lstrip("-") in self._names(side) for side in (self.a, self.b) for name in key):
            return key
        return ()

    # Comparison

    def run(self) -> Difference:
        result = self.result
        if self.filter is None and self.skips:
            self._skip()
        try:
            self._compare()
        except Disordered as error:
            if not self._compare_sorted():
                if self.options.key is not None:
                    raise
                self.notes.append(f"matched row by row: {error.message}")
                result.key = ()
                self._compare()
        self._locate()
        for side in (self.a, self.b):
            if side.report.worst in (Severity.ERROR, Severity.WARNING):
                self.notes.append(
                    f"{side.name}: {', '.join(side.report.fault_counts())}, see `logwright verify {side.path}`"
                )
        result.notes = self.notes
        return result

    def _compare_sorted(self) -> bool:
        """Sort rows in memory that are not in key order, and compare them. Return False if that is not possible."""
        if any(len(side.works) > 1 for side in (self.a, self.b)):
            return False
        try:
            self._compare(sort=True)
        except Disordered:
            return False
        return True

    def _compare(self, *, sort: bool = False) -> None:
        result, key = self.result, self.result.key
        result.counts = dict.fromkeys(result.counts, 0)
        result.columns, result.differences = {}, []
        names = [name.lstrip("-") for name in key]
        with ExitStack() as stack:  # files are closed at once if it ends early
            read: list[Iterable[pa.RecordBatch]] = []
            for side in (self.a, self.b):
                more = [self.place] if self.place is not None and side.loose is None else []
                needed = list(dict.fromkeys((*self.columns, *names, *more)))
                rows = (
                    side.sorted_rows(needed, self.options.mode, self.filter, key)
                    if sort
                    else side.rows(needed, self.options.mode, self.filter)
                )
                read.append(stack.enter_context(contextlib.closing(rows)))
            self._matched(match(read[0], read[1], key), names)
        counts = result.counts
        counts["a"] += self.a.before
        counts["b"] += self.b.before
        counts["same"] = counts["a"] - counts["removed"] - counts["changed"]

    def _matched(self, matched: Iterable[Pairs], names: Sequence[str]) -> None:
        result = self.result
        counts = result.counts
        for pairs in matched:
            counts["a"] += len(pairs.a)
            counts["b"] += len(pairs.b)
            differing = changed(pairs, self.columns)
            alone_a, alone_b = pairs.ib < 0, pairs.ia < 0
            differs = np.zeros(len(pairs.ia), np.bool_)
            for name, mask in differing.items():
                result.columns[name] = result.columns.get(name, 0) + int(mask.sum())
                differs |= mask
            counts["changed"] += int(differs.sum())
            counts["removed"] += int(alone_a.sum())
            counts["added"] += int(alone_b.sum())
            room = max(self.options.limit, 1) - len(result.differences)
            if room > 0:
                places = np.flatnonzero(differs | alone_a | alone_b)[:room].tolist()
                result.differences += [self._difference(pairs, i, differing, names) for i in places]

    def _difference(
        self, pairs: Pairs, i: int, differing: Mapping[str, Any], key: Sequence[str]
    ) -> dict[str, Any]:
        ia, ib = int(pairs.ia[i]), int(pairs.ib[i])
        rows = [None if at < 0 else row_of(batch, at) for batch, at in ((pairs.a, ia), (pairs.b, ib))]
        shown_row = rows[0] or rows[1]
        assert shown_row is not None
        number = (pairs.first_a + ia) if ia >= 0 else (pairs.first_b + ib)
        ids = {name: shown_row[name] for name in key} or {"row": number + self.a.before}
        out: dict[str, Any] = {
            "kind": "changed" if ia >= 0 and ib >= 0 else "removed" if ia >= 0 else "added", "id": ids,
        }  # fmt: skip
        if rows[0] is not None and rows[1] is not None:
            out["columns"] = {
                name: [rows[0][name], rows[1][name]]
                for name in self.columns
                if name in differing and differing[name][i]
            }
        else:
            out["row"] = {name: shown_row[name] for name in self.columns}
        for side, at, row, first in (
            (self.a, ia, rows[0], pairs.first_a),
            (self.b, ib, rows[1], pairs.first_b),
        ):
            if row is not None:
                place = first + at if side.order is None else int(side.order[first + at])
                out[side.name] = {
                    "number": place + side.before,
                    "_row": row,
                    "_work": side.work(place),
                }
        return out

    # Equal parts

    def _skip(self) -> None:
        """Skip equal files at the start and the end, and equal bytes at the start of the first different file."""
        if any(side.loose is not None or side.ready for side in (self.a, self.b)):
            return
        left, right = self.a.works, self.b.works
        rows = 0
        while left and right and _alike(left[0], right[0]) and _identical(left[0], right[0]):
            rows += _count(left.pop(0), self.options.mode)
            right.pop(0)
        tail = 0
        while left and right and _alike(left[-1], right[-1]) and _identical(left[-1], right[-1]):
            tail += _count(left.pop(), self.options.mode)
            right.pop()
        if left and right and _alike(left[0], right[0]):
            mine, other = left[0], right[0]
            if isinstance(mine, Task) and isinstance(other, Task):
                cut = _common(mine, other)
                if cut > mine.start:
                    rows += _count(replace(mine, stop=cut), self.options.mode)
                    left[0], right[0] = replace(mine, start=cut), replace(other, start=cut)
        self.a.before = self.b.before = rows
        self.tail = tail
        self.result.counts["same"] = rows + tail

    tail = 0

    # Locations

    def _locate(self) -> None:
        """Add the file to each difference, and to the first one the frame and the field."""
        for counts in ("a", "b"):
            self.result.counts[counts] += self.tail
        self.result.counts["same"] += self.tail
        for i, difference in enumerate(self.result.differences):
            places = [self._place(difference, side) for side in (self.a, self.b)]
            if i == 0 and any(place is not None for place in places):
                self._fields(difference, places)

    def _place(self, difference: dict[str, Any], side: _Side) -> tuple[Task, int, dict[str, Any]] | None:
        there = difference.get(side.name)
        if there is None:
            return None
        row, work = there.pop("_row"), there.pop("_work")
        position = None if self.place is None else row.get(self.place)
        tasks: Sequence[Task] = work.files if work is not None and position is not None else ()
        task = tasks[0] if len(tasks) == 1 else self._task(tasks, row)
        if task is None or position is None:
            return None
        there |= {"file": task.file, "path": task.path, "offset": int(position)}
        return task, int(position), row

    def _task(self, tasks: Sequence[Task], row: Mapping[str, Any]) -> Task | None:
        """Return the file of a row that was combined from several files: the first one that has it at this position."""
        return next((task for task in tasks if _has(task, row)), None)

    def _fields(
        self, difference: dict[str, Any], places: Sequence[tuple[Task, int, dict[str, Any]] | None]
    ) -> None:
        with ExitStack() as stack:
            spans: list[tuple[Span, int | None] | None] = []
            for side, place in zip(("a", "b"), places, strict=True):
                if place is None:
                    spans.append(None)
                    continue
                task, position, row = place
                file = Opened.of(task)
                stack.enter_context(file.source)
                edges = file.frame(position)
                if edges is None:
                    spans.append(None)
                    continue
                start, stop = edges
                span = Span(file, start, stop)
                number = self._number(span, task, row) if task.table == "rows" else None
                spans.append((span, number))
                difference[side]["length"] = stop - start
                at = None if number is None else row_place(span, number)
                if at is not None:
                    difference[side]["at"] = at
            if spans[0] is None or spans[1] is None:
                return
            (mine, i), (other, j) = spans[0], spans[1]
            differing = fields(mine, other) if i is None or j is None else row_fields(mine, i, other, j)
            names = list(difference.get("columns", ()))
            # Show the different columns first: batches that are divided differently differ in more fields.
            differing.sort(
                key=lambda field_difference: (
                    field_difference.derived,
                    not any(name in _steps(field_difference.path) for name in names),
                )
            )
            difference["fields"] = [field_difference.to_dict() for field_difference in differing]

    def _number(self, span: Span, task: Task, row: Mapping[str, Any]) -> int | None:
        """Return the index of a row in its frame."""
        there = span.file.codec.tables[task.table].names(detail=True)  # a view may have more columns
        names = [name for name in row if name in there and name not in ("topic", "partition")]
        rows = enumerate(span.file.rows(span.start, task.table, names))
        return next((i for i, candidate in rows if all(candidate[name] == row[name] for name in names)), None)


def _has(task: Task, row: Mapping[str, Any]) -> bool:
    table = registry.get(task.codec).tables[task.table]
    names = [name for name in row if name in table.names(detail=True) and _comparable(table[name].type)]
    filter = understand([(name, "==", row[name]) for name in names], table)
    silent = Report(task.path, max_faults=0)
    first = ReadOptions(Mode.DROPMALFORMED, filter, limit=1)
    return any(len(batch) for batch in task.rows((), silent, first))


def _steps(path: str) -> list[str]:
    return path.replace("[", ".").split(".")


def _list(names: Sequence[str] | str) -> list[str]:
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return list(names)


def _comparable(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _alike(a: Work, b: Work) -> bool:
    """Return whether equal bytes mean equal rows in both."""
    if isinstance(a, Task) and isinstance(b, Task):
        return (
            (a.codec, a.table, a.start, a.stop, a.file.rpartition("/")[2], a.options)
            == (b.codec, b.table, b.start, b.stop, b.file.rpartition("/")[2], b.options)
            and a.source is None
            and b.source is None
            and {**a.hints, "directory": ""} == {**b.hints, "directory": ""}
        )
    if isinstance(a, Combined) and isinstance(b, Combined):
        return (
            (a.layout, a.view, a.params, a.key, a.low, a.high)
            == (b.layout, b.view, b.params, b.key, b.low, b.high)
            and len(a.runs) == len(b.runs)
            and all(
                left.params == right.params
                and len(left.tasks) == len(right.tasks)
                and all(map(_alike, left.tasks, right.tasks))
                for left, right in zip(a.runs, b.runs, strict=True)
            )
        )
    return False


def _identical(a: Work, b: Work) -> bool:
    """Return whether the files of two units of work are equal byte for byte."""
    return all(_same_file(left, right) for left, right in zip(a.files, b.files, strict=True))


def _same_file(a: Task, b: Task) -> bool:
    with a.open() as mine, b.open() as other, contextlib.suppress(UnreadableError):
        return mine.size == other.size and same_bytes(mine, other).identical
    return False  # reading it reports the error


def _common(a: Task, b: Task) -> int:
    """Return the start of the last frame that has equal bytes before it in both files."""
    with a.open() as mine, b.open() as other:
        try:
            head = same_bytes(mine, other).head
        except UnreadableError:
            return a.start
    cut = a.start
    with (file := Opened.of(a)).source:
        if file.codec.single_frame:
            return cut
        for starts, _ in file.walk(a.start).starts():
            inside = starts[starts <= head]
            cut = int(inside[-1]) if len(inside) else cut
            if len(inside) < len(starts):
                break
    return cut


def _count(work: Work, mode: Mode) -> int:
    """Count the rows."""
    return sum(len(batch) for batch in work.rows((), Report(work.path), ReadOptions(mode)))
