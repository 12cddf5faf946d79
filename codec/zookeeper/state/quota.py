"""Quotas: a server counts nodes and bytes below paths with a quota, and keeps the sums in its own nodes, without transactions.

Here they are counted beside the tree, and written into these nodes when the tree is read. Source: `DataTree.updateQuotaStat`,
`updateQuotaForPath`, `setupQuota`, `StatsTrack`, `PathTrie` of ZooKeeper.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state import tree_records

QUOTA, LIMITS, STATS = b"/zookeeper/quota", b"zookeeper_limits", b"zookeeper_stats"
"""`Quotas`."""
_INVALID = "IllegalArgumentException: Invalid path: "
_NUMBER = re.compile(rb"[+-]?[0-9]+")


class StatsError(Exception):
    """The text of a stats node that ends a server."""


class QuotaTree(Protocol):
    """The part of a tree that quotas read and change. `_s` and `_nodes` are its arrays."""

    _s: Int64s
    _nodes: Int64s
    _arena: Bytes

    def _row(self, path: bytes) -> int: ...

    def _path(self, row: int) -> bytes: ...

    def _data(self, row: int) -> bytes | None: ...

    def _put_data(self, row: int, data: bytes) -> None: ...


class Quotas:
    """The paths with a quota, and the changes below them since the sums were written."""

    def __init__(self) -> None:
        self.by_path: dict[bytes, int] = {}
        self.counts = np.zeros((0, f.QUOTA_FIELDS), np.int64)
        self.hashed = np.zeros(1, np.int64)
        self.paths = np.zeros(0, np.uint8)

    def found(self, tree: QuotaTree) -> str | None:
        """Set up the quotas of a loaded tree. Return the exception that ends a server, if any."""
        s = tree._s
        root = tree._row(QUOTA)
        if root < 0 or not tree._nodes[root, f.N_CHILDREN]:
            return None
        rows = np.empty(int(s[f.LIVE]), np.int64)
        prefix = np.frombuffer(QUOTA + b"/", np.uint8)
        rows = rows[: tree_records.below(tree._nodes, int(s[f.ROWS]), tree._arena, prefix, rows)]
        leaves = rows[tree._nodes[rows, f.N_CHILDREN] == 0]
        ending = b"/" + LIMITS
        for path in [tree._path(row) for row in leaves.tolist()]:
            if path.endswith(ending):
                target = path[len(QUOTA) : path.index(ending)]
                self._count(tree, target)
                if not self._add(tree, target):
                    return _INVALID
        return None

    def happened(self, tree: QuotaTree) -> str | None:
        """Handle the creation, change or deletion of a quota node. Return the exception that ends a server, if any."""
        s = tree._s
        event, row = int(s[f.EVENT]), int(s[f.EVENT_ROW])
        s[f.EVENT] = 0
        parent, _, name = tree._path(row).rpartition(b"/")
        path = parent[len(QUOTA) :]
        if name == STATS:
            # The sums so far are in the new text, or lost with the node.
            if _normal(path) in self.by_path:
                self._forget(tree, _normal(path))
            if event == f.CREATED:
                self._count(tree, path)
            return None
        if event == f.CHANGED:
            return None
        died = self.write(tree)
        if died is not None:
            return died
        if event == f.CREATED:
            return None if self._add(tree, path) else _INVALID
        if not path:
            return _INVALID
        if _normal(path) in self.by_path:
            del self.by_path[_normal(path)]
            self._arrange(tree)
        return None

    def write(self, tree: QuotaTree) -> str | None:
        """Write the sums into their nodes. If a node's text is invalid, leave it and return the exception that ends a server."""
        died = None
        if not tree._s[f.PENDING]:
            return None
        tree._s[f.PENDING] = 0
        for path, place in self.by_path.items():
            counts = self.counts[place]
            if not counts[f.Q_TOUCHED]:
                continue
            row = tree._row(QUOTA + path + b"/" + STATS)
            try:
                stats = {} if row < 0 else parse(tree._data(row))
            except StatsError as error:
                died, row = str(error), -1
            if row >= 0:
                stats[b"count"] = stats.get(b"count", -1) + int(counts[f.Q_COUNT])
                stats[b"bytes"] = stats.get(b"bytes", -1) + int(counts[f.Q_BYTES])
                tree._put_data(row, text(stats))
            counts[[f.Q_COUNT, f.Q_BYTES, f.Q_TOUCHED]] = 0
        return died

    def _forget(self, tree: QuotaTree, path: bytes) -> None:
        self.counts[self.by_path[path], [f.Q_COUNT, f.Q_BYTES, f.Q_TOUCHED]] = 0

    def _count(self, tree: QuotaTree, path: bytes) -> None:
        """`updateQuotaForPath`: count the present nodes."""
        row = tree._row(QUOTA + path + b"/" + STATS)
        if row < 0:
            return
        sums = np.zeros((1, f.QUOTA_FIELDS), np.int64)
        node = tree._row(path)
        if node >= 0:
            which = np.full(int(tree._s[f.ROWS]), -1, np.int64)
            which[node] = 0
            tree_records.sum_quotas(tree._nodes, len(which), which, sums)
        tree._put_data(row, text({b"count": int(sums[0, f.Q_COUNT]), b"bytes": int(sums[0, f.Q_BYTES])}))

    def _add(self, tree: QuotaTree, path: bytes) -> bool:
        if not path:
            return False
        target = _normal(path)
        if target and target not in self.by_path:
            self.by_path[target] = -1
            self._arrange(tree)
        return True

    def _arrange(self, tree: QuotaTree) -> None:
        """Make the arrays of the present quotas. Nothing is waiting to be written."""
        count = len(self.by_path)
        self.counts = np.zeros((count, f.QUOTA_FIELDS), np.int64)
        self.paths = np.frombuffer(bytearray().join(self.by_path), np.uint8)
        self.hashed = np.zeros(1 << (4 * count).bit_length(), np.int64)
        start = 0
        for i, path in enumerate(self.by_path):
            self.by_path[path] = i
            crc = int(crc32_raw(f.ONES, self.paths, start, start + len(path)))
            self.counts[i, [f.Q_AT, f.Q_SIZE, f.Q_HASH]] = start, len(path), crc
            place = crc & len(self.hashed) - 1
            while self.hashed[place]:
                place = place + 1 & len(self.hashed) - 1
            self.hashed[place] = i + 1
            start += len(path)
        tree._s[f.QUOTAS] = count
        tree._s[f.PENDING] = 0


def _normal(path: bytes) -> bytes:
    """Return a path by its names, as a `PathTrie` has it."""
    names = [name for name in path.split(b"/") if name.strip()]
    return b"".join(b"/" + name for name in names)


def parse(data: bytes | None) -> dict[bytes, int]:
    """Return the numbers in the text of a stats node. Raises `StatsError`."""
    if data is None:
        raise StatsError("NullPointerException")
    out: dict[bytes, int] = {}
    if not data:
        return out
    parts = re.split(rb"[,;]+", data)
    while parts and not parts[-1]:
        parts.pop()  # as Java's split
    for part in parts:
        both = part.split(b"=")
        while both and not both[-1]:
            both.pop()
        if len(both) < 2:
            raise StatsError(
                f"ArrayIndexOutOfBoundsException: Index {len(both)} out of bounds for length {len(both)}"
            )
        value = both[1] or b"-1"
        if not _NUMBER.fullmatch(value) or not -(1 << 63) <= int(value) < 1 << 63:
            raise StatsError(f'NumberFormatException: For input string: "{value.decode("utf-8", "replace")}"')
        out[both[0]] = int(value)
    return out


def text(stats: dict[bytes, int]) -> bytes:
    """`StatsTrack.toString`."""
    out = b"count=%d,bytes=%d" % (stats.get(b"count", -1), stats.get(b"bytes", -1))
    more = sorted(set(stats) - {b"count", b"bytes"})
    return out + (b"=" if more else b"") + b"".join(b";%s=%d" % (key, stats[key]) for key in more)
