"""LevelDB databases through Spark: written by tasks as sorted runs, placed or merged, read back, and opened by LevelDB itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")
plyvel = pytest.importorskip("plyvel")


def frame(spark: Any, count: int, parts: int = 3, first: int = 0) -> Any:
    f = functions
    return spark.range(first, first + count, numPartitions=parts).select(
        f.format_string("k%08d", "id").alias("key"),
        f.concat(f.lit("v"), f.col("id")).cast("binary").alias("value"),
    )


def write(rows: Any, path: Path, mode: str = "append", **options: Any) -> None:
    rows.write.format("logwright").option("codec", "leveldb.db").options(**options).mode(mode).save(str(path))


def expected(count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k%08d" % n, b"v%d" % n) for n in range(first, first + count)]


def opened(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the rows of LevelDB's own iterator. It must find nothing to compact."""
    db = plyvel.DB(str(path))
    try:
        actual = list(db)
    finally:
        db.close()
    assert "ompact" not in (path / "LOG").read_text()
    return actual


def tables(path: Path) -> int:
    return len(list(path.glob("*.ldb")))


def test_sorted_task_outputs_are_used_unchanged(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "db"
    write(frame(spark, 3000, 3), target)
    assert tables(target) == 3
    assert opened(target) == expected(3000)
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_shuffled_rows_are_merged(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "db"
    write(
        frame(spark, 20_000, 2).orderBy(functions.rand(7)),
        target,
        compression="none",
        max_file_size="64k",
    )
    assert tables(target) > 5
    assert opened(target) == expected(20_000)


def test_append_adds_rows_and_overwrite_replaces_all(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "db"
    write(frame(spark, 500), target)
    write(frame(spark, 400, first=500), target)
    write(frame(spark, 10, first=100).withColumn("value", functions.lit("new")), target)
    changed = {b"k%08d" % n: b"new" for n in range(100, 110)}
    assert opened(target) == sorted({**dict(expected(900)), **changed}.items())
    db = plyvel.DB(str(target))
    assert db.get(b"k00000105") == b"new"
    db.close()
    write(frame(spark, 50), target, "overwrite")
    assert opened(target) == expected(50)


def test_same_key_in_two_tasks_is_refused_unless_the_last_wins(spark: Any, tmp_path: Path) -> None:
    twice = frame(spark, 300, 1).union(frame(spark, 100, 1).withColumn("value", functions.lit(b"again")))
    with pytest.raises(Exception, match="more than once"):
        write(twice, tmp_path / "db")
    assert list(tmp_path.iterdir()) == []
    write(twice, tmp_path / "db", onDuplicate="last")
    assert opened(tmp_path / "db") == [(b"k%08d" % n, b"again") for n in range(100)] + expected(200, 100)


def test_sequence_numbers_and_types_are_kept(spark: Any, tmp_path: Path) -> None:
    f = functions
    rows = spark.range(0, 600, numPartitions=3).select(
        f.format_string("k%03d", f.col("id") % 200).alias("key"),
        f.when(f.col("id") % 3 > 0, f.col("id").cast("string")).alias("value"),
        f.when(f.col("id") % 3 > 0, "value").otherwise("deletion").alias("type"),
        (f.col("id") + 1).alias("sequence"),
    )
    write(rows, tmp_path / "db")
    newest = {b"k%03d" % (n % 200): b"%d" % n if n % 3 else None for n in range(600)}
    assert opened(tmp_path / "db") == sorted((k, v) for k, v in newest.items() if v is not None)


@pytest.mark.parametrize(
    ("column", "message"), [("id", "expected bytes or text"), ("null", "the key is null")]
)
def test_invalid_keys_are_refused(spark: Any, tmp_path: Path, column: str, message: str) -> None:
    f = functions
    key = f.col("id") if column == "id" else f.when(f.col("id") > 1, f.lit("k"))
    with pytest.raises(Exception, match=message):
        write(spark.range(3).select(key.alias("key")), tmp_path / "db")
    assert list(tmp_path.iterdir()) == []


def content(rows: Any) -> list[tuple[bytes, bytes]]:
    return sorted((bytes(row["key"]), bytes(row["value"])) for row in rows.select("key", "value").collect())


def load(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("logwright").options(**options).load(str(path))


def test_key_ranges_are_read_by_separate_tasks(spark: Any, tmp_path: Path) -> None:
    """Tables that share no keys are separate tasks; newer tables belong to all of them."""
    target = tmp_path / "db"
    write(frame(spark, 5000, 2), target, compression="none", max_file_size="10k")
    write(frame(spark, 100, 1, 1000).withColumn("value", functions.lit("new")), target)
    back = load(spark, target, maxPartitionBytes="30k")
    assert back.rdd.getNumPartitions() > 3
    changed = {b"k%08d" % n: b"new" for n in range(1000, 1100)}
    assert content(back) == sorted({**dict(expected(5000)), **changed}.items())
    assert load(spark, target, view="history").count() == 5100
    assert back.filter("key = 'k00001050'").collect()[0]["value"] == b"new"


def test_each_mode_handles_a_damaged_table(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "db"
    write(frame(spark, 3000, 1), target, compression="none", max_file_size="20k")
    table = sorted(target.glob("*.ldb"))[1]
    data = bytearray(table.read_bytes())
    data[100] ^= 0x40
    table.write_bytes(data)
    rows = dict(expected(3000))
    with pytest.raises(Exception, match="checksum mismatch"):
        load(spark, target).count()
    kept = dict(content(load(spark, target, mode="DROPMALFORMED")))
    assert kept.items() < rows.items()
    assert len(kept) > 2500
    marked = load(spark, target, mode="PERMISSIVE")
    assert dict(content(marked.filter("_corrupt_offset is null"))) == kept
    (bad,) = marked.filter("_corrupt_offset is not null").collect()
    assert (bad["_corrupt_offset"], bad["key"]) == (0, None)
    served = dict(content(load(spark, target, mode="AS_SYSTEM")))
    assert served.keys() >= kept.keys()


@pytest.mark.nightly
def test_million_shuffled_rows_are_merged(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "db"
    write(frame(spark, 1_000_000, 4).orderBy(functions.rand(7)), target)
    assert opened(target) == expected(1_000_000)
    assert lw.read(target).num_rows == 1_000_000
