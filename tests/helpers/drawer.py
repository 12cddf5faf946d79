"""A directory in memory, for tests of builders: what they make, and what is there before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logwright.codec.store.build import Piece
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.window import Chunk


class Drawer:
    """A stage in memory, which is a listing too."""

    def __init__(self, files: dict[str, bytes] | None = None, name: str = "db") -> None:
        self.name = name
        self.files = {name: bytearray(data) for name, data in (files or {}).items()}
        self.written = 0

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, len(data)) for name, data in self.files.items()]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return bytes(self.files[name][offset : None if length is None else offset + length])

    def parent(self) -> Listing | None:
        return None

    def write(self, name: str, offset: int, data: Chunk) -> None:
        raise AssertionError("nothing that is there is written over")

    def append(self, name: str, data: Chunk) -> None:
        self.files.setdefault(name, bytearray()).extend(bytes(data))
        self.written += len(bytes(data))

    def take(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.append(piece.name, piece.data)

    def drop(self, name: str) -> None:
        del self.files[name]
