"""Originals, saved whole in a directory of their own before they are changed in place.

    <backup>/<file>          as it was, with its owner, mode and times, under its name in the store's tree (`codec.store.roots`)
    <backup>/backup.json     whose files these are, with their sizes and SHA-256
    <backup>/backup.lock     only while it is not known whether they have been changed

A run that was killed leaves the lock file. The next one with the same backup directory takes away what is there, if nothing is
lost by that: the copies are not complete yet, or all originals are still what was copied.
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
"""Files are copied in pieces of so many bytes."""


def refuse_backup_inside(files: FileSystem, path: str, data: Iterable[str]) -> None:
    """Raise `UsageError` where a backup directory lies in one of the directories `data`, or is above one."""
    real = files.real(path)
    for one in data:
        if _within(real, one) or _within(one, real):
            raise UsageError(
                f"the backup must lie outside {one}", path=path, advice="Any other place will do, on any disk"
            )


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Backup:
    """One backup directory, absent or empty before. `save`, then change the originals, then `keep`; `undo` on any error.

    `of` are the directories of what is saved. Raises `ExistsError` where the directory holds anything that may be missed.
    """

    def __init__(self, files: FileSystem, path: str, of: Roots) -> None:
        self.path = files.real(path)
        self.unreadable: dict[str, int] = {}
        """Bytes of each original that the disk can't read: zeros stand for them."""
        self._files, self._of = files, of
        self._lock: Lock | None = None
        self._named: list[str] = []
        self._folders: list[str] = []
        found = files.stat(self.path)
        if found is not None and not found.directory:
            raise ExistsError("it is a file; a backup is a directory", path=path)
        self._made = make_above(files, self.path)
        try:
            self._begin(path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._free()
                unmake(files, self._made)
            raise

    def _begin(self, path: str) -> None:
        items = self._files.listdir(self.path)
        names, folders = [item.name for item in items], {item.name for item in items if item.directory}
        if names and LOCK not in names:
            raise _holds_something(path)
        lock = self._files.lock(self._at(LOCK))
        if lock is None:
            raise BusyError("another logwright is saving files to it", path=path)
        self._lock = lock
        if names and LIST in names and not self._redundant():
            raise _holds_something(path)
        for name in sorted(names, key=lambda name: name != LIST):
            # The list goes first: without it, what is left is known to be no complete backup.
            if name in folders:
                remove_tree(self._files, self._at(name))
            elif name != LOCK:
                self._files.remove(self._at(name))
        self._files.sync_directory(self.path)

    def _redundant(self) -> bool:
        """Whether all originals are what was saved of them."""
        try:
            saved = json.loads(self._files.read(self._at(LIST)))
            originals = {self._of.at(name): one for name, one in saved["files"].items()}
            return saved["of"] == self._of.own and all(
                self._files.stat(path) is not None and _sum(self._files, path) == one["sha256"]
                for path, one in originals.items()
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
        """Copy files, and make sure that they are on the disk as they were. `open` opens an original, `model` is the path that its
        owner, mode and times are taken from, `facts` are more for the list."""
        saved: dict[str, Any] = {}
        for name in names:
            with open(name) as source:
                saved[name] = self._save(name, source, model(name))
        for name, one in saved.items():
            if _sum(self._files, self._at(name)) != one["sha256"]:
                raise StorageError(
                    "what was saved reads back as something else; nothing has been changed",
                    path=self._at(name),
                    advice="Do not trust that disk: name a backup directory on another one",
                )
        for folder in self._folders:
            self._files.sync_directory(folder)
        text = json.dumps({"backup": VERSION, "of": self._of.own, "files": saved, **facts}, indent=1)
        # Whole from the moment that it has its name: as long as it has not, no original has been changed.
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
                    raise BusyError("it became shorter while it was saved", path=source.path)
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
        """The originals have been changed: this is all there is of them."""
        try:
            self._files.remove(self._at(LOCK))
            self._files.sync_directory(self.path)
        finally:
            self._free()

    def undo(self) -> None:
        """The originals are as they were: leave nothing. Errors are raised last."""
        with contextlib.ExitStack() as steps:
            steps.callback(unmake, self._files, self._made)
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
        "the backup directory is not empty", path=path, advice="Name one that is absent or empty"
    )


def _sum(files: FileSystem, path: str) -> str:
    digest = hashlib.sha256()
    for data in pieces(files, path):
        digest.update(data)
    return digest.hexdigest()


def pieces(files: FileSystem, path: str) -> Iterator[bytes]:
    """A file, in pieces."""
    at = 0
    while data := files.read(path, at, WINDOW):
        yield data
        at += len(data)
