"""The kernel that writes records into batches, and the rows that it takes.

It makes one pass. The size of a record follows from its lengths, so a full batch is closed while records are written. The result is
byte for byte that of Kafka's producer (`MemoryRecordsBuilder`, `DefaultRecord.writeTo`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int8s, Int32s, Int64s
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.arrow_input import (
    ALL_NULL,
    MAX_INT32,
    NO_HEADERS,
    NO_NULLS,
    NOTHING,
    Binary,
    Headers,
    binary,
    column,
    headers,
    milliseconds,
    with_raw,
)
from logwright.codec.kafka.formats.log.layout import (
    CRC_START,
    CREATE_TIME,
    HEAD_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP_TYPE,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
)
from logwright.codec.kafka.formats.log.records import INT64_MAX, INT64_MIN
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import (
    copy,
    load_u8,
    size_varlong,
    store_16be,
    store_16le,
    store_32be,
    store_64be,
    store_64le,
    write_varlong,
)
from logwright.codec.kernels.kernel import kernel

_LENGTH = RECORD_BATCH.offset("batch_length")
_EPOCH = RECORD_BATCH.offset("partition_leader_epoch")
_MAGIC = RECORD_BATCH.offset("magic")
_CRC = RECORD_BATCH.offset("crc")
_ATTRIBUTES = RECORD_BATCH.offset("attributes")
_DELTA = RECORD_BATCH.offset("last_offset_delta")
_BASE_TIMESTAMP = RECORD_BATCH.offset("base_timestamp")
_MAX_TIMESTAMP = RECORD_BATCH.offset("max_timestamp")
_PRODUCER = RECORD_BATCH.offset("producer_id")
_PRODUCER_EPOCH = RECORD_BATCH.offset("producer_epoch")
_SEQUENCE = RECORD_BATCH.offset("base_sequence")
_COUNT = RECORD_BATCH.offset("records_count")

_NO_INT64 = np.empty(0, np.int64)
_NO_INT8 = np.empty(0, np.int8)

MAX_OVERHEAD = 36
"""The most bytes of a record without its key, value and headers: length (5), attributes (1), time (10), and four varints of 5."""


# The state of the open batch between two calls.
OPEN, COUNT, BASE_OFFSET, BASE_TIMESTAMP, TOP_TIMESTAMP, KIND, LAST_OFFSET, BATCHES, TOO_LARGE = range(9)
STATE = 9


def closed() -> Int64s:
    """Return the state without an open batch."""
    state = np.zeros(STATE, np.int64)
    state[OPEN] = state[TOO_LARGE] = -1
    return state


@kernel("i8, const u1[], i8, i8")
def null_at(mode: int, bits: Bytes, first: int, i: int) -> bool:
    """Return whether value `i` is null. Its bit is at `first + i`."""
    if mode == NO_NULLS:
        return False
    if mode == ALL_NULL:
        return True
    at = first + i
    return (load_u8(bits, at >> 3) >> (at & 7)) & 1 == 0


@kernel("i8, i8")
def difference(a: int, b: int) -> int:
    """Return `a - b`, wrapped around at 64 bits as in Java."""
    if b < 0 and a > INT64_MAX + b:
        return INT64_MIN + (a - (INT64_MAX + b) - 1)
    if b > 0 and a < INT64_MIN + b:
        return INT64_MAX - ((INT64_MIN + b) - a - 1)
    return a - b


@kernel("u1[], i8, i8[], i8, i8, i8")
def close_batch(out: Bytes, end: int, state: Int64s, epoch: int, codec: int, check: int) -> None:
    """Write the header of the open batch, which ends at `end`. `check`: with its checksum."""
    at = int(state[OPEN])
    store_64be(out, at, int(state[BASE_OFFSET]))
    store_32be(out, at + _LENGTH, end - at - LENGTH_END)
    store_32be(out, at + _EPOCH, epoch)
    out[at + _MAGIC] = MAGIC
    store_16be(out, at + _ATTRIBUTES, codec | int(state[KIND]) * TIMESTAMP_TYPE)
    store_32be(out, at + _DELTA, int(state[LAST_OFFSET]) - int(state[BASE_OFFSET]))
    store_64be(out, at + _BASE_TIMESTAMP, int(state[BASE_TIMESTAMP]))
    store_64be(out, at + _MAX_TIMESTAMP, int(state[TOP_TIMESTAMP]))
    store_64be(out, at + _PRODUCER, -1)
    store_16be(out, at + _PRODUCER_EPOCH, -1)
    store_32be(out, at + _SEQUENCE, -1)
    store_32be(out, at + _COUNT, int(state[COUNT]))
    store_32be(out, at + _CRC, crc32c(out, at + CRC_START, end) if check else 0)
    state[OPEN] = -1


@kernel(
    "i8, const i4[], const u1[], i8, const u1[], i8, "
    "const i4[], const u1[], i8, const u1[], i8, "
    "const i4[], const i4[], const u1[], const i4[], const u1[], i8, const u1[], i8, "
    "const i8[], const i8[], const u1[], const i8[], const i1[], "
    "const i8[], const i8[], const i8[], i8, i8, i8, i8, u1[], i8, i8[], i8[]"
)
def write_records(
    rows: int,
    key_ends: Int32s, key_data: Bytes, key_mode: int, key_bits: Bytes, key_bit: int,
    value_ends: Int32s, value_data: Bytes, value_mode: int, value_bits: Bytes, value_bit: int,
    header_ends: Int32s, name_ends: Int32s, name_data: Bytes,
    content_ends: Int32s, content_data: Bytes, content_mode: int, content_bits: Bytes, content_bit: int,
    times: Int64s, creates: Int64s, kinds: Bytes, offsets: Int64s, attributes: Int8s,
    cuts: Int64s, cut_offsets: Int64s, cut_times: Int64s,
    batch_size: int, epoch: int, codec: int, check: int, out: Bytes, at: int, state: Int64s, starts: Int64s,
) -> int:  # fmt: skip
    """Write `rows` records from `out[at]` on. Return where they end.

    `*_ends` have one more element than there are values: value i is `data[ends[i] : ends[i + 1]]`. `times` are the timestamps that
    consumers see, `creates` those from which the deltas are computed, `kinds` the timestamp types. `attributes` may be empty: all 0.

    With `cuts`, batch k starts at row `cuts[k]` with the given base offset and time. Only records are written, with room for the
    headers. Without `cuts`, a batch is closed when it is full, when the timestamp type or the append time changes, or when offsets
    are too far apart. Closed batches get their headers, and the last one stays open (see `state`). The positions of the batches are
    written to `starts`. A record that is too large for a batch ends the call: its row is `state[TOO_LARGE]`.
    """
    has_cuts = len(cuts) > 0
    cut = 0
    batches = int(state[BATCHES])
    first = int(state[OPEN])
    count = int(state[COUNT])
    base_offset = int(state[BASE_OFFSET])
    base_timestamp = int(state[BASE_TIMESTAMP])
    top = int(state[TOP_TIMESTAMP])
    batch_kind = int(state[KIND])
    last_offset = int(state[LAST_OFFSET])
    for i in range(rows):
        key_size = -1
        if not null_at(key_mode, key_bits, key_bit, i):
            key_size = int(key_ends[i + 1]) - int(key_ends[i])
        value_size = -1
        if not null_at(value_mode, value_bits, value_bit, i):
            value_size = int(value_ends[i + 1]) - int(value_ends[i])
        header_first = 0
        header_count = 0
        # The size of all fields after the offset. The sizes of short varints are computed here, without a call.
        fixed = 1 if key_size < 64 else 2 if key_size < 8192 else size_varlong(key_size)
        fixed += 1 if value_size < 64 else 2 if value_size < 8192 else size_varlong(value_size)
        fixed += max(key_size, 0) + max(value_size, 0)
        if len(header_ends) > 0:
            header_first = int(header_ends[i])
            header_count = int(header_ends[i + 1]) - header_first
            for h in range(header_first, header_first + header_count):
                size = int(name_ends[h + 1]) - int(name_ends[h])
                fixed += size + size_varlong(size)
                if null_at(content_mode, content_bits, content_bit, h):
                    fixed += 1
                else:
                    size = int(content_ends[h + 1]) - int(content_ends[h])
                    fixed += size + size_varlong(size)
        fixed += 1 if header_count < 64 else size_varlong(header_count)
        kind = load_u8(kinds, i)
        offset = int(offsets[i])
        time = int(times[i])
        create = int(creates[i])
        while has_cuts and cut < len(cuts) and cuts[cut] == i:
            starts[cut] = at
            at += HEAD_SIZE
            base_offset = int(cut_offsets[cut])
            base_timestamp = int(cut_times[cut])
            cut += 1
        delta = difference(create, base_timestamp)
        ahead = difference(offset, base_offset)
        body = 1 + fixed
        body += 1 if -64 <= delta < 64 else 2 if -8192 <= delta < 8192 else size_varlong(delta)
        body += 1 if -64 <= ahead < 64 else 2 if -8192 <= ahead < 8192 else size_varlong(ahead)
        if not has_cuts and (
            first < 0
            or at - first + body + size_varlong(body) > batch_size
            or ahead > MAX_INT32
            or kind != batch_kind
            or (kind == 1 and time != top)
        ):
            if first >= 0:
                state[OPEN] = first
                state[COUNT] = count
                state[BASE_OFFSET] = base_offset
                state[BASE_TIMESTAMP] = base_timestamp
                state[TOP_TIMESTAMP] = top
                state[KIND] = batch_kind
                state[LAST_OFFSET] = last_offset
                close_batch(out, at, state, epoch, codec, check)
            starts[batches] = at
            batches += 1
            first = at
            count = 0
            base_offset = offset
            base_timestamp = create
            top = time
            batch_kind = kind
            at += HEAD_SIZE
            delta = 0
            ahead = 0
            body = fixed + 3
        if body > MAX_INT32 - HEAD_SIZE - 5:
            state[TOO_LARGE] = i
            return at
        attribute = (int(attributes[i]) & 0xFF) if len(attributes) > 0 else 0
        if body < 8192 and -8192 <= delta < 8192 and -8192 <= ahead < 8192:
            # Length, attributes and both deltas take at most seven bytes, and are written as one word. There is room for eight,
            # since the buffer has room for the largest form of each record.
            word = body << 1
            used = 8
            if word > 0x7F:
                word = (word & 0x7F) | 0x80 | word >> 7 << 8
                used = 16
            word |= attribute << used
            used += 8
            number = (delta << 1) ^ (delta >> 63)
            if number > 0x7F:
                word |= ((number & 0x7F) | 0x80 | number >> 7 << 8) << used
                used += 16
            else:
                word |= number << used
                used += 8
            number = (ahead << 1) ^ (ahead >> 63)
            if number > 0x7F:
                word |= ((number & 0x7F) | 0x80 | number >> 7 << 8) << used
                used += 16
            else:
                word |= number << used
                used += 8
            store_64le(out, at, word)
            at += used >> 3
        else:
            at = write_varlong(out, at, body)
            out[at] = attribute
            at = write_varlong(out, at + 1, delta)
            at = write_varlong(out, at, ahead)
        if key_size < 64:
            out[at] = 1 if key_size < 0 else key_size << 1
            at += 1
        else:
            at = write_varlong(out, at, key_size)
        if key_size > 0:
            copy(out, at, key_data, int(key_ends[i]), key_size)
            at += key_size
        if value_size < 64:
            out[at] = 1 if value_size < 0 else value_size << 1
            at += 1
        elif value_size < 8192:
            at = store_16le(out, at, (value_size << 1 & 0x7F) | 0x80 | value_size >> 6 << 8)
        else:
            at = write_varlong(out, at, value_size)
        if value_size > 0:
            copy(out, at, value_data, int(value_ends[i]), value_size)
            at += value_size
        if header_count == 0:
            out[at] = 0
            at += 1
        else:
            at = write_varlong(out, at, header_count)
            for h in range(header_first, header_first + header_count):
                size = int(name_ends[h + 1]) - int(name_ends[h])
                at = write_varlong(out, at, size)
                copy(out, at, name_data, int(name_ends[h]), size)
                at += size
                if null_at(content_mode, content_bits, content_bit, h):
                    at = write_varlong(out, at, -1)
                else:
                    size = int(content_ends[h + 1]) - int(content_ends[h])
                    at = write_varlong(out, at, size)
                    copy(out, at, content_data, int(content_ends[h]), size)
                    at += size
        count += 1
        last_offset = offset
        top = max(top, time)
    while has_cuts and cut < len(cuts):
        starts[cut] = at
        at += HEAD_SIZE
        cut += 1
    state[OPEN] = first
    state[COUNT] = count
    state[BASE_OFFSET] = base_offset
    state[BASE_TIMESTAMP] = base_timestamp
    state[TOP_TIMESTAMP] = top
    state[KIND] = batch_kind
    state[LAST_OFFSET] = last_offset
    state[BATCHES] = batches
    return at


# Rows in the form that the kernel takes


@dataclass(slots=True)
class Rows:
    """Rows in the form that `write_records` takes."""

    count: int
    key: Binary
    value: Binary
    headers: Headers
    times: Int64s
    creates: Int64s
    kinds: Bytes
    offsets: Int64s
    attributes: Int8s
    groups: Int64s | None = None
    """Rows with the same number from 0 on stay in one wrapper (magic 0 and 1)."""

    @property
    def most(self) -> int:
        """The most bytes that the rows take, each in a separate batch."""
        return self.key.size + self.value.size + self.headers.size + self.count * (MAX_OVERHEAD + HEAD_SIZE)

    def write(
        self,
        out: Bytes,
        at: int,
        state: Int64s,
        starts: Int64s,
        *,
        cuts: tuple[Int64s, Int64s, Int64s] = (_NO_INT64, _NO_INT64, _NO_INT64),
        batch_size: int = 0,
        epoch: int = 0,
        codec: int = 0,
        check: bool = True,
    ) -> int:
        """Call the kernel. Raises `UsageError` for a record that is too large."""
        key, value, names, contents = self.key, self.value, self.headers.names, self.headers.contents
        at = write_records(
            self.count,
            key.ends, key.data, key.mode, key.bits, key.bit,
            value.ends, value.data, value.mode, value.bits, value.bit,
            self.headers.ends, names.ends, names.data,
            contents.ends, contents.data, contents.mode, contents.bits, contents.bit,
            self.times, self.creates, self.kinds, self.offsets, self.attributes,
            *cuts,
            batch_size, epoch, codec, int(check), out, at, state, starts,
        )  # fmt: skip
        if state[TOO_LARGE] >= 0:
            raise UsageError(
                f"row {int(state[TOO_LARGE])}: the record is larger than 2 GiB, the limit of a batch"
            )
        return at


def prepare(
    rows: pa.RecordBatch, offsets: Int64s, timestamp_type: int, now: int, missing: Rows | None = None
) -> Rows:
    """Return rows in the form that the kernel takes, with these offsets.

    `timestamp_type` and `now` are the defaults of absent columns. Other absent columns are taken from `missing`. Raises `UsageError`
    for columns of wrong types.
    """
    count = rows.num_rows
    kinds = np.full(count, timestamp_type, np.uint8) if missing is None else missing.kinds
    array = column(rows, "timestampType")
    if array is not None:
        numbers = np.asarray(array.cast(pa.int32()).fill_null(timestamp_type))
        if ((numbers < NO_TIMESTAMP_TYPE) | (numbers > LOG_APPEND_TIME)).any():
            raise UsageError("column 'timestampType' must be -1 (none), 0 (CreateTime) or 1 (LogAppendTime)")
        # Rows of magic 0, which has no timestamps, become rows without a timestamp of the usual type, as in a broker.
        kinds = np.maximum(numbers, CREATE_TIME).astype(np.uint8)
    times = _times(rows, now, missing)
    creates = times
    array = column(rows, "create_timestamp_ms")
    if array is not None and kinds.any():
        stored, null = milliseconds(array, "create_timestamp_ms")
        creates = np.where((kinds == 1) & ~null, stored, times)
    elif missing is not None:
        creates = np.where(kinds == 1, missing.creates, times)
    array = column(rows, "attributes")
    attributes = _NO_INT8 if missing is None else missing.attributes
    if array is not None and not pa.types.is_null(array.type):
        flags = np.asarray(array.cast(pa.int8()).fill_null(0))
        attributes = flags if flags.any() else _NO_INT8
    key, value = column(rows, "key"), column(rows, "value")
    none = NOTHING
    return Rows(
        count,
        binary(key, "key") if key is not None else none if missing is None else missing.key,
        binary(value, "value") if value is not None else none if missing is None else missing.value,
        _headers(rows, missing),
        times,
        creates,
        kinds,
        offsets,
        attributes,
    )


def _times(rows: pa.RecordBatch, now: int, missing: Rows | None) -> Int64s:
    """Return the timestamps that consumers see: `timestamp`, and where it is null or absent the raw `timestamp_ms`."""
    shown, raw = column(rows, "timestamp"), column(rows, "timestamp_ms")
    if shown is None and raw is None:
        return np.full(rows.num_rows, now, np.int64) if missing is None else missing.times
    if shown is None:
        assert raw is not None
        return milliseconds(raw, "timestamp_ms")[0]
    times, null = milliseconds(shown, "timestamp")
    if raw is not None and null.any():
        # A time that does not fit Spark's microseconds is null there, but in the raw column.
        times = np.where(null, milliseconds(raw, "timestamp_ms")[0], times)
    return times


def _headers(rows: pa.RecordBatch, missing: Rows | None) -> Headers:
    array = column(rows, "headers")
    if array is None:
        return NO_HEADERS if missing is None else missing.headers
    raw = column(rows, "headers_raw")
    if raw is not None and raw.null_count < len(raw):
        array = with_raw(array, raw)
    return headers(array)


def check_times(times: Int64s, first_row: int = 0) -> None:
    """Raise `UsageError` for a time below -1, which Kafka refuses (`MemoryRecordsBuilder`)."""
    if len(times) and int(times.min()) < -1:
        row = int(np.argmax(times < -1))
        raise UsageError(
            f"row {first_row + row}: timestamp {int(times[row])} ms is before 1970",
            advice="Kafka accepts times from 1970 on, and -1 (null here) for none",
        )


def room(size: int) -> Any:
    """Allocate memory with Arrow's allocator: (buffer, view)."""
    buffer = pa.allocate_buffer(size, resizable=True)
    return buffer, np.frombuffer(buffer, np.uint8)
