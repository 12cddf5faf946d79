"""The folders of a log directory as listings, one per partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from logwright.codec.store.build import Piece, Stage
from logwright.codec.store.listing import Entry, Listing, folders_of
from logwright.codec.window import Chunk


def files_by_folder(listing: Listing) -> dict[str, list[Entry]]:
    """Return the files of each folder of a tree; those outside of folders are of the folder ""."""
    files: dict[str, list[Entry]] = {}
    for entry in listing.entries():
        folder, _, name = entry.name.rpartition("/")
        files.setdefault(folder, []).append(Entry(name, entry.size))
    return files


class OwnFiles:
    """A `codec.store.listing.Listing` of a log directory's own files: those outside of its partitions. The tree may have thousands of
    partitions, so it is listed once."""

    def __init__(self, listing: Listing) -> None:
        self.name, self._listing, self._files = listing.name, listing, files_by_folder(listing)

    def entries(self) -> Sequence[Entry]:
        return self._files.get("", ())

    def folders(self) -> Sequence[str]:
        return folders_of(self._listing)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._listing.read(name, offset, length)

    def parent(self) -> Listing | None:
        return self._listing.parent()

    def partition(self, name: str) -> FolderOf | None:
        """Return the directory of a partition, if it has files."""
        files = self._files.get(name)
        return None if files is None else FolderOf(self, name, files)


class FolderOf:
    """A `codec.store.listing.Listing` of one folder of another listing, which is its parent."""

    def __init__(self, listing: Listing, name: str, files: Sequence[Entry]) -> None:
        self.name, self._listing, self._files = name, listing, files

    def entries(self) -> Sequence[Entry]:
        return self._files

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._listing.read(f"{self.name}/{name}", offset, length)

    def parent(self) -> Listing | None:
        return self._listing


class StagedFolderOf(FolderOf):
    """A `codec.store.build.Stage` for one folder of another stage. `files` are those that were staged before."""

    def __init__(self, stage: Stage, name: str, files: Sequence[Entry]) -> None:
        super().__init__(stage, name, files)
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
