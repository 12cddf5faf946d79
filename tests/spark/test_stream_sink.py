"""A stream into a partition writes each row once, whichever process is killed at any time."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")
SCHEMA = "value string"


def feed(folder: Path, number: int, count: int = 20) -> None:
    """Add a file, which is one more micro-batch."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"value": f"{number}-{n}"}) for n in range(count)]
    part = folder.parent / f"{number}.part"
    part.write_text("\n".join(lines))
    os.utime(part, (number + 1, number + 1))
    part.rename(folder / f"{number}.json")


def fed(*numbers: int, count: int = 20) -> list[bytes]:
    return [b"%d-%d" % (number, n) for number in numbers for n in range(count)]


def lines(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(frame: Any, target: Path, source: str = "logwright", **options: Any) -> None:
    """Process all available rows, then end. Raise the error that ended the query."""
    checkpoint = target.parent / "checkpoint"
    writer = frame.writeStream.format(source).option("codec", "kafka.partition")
    writer = writer.options(**{"txnAppId": "feed", "checkpointLocation": str(checkpoint), **options})
    query = writer.trigger(availableNow=True).start(str(target))
    query.awaitTermination()


def values(target: Path) -> list[bytes]:
    actual: list[bytes] = lw.read(target)["value"].to_pylist()
    return actual


def left(target: Path) -> list[str]:
    return sorted(path.name for path in (target / ".logwright").iterdir())


def test_each_micro_batch_is_written_once(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    for number in range(3):
        feed(tmp_path / "in", number)
    run(lines(spark, tmp_path / "in"), target)
    assert values(target) == fed(0, 1, 2)
    feed(tmp_path / "in", 3)
    run(lines(spark, tmp_path / "in"), target)
    assert values(target) == fed(0, 1, 2, 3)
    assert left(target) == ["transactions.json"]
    record = json.loads((target / ".logwright" / "transactions.json").read_text())
    assert record["apps"]["feed"]["version"] == 3
    assert lw.verify(target).ok
    # Spark forgot that its last batch was done, as it does when it is killed right behind the commit.
    (tmp_path / "checkpoint" / "commits" / "3").unlink()
    (tmp_path / "checkpoint" / "commits" / ".3.crc").unlink(missing_ok=True)
    feed(tmp_path / "in", 4)
    run(lines(spark, tmp_path / "in"), target)
    assert values(target) == fed(0, 1, 2, 3, 4)


def test_new_checkpoint_needs_another_txn_app_id(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "orders-0"
    feed(tmp_path / "in", 0)
    run(lines(spark, tmp_path / "in"), target)
    with pytest.raises(Exception, match="another txnAppId"):
        run(lines(spark, tmp_path / "in"), target, checkpointLocation=str(tmp_path / "other"))
    assert values(target) == fed(0)
    run(lines(spark, tmp_path / "in"), target, checkpointLocation=str(tmp_path / "new"), txnAppId="again")
    assert values(target) == fed(0, 0)


def test_complete_output_mode_replaces_the_directory(spark: Any, tmp_path: Path) -> None:
    target = tmp_path / "sums-0"
    for number in range(2):
        feed(tmp_path / "in", number)
    sums = lines(spark, tmp_path / "in").groupBy(functions.substring("value", 1, 1).alias("key")).count()
    frame = sums.select("key", functions.col("count").cast("string").alias("value"))
    writer = frame.writeStream.format("logwright").option("codec", "kafka.partition").outputMode("complete")
    writer = writer.option("txnAppId", "sums").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(target)).awaitTermination()
    actual = {row["key"]: row["value"] for row in lw.read(target).to_pylist()}
    assert actual == {b"0": b"20", b"1": b"20"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"txnAppId": ""}, "a stream needs a name"),
        ({"txnVersion": "3"}, "a stream uses the number of its batch"),
        ({"segmnet.bytes": "3"}, "Did you mean 'segment.bytes'"),
        ({"codec": "kafka.lgo"}, "unknown layout|no layout|Did you mean"),
    ],
)
def test_invalid_options_are_refused(
    spark: Any, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    feed(tmp_path / "in", 0)
    with pytest.raises(Exception, match=message):
        run(lines(spark, tmp_path / "in"), tmp_path / "orders-0", **options)
    assert not (tmp_path / "orders-0").exists()


def test_failed_task_leaves_no_files(spark: Any, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0)
    run(lines(spark, tmp_path / "in"), tmp_path / "orders-0")
    feed(tmp_path / "in", 1)
    bad = functions.when(functions.col("value") == "1-7", functions.raise_error(functions.lit("no")))
    with pytest.raises(Exception, match="no"):
        run(lines(spark, tmp_path / "in").select(bad.otherwise(functions.col("value")).alias("value")), tmp_path / "orders-0")  # fmt: skip
    assert values(tmp_path / "orders-0") == fed(0)
    assert left(tmp_path / "orders-0") == ["transactions.json"]
    run(lines(spark, tmp_path / "in"), tmp_path / "orders-0")
    assert values(tmp_path / "orders-0") == fed(0, 1)


def test_repeated_batch_with_the_same_txn_version_is_written_once(spark: Any, tmp_path: Path) -> None:
    """As `foreachBatch` writes them: a repeated micro-batch is written once."""
    target = tmp_path / "orders-0"

    def put(first: int, version: int, mode: str = "append", app: str = "batches") -> None:
        frame = spark.range(first, first + 5, numPartitions=1).select(
            functions.col("id").cast("string").alias("value")
        )
        writer = frame.write.format("logwright").option("codec", "kafka.partition")
        writer.option("txnAppId", app).option("txnVersion", version).mode(mode).save(str(target))

    for version in (0, 0, 1, 1, 0):
        put(10 * version, version)
    assert values(target) == [b"%d" % n for n in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)]
    put(20, 2, "overwrite")
    put(20, 2, "overwrite")
    put(10, 1)
    assert values(target) == [b"%d" % n for n in range(20, 25)]
    put(30, 0, app="another")
    assert values(target) == [b"%d" % n for n in (*range(20, 25), *range(30, 35))]
    feed(tmp_path / "in", 0)

    def each(frame: Any, number: int) -> None:
        for _ in range(2):
            writer = frame.write.format("logwright").option("codec", "kafka.partition").mode("append")
            writer.option("txnAppId", "each").option("txnVersion", number).save(str(tmp_path / "each-0"))

    query = lines(spark, tmp_path / "in").writeStream.foreachBatch(each)
    query.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert values(tmp_path / "each-0") == fed(0)
    with pytest.raises(Exception, match="txnVersion is set without txnAppId"):
        spark.range(1).write.format("logwright").option("codec", "kafka.partition").option(
            "txnVersion", 1
        ).mode("append").save(str(target))


def dying(control: Path) -> type:
    """A sink that dies within its commit, at the change to the disk given in the file `control`."""
    from logwright.spark.source import DefaultSource
    from logwright.writers.filesystem import LocalFileSystem
    from logwright.writers.spark import StreamSink

    path = str(control)

    class DyingSink(StreamSink):
        def commit(self, messages: Any, batchId: int) -> None:
            with open(path) as file:
                left = [int(file.read())]

            def counted(name: str) -> Any:
                plain = getattr(LocalFileSystem, name)

                def call(self: Any, *args: Any) -> Any:
                    if left[0] == 0:
                        with open(path + ".died", "w") as file:
                            file.write(name)
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                    return plain(self, *args)

                setattr(LocalFileSystem, name, call)
                return lambda: setattr(LocalFileSystem, name, plain)

            undo = [
                counted(n)
                for n in (
                    "create",
                    "mkdir",
                    "rename",
                    "rename_new",
                    "exchange",
                    "remove",
                    "rmdir",
                    "sync_directory",
                )
            ]
            try:
                super().commit(messages, batchId)
            finally:
                for item in undo:
                    item()

    class Dying(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> StreamSink:
            return DyingSink(super().streamWriter(schema, overwrite)._write)

    return Dying


@pytest.mark.parametrize("each", [23, pytest.param(1, marks=pytest.mark.nightly)])
def test_driver_killed_during_the_commit_loses_and_repeats_no_row(
    spark: Any, tmp_path: Path, each: int
) -> None:
    """Killed at every change to the disk, in the first batch, which creates the directory, and in a later one, which appends."""
    control = tmp_path / "control"
    spark.dataSource.register(dying(control))
    outcomes = set()
    for there in (False, True):
        for step in range(0, 1000, each):
            folder = tmp_path / f"{there}-{step}"
            folder.mkdir()
            target = folder / "orders-0"
            feed(folder / "in", 0)
            if there:
                run(lines(spark, folder / "in"), target)
                feed(folder / "in", 1)
            control.write_text(str(step))
            died = Path(f"{control}.died")
            died.unlink(missing_ok=True)
            old, new = (fed(0), fed(0, 1)) if there else (None, fed(0))
            try:
                run(lines(spark, folder / "in"), target, "dying")
            except Exception:
                assert died.exists()
            if not died.exists():
                assert values(target) == new
                break
            actual = values(target) if target.exists() else None
            assert actual in (old, new), (there, step, died.read_text())
            outcomes.add(actual == new)
            run(lines(spark, folder / "in"), target)
            assert values(target) == new, (there, step, died.read_text())
            assert left(target) == ["transactions.json"]
            assert sorted(path.name for path in folder.iterdir()) == ["checkpoint", "in", "orders-0"]
            assert lw.verify(target).ok
    assert outcomes == {False, True}, "the sweep reaches over the step that decides"
