"""Where bytes come from, and the errors if they cannot be read."""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_store import fake_store, frame  # noqa: F401

import logwright as lw
from logwright.codec.fault import AccessError, NotFoundError, StorageError, UsageError
from logwright.readers import source as sources
from logwright.readers.journal import COMMIT, Journal
from logwright.readers.listing import open_listing
from logwright.readers.live import held
from logwright.readers.source import MemorySource, explain, open_source

pytestmark = pytest.mark.usefixtures("fake_store")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.log"
    path.write_bytes(bytes(range(256)) * 4)
    return path


def test_read_beyond_the_end_of_a_file_is_short(file: Path) -> None:
    with open_source(str(file)) as source:
        assert source.size == 1024
        assert source.pread(3, 4).tobytes() == bytes([3, 4, 5, 6])
        assert source.pread(1020, 100).tobytes() == bytes([252, 253, 254, 255])
        assert len(source.pread(5000, 10)) == 0
        assert source.pread(0, 4).flags.writeable
        source.ahead(0, 1024)
    source.close()


def test_uri_reads_like_a_path(file: Path) -> None:
    for uri in (f"file://{file}", str(file)):
        with open_source(uri) as source:
            assert source.pread(0, 1024).tobytes() == file.read_bytes()


def test_file_of_an_arrow_file_system_reads_like_a_local_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any file system of pyarrow works. The local one stands for remote ones."""
    from pyarrow import fs

    monkeypatch.setattr(sources, "file_system", lambda uri: (fs.LocalFileSystem(), uri.removeprefix("far:/")))
    with open_source(f"far://{file}") as source:
        assert source.size == 1024
        assert source.pread(3, 4).tobytes() == bytes([3, 4, 5, 6])
        assert source.pread(1020, 100).tobytes() == bytes([252, 253, 254, 255])
    with pytest.raises(NotFoundError):
        open_source(f"far://{file}.gone")


def test_unknown_file_system_is_refused() -> None:
    with pytest.raises(UsageError, match=r"pyarrow\.fs"):
        open_source("gopher://host/file")


def test_read_from_memory_is_writable_and_ends_with_the_bytes() -> None:
    with MemorySource(b"abcdef") as source:
        assert source.pread(2, 2).tobytes() == b"cd"
        assert source.pread(5, 9).tobytes() == b"f"
        assert source.pread(0, 2).flags.writeable


@pytest.mark.parametrize("size", [10, 100])
def test_standard_input_of_any_size_is_read_by_position(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small input stays in memory, large input goes to a temporary file. Both are read by position."""
    monkeypatch.setattr(sources, "_SPOOL", 50)
    data = bytes(range(size))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with open_source("-") as source:
        assert (source.path, source.size) == ("stdin", size)
        assert source.pread(5, 3).tobytes() == data[5:8]


def test_named_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"through a pipe",))
    writer.start()
    with open_source(str(pipe)) as source:
        assert source.pread(0, 99).tobytes() == b"through a pipe"
    writer.join()


def test_pipe_with_a_late_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def late() -> None:
        time.sleep(0.1)
        with open(pipe, "wb") as file:
            time.sleep(0.1)
            file.write(b"in the end")

    writer = threading.Thread(target=late)
    writer.start()
    with open_source(str(pipe)) as source:
        assert source.pread(0, 99).tobytes() == b"in the end"
    writer.join()


def test_data_written_to_a_pipe_before_it_is_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    both = os.open(pipe, os.O_RDWR)
    os.write(both, b"early")
    closer = threading.Timer(0.3, os.close, [both])
    closer.start()
    with open_source(str(pipe)) as source:
        assert source.pread(0, 99).tobytes() == b"early"
    closer.join()


def test_pipe_without_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.source._PATIENCE", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="no process wrote to this pipe"):
        open_source(str(tmp_path / "pipe"))


def test_dangling_link_is_named_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NotFoundError, match=r"gone: dangling link to nowhere"):
        open_source(str(tmp_path / "gone"))
    with pytest.raises(StorageError, match=r"loop: the link points to itself"):
        open_source(str(tmp_path / "loop"))


def test_entry_that_cannot_be_examined_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "bad.log"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return False

        def stat(self) -> Any:
            raise OSError(errno.EIO, "Input/output error")

    @contextmanager
    def entries(path: str) -> Iterator[Any]:
        yield [Entry()]

    monkeypatch.setattr(os, "scandir", entries)
    with pytest.raises(StorageError, match=r"bad\.log: read error: Input/output error"):
        open_listing(str(tmp_path))


def test_file_that_became_shorter(file: Path) -> None:
    with open_source(str(file)) as source:
        os.truncate(file, 100)
        assert len(source.pread(90, 50)) == 10


def test_holes_are_zeros_that_need_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, block, read = tmp_path / "preallocated.log", 1 << 20, os.preadv
    with path.open("wb") as file:
        file.write(b"a" * block)
        file.seek(3 * block)
        file.write(b"b" * block)
        file.truncate(6 * block)
        if os.lseek(file.fileno(), block, os.SEEK_DATA) != 3 * block:
            pytest.skip("the file system has no holes")
    reads = []

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        reads.append(offset)
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    with open_source(str(path)) as source:
        for offset, length in ((0, 6), (1, 2), (1, 3), (2, 1), (3, 1), (4, 2), (5, 9), (7, 1)):
            expected = path.read_bytes()[offset * block : (offset + length) * block]
            reads.clear()
            assert source.pread(offset * block, length * block).tobytes() == expected
            assert bool(reads) == any(byte in expected for byte in b"ab")
        path.open("r+b").truncate(4 * block + 5)  # the hole became shorter
        assert source.pread(4 * block, 2 * block).tobytes() == bytes(5)


def test_not_found_names_similar_files(file: Path) -> None:
    with pytest.raises(NotFoundError, match=r"Did you mean .*some\.log"):
        open_source(str(file.parent / "some.lgo"))
    with pytest.raises(NotFoundError, match="nearest existing directory"):
        open_source(str(file.parent / "no" / "such" / "file"))
    with pytest.raises(NotFoundError, match="has no similar name"):
        open_source(str(file.parent / "xyzzy"))
    with pytest.raises(NotFoundError, match="not a directory"):
        open_source(str(file / "below"))
    with pytest.raises(FileNotFoundError):
        open_source(str(file.parent / "xyzzy"))


def test_directories_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found a directory"):
        open_source(str(tmp_path))
    with pytest.raises(UsageError, match="a socket or device; expected a file, directory or pipe"):
        open_source("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(UsageError, match="a socket or device"):
            open_source(str(tmp_path / "socket"))


def test_permission_error_names_the_owner(file: Path) -> None:
    error = explain(PermissionError(errno.EACCES, "no"), str(file))
    assert isinstance(error, AccessError)
    assert "It belongs to" in str(error)
    assert "-rw" in str(error)
    assert "may list" in str(explain(PermissionError(errno.EACCES, "no"), "/gone/for/good"))


def test_disk_errors_keep_their_message(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_source(str(file)) as source:

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(StorageError, match="at byte 0") as caught:
            source.pread(7, 4)
    assert "ddrescue" in str(caught.value)
    assert (
        str(explain(OSError(errno.EBADF, "Bad file descriptor"), "x")) == "x: read error: Bad file descriptor"
    )
    assert "ulimit" in str(explain(OSError(errno.EMFILE, "Too many open files"), "x"))


# Directories


def test_directory_lists_files_only(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"22")
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    directory = open_listing(str(tmp_path))
    assert [(entry.name, entry.size) for entry in directory.entries()] == [("a", 1), ("b", 2), ("link", 2)]
    assert list(directory.folders()) == ["sub"]
    assert directory.read("b") == b"22"
    assert directory.read("b", 1, 5) == b"2"
    assert directory.name == tmp_path.name
    parent = open_listing(str(tmp_path / "sub")).parent()
    assert parent is not None
    assert parent.name == tmp_path.name
    assert parent.read("a") == b"1"


def test_directory_has_the_last_name_of_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "link-7").symlink_to(tmp_path / "orders-0")
    monkeypatch.chdir(tmp_path / "orders-0")
    assert open_listing(".").name == "orders-0"
    assert open_listing(f"{tmp_path}/orders-0/").name == "orders-0"
    assert open_listing(f"{tmp_path}/link-7").name == "link-7"
    assert open_listing("/").parent() is None


def test_file_is_no_directory(file: Path) -> None:
    with pytest.raises(UsageError, match="expected a directory"):
        open_listing(str(file))
    with pytest.raises(NotFoundError):
        open_listing(str(file.parent / "gone"))


def test_remote_directory_lists_its_files_folders_and_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    from logwright.readers import listing

    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "a").write_bytes(b"123")
    (tmp_path / "box" / "sub").mkdir()
    for module in (sources, listing):
        monkeypatch.setattr(
            module, "file_system", lambda uri: (fs.LocalFileSystem(), uri.removeprefix("far:/"))
        )
    directory = open_listing(f"far://{tmp_path}/box")
    assert directory.name == "box"
    assert [(entry.name, entry.size) for entry in directory.entries()] == [("a", 3)]
    assert list(directory.folders()) == ["sub"]
    assert directory.read("a", 1) == b"23"
    parent = directory.parent()
    assert parent is not None
    assert list(parent.folders()) == ["box"]
    with pytest.raises(NotFoundError):
        open_listing(f"far://{tmp_path}/gone")


# A committed append that is not finished


def staged(path: Path, journal: str) -> Path:
    place = path / ".logwright-toy" / "0f"
    place.mkdir(parents=True)
    (place / COMMIT).write_text(journal)
    return place


def test_committed_append_is_visible(tmp_path: Path) -> None:
    (tmp_path / "000.toy").write_bytes(b"old")
    (tmp_path / "count").write_bytes(b"1")
    journal = Journal(
        (("1.toy", "001.toy"), ("new", "count")), {"001.toy": 4, "count": 2}, {"000.toy": 3, "count": 1}
    )
    place = staged(tmp_path, journal.to_json())
    (place / "1.toy").write_bytes(b"next")
    (place / "new").write_bytes(b"22")
    directory = open_listing(str(tmp_path))
    assert [(entry.name, entry.size) for entry in directory.entries()] == [
        ("000.toy", 3),
        ("001.toy", 4),
        ("count", 2),
    ]
    assert directory.read("001.toy") == b"next"
    assert directory.read("count") == b"22"
    assert directory.shown("count") == f"{tmp_path}/count"
    assert not directory.warnings


def test_uncommitted_append_is_invisible(tmp_path: Path) -> None:
    (tmp_path / "000.toy").write_bytes(b"old")
    place = tmp_path / ".logwright-toy" / "0f"
    place.mkdir(parents=True)
    (place / "1.toy").write_bytes(b"next")
    directory = open_listing(str(tmp_path))
    assert [entry.name for entry in directory.entries()] == ["000.toy"]
    assert not directory.warnings


def test_append_overtaken_by_the_system_is_reported(tmp_path: Path) -> None:
    (tmp_path / "000.toy").write_bytes(b"older")
    place = staged(tmp_path, Journal((("1.toy", "001.toy"),), {"001.toy": 4}, {"000.toy": 3}).to_json())
    (place / "1.toy").write_bytes(b"next")
    directory = open_listing(str(tmp_path))
    assert [entry.name for entry in directory.entries()] == ["000.toy"]
    assert "changed since" in directory.warnings[0]


def test_garbled_commit_record_is_reported(tmp_path: Path) -> None:
    (tmp_path / "000.toy").write_bytes(frame(0))
    staged(tmp_path, "{")
    assert "is invalid" in open_listing(str(tmp_path)).warnings[0]


def test_removed_files_are_invisible(tmp_path: Path) -> None:
    (tmp_path / "000.toy").write_bytes(b"old")
    (tmp_path / "stale").write_bytes(b"x")
    staged(tmp_path, Journal((), {}, {"000.toy": 3, "stale": 1}, ("stale",)).to_json())
    assert [entry.name for entry in open_listing(str(tmp_path)).entries()] == ["000.toy"]


# Locks


def test_locks_are_seen_and_not_taken(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert held([str(lock)]) is False
    assert not lock.exists()
    lock.touch()
    assert held([str(lock)]) is False
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True);"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert held([str(lock)]) is True
    finally:
        holder.communicate()
    assert held([str(lock)]) is False
    assert held([]) is None


def test_file_system_of_a_uri(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    system, inner = sources.file_system(f"file://{tmp_path}/a")
    assert inner == f"{tmp_path}/a"
    with system.open_input_file(inner) as file:
        assert file.read() == b"abc"
    with pytest.raises(UsageError, match="unsupported URI"):
        sources.file_system("nowhere://x")


@pytest.mark.parametrize("error", [OSError("no route"), pa.ArrowException("no route")])
@pytest.mark.parametrize("uri", ["gs://bucket/orders-0", "gs://bucket/*.log", "s3://bucket/*.log"])
def test_unreachable_server_is_one_error_with_advice_after_seconds(
    monkeypatch: pytest.MonkeyPatch, error: Exception, uri: str
) -> None:
    asked: list[str] = []

    class Unreachable:
        @classmethod
        def from_uri(cls, uri: str) -> tuple[Any, str]:
            asked.append(uri)
            return cls(), uri.partition("//")[2].partition("?")[0]

        def get_file_info(self, place: Any) -> Any:
            raise error

    monkeypatch.setattr("pyarrow.fs.FileSystem", Unreachable)
    with pytest.raises(StorageError, match=r"no route\. Check the address, the network and the credentials"):
        lw.read(uri)
    assert asked[0].startswith(uri)
    assert ("retry_limit_seconds=10" in asked[0]) == uri.startswith("gs")
