"""Stream source and sink without Spark: calls the code its workers run. `tests/spark` runs Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import LogwrightError, NotFoundError, UsageError

pytest.importorskip("pyspark")
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from logwright.readers.spark_stream import StreamSource
from logwright.spark.source import DefaultSource
from logwright.writers import spark as sink
from logwright.writers.spark import DoneAlready, SparkSink, StreamSink

SCHEMA = from_arrow_schema(pa.schema({"value": pa.binary()}))


def write(path: Path, first: int, count: int) -> None:
    values = [b"%d" % n for n in range(first, first + count)]
    lw.write(pa.table({"value": values}), path, "kafka.partition", mode="append", batch_size="300", segment_bytes="2k")  # fmt: skip


def data_source(path: Path | str, **options: Any) -> DefaultSource:
    return DefaultSource({"path": str(path), **{name.lower(): str(value) for name, value in options.items()}})


def follow(path: Path | str, **options: Any) -> StreamSource:
    item = data_source(path, **options)
    schema: Any = item.schema()
    return item.streamReader(schema)


def offsets(reader: StreamSource, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Read with tasks, each pickled as for another process."""
    tasks = [pickle.loads(pickle.dumps(partition)) for partition in reader.partitions(start, end)]
    there = pickle.loads(pickle.dumps(reader))
    return [n for task in tasks for batch in there.read(task) for n in batch.column("offset").to_pylist()]


def test_micro_batches_follow_a_growing_partition(tmp_path: Path) -> None:
    path = tmp_path / "a-0"
    write(path, 0, 100)
    reader = follow(path, maxOffsetsPerTrigger=30)
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    start = reader.initialOffset()
    assert start == {"a-0": 0}
    assert reader.reportLatestOffset() == {"a-0": 100}
    seen: list[int] = []
    for _ in range(4):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        seen += offsets(reader, start, end)
        reader.commit(end)
        start = end
    assert seen == list(range(100))
    assert reader.latestOffset(start, ReadMaxRows(30)) == start
    assert reader.partitions(start, start) == []
    write(path, 100, 50)
    assert reader.latestOffset(start, ReadAllAvailable()) == {"a-0": 150}
    reader.stop()


def test_schema_of_a_path_that_appears_later_has_the_types_that_options_choose(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    payloads = {"value.format": "avro", "value.schema": tmp_path / "order.avsc", "value.as": "struct"}
    words = {**payloads, "codec": "kafka.partition", "ignoreMissingFiles": True}
    before = data_source(tmp_path / "a-0", **words).schema()
    lw.write([{"value": {"id": 1}}], tmp_path / "a-0", "kafka.partition", **payloads)
    assert before == data_source(tmp_path / "a-0", **words).schema()


def test_bytes_and_files_per_trigger_limit_a_batch(tmp_path: Path) -> None:
    write(tmp_path / "a-0", 0, 400)
    for words, limit in (
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxFilesPerTrigger": 1}, ReadMaxFiles(1)),
        ({}, ReadAllAvailable()),
    ):
        reader = follow(tmp_path / "a-0", **words)
        assert reader.getDefaultReadLimit() == limit
        end = reader.latestOffset({"a-0": 0}, limit)["a-0"]
        assert end == 400 if not words else 0 < end < 400


def test_available_now_ends_with_the_rows_present_at_its_start(tmp_path: Path) -> None:
    """`Trigger.AvailableNow`: rows and partitions that arrive meanwhile are left to the next run."""
    write(tmp_path / "a-0", 0, 10)
    reader = follow(tmp_path, subscribe="a", startingOffsets="earliest", minOffsetsPerTrigger=1000)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path / "a-0", 10, 10)
    write(tmp_path / "a-1", 0, 10)
    assert reader.latestOffset({"a-0": 3}, ReadAllAvailable()) == {"a-0": 10}
    assert reader.latestOffset({"a-0": 12, "a-1": 4}, ReadAllAvailable()) == {"a-0": 12, "a-1": 4}


def test_stream_waits_for_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    write(tmp_path / "a-0", 0, 10)
    reader = follow(tmp_path / "a-0", minOffsetsPerTrigger=20, maxTriggerDelay="30s")
    assert reader.latestOffset({"a-0": 0}, ReadAllAvailable()) == {"a-0": 0}
    clock[0] += 30
    assert reader.latestOffset({"a-0": 0}, ReadAllAvailable()) == {"a-0": 10}
    write(tmp_path / "a-0", 10, 25)
    assert reader.latestOffset({"a-0": 10}, ReadAllAvailable()) == {"a-0": 35}


def test_stream_starts_before_its_directory_exists(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        follow(tmp_path / "none")
    write(tmp_path / "b-0", 0, 3)
    with pytest.raises(UsageError, match="nothing there matches subscribe: it has b-0"):
        follow(tmp_path, subscribe="a")
    with pytest.raises(NotFoundError, match="Set the format"):
        data_source(tmp_path, subscribe="a").streamReader(SCHEMA)
    reader = follow(tmp_path, subscribe="a", codec="kafka.partition", includeHeaders="false")
    assert reader.initialOffset() == {}
    write(tmp_path / "a-0", 0, 3)
    assert reader.latestOffset({}, ReadAllAvailable()) == {"a-0": 3}
    assert offsets(reader, {}, {"a-0": 3}) == [0, 1, 2]


def test_invalid_stream_options_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a-0", 0, 3)
    lw.write([{"key": b"k", "value": b"v"}], tmp_path / "db", "leveldb.db")
    (segment,) = (tmp_path / "logs" / "a-0").glob("*.log")
    for path, words, message in (
        (tmp_path / "logs" / "a-0", {"mode": "AS_SYSTEM"}, "a stream cannot have mode AS_SYSTEM"),
        (segment, {}, "only a directory can be followed"),
        (tmp_path / "db", {}, r"leveldb\.db cannot be followed"),
        (tmp_path / "db", {"subscribe": "x"}, "has no option subscribe"),
        (tmp_path / "logs" / "a-0", {"startingOfsets": "x"}, "Did you mean 'startingOffsets'"),
    ):
        with pytest.raises(UsageError, match=message):
            follow(path, **words)
    both = {"paths": json.dumps([str(tmp_path / "logs" / "a-0"), str(tmp_path / "db")])}
    with pytest.raises(UsageError, match="different layouts"):
        DefaultSource(both).streamReader(SCHEMA)
    with pytest.raises(UsageError, match="cannot be combined with mode=AS_SYSTEM"):
        data_source(tmp_path / "logs", subscribe="a", mode="AS_SYSTEM").schema()
    lw.write([{"key": b"k", "value": b"v"}], tmp_path / "folder" / "db", "leveldb.db")
    with pytest.raises(UsageError, match="cannot be followed"):
        follow(tmp_path / "folder")


def test_replica_is_chosen_for_a_stream(tmp_path: Path) -> None:
    write(tmp_path / "x" / "a-0", 0, 3)
    shutil.copytree(tmp_path / "x" / "a-0", tmp_path / "y" / "a-0")
    write(tmp_path / "y" / "a-0", 3, 2)
    paths = json.dumps([str(tmp_path / disk / "a-0") for disk in ("x", "y")])
    with pytest.raises(UsageError, match="found 2 times"):
        DefaultSource({"paths": paths}).streamReader(SCHEMA).initialOffset()
    longest = DefaultSource({"paths": paths, "replicas": "longest"}).streamReader(SCHEMA)
    assert longest.latestOffset({}, ReadAllAvailable()) == {"a-0": 5}


def test_starting_offsets_limit_a_batch_read(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        write(tmp_path / name, 0, 200)
    item = data_source(
        tmp_path,
        subscribe="a",
        startingOffsets='{"a": {"0": 5, "1": -1}}',
        minPartitions=4,
        pushFilters="true",
    )
    schema: Any = item.schema()
    reader = item.reader(schema)
    assert len(reader.partitions()) >= 2
    from pyspark.sql.datasource import LessThan

    assert list(reader.pushFilters([LessThan(("offset",), 9)])) == [LessThan(("offset",), 9)]
    actual = [
        n
        for part in reader.partitions()
        for batch in reader.read(part)
        for n in batch.column("offset").to_pylist()
    ]
    assert actual == [5, 6, 7, 8]


class Context:
    def __init__(self, task: int) -> None:
        self._task = task

    def partitionId(self) -> int:
        return self._task

    def taskAttemptId(self) -> int:
        return 7

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": "one"}.get(name)


def stream_batch(target: Path, number: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Run one micro-batch as Spark does."""
    writer = data_source(
        target, codec="kafka.partition", txnAppId="app", checkpointLocation="/x", **options
    ).streamWriter
    planned = pickle.loads(pickle.dumps(writer(SCHEMA, overwrite=False)))
    messages = []
    for task in (1, 0):
        monkeypatch.setattr(sink.TaskContext, "get", lambda task=task: Context(task))
        messages.append(planned.write(iter([pa.record_batch({"value": [b"%d-%d" % (number, task)]})])))
    writer(SCHEMA, overwrite=False).commit([*pickle.loads(pickle.dumps(messages)), None], number)


def test_stream_sink_writes_each_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a-0"
    for number in (0, 0, 1, 1, 0):
        stream_batch(target, number, monkeypatch)
    expected = [b"0-0", b"0-1", b"1-0", b"1-1"]
    assert lw.read(target)["value"].to_pylist() == expected
    assert lw.verify(target, as_system="4.3").ok
    writer: StreamSink = data_source(target, codec="kafka.partition", txnAppId="app").streamWriter(
        SCHEMA, overwrite=False
    )

    def broken() -> Any:
        yield pa.record_batch({"value": [b"x"]})
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        writer.write(broken())
    writer.abort([], 2)
    assert lw.read(target)["value"].to_pylist() == expected
    assert sorted(path.name for path in (target / ".logwright").iterdir()) == ["transactions.json"]


def test_warnings_of_a_micro_batch_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = from_arrow_schema(pa.schema({"value": pa.binary(), "topic": pa.string()}))
    item = data_source(tmp_path / "a-0", codec="kafka.partition", txnAppId="app")
    monkeypatch.setattr(sink.TaskContext, "get", lambda: Context(0))
    rows = pa.record_batch({"value": [b"x"], "topic": ["other"]})
    message = item.streamWriter(schema, overwrite=False).write(iter([rows]))
    with pytest.warns(UserWarning, match="other"):
        item.streamWriter(schema, overwrite=False).commit([message], 0)


def test_write_with_a_lower_or_equal_txn_version_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a-0"
    monkeypatch.setattr(sink.TaskContext, "get", lambda: Context(0))
    for version, kind in ((3, SparkSink), (3, DoneAlready), (2, DoneAlready), (4, SparkSink)):
        writer = data_source(target, codec="kafka.partition", txnAppId="job", txnVersion=version).writer(
            SCHEMA, overwrite=False
        )
        assert type(writer) is kind
        message = writer.write(iter([pa.record_batch({"value": [b"%d" % version]})]))
        writer.commit([message])
    assert lw.read(target)["value"].to_pylist() == [b"3", b"4"]
    for words, reported in (
        ({"txnAppId": "x"}, "txnAppId is set without txnVersion"),
        ({"txnVersion": 1}, "txnVersion is set without txnAppId"),
        ({"txnAppId": "x", "txnVersion": -1}, "out of range"),
    ):
        with pytest.raises(UsageError, match=reported):
            data_source(target, codec="kafka.partition", **words).writer(SCHEMA, overwrite=False)
    for words, reported in (
        ({}, "needs a name"),
        ({"txnAppId": "x", "txnVersion": 1}, "the number of its batch"),
    ):
        with pytest.raises(UsageError, match=reported):
            data_source(target, codec="kafka.partition", **words).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(LogwrightError, match="checkpointlocation"):
        data_source(target, codec="kafka.partition", checkpointLocation="/x").writer(SCHEMA, overwrite=False)
