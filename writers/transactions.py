"""What has been written under which name: the record by which a repeated write is known.

A stream that is killed writes its last batch once more, whether it had been written or not. Each application has one line: its
writes come one after the other, so that the last version says it all.
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
    """What is to be written has been written already. No error for whoever repeats it."""


def recorded(files: FileSystem, inner: str) -> dict[str, Txn]:
    """The last transaction of each application, from the inner staging directory of a target. Raises `StorageError` for a record
    that can't be understood: without it rows would be written twice."""
    path = os.path.join(inner, TRANSACTIONS)
    if not is_recorded(files, inner):
        return {}
    try:
        return parse_transactions(files.read(path, 0, MAX_BYTES))
    except JournalError as error:
        raise StorageError(
            f"it says which writes have been done, but can't be understood: {error}",
            path=path,
            advice="Remove it where no write is going to be repeated",
        ) from None


def is_recorded(files: FileSystem, inner: str) -> bool:
    """Whether there is a record."""
    return files.stat(os.path.join(inner, TRANSACTIONS)) is not None


def refuse_repeated(files: FileSystem, inner: str, txn: Txn) -> None:
    """Raise `Repeated` where this version of the application, or a later one, has been written, and `UsageError` where that was by
    another writer of the same name, whose numbers say nothing of these rows."""
    last = recorded(files, inner).get(txn.app)
    if last is None or txn.version > last.version:
        return
    if None not in (txn.by, last.by) and txn.by != last.by:
        raise UsageError(
            f"txnAppId {txn.app!r} has come to version {last.version} here, in another stream: whether version {txn.version} of this "
            "one has been written can't be told",
            path=os.path.dirname(inner),
            advice="A stream with a new checkpoint is a new application: give it another txnAppId",
        )
    raise Repeated(f"version {txn.version} of {txn.app!r} has been written already")


def note_transaction(files: FileSystem, inner: str, txn: Txn | None) -> None:
    """Put a transaction into the record; on the disk when this returns. The caller holds the writers' lock."""
    if txn is not None:
        _put(files, inner, {**recorded(files, inner), txn.app: txn})


def take_over(files: FileSystem, old: str, new: str, txn: Txn | None) -> None:
    """Put the record of one inner staging directory, and `txn`, into another one."""
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
