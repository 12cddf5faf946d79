"""Repair a ZooKeeper data directory in place through every crash: readers see the damaged or the repaired one, and a server,
started in between, has no other transactions than one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crash_repair import check_every_crash, repair_in_place
from zookeeper_startup import data_directory, memory_of, server, start

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.roundtrip.memory_filesystem import MemoryFileSystem

TARGET, BACKUP = "/data/zk/version-2", "/elsewhere/backup"
LAYOUT = registry.get_layout("zookeeper.datadir")
CASES = ("dmg_flip_body", "dmg_mid_missing", "dmg_snap_all_flip", "dmg_fixed_left", "dmg_snap_aclvec_null")
SHORT = CASES[:2]
"""The cases tried in each run; the others take longer."""

pytestmark = pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")


def damaged(case: str) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make(TARGET)
    files.make("/elsewhere")
    for name, data in memory_of(case).files.items():
        files.put(f"{TARGET}/{name}", data)
    return files.fork()


def rows(files: MemoryFileSystem, place: Path) -> list[tuple[str, bytes]]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    files.dump(TARGET, str(place))
    table = lw.scan(place, codec="zookeeper.datadir", mode="DROPMALFORMED").to_table()
    return list(zip(table["path"].to_pylist(), table["data"].to_pylist(), strict=True))


def served(files: MemoryFileSystem) -> int | None:
    """Return the last transaction of a server started on the files; None if it does not start."""
    held = {name: data for name, data in files.tree(TARGET).items() if "/" not in name and data is not None}
    opened = start(data_directory(held))
    return server(opened).restored.zxid if opened.verdict.opens else None


@pytest.mark.parametrize("strategy", [Strategy.PREFIX, Strategy.SALVAGE])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in SHORT else pytest.mark.nightly) for case in CASES]
)
def test_crash_during_repair_destroys_no_file(case: str, strategy: Strategy, tmp_path: Path) -> None:
    files = damaged(case)
    place = tmp_path / "version-2"
    before, old, ran = files.tree(TARGET), rows(files, place), served(files)
    repair_in_place(files, LAYOUT, TARGET, BACKUP, strategy)
    new, runs = rows(files, place), served(files)
    assert runs is not None

    def check_killed(disk: MemoryFileSystem) -> None:
        assert served(disk) in (ran, runs)

    def check_readers(disk: MemoryFileSystem) -> None:
        assert rows(disk, place) in (old, new)

    check_every_crash(files, LAYOUT, TARGET, BACKUP, before, check_killed, check_readers)
