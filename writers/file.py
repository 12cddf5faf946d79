"""One file, written whole: beside, synced, renamed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterable

from logwright.codec import registry
from logwright.codec.base import Chunk
from logwright.codec.fault import ExistsError, StorageError, UsageError
from logwright.writers.filesystem import FileSystem, Lock, explained, make_above, unmake, write_all
from logwright.writers.lock import refuse_running
from logwright.writers.stage import FolderListing

_SYNC_BYTES = 64 << 20
"""So much is handed to the disk at a time, so that the last sync is short."""


def put_whole(
    files: FileSystem, path: str, mode: str, encode: Callable[[], Iterable[Chunk]], *, warm: int = _SYNC_BYTES
) -> int:
    """Write one file; returns its size in bytes. Mode "error" wants none there, "overwrite" replaces one.

    `encode` is called when all that can be refused has been.
    """
    if mode == "append":
        raise UsageError(
            "rows can't be appended to a single file",
            path=path,
            advice="Append to its directory, by the layout's name",
        )
    if mode not in ("error", "overwrite"):
        raise UsageError(f"mode {mode!r} is none of error, overwrite")
    target = files.real(path)
    above, name = os.path.split(target)
    _refuse(files, path, target, mode)
    listing = FolderListing(files, above, os.path.basename(above))
    if files.stat(above) is not None:
        layout = registry.detect_layout(listing)
        if layout is not None:
            refuse_running(files, layout, above)
    made = make_above(files, above)
    draft, lock = "", None
    try:
        remove_drafts(files, above, name)
        draft, lock = _draft(files, above, name)
        size = _fill(files, draft, encode(), warm)
        if mode == "error":
            files.rename_new(draft, target)
        else:
            files.rename(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            if lock is not None:
                files.remove(draft)
        unmake(files, made)
        raise
    finally:
        if lock is not None:
            lock.release()
    try:
        files.sync_directory(above)
    except OSError as error:
        raise StorageError(
            f"the file is written, but the disk did not confirm its name: {explained(error, path)}", path=path
        ) from error
    return size


def _refuse(files: FileSystem, path: str, target: str, mode: str) -> None:
    found = files.stat(target)
    if found is None:
        return
    if found.directory:
        raise ExistsError("it is a directory; this codec writes a file", path=path)
    if mode == "error":
        raise ExistsError("it exists", path=path, advice="mode='overwrite' replaces it")


def _draft(files: FileSystem, above: str, name: str) -> tuple[str, Lock]:
    while True:
        # A hidden name that ends in .tmp: no system takes it for one of its own.
        draft = os.path.join(above, f".{name[:200]}.{secrets.token_hex(16)}.tmp")
        lock = files.lock(draft)
        if lock is not None:
            return draft, lock


def _fill(files: FileSystem, path: str, chunks: Iterable[Chunk], warm: int) -> int:
    # Opened, not created: the lock has made it, and who looks for what was left behind sees it locked from the start.
    file = files.open(path)
    try:
        size = synced = 0
        for chunk in chunks:
            size += write_all(file, chunk, size)
            if size - synced >= warm:
                file.sync()
                synced = size
        file.sync()
        return size
    finally:
        file.close()


def remove_drafts(files: FileSystem, above: str, name: str) -> None:
    """Remove what killed writers of this file left."""
    ours = re.compile(re.escape(f".{name[:200]}.") + r"[0-9a-f]{32}\.tmp")
    for item in files.listdir(above):
        path = os.path.join(above, item.name)
        if item.directory or not ours.fullmatch(item.name) or files.stat(path) is None:
            continue
        lock = files.lock(path)
        if lock is not None:
            try:
                files.remove(path)
            finally:
                lock.release()
