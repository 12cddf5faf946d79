"""The interface through which a layout reads a directory, and the plan that it makes of it.

Nothing here opens a file: readers and writers implement `Listing`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

from logwright.codec.arrays import Bytes
from logwright.codec.fault import Fault, UsageError

T = TypeVar("T")

_PIECE = 1 << 20
"""Bytes of files that are compared at a time."""


class Role(StrEnum):
    """The role of a file in its directory."""

    PRIMARY = "primary"  # cannot be rebuilt
    DERIVED = "derived"  # can be rebuilt from primary files
    METADATA = "metadata"  # small facts about the directory
    LEFTOVER = "leftover"  # of an interrupted operation; the system removes or finishes it
    FOREIGN = "foreign"  # not a file of the system


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a directory or store."""

    name: str
    """Its path in the tree (`codec.store.roots`)."""
    size: int


class Listing(Protocol):
    """A tree of files with names, sizes and windows of bytes. Sub-folders are listed as requested by the layout
    (`Layout.folders`)."""

    name: str
    """The directory's own name, without its parents. The listing of a single file also has an attribute `lone`."""

    def entries(self) -> Sequence[Entry]: ...

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes of a file."""
        ...

    def parent(self) -> Listing | None:
        """Return the parent directory if it can be read. A partition's parent holds files that concern it."""
        ...


@runtime_checkable
class Preads(Protocol):
    """Optional for a listing: read bytes into an array without a copy."""

    def pread(self, name: str, offset: int, length: int) -> Bytes:
        """Return up to `length` bytes of a file."""
        ...


@runtime_checkable
class Folders(Protocol):
    """Optional for a listing: list the sub-directories."""

    def folders(self) -> Sequence[str]: ...


@runtime_checkable
class InnerFolders(Protocol):
    """Optional for a listing: list the folders below the top level that hold no files of the tree."""

    def inner_folders(self) -> Sequence[str]: ...


@runtime_checkable
class FurtherRoots(Protocol):
    """Optional for a listing: list the names of the further roots (`codec.store.roots`), also of those without files."""

    def further_roots(self) -> Collection[str]: ...


@runtime_checkable
class Exports(Protocol):
    """Optional for a listing: copy a folder to a temporary local directory, for libraries that open files themselves."""

    def export(self, folder: str) -> AbstractContextManager[str]:
        """Return the path of the copy, which exists inside of the `with` block. `folder` ends in a slash."""
        ...


@runtime_checkable
class WorksAhead(Protocol):
    """Optional for a listing: another thread works ahead of the caller."""

    def work_ahead(self, items: Iterator[T], weigh: Callable[[T], int]) -> Iterator[T]:
        """Iterate over items that another thread computes; `weigh` returns the size of one in bytes."""
        ...


@runtime_checkable
class Dated(Protocol):
    """Optional for a listing: the times of its files."""

    def modified(self, name: str) -> int | None:
        """Return when a file was changed last, in milliseconds; None if that is unknown."""
        ...


def work_ahead(listing: Listing, items: Iterator[T], weigh: Callable[[T], int]) -> Iterator[T]:
    """Iterate over items that another thread computes, if the listing has one; `weigh` returns the size of one in bytes."""
    return listing.work_ahead(items, weigh) if isinstance(listing, WorksAhead) else items


def modified(listing: Listing, name: str) -> int | None:
    """Return when a file was changed last, in milliseconds; None if the listing does not know it."""
    return listing.modified(name) if isinstance(listing, Dated) else None


def export(listing: Listing, folder: str) -> AbstractContextManager[str]:
    """Copy a folder of a listing. Raises `UsageError` if the listing cannot do it."""
    if isinstance(listing, Exports):
        return listing.export(folder)
    raise UsageError(f"{folder} cannot be opened here", advice="Pass the directory itself")


def same_bytes(listing: Listing, name: str, other: str, size: int) -> bool:
    """Return whether the first `size` bytes of two files are the same."""
    return all(
        listing.read(name, at, min(_PIECE, size - at)) == listing.read(other, at, min(_PIECE, size - at))
        for at in range(0, size, _PIECE)
    )


def folders_of(listing: Listing) -> Sequence[str]:
    """Return the names of the top-level sub-directories, if the listing knows them."""
    return listing.folders() if isinstance(listing, Folders) else ()


def inner_folders_of(listing: Listing) -> Sequence[str]:
    """Return the paths of the folders below the top level that hold no files of the tree, if the listing knows them."""
    return listing.inner_folders() if isinstance(listing, InnerFolders) else ()


def further_roots_of(listing: Listing) -> Collection[str]:
    """Return the names of the further roots, if the listing knows them."""
    return listing.further_roots() if isinstance(listing, FurtherRoots) else ()


@dataclass(frozen=True)
class PlannedFile:
    """One file in a plan, with its role and codec."""

    name: str
    size: int
    role: Role
    codec: str | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    """For `Codec.context`."""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """The files of a directory in the system's order, and the faults of the directory.

    `faults` name the file ("" is the directory itself). `facts` are for `inspect`. `missing` are files that other files
    prove to be lost: readers report them, and a check reports them with further details.
    """

    files: tuple[PlannedFile, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[tuple[str, Fault], ...] = ()

    def __getitem__(self, name: str) -> PlannedFile:
        return next(file for file in self.files if file.name == name)
