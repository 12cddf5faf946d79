"""Zeros become holes, and staged files can be patched."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pieces import take

import logwright as lw
from logwright.codec.store.build import Piece
from logwright.codec.store.roots import Root, Roots, holds_files, name_without_roots, patterns_in
from logwright.codec.window import Zeros
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.filesystem import FileSystem, LocalFileSystem
from logwright.writers.stage import StagedFolder

PIECES = [
    Piece("a/slots", Zeros(1 << 24)),
    Piece("a/slots", b"behind"),
    Piece("a/slots", b"slot", offset=1 << 20),
    Piece("b", b"0123"),
    Piece("b", b"9", done=True, offset=3),
]


def staged(files: FileSystem, place: str) -> None:
    stage = StagedFolder(files, Roots(place), "place")
    stage.take(PIECES)
    stage.close()


def test_zeros_take_no_space_and_can_be_patched(tmp_path: Path) -> None:
    staged(LocalFileSystem(), str(tmp_path))
    slots = tmp_path / "a/slots"
    assert slots.stat().st_size == (1 << 24) + 6
    assert slots.stat().st_blocks * 512 < 1 << 20
    data = slots.read_bytes()
    assert data[1 << 20 : (1 << 20) + 4] == b"slot"
    assert data.endswith(b"behind")
    assert data.count(b"\0") == (1 << 24) - 4
    assert (tmp_path / "b").read_bytes() == b"0129"


def test_blocks_of_zeros_in_copied_files_become_holes(tmp_path: Path) -> None:
    rows = pa.table(
        {"topic": ["orders"] * 3, "queue_id": pa.array([0, 1, 2], pa.int32()), "body": [b"x"] * 3}
    )
    store, result = tmp_path / "store", tmp_path / "result"
    lw.write(rows, store, "rocketmq.store", mappedFileSizeCommitLog=1 << 20)
    for path in list(store.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)  # without holes
    lw.repair(store, result)
    queue = next(result.glob("consumequeue/orders/0/*"))
    assert queue.read_bytes() == (store / queue.relative_to(result)).read_bytes()
    assert queue.stat().st_blocks * 512 < queue.stat().st_size // 16


def test_memory_stage_equals_the_stage_on_disk() -> None:
    files = MemoryFileSystem()
    files.make("/place")
    staged(files, "/place")
    contents = {name: data for name, data in files.tree("/place").items() if data is not None}
    assert contents == take(PIECES)
    assert files.crash(len(files.trace), Kept.NOTHING).tree("/place") == files.tree("/place")


def test_staged_files_with_holes_read_as_zeros(tmp_path: Path) -> None:
    expected = take(PIECES)
    staged(LocalFileSystem(), str(tmp_path))
    stage = StagedFolder(LocalFileSystem(), Roots(str(tmp_path)), "place")
    assert {name: stage.read(name) for name in expected} == expected
    slots = expected["a/slots"]
    for start, length in ((0, 5), ((1 << 20) - 3, 8), ((1 << 24) - 2, 5), ((1 << 24) + 2, 99), (1 << 25, 1)):
        assert stage.read("a/slots", start, length) == slots[start : start + length]
        with stage.open("a/slots") as source:
            assert source.pread(start, length).tobytes() == slots[start : start + length]


@pytest.mark.parametrize(
    "piece", [Piece("b", b"12345", offset=0), Piece("b", b"1", offset=-1), Piece("c", b"1", offset=0)]
)
def test_only_staged_bytes_can_be_patched(piece: Piece) -> None:
    files = MemoryFileSystem()
    files.make("/place")
    stage = StagedFolder(files, Roots("/place"), "place")
    stage.take([Piece("b", b"0123")])
    with pytest.raises(ValueError, match="are not all in"):
        stage.take([piece])


def test_names_of_a_tree() -> None:
    roots = Roots("/store", {"log": "/other"})
    assert roots.at("log/1") == "/other/1"
    assert roots.at("queues/a/1") == "/store/queues/a/1"
    assert [*roots.below("x/y")] == ["/store/x/y", "/other/x/y"]
    assert name_without_roots("log/1", [Root("log", "/other")]) == "1"
    assert name_without_roots("log/1", [Root("log", "/other", "in/log")]) == "in/log/1"
    assert name_without_roots("queues/a/1", [Root("log", "/other")]) == "queues/a/1"
    assert name_without_roots("queues/a/1", [Root("log", "/other")], "own") == "own/queues/a/1"
    assert name_without_roots("", [Root("log", "/other")], "own") == ""


def test_folders_of_a_tree() -> None:
    patterns = ("queues/*/*", "log")
    for folder in ("", "queues", "queues/a", "queues/a/1", "log"):
        assert holds_files(folder, patterns), folder
    for folder in ("other", "queues/a/1/more", "log/more", "queues/.staging"):
        assert not holds_files(folder, patterns), folder
    assert patterns_in("queues", patterns) == ("*/*",)
    assert patterns_in("log", patterns) == ()
