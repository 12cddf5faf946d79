"""What a killed writer left in and beside a directory: what it had committed is finished, what it had not is undone.

It is told from the system's own files by the token: a directory beside the target, named `layout.staging(name, token)`, is ours when
it holds `<inner staging>/<token>`. No rename and no removal relies on another one being on the disk unless the directory has been
synced in between. How all this is made is in `commit`.
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
"""What is left of an inner staging directory when its token has been removed."""


def finish_or_undo(files: FileSystem, layout: Layout, path: str, roots: Sequence[Root] = ()) -> None:
    """Finish what an earlier writer of this store committed, and undo what it did not. Every writer begins with it.

    Raises `BusyError` when the system or another writer is at work, `StorageError` when something was committed that can't
    be carried out any more; its rows are kept.
    """
    path = meant(files, layout, path)
    target = Target.at(files, layout, path, roots)
    staging = target.roots.below(layout.inner_staging)
    if files.stat(target.path) is not None and any(files.stat(one) is not None for one in staging):
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
        # With nothing left to rename, or to remove, it is finished, whatever the system has made of the files since.
        if (
            record.left(staged)
            or record.barrier in present
            or (not record.renames and any(name in present for name in record.removes))
        ):
            if record.state(present, staged) is State.CHANGED:
                raise StorageError(
                    f"files committed by an earlier write or repair are still in {place}, and the directory has been changed since, "
                    "so they can't be put in place any more",
                    path=target.path,
                    advice=f"Move {place} away to go on without them; their files are complete",
                )
            carry_out(files, roots, places, record)
        _remove_empty_folders(files, roots, record)
        note_transaction(files, target.inner, record.txn)
        discard_inside(files, places)
    for root, path in target.further.items():
        _discard_orphans(target, root, os.path.join(path, target.layout.inner_staging))


def _is_linked(target: Target, place: str) -> bool:
    """Return whether a staging place belongs to a commit of another directory. What was committed there is finished; what was not is left
    alone only while it is being made."""
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
    """Remove the staging places in a further root whose place in the store's own directory is gone, or was never on the disk."""
    files = target.files
    if files.stat(inner) is None:
        return
    for item in files.listdir(inner):
        own = target.inside(item.name)
        if item.directory and files.stat(own.own) is None and _is_orphan(files, own.of(root), own.own):
            discard_inside(files, own)
    with contextlib.suppress(OSError):  # it is gone already, or another writer's too
        files.rmdir(inner)


def _is_orphan(files: FileSystem, place: str, own: str) -> bool:
    """Return whether a staging place in a further root is linked to `own`, or was left before it was linked."""
    path = os.path.join(place, LINK)
    if files.stat(path) is None or not files.read(path, 0, 1):
        others = [os.path.join(place, COMMIT), os.path.join(place, OWNER)]
        return not files.locked(os.path.join(os.path.dirname(place), LOCK)) and all(
            files.stat(one) is None for one in others
        )
    try:
        return parse_link(files.read(path, 0, MAX_BYTES)) == own
    except JournalError:
        return False


def make_places(files: FileSystem, places: Roots) -> None:
    """Make the directories of a staging place, one in each root, as far as they are not there. Those in further roots are on the disk when
    this returns."""
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
            f"it says that rows were committed, but can't be understood: {error}",
            path=path,
            advice=f"Move {place} away to go on without those rows",
        ) from None


def carry_out(files: FileSystem, roots: Roots, places: Roots, record: Journal) -> None:
    """Do what is left of a commit record; on the disk when this returns. `places` are the staging places of the store's directories."""
    left = record.left(_staged(files, record, places))
    barrier = None if record.barrier is None else roots.at(record.barrier)
    if barrier is not None and files.stat(barrier) is None:
        put_file(files, barrier, b"")
        files.sync_directory(roots.own)
    if len(left) == len(record.renames):
        # Removals first, and on the disk: what is there once a rename has been done was not there to be removed.
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
            files.rename_new(old, new)  # never over a file that someone else has put there
    # All of them: what was done before a crash may not be on the disk yet.
    _sync_folders(files, [roots.at(name) for name in (*record.sizes, *record.removes)])
    _sync_folders(files, [places.at(source) for source in record.sources])
    if barrier is not None:
        files.remove(barrier)
        files.sync_directory(roots.own)
    _remove_empty_folders(files, roots, record)


def _sync_folders(files: FileSystem, paths: Iterable[str]) -> None:
    """Put the names of files on the disk."""
    for folder in sorted({os.path.dirname(path) for path in paths}):
        with contextlib.suppress(FileNotFoundError):
            files.sync_directory(folder)


def _remove_empty_folders(files: FileSystem, roots: Roots, record: Journal) -> None:
    """Remove the sub-folders that have no files any more."""
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
    """Return the sizes of the files that a record speaks of, as far as they are there."""
    return sizes_of(record.targets, roots, lambda path: _size(files, path))


def _staged(files: FileSystem, record: Journal, places: Roots) -> dict[str, int]:
    """Return the sizes of the staged files that are not renamed yet."""
    return sizes_of(record.sources, places, lambda path: _size(files, path))


def _size(files: FileSystem, path: str) -> int | None:
    found = files.stat(path)
    return None if found is None or found.directory else found.size


def discard_inside(files: FileSystem, places: Roots) -> None:
    """Remove a staging place, with its parts in further roots. No commit record may outlive the files that it speaks of."""
    record = os.path.join(places.own, COMMIT)
    if files.stat(record) is not None:
        files.remove(record)
        files.sync_directory(places.own)
    for place in (*places.further.values(), places.own):
        remove_tree(files, place)
        if place != places.own:
            # Not empty, or not there: it is another writer's too.
            with contextlib.suppress(OSError):
                files.rmdir(os.path.dirname(place))


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
