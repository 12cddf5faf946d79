"""`.timeindex`: from timestamps to offsets. Source: `TimeIndex` of Kafka's storage module."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I32BE, I64BE, Field, Struct
from logwright.codec.fixed import Entries, FixedCodec
from logwright.codec.table import Column

TIMEINDEX_ENTRY = Struct(
    "TimeIndexEntry",
    Field("timestamp", I64BE, "largest timestamp of the segment so far, in milliseconds"),
    Field(
        "relative_offset",
        I32BE,
        "last offset of the first batch that has it, less the number in the file's name",
    ),
    doc="The last entry of a closed segment holds its largest timestamp.",
    source="TimeIndex",
)


def _wrong(entries: Entries) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], str]:
    timestamp, offset = entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)
    # Compared, not subtracted: far timestamps would wrap.
    return (timestamp[1:] <= timestamp[:-1]) | (
        np.diff(offset) < 0
    ), "timestamp or offset is below the entry before"


CODEC = FixedCodec(
    name="kafka.timeindex",
    title="Kafka time index",
    entry=TIMEINDEX_ENTRY,
    pattern=re.compile(r"(\d{20})\.timeindex(?:\.(?:deleted|swap|cleaned))?"),
    columns=(
        Column("timestamp", pa.int64(), "largest timestamp so far, in milliseconds", nullable=False),
        Column("offset", pa.int64(), "last offset of the first batch that has it", nullable=False),
    ),
    relative={"offset": "relative_offset"},
    wrong=_wrong,
    system="after an unclean stop the broker rebuilds it; after a clean one it trusts it",
)
