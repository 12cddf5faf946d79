"""Read a tree: one node, or columns of all of them; its sessions, ACLs and digest. Nothing changes.

Source: `DataTree`, `DataNode.copyStat` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import batch_of, binary, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.table import Column
from logwright.codec.window import Bytes, Frames, Window, portions_of
from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, packed_list
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, HEAD, LENGTH
from logwright.codec.zookeeper.formats.snapshot.rows import PORTION, Nodes, acl_arrays
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.formats.snapshot.tables import ACL_ROWS, NODE_FRAME, SESSION_ROWS
from logwright.codec.zookeeper.jute import flat, list_entries
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state import tree_records
from logwright.codec.zookeeper.state.columns import NODE_COLUMNS, TTLS, kinds_of
from logwright.codec.zookeeper.state.paths import ascending
from logwright.codec.zookeeper.state.tree_arrays import TreeArrays

COLUMNS = (
    *NODE_COLUMNS,
    Column("cversion", pa.int32(), "changes of its children, as a client sees it"),
    Column("num_children", pa.int32(), "how many children it has"),
)
"""The columns of `Tree.nodes`."""
STATS = {
    "czxid": f.N_CZXID, "mzxid": f.N_MZXID, "ctime": f.N_CTIME, "mtime": f.N_MTIME, "version": f.N_VERSION,
    "cversion": f.N_CVERSION, "aversion": f.N_AVERSION, "owner": f.N_OWNER, "pzxid": f.N_PZXID,
}  # fmt: skip
_PIECE = 1 << 20
"""Bytes of records that are made at a time for a file. Small enough for their checksums to find them in the cache."""


class TreeReader(TreeArrays):
    """The tree as its readers see it."""

    def __len__(self) -> int:
        """Return the number of nodes that are reachable from the root, which are those of a snapshot."""
        return len(self._rows(order=False))

    @property
    def dangling(self) -> set[int]:
        """Return the ACL numbers of nodes that the table lacks."""
        return self._acls.missing(self._nodes[self._live(), f.N_ACL])

    def digest_of(self, nodes: int) -> int | None:
        """Return the digest of this number of reachable nodes, if it is known without reading them."""
        return self.digest if self._s[f.DIGESTS] and self._s[f.LIVE] == nodes else None

    @property
    def session_timeouts(self) -> dict[int, int]:
        """The open sessions, with their timeouts in milliseconds, by id."""
        rows = self._sessions[: self._s[f.SESSIONS]]
        rows = rows[rows[:, f.Z_OPEN] == 1]
        return dict(sorted(zip(rows[:, f.Z_ID].tolist(), rows[:, f.Z_TIMEOUT].tolist(), strict=True)))

    # Nodes

    def find(self, paths: pa.Array) -> Int64s:
        """Return the row of each path (a binary column), valid until the tree changes; -1 if there is no such node."""
        data, ends, _ = flat(paths)
        out = np.empty(len(paths), np.int64)
        tree_records.find_all(
            self._arena, self._nodes, self._table, data, np.ascontiguousarray(ends, np.int32), out
        )
        return out

    def stats(self, rows: Int64s) -> dict[str, Int64s]:
        """Return the stats of nodes by `STATS`, as stored, and "num_children"."""
        columns = {**STATS, "num_children": f.N_CHILDREN}
        return {name: self._nodes[rows, column] for name, column in columns.items()}

    def contents(self, rows: Int64s) -> tuple[pa.Array, Int64s, list[list[dict[str, Any]] | None]]:
        """Return the data of nodes, the ACL index of each, and the ACLs (None: the table lacks it)."""
        self._quotas.write(self)
        starts, sizes, slots = (
            np.ascontiguousarray(self._nodes[rows, field]) for field in (f.N_DATA, f.N_DATA_SIZE, f.N_ACL)
        )
        own, which = np.unique(slots, return_inverse=True)
        lists = [self._acl(slot) for slot in own.tolist()]
        return binary(self._arena, starts, sizes), which.astype(np.int64), lists

    def _acl(self, slot: int) -> list[dict[str, Any]] | None:
        content = packed_list(OPEN) if slot < 0 else self._acls.content(slot)
        return None if content is None else list_entries(content)

    def __contains__(self, path: bytes) -> bool:
        return self._row(path) >= 0

    def ttl_paths(self) -> list[bytes]:
        """Return the paths of nodes with a TTL, even if they are treated as ephemeral ones."""
        rows = self._live()
        rows = rows[kinds_of(self._nodes[rows, f.N_OWNER]) == TTLS]
        return sorted(self._path(row) for row in rows.tolist())

    def orphans(self) -> list[bytes]:
        """Return the paths of nodes that are not reachable from the root, in order."""
        reached = np.zeros(int(self._s[f.ROWS]), np.uint8)
        tree_records.reach(self._nodes, len(reached), reached)
        lost = (reached == 0) & (self._nodes[: len(reached), f.N_ALIVE] == 1)
        return sorted(self._path(row) for row in np.flatnonzero(lost).tolist())

    def other_root(self) -> bytes | None:
        """The path without a slash of the snapshot's node that became the root, if it is not the empty path."""
        row = int(self._s[f.ROOT])
        return None if row < 0 else self._path(row) or None

    # Rows

    def nodes(self, columns: Sequence[str], *, order: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the reachable nodes in pieces of bounded size: columns of `COLUMNS`. `order`: by the bytes of the path; else in the
        order of creation. Parents come first in both."""
        columns_by_name = {column.name: column for column in COLUMNS}
        schema = pa.schema(
            [pa.field(name, columns_by_name[name].type, columns_by_name[name].nullable) for name in columns]
        )
        shape = Shape(0, lambda offset, length: np.empty(0, np.uint8), acls=self._acls.table())
        for rows, data, frames in self._records(self._rows(order=order), with_data="data" in columns):
            nodes = Nodes(Window(data, 0, len(data)), frames, shape)
            yield batch_of([self._column(name, rows, nodes) for name in columns], schema, len(rows))

    def records(self) -> Iterator[tuple[Bytes, Frames]]:
        """Yield the nodes as in a snapshot: bytes, and the records in them."""
        for _, data, frames in self._records(self._rows(order=True), with_data=True, portion=_PIECE):
            yield data, frames

    def sessions(self) -> pa.RecordBatch:
        """Return the columns of `SESSION_ROWS`, by id."""
        timeouts = self.session_timeouts
        arrays = [
            numbers(pa.int64(), np.array(list(timeouts), np.int64)),
            numbers(pa.int32(), np.array(list(timeouts.values()), np.int32)),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SESSION_ROWS.schema())

    def acls(self) -> pa.RecordBatch:
        """Return the ACL table by number: the columns of `ACL_ROWS`."""
        shape = Shape(0, lambda offset, length: np.empty(0, np.uint8), acls=self._acls.table())
        arrays = acl_arrays(shape)
        return ACL_ROWS.batch(ACL_ROWS.names(detail=True), arrays.__getitem__, len(arrays["acl_id"]))

    def _column(self, name: str, rows: Int64s, nodes: Nodes) -> pa.Array:
        if name == "num_children":
            return numbers(pa.int32(), self._nodes[rows, f.N_CHILDREN].astype(np.int32))
        if name == "cversion":
            cversions = 2 * self._nodes[rows, f.N_CVERSION] - self._nodes[rows, f.N_CHILDREN]
            return numbers(pa.int32(), cversions.astype(np.int32))
        if name == "data_length":
            return numbers(pa.int32(), np.maximum(self._nodes[rows, f.N_DATA_SIZE], 0))
        return nodes.column(name)

    def _records(
        self, rows: Int64s, *, with_data: bool, portion: int = PORTION
    ) -> Iterator[tuple[Int64s, Bytes, Frames]]:
        """Yield nodes in pieces, as records; without data they have null instead."""
        self._quotas.write(self)
        sizes = self._nodes[rows, f.N_PATH_SIZE] + (2 * LENGTH + FIXED)
        if with_data:
            sizes += np.maximum(self._nodes[rows, f.N_DATA_SIZE], 0)
        for first, stop in portions_of(sizes, portion):
            part = rows[first:stop]
            data = np.empty(int(sizes[first:stop].sum()), np.uint8)
            starts, acls = np.empty(len(part), np.int64), np.empty(len(part), np.int64)
            paths, lengths = np.empty(len(part), np.int32), np.empty(len(part), np.int32)
            tree_records.records(
                self._nodes,
                self._acls.slots,
                self._arena,
                part,
                int(with_data),
                data,
                starts,
                paths,
                lengths,
                acls,
            )
            head = np.zeros(len(part), HEAD)
            head["kind"], head["path"], head["data"], head["acl"] = NODE_FRAME, paths, lengths, acls
            yield part, data, Frames(starts, np.append(starts[1:], len(data)), head, len(data))

    def _rows(self, *, order: bool) -> Int64s:
        reached = np.zeros(int(self._s[f.ROWS]), np.uint8)
        tree_records.reach(self._nodes, len(reached), reached)
        rows = np.flatnonzero(reached)
        if order:
            paths = binary(
                self._arena,
                np.ascontiguousarray(self._nodes[rows, f.N_PATH]),
                np.ascontiguousarray(self._nodes[rows, f.N_PATH_SIZE]),
            )
            data, ends, _ = flat(paths)
            if not ascending(data, ends, -1):
                rows = rows[np.asarray(pc.sort_indices(paths)).astype(np.int64)]
        return rows
