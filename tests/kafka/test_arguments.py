"""Arguments of the wrong type, and numbers and flags given as text, as forms and command lines pass them."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.codec.kafka.store.builder import elsewhere
from logwright.writers.filesystem import LocalFileSystem
from logwright.writers.staged import StagedWrite


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"view": 5}, "view is text, not 5"),
        ({"codec": 5}, "codec is text, not 5"),
        ({"columns": 5}, "columns are names, not 5"),
        ({"columns": b"key"}, "columns are names, not b'key'"),
        ({"columns": [1]}, "a column name is text, not 1"),
        ({"limit": "x"}, "limit is 'x'. Expected an integer of 0 or more"),
        ({"limit": 2.5}, "limit is 2.5"),
        ({"limit": 1 << 63}, "limit is 9223372036854775808. The largest value is 2^63-1"),
        ({"limit": -1}, "limit is -1. Expected an integer of 0 or more"),
        ({"limit": True}, "limit is True"),
        ({"clean": "maybe", "mode": "AS_SYSTEM"}, "clean is 'maybe'. Expected true or false"),
        ({"path": "a\0b"}, "the path contains a zero byte"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.UsageError, match=re.escape(message)):
        lw.read(**{"path": CASES["dmg_base"].partition, **arguments})


def test_numbers_and_flags_may_be_text() -> None:
    place = CASES["dmg_base"].partition
    assert lw.read(place, limit="5").num_rows == 5
    for text, clean in (("no", False), ("yes", True)):
        assert lw.verify(place, as_system=True, clean=text)["system"]["clean"] is clean  # type: ignore[arg-type]
    for jobs in (0, "x"):
        with pytest.raises(lw.UsageError, match="Expected an integer of 1 or more"):
            lw.verify(place, jobs=jobs)
    assert lw.read(place.as_uri().replace("file:///", "file:/")).num_rows == 97


def test_fractional_number_is_refused(tmp_path: Path) -> None:
    for name in ("offset", "timestamp"):
        with pytest.raises(lw.UsageError, match=rf"row 1, column '{name}': 2\.5 is not "):
            lw.write(
                [{"value": "a", name: 1.0}, {"value": "b", name: 2.5}], tmp_path / "t-0", "kafka.partition"
            )
        with pytest.raises(lw.UsageError, match=rf"row 0, column '{name}': nan is not "):
            lw.write([{"value": "a", name: float("nan")}], tmp_path / "t-0", "kafka.partition")


def test_swapped_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="cannot read the ChunkedArray as rows"):
        lw.write(pa.chunked_array([["a"]]), tmp_path / "t-0", "kafka.partition")
    with pytest.raises(lw.UsageError, match="path must be text, not 5"):
        lw.write([{"value": "a"}], 5, "kafka.partition")  # type: ignore[arg-type]
    with pytest.raises(lw.UsageError, match="codec is missing"):
        lw.write([{"value": "a"}], tmp_path / "t-0", None)  # type: ignore[arg-type]


def test_converting_to_parquet_and_back_keeps_the_rows(tmp_path: Path) -> None:
    place = CASES["dmg_base"].partition
    done = lw.convert(place, tmp_path / "rows.parquet")
    assert (done["rows"], done["files"]) == (97, [str(tmp_path / "rows.parquet")])
    lw.convert(tmp_path / "rows.parquet", tmp_path / "copy-0", "kafka.partition", compression_type="zstd")
    columns = "key,value,offset,timestamp,headers"
    assert lw.read(tmp_path / "copy-0", columns=columns).equals(lw.read(place, columns=columns))


def test_convert_selects_rows_of_a_table_file(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    lw.convert(CASES["dmg_base"].partition, rows)

    def offsets(name: str, **selection: Any) -> list[int]:
        lw.convert(rows, tmp_path / name, "kafka.partition", **selection)
        offsets_read: list[int] = lw.read(tmp_path / name, columns="offset")["offset"].to_pylist()
        return offsets_read

    assert offsets("a-0", filter="offset >= 90") == list(range(90, 97))
    assert offsets("b-0", filter="offset >= 90", limit=2) == [90, 91]
    assert offsets("c-0", limit=3) == [0, 1, 2]
    assert offsets("d-0", limit=0) == []
    assert offsets("e-0", columns="key,value", limit=4) == [0, 1, 2, 3]
    first = lw.read(rows_of := tmp_path / "a-0", limit=1, columns="timestamp")["timestamp"][0].as_py()
    assert offsets("f-0", filter=[("timestamp", "==", first)]) == [90]
    assert lw.read(rows_of, columns="key").num_rows == 7
    for request, message in (
        ({"filter": "ofset > 5"}, "no column 'ofset'"),
        ({"filter": "producer_id > 5"}, "the table file has no column 'producer_id'"),
        ({"columns": "producer_id"}, "the table file has no column 'producer_id'"),
        ({"limit": -1}, "limit is -1"),
        ({"view": "log"}, "a table file is read as it is"),
        ({"mode": "PERMISSIVE"}, "a table file is read as it is"),
    ):
        with pytest.raises(lw.UsageError, match=message):
            lw.convert(rows, tmp_path / "x-0", "kafka.partition", **request)
    assert not (tmp_path / "x-0").exists()


@pytest.mark.parametrize(("path", "message"), [("", "the path is empty"), ("a\0b", "contains a zero byte")])
def test_output_paths_that_no_file_can_have_are_refused(tmp_path: Path, path: str, message: str) -> None:
    rows = [{"value": "a"}]
    lw.write(rows, tmp_path / "a-0", "kafka.partition")
    calls: list[Callable[[], object]] = [
        lambda: lw.write(rows, path, "kafka.partition"),
        lambda: lw.generate("kafka.partition", path),
        lambda: lw.convert(tmp_path / "a-0", path),
        lambda: lw.damage(tmp_path / "a-0", path, seed=1, count=1),
        lambda: lw.damage(path, tmp_path / "out", seed=1, count=1),
        lambda: lw.repair(tmp_path / "a-0", path),
    ]
    for call in calls:
        with pytest.raises(lw.UsageError, match=message):
            call()


def test_option_in_two_spellings_is_refused(tmp_path: Path) -> None:
    rows = [{"value": "a"}]
    lw.write(rows, tmp_path / "a-0", "kafka.partition", segment_bytes="1m", segmentBytes=1 << 20)
    with pytest.raises(lw.UsageError, match=r"option segment\.bytes is given twice: 65536 and 1048576"):
        lw.write(rows, tmp_path / "b-0", "kafka.partition", segment_bytes="64k", segmentBytes="1m")
    with pytest.raises(lw.UsageError, match="the path is empty"):
        lw.write(rows, "", "kafka.partition")


def test_misspelt_column_is_reported(tmp_path: Path) -> None:
    """A name similar to a missing column is reported with it, since that column would be null; others are listed."""
    written = lw.write(
        [{"key": "a", "vale": "b", "Timestamp": 5, "source": "x"}], tmp_path / "a-0", "kafka.partition"
    )
    assert written.warnings == (
        "ignored the unknown column 'Timestamp'; did you mean 'timestamp'?",
        "ignored the unknown column 'vale'; did you mean 'value'?",
        "ignored the unknown column 'source'",
    )
    more = lw.write([{"value": "b", "values": 1, "x": 2}], tmp_path / "b-0", "kafka.partition")
    assert more.warnings == ("ignored the unknown columns 'values', 'x'",)
    segment = lw.write([{"kye": "a", "value": "b"}], tmp_path / "0.log", "kafka.log")
    assert segment.warnings == ("ignored the unknown column 'kye'; did you mean 'key'?",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"topic": "z", "partition": 1}, None),
        ({"partition": 1}, None),
        ({"value": "x"}, None),
        ({"topic": "other", "partition": 3}, "other-3"),
        ({"topic": "other"}, "other-1"),
        ({"partition": 3}, "z-3"),
    ],
)
def test_rows_of_another_partition_are_refused(
    tmp_path: Path, row: dict[str, Any], message: str | None
) -> None:
    """By a single writer and by several tasks."""
    written = lw.write([row], tmp_path / "a" / "z-1", "kafka.partition")
    many = StagedWrite(str(tmp_path / "b" / "z-1"), "kafka.partition")
    task = many.task(0)
    task.add(pa.RecordBatch.from_pylist([row]))
    text = f"the columns topic and partition say {message}, but the rows were written to z-1"
    expected = () if message is None else (text,)
    assert written.warnings == expected
    assert many.commit([task.commit()]).warnings == expected


def test_builder_without_a_name_takes_any_rows() -> None:
    assert elsewhere({("topic", "z")}, "") == ()


def test_spark_sink_warns_like_write(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from logwright.writers.spark import Message, SparkSink

    write = StagedWrite(str(tmp_path / "z-1"), "kafka.partition")
    task = write.task(0)
    task.add(pa.RecordBatch.from_pylist([{"topic": "other", "value": "x"}]))
    with pytest.warns(UserWarning, match="the columns topic and partition say other-1"):
        SparkSink(write).commit([Message(task.commit()), None])


def test_unwritable_target_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error names the staging directory."""
    (tmp_path / "file").write_bytes(b"")
    rows = [{"value": "x"}]
    for below in ("a-0", "b/a-0"):
        with pytest.raises(lw.UsageError, match=r"/file: it is a file, so nothing can be created below it"):
            lw.write(rows, tmp_path / "file" / below, "kafka.partition")
    target = tmp_path / "a-0"

    def denied(self: LocalFileSystem, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(LocalFileSystem, "mkdir", denied)
    with pytest.raises(lw.AccessError) as caught:
        lw.write(rows, target, "kafka.partition")
    assert caught.value.path == str(target)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_memory_file_system_creates_no_directories() -> None:
    with pytest.raises(lw.LogwrightError, match=r"^/proc/a-0: .*can"):
        lw.write([{"value": "x"}], "/proc/a-0", "kafka.partition")


def test_obstacle_to_a_rebuild_is_named_by_its_path(tmp_path: Path) -> None:
    case = CASES["dmg_flip_payload"].partition
    with pytest.raises(lw.DamageError) as caught:
        lw.rebuild(case, tmp_path / "out")
    assert caught.value.path == str(case / "00000000000000000086.log")


@pytest.mark.parametrize(
    ("view", "listed"),
    [(None, "key.as"), ("batches", "max.decompressed.bytes"), ("rows", "key.as"), ("frames", "read.retries")],
)
def test_unknown_option_lists_those_of_the_view(tmp_path: Path, view: str | None, listed: str) -> None:
    lw.write([{"value": b"x"}], tmp_path / "orders-0", "kafka.partition")
    with pytest.raises(lw.UsageError, match=rf"Known options: .*\b{listed}") as error:
        lw.read(tmp_path / "orders-0", view=view, nonesuch=1)
    assert ("key.as" in str(error.value)) == (listed == "key.as")
