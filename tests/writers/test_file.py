"""A single file is written completely or not at all, whatever fails and wherever the machine stops."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import toy
from fake_store import know
from locked_file import lock_in_another_process
from pyarrow import parquet

from logwright.codec.base import Codec
from logwright.codec.capability import FileCapabilities
from logwright.codec.fault import BusyError, ExistsError, LogwrightError, StorageError, UsageError
from logwright.codec.option import Option, Options
from logwright.codec.table import Table
from logwright.codec.window import Chunk
from logwright.readers import prefetch
from logwright.roundtrip.memory_filesystem import Failure, Interrupted, Kept, MemoryFileSystem
from logwright.writers import write as writing
from logwright.writers.file import Draft, whole_file
from logwright.writers.filesystem import LocalFileSystem
from logwright.writers.write import write

PATH = "/data/numbers"


class Numbers:
    """A codec that only encodes: one line per row; the other tables are written as they are."""

    capabilities = FileCapabilities()

    name = "toy.numbers"
    tables: Mapping[str, Table] = {"rows": toy.TABLE, "frames": toy.TABLE, "file": toy.TABLE}
    options = (Option("first", "", "The first line.", parse=str),)

    def context(self, name: str, options: Options, **hints: Any) -> str:
        return f"{name} {options['first']}"

    def table_of(self, name: str, context: str) -> Table:
        return self.tables[name]

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: str
    ) -> Iterator[Chunk]:
        yield context.encode()
        for table in (rows, frames, file):
            for value in [] if table is None else table["value"].to_pylist():
                if value is None:
                    raise UsageError("a null")
                yield b"\n%d" % value


@pytest.fixture(autouse=True)
def known_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = toy.ToyLayout()
    know(monkeypatch, {}, {layout.name: layout})


@pytest.fixture(autouse=True, params=[prefetch.FEW, 0], ids=["alone", "helped"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large input is encoded by a separate thread."""
    monkeypatch.setattr(writing, "FEW", request.param)
    monkeypatch.setattr(writing, "usable", lambda: 2)


CODEC: Codec = Numbers()  # type: ignore[assignment]


def put(files: MemoryFileSystem, *values: int, mode: str = "overwrite") -> None:
    write([toy.numbers(*values)], PATH, CODEC, mode=mode, files=files)


def prepared(existing: bool) -> tuple[MemoryFileSystem, tuple[bytes | None, bytes]]:
    files = MemoryFileSystem()
    files.make("/data")
    if existing:
        put(files, 1, 2)
    return files.fork(), (files.tree().get("data/numbers"), b"numbers \n3\n4\n5")


def test_rows_and_other_tables_are_written(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    report = write([{"value": 1}], path, CODEC, frames=[{"value": 2}], file=toy.numbers(3), first="x")
    assert path.read_bytes() == b"numbers x\n1\n2\n3"
    assert (report.files, report.rows, report.bytes) == ((str(path),), 1, 15)


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"old")
    for target, mode, kind in (
        (path, "error", ExistsError),
        (path, "append", UsageError),
        (path, "replace", UsageError),
        (tmp_path, "overwrite", ExistsError),
    ):
        with pytest.raises(kind) as caught:
            write([{"value": 1}], target, CODEC, mode=mode)
        assert caught.value.path == str(target)
    with pytest.raises(UsageError, match="a null"):
        write([{"value": None}], path, CODEC, mode="overwrite")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["numbers"]


@pytest.mark.alike
@pytest.mark.parametrize("existing", [True, False])
def test_crash_leaves_the_old_or_the_new_file(existing: bool) -> None:
    files, outcomes = prepared(existing)
    put(files, 3, 4, 5)
    seen = set()
    for prefix in range(len(files.trace) + 1):
        for kept, seed in [*((kept, 0) for kept in Kept), *((Kept.SOME, seed) for seed in range(20))]:
            disk = files.crash(prefix, kept, seed)
            content = disk.tree().get("data/numbers")
            assert content in outcomes, f"behind change {prefix}, with {kept} kept"
            seen.add(content)
            put(disk, 9)
            assert disk.tree() == {"data": None, "data/numbers": b"numbers \n9"}
    assert seen == set(outcomes)
    assert all(files.crash(len(files.trace), kept).tree().get("data/numbers") == outcomes[1] for kept in Kept)


@pytest.mark.alike
@pytest.mark.parametrize("failure", [*Failure, None])
@pytest.mark.parametrize("existing", [True, False])
def test_any_operation_may_fail(existing: bool, failure: Failure | None) -> None:
    clean, outcomes = prepared(existing)
    at = 0
    while True:
        files = clean.fork()
        files.fail(at, failure)
        raised: BaseException | None = None
        try:
            put(files, 3, 4, 5, mode="overwrite" if existing else "error")
        except (LogwrightError, Interrupted) as error:
            raised = error
        if files.ticks <= at:
            break
        content = files.tree().get("data/numbers")
        assert content in outcomes
        assert raised is not None or content == outcomes[1]
        if isinstance(raised, LogwrightError) and content == outcomes[1]:
            assert isinstance(raised, StorageError)
            assert "the file is written" in str(raised)
        put(files, 9)
        assert files.tree() == {"data": None, "data/numbers": b"numbers \n9"}
        at += 1
    assert at > 10


def test_file_of_a_running_system_is_refused(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    (box / "count").write_bytes(b"0")
    (tmp_path / ".running").touch()
    with (
        lock_in_another_process(tmp_path / ".running", "lockf"),
        pytest.raises(BusyError, match="toy is running"),
    ):
        write([{"value": 1}], box / "numbers", CODEC)
    write([{"value": 1}], box / "numbers", CODEC)


def test_drafts_of_killed_writers_are_removed_and_others_kept(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from logwright.writers.file import Draft\n"
        "from logwright.writers.filesystem import LocalFileSystem\n"
        "Draft(LocalFileSystem(), sys.argv[1]).write(b'half')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = str(tmp_path / "numbers")
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".numbers.")
    other = Draft(LocalFileSystem(), path)
    assert left not in os.listdir(tmp_path)
    write([{"value": 1}], path, CODEC)
    assert len(os.listdir(tmp_path)) == 2
    with pytest.raises(FileExistsError):
        other.commit()
    other.undo()
    assert os.listdir(tmp_path) == ["numbers"]


def test_draft_inspected_by_a_cleaner_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer, which cleans up after killed ones, locked the new file first."""
    files = MemoryFileSystem()
    files.make("/data")
    lock, tried = files.lock, []

    def second(path: str) -> Any:
        tried.append(path)
        return None if len(tried) == 1 else lock(path)

    monkeypatch.setattr(files, "lock", second)
    draft = Draft(files, PATH)
    assert draft.path == tried[1] != tried[0]
    draft.write(b"abc")
    draft.commit()
    assert files.tree() == {"data": None, "data/numbers": b"abc"}


def test_large_file_is_synced_while_it_is_written() -> None:
    files = MemoryFileSystem()
    files.make("/data")
    draft = Draft(files, PATH, sync_bytes=4)
    for _ in range(4):
        draft.write(b"abc")
    synced = [at for at, change in enumerate(files.trace) if change.kind == "sync"]
    assert len(synced) == 2
    draft.commit()
    assert files.tree()["data/numbers"] == b"abc" * 4


def test_stream_of_a_file_for_other_writers(tmp_path: Path) -> None:
    table = pa.table({"a": range(1000)})
    with whole_file(str(tmp_path / "a.parquet")) as stream:
        parquet.write_table(table, stream)
        assert [name[0] for name in os.listdir(tmp_path)] == ["."]
    assert parquet.read_table(tmp_path / "a.parquet") == table
    with pytest.raises(ExistsError), whole_file(str(tmp_path / "a.parquet")):
        pytest.fail("not reached")
    with whole_file(str(tmp_path / "a.parquet"), if_exists="overwrite") as stream:
        stream.write(b"x" * (3 << 20))
        stream.close()
    assert (tmp_path / "a.parquet").stat().st_size == 3 << 20


def test_failed_stream_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> None:
        with whole_file(str(tmp_path / "new/a")) as stream:
            stream.write(b"in the buffer")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_full_disk_is_reported_to_other_writers() -> None:
    files = MemoryFileSystem()
    files.make("/data")

    def fails() -> None:
        with whole_file(PATH, files=files) as stream:
            stream.write(b"x")
            files.fail(0, Failure.ENOSPC)
            stream.flush()

    with pytest.raises(StorageError, match="no space left"):
        fails()
    assert files.tree() == {"data": None}


def test_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    write([{"value": 1}], tmp_path / "numbers", CODEC)
    (tmp_path / "numbers").chmod(0o600)
    write([{"value": 1}], tmp_path / "numbers", CODEC, mode="overwrite")
    assert (tmp_path / "numbers").stat().st_mode & 0o777 == 0o600
