"""Two writers of one directory, one of them acting between any two operations of the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
import toy
from boxes import LAYOUT, NEW, SCENARIOS, TARGET, known_staging, prepared, put, seen, settled

from logwright.codec.fault import BusyError, ExistsError, NotFoundError, StorageError
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.commit import finish_or_undo
from logwright.writers.write import write

__all__ = ["known_staging"]

OTHERS = [71, 72, 73, 74]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_writers(name: str, mode: str) -> None:
    clean, act, old, _ = prepared(name)
    start = old or []

    def mine(rows: list[int]) -> list[int]:
        return NEW if "overwrite" in name else rows + NEW

    def theirs(rows: list[int]) -> list[int]:
        return OTHERS if mode == "overwrite" else rows + OTHERS

    at, outcomes = 0, set()
    while True:
        files = clean.fork()
        done: list[str] = []

        def other(files: MemoryFileSystem = files, done: list[str] = done) -> None:
            try:
                put(files, OTHERS, mode)
                done.append("theirs")
            except (BusyError, ExistsError):
                done.append("refused")

        files.meanwhile(at, other)
        try:
            act(files)
            done.append("mine")
        except (BusyError, ExistsError, NotFoundError):
            pass
        if files.ticks <= at or not set(done) & {"theirs", "refused"}:
            break
        rows = seen(files)
        allowed = {
            ("refused", "mine"): [mine(start)],
            ("theirs", "mine"): [theirs(mine(start)), mine(theirs(start))],
            ("theirs",): [theirs(start)],
        }
        assert rows in allowed[tuple(done)], f"{done} at operation {at}"
        assert settled(files.fork()) == rows
        outcomes.add(tuple(done))
        at += 1
    assert ("theirs", "mine") in outcomes
    assert len(outcomes) > 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_cleaning_up_hurts_no_running_writer(name: str) -> None:
    clean, act, _, new = prepared(name)
    at = 0
    while True:
        files = clean.fork()
        came: list[bool] = []

        def cleans(files: MemoryFileSystem = files, came: list[bool] = came) -> None:
            came.append(True)
            with contextlib.suppress(BusyError):
                finish_or_undo(files, LAYOUT, TARGET)

        files.meanwhile(at, cleans)
        act(files)
        if not came:
            break
        assert seen(files) == new
        assert settled(files.fork()) == new
        at += 1


@pytest.mark.parametrize("intruder", ["00007.seg", "00002.seg"])
@pytest.mark.parametrize("name", ["append", "overwrite"])
def test_what_someone_else_puts_there_meanwhile_is_not_lost(name: str, intruder: str) -> None:
    """The system, or a person: of a file that no writer knows of, under a name of its own or one that we are about to use."""
    clean, _, _, _ = prepared(name)
    asked: list[int] = []

    def source(files: MemoryFileSystem) -> Iterator[pa.RecordBatch]:
        asked.append(files.ticks)  # the writer has seen what is there, and what comes now comes meanwhile
        yield toy.numbers(*NEW)

    def act(files: MemoryFileSystem) -> None:
        write(source(files), TARGET, LAYOUT, mode=name, files=files)

    act(clean.fork())
    at = asked[0]
    while True:
        files = clean.fork()
        came: list[bool] = []

        def puts(files: MemoryFileSystem = files, came: list[bool] = came) -> None:
            with contextlib.suppress(FileExistsError):
                files.create(f"{TARGET}/{intruder}").pwrite(b"precious", 0)
                came.append(True)

        files.meanwhile(at, puts)
        with contextlib.suppress(BusyError, StorageError):
            act(files)
        if files.ticks <= at:
            break
        if came:
            kept = [data for path, data in files.tree().items() if path.endswith(f"box/{intruder}")]
            assert kept == [b"precious"], f"operation {at}"
        at += 1
