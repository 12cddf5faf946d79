"""A data directory of ZooKeeper repaired in place, through every crash: readers see the damaged one or the repaired one, and a server,
started in between, has no other transactions than one of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from zookeeper_startup import data_directory, memory_of, server, start

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.mend import Mender, Original
from logwright.writers.recover import finish_or_undo
from logwright.writers.stage import FolderListing

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


def repair(files: MemoryFileSystem, strategy: Strategy) -> None:
    repairs = LAYOUT.capabilities.repair
    assert repairs is not None

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return repairs.repair(copies, plans, strategy, Options(repairs.options))

    def copies() -> list[FolderListing]:
        return [FolderListing(files, Roots(TARGET), "version-2")]

    Mender(files, LAYOUT, copies, make, Options(LAYOUT.read_options)).in_place(TARGET, BACKUP)


def rows(files: MemoryFileSystem, place: Path) -> list[tuple[str, bytes]]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    files.dump(TARGET, str(place))
    table = lw.scan(place, codec="zookeeper.datadir", mode="DROPMALFORMED").to_table()
    return list(zip(table["path"].to_pylist(), table["data"].to_pylist(), strict=True))


def served(files: MemoryFileSystem) -> int | None:
    """The last transaction of a server that is started on what it sees; None where it does not start."""
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
    repair(files, strategy)
    after, new, runs = files.tree(TARGET), rows(files, place), served(files)
    assert runs is not None
    seen: set[bool] = set()
    known: set[object] = set()
    for prefix in range(len(files.trace) + 1):
        killed = files.killed(prefix)
        assert served(killed) in (ran, runs)
        for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
            actual = files.crash(prefix, kept)
            holds = tuple(sorted(actual.tree().items()))
            if holds in known:
                continue
            known.add(holds)
            assert rows(actual, place) in (old, new)
            finish_or_undo(actual, LAYOUT, TARGET)
            assert actual.tree(TARGET) in (before, after)
            seen.add(actual.tree(TARGET) == after)
    assert seen == {False, True}
    saved = files.tree(BACKUP)
    changed = {name: data for name, data in before.items() if after.get(name) != data}
    assert {name: saved.get(name) for name in changed} == changed
