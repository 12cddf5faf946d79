"""Directories as layouts see them, on the injected file system: the target, and the staging folder with its new files."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.fault import LogwrightError, StorageError
from logwright.codec.kernels.memory import aligned
from logwright.codec.store.build import Piece
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.store.roots import Roots, holds_files, patterns_in, split
from logwright.codec.window import Chunk
from logwright.readers.journal import COMMIT, LINK
from logwright.readers.listing import exported
from logwright.readers.source import Source
from logwright.writers.filesystem import FileSystem, OpenFile, as_view, make_above, remove_tree, write_all

OWNER = "owner.json"
"""File in a staging folder of many tasks that identifies the process of their driver."""

_MOST_OPEN = 256
"""Limit of the files that are open at the same time."""
_BLOCK = 1 << 20
"""Bytes that are read at a time."""
_RESERVED = frozenset({LINK, COMMIT, COMMIT + ".tmp", OWNER})


class FileSource(AbstractContextManager["FileSource"]):
    """A `readers.source.Source` for a file of the injected file system. The holes of our `own` files are not read: the operating system
    would fill its cache with zeros."""

    def __init__(self, files: FileSystem, path: str, *, own: bool = False) -> None:
        status = files.stat(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.path, self.size, self._files, self._own = path, status.size, files, own

    def pread(self, offset: int, length: int) -> Bytes:
        size = max(0, min(length, self.size - offset))
        blocks = [(at, min(_BLOCK, size - at)) for at in range(0, size, _BLOCK)]
        holes = [self._own and self._files.is_hole(self.path, offset + at, part) for at, part in blocks]
        if blocks and all(holes):
            return _zeros(size)
        out = aligned(size)
        if not any(holes):
            return out[: self._files.read_into(self.path, offset, out.data)]
        for (at, part), hole in zip(blocks, holes, strict=True):
            block = out[at : at + part]
            if hole:
                block[:] = 0
            elif (count := self._files.read_into(self.path, offset + at, block.data)) < part:
                return out[: at + count]  # the file became shorter
        return out

    def ahead(self, offset: int, length: int) -> None: ...

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@functools.lru_cache(maxsize=1)
def _zeros(size: int) -> Bytes:
    """Return zeros, which most reads of holes share: windows have the same size."""
    zeros = np.zeros(size, np.uint8)
    zeros.flags.writeable = False
    return zeros


def tree_sizes(
    files: FileSystem, roots: Roots, folders: Sequence[str] = (), foreign: list[str] | None = None
) -> dict[str, int]:
    """Return the sizes of the files of a tree by name, including sub-folders that match the patterns (`Layout.folders`).

    Names of other folders are added to `foreign`. With several roots, missing ones have no files.
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
                elif foreign is not None:
                    foreign.append(name)
    return dict(sorted(out.items()))


class FolderListing:
    """A `codec.store.listing.Listing` of the directories of a tree, which are listed once: they may hold thousands of stores."""

    def __init__(self, files: FileSystem, roots: Roots, name: str, folders: Sequence[str] = ()) -> None:
        self.path, self.roots, self.name = roots.own, roots, name
        self._files, self._patterns = files, folders

    @functools.cached_property
    def _entries(self) -> Sequence[Entry]:
        sizes = tree_sizes(self._files, self.roots, self._patterns)
        return [Entry(name, size) for name, size in sizes.items()]

    def entries(self) -> Sequence[Entry]:
        return self._entries

    def folders(self) -> Sequence[str]:
        """Return the names of the top-level sub-folders."""
        return [item.name for item in self._files.listdir(self.path) if item.directory]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._files.read(self.real(name), offset, length)

    def pread(self, name: str, offset: int, length: int) -> Bytes:
        """See `codec.store.listing.Preads`."""
        return self.open(name).pread(offset, length)

    def real(self, name: str) -> str:
        """Return the path of a file."""
        return self.roots.at(name)

    def open(self, name: str) -> Source:
        """Open a file for reading."""
        return FileSource(self._files, self.real(name))

    def export(self, folder: str) -> AbstractContextManager[str]:
        """See `codec.store.listing.Exports`."""
        return exported(self, folder)

    def parent(self) -> Listing | None:
        return self._parent

    @functools.cached_property
    def _parent(self) -> Listing | None:
        above = os.path.dirname(self.path)
        if above == self.path:
            return None
        listing = FolderListing(self._files, Roots(above), os.path.basename(above))
        try:
            listing.entries()
        except OSError:
            return None
        return listing


class StagedFolder(FolderListing):
    """A `codec.store.build.Stage`: files written in pieces, each synced when it is closed.

    Each root has its own directory for its files. A file stays open until its last piece or `close`; `close` also syncs the names.
    """

    def __init__(self, files: FileSystem, roots: Roots, name: str, parent: Listing | None = None) -> None:
        super().__init__(files, roots, name)
        self._parent = parent
        self._created_folders: set[str] = {roots.own}
        """Existing directories, in which files can be created."""
        self._open: dict[str, OpenFile] = {}
        self._size: dict[str, int] = {}

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, size) for name, size in sorted(self._size.items())]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        source = self.open(name)
        return source.pread(offset, source.size if length is None else length).tobytes()

    def open(self, name: str) -> Source:
        return FileSource(self._files, self.real(name), own=True)

    def take(self, pieces: Iterable[Piece]) -> None:
        """Write the pieces of a builder."""
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
            raise ValueError(f"bytes {offset}..{end} are not all in {name}, which has {size} bytes")
        write_all(self._file(name), as_view(data), offset)

    def staged(self) -> dict[str, int]:
        """Return the sizes of all staged files by name."""
        return dict(self._size)

    def adopt(self, name: str, size: int) -> None:
        """Register a file that was renamed into this folder."""
        self._size[name] = size

    def drop(self, name: str) -> None:
        """Remove a staged file."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()
        del self._size[name]
        self._files.remove(self.real(name))

    def flush(self) -> None:
        """Sync the data of all files."""
        for name in list(self._open):
            self.close_file(name)

    def close(self) -> None:
        """Sync the data and the names of all files."""
        self.flush()
        for folder in sorted(self._created_folders, reverse=True):
            self._files.sync_directory(folder)

    def abandon(self) -> None:
        """Close all files, ignoring errors."""
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.close()
        self._open.clear()

    def _file(self, name: str) -> OpenFile:
        file = self._open.get(name)
        if file is not None:
            return file
        path = self.real(name)
        status = self._files.stat(path) if name in self._size else None
        if len(self._open) >= _MOST_OPEN:
            self.close_file(next(iter(self._open)))
        if status is None:
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
        """Return the path of a new file, after making its folders."""
        path = self.real(checked(name))
        folder = os.path.dirname(path)
        if folder not in self._created_folders:
            for created in make_above(self._files, folder):
                self._files.adopt(created, os.path.dirname(created))
                self._created_folders.add(created)
            self._created_folders.add(folder)
        return path

    def close_file(self, name: str) -> None:
        """Sync and close a file, unless it was closed to open others."""
        file = self._open.pop(name, None)
        if file is None:
            return
        try:
            file.sync()
        finally:
            file.close()


class ScratchFolder(StagedFolder):
    """A folder for temporary files, made with its first file."""

    _exists = False

    def append(self, name: str, data: Chunk) -> None:
        if not self._exists:
            self._files.mkdir(self.path)
            self._files.adopt(self.path, os.path.dirname(self.path))
            self._exists = True
        super().append(name, data)

    def discard(self) -> None:
        """Remove the folder and its files."""
        self.abandon()
        if self._exists:
            remove_tree(self._files, self.path)
            self._exists = False


def checked(name: str) -> str:
    """Return a file name chosen by a layout. Raises `LogwrightError` if it would leave the directory or is reserved."""
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")) or name in _RESERVED:
        raise LogwrightError(f"a layout chose the invalid file name {name!r}")
    return name


def move(files: FileSystem, source: StagedFolder, name: str, target: StagedFolder, final: str) -> int:
    """Rename a staged file into another staged folder of the same root. Return its size in bytes."""
    size = source.staged().get(name)
    if size is None:
        raise StorageError(f"{name} is not staged in {source.path}")
    if split(name, source.roots.further)[0] != split(final, target.roots.further)[0]:
        raise LogwrightError(f"a layout staged {name} in another root than that of {final}")
    files.rename_new(source.real(name), target.place(final))
    target.adopt(final, size)
    return size
