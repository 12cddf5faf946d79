"""Files that are arrays of entries of one fixed width: no header, no checksum, perhaps a preallocated tail of zeros.

A codec of such a file is its entry's description, the columns that its fields become, and the order that entries must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Chunk, Decoded, Frames, Match, Window
from logwright.codec.describe import Struct, dtype_of
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import Option, Options
from logwright.codec.table import Column, Table

Entries = npt.NDArray[Any]

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the entry starts", nullable=False),
        Column("size", pa.int32(), "bytes of the entry", nullable=False),
    ),
    "One row an entry.",
)
FILE = Table(
    "file",
    (
        Column("base", pa.int64(), "what relative fields count from: the number in the file's name"),
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), "entries", nullable=False),
        Column("trailing", pa.binary(), "what is no entry at the end, without the zeros after it", nullable=False),
        Column("trailing_zeros", pa.int64(), "zero bytes at the end: the file was allocated ahead", nullable=False),
    ),
    "One row.",
)


@dataclass
class FixedContext:
    """`base`: the number in the file's name."""

    base: int | None = None
    live: bool | None = None
    last: bool = False
    clean: bool | None = None


@dataclass(frozen=True)
class FixedCodec:
    """A codec of fixed-width entries.

    `relative` maps columns to the field that is the column less the number in the file's name. `wrong(entries)` gives a mask of
    entries that contradict the one before them, and the sentence that says so; `version` a field that must be 0.
    """

    name: str
    title: str
    entry: Struct
    pattern: re.Pattern[str]
    columns: tuple[Column, ...]
    relative: Mapping[str, str]
    wrong: Callable[[Entries], tuple[npt.NDArray[np.bool_], str]]
    system: str
    version: str | None = None
    options: tuple[Option, ...] = ()
    whole: bool = True

    @property
    def structures(self) -> tuple[Struct, ...]:
        return (self.entry,)

    @property
    def tables(self) -> Mapping[str, Table]:
        return {"rows": Table("rows", self.columns, "One row an entry."), "frames": FRAMES, "file": FILE}

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if self.pattern.fullmatch(name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> FixedContext:
        found = self.pattern.fullmatch(name)
        base = int(found[1]) if found and found.groups() else None
        known = {key: value for key, value in hints.items() if key in ("live", "last", "clean")}
        return FixedContext(hints.get("base_offset", base), **known)

    def scan(self, window: Window, at: int, context: FixedContext, *, check: bool = True) -> Frames:
        dtype = dtype_of(self.entry)
        size = dtype.itemsize
        used = _without_zeros(window.data, size)
        count = -(-used // size) if -(-used // size) * size <= len(window.data) else used // size
        entries = window.data[: count * size].view(dtype)
        faults: list[Fault] = []
        if self.version is not None and count:
            # Kafka's reader looks at the first byte only.
            odd = np.flatnonzero(entries[self.version].astype(np.int64) >> 8 > 0)
            if len(odd):
                count = int(odd[0])
                text = f"version {int(entries[self.version][count])}, 0 was expected"
                stop = count * size
                fault = Fault(self.name, stop, len(window.data) - stop, Kind.MAGIC, text, system=self.system)
                return self._frames(entries[:count], size, stop, fault, faults)
        if count > 1:
            mask, text = self.wrong(entries)
            for i in np.flatnonzero(mask)[:100].tolist():
                faults.append(Fault(self.name, (i + 1) * size, size, Kind.ORDER, text, system=self.system))
        damage = None
        if used > count * size:
            text = f"{used - count * size} bytes at the end are no whole entry of {size} bytes"
            damage = Fault(self.name, count * size, used - count * size, Kind.TRUNCATED, text, Severity.WARNING, self.system)
        elif len(window.data) - count * size:
            text = f"{len(window.data) - count * size} zero bytes allocated ahead"
            faults.append(Fault(self.name, count * size, len(window.data) - count * size, Kind.PADDING, text, Severity.INFO))
        return self._frames(entries, size, count * size, damage, faults)

    def _frames(self, entries: Entries, size: int, stop: int, damage: Fault | None, faults: list[Fault]) -> Frames:
        start = np.arange(len(entries), dtype=np.int64) * size
        return Frames(start, start + size, entries, stop, 0, damage, faults)

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: FixedContext
    ) -> Iterator[Decoded]:
        arrays = []
        for name in columns:
            column = self.tables[table][name]
            if table == "frames":
                values = frames.start + window.offset if name == "position" else frames.end - frames.start
            else:
                field = self.relative.get(name, name)
                values = frames.header[field].astype(np.int64)
                if name in self.relative:
                    values = values + (context.base or 0)
            arrays.append(pa.array(values).cast(column.type))
        schema = self.tables[table].schema(columns)
        if not arrays:
            return
        yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: FixedContext
    ) -> pa.RecordBatch:
        row = {"base": context.base, "size": size, "frames": frames, "trailing": tail, "trailing_zeros": zeros}
        return pa.RecordBatch.from_pylist([row], schema=FILE.schema())

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        return None, None

    def resync(self, window: Window, at: int, context: FixedContext) -> tuple[int, int]:
        return -1, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: FixedContext
    ) -> Iterator[Chunk]:
        base = context.base or 0
        if file is not None and file.num_rows and file["base"][0].as_py() is not None:
            base = file["base"][0].as_py()
        out = np.zeros(rows.num_rows, dtype_of(self.entry))
        for column in self.columns:
            if column.name not in rows.schema.names:
                if column.nullable:
                    continue
                raise UsageError(f"{self.name} needs a column {column.name!r}")
            values = rows[column.name].combine_chunks().cast(column.type).cast(pa.int64())
            if values.null_count:
                raise UsageError(f"{self.name}: null in column {column.name!r}, where none is allowed")
            field = self.relative.get(column.name, column.name)
            numbers = values.to_numpy() - (base if column.name in self.relative else 0)
            _fits(self.name, column.name, numbers, out.dtype[field])
            out[field] = numbers
        yield out.tobytes()
        if file is not None and file.num_rows:
            yield file["trailing"][0].as_py() or b""
            yield bytes(file["trailing_zeros"][0].as_py() or 0)


def _fits(codec: str, column: str, numbers: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> None:
    info = np.iinfo(dtype)
    bad = np.flatnonzero((numbers < info.min) | (numbers > info.max))
    if len(bad):
        raise UsageError(
            f"{codec}: {column} of row {int(bad[0])} does not fit {8 * dtype.itemsize} bits",
            advice="Is the number in the file's name right?",
        )


def _without_zeros(data: npt.NDArray[np.uint8], size: int) -> int:
    """Bytes up to the last that is not zero. A single entry of zeros is one."""
    filled = np.flatnonzero(data)
    if len(filled):
        return int(filled[-1]) + 1
    return size if len(data) == size else 0
