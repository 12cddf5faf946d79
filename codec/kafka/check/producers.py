"""Check `.txnindex` and `.snapshot` against the batches and markers of the log.

After damage the state of the producers is unknown until the next snapshot. Compaction leaves empty batches, removes the data of
aborted transactions and later their markers, and keeps the entries of `.txnindex` whose transactions still have data. So an entry
must name an ABORT marker and begin no later than the data, and only transactions with records must have an entry. Source:
`CleanedTransactionMetadata`, `TransactionIndex.collectAbortedTxns`, `ProducerStateManager` of Kafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kafka.formats.indexes import TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import CONTROL
from logwright.codec.kafka.formats.log.markers import ABORT, markers_between
from logwright.codec.kafka.formats.producer_snapshot import unpack
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState, aborted_txns
from logwright.codec.kafka.store.evidence import Witness

_WIDTH = TXNINDEX_ENTRY.head_dtype.itemsize
_CODEC, _SNAPSHOT = "kafka.txnindex", "kafka.producer_snapshot"
_REBUILT = "the broker rebuilds it when it starts after an unclean stop"
_SEEN = "the broker trusts it: read_committed consumers get records of aborted transactions"
_HIDDEN = "the broker trusts it: read_committed consumers miss records of committed transactions"
_COMPARED = ("producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset")
_REFUSED = "a broker that has no newer snapshot of its producers does not start (InvalidTxnStateException or the like)"


class TxnIndexCheck:
    """Check one `.txnindex`. Pass None as `data` if the file is absent."""

    def __init__(self, data: bytes | None, base: int, trusted: bool) -> None:
        self.there, self.base, self.trusted = data is not None, base, trusted
        self.entries = aborted_txns(data or b"")
        self.aborted: list[AbortedTxn] = []
        """Aborted transactions, by the log."""
        self.markers: dict[tuple[int, int], int] = {}
        """By producer and offset of an ABORT marker, the offset of the producer's marker before it (-1: unknown)."""

    def reached(self) -> Witness | None:
        """Return how far the segment reached by its last entry, unless the log ends that transaction elsewhere."""
        if not self.entries or self.entries[-1][:2] in {txn[:2] for txn in self.aborted}:
            return None
        return Witness(self.entries[-1].last_offset + 1, segment_name(self.base, ".txnindex"))

    def faults(self, log_end: int, live: bool) -> Iterator[Fault]:
        for i, txn in enumerate(self.entries):
            if live and txn.last_offset >= log_end:
                continue
            yield from self._entry(i, txn)
        missing = [txn for txn in self.aborted if not self._covered(txn)]
        if missing:
            first = missing[0]
            more = "" if len(missing) == 1 else f", and {len(missing) - 1} more"
            text = f"producer {first.producer_id} aborted offsets {first.first_offset} to {first.last_offset}"
            text += f", without an entry{more}" if self.there else f"{more}, and the file is missing"
            yield self._fault(len(self.entries), 0, text, _SEEN)

    def _covered(self, txn: AbortedTxn) -> bool:
        return any(
            entry.producer_id == txn.producer_id
            and entry.first_offset <= txn.first_offset
            and entry.last_offset == txn.last_offset
            for entry in self.entries
        )

    def _entry(self, i: int, txn: AbortedTxn) -> Iterator[Fault]:
        if txn.last_offset < self.base or txn.first_offset > txn.last_offset:
            return  # the codec reports it
        before = self.markers.get((txn.producer_id, txn.last_offset))
        claim = (
            f"entry {i}: producer {txn.producer_id} aborted offsets {txn.first_offset} to {txn.last_offset}"
        )
        if before is None:
            yield self._fault(i, 1, f"{claim}, but there is no such marker", _HIDDEN)
        elif txn.first_offset <= before:
            yield self._fault(i, 1, f"{claim}, but it ended another transaction at {before}", _HIDDEN)
        elif txn.last_stable_offset > txn.last_offset + 1:
            text = f"{claim}, with a last stable offset of {txn.last_stable_offset}"
            yield self._fault(i, 1, text, _SEEN)

    def _fault(self, entry: int, entries: int, text: str, system: str) -> Fault:
        severity = Severity.ERROR if self.trusted else Severity.WARNING
        system = system if self.trusted else _REBUILT
        return Fault(_CODEC, entry * _WIDTH, entries * _WIDTH, Kind.LINK, text, severity, system=system)


class ProducerCheck:
    """Check the producers of a partition. `snapshots` are the bytes of its snapshots, by offset."""

    def __init__(self, first: int | None, snapshots: Mapping[int, bytes]) -> None:
        self._snapshots = {}
        for offset, data in sorted(snapshots.items()):
            try:
                self._snapshots[offset] = unpack(data)
            except DescriptionError:
                continue  # the codec reports it
        self._data = snapshots
        self.known = first == 0
        """Whether the state of the producers is known."""
        self._state = ProducerState()
        self._full = ProducerState()
        """The same, without the empty batches."""
        self._waiting = sorted(self._snapshots)
        self._ended: dict[int, int] = {}
        """The last marker of each producer."""
        self._problem = False
        self.compacted = False
        """Whether batches or records are missing. Older snapshots then know more about producers than the log."""
        self.faults: list[tuple[str, Fault]] = []
        self._differ: dict[int, Fault] = {}
        """Snapshots that contradict the log, by offset."""
        self._ahead: set[int] = set()
        """Those that only know later batches than the log, which compaction removes once the producer has expired."""

    def begin(self, base: int) -> None:
        """Begin a segment. If the state is unknown, it is loaded from the snapshot taken there."""
        if not self.known and base in self._snapshots:
            self._state, self._full = ProducerState(), ProducerState()
            self._state.load(self._data[base])
            self._full.load(self._data[base])
            self._ended.clear()
            self.known, self._problem = True, False
        self.reach(base)

    def lose(self) -> None:
        """Note damage: what producers did there is unknown."""
        self.known = False

    def add(
        self, name: str, header: npt.NDArray[Any], start: Int64s, markers: npt.NDArray[Any], index: TxnIndexCheck
    ) -> None:  # fmt: skip
        """Take batches of the segment `name`, the bytes of the file where they start, and their markers."""
        for marker in markers[markers["type"] == ABORT].tolist() if len(markers) else []:
            self._marker(header, marker, index)
        if len(markers):
            self._ended.update(
                zip(header["producer_id"][markers["frame"]].tolist(), markers["offset"].tolist(), strict=True)
            )
        if not self.known:
            return
        base = header["base_offset"].astype(np.int64)
        cuts = [0]
        if (np.diff(base) > 0).all():
            due = [offset for offset in self._waiting if offset <= base[-1]]
            cuts += np.searchsorted(base, due).tolist()
        cuts = sorted({*cuts, len(header)})
        for low, high in itertools.pairwise(cuts):
            self.reach(int(base[low]))
            self._take(name, header, start, markers, low, high, index)

    def _marker(self, header: npt.NDArray[Any], marker: tuple[int, ...], index: TxnIndexCheck) -> None:
        producer = int(header["producer_id"][marker[0]])
        index.markers[producer, marker[1]] = self._ended.get(producer, -1)
        self._ended[producer] = marker[1]

    def _take(
        self, name: str, header: npt.NDArray[Any], start: Int64s, markers: npt.NDArray[Any], low: int, high: int,
        index: TxnIndexCheck,
    ) -> None:  # fmt: skip
        mine = markers_between(markers, low, high)
        piece = header[low:high]
        before = self._state.batches
        self._state.add(piece, mine)
        problem = self._state.problem
        if problem is not None and not self._problem:
            self._problem = True
            at = low + problem.batch - before
            if int(header["attributes"][at]) & CONTROL:
                # The codec reports a bad marker, and equal first offsets as wrong order. Which transaction it ended is unknown.
                self.known = False
                return
            size = int(header["size"][at])
            fault = Fault("kafka.log", int(start[at]), size, Kind.ORDER, problem.detail, system=_REFUSED)
            self.faults.append((name, fault))
        full = (piece["records_count"] > 0) | (piece["attributes"].astype(np.int64) & CONTROL != 0)
        if not full.all():
            self.compacted = True
            places = np.cumsum(full) - 1
            mine = mine[full[mine["frame"]]]
            mine["frame"] = places[mine["frame"]]
        index.aborted += self._full.add(piece[full], mine)

    def reach(self, offset: int) -> None:
        """Check the snapshots taken up to an offset that the log has reached."""
        while self._waiting and self._waiting[0] <= offset:
            taken = self._waiting.pop(0)
            if self.known and self._state.problem is None:
                self._compare(taken)

    def _compare(self, offset: int) -> None:
        theirs = self._snapshots[offset]
        ours = unpack(self._state.snapshot_bytes())
        ids = theirs["producer_id"].astype(np.int64), ours["producer_id"].astype(np.int64)
        _, at, mine = np.intersect1d(*ids, return_indices=True)
        theirs_, ours_ = theirs[at], ours[mine]
        ahead = theirs_["last_offset"] > ours_["last_offset"]
        for later in (False, True):
            for column in _COMPARED:
                differ = np.flatnonzero((theirs_[column] != ours_[column]) & (ahead == later))
                if len(differ):
                    i = int(differ[0])
                    text = (
                        f"{column} of producer {int(theirs_['producer_id'][i])} is {int(theirs_[column][i])}"
                    )
                    self._note(offset, f"{text}, but the log has {int(ours_[column][i])}", len(differ))
                    if later:
                        self._ahead.add(offset)
                    return
        opened = ours[~np.isin(ids[1], ids[0]) & (ours["current_txn_first_offset"] >= 0)]
        if len(opened):
            producer = opened[0]
            text = f"producer {int(producer['producer_id'])} is not in it, although its transaction is open since offset "
            self._note(offset, text + str(int(producer["current_txn_first_offset"])), len(opened))

    def _note(self, offset: int, text: str, count: int) -> None:
        more = "" if count == 1 else f", and {count - 1} more"
        system = "the broker loads the newest one, and trusts it"
        fault = Fault(_SNAPSHOT, 0, 0, Kind.LINK, text + more, Severity.WARNING, system=system)
        self._differ[offset] = fault

    @property
    def waiting(self) -> list[int]:
        """The offsets of snapshots that the log has not reached."""
        return self._waiting

    def finish(self, end: int, live: bool) -> Iterator[tuple[str, Fault]]:
        yield from self.faults
        for offset, fault in self._differ.items():
            if not self.compacted or (offset == max(self._snapshots) and offset not in self._ahead):
                yield segment_name(offset, ".snapshot"), fault
        for offset in [] if live else self._waiting:
            text = f"it was taken at offset {offset}, but the log ends at {end}"
            system = "the broker deletes it when it starts"
            fault = Fault(_SNAPSHOT, 0, 0, Kind.LINK, text, Severity.INFO, system=system)
            yield segment_name(offset, ".snapshot"), fault
