"""The core of a codec: one file format, decoded and encoded. A layout (`codec.layout`) does the same for a directory.

Both are pure: bytes and values in, bytes and values out. They never see a path, a file handle or Spark. Readers and writers
do, and know no byte layout. What a format offers beyond this core is in `Codec.capabilities` (`codec.capability`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa

from logwright.codec import address
from logwright.codec.capability import FileCapabilities
from logwright.codec.describe import Struct
from logwright.codec.explain import Focus, Node, explain_values
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.table import Table
from logwright.codec.window import Bytes, Chunk, Decoded, Frames, RowFrames, Window


class Match(IntEnum):
    """How sure a codec is that a file is its own."""

    NO = 0
    MAYBE = 1  # the first bytes could be
    NAME = 2  # the name says so
    SURE = 3  # the name and the first bytes say so


@dataclass(frozen=True)
class LossyColumn:
    """What a row may say that is not written where rows alone are given: a column, unless it has one of the values `nothing`.

    `what` follows on the number of rows ("belong to transactions"). With an `advice` it is refused, unless a view was chosen.
    """

    column: str
    nothing: tuple[Any, ...]
    what: str
    advice: str = ""


class Codec(ABC):
    """One file format. Methods with a body have the answer of most formats; the others are abstract."""

    capabilities: FileCapabilities = FileCapabilities()

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
    single_frame: bool = False
    """True for small files that are one frame: they are always read as a single window."""
    indexed: bool = False
    """True if an index in the file says where frames lie: a stretch of the file alone is no file of that format."""
    scans_empty: bool = False
    """True where an empty file is scanned too, since it is no sound file of this format."""
    sequential: bool = False
    """True where what a frame means may depend on the frames before it: such a file is not split."""
    ordered: str | None = None
    """The column by which frames are in order in a sound file, known from their headers (`frame_bounds`); None: there is none."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """How the system prints numbers of its own (`Fault.lost`), where not in decimal, by what they are: {"zxid": hex}, for "first_zxid"."""
    lossy_columns: tuple[LossyColumn, ...] = ()
    """What is lost where only rows are given to be written."""

    end_magic: bytes = b""
    """The bytes that every sound file ends in, by which one under any name is recognised; empty where there are none."""

    def with_capabilities(self, capabilities: FileCapabilities) -> Self:
        """Return this codec with its capabilities filled in."""
        codec = copy.copy(self)
        codec.capabilities = capabilities
        return codec

    @abstractmethod
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

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: Any) -> None:
        """Read a footer or an index before the first `scan` with this context, of a file of `size` bytes.

        `read(offset, length)` returns `length` bytes, or fewer at the end of the file; zeros where the disk cannot be read.
        """
        return

    @abstractmethod
    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        """Find frames from `window.data[at]` on; with `check` their checksums too."""
        ...

    @abstractmethod
    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: Any
    ) -> Iterator[Decoded]:
        """The rows (or frames) of these frames, in order, in pieces of bounded memory; only the columns asked for."""
        ...

    def row_frames(self, window: Window, frames: Frames, context: Any) -> Iterator[RowFrames]:
        """Return those of the frames that hold rows, for a reader that takes them as they are stored. Of a compressed file they are in
        what it holds."""
        yield RowFrames(window, frames, context)

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

    @abstractmethod
    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """The next place at or after `at` where a frame truly starts: (place, 0); (place, need) when so many bytes are
        needed from there to be sure; (-1, keep) when there is none in this window but for its last `keep` bytes.

        `at` lies behind the damage at which the last scan with this context stopped; that place is in the window too unless
        it is far away. Whole frames may be the content of another (a log within a log): such are no frames of this file.
        """
        ...

    @abstractmethod
    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: Any
    ) -> Iterator[Chunk]:
        """The bytes of a file. From rows alone with upstream's defaults; with the other tables exactly as it was."""
        ...

    def explain(self, window: Window, context: Any, focus: Focus, *, frame: bool) -> Sequence[Node]:
        """All of the window, as nodes side by side: it is a `frame` just as a scan found it, or a stretch that is none (damage, or
        what no frame covers). Never raises, whatever the bytes. Here: the first structure, again and again."""
        return explain_values(self.structures[0] if self.structures else None, window, focus, one=frame)

    def field_names(self) -> Sequence[str]:
        """The names of all fields that a path of `edit` may end in, and of what they lie in."""
        return address.names(self.structures)

    def edit(self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
        """A frame with one field changed by its name, to wrong values too. `path`: ("records", 3, "key"), see `codec.address`.
        `change` gets the bytes of the field and what it holds, and gives others of any length. `reseal`: lengths and checksums around
        it are made right again. Here: a frame is the first structure.

        Raises `UsageError` for a field that there is not, or that can't be found in these bytes.
        """
        return address.edit_frame(self.name, self.structures, frame, path, change, reseal=reseal)

    def loss_between(
        self, before: Frames | None, after: Frames | None, context: Any
    ) -> tuple[int | None, Mapping[str, Any]]:
        """Return `Fault.rows_lost` (None: not known) and `Fault.lost`, in the system's words, for a skipped stretch.

        Asked where the fault does not say so itself. `before` and `after` hold one frame each, the last good one before the
        stretch and the first one after it; None where there is none.
        """
        return None, {}

    def ends_early(self, last: Frames | None, size: int, torn: bool, context: Any) -> Fault | None:
        """Return the fault of a file of `size` bytes that ends before other files of its directory say that it once ended.

        `last` holds the last good frame, None without one. With `torn` the file ends in damage that is reported already.
        """
        return None

    def writer_options(self, read: Callable[..., pa.Table]) -> Mapping[str, Any]:
        """Return the writing options that a file was made with, as far as it tells, so that a copy has them too.

        `read(columns, filter, limit)` returns the sound frames of the file.
        """
        return {}

    def recompress(self, frames: pa.Table, options: Options) -> pa.Table | None:
        """Return a frames table (all columns) as these options would have it, all else unchanged.

        None where rows have to be put into other frames for it.
        """
        return None
