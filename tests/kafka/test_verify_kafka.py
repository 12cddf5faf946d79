"""`verify` of a partition beyond single files: derived files compared with the logs, and segments with each other."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_golden import CASES, of_class
from kafka_verify import ERROR, INFO, WARNING, frame_rows, log_name, severe_faults

import logwright as lw
from logwright.codec.fault import Severity, StorageError
from logwright.codec.kafka.check.partition import _complete_batches
from logwright.codec.kafka.names import segment_name
from logwright.corpora.cases import Case
from logwright.readers import resolve, verify
from logwright.readers.listing import LocalDirectory

BY_NAME: Any = {"ids": lambda case: getattr(case, "name", None)}


LEFT_OUT = ("craft_delta_beyond", "craft_delta_order")
"""Records that no consumer gets are worth a warning, though no software complains."""


@pytest.mark.parametrize("case", of_class("healthy", "legal"), **BY_NAME)
def test_partitions_of_a_broker_are_sound(case: Case) -> None:
    report = lw.verify(case.partition)
    assert report.ok, report.text()
    if case.name not in LEFT_OUT:
        assert severe_faults(report) == [], report.text()


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in of_class("healthy", "legal")
        if not case.name.startswith("killed") and case.name not in LEFT_OUT
    ],
    **BY_NAME,
)
def test_partitions_of_a_broker_are_sound_after_a_clean_stop(case: Case) -> None:
    assert severe_faults(lw.verify(case.partition, clean=True)) == []


SEEN: dict[str, tuple[str, Severity, Severity, str]] = {
    # Case: file, severity after a clean stop and after an unclean one, text.
    "dmg_batch_removed": (segment_name(30, ".index"), ERROR, WARNING, "within the batch"),
    "dmg_epoch_beyond": ("leader-epoch-checkpoint", WARNING, WARNING, "the log ends at 97"),
    "dmg_epoch_unsorted": ("leader-epoch-checkpoint", WARNING, WARNING, "contradict"),
    "dmg_epoch_wrong": ("leader-epoch-checkpoint", WARNING, WARNING, "epoch 5 from offset 3 on: offset 5 has leader epoch 0"),
    "dmg_epochs_backwards": (log_name(86), WARNING, WARNING, "offset 90 has leader epoch 1"),
    "dmg_flip_epoch": (log_name(86), WARNING, WARNING, "offset 91 has leader epoch 3, but leader-epoch-checkpoint says 2"),
    "dmg_flip_epoch_high": (log_name(86), WARNING, WARNING, "leader epoch 16777218"),
    "dmg_index_other_segment": (segment_name(30, ".index"), ERROR, WARNING, "within the batch"),
    "dmg_index_pos_shift": (segment_name(30, ".index"), ERROR, WARNING, "has byte 340"),
    "dmg_index_stale": (segment_name(86, ".index"), ERROR, INFO, "the batches end at byte 209"),
    "dmg_orphan_index": (log_name(30), ERROR, ERROR, "offsets 30 to 57 are lost"),
    "dmg_seg_missing_first": ("leader-epoch-checkpoint", WARNING, INFO, "the first segment at 30"),
    "dmg_seg_missing_last": (log_name(58), ERROR, ERROR, "ends with offset 85"),
    "dmg_seg_missing_mid": (log_name(30), ERROR, ERROR, "a segment began there and is missing"),
    "dmg_seg_wrong_base_low": (segment_name(29, ".index"), ERROR, WARNING, "has offset 54 at byte 1577, but the offset is before"),
    "dmg_timeindex_empty": (segment_name(30, ".timeindex"), WARNING, WARNING, "it is empty"),
    "dmg_trunc_boundary": (log_name(86), ERROR, ERROR, "ends with offset 92"),
    "dmg_trunc_old_boundary": (log_name(30), ERROR, ERROR, "ends with offset 56"),
    "dmg_trunc_old_to_zero": (log_name(30), ERROR, ERROR, "the segment is empty"),
    "dmg_trunc_to_zero": (log_name(86), ERROR, ERROR, "ends with offset 85"),
    "dmg_txn_index_all_missing": (segment_name(1, ".txnindex"), ERROR, WARNING, "producer 2 aborted offsets 2 to 5"),
    "dmg_txn_index_missing": (segment_name(1, ".txnindex"), ERROR, WARNING, "the file is missing"),
    "dmg_txn_index_wrong": (segment_name(1, ".txnindex"), ERROR, WARNING, "producer 77777"),
    "dmg_txn_marker_lost": (segment_name(23, ".txnindex"), ERROR, WARNING, "but there is no such marker"),
    "dmg_txn_snapshot_stray": (segment_name(5000, ".snapshot"), INFO, INFO, "the log ends at 40"),
    "dmg_zero_tail_12": (log_name(86), ERROR, INFO, "ends in preallocated zeros"),
    "dmg_trunc_body": (log_name(86), ERROR, ERROR, "but the file ends after"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_verify_names_contradictions_between_files(name: str) -> None:
    file, clean, unclean, details = SEEN[name]
    for stop, severity in ((True, clean), (False, unclean)):
        faults = lw.verify(CASES[name].partition, clean=stop).faults
        fitting = [fault for path, fault in faults if path == file and details in fault.detail]
        assert [fault.severity for fault in fitting[:1]] == [severity], faults


LOST = {
    "dmg_orphan_index": (30, 57), "dmg_seg_missing_mid": (30, 57), "dmg_seg_missing_last": (86, 96),
    "dmg_trunc_boundary": (93, 96), "dmg_trunc_old_boundary": (57, 57), "dmg_trunc_old_to_zero": (30, 57),
    "dmg_trunc_old_body": (31, 57), "dmg_trunc_hdr_5": (93, 96), "dmg_trunc_two": (91, 96), "dmg_index_stale": (90, 96),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_loss_is_reported_even_if_no_batch_shows_it(name: str) -> None:
    low, high = LOST[name]
    base = {row["offset"] for row in CASES["dmg_base"].records() or []}
    scan = lw.scan(CASES[name].partition, columns="offset", mode="DROPMALFORMED")
    have = set(scan.to_table()["offset"].to_pylist())
    assert base - have == set(range(low, high + 1))
    lost = [fault.lost for _, fault in lw.verify(CASES[name].partition).faults if fault.lost]
    assert [(fault["first_offset"], fault["last_offset"]) for fault in lost] == [(low, high)]


@pytest.mark.parametrize("name", [*LOST, "dmg_torn_append"])
def test_certain_loss_is_damage(name: str) -> None:
    assert not lw.verify(CASES[name].partition, clean=False).ok


def test_unfinished_write_of_a_crash_may_be_a_loss(partition: Path) -> None:
    for name in (segment_name(97, ".snapshot"), segment_name(86, ".index"), segment_name(86, ".timeindex")):
        (partition / name).unlink()
    with open(partition / log_name(86), "r+b") as file:
        file.truncate(470)
    report = lw.verify(partition, clean=False)
    assert report.ok
    assert "may be lost: offsets" in report.text()


def test_misplaced_batch_is_not_lost() -> None:
    faults = lw.verify(CASES["dmg_batch_swapped"].partition).faults
    assert not any(fault.lost or fault.rows_lost for _, fault in faults)
    assert not any("27" in fault.detail and "in no batch" in fault.detail for _, fault in faults)


@pytest.mark.parametrize("name", ["dmg_flip_offset_back", "dmg_flip_offset_neg"])
def test_wrong_offsets_are_not_the_lost_ones(name: str) -> None:
    faults = lw.verify(CASES[name].partition).faults
    ((lost, rows),) = [(fault.lost, fault.rows_lost) for _, fault in faults if fault.lost]
    assert (lost["first_offset"], lost["last_offset"], rows) == (91, 92, 2)


def test_duplicated_batch_loses_nothing(partition: Path) -> None:
    frame = frame_rows(partition, 86)[1]
    data = (partition / log_name(86)).read_bytes()
    end = frame["position"] + frame["size"]
    (partition / log_name(86)).write_bytes(data[:end] + data[frame["position"] :])
    ((_, fault),) = [each for each in lw.verify(partition).faults if "are not above" in each[1].detail]
    assert (fault.lost, fault.rows_lost) == ({}, 0)


def test_lost_offsets_are_unknown_if_the_last_batch_has_a_wrong_offset(partition: Path) -> None:
    last = frame_rows(partition, 86)[-1]
    data = bytearray((partition / log_name(86)).read_bytes())
    data[last["position"] : last["position"] + 8] = (86).to_bytes(8, "big")
    (partition / log_name(86)).write_bytes(data)
    ((_, fault),) = [each for each in lw.verify(partition).faults if "are not above" in each[1].detail]
    assert (fault.rows_lost, fault.lost["last_offset"]) == (4, 96), (
        "a snapshot proves that the log reached offset 96"
    )
    (partition / segment_name(97, ".snapshot")).unlink()
    ((_, fault),) = [each for each in lw.verify(partition).faults if "are not above" in each[1].detail]
    assert fault.rows_lost == 4
    assert set(fault.lost) == {"topic", "partition"}


def test_lost_offsets_are_unknown_if_the_first_batch_has_a_wrong_offset(partition: Path) -> None:
    """Reading begins with it, and its neighbours do not leave as many free offsets as it has."""
    all_ = frame_rows(partition, 86)
    data = bytearray((partition / log_name(86)).read_bytes())
    for offset_range in all_[1:3]:
        data[offset_range["position"] : offset_range["position"] + 8] = (86).to_bytes(8, "big")
    (partition / log_name(86)).write_bytes(data)
    left = [fault for _, fault in lw.verify(partition).faults if "are not above" in fault.detail]
    assert len(left) == 2
    assert not any("first_offset" in fault.lost for fault in left)


def test_offsets_freed_by_a_misplaced_batch_are_searched_in_sound_bytes_only(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.fromfile(partition / log_name(86), np.uint8)
    frame = frame_rows(partition, 86)[0]
    start, stop = frame["position"], frame["position"] + frame["size"]
    assert list(_complete_batches(data[start:stop])) == [(86, frame["last_offset"])]
    assert list(_complete_batches(data[start : stop + 1])) == []
    assert list(_complete_batches(data[start : start + 10])) == []
    monkeypatch.setattr("logwright.codec.kafka.check.partition._HOLES", 0)
    assert any(fault.lost for _, fault in lw.verify(CASES["dmg_batch_swapped"].partition).faults)


# Last segments


def without_last(partition: Path, *suffixes: str) -> lw.Report:
    """Remove the last log and the snapshot at its end, and the other files with these suffixes."""
    for name in (
        log_name(86),
        segment_name(97, ".snapshot"),
        *(segment_name(86, suffixe) for suffixe in suffixes),
    ):
        (partition / name).unlink()
    return lw.verify(partition)


def test_segment_being_deleted_is_not_lost(partition: Path) -> None:
    (partition / log_name(86)).rename(partition / f"{log_name(86)}.deleted")
    (partition / segment_name(97, ".snapshot")).unlink()
    report = lw.verify(partition)
    assert report.ok
    assert not any(fault.lost for _, fault in report.faults)


def test_last_segment_missing_after_a_damaged_one(partition: Path) -> None:
    log = partition / log_name(58)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert [
        fault.lost["first_offset"] for name, fault in without_last(partition).faults if name == log_name(86)
    ] == [86]


@pytest.mark.parametrize(("gone", "upto"), [((".timeindex",), 92), ((".index",), 96), ((), 96)])
def test_indexes_prove_that_the_last_segment_is_missing(
    partition: Path, gone: tuple[str, ...], upto: int
) -> None:
    ((name, fault),) = [
        found_fault
        for found_fault in without_last(partition, *gone).faults
        if found_fault[1].severity is ERROR
    ]
    assert (name, fault.lost["first_offset"], fault.lost["last_offset"]) == (log_name(86), 86, upto)
    assert f"offsets from 86 to {upto} are lost" in fault.detail


def test_empty_index_does_not_show_the_size_of_its_log(partition: Path) -> None:
    (partition / segment_name(86, ".index")).write_bytes(bytes(64))
    report = without_last(partition, ".timeindex")
    assert report.ok
    assert not any(fault.lost for _, fault in report.faults)
    (details,) = [fault.detail for name, fault in report.faults if name == log_name(86)]
    assert "whether the log had records is unknown" in details


def test_repair_without_a_segment_is_incomplete_unless_a_replica_has_it(
    tmp_path: Path, partition: Path
) -> None:
    other = tmp_path / "other" / partition.name
    shutil.copytree(partition, other)
    (other / log_name(30)).unlink()
    assert lw.repair(other, tmp_path / "out", dry_run=True).incomplete
    assert not lw.repair([other, partition], tmp_path / "out", dry_run=True).incomplete


@pytest.mark.parametrize(
    "kind_of_file",
    ["a dangling link", "a link to itself", "a folder", "a pipe", "a device or a socket"],
)
def test_log_that_is_not_a_file_is_named(
    partition: Path, kind_of_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = partition / log_name(30)
    log.unlink()
    match kind_of_file:
        case "a dangling link":
            log.symlink_to("nowhere")
        case "a link to itself":
            log.symlink_to(log.name)
        case "a folder":
            log.mkdir()
            (partition / "not.ours").mkdir()
        case "a pipe":
            os.mkfifo(log)
        case _:
            monkeypatch.chdir(partition)
            with socket.socket(socket.AF_UNIX) as unix_socket:
                unix_socket.bind(log.name)
    details = [fault.detail for name, fault in lw.verify(partition).faults if name == log_name(30)]
    assert f"it is {kind_of_file}, not a file, and is not read" in details
    with pytest.raises(lw.DamageError, match="offsets 30 to 57 are lost"):
        lw.read(partition, columns="offset")
    scan = lw.scan(partition, columns="offset", mode="DROPMALFORMED")
    scan.to_table()
    assert [note for note in scan.report.notes if kind_of_file in note] == [
        f"{log}: it is {kind_of_file}, not a file, and is not read"
    ]
    assert len(lw.inspect(partition)["notes"]) == 1


# Damage causes no further faults


@pytest.mark.parametrize("name", ["v2_txn_interleaved", "v2_txn_commit_abort", "v2_rolled", "v2_epochs"])
@pytest.mark.parametrize("seed", range(6))
def test_one_damaged_batch_is_one_fault(tmp_path: Path, name: str, seed: int) -> None:
    place = tmp_path / CASES[name].partition.name
    shutil.copytree(CASES[name].partition, place)
    rng = np.random.default_rng(seed)
    path = rng.choice([path for path in sorted(place.glob("*.log")) if path.stat().st_size])
    data = bytearray(path.read_bytes())
    rows = lw.read(path, view="frames").to_pylist()
    row = rows[int(rng.integers(len(rows)))]
    data[row["position"] + int(rng.integers(57, row["size"]))] ^= 4
    path.write_bytes(bytes(data))
    ((file, fault),) = severe_faults(lw.verify(place, clean=True))
    assert (file, fault.offset, fault.length) == (path.name, row["position"], row["size"])


@pytest.mark.parametrize("name", ["v2_txn_interleaved", "v2_txn_commit_abort"])
def test_deleted_records_cause_no_faults(tmp_path: Path, name: str) -> None:
    place = tmp_path / CASES[name].partition.name
    shutil.copytree(CASES[name].partition, place)
    segments = sorted(place.glob("*.log"))
    assert len(segments) > 2
    for file in place.glob(f"{segments[0].stem}.*"):
        file.unlink()
    (place / "leader-epoch-checkpoint").unlink()
    assert severe_faults(lw.verify(place, clean=True)) == []
    for file in place.glob("*.snapshot"):
        file.unlink()
    assert severe_faults(lw.verify(place, clean=True)) == []


# Others


def test_epochs_increase_if_no_file_lists_them(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").unlink()
    assert severe_faults(lw.verify(partition)) == []
    shutil.copy(CASES["dmg_epochs_backwards"].partition / log_name(86), partition / log_name(86))
    faults = [
        (name, fault.detail) for name, fault in severe_faults(lw.verify(partition)) if "epoch" in fault.detail
    ]
    assert faults[0] == (log_name(86), "leader epoch 1 after 3")


def test_unreadable_file_is_reported_once(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalDirectory.open

    def broken(self: LocalDirectory, name: str) -> Any:
        if name.endswith((".index", ".snapshot")):
            raise StorageError("no")
        return real(self, name)

    monkeypatch.setattr(LocalDirectory, "open", broken)
    faults = severe_faults(lw.verify(partition))
    assert {fault.detail for _, fault in faults} == {"cannot be read: no"}
    assert len({name for name, _ in faults}) == len(faults)


def test_running_broker_is_ahead_of_the_read_bytes(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "_live", lambda path, layout: True)
    log = partition / log_name(86)
    log.write_bytes(log.read_bytes()[:300])
    report = lw.verify(partition, clean=False)
    assert severe_faults(report) == [], report.text()
    assert report.live is True


def test_snapshot_of_another_partition_is_found(partition: Path) -> None:
    snapshot = partition / segment_name(97, ".snapshot")
    snapshot.write_bytes((partition / segment_name(58, ".snapshot")).read_bytes())
    ((name, fault),) = severe_faults(lw.verify(partition))
    assert name == snapshot.name
    assert ", but the log has " in fault.detail


def test_gaps_are_reported_once() -> None:
    compacted = lw.verify(CASES["v2_compacted"].partition)
    gaps = [fault for name, fault in compacted.faults if not name]
    assert [fault.severity for fault in gaps] == [INFO]
    assert "gaps in all: compacted away, or lost" in gaps[0].detail


@pytest.mark.parametrize("depth", ["structure", "checksums"])
def test_lower_level_checks_headers_only(depth: str) -> None:
    assert not lw.verify(CASES["dmg_index_pos_shift"].partition, depth=depth, clean=True).ok
    assert lw.verify(CASES["dmg_base"].partition, depth=depth, clean=True).ok


@pytest.mark.extended
@pytest.mark.parametrize(("jobs", "small"), [(1, 0), (2, 64 << 20), (2, 0)])
def test_log_directory_with_verdicts_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int, small: int
) -> None:
    """Its checkpoints are files beside the partitions; a partition without a verdict hides none of the others."""
    monkeypatch.setattr(verify, "_SMALL", small)
    here = shutil.copytree(CASES["logdir_43"].data, tmp_path / "logs")
    report = lw.verify(here, as_system=True, jobs=jobs)
    assert {part.codec for part in report.parts if part.system is None} == {
        "kafka.offset_checkpoint",
        "kafka.meta_properties",
        "kafka.log",
    }
    assert report.safe, report.text()
    assert "kafka 4.3: opens all and loses nothing" in report.text()
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=300, seed=7)
    lw.damage(tmp_path / "orders-0", tmp_path / "made", op=["set:frame=1,field=attributes,value=5,reseal"])
    unknown = shutil.copytree(tmp_path / "made" / "orders-0", here / "unknown-0")
    report = lw.verify(here, as_system=True, jobs=jobs)
    assert [part.path for part in report.parts if part.unchecked] == [str(unknown)]
    assert (report.safe, report.unchecked) == (False, True)


@pytest.mark.parametrize("snapshots", [True, False])
def test_partition_without_any_log_is_not_sound(partition: Path, snapshots: bool) -> None:
    for log in [*partition.glob("*.log"), *([] if snapshots else partition.glob("*.snapshot"))]:
        log.unlink()
    report = lw.verify(partition)
    (name, fault) = next(loss for loss in report.faults if loss[1].severity is ERROR)
    assert name == log_name(0)
    assert (fault.lost["first_offset"], fault.lost["last_offset"]) == (0, 96)
    assert not report.ok
    assert "DAMAGED" in report.text()
    assert not lw.verify(partition, as_system=True).safe
    for derived in (*partition.glob("*.index"), *partition.glob("*.timeindex")):
        derived.unlink()
    # Without a snapshot it may have just been created.
    assert lw.verify(partition).ok is not snapshots
