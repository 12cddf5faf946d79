"""A real name server, broker, consumer and producer use a store that Spark wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright import spark_python
from logwright.roundtrip.oracles import rocketmq_broker as oracle

pytestmark = [pytest.mark.oracle, pytest.mark.spark]
COUNT = 900
SIZES = {
    "mappedFileSizeCommitLog": 1 << 15,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 1000,
}


WRITE = """
import sys
from pyspark.sql import SparkSession, functions as f
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate())
frame = spark.range(0, int(sys.argv[2]), numPartitions=3).select(
    f.lit("Orders").alias("topic"), (f.col("id") % 3).cast("int").alias("queue_id"), f.lit("a").alias("tags"),
    f.concat(f.lit("k"), f.col("id")).alias("keys"), f.concat(f.lit("message "), f.col("id")).cast("binary").alias("body"))
writer = frame.write.format("logwright").option("codec", "rocketmq.store").mode("append")
for option in sys.argv[3:]:
    writer = writer.option(*option.split("="))
writer.save(sys.argv[1])
spark.stop()
"""


def test_broker_serves_and_continues_a_store_that_spark_wrote(tmp_path: Path) -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)
    home = tmp_path / "store"
    options = [f"{name}={value}" for name, value in SIZES.items()]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark_python.executable()}
    subprocess.run(
        [sys.executable, "-c", WRITE, str(home), str(COUNT), *options],
        check=True,
        env=env,
        capture_output=True,
    )
    written = lw.read(home).to_pylist()
    with oracle.Broker(home, {**SIZES, "commitLogRecoverMaxNum": 1000}) as broker:
        consumed = broker.consume("Orders", COUNT)
        more = [
            {"topic": "Orders", "queue_id": n % 3, "tags": "b", "keys": f"n{n}", "body": b"new %d" % n}
            for n in range(60)
        ]
        offsets = broker.produce(more)
        continued = broker.consume("Orders", COUNT + 60, "another")
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "tags", "keys", "body")
    assert ordered(consumed, names) == ordered(written, names)
    assert offsets == [COUNT // 3 + n // 3 for n in range(60)]
    report = lw.verify(home)
    assert report.ok, report.text()
    after = [row for row in lw.read(home, columns=list(names)).to_pylist() if row["topic"] == "Orders"]
    assert ordered(after, names) == ordered(continued, names)
    assert {row["body"] for row in after} == {row["body"] for row in [*written, *more]}


def ordered(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    return sorted(
        ([row[name] for name in names] for row in rows),
        key=lambda values: values[names.index("physical_offset")],
    )
