"""Nodes taken out of a directory, or data out of nodes: the rest is as it was, and nothing of it is on the disk any more."""

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
    return b"".join(one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file())


def test_nodes_go(zk: Path, tmp_path: Path) -> None:
    before = tree(zk)
    report = lw.edit(zk, tmp_path / "out", drop="path = '/app/one'")
    assert report.ok
    after = tree(tmp_path / "out")
    assert set(before) - set(after) == {"/app/one"}
    assert (after["/app"]["cversion"], after["/app"]["pzxid"]) == (before["/app"]["cversion"] + 1, 8)
    same = ("data", "acl", "czxid", "mzxid", "version")
    for name in set(after) - {"/app"}:
        assert {one: after[name][one] for one in same} == {one: before[name][one] for one in same}
    assert [one.name for one in (tmp_path / "out" / "version-2").iterdir()] == ["snapshot.8"]
    assert lw.read(tmp_path / "out", view="sessions")["session_id"].to_pylist() == [9]
    assert lw.verify(tmp_path / "out").ok


def test_what_is_below_goes_too_when_asked(zk: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/app/two/three would stay, and /app/two above it go") as caught:
        lw.edit(zk, tmp_path / "out", drop="path = '/app/two'")
    assert "below=drop" in str(caught.value.advice)
    lw.edit(zk, tmp_path / "out", drop="path = '/app/two'", below="drop")
    assert {"/app", "/app/one"} <= set(tree(tmp_path / "out"))
    assert not any(path.startswith("/app/two") for path in tree(tmp_path / "out"))
    lw.edit(zk, tmp_path / "all", drop="path >= '/app' and path < '/app0'")
    assert not any(path.startswith("/app") for path in tree(tmp_path / "all"))
    assert SECRET not in stored(tmp_path / "all")


def test_data_goes(zk: Path, tmp_path: Path) -> None:
    lw.edit(
        zk, tmp_path / "out", redact="data >= 'nobody' and data < 'nobodz'", columns="data", with_=b"gone"
    )
    after = tree(tmp_path / "out")
    assert (after["/app/one"]["data"], after["/app/one"]["version"]) == (b"gone", 1)
    assert (after["/app/two/three"]["data"], after["/app/two/three"]["version"]) == (b"gone", 2)
    assert SECRET not in stored(tmp_path / "out")
    lw.edit(zk, tmp_path / "null", redact="path = '/app/one'", columns="data", with_=None)
    assert tree(tmp_path / "null")["/app/one"]["data"] is None


def test_both_at_once(zk: Path, tmp_path: Path) -> None:
    lw.edit(
        zk, tmp_path / "out", drop="path = '/app/two'", below="drop", redact="path >= '/app'", columns="data"
    )
    after = tree(tmp_path / "out")
    assert {path: row["data"] for path, row in after.items() if path.startswith("/app")} == {
        "/app": b"",
        "/app/one": b"",
    }


def test_in_place(zk: Path, tmp_path: Path) -> None:
    before = {one.name: one.read_bytes() for one in (zk / "version-2").iterdir()}
    lw.edit(zk, drop="path = '/lock'", in_place=True, backup=str(tmp_path / "kept"))
    assert [one.name for one in (zk / "version-2").iterdir()] == ["snapshot.8"]
    assert "/lock" not in tree(zk)
    kept = {one.name: one.read_bytes() for one in (tmp_path / "kept").rglob("*") if one.name in before}
    assert kept == before
    # It goes on from there.
    lw.write([{"path": "/lock", "data": b""}], zk, "zookeeper.datadir", mode="append")
    assert sorted(one.name for one in (zk / "version-2").iterdir()) == ["log.9", "snapshot.8"]


def test_where_nothing_is_found_nothing_changes(zk: Path, tmp_path: Path) -> None:
    lw.edit(zk, tmp_path / "out", drop="path = '/nowhere'", allow_no_match=True)
    for one in (zk / "version-2").iterdir():
        assert (tmp_path / "out" / "version-2" / one.name).read_bytes() == one.read_bytes()


def test_of_a_member_of_an_ensemble(zk: Path, tmp_path: Path) -> None:
    for name in ("acceptedEpoch", "currentEpoch"):
        (zk / "version-2" / name).write_text("0")
    report = lw.edit(zk, tmp_path / "out", drop="path = '/lock'", **{"snapshot.compression.method": "gz"})
    assert "Other members of the ensemble still have" in report.text()
    assert sorted(one.name for one in (tmp_path / "out" / "version-2").iterdir()) == [
        "acceptedEpoch",
        "currentEpoch",
        "snapshot.8.gz",
    ]


def test_what_is_refused(zk: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/zookeeper/config is a server's own"):
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
