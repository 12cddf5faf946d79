"""A stream that is killed at any step and started again: each of its rows once, in order, whatever the disk kept."""

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
"""Every so many outcomes of the sweep are looked at."""
BATCHES = {0: [10, 11, 12, 13, 14, 15, 16], 1: [20, 21, 22, 23], 2: [30]}
SCENARIOS = {
    # what is there, mode, whether names can be exchanged, the batch that is killed
    "first": ("nothing", "append", True, 0),
    "first in an empty directory": ("empty", "append", True, 0),
    "first behind others": ("old", "append", True, 0),
    "later": ("nothing", "append", True, 1),
    "complete": ("nothing", "overwrite", True, 1),
    "complete without exchange": ("nothing", "overwrite", False, 1),
}


RECORD = {LAYOUT.inner_staging, f"{LAYOUT.inner_staging}/{TRANSACTIONS}"}


def settled(files: MemoryFileSystem) -> list[int]:
    """The rows as the system sees them, once the next writer has been there. Nothing is left but them and the record."""
    finish_or_undo(files, LAYOUT, TARGET)
    assert {name.partition("/")[0] for name in files.tree("/data")} == {"box"}
    found = files.tree(TARGET)
    assert {name for name in found if name.startswith(".")} <= RECORD
    return toy.rows({name: data for name, data in found.items() if name not in RECORD})


def stream(files: MemoryFileSystem, mode: str = "append", app: str = "sums") -> StreamWrite:
    return StreamWrite(TARGET, LAYOUT, app, mode, files=files)


def staged(files: MemoryFileSystem, values: list[int], mode: str, by: str = "one") -> list[Staged]:
    """By two tasks, one of which runs twice; a third attempt is forgotten."""
    at = stream(files, mode)
    messages = []
    for number, attempt in ((1, 0), (1, 1), (0, 0)):
        task = at.task(number, attempt, by)
        task.add(toy.numbers(*(values[3:] if number else values[:3])))
        messages.append(task.commit())
    at.task(2, 0, by).add(toy.numbers(7, 7, 7, 7, 7))
    return messages[1:]


def batch(files: MemoryFileSystem, number: int, mode: str = "append") -> bool:
    """What Spark does with one batch: where it ends nothing is known but what the tasks said. Returns whether it was new."""
    messages = staged(files, BATCHES[number], mode)
    return stream(files, mode).commit(number, messages) is not None


def started(name: str) -> tuple[MemoryFileSystem, str, int, list[int] | None, list[int]]:
    """The disk before the batch that is killed, its mode and number, and the rows before and after it."""
    there, mode, can_exchange, number = SCENARIOS[name]
    files = directory_before(there)
    files.can_exchange = can_exchange
    for earlier in range(number):
        batch(files, earlier, mode)
    files = files.fork()
    files.can_exchange = can_exchange
    old = rows_for_readers(files)
    new = BATCHES[number] if mode == "overwrite" else (old or []) + BATCHES[number]
    return files, mode, number, old, new


@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_row_once(name: str, each: int) -> None:
    files, mode, number, old, new = started(name)
    assert batch(files, number, mode)
    assert rows_for_readers(files) == new
    outcomes = set()
    then = BATCHES[number + 1] if mode == "overwrite" else new + BATCHES[number + 1]
    sweep = [(prefix, *kept) for prefix in range(len(files.trace) + 1) for kept in KEPT]
    for prefix, kept, seed in sweep[:: each * each]:
        found = files.crash(prefix, kept, seed)
        rows = rows_for_readers(found)
        assert rows in (old, new), f"behind change {prefix}, with {kept} kept"
        # Spark knows of no commit: it writes the batch again, then the next one.
        assert batch(found, number, mode) is (rows != new)
        assert rows_for_readers(found) == new, f"behind change {prefix}, with {kept} kept"
        assert batch(found, number + 1, mode)
        assert settled(found) == then
        outcomes.add(rows == new)
    assert outcomes == {False, True}


@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_where_the_driver_lives_on(name: str, each: int) -> None:
    """Only the worker that commits is killed: what was staged belongs to a process that runs."""
    files, mode, number, _, new = started(name)
    batch(files, number, mode)
    for prefix in range(0, len(files.trace) + 1, each):
        found = files.killed(prefix)
        found._boot = files._boot
        batch(found, number, mode)
        assert settled(found) == new


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["later", "complete"])
def test_killed_again_and_again(name: str) -> None:
    files, mode, number, _, new = started(name)
    batch(files, number, mode)
    for prefix in range(0, len(files.trace) + 1, 3):
        first = files.crash(prefix, Kept.ALL)
        batch(first, number, mode)
        for second in range(len(first.trace) + 1):
            found = first.crash(second, Kept.NAMES)
            batch(found, number, mode)
            assert settled(found) == new


@THOROUGH
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_operation_fails_once(name: str, each: int) -> None:
    """An error of the disk: the stream ends with it, and goes on when it is started again."""
    start, mode, number, _, new = started(name)
    count = start.fork()
    count.can_exchange = start.can_exchange
    before_ = count.ticks
    batch(count, number, mode)
    total, failed = count.ticks - before_, 0
    for at in range(0, total, each):
        files = start.fork()
        files.can_exchange = start.can_exchange
        files.fail(at)
        try:
            batch(files, number, mode)
        except LogwrightError:
            failed += 1
            stream(files, mode).abort()
        batch(files, number, mode)
        assert rows_for_readers(files) == new
    assert failed > total // each // 2


def recorded(files: MemoryFileSystem) -> dict[str, Txn]:
    return parse_transactions(files.read(f"{TARGET}/{LAYOUT.inner_staging}/{TRANSACTIONS}"))


def test_the_record_outlives_other_writers() -> None:
    files = directory_before("nothing")
    batch(files, 0)
    append_rows(files, OLD)
    assert batch(files, 1)
    append_rows(files, OLD, "overwrite")
    assert not batch(files, 1)
    assert recorded(files) == {"sums": Txn("sums", 1, "one")}
    assert batch(files, 2)
    # All segments removed by hand: what is written is written.
    for name in files.tree(TARGET):
        if not name.startswith(LAYOUT.inner_staging):
            files.remove(f"{TARGET}/{name}")
    assert not batch(files, 2)
    append_rows(files, OLD)
    assert settled(files) == OLD
    assert recorded(files)["sums"].version == 2


def test_applications_do_not_know_of_each_other() -> None:
    files = directory_before("nothing")
    for app in ("a", "b"):
        task = stream(files, app=app).task(0)
        task.add(toy.numbers(1))
        assert stream(files, app=app).commit(0, [task.commit()]) is not None
    assert settled(files) == [1, 1]
    assert list(recorded(files)) == ["a", "b"]


def test_a_stream_with_a_new_checkpoint_is_another_one() -> None:
    files = directory_before("nothing")
    batch(files, 0)
    messages = staged(files, [5], "append", by="another")
    with pytest.raises(UsageError, match="another txnAppId"):
        stream(files).commit(0, messages)
    stream(files).abort()
    assert settled(files) == BATCHES[0]


def test_a_batch_without_tasks_is_recorded() -> None:
    files = directory_before("old")
    assert stream(files).commit(3, []) is not None
    assert stream(files).commit(3, []) is None
    assert settled(files) == OLD


def test_abort_leaves_nothing() -> None:
    files = directory_before("old")
    staged(files, [5], "append")
    stream(files).abort()
    stream(files).abort()
    assert {name.partition("/")[0] for name in files.tree("/data")} == {"box"}
    assert not [name for name in files.tree(TARGET) if name.startswith(".")]


def test_who_changes_the_directory_meanwhile_is_noticed() -> None:
    files = directory_before("old")
    messages = staged(files, [5], "append")
    append_rows(files, [6])
    with pytest.raises(BusyError, match="changed by someone else"):
        stream(files).commit(0, messages)
    stream(files).abort()
    assert settled(files) == [*OLD, 6]


def test_a_record_that_is_damaged_is_told() -> None:
    files = directory_before("nothing")
    batch(files, 0)
    files = files.fork()
    files.put(f"{TARGET}/{LAYOUT.inner_staging}/{TRANSACTIONS}", b"{]")
    with pytest.raises(StorageError, match="which writes have been done"):
        batch(files, 1)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_with_a_name_is_done_once(mode: str) -> None:
    files = directory_before("old")
    new = [5, 6] if mode == "overwrite" else [*OLD, 5, 6]

    def act(on: MemoryFileSystem) -> None:
        write = StagedWrite(TARGET, LAYOUT, mode, files=on, txn=Txn("job", 7))
        task = write.task(0)
        task.add(toy.numbers(5, 6))
        write.commit([task.commit()])

    act(files)
    for prefix in range(len(files.trace) + 1):
        found = files.crash(prefix, Kept.ALL)
        done = rows_for_readers(found) == new
        if done:
            with pytest.raises(Repeated):
                act(found)
        else:
            act(found)
        assert settled(found) == new
    assert [name for name in files.tree("/data") if "/" not in name] == ["box"]


def test_what_names_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    files = directory_before("nothing")
    monkeypatch.setattr(LAYOUT, "locks", lambda: ())
    with pytest.raises(LogwrightError):
        StreamWrite("s3://bucket/box", LAYOUT, "a", files=files)
    files.put("/data/other/file.txt", b"x")
    with pytest.raises(LogwrightError, match="not a toy"):
        StreamWrite("/data/other", LAYOUT, "a", files=files)
