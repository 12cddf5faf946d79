"""The transactions of a partition, from its logs: which were aborted, and where the first open one begins."""

from __future__ import annotations

from collections.abc import Iterable

from logwright.codec.fault import Severity
from logwright.codec.frames.walk import Hole, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window


class Transactions:
    """Fold batches, in order, into the transactions that they belong to.

    A fold that begins at an offset knows all that concerns the records behind it: of a transaction that began earlier and goes on
    there, it sees the rest and the end.
    """

    def __init__(self) -> None:
        self.state = ProducerState()
        self.aborted: list[AbortedTxn] = []

    def add(self, window: Window, frames: Frames) -> None:
        self.aborted += self.state.add(frames.header, markers(window, frames))


def transactions(listing: Listing, segments: Iterable[PlannedFile]) -> tuple[Transactions, set[str]]:
    """Return the transactions of a partition, and the names of the damaged logs: the end of a transaction may be lost there.

    Only batches whose checksum is right count: a flipped bit opens no transaction, ends none, and hides none of its neighbours.
    """
    found, damaged = Transactions(), set()
    for file in segments:
        for one in walk_file(listing, file, log.CODEC):
            if isinstance(one, Hole):
                if one.fault.severity is Severity.ERROR:
                    damaged.add(file.name)
            elif len(one.frames):
                found.add(one.window, one.frames)
    return found, damaged
