"""RocketMQ stores through Spark: written by tasks, read in splits inside files, and followed by physical offset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright import spark_python

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")
SIZES = {
    "mappedFileSizeCommitLog": 1 << 15,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 1000,
}
NAMES = ["topic", "queue_id", "queue_offset", "physical_offset", "keys", "body"]


def frame(spark: Any, count: int, first: int = 0, parts: int = 3) -> Any:
    f = functions
    return spark.range(first, first + count, numPartitions=parts).select(
        f.concat(f.lit("T"), f.col("id") % 2).alias("topic"),
        (f.col("id") % 3).cast("int").alias("queue_id"),
        f.concat(f.lit("k"), f.col("id")).alias("keys"),
        f.concat(f.lit("message "), f.col("id")).cast("binary").alias("body"),
    )


def write(rows: Any, path: Path, mode: str = "append", **options: Any) -> None:
    rows.write.format("logwright").option("codec", "rocketmq.store").options(**SIZES, **options).mode(
        mode
    ).save(str(path))


def read(spark: Any, path: Path, **options: Any) -> list[dict[str, Any]]:
    rows = spark.read.format("logwright").options(**options).load(str(path)).select(*NAMES)
    return sorted((row.asDict() for row in rows.collect()), key=lambda row: row["physical_offset"])


def stored(path: Path) -> list[dict[str, Any]]:
    return lw.read(path, columns=NAMES).to_pylist()


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(bytes(row["body"]).split()[1]) for row in rows]


def test_offsets_are_assigned_at_the_commit(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "store"
    write(frame(spark, 600), home)
    write(frame(spark, 300, 600), home)
    rows = stored(home)
    assert sorted(numbers(rows)) == list(range(900))
    queues: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        queues.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    assert len(queues) == 6
    assert all(offsets == list(range(150)) for offsets in queues.values())
    report = lw.verify(home, as_system="5.5.0")
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["rows"] == 900
    assert len(list((home / "commitlog").iterdir())) > 2


def test_splits_inside_files_give_each_message_once(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "store"
    write(frame(spark, 900), home)
    assert (
        spark.read.format("logwright")
        .option("maxPartitionBytes", "4k")
        .load(str(home))
        .rdd.getNumPartitions()
        > 8
    )
    assert read(spark, home, maxPartitionBytes="4k") == [
        {**row, "body": bytearray(row["body"])} for row in stored(home)
    ]


def test_repeated_write_of_an_application_is_ignored(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "store"
    for _ in range(2):
        write(frame(spark, 50), home, txnAppId="load", txnVersion=7)
    assert len(stored(home)) == 50


class Collected:
    """Collects the micro-batches of a query, which continues from its checkpoint."""

    def __init__(self, rows: Any, folder: Path) -> None:
        self.rows, self.folder = rows, folder

    def run(self) -> list[list[int]]:
        """Return the numbers of all messages available now, by batch."""
        batches: list[list[int]] = []

        def each(rows: Any, _: int) -> None:
            batches.append(sorted(int(bytes(row["body"]).split()[1]) for row in rows.collect()))

        writer = self.rows.writeStream.foreachBatch(each).option("checkpointLocation", str(self.folder))
        writer.trigger(availableNow=True).start().awaitTermination()
        return batches


def test_growing_store_is_followed(spark: Any, tmp_path: Path) -> None:
    """The next commit log file may exist already, as in the store of a running broker."""
    home = tmp_path / "store"
    write(frame(spark, 200, parts=1), home)
    rows = (
        spark.readStream.format("logwright")
        .option("maxBytesPerTrigger", "16k")
        .load(str(home))
        .select("body")
    )
    reader = Collected(rows, tmp_path / "checkpoint")
    batches = reader.run()
    assert len(batches) > 1
    assert sorted(number for batch in batches for number in batch) == list(range(200))
    last = stored(home)[-1]["physical_offset"]
    offsets = max((tmp_path / "checkpoint" / "offsets").iterdir(), key=lambda file: file.name.zfill(9))
    assert json.loads(offsets.read_text().splitlines()[-1]) == {"store": last + 1}
    files = sorted((home / "commitlog").iterdir())
    after = home / "commitlog" / f"{int(files[-1].name) + SIZES['mappedFileSizeCommitLog']:020d}"
    after.write_bytes(bytes(SIZES["mappedFileSizeCommitLog"]))
    assert reader.run() == []
    after.unlink()
    for first in range(200, 800, 200):
        write(frame(spark, 200, first, parts=1), home)
        assert sorted(number for batch in reader.run() for number in batch) == list(range(first, first + 200))


def test_positions_limit_a_batch_read(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "store"
    write(frame(spark, 600), home)
    offsets = [row["physical_offset"] for row in stored(home)]
    rows = read(spark, home, startingPhysicalOffset=offsets[250], endingPhysicalOffset=offsets[500])
    assert [row["physical_offset"] for row in rows] == offsets[250:500]


def test_store_is_replayed_into_another(spark: Any, tmp_path: Path) -> None:
    """A repeated run of the job changes nothing."""
    from logwright.spark import replay

    source = tmp_path / "source"
    lw.write(
        [{"topic": f"T{n % 2}", "queue_id": n % 3, "body": b"message %d" % n} for n in range(300)],
        source,
        "rocketmq.store",
        **SIZES,
    )
    words = ["--from", source, "--to", tmp_path / "store", "--app", "copy", "--codec", "rocketmq.store"]
    words += [word for name, value in SIZES.items() for word in ("--option", f"{name}={value}")]
    job = replay.Job.of(replay.parser().parse_args([str(word) for word in words]))
    for _ in range(2):
        assert replay.run(spark, job) == 0
        assert stored(tmp_path / "store") == stored(source)
    report = lw.verify(tmp_path / "store", as_system="5.5.0")
    assert report.ok, report.text()


@pytest.mark.extended
def test_all_stores_of_a_cluster_are_repaired(tmp_path: Path) -> None:
    for name in ("one", "two"):
        lw.write(
            [{"topic": "T", "queue_id": 0, "body": b"message %d" % n} for n in range(300)],
            tmp_path / "from" / name,
            "rocketmq.store",
            **SIZES,
        )
    log = sorted((tmp_path / "from" / "two" / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    at = data.index(b"message 30")
    data[at : at + 8] = bytes(8)
    log.write_bytes(data)
    words = ["--from", tmp_path / "from", "--to", tmp_path / "to", "--report", tmp_path / "report.json"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark_python.executable()}
    command = [sys.executable, "-m", "logwright.spark.repair", *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr[-3000:]
    assert numbers(stored(tmp_path / "to" / "one")) == list(range(300))
    kept = [row for row in stored(tmp_path / "to" / "two") if row["body"]]
    assert numbers(kept) == [n for n in range(300) if n != 30]
    assert lw.verify(tmp_path / "to" / "two", as_system="5.5.0").ok
