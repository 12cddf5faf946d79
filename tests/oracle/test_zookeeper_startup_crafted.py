"""Compare with ZooKeeper's own loading code on crafted logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_crafted import CRAFTED, ROOT, buf, snapshot
from zookeeper_restore import our_nodes, our_restore, properties, upstream_restore, written
from zookeeper_startup import data_directory, start

from logwright.roundtrip.oracles import zookeeper as oracle

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("extended", [False, True], ids=["", "extended"])
@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_logs_are_restored_as_by_the_server(name: str, extended: bool, tmp_path: Path) -> None:
    directory = CRAFTED[name]
    options = {"extendedTypesEnabled": True} if extended else {}
    message = upstream_restore(written(directory, tmp_path), properties(options))
    assert our_restore(directory, **options) == message


def test_leftover_session_nodes_of_a_rejected_snapshot(tmp_path: Path) -> None:
    """An owner's bit is flipped: the snapshot is rejected, and its node is deleted anyway."""
    files = {
        "snapshot.5": snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, 1 << 40))[:-6] + b"?" + buf(b"/"),
        "snapshot.3": snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, 0)),
    }
    opened = start(data_directory(files))
    nodes, _ = oracle.serve(written(data_directory(files), tmp_path))
    assert [node["path"] for node in nodes] == [node["path"] for node in our_nodes(opened)] == ["/", "/app"]
