"""Kafka's own loader on repaired partitions, after an unclean stop, truncates, deletes and rewrites nothing, and what it
then has are all records that were sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES, of_class
from kafka_repairs import read_partition, repair
from memory_directory import MemoryDirectory

from logwright.codec.fault import DamageError
from logwright.corpora.cases import Case

pytestmark = pytest.mark.oracle

BY_NAME: Any = {"ids": lambda case: getattr(case, "name", None)}
INTERVAL = 250
EXPIRATION = (1 << 31) - 1
OPTIONS = {"index.interval.bytes": INTERVAL, "producer.id.expiration.ms": EXPIRATION}


def loaded(
    kafka: Any, tmp_path: Path, directory: MemoryDirectory, interval: int = INTERVAL
) -> tuple[Any, dict[str, bytes]]:
    """Run Kafka's loader on a directory; return its output and the files afterwards."""
    path = tmp_path / directory.name
    path.mkdir()
    for name, data in directory.files.items():
        (path / name).write_bytes(data)
    message = kafka.load(
        path, index_interval_bytes=interval, segment_index_bytes=4096, producer_id_expiration_ms=EXPIRATION
    )
    after = {file.name: file.read_bytes() for file in path.iterdir()}
    return message, after


def differences(before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, str]:
    out = {name: "deleted" for name in before if name not in after}
    out |= {name: "made" for name in after if name not in before}
    return out | {name: "changed" for name in before if name in after and before[name] != after[name]}


@pytest.mark.parametrize("strategy", ["salvage", "prefix", "system"])
@pytest.mark.parametrize("case", of_class("damaged", "refused", "legal", "healthy"), **BY_NAME)
def test_loader_finds_nothing_to_repair(kafka: Any, tmp_path: Path, case: Case, strategy: str) -> None:
    try:
        repaired, repair_plan = repair(read_partition(case.partition), strategy=strategy, **OPTIONS)
    except DamageError:
        assert strategy == "system"
        return
    message, after = loaded(kafka, tmp_path, repaired)
    if strategy == "system" and case.name in ("dmg_ck_recovery_beyond",):
        return  # Segments below the recovery point are not looked at.
    assert differences(repaired.files, after) == {}
    ids = repair_plan.summary().ids
    if ids and strategy != "system":
        assert message["log_end_offset"] == ids["last_offset"] + 1


READABLE = [case for case in of_class("damaged", "refused") if case.name != "dmg_fix_codec5"]
"""Kafka's classes refuse a batch of an unknown compression, which a repair keeps."""


@pytest.mark.parametrize("case", READABLE, **BY_NAME)
def test_kafka_reads_every_undamaged_record(kafka: Any, tmp_path: Path, case: Case) -> None:
    repaired, repair_plan = repair(read_partition(case.partition), **OPTIONS)
    loaded(kafka, tmp_path, repaired)
    actual = [
        record for record in kafka.records(tmp_path / repaired.name) if not record["batch"]["is_control"]
    ]
    offsets = [row["offset"] for row in actual]
    assert offsets == sorted(set(offsets))
    assert len(actual) == repair_plan.summary().rows
    alone = (case.runs["no_marker"].get("consumer") or {}).get("read_uncommitted", {})
    assert len(actual) >= alone.get("count", 0)
    if case.base is None or case.name == "dmg_offset_overflow":
        return
    was = {row["offset"]: row["value_hex"] for row in CASES[case.base].records() or []}
    assert [row for row in actual if was[row["offset"]] != row["value"].hex()] == []


@pytest.mark.parametrize("name", ["v2_txn_open", "killed_txn", "craft_txn_open", "craft_empty_txn_batch"])
def test_kafka_accepts_markers_that_abort_open_transactions(kafka: Any, tmp_path: Path, name: str) -> None:
    directory = read_partition(CASES[name].partition)
    repaired, _ = repair(directory, **OPTIONS, **{"open.transactions": "abort"})
    message, after = loaded(kafka, tmp_path, repaired)
    assert differences(repaired.files, after) == {}
    assert message["first_unstable_offset"] in (None, -1)
    kept, _ = repair(directory, **OPTIONS)
    (tmp_path / "kept").mkdir()
    message, _ = loaded(kafka, tmp_path / "kept", kept)
    assert message["first_unstable_offset"] not in (None, -1)


@pytest.mark.parametrize("name", ["dmg_txn_marker_lost", "dmg_txn_marker_crc", "dmg_txn_marker_type"])
def test_kafka_reads_a_lost_abort_marker_that_is_written_again(kafka: Any, tmp_path: Path, name: str) -> None:
    repaired, plan = repair(read_partition(CASES[name].partition), **OPTIONS)
    assert any("is written again" in note for note in plan.summary().warnings)
    message, after = loaded(kafka, tmp_path, repaired)
    assert differences(repaired.files, after) == {}
    assert message["first_unstable_offset"] is None
    before = CASES["dmg_tbase"].partition
    for log in before.glob("*.txnindex"):
        assert after[log.name] == log.read_bytes()
    last = kafka.batches(max(tmp_path.glob("*/*.log")))[-1]
    assert [record["control_type"] for record in last["records"]] == ["ABORT"]
