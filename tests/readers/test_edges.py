"""Rare conditions of a reader: files that vanish, failing file systems, values out of range."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import fake_store as fake_stores
import numpy as np
import pyarrow as pa
import pytest
from fake_store import FRAMES_CODEC, ToyFrames, frame, shuffled

import logwright as lw
from logwright.codec.frames.walk import Walk
from logwright.codec.option import Options
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.readers import inspect, listing, live, paths, report, report_data, source, store_search, task
from logwright.readers.filter import Filter
from logwright.readers.listing import open_listing
from logwright.readers.source import ArrowSource, MemorySource, explain, open_source

pytestmark = pytest.mark.usefixtures("fake_store")
fake_store = fake_stores.fake_store


@pytest.fixture
def box(tmp_path: Path) -> Path:
    path = tmp_path / "box"
    path.mkdir()
    (path / "000.toy").write_bytes(b"".join(shuffled(30)))
    return path


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def far(monkeypatch: pytest.MonkeyPatch, **broken: Any) -> None:
    """Register `far://`: the local file system with some operations broken."""
    from pyarrow import fs

    class Far:
        def __init__(self) -> None:
            self.system = fs.LocalFileSystem()

        def __getattr__(self, name: str) -> Any:
            return broken.get(name) or getattr(self.system, name)

    for module in (source, listing, paths):
        monkeypatch.setattr(module, "file_system", lambda uri: (Far(), uri.removeprefix("far:/")))


# Sources


def test_remote_file_that_ends_early_or_fails() -> None:
    class File:
        def __init__(self, *pieces: Any) -> None:
            self.pieces = list(pieces)

        def size(self) -> int:
            return 10

        def read_at(self, length: int, offset: int) -> bytes:
            piece = self.pieces.pop(0) if len(self.pieces) > 1 else self.pieces[0]
            if isinstance(piece, OSError):
                raise piece
            return bytes(piece)

        def close(self) -> None: ...

    assert ArrowSource("far", File(b"abc", b"de", b"")).pread(0, 9).tobytes() == b"abcde"
    with pytest.raises(lw.StorageError, match="at byte 0: the disk cannot read 10 bytes"):
        ArrowSource("far", File(b"abc", OSError(errno.EIO, "bad"))).pread(0, 9)
    with pytest.raises(lw.StorageError, match="read error: no route"):
        ArrowSource("far", File(OSError("no route"))).pread(0, 9)


def test_standard_input_that_fails_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError(errno.EIO, "bad")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(lw.StorageError):
        open_source("-")


def test_own_errors_are_not_wrapped() -> None:
    ours = lw.NotFoundError("x")
    assert explain(ours, "y") is ours


def test_not_found_in_an_unlistable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", failing(PermissionError(errno.EACCES, "no")))
    with pytest.raises(lw.NotFoundError):
        open_source(str(tmp_path / "gone"))


def test_not_found_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(lw.NotFoundError, match="is empty"):
        open_source(str(tmp_path / "gone"))


def test_owner_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setattr(pwd, "getpwuid", failing(KeyError("no such user")))
    text = str(explain(PermissionError(errno.EACCES, "no"), str(tmp_path)))
    assert f"It belongs to {os.getuid()} (d" in text


def test_files_that_cannot_be_opened(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", failing(PermissionError(errno.EACCES, "no")))
    with pytest.raises(lw.AccessError, match="It belongs to"):
        lw.read(box / "000.toy")


# Directories


def test_files_that_vanish_during_listing(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "gone"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return False

        def stat(self) -> Any:
            raise FileNotFoundError(errno.ENOENT, "gone")

        def is_symlink(self) -> bool:
            return False

    class Found:
        def __enter__(self) -> Iterator[Any]:
            return iter([Entry()])

        def __exit__(self, *_: Any) -> None: ...

    monkeypatch.setattr(os, "scandir", lambda path: Found())
    assert not open_listing(str(box)).entries()


def test_directory_without_permission_is_an_access_error(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", failing(PermissionError(errno.EACCES, "no")))
    with pytest.raises(lw.AccessError):
        lw.read(box)


def test_staged_files_that_vanish_during_reading(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = box / ".logwright-toy" / "0f"
    place.mkdir(parents=True)
    (place / "commit.json").write_text(
        '{"journal": 1, "renames": [["a", "b"]], "sizes": {"b": 1}, "fingerprint": {}}'
    )
    (place / "a").write_bytes(b"x")
    stat = os.stat

    def gone(path: Any, **rest: Any) -> Any:
        if str(path).endswith("0f/a"):
            raise FileNotFoundError(errno.ENOENT, "gone")
        return stat(path, **rest)

    monkeypatch.setattr(os, "stat", gone)
    assert [entry.name for entry in open_listing(str(box)).entries()] == ["000.toy"]


def test_remote_directory_that_fails_is_a_storage_error(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far(monkeypatch)
    assert open_listing("far:///").parent() is None
    below = open_listing(f"far://{box}")
    far(monkeypatch, get_file_info=failing(OSError(errno.EIO, "no network")))
    assert below.parent() is None
    with pytest.raises(lw.StorageError, match="no network"):
        lw.read(f"far://{box}")


def test_folders_that_cannot_be_searched(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(path: str, *rest: Any) -> Any:
        if path.endswith("box"):
            raise lw.AccessError("no", path=path)
        return open_listing(path)

    monkeypatch.setattr(store_search, "open_listing", listed)
    with pytest.raises(lw.UsageError, match="unrecognised"):
        lw.read(box.parent)


def test_path_that_is_not_text_is_refused() -> None:
    class Odd:
        def __fspath__(self) -> bytes:
            return b"x"

    with pytest.raises(lw.UsageError, match="path must be text"):
        lw.read(Odd())  # type: ignore[arg-type]


def test_layout_is_refused_for_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(frame(1, b"x"))))
    with pytest.raises(lw.UsageError, match=r"but this is a file\. The file looks like toy\.frames$"):
        lw.read("-", "toy.store")


def test_directory_decides_how_a_torn_tail_counts_in_a_single_file(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn tail is a warning in the last file only. Without a plan the position of the file is unknown."""
    for name in ("000.toy", "500.toy"):
        (box / name).write_bytes(frame(1, b"x") + b"TY")
    with pytest.raises(lw.DamageError, match="truncated"):
        lw.read(box / "000.toy")
    assert lw.scan(box / "500.toy").to_table().num_rows == 1
    (box / "README").write_bytes(frame(1, b"x"))
    assert lw.read(box / "README").num_rows == 1
    monkeypatch.setattr(fake_stores.FakeStore, "plan", failing(lw.UsageError("no plan")))
    assert lw.scan(box / "000.toy").to_table().num_rows == 1


# Locks


def test_lock_that_cannot_be_queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lock").touch()
    opened = os.open
    monkeypatch.setattr(os, "open", failing(PermissionError(errno.EACCES, "no")))
    assert live.held([str(tmp_path / ".lock")]) is None
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(sys, "platform", "plan9")
    assert live.held([str(tmp_path / ".lock")]) is None


# Tables


def test_filter_on_floating_point_numbers() -> None:
    table = Table("rows", (Column("x", pa.float64(), "a number"),))
    batch = pa.record_batch({"x": [0.5, 1.5, None]})
    assert Filter(("x", ">", "1"), table).apply(batch).num_rows == 1
    assert Filter(("x", ">", 1), table).apply(batch).num_rows == 1


def test_ranges_of_times_and_ids() -> None:
    times = inspect._Range(TIMESTAMP)
    times.add(np.array([-1, 5000]), np.array([-1, np.iinfo(np.int64).max]))
    assert (times.known, times.ends()[0].second) == (False, 5)
    times.add(None, np.array([1 << 60]))
    assert times.ends()[1] == 1 << 60
    keys = inspect._Range(pa.binary())
    keys.add(np.array([b"b", b"a"], object), np.array([b"x"], object))
    keys.add(np.array([], object), np.array([b"z"], object))
    assert keys.ends() == [b"a", b"z"]
    assert keys.known


def test_inspect_takes_times_from_headers(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyFrames, "frame_bounds", lambda self, frames, column: (None, None))
    summary = lw.inspect(box / "000.toy")
    assert list(summary["ranges"]) == ["time"]
    assert summary["ranges"]["time"][0].timestamp() == 0


def test_inspect_counts_columns_with_few_values_only(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "_KINDS", 0)
    (box / "000.toy").write_bytes(b"".join(shuffled(300)))
    monkeypatch.setattr("logwright.codec.frames.walk.WINDOW", 4096)
    assert lw.inspect(box / "000.toy")["counts"] == {}


def test_inspect_reports_findings_that_stop_nothing(box: Path) -> None:
    (box / "000.toy").write_bytes(frame(5, b"a") + frame(3, b"b") + b"TY")
    assert [fault["kind"] for fault in lw.inspect(box / "000.toy")["faults"]] == ["bad order", "truncated"]
    assert [fault["kind"] for fault in lw.verify(box / "000.toy")["files"][0]["faults"]] == [
        "bad order",
        "truncated",
    ]


# Others


def test_reports_name_their_files(box: Path) -> None:
    verified = lw.verify(box)
    assert [file.path for file in verified.files] == ["000.toy", "NOTE"]
    other = report.Report("x")
    other.live = False
    verified.live = True
    assert verified.merge(other).live is True


def test_version_when_run_from_a_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    report_data._version.cache_clear()
    monkeypatch.setattr(metadata, "version", failing(metadata.PackageNotFoundError()))
    assert report.Report("x")["logwright"] == "unknown"
    report_data._version.cache_clear()


def test_codec_errors_get_the_path_of_their_file(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyFrames, "scan", failing(lw.UnsupportedError("an old version", offset=3)))
    for verb in (lw.read, lw.verify, lw.inspect):
        with pytest.raises(lw.UnsupportedError, match=r"000\.toy: at byte 3: an old version"):
            verb(box / "000.toy")
    monkeypatch.setattr(ToyFrames, "scan", failing(lw.UnsupportedError("an old version", path="elsewhere")))
    with pytest.raises(lw.UnsupportedError, match="elsewhere: an old version"):
        lw.read(box / "000.toy")


def test_split_tasks_stay_within_their_part(box: Path) -> None:
    """A layout may ask for a range of a file."""
    data = (box / "000.toy").read_bytes()
    starts = [
        int(at) for part, _ in Walk(MemorySource(data), FRAMES_CODEC, context()).starts() for at in part
    ]
    whole_task = task.Task(
        str(box / "000.toy"), str(box / "000.toy"), "000.toy", "toy.frames", "rows", {}, {}
    )
    part = task.Task(
        whole_task.path,
        whole_task.real,
        whole_task.file,
        whole_task.codec,
        whole_task.table,
        {},
        {},
        start=starts[3],
        stop=starts[20],
    )
    cut = task.split_tasks([part], 200)
    assert (cut[0].start, cut[-1].stop) == (starts[3], starts[20])
    assert len(cut) > 3

    def places(tasks: Any) -> list[int]:
        batches = task.run(tasks, ("position",), report.Report("x"))
        return sorted({place for batch in batches for place in batch.column("position").to_pylist()})

    assert places(cut) == places([part])
    assert set(places(cut)) <= set(starts[3:20])


def context() -> Any:
    return FRAMES_CODEC.context("000.toy", Options(FRAMES_CODEC.options))
