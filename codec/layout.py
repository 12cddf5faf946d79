"""The core of a layout: a directory is recognised, planned, read through views, and written by builders.

A layout is pure, like a codec (`codec.base`): it reads a `Listing` and yields named pieces of bytes.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from logwright.codec.base import Match
from logwright.codec.capability import DirectoryCapabilities
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.store.build import Builder, Parts, Placement, Stage
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.roots import Root
from logwright.codec.store.view import Group, Part, View
from logwright.codec.table import Column

if TYPE_CHECKING:
    from logwright.codec.engine.startup import Startup

STAGING_MARK = "logwright"
"""Part of the name of each folder with staged files, so most names are recognised without importing the systems."""


class Layout(ABC):
    """One kind of directory. Optional features are in `capabilities`."""

    _make_capabilities: Callable[[], DirectoryCapabilities] = DirectoryCapabilities

    name: str
    title: str
    views: Mapping[str, View]
    """Named views; "rows", "frames", "file" and "files" exist for all layouts."""
    default_view: str
    options: tuple[Option, ...] = ()
    """Options for writing."""
    read_options: tuple[Option, ...] = ()
    data_folder: str | None = None
    """The folder of each root that holds the files (`version-2`), if users and configuration files name the directory above it."""
    folders: Sequence[str] = ()
    """Patterns of the sub-folders whose files belong to the store, such as `consumequeue/*/*`, and of the folders above them."""
    root_options: Sequence[str] = ()
    """The read and write options that name further roots."""
    identity_options: Mapping[str, str] = MappingProxyType({})
    """Write options that a conversion to a directory of the same name takes from the source, with the facts that have their values."""
    barrier: str | None = None
    """The name of an empty file in the store's own directory that keeps the system from starting. It exists while old files of several
    roots are replaced, because the system cannot make sense of old files in one root and new files in another."""
    alone: Mapping[str, Sequence[str]] = MappingProxyType({})
    """The views that can be read from a single file, by the codec of the file."""
    leftovers_read: Sequence[str] = ()
    """The codecs of leftover files that a view still reads. Damage in them is reported as a note."""
    nouns: tuple[str, str] = ("row", "file")
    """The system's terms for a row and a primary file: ("record", "segment")."""
    rows_noun: str | None = None
    """The term for the rows that are counted in all primary files, if it is another one: a journal has records that are no entries."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """See `Codec.printed`."""
    advice: tuple[str, ...] = ()
    """Ways to recover a damaged directory with the system's own tools, one sentence each."""

    @cached_property
    def capabilities(self) -> DirectoryCapabilities:
        return self._make_capabilities()

    def with_capabilities(self, make: Callable[[], DirectoryCapabilities]) -> Self:
        """Return this layout with the capabilities that `make` imports when they are first used."""
        layout = copy.copy(self)
        layout._make_capabilities = make
        return layout

    def roots(self, options: Options) -> Sequence[Root]:
        """Return the further roots that options name. Each has its own staging directory; one commit writes all roots."""
        return ()

    # Reading

    @abstractmethod
    def recognise(self, listing: Listing) -> Match: ...

    @abstractmethod
    def plan(self, listing: Listing, options: Options) -> Plan: ...

    @abstractmethod
    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
        """Return the parts of a view in order. Groups are for layouts that merge files (`DirectoryCapabilities.combine`)."""
        ...

    def facts(self, listing: Listing, plan: Plan) -> Mapping[str, Any]:
        """Return facts for `inspect`, in the form of `Plan.facts`. Reads the headers of all primary files and decodes nothing."""
        return {}

    def discards(self, name: str) -> bool:
        """Return whether a directory of this name is one that the system is about to delete."""
        return False

    def unserved(self, name: str) -> str:
        """Return why the system serves no rows of a directory of this name, as the predicate of a sentence; "" if it serves them."""
        return ""

    def in_view(self, name: str, view: str) -> bool:
        """Return whether a directory of this name, one of several, can have rows of the view."""
        return True

    # Writing

    takes: Sequence[Column] = ()
    """Columns that written rows may have in addition to those of the default view."""
    inner_staging: str = ".logwright"
    """The name of a sub-directory, ignored by the system, in which files for an existing directory are staged. It contains
    `STAGING_MARK`."""

    withheld: Sequence[str] = ()
    """Files without which the system does not start. A commit that adds files one by one removes them first, and renames them last."""
    trial_row: Mapping[str, Any] = MappingProxyType({})
    """Values of columns with which Spark tries a builder before any task runs."""

    def parent_files(self, options: Options) -> Mapping[str, bytes]:
        """Return the small files, by name, that these write options place in the parent directory. Existing ones are never changed."""
        return {}

    def locks(self) -> Sequence[str]:
        """Return the files that the running system locks, relative to the directory (`../.lock`)."""
        return ()

    def staging(self, name: str, token: str) -> str:
        """Return the name of a sibling of the directory `name` in which a new one is staged.

        The system must ignore or remove a sibling of this name whenever it starts. `token` is 32 hexadecimal digits. The default
        suits a system that reads no siblings.
        """
        return f".{name}.{token}"

    @abstractmethod
    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Return file names (see `codec.store.roots`) in commit order.

        If the system starts during a commit, it must find a prefix of the new files, each complete.
        """
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
        """Return a builder for a new directory `name`, or with a listing, for appending to it.

        `staged`: the builder is one of several tasks that do not know their position; `assemble` joins their files. `extra` is a
        temporary stage for data that must wait for the last row and may exceed memory. It is deleted after `finish`.
        """
        ...

    @abstractmethod
    def assemble(
        self, listing: Listing | None, name: str, parts: Parts, extra: Stage, options: Options
    ) -> Placement:
        """Join staged parts, in this order unless the rows require another. Files that have to be rewritten go to `extra`."""
        ...


# Several directories as one


@dataclass(frozen=True)
class Configuration:
    """The settings in a system's configuration file that concern its data: the data directories and their options."""

    system: str
    directories: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that decide whether the system starts. They never include a password."""
    others: tuple[str, ...] = ()
    """Further directories of the same store, which can stand for it if there is no store in `directories`."""


class ConfigFile(Protocol):
    """Parser of a system's configuration file."""

    layout: str
    """The layout of the directories that it names."""

    def named(self, name: str) -> bool:
        """Return whether a configuration file may have this name."""
        ...

    def parse(self, data: bytes) -> Configuration | None:
        """Return the settings; None for another kind of file. Raises `UsageError` for settings that are not supported."""
        ...


@dataclass(frozen=True)
class RepairedStore:
    """One store of a container, after a repair."""

    name: str
    """The name of its directory."""
    changed: bool
    """Whether a primary file has changed."""
    ids: Mapping[str, Any]
    """`Summary.ids` of the result."""
    files: Sequence[str]
    """The names of its files."""


class Container(Protocol):
    """A directory that holds several stores of one layout."""

    name: str
    title: str
    layout: str
    own_files: Collection[str]
    """The names of the files that belong to the container itself."""
    lock: str
    """The name of the file in the container that the running system locks."""
    writer: Layout | None
    """The layout that writes rows of several stores as one directory, with the name of the container. None: it is only read."""

    @property
    def startup(self) -> Startup:
        """The start of the system on all its containers, up to the point where it loads a store."""
        ...

    def recognise(self, listing: Listing) -> bool:
        """Recognise a container by its own files."""
        ...

    def unserved(self, name: str) -> str:
        """Return why the system does not serve a store in a folder of this name, as the end of a sentence; "" if it may."""
        ...

    def check(
        self, listing: Listing, stores: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, str, Fault]]:
        """Yield where its own files and its stores contradict each other: the folder of a store, which may be missing, the file in it ("": the
        folder itself), and the fault.

        `stores` has the facts of their plans, by the names of their folders; none for a store that could not be opened.
        """
        ...

    def compacted(
        self, listing: Listing, stores: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, bytes] | None:
        """Return the name and the new content of the own file that records how far stores are compacted; None if nothing is recorded.

        `listing` is that of the container, `stores` has `Summary.ids` of the compacted stores, by the names of their directories.
        Raises `UsageError` for a file that cannot be parsed.
        """
        ...

    def after_repair(
        self, name: str, data: bytes, stores: Sequence[RepairedStore]
    ) -> tuple[bytes | None, str]:
        """Return the content of one of the container's own files after its stores were repaired, and a sentence on the change.

        None removes the file. `stores` are all stores of the result. A file changes only if it contradicts the repaired stores.
        """
        ...
