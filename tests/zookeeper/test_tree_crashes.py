"""Transactions applied to a tree that crash a server or are skipped, and quotas."""

from __future__ import annotations

import copy

import pytest
from zookeeper_nodes import node_at
from zookeeper_replay import restored
from zookeeper_transactions import (
    CASES,
    WORLD,
    create,
    delete,
    dies,
    in_memory,
    multi,
    quota_stats,
    quota_txns,
    replayed,
    set_data,
    txn,
)

from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.layout import PAYLOAD
from logwright.codec.zookeeper.state import tree_fields as state
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_load import Mismatch
from logwright.codec.zookeeper.store.write import of_tree

pytestmark = pytest.mark.kernel_modes


# Transactions that crash a server, and those it skips


def test_invalid_paths_crash_a_server() -> None:
    _, died = dies(create(1, b"/a"), create(2, b"bare"))
    assert (died.code, died.error) == (
        state.NO_SLASH,
        "StringIndexOutOfBoundsException: begin 0, end -1, length 4",
    )
    assert dies(delete(1, b"bare"))[1].code == state.NO_SLASH
    for item in (create(1, None), delete(1, None), set_data(1, None, b"")):  # type: ignore[arg-type]
        assert dies(item)[1].error == "NullPointerException"
    acl = txn(1, txns.SET_ACL, {"path": None, "acl": WORLD, "version": 1})
    assert dies(acl)[1].code == state.IS_NULL
    # setData does not split the path, so one without a slash is just not there.
    assert replayed(set_data(1, b"bare", b""))[1].died is None


def test_acl_without_scheme_or_id_crashes_a_server() -> None:
    """Java looks the lists up by their hash."""
    for name in ("scheme", "id"):
        nobody = [{"perms": 1, "id": {"scheme": b"world", "id": b"anyone"} | {name: None}}]
        tree, died = dies(create(1, b"/a"), create(2, b"/b", acl=nobody))
        assert died.code == state.IS_NULL
        assert node_at(tree, b"/b") is None
        acl = {"path": b"/a", "acl": nobody, "version": 1}
        assert dies(create(1, b"/a"), txn(2, txns.SET_ACL, acl))[1].code == state.IS_NULL


def test_ttl_out_of_range_crashes_a_server() -> None:
    for ttl in (0, -1, 1 << 40):
        body = {"path": b"/t", "data": b"", "acl": WORLD, "parent_cversion": 1, "ttl": ttl}
        tree, died = dies(txn(1, txns.CREATE_TTL, body))
        assert (
            died.error
            == "IllegalArgumentException: ttl must be positive and cannot be larger than: 1099511627775"
        )
        assert node_at(tree, b"/t") is None


def test_invalid_ephemeral_owner_crashes_a_server() -> None:
    odd = txn(1, txns.CREATE, create(1, b"/e", ephemeral=1)["body"], client=-(1 << 56) | 1 << 40)
    _, died = dies(odd, extended_types=True)
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
    node = node_at(tree, path)
    assert node is not None
    assert node.acl is None
    assert node.acl_id == 4242
    zxid = tree.zxid + 1
    for item in (set_data(zxid, path, b"x"), create(zxid, path + b"/below"), delete(zxid, path)):
        _, applied = replayed(item, tree=copy.deepcopy(tree))
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
    assert dies(null_list)[1].error == "NullPointerException"
    null_part = complete[:-4] + b"\0\0\0\1\0\0\0\1\xff\xff\xff\xff"
    assert dies(null_part)[1].error == "NullPointerException"


def test_multi_ends_at_an_invalid_part() -> None:
    good = (txns.CREATE, create(1, b"/a")["body"])
    more = (txns.CREATE, create(1, b"/b")["body"])
    payload = PAYLOAD.pack(multi(1, good, (txns.CHECK, {"path": b"/a", "version": 1}), more))
    for kind in (txns.SET_ACL, txns.RECONFIG, 99, -99, txns.CLOSE_SESSION):
        changed = payload.replace(b"\0\0\0\x0d", kind.to_bytes(4, "big", signed=True))
        tree, applied = replayed(changed)
        assert applied.count == 1
        assert node_at(tree, b"/a") is not None
        assert node_at(tree, b"/b") is None
        assert tree.zxid == 1
    # Its path is said to be longer than it is.
    cut = payload.replace(b"\0\0\0\2/a\0\0\0\1", b"\0\0\0\x7f/a\0\0\0\1")
    assert cut != payload
    tree, applied = replayed(cut)
    assert applied.unread == []
    assert node_at(tree, b"/b") is None


def test_path_before_an_invalid_part_is_decoded_as_java_does() -> None:
    parts = (txns.CREATE, create(1, b"/\xff")["body"]), (txns.CHECK, {"path": b"/a", "version": 1})
    payload = PAYLOAD.pack(multi(1, *parts))
    for odd in (payload, payload.replace(b"\0\0\0\2/a\0\0\0\1", b"\0\0\0\x7f/a\0\0\0\1")):
        tree, _ = replayed(odd)
        assert node_at(tree, "/\ufffd".encode()) is not None


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
    assert applied.unread == []
    assert node_at(tree, b"/a") is not None


def test_unreadable_transactions_are_skipped() -> None:
    check = PAYLOAD.pack(txn(2, txns.CREATE_SESSION, {"time_out": 1})).replace(
        b"\xff\xff\xff\xf6", b"\0\0\0\x0d"
    )
    torn = PAYLOAD.pack(multi(3, (txns.DELETE, {"path": b"/none"})))[:-3]
    tree, applied = replayed(create(1, b"/a"), check, torn, b"short", create(4, b"/b"))
    assert applied.unread == [2, 3, 0]
    assert applied.count == 2
    assert tree.zxid == 4


# Quotas


def test_quota_statistics_are_counted() -> None:
    tree, _ = replayed(create(1, b"/a", b"12"), create(2, b"/a/b", b"345"), *quota_txns(3, b"/a"))
    assert quota_stats(tree, b"/a") == b"count=2,bytes=5"
    replayed(
        create(6, b"/a/c", b"6"),
        set_data(7, b"/a", None),
        delete(8, b"/a/b"),
        create(9, b"/ab", b"xx"),
        tree=tree,
    )
    assert quota_stats(tree, b"/a") == b"count=2,bytes=1"
    # A value written by a client stays and is counted from.
    stats = b"/zookeeper/quota/a/zookeeper_stats"
    replayed(set_data(10, stats, b"count=7,bytes=-1=;byteHardLimit=3"), create(11, b"/a/d", b"4"), tree=tree)
    assert quota_stats(tree, b"/a") == b"count=8,bytes=0=;byteHardLimit=3"
    # Without limits nothing is counted.
    replayed(delete(12, b"/zookeeper/quota/a/zookeeper_limits"), create(13, b"/a/e", b"5"), tree=tree)
    assert quota_stats(tree, b"/a") == b"count=8,bytes=0=;byteHardLimit=3"
    assert sorted(tree._quotas.by_path) == []


def test_invalid_quotas_crash_a_server() -> None:
    _, died = dies(create(1, b"/zookeeper/quota/zookeeper_limits"))
    assert (died.code, died.error) == (state.BAD_QUOTA, "IllegalArgumentException: Invalid path: ")
    stats = b"/zookeeper/quota/a/zookeeper_stats"
    for text, error in (
        (b"count=x", 'NumberFormatException: For input string: "x"'),
        (b"count", "ArrayIndexOutOfBoundsException: Index 1 out of bounds for length 1"),
        (None, "NullPointerException"),
    ):
        _, died = dies(create(1, b"/a"), *quota_txns(2, b"/a"), set_data(5, stats, text), create(6, b"/a/b"))
        assert died.error == error
        # As long as nothing is counted, nobody reads it.
        assert replayed(create(1, b"/a"), *quota_txns(2, b"/a"), set_data(5, stats, text))[1].died is None


def test_quota_of_the_root_in_a_snapshot_crashes_a_server() -> None:
    tree, _ = replayed(create(1, b"/zookeeper/quota/zookeeper_limit"))
    data = b"".join(bytes(buffer) for buffer in of_tree(tree))
    changed = data.replace(
        b"\0\0\0\x20/zookeeper/quota/zookeeper_limit", b"\0\0\0\x21/zookeeper/quota/zookeeper_limits"
    )
    second, _ = Tree.of_snapshot(in_memory(changed), zxid=1, check=False)
    assert second.loaded() == ([], "IllegalArgumentException: Invalid path: ")
