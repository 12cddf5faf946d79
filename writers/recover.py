"""What a killed writer left in and beside a directory: what it had committed is finished, what it had not is undone.

It is told from the system's own files by the token: a directory beside the target, named `layout.staging(name, token)`, is ours when
it holds `<inner staging>/<token>`. No rename and no removal relies on another one being on the disk unless the directory has been
synced in between. How all this is made is in `commit`.
"""

from __future__ import annotations

import contextlib
import os

from logwright.codec.fault import BusyError, StorageError
from logwright.codec.layout import Layout
from logwright.readers.journal import (
    APART,
    COMMIT,
    MAX_BYTES,
    TRANSACTIONS,
    Journal,
    JournalError,
    State,
    parse,
    parse_apart,
)
from logwright.writers.filesystem import FileSystem, put_file, remove_tree, sizes
from logwright.writers.lock import LOCK, WriterLock, claimed, refuse_running
from logwright.writers.spanning import Spanning
from logwright.writers.target import Target, meant
from logwright.writers.transactions import TRANSACTIONS_DRAFT, note_transaction

_LAST = frozenset({LOCK, TRANSACTIONS, TRANSACTIONS_DRAFT})
"""What is left of an inner staging directory when its token has been removed."""


def finish_or_undo(files: FileSystem, layout: Layout, path: str) -> None:
    """Finish what an earlier writer of this directory committed, and undo what it did not. Every writer begins with it.

    Raises `BusyError` when the system or another writer is at work, `StorageError` when something was committed that can't
    be carried out any more; its rows are kept.
    """
    path = meant(files, layout, path)
    target = Target.at(files, layout, path)
    if files.stat(target.inner) is not None:
        refuse_running(files, layout, target.path)
        lock = WriterLock(files, target.inner)
        if not lock.take():
            raise at_work(path)
        try:
            recover_inside(target)
        finally:
            lock.release()
    if files.stat(target.above) is not None:
        recover_beside(target)


def recover_inside(target: Target) -> None:
    """Finish or undo what lies in the inner staging directory; the caller holds its lock."""
    files = target.files
    for item in files.listdir(target.inner):
        place = os.path.join(target.inner, item.name)
        if item.name == TRANSACTIONS_DRAFT:
            with contextlib.suppress(FileNotFoundError):  # or written anew, just now
                files.remove(place)
        if not item.directory or _kept_apart(target, place):
            continue
        files = target.files
        record = _record(files, place)
        if record is None:
            if not claimed(files, place):
                discard_inside(files, place)
            continue
        if record.folders and not isinstance(files, Spanning):
            files = target.spanning(record.folders).files
        present, staged = sizes(files, target.path), sizes(files, place)
        # With nothing left to rename, or to remove, it is finished, whatever the system has made of the files since.
        if (
            record.left(staged)
            or record.guard in present
            or (not record.renames and any(name in present for name in record.removes))
        ):
            if record.state(present, staged) is State.CHANGED:
                raise StorageError(
                    f"files committed by an earlier write or repair are still in {place}, and the directory has been changed since, "
                    "so they can't be put in place any more",
                    path=target.path,
                    advice=f"Move {place} away to go on without them; their files are complete",
                )
            carry_out(files, target.path, place, record)
        note_transaction(files, target.inner, record.txn)
        discard_inside(files, place)


def _kept_apart(target: Target, place: str) -> bool:
    """Whether a staging place belongs to a commit of another directory. What was committed there is finished; what was not is left alone
    only while it is being made."""
    path = os.path.join(place, APART)
    files = target.files
    if files.stat(path) is None:
        return False
    try:
        of = parse_apart(files.read(path, 0, MAX_BYTES))
    except JournalError:
        return False
    if files.stat(os.path.join(of, COMMIT)) is not None:
        finish_or_undo(files, target.layout, os.path.dirname(os.path.dirname(of)))
        return True
    return files.locked(os.path.join(os.path.dirname(of), LOCK)) or claimed(files, of)


def _record(files: FileSystem, place: str) -> Journal | None:
    path = os.path.join(place, COMMIT)
    if files.stat(path) is None:
        return None
    try:
        return parse(files.read(path, 0, MAX_BYTES))
    except JournalError as error:
        raise StorageError(
            f"it says that rows were committed, but can't be understood: {error}",
            path=path,
            advice=f"Move {place} away to go on without those rows",
        ) from None


def carry_out(files: FileSystem, target: str, place: str, record: Journal) -> None:
    """Do what is left of a commit record; on the disk when this returns."""
    left = record.left(sizes(files, place))
    guard = None if record.guard is None else os.path.join(target, record.guard)
    if guard is not None and files.stat(guard) is None:
        put_file(files, guard, b"")
        files.sync_directory(target)
    if len(left) == len(record.renames):
        # Removals first, and on the disk: what is there once a rename has been done was not there to be removed.
        present = sizes(files, target)
        going = [name for name in record.removes if name in present]
        for name in going:
            files.remove(os.path.join(target, name))
        if going:
            files.sync_directory(target)
    for source, name in left:
        old, new = os.path.join(place, source), os.path.join(target, name)
        if name in record.fingerprint:
            files.rename(old, new)
        else:
            files.rename_new(old, new)  # never over a file that someone else has put there
    files.sync_directory(target)
    files.sync_directory(place)
    if guard is not None:
        files.remove(guard)
        files.sync_directory(target)


def discard_inside(files: FileSystem, place: str) -> None:
    """Remove a staging directory inside a target. No commit record may outlive the files that it speaks of."""
    if files.stat(place) is None:
        return
    record = os.path.join(place, COMMIT)
    if files.stat(record) is not None:
        files.remove(record)
        files.sync_directory(place)
    remove_tree(files, place)


def recover_beside(target: Target, own: str = "") -> bool:
    """Remove what killed writers left beside the target, but for the staging directory with the token `own`. Returns whether
    another one is at work there."""
    files, inner_name = target.files, target.layout.inner_staging
    busy = False
    for item in files.listdir(target.above):
        token = target.token_of(item.name)
        if token is None or token == own or not item.directory:
            continue
        place = os.path.join(target.above, item.name)
        inner = os.path.join(place, inner_name)
        if not _ours(files, place, inner_name, token) or claimed(files, os.path.join(inner, token)):
            continue
        lock = WriterLock(files, inner)
        try:
            if lock.take():
                discard_beside(files, place, inner_name, token)
            else:
                busy = True
        except FileNotFoundError:
            continue  # its own writer has just removed it
        finally:
            lock.drop()
    return busy


def _ours(files: FileSystem, place: str, inner_name: str, token: str) -> bool:
    """Whether a directory with a staging name was made by a writer: it holds the token, or nothing yet."""
    try:
        inner = os.path.join(place, inner_name)
        if files.stat(os.path.join(inner, token)) is not None:
            return True
        if any(item.name != inner_name for item in files.listdir(place)):
            return False
        return files.stat(inner) is None or all(item.name in _LAST for item in files.listdir(inner))
    except FileNotFoundError:
        return False


def discard_beside(files: FileSystem, place: str, inner_name: str, token: str) -> None:
    """Remove a staging directory beside a target: the mark that it is ours goes last."""
    if files.stat(place) is None:
        return
    # The name it has now may be one that an exchange gave it, and the other one must be on the disk before this one goes.
    files.sync_directory(os.path.dirname(place))
    for item in files.listdir(place):
        path = os.path.join(place, item.name)
        if item.name == inner_name and item.directory:
            continue
        if item.directory:
            remove_tree(files, path)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.remove(path)
    files.sync_directory(place)
    remove_tree(files, os.path.join(place, inner_name))
    with contextlib.suppress(FileNotFoundError):
        files.rmdir(place)


def at_work(path: str) -> BusyError:
    return BusyError("another logwright is writing to it", path=path, advice="Try again when that is done")
