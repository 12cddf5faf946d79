"""A copy-on-write overlay of a directory, used to simulate a system's start and to read a repair before it is written.

The listing below is never changed. New content is held in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import accumulate

from logwright.codec.engine.repair import OutputFile
from logwright.codec.store.extents import Copy, Extent, cut
from logwright.codec.store.listing import Entry, Listing, export, further_roots_of, inner_folders_of
from logwright.codec.window import Zeros


class _Content:
    """The extents of one file. `later` makes its content when it is first read."""

    def __init__(self, pieces: Sequence[Extent], later: Callable[[], bytes] | None = None) -> None:
        self._pieces, self.later = pieces, later

    @cached_property
    def pieces(self) -> Sequence[Extent]:
        return self._pieces if self.later is None else [self.later()]

    @cached_property
    def ends(self) -> Sequence[int]:
        """The end of each piece in the file."""
        return list(accumulate(map(len, self.pieces)))

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def slice(self, start: int, stop: int) -> Sequence[Extent]:
        """Return the pieces of the bytes `[start, stop)`."""
        if len(self.pieces) == 1:
            return [cut(self.pieces[0], start, stop)]
        out: list[Extent] = []
        for i in range(bisect_right(self.ends, start), len(self.pieces)):
            begin = self.ends[i - 1] if i else 0
            if begin >= stop:
                break
            out.append(cut(self.pieces[i], max(start - begin, 0), stop - begin))
        return out


class Overlay:
    """A `Listing` that can be changed. `below` is the original directory.

    With `files` it consists of these files only.
    """

    def __init__(self, below: Listing, files: Iterable[OutputFile] | None = None) -> None:
        self.name, self.below = below.name, below
        self._before = {entry.name: entry.size for entry in below.entries()}
        self._files: dict[str, _Content] = {}
        if files is None:
            for name, size in self._before.items():
                self.assemble(name, [Copy(name, 0, size)])
        else:
            for file in files:
                self.assemble(file.name, file.pieces)

    # The listing

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, self.size(name)) for name in sorted(self._files)]

    def names(self) -> Collection[str]:
        """Return the names of the files, in any order. Unlike `entries` this takes no time."""
        return self._files.keys()

    def parent(self) -> Listing | None:
        return self.below.parent()

    def inner_folders(self) -> Sequence[str]:
        """See `codec.store.listing.InnerFolders`."""
        return inner_folders_of(self.below)

    def further_roots(self) -> Collection[str]:
        """See `codec.store.listing.FurtherRoots`."""
        return further_roots_of(self.below)

    def export(self, folder: str) -> AbstractContextManager[str]:
        """See `codec.store.listing.Exports`. Changes are not included."""
        return export(self.below, folder)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        content = self._files[name]
        stop = content.size if length is None else min(offset + length, content.size)
        pieces = [
            self.below.read(piece.file, piece.start, len(piece)) if isinstance(piece, Copy) else bytes(piece)
            for piece in content.slice(offset, stop)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def size(self, name: str) -> int:
        return self._files[name].size

    # Changes

    def put(self, name: str, content: bytes | Callable[[], bytes]) -> None:
        """Write a file, unless it already has this content. A function is called when the file is first read."""
        if callable(content):
            self._files[name] = _Content((), content)
        elif name not in self._files or self.size(name) != len(content) or self.read(name) != content:
            self.assemble(name, [content])

    def create(self, name: str, size: int) -> None:
        """Write a file of zeros, unless it already is one."""
        if name in self._files:
            self.put(name, bytes(size))
        else:
            self.assemble(name, [Zeros(size)])

    def assemble(self, name: str, pieces: Iterable[Extent]) -> None:
        """Write a file made of ranges of the files below and of new bytes."""
        self._files[name] = _Content(list(pieces))

    def copy(self, source: str, start: int, stop: int, name: str) -> None:
        """Write the bytes `[start, stop)` of a file to another one."""
        self.assemble(name, self._files[source].slice(start, stop))

    def truncate(self, name: str, size: int) -> None:
        if size < self.size(name):
            self.copy(name, 0, size, name)

    def delete(self, name: str) -> None:
        self._files.pop(name, None)

    def restore(self, name: str) -> None:
        """Revert a file to its original content, or delete a file that did not exist."""
        self.delete(name)
        if name in self._before:
            self.assemble(name, [Copy(name, 0, self._before[name])])

    def rename(self, name: str, to: str) -> None:
        if name in self._files:
            self._files[to] = self._files.pop(name)

    # Changes

    def pieces(self, name: str) -> Sequence[Extent]:
        return self._files[name].pieces

    def extents(self, name: str, start: int, stop: int) -> Sequence[Extent]:
        """Return the extents of the bytes `[start, stop)` of a file, or fewer at its end."""
        content = self._files[name]
        stop = min(stop, content.size)
        return content.slice(start, stop) if start < stop else ()

    def origin(self, name: str) -> Copy | None:
        """Return the single range of an original file that a file consists of; None for other content."""
        content = self._files[name]
        if content.later is not None or len(content.pieces) != 1:
            return None
        piece = content.pieces[0]
        return piece if isinstance(piece, Copy) else None

    def _unchanged(self, name: str) -> bool:
        return self.origin(name) == Copy(name, 0, self._before[name])

    @property
    def truncated(self) -> dict[str, int]:
        """The new sizes of truncated files."""
        kept = {name: self.origin(name) for name in self._before if name in self._files}
        return {
            name: origin.stop
            for name, origin in kept.items()
            if origin is not None
            and (origin.file, origin.start) == (name, 0)
            and origin.stop < self._before[name]
        }

    @property
    def removed(self) -> list[str]:
        return [name for name in sorted(self._before) if name not in self._files]

    @property
    def rewritten(self) -> list[str]:
        """Files with changed content, except truncated ones."""
        truncated = self.truncated
        return [
            name
            for name in sorted(self._before)
            if name in self._files and name not in truncated and not self._unchanged(name)
        ]

    @property
    def created(self) -> list[str]:
        return [name for name in sorted(self._files) if name not in self._before]
