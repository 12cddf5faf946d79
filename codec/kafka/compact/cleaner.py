"""Compact a partition as the broker's log cleaner does: one round, byte for byte.

1. load: find segments, producers and offsets as a broker does that starts on the partition (`startup`).
2. select: the segments below the first offset that must not be cleaned.
3. map: read the dirty segments, and record the latest offset of each key (`offset_map`).
4. rewrite: merge small segments, and keep the records that the rules keep (`batches`, `transactions`).

Compressed batches that change are compressed by this machine's libraries. Everything else has the broker's bytes.

Source: `LogCleanerManager.cleanableOffsets`, `LogToClean` and `Cleaner` of Kafka's storage module (4.x).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from logwright.codec import plural
from logwright.codec.engine.repair import OutputFile, RepairPlan
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.fixed import entries_of
from logwright.codec.frames.walk import Hole, walk_file
from logwright.codec.kafka.compact.batches import BatchFilter, Heads, LastRecords
from logwright.codec.kafka.compact.offset_map import OffsetMap
from logwright.codec.kafka.compact.transactions import AbortedTransactions, Transactions
from logwright.codec.kafka.derive import ACCEPTED, SegmentIndexer, txnindex_bytes
from logwright.codec.kafka.formats.indexes import TIMEINDEX_ENTRY
from logwright.codec.kafka.formats.log import arrow_input, records
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import CONTROL
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.formats.log.rows import Read
from logwright.codec.kafka.formats.log.sections import sections
from logwright.codec.kafka.formats.log.tables import MAX_DECOMPRESSED
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import CLEANER_FILE, FIRST_DIRTY, parse_directory, segment_name
from logwright.codec.kafka.options import STARTING, WRITING
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.repair import sound_segments
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.kafka.startup.loader import Loaded
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.kafka.startup.start import above_of, load
from logwright.codec.kafka.store.evidence import read_checkpoint
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.store.build import Piece
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role, modified
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window

_LARGEST = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1
_INDEX_ENTRY = 8
_USED = ("log.start.offset", "recovery.point", "index.interval.bytes", "segment.index.bytes")
OPTIONS = (
    *(option for option in STARTING if option.name in _USED),
    *(option for option in WRITING if option.name == "segment.bytes"),
    Option("now", None, "Time of the compaction in milliseconds. By default the current time", low=0),
    Option(
        "delete.retention.ms",
        86_400_000,
        "Tombstones and transaction markers are kept for this many milliseconds after the first compaction that sees them",
        low=0,
        high=_LARGEST,
    ),
    Option(
        "min.compaction.lag.ms",
        0,
        "Segments with a record younger than this many milliseconds are not compacted",
        low=0,
        high=_LARGEST,
    ),
    Option(
        "roll",
        False,
        "Whether a new active segment is begun first, so that the last records are compacted too",
        parse_bool,
    ),
    Option(
        "first.dirty.offset",
        None,
        "The records before it have been compacted. By default the offset in ../cleaner-offset-checkpoint, else the start of the log",
        low=0,
        high=_LARGEST,
    ),
    Option(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        "Memory for the latest offsets of keys: 24 bytes a key, 90 % of it used. Keys beyond that are left to the next compaction",
        low=48,
        high=_INT_MAX,
    ),
    Option(
        "producer.id.expiration.ms",
        86_400_000,
        "Producers idle for this many milliseconds expire: the empty batch that keeps their last sequence number is dropped",
        low=1,
    ),
    MAX_DECOMPRESSED,
)  # fmt: skip


def compact(listing: Listing, plan: Plan, options: Options, clean: bool | None = None) -> RepairPlan:
    """See `codec.capability.Compact`. The caller has checked that nothing is damaged."""
    if listing.name == METADATA_PARTITION:
        raise UsageError("the metadata log is never compacted: brokers replace its beginning with snapshots")
    sound_segments(plan)
    overlay, above = Overlay(listing), above_of(listing)
    config = above.config(options, above.clean(clean)[0])
    interval, notes = interval_of(listing, plan, options)
    try:
        loaded = load(overlay, overlay.name, replace(config, index_interval_bytes=interval))
    except BrokerError as error:
        raise DamageError(
            f"a broker does not open the partition: {error.message}",
            advice="Repair it with `logwright repair`, and compact the result",
        ) from error
    assert config.now is not None
    if options["roll"]:
        _roll(overlay, loaded)
    state = loaded.producers.state.reloaded(config.now, options["producer.id.expiration.ms"])
    first = options["first.dirty.offset"]
    if first is None:
        first = (read_checkpoint(listing.parent(), CLEANER_FILE) or {}).get(parse_directory(listing.name))
    done = _Round(listing, plan, overlay, loaded, options, config.now, interval, LastRecords(state.producers))
    done.notes += notes
    done.select(first)
    return done


def _roll(overlay: Overlay, loaded: Loaded) -> None:
    """Begin an empty active segment at the end of the log (`UnifiedLog.roll`)."""
    active, end = loaded.segments[max(loaded.segments)], loaded.log_end_offset
    if not active.size or end in loaded.segments:
        return
    for suffix in (".log", ".index", ".timeindex"):
        overlay.put(segment_name(end, suffix), b"")
    if segment_name(end, ".snapshot") not in overlay:
        overlay.put(segment_name(end, ".snapshot"), loaded.producers.state.snapshot_bytes())
    loaded.segments[end] = LogSegment(overlay, end, active.interval, active.max_index)


class _Round(RepairPlan):
    """One round of compaction."""

    def __init__(
        self, listing: Listing, plan: Plan, overlay: Overlay, loaded: Loaded, options: Options, now: int, interval: int,
        last_records: LastRecords,
    ) -> None:  # fmt: skip
        super().__init__(listing)
        self.leaves_gaps = True
        self.plan, self.overlay, self.loaded, self.options, self.interval = (
            plan,
            overlay,
            loaded,
            options,
            interval,
        )
        self.bases = sorted(loaded.segments)
        self.aborted = AbortedTransactions(overlay, self.bases)
        self.map = OffsetMap(options["log.cleaner.dedupe.buffer.size"])
        self.rules = BatchFilter(
            self.map, now, options["delete.retention.ms"], 0, last_records, options["max.decompressed.bytes"]
        )
        self.first_dirty = self.upper = 0
        self.end = 0
        """The offset after the last one that was cleaned: the next first dirty offset."""
        self.transactions = Transactions()

    # Select

    def select(self, checkpoint: int | None) -> None:
        """Determine the range of the round (`LogCleanerManager.cleanableOffsets`, `calculateCleanableBytes`)."""
        start, end = self.loaded.log_start_offset, self.loaded.log_end_offset
        self.first_dirty = start if checkpoint is None or not start <= checkpoint <= end else checkpoint
        unstable = self.loaded.producers.state.first_unstable
        bounds = [self.bases[-1], end if unstable is None else max(unstable, start)]
        lag = self.options["min.compaction.lag.ms"]
        if lag > 0:
            young = (
                base
                for base in self._between(self.first_dirty, self.bases[-1])
                if self._largest_timestamp(base) > self.rules.now - lag
            )
            bounds += [base for base in (next(young, None),) if base is not None]
        uncleanable = max(self.first_dirty, min(bounds))
        behind = self._between(uncleanable, self.bases[-1])
        self.upper = self.rules.upper = behind[0] if behind else self.bases[-1]
        self.end = self.first_dirty

    def _between(self, low: int, high: int) -> list[int]:
        """Return the bases of the segments with offsets in `[low, high)` (`LogSegments.values`)."""
        if low >= high:
            return []
        floor = max((base for base in self.bases if base <= low), default=low)
        return [base for base in self.bases if floor <= base < high]

    def _largest_timestamp(self, base: int) -> int:
        """Return the last timestamp of the time index; without an index, the modification time of the log."""
        data = self.overlay.read(self.loaded.segments[base].timeindex_file)
        entries = entries_of(TIMEINDEX_ENTRY, data)
        largest = int(entries["timestamp"][-1]) if len(entries) else -1
        return largest if largest >= 0 else self._modified(base)

    def _modified(self, base: int) -> int:
        """Return the modification time of a log, or the time of the round if it is unknown."""
        time = modified(self.listing, self.loaded.segments[base].log)
        return self.rules.now if time is None else time

    # Read

    def _windows(self, segment: LogSegment, position: int = 0) -> Iterator[tuple[Window, Frames]]:
        """Iterate over the batches of a segment from a position on. Raises `DamageError`."""
        planned = {file.name: file.hints for file in self.plan.files}
        hints = planned.get(segment.log, {"base_offset": segment.base_offset})
        file = PlannedFile(segment.log, segment.size, Role.PRIMARY, log.CODEC.name, hints)
        for item in walk_file(self.overlay, file, log.CODEC):
            if isinstance(item, Hole):
                if not item.tail or item.fault.severity.name == "ERROR":
                    raise DamageError(
                        item.fault.detail, path=segment.log, offset=item.fault.offset,
                        advice="Repair the partition with `logwright repair`, and compact the result",
                    )  # fmt: skip
                continue
            frames = item.frames
            if position:
                frames = frames.pick(frames.start + item.window.offset >= position)
            if len(frames):
                yield item.window, frames

    # Map

    def _build_map(self) -> None:
        """Record the latest offset of each key in the dirty segments (`Cleaner.buildOffsetMap`)."""
        bases = self._between(self.first_dirty, self.upper)
        transactions = Transactions()
        transactions.expect(
            self.aborted.overlapping(self.first_dirty, self.loaded.log_start_offset, self.upper)
        )
        for base, following in zip(bases, [*bases[1:], self.upper], strict=True):
            if self._map_segment(self.loaded.segments[base], transactions):
                self.notes.append(
                    f"The map of keys is full at offset {self.map.latest_offset} with {len(self.map):,} keys: later records are"
                    " not compacted yet. Raise log.cleaner.dedupe.buffer.size, or compact the result too."
                )
                return
            self.map.advance(following - 1)

    def _map_segment(self, segment: LogSegment, transactions: Transactions) -> bool:
        """Add a segment to the map. Return whether the map is full."""
        first = self.first_dirty
        for window, frames in self._windows(segment, segment.index.lookup(first)):
            head = frames.header
            discardable = transactions.read(head, markers(window, frames))
            data = (head["attributes"].astype(np.int64) & CONTROL == 0) & ~discardable
            chosen = frames.pick(data)
            for part in sections(window, chosen, self.rules.limit) if len(chosen) else ():
                read = Read(part, chosen.header[part.frames], records.WANT_OFFSET | records.WANT_KEY)
                offsets = read.offsets[: read.rows]
                row = self.map.put(arrow_input.binary(read.key(), "key"), offsets, first)
                if row < read.rows:
                    # The batches before the one of the record that does not fit were read completely.
                    before = head["last_offset"][head["last_offset"] < offsets[row]]
                    reached = int(before[-1]) if len(before) else -1
                    if reached >= max(first, self.map.latest_offset):
                        self.map.advance(reached)
                    return True
            if int(head["last_offset"][-1]) >= first:
                self.map.advance(int(head["last_offset"][-1]))
        return False

    # Rewrite

    def outputs(self) -> Iterator[OutputFile | Piece]:
        cleanable = self._between(self.first_dirty, self.upper)
        replaced: set[str] = set()
        if self.first_dirty < self.upper and cleanable:
            self._build_map()
            self.end = self.map.latest_offset + 1
            groups = self._groups(self._between(0, self.end))
            # Messages of magic 0 and 1 have no delete horizon: the time of the last segment that was cleaned before counts.
            clean = self._between(0, self.first_dirty)
            horizon = self._modified(clean[-1]) - self.rules.retention if clean else 0
            for group in groups:
                replaced |= self._files_of(group)
                yield from self._rewrite(group, horizon)
        else:
            self.notes.append(
                f"Nothing can be compacted: the first dirty offset is {self.first_dirty}, and segments from {self.upper} on are active,"
                " too young or after an open transaction."
            )
            groups = []
        for entry in self.overlay.entries():
            if entry.name not in replaced:
                like = entry.name if entry.name in self.sizes else None
                yield OutputFile(entry.name, self.overlay.pieces(entry.name), like)
        self._count_rest({base for group in groups for base in group})
        self._report(groups)

    def _groups(self, bases: Sequence[int]) -> list[list[int]]:
        """Group the segments that are merged into one (`Cleaner.groupSegmentsBySize`)."""
        groups: list[list[int]] = []
        limits = (self.options["segment.bytes"], *[self.options["segment.index.bytes"]] * 2)
        totals: tuple[int, ...] = (0, 0, 0)
        for i, base in enumerate(bases):
            sizes = self._sizes(base)
            both = tuple(total + size for total, size in zip(totals, sizes, strict=True))
            last = (bases[i + 1] if i + 1 < len(bases) else self.upper) - 1
            fits = all(total <= limit for total, limit in zip(both, limits, strict=True))
            if groups and fits and (sizes[0] == 0 or last - groups[-1][0] <= _INT_MAX):
                groups[-1].append(base)
                totals = both
            else:
                groups.append([base])
                totals = sizes
        return groups

    def _sizes(self, base: int) -> tuple[int, int, int]:
        """Return the sizes of a log, its index and its time index."""
        segment = self.loaded.segments[base]
        index, times = (
            self.overlay.size(name) // width * width if name in self.overlay else 0
            for name, width in (
                (segment.index_file, _INDEX_ENTRY),
                (segment.timeindex_file, TIMEINDEX_ENTRY.head_size),
            )
        )
        return segment.size, index, times

    def _files_of(self, group: Sequence[int]) -> set[str]:
        """Return the files that a new segment replaces. The producer snapshot at its base offset stays."""
        names = {
            segment_name(base, kind)
            for base in group
            for kind in (".log", ".index", ".timeindex", ".txnindex")
        }
        return names | {segment_name(base, ".snapshot") for base in group[1:]}

    def _rewrite(self, group: Sequence[int], horizon: int) -> Iterator[Piece]:
        """Write the segment that replaces a group (`Cleaner.cleanSegments`)."""
        name = segment_name(group[0], ".log")
        indexer = SegmentIndexer(group[0], self.interval)
        self.transactions.kept = []
        size = 0
        for i, base in enumerate(group):
            segment = self.loaded.segments[base]
            upper = group[i + 1] if i + 1 < len(group) else segment.next_offset()
            self.transactions.expect(self.aborted.overlapping(base, self.loaded.log_start_offset, upper))
            self.rules.retain_old_deletes = self._modified(base) > horizon
            for window, frames in self._windows(segment):
                discardable = self.transactions.read(frames.header, markers(window, frames))
                data, starts = self.rules.filter(window, frames, discardable)
                if not len(starts):
                    continue
                heads = heads_at(data, starts)
                if indexer.add(heads, starts + size) < len(heads) and indexer.refusal != ACCEPTED:
                    raise UsageError(
                        f"the segment at offset {group[0]} cannot hold the batches up to offset {int(heads['last_offset'][-1])}",
                        advice="Split it first: start a broker on the partition, or repair it",
                    )
                size += len(data)
                self._take(heads)
                yield Piece(name, data)
        yield Piece(name, b"", done=True)
        yield Piece(segment_name(group[0], ".index"), indexer.index_bytes(), done=True)
        yield Piece(segment_name(group[0], ".timeindex"), indexer.timeindex_bytes(), done=True)
        if self.transactions.kept:
            yield Piece(
                segment_name(group[0], ".txnindex"), txnindex_bytes(self.transactions.kept), done=True
            )

    # Report

    def _take(self, heads: Heads) -> None:
        """Count the rows of the result, and update its range of offsets."""
        data = heads["attributes"] & CONTROL == 0
        self.rows += int(np.maximum(heads["records_count"].astype(np.int64), 0)[data].sum())
        if len(heads):
            first = int(heads["base_offset"][0])
            self.ids = {
                "first_offset": min(first, self.ids.get("first_offset", first)),
                "last_offset": max(int(heads["last_offset"][-1]), self.ids.get("last_offset", -1)),
            }

    def _count_rest(self, cleaned: set[int]) -> None:
        for base in self.bases:
            if base not in cleaned:
                for _, frames in self._windows(self.loaded.segments[base]):
                    self._take(frames.header)

    def _report(self, groups: Sequence[Sequence[int]]) -> None:
        counts = self.rules.counts
        if groups:
            before = sum(map(len, groups))
            self.notes.append(
                f"compacted up to offset {self.end}: {plural.count(counts.kept, 'record')} of {counts.records:,} kept,"
                f" {plural.count(before, 'segment')} now {len(groups):,}, batches without records: {counts.emptied:,}"
            )
        if counts.markers:
            self.notes.append(f"removed: {plural.count(counts.markers, 'transaction marker')}")
        if counts.without_key:
            self.notes.append(
                f"{plural.count(counts.without_key, 'record')} without a key dropped, as by a broker: a compacted topic has keys"
            )
        where = parse_directory(self.listing.name)
        if groups:
            self.ids = {**self.ids, FIRST_DIRTY: self.end}
        if where is not None and groups and not self.recorded:
            self.before_you_start.append(
                f"Set the line of the partition in {CLEANER_FILE} to `{where.topic} {where.partition} {self.end}`: broker and verify then know"
                " that the log is compacted."
            )
