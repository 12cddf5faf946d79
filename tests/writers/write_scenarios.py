"""Writes of a toy store to a file system in memory, each with the rows before and after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import pytest
import toy

from logwright.readers import listing
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.write import write

LAYOUT = toy.ToyLayout()
TARGET = "/data/box"

SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where thousands of small directories are created and removed quickly."""

OLD = [1, 2, 3, 4]
NEW = [10, 11, 12, 13, 14, 15, 16]
NEXT = [99]


@pytest.fixture(autouse=True)
def known_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the staging folder of the toy layout, so that readers overlay its contents."""
    monkeypatch.setattr(listing, "_staging_names", lambda: frozenset({LAYOUT.inner_staging}))


def append_rows(files: MemoryFileSystem, values: list[int], mode: str = "append") -> None:
    write([toy.numbers(*values)], TARGET, LAYOUT, mode=mode, files=files)


def append_rows_by_tasks(files: MemoryFileSystem, values: list[int], mode: str) -> None:
    """Write the rows by two tasks, one of which runs twice."""
    staged = StagedWrite(TARGET, LAYOUT, mode, files=files)
    try:
        messages = []
        for attempt in (0, 1):
            task = staged.task(1, attempt)
            task.add(toy.numbers(*values[3:]))
            message = task.commit()
        messages.append(message)
        task = staged.task(0)
        task.add(toy.numbers(*values[:3]))
        messages.append(task.commit())
        staged.commit(messages)
    except BaseException:
        staged.abort()
        raise


def directory_before(initial: str) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make("/data")
    if initial == "old":
        append_rows(files, OLD, "error")
    elif initial == "empty":
        files.make(TARGET)
    return files.fork()


Scenario = tuple[
    str, str, Callable[[MemoryFileSystem, list[int], str], None], bool, list[int] | None, list[int]
]

SCENARIOS: dict[str, Scenario] = {
    "new": ("nothing", "error", append_rows, True, None, NEW),
    "into an empty directory": ("empty", "error", append_rows, True, None, NEW),
    "append": ("old", "append", append_rows, True, OLD, OLD + NEW),
    "overwrite": ("old", "overwrite", append_rows, True, OLD, NEW),
    "overwrite without exchange": ("old", "overwrite", append_rows, False, OLD, NEW),
    "new by tasks": ("nothing", "append", append_rows_by_tasks, True, None, NEW),
    "append by tasks": ("old", "append", append_rows_by_tasks, True, OLD, OLD + NEW),
    "overwrite by tasks": ("old", "overwrite", append_rows_by_tasks, True, OLD, NEW),
    "overwrite by tasks without exchange": ("old", "overwrite", append_rows_by_tasks, False, OLD, NEW),
}


def prepare(
    name: str,
) -> tuple[MemoryFileSystem, Callable[[MemoryFileSystem], None], list[int] | None, list[int]]:
    initial, mode, act, can_exchange, old, new = SCENARIOS[name]
    files = directory_before(initial)
    files.can_exchange = can_exchange
    return files, lambda on: act(on, NEW, mode), old, new


def rows_for_readers(files: MemoryFileSystem) -> list[int] | None:
    """Return the rows as readers see them, or None if the directory is missing or empty."""
    if files.stat(TARGET) is None:
        return None
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        files.dump(TARGET, scratch)
        directory = listing.open_listing(scratch)
        contents = {entry.name: directory.read(entry.name) for entry in directory.entries()}
        assert not directory.warnings
    return toy.rows(contents) if contents else None


def rows_after_recovery(files: MemoryFileSystem) -> list[int] | None:
    """Return the rows after the next writer. Nothing else may be left."""
    finish_or_undo(files, LAYOUT, TARGET)
    beside = set(files.tree("/data"))
    assert {name for name in beside if "/" not in name} <= {"box"}, f"left behind: {beside}"
    contents = files.tree(TARGET)
    return toy.rows(contents) if contents else None
