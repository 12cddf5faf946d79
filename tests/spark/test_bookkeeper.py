"""Bookies through Spark: written by tasks, appended to, read in splits inside entry logs, replayed and repaired."""

from __future__ import annotations

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
SIZES = {"logSizeLimit": 1 << 14}
NAMES = ["ledger_id", "entry_id", "last_add_confirmed", "length", "payload"]


def frame(spark: Any, count: int, ledgers: int = 3, first: int = 0, parts: int = 3) -> Any:
    f = functions
    return spark.range(count, numPartitions=parts).select(
        (first + f.col("id") % ledgers).alias("ledger_id"),
        f.floor(f.col("id") / ledgers).alias("entry_id"),
        f.concat(f.lit("entry "), f.col("id")).cast("binary").alias("payload"),
    )


def write(rows: Any, path: Path, mode: str = "append", **options: Any) -> None:
    writer = rows.write.format("logwright").option("codec", "bookkeeper.bookie")
    writer.options(**SIZES, **options).mode(mode).save(str(path))


def read(spark: Any, path: Path, **options: Any) -> list[dict[str, Any]]:
    rows = spark.read.format("logwright").options(**options).load(str(path)).select(*NAMES)
    return sorted(
        (row.asDict() for row in rows.collect()), key=lambda row: (row["ledger_id"], row["entry_id"])
    )


def stored(path: Path) -> list[dict[str, Any]]:
    return lw.read(path, columns=NAMES).to_pylist()


def check_opens(path: Path, rows: int) -> None:
    report = lw.verify(path, as_system="4.18.0")
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["opens"], report.system["error"]
    assert report.system["rows"] == rows


def test_rows_of_all_tasks_are_in_one_bookie(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    write(frame(spark, 900), home)
    write(frame(spark, 300, first=10), home)
    rows = stored(home)
    assert [(row["ledger_id"], row["entry_id"]) for row in rows] == [
        *((ledger, entry) for ledger in range(3) for entry in range(300)),
        *((ledger, entry) for ledger in range(10, 13) for entry in range(100)),
    ]
    assert all(row["payload"] == b"entry %d" % (row["entry_id"] * 3 + row["ledger_id"] % 10) for row in rows)
    check_opens(home, 1200)
    assert len(list(home.glob("ledger/current/*.log"))) > 3


def test_splits_inside_entry_logs_give_each_entry_once(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    write(frame(spark, 900), home)
    rows = [{**row, "payload": bytearray(row["payload"])} for row in stored(home)]
    options = {"maxPartitionBytes": "4k", "view": "entrylog"}
    loaded = spark.read.format("logwright").options(**options).load(str(home))
    assert loaded.rdd.getNumPartitions() > 2 * len(list(home.glob("ledger/current/*.log")))
    assert read(spark, home, **options) == rows
    assert read(spark, home, maxPartitionBytes="4k") == rows


@pytest.mark.extended
def test_new_entries_of_a_bookie_are_followed(spark: Any, tmp_path: Path) -> None:
    home, batches = tmp_path / "bookie", []
    write(frame(spark, 90, parts=1), home)
    loaded = spark.readStream.format("logwright").option("maxBytesPerTrigger", "1k")
    rows = loaded.option("view", "entrylog").load(str(home)).select("ledger_id", "entry_id")
    for first, count in ((0, 90), (10, 60)):
        if first:
            write(frame(spark, count, first=first, parts=1), home)
        batches.clear()
        writer = rows.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()
        assert len(batches) > 1
        assert sorted(tuple(row) for batch in batches for row in batch) == [
            (ledger, entry) for ledger in range(first, first + 3) for entry in range(count // 3)
        ]


def test_repeated_write_of_an_application_is_ignored(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    for _ in range(2):
        write(frame(spark, 60), home, txnAppId="load", txnVersion=7)
    assert len(stored(home)) == 60


def test_existing_entry_is_not_written_again(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    write(frame(spark, 60), home)
    with pytest.raises(Exception, match="already has entry 0"):
        write(frame(spark, 3), home)
    assert len(stored(home)) == 60


def test_bookie_is_replayed_into_another(spark: Any, tmp_path: Path) -> None:
    """Entries that only the journals have are in the copy too. A repeated run of the job changes nothing."""
    from logwright.spark import replay

    source = tmp_path / "source"
    output = lw.generate("bookkeeper.bookie", source, rows=200, seed=3, recipe="mixed")
    lw.edit(
        source, tmp_path / "from", drop="ledger_id in (258, 770, 3, 515)", **output.manifest["read_options"]
    )
    words = [
        "--from",
        tmp_path / "from",
        "--to",
        tmp_path / "bookie",
        "--app",
        "copy",
        "--codec",
        "bookkeeper.bookie",
    ]
    job = replay.Job.of(replay.parser().parse_args([str(word) for word in words]))
    for _ in range(2):
        assert replay.run(spark, job) == 0
        assert stored(tmp_path / "bookie") == stored(tmp_path / "from")
    check_opens(tmp_path / "bookie", len(stored(tmp_path / "from")))


@pytest.mark.extended
def test_all_bookies_of_a_cluster_are_repaired(tmp_path: Path) -> None:
    for name in ("one", "two"):
        lw.write(
            [{"ledger_id": 5, "entry_id": n, "payload": b"entry %d" % n} for n in range(300)],
            tmp_path / "from" / name,
            "bookkeeper.bookie",
        )
    log = tmp_path / "from/two/ledger/current/0.log"
    data = bytearray(log.read_bytes())
    at = data.index(b"entry 30")
    data[at : at + 8] = bytes(8)
    log.write_bytes(data)
    words = ["--from", tmp_path / "from", "--to", tmp_path / "to", "--report", tmp_path / "report.json"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark_python.executable()}
    command = [sys.executable, "-m", "logwright.spark.repair", *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr[-3000:]
    assert [row["entry_id"] for row in stored(tmp_path / "to" / "one")] == list(range(300))
    assert [row["entry_id"] for row in stored(tmp_path / "to" / "two")] == [n for n in range(300) if n != 30]
    check_opens(tmp_path / "to" / "two", 299)
