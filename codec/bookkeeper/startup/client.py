"""The simulated client of a bookie that has started.

A client opens each ledger: the bookie sends the explicit last-add-confirmed and the last entry, and the client verifies the digests of
both. Then it reads entry by entry. If the bookie does not answer, because an error was not handled, the client stops at a time-out.
Source: `ReadLacProcessorV3`, `PendingReadLacOp`, `DigestManager` of BookKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.bookkeeper.formats.digest import HEADER, LAC_SIZE, lac_matches
from logwright.codec.bookkeeper.formats.entrylog.codec import CODEC as LOG
from logwright.codec.bookkeeper.formats.entrylog.codec import EntryLogContext
from logwright.codec.bookkeeper.startup.errors import OUT_OF_MEMORY, JavaError
from logwright.codec.bookkeeper.startup.storage import Storage
from logwright.codec.frames.codec import Part
from logwright.codec.option import Options

READ_ERROR = "BKReadException"
TIME_OUT = "BKTimeoutException"
_FAILURES = {
    "$NoEntryException": "BKNoSuchEntryException",
    "$NoLedgerException": "BKNoSuchLedgerExistsException",
}
MISMATCHED = "BKDigestMatchException"
NOT_TRIED = "not tried after a time-out"
_AT_A_TIME = 4 << 20


@dataclass
class LedgerRead:
    """A ledger as a client reads it. `error`: why it cannot be opened, or ""."""

    ledger: int
    error: str = ""
    read: list[int] = field(default_factory=list)
    """The entries that a client gets."""
    failed: dict[int, str] = field(default_factory=dict)
    served: list[int] = field(default_factory=list)
    """The entries that the bookie serves, with or without a correct digest."""
    refused: dict[int, JavaError] = field(default_factory=dict)
    """The errors of the bookie."""
    first: JavaError | None = None
    """The error of the first access to the ledger. Later ones may succeed."""


class Client:
    """A client of a storage. `options` are those of the entry log codec."""

    def __init__(self, storage: Storage, options: Options) -> None:
        self.storage, self.options = storage, options

    def ledgers(self) -> Iterator[LedgerRead]:
        for ledger in self.storage.ledgers():
            yield self.ledger(ledger)

    def ledger(self, ledger: int) -> LedgerRead:
        """Open and read a ledger."""
        out = LedgerRead(ledger)
        context = self._context()
        stopped = False
        try:
            self.storage.fenced(ledger)
        except JavaError as raised:
            out.first = raised
        for entries, part in self._contents(ledger, out):
            wrong = [i for i, _ in LOG.refused(part, context)]
            out.served += entries
            for i in wrong:
                out.failed[entries[i]] = MISMATCHED
        for entry, error in out.refused.items():
            out.failed[entry] = _failure(error)
        try:
            self.storage.last_add_confirmed(ledger)
        except JavaError as error:
            # The bookie sends it with each entry.
            out.failed |= dict.fromkeys(out.served, _failure(error))
        for entry in sorted({*out.served, *out.failed}):
            if stopped:
                out.failed[entry] = NOT_TRIED
            elif entry not in out.failed:
                out.read.append(entry)
            stopped = stopped or out.failed.get(entry) == TIME_OUT
        out.error = self._open_error(ledger, context)
        if out.error:
            out.read, out.failed = [], {}
        return out

    def batches(self, ledger: int, entry_ids: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield these entries of a ledger as rows of the view `entries`, with the columns of the schema."""
        chosen, context = set(entry_ids), self._context()
        places = dict(zip(*(array.tolist() for array in self.storage.entries(ledger)), strict=True))
        logger = self.storage.logger(ledger)
        read = [name for name in schema.names if name not in ("file", "position")]
        for entries, part in self._contents(ledger, LedgerRead(ledger)):
            LOG.refused(part, context)  # records the digest types in the context
            kept = [entry for entry in entries if entry in chosen]
            if not kept:
                continue
            mask = np.array([entry in chosen for entry in entries], np.bool_)
            batch = LOG.batch(part.pick(mask), read, context)
            own: dict[str, list[Any]] = {
                "file": [logger.name_of(places[entry] >> 32) for entry in kept],
                "position": [
                    None if places[entry] < 0 else (places[entry] & 0xFFFFFFFF) - 4 for entry in kept
                ],
            }
            arrays = [
                pa.array(own[field.name], field.type) if field.name in own else batch[field.name]
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch

    def _context(self) -> EntryLogContext:
        context: EntryLogContext = LOG.context("", self.options)
        return context

    def _contents(self, ledger: int, out: LedgerRead) -> Iterator[tuple[list[int], Part]]:
        """Yield the entries that the bookie serves, as frames of an entry log."""
        entries, locations = self.storage.entries(ledger)
        held: list[bytes] = []
        ids: list[int] = []
        size = 0
        for entry, location in zip(entries.tolist(), locations.tolist(), strict=True):
            try:
                content = self.storage.read(ledger, entry, location)
            except JavaError as error:
                out.refused[entry] = error
                continue
            ids.append(entry)
            held.append(len(content).to_bytes(4, "big") + content)
            size += len(content)
            if size >= _AT_A_TIME:
                yield ids, LOG.part_of(held)
                held, ids, size = [], [], 0
        if held:
            yield ids, LOG.part_of(held)

    def _open_error(self, ledger: int, context: EntryLogContext) -> str:
        """Return why a client cannot open a ledger; "" if it can."""
        lac = last = None
        status = ""
        try:
            lac = self.storage.explicit_lac(ledger)
        except JavaError as error:
            if error.name == OUT_OF_MEMORY:
                return READ_ERROR  # the connection breaks
            status = _failure(error)
        try:
            last = self.storage.last_content(ledger)
        except JavaError as error:
            status = _failure(error) if error.handled else TIME_OUT
        if status == TIME_OUT:
            return TIME_OUT
        if status == _FAILURES["$NoLedgerException"] or (lac is None and last is None):
            return ""  # "no such entry", which is not an error for a client
        if status or last is None:
            return READ_ERROR
        passwords = context.digests.passwords
        size = context.digests.known.get(ledger, 0 if lac is None else len(lac) - LAC_SIZE)
        password = None if passwords is None else passwords.of(ledger)
        if lac is not None and not lac_matches(ledger, lac, size, password):
            return READ_ERROR
        part = LOG.part_of([len(last).to_bytes(4, "big") + last])
        return READ_ERROR if len(last) < HEADER or LOG.refused(part, context) else ""


def _failure(error: JavaError) -> str:
    """Return the exception of a client whose request fails with this error."""
    if not error.handled:
        return TIME_OUT
    for name, failure in _FAILURES.items():
        if error.name.endswith(name):
            return failure
    return READ_ERROR
