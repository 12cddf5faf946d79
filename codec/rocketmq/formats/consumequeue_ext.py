"""The codec `rocketmq.consumequeue_ext`: extra fields of consume queue units. Source: `ConsumeQueueExt` of RocketMQ.

The `tags_code` of a consume queue unit is the offset of its extension minus 2^63.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.base import Match
from logwright.codec.columns import binary
from logwright.codec.describe import I16BE, I64BE, Bytes, Field, Struct
from logwright.codec.fault import UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import FramedCodec, Part
from logwright.codec.frames.format import POSITION
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.intrinsics import Bytes as Buffer
from logwright.codec.kernels.intrinsics import load_i16be, load_i64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.table import Column, Table, columns_of

NAME = "rocketmq.consumequeue_ext"
ADDRESS = 1 << 63
"""Subtracted from an offset to get the `tags_code` of a unit."""
FIRST_TAG = -(1 << 31) - 1
"""The largest `tags_code` that is an address."""
_SMALLEST = 20
"""Size of a unit without a bitmap in bytes."""

UNIT = Struct(
    "ConsumeQueueExtUnit",
    Field("unit_size", I16BE, "bytes of the unit", measures=True),
    Field("tags_code", I64BE, "hash of the tags"),
    Field("store_timestamp", I64BE, "when the broker stored the message, in milliseconds since 1970"),
    Field("filter_bit_map", Bytes(I16BE), "bits of the SQL filters that the message passes", default=b""),
    source="ConsumeQueueExt.CqExtUnit",
)
END = Struct("End", Field("unit_size", I16BE, "-1: the next unit is in the next file", only=-1))


@kernel("const u1[], i8, i8, i8")
def unit_rule(buf: Buffer, at: int, end: int, check: int) -> int:
    """Check that the bitmap fills the unit and that the store time is plausible. Random bytes do not pass."""
    if load_i16be(buf, at + 18) != end - at - 20 or load_i64be(buf, at + 10) >> 48 != 0:
        return IMPOSSIBLE
    return CERTAIN


ROWS = Table(
    "rows",
    (
        *columns_of(UNIT, "tags_code", "store_timestamp", nullable=True),
        Column("filter_bit_map", pa.binary(), "bits of the SQL filters that the message passes"),
        POSITION,
    ),
    "One row per unit.",
)


class ConsumeQueueExt(FramedCodec):
    """The codec."""

    name = NAME
    title = "RocketMQ consume queue extension"
    rows = ROWS
    spec = FrameSpec(
        NAME, UNIT, Length("unit_size", low=_SMALLEST, high=32767), marker=Marker("end", END, "unit_size", -1), rule=unit_rule,
        followers=2, zero_ends=True, kind="unit",
    )  # fmt: skip
    pattern = re.compile(r"(\d{20})")
    fixed: Mapping[str, str] = {"tags_code": "tags_code", "store_timestamp": "store_timestamp"}
    required = ("tags_code", "store_timestamp")
    systems: Mapping[int, str] = dict.fromkeys(
        (scanner.ZERO, scanner.TORN, scanner.BAD_LENGTH, scanner.BAD_RULE),
        "a broker reads no later unit of this file",
    )

    def recognise(self, name: str, head: bytes) -> Match:
        """Extensions have the same names as all queue files, so only the content decides."""
        if not self.pattern.fullmatch(name) or len(head) < _SMALLEST:
            return Match.NO
        size, bits = int.from_bytes(head[:2], "big"), int.from_bytes(head[18:20], "big")
        time = int.from_bytes(head[10:18], "big")
        return Match.SURE if size == 20 + bits and 0 < time < 1 << 48 else Match.NO

    def columns(self, part: Part, names: Sequence[str], context: Any) -> Mapping[str, pa.Array]:
        return {
            "filter_bit_map": binary(part.data, part.start + _SMALLEST, part.end - part.start - _SMALLEST)
        }

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: Any
    ) -> tuple[Buffer, Int64s]:
        for i, row in enumerate(rows.to_pylist()):
            bits = row["filter_bit_map"] or b""
            if len(bits) > 32767 - _SMALLEST or not 0 <= row["store_timestamp"] < 1 << 48:
                raise UsageError(
                    f"{NAME}: row {i}: a unit is limited to 32767 bytes, and store_timestamp must be in 0..2^48-1"
                )
        return super().form(rows, at, positions, context)


CODEC = ConsumeQueueExt()
