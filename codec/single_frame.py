"""Codecs of small files that are one frame: one function parses the file, its inverse writes it.

The detail column `payload` of the frames table keeps the stored bytes. Encoding reuses them if they parse to the same rows, so that
legal variants (other line ends) survive a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec, Match
from logwright.codec.deferred import deferred
from logwright.codec.describe import DescriptionError, Struct
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.table import Column, Table
from logwright.codec.window import Chunk, Decoded, Frames, Window, Zeros

if TYPE_CHECKING:
    from logwright.codec import explain
    from logwright.codec.explain import Focus, Node
else:
    explain = deferred("logwright.codec", "explain")

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "0: the file is one frame", nullable=False),
        Column("size", pa.int32(), "bytes", nullable=False),
        Column("payload", pa.binary(), "the bytes as they are stored", nullable=False, detail=True),
    ),
    "One row.",
)
FILE = Table(
    "file",
    (
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), "1, or 0 if the file cannot be parsed", nullable=False),
        Column("trailing", pa.binary(), "the bytes of a file that cannot be parsed", nullable=False),
        Column("trailing_zeros", pa.int64(), "number of zero bytes after them", nullable=False),
    ),
    "One row.",
)
_FEW_VALUES = 1 << 20
"""The size limit of a file of a few values."""


class ParseError(DescriptionError):
    """The bytes cannot be parsed. `system` says what the real system does with the file, if not the usual. `upstream` is its exception,
    class and message."""

    def __init__(
        self, message: str, offset: int = 0, kind: Kind = Kind.PAYLOAD, system: str = "", upstream: str = ""
    ) -> None:
        super().__init__(message, offset)
        self.kind, self.system, self.upstream = kind, system, upstream


class SmallFileCodec(Codec):
    """A codec of a small file: `parse` returns its rows or raises `ParseError`; `form` is the inverse.

    Both use a table with all columns. `form` raises `DescriptionError` for rows that no file can hold. `text` describes a text file,
    for `explain` and the docs. `remark` says what is odd about the bytes of a file that can be parsed, "" if nothing is. A file of more
    than `largest` bytes is refused.
    """

    single_frame = True

    def __init__(
        self,
        *,
        name: str,
        title: str,
        pattern: re.Pattern[str],
        columns: tuple[Column, ...],
        parse: Callable[[bytes], pa.Table],
        form: Callable[[pa.Table], bytes],
        system: str,
        structures: tuple[Struct, ...] = (),
        text: Struct | None = None,
        remark: Callable[[bytes], str] = lambda data: "",
        largest: int = _FEW_VALUES,
    ) -> None:
        self.name, self.title, self.pattern, self.columns = name, title, pattern, columns
        self.parse, self.form, self.system, self.structures = parse, form, system, structures
        self.remark, self.largest = remark, largest
        self.described = structures if text is None else (text,)
        self.tables = {"rows": Table("rows", columns, "One row per entry."), "frames": FRAMES, "file": FILE}

    def explain(self, window: Window, context: None, focus: Focus, *, frame: bool) -> Sequence[Node]:
        return explain.explain_values(self.described[0], window, focus, single=True)

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if self.pattern.fullmatch(name) else Match.NO

    def scan(self, window: Window, at: int, context: None, *, check: bool = True) -> Frames:
        data = window.data.tobytes()
        empty, zero = np.empty(0, np.int64), np.zeros(1, np.int64)
        try:
            self.parse(data)
        except DescriptionError as error:
            return Frames(empty, empty, empty, 0, 0, self._fault(error, len(data)))
        remark = self.remark(data)
        faults = (
            [Fault(self.name, 0, len(data), Kind.PAYLOAD, remark, Severity.WARNING, rows_lost=0)]
            if remark
            else []
        )
        return Frames(zero, np.array([len(data)], np.int64), zero, len(data), faults=faults)

    def _fault(self, error: DescriptionError, size: int) -> Fault:
        """Return a fault that covers the file: one bad byte makes all of it unreadable."""
        detail = f"{error.message} (at byte {error.offset})" if error.offset else error.message
        kind, system = Kind.PAYLOAD, self.system
        if isinstance(error, ParseError):
            kind, system = error.kind, error.system or system
        severity = Severity.WARNING if kind is Kind.UNSUPPORTED else Severity.ERROR
        return Fault(self.name, 0, size, kind, detail, severity, system)

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: None
    ) -> Iterator[Decoded]:
        if not len(frames):
            return
        data = window.data.tobytes()
        if table == "rows":
            decoded = self.parse(data)
        else:
            row = {"position": 0, "size": len(data), "payload": data}
            decoded = pa.Table.from_pylist([row], schema=FRAMES.schema(FRAMES.names(detail=True)))
        for batch in decoded.select(list(columns)).cast(self.tables[table].schema(columns)).to_batches():
            yield Decoded(batch)

    def resync(self, window: Window, at: int, context: None) -> tuple[int, int]:
        return -1, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: None
    ) -> Iterator[Chunk]:
        rows = conform(self.name, rows, self.tables["rows"])
        stored = single_value(frames, "payload")
        if stored is not None and self._parses_to(stored, rows):
            yield stored
        elif single_value(file, "frames") == 0 and not rows.num_rows:
            yield from ending_bytes(file)
        else:
            try:
                yield self.form(rows)
            except DescriptionError as error:
                raise UsageError(f"{self.name}: {error}") from None

    def _parses_to(self, stored: bytes, rows: pa.Table) -> bool:
        try:
            return bool(self.parse(stored).cast(rows.schema).equals(rows))
        except DescriptionError:
            return False


def struct_name(codec: str) -> str:
    """Return the name of the structure of a file: `TimerCheck` of a codec `rocketmq.timer_check`."""
    return "".join(word.capitalize() for word in codec.partition(".")[2].split("_"))


def conform(codec: str, rows: pa.Table, table: Table) -> pa.Table:
    """Return the rows with exactly the columns and types of a table. Absent detail columns become null.

    Raises `UsageError` for a missing column, a wrong type, and null in a column that is not nullable.
    """
    arrays = []
    for column in table.columns:
        array = typed_column(codec, rows, column)
        if array is None and not column.detail:
            raise UsageError(f"{codec} needs a column {column.name!r}")
        if array is None:
            array = pa.nulls(rows.num_rows, column.type)
        if array.null_count and not column.nullable:
            raise UsageError(f"{codec}: column {column.name!r} must not be null")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=table.schema(table.names(detail=True)))


def typed_column(codec: str, rows: pa.Table, column: Column) -> Any:
    """Return a column of rows in its type; None if it is absent. Raises `UsageError` for a wrong type, and for several of this name."""
    places = rows.schema.get_all_field_indices(column.name)
    if len(places) > 1:
        raise UsageError(f"{codec}: there are {len(places)} columns {column.name!r}")
    try:
        return rows.column(places[0]).cast(column.type) if places else None
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(f"{codec}: column {column.name!r} is not {column.type}: {error}") from None


def row_table(columns: Sequence[Column], *values: Any) -> pa.Table:
    """Return the table of a file that is one row, from a value for each column."""
    arrays = [pa.array([value], column.type) for value, column in zip(values, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.field() for column in columns]))


def only_row(rows: pa.Table) -> dict[str, Any]:
    """Return the row of a file that is one row, the inverse of `row_table`. Raises `DescriptionError` if there are more or none."""
    if rows.num_rows != 1:
        raise DescriptionError(f"a file has one row, found {rows.num_rows}")
    row: dict[str, Any] = rows.to_pylist()[0]
    return row


def ending_bytes(file: pa.Table | None) -> Iterator[Chunk]:
    """Return the bytes after the last frame of a file, from its row of the file table."""
    yield single_value(file, "trailing") or b""
    yield Zeros(single_value(file, "trailing_zeros") or 0)


def single_value(table: pa.Table | None, column: str) -> Any:
    """Return a value of a table of one row; None without such a table, row or column."""
    if table is None or not table.num_rows or column not in table.schema.names:
        return None
    return table[column][0].as_py()
