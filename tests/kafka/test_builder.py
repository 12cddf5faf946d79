"""Rows become the partition that a broker would have written: rolling of segments, derived files, refused input.

The derived files are compared with those of `PartitionDeriver`, which the golden tests compare with the broker.

"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_golden import CASES
from kafka_log import derived_files
from pieces import take

import logwright as lw
from logwright.codec import registry
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.option import Options
from logwright.codec.store.build import Summary
from logwright.codec.window import Window

LAYOUT = registry.get_layout("kafka.partition")
TOPIC_ID = "q83vASNFZ4mrze8BI0VniQ"
OTHER_ID = "EjRWeJCrze8SNFZ4kKvN7w"
T = 1_700_000_000_000
DAY = 86_400_000

Files = dict[str, bytes]


def rows(
    count: int, *, size: int = 20, step: int = 1, start: int = T, offsets: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return rows with values of `size` bytes, `step` milliseconds apart."""
    columns: dict[str, Any] = {
        "key": pa.array([b"%d" % i for i in range(count)]),
        "value": pa.array([b"%d" % (i % 10) * size for i in range(count)], pa.binary()),
        "timestamp": pa.array([start + i * step for i in range(count)], pa.timestamp("ms", "UTC")),
    }
    if offsets is not None:
        columns["offset"] = pa.array(offsets, pa.int64())
    return pa.record_batch(columns)


def build(*batches: pa.RecordBatch, **options: Any) -> tuple[Files, Summary]:
    """Return the files of a new partition."""
    builder = LAYOUT.builder(None, "orders-0", Options(LAYOUT.options, {"topic.id": TOPIC_ID, **options}))
    pieces = [piece for batch in batches for piece in builder.add(batch)]
    return take([*pieces, *builder.finish()]), builder.summary()


def logs(files: Files) -> dict[int, bytes]:
    return {int(name[:20]): data for name, data in sorted(files.items()) if name.endswith(".log")}


def batches_of(data: bytes) -> Any:
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = log.CODEC.scan(window, 0, log.CODEC.context("x.log", Options(log.CODEC.options)))
    assert frames.damage is None
    assert not frames.faults
    return window, frames


# Files


def test_partition_has_a_segment_indexes_snapshot_epochs_and_metadata() -> None:
    files, summary = build(rows(3))
    assert sorted(files) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert files["partition.metadata"] == b"version: 0\ntopic_id: " + TOPIC_ID.encode()
    assert files["leader-epoch-checkpoint"] == b"0\n1\n0 0\n"
    assert files["00000000000000000003.snapshot"].hex() == "000148674bc700000000"
    assert files["00000000000000000000.index"] == b""
    assert files["00000000000000000000.timeindex"] == (T + 2).to_bytes(8, "big") + (2).to_bytes(4, "big")
    assert summary.rows == 3
    assert summary.ids == {"first_offset": 0, "last_offset": 2}


def test_no_rows_make_an_empty_partition() -> None:
    for batches in ([], [rows(0)]):
        files, summary = build(*batches, first_offset=77)
        assert {name: data for name, data in files.items() if data and "." in name and name[0] == "0"} == {}
        assert sorted(files)[:3] == [f"{77:020}{suffix}" for suffix in (".index", ".log", ".timeindex")]
        assert files["leader-epoch-checkpoint"] == b"0\n0\n"
        assert not any(name.endswith(".snapshot") for name in files)
        assert (summary.rows, summary.ids) == (0, {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"segment.bytes": 3000, "batch.size": 300},
        {"segment.bytes": 5000, "batch.size": 100, "index.interval.bytes": 0, "first.offset": 1 << 40},
        {"segment.index.bytes": 96, "index.interval.bytes": 200, "batch.size": 150},
        {"segment.ms": 100, "batch.size": 200},
        {"segment.bytes": 3000, "compression.type": "zstd", "batch.size": 1000, "partition.leader.epoch": 7},
        {"message.timestamp.type": "LogAppendTime", "batch.size": 150, "index.interval.bytes": 500},
    ],
    ids=str,
)
def test_derived_files_equal_a_rebuild(options: dict[str, Any]) -> None:
    files, _ = build(rows(500, size=30), **options)
    expected = derived_files(files, options.get("index.interval.bytes", 4096))
    assert {name: data for name, data in files.items() if name in expected} == expected
    assert set(files) - set(expected) == {f"{base:020}.log" for base in logs(files)} | {"partition.metadata"}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.sampled_from(["none", "gzip"]))
def test_any_chunking_gives_the_same_bytes(counts: list[int], compression: str) -> None:
    options = {
        "segment.bytes": 900,
        "batch.size": 250,
        "index.interval.bytes": 100,
        "compression.type": compression,
    }
    all_rows = rows(sum(counts), size=9)
    ends = np.cumsum(counts).tolist()
    pieces = [all_rows.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]
    assert build(*pieces, **options) == build(all_rows, **options)


# Rolling


def test_segment_is_rolled_before_it_becomes_too_large() -> None:
    files, _ = build(rows(200), **{"segment.bytes": 2000, "batch.size": 300})
    sizes = [len(data) for data in logs(files).values()]
    assert len(sizes) > 3
    assert max(sizes) <= 2000
    first = [int(batches_of(data)[1].end[0]) for data in logs(files).values()]
    for size, incoming in zip(sizes, first[1:], strict=False):
        assert size > 2000 - incoming, "it would have fitted"
    exact, _ = build(rows(200), **{"segment.bytes": sizes[0], "batch.size": 300})
    assert len(next(iter(logs(exact).values()))) == sizes[0]


def test_segment_is_rolled_by_the_age_of_its_first_batch() -> None:
    hours = rows(48, step=3_600_000)
    for hour, expected in ((10, [0, 11, 22, 33, 44]), (24, [0, 25]), (48, [0])):
        files, _ = build(hours, **{"segment.ms": hour * 3_600_000, "batch.size": 0})
        assert list(logs(files)) == expected, "rolled when more than the limit of hours have gone by"
    assert len(logs(build(rows(20, step=DAY), **{"batch.size": 0})[0])) == 3, "after 7 days by default"


def test_rows_without_timestamp_roll_nothing_by_age() -> None:
    none = pa.record_batch({"value": [b"x"] * 9, "timestamp": pa.nulls(9, pa.timestamp("ms"))})
    late = rows(3, start=T + 400 * DAY)
    assert list(logs(build(none, late, **{"segment.ms": 1, "batch.size": 0})[0])) == [0]


def test_segment_is_rolled_when_an_index_is_full() -> None:
    # 8 entries of 8 bytes; of the time index 5 of 12 bytes, one of which is reserved for closing.
    options = {"segment.index.bytes": 64, "index.interval.bytes": 0, "batch.size": 0}
    files, _ = build(rows(50), **options)
    assert list(logs(files))[:3] == [0, 5, 10]
    assert all(len(data) <= 60 for name, data in files.items() if name.endswith(".timeindex"))
    files, _ = build(rows(50, step=0), **options)
    assert list(logs(files))[:3] == [0, 9, 18], "all of one time: the offset index is full first"
    assert {len(files[f"{base:020}.index"]) for base in (0, 9, 18)} == {64}
    assert len(logs(build(rows(5), **{**options, "segment.index.bytes": 12})[0])) == 5


def test_offsets_of_a_segment_fit_its_index() -> None:
    top = (1 << 31) - 1
    files, summary = build(rows(4, offsets=[5, 5 + top, 6 + top, 9 + 2 * top]), **{"batch.size": 0})
    assert list(logs(files)) == [5, 6 + top, 9 + 2 * top]
    assert summary.ids == {"first_offset": 5, "last_offset": 9 + 2 * top}
    expected = derived_files(files)
    assert {name: data for name, data in files.items() if name in expected} == expected


def test_too_large_row_is_refused_but_no_batch() -> None:
    with pytest.raises(lw.UsageError, match=r"offset 1 has .* the limit max\.message\.bytes is 200"):
        build(rows(1), rows(1, size=300), **{"max.message.bytes": 200})
    with pytest.raises(lw.UsageError, match=r"the limit segment\.bytes is 200"):
        build(rows(1, size=300), **{"segment.bytes": 200})
    files, _ = build(rows(100), **{"max.message.bytes": 200, "batch.size": 1 << 20})
    assert max(batches_of(files[f"{0:020}.log"])[1].header["size"]) <= 200
    files, _ = build(rows(100), **{"segment.bytes": 300})
    assert max(map(len, logs(files).values())) <= 300


# Offsets


def test_increasing_offsets_are_kept() -> None:
    files, summary = build(rows(3, offsets=[100, 105, 106]), rows(1, offsets=[1000]))
    assert summary.ids == {"first_offset": 100, "last_offset": 1000}
    assert list(logs(files)) == [100]
    assert f"{1001:020}.snapshot" in files
    head = batches_of(files[f"{100:020}.log"])[1].header
    assert (
        int(head["base_offset"][0]),
        int(head["last_offset"][0]),
        int(head["records_count"][0]),
    ) == (100, 1000, 4)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([[0, 2, 1]], "row 2: offset 1 is not above 2"),
        ([[0, 0]], "row 1: offset 0 is not above 0"),
        ([[0, 5], [5]], "row 2: offset 5 is not above 5"),
        ([[-1]], "row 0: offset -1 is negative"),
        ([[0, None]], "row 1: the offset is null"),
    ],
)
def test_unordered_offsets_are_refused_not_renumbered(chunks: Any, message: str) -> None:
    batches = [rows(len(offsets), offsets=offsets) for offsets in chunks]
    with pytest.raises(lw.UsageError, match=message) as caught:
        build(*batches)
    assert "offsets=assign" in str(caught.value)
    files, summary = build(*batches, offsets="assign", first_offset=7)
    count = sum(map(len, chunks))
    assert summary.ids == {"first_offset": 7, "last_offset": 6 + count}
    assert list(logs(files)) == [7]


def test_contradicting_offsets_are_refused() -> None:
    with pytest.raises(lw.UsageError, match="no column 'offset'"):
        build(rows(1), offsets="keep")
    with pytest.raises(lw.UsageError, match=r"first\.offset"):
        build(rows(1, offsets=[3]), first_offset=3)
    with pytest.raises(lw.UsageError, match="some rows have offsets"):
        build(rows(1, offsets=[3]), rows(1))
    with pytest.raises(lw.UsageError, match="the largest"):
        build(pa.record_batch({"value": [b"x"], "offset": pa.array([1 << 63], pa.uint64())}))
    assert build(rows(0, offsets=[]), rows(1, offsets=[3]))[1].ids == {"first_offset": 3, "last_offset": 3}
    with pytest.raises(lw.UsageError, match="type string"):
        build(pa.record_batch({"value": [b"x"], "offset": ["1"]}))
    assert build(pa.record_batch({"value": [b"x"], "offset": pa.nulls(1)}), **{"batch.size": 0})[1].rows == 1


def test_largest_offset_leaves_room_for_the_log_end(tmp_path: Path) -> None:
    """A broker does not start if the log end offset exceeds int64."""
    rows = pa.table({"value": [b"x"], "offset": [(1 << 63) - 1]})
    with pytest.raises(lw.UsageError, match="the largest"):
        lw.write(rows, tmp_path / "orders-0", "kafka.partition")
    lw.write(
        rows.set_column(1, "offset", pa.array([(1 << 63) - 2])), tmp_path / "orders-0", "kafka.partition"
    )
    assert lw.read(tmp_path / "orders-0")["offset"].to_pylist() == [(1 << 63) - 2]


# Columns


def test_rows_of_several_partitions_are_refused() -> None:
    def of(topic: Any, partition: Any) -> pa.RecordBatch:
        return pa.record_batch(
            {"value": [b"x"] * 2, "topic": topic, "partition": pa.array(partition, pa.int32())}
        )

    assert build(of(["a", "a"], [1, 1]), of([None, "a"], [None, None]))[1].rows == 4
    for batches in (
        [of(["a", "b"], [0, 0])],
        [of(["a", "a"], [0, 1])],
        [of(["a", "a"], [0, 0]), of(["b", "b"], [0, 0])],
    ):
        with pytest.raises(lw.UsageError, match="a directory has one partition"):
            build(*batches)


def test_other_columns_are_ignored() -> None:
    plain, _ = build(rows(3))
    batch = rows(3)
    assert build(batch.append_column("colour", pa.array(["red"] * 3)))[0] == plain


@pytest.mark.parametrize("topic_id", ["", "orders", "A" * 22, TOPIC_ID + "="])
def test_topic_id_must_be_a_uuid(topic_id: str) -> None:
    with pytest.raises(lw.UsageError, match=r"topic\.id"):
        build(rows(1), **{"topic.id": topic_id})


def test_generated_topic_id_is_reported() -> None:
    topic_ids = set()
    for _ in range(20):
        builder = LAYOUT.builder(None, "orders-0", Options(LAYOUT.options))
        files = take([*builder.add(rows(1)), *builder.finish()])
        topic_ids.add(files["partition.metadata"][-22:].decode())
        assert any("partition.metadata" in line for line in builder.summary().before_you_start)
    assert len(topic_ids) == 20
    assert not any(id.startswith("-") for id in topic_ids)


# Notes before the start


def test_only_applicable_notes_are_printed() -> None:
    def note_about(word: str, *batches: pa.RecordBatch, **options: Any) -> bool:
        return any(word in line for line in build(*batches, **options)[1].before_you_start)

    now = pa.record_batch({"value": [b"x"]})
    assert note_about("retention.ms", rows(3))
    assert not note_about("retention.ms", now)
    assert not note_about("retention.ms", rows(3), now), "what counts is the newest row of a segment"
    assert note_about("retention.ms", rows(20), now, **{"segment.bytes": 200})
    assert note_about("leader epoch", now, **{"partition.leader.epoch": 3})
    assert not note_about("leader epoch", now)
    assert note_about(TOPIC_ID, now)


# Appending


def contents(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def append(directory: Path, data: Any, **options: Any) -> Any:
    return lw.write(data, directory, "kafka.partition", mode="append", **options)


def test_append_continues_at_the_log_end_and_changes_nothing_else(copy_partition: Any) -> None:
    path = copy_partition("v2_rolled")
    before, old = contents(path), lw.read(path)
    end = old["offset"][-1].as_py() + 1
    summary = append(path, rows(5))
    assert summary.ids == {"first_offset": end, "last_offset": end + 4}
    after = contents(path)
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == [
        *(f"{end:020}{suffix}" for suffix in (".index", ".log", ".timeindex")),
        f"{end + 5:020}.snapshot",
    ]
    assert lw.read(path).slice(0, len(old)).equals(old)
    assert lw.verify(path).ok


def test_append_continues_producers_and_epochs(copy_partition: Any) -> None:
    path = copy_partition("v2_txn_interleaved")
    end = lw.read(path, view="log")["offset"][-1].as_py() + 1
    append(path, rows(5), **{"segment.bytes": 200, "batch.size": 100})
    files = contents(path)
    expected = derived_files(files)
    snapshots = [name for name in expected if name.endswith(".snapshot") and int(name[:20]) >= end]
    assert len(snapshots) > 2
    assert {name: files[name] for name in snapshots} == {name: expected[name] for name in snapshots}
    assert (
        files["leader-epoch-checkpoint"]
        == contents(CASES[path.name[:-2]].partition)["leader-epoch-checkpoint"]
    )


def test_append_uses_the_latest_leader_epoch_or_a_later_one(copy_partition: Any) -> None:
    path = copy_partition("v2_epochs")
    stored = (path / "leader-epoch-checkpoint").read_text()
    latest = int(stored.split()[-2])
    assert latest > 1
    end = append(path, rows(1)).ids["last_offset"] + 1
    assert (path / "leader-epoch-checkpoint").read_text() == stored
    assert lw.read(path, columns="leader_epoch")["leader_epoch"][-1].as_py() == latest
    with pytest.raises(lw.UsageError, match="below the latest"):
        append(path, rows(1), **{"partition.leader.epoch": 1})
    append(path, rows(1), **{"partition.leader.epoch": latest + 3})
    assert (path / "leader-epoch-checkpoint").read_text().splitlines()[2:] == [
        *stored.splitlines()[2:],
        f"{latest + 3} {end}",
    ]


def test_append_finds_missing_leader_epochs_in_the_logs(copy_partition: Any) -> None:
    path = copy_partition("v2_epochs")
    stored = (path / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    (path / "leader-epoch-checkpoint").unlink()
    end = append(path, rows(1)).ids["first_offset"]
    stored_epochs = (path / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    # An epoch without records is known only from the file.
    assert stored_epochs == [epoch_line for epoch_line in stored if int(epoch_line.split()[1]) < end]


def test_kept_offsets_of_an_append_are_beyond_the_end(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    end = lw.read(path)["offset"][-1].as_py() + 1
    before = contents(path)
    with pytest.raises(lw.UsageError, match=f"below the end of the partition, {end}"):
        append(path, rows(1, offsets=[end - 1]))
    with pytest.raises(lw.UsageError, match=r"first\.offset"):
        append(path, rows(1), first_offset=end + 9)
    assert contents(path) == before
    append(path, rows(2, offsets=[end + 1000, end + 1001]))
    assert lw.read(path)["offset"].to_pylist()[-3:] == [end - 1, end + 1000, end + 1001]
    assert f"{end + 1000:020}.log" in contents(path)


@pytest.mark.parametrize(
    ("name", "end"), [("v2_empty", 0), ("craft_only_empty_segment", 77), ("craft_no_files", 0)]
)
def test_empty_last_segment_is_replaced(copy_partition: Any, name: str, end: int) -> None:
    path = copy_partition(name)
    assert append(path, rows(2)).ids == {"first_offset": end, "last_offset": end + 1}
    assert list(logs(contents(path))) == [end]
    assert lw.read(path)["offset"].to_pylist() == [end, end + 1]


def test_append_of_nothing_changes_nothing(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    before = contents(path)
    assert append(path, []).rows == 0
    assert contents(path) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("killed_prealloc", "zeros"),
        ("dmg_trunc_body", "damaged at byte"),
        ("dmg_garbage_tail_10", "damaged at byte"),
        ("dmg_flip_payload", "crc"),
        ("dmg_left_swap", r"log\.swap"),
        ("dmg_left_cleaned", r"\.cleaned"),
        ("dmg_epoch_garbage", "leader-epoch-checkpoint"),
        ("dmg_pm_garbage", r"partition\.metadata"),
        ("dmg_seg_alpha", r"foo\.log"),
        ("dmg_seg_unpadded", r"5\.log"),
        ("dmg_ck_logstart_beyond", "log-start-offset-checkpoint"),
    ],
)
def test_append_after_damage_is_refused(copy_partition: Any, name: str, message: str) -> None:
    path = copy_partition(name)
    before = contents(path)
    with pytest.raises(lw.UsageError, match=message) as caught:
        append(path, rows(1))
    assert path.name in str(caught.value)
    assert contents(path) == before


def test_append_ignores_files_that_a_broker_removes(copy_partition: Any) -> None:
    path = copy_partition("dmg_left_deleted")
    assert append(path, rows(1)).ids["first_offset"] == 97


def test_append_rebuilds_preallocated_indexes_of_a_killed_broker(copy_partition: Any) -> None:
    path = copy_partition("killed_plain")
    append(path, rows(1))
    files = contents(path)
    last = sorted(logs(files))[-2]
    for suffix in (".index", ".timeindex"):
        assert files[f"{last:020}{suffix}"] == derived_files(files)[f"{last:020}{suffix}"]


def test_append_after_a_clean_stop_mentions_other_replicas(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    assert not any("replicas" in line for line in append(path, rows(1)).before_you_start)
    (path.parent / ".kafka_cleanshutdown").touch()
    assert any("replicas" in line for line in append(path, rows(1)).before_you_start)


def test_append_reports_open_transactions(copy_partition: Any) -> None:
    summary = append(copy_partition("v2_txn_open"), rows(1))
    assert any("open" in warning and "read_committed" in warning for warning in summary.warnings)


def test_append_keeps_a_topic_id_and_generates_none(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    with pytest.raises(lw.UsageError, match=r"topic\.id"):
        append(path, rows(1), topic_id=OTHER_ID)
    (path / "partition.metadata").unlink()
    summary = append(path, rows(1))
    assert not (path / "partition.metadata").exists()
    assert any("partition.metadata" in line for line in summary.before_you_start)
    append(path, rows(1), topic_id=OTHER_ID)
    assert (path / "partition.metadata").read_text().endswith(OTHER_ID)
