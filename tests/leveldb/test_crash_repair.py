"""A LevelDB database repaired in place: after every crash readers see the damaged or the repaired one, and LevelDB, started in
between, deletes nothing that the repair has written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from leveldb_startup import CraftedDatabase, open_listing, physical, put
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.mend import Mender, Original
from logwright.writers.recover import finish_or_undo
from logwright.writers.stage import FolderListing

TARGET, BACKUP = "/data/db", "/elsewhere/backup"
LAYOUT = registry.get_layout("leveldb.db")
ROWS = [(b"key%03d" % number, number + 1, b"value") for number in range(40)]
MADE = CraftedDatabase(
    [(2, 5, ROWS[:20]), (1, 7, ROWS[20:])],
    {8: physical(put(41, b"a")) + physical(put(42, b"b")), 9: physical(put(43, b"c"))},
    last_sequence=40,
    settings=TableSettings(compression="none", block_size=100),
)


def flip(name: str, place: int) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        data = bytearray(files[name])
        data[place] ^= 0x10
        files[name] = bytes(data)

    return change


def lose_current(files: dict[str, bytes]) -> None:
    del files["CURRENT"]


def misname(files: dict[str, bytes]) -> None:
    files["7.ldb"] = files.pop("000007.ldb")
    files["9.log"] = files.pop("000009.log")


def orphan(files: dict[str, bytes]) -> None:
    files["000003.ldb"] = files["000005.ldb"]
    flip("000005.ldb", 10)(files)


DAMAGE = {
    "block": flip("000005.ldb", 10),
    "log": flip("000008.log", 12),
    "both": lambda files: [flip("000005.ldb", 10)(files), flip("000008.log", 12)(files)],
    "manifest": flip("MANIFEST-000010", 12),
    "current": lose_current,
    "names": misname,
    "orphan": orphan,
}


def damaged(kind: str) -> MemoryFileSystem:
    held = dict(MADE.files)
    DAMAGE[kind](held)
    files = MemoryFileSystem()
    files.make(TARGET)
    files.make("/elsewhere")
    for name, data in held.items():
        files.put(f"{TARGET}/{name}", data)
    return files.fork()


def repair(files: MemoryFileSystem) -> None:
    repairs = LAYOUT.capabilities.repair
    assert repairs is not None

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return repairs.repair(copies, plans, Strategy.SALVAGE, Options(repairs.options))

    def copies() -> list[FolderListing]:
        return [FolderListing(files, Roots(TARGET), "db")]

    Mender(files, LAYOUT, copies, make, Options(LAYOUT.read_options)).in_place(TARGET, BACKUP)


def rows(files: MemoryFileSystem, place: Path) -> list[tuple[bytes, bytes]]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    files.dump(TARGET, str(place))
    table = lw.scan(place, mode="DROPMALFORMED").to_table()
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def started(files: MemoryFileSystem) -> tuple[bool, set[str]]:
    """Return whether LevelDB opens it, and the tables and logs that it would delete unread."""
    held = {name: data for name, data in files.tree(TARGET).items() if "/" not in name and data is not None}
    opened = open_listing(MemoryDirectory(held), create_if_missing="CURRENT" in held, paranoid_checks=False)
    gone = {name for name in opened.verdict.removes if name.endswith(".ldb")}
    return opened.verdict.opens, gone


SHORT = ("both", "names", "current")
"""Scenarios in the sample; the others take longer."""


@pytest.mark.parametrize(
    "kind", [pytest.param(fault, marks=() if fault in SHORT else pytest.mark.nightly) for fault in DAMAGE]
)
def test_crash_leaves_the_old_or_the_new_database_and_leveldb_deletes_nothing(
    kind: str, tmp_path: Path
) -> None:
    files = damaged(kind)
    before = files.tree(TARGET)
    had_current = "CURRENT" in before
    _, doomed = started(files)
    old = rows(files, tmp_path / "db")
    repair(files)
    new, after = rows(files, tmp_path / "db"), files.tree(TARGET)
    assert set(old) <= set(new)
    assert started(files) == (True, set())
    seen: set[bool] = set()
    known: set[object] = set()
    for prefix in range(len(files.trace) + 1):
        killed = files.killed(prefix)
        assert ("CURRENT" in killed.tree(TARGET)) or not had_current
        _, gone = started(killed)
        assert gone <= doomed
        for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
            disk = files.crash(prefix, kept)
            holds = tuple(sorted(disk.tree().items()))
            if holds in known:
                continue
            known.add(holds)
            assert rows(disk, tmp_path / "db") in (old, new)
            finish_or_undo(disk, LAYOUT, TARGET)
            assert disk.tree(TARGET) in (before, after)
            seen.add(disk.tree(TARGET) == after)
    assert seen == {False, True}
    saved = files.tree(BACKUP)
    changed = {name: data for name, data in before.items() if after.get(name) != data}
    assert {name: saved.get(name) for name in changed} == changed
