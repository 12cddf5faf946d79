"""The transactions of a partition: which were aborted, and where the first open one begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec.capability import Settled
from logwright.codec.engine.fold import run
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import frames_of
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window


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


def transactions(listing: Listing, segments: Iterable[PlannedFile]) -> tuple[Transactions, set[str]]:
    """Return the transactions of a partition, and the names of its damaged logs, in which the end of a transaction may be lost.

    Only batches with a right checksum count, so a flipped bit neither opens nor ends a transaction.
    """
    result, damaged = Transactions(), set()

    def report(name: str, fault: Fault) -> None:
        if fault.severity is Severity.ERROR:
            damaged.add(name)

    run(frames_of(listing, segments, log.CODEC, report=report), result)
    return result, damaged
