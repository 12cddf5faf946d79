"""Faults that only a check of a complete database finds: data that LevelDB skips on opening, and entries hidden from Get."""

from __future__ import annotations

from pathlib import Path

import pytest
from leveldb_repair import check_faults, database, handmade_table
from leveldb_startup import GOLDEN, CraftedDatabase, batch, physical, put
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.fault import Kind, Severity
from logwright.codec.leveldb.formats.manifest.layout import EditField
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.keys import BYTEWISE, internal_key
from logwright.codec.leveldb.store.db import LAYOUT
from logwright.codec.option import Options

pytestmark = pytest.mark.kernel_modes

HEALTHY = (
    "tables_bloom",
    "tables_separators",
    "tables_none",
    "same_key_versions",
    "reopened",
    "killed_two_wals",
    "jni_sst",
)
ROWS = [(b"key%03d" % i, i + 1, b"value") for i in range(40)]
BLOOM = TableSettings(compression="none", block_size=64, bloom_bits_per_key=10)


def details(
    directory: MemoryDirectory, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[str]:
    return [f"{name}: {fault.detail}" for name, fault in check_faults(directory, severity, deep=deep)]


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_databases_have_no_fault(case: str) -> None:
    report = lw.verify(GOLDEN / case / "db")
    assert report.ok
    assert not [fault for _, fault in report.faults if fault.severity is Severity.WARNING]


def test_own_database_has_no_fault() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS[:20]), (0, 7, ROWS[20:])], last_sequence=40, settings=BLOOM)
    assert details(MemoryDirectory(crafted.files)) == []
    assert details(MemoryDirectory(crafted.files), Severity.WARNING) == []


# Within a table


def test_keys_out_of_order_within_a_block() -> None:
    table = handmade_table([(b"a", 1), (b"c", 2), (b"b", 3)], keys=[internal_key(b"d", 9, 1)])
    assert details(database(table)) == ["000003.ldb: its keys are not in order; it begins with a"]
    assert details(database(table), deep=False) == []


def test_older_entry_before_a_newer_one() -> None:
    table = handmade_table([(b"a", 1), (b"a", 2)])
    assert details(database(table)) == ["000003.ldb: its keys are not in order; it begins with a"]


def test_longer_keys_sort_after_their_prefixes() -> None:
    assert details(database(handmade_table([(b"a", 1), (b"aa", 2)], [(b"aaa", 3)]))) == []
    assert len(details(database(handmade_table([(b"aa", 1), (b"a", 2)])))) == 1


def test_blocks_out_of_key_order_are_reported() -> None:
    table = handmade_table(
        [(b"c", 1)], [(b"a", 2)], keys=[internal_key(b"c", 1, 1), internal_key(b"d", 1, 1)]
    )
    (detail,) = details(database(table))
    assert (
        detail == "000003.ldb: its first key is not after the last key of the block before; it begins with a"
    )


def test_index_keys_that_do_not_bound_their_blocks() -> None:
    low = handmade_table(
        [(b"a", 1), (b"b", 2)], [(b"d", 3)], keys=[internal_key(b"a", 1, 1), internal_key(b"d", 3, 1)]
    )
    assert details(database(low)) == ["000003.ldb: its last key is after its own index key; it begins with a"]
    high = handmade_table([(b"a", 1)], [(b"d", 3)], keys=[internal_key(b"d", 2, 1), internal_key(b"d", 3, 1)])
    assert details(database(high)) == [
        "000003.ldb: its first key is not after the index key of the block before; it begins with d"
    ]


def test_key_after_its_index_key_is_reported() -> None:
    table = handmade_table([(b"a", 1)], [(b"b", 2)], keys=[b"short", internal_key(b"b", 2, 1)])
    assert details(database(table)) == [
        "000003.ldb: its last key is after its own index key; it begins with a"
    ]


def test_filter_without_a_key() -> None:
    table = handmade_table([(b"a", 1), (b"b", 2)], filtered=[b"a"])
    assert details(database(table)) == ["000003.ldb: the filter denies the key b"]
    assert details(database(handmade_table([(b"a", 1), (b"b", 2)], filtered=[b"a", b"b"]))) == []


def test_filter_of_another_policy_is_not_checked() -> None:
    table = handmade_table([(b"a", 1), (b"b", 2)], filtered=[b"a"], policy="my.Filter")
    assert details(database(table)) == []


def test_filter_with_a_wrong_checksum_is_reported_once() -> None:
    table = bytearray(handmade_table([(b"a", 1)], filtered=[b"b"]))
    at = table.index(b"\x0b\0", 30)
    table[at - 1] ^= 1
    faults = check_faults(database(bytes(table)))
    assert [fault.kind for _, fault in faults] == [Kind.CHECKSUM]


# Compared with the manifest


def test_keys_outside_of_the_manifests_range() -> None:
    table = handmade_table([(b"a", 1), (b"m", 2), (b"z", 3)])
    texts = details(database(table, smallest=b"b", largest=b"y"))
    assert texts == [
        "000003.ldb: its first key is a, before b in the manifest",
        "000003.ldb: its last key is z, after y in the manifest",
    ]


def test_sequence_numbers_above_the_last_one() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], last_sequence=30)
    assert details(MemoryDirectory(crafted.files)) == [
        "000005.ldb: it has sequence numbers up to 40, but the last one of the database is 30"
    ]
    assert details(MemoryDirectory(crafted.files), deep=False) == []


def test_sequence_numbers_that_a_log_confirms() -> None:
    crafted = CraftedDatabase(
        [(1, 5, ROWS)],
        {8: physical(put(31, b"a")) + physical(batch(32, *[(b"b", b"")] * 9))},
        last_sequence=30,
    )
    assert details(MemoryDirectory(crafted.files)) == []


def test_next_file_number_of_a_live_table_is_reported() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], last_sequence=40, next_file_number=5)
    (detail,) = details(MemoryDirectory(crafted.files))
    assert "table 5 is live, but the next number for a new file is 5" in detail


def test_overlapping_tables_of_a_level() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS[:21]), (1, 7, ROWS[20:])], last_sequence=40)
    (detail,) = details(MemoryDirectory(crafted.files))
    assert detail.endswith(
        "tables 5 and 7 of level 1 overlap: one ends with key020, the other begins with key020"
    )
    crafted = CraftedDatabase([(0, 5, ROWS[:21]), (0, 7, ROWS[20:])], last_sequence=40)
    assert details(MemoryDirectory(crafted.files)) == []


def test_user_key_may_end_a_table_and_begin_the_next_with_older_entries() -> None:
    crafted = CraftedDatabase(
        [(1, 5, [(b"a", 1, b""), (b"b", 9, b"")]), (1, 7, [(b"b", 3, b"")])], last_sequence=9
    )
    assert details(MemoryDirectory(crafted.files)) == []


@pytest.mark.parametrize(
    ("upper", "lower"),
    [((0, 7), (0, 5)), ((0, 5), (2, 7)), ((1, 5), (3, 7))],
    ids=["level 0", "0 and 2", "1 and 3"],
)
def test_newer_entries_at_a_lower_priority_level(upper: tuple[int, int], lower: tuple[int, int]) -> None:
    old = [(key, sequence, b"old") for key, sequence, _ in ROWS[:20]]
    new = [(key, sequence + 100, b"new") for key, sequence, _ in ROWS[:20]]
    wrong = CraftedDatabase([(*upper, old), (*lower, new)], last_sequence=200)
    (detail,) = details(MemoryDirectory(wrong.files), Severity.WARNING)
    assert f"it is newer (sequence numbers from 101) than table {upper[1]} (up to 20)" in detail
    right = CraftedDatabase([(*upper, new), (*lower, old)], last_sequence=200)
    assert details(MemoryDirectory(right.files), Severity.WARNING) == []
    crafted = CraftedDatabase(
        [(*upper, old), (*lower, [(b"z" + key, sequence, value) for key, sequence, value in new])],
        last_sequence=200,
    )
    assert details(MemoryDirectory(crafted.files), Severity.WARNING) == []


def test_missing_current_log_is_reported() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], last_sequence=40, log_number=6)
    (detail,) = details(MemoryDirectory(crafted.files), Severity.WARNING)
    assert (
        detail
        == ": 000006.log, the current log by the manifest, is missing: its writes are lost, if it had any"
    )
    assert (
        details(
            MemoryDirectory(CraftedDatabase([(1, 5, ROWS)], last_sequence=40, log_number=0).files),
            Severity.WARNING,
        )
        == []
    )


def test_unknown_order_is_not_checked() -> None:
    table = handmade_table([(b"c", 1)], [(b"a", 2)])
    edit = [
        EditField("comparator", text=b"mine"),
        EditField(
            "new_file",
            level=1,
            number=3,
            size=len(table),
            smallest=internal_key(b"c", 1, 1),
            largest=internal_key(b"a", 1, 1),
        ),
        EditField(
            "new_file",
            level=1,
            number=2,
            size=len(table),
            smallest=internal_key(b"c", 1, 1),
            largest=internal_key(b"a", 1, 1),
        ),
    ]
    crafted = CraftedDatabase(
        last_sequence=100, edit=edit, next_file_number=9, more={"000003.ldb": table, "000002.ldb": table}
    )
    assert details(MemoryDirectory(crafted.files)) == []


# Logs


def test_consecutive_sequence_numbers_of_logs_are_sound() -> None:
    logs = {
        5: physical(put(1, b"a")) + physical(batch(2, (b"b", b""), (b"c", b""))),
        8: physical(put(4, b"d")),
    }
    assert details(MemoryDirectory(CraftedDatabase(logs=logs).files), Severity.WARNING) == []


def test_gap_within_a_log_between_logs_and_after_the_tables() -> None:
    logs = {5: physical(put(1, b"a")) + physical(put(3, b"b")), 8: physical(put(7, b"d"))}
    texts = details(MemoryDirectory(CraftedDatabase(logs=logs).files), Severity.WARNING)
    assert texts == [
        "000005.log: the sequence numbers 2 to 2 are missing before this write",
        "000008.log: the sequence numbers 4 to 6 are missing before this write",
    ]
    crafted = CraftedDatabase([(1, 2, ROWS)], {5: physical(put(44, b"a"))}, last_sequence=40)
    (text,) = details(MemoryDirectory(crafted.files), Severity.WARNING)
    assert "the sequence numbers 41 to 43 are missing" in text


def test_gap_between_logs_that_the_manifest_is_ahead_of() -> None:
    logs = {5: physical(put(41, b"a")), 8: physical(put(44, b"b"))}
    crafted = CraftedDatabase([(1, 2, ROWS)], logs, last_sequence=44)
    (text,) = details(MemoryDirectory(crafted.files), Severity.WARNING)
    assert text == "000008.log: the sequence numbers 42 to 43 are missing before this write"
    torn = crafted.changed("000005.log", lambda data: data.extend(physical(put(42, b"c"))[:-1]))
    assert not any("missing" in text for text in details(torn, Severity.WARNING))


def test_gap_at_damage_is_not_reported_again() -> None:
    data = bytearray(physical(put(1, b"a")) + physical(put(2, b"b")) + physical(put(3, b"c")))
    data[30] ^= 1
    assert details(MemoryDirectory(CraftedDatabase(logs={5: bytes(data)}).files), Severity.WARNING) == []


def test_decreasing_sequence_numbers_are_reported() -> None:
    logs = {5: physical(put(5, b"a")) + physical(put(3, b"b"))}
    crafted = details(MemoryDirectory(CraftedDatabase(logs=logs, last_sequence=4).files), Severity.WARNING)
    assert crafted == ["000005.log: the sequence number 3 comes after 5"]


def test_manifest_may_be_ahead_of_the_log() -> None:
    crafted = CraftedDatabase(
        [(1, 2, ROWS[:34])], {5: physical(put(35, b"a")) + physical(put(36, b"b"))}, last_sequence=40
    )
    assert details(MemoryDirectory(crafted.files), Severity.WARNING) == []


def test_empty_log_before_another_one_has_lost_its_writes() -> None:
    """The manifest counts the writes of a log that is being flushed to a table."""
    crafted = CraftedDatabase([(1, 2, ROWS)], {5: b"", 8: physical(put(47, b"a"))}, last_sequence=46)
    highest = max(sequence for _, sequence, _ in ROWS)
    assert details(MemoryDirectory(crafted.files), Severity.WARNING) == [
        f"000005.log: it is empty, and the sequence numbers {highest + 1} to 46 are in no table and no log"
    ]
    following = CraftedDatabase(
        [(1, 2, ROWS)], {5: b"", 8: physical(put(highest + 1, b"a"))}, last_sequence=46
    )
    assert details(MemoryDirectory(following.files), Severity.WARNING) == []


def test_invalid_batches_have_no_sequence_numbers() -> None:
    logs = {5: physical(put(1, b"a")) + physical(b"small") + physical(put(2, b"b"))}
    assert details(MemoryDirectory(CraftedDatabase(logs=logs).files), Severity.WARNING) == []


# Damaged databases


def test_without_a_sound_manifest_tables_are_compared_with_each_other() -> None:
    table = handmade_table(
        [(b"c", 1)], [(b"a", 2)], keys=[internal_key(b"c", 1, 1), internal_key(b"d", 1, 1)]
    )
    texts = details(MemoryDirectory({"000003.ldb": table}))
    assert any("its first key is not after" in text for text in texts)


def test_verify_reports_the_faults(tmp_path: Path) -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], last_sequence=30)
    for name, data in crafted.files.items():
        (tmp_path / name).write_bytes(data)
    report = lw.verify(tmp_path)
    assert not report.ok
    assert "it has sequence numbers up to 40" in " ".join(str(report).split())
    assert lw.verify(tmp_path, depth="checksums").ok
    assert not lw.verify(tmp_path, jobs=2).ok
    assert "LevelDB removes the logs" in str(report)


def test_plan_names_the_comparator_and_advises_copying() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], {8: physical(put(41, b"a"))}, last_sequence=40, settings=BLOOM)
    plan = LAYOUT.plan(MemoryDirectory(crafted.files), Options(LAYOUT.read_options))
    assert LAYOUT.nouns == ("entry", "file")
    assert any("Copy the directory" in line for line in LAYOUT.advice)
    assert not LAYOUT.discards("db")
    assert plan.facts["comparator"] == BYTEWISE


def test_facts_count_log_batches_filters_and_compressions() -> None:
    logs = {
        8: physical(put(41, b"a")) + physical(batch(42, (b"b", None), (b"c", b""))) + physical(b"x"),
        9: b"",
    }
    directory = MemoryDirectory(CraftedDatabase([(1, 5, ROWS)], logs, last_sequence=40, settings=BLOOM).files)
    facts = LAYOUT.facts(directory, LAYOUT.plan(directory, Options(LAYOUT.read_options)))
    assert facts["log_batches"] == 2
    assert facts["log_operations"] == 3
    assert facts["log_sequences"] == [41, 43]
    assert facts["tables_with_filter"] == 1
    assert facts["compression"] == {"none": facts["blocks"]}
    empty = MemoryDirectory(CraftedDatabase().files)
    assert LAYOUT.facts(empty, LAYOUT.plan(empty, Options(LAYOUT.read_options)))["log_sequences"] is None


def test_order_broken_across_a_damaged_block() -> None:
    table = bytearray(
        handmade_table(
            [(b"c", 1)],
            [(b"d", 2)],
            [(b"a", 3)],
            keys=[internal_key(key, 1, 1) for key in (b"c", b"d", b"e")],
        )
    )
    table[table.index(b"\0\x09\x01d") + 3] ^= 1
    texts = details(database(bytes(table)))
    assert any(
        "its first key is not after the last key of the block before; it begins with a" in text
        for text in texts
    )


def test_empty_and_short_batches_are_not_faults() -> None:
    directory = MemoryDirectory(CraftedDatabase(logs={5: physical(b"small"), 8: physical(batch(4))}).files)
    assert details(directory) == []
    facts = LAYOUT.facts(directory, LAYOUT.plan(directory, Options(LAYOUT.read_options)))
    assert (facts["log_batches"], facts["log_operations"], facts["log_sequences"]) == (1, 0, [4, 3])


def test_facts_of_a_damaged_database() -> None:
    crafted = CraftedDatabase([(1, 5, ROWS)], {8: b"\0" * 20}, last_sequence=40)
    data = bytearray(crafted.files["000005.ldb"])
    data[-60] ^= 1
    directory = MemoryDirectory({**crafted.files, "000005.ldb": bytes(data)})
    assert LAYOUT.facts(directory, LAYOUT.plan(directory, Options(LAYOUT.read_options)))["blocks"] > 5
