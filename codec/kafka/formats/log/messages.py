"""Read messages of magic 0 and 1: a kernel that decodes them to columns, and the decompression of wrappers.

A set of messages is an uncompressed message, or the decompressed value of a wrapper. The rules are those of a consumer
(`AbstractLegacyRecordBatch.DeepRecordsIterator`, `DataLogInputStream`, `LegacyRecord` of Kafka's clients library): the magic of the wrapper
decides whether offsets are absolute (0) or count from the first one (1), an incomplete message at the end of a set is ignored, and messages
in a wrapper may not be compressed. Each has its own checksum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from logwright.codec.arrays import Bytes, Int8s, Int32s, Int64s
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
from logwright.codec.kernels.compress import CompressionError, Output
from logwright.codec.kernels.compress import append as append_payload
from logwright.codec.kernels.compress.bulk import NUMBERS, OTHER, fill, functions_of
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import append, load_i32be, load_i64be, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Frames, Window

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
    header_ends: Int32s, header_at: Int64s, attributes: Int8s,
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


_IN_BULK = np.array(
    [
        [NUMBERS.get(name, OTHER) for name in ("none", "gzip", "snappy", lz4, *(4 * ("unknown",)))]
        for lz4 in ("lz4-magic0", "lz4")
    ],
    np.int64,
)
"""By magic and the number of the compression: the decompressor in `bulk`."""
_GUESS, _SPARE = 4, 128 << 10
"""Decompressed bytes per stored byte for which there is room at first, and those for a block of unknown size."""
PORTION = 32 << 20
"""Bytes of the decompressed sets that are read together, unless one is larger."""


@kernel("const u1[], const i8[], const i8[], const i8[], i8[], i8[], i8[]")
def set_ranges(
    buf: Bytes, starts: Int64s, ends: Int64s, codecs: Int64s, set_starts: Int64s, set_ends: Int64s, reasons: Int64s
) -> None:  # fmt: skip
    """Write where the sets of frames are stored: the values of wrappers, and other messages themselves; or a reason, and an empty range."""
    for i in range(len(starts)):
        set_starts[i] = starts[i]
        set_ends[i] = ends[i]
        reasons[i] = 0
        if codecs[i] != 0:
            at, size = value_of(buf, starts[i], ends[i])
            if at < 0 or size < 0:
                reasons[i] = BAD_FIELDS if at < 0 else BAD_SET
                at = starts[i]
                size = 0
            set_starts[i] = at
            set_ends[i] = at + size


@kernel("const u1[], const i8[], i8, const i8[], const i8[], const i8[], i8[], i8[], i8[], i8[], i8[], i8[]")
def open_wrapper(
    buf: Bytes, edges: Int64s, i: int, magics: Int64s, codecs: Int64s, lasts: Int64s,
    count: Int64s, first: Int64s, last: Int64s, shift: Int64s, reasons: Int64s, pair: Int64s,
) -> None:  # fmt: skip
    """Read the set `buf[edges[i] : edges[i + 1]]` of frame i unless it has a reason: its number of messages, first and last offset, and the
    number to add to stored offsets. `lasts` are the offsets of the frames."""
    count[i] = 1
    first[i] = lasts[i]
    last[i] = lasts[i]
    shift[i] = 0
    if codecs[i] == 0:
        return
    if reasons[i] == 0:
        count[i], reasons[i] = walk_set(buf, edges[i], edges[i + 1], pair)
        low = pair[0]
        high = pair[1]
        wrapper = lasts[i]
        # Old versions of librdkafka left the wrapper at offset 0.
        if reasons[i] == 0 and magics[i] == 1 and wrapper != 0:
            if high > wrapper or (high < 0 and wrapper > INT64_MAX + high):
                reasons[i] = BAD_WRAPPER
            else:
                shift[i] = wrapper - high
        first[i] = add(low, shift[i])
        last[i] = add(high, shift[i])
    if reasons[i] != 0:
        count[i] = 0


_NOT_OPEN = -1


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8[], i8[], i8[], i8[], i8[], i8[]")
def open_others(
    buf: Bytes, edges: Int64s, magics: Int64s, codecs: Int64s, lasts: Int64s,
    count: Int64s, first: Int64s, last: Int64s, shift: Int64s, reasons: Int64s, pair: Int64s,
) -> None:  # fmt: skip
    """Read the sets of frames whose `count` is `_NOT_OPEN`, as `open_wrapper`."""
    for i in range(len(magics)):
        if count[i] == _NOT_OPEN:
            open_wrapper(buf, edges, i, magics, codecs, lasts, count, first, last, shift, reasons, pair)


@kernel(
    "const u1[], const i8[], const i8[], const i8[], i8, i8, u1[], i8[], const i8[], "
    "const i8[], const i8[], const i8[], i8[], i8[], i8[], i8[], i8[], i8[]"
)
def fill_sets(
    buf: Bytes, starts: Int64s, ends: Int64s, in_bulk: Int64s, at: int, limit: int, out: Bytes, edges: Int64s, native: Int64s,
    magics: Int64s, codecs: Int64s, lasts: Int64s,
    count: Int64s, first: Int64s, last: Int64s, shift: Int64s, reasons: Int64s, pair: Int64s,
) -> int:  # fmt: skip
    """Decompress sets as `bulk.fill`, and read each while it is in the cache as `open_wrapper`. Returns the number of the set at which it
    stopped."""
    for i in range(at, len(starts)):
        if fill(buf, starts[: i + 1], ends[: i + 1], in_bulk, i, limit, out, edges[i], edges, native) == i:
            return i
        open_wrapper(out, edges, i, magics, codecs, lasts, count, first, last, shift, reasons, pair)
    return len(starts)


@dataclass(frozen=True, slots=True)
class Sets:
    """The message sets of frames: `buf[edges[i] : edges[i + 1]]`, their number of messages, the first offset, the number to add to stored
    offsets, and whether they are from wrappers."""

    buf: Bytes
    edges: Int64s
    count: Int64s
    first: Int64s
    shift: Int64s
    wrapped: Int64s
    append_time: Int64s
    faults: dict[int, str]
    """The reasons of sets that cannot be read. They have no messages."""
    frames: Frames
    """Where the frames are."""

    @classmethod
    def plain(cls, window: Window, frames: Frames) -> Sets:
        """Return those of messages that are not wrappers. `edges` are not used."""
        none = np.zeros(len(frames), np.int64)
        offset = frames.header["last_offset"].astype(np.int64)
        return cls(window.data, none, none + 1, offset, none, none, none + OWN_TIME, {}, frames)

    def held(self, frames: Frames) -> Sets | None:
        """Return the sets of `frames` if these are a run of them."""
        own = self.frames
        at = int(np.searchsorted(own.start, frames.start[0]))
        run = slice(at, at + len(frames))
        if run.stop > len(own):
            return None
        same = (own.start[run] == frames.start) & (own.end[run] == frames.end)
        same &= own.header["crc"][run] == frames.header["crc"]
        if not same.all():
            return None
        faults = {i - run.start: text for i, text in self.faults.items() if run.start <= i < run.stop}
        return replace(
            self,
            edges=self.edges[run.start : run.stop + 1],
            count=self.count[run],
            first=self.first[run],
            shift=self.shift[run],
            wrapped=self.wrapped[run],
            append_time=self.append_time[run],
            faults=faults,
            frames=frames,
        )


def message_sets(window: Window, frames: Frames, limit: int) -> Sets:
    """Return the sets of the first frames, of at most `PORTION` bytes but at least one. `limit` bounds the size of one."""
    count, header, data = len(frames), frames.header, window.data
    codecs = (header["attributes"] & COMPRESSION).astype(np.int64)
    magics, lasts = header["magic"].astype(np.int64), header["last_offset"].astype(np.int64)
    starts, ends, reasons, number, first, last, shift = np.zeros((7, count), np.int64)
    set_ranges(data, frames.start, frames.end, codecs, starts, ends, reasons)
    in_bulk = _IN_BULK[magics, np.where(reasons == 0, codecs, 0)]
    out = Output(np.empty(min(PORTION, _GUESS * int((ends - starts).sum()) + _SPARE), np.uint8))
    edges, pair = np.zeros(count + 1, np.int64), np.zeros(2, np.int64)
    opened = (number, first, last, shift, reasons, pair)
    number.fill(_NOT_OPEN)
    native = functions_of(in_bulk)
    texts: dict[int, str] = {}
    i = 0
    while i < count and (i == 0 or out.end < PORTION):
        if in_bulk[i] != OTHER and fill_sets.is_ready(int(ends[-1] - starts[i])):
            room = out.memory[:PORTION]
            i = fill_sets(
                data, starts, ends, in_bulk, i, limit, room, edges, native, magics, codecs, lasts, *opened
            )
            out.end = int(edges[i])
            if i == count or (i > 0 and out.end >= PORTION):
                break
        stored = data[starts[i] : ends[i]].data
        try:
            if reasons[i] == 0:
                name = codec_name(int(codecs[i]), int(magics[i]))
                append_payload(name, stored, out, limit if codecs[i] else len(stored))
        except (CompressionError, DescriptionError) as error:
            reasons[i], texts[i] = BAD_SET, str(error)
        i += 1
        edges[i] = out.end
    done = frames.pick(slice(0, i))
    edges, codecs, number, reasons = edges[: i + 1], codecs[:i], number[:i], reasons[:i]
    open_others(
        out.array, edges, magics[:i], codecs, lasts[:i], number, first[:i], last[:i], shift[:i], reasons, pair
    )
    for bad in np.flatnonzero(reasons).tolist():
        texts.setdefault(bad, REASONS[int(reasons[bad])])
    by_broker = (codecs != 0) & (done.header["attributes"] & TIMESTAMP_TYPE != 0)
    append_time = np.where(by_broker, done.header["max_timestamp"], OWN_TIME).astype(np.int64)
    wrapped = (codecs != 0).astype(np.int64)
    return Sets(out.array, edges, number, first[:i], shift[:i], wrapped, append_time, texts, done)


def open_wrappers(window: Window, frames: Frames, context: LogContext) -> None:
    """Complete the headers of wrappers with the first offset and the number of messages, which only the messages have. A wrapper that cannot be
    read keeps the number -1, and takes all offsets after the batch before it. The frames hold the messages, unless they are too many."""
    header = frames.header
    if np.minimum.reduce(header["magic"], initial=MAGIC) == MAGIC:
        return
    which = np.flatnonzero((header["magic"] < MAGIC) & (header["attributes"] & COMPRESSION != 0))
    at = 0
    while at < len(which):
        sets = message_sets(window, frames.pick(which[at:]), context.options["max.decompressed.bytes"])
        rows = which[at : at + len(sets.count)]
        good = rows[sets.count > 0]
        header["base_offset"][good] = np.minimum(sets.first, header["last_offset"][rows])[sets.count > 0]
        header["records_count"][good] = sets.count[sets.count > 0]
        for i in rows[sets.count == 0].tolist():
            before = int(header["last_offset"][i - 1]) if i else context.last_offset
            if before is not None and before < header["last_offset"][i]:
                header["base_offset"][i] = before + 1
        frames.held = sets if at == 0 and len(rows) == len(which) else None
        at += len(rows)
