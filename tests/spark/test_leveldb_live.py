"""LevelDB databases read by Spark: splits by key range give each row once, and damage is reported once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from leveldb_db import Database, Op

import logwright as lw
from logwright.codec.leveldb.names import log_name, table_name

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two levels over the same keys, level 0 and a log."""
    result = Database()
    for level, step in ((0, 30), (1, 7), (2, 1)):
        keys = range(0, 900, step)
        for part in range(1 if level == 0 else 3):
            subset = [n for n in keys if level == 0 or n // 300 == part]
            ops = [
                Op(b"key%04d" % n, 9000 - 2000 * level + n, None if n % 11 == level else b"%d" % level)
                for n in subset
            ]
            result.tables.append((level, 10 + 3 * level + part, ops))
    result.logs[9] = [Op(b"key%04d" % n, 20_000 + n, b"log") for n in range(0, 900, 100)]
    return result.write(tmp_path_factory.mktemp("spark") / "db")


def load(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("logwright").options(**options).load(str(path))


def pairs(frame: Any) -> list[tuple[bytes, bytes]]:
    return sorted((bytes(row["key"]), bytes(row["value"])) for row in frame.select("key", "value").collect())


@pytest.mark.parametrize("size", ["1", "8k", "128m"])
def test_key_ranges_are_separate_tasks(spark: Any, database: Path, size: str) -> None:
    frame = load(spark, database, maxPartitionBytes=size)
    assert (frame.rdd.getNumPartitions() > 1) == (size != "128m")
    rows = lw.read(database)
    assert pairs(frame) == list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert frame.select("type").distinct().count() == 1
    assert frame.count() == len(rows)


def test_history_view_has_the_states_of_a_read_and_the_path(spark: Any, database: Path) -> None:
    history = load(spark, database, view="history", includeMetadata="true", maxPartitionBytes="8k")
    states = {row["state"]: row["count"] for row in history.groupBy("state").count().collect()}
    own = lw.read(database, view="history")["state"].to_pylist()
    assert states == {name: own.count(name) for name in set(own)}
    assert {row["_path"] for row in history.select("_path").distinct().collect()} == {str(database)}


def test_damaged_copy_in_every_mode(spark: Any, database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "db"
    copy.mkdir()
    for path in database.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    for name, at in ((log_name(9), 20), (table_name(17), 300)):
        data = bytearray((copy / name).read_bytes())
        data[at] ^= 1
        (copy / name).write_bytes(data)
    with pytest.raises(Exception, match="checksum"):
        load(spark, copy, maxPartitionBytes="8k").count()
    with pytest.warns(lw.DamageWarning, match="DAMAGED"):
        sound = lw.read(copy, mode="DROPMALFORMED")
    dropped = load(spark, copy, mode="DROPMALFORMED", maxPartitionBytes="8k")
    assert pairs(dropped) == list(zip(sound["key"].to_pylist(), sound["value"].to_pylist(), strict=True))
    loose = load(spark, copy, mode="PERMISSIVE", maxPartitionBytes="8k", columns="key,value")
    holes = loose.where("_corrupt_length is not null").collect()
    assert len(holes) == 2
    assert loose.count() == len(sound) + 2
