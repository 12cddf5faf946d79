"""The codec `rocketmq.consumequeue`: the commit log offsets of a queue's messages. Source: `ConsumeQueue` of RocketMQ."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.base import Match
from logwright.codec.describe import I32BE, I64BE, Field, Struct
from logwright.codec.fixed import Entries, Findings, FixedCodec
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as COMMIT_LOG
from logwright.codec.table import Column, columns_of

UNIT = Struct(
    "ConsumeQueueUnit",
    Field("physical_offset", I64BE, "offset of the message in the commit log"),
    Field("size", I32BE, "bytes of the message"),
    Field(
        "tags_code",
        I64BE,
        "hash of the tags; delivery time in milliseconds for a delayed message; or an address in consumequeue_ext",
    ),
    doc="The unit of message `queue_offset` starts at byte 20 * `queue_offset`, counted over all files of the queue.",
    source="ConsumeQueue.CQ_STORE_UNIT_SIZE",
)
FILLER = (1 << 31) - 1
"""The size of filler units, which precede the first message of a queue that starts above 0."""


def _impossible(entries: Entries) -> Bools:
    """Return a mask of the units that end the queue for a broker."""
    mask: Bools = (entries["physical_offset"] < 0) | (entries["size"] <= 0)
    return mask


def _wrong(entries: Entries, base: int) -> Findings:
    offsets = entries["physical_offset"].astype(np.int64)
    filler = (entries["size"] == FILLER) & (offsets == 0)
    yield (
        np.r_[False, (offsets[1:] < offsets[:-1]) & ~filler[1:] & ~filler[:-1]][: len(entries)],
        "physical_offset is below that of the previous unit",
    )


class ConsumeQueue(FixedCodec):
    """The codec."""

    def recognise(self, name: str, head: bytes) -> Match:
        if not self.pattern.fullmatch(name) or COMMIT_LOG.known(head):
            return Match.NO
        if len(head) < UNIT.head_size:
            return Match.NO
        unit, _ = UNIT.unpack(head)
        return Match.MAYBE if unit["physical_offset"] >= 0 and unit["size"] > 0 else Match.NO


CODEC = ConsumeQueue(
    name="rocketmq.consumequeue",
    title="RocketMQ consume queue",
    entry=UNIT,
    pattern=re.compile(r"(\d{20})"),
    columns=(
        Column("queue_offset", pa.int64(), "offset of the message in its queue", nullable=False),
        *columns_of(UNIT),
    ),
    wrong=_wrong,
    system="a broker reads the queue up to the first unit without a size and does not check the units before it",
    numbered="queue_offset",
    impossible=(_impossible, "a unit without a message"),
)
