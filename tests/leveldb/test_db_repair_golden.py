"""Repair of the damaged golden databases, compared with RepairDB's result and with the state before the damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from leveldb_repair import (
    check_faults,
    check_leveldb_accepts,
    cuts,
    damaged_cases,
    golden,
    repaired,
    sound_entries,
    truth,
)
from leveldb_startup import GOLDEN, open_listing, recorded_form, rows_of

import logwright as lw
from logwright.codec.fault import DamageError
from logwright.codec.leveldb.names import FileType, parse

CASES = damaged_cases()

REPAIRDB_IS_WRONG = {
    "orphan_table": 20,
    "table_flip_data_snappy": 1,
    "wal_flip_middle_fragment": 1,
    "wal_flip_payload": 1,
    "wal_zero_page": 1,
}
"""Number of rows of RepairDB's result that did not exist before the damage, or had another value: deleted keys that return, values
with a flipped bit."""

WRITTEN_LATER = {"reuse_logs_torn": 6}
"""Rows acknowledged after the state that the case records as the one before the damage: RepairDB loses them."""

ORPHANS = {"orphan_table": {"000005.ldb"}}


def test_damaged_cases_exist() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES)
def test_salvage_keeps_all_sound_entries_and_invents_none(case: str) -> None:
    directory = golden(case)
    _, steps = truth(case)
    before, repairdb = steps["before_damage"], steps["repair"]
    result, _ = repaired(directory)
    rows = dict(recorded_form(*row) for row in check_leveldb_accepts(result))
    # Every row existed with this value.
    more = {key: value for key, value in rows.items() if before.get(key) != value}
    assert len(more) == WRITTEN_LATER.get(case, 0)
    # Every entry of a good block or batch is kept, and none is invented.
    live = {name for name in directory.files if name not in ORPHANS.get(case, ())}
    assert sound_entries(result) == sound_entries(directory, *live)
    # Entries that RepairDB keeps correctly are kept, unless their checksum is wrong.
    sound = {recorded_form(key, value) for key, _, _, value in sound_entries(directory) if value is not None}
    right = {(key, value) for key, value in repairdb.items() if before.get(key) == value}
    assert right - set(rows.items()) == right - sound
    # Entries that it keeps incorrectly are not.
    wrong = {(key, value) for key, value in repairdb.items() if before.get(key) != value}
    assert len(wrong) == REPAIRDB_IS_WRONG.get(case, 0)
    assert not wrong & set(rows.items())


@pytest.mark.parametrize("case", CASES)
def test_levels_and_numbers_of_the_manifest_are_kept(case: str) -> None:
    directory = golden(case)
    result, _ = repaired(directory)
    about, _ = truth(case)
    touched = about["damage"].get("file", "")
    for name, data in result.files.items():
        if name in directory.files and name != touched and name not in ("CURRENT",):
            assert data == directory.files[name], name
    named = [
        entry for entry in map(parse, result.files) if entry is not None and entry.type is FileType.DESCRIPTOR
    ]
    assert len(named) == 1


@pytest.mark.parametrize("case", CASES)
def test_second_repair_changes_nothing(case: str) -> None:
    once, _ = repaired(golden(case))
    twice, repair_plan = repaired(once)
    assert twice.files == once.files
    assert not cuts(repair_plan)


UNOPENED = {case for case in CASES if not truth(case)[1].get("open_verify", truth(case)[1]["open"])} - {
    "table_flip_magic", "table_truncated", "table_zero_length", "wal_missing",
}  # fmt: skip
"""LevelDB does not open them; of the others its iterator returns nothing."""


@pytest.mark.parametrize("case", sorted(UNOPENED))
def test_strategy_system_refuses_what_leveldb_does_not_open(case: str) -> None:
    with pytest.raises(DamageError, match="LevelDB does not open the database"):
        repaired(golden(case), "system")


@pytest.mark.parametrize("case", sorted(set(CASES) - UNOPENED))
def test_strategy_system_leaves_what_leveldb_leaves(case: str) -> None:
    _, steps = truth(case)
    result, _ = repaired(golden(case), "system")
    rows = rows_of(open_listing(result, verify_checksums="open_verify" in steps))
    assert (
        dict(recorded_form(*row) for row in rows)
        == steps["open_verify" if "open_verify" in steps else "open"]
    )
    # Only damage of tables remains.
    assert all(name.endswith(".ldb") for name, _ in check_faults(result))


PREFIX_REFUSES = {
    "table_flip_crc", "table_flip_data", "table_flip_data_snappy", "table_flip_shared_len", "table_flip_type", "table_truncated",
}  # fmt: skip
"""The only table has lost entries, so no earlier state exists."""


@pytest.mark.parametrize("case", sorted(PREFIX_REFUSES))
def test_prefix_refuses_if_no_earlier_state_is_left(case: str) -> None:
    with pytest.raises(DamageError, match="there is no state from before the damage"):
        repaired(golden(case), "prefix")


@pytest.mark.parametrize("case", sorted(set(CASES) - PREFIX_REFUSES))
def test_prefix_is_an_earlier_state(case: str) -> None:
    _, steps = truth(case)
    result, repair_plan = repaired(golden(case), "prefix")
    rows = dict(recorded_form(*row) for row in check_leveldb_accepts(result))
    assert {key for key, value in rows.items() if steps["before_damage"].get(key) != value} == set()
    kept = {sequence for _, sequence, _, _ in sound_entries(result)}
    for cut in repair_plan.cut:
        if cut.rows_lost != 0 and "first_sequence" in cut.lost:
            assert max(kept, default=0) < cut.lost["first_sequence"]


def test_repair_through_the_api(tmp_path: Path) -> None:
    report = lw.repair(GOLDEN / "two_tables_one_bad" / "db", tmp_path / "db")
    assert report.rows_kept == 101
    assert "kept: 101 entries" in str(report)
    assert lw.verify(tmp_path / "db").ok
    assert lw.read(tmp_path / "db").num_rows == 100
