"""The codec `rocketmq.indexfile`: a hash table from keys to message offsets. Source: `IndexFile`, `IndexHeader` of RocketMQ.

A file is a header, slots, and entries in log order. A slot holds the number of its newest entry; an entry holds the number of the previous
entry of its slot. The number of slots is not stored: it comes from options or is inferred from the first entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.base import Codec, Match
from logwright.codec.columns import contents, numbers
from logwright.codec.describe import Bytes, Field, Struct
from logwright.codec.explain import Focus, Node, explain_values
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.fixed import end_without_zeros, with_damage
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.formats.indexfile import layout
from logwright.codec.rocketmq.formats.indexfile.header import unequal_ends, wrong_end, wrong_slot_count
from logwright.codec.rocketmq.formats.indexfile.layout import ENTRY_TYPE, HEAD, HEADER, NAME, SIZE, SYSTEM
from logwright.codec.rocketmq.formats.indexfile.slots import find_slots
from logwright.codec.single_frame import ending_bytes, single_value
from logwright.codec.table import RAW, TIMESTAMP, Column, Table, columns_of, ending, extent
from logwright.codec.window import Bytes as Buffer
from logwright.codec.window import Chunk, Decoded, Frames, Window, Zeros

_PIECE = 1 << 20
_MOST_FAULTS = 100

HASH_SLOTS = Option(
    "maxHashSlotNum",
    None,
    "Number of slots of an index file; 5000000 by default when writing",
    low=1,
    high=1 << 28,
)
MAX_ENTRIES = Option(
    "maxIndexNum",
    None,
    "Number of entries of an index file, including entry 0; 20000000 by default when writing",
    low=2,
    high=1 << 30,
)
ROWS = Table(
    "rows",
    (
        Column("entry", pa.int32(), "number of the entry in its file, starting at 1"),
        *columns_of(layout.ENTRY, "key_hash", "physical_offset"),
        *columns_of(layout.ENTRY, "time_diff", nullable=True),
        Column(
            "store_timestamp",
            TIMESTAMP,
            "store time of the message in whole seconds, computed from time_diff",
            detail=True,
        ),
        *columns_of(layout.ENTRY, "previous", nullable=True, detail=True),
    ),
    "One row per entry.",
)


@dataclass
class IndexContext:
    """The state of a scan. `slots` is the number of slots (-1: unknown), `hinted` the number in other files. `head` is the header, `first` the
    offset of entry 1, and `used` the end of the last entry; `unfinished` says that another one follows, which the header does not count yet.
    In a scan from the start `last` holds the newest entry of each slot so far and `done` the number of scanned entries, `newest` the physical
    offset of the last one."""

    options: Options
    hinted: int = 0
    slots: int = -1
    head: npt.NDArray[Any] | None = None
    stored: npt.NDArray[Any] | None = None
    used: int = 0
    unfinished: bool = False
    prepared: bool = False
    last: Int32s | None = None
    done: int = 0
    newest: int = 0

    @property
    def first(self) -> int:
        return layout.entry_at(self.slots, 1)

    @property
    def begin(self) -> int:
        return 0 if self.head is None else int(self.head["begin_timestamp"])


class IndexFile(Codec):
    """The codec. The header with the slots is a frame, and so is each entry."""

    name = NAME
    title = "RocketMQ index file"
    structures = (layout.ENTRY, HEADER)
    described = (
        Struct(
            "IndexFile",
            *HEADER.fields[:-1],
            Field("rest", Bytes("rest"), "slots, then entries"),
            source="IndexFile",
        ),
    )
    options = (HASH_SLOTS, MAX_ENTRIES)
    sequential = True
    scans_empty = True
    tables: Mapping[str, Table] = {
        "rows": ROWS,
        "frames": Table(
            "frames",
            (
                Column("position", pa.int64(), "byte of the file where the frame starts", nullable=False),
                Column("size", pa.int32(), "bytes of the frame"),
                Column("payload", pa.binary(), "the bytes of the header and the slots", detail=True),
                RAW,
            ),
            "One row for the header with the slots, then one row per entry.",
        ),
        "file": Table(
            "file",
            (
                *(Column(field.name, pa.int64(), field.doc) for field in HEADER.fields[:-1]),
                Column("slots", pa.int64(), "number of slots"),
                *extent("frames"),
                *ending("frame"),
            ),
            "One row.",
        ),
    }

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if re.fullmatch(r"\d{17}", name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> IndexContext:
        return IndexContext(options, hints.get("slots") or 0)

    def prepare(self, read: Callable[[int, int], Buffer], size: int, context: IndexContext) -> None:
        context.prepared = True
        if size < HEAD:
            return
        context.head = read(0, HEAD).copy().view(layout.HEAD_TYPE)[0]
        context.slots = context.options["maxHashSlotNum"] or context.hinted or find_slots(read, size)
        context.used = end_without_zeros(read, min(context.first, size), size)
        count = -(-(context.used - context.first) // SIZE)
        if 0 < count == max(int(context.head["index_count"]), 1):
            # A broker writes an entry before the header. `end_physical_offset` is that of the entry before.
            at = layout.entry_at(context.slots, count - 1)
            before = read(at, SIZE).copy().view(ENTRY_TYPE)["physical_offset"][0]
            context.unfinished = count == 1 or before == context.head["end_physical_offset"]
            context.used = layout.entry_at(context.slots, count) if context.unfinished else context.used

    # Finding entries

    def scan(self, window: Window, at: int, context: IndexContext, *, check: bool = True) -> Frames:
        if not context.prepared:
            self.prepare(lambda start, length: window.data[start : start + length], window.size, context)
        offset = window.offset + at
        empty = np.empty(0, np.int64)
        nothing = Frames(empty, empty, np.empty(0, ENTRY_TYPE), at)
        header = 0
        if context.slots < 0 or (offset == 0 and window.size < context.first):
            text = f"the file has {window.size} bytes, less than a header and its slots"
            kind, system = Kind.TRUNCATED, "the broker pads the file with zeros"
            if window.size > HEAD + SIZE and context.slots < 0:
                text = "cannot infer the number of slots from the header and entries; pass maxHashSlotNum"
                kind, system = Kind.PAYLOAD, SYSTEM
            nothing.damage = Fault(NAME, 0, window.size, kind, text, system=system)
            return nothing
        if offset == 0:
            header = context.first
            if len(window.data) - at < header:
                return replace(nothing, need=header)
            context.last = np.zeros(context.slots, np.int32)
            context.stored = (
                window.data[at + HEAD : at + HEAD + 4 * context.slots].view(">i4").astype(np.int32)
            )
            context.done = 0
        left = window.size - offset - header
        used = max(0, min(context.used, window.size) - offset - header)
        total = min(-(-used // SIZE), left // SIZE)
        available = min(total, (len(window.data) - at - header) // SIZE)
        start = at + header + SIZE * np.arange(available, dtype=np.int64)
        entries = window.data[at + header : at + header + SIZE * available].view(ENTRY_TYPE)
        frames = Frames(start, start + SIZE, entries, at + header + SIZE * available)
        if header:
            frames.start, frames.end = np.r_[at, start], np.r_[at + header, start + SIZE]
            frames.header = np.concatenate([np.zeros(1, ENTRY_TYPE), entries], dtype=ENTRY_TYPE)
        if available < total:
            frames.need = SIZE
            ended = False
        else:
            frames.damage = self._ending(
                window, offset + header + SIZE * available, used > SIZE * total, context
            )
            ended = True
            if frames.damage is not None and frames.damage.kind is Kind.PADDING:
                frames.faults.append(frames.damage)
                frames.damage = None
        if check:
            frames.faults = [*self._inconsistencies(entries, offset + header, context, ended), *frames.faults]
        return frames

    def _ending(self, window: Window, offset: int, partial: bool, context: IndexContext) -> Fault | None:
        left = window.size - offset
        if partial:
            text = f"{plural.count(left, 'byte')} at the end, too few for an entry of {SIZE} bytes"
            return Fault(NAME, offset, left, Kind.TRUNCATED, text, Severity.WARNING, SYSTEM)
        if not left:
            return None
        text = "preallocated zeros"
        if context.unfinished:
            text = (
                f"an unfinished entry of {SIZE} bytes that the header does not count, and preallocated zeros"
            )
        return Fault(NAME, offset, left, Kind.PADDING, text, Severity.INFO)

    def _inconsistencies(
        self, entries: npt.NDArray[Any], offset: int, context: IndexContext, ended: bool
    ) -> Iterator[Fault]:
        """Yield faults of entries and slots that contradict each other."""
        head, last = context.head, context.last
        if head is None or last is None:
            return
        first = (offset - context.first) // SIZE + 1
        if first != context.done + 1:
            context.last = None  # entries were skipped
            return
        context.done += len(entries)
        if len(entries):
            phy = entries["physical_offset"]
            yield from wrong_end(head, "begin", int(phy[0])) if first == 1 else ()
            context.newest = int(phy[-1])
        expected = layout.chain(np.maximum(entries["key_hash"], 0), context.slots, first, last)
        for mask, kind, text in (
            (entries["key_hash"] < 0, Kind.PAYLOAD, "key_hash is negative"),
            (
                entries["previous"] != expected,
                Kind.LINK,
                "previous is not the number of the previous entry in its slot",
            ),
            (entries["time_diff"] < 0, Kind.ORDER, "time_diff is negative; a broker ends its search here"),
        ):
            for i in np.flatnonzero(mask)[:_MOST_FAULTS].tolist():
                yield Fault(NAME, offset + i * SIZE, SIZE, kind, text, system=SYSTEM, rows_lost=0)
        if not ended:
            return
        if context.done:
            yield from wrong_end(head, "end", context.newest)
        elif not context.unfinished:
            yield from unequal_ends(head)
        count = int(head["index_count"])
        if count not in (context.done + 1, 0 if not context.done else -1):
            text = f"index_count is {count}, expected {context.done + 1}: the file has {plural.count(context.done, 'entry')}"
            yield Fault(NAME, HEADER.offset("index_count"), 4, Kind.LENGTH, text, system=SYSTEM, rows_lost=0)
        assert context.stored is not None
        yield from wrong_slot_count(head, context.stored, last, context.done, unfinished=context.unfinished)
        differ = context.stored != last
        if context.unfinished:
            differ &= context.stored != context.done + 1
        for i in np.flatnonzero(differ)[:_MOST_FAULTS].tolist():
            text = f"slot {i} holds entry {context.stored[i]}, expected its newest entry {last[i]}"
            yield Fault(NAME, HEAD + 4 * i, 4, Kind.LINK, text, system=SYSTEM, rows_lost=0)

    def resync(self, window: Window, at: int, context: IndexContext) -> tuple[int, int]:
        if context.slots < 0:
            return -1, 0
        offset = window.offset + at
        ahead = context.first if offset < context.first else offset + -(offset - context.first) % SIZE
        if ahead + SIZE > min(context.used + SIZE - 1, window.size):
            return -1, 0
        return ahead - window.offset, 0

    # Tables

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: IndexContext
    ) -> Iterator[Decoded]:
        schema = self.tables[table].schema(columns)
        if table == "rows" and len(frames) and window.offset + int(frames.start[0]) == 0:
            frames = frames.pick(slice(1, None))
        for at in range(0, len(frames), _PIECE):
            piece = frames.pick(slice(at, at + _PIECE))
            values = (
                self._rows(window, piece, context)
                if table == "rows"
                else self._frames(window, piece, columns)
            )
            yield Decoded(pa.RecordBatch.from_arrays([values[name] for name in columns], schema=schema))

    def _rows(self, window: Window, frames: Frames, context: IndexContext) -> Mapping[str, pa.Array]:
        entries = frames.header
        number = (frames.start + window.offset - context.first) // SIZE + 1
        time = context.begin + 1000 * entries["time_diff"].astype(np.int64)
        values = {name: numbers(ROWS[name].type, entries[name]) for name in ENTRY_TYPE.names or ()}
        return {**values, "entry": numbers(pa.int32(), number), "store_timestamp": numbers(TIMESTAMP, time)}

    def _frames(self, window: Window, frames: Frames, columns: Sequence[str]) -> Mapping[str, pa.Array]:
        payload: list[bytes | None] = [None] * len(frames)
        if "payload" in columns and len(frames) and window.offset + int(frames.start[0]) == 0:
            payload[0] = window.data[int(frames.start[0]) : int(frames.end[0])].tobytes()
        return {
            "position": numbers(pa.int64(), frames.start + window.offset),
            "size": numbers(pa.int32(), frames.end - frames.start),
            "payload": contents(pa.binary(), payload),
            "raw": pa.nulls(len(frames), pa.binary()),
        }

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: IndexContext
    ) -> Mapping[str, Any]:
        header = {} if context.head is None else {name: int(context.head[name]) for name in layout.FIELDS}
        return {**header, "slots": context.slots if context.slots >= 0 else None}

    # Encoding

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: IndexContext
    ) -> Iterator[Chunk]:
        slots = single_value(file, "slots") or context.options["maxHashSlotNum"] or layout.SLOTS
        entries, times = self._entries(rows, slots, single_value(file, "begin_timestamp"))
        first: dict[str, Any] = (
            {"position": 0} if frames is None else next(iter(frames.slice(0, 1).to_pylist()), {})
        )
        if first.get("position") == 0 and first.get("raw") is None:
            payload = first.get("payload")
            yield self._header(entries, times, slots, file) if payload is None else payload
            frames = None if frames is None else frames.slice(1)
        yield from with_damage([entries.tobytes()], SIZE, frames)
        if file is None:
            room = context.options["maxIndexNum"] or layout.ENTRIES
            if len(entries) >= room:
                raise UsageError(
                    f"{NAME}: {len(entries)} rows; a file holds at most {room - 1} entries",
                    advice="Write fewer rows to this file, or set maxIndexNum",
                )
            yield Zeros(SIZE * (room - 1 - len(entries)))
        yield from ending_bytes(file)

    def _header(self, entries: npt.NDArray[Any], times: Int64s, slots: int, file: pa.Table | None) -> bytes:
        known = single_value(file, "index_count") is not None
        head = (
            {name: single_value(file, name) for name in layout.FIELDS}
            if known
            else header_of(entries, times, slots)
        )
        last = np.zeros(slots, np.int32)
        layout.chain(np.maximum(entries["key_hash"], 0), slots, 1, last)
        return HEADER.pack({**head, "slots": last.astype(">i4").tobytes() + bytes(SIZE)})

    def _entries(self, rows: pa.Table, slots: int, begin: int | None) -> tuple[npt.NDArray[Any], Int64s]:
        """Return rows as entries, and their store times. `time_diff` and `previous` are computed if not given."""

        def values(name: str) -> Int64s | None:
            if name not in rows.column_names or rows[name].null_count == len(rows):
                return None
            return np.asarray(rows[name].cast(ROWS[name].type).cast(pa.int64()).fill_null(0), np.int64)

        out = np.zeros(rows.num_rows, ENTRY_TYPE)
        for name in ("key_hash", "physical_offset"):
            column = values(name)
            if column is None and rows.num_rows:
                raise UsageError(f"{NAME} needs a column {name!r}")
            out[name] = 0 if column is None else column
        times, diffs, previous = values("store_timestamp"), values("time_diff"), values("previous")
        if times is None:
            times = np.zeros(len(out), np.int64)
        if diffs is None:
            start = begin if begin is not None else (int(times[0]) if len(times) else 0)
            diffs = np.clip((times - start) // 1000, 0, (1 << 31) - 1)
        out["time_diff"] = diffs
        if previous is None:
            if (out["key_hash"] < 0).any():
                raise UsageError(f"{NAME}: key_hash must not be negative")
            previous = layout.chain(out["key_hash"], slots, 1, np.zeros(slots, np.int32)).astype(np.int64)
        out["previous"] = previous
        return out, times

    # One frame

    @cached_property
    def frame(self) -> Struct:
        """The structure of a frame. The first frame of a file is the header."""
        return _Frame(self)

    def struct_at(self, frame: bytes, at: int) -> Struct:
        """Return the structure of the frame at byte `at` of its file."""
        return HEADER if not at else layout.ENTRY

    def explain(self, window: Window, context: IndexContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        struct = self.struct_at(b"", window.offset) if frame else layout.ENTRY
        nodes = explain_values(struct, window, focus, single=frame)
        if frame and struct is layout.ENTRY and nodes:
            nodes[0].row = 0
        return nodes


def header_of(entries: npt.NDArray[Any], times: Int64s, slots: int) -> dict[str, int]:
    """Return the header that a broker writes for these entries."""
    if not len(entries):
        return {**dict.fromkeys(layout.FIELDS, 0), "index_count": 1}
    return {
        "begin_timestamp": int(times[0]) - 1000 * int(entries["time_diff"][0]),
        "end_timestamp": int(times[-1]),
        "begin_physical_offset": int(entries["physical_offset"][0]),
        "end_physical_offset": int(entries["physical_offset"][-1]),
        "hash_slot_count": len(np.unique(entries["key_hash"].astype(np.int64) % slots)),
        "index_count": len(entries) + 1,
    }


class _Frame(Struct):
    def __init__(self, codec: IndexFile) -> None:
        super().__init__("IndexFrame", *HEADER.fields, *layout.ENTRY.fields)
        self.codec = codec

    def unpack(
        self, buf: Any, at: int = 0, end: int | None = None, scope: Any = None
    ) -> tuple[dict[str, Any], int]:
        values, stop = self.codec.struct_at(b"", at).unpack(buf, at, end, scope)
        return {**dict.fromkeys(field.name for field in self.fields), **values}, stop

    def check(self, buf: Any, at: int, end: int) -> list[tuple[str, int, int]]:
        return []


CODEC = IndexFile()
