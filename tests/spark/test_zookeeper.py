"""ZooKeeper data directories through Spark: nodes staged by tasks as sorted runs and merged into one snapshot, edits as transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")

SYSTEM = {"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}


def frame(spark: Any, count: int, parts: int = 3, first: int = 0) -> Any:
    f = functions
    return spark.range(first, first + count, numPartitions=parts).select(
        f.format_string("/group-%02d/node-%06d", f.col("id") % 7, "id").alias("path"),
        f.concat(f.lit("v"), f.col("id")).cast("binary").alias("data"),
    )


def write(rows: Any, path: Path, mode: str = "append", **options: Any) -> None:
    rows.write.format("logwright").option("codec", "zookeeper.datadir").options(**options).mode(mode).save(
        str(path)
    )


def expected(count: int, first: int = 0) -> dict[str, bytes]:
    return {f"/group-{n % 7:02d}/node-{n:06d}": b"v%d" % n for n in range(first, first + count)}


def content(path: Path) -> dict[str, bytes]:
    table = lw.read(path, columns=["path", "data"])
    actual = dict(zip(table["path"].to_pylist(), table["data"].to_pylist(), strict=True))
    return {path: data for path, data in actual.items() if path not in SYSTEM and path.count("/") > 1}


def files(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "version-2").iterdir())


def test_shuffled_nodes_are_one_snapshot(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "zk"
    write(frame(spark, 5000, 3).orderBy(functions.rand(7)), target, sort_buffer_size="64k")
    assert files(target) == ["snapshot.0"]
    assert content(target) == expected(5000)
    assert lw.verify(target).ok
    assert [path.name for path in tmp_path.iterdir()] == ["zk"]
    lw.write(lw.read(target, columns=["path", "data"]), tmp_path / "again", "zookeeper.datadir")
    assert (tmp_path / "again" / "version-2" / "snapshot.0").read_bytes() == (
        target / "version-2" / "snapshot.0"
    ).read_bytes()


def test_append_updates_nodes_and_overwrite_replaces_the_directory(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "zk"
    write(frame(spark, 300), target)
    write(frame(spark, 200, first=300), target)
    write(frame(spark, 10, first=100).withColumn("data", functions.lit(b"new")), target)
    assert files(target) == ["log.1", "log.c9", "snapshot.0"]
    assert content(target) == {**expected(500), **dict.fromkeys(expected(10, 100), b"new")}
    write(frame(spark, 50), target, "overwrite", **{"snapshot.compression.method": "gz"})
    assert files(target) == ["snapshot.0.gz"]
    assert content(target) == expected(50)


def test_same_path_in_two_tasks(spark: Any, tmp_path: Path) -> None:
    twice = frame(spark, 100, 1).union(frame(spark, 40, 1).withColumn("data", functions.lit(b"again")))
    with pytest.raises(Exception, match="more than once"):
        write(twice, tmp_path / "zk")
    assert list(tmp_path.iterdir()) == []
    write(twice, tmp_path / "zk", onDuplicate="last")
    assert content(tmp_path / "zk") == {**expected(100), **dict.fromkeys(expected(40), b"again")}


def test_acls_kinds_and_sessions_of_nodes_are_written(spark: Any, tmp_path: Path) -> None:
    f = functions
    entry = f.struct(
        f.lit(1).alias("perms"),
        f.lit("ip").alias("scheme"),
        f.concat(f.lit("10.0.0."), f.col("id") % 3).alias("id"),
    )
    rows = spark.range(60, numPartitions=3).select(
        f.concat(f.lit("/n"), "id").alias("path"),
        f.array(entry).alias("acl"),
        f.when(f.col("id") % 2 == 0, "ephemeral").otherwise("container").alias("kind"),
        f.when(f.col("id") % 2 == 0, f.col("id") % 4 + 1).alias("ephemeral_owner"),
    )
    write(rows, tmp_path / "zk")
    actual = {row["path"]: row for row in lw.read(tmp_path / "zk" / "version-2" / "snapshot.0").to_pylist()}
    assert actual["/n5"]["acl"] == [{"perms": 1, "scheme": "ip", "id": "10.0.0.2"}]
    assert (actual["/n6"]["kind"], actual["/n6"]["ephemeral_owner"], actual["/n7"]["kind"]) == (
        "ephemeral",
        3,
        "container",
    )
    assert lw.read(tmp_path / "zk" / "version-2" / "snapshot.0", view="sessions")[
        "session_id"
    ].to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("column", "message"), [("relative", "is not a valid node path"), ("null", "is null")]
)
def test_invalid_paths_are_refused(spark: Any, tmp_path: Path, column: str, message: str) -> None:
    f = functions
    path = f.concat(f.lit("n"), "id") if column == "relative" else f.when(f.col("id") > 1, f.lit("/k"))
    with pytest.raises(Exception, match=message):
        write(spark.range(3).select(path.alias("path")), tmp_path / "zk")
    assert list(tmp_path.iterdir()) == []


def test_written_tree_is_read(spark: Any, tmp_path: Path) -> None:
    write(frame(spark, 400), tmp_path / "zk", write_as="logs")
    f = functions
    rows = (
        spark.read.format("logwright")
        .load(str(tmp_path / "zk"))
        .select("path", "data")
        .where(f.col("path").like("%node%"))
    )
    assert {row["path"]: bytes(row["data"]) for row in rows.collect()} == expected(400)
    txns = spark.read.format("logwright").option("view", "txns").load(str(tmp_path / "zk"))
    assert {row["type"]: row["count"] for row in txns.groupBy("type").count().collect()} == {"create": 407}
