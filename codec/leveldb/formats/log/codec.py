"""The codec `leveldb.log`: write-ahead logs (`.log`).

A logical record is a write batch, a row is one operation. The framing of records is in `formats/records`, their contents in `layout`.
Source: `doc/log_format.md` and `db/write_batch.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import batch_of, constant, contents, from_offsets, numbers, one_batch
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kernels.intrinsics import load_i32le, load_i64le
from logwright.codec.leveldb.formats.log import layout
from logwright.codec.leveldb.formats.log.layout import measure, pack, room_for, unpack
from logwright.codec.leveldb.formats.records import reencode
from logwright.codec.leveldb.formats.records.codec import RECORDS, Payloads, RecordCodec, RecordContext
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER, BLOCK, HEADER, RECORD
from logwright.codec.leveldb.formats.records.reencode import PlainRecords, Records
from logwright.codec.leveldb.formats.table.compression import ANOTHER_PROGRAM
from logwright.codec.leveldb.formats.table.write import prepare
from logwright.codec.leveldb.keys import DELETION, MAX_SEQUENCE, TYPE_NAMES
from logwright.codec.leveldb.names import LOG_NAME
from logwright.codec.option import ENCODES, Option, used_by
from logwright.codec.table import Column, Table
from logwright.codec.window import Around, Bytes, Chunk, Decoded, Frames, Window

NAME = "leveldb.log"

ROWS = Table(
    "rows",
    (
        Column("key", pa.binary(), "the user key", nullable=False),
        Column("value", pa.binary(), "null for a deletion"),
        Column("sequence", pa.int64(), "sequence number of the write", nullable=False, prunes=True),
        Column("type", pa.string(), "value or deletion", nullable=False),
        Column("file", pa.int64(), "number of the file, from its name", detail=True),
        Column("level", pa.int32(), "null: a log has no level", detail=True),
        Column(
            "position",
            pa.int64(),
            "byte of the file where the operation's batch starts: record in frames",
            detail=True,
        ),
    ),
    "One row per operation, in the order of the file.",
    ("sequence",),
)
BATCHES = Table(
    "records",
    (
        *RECORDS.columns,
        Column(
            "sequence",
            pa.int64(),
            "of the first operation of the batch; null for an invalid batch",
            prunes=True,
        ),
        Column("count", pa.int64(), "number of operations stored in the batch; null for an invalid batch"),
    ),
    RECORDS.doc,
)
BATCH_SIZE = Option(
    "batch_size",
    1,
    "Operations per write batch, if rows do not say which batch they are in; Put and Delete write batches of one",
    low=1,
    high=(1 << 31) - 1,
)

_TYPES = contents(pa.string(), [name.encode() for name in TYPE_NAMES])
_LEAST = 2
"""Bytes of the shortest operation."""
_SYSTEM = "LevelDB keeps the operations before it and continues, or with paranoid_checks refuses to open"


class LevelDBLog(RecordCodec):
    name = NAME
    title = "LevelDB write-ahead log: write batches"
    pattern = LOG_NAME
    rows = ROWS
    records = BATCHES

    def seen(self, window: Window, frames: Frames, context: RecordContext) -> None:
        head = frames.header[-1]
        if head["size"] >= BATCH_HEADER:
            context.sequence = int(head["sequence"]) + max(int(head["count"]), 1) - 1
            context.sequence_end = window.offset + int(frames.end[-1])

    def plausible(self, window: Window, place: int, following: int, context: RecordContext) -> bool:
        """Return whether the record is a sound batch whose sequence numbers fit between the known ones, given the bytes in between."""
        measured = np.zeros((1, layout.MEASURES), np.int64)
        start = place + HEADER
        size = window.data[place + 4 : place + 6].view("<u2")[0]
        measure(window.data, np.array([start]), np.array([start + int(size)]), measured)
        if measured[0, layout.STATUS] != layout.SOUND or not measured[0, layout.OPERATIONS]:
            return False
        first = load_i64le(window.data, start)
        last = first + int(measured[0, layout.OPERATIONS]) - 1
        if context.sequence >= 0:
            between = window.offset + place - context.sequence_end
            return 0 < first - context.sequence <= 1 + between // _LEAST
        if following < 0:
            return False
        next_first = load_i64le(window.data, following + HEADER)
        return 0 < next_first - last <= 1 + (following - place) // _LEAST

    def loss_between(self, around: Around, context: RecordContext) -> tuple[int | None, Mapping[str, Any]]:
        """Return the sequence numbers between two good batches: each is an operation."""
        lost: dict[str, Any] = {} if context.file is None else {"file": context.file}
        before, after = around
        first = next_first = None
        if before is not None and before.header["size"][-1] >= BATCH_HEADER:
            first = int(before.header["sequence"][-1]) + int(before.header["count"][-1])
            lost["first_sequence"] = first
        if after is not None and after.header["size"][0] >= BATCH_HEADER:
            next_first = int(after.header["sequence"][0])
            lost["last_sequence"] = next_first - 1
        if first is None or next_first is None or next_first < first:
            return None, lost
        return (next_first - first, lost) if next_first > first else (0, {})

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """Return bounds of the sequence numbers of a batch, by its size, whatever operation count it stores."""
        if column != "sequence":
            return None, None
        head = frames.header
        first = head["sequence"].astype(np.int64)
        sane = (first >= 0) & (first <= MAX_SEQUENCE - (1 << 31)) & (head["size"] >= BATCH_HEADER)
        info = np.iinfo(np.int64)
        return np.where(sane, first, info.min), np.where(sane, first + head["size"] // _LEAST, info.max)

    def is_canonical(self, records: Payloads) -> Bools:
        plain: Bools = _measured(records)[:, layout.PLAIN] == 1
        return plain

    def record_column(self, name: str, frames: Frames) -> pa.Array:
        null = frames.header["size"] < BATCH_HEADER
        return numbers(pa.int64(), np.where(null, 0, frames.header[name].astype(np.int64)), null)

    def decode_rows(
        self, window: Window, frames: Frames, columns: Sequence[str], context: RecordContext
    ) -> Decoded:
        records = Payloads.of(window, frames)
        operations = Operations.of(records, measured_batches(window, frames, records))
        arrays = [_column(name, window, frames, operations, context) for name in columns]
        batch = batch_of(arrays, ROWS.schema(columns), operations.rows)
        return Decoded(batch, _faults(window, frames, records, operations.measured))

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: RecordContext
    ) -> Iterator[Chunk]:
        records: Records
        if "payload" in rows.column_names and "key" not in rows.column_names:
            records = PlainRecords(rows, NAME)
        else:
            records = Batches(rows, context)
        return reencode.encode(NAME, records, frames, file)


def _measured(records: Payloads) -> Int64s:
    measured = np.zeros((len(records.start), layout.MEASURES), np.int64)
    measure(records.data, records.start, records.end, measured)
    return measured


def measured_batches(window: Window, frames: Frames, records: Payloads) -> Int64s:
    """Measure the batches of some frames. Of a malformed batch in several physical records only the operations in the first one count: each
    has its own checksum, and they may be those of different batches."""
    measured = _measured(records)
    joined = np.flatnonzero((frames.header["records"] > 1) & (measured[:, layout.STATUS] != layout.SOUND))
    if len(joined):
        at = frames.start[joined] + frames.header["begin"][joined].astype(np.int64)
        left = BLOCK - (at + window.offset) % BLOCK
        at += np.where(left < HEADER, left, 0) + RECORD.offset("length")
        first = window.data[at].astype(np.int64) | window.data[at + 1].astype(np.int64) << 8
        start, status = records.start[joined], measured[joined, layout.STATUS]
        of_first = _measured(Payloads(records.data, start, np.minimum(start + first, records.end[joined])))
        of_first[:, layout.STATUS] = status
        measured[joined] = of_first
    return measured


COLUMNS = ("key", "value", "sequence", "type")
"""The columns of an operation itself."""


class Operations:
    """The operations of some batches as columns; `which` is the batch of each."""

    def __init__(self, measured: Int64s, rows: int) -> None:
        self.measured, self.rows = measured, rows
        self.sequences, self.which = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.kinds = np.empty(rows, np.uint8)
        self.key_ends, self.value_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
        self.keys = np.empty(int(measured[:, layout.KEY_BYTES].sum()), np.uint8)
        self.values = np.empty(int(measured[:, layout.VALUE_BYTES].sum()), np.uint8)

    @classmethod
    def of(cls, records: Payloads, measured: Int64s | None = None) -> Operations:
        measured = _measured(records) if measured is None else measured
        operations = cls(measured, int(measured[:, layout.OPERATIONS].sum()))
        unpack(
            records.data,
            records.start,
            operations.measured,
            operations.sequences,
            operations.which,
            operations.kinds,
            operations.key_ends,
            operations.keys,
            operations.value_ends,
            operations.values,
        )
        return operations

    def column(self, name: str) -> pa.Array:
        """Return a column of `COLUMNS`."""
        if name == "key":
            return from_offsets(self.key_ends, self.keys)
        if name == "value":
            return from_offsets(self.value_ends, self.values, self.kinds == DELETION)
        if name == "sequence":
            return numbers(pa.int64(), self.sequences)
        if self.rows and (self.kinds == self.kinds[0]).all():
            return constant(pa.string(), TYPE_NAMES[int(self.kinds[0])], self.rows)
        return _TYPES.take(numbers(pa.int64(), self.kinds.astype(np.int64)))


def _column(
    name: str, window: Window, frames: Frames, operations: Operations, context: RecordContext
) -> pa.Array:
    if name in COLUMNS:
        return operations.column(name)
    if name == "position":
        return numbers(pa.int64(), (frames.start + window.offset)[operations.which])
    return constant(ROWS[name].type, getattr(context, name), operations.rows)


def _faults(window: Window, frames: Frames, records: Payloads, measured: Int64s) -> list[tuple[int, Fault]]:
    """Return the faults of batches whose checksums are right."""
    faults = []
    before = np.cumsum(measured[:, layout.OPERATIONS])
    for i in np.flatnonzero(measured[:, layout.STATUS] != layout.SOUND).tolist():
        status, present = int(measured[i, layout.STATUS]), int(measured[i, layout.OPERATIONS])
        start, end = int(records.start[i]), int(records.end[i])
        text, rows_lost = layout.MESSAGES[status], None
        if status == layout.TOO_SMALL:
            text, rows_lost = f"{text}: {plural.count(end - start, 'byte')}", 0
        else:
            declared = load_i32le(records.data, start + layout.WRITE_BATCH.offset("count"))
            text = f"{text}: {plural.count(declared, 'operation')} declared, {present} present"
            if int(measured[i, layout.STOPPED]) < end - start:
                text += f" before byte {int(measured[i, layout.STOPPED])} of the batch"
                rows_lost = declared - present if declared > present else None
            else:
                rows_lost = 0
        at = window.offset + int(frames.start[i])
        length = int(frames.end[i] - frames.start[i])
        kind, severity = Kind.PAYLOAD, Severity.ERROR
        if frames.header["records"][i] > 1:
            rows_lost = None
            text = f"{text}; each physical record has its own checksum, and they may be those of different batches"
        elif status == layout.BAD_TAG:
            if _has_batch_header(records.data[start:end], present):
                kind, severity = Kind.UNSUPPORTED, Severity.WARNING
                text = f"{text}; {ANOTHER_PROGRAM}"
            else:
                rows_lost = None
        fault = Fault(NAME, at, length, kind, text, severity, _SYSTEM, rows_lost)
        faults.append((int(before[i]), fault))
    return faults


def _has_batch_header(payload: Bytes, present: int) -> bool:
    """Return whether the sequence and the count can be those of a batch that has at least `present` operations. The record of another
    file, such as a manifest in the place of a log, has neither."""
    sequence = load_i64le(payload, layout.WRITE_BATCH.offset("sequence"))
    declared = load_i32le(payload, layout.WRITE_BATCH.offset("count"))
    return bool(0 <= sequence <= MAX_SEQUENCE and present <= declared <= len(payload))


class Batches(Records):
    """Rows as write batches: the rows of one position, or else `batch_size` rows at a time, in both cases with consecutive sequence
    numbers."""

    def __init__(self, rows: pa.Table, context: RecordContext) -> None:
        self.rows = rows
        self.batch = one_batch(rows)
        self.entries = prepare(self.batch)
        sequences = self.entries.trailers >> 8 & MAX_SEQUENCE
        if "sequence" not in rows.column_names:
            sequences = np.arange(1, rows.num_rows + 1)
        self.sequences = sequences
        self.kinds = (self.entries.trailers & 0xFF).astype(np.uint8)
        steps = np.diff(sequences)
        new_batch = steps != 1
        if "position" in rows.column_names:
            positions = np.asarray(self.batch.column("position").cast(pa.int64()).fill_null(-1))
            # In a damaged batch, numbers wrap from the highest to 0.
            new_batch = (steps & MAX_SEQUENCE != 1) | (np.diff(positions) != 0)
            cuts = np.flatnonzero(new_batch) + 1
        else:
            cuts = _every(np.flatnonzero(new_batch) + 1, rows.num_rows, context.options["batch_size"])
        self.cuts = np.concatenate(([0], cuts, [rows.num_rows])) if rows.num_rows else np.zeros(1, np.int64)

    @property
    def sizes(self) -> Int64s:
        entries = self.entries
        per_row = np.diff(entries.key_ends) + np.diff(entries.value_ends)
        return np.add.reduceat(per_row, self.cuts[:-1]) + BATCH_HEADER if self.count else per_row

    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        cuts, entries = self.cuts[first : last + 1], self.entries
        a, b = int(cuts[0]), int(cuts[-1])
        size = int(entries.key_ends[b] - entries.key_ends[a] + entries.value_ends[b] - entries.value_ends[a])
        out = np.empty(room_for(b - a, len(cuts) - 1, size), np.uint8)
        stops = np.zeros(len(cuts), np.int64)
        counts = np.diff(cuts)
        pack(
            cuts,
            self.sequences[cuts[:-1]],
            entries.key_ends,
            entries.keys,
            entries.value_ends,
            entries.values,
            self.kinds,
            counts,
            out,
            stops,
        )
        return out, stops

    def says(self, payload: bytes, record: int) -> bool:
        operations = Operations.of(Payloads.one(payload))
        a, b = (0, 0) if record < 0 else (int(self.cuts[record]), int(self.cuts[record + 1]))
        count = b - a
        # Of a malformed batch in several physical records some operations have no rows.
        malformed = bool(operations.measured[0, layout.STATUS] != layout.SOUND)
        if operations.rows < count or (operations.rows > count and not malformed):
            return False
        entries = self.entries
        keys = operations.keys[: int(operations.key_ends[count])].tobytes()
        values = operations.values[: int(operations.value_ends[count])].tobytes()
        return (
            np.array_equal(operations.kinds[:count], self.kinds[a:b])
            and np.array_equal(operations.sequences[:count], self.sequences[a:b])
            and np.array_equal(
                np.diff(operations.key_ends[: count + 1]), np.diff(entries.key_ends[a : b + 1])
            )
            and np.array_equal(
                np.diff(operations.value_ends[: count + 1]), np.diff(entries.value_ends[a : b + 1])
            )
            and keys == entries.keys[int(entries.key_ends[a]) : int(entries.key_ends[b])].tobytes()
            and values == entries.values[int(entries.value_ends[a]) : int(entries.value_ends[b])].tobytes()
        )


def _every(cuts: Int64s, rows: int, most: int) -> Int64s:
    """Add cuts such that at most `most` rows are between two of them."""
    edges = np.concatenate(([0], cuts, [rows]))
    counts = np.diff(edges)
    pieces = -(-counts // most)
    inside = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts: Int64s = np.repeat(edges[:-1], pieces) + inside * most
    return starts[1:]


CODEC = LevelDBLog(layout.WRITE_BATCH, options=used_by(ENCODES, BATCH_SIZE))
