"""Two writers of one directory, one of them acting between any two operations of the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
import toy
from sampling import STEPS
from write_scenarios import (
    LAYOUT,
    NEW,
    SCENARIOS,
    TARGET,
    append_rows,
    known_staging,
    prepare,
    rows_after_recovery,
    rows_for_readers,
)

from logwright.codec.fault import BusyError, ExistsError, NotFoundError, StorageError
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.commit import Transaction
from logwright.writers.lock import WriterLock
from logwright.writers.recover import finish_or_undo
from logwright.writers.write import write

__all__ = ["known_staging"]

OTHERS = [71, 72, 73, 74]


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_of_two_concurrent_writers_wins(name: str, mode: str, step: int) -> None:
    clean, act, old, _ = prepare(name)
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
                append_rows(files, OTHERS, mode)
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
        rows = rows_for_readers(files)
        allowed = {
            ("refused", "mine"): [mine(start)],
            ("theirs", "mine"): [theirs(mine(start)), mine(theirs(start))],
            ("theirs",): [theirs(start)],
        }
        assert rows in allowed[tuple(done)], f"{done} at operation {at}"
        assert rows_after_recovery(files.fork()) == rows
        outcomes.add(tuple(done))
        at += step
    assert outcomes
    if step == 1:
        assert ("theirs", "mine") in outcomes
        assert len(outcomes) > 1


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize("name", SCENARIOS)
def test_cleaning_up_spares_a_running_writer(name: str, step: int) -> None:
    clean, act, _, new = prepare(name)
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
        assert rows_for_readers(files) == new
        assert rows_after_recovery(files.fork()) == new
        at += step


@pytest.mark.parametrize("intruder", ["00007.seg", "00002.seg"])
@pytest.mark.parametrize("name", ["append", "overwrite"])
def test_foreign_files_that_appear_during_a_write_are_kept(name: str, intruder: str) -> None:
    """The system or a user creates a file that no writer knows, under an unrelated name or one that the writer is about to use."""
    clean, _, _, _ = prepare(name)
    asked: list[int] = []

    def source(files: MemoryFileSystem) -> Iterator[pa.RecordBatch]:
        asked.append(files.ticks)  # The writer has listed the directory; what appears now is concurrent.
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


@pytest.mark.alike
@pytest.mark.parametrize("name", SCENARIOS)
def test_cleaning_up_while_a_writer_begins(name: str) -> None:
    clean, act, _, new = prepare(name)
    act(clean)
    # A disk on which a killed writer left as much as possible.
    clean = max(
        (clean.killed(prefix) for prefix in range(len(clean.trace))), key=lambda disk: len(disk.tree())
    )
    at = 0
    while True:
        files = clean.fork()
        begun: list[Transaction | None] = []

        def begins(files: MemoryFileSystem = files, begun: list[Transaction | None] = begun) -> None:
            try:
                begun.append(Transaction.begin(files, LAYOUT, TARGET, "append"))
                begun[0].stage.append("00001.seg", b"12345678")  # type: ignore[union-attr]
            except BusyError:
                begun.append(None)

        files.meanwhile(at, begins)
        with contextlib.suppress(BusyError):
            finish_or_undo(files, LAYOUT, TARGET)
        if not begun:
            break
        if begun[0] is not None:
            assert begun[0].stage.read("00001.seg") == b"12345678"
            begun[0].undo()
        assert rows_after_recovery(files.fork()) in (None, [1, 2, 3, 4], new)
        at += 1


@pytest.mark.parametrize("name", ["new", "append"])
def test_writer_gives_up_if_its_staging_is_removed_repeatedly(name: str) -> None:
    files, act, old, _ = prepare(name)

    def cleans() -> None:
        finish_or_undo(files, LAYOUT, TARGET)
        files.meanwhile(0, cleans)

    files.meanwhile(0, cleans)
    with pytest.raises(StorageError, match="removed repeatedly"):
        act(files)
    files.meanwhile(1 << 40, cleans)
    assert rows_after_recovery(files.fork()) == old


def test_staging_directory_cleaned_by_another_writer_is_left_to_it() -> None:
    files, act, _, new = prepare("new")
    taken: list[WriterLock] = []

    def takes() -> None:
        """Lock and remove a staging directory that looks abandoned, as the other writer does."""
        places = [item.name for item in files.listdir("/data") if item.name != "box"]
        if places and not taken:
            lock = WriterLock(files, f"/data/{places[0]}/{LAYOUT.inner_staging}")
            assert lock.take()
            taken.append(lock)
        elif not taken:
            files.meanwhile(0, takes)

    files.meanwhile(0, takes)
    with pytest.raises(BusyError):
        act(files)
    assert len(files.listdir("/data")) == 1, "its own one is gone, the other's is not touched"
    taken[0].drop()
    act(files)
    assert rows_for_readers(files) == new
    assert rows_after_recovery(files.fork()) == new
