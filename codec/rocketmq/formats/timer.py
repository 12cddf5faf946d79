"""The codecs of the timer: `rocketmq.timerlog` (units) and `rocketmq.timerwheel` (by default a slot for each second).

Source: `TimerLog`, `TimerWheel`, `Slot` and `TimerMessageStore` of RocketMQ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from logwright.codec.base import Match
from logwright.codec.describe import I32BE, I64BE, Field, Struct
from logwright.codec.fixed import Entries, Findings, FixedCodec
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import FramedCodec
from logwright.codec.frames.format import POSITION
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.intrinsics import Bytes as Buffer
from logwright.codec.kernels.intrinsics import load_i32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog.layout import BLANK_MAGIC
from logwright.codec.table import Column, Table, columns_of

NAME = "rocketmq.timerlog"
_BLANK = BLANK_MAGIC - (1 << 32)
_SIZE = 52
WHEEL_SIZE = 2 * 7 * 86400 * 32
"""The size of the wheel: two slots for each second of a week (`TimerWheel.wheelLength`)."""

UNIT = Struct(
    "TimerUnit",
    Field("unit_size", I32BE, "52", default=_SIZE),
    Field("previous", I64BE, "offset of the previous unit of the same slot; -1: none", default=-1),
    Field("magic", I32BE, "bits: 1 default, 2 roll, 4 delete", default=1),
    Field("write_time", I64BE, "when the unit was written, in milliseconds since 1970"),
    Field("delayed_time", I32BE, "milliseconds from write_time to the delivery"),
    Field("physical_offset", I64BE, "offset of the message in the commit log"),
    Field("message_size", I32BE, "bytes of the message"),
    Field("topic_hash", I32BE, "hash of the real topic", default=0),
    Field("reserved", I64BE, "0", default=0),
    source="TimerLog.UNIT_SIZE",
)
BLANK = Struct(
    "TimerBlank",
    Field("unit_size", I32BE, "bytes up to the end of the file"),
    Field("previous", I64BE, "0", default=0),
    Field("magic", I32BE, "0xcbd43194", only=_BLANK),
    doc="The last record of a full file.",
)
SLOT = Struct(
    "TimerSlot",
    Field(
        "time", I64BE, "the time since 1970 in units of timerPrecisionMs, seconds by default; 0: unused slot"
    ),
    Field("first_position", I64BE, "offset of the slot's oldest unit in the timer log"),
    Field("last_position", I64BE, "offset of its newest unit"),
    Field("count", I32BE, "number of units in the slot"),
    Field("magic", I32BE, "0", default=0),
    doc="The slot number is the time modulo the number of slots, 1209600.",
    source="Slot.SIZE",
)
_MAGIC = UNIT.offset("magic")
MAGIC_MASK = 15


@kernel("const u1[], i8, i8, i8")
def unit_rule(buf: Buffer, at: int, end: int, check: int) -> int:
    """Check that the magic has only known bits. A broker accepts it without any (`TimerMessageStore.isMagicOK`)."""
    magic = load_i32be(buf, at + _MAGIC)
    if magic < 0 or magic > MAGIC_MASK:
        return IMPOSSIBLE
    return CERTAIN


class TimerLog(FramedCodec):
    """The codec of the log."""

    name = NAME
    title = "RocketMQ timer log"
    rows = Table(
        "rows",
        (
            *columns_of(
                UNIT, "previous", "write_time", "delayed_time", "physical_offset", "message_size", "topic_hash", nullable=True
            ),
            *columns_of(UNIT, "magic", "reserved", nullable=True, detail=True),
            POSITION,
        ),
        "One row per unit.",
    )  # fmt: skip
    spec = FrameSpec(
        NAME, UNIT, Length("unit_size", low=_SIZE, high=_SIZE), marker=Marker("blank", BLANK, "magic", _BLANK), rule=unit_rule,
        followers=1, zero_ends=True, kind="unit",
    )  # fmt: skip
    pattern = re.compile(r"(\d{20})")
    fixed: Mapping[str, str] = {column.name: column.name for column in rows.columns if column is not POSITION}
    required = ("write_time", "delayed_time", "physical_offset", "message_size")
    systems: Mapping[int, str] = dict.fromkeys(
        (scanner.ZERO, scanner.TORN, scanner.BAD_LENGTH, scanner.BAD_RULE),
        "a broker truncates the timer log here, if it reads this file on start: the last flushed one, the one before, or a later one",
    )

    def recognise(self, name: str, head: bytes) -> Match:
        if not self.pattern.fullmatch(name) or len(head) < _SIZE:
            return Match.NO
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[_MAGIC : _MAGIC + 4], "big")
        return Match.SURE if size == _SIZE and 0 <= magic <= MAGIC_MASK else Match.NO


LOG = TimerLog()


def _wrong(entries: Entries, base: int) -> Findings:
    used = entries["time"] != 0
    yield used & (entries["last_position"] < 0), "last_position is negative"


WHEEL = FixedCodec(
    name="rocketmq.timerwheel",
    title="RocketMQ timer wheel",
    entry=SLOT,
    pattern=re.compile("timerwheel"),
    columns=(
        Column("slot", pa.int64(), "number of the slot", nullable=False),
        *columns_of(SLOT),
    ),
    wrong=_wrong,
    system="on start a broker corrects the wheel from the timer log",
    numbered="slot",
)
