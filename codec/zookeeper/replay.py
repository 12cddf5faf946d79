"""The tree of a server in memory: loaded from a snapshot, changed by transactions as a server does when it starts.

What is stored is in `state`, how it changes in `apply`; here is the room for it, and what is rare: ACLs that come up, quotas (`quota`).
Source: `DataTree`, `FileTxnSnapLog.processTransaction`, `ZooKeeperServer.loadData` of ZooKeeper.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.base import Bytes, Frames, Window
from logwright.codec.columns import numbers
from logwright.codec.fault import Fault, Kind
from logwright.codec.option import Options
from logwright.codec.table import Column
from logwright.codec.walk import Hole, Reader, walk
from logwright.codec.zookeeper import apply, pack, txnlog
from logwright.codec.zookeeper import state as at
from logwright.codec.zookeeper import tree as trees
from logwright.codec.zookeeper.acl import OPEN, AclTable, flat
from logwright.codec.zookeeper.acl_cache import LIST, AclCache, entries, nameless
from logwright.codec.zookeeper.bodies import DIGEST, DIGEST_VALUE, MEASURES, Bodies
from logwright.codec.zookeeper.columns import NODE_COLUMNS, TTL_MAX, TTLS, kinds_of
from logwright.codec.zookeeper.digest import VERSION, crc32_raw, signed
from logwright.codec.zookeeper.encode import AclLists, Given, raw_lists
from logwright.codec.zookeeper.expand import expand
from logwright.codec.zookeeper.jute import STAT_PERSISTED, Int64s, binary, skip_acl
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.node import FIXED, HEAD, LENGTH, NODE, OPEN_ACL
from logwright.codec.zookeeper.quota import Quotas
from logwright.codec.zookeeper.records import BODY, HEAD_FIELDS, TXN_FRAME, ZXID
from logwright.codec.zookeeper.sections import DIGEST as DIGEST_SECTION
from logwright.codec.zookeeper.sections import DIGEST_SIZE, Shape
from logwright.codec.zookeeper.snapshot import CODEC as SNAPSHOT
from logwright.codec.zookeeper.snapshot_rows import PORTION, Nodes, acl_arrays
from logwright.codec.zookeeper.snapshot_tables import ACL_ROWS, NODE_FRAME, SESSION_ROWS

CONFIG_SINCE = (3, 5)
"""The first version whose fresh tree has /zookeeper/config."""
COLUMNS = (
    *NODE_COLUMNS,
    Column("cversion", pa.int32(), "changes of its children, as a client sees it"),
    Column("num_children", pa.int32(), "children"),
)
"""What `Tree.nodes` gives."""
STATS = {
    "czxid": at.N_CZXID, "mzxid": at.N_MZXID, "ctime": at.N_CTIME, "mtime": at.N_MTIME, "version": at.N_VERSION,
    "cversion": at.N_CVERSION, "aversion": at.N_AVERSION, "owner": at.N_OWNER, "pzxid": at.N_PZXID,
}  # fmt: skip
_READ_ONLY = [{"perms": 1, "id": {"scheme": b"world", "id": b"anyone"}}]
_PIECE = 1 << 20
"""So many bytes of records are made at a time where they are written: their checksums read them again."""
_NOTES = 1024
_USUAL = 128
"""Bytes of a node in a snapshot, on the small side."""
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The digest of the tree after a transaction is not the one that is stored with it, or in a snapshot."""

    zxid: int
    stored: int
    computed: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What a transaction met that a server ignores: `state.NONODE`, `NODEEXISTS`, `MARSHALLING` (a part of a multi that can't be read,
    where it ends), `UNREAD` (it can't be read, and was not applied). `sub` is its place in a multi, else -1."""

    zxid: int
    sub: int
    code: int
    path: bytes


@dataclass(frozen=True, slots=True)
class Death:
    """What a server dies of when it applies a transaction: which of the records given, and the exception."""

    index: int
    code: int
    detail: int
    error: str


@dataclass(slots=True)
class Applied:
    """What became of some transactions."""

    count: int = 0
    """So many were applied."""
    digests: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Of the tree after each of the records given that was looked at."""
    mismatches: list[Mismatch] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    """The first of these; `notes` says how many there are."""
    notes: int = 0
    reached: bool = False
    """Whether it ended since what follows is beyond `upto`."""
    died: Death | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Which of the records given, if any, is the first one whose parent is not there, and the first one whose owner can't be: a server
    takes no snapshot with the one, and dies of the other."""

    orphan: int | None = None
    stranger: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `stat` has the names of `STATS`, as they are stored; `acl` is as ACLs are in rows, None where the table has none."""

    path: bytes
    data: bytes | None
    acl: list[dict[str, Any]] | None
    acl_id: int
    stat: dict[str, int]
    num_children: int


class Tree:
    """See the module. Paths are bytes as they are stored; "/" means the root too, whose path is the empty one.

    `digests`: whether the digest of the tree is kept up. `extended_types` as upstream's `extendedTypesEnabled`: without it a TTL node
    is an ephemeral one. `close_session_txn`: whether what closeSession names is deleted (`closeSessionTxn.enabled`, 3.6 on).
    `acl_lookups`: whether a change of a node dies of an ACL that is not there (3.9.2 and 3.8.4 on).
    `existing_by_path`: whether a node that was left behind when its parent was deleted keeps another from being made (3.9.4 and 3.8.5
    on). `monotonic`: whether a parent's cversion and pzxid only grow (3.6 on). `containers`: whether there are such (3.5.1 on).
    """

    COLUMNS = COLUMNS
    SNAPSHOT_COLUMNS = (
        "path", "path_raw", "data", "czxid", "mzxid", "ctime_ms", "mtime_ms", "version", "stored_cversion", "aversion", "ephemeral_owner",
        "pzxid", "kind", "ttl", "acl_id",
    )  # fmt: skip
    """What `of_rows` needs of a snapshot's rows."""
    TXN_COLUMNS = (
        "zxid", "session_id", "cxid", "type", "path", "data", "acl", "ephemeral", "parent_cversion", "version", "ttl", "time_out", "err",
        "paths_to_delete", "txns", "sub", "digest_version", "tree_digest", "time_ms", "path_raw", "acl_raw",
    )  # fmt: skip
    """What `apply` needs of a log's rows."""

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
    ) -> None:
        self._s = np.zeros(at.STATE_FIELDS, np.int64)
        for place, setting in (
            (at.DIGESTS, digests),
            (at.EXTENDED, extended_types * at.TTL_TYPES | (not containers) * at.NO_CONTAINERS),
            (at.NAMED_PATHS, close_session_txn),
            (at.LOOKUPS, acl_lookups),
            (at.BY_PATH, existing_by_path),
            (at.MONOTONIC, monotonic),
        ):
            self._s[place] = setting
        self._s[[at.ORPHAN, at.STRANGER, at.SUB]] = -1
        self._arena = np.empty(1 << 12, np.uint8)
        self._nodes = np.empty((16, at.NODE_FIELDS), np.int64)
        self._table = np.zeros(64, np.int64)
        self._sessions = np.empty((8, at.SESSION_FIELDS), np.int64)
        self._hashed = np.zeros(32, np.int64)
        self._acls = AclCache(self._s)
        self._stat = np.empty(at.STAT_SIZE, np.uint8)
        self._notes = np.empty((_NOTES, at.NOTE_FIELDS), np.int64)
        self._quotas = Quotas()
        self._target: tuple[int, int, int] | None = None

    # Beginning

    @classmethod
    def bare(cls, **settings: bool) -> Tree:
        """No nodes at all, not even the root: to load a snapshot into. `settings` are those of the class."""
        return cls(**settings)

    @classmethod
    def empty(cls, *, version: tuple[int, ...] = (3, 9), **settings: bool) -> Tree:
        """The tree of a server of that version that has begun with no files."""
        made = cls(**settings)
        paths = [b"", b"/zookeeper", b"/zookeeper/quota"]
        if version[:2] >= CONFIG_SINCE:
            paths.insert(2, b"/zookeeper/config")
        stat = {one.name: 0 for one in STAT_PERSISTED.fields}
        records = []
        for path in paths:
            config = path.endswith(b"/config")
            acl = made._acls.number(made._acls.add(1, LIST.pack(_READ_ONLY, {}))) if config else OPEN_ACL
            value = {
                "path": path,
                "data": b"",
                "acl": int(acl),
                "stat": stat | {"aversion": -1 if config else 0},
            }
            records.append(NODE.pack(value))
        ends = np.cumsum([0, *(len(one) for one in records)])
        acls = np.where(np.array(["config" in path.decode() for path in paths]), 1, OPEN_ACL)
        made._load(
            np.frombuffer(b"".join(records), np.uint8),
            ends[:-1].astype(np.int64),
            np.array([len(path) for path in paths], np.int32),
            np.zeros(len(paths), np.int32),
            acls.astype(np.int64),
        )
        return made

    @classmethod
    def of_snapshot(
        cls, read: Reader, *, zxid: int, compression: str = "none", check: bool = True, **settings: bool
    ) -> tuple[Tree, list[Fault]]:
        """The tree of a snapshot file, and what is wrong with the file: what can be read of a damaged one is loaded."""
        faults: list[Fault] = []
        if compression != "none":
            limit = int(Options(SNAPSHOT.options)["max.decompressed.bytes"])
            size = read.size
            made = expand(compression, read(0, size), limit)
            if made.error:
                faults.append(Fault(SNAPSHOT.name, 0, size, made.kind, made.error))
            read = _Expanded(made.data)
        context = SNAPSHOT.context("", Options(SNAPSHOT.options))
        out = cls(**settings)
        begun = orphaned = False
        for one in walk(read, SNAPSHOT, context, check=check):
            assert context.shape is not None
            if not begun:
                # Growing takes longer than loading; room that is not used is no memory.
                out._room_for_rows(read.size // _USUAL)
                out._room_for_bytes(read.size)
                out.load_shape(context.shape, zxid)
                begun = True
            if isinstance(one, Hole):
                faults.append(one.fault)
            else:
                faults += one.frames.faults
                orphan = out.load_frames(one.window, one.frames, context.shape).orphan
                if orphan is not None and not orphaned:
                    orphaned = True
                    start, stop = int(one.frames.start[orphan]), int(one.frames.end[orphan])
                    text = "the parent of the node does not come before it: unable to find parent"
                    place = one.window.offset + start
                    faults.append(
                        Fault(
                            SNAPSHOT.name,
                            place,
                            stop - start,
                            Kind.LINK,
                            text,
                            system="the server takes the next older snapshot",
                        )
                    )
        return out, faults

    @classmethod
    def of_rows(
        cls,
        batches: Iterable[pa.RecordBatch],
        sessions: pa.RecordBatch | None,
        acls: pa.RecordBatch | None,
        *,
        zxid: int,
        **settings: bool,
    ) -> Tree:
        """The tree of a snapshot's rows (`SNAPSHOT_COLUMNS`; a column `acl` counts where there is no `acl_id`), parents first, and of its
        session and ACL tables."""
        made = cls(**settings)
        table = AclTable.empty()
        if acls is not None:
            raw = acls.column("acl_raw") if "acl_raw" in acls.schema.names else None
            table = AclTable(
                np.asarray(acls.column("acl_id")).astype(np.int64), raw_lists(acls.column("acl"), raw)
            )
        made._acls.load(table)
        if sessions is not None:
            for one in sessions.to_pylist():
                made.add_session(one["session_id"], one["timeout"])
        made._s[at.LAST] = zxid
        lists = AclLists(table)
        known = len(lists.ids)
        for batch in batches:
            if not batch.num_rows:
                continue
            nodes = trees.stored(Given(pa.Table.from_batches([batch])), lists)
            for number, content in zip(lists.ids[known:], lists.lists[known:], strict=True):
                made._acls.add(number, content)
            known = len(lists.ids)
            first = 0
            for data, starts, paths, lengths in nodes.chunks(0, len(nodes)):
                made._load(data, starts, paths, lengths, nodes.acls[first : first + len(starts)])
                first += len(starts)
        return made

    def load_shape(self, shape: Shape, zxid: int) -> None:
        """What a snapshot has besides its nodes: sessions, ACL table, digest. `zxid` is that of the file's name."""
        self._acls.load(shape.acls)
        if shape.sessions is not None:
            for number, timeout in zip(
                shape.sessions["id"].tolist(), shape.sessions["timeout"].tolist(), strict=True
            ):
                self.add_session(number, timeout)
        self._s[at.LAST] = zxid
        self._target = None
        ending = shape.ending
        if ending is not None and ending.digest is not None:
            found, _ = DIGEST_SECTION.unpack(shape.read(ending.digest, DIGEST_SIZE).tobytes())
            if found["zxid"] > 0 and found["zxid"] >= zxid:
                self._target = found["zxid"], found["digest_version"], found["digest"]

    def load_frames(self, window: Window, frames: Frames, shape: Shape) -> Loaded:
        """Nodes of a plain snapshot, as its codec's scan finds them (sections among them are left out); of two with one path the last
        counts."""
        kinds = frames.header["kind"]
        which = np.flatnonzero(kinds == NODE_FRAME)
        nodes = frames if len(which) == len(frames) else frames.pick(kinds == NODE_FRAME)
        header = nodes.header
        first = int(self._s[at.ROWS])
        self._load(
            window.data,
            np.ascontiguousarray(nodes.start),
            np.ascontiguousarray(header["path"]),
            np.ascontiguousarray(header["data"]),
            np.ascontiguousarray(header["acl"]),
        )
        found = [int(which[row - first]) if row >= first else None for row in self._s[[at.ORPHAN, at.STRANGER]].tolist()]  # fmt: skip
        return Loaded(*found)

    def loaded(self) -> tuple[list[Mismatch], str | None]:
        """What a server does when it has read a snapshot: it counts what is below quotas, forgets ACLs that no node has, and compares
        the digest unless that is of a later zxid. Returns the mismatch, and what the server dies of."""
        died = self._quotas.found(self)
        self._acls.forget_unused()
        out = []
        if self._target is not None and self._target[0] == self.zxid:
            out = self._compare_target()
        return out, died

    # Sessions

    def add_session(self, number: int, timeout: int) -> None:
        """Open a session."""
        self._room_for_sessions(1)
        row = at.session_of(self._s, self._sessions, self._hashed, number)
        self._sessions[row, at.Z_TIMEOUT], self._sessions[row, at.Z_OPEN] = timeout, 1

    def reserve_acls(self, number: int) -> None:
        """Numbers of ACLs up to this one are given to none any more: a server does not set them back where it gives up on a snapshot."""
        self._acls.reserve(number)

    @property
    def session_timeouts(self) -> dict[int, int]:
        """The sessions that are open, and their timeouts in milliseconds, by id."""
        rows = self._sessions[: self._s[at.SESSIONS]]
        rows = rows[rows[:, at.Z_OPEN] == 1]
        return dict(sorted(zip(rows[:, at.Z_ID].tolist(), rows[:, at.Z_TIMEOUT].tolist(), strict=True)))

    def sessions(self) -> pa.RecordBatch:
        """The columns of `SESSION_ROWS`, by id."""
        found = self.session_timeouts
        arrays = [
            numbers(pa.int64(), np.array(list(found), np.int64)),
            numbers(pa.int32(), np.array(list(found.values()), np.int32)),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SESSION_ROWS.schema())

    def after_load(self, zxid: int | None = None, *, extended_types: bool | None = None) -> list[bytes]:
        """What a server does when all is replayed: nodes of sessions that are not open are deleted. Returns their paths.

        `extended_types`: as for the class, by which it goes too where nothing is said.
        """
        zxid = self.zxid if zxid is None else zxid
        extended = int(self._s[at.EXTENDED])
        if extended_types is not None:
            extended = extended & at.NO_CONTAINERS | extended_types * at.TTL_TYPES
        gone: list[bytes] = []
        rows = self._sessions[: self._s[at.SESSIONS]]
        for session in np.flatnonzero((rows[:, at.Z_OPEN] == 0) & (rows[:, at.Z_HEAD] >= 0)).tolist():
            if at.owner_kind(int(rows[session, at.Z_ID]), extended) != at.NORMAL:
                continue
            row = int(self._sessions[session, at.Z_HEAD])
            while row >= 0:
                if self._nodes[row, at.N_ALIVE]:
                    gone.append(self._path(row))
                row = int(self._nodes[row, at.N_NEXT])
            while True:
                why = apply.delete_owned(
                    session, zxid, self._s, self._arena, self._nodes, self._table, self._sessions, self._acls.slots, self._acls.lists,
                    self._quotas.counts, self._quotas.hashed, self._quotas.paths, self._stat, self._notes,
                )  # fmt: skip
                if why != at.HAPPENED:
                    break
                self._quotas.happened(self)
        self._s[at.NOTES] = self._s[at.COUNTED] = 0
        return gone

    # Transactions

    def apply_frames(
        self,
        window: Window,
        frames: Frames,
        *,
        since: int | None = None,
        upto: int | None = None,
        check: bool = False,
    ) -> Applied:
        """Apply the transactions of a log, as its codec's scan finds them, in order. Those at the start with a zxid up to `since`
        are left out, nothing is applied from the first one behind `upto` on. `check`: digests are compared."""
        header = np.ascontiguousarray(frames.header).view(np.int64).reshape(-1, HEAD_FIELDS)
        which = np.flatnonzero(frames.header["kind"] == TXN_FRAME)
        if since is not None and len(which):
            later = header[which, ZXID] > since
            which = which[int(np.argmax(later)) :] if later.any() else which[:0]
        out = Applied()
        if not len(which):
            return out
        first = int(which[0])
        whole = int(which[-1]) - first + 1 == len(which)
        ends = np.cumsum(frames.end[which] - frames.start[which])
        parts, done = [], 0
        while done < len(which):
            below = int(ends[done - 1]) if done else 0
            stop = max(done + 1, int(np.searchsorted(ends, below + pack.PORTION, "right")))
            some = slice(first + done, first + stop) if whole else which[done:stop]
            digests = self._apply(
                window.data,
                np.ascontiguousarray(frames.start[some]),
                np.ascontiguousarray(frames.end[some]),
                np.ascontiguousarray(header[some]),
                _NEVER if upto is None else upto,
                check,
                out,
            )
            parts.append(digests)
            if out.died is not None:
                at_fault = out.died
                place = int(which[done + at_fault.index])
                out.died = Death(place, at_fault.code, at_fault.detail, at_fault.error)
            if out.died is not None or out.reached:
                break
            done = stop
        out.digests = np.concatenate(parts)
        return out

    def apply(
        self,
        batch: pa.RecordBatch,
        *,
        since: int | None = None,
        upto: int | None = None,
        check: bool = False,
    ) -> Applied:
        """The same from rows (`TXN_COLUMNS`). A multi in rows of its own must be whole in the batch."""
        if since is not None and batch.num_rows:
            later = np.asarray(batch.column("zxid")) > since
            batch = batch.slice(int(np.argmax(later))) if later.any() else batch.slice(batch.num_rows)
        if not batch.num_rows:
            return Applied()
        context = txnlog.CODEC.context("", Options(txnlog.OPTIONS))
        data = np.frombuffer(
            b"".join(bytes(one) for one in pack.encode(pa.Table.from_batches([batch]), None, None, context)),
            np.uint8,
        )
        window = Window(data, 0, len(data))
        frames = txnlog.CODEC.scan(window, 0, context, check=False)
        return self.apply_frames(window, frames, upto=upto, check=check)

    def _apply(
        self, buf: Bytes, starts: Int64s, ends: Int64s, heads: Int64s, upto: int, check: bool, out: Applied
    ) -> Int64s:
        bodies, _ = Bodies.of(buf, starts + BODY, ends - 1)
        digests = np.empty(len(starts), np.int64)
        part = np.empty((MEASURES, 1), np.int64)
        s = self._s
        s[[at.RECORD, at.SUB, at.POSITION, at.UPTO, at.NOTES, at.COUNTED, at.UNAPPLIED]] = (
            0,
            -1,
            0,
            upto,
            0,
            0,
            0,
        )
        payload_ends = ends - 1
        crcs = np.empty(len(starts), np.int64)
        apply.hash_paths(buf, bodies.found, crcs)
        died: Death | None = None
        while died is None:
            why = apply.apply(
                buf, payload_ends, heads, bodies.found, crcs, part, s, self._arena, self._nodes, self._table, self._sessions, self._hashed,
                self._acls.slots, self._acls.forms, self._acls.lists, self._acls.data, self._quotas.counts, self._quotas.hashed,
                self._quotas.paths, self._stat, digests, self._notes,
            )  # fmt: skip
            if why in (at.DONE, at.REACHED):
                break
            if why == at.DIED:
                code, detail = int(s[at.CODE]), int(s[at.DETAIL])
                died = Death(int(s[at.RECORD]), code, detail, _death(code, detail))
            elif why == at.HAPPENED:
                # A multi, or the end of a session, may not be at its end.
                died = _died_of_quota(self._quotas.happened(self), int(s[at.RECORD]) - (not s[at.POSITION]))
            elif why == at.NEED_ACL:
                _, stop, _ = skip_acl(buf, int(s[at.DETAIL]), len(buf))
                content = buf[int(s[at.DETAIL]) : int(stop)].tobytes()
                if nameless(content):
                    died = Death(int(s[at.RECORD]), at.IS_NULL, 0, _death(at.IS_NULL, 0))
                else:
                    self._acls.learn(content)
            else:
                self._make_room(int(why), int((ends - starts).max()))
        if died is None:
            died = _died_of_quota(self._quotas.write(self), int(s[at.RECORD]) - 1)
        n = int(s[at.RECORD]) if died is None else died.index
        out.died = died
        out.reached = why == at.REACHED
        out.count += n - int(s[at.UNAPPLIED])
        out.notes += int(s[at.COUNTED])
        for note in self._notes[: min(int(s[at.NOTES]), _NOTES - len(out.noted))].tolist():
            out.noted.append(self._noted(note, buf, heads))
        self._compare(heads[:n], bodies.found[:, :n], digests[:n], check, out)
        return digests[:n]

    def _noted(self, note: list[int], buf: Bytes, heads: Int64s) -> Noted:
        place, size = note[at.NOTE_AT], note[at.NOTE_SIZE]
        where = buf if place >= 0 else self._arena
        place = place if place >= 0 else -1 - place
        path = where[place : place + size].tobytes()
        return Noted(int(heads[note[at.NOTE_RECORD], ZXID]), note[at.NOTE_SUB], note[at.NOTE_CODE], path)

    # Digests

    @property
    def digest(self) -> int:
        """Of the tree, as Java's long. Only where digests are kept."""
        return signed(int(self._s[at.TOTAL]))

    def digest_of(self, nodes: int) -> int | None:
        """The digest of so many nodes, those that a walk from the root meets, where it is known without looking at them."""
        return self.digest if self._s[at.DIGESTS] and self._s[at.LIVE] == nodes else None

    @property
    def target(self) -> tuple[int, int, int] | None:
        """The digest of the snapshot (its zxid, version, value), as long as it was not compared: that zxid is not reached."""
        return self._target

    def _compare_target(self) -> list[Mismatch]:
        """The digest of the snapshot, whose zxid is reached."""
        assert self._target is not None
        (zxid, version, stored), self._target = self._target, None
        if version != VERSION or stored == self.digest or not self._s[at.DIGESTS]:
            return []
        return [Mismatch(zxid, stored, self.digest)]

    def _compare(self, heads: Int64s, found: Int64s, digests: Int64s, check: bool, out: Applied) -> None:
        """As `compareDigest` and `compareSnapshotDigests`: up to the zxid of the snapshot's digest nothing is compared."""
        first = 0
        if self._target is not None:
            zxid, version, stored = self._target
            there = np.flatnonzero(heads[:, ZXID] == zxid)
            if not len(there):
                return
            first = int(there[0])
            self._target = None
            if check and version == VERSION and stored != digests[first]:
                out.mismatches.append(Mismatch(zxid, stored, int(digests[first])))
        if check and self._s[at.DIGESTS]:
            wrong = (found[DIGEST, first:] == VERSION) & (found[DIGEST_VALUE, first:] != digests[first:])
            for i in (np.flatnonzero(wrong) + first).tolist():
                out.mismatches.append(
                    Mismatch(int(heads[i, ZXID]), int(found[DIGEST_VALUE, i]), int(digests[i]))
                )

    # Looking

    def __len__(self) -> int:
        """The nodes that a walk from the root meets: those that a snapshot would have."""
        return len(self._rows(False))

    @property
    def zxid(self) -> int:
        """The last transaction that was applied."""
        return int(self._s[at.LAST])

    @property
    def quota_paths(self) -> list[bytes]:
        return sorted(self._quotas.by_path)

    @property
    def dangling(self) -> set[int]:
        """Numbers of ACLs that nodes have and the table does not."""
        return self._acls.missing(self._nodes[self._live(), at.N_ACL])

    def find(self, paths: pa.Array) -> Int64s:
        """The row of each path (a binary column), for as long as nothing is changed; -1 where there is no such node."""
        data, ends, _ = flat(paths)
        out = np.empty(len(paths), np.int64)
        at.find_all(self._arena, self._nodes, self._table, data, np.ascontiguousarray(ends, np.int32), out)
        return out

    def stats(self, rows: Int64s) -> dict[str, Int64s]:
        """The stats of nodes by `STATS`, as they are stored, and "num_children"."""
        columns = {**STATS, "num_children": at.N_CHILDREN}
        return {name: self._nodes[rows, column] for name, column in columns.items()}

    def contents(self, rows: Int64s) -> tuple[pa.Array, Int64s, list[list[dict[str, Any]] | None]]:
        """The data of nodes, which of the ACLs that follow each has, and these (None: the table has it not)."""
        self._quotas.write(self)
        starts, sizes, slots = (
            np.ascontiguousarray(self._nodes[rows, one]) for one in (at.N_DATA, at.N_DATA_SIZE, at.N_ACL)
        )
        own, which = np.unique(slots, return_inverse=True)
        found = [self._acls.content(slot) if slot >= 0 else None for slot in own.tolist()]
        lists: list[list[dict[str, Any]] | None] = [
            [dict(each) for each in OPEN] if slot < 0 else None if one is None else entries(one)
            for slot, one in zip(own.tolist(), found, strict=True)
        ]
        return binary(self._arena, starts, sizes), which.astype(np.int64), lists

    def get(self, path: bytes) -> Node | None:
        row = self._row(path)
        if row < 0:
            return None
        stat = {name: int(self._nodes[row, column]) for name, column in STATS.items()}
        slot = int(self._nodes[row, at.N_ACL])
        acl: list[dict[str, Any]] | None = [dict(one) for one in OPEN]
        if slot >= 0:
            found = self._acls.content(slot)
            acl = None if found is None else entries(found)
        return Node(
            self._path(row),
            self._data(row),
            acl,
            self._acls.number(slot),
            stat,
            int(self._nodes[row, at.N_CHILDREN]),
        )

    def children(self, path: bytes) -> list[bytes]:
        """The paths of a node's children, in order."""
        row = self._row(path)
        if row < 0:
            return []
        used = self._nodes[: self._s[at.ROWS]]
        below = np.flatnonzero((used[:, at.N_PARENT] == row) & (used[:, at.N_ALIVE] == 1))
        return sorted(self._path(one) for one in below.tolist())

    def ttl_paths(self) -> list[bytes]:
        """The paths of nodes with a TTL, also where they are taken for ephemeral ones."""
        rows = self._live()
        rows = rows[kinds_of(self._nodes[rows, at.N_OWNER]) == TTLS]
        return sorted(self._path(row) for row in rows.tolist())

    def orphans(self) -> list[bytes]:
        """The paths of nodes that are there and that no walk from the root meets, in order."""
        reached = np.zeros(int(self._s[at.ROWS]), np.uint8)
        at.reach(self._nodes, len(reached), reached)
        lost = (reached == 0) & (self._nodes[: len(reached), at.N_ALIVE] == 1)
        return sorted(self._path(row) for row in np.flatnonzero(lost).tolist())

    def nodes(self, columns: Sequence[str], *, order: bool = True) -> Iterator[pa.RecordBatch]:
        """The nodes that a walk from the root meets, in pieces of bounded size: columns of `COLUMNS`. `order`: by the bytes of the path;
        else in the order in which they came to be. Parents come first in both."""
        wanted = {one.name: one for one in COLUMNS}
        schema = pa.schema([pa.field(name, wanted[name].type, wanted[name].nullable) for name in columns])
        shape = Shape(0, lambda offset, length: np.empty(0, np.uint8), acls=self._acls.table())
        for rows, data, frames in self._records(self._rows(order), with_data="data" in columns):
            nodes = Nodes(Window(data, 0, len(data)), frames, shape)
            arrays = [self._column(name, rows, nodes) for name in columns]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:
                yield pa.RecordBatch.from_struct_array(pa.nulls(len(rows), pa.struct([])))

    def records(self, *, order: bool = True) -> Iterator[tuple[Bytes, Frames]]:
        """The same as a snapshot has them: bytes, and the records in these."""
        for _, data, frames in self._records(self._rows(order), with_data=True, portion=_PIECE):
            yield data, frames

    def acls(self) -> pa.RecordBatch:
        """The ACL table, by number: the columns of `ACL_ROWS`."""
        shape = Shape(0, lambda offset, length: np.empty(0, np.uint8), acls=self._acls.table())
        arrays = acl_arrays(shape)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in ACL_ROWS.names(detail=True)],
            schema=ACL_ROWS.schema(ACL_ROWS.names(detail=True)),
        )

    def acl_uses(self) -> dict[int, int]:
        """How often each number of the ACL table counts as used, as the server counts it."""
        return self._acls.uses()

    def _column(self, name: str, rows: Int64s, nodes: Nodes) -> pa.Array:
        if name == "num_children":
            return numbers(pa.int32(), self._nodes[rows, at.N_CHILDREN].astype(np.int32))
        if name == "cversion":
            made = 2 * self._nodes[rows, at.N_CVERSION] - self._nodes[rows, at.N_CHILDREN]
            return numbers(pa.int32(), made.astype(np.int32))
        if name == "data_length":
            return numbers(pa.int32(), np.maximum(self._nodes[rows, at.N_DATA_SIZE], 0))
        return nodes.column(name)

    def _records(
        self, rows: Int64s, *, with_data: bool, portion: int = PORTION
    ) -> Iterator[tuple[Int64s, Bytes, Frames]]:
        """Nodes in pieces, as records; without data they are as if that were null."""
        self._quotas.write(self)
        sizes = self._nodes[rows, at.N_PATH_SIZE] + (2 * LENGTH + FIXED)
        if with_data:
            sizes += np.maximum(self._nodes[rows, at.N_DATA_SIZE], 0)
        ends = np.cumsum(sizes)
        first = 0
        while first < len(rows):
            below = int(ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, below + portion, "right")))
            some = rows[first:stop]
            data = np.empty(int(ends[stop - 1]) - below, np.uint8)
            starts, acls = np.empty(len(some), np.int64), np.empty(len(some), np.int64)
            paths, lengths = np.empty(len(some), np.int32), np.empty(len(some), np.int32)
            at.records(
                self._nodes,
                self._acls.slots,
                self._arena,
                some,
                int(with_data),
                data,
                starts,
                paths,
                lengths,
                acls,
            )
            head = np.zeros(len(some), HEAD)
            head["kind"], head["path"], head["data"], head["acl"] = NODE_FRAME, paths, lengths, acls
            yield some, data, Frames(starts, np.append(starts[1:], len(data)), head, len(data))
            first = stop

    def _rows(self, order: bool) -> Int64s:
        reached = np.zeros(int(self._s[at.ROWS]), np.uint8)
        at.reach(self._nodes, len(reached), reached)
        rows = np.flatnonzero(reached)
        if order:
            paths = binary(
                self._arena,
                np.ascontiguousarray(self._nodes[rows, at.N_PATH]),
                np.ascontiguousarray(self._nodes[rows, at.N_PATH_SIZE]),
            )
            data, ends, _ = flat(paths)
            if not trees.ascending(data, ends, -1):
                rows = rows[np.asarray(pc.sort_indices(paths)).astype(np.int64)]
        return rows

    def _live(self) -> Int64s:
        return np.flatnonzero(self._nodes[: self._s[at.ROWS], at.N_ALIVE])

    def _row(self, path: bytes) -> int:
        if path == b"/":
            path = b""
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
        """Data that comes without a transaction, of a node that does not count in the digest."""
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

    def copy(self) -> Tree:
        """Another tree, which changes on its own."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        made = dict(self.__dict__)
        made["_arena"] = self._arena[: self._s[at.USED]]
        made["_nodes"] = self._nodes[: self._s[at.ROWS]]
        return made

    # Room

    def _load(self, buf: Bytes, starts: Int64s, paths: Any, data: Any, acls: Int64s) -> None:
        count = len(starts)
        if not count:
            return
        s = self._s
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
        """Move the nodes that are there together, in their order."""
        s = self._s
        rows = int(s[at.ROWS])
        alive = self._nodes[:rows, at.N_ALIVE] == 1
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        kept = self._nodes[:rows][alive]
        # The last one stands for a parent that there is none of.
        kept[:, at.N_PARENT] = np.append(place, -1)[kept[:, at.N_PARENT]]
        self._nodes[: len(kept)] = kept
        entries = self._table[self._table > 0]
        entries += place[(entries & at.ROW_MASK) - 1] + 1 - (entries & at.ROW_MASK)
        self._table[:] = 0
        s[at.FILLED] = at.rehash(self._table, entries)
        s[at.ROWS] = len(kept)
        for one in (at.ORPHAN, at.STRANGER):
            s[one] = min(int(s[one]), 0)  # whether there was one is all that is asked of these
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
        if 2 * (int(s[at.FILLED]) + more) > len(self._table):
            table = np.zeros(1 << (4 * (int(s[at.LIVE]) + more)).bit_length(), np.int64)
            s[at.FILLED] = at.rehash(table, self._table)
            self._table = table

    def _room_for_sessions(self, more: int) -> None:
        used = int(self._s[at.SESSIONS])
        if used + more > len(self._sessions):
            self._sessions = at.grown(self._sessions, used, used + more)
            self._hashed = np.zeros(1 << (2 * len(self._sessions)).bit_length(), np.int64)
            at.rehash_sessions(self._sessions, used, self._hashed)


class _Expanded(Reader):
    """What a compressed file holds."""

    def __init__(self, data: Bytes) -> None:
        self._inside = data
        self.size, self.bad = len(data), {}

    def __call__(self, offset: int, length: int) -> Bytes:
        return self._inside[offset : offset + length]


def _died_of_quota(error: str | None, index: int) -> Death | None:
    return None if error is None else Death(index, at.BAD_QUOTA, 0, error)


def _death(code: int, detail: int) -> str:
    if code == at.NO_SLASH:
        return f"StringIndexOutOfBoundsException: begin 0, end -1, length {detail}"
    if code == at.IS_NULL:
        return "NullPointerException"
    if code == at.BAD_TTL:
        return f"IllegalArgumentException: ttl must be positive and cannot be larger than: {TTL_MAX}"
    if code == at.BAD_OWNER:
        return f"IllegalArgumentException: Invalid ephemeralOwner. [{zxid_text(detail)[2:]}]"
    return f"RuntimeException: Failed to fetch acls for {detail}"
