"""LevelDB databases after every crash, kill and failure of a write: the old or the new rows, for our readers and for LevelDB."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec import registry
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.write import write

TARGET = "/data/db"
LAYOUT = registry.get_layout("leveldb.db")
OPTIONS = {"max_file_size": 100, "block_size": 60, "sort_buffer_size": 1024}

Rows = dict[bytes, bytes]
SHORT = ("append", "new by tasks")
"""Scenarios in the sample; the others take longer."""
OLD = {b"k%02d" % n: b"old" for n in range(9)}
NEW = {b"k%02d" % n: b"new" * 80 for n in (*range(20, 30), 4)}


def batches(rows: Rows) -> list[pa.RecordBatch]:
    """Small batches, so that several runs are sorted and spilled to files."""
    batch_list = [pa.RecordBatch.from_pylist([{"key": key, "value": value}]) for key, value in rows.items()]
    return batch_list[::-1]


def put(files: MemoryFileSystem, rows: Rows, mode: str, **options: Any) -> None:
    write(batches(rows), TARGET, LAYOUT, mode=mode, files=files, **OPTIONS, **options)


def put_logs(files: MemoryFileSystem, rows: Rows, mode: str) -> None:
    put(files, rows, mode, write_as="logs")


def put_many(files: MemoryFileSystem, rows: Rows, mode: str) -> None:
    """By two tasks with overlapping keys."""
    staged = StagedWrite(TARGET, LAYOUT.name, mode, OPTIONS, files=files)
    messages = []
    for number in range(2):
        task = staged.task(number)
        for batch in batches(rows)[number::2]:
            task.add(batch)
        messages.append(task.commit())
    staged.commit(messages)


SCENARIOS: dict[str, tuple[Rows | None, str, Callable[..., None], bool]] = {
    "new": (None, "error", put, True),
    "new by tasks": (None, "error", put_many, True),
    "append": (OLD, "append", put, True),
    "append a log": (OLD, "append", put_logs, True),
    "append by tasks": (OLD, "append", put_many, True),
    "overwrite": (OLD, "overwrite", put, True),
    "overwrite without exchange": (OLD, "overwrite", put, False),
}


def prepared(name: str) -> tuple[MemoryFileSystem, Callable[[MemoryFileSystem], None], Rows | None, Rows]:
    old, mode, act, can_exchange = SCENARIOS[name]
    files = MemoryFileSystem()
    files.make("/data")
    if old is not None:
        put(files, old, "error")
    files = files.fork()
    files.can_exchange = can_exchange
    new = {**OLD, **NEW} if mode == "append" else NEW
    return files, lambda on: act(on, NEW, mode), old, dict(sorted(new.items()))


class Reader:
    """Reads databases from a file system in memory, equal contents once."""

    def __init__(self, scratch: Path) -> None:
        self._place = scratch / "db"
        self._known: dict[object, Rows | None] = {}

    def rows(self, files: MemoryFileSystem, *, leveldb: bool = False) -> Rows | None:
        """Return the rows of the directory, or None if it does not exist; with `leveldb` those that LevelDB itself reads."""
        if files.stat(TARGET) is None:
            return None
        known = (leveldb, tuple(sorted(files.tree(TARGET).items())))
        if known not in self._known:
            self._place.mkdir()
            files.dump(TARGET, str(self._place))
            self._known[known] = _theirs(self._place) if leveldb else _ours(self._place)
            shutil.rmtree(self._place)
        return self._known[known]


def _ours(path: Path) -> Rows:
    report = lw.verify(path)
    assert report.ok, report.text()
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def _theirs(path: Path) -> Rows:
    plyvel = pytest.importorskip("plyvel")
    db = plyvel.DB(str(path), create_if_missing=False, paranoid_checks=True)
    try:
        return dict(db.iterator(verify_checksums=True))
    finally:
        db.close()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def rows_after_recovery(files: MemoryFileSystem, reader: Reader) -> Rows | None:
    finish_or_undo(files, LAYOUT, TARGET)
    assert [item.name for item in files.listdir("/data")] in ([], ["db"])
    assert not any(item.directory for item in files.listdir(TARGET)) if files.stat(TARGET) else True
    return reader.rows(files)


def scenarios_in_the_sample(*names: str) -> list[Any]:
    return [pytest.param(name, marks=[] if name in SHORT else pytest.mark.nightly) for name in names]


@pytest.mark.alike
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "overwrite without exchange"])
def test_leveldb_started_in_between_sees_the_old_or_the_new_rows(name: str, reader: Reader) -> None:
    files, act, old, new = prepared(name)
    act(files)
    seen = []
    for prefix in range(len(files.trace) + 1):
        rows = reader.rows(files.killed(prefix), leveldb=True)
        assert rows in (old, new), f"behind change {prefix}"
        seen.append(rows == new)
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


def test_without_exchange_leveldb_sees_no_partial_database(tmp_path: Path) -> None:
    """At a mount point: CURRENT is removed first and written last, and LevelDB opens nothing without it."""
    plyvel = pytest.importorskip("plyvel")
    files, act, old, new = prepared("overwrite without exchange")
    act(files)
    seen = []
    for prefix in range(len(files.trace) + 1):
        disk = files.killed(prefix)
        if "CURRENT" in disk.tree(TARGET):
            assert Reader(tmp_path).rows(disk, leveldb=True) in (old, new)
            seen.append(True)
        else:
            (tmp_path / "half").mkdir()
            disk.dump(TARGET, str(tmp_path / "half"))
            with pytest.raises(plyvel.Error, match="does not exist"):
                plyvel.DB(str(tmp_path / "half"), create_if_missing=False)
            shutil.rmtree(tmp_path / "half")
            seen.append(False)
    assert set(seen) == {False, True}
