"""Derived files rebuilt from the logs equal those of a recovering broker byte for byte, and nothing else changes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from kafka_golden import CASES, of_class
from kafka_log import batch, record
from kafka_repairs import ID, LAYOUT, OPTIONS, options, partition_directory, read_partition, rebuild

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.producer_snapshot import unpack
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, segment_name
from logwright.codec.kafka.repair import survey
from logwright.codec.kafka.repair.rebuild import REBUILDS
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.corpora.cases import Case

BY_NAME: Any = {"ids": lambda case: getattr(case, "name", None)}
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
NOW = 1_795_300_000_000
"""Times at which the brokers ran, in milliseconds."""


DAY = 86_400_000


@pytest.mark.parametrize(("interval", "later"), [(4096, 0), (200, 3 * DAY), (200, 3650 * DAY)])
@pytest.mark.parametrize("case", of_class("healthy"), **BY_NAME)
def test_rebuilt_files_equal_those_of_a_broker_at_any_later_time(
    case: Case, interval: int, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any later time: idle producers expire by the times that the broker wrote into the log."""
    monkeypatch.setattr(survey.time, "time_ns", lambda: (NOW + later) * 1_000_000)
    was = read_partition(case.partition)
    rebuilt, repair_plan = rebuild(was, **{"index.interval.bytes": interval})
    assert not repair_plan.cut
    left, folder = case.runs[f"rebuild_{interval}"]["files_after"], case.path / f"after-rebuild-{interval}"
    for name in sorted({file for file in [*left, *rebuilt.files] if file.endswith(DERIVED)}):
        # Empty files are not stored.
        assert hashlib.sha256(rebuilt.files[name]).hexdigest() == left[name]["sha256"], name
    version, count, *lines = (folder / EPOCH_FILE).read_text().splitlines()
    # The broker wrote the last line when it became leader.
    assert rebuilt.files[EPOCH_FILE].decode().splitlines() == [version, str(int(count) - 1), *lines[:-1]]
    for name, data in was.files.items():
        if not name.endswith(DERIVED) and name != EPOCH_FILE:
            assert rebuilt.files[name] == data, name


def test_snapshot_after_an_empty_segment_has_the_producer_of_the_broker() -> None:
    """A segment emptied by compaction is in between. The broker loads the snapshot before it and expires producers that were idle by
    then, but not the one whose transaction it had just ended."""
    case = CASES["v2_compacted_producers"]
    was = read_partition(case.partition)
    assert was.files[segment_name(37, ".log")] == b""
    rebuilt, _ = rebuild(was)
    for base, producers in ((37, [13, 14]), (42, [14]), (76, [14])):
        assert (
            sorted(unpack(rebuilt.files[segment_name(base, ".snapshot")])["producer_id"].tolist())
            == producers
        )
        theirs = case.path / "after-rebuild-4096" / segment_name(base, ".snapshot")
        assert rebuilt.files[segment_name(base, ".snapshot")] == theirs.read_bytes()


def test_without_times_of_the_broker_the_clock_decides_who_was_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log = batch(0, [record()], base_timestamp=NOW, max_timestamp=NOW, **fields)
    rest = batch(5, [record()], base_timestamp=NOW, max_timestamp=NOW)
    files = {segment_name(0, ".log"): log, segment_name(3, ".log"): b"", segment_name(5, ".log"): rest}
    for later, known in ((DAY - 1, [7]), (DAY, [])):
        monkeypatch.setattr(survey.time, "time_ns", lambda later=later: (NOW + later) * 1_000_000)
        rebuilt, _ = rebuild(partition_directory({**files, METADATA_FILE: metadata.pack(ID)}))
        assert unpack(rebuilt.files[segment_name(5, ".snapshot")])["producer_id"].tolist() == known


@pytest.mark.alike
@pytest.mark.parametrize("case", of_class("damaged", "refused"), **BY_NAME)
def test_damaged_log_is_refused(case: Case) -> None:
    """All other damaged files are rebuilt."""
    rebuilt, refused = read_partition(case.partition), None
    try:
        rebuilt, _ = rebuild(rebuilt, **OPTIONS)
    except DamageError as error:
        refused = error
    if refused is not None:
        assert refused.path is not None
        assert refused.path.endswith(".log")
        assert refused.offset is not None
        assert "logwright repair" in str(refused)
        return
    rebuilt_again, _ = rebuild(rebuilt, **OPTIONS)
    assert rebuilt_again.files == rebuilt.files


def log(*parts: bytes, base: int = 0) -> dict[str, bytes]:
    return {segment_name(base, ".log"): b"".join(parts), METADATA_FILE: metadata.pack(ID)}


SOUND = batch(0, [record(0), record(1)])


def test_only_requested_kinds_are_rebuilt() -> None:
    was = read_partition(CASES["v2_txn_interleaved"].partition)
    spoilt = partition_directory(
        {
            name: b"x" if name.endswith(DERIVED) or name == EPOCH_FILE else data
            for name, data in was.files.items()
        }
    )
    for selected in REBUILDS:
        rebuilt, repair_plan = rebuild(spoilt, selected, **OPTIONS)
        kind = selected if selected == EPOCH_FILE else f".{selected}"
        for name, data in rebuilt.files.items():
            assert (data == spoilt.files[name]) is not name.endswith(kind), name
        assert repair_plan.summary().rows == 56
    rebuilt, _ = rebuild(spoilt, *REBUILDS, **OPTIONS)
    assert b"x" not in rebuilt.files.values()


def test_stray_snapshots_are_removed() -> None:
    was = partition_directory({**log(SOUND), segment_name(77, ".snapshot"): b"junk", "README": b"hello"})
    rebuilt, repair_plan = rebuild(was, **OPTIONS)
    assert list(repair_plan.removes) == [segment_name(77, ".snapshot")]
    assert rebuilt.files["README"] == b"hello"
    assert segment_name(2, ".snapshot") in rebuilt.files
    kept, repair_plan = rebuild(was, "index", **OPTIONS)
    assert not repair_plan.removes
    assert kept.files[segment_name(77, ".snapshot")] == b"junk"


def test_rebuild_keeps_and_reports_a_torn_last_batch() -> None:
    """A torn last batch is reported, not removed."""
    was = partition_directory(log(SOUND, b"torn"))
    rebuilt, repair_plan = rebuild(was, **OPTIONS)
    assert rebuilt.files[segment_name(0, ".log")] == SOUND + b"torn"
    assert any(
        "ends in 4 bytes that are not a batch" in warning for warning in repair_plan.summary().warnings
    )


def test_unknown_settings_are_reported() -> None:
    _, repair_plan = rebuild(partition_directory(log(batch(7), base=7)), **OPTIONS)
    assert any(
        "Records before offset 7 are not in the log" in warning for warning in repair_plan.summary().warnings
    )
    _, repair_plan = rebuild(partition_directory(log(batch(7), base=7)), "index", **OPTIONS)
    assert not repair_plan.summary().warnings
    _, repair_plan = rebuild(partition_directory(log(SOUND)), **OPTIONS)
    assert not repair_plan.summary().warnings


def test_rebuild_refuses_directories_without_a_consistent_log() -> None:
    with pytest.raises(UsageError, match="no log"):
        rebuild(partition_directory({METADATA_FILE: metadata.pack(ID)}))
    with pytest.raises(UsageError, match="interrupted operation"):
        rebuild(partition_directory({segment_name(0, ".log") + ".swap": SOUND}))
    begun = batch(0, attributes=0x10, producer_id=5)
    with pytest.raises(DamageError, match="outside of the transaction"):
        rebuild(partition_directory(log(begun, batch(1, producer_id=5))))


def test_outputs_copy_complete_files() -> None:
    was = partition_directory(log(SOUND))
    repair_plan = LAYOUT.capabilities.repair.rebuild(
        was, LAYOUT.plan(was, Options(LAYOUT.read_options)), REBUILDS, options(**OPTIONS)
    )
    outputs = {file.name: file for file in repair_plan.files()}
    name = segment_name(0, ".log")
    assert outputs[name].pieces == [Copy(name, 0, len(SOUND))]
    assert outputs[name].like == name
    assert outputs[segment_name(0, ".index")].like is None


INTERVALS = {
    "killed_plain": 300, "v2_rolled": 300, "v2_index_full": 0, "v2_many_single": None, "v2_rolled_4096": None,
    "v2_txn_interleaved": 300, "v2_none_java": None,
}  # fmt: skip


@pytest.mark.parametrize("name", INTERVALS)
def test_index_interval_is_inferred_from_the_indexes(name: str) -> None:
    case = CASES[name]
    warnings = [
        warning
        for warning in rebuild(read_partition(case.partition))[1].summary().warnings
        if "index.interval.bytes=" in warning
    ]
    expected = INTERVALS[name]
    assert bool(warnings) is (expected is not None)
    if warnings:
        assert f"index.interval.bytes={expected}," in warnings[0]
        assert case.about["config"]["index.interval.bytes"] == str(expected)
    assert not rebuild(read_partition(case.partition), "snapshot")[1].summary().warnings
    assert not rebuild(read_partition(case.partition), **{"index.interval.bytes": 77})[1].summary().warnings


def test_index_that_allows_no_inference() -> None:
    """From another writer, damaged, or without entries."""
    parts = [batch(i) for i in range(40)]
    was, _ = rebuild(partition_directory(log(*parts)), **{"index.interval.bytes": 500})
    name = segment_name(0, ".index")
    warnings = [
        warning for warning in rebuild(was)[1].summary().warnings if "index.interval.bytes=" in warning
    ]
    assert len(warnings) == 1
    for content in (
        b"",
        was.files[name][8:16],
        was.files[name][:16] + was.files[name][:8],
        b"\1" * 24,
        b"\0" * 24,
    ):
        rebuilt, repair_plan = rebuild(partition_directory({**was.files, name: content}))
        assert not repair_plan.summary().warnings, content
        assert rebuilt.files[name] == b""
