"""Directories as layouts see them, on the injected file system: the target, and the one where its new files are made."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from logwright.codec.fault import LogwrightError, StorageError
from logwright.codec.store.build import Piece
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.window import Bytes, Chunk
from logwright.readers.journal import APART, COMMIT
from logwright.readers.source import Source
from logwright.writers.filesystem import FileSystem, OpenFile, remove_tree, write_all

OWNER = "owner.json"
"""The file in a staging directory of many tasks that says which process its driver is."""

_RESERVED = frozenset({APART, COMMIT, COMMIT + ".tmp", OWNER})


class FileSource(AbstractContextManager["FileSource"]):
    """`readers.source.Source` over a file of the injected file system."""

    def __init__(self, files: FileSystem, path: str) -> None:
        found = files.stat(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.path, self.size, self._files = path, found.size, files

    def pread(self, offset: int, length: int) -> Bytes:
        # A copy, since kernels are compiled for arrays that may be written to.
        return np.frombuffer(self._files.read(self.path, offset, length), np.uint8).copy()

    def ahead(self, offset: int, length: int) -> None: ...

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class FolderListing:
    """`codec.layout.Listing` over a directory. It looks anew each time: staged files grow."""

    def __init__(self, files: FileSystem, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._files = files

    def entries(self) -> Sequence[Entry]:
        return [Entry(item.name, item.size) for item in self._files.listdir(self.path) if not item.directory]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._files.read(os.path.join(self.path, name), offset, length)

    def real(self, name: str) -> str:
        """The path of a file."""
        return os.path.join(self.path, name)

    def open(self, name: str) -> Source:
        """A file, open for reading."""
        return FileSource(self._files, self.real(name))

    def parent(self) -> Listing | None:
        above = os.path.dirname(self.path)
        if above == self.path:
            return None
        try:
            self._files.listdir(above)
        except OSError:
            return None
        return FolderListing(self._files, above, os.path.basename(above))


class StagedFolder(FolderListing):
    """`codec.layout.Stage`: files being made, appended to piece by piece, each on the disk once it is closed.

    A file stays open until its last piece has come or `close` is called; `close` also puts their names on the disk.
    """

    def __init__(
        self,
        files: FileSystem,
        path: str,
        name: str,
        parent: Listing | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        super().__init__(files, path, name)
        self._parent = parent
        self.folders = folders
        """What names may begin with, of files of further directories (`writers.spanning`)."""
        self._open: dict[str, OpenFile] = {}
        self._size: dict[str, int] = {}

    def parent(self) -> Listing | None:
        """What lies above the directory that is being made."""
        return self._parent

    def take(self, pieces: Iterable[Piece]) -> None:
        """Carry out what a builder says."""
        for piece in pieces:
            self.append(piece.name, piece.data)
            if piece.done:
                self.close_file(piece.name)

    def append(self, name: str, data: Chunk) -> None:
        file = self._file(name)
        self._size[name] += write_all(file, data, self._size[name])

    def write(self, name: str, offset: int, data: Chunk) -> None:
        end = offset + len(data)
        file = self._file(name)
        if offset < 0 or end > self._size[name]:
            raise ValueError(f"bytes {offset}..{end} are not all in {name}, which has {self._size[name]}")
        write_all(file, data, offset)

    def staged(self) -> dict[str, int]:
        """The sizes of all files made here, by name."""
        return dict(self._size)

    def adopt(self, name: str, size: int) -> None:
        """Count in a file that came here by a rename."""
        self._size[name] = size

    def drop(self, name: str) -> None:
        """Make a staged file not to have been."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()
        del self._size[name]
        self._files.remove(self.real(name))

    def flush(self) -> None:
        """Put the data of all files on the disk."""
        for name in list(self._open):
            self.close_file(name)

    def close(self) -> None:
        """Put the data and the names of all files on the disk."""
        self.flush()
        self._files.sync_directory(self.path)

    def abandon(self) -> None:
        """Close all files, whatever comes of them."""
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.close()
        self._open.clear()

    def _file(self, name: str) -> OpenFile:
        file = self._open.get(name)
        if file is not None:
            return file
        path = os.path.join(self.path, name)
        found = self._files.stat(path) if name in self._size else None
        if found is None:
            file = self._files.create(os.path.join(self.path, checked(name, self.folders)))
            self._open[name] = file
            self._size[name] = 0
            self._files.adopt(path, self.path)
            return file
        else:
            file = self._files.open(path)
        self._open[name] = file
        return file

    def close_file(self, name: str) -> None:
        """Put the data of a file that is being made on the disk."""
        file = self._open.pop(name)
        try:
            file.sync()
        finally:
            file.close()


class ScratchFolder(StagedFolder):
    """A folder for what is needed on the way. It is made when the first file is."""

    def __init__(self, files: FileSystem, path: str, name: str) -> None:
        super().__init__(files, path, name)
        self._made = False

    def append(self, name: str, data: Chunk) -> None:
        if not self._made:
            self._files.mkdir(self.path)
            self._files.adopt(self.path, os.path.dirname(self.path))
            self._made = True
        super().append(name, data)

    def discard(self) -> None:
        """Remove it with all that is in it."""
        self.abandon()
        if self._made:
            remove_tree(self._files, self.path)
            self._made = False


def checked(name: str, folders: Sequence[str] = ()) -> str:
    """A name that a layout gave to a file: it must stay in its directory, or one of these folders, and be none of ours."""
    folder, slash, inner = name.partition("/")
    if slash and folder in folders:
        return f"{folder}/{checked(inner)}"
    if name in ("", ".", "..") or "/" in name or "\0" in name or name in _RESERVED:
        raise LogwrightError(f"a layout asked for a file called {name!r}, which can't be one")
    return name


def move(files: FileSystem, source: StagedFolder, name: str, target: StagedFolder, final: str) -> int:
    """Rename a staged file into another staged folder. Returns its size."""
    size = source.staged().get(name)
    if size is None:
        raise StorageError(f"{name} is not staged in {source.path}")
    files.rename_new(
        os.path.join(source.path, name), os.path.join(target.path, checked(final, target.folders))
    )
    target.adopt(final, size)
    return size
