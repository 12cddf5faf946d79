"""Build a partition: rows into batches, batches into segments, and the files that a broker derives from them.

Source: `UnifiedLog.append`, `LogSegment.shouldRoll` and `RollParams` of Kafka's storage module.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.kafka.derive import EpochCache, SegmentIndexer
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import COMPRESSION, MAGIC
from logwright.codec.kafka.formats.log.markers import NO_MARKERS
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.formats.log.write import BatchEncoder, Encoded
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, parse_directory, segment_name
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.store.build import Piece, Summary

_INT_MAX = (1 << 31) - 1
LARGEST_OFFSET = (1 << 63) - 2
"""The largest offset. The log end offset, after which files are named, is one above, and must fit 64 bits."""

_ASSIGN = "Pass offsets=assign to number the rows in their order"
RETENTION_MS = 604_800_000
"""The default of retention.ms: a broker deletes segments whose largest timestamp is older."""


@dataclass
class Resumed:
    """The state from which an append to an existing partition continues."""

    next_offset: int
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: EpochCache = field(default_factory=EpochCache)
    stored_epochs: Sequence[tuple[int, int]] = ()
    """The epochs in leader-epoch-checkpoint."""
    rebuilt: Mapping[str, bytes] = field(default_factory=dict)
    """New indexes of the last segment, if its own do not fit the log."""
    topic_id: str | None = None
    has_segments: bool = False
    ends_empty: bool = False
    """The last segment is empty and starts at `next_offset`: the next one replaces it."""
    clean: bool | None = None


@dataclass
class Segment:
    """The segment that is being written."""

    base: int
    indexer: SegmentIndexer
    size: int = 0
    last_offset: int = -1
    rows: int = 0
    first_timestamp: int = -1


class PartitionBuilder:
    """See `codec.store.build.Builder`. With `resumed` it appends to a partition.

    `staged`: assigned offsets count from 0, and `assemble` makes the files that a partition has once. `name` is the name of the
    directory.
    """

    def __init__(
        self, options: Any, resumed: Resumed | None = None, *, staged: bool = False, name: str = ""
    ) -> None:
        self.options, self.resumed, self.staged, self.name = options, resumed, staged, name
        self.settings = _bounded(BatchSettings.of(options), options)
        self.epochs = EpochCache()
        self.producers = ProducerState()
        check_options(options, resumed)
        first = options["first.offset"] or 0
        if resumed is not None:
            first = resumed.next_offset
            self.epochs.entries = list(resumed.epochs.entries)
            self.producers = resumed.producers
            self.settings = replace(self.settings, leader_epoch=epoch_of(options, resumed))
        self.encoder = BatchEncoder(self.settings, 0 if staged else first)
        self.kept: bool | None = None
        self.segments: list[Segment] = []
        self.rows = 0
        self.places: set[tuple[Any, Any]] = set()
        self.fixed_offsets = False
        """Whether offsets are in compressed data: in a wrapper of magic 0."""
        self.first_batch: int | None = None
        """The offset of the first batch of magic 2, which has the leader epoch."""
        self._low = self.encoder.next_offset
        self._limits = (
            options["segment.index.bytes"] // INDEX_ENTRY.min_size,
            # Closing a segment may add a time entry.
            options["segment.index.bytes"] // TIMEINDEX_ENTRY.min_size - 1,
        )

    # Rows

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        self._check_partition(rows)
        rows = self._offsets(rows)
        yield from self._append(self.encoder.add(rows))
        self.rows += rows.num_rows

    def finish(self) -> Iterator[Piece]:
        yield from self._append(self.encoder.flush())
        if self.resumed is not None and not self.staged and self.rows:
            for name, data in self.resumed.rebuilt.items():
                yield Piece(name, data, done=True)
        if not self.segments and not self.staged and (self.resumed is None or not self.resumed.has_segments):
            self._begin(self._low)
            yield Piece(segment_name(self._low, ".log"), b"")
        if self.segments:
            yield from self._close()
            end = self.segments[-1].last_offset + 1
            if not self.staged and end > self.segments[0].base:
                yield Piece(segment_name(end, ".snapshot"), self.producers.snapshot_bytes(), done=True)
        if not self.staged:
            yield from single_files(self.epochs, self.resumed, self.options, bool(self.segments))

    def summary(self) -> Summary:
        facts = {
            "segments": [(segment.base, segment.last_offset, segment.rows) for segment in self.segments],
            "kept": bool(self.kept),
            "places": sorted(self.places, key=str),
            "oldest": self._oldest(),
            "fixed_offsets": self.fixed_offsets,
            "first_batch": self.first_batch,
        }
        ids = {}
        if self.rows:
            ids = {"first_offset": self._first, "last_offset": self.segments[-1].last_offset}
        if self.staged:
            return Summary(self.rows, ids, facts=facts)
        advice = before_you_start(self.resumed, self.options, self._oldest(), self.settings.leader_epoch)
        warnings = (*elsewhere(self.places, self.name), *open_transactions(self.resumed))
        return Summary(self.rows, ids, warnings, advice, facts)

    def _oldest(self) -> int | None:
        """Return the smallest of the largest timestamps of the segments: retention deletes that one first. None without times."""
        times = [segment.indexer.max_timestamp for segment in self.segments]
        return min((segment for segment in times if segment >= 0), default=None)

    def _check_partition(self, rows: pa.RecordBatch) -> None:
        """Check that all rows are of one partition."""
        for name in ("topic", "partition"):
            if name in rows.schema.names:
                values = pc.unique(rows.column(name)).drop_null().to_pylist()
                self.places |= {(name, value) for value in values}
        check_places(self.places)

    def _offsets(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        stored = "offset" in rows.schema.names and not pa.types.is_null(rows.schema.field("offset").type)
        option = self.options["offsets"]
        if option == "keep" and not stored:
            raise UsageError("offsets=keep, but there is no column 'offset'")
        kept = stored and option != "assign"
        if kept and self.options["first.offset"] is not None:
            raise UsageError(
                "first.offset is only for assigned offsets, but the rows have a column 'offset'",
                advice="Pass offsets=assign",
            )
        if self.kept is not None and kept != self.kept:
            raise UsageError("some rows have offsets, and others have none")
        self.kept = kept
        if not kept:
            return rows.drop_columns(["offset"]) if stored else rows
        self._increasing(rows.column("offset"))
        return rows

    def _increasing(self, column: Any) -> None:
        """Check that the kept offsets are valid in a log: they ascend, and are in range."""
        if not pa.types.is_integer(column.type):
            raise UsageError(f"column 'offset' has type {column.type}, expected int64")
        if column.null_count:
            row = self.rows + pc.index(pc.is_null(column), True).as_py()
            raise UsageError(f"row {row}: the offset is null", advice=_ASSIGN)
        if not len(column):
            return
        try:
            offsets = np.asarray(column.cast(pa.int64()))
        except pa.ArrowInvalid:
            raise UsageError(
                f"an offset is above {LARGEST_OFFSET}, the largest possible", advice=_ASSIGN
            ) from None
        if int(offsets.max()) > LARGEST_OFFSET:
            raise UsageError(
                f"offset {int(offsets.max())} is above {LARGEST_OFFSET}, the largest possible", advice=_ASSIGN
            )
        before = np.concatenate(([self.encoder.next_offset - 1], offsets[:-1]))
        if (offsets > before).all():
            return
        at = int(np.argmax(offsets <= before))
        place = f"row {self.rows + at}: offset {int(offsets[at])}"
        if self.rows + at:
            raise UsageError(f"{place} is not above {int(before[at])}, the offset before", advice=_ASSIGN)
        if self.resumed is not None:
            raise UsageError(
                f"{place} is below the end of the partition, {self.resumed.next_offset}", advice=_ASSIGN
            )
        raise UsageError(f"{place} is negative", advice=_ASSIGN)

    # Batches

    def _append(self, batches: Encoded) -> Iterator[Piece]:
        count = len(batches.start)
        if not count:
            return
        head = batches.header
        ends = np.append(batches.start[1:], len(batches.data))
        sizes = ends - batches.start
        self._check_sizes(head, sizes)
        last = head["last_offset"].astype(np.int64)
        times = head["max_timestamp"].astype(np.int64)
        if not self.segments:
            self._first = int(head["base_offset"][0])
            yield from self._roll(int(head["base_offset"][0]))
        self.epochs.add(head)
        self.fixed_offsets |= bool(((head["magic"] == 0) & (head["attributes"] & COMPRESSION != 0)).any())
        has_epoch = head["magic"] >= MAGIC
        if self.first_batch is None and has_epoch.any():
            self.first_batch = int(head["base_offset"][int(np.argmax(has_epoch))])
        at = 0
        while at < count:
            segment = self.segments[-1]
            fit = self._fit(segment, batches.start, ends, last, times, at)
            if fit == at:
                yield from self._close()
                yield from self._roll(int(head["base_offset"][at]))
                continue
            if segment.size == 0:
                segment.first_timestamp = int(times[at])
            low = int(batches.start[at])
            segment.indexer.add(head[at:fit], batches.start[at:fit] - low + segment.size)
            self.producers.add(head[at:fit], NO_MARKERS)
            yield Piece(segment_name(segment.base, ".log"), batches.data[low : int(ends[fit - 1])])
            segment.size += int(ends[fit - 1]) - low
            segment.last_offset = int(last[fit - 1])
            segment.rows += int(head["records_count"][at:fit].astype(np.int64).sum())
            at = fit

    def _fit(self, segment: Segment, start: Any, ends: Any, last: Any, times: Any, at: int) -> int:
        """Return the end of the batches that fit the segment; `at` if it must be rolled first (`LogSegment.shouldRoll`)."""
        entries, time_entries = self._limits
        room = min(entries - segment.indexer.entries, time_entries - segment.indexer.time_entries)
        if segment.size and room <= 0:
            return at
        # A batch adds at most one entry, so the next `room` batches fit the indexes.
        stop = min(len(start), at + max(1, room))
        over = segment.size + ends[at:stop] - start[at] > self.options["segment.bytes"]
        over |= last[at:stop] - segment.base > _INT_MAX
        first = segment.first_timestamp if segment.size else int(times[at])
        if first >= 0:
            over |= times[at:stop] - first > self.options["segment.ms"]
        if not segment.size:
            over[0] = False
        return at + int(np.argmax(over)) if over.any() else stop

    def _check_sizes(self, head: Any, sizes: Any) -> None:
        largest, segment = self.options["max.message.bytes"], self.options["segment.bytes"]
        limit, name = (largest, "max.message.bytes") if largest <= segment else (segment, "segment.bytes")
        if int(sizes.max()) > limit:
            i = int(np.argmax(sizes > limit))
            raise UsageError(
                f"the batch at offset {int(head['base_offset'][i])} has {int(sizes[i])} bytes, the limit {name} is {limit}",
                advice=f"Raise {name} here and on the topic, or lower batch.size",
            )

    # Segments

    def _begin(self, base: int) -> None:
        self.segments.append(
            Segment(base, SegmentIndexer(base, self.options["index.interval.bytes"]), last_offset=base - 1)
        )

    def _roll(self, base: int) -> Iterator[Piece]:
        """Begin a new segment, with a snapshot of the producers as a broker takes it."""
        first = not self.segments and (self.resumed is None or not self.resumed.has_segments)
        # The segment replaces an empty last one, which has its snapshot.
        has_snapshot = (
            self.resumed is not None and self.resumed.ends_empty and base == self.resumed.next_offset
        )
        if not first and not self.staged and not has_snapshot:
            yield Piece(segment_name(base, ".snapshot"), self.producers.snapshot_bytes(), done=True)
        self._begin(base)

    def _close(self) -> Iterator[Piece]:
        segment = self.segments[-1]
        yield Piece(segment_name(segment.base, ".log"), b"", done=True)
        yield Piece(segment_name(segment.base, ".index"), segment.indexer.index_bytes(), done=True)
        yield Piece(segment_name(segment.base, ".timeindex"), segment.indexer.timeindex_bytes(), done=True)


def check_places(places: set[tuple[Any, Any]]) -> None:
    """Raise `UsageError` if rows are of more than one topic or partition."""
    for name in ("topic", "partition"):
        values = sorted(str(value) for kind, value in places if kind == name)
        if len(values) > 1:
            raise UsageError(
                f"the rows are of {len(values)} {name}s ({', '.join(values[:3])}), but a directory has one partition",
                advice="Write each partition to its own directory, or drop the columns topic and partition",
            )


def elsewhere(places: set[tuple[Any, Any]], name: str) -> tuple[str, ...]:
    """Return a warning if the rows are not of the partition whose directory has this name."""
    target = parse_directory(name)
    stored = dict(places)
    if target is None or not stored:
        return ()
    topic, partition = stored.get("topic", target.topic), stored.get("partition", target.partition)
    if (topic, partition) == target:
        return ()
    return (f"the columns topic and partition say {topic}-{partition}, but the rows were written to {name}",)


def check_options(options: Any, resumed: Resumed | None) -> None:
    """Raise `UsageError` for options that are invalid, or do not fit the partition that is appended to."""
    topic_id = options["topic.id"]
    if topic_id is not None and not metadata.is_topic_id(topic_id):
        raise UsageError(f"topic.id: {topic_id!r} is not a UUID in URL-safe base64 (22 characters)")
    if resumed is None:
        return
    if options["first.offset"] is not None:
        raise UsageError(
            "first.offset is only for a new partition", advice=f"This one continues at {resumed.next_offset}"
        )
    if resumed.topic_id is not None and topic_id not in (None, resumed.topic_id):
        raise UsageError(f"topic.id is {topic_id}, but the partition has {resumed.topic_id}")


def _bounded(settings: BatchSettings, options: Any) -> BatchSettings:
    """Limit the batch size to what a broker accepts. Only a single row may be larger."""
    limit = min(options["max.message.bytes"], options["segment.bytes"])
    return replace(settings, batch_size=min(settings.batch_size, limit))


def single_files(epochs: EpochCache, resumed: Resumed | None, options: Any, wrote: bool) -> Iterator[Piece]:
    """Return the files that a partition has once. An append writes only those that change.

    An append invents no topic id: the partition may be from before Kafka 2.8.
    """
    if resumed is None or (wrote and epochs.entries != list(resumed.stored_epochs)):
        yield Piece(EPOCH_FILE, epochs.to_bytes(), done=True)
    known = None if resumed is None else resumed.topic_id
    topic_id = options["topic.id"]
    if known is None and (resumed is None or topic_id is not None):
        yield Piece(METADATA_FILE, metadata.pack(topic_id or new_topic_id()), done=True)


def new_topic_id() -> str:
    """Return a random UUID (version 4) as Kafka makes them: it never starts with `-`."""
    while True:
        raw = bytearray(secrets.token_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def epoch_of(options: Any, resumed: Resumed) -> int:
    """Return the leader epoch of an append: the latest one, unless a later one is given."""
    latest = resumed.epochs.entries[-1][0] if resumed.epochs.entries else 0
    epoch: int = options["partition.leader.epoch"] if options.given("partition.leader.epoch") else latest
    if epoch < latest:
        raise UsageError(f"partition.leader.epoch {epoch} is below the latest of the partition, {latest}")
    return epoch


def open_transactions(resumed: Resumed | None) -> tuple[str, ...]:
    """Return a warning about transactions that are open at the end of the partition that is appended to."""
    opened = {} if resumed is None else resumed.producers.open_transactions
    if not opened:
        return ()
    first = min(opened.values())
    return (
        f"open transactions: {len(opened)}, from offset {first} on: read_committed consumers stop there, and get none of"
        " these rows until the transactions are ended (kafka-transactions abort)",
    )


def before_you_start(
    resumed: Resumed | None, options: Any, oldest: int | None, epoch: int
) -> tuple[str, ...]:
    """Return advice for the start of a broker on the partition."""
    advice = []
    if resumed is None:
        if options["topic.id"] is None:
            advice.append(
                "The topic must exist, and partition.metadata must have its topic id: replace the generated file with the broker's own."
                " A KRaft broker treats a partition with another id as stray."
            )
        else:
            advice.append(f"The topic must exist with the topic id {options['topic.id']}.")
        advice.append(
            "Stop the broker, replace its directory of the partition with this one, and delete the partition's lines in"
            " recovery-point-offset-checkpoint, replication-offset-checkpoint and"
            " log-start-offset-checkpoint (and correct their counts)."
        )
        advice.append("Delete .kafka_cleanshutdown, so that the broker checks everything when it starts.")
    elif resumed.clean:
        advice.append(
            "The other replicas of the partition do not have these records. If another broker becomes leader, they are truncated."
        )
    if resumed is not None and resumed.topic_id is None and options["topic.id"] is None:
        advice.append(
            "There is no partition.metadata, so a KRaft broker treats the partition as stray. Pass topic.id to write it."
        )
    if oldest is not None and time.time_ns() // 1_000_000 - oldest > RETENTION_MS:
        advice.append(
            "Set retention.ms=-1 and retention.bytes=-1 on the topic. Otherwise the broker deletes records of this age within minutes of its"
            " start."
        )
    if epoch > 0:
        advice.append(
            f"The leader epoch of the partition must be {epoch} or higher in the cluster's metadata."
        )
    return tuple(advice)
