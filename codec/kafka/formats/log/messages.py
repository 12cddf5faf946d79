"""Read messages of magic 0 and 1: a kernel that decodes them to columns, and the decompression of wrappers.

A set of messages is an uncompressed message, or the decompressed value of a wrapper. The rules are those of a consumer
(`AbstractLegacyRecordBatch.DeepRecordsIterator`, `DataLogInputStream`, `LegacyRecord` of Kafka's clients library): the magic of the wrapper
decides whether offsets are absolute (0) or count from the first one (1), an incomplete message at the end of a set is ignored, and messages
in a wrapper may not be compressed. Each has its own checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.describe import DescriptionError
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    LENGTH_END,
    MAGIC,
    MESSAGE,
    MESSAGE_TIME,
    TIMESTAMP_TYPE,
    codec_name,
)
from logwright.codec.kafka.formats.log.records import (
    INT64_MAX,
    INT64_MIN,
    WANT_ATTRIBUTES,
    WANT_CREATE,
    WANT_HEADERS,
    WANT_KEY,
    WANT_OFFSET,
    WANT_TIMESTAMP,
    WANT_VALUE,
    add,
)
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.kernels.compress import CompressionError, decompress
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import append, load_i32be, load_i64be, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes, Frames, Window

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_SIZE, _CRC, _MAGIC, _ATTRIBUTES = (
    MESSAGE.offset(name) for name in ("message_size", "crc", "magic", "attributes")
)
_CONTENT = MESSAGE.head_size
_LEAST = _CONTENT - LENGTH_END + 2 * 4
"""The smallest message_size in a set (`LegacyRecord.RECORD_OVERHEAD_V0`)."""

OWN_TIME = INT64_MIN

BAD_SET, EMPTY_SET, BAD_SIZE, BAD_MESSAGE_MAGIC, BAD_CRC, NESTED, BAD_FIELDS, BAD_WRAPPER = range(20, 28)
REASONS = {
    BAD_SET: "the wrapper has no value",
    EMPTY_SET: "the wrapper has no complete message",
    BAD_SIZE: f"message_size is below {_LEAST}",
    BAD_MESSAGE_MAGIC: "the magic of the message is neither 0 nor 1",
    BAD_CRC: "the checksum of the message is wrong",
    NESTED: "the message in the wrapper is compressed too",
    BAD_FIELDS: "the key or the value is longer than the rest of the message",
    BAD_WRAPPER: "the offset of the wrapper is below the relative offset of its last message",
}


@kernel("const u1[], i8, i8, i8[]")
def walk_set(buf: Bytes, at: int, end: int, offsets: Int64s) -> tuple[int, int]:
    """Return the number of complete messages in a set, and a reason or 0. `offsets` gets the stored offsets of the first and the last."""
    count = 0
    while end - at >= LENGTH_END:
        size = load_i32be(buf, at + _SIZE)
        if size < _LEAST:
            return count, BAD_SIZE
        if size > end - at - LENGTH_END:
            break
        offsets[1] = load_i64be(buf, at)
        if count == 0:
            offsets[0] = offsets[1]
        count += 1
        at += LENGTH_END + size
    return count, (EMPTY_SET if count == 0 else 0)


@kernel("const u1[], i8, i8")
def value_of(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the start and the size of the value of the message `buf[at:end]`. The size is negative for null. The
    start is -1 if the value exceeds the message."""
    at += _CONTENT + (MESSAGE_TIME if load_u8(buf, at + _MAGIC) == 1 else 0)
    if end - at < 8:
        return -1, 0
    size = max(0, load_i32be(buf, at))
    if size > end - at - 8:
        return -1, 0
    at += 4 + size
    size = load_i32be(buf, at)
    return (-1 if size > end - at - 4 else at + 4), size


@kernel(
    "const u1[], const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], i8, i8, i8, i8, i8, "
    "i8[], i8[], u1[], i8[], i4[], u1[], u1[], i4[], u1[], u1[], i4[], i8[], i1[], i8[], i8[], i8[], i8[], i8[], i8[], i8[]"
)
def read_messages(
    buf: Bytes, set_start: Int64s, set_end: Int64s, count: Int64s, shift: Int64s, wrapped: Int64s, append_time: Int64s,
    want: int, partial: int, served: int, low: int, high: int,
    offsets: Int64s, timestamps: Int64s, timestamp_bits: Bytes, creates: Int64s,
    key_ends: Int32s, key_bits: Bytes, key_data: Bytes, value_ends: Int32s, value_bits: Bytes, value_data: Bytes,
    header_ends: Int32s, header_at: Int64s, attributes: npt.NDArray[np.int8],
    rows: Int64s, left_out: Int64s, odd_frames: Int64s, bad: Int64s, bad_record: Int64s, pair: Int64s, sums: Int64s,
) -> int:  # fmt: skip
    """Read the messages of sets. Return the number of rows. The arguments from `want` on are those of `records.read_records`.

    Set i has `count[i]` messages in `buf[set_start[i] : set_end[i]]`. Their offsets are stored less `shift[i]`. `wrapped` is 1 for a set
    from a wrapper. `append_time` is the wrapper's append time, which applies to its messages of magic 1, or `OWN_TIME`. A message that is
    not in a wrapper has been checked as a frame.
    """
    row = 0
    key_end = 0
    value_end = 0
    key_nulls = 0
    value_nulls = 0
    timestamp_nulls = 0
    for frame in range(len(set_start)):
        at = set_start[frame]
        stop = set_end[frame]
        moved = shift[frame]
        inner = wrapped[frame] != 0
        odd = 0
        left = 0
        reason = 0
        record = 0
        start = at
        # The state to restore if a message is bad.
        row0 = row
        key0 = key_end
        value0 = value_end
        served0 = served
        nulls0 = key_nulls
        nulls1 = value_nulls
        nulls2 = timestamp_nulls
        while record < count[frame]:
            start = at
            end = at + LENGTH_END + load_i32be(buf, at + _SIZE) if inner else stop
            magic = load_u8(buf, at + _MAGIC)
            place = at + _CONTENT + (MESSAGE_TIME if magic == 1 else 0)
            if magic > 1:
                reason = BAD_MESSAGE_MAGIC
                break
            if end - place < 8:
                reason = BAD_FIELDS
                break
            key_size = load_i32be(buf, place)
            if key_size > end - place - 8:
                reason = BAD_FIELDS
                break
            key_at = place + 4
            place = key_at + max(0, key_size)
            value_size = load_i32be(buf, place)
            value_at = place + 4
            if value_size > end - value_at:
                reason = BAD_FIELDS
                break
            if inner:
                if load_u8(buf, at + _ATTRIBUTES) & COMPRESSION != 0:
                    reason = NESTED
                    break
                if crc32(buf, at + _MAGIC, end) != load_u32be(buf, at + _CRC):
                    reason = BAD_CRC
                    break
            if key_size < -1 or value_size < -1 or value_at + max(0, value_size) != end:
                odd = 1
            record += 1
            offset = add(load_i64be(buf, at), moved)
            created = load_i64be(buf, at + _CONTENT) if magic == 1 else -1
            at = end
            if offset <= served:
                left += 1
                continue
            served = offset
            if offset < low or offset > high:
                continue
            if want & WANT_OFFSET:
                offsets[row] = offset
            if want & WANT_TIMESTAMP:
                time = append_time[frame] if magic == 1 and append_time[frame] != OWN_TIME else created
                timestamps[row] = time
                if time == -1:
                    timestamp_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    timestamp_nulls += 1
            if want & WANT_CREATE:
                creates[row] = created
            if want & WANT_KEY:
                if key_size > 0:
                    append(key_data, key_end, buf, key_at, key_size)
                    key_end += key_size
                elif key_size < 0:
                    key_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    key_nulls += 1
                key_ends[row + 1] = key_end
            if want & WANT_VALUE:
                if value_size > 0:
                    append(value_data, value_end, buf, value_at, value_size)
                    value_end += value_size
                elif value_size < 0:
                    value_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    value_nulls += 1
                value_ends[row + 1] = value_end
            if want & WANT_HEADERS:
                header_ends[row + 1] = 0
                header_at[row] = at
            row += 1
        if reason != 0 and partial == 0:
            for i in range(row0, row):
                bit = 1 << (i & 7)
                if want & WANT_TIMESTAMP:
                    timestamp_bits[i >> 3] |= bit
                if want & WANT_KEY:
                    key_bits[i >> 3] |= bit
                if want & WANT_VALUE:
                    value_bits[i >> 3] |= bit
            row = row0
            key_end = key0
            value_end = value0
            served = served0
            key_nulls = nulls0
            value_nulls = nulls1
            timestamp_nulls = nulls2
            left = 0
        rows[frame] = row - row0
        left_out[frame] = left
        odd_frames[frame] = odd
        bad[frame] = reason
        bad_record[2 * frame] = record
        bad_record[2 * frame + 1] = start
    for i in range(row):
        if want & WANT_ATTRIBUTES:
            attributes[i] = 0
    sums[0] = key_nulls
    sums[1] = value_nulls
    sums[2] = timestamp_nulls
    sums[3] = key_end
    sums[4] = value_end
    sums[5] = 0
    sums[6] = 0
    sums[7] = 0
    sums[8] = served
    return row


# Wrappers


class BadSet(Exception):
    """A wrapper whose set of messages cannot be read: a reason of `REASONS`, or the text of the decompressor."""

    def __init__(self, reason: int, text: str = "") -> None:
        super().__init__(text or REASONS[reason])


@dataclass(frozen=True, slots=True)
class MessageSet:
    """The message set of a frame: its bytes, the number of messages, the first and the last offset, and the number to add to stored offsets."""

    data: Any
    count: int
    first: int
    last: int
    shift: int


def message_set(buf: Bytes, start: int, end: int, head: Any, limit: int) -> MessageSet:
    """Return the set of the frame `buf[start:end]`, of at most `limit` bytes. Raises `BadSet`."""
    magic, last = int(head["magic"]), int(head["last_offset"])
    codec = int(head["attributes"]) & COMPRESSION
    if not codec:
        return MessageSet(buf[start:end], 1, last, last, 0)
    at, size = value_of(buf, start, end)
    if at < 0:
        raise BadSet(BAD_FIELDS)
    if size < 0:
        raise BadSet(BAD_SET)
    try:
        data = np.asarray(decompress(codec_name(codec, magic), buf[at : at + size], limit))
    except (CompressionError, DescriptionError) as error:
        raise BadSet(BAD_SET, str(error)) from None
    return opened(data, magic, last)


def opened(data: Bytes, magic: int, wrapper_offset: int) -> MessageSet:
    """Return the decompressed set of a wrapper. Raises `BadSet`."""
    offsets = np.zeros(2, np.int64)
    count, reason = walk_set(data, 0, len(data), offsets)
    if reason:
        raise BadSet(reason)
    first, last = map(int, offsets)
    shift = 0
    if magic == 1 and wrapper_offset:  # old versions of librdkafka left the wrapper at offset 0
        shift = wrapper_offset - last
        if not 0 <= shift <= INT64_MAX:
            raise BadSet(BAD_WRAPPER)
    return MessageSet(data, int(count), int(add(first, shift)), int(add(last, shift)), shift)


def open_wrappers(window: Window, frames: Frames, context: LogContext) -> None:
    """Complete the headers of wrappers with the first offset and the number of messages, which only the messages have. A wrapper that cannot be
    read keeps the number -1, and takes all offsets after the batch before it."""
    header = frames.header
    if np.minimum.reduce(header["magic"], initial=MAGIC) == MAGIC:
        return
    limit = context.options["max.decompressed.bytes"]
    for i in np.flatnonzero((header["magic"] < MAGIC) & (header["attributes"] & COMPRESSION != 0)).tolist():
        head = header[i]
        try:
            got = message_set(window.data, int(frames.start[i]), int(frames.end[i]), head, limit)
        except BadSet:
            before = int(header["last_offset"][i - 1]) if i else context.last_offset
            if before is not None and before < head["last_offset"]:
                head["base_offset"] = before + 1
            continue
        head["base_offset"], head["records_count"] = min(got.first, int(head["last_offset"])), got.count


@dataclass(frozen=True, slots=True)
class Sets:
    """Arguments of `read_messages` for the sets of a portion."""

    count: Int64s
    shift: Int64s
    wrapped: Int64s
    append_time: Int64s

    @classmethod
    def of(cls, header: npt.NDArray[Any], sets: list[MessageSet | None]) -> Sets:
        wrapped = header["attributes"] & COMPRESSION != 0
        by_broker = wrapped & (header["attributes"] & TIMESTAMP_TYPE != 0)
        return cls(
            np.array([0 if entry is None else entry.count for entry in sets], np.int64),
            np.array([0 if entry is None else entry.shift for entry in sets], np.int64),
            wrapped.astype(np.int64),
            np.where(by_broker, header["max_timestamp"], OWN_TIME).astype(np.int64),
        )

    @classmethod
    def plain(cls, header: npt.NDArray[Any]) -> Sets:
        """Return those of messages that are not wrappers."""
        none = np.zeros(len(header), np.int64)
        return cls(none + 1, none, none, none + OWN_TIME)
