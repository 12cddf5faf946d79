"""Starting a ZooKeeper server: every start of a real one over the golden cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
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


def ids(one: RecordedStart) -> str:
    return f"{one.case}-{one.version}" + ("" if one.number < 0 else f"-{one.number}")


def test_there_are_questions() -> None:
    assert len({one.case for one in ALL}) == len(list(GOLDEN.glob("*/case.json"))) == 95
    assert {one.version for one in ALL} == {"3.9.5", "3.8.0", "3.6.2", "3.4.14"}
    assert sum(not one.startup["started"] for one in ALL) == 28


@pytest.mark.parametrize("asked", ALL, ids=ids)
def test_the_verdict_the_tree_and_the_files_are_those_of_the_server(asked: RecordedStart) -> None:
    opened = start(listing_of(asked.case), version=asked.version, **asked.options)
    verdict = opened.verdict
    if not asked.startup["started"]:
        assert not verdict.opens
        assert (verdict.error_class, said(verdict.error)) == asked.error
        assert verdict.scope == "process"
        assert exit_code(asked.error[0]) == asked.startup["exit_code"]
        assert list(opened.rows("tree", ["path"])) == []
    else:
        assert verdict.opens, verdict.error
        found = nodes_of(opened)
        assert verdict.rows == len(found)
        if asked.nodes is not None:
            readable = [one for one in found if one["path"] not in asked.failing]
            assert len(found) == len(asked.nodes) + len(asked.failing)
            assert readable == sorted(asked.nodes, key=lambda one: order(one["path"]))
    own, apart = DATADIRS.get(asked.case, ("version-2/", "version-2/"))
    assert asked.files == {
        (apart if "/" in one.name else own) + one.name.rpartition("/")[2]: one.size for one in opened.after.entries()
        if not one.name.endswith("Epoch") or asked.case == "quorum_one"
    }  # fmt: skip


def exit_code(java: str) -> int:
    """With which a stand-alone server ends (`ExitCode`, `ZooKeeperServerMain.main`), by the class of the exception."""
    if java in (IllegalArgument.java, NumberFormat.java):
        return 2
    return 3 if java in (DatadirFailure.java, LogDirContent.java, SnapDirContent.java) else 1


def order(path: str) -> bytes:
    return path.encode()


def said(error: str | None) -> str:
    """As the golden cases have it: directories are not named."""
    return (error or "").replace("snapshots in version-2", "snapshots in .")


@pytest.mark.parametrize(("case", "result", "acls", "stats"), RESTORES, ids=[case for case, *_ in RESTORES])
def test_what_is_in_memory_after_the_load_alone(
    case: str, result: Mapping[str, Any], acls: list[Mapping[str, Any]], stats: list[Mapping[str, Any]]
) -> None:
    (asked,) = [one for one in ALL if one.case == case and one.number < 0]
    settings = ServerSettings(asked.version, Options(OPTIONS, asked.options))
    files = FileTxnSnapLog(Overlay(listing_of(case)), settings)
    if not result["ok"]:
        with pytest.raises(Thrown) as caught:
            files.restore()
        assert said(str(caught.value)) == result["exception"]
        return
    restored = files.restore()
    tree = restored.tree
    assert zxid_text(restored.zxid) == result["returned_zxid"]
    assert zxid_text(restored.last_processed) == result["last_processed_zxid"]
    assert tree.digest == result["tree_digest"]
    assert {zxid_text(one): timeout for one, timeout in tree.session_timeouts.items()} == result["sessions"]
    first = min((int(one[0]) for one in restored.applied), default=0)
    assert zxid_text(first) == result["committed_log_min"]
    # The root is two nodes for a server.
    assert len(tree) + 1 == result["node_count"]
    uses = tree.acl_uses()
    table = tree.acls().to_pylist()
    assert [(one["acl_id"], uses[one["acl_id"]], one["acl"]) for one in table] == [
        (one["id"], one["refs"], one["acl"]) for one in sorted(acls, key=lambda one: one["id"])
    ]
    for one in stats:
        found = tree.get(one["path"].encode())
        assert found is not None
        owner = int(one["ephemeralOwner"], 16)
        names = found.stat.keys() - {"owner"}
        assert found.stat == {name: one[name] for name in names} | {"owner": owner - (owner >> 63 << 64)}
        assert found.acl_id == one["acl_id"]
        assert (None if found.data is None else found.data.hex()) == one.get(
            "data_hex", found.data and found.data.hex()
        )
