"""Write a table from its rows and its frames.

Filter, metaindex, index and footer are copied as long as every block before them is at its old position. Otherwise they are rebuilt from
the data blocks, with the old index keys where these still separate the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import one_batch
from logwright.codec.engine.reencode import Reencoder, Stored, integers, match_rows, need, stored
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.table.compression import stored as compressed
from logwright.codec.leveldb.formats.table.entries import Entries
from logwright.codec.leveldb.formats.table.filter import (
    META_PREFIX,
    POLICY,
    FilterBuilder,
    bits_per_key_of,
    hash_keys,
)
from logwright.codec.leveldb.formats.table.index import NAME
from logwright.codec.leveldb.formats.table.layout import COMPRESSION_NAMES, NONE, TYPES, entries, pack_entries
from logwright.codec.leveldb.formats.table.rows import Unpacked, plain
from logwright.codec.leveldb.formats.table.tables import TableContext
from logwright.codec.leveldb.formats.table.write import (
    Closing,
    TableSettings,
    footer,
    metaindex_block,
    prepare,
)
from logwright.codec.leveldb.keys import order, separator, successor
from logwright.codec.single_frame import ending_bytes, single_value
from logwright.codec.window import Chunk

DEFAULT_BITS = 10


@dataclass(slots=True)
class _Data:
    """A written data block: its handle, its first and last key, its old index key, the hashes of its keys, and its old position."""

    place: bytes
    first: bytes
    last: bytes
    index_key: bytes | None
    hashes: Int64s
    position: int
    end: int


class _Reencoder(Reencoder):
    """The blocks of a table. A record is the rows of a data block."""

    def __init__(self, rows: pa.Table, frames: pa.Table, context: TableContext) -> None:
        need(NAME, frames, "kind")
        self.rows, self.context = rows, context
        columns = [name for name in frames.column_names if name not in ("raw", "payload")]
        self.frames: list[dict[str, Any]] = frames.select(columns).to_pylist()
        self._prepared = -1, prepare(one_batch(rows.slice(0, 0)), 0)
        is_data = np.array([kind == "data" for kind in frames["kind"].to_pylist()], np.bool_)
        self.bounds = _bounds(rows, frames, is_data)
        count = frames.num_rows
        owner = np.where(is_data, np.arange(count), -1)
        raw, payload = stored(frames, "raw"), stored(frames, "payload")
        super().__init__(Stored(owner, raw, payload, np.zeros(count, np.bool_)))
        self.settings = TableSettings.of(context.options)
        self.closing = Closing(self.settings)
        self.intact = True
        """Whether all bytes so far are unchanged."""
        self.data: list[_Data] = []
        self.filter: bytes | None = None
        self.metaindex: bytes | None = None
        self.index: bytes | None = None

    @property
    def limit(self) -> int:
        return int(self.context.options["max.decompressed.bytes"])

    def _entries(self, frame: int) -> Entries:
        """Return the rows of a data block."""
        if self._prepared[0] != frame:
            start, stop = int(self.bounds[frame]), int(self.bounds[frame + 1])
            self._prepared = frame, prepare(one_batch(self.rows.slice(start, stop - start)), start)
        return self._prepared[1]

    def _compression(self, frame: int) -> str:
        name: str = self.frames[frame].get("compression") or self.settings.compression
        return name

    def block(self, contents: Any, kind: int, frame: int) -> tuple[bytes, bytes]:
        self.closing.size = self.at
        data, place = self.closing.block(contents, kind)
        row = self.frames[frame]
        if (row.get("position"), row.get("crc")) != (self.at, int.from_bytes(data[-4:], "little")):
            self.intact = False
        return data, place

    def says(self, payload: bytes, record: int, frame: int) -> bool:
        contents = plain(np.frombuffer(payload, np.uint8), _number(self._compression(frame)), self.limit)
        return _same(Unpacked.of(contents), self._entries(frame))

    def wrap(self, payload: bytes, frame: int) -> bytes:
        return self._data_block(payload, _number(self._compression(frame)), frame)

    def records(self, first: int, last: int, frame: int) -> Iterator[Chunk]:
        entries = self._entries(frame)
        if not entries.rows:
            self.intact = False
            return
        name = self._compression(frame)
        if name not in COMPRESSION_NAMES:
            raise UsageError(f"unknown compression {name!r}; expected one of {', '.join(COMPRESSION_NAMES)}")
        interval = self.frames[frame].get("restart_interval") or self.settings.block_restart_interval
        raw = entries.packed(int(interval))
        kind, contents = compressed(raw, name, self.settings.zstd_compression_level)
        yield self._data_block(contents, kind, frame)

    def _data_block(self, contents: Any, kind: int, frame: int) -> bytes:
        entries = self._entries(frame)
        data, place = self.block(contents, kind, frame)
        if entries.rows:
            hashes = np.empty(entries.rows, np.int64)
            hash_keys(entries.keys, entries.key_ends, 0, entries.rows, hashes)
            ends = entries.key(0), entries.key(entries.rows - 1)
            key = self.frames[frame].get("index_key")
            self.data.append(_Data(place, *ends, key, hashes, self.at, self.closing.size))
        return data

    # After the data blocks

    def other(self, frame: int) -> Chunk | None:
        row, payload = self.frames[frame], self.table.payload[frame]
        kind = row["kind"]
        if kind == "data":
            return None
        if kind is None:
            return b""
        type_ = _number(row.get("compression") or "none")
        if self.intact and payload is not None and row.get("position") == self.at:
            data, place = self.block(payload, type_, frame)
        else:
            self.intact = False
            contents = {"filter": self._filter, "metaindex": self._metaindex, "index": self._index}[kind](
                payload
            )
            if kind == "filter":
                data, place = self.block(contents, NONE, frame)
            else:
                self.closing.size = self.at
                data, place = self.closing.compressed(contents)
        setattr(self, kind, place)
        return data

    def _filter(self, payload: bytes | None) -> bytes:
        bits = self.settings.bloom_bits_per_key
        if not bits and payload is not None and self.data:
            block, first = np.frombuffer(payload, np.uint8), self.data[0]
            bits = bits_per_key_of(block, first.position, len(first.hashes))
        builder = FilterBuilder(bits or DEFAULT_BITS)
        for data in self.data:
            builder.add(data.hashes, data.end)
        return builder.finish()

    def _metaindex(self, payload: bytes | None) -> bytes:
        policy = POLICY
        if payload is not None:
            prefix = META_PREFIX.encode()
            keys, _, _ = entries(np.frombuffer(payload, np.uint8), self.limit)
            names = [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]
            policy = names[0].decode("utf-8", "replace") if names else policy
        return metaindex_block(self.filter, self.settings.block_restart_interval, policy)

    def _index(self, payload: bytes | None) -> bytes:
        pairs = []
        for i, block in enumerate(self.data):
            following = self.data[i + 1].first if i + 1 < len(self.data) else None
            pairs.append((_index_key(block, following), block.place))
        return pack_entries(pairs, 1)

    def end(self, file: pa.Table | None) -> bytes:
        """Return the footer, or what is at the end instead."""
        rebuilt = None
        if self.metaindex is not None and self.index is not None:
            rebuilt = footer(self.metaindex, self.index)
        if single_value(file, "trailing") is not None and (self.intact or rebuilt is None):
            return b"".join(map(bytes, ending_bytes(file)))
        return rebuilt or b""


def encode(rows: pa.Table, frames: pa.Table, file: pa.Table | None, context: TableContext) -> Iterator[Chunk]:
    """Write a table. See `Codec.encode`."""
    reencoder = _Reencoder(rows, frames, context)
    yield from reencoder.write()
    yield reencoder.end(file)


def _bounds(rows: pa.Table, frames: pa.Table, is_data: Bools) -> Int64s:
    """Return the rows of each data block: those with its position, or without that column, as many as it had."""
    if "position" in rows.column_names and "position" in frames.column_names:
        return match_rows(NAME, rows, integers(frames, "position"), is_data)
    counts = np.maximum(integers(frames, "entries"), 0) if "entries" in frames.column_names else 0
    bounds = np.concatenate(([0], np.cumsum(np.where(is_data, counts, 0))))
    if bounds[-1] != rows.num_rows:
        raise UsageError(
            f"the blocks of the frames table have {plural.count(bounds[-1], 'entry')}, but there are {rows.num_rows} rows"
        )
    return bounds


def _number(name: str) -> int:
    """Return the type byte of a compression by its name, also of an unknown one."""
    if name in TYPES:
        return TYPES[name]
    word, _, number = name.partition(" ")
    return int(number) & 0xFF if word == "unknown" and number.isdigit() else NONE


def _same(block: Unpacked, rows: Entries) -> bool:
    """Return whether a stored block and rows are the same entries. A row has no value for a deletion, whatever is stored."""
    if block.rows != rows.rows or not np.array_equal(block.trailers, rows.trailers):
        return False
    if not np.array_equal(np.diff(block.key_ends), np.diff(rows.key_ends)):
        return False
    a, b = int(rows.key_ends[0]), int(rows.key_ends[-1])
    if not np.array_equal(block.keys[: b - a], rows.keys[a:b]):
        return False
    for i in np.flatnonzero(block.trailers & 0xFF).tolist():
        mine = block.values[int(block.value_ends[i]) : int(block.value_ends[i + 1])]
        if mine.tobytes() != rows.values[int(rows.value_ends[i]) : int(rows.value_ends[i + 1])].tobytes():
            return False
    return True


def _index_key(block: _Data, following: bytes | None) -> bytes:
    """Return the old index key, if it still separates the blocks, or if they are not in bytewise order."""
    kept = block.index_key
    if kept is not None and len(kept) >= 8:
        bytewise = order(block.first) <= order(block.last) and (
            following is None or order(block.last) < order(following)
        )
        fits = order(block.last) <= order(kept) and (following is None or order(kept) < order(following))
        if fits or not bytewise:
            return kept
    return successor(block.last) if following is None else separator(block.last, following)
