"""Files that are arrays of entries of one fixed width: no header, no checksum, perhaps a tail of zeros allocated ahead. They are read and
written by window.

A codec of such a file is its entry's description, the columns that its fields become, and the order that entries must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Codec, Match
from logwright.codec.describe import Struct, dtype_of
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import Options
from logwright.codec.single_frame import conform, single_value
from logwright.codec.table import RAW, Column, Table, ending, extent
from logwright.codec.window import Bytes, Chunk, Decoded, Frames, Window, Zeros

Entries = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Findings = Iterable[tuple[Mask, str]]
"""Masks over all entries of what is wrong with each, and the sentence that says so."""

_MOST_FAULTS = 100
"""So many findings of a kind are told one by one."""
_PIECE = 1 << 20
"""Entries that are decoded at a time."""
_STEP = 1 << 16
_INT64_MAX = (1 << 63) - 1

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the entry starts", nullable=False),
        Column("size", pa.int32(), "bytes of the entry"),
        RAW,
    ),
    "One row an entry.",
)
FILE = Table(
    "file",
    (
        Column("base", pa.int64(), "what relative fields count from: the number in the file's name"),
        *extent("entries"),
        *ending("entry"),
    ),
    "One row.",
)


@dataclass
class FixedContext:
    """`base`: the number in the file's name. `last`: the file is the one being written; None where not known."""

    base: int | None = None
    last: bool | None = None
    used: int | None = None
    """Bytes up to the last that is not zero, in the whole file; None before `FixedCodec.prepare`."""
    before: tuple[int, Entries] | None = None
    """The last entry of the window before, and the byte of the file where it ends."""


class FixedCodec(Codec):
    """A codec of fixed-width entries.

    `relative` maps columns to the field that is the column less the number in the file's name. `wrong(entries, base)` finds
    entries that contradict their file; `version` is a field whose first byte must not be above 0. `pattern` is that of the file's
    name, with one group where it has a number. `allocated`: the system
    makes the file larger than it is, filled with zeros; elsewhere zeros at the end are damage.
    `numbered` is a column that counts the entries: from the number in the file's name, which is then in bytes. `impossible`: which entries
    are none, and the sentence that says so. `count`: a file has exactly this number of entries.
    """

    scans_empty = True

    def __init__(
        self,
        *,
        name: str,
        title: str,
        entry: Struct,
        pattern: re.Pattern[str],
        columns: tuple[Column, ...],
        wrong: Callable[[Entries, int], Findings],
        system: str,
        relative: Mapping[str, str] | None = None,
        version: str | None = None,
        allocated: bool = True,
        numbered: str | None = None,
        impossible: tuple[Callable[[Entries], Mask], str] | None = None,
        count: int | None = None,
    ) -> None:
        self.name, self.title, self.pattern, self.columns = name, title, pattern, columns
        self.wrong, self.system, self.relative = wrong, system, dict(relative or {})
        self.version, self.allocated = version, allocated
        self.numbered, self.impossible, self.count = numbered, impossible, count
        self.single_frame = count is not None
        self.structures = (entry,)
        self.dtype = dtype_of(entry)
        self.tables = {
            "rows": Table("rows", columns, "One row an entry."),
            "frames": FRAMES,
            "file": FILE,
        }

    def explain(self, window: Window, context: FixedContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        nodes = list(super().explain(window, context, focus, frame=frame))
        fields = {field: column for column, field in self.relative.items()}
        for node in (child for one in nodes for child in one.children):
            if node.name in fields and node.value is not None and not node.broken:
                node.meaning = f"{fields[node.name]} {node.value + (context.base or 0)}"
        if frame and nodes:
            nodes[0].row = 0
        return nodes

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if self.pattern.fullmatch(name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> FixedContext:
        found = self.pattern.fullmatch(name)
        named = int(found[1]) if found and found.groups() else None
        base = hints.get("base_offset", named)
        return FixedContext(base if base is None or base <= _INT64_MAX else None, hints.get("last"))

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: FixedContext) -> None:
        end = size
        while end and not (found := _without_zeros(read(max(0, end - _STEP), min(_STEP, end)))):
            end = max(0, end - _STEP)
        context.used = max(0, end - _STEP) + found if end else 0

    def scan(self, window: Window, at: int, context: FixedContext, *, check: bool = True) -> Frames:
        size = self.dtype.itemsize
        data = window.data[at:]
        first = window.offset + at
        if self.count is not None and window.size != self.count * size:
            text = f"the file has {window.size} bytes, expected {self.count * size}"
            kind = Kind.TRUNCATED if window.size < self.count * size else Kind.PADDING
            return self._none(at, Fault(self.name, first, len(data), kind, text, system=self.system))
        # Of the bytes from here on, the ones before the zeros at the end of the file, and all.
        left = window.size - first
        used = left if self.count is not None else self._used(window, context) - first
        count = max(-(-used // size), 0)
        if count * size > left:
            count -= 1
        if not count and left == size and self.allocated and not first and self.impossible is None:
            # A file of one entry that is zero: it was not allocated ahead.
            count, used = 1, size
        here = min(count, len(data) // size)
        entries = data[: here * size].view(self.dtype)
        damage, need = None, 0
        if here < count and not window.final:
            need = size
        elif here == count:
            damage = self._ending(
                context, first + count * size, max(used - count * size, 0), left - count * size
            )
        count = here
        if self.version is not None:
            odd = np.flatnonzero(entries[self.version].astype(np.int64) >> 8 > 0)
            if len(odd):
                count = int(odd[0])
                text = f"version {int(entries[self.version][count])}, 0 was expected"
                damage = Fault(self.name, first + count * size, size, Kind.MAGIC, text, system=self.system)
                entries = entries[:count]
        if self.impossible is not None:
            odd = np.flatnonzero(self.impossible[0](entries))
            if len(odd):
                count = int(odd[0])
                place = first + count * size
                damage = Fault(self.name, place, size, Kind.LENGTH, self.impossible[1], system=self.system)
                entries = entries[:count]
        faults = list(self._order(entries, first, context)) if check else []
        if self.relative and context.base is None and not first:
            text = "the file's name has no offset to count from: 0 is taken"
            faults.append(Fault(self.name, 0, 0, Kind.LINK, text, Severity.INFO))
        if damage is not None and damage.kind is Kind.PADDING and self.allocated:
            # Nothing is lost with them.
            faults.append(damage)
            damage = None
        stop = at + count * size
        start = np.arange(at, stop, size, dtype=np.int64)
        return Frames(start, start + size, entries, stop, 0 if damage is not None else need, damage, faults)

    def _used(self, window: Window, context: FixedContext) -> int:
        """Return the bytes of the file before the zeros at its end."""
        if context.used is not None:
            return min(context.used, window.size)
        return window.offset + _without_zeros(window.data) if window.final else window.size

    def _none(self, at: int, damage: Fault) -> Frames:
        empty = np.empty(0, np.int64)
        return Frames(empty, empty, np.empty(0, self.dtype), at, 0, damage)

    def _ending(self, context: FixedContext, offset: int, odd: int, left: int) -> Fault | None:
        """What is wrong with the bytes that are no entries: `odd` of them, and zeros up to `left`."""
        if odd:
            text = f"{odd} bytes at the end are no whole entry of {self.dtype.itemsize} bytes"
            return Fault(self.name, offset, left, Kind.TRUNCATED, text, Severity.WARNING, self.system)
        if not left:
            return None
        if not self.allocated:
            text = f"{left} zero bytes at the end, where the system puts none"
            return Fault(self.name, offset, left, Kind.PADDING, text, system=self.system)
        text, severity, system = f"{left} zero bytes allocated ahead", Severity.INFO, ""
        if left % self.dtype.itemsize:
            text += f", not a multiple of {self.dtype.itemsize}"
            severity, system = Severity.WARNING, self.system
        elif context.last is False:
            text += ", in a file that is not the last of its kind"
            severity, system = Severity.WARNING, "the system takes them for entries where it trusts the file"
        return Fault(self.name, offset, left, Kind.PADDING, text, severity, system)

    def _order(self, entries: Entries, first: int, context: FixedContext) -> Iterator[Fault]:
        size, base = self.dtype.itemsize, context.base or 0
        # With the entry before, which the first one is compared with.
        behind = context.before is not None and context.before[0] == first
        if behind:
            assert context.before is not None
            entries = np.concatenate([context.before[1], entries], dtype=self.dtype)
            first -= size
        if len(entries):
            context.before = first + len(entries) * size, entries[-1:].copy()
        for mask, text in (*self._range(entries, base), *self.wrong(entries, base)):
            mask[:behind] = False
            found = np.flatnonzero(mask)
            for i in found[:_MOST_FAULTS].tolist():
                yield Fault(self.name, first + i * size, size, Kind.ORDER, text, system=self.system)
            if len(found) > _MOST_FAULTS:
                at, end = (first + int(found[i]) * size for i in (_MOST_FAULTS, -1))
                more = f"{text}: {len(found) - _MOST_FAULTS} more entries of which that is true"
                yield Fault(self.name, at, end + size - at, Kind.ORDER, more, system=self.system)

    def _range(self, entries: Entries, base: int) -> Findings:
        for column, field in self.relative.items():
            number = entries[field].astype(np.int64)
            yield number < 0, f"{column} is below {base}, the number in the file's name"
            yield number > _INT64_MAX - base, f"{column} is above what 64 bits hold"

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: FixedContext
    ) -> Iterator[Decoded]:
        schema = self.tables[table].schema(columns)
        for at in range(0, len(frames), _PIECE):
            piece = frames.pick(slice(at, at + _PIECE))
            arrays = [
                pa.nulls(len(piece), one.type)
                if one.name == "raw"
                else pa.array(self._values(window, piece, table, one.name, context)).cast(one.type)
                for one in schema
            ]
            yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _values(
        self, window: Window, frames: Frames, table: str, column: str, context: FixedContext
    ) -> npt.NDArray[np.int64]:
        if table == "frames":
            return frames.start + window.offset if column == "position" else frames.end - frames.start
        if column == self.numbered:
            return (frames.start + window.offset + (context.base or 0)) // self.dtype.itemsize
        values: npt.NDArray[np.int64] = frames.header[self.relative.get(column, column)].astype(np.int64)
        if column not in self.relative:
            return values
        # Where that wraps, the scan has found a fault, and encoding wraps back.
        return values + np.int64(context.base or 0)

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: FixedContext
    ) -> pa.RecordBatch:
        row = {
            "base": context.base,
            "size": size,
            "frames": frames,
            "trailing": tail,
            "trailing_zeros": zeros,
        }
        return pa.RecordBatch.from_pylist([row], schema=FILE.schema())

    def resync(self, window: Window, at: int, context: FixedContext) -> tuple[int, int]:
        """The next entry: one that is bad says nothing about others."""
        context.before = None
        size = self.dtype.itemsize
        place = -(-at // size) * size
        used = min(self._used(window, context) - window.offset, len(window.data))
        if self.count is not None or place >= used:
            return -1, 0
        if self.impossible is not None:
            whole = (min(-(-used // size) * size, len(window.data)) - place) // size * size
            entries = window.data[place : place + whole].view(self.dtype)
            possible = np.flatnonzero(~self.impossible[0](entries))
            return (place + int(possible[0]) * size, 0) if len(possible) else (-1, 0)
        return place, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: FixedContext
    ) -> Iterator[Chunk]:
        base = single_value(file, "base")
        if base is None:
            base = context.base or 0
        given = conform(self.name, self._numbered(rows, base, frames is None), self.tables["rows"])
        if self.count is not None and file is None and given.num_rows != self.count:
            raise UsageError(f"{self.name}: {given.num_rows} rows, the file has exactly {self.count}")
        places = range(0, given.num_rows, _PIECE)
        entries = (self._entries(given.slice(at, _PIECE), base, at, alone=file is None) for at in places)
        yield from _around(entries, self.dtype.itemsize, frames)
        yield single_value(file, "trailing") or b""
        yield Zeros(single_value(file, "trailing_zeros") or 0)

    def _entries(self, rows: pa.Table, base: int, first: int, *, alone: bool) -> bytes:
        """Return rows as entries. `first` is the number of the first one."""
        out = np.zeros(rows.num_rows, self.dtype)
        for column in self.columns:
            if column.name == self.numbered:
                continue
            values = rows[column.name].fill_null(0).cast(pa.int64()).to_numpy()
            field = self.relative.get(column.name, column.name)
            if column.name in self.relative:
                values = values - np.int64(base)
                # Below its base no file should have any, but a damaged one is written as it was.
                _fits(self.name, column.name, values, out.dtype[field], first, 0 if alone else None, base)
            else:
                _fits(self.name, column.name, values, out.dtype[field], first)
            out[field] = values
        return out.tobytes()

    def _numbered(self, rows: pa.Table, base: int, alone: bool) -> pa.Table:
        """The rows with their numbers, which may be left out. Raises `UsageError` for a number that is not that of its place."""
        if self.numbered is None:
            return rows
        numbers = base // self.dtype.itemsize + np.arange(rows.num_rows)
        column = self.tables["rows"][self.numbered]
        if self.numbered not in rows.column_names:
            return rows.append_column(column.field(), pa.array(numbers, column.type))
        given = np.asarray(rows[self.numbered].cast(pa.int64()).fill_null(-1), np.int64)
        odd = np.flatnonzero(given != numbers)
        if alone and len(odd):
            i = int(odd[0])
            raise UsageError(
                f"{self.name}: {self.numbered} of row {i} is {given[i]}, expected {numbers[i]} at this place",
                advice="A file holds its entries without gaps, from the number in its name on",
            )
        return rows


def _fits(
    codec: str,
    column: str,
    numbers: npt.NDArray[np.int64],
    dtype: np.dtype[Any],
    first: int,
    low: int | None = None,
    base: int | None = None,
) -> None:
    info = np.iinfo(dtype)
    bad = np.flatnonzero((numbers < (info.min if low is None else low)) | (numbers > info.max))
    if len(bad):
        i = int(bad[0])
        less = "" if base is None else f" less {base}, the number in the file's name"
        raise UsageError(
            f"{codec}: {column} of row {first + i}{less}, {numbers[i]}, does not fit {8 * dtype.itemsize} bits",
            advice="" if base is None else "Is the file named after the segment that the rows are of?",
        )


def _around(pieces: Iterable[bytes], size: int, frames: pa.Table | None) -> Iterator[bytes]:
    """The entries, given in pieces, with the damaged stretches of the frames table between them."""
    if (
        frames is None
        or not {"raw", "size"} <= set(frames.schema.names)
        or frames["raw"].null_count == len(frames)
    ):
        yield from pieces
        return
    at, entries = 0, b"".join(pieces)
    before_each = np.cumsum(frames["size"].is_valid().to_numpy()) * size
    for i in np.flatnonzero(frames["raw"].is_valid().to_numpy()).tolist():
        before = int(before_each[i])
        yield entries[at:before]
        yield frames["raw"][i].as_py()
        at = before
    yield entries[at:]


def _without_zeros(data: Bytes) -> int:
    """Bytes up to the last that is not zero."""
    end = len(data)
    while end:
        block = np.flatnonzero(data[max(0, end - _STEP) : end])
        if len(block):
            return max(0, end - _STEP) + int(block[-1]) + 1
        end = max(0, end - _STEP)
    return 0
