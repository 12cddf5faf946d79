"""The indexes of a segment. Source: `OffsetIndex`, `TimeIndex`, `AbortedTxn` and `TransactionIndex` of Kafka's storage module.

`.index` leads from offsets to positions in the log, `.timeindex` from timestamps to offsets, and `.txnindex` lists aborted transactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I16BE, I32BE, I64BE, Field, Int, Struct
from logwright.codec.fault import LogwrightError
from logwright.codec.fixed import Entries, Findings, FixedCodec, entries_of
from logwright.codec.table import Column

INDEX_ENTRY = Struct(
    "OffsetIndexEntry",
    Field("relative_offset", I32BE, "last offset of the batch, minus the number in the file's name"),
    Field("position", I32BE, "byte of the log where the batch starts"),
    doc="One batch in every index.interval.bytes of log has an entry.",
    source="OffsetIndex",
)


def _wrong_offsets(entries: Entries, base: int) -> Findings:
    offset, position = entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64)
    yield position < 0, "position is negative"
    yield (
        np.r_[False, (np.diff(offset) <= 0) | (np.diff(position) <= 0)][: len(entries)],
        "the offset or the position is not above that of the previous entry",
    )


@dataclass(frozen=True)
class SegmentIndexes:
    """Facts from the indexes of a segment, which are read when the first one is asked for. The base offset makes two of these equal.

    `read` returns the bytes of the offset index, or raises `LogwrightError`. `reached` returns the
    `evidence.Witness` of how far the segment reached. A pickled copy knows nothing.
    """

    base: int
    read: Callable[[], bytes] | None = field(default=None, compare=False)
    reached: Callable[[], tuple[int, str, int] | None] = field(default=lambda: None, compare=False)

    def __reduce__(self) -> tuple[type[SegmentIndexes], tuple[int]]:
        return SegmentIndexes, (self.base,)

    def at(self, position: int) -> int | None:
        """Return the last offset of the batch that starts at a byte of the log; None if the index does not have it."""
        return self._entries.get(position)

    @cached_property
    def _entries(self) -> dict[int, int]:
        try:
            data = self.read() if self.read is not None else b""
        except LogwrightError:
            return {}
        entries = entries_of(INDEX_ENTRY, data)
        offsets = entries["relative_offset"].astype(np.int64) + self.base
        return dict(zip(entries["position"].tolist(), offsets.tolist(), strict=True))


INDEX = FixedCodec(
    name="kafka.index",
    title="Kafka offset index",
    entry=INDEX_ENTRY,
    pattern=re.compile(r"(\d{20})\.index(?:\.(?:deleted|swap|cleaned))?"),
    columns=(
        Column("offset", pa.int64(), "last offset of a batch", nullable=False),
        Column(
            "position", pa.int32(), "byte of the log where that batch starts", nullable=False, elsewhere=True
        ),
    ),
    relative={"offset": "relative_offset"},
    wrong=_wrong_offsets,
    system="after an unclean stop the broker rebuilds it; after a clean one it trusts it",
)


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


def _wrong_times(entries: Entries, base: int) -> Findings:
    timestamp, offset = entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)
    yield (
        # Compared, not subtracted: far timestamps would wrap.
        np.r_[False, (timestamp[1:] <= timestamp[:-1]) | (offset[1:] < offset[:-1])][: len(entries)],
        "the timestamp is not above that of the previous entry, or the offset is below it",
    )


TIMEINDEX = FixedCodec(
    name="kafka.timeindex",
    title="Kafka time index",
    entry=TIMEINDEX_ENTRY,
    pattern=re.compile(r"(\d{20})\.timeindex(?:\.(?:deleted|swap|cleaned))?"),
    columns=(
        Column("timestamp", pa.int64(), "largest timestamp so far, in milliseconds", nullable=False),
        Column("offset", pa.int64(), "last offset of the first batch that has it", nullable=False),
    ),
    relative={"offset": "relative_offset"},
    wrong=_wrong_times,
    system="after an unclean stop the broker rebuilds it; after a clean one it trusts it",
)


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


def _wrong_transactions(entries: Entries, base: int) -> Findings:
    first, last = entries["first_offset"].astype(np.int64), entries["last_offset"].astype(np.int64)
    yield last < base, f"last_offset is below {base}, the number in the file's name"
    yield first > last, "first_offset is above last_offset"
    yield (
        np.r_[False, last[1:] <= last[:-1]][: len(entries)],
        "last_offset is not above that of the previous entry",
    )


TXNINDEX = FixedCodec(
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
    wrong=_wrong_transactions,
    system="the broker rebuilds it if an offset is below the base of the segment, and does not start on another version",
    version="version",  # a broker checks only its first byte
)  # fmt: skip
