"""The frame specification of entries, which are record batches or older messages, and the table of headers that a scan makes.

All magics have the length and the magic at the same place, so one specification describes a file that contains several of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.describe import Field, Struct
from logwright.codec.frames.resync import Finder
from logwright.codec.frames.scanner import Scanner
from logwright.codec.frames.specification import (
    CERTAIN,
    CRC32,
    CRC32C,
    IMPOSSIBLE,
    Ascending,
    Checksum,
    Equals,
    FrameSpec,
    Heads,
    Length,
)
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CRC_START,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MAGICS,
    MESSAGE,
    MESSAGE_TIME,
    MIN_MESSAGE,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
)
from logwright.codec.kernels.intrinsics import (
    load_i16be,
    load_i32be,
    load_i64be,
    load_u8,
    load_u32be,
    store_32le,
    store_64le,
)
from logwright.codec.kernels.kernel import kernel

LIMIT = 64 << 20
"""The search after damage accepts a larger batch only with exactly the offset that is due, and a larger damaged batch hides nothing.
`max.message.bytes` is 1 MiB by default."""
_EPOCH = RECORD_BATCH.offset("partition_leader_epoch")
_PRODUCER = RECORD_BATCH.offset("producer_id")
_COUNT = RECORD_BATCH.offset("records_count")
_LENGTH, _MAGIC = RECORD_BATCH.offset("batch_length"), RECORD_BATCH.offset("magic")


HEADS = np.dtype(
    [
        *((name, "<i8") for name in ("base_offset", "last_offset", "base_timestamp", "max_timestamp", "producer_id")),
        ("crc", "<u4"),
        *((name, "<i4") for name in ("size", "records_count", "partition_leader_epoch", "base_sequence")),
        *((name, "<i4") for name in ("attributes", "producer_epoch", "magic")),
    ]
)  # fmt: skip
"""The header of an entry of any magic. A scan reads it once. `size` is the size of the whole entry in bytes."""


def offset_of(name: str) -> int:
    """Return the offset of a field in an element of `HEADS`."""
    assert HEADS.fields is not None
    return int(HEADS.fields[name][1])


(_TO_BASE, _TO_LAST, _TO_FIRST_TIME, _TO_MAX_TIME, _TO_PRODUCER, _TO_CRC, _TO_SIZE, _TO_COUNT, _TO_LEADER, _TO_SEQUENCE, _TO_ATTRIBUTES,
 _TO_EPOCH, _TO_MAGIC) = map(offset_of, HEADS.names or ())  # fmt: skip
_ROW = HEADS.itemsize
_CRC, _ATTRIBUTES, _DELTA, _FIRST_TIME, _MAX_TIME, _PRODUCER_EPOCH, _SEQUENCE = map(
    RECORD_BATCH.offset,
    ("crc", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_epoch", "base_sequence"),
)  # fmt: skip
_MESSAGE_ATTRIBUTES, _CONTENT = MESSAGE.offset("attributes"), MESSAGE.head_size
"""In a message of magic 0 or 1. The timestamp of magic 1, the key and the value follow the fixed fields."""
_HIGHEST, _LOWEST = (1 << 63) - 1, -(1 << 63)


@kernel("u1[], i8, const u1[], i8, i8")
def put_message(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Write the header of the message of magic 0 or 1 at `buf[at]` to `heads[place]`, as `HEADS`.

    The first offset and the number of the messages in a wrapper are not in its header: the first offset is set to the last, and the number
    to -1 (see `messages.open_wrappers`). Bits of the attributes that have no meaning in its magic are 0.
    """
    magic = load_u8(buf, at + _MAGIC)
    attributes = load_u8(buf, at + _MESSAGE_ATTRIBUTES) & (
        COMPRESSION if magic == 0 else COMPRESSION | TIMESTAMP_TYPE
    )
    offset = load_i64be(buf, at)
    time = load_i64be(buf, at + _CONTENT) if magic == 1 else -1
    store_64le(heads, place + _TO_BASE, offset)
    store_64le(heads, place + _TO_LAST, offset)
    store_64le(heads, place + _TO_FIRST_TIME, time)
    store_64le(heads, place + _TO_MAX_TIME, time)
    store_64le(heads, place + _TO_PRODUCER, -1)
    store_32le(heads, place + _TO_CRC, load_u32be(buf, at + LENGTH_END))
    store_32le(heads, place + _TO_SIZE, size)
    store_32le(heads, place + _TO_COUNT, -1 if attributes & COMPRESSION else 1)
    store_32le(heads, place + _TO_LEADER, -1)
    store_32le(heads, place + _TO_SEQUENCE, -1)
    store_32le(heads, place + _TO_ATTRIBUTES, attributes)
    store_32le(heads, place + _TO_EPOCH, -1)
    store_32le(heads, place + _TO_MAGIC, magic - 256 if magic > 127 else magic)


@kernel("u1[], i8, const u1[], i8, i8", inline=True)
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Write the header of the entry at `buf[at]` to `heads[place]`, as `HEADS`."""
    magic = load_u8(buf, at + _MAGIC)
    if magic < MAGIC or magic > 127:
        put_message(heads, place, buf, at, size)
        return
    base = load_i64be(buf, at)
    delta = load_i32be(buf, at + _DELTA)
    # A last offset that does not fit 64 bits wraps around, as in Java.
    if delta > 0 and base > _HIGHEST - delta:
        last = base - _HIGHEST - 1 + (delta - _HIGHEST - 1)
    elif delta < 0 and base < _LOWEST - delta:
        last = base + _HIGHEST + 1 + (delta + _HIGHEST + 1)
    else:
        last = base + delta
    store_64le(heads, place + _TO_BASE, base)
    store_64le(heads, place + _TO_LAST, last)
    store_64le(heads, place + _TO_FIRST_TIME, load_i64be(buf, at + _FIRST_TIME))
    store_64le(heads, place + _TO_MAX_TIME, load_i64be(buf, at + _MAX_TIME))
    store_64le(heads, place + _TO_PRODUCER, load_i64be(buf, at + _PRODUCER))
    store_32le(heads, place + _TO_CRC, load_u32be(buf, at + _CRC))
    store_32le(heads, place + _TO_SIZE, size)
    store_32le(heads, place + _TO_COUNT, load_i32be(buf, at + _COUNT))
    store_32le(heads, place + _TO_LEADER, load_i32be(buf, at + _EPOCH))
    store_32le(heads, place + _TO_SEQUENCE, load_i32be(buf, at + _SEQUENCE))
    store_32le(heads, place + _TO_ATTRIBUTES, load_i16be(buf, at + _ATTRIBUTES))
    store_32le(heads, place + _TO_EPOCH, load_i16be(buf, at + _PRODUCER_EPOCH))
    store_32le(heads, place + _TO_MAGIC, magic)


@kernel("const u1[], i8")
def may_be_entry(buf: Bytes, at: int) -> bool:
    """Return whether the header of an entry can be at `at`."""
    magic = load_u8(buf, at + _MAGIC)
    if magic == MAGIC:
        if len(buf) - at < HEAD_SIZE:
            return True
        epoch, producer = load_i32be(buf, at + _EPOCH), load_i64be(buf, at + _PRODUCER)
        return epoch >= -1 and producer >= -1 and load_i32be(buf, at + _COUNT) >= 0
    place = at + _CONTENT + magic * MESSAGE_TIME
    end = at + LENGTH_END + load_i32be(buf, at + _LENGTH)
    if end - place < 8:
        return False
    if len(buf) - place < 4:
        return True
    place += 4 + max(0, load_i32be(buf, place))
    if end - place < 4:
        return False
    return len(buf) - place < 4 or place + 4 + max(0, load_i32be(buf, place)) == end


@kernel("const u1[], i8, i8, i8")
def is_large_enough(buf: Bytes, at: int, end: int, check: int) -> int:
    """Return whether an entry has room for the fields of its magic."""
    magic = load_u8(buf, at + _MAGIC)
    least = HEAD_SIZE if magic == MAGIC else MIN_MESSAGE + magic * MESSAGE_TIME
    return CERTAIN if end - at >= least else IMPOSSIBLE


@kernel("const u1[], i8, i8", inline=True)
def batch_span(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return what the checksum of magic 2 covers, and its stored value."""
    if load_u8(buf, at + _MAGIC) != MAGIC:
        return -1, -1, 0
    return at + CRC_START, end, load_u32be(buf, at + _CRC)


@kernel("const u1[], i8, i8", inline=True)
def message_span(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return what the checksum of magic 0 and 1 covers, and its stored value."""
    if load_u8(buf, at + _MAGIC) >= MAGIC:
        return -1, -1, 0
    return at + _MAGIC, end, load_u32be(buf, at + LENGTH_END)


@kernel("const u1[], i8", inline=True)
def offsets_after(buf: Bytes, at: int) -> int:
    """Return the offsets that an entry takes after the one in its first field. That is the last offset of a message. 0 as long as the
    header of a batch is not complete."""
    if load_u8(buf, at + _MAGIC) != MAGIC or len(buf) - at < HEAD_SIZE:
        return 0
    return load_i32be(buf, at + _DELTA)


BATCHES, MESSAGES = range(2)
"""The checksums of the specification."""
SPECIFICATION = FrameSpec(
    "kafka.log",
    Struct(
        "EntryHead",
        RECORD_BATCH["base_offset"],
        RECORD_BATCH["batch_length"],
        Field("message_crc", MESSAGE["crc"].type, "in a batch: partition_leader_epoch"),
        RECORD_BATCH["magic"],
        Field("crc", RECORD_BATCH["crc"].type, "of a batch"),
    ),
    Length("batch_length", bias=LENGTH_END, low=MIN_MESSAGE, high=LENGTH_END + (1 << 31) - 1, reach=LENGTH_END + LIMIT),
    test=Equals("magic", MAGICS),
    checksums=(Checksum(CRC32C, "crc", batch_span), Checksum(CRC32, "message_crc", message_span)),
    claims=Ascending("base_offset", offsets_after),
    rule=is_large_enough,
    head_rule=may_be_entry,
    heads=Heads(HEADS, put_head),
)  # fmt: skip
SCANNER, FINDER = Scanner(SPECIFICATION), Finder(SPECIFICATION)


@kernel("const u1[], const i8[], u1[]")
def gather_heads(buf: Bytes, starts: Int64s, heads: Bytes) -> None:
    """Write the headers of the entries at `starts` one after the other."""
    for i in range(len(starts)):
        at = starts[i]
        put_head(heads, i * _ROW, buf, at, (LENGTH_END + load_i32be(buf, at + _LENGTH)) & 0xFFFFFFFF)


def heads_at(buf: Bytes, starts: Int64s) -> npt.NDArray[Any]:
    """Return the headers of the entries that start at `starts`, as a scan makes them."""
    out = np.empty(len(starts), HEADS)
    gather_heads(buf, starts, out.view(np.uint8))
    return out


def stored_heads(buf: Bytes, starts: Int64s) -> npt.NDArray[Any]:
    """Return the headers of the batches of magic 2 that start at `starts`, as an array of `HEAD`: the bytes as they are stored."""
    out: npt.NDArray[Any] = buf[starts[:, None] + np.arange(HEAD_SIZE)].view(HEAD)[:, 0]
    return out
