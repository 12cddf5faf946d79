"""A tree from sorted rows that are never all in memory: missing parents are added on the way, and what follows from the children of a
node is computed before the first node is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import contents
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.sorting import Refusal, unique
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists, coded
from logwright.codec.zookeeper.formats.snapshot.layout import STATS
from logwright.codec.zookeeper.formats.snapshot.pack import Nodes, Piece, Values
from logwright.codec.zookeeper.state import sorted_run
from logwright.codec.zookeeper.state.columns import EPHEMERAL, kinds_of
from logwright.codec.zookeeper.state.input_columns import UNKNOWN
from logwright.codec.zookeeper.state.paths import Family
from logwright.codec.zookeeper.state.sorted_run import CLIENT, GIVEN
from logwright.codec.zookeeper.state.tree_defaults import SYSTEM, derived_cversions, from_children

_OWN_CHILDREN = {b"": 1, b"/zookeeper": 2}
"""Nodes with children that a server makes itself, without counting them."""


@dataclass(frozen=True)
class Portion:
    """Some nodes of a complete tree, in order. `first` is the number of the first one, `parents` are numbers too, -1 for the root."""

    rows: pa.RecordBatch
    paths: pa.Array
    first: int
    parents: Int64s

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def stat(self, name: str) -> Int64s:
        return np.asarray(self.rows.column(name))


def portions(
    streams: Sequence[SortedRun], zxid: int | None, *, last: bool, twice: Refusal
) -> Iterator[Portion]:
    """Yield the nodes of sorted runs as a complete tree, with the system nodes and all parents."""
    own = sorted_run.default_nodes(list(SYSTEM), zxid)
    system = SortedRun(own["key"][0].as_py(), own["key"][-1].as_py(), lambda: iter([own]))
    # If a path has an input row and a made one, the input row comes first.
    rows = unique(merge([*streams, system]), last=last, twice=twice)
    chain: list[bytes] = []
    places: list[int] = []
    count = 0
    for batch in _unshadowed(rows):
        paths = sorted_run.paths_of(batch.column("key"))
        above = contents(pa.binary(), chain)
        family = Family.of(pa.concat_arrays([above, paths]))
        missing = family.missing()
        if missing:
            batch = pa.concat_batches([batch, sorted_run.default_nodes(missing, zxid)])
            batch = batch.take(pc.sort_indices(batch.column("key")))
            paths = sorted_run.paths_of(batch.column("key"))
            family = Family.of(pa.concat_arrays([above, paths]))
        local = family.parents
        numbers_of = np.concatenate((places, np.arange(count, count + len(paths)))).astype(np.int64)
        parents = local[len(chain) :]
        yield Portion(batch, paths, count, np.where(parents < 0, -1, numbers_of[parents]))
        chain, places = _chain(local, numbers_of, chain, paths)
        count += len(paths)


def _chain(
    local: Int64s, numbers_of: Int64s, above: list[bytes], paths: pa.Array
) -> tuple[list[bytes], list[int]]:
    """Return the last node and its ancestors, from the root on: the possible parents of the next node."""
    at = len(local) - 1
    ancestors = []
    while at >= 0:
        ancestors.append(at)
        at = int(local[at])
    ancestors.reverse()
    names = [above[i] if i < len(above) else paths[i - len(above)].as_py() for i in ancestors]
    return names, [int(numbers_of[i]) for i in ancestors]


def _unshadowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drop the rows made for a path that has an input row."""
    held: bytes | None = None
    for batch in batches:
        created = np.flatnonzero(np.asarray(batch.column("sequence")) != GIVEN)
        keys = batch.column("key")
        gone = [i for i in created.tolist() if keys[i].as_py() == (keys[i - 1].as_py() if i else held)]
        held = keys[-1].as_py()
        if gone:
            stays = np.ones(batch.num_rows, np.bool_)
            stays[gone] = False
            batch = batch.filter(pa.array(stays))
        if batch.num_rows:
            yield batch


@dataclass
class _Children:
    """For each node the number of its children, and the last transaction that created it or one of them."""

    counts: Int32s = field(default_factory=lambda: np.zeros(1 << 10, np.int32))
    last: Int64s = field(default_factory=lambda: np.zeros(1 << 10, np.int64))
    nodes: int = 0

    def add(self, portion: Portion) -> None:
        self.nodes = portion.first + len(portion)
        if self.nodes > len(self.counts):
            size = max(2 * len(self.counts), self.nodes)
            self.counts, self.last = (
                np.concatenate((array, np.zeros(size - len(array), array.dtype)))
                for array in (self.counts, self.last)
            )
        from_children(portion.parents, portion.stat("czxid"), portion.first, self.counts, self.last)


class WholeTree:
    """The nodes of a snapshot (`write.NodeSource`), read twice: once for what must be known before the first byte is written. `read`
    yields the portions again each time. Memory holds 12 bytes per node, and the lists and sessions."""

    def __init__(self, read: Callable[[], Iterator[Portion]]) -> None:
        self._read = read
        self._children = _Children()
        self.acls = AclLists(AclTable.empty())
        self.owners: set[int] = set()
        """The sessions that own nodes."""
        self.highest = 0
        """The highest zxid of any node."""
        self.rows = 0
        """The number of input nodes."""
        for portion in read():
            self._children.add(portion)
            self._numbers(portion)
            owners = portion.stat("owner")
            self.owners.update(np.unique(owners[kinds_of(owners) == EPHEMERAL]).tolist())
            zxids = (int(portion.stat(name).max(initial=0)) for name in ("czxid", "mzxid", "pzxid"))
            self.highest = max(self.highest, *zxids)
            self.rows += int((portion.stat("sequence") == GIVEN).sum())

    def __len__(self) -> int:
        return self._children.nodes

    def _numbers(self, portion: Portion) -> Int64s:
        return self.acls.numbers(coded(portion.rows.column("acl")))

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]:
        """Yield all nodes in pieces. See `pack.Nodes.chunks`."""
        assert (first, stop) == (0, len(self))
        for portion in self._read():
            yield from self._nodes(portion).chunks(0, len(portion), digest=digest)

    def known_digest(self) -> int | None:
        return None

    def _nodes(self, portion: Portion) -> Nodes:
        stats: dict[str, Values] = {name: portion.stat(name) for name in STATS}
        here = slice(portion.first, portion.first + len(portion))
        counts, client = self._children.counts[here].astype(np.int64), portion.stat(CLIENT)
        index = pc.index_in(portion.paths, value_set=contents(pa.binary(), list(_OWN_CHILDREN)))
        own = pa.array([*_OWN_CHILDREN.values(), 0]).take(index.fill_null(len(_OWN_CHILDREN)))
        derived = derived_cversions(counts, np.asarray(own), client)
        stats["cversion"] = np.where(stats["cversion"] == UNKNOWN, derived, stats["cversion"])
        stats["pzxid"] = np.where(stats["pzxid"] == UNKNOWN, self._children.last[here], stats["pzxid"])
        return Nodes.of(portion.paths, portion.rows.column("value"), self._numbers(portion), stats)
