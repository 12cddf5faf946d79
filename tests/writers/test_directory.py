"""Writing a directory: what is refused before any work, and which files remain."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import toy
from locked_file import lock_in_another_process

from logwright.codec.fault import (
    AccessError,
    BusyError,
    ExistsError,
    LogwrightError,
    StorageError,
    UsageError,
)
from logwright.codec.store.roots import Roots
from logwright.readers.journal import COMMIT, Journal
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.commit import Transaction
from logwright.writers.filesystem import LocalFileSystem
from logwright.writers.recover import finish_or_undo
from logwright.writers.stage import FolderListing
from logwright.writers.write import Written, write

LAYOUT = toy.ToyLayout()
FILES = LocalFileSystem()


def put(path: Path | str, *values: int, **more: Any) -> Written:
    return write([toy.numbers(*values)], path, LAYOUT, **more)


def rows(path: Path) -> list[int]:
    return toy.rows({child.name: child.read_bytes() if child.is_file() else None for child in path.iterdir()})


def test_report_of_a_write(tmp_path: Path) -> None:
    report = put(tmp_path / "box", 1, 2, 3, 4)
    assert report == Written(
        path=str(tmp_path / "box"),
        files=("00000.seg", "00001.seg", "count"),
        rows=4,
        bytes=49,
        ids={"first": 0, "last": 3},
        warnings=("toys break",),
        before_you_start=("wind it up",),
    )
    more = put(tmp_path / "box", 5, mode="append")
    assert (more.files, more.rows, more.ids) == (("00002.seg", "count"), 1, {"first": 4, "last": 4})
    assert rows(tmp_path / "box") == [1, 2, 3, 4, 5]
    put(tmp_path / "box", 6, mode="overwrite")
    assert rows(tmp_path / "box") == [6]
    assert os.listdir(tmp_path) == ["box"]


def test_rows_may_be_dicts_and_misspelt_options_are_refused(tmp_path: Path) -> None:
    write([{"value": 1}, {"value": 2}], f"file://{tmp_path}/box", LAYOUT, rows_per_segment="1")
    assert sorted(os.listdir(tmp_path / "box")) == ["00000.seg", "00001.seg", "count"]
    with pytest.raises(UsageError, match=r"Did you mean 'rows\.per\.segment'"):
        put(tmp_path / "other", 1, row_per_segments=1)
    assert os.listdir(tmp_path) == ["box"]


def test_parent_directories_are_created_and_removed_on_failure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a null"):
        write([{"value": None}], tmp_path / "a/b/box", LAYOUT)
    assert os.listdir(tmp_path) == []
    put(tmp_path / "a/b/box", 1)
    assert rows(tmp_path / "a/b/box") == [1]


def test_existing_directory_is_changed_only_on_request(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    with pytest.raises(
        ExistsError,
        match=r"Add to it with mode='append' \(--if-exists append\), or replace it with mode='overwrite'",
    ):
        put(tmp_path / "box", 2)
    (tmp_path / "file").write_bytes(b"")
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(ExistsError, match="is a file"):
            put(tmp_path / "file", 2, mode=mode)
    with pytest.raises(UsageError, match=r"unknown mode .*Valid values: error, append, overwrite"):
        put(tmp_path / "box", 2, mode="replace")
    assert rows(tmp_path / "box") == [1]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_directory_of_another_kind_is_not_changed(tmp_path: Path, mode: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpeg").write_bytes(b"cat")
    with pytest.raises(ExistsError, match=r"not a toy\.box"):
        put(tmp_path / "photos", 1, mode=mode)
    assert os.listdir(tmp_path / "photos") == ["cat.jpeg"]


@pytest.mark.parametrize("extra", ["notes.txt", "folder/"])
def test_unrelated_files_are_not_overwritten(tmp_path: Path, extra: str) -> None:
    put(tmp_path / "box", 1)
    path = tmp_path / "box" / extra
    path.mkdir() if extra.endswith("/") else path.write_bytes(b"")
    with pytest.raises(ExistsError, match=extra.rstrip("/")):
        put(tmp_path / "box", 2, mode="overwrite")
    assert path.exists()


def test_empty_directory_counts_as_missing(tmp_path: Path) -> None:
    for mode in ("error", "append", "overwrite"):
        (tmp_path / mode).mkdir()
        put(tmp_path / mode, 1, mode=mode)
        assert rows(tmp_path / mode) == [1]


def test_write_through_a_link(tmp_path: Path) -> None:
    put(tmp_path / "far/box", 1)
    (tmp_path / "link").symlink_to(tmp_path / "far/box")
    put(tmp_path / "link", 2, mode="append")
    put(tmp_path / "link", 3, mode="overwrite")
    assert rows(tmp_path / "link") == [3]
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "far") == ["box"]


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_mount_point_is_filled_in_place(mode: str) -> None:
    files = MemoryFileSystem()
    files.make("/disk")
    files.devices["/disk"] = 1
    write([toy.numbers(1, 2, 3, 4)], "/disk", LAYOUT, files=files)
    if mode != "error":
        write([toy.numbers(5)], "/disk", LAYOUT, mode=mode, files=files)
    assert (
        toy.rows(files.tree("/disk"))
        == {"append": [1, 2, 3, 4, 5], "overwrite": [5], "error": [1, 2, 3, 4]}[mode]
    )
    assert not any(change.kind in ("exchange",) for change in files.trace)


def test_root_directory_is_refused() -> None:
    files = MemoryFileSystem()
    with pytest.raises(UsageError, match="root"):
        write([toy.numbers(1)], "/", LAYOUT, files=files)


def test_running_system_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    (tmp_path / ".running").touch()
    with lock_in_another_process(tmp_path / ".running", "lockf") as process:
        for target, mode in (("box", "append"), ("box", "overwrite"), ("new", "error")):
            with pytest.raises(BusyError, match=f"toy is running .* locked by process {process.pid}"):
                put(tmp_path / target, 2, mode=mode)
        finish_or_undo(FILES, LAYOUT, str(tmp_path / "box"))
    put(tmp_path / "box", 2, mode="append")
    assert rows(tmp_path / "box") == [1, 2]
    assert sorted(os.listdir(tmp_path)) == [".running", "box"]


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_system_started_during_a_write_is_refused(mode: str) -> None:
    files = MemoryFileSystem()
    files.put("/data/.running", b"")
    if mode != "error":
        write([toy.numbers(1)], "/data/box", LAYOUT, files=files)
    before = files.tree()

    def source() -> Iterator[pa.RecordBatch]:
        yield toy.numbers(1)
        files.busy["/data/.running"] = "process 7"

    with pytest.raises(BusyError, match="toy is running"):
        write(source(), "/data/box", LAYOUT, mode=mode, files=files)
    assert files.tree() == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("exists", [True, False])
def test_one_writer_at_a_time(tmp_path: Path, mode: str, exists: bool) -> None:
    if exists:
        put(tmp_path / "box", 1)
    first = Transaction.begin(FILES, LAYOUT, str(tmp_path / "box"), mode)
    for other in ("append", "overwrite"):
        with pytest.raises(BusyError, match="another logwright process"):
            put(tmp_path / "box", 2, mode=other)
    if exists:
        with pytest.raises(BusyError, match="another logwright process"):
            finish_or_undo(FILES, LAYOUT, str(tmp_path / "box"))
    put(tmp_path / "another", 3)
    first.undo()
    put(tmp_path / "box", 4, mode="append")
    assert rows(tmp_path / "box") == ([1, 4] if exists else [4])
    assert sorted(os.listdir(tmp_path)) == ["another", "box"]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_target_changed_during_a_write_is_refused(tmp_path: Path, mode: str) -> None:
    put(tmp_path / "box", 1)

    def source() -> Iterator[pa.RecordBatch]:
        yield toy.numbers(2)
        (tmp_path / "box" / "00001.seg").write_bytes(b"by someone else")

    with pytest.raises(BusyError, match="nothing was written"):
        write(source(), tmp_path / "box", LAYOUT, mode=mode)
    assert sorted(os.listdir(tmp_path / "box")) == ["00000.seg", "00001.seg", "count"]
    assert os.listdir(tmp_path) == ["box"]


def test_target_created_during_a_write_is_refused(tmp_path: Path) -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield toy.numbers(2)
        (tmp_path / "box").mkdir()
        (tmp_path / "box" / "precious").write_bytes(b"")

    with pytest.raises(ExistsError):
        write(source(), tmp_path / "box", LAYOUT)
    assert os.listdir(tmp_path) == ["box"]
    assert os.listdir(tmp_path / "box") == ["precious"]


def test_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield toy.numbers(*range(10))
        raise KeyboardInterrupt

    for mode in ("error", "append", "overwrite"):
        with pytest.raises(KeyboardInterrupt):
            write(source(), tmp_path / "box", LAYOUT, mode=mode)
        assert os.listdir(tmp_path) == ([] if mode == "error" else ["box"])
        put(tmp_path / "box", 1, mode="overwrite")
    assert os.listdir(tmp_path) == ["box"]


def test_write_without_rows_leaves_a_readable_empty_directory(tmp_path: Path) -> None:
    report = write([], tmp_path / "box", LAYOUT)
    assert (report.rows, rows(tmp_path / "box")) == (0, [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_target_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(AccessError, match="permission denied"):
        put(tmp_path / "box", 1)
    tmp_path.chmod(0o755)


def commit_by_hand(box: Path) -> Path:
    place = box / LAYOUT.inner_staging / ("0" * 32)
    place.mkdir(parents=True)
    (place / "00001.seg").write_bytes((1).to_bytes(8, "big") + (7).to_bytes(8, "big"))
    (place / "count").write_bytes(b"2")
    before = {path.name: path.stat().st_size for path in box.iterdir() if path.is_file()}
    names = ("00001.seg", "count")
    record = Journal(tuple((n, n) for n in names), {n: (place / n).stat().st_size for n in names}, before)
    (place / COMMIT).write_text(record.to_json())
    return place


def test_next_writer_finishes_a_committed_write(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    commit_by_hand(tmp_path / "box")
    with pytest.raises(ExistsError):
        put(tmp_path / "box", 8)
    put(tmp_path / "box", 8, mode="append")
    assert rows(tmp_path / "box") == [1, 7, 8]


def test_commit_that_cannot_be_finished_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    place = commit_by_hand(tmp_path / "box")
    (tmp_path / "box" / "00000.seg").write_bytes(b"the system has been started")
    for mode in ("append", "overwrite"):
        with pytest.raises(StorageError, match="changed since") as caught:
            put(tmp_path / "box", 8, mode=mode)
        assert f"Move {place} elsewhere" in str(caught.value)
    assert sorted(path.name for path in place.iterdir()) == ["00001.seg", COMMIT, "count"]
    place.rename(tmp_path / "away")
    put(tmp_path / "box", 8, mode="overwrite")
    assert rows(tmp_path / "box") == [8]


def test_finished_commit_is_not_repeated(tmp_path: Path) -> None:
    """The system was started on the finished directory, and only the record was left."""
    put(tmp_path / "box", 1)
    place = commit_by_hand(tmp_path / "box")
    for name in ("00001.seg", "count"):
        (place / name).rename(tmp_path / "box" / name)
    (tmp_path / "box" / "00001.seg").unlink()
    (tmp_path / "box" / "count").write_bytes(b"1")
    put(tmp_path / "box", 8, mode="append")
    assert rows(tmp_path / "box") == [1, 8]


def test_unreadable_commit_record_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    place = commit_by_hand(tmp_path / "box")
    (place / COMMIT).write_text("{}")
    with pytest.raises(StorageError, match="invalid commit record"):
        put(tmp_path / "box", 8, mode="append")
    assert (place / "00001.seg").exists()


def test_files_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    put(tmp_path / "box", 1)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "import toy\n"
        "from logwright.writers.commit import Transaction\n"
        "from logwright.writers.filesystem import LocalFileSystem\n"
        "for name, mode in (('box', 'append'), ('new', 'error')):\n"
        "    t = Transaction.begin(LocalFileSystem(), toy.ToyLayout(), os.path.join(sys.argv[2], name), mode)\n"
        "    t.stage.append('00001.seg', b'half')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, os.path.dirname(toy.__file__), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -9
    assert len(os.listdir(tmp_path)) == 2
    assert LAYOUT.inner_staging in os.listdir(tmp_path / "box")
    put(tmp_path / "box", 2, mode="append")
    put(tmp_path / "new", 3)
    assert sorted(os.listdir(tmp_path)) == ["box", "new"]
    assert (rows(tmp_path / "box"), rows(tmp_path / "new")) == ([1, 2], [3])


def test_rows_are_taken_in_the_thread_of_the_caller_and_pieces_computed_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterators of rows, such as cursors of sqlite3, may belong to a thread."""
    monkeypatch.setattr("logwright.writers.write.FEW", 1)
    monkeypatch.setattr("logwright.writers.write.usable", lambda: 2)
    taken, computed = set(), set()

    class Slow(LocalFileSystem):
        def create(self, path: str) -> Any:
            time.sleep(0.002)  # meanwhile the other thread computes the next piece
            return super().create(path)

    class Watched(toy.ToyLayout):
        def builder(self, *args: Any, **more: Any) -> Any:
            class Builder(toy.ToyBuilder):
                def add(self, batch: pa.RecordBatch) -> Iterator[toy.Piece]:
                    for piece in super().add(batch):
                        computed.add(threading.get_ident())
                        yield piece

            return Builder(0, 0, 3, False)

    def source() -> Iterator[pa.RecordBatch]:
        for i in range(10):
            taken.add(threading.get_ident())
            yield toy.numbers(*range(100 * i, 100 * i + 100))

    assert write(source(), tmp_path / "box", Watched(), files=Slow()).rows == 1000
    assert rows(tmp_path / "box") == list(range(1000))
    assert taken == {threading.get_ident()}
    assert computed - taken


def test_failed_write_leaves_nothing_while_a_thread_computes_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logwright.writers.write.FEW", 1)
    monkeypatch.setattr("logwright.writers.write.usable", lambda: 2)

    class Full(LocalFileSystem):
        left = 5

        def create(self, path: str) -> Any:
            self.left -= 1
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return super().create(path)

    with pytest.raises(StorageError, match="no space left"):
        write([toy.numbers(*range(100))], tmp_path / "box", LAYOUT, files=Full())
    assert os.listdir(tmp_path) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "logwright"]


def test_layout_cannot_write_outside_its_directory(tmp_path: Path) -> None:
    class Evil(toy.ToyLayout):
        def builder(self, *args: Any, **more: Any) -> Any:
            class Builder(toy.ToyBuilder):
                def finish(self) -> Iterator[toy.Piece]:
                    yield toy.Piece("../evil", b"")

            return Builder(0, 0, 3, False)

    with pytest.raises(LogwrightError, match="invalid file name"):
        write([toy.numbers(1)], tmp_path / "box", Evil())
    assert os.listdir(tmp_path) == []


def test_layout_must_order_all_files(tmp_path: Path) -> None:
    class Forgetful(toy.ToyLayout):
        def order(self, names: Any) -> Any:
            return sorted(names)[1:]

    with pytest.raises(LogwrightError, match="orders other files"):
        write([toy.numbers(1)], tmp_path / "box", Forgetful())
    assert os.listdir(tmp_path) == []


def test_file_tables_are_refused_for_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="frames and file"):
        write([toy.numbers(1)], tmp_path / "box", LAYOUT, frames=[])


def test_remote_stores_are_refused() -> None:
    with pytest.raises(UsageError, match="only local"):
        write([toy.numbers(1)], "s3://bucket/box", LAYOUT)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_written_by_root_belong_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1235)
    tmp_path.chmod(0o777)
    put(tmp_path / "box", 1)
    (tmp_path / "box").chmod(0o750)
    put(tmp_path / "box", 2, mode="append")
    put(tmp_path / "box", 3, mode="overwrite")
    put(tmp_path / "box", 4, mode="append")
    for path in (tmp_path / "box", *(tmp_path / "box").iterdir()):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)
    assert (tmp_path / "box").stat().st_mode & 0o777 == 0o750


def test_append_without_files_changes_nothing(tmp_path: Path) -> None:
    class Idle(toy.ToyLayout):
        def builder(self, *args: Any, **more: Any) -> Any:
            class Builder(toy.ToyBuilder):
                def finish(self) -> Iterator[toy.Piece]:
                    return iter(())

            return Builder(0, 0, 3, False)

    put(tmp_path / "box", 1)
    assert write([], tmp_path / "box", Idle(), mode="append").files == ()
    assert rows(tmp_path / "box") == [1]
    assert write([], tmp_path / "empty", Idle()).files == ()
    assert os.listdir(tmp_path / "empty") == []


def test_recovery_of_an_absent_directory_creates_nothing(tmp_path: Path) -> None:
    finish_or_undo(FILES, LAYOUT, str(tmp_path / "absent/box"))
    assert os.listdir(tmp_path) == []


def test_staging_directory_is_removed_with_its_contents(tmp_path: Path) -> None:
    left = tmp_path / LAYOUT.staging("box", "0" * 32)
    (left / LAYOUT.inner_staging / ("0" * 32)).mkdir(parents=True)
    (left / "folder").mkdir()
    (left / "folder" / "file").write_bytes(b"")
    put(tmp_path / "box", 1)
    assert os.listdir(tmp_path) == ["box"]


def test_layout_sees_names_and_sizes() -> None:
    files = MemoryFileSystem()
    files.put("/data/.running", b"")
    write([toy.numbers(1)], "/data/box", LAYOUT, files=files)
    transaction = Transaction.begin(files, LAYOUT, "/data/box", "append")
    listing, stage = transaction.listing, transaction.stage
    assert listing is not None
    assert (listing.name, stage.name) == ("box", "box")
    assert [(entry.name, entry.size) for entry in listing.entries()] == [("00000.seg", 16), ("count", 1)]
    assert listing.read("count") == b"1"
    for store in (listing, stage):
        above = store.parent()
        assert above is not None
        assert above.name == "data"
        assert [entry.name for entry in above.entries()] == [".running"]
        top = above.parent()
        assert top is not None
        assert top.parent() is None
    stage.append("a", b"12345")
    stage.patch("a", 1, b"xy")
    assert stage.read("a", 1, 3) == b"xy4"
    for offset in (-1, 4):
        with pytest.raises(ValueError, match="not all in a, which has 5"):
            stage.patch("a", offset, b"zz")
    transaction.undo()

    files.fail(1)
    assert FolderListing(files, Roots("/data/box"), "box").parent() is not None
    files.fail(0)
    assert FolderListing(files, Roots("/data/box"), "box").parent() is None
