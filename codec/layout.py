"""What a layout is, and what it may offer besides: a directory understood, read through views, written by builders, checked.

Pure, as codecs are (`codec.base`): it sees a `Listing`, and gives pieces of bytes with names. It says what it is: `class
LevelDB(Layout, Combines, Predicts, Checks, Repairs, Edits)`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from logwright.codec.base import Bytes, Chunk, Frames, Match, Window
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.table import Column, Table


class Role(StrEnum):
    """What a file is to its directory."""

    PRIMARY = "primary"  # what can't be made again
    DERIVED = "derived"  # made from primary files
    METADATA = "metadata"  # small facts of its own
    LEFTOVER = "leftover"  # of an operation that was cut short; the system removes or finishes it
    FOREIGN = "foreign"  # not the system's


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a directory."""

    name: str
    size: int


class Listing(Protocol):
    """A directory as a layout sees it: names, sizes, windows of bytes. Sub-directories are not listed, but for files that lie
    apart (`Spans`)."""

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
    prove to be lost: readers report them, and a `Checker` reports them with what it knows besides.
    """

    files: tuple[PlannedFile, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[tuple[str, Fault], ...] = ()

    def __getitem__(self, name: str) -> PlannedFile:
        return next(file for file in self.files if file.name == name)


@dataclass(frozen=True)
class Part:
    """A stretch of one file to be read for a view: `[start, stop)` owns the frames that start in it."""

    file: str
    codec: str
    table: str
    hints: Mapping[str, Any]
    start: int = 0
    stop: int | None = None
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The smallest and largest value that a column can have in it, both included, None where there is no bound: a filter
    skips the part without opening the file. `{"offset": (0, 4182)}`; times as integers, as they are in Arrow."""


@dataclass(frozen=True)
class Run:
    """Parts that are read one after the other, as one of the streams that are combined. `how` is the layout's own word on it."""

    parts: tuple[Part, ...]
    how: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Runs whose rows make the rows of a view only together (`Combines`), by one task. `how` as in `Run`; all of it is picklable.

    `key` names the column whose equal values belong together: a filter on it may be used before they do, and where every part has
    its bounds, the group may be cut into ranges of it, each of which is combined on its own. None: there is no such column.
    Of the rows of its parts only those belong to it whose key is from `low` on and before `high`, where there is such a bound.
    """

    runs: tuple[Run, ...]
    how: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class View:
    """What a system's users would see through the directory, in their words.

    Its rows are those of a table of a codec, or of a table of its own (`rows`); then `codec` is that of most of what is read.
    """

    name: str
    codec: str
    table: str
    doc: str
    rows: Table | None = None
    leaves: str = ""
    """What is on disk and not seen through it, for people: "the markers of transactions"."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to be appended to a file of the directory being written. `done` closes the file."""

    name: str
    data: Chunk
    done: bool = False


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

    def write(self, name: str, offset: int, data: Chunk) -> None:
        """Overwrite bytes of a staged file."""
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


class Layout(Protocol):
    """One kind of directory."""

    name: str
    title: str
    views: Mapping[str, View]
    """Named views; "rows", "frames", "file" and "files" exist for all."""
    default_view: str
    options: tuple[Option, ...] = ()
    read_options: tuple[Option, ...] = ()
    """The ones that reading takes; `options` are for writing."""
    within: str | None = None
    """The name that its directory always has, where people name the one above, since that is what the system is told."""
    alone: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Views of a single file, as if it were alone in its directory: their names, by the codec of the file."""
    nouns: tuple[str, str] = ("row", "file")
    """What the system calls a row, and a primary file: ("record", "segment")."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """As `Codec.printed`."""
    clean_matters: bool = True
    """Whether the system's start depends on how it was stopped. Where it does not, the option `clean` is refused."""
    advice: tuple[str, ...] = ()
    """Sentences for whoever has a damaged directory: what could be done with the system's own means."""

    # Reading

    def recognise(self, listing: Listing) -> Match: ...

    def plan(self, listing: Listing, options: Options) -> Plan: ...

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
        """What is to be read for a view, in order. Groups only where the layout combines them (`Combines`)."""
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

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """The order in which new or replaced files are put in place, so that the system, started in between, sees whole
        files, a prefix of them."""
        ...

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

        `staged`: for one of several tasks, none of which knows its place; `place` puts their files together. What must wait until
        all rows are known, and is too large for memory, may be put into `extra`, which is gone after `finish`; without it all is
        held in memory.
        """
        ...

    def place(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        """Put staged parts together, in the order given unless the rows say otherwise; what is made anew goes to `extra`."""
        ...


class Stream(Protocol):
    """One run of a group, to be read. Each call reads it from its start; what is damaged is told once."""

    @property
    def how(self) -> Mapping[str, Any]:
        """`Run.how`."""
        ...

    @property
    def damaged(self) -> bool:
        """Whether something is wrong with its files, as far as they were read: rows may be missing, or not be what they were."""
        ...

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows with these columns, in the order of the parts. Of a part where all rows are wanted, and of the others perhaps only
        those that a filter on `Group.key` lets pass."""
        ...


@runtime_checkable
class Combines(Protocol):
    """What a layout may offer besides: views whose rows are made from those of several files side by side."""

    def combine(
        self,
        view: str,
        how: Mapping[str, Any],
        runs: Sequence[Stream],
        columns: Sequence[str],
        tell: Callable[[Fault], None],
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a group (`how` is `Group.how`), only these columns of the view's table, in pieces of bounded memory.

        Columns in, columns out; a run may be read several times. Runs without rows may be missing. `tell` takes what is wrong
        with the whole, and raises it where the mode says so.
        """
        ...


@runtime_checkable
class Spans(Protocol):
    """What a layout may offer besides: files of the same thing in further directories, which only its user knows of."""

    apart: Sequence[str]
    """Options, of reading and of writing, that name such a directory. Its files are listed in a folder of that name:
    `dataLogDir/log.1`; a builder that is given the option makes them under such names."""
    guard: str
    """The name of a file in the directory itself with which the system refuses to start, where files lie apart."""
    together: str
    """What has to be known before the system is started on a result all of whose files lie together, where they did not."""

    def listed(self, name: str) -> str:
        """The name under which a file is listed where files lie apart."""
        ...


class Checker(Protocol):
    """Holds the files of one directory against each other, from the frames of its primary files."""

    def add(self, file: PlannedFile, window: Window, frames: Frames) -> None:
        """Good frames of a primary file, in the order of the plan and of the file. What lies between them is damaged, or can't
        be read."""
        ...

    def finish(self) -> Iterator[tuple[str, Fault]]:
        """What does not fit, by file ("" is the directory itself)."""
        ...


@runtime_checkable
class Checks(Protocol):
    """What a layout may offer besides: to say what can't be seen in a single file."""

    def checker(
        self,
        listing: Listing,
        plan: Plan,
        options: Options,
        *,
        clean: bool | None,
        live: bool | None,
        deep: bool,
    ) -> Checker:
        """`clean`: whether the last stop counts as a clean one; None: the system's own marker says. `deep`: what is in the frames is
        looked at too, and not only their headers."""
        ...


@runtime_checkable
class Replicates(Protocol):
    """What a layout may offer besides: to know copies of one thing, on several disks or machines."""

    def copy_of(self, listing: Listing, plan: Plan) -> tuple[str, str | None] | None:
        """The name of what a directory is a copy of, and the id that tells it from others of this name; None where not known."""
        ...

    def reaches(self, listing: Listing, plan: Plan) -> int:
        """How far a copy reaches, in the system's own numbers."""
        ...


class Watcher(Protocol):
    """What a view needs to know of rows that it does not give yet, or not at all: sees the frames of a directory that is followed."""

    view: str
    """The parts of this view are what is read, with `hints`."""

    def add(self, window: Window, frames: Frames) -> None:
        """Good frames, in order, from the position on where the watch began."""
        ...

    def settled(self) -> int | None:
        """Rows from here on are not to be given yet; None where all are."""
        ...

    def hints(self, start: int, end: int) -> Mapping[str, Any]:
        """For `Codec.context`, of the rows `[start, end)`, all of which are settled."""
        ...


@runtime_checkable
class Follows(Protocol):
    """What a layout may offer besides: to be followed while its system writes.

    Its rows have a position, a whole number that grows from row to row, and that a row keeps as long as it is there: so a reader that
    remembers one number can ask what is new since. It is the column by which the files' codec is `ordered`, and each part of a view
    has its `bounds`. Frames are added behind the last one of the last part.
    """

    follow_options: tuple[Option, ...]
    """The words of this system's own readers: which directories of a folder, from where, up to where, how much at a time."""

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        """The view that is meant, and its column of positions. Raises `UsageError` for a view that has none."""
        ...

    def leaves_out(self, options: Options) -> Sequence[str]:
        """Columns of the view that are not given unless they are asked for."""
        ...

    def wanted(self, name: str, options: Options) -> bool:
        """Whether a directory of this name is one of those that the options choose."""
        ...

    def begins(self, plan: Plan) -> int:
        """The first position that is served."""
        ...

    def span(
        self, listing: Listing, plan: Plan, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        """The positions `[low, high)` that the options ask for, of a directory that ends at `end`; of a `stream` the high one counts
        for nothing. Not held against what there is. Raises `UsageError`."""
        ...

    def watcher(self, view: str) -> Watcher | None:
        """None for a view that needs to know no more than what it gives."""
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


class Configures(Protocol):
    """Knows a system's configuration file."""

    of: str
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


class Gathering(Protocol):
    """A directory that holds several of one layout."""

    name: str
    title: str
    of: str
    """The layout."""
    own_files: Container[str]
    """The names of files that belong to the directory itself."""

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


def take(pieces: Iterable[Piece]) -> dict[str, bytes]:
    """All pieces put together, by file name. For small directories and tests."""
    files: dict[str, bytearray] = {}
    for piece in pieces:
        files.setdefault(piece.name, bytearray()).extend(bytes(piece.data))
    return {name: bytes(data) for name, data in files.items()}
