"""The kernel that reads the records of a batch, in one pass from bytes into Arrow buffers.

It checks each length against the bytes that are left, follows the rules of Kafka's `DefaultRecord` reader exactly, and skips the
records that Kafka's consumer skips: those whose offset is not above the one before. `rows` makes columns of the records.
"""

from __future__ import annotations

from logwright.codec.arrays import Bytes, Int8s, Int32s, Int64s
from logwright.codec.kafka.formats.log.layout import MIN_RECORD
from logwright.codec.kafka.formats.log.varints import varint, varlong
from logwright.codec.kernels.intrinsics import append, copy, load_i64le, load_u8
from logwright.codec.kernels.kernel import kernel

WANT_OFFSET, WANT_TIMESTAMP, WANT_CREATE, WANT_KEY, WANT_VALUE, WANT_HEADERS, WANT_ATTRIBUTES = (
    1 << bit for bit in range(7)
)
WANT_ALL = (1 << 7) - 1

(
    BAD_COUNT, BAD_SECTION, BAD_VARINT, BAD_LENGTH, BAD_KEY, BAD_VALUE, BAD_HEADERS, BAD_HEADER_KEY, BAD_HEADER_VALUE, BAD_REST, BAD_TAIL,
) = range(1, 12)  # fmt: skip

REASONS = {
    BAD_COUNT: "records_count is negative",
    BAD_SECTION: "the number of records exceeds the remaining bytes",
    BAD_VARINT: "a varint is too long or cut off",
    BAD_LENGTH: "the length of the record is negative or more than the rest of the batch",
    BAD_KEY: "the key is longer than the rest of the record",
    BAD_VALUE: "the value is longer than the rest of the record",
    BAD_HEADERS: "the number of headers is negative or exceeds the remaining bytes",
    BAD_HEADER_KEY: "the key of a header is null or longer than the rest of the record",
    BAD_HEADER_VALUE: "the value of a header is longer than the rest of the record",
    BAD_REST: "bytes are left at the end of the record",
    BAD_TAIL: "bytes are left after the last record",
}

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_WAIT = 8
"""After an unusual record that follows no usual one, this number of records is not expected to be usual."""
_MANY = 4
"""In batches of fewer records, calling `read_usual_records` takes longer than it saves."""
_FAR = 1 << 62
"""The sum of two numbers closer to 0 than this does not wrap around."""


@kernel("i8, i8")
def add(a: int, b: int) -> int:
    """Return the sum, wrapped around at 64 bits as in Java."""
    if b > 0 and a > INT64_MAX - b:
        return INT64_MIN + (b - (INT64_MAX - a) - 1)
    if b < 0 and a < INT64_MIN - b:
        return INT64_MAX - ((INT64_MIN - a) - b - 1)
    return a + b


@kernel("const u1[], i8, i8, i8[]")
def walk_headers(buf: Bytes, at: int, end: int, sums: Int64s) -> tuple[int, int, int, int]:
    """Check the headers of a record from their count up to `end`: (reason or 0, count, position of the first, odd).

    `sums` are the bytes of keys and of values.
    """
    sums[0] = 0
    sums[1] = 0
    count, at, odd = varint(buf, at, end)
    if at < 0:
        return BAD_VARINT, 0, end, 0
    if count < 0 or count > (end - at) // 2:
        return BAD_HEADERS, 0, at, 0
    first = at
    for _ in range(count):
        size, start, longer = varint(buf, at, end)
        odd |= longer
        if start < 0:
            return BAD_VARINT, 0, at, 0
        if size < 0 or size > end - start:
            return BAD_HEADER_KEY, 0, at, 0
        sums[0] += size
        at = start + size
        size, start, longer = varint(buf, at, end)
        odd |= longer
        if start < 0:
            return BAD_VARINT, 0, at, 0
        if size > end - start:
            return BAD_HEADER_VALUE, 0, at, 0
        if size < 0:
            odd |= 1 if size != -1 else 0
            size = 0
        sums[1] += size
        at = start + size
    return (0 if at == end else BAD_REST), count, first, odd


@kernel(
    "const u1[], i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, "
    "i8, i8[], i8[], i4[], u1[], u1[], i4[], u1[], i4[], i8[]"
)
def read_usual_records(
    buf: Bytes, at: int, stop: int, record: int, count: int, first_offset: int, first_timestamp: int, time_scale: int,
    want: int, served: int, low: int, high: int, row: int, key_end: int, value_end: int, key_nulls: int, header_end: int,
    offsets: Int64s, timestamps: Int64s, key_ends: Int32s, key_bits: Bytes, key_data: Bytes, value_ends: Int32s, value_data: Bytes,
    header_ends: Int32s, header_at: Int64s,
) -> tuple[int, int, int, int, int, int, int]:  # fmt: skip
    """Read the usual records at `buf[at:stop]`, up to number `count`: (`at`, `record`, `served`, `row`, `key_end`, `value_end`,
    `key_nulls`) after them. It stops at any other record, and writes nothing of it.

    A usual record is correct, in its shortest form, has no headers and no null value, has to be served, and its lengths take two or three
    bytes at most. `first_offset` and `first_timestamp` are so far from the ends of 64 bits that no sum overflows. `time_scale` is 0 if
    `first_timestamp` is the time of all records, else 1. The other arguments are those of `read_records`.
    """
    want_offset = want & WANT_OFFSET
    want_timestamp = want & WANT_TIMESTAMP
    want_key = want & WANT_KEY
    want_value = want & WANT_VALUE
    want_headers = want & WANT_HEADERS
    edge = stop - 16
    while record < count and at <= edge:
        # The fields before the length of the key fit eight bytes.
        word = load_i64le(buf, at)
        if word & 0x80 == 0:
            size = word & 0x7F
            end = at + 1
            word >>= 16
        else:
            size = (word & 0x7F) | (word >> 1 & 0x3F80)
            if word & 0x8000 != 0 or size < 0x80:
                break
            end = at + 2
            word >>= 24
        place = end + 2
        end += size >> 1
        if word & 0x80 == 0:
            delta = word & 0x7F
            word >>= 8
        else:
            delta = (word & 0x7F) | (word >> 1 & 0x3F80)
            place += 1
            if word & 0x8000 == 0:
                word >>= 16
                if delta < 0x80:
                    break
            else:
                delta |= word >> 2 & 0x1FC000
                if word & 0x800000 != 0 or delta < 0x4000:
                    break
                place += 1
                word >>= 24
        if word & 0x80 == 0:
            ahead = word & 0x7F
            place += 1
        else:
            ahead = (word & 0x7F) | (word >> 1 & 0x3F80)
            if word & 0x8000 != 0 or ahead < 0x80:
                break
            place += 2
        offset = first_offset + ((ahead >> 1) ^ -(ahead & 1))
        time = first_timestamp + time_scale * ((delta >> 1) ^ -(delta & 1))
        if size & 1 != 0 or end > stop or offset <= served or offset < low or offset > high or time == -1:
            break
        word = load_i64le(buf, place)
        if word & 0xFF == 1:
            key_size = -1
            place += 1
            word >>= 8
        else:
            key_size = word & 0x7F
            place += 1
            if word & 0x80 != 0:
                key_size |= word >> 1 & 0x3F80
                if word & 0x8000 != 0 or key_size < 0x80:
                    break
                place += 1
            if key_size & 1 != 0:
                break
            key_size >>= 1
            if place + key_size > stop - 8:
                break
            word = load_i64le(buf, place + key_size)
        key_at = place
        value_at = place + max(key_size, 0) + 1
        if word & 0x80 == 0:
            value_size = word & 0x7F
        else:
            value_size = (word & 0x7F) | (word >> 1 & 0x3F80)
            value_at += 1
            if word & 0x8000 == 0:
                if value_size < 0x80:
                    break
            else:
                value_size |= word >> 2 & 0x1FC000
                if word & 0x800000 != 0 or value_size < 0x4000:
                    break
                value_at += 1
        if value_size & 1 != 0:
            break
        value_size >>= 1
        if (
            value_at + value_size + 1 != end
            or load_u8(buf, end - 1) != 0
            or (record + 1 == count and end != stop)
        ):
            break
        if want_offset:
            offsets[row] = offset
        if want_timestamp:
            timestamps[row] = time
        if want_key:
            if key_size > 0:
                append(key_data, key_end, buf, key_at, key_size)
                key_end += key_size
            elif key_size < 0:
                key_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                key_nulls += 1
            key_ends[row + 1] = key_end
        if want_value:
            append(value_data, value_end, buf, value_at, value_size)
            value_end += value_size
            value_ends[row + 1] = value_end
        if want_headers:
            header_ends[row + 1] = header_end
            header_at[row] = end - 1
        served = offset
        at = end
        row += 1
        record += 1
    return at, record, served, row, key_end, value_end, key_nulls


@kernel(
    "const u1[], const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], i8, i8, i8, i8, i8, "
    "i8[], i8[], u1[], i8[], i4[], u1[], u1[], i4[], u1[], u1[], i4[], i8[], i1[], i8[], i8[], i8[], i8[], i8[], i8[], i8[]"
)
def read_records(
    buf: Bytes, section_start: Int64s, section_end: Int64s,
    records_count: Int64s, base_offset: Int64s, base_timestamp: Int64s, max_timestamp: Int64s, append_time: Int64s,
    want: int, partial: int, served: int, low: int, high: int,
    offsets: Int64s, timestamps: Int64s, timestamp_bits: Bytes, creates: Int64s,
    key_ends: Int32s, key_bits: Bytes, key_data: Bytes, value_ends: Int32s, value_bits: Bytes, value_data: Bytes,
    header_ends: Int32s, header_at: Int64s, attributes: Int8s,
    rows: Int64s, left_out: Int64s, odd_frames: Int64s, bad: Int64s, bad_record: Int64s, pair: Int64s, sums: Int64s,
) -> int:  # fmt: skip
    """Read the records of frames. Return the number of rows.

    Input: `section_start[i]:section_end[i]` of `buf` are the records of frame i. Offsets and times are base values. `append_time`
    is 1 if `max_timestamp` is the time of every record. `want` selects the columns to write. A record is served if its offset is
    above `served` (and above all before it), and within `low` and `high`. A frame with a bad record has no rows, or with `partial`
    those before it.

    Output for each row: values and `*_ends` (from element 1 on, element 0 stays 0), and bitmaps with a bit cleared for null. For
    each frame: `rows`; `left_out`, the number of records that are not above the one before; `odd_frames`, 1 unless the records are
    in their shortest form; `bad`, a reason or 0; and in `bad_record` two elements, the number of the bad record and its position.
    `sums`: null keys, values, timestamps; bytes of keys, values, header keys, header values; number of headers; the last offset
    served. `pair` is scratch space for two numbers.
    """
    row = 0
    key_end = 0
    value_end = 0
    header_end = 0
    key_nulls = 0
    value_nulls = 0
    timestamp_nulls = 0
    header_keys = 0
    header_values = 0
    want_offset = want & WANT_OFFSET
    want_timestamp = want & WANT_TIMESTAMP
    want_create = want & WANT_CREATE
    want_key = want & WANT_KEY
    want_value = want & WANT_VALUE
    want_headers = want & WANT_HEADERS
    want_attributes = want & WANT_ATTRIBUTES
    for frame in range(len(section_start)):
        at = section_start[frame]
        stop = section_end[frame]
        count = records_count[frame]
        first_offset = base_offset[frame]
        first_timestamp = base_timestamp[frame]
        last_timestamp = max_timestamp[frame]
        at_append = append_time[frame] != 0
        near = -_FAR < first_offset < _FAR and -_FAR < first_timestamp < _FAR
        odd = 0
        left = 0
        reason = 0
        record = 0
        start = at
        # The state to return to if a record is bad.
        row0 = row
        key0 = key_end
        value0 = value_end
        header0 = header_end
        served0 = served
        nulls0 = key_nulls
        nulls1 = value_nulls
        nulls2 = timestamp_nulls
        keys0 = header_keys
        values0 = header_values
        if count < 0:
            reason = BAD_COUNT
        elif count > (stop - at) // MIN_RECORD:
            reason = BAD_SECTION
            count = 0 if partial == 0 else (stop - at) // MIN_RECORD + 1
        usual = near and count >= _MANY and want & (WANT_CREATE | WANT_ATTRIBUTES) == 0
        wait = 0
        while record < count:
            if usual and wait == 0:
                before = record
                at, record, served, row, key_end, value_end, key_nulls = read_usual_records(
                    buf, at, stop, record, count, first_offset, last_timestamp if at_append else first_timestamp,
                    0 if at_append else 1, want, served, low, high, row, key_end, value_end, key_nulls, header_end,
                    offsets, timestamps, key_ends, key_bits, key_data, value_ends, value_data, header_ends, header_at,
                )  # fmt: skip
                if record == count:
                    break
                wait = _WAIT if record == before else 0
            elif wait > 0:
                wait -= 1
            start = at
            fits = False
            size = delta = ahead = key_size = attribute = 0
            if stop - at >= 16:
                # Fast path: the fields before the key of a usual record fit two words. Longer ones are read field by field.
                word = load_i64le(buf, at)
                over = 0
                thin = False
                if word & 0x80 == 0:
                    size = word & 0x7F
                    used = 8
                else:
                    size = (word & 0x7F) | (word >> 1 & 0x3F80)
                    over = word & 0x8000
                    thin = word & 0x7F00 == 0
                    used = 16
                attribute = word >> used & 0xFF
                used += 8
                rest = word >> used
                if rest & 0x80 == 0:
                    delta = rest & 0x7F
                    used += 8
                elif rest & 0x8000 == 0:
                    delta = (rest & 0x7F) | (rest >> 1 & 0x3F80)
                    thin |= rest & 0x7F00 == 0
                    used += 16
                else:
                    delta = (rest & 0x7F) | (rest >> 1 & 0x3F80) | (rest >> 2 & 0x1FC000)
                    over |= rest & 0x800000
                    thin |= rest & 0x7F0000 == 0
                    used += 24
                rest = word >> used
                if rest & 0x80 == 0:
                    ahead = rest & 0x7F
                    used += 8
                else:
                    ahead = (rest & 0x7F) | (rest >> 1 & 0x3F80)
                    over |= rest & 0x8000
                    thin |= rest & 0x7F00 == 0
                    used += 16
                after = at + (used >> 3)
                word = load_i64le(buf, after)
                if word & 0x80 == 0:
                    key_size = word & 0x7F
                    after += 1
                else:
                    key_size = (word & 0x7F) | (word >> 1 & 0x3F80)
                    over |= word & 0x8000
                    thin |= word & 0x7F00 == 0
                    after += 2
                size = (size >> 1) ^ -(size & 1)
                end = at + size + (1 if size < 64 and load_u8(buf, at) < 0x80 else 2)
                fits = over == 0 and not thin and size >= MIN_RECORD - 1 and end <= stop and after < end
                if fits:
                    delta = (delta >> 1) ^ -(delta & 1)
                    ahead = (ahead >> 1) ^ -(ahead & 1)
                    key_size = (key_size >> 1) ^ -(key_size & 1)
                    at = after
            if not fits:
                size, at, longer = varint(buf, at, stop)
                odd |= longer
                if at < 0:
                    reason = BAD_VARINT if start < stop else BAD_SECTION
                    break
                if size < MIN_RECORD - 1 or size > stop - at:
                    reason = BAD_LENGTH
                    break
                end = at + size
                attribute = load_u8(buf, at)
                delta, at, longer = varlong(buf, at + 1, end)
                odd |= longer
                if at < 0:
                    reason = BAD_VARINT
                    break
                ahead, at, longer = varint(buf, at, end)
                odd |= longer
                if at < 0:
                    reason = BAD_VARINT
                    break
                key_size, at, longer = varint(buf, at, end)
                odd |= longer
                if at < 0:
                    reason = BAD_VARINT
                    break
            if key_size > end - at:
                reason = BAD_KEY
                break
            key_at = at
            if key_size > 0:
                at += key_size
            elif key_size < -1:
                odd = 1
            if stop - at >= 8:
                word = load_i64le(buf, at)
            else:
                word = 0x808080
            if word & 0x80 == 0:
                value_size = (word >> 1 & 0x3F) ^ -(word & 1)
                at += 1
            elif word & 0x8000 == 0 and word & 0x7F00 != 0:
                value_size = (word & 0x7F) | (word >> 1 & 0x3F80)
                value_size = (value_size >> 1) ^ -(value_size & 1)
                at += 2
            elif word & 0x800000 == 0 and word & 0x7F0000 != 0:
                value_size = (word & 0x7F) | (word >> 1 & 0x3F80) | (word >> 2 & 0x1FC000)
                value_size = (value_size >> 1) ^ -(value_size & 1)
                at += 3
            else:
                value_size, at, longer = varint(buf, at, end)
                odd |= longer
                if at < 0:
                    reason = BAD_VARINT
                    break
            if value_size > end - at:
                reason = BAD_VALUE
                break
            value_at = at
            if value_size > 0:
                at += value_size
            elif value_size < -1:
                odd = 1
            header_count = 0
            first_header = at
            if at < end and load_u8(buf, at) == 0:
                at += 1
                if at != end:
                    reason = BAD_REST
                    break
            else:
                reason, header_count, first_header, longer = walk_headers(buf, at, end, pair)
                odd |= longer
                if reason != 0:
                    break
            at = end
            record += 1
            if record == count and at != stop:
                reason = BAD_TAIL
                record -= 1
                break
            offset = first_offset + ahead if near else add(first_offset, ahead)
            if offset <= served:
                left += 1
                continue
            served = offset
            if offset < low or offset > high:
                continue
            if want_offset:
                offsets[row] = offset
            if want_timestamp:
                if at_append:
                    time = last_timestamp
                elif near and -_FAR < delta < _FAR:
                    time = first_timestamp + delta
                else:
                    time = add(first_timestamp, delta)
                timestamps[row] = time
                if time == -1:
                    timestamp_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    timestamp_nulls += 1
            if want_create:
                creates[row] = add(first_timestamp, delta)
            if want_attributes:
                attributes[row] = attribute if attribute < 0x80 else attribute - 0x100
            if want_key:
                if key_size > 0:
                    append(key_data, key_end, buf, key_at, key_size)
                    key_end += key_size
                elif key_size < 0:
                    key_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    key_nulls += 1
                key_ends[row + 1] = key_end
            if want_value:
                if value_size > 0:
                    append(value_data, value_end, buf, value_at, value_size)
                    value_end += value_size
                elif value_size < 0:
                    value_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                    value_nulls += 1
                value_ends[row + 1] = value_end
            if want_headers:
                if header_count > 0:
                    header_end += header_count
                    header_keys += pair[0]
                    header_values += pair[1]
                header_ends[row + 1] = header_end
                header_at[row] = first_header
            row += 1
        if reason == 0 and count == 0 and at != stop:
            reason = BAD_TAIL
        if reason != 0 and partial == 0:
            for i in range(row0, row):
                bit = 1 << (i & 7)
                if want_timestamp:
                    timestamp_bits[i >> 3] |= bit
                if want_key:
                    key_bits[i >> 3] |= bit
                if want_value:
                    value_bits[i >> 3] |= bit
            row = row0
            key_end = key0
            value_end = value0
            header_end = header0
            served = served0
            key_nulls = nulls0
            value_nulls = nulls1
            timestamp_nulls = nulls2
            header_keys = keys0
            header_values = values0
            left = 0
        rows[frame] = row - row0
        left_out[frame] = left
        odd_frames[frame] = odd
        bad[frame] = reason
        bad_record[2 * frame] = record
        bad_record[2 * frame + 1] = start
    sums[0] = key_nulls
    sums[1] = value_nulls
    sums[2] = timestamp_nulls
    sums[3] = key_end
    sums[4] = value_end
    sums[5] = header_keys
    sums[6] = header_values
    sums[7] = header_end
    sums[8] = served
    return row


@kernel("const u1[], const i8[], const i4[], i8, i4[], u1[], i4[], u1[], u1[], i8[]")
def read_headers(
    buf: Bytes, header_at: Int64s, header_ends: Int32s, rows: int, key_ends: Int32s, key_data: Bytes,
    value_ends: Int32s, value_bits: Bytes, value_data: Bytes, sums: Int64s,
) -> None:  # fmt: skip
    """Copy the headers of `rows` records, which `read_records` has checked.

    `header_at[i]` is the position of the first of the `header_ends[i + 1] - header_ends[i]` headers of record i. `sums`: the number
    of null values, and whether a key has a byte above 127, so that it may not be UTF-8.
    """
    key_end = 0
    value_end = 0
    nulls = 0
    high = 0
    row = 0
    for record in range(rows):
        at = header_at[record]
        for _i in range(header_ends[record + 1] - header_ends[record]):
            size, at, _ = varint(buf, at, len(buf))
            for i in range(size):
                high |= load_u8(buf, at + i)
            copy(key_data, key_end, buf, at, size)
            key_end += size
            at += size
            key_ends[row + 1] = key_end
            size, at, _ = varint(buf, at, len(buf))
            if size < 0:
                value_bits[row >> 3] &= 0xFF ^ (1 << (row & 7))
                nulls += 1
            else:
                copy(value_data, value_end, buf, at, size)
                value_end += size
                at += size
            value_ends[row + 1] = value_end
            row += 1
    sums[0] = nulls
    sums[1] = high >> 7
