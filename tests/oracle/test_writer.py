"""Kafka's own classes, tool and broker read the partitions we write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.formats.log.write import BatchEncoder

pytestmark = pytest.mark.oracle

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
START = 1_700_000_000_000
TOPIC_ID = "q83vASNFZ4mrze8BI0VniQ"


def rows(count: int, *, first: int = 0) -> pa.Table:
    """Null, empty and long keys and values; headers with null and empty values; a missing timestamp."""
    numbers = range(first, first + count)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([None if n % 7 == 0 else b"" if n % 7 == 1 else b"key-%d" % n for n in numbers], pa.binary()),
            "value": pa.array([None if n % 11 == 0 else b"" if n % 11 == 1 else b"value %d " % n * (n % 40) for n in numbers], pa.binary()),
            "timestamp": pa.array([None if n % 13 == 0 else START + 37 * n % 5000 for n in numbers], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": "h", "value": None}, {"key": "", "value": b""}] * (n % 3) for n in numbers], header),
        }
    )  # fmt: skip


def as_kafka_says(table: pa.Table, first_offset: int = 0) -> list[tuple[Any, ...]]:
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        (first_offset + i, -1 if times[i] is None else times[i], row["key"], row["value"],
         [(h["key"].encode(), h["value"]) for h in row["headers"]])
        for i, row in enumerate(table.drop_columns("timestamp").to_pylist())
    ]  # fmt: skip


def as_read(actual: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (r["offset"], r["timestamp"], r["key"], r["value"], [tuple(h) for h in r["headers"]]) for r in actual
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_indexes_and_tool(kafka: Any, tmp_path: Path, compression: str) -> None:
    target = tmp_path / "orders-0"
    table = rows(4000)
    written = lw.write(
        table, target, "kafka.partition", compression_type=compression, segment_bytes=60_000, batch_size=2000,
        index_interval_bytes=500, topic_id=TOPIC_ID,
    )  # fmt: skip
    assert len(list(target.glob("*.log"))) > 1 or compression in ("gzip", "zstd")
    assert written.ids == {"first_offset": 0, "last_offset": 3999}
    assert as_read(kafka.records(target)) == as_kafka_says(table)
    assert kafka.sanity(target) == []
    derived = {
        p.name: p.read_bytes()
        for p in target.iterdir()
        if p.suffix != ".log" and p.name != "partition.metadata"
    }
    assert kafka.rebuild(target, 500) == derived, "Kafka rebuilds the very files that we wrote"
    message = kafka.dump(sorted(target.glob("*.log"))[0], "--print-data-log")
    assert "isvalid: true" in message
    assert "isvalid: false" not in message


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_are_those_of_kafkas_builder(kafka: Any, compression: str) -> None:
    """Byte for byte if uncompressed, by content if compressed."""
    table = (
        rows(50)
        .drop_columns("timestamp")
        .append_column("timestamp", pa.array([START + n for n in range(50)]))
    )
    encoder = BatchEncoder(BatchSettings(compression, batch_size=1 << 20, leader_epoch=3))
    parts = [encoder.add(batch) for batch in table.to_batches()] + [encoder.flush()]
    ours = b"".join(part.data.tobytes() for part in parts)
    spec = {
        "compression": compression, "partition_leader_epoch": 3,
        "records": [
            {"timestamp": r["timestamp"], "key": r["key"], "value": r["value"],
             "headers": [(h["key"].encode(), h["value"]) for h in r["headers"]]}
            for r in table.to_pylist()
        ],
    }  # fmt: skip
    theirs = kafka.build(spec)
    if compression in ("none", "gzip"):
        assert ours == theirs
    else:
        assert ours[21:61] == theirs[21:61], "the same header behind the checksum"


def test_kafka_reads_what_append_and_overwrite_write(kafka: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    for start in (0, 300, 600):
        lw.write(
            rows(300, first=start),
            target,
            "kafka.partition",
            mode="append",
            batch_size=900,
            topic_id=TOPIC_ID,
        )
    assert as_read(kafka.records(target)) == as_kafka_says(rows(900))
    assert kafka.sanity(target) == []
    derived = {
        p.name: p.read_bytes()
        for p in target.iterdir()
        if p.suffix != ".log" and p.name != "partition.metadata"
    }
    assert kafka.rebuild(target, 4096) == derived
    assert kafka.load(target, clean=True)["log_end_offset"] == 900
    lw.write(rows(5), target, "kafka.partition", mode="overwrite")
    assert as_read(kafka.records(target)) == as_kafka_says(rows(5))


def test_appending_to_what_a_broker_wrote(kafka: Any, golden: Any, tmp_path: Path) -> None:
    """Transactions, several segments, epochs: Kafka's loader accepts all of it and rebuilds the same files."""
    import shutil

    for name in (
        "v2_txn_interleaved",
        "v2_epochs",
        "v2_rolled",
        "v2_empty",
        "killed_plain",
        "craft_only_empty_segment",
    ):
        case = golden(name)
        target = tmp_path / case.directory.name
        shutil.copytree(case.directory, target)
        for path in target.iterdir():
            path.chmod(0o644)
        before = len(kafka.records(target))
        lw.write(rows(40), target, "kafka.partition", mode="append")
        actual = kafka.records(target)
        assert len(actual) == before + 40, name
        assert [r["value"] for r in actual[-40:]] == rows(40)["value"].to_pylist()
        assert kafka.sanity(target) == [], name
        end = kafka.load(target, clean=True)["log_end_offset"]
        assert end == actual[-1]["offset"] + 1, name


def test_broker_serves_partitions_of_every_compression(kafka: Any, broker: Any, tmp_path: Path) -> None:
    table = rows(2000)
    for compression in COMPRESSIONS:
        lw.write(table, tmp_path / f"topic-{compression}-0", "kafka.partition", compression_type=compression,
                 segment_bytes=40_000, batch_size=3000)  # fmt: skip
        broker.place(tmp_path / f"topic-{compression}-0", configs={"retention.ms": "-1"})
    broker.start()
    for compression in COMPRESSIONS:
        assert as_read(broker.consume(f"topic-{compression}")) == as_kafka_says(table)
        assert not [
            line
            for line in broker.log_lines(f"topic-{compression}")
            if "ERROR" in line or "truncat" in line.lower()
        ]
