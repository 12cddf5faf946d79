"""The tables of `kafka.log`, and the context in which a segment is decoded.

All other modules of the codec import this one, so it must not import them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.base import LossyColumn
from logwright.codec.kafka.formats.indexes import SegmentIndexes
from logwright.codec.kafka.formats.internal.definitions import TOPICS
from logwright.codec.kafka.formats.internal.view import table_of
from logwright.codec.kafka.formats.log.layout import CONTROL, MAX_OFFSET_DELTA, TRANSACTIONAL
from logwright.codec.option import Option, Options
from logwright.codec.table import RAW, TIMESTAMP, Column, Table, ending, extent

if TYPE_CHECKING:
    from logwright.codec.frames.prefixes import Prefixes
    from logwright.codec.frames.walk import ListedFile

NAME = "kafka.log"
NOTHING_SERVED = int(np.iinfo(np.int64).min)
"""Below every offset."""
HEADER_RAW = pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
"""A record header whose key need not be UTF-8."""

ROWS = Table(
    "rows",
    (
        Column("key", pa.binary(), "the record's key; null and empty differ"),
        Column("value", pa.binary(), "the record's value; null is a tombstone in a compacted topic"),
        Column("topic", pa.string(), "from the name of the directory"),
        Column("partition", pa.int32(), "from the name of the directory"),
        Column("offset", pa.int64(), "the record's offset", nullable=False, prunes=True),
        Column("timestamp", TIMESTAMP, "as a consumer sees it; null where it is -1", prunes=True),
        Column(
            "timestampType", pa.int32(), "0 the producer's time, 1 the broker's on append, -1 none (magic 0)"
        ),
        Column(
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
            "in order, with duplicates; empty without headers. Keys that are not UTF-8 are converted as by a Java consumer",
        ),
        Column(
            "position",
            pa.int64(),
            "byte of the file where the record's batch starts: its row in frames",
            detail=True,
        ),
        Column("segment", pa.int64(), "base offset of the file, from its name", detail=True),
        Column("timestamp_ms", pa.int64(), "the timestamp as a raw number of milliseconds", detail=True),
        Column(
            "create_timestamp_ms",
            pa.int64(),
            "the producer's time, also where the broker's counts",
            detail=True,
        ),
        Column("attributes", pa.int8(), "the record's own attributes: unused, 0", detail=True),
        Column(
            "headers_raw",
            pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())])),
            "the headers where a key is not UTF-8, else null",
            detail=True,
        ),
        Column("leader_epoch", pa.int32(), "partition_leader_epoch of the batch, -1 for none", detail=True),
        Column("producer_id", pa.int64(), "of the batch, -1 for none", detail=True),
        Column("producer_epoch", pa.int16(), "of the batch, -1 for none", detail=True),
        Column("sequence", pa.int32(), "the record's sequence number, -1 for none", detail=True),
        Column("is_transactional", pa.bool_(), "of the batch", detail=True),
        Column("is_control", pa.bool_(), "of the batch: a marker of the system, not data", detail=True),
        Column("control_type", pa.string(), "ABORT, COMMIT, LEADER_CHANGE, ...; null for data", detail=True),
        Column(
            "magic",
            pa.int8(),
            "of the batch. Rows are written with it unless an option sets another",
            detail=True,
        ),
        Column(
            "compression",
            pa.string(),
            "of the batch. Rows are written with it unless an option sets another",
            detail=True,
        ),
    ),
    "One row per record, in the order of the file.",
    ("offset",),
)

DECODED = {topic.view: table_of(topic, ROWS) for topic in TOPICS}
"""The tables of the decoded views, by view."""

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the batch starts", nullable=False),
        Column("size", pa.int32(), "bytes of the whole batch"),
        Column("base_offset", pa.int64(), "offset of the first record when it was written", prunes=True),
        Column("last_offset", pa.int64(), "offset of the last record when it was written", prunes=True),
        Column("records_count", pa.int32(), "records present, -1 if a wrapper cannot be read"),
        Column("compression", pa.string(), "none, gzip, snappy, lz4 or zstd"),
        Column("timestamp_type", pa.int32(), "0 CREATE_TIME, 1 LOG_APPEND_TIME, -1 none (magic 0)"),
        Column("base_timestamp", pa.int64(), "milliseconds; the delete horizon where there is one"),
        Column("max_timestamp", pa.int64(), "milliseconds; of the append, under LOG_APPEND_TIME"),
        Column("is_transactional", pa.bool_(), "written in a transaction"),
        Column("is_control", pa.bool_(), "holds markers of the system, not data"),
        Column(
            "delete_horizon_ms", pa.int64(), "when tombstones and markers may be removed; null if not set"
        ),
        Column("producer_id", pa.int64(), "-1 for none"),
        Column("producer_epoch", pa.int16(), "-1 for none"),
        Column("base_sequence", pa.int32(), "-1 for none"),
        Column("partition_leader_epoch", pa.int32(), "-1 for none"),
        Column("crc", pa.int64(), "the checksum as it is stored"),
        Column("magic", pa.int8(), "2 for a batch, 0 or 1 for a message of Kafka before 0.11"),
        Column("attributes", pa.int16(), "all bits", detail=True),
        Column("last_offset_delta", pa.int32(), "last_offset minus base_offset", detail=True),
        Column("batch_length", pa.int32(), "size minus 12", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the records as they are stored, where they are compressed or not what would be written from the rows",
            detail=True,
        ),
        RAW,
    ),
    "One row per batch, or per message of magic 0 or 1 that is not in a wrapper.",
    ("base_offset",),
)

FILE = Table(
    "file",
    (Column("base_offset", pa.int64(), "from the file's name"), *extent("batches"), *ending("batch")),
    "One row.",
)

MAX_DECOMPRESSED = Option(
    "max.decompressed.bytes",
    256 << 20,
    "Limit of the decompressed records of a batch in bytes. A larger batch counts as damaged",
    low=1,
    high=1 << 30,
)


@dataclass(frozen=True, slots=True)
class Damaged:
    """The batch at which a scan stopped: the byte of the file where it starts, the end by its header, and the offset after it. The
    last two are -1 if the header is not trusted. `complete`: its checksum is right, and its offset is not."""

    start: int
    end: int
    after: int
    complete: bool = False


@dataclass(frozen=True, slots=True)
class HeaderClaim:
    """The contents of damaged batches by their headers: rows, and the timestamps. `torn`: the last of them is incomplete."""

    rows: int
    first_timestamp: int
    last_timestamp: int
    torn: bool


class Aborted:
    """Look up batches in aborted transactions, each `(producer_id, first_offset, last_offset)`."""

    def __init__(self, transactions: Iterable[tuple[int, int, int]] = ()) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first, last in transactions:
            by_producer.setdefault(int(producer_id), []).append((int(first), int(last)))
        self._ranges = {
            producer: np.array(sorted(ranges), np.int64) for producer, ranges in by_producer.items()
        }

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def mask(self, head: npt.NDArray[Any]) -> Bools:
        """Return which batches have data of an aborted transaction."""
        out = np.zeros(len(head), np.bool_)
        flags = head["attributes"].astype(np.int64)
        data = (flags & TRANSACTIONAL != 0) & (flags & CONTROL == 0)
        producers = head["producer_id"].astype(np.int64)
        base = head["base_offset"].astype(np.int64)
        for producer in np.unique(producers[data]):
            ranges = self._ranges.get(int(producer))
            if ranges is not None:
                at = np.searchsorted(ranges[:, 0], base, "right") - 1
                inside = (at >= 0) & (base <= ranges[np.maximum(at, 0), 1])
                out |= data & (producers == producer) & inside
        return out


class OtherLogs:
    """The other logs of the partition of a log, by the base offsets in their names, which make two of these equal. A pickled copy knows
    none."""

    def __init__(self, base: int, logs: Mapping[int, ListedFile]) -> None:
        self._base, self._logs = base, logs

    def __reduce__(self) -> tuple[type[OtherLogs], tuple[int, Mapping[int, ListedFile]]]:
        return OtherLogs, (self._base, {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OtherLogs):
            return NotImplemented
        return self._base == other._base and self._logs.keys() == other._logs.keys()

    def __hash__(self) -> int:
        return hash(self._base)

    def with_offset(self, offset: int) -> tuple[ListedFile, int, int | None] | None:
        """Return the log that has an offset, its base offset and that of the next one, if it is another log."""
        base = max((each for each in self._logs if each <= offset), default=self._base)
        after = min((each for each in self._logs if each > base), default=None)
        return None if base == self._base else (self._logs[base], base, after)


@dataclass
class LogContext:
    """The context in which a segment is decoded. Each stream has its own (see `Codec.context`)."""

    options: Options
    topic: str | None = None
    partition: int | None = None
    base_offset: int | None = None
    """From the name of the file."""
    next_base: int | None = None
    """The base offset of the next segment: all offsets are below."""
    follows: bool = False
    """It is not the first segment: another one has the offsets below `base_offset`."""
    start_offset: int | None = None
    end_offset: int | None = None
    """Records are served from `start_offset` on, below `end_offset`."""
    control: bool = True
    """Whether records of control batches are served."""
    aborted: Aborted = field(default_factory=Aborted)
    """Transactions whose records are not served."""
    skipped: tuple[int, ...] = ()
    """Positions of batches whose records are not served, also with `stored`, where another copy of a batch may be."""
    snapshot: bool = False
    """It is a snapshot of the cluster's metadata, which a node reads to its end when it starts, and never truncates."""
    last: bool = False
    """It is the active segment."""
    clean: bool | None = None
    known_end: int | None = None
    """The log end offset that another file proves."""
    known_by: str = ""
    """The name of that file."""
    confirmed_end: int = 0
    """The highest log end offset that the other files prove."""
    snapshots: tuple[int, ...] = ()
    """Offsets of producer snapshots between the base offset and `next_base`. If the file ends before one of them, a segment is
    missing."""
    indexes: SegmentIndexes | None = None
    others: OtherLogs | None = None
    """The other logs of the partition."""
    live: bool = False
    partial: bool = False
    """Serve the records of a batch that come before a bad one, as a consumer does."""
    stored: bool = False
    """Accept batches in the order of the file, whatever their offsets, as a broker and its consumers do."""

    # State between windows.
    holes: bool = False
    """Offsets are missing within or between batches, as after compaction. Only known with `snapshots`."""
    begins: int | None = None
    """Where the first scan began: at 0, or at a good batch."""
    last_offset: int | None = None
    """The highest offset of the batches before `last_end`, a position in the file."""
    last_end: int = 0
    last_batch: tuple[int, int, int] | None = None
    """The position, base offset and checksum of the last batch in order, or of a duplicate of a batch after it."""
    damaged: Damaged | None = None
    prefixes: Prefixes | None = None
    next_batch: tuple[int, int, int] | None = None
    """The positions of the last damage and of the next batch after it (-1 without one), and the size of the file that was searched."""
    misplaced_end: int = 0
    """The position up to which all batches are misplaced: those from there on continue the ones before these."""
    header_claims: dict[tuple[int, int], HeaderClaim] = field(default_factory=dict)
    """The contents of damaged batches by their headers, by their first offset and the one after the last."""
    served: int = NOTHING_SERVED
    """The highest offset of the records before `served_end`, a position in the file."""
    served_end: int = 0

    def place(self) -> dict[str, Any]:
        """Return the topic and the partition, for `Fault.lost`; nothing if they are unknown."""
        return {} if self.topic is None else {"topic": self.topic, "partition": self.partition}

    def named_range(self) -> tuple[int | None, int | None]:
        """Return the base offsets of this file and the next one by their names; None for one that the batches so far contradict."""
        base, after, last = self.base_offset, self.next_base, self.last_offset
        if last is None:
            return base, after
        if base is not None and not base <= last <= base + MAX_OFFSET_DELTA:
            base = None
        return base, None if after is not None and last >= after else after


LOSSY_COLUMNS = (
    LossyColumn(
        "is_transactional",
        (False,),
        "belong to transactions, and become plain records",
        "Choose: view read_committed drops aborted records, view read_uncommitted makes all of them plain records",
    ),
    LossyColumn("producer_id", (-1,), "have a producer id, epoch and sequence number"),
    LossyColumn("leader_epoch", (-1, 0), "have a leader epoch"),
)
"""Columns that a producer does not set (`codec.base.Codec.lossy`)."""
