"""The rows of batches: which batches are read, their records as Arrow columns, and the faults of records.

Batches that are filtered out by their header (offsets, control batches, aborted transactions) are not decompressed. Columns with
one value for all records of a batch are made from its header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import batch_of, constant, contents, numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.java import java_strings
from logwright.codec.kafka.formats.log import messages, records
from logwright.codec.kafka.formats.log.layout import (
    CODEC_NAMES,
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL,
    CONTROL_TYPES,
    LOG_APPEND_TIME,
    MIN_RECORD,
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.sections import Sections, sections
from logwright.codec.kafka.formats.log.tables import HEADER_RAW, NAME, NOTHING_SERVED, LogContext
from logwright.codec.table import TIMESTAMP, Table
from logwright.codec.window import Decoded, Frames, Window

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

_CODEC_NAMES = contents(pa.string(), [name.encode() for name in CODEC_NAMES])
_WANT = {
    "offset": records.WANT_OFFSET,
    "sequence": records.WANT_OFFSET,
    "timestamp": records.WANT_TIMESTAMP,
    "timestamp_ms": records.WANT_TIMESTAMP,
    "create_timestamp_ms": records.WANT_CREATE,
    "key": records.WANT_KEY,
    "value": records.WANT_VALUE,
    "headers": records.WANT_HEADERS,
    "headers_raw": records.WANT_HEADERS,
    "attributes": records.WANT_ATTRIBUTES,
}


def decode(
    window: Window, frames: Frames, table: Table, columns: Sequence[str], context: LogContext
) -> Iterator[Decoded]:
    """Return the rows of these batches. See `Codec.decode`."""
    head = frames.header
    if context.stored and (head["base_offset"][1:] <= head["last_offset"][:-1]).any():
        for i in range(len(frames)):
            yield from _take(window, frames.pick(slice(i, i + 1)), table, columns, context)
        return
    served = _served_mask(window, frames, context)
    if served is not None:
        frames = frames.pick(served)
    schema = table.schema(columns)
    limit = context.options["max.decompressed.bytes"]
    for part in sections(window, frames, limit, partial=context.partial):
        yield _Piece(window, frames.pick(part.frames), part, context).decode(columns, schema)


def _take(
    window: Window, batch: Frames, table: Table, columns: Sequence[str], context: LogContext
) -> Iterator[Decoded]:
    """Take one batch as a consumer does, which serves no record below its position: a batch that it skips moves that too. Source:
    `CompletedFetch.nextFetchedRecord`."""
    base, last, attributes = batch.header[["base_offset", "last_offset", "attributes"]][0].item()
    end = window.offset + int(batch.end[0])
    if window.offset + int(batch.start[0]) in context.skipped:
        context.served, context.served_end = last, end
    elif attributes & CONTROL and not context.control:
        context.served, context.served_end = max(context.served, base), end
    else:
        yield from decode(window, batch, table, columns, context)


def _served_mask(window: Window, frames: Frames, context: LogContext) -> Bools | None:
    """Return which batches have rows to serve, by their headers and positions; None for all."""
    head = frames.header
    mask: Bools | None = None
    if context.start_offset is not None or context.end_offset is not None:
        base = head["base_offset"].astype(np.int64)
        mask = np.ones(len(head), np.bool_)
        if context.start_offset is not None:
            mask &= head["last_offset"] >= context.start_offset
        if context.end_offset is not None:
            mask &= base < context.end_offset
    if not context.control:
        data = head["attributes"] & CONTROL == 0
        mask = data if mask is None else mask & data
    if context.aborted:
        served = ~context.aborted.mask(head)
        mask = served if mask is None else mask & served
    if context.skipped:
        served = np.isin(frames.start + window.offset, context.skipped, invert=True)
        mask = served if mask is None else mask & served
    return None if mask is None or mask.all() else mask


class Read:
    """The records of batches: arrays of the columns in `want`, and the findings for each batch."""

    def __init__(
        self,
        part: Sections,
        head: npt.NDArray[Any],
        want: int,
        *,
        partial: bool = False,
        served: int = NOTHING_SERVED,
        low: int = NOTHING_SERVED,
        high: int = records.INT64_MAX,
    ) -> None:
        self.buf = part.buf
        base_offset, base_timestamp, max_timestamp, count, append = fields(head)
        rows = size = 0
        if want:
            length = part.end - part.start
            size = int(length.sum())
            if part.sets is None:
                # The most records that the bytes can hold: a wrong count allocates nothing.
                most = length // MIN_RECORD
                rows = int(np.where(count <= most, np.maximum(count, 0), most if partial else 0).sum())
            else:
                rows = int(part.sets.count.sum())
        frames = len(head)

        def room(bit: int, kind: Any, length: int) -> tuple[pa.Buffer, npt.NDArray[Any]]:
            return _room(length, kind) if want & bit else _NOTHING[kind]

        offset, timestamp, create = records.WANT_OFFSET, records.WANT_TIMESTAMP, records.WANT_CREATE
        key, value, headers = records.WANT_KEY, records.WANT_VALUE, records.WANT_HEADERS
        self._offsets, self.offsets = room(offset, np.int64, rows)
        self._timestamps, timestamps = room(timestamp, np.int64, rows)
        self._timestamp_bits, timestamp_bits = room(timestamp, np.uint8, (rows + 7) // 8)
        self._creates, creates = room(create, np.int64, rows)
        self._key_ends, key_ends = room(key, np.int32, rows + 1)
        self._key_bits, key_bits = room(key, np.uint8, (rows + 7) // 8)
        self._key_data, key_data = room(key, np.uint8, size)
        self._value_ends, value_ends = room(value, np.int32, rows + 1)
        self._value_bits, value_bits = room(value, np.uint8, (rows + 7) // 8)
        self._value_data, value_data = room(value, np.uint8, size)
        self._header_ends, self.header_ends = room(headers, np.int32, rows + 1)
        _, self.header_at = room(headers, np.int64, rows)
        self._attributes, record_attributes = room(records.WANT_ATTRIBUTES, np.int8, rows)
        for bits in (timestamp_bits, key_bits, value_bits):
            bits.fill(0xFF)
        for ends in (key_ends, value_ends, self.header_ends):
            ends[:1] = 0
        counts = np.zeros(6 * frames, np.int64)
        self.per_frame, self.odd, self.left_out, self.bad = counts[: 4 * frames].reshape(4, frames)
        self._findings = counts[2 * frames : 4 * frames]
        self.bad_record = counts[4 * frames :]
        self.sums = np.zeros(9, np.int64)
        columns = (
            want, int(partial), served, low, high,
            self.offsets, timestamps, timestamp_bits, creates,
            key_ends, key_bits, key_data, value_ends, value_bits, value_data,
            self.header_ends, self.header_at, record_attributes,
            self.per_frame, self.left_out, self.odd, self.bad, self.bad_record, np.zeros(2, np.int64), self.sums,
        )  # fmt: skip
        if part.sets is None:
            self.rows = records.read_records(
                part.buf, part.start, part.end, count, base_offset, base_timestamp, max_timestamp, append, *columns
            )  # fmt: skip
        else:
            sets = part.sets
            self.rows = messages.read_messages(
                part.buf,
                part.start,
                part.end,
                sets.count,
                sets.shift,
                sets.wrapped,
                sets.append_time,
                *columns,
            )
        # Shrink the buffers, which were allocated for the worst case: a key is a small part of its record.
        del key_data, value_data
        if want & key:
            self._key_data.resize(int(self.sums[3]), shrink_to_fit=True)
        if want & value:
            self._value_data.resize(int(self.sums[4]), shrink_to_fit=True)

    @property
    def has_findings(self) -> bool:
        """Whether a batch is bad, or has records that were left out."""
        return bool(self._findings.any())

    @property
    def served(self) -> int:
        """The last offset that was served."""
        return int(self.sums[8])

    def key(self) -> pa.Array:
        return _binary(
            pa.binary(), self.rows, self._key_bits, self._key_ends, self._key_data, int(self.sums[0])
        )

    def value(self) -> pa.Array:
        nulls = int(self.sums[1])
        return _binary(pa.binary(), self.rows, self._value_bits, self._value_ends, self._value_data, nulls)

    def offset(self) -> pa.Array:
        return self._numbers(pa.int64(), self._offsets)

    def timestamp(self) -> pa.Array:
        nulls = int(self.sums[2])
        bits = self._timestamp_bits if nulls else None
        return pa.Array.from_buffers(TIMESTAMP, self.rows, [bits, self._timestamps], nulls)

    def timestamp_ms(self) -> pa.Array:
        return self._numbers(pa.int64(), self._timestamps)

    def create_timestamp_ms(self) -> pa.Array:
        return self._numbers(pa.int64(), self._creates)

    def attributes(self) -> pa.Array:
        return self._numbers(pa.int8(), self._attributes)

    def _numbers(self, kind: pa.DataType, numbers: pa.Buffer) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, [None, numbers], 0)

    def headers(self) -> tuple[pa.Array, pa.Array | None]:
        """Return the columns headers and headers_raw; None for the latter if all keys are UTF-8."""
        total = int(self.sums[7])
        sums = np.zeros(2, np.int64)
        key_ends_buffer, key_ends = _room(total + 1, np.int32)
        key_data_buffer, key_data = _room(int(self.sums[5]), np.uint8)
        value_ends_buffer, value_ends = _room(total + 1, np.int32)
        value_data_buffer, value_data = _room(int(self.sums[6]), np.uint8)
        bits_buffer, bits = _room((total + 7) // 8, np.uint8)
        key_ends[0] = value_ends[0] = 0
        bits[:] = 0xFF
        if total:
            records.read_headers(
                self.buf, self.header_at, self.header_ends, self.rows, key_ends, key_data, value_ends, bits, value_data, sums
            )  # fmt: skip
        value = _binary(pa.binary(), total, bits_buffer, value_ends_buffer, value_data_buffer, int(sums[0]))
        key = _binary(pa.string(), total, None, key_ends_buffer, key_data_buffer, 0)
        raw: pa.Array | None = None
        if sums[1]:
            stored = _binary(pa.binary(), total, None, key_ends_buffer, key_data_buffer, 0)
            key, wrong = java_strings(stored)
            if wrong is not None:
                raw = self._raw_headers(stored, value, wrong)
        return self._list(HEADER, [key, value]), raw

    def _raw_headers(self, key: pa.Array, value: pa.Array, wrong: Bools) -> pa.Array:
        """Return the headers with raw keys for the rows with a key that is not UTF-8, null elsewhere."""
        ends = self.header_ends[: self.rows + 1].astype(np.int64)
        before = np.concatenate(([0], np.cumsum(wrong)))
        rows = before[ends[1:]] > before[ends[:-1]]
        # Taking by a null index gives null, and drops the headers of the other rows.
        return self._list(HEADER_RAW, [key, value]).take(numbers(pa.int64(), np.arange(self.rows), ~rows))

    def _list(self, kind: pa.DataType, children: list[pa.Array]) -> pa.Array:
        entries = pa.StructArray.from_arrays(children, fields=list(kind))
        return pa.Array.from_buffers(
            pa.list_(kind), self.rows, [None, self._header_ends], 0, children=[entries]
        )


def records_end(window: Window, batch: Frames, limit: int) -> int | None:
    """Return the highest offset of a batch's records, base_offset - 1 if it has none; None if they cannot be read."""
    for part in sections(window, batch, limit):
        read = Read(part, batch.header, 0)
        if part.faults or read.bad.any():
            return None
        if read.rows:
            return read.served
    return int(batch.header["base_offset"][0]) - 1


def fields(head: npt.NDArray[Any]) -> tuple[Int64s, ...]:
    """Return for each header base_offset, base_timestamp, max_timestamp, records_count, and whether it has append time (0 or 1)."""
    names = ("base_offset", "base_timestamp", "max_timestamp", "records_count")
    append = head["attributes"] & TIMESTAMP_TYPE != 0
    return (*(head[name].astype(np.int64) for name in names), append.astype(np.int64))


def _room(length: int, kind: Any) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    """Return memory for `length` numbers, and a view of it. It is from Arrow's allocator: malloc returns large blocks to the system
    each time, and getting them again costs as much as decoding."""
    buffer = pa.allocate_buffer(length * np.dtype(kind).itemsize, resizable=True)
    return buffer, np.frombuffer(buffer, kind)


_NOTHING = {kind: _room(0, kind) for kind in (np.int8, np.uint8, np.int32, np.int64)}


def _binary(
    kind: pa.DataType, rows: int, bits: pa.Buffer | None, ends: pa.Buffer, data: pa.Buffer, nulls: int
) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [bits if nulls else None, ends, data], nulls)


# Columns


class _Piece:
    """Batches of a window, read into one record batch."""

    def __init__(self, window: Window, frames: Frames, part: Sections, context: LogContext) -> None:
        self.window, self.frames, self.part, self.context = window, frames, part, context
        self.head = frames.header
        self.flags = self.head["attributes"].astype(np.int64)

    def decode(self, columns: Sequence[str], schema: pa.Schema) -> Decoded:
        context, part = self.context, self.part
        want = 0
        for name in columns:
            want |= _WANT.get(name, 0)
        has_control = "control_type" in columns and bool((self.flags & CONTROL).any())
        if has_control:
            want |= records.WANT_KEY
        start = self.window.offset + int(self.frames.start[0])
        self.read = Read(
            part,
            self.head,
            want,
            partial=context.partial,
            served=context.served if start >= context.served_end else NOTHING_SERVED,
            low=NOTHING_SERVED if context.start_offset is None else context.start_offset,
            high=records.INT64_MAX if context.end_offset is None else context.end_offset - 1,
        )
        faults = self._faults()
        context.served = self.read.served
        context.served_end = self.window.offset + int(self.frames.end[-1])
        arrays = [self._column(name) for name in columns]
        return Decoded(batch_of(arrays, schema, self.read.rows), faults)

    # Faults

    def _faults(self) -> list[tuple[int, Fault]]:
        read = self.read
        if not read.has_findings and not self.part.faults:
            return []
        suspect = np.flatnonzero((read.bad != 0) | (read.left_out != 0))
        before = np.concatenate(([0], np.cumsum(read.per_frame)))
        last = self.head["last_offset"].astype(np.int64)
        reached = np.maximum.accumulate(last) + 1
        faults: list[tuple[int, Fault]] = []
        for i in sorted({*suspect.tolist(), *self.part.faults}):
            text = self.part.faults.get(i)
            if text is None and read.bad[i]:
                record, at = int(read.bad_record[2 * i]), int(read.bad_record[2 * i + 1])
                place = at - int(self.part.start[i])
                where = "decompressed" if self.flags[i] & COMPRESSION else "stored"
                reason = {**records.REASONS, **messages.REASONS}[int(read.bad[i])]
                text = f"record {record}, at byte {place} of the {where} records: {reason}"
            if text is not None:
                lost = self._declared(i)
                if lost is not None:
                    lost = max(0, lost - int(read.per_frame[i]))
                codec = int(self.flags[i]) & COMPRESSION
                kind = Kind.UNSUPPORTED if codec >= len(COMPRESSION_NAMES) else Kind.PAYLOAD
                faults.append((int(before[i + 1]), self._fault(i, kind, text, lost)))
            else:
                left = int(read.left_out[i])
                text = f"skipped: {plural.count(left, 'record')}, with offsets not above those before"
                fault = self._fault(i, Kind.ORDER, text, left)
                if not read.per_frame[i]:
                    fault = self._displaced(i, fault, reached)
                faults.append((int(before[i + 1]), fault))
        return faults

    def _displaced(self, i: int, fault: Fault, reached: Int64s) -> Fault:
        """Return the fault of a batch all of whose records are skipped: its own offsets are wrong, and the batches around it show what
        is lost. `reached` is the offset after each batch and all before it."""
        if i and int(reached[i - 1]) <= int(self.head["base_offset"][i]):
            return fault  # only the offsets of its records are wrong
        lost = {name: fault.lost[name] for name in ("topic", "partition") if name in fault.lost}
        if not 0 < i < len(self.head) - 1:
            return replace(fault, lost=lost)
        first = int(reached[i - 1])
        next_first = int(self.head["base_offset"][i + 1])
        if first == next_first:
            return replace(fault, rows_lost=0, lost={})
        if next_first - first == self._claimed(i):
            lost |= {"first_offset": first, "last_offset": next_first - 1}
        return replace(fault, lost=lost)

    def _declared(self, i: int) -> int | None:
        """Return the number of records of a bad batch by its header; None if that is wrong, since bytes are left after them."""
        if self.read.bad[i] in (records.BAD_COUNT, records.BAD_TAIL) or self.head["records_count"][i] < 0:
            return None
        return max(0, min(int(self.head["records_count"][i]), self._claimed(i)))

    def _claimed(self, i: int) -> int:
        """Return the number of offsets of a batch."""
        return int(self.head["last_offset"][i]) - int(self.head["base_offset"][i]) + 1

    def _fault(self, i: int, kind: Kind, text: str, rows_lost: int | None) -> Fault:
        base = int(self.head["base_offset"][i])
        lost: dict[str, Any] = {}
        if self.context.topic is not None:
            lost = {"topic": self.context.topic, "partition": self.context.partition}
        lost |= {"first_offset": base, "last_offset": int(self.head["last_offset"][i])}
        start, end = int(self.frames.start[i]), int(self.frames.end[i])
        system = "brokers do not read records: they keep and replicate the batch, and consumers stop here"
        severity = Severity.ERROR
        if kind is Kind.UNSUPPORTED:
            severity = Severity.WARNING
        elif kind is Kind.ORDER:
            system, severity = "consumers skip records whose offset they have passed", Severity.WARNING
        return Fault(
            NAME, self.window.offset + start, end - start, kind, text, severity, system, rows_lost, lost
        )

    # Columns

    def _column(self, name: str) -> pa.Array:
        read, context = self.read, self.context
        if name in (
            "key",
            "value",
            "offset",
            "timestamp",
            "timestamp_ms",
            "create_timestamp_ms",
            "attributes",
        ):
            column: pa.Array = getattr(read, name)()
            return column
        match name:
            case "headers":
                return self._headers[0]
            case "headers_raw":
                raw = self._headers[1]
                return pa.nulls(read.rows, pa.list_(HEADER_RAW)) if raw is None else raw
            case "topic":
                return constant(pa.string(), context.topic, read.rows)
            case "partition":
                return constant(pa.int32(), context.partition, read.rows)
            case "segment":
                return constant(pa.int64(), context.base_offset, read.rows)
            case "position":
                return numbers(pa.int64(), np.repeat(self.window.offset + self.frames.start, read.per_frame))
            case "sequence":
                return self._sequence()
            case "control_type":
                return self._control_type()
        return self._of_frame(name)

    @cached_property
    def _headers(self) -> tuple[pa.Array, pa.Array | None]:
        return self.read.headers()

    def _of_frame(self, name: str) -> pa.Array:
        """Return a column with one value for all records of a batch."""
        head, flags = self.head, self.flags
        match name:
            case "timestampType":
                append = (flags & TIMESTAMP_TYPE != 0).astype(np.int32) * LOG_APPEND_TIME
                return self._spread(np.where(head["magic"] == 0, NO_TIMESTAMP_TYPE, append), pa.int32())
            case "leader_epoch":
                return self._spread(head["partition_leader_epoch"], pa.int32())
            case "producer_id":
                return self._spread(head["producer_id"], pa.int64())
            case "producer_epoch":
                return self._spread(head["producer_epoch"].astype(np.int16), pa.int16())
            case "is_transactional":
                return self._spread(flags & TRANSACTIONAL != 0, pa.bool_())
            case "magic":
                return self._spread(head["magic"].astype(np.int8), pa.int8())
            case "compression":
                return _CODEC_NAMES.take(self._spread(flags & COMPRESSION, pa.int64()))
        assert name == "is_control", name
        return self._spread(flags & CONTROL != 0, pa.bool_())

    def _spread(self, values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
        if len(values) and (values == values[0]).all():
            return constant(kind, values[0].item(), self.read.rows)
        return numbers(kind, np.repeat(values, self.read.per_frame))

    def _sequence(self) -> pa.Array:
        """Return sequence numbers as `DefaultRecordBatch.incrementSequence`: 0 comes after the largest number."""
        first = np.repeat(self.head["base_sequence"].astype(np.int64), self.read.per_frame)
        base = np.repeat(self.head["base_offset"].astype(np.int64), self.read.per_frame)
        ahead = self.read.offsets[: self.read.rows] - base
        return numbers(pa.int32(), np.where(first < 0, -1, (first + ahead) & 0x7FFFFFFF))

    def _control_type(self) -> pa.Array:
        control = np.repeat(self.flags & CONTROL != 0, self.read.per_frame)
        if not control.any():
            return pa.nulls(self.read.rows, pa.string())
        keys = self.read.key()
        names: list[bytes | None] = [None] * self.read.rows
        for i in np.flatnonzero(control).tolist():
            names[i] = control_type_name(keys[i].as_py()).encode()
        return contents(pa.string(), names)


def control_type_name(key: bytes | None) -> str:
    """Return the type in the key of a control record, in upstream's words; UNKNOWN for types of later versions too."""
    if key is None or len(key) < 4 or key[0] & 0x80:
        return "MALFORMED"
    return CONTROL_TYPES.get(int.from_bytes(key[2:4], "big", signed=True), "UNKNOWN")
