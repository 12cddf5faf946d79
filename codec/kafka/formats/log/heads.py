"""How record batches are found: the specification of their frames, and what a scan keeps of their headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.resync import Finder
from logwright.codec.frames.scanner import Scanner
from logwright.codec.frames.specification import CRC32C, Ascending, Checksum, Equals, FrameSpec, Heads, Length
from logwright.codec.kafka.formats.log.layout import HEAD, HEAD_SIZE, LENGTH_END, MAGIC, RECORD_BATCH
from logwright.codec.kernels.intrinsics import copy, load_i32be, load_i64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

LIMIT = 64 << 20
"""The search after damage believes a larger batch only with the very offset that is due, and a larger damaged batch hides nothing:
`max.message.bytes` is 1 MiB unless it was raised."""
_EPOCH = RECORD_BATCH.offset("partition_leader_epoch")
_PRODUCER = RECORD_BATCH.offset("producer_id")
_COUNT = RECORD_BATCH.offset("records_count")


@kernel("u1[], i8, const u1[], i8, i8")
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Put the header of the batch at `at` at `heads[place]`, as `HEAD`."""
    copy(heads, place, buf, at, HEAD_SIZE)


@kernel("const u1[], i8")
def may_be_batch(buf: Bytes, at: int) -> bool:
    """Whether the header of a batch can be at `at`."""
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
    heads=Heads(HEAD, put_head),
)  # fmt: skip
SCANNER, FINDER = Scanner(SPECIFICATION), Finder(SPECIFICATION)


@kernel("const u1[], const i8[], u1[]")
def gather_heads(buf: Bytes, starts: npt.NDArray[np.int64], heads: Bytes) -> None:
    """Put the headers of the batches that start at `starts` one after the other."""
    row = len(heads) // max(len(starts), 1)
    for i in range(len(starts)):
        put_head(heads, i * row, buf, starts[i], 0)


def heads_at(buf: Bytes, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the headers of the batches that start at `starts`, as a scan keeps them."""
    out = np.empty(len(starts), SPECIFICATION.head)
    gather_heads(buf, starts, out.view(np.uint8))
    return out
