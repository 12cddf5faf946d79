"""Appends to a partition: refused ones, and the state that an append continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_golden import copy_case

import logwright as lw
from logwright.codec.kafka.names import (
    segment_name,
)

# Refused appends


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("dmg_trunc_body", "damaged at byte"),
        ("dmg_trunc_hdr_5", "damaged at byte"),
        ("dmg_zero_tail_12", "ends in preallocated zeros"),
        ("dmg_garbage_tail_10", "too few for a batch"),
        ("dmg_flip_payload", "damaged at byte"),
        ("dmg_txn_marker_type", "control record"),
        ("killed_prealloc", "ends in preallocated zeros"),
        ("dmg_seg_alpha", r"foo\.log"),
        ("dmg_seg_unpadded", r"5\.log"),
        ("dmg_left_swap", "left by an interrupted operation"),
        ("dmg_left_cleaned", "left by an interrupted operation"),
        ("dmg_left_split", "left by an interrupted operation"),
        ("dmg_epoch_garbage", "leader-epoch-checkpoint cannot be parsed"),
        ("dmg_epoch_count", "leader-epoch-checkpoint cannot be parsed"),
        ("dmg_pm_empty", "partition.metadata cannot be parsed"),
        ("dmg_pm_zero_id", "partition.metadata cannot be parsed"),
    ],
)
def test_append_to_damaged_files_is_refused(case: str, message: str, tmp_path: Path) -> None:
    place = copy_case(case, tmp_path)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(lw.UsageError, match=message):
        lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_append_to_a_log_that_a_broker_would_delete_is_refused(tmp_path: Path) -> None:
    place = copy_case("dmg_base", tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ndmg_base 0 98\n")
    with pytest.raises(lw.UsageError, match="the log ends at 97, below its start offset"):
        lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")


def test_batches_are_appended_to_messages_of_magic_0(tmp_path: Path) -> None:
    place = copy_case("v0_none", tmp_path)
    before = lw.read(place)["offset"].to_pylist()
    report = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    assert report.ids["first_offset"] == before[-1] + 1
    assert lw.read(place)["offset"].to_pylist() == [*before, before[-1] + 1]
    assert lw.verify(place).ok


# State that an append continues


def test_partition_without_segments_continues_at_its_log_start(tmp_path: Path) -> None:
    place = copy_case("craft_no_files", tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ncraft_no_files 0 57\n")
    report = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    assert report.ids == {"first_offset": 57, "last_offset": 57}
    assert (place / segment_name(57, ".log")).exists()


def append(place: Path) -> set[str]:
    """Append a row. Return the names of files that changed, or that appeared beside the new segment."""
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    first = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append").ids["first_offset"]
    after = {path.name: path.read_bytes() for path in place.iterdir()}
    assert set(before) <= set(after)
    new = {segment_name(first, suffix) for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    return (
        {name for name in after if after[name] != before.get(name)}
        - new
        - {segment_name(first + 1, ".snapshot")}
    )


@pytest.mark.parametrize(
    "case", ["dmg_base", "v2_rolled", "v2_txn_interleaved", "v2_by_28", "v2_index_full", "v2_epochs"]
)
def test_sound_indexes_of_the_last_segment_are_kept(case: str, tmp_path: Path) -> None:
    assert {name for name in append(copy_case(case, tmp_path)) if "index" in name} == set()


ZEROS = 10 << 10


@pytest.mark.parametrize(
    "kind", ["stale", "padded", "odd", "garbage", "unsorted", "no times", "times padded", "times odd"]
)
def test_wrong_indexes_are_rebuilt(kind: str, tmp_path: Path) -> None:
    """From now on the broker trusts them: on start it checks only those of its last segment."""
    place = copy_case("v2_rolled_4096", tmp_path)
    base = max(int(path.name[:20]) for path in place.glob("*.log"))
    # A segment long enough for entries, and its correct indexes.
    rows = [{"value": b"v" * 500, "timestamp": 1_700_000_000_000 + i} for i in range(60)]
    base = lw.write(rows, place, "kafka.partition", mode="append", batch_size=1000).ids["first_offset"]
    index, times = place / segment_name(base, ".index"), place / segment_name(base, ".timeindex")
    good = index.read_bytes(), times.read_bytes()
    assert len(good[0]) > 24
    if kind == "stale":
        index.write_bytes(good[0] + (99).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big"))
    elif kind == "padded":
        index.write_bytes(good[0] + bytes(ZEROS))
    elif kind == "odd":
        index.write_bytes(good[0][:-3])
    elif kind == "garbage":
        index.write_bytes(good[0][:12] + b"\x00\x00\x10\x01" + good[0][16:])
    elif kind == "unsorted":
        index.write_bytes(good[0][8:16] + good[0][:8] + good[0][16:])
    elif kind == "no times":
        times.unlink()
    elif kind == "times padded":
        times.write_bytes(good[1] + bytes(ZEROS * 12))
    else:
        times.write_bytes(good[1][:-1])
    assert append(place) >= (
        {index.name} if kind not in ("no times", "times padded", "times odd") else {times.name}
    )
    assert (index.read_bytes(), times.read_bytes()) == good


def test_missing_epochs_are_added(tmp_path: Path) -> None:
    place = copy_case("dmg_base", tmp_path)
    path = place / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.unlink()
    assert append(place) == {path.name}
    assert path.read_bytes() == before


def test_unchanged_epochs_are_not_rewritten(tmp_path: Path) -> None:
    assert append(copy_case("dmg_base", tmp_path)) == set()


def test_append_continues_the_producers_of_the_snapshot(tmp_path: Path) -> None:
    place = copy_case("dmg_tbase", tmp_path)
    last = max(place.glob("*.snapshot"), key=lambda path: path.name)
    before = last.read_bytes()
    report = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    assert (place / segment_name(report.ids["last_offset"] + 1, ".snapshot")).read_bytes() == before
    for path in place.glob("*.snapshot"):
        if int(path.name[:20]) < report.ids["first_offset"]:
            path.unlink()
    rebuilt = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    assert (place / segment_name(rebuilt.ids["last_offset"] + 1, ".snapshot")).read_bytes() == before
