"""Nodes on their way into a snapshot: their columns as they are stored, and the kernel that writes them.

Source: `DataTree.serializeNodeData`, `DataNode.serialize`, `DigestCalculator` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Bytes
from logwright.codec.columns import numbers
from logwright.codec.intrinsics import copy, load_i32le, store_32be, store_32le, store_64be
from logwright.codec.kernel import kernel
from logwright.codec.memory import keep_memory
from logwright.codec.zookeeper.acl import flat
from logwright.codec.zookeeper.digest import counts, crc32_raw
from logwright.codec.zookeeper.jute import NULL, STAT_PERSISTED, Int64s
from logwright.codec.zookeeper.node import FIXED, LENGTH, STAT, Int32s

STATS = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "pzxid")
"""The columns of a node's stat. `owner` is as it is stored."""

_CZXID, _MZXID = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
_CTIME, _MTIME = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
_VERSION, _CVERSION = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
_AVERSION, _OWNER = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
_PZXID = STAT_PERSISTED.offset("pzxid")
_ONES = 0xFFFFFFFF
_BLOCK = 16
"""Bytes that a checksum takes at a time."""
_PORTION = 1 << 20
"""So many bytes of paths and data are written at a time, or one node if that is larger: what was just written is read again for its
checksums."""

_LONG_RUN = 1 << 8
"""Rows that follow one another, so many or more, are sliced."""


@kernel(
    "const u1[], const i4[], const u1[], const i8[], const u1[], const i8[], const i8[], const i8[], const i8[], const i8[], "
    "const i8[], const i8[], const i8[], const i8[], const i8[], u1[], i8[], u1[]"
)
def put_nodes(
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
    """Write records one after the other; `valid` is 0 where the data is null, `stops` where each ends. Returns the sum of their digests;
    0 without `scratch`, which has room for the longest record and a block."""
    at = 0
    total = 0
    for i in range(len(acl)):
        size = path_ends[i + 1] - path_ends[i]
        at = store_32be(out, at, size)
        path = at
        copy(out, at, paths, path_ends[i], size)
        at += size
        length = 0
        if valid[i]:
            length = data_ends[i + 1] - data_ends[i]
            at = store_32be(out, at, length)
            copy(out, at, data, data_ends[i], length)
            at += length
        else:
            at = store_32be(out, at, NULL)
        at = store_64be(out, at, acl[i])
        store_64be(out, at + _CZXID, czxid[i])
        store_64be(out, at + _MZXID, mzxid[i])
        store_64be(out, at + _CTIME, ctime[i])
        store_64be(out, at + _MTIME, mtime[i])
        store_32be(out, at + _VERSION, version[i])
        store_32be(out, at + _CVERSION, cversion[i])
        store_32be(out, at + _AVERSION, aversion[i])
        store_64be(out, at + _OWNER, owner[i])
        store_64be(out, at + _PZXID, pzxid[i])
        at += STAT
        stops[i] = at
        if len(scratch) and counts(out, path, path + size):
            # Path, data and stat side by side, pzxid before ctime, behind zeros up to whole blocks: before a register of 0 these are
            # as good as nothing, and a register of ones is that the first four bytes are inverted.
            end = (size + length + STAT + _BLOCK - 1) & -_BLOCK
            start = end - (size + length + STAT)
            store_64be(scratch, 0, 0)
            store_64be(scratch, 8, 0)
            copy(scratch, start, paths, path_ends[i], size)
            if length:
                copy(scratch, start + size, data, data_ends[i], length)
            stat = end - STAT
            store_64be(scratch, stat + _CZXID, czxid[i])
            store_64be(scratch, stat + _MZXID, mzxid[i])
            store_64be(scratch, stat + _CTIME, pzxid[i])
            store_64be(scratch, stat + _CTIME + 8, ctime[i])
            store_64be(scratch, stat + _MTIME + 8, mtime[i])
            store_32be(scratch, stat + _VERSION + 8, version[i])
            store_32be(scratch, stat + _CVERSION + 8, cversion[i])
            store_32be(scratch, stat + _AVERSION + 8, aversion[i])
            store_64be(scratch, stat + _OWNER + 8, owner[i])
            store_32le(scratch, start, load_i32le(scratch, start) ^ -1)
            total += crc32_raw(0, scratch, 0, end) ^ _ONES
    return total


class Piece(NamedTuple):
    """The bytes of some nodes; of each where it starts, and the lengths of its path and its data (-1: null); the sum of their digests, 0
    where that was not asked for."""

    data: Bytes
    starts: Int64s
    paths: Int32s
    lengths: Int32s
    digest: int


Values: TypeAlias = Int64s | pa.Array | pa.ChunkedArray
"""A column of whole numbers without nulls."""


def column_of(values: Values) -> pa.Array | pa.ChunkedArray:
    return numbers(pa.int64(), values) if isinstance(values, np.ndarray) else values


@dataclass
class Nodes:
    """Nodes as they are stored, in the order in which they are written."""

    columns: pa.Table
    """`path`, `data` (of either binary type), `acl`: the number of its list, and `STATS`."""

    @classmethod
    def of(
        cls, paths: pa.Array, data: pa.Array | pa.ChunkedArray, acls: Values, stats: dict[str, Values]
    ) -> Nodes:
        named: dict[str, Any] = {"path": paths, "data": data, "acl": acls} | {
            name: stats[name] for name in STATS
        }
        return cls(pa.table({name: column_of(one) for name, one in named.items()}))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def paths(self) -> pa.Array:
        return self.columns.column("path").combine_chunks()

    def number(self, name: str) -> Int64s:
        """A column of numbers."""
        return np.asarray(self.columns.column(name).cast(pa.int64()))

    def unknown(self, name: str, mark: int) -> npt.NDArray[np.bool_] | None:
        """Where a column of numbers has this one; None where it has it nowhere."""
        column = self.columns.column(name)
        if column.type != pa.int64():
            return None
        found = np.asarray(column) == mark
        return found if found.any() else None

    def with_number(self, name: str, values: Int64s) -> Nodes:
        """With another column of numbers."""
        place = self.columns.schema.get_field_index(name)
        return Nodes(self.columns.set_column(place, name, numbers(pa.int64(), values)))

    def and_more(self, other: Nodes) -> Nodes:
        """With the nodes of another one behind them."""
        kinds = {name: pa.int64() for name in ("acl", *STATS)}
        kinds |= {name: self.columns.schema.field(name).type for name in ("path", "data")}
        schema = pa.schema([(name, kinds[name]) for name in self.columns.column_names])
        return Nodes(pa.concat_tables([one.columns.cast(schema) for one in (self, other)]))

    def take(self, order: Int64s) -> Nodes:
        breaks = np.flatnonzero(np.diff(order) != 1) + 1
        if len(breaks) > len(order) // _LONG_RUN:
            return Nodes(self.columns.take(numbers(pa.int64(), order)))
        starts = [0, *breaks.tolist(), len(order)]
        runs = [self.columns.slice(int(order[one]), two - one) for one, two in pairwise(starts)]
        return Nodes(pa.concat_tables(runs))

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]:
        """Nodes `first` to `stop` in pieces."""
        keep_memory()
        for batch in self.columns.slice(first, stop - first).to_batches():
            yield from _Portion(batch).pieces(digest)

    def known_digest(self) -> int | None:
        return None

    def digest(self) -> int:
        """Of all of them, as the tree of a server."""
        return sum(one.digest for one in self.chunks(0, len(self), digest=True))


@dataclass
class _Portion:
    """Some nodes each of whose columns is in one piece."""

    batch: pa.RecordBatch
    numbers: list[npt.NDArray[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = [np.asarray(self.batch.column(name)) for name in ("acl", *STATS)]

    def pieces(self, digest: bool) -> Iterator[Piece]:
        paths, path_ends, _ = flat(self.batch.column("path"))
        data, data_ends, valid = flat(self.batch.column("data"))
        path_ends = np.ascontiguousarray(path_ends)
        path_sizes, data_sizes = np.diff(path_ends), np.diff(data_ends)
        ends = np.cumsum(path_sizes + data_sizes.astype(np.int64))
        scratch = np.empty(0, np.uint8)
        if digest:
            longest = int(path_sizes.max(initial=0)) + int(data_sizes.max(initial=0))
            scratch = np.empty(longest + STAT + _BLOCK, np.uint8)
        at = 0
        while at < len(ends):
            below = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, below + _PORTION, "right")))
            size = int(ends[stop - 1]) - below + (stop - at) * (2 * LENGTH + FIXED)
            out, stops = np.empty(size, np.uint8), np.empty(stop - at, np.int64)
            there = valid[at:stop]
            total = put_nodes(
                paths,
                path_ends[at : stop + 1],
                data,
                data_ends[at : stop + 1].astype(np.int64),
                there,
                *(one[at:stop].astype(np.int64, copy=False) for one in self.numbers),  # type: ignore[call-arg, arg-type]
                out,
                stops,
                scratch,
            )
            starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
            lengths = np.where(there == 1, data_sizes[at:stop], NULL).astype(np.int32)
            yield Piece(out[: int(stops[-1])], starts, path_sizes[at:stop], lengths, int(total))
            at = stop
