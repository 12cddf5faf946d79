"""Queues of files of a fixed size, each named after the offset of its first byte.

Source: `MappedFileQueue`, `DefaultMappedFile` of RocketMQ. Truncation does not shrink a file. It only lowers the write position; the bytes
after it stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from logwright.codec.store.overlay import Overlay

_LONG = re.compile(r"[+-]?[0-9]{1,20}")


class LoadError(Exception):
    """The broker cannot load the store. The text is its log message."""


class MappedFile:
    """A file. `wrote` is the write position."""

    def __init__(self, overlay: Overlay, name: str, base: int, size: int) -> None:
        self.overlay, self.name, self.base, self.size, self.wrote = overlay, name, base, size, size
        self._changed: bytearray | None = None

    def read(self, position: int = 0, length: int | None = None) -> bytes:
        if self._changed is not None:
            return bytes(self._changed[position : self.size if length is None else position + length])
        return self.overlay.read(self.name, position, self.size - position if length is None else length)

    def write(self, position: int, data: bytes) -> None:
        if self._changed is None:
            self._changed = bytearray(self.read()).ljust(self.size, b"\0")
        self._changed[position : position + len(data)] = data

    def append(self, data: bytes) -> None:
        self.write(self.wrote, data)
        self.wrote += len(data)

    @property
    def full(self) -> bool:
        return self.wrote >= self.size

    def flush(self) -> None:
        if self._changed is not None:
            # A file may be longer than the part that is mapped.
            beyond = self.overlay.read(self.name, self.size, max(self.overlay.size(self.name) - self.size, 0))
            self.overlay.put(self.name, bytes(self._changed) + beyond)


class MappedFileQueue:
    """The files of one or several folders, ordered by name."""

    def __init__(self, overlay: Overlay, folder: str, size: int) -> None:
        self.overlay, self.folder, self.size = overlay, folder, size
        self.files: list[MappedFile] = []

    def load(self, names: Iterable[str], *, old: bool) -> None:
        """Load files. `old` is set for a release before 5.1.3. Raises `LoadError`."""
        ordered = sorted(names, key=lambda name: name.rpartition("/")[2])
        for i, name in enumerate(ordered):
            size = self.overlay.size(name)
            if size == 0 and i == len(ordered) - 1 and not old:
                self.overlay.delete(name)
                continue
            if size != self.size:
                raise LoadError(
                    f"{name}\t{size} length not matched message store config value, please check it manually"
                )
            base = name.rpartition("/")[2]
            if not _LONG.fullmatch(base):
                raise LoadError(f'NumberFormatException: For input string: "{base}"')
            self.files.append(MappedFile(self.overlay, name, int(base), self.size))

    @property
    def min_offset(self) -> int:
        return self.files[0].base if self.files else -1

    @property
    def max_offset(self) -> int:
        return self.files[-1].base + self.files[-1].wrote if self.files else 0

    def find(self, offset: int, *, or_first: bool = False) -> MappedFile | None:
        """Return the file that holds the byte at `offset` (`findMappedFileByOffset`)."""
        if not self.files:
            return None
        first, last = self.files[0], self.files[-1]
        if first.base <= offset < last.base + self.size:
            index = offset // self.size - first.base // self.size
            if (
                0 <= index < len(self.files)
                and self.files[index].base <= offset < self.files[index].base + self.size
            ):
                return self.files[index]
            for file in self.files:
                if file.base <= offset < file.base + self.size:
                    return file
        return first if or_first else None

    def last_for(self, offset: int) -> MappedFile:
        """Return the file to append to. Create one if the last is full, or for `offset` if no file exists."""
        if self.files and not self.files[-1].full:
            return self.files[-1]
        base = self.files[-1].base + self.size if self.files else offset - offset % self.size
        name = f"{self.folder}/{base:020d}"
        file = MappedFile(self.overlay, name, base, self.size)
        self.overlay.put(name, bytes(self.size))
        file.wrote = 0
        self.files.append(file)
        return file

    def truncate(self, offset: int) -> None:
        """Truncate the queue at `offset` and delete the files after it (`truncateDirtyFiles`)."""
        for file in list(self.files):
            if file.base + self.size > offset:
                if offset >= file.base:
                    file.wrote = offset % self.size
                else:
                    self.delete(file)

    def delete(self, file: MappedFile) -> None:
        self.overlay.delete(file.name)
        self.files.remove(file)

    def flush(self) -> None:
        for file in self.files:
            file.flush()
