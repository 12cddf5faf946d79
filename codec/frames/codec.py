"""`FramedCodec`: the codec of a framed file, which a format only parametrises.

A format gives its specification, its structures, its row columns and two functions: `columns` reads the columns that are not fields of the
head, and `form` writes rows as frames. Scanning, the three tables, torn and zero endings, the search after damage, encoding, explain and
edit follow from these.

A row is a frame of the main kind. Marker frames and the file header have no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.columns import batch_of, contents, numbers, one_batch
from logwright.codec.columns import joined as joined
from logwright.codec.engine.reencode import Reencoder, Stored, absent, integers, match, need, stored
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.damage import damage_at, field_at
from logwright.codec.frames.displacement import Displaced, displacement_of, displacement_text, find_displaced
from logwright.codec.frames.format import FrameFormat
from logwright.codec.frames.prefixes import prefixes_of
from logwright.codec.frames.resync import NONE, UNSURE, Finder
from logwright.codec.frames.scanner import (
    FILLER,
    HEADER,
    MAIN,
    MARKER,
    NO_BASE,
    ZEROS,
    concatenate_heads,
    put_head,
)
from logwright.codec.frames.specification import Position, span_of
from logwright.codec.frames.suspects import suspects
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.single_frame import ending_bytes, typed_column
from logwright.codec.window import Around, Chunk, Decoded, Frames, Window

PORTION = 8 << 20
"""Bytes of frames that are decoded at a time, or one frame if it is larger."""
_ROWS = 1 << 15
"""Rows that are encoded at a time."""


@dataclass(frozen=True)
class Part:
    """Frames of the main kind, as `columns` gets them. `start` and `end` are positions in `data`; `offset` is the file position of
    `data[0]`."""

    data: Bytes
    start: Int64s
    end: Int64s
    head: npt.NDArray[Any]
    offset: int

    @classmethod
    def main(cls, window: Window, frames: Frames) -> Part:
        """Return those of the frames of a window that are of the main kind."""
        part = cls(window.data, frames.start, frames.end, frames.header, window.offset)
        kinds = part.head["frame_kind"] == MAIN
        return part if kinds.all() else part.pick(kinds)

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, mask: Any) -> Part:
        return replace(self, start=self.start[mask], end=self.end[mask], head=self.head[mask])


class FramedCodec(FrameFormat):
    """A codec of framed files. A format gives its `FrameFormat`, `columns` and `form`."""

    # Functions of a format

    def columns(self, part: Part, names: Sequence[str], context: Any) -> Mapping[str, pa.Array]:
        """Return the row columns in `names`, none of which is a field of the head, and perhaps others, which are then not read from there."""
        return {}

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: Any
    ) -> tuple[Bytes, Int64s]:
        """Write rows as frames: (bytes, where each frame starts in them, and where the last ends).

        The first frame is at byte `at` of the file and the others follow it, or each is at its own one of `positions`. The default packs
        the columns that are fields of the frame.
        """
        names = [
            name for name in rows.schema.names if name in {field.name for field in self.spec.struct.fields}
        ]
        values = rows.select(names).to_pylist()
        given = ({name: value for name, value in row.items() if value is not None} for row in values)
        return joined([self.spec.struct.pack(row) for row in given])

    def closing(self, at: int, context: Any) -> Iterator[Chunk]:
        """Return what the real system writes after the last frame of a finished file of `at` bytes."""
        yield from ()

    def refused(self, part: Part, context: Any) -> Sequence[tuple[int, Fault]]:
        """Return the frames whose rows are withheld, by number and in order, and why. With severity INFO the row is returned all the
        same."""
        return ()

    def fault(
        self, part: Part, i: int, kind: Kind, text: str, severity: Severity = Severity.ERROR, system: str = ""
    ) -> Fault:
        """Return a fault of one of the frames."""
        start, size = int(part.start[i]) + part.offset, int(part.end[i] - part.start[i])
        return Fault(self.name, start, size, kind, text, severity, system)

    def _refused(self, part: Part, context: Any) -> list[int]:
        return [i for i, fault in self.refused(part, context) if fault.severity is not Severity.INFO]

    def findings(self, part: Part, context: Any) -> Sequence[Fault]:
        """Return findings about good frames."""
        return ()

    def accepts(self, window: Window, at: int, context: Any) -> bool:
        """Return whether a frame that the search found after damage belongs to the present content of the file."""
        return True

    def confirms(self, window: Window, at: int, size: int, before: Int64s, context: Any) -> bool:
        """Return whether the plausible frame of `size` bytes at `at` is a frame although none follows it. `before`: where frames before it
        start."""
        return False

    def base(self, context: Any) -> int | None:
        """Return the position that a frame at byte 0 of the file claims; None if unknown."""
        number: int | None = context.number
        return number

    @cached_property
    def checksum(self) -> str:  # type: ignore[override]
        return self.spec.checksums[0].algorithm.name if self.spec.checksums else ""

    @cached_property
    def _scanner(self) -> scanner.Scanner:
        return scanner.Scanner(self.spec)

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.spec)

    # Finding frames

    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        data, place = window.data, window.offset + at
        header = 0
        if place == 0 and self.header is not None and window.size:
            needed = min(4096, window.size)
            if len(data) - at < needed:
                return self._nothing(at, needed)
            header_or_fault = self.header_size(data[at : at + needed].tobytes(), window.size)
            if isinstance(header_or_fault, Fault):
                context.damaged = 0
                return replace(self._nothing(at), damage=header_or_fault)
            header = header_or_fault
        prefixes = prefixes_of(data, context.prefixes)
        if context.displaced is None and context.begins is not None and context.begins[0] == place:
            context.displaced, context.moved = context.begins[1], bool(context.begins[2])
        if context.displaced is None:
            base = self._claims(window, context)
            known = base == NO_BASE or not place
            context.displaced = 0 if known else displacement_of(self._scanner, window, at, base)
            if not known:
                # What follows claims no position before this one, as if the frames before had been read.
                low, high = context.claims
                context.claims = max(low, base + at + context.displaced), high
        claims = self._claims(window, context)
        good = self._scanner.frames(window, at + header, claims, check=check, prefixes=prefixes)
        beyond = bool(context.displaced) and len(good.end) and int(good.end[-1]) + claims > context.claims[1]
        if beyond:
            good = good.up_to(context.claims[1] - claims)
        pieces = [(good.start, good.end, good.head)]
        if header:
            head = np.array([at], np.int64)
            pieces.insert(0, (head, head + header, self._head(data, at, header, HEADER)))
        while good.why == scanner.UNFOLLOWED and self.confirms(
            window, good.stop, good.need, pieces[-1][0], context
        ):
            start = np.array([good.stop], np.int64)
            frame = data[good.stop : good.stop + good.need].tobytes()
            kind = self.kind_at(frame, window.offset + good.stop)
            sound = start, start + good.need, self._head(data, good.stop, good.need, kind)
            good = self._scanner.frames(window, good.stop + good.need, claims, check=check, prefixes=prefixes)
            pieces += [sound, (good.start, good.end, good.head)]
        frames = Frames(good.start, good.end, good.head, good.stop)
        if len(pieces) > 1:
            frames.start, frames.end = (np.concatenate([piece[k] for piece in pieces]) for k in (0, 1))
            frames.header = concatenate_heads([piece[2] for piece in pieces])
        part = Part.main(window, frames)
        if check and len(part):
            frames.faults = list(self.findings(part, context))
        if len(part) and claims != NO_BASE:
            context.claims = claims + int(part.end[-1]), context.claims[1]
        if context.moved and len(part):
            frames.faults = [self._moved(part, context), *frames.faults]
        context.damaged = -1
        if beyond:
            context.displaced = 0  # the displaced frames that follow belong to another file
        if good.why == scanner.NEED:
            frames.need = good.need
        elif good.why != scanner.END:
            frames.damage = self._damage(window, good.stop, good.why, good.need, context)
            context.damaged = frames.damage.offset
        return frames

    def _claims(self, window: Window, context: Any) -> int:
        """Return the position that a frame at `window.data[0]` would claim."""
        base = self.base(context) if isinstance(self.spec.claims, Position) else None
        return NO_BASE if base is None else base + window.offset + (context.displaced or 0)

    def _moved(self, part: Part, context: Any) -> Fault:
        """Return the fault of a frame whose displacement differs from those before."""
        context.moved = False
        assert isinstance(self.spec.claims, Position)
        begins = context.begins is not None and context.begins[0] == int(part.start[0]) + part.offset
        text = context.begins[2] if begins else ""
        text = text or displacement_text(self.spec.claims.field, context.displaced)
        fault = self.fault(part, 0, Kind.ORDER, text, system=self.systems.get(scanner.BAD_CLAIM, ""))
        return replace(fault, rows_lost=0)

    def _head(self, data: Bytes, at: int, size: int, kind: int = MAIN) -> npt.NDArray[Any]:
        """Return the head of one frame."""
        out = np.zeros(self.head.itemsize, np.uint8)
        put_head(out, 0, data, at, size, kind, self.spec.struct.head_size)
        return out.view(self.head)

    def part_of(self, frames: Sequence[bytes]) -> Part:
        """Return frames of the main kind that are in no file. Zeros follow those that are shorter than their head."""
        width = self.spec.struct.head_size
        sizes = np.array([len(frame) for frame in frames])
        data = np.frombuffer(b"".join(frame.ljust(width, b"\0") for frame in frames), np.uint8)
        places = np.maximum(sizes, width)
        starts = np.cumsum(places) - places
        heads = [self._head(data, *place) for place in zip(starts.tolist(), sizes.tolist(), strict=True)]
        return Part(data, starts, starts + sizes, np.concatenate(heads), 0)

    def _nothing(self, at: int, need: int = 0) -> Frames:
        empty = np.empty(0, np.int64)
        return Frames(empty, empty, np.empty(0, self.head), at, need)

    def _damage(self, window: Window, stop: int, why: int, need: int, context: Any) -> Fault:
        claim = self._claims(window, context) + stop
        return damage_at(
            self, window, stop, why, need, live=context.live, claim=claim,
            mismatch=lambda: self._mismatch(window.data, stop, stop + need, context),
        )  # fmt: skip

    def _field(self, data: Bytes, at: int, name: str) -> int:
        return field_at(self.spec, data, at, name)

    def _mismatch(self, data: Bytes, at: int, end: int, context: Any) -> str:
        context.prefixes = prefixes = self._finder.prefixes(data, context.prefixes)
        for i, checksum in enumerate(self.spec.checksums):
            span, mask = span_of(self.spec, i)
            start, stop, stored = span(data, at, end)
            if start >= 0:
                computed = prefixes.sum(start, stop) & mask
                if computed != stored:
                    return f"{checksum.at} mismatch: stored {stored:#010x}, computed {computed:#010x}"
        return "checksum mismatch"

    # After damage

    def is_independent(self, context: Any) -> bool:
        # Displaced frames may be copies of earlier ones.
        return not context.displaced

    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        data = window.data
        end, need = self.content_end(window, at, context)
        if end >= 0:
            return (-1, 0) if window.offset + end >= window.size else (end, 0)
        limit, need = (-1, need) if need else self.claimed_end(window, at, context)
        if need:
            return at, need
        exact = isinstance(self.spec.claims, Position) and self.base(context) is not None
        moved = self._displaced(window, at, limit, context) if exact else None
        if moved is not None:
            context.displaced, context.moved = (context.displaced, False) if moved.need else (moved.by, True)
            return moved.place, moved.need
        while True:
            place, outcome, need = self._next(window, at, context)
            inside = outcome != NONE and (limit < 0 or place < limit)
            if limit >= 0 and (not inside or (outcome == UNSURE and not exact)):
                return (-1, 0) if window.offset + limit >= window.size else (limit, 0)
            if outcome == NONE:
                return -1, 0 if window.final else min(len(data) - at, max(self.spec.peek - 1, 0))
            if outcome == UNSURE:
                return place, min(window.size - window.offset - place, need + need // 2)
            if limit >= 0 and not exact:
                # A frame inside the damaged one is content, unless whole frames lead from there to its end: then its length is wrong.
                cut = Window(data[:limit], window.offset, window.offset + limit)
                inner = self._scanner.frames(
                    cut, place, self._claims(window, context), prefixes=context.prefixes
                )
                if inner.stop != limit:
                    at = max(inner.stop, place + 1)
                    continue
            if self.accepts(window, place, context):
                return place, 0
            at = place + 1

    def _displaced(self, window: Window, at: int, limit: int, context: Any) -> Displaced | None:
        """Return the first displaced frame, if it is before the next frame that is displaced as those before the damage."""
        place, outcome, _ = self._next(window, at, context)
        if outcome == NONE or len(window.data) - place < self.spec.length.low:
            place = -1  # of a shorter frame the claim is not known
        before = context.displaced or 0

        def find(start: int) -> Displaced | None:
            return find_displaced(
                self._finder, self._scanner, window, start, place,
                self._claims(window, context) - before, before, context.claims, context.listed, context.prefixes,
            )  # fmt: skip

        moved = None
        if at and context.damaged == window.offset + at - 1:
            moved = find(at - 1)  # a frame with another claim may be undamaged
        if moved is None or at <= moved.place < limit:
            moved = find(max(at, limit))
        accepted = moved is None or moved.need or self.accepts(window, moved.place, context)
        return moved if accepted else None

    def suspects(self, window: Window, at: int, limit: int, around: Around, context: Any) -> Iterator[Flip]:
        return suspects(self.spec, window, at, limit)

    def _next(self, window: Window, at: int, context: Any) -> tuple[int, int, int]:
        context.prefixes = self._finder.prefixes(window.data, context.prefixes)
        base = self._claims(window, context)
        if base == NO_BASE:
            return self._finder.next(window, at, context.prefixes)
        candidates = self._finder.candidates(window, at, context.prefixes, context.candidates)
        context.candidates = candidates
        return candidates.next(at, base)

    def content_end(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """Return the end of the damaged frame if its content tells it, else -1, and the number of bytes from `at` on that would tell."""
        return -1, 0

    def claimed_end(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """Return the end of the damaged frame by its length, if a good frame, zeros or the end of the file are there, else -1; and the number
        of bytes from `at` on that would tell, if the window does not have them."""
        data, stop, length = window.data, context.damaged - window.offset, self.spec.length
        if context.damaged < 0 or not 0 <= stop < at or len(data) - stop < self.spec.peek:
            return -1, 0
        size = self._field(data, stop, length.field) + length.bias
        end = stop + size
        left = window.size - window.offset - end
        if not length.low <= size <= min(length.high, length.reach) or end < at or left < 0:
            return -1, 0
        if len(data) - end < min(left, ZEROS):
            return -1, end + min(left, ZEROS) - at
        if not data[end : end + ZEROS].any():
            return end, 0
        context.prefixes = self._finder.prefixes(data, context.prefixes)
        claims = self._claims(window, context)
        following = self._scanner.frames(window, end, claims, prefixes=context.prefixes, most=1)
        if following.why == scanner.NEED and following.need <= length.reach:
            return -1, end + following.need - at
        return (end if len(following.start) else -1), 0

    # Tables

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        if column not in self.fixed:
            return None, None
        if (frames.header["frame_kind"] != MAIN).any():
            return None, None
        values = frames.header[self.fixed[column]].astype(np.int64)
        return values, values

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: Any
    ) -> Iterator[Decoded]:
        for piece in frames.portions(PORTION):
            if table == "rows":
                yield self._rows(Part.main(window, piece), columns, context)
            else:
                yield Decoded(self._frames(window, piece, columns, context))

    def _rows(self, part: Part, columns: Sequence[str], context: Any) -> Decoded:
        refused = self.refused(part, context)
        faults: list[tuple[int, Fault]] = []
        if refused:
            bad = np.zeros(len(part), np.bool_)
            for i, fault in refused:
                faults.append((i - int(np.count_nonzero(bad)), fault))
                bad[i] = fault.severity is not Severity.INFO
            part = part.pick(~bad)
        return Decoded(self.batch(part, columns, context), faults)

    def batch(self, part: Part, columns: Sequence[str], context: Any) -> pa.RecordBatch:
        schema = self.rows.schema(columns)
        other_names = [name for name in columns if name not in self.fixed and name != "position"]
        more = self.columns(part, other_names, context) if other_names else {}
        arrays = []
        for i, name in enumerate(columns):
            if name in more:
                arrays.append(more[name])
            else:
                values = part.start + part.offset if name == "position" else part.head[self.fixed[name]]
                arrays.append(numbers(schema.field(i).type, values))
        return batch_of(arrays, schema, len(part))

    def _frames(self, window: Window, frames: Frames, columns: Sequence[str], context: Any) -> pa.RecordBatch:
        schema = self.tables["frames"].schema(columns)
        kinds = frames.header["frame_kind"]
        marker = (
            () if self.spec.marker is None else tuple(field.name for field in self.spec.marker.struct.fields)
        )
        arrays = []
        for name in columns:
            kind = schema.field(name).type
            if name == "position":
                arrays.append(numbers(kind, frames.start + window.offset))
            elif name == "size":
                arrays.append(numbers(kind, frames.end - frames.start))
            elif name == "kind":
                arrays.append(
                    contents(pa.string(), [kind.encode() for kind in self.kinds]).take(pa.array(kinds))
                )
            elif name == "raw":
                arrays.append(pa.nulls(len(frames), kind))
            elif name == "payload":
                arrays.append(self._payloads(window, frames, context))
            else:
                null = (kinds == HEADER) | (kinds == FILLER) | ((kinds == MARKER) & (name not in marker))
                arrays.append(numbers(kind, np.where(null, 0, frames.header[name]), null))
        return batch_of(arrays, schema, len(frames))

    def _payloads(self, window: Window, frames: Frames, context: Any) -> pa.Array:
        """Return the bytes of frames that could not be rebuilt from the other columns and the row."""
        stored: list[bytes | None] = [None] * len(frames)
        main = frames.header["frame_kind"] == MAIN
        for i in np.flatnonzero(~main).tolist():
            data = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
            kind = int(frames.header["frame_kind"][i])
            if kind == HEADER or data != self.other(kind, frames.header[i], len(data)):
                stored[i] = data
        part = Part.main(window, frames)
        refused = set(self._refused(part, context))
        which = [i for n, i in enumerate(np.flatnonzero(main).tolist()) if n not in refused]
        for n, i in enumerate(np.flatnonzero(main).tolist()):
            if n in refused:
                stored[i] = part.data[int(part.start[n]) : int(part.end[n])].tobytes()
        good = part if not refused else part.pick([n for n in range(len(part)) if n not in refused])
        if len(good):
            try:
                encoded, starts = self.form(
                    self.batch(good, self.rows.names(detail=True), context),
                    0,
                    good.start + good.offset,
                    context,
                )
            except UsageError:
                encoded, starts = np.empty(0, np.uint8), np.zeros(len(good) + 1, np.int64)
            for n, i in enumerate(which):
                frame = good.data[int(good.start[n]) : int(good.end[n])]
                if not np.array_equal(frame, encoded[int(starts[n]) : int(starts[n + 1])]):
                    stored[i] = frame.tobytes()
        return contents(pa.binary(), stored)

    def other(self, kind: int, values: Any, size: int) -> bytes:
        """Return a marker frame (its fields, and zeros) or a filler. `values`: a head, or a row of the frames table."""
        if kind == FILLER:
            return bytes([self.spec.fill or 0]) * size
        marker = self.spec.marker
        assert marker is not None
        values_of_fields: dict[str, int] = {}
        names: Any = values.dtype.names if isinstance(values, np.void) else values
        for field in marker.struct.fields:
            if field.name == marker.field:
                values_of_fields[field.name] = marker.value
            elif marker.length is not None and field.name == marker.length.field:
                values_of_fields[field.name] = size - marker.length.bias
            elif field.name in names:
                values_of_fields[field.name] = int(values[field.name] or 0)
        data = marker.struct.pack(values_of_fields)
        return data + bytes(max(0, size - len(data)))

    def file_facts(self, head: Window, size: int, tail: bytes, zeros: int, context: Any) -> Mapping[str, Any]:
        version = {} if self.header is None else {"version": self._version(head.data[:4096].tobytes())}
        return {"number": context.number, **version}

    # Encoding

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: Any
    ) -> Iterator[Chunk]:
        complete_rows = self._with_all_columns(rows)
        if frames is None:
            header = self.form_header(file, context)
            yield header
            at = len(header)
            for first in range(0, complete_rows.num_rows, _ROWS):
                data, _ = self.form(one_batch(complete_rows.slice(first, _ROWS)), at, None, context)
                at += len(data)
                yield data
            if file is None:
                yield from self.closing(at, context)
        else:
            yield from _Reencoder(self, complete_rows, frames, file, context).write()
        yield from ending_bytes(file)

    def complete(self, rows: pa.Table) -> pa.RecordBatch:
        """Return the rows as one batch with all columns of the table, in their types; null where a column is absent."""
        return one_batch(self._with_all_columns(rows))

    def _with_all_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows with all columns of the table, in their types; null where a column is absent."""
        arrays = []
        table = self.rows
        for column in table.columns:
            array = typed_column(self.name, rows, column)
            if array is None and column.name in self.required:
                raise UsageError(
                    f"{self.name} needs a column {column.name!r}; the rows have {', '.join(rows.column_names)}"
                )
            if array is None:
                array = pa.nulls(rows.num_rows, column.type)
            if array.null_count and column.name in self.required:
                raise UsageError(f"{self.name}: column {column.name!r} has null values, but it is required")
            arrays.append(array)
        present = set(rows.column_names)
        fields = [column.field().with_nullable(True) for column in table.columns]
        fields = [field if field.name in present else field.with_metadata(_ABSENT) for field in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def row_of(self, frame: bytes, position: int, context: Any) -> pa.RecordBatch | None:
        """Return the row of a frame of the main kind at `position`, or None if these bytes are not such a frame or it has no row."""
        data = np.frombuffer(frame, np.uint8)
        good = self._scanner.frames(Window(data, 0, len(data)), 0)
        part = Part(data, good.start, good.end, good.head, position)
        complete = len(part) == 1 and good.stop == len(data) and part.head["frame_kind"][0] == MAIN
        if not complete or self._refused(part, context):
            return None
        batch = self.batch(part, self.rows.names(detail=True), context)
        schema = pa.schema([field.with_nullable(True) for field in batch.schema])
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


class _Reencoder(Reencoder):
    """The frames of a framed codec, each of which holds one row."""

    def __init__(
        self, codec: FramedCodec, rows: pa.Table, frames: pa.Table, file: pa.Table | None, context: Any
    ) -> None:
        need(codec.name, frames, "position", "size")
        self.codec, self.rows, self.frames, self.file, self.context = codec, rows, frames, file, context
        names = frames.column_names
        self.kinds = stored(frames, "kind") if "kind" in names else [codec.spec.kind] * frames.num_rows
        self.positions = integers(frames, "position")
        raw, payload = stored(frames, "raw"), stored(frames, "payload")
        holds = absent(raw) & np.array([kind == codec.spec.kind for kind in self.kinds], np.bool_)
        owner = match(codec.name, rows, np.arange(rows.num_rows + 1), self.positions, holds)
        super().__init__(Stored(owner, raw, payload, (owner >= 0) & absent(payload)))

    def records(self, first: int, last: int, frame: int) -> Iterator[Chunk]:
        for start in range(first, last, _ROWS):
            rows = one_batch(self.rows.slice(start, min(_ROWS, last - start)))
            yield self.codec.form(rows, self.at, None, self.context)[0]

    def wrap(self, payload: bytes, frame: int) -> Chunk:
        return payload

    def says(self, payload: bytes, record: int, frame: int) -> bool:
        position = int(self.positions[frame])
        row = self.codec.row_of(payload, position, self.context)
        if record < 0 or row is None:
            return record < 0 and row is None
        moved = isinstance(self.codec.spec.claims, Position) and position != self.at
        return not moved and bool(one_batch(self.rows.slice(record, 1)).equals(row))

    def other(self, frame: int) -> Chunk | None:
        codec, payload = self.codec, self.table.payload[frame]
        if codec.header is not None and self.kinds[frame] == codec.kinds[HEADER]:
            kept = payload is not None and self.positions[frame] == self.at == 0
            return payload if kept else codec.form_header(self.file, self.context)
        for kind in (MARKER, FILLER):
            if self.kinds[frame] == codec.kinds[kind]:
                row = self.frames.slice(frame, 1).to_pylist()[0]
                return payload if payload is not None else codec.other(kind, row, row["size"])
        return None


_ABSENT = {b"absent": b"1"}


def was_given(rows: pa.RecordBatch, name: str) -> bool:
    """Return whether a column was among the input columns. In an absent column null may have another meaning."""
    return bool(rows.schema.field(name).metadata != _ABSENT)
