"""The state of a ZooKeeper server after it has loaded a directory, from our simulation and from its real loading code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_directory import MemoryDirectory
from zookeeper_nodes import node_at
from zookeeper_startup import COLUMNS, recorded_node, server

from logwright.codec.engine.startup import Started
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.startup.exceptions import Thrown
from logwright.codec.zookeeper.startup.file_txn_snap_log import FileTxnSnapLog
from logwright.codec.zookeeper.startup.settings import OPTIONS, ServerSettings
from logwright.codec.zookeeper.state.tree import Tree
from logwright.roundtrip.oracles import zookeeper as oracle

Answer = dict[str, Any]
_TOLD = (
    "returned_zxid", "last_processed_zxid", "tree_digest", "sessions", "digest_mismatches", "snapshot_digest_left", "nodes",
)  # fmt: skip


def our_restore(directory: MemoryDirectory, **options: Any) -> Answer:
    """Return our result in the form of the oracle."""
    settings = ServerSettings("3.9.5", Options(OPTIONS, options))
    try:
        restored = FileTxnSnapLog(Overlay(directory), settings).restore()
    except Thrown as thrown:
        return {"error": (thrown.java, masked(thrown.message))}
    tree = restored.tree
    return {
        "returned_zxid": restored.zxid,
        "last_processed_zxid": restored.last_processed,
        "tree_digest": tree.digest,
        "sessions": {str(session): timeout for session, timeout in tree.session_timeouts.items()},
        "digest_mismatches": restored.mismatches,
        "snapshot_digest_left": restored.uncovered,
        "nodes": [
            _node(row, tree, settings)
            for batch in tree.nodes((*COLUMNS, "kind"))
            for row in batch.to_pylist()
        ],
    }


def _node(row: dict[str, Any], tree: Tree, settings: ServerSettings) -> dict[str, Any]:
    stat = recorded_node(row)["stat"]
    owner = row["ephemeral_owner"]
    if row["kind"] == "ttl" and not settings.extended_types:
        # Before the node is deleted with its session.
        node = node_at(tree, row["path"].encode())
        owner = 0 if node is None else node.stat["owner"]
    stat["ephemeralOwner"] = owner
    return {
        "path": row["path"], "data": None if row["data"] is None else row["data"].hex(), "acl": row["acl"], "stat": stat
    }  # fmt: skip


def our_nodes(started: Started) -> list[dict[str, Any]]:
    """Return the nodes that clients see after a start."""
    rows = [row for batch in started.rows("tree", (*COLUMNS, "kind")) for row in batch.to_pylist()]
    return [_node(row, server(started).tree, server(started).settings) for row in rows]


def upstream_restore(path: Path, properties: dict[str, str]) -> Answer:
    try:
        nodes, facts = oracle.restore(path, properties=properties)
    except oracle.JavaError as error:
        return {"error": (error.java_class, masked(error.java_message))}
    seen = [{name: node.get(name) for name in ("path", "data", "acl", "stat")} for node in nodes]
    return {name: facts[name] for name in _TOLD[:-1]} | {
        "nodes": sorted(seen, key=lambda node: node["path"].encode("utf-8", "surrogatepass"))
    }


def masked(message: str | None) -> str:
    """Mask the directories, which have other names here."""
    head, place, _ = (message or "").partition("snapshots in ")
    return re.sub(r"log: \S*/", "log: ", head + place)


def written(directory: MemoryDirectory, path: Path) -> Path:
    """Write the directory to disk."""
    (path / "version-2").mkdir()
    for name, data in directory.files.items():
        (path / "version-2" / name).write_bytes(data)
    return path


def properties(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options of ours as a server's system properties."""
    return {
        name if name == "jute.maxbuffer" else f"zookeeper.{name}": str(value).lower()
        for name, value in options.items()
    }
