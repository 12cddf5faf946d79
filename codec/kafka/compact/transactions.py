"""Find the batches of aborted transactions, and the markers that are no longer needed.

Source: `CleanedTransactionMetadata`, `TransactionIndex.collectAbortedTxns` and `LocalLog.collectAbortedTransactions` of Kafka's storage
module.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bools
from logwright.codec.fault import DamageError
from logwright.codec.kafka.formats.log.layout import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT, failure
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.state.producers import AbortedTxn, aborted_txns
from logwright.codec.store.overlay import Overlay


class AbortedTransactions:
    """The transaction indexes of a log."""

    def __init__(self, overlay: Overlay, bases: Sequence[int]) -> None:
        """`bases` are the base offsets of all segments, in order."""
        self._bases = bases
        entries = ((base, _read(overlay, base)) for base in bases)
        self._entries: Mapping[int, Sequence[AbortedTxn]] = {base: txns for base, txns in entries if txns}

    def overlapping(self, base: int, low: int, upper: int) -> list[AbortedTxn]:
        """Return the aborted transactions that begin before `upper` and do not end before `low`, by the indexes from the segment with the
        offset `base` on."""
        floor = self._bases[max(bisect_right(self._bases, base) - 1, 0)]
        out: list[AbortedTxn] = []
        for other, txns in self._entries.items():
            for txn in txns if other >= floor else ():
                if txn.last_offset >= low and txn.first_offset < upper:
                    out.append(txn)
                if txn.last_stable_offset >= upper:
                    return out
        return out


def _read(overlay: Overlay, base: int) -> list[AbortedTxn]:
    name = segment_name(base, ".txnindex")
    return aborted_txns(overlay.read(name)) if name in overlay else []


class Transactions:
    """The open transactions at a position in the log, while its batches are read in order.

    A marker is needed as long as there are batches of its transaction before it.
    """

    def __init__(self) -> None:
        self._committed: set[int] = set()
        """Producers with batches of a transaction that is not aborted."""
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """The aborted transaction of each producer, and whether a batch of it was read."""
        self._ahead: list[tuple[int, int, AbortedTxn]] = []
        """A heap of the aborted transactions that begin later, by first offset."""
        self._count = 0
        self.kept: list[AbortedTxn] = []
        """The aborted transactions whose markers must be kept: the entries of the new `.txnindex`."""

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions from the indexes of the log. They may be added several times."""
        for txn in aborted:
            self._count += 1
            heapq.heappush(self._ahead, (txn.first_offset, self._count, txn))

    def read(self, head: npt.NDArray[Any], markers: npt.NDArray[Any]) -> Bools:
        """Process batches in order (`HEADS` and `MARKER`), and return which can be discarded: data of aborted transactions, and markers of
        transactions without batches. Raises `DamageError` for a marker that a broker cannot parse."""
        out = np.zeros(len(head), np.bool_)
        flags = head["attributes"].astype(np.int64)
        types: dict[int, int] = {}
        for frame, kind in zip(markers["frame"].tolist(), markers["type"].tolist(), strict=True):
            types.setdefault(frame, kind)
        places = np.flatnonzero(flags & (CONTROL | TRANSACTIONAL) != 0)
        columns = (head[name][places].tolist() for name in ("producer_id", "last_offset", "records_count"))
        control = (flags[places] & CONTROL != 0).tolist()
        for i, is_marker, producer, last, count in zip(places.tolist(), control, *columns, strict=True):
            while self._ahead and self._ahead[0][0] <= last:
                txn = heapq.heappop(self._ahead)[2]
                self._aborted.setdefault(txn.producer_id, (txn, False))
            if is_marker:
                out[i] = count == 0 or self._ends(types.get(i), producer, last)
            elif producer in self._aborted:
                self._aborted[producer] = (self._aborted[producer][0], True)
                out[i] = True
            else:
                self._committed.add(producer)
        return out

    def _ends(self, kind: int | None, producer: int, offset: int) -> bool:
        """Process a marker of this type, and return whether it can be discarded."""
        if kind == ABORT:
            txn, observed = self._aborted.pop(producer, (None, False))
            if txn is None or not observed:
                return True
            self.kept.append(txn)
            return False
        if kind == COMMIT:
            if producer not in self._committed:
                return True
            self._committed.remove(producer)
            return False
        if kind is not None and failure(kind) is not None:
            raise DamageError(
                f"the control record at offset {offset} cannot be parsed, so Kafka's log cleaner refuses the partition",
                advice="Check the partition with `logwright verify`",
            )
        return False
