"""The state of the producers of a partition, and the entries that transactions leave in `.txnindex`.

The rules are those of `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of Kafka's storage module, for
batches that are read from the log (append origin REPLICATION): sequence numbers are not checked, and epochs may go backwards.
"""

from __future__ import annotations

from copy import copy
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
_SLOT, _FLAGS, _OF_EPOCH, _BASE, _LAST_DELTA, _BASE_SEQUENCE, _MAX_TIMESTAMP, _MARKER, _PRODUCER = range(9)
_TYPE, _MARKER_EPOCH, _MARKER_TIMESTAMP = range(3)

# The columns of the matrix of transactions that begin or end. The matrix of ongoing transactions has the first two.
_BEGAN, _OWNER, _KIND, _LAST, _BATCH = range(5)
_BEGIN = -1

# Slots of the counters of `_apply`.
_WHERE, _WHAT, _DETAIL = range(3)
_PLAIN, _BAD_MARKER = 1, 2

# Slots of the counters of `_track`: the rows of ongoing transactions, the least first offset of those that ended, and the first event
# that ends one that is not ongoing.
_START, _STOP, _ENDED, _REFUSED = range(4)
_NEVER = (1 << 63) - 1


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
    """A batch at which the start of a broker fails. `batch` counts all batches from the first. `completed` is the transaction that it
    ends, if that is not ongoing, in the words of the broker."""

    batch: int
    detail: str
    completed: str | None = None


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


@kernel("i8[,], i8, i8")
def _enter_epoch(state: Matrix, slot: int, epoch: int) -> None:
    """Set the epoch of a producer. A new epoch forgets the batches of the one before."""
    if state[slot, _EPOCH] != epoch:
        state[slot, _EPOCH] = epoch
        state[slot, _SEQUENCE] = NONE
        state[slot, _OFFSET] = NONE
        state[slot, _DELTA] = 0


@kernel("const i8[,], const i8[,], i8[,], i8[], i8[,]")
def _apply(batches: Matrix, markers: Matrix, state: Matrix, counters: Int64s, events: Matrix) -> int:
    """Apply batches one by one. Return the number of transactions written to `events` that begin or end."""
    count = 0
    for i in range(batches.shape[0]):
        slot = batches[i, _SLOT]
        base = batches[i, _BASE]
        flags = batches[i, _FLAGS]
        first = state[slot, _FIRST]
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
            state[slot, _FIRST] = NONE
            if first < 0:
                continue
        else:
            _enter_epoch(state, slot, batches[i, _OF_EPOCH])
            delta = batches[i, _LAST_DELTA]
            state[slot, _SEQUENCE] = last_sequence(batches[i, _BASE_SEQUENCE], delta)
            state[slot, _OFFSET] = base + delta
            state[slot, _DELTA] = delta
            state[slot, _TIMESTAMP] = batches[i, _MAX_TIMESTAMP]
            if not flags & TRANSACTIONAL:
                if first >= 0 and counters[_WHAT] == 0:
                    counters[_WHERE] = i
                    counters[_WHAT] = _PLAIN
                    counters[_DETAIL] = first
                continue
            if first >= 0:
                continue
            state[slot, _FIRST] = first = base
            kind = _BEGIN
        events[count, _OWNER] = batches[i, _PRODUCER]
        events[count, _BEGAN] = first
        events[count, _KIND] = kind
        events[count, _LAST] = base
        events[count, _BATCH] = i
        count += 1
    return count


@kernel("const i8[,], i8[,], i8[], i8[,]")
def _track(events: Matrix, ongoing: Matrix, counters: Int64s, aborted: Matrix) -> int:
    """Begin and end transactions. Return the number of rows written to `aborted`: (producer id, first, last, last stable offset).

    `ongoing` is in the order of first offsets, and has room for all that begin. Like the broker's map it has one transaction for each
    first offset: in a damaged log the last that began there. One without an owner has ended. Many transactions with descending first offsets,
    which only damage brings, take quadratic time.
    """
    count = 0
    for i in range(events.shape[0]):
        producer = events[i, _OWNER]
        first = events[i, _BEGAN]
        stop = counters[_STOP]
        at, end = counters[_START], stop
        while at < end:
            middle = (at + end) // 2
            if ongoing[middle, _BEGAN] < first:
                at = middle + 1
            else:
                end = middle
        known = at < stop and ongoing[at, _BEGAN] == first
        if events[i, _KIND] == _BEGIN:
            if not known:
                for row in range(stop, at, -1):
                    ongoing[row, _BEGAN] = ongoing[row - 1, _BEGAN]
                    ongoing[row, _OWNER] = ongoing[row - 1, _OWNER]
                counters[_STOP] += 1
            ongoing[at, _BEGAN] = first
            ongoing[at, _OWNER] = producer
            continue
        if events[i, _KIND] == ABORT:
            other = counters[_START]
            while other < stop and (ongoing[other, _OWNER] < 0 or ongoing[other, _OWNER] == producer):
                other += 1
            aborted[count, 0] = producer
            aborted[count, 1] = first
            aborted[count, 2] = events[i, _LAST]
            aborted[count, 3] = ongoing[other, _BEGAN] if other < stop else events[i, _LAST] + 1
            count += 1
        if known and ongoing[at, _OWNER] >= 0:
            ongoing[at, _OWNER] = NONE
            counters[_ENDED] = min(counters[_ENDED], first)
        elif counters[_REFUSED] < 0:
            counters[_REFUSED] = i
        while counters[_START] < stop and ongoing[counters[_START], _OWNER] < 0:
            counters[_START] += 1
    return count


class ProducerState:
    """The producers of a partition. It takes all batches in order. `problem` is the first one that a broker refuses."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        """The row of each producer id in `_state`, in the order of their first batches."""
        self._state: Matrix = np.empty((0, len(_NEW)), np.int64)
        self._ongoing: Matrix = np.empty((0, 2), np.int64)
        """First offset and producer id of each ongoing transaction (`ongoingTxns`), see `_by_first_offset`."""
        self._replayed: list[Matrix] | None = None
        """What `start_replay` defers: the transactions that begin or end."""
        self.first_ended: int | None = None
        """The first offset of the earliest transaction that has ended."""
        self.problem: Problem | None = None
        self.batches = 0
        """The number of batches so far, with those without a producer."""

    @property
    def first_unstable(self) -> int | None:
        """The first offset of the earliest ongoing transaction: a `read_committed` consumer stops there."""
        return int(self._ongoing[0, _BEGAN]) if len(self._ongoing) else None

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
        """Return the state after it was written to a snapshot and loaded, as between two segments in recovery. See `load`."""
        other = ProducerState()
        other.problem, other.batches = self.problem, self.batches
        other._put(*self._ordered(), now, expiration)
        return other

    def copy(self) -> ProducerState:
        """Return a copy for a trial. Transactions that are deferred by `start_replay` are not copied."""
        other = copy(self)
        other._slots, other._state = dict(self._slots), self._state.copy()
        other._replayed = None if self._replayed is None else []
        return other

    def start_replay(self) -> None:
        """Defer the begins and ends of transactions to `end_replay`."""
        self._replayed = []

    def end_replay(self, ids: Int64s, known: int) -> ProducerState:
        """Return the state of a broker that took many batches at once, whose producers were `ids`, in the order of their first batches.
        The first `known` producers existed before.

        The broker first collects producers in a separate map (`UnifiedLog.loadProducersFromRecords`). In the order of that map it inserts
        the new ones, and begins the transactions of all; then it ends transactions. The order matters if hashes collide: the map is
        filled by `computeIfAbsent`, which inserts a key before those with the same hash, while `put` inserts it after them.
        """
        before, order = self._ids(), hash_map_order(ids[::-1])
        new = order[np.isin(order, before[known:])]
        after = np.concatenate([before[:known], new])
        slots = np.fromiter((self._slots[key] for key in after.tolist()), np.int64, len(after))
        other = ProducerState()
        other.problem, other.batches, other.first_ended = self.problem, self.batches, self.first_ended
        other._put(after, self._state[slots])
        events = np.concatenate([np.empty((0, 5), np.int64), *(self._replayed or [])])
        begins = events[:, _KIND] == _BEGIN
        rank = {producer: i for i, producer in enumerate(order.tolist())}
        turn = [rank[producer] for producer in events[begins, _OWNER].tolist()]
        begun = events[begins][np.argsort(turn, kind="stable"), :_KIND]
        other._ongoing = _by_first_offset(np.concatenate([self._ongoing, begun]))
        other._track(events[~begins])
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
        batches = np.empty((len(places), 9), np.int64)
        batches[:, _SLOT] = self._slots_of(header["producer_id"].astype(np.int64))
        batches[:, _FLAGS] = flags = header["attributes"].astype(np.int64)
        batches[:, _OF_EPOCH] = header["producer_epoch"]
        batches[:, _BASE] = header["base_offset"]
        batches[:, _LAST_DELTA] = header["last_offset"] - header["base_offset"]
        batches[:, _BASE_SEQUENCE] = header["base_sequence"]
        batches[:, _MAX_TIMESTAMP] = header["max_timestamp"]
        batches[:, _MARKER] = _first_markers(markers, places)
        batches[:, _PRODUCER] = header["producer_id"]
        marks = np.empty((len(markers), 3), np.int64)
        marks[:, _TYPE] = markers["type"]
        marks[:, _MARKER_EPOCH] = markers["coordinator_epoch"]
        marks[:, _MARKER_TIMESTAMP] = markers["timestamp"]
        counters = np.zeros(3, np.int64)
        events = np.empty((np.count_nonzero(flags & (CONTROL | TRANSACTIONAL)), 5), np.int64)
        events = events[: _apply(batches, marks, self._state, counters, events)]
        events[:, _BATCH] = seen + places[events[:, _BATCH]]
        if counters[_WHAT] and self.problem is None:
            at = int(counters[_WHERE])
            self.problem = _problem(seen + int(places[at]), int(header["producer_id"][at]), counters)
        if self._replayed is None:
            return self._track(events)
        self._replayed.append(events)
        return []

    def _track(self, events: Matrix) -> list[AbortedTxn]:
        """Begin and end transactions. Return the aborted ones."""
        if not len(events):
            return []
        open_before = len(self._ongoing)
        ongoing = np.empty((open_before + len(events), 2), np.int64)
        ongoing[:open_before] = self._ongoing
        aborted = np.empty((len(events), 4), np.int64)
        counters = np.array([0, open_before, _NEVER if self.first_ended is None else self.first_ended, -1])
        count = _track(events, ongoing, counters, aborted)
        ongoing = ongoing[counters[_START] : counters[_STOP]]
        self._ongoing = ongoing[ongoing[:, _OWNER] >= 0]
        if counters[_ENDED] < _NEVER:
            self.first_ended = int(counters[_ENDED])
        if counters[_REFUSED] >= 0:
            first, producer, kind, last, batch = events[counters[_REFUSED]].tolist()
            if self.problem is None or batch < self.problem.batch:
                text = (
                    f"the end of a transaction of producer {producer} since offset {first} that is not open"
                )
                aborts = "true" if kind == ABORT else "false"
                completed = f"CompletedTxn[producerId={producer}, firstOffset={first}, lastOffset={last}, isAborted={aborts}]"
                self.problem = Problem(batch, text, completed)
        return [AbortedTxn(*row) for row in aborted[:count].tolist()]

    # Snapshots

    def snapshot_bytes(self) -> bytes:
        """Return the content of a `.snapshot` file."""
        ids, state = self._ordered()
        entries = np.empty(len(ids), ENTRY)
        entries["producer_id"] = ids
        for column, name in enumerate(_KEPT):
            entries[name] = state[:, column]
        return pack(entries)

    def load(self, data: bytes, now: int | None = None, expiration: int | None = None) -> None:
        """Load the entries of a snapshot. Raises `ParseError`, and then loads none.

        With `now` and `expiration`, producers without an open transaction whose last batch is `expiration` milliseconds before `now` or
        older are forgotten (`producer.id.expiration.ms`).
        """
        entries = unpack(data)
        state = np.stack([entries[name].astype(np.int64) for name in _KEPT], axis=1)
        # As in `ProducerStateManager.readSnapshot`: a negative number stands for no value, and without a last offset there is no batch.
        state[state[:, _OFFSET] < 0, _SEQUENCE : _DELTA + 1] = _NEW[_SEQUENCE : _DELTA + 1]
        state[state[:, _FIRST] < 0, _FIRST] = NONE
        self._put(entries["producer_id"].astype(np.int64), state, now, expiration)

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

    def _put(self, ids: Int64s, state: Matrix, now: int | None = None, expiration: int | None = None) -> None:
        """Set entries. Of those with the same id the last one counts, but the transactions of all are ongoing."""
        if now is not None and expiration is not None:
            # The difference overflows as in Java: a producer of the far past stays.
            keep = (now - state[:, _TIMESTAMP] < expiration) | (state[:, _FIRST] >= 0)
            ids, state = ids[keep], state[keep]
        if len(ids):
            slots = self._slots_of(ids)
            self._state[slots] = state
        opened = state[:, _FIRST] >= 0
        self._ongoing = _by_first_offset(np.column_stack((state[opened, _FIRST], ids[opened])))


def _by_first_offset(transactions: Matrix) -> Matrix:
    """Return transactions in the order of first offsets, and of those with the same one the last."""
    transactions = transactions[::-1]
    _, last = np.unique(transactions[:, _BEGAN], return_index=True)
    return transactions[last]


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
