"""Sessions, digests and the rules of older servers when transactions are applied to a tree."""

from __future__ import annotations

import copy

import pytest
from zookeeper_nodes import acl_uses, children_of, node_at
from zookeeper_transactions import READERS, SESSION, WORLD, create, delete, in_memory, log, replayed, txn

from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_load import Mismatch
from logwright.codec.zookeeper.store.write import of_tree

pytestmark = pytest.mark.kernel_modes


# Sessions


def test_closing_a_session_deletes_its_nodes() -> None:
    opened = txn(1, txns.CREATE_SESSION, {"time_out": 4000})
    result = [create(2 + k, b"/e%d" % k, ephemeral=1) for k in range(3)]
    tree, _ = replayed(opened, *result)
    assert tree.sessions().to_pylist() == [{"session_id": SESSION, "timeout": 4000}]
    closed = txn(5, txns.CLOSE_SESSION, {"paths_to_delete": [b"/e1", b"/gone"]})
    replayed(closed, tree=tree)
    assert tree.session_timeouts == {}
    assert children_of(tree, b"") == [b"/zookeeper"]


def test_paths_in_close_session_are_ignored_unless_enabled() -> None:
    inputs = [create(1, b"/a"), create(2, b"/e", ephemeral=1)]
    closed = txn(3, txns.CLOSE_SESSION, {"paths_to_delete": [b"/a"]})
    assert children_of(replayed(*inputs, closed)[0], b"/") == [b"/zookeeper"]
    assert children_of(replayed(*inputs, closed, close_session_txn=False)[0], b"/") == [b"/a", b"/zookeeper"]


def test_ephemeral_nodes_without_a_session_are_deleted_after_loading() -> None:
    tree, _ = replayed(
        txn(1, txns.CREATE_SESSION, {"time_out": 4000}),
        create(2, b"/kept", ephemeral=1),
        txn(3, txns.CREATE, create(3, b"/lost", ephemeral=1)["body"], client=77),
        create(4, b"/later"),
    )
    assert tree.after_load() == [b"/lost"]
    assert children_of(tree, b"/") == [b"/kept", b"/later", b"/zookeeper"]
    root = node_at(tree, b"/")
    assert root is not None
    assert root.stat["pzxid"] == 4
    assert tree.after_load() == []


def test_orphan_survives_the_end_of_its_session() -> None:
    """Its parent was deleted, which only happens if transactions are missing: the node is unreachable, but exists."""
    tree, _ = replayed(
        create(1, b"/p"),
        create(2, b"/p/e", ephemeral=1),
        delete(3, b"/p"),
        txn(4, txns.CLOSE_SESSION, None),
    )
    assert tree.orphans() == [b"/p/e"]
    assert node_at(tree, b"/p/e") is not None


@pytest.mark.parametrize(
    ("owner", "extended", "kept"), [(-(1 << 56) | 5, True, True), (-(1 << 56) | 5, False, False)]
)
def test_ttl_nodes_without_extended_types(owner: int, extended: bool, kept: bool) -> None:
    body = {"path": b"/t", "data": b"", "acl": WORLD, "parent_cversion": 1, "ttl": 5}
    tree, _ = replayed(txn(1, txns.CREATE_TTL, body), extended_types=extended)
    node = node_at(tree, b"/t")
    assert node is not None
    assert node.stat["owner"] == owner
    assert (tree.after_load() == []) is kept


# Older servers


def test_orphan_may_be_created_again() -> None:
    inputs = [create(1, b"/p"), create(2, b"/p/c", b"old"), delete(3, b"/p"), create(4, b"/p")]
    second = create(5, b"/p/c", b"new", acl=READERS)
    tree, _ = replayed(*inputs, second)
    assert tree.orphans() == [b"/p/c"]
    older, _ = replayed(*inputs, second, existing_by_path=False)
    node = node_at(older, b"/p/c")
    assert node is not None
    assert (node.data, node.stat["czxid"]) == (b"new", 5)
    assert older.orphans() == []
    without, _ = replayed(inputs[0], *inputs[2:], second)
    assert older.digest == without.digest
    # A child that is there is left as it is; what its list counts is counted all the same.
    for settings, uses in (({}, 2), ({"monotonic": False}, 1)):
        tree, _ = replayed(create(1, b"/a"), create(2, b"/a"), existing_by_path=False, **settings)
        assert acl_uses(tree) == {1: 1, 2: uses}
    tree, _ = replayed(create(1, b"/a"), create(2, b"/a", acl=READERS), existing_by_path=False)
    node = node_at(tree, b"/a")
    assert node is not None
    assert node.acl_id == 2


def test_counters_may_decrease_in_older_servers() -> None:
    inputs = [create(5, b"/a", parent_cversion=9), create(6, b"/b", parent_cversion=3)]
    for monotonic, cversion, pzxid in ((True, 9, 5), (False, 3, 6)):
        tree, _ = replayed(*inputs, monotonic=monotonic)
        root = node_at(tree, b"/")
        assert root is not None
        assert (root.stat["cversion"], root.stat["pzxid"]) == (cversion, pzxid)
    for monotonic, pzxid in ((True, 6), (False, 2)):
        tree, _ = replayed(create(6, b"/a"), delete(2, b"/a"), delete(9, b"/none"), monotonic=monotonic)
        root = node_at(tree, b"/")
        assert root is not None
        assert root.stat["pzxid"] == (9 if monotonic else pzxid)
    # -1 is one more, and comes round.
    full = create(1, b"/a", parent_cversion=0x7FFFFFFF)
    tree, _ = replayed(full, create(2, b"/b"), monotonic=False)
    root = node_at(tree, b"/")
    assert root is not None
    assert root.stat["cversion"] == -0x80000000


def test_older_servers_delete_orphans() -> None:
    inputs = [create(1, b"/p"), create(2, b"/p/c"), delete(3, b"/p"), delete(4, b"/p/c")]
    for monotonic, left in ((True, [b"/p/c"]), (False, [])):
        tree, _ = replayed(*inputs, monotonic=monotonic)
        assert tree.orphans() == left


def test_older_servers_do_not_know_containers() -> None:
    body = {"path": b"/c", "data": b"", "acl": WORLD, "parent_cversion": 1}
    inputs = txn(1, txns.CREATE_CONTAINER, body)
    assert replayed(inputs)[0].after_load() == []
    assert replayed(inputs, containers=False)[0].after_load() == [b"/c"]
    assert replayed(inputs, containers=False, extended_types=True)[0].after_load() == [b"/c"]


# Digests


def test_transaction_digests_are_compared() -> None:
    tree = Tree.empty()
    right = copy.deepcopy(tree).apply_frames(*log(create(1, b"/a"), create(2, b"/b"))).digests.tolist()
    inputs = [create(1, b"/a"), create(2, b"/b")]
    for item, digest in zip(inputs, right, strict=True):
        item["digest"] = {"version": 2, "tree_digest": digest}
    assert copy.deepcopy(tree).apply_frames(*log(*inputs), check=True).mismatches == []
    inputs[1]["digest"] = {"version": 2, "tree_digest": 5}
    assert copy.deepcopy(tree).apply_frames(*log(*inputs), check=True).mismatches == [
        Mismatch(2, 5, right[1])
    ]
    # Another version of digests is not compared.
    inputs[1]["digest"] = {"version": 3, "tree_digest": 5}
    assert copy.deepcopy(tree).apply_frames(*log(*inputs), check=True).mismatches == []
    without = Tree.empty(digests=False)
    inputs[1]["digest"] = {"version": 2, "tree_digest": 5}
    assert without.apply_frames(*log(*inputs), check=True).mismatches == []


def test_digest_of_a_fuzzy_snapshot_is_compared_at_its_zxid() -> None:
    """Its digest is that of the last transaction applied while it was taken; earlier digests in the log are not comparable."""
    tree, _ = replayed(create(1, b"/a"))
    data = bytearray(b"".join(bytes(buffer) for buffer in of_tree(tree)))
    later = create(2, b"/b")
    after = copy.deepcopy(tree).apply_frames(*log(later)).digests.tolist()[-1]
    for digest, wrong in ((after, False), (after + 1, True)):
        place = len(data) - 13 - 8 - 13 - 20
        data[place : place + 20] = (2).to_bytes(8, "big") + (2).to_bytes(4, "big") + digest.to_bytes(8, "big")
        fuzzy, _ = Tree.of_snapshot(in_memory(bytes(data)), zxid=1, check=False)
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
    second, _ = Tree.of_snapshot(in_memory(bytes(data)), zxid=1, check=False)
    (actual,) = second.loaded()[0]
    assert (actual.zxid, actual.computed) == (1, tree.digest)
