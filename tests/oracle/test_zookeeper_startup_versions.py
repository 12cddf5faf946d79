"""Compare with the loading code of older versions on damaged directories and crafted logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import CRAFTED
from zookeeper_damaged import RUNS, directory_of, twice
from zookeeper_restore import masked, our_nodes, written
from zookeeper_startup import server, start

from logwright.roundtrip.oracles import zookeeper_old as oracle

pytestmark = pytest.mark.oracle
OTHERWISE = ("quota: bad stats", "quota: beside", "setData: empty path", "the root created")
"""Differences of obsolete versions that the simulation does not reproduce."""


@pytest.fixture(scope="module", params=oracle.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    actual = str(request.param)
    reason = oracle.available(actual)
    if reason:
        pytest.skip(reason)
    return actual


def theirs(version: str, path: Path) -> dict[str, Any]:
    try:
        nodes, facts = oracle.load(version, path)
    except oracle.JavaError as error:
        return {"error": (error.java_class, masked(error.java_message))}
    return {**facts, "nodes": sorted(nodes, key=lambda node: node["path"].encode())}


def ours(version: str, directory: MemoryDirectory) -> dict[str, Any]:
    opened = start(directory, version=version)
    verdict = opened.verdict
    if not verdict.opens:
        return {"error": (verdict.error_class, masked(verdict.error or ""))}
    restored = server(opened).restored
    return {
        "returned_zxid": restored.zxid,
        "last_processed_zxid": restored.last_processed,
        "sessions": {str(name): timeout for name, timeout in restored.tree.session_timeouts.items()},
        "nodes": our_nodes(opened),
    }


@pytest.mark.parametrize("seed", range(RUNS // 3))
def test_every_version_restores_damaged_directories_as_predicted(
    seed: int, version: str, tmp_path: Path
) -> None:
    directory, _ = directory_of(200_000 + seed)
    if twice(directory):
        pytest.skip("which of two files of one zxid comes first only the directory itself knows")
    assert ours(version, directory) == theirs(version, written(directory, tmp_path))


@pytest.mark.parametrize("name", [name for name in CRAFTED if name not in OTHERWISE])
def test_every_version_restores_crafted_logs_as_predicted(name: str, version: str, tmp_path: Path) -> None:
    directory = CRAFTED[name]
    assert ours(version, directory) == theirs(version, written(directory, tmp_path))
