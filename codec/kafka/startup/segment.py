"""Open, search, recover and truncate a segment as the broker does. Source: `LogSegment`, `FileRecords`, `TransactionIndex`."""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.fault import LogwrightError
from logwright.codec.fixed import entries_of
from logwright.codec.kafka.derive import EpochCache, SegmentIndexer, txnindex_bytes
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY, TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.startup.entries import Entries, entries
from logwright.codec.kafka.startup.errors import (
    BrokerError,
    CorruptIndex,
    CorruptRecord,
    InvalidOffset,
    OffsetOverflow,
)
from logwright.codec.kafka.startup.producers import ProducerStateManager, check
from logwright.codec.kafka.state.producers import AbortedTxn
from logwright.codec.store.overlay import Overlay

MAX_SEGMENT = (1 << 31) - 1
_ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"


class LogSegment:
    """A segment in an overlay. `interval` is `index.interval.bytes`, `max_index` is `segment.index.bytes`."""

    def __init__(
        self, overlay: Overlay, base_offset: int, interval: int, max_index: int, *, suffix: str = ""
    ) -> None:
        self.overlay, self.base_offset, self.interval, self.max_index = (
            overlay,
            base_offset,
            interval,
            max_index,
        )
        self.log, self.index_file, self.timeindex_file, self.txnindex_file = (
            segment_name(base_offset, kind) + suffix for kind in (".log", ".index", ".timeindex", ".txnindex")
        )
        if self.log not in overlay:
            overlay.put(self.log, b"")
        if self.size > MAX_SEGMENT:
            raise BrokerError(
                f"The size of segment {self.overlay.name}/{self.log} ({self.size}) is larger than the maximum allowed segment size of "
                f"{MAX_SEGMENT}",
                "org.apache.kafka.common.KafkaException",
            )
        self._index: OffsetIndex | None = None
        self._unfinished: SegmentIndexer | None = None
        """The indexes of a recovery that an exception ended."""
        self.cut: tuple[int, BrokerError | None] | None = None
        """The byte at which recovery found the valid part to end, and why."""

    @property
    def size(self) -> int:
        return self.overlay.size(self.log)

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._index = OffsetIndex.open(self.overlay, self.index_file, self.base_offset, self.max_index)
        return self._index

    def _index_of(self, content: bytes) -> OffsetIndex:
        return OffsetIndex(self.base_offset, content, self.max_index)

    # Opening

    def sanity_check(self, timeindex_is_new: bool) -> bool:
        """Return whether there is an `.index`. Raises `CorruptIndex`, or `BrokerError` for a transaction index of a later version."""
        if self.index_file not in self.overlay:
            return False
        if timeindex_is_new:
            self.overlay.put(self.timeindex_file, b"")
        if self.txnindex_file in self.overlay:
            for entry in entries_of(TXNINDEX_ENTRY, self.overlay.read(self.txnindex_file)):
                if (version := int(entry["version"]) >> 8) > 0:  # the broker checks only the first byte
                    raise BrokerError(
                        f"Unexpected aborted transaction version {version} in transaction index "
                        f"{self.overlay.name}/{self.txnindex_file}, current version is 0",
                        "org.apache.kafka.common.KafkaException",
                    )
                if entry["last_offset"] < self.base_offset:
                    raise CorruptIndex(
                        f"Last offset of aborted transaction in index {self.txnindex_file} ({entry['last_offset']}) is less "
                        f"than start offset {self.base_offset}"
                    )
        return True

    def trim(self) -> None:
        """Enlarge the indexes of the active segment. When the broker closes them, an incomplete entry at the end is removed.

        Raises `BrokerError` if one is larger than `segment.index.bytes` (`AbstractIndex.resize`).
        """
        _ = self.index
        if self.timeindex_file not in self.overlay:
            self.overlay.put(self.timeindex_file, b"")
        for name, entry in ((self.index_file, _INDEX_ENTRY), (self.timeindex_file, _TIME_ENTRY)):
            complete, most = (size // entry * entry for size in (self.overlay.size(name), self.max_index))
            if complete > most:
                raise BrokerError(
                    f"newPosition > limit: ({complete} > {most}), since {name} is larger than segment.index.bytes",
                    _ILLEGAL_ARGUMENT,
                )
        self.overlay.truncate(
            self.timeindex_file, self.overlay.size(self.timeindex_file) // _TIME_ENTRY * _TIME_ENTRY
        )

    # Searching

    def translate(self, offset: int) -> tuple[int, int] | None:
        """Return position and size of the batch that holds an offset, or of the first one above it."""
        before: tuple[int, int, int] | None = None
        for chunk in entries(self.overlay, self.log, self.index.lookup(offset), self.size):
            base = chunk.base_offset
            above = np.flatnonzero(base >= offset)
            if len(above):
                at = int(above[0])
                if base[at] > offset:
                    if at:
                        before = _last(chunk, at - 1)
                    if before is not None and before[2] >= offset:
                        return before[:2]
                return _last(chunk, at)[:2]
            before = _last(chunk, len(chunk) - 1)
        if before is not None and before[2] >= offset:
            return before[:2]
        return None

    def next_offset(self) -> int:
        """Return the offset after the last batch; the base offset if no batch follows the last index entry."""
        place = self.translate(self.index.last_offset)
        last = None
        if place is not None:
            for chunk in entries(self.overlay, self.log, place[0], self.size):
                last = int(chunk.last_offset[-1])
        return self.base_offset if last is None else last + 1

    def has_overflow(self) -> bool:
        end = self.next_offset()
        return end > self.base_offset and not self.index.can_append(end - 1)

    # Recovery

    def recover(self, producers: ProducerStateManager, epochs: EpochCache) -> int:
        """Rebuild the indexes from the valid batches, and truncate the log after them. Return the number of bytes removed."""
        indexer = SegmentIndexer(self.base_offset, self.interval)
        aborted: list[AbortedTxn] = []
        valid, why = 0, None
        try:
            for chunk in entries(self.overlay, self.log, 0, self.size, check=True):
                valid, why = self._take(chunk, indexer, producers, epochs, aborted, valid)
                if why is not None:
                    break
        except CorruptRecord as error:
            why = error
        except (BrokerError, LogwrightError):
            # The code that catches the exception sees the index as far as it was rebuilt.
            self._index, self._unfinished = self._index_of(indexer.index_bytes()), indexer
            self._put_aborted(aborted)
            raise
        if indexer.time_backwards:
            self._index = self._index_of(indexer.index_bytes())
            self.overlay.truncate(self.log, valid)
            self._put_aborted(aborted)
            raise self._time_backwards(indexer)
        cut = self.size - valid
        self.cut = (valid, why)
        self.overlay.truncate(self.log, valid)
        self._index = self._index_of(indexer.index_bytes())
        self.overlay.put(self.index_file, indexer.index_bytes())
        self.overlay.put(self.timeindex_file, indexer.timeindex_bytes())
        self._put_aborted(aborted)
        return cut

    def leave_unfinished(self) -> None:
        """Write the indexes as a recovery that ended early leaves them: nobody closes them, so they have the size of those of an active
        segment, and old bytes after the new entries."""
        if self._unfinished is None:
            return
        for name, entry, content in (
            (self.index_file, _INDEX_ENTRY, self._unfinished.index_bytes()),
            (self.timeindex_file, _TIME_ENTRY, self._unfinished.timeindex_bytes(closed=False)),
        ):
            size = self.max_index // entry * entry
            old = self.overlay.read(name) if name in self.overlay else b""
            self.overlay.put(name, (content + old[len(content) :]).ljust(size, b"\0")[:size])

    def _put_aborted(self, aborted: list[AbortedTxn]) -> None:
        """Write the transaction index, which the first aborted transaction creates."""
        if aborted or self.txnindex_file in self.overlay:
            self.overlay.put(self.txnindex_file, txnindex_bytes(aborted))

    def _take(
        self,
        chunk: Entries,
        indexer: SegmentIndexer,
        producers: ProducerStateManager,
        epochs: EpochCache,
        aborted: list[AbortedTxn],
        valid: int,
    ) -> tuple[int, CorruptRecord | None]:
        """Take batches up to the first that is refused. Return where the valid bytes end, and the exception that ends the segment there."""
        invalid = chunk.invalid()
        sound = chunk if invalid is None else chunk.pick(slice(invalid[0]))
        upto, stop = len(sound), None if invalid is None else invalid[1]
        raised: BrokerError | None = None
        if len(sound):
            refused = check(producers.state, sound, producers.partition)
            if refused is not None:
                # A batch is indexed before its producer is checked. Later batches are not reached.
                sound = sound.pick(slice(refused[0] + 1))
                upto, stop = len(sound), None
            indexed = indexer.add(sound.header, sound.position)
            if indexed < len(sound):
                upto, refused = indexed, None
                last = int(sound.last_offset[upto])
                so_far = self._index_of(indexer.index_bytes())
                if not so_far.can_append(last):
                    raised = OffsetOverflow(
                        f"Detected offset overflow at offset {last} in segment {self.log}", self.base_offset
                    )
                elif indexer.time_backwards:
                    raised = self._time_backwards(indexer)
                else:
                    raised = backwards(last, so_far, self.index_file)
            if (
                indexer.entries > self.max_index // _INDEX_ENTRY
                or indexer.time_entries > self.max_index // _TIME_ENTRY
            ):
                raised = BrokerError(
                    f"Attempt to append to a full index (size = {self.max_index // _INDEX_ENTRY}).",
                    _ILLEGAL_ARGUMENT,
                )
            taken = sound.pick(slice(upto))
            if len(taken):
                if refused is not None:
                    # A marker that cannot be parsed is within the valid bytes: the broker has counted them before.
                    raised = refused[1]
                    taken = taken.pick(slice(refused[0]))
                frames = taken.frames()
                epochs.add(chunk.header[:upto])
                for txn in producers.add(taken.header, markers(taken.window, frames)):
                    if aborted and aborted[-1].last_offset >= txn.last_offset:
                        raise BrokerError(
                            f"The last offset of appended transactions must increase sequentially, but {txn.last_offset} is not "
                            f"greater than current last offset {aborted[-1].last_offset} of index {self.overlay.name}/{self.txnindex_file}",
                            _ILLEGAL_ARGUMENT,
                        )
                    aborted.append(txn)
        if upto:
            valid = int(chunk.position[upto - 1] + chunk.end[upto - 1] - chunk.start[upto - 1])
        if isinstance(raised, CorruptRecord):
            return valid, raised
        if raised is not None:
            raise raised
        return valid, stop

    def _time_backwards(self, indexer: SegmentIndexer) -> InvalidOffset:
        return InvalidOffset(
            f"Attempt to append an offset to slot {indexer.time_entries} no larger than the last offset appended to "
            f"{self.timeindex_file}."
        )

    def truncate_to_base(self) -> int:
        """Empty the segment: remove all batches from its base offset on, as far as a lookup finds them. Return the number of bytes removed."""
        place = self.translate(self.base_offset)
        left = self.size if place is None else place[0]
        cut = self.size - left
        largest = SegmentIndexer(self.base_offset, _INT_MAX)
        for chunk in entries(self.overlay, self.log, 0, left):
            largest.add(chunk.header, chunk.position)
        self.overlay.truncate(self.log, left)
        self._index = self._index_of(b"")
        self.overlay.put(self.index_file, b"")
        self.overlay.put(self.timeindex_file, largest.timeindex_bytes())
        if self.txnindex_file in self.overlay:
            self.overlay.put(self.txnindex_file, b"")
        return cut


_INDEX_ENTRY, _TIME_ENTRY = 8, TIMEINDEX_ENTRY.head_size


def _last(chunk: Entries, at: int) -> tuple[int, int, int]:
    """Return position, size and last offset of an entry."""
    return int(chunk.position[at]), int(chunk.end[at] - chunk.start[at]), int(chunk.last_offset[at])


_ENTRY = INDEX_ENTRY.head_size
_WARM = 8192 // _ENTRY
_INT_MAX = (1 << 31) - 1


class OffsetIndex:
    """The entries of an index file. `max_size` is `segment.index.bytes`."""

    def __init__(self, base_offset: int, content: bytes, max_size: int) -> None:
        self.base_offset, self.max_size = base_offset, max_size
        stored = entries_of(INDEX_ENTRY, content)
        self._offset = stored["relative_offset"].astype(np.int64) + base_offset
        self._position = stored["position"].astype(np.int64)

    @classmethod
    def open(cls, overlay: Overlay, name: str, base_offset: int, max_size: int) -> OffsetIndex:
        """Open the index of a segment. An empty one is created if it is absent."""
        if name not in overlay:
            overlay.put(name, b"")
        content = overlay.read(name)
        complete = content[: len(content) // _ENTRY * _ENTRY]
        overlay.put(name, complete)  # as when the broker closes it
        return cls(base_offset, complete, max_size)

    def __len__(self) -> int:
        return len(self._offset)

    @property
    def last_offset(self) -> int:
        return int(self._offset[-1]) if len(self) else self.base_offset

    def can_append(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= _INT_MAX

    def lookup(self, target: int) -> int:
        """Return the position of the last entry that is not above the offset, as a binary search finds it; 0 for none."""
        slot = self._slots(self._offset, target)[0]
        return 0 if slot < 0 else max(0, int(self._position[slot]))

    def upper_bound(self, position: int) -> int | None:
        """Return the offset of the first entry that is not below the position, as a binary search finds it (`fetchUpperBoundOffset`)."""
        slot = self._slots(self._position, position)[1]
        return None if slot < 0 else int(self._offset[slot])

    def _slots(self, values: Int64s, target: int) -> tuple[int, int]:
        """Return the last entry that is not above the target and the first one that is not below it; -1 for none (`indexSlotRangeFor`)."""
        if not len(self):
            return -1, -1
        hot = max(0, len(self) - 1 - _WARM)
        if values[hot] < target:
            return self._search(values, target, hot, len(self) - 1)
        if values[0] > target:
            return -1, 0
        return self._search(values, target, 0, hot)

    def _search(self, values: Int64s, target: int, low: int, high: int) -> tuple[int, int]:
        while low < high:
            middle = (low + high + 1) >> 1
            if values[middle] > target:
                high = middle - 1
            elif values[middle] < target:
                low = middle
            else:
                return middle, middle
        return low, -1 if low == len(self) - 1 else low + 1


def backwards(offset: int, index: OffsetIndex, file: str) -> InvalidOffset:
    """Return the exception for an appended offset that is not above the last one."""
    return InvalidOffset(
        f"Attempt to append an offset ({offset}) to position {len(index)} no larger than the last offset appended "
        f"({index.last_offset}) to {file}."
    )
