"""A listing and a stage of one folder of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from logwright.codec.store.build import Piece, Stage
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.window import Chunk


class FolderOf:
    """A `codec.store.listing.Listing` of one folder of another listing, which is its parent."""

    def __init__(self, listing: Listing, name: str) -> None:
        self.name, self._listing = name, listing

    def entries(self) -> Sequence[Entry]:
        start = f"{self.name}/"
        names = ((entry.name, entry.size) for entry in self._listing.entries())
        return [Entry(name.removeprefix(start), size) for name, size in names if name.startswith(start)]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._listing.read(f"{self.name}/{name}", offset, length)

    def parent(self) -> Listing | None:
        return self._listing


class StagedFolderOf(FolderOf):
    """A `codec.store.build.Stage` for one folder of another stage."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self.stage = stage

    def patch(self, name: str, offset: int, data: Chunk) -> None:
        self.stage.patch(f"{self.name}/{name}", offset, data)

    def append(self, name: str, data: Chunk) -> None:
        self.stage.append(f"{self.name}/{name}", data)

    def take(self, pieces: Iterable[Piece]) -> None:
        self.stage.take(inside(self.name, pieces))

    def drop(self, name: str) -> None:
        self.stage.drop(f"{self.name}/{name}")


def inside(folder: str, pieces: Iterable[Piece]) -> Iterable[Piece]:
    """Yield pieces of files as pieces of files in a folder."""
    return (replace(piece, name=f"{folder}/{piece.name}") for piece in pieces)
