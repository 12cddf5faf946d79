"""The core of a layout: a directory is recognised, planned, read through views, and written by builders.

A layout is pure, as a codec is (`codec.base`): it sees a `Listing`, and gives pieces of bytes with names.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self

from logwright.codec.base import Match
from logwright.codec.capability import DirectoryCapabilities
from logwright.codec.engine.startup import Startup
from logwright.codec.option import Option, Options
from logwright.codec.store.build import Builder, Placement, Stage, Summary
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.roots import Root
from logwright.codec.store.view import Group, Part, View
from logwright.codec.table import Column


class Layout(ABC):
    """One kind of directory. What it offers beyond this core is in `capabilities`."""

    capabilities: DirectoryCapabilities = DirectoryCapabilities()

    name: str
    title: str
    views: Mapping[str, View]
    """Named views; "rows", "frames", "file" and "files" exist for all."""
    default_view: str
    options: tuple[Option, ...] = ()
    read_options: tuple[Option, ...] = ()
    """The ones that reading takes; `options` are for writing."""
    data_folder: str | None = None
    """The folder of each root that holds the files, where people and the system's configuration name the directory above it
    (`version-2`, `current`)."""
    folders: Sequence[str] = ()
    """Patterns of the sub-folders whose files belong to the store, such as `consumequeue/*/*`; folders on the way to them too."""
    root_options: Sequence[str] = ()
    """The options, of reading and of writing, that name further roots."""
    barrier: str | None = None
    """The name of an empty file in the store's own directory that keeps the system from starting. It stands there while old files of
    several roots are replaced or removed: no order of renames makes sense of old files in one root and new files in another."""
    alone: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Views of a single file, as if it were alone in its directory: their names, by the codec of the file."""
    leftovers_read: Sequence[str] = ()
    """The codecs of leftover files that a view still reads: damage in them is reported as a note."""
    nouns: tuple[str, str] = ("row", "file")
    """What the system calls a row, and a primary file: ("record", "segment")."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """As `Codec.printed`."""
    advice: tuple[str, ...] = ()
    """Sentences for whoever has a damaged directory: what could be done with the system's own means."""

    def with_capabilities(self, capabilities: DirectoryCapabilities) -> Self:
        """Return this layout with its capabilities filled in."""
        layout = copy.copy(self)
        layout.capabilities = capabilities
        return layout

    def roots(self, options: Options) -> Sequence[Root]:
        """Return the further roots that options name. Each has one staging place of its own, and all are written by one commit."""
        return ()

    # Reading

    @abstractmethod
    def recognise(self, listing: Listing) -> Match: ...

    @abstractmethod
    def plan(self, listing: Listing, options: Options) -> Plan: ...

    @abstractmethod
    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
        """What is to be read for a view, in order. Groups only where the layout combines them (`DirectoryCapabilities.combine`)."""
        ...

    def facts(self, listing: Listing, plan: Plan) -> Mapping[str, Any]:
        """What the headers in its files tell, for `inspect`, in the system's words, as `Plan.facts`; the headers of all primary
        files are read for it, nothing is decoded."""
        return {}

    def discards(self, name: str) -> bool:
        """Whether a directory of that name is one that the system is about to delete: nobody misses anything in it."""
        return False

    # Writing

    takes: Sequence[Column] = ()
    """Further columns that rows to be written may have, besides those of the default view."""
    inner_staging: str = ".logwright"
    """The name of a sub-directory, ignored by the system, where files to be added to an existing directory are made."""

    def above(self, options: Options) -> Mapping[str, bytes]:
        """Small files that are not in its directory, but in the one above: what these options of writing ask for, by name. What is
        there already is never changed."""
        return {}

    def locks(self) -> Sequence[str]:
        """The files on which the running system holds an operating-system lock, relative to the directory (`../.lock`)."""
        return ()

    def staging(self, name: str, token: str) -> str:
        """The name of a sibling of the directory `name` where a new one is made: one that the system, started at any
        moment, ignores or removes. `token` is 32 hexadecimal digits. Here: for a system that looks at no sibling."""
        return f".{name}.{token}"

    @abstractmethod
    def order(self, names: Iterable[str]) -> Sequence[str]:
        """The order in which new or replaced files are put in place, so that the system, started in between, sees whole
        files, a prefix of them. Names are those of the tree (`codec.store.roots`)."""
        ...

    @abstractmethod
    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        """A builder for a new directory called `name`, or (with a listing) for an append to it.

        `staged`: for one of several tasks, none of which knows its place; `assemble` puts their files together. What must wait until
        all rows are known, and is too large for memory, may be put into `extra`, which is gone after `finish`; without it all is
        held in memory.
        """
        ...

    @abstractmethod
    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        """Put staged parts together, in the order given unless the rows say otherwise; what is made anew goes to `extra`."""
        ...


# Several directories as one


@dataclass(frozen=True)
class Configuration:
    """What a system's own configuration file says of its data: where it lies, in directories that hold several of a layout, and options
    of that."""

    system: str
    directories: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """What decides whether the system starts. None of it is a password."""


class ConfigFile(Protocol):
    """Knows a system's configuration file."""

    layout: str
    """The layout of what lies in the directories that it names."""

    def named(self, name: str) -> bool:
        """Whether a file of this name may be one."""
        ...

    def understand(self, data: bytes) -> Configuration | None:
        """What it says; None where it is none. Raises `UsageError` where it can't be followed."""
        ...


@dataclass(frozen=True)
class RepairedStore:
    """One store of a directory of stores, after a repair."""

    name: str
    """The name of its directory."""
    changed: bool
    """Whether its primary files are not what they were."""
    ids: Mapping[str, Any]
    """`Summary.ids` of the result."""
    files: Sequence[str]
    """The names of its files."""


class Container(Protocol):
    """A directory that holds several of one layout."""

    name: str
    title: str
    layout: str
    """The layout."""
    own_files: Collection[str]
    """The names of files that belong to the directory itself."""
    lock: str
    """The name of the file in each directory on which the running system holds an operating-system lock."""
    startup: Startup
    """The start of the system on all directories that it is given, before it loads a store."""

    def recognise(self, listing: Listing) -> bool:
        """Whether it is one, by the files beside what it holds."""
        ...

    def after_repair(
        self, name: str, data: bytes, stores: Sequence[RepairedStore]
    ) -> tuple[bytes | None, str]:
        """Return the content of one of the directory's own files after its stores were repaired, and a sentence on what changed.

        None stands for a file that must not be there. `stores` are all stores of the result. A file keeps its bytes unless it
        promises what the repaired stores do not hold."""
        ...
