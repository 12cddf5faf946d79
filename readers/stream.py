"""Iterate over the rows of one file as record batches, past damage as the mode says, with all faults added to the report.

Modes have Spark's names and meanings. `FAILFAST` raises at the first error, after the rows before it. `PERMISSIVE` returns all
undamaged rows and one row per damaged region: `_corrupt_record` holds its bytes (up to 64 KiB), `_corrupt_offset` and
`_corrupt_length` its place; the other columns are null. `DROPMALFORMED` returns the undamaged rows only. `AS_SYSTEM`, for directories,
returns what the real system would serve: `readers.plan` chooses the ranges, and they are read as in `DROPMALFORMED`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.engine.correct import Corrector, OfFile
from logwright.codec.fault import DamageError, Fault, Kind, LogwrightError, Severity, UsageError, did_you_mean
from logwright.codec.frames.walk import WINDOW, Hole, Stretch, Walk, zero_filled
from logwright.codec.table import Table
from logwright.codec.window import Frames, RowFrames, Window
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.readahead import walk_ahead
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source

if TYPE_CHECKING:
    from logwright.readers.filter import Filter

RECORD_LIMIT = 64 << 10
"""Limit of `_corrupt_record` in bytes."""
_NAMED = 4
"""Number of flipped bits to name in the detail of a fault."""
_RAW_LIMIT = 1 << 20
"""Limit of one `raw` value of a damaged region in bytes."""
CORRUPT = (
    pa.field("_corrupt_record", pa.binary()),
    pa.field("_corrupt_offset", pa.int64()),
    pa.field("_corrupt_length", pa.int64()),
)
CORRUPT_NAMES = tuple(field.name for field in CORRUPT)


class Mode(StrEnum):
    """Handling of damage: raise, add a row per damaged region, skip it, or return what the system would serve."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    AS_SYSTEM = "AS_SYSTEM"

    @classmethod
    def of(cls, name: str) -> Mode:
        """Return the mode of this name, in any case. Raises `UsageError`."""
        try:
            return cls(str(name).upper())
        except ValueError:
            raise UsageError(f"unknown mode {name!r}", advice=did_you_mean(str(name).upper(), cls)) from None


def stored_columns(
    columns: Sequence[str] | str | None, mode: Mode, added: Collection[str] = CORRUPT_NAMES
) -> Sequence[str] | str | None:
    """Return the requested columns without those of damaged regions, which mode `PERMISSIVE` adds in any case."""
    if mode is not Mode.PERMISSIVE or not isinstance(columns, Sequence):
        return columns
    names = [part.strip() for part in columns.split(",")] if isinstance(columns, str) else list(columns)
    return [name for name in names if name not in added] if set(added) & set(names) else columns


@dataclass(frozen=True)
class ReadOptions:
    """How rows are read: what happens at damage, which of them, and how many at most."""

    mode: Mode = Mode.FAILFAST
    filter: Filter | None = None
    limit: int | None = None


ALL_ROWS = ReadOptions()


def output_schema(table: Table, columns: Sequence[str], mode: Mode) -> pa.Schema:
    """Return the schema of the batches of a `FileStream`."""
    schema = table.schema(columns)
    if mode is Mode.PERMISSIVE:
        schema = pa.schema([*(field.with_nullable(True) for field in schema), *CORRUPT])
    return schema


@contextlib.contextmanager
def named(source: Source) -> Iterator[None]:
    """Add the path of the source to errors raised by a codec, which knows no paths."""
    try:
        yield
    except LogwrightError as error:
        if error.path is None:
            error.path = source.path
        raise


def _joined(parts: Sequence[Stretch]) -> Stretch:
    """Return the stretches of one window as one."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    frames = Frames.joined([part.frames for part in parts])
    return replace(last, frames=frames, faults=[fault for part in parts for fault in part.faults])


class FileStream:
    """Iterate over the rows of `[start, stop)` of a file, at most `limit`, in batches of `output_schema`.

    Only rows that match `filter` are returned. Frames that cannot have rows which match `frame_filter`, by default the same, are not
    decoded; a salvage read does not rely on an index for this, since a block may be in the wrong place.

    `start` must be a place where a frame starts: 0, or a result of `split`. With `on_corrupt`, rows of damaged regions are passed to it
    in batches of that schema, and the batches of the iteration have the plain columns. In a long file the prefetcher's threads scan
    ahead of the decoding. Iterating raises `DamageError` in mode `FAILFAST`.
    """

    def __init__(
        self,
        source: Source,
        codec: Codec,
        table: str,
        columns: Sequence[str],
        *,
        context: Any,
        report: FileReport,
        mode: Mode = Mode.FAILFAST,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        frame_filter: Filter | None = None,
        limit: int | None = None,
        window: int | None = None,
        on_corrupt: Callable[[pa.RecordBatch], None] | None = None,
        prefetcher: Prefetcher = INLINE,
    ) -> None:
        self.source, self.codec, self.table, self.columns = source, codec, table, tuple(columns)
        self.context, self.report, self.mode, self.filter = context, report, mode, filter
        trusted = mode is Mode.FAILFAST or not codec.indexed
        self.frame_filter = frame_filter or (filter if trusted else None)
        self.left, self.on_corrupt = limit, on_corrupt
        self._of_file: list[OfFile] | None = None
        typed = codec.table_of(table, context)
        self.schema, self._stored_schema = output_schema(typed, columns, mode), typed.schema(columns)
        self.plain = mode is not Mode.PERMISSIVE or on_corrupt is not None
        # One column at least, since a batch without columns has no number of rows.
        self.decoded = (
            tuple(dict.fromkeys((*columns, *(filter.columns if filter else ())))) or self._cheapest()
        )
        self.walk = Walk(source, codec, context, start=start, stop=stop, step=window)
        self._prefetcher = prefetcher if limit is None else INLINE
        self._damage_end = start
        self.frames = 0

    def __iter__(self) -> Iterator[Any]:
        if self.left == 0:
            return
        with named(self.source):
            seen, step = self.walk.start, None
            for step in self._steps():
                for batch in self._rows(step) if isinstance(step, Stretch) else self._hole(step):
                    yield from self._limited(batch)
                    if self.left == 0:
                        return
                if isinstance(step, Stretch):
                    end = min(step.window.offset + step.frames.stop, self.walk.end)
                else:
                    end = step.fault.offset + step.fault.length
                self.report.bytes += max(0, end - seen)
                seen = max(seen, end)
            self.report.bytes += max(0, self.walk.end - seen)
            self._ends_early(step)
            if self.table == "file" and self.walk.start == 0 and not self.walk.refused:
                yield from self._limited(self._file())

    def _steps(self) -> Iterator[Stretch | Hole]:
        """Iterate over the walk. Where damage adds no rows, join the stretches of one window.

        Each call of a codec has a fixed cost, and between a thousand damaged places there are few frames each.
        """
        steps: Iterator[Stretch | Hole] = walk_ahead(self.walk, self._prefetcher)
        if self.mode in (Mode.PERMISSIVE, Mode.DROPMALFORMED) and self.codec.measures:
            steps = (self._measured(step) if isinstance(step, Hole) else step for step in steps)
        if self.mode in (Mode.FAILFAST, Mode.PERMISSIVE):
            yield from steps
            return
        held: list[Stretch] = []
        for step in steps:
            if isinstance(step, Hole):
                yield step
                continue
            if held and held[0].window is not step.window:
                yield _joined(held)
                held = []
            held.append(step)
        if held:
            yield _joined(held)

    def _ends_early(self, final: Stretch | Hole | None) -> None:
        """Report a file that is shorter than other files say. `final` is the last step of the walk."""
        last = self.walk.last
        known = last is not None or self.walk.start == 0
        if self.walk.end < self.walk.size or not known:
            return
        # A complete frame at a wrong place is not what is missing.
        torn = isinstance(final, Hole) and final.tail and final.fault.kind is not Kind.ORDER
        fault = self.codec.ends_early(last, self.walk.size, torn, self.context)
        if fault is not None:
            self.report.add(fault)
            if self._error([fault]):
                raise DamageError.of(fault, self.source.path)

    def _cheapest(self) -> tuple[str, ...]:
        columns = self.codec.tables[self.table].columns
        return (next((c.name for c in columns if pa.types.is_primitive(c.type)), columns[0].name),)

    def _limited(self, batch: Any) -> Iterator[Any]:
        if self.left is not None:
            batch = batch.slice(0, self.left)
            self.left -= batch.num_rows
        if batch.num_rows:
            yield batch

    # Good frames

    def _rows(self, stretch: Stretch) -> Iterator[Any]:
        window, frames = stretch.window, stretch.frames
        error = self._error(stretch.faults)
        if error is not None:
            frames = frames.pick(frames.start + window.offset < error.offset)
        self.frames += len(frames)
        self.report.frames += len(frames)
        if self.table != "file" and len(frames):
            if (
                self.frame_filter is not None
                and (matches := self.frame_filter.frames(self.codec, frames)) is not None
            ):
                frames = frames if matches.all() else frames.pick(matches)
            if len(frames):
                yield from self._decode(window, frames)
        for fault in stretch.faults:
            self.report.add(self._flipped_file(fault))
        if error is not None:
            raise DamageError.of(error, self.source.path)
        if stretch.damage is not None and self._error([stretch.damage]):
            self.report.add(stretch.damage, damaged=True)
            raise DamageError.of(stretch.damage, self.source.path)

    def _decode(self, window: Window, frames: Frames) -> Iterator[Any]:
        """Decode good frames, with the damaged regions among their rows."""
        for decoded in self.codec.decode(window, frames, self.table, self.decoded, self.context):
            at = 0
            for row, fault in decoded.faults:
                yield self._data(decoded.batch.slice(at, row - at))
                at = row
                yield from self._refuse(fault, window)
            yield self._data(decoded.batch.slice(at) if at else decoded.batch)

    def _refuse(self, fault: Fault, window: Window) -> Iterator[pa.RecordBatch]:
        """Report a region that could not be decoded."""
        if fault.kind is Kind.CHECKSUM:
            fault = self._flipped(Hole(fault, False, adjoins=True))
        self.report.add(fault, damaged=True)
        if self._error([fault]):
            raise DamageError.of(fault, self.source.path)
        yield from self._corrupt(fault, window)

    def _error(self, faults: Sequence[Fault]) -> Fault | None:
        """Return the first fault that raises in this mode."""
        if self.mode is not Mode.FAILFAST:
            return None
        errors = [fault for fault in faults if fault.stops]
        return min(errors, key=lambda fault: fault.offset, default=None)

    def _data(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.filter is not None:
            batch = self.filter.apply(batch)
        rows = batch.num_rows
        self.report.rows += rows if self.left is None else min(rows, self.left)
        if self.plain and batch.schema.equals(self.schema):
            return batch
        arrays = [batch.column(name) for name in self.columns]
        if not arrays and self.plain:
            return batch.select([])
        if self.plain:
            return pa.RecordBatch.from_arrays(arrays, schema=self._stored_schema)
        arrays += [pa.nulls(rows, field.type) for field in CORRUPT]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # Damage

    @cached_property
    def _corrector(self) -> Corrector:
        return Corrector(self.source, self.codec, self.context)

    def _measured(self, hole: Hole) -> Stretch | Hole:
        """Return the frames of a damaged range if only a length is wrong. They are whole, and their rows are returned."""
        measured = self._corrector.measured(hole)
        if measured is None:
            return hole
        fix, window, frames = measured
        self._damage_end = max(self._damage_end, window.offset + frames.stop)
        fault = replace(hole.fault, kind=Kind.LENGTH, detail=fix.text(), rows_lost=0, lost={})
        return Stretch(window, frames, [fault])

    def _flipped(self, hole: Hole) -> Fault:
        """Return the fault of damage with the flipped bits in its detail, if they are known."""
        if self.mode is not Mode.PERMISSIVE:
            return hole.fault
        bits = [correction.text() for correction in self._corrector.correct(hole)[0]]
        if len(bits) > _NAMED:
            bits[_NAMED:] = [f"and {len(bits) - _NAMED} more bits"]
        if not bits:
            return self._flipped_file(hole.fault)
        return replace(hole.fault, detail="; ".join([hole.fault.detail, *bits]))

    def _flipped_file(self, fault: Fault) -> Fault:
        """Return a fault with the flipped bit that the file as a whole proves in its detail, if it is the reason."""
        if self.mode is not Mode.PERMISSIVE or fault.severity is Severity.INFO:
            return fault
        if self._of_file is None:
            of_file = self._corrector.of_file()
            self._of_file = [] if of_file is None else [of_file]
        for _, correction, remaining in self._of_file:
            if fault.offset not in remaining:
                return replace(fault, detail=f"{fault.detail}; {correction.text()}")
        return fault

    def _hole(self, hole: Hole) -> Iterator[pa.RecordBatch]:
        hole.fault = self._flipped(hole)
        self.report.add(hole.fault, damaged=True)
        if not hole.tail:
            # The bytes of this region are not part of the tail, even if no good frame follows.
            self._damage_end = max(self._damage_end, hole.fault.offset + hole.fault.length)
        if self._error([hole.fault]):
            raise DamageError.of(hole.fault, self.source.path)
        yield from self._corrupt(hole.fault, None, raw=not hole.tail)

    def _corrupt(self, fault: Fault, window: Window | None, *, raw: bool = False) -> Iterator[pa.RecordBatch]:
        """Iterate over the row of a damaged region.

        With the detail column `raw` of a frames table: as many rows as hold all its bytes, which restoring the file needs.
        """
        if self.mode is not Mode.PERMISSIVE or fault.severity is Severity.INFO:
            return
        length = min(fault.length, RECORD_LIMIT)
        row: dict[str, Any] = {
            "_corrupt_record": self._readable(fault.offset, length, window),
            "_corrupt_offset": fault.offset,
            "_corrupt_length": fault.length,
        }
        if self.on_corrupt is not None:
            self.on_corrupt(self._row(row))
            return
        if not (raw and self.table == "frames" and "raw" in self.columns):
            yield self._row(row)
            return
        for at in range(0, fault.length, _RAW_LIMIT):
            part = self._bytes(fault.offset + at, min(_RAW_LIMIT, fault.length - at), window)
            yield self._row({**row, "raw": part, "position": fault.offset + at})
            row = {}

    def _row(self, values: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = [
            pa.array([values[field.name]], field.type) if field.name in values else null
            for field, null in zip(self.schema, self._nulls, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @cached_property
    def _nulls(self) -> list[pa.Array]:
        return [pa.nulls(1, field.type) for field in self.schema]

    def _readable(self, offset: int, length: int, window: Window | None) -> bytes:
        """Return the bytes up to the first one that the disk cannot read."""
        if window is None:
            data, unreadable = zero_filled(self.source, offset, length)
            return data[: unreadable[0].start - offset if unreadable else None].tobytes()
        return self._bytes(offset, length, window)

    def _bytes(self, offset: int, length: int, window: Window | None) -> bytes:
        if (
            window is not None
            and window.offset <= offset
            and offset + length <= window.offset + len(window.data)
        ):
            at = offset - window.offset
            return window.data[at : at + length].tobytes()
        # Zeros stand for bytes that the disk cannot read, so that those after them keep their places.
        return zero_filled(self.source, offset, length)[0].tobytes()

    # The file itself

    def _file(self) -> pa.RecordBatch:
        head = Window(zero_filled(self.source, 0, 4096)[0], 0, self.walk.size)
        tail, zeros = self._tail()
        batch = self.codec.describe_file(head, self.walk.size, self.frames, tail, zeros, self.context)
        return self._data(batch)

    def _tail(self) -> tuple[bytes, int]:
        """Return the bytes at the end that no frame covers, without trailing zeros, and the number of these zeros."""
        start = max(self.walk.covered, self._damage_end)
        at = self.walk.size
        while at > start:
            low = max(start, at - WINDOW)
            nonzero = np.flatnonzero(zero_filled(self.source, low, at - low)[0])
            if len(nonzero):
                at = low + int(nonzero[-1]) + 1
                break
            at = low
        return zero_filled(self.source, start, at - start)[0].tobytes(), self.walk.size - at


class FrameStream(FileStream):
    """Iterate over the stored frames that hold the rows (`RowFrames`)."""

    def _decode(self, window: Window, frames: Frames) -> Iterator[RowFrames]:
        for rows in self.codec.row_frames(window, frames, self.context):
            self.report.rows += len(rows.frames)
            for fault in rows.faults:
                yield from self._refuse(fault, window)
            yield rows

    def _limited(self, batch: RowFrames) -> Iterator[RowFrames]:
        yield batch
