"""What a codec is, and what it may offer besides. A codec gives one file format a meaning; a layout (`codec.layout`) gives a directory one.

Both are pure: bytes and values in, bytes and values out. They never see a path, a file handle or Spark: readers and writers do, and
know no byte layout.

A codec says what it is: `class KafkaLog(Codec, Recodes, EditsFile)`. What has one answer for most formats is answered here, and what a
format has to say itself is without a body: `make types` names what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec import address
from logwright.codec.describe import Struct
from logwright.codec.explain import Focus, Node, stretch
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.table import Table
from logwright.codec.window import Bytes as Bytes
from logwright.codec.window import Window as Window

Positions = npt.NDArray[np.int64]


Chunk = bytes | bytearray | memoryview | Bytes


class Match(IntEnum):
    """How sure a codec is that a file is its own."""

    NO = 0
    MAYBE = 1  # the first bytes could be
    NAME = 2  # the name says so
    SURE = 3  # the name and the first bytes say so


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


@dataclass(frozen=True)
class Forgotten:
    """What a row may say that is not written where rows alone are given: a column, unless it has one of the values `nothing`.

    `what` follows on the number of rows ("belong to transactions"). With an `advice` it is refused, unless a view was chosen.
    """

    column: str
    nothing: tuple[Any, ...]
    what: str
    advice: str = ""


class Codec(Protocol):
    """One file format."""

    name: str
    title: str
    structures: tuple[Struct, ...]
    """What it is made of, for those who look at the bytes and change them by name: the first is that of a frame."""
    described: tuple[Struct, ...] = ()
    """The same for the format's page in the docs, where its first structure is the file, not one of its frames."""
    tables: Mapping[str, Table]
    """"rows", "frames" and "file"; a frames table has the columns `position`, `size` and `codec.table.RAW`, a file table those of
    `codec.table.extent` and `codec.table.ending`."""
    options: tuple[Option, ...] = ()
    """What decoding and encoding a file of its own takes."""
    whole: bool = False
    """True for small files that are one frame: they are always read as a single window."""
    indexed: bool = False
    """True if an index in the file says where frames lie: a stretch of the file alone is no file of that format."""
    ordered: str | None = None
    """The column by which frames are in order in a sound file, known from their headers (`frame_bounds`); None: there is none."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """How the system prints numbers of its own (`Fault.lost`), where not in decimal, by what they are: {"zxid": hex}, for "first_zxid"."""
    forgets: tuple[Forgotten, ...] = ()
    """What is lost where only rows are given to be written."""

    end_magic: bytes = b""
    """The bytes that every sound file ends in, by which one under any name is recognised; empty where there are none."""

    def recognise(self, name: str, head: bytes) -> Match:
        """From the file's name (without folders) and its first bytes (up to 4096)."""
        ...

    def context(self, name: str, options: Options, **hints: Any) -> Any:
        """What decoding needs to know besides the bytes: topic and base offset from the name, what a view leaves out.

        Picklable; made anew for each stream over a file, and may carry state from window to window (the previous offset). Scans may be
        some windows ahead of decoding, in another thread: what the ones carry on and what the other does are different things.
        One hint is given to all codecs: `directory`, the name of the folder that the file lies in ("" when not known).
        """
        return None

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
        row = {"size": size, "frames": frames, "trailing": tail, "trailing_zeros": zeros}
        table = self.tables["file"]
        return pa.RecordBatch.from_pylist([row], schema=table.schema(table.names(detail=True)))

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """Arrays of the smallest and largest value that a column can have in each frame; None where not known.

        Times as integers, as they are in Arrow. Rows with null match no comparison, so they need no place in the bounds.
        """
        return None, None

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

    def explain(self, window: Window, context: Any, focus: Focus, *, frame: bool) -> Sequence[Node]:
        """All of the window, as nodes side by side: it is a `frame` just as a scan found it, or a stretch that is none (damage, or
        what no frame covers). Never raises, whatever the bytes. Here: the first structure, again and again."""
        return stretch(self.structures[0] if self.structures else None, window, focus, one=frame)

    def field_names(self) -> Sequence[str]:
        """The names of all fields that a path of `edit` may end in, and of what they lie in."""
        return address.names(self.structures)

    def edit(self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
        """A frame with one field changed by its name, to wrong values too. `path`: ("records", 3, "key"), see `codec.address`.
        `change` gets the bytes of the field and what it holds, and gives others of any length. `reseal`: lengths and checksums around
        it are made right again. Here: a frame is the first structure.

        Raises `UsageError` for a field that there is not, or that can't be found in these bytes.
        """
        return address.of_codec(self.name, self.structures, frame, path, change, reseal=reseal)


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
class KnowsEnd(Protocol):
    """Optional: compare the end of a file with where other files of its directory say that it once ended."""

    def ends_early(self, last: Frames | None, size: int, torn: bool, context: Any) -> Fault | None:
        """The fault of a file of `size` bytes that ends before that. `last` holds the last good frame, None without one. With
        `torn` the file ends in damage that is reported already."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """What a codec may offer besides: to look at places of the file before its first scan, for what lies elsewhere than where a walk
    begins: a footer, an index."""

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: Any) -> None:
        """Called once for a context before the first `scan` with it, for a file of `size` bytes; an empty file is scanned too.

        `read(offset, length)` gives so many bytes, or fewer at the end of the file; zeros where the disk can't read.
        """
        ...


@runtime_checkable
class Inherits(Protocol):
    """What a codec may offer besides: to say with which options a file was made, where one written anew would else lack something."""

    def made_with(self, read: Callable[..., pa.Table]) -> Mapping[str, Any]:
        """Options of writing, as far as the file tells; `read(columns, filter, limit)` gives its frames, those that are sound."""
        ...


@runtime_checkable
class Recodes(Protocol):
    """What a codec may offer besides: to write the frames of a file in another way, and keep all else that they say."""

    def recode(self, frames: pa.Table, options: Options) -> pa.Table | None:
        """A frames table (all columns) as these options would have it; None where rows have to be put into other frames for it."""
        ...
