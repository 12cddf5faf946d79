"""Small files that are one frame: read as a whole, parsed by a function, written by its mirror.

The bytes as they are stored are kept in the detail column `payload` of the frames table, and used again when they say the same
as the rows: other line ends, say, are legal and come back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Chunk, Decoded, Frames, Match, Window
from logwright.codec.describe import DescriptionError, Struct
from logwright.codec.fault import Fault, Kind, UsageError
from logwright.codec.option import Option, Options
from logwright.codec.table import Column, Table

Rows = list[dict[str, Any]]

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
        Column("frames", pa.int64(), "1, or 0 when it can't be read", nullable=False),
        Column("trailing", pa.binary(), "the bytes, when they can't be read", nullable=False),
        Column("trailing_zeros", pa.int64(), "zero bytes after them", nullable=False),
    ),
    "One row.",
)


class ParseError(DescriptionError):
    """Bytes that are no such file, with the kind of fault that is."""

    def __init__(self, message: str, offset: int = 0, kind: Kind = Kind.PAYLOAD, system: str = "") -> None:
        super().__init__(message, offset)
        self.kind, self.system = kind, system


@dataclass(frozen=True)
class WholeCodec:
    """A codec of a small file: `parse` raises `ParseError` or `DescriptionError`; `form` is its mirror."""

    name: str
    title: str
    pattern: re.Pattern[str]
    columns: tuple[Column, ...]
    parse: Callable[[bytes], Rows]
    form: Callable[[Rows], bytes]
    system: str = ""
    structures: tuple[Struct, ...] = ()
    options: tuple[Option, ...] = ()
    whole: bool = True

    @property
    def tables(self) -> Mapping[str, Table]:
        return {"rows": Table("rows", self.columns), "frames": FRAMES, "file": FILE}

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if self.pattern.fullmatch(name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> None:
        return None

    def scan(self, window: Window, at: int, context: None, *, check: bool = True) -> Frames:
        data = window.data.tobytes()
        empty, one = np.empty(0, np.int64), np.zeros(1, np.int64)
        try:
            self.parse(data)
        except ParseError as error:
            return Frames(empty, empty, empty, 0, 0, self._fault(error.kind, error, len(data), error.system))
        except DescriptionError as error:
            return Frames(empty, empty, empty, 0, 0, self._fault(Kind.PAYLOAD, error, len(data), ""))
        return Frames(one, np.array([len(data)], np.int64), one, len(data))

    def _fault(self, kind: Kind, error: DescriptionError, size: int, system: str) -> Fault:
        detail = f"{error.message} (at byte {error.offset})" if error.offset else error.message
        return Fault(self.name, 0, size, kind, detail, system=system or self.system)

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: None
    ) -> Iterator[Decoded]:
        if not len(frames):
            return
        data = window.data.tobytes()
        rows = self.parse(data) if table == "rows" else [{"position": 0, "size": len(data), "payload": data}]
        yield Decoded(pa.RecordBatch.from_pylist(rows, schema=self.tables[table].schema(columns)))

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: None
    ) -> pa.RecordBatch:
        row = {"size": size, "frames": frames, "trailing": tail, "trailing_zeros": zeros}
        return pa.RecordBatch.from_pylist([row], schema=FILE.schema())

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        return None, None

    def resync(self, window: Window, at: int, context: None) -> tuple[int, int]:
        return -1, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: None
    ) -> Iterator[Chunk]:
        for column in self.columns:
            if column.name not in rows.schema.names:
                raise UsageError(f"{self.name} needs a column {column.name!r}")
        schema = self.tables["rows"].schema()
        given = rows.select(schema.names).cast(schema).to_pylist()
        for row in given:
            for column in self.columns:
                if row[column.name] is None and not column.nullable:
                    raise UsageError(f"{self.name}: null in column {column.name!r}, where none is allowed")
        kept = frames is not None and frames.num_rows > 0 and "payload" in frames.schema.names
        stored = frames["payload"][0].as_py() if kept and frames is not None else None
        if stored is not None and self.parse(stored) == given:
            yield stored
        elif file is not None and file.num_rows and file["frames"][0].as_py() == 0 and not given:
            yield file["trailing"][0].as_py() + bytes(file["trailing_zeros"][0].as_py())
        else:
            try:
                yield self.form(given)
            except DescriptionError as error:
                raise UsageError(f"{self.name}: {error}") from None
