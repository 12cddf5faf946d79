"""Unknown data with a correct checksum is unsupported, not damaged, and no byte of it is dropped. LevelDB's own tests are in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import Kind, Severity


def partition(tmp_path: Path) -> tuple[Path, str]:
    """A partition with a batch of compression 5, which Kafka does not define."""
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=300, seed=7)
    lw.damage(tmp_path / "orders-0", tmp_path / "made", op=["set:frame=1,field=attributes,value=5,reseal"])
    return tmp_path / "made" / "orders-0", "compression 5 is unknown"


def datadir(tmp_path: Path) -> tuple[Path, str]:
    """A data directory whose first log has a transaction of type 77, which ZooKeeper does not define."""
    lw.generate("zookeeper.datadir", tmp_path / "zk", rows=300, seed=7, recipe="mixed")
    lw.damage(
        tmp_path / "zk" / "version-2",
        tmp_path / "made",
        op=["set:file=log.1,frame=5,field=type,value=77,reseal"],
    )
    return tmp_path / "made" / "version-2", "Unsupported Txn with type=77"


STORES = pytest.mark.parametrize("make", [partition, datadir], ids=["kafka", "zookeeper"])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@STORES
def test_verify_reports_unsupported_not_damaged(make: Any, tmp_path: Path) -> None:
    store, sample = make(tmp_path)
    report = lw.verify(store)
    assert report.ok
    assert report.unchecked
    (fault,) = (fault for _, fault in report.faults if fault.kind is Kind.UNSUPPORTED)
    assert sample in fault.detail
    assert fault.severity is Severity.WARNING
    assert report.bytes_damaged == 0
    assert "UNSUPPORTED" in report.text()


@STORES
def test_reading_an_unsupported_record_raises(make: Any, tmp_path: Path) -> None:
    store, sample = make(tmp_path)
    view = "txns" if make is datadir else None
    with pytest.raises(lw.UnsupportedError, match=sample):
        lw.read(store, view=view)


def test_tree_stops_at_an_unsupported_transaction(tmp_path: Path) -> None:
    store, _ = datadir(tmp_path)
    (store / "snapshot.96.gz").unlink()
    with pytest.raises(lw.LogwrightError, match="transaction 0x5 cannot be read"):
        lw.read(store, view="tree")


@STORES
def test_repair_refuses_to_drop_it(make: Any, tmp_path: Path) -> None:
    store, sample = make(tmp_path)
    before = content(store)
    with pytest.raises(lw.UnsupportedError, match=sample):
        lw.repair(store, tmp_path / "out" / store.name)
    assert not (tmp_path / "out").exists()
    assert content(store) == before


@STORES
def test_repair_copies_the_file_unchanged_on_request(make: Any, tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    report = lw.repair(store, tmp_path / "out" / store.name, unsupported="copy")
    assert not report.cut
    logs = {name: data for name, data in content(store).items() if "log" in name.split(".")}
    after = content(tmp_path / "out" / store.name)
    assert {name: after[name] for name in logs} == logs
