"""Every option of ZooKeeper is used or refused by every verb, view and kind of file: see `option_usage`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from option_usage import Sample, ignored
from zookeeper_datadir import GOLDEN

VALUES = {
    "at_zxid": "0x2a",
    "path_prefix": "/zookeeper",
    "snapshot.compression.method": "gz",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for case in ("snap_gz", "dmg_snap_none"):
        shutil.copytree(GOLDEN / case / "version-2", tmp_path / case / "version-2")
    (tmp_path / "logs").mkdir()
    (tmp_path / "empty/version-2").mkdir(parents=True)
    return tmp_path


def check(folder: Path, kind: str, *names: str) -> None:
    values = {**VALUES, "dataLogDir": str(folder / "logs")}
    sample = Sample(kind, [folder / name for name in names], values)
    assert ignored(sample, folder) == {}


@pytest.mark.extended
def test_every_option_is_used_or_refused_for_a_data_directory(folder: Path) -> None:
    check(
        folder, "zookeeper.datadir", "snap_gz", "dmg_flip_body", "dmg_snap_none", "empty/version-2", "basic"
    )


def test_every_option_is_used_or_refused_for_a_snapshot(folder: Path) -> None:
    check(folder, "zookeeper.snapshot", "snap_gz/version-2/snapshot.42.gz", "snap_gz/version-2/snapshot.0.gz")


def test_every_option_is_used_or_refused_for_a_log(folder: Path) -> None:
    check(folder, "zookeeper.txnlog", "snap_gz/version-2/log.43", "snap_gz/version-2/log.1")
