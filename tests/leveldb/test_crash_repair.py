"""A LevelDB database repaired in place: after every crash readers see the damaged or the repaired one, and LevelDB, started in
between, deletes nothing that the repair has written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_repair import check_every_crash, repair_in_place
from leveldb_startup import CraftedDatabase, open_listing, physical, put
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.roundtrip.memory_filesystem import MemoryFileSystem

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


@pytest.mark.alike
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
    repair_in_place(files, LAYOUT, TARGET, BACKUP, Strategy.SALVAGE)
    new = rows(files, tmp_path / "db")
    assert set(old) <= set(new)
    assert started(files) == (True, set())

    def check_killed(disk: MemoryFileSystem) -> None:
        assert ("CURRENT" in disk.tree(TARGET)) or not had_current
        assert started(disk)[1] <= doomed

    def check_readers(disk: MemoryFileSystem) -> None:
        assert rows(disk, tmp_path / "db") in (old, new)

    check_every_crash(files, LAYOUT, TARGET, BACKUP, before, check_killed, check_readers)
