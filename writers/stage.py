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
from logwright.codec.store.roots import Roots, holds_files, patterns_in, split
from logwright.codec.window import Bytes, Chunk
from logwright.readers.journal import COMMIT, LINK
from logwright.readers.source import Source
from logwright.writers.filesystem import FileSystem, OpenFile, as_view, make_above, remove_tree, write_all

OWNER = "owner.json"
"""The file in a staging directory of many tasks that says which process its driver is."""

_RESERVED = frozenset({LINK, COMMIT, COMMIT + ".tmp", OWNER})


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


def tree_sizes(
    files: FileSystem, roots: Roots, folders: Sequence[str] = (), strange: list[str] | None = None
) -> dict[str, int]:
    """Return the sizes of the files of a tree by name, those of sub-folders as far as the patterns say (`Layout.folders`).

    The names of the other folders are put into `strange`. Of several roots, those that are not there have no files.
    """
    out: dict[str, int] = {}
    for root in ("", *roots.further):
        patterns = patterns_in(root, folders) if root else folders
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                items = files.listdir(os.path.join(roots.of(root), folder).rstrip("/"))
            except FileNotFoundError:
                if root or folder or roots.further:
                    continue
                raise
            for item in items:
                inner = f"{folder}/{item.name}" if folder else item.name
                name = f"{root}/{inner}" if root else inner
                hidden = not root and inner in roots.further
                if not item.directory:
                    out[name] = item.size
                elif holds_files(inner, patterns) and not hidden:
                    waiting.append(inner)
                elif strange is not None:
                    strange.append(name)
    return dict(sorted(out.items()))


class FolderListing:
    """`codec.layout.Listing` over the directories of a tree. It looks anew each time: staged files grow."""

    def __init__(self, files: FileSystem, roots: Roots, name: str, folders: Sequence[str] = ()) -> None:
        self.path, self.roots, self.name = roots.own, roots, name
        self._files, self._patterns = files, folders

    def entries(self) -> Sequence[Entry]:
        found = tree_sizes(self._files, self.roots, self._patterns)
        return [Entry(name, size) for name, size in found.items()]

    def folders(self) -> Sequence[str]:
        """The names of the sub-folders at the top."""
        return [item.name for item in self._files.listdir(self.path) if item.directory]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._files.read(self.real(name), offset, length)

    def real(self, name: str) -> str:
        """The path of a file."""
        return self.roots.at(name)

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
        return FolderListing(self._files, Roots(above), os.path.basename(above))


class StagedFolder(FolderListing):
    """`codec.layout.Stage`: files being made, appended to piece by piece, each on the disk once it is closed.

    Each root has a directory of its own in which its files are made. A file stays open until its last piece has come or `close` is called;
    `close` also puts their names on the disk.
    """

    def __init__(self, files: FileSystem, roots: Roots, name: str, parent: Listing | None = None) -> None:
        super().__init__(files, roots, name)
        self._parent = parent
        self._made: set[str] = {roots.own}
        """Directories that are there: files can be made in them."""
        self._open: dict[str, OpenFile] = {}
        self._size: dict[str, int] = {}

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, size) for name, size in sorted(self._size.items())]

    def parent(self) -> Listing | None:
        """What lies above the directory that is being made."""
        return self._parent

    def take(self, pieces: Iterable[Piece]) -> None:
        """Carry out what a builder says."""
        for piece in pieces:
            if piece.offset is None:
                self.append(piece.name, piece.data)
            else:
                self.patch(piece.name, piece.offset, piece.data)
            if piece.done:
                self.close_file(piece.name)

    def append(self, name: str, data: Chunk) -> None:
        file = self._file(name)
        self._size[name] += write_all(file, data, self._size[name])

    def patch(self, name: str, offset: int, data: Chunk) -> None:
        end, size = offset + len(data), self._size.get(name, 0)
        if offset < 0 or end > size:
            raise ValueError(f"bytes {offset}..{end} are not all in {name}, which has {size}")
        write_all(self._file(name), as_view(data), offset)

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
        for folder in sorted(self._made, reverse=True):
            self._files.sync_directory(folder)

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
        path = self.real(name)
        found = self._files.stat(path) if name in self._size else None
        if found is None:
            file = self._files.create(self.place(name))
            self._open[name] = file
            self._size[name] = 0
            self._files.adopt(path, os.path.dirname(path))
            return file
        else:
            file = self._files.open(path)
        self._open[name] = file
        return file

    def place(self, name: str) -> str:
        """Return the path of a file that is to be made, after making the folders above it."""
        path = self.real(checked(name))
        folder = os.path.dirname(path)
        if folder not in self._made:
            for made in make_above(self._files, folder):
                self._files.adopt(made, os.path.dirname(made))
                self._made.add(made)
            self._made.add(folder)
        return path

    def close_file(self, name: str) -> None:
        """Put the data of a file that is being made on the disk."""
        file = self._open.pop(name)
        try:
            file.sync()
        finally:
            file.close()


class ScratchFolder(StagedFolder):
    """A folder for what is needed on the way. It is made when the first file is."""

    _exists = False

    def append(self, name: str, data: Chunk) -> None:
        if not self._exists:
            self._files.mkdir(self.path)
            self._files.adopt(self.path, os.path.dirname(self.path))
            self._exists = True
        super().append(name, data)

    def discard(self) -> None:
        """Remove it with all that is in it."""
        self.abandon()
        if self._exists:
            remove_tree(self._files, self.path)
            self._exists = False


def checked(name: str) -> str:
    """Return a name that a layout gave to a file. Raises `LogwrightError` where it would leave its directory, or is one of ours."""
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")) or name in _RESERVED:
        raise LogwrightError(f"a layout asked for a file called {name!r}, which can't be one")
    return name


def move(files: FileSystem, source: StagedFolder, name: str, target: StagedFolder, final: str) -> int:
    """Rename a staged file into another staged folder, in the same root. Returns its size in bytes."""
    size = source.staged().get(name)
    if size is None:
        raise StorageError(f"{name} is not staged in {source.path}")
    if split(name, source.roots.further)[0] != split(final, target.roots.further)[0]:
        raise LogwrightError(f"a layout staged {name} in another root than that of {final}")
    files.rename_new(source.real(name), target.place(final))
    target.adopt(final, size)
    return size
