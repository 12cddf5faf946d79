"""Files that are arrays of fixed-width entries, without header or checksums, and possibly with preallocated zeros at the end.

A codec of such a file consists of the description of an entry, its columns, and the rules for the order of entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Bools, Bytes, Int64s
from logwright.codec.base import Codec, Match
from logwright.codec.describe import Struct, dtype_of
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import Options
from logwright.codec.single_frame import conform, ending_bytes, single_value
from logwright.codec.table import RAW, Column, Table, ending, extent
from logwright.codec.window import Chunk, Decoded, Frames, Window

Entries = npt.NDArray[Any]
Findings = Iterable[tuple[Bools, str]]
"""Masks of the entries that break a rule, each with its message."""

_MOST_FAULTS = 100
"""The number of entries that break the same rule and are reported one by one."""
_BATCH = 1 << 20
"""The number of entries decoded at a time."""
_STEP, _LONGEST_STEP = 1 << 16, 1 << 20
"""Bytes that are read at a time in the search for the end of the entries: first, and at most."""
_FEW = 256
"""At most this many bytes are searched at once for the last one that is not zero."""
_INT64_MAX = (1 << 63) - 1

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the entry starts", nullable=False),
        Column("size", pa.int32(), "size of the entry in bytes"),
        RAW,
    ),
    "One row per entry.",
)
FILE = Table(
    "file",
    (
        Column("base", pa.int64(), "the number in the file's name, to which relative fields are added"),
        *extent("entries"),
        *ending("entry"),
    ),
    "One row.",
)


@dataclass
class FixedContext:
    """`base`: the number in the file's name. `last`: whether the file is the one being written; None if unknown."""

    base: int | None = None
    last: bool | None = None
    used: int | None = None
    """The size of the file without the zeros at its end; None before `FixedCodec.prepare`."""
    before: tuple[int, Entries] | None = None
    """The last entry of the previous window, and the byte of the file where it ends."""


def entries_of(entry: Struct, data: bytes) -> Entries:
    """Return the complete entries at the start of bytes."""
    return np.frombuffer(data, entry.head_dtype, len(data) // entry.head_size)


class FixedCodec(Codec):
    """A codec of fixed-width entries.

    - `pattern` matches the file's name. Its group, if any, is the base number.
    - `relative` maps columns to fields that hold the column minus the base number.
    - `wrong(entries, base)` finds entries that contradict their file.
    - `version` is a field whose high byte must be 0.
    - `allocated`: the system preallocates the file with zeros. Otherwise zeros at the end are damage.
    - `numbered` is a column that counts the entries, starting at the base number, which is then in bytes.
    - `impossible` finds bytes that are not an entry, and says why.
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
        impossible: tuple[Callable[[Entries], Bools], str] | None = None,
    ) -> None:
        self.name, self.title, self.pattern, self.columns = name, title, pattern, columns
        self.wrong, self.system, self.relative = wrong, system, dict(relative or {})
        self.version, self.allocated = version, allocated
        self.numbered, self.impossible = numbered, impossible
        self.structures = (entry,)
        self.dtype = dtype_of(entry)
        self.tables = {"rows": Table("rows", columns, "One row per entry."), "frames": FRAMES, "file": FILE}

    def explain(self, window: Window, context: FixedContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        nodes = list(super().explain(window, context, focus, frame=frame))
        fields = {field: column for column, field in self.relative.items()}
        for node in (child for entry in nodes for child in entry.children):
            if node.name in fields and node.value is not None and not node.broken:
                node.meaning = f"{fields[node.name]} {node.value + (context.base or 0)}"
        if frame and nodes:
            nodes[0].row = 0
        return nodes

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if self.pattern.fullmatch(name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> FixedContext:
        match = self.pattern.fullmatch(name)
        base = hints.get("base_offset", int(match[1]) if match and match.groups() else None)
        return FixedContext(base if base is None or base <= _INT64_MAX else None, hints.get("last"))

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: FixedContext) -> None:
        context.used = end_without_zeros(read, 0, size)

    def scan(self, window: Window, at: int, context: FixedContext, *, check: bool = True) -> Frames:
        size = self.dtype.itemsize
        data = window.data[at:]
        first = window.offset + at
        # The number of bytes from here on, with and without the zeros at the end of the file.
        left = window.size - first
        used = self._used(window, context) - first
        count = max(-(-used // size), 0)
        if count * size > left:
            count -= 1
        if not count and left == size and self.allocated and not first and self.impossible is None:
            # The file is a single zero entry; it was not preallocated.
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
            field = self.version
            count = _first(entries, lambda entries: entries[field].astype(np.int64) >> 8 > 0)
            if count < len(entries):
                text = f"version {int(entries[self.version][count])}, expected 0"
                damage = Fault(self.name, first + count * size, size, Kind.MAGIC, text, system=self.system)
                entries = entries[:count]
        if self.impossible is not None:
            count = _first(entries, self.impossible[0])
            if count < len(entries):
                position = first + count * size
                damage = Fault(self.name, position, size, Kind.LENGTH, self.impossible[1], system=self.system)
                entries = entries[:count]
        faults = list(self._order(entries, first, context)) if check else []
        if self.relative and context.base is None and not first:
            text = "the file's name has no base offset; 0 is assumed"
            faults.append(Fault(self.name, 0, 0, Kind.LINK, text, Severity.INFO))
        if damage is not None and damage.kind is Kind.PADDING and self.allocated:
            # Preallocated zeros hold no entries.
            faults.append(damage)
            damage = None
        stop = at + count * size
        start = np.arange(at, stop, size, dtype=np.int64)
        return Frames(start, start + size, entries, stop, 0 if damage is not None else need, damage, faults)

    def _used(self, window: Window, context: FixedContext) -> int:
        """Return the size of the file without the zeros at its end."""
        if context.used is not None:
            return min(context.used, window.size)
        return window.offset + without_zeros(window.data) if window.final else window.size

    def _ending(self, context: FixedContext, offset: int, partial: int, left: int) -> Fault | None:
        """Return the fault of the `left` bytes after the last entry: `partial` bytes of an entry, then zeros."""
        if partial:
            text = f"{plural.count(partial, 'byte')} at the end, too few for an entry of {self.dtype.itemsize} bytes"
            return Fault(self.name, offset, left, Kind.TRUNCATED, text, Severity.WARNING, self.system)
        if not left:
            return None
        if not self.allocated:
            text = (
                f"{plural.count(left, 'zero byte')} at the end, but the system does not preallocate this file"
            )
            return Fault(self.name, offset, left, Kind.PADDING, text, system=self.system)
        text, severity, system = "preallocated zeros", Severity.INFO, ""
        if left % self.dtype.itemsize:
            text += f", not a multiple of {self.dtype.itemsize}"
            severity, system = Severity.WARNING, self.system
        elif context.last is False:
            text += ", in a file that is not the last of its kind"
            severity, system = Severity.WARNING, "the system reads them as entries if it trusts the file"
        return Fault(self.name, offset, left, Kind.PADDING, text, severity, system)

    def _order(self, entries: Entries, first: int, context: FixedContext) -> Iterator[Fault]:
        size, base = self.dtype.itemsize, context.base or 0
        # The first entry is compared with the last one of the previous window.
        behind = context.before is not None and context.before[0] == first
        if behind:
            assert context.before is not None
            entries = np.concatenate([context.before[1], entries], dtype=self.dtype)
            first -= size
        if len(entries):
            context.before = first + len(entries) * size, entries[-1:].copy()
        for mask, text in (*self._range(entries, base), *self.wrong(entries, base)):
            mask[:behind] = False
            bad = np.flatnonzero(mask)
            for i in bad[:_MOST_FAULTS].tolist():
                yield Fault(self.name, first + i * size, size, Kind.ORDER, text, system=self.system)
            if len(bad) > _MOST_FAULTS:
                at, end = (first + int(bad[i]) * size for i in (_MOST_FAULTS, -1))
                more = f"{text}: {plural.count(len(bad) - _MOST_FAULTS, 'more entry')} like this"
                yield Fault(self.name, at, end + size - at, Kind.ORDER, more, system=self.system)

    def _range(self, entries: Entries, base: int) -> Findings:
        for column, field in self.relative.items():
            number = entries[field].astype(np.int64)
            yield number < 0, f"{column} is below {base}, the number in the file's name"
            yield number > _INT64_MAX - base, f"{column} exceeds 64 bits"

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: FixedContext
    ) -> Iterator[Decoded]:
        schema = self.tables[table].schema(columns)
        for at in range(0, len(frames), _BATCH):
            batch = frames.pick(slice(at, at + _BATCH))
            arrays = [
                pa.nulls(len(batch), field.type)
                if field.name == "raw"
                else pa.array(self._values(window, batch, table, field.name, context)).cast(field.type)
                for field in schema
            ]
            yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _values(
        self, window: Window, frames: Frames, table: str, column: str, context: FixedContext
    ) -> Int64s:
        if table == "frames":
            return frames.start + window.offset if column == "position" else frames.end - frames.start
        if column == self.numbered:
            quotient, rest = divmod(context.base or 0, self.dtype.itemsize)
            return quotient + (frames.start + window.offset + rest) // self.dtype.itemsize
        values: Int64s = frames.header[self.relative.get(column, column)].astype(np.int64)
        if column not in self.relative:
            return values
        # If this wraps, the scan reports a fault, and encoding wraps back.
        return values + np.int64(context.base or 0)

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: FixedContext
    ) -> Mapping[str, Any]:
        return {"base": context.base}

    def resync(self, window: Window, at: int, context: FixedContext) -> tuple[int, int]:
        context.before = None
        size = self.dtype.itemsize
        start = at + -(window.offset + at) % size
        used = min(self._used(window, context) - window.offset, len(window.data))
        if start >= used:
            return -1, 0
        if self.impossible is not None:
            impossible = self.impossible[0]
            length = min(-(-(used - start) // size), (len(window.data) - start) // size) * size
            entries = window.data[start : start + length].view(self.dtype)
            first = _first(entries, lambda entries: ~impossible(entries))
            if first < len(entries):
                return start + first * size, 0
            # The next window has the whole of an entry that this one cuts.
            return -1, len(window.data) - start - length
        return start, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: FixedContext
    ) -> Iterator[Chunk]:
        base = single_value(file, "base")
        if base is None:
            base = context.base or 0
        rows = conform(self.name, self._numbered(rows, base, frames is None), self.tables["rows"])
        starts = range(0, rows.num_rows, _BATCH)
        entries = (self._entries(rows.slice(at, _BATCH), base, at, alone=file is None) for at in starts)
        yield from with_damage(entries, self.dtype.itemsize, frames)
        yield from ending_bytes(file)

    def _entries(self, rows: pa.Table, base: int, first: int, *, alone: bool) -> bytes:
        """Encode rows. `first` is the number of the first one."""
        out = np.zeros(rows.num_rows, self.dtype)
        for column in self.columns:
            if column.name == self.numbered:
                continue
            values = rows[column.name].fill_null(0).cast(pa.int64()).to_numpy()
            field = self.relative.get(column.name, column.name)
            if column.name in self.relative:
                values = values - np.int64(base)
                # No sound file has values below its base, but a damaged file is written as it was.
                _fits(self.name, column.name, values, out.dtype[field], first, 0 if alone else None, base)
            else:
                _fits(self.name, column.name, values, out.dtype[field], first)
            out[field] = values
        return out.tobytes()

    def _numbered(self, rows: pa.Table, base: int, alone: bool) -> pa.Table:
        """Add the `numbered` column if it is absent. Raises `UsageError` for a number that does not match the row's position."""
        if self.numbered is None:
            return rows
        numbers = base // self.dtype.itemsize + np.arange(rows.num_rows)
        column = self.tables["rows"][self.numbered]
        if self.numbered not in rows.column_names:
            return rows.append_column(column.field(), pa.array(numbers, column.type))
        values = np.asarray(rows[self.numbered].cast(pa.int64()).fill_null(-1), np.int64)
        wrong = np.flatnonzero(values != numbers)
        if alone and len(wrong):
            i = int(wrong[0])
            raise UsageError(
                f"{self.name}: {self.numbered} of row {i} is {values[i]}, expected {numbers[i]}",
                advice="The entries of a file have no gaps, and start with the number in its name",
            )
        return rows


def _fits(
    codec: str,
    column: str,
    numbers: Int64s,
    dtype: np.dtype[Any],
    first: int,
    low: int | None = None,
    base: int | None = None,
) -> None:
    info = np.iinfo(dtype)
    bad = np.flatnonzero((numbers < (info.min if low is None else low)) | (numbers > info.max))
    if len(bad):
        i = int(bad[0])
        minus = "" if base is None else f" minus {base} (the number in the file's name)"
        raise UsageError(
            f"{codec}: {column} of row {first + i}{minus} is {numbers[i]}, which does not fit {8 * dtype.itemsize} bits",
            advice="" if base is None else "Check that the file is named after the segment of the rows",
        )


def with_damage(pieces: Iterable[bytes], size: int, frames: pa.Table | None) -> Iterator[bytes]:
    """Yield the entries, with the damaged ranges of the frames table between them."""
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


def _first(entries: Entries, test: Callable[[Entries], Bools]) -> int:
    """Return the index of the first entry that passes a test, or the number of entries. Each step tests twice as many entries, so a scan
    that ends early costs no more than the entries before its end."""
    at, step = 0, 64
    while at < len(entries):
        passed = test(entries[at : at + step])
        if passed.any():
            return at + int(passed.argmax())
        at, step = at + step, 2 * step
    return len(entries)


def without_zeros(data: Bytes) -> int:
    """Return the size without the zeros at the end."""
    return end_without_zeros(lambda at, size: data[at : at + size], 0, len(data))


def _content_end(data: Bytes) -> int:
    """Return the size without the zeros at the end. At least one byte must not be zero."""
    start, stop = 0, len(data)
    while stop - start > _FEW:
        middle = (start + stop) // 2
        start, stop = (middle, stop) if data[middle:stop].max() else (start, middle)
    return start + int(np.flatnonzero(data[start:stop])[-1]) + 1


def end_without_zeros(read: Callable[[int, int], Bytes], start: int, end: int) -> int:
    """Return where the range of a file ends without the zeros at its end. `read(at, size)` returns bytes of the file."""
    step = _STEP
    while end > start:
        at = max(start, end - step)
        data = read(at, end - at)
        if data.max(initial=0):
            return at + _content_end(data)
        end, step = at, min(2 * step, _LONGEST_STEP)
    return start
