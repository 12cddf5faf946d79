"""A real broker serves partitions written by Spark, and starts next to the leftovers of a killed writer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright import spark_python
from logwright.roundtrip.oracles.kafka_broker import NODE

pytestmark = [pytest.mark.oracle, pytest.mark.spark]

WRITE = """
import sys
from pyspark.sql import SparkSession, functions as f
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate())
frame = spark.range(0, 5000, numPartitions=3).select(
    f.concat(f.lit("key-"), f.col("id")).alias("key"), f.repeat(f.col("id").cast("string"), 5).alias("value"),
    f.timestamp_millis(f.lit(1_700_000_000_000) + f.col("id")).alias("timestamp"))
(frame.write.format("logwright").option("codec", "kafka.partition").option("segment.bytes", "20k").option("batch.size", "4k")
 .option("compression.type", "lz4").mode("append").save(sys.argv[1]))
spark.stop()
"""


def test_broker_serves_partitions_written_by_spark(broker: Any, kafka: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark_python.executable()}
    subprocess.run([sys.executable, "-c", WRITE, str(target)], check=True, env=env, capture_output=True)
    assert len(list(target.glob("*.log"))) > 3
    assert kafka.sanity(target) == []
    broker.place(target, configs={"retention.ms": "-1"})
    broker.start()
    actual = broker.consume("orders")
    assert [r["offset"] for r in actual] == list(range(5000))
    assert [r["key"] for r in actual] == [b"key-%d" % n for n in range(5000)]
    assert [r["value"] for r in actual] == [b"%d" % n * 5 for n in range(5000)]
    assert [r["timestamp"] for r in actual] == [1_700_000_000_000 + n for n in range(5000)]
    rows = lw.read(target, columns=["offset", "key", "value"]).to_pylist()
    assert [(r["offset"], r["key"], r["value"]) for r in actual] == [tuple(row.values()) for row in rows]


def test_broker_starts_next_to_staged_files(broker: Any, tmp_path: Path) -> None:
    """With an uncommitted new partition and an uncommitted append, the broker serves the old rows."""
    from logwright.writers.staged import StagedWrite

    old = tmp_path / "orders-0"
    lw.write(pa.table({"value": [b"old %d" % n for n in range(50)]}), old, "kafka.partition")
    broker.place(old, configs={"retention.ms": "-1"})
    served = broker.partition_dir("orders")
    for target, mode in ((served, "append"), (served.parent / "other-0", "append")):
        write = StagedWrite(str(target), "kafka.partition", mode)
        task = write.task(0, 0)
        task.add(pa.record_batch({"value": [b"new"] * 20}))
        task.commit()
    assert any(
        path.name.startswith("other-0.") and path.name.endswith("-delete") for path in served.parent.iterdir()
    )
    broker.start()
    assert [r["value"] for r in broker.consume("orders")] == [b"old %d" % n for n in range(50)]
    broker.stop()
    shutil.rmtree(tmp_path / "orders-0")


LOG_DIRECTORY = """
import sys
from pyspark.sql import SparkSession, functions as f
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate())
frame = spark.range(0, 3000, numPartitions=3).select(
    f.when(f.col("id") % 3 == 0, "payments.eu").otherwise("orders").alias("topic"), (f.col("id") % 2).cast("int").alias("partition"),
    f.concat(f.lit("key-"), f.col("id")).alias("key"), f.repeat(f.col("id").cast("string"), 5).alias("value"),
    f.timestamp_millis(f.lit(1_700_000_000_000) + f.col("id")).alias("timestamp"))
(frame.write.format("logwright").option("codec", "kafka.logdir").option("segment.bytes", "20k").option("batch.size", "4k")
 .option("compression.type", "zstd").option("cluster.id", sys.argv[2]).option("node.id", sys.argv[3]).mode("append").save(sys.argv[1]))
spark.stop()
"""


def test_broker_starts_on_a_log_directory_written_by_spark(broker: Any, tmp_path: Path) -> None:
    target = tmp_path / "logs"
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark_python.executable()}
    command = [sys.executable, "-c", LOG_DIRECTORY, str(target), broker.cluster_id, str(NODE)]
    subprocess.run(command, check=True, env=env, capture_output=True)
    served = broker.place_log_directory(target)
    assert sorted(served) == [("orders", 0), ("orders", 1), ("payments.eu", 0), ("payments.eu", 1)]
    broker.start()
    for topic, partition in served:
        ids = [
            n for n in range(3000)
            if n % 2 == partition and ("payments.eu" if n % 3 == 0 else "orders") == topic
        ]  # fmt: skip
        actual = broker.consume(topic, partition=partition)
        assert [r["offset"] for r in actual] == list(range(len(ids)))
        assert [r["key"] for r in actual] == [b"key-%d" % n for n in ids]
        assert [r["timestamp"] for r in actual] == [1_700_000_000_000 + n for n in ids]
    lines = broker.log_lines("orders", 1)
    assert not [line for line in lines if line.startswith(("WARN", "ERROR"))], lines


def test_broker_serves_a_log_directory_after_an_append(broker: Any, tmp_path: Path) -> None:
    target = tmp_path / "logs"
    rows = pa.table(
        {"topic": ["a", "b", "a"] * 20, "partition": [0, 0, 1] * 20, "value": [b"%d" % n for n in range(60)]}
    )
    lw.write(rows, target, "kafka.logdir", segment_bytes=400, batch_size=200, cluster_id=broker.cluster_id, node_id=NODE)  # fmt: skip
    lw.write(rows, target, "kafka.logdir", mode="append")
    broker.place_log_directory(target)
    broker.start()
    for topic, partition, first in (("a", 0, 0), ("b", 0, 1), ("a", 1, 2)):
        expected = [b"%d" % n for n in range(first, 60, 3)] * 2
        assert [r["value"] for r in broker.consume(topic, partition=partition)] == expected
