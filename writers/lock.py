"""Locks: the running system's, which are only tested, and the writers' own, of which there is one for each directory.

A writer holds an operating-system lock on `<directory>/<inner staging>/lock`, so that a killed one holds nothing. The
directory is the target or, where a new one is made, the staging directory beside it.
"""

from __future__ import annotations

import contextlib
import json
import os

from logwright.codec.fault import BusyError, StorageError
from logwright.codec.layout import Layout
from logwright.writers.filesystem import FileSystem, Lock, put_file
from logwright.writers.stage import OWNER

LOCK = "lock"

_STALE_SECONDS = 24 * 3600
"""A staging directory whose driver ran on another machine counts as left behind when it is so old."""


def refuse_running(files: FileSystem, layout: Layout, target: str, instead: str = "") -> None:
    """Raise `BusyError` when the system that owns such directories runs on this one. Takes and creates nothing. `instead` is
    what may be done instead of stopping it."""
    for relative in layout.locks():
        path = os.path.normpath(os.path.join(target, relative))
        holder = files.holder(path)
        if holder is not None:
            system = layout.name.partition(".")[0]
            raise BusyError(
                f"{system} is running on this directory: {path} is locked by {holder}",
                path=target,
                advice=f"Stop it first, or {instead or f'write to a directory that no running {system} uses'}",
            )


class WriterLock:
    """The lock of one writer on one directory, and the inner staging directory that it lies in, made if absent."""

    def __init__(self, files: FileSystem, inner: str) -> None:
        self._files = files
        self._inner = inner
        self._lock: Lock | None = None

    def take(self) -> bool:
        """False when another writer holds it. Raises `FileNotFoundError` when the directory itself is not there."""
        # The one before us may remove file and inner directory at any moment between our steps.
        for _ in range(100):
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(self._inner)
            with contextlib.suppress(FileNotFoundError):
                self._lock = self._files.lock(os.path.join(self._inner, LOCK))
                return self._lock is not None
        raise StorageError(
            "the writers' lock can't be made: its directory is removed again and again", path=self._inner
        )

    def moved(self, inner: str) -> None:
        """The directory has been renamed."""
        self._inner = inner

    def release(self) -> None:
        """Free it, and leave nothing behind."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            # Removed while it is held: whoever opened it meanwhile sees that it is gone.
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(os.path.join(self._inner, LOCK))
            # Not empty: something in there is not ours to remove, a staging of many tasks for instance.
            with contextlib.suppress(OSError):
                self._files.rmdir(self._inner)
        finally:
            lock.release()

    def drop(self) -> None:
        """Free it, and touch nothing: for a directory that is removed as a whole."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.release()


def claim(files: FileSystem, work: str, process: int | None = None) -> None:
    """Say which process (by default this one) the staging directory `work` belongs to, for as long as it runs."""
    put_file(files, os.path.join(work, OWNER), json.dumps(dict(files.process(process))).encode())


def unclaim(files: FileSystem, work: str) -> None:
    """The staging directory belongs to no process any more."""
    path = os.path.join(work, OWNER)
    if files.stat(path) is not None:
        files.remove(path)


def claimed(files: FileSystem, work: str) -> bool:
    """Whether the process that a staging directory belongs to still runs, or may still run."""
    path = os.path.join(work, OWNER)
    found = files.stat(path)
    if found is None:
        return False
    try:
        owner = json.loads(files.read(path, 0, 4096))
    except ValueError:
        owner = None
    lives = files.lives(owner) if isinstance(owner, dict) else False
    if lives is None:
        return files.now() - found.modified < _STALE_SECONDS
    return lives


def busy_inside(files: FileSystem, layout: Layout, target: str) -> bool:
    """Whether another writer is at work in a directory. Takes and creates nothing."""
    inner = os.path.join(target, layout.inner_staging)
    if files.stat(inner) is None:
        return False
    return files.locked(os.path.join(inner, LOCK)) or any(
        claimed(files, os.path.join(inner, item.name)) for item in files.listdir(inner) if item.directory
    )
