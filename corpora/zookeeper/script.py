"""Build the files of a small data directory from the descriptions of their structures.

The effects of transactions are implemented independently here, on a dictionary of nodes, without logwright's reader, writer or replay.
"""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.describe import Struct
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST,
    END,
    HEADER,
    LAST_PROCESSED,
    SEAL_SIZE,
    SESSIONS,
)
from logwright.codec.zookeeper.formats.txnlog.layout import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_SESSION,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    ERROR,
    FILE_HEADER,
    MULTI,
    RECORD,
    SET_ACL,
    SET_DATA,
)
from logwright.codec.zookeeper.names import log_name, snapshot_name
from logwright.corpora.rng import Rng, text

EPOCH_TIME = 1_700_000_000_000
_CONTAINER, _TTL = -(1 << 63), 0xFF << 56
_OPEN = [{"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}}]
_LISTS = (
    _OPEN,
    [{"perms": 1, "id": {"scheme": b"ip", "id": b"10.0.0.0/8"}}],
    [
        {"perms": 31, "id": {"scheme": b"digest", "id": b"user:x="}},
        {"perms": 1, "id": {"scheme": b"world", "id": b"anyone"}},
    ],
)
_NAMES = ("app", "lock-0000000001", "\u00fcber", "\u6570", "a.b", "Z")
Change = tuple[int, dict[str, Any]]
"""A transaction type and its body."""


@dataclass
class _Node:
    data: bytes | None
    acl: list[dict[str, Any]] | None
    stat: dict[str, int] = field(default_factory=dict)


def _stat(zxid: int = 0, time: int = 0, owner: int = 0) -> dict[str, int]:
    counters = dict.fromkeys(("version", "cversion", "aversion"), 0)
    return {
        "czxid": zxid,
        "mzxid": zxid,
        "ctime": time,
        "mtime": time,
        **counters,
        "ephemeral_owner": owner,
        "pzxid": zxid,
    }


def _out(paths: list[str], path: str) -> None:
    del paths[bisect_left(paths, path)]


class Script:
    """A directory of `count` transactions: a log of the first half, a snapshot, and a second log; without `split` one log."""

    def __init__(self, rng: Rng, rows: int, *, split: bool = True) -> None:
        self._rng = rng
        self._words = text(rng, 1 << 12)
        self.nodes: dict[str, _Node] = {}
        # The nodes that are not the server's own, in order: all, those without children, and those that may have children.
        self._ours: list[str] = []
        self._bare: list[str] = []
        self._homes: list[str] = []
        self._children: Counter[str] = Counter()
        for path in ("", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
            self.nodes[path] = _Node(b"", None, _stat())
        config = self.nodes["/zookeeper/config"]
        config.acl, config.stat["aversion"] = [{"perms": 1, "id": {"scheme": b"world", "id": b"anyone"}}], -1
        self.sessions: dict[int, int] = {}
        self.txns: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {snapshot_name(0): self._snapshot(0)}
        middle = rows // 2 if split else 0
        log = bytearray(FILE_HEADER.pack({}))
        first = 1
        for zxid in range(1, rows + 1):
            log += self._next(zxid)
            if zxid in (middle, rows):
                self.files[log_name(first)] = bytes(log)
                log, first = bytearray(FILE_HEADER.pack({})), zxid + 1
            if zxid == middle:
                self.files[snapshot_name(zxid, "gz")] = gzip.compress(self._snapshot(zxid), mtime=0)
        self.log = self.files.get(log_name(1), bytes(log))
        """The first transaction."""
        self.snapshot = self._snapshot(rows)
        """The digest of the final tree."""

    def tree(self) -> list[dict[str, Any]]:
        """Return the nodes, sorted by path."""
        rows = [
            {
                "path": path or "/",
                "data": node.data,
                "stored_cversion": node.stat["cversion"],
                **{name: node.stat[name] for name in ("czxid", "mzxid", "version", "aversion", "pzxid")},
                **_kind(node.stat["ephemeral_owner"]),
            }
            for path, node in self.nodes.items()
        ]
        return sorted(rows, key=lambda row: str(row["path"]).encode())

    # Transactions

    def _next(self, zxid: int) -> bytes:
        time = EPOCH_TIME + 10 * zxid
        kind, body, session = self._choose(zxid)
        changes = (
            [(txn["type"], txn["data"]) for txn in body["txns"]]
            if kind == MULTI and body is not None
            else [(kind, body)]
        )
        if not any(change == ERROR for change, _ in changes):
            for change, inner in changes:
                self._apply(change, inner, session, zxid, time)
        payload = {
            "client_id": session,
            "cxid": zxid % 97,
            "zxid": zxid,
            "time": time,
            "type": kind,
            "body": body,
            "digest": None,
        }
        self.txns.append({"zxid": zxid, "time_ms": time, "session_id": session, "type": kind})
        return RECORD.pack({"payload": payload})

    def _choose(self, zxid: int) -> tuple[int, dict[str, Any] | None, int]:
        rng = self._rng
        session = rng.choice(sorted(self.sessions)) if self.sessions else 0
        kind = rng.below(20)
        if not session or kind == 0:
            return CREATE_SESSION, {"time_out": 1000 * (4 + rng.below(40))}, 0x100000000000000 + zxid
        if kind == 1 and len(self.sessions) > 1:
            mine = sorted(
                path for path, node in self.nodes.items() if node.stat["ephemeral_owner"] == session
            )
            # With a body, or without one as in old versions.
            body = None if rng.below(3) == 0 else {"paths_to_delete": [path.encode() for path in mine]}
            return CLOSE_SESSION, body, session
        if kind == 2:
            return ERROR, {"err": rng.choice([-101, -110, -103])}, session
        if kind == 3:
            return MULTI, {"txns": self._multi()}, session
        return (*self._change(), session)

    def _multi(self) -> list[dict[str, Any]]:
        """Make a multi transaction that fails, without effect, or one that succeeds; each operation sees the previous ones."""
        if self._rng.below(3) == 0:
            kind, body = self._change(allowed=(CREATE, SET_DATA))
            return [
                {"type": kind, "data": body},
                {"type": ERROR, "data": {"err": -110}},
                {"type": ERROR, "data": {"err": -2}},
            ]
        kind, body = self._change(allowed=(CREATE, SET_DATA))
        root = self.nodes[""]
        return [
            {"type": CHECK, "data": {"path": b"/", "version": root.stat["version"] + 1}},
            {"type": kind, "data": body},
        ][self._rng.below(2) :]

    def _change(self, allowed: tuple[int, ...] | None = None) -> Change:
        rng = self._rng
        kinds = allowed or (
            CREATE,
            CREATE,
            CREATE2,
            CREATE_TTL,
            CREATE_CONTAINER,
            SET_DATA,
            SET_DATA,
            SET_ACL,
            DELETE,
            DELETE_CONTAINER,
        )
        kind = rng.choice(list(kinds))
        ours = self._ours
        if kind in (DELETE, DELETE_CONTAINER):
            if self._bare:
                return kind, {"path": rng.choice(self._bare).encode()}
            kind = CREATE
        if kind in (SET_DATA, SET_ACL) and ours:
            path = rng.choice(ours)
            stat = self.nodes[path].stat
            if kind == SET_DATA:
                return kind, {"path": path.encode(), "data": self._data(), "version": stat["version"] + 1}
            return kind, {
                "path": path.encode(),
                "acl": rng.choice(list(_LISTS)),
                "version": stat["aversion"] + 1,
            }
        if kind in (SET_DATA, SET_ACL):
            kind = CREATE
        above = rng.choice(["", *self._homes])
        count = self.nodes[above].stat["cversion"]
        path = f"{above}/{rng.choice(list(_NAMES))}-{count}"
        body: dict[str, Any] = {
            "path": path.encode(),
            "data": self._data(),
            "acl": rng.choice(list(_LISTS)),
            "parent_cversion": count + 1,
        }
        if kind in (CREATE, CREATE2):
            body["ephemeral"] = int(rng.below(4) == 0)
        if kind == CREATE_TTL:
            body["ttl"] = 1 + rng.below(1 << 31)
        return kind, body

    def _data(self) -> bytes | None:
        size = self._rng.choice([0, 1, 20, 20, 300, 3000])
        return None if self._rng.below(9) == 0 else self._words[:size]

    # Effects

    def _apply(self, kind: int, body: Mapping[str, Any] | None, session: int, zxid: int, time: int) -> None:
        if kind == CREATE_SESSION:
            assert body is not None
            self.sessions[session] = body["time_out"]
        elif kind == CLOSE_SESSION:
            del self.sessions[session]
            for path in [
                item for item, node in self.nodes.items() if node.stat["ephemeral_owner"] == session
            ]:
                self._delete(path, zxid)
        elif kind not in (ERROR, CHECK) and body is not None:
            path = body["path"].decode()
            node = self.nodes.get(path)
            if kind in (DELETE, DELETE_CONTAINER):
                self._delete(path, zxid)
            elif kind == SET_DATA and node is not None:
                node.data = body["data"]
                node.stat |= {"mzxid": zxid, "mtime": time, "version": body["version"]}
            elif kind == SET_ACL and node is not None:
                node.acl, node.stat["aversion"] = body["acl"], body["version"]
            else:
                owner = session if body.get("ephemeral") else 0
                owner = _CONTAINER if kind == CREATE_CONTAINER else owner
                owner = (_TTL | body["ttl"]) - (1 << 64) if kind == CREATE_TTL else owner
                self._create(path, _Node(body["data"], body["acl"], _stat(zxid, time, owner)))
                parent = self.nodes[path.rpartition("/")[0]].stat
                parent |= {"cversion": body["parent_cversion"], "pzxid": zxid}

    def _create(self, path: str, node: _Node) -> None:
        above = path.rpartition("/")[0]
        self.nodes[path] = node
        self._children[above] += 1
        insort(self._ours, path)
        insort(self._bare, path)
        if not _ephemeral(node.stat["ephemeral_owner"]):
            insort(self._homes, path)
        if self._children[above] == 1 and above:
            _out(self._bare, above)

    def _delete(self, path: str, zxid: int) -> None:
        above = path.rpartition("/")[0]
        node = self.nodes.pop(path)
        self.nodes[above].stat["pzxid"] = zxid
        self._children[above] -= 1
        _out(self._ours, path)
        _out(self._bare, path)
        if not _ephemeral(node.stat["ephemeral_owner"]):
            _out(self._homes, path)
        if not self._children[above] and above:
            insort(self._bare, above)

    # Stored form

    def _snapshot(self, zxid: int) -> bytes:
        lists: list[Any] = []
        for node in self.nodes.values():
            if node.acl is not None and node.acl not in lists:
                lists.append(node.acl)
        sessions = [{"id": number, "timeout": timeout} for number, timeout in self.sessions.items()]
        entries = [{"id": i + 1, "acl": item} for i, item in enumerate(lists)]
        out = bytearray(
            HEADER.pack({}) + SESSIONS.pack({"sessions": sessions}) + ACLS.pack({"entries": entries})
        )
        digest = 0
        for path in sorted(self.nodes):
            node = self.nodes[path]
            acl = -1 if node.acl is None else lists.index(node.acl) + 1
            out += NODE.pack({"path": path.encode(), "data": node.data, "acl": acl, "stat": node.stat})
            digest += 0 if path.startswith("/zookeeper/") else _digest(path, node)
        _seal(out, END, {})
        digest = (digest + (1 << 63)) % (1 << 64) - (1 << 63)
        _seal(out, DIGEST, {"zxid": zxid, "digest_version": 2, "digest": digest if zxid else 0})
        _seal(out, LAST_PROCESSED, {"last_processed_zxid": zxid})
        return bytes(out)


def _ephemeral(owner: int) -> bool:
    return bool(_kind(owner)["kind"] == "ephemeral")


def _kind(owner: int) -> dict[str, Any]:
    bits = owner % (1 << 64)
    if owner == _CONTAINER:
        return {"kind": "container", "ttl": None, "ephemeral_owner": 0}
    if bits >> 56 == 0xFF:
        return {"kind": "ttl", "ttl": bits & 0xFFFFFFFFFF, "ephemeral_owner": 0}
    return {"kind": "ephemeral" if owner else "persistent", "ttl": None, "ephemeral_owner": owner}


def _digest(path: str, node: _Node) -> int:
    stat = node.stat
    longs = [stat[name] for name in ("czxid", "mzxid", "pzxid", "ctime", "mtime")]
    ints = [stat[name] for name in ("version", "cversion", "aversion")]
    parts = [integer.to_bytes(8, "big", signed=True) for integer in longs] + [
        integer.to_bytes(4, "big", signed=True) for integer in ints
    ]
    return zlib.crc32(
        path.encode()
        + (node.data or b"")
        + b"".join(parts)
        + stat["ephemeral_owner"].to_bytes(8, "big", signed=True)
    )


def _seal(out: bytearray, struct: Struct, fields: dict[str, Any]) -> None:
    section = struct.pack({**fields, "checksum": 0})
    out += section[:-SEAL_SIZE]
    out += zlib.adler32(bytes(out)).to_bytes(8, "big") + section[-SEAL_SIZE + 8 :]
