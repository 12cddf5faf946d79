"""Compare our simulated start with ZooKeeper itself on randomly damaged directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_damaged import RUNS, directory_of, twice
from zookeeper_restore import our_nodes, our_restore, properties, upstream_restore, written
from zookeeper_startup import start

from logwright.roundtrip.oracles import zookeeper as oracle

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("seed", range(RUNS))
def test_damaged_directories_are_restored_as_by_the_server(seed: int, tmp_path: Path) -> None:
    directory, options = directory_of(seed)
    if twice(directory):
        pytest.skip("which of two files of one zxid comes first only the directory itself knows")
    message = upstream_restore(written(directory, tmp_path), properties(options))
    actual = our_restore(directory, **options)
    if any("\ufffd" in node["path"] for node in actual.get("nodes", ())):
        # The digest is of paths as Java reads them; no client can make such ones.
        for row in (actual, message):
            del row["tree_digest"], row["digest_mismatches"]
    assert actual == message


@pytest.mark.parametrize("seed", range(max(RUNS // 10, 5)))
def test_clients_see_the_predicted_tree(seed: int, tmp_path: Path) -> None:
    """Nodes of expired sessions are deleted, and a snapshot is written."""
    directory, _ = directory_of(100_000 + seed)
    opened = start(directory)
    if twice(directory) or not opened.verdict.opens:
        pytest.skip("the other test looks at such ones")
    nodes, facts = oracle.serve(written(directory, tmp_path))
    seen = [{name: node[name] for name in ("path", "data", "acl", "stat")} for node in nodes]
    assert our_nodes(opened) == sorted(seen, key=lambda node: node["path"].encode())
    assert {entry.name for entry in opened.after.entries()} == set(facts["files_after_start"])
