"""Load the log of a partition, step by step as the broker does.

Source: `LogLoader`, `LocalLog.splitOverflowedSegment`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.kafka.derive import EpochCache, SegmentIndexer
from logwright.codec.kafka.formats.log.layout import MAGIC
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import number_of, offset_of, segment_name
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.errors import (
    BrokerError,
    CorruptIndex,
    CorruptRecord,
    InvalidOffset,
    OffsetOverflow,
)
from logwright.codec.kafka.startup.producers import ProducerStateManager, check, not_started
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.store.overlay import Overlay

_INDEXES = (".index", ".timeindex", ".txnindex")


@dataclass(frozen=True)
class Config:
    """The settings of the broker, under their upstream names. Times are in milliseconds."""

    clean: bool
    log_start_offset: int
    recovery_point: int
    index_interval_bytes: int
    segment_index_bytes: int
    producer_id_expiration_ms: int | None = None
    now: int | None = None


@dataclass
class Loaded:
    """A loaded log."""

    segments: dict[int, LogSegment]
    epochs: EpochCache
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    warnings: list[str] = field(default_factory=list)

    @property
    def first_unstable(self) -> int | None:
        """The first transaction that the broker does not know to be complete and replicated. While it loads a log it does not know the high
        watermark, so ended transactions count too."""
        known = (self.producers.state.first_ended, self.producers.state.first_unstable)
        offsets = [offset for offset in known if offset is not None]
        return min(offsets, default=None)

    def find_first_unstable(self) -> None:
        """Look up the first unstable offset. Raises `BrokerError`.

        Source: `UnifiedLog.maybeIncrementFirstUnstableOffset`.
        """
        unstable = self.first_unstable
        if unstable is None:
            return
        offset = max(unstable, self.log_start_offset)
        segment = self.floor(offset)
        while segment is not None and segment.translate(offset) is None:
            segment = self.higher(segment.base_offset)

    def floor(self, offset: int) -> LogSegment | None:
        return max(
            (segment for segment in self.segments.values() if segment.base_offset <= offset),
            key=lambda segment: segment.base_offset,
            default=None,
        )

    def higher(self, base: int) -> LogSegment | None:
        return min(
            (segment for segment in self.segments.values() if segment.base_offset > base),
            key=lambda segment: segment.base_offset,
            default=None,
        )


class LogLoader:
    """Load the log in an overlay. `partition` is its name in messages, `epochs` the content of its checkpoint."""

    def __init__(self, overlay: Overlay, partition: str, config: Config, epochs: EpochCache) -> None:
        self.overlay, self.partition, self.config, self.epochs = overlay, partition, config, epochs
        self.segments: dict[int, LogSegment] = {}
        self.warnings: list[str] = []
        self.producers = self._manager()

    def load(self) -> Loaded:
        """Load the log. Raises `BrokerError`."""
        self._finish_swaps(self._remove_temporary())
        self._retry(self._load_segments)
        end = self._retry(self._recover_log)
        self.segments[max(self.segments)].trim()
        start = max(self.config.log_start_offset, min(self.segments))
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(self.config.log_start_offset)
        self.producers.remove_stray(self.segments)
        self._rebuild(self.producers, start, end, reload_from_clean=self.config.clean)
        loaded = Loaded(self.segments, self.epochs, self.producers, start, end, self.warnings)
        loaded.find_first_unstable()
        return loaded

    def _manager(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.overlay, self.partition, self.config.now, self.config.producer_id_expiration_ms
        )

    def _open(self, base: int, suffix: str = "") -> LogSegment:
        return LogSegment(
            self.overlay,
            base,
            self.config.index_interval_bytes,
            self.config.segment_index_bytes,
            suffix=suffix,
        )

    # Interrupted operations

    def _remove_temporary(self) -> list[str]:
        """Remove files marked as deleted and those of an interrupted compaction or split. Return the `.swap` files."""
        cleaned, swaps, least = [], [], 1 << 63
        for entry in self.overlay.entries():
            name = entry.name
            if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
                self.overlay.delete(name)
            elif name.endswith(".cleaned"):
                least = min(least, offset_of(name))
                cleaned.append(name)
            elif name.endswith(".swap"):
                swaps.append(name)
        # Of an interrupted split: the segment that was being split is still there.
        invalid = [name for name in swaps if offset_of(name) >= least]
        for name in [*invalid, *cleaned]:
            self.overlay.delete(name)
        return [name for name in swaps if name not in invalid]

    def _finish_swaps(self, swaps: list[str]) -> None:
        """Replace the segments that a compaction or split has read by its result."""
        low, high = 1 << 63, -(1 << 63)
        for name in swaps:
            if name.removesuffix(".swap").endswith(".log"):
                segment = self._open(offset_of(name), ".swap")
                indexed = segment.index_file in self.overlay
                low, high = min(low, segment.base_offset), max(high, segment.next_offset())
                if not indexed:
                    # A new index has the size of a full one until it is closed, and this one is not closed.
                    self.overlay.put(segment.index_file, bytes(self.config.segment_index_bytes // 8 * 8))
        for entry in self.overlay.entries():
            if entry.name.endswith(".swap"):
                continue
            try:
                number = number_of(entry.name)
            except BrokerError:
                continue
            if number is not None and low <= number < high:
                self.overlay.delete(entry.name)
        for entry in self.overlay.entries():
            if entry.name.endswith(".swap"):
                self.overlay.rename(entry.name, entry.name.removesuffix(".swap"))

    # Segments

    def _retry(self, step: Callable[[], int]) -> int:
        """Run a step. If it meets a segment whose offsets are too far from its base, split the segment and retry."""
        while True:
            try:
                return step()
            except OffsetOverflow as error:
                self.warnings.append(f"{error.message}. Split segment and retry.")
                self._split(error.base_offset)

    def _load_segments(self) -> int:
        self.segments.clear()
        for entry in self.overlay.entries():
            name = entry.name
            if name.endswith(_INDEXES):
                if segment_name(offset_of(name), ".log") not in self.overlay:
                    self.overlay.delete(name)
            elif name.endswith(".log"):
                base = offset_of(name)
                new = segment_name(base, ".timeindex") not in self.overlay
                segment = self._open(base)
                self._overflowing = segment
                try:
                    if not segment.sanity_check(new):
                        self._recover_segment(segment)
                except CorruptIndex as error:
                    self.warnings.append(
                        f"Found a corrupted index file corresponding to {name} due to {error.message}"
                    )
                    self._recover_segment(segment)
                self.segments[base] = segment
        return 0

    def _recover_segment(self, segment: LogSegment) -> int:
        producers = self._manager()
        self._rebuild(producers, self.config.log_start_offset, segment.base_offset, reload_from_clean=False)
        self._overflowing = segment
        cut = segment.recover(producers, self.epochs)
        producers.take_snapshot()
        if cut and segment.cut is not None and segment.cut[1] is not None:
            self.warnings.append(
                f"Found invalid messages in log segment {segment.log} at byte offset {segment.cut[0]}. {segment.cut[1].message}"
            )
        return cut

    def _recover_log(self) -> int:
        """Recover the segments that may not have been flushed. Return the log end offset."""
        if not self.config.clean:
            bases = sorted(self.segments)
            first = max((base for base in bases if base <= self.config.recovery_point), default=0)
            left = [self.segments[base] for base in bases if base >= first]
            for i, segment in enumerate(left):
                try:
                    cut = self._recover_segment(segment)
                except InvalidOffset:
                    self.warnings.append(
                        f"Found invalid offset during recovery. Deleting the corrupt segment and creating an empty one with "
                        f"starting offset {segment.base_offset}"
                    )
                    cut = segment.truncate_to_base()
                if cut > 0:
                    self.warnings.append(
                        f"Corruption found in segment {segment.base_offset}, truncating to offset {segment.next_offset()}"
                    )
                    self._delete(left[i + 1 :])
                    break
        end = None
        if self.segments:
            end = self.segments[max(self.segments)].next_offset()
            if end < self.config.log_start_offset:
                self.warnings.append(
                    f"Deleting all segments because logEndOffset ({end}) is smaller than logStartOffset "
                    f"{self.config.log_start_offset}. This could happen if segment files were deleted from the file system."
                )
                self._delete(list(self.segments.values()))
                self.epochs.clear()
                self.producers.start_at(self.config.log_start_offset)
                end = None
        if not self.segments:
            base = self.config.log_start_offset
            self.segments[base] = self._open(base)
            for suffix in (".index", ".timeindex"):
                self.overlay.put(segment_name(base, suffix), b"")
        return self.segments[max(self.segments)].next_offset() if end is None else end

    def _delete(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            del self.segments[segment.base_offset]
            for name in (segment.log, segment.index_file, segment.timeindex_file, segment.txnindex_file):
                self.overlay.delete(name)
        self.producers.remove_of([segment.base_offset for segment in segments])

    def _split(self, base: int) -> None:
        segment = self._overflowing
        if not segment.has_overflow():
            raise BrokerError(
                "Split operation is only permitted for segments with overflow, and the problem path is "
                f"{self.partition}/{segment.log}",
                "java.lang.IllegalArgumentException",
            )
        new = list(self._parts(segment))
        bases = [first for first, _, _ in new]
        source, size = segment.log, segment.size
        if base in bases:
            source += ".split"
            self.overlay.rename(segment.log, source)
        for first, start, stop in new:
            self.overlay.copy(source, start, stop, segment_name(first, ".log"))
        self.overlay.delete(f"{segment.log}.split")
        # The old segment is deleted only if it is loaded already (`LocalLog.replaceSegments`).
        loaded = base in self.segments
        if loaded:
            log = () if base in bases else (segment.log,)
            for name in (segment.index_file, segment.timeindex_file, segment.txnindex_file, *log):
                self.overlay.delete(name)
        elif base not in bases:
            segment.leave_unfinished()
        assert sum(stop - start for _, start, stop in new) == size
        for first in bases:
            self._index_split(self._open(first))
        self.segments.pop(base, None)
        for first in bases:
            self.segments[first] = self._open(first)
        if loaded and base not in bases:
            self.producers.remove_of([base])

    def _parts(self, segment: LogSegment) -> Iterator[tuple[int, int, int]]:
        """Return the parts of a split: base offset, start, stop. A part ends before a batch that is too far from its base."""
        base, start, stop = None, 0, 0
        for chunk in entries(self.overlay, segment.log, 0, segment.size):
            for at, first, last, size, magic in zip(
                chunk.position.tolist(), chunk.base_offset.tolist(), chunk.last_offset.tolist(),
                (chunk.end - chunk.start).tolist(), chunk.header["magic"].astype(np.int8).tolist(), strict=True,
            ):  # fmt: skip
                if base is not None and not 0 <= last - base < 1 << 31:
                    yield base, start, at
                    base, start = None, at
                base = first if base is None else base
                if not 0 <= last - base < 1 << 31:
                    raise BrokerError(
                        f"Failed to append records from position {at} in {segment.log}",
                        "java.lang.IllegalStateException",
                    )
                if not 0 <= magic <= MAGIC:
                    # Found when the entry is appended (`ByteBufferLogInputStream.nextBatchSize`).
                    raise CorruptRecord(f"Invalid magic found in record: {magic}")
                stop = at + size
        if stop < segment.size:
            # The broker looks for the first batch of another part.
            raise BrokerError("", "java.util.NoSuchElementException")
        assert base is not None  # a segment that overflows has a batch
        yield base, start, stop

    def _index_split(self, segment: LogSegment) -> None:
        """Make the indexes of a segment that results from a split, as when batches are appended."""
        indexer = SegmentIndexer(segment.base_offset, segment.interval)
        for chunk in entries(self.overlay, segment.log, 0, segment.size):
            indexer.add(chunk.header, chunk.position)
        self.overlay.put(segment.index_file, indexer.index_bytes())
        self.overlay.put(segment.timeindex_file, indexer.timeindex_bytes())

    # Producers

    def _rebuild(
        self, producers: ProducerStateManager, start: int, end: int, *, reload_from_clean: bool
    ) -> None:
        """Rebuild the state of the producers at the offset `end`, from the newest snapshot and the batches after it."""
        bases = sorted(self.segments)
        snapshot_offsets = [*bases[-2:], end]
        if producers.latest() is None and reload_from_clean:
            for offset in snapshot_offsets:
                producers.map_end = offset
                producers.take_snapshot()
            return
        empty = not producers.state.producers and producers.map_end >= end
        producers.truncate_and_reload(start, end)
        if end > producers.map_end and not empty:
            floor = max((base for base in bases if base <= end), default=None)
            low = max((base for base in bases if base <= producers.map_end), default=None)
            for base in bases:
                if (low is not None and base < low) or base >= end:
                    continue
                segment = self.segments[base]
                first = max(base, producers.map_end, start)
                producers.map_end = first
                if base in snapshot_offsets:
                    producers.take_snapshot()
                stop = segment.size
                if base == floor:
                    place = segment.translate(end)
                    stop = stop if place is None else place[0]
                place = segment.translate(first)
                if place is not None:
                    self._replay(producers, segment, place[0], stop)
        producers.map_end = end
        producers.take_snapshot()

    def _replay(self, producers: ProducerStateManager, segment: LogSegment, start: int, stop: int) -> None:
        """Replay the batches in a range of bytes, without checking their checksums."""
        end, known = producers.map_end, len(producers.state)
        producers.state.start_replay()
        seen: dict[int, None] = {}
        for chunk in entries(self.overlay, segment.log, start, max(start, stop)):
            if not chunk.complete or not (chunk.header["producer_id"] >= 0).any():
                continue
            refused = check(producers.state, chunk, self.partition)
            if refused is not None:
                raise refused[1]
            producers.add(chunk.header, markers(chunk.window, chunk.frames()))
            ids, first = np.unique(chunk.header["producer_id"].astype(np.int64), return_index=True)
            seen.update(
                dict.fromkeys(producer for producer in ids[np.argsort(first)].tolist() if producer >= 0)
            )
        producers.state = producers.state.end_replay(np.fromiter(seen, np.int64, len(seen)), known)
        if producers.state.problem is not None:
            raise not_started(producers.state.problem, self.partition)
        producers.map_end = end
