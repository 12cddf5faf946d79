"""A directory as a layout sees it: its files, and what a plan says of each.

Nothing here opens a file: readers and writers implement `Listing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from logwright.codec.fault import Fault
from logwright.codec.window import Bytes


class Role(StrEnum):
    """What a file is to its directory."""

    PRIMARY = "primary"  # what can't be made again
    DERIVED = "derived"  # made from primary files
    METADATA = "metadata"  # small facts of its own
    LEFTOVER = "leftover"  # of an operation that was cut short; the system removes or finishes it
    FOREIGN = "foreign"  # not the system's


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a directory or store."""

    name: str
    """Its path in the tree (`codec.store.roots`)."""
    size: int


class Listing(Protocol):
    """A store as a layout sees it: a tree of names, sizes, windows of bytes. Sub-folders are listed as far as the layout asks for them
    (`Layout.folders`)."""

    name: str
    """The directory's own name, without its parents. A single file that is read as a directory has an attribute `lone` too."""

    def entries(self) -> Sequence[Entry]: ...

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Up to `length` bytes of a file."""
        ...

    def parent(self) -> Listing | None:
        """The directory above, where it can be read: what lies above a partition counts too."""
        ...


@runtime_checkable
class Preads(Protocol):
    """What a listing may offer besides: bytes as they were read, an array of the caller's own, without a copy of them."""

    def pread(self, name: str, offset: int, length: int) -> Bytes:
        """Up to `length` bytes of a file."""
        ...


@runtime_checkable
class Folders(Protocol):
    """Optional for a listing: the names of the sub-directories."""

    def folders(self) -> Sequence[str]: ...


def folders_of(listing: Listing) -> Sequence[str]:
    """Return the names of the sub-directories at the top, as far as the listing knows them."""
    return listing.folders() if isinstance(listing, Folders) else ()


@dataclass(frozen=True)
class PlannedFile:
    """One file in a plan: what it is, and what the plan says of it."""

    name: str
    size: int
    role: Role
    codec: str | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    """For `Codec.context`."""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """A directory understood: its files in the system's order, and what is wrong with it as a whole.

    `faults` name the file ("" is the directory itself). `facts` are what `inspect` shows. `missing` are files that other files
    prove to be lost: readers report them, and a check reports them with what it knows besides.
    """

    files: tuple[PlannedFile, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[tuple[str, Fault], ...] = ()

    def __getitem__(self, name: str) -> PlannedFile:
        return next(file for file in self.files if file.name == name)
