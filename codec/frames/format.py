"""The format of a framed file, from its specification: file header, kinds of frames, tables, structures, explain and edit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address, plural
from logwright.codec.base import Codec, Match
from logwright.codec.describe import Buffer, Field, Flags, Int, Repeated, Scope, Struct, Switch, Until
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.explain import Focus, Node, explain_values
from logwright.codec.fault import Fault, Kind
from logwright.codec.frames.prefixes import Prefixes
from logwright.codec.frames.resync import Candidates
from logwright.codec.frames.scanner import FILLER, HEADER, MAIN, MARKER
from logwright.codec.frames.specification import FrameSpec, Marker, Position
from logwright.codec.option import Options
from logwright.codec.single_frame import single_value
from logwright.codec.table import RAW, Column, Table, ending, extent
from logwright.codec.window import Window

PAYLOAD = Column(
    "payload",
    pa.binary(),
    "the bytes of the frame, where they are not what would be written from its row",
    detail=True,
)
POSITION = Column("position", pa.int64(), "byte of the file where the frame starts", detail=True)
"""A column that the rows of every framed codec have."""
FILL = Struct("Filler", Field("filling", BytesType(), "a run of the fill byte"))


@dataclass
class FramedContext:
    """The context of decoding, which is carried from window to window."""

    options: Options
    number: int | None = None
    """The number in the file name."""
    live: bool = False
    """The system that writes the file may be running."""
    damaged: int = -1
    """Where the last scan stopped at damage."""
    prefixes: Prefixes | None = None
    candidates: Candidates | None = None
    """The candidates that the last search found, if frames claim positions."""
    displaced: int | None = None
    """The position that frames claim minus their own, if the format has such claims. None: unknown, before the first scan."""
    claims: tuple[int, int] = (0, 1 << 62)
    """The range that the next frames may claim. After a scan it begins where the last good frame ends."""
    listed: Mapping[int, int] = field(default_factory=dict)
    """Sizes of frames that other files list, by the positions that they claim."""
    moved: bool = False
    """The search after damage found the next frame displaced otherwise than those before."""
    begins: tuple[int, int, str] | None = None
    """If the first scan is at this position: how far frames are displaced there, and what a report says about it ("" is nothing)."""


class FrameStruct(Struct):
    """The frames of a codec as one structure. The bytes of a frame say which kind it is."""

    def __init__(self, codec: FrameFormat) -> None:
        super().__init__(f"{codec.spec.struct.name}Frame", *codec.spec.struct.fields)
        self.codec = codec

    def unpack(
        self, buf: Buffer, at: int = 0, end: int | None = None, scope: Scope | None = None
    ) -> tuple[dict[str, Any], int]:
        stop = len(buf) if end is None else end
        values, after = self.codec.struct_at(bytes(buf[at:stop]), at).unpack(buf, at, stop, scope)
        # The filling of a marker frame has no fields.
        after = after if self.codec.kind_at(bytes(buf[at:stop]), at) == MAIN else stop
        return {**dict.fromkeys(field.name for field in self.fields), **values}, after

    def check(self, buf: Buffer, at: int, end: int) -> list[tuple[str, int, int]]:
        return self.codec.struct_at(bytes(buf[at:end]), at).check(buf, at, end)


class FrameFormat(Codec):
    """The format of framed files, as data.

    `header` describes the file header. Its first field is the magic, and it has a field `version`; `header_sizes` gives its size in each
    version that is read, padding included. `context_of` makes the context. `fixed` maps row columns to the fields of the frame head that
    they hold. `required` are the columns without which no row can be written. `systems` gives the real system's reaction to each reason
    of `scanner`.
    """

    spec: FrameSpec
    rows: Table
    pattern: re.Pattern[str]
    number_base: int = 10
    """Radix of the number in the file name."""
    header: Struct | None = None
    header_sizes: Mapping[int, int] = {}
    version_option: str = ""
    fixed: Mapping[str, str] = {}
    required: tuple[str, ...] = ()
    systems: Mapping[int, str] = {}
    context_of: Callable[..., FramedContext] = FramedContext
    details: Sequence[Struct] = ()
    """Structures with the fields that `detail` has in addition."""

    def version(self, context: Any) -> int:
        """Return the version of a file that is written from rows alone: that of the option, or the newest."""
        return int(context.options[self.version_option]) if self.version_option else max(self.header_sizes)

    @cached_property
    def head(self) -> np.dtype[Any]:
        """The dtype of the head of a frame and its kind."""
        return self.spec.head

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        marker = self.spec.marker
        return (
            self.spec.kind,
            marker.name if marker else "",
            "header",
            "filler" if self.spec.fill is not None else "",
        )

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Row columns for the position of a frame. They change if the frame is written elsewhere."""
        claims = self.spec.claims
        claimed = [
            name
            for name, field in self.fixed.items()
            if isinstance(claims, Position) and field == claims.field
        ]
        return ("position", *claimed)

    @cached_property
    def frame(self) -> FrameStruct:
        """The structure of a frame of any kind."""
        return FrameStruct(self)

    @cached_property
    def structures(self) -> tuple[Struct, ...]:  # type: ignore[override]
        marker = () if self.spec.marker is None else (self.spec.marker.struct,)
        fill = () if self.spec.fill is None else (FILL,)
        return (self.spec.struct, *marker, *fill, *(() if self.header is None else (self.header,)))

    @cached_property
    def described(self) -> tuple[Struct, ...]:  # type: ignore[override]
        """The structure of the file: its header, the frames up to their terminator, and the rest."""
        spec, main = self.spec, self.spec.struct
        length = main[spec.length.field].type
        assert isinstance(length, Int)
        until = Until(0, length, main.offset(spec.length.field), "a length of 0") if spec.zero_ends else None
        item = main if spec.marker is None else _frame_of(spec, spec.marker)
        return (
            Struct(
                f"{main.name}File",
                *self._header_fields(),
                Field("frames", Repeated(item, least=spec.peek, until=until), "the frames", rows=True),
                Field("rest", BytesType(), "what is left: usually zeros", default=b""),
                doc=f"{self.title}.",
            ),
        )

    def _header_fields(self) -> Iterator[Field]:
        if self.header is None:
            return
        yield Field("header", self.header, "the header of the file")
        size = "0"
        for version, header_size in self.header_sizes.items():
            if header_size > self.header.min_size:
                size = f"{header_size - self.header.min_size} if header.version == {version} else {size}"
        yield Field("header_padding", BytesType(size), "zeros")

    @cached_property
    def tables(self) -> Mapping[str, Table]:  # type: ignore[override]
        return {"rows": self.rows, "frames": self._frames_table(), "file": self._file_table()}

    def _frames_table(self) -> Table:
        columns = [
            replace(POSITION, nullable=False, detail=False),
            Column("size", pa.int32(), "bytes of the frame"),
        ]
        if len(self.structures) > 1:
            kinds = ", ".join(
                name for i, name in enumerate(self.kinds) if name and (i != HEADER or self.header is not None)
            )
            columns.append(Column("kind", pa.string(), kinds))
        for item in self.spec.struct.fields:
            kind = item.type.base if isinstance(item.type, Flags) else item.type
            if item.name in (self.spec.struct.head_dtype.names or ()) and isinstance(kind, Int):
                width = max(4, kind.width if kind.signed else 2 * kind.width)
                columns.append(Column(item.name, pa.int32() if width == 4 else pa.int64(), item.doc))
        return Table("frames", (*columns, PAYLOAD, RAW), "One row per frame.")

    def _file_table(self) -> Table:
        number = Column("number", pa.int64(), "the number in the file's name")
        version = (Column("version", pa.int32(), "in the file's header"),) if self.header is not None else ()
        columns = (number, *version, *extent("frames"), *ending("frame"))
        return Table("file", columns, "One row.")

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.of(bool(self.pattern.fullmatch(name)), self.known(head))

    @cached_property
    def magic(self) -> bytes:
        """The bytes that a file with a header starts with."""
        return b"" if self.header is None else bytes(self.header.fields[0].only)

    def known(self, head: bytes) -> bool:
        """Return whether the first bytes of a file are those of the format."""
        return self.header is not None and head.startswith(self.magic)

    def header_size(self, head: bytes, size: int) -> int | Fault:
        """Return the size of the file header, or its fault. `head` are the first bytes of a file of `size` bytes."""
        if self.header is None:
            return 0
        least = self.header.head_size
        if not self.magic.startswith(head[: len(self.magic)]):
            text = f"magic is {head[: len(self.magic)].hex()}, expected {self.magic.hex()}"
            return Fault(self.name, 0, min(least, size), Kind.MAGIC, text)
        version = self._version(head)
        if version is not None and version not in self.header_sizes:
            text = f"version is {version}, expected {min(self.header_sizes)} to {max(self.header_sizes)}"
            return Fault(self.name, 0, least, Kind.MAGIC, text)
        needed = least if version is None else self.header_sizes[version]
        if size < needed:
            text = f"the file has {plural.count(size, 'byte')}, but its header takes {needed}"
            return Fault(self.name, 0, size, Kind.TRUNCATED, text)
        return needed

    def _version(self, head: bytes) -> int | None:
        if self.header is None or not self.known(head) or len(head) < self.header.head_size:
            return None
        return int(self.header.unpack(head, 0, self.header.head_size)[0]["version"])

    def form_header(self, file: pa.Table | None, context: Any) -> bytes:
        """Return the file header: of the version in the file table, or as the real system writes it."""
        if self.header is None:
            return b""
        version = single_value(file, "version")
        version = version if version in self.header_sizes else self.version(context)
        return self.header.pack({"version": version}).ljust(self.header_sizes[version], b"\0")

    def context(self, name: str, options: Options, **hints: Any) -> FramedContext:
        name_match = self.pattern.fullmatch(name)
        number = int(name_match[1], self.number_base) if name_match else None
        number = hints.get("number", number)
        number = number if number is None or number < 1 << 62 else None
        claims = hints.get("claims", (number or 0, 1 << 62))
        listed = hints.get("listed", {})
        return self.context_of(
            options, number, bool(hints.get("live")), claims=claims, listed=listed, begins=hints.get("begins")
        )

    # Kinds of frames

    def kind_at(self, frame: bytes, at: int) -> int:
        """Return the kind of the frame with these bytes at byte `at` of its file."""
        if not at and self.header is not None and self.header_size(frame, len(frame)) == len(frame):
            return HEADER
        if self.spec.fill is not None and frame[:1] == bytes([self.spec.fill]):
            return FILLER
        marker = self.spec.marker
        if marker is not None and len(frame) >= self.spec.struct_end(marker.field):
            place = self.spec.struct.offset(marker.field)
            value, _ = self.spec.struct[marker.field].type.unpack(frame, place, len(frame), {})
            if value == marker.value:
                return MARKER
        return MAIN

    def struct_at(self, frame: bytes, at: int) -> Struct:
        """Return the structure of that frame."""
        kind = self.kind_at(frame, at)
        if kind == HEADER and self.header is not None:
            return self.header
        if kind == FILLER:
            return FILL
        return self.spec.marker.struct if kind == MARKER and self.spec.marker else self.spec.struct

    def detail(self, frame: bytes, at: int, context: Any) -> Struct:
        """Return the structure that explain shows of that frame and whose fields are changed by name; the latter may have no `context`."""
        return self.struct_at(frame, at)

    def explain(self, window: Window, context: Any, focus: Focus, *, frame: bool) -> Sequence[Node]:
        data = window.data.tobytes()
        struct = self.detail(data, window.offset, context) if frame else self.spec.struct
        nodes = explain_values(struct, window, focus, single=frame)
        if frame and self.kind_at(data, window.offset) == MAIN and nodes:
            nodes[0].row = 0
        return nodes

    def field_names(self) -> Sequence[str]:
        return address.names((*self.structures, *self.details))

    def _edited_at(self, frame: bytes) -> int:
        """Return where a frame that is changed by name may be: at byte 0 if it is the header of the file."""
        return 0 if self.header is not None and self.kind_at(frame, 0) != MAIN else 1

    def edit(
        self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool, context: Any = None
    ) -> bytes:
        struct = self.detail(frame, self._edited_at(frame), context)
        return address.edit(struct, frame, path, change, reseal=reseal)


def _frame_of(spec: FrameSpec, marker: Marker) -> Struct:
    """Return the description of a frame of the main kind or the marker's."""
    size, length = marker.struct.min_size, marker.length
    # A frame without a length takes the rest of the file.
    filling = "rest" if length is None else f"{length.field} - {size - length.bias}"
    filler = Field("filling", BytesType(filling), "fills the frame")
    other = Struct(marker.struct.name, *marker.struct.fields, filler, doc=marker.struct.doc)
    kind = spec.struct[marker.field].type
    assert isinstance(kind, Int)
    at, value = spec.struct.offset(marker.field), marker.value
    on = f"{'i' if kind.signed else 'u'}32be({at}) == {value if kind.width == 4 else value >> 32}"
    if kind.width == 8:
        on = f"({on}) and (u32be({at + 4}) == {value & 0xFFFFFFFF})"
    cases: dict[int, Struct] = {1: other, 0: spec.struct}
    names = [spec.kind, marker.name]
    if spec.fill is not None:
        # Here each fill byte is one item.
        cases[2] = Struct("FillByte", Field("filling", BytesType(1), f"{spec.fill:#04x}"))
        on = f"2 if (u32be(0) >> 24) == {spec.fill} else (1 if {on} else 0)"
        names.insert(1, "fill byte")
    return Struct(
        f"{spec.struct.name}Frame",
        Field("frame", Switch(on, cases), f"{', '.join(names[:-1])} or {names[-1]}"),
    )
