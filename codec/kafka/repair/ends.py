"""The ends of transactions that are lost: ABORT markers that `.txnindex` proves, and transactions whose end nothing shows.

A broker rebuilds `.txnindex` from the markers in the log. So without a marker, the records of its transaction belong to the next one of the
same producer, whose marker commits or aborts both; or the transaction stays open, and read_committed consumers stop at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Int64s
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault
from logwright.codec.kafka.formats.log.markers import ABORT
from logwright.codec.kafka.repair.runs import Run
from logwright.codec.kafka.state.producers import AbortedTxn
from logwright.codec.kafka.store.transactions import NEVER, AbortedIndex, due_offsets

_SHOWN = 4
"""Number of transactions to describe."""


@dataclass
class _Doubt:
    """A transaction whose end may be among lost offsets, after its record at offset `last`."""

    producer: int
    first: int
    last: int
    lost: tuple[int, int]
    marker: tuple[int, int] | None = None
    """Offset and type of the next marker of the producer."""

    def note(self) -> str:
        low, high = self.lost
        where = f"from offset {low} on" if high == NEVER - 1 else f"offsets {low} to {high}"
        where = f"offset {low}" if low == high else where
        text = f"The marker that ended the transaction of producer {self.producer} since offset {self.first} may be lost ({where})."
        if self.marker is None:
            return f"{text} The transaction stays open, and read_committed consumers stop at offset {self.first}."
        offset, kind = self.marker
        effect = (
            "skip them, even if they were committed"
            if kind == ABORT
            else "get them, even if they were aborted"
        )
        return (
            f"{text} The next marker of the producer, at offset {offset}, now ends it: its records up to offset {self.last} count as"
            f" {'aborted' if kind == ABORT else 'committed'}, and read_committed consumers {effect}."
        )


class TransactionEnds:
    """The lost ends of the transactions of a result, whose batches are passed in order."""

    def __init__(
        self, index: AbortedIndex | None = None, losses: Iterable[tuple[int, int]] = (), known_end: int = 0
    ) -> None:
        """`index` proves aborts, `losses` are the ranges of lost offsets in which markers may be, and `known_end` is an offset that the log
        has reached."""
        self._index, self._known_end = index, known_end
        self._low, self._high = _joined(losses)
        self._doubts: dict[tuple[int, int], _Doubt] = {}
        self._restored: list[AbortedTxn] = []

    def gaps(self, due: int, run: Run) -> list[int]:
        """Return the batches of a run before which a marker may be lost. `due` is the offset that is due before the run."""
        after, base = due_offsets(due, run.heads), run.heads["base_offset"].astype(np.int64)
        lost = np.searchsorted(self._high, after) < np.searchsorted(self._low, base)
        if self._index is not None:
            lost |= self._index.has_between(after, base)
        gaps: list[int] = np.flatnonzero(lost & (base > after)).tolist()
        return gaps

    def aborted(self, due: int, before: int | None, opened: Mapping[int, int]) -> Iterator[AbortedTxn]:
        """Yield the open transactions that were aborted by markers with offsets from `due` on, and below `before` (None: at the end of the
        log)."""
        end = max(due + 1, self._known_end) if before is None else before
        for txn in [] if self._index is None else self._index.between(due, end):
            if opened.get(txn.producer_id) == txn.first_offset:
                self._restored.append(txn)
                yield txn

    def lose(self, due: int, before: int | None, opened: Mapping[int, int]) -> None:
        """Note the transactions that are open where offsets from `due` on are lost."""
        end = NEVER if before is None else before
        i = int(np.searchsorted(self._high, due))
        if i == len(self._low) or self._low[i] >= end:
            return
        lost = max(due, int(self._low[i])), min(end - 1, int(self._high[i]))
        for producer, first in opened.items():
            self._doubts.setdefault((producer, first), _Doubt(producer, first, due - 1, lost))

    def add(self, run: Run) -> None:
        """Take batches of the result, which may end transactions."""
        waiting = {doubt.producer: doubt for doubt in self._doubts.values() if doubt.marker is None}
        if not waiting or not len(run.markers):
            return
        owners = run.heads["producer_id"][run.markers["frame"]]
        for producer, marker in zip(owners.tolist(), run.markers, strict=True):
            doubt = waiting.pop(producer, None)
            if doubt is not None:
                doubt.marker = int(marker["offset"]), int(marker["type"])

    def notes(self) -> Iterator[str]:
        for txn in self._restored[:_SHOWN]:
            yield (
                f"The lost marker at offset {txn.last_offset}, which aborted the transaction of producer {txn.producer_id} since offset"
                f" {txn.first_offset}, is written again: the index of aborted transactions proves it."
            )
        if more := len(self._restored[_SHOWN:]):
            yield f"So are {plural.count(more, 'more marker')} of aborted transactions."
        doubts = list(self._doubts.values())
        yield from (doubt.note() for doubt in doubts[:_SHOWN])
        if more := len(doubts[_SHOWN:]):
            yield f"So may be the ends of {plural.count(more, 'more transaction')}."


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """Return the ends of ranges in order, with those joined that overlap."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1]:
            out[-1] = out[-1][0], max(high, out[-1][1])
        else:
            out.append((low, high))
    ends = np.array(out, np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def losses(cut: Sequence[Removed], missing: Sequence[tuple[str, Fault]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lost offsets in which markers may be."""
    lost = [(item.lost, item.rows_lost) for item in cut] + [
        (fault.lost, fault.rows_lost) for _, fault in missing
    ]
    for where, rows in lost:
        low, high = where.get("first_offset"), where.get("last_offset", NEVER - 1)
        # A marker has an offset and is no record.
        if low is not None and (rows is None or rows <= high - low):
            yield low, high
