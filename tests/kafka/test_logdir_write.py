"""Rows of several topics and partitions become one log directory, in one commit."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec import registry
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.filesystem import Item
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.write import write

LAYOUT = registry.get_writer("kafka.logdir")
IDENTITY = {"cluster.id": "q83vASNFZ4mrze8BI0VniQ", "node.id": 1}
IDS = "orders=AAAAAAAAAAAAAAAAAAAAAg,a.b-1=AAAAAAAAAAAAAAAAAAAAAw"
OPTIONS = {**IDENTITY, "topic.ids": IDS, "segment.bytes": 300, "batch.size": 110}
TARGET = "/data/logs"
PLACES = [("orders", 0), ("orders", 1), ("a.b-1", 7), ("orders", 0)]


def rows(count: int = 40, first: int = 0) -> pa.Table:
    places = [PLACES[n % len(PLACES)] for n in range(count)]
    return pa.table(
        {
            "topic": [topic for topic, _ in places],
            "partition": pa.array([number for _, number in places], pa.int32()),
            "value": [b"value %d" % (first + n) for n in range(count)],
            "timestamp_ms": pa.array([1_700_000_000_000] * count, pa.int64()),
        }
    )


def by_partition(table: pa.Table) -> dict[tuple[str, int], list[bytes]]:
    out: dict[tuple[str, int], list[bytes]] = {}
    for row in table.select(["topic", "partition", "value"]).to_pylist():
        out.setdefault((row["topic"], row["partition"]), []).append(row["value"])
    return out


def checkpoint(path: Path, name: str) -> list[str]:
    return (path / name).read_text().splitlines()


def test_all_partitions_with_their_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    written = lw.write(rows(), path, "kafka.logdir", **OPTIONS)
    assert by_partition(lw.read(path)) == by_partition(rows())
    assert lw.detect(path) == "kafka.logdir"
    assert lw.verify(path, as_system="4.3").ok
    assert written.ids["last_offsets"] == {"a.b-1-7": 9, "orders-0": 19, "orders-1": 9}
    ends = ["0", "3", "orders 0 20", "orders 1 10", "a.b-1 7 10"]
    assert checkpoint(path, "recovery-point-offset-checkpoint") == ends
    assert checkpoint(path, "replication-offset-checkpoint") == ends
    assert checkpoint(path, "log-start-offset-checkpoint") == ["0", "0"]
    meta = dict(line.split("=") for line in checkpoint(path, "meta.properties"))
    assert (meta["cluster.id"], meta["node.id"]) == (IDENTITY["cluster.id"], "1")
    assert (path / "orders-1" / "partition.metadata").read_text().endswith("AAAAAAAAAAAAAAAAAAAAAg")
    assert len(list((path / "orders-0").glob("*.log"))) > 1
    assert not [item for item in path.iterdir() if item.is_dir() and "delete" in item.name]


def test_partitions_of_a_topic_share_its_id(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    lw.write(rows(), path, "kafka.logdir")
    lw.write(rows().set_column(1, "partition", pa.array([5] * 40)), path, "kafka.logdir", mode="append")
    ids = {(path / f"orders-{n}" / "partition.metadata").read_text() for n in (0, 1, 5)}
    assert len(ids) == 1


def test_append_continues_each_partition(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    lw.write(rows(), path, "kafka.logdir", **OPTIONS)
    identity = (path / "meta.properties").read_bytes()
    more = pa.concat_tables([rows(8, first=40), rows(4).set_column(0, "topic", pa.array(["new"] * 4))])
    lw.write(more, path, "kafka.logdir", mode="append")
    assert by_partition(lw.read(path)) == by_partition(pa.concat_tables([rows(), more]))
    assert lw.verify(path, as_system="4.3").ok
    assert "orders 0 24" in checkpoint(path, "recovery-point-offset-checkpoint")
    assert "new 7 1" in checkpoint(path, "replication-offset-checkpoint")
    assert (path / "meta.properties").read_bytes() == identity


def test_another_identity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    lw.write(rows(), path, "kafka.logdir", **OPTIONS)
    with pytest.raises(lw.UsageError, match=r"of cluster .*, node 1; expected other, node 2"):
        lw.write(rows(), path, "kafka.logdir", mode="append", cluster_id="other", node_id=2)
    with pytest.raises(lw.UsageError, match="needs both"):
        lw.write(rows(), tmp_path / "new", "kafka.logdir", cluster_id="other")


def test_without_identity_the_result_says_what_is_missing(tmp_path: Path) -> None:
    written = lw.write(rows(), tmp_path / "logs", "kafka.logdir")
    assert any("no meta.properties" in text for text in written.before_you_start)
    assert not (tmp_path / "logs" / "meta.properties").exists()


def test_the_metadata_of_a_cluster_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    lw.write(rows(), path, "kafka.logdir", **OPTIONS)
    (path / "__cluster_metadata-0").mkdir()
    (path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(lw.LogwrightError, match="would be lost: __cluster_metadata-0"):
        lw.write(rows(), path, "kafka.logdir", mode="overwrite")
    assert by_partition(lw.read(path)) == by_partition(rows())


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("topic", None, "nulls in the column 'topic'"),
        ("partition", None, "nulls in the column 'partition'"),
        ("partition", -1, "'orders--1' is not a valid partition name"),
        ("topic", "a/b", "'a/b-0' is not a valid partition name"),
        ("topic", "__cluster_metadata", "'__cluster_metadata-0' is not a valid partition name"),
    ],
)
def test_rows_without_a_place_are_refused(tmp_path: Path, column: str, value: Any, message: str) -> None:
    row = {"topic": "orders", "partition": 0, "value": b"v", column: value}
    with pytest.raises(lw.UsageError, match=message):
        lw.write([row], tmp_path / "logs", "kafka.logdir")
    with pytest.raises(lw.UsageError, match=f"no column '{column}'"):
        lw.write([{k: v for k, v in row.items() if k != column}], tmp_path / "logs", "kafka.logdir")
    assert list(tmp_path.iterdir()) == []


def test_a_log_directory_is_converted_to_another(tmp_path: Path) -> None:
    lw.write(rows(), tmp_path / "logs", "kafka.logdir", **OPTIONS)
    lw.convert(tmp_path / "logs", tmp_path / "copy", "kafka.logdir", compression_type="zstd", **IDENTITY)
    assert by_partition(lw.read(tmp_path / "copy")) == by_partition(rows())
    lw.convert(tmp_path / "logs", tmp_path / "rows.parquet")
    lw.convert(tmp_path / "rows.parquet", tmp_path / "again", "kafka.logdir")
    assert by_partition(lw.read(tmp_path / "again")) == by_partition(rows())


class CountedListings(MemoryFileSystem):
    """Counts how often each folder is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listings: Counter[str] = Counter()

    def listdir(self, path: str) -> list[Item]:
        self.listings[path] += 1
        return super().listdir(path)


def test_append_lists_a_log_directory_as_often_for_many_partitions_as_for_one() -> None:
    """Log directories have thousands of partitions: with a listing for each, an append takes hours."""

    def listings(partitions: int) -> int:
        files = CountedListings()
        files.make("/data")
        table = pa.table({"topic": ["t"] * partitions, "partition": pa.array(range(partitions), pa.int32())})
        put(files, table, "error")
        files.listings.clear()
        put(files, table, "append")
        return files.listings[TARGET]

    assert listings(12) == listings(1)


# Crashes


def put(files: MemoryFileSystem, table: pa.Table, mode: str) -> None:
    write(table, TARGET, LAYOUT, mode=mode, files=files, **(OPTIONS if mode != "append" else {}))


def put_by_tasks(files: MemoryFileSystem, table: pa.Table, mode: str) -> None:
    staged = StagedWrite(TARGET, "kafka.logdir", mode, OPTIONS if mode != "append" else {}, files=files)
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(table.slice(number * 10, 10).combine_chunks().to_batches()[0])
        messages.append(task.commit())
    staged.commit(messages)


SCENARIOS: dict[str, tuple[str, Any, bool]] = {
    "new": ("error", put, True),
    "new by tasks": ("error", put_by_tasks, True),
    "append": ("append", put, True),
    "append by tasks": ("append", put_by_tasks, True),
    "overwrite": ("overwrite", put, True),
    "overwrite without exchange": ("overwrite", put, False),
}


def contents(files: MemoryFileSystem, scratch: Path) -> dict[tuple[str, int], list[bytes]] | None:
    """Return the rows as a broker sees them: without what is staged."""
    if files.stat(TARGET) is None:
        return None
    place = scratch / "logs"
    place.mkdir()
    files.dump(TARGET, str(place))
    try:
        return by_partition(lw.read(place, "kafka.logdir"))
    finally:
        shutil.rmtree(place)


@pytest.mark.alike
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.extended if name.endswith("exchange") else ())
        for name in SCENARIOS
    ],
)
def test_a_broker_starts_on_all_rows_or_on_the_old_ones(name: str, tmp_path: Path) -> None:
    """After a crash at any point the directory is the old or the new one, or has no meta.properties and the next write completes it."""
    mode, act, can_exchange = SCENARIOS[name]
    files = MemoryFileSystem()
    files.make("/data")
    new = rows(20, first=100)
    old = None
    if mode != "error":
        put(files, rows(), "error")
        old = by_partition(rows())
        files = files.fork()
    files.can_exchange = can_exchange
    act(files, new, mode)
    final = by_partition(pa.concat_tables([rows(), new]) if mode == "append" else new)
    seen = set()
    for prefix in range(len(files.trace) + 1):
        left = files.killed(prefix)
        tree = left.tree(TARGET) if left.stat(TARGET) is not None else {}
        # A state is the names that a broker reads; equal states are read once.
        state = frozenset(
            (path, size) for path, size in tree.items() if not path.startswith(LAYOUT.inner_staging)
        )
        if state not in seen and (not tree or "meta.properties" in tree):
            assert contents(left, tmp_path) in (old, final), prefix
        if state not in seen and tree:
            finish_or_undo(left, LAYOUT, TARGET)
            assert contents(left, tmp_path) in (old, final), prefix
            assert not any(item.name == LAYOUT.inner_staging for item in left.listdir(TARGET))
        seen.add(state)
    assert contents(files, tmp_path) == final


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (f"orders={'A' * 21}g,orders={'A' * 21}w", "topic 'orders' is given twice"),
        (f"orders={'A' * 21}g,a.b-1={'A' * 21}g", "is given to two topics"),
    ],
)
def test_a_topic_has_one_id_and_an_id_one_topic(tmp_path: Path, ids: str, message: str) -> None:
    with pytest.raises(lw.UsageError, match=message):
        lw.write(rows(), tmp_path / "logs", "kafka.logdir", topic_ids=ids)
    assert list(tmp_path.iterdir()) == []


def test_an_id_of_a_topic_without_rows_is_reported(tmp_path: Path) -> None:
    written = lw.write(rows(), tmp_path / "logs", "kafka.logdir", topic_ids=f"order={'A' * 21}g")
    assert "topic.ids has topics without rows: order" in written.warnings


def test_an_option_of_partitions_is_refused_for_a_log_directory(tmp_path: Path) -> None:
    lw.write(rows(), tmp_path / "logs", "kafka.logdir")
    with pytest.raises(
        lw.UsageError, match=r"delete\.before\.offset does not apply.*one kafka\.partition to another"
    ):
        lw.convert(tmp_path / "logs", tmp_path / "copy", "kafka.logdir", delete_before_offset=3)
    with pytest.raises(lw.UsageError, match=r"retention\.ms does not apply to writing kafka\.logdir"):
        lw.write(rows(), tmp_path / "copy", "kafka.logdir", retention_ms=3)
