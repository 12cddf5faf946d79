"""What a codec and a layout offer. Everything that reads, writes, checks or repairs works through these two protocols.

A codec gives one file format a meaning; a layout gives a directory one. Both are pure: bytes and values in, bytes and values
out. They never see a path, a file handle or Spark: readers and writers do, and know no byte layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.describe import Struct, Type
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.table import Table

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Chunk = bytes | bytearray | memoryview | Bytes


class Match(IntEnum):
    """How sure a codec is that a file is its own."""

    NO = 0
    MAYBE = 1  # the first bytes could be
    NAME = 2  # the name says so
    SURE = 3  # the name and the first bytes say so


@dataclass(frozen=True, slots=True)
class Window:
    """Some bytes of a file: `data[i]` is byte `offset + i` of a file of `size` bytes. The data is never written to."""

    data: Bytes
    offset: int
    size: int

    @property
    def final(self) -> bool:
        return self.offset + len(self.data) >= self.size


@dataclass(slots=True)
class Frames:
    """What a scan found in a window: whole frames, where it stopped, and why.

    `start` and `end` are positions in `window.data`; `header` is the codec's own structured array, one element a frame.
    `stop` is the first byte not covered. `need` > 0: the frame at `stop` is longer than the window, so many bytes are
    needed from `stop` on; where the window has 4096 bytes or more from `stop` on, that is the size of the whole frame, so that
    a walk over the frames may jump. `damage` is the fault at `stop` that ended the scan (`need` is 0 then). Neither: the end
    of the file.
    `faults` are further findings that did not stop the scan. Offsets in faults count from the start of the file.
    """

    start: Positions
    end: Positions
    header: npt.NDArray[Any]
    stop: int
    need: int = 0
    damage: Fault | None = None
    faults: list[Fault] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, mask: npt.NDArray[np.bool_] | slice) -> Frames:
        """The same with only some of the frames."""
        return Frames(
            self.start[mask],
            self.end[mask],
            self.header[mask],
            self.stop,
            self.need,
            self.damage,
            self.faults,
        )


@dataclass(slots=True)
class Decoded:
    """Some decoded rows, and the frames among them that could not be decoded: (rows before it, fault)."""

    batch: pa.RecordBatch
    faults: list[tuple[int, Fault]] = field(default_factory=list)


class Codec(Protocol):
    """One file format."""

    name: str
    title: str
    structures: tuple[Struct, ...]
    tables: Mapping[str, Table]
    """"rows", "frames" and "file"."""
    options: tuple[Option, ...]
    """What decoding and encoding a file of its own takes."""
    whole: bool
    """True for small files that are one frame: they are always read as a single window."""
    ordered: str | None
    """The column by which frames are in order in a sound file, known from their headers (`frame_bounds`); None: there is none."""

    def recognise(self, name: str, head: bytes) -> Match:
        """From the file's name (without folders) and its first bytes (up to 4096)."""
        ...

    def context(self, name: str, options: Options, **hints: Any) -> Any:
        """What decoding needs to know besides the bytes: topic and base offset from the name, what a view leaves out.

        Picklable; made anew for each stream over a file, and may carry state from window to window (the previous offset).
        One hint is given to all codecs: `directory`, the name of the folder that the file lies in ("" when not known).
        """
        ...

    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        """Find frames from `window.data[at]` on; with `check` their checksums too."""
        ...

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: Any
    ) -> Iterator[Decoded]:
        """The rows (or frames) of these frames, in order, in pieces of bounded memory; only the columns asked for."""
        ...

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: Any
    ) -> pa.RecordBatch:
        """The one row of the file table, all columns. `tail` is what no frame covers at the end, then `zeros` zero bytes."""
        ...

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """Arrays of the smallest and largest value that a column can have in each frame; None where not known.

        Times as integers, as they are in Arrow. Rows with null match no comparison, so they need no place in the bounds.
        """
        ...

    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """The next place at or after `at` where a frame truly starts: (place, 0); (place, need) when so many bytes are
        needed from there to be sure; (-1, keep) when there is none in this window but for its last `keep` bytes.

        `at` lies behind the damage at which the last scan with this context stopped; that place is in the window too unless
        it is far away. Whole frames may be the content of another (a log within a log): such are no frames of this file.
        """
        ...

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: Any
    ) -> Iterator[Chunk]:
        """The bytes of a file. From rows alone with upstream's defaults; with the other tables exactly as it was."""
        ...


@runtime_checkable
class TellsLoss(Protocol):
    """What a codec may offer besides: to say in the system's words what is gone where a stretch was skipped."""

    def lost_between(
        self, before: Frames | None, after: Frames | None, context: Any
    ) -> tuple[int | None, Mapping[str, Any]]:
        """For `Fault.rows_lost` (None: not known) and `Fault.lost`, where the fault does not say so itself.

        `before` and `after` hold one frame each, the last good one before the stretch and the first one after it; None where
        there is none. That is all there is to know.
        """
        ...


@runtime_checkable
class Addresses(Protocol):
    """What a codec may offer besides: to change one field of a frame by its name, wrong values too."""

    def field_names(self) -> Sequence[str]:
        """The names of all fields that a path may end in, and of what they lie in."""
        ...

    def edit(
        self, frame: bytes, path: Sequence[str | int], change: Callable[[bytes, Type], bytes], *, reseal: bool
    ) -> bytes:
        """The frame with one field changed. `path`: ("records", 3, "key"), see `codec.address`. `change` gets the bytes of the field
        and what it holds, and gives others of any length. `reseal`: lengths and checksums around it are made right again.

        Raises `UsageError` for a field that there is not, or that can't be found in these bytes.
        """
        ...


# Layouts


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
    """A directory as a layout sees it: names, sizes, windows of bytes. Sub-directories are not listed."""

    name: str
    """The directory's own name, without its parents."""

    def entries(self) -> Sequence[Entry]: ...

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Up to `length` bytes of a file."""
        ...

    def parent(self) -> Listing | None:
        """The directory above, where it can be read: what lies above a partition counts too."""
        ...


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

    `faults` name the file ("" is the directory itself). `facts` are what `inspect` shows.
    """

    files: tuple[PlannedFile, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

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
class View:
    """What a system's users would see through the directory, in their words."""

    name: str
    codec: str
    table: str
    doc: str


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
    options: tuple[Option, ...]
    read_options: tuple[Option, ...]
    """The ones that reading takes; `options` are for writing."""

    def recognise(self, listing: Listing) -> Match: ...

    def plan(self, listing: Listing, options: Options) -> Plan: ...

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        """What is to be read for a view, in order."""
        ...

    def locks(self) -> Sequence[str]:
        """The files on which the running system holds an operating-system lock, relative to the directory (`../.lock`)."""
        ...

    def staging(self, name: str, token: str) -> str:
        """The name of a sibling of the directory `name` where a new one is made: one that the system, started at any
        moment, ignores or removes. `token` is 32 hexadecimal digits."""
        ...

    inner_staging: str
    """The name of a sub-directory, ignored by the system, where files to be added to an existing directory are made."""

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """The order in which new or replaced files are put in place, so that the system, started in between, sees whole
        files, a prefix of them."""
        ...

    def builder(
        self, listing: Listing | None, name: str, options: Options, *, staged: bool = False
    ) -> Builder:
        """A builder for a new directory called `name`, or (with a listing) for an append to it.

        `staged`: for one of several tasks, none of which knows its place; `place` puts their files together.
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


@runtime_checkable
class TellsFacts(Protocol):
    """What a layout may offer besides: facts that the headers in its files tell, for `inspect`."""

    def facts(self, listing: Listing, plan: Plan) -> Mapping[str, Any]:
        """In the system's words, as `Plan.facts`; the headers of all primary files are read for it, nothing is decoded."""
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
        self, listing: Listing, plan: Plan, options: Options, *, clean: bool | None, live: bool | None
    ) -> Checker:
        """`clean`: whether the last stop counts as a clean one; None: the system's own marker says."""
        ...


@runtime_checkable
class Advises(Protocol):
    """What a layout may offer besides: words for people."""

    nouns: tuple[str, str]
    """What the system calls a row, and a primary file: ("record", "segment")."""

    def advice(self, plan: Plan) -> Sequence[str]:
        """Sentences for whoever has a damaged directory: what could be done with the system's own means."""
        ...

    def discards(self, name: str) -> bool:
        """Whether a directory of that name is one that the system is about to delete: nobody misses anything in it."""
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


# Several directories as one


@dataclass(frozen=True)
class Configuration:
    """What a system's own configuration file says of its data: where it lies, in directories that hold several of a layout, and options
    of that."""

    system: str
    directories: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)


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


class Gathering(Protocol):
    """A directory that holds several of one layout."""

    name: str
    title: str
    of: str
    """The layout."""

    def recognise(self, listing: Listing) -> bool:
        """Whether it is one, by the files beside what it holds."""
        ...


# What the real system would do, and mending


@dataclass(frozen=True)
class Verdict:
    """What the real system would do with a directory if it were started on it now. Nothing is started for it.

    `scope` says what does not come up where `opens` is False: the whole "process", the "log_dir" (or what the system calls a
    disk of its own), or the "partition" (or ledger, or queue) alone. `error` is what it would say, `error_class` its exception.
    """

    name: str
    version: str
    clean: bool
    """Whether the last stop counts as a clean one, and `clean_from` how that is known."""
    clean_from: str
    opens: bool = True
    scope: str | None = None
    error: str | None = None
    error_class: str | None = None
    rows: int | None = None
    """So many rows does a client get by the default view; `rows_lost` are undamaged ones that it does not get."""
    rows_lost: int | None = None
    lost: tuple[Mapping[str, Any], ...] = ()
    serves: Mapping[str, Any] = field(default_factory=dict)
    """First and last of the system's own numbers that are served, and where its client stops with an error (or None)."""
    truncates: Mapping[str, int] = field(default_factory=dict)
    """File by the size that it is cut to."""
    removes: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As the report has it."""
        return {
            "name": self.name,
            "version": self.version,
            "clean": self.clean,
            "clean_from": self.clean_from,
            "opens": self.opens,
            "scope": self.scope,
            "error": self.error,
            "error_class": self.error_class,
            "rows": self.rows,
            "rows_lost": self.rows_lost,
            "lost": [dict(one) for one in self.lost],
            "serves": dict(self.serves),
            "truncates": dict(self.truncates),
            "removes": list(self.removes),
            "rewrites": list(self.rewrites),
            "creates": list(self.creates),
            "warnings": list(self.warnings),
        }


class Opened(Protocol):
    """A directory as the real system would leave it after its start."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def after(self) -> Listing:
        """The directory with everything cut, removed, renamed and made anew; the one asked about is as it was."""
        ...

    def parts(self, view: str) -> Sequence[Part]:
        """What its clients get, in order, as stretches of the files as they are now. What lies behind the place where a client
        stops with an error is not among them."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """What a layout may offer besides: to say what the real system would do."""

    versions: Sequence[str]
    """The versions that can be asked about, the newest first."""

    def open_as(
        self, listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
    ) -> Opened:
        """Start the system on the directory, in thought. `version` None: the newest; `clean` None: the system's own marker says."""
        ...


class Strategy(StrEnum):
    """How a directory is mended."""

    SALVAGE = "salvage"  # every undamaged frame is kept
    PREFIX = "prefix"  # all before the first damage
    SYSTEM = "system"  # what the real system would leave


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes `[start, stop)` of a file of one of the copies given, which go into the result as they are."""

    file: str
    start: int
    stop: int
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes of a primary file that are not in the result. `lost` as in `Fault`."""

    file: str
    offset: int
    length: int
    why: str
    copy: int = 0
    rows_lost: int | None = None
    lost: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mended:
    """A file of the result, and the pieces that it is made of, in order. One piece that is a whole file of that name: untouched."""

    name: str
    pieces: Sequence[Kept | bytes]
    like: str | None = None
    """The file of the first copy whose owner and mode it takes; None: those of the directory's primary files."""


class Mending(Protocol):
    """A directory being mended or rebuilt. `files` is run once; the rest is known when it is exhausted."""

    cut: Sequence[Cut]
    removes: Sequence[str]
    """Files of the first copy that are not in the result."""

    def files(self) -> Iterator[Mended]:
        """Every file of the result, untouched ones too, in the order in which they are put in place. Files are made when they
        are asked for: what is derived from a primary file comes soon after it, and is in memory only until the next one."""
        ...

    def summary(self) -> Summary:
        """Rows kept, first and last ids, warnings, and what the system needs before it is started."""
        ...


@runtime_checkable
class Repairs(Protocol):
    """What a layout may offer besides: to mend a directory, and to make its derived files anew."""

    repair_options: tuple[Option, ...]
    rebuilds: Sequence[str]
    """What `rebuild` can make anew, in the system's words."""

    def repair(
        self, copies: Sequence[Listing], plans: Sequence[Plan], strategy: Strategy, options: Options
    ) -> Mending:
        """Mend a directory. Several `copies` are replicas: each frame is taken from whichever verifies. Raises `UsageError` where
        copies diverged, saying where."""
        ...

    def rebuild(self, listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
        """Make derived files anew from the primary ones. Raises `DamageError` where a primary is damaged."""
        ...


def take(pieces: Iterable[Piece]) -> dict[str, bytes]:
    """All pieces put together, by file name. For small directories and tests."""
    files: dict[str, bytearray] = {}
    for piece in pieces:
        files.setdefault(piece.name, bytearray()).extend(bytes(piece.data))
    return {name: bytes(data) for name, data in files.items()}
