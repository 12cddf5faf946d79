"""Repair of LevelDB logs, return to an earlier state, and unreadable bytes."""

from __future__ import annotations

import pytest
from leveldb_damage import BLOOM, PLAIN, Rows, flip, flipped, levels, rows, warnings_of
from leveldb_repair import check_faults, check_leveldb_accepts, repaired, sound_entries
from leveldb_startup import CraftedDatabase, batch, fill, large, physical, put
from memory_directory import MemoryDirectory, UnreadableDirectory

from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.codec.fault import DamageError, Severity, UsageError
from logwright.codec.leveldb.formats.records.layout import BLOCK, fragmented
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy

LAYOUT = registry.get_layout("leveldb.db")

# Logs


def test_log_with_damage_in_the_middle() -> None:
    good = [put(n, b"k%d" % n, b"x" * 100) for n in range(1, 40)]
    data = bytearray(b"".join(physical(part) for part in good))
    data[1000] ^= 1
    crafted = CraftedDatabase(logs={5: bytes(data)})
    result, repair_plan = repaired(MemoryDirectory(crafted.files))
    assert len(check_leveldb_accepts(result)) == 38
    assert sound_entries(result) == sound_entries(MemoryDirectory(crafted.files))
    (cut,) = repair_plan.cut
    assert cut.rows_lost == 1
    kept = result.files["000005.log"]
    assert kept[: cut.offset] == data[: cut.offset]
    assert len(kept) == len(data) - cut.length


def test_records_over_several_blocks_after_damage() -> None:

    payloads = [put(1, b"a"), large(2, b"big", 70_000), put(3, b"b"), large(4, b"too", 90_000), put(5, b"c")]
    data = bytearray()
    for payload in payloads:
        data += fragmented(payload, len(data))
    data[10] ^= 1
    result, repair_plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: bytes(data)}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"b", b"big", b"c", b"too"]
    assert [cut.offset for cut in repair_plan.cut] == [0]


def test_invalid_batches_with_a_correct_checksum() -> None:
    wrong_count = batch(10, (b"a", b"1"), (b"b", b"2"), count=3)
    cut_short = batch(20, (b"c", b"3"), (b"d", b"4"))[:-1]
    other_tag = batch(30, (b"e", b"5")) + b"\x07rest"
    nothing = batch(40, count=2) + b"\x09"
    too_small = b"small"
    poison = batch(0)
    too_high = batch(1 << 56, (b"h", b""))
    empty = batch(45)
    records = [
        put(1, b"first"),
        wrong_count,
        cut_short,
        other_tag,
        nothing,
        too_small,
        poison,
        too_high,
        empty,
        put(50, b"last"),
    ]
    data = b"".join(physical(record) for record in records)
    result, repair_plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: data}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b", b"c", b"e", b"first", b"last"]
    assert len(repair_plan.cut) == 7
    whys = [cut.why for cut in repair_plan.cut]
    assert whys[0] == "WriteBatch has wrong count; 2 operations before it kept"
    assert whys[1] == "bad WriteBatch Put; 1 operation before it kept"
    assert whys[4] == "log record too small"
    assert result.files["000005.log"].endswith(physical(empty) + physical(put(50, b"last")))


def test_torn_tail_is_removed_and_zeros_are_kept() -> None:
    data = physical(put(1, b"a")) + physical(put(2, b"b"))
    result, repair_plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: data[:-3]}).files))
    assert result.files["000005.log"] == physical(put(1, b"a"))
    assert len(repair_plan.cut) == 1
    zeros = MemoryDirectory(CraftedDatabase(logs={5: data + bytes(500)}).files)
    result, repair_plan = repaired(zeros)
    assert result.files == zeros.files
    assert not repair_plan.cut


def test_nonzero_padding_at_the_end_of_a_log_may_have_been_a_batch() -> None:
    data = physical(put(1, b"a")) + bytes(40) + b"torn"
    _, plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: data}).files))
    assert [cut.lost for cut in plan.cut] == [{"file": 5, "first_sequence": 2}]


def test_missing_log_is_reported() -> None:
    crafted = CraftedDatabase([(1, 3, rows(0, 20))], last_sequence=40, log_number=5)
    result, repair_plan = repaired(MemoryDirectory(crafted.files))
    assert result.files == crafted.files
    assert warnings_of(repair_plan).startswith("000005.log, the current log by the manifest, is missing")


def test_block_filler_after_damage() -> None:
    data = bytearray(physical(put(1, b"a")))
    data += fill(len(data) + 3, 2)
    assert len(data) == BLOCK - 3
    data += b"\0\0\0" + physical(put(3, b"c"))
    data[5] ^= 4
    result, _ = repaired(MemoryDirectory(CraftedDatabase(logs={5: bytes(data)}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"c", b"fill"]


def test_lost_writes_are_reported_if_older_values_exist() -> None:
    data = bytearray(physical(put(41, b"key001", b"new")) + physical(put(42, b"key002", b"new")))
    data[20] ^= 1
    crafted = CraftedDatabase([(1, 3, rows(0, 20))], {5: bytes(data)}, last_sequence=40)
    result, repair_plan = repaired(MemoryDirectory(crafted.files))
    assert dict(check_leveldb_accepts(result))[b"key001"] == b"value"
    assert "for keys written or deleted by the lost part, older entries become visible" in warnings_of(
        repair_plan
    )
    assert list(repair_plan.removes) == []


def test_skipped_bytes_may_be_no_batch() -> None:
    """After a damaged record the rest of its block is skipped, whatever it contains."""
    broken = flip(physical(put(1, b"k1")) + physical(b"none") + physical(b"none too"), 12)
    _, repair_plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: broken}).files), "system")
    passed = [cut for cut in repair_plan.cut if "skips it" in cut.why]
    assert [(cut.offset, cut.rows_lost, cut.lost) for cut in passed] == [
        (len(physical(put(1, b"k1"))), 0, {"file": 5})
    ]


# Earlier states


def test_result_without_logs_names_none() -> None:
    crafted = CraftedDatabase(
        [(1, 3, rows(0, 20)), (0, 4, rows(20, 40))], {5: physical(put(90, b"k"))}, last_sequence=89
    )
    zeroed = crafted.changed("000004.ldb", lambda data: data.__setitem__(slice(5, 25), bytes(20)))
    result, _ = repaired(zeroed, "prefix")
    assert sorted(result.files) == ["000003.ldb", "CURRENT", "MANIFEST-000007"]
    assert check_faults(result, Severity.WARNING) == []


def test_prefix_ends_logs_at_the_first_damage() -> None:
    data = b"".join(physical(put(n, b"k%d" % n)) for n in (1, 2, 3))
    broken = bytearray(data)
    broken[len(physical(put(1, b"k1"))) + 12] ^= 1
    logs = {5: bytes(broken), 8: physical(put(4, b"k4")), 9: b""}
    result, repair_plan = repaired(MemoryDirectory(CraftedDatabase(logs=logs).files), "prefix")
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"k1"]
    assert sorted(repair_plan.removes) == ["000008.log", "000009.log"]
    assert [(cut.file, cut.rows_lost) for cut in repair_plan.cut] == [("000008.log", 1), ("000005.log", None)]


def test_prefix_keeps_a_sound_database() -> None:
    directory = MemoryDirectory(
        CraftedDatabase([(1, 3, rows(0, 20))], {5: physical(put(41, b"a"))}, last_sequence=40).files
    )
    result, repair_plan = repaired(directory, "prefix")
    assert result.files == directory.files
    assert not repair_plan.cut


@pytest.mark.parametrize("mode", ["flip", "missing", "empty"])
def test_prefix_returns_to_the_state_before_a_table_lost_entries(mode: str) -> None:
    crafted = CraftedDatabase(
        [(1, 3, rows(0, 20)), (0, 5, rows(5, 25, b"lost", 100)), (0, 7, rows(6, 9, b"newer", 200))],
        {9: physical(put(300, b"newest"))}, last_sequence=299,
    )  # fmt: skip
    files = dict(crafted.files)
    if mode == "missing":
        del files["000005.ldb"]
    else:
        files["000005.ldb"] = (
            b"" if mode == "empty" else bytes([files["000005.ldb"][0] ^ 1]) + files["000005.ldb"][1:]
        )
    result, repair_plan = repaired(MemoryDirectory(files), "prefix")
    assert check_leveldb_accepts(result) == [(key, value) for key, _, value in rows(0, 20)]
    assert levels(result) == {3: 1}
    assert {cut.file for cut in repair_plan.cut} >= {"000007.ldb", "000009.log"}


def test_prefix_repairs_lossless_damage() -> None:
    crafted = CraftedDatabase([(1, 3, rows(0, 20))], last_sequence=40, settings=PLAIN)
    data = crafted.files["000003.ldb"]
    result, _ = repaired(flipped(crafted, "000003.ldb", len(data) - 1), "prefix")
    assert result.files == crafted.files


def test_prefix_refuses_mixed_ages() -> None:
    mixed: Rows = [(b"a", 1, b""), (b"z", 500, b"")]
    crafted = CraftedDatabase(
        [(1, 3, rows(0, 20, b"", 100)), (2, 5, mixed)], last_sequence=600, settings=PLAIN
    )
    with pytest.raises(DamageError, match=r"000005\.ldb has entries from before and after"):
        repaired(flipped(crafted, "000003.ldb", 10), "prefix")
    alone = CraftedDatabase([(1, 3, rows(0, 20, b"", 100))], last_sequence=600, settings=PLAIN)
    with pytest.raises(DamageError, match="no table is older"):
        repaired(flipped(alone, "000003.ldb", 10), "prefix")


# Unreadable bytes and wrong requests


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (300, 310), (1500, 1600), (2300, 2700)])
def test_unreadable_bytes_of_a_table(start: int, stop: int) -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 90))], last_sequence=90, settings=BLOOM)
    unreadable = UnreadableDirectory(crafted.files, {"000005.ldb": [(start, stop)]})
    result, repair_plan = repaired(unreadable)
    assert sound_entries(result) == sound_entries(unreadable)
    assert len(check_leveldb_accepts(result)) >= 60
    assert any("cannot read" in cut.why for cut in repair_plan.cut)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (900, 910), (38_000, 39_000), (49_000, 49_990)])
def test_unreadable_bytes_of_a_log(start: int, stop: int) -> None:
    data = b""
    for n in range(1, 401):
        data += fragmented(put(n, b"k%03d" % n, b"x" * 100), len(data))
    unreadable = UnreadableDirectory(CraftedDatabase(logs={5: data}).files, {"000005.log": [(start, stop)]})
    result, repair_plan = repaired(unreadable)
    assert sound_entries(result) == sound_entries(unreadable)
    assert len(check_leveldb_accepts(result)) >= 380
    assert any("cannot read" in cut.why for cut in repair_plan.cut)


def test_unreadable_zeros_at_the_end_are_removed() -> None:
    data = physical(put(1, b"a")) + bytes(1000)
    unreadable = UnreadableDirectory(CraftedDatabase(logs={5: data}).files, {"000005.log": [(500, 700)]})
    result, _ = repaired(unreadable)
    assert result.files["000005.log"] == physical(put(1, b"a"))


def test_unreadable_current_is_rewritten_and_names_the_manifest() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    unreadable = UnreadableDirectory(crafted.files, {"CURRENT": [(0, 16)]})
    plan = LAYOUT.plan(unreadable, Options(LAYOUT.read_options))
    repair_plan = LAYOUT.capabilities.repair.repair(
        [unreadable], [plan], Strategy.SALVAGE, Options(LAYOUT.capabilities.repair.options)
    )
    made_files = {output_file.name: output_file.pieces for output_file in repair_plan.files()}
    name = next(file for file in crafted.files if file.startswith("MANIFEST"))
    assert made_files["CURRENT"] == [f"{name}\n".encode()]
    assert made_files[name] == [Copy(name, 0, len(crafted.files[name]))]


def test_replicas_of_a_database_are_refused_in_a_repair() -> None:
    crafted = MemoryDirectory(CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40).files)
    plan = LAYOUT.plan(crafted, Options(LAYOUT.read_options))
    with pytest.raises(UsageError, match="no replicas"):
        LAYOUT.capabilities.repair.repair(
            [crafted, crafted], [plan, plan], Strategy.SALVAGE, Options(LAYOUT.capabilities.repair.options)
        )


def test_strategy_system_on_a_sound_database() -> None:
    _, repair_plan = repaired(
        MemoryDirectory(CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=20).files), "system"
    )
    assert warnings_of(repair_plan) == ""
    assert repair_plan.summary().rows == 20
