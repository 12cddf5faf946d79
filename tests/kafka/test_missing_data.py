"""Missing data is reported if other files of the partition, or the checkpoints beside it, prove a loss.

The partition has segments 0, 30, 58 and 86 and ends at 97. Producer snapshots were taken at 30, 51, 58, 86 and 97; at 51 the broker
stopped within a segment.

"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES
from kafka_log import batch, record
from memory_directory import MemoryDirectory, UnreadableDirectory

import logwright as lw
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import ListedFile
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY
from logwright.codec.kafka.formats.log.tables import OtherLogs
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.store.evidence import Evidence

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
TOPIC = "dmg_base"


def remove(partition: Path, base: int, *suffixes: str) -> None:
    for suffix in suffixes:
        (partition / segment_name(base, suffix)).unlink()


def checkpoint(partition: Path, name: str, offset: int, topic: str = TOPIC) -> None:
    (partition.parent / f"{name}-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {offset}\n")


def lost(report: lw.Report) -> list[tuple[int, int | None]]:
    """Return the ranges of offsets that errors report as lost."""
    return sorted(
        (fault.lost["first_offset"], fault.lost.get("last_offset"))
        for _, fault in report.faults
        if fault.lost and fault.severity is ERROR
    )


def errors(report: lw.Report) -> list[Fault]:
    return [fault for _, fault in report.faults if fault.severity is ERROR]


def assert_loss_is_reported(partition: Path, *ranges: tuple[int, int]) -> None:
    """Check that `verify` and every mode of reading report lost offsets, and that a repair lists the same ones."""
    assert lost(lw.verify(partition)) == list(ranges)
    with pytest.raises(lw.DamageError):
        lw.read(partition, columns="offset")
    expected = {row["offset"] for row in CASES["dmg_base"].records() or []}
    expected -= {offset for low, high in ranges for offset in range(low, high + 1)}
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        scan = lw.scan(partition, columns="offset", mode=mode)
        assert set(scan.to_table()["offset"].to_pylist()) - {None} == expected
        assert not scan.report.ok
    report = lw.repair(partition, partition.parent.parent / "out", dry_run=True)
    assert report.incomplete
    cuts = [cut["lost"] for cut in report["cut"] if cut["rows_lost"] != 0]
    assert sorted((cut["first_offset"], cut["last_offset"]) for cut in cuts) == list(ranges)
    assert "nothing lost" not in report.text()


# Missing logs


def test_only_log_is_missing(partition: Path) -> None:
    for base in (30, 58, 86):
        remove(partition, base, ".log", ".index", ".timeindex", ".snapshot")
    remove(partition, 51, ".snapshot")
    remove(partition, 0, ".log")
    assert_loss_is_reported(partition, (0, 96))


def test_all_logs_and_partition_metadata_are_missing(partition: Path) -> None:
    for base in (0, 30, 58, 86):
        remove(partition, base, ".log")
    (partition / "partition.metadata").unlink()
    assert_loss_is_reported(partition, (0, 96))


@pytest.mark.parametrize(("base", "last"), [(0, 29), (30, 57), (58, 85), (86, 96)])
def test_index_without_its_log_proves_a_loss(partition: Path, base: int, last: int) -> None:
    remove(partition, base, ".log")
    assert_loss_is_reported(partition, (base, last))


def test_empty_index_proves_that_a_segment_began(partition: Path) -> None:
    remove(partition, 30, ".log", ".timeindex", ".snapshot")
    (partition / segment_name(30, ".index")).write_bytes(b"")
    assert_loss_is_reported(partition, (30, 57))


def test_snapshot_in_a_gap_between_segments_proves_a_loss(partition: Path) -> None:
    remove(partition, 30, ".log", ".index", ".timeindex")
    assert_loss_is_reported(partition, (30, 57))


def test_snapshots_reveal_two_missing_segments_in_a_row(partition: Path) -> None:
    for base in (30, 58):
        remove(partition, base, ".log", ".index", ".timeindex")
    assert_loss_is_reported(partition, (30, 85))


def test_snapshot_reveals_missing_last_segments(partition: Path) -> None:
    remove(partition, 86, ".log", ".index", ".timeindex")
    assert_loss_is_reported(partition, (86, 96))


def test_epochs_and_a_snapshot_prove_that_the_first_segments_are_missing(partition: Path) -> None:
    for base in (0, 30):
        remove(partition, base, ".log", ".index", ".timeindex")
    first = lw.inspect(partition)["facts"]["leader_epochs"][0]["start_offset"]
    assert first < 30
    assert_loss_is_reported(partition, (first, 57))


def test_two_losses_are_reported_separately(partition: Path) -> None:
    remove(partition, 0, ".log")
    remove(partition, 86, ".log")
    assert_loss_is_reported(partition, (0, 29), (86, 96))


@pytest.mark.parametrize(("moved", "over", "last"), [(30, 0, 29), (58, 30, 57), (86, 58, 85)])
def test_log_that_was_moved_over_an_earlier_one_proves_the_loss_of_that_one(
    partition: Path, moved: int, over: int, last: int
) -> None:
    log = partition / segment_name(moved, ".log")
    log.rename(partition / segment_name(over, ".log"))
    assert_loss_is_reported(partition, (over, last))


@pytest.mark.parametrize(("base", "last"), [(0, 29), (30, 57), (86, 96)])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")])
def test_result_of_a_compaction_without_its_log_proves_a_loss_and_is_kept_by_a_repair(
    partition: Path, tmp_path: Path, base: int, last: int, suffixes: tuple[str, ...]
) -> None:
    rows = lw.read(partition, view="log")
    for suffix in suffixes:
        file = partition / segment_name(base, suffix)
        file.rename(f"{file}.cleaned")
    assert lost(lw.verify(partition)) == [(base, last)]
    with pytest.raises(lw.DamageError, match=r"the file is missing"):
        lw.read(partition)
    lw.repair(partition, tmp_path / "repaired" / partition.name)
    assert lw.read(tmp_path / "repaired" / partition.name, view="log").equals(rows)


def test_log_that_was_appended_to_the_one_before_is_not_missing(partition: Path) -> None:
    log, before = (partition / segment_name(base, ".log") for base in (58, 30))
    before.write_bytes(before.read_bytes() + log.read_bytes())
    log.unlink()
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset", mode="DROPMALFORMED").num_rows == 97
    assert lw.read(partition, columns="offset").num_rows == 97


def test_only_index_with_entries_proves_how_far_the_log_reached(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    rows = [{"value": b"v" * 50, "timestamp_ms": 1000 + i} for i in range(40)]
    lw.write(rows, partition, "kafka.partition", batch_size=100, index_interval_bytes=100)
    log = partition / segment_name(0, ".log")
    positions = lw.read(log, view="frames")["position"].to_pylist()
    log.write_bytes(log.read_bytes()[: positions[10]])
    (partition / segment_name(0, ".timeindex")).write_bytes(b"")
    remove(partition, 40, ".snapshot")
    assert errors(lw.verify(partition))
    with pytest.raises(lw.DamageError, match="index proves that it reached"):
        lw.read(partition)


def flip(partition: Path, name: str, at: int, bit: int) -> None:
    data = bytearray((partition / name).read_bytes())
    data[at] ^= 1 << bit
    (partition / name).write_bytes(data)


@pytest.mark.parametrize("other", ["kept", "empty", "missing"])
@pytest.mark.parametrize(
    ("suffix", "at"),
    [(".timeindex", -2), (".timeindex", -4), (".index", -6), (".index", -8), (".txnindex", -10)],
)
def test_flipped_bit_of_an_index_proves_no_loss(tmp_path: Path, suffix: str, at: int, other: str) -> None:
    """It is in the offset of the last entry. An offset index also has the byte of the log, and the log has another offset there. A time
    index alone proves nothing. An entry of an aborted transaction is wrong if the log ends that transaction elsewhere."""
    partition = tmp_path / "orders-0"
    lw.generate(
        "kafka.partition",
        partition,
        rows=150,
        recipe="transactions",
        segment_bytes=9000,
        index_interval_bytes=250,
    )
    base = max(int(log.stem) for log in partition.glob("*.log"))
    flip(partition, segment_name(base, suffix), at, 5 if at % 4 else 0)
    for name in {".index", ".timeindex"} - {suffix}:
        if other == "empty":
            (partition / segment_name(base, name)).write_bytes(b"")
        elif other == "missing":
            remove(partition, base, name)
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset").num_rows == 150


def test_flipped_bit_of_preallocated_zeros_proves_no_loss(tmp_path: Path) -> None:
    """The log is empty, as after a roll that a crash follows."""
    partition = tmp_path / "orders-0"
    lw.write([{"value": b"v"}] * 3, partition, "kafka.partition")
    for suffix in (".log", ".index", ".timeindex"):
        (partition / segment_name(3, suffix)).write_bytes(bytes(0 if suffix == ".log" else 1200))
    flip(partition, segment_name(3, ".index"), 803, 4)
    flip(partition, segment_name(3, ".timeindex"), 611, 4)
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset").num_rows == 3


# Legal states


def test_deleted_segment_is_not_lost(partition: Path) -> None:
    """A broker renames the log first, and removes the files a minute later."""
    log = partition / segment_name(0, ".log")
    log.rename(f"{log}.deleted")
    assert lost(lw.verify(partition)) == []
    index = partition / segment_name(0, ".index")
    index.rename(f"{index}.deleted")
    (partition / f"{segment_name(0, '.log')}.deleted").unlink()
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset").num_rows == 67


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_deleted_log_that_may_have_lost_records_is_named(partition: Path, tmp_path: Path) -> None:
    """Another file proves the loss. The records are not in the views, and a repair does not bring them back."""
    log = partition / segment_name(30, ".log")
    log.rename(f"{log}.deleted")
    (fault,) = (fault for _, fault in lw.verify(partition).faults if fault.lost)
    assert fault.detail.endswith(
        f"{log.name}.deleted may have them: rename it to {log.name}, unless they were deleted on purpose"
    )
    assert lw.read(partition, mode="DROPMALFORMED", columns="offset").num_rows == 97 - 28
    (note,) = (
        file["note"] for file in lw.inspect(partition)["files"] if file["name"] == f"{log.name}.deleted"
    )
    assert note.endswith(f"read {log.name}.deleted by its own path")
    assert lw.read(f"{log}.deleted", columns="offset")["offset"].to_pylist() == list(range(30, 58))
    notes = lw.repair(partition, tmp_path / "repaired" / partition.name)["notes"]
    assert any(f"rename it to {log.name} and repair again" in note for note in notes)


def test_offsets_below_the_log_start_are_not_lost(partition: Path) -> None:
    remove(partition, 0, ".log")
    checkpoint(partition, "log-start", 40)
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset")["offset"].to_pylist() == list(range(40, 97))


def test_missing_segment_that_contains_the_log_start_is_lost_from_there(partition: Path) -> None:
    remove(partition, 0, ".log")
    checkpoint(partition, "log-start", 20)
    assert lost(lw.verify(partition)) == [(20, 29)]


def test_retention_may_leave_a_snapshot_taken_within_a_segment(partition: Path) -> None:
    for base in (0, 30):
        remove(partition, base, ".log", ".index", ".timeindex")
    remove(partition, 30, ".snapshot")
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n2 58\n")
    assert (partition / segment_name(51, ".snapshot")).exists()
    assert lost(lw.verify(partition)) == []
    assert lw.read(partition, columns="offset").num_rows == 39


def test_log_start_before_the_first_segment_is_a_hint(partition: Path) -> None:
    """It is legal with remote storage, and after a crash the checkpoint may be a minute old."""
    remove(partition, 0, ".log", ".index", ".timeindex")
    checkpoint(partition, "log-start", 3)
    for clean, severity in ((True, WARNING), (False, INFO)):
        report = lw.verify(partition, clean=clean)
        assert [f.severity for _, f in report.faults if "starts at 3" in f.detail] == [severity]
        assert report.ok


@pytest.mark.parametrize(("cleaned", "severity"), [(TOPIC, WARNING), ("other", ERROR), (None, ERROR)])
def test_cleaner_checkpoint_decides_whether_a_gap_may_be_compaction(
    partition: Path, cleaned: str | None, severity: Severity
) -> None:
    remove(partition, 30, ".log", ".index", ".timeindex")
    if cleaned is not None:
        checkpoint(partition, "cleaner", 58, cleaned)
    severities = [fault.severity for _, fault in lw.verify(partition).faults if "in no batch" in fault.detail]
    assert severities == [severity]
    if severity is ERROR:
        with pytest.raises(lw.DamageError, match="segment began there"):
            lw.read(partition, columns="offset")
    else:
        assert lw.read(partition, columns="offset").num_rows == 69


def test_snapshot_in_a_gap_of_a_compacted_log_is_no_proof(partition: Path) -> None:
    """Records are missing within a batch too, so the gap may be compaction."""
    remove(partition, 30, ".log", ".index", ".timeindex")
    log = batch(0, [record(offset_delta=0), record(offset_delta=29)], last_offset_delta=29)
    (partition / segment_name(0, ".log")).write_bytes(log)
    remove(partition, 0, ".index", ".timeindex")
    assert lost(lw.verify(partition)) == []
    assert lw.scan(partition, columns="offset").to_table().num_rows


def test_last_offsets_of_producers_prove_a_loss(partition: Path) -> None:
    remove(partition, 30, ".log", ".index", ".timeindex", ".snapshot")
    remove(partition, 51, ".snapshot")
    assert lost(lw.verify(partition)) == [(30, 57)]


def test_snapshot_in_a_gap_without_producers_is_no_proof(tmp_path: Path) -> None:
    """A writer that keeps offsets leaves such a gap after the snapshot at the old end."""
    place = tmp_path / "orders-0"
    lw.write([{"offset": i, "value": b"x"} for i in range(5)], place, "kafka.partition")
    lw.write([{"offset": i, "value": b"x"} for i in range(10, 15)], place, "kafka.partition", mode="append")
    report = lw.verify(place)
    assert report.ok
    assert report.worst is WARNING
    assert lw.read(place, columns="offset").num_rows == 10


def test_gap_without_evidence_is_reported_and_is_no_damage(partition: Path) -> None:
    remove(partition, 30, ".log", ".index", ".timeindex", ".snapshot")
    for base in (51, 58):
        remove(partition, base, ".snapshot")
    assert lw.verify(partition).ok
    checkpoint(partition, "cleaner", 58, "other")
    report = lw.verify(partition)
    assert report.ok
    assert report.worst is WARNING
    assert lw.read(partition, columns="offset").num_rows == 69


# Checkpoints of the log directory


@pytest.mark.parametrize("name", ["replication", "recovery-point"])
def test_checkpoint_beyond_the_log_end_proves_a_loss(partition: Path, name: str) -> None:
    checkpoint(partition, name, 120)
    assert_loss_is_reported(partition, (97, 119))
    assert (
        f"../{name}-offset-checkpoint proves that it reached offset 119"
        in errors(lw.verify(partition))[0].detail
    )


@pytest.mark.parametrize(
    ("replication", "recovery", "proved"),
    [(518, 118, 0), (119, 118, 0), (118, 518, 0), (119, 119, 119), (119, 60, 119), (314, 118, 314)],
)
def test_flipped_digit_of_a_checkpoint_proves_no_loss(
    tmp_path: Path, replication: int, recovery: int, proved: int
) -> None:
    """If one bit of the number makes the end of the log, which another file has."""
    partition = tmp_path / "orders-0"
    lw.write([{"value": b"x"}] * 118, partition, "kafka.partition")
    (partition / segment_name(118, ".snapshot")).unlink(missing_ok=True)
    checkpoint(partition, "replication", replication, "orders")
    checkpoint(partition, "recovery-point", recovery, "orders")
    report = lw.verify(partition)
    assert lost(report) == ([(118, proved - 1)] if proved else [])
    doubts = [
        fault.severity for _, fault in report.faults if "a bit of that number is flipped" in fault.detail
    ]
    assert doubts == ([] if proved else [WARNING])
    if not proved:
        with pytest.warns(lw.DamageWarning):
            assert lw.read(partition, columns="offset").num_rows == 118


@pytest.mark.parametrize("name", ["replication", "recovery-point"])
def test_checkpoint_below_the_log_end_is_legal(partition: Path, name: str) -> None:
    """Checkpoints are written every few seconds, and when the broker stops."""
    for offset in (0, 90, 97):
        checkpoint(partition, name, offset)
        assert lw.verify(partition).ok
        assert lw.read(partition, columns="offset").num_rows == 97


def test_checkpoint_of_another_partition_proves_nothing(partition: Path) -> None:
    checkpoint(partition, "replication", 120, "other")
    assert lw.verify(partition).ok


def test_future_replica_is_not_compared_with_the_checkpoint(partition: Path) -> None:
    future = partition.with_name(f"{TOPIC}-0.{'0' * 32}-future")
    partition.rename(future)
    checkpoint(future, "replication", 120)
    assert lw.verify(future).ok


def test_damaged_checkpoint_proves_nothing(partition: Path) -> None:
    (partition.parent / "replication-offset-checkpoint").write_bytes(b"\xff\0garbage")
    assert lw.verify(partition).ok


def test_partition_without_logs_below_a_high_watermark_is_damaged(partition: Path) -> None:
    for file in partition.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    assert lw.verify(partition).ok
    checkpoint(partition, "replication", 97)
    report = lw.verify(partition)
    assert [fault.lost["last_offset"] for fault in errors(report)] == [96]
    with pytest.raises(lw.DamageError, match="there is no log"):
        lw.read(partition)


def test_partition_without_logs_whose_epochs_begin_where_it_ended_has_lost_nothing(partition: Path) -> None:
    for file in partition.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    checkpoint(partition, "replication", 97)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n3 97\n")
    assert lw.verify(partition).ok


def test_single_log_is_compared_with_the_checkpoint(partition: Path) -> None:
    checkpoint(partition, "replication", 120)
    with pytest.raises(lw.DamageError, match="reached offset 119"):
        lw.read(partition / segment_name(86, ".log"))


def test_rows_before_the_end_are_read_without_an_error(partition: Path) -> None:
    checkpoint(partition, "replication", 120)
    assert lw.read(partition, columns="offset", filter="offset < 50").num_rows == 50
    assert lw.read(partition, columns="offset", limit=97).num_rows == 97


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_of_an_earlier_segment_proves_that_its_end_is_lost(tmp_path: Path, suffix: str) -> None:
    """The segment ends with a complete batch. Verification and reads use the same evidence."""
    partition = tmp_path / "orders-0"
    rows = [{"value": b"x" * 90, "timestamp": 1_700_000_000_000 + i} for i in range(60)]
    lw.write(rows, partition, "kafka.partition", segment_bytes=2000, batch_size=1, index_interval_bytes=1)
    first, second = sorted(partition.glob("*.log"))[:2]
    log = first.read_bytes()
    end = int(second.stem)
    first.write_bytes(log[: len(log) // end * (end - 4)])
    for other in {".index", ".timeindex"} - {suffix}:
        first.with_suffix(other).unlink()
    ranges = lost(lw.verify(partition))
    assert [low for low, _ in ranges] == [end - 4]
    with pytest.raises(lw.DamageError, match="proves that it reached"):
        lw.read(partition, columns="offset")
    scan = lw.scan(partition, columns="offset", mode="DROPMALFORMED")
    assert scan.to_table().num_rows == 56
    assert [
        (fault.lost["first_offset"], fault.lost["last_offset"]) for _, fault in scan.report.faults
    ] == ranges


def test_records_after_a_corrected_last_batch_are_lost(partition: Path, tmp_path: Path) -> None:
    """The range of the damaged batch reaches to the proved end of the log. The corrected batch ends before that."""
    checkpoint(partition, "replication", 120)
    log = partition / segment_name(86, ".log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    report = lw.verify(partition)
    assert any(file.healed for file in report.files)
    assert (97, 119) in lost(report)
    repaired = lw.repair(partition, partition.parent / "repaired" / partition.name)
    assert repaired.incomplete
    assert lw.read(partition.parent / "repaired" / partition.name, columns="offset").num_rows == 97


def test_records_after_a_misplaced_last_batch_are_lost(partition: Path) -> None:
    """The batch is complete: it is not what is missing."""
    checkpoint(partition, "replication", 120)
    log = partition / segment_name(86, ".log")
    log.write_bytes(2 * log.read_bytes())
    assert (97, 119) in [
        (fault.lost.get("first_offset"), fault.lost.get("last_offset"))
        for fault in errors(lw.verify(partition))
    ]
    scan = lw.scan(partition, columns="offset", mode="DROPMALFORMED")
    assert scan.to_table().num_rows == 97
    assert any("reached offset 119" in fault.detail for _, fault in scan.report.faults)
    (partition.parent / "repaired").mkdir()
    shutil.copy(partition.parent / "replication-offset-checkpoint", partition.parent / "repaired")
    assert lw.repair(partition, partition.parent / "repaired" / partition.name).incomplete


def test_end_is_lost_if_the_last_log_is_a_copy_of_another(partition: Path, tmp_path: Path) -> None:
    """Its name is wrong then. What a checkpoint proves does not count from it."""
    checkpoint(partition, "replication", 97)
    shutil.copy(partition / segment_name(0, ".log"), partition / segment_name(86, ".log"))
    (partition / segment_name(97, ".snapshot")).unlink()
    ranges = [fault.lost for fault in errors(lw.verify(partition)) if fault.lost]
    assert [(lost["first_offset"], lost["last_offset"]) for lost in ranges] == [(86, 96)]
    assert lw.repair(partition, partition.parent / "repaired" / partition.name).incomplete


# A log that ends within a batch


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A partition of 399 records whose log was cut by 777 bytes, within its last batch. The snapshot at its end exists."""
    place = tmp_path / "orders-0"
    rows = [{"offset": i, "key": b"%d" % i, "value": bytes([i & 255]) * 300} for i in range(399)]
    lw.write(rows, place, "kafka.partition", **{"batch.size": 2500})
    log = place / segment_name(0, ".log")
    with open(log, "r+b") as file:
        file.truncate(log.stat().st_size - 777)
    return place


def test_torn_batch_known_from_a_snapshot_is_lost(torn: Path, tmp_path: Path) -> None:
    report = lw.verify(torn)
    (fault,) = [fault for fault in errors(report) if fault.length]
    rows = fault.rows_lost
    assert rows
    assert (fault.lost["first_offset"], fault.lost["last_offset"]) == (399 - rows, 398)
    with pytest.raises(lw.DamageError):
        lw.read(torn)
    repaired = lw.repair(torn, in_place=True, backup=tmp_path / "backup")
    assert repaired.incomplete
    (cut,) = repaired["cut"]
    assert (cut["rows_lost"], cut["lost"]["first_offset"], cut["lost"]["last_offset"]) == (
        rows,
        399 - rows,
        398,
    )
    text = repaired.text()
    assert "nothing lost" not in text
    assert f"{rows} records lost" in text
    assert (tmp_path / "backup" / segment_name(399, ".snapshot")).exists()
    assert "proves that the log reached offset 398" in text.replace("\n      ", " ")
    assert lw.read(torn, columns="offset").num_rows == 399 - rows


def test_torn_batch_known_from_nothing_else_is_a_crash(torn: Path, tmp_path: Path) -> None:
    for suffix in (".index", ".timeindex"):
        remove(torn, 0, suffix)
    remove(torn, 399, ".snapshot")
    report = lw.verify(torn)
    assert report.ok
    assert "may be lost: offsets" in report.text()
    assert not lw.repair(torn, tmp_path / "out" / torn.name).incomplete


@pytest.mark.parametrize("name", ["replication", "recovery-point"])
def test_torn_batch_below_a_checkpoint_is_lost(torn: Path, tmp_path: Path, name: str) -> None:
    for suffix in (".index", ".timeindex"):
        remove(torn, 0, suffix)
    remove(torn, 399, ".snapshot")
    checkpoint(torn, name, 405, "orders")
    losses = [fault.lost for fault in errors(lw.verify(torn)) if fault.lost]
    repaired = lw.repair(torn, in_place=True, backup=tmp_path / "backup")
    assert repaired.incomplete
    assert [cut["lost"] for cut in repaired["cut"]] == losses
    assert losses[0]["last_offset"] == 404
    # The checkpoint still exists, so the loss is still reported.
    assert lost(lw.verify(torn)) == [(losses[0]["first_offset"], 404)]


# Repair


def test_repair_below_a_high_watermark_writes_its_result_and_reports_the_loss(
    partition: Path, tmp_path: Path
) -> None:
    """The last log is missing, so after the repair another log is compared with the checkpoint."""
    remove(partition, 86, ".log")
    checkpoint(partition, "replication", 120)
    repaired = lw.repair(partition, in_place=True, backup=tmp_path / "backup")
    assert repaired.incomplete
    assert [(cut["lost"]["first_offset"], cut["lost"]["last_offset"]) for cut in repaired["cut"]] == [
        (86, 119)
    ]
    assert lost(lw.verify(partition)) == [(86, 119)]


def test_replicas_with_different_losses_complete_each_other(partition: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / partition.name
    shutil.copytree(partition, other)
    remove(partition, 30, ".log")
    remove(other, 86, ".log")
    report = lw.repair([partition, other], tmp_path / "out", dry_run=True)
    assert not report.incomplete
    assert report.rows == 97


def test_append_to_a_partition_with_a_missing_log_is_refused(partition: Path) -> None:
    remove(partition, 86, ".log")
    with pytest.raises(lw.UsageError, match="are lost"):
        lw.write([{"value": b"x"}], partition, "kafka.partition", mode="append")


def test_inspect_names_missing_logs(partition: Path) -> None:
    remove(partition, 30, ".log")
    summary_faults: list[dict[str, Any]] = lw.inspect(partition)["faults"]
    assert any(fault["file"] == segment_name(30, ".log") and fault["lost"] for fault in summary_faults)


def test_repair_counts_control_records_apart(tmp_path: Path) -> None:
    """`verify` counts all records, also the markers of transactions."""
    path = tmp_path / "orders-0"
    lw.generate("kafka.partition", path, rows=100, recipe="transactions")
    report = lw.repair(path, tmp_path / "repaired" / "orders-0")
    assert report.rows == 100 == lw.read(path).num_rows
    assert report.ids["control_records"] == lw.verify(path).rows - 100 > 0


def test_last_snapshot_proves_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    lw.generate("kafka.partition", path, rows=1000, segment_bytes="20k")
    log = path / segment_name(0, ".log")
    log.write_bytes(log.read_bytes()[:-100])
    report = lw.repair(path, tmp_path / "repaired" / "orders-0", strategy="prefix")
    (note,) = [note for note in report.notes if "proves that the log reached" in note]
    assert note.startswith(
        f"{segment_name(1000, '.snapshot')} proves that the log reached offset 999, but it is empty now."
    )


def test_index_entry_at_an_unreadable_place_of_the_log_counts(tmp_path: Path) -> None:
    """Nothing contradicts it."""
    partition = tmp_path / "orders-0"
    rows = [{"value": b"v" * 50}] * 40
    lw.write(rows, partition, "kafka.partition", batch_size=100, index_interval_bytes=100)
    files = MemoryDirectory.of(partition).files
    log, index = segment_name(0, ".log"), segment_name(0, ".index")
    last, _ = INDEX_ENTRY.unpack(files[index][-8:])
    relative, place = last["relative_offset"], last["position"]
    files[index] = files[index][:-8] + INDEX_ENTRY.pack({**last, "relative_offset": relative + 64})
    for bad, end in ({}, None), ({log: [(place, place + 9)]}, relative + 65):
        listing = UnreadableDirectory(files, bad, "orders-0")
        sizes = {name: len(data) for name, data in files.items() if not name.endswith(".timeindex")}
        known = Evidence.of(listing, sizes, [0], None, lambda *_: False)
        reached = known.reached(0, None)
        assert (None if reached is None else reached.end) == end


def test_pickled_copy_of_other_logs_knows_none() -> None:
    others = OtherLogs(
        0, {0: ListedFile(MemoryDirectory({}), "a", 1), 9: ListedFile(MemoryDirectory({}), "b", 1)}
    )
    assert others.with_offset(12) is not None
    assert pickle.loads(pickle.dumps(others)).with_offset(12) is None
