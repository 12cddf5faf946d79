"""Kafka's loader opens partitions we appended to without losing rows or repairing anything."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_golden import CASES as GOLDEN

import logwright as lw
from logwright.codec.kafka.formats.producer_snapshot import PRODUCER_ENTRY, PRODUCER_SNAPSHOT
from logwright.writers.staged import StagedWrite

pytestmark = pytest.mark.oracle

CASES = (
    "v2_rolled", "v2_txn_interleaved", "v2_txn_open", "killed_txn", "killed_plain", "v2_epochs", "v2_compacted_producers",
    "v2_compacted_zstd", "v2_empty", "v2_retention", "v2_delete_records", "v2_idempotent", "v2_by_011", "v2_index_full",
    "consumer_offsets", "craft_holes", "craft_empty_batches", "craft_first_offset_high", "craft_no_files",
    "craft_only_empty_segment",
)  # fmt: skip
EXPIRATION = (1 << 31) - 1
"""The largest producer.id.expiration.ms: producers that were last heard of before are forgotten on loading."""
OPTIONS = {"segment.bytes": 700, "batch.size": 200, "index.interval.bytes": 100}
COUNT = 25


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "key": [b"appended"] * count,
            "value": [b"%d" % number for number in numbers],
            "timestamp": pa.array([1_700_000_000_000 + number for number in numbers], pa.int64()),
        }
    )


def append_rows(path: Path) -> None:
    lw.write(rows(0, COUNT), path, "kafka.partition", mode="append", **OPTIONS)


def tasks(path: Path) -> None:
    staged = StagedWrite(str(path), "kafka.partition", "append", OPTIONS)
    messages = []
    for number in range(3):
        task = staged.task(number)
        task.add(rows(*((0, 10), (10, 1), (11, 14))[number]))
        messages.append(task.commit())
    staged.commit(messages)


def entries(snapshot: bytes, now: int) -> list[bytes]:
    """Return the producers of a snapshot that do not expire when it is loaded."""
    width = PRODUCER_ENTRY.min_size
    actual = [
        snapshot[at : at + width] for at in range(PRODUCER_SNAPSHOT.offset("entries"), len(snapshot), width)
    ]
    parsed = [(entry, PRODUCER_ENTRY.unpack(entry)[0]) for entry in actual]
    return [
        entry
        for entry, row in parsed
        if row["current_txn_first_offset"] >= 0 or now - row["timestamp"] < EXPIRATION
    ]


@pytest.mark.parametrize(("way", "clean"), [(append_rows, True), (append_rows, False), (tasks, True)])
@pytest.mark.parametrize("name", CASES)
def test_loader_accepts_appended_partitions(
    kafka: Any, tmp_path: Path, name: str, clean: bool, way: Callable[[Path], None]
) -> None:
    case = GOLDEN[name]
    path = tmp_path / case.partition.name
    shutil.copytree(case.partition, path)
    for file in path.iterdir():
        file.chmod(0o644)
    before = lw.read(path, view="log")
    way(path)
    written = {file.name: file.read_bytes() for file in path.iterdir()}
    appended = [file_name for file_name in written if not (case.partition / file_name).exists()]
    table = lw.read(path, view="log")
    assert table.slice(0, len(before)).equals(before)
    assert table["value"].to_pylist()[-COUNT:] == [b"%d" % number for number in range(COUNT)]
    end = table["offset"][-1].as_py() + 1

    assert not [error for error in kafka.sanity(path) if error["file"] in appended]
    loaded = kafka.load(path, clean=clean, index_interval_bytes=100)

    assert loaded["log_end_offset"] == end
    assert lw.read(path, view="log").equals(table)
    after = {file.name: file.read_bytes() for file in path.iterdir()}
    for file_name in appended:
        if file_name.endswith((".log", ".index", ".timeindex")):
            assert after[file_name] == written[file_name], file_name
    last = f"{end:020}.snapshot"
    now = time.time_ns() // 1_000_000
    assert sorted(entries(after[last], now)) == sorted(entries(written[last], now))
