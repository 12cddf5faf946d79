"""Repair of a partition on a disk that can't read some places: what is lost is said, and nothing is made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from failing_disk import FailingDisk, disk, forget_failures

import logwright as lw
from logwright.codec import registry

LAYOUT = registry.get_layout("kafka.partition")

__all__ = ["disk"]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "disk" / "orders-0"
    rows = [{"value": b"value-%05d" % n, "timestamp": 1_700_000_000_000 + n} for n in range(2000)]
    lw.write(
        rows,
        path,
        "kafka.partition",
        segment_bytes=30_000,
        batch_size=1000,
        topic_id="q83vASNFZ4mrze8BI0VniQ",
    )
    return path


def values(path: Path) -> set[bytes]:
    return set(lw.read(path)["value"].to_pylist())


def test_beside_and_in_place(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    whole = values(orders)
    first, second = sorted(one.name for one in orders.glob("*.log"))[:2]
    index = second.replace(".log", ".index")
    disk.bad = {first: [(8192, 12288)], index: [(0, 512)]}
    report = lw.repair(orders, tmp_path / "out" / "orders-0")
    (cut,) = report["cut"]
    assert (cut["file"], report.incomplete) == (first, True)
    assert cut["offset"] <= 8192
    assert cut["offset"] + cut["length"] >= 12288
    assert "can't read" in cut["why"]
    said = lw.repair(orders, in_place=True, backup=tmp_path / "backup")
    assert "the backup has zeros" in said.text()
    saved = json.loads((tmp_path / "backup" / "backup.json").read_text())["files"]
    assert saved[first]["unreadable"] == 4096
    size = (tmp_path / "backup" / first).stat().st_size
    assert (tmp_path / "backup" / first).read_bytes()[8192:12288] == bytes(4096)
    assert size == saved[first]["size"]
    disk.bad = {}
    forget_failures()
    kept = values(tmp_path / "out" / "orders-0")
    assert kept < whole
    assert len(kept) == report["rows"]
    assert values(orders) == kept
    assert lw.verify(tmp_path / "out" / "orders-0").ok


def test_a_replica_has_what_the_disk_has_not(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    whole = values(orders)
    replica = tmp_path / "replica" / "orders-0"
    lw.repair(orders, replica)
    name = min(one.name for one in orders.glob("*.log"))
    # The disk is told by names: the other one has its files under the same.
    other = replica / name
    real = other.rename(other.with_name("elsewhere"))
    other.symlink_to(real)
    disk.bad = {name: [(0, 4096), (8192, 12288)]}
    report = lw.repair([orders, replica], tmp_path / "out" / "orders-0")
    assert not report.incomplete
    disk.bad = {}
    forget_failures()
    assert values(tmp_path / "out" / "orders-0") == whole


def test_one_segment(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    log = min(orders.glob("*.log"))
    disk.bad = {log.name: [(8192, 12288)]}
    out = tmp_path / "mended.log"
    report = lw.repair(log, out, codec="kafka.log")
    assert report.incomplete
    assert report["rows"] == lw.read(out, "kafka.log").num_rows
    disk.bad = {}
    forget_failures()
    assert report["rows"] < lw.read(log).num_rows


def test_what_nobody_judges_is_left_away(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    (orders / "notes.txt").write_bytes(b"x" * 600)
    disk.bad = {"notes.txt": [(0, 512)]}
    report = lw.repair(orders, tmp_path / "out" / "orders-0")
    assert not (tmp_path / "out" / "orders-0" / "notes.txt").exists()
    assert "notes.txt can't be read" in report.text()


def test_what_could_be_read_when_it_was_judged(
    orders: Path, disk: FailingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that dies between the look and the copy: nothing stands for its bytes, so nothing is written."""
    name = min(one.name for one in orders.glob("*.log"))
    able = LAYOUT.capabilities.repair
    assert able is not None

    def then_dying(*given):  # type: ignore[no-untyped-def]
        mending = able.repair(*given)
        disk.bad = {name: [(8192, 12288)]}
        return mending

    dying = replace(LAYOUT.capabilities, repair=replace(able, repair=then_dying))
    monkeypatch.setattr(LAYOUT, "capabilities", dying)
    with pytest.raises(lw.StorageError, match="can't read"):
        lw.repair(orders, tmp_path / "out" / "orders-0")
    assert not (tmp_path / "out").exists()
