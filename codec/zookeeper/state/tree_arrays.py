"""The arrays of a tree and their sizes: nodes (see `tree_kernels`), sessions, ACLs (`acl_cache`), quotas."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.java import int64
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state import tree_kernels, tree_records
from logwright.codec.zookeeper.state.acl_cache import AclCache
from logwright.codec.zookeeper.state.java_utf8 import as_java, nodes_as_read

QUOTA, LIMITS, STATS = b"/zookeeper/quota", b"zookeeper_limits", b"zookeeper_stats"
"""`Quotas`."""
_INVALID = "IllegalArgumentException: Invalid path: "
_NUMBER = re.compile(rb"[+-]?[0-9]+")


class StatsError(Exception):
    """The text of a stats node that ends a server."""


class Quotas:
    """The paths with a quota, and the changes below them since the sums were written.

    A server counts nodes and bytes below such a path, and keeps the sums in its own nodes, without transactions. Here they are counted beside
    the tree, and written into these nodes when the tree is read. Source: `DataTree.updateQuotaStat`, `updateQuotaForPath`, `setupQuota`,
    `StatsTrack`, `PathTrie` of ZooKeeper.
    """

    def __init__(self) -> None:
        self.by_path: dict[bytes, int] = {}
        self.counts = np.zeros((0, f.QUOTA_FIELDS), np.int64)
        self.hashed = np.zeros(1, np.int64)
        self.paths = np.zeros(0, np.uint8)

    def found(self, tree: TreeArrays) -> str | None:
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

    def happened(self, tree: TreeArrays) -> str | None:
        """Handle the creation, change or deletion of a quota node. Return the exception that ends a server, if any."""
        s = tree._s
        event, row = int(s[f.EVENT]), int(s[f.EVENT_ROW])
        s[f.EVENT] = 0
        parent, _, name = tree._path(row).rpartition(b"/")
        path = parent[len(QUOTA) :]
        if name == STATS:
            # The sums so far are in the new text, or lost with the node.
            if _normal(path) in self.by_path:
                self.counts[self.by_path[_normal(path)], [f.Q_COUNT, f.Q_BYTES, f.Q_TOUCHED]] = 0
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

    def write(self, tree: TreeArrays) -> str | None:
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

    def _count(self, tree: TreeArrays, path: bytes) -> None:
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

    def _add(self, tree: TreeArrays, path: bytes) -> bool:
        if not path:
            return False
        target = _normal(path)
        if target and target not in self.by_path:
            self.by_path[target] = -1
            self._arrange(tree)
        return True

    def _arrange(self, tree: TreeArrays) -> None:
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


class TreeArrays:
    """The arrays of a tree. Paths are bytes as stored; "/" is a second name of the root, whose path is empty.

    `digests`: keep the digest of the tree. `extended_types`: upstream's `extendedTypesEnabled`; without it a TTL node is an ephemeral one.
    `close_session_txn`: delete the nodes that closeSession names (`closeSessionTxn.enabled`, from 3.6). `acl_lookups`: a change of a node
    with an unknown ACL ends the server (from 3.9.2 and 3.8.4). `existing_by_path`: a node that was left behind by its deleted parent
    prevents a new one (from 3.9.4 and 3.8.5). `monotonic`: a parent's cversion and pzxid only grow (from 3.6). `containers`: containers are
    known (from 3.5.1). `create2_in_multi`: a multi may contain a create2 (from 3.9.0, 3.8.2 and 3.7.2).
    """

    def __init__(
        self,
        *,
        digests: bool = True,
        extended_types: bool = False,
        close_session_txn: bool = True,
        acl_lookups: bool = True,
        existing_by_path: bool = True,
        monotonic: bool = True,
        containers: bool = True,
        create2_in_multi: bool = True,
    ) -> None:
        self._s = np.zeros(f.STATE_FIELDS, np.int64)
        for place, setting in (
            (f.DIGESTS, digests),
            (f.EXTENDED, extended_types * f.TTL_TYPES | (not containers) * f.NO_CONTAINERS),
            (f.NAMED_PATHS, close_session_txn),
            (f.LOOKUPS, acl_lookups),
            (f.BY_PATH, existing_by_path),
            (f.MONOTONIC, monotonic),
            (f.NO_CREATE2, not create2_in_multi),
        ):
            self._s[place] = setting
        self._s[[f.ORPHAN, f.STRANGER, f.ROOT]] = -1
        self._arena = np.empty(1 << 12, np.uint8)
        self._nodes = np.empty((16, f.NODE_FIELDS), np.int64)
        self._table = np.zeros(64, np.int64)
        self._sessions = np.empty((8, f.SESSION_FIELDS), np.int64)
        self._hashed = np.zeros(32, np.int64)
        self._acls = AclCache(self._s)
        self._stat = np.empty(f.STAT_SIZE, np.uint8)
        self._quotas = Quotas()
        self._target: tuple[int, int, int] | None = None

    @property
    def _arrays(self) -> f.Arrays:
        acls, quotas = self._acls, self._quotas
        return f.Arrays(
            self._s, self._arena, self._nodes, self._table, self._sessions, self._hashed, acls.slots, acls.forms, acls.lists, acls.data,
            quotas.counts, quotas.hashed, quotas.paths, self._stat,
        )  # fmt: skip

    @property
    def zxid(self) -> int:
        """The last applied transaction."""
        return int(self._s[f.LAST])

    @property
    def digest(self) -> int:
        """The digest of the tree, as Java's long. Only if digests are kept."""
        return int64(int(self._s[f.TOTAL]))

    def add_session(self, number: int, timeout: int) -> None:
        """Open a session."""
        self._room_for_session()
        row = tree_kernels.session_of(self._s, self._sessions, self._hashed, number)
        self._sessions[row, f.Z_TIMEOUT], self._sessions[row, f.Z_OPEN] = timeout, 1

    def reserve_acls(self, number: int) -> None:
        """Reserve the ACL numbers up to this one: a server does not reset them when it rejects a snapshot."""
        self._acls.reserve(number)

    # One node

    def _live(self) -> Int64s:
        return np.flatnonzero(self._nodes[: self._s[f.ROWS], f.N_ALIVE])

    def _row(self, path: bytes) -> int:
        path = b"" if path == b"/" else as_java(path)
        buf = np.frombuffer(path, np.uint8)
        crc = crc32_raw(f.ONES, buf, 0, len(path))
        return int(tree_kernels.find(self._arena, self._nodes, self._table, crc, buf, 0, len(path)))

    def _path(self, row: int) -> bytes:
        start = int(self._nodes[row, f.N_PATH])
        return self._arena[start : start + int(self._nodes[row, f.N_PATH_SIZE])].tobytes()

    def _data(self, row: int) -> bytes | None:
        self._quotas.write(self)
        size = int(self._nodes[row, f.N_DATA_SIZE])
        start = int(self._nodes[row, f.N_DATA])
        return None if size < 0 else self._arena[start : start + size].tobytes()

    def _put_data(self, row: int, data: bytes) -> None:
        """Replace data without a transaction, of a node that does not count in the digest."""
        if len(data) > self._nodes[row, f.N_ROOM]:
            self._room_for_bytes(len(data))
            s = self._s
            s[f.GARBAGE] += self._nodes[row, f.N_ROOM]
            self._nodes[row, f.N_DATA], self._nodes[row, f.N_ROOM] = s[f.USED], len(data)
            s[f.USED] += len(data)
        start = int(self._nodes[row, f.N_DATA])
        self._arena[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self._nodes[row, f.N_DATA_SIZE] = len(data)

    # Room

    def _load(self, buf: Bytes, starts: Int64s, paths: Any, data: Any, acls: Int64s) -> None:
        count = len(starts)
        if not count:
            return
        s = self._s
        buf, starts, paths = nodes_as_read(buf, starts, paths, data)
        self._room_for_rows(count)
        self._room_for_bytes(int(paths.sum(dtype=np.int64)) + int(np.maximum(data, 0).sum(dtype=np.int64)))
        self._room_for_entries(count)
        slots = self._acls.slots_of(acls)
        crcs = np.empty(count, np.int64)
        tree_records.hash_records(buf, starts, paths, crcs)
        done = 0
        while done < count:
            done += int(
                tree_records.load(
                    buf, starts[done:], paths[done:], data[done:], slots[done:], crcs[done:], s, self._arena, self._nodes, self._table,
                    self._sessions, self._hashed, self._acls.slots, self._stat, int(s[f.ROWS]) - 1,
                )
            )  # fmt: skip
            if done < count:
                self._room_for_session()

    def _make_room(self, why: int, size: int) -> None:
        if why == f.NEED_ROWS:
            self._room_for_rows(1)
        elif why == f.NEED_BYTES:
            self._room_for_bytes(size)
        elif why == f.NEED_TABLE:
            self._room_for_entries(1)
        else:
            self._room_for_session()

    def _room_for_rows(self, more: int) -> None:
        if self._s[f.ROWS] + more > len(self._nodes) and 2 * self._s[f.LIVE] < self._s[f.ROWS]:
            self._drop_dead()
        used = int(self._s[f.ROWS])
        self._nodes = f.grown(self._nodes, used, used + more)

    def _drop_dead(self) -> None:
        """Compact the nodes, in their order."""
        s = self._s
        rows = int(s[f.ROWS])
        alive = (self._nodes[:rows, f.N_ALIVE] == 1) | (self._nodes[:rows, f.N_GHOST] == 1)
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        kept = self._nodes[:rows][alive]
        # The last entry stands for the missing parent.
        kept[:, f.N_PARENT] = np.append(place, -1)[kept[:, f.N_PARENT]]
        self._nodes[: len(kept)] = kept
        entries = self._table[self._table > 0]
        entries += place[(entries & f.ROW_MASK) - 1] + 1 - (entries & f.ROW_MASK)
        self._table[:] = 0
        s[f.FILLED] = tree_kernels.rehash(self._table, entries)
        s[f.ROWS] = len(kept)
        for event_field in (f.ORPHAN, f.STRANGER):
            s[event_field] = min(int(s[event_field]), 0)  # only whether there was one is used
        s[f.ROOT] = np.append(place, -1)[s[f.ROOT]]
        tree_kernels.own_all(s, self._nodes, self._sessions, self._hashed)

    def _room_for_bytes(self, more: int) -> None:
        s = self._s
        used = int(s[f.USED])
        if used + more <= len(self._arena):
            return
        left = used - int(s[f.GARBAGE])
        if 2 * left < used:
            out = np.empty(max(left + more, 2 * left), np.uint8)
            s[f.USED] = tree_records.compact(self._nodes, int(s[f.ROWS]), self._arena, out)
            s[f.GARBAGE] = 0
            self._arena = out
        else:
            self._arena = f.grown(self._arena, used, used + more)

    def _room_for_entries(self, more: int) -> None:
        s = self._s
        if tree_kernels.crowded(int(s[f.FILLED]) + more, len(self._table)):
            table = np.zeros(1 << (9 * (int(s[f.LIVE]) + more) // 4).bit_length(), np.int64)
            s[f.FILLED] = tree_kernels.rehash(table, self._table)
            self._table = table

    def _room_for_session(self) -> None:
        used = int(self._s[f.SESSIONS])
        if used == len(self._sessions):
            self._sessions = f.grown(self._sessions, used, used + 1)
            self._hashed = np.zeros(1 << (2 * len(self._sessions)).bit_length(), np.int64)
            tree_kernels.rehash_sessions(self._sessions, used, self._hashed)
