"""The documented Arrow schemas that a codec decodes to and encodes from.

A *core* column is meaningful to users; a *detail* column is only needed to write the same bytes again.
All types are supported by Spark, Parquet, DuckDB and Polars: no unsigned integers, no dictionaries, times as timestamp[ms, UTC].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pyarrow as pa

from logwright.codec.columns import batch_of
from logwright.codec.describe import Struct
from logwright.codec.fault import UsageError, did_you_mean

TIMESTAMP = pa.timestamp("ms", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> datetime | int:
    """Return the time of a timestamp, or the timestamp itself if the calendar does not reach it."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


@dataclass(frozen=True)
class Column:
    """One column.

    `prunes`: the codec knows its bounds in each frame, so a filter on it skips frames. `elsewhere`: although named `position`, it is a
    position in another file, not the start of the row's frame. `hexadecimal`: its numbers are usually written in hexadecimal.
    """

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = True
    detail: bool = False
    prunes: bool = False
    elsewhere: bool = False
    hexadecimal: bool = False

    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, self.nullable)


def columns_of(
    struct: Struct, *names: str, nullable: bool = False, detail: bool = False
) -> tuple[Column, ...]:
    """Return the columns of the fields with these names, or of all, which are integers of a fixed place."""
    return tuple(
        Column(field.name, pa.int64() if struct.head_dtype[field.name].itemsize > 4 else pa.int32(), str(field.doc), nullable, detail)
        for field in (map(struct.__getitem__, names) if names else struct.fields)
    )  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The schema of one table (rows, frames or file) of a codec."""

    name: str
    columns: tuple[Column, ...]
    doc: str = ""
    key: tuple[str, ...] = ()
    """The columns that identify a row in a file or directory. Rows are sorted by them (`-name`: descending)."""

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def names(self, *, detail: bool = False) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if detail or not c.detail)

    def select(self, columns: Sequence[str] | str | None) -> tuple[str, ...]:
        """Return the names of selected columns, in the order of the argument. None selects core columns, "*" all columns."""
        if columns is None:
            return self.names()
        if isinstance(columns, str):
            columns = [part.strip() for part in columns.split(",") if part.strip()]
            if not columns:
                raise UsageError(
                    "the text of columns names none", advice=f"Columns: {', '.join(self.names())}"
                )
        argument: object = columns
        if not isinstance(argument, Iterable) or isinstance(argument, bytes):
            raise UsageError(f"columns are names, not {argument!r}")
        requested = [
            each for name in columns for each in (self.names(detail=True) if name == "*" else (name,))
        ]
        return tuple(dict.fromkeys(self._known(name) for name in requested))

    def schema(self, columns: Iterable[str] | None = None) -> pa.Schema:
        names = self.names() if columns is None else tuple(columns)
        schema = self._schemas.get(names)
        if schema is None:
            schema = self._schemas[names] = pa.schema([self[name].field() for name in names])
        return schema

    def batch(self, columns: Sequence[str], column: Callable[[str], pa.Array], rows: int) -> pa.RecordBatch:
        """Return a batch of `rows` rows with these columns, each made by `column(name)`."""
        return batch_of([column(name) for name in columns], self.schema(columns), rows)

    @cached_property
    def _schemas(self) -> dict[tuple[str, ...], pa.Schema]:
        """Schemas by columns. Building one takes longer than decoding a few rows."""
        return {}

    def _known(self, name: str) -> str:
        names = self.names(detail=True)
        if name in names:
            return name
        if not isinstance(name, str):
            raise UsageError(f"a column name is text, not {name!r}")
        raise UsageError(f"no column {name!r} in table {self.name!r}", advice=did_you_mean(name, names))


# Columns that the tables of codecs share

RAW = Column("raw", pa.binary(), "the bytes of a damaged range; the other columns are null", detail=True)
"""A column of frames tables."""


def extent(frames: str) -> tuple[Column, ...]:
    """Return the size columns of a file table. `frames` is the format's term for its frames."""
    return (
        Column("size", pa.int64(), "file size in bytes", nullable=False),
        Column("frames", pa.int64(), f"number of good {frames}", nullable=False),
    )


def ending(frame: str) -> tuple[Column, ...]:
    """Return the columns of a file table for the bytes after the last frame."""
    text = f"bytes after the last {frame}, without the zeros at the end"
    return (
        Column("trailing", pa.binary(), text, nullable=False),
        Column("trailing_zeros", pa.int64(), "number of zero bytes at the end of the file", nullable=False),
    )
