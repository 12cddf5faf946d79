"""Producer state: what a broker knows of each producer of a partition, and what transactions leave in `.txnindex`.

The rules are those of `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of Kafka's storage module, for
batches that are read from the log (append origin REPLICATION): sequence numbers are not checked, epochs may go backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from logwright.codec.kafka.batch import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.markers import ABORT, COMMIT
from logwright.codec.kafka.snapshot import PRODUCER_SNAPSHOT

NONE = -1
_INT_MAX = (1 << 31) - 1
_SHORT = 64
"""Up to so many batches between two markers are handled one by one; more of them by column."""


class AbortedTxn(NamedTuple):
    """An entry of `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Problem(NamedTuple):
    """A batch on which a broker ends its start."""

    index: int
    detail: str


@dataclass
class Producer:
    """The state of one producer, as a snapshot holds it. -1 is none throughout."""

    producer_epoch: int = NONE
    last_sequence: int = NONE
    last_offset: int = NONE
    offset_delta: int = 0
    timestamp: int = NONE
    coordinator_epoch: int = NONE
    current_txn_first_offset: int = NONE

    def epoch(self, epoch: int) -> None:
        """Another epoch forgets the batches of the one before."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.last_sequence, self.last_offset, self.offset_delta = NONE, NONE, 0


class JavaHashMap:
    """The order in which a `java.util.HashMap<Long, ?>` iterates: by bucket, in a bucket by insertion.

    The table only grows: when it is three quarters full, and, while it has fewer than 64 buckets, when a bucket with eight keys
    gets a ninth. (From 64 buckets on such a bucket becomes a tree, which may move one key to its front: not emulated.)
    """

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._capacity = 16
        self._keys: dict[int, None] = {}
        for key in keys:
            self.add(key)

    def add(self, key: int) -> None:
        if key in self._keys:
            return
        if self._capacity < 64 and sum(self._bucket(one) == self._bucket(key) for one in self._keys) >= 8:
            self._capacity *= 2
        self._keys[key] = None
        if len(self._keys) > self._capacity * 3 // 4:
            self._capacity *= 2

    def remove(self, key: int) -> None:
        self._keys.pop(key, None)

    def _bucket(self, key: int) -> int:
        code = (key ^ key >> 32) & 0xFFFFFFFF
        return (code ^ code >> 16) & (self._capacity - 1)

    def order(self) -> list[int]:
        return sorted(self._keys, key=self._bucket)


def last_sequence(base: int, delta: int) -> int:
    """The sequence number of a batch's last record: after the largest int comes 0 (`DefaultRecordBatch.incrementSequence`)."""
    if base == NONE:
        return NONE
    return base + delta if base + delta <= _INT_MAX else base + delta - _INT_MAX - 1


class ProducerState:
    """The producers of a partition. Feed it all batches in order; `problem` is the first that a broker would not accept."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._order = JavaHashMap()
        self._open: dict[int, int] = {}
        self.problem: Problem | None = None
        self._seen = 0

    @property
    def first_unstable(self) -> int | None:
        """The first offset of the earliest open transaction: a `read_committed` consumer stops there."""
        return min(self._open.values(), default=None)

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        return dict(self._open)

    @property
    def producers(self) -> dict[int, Producer]:
        """In the order of a snapshot."""
        return {key: replace(self._producers[key]) for key in self._order.order()}

    def reloaded(self, now: int | None = None, expiration: int | None = None) -> ProducerState:
        """The state after it went through a snapshot, as between two segments in recovery.

        With both, producers without an open transaction that were last heard of `expiration` milliseconds before `now` or
        earlier are forgotten, as a broker does (`producer.id.expiration.ms`).
        """
        other = ProducerState()
        for key, producer in self.producers.items():
            idle = now is not None and expiration is not None and now - producer.timestamp >= expiration
            if not idle or producer.current_txn_first_offset >= 0:
                other._put(key, producer)
        other._open, other.problem, other._seen = dict(self._open), self.problem, self._seen
        return other

    def add(self, header: npt.NDArray[Any], markers: npt.NDArray[Any]) -> list[AbortedTxn]:
        """Take batches (an array of `HEAD`) and the records of the control batches among them (`MARKER`, by `frame`).

        Returns the transactions that were aborted, in order.
        """
        seen, self._seen = self._seen, self._seen + len(header)
        of_producers = np.flatnonzero(header["producer_id"] >= 0)
        if not len(of_producers):
            return []
        batches = _Columns(header[of_producers], of_producers, seen)
        first_of = {int(frame): i for i, frame in reversed(list(enumerate(markers["frame"])))}
        aborted: list[AbortedTxn] = []
        controls = np.flatnonzero(batches.flags & CONTROL)
        start = 0
        for at in [*controls.tolist(), len(of_producers)]:
            self._data(batches, start, at)
            if at < len(of_producers):
                i = first_of.get(int(of_producers[at]))
                aborted += self._control(batches, at, None if i is None else markers[i])
            start = at + 1
        return aborted

    def _data(self, batches: _Columns, start: int, stop: int) -> None:
        """Data batches, of which only each producer's first in a transaction and last matter."""
        if stop - start <= _SHORT:
            for i in range(start, stop):
                self._batch(batches, i)
            return
        ids = batches.producer_id[start:stop]
        _, first = np.unique(ids, return_index=True)
        _, last = np.unique(ids[::-1], return_index=True)
        transactional = batches.flags[start:stop] & TRANSACTIONAL != 0
        begins = np.flatnonzero(transactional)
        _, opens = np.unique(ids[begins], return_index=True)
        plain = np.flatnonzero(~transactional)
        _, plains = np.unique(ids[plain[::-1]], return_index=True)
        wanted = {*first.tolist(), *(stop - start - 1 - last).tolist(), *begins[opens].tolist()}
        wanted |= set(plain[::-1][plains].tolist())
        for i in sorted(wanted):
            self._batch(batches, start + i)

    def _batch(self, batches: _Columns, i: int) -> None:
        key = int(batches.producer_id[i])
        producer = self._producers.get(key) or self._put(key, Producer())
        producer.epoch(int(batches.producer_epoch[i]))
        base, delta = int(batches.base_offset[i]), int(batches.last_offset_delta[i])
        producer.last_sequence = last_sequence(int(batches.base_sequence[i]), delta)
        producer.last_offset, producer.offset_delta = base + delta, delta
        producer.timestamp = int(batches.max_timestamp[i])
        transactional = bool(batches.flags[i] & TRANSACTIONAL)
        if transactional and key not in self._open:
            self._open[key] = producer.current_txn_first_offset = base
        elif not transactional and key in self._open:
            self._stop(
                batches,
                i,
                f"producer {key} writes outside of the transaction it has open since offset {self._open[key]}",
            )

    def _control(self, batches: _Columns, i: int, marker: Any) -> list[AbortedTxn]:
        key = int(batches.producer_id[i])
        producer = self._producers.get(key) or self._put(key, Producer())
        if marker is None:
            return []  # compacted: the whole transaction is gone
        if marker["type"] not in (ABORT, COMMIT):
            self._stop(
                batches, i, f"a control record of type {marker['type']} where a transaction's end is expected"
            )
            return []
        producer.epoch(int(batches.producer_epoch[i]))
        producer.coordinator_epoch = int(marker["coordinator_epoch"])
        producer.timestamp = int(marker["timestamp"])
        producer.current_txn_first_offset = NONE
        first = self._open.pop(key, None)
        if first is None or marker["type"] == COMMIT:
            return []
        last = int(batches.base_offset[i])
        stable = self.first_unstable
        return [AbortedTxn(key, first, last, last + 1 if stable is None else stable)]

    def _put(self, key: int, producer: Producer) -> Producer:
        self._producers[key] = producer
        self._order.add(key)
        return producer

    def _stop(self, batches: _Columns, i: int, detail: str) -> None:
        if self.problem is None:
            self.problem = Problem(batches.seen + int(batches.index[i]), detail)

    # Snapshots

    def snapshot_bytes(self) -> bytes:
        """The content of a `.snapshot` file."""
        entries = [{"producer_id": key, **vars(producer)} for key, producer in self.producers.items()]
        return PRODUCER_SNAPSHOT.pack({"count": len(entries), "entries": entries})

    def load(self, entries: Sequence[dict[str, int]]) -> None:
        """Take over the entries of a snapshot, as `PRODUCER_SNAPSHOT` unpacks them."""
        for entry in entries:
            values = dict(entry)
            key = values.pop("producer_id")
            producer = Producer(**values)
            self._put(key, producer)
            if producer.current_txn_first_offset >= 0:
                self._open[key] = producer.current_txn_first_offset


class _Columns:
    """The columns of batches that have a producer, in the machine's byte order."""

    def __init__(self, header: npt.NDArray[Any], index: npt.NDArray[np.int64], seen: int) -> None:
        self.index, self.seen = index, seen
        self.flags = header["attributes"].astype(np.int64)
        self.producer_id = header["producer_id"].astype(np.int64)
        self.producer_epoch = header["producer_epoch"].astype(np.int64)
        self.base_offset = header["base_offset"].astype(np.int64)
        self.last_offset_delta = header["last_offset_delta"].astype(np.int64)
        self.base_sequence = header["base_sequence"].astype(np.int64)
        self.max_timestamp = header["max_timestamp"].astype(np.int64)
