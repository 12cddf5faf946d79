"""Rebuilding what is derived from the logs of a partition, exactly as a broker does when it recovers them.

Source: `LogSegment.recover`, `LogLoader`, `OffsetIndex`, `TimeIndex`, `TransactionIndex` and `LeaderEpochFileCache` of Kafka's
storage module (4.x: an index entry is considered for each batch).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.fault import Fault, Kind
from logwright.codec.kafka.formats.checkpoint import LEADER_EPOCH
from logwright.codec.kafka.formats.index import INDEX_ENTRY
from logwright.codec.kafka.formats.timeindex import TIMEINDEX_ENTRY
from logwright.codec.kafka.formats.txnindex import TXNINDEX_ENTRY
from logwright.codec.kafka.names import EPOCH_FILE, segment_name
from logwright.codec.kafka.state.producers import AbortedTxn, Problem, ProducerState
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Positions

NO_TIMESTAMP = -1
_INT_MAX = (1 << 31) - 1


_INDEXED, _TIMESTAMP, _TIMESTAMP_OFFSET, _TIMED, _LAST, _PROBLEM, _TIMED_OFFSET = range(7)
"""What the kernel keeps of a segment: position of the last entry, the largest timestamp so far and its offset, the timestamp of
the last time entry, the offset of the last entry, what is wrong, and the offset of the last time entry."""
_RANGE, _BACKWARDS, _POSITION, _TIME_BACKWARDS = 1, 2, 3, 4
_PROBLEMS = {
    _RANGE: (
        "last offset {last} is not within 2147483647 of {base}, the number in the file's name",
        "a broker that recovers the segment does not start; if it is the last batch that is too far, it splits the segment",
    ),
    _BACKWARDS: (
        "last offset {last} is not above {before}, that of the index entry before",
        "a broker that recovers the segment empties it and deletes all that follow; or does not start, without the .index",
    ),
    _TIME_BACKWARDS: (
        "the largest timestamp so far is that of last offset {largest}, below {timed}, that of the time index entry before",
        "a broker that recovers the segment empties it and deletes all that follow; or does not start, without the .index",
    ),
    _POSITION: ("it starts beyond byte 2147483647", "the broker opens no log that is so large"),
}
_PRODUCERS = "a broker that has no newer snapshot of its producers does not start (InvalidTxnStateException or the like)"


@kernel("const i8[], const i8[], const i8[], i8, i8, i8[], i8[], i8[], i8[], i8[]")
def _index(
    last_offset: Positions, max_timestamp: Positions, position: Positions, base: int, interval: int, state: Positions,
    out_offset: Positions, out_position: Positions, out_timestamp: Positions, out_time_offset: Positions,
) -> tuple[int, int, int]:  # fmt: skip
    """Entries for batches in order: how many, how many time entries, and how many batches were taken until a problem."""
    entries = 0
    times = 0
    for i in range(len(position)):
        at = position[i]
        last = last_offset[i]
        if last < base or last - base > _INT_MAX:
            state[_PROBLEM] = _RANGE
            return entries, times, i
        if at > _INT_MAX:
            state[_PROBLEM] = _POSITION
            return entries, times, i
        if max_timestamp[i] > state[_TIMESTAMP]:
            state[_TIMESTAMP] = max_timestamp[i]
            state[_TIMESTAMP_OFFSET] = last
        if at - state[_INDEXED] > interval:
            if last <= state[_LAST]:
                state[_PROBLEM] = _BACKWARDS
                return entries, times, i
            out_offset[entries] = last
            out_position[entries] = at
            entries += 1
            if state[_TIMED] >= 0 and state[_TIMESTAMP_OFFSET] < state[_TIMED_OFFSET]:
                state[_PROBLEM] = _TIME_BACKWARDS
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
    """The `.index` and `.timeindex` of one segment. Feed it the segment's batches in order."""

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        self.base_offset, self.interval = base_offset, interval
        self._state = np.array([0, NO_TIMESTAMP, -1, NO_TIMESTAMP, -1, 0, -1], np.int64)
        self._index: list[bytes] = []
        self._times: list[bytes] = []
        self.batches = 0
        self.entries = 0
        self.time_entries = 0
        """Entries so far, without the one that closing may add."""
        self.problem: Problem | None = None
        """The first batch that a broker would not index: none after it is."""
        self.system = ""
        """What the broker does about it."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any batch so far, -1 when there is none."""
        return int(self._state[_TIMESTAMP])

    def add(self, header: npt.NDArray[Any], start: Positions) -> Problem | None:
        """Take batches: an array of `HEADS`, and the byte of the file where each starts. Returns the problem if it is new."""
        seen, self.batches = self.batches, self.batches + len(header)
        if not len(header) or self.problem is not None:
            return None
        last = header["last_offset"].astype(np.int64)
        out = [np.empty(len(header), np.int64) for _ in range(4)]
        times = header["max_timestamp"].astype(np.int64)
        places = np.ascontiguousarray(start, np.int64)
        entries, timed, taken = _index(
            last, times, places, self.base_offset, self.interval, self._state, *out
        )
        self._index.append(_index_bytes(out[0][:entries] - self.base_offset, out[1][:entries]))
        self._times.append(_time_bytes(out[2][:timed], out[3][:timed] - self.base_offset))
        self.entries += entries
        self.time_entries += timed
        if taken < len(header):
            text, self.system = _PROBLEMS[int(self._state[_PROBLEM])]
            before, timed, largest = self._state[[_LAST, _TIMED_OFFSET, _TIMESTAMP_OFFSET]].tolist()
            self.problem = Problem(
                seen + taken,
                text.format(
                    last=last[taken], base=self.base_offset, before=before, timed=timed, largest=largest
                ),
            )
        return self.problem

    @property
    def time_backwards(self) -> bool:
        """Whether a time entry made now would go back in offsets: a broker refuses it."""
        return bool(self._state[_TIMED] >= 0 and self._state[_TIMESTAMP_OFFSET] < self._state[_TIMED_OFFSET])

    def index_bytes(self) -> bytes:
        return b"".join(self._index)

    def timeindex_bytes(self) -> bytes:
        """With the entry that closing a segment adds: the largest timestamp, unless it is there."""
        timestamp, offset, timed = self._state[[_TIMESTAMP, _TIMESTAMP_OFFSET, _TIMED]]
        more = int(timestamp > timed)
        closing = _time_bytes(np.full(more, timestamp), np.full(more, offset - self.base_offset))
        return b"".join(self._times) + closing


def _index_bytes(relative: Positions, position: Positions) -> bytes:
    out = np.empty(len(relative), INDEX_ENTRY.head_dtype)
    out["relative_offset"], out["position"] = relative, position
    return out.tobytes()


def _time_bytes(timestamp: Positions, relative: Positions) -> bytes:
    out = np.empty(len(timestamp), TIMEINDEX_ENTRY.head_dtype)
    out["timestamp"], out["relative_offset"] = timestamp, relative
    return out.tobytes()


def txnindex_bytes(aborted: Sequence[AbortedTxn]) -> bytes:
    """The content of a `.txnindex`."""
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

    def add(self, header: npt.NDArray[Any]) -> None:
        """Take batches: an epoch above all before it starts at the first of its batches."""
        epochs = header["partition_leader_epoch"].astype(np.int64)
        latest = self.entries[-1][0] if self.entries else -1
        highest = np.maximum.accumulate(np.maximum(epochs, latest))
        before = np.concatenate([[latest], highest[:-1]]) if len(highest) else highest
        for i in np.flatnonzero(epochs > before).tolist():
            self.assign(int(epochs[i]), int(header["base_offset"][i]))

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch starts there; what contradicts that is dropped. The latest one is only ever moved back."""
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Entries from an offset on are dropped (`truncateFromEnd`)."""
        while end_offset >= 0 and self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The entries up to an offset become one that starts there (`truncateFromStart`)."""
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
        """From the bytes of the file. Raises `ParseError`."""
        found = LEADER_EPOCH.unpack(data)
        self.entries = []
        for epoch, offset in found:
            self.assign(int(epoch), int(offset))
        self.changed = False


class PartitionDeriver:
    """All derived files of a partition. Feed it `begin`, then the batches, of each segment in order; then `finish`."""

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
        """A broker deletes the snapshots up to this offset, and knows no producers when it starts there."""
        self.producers = ProducerState()
        self.epochs = EpochCache()
        self.files: dict[str, bytes] = {}
        """What is complete. A caller may take files out as they come."""
        self._segment: SegmentIndexer | None = None
        self._snapshot: bytes | None = None
        """The one taken where the segment starts."""
        self._aborted: list[AbortedTxn] = []
        self._first: int | None = None
        self.next_offset = 0
        self.faults: list[tuple[str, Fault]] = []
        """The batches, each in its `.log`, on which a broker that has to rebuild would end its start."""

    def begin(self, base_offset: int) -> None:
        """A segment starts. A snapshot is taken there, but for the first segment.

        A broker takes one after each segment that it recovers, and loads it before the next: what it forgets on loading is
        still in the snapshot when the next segment starts right there.
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

    def add(self, header: npt.NDArray[Any], start: Positions, markers: npt.NDArray[Any]) -> None:
        """Batches of the segment: `HEADS`, the byte where each starts, and their `MARKER`s by index in `header`."""
        if self._segment is None:
            raise ValueError("batches before the first segment")
        if not len(header):
            return
        segment = self._segment
        indexed = segment.batches
        found = segment.add(header, start)
        if found is not None:
            self._fault(found, indexed, header, start, segment.system)
        self.epochs.add(header)
        sound, before = self.producers.problem is None, self.producers.batches
        aborted = self.producers.add(header, markers)
        problem = self.producers.problem
        if sound and problem is not None:
            self._fault(problem, before, header, start, _PRODUCERS)
        self._aborted += aborted
        self.next_offset = int(header["last_offset"][-1]) + 1

    def _fault(
        self, problem: Problem, before: int, header: npt.NDArray[Any], start: Positions, system: str
    ) -> None:
        assert self._segment is not None
        at = problem.batch - before
        size = int(header["size"][at])
        fault = Fault("kafka.log", int(start[at]), size, Kind.ORDER, problem.detail, system=system)
        self.faults.append((segment_name(self._segment.base_offset, ".log"), fault))

    def finish(self) -> dict[str, bytes]:
        """All derived files by name. The snapshot at the end is only taken when there is something before it."""
        self._close()
        if self._first is not None and self.next_offset > max(self._first, self.log_start):
            # Where the last segment is empty, there is one since it began.
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


def rebuild(
    segments: Iterable[tuple[int, Iterable[tuple[npt.NDArray[Any], Positions, npt.NDArray[Any]]]]],
    interval: int = 4096,
    *,
    now: int | None = None,
    producer_expiration: int | None = None,
) -> dict[str, bytes]:
    """All derived files of a partition from its segments in order: (base offset, its batches as `PartitionDeriver.add` takes them).

    `now` and `producer_expiration` in milliseconds: see `ProducerState.reloaded`; without them no producer is forgotten.
    """
    deriver = PartitionDeriver(interval, now=now, producer_expiration=producer_expiration)
    for base, batches in segments:
        deriver.begin(base)
        for header, start, markers in batches:
            deriver.add(header, start, markers)
    return deriver.finish()
