"""The arrays of a tree and their sizes: nodes (see `tree_kernels`), sessions, ACLs (`acl_cache`), quotas (`quota`)."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.state import tree_kernels as at
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
        self._s = np.zeros(at.STATE_FIELDS, np.int64)
        for place, setting in (
            (at.DIGESTS, digests),
            (at.EXTENDED, extended_types * at.TTL_TYPES | (not containers) * at.NO_CONTAINERS),
            (at.NAMED_PATHS, close_session_txn),
            (at.LOOKUPS, acl_lookups),
            (at.BY_PATH, existing_by_path),
            (at.MONOTONIC, monotonic),
            (at.NO_CREATE2, not create2_in_multi),
        ):
            self._s[place] = setting
        self._s[[at.ORPHAN, at.STRANGER, at.SUB, at.ROOT]] = -1
        self._arena = np.empty(1 << 12, np.uint8)
        self._nodes = np.empty((16, at.NODE_FIELDS), np.int64)
        self._table = np.zeros(64, np.int64)
        self._sessions = np.empty((8, at.SESSION_FIELDS), np.int64)
        self._hashed = np.zeros(32, np.int64)
        self._acls = AclCache(self._s)
        self._stat = np.empty(at.STAT_SIZE, np.uint8)
        self._notes = np.empty((NOTE_ROOM, at.NOTE_FIELDS), np.int64)
        self._quotas = Quotas()
        self._target: tuple[int, int, int] | None = None

    @property
    def _arrays(self) -> at.Arrays:
        acls, quotas = self._acls, self._quotas
        return at.Arrays(
            self._s, self._arena, self._nodes, self._table, self._sessions, self._hashed, acls.slots, acls.forms, acls.lists, acls.data,
            quotas.counts, quotas.hashed, quotas.paths, self._stat, self._notes,
        )  # fmt: skip

    @property
    def zxid(self) -> int:
        """The last applied transaction."""
        return int(self._s[at.LAST])

    @property
    def digest(self) -> int:
        """The digest of the tree, as Java's long. Only if digests are kept."""
        return signed(int(self._s[at.TOTAL]))

    def add_session(self, number: int, timeout: int) -> None:
        """Open a session."""
        self._room_for_sessions(1)
        row = at.session_of(self._s, self._sessions, self._hashed, number)
        self._sessions[row, at.Z_TIMEOUT], self._sessions[row, at.Z_OPEN] = timeout, 1

    def reserve_acls(self, number: int) -> None:
        """Reserve the ACL numbers up to this one: a server does not reset them when it rejects a snapshot."""
        self._acls.reserve(number)

    # One node

    def _live(self) -> Int64s:
        return np.flatnonzero(self._nodes[: self._s[at.ROWS], at.N_ALIVE])

    def _row(self, path: bytes) -> int:
        path = b"" if path == b"/" else as_java(path)
        buf = np.frombuffer(path, np.uint8)
        crc = crc32_raw(at.ONES, buf, 0, len(path))
        return int(at.find(self._arena, self._nodes, self._table, crc, buf, 0, len(path)))

    def _path(self, row: int) -> bytes:
        start = int(self._nodes[row, at.N_PATH])
        return self._arena[start : start + int(self._nodes[row, at.N_PATH_SIZE])].tobytes()

    def _data(self, row: int) -> bytes | None:
        self._quotas.write(self)
        size = int(self._nodes[row, at.N_DATA_SIZE])
        start = int(self._nodes[row, at.N_DATA])
        return None if size < 0 else self._arena[start : start + size].tobytes()

    def _put_data(self, row: int, data: bytes) -> None:
        """Replace data without a transaction, of a node that does not count in the digest."""
        if len(data) > self._nodes[row, at.N_ROOM]:
            self._room_for_bytes(len(data))
            s = self._s
            s[at.GARBAGE] += self._nodes[row, at.N_ROOM]
            self._nodes[row, at.N_DATA], self._nodes[row, at.N_ROOM] = s[at.USED], len(data)
            s[at.USED] += len(data)
        start = int(self._nodes[row, at.N_DATA])
        self._arena[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self._nodes[row, at.N_DATA_SIZE] = len(data)

    # Copies

    def copy(self) -> Self:
        """Return a copy, which changes independently."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_arena"] = self._arena[: self._s[at.USED]]
        state["_nodes"] = self._nodes[: self._s[at.ROWS]]
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
        at.hash_records(buf, starts, paths, crcs)
        done = 0
        while done < count:
            done += int(
                at.load(
                    buf, starts[done:], paths[done:], data[done:], slots[done:], crcs[done:], s, self._arena, self._nodes, self._table,
                    self._sessions, self._hashed, self._acls.slots, self._stat, int(s[at.ROWS]) - 1,
                )
            )  # fmt: skip
            if done < count:
                self._room_for_sessions(1)

    def _make_room(self, why: int, size: int) -> None:
        if why == at.NEED_ROWS:
            self._room_for_rows(1)
        elif why == at.NEED_BYTES:
            self._room_for_bytes(size)
        elif why == at.NEED_TABLE:
            self._room_for_entries(1)
        else:
            self._room_for_sessions(1)

    def _room_for_rows(self, more: int) -> None:
        if self._s[at.ROWS] + more > len(self._nodes) and 2 * self._s[at.LIVE] < self._s[at.ROWS]:
            self._drop_dead()
        used = int(self._s[at.ROWS])
        self._nodes = at.grown(self._nodes, used, used + more)

    def _drop_dead(self) -> None:
        """Compact the nodes, in their order."""
        s = self._s
        rows = int(s[at.ROWS])
        alive = (self._nodes[:rows, at.N_ALIVE] == 1) | (self._nodes[:rows, at.N_GHOST] == 1)
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        kept = self._nodes[:rows][alive]
        # The last entry stands for the missing parent.
        kept[:, at.N_PARENT] = np.append(place, -1)[kept[:, at.N_PARENT]]
        self._nodes[: len(kept)] = kept
        entries = self._table[self._table > 0]
        entries += place[(entries & at.ROW_MASK) - 1] + 1 - (entries & at.ROW_MASK)
        self._table[:] = 0
        s[at.FILLED] = at.rehash(self._table, entries)
        s[at.ROWS] = len(kept)
        for event_field in (at.ORPHAN, at.STRANGER):
            s[event_field] = min(int(s[event_field]), 0)  # only whether there was one is used
        s[at.ROOT] = np.append(place, -1)[s[at.ROOT]]
        at.own_all(s, self._nodes, self._sessions, self._hashed)

    def _room_for_bytes(self, more: int) -> None:
        s = self._s
        used = int(s[at.USED])
        if used + more <= len(self._arena):
            return
        left = used - int(s[at.GARBAGE])
        if 2 * left < used:
            out = np.empty(max(left + more, 2 * left), np.uint8)
            s[at.USED] = at.compact(self._nodes, int(s[at.ROWS]), self._arena, out)
            s[at.GARBAGE] = 0
            self._arena = out
        else:
            self._arena = at.grown(self._arena, used, used + more)

    def _room_for_entries(self, more: int) -> None:
        s = self._s
        if at.crowded(int(s[at.FILLED]) + more, len(self._table)):
            table = np.zeros(1 << (9 * (int(s[at.LIVE]) + more) // 4).bit_length(), np.int64)
            s[at.FILLED] = at.rehash(table, self._table)
            self._table = table

    def _room_for_sessions(self, more: int) -> None:
        used = int(self._s[at.SESSIONS])
        if used + more > len(self._sessions):
            self._sessions = at.grown(self._sessions, used, used + more)
            self._hashed = np.zeros(1 << (2 * len(self._sessions)).bit_length(), np.int64)
            at.rehash_sessions(self._sessions, used, self._hashed)
