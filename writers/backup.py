"""Save files to a separate directory before they are changed in place.

    <backup>/<file>          the original with its owner, mode and times, under its name in the store's tree (`codec.store.roots`)
    <backup>/backup.json     the directory of the files, their sizes and SHA-256
    <backup>/backup.lock     exists only while it is uncertain whether the originals have been changed

A killed run leaves the lock file. The next run with the same backup directory removes its content if nothing is lost by that: the copies
are incomplete, or all originals are unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from logwright.codec.fault import BusyError, ExistsError, StorageError, UsageError
from logwright.codec.frames.walk import zero_filled
from logwright.codec.store.roots import Roots
from logwright.readers.source import Source
from logwright.writers.filesystem import (
    FileSystem,
    Lock,
    make_above,
    put_file,
    remove_tree,
    unmake,
    write_all,
)

LIST = "backup.json"
LOCK = "backup.lock"
VERSION = 1
WINDOW = 4 << 20
"""Files are copied in windows of this many bytes."""


def refuse_backup_inside(files: FileSystem, path: str, data: Iterable[str]) -> None:
    """Raise `UsageError` if a backup directory is inside one of the directories `data`, or above one."""
    real = files.real(path)
    for directory in data:
        if _within(real, directory) or _within(directory, real):
            raise UsageError(
                f"the backup must be outside {directory}",
                path=path,
                advice="Use a directory outside of it, on any disk",
            )


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Backup:
    """A backup directory, absent or empty before. Call `save`, change the originals, then call `keep`; call `undo` on any error.

    `of` are the directories of the saved files. Raises `ExistsError` if the directory holds anything that could be lost.
    """

    def __init__(self, files: FileSystem, path: str, of: Roots) -> None:
        self.path = files.real(path)
        self.unreadable: dict[str, int] = {}
        """Number of bytes of each original that the disk cannot read, saved as zeros."""
        self._files, self._of = files, of
        self._lock: Lock | None = None
        self._named: list[str] = []
        self._folders: list[str] = []
        existing = files.stat(self.path)
        if existing is not None and not existing.directory:
            raise ExistsError("it is a file; a backup is a directory", path=path)
        self._created = make_above(files, self.path)
        try:
            self._begin(path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._free()
                unmake(files, self._created)
            raise

    def _begin(self, path: str) -> None:
        items = self._files.listdir(self.path)
        names, folders = [item.name for item in items], {item.name for item in items if item.directory}
        if names and LOCK not in names:
            raise _holds_something(path)
        lock = self._files.lock(self._at(LOCK))
        if lock is None:
            raise BusyError("another logwright process is saving files here", path=path)
        self._lock = lock
        if names and LIST in names and not self._redundant():
            raise _holds_something(path)
        for name in sorted(names, key=lambda name: name != LIST):
            # The list is removed first: without it the rest is known to be an incomplete backup.
            if name in folders:
                remove_tree(self._files, self._at(name))
            elif name != LOCK:
                self._files.remove(self._at(name))
        self._files.sync_directory(self.path)

    def _redundant(self) -> bool:
        """Return whether all originals are unchanged."""
        try:
            saved = json.loads(self._files.read(self._at(LIST)))
            originals = {self._of.at(name): entry for name, entry in saved["files"].items()}
            return saved["of"] == self._of.own and all(
                self._files.stat(path) is not None and _sum(self._files, path) == entry["sha256"]
                for path, entry in originals.items()
            )
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            return False

    def save(
        self,
        names: Iterable[str],
        open: Callable[[str], AbstractContextManager[Source]],
        model: Callable[[str], str],
        facts: Mapping[str, Any],
    ) -> None:
        """Copy files and verify the copies. `open` opens an original, `model` returns the path to take owner, mode and times from, and
        `facts` are added to the list."""
        saved: dict[str, Any] = {}
        for name in names:
            with open(name) as source:
                saved[name] = self._save(name, source, model(name))
        for name, entry in saved.items():
            if _sum(self._files, self._at(name)) != entry["sha256"]:
                raise StorageError(
                    "the saved file reads back with different content; nothing has been changed",
                    path=self._at(name),
                    advice="Do not trust this disk: use a backup directory on another one",
                )
        for folder in self._folders:
            self._files.sync_directory(folder)
        text = json.dumps({"backup": VERSION, "of": self._of.own, "files": saved, **facts}, indent=1)
        # Renamed into place complete. Until then no original is changed.
        self._named += [LIST, LIST + ".tmp"]
        put_file(self._files, self._at(LIST + ".tmp"), text.encode())
        self._files.rename(self._at(LIST + ".tmp"), self._at(LIST))
        self._files.sync_directory(self.path)

    def _save(self, name: str, source: Source, model: str) -> dict[str, Any]:
        self._named.append(name)
        path, digest = self._at(name), hashlib.sha256()
        self._folders += make_above(self._files, os.path.dirname(path))
        file = self._files.create(path)
        try:
            at = 0
            while at < source.size:
                data, gaps = zero_filled(source, at, WINDOW)
                if not len(data):
                    raise BusyError("the file was truncated while it was being saved", path=source.path)
                for gap in gaps:
                    self.unreadable[name] = self.unreadable.get(name, 0) + gap.length
                digest.update(data.data)
                at += write_all(file, data, at)
            self._files.adopt(path, model, permissions=True, times=True)
            file.sync()
        finally:
            file.close()
        return {"size": source.size, "sha256": digest.hexdigest(), "unreadable": self.unreadable.get(name, 0)}

    def keep(self) -> None:
        """Keep the backup: the originals have been changed."""
        try:
            self._files.remove(self._at(LOCK))
            self._files.sync_directory(self.path)
        finally:
            self._free()

    def undo(self) -> None:
        """Remove the backup: the originals are unchanged. Errors are raised last."""
        with contextlib.ExitStack() as steps:
            steps.callback(unmake, self._files, self._created)
            steps.callback(self._free)
            steps.callback(self._remove, LOCK)
            steps.callback(unmake, self._files, self._folders)
            for name in self._named:
                steps.callback(self._remove, name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._at(name))

    def _free(self) -> None:
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.release()

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)


def _holds_something(path: str) -> ExistsError:
    return ExistsError(
        "the backup directory is not empty", path=path, advice="Use one that is absent or empty"
    )


def _sum(files: FileSystem, path: str) -> str:
    digest = hashlib.sha256()
    for data in pieces(files, path):
        digest.update(data)
    return digest.hexdigest()


def pieces(files: FileSystem, path: str) -> Iterator[bytes]:
    """Iterate over the windows of a file."""
    at = 0
    while data := files.read(path, at, WINDOW):
        yield data
        at += len(data)
