"""Files that are being damaged, as lists of pieces: ranges of original files, new bytes and zeros. Writing copies them.

The pieces show which ranges of the original files remain, and so which frames are untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np

from logwright.codec import registry
from logwright.codec.arrays import Bytes
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Plan, PlannedFile
from logwright.codec.store.roots import folder_of, holds_files
from logwright.readers.source import Source

HEAD = 4096
"""The number of first bytes that identify a file."""
STEP = 4 << 20
"""The number of bytes read at a time."""


@dataclass(frozen=True)
class Piece:
    """Bytes `[start, stop)` of an original file (`origin`) or of `data`; zeros without both."""

    start: int
    stop: int
    origin: str | None = None
    data: bytes | None = None
    moved: bool = False
    """Whether they are a copy, or moved."""

    @property
    def size(self) -> int:
        return self.stop - self.start

    @classmethod
    def of(cls, data: bytes) -> Piece:
        return cls(0, len(data), data=data)

    @classmethod
    def zeros(cls, size: int) -> Piece:
        return cls(0, size)


class Image:
    """The current content of one file. A `readers.source.Source`."""

    def __init__(self, path: str, pieces: Sequence[Piece], open: Callable[[str], Source]) -> None:
        self.path, self._open = path, open
        self.pieces = [piece for piece in pieces if piece.size]
        self.size = sum(piece.size for piece in self.pieces)
        self.changed = False
        """Whether an operation touched it."""

    def pread(self, offset: int, length: int) -> Bytes:
        parts = [self._bytes(piece) for piece in self.slice(offset, offset + max(0, length))]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)

    def _bytes(self, piece: Piece) -> Bytes:
        if piece.origin is not None:
            data = self._open(piece.origin).pread(piece.start, piece.size)
            if len(data) < piece.size:
                raise UsageError("it became shorter while it was read", path=self._open(piece.origin).path)
            return data
        if piece.data is not None:
            return np.frombuffer(piece.data, np.uint8)[piece.start : piece.stop].copy()
        return np.zeros(piece.size, np.uint8)

    def slice(self, start: int, stop: int) -> list[Piece]:
        """Return the pieces of a range."""
        out = []
        at = 0
        for piece in self.pieces:
            low, high = max(start - at, 0), min(stop - at, piece.size)
            if low < high:
                out.append(replace(piece, start=piece.start + low, stop=piece.start + high))
            at += piece.size
        return out

    def splice(self, start: int, stop: int, new: Sequence[Piece]) -> None:
        """Replace `[start, stop)`."""
        pieces = (*self.slice(0, start), *new, *self.slice(stop, self.size))
        self.pieces = [piece for piece in pieces if piece.size]
        self.size = sum(piece.size for piece in self.pieces)
        self.changed = True

    def untouched(self) -> Iterator[tuple[str, int, int]]:
        """Yield the untouched ranges of original files: (file, start, stop). Adjacent ranges are joined."""
        last: Piece | None = None
        for piece in self.pieces:
            if piece.origin is None or piece.moved:
                continue
            if last is not None and (last.origin, last.stop) == (piece.origin, piece.start):
                last = replace(last, stop=piece.stop)
                continue
            if last is not None:
                yield str(last.origin), last.start, last.stop
            last = piece
        if last is not None:
            yield str(last.origin), last.start, last.stop

    def read(self) -> Iterator[Bytes]:
        """Yield the content in chunks."""
        for piece in self.pieces:
            for at in range(piece.start, piece.stop, STEP):
                yield self._bytes(replace(piece, start=at, stop=min(at + STEP, piece.stop)))

    def ahead(self, offset: int, length: int) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class Known:
    """The codec of a file, and the hints for decoding it."""

    codec: Codec
    hints: Mapping[str, object]


class Tree:
    """The current files of a directory, or one file. Names are relative paths; `name` is that of the directory.

    `single`: the key of the only file is "", and `name` is its name.
    """

    def __init__(
        self, name: str, shown: str, sizes: Mapping[str, int], open: Callable[[str], Source], single: bool
    ) -> None:
        self.name, self.shown, self.single = name, shown, single
        self._open = open
        self.images = {
            item: Image(self.path(item), [Piece(0, size, item)], open) for item, size in sizes.items()
        }
        self.only: Known | None = None
        """The codec and hints of a single file."""
        self._plans: dict[str, tuple[Layout, Plan] | None] = {}

    def path(self, name: str) -> str:
        """Return the path for messages."""
        return f"{self.shown.rstrip('/')}/{name}" if name else self.shown

    def add(self, name: str, pieces: Sequence[Piece]) -> None:
        """Add a file. Raises `UsageError` if it exists."""
        if self.single:
            raise UsageError("this is a single file, not a directory", path=self.shown)
        if name in self.images or any(image.startswith(f"{name}/") for image in self.images):
            raise UsageError(
                "the file already exists",
                path=self.path(name),
                advice="Remove it first, or choose another name",
            )
        parts = name.split("/")
        above = {"/".join(parts[:i]) for i in range(1, len(parts))}
        if not name or {"", ".", ".."} & set(parts) or "\0" in name or above & set(self.images):
            raise UsageError(f"{name!r} is not a valid file name", path=self.shown)
        self.images[name] = Image(self.path(name), pieces, self._open)
        self.images[name].changed = True
        self._plans.clear()

    def remove(self, name: str) -> Image:
        self._plans.clear()
        return self.images.pop(name)

    # Recognising files

    def folders(self) -> list[str]:
        """Return the directories that hold files; "" is the top."""
        return sorted({image.rpartition("/")[0] for image in self.images} | {""})

    def plan(self, folder: str) -> tuple[Layout, Plan] | None:
        """Return the layout and plan of a directory; None if it is not recognised."""
        if folder not in self._plans:
            listing = TreeListing(self, folder)
            layout = registry.detect_layout(listing)
            if layout is not None:
                listing = TreeListing(self, folder, layout.folders)
            self._plans[folder] = (
                None if layout is None else (layout, layout.plan(listing, Options(layout.read_options)))
            )
        return self._plans[folder]

    def planned(self, name: str) -> PlannedFile | None:
        """Return the entry of a file in the plan of its directory."""
        folder, _, own = name.rpartition("/")
        while not self.single:
            entry = self.plan(folder)
            file = next((item for item in entry[1].files if item.name == own), None) if entry else None
            if file is not None or not folder:
                return file
            # The file may be in a sub-folder of a store.
            folder, _, above = folder.rpartition("/")
            own = f"{above}/{own}"
        return None

    def known(self, name: str, codec: Codec | None = None) -> Known | None:
        """Recognise a file, unless `codec` is set; None if it is unknown."""
        if self.single:
            return self.only
        planned = self.planned(name)
        folder = name.rpartition("/")[0]
        directory = folder.rpartition("/")[2] or self.name
        if codec is None and planned is not None and planned.codec is not None:
            return Known(registry.get(planned.codec), {"directory": directory, **planned.hints})
        if codec is None:
            codec = registry.detect(name.rpartition("/")[2], self.images[name].pread(0, HEAD).tobytes())
        return None if codec is None else Known(codec, {"directory": directory})


class TreeListing:
    """A `codec.store.listing.Listing` of a directory of a tree."""

    def __init__(self, tree: Tree, folder: str, patterns: Sequence[str] = ()) -> None:
        self._tree, self._folder, self._patterns = tree, folder, patterns
        self.name = folder.rpartition("/")[2] or tree.name

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _below(self) -> dict[str, int]:
        """Return the sizes of all files below the directory."""
        prefix = self._at("")
        return {
            name.removeprefix(prefix): image.size
            for name, image in self._tree.images.items()
            if name.startswith(prefix)
        }

    def entries(self) -> Sequence[Entry]:
        sizes = sorted(self._below().items())
        return [Entry(name, size) for name, size in sizes if holds_files(folder_of(name), self._patterns)]

    def folders(self) -> Sequence[str]:
        """Return the names of the direct sub-folders."""
        return sorted({name.partition("/")[0] for name in self._below() if "/" in name})

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        image = self._tree.images[self._at(name)]
        return image.pread(offset, image.size - offset if length is None else length).tobytes()

    def parent(self) -> TreeListing | None:
        if not self._folder:
            return None
        return TreeListing(self._tree, self._folder.rpartition("/")[0])
