"""The arrays of a tree and their sizes: nodes (see `tree_kernels`), sessions, ACLs (`acl_cache`), quotas (`quota`)."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state import tree_kernels, tree_records
from logwright.codec.zookeeper.state.acl_cache import AclCache
from logwright.codec.zookeeper.state.digest import signed
from logwright.codec.zookeeper.state.java_utf8 import as_java, nodes_as_read
from logwright.codec.zookeeper.state.quota import Quotas

NOTE_ROOM = 1024


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
        self._s[[f.ORPHAN, f.STRANGER, f.SUB, f.ROOT]] = -1
        self._arena = np.empty(1 << 12, np.uint8)
        self._nodes = np.empty((16, f.NODE_FIELDS), np.int64)
        self._table = np.zeros(64, np.int64)
        self._sessions = np.empty((8, f.SESSION_FIELDS), np.int64)
        self._hashed = np.zeros(32, np.int64)
        self._acls = AclCache(self._s)
        self._stat = np.empty(f.STAT_SIZE, np.uint8)
        self._notes = np.empty((NOTE_ROOM, f.NOTE_FIELDS), np.int64)
        self._quotas = Quotas()
        self._target: tuple[int, int, int] | None = None

    @property
    def _arrays(self) -> f.Arrays:
        acls, quotas = self._acls, self._quotas
        return f.Arrays(
            self._s, self._arena, self._nodes, self._table, self._sessions, self._hashed, acls.slots, acls.forms, acls.lists, acls.data,
            quotas.counts, quotas.hashed, quotas.paths, self._stat, self._notes,
        )  # fmt: skip

    @property
    def zxid(self) -> int:
        """The last applied transaction."""
        return int(self._s[f.LAST])

    @property
    def digest(self) -> int:
        """The digest of the tree, as Java's long. Only if digests are kept."""
        return signed(int(self._s[f.TOTAL]))

    def add_session(self, number: int, timeout: int) -> None:
        """Open a session."""
        self._room_for_sessions(1)
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

    # Copies

    def copy(self) -> Self:
        """Return a copy, which changes independently."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_arena"] = self._arena[: self._s[f.USED]]
        state["_nodes"] = self._nodes[: self._s[f.ROWS]]
        return state

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
                self._room_for_sessions(1)

    def _make_room(self, why: int, size: int) -> None:
        if why == f.NEED_ROWS:
            self._room_for_rows(1)
        elif why == f.NEED_BYTES:
            self._room_for_bytes(size)
        elif why == f.NEED_TABLE:
            self._room_for_entries(1)
        else:
            self._room_for_sessions(1)

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

    def _room_for_sessions(self, more: int) -> None:
        used = int(self._s[f.SESSIONS])
        if used + more > len(self._sessions):
            self._sessions = f.grown(self._sessions, used, used + more)
            self._hashed = np.zeros(1 << (2 * len(self._sessions)).bit_length(), np.int64)
            tree_kernels.rehash_sessions(self._sessions, used, self._hashed)
