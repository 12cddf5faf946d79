"""A plain Python model of ZooKeeper's `DataTree`, rule by rule, for tests."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.state.columns import CONTAINER

Txn = dict[str, Any]
QUOTA = b"/zookeeper/quota"
LIMITS, STATS = b"zookeeper_limits", b"zookeeper_stats"
READ_ONLY = ((1, b"world", b"anyone"),)
TTL_OWNER = -(1 << 56)


class DeadError(Exception):
    """The server would crash."""


class NoNodeError(Exception):
    pass


class ExistsError(Exception):
    pass


@dataclass
class ModelNode:
    data: bytes | None
    acl: int
    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    pzxid: int = 0
    children: set[bytes] = field(default_factory=set)

    def digest(self, path: bytes) -> int:
        head = b"".join(
            value.to_bytes(8, "big", signed=True)
            for value in (self.czxid, self.mzxid, self.pzxid, self.ctime, self.mtime)
        )
        middle = b"".join(
            value.to_bytes(4, "big", signed=True) for value in (self.version, self.cversion, self.aversion)
        )
        return zlib.crc32(
            path + (self.data or b"") + head + middle + self.owner.to_bytes(8, "big", signed=True)
        )


class Model:
    def __init__(self, extended: bool) -> None:
        self.extended = extended
        self.nodes: dict[bytes, ModelNode] = {}
        self.sessions: dict[int, int] = {}
        self.ephemerals: dict[int, set[bytes]] = {}
        self.lists: dict[int, Any] = {}
        self.numbers: dict[Any, int] = {}
        self.refs: dict[int, int] = {}
        self.index = 0
        self.quotas: set[bytes] = set()
        self.zxid = 0

    @classmethod
    def fresh(cls, extended: bool) -> Model:
        result = cls(extended)
        for path in (b"", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config"):
            result.nodes[path] = ModelNode(b"", -1)
            if path:
                parent, _, name = path.rpartition(b"/")
                result.nodes[parent].children.add(name)
        result.nodes[b"/zookeeper/config"].acl = result.convert(READ_ONLY)
        result.nodes[b"/zookeeper/config"].aversion = -1
        return result

    @property
    def digest(self) -> int:
        return sum(
            node.digest(path) for path, node in self.nodes.items() if not path.startswith(b"/zookeeper/")
        )

    # ACLs

    def convert(self, acl: Any) -> int:
        if acl is None:
            return -1
        number = self.numbers.get(acl)
        if number is None:
            self.index += 1
            number = self.numbers[acl] = self.index
            self.lists[number] = acl
            self.refs[number] = 0
        self.refs[number] += 1
        return number

    def release(self, number: int) -> None:
        if number in self.lists:
            self.refs[number] -= 1
            if self.refs[number] <= 0:
                del self.numbers[self.lists.pop(number)]
                del self.refs[number]

    # Nodes

    def get(self, path: bytes) -> ModelNode | None:
        return self.nodes.get(b"" if path == b"/" else path)

    def create(
        self, path: bytes, data: bytes | None, acl: Any, owner: int, cversion: int, zxid: int, time: int
    ) -> None:
        if b"/" not in path:
            raise DeadError
        above, _, name = path.rpartition(b"/")
        parent = self.nodes.get(above)
        if parent is None:
            raise NoNodeError
        number = self.convert(acl)
        there = self.get(path)
        if there is not None:
            there.acl = number
            raise ExistsError
        self.grow(parent, cversion, zxid)
        parent.children.add(name)
        self.nodes[path] = ModelNode(data, number, zxid, zxid, time, time, owner=owner, pzxid=zxid)
        if self.is_session(owner):
            self.ephemerals.setdefault(owner, set()).add(path)
        if above.startswith(QUOTA):
            if name == LIMITS:
                if above == QUOTA:
                    raise DeadError
                self.quotas.add(above[len(QUOTA) :])
            if name == STATS:
                self.recount(above[len(QUOTA) :])
        self.count(path, len(data or b""), 1)

    def is_session(self, owner: int) -> bool:
        if self.extended and TTL_OWNER <= owner < 0:
            return False
        return owner not in (0, CONTAINER)

    def grow(self, parent: ModelNode, cversion: int, zxid: int) -> None:
        if cversion == -1:
            cversion = parent.cversion + 1
        if cversion > parent.cversion:
            parent.cversion, parent.pzxid = cversion, zxid

    def delete(self, path: bytes, zxid: int) -> None:
        if b"/" not in path:
            raise DeadError
        above, _, name = path.rpartition(b"/")
        parent = self.nodes.get(above)
        if parent is None:
            raise NoNodeError
        parent.children.discard(name)
        parent.pzxid = max(parent.pzxid, zxid)
        node = self.nodes.pop(path, None)
        if node is None:
            raise NoNodeError
        self.release(node.acl)
        if self.is_session(node.owner):
            self.ephemerals.get(node.owner, set()).discard(path)
        if above.startswith(QUOTA) and name == LIMITS:
            self.quotas.discard(above[len(QUOTA) :])
        self.count(path, -len(node.data or b""), -1)

    def set_data(self, path: bytes, data: bytes | None, version: int, zxid: int, time: int) -> None:
        node = self.get(path)
        if node is None:
            raise NoNodeError
        before = len(node.data or b"")
        node.data, node.mtime, node.mzxid, node.version = data, time, zxid, version
        self.count(path, len(data or b"") - before, 0)

    def set_acl(self, path: bytes, acl: Any, version: int) -> None:
        node = self.get(path)
        if node is None:
            raise NoNodeError
        self.release(node.acl)
        node.aversion = version
        node.acl = self.convert(acl)

    def kill(self, session: int, zxid: int, named: list[bytes] | None) -> None:
        # Children first: a server goes by the order of a HashSet, and lets no ephemeral node have children.
        rest = sorted(self.ephemerals.pop(session, set()) - set(named or []), reverse=True)
        for path in [*(named or []), *rest]:
            try:
                self.delete(path, zxid)
            except NoNodeError:
                continue

    # Quotas

    def count(self, path: bytes, size: int, nodes: int) -> None:
        names = path.split(b"/")[1:]
        covered = [b"".join(b"/" + name for name in names[:k]) for k in range(len(names), 0, -1)]
        actual = next((item for item in covered if item in self.quotas), None)
        node = self.nodes.get(QUOTA + (actual or b"") + b"/" + STATS)
        if actual is None or node is None:
            return
        stats = dict(
            word.split(b"=")[:2] for word in (node.data or b"").replace(b";", b",").split(b",") if word
        )
        count, total = (int(stats.pop(key, -1)) for key in (b"count", b"bytes"))
        more = b"".join(b";%s=%s" % (key, stats[key]) for key in sorted(stats))
        node.data = b"count=%d,bytes=%d" % (count + nodes, total + size) + (b"=" + more if more else b"")

    def recount(self, path: bytes) -> None:
        node = self.nodes.get(QUOTA + path + b"/" + STATS)
        if node is not None:
            below = self.below(path) if path in self.nodes else []
            total = sum(len(self.nodes[item].data or b"") for item in below)
            node.data = b"count=%d,bytes=%d" % (len(below), total)

    def below(self, path: bytes) -> list[bytes]:
        out = [path]
        for name in self.nodes[path].children:
            if path + b"/" + name in self.nodes:
                out += self.below(path + b"/" + name)
        return out

    # Transactions

    def apply(self, txn: Txn) -> None:
        kind, body = txn["type"], txn["body"]
        if kind == txns.CREATE_SESSION:
            self.sessions[txn["client_id"]] = body["time_out"]
        elif kind == txns.CLOSE_SESSION:
            self.sessions.pop(txn["client_id"], None)
            self.kill(txn["client_id"], txn["zxid"], None if body is None else body["paths_to_delete"])
        elif kind == txns.MULTI:
            failed = any(row["type"] == txns.ERROR for row in body["txns"])
            for item in body["txns"] if not failed else []:
                self.apply_part(txn, item["type"], item["data"])
        else:
            self.apply_part(txn, kind, body)
        self.zxid = max(self.zxid, txn["zxid"])

    def apply_part(self, txn: Txn, kind: int, body: Any) -> None:
        zxid, time = txn["zxid"], txn["time"]
        try:
            if kind in (txns.CREATE, txns.CREATE2, txns.CREATE_CONTAINER, txns.CREATE_TTL):
                owner = txn["client_id"] if body.get("ephemeral") else 0
                if kind == txns.CREATE_CONTAINER:
                    owner = CONTAINER
                if kind == txns.CREATE_TTL:
                    if not 0 < body["ttl"] < 1 << 40:
                        raise DeadError
                    owner = TTL_OWNER | body["ttl"]
                cversion = body.get("parent_cversion", -1)
                try:
                    self.create(body["path"], body["data"], acl_of(body["acl"]), owner, cversion, zxid, time)
                except ExistsError:
                    if kind == txns.CREATE:
                        self.grow(self.nodes[body["path"].rpartition(b"/")[0]], cversion, zxid)
            elif kind in (txns.DELETE, txns.DELETE_CONTAINER):
                self.delete(body["path"], zxid)
            elif kind in (txns.SET_DATA, txns.RECONFIG):
                self.set_data(body["path"], body["data"], body["version"], zxid, time)
            elif kind == txns.SET_ACL:
                self.set_acl(body["path"], acl_of(body["acl"]), body["version"])
        except NoNodeError:
            return

    # Starting

    def reloaded(self) -> Model:
        """Return the model of a server that loads this one's snapshot."""
        result = Model(self.extended)
        result.sessions, result.zxid, result.index = dict(self.sessions), self.zxid, max([0, *self.lists])
        result.lists, result.numbers = dict(self.lists), dict(self.numbers)
        result.refs = dict.fromkeys(self.lists, 0)
        for path in self.below(b""):
            node = self.nodes[path]
            result.nodes[path] = ModelNode(**{**vars(node), "children": set()})
            if path:
                parent, _, name = path.rpartition(b"/")
                result.nodes[parent].children.add(name)
                if result.is_session(node.owner):
                    result.ephemerals.setdefault(node.owner, set()).add(path)
            if node.acl in result.refs:
                result.refs[node.acl] += 1
        for path in sorted(result.below(QUOTA)) if QUOTA in result.nodes else []:
            above, _, name = path.rpartition(b"/")
            if name == LIMITS and not result.nodes[path].children:
                if above == QUOTA:
                    raise DeadError
                result.recount(above[len(QUOTA) :])
                result.quotas.add(above[len(QUOTA) :])
        for number in [name for name, uses in result.refs.items() if not uses]:
            del result.numbers[result.lists.pop(number)], result.refs[number]
        return result

    def after_load(self) -> None:
        for session in [ephemeral for ephemeral in self.ephemerals if ephemeral not in self.sessions]:
            self.kill(session, self.zxid, None)


def acl_of(acl: list[dict[str, Any]] | None) -> Any:
    return None if acl is None else tuple((row["perms"], row["id"]["scheme"], row["id"]["id"]) for row in acl)
