"""Locks: that of the running system, which is only tested, and the writers' own lock, one per directory.

A writer holds an operating-system lock on `<directory>/<inner staging>/lock`, which is released if it is killed. The directory is the
target or, for a new target, the staging directory beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from logwright.codec.fault import BusyError, StorageError
from logwright.codec.layout import Layout
from logwright.writers.filesystem import FileSystem, Lock, put_file
from logwright.writers.stage import OWNER

LOCK = "lock"

_STALE_SECONDS = 24 * 3600
"""Age in seconds at which a staging directory of a driver on another machine counts as abandoned."""


def refuse_running(files: FileSystem, layout: Layout, target: str, instead: str = "") -> None:
    """Raise `BusyError` if the system that owns such directories is running on this one. Takes and creates nothing. `instead` is an
    alternative to stopping it."""
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
    """The lock of one writer on one directory. Its file is in the inner staging directory, which is made if absent."""

    def __init__(self, files: FileSystem, inner: str) -> None:
        self._files = files
        self._inner = inner
        self._lock: Lock | None = None

    def take(self) -> bool:
        """Take the lock. Return False if another writer holds it. Raises `FileNotFoundError` if the directory does not exist."""
        # The previous holder may remove the file and the inner directory between any two steps.
        for _ in range(100):
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(self._inner)
            with contextlib.suppress(FileNotFoundError):
                self._lock = self._files.lock(os.path.join(self._inner, LOCK))
                return self._lock is not None
        raise StorageError(
            "cannot create the writers' lock: its directory is removed repeatedly", path=self._inner
        )

    def moved(self, inner: str) -> None:
        """Update the path after the directory was renamed."""
        self._inner = inner

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            # Removed while held: a process that has opened it meanwhile notices that it is gone.
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(os.path.join(self._inner, LOCK))
            # Not empty: it may hold the staging folder of a write by many tasks.
            with contextlib.suppress(OSError):
                self._files.rmdir(self._inner)
        finally:
            lock.release()

    def drop(self) -> None:
        """Release the lock without touching its file, for a directory that is removed completely."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.release()


def claim(files: FileSystem, work: str, process: int | None = None) -> None:
    """Record that the staging directory `work` belongs to a process, by default this one, while it runs."""
    claim_as(files, work, files.process(process))


def claim_as(files: FileSystem, work: str, process: Mapping[str, Any]) -> None:
    """Record the same for a process of another machine, as described by its `FileSystem.process`."""
    put_file(files, os.path.join(work, OWNER), json.dumps(dict(process)).encode())


def unclaim(files: FileSystem, work: str) -> None:
    """Record that the staging directory belongs to no process."""
    path = os.path.join(work, OWNER)
    if files.stat(path) is not None:
        files.remove(path)


def claimed(files: FileSystem, work: str) -> bool:
    """Return whether the owner of a staging directory is running, or may be."""
    path = os.path.join(work, OWNER)
    status = files.stat(path)
    if status is None:
        return False
    try:
        owner = json.loads(files.read(path, 0, 4096))
    except ValueError:
        owner = None
    lives = files.lives(owner) if isinstance(owner, dict) else False
    if lives is None:
        return files.now() - status.modified < _STALE_SECONDS
    return lives


def busy_inside(files: FileSystem, layout: Layout, target: str) -> bool:
    """Return whether another writer is active in a directory. Takes and creates nothing."""
    inner = os.path.join(target, layout.inner_staging)
    if files.stat(inner) is None:
        return False
    return files.locked(os.path.join(inner, LOCK)) or any(
        claimed(files, os.path.join(inner, item.name)) for item in files.listdir(inner) if item.directory
    )
