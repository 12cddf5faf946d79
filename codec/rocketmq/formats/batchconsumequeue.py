"""The codec `rocketmq.batchconsumequeue`: consume queues of topics with batches. Source: `BatchConsumeQueue` of RocketMQ."""

from __future__ import annotations

import re

import numpy as np

from logwright.codec.arrays import Bools
from logwright.codec.base import Match
from logwright.codec.describe import I16BE, I32BE, I64BE, Field, Struct
from logwright.codec.fixed import Entries, Findings, FixedCodec
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as COMMIT_LOG
from logwright.codec.table import columns_of

UNIT = Struct(
    "BatchConsumeQueueUnit",
    Field("physical_offset", I64BE, "offset of the message in the commit log"),
    Field("size", I32BE, "bytes of the message"),
    Field("tags_code", I64BE, "hash of the tags"),
    Field("store_timestamp", I64BE, "when the broker stored the message, in milliseconds since 1970"),
    Field("base_offset", I64BE, "queue offset of its first message"),
    Field("batch_size", I16BE, "number of messages in the batch"),
    Field("compacted_offset", I32BE, "-1", default=-1),
    Field("reserved", I32BE, "0", default=0),
    doc="Units are contiguous. A broker finds a message's unit by binary search on base_offset.",
    source="BatchConsumeQueue.CQ_STORE_UNIT_SIZE",
)
_COMPACTED, _END = UNIT.offset("compacted_offset"), UNIT.min_size


def _impossible(entries: Entries) -> Bools:
    mask: Bools = (
        (entries["physical_offset"] < 0)
        | (entries["size"] <= 0)
        | (entries["base_offset"] < 0)
        | (entries["batch_size"] <= 0)
    )
    return mask


def _wrong(entries: Entries, base: int) -> Findings:
    for field, step in (("physical_offset", "size"), ("base_offset", "batch_size")):
        values = entries[field].astype(np.int64)
        least = values[:-1] + (entries[step][:-1] if field == "base_offset" else 1)
        yield (
            np.r_[False, values[1:] < least][: len(entries)],
            f"{field} is not greater than that of the previous unit",
        )


class BatchConsumeQueue(FixedCodec):
    """The codec."""

    def recognise(self, name: str, head: bytes) -> Match:
        if not self.pattern.fullmatch(name) or COMMIT_LOG.known(head) or len(head) < _END:
            return Match.NO
        known = head[_COMPACTED:_END] == b"\xff\xff\xff\xff\0\0\0\0" and any(head[:_COMPACTED])
        return Match.SURE if known else Match.NO


CODEC = BatchConsumeQueue(
    name="rocketmq.batchconsumequeue",
    title="RocketMQ batch consume queue",
    entry=UNIT,
    pattern=re.compile(r"(\d{20})"),
    columns=columns_of(UNIT),
    wrong=_wrong,
    system="a broker reads the queue up to the first unit without a message and does not check the units before it",
    impossible=(_impossible, "a unit without a message"),
)
