"""A broker's configuration file, or its log directory, instead of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.cli import main
from logwright.codec.kafka.store.configuration import CONFIGURATION
from logwright.codec.properties import properties
from logwright.readers.target import Skipped


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with two partitions."""
    place = tmp_path / "kafka-logs"
    for name, rows in (("a-0", 3), ("a-1", 4)):
        lw.write(
            [{"value": str(i)} for i in range(rows)],
            place / name,
            "kafka.partition",
            topic_id="Ya2V-lxYRvCfw1yxxg-oeQ",
        )
    (place / "meta.properties").write_text("version=1\ncluster.id=q83vASNFZ4mrze8BI0VniQ\nnode.id=1\n")
    (place / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return place


@pytest.fixture
def configuration(tmp_path: Path, logs: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"# a broker\nnode.id=1\nlog.dirs = {logs} , {tmp_path / 'empty'}\nlog.index.interval.bytes=240\n"
        "listener.name.ssl.key.password=geheim\n"
    )
    (tmp_path / "empty").mkdir()
    return path


def test_properties_files_follow_the_syntax_of_java() -> None:
    text = (
        "# c\n! c\r\n\r a = 1\\\n   2\nb:2\nc 3\n\td\\ e=x\\=y\nf\ng=\\u0041\\t\\q\\u00\nh==\ni\\\\=1\nj=1\\"
    )
    assert dict(properties(text.encode())) == {
        "a": "12", "b": "2", "c": "3", "d e": "x=y", "f": "", "g": "A\tqu00", "h": "=", "i\\": "1", "j": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("broker.id=1", ("/tmp/kafka-logs",)),
        ("log.dir=/a\n", ("/a",)),
        ("log.dir=/a\nlog.dirs=/b,/c,,/b\n", ("/b", "/c")),
        ("log.dirs=/b\nmetadata.log.dir=/m", ("/b", "/m")),
        ("bootstrap.servers=x:9092", None),
    ],
)
def test_log_dirs_are_resolved(text: str, directories: tuple[str, ...] | None) -> None:
    configured = CONFIGURATION.parse(text.encode())
    assert (None if configured is None else configured.directories) == directories


@pytest.mark.parametrize("value", ["data", "${env:LOGS}"])
def test_unusable_log_dirs_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "server.properties").write_text(f"log.dirs={value}\n")
    with pytest.raises(
        lw.UsageError, match=r"server\.properties: log\.dirs has '.*Pass the log directory itself"
    ):
        lw.verify(tmp_path / "server.properties")


def test_verify_of_a_configuration_checks_all_partitions_and_hides_secrets(
    configuration: Path, logs: Path, tmp_path: Path
) -> None:
    report = lw.verify(configuration)
    assert report.ok
    names = ("a-0", "a-1", "meta.properties", "recovery-point-offset-checkpoint")
    assert [part.path for part in report.parts] == [f"{logs}/{name}" for name in names]
    assert f"{tmp_path / 'empty'}: no store found" in report.notes
    assert "geheim" not in str(report.to_dict()) + report.text()


def test_verify_of_a_configuration_checks_the_files_beside_the_partitions(
    configuration: Path, logs: Path
) -> None:
    (logs / "recovery-point-offset-checkpoint").write_text("x")
    report = lw.verify(configuration)
    assert [part.path for part in report.parts if not part.ok] == [f"{logs}/recovery-point-offset-checkpoint"]


@pytest.mark.parametrize("codec", [None, "kafka.logdir", "kafka.partition"])
def test_log_directory_gives_the_rows_of_all_partitions(logs: Path, codec: str | None) -> None:
    rows = lw.read(logs, codec, columns="partition, offset").to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, i) for i in range(3)] + [
        (1, i) for i in range(4)
    ]


def test_configuration_gives_the_rows_of_all_log_directories(configuration: Path) -> None:
    scan = lw.scan(configuration)
    assert scan.to_table().num_rows == 7
    assert any("empty" in note for note in scan.report.notes)


def test_inspect_describes_each_partition_of_a_log_directory(
    configuration: Path, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (configuration, logs):
        summary = lw.inspect(path)
        assert (summary["codec"], [directory["path"] for directory in summary["directories"]]) == (
            "kafka.logdir",
            [f"{logs}/a-0", f"{logs}/a-1"],
        )
    with pytest.raises(SystemExit) as status:
        main(["inspect", str(configuration)])
    shown = capsys.readouterr().out
    assert status.value.code == 0
    assert f"{logs}/a-1" in shown
    assert "geheim" not in shown


def test_settings_of_the_file_are_defaults_of_options(configuration: Path) -> None:
    from logwright.readers.resolve import resolve

    (first, _) = resolve(configuration, skipped=Skipped())
    assert first.options["index.interval.bytes"] == "240"
    (first, _) = resolve(configuration, options={"indexIntervalBytes": "4096"}, skipped=Skipped())
    assert dict(first.options) == {"indexIntervalBytes": "4096"}


def test_repair_of_a_configuration_covers_all_its_partitions(
    configuration: Path, tmp_path: Path, logs: Path
) -> None:
    options = {"indexIntervalBytes": "4096"}
    for number, (path, path_options) in enumerate(
        ((configuration, {}), (configuration, options), (logs, {"codec": "kafka.logdir"}))
    ):
        out = tmp_path / f"out{number}"
        report = lw.repair(path, out, **path_options)
        assert not report.failed, report.text()
        assert lw.read(out).num_rows == 7
    with pytest.raises(lw.UsageError, match="this configuration of kafka names"):
        lw.edit(configuration, tmp_path / "edited", drop="offset == 1")


def test_configuration_without_partitions_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\n")
    with pytest.raises(lw.UsageError, match="no store was found there"):
        lw.read(tmp_path / "server.properties")


def test_inspect_refuses_several_stores_as_one() -> None:
    case = CASES["dmg_base"].partition
    with pytest.raises(lw.UsageError, match="inspect takes one path at a time"):
        lw.inspect(str(case / "*.log"))


def test_meta_properties_is_no_configuration(logs: Path) -> None:
    assert lw.detect(logs / "meta.properties") == "kafka.meta_properties"


def test_directory_of_plain_files_is_listed() -> None:
    (codec,) = lw.codecs("kafka.logdir")
    assert codec["title"].startswith("Kafka log directory")
    assert codec["views"] == lw.codecs("kafka.partition")[0]["views"]
    assert "kafka.logdir" in [each["name"] for each in lw.codecs()]


def test_configuration_with_one_partition_stands_for_it(tmp_path: Path) -> None:
    lw.write([{"value": "a"}, {"value": "b"}], tmp_path / "logs" / "a-0", "kafka.partition")
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'logs'}\n")
    assert "RecordBatch" in str(lw.explain(path, where={"offset": 1}))
    assert lw.diff(path, tmp_path / "logs" / "a-0").equal
    assert lw.repair(path, tmp_path / "out").rows == 2
    assert lw.convert(path, tmp_path / "new-0", compression_type="zstd")["rows"] == 2
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'logs' / 'a-0'}\n")
    assert lw.read(path).num_rows == 2


def test_server_properties_are_detected_as_a_log_directory(configuration: Path, logs: Path) -> None:
    assert lw.detect(configuration) == lw.detect(logs) == "kafka.logdir"


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_converting_a_configuration_writes_the_rows_of_all_partitions(
    configuration: Path, tmp_path: Path, jobs: int
) -> None:
    done = lw.convert(configuration, tmp_path / "rows.parquet", jobs=jobs)
    assert (done["rows"], [Path(file).name for file in done["files"]]) == (7, ["rows.parquet"])
    done = lw.convert(configuration, tmp_path / "b-0", "kafka.partition", filter="partition == 1", jobs=jobs)
    assert done["rows"] == 4


def test_spark_reads_a_configuration(configuration: Path) -> None:
    from logwright.readers.spark import SparkSource
    from logwright.readers.spark_request import Request
    from logwright.readers.spark_schema import schema_of

    asked = Request.of({"path": str(configuration), "columns": "partition, offset"})
    reader = SparkSource(asked, schema_of(asked))
    spark_rows = [
        row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()
    ]
    assert [(row["partition"], row["offset"]) for row in spark_rows] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


def test_number_of_jobs_does_not_change_the_output(
    configuration: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for jobs in ("1", "2"):
        with pytest.raises(SystemExit) as status:
            main(["dump", str(configuration), "--columns", "offset", "--format", "csv", "-j", jobs])
        assert status.value.code == 0
        assert capfdbinary.readouterr().out.split() == b'"offset" 0 1 2 0 1 2 3'.split()


def test_property_continues_over_any_number_of_lines() -> None:
    count = 1 << 16
    assert list(properties(b"a\\\n \t" * count + b"b=c\\\\\\\nd")) == [("a" * count + "b", "c\\d")]
    assert list(properties(b"a\\\\\nb\\\n")) == [("a\\", ""), ("b", "")]
    assert list(properties(b"a\\=\\u0041\\q = \\t\\")) == [("a=Aq", "\t")]
