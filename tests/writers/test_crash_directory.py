"""After a crash at any operation a directory has the old rows or the new ones, and the next write continues from there."""

from __future__ import annotations

import pytest
from sampling import STEPS
from write_scenarios import (
    LAYOUT,
    NEW,
    NEXT,
    SCENARIOS,
    TARGET,
    append_rows,
    directory_before,
    known_staging,
    prepare,
    rows_after_recovery,
    rows_for_readers,
)

from logwright.roundtrip.memory_filesystem import Change, Kept
from logwright.writers.recover import finish_or_undo

__all__ = ["known_staging"]

KEPT = [(kept, 0) for kept in Kept if kept is not Kept.SOME] + [(Kept.SOME, seed) for seed in range(6)]


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_leaves_the_old_or_the_new_rows(name: str, step: int) -> None:
    files, act, old, new = prepare(name)
    act(files)
    assert rows_for_readers(files) == new
    assert rows_after_recovery(files.fork()) == new
    outcomes = set()
    crashes = [(prefix, *kept) for prefix in range(len(files.trace) + 1) for kept in KEPT]
    for prefix, kept, seed in crashes[::step]:
        disk = files.crash(prefix, kept, seed)
        rows = rows_for_readers(disk)
        assert rows in (old, new), f"behind change {prefix}, with {kept} kept"
        assert rows_after_recovery(disk) == rows
        outcomes.add(rows == new)
        append_rows(disk, NEXT)
        assert rows_after_recovery(disk) == (rows or []) + NEXT
    assert outcomes == {False, True}
    # A write that has reported success is durable.
    assert all(rows_for_readers(files.crash(len(files.trace), kept, seed)) == new for kept, seed in KEPT)


@pytest.mark.alike
@pytest.mark.parametrize("name", SCENARIOS)
def test_kill_leaves_the_old_or_the_new_rows(name: str) -> None:
    files, act, old, new = prepare(name)
    act(files)
    for prefix in range(len(files.trace) + 1):
        disk = files.killed(prefix)
        rows = rows_for_readers(disk)
        assert rows in (old, new)
        assert rows_after_recovery(disk) == rows


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize("name", ["append", "overwrite", "overwrite without exchange", "new"])
def test_crash_during_recovery_changes_nothing(name: str, step: int) -> None:
    files, act, _, _ = prepare(name)
    act(files)
    for prefix in range(0, len(files.trace) + 1, step):
        first = files.crash(prefix, Kept.ALL)
        rows = rows_for_readers(first)
        finish_or_undo(first, LAYOUT, TARGET)
        for second in range(len(first.trace) + 1):
            for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
                disk = first.crash(second, kept)
                assert rows_for_readers(disk) == rows
                assert rows_after_recovery(disk) == rows


@pytest.mark.parametrize("name", ["overwrite", "overwrite by tasks", "overwrite without exchange"])
def test_nothing_old_is_removed_before_the_commit(name: str) -> None:
    files, act, _, _ = prepare(name)
    old = {name for name in files.tree(TARGET) if not name.startswith(".")}
    start = files.fork()
    act(files)
    decided = next(at for at, change in enumerate(files.trace) if _is_commit(change))
    synced = next(
        at
        for at, change in enumerate(files.trace)
        if at > decided and change.kind == "sync" and change.directory
    )
    for prefix in range(synced + 1):
        files_there = {
            path.rpartition("/")[2]: data for path, data in files.killed(prefix).tree("/data").items()
        }
        assert old <= set(files_there)
    assert start.tree(TARGET).keys() == old


def _is_commit(change: Change) -> bool:
    return change.kind == "exchange" or any(
        name == "commit.json" and after for _, name, _, after in change.names
    )


def test_target_beside_other_directories() -> None:
    files = directory_before("old")
    # Directories that the system has scheduled for deletion have names of the same form.
    theirs = LAYOUT.staging("box", "0123456789abcdef" * 2)
    files.put(f"/data/{theirs}/00000.seg", b"not ours")
    files.put("/data/box.txt", b"not ours")
    append_rows(files, NEW)
    assert files.tree("/data")[f"{theirs}/00000.seg"] == b"not ours"
    assert files.tree("/data")["box.txt"] == b"not ours"
