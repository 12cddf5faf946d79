"""A stream that is killed at any step and restarted writes each row once, in order, whatever the disk kept."""

from __future__ import annotations

import pytest
import toy
from write_scenarios import (
    LAYOUT,
    OLD,
    TARGET,
    append_rows,
    directory_before,
    known_staging,
    rows_for_readers,
)

from logwright.codec.fault import BusyError, LogwrightError, StorageError, UsageError
from logwright.readers.journal import TRANSACTIONS, Txn, parse_transactions
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.streamed import Staged, StreamWrite
from logwright.writers.transactions import Repeated

__all__ = ["known_staging"]

KEPT = [(Kept.ALL, 0), (Kept.NOTHING, 0), (Kept.NAMES, 0), *((Kept.SOME, seed) for seed in range(4))]
THOROUGH = pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.nightly)])
"""The sweep examines every n-th outcome."""
BATCHES = {0: [10, 11, 12, 13, 14, 15, 16], 1: [20, 21, 22, 23], 2: [30]}
SCENARIOS = {
    # Existing rows, mode, whether names can be exchanged, the killed batch.
    "first": ("nothing", "append", True, 0),
    "first in an empty directory": ("empty", "append", True, 0),
    "first behind others": ("old", "append", True, 0),
    "later": ("nothing", "append", True, 1),
    "complete": ("nothing", "overwrite", True, 1),
    "complete without exchange": ("nothing", "overwrite", False, 1),
}


RECORD = {LAYOUT.inner_staging, f"{LAYOUT.inner_staging}/{TRANSACTIONS}"}


def rows_after_recovery(files: MemoryFileSystem) -> list[int]:
    """Return the rows after the next writer. Nothing but them and the record of batches may be left."""
    finish_or_undo(files, LAYOUT, TARGET)
    assert {name.partition("/")[0] for name in files.tree("/data")} == {"box"}
    contents = files.tree(TARGET)
    assert {name for name in contents if name.startswith(".")} <= RECORD
    return toy.rows({name: data for name, data in contents.items() if name not in RECORD})


def open_stream(files: MemoryFileSystem, mode: str = "append", app: str = "sums") -> StreamWrite:
    return StreamWrite(TARGET, LAYOUT, app, mode, files=files)


def staged(files: MemoryFileSystem, values: list[int], mode: str, by: str = "one") -> list[Staged]:
    """Stage rows by two tasks, one of which runs twice. A third attempt is never committed."""
    at = open_stream(files, mode)
    messages = []
    for number, attempt in ((1, 0), (1, 1), (0, 0)):
        task = at.task(number, attempt, by)
        task.add(toy.numbers(*(values[3:] if number else values[:3])))
        messages.append(task.commit())
    at.task(2, 0, by).add(toy.numbers(7, 7, 7, 7, 7))
    return messages[1:]


def write_batch(files: MemoryFileSystem, number: int, mode: str = "append") -> bool:
    """Write one batch as Spark does: without a commit only the messages of the tasks are known. Return whether the batch was new."""
    messages = staged(files, BATCHES[number], mode)
    return open_stream(files, mode).commit(number, messages) is not None


def before_batch(name: str) -> tuple[MemoryFileSystem, str, int, list[int] | None, list[int]]:
    """Return the disk before the killed batch, its mode and number, and the rows before and after it."""
    old_rows, mode, can_exchange, number = SCENARIOS[name]
    files = directory_before(old_rows)
    files.can_exchange = can_exchange
    for earlier in range(number):
        write_batch(files, earlier, mode)
    files = files.fork()
    files.can_exchange = can_exchange
    old = rows_for_readers(files)
    new = BATCHES[number] if mode == "overwrite" else (old or []) + BATCHES[number]
    return files, mode, number, old, new


@pytest.mark.alike
@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_row_is_written_once_after_a_crash(name: str, each: int) -> None:
    files, mode, number, old, new = before_batch(name)
    assert write_batch(files, number, mode)
    assert rows_for_readers(files) == new
    outcomes = set()
    then = BATCHES[number + 1] if mode == "overwrite" else new + BATCHES[number + 1]
    sweep = [(prefix, *kept) for prefix in range(len(files.trace) + 1) for kept in KEPT]
    for prefix, kept, seed in sweep[:: each * each]:
        disk = files.crash(prefix, kept, seed)
        rows = rows_for_readers(disk)
        assert rows in (old, new), f"behind change {prefix}, with {kept} kept"
        # Spark knows of no commit. It repeats the batch, then writes the next one.
        assert write_batch(disk, number, mode) is (rows != new)
        assert rows_for_readers(disk) == new, f"behind change {prefix}, with {kept} kept"
        assert write_batch(disk, number + 1, mode)
        assert rows_after_recovery(disk) == then
        outcomes.add(rows == new)
    assert outcomes == {False, True}


@pytest.mark.alike
@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_row_is_written_once_if_the_driver_survives(name: str, each: int) -> None:
    """Only the committing worker is killed; the staged files belong to a running process."""
    files, mode, number, _, new = before_batch(name)
    write_batch(files, number, mode)
    for prefix in range(0, len(files.trace) + 1, each):
        disk = files.killed(prefix)
        disk._boot = files._boot
        write_batch(disk, number, mode)
        assert rows_after_recovery(disk) == new


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["later", "complete"])
def test_stream_killed_twice_writes_each_row_once(name: str) -> None:
    files, mode, number, _, new = before_batch(name)
    write_batch(files, number, mode)
    for prefix in range(0, len(files.trace) + 1, 3):
        first = files.crash(prefix, Kept.ALL)
        write_batch(first, number, mode)
        for second in range(len(first.trace) + 1):
            disk = first.crash(second, Kept.NAMES)
            write_batch(disk, number, mode)
            assert rows_after_recovery(disk) == new


@pytest.mark.alike
@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_operation_fails_once(name: str, each: int) -> None:
    """A disk error ends the stream, and a restart continues it."""
    start, mode, number, _, new = before_batch(name)
    count = start.fork()
    count.can_exchange = start.can_exchange
    before_ = count.ticks
    write_batch(count, number, mode)
    total, failed = count.ticks - before_, 0
    for at in range(0, total, each):
        files = start.fork()
        files.can_exchange = start.can_exchange
        files.fail(at)
        try:
            write_batch(files, number, mode)
        except LogwrightError:
            failed += 1
            open_stream(files, mode).abort()
        write_batch(files, number, mode)
        assert rows_for_readers(files) == new
    assert failed > total // each // 2


def recorded_batches(files: MemoryFileSystem) -> dict[str, Txn]:
    return parse_transactions(files.read(f"{TARGET}/{LAYOUT.inner_staging}/{TRANSACTIONS}"))


def test_record_of_batches_survives_other_writers() -> None:
    files = directory_before("nothing")
    write_batch(files, 0)
    append_rows(files, OLD)
    assert write_batch(files, 1)
    append_rows(files, OLD, "overwrite")
    assert not write_batch(files, 1)
    assert recorded_batches(files) == {"sums": Txn("sums", 1, "one")}
    assert write_batch(files, 2)
    # All segments were removed by hand: committed batches stay committed.
    for name in files.tree(TARGET):
        if not name.startswith(LAYOUT.inner_staging):
            files.remove(f"{TARGET}/{name}")
    assert not write_batch(files, 2)
    append_rows(files, OLD)
    assert rows_after_recovery(files) == OLD
    assert recorded_batches(files)["sums"].version == 2


def test_applications_commit_the_same_batch_number_separately() -> None:
    files = directory_before("nothing")
    for app in ("a", "b"):
        task = open_stream(files, app=app).task(0)
        task.add(toy.numbers(1))
        assert open_stream(files, app=app).commit(0, [task.commit()]) is not None
    assert rows_after_recovery(files) == [1, 1]
    assert list(recorded_batches(files)) == ["a", "b"]


def test_stream_with_a_new_checkpoint_is_a_new_stream() -> None:
    files = directory_before("nothing")
    write_batch(files, 0)
    messages = staged(files, [5], "append", by="another")
    with pytest.raises(UsageError, match="another txnAppId"):
        open_stream(files).commit(0, messages)
    open_stream(files).abort()
    assert rows_after_recovery(files) == BATCHES[0]


def test_batch_without_tasks_is_recorded() -> None:
    files = directory_before("old")
    assert open_stream(files).commit(3, []) is not None
    assert open_stream(files).commit(3, []) is None
    assert rows_after_recovery(files) == OLD


def test_abort_of_a_stream_leaves_no_staged_file() -> None:
    files = directory_before("old")
    staged(files, [5], "append")
    open_stream(files).abort()
    open_stream(files).abort()
    assert {name.partition("/")[0] for name in files.tree("/data")} == {"box"}
    assert not [name for name in files.tree(TARGET) if name.startswith(".")]


def test_concurrent_change_of_the_directory_is_detected() -> None:
    files = directory_before("old")
    messages = staged(files, [5], "append")
    append_rows(files, [6])
    with pytest.raises(BusyError, match="changed by someone else"):
        open_stream(files).commit(0, messages)
    open_stream(files).abort()
    assert rows_after_recovery(files) == [*OLD, 6]


def test_damaged_record_of_batches_is_reported() -> None:
    files = directory_before("nothing")
    write_batch(files, 0)
    files = files.fork()
    files.put(f"{TARGET}/{LAYOUT.inner_staging}/{TRANSACTIONS}", b"{]")
    with pytest.raises(StorageError, match="invalid record of finished writes"):
        write_batch(files, 1)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_named_write_happens_once(mode: str) -> None:
    files = directory_before("old")
    new = [5, 6] if mode == "overwrite" else [*OLD, 5, 6]

    def act(on: MemoryFileSystem) -> None:
        write = StagedWrite(TARGET, LAYOUT, mode, files=on, txn=Txn("job", 7))
        task = write.task(0)
        task.add(toy.numbers(5, 6))
        write.commit([task.commit()])

    act(files)
    for prefix in range(len(files.trace) + 1):
        disk = files.crash(prefix, Kept.ALL)
        done = rows_for_readers(disk) == new
        if done:
            with pytest.raises(Repeated):
                act(disk)
        else:
            act(disk)
        assert rows_after_recovery(disk) == new
    assert [name for name in files.tree("/data") if "/" not in name] == ["box"]


def test_invalid_stream_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = directory_before("nothing")
    monkeypatch.setattr(LAYOUT, "locks", lambda: ())
    with pytest.raises(LogwrightError):
        StreamWrite("s3://bucket/box", LAYOUT, "a", files=files)
    files.put("/data/other/file.txt", b"x")
    with pytest.raises(LogwrightError, match="not a toy"):
        StreamWrite("/data/other", LAYOUT, "a", files=files)
