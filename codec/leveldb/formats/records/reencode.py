"""Write a log or a manifest: from rows alone as LevelDB's writer would, or with the frames table exactly as it was.

A record that keeps its position is split into the same physical records as before, any other as LevelDB splits it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import joined
from logwright.codec.engine.reencode import Reencoder, Stored, absent, integers, match, need, stored
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.records.codec import Physical
from logwright.codec.leveldb.formats.records.layout import HEADER, TYPE_NAMES, fragmented, put_record, written
from logwright.codec.single_frame import ending_bytes
from logwright.codec.window import Bytes, Chunk, Frames, Window, portions_of

PORTION = 8 << 20
"""Bytes of payloads written at a time, or one payload if it is larger."""


class Records(ABC):
    """Rows as logical records: record `i` is the rows `cuts[i]` to `cuts[i + 1]`."""

    rows: pa.Table
    cuts: Int64s

    @property
    def count(self) -> int:
        return len(self.cuts) - 1

    @property
    @abstractmethod
    def sizes(self) -> Int64s:
        """The approximate size of each record in bytes."""

    @abstractmethod
    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        """Return the payloads of records `first` to `last`: `data[stops[i] : stops[i + 1]]`."""

    @abstractmethod
    def says(self, payload: bytes, record: int) -> bool:
        """Return whether a stored payload equals the rows of a record; without a record (-1), whether it holds no rows."""

    def portions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of records of bounded size."""
        for at, stop in portions_of(self.sizes[first:last], PORTION):
            yield first + at, first + stop


class PlainRecords(Records):
    """Rows of the records table, each of which is a payload."""

    def __init__(self, rows: pa.Table, codec: str) -> None:
        self.rows = rows
        column = rows.column("payload")
        if column.null_count or not (
            pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        ):
            raise UsageError(f"{codec}: column 'payload' has nulls or is not binary")
        self.column = column.cast(pa.large_binary()).combine_chunks()
        self.cuts = np.arange(rows.num_rows + 1)

    @property
    def sizes(self) -> Int64s:
        return np.asarray([len(value) for value in self.column.to_pylist()], np.int64)

    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        return joined(self.column.slice(first, last - first).to_pylist())

    def says(self, payload: bytes, record: int) -> bool:
        return record >= 0 and bool(self.column[record].as_py() == payload)


def encode(codec: str, records: Records, frames: pa.Table | None, file: pa.Table | None) -> Iterator[Chunk]:
    """Write a file."""
    if frames is None:
        at = 0
        for start, stop in records.portions(0, records.count):
            data = written(*records.payloads(start, stop), at)
            at += len(data)
            yield data
    else:
        yield from _Reencoder(records, _Groups.of(codec, records, frames)).write()
    yield from ending_bytes(file)


@dataclass(slots=True)
class _Groups:
    """The frames table: its logical records and damaged ranges, in order. Group `i` is its rows `cuts[i]` to `cuts[i + 1]`."""

    cuts: Int64s
    record: Int64s
    """The record of each group, or -1."""
    usual: Bools
    """Whether nothing but the rows of a group is stored."""
    position: Int64s
    size: Int64s
    length: Int64s
    type: Int64s
    payload: list[Any]
    padding: list[Any]
    raw: list[Any]

    @classmethod
    def of(cls, codec: str, records: Records, frames: pa.Table) -> _Groups:
        """Group the frames table. Raises `UsageError` for rows that are in no frame."""
        need(codec, frames, "length", "position", "record", "size", "type")
        count = frames.num_rows
        owner = integers(frames, "record")
        raw, payload, padding = (stored(frames, name) for name in ("raw", "payload", "padding"))
        is_raw = ~absent(raw)
        boundary = is_raw[1:] | is_raw[:-1] | (owner[1:] != owner[:-1])
        cuts = (
            np.concatenate(([0], np.flatnonzero(boundary) + 1, [count])) if count else np.zeros(1, np.int64)
        )
        types = {name: number for number, name in enumerate(TYPE_NAMES)}
        kinds = [types.get(type_name, -1) for type_name in frames.column("type").to_pylist()]
        whose = match(codec, records.rows, records.cuts, owner[cuts[:-1]], ~is_raw[cuts[:-1]])
        bare = absent(payload) & absent(padding)
        usual = (whose >= 0) & np.logical_and.reduceat(bare, cuts[:-1]) if count else whose >= 0
        return cls(
            cuts,
            whose,
            usual,
            integers(frames, "position"),
            integers(frames, "size"),
            integers(frames, "length"),
            np.array(kinds, np.int64),
            payload,
            padding,
            raw,
        )

    def whole_payload(self, group: int) -> bytes | None:
        """Return the stored payload of a group, or None if a part of it is not stored."""
        parts = self.payload[int(self.cuts[group]) : int(self.cuts[group + 1])]
        return b"".join(parts) if all(part is not None for part in parts) else None


class _Reencoder(Reencoder):
    """Writes the logical records of a file. The position of a record decides how it is split into physical ones."""

    def __init__(self, input_records: Records, groups: _Groups) -> None:
        self.input_records, self.groups = input_records, groups
        firsts = groups.cuts[:-1].tolist()
        raw = [groups.raw[row] for row in firsts]
        payload = [groups.whole_payload(group) for group in range(len(firsts))]
        super().__init__(Stored(groups.record, raw, payload, groups.usual))

    def records(self, first: int, last: int, frame: int) -> Iterator[Chunk]:
        if not self.groups.usual[frame]:
            data, stops = self.input_records.payloads(first, last)
            yield self.wrap(data[int(stops[0]) : int(stops[1])].tobytes(), frame)
            return
        groups = self.groups
        for start, stop in self.input_records.portions(first, last):
            payloads, stops = self.input_records.payloads(start, stop)
            data = written(payloads, stops, self.at)
            group = frame + start - first
            rows = slice(int(groups.cuts[group]), int(groups.cuts[group + stop - start]))
            if self._same(data, rows):
                yield data
                # Padding of the block, which LevelDB writes with the next record.
                end = int(groups.position[rows][-1] + groups.size[rows][-1])
                yield bytes(max(end - self.at, 0))
                continue
            for i in range(stop - start):
                yield self.wrap(payloads[int(stops[i]) : int(stops[i + 1])].tobytes(), group + i)

    def _same(self, data: Bytes, rows: slice) -> bool:
        """Return whether the written bytes have the same physical records as the frames table."""
        window = Window(data, self.at, self.at + len(data))
        frame = Frames(np.zeros(1, np.int64), np.array([len(data)]), np.empty(1), len(data))
        records = Physical.of(window, frame)
        return (
            np.array_equal(records.start + self.at, self.groups.position[rows])
            and np.array_equal(records.length, self.groups.length[rows])
            and np.array_equal(records.type, self.groups.type[rows])
        )

    def wrap(self, payload: bytes, frame: int) -> Chunk:
        groups = self.groups
        rows = range(int(groups.cuts[frame]), int(groups.cuts[frame + 1]))
        lengths = groups.length[rows.start : rows.stop]
        kinds = groups.type[rows.start : rows.stop]
        as_it_was = (
            self.at == groups.position[rows[0]] and int(lengths.sum()) == len(payload) and (kinds > 0).all()
        )
        return _cut(payload, groups, rows) if as_it_was else fragmented(payload, self.at)

    def says(self, payload: bytes, record: int, frame: int) -> bool:
        return self.input_records.says(payload, record)


def _cut(payload: bytes, groups: _Groups, rows: range) -> bytes:
    """Split a payload into the physical records of a group."""
    data = np.frombuffer(payload, np.uint8)
    out = bytearray()
    at = 0
    for row in rows:
        size, length = int(groups.size[row]), int(groups.length[row])
        filled = size if 0 <= size - HEADER - length < HEADER else HEADER + length
        record = np.zeros(filled, np.uint8)
        put_record(data, at, length, int(groups.type[row]), record, 0)
        padding = groups.padding[row]
        if padding is not None and len(padding) == len(record) - HEADER - length:
            record[HEADER + length :] = np.frombuffer(padding, np.uint8)
        out += record.tobytes()
        at += length
    return bytes(out)
