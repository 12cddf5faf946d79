"""`.timeindex`: from timestamps to offsets. Source: `TimeIndex` of Kafka's storage module."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I32BE, Field, Int, Struct
from logwright.codec.fixed import Entries, Findings, FixedCodec
from logwright.codec.table import Column

TIMEINDEX_ENTRY = Struct(
    "TimeIndexEntry",
    Field("timestamp", Int(8, unit="ms"), "largest timestamp of the segment so far, in milliseconds"),
    Field(
        "relative_offset",
        I32BE,
        "last offset of the first batch that has it, minus the number in the file's name",
    ),
    doc="The last entry of a closed segment holds its largest timestamp.",
    source="TimeIndex",
)


def _wrong(entries: Entries, base: int) -> Findings:
    timestamp, offset = entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)
    yield (
        # Compared, not subtracted: far timestamps would wrap.
        np.r_[False, (timestamp[1:] <= timestamp[:-1]) | (offset[1:] < offset[:-1])][: len(entries)],
        "the timestamp is not above that of the previous entry, or the offset is below it",
    )


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
