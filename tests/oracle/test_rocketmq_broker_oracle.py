"""A real name server, broker, consumer and producer use stores that Spark wrote, and write some themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
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


def contents(home: Path, folder: str) -> list[bytes]:
    """Return the files of a folder in order. The names of index files are the times of their creation."""
    return [path.read_bytes() for path in sorted((home / folder).rglob("*")) if path.is_file()]


def test_queues_and_index_of_a_broker_with_every_kind_of_message_are_rebuilt_byte_for_byte(
    tmp_path: Path,
) -> None:
    """Single ones, batches, compressed ones, transactions of both ends, delay levels, messages that a consumer refused, and light topics."""
    reason = oracle.available()
    if reason:
        pytest.skip(reason)
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(
        [{"topic": "Orders", "queue_id": n, "body": b"x"} for n in range(4)], home, "rocketmq.store", **SIZES
    )
    options = {**SIZES, "messageDelayLevel": "1s 2s", "enableLmq": True}

    def messages(kind: str, count: int, size: int = 50, **properties: Any) -> list[dict[str, Any]]:
        return [
            {
                "topic": "Orders", "queue_id": n % 4, "tags": kind, "keys": f"{kind}{n} shared",
                "body": f"{kind} {n} ".encode().ljust(size, b"."), "properties": properties,
            }
            for n in range(count)
        ]  # fmt: skip

    with oracle.Broker(home, {**options, "enableMultiDispatch": True}) as broker:
        broker.produce(messages("single", 20))
        broker.produce(messages("large", 3, 8000))
        for row in range(4):
            broker.produce([{**message, "queue_id": row} for message in messages("batch", 5)], batch=True)
        broker.produce(messages("committed", 6), end="commit")
        broker.produce(messages("undone", 4), end="rollback")
        broker.produce(messages("late", 6, DELAY=1))
        broker.produce(messages("light", 8, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
        received = broker.consume("Orders", 70, refused=3)
    kinds = Counter(row["tags"] for row in received)
    sent = {None: 4, "single": 20, "large": 3, "batch": 20, "committed": 6, "late": 6, "light": 8}
    assert {kind: min(kinds[kind], count) for kind, count in sent.items()} == sent
    assert sum(kinds.values()) == sum(sent.values()) + 3
    report = lw.verify(home, **options)
    assert report.ok, report.text()
    topics = {row["topic"] for row in lw.read(home).to_pylist()}
    assert {"RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "%RETRY%oracle"} <= topics
    lw.rebuild(home, out, what=["consumequeue", "index"], **options)
    for folder in ("consumequeue", "index"):
        assert contents(out, folder) == contents(home, folder)
    assert {"%LMQ%a", "%LMQ%b"} <= {path.name for path in (out / "consumequeue").iterdir()}
