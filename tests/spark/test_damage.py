"""Damaged partitions through Spark: rows, faults and errors."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.corpora.cases import cases

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

CASES = cases("kafka")
FLIPPED = CASES["dmg_flip_payload"].partition
SOUND = 95
"""Number of sound rows. One batch of 125 bytes at byte 327 of one file is damaged."""


def read(spark: Any, path: Path | str, schema: str = "", **options: Any) -> Any:
    reader = spark.read.format("logwright").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def bad_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*/bad_records/*.json") for line in path.open()]


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a partition of several files and batches, damaged at two positions of the first file and one of the last."""
    path = tmp_path_factory.mktemp("damaged") / "orders-0"
    rows = pa.table({"value": [b"%05d" % n * 20 for n in range(600)]})
    lw.write(rows, path, "kafka.partition", **{"segment.bytes": "40k", "batch.size": "1k"})
    first, *_, last = sorted(path.glob("*.log"))
    for file, places in ((first, (300, 20_000)), (last, (2_000,))):
        data = bytearray(file.read_bytes())
        for place in places:
            data[place] ^= 1
        file.write_bytes(data)
    return path


# The column of damaged records, as in Spark's CSV and JSON sources


def test_schema_with_the_corrupt_record_column(spark: Any) -> None:
    marked = read(
        spark, FLIPPED, "offset long, _bad binary", mode="PERMISSIVE", columnNameOfCorruptRecord="_bad"
    )
    assert marked.columns == ["offset", "_bad"]
    rows = marked.collect()
    assert len(rows) == SOUND + 1
    (bad,) = [row for row in rows if row["_bad"] is not None]
    assert (bad["offset"], len(bad["_bad"])) == (None, 125)


def test_schema_without_the_corrupt_record_column(spark: Any) -> None:
    """A damaged range is a row of nulls."""
    rows = read(spark, FLIPPED, "value binary, offset long", mode="PERMISSIVE").collect()
    assert len(rows) == SOUND + 1
    assert [tuple(row) for row in rows if row["offset"] is None] == [(None, None)]


def test_corrupt_record_column_in_other_modes(spark: Any) -> None:
    dropped = read(spark, FLIPPED, "_corrupt_record binary, offset long", mode="DROPMALFORMED").collect()
    assert len(dropped) == SOUND
    assert {row["_corrupt_record"] for row in dropped} == {None}


def test_corrupt_record_column_as_text(spark: Any) -> None:
    """Spark's own sources want a string there."""
    rows = read(spark, FLIPPED, "_corrupt_record string", mode="PERMISSIVE").collect()
    (text,) = [row[0] for row in rows if row[0] is not None]
    expected = Path(FLIPPED, next(FLIPPED.glob("*86.log"))).read_bytes()[327 : 327 + 125]
    assert text == expected.decode(errors="backslashreplace")


def test_impossible_schemas_are_refused(spark: Any) -> None:
    """All of them: `tests/face/test_spark_source.py`."""
    with pytest.raises(Exception, match="can be null for damaged regions, but the schema says NOT NULL"):
        read(spark, FLIPPED, "offset long not null", mode="PERMISSIVE").collect()


# Mode AS_SYSTEM, and copies


def test_mode_as_system_loads_the_rows_a_broker_keeps(spark: Any) -> None:
    with pytest.warns(lw.DamageWarning, match="loses 4 records"):
        rows = lw.read(FLIPPED, mode="AS_SYSTEM", as_system="4.3", clean=False)["offset"].to_pylist()
    table = read(spark, FLIPPED, "offset long", mode="AS_SYSTEM", as_system="4.3", clean="false")
    assert sorted(row[0] for row in table.collect()) == rows
    assert 0 < len(rows) < SOUND


def test_same_partition_listed_twice(spark: Any, tmp_path: Path) -> None:
    for disk, rows in (("a", 5), ("b", 9)):
        (tmp_path / disk).mkdir()
        table = pa.table({"value": [b"v"] * rows})
        lw.write(table, tmp_path / disk / "orders-0", "kafka.partition", topic_id="q83vASNFZ4mrze8BI0VniQ")
    with pytest.raises(Exception, match=r"orders-0 .*replicas=first") as caught:
        read(spark, tmp_path / "*" / "orders-0")
    assert one_paragraph(caught.value)
    assert read(spark, tmp_path, recursiveFileLookup="true", replicas="longest").count() == 9


# badRecordsPath


def test_bad_records_are_written(spark: Any, two_files: Path, tmp_path: Path) -> None:
    mode = "DROPMALFORMED"
    frame = read(spark, two_files, mode=mode, badRecordsPath=str(tmp_path / "bad"), maxPartitionBytes="10k")
    rows = frame.count()
    actual = bad_records(tmp_path / "bad")
    scan = lw.scan(two_files, mode=mode)
    assert rows == scan.to_table().num_rows
    names = sorted(path.name for path in two_files.glob("*.log"))
    assert [
        (Path(row["path"]).name, row["offset"], row["length"])
        for row in sorted(actual, key=lambda row: (row["path"], row["offset"]))
    ] == [
        (file, fault.offset, fault.length)
        for file, fault in sorted(scan.report.faults, key=lambda item: (item[0], item[1].offset))
    ]
    assert [Path(row["path"]).name for row in actual].count(names[0]) == 2
    for item in actual:
        assert Path(item["path"]).parent == two_files
        data = Path(item["path"]).read_bytes()[item["offset"] : item["offset"] + item["length"]]
        assert base64.b64decode(item["record"]) == data
        assert (item["kind"], item["severity"]) == ("checksum mismatch", "error")
        assert item["rows_lost"] == item["lost"]["last_offset"] - item["lost"]["first_offset"] + 1 > 1
    assert spark.read.json(str(tmp_path / "bad" / "*" / "bad_records")).count() == 3
    (folder,) = (tmp_path / "bad").iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}", folder.name)


def test_bad_records_of_several_reads_in_one_query(spark: Any, two_files: Path, tmp_path: Path) -> None:
    first, second = (
        read(spark, path, mode="DROPMALFORMED", badRecordsPath=str(tmp_path / "bad")).select("offset")
        for path in (two_files, FLIPPED)
    )
    assert first.union(second).union(first).count() == 2 * first.count() + SOUND
    assert len(bad_records(tmp_path / "bad")) == 3 + 1


def test_sound_partition_writes_no_bad_records(spark: Any, tmp_path: Path) -> None:
    read(spark, CASES["v2_headers"].partition, badRecordsPath=str(tmp_path / "bad")).count()
    assert not (tmp_path / "bad").exists()


# Errors


def one_paragraph(error: BaseException) -> bool:
    """Spark's own line, one frame of ours, the paragraph."""
    text = str(error)
    return text.count("\n") <= 5 and text.count("  File ") <= 1 and len(text) < 1500 and "\tat " not in text


def test_read_errors_are_one_paragraph(spark: Any, tmp_path: Path) -> None:
    bad = {"badRecordsPath": str(tmp_path / "bad")}
    for path, options, message in (
        (
            FLIPPED,
            bad,
            r"86\.log: at byte 327: checksum mismatch: .*\. List all damage with `logwright verify`",
        ),
        (FLIPPED, {"mdoe": "PERMISSIVE"}, "unknown option 'mdoe'. Did you mean 'mode'"),
        (tmp_path / "orders-0", {}, "orders-0: no such file or directory"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            read(spark, path, **options).collect()
        assert one_paragraph(caught.value), str(caught.value)
    assert len(bad_records(tmp_path / "bad")) == 1, "what raises is written down too, once for all attempts"


def test_write_errors_are_one_paragraph(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr("cast(id as string) value", "id % 2 as offset").coalesce(1)
    for target, options, message in (
        ("new-0", {"segmnt.bytes": "1"}, "unknown option 'segmnt.bytes'. Did you mean 'segment.bytes'"),
        ("new-0", {}, "new-0: row 2: offset 0 is not above 1, the offset before"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            rows.write.format("logwright").options(codec="kafka.partition", **options).mode("append").save(
                str(tmp_path / target)
            )
        assert one_paragraph(caught.value), str(caught.value)
    assert list(tmp_path.iterdir()) == []
