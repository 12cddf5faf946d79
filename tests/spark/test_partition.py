"""Kafka partitions through Spark: written by tasks, read in splits, committed atomically."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.corpora.cases import cases

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")

CASES = cases("kafka")
ROWS = 3000


def rows(spark: Any, count: int = ROWS, parts: int = 3, first: int = 0) -> Any:
    f = functions
    header = "array<struct<key:string,value:binary>>"
    return spark.range(first, first + count, numPartitions=parts).select(
        f.when(f.col("id") % 7 > 0, f.concat(f.lit("k"), f.col("id"))).alias("key"),
        f.when(f.col("id") % 11 > 0, f.col("id").cast("string").cast("binary")).alias("value"),
        f.when(f.col("id") % 13 > 0, f.timestamp_millis(f.lit(1_700_000_000_000) + f.col("id"))).alias("timestamp"),
        f.when(f.col("id") % 5 == 0, f.array(f.struct(f.lit("h").alias("key"), f.lit(b"x").alias("value"))))
        .otherwise(f.expr("array()").cast(header)).cast(header).alias("headers"),
    )  # fmt: skip


def write(frame: Any, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("logwright").option("codec", "kafka.partition").options(**options).mode(mode).save(
        str(path)
    )


def read(spark: Any, path: Path | str, **options: Any) -> Any:
    return spark.read.format("logwright").options(**options).load(str(path))


def content(frame: Any) -> list[tuple[Any, ...]]:
    return in_order(frame.collect())


def in_order(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Return the content of rows by offset. Spark would read them twice to sort them."""
    return sorted(map(content_of, rows), key=lambda row: row[0])


def content_of(row: Any) -> tuple[Any, ...]:
    return (
        row["offset"], row["key"], row["value"], row["timestamp"], [tuple(header) for header in row["headers"]]
    )  # fmt: skip


def expected(count: int = ROWS, first: int = 0, offset: int = 0) -> list[tuple[Any, ...]]:
    import datetime

    start = datetime.datetime(1970, 1, 1)
    return [
        (
            offset + n - first,
            bytearray(b"k%d" % n) if n % 7 else None,
            bytearray(b"%d" % n) if n % 11 else None,
            start + datetime.timedelta(milliseconds=1_700_000_000_000 + n) if n % 13 else None,
            [("h", bytearray(b"x"))] if n % 5 == 0 else [],
        )
        for n in range(first, first + count)
    ]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_written_rows_are_read(spark: Any, tmp_path: Path, compression: str) -> None:
    target = tmp_path / "orders-0"
    write(
        rows(spark), target, **{"compression.type": compression, "segment.bytes": "20k", "batch.size": "2k"}
    )
    back = read(spark, target)
    assert [(f.name, f.dataType.simpleString()) for f in back.schema] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    read_rows = back.collect()
    assert in_order(read_rows) == expected()
    assert {(row["topic"], row["partition"]) for row in read_rows} == {("orders", 0)}
    assert lw.verify(target).ok
    assert left(tmp_path) == ["orders-0"]


def test_splits_inside_files_give_each_row_once(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    write(rows(spark, parts=1), target, **{"batch.size": "1k"})
    back = read(spark, target, maxPartitionBytes="16k")
    assert back.rdd.getNumPartitions() > 3
    assert content(back) == expected()
    assert content(read(spark, next(target.glob("*.log")), maxPartitionBytes="16k")) == expected()


def test_append_continues_a_partition_and_overwrite_replaces_only_one(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    write(rows(spark, 500), target)
    write(rows(spark, 400, first=500), target)
    assert content(read(spark, target)) == expected(900)
    write(rows(spark, 50), target, "overwrite")
    assert content(read(spark, target)) == expected(50)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    with pytest.raises(Exception, match=r"not empty and not a kafka\.partition|not the name of a partition"):
        write(rows(spark, 5), other, "overwrite")
    assert left(other) == ["precious"]
    assert left(tmp_path) == ["orders-0", "other"]


def test_offsets_are_kept_or_assigned(spark: Any, tmp_path: Path) -> None:
    f = functions
    kept = spark.range(0, 300, numPartitions=3).select(
        (f.col("id") * 2 + 10).alias("offset"), f.lit("v").alias("value")
    )
    write(kept, tmp_path / "kept-0")
    assert [
        r[0] for r in read(spark, tmp_path / "kept-0").select("offset").orderBy("offset").collect()
    ] == list(range(10, 610, 2))
    write(kept, tmp_path / "assigned-0", offsets="assign")
    assert read(spark, tmp_path / "assigned-0").agg(f.max("offset")).first()[0] == 299
    mixed = kept.withColumn("offset", functions.col("offset") % 100)
    with pytest.raises(Exception, match=r"offsets=assign|have to increase|assigned"):
        write(mixed, tmp_path / "mixed-0")
    assert left(tmp_path) == ["assigned-0", "kept-0"]


def test_each_view_has_its_records_batches_or_files(spark: Any) -> None:
    case = CASES["v2_txn_interleaved"]
    for committed, view in ((False, "read_uncommitted"), (True, "read_committed")):
        actual = sorted(r[0] for r in read(spark, case.partition, view=view).select("offset").collect())
        recorded = case.records(committed=committed)
        assert recorded is not None
        assert actual == [row["offset"] for row in recorded]
    assert read(spark, case.partition, view="log").count() == 70
    batches = read(spark, case.partition, view="batches")
    assert batches.filter("is_control").count() == 14
    files = read(spark, case.partition, view="files")
    assert files.filter("role = 'primary'").count() == len(list(case.partition.glob("*.log")))


def test_modes_on_a_damaged_copy(spark: Any) -> None:
    path = CASES["dmg_flip_payload"].partition
    assert read(spark, path, mode="DROPMALFORMED").count() == 95
    marked = read(spark, path, mode="PERMISSIVE", columnNameOfCorruptRecord="_bad")
    (bad,) = marked.filter("_corrupt_offset is not null").collect()
    assert (bad["_corrupt_offset"], bad["_corrupt_length"], bad["offset"], len(bad["_bad"])) == (
        327,
        125,
        None,
        125,
    )
    assert marked.count() == 96


def test_schema_selects_columns_and_refuses_unknown_ones(spark: Any, tmp_path: Path) -> None:
    write(rows(spark, 20), tmp_path / "orders-0")
    few = spark.read.format("logwright").schema("value binary, offset long").load(str(tmp_path / "orders-0"))
    assert few.columns == ["value", "offset"]
    assert few.filter("offset = 3").first()["value"] == bytearray(b"3")
    with pytest.raises(Exception, match="Did you mean 'offset'"):
        spark.read.format("logwright").schema("ofset long").load(str(tmp_path / "orders-0")).collect()
    meta = (
        read(spark, tmp_path / "orders-0", includeMetadata="true")
        .select("_path", "_position")
        .distinct()
        .collect()
    )
    assert min((os.path.basename(r[0]), r[1]) for r in meta) == (f"{0:020d}.log", 0)


def test_paths_may_be_lists_globs_and_folders(spark: Any, tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        write(rows(spark, 10, 1), tmp_path / name)
    load = spark.read.format("logwright").load
    assert load([str(tmp_path / "a-0"), str(tmp_path / "b-0")]).count() == 20
    assert load(str(tmp_path / "a-*")).count() == 20
    assert read(spark, tmp_path, recursiveFileLookup="true").count() == 30
    assert read(spark, tmp_path, recursiveFileLookup="true", pathGlobFilter="a-*").count() == 20
    missing = spark.read.format("logwright").schema("offset long").option("ignoreMissingFiles", "true")
    assert missing.load(str(tmp_path / "nowhere-0")).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segmnet": "1"}, "unknown option 'segmnet'"),
        ({"mode": "odd"}, "unknown mode"),
        ({"codec": "kafka.lgo"}, "Did you mean"),
    ],
)
def test_invalid_options_are_refused(spark: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        read(spark, CASES["v2_headers"].partition, **options)
    assert str(caught.value).count("\n") < 8, "one paragraph, no way through our code"


def test_wrong_types_are_reported_before_any_task(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="expected bytes or text"):
        write(spark.range(3).select(functions.col("id").alias("key")), tmp_path / "orders-0")
    assert left(tmp_path) == []


def test_failed_task_leaves_no_files(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    write(rows(spark, 30), target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    fails = spark.range(0, 100, numPartitions=4).select(
        functions.when(functions.col("id") == 90, functions.raise_error(functions.lit("no")))
        .otherwise(functions.lit("v"))
        .alias("value")
    )
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no"):
            write(fails, target, mode)
        assert {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()} == before
        assert left(tmp_path) == ["orders-0"]
    write(rows(spark, 10, first=30), target)
    assert content(read(spark, target)) == expected(40)


def test_retried_task_counts_once(spark: Any, tmp_path: Path) -> None:
    flag = tmp_path / "failed-once"

    def first_time_fails(batches: Any) -> Any:
        yield from batches
        if not flag.exists():
            (owner,) = tmp_path.glob("orders-0.*-delete/**/owner.json")
            flag.write_text(owner.read_text())
            raise RuntimeError("the first attempt fails behind its last row")

    frame = rows(spark, 200, 2)
    write(frame.mapInArrow(first_time_fails, frame.schema), tmp_path / "orders-0")
    assert content(read(spark, tmp_path / "orders-0")) == expected(200)
    # The leftovers of a killed driver name its process: the JVM, not the worker that planned the write.
    driver = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    assert json.loads(flag.read_text())["pid"] == driver


def test_one_of_two_attempts_is_committed(tmp_path: Path) -> None:
    from logwright.writers.staged import StagedWrite

    staged = StagedWrite(str(tmp_path / "orders-0"), "kafka.partition", "append")
    messages = []
    for attempt in (0, 1):
        task = staged.task(0, attempt)
        task.add(pa.record_batch({"value": [b"%d" % n for n in range(5)]}))
        messages.append(task.commit())
    staged.commit(messages[1:])
    assert lw.read(tmp_path / "orders-0")["value"].to_pylist() == [b"%d" % n for n in range(5)]
    assert left(tmp_path) == ["orders-0"]


def test_times_beyond_sparks_range(spark: Any, tmp_path: Path) -> None:
    far = pa.table({"value": [b"x", b"y"], "timestamp": pa.array([1 << 60, 5], pa.timestamp("ms", "UTC"))})
    lw.write(far, tmp_path / "far-0", "kafka.partition")
    actual = (
        read(spark, tmp_path / "far-0", columns="offset,timestamp,timestamp_ms").orderBy("offset").collect()
    )
    assert actual[0]["timestamp"] is None
    assert actual[0]["timestamp_ms"] == 1 << 60
    assert actual[1]["timestamp"].microsecond == 5000


def test_filters_are_pushed_down_if_enabled(spark: Any, tmp_path: Path) -> None:
    write(rows(spark, 1000, 1), tmp_path / "orders-0", **{"batch.size": "1k"})
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        actual = read(spark, tmp_path / "orders-0", pushFilters="true").filter(
            "offset >= 990 and offset < 995"
        )
        assert sorted(r["offset"] for r in actual.collect()) == [990, 991, 992, 993, 994]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_generated_rows_equal_the_manifest(spark: Any, tmp_path: Path) -> None:
    lw.generate("kafka.partition", tmp_path / "corpus-0", rows=200, seed=3, recipe="everything")
    expected = [
        json.loads(line)["offset"] for line in (tmp_path / "corpus-0.expected.jsonl").read_text().splitlines()
    ]
    shutil.rmtree(tmp_path / "corpus-0" / ".logwright", ignore_errors=True)
    assert sorted(r[0] for r in read(spark, tmp_path / "corpus-0").select("offset").collect()) == sorted(
        expected
    )
