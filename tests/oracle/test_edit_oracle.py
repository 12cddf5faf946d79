"""Partitions with dropped or redacted records are sound for Kafka: its loader and a broker, started unclean, truncate
nothing and change no file, and a consumer gets exactly the other records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.codec.kafka.names import EPOCH_FILE
from logwright.roundtrip.oracles.kafka_broker import Broker

pytestmark = pytest.mark.oracle

SETTINGS = {"index.interval.bytes": 250, "producer.id.expiration.ms": (1 << 31) - 1}
TOPIC = {"index.interval.bytes": "250", "retention.ms": "-1", "segment.index.bytes": "4096"}
SAYS_SO = ("truncating", "Deleting", "Corrupt", "corrupt", "Found invalid", "recovering segment")
LEADS = 100
GOLDEN = ("v2_txn_commit_abort", "v2_lz4_aiokafka", "dmg_base")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def source(name: str, place: Path) -> Path:
    if name in CASES:
        return CASES[name].partition
    path = place / "made" / f"{name}-0"
    path.parent.mkdir(exist_ok=True)
    rows = {
        "key": [b"user-%d" % (n % 10) for n in range(1000)],
        "value": [b"value %d " % n * 3 for n in range(1000)],
        "timestamp": pa.array(range(1_700_000_000_000, 1_700_000_001_000), pa.int64()),
    }
    lw.write(
        pa.table(rows), path, "kafka.partition",
        compression_type=name, batch_size=2000, segment_bytes=9000, **{"index.interval.bytes": 250},
    )  # fmt: skip
    return path


def asked(offsets: list[int]) -> tuple[list[int], list[int]]:
    """Return the records to drop (first, last and a range) and the records to redact."""
    subset = sorted({offsets[0], offsets[-1], *offsets[10:40], *offsets[3::7]})
    return subset, [offset for offset in offsets[1::5] if offset not in subset]


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def differ(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Return the changed files. The broker adds its leader epoch and its own topic id."""
    names = (set(before) | set(after)) - {EPOCH_FILE, "partition.metadata"}
    return sorted(name for name in names if before.get(name) != after.get(name))


def test_kafka_finds_edited_partitions_sound(kafka: Any, broker: Broker, tmp_path: Path) -> None:
    expected: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    before: dict[str, dict[str, bytes]] = {}
    for name in (*GOLDEN, *COMPRESSIONS):
        path = source(name, tmp_path)
        rows = lw.read(path, columns=["offset", "key", "value"]).to_pylist()
        drop, redact = asked([row["offset"] for row in rows])
        out = tmp_path / path.name
        report = lw.edit(
            path,
            out,
            drop=[("offset", "in", drop)],
            redact=[("offset", "in", redact)],
            with_=None,
            **SETTINGS,
        )
        assert report["rows"] > 0
        expected[out.name] = [
            (row["offset"], row["key"], None if row["offset"] in redact else row["value"])
            for row in rows
            if row["offset"] not in drop
        ]
        assert len(expected[out.name]) == len(rows) - len(drop)
        broker.place(out, configs=TOPIC, leader_epoch=LEADS)
        before[out.name] = content(out)
        loaded = tmp_path / "loaded" / out.name
        shutil.copytree(out, loaded)
        original = tmp_path / "original" / path.name
        shutil.copytree(path, original)
        done, were = (
            kafka.load(item, index_interval_bytes=250, segment_index_bytes=4096)
            for item in (loaded, original)
        )
        assert done["log_end_offset"] == were["log_end_offset"]
        assert differ(before[out.name], content(loaded)) == []
    broker.start()
    wrong: dict[str, Any] = {}
    for name, rows_left in expected.items():
        topic, number = name.rsplit("-", 1)
        lines = [line.replace(name, "") for line in broker.log_lines(topic, int(number))]
        served = broker.consume(topic, partition=int(number))
        got = [(row["offset"], row["key"], row["value"]) for row in served]
        problems = {
            "said": [line for line in lines if any(word in line for word in SAYS_SO)],
            "missing": [item for item in rows_left if item not in got],
            "besides": [item for item in got if item not in rows_left],
            "order": got != rows_left,
        }
        if any(problems.values()):
            wrong[name] = problems
    broker.stop()
    for name, files in before.items():
        topic, number = name.rsplit("-", 1)
        after = broker.files(topic, int(number))
        if differ(files, after):
            wrong.setdefault(name, {})["files"] = differ(files, after)
    assert not wrong, wrong
