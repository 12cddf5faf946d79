"""A broker's configuration file, or its log directory, in the place of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.cli import main
from logwright.codec.kafka.store.configuration import CONFIGURATION
from logwright.codec.properties import properties


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
    (place / "meta.properties").write_text("version=1\nnode.id=1\n")
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


def test_the_form_is_that_of_java() -> None:
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
def test_where_the_logs_are(text: str, directories: tuple[str, ...] | None) -> None:
    found = CONFIGURATION.parse(text.encode())
    assert (None if found is None else found.directories) == directories


@pytest.mark.parametrize("value", ["data", "${env:LOGS}"])
def test_directories_that_can_not_be_followed(tmp_path: Path, value: str) -> None:
    (tmp_path / "server.properties").write_text(f"log.dirs={value}\n")
    with pytest.raises(
        lw.UsageError, match=r"server\.properties: log\.dirs holds '.*Name the log directory itself"
    ):
        lw.verify(tmp_path / "server.properties")


def test_verify_of_a_configuration(configuration: Path, logs: Path, tmp_path: Path) -> None:
    report = lw.verify(configuration)
    assert report.ok
    assert [part.path for part in report.parts] == [f"{logs}/a-0", f"{logs}/a-1"]
    assert f"{tmp_path / 'empty'} holds nothing that we know" in report.notes
    assert "geheim" not in str(report.to_dict()) + report.text()


@pytest.mark.parametrize("codec", [None, "kafka.logdir", "kafka.partition"])
def test_read_of_a_log_directory(logs: Path, codec: str | None) -> None:
    rows = lw.read(logs, codec, columns="partition, offset").to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, i) for i in range(3)] + [
        (1, i) for i in range(4)
    ]


def test_read_of_a_configuration(configuration: Path) -> None:
    scan = lw.scan(configuration)
    assert scan.to_table().num_rows == 7
    assert any("empty" in note for note in scan.report.notes)


def test_inspect_of_several(configuration: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (configuration, logs):
        found = lw.inspect(path)
        assert (found["codec"], [one["path"] for one in found["directories"]]) == (
            "kafka.logdir",
            [f"{logs}/a-0", f"{logs}/a-1"],
        )
    with pytest.raises(SystemExit) as status:
        main(["inspect", str(configuration)])
    shown = capsys.readouterr().out
    assert status.value.code == 0
    assert f"{logs}/a-1" in shown
    assert "geheim" not in shown


def test_options_of_a_configuration_hold_where_none_are_given(configuration: Path) -> None:
    from logwright.readers.resolve import resolve

    (first, _) = resolve(configuration, passed=[])
    assert first.options["index.interval.bytes"] == "240"
    (first, _) = resolve(configuration, options={"indexIntervalBytes": "4096"}, passed=[])
    assert dict(first.options) == {"indexIntervalBytes": "4096"}


def test_a_configuration_stands_for_all_its_partitions_in_a_repair(
    configuration: Path, tmp_path: Path, logs: Path
) -> None:
    options = {"indexIntervalBytes": "4096"}
    for number, (path, given) in enumerate(
        ((configuration, {}), (configuration, options), (logs, {"codec": "kafka.logdir"}))
    ):
        out = tmp_path / f"out{number}"
        report = lw.repair(path, out, **given)
        assert not report.failed, report.text()
        assert lw.read(out).num_rows == 7
    with pytest.raises(lw.UsageError, match="the configuration of kafka, which says that the data is in"):
        lw.edit(configuration, tmp_path / "edited", drop="offset == 1")


def test_a_configuration_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\n")
    with pytest.raises(lw.UsageError, match="nothing that we know is in"):
        lw.read(tmp_path / "server.properties")


def test_several_things_are_not_inspected_as_one(tmp_path: Path) -> None:
    case = CASES["dmg_base"].partition
    with pytest.raises(lw.UsageError, match="one can be inspected at a time"):
        lw.inspect(str(case / "*.log"))


def test_meta_properties_are_no_configuration(logs: Path) -> None:
    with pytest.raises(lw.UsageError, match="none that we know"):
        lw.read(logs / "meta.properties")


def test_a_log_directory_is_listed_with_what_can_be_seen_of_it() -> None:
    (one,) = lw.codecs("kafka.logdir")
    assert one["title"].startswith("Kafka log directory")
    assert one["views"] == lw.codecs("kafka.partition")[0]["views"]
    assert "kafka.logdir" in [each["name"] for each in lw.codecs()]


def test_a_configuration_stands_for_the_one_thing_that_it_names(tmp_path: Path) -> None:
    lw.write([{"value": "a"}, {"value": "b"}], tmp_path / "logs" / "a-0", "kafka.partition")
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'logs'}\n")
    assert "RecordBatch" in str(lw.explain(path, where={"offset": 1}))
    assert lw.diff(path, tmp_path / "logs" / "a-0").equal
    assert lw.repair(path, tmp_path / "out").rows == 2
    assert lw.convert(path, tmp_path / "new-0", compression_type="zstd")["rows"] == 2
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'logs' / 'a-0'}\n")
    assert lw.read(path).num_rows == 2


def test_what_a_configuration_is(configuration: Path, logs: Path) -> None:
    assert lw.detect(configuration) == lw.detect(logs) == "kafka.logdir"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_configuration_converted(configuration: Path, tmp_path: Path, jobs: int) -> None:
    done = lw.convert(configuration, tmp_path / "rows.parquet", jobs=jobs)
    assert (done["rows"], [Path(one).name for one in done["files"]]) == (7, ["rows.parquet"])
    done = lw.convert(configuration, tmp_path / "b-0", "kafka.partition", filter="partition == 1", jobs=jobs)
    assert done["rows"] == 4


def test_spark_reads_what_a_configuration_names(configuration: Path) -> None:
    from logwright.readers.spark import SparkSource
    from logwright.readers.spark_request import Request
    from logwright.readers.spark_schema import schema_of

    asked = Request.of({"path": str(configuration), "columns": "partition, offset"})
    reader = SparkSource(asked, schema_of(asked))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["partition"], row["offset"]) for row in found] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


def test_jobs_on_the_command_line(configuration: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for jobs in ("1", "2"):
        with pytest.raises(SystemExit) as status:
            main(["dump", str(configuration), "--columns", "offset", "--format", "csv", "-j", jobs])
        assert status.value.code == 0
        assert capfdbinary.readouterr().out.split() == b'"offset" 0 1 2 0 1 2 3'.split()
