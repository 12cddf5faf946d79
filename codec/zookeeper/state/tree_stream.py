"""A tree from ordered rows that are never held at once: parents that nobody gave are made where they are missed, and what follows
from the children of a node is counted before the first node is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import contents
from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.sorting import Refusal, unique
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists, coded
from logwright.codec.zookeeper.formats.snapshot.layout import Int32s
from logwright.codec.zookeeper.formats.snapshot.pack import STATS, Nodes, Piece, Values
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.state import sorted_run
from logwright.codec.zookeeper.state.columns import EPHEMERAL, kinds_of
from logwright.codec.zookeeper.state.input_columns import UNKNOWN
from logwright.codec.zookeeper.state.paths import Family
from logwright.codec.zookeeper.state.sorted_run import CLIENT, GIVEN
from logwright.codec.zookeeper.state.tree_defaults import SYSTEM

_OWN_CHILDREN = {b"": 1, b"/zookeeper": 2}
"""Nodes with children that a server makes itself, which it does not count."""


@dataclass(frozen=True)
class Portion:
    """Some nodes of a whole tree, in order. `first` is the number of the first of them, `parents` are numbers too, -1 of the root's."""

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
    """The nodes of sorted runs as a whole tree, with the system's own and all parents."""
    own = sorted_run.made(list(SYSTEM), zxid)
    system = SortedRun(own["key"][0].as_py(), own["key"][-1].as_py(), lambda: iter([own]))
    # Rows of one path in which somebody gave it, and in which it is made: the given one comes first.
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
            batch = pa.concat_batches([batch, sorted_run.made(missing, zxid)])
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
    """The last node and all above it, from the root on: what a node to come may be below of."""
    at = len(local) - 1
    found = []
    while at >= 0:
        found.append(at)
        at = int(local[at])
    found.reverse()
    names = [above[i] if i < len(above) else paths[i - len(above)].as_py() for i in found]
    return names, [int(numbers_of[i]) for i in found]


def _unshadowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Without the rows made for a path that somebody gave."""
    held: bytes | None = None
    for batch in batches:
        made = np.flatnonzero(np.asarray(batch.column("sequence")) != GIVEN)
        keys = batch.column("key")
        gone = [i for i in made.tolist() if keys[i].as_py() == (keys[i - 1].as_py() if i else held)]
        held = keys[-1].as_py()
        if gone:
            stays = np.ones(batch.num_rows, np.bool_)
            stays[gone] = False
            batch = batch.filter(pa.array(stays))
        if batch.num_rows:
            yield batch


@dataclass
class _Children:
    """Of each node how many children it has, and the last transaction that made it or one of them."""

    counts: Int32s = field(default_factory=lambda: np.zeros(1 << 10, np.int32))
    last: Int64s = field(default_factory=lambda: np.zeros(1 << 10, np.int64))
    nodes: int = 0

    def add(self, portion: Portion) -> None:
        self.nodes = portion.first + len(portion)
        if self.nodes > len(self.counts):
            size = max(2 * len(self.counts), self.nodes)
            self.counts, self.last = (
                np.concatenate((one, np.zeros(size - len(one), one.dtype)))
                for one in (self.counts, self.last)
            )
        czxid = portion.stat("czxid")
        self.last[portion.first : self.nodes] = czxid
        below = portion.parents >= 0
        parents = portion.parents[below]
        np.add.at(self.counts, parents, 1)
        np.maximum.at(self.last, parents, czxid[below])


class WholeTree:
    """The nodes of a snapshot (`encode.NodeSource`), read twice: once for what has to be known before the first byte is written.

    `read` gives the portions anew each time. In memory are 12 bytes a node, and the lists and sessions there are.
    """

    def __init__(self, read: Callable[[], Iterator[Portion]]) -> None:
        self._read = read
        self._children = _Children()
        self.acls = AclLists(AclTable.empty())
        self.owners: set[int] = set()
        """The sessions that own nodes."""
        self.highest = 0
        """The highest zxid of any node."""
        self.rows = 0
        """Of the nodes those that were given."""
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
        """All of them, in pieces. See `nodes.Nodes.chunks`."""
        assert (first, stop) == (0, len(self))
        for portion in self._read():
            yield from self._nodes(portion).chunks(0, len(portion), digest=digest)

    def known_digest(self) -> int | None:
        return None

    def digest(self) -> int:
        """That of `Nodes` as they are written."""
        return sum(self._nodes(portion).digest() for portion in self._read())

    def _nodes(self, portion: Portion) -> Nodes:
        stats: dict[str, Values] = {name: portion.stat(name) for name in STATS}
        here = slice(portion.first, portion.first + len(portion))
        counts, client = self._children.counts[here].astype(np.int64), portion.stat(CLIENT)
        derived = counts - _own_children(portion.paths)
        derived = np.where(client == UNKNOWN, derived, (client + counts) // 2)
        stats["cversion"] = np.where(stats["cversion"] == UNKNOWN, derived, stats["cversion"])
        stats["pzxid"] = np.where(stats["pzxid"] == UNKNOWN, self._children.last[here], stats["pzxid"])
        return Nodes.of(portion.paths, portion.rows.column("value"), self._numbers(portion), stats)


def _own_children(paths: pa.Array) -> Int64s:
    found = pc.index_in(paths, value_set=contents(pa.binary(), list(_OWN_CHILDREN)))
    return np.asarray(pa.array([*_OWN_CHILDREN.values(), 0]).take(found.fill_null(len(_OWN_CHILDREN))))
