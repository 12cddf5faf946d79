"""The stream: rows of one file as record batches, by mode past damage, with everything met noted in the report.

Modes have Spark's names and meanings. `FAILFAST` raises on the first error, after the rows before it. `PERMISSIVE` gives all
undamaged rows and one row for each damaged region: `_corrupt_record` holds its bytes (up to 64 KiB), `_corrupt_offset` and
`_corrupt_length` say where; the other columns are null. `DROPMALFORMED` gives the undamaged rows only. `AS_SYSTEM`, for directories,
gives what the real system would serve: which stretches that are is planned before (`readers.plan`), here it is as the one before.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.fault import DamageError, Fault, LogwrightError, Severity, UsageError
from logwright.codec.frames.walk import WINDOW, Hole, Stretch, Walk, zero_filled
from logwright.codec.table import Table
from logwright.codec.window import Decoded, Frames, RowFrames, Window
from logwright.readers.filter import Filter
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.readahead import threaded
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source

RECORD_LIMIT = 64 << 10
"""So many bytes of a damaged region go into `_corrupt_record`."""
_RAW_PIECE = 1 << 20
CORRUPT = (
    pa.field("_corrupt_record", pa.binary()),
    pa.field("_corrupt_offset", pa.int64()),
    pa.field("_corrupt_length", pa.int64()),
)


class Mode(StrEnum):
    """What is done about damage: raise, a row for each region, the sound rows only, or what the system would serve."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    AS_SYSTEM = "AS_SYSTEM"

    @classmethod
    def of(cls, name: str) -> Mode:
        """By name, in any case. Raises `UsageError`."""
        try:
            return cls(str(name).upper())
        except ValueError:
            near = difflib.get_close_matches(str(name).upper(), list(cls), n=1)
            hint = f"Did you mean {str(near[0])!r}?" if near else f"There are: {', '.join(cls)}"
            raise UsageError(f"no mode {name!r}", advice=hint) from None


def output_schema(table: Table, columns: Sequence[str], mode: Mode) -> pa.Schema:
    """The schema of what a stream gives."""
    schema = table.schema(columns)
    if mode is Mode.PERMISSIVE:
        schema = pa.schema([*(field.with_nullable(True) for field in schema), *CORRUPT])
    return schema


@contextlib.contextmanager
def named(source: Source) -> Iterator[None]:
    """Codecs know no paths: errors that they raise get that of the source."""
    try:
        yield
    except LogwrightError as error:
        if error.path is None:
            error.path = source.path
        raise


def _joined(parts: Sequence[Stretch]) -> Stretch:
    """Stretches of one window as one."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    each = [one.frames for one in parts]
    frames = replace(
        last.frames,
        start=np.concatenate([one.start for one in each]),
        end=np.concatenate([one.end for one in each]),
        # Without it NumPy makes the numbers of this machine of them.
        header=np.concatenate([one.header for one in each], dtype=last.frames.header.dtype),
    )
    return replace(last, frames=frames, faults=[fault for one in parts for fault in one.faults])


class FileStream:
    """The rows of `[start, stop)` of a file, at most `limit`, in batches of `output_schema`.

    With `on_corrupt` the rows of damaged regions go there, in batches of that schema, and the others have the columns alone.

    `start` must be a place where a frame starts (0, or one that `split` gave). In a long file the prefetcher looks for frames ahead of the
    decoding. Iterating raises `DamageError` in mode `FAILFAST`.
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
        limit: int | None = None,
        window: int = WINDOW,
        on_corrupt: Callable[[pa.RecordBatch], None] | None = None,
        prefetcher: Prefetcher = INLINE,
    ) -> None:
        self.source, self.codec, self.table, self.columns = source, codec, table, tuple(columns)
        self.context, self.report, self.mode, self.filter = context, report, mode, filter
        self.left, self.on_corrupt = limit, on_corrupt
        self.schema = output_schema(codec.tables[table], columns, mode)
        self.plain = mode is not Mode.PERMISSIVE or on_corrupt is not None
        # Without any column nobody would know the number of rows.
        self.decoded = (
            tuple(dict.fromkeys((*columns, *(filter.columns if filter else ())))) or self._cheapest()
        )
        self.walk = Walk(source, codec, context, start=start, stop=stop, step=window)
        self._crew = prefetcher
        self._hole_end = start
        """Damage goes up to there."""
        self.frames = 0

    def __iter__(self) -> Iterator[Any]:
        if self.left == 0:
            return
        with named(self.source):
            yield from self._all()

    def _all(self) -> Iterator[Any]:
        seen, found = self.walk.start, None
        for found in self._found():
            batches = self._rows(found) if isinstance(found, Stretch) else self._hole(found)
            for batch in batches:
                yield from self._give(batch)
                if self.left == 0:
                    return
            if isinstance(found, Stretch):
                upto = min(found.window.offset + found.frames.stop, self.walk.end)
            else:
                upto = found.fault.offset + found.fault.length
            self.report.bytes += max(0, upto - seen)
            seen = max(seen, upto)
        self.report.bytes += max(0, self.walk.end - seen)
        self._ends_early(found)
        if self.table == "file" and self.walk.start == 0 and not self.walk.refused:
            yield from self._give(self._file())

    def _ends_early(self, found: Stretch | Hole | None) -> None:
        """Report that the file ends before other files say. `found` is what the walk found last."""
        last = self.walk.last
        known = last is not None or self.walk.start == 0
        if self.walk.end < self.walk.size or not known:
            return
        torn = isinstance(found, Hole) and found.tail
        fault = self.codec.ends_early(last, self.walk.size, torn, self.context)
        if fault is not None:
            self.report.add(fault)
            if self._error([fault]):
                raise DamageError.of(fault, self.source.path)

    def _found(self) -> Iterator[Stretch | Hole]:
        """What the walk finds. Where damage gives no rows the stretches of one window become one: each call of a codec has its price,
        and between a thousand damaged places the frames are few."""
        walked = threaded(self.walk, self._crew if self.left is None else INLINE)
        if self.mode in (Mode.FAILFAST, Mode.PERMISSIVE):
            yield from walked
            return
        held: list[Stretch] = []
        for found in walked:
            if isinstance(found, Hole):
                yield found
                continue
            if held and held[0].window is not found.window:
                yield _joined(held)
                held = []
            held.append(found)
        if held:
            yield _joined(held)

    def _cheapest(self) -> tuple[str, ...]:
        columns = self.codec.tables[self.table].columns
        return (next((c.name for c in columns if pa.types.is_primitive(c.type)), columns[0].name),)

    def _give(self, batch: Any) -> Iterator[Any]:
        if self.left is not None:
            batch = batch.slice(0, self.left)
            self.left -= batch.num_rows
        if batch.num_rows:
            yield batch

    # Good frames

    def _rows(self, found: Stretch) -> Iterator[Any]:
        first = self._error(found.faults)
        frames = found.frames
        if first is not None:
            frames = frames.pick(frames.start + found.window.offset < first.offset)
        self.frames += len(frames)
        self.report.frames += len(frames)
        if self.table != "file" and len(frames):
            if self.filter is not None and (wanted := self.filter.frames(self.codec, frames)) is not None:
                frames = frames if wanted.all() else frames.pick(wanted)
            if len(frames):
                yield from self._read(found.window, frames)
        for fault in found.faults:
            self.report.add(fault)
        if first is not None:
            raise DamageError.of(first, self.source.path)
        if found.damage is not None and self._error([found.damage]):
            self.report.add(found.damage, damaged=True)
            raise DamageError.of(found.damage, self.source.path)

    def _read(self, window: Window, frames: Frames) -> Iterator[Any]:
        """Decode good frames."""
        for decoded in self.codec.decode(window, frames, self.table, self.decoded, self.context):
            yield from self._decoded(decoded, window)

    def _refuse(self, fault: Fault, window: Window) -> Iterator[pa.RecordBatch]:
        """Report what could not be decoded."""
        self.report.add(fault, damaged=True)
        if self._error([fault]):
            raise DamageError.of(fault, self.source.path)
        yield from self._corrupt(fault, window)

    def _error(self, faults: Sequence[Fault]) -> Fault | None:
        """The first fault on which this mode raises."""
        if self.mode is not Mode.FAILFAST:
            return None
        errors = [fault for fault in faults if fault.stops]
        return min(errors, key=lambda fault: fault.offset, default=None)

    def _decoded(self, decoded: Decoded, window: Window) -> Iterator[pa.RecordBatch]:
        """Rows, and between them what could not be decoded."""
        at = 0
        for before, fault in decoded.faults:
            yield self._data(decoded.batch.slice(at, before - at))
            at = before
            yield from self._refuse(fault, window)
        yield self._data(decoded.batch.slice(at) if at else decoded.batch)

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
            return pa.RecordBatch.from_arrays(
                arrays, schema=self.codec.tables[self.table].schema(self.columns)
            )
        arrays += [pa.nulls(rows, field.type) for field in CORRUPT]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # Damage

    def _hole(self, hole: Hole) -> Iterator[pa.RecordBatch]:
        self.report.add(hole.fault, damaged=True)
        if not hole.tail:
            # Its bytes are among the frames: they are not at the end, also where nothing good follows.
            self._hole_end = max(self._hole_end, hole.fault.offset + hole.fault.length)
        if self._error([hole.fault]):
            raise DamageError.of(hole.fault, self.source.path)
        yield from self._corrupt(hole.fault, None, raw=not hole.tail)

    def _corrupt(self, fault: Fault, window: Window | None, *, raw: bool = False) -> Iterator[pa.RecordBatch]:
        """The row of a damaged region. With the detail column `raw` of a frames table all its bytes, in as many rows as that
        takes: what is needed to write the file again as it was."""
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
        for at in range(0, fault.length, _RAW_PIECE):
            piece = self._bytes(fault.offset + at, min(_RAW_PIECE, fault.length - at), window)
            yield self._row({**row, "raw": piece, "position": fault.offset + at})
            row = {}

    def _row(self, values: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = [pa.array([values.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _readable(self, offset: int, length: int, window: Window | None) -> bytes:
        """Its bytes up to the first one that the disk can't read."""
        if window is None:
            data, bad = zero_filled(self.source, offset, length)
            return data[: bad[0].start - offset if bad else None].tobytes()
        return self._bytes(offset, length, window)

    def _bytes(self, offset: int, length: int, window: Window | None) -> bytes:
        if (
            window is not None
            and window.offset <= offset
            and offset + length <= window.offset + len(window.data)
        ):
            at = offset - window.offset
            return window.data[at : at + length].tobytes()
        # A disk that can't read it all: what is needed to write the file again keeps its place, with zeros.
        return zero_filled(self.source, offset, length)[0].tobytes()

    # The file itself

    def _file(self) -> pa.RecordBatch:
        head = Window(zero_filled(self.source, 0, 4096)[0], 0, self.walk.size)
        tail, zeros = self._tail()
        batch = self.codec.describe_file(head, self.walk.size, self.frames, tail, zeros, self.context)
        return self._data(batch)

    def _tail(self) -> tuple[bytes, int]:
        """What no frame covers at the end, and how many zero bytes follow it."""
        start = max(self.walk.covered, self._hole_end)
        at = self.walk.size
        while at > start:
            low = max(start, at - WINDOW)
            filled = np.flatnonzero(zero_filled(self.source, low, at - low)[0])
            if len(filled):
                at = low + int(filled[-1]) + 1
                break
            at = low
        return zero_filled(self.source, start, at - start)[0].tobytes(), self.walk.size - at


class FrameStream(FileStream):
    """The frames that hold these rows, as they are stored (`RowFrames`)."""

    def _read(self, window: Window, frames: Frames) -> Iterator[RowFrames]:
        for found in self.codec.row_frames(window, frames, self.context):
            self.report.rows += len(found.frames)
            for fault in found.faults:
                yield from self._refuse(fault, window)
            yield found

    def _give(self, batch: RowFrames) -> Iterator[RowFrames]:
        yield batch
