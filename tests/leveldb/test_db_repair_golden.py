"""Repairing the damaged golden databases: what is kept, held against what RepairDB keeps and against what was there before."""

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
"""So many rows has RepairDB's result that were not there before the damage, or had another value: deleted keys that are back, values
with a flipped bit."""

WRITTEN_LATER = {"reuse_logs_torn": 6}
"""Rows that were acknowledged after the state that the case calls the one before the damage: RepairDB loses them."""

ORPHANS = {"orphan_table": {"000005.ldb"}}


def test_there_are_damaged_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES)
def test_salvage_keeps_what_is_sound_and_writes_nothing_else(case: str) -> None:
    directory = golden(case)
    _, steps = truth(case)
    before, repairdb = steps["before_damage"], steps["repair"]
    result, _ = repaired(directory)
    rows = dict(recorded_form(*row) for row in check_leveldb_accepts(result))
    # Every row is one that was there, with the value that it had.
    more = {key: value for key, value in rows.items() if before.get(key) != value}
    assert len(more) == WRITTEN_LATER.get(case, 0)
    # Every entry of a good block or batch is kept, and none is made up.
    live = {name for name in directory.files if name not in ORPHANS.get(case, ())}
    assert sound_entries(result) == sound_entries(directory, *live)
    # What RepairDB keeps rightly is kept, unless its checksum is wrong.
    sound = {recorded_form(key, value) for key, _, _, value in sound_entries(directory) if value is not None}
    right = {(key, value) for key, value in repairdb.items() if before.get(key) == value}
    assert right - set(rows.items()) == right - sound
    # What it keeps wrongly is not.
    wrong = {(key, value) for key, value in repairdb.items() if before.get(key) != value}
    assert len(wrong) == REPAIRDB_IS_WRONG.get(case, 0)
    assert not wrong & set(rows.items())


@pytest.mark.parametrize("case", CASES)
def test_levels_and_numbers_stay_where_the_manifest_tells_them(case: str) -> None:
    directory = golden(case)
    result, _ = repaired(directory)
    about, _ = truth(case)
    touched = about["damage"].get("file", "")
    for name, data in result.files.items():
        if name in directory.files and name != touched and name not in ("CURRENT",):
            assert data == directory.files[name], name
    named = [one for one in map(parse, result.files) if one is not None and one.type is FileType.DESCRIPTOR]
    assert len(named) == 1


@pytest.mark.parametrize("case", CASES)
def test_a_second_repair_changes_nothing(case: str) -> None:
    once, _ = repaired(golden(case))
    twice, mending = repaired(once)
    assert twice.files == once.files
    assert not cuts(mending)


UNOPENED = {case for case in CASES if not truth(case)[1].get("open_verify", truth(case)[1]["open"])} - {
    "table_flip_magic", "table_truncated", "table_zero_length", "wal_missing",
}  # fmt: skip
"""LevelDB does not open them at all; of the others its iterator gives nothing."""


@pytest.mark.parametrize("case", sorted(UNOPENED))
def test_system_refuses_what_leveldb_does_not_open(case: str) -> None:
    with pytest.raises(DamageError, match="LevelDB does not open the database"):
        repaired(golden(case), "system")


@pytest.mark.parametrize("case", sorted(set(CASES) - UNOPENED))
def test_system_leaves_what_leveldb_leaves(case: str) -> None:
    _, steps = truth(case)
    result, _ = repaired(golden(case), "system")
    rows = rows_of(open_listing(result, verify_checksums="open_verify" in steps))
    assert (
        dict(recorded_form(*row) for row in rows)
        == steps["open_verify" if "open_verify" in steps else "open"]
    )
    # Only the damage of tables stays.
    assert all(name.endswith(".ldb") for name, _ in check_faults(result))


PREFIX_REFUSES = {
    "table_flip_crc", "table_flip_data", "table_flip_data_snappy", "table_flip_shared_len", "table_flip_type", "table_truncated",
}  # fmt: skip
"""The only table has lost entries: there is no state from before."""


@pytest.mark.parametrize("case", sorted(PREFIX_REFUSES))
def test_prefix_refuses_where_no_state_from_before_is_left(case: str) -> None:
    with pytest.raises(DamageError, match="there is no state from before the damage"):
        repaired(golden(case), "prefix")


@pytest.mark.parametrize("case", sorted(set(CASES) - PREFIX_REFUSES))
def test_prefix_is_a_state_that_was(case: str) -> None:
    _, steps = truth(case)
    result, mending = repaired(golden(case), "prefix")
    rows = dict(recorded_form(*row) for row in check_leveldb_accepts(result))
    assert {key for key, value in rows.items() if steps["before_damage"].get(key) != value} == set()
    kept = {sequence for _, sequence, _, _ in sound_entries(result)}
    for cut in mending.cut:
        if cut.rows_lost != 0 and "first_sequence" in cut.lost:
            assert max(kept, default=0) < cut.lost["first_sequence"]


def test_through_the_api(tmp_path: Path) -> None:
    report = lw.repair(GOLDEN / "two_tables_one_bad" / "db", tmp_path / "db")
    assert report.rows_kept == 101
    assert "kept: 101 entries" in str(report)
    assert lw.verify(tmp_path / "db").ok
    assert lw.read(tmp_path / "db").num_rows == 100
