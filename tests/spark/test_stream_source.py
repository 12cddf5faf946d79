"""A stream from growing partitions, and from one partition into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")


def write(path: Path, first: int, count: int, **options: Any) -> None:
    values = [b"%d" % n for n in range(first, first + count)]
    times = pa.array([1000 * n for n in range(first, first + count)], pa.timestamp("ms", "UTC"))
    lw.write(pa.table({"value": values, "timestamp": times}), path, "kafka.partition", mode="append", batch_size="300", **options)  # fmt: skip


def stream(spark: Any, path: Path, **options: Any) -> Any:
    return spark.readStream.format("logwright").options(**options).load(str(path))


class Collected:
    """Collects the micro-batches of a query in memory; can be restarted from its checkpoint."""

    def __init__(self, frame: Any, folder: Path) -> None:
        self.frame, self.folder, self.batches = frame, folder, []  # type: ignore[var-annotated]

    def run(self) -> list[list[Any]]:
        """Return all rows available now."""
        before = len(self.batches)

        def each(frame: Any, number: int) -> None:
            self.batches.append([tuple(row) for row in frame.collect()])

        writer = self.frame.writeStream.foreachBatch(each).option("checkpointLocation", str(self.folder))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return self.batches[before:]


def flat(batches: list[list[Any]]) -> list[Any]:
    return sorted(row if len(row) > 1 else row[0] for batch in batches for row in batch)


def test_growing_partition_is_followed(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    write(path, 0, 50, segment_bytes="2k")
    reader = Collected(stream(spark, path, maxOffsetsPerTrigger="20").select("offset"), tmp_path / "c")
    assert [sorted(row[0] for row in batch) for batch in reader.run()] == [
        list(range(20)), list(range(20, 40)), list(range(40, 50)),
    ]  # fmt: skip
    write(path, 50, 25)
    assert flat(reader.run()) == list(range(50, 75))
    assert reader.run() == []
    offsets = sorted((tmp_path / "c" / "offsets").iterdir(), key=lambda file: file.name.zfill(9))[-1]
    assert json.loads(offsets.read_text().splitlines()[-1]) == {"orders-0": 75}


def test_kafka_source_options_on_a_log_directory(spark: Any, tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        write(tmp_path / "logs" / name, 0, 10)
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    words = {"subscribe": "a", "startingOffsets": '{"a": {"0": 4, "1": -1}}', "includeHeaders": "false"}
    frame = stream(spark, tmp_path / "logs", **words)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    reader = Collected(frame.select("topic", "partition", "offset"), tmp_path / "c")
    assert flat(reader.run()) == [("a", 0, n) for n in range(4, 10)]
    write(tmp_path / "logs" / "a-1", 10, 2)
    write(tmp_path / "logs" / "a-2", 0, 2)
    write(tmp_path / "logs" / "b-0", 10, 2)
    assert flat(reader.run()) == [("a", 1, 10), ("a", 1, 11), ("a", 2, 0), ("a", 2, 1)]
    batch = spark.read.format("logwright").options(
        subscribePattern="a|b",
        startingTimestamp=8000,
        endingTimestamp=10_000,
        startingOffsetsByTimestampStrategy="latest",
    )
    rows = batch.load(str(tmp_path / "logs")).select("topic", "partition", "offset").collect()
    assert sorted(tuple(row) for row in rows) == [
        (t, p, o) for t, p in (("a", 0), ("a", 1), ("b", 0)) for o in (8, 9)
    ]
    few = spark.read.format("logwright").options(
        assign='{"a": [0]}', maxRecordsPerPartition=3, startingOffsets="earliest"
    )
    assert few.load(str(tmp_path / "logs")).rdd.getNumPartitions() == 4
    assert few.load(str(tmp_path / "logs")).count() == 10
    assert spark.read.format("logwright").load(str(tmp_path / "logs")).count() == 36


def test_stream_from_one_partition_into_another(spark: Any, tmp_path: Path) -> None:
    """Source and sink together; the query is ended and started again as the source grows."""
    source, target = tmp_path / "in" / "orders-0", tmp_path / "out" / "copy-0"
    write(source, 0, 40)
    for round_ in range(3):
        frame = stream(spark, source, maxOffsetsPerTrigger="15").select(
            "key", "value", "timestamp", "headers"
        )
        writer = frame.coalesce(1).writeStream.format("logwright").option("codec", "kafka.partition")
        writer = writer.option("txnAppId", "copy").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        table = lw.read(source, columns=["offset", "value", "timestamp"])
        assert lw.read(target, columns=["offset", "value", "timestamp"]).equals(table)
        write(source, 40 + 10 * round_, 10)
    follower = Collected(
        stream(spark, target, startingOffsets='{"copy": {"0": 50}}').select("offset"), tmp_path / "d"
    )
    assert flat(follower.run()) == list(range(50, 60))


def test_damage_in_a_stream_by_mode(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    write(path, 0, 120)
    (segment,) = path.glob("*.log")
    positions = lw.read(
        segment, view="frames", columns=["position", "base_offset", "last_offset"]
    ).to_pylist()
    bad = positions[2]
    data = bytearray(segment.read_bytes())
    data[bad["position"] + 70] ^= 1
    segment.write_bytes(data)
    lost = range(bad["base_offset"], bad["last_offset"] + 1)
    with pytest.raises(Exception, match="checksum"):
        Collected(stream(spark, path).select("offset"), tmp_path / "c").run()
    dropped = Collected(
        stream(spark, path, mode="DROPMALFORMED", maxOffsetsPerTrigger="60").select("offset"), tmp_path / "d"
    )
    assert flat(dropped.run()) == [n for n in range(120) if n not in lost]
    marked = stream(
        spark, path, mode="PERMISSIVE", maxOffsetsPerTrigger="60", badRecordsPath=str(tmp_path / "bad")
    )
    actual = flat(
        Collected(marked.select("_corrupt_offset", "offset").filter("offset is null"), tmp_path / "e").run()
    )
    assert actual == [(bad["position"], None)]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("partition", {"mode": "AS_SYSTEM"}, "a stream cannot have mode AS_SYSTEM"),
        ("partition", {"endingOffsets": "latest"}, "endingOffsets is not for streams"),
        ("partition", {"view": "files"}, "cannot be followed"),
        ("partition", {"kafka.bootstrap.servers": "h:1"}, "files are read, not a broker"),
        ("partition", {"startingOfsets": "latest"}, "Did you mean 'startingOffsets'"),
        ("segment", {}, "only a directory can be followed"),
        ("database", {}, "a leveldb.db cannot be followed"),
        ("nothing", {}, "no such file"),
    ],
)
def test_invalid_streams_are_refused(
    spark: Any, tmp_path: Path, target: str, options: dict[str, str], message: str
) -> None:
    path = tmp_path / "orders-0"
    write(path, 0, 5)
    if target == "segment":
        (path,) = path.glob("*.log")
    elif target == "database":
        path = tmp_path / "db"
        lw.write([{"key": b"k", "value": b"v"}], path, "leveldb.db")
    elif target == "nothing":
        path = tmp_path / "nothing-0"
    with pytest.raises(Exception, match=message):
        Collected(stream(spark, path, **options), tmp_path / "c").run()
