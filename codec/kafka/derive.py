"""Derive the index, snapshot and epoch files of a partition from its logs, exactly as a broker does when it recovers them.

Source: `LogSegment.recover`, `LogLoader`, `OffsetIndex`, `TimeIndex`, `TransactionIndex` and `LeaderEpochFileCache` of Kafka's
storage module (4.x: an index entry is considered for each batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.kafka.formats.checkpoint import LEADER_EPOCH
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY, TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import EPOCH_FILE, segment_name
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState
from logwright.codec.kernels.kernel import kernel
from logwright.codec.store.listing import PlannedFile
from logwright.codec.window import Frames, Window

NO_TIMESTAMP = -1
_INT_MAX = (1 << 31) - 1


_INDEXED, _TIMESTAMP, _TIMESTAMP_OFFSET, _TIMED, _LAST, _REFUSAL, _TIMED_OFFSET = range(7)
"""The state that the kernel keeps of a segment: position of the last entry, the largest timestamp so far and its offset, the
timestamp of the last time entry, the offset of the last entry, why a batch was refused, and the offset of the last time entry."""
ACCEPTED, OUT_OF_RANGE, BACKWARDS, TOO_FAR, TIME_BACKWARDS = range(5)
"""Why a broker does not index a batch: its last offset is not within 2147483647 of the base offset (`OffsetOverflow`), or not above
that of the entry before; it starts beyond byte 2147483647; or a time entry would go back in offsets."""


@kernel("const i8[], const i8[], const i8[], i8, i8, i8[], i8[], i8[], i8[], i8[]")
def _index(
    last_offset: Int64s, max_timestamp: Int64s, position: Int64s, base: int, interval: int, state: Int64s,
    out_offset: Int64s, out_position: Int64s, out_timestamp: Int64s, out_time_offset: Int64s,
) -> tuple[int, int, int]:  # fmt: skip
    """Make entries for batches in order. Return how many, how many time entries, and how many batches were taken until one is refused."""
    entries = 0
    times = 0
    for i in range(len(position)):
        at = position[i]
        last = last_offset[i]
        if last < base or last - base > _INT_MAX:
            state[_REFUSAL] = OUT_OF_RANGE
            return entries, times, i
        if at > _INT_MAX:
            state[_REFUSAL] = TOO_FAR
            return entries, times, i
        if max_timestamp[i] > state[_TIMESTAMP]:
            state[_TIMESTAMP] = max_timestamp[i]
            state[_TIMESTAMP_OFFSET] = last
        if at - state[_INDEXED] > interval:
            if last <= state[_LAST]:
                state[_REFUSAL] = BACKWARDS
                return entries, times, i
            out_offset[entries] = last
            out_position[entries] = at
            entries += 1
            if state[_TIMED] >= 0 and state[_TIMESTAMP_OFFSET] < state[_TIMED_OFFSET]:
                state[_REFUSAL] = TIME_BACKWARDS
                return entries, times, i
            if state[_TIMESTAMP] > state[_TIMED]:
                out_timestamp[times] = state[_TIMESTAMP]
                out_time_offset[times] = state[_TIMESTAMP_OFFSET]
                times += 1
                state[_TIMED] = state[_TIMESTAMP]
                state[_TIMED_OFFSET] = state[_TIMESTAMP_OFFSET]
            state[_INDEXED] = at
            state[_LAST] = last
    return entries, times, len(position)


class SegmentIndexer:
    """Make the `.index` and `.timeindex` of one segment from its batches, in order."""

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        self.base_offset, self.interval = base_offset, interval
        self._state = np.array([0, NO_TIMESTAMP, -1, NO_TIMESTAMP, -1, ACCEPTED, -1], np.int64)
        self._index: list[bytes] = []
        self._times: list[bytes] = []
        self.entries = 0
        self.time_entries = 0
        """Entries so far, without the one that closing may add."""

    @property
    def refusal(self) -> int:
        """Why a broker does not index a batch; `ACCEPTED` as long as it indexes all of them."""
        return int(self._state[_REFUSAL])

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any batch so far, -1 without batches."""
        return int(self._state[_TIMESTAMP])

    def add(self, heads: npt.NDArray[Any], start: Int64s) -> int:
        """Take batches: their `HEADS`, and the byte of the file where each starts. Return how many are indexed: none after a refusal."""
        if not len(heads) or self.refusal:
            return 0
        out = [np.empty(len(heads), np.int64) for _ in range(4)]
        last, times = (np.ascontiguousarray(heads[name]) for name in ("last_offset", "max_timestamp"))
        places = np.ascontiguousarray(start, np.int64)
        entries, timed, taken = _index(
            last, times, places, self.base_offset, self.interval, self._state, *out
        )
        self._index.append(_index_bytes(out[0][:entries] - self.base_offset, out[1][:entries]))
        self._times.append(_time_bytes(out[2][:timed], out[3][:timed] - self.base_offset))
        self.entries += entries
        self.time_entries += timed
        return int(taken)

    @property
    def time_backwards(self) -> bool:
        """Return whether a time entry made now would go back in offsets: a broker refuses it."""
        return bool(self._state[_TIMED] >= 0 and self._state[_TIMESTAMP_OFFSET] < self._state[_TIMED_OFFSET])

    def index_bytes(self) -> bytes:
        return b"".join(self._index)

    def timeindex_bytes(self, *, closed: bool = True) -> bytes:
        """Return the time index. `closed`: with the entry that closing a segment adds, the largest timestamp, unless it is there."""
        timestamp, offset, timed = self._state[[_TIMESTAMP, _TIMESTAMP_OFFSET, _TIMED]]
        more = int(closed and timestamp > timed)
        closing = _time_bytes(np.full(more, timestamp), np.full(more, offset - self.base_offset))
        return b"".join(self._times) + closing


def _index_bytes(relative: Int64s, position: Int64s) -> bytes:
    out = np.empty(len(relative), INDEX_ENTRY.head_dtype)
    out["relative_offset"], out["position"] = relative, position
    return out.tobytes()


def _time_bytes(timestamp: Int64s, relative: Int64s) -> bytes:
    out = np.empty(len(timestamp), TIMEINDEX_ENTRY.head_dtype)
    out["timestamp"], out["relative_offset"] = timestamp, relative
    return out.tobytes()


def txnindex_bytes(aborted: Sequence[AbortedTxn]) -> bytes:
    """Return the content of a `.txnindex`."""
    out = np.zeros(len(aborted), TXNINDEX_ENTRY.head_dtype)
    columns = np.array(aborted, np.int64).reshape(len(aborted), len(AbortedTxn._fields))
    for i, name in enumerate(AbortedTxn._fields):
        out[name] = columns[:, i]
    return out.tobytes()


class EpochCache:
    """The `leader-epoch-checkpoint`: for each epoch the first offset written in it, both strictly ascending."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []
        self.changed = False
        """Whether a broker would have written the file since it was loaded."""

    def add(self, heads: npt.NDArray[Any]) -> None:
        """Take batches. An epoch above all earlier ones starts at the first of its batches."""
        epochs = heads["partition_leader_epoch"].astype(np.int64)
        latest = self.entries[-1][0] if self.entries else -1
        highest = np.maximum.accumulate(np.maximum(epochs, latest))
        before = np.concatenate([[latest], highest[:-1]]) if len(highest) else highest
        for i in np.flatnonzero(epochs > before).tolist():
            self.assign(int(epochs[i]), int(heads["base_offset"][i]))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start an epoch, and drop the entries that contradict it. The start of the latest epoch only ever moves back."""
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the entries from an offset on (`truncateFromEnd`)."""
        while end_offset >= 0 and self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Replace the entries up to an offset by one that starts there (`truncateFromStart`)."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if before:
            self.entries = [(before[-1][0], start_offset), *self.entries[len(before) :]]
            self.changed = True

    def clear(self) -> None:
        self.entries.clear()
        self.changed = True

    def to_bytes(self) -> bytes:
        return LEADER_EPOCH.pack(self.entries)

    def load(self, data: bytes) -> None:
        """Load the bytes of the file. Raises `ParseError`."""
        stored = LEADER_EPOCH.unpack(data)
        self.entries = []
        for epoch, offset in stored:
            self.assign(int(epoch), int(offset))
        self.changed = False


class PartitionDeriver:
    """Derive all files of a partition from its segments: a fold (`codec.engine.fold`), to which batches may also be passed without their
    bytes.

    `now` and `producer_expiration` are in milliseconds, see `ProducerState.load`. Without them no producer is forgotten.
    """

    def __init__(
        self,
        interval: int = 4096,
        *,
        now: int | None = None,
        producer_expiration: int | None = None,
        log_start: int = 0,
    ) -> None:
        self.interval, self.now, self.producer_expiration = interval, now, producer_expiration
        self.log_start = log_start
        """A broker deletes the snapshots up to this offset, and knows no producers when it starts at it."""
        self.producers = ProducerState()
        self.epochs = EpochCache()
        self.files: dict[str, bytes] = {}
        """The files that are complete. A caller may take them out as they come."""
        self._segment: SegmentIndexer | None = None
        self._snapshot: bytes | None = None
        """The snapshot at the start of the segment."""
        self._aborted: list[AbortedTxn] = []
        self._first: int | None = None
        self.next_offset = 0

    def begin(self, file: PlannedFile) -> None:
        self.begin_segment(file.hints["base_offset"])

    def add(self, window: Window, frames: Frames) -> None:
        self.add_batches(frames.header, frames.start + window.offset, markers(window, frames))

    def begin_segment(self, base_offset: int) -> None:
        """Begin a segment, with a snapshot at its start unless it is the first.

        A broker takes a snapshot after each segment that it recovers, and loads it before the next. The producers that it forgets
        on loading are still in the snapshot if the next segment starts at the same offset.
        """
        self._close()
        if self._first is None:
            self._first = base_offset
        else:
            before = self.producers
            self.producers = before.reloaded(self.now, self.producer_expiration)
            taken = before if base_offset == self.next_offset else self.producers
            self._snapshot = taken.snapshot_bytes()
        if base_offset <= self.log_start:
            self.producers, self._snapshot = ProducerState(), None
        self.next_offset = max(self.next_offset, base_offset)
        self._segment = SegmentIndexer(base_offset, self.interval)

    def add_batches(self, heads: npt.NDArray[Any], start: Int64s, markers: npt.NDArray[Any]) -> None:
        """Take batches of the segment: their `HEADS`, the byte where each starts, and their `MARKER`s by index in `heads`."""
        if not len(heads):
            return
        if self._segment is None:
            raise ValueError("batches before the first segment")
        self._segment.add(heads, start)
        self.epochs.add(heads)
        self._aborted += self.producers.add(heads, markers)
        self.next_offset = int(heads["last_offset"][-1]) + 1

    def add_removed(self, heads: npt.NDArray[Any], markers: npt.NDArray[Any]) -> None:
        """Take batches that are not in the result: the state of their producers is, and no file of theirs."""
        if self._first is None:
            # The first segment of the result has a snapshot.
            self._first = int(heads["base_offset"][0])
        self.producers.add(heads, markers)
        self.next_offset = int(heads["last_offset"][-1]) + 1

    def end_removed(self) -> None:
        """End a segment that is not in the result."""
        self._close()
        self.files.clear()

    def finish(self) -> dict[str, bytes]:
        """Return all derived files by name. There is a snapshot at the end if there are batches before it."""
        self._close()
        if self._first is not None and self.next_offset > max(self._first, self.log_start):
            # An empty last segment has its snapshot already.
            self.files.setdefault(
                segment_name(self.next_offset, ".snapshot"), self.producers.snapshot_bytes()
            )
        self.epochs.truncate_from_start(self.log_start)
        self.files[EPOCH_FILE] = self.epochs.to_bytes()
        return self.files

    def _close(self) -> None:
        if self._segment is None:
            return
        base = self._segment.base_offset
        self.files[segment_name(base, ".timeindex")] = self._segment.timeindex_bytes()
        if self._aborted:
            self.files[segment_name(base, ".txnindex")] = txnindex_bytes(self._aborted)
        self.files[segment_name(base, ".index")] = self._segment.index_bytes()
        if self._snapshot is not None:
            self.files[segment_name(base, ".snapshot")] = self._snapshot
        self._segment, self._snapshot, self._aborted = None, None, []
