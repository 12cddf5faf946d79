"""`.txnindex`: aborted transactions. Source: `AbortedTxn` and `TransactionIndex` of Kafka's storage module."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I16BE, I64BE, Field, Struct
from logwright.codec.fixed import Entries, Findings, FixedCodec
from logwright.codec.table import Column

TXNINDEX_ENTRY = Struct(
    "AbortedTxn",
    Field("version", I16BE, "0", default=0),
    Field("producer_id", I64BE, "the producer that aborted"),
    Field("first_offset", I64BE, "first offset of the transaction in this partition"),
    Field("last_offset", I64BE, "offset of the ABORT marker"),
    Field(
        "last_stable_offset",
        I64BE,
        "first offset of the earliest other open transaction, else last_offset + 1",
    ),
    doc="Stored in the segment that has the marker.",
    source="AbortedTxn",
)


def _wrong(entries: Entries, base: int) -> Findings:
    first, last = entries["first_offset"].astype(np.int64), entries["last_offset"].astype(np.int64)
    yield last < base, f"last_offset is below {base}, the number in the file's name"
    yield first > last, "first_offset is above last_offset"
    yield (
        np.r_[False, last[1:] <= last[:-1]][: len(entries)],
        "last_offset is not above that of the previous entry",
    )


CODEC = FixedCodec(
    name="kafka.txnindex",
    title="Kafka index of aborted transactions",
    entry=TXNINDEX_ENTRY,
    pattern=re.compile(r"(\d{20})\.txnindex(?:\.(?:deleted|swap|cleaned))?"),
    columns=(
        Column("producer_id", pa.int64(), "the producer that aborted", nullable=False),
        Column("first_offset", pa.int64(), "first offset of the transaction in this partition", nullable=False),
        Column("last_offset", pa.int64(), "offset of the ABORT marker", nullable=False),
        Column("last_stable_offset", pa.int64(), "first offset of the earliest other open transaction, else last_offset + 1", nullable=False),
        Column("version", pa.int16(), "0; only its first byte is checked", detail=True),
    ),
    allocated=False,
    wrong=_wrong,
    system="the broker rebuilds it if an offset is below the base of the segment, and does not start on another version",
    version="version",  # a broker checks only its first byte
)  # fmt: skip
