"""The state of the producers of a partition, and the entries that transactions leave in `.txnindex`.

The rules are those of `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of Kafka's storage module, for
batches that are read from the log (append origin REPLICATION): sequence numbers are not checked, and epochs may go backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.fixed import entries_of
from logwright.codec.kafka.formats.indexes import TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT
from logwright.codec.kafka.formats.producer_snapshot import ENTRY, pack, unpack
from logwright.codec.kafka.state.java_map import hash_map_order
from logwright.codec.kernels.kernel import kernel

NONE = -1
_INT_MAX = (1 << 31) - 1

Matrix = Int64s

# The columns of `ProducerState._state`, and their names in a snapshot.
_EPOCH, _SEQUENCE, _OFFSET, _DELTA, _TIMESTAMP, _COORDINATOR, _FIRST = range(7)
_KEPT = ENTRY.names[1:] if ENTRY.names else ()
_NEW = (NONE, NONE, NONE, 0, NONE, NONE, NONE)

# The columns of the matrices of batches and of markers.
_SLOT, _FLAGS, _OF_EPOCH, _BASE, _LAST_DELTA, _BASE_SEQUENCE, _MAX_TIMESTAMP, _MARKER = range(8)
_TYPE, _MARKER_EPOCH, _MARKER_TIMESTAMP = range(3)

# Slots of the counters of `_apply`.
_HEAP, _WHERE, _WHAT, _DETAIL = range(4)
_PLAIN, _BAD_MARKER = 1, 2


class AbortedTxn(NamedTuple):
    """An entry of `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_txns(data: bytes) -> list[AbortedTxn]:
    """Return the entries of a `.txnindex`."""
    entries = entries_of(TXNINDEX_ENTRY, data)
    return [
        AbortedTxn(*row) for row in zip(*(entries[name].tolist() for name in AbortedTxn._fields), strict=True)
    ]


class Problem(NamedTuple):
    """A batch at which the start of a broker fails. `batch` counts all batches from the first."""

    batch: int
    detail: str


@dataclass(frozen=True)
class Producer:
    """The state of one producer, as in a snapshot. -1 stands for no value."""

    producer_epoch: int = NONE
    last_sequence: int = NONE
    last_offset: int = NONE
    offset_delta: int = 0
    timestamp: int = NONE
    coordinator_epoch: int = NONE
    current_txn_first_offset: int = NONE


@kernel("i8")
def _int(number: int) -> int:
    """Return the lowest 32 bits as a signed number."""
    return (number + _INT_MAX + 1 & 0xFFFFFFFF) - _INT_MAX - 1


@kernel("i8, i8")
def last_sequence(base: int, delta: int) -> int:
    """Return the sequence number of a batch's last record. 0 follows the largest int (`DefaultRecordBatch.incrementSequence`)."""
    if base == NONE:
        return NONE
    # Java's ints wrap around, also with a negative delta.
    if base > _int(_INT_MAX - delta):
        return _int(_int(delta - _int(_INT_MAX - base)) - 1)
    return _int(base + delta)


@kernel("i8[,], i8")
def _heap_rise(heap: Matrix, at: int) -> None:
    """Move row `at`, which was appended last, to its place. Rows are (first offset, slot), with the smallest on top."""
    while at > 0:
        above = (at - 1) // 2
        if heap[above, 0] <= heap[at, 0]:
            return
        for column in range(2):
            heap[above, column], heap[at, column] = heap[at, column], heap[above, column]
        at = above


@kernel("i8[,], i8")
def _heap_pop(heap: Matrix, size: int) -> None:
    """Remove the top row of `size` rows."""
    size -= 1
    heap[0, 0] = heap[size, 0]
    heap[0, 1] = heap[size, 1]
    at = 0
    while True:
        small = 2 * at + 1
        if small >= size:
            return
        if small + 1 < size and heap[small + 1, 0] < heap[small, 0]:
            small += 1
        if heap[at, 0] <= heap[small, 0]:
            return
        for column in range(2):
            heap[small, column], heap[at, column] = heap[at, column], heap[small, column]
        at = small


@kernel("i8[,], i8, i8")
def _enter_epoch(state: Matrix, slot: int, epoch: int) -> None:
    """Set the epoch of a producer. A new epoch forgets the batches of the one before."""
    if state[slot, _EPOCH] != epoch:
        state[slot, _EPOCH] = epoch
        state[slot, _SEQUENCE] = NONE
        state[slot, _OFFSET] = NONE
        state[slot, _DELTA] = 0


@kernel("const i8[,], const i8[,], i8[,], i8[,], i8[], i8[,]")
def _apply(
    batches: Matrix, markers: Matrix, state: Matrix, heap: Matrix, counters: Int64s, aborted: Matrix
) -> int:
    """Apply batches one by one. Return the number of rows written to `aborted`: (slot, first, last, last stable offset).

    `heap` has the open transactions, closed ones that are not on top yet, and room for all that may be opened.
    """
    count = 0
    for i in range(batches.shape[0]):
        slot = batches[i, _SLOT]
        base = batches[i, _BASE]
        flags = batches[i, _FLAGS]
        if flags & CONTROL:
            marker = batches[i, _MARKER]
            if marker < 0:
                # Compaction has removed the transaction.
                continue
            kind = markers[marker, _TYPE]
            if kind != ABORT and kind != COMMIT:
                if counters[_WHAT] == 0:
                    counters[_WHERE] = i
                    counters[_WHAT] = _BAD_MARKER
                    counters[_DETAIL] = kind
                continue
            _enter_epoch(state, slot, batches[i, _OF_EPOCH])
            state[slot, _COORDINATOR] = markers[marker, _MARKER_EPOCH]
            state[slot, _TIMESTAMP] = markers[marker, _MARKER_TIMESTAMP]
            first = state[slot, _FIRST]
            state[slot, _FIRST] = NONE
            if first < 0:
                continue
            while counters[_HEAP] > 0 and state[heap[0, 1], _FIRST] != heap[0, 0]:
                _heap_pop(heap, counters[_HEAP])
                counters[_HEAP] -= 1
            if kind == ABORT:
                aborted[count, 0] = slot
                aborted[count, 1] = first
                aborted[count, 2] = base
                aborted[count, 3] = heap[0, 0] if counters[_HEAP] > 0 else base + 1
                count += 1
            continue
        _enter_epoch(state, slot, batches[i, _OF_EPOCH])
        delta = batches[i, _LAST_DELTA]
        state[slot, _SEQUENCE] = last_sequence(batches[i, _BASE_SEQUENCE], delta)
        state[slot, _OFFSET] = base + delta
        state[slot, _DELTA] = delta
        state[slot, _TIMESTAMP] = batches[i, _MAX_TIMESTAMP]
        first = state[slot, _FIRST]
        if flags & TRANSACTIONAL:
            if first < 0:
                state[slot, _FIRST] = base
                size = counters[_HEAP]
                heap[size, 0] = base
                heap[size, 1] = slot
                _heap_rise(heap, size)
                counters[_HEAP] += 1
        elif first >= 0 and counters[_WHAT] == 0:
            counters[_WHERE] = i
            counters[_WHAT] = _PLAIN
            counters[_DETAIL] = first
    return count


class ProducerState:
    """The producers of a partition. It takes all batches in order. `problem` is the first one that a broker refuses."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        """The row of each producer id in `_state`, in the order of their first batches."""
        self._state: Matrix = np.empty((0, len(_NEW)), np.int64)
        self._heap: Matrix = np.empty((0, 2), np.int64)
        self._open = 0
        """The number of rows of the heap in use."""
        self.problem: Problem | None = None
        self.batches = 0
        """The number of batches so far, with those without a producer."""

    @property
    def first_unstable(self) -> int | None:
        """The first offset of the earliest open transaction: a `read_committed` consumer stops there."""
        first = self._rows[:, _FIRST]
        return int(first[first >= 0].min()) if (first >= 0).any() else None

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        first = self._rows[:, _FIRST]
        ids = self._ids()
        return {int(ids[slot]): int(first[slot]) for slot in np.flatnonzero(first >= 0)}

    @property
    def producers(self) -> dict[int, Producer]:
        """The state by producer id, in the order of a snapshot."""
        ids, state = self._ordered()
        return {key: Producer(*row) for key, row in zip(ids.tolist(), state.tolist(), strict=True)}

    def reloaded(self, now: int | None = None, expiration: int | None = None) -> ProducerState:
        """Return the state after it was written to a snapshot and loaded, as between two segments in recovery.

        With `now` and `expiration`, producers without an open transaction whose last batch is `expiration` milliseconds before `now` or
        older are forgotten (`producer.id.expiration.ms`).
        """
        ids, state = self._ordered()
        if now is not None and expiration is not None:
            # The difference overflows as in Java: a producer of the far past stays.
            keep = (now - state[:, _TIMESTAMP] < expiration) | (state[:, _FIRST] >= 0)
            ids, state = ids[keep], state[keep]
        other = ProducerState()
        other.problem, other.batches = self.problem, self.batches
        other._put(ids, state)
        return other

    def seen_in(self, ids: Int64s, known: int) -> ProducerState:
        """Return the state of a broker that took many batches at once, whose producers were `ids`, in the order of their first batches.
        The first `known` producers existed before.

        The broker first collects new producers in a separate map (`UnifiedLog.loadProducersFromRecords`), and inserts them in the order of
        that map. This matters if their hashes collide: the map is filled by `computeIfAbsent`, which inserts a key before those with
        the same hash, while `put` inserts it after them.
        """
        before = self._ids()
        new = set(before[known:].tolist())
        ordered = [producer for producer in hash_map_order(ids[::-1]).tolist() if producer in new]
        after = np.concatenate([before[:known], np.array(ordered, np.int64)])
        slots = np.fromiter((self._slots[key] for key in after.tolist()), np.int64, len(after))
        other = ProducerState()
        other.problem, other.batches = self.problem, self.batches
        other._put(after, self._state[slots])
        return other

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, header: npt.NDArray[Any], markers: npt.NDArray[Any]) -> list[AbortedTxn]:
        """Take batches (an array of `HEADS`) and the markers in them (`MARKER`). Return the aborted transactions, in order."""
        seen, self.batches = self.batches, self.batches + len(header)
        places = np.flatnonzero(header["producer_id"] >= 0)
        if not len(places):
            return []
        if len(places) < len(header):
            header = header[places]
        batches = np.empty((len(places), 8), np.int64)
        batches[:, _SLOT] = self._slots_of(header["producer_id"].astype(np.int64))
        batches[:, _FLAGS] = flags = header["attributes"].astype(np.int64)
        batches[:, _OF_EPOCH] = header["producer_epoch"]
        batches[:, _BASE] = header["base_offset"]
        batches[:, _LAST_DELTA] = header["last_offset"] - header["base_offset"]
        batches[:, _BASE_SEQUENCE] = header["base_sequence"]
        batches[:, _MAX_TIMESTAMP] = header["max_timestamp"]
        batches[:, _MARKER] = _first_markers(markers, places)
        marks = np.empty((len(markers), 3), np.int64)
        marks[:, _TYPE] = markers["type"]
        marks[:, _MARKER_EPOCH] = markers["coordinator_epoch"]
        marks[:, _MARKER_TIMESTAMP] = markers["timestamp"]
        control = flags & CONTROL != 0
        self._make_room(int(np.count_nonzero(~control & (flags & TRANSACTIONAL != 0))))
        counters = np.array([self._open, 0, 0, 0], np.int64)
        aborted = np.empty((int(np.count_nonzero(control)), 4), np.int64)
        count = _apply(batches, marks, self._state, self._heap, counters, aborted)
        self._open = int(counters[_HEAP])
        if counters[_WHAT] and self.problem is None:
            at = int(counters[_WHERE])
            self.problem = _problem(seen + int(places[at]), int(header["producer_id"][at]), counters)
        ids = self._ids() if count else np.empty(0, np.int64)
        return [
            AbortedTxn(int(ids[slot]), first, last, stable)
            for slot, first, last, stable in aborted[:count].tolist()
        ]

    # Snapshots

    def snapshot_bytes(self) -> bytes:
        """Return the content of a `.snapshot` file."""
        ids, state = self._ordered()
        entries = np.empty(len(ids), ENTRY)
        entries["producer_id"] = ids
        for column, name in enumerate(_KEPT):
            entries[name] = state[:, column]
        return pack(entries)

    def load(self, data: bytes) -> None:
        """Load the entries of a snapshot. Raises `ParseError`, and then loads none."""
        entries = unpack(data)
        state = np.stack([entries[name].astype(np.int64) for name in _KEPT], axis=1)
        # As in `ProducerStateManager.readSnapshot`: a negative number stands for no value, and without a last offset there is no batch.
        state[state[:, _OFFSET] < 0, _SEQUENCE : _DELTA + 1] = _NEW[_SEQUENCE : _DELTA + 1]
        state[state[:, _FIRST] < 0, _FIRST] = NONE
        self._put(entries["producer_id"].astype(np.int64), state)

    # Slots

    @property
    def _rows(self) -> Matrix:
        return self._state[: len(self._slots)]

    def _ids(self) -> Int64s:
        return np.fromiter(self._slots, np.int64, len(self._slots))

    def _ordered(self) -> tuple[Int64s, Matrix]:
        """Return ids and state in the order of the broker's HashMap."""
        ids = hash_map_order(self._ids())
        slots = np.fromiter((self._slots[key] for key in ids.tolist()), np.int64, len(ids))
        return ids, self._state[slots]

    def _slots_of(self, ids: Int64s) -> Int64s:
        """Return the rows of producers. New producers get one, in order."""
        unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        keys = unique.tolist()
        for i in np.argsort(first).tolist():
            self._slots.setdefault(keys[i], len(self._slots))
        count = len(self._slots)
        if count > len(self._state):
            grown = np.empty((max(16, 2 * count), len(_NEW)), np.int64)
            grown[: len(self._state)] = self._state
            grown[len(self._state) :] = _NEW
            self._state = grown
        slots = np.fromiter((self._slots[key] for key in keys), np.int64, len(keys))
        taken: Int64s = slots[inverse]
        return taken

    def _put(self, ids: Int64s, state: Matrix) -> None:
        """Set entries. Of those with the same id the last one counts."""
        if len(ids):
            slots = self._slots_of(ids)
            self._state[slots] = state
        self._rebuild_heap(0)

    def _make_room(self, more: int) -> None:
        """Make room for `more` open transactions. The heap is rebuilt without the closed ones if it is full."""
        if self._open + more > len(self._heap):
            self._rebuild_heap(more)

    def _rebuild_heap(self, more: int) -> None:
        slots = np.flatnonzero(self._rows[:, _FIRST] >= 0)
        slots = slots[np.argsort(self._rows[slots, _FIRST], kind="stable")]
        self._open = len(slots)
        self._heap = np.empty((2 * (self._open + more), 2), np.int64)
        self._heap[: self._open, 0] = self._rows[slots, _FIRST]
        self._heap[: self._open, 1] = slots


def _first_markers(markers: npt.NDArray[Any], places: Int64s) -> Int64s:
    """Return for each batch the index of its first marker, the only one that counts; -1 for none."""
    out = np.full(len(places), -1, np.int64)
    if len(markers):
        frames, first = np.unique(markers["frame"], return_index=True)
        at = np.searchsorted(places, frames)
        present = at < len(places)
        present[present] = places[at[present]] == frames[present]
        out[at[present]] = first[present]
    return out


def _problem(batch: int, producer_id: int, counters: Int64s) -> Problem:
    detail = int(counters[_DETAIL])
    if counters[_WHAT] == _PLAIN:
        text = (
            f"producer {producer_id} writes outside of the transaction that it has open since offset {detail}"
        )
    else:
        text = f"a control record of type {detail}, expected the end of a transaction"
    return Problem(batch, text)
