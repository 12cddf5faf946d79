"""The record of named writes, by which a repeated write is recognised.

A killed stream writes its last batch again, whether or not it was written. Each application has one entry: its writes come in order, so the
last version is enough.
"""

from __future__ import annotations

import contextlib
import os

from logwright.codec.fault import LogwrightError, StorageError, UsageError
from logwright.readers.journal import (
    MAX_BYTES,
    TRANSACTIONS,
    JournalError,
    Txn,
    parse_transactions,
    transactions_json,
)
from logwright.writers.filesystem import FileSystem, put_file

TRANSACTIONS_DRAFT = TRANSACTIONS + ".tmp"


class Repeated(LogwrightError):
    """The write has been done already. Not an error for a caller that repeats it."""


def recorded(files: FileSystem, inner: str) -> dict[str, Txn]:
    """Return the last transaction of each application, from the inner staging folder of a target. Raises `StorageError` for an invalid
    record, without which rows could be written twice."""
    path = os.path.join(inner, TRANSACTIONS)
    if not is_recorded(files, inner):
        return {}
    try:
        return parse_transactions(files.read(path, 0, MAX_BYTES))
    except JournalError as error:
        raise StorageError(
            f"invalid record of finished writes: {error}",
            path=path,
            advice="Remove it if no write will be repeated",
        ) from None


def is_recorded(files: FileSystem, inner: str) -> bool:
    """Return whether there is a record."""
    return files.stat(os.path.join(inner, TRANSACTIONS)) is not None


def refuse_repeated(files: FileSystem, inner: str, txn: Txn) -> None:
    """Raise `Repeated` if this or a later version of the application has been written, and `UsageError` if that was by another writer of
    the same name, whose versions are unrelated."""
    last = recorded(files, inner).get(txn.app)
    if last is None or txn.version > last.version:
        return
    if None not in (txn.by, last.by) and txn.by != last.by:
        raise UsageError(
            f"another stream has written version {last.version} of txnAppId {txn.app!r} here; whether version {txn.version} of this "
            "one has been written is unknown",
            path=os.path.dirname(inner),
            advice="A stream with a new checkpoint is a new application: give it another txnAppId",
        )
    raise Repeated(f"version {txn.version} of {txn.app!r} has been written already")


def note_transaction(files: FileSystem, inner: str, txn: Txn | None) -> None:
    """Add a transaction to the record; it is durable when this returns. The caller holds the writers' lock."""
    if txn is not None:
        _put(files, inner, {**recorded(files, inner), txn.app: txn})


def take_over(files: FileSystem, old: str, new: str, txn: Txn | None) -> None:
    """Copy the record of one inner staging folder to another, and add `txn`."""
    last = recorded(files, old)
    if txn is not None:
        last[txn.app] = txn
    if last:
        _put(files, new, last)


def _put(files: FileSystem, inner: str, last: dict[str, Txn]) -> None:
    path = os.path.join(inner, TRANSACTIONS)
    draft = os.path.join(inner, TRANSACTIONS_DRAFT)
    with contextlib.suppress(FileNotFoundError):
        files.remove(draft)
    put_file(files, draft, transactions_json(last).encode())
    files.adopt(draft, inner)
    files.rename(draft, path)
    files.sync_directory(inner)
