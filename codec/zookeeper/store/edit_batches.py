"""Convert batches of changes to the transactions that a server would make, all at once. What this cannot do (None), `edits` does one by
one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import binary, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, packed_list, packed_text
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.codec.zookeeper.jute import Int64s, flat, list_entries, text_entries
from logwright.codec.zookeeper.state.columns import CONTAINERS, EPHEMERAL, PERSISTENT, TTL_MAX, TTLS, kinds_of
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
TYPES = {PERSISTENT: "create", EPHEMERAL: "create", CONTAINERS: "createContainer", TTLS: "createTTL"}
"""The type of the transaction that creates a node of each kind."""
_DOES = {
    **dict.fromkeys(("create", "create2", "createContainer", "createTTL"), kernels.CREATE),
    **dict.fromkeys(("setData", "reconfig"), kernels.SET),
    **dict.fromkeys(("delete", "deleteContainer"), kernels.DELETE),
    "setACL": kernels.SET_ACL, "check": kernels.CHECK, "createSession": kernels.SESSION, "closeSession": kernels.NOTHING,
    "error": kernels.NOTHING,
}  # fmt: skip
"""A multi is not among them."""
_NAMES = tuple(_DOES)


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
        self.known = True
        """False if a path has no ancestor."""
        above = self._above(paths)
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

    def _above(self, paths: pa.Array) -> pa.Array:
        data, ends, _ = flat(paths)
        sizes = np.empty(len(paths), np.int32)
        self.known &= bool(kernels.above(data, np.ascontiguousarray(ends), sizes))
        return binary(data, np.ascontiguousarray(ends[:-1], np.int64), sizes.astype(np.int64))

    def _states(self, rows: Int64s) -> Int64s:
        out = np.zeros((len(rows), kernels.FIELDS), np.int64)
        there = np.flatnonzero(rows >= 0)
        stats = self._tree.stats(rows[there])
        out[there, kernels.THERE] = 1
        out[there, kernels.VERSION], out[there, kernels.CVERSION] = stats["version"], stats["cversion"]
        out[there, kernels.AVERSION], out[there, kernels.CHILDREN] = stats["aversion"], stats["num_children"]
        out[there, kernels.KIND] = kinds_of(stats["owner"])
        out[:, kernels.PARENT] = -1
        return out

    def climb(self) -> None:
        """Number the missing ancestors, up to the first existing one."""
        while self.known:
            unknown = np.flatnonzero(
                (self.nodes[:, kernels.THERE] == 0) & (self.nodes[:, kernels.PARENT] < 0)
            )
            if not len(unknown):
                return
            above = self._above(self.paths.take(numbers(pa.int64(), unknown)))
            fresh = above.unique()
            fresh = fresh.filter(pc.invert(pc.is_in(fresh, self.paths)))
            rows = self._tree.find(fresh)
            self.paths = pa.concat_arrays([self.paths, fresh])
            self.rows = np.concatenate([self.rows, rows])
            self.nodes = np.concatenate([self.nodes, self._states(rows)])
            self.nodes[unknown, kernels.PARENT] = np.asarray(pc.index_in(above, self.paths)).astype(np.int64)

    def stored(self) -> pa.Array:
        """Return the paths as transactions have them."""
        return pc.if_else(pc.equal(self.paths, b""), pa.scalar(b"/", pa.binary()), self.paths)


def _differ(first: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where values differ; null is a value."""
    values: npt.NDArray[np.bool_] = np.asarray(pc.fill_null(pc.not_equal(first, other), False))
    out: npt.NDArray[np.bool_] = values | (np.asarray(first.is_null()) != np.asarray(other.is_null()))
    return out


def of_nodes(
    tree: Tree, rows: pa.RecordBatch, zxid: int, *, data: bool, time: int, timeout: int
) -> pa.RecordBatch | None:
    """Make the transactions for nodes with the attributes of rows (`sorted_run.ROWS`). See `edits.Editor.nodes`."""
    paths = _Paths(tree, paths_of(rows.column("key")))
    paths.climb()
    owners = np.asarray(rows.column("owner"))
    kinds = kinds_of(owners)
    ttls = owners & np.int64(TTL_MAX)
    if not paths.known or (ttls[kinds == TTLS] < 1).any():
        return None
    there = paths.rows[paths.ids]
    at = np.flatnonzero(there >= 0)
    if (~np.isin(owners[at], 0) & (owners[at] != tree.stats(there[at])["owner"])).any():
        return None
    values, lists = rows.column("value").cast(pa.binary()), rows.column("acl")
    picked = numbers(pa.int64(), at)
    had, slots, known = tree.contents(there[at])
    new_data, new_acl = np.zeros(len(owners), np.bool_), np.zeros(len(owners), np.bool_)
    if data:
        new_data[at] = _differ(values.take(picked), had)
    if lists.null_count < len(lists):
        packs = pa.array(
            [None if acl is None else packed_text(text_entries(acl)) for acl in known], pa.binary()
        )
        own = lists.take(picked)
        new_acl[at] = _differ(own, packs.take(numbers(pa.int64(), slots))) & np.asarray(own.is_valid())
    sessions = np.full(len(owners), -1, np.int64)
    which = np.flatnonzero(kinds == EPHEMERAL)
    open_, sessions[which] = np.unique(owners[which], return_inverse=True)
    timeouts = tree.session_timeouts
    room = 3 * len(owners) + len(paths.paths)
    does, row, node, versions = np.empty(room, np.int8), *np.empty((3, room), np.int64)
    filled = np.asarray(pc.fill_null(pc.binary_length(values), 1)) > 0
    closed = np.asarray(lists.is_valid()) & np.asarray(pc.fill_null(pc.not_equal(lists, open_list()), False))
    txn_count = kernels.bring(
        paths.ids, kinds.astype(np.int8), sessions, new_data.astype(np.uint8), new_acl.astype(np.uint8),
        (filled & data).astype(np.uint8), closed.astype(np.uint8), paths.nodes,
        np.array([session in timeouts for session in open_.tolist()], np.uint8), does, row, node, versions,
    )  # fmt: skip
    if txn_count < 0:
        return None
    does, row, node, versions = does[:txn_count], row[:txn_count], node[:txn_count], versions[:txn_count]
    creates, sets, acls, begun = (
        does == action for action in (kernels.CREATE, kernels.SET, kernels.SET_ACL, kernels.SESSION)
    )
    own = node == paths.ids[row]
    kind = np.where(creates & own, kinds[row], PERSISTENT)
    session = np.where(begun | (creates & (kind == EPHEMERAL)), owners[row], 0)
    times = np.where(sets, np.asarray(rows.column("mtime"))[row], np.asarray(rows.column("ctime"))[row])
    names = pa.array([*(TYPES[index] for index in range(4)), "setData", "setACL", "createSession"])
    count = len(owners)
    # After the values of the rows: those of added ancestors, and null.
    value = np.where(creates & ~own, count, np.where(creates | sets, row, count + 1))
    text, raw = _lists(lists, np.where(creates & ~own, count, np.where(creates | acls, row, count + 1)))
    columns = {
        "zxid": numbers(pa.int64(), zxid + np.arange(txn_count)),
        "session_id": numbers(pa.int64(), session),
        "cxid": numbers(pa.int32(), np.zeros(txn_count, np.int32)),
        "type": names.take(numbers(pa.int64(), np.where(creates, kind, 3 + np.where(sets, 1, np.where(acls, 2, 3))))),
        "path": pc.if_else(numbers(pa.bool_(), begun), pa.scalar(None, pa.binary()), paths.stored().take(numbers(pa.int64(), node))),
        "data": pa.concat_arrays([values, pa.array([b"", None], pa.binary())]).take(numbers(pa.int64(), value)),
        "acl": text,
        "acl_raw": raw,
        "ephemeral": numbers(pa.bool_(), kind == EPHEMERAL, ~creates),
        "parent_cversion": numbers(pa.int32(), versions.astype(np.int32), ~creates),
        "version": numbers(pa.int32(), versions.astype(np.int32), ~(sets | acls)),
        "ttl": numbers(pa.int64(), ttls[row], kind != TTLS),
        "time_out": numbers(pa.int32(), np.full(txn_count, timeout), ~begun),
        "time_ms": numbers(pa.int64(), np.where(acls | (times == 0), time, times)),
    }  # fmt: skip
    return _batch(columns, txn_count)


def _lists(lists: pa.Array, which: Int64s) -> tuple[pa.Array, pa.Array]:
    """Return ACLs as text, and in raw form where the text does not determine them: of rows, then the open one, then null."""
    coded = lists.dictionary_encode()
    contents = coded.dictionary.to_pylist()
    both = [unpacked(open_list() if content is None else content) for content in [*contents, open_list()]]
    index = np.append(
        np.asarray(pc.fill_null(coded.indices, len(contents))).astype(np.int64),
        [len(contents), len(contents) + 1],
    )
    picked = numbers(pa.int64(), index[which])
    text = pa.array([*(pair[0] for pair in both), None], SCHEMA.field("acl").type)
    raw = pa.array([*(pair[1] for pair in both), None], SCHEMA.field("acl_raw").type)
    return text.take(picked), raw.take(picked)


def of_txns(
    tree: Tree, rows: pa.RecordBatch, zxid: int, *, kept: bool, time: int, timeout: int
) -> pa.RecordBatch | None:
    """Fill in absent values of transactions (`SCHEMA`). `kept`: they keep their consecutive zxids. See `edits.Editor.txns`."""
    count = rows.num_rows
    types = pc.index_in(rows.column("type"), pa.array(_NAMES))
    if types.null_count or not count:
        return None
    does = np.array([_DOES[name] for name in _NAMES], np.int8)[np.asarray(types)]
    about = (does != kernels.NOTHING) & (does != kernels.SESSION)
    stored = rows.column("path")
    if (about & np.asarray(stored.is_null())).any():
        return None
    full_paths = pc.fill_null(stored, b"/")
    about_path = pc.if_else(pc.equal(full_paths, b"/"), pa.scalar(b"", pa.binary()), full_paths)
    paths = _Paths(tree, about_path)
    ephemeral = np.asarray(pc.fill_null(rows.column("ephemeral"), False))
    sessions = np.asarray(pc.fill_null(rows.column("session_id"), 0))
    ttls = np.asarray(pc.fill_null(rows.column("ttl"), 0))
    creates = does == kernels.CREATE
    name = np.asarray(types)
    lasting, timed = name == _NAMES.index("createContainer"), name == _NAMES.index("createTTL")
    wrong = (creates & ephemeral & (sessions == 0)) | (timed & ((ttls < 1) | (ttls > TTL_MAX)))
    if not paths.known or wrong.any():
        return None
    kinds = np.where(
        lasting, CONTAINERS, np.where(timed, TTLS, np.where(ephemeral, kinds_of(sessions), PERSISTENT))
    )
    versions, cversions = (
        np.asarray(pc.fill_null(rows.column(name).cast(pa.int64()), LEFT_OUT)).copy()
        for name in ("version", "parent_cversion")
    )
    if kernels.follow(does, paths.ids, kinds.astype(np.int8), paths.nodes, versions, cversions) < count:
        return None
    null = {
        name: np.asarray(rows.column(name).is_null())
        for name in ("version", "parent_cversion", "ephemeral", "time_out")
    }
    bare = creates & np.asarray(rows.column("acl").is_null())
    columns = {field.name: rows.column(field.name) for field in SCHEMA}
    columns |= {
        "zxid": rows.column("zxid") if kept else numbers(pa.int64(), zxid + np.arange(count)),
        "session_id": numbers(pa.int64(), sessions),
        "cxid": pc.fill_null(rows.column("cxid"), 0),
        "time_ms": pc.fill_null(rows.column("time_ms"), time),
        "path": pc.if_else(
            numbers(pa.bool_(), about), paths.stored().take(numbers(pa.int64(), paths.ids)), stored
        ),
        "version": _unless_left_out(versions),
        "parent_cversion": _unless_left_out(cversions),
        "ephemeral": numbers(pa.bool_(), ephemeral, null["ephemeral"] & ~creates),
    }
    if (does == kernels.SESSION).any():
        begun = numbers(pa.bool_(), does == kernels.SESSION)
        columns["time_out"] = pc.if_else(
            begun, pc.fill_null(rows.column("time_out"), timeout), rows.column("time_out")
        )
    closes = name == _NAMES.index("closeSession")
    if closes.any():
        columns["paths_to_delete"] = _defaulted(rows.column("paths_to_delete"), closes, [])
    if bare.any():
        text, raw = unpacked(open_list())
        columns["acl"] = _defaulted(rows.column("acl"), bare, text)
        columns["acl_raw"] = _defaulted(rows.column("acl_raw"), bare, raw, always=True)
    return _batch(columns, count)


def _unless_left_out(versions: Int64s) -> pa.Array:
    gone = versions == LEFT_OUT
    return numbers(pa.int32(), np.where(gone, 0, versions).astype(np.int32), gone)


def _defaulted(
    lists: pa.Array, which: npt.NDArray[np.bool_], value: Any, *, always: bool = False
) -> pa.Array:
    """Return lists with `value` for the null ones of `which`, or for all of them."""
    at = np.arange(len(lists))
    chosen = which if always else which & np.asarray(lists.is_null())
    both = pa.concat_arrays([lists, pa.array([value], lists.type)])
    return both.take(numbers(pa.int64(), np.where(chosen, len(lists), at)))


def _batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
