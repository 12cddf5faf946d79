"""Simulate the start of a bookie: the resulting files, and the entries that clients read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Int64s, stretches
from logwright.codec.bookkeeper.formats.entries import entry_range
from logwright.codec.bookkeeper.formats.entrylog.codec import CODEC as LOG
from logwright.codec.bookkeeper.startup.bookie import Bookie
from logwright.codec.bookkeeper.startup.client import Client, LedgerRead
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.bookkeeper.store.stored import ENTRIES, stored_entries
from logwright.codec.bookkeeper.store.tree import DB, READER, Tree
from logwright.codec.engine.startup import (
    Answers,
    LostRows,
    Refused,
    Served,
    Settings,
    Startup,
    SystemRepair,
    lost_runs,
)
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay

VERSIONS = ("4.18.0",)
CLIENT = "client"


class ServedBookie(Served):
    """A bookie that has started."""

    def __init__(self, overlay: Overlay, bookie: Bookie, options: Options) -> None:
        self.overlay, self.bookie, self.options = overlay, bookie, options
        self.client = Client(bookie.storage, options.only(LOG.options))

    @cached_property
    def ledgers(self) -> list[LedgerRead]:
        return list(self.client.ledgers())

    def _chosen(self, read: LedgerRead) -> list[int]:
        return read.read if self.options[READER.name] == CLIENT else read.served

    def answers(self) -> Answers:
        ledgers = self.ledgers
        chosen = [(read.ledger, entries) for read in ledgers if (entries := self._chosen(read))]
        serves: dict[str, Any] = {
            "first": {"ledger_id": chosen[0][0], "entry_id": chosen[0][1][0]} if chosen else None,
            "last": {"ledger_id": chosen[-1][0], "entry_id": chosen[-1][1][-1]} if chosen else None,
            "ledgers": len(ledgers),
            "entries": sum(len(read.served) for read in ledgers),
            "entries_failing": sum(len(read.refused) for read in ledgers),
            "read_by_client": sum(len(read.read) for read in ledgers),
        }
        return Answers(sum(len(self._chosen(read)) for read in ledgers), serves, warnings=self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        out = []
        for read in self.ledgers:
            if read.first is not None:
                text = ": ".join(read.first.chain())
                out.append(f"ledger {read.ledger}: the first access fails: {text}")
            if read.error:
                out.append(f"ledger {read.ledger} cannot be opened by a client: {read.error}")
            for entry, error in list(read.refused.items())[:1]:
                others = plural.count(len(read.refused) - 1, "other")
                more = f" (and {others})" if len(read.refused) > 1 else ""
                text = ": ".join(error.chain())
                out.append(f"ledger {read.ledger}: entry {entry}{more} is not served: {text}")
            wrong = [entry for entry, failure in read.failed.items() if failure.startswith("BKDigest")]
            if wrong:
                out.append(
                    f"ledger {read.ledger}: a wrong digest in {plural.count(len(wrong), 'served entry')}, the first is {wrong[0]}"
                )
        if self.bookie.skipped:
            out.append(
                f"the bookie skips {self.bookie.skipped} journal records of ledgers without a master key"
            )
        return tuple(out)

    def lost(self) -> Iterator[LostRows]:
        """Compare the undamaged entries on disk with those that a client reads.

        A ledger that the bookie does not know may have been deleted. Its entries count only if no ledger is known at all, or if they are
        in a part of the journals that the bookie should replay.
        """
        tree = self.bookie.tree
        ids, in_journal = stored_entries(self.overlay.below, tree, self.client.options)
        known = np.array([read.ledger for read in self.ledgers], np.int64)
        served = {(read.ledger, entry) for read in self.ledgers for entry in self._chosen(read)}
        counts = np.isin(ids[:, 0], known) | in_journal | (not len(known))
        mask = np.array(
            [bool(count) and (int(ledger), int(entry)) not in served for count, (ledger, entry) in zip(counts, ids, strict=True)],
            np.bool_,
        )  # fmt: skip

        def pieces() -> Iterator[Any]:
            for start, stop in stretches(ids[:, 0]):
                ledger, entries = ids[start, 0], ids[start:stop, 1]
                yield mask[start:stop], partial(_lost_range, ledger, entries)

        for run in lost_runs(pieces()):
            unknown = run.where["ledger_id"] not in known
            text = f"the bookie does not know ledger {run.where['ledger_id']}, which has undamaged entries"
            yield LostRows(run.rows, run.where, False, text if unknown else "")

    def parts(self, view: str) -> None:
        if view != "entries":
            raise UsageError(f"mode AS_SYSTEM has no view {view!r}", advice="Use view entries")

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for read in self.ledgers:
            entry_ids = self._chosen(read)
            if entry_ids:
                yield from self.client.batches(read.ledger, entry_ids, ENTRIES.schema(columns))

    def settle(self, repair: SystemRepair) -> None:
        super().settle(repair)
        repair.ids = {"ledgers": len(self.ledgers)}


def _lost_range(ledger: int, entries: Int64s, first: int, stop: int) -> dict[str, int]:
    return entry_range(ledger, entries[first], entries[stop - 1])


def start(overlay: Overlay, settings: Settings) -> ServedBookie | Refused:
    """Simulate the start of a bookie. See `codec.engine.startup.Start`."""
    tree = Tree(overlay.below, settings.options)
    if tree.storage == DB:
        rocks.require()
    bookie = Bookie(overlay, tree, settings.options)
    try:
        bookie.start()
    except JavaError as error:
        return Refused("process", error.message or None, error.name)
    return ServedBookie(overlay, bookie, settings.options)


STARTUP = Startup(
    "bookkeeper",
    VERSIONS,
    start,
    refusal="the bookie does not start: {reason}",
    advice="Use strategy salvage",
)
