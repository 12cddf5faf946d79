"""The Spark source and sink without Spark: calls the code its workers run. `tests/spark` runs Spark."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_store as fake_stores
import pyarrow as pa
import pytest
import toy
from fake_store import frame, shuffled

from logwright.codec.fault import DamageError, NotFoundError, UsageError

pytest.importorskip("pyspark")
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan, StringContains
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from logwright.corpora.cases import cases
from logwright.readers import spark as source
from logwright.readers.spark import PushingSource, SparkSource, Stretch
from logwright.readers.spark_request import Request, paths_of
from logwright.readers.spark_schema import castable, schema_of
from logwright.writers import spark as sink
from logwright.writers.staged import StagedWrite

pytestmark = pytest.mark.usefixtures("fake_store")
fake_store = fake_stores.fake_store


@pytest.fixture
def box(tmp_path: Path) -> Path:
    path = tmp_path / "box"
    path.mkdir()
    (path / "000.toy").write_bytes(b"".join(shuffled(40)))
    (path / "500.toy").write_bytes(frame(500, b"one two", b"", b"three"))
    (path / "NOTE").write_bytes(b"note:hello")
    return path


@pytest.fixture
def torn(box: Path) -> Path:
    """Six frames, of which the second is damaged: its texts are `b`."""
    frames = [frame(10 * n, letter * 3) for n, letter in enumerate((b"a", b"b", b"c", b"d", b"e", b"f"))]
    frames[1] = frames[1][:-1] + b"\0"
    (box / "000.toy").write_bytes(b"".join(frames))
    return box


def request(path: Path | str, **options: Any) -> Request:
    return Request.of({"path": str(path), **{name: str(value) for name, value in options.items()}})


def read(
    path: Path | str, schema: StructType | None = None, kind: type[SparkSource] = SparkSource, **options: Any
) -> pa.Table:
    """Read all rows with the planned tasks, each pickled as for another process."""
    asked = request(path, **options)
    expected = schema_of(asked) if schema is None else schema
    reader = pickle.loads(pickle.dumps(kind(asked, expected)))
    arrow = to_arrow_schema(expected, timezone="UTC")
    batches = [
        batch
        for partition in reader.partitions()
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))
    ]
    assert all(batch.schema == arrow for batch in batches)
    return pa.Table.from_batches(batches, arrow)


def schema(text: str) -> StructType:
    fields = []
    for field in text.split(", "):
        name, kind, *rest = field.split(" ")
        fields.append((name, kind, not rest))
    out = StructType()
    known = {
        "long": "LongType", "string": "StringType", "binary": "BinaryType", "int": "IntegerType", "double": "DoubleType",
        "timestamp": "TimestampType", "timestamp_ntz": "TimestampNTZType", "boolean": "BooleanType",
    }  # fmt: skip
    from pyspark.sql import types

    for name, kind, nullable in fields:
        if kind.startswith("array<"):
            out.add(name, types.ArrayType(getattr(types, known[kind[6:-1]])()), nullable)
        else:
            out.add(name, getattr(types, known[kind])(), nullable)
    return out


# Reading


def test_schema_has_all_columns(box: Path) -> None:
    table = read(box)
    last = table.slice(table.num_rows - 3).to_pylist()
    assert [row["text"] for row in last] == [b"one two", None, b"three"]
    assert last[0]["time"].timestamp() == 500
    assert table.schema.field("time").type == pa.timestamp("us", "UTC")
    assert not table.schema.field("id").nullable


def test_splits_give_each_row_once(box: Path) -> None:
    table = read(box, columns="id")
    asked = request(box, columns="id", maxPartitionBytes=300)
    parts = SparkSource(asked, schema_of(asked)).partitions()
    assert len(parts) > 5
    assert all(isinstance(part, Stretch) for part in parts)
    assert read(box, columns="id", maxPartitionBytes=300).equals(table)


def test_count_reads_no_column(box: Path) -> None:
    table = read(box, StructType())
    assert table.num_rows == read(box).num_rows
    assert table.num_columns == 0


def test_metadata_columns_locate_the_frame(box: Path) -> None:
    rows = read(box, columns="id", includeMetadata=True).to_pylist()
    assert rows[0] == {"id": 0, "_path": str(box / "000.toy"), "_position": 0}
    assert rows[-1] == {"id": 502, "_path": str(box / "500.toy"), "_position": 0}


def test_view_files_has_no_column_for_corrupt_records(box: Path) -> None:
    table = read(box, view="files", mode="PERMISSIVE")
    assert table["name"].to_pylist() == ["000.toy", "500.toy", "NOTE"]
    assert "_corrupt_record" not in table.schema.names


def test_several_paths_are_read_together(box: Path) -> None:
    asked = Request.of({"paths": json.dumps([str(box / "000.toy"), str(box / "500.toy")]), "columns": "id"})
    actual = SparkSource(asked, schema_of(asked))
    assert (
        sum(batch.num_rows for partition in actual.partitions() for batch in actual.read(partition))
        == read(box).num_rows
    )
    assert paths_of({"path": "file:/a", "paths": '["file:///b", "/c"]'}) == ("/a", "file:///b", "/c")
    with pytest.raises(UsageError, match="no path"):
        Request.of({"codec": "toy.store"})


def test_recursive_file_lookup_finds_stores_at_any_depth(box: Path) -> None:
    (box.parent / "other").mkdir()
    (box.parent / "other" / "README").write_text("x")
    deep = box.parent / "deep" / "er" / "store"
    deep.mkdir(parents=True)
    (deep / "000.toy").write_bytes(frame(900, b"x"))
    rows = read(box.parent, columns="id", recursiveFileLookup=True)["id"].to_pylist()
    assert len(rows) == read(box).num_rows + 1
    assert 900 in rows


def test_path_glob_filter_selects_files(box: Path) -> None:
    assert read(f"{box}/*.toy", pathGlobFilter="5*", columns="id")["id"].to_pylist() == [500, 501, 502]
    with pytest.raises(NotFoundError, match=r"no files to read.*pathGlobFilter"):
        read(f"{box}/*.toy", pathGlobFilter="9*")


def test_path_glob_filter_selects_stores_in_a_directory(box: Path) -> None:
    for name in ("a-1", "a-2", "b-1"):
        shutil.copytree(box, box.parent / "all" / name)
    (box.parent / "all" / "a-nothing").mkdir()
    rows = read(box).num_rows
    assert read(box.parent / "all", pathGlobFilter="a-*").num_rows == 2 * rows
    assert read(f"{box.parent}/all/*-1", pathGlobFilter="b*").num_rows == rows
    for pattern in ("c*", "a-nothing"):
        with pytest.raises(NotFoundError, match=r"no files to read.*pathGlobFilter"):
            read(box.parent / "all", pathGlobFilter=pattern)


def test_missing_paths_are_errors_unless_ignored(box: Path) -> None:
    gone = box / "gone" / "*.toy"
    with pytest.raises(NotFoundError):
        read(gone, schema("id long"))
    for path in (gone, box / "900.toy"):
        assert read(path, schema("id long"), ignoreMissingFiles=True).num_rows == 0
        with pytest.raises(UsageError, match="the columns are unknown"):
            read(path, ignoreMissingFiles=True)
    assert read(box, ignoreMissingFiles=True).num_rows == read(box).num_rows


def test_misspelt_option_is_refused(box: Path) -> None:
    with pytest.raises(
        UsageError, match=r"unknown option 'includeMetaDate'\. Did you mean 'includeMetadata'"
    ):
        read(box, includeMetaDate=True)
    with pytest.raises(UsageError, match=r"unknown option 'zzz'\. "):
        read(box, zzz=1)
    with pytest.raises(UsageError, match="AS_SYSTEM"):
        read(box, as_system="1.0")
    with pytest.raises(UsageError):
        read(box, mode="AS_SYSTEM")


# Schemas


@pytest.mark.parametrize(
    ("expected", "row"),
    [
        ("text string, id int", {"text": "one two", "id": 500}),
        ("id string, even boolean", {"id": "500", "even": True}),
        ("id double", {"id": 500.0}),
        ("words array<string>", {"words": ["a"]}),
        ("_corrupt_record binary, id long", {"_corrupt_record": None, "id": 500}),
    ],
)
def test_compatible_schema_types_are_cast(box: Path, expected: str, row: Mapping[str, Any]) -> None:
    assert read(box / "500.toy", schema(expected)).slice(0, 1).to_pylist() == [row]


@pytest.mark.parametrize(
    ("expected", "options", "message"),
    [
        ("ID long", {}, "unknown column 'ID'. Did you mean 'id'"),
        ("number long", {}, "unknown column 'number'. Valid values: "),
        ("id timestamp", {}, "column 'id' is bigint, but the schema says timestamp"),
        ("time timestamp_ntz", {}, "column 'time' is timestamp, but the schema says timestamp_ntz"),
        ("time long", {}, "column 'time' is timestamp, but the schema says bigint"),
        ("even long", {}, "column 'even' is boolean, but the schema says bigint"),
        ("words array<long>", {}, "is array<string>, but the schema says array<bigint>"),
        ("text binary no", {}, "column 'text' can be null, but the schema says NOT NULL"),
        ("id long no", {"mode": "PERMISSIVE"}, "can be null for damaged regions, but the schema says NOT NULL"),
        ("_path string", {}, "unknown column '_path'"),
        ("id long", {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "text"}, "column 'text' exists already"),
    ],
)  # fmt: skip
def test_impossible_schemas_are_refused(
    box: Path, expected: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(box, schema(expected), **options)
    assert message in str(caught.value)
    assert caught.value.__traceback__ is not None


def test_structures_are_cast_field_by_field() -> None:
    def pair(**fields: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct(list(fields.items())))

    have = pair(key=pa.string(), value=pa.binary())
    assert castable(have, pair(key=pa.binary(), value=pa.string()))
    assert not castable(have, pair(key=pa.binary(), other=pa.string()))
    assert not castable(have, pair(key=pa.binary(), value=pa.int64()))


def test_values_that_do_not_fit_are_reported(box: Path) -> None:
    (box / "500.toy").write_bytes(frame(1 << 40, b"\xff"))
    with pytest.raises(
        UsageError, match=r"500\.toy: column 'text' cannot be converted to string: Invalid UTF8"
    ):
        read(box / "500.toy", schema("text string"))
    with pytest.raises(UsageError, match="column 'id' cannot be converted to int"):
        read(box / "500.toy", schema("id int"))


def test_times_beyond_sparks_range_are_null_with_a_warning(box: Path) -> None:
    (box / "500.toy").write_bytes(frame(1 << 45, b"x") + frame(-5, b"y"))
    with pytest.warns(UserWarning, match="times outside the range of Spark's microseconds are null"):
        table = read(box / "500.toy", schema("time timestamp"))
    assert [row and row.timestamp() for row in table["time"].to_pylist()] == [None, -5]


# Damage


def test_damaged_range_is_a_row(torn: Path) -> None:
    rows = read(torn, columns="id,text", mode="PERMISSIVE").to_pylist()
    (bad,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert (bad["id"], bad["_corrupt_offset"], bad["_corrupt_length"]) == (None, 22, 22)
    assert len(rows) == 6 + 3
    named = read(torn, columns="_corrupt_record,id", mode="PERMISSIVE").schema.names
    assert named == ["id", "_corrupt_record", "_corrupt_offset", "_corrupt_length"]
    renamed = read(torn, columns="id", mode="PERMISSIVE", columnNameOfCorruptRecord="bad").schema.names
    assert renamed == ["id", "bad", "_corrupt_offset", "_corrupt_length"]
    text = read(torn, schema("_corrupt_record string"), mode="PERMISSIVE")["_corrupt_record"].to_pylist()
    assert [item for item in text if item is not None] == [
        bad["_corrupt_record"].decode(errors="backslashreplace")
    ]
    assert read(torn, schema("id long"), mode="PERMISSIVE")["id"].null_count == 1
    assert read(torn, schema("id long"), mode="DROPMALFORMED").num_rows == 5 + 3
    with pytest.raises(DamageError, match=r"000\.toy: at byte 22"):
        read(torn, schema("id long"))


def test_faults_are_logged_with_path_offset_and_number(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logwright"):
        read(torn, columns="id", mode="DROPMALFORMED")
    (message,) = [record.getMessage() for record in caplog.records if "000.toy" in record.getMessage()]
    assert message.startswith(f"logwright: {torn / '000.toy'}: at byte 22, 22 bytes: checksum mismatch")
    caplog.clear()
    data = bytearray((torn / "000.toy").read_bytes())
    data[-1] ^= 1
    (torn / "000.toy").unlink()
    (torn / "001.toy").write_bytes(data)
    with caplog.at_level(logging.WARNING, "logwright"):
        read(torn, columns="id", mode="DROPMALFORMED")
    message = "\n".join(record.getMessage() for record in caplog.records)
    assert f"{torn}: at byte 0, 0 bytes: missing link to another file: 000.toy is not there" in message
    assert "; 2 faults in all" in message


def test_mode_as_system_stops_with_the_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()  # the registry has Kafka again
    with caplog.at_level(logging.WARNING, "logwright"):
        table = read(cases("kafka")["craft_gzip_bad_crc"].partition, columns="offset", mode="AS_SYSTEM")
    (message,) = [
        record.getMessage() for record in caplog.records if "clients stop at" in record.getMessage()
    ]
    assert f"clients stop at {table.num_rows}: " in message


class Recorded:
    """A recorder in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, Mapping[str, Any]]] = []

    @contextmanager
    def task(self, number: int) -> Iterator[Any]:
        yield lambda line: self.lines.append((number, line))


def test_bad_records_are_written_once(torn: Path) -> None:
    """Faults of planning are written by the task that reads the start of their file; faults without a file by the first task."""
    (torn / "000.toy").rename(torn / "001.toy")
    (torn / "500.toy").write_bytes(frame(500, b"one two") + b"TY")
    (torn / "900.toy").write_bytes(frame(900, b"x") + bytes(40))  # made larger ahead: no fault to write down
    recorded = Recorded()
    asked = request(torn, columns="id", mode="DROPMALFORMED", maxPartitionBytes=50)
    reader = SparkSource(asked, schema_of(asked), recorded)
    parts = reader.partitions()
    assert len(parts) >= 3
    for part in parts:
        list(reader.read(part))
    assert [(line["path"], line["kind"], line["record"] is None) for _, line in recorded.lines] == [
        (str(torn), "missing link to another file", True),
        (str(torn / "001.toy"), "checksum mismatch", False),
        (str(torn / "500.toy"), "truncated", False),
    ]
    assert [number for number, _ in recorded.lines] == [0, 0, len(parts) - 2]


# Filters


def pushed(path: Path, *inputs: Any, **options: Any) -> tuple[PushingSource, list[Any]]:
    asked = request(path, **options)
    reader = PushingSource(asked, schema_of(asked))
    return reader, list(reader.pushFilters(list(inputs)))


def test_filters_are_pushed_down_to_frames(box: Path) -> None:
    inputs = [
        GreaterThan(("id",), 499),
        LessThan(("id",), 600),
        StringContains(("text",), "x"),
        EqualTo(("a", "b"), 1),
    ]
    reader, left = pushed(box, *inputs, columns="id,text")
    assert left == inputs, "Spark checks once more"
    ids = [
        id for part in reader.partitions() for batch in reader.read(part) for id in batch["id"].to_pylist()
    ]
    assert ids == [500, 501, 502]
    second = read(box, columns="id")["id"].to_pylist()[1]
    reader, _ = pushed(box, In(("id",), (500, second)), columns="id")
    ids = [
        id for part in reader.partitions() for batch in reader.read(part) for id in batch["id"].to_pylist()
    ]
    assert {second, 500} <= set(ids)
    assert len(ids) < read(box).num_rows


def test_filters_on_columns_without_bounds_are_left_to_spark(box: Path) -> None:
    reader, left = pushed(
        box, EqualTo(("text",), b"x"), EqualTo(("_path",), "x"), EqualTo(("gone",), 1), includeMetadata=True
    )
    assert len(left) == 3
    assert reader._filter is None
    asked = request(box / "gone.toy", ignoreMissingFiles=True)
    nothing = PushingSource(asked, schema("id long"))
    assert list(nothing.pushFilters([EqualTo(("id",), 1)]))
    assert nothing._filter is None


# Batches


def test_batches_are_combined_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_ROWS", 10)

    def sizes(*inputs: int) -> list[int]:
        return [item.num_rows for item in source._larger(toy.numbers(*range(n)) for n in inputs)]

    assert sizes() == []
    assert sizes(0) == []
    assert sizes(3, 4, 2) == [9]
    assert sizes(3, 8, 10) == [3, 8, 10]
    assert sizes(25, 3) == [10, 10, 8]
    assert sizes(20) == [10, 10]


# Writing


class Context:
    """Stand-in for Spark's task context."""

    def __init__(self, partition: int, attempt: int) -> None:
        self._ids = partition, attempt

    def partitionId(self) -> int:
        return self._ids[0]

    def taskAttemptId(self) -> int:
        return self._ids[1]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "toys"


def written(
    write: sink.SparkSink, monkeypatch: pytest.MonkeyPatch, task: int, *batches: pa.RecordBatch
) -> Any:
    monkeypatch.setattr(sink.TaskContext, "get", lambda: Context(task, 7))
    return pickle.loads(pickle.dumps(write.write(iter(batches))))


def rows(path: Path) -> list[int]:
    return toy.rows({file.name: file.read_bytes() if file.is_file() else None for file in path.iterdir()})


def test_tasks_stage_and_the_driver_commits(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "BATCH_ROWS", 3)
    write = sink.SparkSink(StagedWrite(str(target), toy.ToyLayout(), "append"))
    messages = [
        written(write, monkeypatch, 1, *(toy.numbers(n) for n in range(10, 17))),
        None,
        written(write, monkeypatch, 0, toy.numbers(0, 1, 2, 3)),
        written(write, monkeypatch, 2),
    ]
    write.commit(messages)
    assert rows(target) == [0, 1, 2, 3, *range(10, 17)]


def test_failed_tasks_and_aborts_leave_no_files(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sink.SparkSink(StagedWrite(str(target), toy.ToyLayout(), "append"))
    with pytest.raises(UsageError, match="has a null"):
        written(write, monkeypatch, 0, toy.numbers(1, None))
    message = written(write, monkeypatch, 1, toy.numbers(1))
    write.abort([None, message])
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    "option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss"]
)
def test_stream_option_is_refused_by_a_batch_read(box: Path, option: str) -> None:
    from logwright.spark.source import DefaultSource

    value = {"maxTriggerDelay": "1m", "failOnDataLoss": "false"}.get(option, "10")
    actual = DefaultSource({"path": str(box), option.lower(): value})
    with pytest.raises(UsageError, match=f"option {option} does not apply to spark.read"):
        actual.reader(actual.schema())


def test_misspelt_column_of_a_write_is_a_warning(tmp_path: Path) -> None:
    from logwright.spark.source import DefaultSource

    actual = DefaultSource({"path": str(tmp_path / "T-0"), "codec": "kafka.partition"})
    with pytest.warns(UserWarning, match="ignored the unknown column 'vallue'; did you mean 'value'?"):
        actual.writer(StructType().add("key", "binary").add("vallue", "binary"), False)
