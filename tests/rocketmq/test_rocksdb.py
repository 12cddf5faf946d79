"""Databases of a broker in its store: with `storeType=defaultRocksDB` the consume queues and the configuration are in RocksDB."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stores import LARGER, ROWS, set_bytes

import logwright as lw

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
DATABASES = ("consumequeue", "config/consumerOffsets", "rocksdbstore")
COMPACTED = "compaction/compactionLog/T0/0"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **LARGER)
    shutil.rmtree(home / "consumequeue")
    for folder in (*DATABASES, COMPACTED):
        (home / folder).mkdir(parents=True)
        for name in ("CURRENT", "000010.sst"):
            (home / folder / name).write_bytes(f"{folder}/{name}".encode())
    return home


def files(home: Path, *folders: str) -> dict[Path, bytes]:
    return {
        path.relative_to(home): path.read_bytes()
        for folder in folders or ("",)
        for path in (home / folder).rglob("*")
        if path.is_file()
    }


def test_repair_of_a_store_with_databases_changes_nothing(store: Path, tmp_path: Path) -> None:
    report = lw.verify(store)
    assert report.ok
    assert "the consume queues are in RocksDB" in str(report.to_dict())
    assert "not copied" not in lw.repair(store, tmp_path / "out").text()
    assert files(tmp_path / "out") == files(store)


def test_rebuild_does_not_replace_queues_in_a_database(store: Path, tmp_path: Path) -> None:
    lw.rebuild(store, tmp_path / "out", what="consumequeue,checkpoint")
    assert files(tmp_path / "out") == files(store)


def test_databases_are_kept_when_the_log_is_repaired(store: Path, tmp_path: Path) -> None:
    (log,) = (store / "commitlog").iterdir()
    set_bytes(log, 300, b"damage")
    lw.repair(store, tmp_path / "out")
    kept = (*DATABASES, "compaction")
    assert files(tmp_path / "out", *kept) == files(store, *kept)
    assert lw.verify(tmp_path / "out").ok


def test_start_says_that_queues_in_a_database_are_not_simulated(store: Path) -> None:
    system = lw.verify(store, as_system="5.5.0").system
    assert system is not None
    assert any("in RocksDB" in warning for warning in system["warnings"])


def test_queue_files_beside_a_database_are_repaired(store: Path, tmp_path: Path) -> None:
    """As with `rocksdbCQDoubleWriteEnable`."""
    lw.write(ROWS, tmp_path / "other", "rocketmq.store", **LARGER)
    for topic in (tmp_path / "other/consumequeue").iterdir():
        shutil.copytree(topic, store / "consumequeue" / topic.name)
    sound = files(store, "consumequeue")
    queue = next(path for path in sound if path.name == "0" * 20)
    set_bytes(store / queue, 8, bytes(4))
    assert not lw.verify(store).ok
    lw.repair(store, tmp_path / "out")
    assert files(tmp_path / "out", "consumequeue") == sound
