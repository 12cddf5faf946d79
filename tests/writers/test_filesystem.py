"""The local file system does what its interface says, with readable errors."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from locked_file import lock_in_another_process

from logwright.codec.fault import (
    AccessError,
    BusyError,
    ExistsError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
)
from logwright.codec.store.roots import Roots
from logwright.readers.live import held, held_here
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers import filesystem
from logwright.writers.filesystem import (
    LocalFileSystem,
    as_view,
    explained,
    make_above,
    plain_errors,
    put_file,
    remove_tree,
    write_all,
)
from logwright.writers.stage import FolderListing

FILES = LocalFileSystem()


def test_file_is_written_by_position(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = FILES.create(path)
    assert write_all(file, np.arange(5, dtype=np.uint8), 0) == 5
    assert write_all(file, np.arange(10, dtype=np.uint8)[::2], 5) == 5
    file.sync()
    file.close()
    file.close()
    reopened = FILES.open(path)
    assert reopened.pwrite(b"\xff", 1) == 1
    reopened.close()
    assert FILES.read(path) == bytes([0, 255, 2, 3, 4, 0, 2, 4, 6, 8])
    assert FILES.read(path, 1, 2) == bytes([255, 2])
    with pytest.raises(FileExistsError):
        FILES.create(path)


def test_names_are_listed_renamed_and_removed(tmp_path: Path) -> None:
    first_path, other = str(tmp_path / "one"), str(tmp_path / "other")
    FILES.mkdir(first_path)
    FILES.mkdir(other)
    put_file(FILES, f"{first_path}/a", b"1")
    put_file(FILES, f"{other}/b", b"22")
    FILES.sync_directory(first_path)
    assert FILES.exchange(first_path, other)
    assert [(item.name, item.directory, item.size) for item in FILES.listdir(first_path)] == [("b", False, 2)]
    assert [(item.name, item.directory) for item in FILES.listdir(str(tmp_path))] == [
        ("one", True),
        ("other", True),
    ]
    FILES.rename_new(f"{first_path}/b", f"{first_path}/c")
    with pytest.raises(FileExistsError):
        FILES.rename_new(f"{first_path}/c", f"{other}/a")
    FILES.rename(f"{first_path}/c", f"{other}/a")
    assert FILES.read(f"{other}/a") == b"22"
    assert FILES.stat(f"{first_path}/c") is None
    assert FILES.stat(f"{other}/a/deeper") is None
    stat = FILES.stat(f"{other}/a")
    assert stat is not None
    assert (stat.directory, stat.size) == (False, 2)
    remove_tree(FILES, str(tmp_path))
    remove_tree(FILES, str(tmp_path))
    assert not tmp_path.exists()


def test_missing_renameat2_is_reported_and_rename_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr(filesystem.ctypes, "CDLL", Library)
    (tmp_path / "a").write_bytes(b"a")
    assert not FILES.exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    FILES.rename_new(str(tmp_path / "a"), str(tmp_path / "b"))
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(FileExistsError):
        FILES.rename_new(str(tmp_path / "a"), str(tmp_path / "b"))


def test_file_system_without_exchange_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, answer in ((errno.EINVAL, False), (errno.ENOSYS, False), (errno.EIO, None)):
        monkeypatch.setattr(filesystem.ctypes, "get_errno", lambda code=code: code)
        if answer is False:
            assert not FILES.exchange(str(tmp_path / "absent"), str(tmp_path / "b"))
        else:
            with pytest.raises(OSError, match="Input/output"):
                FILES.exchange(str(tmp_path / "absent"), str(tmp_path / "b"))


def test_tree_is_not_removed_through_links(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"1")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "gone" / "file").symlink_to(tmp_path / "kept" / "file")
    assert {i.name: i.size for i in FILES.listdir(str(tmp_path / "gone")) if i.name == "file"} == {"file": 1}
    remove_tree(FILES, str(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "kept" / "file").read_bytes() == b"1"


def test_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FILES.lock(str(path))
    assert lock is not None
    assert FILES.lock(str(path)) is None
    lock.release()
    lock.release()
    second_lock = FILES.lock(str(path))
    assert second_lock is not None
    second_lock.release()


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with lock_in_another_process(path, "flock"):
        assert FILES.lock(str(path)) is None
    lock = FILES.lock(str(path))
    assert lock is not None
    lock.release()


def test_lock_file_removed_before_locking_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real, calls = fcntl.flock, []

    def flock(fd: int, operation: int) -> None:
        if not calls:
            path.unlink()  # Another writer may finish between our open and our lock.
        calls.append(operation)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = FILES.lock(str(path))
    assert lock is not None
    assert len(calls) == 2
    assert path.exists()
    lock.release()


def test_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match="does not support locks"), plain_errors("x"):
        FILES.lock(str(tmp_path / "lock"))


def test_lock_of_the_system_is_seen_and_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    assert FILES.holder(str(path)) is None
    assert FILES.holder(str(path / "deeper")) is None
    assert not path.exists()
    path.touch()
    path.chmod(0o444)
    assert FILES.holder(str(path)) is None
    path.chmod(0o644)
    # As Java's FileChannel.lock does.
    with lock_in_another_process(path, "lockf") as process:
        assert FILES.holder(str(path)) == f"process {process.pid}"
        path_only = str(path)
        monkeypatch.setattr(sys, "platform", "darwin")
        assert FILES.holder(path_only) == "another process"
    assert FILES.holder(str(path)) is None


def test_processes_are_identified_by_start_time() -> None:
    mine = FILES.process()
    assert FILES.lives(mine)
    assert FILES.lives({**mine, "started": 1}) is False
    assert FILES.lives({**mine, "host": "elsewhere"}) is None
    assert FILES.lives({"host": mine["host"]}) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        theirs = FILES.process(child.pid)
        assert FILES.lives(theirs)
        child.kill()
    assert FILES.lives(theirs) is False


def test_processes_without_proc_are_checked_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def no_proc(path: object, *rest: object, **more: object) -> object:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return real(path, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", no_proc)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    mine = FILES.process()
    assert mine["host"] == os.uname().nodename
    assert FILES.lives(mine)
    assert FILES.lives({**mine, "pid": 2**22 + 1}) is False

    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert FILES.lives(mine)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.ENOSPC, StorageError, "no space left"),
        (errno.EDQUOT, StorageError, "quota"),
        (errno.EIO, StorageError, "input/output"),
        (errno.EROFS, AccessError, "read-only"),
        (errno.EACCES, AccessError, "permission denied"),
        (errno.EPERM, AccessError, "permission denied"),
        (errno.ENOENT, NotFoundError, "no such file"),
        (errno.ENOTEMPTY, ExistsError, "not empty"),
        (errno.EEXIST, ExistsError, "it already exists"),
        (errno.ENOTDIR, UsageError, "a component of the path is a file, not a directory"),
        (errno.EISDIR, UsageError, "expected a file"),
        (errno.ENAMETOOLONG, UsageError, "too long"),
        (errno.ENOLCK, StorageError, "does not support locks"),
        (errno.EXDEV, StorageError, "ross-device"),
        (errno.EAGAIN, BusyError, "another process"),
    ],
)
def test_system_errors_become_sentences(code: int, kind: type[LogwrightError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught, plain_errors("/target"):
        raise OSError(code, os.strerror(code), "/somewhere")
    assert caught.value.path == "/somewhere"
    assert not isinstance(caught.value, OSError) or caught.value.errno == code
    with pytest.raises(kind) as caught, plain_errors("/target"):
        raise OSError(code, os.strerror(code))
    assert caught.value.path == "/target"


def test_own_errors_without_a_path_get_one() -> None:
    with pytest.raises(StorageError) as caught, plain_errors("/target"):
        raise StorageError("no")
    assert caught.value.path == "/target"
    assert explained(caught.value, "/other") is caught.value
    assert "OSError" in str(explained(OSError(), "/other"))


def test_errors_of_an_open_file_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.create(str(tmp_path / "a"))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "fsync", full)
    for act in (lambda: file.pwrite(b"1", 0), file.sync, lambda: FILES.sync_directory(str(tmp_path))):
        with pytest.raises(OSError) as caught:
            act()
        assert str(caught.value.filename).startswith(str(tmp_path))
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes"):
        write_all(file, b"1", 0)
    file.close()


def test_unsyncable_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cant(fd: int) -> None:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "fsync", cant)
    FILES.sync_directory(str(tmp_path))


def test_parent_directories_are_removed_if_one_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert make_above(FILES, str(tmp_path / "a")) == ()
    assert make_above(FILES, str(tmp_path / "a/b/c")) == (str(tmp_path / "a/b"), str(tmp_path / "a/b/c"))
    with pytest.raises(OSError):
        make_above(FILES, str(tmp_path / "d" / ("n" * 300)))
    assert not (tmp_path / "d").exists()


def test_views_do_not_copy() -> None:
    data = np.zeros(4, np.uint8)
    as_view(data)[0] = 7
    assert data[0] == 7


def test_permissions_are_adopted_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, other = tmp_path / "one", tmp_path / "other"
    source.touch(0o600)
    other.touch(0o640)
    FILES.adopt(str(source), str(other))
    assert source.stat().st_mode & 0o777 == 0o600
    FILES.adopt(str(source), str(other), permissions=True)
    assert source.stat().st_mode & 0o777 == 0o640

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chmod", forbidden)
    monkeypatch.setattr(os, "chown", forbidden)
    FILES.adopt(str(source), str(tmp_path), permissions=True)


def test_file_that_vanished_after_listing_is_an_error() -> None:
    files = MemoryFileSystem()
    files.put("/data/box/there", b"abc")
    listing = FolderListing(files, Roots("/data/box"), "box")
    with listing.open("there") as source:
        assert source.pread(1, 9).tobytes() == b"bc"
    with pytest.raises(FileNotFoundError, match="/data/box/gone"):
        listing.open("gone")


def test_own_lock_is_seen_and_kept(tmp_path: Path) -> None:
    """F_GETLK does not report own locks, and opening and closing a locked file would release the lock."""
    place = tmp_path / "LOCK"
    with open(place, "w") as file:
        assert LocalFileSystem().holder(str(place)) is None
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert LocalFileSystem().holder(str(place)) == "this process"
        assert held([str(place)]) is True
        test = f"import fcntl; fcntl.lockf(open({str(place)!r}, 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        assert subprocess.run([sys.executable, "-c", test], capture_output=True, check=False).returncode == 1
    assert held([str(place)]) is False
    assert not held_here(str(tmp_path / "none"))
