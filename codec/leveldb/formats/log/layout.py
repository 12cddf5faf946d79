"""Write batches, the payload of a log's records: reading them into columns and writing them.

Twelve bytes for the sequence of the first operation and their number, then the operations. Source: `db/write_batch.cc` of LevelDB.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.describe import I32LE, U64LE, UVARINT, Field, Int, Repeated, Scope, Struct, Switch
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.kernels.intrinsics import (
    copy,
    load_i32le,
    load_i64le,
    load_u8,
    read_uvarint,
    size_uvarlong,
    store_32le,
    store_64le,
    write_uvarlong,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.keys import DELETION, MAX_SEQUENCE, TYPE_NAMES, VALUE
from logwright.codec.window import Bytes

_PREFIXED = BytesType(UVARINT)


def _sequences(count: int, scope: Scope) -> str:
    first = scope["sequence"]
    return f"sequences {first} to {first + count - 1}" if count > 1 else ""


OPERATION = Struct(
    "Operation",
    Field("type", Int(1, signed=False, values=dict(enumerate(TYPE_NAMES))), "0 a deletion, 1 a value"),
    Field("key", _PREFIXED, "the user key"),
    Field(
        "value",
        Switch("type", {VALUE: _PREFIXED, None: BytesType(0)}),
        "the value; a deletion has none, not even a length",
        default=b"",
    ),
    source="WriteBatch::Put, WriteBatch::Delete",
)
WRITE_BATCH = Struct(
    "WriteBatch",
    Field("sequence", U64LE, "of the first operation; it increases by one per operation"),
    Field("count", I32LE, "number of operations", says=_sequences),
    Field("operations", Repeated(OPERATION), "up to the end of the record", rows=True),
    doc="The payload of a log record.",
    source="WriteBatch",
)
assert WRITE_BATCH.offset("operations") == BATCH_HEADER
_COUNT = WRITE_BATCH.offset("count")

# Faults of a batch (`WriteBatch::Iterate`, and the loop that reads a log).
SOUND, TOO_SMALL, BAD_PUT, BAD_DELETE, BAD_TAG, WRONG_COUNT, TOO_HIGH = range(7)
MESSAGES = (
    "",
    "log record too small",
    "bad WriteBatch Put",
    "bad WriteBatch Delete",
    "unknown WriteBatch tag",
    "WriteBatch has wrong count",
    "sequence numbers above 2^56-1",
)
"""LevelDB's own messages, except for the last, where LevelDB uses the low 56 bits."""

STATUS, OPERATIONS, KEY_BYTES, VALUE_BYTES, STOPPED, PLAIN = range(6)
"""The results of `measure` for a batch: why reading stops; operations before that; bytes of their keys and values; the byte of the
payload where reading stops; whether its bytes are exactly what would be written from sequence, count and operations."""
MEASURES = 6


@kernel("const u1[], const i8[], const i8[], i8[,]")
def measure(buf: Bytes, starts: Int64s, ends: Int64s, out: Int64s) -> int:
    """Measure the batches `buf[starts[i]:ends[i]]`. Writes `MEASURES` numbers for each into `out` and returns the total number of
    operations."""
    total = 0
    for i in range(len(starts)):
        at = starts[i]
        end = ends[i]
        status = SOUND
        count = 0
        keys = 0
        values = 0
        minimal = 1
        if end - at < BATCH_HEADER:
            status = TOO_SMALL
        else:
            first = load_i64le(buf, at)
            declared = load_i32le(buf, at + _COUNT)
            at += BATCH_HEADER
            while at < end:
                entry = at
                tag = load_u8(buf, at)
                if tag != VALUE and tag != DELETION:
                    status = BAD_TAG
                    break
                size, at = read_uvarint(buf, at + 1, end)
                if at < 0 or size > end - at:
                    status = BAD_PUT if tag == VALUE else BAD_DELETE
                    at = entry
                    break
                if at - entry - 1 != size_uvarlong(size):
                    minimal = 0
                at += size
                if tag == VALUE:
                    before = at
                    more, at = read_uvarint(buf, at, end)
                    if at < 0 or more > end - at:
                        status = BAD_PUT
                        at = entry
                        break
                    if at - before != size_uvarlong(more):
                        minimal = 0
                    at += more
                    values += more
                keys += size
                count += 1
            if status == SOUND and count != declared:
                status = WRONG_COUNT
            if status == SOUND and count > 0 and (first < 0 or first > MAX_SEQUENCE - count + 1):
                status = TOO_HIGH
        out[i, STATUS] = status
        out[i, OPERATIONS] = count
        out[i, KEY_BYTES] = keys
        out[i, VALUE_BYTES] = values
        out[i, STOPPED] = at - starts[i]
        out[i, PLAIN] = 1 if minimal and count > 0 and status == SOUND else 0
        total += count
    return total


@kernel("const u1[], const i8[], const i8[,], i8[], i8[], u1[], i4[], u1[], i4[], u1[]")
def unpack(
    buf: Bytes,
    starts: Int64s,
    measured: Int64s,
    sequences: Int64s,
    which: Int64s,
    kinds: Bytes,
    key_ends: Int32s,
    keys: Bytes,
    value_ends: Int32s,
    values: Bytes,
) -> int:
    """Unpack the operations of measured batches into columns. All arrays have room. Returns the number of rows."""
    row = 0
    key_at = 0
    value_at = 0
    for i in range(len(starts)):
        at = starts[i] + BATCH_HEADER
        end = starts[i] + measured[i, STOPPED]
        sequence = load_i64le(buf, starts[i]) & MAX_SEQUENCE if measured[i, OPERATIONS] > 0 else 0
        for _ in range(measured[i, OPERATIONS]):
            kind = load_u8(buf, at)
            size, at = read_uvarint(buf, at + 1, end)
            copy(keys, key_at, buf, at, size)
            at += size
            key_at += size
            if kind == VALUE:
                size, at = read_uvarint(buf, at, end)
                copy(values, value_at, buf, at, size)
                at += size
                value_at += size
            kinds[row] = kind
            sequences[row] = sequence
            sequence = (sequence + 1) & MAX_SEQUENCE
            which[row] = i
            row += 1
            key_ends[row] = key_at
            value_ends[row] = value_at
    return row


@kernel(
    "const i8[], const i8[], const i8[], const u1[], const i8[], const u1[], const u1[], const i8[], u1[], i8[]"
)
def pack(
    cuts: Int64s,
    sequences: Int64s,
    key_ends: Int64s,
    keys: Bytes,
    value_ends: Int64s,
    values: Bytes,
    kinds: Bytes,
    counts: Int64s,
    out: Bytes,
    stops: Int64s,
) -> int:
    """Pack the rows `cuts[i]` to `cuts[i + 1]` into batches. Batch `i` ends at `stops[i + 1]` in `out`, which has room. Returns the last
    stop.

    `sequences[i]` and `counts[i]` go into its first twelve bytes. Key `n` is `keys[key_ends[n] : key_ends[n + 1]]`.
    """
    at = 0
    for i in range(len(cuts) - 1):
        at = store_64le(out, at, sequences[i])
        at = store_32le(out, at, counts[i])
        for row in range(cuts[i], cuts[i + 1]):
            out[at] = kinds[row]
            size = key_ends[row + 1] - key_ends[row]
            at = write_uvarlong(out, at + 1, size)
            copy(out, at, keys, key_ends[row], size)
            at += size
            if kinds[row] == VALUE:
                size = value_ends[row + 1] - value_ends[row]
                at = write_uvarlong(out, at, size)
                copy(out, at, values, value_ends[row], size)
                at += size
        stops[i + 1] = at
    return at


def is_write_batch(payload: bytes) -> bool:
    """Return whether bytes are a sound batch."""
    data = np.frombuffer(payload, np.uint8)
    measured = np.zeros((1, MEASURES), np.int64)
    measure(data, np.zeros(1, np.int64), np.array([len(data)], np.int64), measured)
    return bool(measured[0, STATUS] == SOUND)


def room_for(rows: int, batches: int, size: int) -> int:
    """Return the maximum number of bytes that `pack` writes for keys and values of `size` bytes in total."""
    return size + rows * 11 + batches * BATCH_HEADER
