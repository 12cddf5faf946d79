"""Writing a table again from its rows and its frames: as it was where the rows are as they were, anew where not.

A stored block is used again only if it says what the rows say. Filter, metaindex, index and footer are used again as long as every
block before lies where it lay; else they are made anew, with the keys that the index had where these still separate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.table.filter import (
    META_PREFIX,
    POLICY,
    FilterBuilder,
    bits_per_key_of,
    hash_keys,
)
from logwright.codec.leveldb.formats.table.index import NAME
from logwright.codec.leveldb.formats.table.layout import (
    COMPRESSION_NAMES,
    NONE,
    TYPES,
    entries,
    pack,
    pack_entries,
    stored,
)
from logwright.codec.leveldb.formats.table.rows import Unpacked, plain
from logwright.codec.leveldb.formats.table.tables import TableContext
from logwright.codec.leveldb.formats.table.write import (
    Closing,
    Entries,
    Int64s,
    TableSettings,
    footer,
    metaindex_block,
    prepare,
)
from logwright.codec.leveldb.keys import order, separator, successor
from logwright.codec.window import Bytes, Chunk

DEFAULT_BITS = 10


@dataclass(slots=True)
class _Data:
    """A data block as it was written: its handle, its first and last key, the key that the index had for it, its keys' hashes, and
    where it lay."""

    place: bytes
    first: bytes
    last: bytes
    index_key: bytes | None
    hashes: Int64s
    position: int
    end: int


@dataclass
class _Again:
    context: TableContext
    settings: TableSettings
    closing: Closing
    intact: bool = True
    """Whether all bytes so far are as they were."""
    data: list[_Data] = field(default_factory=list)
    filter: bytes | None = None
    metaindex: bytes | None = None
    index: bytes | None = None

    @property
    def limit(self) -> int:
        return int(self.context.options["max.decompressed.bytes"])

    def block(self, contents: Any, kind: int, frame: dict[str, Any]) -> tuple[bytes, bytes]:
        here = self.closing.size
        data, place = self.closing.block(contents, kind)
        if (frame.get("position"), frame.get("crc")) != (here, int.from_bytes(data[-4:], "little")):
            self.intact = False
        return data, place

    def rows(self, rows: pa.Table, frame: dict[str, Any], first_row: int) -> bytes:
        """A data block."""
        batch = _batch(rows)
        made = prepare(batch, first_row)
        name = frame.get("compression") or self.settings.compression
        contents, kind = self._kept(made, frame.get("payload"), name), _number(name)
        if contents is None:
            interval = frame.get("restart_interval") or self.settings.block_restart_interval
            if not made.rows:
                self.intact = False
                return b""
            raw = _packed(made, int(interval))
            if name not in COMPRESSION_NAMES:
                raise UsageError(f"compression {name!r} is none of {', '.join(COMPRESSION_NAMES)}")
            kind, contents = stored(raw, name, self.settings.zstd_compression_level)
        position = self.closing.size
        data, place = self.block(contents, kind, frame)
        if made.rows:
            hashes = np.empty(made.rows, np.int64)
            hash_keys(made.keys, made.key_ends, 0, made.rows, hashes)
            ends = made.key(0), made.key(made.rows - 1)
            self.data.append(_Data(place, *ends, frame.get("index_key"), hashes, position, self.closing.size))
        return data

    def _kept(self, made: Entries, payload: bytes | None, name: str) -> bytes | None:
        """The stored block, if it says what the rows say."""
        if payload is None:
            return None
        one = plain(np.frombuffer(payload, np.uint8), _number(name), self.limit)
        return payload if _same(Unpacked.of(one), made) else None

    # What comes behind the data blocks

    def other(self, frame: dict[str, Any]) -> bytes:
        kind, payload = frame["kind"], frame.get("payload")
        type_ = _number(frame.get("compression") or "none")
        if self.intact and payload is not None and frame.get("position") == self.closing.size:
            data, place = self.block(payload, type_, frame)
        else:
            self.intact = False
            contents = {"filter": self._filter, "metaindex": self._metaindex, "index": self._index}[kind](
                payload
            )
            if kind == "filter":
                data, place = self.block(contents, NONE, frame)
            else:
                data, place = self.closing.compressed(contents)
        setattr(self, kind, place)
        return data

    def _filter(self, payload: bytes | None) -> bytes:
        bits = self.settings.bloom_bits_per_key
        if not bits and payload is not None and self.data:
            block, first = np.frombuffer(payload, np.uint8), self.data[0]
            bits = bits_per_key_of(block, first.position, len(first.hashes))
        builder = FilterBuilder(bits or DEFAULT_BITS)
        for one in self.data:
            builder.add(one.hashes, one.end)
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
        for i, one in enumerate(self.data):
            following = self.data[i + 1].first if i + 1 < len(self.data) else None
            pairs.append((_index_key(one, following), one.place))
        return pack_entries(pairs, 1)

    def end(self, file: pa.Table | None) -> bytes:
        """The footer, or what is at the end instead."""
        trailing = None
        if file is not None and file.num_rows and "trailing" in file.column_names:
            trailing = file.column("trailing")[0].as_py()
            if "trailing_zeros" in file.column_names:
                trailing += bytes(file.column("trailing_zeros")[0].as_py() or 0)
        made = None
        if self.metaindex is not None and self.index is not None:
            made = footer(self.metaindex, self.index)
        if trailing is not None and (self.intact or made is None):
            return bytes(trailing)
        return made or b""


def encode(rows: pa.Table, frames: pa.Table, file: pa.Table | None, context: TableContext) -> Iterator[Chunk]:
    """The bytes of a table. See `Codec.encode`."""
    settings = TableSettings.of(context.options)
    again = _Again(context, settings, Closing(settings))
    places = _places(rows, frames)
    for i in range(frames.num_rows):
        frame = {name: frames.column(name)[i].as_py() for name in frames.column_names}
        if frame.get("raw") is not None:
            again.closing.size += len(frame["raw"])
            yield frame["raw"]
        elif frame.get("kind") == "data":
            start, stop = places[i]
            yield again.rows(rows.slice(start, stop - start), frame, start)
        elif frame.get("kind") is not None:
            yield again.other(frame)
    yield again.end(file)


def _places(rows: pa.Table, frames: pa.Table) -> dict[int, tuple[int, int]]:
    """The rows of each data block: those with its position, or, without that column, as many as it had."""
    if "kind" not in frames.column_names:
        raise UsageError(f"{NAME} needs a column 'kind' in the frames table")
    data = [i for i, kind in enumerate(frames.column("kind").to_pylist()) if kind == "data"]
    found: dict[int, tuple[int, int]] = {}
    if "position" in rows.column_names and "position" in frames.column_names:
        positions = np.asarray(rows.column("position").fill_null(-1), np.int64)
        cuts = np.concatenate(([0], np.flatnonzero(np.diff(positions)) + 1, [len(positions)]))
        runs = {int(positions[a]): (int(a), int(b)) for a, b in itertools.pairwise(cuts) if a < b}
        at = 0
        for i in data:
            start, stop = runs.pop(frames.column("position")[i].as_py(), (at, at))
            if start != at:
                break
            found[i], at = (start, stop), stop
        if at != rows.num_rows or len(found) < len(data):
            raise UsageError(
                f"row {at} is not in a block of the frames table, or not in their order",
                advice="Leave the frames table out to write other rows",
            )
        return found
    counts = frames.column("entries").to_pylist() if "entries" in frames.column_names else []
    at = 0
    for i in data:
        count = counts[i] if counts and counts[i] is not None else 0
        found[i] = (at, at + count)
        at += count
    if at != rows.num_rows:
        raise UsageError(
            f"the blocks of the frames table have {at} entries, and {rows.num_rows} rows are given"
        )
    return found


def _batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _number(name: str) -> int:
    """The type byte of a compression by its name, also of an unknown one."""
    if name in TYPES:
        return TYPES[name]
    word, _, number = name.partition(" ")
    return int(number) & 0xFF if word == "unknown" and number.isdigit() else NONE


def _packed(made: Entries, interval: int) -> Bytes:
    out, restarts = np.empty(made.room(0, made.rows), np.uint8), np.empty(made.rows + 1, np.int64)
    _, end = pack(
        0,
        made.rows,
        made.key_ends,
        made.keys,
        made.trailers,
        made.value_ends,
        made.values,
        interval,
        0,
        out,
        0,
        restarts,
        made.scratch(),
    )
    return out[:end]


def _same(one: Unpacked, other: Entries) -> bool:
    """Whether a stored block and rows are the same entries. A deletion has no value in a row, whatever is stored."""
    if one.rows != other.rows or not np.array_equal(one.trailers, other.trailers):
        return False
    if not np.array_equal(np.diff(one.key_ends), np.diff(other.key_ends)):
        return False
    a, b = int(other.key_ends[0]), int(other.key_ends[-1])
    if not np.array_equal(one.keys[: b - a], other.keys[a:b]):
        return False
    for i in np.flatnonzero(one.trailers & 0xFF).tolist():
        mine = one.values[int(one.value_ends[i]) : int(one.value_ends[i + 1])]
        if mine.tobytes() != other.values[int(other.value_ends[i]) : int(other.value_ends[i + 1])].tobytes():
            return False
    return True


def _index_key(one: _Data, following: bytes | None) -> bytes:
    """The key that the index had, where it separates the blocks still, or where their order is not that of bytes."""
    kept = one.index_key
    if kept is not None and len(kept) >= 8:
        bytewise = order(one.first) <= order(one.last) and (
            following is None or order(one.last) < order(following)
        )
        fits = order(one.last) <= order(kept) and (following is None or order(kept) < order(following))
        if fits or not bytewise:
            return kept
    return successor(one.last) if following is None else separator(one.last, following)
