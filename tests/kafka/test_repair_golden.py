"""Repair of every golden partition: the result is sound, opens unchanged after an unclean stop, and has every sound record."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_golden import CASES, of_class
from kafka_repairs import ID, OPTIONS, check_broker_accepts, read_partition, repair

import logwright as lw
from logwright.codec.fault import Severity
from logwright.codec.kafka.names import METADATA_FILE
from logwright.corpora.cases import Case

BY_NAME: Any = {"ids": lambda case: getattr(case, "name", None)}
UNSUPPORTED = ("dmg_fix_codec5",)
"""A batch of unknown compression with a correct checksum: it is kept, and a current consumer stops there."""
NO_TOPIC = ("dmg_pm_empty", "dmg_pm_garbage", "dmg_pm_missing", "dmg_pm_zero_id")


@pytest.mark.alike
@pytest.mark.parametrize("case", of_class("damaged", "refused"), **BY_NAME)
def test_broker_accepts_salvage_of_golden_damage(case: Case) -> None:
    was = read_partition(case.partition)
    more = {"topic.id": ID} if case.name in NO_TOPIC else {}
    repaired, repair_plan = repair(was, **OPTIONS, **more)
    verdict = check_broker_accepts(repaired, unsupported=case.name in UNSUPPORTED)
    summary = repair_plan.summary()
    if case.name in UNSUPPORTED:
        assert (repair_plan.cut, summary.rows) == ([], len(CASES["dmg_base"].records() or []))
    else:
        assert verdict.rows == summary.rows
    alone = (case.runs["no_marker"].get("consumer") or {}).get("read_uncommitted", {})
    assert verdict.rows >= alone.get("count", 0)
    assert repaired.files[METADATA_FILE].endswith(ID.encode()) or not more
    # Kept ranges of the original logs, in order.
    for cut in repair_plan.cut:
        assert 0 <= cut.offset < cut.offset + cut.length <= len(was.files[cut.file]), cut
        assert cut.rows_lost == 0 or "first_offset" in cut.lost, cut
    repaired_again, _ = repair(repaired, **OPTIONS)
    assert repaired_again.files == repaired.files


@pytest.mark.alike
@pytest.mark.parametrize("case", of_class("damaged", "refused"), **BY_NAME)
def test_prefix_ends_before_the_first_lost_record(case: Case) -> None:
    if case.name in NO_TOPIC:
        return
    repaired, repair_plan = repair(read_partition(case.partition), strategy="prefix", **OPTIONS)
    check_broker_accepts(repaired, unsupported=case.name in UNSUPPORTED)
    salvaged, full = repair(read_partition(case.partition), **OPTIONS)
    assert repair_plan.summary().rows <= full.summary().rows
    if any(removed.rows_lost != 0 for removed in full.cut):
        lost = min(removed.lost["first_offset"] for removed in full.cut if removed.rows_lost != 0)
        assert repair_plan.summary().ids.get("last_offset", -1) < lost or case.name in PARTIAL
    elif any("is written again" in note for note in full.summary().warnings):
        assert repair_plan.summary().ids["last_offset"] + 1 == full.summary().ids["last_offset"]
    else:
        assert repaired.files == salvaged.files


PARTIAL = (
    "dmg_fix_count_plus",
    "craft_compressed_less_records",
    "craft_gzip_bad_crc",
    "craft_gzip_truncated",
)
"""The records of a batch before the bad one are kept."""


@pytest.mark.parametrize("case", of_class("healthy", "legal"), **BY_NAME)
def test_sound_partitions_are_unchanged(case: Case) -> None:
    was = read_partition(case.partition)
    repaired, repair_plan = repair(was, **OPTIONS)
    tail = case.name == "killed_prealloc"
    for name, data in was.files.items():
        if name.endswith(".log"):
            kept = repaired.files[name]
            assert data == kept or (tail and data.startswith(kept) and not any(data[len(kept) :]))
    assert [removed for removed in repair_plan.cut if removed.rows_lost != 0 or not tail] == []
    logs = {name for name in repaired.files if name.endswith(".log")}
    assert logs == {name for name in was.files if name.endswith(".log")} or case.name == "craft_no_files"


EXPECTED = {
    "craft_below_base": (2, 0), "craft_compressed_less_records": (3, 1), "craft_txn_then_plain": (2, 1),
    "dmg_batch_swapped": (97, 0), "dmg_batch_twice": (97, 0), "dmg_fix_count_plus": (97, 0),
    "dmg_fix_lastdelta": (97, 0), "dmg_flip_two": (92, 5), "dmg_flip_offset_back": (97, 0),
    "dmg_flip_offset_bit0": (97, 0), "dmg_flip_offset_neg": (97, 0), "dmg_flip_offset_plus": (97, 0),
    "dmg_offset_overflow": (97, 0), "dmg_seg_duplicate": (97, 0), "dmg_seg_overlap": (97, 0),
    "dmg_seg_wrong_base_high": (97, 0), "dmg_seg_wrong_base_low": (97, 0), "dmg_zero_tail_4096": (97, 0),
    "dmg_flip_magic_3": (97, 0), "dmg_flip_magic_0": (97, 0), "dmg_flip_len_plus": (97, 0), "dmg_flip_len_neg": (97, 0),
    "dmg_flip_len_huge": (97, 0), "dmg_len_zero": (97, 0), "dmg_flip_old_len": (97, 0), "craft_gzip_bad_crc": (2, 1),
    "dmg_left_swap": (97, 0), "dmg_garbage_mid": (97, 0), "dmg_torn_append": (93, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_kept_and_lost_counts(name: str) -> None:
    _, repair_plan = repair(read_partition(CASES[name].partition), **OPTIONS)
    rows, lost = EXPECTED[name]
    assert (repair_plan.summary().rows, sum(removed.rows_lost or 0 for removed in repair_plan.cut)) == (
        rows,
        lost,
    )


def test_lost_count_is_unknown_if_the_batch_count_is_wrong() -> None:
    """If the batch claims no record, or fewer than it has, the loss is not reported as 0."""
    place = CASES["dmg_fix_count_minus"].partition
    _, repair_plan = repair(read_partition(place), **OPTIONS)
    (cut,) = repair_plan.cut
    assert (cut.rows_lost, cut.lost["first_offset"], cut.lost["last_offset"]) == (None, 91, 92)
    (fault,) = [fault for _, fault in lw.verify(place).faults if fault.severity is Severity.ERROR]
    assert fault.rows_lost is None
    (fault,) = [
        fault
        for _, fault in lw.verify(CASES["dmg_fix_count_plus"].partition).faults
        if fault.severity is Severity.ERROR
    ]
    assert fault.rows_lost == 2  # 3 are declared for two offsets.


def test_segment_names_follow_the_batches() -> None:
    high, repair_plan = repair(read_partition(CASES["dmg_seg_wrong_base_high"].partition), **OPTIONS)
    assert "00000000000000000030.log" in high.files
    assert "00000000000000000032.log" in repair_plan.removes
    assert any(
        "is renamed to 00000000000000000030.log" in warning for warning in repair_plan.summary().warnings
    )
    low, _ = repair(read_partition(CASES["dmg_seg_wrong_base_low"].partition), **OPTIONS)
    assert "00000000000000000030.log" in low.files
    far, _ = repair(read_partition(CASES["dmg_offset_overflow"].partition), **OPTIONS)
    assert "00000000002147483734.log" in far.files


def test_damaged_batch_is_reported_in_kafkas_words() -> None:
    _, repair_plan = repair(read_partition(CASES["dmg_flip_two"].partition), **OPTIONS)
    first, second = repair_plan.cut
    assert (first.file, first.offset, first.length, first.rows_lost) == (
        "00000000000000000000.log",
        1513,
        140,
        3,
    )
    assert first.why.startswith("checksum mismatch: ")
    assert first.lost["topic"] == "dmg_flip_two"
    assert (first.lost["partition"], first.lost["first_offset"], first.lost["last_offset"]) == (0, 24, 26)
    assert (second.lost["first_offset"], second.lost["last_offset"]) == (91, 92)


def test_files_that_stop_the_broker_are_left_out() -> None:
    for name in ("dmg_seg_alpha", "dmg_seg_alpha_swap", "dmg_seg_unpadded"):
        was = read_partition(CASES[name].partition)
        repaired, repair_plan = repair(was, **OPTIONS)
        odd = set(was.files) - set(repaired.files)
        assert odd & {"foo.log", "foo.swap", "5.log"}
        assert any(
            "is removed: the broker mistakes the name for that of a segment" in warning
            for warning in repair_plan.summary().warnings
        )
    repaired, _ = repair(read_partition(CASES["dmg_foreign_file"].partition), **OPTIONS)
    assert "README" in "".join(repaired.files)
    assert "leader-epoch-checkpoint.tmp" not in repaired.files


@pytest.mark.parametrize("name", NO_TOPIC)
def test_missing_topic_id_is_reported(name: str) -> None:
    repaired, repair_plan = repair(read_partition(CASES[name].partition), **OPTIONS)
    assert METADATA_FILE not in repaired.files
    assert any("pass topic.id" in line for line in repair_plan.summary().before_you_start)


def test_log_start_beyond_the_end_is_reported() -> None:
    repaired, repair_plan = repair(read_partition(CASES["dmg_ck_logstart_beyond"].partition), **OPTIONS)
    assert check_broker_accepts(repaired).rows == 97
    assert any(
        "starts at 1097 by log-start-offset-checkpoint" in line
        for line in repair_plan.summary().before_you_start
    )


def test_strategy_system_equals_the_result_of_the_broker() -> None:
    case = CASES["dmg_flip_two"]
    repaired, repair_plan = repair(read_partition(case.partition), strategy="system", clean=False, **OPTIONS)
    assert repair_plan.summary().rows == case.runs["no_marker"]["consumer"]["read_uncommitted"]["count"] == 24
    assert sum(removed.rows_lost or 0 for removed in repair_plan.cut) == 97 - 24
    check_broker_accepts(repaired)
    left, repair_plan = repair(read_partition(case.partition), strategy="system", clean=True, **OPTIONS)
    assert repair_plan.cut == []
    assert any("Consumers stop at offset 24" in warning for warning in repair_plan.summary().warnings)
    assert set(left.files) >= set(repaired.files) - {"00000000000000000024.snapshot"}
