"""Recover what a killed writer left in and beside a directory: finish what was committed, undo the rest.

The token identifies leftovers: a directory beside the target, named `layout.staging(name, token)`, is a staging directory if it holds
`<inner staging>/<token>`. No rename or removal relies on an earlier one being durable unless the directory was synced in between. `commit`
describes how these files are made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from logwright.codec.fault import BusyError, StorageError
from logwright.codec.layout import Layout
from logwright.codec.store.roots import Root, Roots, folder_of
from logwright.readers.journal import (
    COMMIT,
    LINK,
    MAX_BYTES,
    TRANSACTIONS,
    Journal,
    JournalError,
    State,
    link_json,
    parse,
    parse_link,
    sizes_of,
)
from logwright.writers.filesystem import FileSystem, make_above, put_file, remove_tree
from logwright.writers.lock import LOCK, WriterLock, claimed, refuse_running
from logwright.writers.stage import OWNER
from logwright.writers.target import Target, meant
from logwright.writers.transactions import TRANSACTIONS_DRAFT, note_transaction

_LAST = frozenset({LOCK, TRANSACTIONS, TRANSACTIONS_DRAFT})
"""Files that remain in an inner staging directory after its token has been removed."""


def finish_or_undo(files: FileSystem, layout: Layout, path: str, roots: Sequence[Root] = ()) -> None:
    """Finish what an earlier writer of this store committed, and undo the rest. Every writer starts with it.

    Raises `BusyError` if the system or another writer is running, and `StorageError` if a commit cannot be finished; its rows are kept.
    """
    path = meant(files, layout, path)
    target = Target.at(files, layout, path, roots)
    staging = target.roots.below(layout.inner_staging)
    if files.stat(target.path) is not None and any(files.stat(root) is not None for root in staging):
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
    """Recover the inner staging directory. The caller holds its lock."""
    files = target.files
    for item in files.listdir(target.inner):
        place = os.path.join(target.inner, item.name)
        if item.name == TRANSACTIONS_DRAFT:
            with contextlib.suppress(FileNotFoundError):  # or just written again
                files.remove(place)
        if not item.directory or _is_linked(target, place):
            continue
        record = _record(files, place)
        if record is None:
            if not claimed(files, place):
                discard_inside(files, target.inside(item.name))
            continue
        roots = Roots(target.path, record.roots)
        places = roots.below(f"{target.layout.inner_staging}/{item.name}")
        present, staged = _present(files, record, roots), _staged(files, record, places)
        # Without remaining renames or removals it is finished, whatever the system has done to the files since.
        if (
            record.left(staged)
            or record.barrier in present
            or (not record.renames and any(name in present for name in record.removes))
        ):
            if record.state(present, staged) is State.CHANGED:
                raise StorageError(
                    f"{place} holds files committed by an earlier write or repair, but the directory has been changed since, "
                    "so they cannot be renamed into place",
                    path=target.path,
                    advice=f"Move {place} elsewhere to continue without them; its files are complete",
                )
            carry_out(files, roots, places, record)
        _remove_empty_folders(files, roots, record)
        note_transaction(files, target.inner, record.txn)
        discard_inside(files, places)
    for root, path in target.further.items():
        _discard_orphans(target, root, os.path.join(path, target.layout.inner_staging))


def _is_linked(target: Target, place: str) -> bool:
    """Return whether a staging folder belongs to a commit in another directory. If that was committed, finish it; otherwise the folder is
    left alone only while its writer is active."""
    path = os.path.join(place, LINK)
    files = target.files
    if files.stat(path) is None:
        return False
    try:
        of = parse_link(files.read(path, 0, MAX_BYTES))
    except JournalError:
        return False
    if files.stat(os.path.join(of, COMMIT)) is not None:
        finish_or_undo(files, target.layout, os.path.dirname(os.path.dirname(of)))
        return True
    return files.locked(os.path.join(os.path.dirname(of), LOCK)) or claimed(files, of)


def _discard_orphans(target: Target, root: str, inner: str) -> None:
    """Remove staging folders in a further root whose counterpart in the store's own directory is gone, or was never durable."""
    files = target.files
    if files.stat(inner) is None:
        return
    for item in files.listdir(inner):
        own = target.inside(item.name)
        if item.directory and files.stat(own.own) is None and _is_orphan(files, own.of(root), own.own):
            discard_inside(files, own)
    with contextlib.suppress(OSError):  # it is gone already, or another writer uses it too
        files.rmdir(inner)


def _is_orphan(files: FileSystem, place: str, own: str) -> bool:
    """Return whether a staging folder in a further root is linked to `own`, or was abandoned before its link was durable.

    After a crash such a link may be missing, empty or hold zeros. The folder then has no other file, so removing it loses nothing.
    """
    path = os.path.join(place, LINK)
    if files.stat(path) is not None:
        try:
            return parse_link(files.read(path, 0, MAX_BYTES)) == own
        except JournalError:
            if any(item.name != LINK for item in files.listdir(place)):
                return False
    others = [os.path.join(place, COMMIT), os.path.join(place, OWNER)]
    return not files.locked(os.path.join(os.path.dirname(place), LOCK)) and all(
        files.stat(path_of_record) is None for path_of_record in others
    )


def make_places(files: FileSystem, places: Roots) -> None:
    """Make the staging folders, one in each root. Those in further roots are durable when this returns."""
    for place in places:
        inner = os.path.dirname(place)
        for folder in (inner, place) if place != places.own else (place,):
            with contextlib.suppress(FileExistsError):
                files.mkdir(folder)
                files.adopt(folder, os.path.dirname(inner))
        if place != places.own:
            with contextlib.suppress(FileExistsError):
                put_file(files, os.path.join(place, LINK), link_json(places.own).encode())
            for folder in (place, inner, os.path.dirname(inner)):
                files.sync_directory(folder)


def _record(files: FileSystem, place: str) -> Journal | None:
    path = os.path.join(place, COMMIT)
    if files.stat(path) is None:
        return None
    try:
        return parse(files.read(path, 0, MAX_BYTES))
    except JournalError as error:
        raise StorageError(
            f"invalid commit record: {error}",
            path=path,
            advice=f"Move {place} elsewhere to continue without the rows of that commit",
        ) from None


def carry_out(files: FileSystem, roots: Roots, places: Roots, record: Journal) -> None:
    """Do what remains of a commit record; it is durable when this returns. `places` are the staging folders of the roots."""
    left = record.left(_staged(files, record, places))
    barrier = None if record.barrier is None else roots.at(record.barrier)
    if barrier is not None and files.stat(barrier) is None:
        put_file(files, barrier, b"")
        files.sync_directory(roots.own)
    if len(left) == len(record.renames):
        # Removals come first and are synced: once a rename is done, a file of that name is a new one.
        present = _present(files, record, roots)
        going = [roots.at(name) for name in record.removes if name in present]
        for path in going:
            files.remove(path)
        _sync_folders(files, going)
    for source, name in left:
        old, new = places.at(source), roots.at(name)
        if "/" in name:
            for folder in make_above(files, os.path.dirname(new)):
                files.adopt(folder, os.path.dirname(folder))
        if name in record.fingerprint:
            files.rename(old, new)
        else:
            files.rename_new(old, new)  # never replace a file that someone else has created
    # Sync all of them: operations done before a crash may not be durable yet.
    _sync_folders(files, [roots.at(name) for name in (*record.sizes, *record.removes)])
    _sync_folders(files, [places.at(source) for source in record.sources])
    if barrier is not None:
        files.remove(barrier)
        files.sync_directory(roots.own)
    _remove_empty_folders(files, roots, record)


def _sync_folders(files: FileSystem, paths: Iterable[str]) -> None:
    """Sync the directories of files."""
    for folder in sorted({os.path.dirname(path) for path in paths}):
        with contextlib.suppress(FileNotFoundError):
            files.sync_directory(folder)


def _remove_empty_folders(files: FileSystem, roots: Roots, record: Journal) -> None:
    """Remove the sub-folders that have become empty."""
    for name in record.removes:
        folder = folder_of(name)
        while folder and folder not in roots.further:
            path = roots.at(folder)
            folder = folder_of(folder)
            try:
                files.rmdir(path)
                files.sync_directory(os.path.dirname(path))
            except FileNotFoundError:
                continue
            except OSError:
                break  # it is not empty


def _present(files: FileSystem, record: Journal, roots: Roots) -> dict[str, int]:
    """Return the sizes of the files in a record, as far as they exist."""
    return sizes_of(record.targets, roots, lambda path: _size(files, path))


def _staged(files: FileSystem, record: Journal, places: Roots) -> dict[str, int]:
    """Return the sizes of the staged files that are not renamed yet."""
    return sizes_of(record.sources, places, lambda path: _size(files, path))


def _size(files: FileSystem, path: str) -> int | None:
    status = files.stat(path)
    return None if status is None or status.directory else status.size


def discard_inside(files: FileSystem, places: Roots) -> None:
    """Remove a staging folder and its parts in further roots. The commit record goes first, since it must not outlive its files."""
    record = os.path.join(places.own, COMMIT)
    if files.stat(record) is not None:
        files.remove(record)
        files.sync_directory(places.own)
    for place in (*places.further.values(), places.own):
        remove_tree(files, place)
        if place != places.own:
            # Not empty, or gone: another writer uses it too.
            with contextlib.suppress(OSError):
                files.rmdir(os.path.dirname(place))


def recover_beside(target: Target, own: str = "") -> bool:
    """Remove what killed writers left beside the target, except the staging directory with the token `own`. Return whether another writer
    is active there."""
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
                discard_beside(files, place, inner_name)
            else:
                busy = True
        except FileNotFoundError:
            continue  # its writer has just removed it
        finally:
            lock.drop()
    return busy


def _ours(files: FileSystem, place: str, inner_name: str, token: str) -> bool:
    """Return whether a directory with a staging name was made by a writer: it holds the token, or nothing yet."""
    try:
        inner = os.path.join(place, inner_name)
        if files.stat(os.path.join(inner, token)) is not None:
            return True
        if any(item.name != inner_name for item in files.listdir(place)):
            return False
        return files.stat(inner) is None or all(item.name in _LAST for item in files.listdir(inner))
    except FileNotFoundError:
        return False


def discard_beside(files: FileSystem, place: str, inner_name: str) -> None:
    """Remove a staging directory beside a target. The inner folder, which identifies it, goes last."""
    if files.stat(place) is None:
        return
    # Its name may come from an exchange, which must be durable before it is removed.
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
    return BusyError(
        "another logwright process is writing to it", path=path, advice="Try again when that process is done"
    )
