"""Tables: the documented Arrow schemas of what a codec decodes to and encodes from.

A column is *core* when it means something to a user; *detail* when it is needed on top to write the same bytes again.
Types are those that Spark, Parquet, DuckDB and Polars all take: no unsigned, no dictionary, times as timestamp[ms, UTC].
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from logwright.codec.fault import UsageError

TIMESTAMP = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True)
class Column:
    """One column. `prunes`: the codec knows its bounds in each frame, so that a filter on it skips whole frames. `elsewhere`: it is called
    `position`, and says a place in another file, not where the frame of its row starts. `hexadecimal`: people write its numbers so."""

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


@dataclass(frozen=True)
class Table:
    """The schema of one table (rows, frames or file) of a codec."""

    name: str
    columns: tuple[Column, ...]
    doc: str = ""
    key: tuple[str, ...] = ()
    """The columns that tell a row of a file, or of its directory, from the others, which come in their order (`-name`: descending)."""

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def names(self, *, detail: bool = False) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if detail or not c.detail)

    def select(self, wanted: Sequence[str] | str | None) -> tuple[str, ...]:
        """The columns asked for, in the order asked: None means the core ones, "*" also the detail ones."""
        if wanted is None:
            return self.names()
        if isinstance(wanted, str):
            wanted = [part.strip() for part in wanted.split(",") if part.strip()]
        given: object = wanted
        if not isinstance(given, Iterable) or isinstance(given, bytes):
            raise UsageError(f"columns are names, not {given!r}")
        chosen: list[str] = []
        for name in wanted:
            for one in self.names(detail=True) if name == "*" else (name,):
                if one not in chosen:
                    chosen.append(self._known(one))
        return tuple(chosen)

    def schema(self, columns: Iterable[str] | None = None) -> pa.Schema:
        names = self.names() if columns is None else tuple(columns)
        found = self._schemas.get(names)
        if found is None:
            found = self._schemas[names] = pa.schema([self[name].field() for name in names])
        return found

    @cached_property
    def _schemas(self) -> dict[tuple[str, ...], pa.Schema]:
        """By columns: to make one takes longer than to decode a few rows."""
        return {}

    def _known(self, name: str) -> str:
        names = self.names(detail=True)
        if name in names:
            return name
        if not isinstance(name, str):
            raise UsageError(f"the name of a column is text, not {name!r}")
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}"
        raise UsageError(f"no column {name!r} in table {self.name!r}", advice=hint)


# What the tables of codecs have in common

RAW = Column(
    "raw", pa.binary(), "the bytes of a damaged stretch: the other columns are null then", detail=True
)
"""Of a frames table."""


def extent(frames: str) -> tuple[Column, ...]:
    """Of a file table: how much there is of it; `frames` are what they are called."""
    return (
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), f"good {frames}", nullable=False),
    )


def ending(frame: str) -> tuple[Column, ...]:
    """Of a file table: what lies behind the last frame."""
    text = f"what no {frame} covers at the end, without the zeros after it"
    return (
        Column("trailing", pa.binary(), text, nullable=False),
        Column("trailing_zeros", pa.int64(), "zero bytes at the end", nullable=False),
    )
