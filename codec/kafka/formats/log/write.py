"""Write batches: from rows alone as Kafka's producer does, or with the frames table exactly as they were.

The frames table has the stored records in `payload` if the rows do not give the same bytes (they are compressed, or not in the
shortest form). They are used only if they have the same content as the rows: both are converted to the form that the kernel
writes, and compared as bytes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s, stretches
from logwright.codec.base import LossyColumn
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.internal.view import stored_rows
from logwright.codec.kafka.formats.log import arrow_input, pack
from logwright.codec.kafka.formats.log.heads import HEADS, heads_at, stored_heads
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION_NAMES,
    CONTROL,
    CONTROL_RECORD_KEY,
    CRC_START,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    RECORD_BATCH,
)
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT
from logwright.codec.kafka.formats.log.message_write import MessageEncoder
from logwright.codec.kafka.formats.log.settings import OPTIONS, BatchSettings, magic_of
from logwright.codec.kafka.formats.log.tables import LOSSY_COLUMNS
from logwright.codec.kafka.formats.payload import encoded
from logwright.codec.kernels.compress import compress
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import copy, store_32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.option import Options

_CRC = RECORD_BATCH.offset("crc")
_CONTROL_KEY = CONTROL_RECORD_KEY.head_size
_FIRST_OF_BATCH = (2, 3, 4)
"""LEADER_CHANGE, SNAPSHOT_HEADER and SNAPSHOT_FOOTER: the types with which Kafka begins a control batch."""
_QUEUE = 64 << 10
"""Queued rows are encoded when they reach this size in bytes, so that many small additions cost no more than few large ones."""

_MOST = 256 << 20
"""The most bytes of rows that are encoded at a time."""

COMPRESSING = (
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
)

_SINCE_2 = (
    LossyColumn("headers", (), "have headers"),
    LossyColumn("is_control", (False,), "are control records, which brokers write", drops=True),
)
_SINCE_1 = (
    LossyColumn("timestamp_ms", (-1,), "have a timestamp"),
    LossyColumn("timestampType", (-1, 0), "have the time of the append (LogAppendTime)"),
)


def lossy(options: Options) -> tuple[LossyColumn, ...]:
    """Return what rows lose. A broker converts batches to older magics without their markers."""
    magic = magic_of(options)
    return (*LOSSY_COLUMNS, *(_SINCE_2 if magic < MAGIC else ()), *(_SINCE_1 if magic < 1 else ()))


def recompress(frames: pa.Table, options: Options) -> pa.Table | None:
    """Return the batches with another compression. See `Codec.recompress`. Messages of magic 0 and 1 are divided into other wrappers."""
    if pc.any(pc.less(frames["magic"], MAGIC)).as_py():
        return None
    if any(options.given(option.name) for option in OPTIONS if option.name not in COMPRESSING):
        return None
    name = BatchSettings.of(options).compression
    for column, value in (("compression", name), ("payload", None)):
        i = frames.schema.get_field_index(column)
        kind = frames.schema.field(i).type
        values = pa.nulls(len(frames), kind) if value is None else pa.array([value] * len(frames), kind)
        frames = frames.set_column(i, column, values)
    return frames


@dataclass(slots=True)
class Encoded:
    """Complete batches: their bytes, where each starts, and their headers (an array of `HEADS`)."""

    data: Bytes
    start: Int64s
    header: npt.NDArray[Any]


_NOTHING = Encoded(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, HEADS))


def _joined(first: Encoded, other: Encoded) -> Encoded:
    return Encoded(
        np.concatenate((first.data, other.data)),
        np.concatenate((first.start, other.start + len(first.data))),
        np.concatenate((first.header, other.header)),
    )


@dataclass(slots=True)
class BatchEncoder:
    """Encode rows as batches, as Kafka's producer does. The bytes do not depend on how the rows are chunked.

    Columns: `key`, `value` (bytes or text), `headers`, `timestamp` (any unit, or int64 milliseconds), `timestampType`,
    `offset`, and the detail columns `timestamp_ms`, `create_timestamp_ms`, `headers_raw`, `attributes`. All may be absent. The
    defaults are: no key, no value (a tombstone), no headers, the current time, the timestamp type of the settings, the next offsets.
    The detail columns `magic` and `compression` count unless the options set another one (`BatchSettings.kept`).
    Rows of a decoded view have its columns instead of `key` and `value`.
    """

    settings: BatchSettings
    next_offset: int = 0
    """The lowest offset of the next row."""
    rows: int = 0
    _open: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    _state: Int64s = field(default_factory=pack.closed)
    _queue: list[pack.Rows] = field(default_factory=list)
    _queued: int = 0
    _messages: MessageEncoder = field(default_factory=MessageEncoder)
    _current: BatchSettings | None = None
    """The settings of the open batch."""
    _controls: int = 0
    """The number of control batches so far."""
    _in_control: bool = False
    """Whether the last row was a control record."""

    def add(self, rows: pa.RecordBatch, first_offset: int | None = None) -> Encoded:
        """Add rows. Return the batches that are full.

        Offsets are those of the column `offset`, which must ascend. Without it they count from `first_offset`, or from the last row.
        Raises `UsageError` for rows that cannot be written. None of them is written then.
        """
        if rows.num_rows == 0:
            return _NOTHING
        rows = encoded(dict(self.settings.formats), stored_rows(rows, self.rows), self.rows)
        return self._add(rows, first_offset)

    def _add(self, rows: pa.RecordBatch, first_offset: int | None) -> Encoded:
        if rows.nbytes > _MOST and rows.num_rows > 1:
            half = rows.num_rows // 2
            second = None if first_offset is None else first_offset + half
            return _joined(self._add(rows.slice(0, half), first_offset), self._add(rows.slice(half), second))
        offsets = self._offsets(rows, first_offset)
        now = time.time_ns() // 1_000_000
        runs = self._divided(list(self._runs(rows)), _control_types(rows, self.rows))
        out: list[Encoded] = []
        for settings, at, stop in runs:
            prepared = pack.prepare(rows.slice(at, stop - at), offsets[at:stop], settings.timestamp_type, now)
            pack.check_times(prepared.times, self.rows + at)
            pack.check_times(prepared.creates, self.rows + at)
            prepared.groups = _groups(rows, at, stop, settings)
            if self._current not in (None, settings):
                out.append(self._write(finish=True))
            self._current = settings
            self._queue.append(prepared)
            self._queued += prepared.most
        self.next_offset = int(offsets[-1]) + 1
        self.rows += rows.num_rows
        if self._queued >= max(_QUEUE, len(self._open) // 4):
            out.append(self._write(finish=False))
        return functools.reduce(_joined, out, _NOTHING)

    def _runs(self, rows: pa.RecordBatch) -> Iterator[tuple[BatchSettings, int, int]]:
        """Yield rows `[at, stop)` that have the same settings."""
        default = self.settings
        magics = _codes(rows, "magic", range(MAGIC + 1), default.magic) if default.keep_magic else None
        names = COMPRESSION_NAMES
        codec = names.index(default.compression)
        codecs = _codes(rows, "compression", names, codec) if default.keep_compression else None
        if magics is None and codecs is None:
            yield default, 0, rows.num_rows
            return
        magic = np.full(rows.num_rows, default.magic) if magics is None else magics
        code = magic * len(names) + (codec if codecs is None else codecs)
        for at, stop in stretches(code):
            yield default.kept(*divmod(int(code[at]), len(names))), at, stop

    def _divided(
        self, runs: Sequence[tuple[BatchSettings, int, int]], types: Int64s | None
    ) -> list[tuple[BatchSettings, int, int]]:
        """Divide runs of rows into data and control batches, by the types of control records (-1: data)."""
        if types is None:
            self._in_control = False
            return list(runs)
        control = types >= 0
        begins = control & (np.isin(types, _FIRST_OF_BATCH) | ~np.r_[self._in_control, control[:-1]])
        numbers = np.where(control, self._controls + np.cumsum(begins), 0)
        self._controls, self._in_control = self._controls + int(np.count_nonzero(begins)), bool(control[-1])
        out = []
        for settings, at, stop in runs:
            for low, high in ((at + low, at + high) for low, high in stretches(numbers[at:stop])):
                number = int(numbers[low])
                if number and settings.magic < MAGIC:
                    raise UsageError(
                        "control records need magic 2", advice="Omit the option that sets another magic"
                    )
                plain = replace(settings, compression="none", level=None, control=number)
                out.append((plain if number else settings, low, high))
        return out

    def flush(self) -> Encoded:
        """Return the batches that are left. The last one need not be full."""
        return self._write(finish=True)

    def _offsets(self, rows: pa.RecordBatch, first_offset: int | None) -> Int64s:
        array = arrow_input.column(rows, "offset")
        if array is None or pa.types.is_null(array.type):
            first = self.next_offset if first_offset is None else first_offset
            if first < self.next_offset and self.rows:
                raise UsageError(f"offset {first} is not above {self.next_offset - 1}, the one before")
            return np.arange(first, first + rows.num_rows, dtype=np.int64)
        if not pa.types.is_integer(array.type):
            raise UsageError(f"column 'offset' has type {array.type}, expected int64")
        if array.null_count:
            raise UsageError("column 'offset' has nulls", advice="Drop the column to have offsets assigned")
        offsets = np.asarray(array.cast(pa.int64()))
        low = self.next_offset if first_offset is None else max(self.next_offset, first_offset)
        before = np.concatenate(([low - 1], offsets[:-1]))
        if (offsets <= before).any():
            row = int(np.argmax(offsets <= before))
            raise UsageError(
                f"row {self.rows + row}: offset {int(offsets[row])} is not above {int(before[row])}",
                advice="Offsets must ascend. Drop the column to have them assigned",
            )
        return offsets

    def _write(self, *, finish: bool) -> Encoded:
        settings, state, queue = self._current or self.settings, self._state, self._queue
        if settings.magic < MAGIC:
            self._queue, self._queued = [], 0
            return Encoded(*self._messages.write(queue, settings, finish=finish))
        count = sum(rows.count for rows in queue)
        if not count and (not finish or state[pack.OPEN] < 0):
            return _NOTHING
        codec = COMPRESSION_NAMES.index(settings.compression)
        buffer, out = pack.room(len(self._open) + sum(rows.most for rows in queue))
        at = len(self._open)
        out[:at] = self._open
        starts = np.empty(count + 1, np.int64)
        state[pack.BATCHES] = 0
        if state[pack.OPEN] >= 0:
            starts[0] = state[pack.OPEN] = 0
            state[pack.BATCHES] = 1
        self._queue, self._queued = [], 0
        check = not codec
        for rows in queue:
            at = rows.write(
                out,
                at,
                state,
                starts,
                batch_size=settings.batch_size,
                epoch=settings.leader_epoch,
                codec=codec,
                check=check,
            )
        batches = int(state[pack.BATCHES])
        if finish:
            pack.close_batch(out, at, state, settings.leader_epoch, codec, int(check))
            end = at
            self._open = np.empty(0, np.uint8)
        else:
            end = int(state[pack.OPEN])
            batches -= 1
            self._open = out[end:at].copy()
        start = starts[:batches].copy()
        if codec:
            return _compressed(out, start, end, settings)
        if settings.control:
            header = stored_heads(out, start)
            header["attributes"] |= CONTROL
            ends = np.append(start[1:], end)[: len(start)]
            pieces = [out[int(a) + HEAD_SIZE : int(b)].copy() for a, b in zip(start, ends, strict=True)]
            return assemble(header, pieces)
        header = heads_at(out, start)
        del out
        buffer.resize(end, shrink_to_fit=True)
        return Encoded(np.frombuffer(buffer, np.uint8), start, header)


def _codes(rows: pa.RecordBatch, name: str, known: Sequence[Any], default: int) -> Int64s | None:
    """Return the places of a column's values in `known`, that of nulls being `default`; None if the column is absent."""
    array = arrow_input.column(rows, name)
    if array is None or pa.types.is_null(array.type):
        return None
    try:
        places = pc.index_in(array, pa.array(list(known)).cast(array.type))
    except pa.ArrowException:
        raise UsageError(f"column {name!r} has type {array.type}", advice="Drop the column") from None
    wrong = pc.and_(pc.is_null(places), pc.is_valid(array))
    if pc.any(wrong).as_py():
        value = array[pc.index(wrong, True).as_py()].as_py()
        raise UsageError(f"column {name!r} has {value!r}, expected one of {', '.join(map(str, known))}")
    return np.asarray(places.cast(pa.int64()).fill_null(default))


def _groups(rows: pa.RecordBatch, at: int, stop: int, settings: BatchSettings) -> Int64s | None:
    """Return for each row the position of its batch if it is compressed, -1 if not; None if batches are not kept.

    A broker that converts a batch to magic 0 or 1 keeps it in one wrapper.
    """
    names = ("position", "compression")
    if settings.magic == MAGIC or not settings.keep_batches or not set(names) <= set(rows.schema.names):
        return None
    position, compression = (rows.column(name).slice(at, stop - at) for name in names)
    if not pa.types.is_integer(position.type) or position.null_count:
        return None
    plain = pc.fill_null(pc.equal(compression, "none"), True)
    return np.where(np.asarray(plain), -1, np.asarray(position.cast(pa.int64())))


def _compressed(out: Bytes, start: Int64s, end: int, settings: BatchSettings) -> Encoded:
    """Return the same batches with compressed records."""
    header = stored_heads(out, start)
    # There may be no batch yet: the rows added so far may not fill one.
    ends = np.append(start[1:], end)[: len(start)]
    pieces = [
        compress(settings.compression, out[int(first) + HEAD_SIZE : int(last)], level=settings.level)
        for first, last in zip(start, ends, strict=True)
    ]
    return assemble(header, pieces)


def assemble(header: npt.NDArray[Any], sections: list[Any]) -> Encoded:
    """Assemble batches from headers and record sections, with lengths and checksums."""
    sizes = np.array([len(section) for section in sections], np.int64) + HEAD_SIZE
    if len(sizes) and int(sizes.max()) > arrow_input.MAX_INT32:
        raise UsageError("a batch is larger than 2 GiB")
    ends = np.cumsum(sizes)
    start = ends - sizes
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for at, section in zip(start.tolist(), sections, strict=True):
        out[at + HEAD_SIZE : at + HEAD_SIZE + len(section)] = np.frombuffer(section, np.uint8)
    header["batch_length"] = sizes - LENGTH_END
    put_heads(out, start, ends, np.ascontiguousarray(header).view(np.uint8))
    return Encoded(out, start, heads_at(out, start))


@kernel("u1[], const i8[], const i8[], const u1[]")
def put_heads(out: Bytes, starts: Int64s, ends: Int64s, heads: Bytes) -> None:
    """Write headers where batches start, with their checksums."""
    for i in range(len(starts)):
        at = starts[i]
        copy(out, at, heads, i * HEAD_SIZE, HEAD_SIZE)
        store_32be(out, at + _CRC, crc32c(out, at + CRC_START, ends[i]))


def _control_types(rows: pa.RecordBatch, first_row: int) -> Int64s | None:
    """Return the type of each control record, and -1 for data; None if all rows are data.

    Raises `UsageError` for the end of a transaction: written from rows alone it would end none.
    """
    array = arrow_input.column(rows, "is_control")
    if array is None or not pa.types.is_boolean(array.type):
        return None
    control = np.asarray(array.fill_null(False))
    if not control.any():
        return None
    types = np.full(len(control), -1, np.int64)
    keys = arrow_input.column(rows, "key")
    for row in np.flatnonzero(control).tolist():
        key = b"" if keys is None else keys[row].as_py() or b""
        types[row] = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= _CONTROL_KEY else -1
        if types[row] in (-1, ABORT, COMMIT):
            raise UsageError(
                f"row {first_row + row} is a control record, which cannot be written from rows alone",
                advice="Drop control records, or pass the frames table too",
            )
    return types
