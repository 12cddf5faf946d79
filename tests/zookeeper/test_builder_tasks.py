"""Data directories written by tasks, the place they are written to, and separate log directories."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from zookeeper_builds import SYSTEM, batch, by_tasks, nodes

import logwright as lw
from logwright.codec.fault import LogwrightError, UsageError
from logwright.writers.staged import StagedWrite

# By tasks


def test_tasks_write_the_same_bytes_as_one_writer(tmp_path: Path) -> None:
    rows = nodes(200)
    lw.write(batch(rows), tmp_path / "one", "zookeeper.datadir")
    for number, cuts in enumerate([(0, 200), (0, 50, 100, 200), (0, 0, 199, 200, 200)]):
        target = tmp_path / f"by-tasks-{number}"
        written = by_tasks(target, [rows[a:b] for a, b in itertools.pairwise(cuts)], sort_buffer_size=1 << 10)
        assert written.rows == 200
        (name,) = [path.name for path in (target / "version-2").iterdir()]
        assert (target / "version-2" / name).read_bytes() == (
            tmp_path / "one" / "version-2" / name
        ).read_bytes()
        assert [path.name for path in target.iterdir()] == ["version-2"]


def test_tasks_append_and_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "zk"
    by_tasks(path, [[{"path": "/a", "data": b"1"}], [{"path": "/b", "data": b"2"}], []])
    written = by_tasks(path, [[{"path": "/b/c", "data": b"3"}], [{"path": "/a", "data": b"4"}]], "append")
    assert written.files == ("log.1",)
    assert written.ids == {"first_zxid": 1, "last_zxid": 2}
    table = lw.read(path, columns=["path", "data"]).to_pylist()
    assert {row["path"]: row["data"] for row in table if row["path"] not in SYSTEM} == {
        "/a": b"4",
        "/b": b"2",
        "/b/c": b"3",
    }
    assert by_tasks(path, [[], []], "append").rows == 0
    by_tasks(path, [[{"path": "/only", "data": b""}]], "overwrite")
    assert [file.name for file in (path / "version-2").iterdir()] == ["snapshot.0"]
    by_tasks(path, [[{"path": "/x", "data": b"1"}]], "overwrite", write_as="logs")
    assert sorted(file.name for file in (path / "version-2").iterdir()) == ["log.1", "snapshot.0"]


def test_rows_that_tasks_cannot_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="transactions are written by one writer"):
        by_tasks(tmp_path / "zk", [[{"type": "delete", "path": "/a"}]])
    with pytest.raises(UsageError, match="the path '/a' occurs more than once"):
        by_tasks(tmp_path / "zk", [[{"path": "/a"}], [{"path": "/a"}]])
    with pytest.raises(UsageError, match="some rows have data, others have no such column"):
        by_tasks(tmp_path / "zk", [[{"path": "/a"}], [{"path": "/b", "data": b""}]], write_as="logs")
    assert list(tmp_path.iterdir()) == []


def test_changed_staged_rows_are_not_committed(tmp_path: Path) -> None:
    staged = StagedWrite(str(tmp_path / "zk"), "zookeeper.datadir", "error", {})
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(batch([{"path": f"/{number}", "data": b"x"}]))
        messages.append(task.commit())
    (item, _) = sorted(tmp_path.glob("**/task-*/run"))
    data = bytearray(item.read_bytes())
    data[-5] ^= 1
    item.write_bytes(data)
    with pytest.raises(LogwrightError, match="staged rows differ from what their task wrote"):
        staged.commit(messages)
    assert not (tmp_path / "zk" / "version-2").exists()


# Places


def test_version_2_folder_is_found_or_created(tmp_path: Path) -> None:
    """A server's dataDir is the folder above; if the files are in the given folder, it is that one."""
    rows = batch([{"path": "/a", "data": b"1"}])
    lw.write(rows, tmp_path / "zk", "zookeeper.datadir")
    assert [path.name for path in (tmp_path / "zk").iterdir()] == ["version-2"]
    lw.write(rows, tmp_path / "other" / "version-2", "zookeeper.datadir")
    assert [path.name for path in (tmp_path / "other" / "version-2").iterdir()] == ["snapshot.0"]
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "snapshot.0").write_bytes((tmp_path / "zk" / "version-2" / "snapshot.0").read_bytes())
    lw.write(batch([{"path": "/b", "data": b"1"}]), bare, "zookeeper.datadir", mode="append")
    assert sorted(path.name for path in bare.iterdir()) == ["log.1", "snapshot.0"]
    with pytest.raises(lw.LogwrightError, match="it already exists"):
        lw.write(rows, tmp_path / "zk", "zookeeper.datadir")
    (tmp_path / "file").write_text("")
    with pytest.raises(lw.LogwrightError):
        lw.write(rows, tmp_path / "file", "zookeeper.datadir")


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        lw.write(batch([{"path": "/a"}, {"path": "a"}]), tmp_path / "deep" / "zk", "zookeeper.datadir")
    assert list(tmp_path.iterdir()) == []


# Logs in a separate directory


def test_logs_are_written_to_data_log_dir(tmp_path: Path) -> None:
    """Written, appended and overwritten as configured by zoo.cfg, by one writer or by tasks."""
    data, logs, cfg = tmp_path / "data", tmp_path / "logs", tmp_path / "zoo.cfg"
    cfg.write_text(f"tickTime=2000\ndataDir={data}\ndataLogDir={logs}\n")

    def names() -> tuple[list[str], list[str]]:
        own, other = (sorted(path.name for path in (at / "version-2").iterdir()) for at in (data, logs))
        return own, other

    lw.write([{"path": "/a", "data": b"1"}], cfg, "zookeeper.datadir", write_as="logs")
    assert names() == (["snapshot.0"], ["log.1"])
    written = lw.write([{"path": "/b", "data": b"2"}], cfg, "zookeeper.datadir", mode="append")
    assert written.files == ("dataLogDir/log.2",)
    assert names() == (["snapshot.0"], ["log.1", "log.2"])
    staged = StagedWrite(str(cfg), "zookeeper.datadir", "append")
    task = staged.task(0)
    task.add(batch([{"path": "/c", "data": b"3"}]))
    assert staged.commit([task.commit()]).files == ("dataLogDir/log.3",)
    assert names() == (["snapshot.0"], ["log.1", "log.2", "log.3"])
    assert lw.verify(cfg).ok
    assert set(lw.read(cfg)["path"].to_pylist()) - SYSTEM == {"/a", "/b", "/c"}
    lw.write(
        [{"path": "/d", "data": b"4", "mzxid": 7}],
        data,
        "zookeeper.datadir",
        mode="overwrite",
        dataLogDir=logs,
    )
    assert names() == (["snapshot.7"], [])
    assert set(lw.read(cfg)["path"].to_pylist()) - SYSTEM == {"/d"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "logs", "zoo.cfg"]


def test_data_log_dir_of_a_conversion_is_that_of_the_result(tmp_path: Path) -> None:
    """The source is not searched for logs there."""
    lw.write([{"path": "/a", "data": b"1"}], tmp_path / "source", "zookeeper.datadir")
    lw.convert(
        tmp_path / "source",
        tmp_path / "copy",
        codec="zookeeper.datadir",
        write_as="logs",
        dataLogDir=tmp_path / "logs",
    )
    assert [path.name for path in (tmp_path / "logs" / "version-2").iterdir()] == ["log.1"]
    assert set(lw.read(tmp_path / "copy", dataLogDir=tmp_path / "logs")["path"].to_pylist()) - SYSTEM == {
        "/a"
    }


def test_unusable_data_log_dir_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(UsageError, match="is the store's own directory"):
        lw.write([{"path": "/a"}], data, "zookeeper.datadir", dataLogDir=data)
    lw.write([{"path": "/a"}], data, "zookeeper.datadir", write_as="logs")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="expected a directory, found a file"):
        lw.write([{"path": "/b"}], data, "zookeeper.datadir", mode="append", dataLogDir=tmp_path / "file")
    with pytest.raises(UsageError, match=r"log\.1 is in the directory of the snapshots"):
        lw.write([{"path": "/b"}], data, "zookeeper.datadir", mode="append", dataLogDir=tmp_path / "logs")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\n")
    with pytest.raises(UsageError, match="this configuration of kafka"):
        lw.write([{"path": "/b"}], tmp_path / "server.properties", "zookeeper.datadir")


def test_myid_file_is_written_and_kept(tmp_path: Path) -> None:
    """It is written next to version-2, once, and only with the rest of the commit."""
    item, rows = tmp_path / "one", [{"path": "/a"}]
    lw.write(rows, item, "zookeeper.datadir", myid=7, currentEpoch=2)
    assert sorted(path.name for path in item.iterdir()) == ["myid", "version-2"]
    assert (item / "myid").read_bytes() == b"7"
    facts = lw.inspect(item)["facts"]
    assert (facts["myid"], facts["accepted_epoch"], facts["current_epoch"]) == (7, 2, 2)
    lw.write(rows, item, "zookeeper.datadir", mode="overwrite", myid=7)
    with pytest.raises(LogwrightError, match="it contains '7', and '8' should be written"):
        lw.write(rows, item, "zookeeper.datadir", mode="overwrite", myid=8)
    with pytest.raises(UsageError, match="myid"):
        lw.write(rows, tmp_path / "two", "zookeeper.datadir", myid=0)
    with pytest.raises(UsageError, match="currentEpoch 1 is older"):
        lw.write(
            [{"path": "/a", "czxid": 0x300000001}],
            tmp_path / "two",
            "zookeeper.datadir",
            myid=8,
            currentEpoch=1,
        )
    assert not (tmp_path / "two").exists()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/snapshot.0").write_bytes((item / "version-2/snapshot.0").read_bytes())
    with pytest.raises(UsageError, match="myid belongs above version-2, but this directory has another name"):
        lw.write(rows, tmp_path / "plain", "zookeeper.datadir", mode="append", myid=8)
    staged = StagedWrite(str(tmp_path / "three"), "zookeeper.datadir", "error", {"myid": 9})
    assert not (tmp_path / "three/myid").exists()
    task = staged.task(0)
    task.add(batch(rows))
    staged.commit([task.commit()])
    assert (tmp_path / "three/myid").read_bytes() == b"9"
