"""Write the batches of a file: each with the header of its row in the frames table, and the records of its rows.

Frames come in portions of bounded memory. The kernel writes all records of a portion in one call, in its own form. A stored payload
replaces them if it has the same content.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int64s, stretches
from logwright.codec.columns import one_batch
from logwright.codec.engine.reencode import (
    absent,
    frames_of,
    integer_column,
    integers,
    need,
    stored,
    unplaced,
)
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.internal.view import stored_rows
from logwright.codec.kafka.formats.log import arrow_input, message_write, pack, records
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import (
    CODEC_NAMES,
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL,
    DELETE_HORIZON,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.rows import Read
from logwright.codec.kafka.formats.log.sections import Sections, expand, sections
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.formats.log.tables import NAME, NOTHING_SERVED, LogContext
from logwright.codec.kafka.formats.log.write import BatchEncoder, assemble, put_heads
from logwright.codec.kafka.formats.payload import encoded, formats_of
from logwright.codec.kernels.compress import CompressionError, compress
from logwright.codec.single_frame import ending_bytes
from logwright.codec.window import Chunk, Frames, Window

_PORTION = 1 << 17
"""The number of frames, or of records, that are written at a time."""


def encode(
    rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: LogContext
) -> Iterator[Chunk]:
    """Return the bytes of a segment. See `Codec.encode`."""
    if frames is None:
        encoder = BatchEncoder(BatchSettings.of(context.options), context.base_offset or 0)
        for batch in rows.to_batches():
            data = encoder.add(batch).data
            if len(data):
                yield data
        data = encoder.flush().data
        if len(data):
            yield data
    else:
        formats = formats_of(context.options)
        batches = [encoded(formats, stored_rows(batch), 0) for batch in rows.to_batches()]
        yield from reencode(pa.Table.from_batches(batches) if batches else rows, frames, context)
    yield from ending_bytes(file)


def reencode(rows: pa.Table, frames: pa.Table, context: LogContext) -> Iterator[Chunk]:
    """Return the bytes of a file from its rows and frames. Raises `UsageError` for rows that fit no frame."""
    frames = frames.combine_chunks()
    bounds, rows = _match(rows, frames)
    writer = _Writer(rows, context)
    count = frames.num_rows
    at = 0
    while at < count:
        stop = int(np.searchsorted(bounds, bounds[at] + _PORTION, "right")) - 1
        stop = min(count, max(at + 1, stop), at + _PORTION)
        old = _is_old(frames.slice(at, stop - at))
        for first, last in stretches(old):
            write = writer.write_messages if old[first] else writer.write
            yield from write(frames.slice(at + first, last - first), bounds[at + first : at + last + 1])
        at = stop


def _is_old(frames: pa.Table) -> Bools:
    """Return which frames are messages of magic 0 or 1. Raises `UsageError` for another magic."""
    magics = _numbers(frames, "magic")
    if magics is None:
        return np.zeros(frames.num_rows, np.bool_)
    wrong = ~magics[1] & ((magics[0] < 0) | (magics[0] > MAGIC))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UsageError(f"frame {at}: magic is {int(magics[0][at])}, expected 0, 1 or {MAGIC}")
    return ~magics[1] & (magics[0] < MAGIC)


def _numbers(table: pa.Table, name: str) -> tuple[Int64s, Bools] | None:
    """Return a column as integers, and where it is null; None if it is absent."""
    if name not in table.column_names:
        return None
    column = integer_column(table, name)
    return np.asarray(column.fill_null(0)), np.asarray(column.is_null())


def _match(rows: pa.Table, frames: pa.Table) -> tuple[Int64s, pa.Table]:
    """Return the rows in the order of their frames, and the bounds of each frame: rows `bounds[i]` to `bounds[i + 1]`."""
    need(NAME, frames, "base_offset")
    base = _numbers(frames, "base_offset")
    assert base is not None
    # Damaged stretches have no rows.
    holds = ~base[1]
    placed = "position" in rows.column_names and "position" in frames.column_names
    if rows.num_rows and not placed and "offset" in rows.column_names:
        places = np.flatnonzero(holds)
        at = np.searchsorted(base[0][places], integers(rows, "offset"), "right") - 1
        frame = np.where(at >= 0, places[at], -1) if len(places) else np.full(rows.num_rows, -1)
    else:
        need(NAME, frames, *(["position"] if rows.num_rows else []))
        positions = integers(frames, "position") if rows.num_rows else base[0]
        frame = frames_of(NAME, rows, positions, holds)
    if (frame < 0).any():
        raise unplaced(NAME, int(np.argmax(frame < 0)))
    if (np.diff(frame) < 0).any():
        order = np.argsort(frame, kind="stable")
        rows, frame = rows.take(pa.array(order)), frame[order]
    return np.searchsorted(frame, np.arange(frames.num_rows + 1)), rows


@dataclass(slots=True)
class _Frames:
    """A portion of the frames table, with its rows."""

    head: npt.NDArray[Any]
    payload: list[Any]
    raw: list[Any]
    stored: Int64s
    """The compression of the payloads."""
    table: pa.RecordBatch
    bounds: Int64s
    """Frame i has rows `bounds[i]` to `bounds[i + 1]` of `table`."""

    def pick(self, at: int, stop: int) -> _Frames:
        """Return some of the frames. Their headers are views."""
        lists = self.payload[at:stop], self.raw[at:stop], self.stored[at:stop]
        return _Frames(self.head[at:stop], *lists, self.table, self.bounds[at : stop + 1])

    @property
    def rows(self) -> pa.RecordBatch:
        first, last = int(self.bounds[0]), int(self.bounds[-1])
        return self.table.slice(first, last - first)

    @property
    def counts(self) -> Int64s:
        """The number of rows of each frame."""
        return np.diff(self.bounds)


class _Writer:
    def __init__(self, rows: pa.Table, context: LogContext) -> None:
        self.rows, self.limit = rows, context.options["max.decompressed.bytes"]
        self.levels = {
            name: context.options[f"compression.{name}.level"]
            if context.options.given(f"compression.{name}.level")
            else None
            for name in ("gzip", "lz4", "zstd")
        }
        self.served = NOTHING_SERVED

    def write(self, table: pa.Table, bounds: Int64s) -> Iterator[Chunk]:
        frames = self._read(table, bounds)
        prepared = self._prepare(frames, frames.head["base_offset"].astype(np.int64))
        plain, starts, ends = _plain(prepared, frames)
        served = np.maximum.accumulate(np.concatenate(([self.served], prepared.offsets)))
        self.served = int(served[-1])
        counts = frames.counts
        plain_only = (
            not (frames.head["attributes"] & COMPRESSION).any() and (frames.head["magic"] == MAGIC).all()
        )
        if plain_only and all(value is None for value in (*frames.payload, *frames.raw)):
            frames.head["records_count"] = counts
            frames.head["batch_length"] = ends - starts - LENGTH_END
            put_heads(plain, starts, ends, frames.head.view(np.uint8))
            yield plain
            return
        sections: list[Any] = []
        for i in range(len(counts)):
            if frames.raw[i] is not None or frames.head["magic"][i] == 0:
                sections.append(None)
                continue
            section = plain[int(starts[i]) + HEAD_SIZE : int(ends[i])]
            codec = int(frames.head["attributes"][i]) & COMPRESSION
            payload = frames.payload[i]
            if payload is not None and codec == int(frames.stored[i]):
                before = int(served[int(frames.bounds[i])])
                kept, section = self._payload(payload, codec, section, frames.pick(i, i + 1), before)
                if kept:
                    sections.append(payload)
                    continue
            frames.head["records_count"][i] = counts[i]
            sections.append(self._compress(codec, section))
        yield from _emit(frames, sections)

    def write_messages(self, table: pa.Table, bounds: Int64s) -> Iterator[Chunk]:
        """Write the frames of magic 0 and 1."""
        magics = integers(table, "magic")
        frames = self._read(table, bounds)
        plain = frames.head["attributes"] & COMPRESSION == 0
        usual = plain & (frames.counts == 1) & absent(frames.payload) & absent(frames.raw)
        edges = np.flatnonzero((np.diff(magics) != 0) | np.diff(usual) | ~usual[1:]) + 1
        for at, stop in itertools.pairwise([0, *edges.tolist(), len(magics)]):
            magic, part = int(magics[at]), frames.pick(at, stop)
            if frames.raw[at] is not None:
                yield frames.raw[at]
            elif usual[at]:
                attributes = part.head["attributes"].astype(np.uint8)
                yield _written(self._messages(part), magic, attributes)[0]
            else:
                yield from self._message(part, magic)

    def _read(self, table: pa.Table, bounds: Int64s) -> _Frames:
        """Return a portion of the frames table, whose rows have these bounds in the table of all rows."""
        first, last = int(bounds[0]), int(bounds[-1])
        return _read_frames(table, one_batch(self.rows.slice(first, last - first)), bounds - first)

    def _messages(self, frames: _Frames, before: pack.Rows | None = None) -> pack.Rows:
        """Return the rows of messages in the form of the kernel."""
        base = frames.head["base_offset"].astype(np.int64)
        if "offset" in frames.table.schema.names:
            base += frames.head["last_offset_delta"]
        prepared = self._prepare(frames, base, before)
        self.served = max(self.served, int(prepared.offsets.max(initial=self.served)))
        return prepared

    def _message(self, frames: _Frames, magic: int) -> Iterator[bytes]:
        """Write a wrapper, the messages of one that is no longer compressed, or a message whose stored key and value are kept."""
        head, payload, count = frames.head[0], frames.payload[0], int(frames.counts[0])
        attributes, codec = int(head["attributes"]) & 0xFF, int(head["attributes"]) & COMPRESSION
        offset = int(head["base_offset"]) + int(head["last_offset_delta"])
        before, stored_entry = None, b""
        if payload is not None and codec == int(frames.stored[0]):
            stored_entry = message_write.entry(magic, attributes, offset, int(head["max_timestamp"]), payload)
            before = self._stored_rows(stored_entry)
            if (before is None or before.count == 0) and not count:
                yield stored_entry
                return
        if not count:
            return
        same = before is not None and before.count == count
        prepared = self._messages(frames, before if same else None)
        # Only messages of magic 1 have timestamps, also in a wrapper of magic 0.
        inner = 1 if (codec or count > 1) and (prepared.times != -1).any() else magic
        data, starts = _written(prepared, inner, np.zeros(count, np.uint8))
        if same and before is not None:
            was, _ = _written(before, inner, np.zeros(count, np.uint8))
            if bytes(was) == bytes(data) and bool((before.times == prepared.times).all()):
                yield stored_entry
                return
        append = bool(attributes & TIMESTAMP_TYPE)
        time = int(frames.head["max_timestamp"][0]) if append else int(prepared.times.max())
        if not codec:
            yield _written(prepared, inner, np.full(count, attributes, np.uint8))[0].tobytes()
            return
        name = COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else ""
        yield message_write.wrapped(
            data,
            starts,
            magic,
            attributes,
            last=offset if same else None,
            time=time,
            level=self.levels.get(name),
        )

    def _stored_rows(self, stored_entry: bytes) -> pack.Rows | None:
        """Return the rows of a message with its set; None if it cannot be read."""
        buf = np.frombuffer(stored_entry, np.uint8)
        window, start, end = Window(buf, 0, len(buf)), np.zeros(1, np.int64), np.array([len(buf)])
        frame = Frames(start, end, heads_at(buf, start), len(buf))
        for part in sections(window, frame, self.limit):
            read = Read(part, frame.header, records.WANT_ALL, served=self.served)
            if not part.faults and not read.bad.any():
                return _rows_of(read, frame.header)
        return None

    def _prepare(self, frames: _Frames, base: Int64s, before: pack.Rows | None = None) -> pack.Rows:
        """Return the rows of frames with these base offsets in the form of the kernel. Columns that they do not have are those of
        `before`, or else follow from the headers, whose time is set from the rows of batches with append time."""
        rows, head, counts = frames.rows, frames.head, frames.counts
        offsets = _offsets(rows, base, counts)
        if before is None:
            kinds = (head["attributes"].astype(np.int64) & TIMESTAMP_TYPE != 0).astype(np.uint8)
            spread = np.repeat(head["base_timestamp"].astype(np.int64), counts)
            kind = np.repeat(kinds, counts)
            top = np.repeat(head["max_timestamp"].astype(np.int64), counts)
            before = pack.Rows(
                rows.num_rows,
                arrow_input.NOTHING,
                arrow_input.NOTHING,
                arrow_input.NO_HEADERS,
                np.where(kind == 1, top, spread),
                spread,
                kind,
                offsets,
                np.empty(0, np.int8),
            )
        names = [name for name in rows.schema.names if name != "timestampType"]
        prepared = pack.prepare(rows.select(names), offsets, 0, 0, before)
        if prepared.kinds.any() and {"timestamp", "timestamp_ms"} & set(names):
            _append_times(prepared, head, counts)
        return prepared

    def _payload(
        self, payload: bytes, codec: int, section: Bytes, frame: _Frames, served: int
    ) -> tuple[bool, Bytes]:
        """Return whether a payload has the same content as the rows of its frame, and the section to write if not."""
        stored = np.frombuffer(payload, np.uint8)
        count = int(frame.counts[0])
        try:
            plain = np.asarray(expand(codec, stored, self.limit)) if codec else stored
        except CompressionError:
            return count == 0, section
        if (
            len(plain) == len(section)
            and int(frame.head["records_count"][0]) == count
            and bool((plain == section).all())
        ):
            return True, section
        edges = np.array([0]), np.array([len(plain)])
        read = Read(Sections(slice(0, 1), plain, *edges), frame.head, records.WANT_ALL, served=served)
        if read.rows != count:
            return False, section
        if not count:
            return True, section
        # Columns that the rows do not have keep their old values.
        before = _rows_of(read, frame.head)
        now = self._prepare(frame, frame.head["base_offset"].astype(np.int64), before)
        was, new = (_plain(rows, frame)[0][HEAD_SIZE:] for rows in (before, now))
        same_times = bool((before.times == now.times).all())
        return len(was) == len(new) and bool((was == new).all()) and same_times, new

    def _compress(self, codec: int, section: Bytes) -> Any:
        if not codec or (codec >= len(COMPRESSION_NAMES) and not len(section)):
            return section
        if codec >= len(COMPRESSION_NAMES):
            raise UsageError(f"compression {codec} is unknown, so its records cannot be written")
        name = COMPRESSION_NAMES[codec]
        return compress(name, section, level=self.levels.get(name))


def _offsets(rows: pa.RecordBatch, base: Int64s, counts: Int64s) -> Int64s:
    """Return the offsets of rows: consecutive within each frame without a column. Raises `UsageError`."""
    array = arrow_input.column(rows, "offset")
    if array is None:
        inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(base, counts) + inside
    if array.null_count:
        raise UsageError("column 'offset' has nulls")
    offsets = np.asarray(array.cast(pa.int64()))
    delta = offsets - np.repeat(base, counts)
    if len(delta) and (
        int(delta.max()) > arrow_input.MAX_INT32 or int(delta.min()) < -arrow_input.MAX_INT32 - 1
    ):
        row = int(np.argmax(np.abs(delta)))
        raise UsageError(
            f"offset {int(offsets[row])} is more than 2147483647 away from the base_offset of its frame"
        )
    return offsets


def _append_times(prepared: pack.Rows, head: npt.NDArray[Any], counts: Int64s) -> None:
    """Set the time of batches with append time from their rows. Raises `UsageError` if these differ."""
    ends = np.cumsum(counts)
    for i in np.flatnonzero(counts).tolist():
        if not head["attributes"][i] & TIMESTAMP_TYPE:
            continue
        times = prepared.times[int(ends[i] - counts[i]) : int(ends[i])]
        if (times != times[0]).any():
            raise UsageError(
                f"rows of the batch at offset {int(head['base_offset'][i])} have different timestamps",
                advice="With LogAppendTime all records of a batch have the same timestamp",
            )
        head["max_timestamp"][i] = times[0]


def _plain(prepared: pack.Rows, frames: _Frames) -> tuple[Bytes, Int64s, Int64s]:
    """Write the records of frames, with room for a header before those of each. Return the bytes, and where frames start and end."""
    cuts = frames.bounds[:-1] - frames.bounds[0]
    bases = (frames.head[name].astype(np.int64) for name in ("base_offset", "base_timestamp"))
    buffer, out = pack.room(prepared.most + HEAD_SIZE * len(cuts))
    starts = np.empty(len(cuts), np.int64)
    end = prepared.write(out, 0, pack.closed(), starts, cuts=(cuts, *bases))
    del buffer
    return out[:end], starts, np.append(starts[1:], end)


def _written(rows: pack.Rows, magic: int, attributes: Bytes) -> tuple[Bytes, Int64s]:
    """Return rows as uncompressed messages, and where each starts."""
    buffer, out = pack.room(message_write.most(rows))
    starts = np.empty(rows.count, np.int64)
    end = message_write.messages(rows, magic, attributes, out, 0, starts)
    del buffer
    return out[:end], starts


def _rows_of(read: Read, head: npt.NDArray[Any]) -> pack.Rows:
    """Convert records that were read into rows that can be written."""
    text, raw = read.headers()
    if raw is not None:
        text = arrow_input.with_raw(text, raw)
    kind = int(head["attributes"][0]) & TIMESTAMP_TYPE != 0
    return pack.Rows(
        read.rows,
        arrow_input.binary(read.key(), "key"),
        arrow_input.binary(read.value(), "value"),
        arrow_input.headers(text),
        np.asarray(read.timestamp_ms()),
        np.asarray(read.create_timestamp_ms()),
        np.full(read.rows, kind, np.uint8),
        np.asarray(read.offset()),
        np.asarray(read.attributes()),
    )


def _read_frames(table: pa.Table, rows: pa.RecordBatch, bounds: Int64s) -> _Frames:
    """Convert a portion of the frames table into headers. Absent columns get the values of a plain producer's batch."""
    count = table.num_rows
    head = np.zeros(count, HEAD)
    head["partition_leader_epoch"] = head["producer_id"] = head["producer_epoch"] = head["base_sequence"] = -1
    head["base_timestamp"] = head["max_timestamp"] = -1
    for name in (
        "base_offset",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "partition_leader_epoch",
        "records_count",
    ):
        _put(head, name, _numbers(table, name))
    _put(head, "last_offset_delta", _numbers(table, "last_offset_delta"))
    raw, payload = stored(table, "raw"), stored(table, "payload")
    last = _numbers(table, "last_offset")
    if last is not None:
        delta = last[0] - head["base_offset"].astype(np.int64)
        _put(head, "last_offset_delta", (delta, last[1] | ~absent(raw)))
    flags = _numbers(table, "attributes")
    attributes = np.zeros(count, np.int64) if flags is None else flags[0]
    codecs = attributes & COMPRESSION
    core = _core_attributes(table, attributes)
    # Other bits of those of a message have no meaning, but may be stored.
    old = _is_old(table)
    meant = (
        np.where(old & (integers(table, "magic") == 1), COMPRESSION | TIMESTAMP_TYPE, COMPRESSION)
        if old.any()
        else 0
    )
    attributes = np.where(old, core & meant | attributes & ~meant, core)
    if flags is None:
        codecs = attributes & COMPRESSION
    head["attributes"] = attributes
    base = _numbers(table, "base_offset")
    assert base is not None
    # A row with neither a base offset nor raw bytes stands for the tail of the file, which is in the file table.
    head["magic"] = np.where(base[1], 0, 2)
    return _Frames(head, payload, raw, codecs, rows, bounds)


def _put(head: npt.NDArray[Any], name: str, numbers: tuple[Int64s, Bools] | None) -> None:
    if numbers is None:
        return
    values, null = numbers
    info = np.iinfo(head.dtype[name])
    wrong = ~null & ((values < info.min) | (values > info.max))
    if wrong.any():
        raise UsageError(
            f"frame {int(np.argmax(wrong))}: {name} {int(values[np.argmax(wrong)])} does not fit its field"
        )
    head[name] = np.where(null, head[name].astype(np.int64), values)


def _core_attributes(table: pa.Table, attributes: Int64s) -> Int64s:
    """Return attributes with the bits of the core columns."""
    if "compression" in table.column_names:
        names = table.column("compression").to_pylist()
        known = {name: codec for codec, name in enumerate(CODEC_NAMES)}
        wrong = [name for name in names if name is not None and name not in known]
        if wrong:
            raise UsageError(
                f"compression {wrong[0]!r} is unknown, expected one of {', '.join(COMPRESSION_NAMES)}"
            )
        codecs = np.array([known.get(name, 0) for name in names], np.int64)
        attributes = attributes & ~COMPRESSION | codecs
    for name, bit in (
        ("timestamp_type", TIMESTAMP_TYPE),
        ("is_transactional", TRANSACTIONAL),
        ("is_control", CONTROL),
    ):
        stored_flag = _numbers(table, name)
        if stored_flag is not None:
            attributes = np.where(
                stored_flag[1], attributes, attributes & ~bit | np.where(stored_flag[0] > 0, bit, 0)
            )
    if "delete_horizon_ms" in table.column_names:
        has = np.asarray(table.column("delete_horizon_ms").is_valid())
        attributes = attributes & ~DELETE_HORIZON | np.where(has, DELETE_HORIZON, 0)
    return attributes


def _emit(frames: _Frames, sections: list[Any]) -> Iterator[Chunk]:
    """Assemble the batches, with the raw bytes between them."""
    at = 0
    while at < len(sections):
        stop = at
        while stop < len(sections) and sections[stop] is not None:
            stop += 1
        if stop > at:
            yield assemble(frames.head[at:stop], sections[at:stop]).data
        while stop < len(sections) and sections[stop] is None:
            if frames.raw[stop] is not None:
                yield frames.raw[stop]
            stop += 1
        at = stop
