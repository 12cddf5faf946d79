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
        Column("queue_offset", pa.int64(), "number of the message in its queue", prunes=True),
        Column("physical_offset", pa.int64(), "place of the message in the commit log", prunes=True),
        Column("born_timestamp", TIMESTAMP, "when the producer made the message"),
        Column("store_timestamp", TIMESTAMP, "when the broker stored the message"),
        Column("tags", pa.string(), "the property TAGS"),
        Column("keys", pa.string(), "the property KEYS: keys with spaces between them"),
        Column("properties", PROPERTIES, "all properties, in the order of their bytes"),
        Column(
            "body", pa.binary(), "the body, decompressed where that is possible; null where there is none"
        ),
        Column("version", pa.int32(), "1, or 2 for topics of more than 127 bytes", detail=True),
        Column("flag", pa.int32(), "the user's own flag", detail=True),
        Column("sys_flag", pa.int32(), "bits that say how the message is stored", detail=True),
        Column("reconsume_times", pa.int32(), "how often delivery was tried again", detail=True),
        Column(
            "prepared_transaction_offset",
            pa.int64(),
            "of a commit: where the prepared message lies",
            detail=True,
        ),
        Column("born_host", pa.string(), "the producer: 10.0.0.1:50001, or [2001:db8::1]:50001", detail=True),
        Column("store_host", pa.string(), "the broker", detail=True),
        Column("born_timestamp_ms", pa.int64(), "born_timestamp as it is stored", detail=True),
        Column("store_timestamp_ms", pa.int64(), "store_timestamp as it is stored", detail=True),
        POSITION,
    ),
    "One row a message, in the order of the file.",
    key=("physical_offset",),
)
