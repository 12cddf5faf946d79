"""The job `replay`: rows from tables and from native files into native files; on a cluster of two nodes, from the zip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs import python, shipped, submit

import logwright as lw
from logwright.codec.fault import UsageError

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
replay = pytest.importorskip("logwright.spark.replay")

__all__ = ["python", "shipped"]


def job(*words: str | Path) -> Any:
    return replay.Job.of(replay.parser().parse_args([str(word) for word in words]))


def table(first: int, count: int, **more: Any) -> pa.Table:
    values = [b"%d" % n for n in range(first, first + count)]
    return pa.table({"offset": pa.array(range(first, first + count), pa.int64()), "value": values, **more})


def test_second_replay_of_a_table_adds_no_row(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lake").mkdir()
    # The largest comes last: Spark reads it first.
    for first, count in ((0, 50), (50, 100), (150, 4000)):
        pq.write_table(table(first, count), tmp_path / "lake" / f"{first:05}.parquet")
    words = (
        "--from",
        tmp_path / "lake",
        "--to",
        tmp_path / "orders-0",
        "--app",
        "one",
        "--option",
        "compression.type=zstd",
    )
    for _ in range(2):
        assert replay.run(spark, job(*words, "--tasks", 2)) == 0
        actual = lw.read(tmp_path / "orders-0", columns=["offset", "value"])
        assert actual["offset"].to_pylist() == list(range(4150))
        assert actual["value"].to_pylist() == [b"%d" % n for n in range(4150)]
    assert len(list((tmp_path / "orders-0").glob("*.log"))) == 2
    assert "4,150 rows from parquet" in capsys.readouterr().out


def test_log_directory_is_replayed(spark: Any, tmp_path: Path) -> None:
    for name, count in (("a-0", 30), ("a-1", 20), ("b-0", 10)):
        lw.write(table(5, count), tmp_path / "logs" / name, "kafka.partition")
    report = tmp_path / "report.json"
    words = (
        "--from",
        tmp_path / "logs",
        "--to",
        tmp_path / "new",
        "--into",
        "{topic}-{partition}",
        "--report",
        report,
    )
    assert replay.run(spark, job(*words)) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a-0", "a-1", "b-0"]
    for name in ("a-0", "a-1", "b-0"):
        columns = ["topic", "partition", "offset", "value"]
        assert lw.read(tmp_path / "new" / name, columns=columns).equals(
            lw.read(tmp_path / "logs" / name, columns=columns)
        )
    loaded = json.loads(report.read_text())
    assert (loaded["rows"], [row["rows"] for row in loaded["targets"]]) == (60, [30, 20, 10])


def test_replay_into_a_database(spark: Any, tmp_path: Path) -> None:
    rows = [{"key": f"k{n:03}", "value": str(n)} for n in (5, 3, 8, 1)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert (
        replay.run(
            spark, job("--from", tmp_path / "rows.jsonl", "--to", tmp_path / "db", "--codec", "leveldb.db")
        )
        == 0
    )
    assert lw.read(tmp_path / "db")["key"].to_pylist() == [b"k001", b"k003", b"k005", b"k008"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--codec", "kafka.prtition"), "Did you mean"),
        (("--option", "segmnet.bytes=1"), "Did you mean 'segment.bytes'"),
        (("--into", "fixed"), "names no column"),
        (("--into", "{"), "--into"),
        (("--view", "log"), "--view applies to native files"),
        (("--tasks", "0"), "It must be at least 1"),
    ],
)
def test_invalid_options_are_reported_before_spark_starts(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    pq.write_table(table(0, 1), tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match=message):
        job("--from", tmp_path / "rows.parquet", "--to", tmp_path / "orders-0", *words)


def test_source_kinds_are_detected(tmp_path: Path) -> None:
    lw.write(table(0, 1), tmp_path / "logs" / "a-0", "kafka.partition")
    (tmp_path / "rows.csv").write_text("value\nx\n")
    (tmp_path / "README").write_text("x")
    assert [replay._detect_format([str(tmp_path / item)]) for item in ("logs", "logs/a-0", "rows.csv", "logs/*-0")] == [
        "logwright", "logwright", "csv", "logwright",
    ]  # fmt: skip
    assert replay._detect_format(["s3://bucket/rows.parquet"]) == "parquet"
    for paths, message in (
        (["logs", "rows.csv"], "inputs of different formats"),
        (["README"], "Pass --format"),
    ):
        with pytest.raises(UsageError, match=message):
            replay._detect_format([str(tmp_path / path) for path in paths])
    assert replay.main(["--from", str(tmp_path / "nothing"), "--to", str(tmp_path / "x-0")]) == 1
    assert replay.main(["--from", str(tmp_path / "README"), "--to", str(tmp_path / "x-0")]) == 2


@pytest.mark.nightly
def test_million_rows_on_a_cluster(shipped: tuple[Path, Path], python: Path, tmp_path: Path) -> None:
    rows = 1_000_000
    (tmp_path / "lake").mkdir()
    for at in range(4):
        pq.write_table(table(at * rows // 4, rows // 4), tmp_path / "lake" / f"{at}.parquet")
    code, _ = shipped
    script = tmp_path / "logwright_replay.py"
    script.write_text(Path(replay.__file__).read_text())
    done = submit(
        python, "--master", "local-cluster[2,1,1024]", "--py-files", code, script, "--from", tmp_path / "lake",
        "--to", tmp_path / "orders-0", "--option", "compression.type=lz4", "--app", "fill", "--report", tmp_path / "report.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert json.loads((tmp_path / "report.json").read_text())["rows"] == rows
    assert f"replay  {rows:,} rows from parquet into {tmp_path / 'orders-0'}" in done.stdout
    actual = lw.read(tmp_path / "orders-0", columns=["offset", "value"])
    assert actual["offset"].to_pylist() == list(range(rows))
    assert actual["value"].to_pylist() == [b"%d" % n for n in range(rows)]
    assert lw.verify(tmp_path / "orders-0", as_system="4.3").ok


def test_partitions_are_compacted_one_task_each(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a-0", "a-1"):
        keys = [b"%d" % (n % 7) for n in range(40)]
        lw.write(table(0, 40, key=keys), tmp_path / "logs" / name, "kafka.partition")
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    words = (
        "--from",
        tmp_path / "logs",
        "--to",
        tmp_path / "new",
        "--compact",
        "--option",
        "roll=yes",
        "--option",
        "now=1",
    )
    assert replay.run(spark, job(*words)) == 0
    for name in ("a-0", "a-1"):
        lw.convert(tmp_path / "logs" / name, tmp_path / "here" / name, compact=True, roll=True, now=1)
        results = [
            {path.name: path.read_bytes() for path in (tmp_path / folder / name).iterdir()}
            for folder in ("new", "here")
        ]
        assert results[0] == results[1]
        assert lw.read(tmp_path / "new" / name).num_rows == 7
    assert (tmp_path / "new" / "cleaner-offset-checkpoint").read_text() == "0\n2\na 0 40\na 1 40\n"
    assert "14 rows from native files into 2 directories" in capsys.readouterr().out
    with pytest.raises(lw.ExistsError):
        replay.run(spark, job(*words))


CONVERSIONS = (
    {"magic": "1"},
    {"compression.type": "gzip"},
    {"segment.bytes": "2000", "batch.size": "400"},
    {"segment.bytes": "1000"},
    {"retention.bytes": "100"},
)


@pytest.mark.parametrize("options", CONVERSIONS, ids=lambda options: ",".join(options))
def test_directories_are_converted_one_task_each(spark: Any, tmp_path: Path, options: dict[str, str]) -> None:
    """The job passes the options of `convert`, and has its results."""
    for name in ("a-0", "a-1"):
        times = pa.array(range(1, 101), pa.timestamp("ms"))
        rows = table(0, 100, timestamp=times)
        lw.write(rows, tmp_path / "logs" / name, "kafka.partition", batch_size=300, segment_bytes=500)
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    report = tmp_path / "report.json"
    paths = ("--from", tmp_path / "logs", "--to", tmp_path / "new", "--report", report)
    assert replay.run(spark, job(*paths, "--convert", *words)) == 0
    for name in ("a-0", "a-1"):
        lw.convert(tmp_path / "logs" / name, tmp_path / "here" / name, "kafka.partition", **options)
        results = [
            {path.name: path.read_bytes() for path in (tmp_path / folder / name).glob("*.log")}
            for folder in ("new", "here", "logs")
        ]
        assert results[0] == results[1]
        assert results[0] != results[2]
    assert [target["path"] for target in json.loads(report.read_text())["targets"]] == [
        str(tmp_path / "new" / name) for name in ("a-0", "a-1")
    ]


def test_conversion_takes_only_directories_of_its_layout(spark: Any, tmp_path: Path) -> None:
    lw.write([{"key": b"k", "value": b"v"}], tmp_path / "stores" / "db", "leveldb.db")
    with pytest.raises(UsageError, match=r"expected a kafka\.partition, but this is a leveldb\.db"):
        replay.run(spark, job("--from", tmp_path / "stores", "--to", tmp_path / "new", "--convert"))
    words = ("--from", tmp_path, "--to", tmp_path / "new", "--convert")
    for more in (("--option", "segmnt.bytes=1"), ("--option", "roll=yes"), ("--app", "x")):
        with pytest.raises(UsageError):
            job(*words, *more)


def test_compaction_refuses_what_it_would_ignore(tmp_path: Path) -> None:
    words = ("--from", tmp_path, "--to", tmp_path / "new", "--compact")
    for more in (("--into", "{topic}"), ("--tasks", "2"), ("--app", "x"), ("--option", "batch.size=1")):
        with pytest.raises(UsageError):
            job(*words, *more)
