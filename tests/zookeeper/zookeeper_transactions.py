"""Transactions of a ZooKeeper log, built from fields, and trees they are applied to."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from zookeeper_model import Model, Txn
from zookeeper_nodes import acl_uses, children_of, node_at

from logwright.codec.frames.walk import MemoryFile
from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, PAYLOAD
from logwright.codec.zookeeper.formats.txnlog.tables import OPTIONS as TXNLOG_OPTIONS
from logwright.codec.zookeeper.state.tree import Applied, Tree
from logwright.codec.zookeeper.store.write import of_tree
from logwright.corpora import cases

CASES = cases.cases("zookeeper")

WORLD = [{"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}}]

READERS = [{"perms": 1, "id": {"scheme": b"digest", "id": b"u:p"}}, *WORLD]

SESSION = 0x100000000000001


def log(*inputs: Txn | bytes) -> tuple[Window, Frames]:
    """Return transactions as a log, and its frames. Bytes are a payload."""
    payloads = [item if isinstance(item, bytes) else PAYLOAD.pack(item) for item in inputs]
    data = FILE_HEADER.pack({}) + b"".join(record(payload) for payload in payloads)
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    context = txnlog.CODEC.context("log.1", Options(TXNLOG_OPTIONS))
    frames = txnlog.CODEC.scan(window, 0, context)
    assert len(frames) == len(inputs) + 1
    return window, frames


def record(payload: bytes) -> bytes:
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
    """Assert that the tree equals the model."""
    reached = sorted(model.below(b""))
    assert [item.path for item in (node_at(tree, path) for path in reached) if item is not None] == reached
    assert tree.orphans() == sorted(set(model.nodes) - set(reached))
    assert len(tree) == len(reached)
    for path, there in model.nodes.items():
        node = node_at(tree, path)
        assert node is not None, path
        assert node.data == there.data, path
        assert node.acl_id == there.acl, path
        assert node.num_children == len(there.children), path
        assert node.stat == {name: vars(there)[name] for name in node.stat}, path
        assert children_of(tree, path) == sorted(path + b"/" + name for name in there.children)
    assert tree.digest == model.digest
    assert tree.zxid == model.zxid
    assert tree.session_timeouts == dict(sorted(model.sessions.items()))
    assert acl_uses(tree) == dict(sorted(model.refs.items()))
    assert sorted(tree._quotas.by_path) == sorted(model.quotas)


def reread(tree: Tree, **settings: bool) -> tuple[Tree, list[Any]]:
    data = b"".join(bytes(buffer) for buffer in of_tree(tree))
    return Tree.of_snapshot(in_memory(data), zxid=tree.zxid, **settings)


def in_memory(data: bytes) -> MemoryFile:
    return MemoryFile(np.frombuffer(data, np.uint8))


def dies(*inputs: Txn | bytes, **settings: bool) -> tuple[Tree, Any]:
    tree, applied = replayed(*inputs, **settings)
    assert applied.died is not None
    assert applied.died.index == len(inputs)  # the file's header is a frame too
    assert applied.count == len(inputs) - 1
    return tree, applied.died


def quota_txns(zxid: int, path: bytes, limits: bytes = b"count=5,bytes=-1") -> list[Txn]:
    complete = b"/zookeeper/quota" + path
    return [
        create(zxid, complete),
        create(zxid + 1, complete + b"/zookeeper_limits", limits),
        create(zxid + 2, complete + b"/zookeeper_stats", b"count=0,bytes=0"),
    ]


def quota_stats(tree: Tree, path: bytes) -> bytes | None:
    node = node_at(tree, b"/zookeeper/quota" + path + b"/zookeeper_stats")
    assert node is not None
    return node.data
