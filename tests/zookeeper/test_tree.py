"""Trees in memory: comparison with a plain model, selection of transactions, storage and queries."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_model import Model, Txn
from zookeeper_nodes import acl_uses, children_of, node_at
from zookeeper_replay import as_told
from zookeeper_transactions import (
    READERS,
    SESSION,
    WORLD,
    agree,
    create,
    delete,
    log,
    multi,
    quota_stats,
    quota_txns,
    replayed,
    reread,
    set_data,
    txn,
)

from logwright.codec.fault import Kind
from logwright.codec.frames.walk import MemoryFile
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_read import COLUMNS
from logwright.codec.zookeeper.store.write import of_tree

pytestmark = pytest.mark.kernel_modes


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
    """Applied in two calls, then written as a snapshot and loaded as by a server."""
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
    second, faults = reread(tree, extended_types=extended)
    assert not [fault for fault in faults if fault.severity == "error"]
    assert second.loaded() == ([], None)
    fresh = model.reloaded()
    agree(second, fresh)
    second.after_load()
    fresh.after_load()
    agree(second, fresh)


@pytest.mark.parametrize("flipped", [None, 1000, 4 << 20, 6_000_000])
def test_snapshot_is_read_once_and_its_checksum_covers_what_was_read(flipped: int | None) -> None:
    """It is longer than a window; `flipped` is the offset of a changed byte in a node's data."""
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


# Selection of transactions, and queries


def test_since_and_upto_limit_the_transactions() -> None:
    inputs = [create(k, b"/n%d" % k) for k in (1, 2, 3, 2, 4, 5)]
    tree = Tree.empty()
    applied = tree.apply_frames(*log(*inputs), since=2, upto=4)
    assert applied.reached
    assert applied.count == 3
    assert children_of(tree, b"/") == [b"/n2", b"/n3", b"/n4", b"/zookeeper"]
    assert Tree.empty().apply_frames(*log(*inputs), since=9).count == 0
    assert Tree.empty().apply_frames(*log()).digests.tolist() == []


def test_frames_may_be_a_selection() -> None:
    window, frames = log(*(create(k, b"/n%d" % k) for k in range(1, 6)), create(6, b"bare"))
    subset = frames.pick(np.array([True, False, True, True, False, True, True]))
    tree = Tree.empty()
    applied = tree.apply_frames(window, subset)
    assert children_of(tree, b"/") == [b"/n2", b"/n3", b"/n5", b"/zookeeper"]
    assert applied.died is not None
    assert applied.died.index == 4


def test_memory_of_changed_data_is_reused() -> None:
    """Freed space is reused, and garbage is compacted."""
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
        node = node_at(tree, path)
        assert node is not None
        assert node.data == value
    assert tree._arena.nbytes < 40_000
    names = [column.name for column in COLUMNS]
    rows = {row["path"]: row for batch in tree.nodes(names) for row in batch.to_pylist()}
    assert all(rows[path.decode()]["data"] == value for path, value in expected.items())


def test_rows_of_deleted_nodes_are_reused() -> None:
    """Also while transactions are being applied."""
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
    assert acl_uses(tree) == {1: 1, **{k + 1: 2 for k in range(1, 61)}}
    table = {row["acl_id"]: row["acl"] for row in tree.acls().to_pylist()}
    for k in range(1, 121):
        node = node_at(tree, b"/n%d" % k)
        assert node is not None
        assert table[node.acl_id] == [{"perms": k % 60, "scheme": "ip", "id": f"10.0.0.{k % 60}"}]
    # A list that nobody has any more comes with another number.
    replayed(
        *(delete(200 + k, b"/n%d" % k) for k in (5, 65)), create(300, b"/n", acl=acl_of_number(5)), tree=tree
    )
    node = node_at(tree, b"/n")
    assert node is not None
    assert node.acl_id == 62


def test_acl_lists_equal_in_java_share_a_number() -> None:
    lists = [
        [{"perms": 1, "id": {"scheme": b"sasl", "id": item}}]
        for item in (b"\xff", b"\xfe", "\ufffd".encode())
    ]
    tree, _ = replayed(*(create(k, b"/n%d" % k, acl=item) for k, item in enumerate(lists)))
    assert acl_uses(tree) == {1: 1, 2: 3}


def test_find_returns_nodes_and_stats_count_their_children() -> None:
    tree, _ = replayed(create(1, b"/a"), create(2, b"/a/b"), delete(3, b"/a/b"))
    rows = tree.find(pa.array([b"/a", b"/a/b", b"/", b"", b"/zookeeper"], pa.binary()))
    assert (rows >= 0).tolist() == [True, False, True, True, True]
    assert rows[2] == rows[3]
    stats = tree.stats(rows[[0, 2]])
    assert stats["czxid"].tolist() == [1, 0]
    assert stats["pzxid"].tolist() == [3, 1]
    assert stats["num_children"].tolist() == [0, 2]


def test_changes_of_a_copied_tree_leave_the_original() -> None:
    tree, _ = replayed(create(1, b"/a"), *quota_txns(2, b"/a"))
    other = copy.deepcopy(tree)
    replayed(create(5, b"/a/b", b"123"), create(6, b"/c", acl=READERS), tree=other)
    assert quota_stats(other, b"/a") == b"count=2,bytes=3"
    assert node_at(other, b"/c") is not None
    assert quota_stats(tree, b"/a") == b"count=1,bytes=0"
    assert node_at(tree, b"/c") is None
    assert node_at(tree, b"/nothing") is None
    assert children_of(tree, b"/nothing") == []


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
    assert as_told(node_at(tree, b"/a")) | {"acl_id": 2} == as_told(node_at(tree, b"/a"))  # type: ignore[arg-type]
