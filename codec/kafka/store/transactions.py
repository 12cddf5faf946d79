"""The transactions of a partition: which were aborted, and where the first open one begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.capability import Settled
from logwright.codec.describe import DescriptionError
from logwright.codec.engine.fold import run
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.frames.walk import Hole, Walk, walk_file, zero_filled
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import HEADS, heads_at
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD_SIZE, LENGTH_END, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT, MARKER, MARKER_SIZE, markers
from logwright.codec.kafka.names import parse_segment
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState, aborted_txns
from logwright.codec.kafka.store.evidence import LARGEST_INDEX
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window

NEVER = (1 << 63) - 1
"""Above all offsets."""


class Transactions:
    """Fold batches, in order, into their transactions.

    A fold that begins at an offset has all facts about the records after it: it sees the rest and the end of a transaction that began
    earlier.
    """

    def __init__(self) -> None:
        self.state = ProducerState()
        self.aborted: list[AbortedTxn] = []

    def begin(self, file: PlannedFile) -> None:
        pass

    def add(self, window: Window, frames: Frames) -> None:
        self.aborted += self.state.add(frames.header, markers(window, frames))

    def finish(self) -> Settled:
        """Return what a `read_committed` consumer gets: nothing from the first open transaction on."""
        return Settled(self.state.first_unstable, self._hints)

    def _hints(self, start: int, end: int) -> Mapping[str, Any]:
        inside = [txn for txn in self.aborted if txn.last_offset >= start and txn.first_offset < end]
        return {"aborted": tuple(txn[:3] for txn in inside)}


class AbortedIndex:
    """The aborted transactions by all `.txnindex` files of a partition, in the order of their markers. They prove aborts whose markers are
    lost."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    @cached_property
    def _aborted(self) -> list[AbortedTxn]:
        out: list[AbortedTxn] = []
        for entry in self._listing.entries():
            parsed = parse_segment(entry.name)
            if parsed is None or parsed[1:] != (".txnindex", "") or not 0 < entry.size <= LARGEST_INDEX:
                continue
            try:
                out += aborted_txns(self._listing.read(entry.name))
            except (DescriptionError, UnreadableError):
                continue
        return sorted(out, key=lambda txn: txn.last_offset)

    @cached_property
    def _markers(self) -> Int64s:
        return np.array([txn.last_offset for txn in self._aborted], np.int64)

    def between(self, low: int, high: int) -> list[AbortedTxn]:
        """Return the transactions whose markers have offsets in `[low, high)`."""
        start, stop = np.searchsorted(self._markers, (low, high)).tolist()
        return self._aborted[start:stop]

    def has_between(self, low: Int64s, high: Int64s) -> Bools:
        """Return for each range `[low, high)` whether a marker has an offset in it."""
        return np.searchsorted(self._markers, low) < np.searchsorted(self._markers, high)


def due_offsets(due: int, heads: npt.NDArray[Any]) -> Int64s:
    """Return the offset that is due before each batch. `due` is that before the first one."""
    after = heads["last_offset"][:-1].astype(np.int64) + 1
    return np.maximum.accumulate(np.concatenate(([due], after)))


@dataclass
class _Doubt:
    """A transaction that was open where batches were lost, maybe with the marker that ended it."""

    producer: int
    first: int
    last: int
    """The last offset before the lost batches. Records after them belong to this transaction or to a later one, which ends as they say."""
    file: str
    """The file with the damage, at byte `place`."""
    place: int

    def fault(self, ongoing: bool) -> tuple[str, Fault]:
        where = f"records of producer {self.producer} from offset {self.first} to {self.last}"
        text = f"{where} are not returned: the marker that committed or aborted them may be lost here"
        if ongoing:
            text = (
                f"the transaction of producer {self.producer} that begins at offset {self.first} has no end, whose marker may be lost"
                " here: no records from that offset on are returned. A repair with open.transactions=abort ends it"
            )
        system = "read_committed consumers stop at an open transaction, and get aborted records if a later marker commits them"
        text += ". View read_uncommitted has them"
        return self.file, Fault(log.CODEC.name, self.place, 0, Kind.LINK, text, Severity.WARNING, system)


Misplaced = tuple[int, str, Fault]
"""A control batch at a wrong place: its producer, its file and its fault."""


class DamagedTransactions(Transactions):
    """The transactions of a partition with damaged logs.

    Only batches with a right checksum count, so a flipped bit neither opens nor ends a transaction. If the marker that ends one may be
    lost, the index of aborted transactions shows whether it was aborted. Otherwise its records before the damage are in doubt: they are
    treated as aborted, and reported.
    """

    def __init__(
        self, listing: Listing, missing: Sequence[tuple[str, Fault]], misplaced: Mapping[int, Misplaced]
    ) -> None:
        super().__init__()
        self.damaged: set[str] = set()
        """The names of damaged logs, in which the end of a transaction may be lost."""
        self._listing, self._index = listing, AbortedIndex(listing)
        known = [item for item in missing if "first_offset" in item[1].lost]
        self._missing = sorted(known, key=lambda item: item[1].lost["first_offset"])
        self._last = -1
        self._doubts: dict[tuple[int, int], _Doubt] = {}
        self.misplaced = dict(misplaced)
        """The control batches at wrong places whose offsets no gap so far has had, by these offsets."""

    def frames(self, file: PlannedFile) -> Iterator[tuple[Window, Frames]]:
        """Iterate over the good frames of a file."""
        self._lose_missing(file.hints["base_offset"])
        walk = walk_file(self._listing, file, log.CODEC)
        for item in walk:
            if isinstance(item, Hole):
                if item.fault.severity is Severity.ERROR:
                    self.damaged.add(file.name)
                    self._hole(file.name, item.fault, walk)
                continue
            if any(fault.severity is Severity.ERROR for fault in item.faults):
                self.damaged.add(file.name)
            if len(item.frames):
                yield item.window, item.frames

    def _hole(self, file: str, fault: Fault, walk: Walk) -> None:
        head = zero_filled(walk.file, fault.offset, HEAD_SIZE)[0]
        size = LENGTH_END + int.from_bytes(head[LENGTH_END - 4 : LENGTH_END].tobytes(), "big")
        if _may_have_markers(fault, walk.context.header_claims, size):
            self._lose(file, fault)
        elif fault.kind is Kind.ORDER and len(head) == HEAD_SIZE:
            # The batch is complete. Its offset is wrong, or its place.
            (batch,) = heads_at(head, np.zeros(1, np.int64))
            if batch["attributes"] & CONTROL:
                producer = int(batch["producer_id"])
                self.misplaced[int(batch["base_offset"])] = producer, file, fault
                self._lose(file, fault, producer)

    def add(self, window: Window, frames: Frames) -> None:
        base, due = frames.header["base_offset"].astype(np.int64), due_offsets(self._last + 1, frames.header)
        gaps = np.flatnonzero(base > due)
        at = 0
        # Those in which a marker is, as the index or a misplaced batch shows.
        claims, low, high = np.sort(np.fromiter(self.misplaced, np.int64)), due[gaps], base[gaps]
        marked = np.searchsorted(claims, low) < np.searchsorted(claims, high)
        for i in gaps[marked | self._index.has_between(low, high)].tolist() if len(gaps) else ():
            self._add(window, frames.pick(slice(at, i)))
            self._end_aborted(self._index.between(int(due[i]), int(base[i])))
            for offset in [each for each in self.misplaced if due[i] <= each < base[i]]:
                producer, file, fault = self.misplaced.pop(offset)
                self._lose(file, fault, producer)
            at = i
        self._add(window, frames.pick(slice(at, None)) if at else frames)

    def _add(self, window: Window, frames: Frames) -> None:
        if len(frames):
            super().add(window, frames)
            self._last = max(self._last, int(frames.header["last_offset"].max()))

    def _lose_missing(self, base: int) -> None:
        """Take note of missing logs with offsets below `base`."""
        while self._missing and self._missing[0][1].lost["first_offset"] < base:
            self._lose(*self._missing.pop(0))

    def _lose(self, file: str, fault: Fault, owner: int | None = None) -> None:
        """Take note of lost batches that may have markers, of one producer or of all."""
        for producer, first in self.state.open_transactions.items():
            if owner in (None, producer):
                self._doubts[producer, first] = _Doubt(producer, first, self._last, file, fault.offset)

    def _end_aborted(self, txns: Iterable[AbortedTxn]) -> None:
        """End the transactions that the index has, and forget the doubt."""
        for txn in txns:
            if self.state.open_transactions.get(txn.producer_id) != txn.first_offset:
                continue
            head, marker = np.zeros(1, HEADS), np.zeros(1, MARKER)
            head["base_offset"] = head["last_offset"] = marker["offset"] = txn.last_offset
            head["producer_id"], head["attributes"] = txn.producer_id, CONTROL | TRANSACTIONAL
            head["producer_epoch"] = self.state.producers[txn.producer_id].producer_epoch
            head["base_sequence"], head["records_count"], marker["type"] = -1, 1, ABORT
            self.aborted += self.state.add(head, marker)
            self._doubts.pop(txn[:2], None)

    def resolve(self) -> list[tuple[str, Fault]]:
        """After all files: exclude the records whose transactions are in doubt. Return the faults."""
        self._lose_missing(NEVER)
        self._end_aborted(self._index.between(self._last + 1, NEVER))
        opened, ended = self.state.open_transactions, {txn[:2] for txn in self.aborted}
        faults = []
        for (producer, first), doubt in self._doubts.items():
            ongoing = opened.get(producer) == first
            faults.append(doubt.fault(ongoing))
            if not ongoing and (producer, first) not in ended:
                self.aborted.append(AbortedTxn(producer, first, doubt.last, doubt.last + 1))
        return faults


def _may_have_markers(fault: Fault, claims: Collection[tuple[int, int]], size: int) -> bool:
    """Return whether markers may be among lost batches. `claims` are the offsets of damaged batches by their headers (`header_claims`),
    and `size` is the size of the first by its header.

    A marker has one offset. A damaged header that claims one may be that of a marker, unless its size is right and not that of a marker.
    """
    rows, lost = fault.rows_lost, fault.lost
    if rows is None or "first_offset" not in lost or "last_offset" not in lost:
        return rows != 0
    first, after = lost["first_offset"], lost["last_offset"] + 1
    if rows < after - first or fault.kind is Kind.ORDER:
        return bool(rows < after - first)
    ends = sorted(end for start, end in claims if start == first and end <= after)
    if len(ends) == 1 and size == fault.length != MARKER_SIZE:
        return False
    return not ends or min(np.diff([first, *ends])) < 2


def transactions(
    listing: Listing, segments: Iterable[PlannedFile], missing: Sequence[tuple[str, Fault]] = ()
) -> tuple[DamagedTransactions, list[tuple[str, Fault]]]:
    """Return the transactions of a partition, and the faults of those whose end may be lost. `missing` are the faults of missing logs."""
    files = list(segments)
    misplaced: Mapping[int, Misplaced] = {}
    while True:
        result = DamagedTransactions(listing, missing, misplaced)
        run(((file, result.frames(file)) for file in files), result)
        if misplaced or not result.misplaced:
            return result, result.resolve()
        # Their offsets may be in gaps before their places.
        misplaced = result.misplaced
