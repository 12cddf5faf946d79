"""The common part of the codecs for logs and manifests: finding records, also after damage, and the common tables.

LevelDB drops the rest of a block after a bad record. Here the walk continues at the next certain record: at the end of the bad one, if its
length or its checksum determines it; or at a record after which further records fill the block or the file; or at one whose payload is
plausible there. Bytes of a value that look like a record are not one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address, plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.base import Codec, Match
from logwright.codec.columns import batch_of, contents, from_offsets, numbers
from logwright.codec.describe import Struct, Type
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.kernels.bitflip import CRC32C, Flip, flips_by_crc, flips_of_stored
from logwright.codec.kernels.intrinsics import load_u16le, load_u32le
from logwright.codec.leveldb.formats import fields
from logwright.codec.leveldb.formats.explain import file_of_records, records_of
from logwright.codec.leveldb.formats.records import layout, log_reader
from logwright.codec.leveldb.formats.records.layout import (
    gather,
    next_start,
    physical,
    record_crc,
    sound,
    true_end,
)
from logwright.codec.leveldb.formats.table.layout import unmasked
from logwright.codec.leveldb.names import number_of
from logwright.codec.option import DECODES, Option, Options, Verb, used_by
from logwright.codec.table import RAW, Column, Table, ending, extent
from logwright.codec.window import Around, Bytes, Decoded, Frames, Window

PORTION = 8 << 20
"""Bytes of frames decoded at a time, or one frame if it is larger."""

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the physical record starts", nullable=False),
        Column(
            "size",
            pa.int32(),
            "bytes of the physical record, with its header and the padding of the block",
        ),
        Column("length", pa.int32(), "bytes of its payload"),
        Column("type", pa.string(), "FULL, FIRST, MIDDLE or LAST"),
        Column("crc", pa.int64(), "the stored checksum, which is masked"),
        Column(
            "record",
            pa.int64(),
            "byte of the file where the logical record starts: position in rows and records",
        ),
        Column(
            "payload",
            pa.binary(),
            "the payload, if it differs from what would be written from the rows",
            detail=True,
        ),
        Column("padding", pa.binary(), "padding of the block, if it is not zeros", detail=True),
        RAW,
    ),
    "One row per physical record.",
)
RECORDS = Table(
    "records",
    (
        Column("position", pa.int64(), "byte of the file where the record starts", nullable=False),
        Column("size", pa.int64(), "bytes of the file that it occupies", nullable=False),
        Column("payload", pa.binary(), "the record itself", nullable=False),
    ),
    "One row per logical record. Plain records can be written from it.",
)
FILE = Table(
    "file",
    (
        Column("file", pa.int64(), "number of the file, from its name"),
        *extent("logical records"),
        *ending("record"),
    ),
    "One row.",
)
MAX_RECORD = Option(
    "max.record.bytes",
    1 << 30,
    "Maximum size of a logical record in bytes; a larger one counts as damaged",
    low=1,
    high=1 << 30,
)

_LENGTH, _TYPE = layout.RECORD.offset("length"), layout.RECORD.offset("type")
_SYSTEM_BLOCK = "LevelDB drops the rest of the block of 32 KiB"
_SYSTEM_END = "LevelDB silently treats it as the end of the file"


@dataclass(slots=True)
class Payloads:
    """Payloads of logical records: `data[start[i] : end[i]]`."""

    data: Bytes
    start: Int64s
    end: Int64s

    @classmethod
    def of(cls, window: Window, frames: Frames, *, joined: bool = False) -> Payloads:
        """Return the payloads of frames; with `joined`, one directly after the other in a new array."""
        head = frames.header
        if not joined and bool((head["records"] == 1).all()) and not head["begin"].any():
            start = frames.start + layout.HEADER
            return cls(window.data, start, start + head["size"])
        data = np.empty(int(head["size"].sum()), np.uint8)
        stops = np.zeros(len(frames) + 1, np.int64)
        begin = np.ascontiguousarray(head["begin"], np.int64)
        gather(window.data, frames.start, frames.end, begin, window.offset, data, stops)
        return cls(data, stops[:-1], stops[1:])

    @classmethod
    def one(cls, payload: bytes) -> Payloads:
        return cls(
            np.frombuffer(payload, np.uint8), np.zeros(1, np.int64), np.array([len(payload)], np.int64)
        )

    @property
    def stops(self) -> Int64s:
        """Where each of several joined payloads starts, and where the last ends."""
        return np.concatenate((np.zeros(1, np.int64), self.end))


@dataclass(slots=True)
class Physical:
    """The physical records of frames, one element each. `owner` is the frame, `end` includes the padding of the block."""

    owner: Int64s
    start: Int64s
    end: Int64s
    length: Int64s
    type: Int64s
    crc: Int64s

    @classmethod
    def of(cls, window: Window, frames: Frames) -> Physical:
        # LevelDB writes no physical record without payload except as the last of a block, which bounds their number.
        most = int(((frames.end - frames.start) // layout.HEADER).sum())
        owner, end = np.empty(most, np.int64), np.empty(most, np.int64)
        out = np.empty((most, 4), np.int64)
        n = int(physical(window.data, frames.start, frames.end, window.offset, owner, end, out))
        start, length, kind, crc = (np.ascontiguousarray(out[:n, i]) for i in range(4))
        return cls(owner[:n], start, end[:n], length, kind, crc)

    def payload(self, window: Window, i: int) -> bytes:
        start = int(self.start[i]) + layout.HEADER
        return window.data[start : start + int(self.length[i])].tobytes()

    def paddings(self, window: Window) -> list[bytes | None]:
        """Return the padding of the block after each record, if it is not all zeros."""
        out: list[bytes | None] = [None] * len(self.start)
        after = self.start + layout.HEADER + self.length
        for i in np.flatnonzero(after < self.end).tolist():
            filling = window.data[int(after[i]) : int(self.end[i])]
            out[i] = filling.tobytes() if filling.any() else None
        return out


@dataclass(slots=True)
class Resume:
    """Where the search for the next record begins: a byte of the file, and what is known about it."""

    place: int
    known: bool = False
    """Whether a physical record starts there."""
    damaged: bool = False
    """Whether that record is damaged. Its length or checksum may tell where it ends."""


@dataclass
class RecordContext:
    """Decoding parameters, and state carried from window to window."""

    options: Options
    file: int | None = None
    level: int | None = None
    resume: Resume | None = None
    sequence: int = -1
    """In a log: the last sequence number before `sequence_end`, a byte of the file."""
    sequence_end: int = 0


class RecordCodec(Codec):
    """The part of a codec that handles physical and logical records."""

    checksum = "CRC-32C"
    sequential = True  # the records before damage decide which are credible after it
    pattern: re.Pattern[str]
    rows: Table
    records: Table = RECORDS

    def __init__(self, *structures: Struct, options: tuple[Option, ...] = ()) -> None:
        self.structures = (layout.RECORD, *structures, fields.LOGICAL_RECORD)
        self.described = (file_of_records(structures[0]), *structures)
        self.options = (*used_by({*DECODES, Verb.INSPECT}, MAX_RECORD), *options)
        self.tables = {"rows": self.rows, "records": self.records, "frames": FRAMES, "file": FILE}

    # What each codec defines

    @abstractmethod
    def plausible(self, window: Window, place: int, following: int, context: RecordContext) -> bool:
        """Return whether the FULL record at `place`, found after damage, is plausible there. `following` is the next certain record in
        its block, or -1."""

    @abstractmethod
    def decode_rows(
        self, window: Window, frames: Frames, columns: Sequence[str], context: RecordContext
    ) -> Decoded:
        """Decode the rows of frames."""

    def record_column(self, name: str, frames: Frames) -> pa.Array:
        """Return a column of the records table that is specific to this codec."""
        raise KeyError(name)

    def seen(self, window: Window, frames: Frames, context: RecordContext) -> None:
        """Take note of good frames, at least one."""
        return

    @abstractmethod
    def is_canonical(self, records: Payloads) -> Bools:
        """Return for each payload whether its rows encode to exactly these bytes."""

    # The common part

    def recognise(self, name: str, head: bytes) -> Match:
        if not self.pattern.fullmatch(name):
            return Match.NO
        data = np.frombuffer(head, np.uint8)
        return Match.of(True, len(head) >= layout.HEADER and sound(data, 0, len(head), layout.BLOCK) >= 0)

    def context(self, name: str, options: Options, **hints: Any) -> RecordContext:
        hints.pop("directory", "")
        hints.pop("live", None)
        hints.setdefault("file", number_of(name, self.pattern))
        unknown = set(hints) - {"file", "level"}
        if unknown:
            raise UsageError(f"{self.name}: no hint {sorted(unknown)[0]!r}")
        return RecordContext(options, **hints)

    def explain(self, window: Window, context: RecordContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        return records_of(self.structures[1], window, focus)

    def scan(self, window: Window, at: int, context: RecordContext, *, check: bool = True) -> Frames:
        context.resume = None
        limit = context.options["max.record.bytes"]
        frames, status, state = log_reader.scan(window, at, check=check, limit=limit)
        if len(frames):
            self.seen(window, frames, context)
        if status == layout.NEED:
            frames.need = self._need(window, frames.stop, state, check=check)
        elif status != layout.END:
            frames.damage = self._damage(window, frames, status, state, context)
        return frames

    def suspects(
        self, window: Window, at: int, limit: int, around: Around, context: RecordContext
    ) -> Iterator[Flip]:
        data, place = window.data, at
        while len(data) - place >= layout.HEADER:
            left = layout.BLOCK - (window.offset + place) % layout.BLOCK
            if left < layout.HEADER:
                place += left
                continue
            end = place + layout.HEADER + load_u16le(data, place + _LENGTH)
            if end <= min(len(data), place + left):
                stored, computed = load_u32le(data, place), record_crc(data, place, end)
                if stored == computed:
                    place = end
                    continue
                yield from flips_of_stored(place, 4, "<", stored ^ computed)
                change = unmasked(stored) ^ unmasked(computed)
                yield from flips_by_crc(place + _TYPE, end, change, CRC32C)
            for byte in range(place + _LENGTH, place + _TYPE):
                yield from (Flip(byte, bit) for bit in range(8))
            return

    def _need(self, window: Window, stop: int, state: list[int], *, check: bool) -> int:
        """Return how many bytes the record at `stop` needs, as far as is known."""
        at = window.offset + stop
        if state[layout.CHAIN] < 0 or window.offset + state[layout.PLACE] + layout.HEADER > window.size:
            return state[layout.NEEDED]
        if not check:
            # Without checking, only the start of the next record is needed, which may be in the next block.
            return max(state[layout.NEEDED], layout.BLOCK - at % layout.BLOCK)
        # One more block, so that a long record is not scanned again for each header.
        return min(state[layout.NEEDED] + layout.BLOCK, window.size - at)

    def _damage(
        self, window: Window, frames: Frames, status: int, state: list[int], context: RecordContext
    ) -> Fault:
        """Return the fault that ended a scan, and set where to resume."""
        place, after, kind = (
            window.offset + state[layout.PLACE],
            window.offset + state[layout.AFTER],
            state[layout.KIND],
        )
        at = window.offset + frames.stop
        left = window.size - at
        length = state[layout.LENGTH]
        block_left = min(layout.BLOCK - place % layout.BLOCK, window.size - place)
        severity, system, resume = Severity.ERROR, _SYSTEM_BLOCK, Resume(place + 1)
        text = log_reader.message(status, kind)
        if status in (layout.TORN_HEADER, layout.TORN, layout.TORN_CHAIN):
            fault_kind, severity, system = Kind.TRUNCATED, Severity.WARNING, _SYSTEM_END
            resume = Resume(place, damaged=True)
            if status == layout.TORN_HEADER:
                text = f"the file ends within the header of a record, after {window.size - place} of {layout.HEADER} bytes"
            elif status == layout.TORN:
                present = block_left - layout.HEADER
                text = f"the file ends within a record: {plural.count(length, 'byte')} of payload declared, {present} present"
            else:
                text = f"the file ends before the rest of a record, after {plural.count(state[layout.GATHERED], 'byte')} of it"
                resume = Resume(window.size)
        elif status == layout.ZEROS:
            fault_kind, severity, text = _zeros(window, place - window.offset)
            system = "LevelDB silently skips the rest of the block"
        elif status == layout.BAD_LENGTH:
            fault_kind = Kind.LENGTH
            text += f": {plural.count(length, 'byte')} of payload, but {block_left - layout.HEADER} left in the block"
            resume = Resume(place, damaged=True)
        elif status == layout.CHECKSUM:
            fault_kind, resume = Kind.CHECKSUM, Resume(place, damaged=True)
            text += f" of a {_type_name(kind)} record of {plural.count(length, 'byte')}"
        elif status == layout.UNKNOWN:
            fault_kind, resume = Kind.MAGIC, Resume(after, known=True)
            system = {layout.EOF_TYPE: _SYSTEM_END, layout.BAD_TYPE: "LevelDB silently skips it"}.get(
                kind, "LevelDB skips it"
            )
        elif status == layout.PARTIAL:
            fault_kind, resume = Kind.TRUNCATED, Resume(place, known=True)
            text += f": {plural.count(state[layout.GATHERED], 'byte')} of a record"
            system = "LevelDB skips it"
        elif status == layout.MISSING:
            fault_kind, resume = Kind.ORDER, Resume(after, known=True)
            text += f": {plural.count(length, 'byte')} of a record"
            system = "LevelDB skips it"
        else:
            assert status == layout.TOO_LONG
            fault_kind, resume = Kind.LENGTH, Resume(after, known=True)
            limit = context.options["max.record.bytes"]
            text, system = f"a record of more than {limit} bytes (max.record.bytes)", "LevelDB reads it"
        if place > at and status not in (layout.PARTIAL, layout.TORN_CHAIN, layout.TOO_LONG):
            text = f"{text} at byte {place}, in the middle of a record"
        context.resume = resume
        return Fault(self.name, at, left, fault_kind, text, severity, system)

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: RecordContext
    ) -> Mapping[str, Any]:
        return {"file": context.file}

    # After damage

    def resync(self, window: Window, at: int, context: RecordContext) -> tuple[int, int]:
        resume = context.resume
        first = pos = window.offset + at
        known = damaged = False
        if resume is not None and resume.place >= pos - resume.damaged:
            pos, known, damaged = resume.place, resume.known, resume.damaged
        behind = window.offset + len(window.data)
        while pos < window.size:
            block_end = pos + layout.BLOCK - pos % layout.BLOCK
            stop = min(block_end, window.size)
            if stop > behind:
                context.resume = Resume(pos, known, damaged)
                if pos >= behind:
                    return -1, 0
                return max(pos, first) - window.offset, stop - max(pos, first)
            inside, end, block = pos - window.offset, stop - window.offset, block_end - window.offset
            known = known or (pos % layout.BLOCK == 0 and not damaged)
            after = int(sound(window.data, inside, end, block)) if known else -1
            if after >= 0 and window.data[inside + _TYPE] not in (layout.MIDDLE, layout.LAST):
                context.resume = None
                return inside, 0
            if after < 0 and (known or damaged):
                after = int(true_end(window.data, inside, end, block))
                inside += 1
            if after < 0:
                place = self._search(window, inside, end, block, context)
                if place >= 0:
                    context.resume = None
                    return place, 0
                after = end
            pos, known, damaged = window.offset + after, True, False
        return -1, 0

    def _search(self, window: Window, at: int, stop: int, block_end: int, context: RecordContext) -> int:
        """Return the first place in a block where a record that starts a logical one is credible, or -1."""
        following: int | None = None
        while True:
            place, sure = next_start(window.data, at, stop, block_end)
            if place < 0 or sure:
                return int(place)
            if following is None:
                following = self._sure(window, place + 1, stop, block_end)
            if window.data[place + _TYPE] == layout.FULL and self.plausible(
                window, int(place), following, context
            ):
                return int(place)
            at = place + 1

    def _sure(self, window: Window, at: int, stop: int, block_end: int) -> int:
        """Return the first certain place, or -1."""
        sure = 0
        while at >= 0 and not sure:
            at, sure = next_start(window.data, at, stop, block_end)
            at += 0 if sure or at < 0 else 1
        return int(at)

    # Changing fields

    def field_names(self) -> Sequence[str]:
        return address.names((fields.LOGICAL_RECORD, *self.structures))

    def edit(
        self, frame: bytes, path: Sequence[str | int], change: Callable[[bytes, Type], bytes], *, reseal: bool,
        context: Any = None,
    ) -> bytes:  # fmt: skip
        return fields.edit_record(self.structures[1], frame, path, change, reseal=reseal)

    # Decoding

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: RecordContext
    ) -> Iterator[Decoded]:
        for part in frames.portions(PORTION):
            if table == "frames":
                yield Decoded(self._frames(window, part, columns))
            elif table == "records":
                yield Decoded(self._records(window, part, columns))
            else:
                yield self.decode_rows(window, part, columns, context)

    def _records(self, window: Window, frames: Frames, columns: Sequence[str]) -> pa.RecordBatch:
        arrays = []
        for name in columns:
            if name == "position":
                arrays.append(numbers(pa.int64(), frames.start + window.offset))
            elif name == "size":
                arrays.append(numbers(pa.int64(), frames.end - frames.start))
            elif name == "payload":
                payloads = Payloads.of(window, frames, joined=True)
                arrays.append(from_offsets(payloads.stops.astype(np.int32), payloads.data))
            else:
                arrays.append(self.record_column(name, frames))
        return batch_of(arrays, self.records.schema(columns), len(frames))

    def _frames(self, window: Window, frames: Frames, columns: Sequence[str]) -> pa.RecordBatch:
        records = Physical.of(window, frames)
        integers = {
            "position": records.start + window.offset,
            "size": records.end - records.start,
            "length": records.length,
            "crc": records.crc,
            "record": frames.start[records.owner] + window.offset,
        }
        arrays = []
        for name in columns:
            kind = FRAMES[name].type
            if name in integers:
                array = numbers(kind, integers[name])
            elif name == "type":
                array = _TYPES.take(numbers(pa.int64(), records.type))
            elif name == "payload":
                canonical = self.is_canonical(Payloads.of(window, frames))[records.owner].tolist()
                stored = [None if same else records.payload(window, i) for i, same in enumerate(canonical)]
                array = contents(kind, stored)
            elif name == "padding":
                array = contents(kind, records.paddings(window))
            else:
                array = pa.nulls(len(records.start), kind)
            arrays.append(array)
        return batch_of(arrays, FRAMES.schema(columns), len(records.start))


def _zeros(window: Window, at: int) -> tuple[Kind, Severity, str]:
    """Return the fault of a header with type 0 and length 0. Writers before LevelDB 1.15 preallocated files, which end in zeros."""
    zeros = window.zeros_from(at)
    if zeros < layout.HEADER:
        return Kind.MAGIC, Severity.ERROR, "a record of type 0 and length 0"
    if zeros < window.size - window.offset - at:
        return Kind.PADDING, Severity.ERROR, "zeros instead of a record, followed by other bytes"
    return Kind.PADDING, Severity.INFO, "zeros instead of a record"


_TYPES = contents(pa.string(), [name.encode() for name in layout.TYPE_NAMES])


def _type_name(kind: int) -> str:
    return layout.TYPE_NAMES[kind] if kind < len(layout.TYPE_NAMES) else f"type {kind}"
