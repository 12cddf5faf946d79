"""Decode offset commits in bulk. They are nearly all records of `__consumer_offsets`.

Only commits in exactly the bytes that Kafka writes are decoded here. `records` decodes all others.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.columns import binary, contents, numbers, slices, values_of
from logwright.codec.kafka.formats.internal.schema import ZERO_UUID, RecordType, struct_type
from logwright.codec.kernels.intrinsics import load_i16be, load_i32be, load_i64be, load_u8, read_uvarint
from logwright.codec.kernels.kernel import kernel

_LEGACY, _CURRENT = 0, 1
_LAST_VERSION = 4
_UUID = 16
(
    TYPE, VERSION, GROUP, GROUP_SIZE, TOPIC, TOPIC_SIZE, PARTITION, OFFSET, LEADER_EPOCH, METADATA, METADATA_SIZE,
    COMMIT, EXPIRE, TOPIC_ID, FIELDS,
) = range(15)  # fmt: skip
TOMBSTONE = -1
"""The version of a null value."""


@kernel("const u1[], const i8[], const u1[], const i8[], const u1[], i8[]")
def read_commits(
    keys: Bytes, key_ends: Int64s, values: Bytes, value_ends: Int64s, null: Bytes, out: Int64s
) -> int:
    """Fill a row of `out` for each offset commit with `FIELDS` numbers: values, positions in `keys` and `values`, and sizes. For other
    records TYPE is -1. Return the number of commits."""
    count = 0
    for i in range(len(null)):
        row = i * FIELDS
        out[row + TYPE] = -1
        at, end = key_ends[i], key_ends[i + 1]
        if end - at < 10:
            continue
        kind = load_i16be(keys, at)
        if kind != _LEGACY and kind != _CURRENT:
            continue
        size = load_i16be(keys, at + 2)
        if size < 0 or size > end - at - 10:
            continue
        out[row + GROUP] = at + 4
        out[row + GROUP_SIZE] = size
        at += 4 + size
        size = load_i16be(keys, at)
        if size < 0 or size != end - at - 6:
            continue
        out[row + TOPIC] = at + 2
        out[row + TOPIC_SIZE] = size
        out[row + PARTITION] = load_i32be(keys, at + 2 + size)
        if load_u8(null, i):
            out[row + VERSION] = TOMBSTONE
        elif not _read_value(values, value_ends[i], value_ends[i + 1], out, row):
            continue
        out[row + TYPE] = kind
        count += 1
    return count


@kernel
def _read_value(values: Bytes, at: int, end: int, out: Int64s, row: int) -> bool:
    """Fill the fields of a value. Return False if it does not have the form that Kafka writes."""
    if end - at < 10:
        return False
    version = load_i16be(values, at)
    if version < 0 or version > _LAST_VERSION:
        return False
    out[row + VERSION] = version
    out[row + OFFSET] = load_i64be(values, at + 2)
    at += 10
    if version >= 3:
        if end - at < 4:
            return False
        out[row + LEADER_EPOCH] = load_i32be(values, at)
        at += 4
    if version < 4:
        if end - at < 2:
            return False
        size = load_i16be(values, at)
        at += 2
    else:
        length, after = read_uvarint(values, at, end)
        # A varint with more bytes than needed ends with a zero.
        if after < 0 or (after - at > 1 and load_u8(values, after - 1) == 0):
            return False
        size = length - 1
        at = after
    if size < 0 or size > 32767 or size > end - at - 8:
        return False
    out[row + METADATA] = at
    out[row + METADATA_SIZE] = size
    at += size
    out[row + COMMIT] = load_i64be(values, at)
    at += 8
    if version == 1:
        if end - at < 8:
            return False
        out[row + EXPIRE] = load_i64be(values, at)
        at += 8
    out[row + TOPIC_ID] = -1
    if version == 4:
        if end - at < 1:
            return False
        tags = load_u8(values, at)
        at += 1
        if tags == 1:
            # The tag 0, with the size of a UUID that is not zero.
            if end - at != 2 + _UUID or load_u8(values, at) != 0 or load_u8(values, at + 1) != _UUID:
                return False
            at += 2
            if load_i64be(values, at) == 0 and load_i64be(values, at + 8) == 0:
                return False
            out[row + TOPIC_ID] = at
            at += _UUID
        elif tags != 0:
            return False
    return at == end


@dataclass(frozen=True, slots=True)
class Commits:
    """The offset commits in a batch of records: their rows, types and versions (`TOMBSTONE`), and the structures of their fields."""

    rows: Int64s
    types: Int64s
    versions: Int64s
    fields: pa.StructArray


def offset_commits(kind: RecordType, key: pa.Array, value: pa.Array) -> Commits | None:
    """Decode the offset commits among records. Return None if a text is not UTF-8: then `records` decodes all of them."""
    keys, key_ends = values_of(key)
    values, value_ends = values_of(value)
    null = np.asarray(value.is_null()).astype(np.uint8)
    out = np.zeros(len(key) * FIELDS, np.int64)
    read_commits(keys, key_ends.astype(np.int64), values, value_ends.astype(np.int64), null, out)
    table = out.reshape(-1, FIELDS)
    rows = np.flatnonzero(table[:, TYPE] >= 0)
    columns = np.ascontiguousarray(table[rows].T)
    version = columns[VERSION]
    tombstone = version == TOMBSTONE
    metadata_size = np.where(tombstone, -1, columns[METADATA_SIZE])
    try:
        texts = [
            _text(keys, columns[GROUP], columns[GROUP_SIZE]),
            _text(keys, columns[TOPIC], columns[TOPIC_SIZE]),
            _text(values, columns[METADATA], metadata_size),
        ]
    except pa.ArrowInvalid:
        return None
    children = {
        "group": texts[0],
        "topic": texts[1],
        "partition": numbers(pa.int32(), columns[PARTITION]),
        "offset": numbers(pa.int64(), columns[OFFSET], tombstone),
        "leader_epoch": numbers(pa.int32(), columns[LEADER_EPOCH], version < 3),
        "metadata": texts[2],
        "commit_timestamp": numbers(pa.int64(), columns[COMMIT], tombstone),
        "expire_timestamp": numbers(pa.int64(), columns[EXPIRE], version != 1),
        "topic_id": _topic_ids(values, columns[TOPIC_ID], version),
    }
    fields = list(struct_type(kind.fields))
    array = pa.StructArray.from_arrays([children[field.name] for field in fields], fields=fields)
    return Commits(rows, columns[TYPE], version, array)


def _text(data: Bytes, at: Int64s, sizes: Int64s) -> pa.Array:
    text = binary(data, at, sizes).cast(pa.string())
    text.validate(full=True)
    return text


def _topic_ids(values: Bytes, at: Int64s, version: Int64s) -> pa.Array:
    """Return the ids as text. There are few topics, so each is formatted once."""
    stored = (version == _LAST_VERSION) & (at >= 0)
    raw = slices(values, at[stored], at[stored] + _UUID)
    encoded = raw.dictionary_encode()
    names = [base64.urlsafe_b64encode(each)[:22].decode() for each in encoded.dictionary.to_pylist()]
    index = np.full(len(at), len(names), np.int64)
    index[stored] = np.asarray(encoded.indices)
    texts = contents(pa.string(), [name.encode() for name in (*names, ZERO_UUID)])
    return texts.take(numbers(pa.int64(), index, version < _LAST_VERSION))
