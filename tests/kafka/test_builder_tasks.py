"""A partition assembled from the parts of several tasks equals one written at once, except for segment boundaries."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka_log import derived_files

import logwright as lw
from logwright.codec.kafka.formats.log.layout import HEAD
from logwright.codec.kafka.store import assemble
from logwright.writers.staged import StagedWrite
from logwright.writers.write import Written

T = 1_700_000_000_000
TOPIC_ID = "q83vASNFZ4mrze8BI0VniQ"
Task = Sequence[pa.RecordBatch]


def rows(
    values: Sequence[int], offsets: Sequence[int] | None = None, size: int = 1, **columns: Any
) -> pa.RecordBatch:
    """Return a row per number, with timestamps that much after T."""
    arrays = {
        "value": pa.array([b"%d" % value * size for value in values]),
        "timestamp": pa.array([T + value for value in values], pa.int64()),
        **columns,
    }
    if offsets is not None:
        arrays["offset"] = pa.array(offsets, pa.int64())
    return pa.record_batch(arrays)


def write(path: Path, tasks: Sequence[Task], mode: str = "error", **options: Any) -> Written:
    staged = StagedWrite(str(path), "kafka.partition", mode, options)
    try:
        messages = []
        for number, batches in enumerate(tasks):
            task = staged.task(number)
            for batch in batches:
                task.add(batch)
            messages.append(task.commit())
        return staged.commit(messages)
    finally:
        staged.abort()


def contents(path: Path) -> dict[str, bytes]:
    return {child.name: child.read_bytes() for child in path.iterdir()}


def assert_as_rebuilt(path: Path, since: int = 0, interval: int = 4096) -> None:
    """Check that the derived files from an offset on are those that a broker would derive from the logs."""
    files = contents(path)
    for name, data in derived_files(files, interval).items():
        if not name[:20].isdigit() or int(name[:20]) >= since:
            assert files[name] == data, name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


OPTIONS = {"segment.bytes": 300, "batch.size": 120, "index.interval.bytes": 100, "topic.id": TOPIC_ID}


def test_parts_follow_one_another(path: Path) -> None:
    report = write(
        path, [[rows(range(10))], [], [rows(range(10, 12)), rows(range(12, 30))], [rows([])]], **OPTIONS
    )
    assert report.ids == {"first_offset": 0, "last_offset": 29}
    assert report.rows == 30
    table = lw.read(path)
    assert table["offset"].to_pylist() == list(range(30))
    assert table["value"].to_pylist() == [b"%d" % number for number in range(30)]
    assert lw.verify(path).ok
    assert_as_rebuilt(path, interval=100)
    alone = path.with_name("orders-1")
    lw.write(rows(range(10)), alone, "kafka.partition", **OPTIONS)
    first = contents(alone)
    assert {name: data for name, data in contents(path).items() if name in first and name[-4:] == ".log"} == {
        name: data for name, data in first.items() if name[-4:] == ".log"
    }


@pytest.mark.parametrize("window", [61, 64, 100, 137, 4096])
def test_batches_are_moved_with_any_window_size(
    path: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "_WINDOW", window)
    tasks = [[rows(range(5), size=40)], [rows(range(5, 30))], [rows(range(30, 33), size=300)]]
    write(path, tasks, first_offset=1 << 33, **{**OPTIONS, "segment.bytes": 2000})
    table = lw.read(path)
    assert table["offset"].to_pylist() == list(range(1 << 33, (1 << 33) + 33))
    assert lw.verify(path).ok
    assert_as_rebuilt(path, interval=100)


def test_tasks_without_rows_write_one_empty_segment(path: Path) -> None:
    for tasks in ([], [[], [rows([])]]):
        report = write(path, tasks, first_offset=5, topic_id=TOPIC_ID)
        assert (report.rows, report.ids) == (0, {})
        assert {name for name, data in contents(path).items() if name[0] == "0" and data} == set()
        assert lw.read(path).num_rows == 0
        assert [log_path.name for log_path in path.glob("*.log")] == [f"{5:020}.log"]
        shutil.rmtree(path)


def test_append_of_nothing_by_tasks_changes_nothing(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    before = contents(path)
    write(path, [[], []], "append")
    assert contents(path) == before


# Offsets


def test_kept_offsets_decide_the_order(path: Path) -> None:
    tasks = [[rows([5, 6], [500, 600])], [], [rows([1, 2], [100, 101])], [rows([3], [102])]]
    report = write(path, tasks, **OPTIONS)
    assert report.ids == {"first_offset": 100, "last_offset": 600}
    table = lw.read(path)
    assert table["offset"].to_pylist() == [100, 101, 102, 500, 600]
    assert table["value"].to_pylist() == [b"1", b"2", b"3", b"5", b"6"]
    assert lw.verify(path).ok
    assert_as_rebuilt(path, interval=100)


def test_kept_offsets_of_two_tasks_must_not_overlap(path: Path) -> None:
    with pytest.raises(lw.UsageError, match="overlap") as caught:
        write(path, [[rows([1, 2], [1, 5])], [rows([3], [5])]])
    assert "offsets=assign" in str(caught.value)
    assert not path.exists()
    assert write(path, [[rows([1, 2], [1, 5])], [rows([3], [5])]], offsets="assign").ids["last_offset"] == 2


def test_either_all_tasks_have_offsets_or_none(path: Path) -> None:
    with pytest.raises(lw.UsageError, match="some rows have offsets"):
        write(path, [[rows([1], [1])], [rows([3])]])
    assert list(path.parent.iterdir()) == []


def test_tasks_of_several_partitions_are_refused(path: Path) -> None:
    tasks = [[rows([1], topic=["a"])], [rows([2], topic=["b"])]]
    with pytest.raises(lw.UsageError, match="2 topics"):
        write(path, tasks)
    assert list(path.parent.iterdir()) == []


# Append


def test_tasks_append_after_the_end(copy_partition: Any) -> None:
    path = copy_partition("v2_txn_interleaved")
    before, old = contents(path), lw.read(path, view="log")
    end = old["offset"][-1].as_py() + 1
    report = write(
        path, [[rows(range(10))], [rows(range(10, 25))]], "append", **{**OPTIONS, "topic.id": None}
    )
    assert report.ids == {"first_offset": end, "last_offset": end + 24}
    after = contents(path)
    assert {name: after[name] for name in before} == before
    assert lw.read(path, view="log").slice(0, len(old)).equals(old)
    assert lw.read(path)["offset"].to_pylist()[-25:] == list(range(end, end + 25))
    assert lw.verify(path).ok
    assert_as_rebuilt(path, end, 100)


def test_tasks_append_in_the_latest_leader_epoch(copy_partition: Any) -> None:
    path = copy_partition("v2_epochs")
    stored = (path / "leader-epoch-checkpoint").read_text()
    latest = int(stored.split()[-2])
    assert latest > 1
    end = write(path, [[rows([1, 2])], [rows([3])]], "append").ids["first_offset"]
    assert (path / "leader-epoch-checkpoint").read_text() == stored
    assert lw.read(path, columns="leader_epoch")["leader_epoch"].to_pylist()[-3:] == [latest] * 3
    assert lw.verify(path).ok
    with pytest.raises(lw.UsageError, match="below the latest"):
        write(path, [[rows([1])]], "append", **{"partition.leader.epoch": 1})
    write(path, [[rows([4], [end + 10])]], "append", **{"partition.leader.epoch": latest + 1})
    assert (path / "leader-epoch-checkpoint").read_text().splitlines()[-1] == f"{latest + 1} {end + 10}"
    assert lw.read(path, columns="leader_epoch")["leader_epoch"].to_pylist()[-2:] == [latest, latest + 1]


def test_options_that_contradict_the_partition_are_refused(copy_partition: Any) -> None:
    path = copy_partition("v2_none_java")
    end = lw.read(path)["offset"][-1].as_py() + 1
    before = contents(path)
    for options, message in (({"topic.id": TOPIC_ID}, "topic.id"), ({"first.offset": end}, "first.offset")):
        with pytest.raises(lw.UsageError, match=message):
            write(path, [[rows([1])]], "append", **options)
    with pytest.raises(lw.UsageError, match="below the end"):
        write(path, [[rows([1], [end - 1])]], "append")
    assert contents(path) == before


def test_empty_last_segment_is_replaced(copy_partition: Any) -> None:
    path = copy_partition("craft_only_empty_segment")
    write(path, [[rows([1])], [rows([2])]], "append")
    assert lw.read(path)["offset"].to_pylist() == [77, 78]
    assert sorted(log_path.name for log_path in path.glob("*.log")) == [f"{77:020}.log", f"{78:020}.log"]
    assert_as_rebuilt(path)


def test_preallocated_indexes_are_rebuilt(copy_partition: Any) -> None:
    path = copy_partition("killed_txn")
    report = write(path, [[rows([1])]], "append")
    assert any("open" in warning for warning in report.warnings)
    assert_as_rebuilt(path, 50)


# Notes


def test_many_small_segments_are_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "_MANY", 3)
    few = write(path, [[rows([1])]] * 3)
    assert not any("segments" in warning for warning in few.warnings)
    many = write(path, [[rows([1])]] * 4, "append")
    assert any("4 of 4 segments" in warning for warning in many.warnings)


def test_report_names_the_topic_id_and_the_retention(path: Path) -> None:
    report = write(path, [[rows([1])]], **OPTIONS)
    assert any(TOPIC_ID in line for line in report.before_you_start)
    assert any("retention.ms" in line for line in report.before_you_start)


# Hostile input


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30])
def test_changed_staged_segment_does_not_loop_forever(path: Path, length: int) -> None:
    staged = StagedWrite(str(path), "kafka.partition", "error", {})
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(rows([1, 2]))
        messages.append(task.commit())
    (log_file,) = path.parent.glob(f"*/.logwright/*/{messages[1].folder}/*.log")
    data = np.fromfile(log_file, np.uint8)
    data[: HEAD.itemsize].view(HEAD)["batch_length"] = length
    data.tofile(log_file)
    with pytest.raises(lw.LogwrightError, match="not what its task wrote"):
        staged.commit(messages)
    assert list(path.parent.iterdir()) == []
