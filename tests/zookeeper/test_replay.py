"""Trees in memory: comparison with a plain model, transactions that crash a server, quotas, and partial input."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_model import Model, Txn
from zookeeper_replay import as_told, restored

from logwright.codec.fault import Kind
from logwright.codec.frames.walk import MemoryFile
from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, PAYLOAD
from logwright.codec.zookeeper.formats.txnlog.tables import OPTIONS as TXNLOG_OPTIONS
from logwright.codec.zookeeper.state import tree_kernels as state
from logwright.codec.zookeeper.state.tree import Applied, Tree
from logwright.codec.zookeeper.state.tree_load import Mismatch
from logwright.codec.zookeeper.store.write import of_tree
from logwright.corpora import cases

pytestmark = pytest.mark.kernel_modes

CASES = cases.cases("zookeeper")
WORLD = [{"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}}]
READERS = [{"perms": 1, "id": {"scheme": b"digest", "id": b"u:p"}}, *WORLD]
SESSION = 0x100000000000001


def log(*inputs: Txn | bytes) -> tuple[Window, Frames]:
    """Transactions as a log, and its frames. Bytes are a payload."""
    payloads = [item if isinstance(item, bytes) else PAYLOAD.pack(item) for item in inputs]
    data = FILE_HEADER.pack({}) + b"".join(_record(payload) for payload in payloads)
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    context = txnlog.CODEC.context("log.1", Options(TXNLOG_OPTIONS))
    frames = txnlog.CODEC.scan(window, 0, context)
    assert len(frames) == len(inputs) + 1
    return window, frames


def _record(payload: bytes) -> bytes:
    return zlib.adler32(payload).to_bytes(8, "big") + len(payload).to_bytes(4, "big") + payload + b"B"


def txn(zxid: int, kind: int, body: Any, client: int = SESSION, digest: int | None = None) -> Txn:
    message = None if digest is None else {"version": 2, "tree_digest": digest}
    return {
        "client_id": client, "cxid": zxid, "zxid": zxid, "time": 1_700_000_000_000 + zxid, "type": kind, "body": body, "digest": message,
    }  # fmt: skip


def create(zxid: int, path: bytes, data: bytes | None = b"", **more: Any) -> Txn:
    body = {"path": path, "data": data, "acl": WORLD, "ephemeral": 0, "parent_cversion": -1, **more}
    return txn(zxid, txns.CREATE, body)


def delete(zxid: int, path: bytes) -> Txn:
    return txn(zxid, txns.DELETE, {"path": path})


def set_data(zxid: int, path: bytes, data: bytes | None, version: int = 1) -> Txn:
    return txn(zxid, txns.SET_DATA, {"path": path, "data": data, "version": version})


def multi(zxid: int, *inputs: tuple[int, Any]) -> Txn:
    return txn(zxid, txns.MULTI, {"txns": [{"type": kind, "data": body} for kind, body in inputs]})


def replayed(*inputs: Txn | bytes, tree: Tree | None = None, **settings: bool) -> tuple[Tree, Applied]:
    result = Tree.empty(**settings) if tree is None else tree
    return result, result.apply_frames(*log(*inputs), check=True)


def agree(tree: Tree, model: Model) -> None:
    """All that a tree says is what the model has."""
    reached = sorted(model.below(b""))
    assert [item.path for item in (tree.get(path) for path in reached) if item is not None] == reached
    assert tree.orphans() == sorted(set(model.nodes) - set(reached))
    assert len(tree) == len(reached)
    for path, there in model.nodes.items():
        node = tree.get(path)
        assert node is not None, path
        assert node.data == there.data, path
        assert node.acl_id == there.acl, path
        assert node.num_children == len(there.children), path
        assert node.stat == {name: vars(there)[name] for name in node.stat}, path
        assert tree.children(path) == sorted(path + b"/" + name for name in there.children)
    assert tree.digest == model.digest
    assert tree.zxid == model.zxid
    assert tree.session_timeouts == dict(sorted(model.sessions.items()))
    assert tree.acl_uses() == dict(sorted(model.refs.items()))
    assert tree.quota_paths == sorted(model.quotas)


# Against the model

_NAMES = (b"a", b"b", b"c")
_PATHS = [
    *(b"/" + name for name in _NAMES),
    *(b"/%s/%s" % (parent, child) for parent in _NAMES for child in _NAMES),
    *(b"/a/a/%s" % name for name in _NAMES),
]
_QUOTAS = [b"/zookeeper/quota/a", b"/zookeeper/quota/a/a", b"/zookeeper/quota/b"]
_QUOTA_PATHS = [
    *_QUOTAS,
    *(quota + name for quota in _QUOTAS for name in (b"/zookeeper_limits", b"/zookeeper_stats")),
]
_ODD = [b"/", b"/missing/child", b"/zookeeper/config"]
paths = st.one_of(
    st.sampled_from(_PATHS), st.sampled_from(_PATHS), st.sampled_from(_QUOTA_PATHS), st.sampled_from(_ODD)
)
blobs = st.one_of(st.none(), st.binary(max_size=12))
acls = st.sampled_from([None, [], WORLD, READERS])
clients = st.sampled_from([SESSION, SESSION + 1, SESSION + 2])
_STATS = (b"/zookeeper_stats", b"/zookeeper_limits")


@st.composite
def bodies(draw: st.DrawFn) -> tuple[int, Any]:
    """Draw the type and body of a transaction, alone or in a multi."""
    kind = draw(
        st.sampled_from(
            [txns.CREATE] * 5
            + [txns.DELETE, txns.SET_DATA] * 2
            + [txns.CREATE2, txns.CREATE_CONTAINER, txns.CREATE_TTL, txns.DELETE_CONTAINER]
        )
    )
    path = draw(paths)
    if kind in (txns.DELETE, txns.DELETE_CONTAINER):
        # The root is not deleted.
        return kind, {"path": path if path != b"/" else b"/a"}
    data = draw(blobs)
    if path.endswith(_STATS):
        data = b"count=%d,bytes=%d" % (draw(st.integers(-1, 9)), draw(st.integers(-1, 9)))
        data += draw(st.sampled_from([b"", b"=;byteHardLimit=7;countHardLimit=3"]))
    if kind == txns.SET_DATA:
        return kind, {"path": path, "data": data, "version": draw(st.integers(0, 5))}
    body = {"path": path, "data": data, "acl": draw(acls), "parent_cversion": draw(st.integers(-1, 6))}
    if kind in (txns.CREATE, txns.CREATE2):
        body["ephemeral"] = draw(st.sampled_from([0, 0, 0, 1]))
    if kind == txns.CREATE_TTL:
        body["ttl"] = draw(st.sampled_from([1, 1000, (1 << 40) - 1]))
    return kind, body


@st.composite
def transactions(draw: st.DrawFn) -> list[Txn]:
    out = []
    zxid = 0
    for _ in range(draw(st.integers(0, 25))):
        zxid += draw(st.sampled_from([1, 1, 1, 0, 3]))
        which = draw(st.integers(0, 11))
        kind, body = draw(bodies())
        if which == 0:
            kind, body = txns.CREATE_SESSION, {"time_out": draw(st.integers(1, 9))}
        elif which == 1:
            named = draw(st.one_of(st.none(), st.lists(st.sampled_from(_PATHS), max_size=3)))
            kind, body = txns.CLOSE_SESSION, None if named is None else {"paths_to_delete": named}
        elif which == 2:
            kind, body = (
                txns.SET_ACL,
                {"path": draw(paths), "acl": draw(acls), "version": draw(st.integers(0, 5))},
            )
        elif which in (3, 4):
            parts = draw(st.lists(bodies(), max_size=5))
            if draw(st.integers(0, 5)) == 0:
                parts.append((txns.ERROR, {"err": -101}))
            if draw(st.integers(0, 5)) == 0:
                parts.append((txns.CHECK, {"path": b"/a", "version": 1}))
            kind, body = txns.MULTI, {"txns": [{"type": part, "data": two} for part, two in parts]}
        elif which == 5:
            kind, body = txns.ERROR, {"err": -110}
        elif which == 6:
            kind, body = txns.RECONFIG, {"path": b"/zookeeper/config", "data": b"version=1", "version": -1}
        out.append(txn(zxid, kind, body, draw(clients)))
    return out


@given(transactions(), st.booleans(), st.integers(0, 25))
def test_any_transactions_give_the_tree_of_the_model(inputs: list[Txn], extended: bool, cut: int) -> None:
    """In two calls, then written as a snapshot and read, as a server would start from it."""
    model = Model.fresh(extended)
    tree = Tree.empty(extended_types=extended)
    for subset in (inputs[:cut], inputs[cut:]):
        applied = tree.apply_frames(*log(*subset))
        assert applied.died is None
        assert applied.count == len(subset)
        digests = []
        for item in subset:
            model.apply(item)
            digests.append(model.digest)
        assert applied.digests.tolist() == digests
    agree(tree, model)
    second, faults = _reread(tree, extended_types=extended)
    assert not [fault for fault in faults if fault.severity == "error"]
    assert second.loaded() == ([], None)
    fresh = model.reloaded()
    agree(second, fresh)
    second.after_load()
    fresh.after_load()
    agree(second, fresh)


def _reread(tree: Tree, **settings: bool) -> tuple[Tree, list[Any]]:
    data = b"".join(bytes(buffer) for buffer in of_tree(tree))
    return Tree.of_snapshot(_memory(data), zxid=tree.zxid, **settings)


def _memory(data: bytes) -> MemoryFile:
    return MemoryFile(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("flipped", [None, 1000, 4 << 20, 6_000_000])
def test_snapshot_is_read_once_and_its_checksum_covers_what_was_read(flipped: int | None) -> None:
    """It is longer than a window; `flipped` is a byte of the data of a node."""
    tree, _ = replayed(*(create(1 + i, b"/a%d" % i, b"x" * 500_000) for i in range(12)))
    data = bytearray(b"".join(bytes(buffer) for buffer in of_tree(tree)))
    if flipped is not None:
        assert data[flipped] == ord("x")
        data[flipped] ^= 1
    read = [0]

    class Counting(MemoryFile):
        def pread(self, offset: int, length: int) -> Any:
            actual = super().pread(offset, length)
            read[0] += len(actual)
            return actual

    _, faults = Tree.of_snapshot(Counting(np.frombuffer(bytes(data), np.uint8)), zxid=tree.zxid)
    assert [fault.kind for fault in faults] == ([] if flipped is None else [Kind.CHECKSUM])
    # A node truncated by the end of a window is read again.
    assert read[0] < 1.3 * len(data)


# Transactions that crash a server, and those it skips


def _dies(*inputs: Txn | bytes, **settings: bool) -> tuple[Tree, Any]:
    tree, applied = replayed(*inputs, **settings)
    assert applied.died is not None
    assert applied.died.index == len(inputs)  # the file's header is a frame too
    assert applied.count == len(inputs) - 1
    return tree, applied.died


def test_invalid_paths_crash_a_server() -> None:
    _, died = _dies(create(1, b"/a"), create(2, b"bare"))
    assert (died.code, died.error) == (
        state.NO_SLASH,
        "StringIndexOutOfBoundsException: begin 0, end -1, length 4",
    )
    assert _dies(delete(1, b"bare"))[1].code == state.NO_SLASH
    for item in (create(1, None), delete(1, None), set_data(1, None, b"")):  # type: ignore[arg-type]
        assert _dies(item)[1].error == "NullPointerException"
    acl = txn(1, txns.SET_ACL, {"path": None, "acl": WORLD, "version": 1})
    assert _dies(acl)[1].code == state.IS_NULL
    # Where nothing is taken apart, a path without a slash is just not there.
    _, applied = replayed(set_data(1, b"bare", b""))
    assert applied.noted[0].code == state.NONODE


def test_acl_without_scheme_or_id_crashes_a_server() -> None:
    """Java's lists are looked up by their hash."""
    for name in ("scheme", "id"):
        nobody = [{"perms": 1, "id": {"scheme": b"world", "id": b"anyone"} | {name: None}}]
        tree, died = _dies(create(1, b"/a"), create(2, b"/b", acl=nobody))
        assert died.code == state.IS_NULL
        assert tree.get(b"/b") is None
        acl = {"path": b"/a", "acl": nobody, "version": 1}
        assert _dies(create(1, b"/a"), txn(2, txns.SET_ACL, acl))[1].code == state.IS_NULL


def test_ttl_out_of_range_crashes_a_server() -> None:
    for ttl in (0, -1, 1 << 40):
        body = {"path": b"/t", "data": b"", "acl": WORLD, "parent_cversion": 1, "ttl": ttl}
        tree, died = _dies(txn(1, txns.CREATE_TTL, body))
        assert (
            died.error
            == "IllegalArgumentException: ttl must be positive and cannot be larger than: 1099511627775"
        )
        assert tree.get(b"/t") is None


def test_invalid_ephemeral_owner_crashes_a_server() -> None:
    odd = txn(1, txns.CREATE, create(1, b"/e", ephemeral=1)["body"], client=-(1 << 56) | 1 << 40)
    _, died = _dies(odd, extended_types=True)
    assert died.error == "IllegalArgumentException: Invalid ephemeralOwner. [ff00010000000000]"
    assert died.detail == odd["client_id"]
    tree, applied = replayed(odd)
    assert applied.died is None
    assert tree.after_load() == [b"/e"]


def test_missing_acl_crashes_a_server() -> None:
    case = CASES["syn_acl_dangling"]
    tree, _ = restored(case)
    assert tree.dangling == {4242}
    (path,) = [
        row["path"].encode()
        for batch in tree.nodes(["path", "acl"])
        for row in batch.to_pylist()
        if row["acl"] is None
    ]
    node = tree.get(path)
    assert node is not None
    assert node.acl is None
    assert node.acl_id == 4242
    zxid = tree.zxid + 1
    for item in (set_data(zxid, path, b"x"), create(zxid, path + b"/below"), delete(zxid, path)):
        _, applied = replayed(item, tree=tree.copy())
        assert applied.died is not None
        assert applied.died.error == "RuntimeException: Failed to fetch acls for 4242"
        assert applied.died.detail == 4242
    lenient, _ = restored(case, acl_lookups=False)
    assert replayed(set_data(zxid, path, b"x"), tree=lenient)[1].died is None
    # A new list ends it.
    _, applied = replayed(txn(zxid, txns.SET_ACL, {"path": path, "acl": WORLD, "version": 1}), tree=tree)
    assert applied.died is None
    assert tree.dangling == set()


def test_multi_with_null_lists_crashes_a_server() -> None:
    complete = PAYLOAD.pack(multi(1))
    null_list = complete[:-4] + b"\xff\xff\xff\xff"
    assert _dies(null_list)[1].error == "NullPointerException"
    null_part = complete[:-4] + b"\0\0\0\1\0\0\0\1\xff\xff\xff\xff"
    assert _dies(null_part)[1].error == "NullPointerException"


def test_multi_ends_at_an_invalid_part() -> None:
    good = (txns.CREATE, create(1, b"/a")["body"])
    more = (txns.CREATE, create(1, b"/b")["body"])
    payload = PAYLOAD.pack(multi(1, good, (txns.CHECK, {"path": b"/a", "version": 1}), more))
    for kind in (txns.SET_ACL, txns.RECONFIG, 99, -99, txns.CLOSE_SESSION):
        changed = payload.replace(b"\0\0\0\x0d", kind.to_bytes(4, "big", signed=True))
        tree, applied = replayed(changed)
        assert applied.count == 1
        assert [(note.code, note.sub) for note in applied.noted] == [(state.MARSHALLING, 1)]
        assert tree.get(b"/a") is not None
        assert tree.get(b"/b") is None
        assert tree.zxid == 1
    # Its path is said to be longer than it is.
    cut = payload.replace(b"\0\0\0\2/a\0\0\0\1", b"\0\0\0\x7f/a\0\0\0\1")
    assert cut != payload
    tree, applied = replayed(cut)
    assert [(note.code, note.sub) for note in applied.noted] == [(state.MARSHALLING, 1)]
    assert tree.get(b"/b") is None


def test_path_before_an_invalid_part_is_decoded_as_java_does() -> None:
    parts = (txns.CREATE, create(1, b"/\xff")["body"]), (txns.CHECK, {"path": b"/a", "version": 1})
    payload = PAYLOAD.pack(multi(1, *parts))
    for odd in (payload, payload.replace(b"\0\0\0\2/a\0\0\0\1", b"\0\0\0\x7f/a\0\0\0\1")):
        tree, _ = replayed(odd)
        assert tree.get("/\ufffd".encode()) is not None


def test_digest_of_a_multi_with_an_invalid_part_is_compared() -> None:
    item = multi(1, (txns.CREATE, create(1, b"/a")["body"]), (txns.CHECK, {"path": b"/a", "version": 1}))
    item["digest"] = {"version": 2, "tree_digest": 5}
    payload = PAYLOAD.pack(item)
    assert payload.count(b"\0\0\0\2/a\0\0\0\1") == 1
    cut = payload.replace(b"\0\0\0\2/a\0\0\0\1", b"\0\0\0\x7f/a\0\0\0\1")
    tree, applied = replayed(cut)
    assert applied.mismatches == [Mismatch(1, 5, tree.digest)]


def test_multi_parts_may_have_trailing_bytes() -> None:
    payload = PAYLOAD.pack(
        multi(1, (txns.DELETE, {"path": b"/none"}), (txns.CREATE, create(1, b"/a")["body"]))
    )
    longer = payload.replace(b"\0\0\0\x09\0\0\0\5/none", b"\0\0\0\x0b\0\0\0\5/none\1\2")
    assert longer != payload
    tree, applied = replayed(longer)
    assert [(note.code, note.path) for note in applied.noted] == [(state.NONODE, b"/none")]
    assert tree.get(b"/a") is not None


def test_unreadable_transactions_are_skipped() -> None:
    check = PAYLOAD.pack(txn(2, txns.CREATE_SESSION, {"time_out": 1})).replace(
        b"\xff\xff\xff\xf6", b"\0\0\0\x0d"
    )
    torn = PAYLOAD.pack(multi(3, (txns.DELETE, {"path": b"/none"})))[:-3]
    tree, applied = replayed(create(1, b"/a"), check, torn, b"short", create(4, b"/b"))
    assert [(note.zxid, note.code, note.sub) for note in applied.noted] == [
        (2, state.UNREAD, -1),
        (3, state.UNREAD, -1),
        (0, state.UNREAD, -1),
    ]
    assert applied.count == 2
    assert tree.zxid == 4


# Sessions


def test_closing_a_session_deletes_its_nodes() -> None:
    opened = txn(1, txns.CREATE_SESSION, {"time_out": 4000})
    result = [create(2 + k, b"/e%d" % k, ephemeral=1) for k in range(3)]
    tree, _ = replayed(opened, *result)
    assert tree.sessions().to_pylist() == [{"session_id": SESSION, "timeout": 4000}]
    closed = txn(5, txns.CLOSE_SESSION, {"paths_to_delete": [b"/e1", b"/gone"]})
    _, applied = replayed(closed, tree=tree)
    assert [(note.code, note.path) for note in applied.noted] == [(state.NONODE, b"/gone")]
    assert tree.session_timeouts == {}
    assert tree.children(b"") == [b"/zookeeper"]


def test_paths_in_close_session_are_ignored_unless_enabled() -> None:
    inputs = [create(1, b"/a"), create(2, b"/e", ephemeral=1)]
    closed = txn(3, txns.CLOSE_SESSION, {"paths_to_delete": [b"/a"]})
    assert replayed(*inputs, closed)[0].children(b"/") == [b"/zookeeper"]
    assert replayed(*inputs, closed, close_session_txn=False)[0].children(b"/") == [b"/a", b"/zookeeper"]


def test_ephemeral_nodes_without_a_session_are_deleted_after_loading() -> None:
    tree, _ = replayed(
        txn(1, txns.CREATE_SESSION, {"time_out": 4000}),
        create(2, b"/kept", ephemeral=1),
        txn(3, txns.CREATE, create(3, b"/lost", ephemeral=1)["body"], client=77),
        create(4, b"/later"),
    )
    assert tree.after_load() == [b"/lost"]
    assert tree.children(b"/") == [b"/kept", b"/later", b"/zookeeper"]
    root = tree.get(b"/")
    assert root is not None
    assert root.stat["pzxid"] == 4
    assert tree.after_load() == []


def test_orphan_survives_the_end_of_its_session() -> None:
    """The parent was deleted, which only happens where transactions are missing: nobody finds the node, but it is there."""
    tree, applied = replayed(
        create(1, b"/p"),
        create(2, b"/p/e", ephemeral=1),
        delete(3, b"/p"),
        txn(4, txns.CLOSE_SESSION, None),
    )
    assert [(note.code, note.path) for note in applied.noted] == [(state.NONODE, b"/p/e")]
    assert tree.orphans() == [b"/p/e"]
    assert tree.get(b"/p/e") is not None


@pytest.mark.parametrize(
    ("owner", "extended", "kept"), [(-(1 << 56) | 5, True, True), (-(1 << 56) | 5, False, False)]
)
def test_ttl_nodes_without_extended_types(owner: int, extended: bool, kept: bool) -> None:
    body = {"path": b"/t", "data": b"", "acl": WORLD, "parent_cversion": 1, "ttl": 5}
    tree, _ = replayed(txn(1, txns.CREATE_TTL, body))
    node = tree.get(b"/t")
    assert node is not None
    assert node.stat["owner"] == owner
    assert (tree.after_load(extended_types=extended) == []) is kept


# Older servers


def test_orphan_may_be_created_again() -> None:
    inputs = [create(1, b"/p"), create(2, b"/p/c", b"old"), delete(3, b"/p"), create(4, b"/p")]
    second = create(5, b"/p/c", b"new", acl=READERS)
    tree, applied = replayed(*inputs, second)
    assert [note.code for note in applied.noted] == [state.NODEEXISTS]
    assert tree.orphans() == [b"/p/c"]
    older, applied = replayed(*inputs, second, existing_by_path=False)
    assert applied.noted == []
    node = older.get(b"/p/c")
    assert node is not None
    assert (node.data, node.stat["czxid"]) == (b"new", 5)
    assert older.orphans() == []
    without, _ = replayed(inputs[0], *inputs[2:], second)
    assert older.digest == without.digest
    # A child that is there is left as it is; what its list counts is counted all the same.
    for settings, uses in (({}, 2), ({"monotonic": False}, 1)):
        tree, applied = replayed(create(1, b"/a"), create(2, b"/a"), existing_by_path=False, **settings)
        assert [note.code for note in applied.noted] == [state.NODEEXISTS]
        assert tree.acl_uses() == {1: 1, 2: uses}
    tree, _ = replayed(create(1, b"/a"), create(2, b"/a", acl=READERS), existing_by_path=False)
    node = tree.get(b"/a")
    assert node is not None
    assert node.acl_id == 2


def test_counters_may_decrease_in_older_servers() -> None:
    inputs = [create(5, b"/a", parent_cversion=9), create(6, b"/b", parent_cversion=3)]
    for monotonic, cversion, pzxid in ((True, 9, 5), (False, 3, 6)):
        tree, _ = replayed(*inputs, monotonic=monotonic)
        root = tree.get(b"/")
        assert root is not None
        assert (root.stat["cversion"], root.stat["pzxid"]) == (cversion, pzxid)
    for monotonic, pzxid in ((True, 6), (False, 2)):
        tree, _ = replayed(create(6, b"/a"), delete(2, b"/a"), delete(9, b"/none"), monotonic=monotonic)
        root = tree.get(b"/")
        assert root is not None
        assert root.stat["pzxid"] == (9 if monotonic else pzxid)
    # -1 is one more, and comes round.
    full = create(1, b"/a", parent_cversion=0x7FFFFFFF)
    tree, _ = replayed(full, create(2, b"/b"), monotonic=False)
    root = tree.get(b"/")
    assert root is not None
    assert root.stat["cversion"] == -0x80000000


def test_older_servers_delete_orphans() -> None:
    inputs = [create(1, b"/p"), create(2, b"/p/c"), delete(3, b"/p"), delete(4, b"/p/c")]
    for monotonic, left in ((True, [b"/p/c"]), (False, [])):
        tree, applied = replayed(*inputs, monotonic=monotonic)
        assert [note.code for note in applied.noted] == [state.NONODE]
        assert tree.orphans() == left


def test_older_servers_do_not_know_containers() -> None:
    body = {"path": b"/c", "data": b"", "acl": WORLD, "parent_cversion": 1}
    inputs = txn(1, txns.CREATE_CONTAINER, body)
    assert replayed(inputs)[0].after_load() == []
    assert replayed(inputs, containers=False)[0].after_load() == [b"/c"]
    assert replayed(inputs, containers=False)[0].after_load(extended_types=True) == [b"/c"]


# Digests


def test_transaction_digests_are_compared() -> None:
    tree = Tree.empty()
    right = tree.copy().apply_frames(*log(create(1, b"/a"), create(2, b"/b"))).digests.tolist()
    inputs = [create(1, b"/a"), create(2, b"/b")]
    for item, digest in zip(inputs, right, strict=True):
        item["digest"] = {"version": 2, "tree_digest": digest}
    assert tree.copy().apply_frames(*log(*inputs), check=True).mismatches == []
    inputs[1]["digest"] = {"version": 2, "tree_digest": 5}
    assert tree.copy().apply_frames(*log(*inputs), check=True).mismatches == [Mismatch(2, 5, right[1])]
    # Another version of digests is not compared.
    inputs[1]["digest"] = {"version": 3, "tree_digest": 5}
    assert tree.copy().apply_frames(*log(*inputs), check=True).mismatches == []
    without = Tree.empty(digests=False)
    inputs[1]["digest"] = {"version": 2, "tree_digest": 5}
    assert without.apply_frames(*log(*inputs), check=True).mismatches == []


def test_digest_of_a_fuzzy_snapshot_is_compared_at_its_zxid() -> None:
    """Its digest is that of the last transaction that went on while it was taken; before that digests in the log say nothing."""
    tree, _ = replayed(create(1, b"/a"))
    data = bytearray(b"".join(bytes(buffer) for buffer in of_tree(tree)))
    later = create(2, b"/b")
    after = tree.copy().apply_frames(*log(later)).digests.tolist()[-1]
    for digest, wrong in ((after, False), (after + 1, True)):
        place = len(data) - 13 - 8 - 13 - 20
        data[place : place + 20] = (2).to_bytes(8, "big") + (2).to_bytes(4, "big") + digest.to_bytes(8, "big")
        fuzzy, _ = Tree.of_snapshot(_memory(bytes(data)), zxid=1, check=False)
        assert fuzzy.loaded() == ([], None)
        assert fuzzy.target == (2, 2, digest)
        early = txn(1, txns.ERROR, {"err": -1}, digest=99)
        assert fuzzy.apply_frames(*log(early), check=True).mismatches == []
        mismatches = fuzzy.apply_frames(*log(later), check=True).mismatches
        assert mismatches == ([Mismatch(2, digest, after)] if wrong else [])
        assert fuzzy.target is None


def test_digest_of_a_snapshot_is_compared() -> None:
    tree, _ = replayed(create(1, b"/a"))
    data = bytearray(b"".join(bytes(buffer) for buffer in of_tree(tree)))
    place = len(data) - 13 - 8 - 13 - 8
    assert data[place : place + 8] == tree.digest.to_bytes(8, "big")
    data[place] ^= 1
    second, _ = Tree.of_snapshot(_memory(bytes(data)), zxid=1, check=False)
    (actual,) = second.loaded()[0]
    assert (actual.zxid, actual.computed) == (1, tree.digest)


# Quotas


def _quota(zxid: int, path: bytes, limits: bytes = b"count=5,bytes=-1") -> list[Txn]:
    complete = b"/zookeeper/quota" + path
    return [
        create(zxid, complete),
        create(zxid + 1, complete + b"/zookeeper_limits", limits),
        create(zxid + 2, complete + b"/zookeeper_stats", b"count=0,bytes=0"),
    ]


def _stats(tree: Tree, path: bytes) -> bytes | None:
    node = tree.get(b"/zookeeper/quota" + path + b"/zookeeper_stats")
    assert node is not None
    return node.data


def test_quota_statistics_are_counted() -> None:
    tree, _ = replayed(create(1, b"/a", b"12"), create(2, b"/a/b", b"345"), *_quota(3, b"/a"))
    assert _stats(tree, b"/a") == b"count=2,bytes=5"
    replayed(
        create(6, b"/a/c", b"6"),
        set_data(7, b"/a", None),
        delete(8, b"/a/b"),
        create(9, b"/ab", b"xx"),
        tree=tree,
    )
    assert _stats(tree, b"/a") == b"count=2,bytes=1"
    # A value written by a client stays and is counted from.
    stats = b"/zookeeper/quota/a/zookeeper_stats"
    replayed(set_data(10, stats, b"count=7,bytes=-1=;byteHardLimit=3"), create(11, b"/a/d", b"4"), tree=tree)
    assert _stats(tree, b"/a") == b"count=8,bytes=0=;byteHardLimit=3"
    # Without limits nothing is counted.
    replayed(delete(12, b"/zookeeper/quota/a/zookeeper_limits"), create(13, b"/a/e", b"5"), tree=tree)
    assert _stats(tree, b"/a") == b"count=8,bytes=0=;byteHardLimit=3"
    assert tree.quota_paths == []


def test_invalid_quotas_crash_a_server() -> None:
    _, died = _dies(create(1, b"/zookeeper/quota/zookeeper_limits"))
    assert (died.code, died.error) == (state.BAD_QUOTA, "IllegalArgumentException: Invalid path: ")
    stats = b"/zookeeper/quota/a/zookeeper_stats"
    for text, error in (
        (b"count=x", 'NumberFormatException: For input string: "x"'),
        (b"count", "ArrayIndexOutOfBoundsException: Index 1 out of bounds for length 1"),
        (None, "NullPointerException"),
    ):
        _, died = _dies(create(1, b"/a"), *_quota(2, b"/a"), set_data(5, stats, text), create(6, b"/a/b"))
        assert died.error == error
        # As long as nothing is counted, nobody reads it.
        assert replayed(create(1, b"/a"), *_quota(2, b"/a"), set_data(5, stats, text))[1].died is None


def test_quota_of_the_root_in_a_snapshot_crashes_a_server() -> None:
    tree, _ = replayed(create(1, b"/zookeeper/quota/zookeeper_limit"))
    data = b"".join(bytes(buffer) for buffer in of_tree(tree))
    changed = data.replace(
        b"\0\0\0\x20/zookeeper/quota/zookeeper_limit", b"\0\0\0\x21/zookeeper/quota/zookeeper_limits"
    )
    second, _ = Tree.of_snapshot(_memory(changed), zxid=1, check=False)
    assert second.loaded() == ([], "IllegalArgumentException: Invalid path: ")


# Selection of transactions, and queries


def test_since_and_upto_limit_the_transactions() -> None:
    inputs = [create(k, b"/n%d" % k) for k in (1, 2, 3, 2, 4, 5)]
    tree = Tree.empty()
    applied = tree.apply_frames(*log(*inputs), since=2, upto=4)
    assert applied.reached
    assert applied.count == 3
    assert tree.children(b"/") == [b"/n2", b"/n3", b"/n4", b"/zookeeper"]
    assert Tree.empty().apply_frames(*log(*inputs), since=9).count == 0
    assert Tree.empty().apply_frames(*log()).digests.tolist() == []


def test_frames_may_be_a_selection() -> None:
    window, frames = log(*(create(k, b"/n%d" % k) for k in range(1, 6)), create(6, b"bare"))
    subset = frames.pick(np.array([True, False, True, True, False, True, True]))
    tree = Tree.empty()
    applied = tree.apply_frames(window, subset)
    assert tree.children(b"/") == [b"/n2", b"/n3", b"/n5", b"/zookeeper"]
    assert applied.died is not None
    assert applied.died.index == 4


def test_number_of_kept_notes_is_limited() -> None:
    _tree, applied = replayed(*(delete(k, b"/none%d" % k) for k in range(1, 1101)))
    assert applied.notes == 1100
    assert len(applied.noted) == 1024
    assert applied.noted[-1].path == b"/none1024"


def test_memory_of_changed_data_is_reused() -> None:
    """Room is used again, and what is for nothing is cleared away."""
    rng = np.random.default_rng(1)
    expected = {}
    tree = Tree.empty()
    for round_ in range(40):
        inputs = []
        for k in range(10):
            zxid = 10 * round_ + k + 1
            path = b"/n%d" % rng.integers(8)
            value = rng.bytes(int(rng.integers(0, 900)))
            expected[path] = value
            inputs += [create(zxid, path), set_data(zxid, path, value)]
        replayed(*inputs, tree=tree)
    for path, value in expected.items():
        node = tree.get(path)
        assert node is not None
        assert node.data == value
    assert tree._arena.nbytes < 40_000
    names = [column.name for column in Tree.COLUMNS]
    rows = {row["path"]: row for batch in tree.nodes(names) for row in batch.to_pylist()}
    assert all(rows[path.decode()]["data"] == value for path, value in expected.items())


def test_rows_of_deleted_nodes_are_reused() -> None:
    """Rows of nodes that are gone are used for others, in the middle of what is going on too."""
    tree, _ = replayed(
        create(1, b"/p"), create(2, b"/p/left"), create(3, b"/e", ephemeral=1), delete(4, b"/p")
    )
    model = Model.fresh(False)
    for item in (create(1, b"/p"), create(2, b"/p/left"), create(3, b"/e", ephemeral=1), delete(4, b"/p")):
        model.apply(item)
    for round_ in range(30):
        zxid = 100 + 20 * round_
        inputs = [
            multi(zxid, *((txns.CREATE, create(zxid, b"/n%d" % k)["body"]) for k in range(12))),
            *(create(zxid + 1 + k, b"/e/%d" % k, ephemeral=1) for k in range(3)),
            multi(zxid + 5, *((txns.DELETE, {"path": b"/n%d" % k}) for k in range(12))),
            *(delete(zxid + 6 + k, b"/e/%d" % k) for k in range(2)),
        ]
        replayed(*inputs, tree=tree)
        for item in inputs:
            model.apply(item)
        agree(tree, model)
        end = txn(zxid + 9, txns.CLOSE_SESSION, None)
        if round_ % 7 == 6:
            replayed(end, create(zxid + 10, b"/e", ephemeral=1), tree=tree)
            model.apply(end)
            model.apply(create(zxid + 10, b"/e", ephemeral=1))
            agree(tree, model)
    assert len(tree._nodes) <= 64


def test_acl_lists_are_numbered_as_in_java() -> None:
    def acl_of_number(k: int) -> list[dict[str, Any]]:
        return [{"perms": k, "id": {"scheme": b"ip", "id": b"10.0.0.%d" % k}}]

    inputs = [create(k, b"/n%d" % k, acl=acl_of_number(k % 60)) for k in range(1, 121)]
    tree, _ = replayed(*inputs)
    assert tree.acl_uses() == {1: 1, **{k + 1: 2 for k in range(1, 61)}}
    table = {row["acl_id"]: row["acl"] for row in tree.acls().to_pylist()}
    for k in range(1, 121):
        node = tree.get(b"/n%d" % k)
        assert node is not None
        assert table[node.acl_id] == [{"perms": k % 60, "scheme": "ip", "id": f"10.0.0.{k % 60}"}]
    # A list that nobody has any more comes with another number.
    replayed(
        *(delete(200 + k, b"/n%d" % k) for k in (5, 65)), create(300, b"/n", acl=acl_of_number(5)), tree=tree
    )
    node = tree.get(b"/n")
    assert node is not None
    assert node.acl_id == 62


def test_acl_lists_equal_in_java_share_a_number() -> None:
    lists = [
        [{"perms": 1, "id": {"scheme": b"sasl", "id": item}}]
        for item in (b"\xff", b"\xfe", "\ufffd".encode())
    ]
    tree, _ = replayed(*(create(k, b"/n%d" % k, acl=item) for k, item in enumerate(lists)))
    assert tree.acl_uses() == {1: 1, 2: 3}


def test_find_and_stats() -> None:
    tree, _ = replayed(create(1, b"/a"), create(2, b"/a/b"), delete(3, b"/a/b"))
    rows = tree.find(pa.array([b"/a", b"/a/b", b"/", b"", b"/zookeeper"], pa.binary()))
    assert (rows >= 0).tolist() == [True, False, True, True, True]
    assert rows[2] == rows[3]
    stats = tree.stats(rows[[0, 2]])
    assert stats["czxid"].tolist() == [1, 0]
    assert stats["pzxid"].tolist() == [3, 1]
    assert stats["num_children"].tolist() == [0, 2]


def test_copies_are_independent() -> None:
    tree, _ = replayed(create(1, b"/a"), *_quota(2, b"/a"))
    copies: Sequence[Tree] = (tree.copy(), pickle.loads(pickle.dumps(tree)))
    for copy in copies:
        replayed(create(5, b"/a/b", b"123"), create(6, b"/c", acl=READERS), tree=copy)
        assert _stats(copy, b"/a") == b"count=2,bytes=3"
        assert copy.get(b"/c") is not None
    assert _stats(tree, b"/a") == b"count=1,bytes=0"
    assert tree.get(b"/c") is None
    assert tree.get(b"/nothing") is None
    assert tree.children(b"/nothing") == []


def test_columns_of_the_tree() -> None:
    tree, _ = replayed(create(1, b"/b", None), create(2, b"/a", b"x"), create(3, b"/a/c", b"yy"))
    expected = ["data_length", "path", "cversion", "num_children"]
    (batch,) = tree.nodes(expected)
    assert batch.schema.names == expected
    assert [tuple(row.values()) for row in batch.to_pylist()][:4] == [
        (0, "/", 1, 3),
        (1, "/a", 1, 1),
        (2, "/a/c", 0, 0),
        (0, "/b", 0, 0),
    ]
    (unordered,) = tree.nodes(["path"], order=False)
    assert unordered.column(0).to_pylist()[-3:] == ["/b", "/a", "/a/c"]
    (nothing,) = tree.nodes([])
    assert (nothing.num_rows, nothing.num_columns) == (7, 0)
    assert as_told(tree.get(b"/a")) | {"acl_id": 2} == as_told(tree.get(b"/a"))  # type: ignore[arg-type]
