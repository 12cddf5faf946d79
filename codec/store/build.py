"""Writing a directory: builders turn rows into bytes of named files, and placements say where staged files go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.store.listing import Listing
from logwright.codec.window import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes for a file of the store being written. `done` closes the file.

    Without an `offset` they are appended. With one they overwrite bytes that were appended before: a place that was left out as `Zeros`, say.
    """

    name: str
    data: Chunk
    done: bool = False
    offset: int | None = None


@dataclass(frozen=True)
class Summary:
    """What a builder made, in the system's words. Picklable: tasks send it to the driver."""

    rows: int
    ids: Mapping[str, Any] = field(default_factory=dict)
    """First and last of the system's own numbers: `{"first_offset": 0, "last_offset": 9}`."""
    warnings: tuple[str, ...] = ()
    before_you_start: tuple[str, ...] = ()
    """What the real system needs before it is started on the result."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What `Layout.place` needs to know of a staged part; of the size of the number of files at most."""


class Builder(Protocol):
    """Makes the files of a directory from rows, in order; any chunking of the same rows gives the same bytes."""

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]: ...

    def finish(self) -> Iterator[Piece]: ...

    def summary(self) -> Summary:
        """After `finish`."""
        ...


class Stage(Listing, Protocol):
    """A directory of staged files that may still be changed."""

    def patch(self, name: str, offset: int, data: Chunk) -> None:
        """Overwrite bytes of a staged file. Raises `ValueError` for bytes that it does not have."""
        ...

    def append(self, name: str, data: Chunk) -> None:
        """Add bytes to a staged file, made if absent."""
        ...

    def take(self, pieces: Iterable[Piece]) -> None:
        """Carry out what a builder says."""
        ...

    def drop(self, name: str) -> None:
        """Make a staged file not to have been."""
        ...


@dataclass(frozen=True)
class Placement:
    """How staged files become the directory: `(stage, staged name, final name)` in the order of the renames.

    The order is such that the system, started between any two renames, sees a sound directory.
    """

    renames: tuple[tuple[Stage, str, str], ...]
    summary: Summary


def take(pieces: Iterable[Piece]) -> dict[str, bytes]:
    """All pieces put together, by file name. For small directories and tests."""
    files: dict[str, bytearray] = {}
    for piece in pieces:
        content = files.setdefault(piece.name, bytearray())
        at = len(content) if piece.offset is None else piece.offset
        content[at : at + len(piece.data)] = bytes(piece.data)
    return {name: bytes(data) for name, data in files.items()}
