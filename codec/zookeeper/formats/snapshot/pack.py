"""Write nodes: their stored columns, and the kernel that makes records of them.

Source: `DataTree.serializeNodeData`, `DataNode.serialize`, `DigestCalculator` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.columns import numbers
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import copy, load_i32le, prefetch, store_32be, store_32le, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes, portions_of
from logwright.codec.zookeeper.formats.snapshot import layout
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, LENGTH, STAT, STATS
from logwright.codec.zookeeper.jute import NULL, flat
from logwright.codec.zookeeper.state.digest import counts

_ONES = 0xFFFFFFFF
_BLOCK = 16
"""Bytes per step of a checksum."""
_PORTION = 1 << 20
"""Bytes of paths and data that are written at a time, or one node if it is larger. Small enough for the checksums to find them in the
cache."""

_NARROW = 1 << 31
"""Above this number of bytes, positions need 64 bits."""
_AHEAD, _LINE = 8, 64
"""Number of nodes by which memory is prefetched."""


@kernel(
    "const i8[], const u1[], const i4[], const u1[], const i8[], const u1[], const i8[], const i8[], const i8[], const i8[], const i8[], "
    "const i8[], const i8[], const i8[], const i8[], const i8[], u1[], i8[], u1[]"
)
def put_nodes(
    rows: Int64s,
    paths: Bytes,
    path_ends: Int32s,
    data: Bytes,
    data_ends: Int64s,
    valid: Bytes,
    acl: Int64s,
    czxid: Int64s,
    mzxid: Int64s,
    ctime: Int64s,
    mtime: Int64s,
    version: Int64s,
    cversion: Int64s,
    aversion: Int64s,
    owner: Int64s,
    pzxid: Int64s,
    out: Bytes,
    stops: Int64s,
    scratch: Bytes,
) -> int:
    """Write consecutive records: paths and data of `rows`, numbers of all. `valid` is 0 where the data is null, `stops` gets the end of
    each record. Return the sum of their digests; 0 without `scratch`, which has room for the longest record and a block."""
    at = 0
    total = 0
    for i in range(len(rows)):
        row = rows[i]
        if i + _AHEAD < len(rows) and rows[i + _AHEAD] != row + _AHEAD:
            soon = rows[i + _AHEAD]
            prefetch(paths, path_ends[soon])
            prefetch(data, data_ends[soon])
            prefetch(data, data_ends[soon] + _LINE)
            prefetch(data, data_ends[soon] + 2 * _LINE)
        size = path_ends[row + 1] - path_ends[row]
        at = store_32be(out, at, size)
        path = at
        copy(out, at, paths, path_ends[row], size)
        at += size
        length = 0
        if valid[row]:
            length = data_ends[row + 1] - data_ends[row]
            at = store_32be(out, at, length)
            copy(out, at, data, data_ends[row], length)
            at += length
        else:
            at = store_32be(out, at, NULL)
        at = store_64be(out, at, acl[i])
        store_64be(out, at + layout.CZXID_AT, czxid[i])
        store_64be(out, at + layout.MZXID_AT, mzxid[i])
        store_64be(out, at + layout.CTIME_AT, ctime[i])
        store_64be(out, at + layout.MTIME_AT, mtime[i])
        store_32be(out, at + layout.VERSION_AT, version[i])
        store_32be(out, at + layout.CVERSION_AT, cversion[i])
        store_32be(out, at + layout.AVERSION_AT, aversion[i])
        store_64be(out, at + layout.OWNER_AT, owner[i])
        store_64be(out, at + layout.PZXID_AT, pzxid[i])
        at += STAT
        stops[i] = at
        if len(scratch) and counts(out, path, path + size):
            # Path, data and stat side by side, pzxid before ctime, padded in front with zeros to whole blocks. With a register of 0
            # leading zeros have no effect, and a register of ones inverts the first four bytes.
            end = (size + length + STAT + _BLOCK - 1) & -_BLOCK
            start = end - (size + length + STAT)
            store_64be(scratch, 0, 0)
            store_64be(scratch, 8, 0)
            copy(scratch, start, paths, path_ends[row], size)
            if length:
                copy(scratch, start + size, data, data_ends[row], length)
            stat = end - STAT
            store_64be(scratch, stat + layout.CZXID_AT, czxid[i])
            store_64be(scratch, stat + layout.MZXID_AT, mzxid[i])
            store_64be(scratch, stat + layout.CTIME_AT, pzxid[i])
            store_64be(scratch, stat + layout.CTIME_AT + 8, ctime[i])
            store_64be(scratch, stat + layout.MTIME_AT + 8, mtime[i])
            store_32be(scratch, stat + layout.VERSION_AT + 8, version[i])
            store_32be(scratch, stat + layout.CVERSION_AT + 8, cversion[i])
            store_32be(scratch, stat + layout.AVERSION_AT + 8, aversion[i])
            store_64be(scratch, stat + layout.OWNER_AT + 8, owner[i])
            store_32le(scratch, start, load_i32le(scratch, start) ^ -1)
            total += crc32_raw(0, scratch, 0, end) ^ _ONES
    return total


class Piece(NamedTuple):
    """The bytes of some nodes, the start of each, the lengths of its path and data (-1 for null), and the sum of their digests, or 0 if
    not requested."""

    data: Bytes
    starts: Int64s
    paths: Int32s
    lengths: Int32s
    digest: int


Values: TypeAlias = Int64s | pa.Array | pa.ChunkedArray
"""Return a column of integers without nulls."""


def column_of(values: Values) -> pa.Array | pa.ChunkedArray:
    return numbers(pa.int64(), values) if isinstance(values, np.ndarray) else values


@dataclass
class Nodes:
    """Nodes as stored, in the order in which they are written."""

    columns: pa.Table
    """`path`, `data` (of either binary type), `acl` (the number of its list), and `STATS`."""
    order: Int64s | None = None
    """The selected rows of the columns; None for all in order."""

    @classmethod
    def of(
        cls, paths: pa.Array, data: pa.Array | pa.ChunkedArray, acls: Values, stats: dict[str, Values]
    ) -> Nodes:
        named: dict[str, Any] = {"path": paths, "data": data, "acl": acls} | {
            name: stats[name] for name in STATS
        }
        return cls(pa.table({name: column_of(part) for name, part in named.items()}))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def paths(self) -> pa.Array:
        paths = self.columns.column("path").combine_chunks()
        return paths if self.order is None else paths.take(numbers(pa.int64(), self.order))

    def number(self, name: str) -> Int64s:
        """Return a column of numbers."""
        numbers: Int64s = np.asarray(self.columns.column(name).cast(pa.int64()))
        return numbers if self.order is None else numbers[self.order]

    def unknown(self, name: str, mark: int) -> Bools | None:
        """Return where a column of numbers has a value; None if nowhere."""
        if self.columns.column(name).type != pa.int64():
            return None
        unknown: Bools = self.number(name) == mark
        return unknown if unknown.any() else None

    def with_number(self, name: str, values: Int64s) -> Nodes:
        """Return the nodes with a replaced column of numbers."""
        place = self.columns.schema.get_field_index(name)
        if self.order is not None:
            placed = np.empty_like(values)
            placed[self.order] = values
            values = placed
        return Nodes(self.columns.set_column(place, name, numbers(pa.int64(), values)), self.order)

    def and_more(self, other: Nodes) -> Nodes:
        """Return the nodes with those of another instance appended."""
        assert other.order is None
        kinds = {name: pa.int64() for name in ("acl", *STATS)}
        kinds |= {name: self.columns.schema.field(name).type for name in ("path", "data")}
        schema = pa.schema([(name, kinds[name]) for name in self.columns.column_names])
        joined = pa.concat_tables([nodes.columns.cast(schema) for nodes in (self, other)])
        if self.order is None:
            return Nodes(joined)
        return Nodes(joined, np.concatenate((self.order, np.arange(len(self), len(joined)))))

    def take(self, order: Int64s) -> Nodes:
        """Return all nodes in another order."""
        return Nodes(self.columns, order if self.order is None else self.order[order])

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]:
        """Yield the nodes `first` to `stop` in pieces."""
        if self.order is None:
            for batch in self.columns.slice(first, stop - first).to_batches():
                yield from _pieces(batch, None, digest)
            return
        columns = self.columns
        place = columns.schema.get_field_index("data")
        if columns.nbytes > _NARROW:
            columns = columns.set_column(place, "data", columns.column("data").cast(pa.large_binary()))
        for batch in columns.combine_chunks().to_batches():
            yield from _pieces(batch, self.order[first:stop], digest)

    def known_digest(self) -> int | None:
        return None

    def digest(self) -> int:
        """The digest of all nodes, as a server computes it for its tree."""
        return sum(chunk.digest for chunk in self.chunks(0, len(self), digest=True))


def _pieces(batch: pa.RecordBatch, chosen: Int64s | None, digest: bool) -> Iterator[Piece]:
    """Yield those rows, or all in order, in pieces."""
    rows = np.arange(batch.num_rows) if chosen is None else chosen
    figures = [np.asarray(batch.column(name)) for name in ("acl", *STATS)]
    paths, path_ends, _ = flat(batch.column("path"))
    data, data_ends, valid = flat(batch.column("data"))
    path_ends = np.ascontiguousarray(path_ends)
    data_ends = data_ends.astype(np.int64)
    path_sizes, data_sizes = np.diff(path_ends), np.diff(data_ends)
    if chosen is not None:
        path_sizes, data_sizes = path_sizes[chosen], data_sizes[chosen]
    sizes = path_sizes + data_sizes
    scratch = np.empty(0, np.uint8)
    if digest:
        longest = int(path_sizes.max(initial=0)) + int(data_sizes.max(initial=0))
        scratch = np.empty(longest + STAT + _BLOCK, np.uint8)
    for at, stop in portions_of(sizes, _PORTION):
        size = int(sizes[at:stop].sum()) + (stop - at) * (2 * LENGTH + FIXED)
        out, stops = np.empty(size, np.uint8), np.empty(stop - at, np.int64)
        here = slice(at, stop) if chosen is None else chosen[at:stop]
        total = put_nodes(
            rows[at:stop],
            paths,
            path_ends,
            data,
            data_ends,
            valid,
            *(figure[here].astype(np.int64, copy=False) for figure in figures),  # type: ignore[call-arg, arg-type]
            out,
            stops,
            scratch,
        )
        starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
        lengths = np.where(valid[here] == 1, data_sizes[at:stop], NULL).astype(np.int32)
        yield Piece(out[: int(stops[-1])], starts, path_sizes[at:stop], lengths, int(total))
