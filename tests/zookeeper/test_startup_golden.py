"""Starting a ZooKeeper server: every start of a real one over the golden cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from zookeeper_nodes import acl_uses, node_at
from zookeeper_startup import (
    GOLDEN,
    RecordedStart,
    listing_of,
    nodes_of,
    recorded_starts,
    restores,
    start,
)

from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.startup.exceptions import (
    DatadirFailure,
    IllegalArgument,
    LogDirContent,
    NumberFormat,
    SnapDirContent,
    Thrown,
)
from logwright.codec.zookeeper.startup.file_txn_snap_log import FileTxnSnapLog
from logwright.codec.zookeeper.startup.settings import OPTIONS, ServerSettings

ALL = recorded_starts()
RESTORES = list(restores())
DATADIRS = {"split_dirs": ("data/version-2/", "datalog/version-2/")}


def ids(item: RecordedStart) -> str:
    return f"{item.case}-{item.version}" + ("" if item.number < 0 else f"-{item.number}")


def test_golden_cases_exist() -> None:
    assert len({item.case for item in ALL}) == len(list(GOLDEN.glob("*/case.json"))) == 95
    assert {item.version for item in ALL} == {"3.9.5", "3.8.0", "3.6.2", "3.4.14"}
    assert sum(not item.startup["started"] for item in ALL) == 28


@pytest.mark.parametrize("asked", ALL, ids=ids)
def test_verdict_the_tree_and_the_files_are_those_of_the_server(asked: RecordedStart) -> None:
    opened = start(listing_of(asked.case), version=asked.version, **asked.options)
    verdict = opened.verdict
    if not asked.startup["started"]:
        assert not verdict.opens
        assert (verdict.error_class, without_directory(verdict.error)) == asked.error
        assert verdict.scope == "process"
        assert exit_code(asked.error[0]) == asked.startup["exit_code"]
        assert list(opened.rows("tree", ["path"])) == []
    else:
        assert verdict.opens, verdict.error
        actual = nodes_of(opened)
        assert verdict.rows == len(actual)
        if asked.nodes is not None:
            readable = [row for row in actual if row["path"] not in asked.failing]
            assert len(actual) == len(asked.nodes) + len(asked.failing)
            assert readable == sorted(asked.nodes, key=lambda node: order(node["path"]))
    own, separate = DATADIRS.get(asked.case, ("version-2/", "version-2/"))
    assert asked.files == {
        (separate if "/" in entry.name else own) + entry.name.rpartition("/")[2]: entry.size for entry in opened.after.entries()
        if not entry.name.endswith("Epoch") or asked.case == "quorum_one"
    }  # fmt: skip


def exit_code(java: str) -> int:
    """The exit code of a stand-alone server (`ExitCode`, `ZooKeeperServerMain.main`), by class of the exception."""
    if java in (IllegalArgument.java, NumberFormat.java):
        return 2
    return 3 if java in (DatadirFailure.java, LogDirContent.java, SnapDirContent.java) else 1


def order(path: str) -> bytes:
    return path.encode()


def without_directory(error: str | None) -> str:
    """Remove the directory's name, as in the golden cases."""
    return (error or "").replace("snapshots in version-2", "snapshots in .")


@pytest.mark.parametrize(("case", "result", "acls", "stats"), RESTORES, ids=[case for case, *_ in RESTORES])
def test_tree_in_memory_after_loading(
    case: str, result: Mapping[str, Any], acls: list[Mapping[str, Any]], stats: list[Mapping[str, Any]]
) -> None:
    (asked,) = [item for item in ALL if item.case == case and item.number < 0]
    settings = ServerSettings(asked.version, Options(OPTIONS, asked.options))
    files = FileTxnSnapLog(Overlay(listing_of(case)), settings)
    if not result["ok"]:
        with pytest.raises(Thrown) as caught:
            files.restore()
        assert without_directory(str(caught.value)) == result["exception"]
        return
    restored = files.restore()
    tree = restored.tree
    assert zxid_text(restored.zxid) == result["returned_zxid"]
    assert zxid_text(restored.last_processed) == result["last_processed_zxid"]
    assert tree.digest == result["tree_digest"]
    assert {zxid_text(name): timeout for name, timeout in tree.session_timeouts.items()} == result["sessions"]
    first = min((int(item[0]) for item in restored.applied), default=0)
    assert zxid_text(first) == result["committed_log_min"]
    # The root is two nodes for a server.
    assert len(tree) + 1 == result["node_count"]
    uses = acl_uses(tree)
    table = tree.acls().to_pylist()
    assert [(row["acl_id"], uses[row["acl_id"]], row["acl"]) for row in table] == [
        (acl["id"], acl["refs"], acl["acl"]) for acl in sorted(acls, key=lambda acl: acl["id"])
    ]
    for stat in stats:
        value = node_at(tree, stat["path"].encode())
        assert value is not None
        owner = int(stat["ephemeralOwner"], 16)
        names = value.stat.keys() - {"owner"}
        assert value.stat == {name: stat[name] for name in names} | {"owner": owner - (owner >> 63 << 64)}
        assert value.acl_id == stat["acl_id"]
        assert (None if value.data is None else value.data.hex()) == stat.get(
            "data_hex", value.data and value.data.hex()
        )
