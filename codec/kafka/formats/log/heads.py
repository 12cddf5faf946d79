"""The frame specification of record batches, and the table of headers that a scan makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.resync import Finder
from logwright.codec.frames.scanner import Scanner
from logwright.codec.frames.specification import CRC32C, Ascending, Checksum, Equals, FrameSpec, Heads, Length
from logwright.codec.kafka.formats.log.layout import HEAD, HEAD_SIZE, LENGTH_END, MAGIC, RECORD_BATCH
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
from logwright.codec.window import Bytes

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
_HIGHEST, _LOWEST = (1 << 63) - 1, -(1 << 63)


@kernel("u1[], i8, const u1[], i8, i8", inline=True)
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Write the header of the batch of magic 2 at `buf[at]` to `heads[place]`, as `HEADS`."""
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
    magic = load_u8(buf, at + _MAGIC)
    store_32le(heads, place + _TO_MAGIC, magic - 256 if magic > 127 else magic)


@kernel("const u1[], i8")
def may_be_batch(buf: Bytes, at: int) -> bool:
    """Return whether the header of a batch can be at `at`."""
    epoch, producer = load_i32be(buf, at + _EPOCH), load_i64be(buf, at + _PRODUCER)
    return epoch >= -1 and producer >= -1 and load_i32be(buf, at + _COUNT) >= 0


SPECIFICATION = FrameSpec(
    "kafka.log.v2",
    RECORD_BATCH,
    Length("batch_length", bias=LENGTH_END, low=HEAD_SIZE, high=LENGTH_END + (1 << 31) - 1, reach=LENGTH_END + LIMIT),
    test=Equals("magic", (MAGIC,)),
    checksums=(Checksum(CRC32C, "crc", "attributes"),),
    claims=Ascending("base_offset", "last_offset_delta"),
    believes=may_be_batch,
    heads=Heads(HEADS, put_head),
)  # fmt: skip
SCANNER, FINDER = Scanner(SPECIFICATION), Finder(SPECIFICATION)


@kernel("const u1[], const i8[], u1[]")
def gather_heads(buf: Bytes, starts: npt.NDArray[np.int64], heads: Bytes) -> None:
    """Write the headers of the batches at `starts` one after the other."""
    for i in range(len(starts)):
        at = starts[i]
        put_head(heads, i * _ROW, buf, at, (LENGTH_END + load_i32be(buf, at + _LENGTH)) & 0xFFFFFFFF)


def heads_at(buf: Bytes, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the headers of the batches that start at `starts`, as a scan keeps them."""
    out = np.empty(len(starts), HEADS)
    gather_heads(buf, starts, out.view(np.uint8))
    return out


def stored_heads(buf: Bytes, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the headers of the batches of magic 2 that start at `starts`, as an array of `HEAD`: the bytes as they are stored."""
    out: npt.NDArray[Any] = buf[starts[:, None] + np.arange(HEAD_SIZE)].view(HEAD)[:, 0]
    return out
