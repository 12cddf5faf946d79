"""A directory with files in further directories (`codec.capability.Spans`), seen as one: `<directory>/<folder>/<file>` lies elsewhere.

So one journal (`writers.commit`) moves the files of all of them. What is staged for a further directory lies in a staging place of its
own in there, of the same token, so that it gets its name by a rename on the same file system; a file beside it (`APART`) says where the
commit record is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from logwright.codec.fault import UsageError
from logwright.readers.journal import APART, COMMIT, MAX_BYTES, JournalError, parse_apart
from logwright.writers.filesystem import FileSystem, Item, Lock, OpenFile, Stat, put_file
from logwright.writers.lock import LOCK
from logwright.writers.stage import OWNER


class Spanning(FileSystem):
    """The file system `files`, with the directories `folders` (by folder name) below `main`, whose staging place is `inner`."""

    def __init__(self, files: FileSystem, main: str, folders: Mapping[str, str], inner: str) -> None:
        self.files, self.main, self.folders, self._inner = files, main, dict(folders), inner
        self._staging = os.path.join(main, inner)

    # Where things lie

    def at(self, path: str) -> str:
        """Where a path leads to."""
        above, name = os.path.split(path)
        below, folder = os.path.split(above)
        if folder in self.folders and self._ours(below):
            return os.path.join(self._there(below, folder), name)
        return path

    def _ours(self, directory: str) -> bool:
        return directory == self.main or self._staged(directory)

    def _staged(self, directory: str) -> bool:
        return f"{directory}/".startswith(f"{self._staging}/")

    def _there(self, directory: str, folder: str) -> str:
        """What a directory of ours is in a further one."""
        return os.path.normpath(os.path.join(self.folders[folder], os.path.relpath(directory, self.main)))

    def _others(self, directory: str) -> list[tuple[str, str]]:
        """The same place in the further directories, where it is one of ours."""
        if not self._ours(directory):
            return []
        return [(folder, self._there(directory, folder)) for folder in self.folders]

    def _is_ours(self, place: str, token: str) -> bool:
        """Whether a staging place in a further directory is of one here, or was left before it said whose it is."""
        path, above = os.path.join(place, APART), os.path.dirname(place)
        if self.files.stat(path) is None or not self.files.read(path, 0, 1):
            others = [os.path.join(place, COMMIT), os.path.join(place, OWNER)]
            return not self.files.locked(os.path.join(above, LOCK)) and all(
                self.files.stat(one) is None for one in others
            )
        try:
            return parse_apart(self.files.read(path, 0, MAX_BYTES)) == os.path.join(self._staging, token)
        except JournalError:
            return False

    # Both

    def mkdir(self, path: str) -> None:
        self.files.mkdir(path)
        if not self._staged(path):
            return
        for _, other in self._others(path):
            if self.files.stat(os.path.dirname(other)) is None:
                self.files.mkdir(os.path.dirname(other))
            with contextlib.suppress(FileExistsError):
                self.files.mkdir(other)
            self.files.adopt(other, os.path.dirname(other))
            if os.path.dirname(path) == self._staging:
                put_file(
                    self.files, os.path.join(other, APART), json.dumps({"apart": 1, "of": path}).encode()
                )
                self.files.sync_directory(other)
                self.files.sync_directory(os.path.dirname(other))

    def rmdir(self, path: str) -> None:
        if self._staged(path):
            for _, other in self._others(path):
                with contextlib.suppress(FileNotFoundError):
                    if os.path.dirname(path) == self._staging:
                        with contextlib.suppress(FileNotFoundError):
                            self.files.remove(os.path.join(other, APART))
                    self.files.rmdir(other)
        self.files.rmdir(path)

    def listdir(self, path: str) -> list[Item]:
        if self._staged(path) and self.files.stat(path) is None and self.stat(path) is not None:
            found = []  # a crash has left the other one only
        else:
            found = self.files.listdir(path)
        names = {item.name for item in found}
        for folder, other in self._others(path):
            try:
                items = self.files.listdir(other)
            except FileNotFoundError:
                continue
            for item in items:
                if not item.directory and item.name != APART:
                    found.append(replace(item, name=f"{folder}/{item.name}"))
                elif (
                    item.directory
                    and self._staged(path)
                    and item.name not in names
                    and (path != self._staging or self._is_ours(os.path.join(other, item.name), item.name))
                ):
                    found.append(item)
        return found

    def sync_directory(self, path: str) -> None:
        for _, other in self._others(path):
            if self.files.stat(other) is not None:
                self.files.sync_directory(other)
        self.files.sync_directory(path)

    # One

    def real(self, path: str) -> str:
        return self.files.real(path)

    def stat(self, path: str) -> Stat | None:
        found = self.files.stat(self.at(path))
        if found is None and self._staged(path):
            return next(
                (
                    it
                    for _, one in self._others(path)
                    if (it := self.files.stat(one)) is not None and it.directory
                ),
                None,
            )
        return found

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.files.read(self.at(path), offset, length)

    def create(self, path: str) -> OpenFile:
        return self.files.create(self.at(path))

    def open(self, path: str) -> OpenFile:
        return self.files.open(self.at(path))

    def remove(self, path: str) -> None:
        self.files.remove(self.at(path))

    def rename(self, old: str, new: str) -> None:
        self.files.rename(self.at(old), self.at(new))

    def rename_new(self, old: str, new: str) -> None:
        self.files.rename_new(self.at(old), self.at(new))

    def exchange(self, one: str, other: str) -> bool:
        return self.files.exchange(one, other)

    def lock(self, path: str) -> Lock | None:
        return self.files.lock(path)

    def locked(self, path: str) -> bool:
        return self.files.locked(path)

    def holder(self, path: str) -> str | None:
        return self.files.holder(path)

    def adopt(self, path: str, model: str, *, permissions: bool = False, times: bool = False) -> bool:
        return self.files.adopt(self.at(path), self.at(model), permissions=permissions, times=times)

    def now(self) -> float:
        return self.files.now()

    def process(self, pid: int | None = None) -> Mapping[str, Any]:
        return self.files.process(pid)

    def lives(self, process: Mapping[str, Any]) -> bool | None:
        return self.files.lives(process)


def refuse_overlapping(files: FileSystem, main: str, folders: Mapping[str, str]) -> None:
    """Raise `UsageError` where a further directory is the directory itself, or a file."""
    for folder, path in folders.items():
        found = files.stat(path)
        if found is not None and not found.directory:
            raise UsageError(f"{folder} is a file, a directory is needed", path=path)
        if path == main:
            raise UsageError(
                f"{folder} is the directory itself",
                path=main,
                advice=f"Leave {folder} away: all files lie together",
            )
