"""Write a directory: builders turn rows into bytes of named files, and placements name the final paths of staged files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.store.listing import Listing
from logwright.codec.window import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes for a file of the store being written. `done` closes the file.

    Without an `offset` they are appended. With one they overwrite bytes that were appended before, such as a reserved range of `Zeros`.
    """

    name: str
    data: Chunk
    done: bool = False
    offset: int | None = None


@dataclass(frozen=True)
class Summary:
    """The output of a builder, in the system's terms. Picklable: tasks send it to the driver."""

    rows: int
    ids: Mapping[str, Any] = field(default_factory=dict)
    """The first and last of the system's own numbers: `{"first_offset": 0, "last_offset": 9}`."""
    warnings: tuple[str, ...] = ()
    before_you_start: tuple[str, ...] = ()
    """Steps for the user before the real system starts on the result."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about a staged part for `Layout.assemble`; at most a few values per file."""


class Builder(Protocol):
    """Builds the files of a directory from rows in order. The chunking of the rows does not change the bytes."""

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]: ...

    def finish(self) -> Iterator[Piece]: ...

    def summary(self) -> Summary:
        """Return the summary, after `finish`."""
        ...


class Stage(Listing, Protocol):
    """A directory of staged files that may still be changed."""

    def patch(self, name: str, offset: int, data: Chunk) -> None:
        """Overwrite bytes of a staged file. Raises `ValueError` for bytes beyond its end."""
        ...

    def append(self, name: str, data: Chunk) -> None:
        """Append bytes to a staged file, which is created if absent."""
        ...

    def take(self, pieces: Iterable[Piece]) -> None:
        """Write the pieces of a builder."""
        ...

    def drop(self, name: str) -> None:
        """Delete a staged file."""
        ...


Parts = Sequence[tuple[Stage, Summary]]
"""Staged parts of a directory, each with its summary."""


@dataclass(frozen=True)
class Placement:
    """The renames that turn staged files into the directory: `(stage, staged name, final name)` in order.

    If the system starts between any two renames, it finds a sound directory.
    """

    renames: tuple[tuple[Stage, str, str], ...]
    summary: Summary

    def ordered(self, order: Callable[[Iterable[str]], Sequence[str]]) -> Placement:
        """Return the same renames in the order of a layout (`Layout.order`)."""
        place = {final: i for i, final in enumerate(order({final for _, _, final in self.renames}))}
        return Placement(tuple(sorted(self.renames, key=lambda rename: place[rename[2]])), self.summary)


def noted(pieces: Iterable[Piece], names: list[str]) -> Iterator[Piece]:
    """Yield the pieces, and add the name of each finished file to `names`."""
    for piece in pieces:
        if piece.done:
            names.append(piece.name)
        yield piece
