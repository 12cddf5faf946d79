"""Repair of a partition on a failing disk: lost rows are reported, and none are invented."""

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


def test_repair_out_of_place_and_in_place(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    all_values = values(orders)
    first, second = sorted(path.name for path in orders.glob("*.log"))[:2]
    index = second.replace(".log", ".index")
    disk.bad = {first: [(8192, 12288)], index: [(0, 512)]}
    report = lw.repair(orders, tmp_path / "out" / "orders-0")
    (cut,) = report["cut"]
    assert (cut["file"], report.incomplete) == (first, True)
    assert cut["offset"] <= 8192
    assert cut["offset"] + cut["length"] >= 12288
    assert "cannot read" in cut["why"]
    in_place_report = lw.repair(orders, in_place=True, backup=tmp_path / "backup")
    assert "the backup has zeros" in in_place_report.text()
    saved = json.loads((tmp_path / "backup" / "backup.json").read_text())["files"]
    assert saved[first]["unreadable"] == 4096
    size = (tmp_path / "backup" / first).stat().st_size
    assert (tmp_path / "backup" / first).read_bytes()[8192:12288] == bytes(4096)
    assert size == saved[first]["size"]
    disk.bad = {}
    forget_failures()
    kept = values(tmp_path / "out" / "orders-0")
    assert kept < all_values
    assert len(kept) == report["rows"]
    assert values(orders) == kept
    assert lw.verify(tmp_path / "out" / "orders-0").ok


def test_replica_supplies_unreadable_records(orders: Path, disk: FailingDisk, tmp_path: Path) -> None:
    all_values = values(orders)
    replica = tmp_path / "replica" / "orders-0"
    lw.repair(orders, replica)
    name = min(path.name for path in orders.glob("*.log"))
    # The failing disk goes by file names: the replica has the same ones.
    other = replica / name
    real = other.rename(other.with_name("elsewhere"))
    other.symlink_to(real)
    disk.bad = {name: [(0, 4096), (8192, 12288)]}
    report = lw.repair([orders, replica], tmp_path / "out" / "orders-0")
    assert not report.incomplete
    disk.bad = {}
    forget_failures()
    assert values(tmp_path / "out" / "orders-0") == all_values


def test_unreadable_region_of_a_single_segment_is_removed(
    orders: Path, disk: FailingDisk, tmp_path: Path
) -> None:
    log = min(orders.glob("*.log"))
    disk.bad = {log.name: [(8192, 12288)]}
    out = tmp_path / "repaired.log"
    report = lw.repair(log, out, codec="kafka.log")
    assert report.incomplete
    assert report["rows"] == lw.read(out, "kafka.log").num_rows
    disk.bad = {}
    forget_failures()
    assert report["rows"] < lw.read(log).num_rows


def test_unreadable_file_without_a_checker_is_left_out(
    orders: Path, disk: FailingDisk, tmp_path: Path
) -> None:
    (orders / "notes.txt").write_bytes(b"x" * 600)
    disk.bad = {"notes.txt": [(0, 512)]}
    report = lw.repair(orders, tmp_path / "out" / "orders-0")
    assert not (tmp_path / "out" / "orders-0" / "notes.txt").exists()
    assert "notes.txt cannot be read" in report.text()


def test_sector_that_fails_between_survey_and_copy_is_an_error(
    orders: Path, disk: FailingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing guarantees the bytes then, so nothing is written."""
    name = min(path.name for path in orders.glob("*.log"))
    able = LAYOUT.capabilities.repair
    assert able is not None

    def then_dying(*arguments, **options):  # type: ignore[no-untyped-def]
        repair_plan = able.repair(*arguments, **options)
        disk.bad = {name: [(8192, 12288)]}
        return repair_plan

    dying = replace(LAYOUT.capabilities, repair=replace(able, repair=then_dying))
    monkeypatch.setattr(LAYOUT, "capabilities", dying)
    with pytest.raises(lw.StorageError, match="cannot read"):
        lw.repair(orders, tmp_path / "out" / "orders-0")
    assert not (tmp_path / "out").exists()
