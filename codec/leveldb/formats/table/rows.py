"""Read the rows and the frames of a table: decompress and unpack blocks in bounded portions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import batch_of, constant, contents, from_offsets, numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kernels import snappy_blocks as snappy
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.leveldb.formats.table import layout
from logwright.codec.leveldb.formats.table.compression import (
    ANOTHER_PROGRAM,
    HEAD_SIZE,
    compression_of,
    expand,
    expand_all,
)
from logwright.codec.leveldb.formats.table.entries import Entries
from logwright.codec.leveldb.formats.table.index import DATA, KIND_NAMES, NAME
from logwright.codec.leveldb.formats.table.layout import entries, measure, measure_some, unpack_rows
from logwright.codec.leveldb.formats.table.restarts import PointFault, hiding_fault
from logwright.codec.leveldb.formats.table.tables import TableContext
from logwright.codec.leveldb.keys import DELETION, TYPE_NAMES, VALUE
from logwright.codec.table import Table
from logwright.codec.window import Bytes, Decoded, Frames, Window

PORTION = 32 << 20
"""Bytes of keys and values read at a time, or one block if it is larger."""
DEFAULT_INTERVAL = 16
_MANY = 16
"""Number of blocks from which the kernel decompresses them together. Fewer are left to the library, which is already compiled."""

_TYPES = contents(pa.string(), [name.encode() for name in TYPE_NAMES])
_KINDS = contents(pa.string(), [name.encode() for name in KIND_NAMES])
_SYSTEM = "LevelDB's iterators skip the rest of the block and end with the status Corruption: "


@dataclass(slots=True)
class Plain:
    """An uncompressed and measured block, or the error."""

    data: Bytes
    measures: Int64s
    error: str = ""

    @property
    def interval(self) -> int:
        """Return the number of entries per restart point. For a single point, return the default if that would give a single one too."""
        return int(self.measures[layout.INTERVAL]) or max(
            DEFAULT_INTERVAL, int(self.measures[layout.ENTRIES])
        )


def plain(contents: Bytes, kind: int, limit: int) -> Plain:
    """Read a block from its stored contents and its type."""
    measures = np.zeros(layout.MEASURES, np.int64)
    try:
        data = expand(contents, kind, limit)
    except CompressionError as error:
        return Plain(contents[:0], measures, str(error))
    measure(data, 0, len(data), limit, measures)
    return Plain(data, measures, layout.MESSAGES[int(measures[layout.STATUS])])


@dataclass(slots=True)
class Unpacked(Entries):
    """Entries of some blocks."""

    per_block: Int64s
    skipped: Int64s
    """Number of skipped entries, whose internal key is invalid."""

    @classmethod
    def of(cls, block: Plain) -> Unpacked:
        """Unpack one block."""
        return cls.many(block.data, np.zeros(1, np.int64), block.measures)

    @classmethod
    def many(cls, buf: Bytes, starts: Int64s, measures: Int64s) -> Unpacked:
        """Unpack the measured blocks that start at `starts` in `buf`."""
        table = measures.reshape(-1, layout.MEASURES)
        sizes = table[:, [layout.ENTRIES, layout.KEY_BYTES, layout.VALUE_BYTES]].sum(axis=0).tolist()
        columns = Columns.many(buf, starts, measures, *sizes)
        return cls(
            columns.rows, columns.keys, columns.key_ends.astype(np.int64), columns.sequences << 8 | columns.kinds, columns.values,
            columns.value_ends.astype(np.int64), columns.per_block, columns.skipped,
        )  # fmt: skip


@dataclass(slots=True)
class Columns:
    """Entries as columns of rows. `ends` are Arrow's offsets, `deletions` is the number of deletions."""

    rows: int
    deletions: int
    keys: Bytes
    key_ends: Int32s
    values: Bytes
    value_ends: Int32s
    sequences: Int64s
    kinds: Bytes
    per_block: Int64s
    skipped: Int64s

    @classmethod
    def many(
        cls, buf: Bytes, starts: Int64s, measures: Int64s, count: int, key_bytes: int, value_bytes: int
    ) -> Columns:
        """Unpack the measured blocks that start at `starts` in `buf`: `count` entries."""
        blocks = len(starts)
        keys, values = np.empty(key_bytes + layout.KEY_TRAILER, np.uint8), np.empty(value_bytes, np.uint8)
        key_ends, value_ends = np.empty(count + 1, np.int32), np.empty(count + 1, np.int32)
        sequences, kinds = np.empty(count, np.int64), np.empty(count, np.uint8)
        per_block, skipped = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
        rows, deletions = unpack_rows(
            buf, starts, measures, keys, key_ends, values, value_ends, sequences, kinds, per_block, skipped
        )
        key_ends, value_ends = key_ends[: rows + 1], value_ends[: rows + 1]
        sequences, kinds = sequences[:rows], kinds[:rows]
        return cls(rows, deletions, keys, key_ends, values, value_ends, sequences, kinds, per_block, skipped)


def decode(
    window: Window, frames: Frames, table: Table, columns: Sequence[str], context: TableContext
) -> Iterator[Decoded]:
    """Decode the rows of the data blocks among these. See `Codec.decode`."""
    kinds = frames.header["kind"]
    count = len(kinds) - int(np.count_nonzero(kinds))
    # Unless the file is damaged, data blocks come first: a slice copies nothing.
    frames = frames.pick(kinds == DATA if kinds[:count].any() else slice(count))
    limit = context.options["max.decompressed.bytes"]
    at = 0
    while at < len(frames):
        buf, starts, ends, errors = plain_blocks(window, frames, at, limit)
        measures = np.empty(len(starts) * layout.MEASURES, np.int64)
        # Keys with long shared prefixes can take more memory than the blocks.
        count, entries, *sizes, wrong = measure_some(buf, starts, ends, limit, PORTION, measures)
        unpacked = Columns.many(buf, starts[:count], measures, entries, *sizes)
        part = frames.pick(slice(at, at + count))
        arrays = [_column(name, window, part, unpacked, context) for name in columns]
        batch = batch_of(arrays, table.schema(columns), unpacked.rows)
        sound = not wrong and unpacked.rows == entries
        yield Decoded(
            batch, [] if sound else _faults(window, part, buf, (starts, ends), measures, errors, unpacked)
        )
        at += count


def plain_blocks(
    window: Window, frames: Frames, at: int, limit: int
) -> tuple[Bytes, Int64s, Int64s, dict[int, str]]:
    """Decompress some blocks from `at` on. Returns where each starts and ends, and the errors of blocks that cannot be decompressed,
    which are empty."""
    types = np.ascontiguousarray(frames.header["type"][at:])
    start, end = np.ascontiguousarray(frames.start[at:]), frames.end[at:] - layout.TRAILER_SIZE
    if not types.any():
        return window.data, start, end, {}
    if len(types) >= _MANY and (types <= layout.SNAPPY).all():
        decompressed = _all_snappy(window.data, start, end, types, limit)
        if decompressed is not None:
            return *decompressed, {}
    pieces: list[Bytes] = []
    bounds = [0]
    errors: dict[int, str] = {}
    while len(pieces) < len(types) and bounds[-1] < PORTION:
        i = len(pieces)
        try:
            piece = expand(window.data[int(start[i]) : int(end[i])], int(types[i]), limit)
        except CompressionError as error:
            errors[i] = str(error)
            piece = window.data[:0]
        pieces.append(piece)
        bounds.append(bounds[-1] + len(piece))
    edges = np.array(bounds, np.int64)
    return np.concatenate(pieces), edges[:-1], edges[1:], errors


def _all_snappy(
    buf: Bytes, start: Int64s, end: Int64s, types: Bytes, limit: int
) -> tuple[Bytes, Int64s, Int64s] | None:
    """Decompress blocks of type Snappy or none. Returns None if one of them is damaged."""
    sizes = np.empty(len(start), np.int64)
    snappy.lengths(buf, start, end, limit, sizes)
    sizes = np.where(types == layout.SNAPPY, sizes, end - start)
    if (sizes < 0).any():
        return None
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    count = max(1, int(np.searchsorted(bounds[1:], PORTION, "right")))
    bounds = bounds[: count + 1]
    out, good = np.empty(int(bounds[-1]), np.uint8), np.empty(len(bounds) - 1, np.uint8)
    expand_all(buf, start, end, types, out, bounds, good)
    return (out, bounds[:-1], bounds[1:]) if good.all() else None


def _faults(
    window: Window,
    frames: Frames,
    buf: Bytes,
    edges: tuple[Int64s, Int64s],
    measures: Int64s,
    errors: dict[int, str],
    unpacked: Columns,
) -> list[tuple[int, Fault]]:
    faults: list[tuple[int, Fault]] = []
    measured = measures.reshape(-1, layout.MEASURES)
    before = np.cumsum(unpacked.per_block)
    starts, ends = edges
    wrong = (measured[: len(frames), layout.STATUS] != 0) | (unpacked.skipped > 0)
    hidden: dict[int, PointFault] = {}
    for i in np.flatnonzero(measured[: len(frames), layout.STATUS] == 0).tolist():
        fault_of_points = hiding_fault(buf[int(starts[i]) : int(ends[i])])
        if fault_of_points is not None:
            hidden[i], wrong[i] = fault_of_points, True

    def note(i: int, kind: Kind, text: str, severity: Severity, system: str, lost: int | None = None) -> None:
        at, length = window.offset + int(frames.start[i]), int(frames.end[i] - frames.start[i])
        faults.append((int(before[i]), Fault(NAME, at, length, kind, text, severity, system, lost)))

    for i in np.flatnonzero(wrong).tolist():
        message = layout.MESSAGES[int(measured[i, layout.STATUS])]
        if message:
            place = int(measured[i, layout.STOPPED] - starts[i])
            text = errors.get(i, f"{message}: at byte {place} of the uncompressed block")
            stored = window.data[int(frames.start[i]) : int(frames.end[i]) - layout.TRAILER_SIZE]
            unsupported = compression_of(stored, int(frames.header["type"][i])) is None
            kind, severity = (
                (Kind.UNSUPPORTED, Severity.WARNING) if unsupported else (Kind.PAYLOAD, Severity.ERROR)
            )
            note(i, kind, text, severity, _SYSTEM + text.partition(":")[0])
        if i in hidden:
            note(i, Kind.PAYLOAD, hidden[i].text, hidden[i].severity, hidden[i].system)
        if unpacked.skipped[i]:
            lost = int(unpacked.skipped[i])
            text = (
                f"corrupted internal key: {lost} of {int(measured[i, layout.ENTRIES])} entries of the block"
            )
            system = "LevelDB's iterators skip them: corrupted internal key in DBIter"
            kind, severity = Kind.PAYLOAD, Severity.ERROR
            size = int(measured[i, layout.KEY_BYTES] + measured[i, layout.VALUE_BYTES])
            unknown = unknown_types(buf[int(starts[i]) : int(ends[i])], size)
            if unknown:
                kind, severity = Kind.UNSUPPORTED, Severity.WARNING
                text += f"; types {', '.join(map(str, unknown))}: {ANOTHER_PROGRAM}"
            note(i, kind, text, severity, system, lost)
    return faults


def unknown_types(block: Bytes, size: int) -> list[int]:
    """Return the unknown types of entries. The block's keys and values take `size` bytes."""
    keys, _, _ = entries(block, size)
    kinds = {key[-layout.KEY_TRAILER] for key in keys if len(key) >= layout.KEY_TRAILER}
    return sorted(kind for kind in kinds if kind > layout.MAX_TYPE)


def _column(name: str, window: Window, frames: Frames, unpacked: Columns, context: TableContext) -> pa.Array:
    if name == "key":
        return from_offsets(unpacked.key_ends, unpacked.keys)
    if name == "value":
        return from_offsets(
            unpacked.value_ends, unpacked.values, unpacked.kinds == DELETION if unpacked.deletions else None
        )
    if name == "sequence":
        return numbers(pa.int64(), unpacked.sequences)
    if name == "type":
        if unpacked.deletions in (0, unpacked.rows):
            return constant(pa.string(), TYPE_NAMES[DELETION if unpacked.deletions else VALUE], unpacked.rows)
        return _TYPES.take(numbers(pa.int64(), unpacked.kinds.astype(np.int64)))
    if name == "position":
        return numbers(pa.int64(), np.repeat(window.offset + frames.start, unpacked.per_block))
    return constant(pa.int64() if name == "file" else pa.int32(), getattr(context, name), unpacked.rows)


# Frames


def decode_frames(
    window: Window, frames: Frames, table: Table, columns: Sequence[str], context: TableContext
) -> Iterator[Decoded]:
    """Decode frames, one row per block. See `Codec.decode`."""
    schema = table.schema(columns)
    needs_details = bool(
        {"entries", "uncompressed_size", "restart_interval", "payload"}.intersection(columns)
    )
    for part in frames.portions(PORTION if needs_details else 1 << 62):
        details = _BlockDetails(window, part, context) if needs_details else None
        arrays = [
            _frame_column(name, schema.field(name).type, window, part, details, context) for name in columns
        ]
        yield Decoded(batch_of(arrays, schema, len(part)))


class _BlockDetails:
    """What only the contents of blocks reveal."""

    def __init__(self, window: Window, frames: Frames, context: TableContext) -> None:
        count = len(frames)
        limit = context.options["max.decompressed.bytes"]
        self.entries, self.sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.intervals = np.zeros(count, np.int64)
        self.known = np.zeros(count, np.bool_)
        self.payload: list[bytes | None] = []
        for i in range(count):
            stored = window.data[int(frames.start[i]) : int(frames.end[i]) - layout.TRAILER_SIZE]
            kind, type_ = int(frames.header["kind"][i]), int(frames.header["type"][i])
            block = plain(stored, type_, limit)
            self.sizes[i] = len(block.data)
            self.known[i] = KIND_NAMES[kind] != "filter" and not block.error
            self.entries[i], self.intervals[i] = block.measures[layout.ENTRIES], block.interval
            canonical = kind == DATA and type_ == layout.NONE and self.known[i] and _is_canonical(block)
            self.payload.append(None if canonical else stored.tobytes())


def _is_canonical(block: Plain) -> bool:
    """Return whether a writer would write exactly this data block from its rows."""
    entries = Unpacked.of(block)
    if entries.skipped[0] or entries.rows == 0 or _has_value_of_deletion(entries):
        return False
    return bool(np.array_equal(entries.packed(block.interval), block.data))


def _has_value_of_deletion(unpacked: Unpacked) -> bool:
    """Return whether a deletion has a value, which its row does not keep."""
    return bool(((unpacked.trailers & 0xFF == 0) & (np.diff(unpacked.value_ends) > 0)).any())


def _frame_column(
    name: str,
    kind: pa.DataType,
    window: Window,
    frames: Frames,
    details: _BlockDetails | None,
    context: TableContext,
) -> pa.Array:
    head = frames.header
    if name == "position":
        return numbers(kind, window.offset + frames.start)
    if name == "size":
        return numbers(kind, head[name].astype(np.int64))
    if name == "crc":
        stored = sum(window.data[frames.end - 4 + i].astype(np.int64) << 8 * i for i in range(4))
        return numbers(kind, np.asarray(stored))
    if name == "kind":
        return _KINDS.take(numbers(pa.int64(), head["kind"].astype(np.int64)))
    if name == "compression":
        return contents(
            kind, [name_of_compression.encode() for name_of_compression in compressions(window, frames)]
        )
    if name == "index_key":
        keys = context.blocks.keys if context.blocks is not None else []
        return contents(kind, [keys[n] if n >= 0 else None for n in head["entry"].tolist()])
    if name == "raw":
        return pa.nulls(len(frames), kind)
    assert details is not None
    if name == "payload":
        return contents(kind, details.payload)
    values = {
        "entries": details.entries,
        "uncompressed_size": details.sizes,
        "restart_interval": details.intervals,
    }[name]
    return numbers(kind, values, ~details.known)


def compressions(window: Window, frames: Frames) -> list[str]:
    """Return the compression of each block; "unknown 7" for an unknown type."""
    starts, ends = frames.start.tolist(), (frames.end - layout.TRAILER_SIZE).tolist()
    kinds = frames.header["type"].tolist()
    names = []
    for start, end, kind in zip(starts, ends, kinds, strict=True):
        head = window.data[start : min(start + HEAD_SIZE, end)]
        names.append(compression_of(head, kind) or f"unknown {kind}")
    return names
