"""Rebuilding what is derived from the logs of a partition, exactly as a broker does when it recovers them.

Source: `LogSegment.recover`, `LogLoader`, `OffsetIndex`, `TimeIndex`, `TransactionIndex` and `LeaderEpochFileCache` of Kafka's
storage module (4.x: an index entry is considered for each batch).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Positions
from logwright.codec.kafka.checkpoint import LEADER_EPOCH
from logwright.codec.kafka.index import INDEX_ENTRY
from logwright.codec.kafka.producers import ProducerState
from logwright.codec.kafka.timeindex import TIMEINDEX_ENTRY
from logwright.codec.kafka.txnindex import TXNINDEX_ENTRY
from logwright.codec.kernel import kernel

NO_TIMESTAMP = -1
EPOCH_FILE = "leader-epoch-checkpoint"


@kernel("const i8[], const i8[], const i8[], i8, i8[], i8[], i8[], i8[], i8[]")
def _index(
    last_offset: Positions, max_timestamp: Positions, position: Positions, interval: int, state: Positions,
    out_offset: Positions, out_position: Positions, out_timestamp: Positions, out_time_offset: Positions,
) -> tuple[int, int]:  # fmt: skip
    """Entries for batches in order. `state`: position of the last entry, largest timestamp so far, its offset, last time entry's."""
    indexed, timestamp, timestamp_offset, timed = int(state[0]), int(state[1]), int(state[2]), int(state[3])
    entries = 0
    times = 0
    for i in range(len(position)):
        at = int(position[i])
        if int(max_timestamp[i]) > timestamp:
            timestamp = int(max_timestamp[i])
            timestamp_offset = int(last_offset[i])
        if at - indexed > interval:
            out_offset[entries] = last_offset[i]
            out_position[entries] = at
            entries += 1
            if timestamp > timed:
                out_timestamp[times] = timestamp
                out_time_offset[times] = timestamp_offset
                times += 1
                timed = timestamp
            indexed = at
    state[0] = indexed
    state[1] = timestamp
    state[2] = timestamp_offset
    state[3] = timed
    return entries, times


class SegmentIndexer:
    """The `.index` and `.timeindex` of one segment. Feed it the segment's batches in order."""

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        self.base_offset, self.interval = base_offset, interval
        self._state = np.array([0, NO_TIMESTAMP, -1, NO_TIMESTAMP], np.int64)
        self._index: list[bytes] = []
        self._times: list[bytes] = []
        self.entries = 0
        self.time_entries = 0
        """Entries so far, without the one that closing may add."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any batch so far, -1 when there is none."""
        return int(self._state[1])

    def add(self, header: npt.NDArray[Any], start: Positions) -> None:
        """Take batches: an array of `HEAD`, and the byte of the file where each starts."""
        if not len(header):
            return
        last = header["base_offset"].astype(np.int64) + header["last_offset_delta"]
        out = [np.empty(len(header), np.int64) for _ in range(4)]
        times = header["max_timestamp"].astype(np.int64)
        entries, timed = _index(
            last, times, np.ascontiguousarray(start, np.int64), self.interval, self._state, *out
        )
        self._index.append(_index_bytes(out[0][:entries] - self.base_offset, out[1][:entries]))
        self._times.append(_time_bytes(out[2][:timed], out[3][:timed] - self.base_offset))
        self.entries += entries
        self.time_entries += timed

    def index_bytes(self) -> bytes:
        return b"".join(self._index)

    def timeindex_bytes(self) -> bytes:
        """With the entry that closing a segment adds: the largest timestamp, unless it is there."""
        _, timestamp, offset, timed = self._state.tolist()
        closing = (
            _time_bytes(np.array([timestamp]), np.array([offset - self.base_offset]))
            if timestamp > timed
            else b""
        )
        return b"".join(self._times) + closing


def _index_bytes(relative: Positions, position: Positions) -> bytes:
    out = np.empty(len(relative), INDEX_ENTRY.head_dtype)
    out["relative_offset"], out["position"] = relative, position
    return out.tobytes()


def _time_bytes(timestamp: Positions, relative: Positions) -> bytes:
    out = np.empty(len(timestamp), TIMEINDEX_ENTRY.head_dtype)
    out["timestamp"], out["relative_offset"] = timestamp, relative
    return out.tobytes()


class EpochCache:
    """The `leader-epoch-checkpoint`: for each epoch the first offset written in it, both strictly ascending."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def add(self, header: npt.NDArray[Any]) -> None:
        """Take batches: an epoch above all before it starts at the first of its batches."""
        epochs = header["partition_leader_epoch"].astype(np.int64)
        latest = self.entries[-1][0] if self.entries else -1
        highest = np.maximum.accumulate(np.maximum(epochs, latest))
        before = np.concatenate([[latest], highest[:-1]]) if len(highest) else highest
        for i in np.flatnonzero(epochs > before).tolist():
            self.assign(int(epochs[i]), int(header["base_offset"][i]))

    def assign(self, epoch: int, start_offset: int) -> None:
        """A new epoch starts there; what contradicts that is dropped."""
        self.entries = [one for one in self.entries if one[0] < epoch and one[1] < start_offset]
        self.entries.append((epoch, start_offset))

    def to_bytes(self) -> bytes:
        return LEADER_EPOCH.pack(self.entries)

    def load(self, data: bytes) -> None:
        """From the bytes of the file. Raises `DescriptionError`."""
        self.entries = [(int(epoch), int(offset)) for epoch, offset in LEADER_EPOCH.unpack(data)]


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class PartitionDeriver:
    """All derived files of a partition. Feed it `begin`, then the batches, of each segment in order; then `finish`."""

    def __init__(
        self,
        interval: int = 4096,
        *,
        producers: ProducerState | None = None,
        epochs: EpochCache | None = None,
        now: int | None = None,
        producer_expiration: int | None = None,
    ) -> None:
        self.interval, self.now, self.producer_expiration = interval, now, producer_expiration
        self.producers = producers or ProducerState()
        self.epochs = epochs or EpochCache()
        self.files: dict[str, bytes] = {}
        self._segment: SegmentIndexer | None = None
        self._aborted: list[bytes] = []
        self._first: int | None = None
        self.next_offset = 0

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
            self.files[segment_name(base_offset, ".snapshot")] = taken.snapshot_bytes()
        self.next_offset = max(self.next_offset, base_offset)
        self._segment = SegmentIndexer(base_offset, self.interval)

    def add(self, header: npt.NDArray[Any], start: Positions, markers: npt.NDArray[Any]) -> None:
        """Batches of the segment: `HEAD`, the byte where each starts, and their `MARKER`s by index in `header`."""
        assert self._segment is not None
        if not len(header):
            return
        self._segment.add(header, start)
        self.epochs.add(header)
        for txn in self.producers.add(header, markers):
            self._aborted.append(TXNINDEX_ENTRY.pack({"version": 0, **txn._asdict()}))
        self.next_offset = int(header["base_offset"][-1]) + int(header["last_offset_delta"][-1]) + 1

    def finish(self) -> dict[str, bytes]:
        """All derived files by name. The snapshot at the end is only taken when there is something before it."""
        self._close()
        if self._first is not None and self.next_offset > self._first:
            self.files[segment_name(self.next_offset, ".snapshot")] = self.producers.snapshot_bytes()
        self.files[EPOCH_FILE] = self.epochs.to_bytes()
        return self.files

    def _close(self) -> None:
        if self._segment is None:
            return
        base = self._segment.base_offset
        self.files[segment_name(base, ".index")] = self._segment.index_bytes()
        self.files[segment_name(base, ".timeindex")] = self._segment.timeindex_bytes()
        if self._aborted:
            self.files[segment_name(base, ".txnindex")] = b"".join(self._aborted)
        self._segment, self._aborted = None, []


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
