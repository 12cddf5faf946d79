"""The core of a codec: one file format, decoded and encoded. A layout (`codec.layout`) does the same for a directory.

Both are pure: bytes and values in, bytes and values out, without paths, file handles or Spark. Readers and writers handle those, and
know no byte layout. Optional features of a format are in `Codec.capabilities` (`codec.capability`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.capability import FileCapabilities
from logwright.codec.deferred import compute as pc
from logwright.codec.deferred import deferred
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.table import Table
from logwright.codec.window import Around, Chunk, Decoded, Frames, RowFrames, Window

if TYPE_CHECKING:
    from logwright.codec import address, explain
    from logwright.codec.describe import Struct
    from logwright.codec.explain import Focus, Node
    from logwright.codec.kernels.bitflip import Flip
else:
    address, explain = deferred("logwright.codec", "address", "explain")


class Match(IntEnum):
    """The confidence with which a codec recognises a file."""

    NO = 0
    MAYBE = 1  # the first bytes match
    NAME = 2  # the name matches
    SURE = 3  # the name and the first bytes match

    @classmethod
    def of(cls, name: bool, content: bool) -> Match:
        """Return the confidence, if the name matches and the first bytes match."""
        return cls(2 * name + content)


@dataclass(frozen=True)
class LossyColumn:
    """A column that is lost when rows are written without their frames. Rows with one of the values `defaults` lose nothing.

    `meaning` completes the sentence "`n` rows ..." ("belong to transactions"). With `advice`, writing such rows is an error unless a view
    was chosen. With `drops`, such rows are left out. A list loses something unless it is empty.
    """

    column: str
    defaults: tuple[Any, ...]
    meaning: str
    advice: str = ""
    drops: bool = False

    def lost(self, batch: pa.RecordBatch) -> pa.Array[Any] | None:
        """Return which rows lose something; None if the column is absent."""
        if self.column not in batch.schema.names:
            return None
        column = batch.column(self.column)
        if pa.types.is_list(column.type):
            return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
        nothing = pc.is_in(column, pa.array(self.defaults, column.type))
        return pc.invert(pc.or_(nothing, pc.is_null(column)))


class ProvedPart(NamedTuple):
    """A range of the data that is proved to be right: a frame, or a part of one; the name of the part ("" for a frame); and the evidence."""

    start: int
    stop: int
    name: str
    proved_by: tuple[str, ...]


class Codec(ABC):
    """One file format. Methods with a body suit most formats; the others are abstract."""

    _make_capabilities: Callable[[], FileCapabilities] = FileCapabilities

    name: str
    title: str
    structures: tuple[Struct, ...]
    """The structures of the format, for `explain`, `edit` and `damage`. The first is the structure of a frame."""
    described: tuple[Struct, ...] = ()
    """The structures of the format's page in the docs. The first is the structure of the file."""
    tables: Mapping[str, Table]
    """"rows", "frames" and "file". A frames table has the columns `position`, `size` and `codec.table.RAW`, a file table those of
    `codec.table.extent` and `codec.table.ending`."""
    options: tuple[Option, ...] = ()
    """The options for decoding and encoding a single file."""
    single_frame: bool = False
    """True for small files of one frame, which are always read as a single window."""
    largest: int = 1 << 30
    """Bytes of the largest file of a single frame that is read. A larger one is refused."""
    indexed: bool = False
    """True if frames are found by an index in the file, so that a range of the file cannot be read alone."""
    scans_empty: bool = False
    """True if an empty file is scanned too, because a sound file is never empty."""
    window: int = 4 << 20
    """Bytes of a file that are read and decoded at a time. Measured on Kafka segments: smaller ones cost more calls than they save in the
    cache, larger ones save nothing."""
    sequential: bool = False
    """True if the meaning of a frame may depend on earlier frames. Such a file is not split."""
    uncovered: int = 0
    """Bytes at the start of a frame that its checksum does not cover, and that tell its place in the order of the file. See `claim`."""
    ordered: str | None = None
    """The column by which the frames of a sound file are ordered, known from their headers (`frame_bounds`), if any. See `follow`."""
    printed: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """Formatters of the system's own numbers in `Fault.lost` that are not printed in decimal: {"zxid": hex} for "first_zxid"."""

    checksum: str = ""
    """The name of the checksum that covers the content of a frame, for reports; "" for a frame without a checksum."""
    refuses: bool = False
    """Decoding checks checksums that a scan does not."""
    measures: bool = False
    """The content of a frame shows its length (`right_length`)."""
    end_magic: bytes = b""
    """The last bytes of every sound file, by which a file of any name is recognised. Empty if there is no such magic."""

    @cached_property
    def capabilities(self) -> FileCapabilities:
        return self._make_capabilities()

    def with_capabilities(self, make: Callable[[], FileCapabilities]) -> Self:
        """Return this codec with the capabilities that `make` imports when they are first used."""
        codec = copy.copy(self)
        codec._make_capabilities = make
        return codec

    def table_of(self, name: str, context: Any) -> Table:
        """Return a table by its name, with the column types that the options of the context choose."""
        return self.tables[name]

    @abstractmethod
    def recognise(self, name: str, head: bytes) -> Match:
        """Recognise a file by its name (without folders) and its first bytes (up to 4096)."""
        ...

    def context(self, name: str, options: Options, **hints: Any) -> Any:
        """Return the decoding context: topic and base offset from the file's name, rows that a view leaves out.

        A context is picklable and belongs to one pass over a file. It may carry state from window to window (the previous offset). A
        scan may be some windows ahead of decoding, in another thread, so the two must not share state. All codecs get the hint
        `directory`, the name of the file's folder ("" if unknown).
        """
        return None

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: Any) -> None:
        """Optional: read a footer or an index of a file of `size` bytes before the first `scan` with this context.

        `read(offset, length)` returns `length` bytes, or fewer at the end of the file. Unreadable disk sectors read as zeros.
        """
        return

    @abstractmethod
    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        """Find frames from `window.data[at]` on; with `check`, verify their checksums."""
        ...

    @abstractmethod
    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: Any
    ) -> Iterator[Decoded]:
        """Yield the rows (or frames) of these frames in order, in batches of bounded size, with only these columns."""
        ...

    def checked_columns(self, context: Any) -> Sequence[str]:
        """Return the columns that a check of rows decodes. Without the others it finds all faults and the number of rows all the same."""
        return self.tables["rows"].select(None)

    def row_frames(self, window: Window, frames: Frames, context: Any) -> Iterator[RowFrames]:
        """Yield the frames that hold rows, as stored. Those of a compressed file are positions in its decompressed content."""
        yield RowFrames(window, frames, context)

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: Any
    ) -> pa.RecordBatch:
        """Return the single row of the file table. The file ends in `tail`, which no frame covers, and `zeros` zero bytes."""
        row = {"size": size, "frames": frames, "trailing": tail, "trailing_zeros": zeros}
        table = self.tables["file"]
        facts = self.file_facts(head, size, tail, zeros, context)
        return pa.RecordBatch.from_pylist([{**facts, **row}], schema=table.schema(table.names(detail=True)))

    def file_facts(self, head: Window, size: int, tail: bytes, zeros: int, context: Any) -> Mapping[str, Any]:
        """Return the other columns of the file table, with the arguments of `describe_file`."""
        return {}

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """Return arrays of the smallest and largest value that a column can have in each frame; None if unknown.

        Times are integers, as in Arrow. Null matches no comparison, so bounds ignore it.
        """
        return None, None

    def follow(self, values: Int64s) -> bool:
        """Return whether frames with these values of `ordered` are in order and, if the format shows it, complete."""
        return bool((values[1:] > values[:-1]).all())

    def is_independent(self, context: Any) -> bool:
        """Return whether the frames of the last scan are read alike by a task that does not know those before them."""
        return True

    @abstractmethod
    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """Find the next frame at or after `at`.

        Returns (position, 0) if a frame certainly starts there, (position, need) if `need` bytes from there are needed to decide, and
        (-1, keep) if no frame starts in this window, except perhaps in its last `keep` bytes.

        `at` is after the damage that stopped the last scan with this context. The window includes that damage unless it is far away.
        Frames inside the content of another frame (a log stored in a log) must not be returned.
        """
        ...

    def suspects(self, window: Window, at: int, limit: int, around: Around, context: Any) -> Iterator[Flip]:
        """Yield bits of bytes of `window.data`, one of which alone may be flipped in the damaged frame at `at`. The right
        frame ends at `limit` or before.

        Each is tried with `scan`. Without checksums nothing can be proved, so nothing is yielded.
        """
        yield from ()

    def right_length(
        self, window: Window, at: int, limit: int, context: Any
    ) -> tuple[int, bytes, str] | None:
        """Return how to correct the length of the damaged frame at `window.data[at]`, so that its content is right and ends at `limit` or
        before: the position of the field, its right bytes, and a text for reports. None if no length makes it right."""
        return None

    def claim(self, frame: bytes) -> int:
        """Return the value of column `ordered` by the bytes of a frame that its checksum does not cover."""
        return int.from_bytes(frame[: self.uncovered], "big", signed=True)

    def origin(self, frame: bytes, context: Any) -> tuple[Any, Any] | None:
        """Return the other file of the store that has the place that a frame claims, as a `RandomAccess`, and the context for a walk over it;
        None without one."""
        return None

    def flip_of_file(
        self, read: Callable[[int, int], Bytes], size: int, context: Any
    ) -> tuple[Fault, int, int, ProvedPart] | None:
        """Return the only flipped bit that the file as a whole proves: in bytes of no frame, or under a checksum of all frames.

        It comes with the fault that it is, the byte of the file, the bit, and the part of the file that is proved. `read` as in `prepare`; the
        context is that of a complete walk.
        """
        return None

    def outliers(self, window: Window, frames: Frames, context: Any) -> Sequence[tuple[int, str]]:
        """Return the good frames that may have a flipped bit in bytes that no checksum covers, by number, and what is odd about them.

        It is damage only if the bit is found (`proved`).
        """
        return ()

    def trial_context(self, context: Any) -> Any:
        """Return a copy of a context, with which bytes are scanned and decoded that may not be those of the file."""
        if not hasattr(context, "__dict__"):
            return copy.copy(context)
        out = object.__new__(type(context))  # much faster than `copy.copy`
        out.__dict__.update(context.__dict__)
        return out

    def proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> bool:
        """Return whether a frame with right checksums has the values that its place requires in the fields that no checksum covers.

        `around` are the good frames that adjoin it. Asked before a flipped bit of the frame is corrected: another one may be in these
        fields. `flip` is that bit, as (byte of the data, bit); in the data it is corrected. None: the bytes of the frame are from two copies.
        """
        return True

    def part_proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> ProvedPart | None:
        """Return the part of a frame with the corrected bit that is proved although the frame is not `proved`; None if nothing is.

        The rest of the frame has no checksum, and nothing contradicts it. Arguments as of `proved`.
        """
        return None

    @abstractmethod
    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: Any
    ) -> Iterator[Chunk]:
        """Yield the bytes of a file: from rows alone with upstream's defaults, from all three tables exactly as it was."""
        ...

    def explain(self, window: Window, context: Any, focus: Focus, *, frame: bool) -> Sequence[Node]:
        """Return nodes that cover all of the window, which is one `frame` found by a scan, or other bytes (damage, a file's tail).

        Never raises, whatever the bytes. The default explains the window as repetitions of the first structure.
        """
        return explain.explain_values(
            self.structures[0] if self.structures else None, window, focus, single=frame
        )

    def field_names(self) -> Sequence[str]:
        """Return the names of all fields that a path of `edit` may contain."""
        return address.names(self.structures)

    def edit(
        self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool, context: Any = None
    ) -> bytes:
        """Change one field of a frame, named by its path ("records", 3, "key"), see `codec.address`.

        `change` gets the bytes of the field and its type, and returns new bytes of any length, valid or not. `reseal` recomputes the
        lengths and checksums around it. `context`, if known, has options that this may need. By default a frame is the first structure.

        Raises `UsageError` for a field that does not exist or cannot be found in these bytes.
        """
        return address.edit_frame(self.name, self.structures, frame, path, change, reseal=reseal)

    def loss_between(self, around: Around, context: Any) -> tuple[int | None, Mapping[str, Any]]:
        """Return `Fault.rows_lost` (None: unknown) and `Fault.lost` of a skipped range, if the fault itself does not have them."""
        return None, {}

    def ends_early(self, last: Frames | None, size: int, torn: bool, context: Any) -> Fault | None:
        """Return a fault if a file of `size` bytes is shorter than other files of its directory prove that it was.

        `last` holds the last good frames, if any. With `torn` the file ends in damage that is already reported.
        """
        return None

    def writer_options(self, read: Callable[..., pa.Table]) -> Mapping[str, Any]:
        """Return the writing options that a file was made with, as far as they are known from it, for use by a copy.

        `read(columns, filter, limit)` returns the sound frames of the file.
        """
        return {}

    def lossy(self, options: Options) -> Sequence[LossyColumn]:
        """Return the columns that are lost when only rows are written with these options."""
        return ()

    def recompress(self, frames: pa.Table, options: Options) -> pa.Table | None:
        """Return a frames table (all columns) changed to these options, with everything else as it was.

        None if that would move rows to other frames.
        """
        return None
