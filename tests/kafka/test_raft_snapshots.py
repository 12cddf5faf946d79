"""Snapshots of the cluster's metadata and the vote of a KRaft node: what verify finds, and what a repair keeps.

`tests/oracle/test_start_oracle.py` asks a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES
from kafka_log import batch
from kafka_repairs import OPTIONS, predict_start, repair
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.capability import CheckSettings
from logwright.codec.kafka.formats.quorum_state import QUORUM_STATE_FILE
from logwright.codec.kafka.store.raft_snapshots import read_snapshots
from logwright.codec.option import Options

LAYOUT = registry.get_layout("kafka.partition")
LOG = "00000000000000000000.log"


def snapshot(offset: int, epoch: int) -> str:
    return f"{offset:020d}-{epoch:010d}.checkpoint"


OTHERS = (snapshot(0, 0), snapshot(54, 1), snapshot(75, 1))
BEFORE, NEWEST = snapshot(104, 1), snapshot(128, 2)
HEADER = 166
"""The size of the first batch of a snapshot."""
FOOTER = 75
"""The size of the last batch."""

Files = dict[str, bytes]


def golden() -> MemoryDirectory:
    case = CASES["cluster_metadata_43"].path / "data"
    return MemoryDirectory.of(case / "__cluster_metadata-0", MemoryDirectory.of(case))


def edited(change: Callable[[bytes], bytes]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        files[NEWEST] = change(files[NEWEST])

    return edit


def copied(name: str) -> Callable[[Files], None]:
    def copy(files: Files) -> None:
        files[NEWEST] = files[name]

    return copy


def same_epoch(files: Files) -> None:
    files[BEFORE] = files[snapshot(32, 1)]
    del files[NEWEST]


DAMAGE: dict[str, tuple[Callable[[Files], None], str]] = {
    "empty": (edited(lambda data: b""), "it has no complete batch"),
    "zeros": (edited(lambda data: bytes(len(data))), "Record size 0 is less than"),
    "two bits": (
        edited(lambda data: data[:400] + bytes([data[400] ^ 129]) + data[401:]),
        "Record is corrupt (stored crc",
    ),
    "cut in the header": (edited(lambda data: data[: HEADER - 1]), "it has no complete batch"),
    "cut in a batch": (edited(lambda data: data[:1400]), f"it ends within the batch at byte {HEADER}"),
    "without a footer": (edited(lambda data: data[:-FOOTER]), "it has no footer"),
    "without a header": (edited(lambda data: data[HEADER:]), "First batch is not a control batch"),
    "the log": (copied(LOG), "First control record is not a snapshot header (LEADER_CHANGE)"),
    "of another epoch": (copied(BEFORE), "its batches have epoch 1, its name 2"),
    "records": (edited(lambda data: batch(0)), "First batch is not a control batch"),
}


def test_repair_keeps_the_vote_and_the_snapshots_of_the_metadata() -> None:
    directory = golden()
    for strategy in ("salvage", "prefix"):
        repaired, plan = repair(directory, strategy=strategy, **OPTIONS)
        for name in (QUORUM_STATE_FILE, *OTHERS, BEFORE, NEWEST):
            assert repaired.files[name] == directory.files[name]
        assert not any("checkpoint" in note for note in plan.notes)


@pytest.mark.parametrize("kind", DAMAGE)
def test_invalid_snapshots_of_the_metadata_are_removed(kind: str) -> None:
    directory = golden()
    change, flaw = DAMAGE[kind]
    change(directory.files)
    repaired, plan = repair(directory, **OPTIONS)
    assert NEWEST not in repaired.files
    assert {*OTHERS, BEFORE} <= set(repaired.files)
    assert any(note.startswith(f"{NEWEST} is removed") and flaw in note for note in plan.notes)
    assert not plan.before_you_start
    assert predict_start(repaired).verdict.opens


def checked(directory: MemoryDirectory) -> dict[str, tuple[str, str]]:
    """Return severity and details of the faults of snapshots that a check finds, without those of the files themselves."""
    options = Options(LAYOUT.read_options)
    plan = LAYOUT.plan(directory, options)
    check = LAYOUT.capabilities.check(directory, plan, options, CheckSettings(live=None, deep=False))
    _feed(directory, plan, check)
    return {
        name: (str(fault.severity), fault.detail)
        for name, fault in check.finish()
        if name.endswith(".checkpoint")
    }


def _feed(directory: MemoryDirectory, plan: Any, check: Any) -> None:
    from logwright.codec.frames.walk import frames_of
    from logwright.codec.kafka.formats.log.codec import CODEC
    from logwright.codec.store.listing import Role

    for file, windows in frames_of(
        directory, [file for file in plan.files if file.role is Role.PRIMARY], CODEC
    ):
        check.begin(file)
        for window, frames in windows:
            check.add(window, frames)


@pytest.mark.parametrize(
    "kind", ["empty", "without a footer", "without a header", "the log", "of another epoch"]
)
def test_invalid_newest_snapshot_is_an_error(kind: str) -> None:
    directory = golden()
    change, flaw = DAMAGE[kind]
    change(directory.files)
    ((name, (severity, detail)),) = checked(directory).items()
    assert (name, severity) == (NEWEST, "error")
    assert flaw in detail


def test_start_with_a_snapshot_that_lost_records_is_uncertain() -> None:
    """A broker stops if a record of its log refers to one that is lost."""
    directory = golden()
    assert not predict_start(directory).verdict.warnings
    DAMAGE["cut in a batch"][0](directory.files)
    verdict = predict_start(directory).verdict
    assert verdict.opens
    assert any(f"{NEWEST}: it ends within the batch" in warning for warning in verdict.warnings)


def test_snapshot_of_another_offset_is_found_by_the_time_of_its_last_batch() -> None:
    directory = golden()
    assert not checked(directory)
    same_epoch(directory.files)
    ((name, (severity, detail)),) = checked(directory).items()
    assert (name, severity) == (BEFORE, "error")
    assert "it is the snapshot of another offset" in detail
    repaired, _ = repair(directory, **OPTIONS)
    assert BEFORE not in repaired.files
    assert set(OTHERS) <= set(repaired.files)


def test_invalid_older_snapshot_is_a_warning() -> None:
    directory = golden()
    directory.files[BEFORE] = b""
    assert checked(directory)[BEFORE][0] == "warning"
    assert predict_start(directory).verdict.opens


def test_snapshot_whose_name_the_broker_cannot_parse_is_removed() -> None:
    directory = golden()
    directory.files |= {"x.checkpoint": b"", f"{NEWEST}.part": b"x"}
    assert not predict_start(directory).verdict.opens
    assert checked(directory)["x.checkpoint"][0] == "error"
    repaired, _ = repair(directory, **OPTIONS)
    assert not {"x.checkpoint", f"{NEWEST}.part"} & set(repaired.files)
    assert predict_start(repaired).verdict.opens


def test_damaged_vote_is_removed() -> None:
    directory = golden()
    directory.files[QUORUM_STATE_FILE] = b"{"
    assert not predict_start(directory).verdict.opens
    repaired, plan = repair(directory, **OPTIONS)
    assert QUORUM_STATE_FILE not in repaired.files
    assert any(note.startswith(f"{QUORUM_STATE_FILE} is damaged and is removed") for note in plan.notes)
    assert predict_start(repaired).verdict.opens


def test_log_that_begins_after_its_valid_snapshots_needs_one_of_another_controller() -> None:
    directory = golden()
    for suffix in (".log", ".index", ".timeindex"):
        name = LOG.replace(".log", suffix)
        directory.files[name.replace("0" * 20, f"{120:020d}")] = directory.files.pop(name)
    directory.files[f"{120:020d}.log"] = batch(120) + batch(121)
    _, plan = repair(directory, **OPTIONS)
    assert not any("no valid snapshot" in step for step in plan.before_you_start)
    del directory.files[NEWEST]
    _, plan = repair(directory, **OPTIONS)
    assert any("no valid snapshot" in step for step in plan.before_you_start)


def test_snapshots_are_read_without_their_log() -> None:
    directory = golden()
    snapshots = read_snapshots(directory, {entry.name: entry.size for entry in directory.entries()})
    assert [(item.offset, item.epoch) for item in snapshots] == [
        (0, 0),
        (32, 1),
        (54, 1),
        (75, 1),
        (104, 1),
        (128, 2),
    ]
    assert not any(item.flaw for item in snapshots)


@pytest.mark.parametrize("kind", ["torn", "flipped", "zeros"])
def test_damage_of_a_snapshot_is_not_truncated_by_a_node(kind: str, tmp_path: Path) -> None:
    """It reads the file to its end when it starts."""
    data = golden().files[NEWEST]
    torn, flipped = data[:-5], data[:400] + bytes([data[400] ^ 129]) + data[401:]
    path = tmp_path / NEWEST
    path.write_bytes({"torn": torn, "flipped": flipped, "zeros": data + bytes(40)}[kind])
    (fault,) = (fault for _, fault in lw.verify(path).faults)
    ends = "takes it to end here" if kind == "torn" else "fails here, and does not start"
    assert fault.system == f"a node that loads the snapshot {ends}"
