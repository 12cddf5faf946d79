"""Drop nodes or redact their data: the rest is unchanged, and the removed bytes are gone from the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import DamageError, LogwrightError, UsageError

SECRET = b"nobody shall know"
ROWS: list[dict[str, Any]] = [
    {"path": "/app", "data": b"a"},
    {"path": "/app/one", "data": SECRET},
    {"path": "/app/two", "data": b"b"},
    {"path": "/app/two/three", "data": SECRET + b"!"},
    {"path": "/lock", "data": b"", "kind": "ephemeral", "ephemeral_owner": 9},
]


@pytest.fixture
def zk(tmp_path: Path) -> Path:
    path = tmp_path / "zk"
    lw.write(ROWS, path, "zookeeper.datadir", write_as="logs")
    lw.write([{"path": "/app/two/three", "data": SECRET}], path, "zookeeper.datadir", mode="append")
    return path


def tree(path: Path) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in lw.read(path).to_pylist()}


def stored(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


def test_dropped_nodes_are_deleted(zk: Path, tmp_path: Path) -> None:
    before = tree(zk)
    report = lw.edit(zk, tmp_path / "out", drop="path = '/app/one'")
    assert report.ok
    after = tree(tmp_path / "out")
    assert set(before) - set(after) == {"/app/one"}
    assert (after["/app"]["cversion"], after["/app"]["pzxid"]) == (before["/app"]["cversion"] + 1, 8)
    same = ("data", "acl", "czxid", "mzxid", "version")
    for name in set(after) - {"/app"}:
        assert {item: after[name][item] for item in same} == {item: before[name][item] for item in same}
    assert [path.name for path in (tmp_path / "out" / "version-2").iterdir()] == ["snapshot.8"]
    assert lw.read(tmp_path / "out", view="sessions")["session_id"].to_pylist() == [9]
    assert lw.verify(tmp_path / "out").ok


def test_children_of_a_dropped_node_are_dropped_on_request(zk: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="/app/two/three would stay while its ancestor /app/two is dropped"
    ) as caught:
        lw.edit(zk, tmp_path / "out", drop="path = '/app/two'")
    assert "below=drop" in str(caught.value.advice)
    lw.edit(zk, tmp_path / "out", drop="path = '/app/two'", below="drop")
    assert {"/app", "/app/one"} <= set(tree(tmp_path / "out"))
    assert not any(path.startswith("/app/two") for path in tree(tmp_path / "out"))
    lw.edit(zk, tmp_path / "all", drop="path >= '/app' and path < '/app0'")
    assert not any(path.startswith("/app") for path in tree(tmp_path / "all"))
    assert SECRET not in stored(tmp_path / "all")


def test_redacted_nodes_have_no_data(zk: Path, tmp_path: Path) -> None:
    lw.edit(
        zk, tmp_path / "out", redact="data >= 'nobody' and data < 'nobodz'", columns="data", with_=b"gone"
    )
    after = tree(tmp_path / "out")
    assert (after["/app/one"]["data"], after["/app/one"]["version"]) == (b"gone", 1)
    assert (after["/app/two/three"]["data"], after["/app/two/three"]["version"]) == (b"gone", 2)
    assert SECRET not in stored(tmp_path / "out")
    lw.edit(zk, tmp_path / "null", redact="path = '/app/one'", columns="data", with_=None)
    assert tree(tmp_path / "null")["/app/one"]["data"] is None


def test_drop_and_redact_in_one_edit(zk: Path, tmp_path: Path) -> None:
    lw.edit(
        zk, tmp_path / "out", drop="path = '/app/two'", below="drop", redact="path >= '/app'", columns="data"
    )
    after = tree(tmp_path / "out")
    assert {path: row["data"] for path, row in after.items() if path.startswith("/app")} == {
        "/app": b"",
        "/app/one": b"",
    }


def test_edit_in_place_keeps_a_backup_and_can_be_appended_to(zk: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (zk / "version-2").iterdir()}
    lw.edit(zk, drop="path = '/lock'", in_place=True, backup=str(tmp_path / "kept"))
    assert [path.name for path in (zk / "version-2").iterdir()] == ["snapshot.8"]
    assert "/lock" not in tree(zk)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.name in before}
    assert kept == before
    # It goes on from there.
    lw.write([{"path": "/lock", "data": b""}], zk, "zookeeper.datadir", mode="append")
    assert sorted(path.name for path in (zk / "version-2").iterdir()) == ["log.9", "snapshot.8"]


def test_filter_without_a_match_changes_nothing(zk: Path, tmp_path: Path) -> None:
    lw.edit(zk, tmp_path / "out", drop="path = '/nowhere'", allow_no_match=True)
    for path in (zk / "version-2").iterdir():
        assert (tmp_path / "out" / "version-2" / path.name).read_bytes() == path.read_bytes()


def test_directory_of_an_ensemble_member(zk: Path, tmp_path: Path) -> None:
    for name in ("acceptedEpoch", "currentEpoch"):
        (zk / "version-2" / name).write_text("0")
    report = lw.edit(zk, tmp_path / "out", drop="path = '/lock'", **{"snapshot.compression.method": "gz"})
    assert "Other members of the ensemble still have" in report.text()
    assert sorted(path.name for path in (tmp_path / "out" / "version-2").iterdir()) == [
        "acceptedEpoch",
        "currentEpoch",
        "snapshot.8.gz",
    ]


def test_edits_that_break_the_tree_are_refused(zk: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/zookeeper/config belongs to the server"):
        lw.edit(zk, tmp_path / "out", drop="path = '/zookeeper/config'")
    with pytest.raises(LogwrightError):
        lw.edit(zk, tmp_path / "out", redact="path = '/app'", columns="acl")
    with pytest.raises(LogwrightError):
        lw.edit(zk, tmp_path / "out", redact="path = '/app'", columns="path")
    log = zk / "version-2" / "log.1"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    with pytest.raises((DamageError, UsageError), match="damaged"):
        lw.edit(zk, tmp_path / "out", drop="path = '/app/one'")
