"""The broker's handling of its log directories before it loads a log. `tests/oracle/test_start_oracle.py` asks the real broker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kafka_golden import CASES
from kafka_start import DIRECTORY_IDS, RAFT_LOG, STARTS, VOTE, Start, put, settings_of

import logwright as lw
from logwright.cli import main
from logwright.codec.kafka.formats.meta_properties import MetaPropertiesError, parse_meta_properties
from logwright.codec.kafka.formats.quorum_state import parse_quorum_state
from logwright.codec.kafka.names import loads_directory
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.kafka.store.raft_log import parse_snapshot
from logwright.readers.startup import predict_start

CLUSTER_ID = "Kg9s5hQ2T0mYb1cVwXzA_A"
ZOOKEEPER = "version=0\nbroker.id=0\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two log directories of a formatted broker that was started."""
    shutil.copytree(CASES["cluster_metadata_43"].path / "data", tmp_path / "d0")
    (tmp_path / "d1").mkdir()
    for name, directory_id in zip(("d0", "d1"), DIRECTORY_IDS, strict=True):
        (tmp_path / name / "meta.properties").write_text(
            f"node.id=1\ndirectory.id={directory_id}\nversion=1\ncluster.id={CLUSTER_ID}\n"
        )
        for file in ("recovery-point", "replication", "log-start"):
            (tmp_path / name / f"{file}-offset-checkpoint").write_text("0\n0\n")
    return tmp_path


def configure(home: Path, start: Start = STARTS[0]) -> Path:
    path = home / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings_of(home, start).items()))
    return path


def status(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("start", STARTS, ids=[start.name for start in STARTS])
def test_start_of_a_broker(home: Path, start: Start) -> None:
    start.change(home)
    verdict = predict_start(configure(home, start), version="4.3")
    assert verdict is not None
    assert (verdict.opens, verdict.scope) == (start.scope is None, start.scope), verdict.error
    if start.scope == "process":
        assert verdict.error_class == start.java
        assert verdict.error is not None
        assert verdict.error.startswith(start.error.format(home=home))


@pytest.mark.parametrize(
    "change",
    [put("d0/meta.properties", ""), put(f"{RAFT_LOG}/quorum-state", "garbage")],
    ids=["empty meta.properties", "garbage in quorum-state"],
)
def test_verify_of_a_configuration_fails_if_the_broker_does_not_start(
    home: Path, change: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("verify", configure(home), "--as-system") == 0
    change(home)  # type: ignore[operator]
    capsys.readouterr()
    assert status("verify", configure(home), "--as-system") == 3
    assert "kafka 4.3: does not start: " in capsys.readouterr().out


def test_report_of_a_configuration_has_the_exception_of_the_broker(home: Path) -> None:
    (home / "d0" / "meta.properties").write_text("")
    partitions_report = lw.verify(configure(home), as_system=True).to_dict()["system"]
    assert (partitions_report["opens"], partitions_report["scope"], partitions_report["error_class"]) == (
        False,
        "process",
        "java.lang.RuntimeException",
    )
    assert partitions_report["error"] == f"Error: node ID not found in {home}/d0"


def test_log_directory_without_configuration_is_checked_alone(home: Path) -> None:
    assert lw.verify(home / "d0", as_system=True).safe
    (home / "d0" / "meta.properties").write_text("")
    report = lw.verify(home / "d0", as_system=True)
    assert not report.safe
    assert report["system"]["error"] == f"Error: node ID not found in {home}/d0"


def test_used_log_directory_needs_its_identity(home: Path) -> None:
    (home / "d0" / "meta.properties").unlink()
    report = lw.verify(home / "d0", as_system=True)
    assert report["system"]["error"] == "No readable meta.properties files found."


def test_quorum_state_is_no_foreign_file(home: Path) -> None:
    files = {file["name"]: file for file in lw.inspect(home / RAFT_LOG)["files"]}
    assert files["quorum-state"]["role"] == "metadata"
    assert files[f"{128:020d}-{2:010d}.checkpoint"]["role"] == "metadata"
    assert lw.verify(home / RAFT_LOG).ok
    (home / RAFT_LOG / "quorum-state").write_text(VOTE[:20])
    report = lw.verify(home / RAFT_LOG)
    assert not report.ok
    assert [path for path, fault in report.faults if fault.severity == "error"] == ["quorum-state"]
    assert report["system"]["error_class"] == "java.io.UncheckedIOException"


def test_damaged_metadata_snapshot_is_found(home: Path) -> None:
    path = home / RAFT_LOG / f"{128:020d}-{2:010d}.checkpoint"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    report = lw.verify(home / RAFT_LOG)
    assert [name for name, fault in report.faults if fault.severity == "error"] == [path.name]


def test_unreadable_identity_takes_its_partitions_offline(tmp_path: Path) -> None:
    lw.write([{"value": "a"}], tmp_path / "a-0", "kafka.partition", topic_id=DIRECTORY_IDS[0])
    (tmp_path / "meta.properties").write_text("version=7\n")
    with pytest.raises(lw.LogwrightError, match=r"Unknown meta\.properties version number 7"):
        lw.read(tmp_path / "a-0", mode="AS_SYSTEM")


def test_a_directory_without_a_node_id_is_the_reason_why_the_broker_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-0", "b-0"):
        lw.write([{"value": "a"}], tmp_path / name, "kafka.partition")
    (tmp_path / "meta.properties").write_text("")
    (tmp_path / "b-0" / "00000000000000000000.log").write_bytes(b"damage" * 20)
    monkeypatch.chdir(tmp_path)
    text = lw.verify(".").text()
    assert "does not start: Error: node ID not found in .\n" in text
    assert re.search(r"meta\.properties +DAMAGED +it has neither node\.id nor broker\.id", text)
    assert "because of" not in text


# ZooKeeper mode


@pytest.fixture
def zookeeper_logs(tmp_path: Path) -> Path:
    """A log directory of a broker in ZooKeeper mode: its partitions have no topic id."""
    place = tmp_path / "logs"
    for name in ("a-0", "a-1"):
        lw.write([{"value": "x"}, {"value": "y"}], place / name, "kafka.partition")
        (place / name / "partition.metadata").unlink()
    (place / "meta.properties").write_text(ZOOKEEPER)
    (place / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return place


def test_directory_of_zookeeper_mode_is_judged_in_that_mode(zookeeper_logs: Path) -> None:
    report = lw.verify(zookeeper_logs, as_system=True)
    assert report.safe
    for verdict_lines in (report["system"], report["targets"][0]["system"]):
        assert (verdict_lines["opens"], verdict_lines["mode"]) == (True, "ZooKeeper")
        assert verdict_lines["mode_from"] == "meta.properties has version=0 and broker.id=0"
    assert "kafka in ZooKeeper mode (log rules of 4.3): opens both and loses nothing" in report.text()
    assert lw.read(zookeeper_logs / "a-0", mode="AS_SYSTEM").num_rows == 2


def test_version_without_zookeeper_mode_makes_its_partitions_stray(zookeeper_logs: Path) -> None:
    report = lw.verify(zookeeper_logs, as_system="4.3")
    assert not report.safe
    assert report["system"]["mode"] == "KRaft"
    assert report["system"]["error"] == f"Error: cluster ID not found in {zookeeper_logs}"
    report = lw.verify(zookeeper_logs / "a-0", as_system="4.3")
    assert not report.safe
    assert report["system"]["mode_from"] == "Kafka 4.3 has no other mode"


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("version=1\nnode.id=1\ncluster.id=x\n", "KRaft", "meta.properties has version=1"),
        ("broker.id=3\n", "ZooKeeper", "meta.properties has version=0 and broker.id=3"),
        ("", "KRaft", "assumed: meta.properties has neither node.id nor broker.id"),
        ("version=8\n", "KRaft", "assumed: meta.properties cannot be read"),
        (None, "KRaft", "assumed: there is no meta.properties"),
    ],
)
def test_report_names_the_assumed_mode(
    zookeeper_logs: Path, text: str | None, mode: str, reason: str
) -> None:
    path = zookeeper_logs / "meta.properties"
    path.unlink() if text is None else path.write_text(text)
    verdict_lines = lw.verify(zookeeper_logs / "a-0", as_system=True)["system"]
    assert (verdict_lines["mode"], verdict_lines["mode_from"]) == (mode, reason)


def test_migrated_directory_is_in_kraft_mode(zookeeper_logs: Path) -> None:
    (zookeeper_logs / "__cluster_metadata-0").mkdir()
    verdict_lines = lw.verify(zookeeper_logs / "a-0", as_system=True)["system"]
    assert (verdict_lines["mode"], verdict_lines["mode_from"]) == ("KRaft", "__cluster_metadata-0 exists")


def test_configuration_decides_the_mode(zookeeper_logs: Path) -> None:
    path = zookeeper_logs.parent / "server.properties"
    path.write_text(f"broker.id=0\nzookeeper.connect=z:2181\nlog.dirs={zookeeper_logs}\n")
    report = lw.verify(path, as_system=True)
    assert report.safe
    assert report["system"]["mode_from"] == "the configuration has zookeeper.connect and no process.roles"
    path.write_text(f"broker.id=5\nzookeeper.connect=z:2181\nlog.dirs={zookeeper_logs}\n")
    report = lw.verify(path, as_system=True)
    assert "Stored node id 0 doesn't match previous node id 5" in report["system"]["error"]


# Names and small files


@pytest.mark.parametrize(
    "name", ["a-0", "a b-0", "a--1", "a-+1", "a-01", "a-0.x-delete", "__cluster_metadata-1"]
)
def test_folders_that_a_broker_loads(name: str) -> None:
    assert loads_directory(name)


@pytest.mark.parametrize(
    "name", ["lost+found", "foo", "-0", "a-x", "a-", "a.b-stray", "a-99999999999", ".lock"]
)
def test_folders_that_stop_the_start(name: str) -> None:
    assert not loads_directory(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=x", "Invalid meta.properties version string 'x'"),
        ("version=2", "Unknown meta.properties version number 2"),
        ("version=1\ncluster.id=a", "Failed to find node.id"),
        ("version=1\nnode.id=1", "cluster.id was not found."),
        ("broker.id=", "Unable to read broker.id as a base-10 number."),
        ("directory.id=a", "Unable to read directory.id as a Uuid: "),
        ("a=\\u12", "Malformed \\uxxxx encoding."),
    ],
)
def test_unreadable_identity_is_an_error(text: str, message: str) -> None:
    with pytest.raises(MetaPropertiesError) as error:
        parse_meta_properties(text.encode())
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "data", [b"", b"{" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"\xff" * 9000, b'{"a":1e999}']
)
def test_arbitrary_quorum_state_is_an_error_of_the_broker(data: bytes) -> None:
    with pytest.raises(BrokerError):
        parse_quorum_state(data, "quorum-state")


def test_bytes_that_java_leaves_undecoded_are_no_error() -> None:
    assert parse_quorum_state(VOTE.encode() + b"\n" + bytes(9000) + b"\xff", "x")["leaderId"] == 1


def test_names_of_metadata_snapshots() -> None:
    snapshot_id = parse_snapshot(f"{7:020d}-{2:010d}.checkpoint")
    assert snapshot_id is not None
    assert tuple(snapshot_id) == (7, 2, True)
    unfinished = parse_snapshot(f"{7:020d}-{2:010d}.checkpoint.part")
    assert unfinished is not None
    assert not unfinished.finished
    assert parse_snapshot("quorum-state") is None
