"""Writing a log or a manifest: from rows alone as LevelDB's writer would, with the frames as it was.

A stored payload is used again only if it says what the rows say, and a stored way of cutting records into physical ones only where
the record lies where it lay; all else is written as LevelDB writes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.records.codec import Physical
from logwright.codec.leveldb.formats.records.layout import (
    HEADER,
    TYPE_NAMES,
    Int64s,
    fragmented,
    put_record,
    room_for,
    write_records,
)
from logwright.codec.whole import kept
from logwright.codec.window import Bytes, Chunk, Frames, Window

PORTION = 8 << 20
"""So many bytes of payloads are written at a time, or one if that is larger."""


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
        """About how many bytes each takes."""

    @abstractmethod
    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        """Those of records `first` to `last`: `data[stops[i] : stops[i + 1]]`."""

    @abstractmethod
    def says(self, payload: bytes, record: int) -> bool:
        """Whether a stored payload says what the rows of a record say."""

    def portions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Records in runs of bounded size."""
        ends = np.cumsum(self.sizes[first:last])
        at = first
        while at < last:
            below = int(ends[at - first - 1]) if at > first else 0
            stop = max(at + 1, first + int(np.searchsorted(ends, below + PORTION, "right")))
            yield at, stop
            at = stop


class PlainRecords(Records):
    """Rows of the records table: each is a payload."""

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
        return np.asarray([len(one) for one in self.column.to_pylist()], np.int64)

    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        values = self.column.slice(first, last - first).to_pylist()
        stops = np.cumsum([0, *(len(one) for one in values)])
        return np.frombuffer(b"".join(values), np.uint8), stops

    def says(self, payload: bytes, record: int) -> bool:
        return bool(self.column[record].as_py() == payload)


def encode(codec: str, records: Records, frames: pa.Table | None, file: pa.Table | None) -> Iterator[Chunk]:
    """The bytes of a file."""
    writer = _Writer()
    if frames is None:
        yield from writer.plain(records, 0, records.count)
    else:
        yield from writer.again(records, _Groups.of(codec, records, frames))
    yield kept(file, "trailing") or b""
    yield bytes(kept(file, "trailing_zeros") or 0)


@dataclass(slots=True)
class _Groups:
    """The frames table: its logical records and damaged stretches, in order. Group `i` is its rows `cuts[i]` to `cuts[i + 1]`."""

    cuts: Int64s
    record: Int64s
    """Which of the given records each group is; -1 for none."""
    usual: npt.NDArray[np.bool_]
    """Nothing but its rows is stored of it."""
    position: Int64s
    size: Int64s
    length: Int64s
    type: Int64s
    payload: list[Any]
    padding: list[Any]
    raw: list[Any]

    @classmethod
    def of(cls, codec: str, records: Records, frames: pa.Table) -> _Groups:
        """Raises `UsageError` for rows that are in no frame."""
        missing = {"position", "size", "length", "type", "record"} - set(frames.column_names)
        if missing:
            raise UsageError(f"{codec} needs a column {sorted(missing)[0]!r} in the frames table")
        count = frames.num_rows
        owner = _numbers(frames, "record")
        nothing: list[Any] = [None] * count
        raw = frames.column("raw").to_pylist() if "raw" in frames.column_names else nothing
        is_raw = np.array([one is not None for one in raw], np.bool_)
        apart = is_raw[1:] | is_raw[:-1] | (owner[1:] != owner[:-1])
        cuts = np.concatenate(([0], np.flatnonzero(apart) + 1, [count])) if count else np.zeros(1, np.int64)
        types = {name: number for number, name in enumerate(TYPE_NAMES)}
        kinds = [types.get(one, -1) for one in frames.column("type").to_pylist()]
        whose = _owners(codec, records, owner[cuts[:-1]], is_raw[cuts[:-1]])
        stored = np.zeros(count, np.int64)
        for name in {"payload", "padding"} & set(frames.column_names):
            stored += np.asarray(frames.column(name).is_valid(), np.int64)
        usual = (whose >= 0) & (np.add.reduceat(stored, cuts[:-1]) == 0) if count else whose >= 0
        return cls(
            cuts,
            whose,
            usual,
            _numbers(frames, "position"),
            _numbers(frames, "size"),
            _numbers(frames, "length"),
            np.array(kinds, np.int64),
            frames.column("payload").to_pylist() if "payload" in frames.column_names else nothing,
            frames.column("padding").to_pylist() if "padding" in frames.column_names else nothing,
            raw,
        )

    def runs(self) -> list[int]:
        """Where runs of groups end that are usual, and whose records follow one another, or that are not usual."""
        apart = (self.usual[1:] != self.usual[:-1]) | (self.usual[1:] & (np.diff(self.record) != 1))
        return [*(np.flatnonzero(apart) + 1).tolist(), *([len(self.usual)] if len(self.usual) else [])]


def _numbers(table: pa.Table, name: str) -> Int64s:
    """A column of integers; -1 for null."""
    return np.asarray(table.column(name).cast(pa.int64()).fill_null(-1), np.int64)


def _owners(codec: str, records: Records, positions: Int64s, is_raw: npt.NDArray[np.bool_]) -> Int64s:
    """The record of each group, by position. Raises `UsageError` where rows have no place."""
    whose = np.full(len(positions), -1, np.int64)
    if not records.count:
        return whose
    if "position" not in records.rows.column_names:
        raise UsageError(
            f"{codec}: rows don't say which frame they are in",
            advice="Give the detail column 'position', or leave the frames out",
        )
    given = _numbers(records.rows, "position")[records.cuts[:-1]]
    groups = np.flatnonzero(~is_raw)
    order = groups[np.argsort(positions[groups], kind="stable")]
    at = np.searchsorted(positions[order], given)
    found = at < len(order)
    group = order[np.where(found, at, 0)] if len(order) else np.full(len(given), -1)
    found &= positions[group] == given if len(order) else False
    found[1:] &= group[1:] > group[:-1]
    if not found.all():
        raise UsageError(
            f"{codec}: row {int(records.cuts[np.argmin(found)])} is in no frame of the frames table, or not in their order",
            advice="Rows that are new have no place in old frames: encode them without the frames table",
        )
    whose[group] = np.arange(len(given))
    return whose


class _Writer:
    """What is written so far, by its size: where the next record comes to lie decides how it is cut."""

    def __init__(self) -> None:
        self.at = 0

    def plain(self, records: Records, first: int, last: int) -> Iterator[Chunk]:
        """Records as LevelDB writes them."""
        for start, stop in records.portions(first, last):
            data = self._written(*records.payloads(start, stop))
            self.at += len(data)
            yield data

    def _written(self, payloads: Bytes, stops: Int64s) -> Bytes:
        out = np.empty(room_for(int(stops[-1] - stops[0]), len(stops) - 1), np.uint8)
        return out[: int(write_records(payloads, stops, self.at, out))]

    def again(self, records: Records, groups: _Groups) -> Iterator[Chunk]:
        i = 0
        for stop in groups.runs():
            if groups.usual[i]:
                first, last = int(groups.record[i]), int(groups.record[stop - 1]) + 1
                done = i
                for a, b in records.portions(first, last):
                    data = self._written(*records.payloads(a, b))
                    upto = done + b - a
                    rows = slice(int(groups.cuts[done]), int(groups.cuts[upto]))
                    if not self._same(data, groups, rows):
                        for group in range(done, upto):
                            yield self._group(records, groups, group)
                    else:
                        self.at += len(data)
                        yield data
                        yield self._fill(int(groups.position[rows][-1] + groups.size[rows][-1]))
                    done = upto
            else:
                for group in range(i, stop):
                    yield self._group(records, groups, group)
            i = stop

    def _same(self, data: Bytes, groups: _Groups, rows: slice) -> bool:
        """Whether what was written lies, cut as it is, just where the frames table has it."""
        position, length, kinds = groups.position[rows], groups.length[rows], groups.type[rows]
        window = Window(data, self.at, self.at + len(data))
        whole = Frames(np.zeros(1, np.int64), np.array([len(data)]), np.empty(1), len(data))
        made = Physical.of(window, whole)
        return (
            np.array_equal(made.start + self.at, position)
            and np.array_equal(made.length, length)
            and np.array_equal(made.type, kinds)
        )

    def _fill(self, end: int) -> bytes:
        """The zeros that fill a block, which LevelDB writes with the next record."""
        missing = max(end - self.at, 0)
        self.at += missing
        return bytes(missing)

    def _group(self, records: Records, groups: _Groups, i: int) -> bytes:
        """One record, or a damaged stretch."""
        rows = range(int(groups.cuts[i]), int(groups.cuts[i + 1]))
        raw = groups.raw[rows[0]]
        if raw is not None:
            self.at += len(raw)
            return bytes(raw)
        payload = self._payload(records, groups, i, rows)
        if payload is None:
            return b""
        lengths = groups.length[rows.start : rows.stop]
        kinds = groups.type[rows.start : rows.stop]
        as_it_was = (
            self.at == groups.position[rows[0]] and int(lengths.sum()) == len(payload) and (kinds > 0).all()
        )
        data = _cut(payload, groups, rows) if as_it_was else fragmented(payload, self.at)
        self.at += len(data)
        return data

    def _payload(self, records: Records, groups: _Groups, i: int, rows: range) -> bytes | None:
        """The payload of a record; None where its rows are gone."""
        record = int(groups.record[i])
        parts = [groups.payload[row] for row in rows]
        stored = b"".join(parts) if all(part is not None for part in parts) else None
        if record < 0:
            return stored if stored is not None and records.says(stored, -1) else None
        if stored is not None and records.says(stored, record):
            return stored
        data, stops = records.payloads(record, record + 1)
        return data[int(stops[0]) : int(stops[1])].tobytes()


def _cut(payload: bytes, groups: _Groups, rows: range) -> bytes:
    """A payload in the physical records of a group."""
    data = np.frombuffer(payload, np.uint8)
    out = bytearray()
    at = 0
    for row in rows:
        size, length = int(groups.size[row]), int(groups.length[row])
        filled = size if 0 <= size - HEADER - length < HEADER else HEADER + length
        one = np.zeros(filled, np.uint8)
        put_record(data, at, length, int(groups.type[row]), one, 0)
        padding = groups.padding[row]
        if padding is not None and len(padding) == len(one) - HEADER - length:
            one[HEADER + length :] = np.frombuffer(padding, np.uint8)
        out += one.tobytes()
        at += length
    return bytes(out)
