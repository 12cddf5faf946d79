"""The one-page files of a few integers: `checkpoint`, and `config/timercheck` of the timer.

Source: `StoreCheckpoint` and `TimerCheckpoint` of RocketMQ.
"""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import I64BE, Bytes, Field, Struct
from logwright.codec.fault import Kind
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table, struct_name
from logwright.codec.table import Column

PAGE = 4096
"""File size in bytes (`MappedFile.OS_PAGE_SIZE`)."""


def _codec(
    name: str, title: str, pattern: str, system: str, source: str, fields: tuple[tuple[str, str], ...]
) -> SmallFileCodec:
    columns = tuple(Column(field, pa.int64(), doc, nullable=False) for field, doc in fields)
    struct = Struct(
        struct_name(name),
        *(Field(field, I64BE, doc, default=0) for field, doc in fields),
        Field("rest", Bytes("rest"), "zeros up to 4096 bytes", default=b""),
        source=source,
    )

    def parse(data: bytes) -> pa.Table:
        if len(data) != PAGE:
            short = len(data) < PAGE
            text = f"the file has {len(data)} bytes, expected {PAGE}"
            broker = "the broker pads it with zeros" if short else "the broker ignores the extra bytes"
            raise ParseError(text, kind=Kind.TRUNCATED if short else Kind.PADDING, system=broker)
        values, _ = struct.unpack(data)
        return row_table(columns, *(values[column.name] for column in columns))

    return SmallFileCodec(
        name=name, title=title, pattern=re.compile(pattern), columns=columns, parse=parse, system=system, structures=(struct,),
        largest=Codec.largest,
        form=lambda rows: struct.pack(only_row(rows)).ljust(PAGE, b"\0"),
    )  # fmt: skip


CHECKPOINT = _codec(
    "rocketmq.checkpoint",
    "RocketMQ checkpoint: the store times up to which files are flushed",
    "checkpoint",
    "a broker that was not stopped cleanly starts its recovery at another file",
    "StoreCheckpoint",
    (
        (
            "physic_msg_timestamp",
            "store time of the last message flushed to the commit log, in milliseconds since 1970",
        ),
        ("logics_msg_timestamp", "store time of the last message added to a consume queue"),
        ("index_msg_timestamp", "store time of the last entry of the last full index file"),
        ("master_flushed_offset", "offset up to which the master has flushed; from 5.0.0 on"),
        ("confirm_phy_offset", "offset of the last confirmed message; from 5.1.1 on"),
        ("logics_physical_offset", "offset of a message whose consume queue unit is flushed; from 5.5.0 on"),
    ),
)
TIMER_CHECK = _codec(
    "rocketmq.timercheck",
    "RocketMQ timercheck: the progress of the timer",
    "timercheck",
    "the broker rereads the timer queue from another offset",
    "TimerCheckpoint",
    (
        ("last_read_time", "time up to which the wheel was read, in milliseconds since 1970"),
        ("last_timer_log_flush_pos", "offset up to which the timer log is flushed"),
        ("last_timer_queue_offset", "queue offset of the next message of the timer queue"),
        ("master_timer_queue_offset", "the same on the master"),
        ("data_version_state", "`stateVersion` of the data version"),
        ("data_version_timestamp", "`timestamp` of the data version"),
        ("data_version_counter", "`counter` of the data version"),
    ),
)

TIMER_LOG_FLUSHED = 8
"""The position of `last_timer_log_flush_pos` in timercheck."""


def checkpoint(stored: int, phy: int, indexed: int = 0) -> bytes:
    """Return the checkpoint of a store whose last message has store time `stored` and physical offset `phy`."""
    row = {
        "physic_msg_timestamp": stored, "logics_msg_timestamp": stored, "index_msg_timestamp": indexed, "master_flushed_offset": 0,
        "confirm_phy_offset": phy, "logics_physical_offset": phy,
    }  # fmt: skip
    return bytes(CHECKPOINT.form(pa.Table.from_pylist([row])))
