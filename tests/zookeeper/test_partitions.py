"""Spark partitions: ranges of logs and uncompressed snapshots give each row once; a tree is one task (`materialize` says why)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import logwright as lw
from logwright.readers.spark import SparkSource
from logwright.readers.spark_request import Request
from logwright.readers.spark_schema import schema_of
from logwright.roundtrip import laws

CASES = Path(__file__).resolve().parents[2] / "corpora/golden/zookeeper"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot and three logs, some hundred kB each."""
    place = tmp_path_factory.mktemp("zk")
    rows = [{"path": f"/a/{i % 9}/{i}", "data": bytes([i % 256]) * (i % 700)} for i in range(1500)]
    lw.write(rows, place, "zookeeper.datadir", zxid=7)
    changes = [
        {"type": "setData", "path": row["path"], "data": b"-" + bytes(i % 400)} for i, row in enumerate(rows)
    ]
    lw.write(changes, place, "zookeeper.datadir", mode="append", txnLogSizeLimitInKb=150)
    return place


def partitions(path: Path, **options: Any) -> tuple[int, pa.Table]:
    """Return the number of partitions and their rows, read after pickling."""
    asked = Request.of({"path": str(path), **{name: str(value) for name, value in options.items()}})
    expected = schema_of(asked)
    reader = pickle.loads(pickle.dumps(SparkSource(asked, expected)))
    parts = [pickle.loads(pickle.dumps(partition)) for partition in reader.partitions()]
    batches = [batch for part in parts for batch in reader.read(part)]
    return len(parts), pa.Table.from_batches(batches, to_arrow_schema(expected, timezone="UTC"))


@pytest.mark.alike
@pytest.mark.parametrize("size", [1, 999, 20_000, 60_000])
def test_log_partitions_give_each_transaction_once(directory: Path, size: int) -> None:
    table = lw.read(directory, view="txns", columns=["zxid", "path", "data"])
    count, actual = partitions(directory, view="txns", columns="zxid,path,data", maxPartitionBytes=size)
    logs = len(list((directory / "version-2").glob("log.*")))
    assert logs > 2
    assert count > max(logs, 400_000 // max(size, 500))
    assert actual.to_pylist() == table.to_pylist()
    assert actual["zxid"].to_pylist() == list(range(8, 1508))


@pytest.mark.alike
@pytest.mark.parametrize("size", [1, 999, 20_000, 60_000])
def test_snapshot_partitions_give_each_node_once(directory: Path, size: int) -> None:
    (snapshot,) = (directory / "version-2").glob("snapshot.*")
    table = lw.read(snapshot, columns=["path", "data"])
    count, actual = partitions(snapshot, columns="path,data", maxPartitionBytes=size)
    assert count > 400_000 // max(size, 500)
    assert actual.to_pylist() == table.to_pylist()


def test_tree_is_a_single_partition(directory: Path) -> None:
    count, actual = partitions(directory, columns="path,data", maxPartitionBytes=1000)
    assert count == 1
    assert actual.num_rows == lw.read(directory).num_rows


@pytest.mark.parametrize(
    ("name", "most"), [("basic/version-2/log.1", 160), pytest.param("multi/version-2/log.1", 3000, marks=pytest.mark.nightly),
                       ("basic/version-2/snapshot.0", 160), pytest.param("acls/version-2/snapshot.0", 2000, marks=pytest.mark.nightly)]
)  # fmt: skip
def test_partitions_split_at_any_byte(name: str, most: int) -> None:
    verdict = laws.any_split(CASES / name, sizes=range(1, most))
    assert verdict, verdict
