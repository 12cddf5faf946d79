"""`repair` and `rebuild` of a directory of stores: a log directory, a broker's configuration, a folder of databases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run
from edited_stores import flat_text
from locked_file import lock_in_another_process

import logwright as lw

ID = "q83vASNFZ4mrze8BI0VniQ"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def overwrite(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55  # more than one bit, which would be corrected
    path.write_bytes(data)


def rows(count: int) -> pa.Table:
    return pa.table(
        {"key": [b"%04d" % n for n in range(count)], "value": [b"%03d" % n for n in range(count)]}
    )


def log_directory(path: Path) -> Path:
    """Create a sound partition, one damaged in the middle, one damaged at the end, and files beside them."""
    for name, count in (("orders-0", 30), ("orders-1", 300), ("orders-2", 50)):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        lw.write(rows(count), path / name, "kafka.partition", batch_size=500, topic_id=ID)
    for name, at in (("orders-1", 700), ("orders-2", -20)):
        overwrite(next((path / name).glob("*.log")), at)
    for name in CHECKPOINTS:
        (path / name).write_text("0\n3\norders 0 30\norders 1 300\norders 2 50\n")
    (path / "log-start-offset-checkpoint").write_text("0\n1\norders 2 45\n")
    (path / "meta.properties").write_text(
        "#\nversion=1\ncluster.id=abc\nnode.id=1\ndirectory.id=zzzzzzzzzzzzzzzzzzzzzQ\n"
    )
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    (path / ".lock").write_text("")
    (path / "lost+found").mkdir()
    (path / "NOTES").write_text("?")
    shutil.copytree(path / "orders-0", path / f"orders-9.{'a' * 32}-delete")
    return path


def files(path: Path) -> dict[str, bytes]:
    return {str(child.relative_to(path)): child.read_bytes() for child in path.rglob("*") if child.is_file()}


def check_result(path: Path, before: dict[str, bytes]) -> None:
    """Check that the result is the expected repair of `log_directory`."""
    report = lw.verify(path)
    assert report.ok, report.text()
    assert lw.read(path / "orders-0").num_rows == 30
    end = lw.read(path / "orders-2")["offset"].to_pylist()[-1] + 1
    assert 0 < end < 45
    for name in CHECKPOINTS:
        assert (path / name).read_text() == f"0\n3\norders 0 30\norders 1 300\norders 2 {end}\n"
    assert (path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (path / "meta.properties").read_bytes() == before["meta.properties"]
    assert not (path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("by", ["directory", "configuration"])
def test_log_directory_is_repaired_into_a_log_directory(tmp_path: Path, by: str) -> None:
    source = log_directory(tmp_path / "kafka-logs")
    before = files(source)
    configuration = tmp_path / "server.properties"
    configuration.write_text(f"node.id=1\nprocess.roles=broker\nlog.dirs={source}\n")
    out = tmp_path / "out"
    report = lw.repair(source if by == "directory" else configuration, out)
    assert files(source) == before
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["orders-0", "orders-1", "orders-2", *CHECKPOINTS, "log-start-offset-checkpoint", "meta.properties"]
    )
    check_result(out, before)
    assert (report.incomplete, report.failed, report.ok) == (True, 0, False)
    assert [
        (Path(target["path"]).name, target["incomplete"], target["error"]) for target in report["targets"]
    ] == [
        ("orders-0", False, None),
        ("orders-1", True, None),
        ("orders-2", True, None),
    ]
    assert [target["out"] for target in report["targets"]] == [str(out / f"orders-{n}") for n in range(3)]
    assert report["rows"] == sum(lw.read(out / f"orders-{n}").num_rows for n in range(3))
    assert {Path(removed["file"]).parent.name for removed in report["cut"]} == {"orders-1", "orders-2"}
    text = flat_text(report)
    assert "3 stores, 1 undamaged, 2 damaged" in text
    assert "skipped folders without a store: lost+found" in text
    assert "skipped files outside the stores: NOTES" in text
    assert "-delete is marked for deletion by the system: skipped" in text
    assert "copied unchanged: meta.properties" in text
    assert "remove the partition's line" not in text, "that is done"


def test_in_place_changes_and_saves_only_damaged_files(tmp_path: Path) -> None:
    source, backup = log_directory(tmp_path / "kafka-logs"), tmp_path / "backup"
    before = files(source)
    report = lw.repair(source, in_place=True, backup=backup)
    assert report.incomplete
    assert not report.failed
    check_result(source, before)
    after = files(source)
    saved = {name: data for name, data in files(backup).items() if not name.endswith("backup.json")}
    assert {
        str(Path("kafka.logdir", name) if "/" not in name else name): data
        for name, data in before.items()
        if after.get(name) != data
    } == saved
    second_report = lw.repair(source, in_place=True, backup=tmp_path / "other")
    assert not second_report.incomplete
    assert not (tmp_path / "other").exists()
    assert files(source) == after


def test_dry_run_reports_the_plan_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = log_directory(tmp_path / "kafka-logs")
    before = files(tmp_path)
    status, text = run("repair", str(source), "--dry-run"), " ".join(capsys.readouterr().out.split())
    assert status == 3
    assert files(tmp_path) == before
    assert "replication-offset-checkpoint is changed: orders-2 lowered from 50" in text
    assert text.endswith(f"logwright repair {source} --out DIR")


def test_log_directories_of_the_same_name_get_separate_folders(tmp_path: Path) -> None:
    disks = [log_directory(tmp_path / disk / "kafka-logs") for disk in ("a", "b")]
    shutil.rmtree(disks[1] / "orders-1")
    configuration = tmp_path / "server.properties"
    configuration.write_text(f"node.id=1\nlog.dirs={disks[0]},{disks[1]}\n")
    lw.repair(configuration, tmp_path / "out")
    check_result(tmp_path / "out" / "a" / "kafka-logs", files(disks[0]))
    second = tmp_path / "out" / "b" / "kafka-logs"
    assert not (second / "orders-1").exists()
    assert "orders 1" not in (second / CHECKPOINTS[0]).read_text()


def test_rebuild_keeps_the_files_of_the_log_directory(tmp_path: Path) -> None:
    source = log_directory(tmp_path / "kafka-logs")
    for name in ("orders-1", "orders-2"):
        shutil.rmtree(source / name)
    before = files(source)
    index = next((source / "orders-0").glob("*.timeindex"))
    index.unlink()
    report = lw.rebuild(source, tmp_path / "out")
    assert (report.failed, report.incomplete) == (0, False)
    kept = {
        name: data
        for name, data in before.items()
        if "-delete" not in name and name not in (".lock", "NOTES")
    }
    assert files(tmp_path / "out") == kept
    lw.rebuild(source, in_place=True, backup=tmp_path / "backup")
    assert files(source) == before


def databases(path: Path) -> Path:
    """A browser's profile: two databases at the top, deeper ones, and one inside another."""
    for name in (
        "Session Storage",
        "Extension State",
        "Local Storage/leveldb",
        "shared_proto_db",
        "shared_proto_db/metadata",
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        lw.write(rows(100), path / name, "leveldb.db")
    overwrite(next((path / "Extension State").glob("*.ldb")), 20)
    overwrite(next((path / "shared_proto_db" / "metadata").glob("*.ldb")), 20)
    (path / "Cache").mkdir()
    (path / "History").write_text("?")
    return path


def test_each_database_in_a_folder_is_repaired(tmp_path: Path) -> None:
    source, out = databases(tmp_path / "Default"), tmp_path / "out"
    report = lw.repair(source, out)
    assert sorted(path.name for path in out.iterdir()) == [
        "Extension State",
        "Session Storage",
        "shared_proto_db",
    ]
    assert all(lw.verify(path).ok for path in out.iterdir())
    text = flat_text(report)
    assert (
        "not checked: 2 stores in sub-folders: Local Storage/leveldb (leveldb.db), shared_proto_db/metadata"
        in text
    )
    assert "skipped folders without a store: Cache" in text
    assert "skipped files outside the stores: History" in text


def test_recursive_repair_visits_all_sub_folders(tmp_path: Path) -> None:
    source, out = databases(tmp_path / "Default"), tmp_path / "out"
    assert run("repair", str(source), "-r", "--out", str(out)) == 3
    assert {str(path.parent.relative_to(out)) for path in out.rglob("CURRENT")} == {
        str(path.parent.relative_to(source)) for path in source.rglob("CURRENT")
    }
    assert lw.verify(out, recursive=True).ok
    backup = tmp_path / "backup"
    assert run("repair", str(source), "--recursive", "--in-place", "--backup", str(backup)) == 3
    assert {name: data for name, data in files(source).items() if "/LOG" not in name} == {
        **files(out), "History": b"?"
    }  # fmt: skip
    assert (backup / "shared_proto_db" / "metadata" / "backup.json").exists()


def test_failing_store_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = databases(tmp_path / "Default"), tmp_path / "out"
    lock = source / "Session Storage" / "LOCK"
    lock.touch()
    with lock_in_another_process(lock, "lockf"):
        assert run("repair", str(source), "--out", str(out), "--json") == 1
    report: Any = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert {Path(target["path"]).name: target["error"] is None for target in report["targets"]} == {
        "Extension State": True, "Session Storage": False, "shared_proto_db": True,
    }  # fmt: skip
    assert "running" in next(target["error"] for target in report["targets"] if target["error"])
    assert sorted(path.name for path in out.iterdir()) == ["Extension State", "shared_proto_db"]
    assert lw.verify(out).ok


def test_report_of_a_repair_that_wrote_nothing_leads_to_the_original(tmp_path: Path) -> None:
    source = tmp_path / "databases"
    lw.generate("zookeeper.datadir", source / "db", rows=20, seed=7)
    overwrite(next((source / "db" / "version-2").glob("snapshot.*")), 500)
    report = lw.repair(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert report.text().splitlines()[-1] == f"  logwright verify {source}"


def test_invalid_requests_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = databases(tmp_path / "Default")
    before = files(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    before["full/x"] = b""
    for error, options in (
        (lw.UsageError, {"out": source / "out"}),
        (lw.UsageError, {"in_place": True, "backup": source / "backup"}),
        (lw.UsageError, {"in_place": True}),
        (lw.UsageError, {"out": tmp_path / "out", "segment.bytes": "1m"}),
        (lw.UsageError, {"out": tmp_path / "out", "strategy": "best"}),
        (lw.ExistsError, {"out": tmp_path / "full"}),
    ):
        with pytest.raises(error):
            lw.repair(source, **options)
    with pytest.raises(lw.UsageError):
        lw.rebuild(source, tmp_path / "out", what="everything else")
    assert files(tmp_path) == before
    with pytest.raises(lw.UsageError, match="recursive=True"):
        lw.repair(tmp_path, tmp_path / "out")


def test_zookeeper_configuration_stands_for_its_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "zk"
    lw.write([{"path": "/a", "data": b"x"}], data, "zookeeper.datadir")
    (tmp_path / "zoo.cfg").write_text(f"dataDir={data}\nclientPort=2181\n")
    report = lw.repair(tmp_path / "zoo.cfg", tmp_path / "out")
    assert not report.incomplete
    assert not report.parts
    assert lw.read(tmp_path / "out").equals(lw.read(data))
