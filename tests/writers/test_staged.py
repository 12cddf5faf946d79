"""A write by many tasks in many processes: which attempts count, and which files are left."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import toy

from logwright.codec.fault import (
    BusyError,
    ExistsError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
)
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.commit import Transaction
from logwright.writers.filesystem import Item, LocalFileSystem
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite, TaskMessage
from logwright.writers.write import write

LAYOUT = toy.ToyLayout()


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def staged(write: StagedWrite, task: int, *values: int, attempt: int = 0) -> TaskMessage:
    writer = write.task(task, attempt)
    writer.add(toy.numbers(*values))
    return pickled(writer.commit())


def rows(path: Path) -> list[int]:
    return toy.rows({child.name: child.read_bytes() if child.is_file() else None for child in path.iterdir()})


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_parts_are_in_the_order_of_their_tasks(tmp_path: Path, mode: str) -> None:
    box = tmp_path / "box"
    if mode != "error":
        write([toy.numbers(0)], box, LAYOUT)
    begun = StagedWrite(str(box), LAYOUT, mode, {"rows.per.segment": "2"})
    messages = [staged(pickled(begun), task, *range(task * 10, task * 10 + 3)) for task in (2, 1)]
    report = pickled(begun).commit(messages)
    new = [10, 11, 12, 20, 21, 22]
    assert rows(box) == ([0, *new] if mode == "append" else new)
    assert report.rows == 6
    assert report.ids == ({"first": 1, "last": 6} if mode == "append" else {"first": 0, "last": 5})
    assert os.listdir(tmp_path) == ["box"]
    begun.abort()
    assert len(rows(box)) == report.ids["last"] + 1


def test_only_committed_attempts_count(tmp_path: Path) -> None:
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT)
    staged(begun, 0, 1, 2, attempt=0)
    counts = staged(begun, 0, 3, 4, attempt=1)
    failed = begun.task(1, 0)
    failed.add(toy.numbers(5))
    failed.abort()
    forgotten = begun.task(1, 1)
    forgotten.add(toy.numbers(6, 7, 8, 9))
    report = begun.commit([counts, staged(begun, 1, 10, attempt=2)])
    assert rows(tmp_path / "box") == [3, 4, 10]
    assert report.rows == 3
    assert os.listdir(tmp_path) == ["box"]


def test_task_committed_twice_is_refused(tmp_path: Path) -> None:
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT)
    with pytest.raises(LogwrightError, match="more than one attempt"):
        begun.commit([staged(begun, 0, 1), staged(begun, 0, 1, attempt=1)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_abort_leaves_the_target_unchanged(tmp_path: Path, mode: str) -> None:
    box = tmp_path / "above" / "box"
    if mode != "error":
        write([toy.numbers(0)], box, LAYOUT)
    begun = StagedWrite(str(box), LAYOUT, mode)
    staged(begun, 0, 1, 2, 3)
    pickled(begun).abort()
    begun.abort()
    if mode == "error":
        assert os.listdir(tmp_path) == []
    else:
        assert rows(box) == [0]
        assert os.listdir(box.parent) == ["box"]
    with pytest.raises(NotFoundError, match="staging directory no longer exists"):
        begun.commit([])
    with pytest.raises(NotFoundError, match="does not exist here"):
        begun.task(1)


def test_commit_without_tasks_writes_an_empty_directory(tmp_path: Path) -> None:
    assert StagedWrite(str(tmp_path / "box"), LAYOUT).commit([]).rows == 0
    assert rows(tmp_path / "box") == []


@pytest.mark.parametrize("lost", ["a file", "some bytes", "all"])
def test_unshared_file_system_is_reported(tmp_path: Path, lost: str) -> None:
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT, "append")
    message = staged(begun, 3, 1, 2)
    (folder,) = tmp_path.glob(f"box/{LAYOUT.inner_staging}/*/{message.folder}")
    if lost == "all":
        shutil.rmtree(folder)
    elif lost == "a file":
        (folder / "00000.seg").unlink()
    else:
        (folder / "00000.seg").write_bytes(b"1234567")
    with pytest.raises(
        StorageError, match=r"not a shared file system: task 3 staged 00000\.seg with 24 bytes"
    ):
        begun.commit([message])
    assert rows(tmp_path / "box") == [0]


def test_task_reports_wrong_rows(tmp_path: Path) -> None:
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT)
    with pytest.raises(UsageError, match="a null") as caught:
        begun.task(0).add(toy.numbers(None))
    assert caught.value.path == str(tmp_path / "box")
    begun.abort()


def test_task_names_the_column_of_another_type(tmp_path: Path) -> None:
    begun = StagedWrite(str(tmp_path / "store"), "rocketmq.store")
    writer = begun.task(0)
    with pytest.raises(UsageError, match="column 'queue_id' has type string, expected int32"):
        writer.add(pa.record_batch({"topic": ["T"], "queue_id": ["x"], "body": [b""]}))
    begun.abort()


def test_wrong_options_are_reported_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown option"):
        StagedWrite(str(tmp_path / "box"), LAYOUT, options={"nonsense": 1})
    with pytest.raises(UsageError, match="only local"):
        StagedWrite("s3://bucket/box", LAYOUT)
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    with pytest.raises(ExistsError):
        StagedWrite(str(tmp_path / "box"), LAYOUT)
    assert os.listdir(tmp_path) == ["box"]
    assert rows(tmp_path / "box") == [0]


def test_staged_write_takes_a_layout_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.codec.registry.get_layout", {"toy.box": LAYOUT}.__getitem__)
    begun = StagedWrite(str(tmp_path / "box"), "toy.box")
    pickled(begun).commit([staged(begun, 0, 1)])
    assert rows(tmp_path / "box") == [1]


@pytest.mark.parametrize("first", ["append", "overwrite"])
@pytest.mark.parametrize("second", ["append", "overwrite"])
def test_second_of_two_concurrent_writes_is_refused(tmp_path: Path, first: str, second: str) -> None:
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    begun = [StagedWrite(str(tmp_path / "box"), LAYOUT, mode) for mode in (first, second)]
    messages = [staged(write, 0, number, number) for number, write in enumerate(begun, 1)]
    begun[0].commit([messages[0]])
    with pytest.raises((BusyError, NotFoundError)):
        begun[1].commit([messages[1]])
    begun[1].abort()
    assert rows(tmp_path / "box") == ([0, 1, 1] if first == "append" else [1, 1])
    assert os.listdir(tmp_path) == ["box"]


def test_target_created_during_the_write(tmp_path: Path) -> None:
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT)
    write([toy.numbers(7)], tmp_path / "box", LAYOUT)
    with pytest.raises(ExistsError, match="created by someone else"):
        begun.commit([staged(begun, 0, 1)])
    assert rows(tmp_path / "box") == [7]
    assert os.listdir(tmp_path) == ["box"]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_commit_does_not_wait_for_another_writer(tmp_path: Path, mode: str) -> None:
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT, mode)
    message = staged(begun, 0, 1)
    other = Transaction.begin(LocalFileSystem(), LAYOUT, str(tmp_path / "box"), mode)
    with pytest.raises(BusyError, match="another logwright process"):
        begun.commit([message])
    other.undo()
    begun.commit([message])
    assert rows(tmp_path / "box") == ([0, 1] if mode == "append" else [1])


def test_commit_while_another_writer_checks_the_staging(tmp_path: Path) -> None:
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT, "overwrite")
    message = staged(begun, 0, 1)
    looks = Transaction.resume(LocalFileSystem(), LAYOUT, begun._ticket)
    with pytest.raises(BusyError, match="another logwright process"):
        begun.commit([message])
    looks.pause()
    begun.commit([message])
    assert rows(tmp_path / "box") == [1]


def test_files_of_a_killed_driver_are_removed_by_the_next_write(tmp_path: Path) -> None:
    write([toy.numbers(0)], tmp_path / "box", LAYOUT)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import toy\n"
        "from logwright.writers.staged import StagedWrite\n"
        "for name in ('box', 'new'):\n"
        "    StagedWrite(sys.argv[2] + '/' + name, toy.ToyLayout(), 'append').task(0).add(toy.numbers(1, 2, 3, 4))\n"
        "print('staged', flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", code, os.path.dirname(toy.__file__), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "staged\n"
        files = LocalFileSystem()
        for name in ("box", "new"):
            finish_or_undo(files, LAYOUT, str(tmp_path / name))
        assert len(os.listdir(tmp_path)) == 2, "it is still running"
        assert LAYOUT.inner_staging in os.listdir(tmp_path / "box")
        driver.kill()
    for name in ("box", "new"):
        finish_or_undo(files, LAYOUT, str(tmp_path / name))
    assert os.listdir(tmp_path) == ["box"]
    assert rows(tmp_path / "box") == [0]


def test_files_of_a_remote_driver_are_removed_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem()
    files.make("/data")
    begun = StagedWrite("/data/box", LAYOUT, files=files)
    staged_there = set(files.tree())
    monkeypatch.setattr(files, "lives", lambda process: None)
    finish_or_undo(files, LAYOUT, "/data/box")
    assert set(files.tree()) == staged_there
    monkeypatch.setattr(files, "now", lambda: 25 * 3600.0)
    finish_or_undo(files, LAYOUT, "/data/box")
    assert set(files.tree()) == {"data"}
    begun.abort()


def test_unreadable_owner_record_has_no_owner() -> None:
    files = MemoryFileSystem()
    files.make("/data")
    begun = StagedWrite("/data/box", LAYOUT, files=files)
    (owner,) = (name for name in files.tree() if name.endswith("owner.json"))
    files.open(f"/{owner}").pwrite(b"?", 0)
    finish_or_undo(files, LAYOUT, "/data/box")
    assert set(files.tree()) == {"data"}
    begun.abort()


def test_layout_may_assemble_only_staged_files(tmp_path: Path) -> None:
    class Odd(toy.ToyLayout):
        def assemble(self, *args: Any) -> toy.Placement:
            placement = super().assemble(*args)
            return toy.Placement(((object(), "a", "b"), *placement.renames), placement.summary)  # type: ignore[arg-type]

    begun = StagedWrite(str(tmp_path / "box"), Odd())
    with pytest.raises(LogwrightError, match="unknown stage"):
        begun.commit([staged(begun, 0, 1)])

    class Absent(toy.ToyLayout):
        def assemble(self, *args: Any) -> toy.Placement:
            placement = super().assemble(*args)
            return toy.Placement(((placement.renames[0][0], "absent", "b"),), placement.summary)

    begun = StagedWrite(str(tmp_path / "box"), Absent())
    with pytest.raises(StorageError, match="absent is not staged"):
        begun.commit([staged(begun, 0, 1)])
    assert os.listdir(tmp_path) == []


class Stopping(LocalFileSystem):
    """A folder to which a stopping task adds files, `times` times, while it is being removed."""

    def __init__(self, times: int) -> None:
        self.times = times

    def listdir(self, path: str) -> list[Item]:
        names = super().listdir(path)
        if self.times and os.path.basename(path).startswith("task-"):
            self.times -= 1
            self.create(os.path.join(path, f"late-{self.times}")).close()
        return names


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
@pytest.mark.parametrize("times", [1, 3, 99])
def test_abort_waits_for_stopping_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, times: int
) -> None:
    monkeypatch.setattr("logwright.writers.staged._PATIENCE", (0.0, 0.0, 0.0))
    box = tmp_path / "box"
    if mode != "error":
        write([toy.numbers(0)], box, LAYOUT)
    begun = StagedWrite(str(box), LAYOUT, mode, files=Stopping(times))
    staged(begun, 0, 1)
    if times < 99:
        begun.abort()
    else:
        with pytest.raises(LogwrightError, match="not empty"):
            begun.abort()
        write(
            [toy.numbers(0)], box, LAYOUT, mode="overwrite"
        )  # Removes what was left although its driver runs.
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        [] if mode == "error" and times < 99 else ["box"]
    )
    assert mode == "error" or rows(box) == [0]


def test_abort_does_not_wait_for_a_failing_disk() -> None:
    files = MemoryFileSystem()
    begun = StagedWrite("/box", LAYOUT, files=files)
    staged_by = begun.task(0)
    staged_by.add(toy.numbers(1))
    staged_by.commit()
    files.fail(3)
    with pytest.raises(StorageError):
        begun.abort()
    assert files.failed
    begun.abort()
    assert files.stat("/box") is None


def test_abort_disturbed_to_the_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopping task keeps adding files. After some time the abort gives up and says so."""
    begun = StagedWrite(str(tmp_path / "box"), LAYOUT, "append")
    tried = []

    def disturbed(self: StagedWrite) -> None:
        tried.append(1)
        raise OSError(errno.ENOTEMPTY, "not empty", str(tmp_path / "box"))

    with monkeypatch.context() as patch:
        patch.setattr(StagedWrite, "_undo", disturbed)
        patch.setattr("logwright.writers.staged.time.sleep", lambda seconds: None)
        with pytest.raises(ExistsError, match="not empty"):
            begun.abort()
    assert len(tried) > 1
    begun.abort()
    assert not list(tmp_path.iterdir())
