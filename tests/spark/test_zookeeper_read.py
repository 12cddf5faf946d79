"""Data directories of ZooKeeper read through Spark: logs and snapshots in parts, the tree by one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from zookeeper_datadir import GOLDEN, copy, create, spoil, write_log

import logwright as lw

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")


def load(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("logwright").options(**options).load(str(path))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A snapshot of a few hundred nodes, and two logs."""
    folder = tmp_path / "version-2"
    folder.mkdir()
    nodes = [{"path": f"/app/n{i:04d}", "data": b"x" * 100} for i in range(500)]
    lw.write(nodes, folder / "snapshot.0", "zookeeper.snapshot")
    write_log(folder, [create(i, f"/app/m{i:04d}", b"y" * 100) for i in range(1, 301)])
    write_log(folder, [create(i, f"/app/m{i:04d}", b"z" * 100) for i in range(301, 501)])
    return tmp_path


def test_logs_are_read_in_parts(spark: Any, home: Path) -> None:
    loaded = load(spark, home, view="txns", maxPartitionBytes=8 << 10)
    assert loaded.rdd.getNumPartitions() > 4
    rows = [row.zxid for row in loaded.select("zxid").collect()]
    assert rows == list(range(1, 501))
    table = lw.read(home, view="txns")
    assert [row.asDict() for row in loaded.select("path", "data").collect()] == table.select(
        ["path", "data"]
    ).to_pylist()


def test_nodes_of_snapshots_are_read_in_parts(spark: Any, home: Path) -> None:
    loaded = load(spark, home, view="rows", maxPartitionBytes=8 << 10)
    assert loaded.rdd.getNumPartitions() > 4
    assert [row.path for row in loaded.select("path").collect()] == lw.read(home, view="rows").column(
        "path"
    ).to_pylist()


def test_tree_of_a_directory(spark: Any, home: Path) -> None:
    actual = load(spark, home, at_zxid="0x10").filter("path like '/app/m%'")
    assert sorted(row.path for row in actual.collect()) == [f"/app/m{i:04d}" for i in range(1, 17)]
    assert load(spark, home).count() == lw.read(home).num_rows == 1005


def test_history_of_a_path_and_sessions(spark: Any) -> None:
    where = GOLDEN / "sessions"
    assert load(spark, where, view="sessions").count() == 2
    rows = load(spark, where, view="history", path_prefix="/app/e2-0").collect()
    assert [row.type for row in rows] == ["create", "closeSession"]


def test_logs_in_data_log_dir(spark: Any) -> None:
    loaded = load(spark, GOLDEN / "split_dirs/data", dataLogDir=str(GOLDEN / "split_dirs/datalog"))
    assert loaded.count() == 5


def test_failfast_raises_permissive_marks_and_dropmalformed_omits_a_damaged_transaction(
    spark: Any, home: Path
) -> None:
    spoil(home / "version-2/log.1", 100)
    with pytest.raises(Exception, match=r"log\.1: at byte"):
        load(spark, home, view="txns").collect()
    assert load(spark, home, view="txns", mode="DROPMALFORMED").count() == 499
    loaded = load(spark, home, mode="PERMISSIVE")
    assert loaded.filter("_corrupt_record is not null").count() == 1
    assert loaded.filter("path is not null").count() == 1004


def test_mode_as_system_gives_the_servers_tree(spark: Any, tmp_path: Path) -> None:
    where = copy("dmg_flip_eor", tmp_path)
    assert load(spark, where, mode="AS_SYSTEM").count() == 18
    assert pa.types.is_int64(lw.scan(where, mode="AS_SYSTEM").schema.field("czxid").type)
