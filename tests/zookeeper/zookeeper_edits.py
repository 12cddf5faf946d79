"""The reference of `logwright.codec.zookeeper.store.edits`: it makes one transaction after the other, from dictionaries.

Source: `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from zookeeper_nodes import Node, node_at

from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.zookeeper.formats.snapshot.acl import packed_text
from logwright.codec.zookeeper.formats.txnlog.rows import NAME
from logwright.codec.zookeeper.jute import jute_string, text_entries
from logwright.codec.zookeeper.state.columns import (
    CONTAINER,
    CONTAINERS,
    EPHEMERAL,
    KINDS,
    PERSISTENT,
    TTL,
    TTL_MAX,
    TTL_RESERVED,
    TTLS,
)
from logwright.codec.zookeeper.state.sorted_run import paths_of
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.edit_batches import SCHEMA, Operations, open_list, unpacked
from logwright.codec.zookeeper.store.edits import typed_rows

TYPES = {PERSISTENT: "create", EPHEMERAL: "create", CONTAINERS: "createContainer", TTLS: "createTTL"}
_CREATES = {"create": PERSISTENT, "create2": PERSISTENT, "createContainer": CONTAINERS, "createTTL": TTLS}
_DELETES = ("delete", "deleteContainer")
_SETS = ("setData", "reconfig")


@dataclass(slots=True)
class _State:
    """A node with pending transactions. `node` gives the attributes of an existing one on first use; the list is encoded."""

    version: int
    cversion: int
    aversion: int
    owner: int
    children: int
    node: Callable[[], Node] | None = None
    _data: bytes | None = None
    acl: bytes | None = None
    """A node made by a batch. It is not looked up elsewhere."""

    @property
    def data(self) -> bytes | None:
        if self.node is not None:
            self._data, self.node = self.node().data, None
        return self._data

    @data.setter
    def data(self, data: bytes | None) -> None:
        self._data, self.node = data, None


def _wrapped(number: int) -> int:
    """Add as Java does."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


class RowEditor:
    """See `edits.Editor`."""

    def __init__(self, tree: Tree, zxid: int | None, *, time: int, timeout: int) -> None:
        self.zxid = zxid
        """The zxid of the next transaction; None: that of the first input."""
        self._tree, self._time, self._timeout = tree, time, timeout
        self._sessions: set[int] = set()
        """The transactions of this batch."""
        self._states: dict[bytes, _State | None] = {}
        self._acls: dict[int, bytes | None] = {}
        self._out: list[dict[str, Any]] = []
        self._row = 0
        """The number of the current row, for messages."""

    # Nodes

    def nodes(self, rows: pa.RecordBatch, first_row: int, *, data: bool) -> pa.RecordBatch:
        """Return the transactions that give nodes the attributes of rows (`sorted_run.ROWS`). `data`: the rows have data, which is set."""
        self._begin()
        self._learn(paths_of(rows.column("key")))
        owners = np.asarray(rows.column("owner"))
        lists, values = rows.column("acl").to_pylist(), rows.column("value").to_pylist()
        ctimes, mtimes = (np.asarray(rows.column(name)).tolist() for name in ("ctime", "mtime"))
        for i, path in enumerate(paths_of(rows.column("key")).to_pylist()):
            self._row = first_row + i
            owner = int(owners[i])
            kind = _kind(owner)
            node = self._find(path)
            if node is None:
                self._create(path, kind, owner, values[i], lists[i], ctimes[i] or self._time)
                continue
            if owner not in (0, node.owner):
                was, wanted_kind = KINDS[_kind(node.owner)], KINDS[kind]
                raise self._refused(
                    path, f"exists as {was}: it cannot become {wanted_kind}", "Delete it first"
                )
            if data and values[i] != node.data:
                self._put(
                    {"type": "setData", "path": path, "data": values[i], "time_ms": mtimes[i] or self._time}
                )
            if lists[i] is not None and lists[i] != self._acl_of(node, path):
                text, raw = unpacked(lists[i])
                self._put({"type": "setACL", "path": path, "acl": text, "acl_raw": raw, "packed": lists[i]})
        return self._batch()

    def _create(
        self, path: bytes, kind: int, owner: int, data: bytes | None, acl: bytes | None, time: int
    ) -> None:
        above = path[: path.rfind(b"/")]
        if path and self._find(above) is None:
            self._create(above, PERSISTENT, 0, b"", None, time)
        text, raw = unpacked(acl or open_list())
        row: dict[str, Any] = {
            "type": TYPES[kind],
            "path": path,
            "data": data,
            "acl": text,
            "acl_raw": raw,
            "time_ms": time,
            "packed": acl or open_list(),
        }
        if kind == EPHEMERAL:
            if owner not in self._sessions and owner not in self._tree.session_timeouts:
                self._put({"type": "createSession", "session_id": owner, "time_ms": time})
            row |= {"ephemeral": True, "session_id": owner}
        if kind == TTLS:
            row["ttl"] = owner & TTL_MAX
        self._put(row)

    # Transactions

    def txns(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return complete transactions, from rows of a log that may lack values which follow from the tree."""
        self._begin()
        if "sub" in rows.schema.names and rows.column("sub").null_count < rows.num_rows:
            raise UsageError(
                f"{NAME}: the transactions of a multi cannot be written as separate rows",
                advice="Pass each multi as a row with the column 'txns', as read with multi=nested",
            )
        typed = typed_rows(rows, first_row)
        kept = typed.column("zxid").null_count == 0
        if not kept and typed.column("zxid").null_count < typed.num_rows:
            raise UsageError(
                f"{NAME}: null in column 'zxid'", advice="Leave the column out to have zxids assigned"
            )
        if kept:
            first = self.zxid
            self._ordered(np.asarray(typed.column("zxid")), first_row)
            if Operations.of(typed).complete:
                return typed
            self.zxid = first
        stored = typed.column("path")
        roots = pc.equal(stored, b"/")
        self._learn(pc.if_else(roots, pa.scalar(b"", pa.binary()), stored))
        for i, row in enumerate(typed.to_pylist()):
            self._row = first_row + i
            self._put(
                {name: value for name, value in row.items() if value is not None or name == "data"},
                strict=not kept,
            )
        return self._batch()

    def _ordered(self, zxids: Any, first_row: int) -> None:
        """Check that each zxid continues the one before. Raises `UsageError`."""
        before = np.concatenate(([zxids[0] - 1 if self.zxid is None else self.zxid - 1], zxids[:-1]))
        next_epoch = (zxids >> 32 > before >> 32) & (zxids & 0xFFFFFFFF == 1)
        bad = np.flatnonzero((zxids != before + 1) & ~next_epoch)
        if len(bad):
            i = int(bad[0])
            raise UsageError(
                f"{NAME}: row {first_row + i}: zxid {int(zxids[i]):#x} does not follow {int(before[i]):#x}: a server would not start",
                advice="Leave the column 'zxid' out to have zxids assigned",
            )
        self.zxid = int(zxids[-1]) + 1

    # Both

    def _begin(self) -> None:
        self._states.clear()
        self._acls.clear()
        self._sessions.clear()
        self._out = []

    def _batch(self) -> pa.RecordBatch:
        arrays = [pa.array([row.get(field.name) for row in self._out], field.type) for field in SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _put(self, row: dict[str, Any], *, strict: bool = True) -> None:
        """Add a transaction: absent values are filled in, and its effect is recorded. `strict`: it must have an effect."""
        if row.get("zxid") is None:
            assert self.zxid is not None
            row["zxid"] = self.zxid
            self.zxid += 1
        else:
            self._ordered(np.array([row["zxid"]], np.int64), self._row)
        row.setdefault("session_id", 0)
        row.setdefault("cxid", 0)
        row.setdefault("time_ms", self._time)
        kind = row["type"]
        if kind == "createSession":
            row.setdefault("time_out", self._timeout)
            self._sessions.add(row["session_id"])
        elif kind == "closeSession":
            row.setdefault("paths_to_delete", [])
        elif kind == "multi":
            for sub in row.setdefault("txns", []):
                for name in [name for name, value in sub.items() if value is None and name != "data"]:
                    del sub[name]
            failed = any(sub["type"] == "error" for sub in row["txns"])
            for sub in row["txns"]:
                if not failed:
                    sub["path"] = java_string(self._fill(sub, row["session_id"], strict=strict))
        elif kind != "error":
            self._fill(row, row["session_id"], strict=strict)
        self._out.append(row)

    def _fill(self, row: dict[str, Any], session: int, *, strict: bool) -> bytes:
        kind, path = row["type"], _path(row.get("path"))
        row["path"] = path or b"/"
        node = self._find(path)
        if kind in _CREATES:
            self._fill_create(row, path, session, strict=strict)
        elif node is None:
            if strict or (row.get("version") is None and kind not in _DELETES):
                raise self._refused(path, f"does not exist: {kind} fails (NoNode)")
        elif kind in _SETS:
            row.setdefault("version", _wrapped(node.version + 1))
            node.version, node.data = row["version"], row.get("data")
        elif kind == "setACL":
            row.setdefault("version", _wrapped(node.aversion + 1))
            node.aversion = row["version"]
            node.acl = row.get("packed")
        elif kind == "check":
            row.setdefault("version", _wrapped(node.version + 1))
        elif kind in _DELETES:
            if strict and node.children:
                advice = "Delete its descendants first: rows with paths in descending order"
                raise self._refused(path, f"has children ({node.children}): {kind} fails (NotEmpty)", advice)
            self._states[path] = None
            parent = self._find(path[: path.rfind(b"/")])
            if parent is not None:
                parent.children -= 1
        return path or b"/"

    def _fill_create(self, row: dict[str, Any], path: bytes, session: int, *, strict: bool) -> None:
        kind = row["type"]
        ephemeral = bool(row.setdefault("ephemeral", False))
        if row.get("acl") is None:
            row["acl"], row["acl_raw"] = unpacked(open_list())
        parent = self._find(path[: path.rfind(b"/")]) if path else None
        if strict and self._find(path) is not None:
            raise self._refused(path, f"exists: {kind} fails (NodeExists)")
        if parent is None:
            if strict or row.get("parent_cversion") is None:
                raise self._refused(path, f"has no parent: {kind} fails (NoNode)")
            return
        if strict and _kind(parent.owner) == EPHEMERAL:
            raise self._refused(path, f"is below an ephemeral node: {kind} fails (NoChildrenForEphemerals)")
        if strict and ephemeral and not session:
            raise self._refused(path, "is ephemeral, and the row has no session_id")
        if kind == "createTTL" and not 1 <= (row.get("ttl") or 0) <= TTL_MAX:
            raise self._refused(path, f"needs a ttl from 1 to {TTL_MAX} ms")
        row.setdefault("parent_cversion", _wrapped(parent.cversion + 1))
        parent.cversion = max(parent.cversion, row["parent_cversion"])
        parent.children += 1
        owner = 0
        if kind == "createContainer":
            owner = CONTAINER
        elif kind == "createTTL":
            owner = TTL | row["ttl"]
        elif ephemeral:
            owner = session
        self._states[path] = _State(0, 0, 0, owner, 0, None, row.get("data"), row.get("packed"))

    def _learn(self, paths: pa.Array) -> None:
        """Look up these nodes and their ancestors at once."""
        distinct = paths.drop_null().unique()
        both = dict.fromkeys(distinct.to_pylist())
        both |= dict.fromkeys([path[: path.rfind(b"/")] for path in both if path])
        both = {path: None for path in both if path not in self._states}
        paths_wanted = pa.array(list(both), pa.binary())
        rows = self._tree.find(paths_wanted)
        there = rows >= 0
        stats = self._tree.stats(rows[there])
        counters = zip(
            *(stats[name].tolist() for name in ("version", "cversion", "aversion", "owner", "num_children")),
            strict=True,
        )
        states = (_State(*each) for each in counters)
        for path, known in zip(both, there.tolist(), strict=True):
            self._states[path] = None
            if known:
                state = self._states[path] = next(states)
                state.node = partial(self._node, path)

    def _node(self, path: bytes) -> Node:
        node = node_at(self._tree, path)
        assert node is not None
        return node

    def _find(self, path: bytes) -> _State | None:
        if path not in self._states:
            self._learn(pa.array([path], pa.binary()))
        return self._states[path]

    def _acl_of(self, state: _State, path: bytes) -> bytes | None:
        if state.acl is None:
            node = self._node(path)
            if node.acl_id not in self._acls:
                self._acls[node.acl_id] = None if node.acl is None else packed_text(text_entries(node.acl))
            state.acl = self._acls[node.acl_id]
        return state.acl

    def _refused(self, path: bytes, text: str, advice: str = "") -> UsageError:
        return UsageError(f"row {self._row}: {java_string(path) or '/'} {text}", advice=advice)


def _kind(owner: int) -> int:
    """`columns.kinds_of` of one owner."""
    if owner == 0:
        return PERSISTENT
    if owner == CONTAINER:
        return CONTAINERS
    return TTLS if owner & TTL == TTL and not owner & TTL_RESERVED else EPHEMERAL


def _path(value: Any) -> bytes:
    if value is None:
        raise UsageError(f"{NAME}: a transaction without a path")
    stored = value if isinstance(value, bytes) else jute_string(value)
    return b"" if stored == b"/" else stored
