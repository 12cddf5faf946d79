"""A directory in memory for layouts, builders, repairs and simulated starts.

It implements `Listing`, which a layout reads, and `Stage`, which a builder writes to. `logwright.roundtrip.memory_filesystem` is a file
system with crashes and failing operations.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from logwright.codec.fault import UnreadableError
from logwright.codec.store.build import Piece
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.window import Chunk


class MemoryDirectory:
    """Files by name. `above` is the parent directory."""

    def __init__(
        self, files: Mapping[str, bytes] | None = None, name: str = "db", above: Listing | None = None
    ) -> None:
        self.name, self.files, self.above = name, dict(files or {}), above
        self.appended = 0
        """Total of appended bytes, including files dropped later."""

    @classmethod
    def of(cls, path: Path, above: Listing | None = None) -> MemoryDirectory:
        """Read the files of a directory on disk."""
        return cls(
            {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}, path.name, above
        )

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, len(data)) for name, data in sorted(self.files.items())]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return bytes(self.files[name][offset : None if length is None else offset + length])

    def parent(self) -> Listing | None:
        return self.above

    def patch(self, name: str, offset: int, data: Chunk) -> None:
        raise AssertionError(f"{name} is overwritten, and builders only append")

    def append(self, name: str, data: Chunk) -> None:
        held = self.files.get(name)
        if not isinstance(held, bytearray):
            held = self.files[name] = bytearray(held or b"")  # type: ignore[assignment]
        held.extend(bytes(data))
        self.appended += len(bytes(data))

    def take(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if piece.offset is None:
                self.append(piece.name, piece.data)
            else:
                self.patch(piece.name, piece.offset, piece.data)

    def drop(self, name: str) -> None:
        del self.files[name]


class UnreadableDirectory(MemoryDirectory):
    """A directory with unreadable ranges `(start, stop)` by file name."""

    def __init__(
        self, files: Mapping[str, bytes], bad: Mapping[str, Sequence[tuple[int, int]]], name: str = "db"
    ) -> None:
        super().__init__(files, name)
        self.bad = bad

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        end = len(self.files[name]) if length is None else offset + length
        for start, stop in self.bad.get(name, ()):
            if start < end and offset < stop:
                first = max(start, offset)
                raise UnreadableError.of(first, stop - first, "Input/output error", name)
        return super().read(name, offset, length)
