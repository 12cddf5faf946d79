"""Convert batches of changes to the transactions that a server would make. Raises `UsageError` for a change that it would refuse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import binary, contents, counts_of, list_of, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, packed_list, packed_text
from logwright.codec.zookeeper.formats.txnlog.bodies import TXN_TYPE
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS
from logwright.codec.zookeeper.jute import Strings, flat, list_entries, stored_strings, text_entries
from logwright.codec.zookeeper.state.columns import (
    CONTAINER,
    CONTAINERS,
    EPHEMERAL,
    KINDS,
    PERSISTENT,
    TTL,
    TTL_MAX,
    TTLS,
    kinds_of,
)
from logwright.codec.zookeeper.state.sorted_run import paths_of
from logwright.codec.zookeeper.store import edit_kernels as kernels
from logwright.codec.zookeeper.store.edit_kernels import LEFT_OUT

if TYPE_CHECKING:
    from logwright.codec.zookeeper.state.tree import Tree


_FIELDS = (
    *("zxid", "session_id", "cxid", "type", "path", "data", "acl", "ephemeral", "parent_cversion", "version", "ttl"),
    *("time_out", "err", "paths_to_delete", "txns", "time_ms", "acl_raw"),
)  # fmt: skip
SCHEMA = pa.schema([pa.field(name, pa.binary() if name == "path" else ROWS[name].type) for name in _FIELDS])
"""The columns of the transactions; paths as stored."""
_TYPES = {PERSISTENT: "create", EPHEMERAL: "create", CONTAINERS: "createContainer", TTLS: "createTTL"}
"""The type of the transaction that creates a node of each kind."""
_CREATES = ("create", "create2", "createContainer", "createTTL")
_SETS = ("setData", "reconfig")
_DOES = {
    **dict.fromkeys(_CREATES, kernels.CREATE),
    **dict.fromkeys(_SETS, kernels.SET),
    **dict.fromkeys(("delete", "deleteContainer"), kernels.DELETE),
    "setACL": kernels.SET_ACL, "check": kernels.CHECK, "createSession": kernels.SESSION,
}  # fmt: skip
"""Other types, such as errors and multis, change no node themselves."""
_NAMES = tuple(_DOES)
_DERIVED = {
    "parent_cversion": _CREATES,
    "version": (*_SETS, "setACL", "check"),
    "paths_to_delete": ("closeSession",),
    "time_out": ("createSession",),
}
"""The values that follow from the tree if a transaction of these types lacks them."""
_OF_OPERATIONS = ("type", "path", "acl", "ephemeral", "parent_cversion", "version", "ttl")
"""The columns that a transaction of a multi has too, without its data and error."""
_REFUSALS = {
    kernels.EXISTS: "exists: {type} fails (NodeExists)",
    kernels.NO_PARENT: "has no parent: {type} fails (NoNode)",
    kernels.NO_NODE: "does not exist: {type} fails (NoNode)",
    kernels.BELOW_EPHEMERAL: "is below an ephemeral node: {type} fails (NoChildrenForEphemerals)",
    kernels.NO_SESSION: "is ephemeral, and the row has no session_id",
    kernels.BAD_TTL: f"needs a ttl from 1 to {TTL_MAX} ms",
    kernels.HAS_CHILDREN: "has children ({children}): {type} fails (NotEmpty)",
    kernels.OTHER_KIND: "exists as {kind}: it cannot become {other}",
}
_ADVICE = {
    kernels.HAS_CHILDREN: "Delete its descendants first: rows with paths in descending order",
    kernels.OTHER_KIND: "Delete it first",
}


@cache
def open_list() -> bytes:
    """Return the encoded ACL list that lets everybody do everything."""
    return packed_list(OPEN)


@cache
def unpacked(stored: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return an encoded list as text, and in raw form if the text does not determine it, as in rows."""
    raw = list_entries(stored)
    text = text_entries(raw)
    return text, None if packed_text(text) == stored else raw


class _Paths:
    """All paths of a batch, and their ancestors: each has a number."""

    def __init__(self, tree: Tree, paths: pa.Array) -> None:
        above = _above(paths)
        both = pa.concat_arrays([paths, above]).dictionary_encode()
        ids = np.asarray(both.indices).astype(np.int64)
        self.paths: pa.Array = both.dictionary
        self.ids = ids[: len(paths)]
        self._tree = tree
        parent = np.full(len(self.paths), -1, np.int64)
        parent[self.ids] = ids[len(paths) :]
        self.rows = tree.find(self.paths)
        self.nodes = self._states(self.rows)
        self.nodes[:, kernels.PARENT] = parent

    def _states(self, rows: Int64s) -> Int64s:
        out = np.zeros((len(rows), kernels.FIELDS), np.int64)
        there = np.flatnonzero(rows >= 0)
        stats = self._tree.stats(rows[there])
        out[there, kernels.THERE] = 1
        out[there, kernels.VERSION], out[there, kernels.CVERSION] = stats["version"], stats["cversion"]
        out[there, kernels.AVERSION], out[there, kernels.CHILDREN] = stats["aversion"], stats["num_children"]
        out[there, kernels.OWNER] = stats["owner"]
        out[:, kernels.PARENT] = -1
        return out

    def climb(self) -> None:
        """Number the missing ancestors, up to the first existing one."""
        while True:
            unknown = np.flatnonzero(
                (self.nodes[:, kernels.THERE] == 0) & (self.nodes[:, kernels.PARENT] < 0)
            )
            if not len(unknown):
                return
            above = _above(self.paths.take(numbers(pa.int64(), unknown)))
            fresh = above.unique()
            fresh = fresh.filter(pc.invert(pc.is_in(fresh, self.paths)))
            rows = self._tree.find(fresh)
            self.paths = pa.concat_arrays([self.paths, fresh])
            self.rows = np.concatenate([self.rows, rows])
            self.nodes = np.concatenate([self.nodes, self._states(rows)])
            self.nodes[unknown, kernels.PARENT] = np.asarray(pc.index_in(above, self.paths)).astype(np.int64)

    def contents(self, *, acls: bool) -> tuple[pa.Array, pa.Array]:
        """Return the data of existing nodes and their encoded ACLs (null: the table lacks it, or not `acls`). The nodes get their places
        in them."""
        there = np.flatnonzero(self.rows >= 0)
        data, slots, lists = self._tree.contents(self.rows[there])
        self.nodes[there, kernels.DATA] = -2 - np.arange(len(there))
        self.nodes[there, kernels.ACL] = slots
        packs = [
            None if entries is None or not acls else packed_text(text_entries(entries)) for entries in lists
        ]
        return data, contents(pa.binary(), packs)

    def stored(self) -> pa.Array:
        """Return the paths as transactions have them."""
        return pc.if_else(pc.equal(self.paths, b""), pa.scalar(b"/", pa.binary()), self.paths)

    def refused(self, reason: int, row: int, node: int, kind: str, owner: int = 0) -> UsageError:
        """Return the error for a change of a node. `kind` is the type of the transaction, `owner` that of the row."""
        was, other = kinds_of(np.array([self.nodes[node, kernels.OWNER], owner])).tolist()
        text = _REFUSALS[reason].format(
            type=kind, children=self.nodes[node, kernels.CHILDREN], kind=KINDS[was], other=KINDS[other]
        )
        path = java_string(self.paths[node].as_py()) or "/"
        return UsageError(f"row {row}: {path} {text}", advice=_ADVICE.get(reason, ""))


def _above(paths: pa.Array) -> pa.Array:
    data, ends, _ = flat(paths)
    ends, sizes = np.ascontiguousarray(ends), np.empty(len(paths), np.int32)
    kernels.above(data, ends, sizes)
    return binary(data, ends[:-1].astype(np.int64), sizes.astype(np.int64))


# Nodes


def of_nodes(
    tree: Tree, rows: pa.RecordBatch, zxid: int, *, data: bool, time: int, timeout: int, first_row: int
) -> pa.RecordBatch:
    """Make the transactions for nodes with the attributes of rows (`sorted_run.ROWS`). See `edits.Editor.nodes`."""
    paths = _Paths(tree, paths_of(rows.column("key")))
    paths.climb()
    owners = np.asarray(rows.column("owner"))
    kinds = kinds_of(owners)
    ttls = owners & np.int64(TTL_MAX)
    values, lists = rows.column("value").cast(pa.binary()), rows.column("acl")
    had, packs = paths.contents(acls=lists.null_count < len(lists))
    coded = pa.concat_arrays([packs, lists, contents(pa.binary(), [open_list()])]).dictionary_encode()
    codes = np.asarray(pc.fill_null(coded.indices, -1)).astype(np.int64)
    there = paths.rows >= 0
    paths.nodes[there, kernels.ACL] = codes[paths.nodes[there, kernels.ACL]]
    empty_first = pa.concat_arrays([contents(pa.binary(), [b""]), had])
    bad = np.where((kinds == TTLS) & (ttls < 1), kernels.BAD_TTL, kernels.SOUND).astype(np.int8)
    sessions = np.full(len(owners), -1, np.int64)
    which = np.flatnonzero(kinds == EPHEMERAL)
    open_, sessions[which] = np.unique(owners[which], return_inverse=True)
    timeouts = tree.session_timeouts
    room = 3 * len(owners) + len(paths.paths)
    does, row, node, versions = np.empty(room, np.int8), *np.empty((3, room), np.int64)
    n, reason, refused = kernels.bring(
        paths.ids, owners, bad, sessions, codes[len(packs) : -1], int(codes[-1]), int(data), Strings.of(values), Strings.of(empty_first),
        paths.nodes, np.array([session in timeouts for session in open_.tolist()], np.uint8), does, row, node, versions,
    )  # fmt: skip
    if reason:
        name = _TYPES[int(kinds[n]) if refused == paths.ids[n] else PERSISTENT]
        raise paths.refused(reason, first_row + n, refused, name, int(owners[n]))
    does, row, node, versions = does[:n], row[:n], node[:n], versions[:n]
    creates, sets, acls, begun = (
        does == action for action in (kernels.CREATE, kernels.SET, kernels.SET_ACL, kernels.SESSION)
    )
    own = node == paths.ids[row]
    kind = np.where(creates & own, kinds[row], PERSISTENT)
    session = np.where(begun | (creates & (kind == EPHEMERAL)), owners[row], 0)
    times = np.where(sets, np.asarray(rows.column("mtime"))[row], np.asarray(rows.column("ctime"))[row])
    names = pa.array([*(_TYPES[index] for index in range(4)), "setData", "setACL", "createSession"])
    count = len(owners)
    # After the values of the rows: those of added ancestors, and null.
    value = np.where(creates & ~own, count, np.where(creates | sets, row, count + 1))
    text, raw = _lists(lists, np.where(creates & ~own, count, np.where(creates | acls, row, count + 1)))
    columns = {
        "zxid": numbers(pa.int64(), zxid + np.arange(n)),
        "session_id": numbers(pa.int64(), session),
        "cxid": numbers(pa.int32(), np.zeros(n, np.int32)),
        "type": names.take(numbers(pa.int64(), np.where(creates, kind, 3 + np.where(sets, 1, np.where(acls, 2, 3))))),
        "path": pc.if_else(numbers(pa.bool_(), begun), pa.scalar(None, pa.binary()), paths.stored().take(numbers(pa.int64(), node))),
        "data": pa.concat_arrays([values, pa.array([b"", None], pa.binary())]).take(numbers(pa.int64(), value)),
        "acl": text,
        "acl_raw": raw,
        "ephemeral": numbers(pa.bool_(), kind == EPHEMERAL, ~creates),
        "parent_cversion": numbers(pa.int32(), versions.astype(np.int32), ~creates),
        "version": numbers(pa.int32(), versions.astype(np.int32), ~(sets | acls)),
        "ttl": numbers(pa.int64(), ttls[row], kind != TTLS),
        "time_out": numbers(pa.int32(), np.full(n, timeout), ~begun),
        "time_ms": numbers(pa.int64(), np.where(acls | (times == 0), time, times)),
    }  # fmt: skip
    return _batch(columns, n)


def _lists(lists: pa.Array, which: Int64s) -> tuple[pa.Array, pa.Array]:
    """Return ACLs as text, and in raw form where the text does not determine them: of rows, then the open one, then null."""
    coded = lists.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    both = [unpacked(open_list() if content is None else content) for content in [*distinct, open_list()]]
    index = np.append(
        np.asarray(pc.fill_null(coded.indices, len(distinct))).astype(np.int64),
        [len(distinct), len(distinct) + 1],
    )
    picked = numbers(pa.int64(), index[which])
    text = pa.array([*(pair[0] for pair in both), None], SCHEMA.field("acl").type)
    raw = pa.array([*(pair[1] for pair in both), None], SCHEMA.field("acl_raw").type)
    return text.take(picked), raw.take(picked)


# Transactions


@dataclass
class Operations:
    """The transactions of a batch (`SCHEMA`), each followed by those in it if it is a multi."""

    batch: pa.RecordBatch
    row: Int64s
    """The transaction that each operation is, or is in."""
    sub: Bools
    """Whether it is in a multi."""
    columns: dict[str, pa.Array]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Operations:
        row, sub = np.arange(batch.num_rows), np.zeros(batch.num_rows, np.bool_)
        columns = {name: batch.column(name) for name in _OF_OPERATIONS}
        lists = batch.column("txns")
        if lists.null_count < len(lists):
            inner = lists.flatten()
            if inner.null_count:
                raise UsageError(f"{NAME}: a transaction of a multi is null")
            row = np.concatenate((row, np.asarray(pc.list_parent_indices(lists))))
            order = np.argsort(row, kind="stable")
            row, sub = row[order], order >= batch.num_rows
            parts = _fields(inner)
            parts["path"] = stored_strings(parts["path"])
            columns = {
                name: pa.concat_arrays([column, parts[name]]).take(numbers(pa.int64(), order))
                for name, column in columns.items()
            }
        return cls(batch, row, sub, columns)

    @property
    def complete(self) -> bool:
        """Whether nothing is absent, so that all is written unchanged."""
        top = {field.name: self.batch.column(field.name) for field in SCHEMA}
        if any(top[name].null_count for name in ("session_id", "cxid", "time_ms")):
            return False
        for name, of in _DERIVED.items():
            columns = self.columns if name in self.columns else top
            lacks = pc.and_(pc.is_in(columns["type"], pa.array(of)), columns[name].is_null())
            if pc.any(lacks).as_py():
                return False
        return True

    def filled(
        self, tree: Tree, zxid: int, *, kept: bool, time: int, timeout: int, first_row: int
    ) -> pa.RecordBatch:
        """Fill in absent values. `kept`: the transactions keep their zxids, and need not have an effect. See `edits.Editor.txns`."""
        batch, columns, sub = self.batch, dict(self.columns), self.sub
        types = np.asarray(pc.fill_null(pc.index_in(columns["type"], pa.array(_NAMES)), len(_NAMES)))
        does = np.array([*_DOES.values(), kernels.NOTHING], np.int8)[types]
        errors = np.asarray(pc.fill_null(pc.equal(columns["type"], "error"), False))
        does[sub & np.isin(self.row, self.row[sub & errors])] = kernels.NOTHING
        about = (does != kernels.NOTHING) & (does != kernels.SESSION)
        if (about & np.asarray(columns["path"].is_null())).any():
            raise UsageError(f"{NAME}: a transaction without a path")
        ephemeral = np.asarray(pc.fill_null(columns["ephemeral"], False))
        sessions = np.asarray(pc.fill_null(batch.column("session_id"), 0))[self.row]
        ttls = np.asarray(pc.fill_null(columns["ttl"], 0))
        timed, creates = types == _NAMES.index("createTTL"), does == kernels.CREATE
        owners = np.where(timed, np.int64(TTL) | ttls, np.where(ephemeral, sessions, 0))
        owners = np.where(types == _NAMES.index("createContainer"), CONTAINER, owners)
        bad = np.where(timed & ((ttls < 1) | (ttls > TTL_MAX)), kernels.BAD_TTL, kernels.SOUND)
        bad = np.where(ephemeral & (sessions == 0) & (not kept), kernels.NO_SESSION, bad)
        versions, cversions = (
            np.asarray(pc.fill_null(columns[name].cast(pa.int64()), LEFT_OUT)).copy()
            for name in ("version", "parent_cversion")
        )
        is_root = pc.fill_null(pc.equal(columns["path"], b"/"), True)
        paths = _Paths(tree, pc.if_else(is_root, pa.scalar(b"", pa.binary()), columns["path"]))
        n, reason = kernels.follow(
            does, paths.ids, owners, bad.astype(np.int8), int(not kept), paths.nodes, versions, cversions
        )
        if reason:
            row = first_row + int(self.row[n])
            raise paths.refused(reason, row, int(paths.ids[n]), columns["type"][n].as_py())
        stored = paths.stored().take(numbers(pa.int64(), paths.ids))
        columns["path"] = pc.if_else(numbers(pa.bool_(), about), stored, columns["path"])
        columns["version"], columns["parent_cversion"] = map(_unless_left_out, (versions, cversions))
        null = np.asarray(columns["ephemeral"].is_null())
        columns["ephemeral"] = numbers(pa.bool_(), ephemeral, null & ~creates)
        bare = creates & np.asarray(columns["acl"].is_null())
        text, raw = unpacked(open_list())
        columns["acl"] = _replaced(columns["acl"], bare, text)
        top = {field.name: batch.column(field.name) for field in SCHEMA}
        if sub.any():
            top["txns"] = _nested(
                top["txns"], {name: each.filter(pa.array(sub)) for name, each in columns.items()}
            )
            columns = {name: each.filter(pa.array(~sub)) for name, each in columns.items()}
        top |= {
            **columns,
            "session_id": pc.fill_null(top["session_id"], 0),
            "cxid": pc.fill_null(top["cxid"], 0),
            "time_ms": pc.fill_null(top["time_ms"], time),
            "time_out": _defaulted(top, "time_out", timeout),
            "paths_to_delete": _defaulted(top, "paths_to_delete", []),
            "acl_raw": _replaced(top["acl_raw"], bare[~sub], raw),
        }
        if not kept:
            top["zxid"] = numbers(pa.int64(), zxid + np.arange(batch.num_rows))
        return _batch(top, batch.num_rows)


def _fields(structs: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))


def _nested(lists: pa.Array, columns: dict[str, pa.Array]) -> pa.Array:
    """Return the transactions of multis with replaced columns. Paths are text: those that Java writes otherwise stay as they are."""
    fields = _fields(lists.flatten())
    path = pc.if_else(pc.equal(columns["path"], b"/"), "/", fields["path"])
    fields |= columns | {"path": path}
    return list_of(pa.StructArray.from_arrays(list(fields.values()), fields=list(TXN_TYPE)), counts_of(lists))


def _unless_left_out(versions: Int64s) -> pa.Array:
    gone = versions == LEFT_OUT
    return numbers(pa.int32(), np.where(gone, 0, versions).astype(np.int32), gone)


def _defaulted(columns: dict[str, pa.Array], name: str, value: Any) -> pa.Array:
    """Return a derived column (`_DERIVED`) with a value where the transaction needs one and has none."""
    needs = pc.is_in(columns["type"], pa.array(_DERIVED[name]))
    return _replaced(columns[name], np.asarray(pc.and_(needs, columns[name].is_null())), value)


def _replaced(column: pa.Array, which: Bools, value: Any) -> pa.Array:
    """Return a column with `value` in these places."""
    if not which.any():
        return column
    both = pa.concat_arrays([column, pa.array([value], column.type)])
    return both.take(numbers(pa.int64(), np.where(which, len(column), np.arange(len(column)))))


def _batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
