"""The rows of a commit log."""

from __future__ import annotations

import pyarrow as pa

from logwright.codec.frames.format import POSITION
from logwright.codec.rocketmq.formats.commitlog.properties import PROPERTIES
from logwright.codec.table import TIMESTAMP, Column, Table

NAME = "rocketmq.commitlog"

ROWS = Table(
    "rows",
    (
        Column("topic", pa.string(), "the topic", nullable=False),
        Column("queue_id", pa.int32(), "queue of the topic", prunes=True),
        Column("queue_offset", pa.int64(), "offset of the message in its queue", prunes=True),
        Column("physical_offset", pa.int64(), "offset of the message in the commit log", prunes=True),
        Column("born_timestamp", TIMESTAMP, "when the producer created the message"),
        Column("store_timestamp", TIMESTAMP, "when the broker stored the message"),
        Column("tags", pa.string(), "the property TAGS"),
        Column("keys", pa.string(), "the property KEYS: keys separated by spaces"),
        Column("properties", PROPERTIES, "all properties in stored order"),
        Column("body", pa.binary(), "the body, decompressed if possible; null if empty"),
        Column("version", pa.int32(), "1, or 2 for topics longer than 127 bytes", detail=True),
        Column("flag", pa.int32(), "application-defined flag", detail=True),
        Column("sys_flag", pa.int32(), "flags of the stored form", detail=True),
        Column("reconsume_times", pa.int32(), "number of delivery retries", detail=True),
        Column(
            "prepared_transaction_offset",
            pa.int64(),
            "of a commit: offset of the prepared message",
            detail=True,
        ),
        Column("born_host", pa.string(), "the producer: 10.0.0.1:50001, or [2001:db8::1]:50001", detail=True),
        Column("store_host", pa.string(), "the broker", detail=True),
        Column("born_timestamp_ms", pa.int64(), "stored value of born_timestamp", detail=True),
        Column("store_timestamp_ms", pa.int64(), "stored value of store_timestamp", detail=True),
        POSITION,
    ),
    "One row per message, in file order.",
    key=("physical_offset",),
)
