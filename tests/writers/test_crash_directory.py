"""Wherever the machine stops: a directory is the old one or the new one, and the next write goes on from it."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_leaves_the_old_or_the_new(name: str) -> None:
    files, act, old, new = prepare(name)
    act(files)
    assert rows_for_readers(files) == new
    assert rows_after_recovery(files.fork()) == new
    outcomes = set()
    for prefix in range(len(files.trace) + 1):
        for kept, seed in KEPT:
            found = files.crash(prefix, kept, seed)
            rows = rows_for_readers(found)
            assert rows in (old, new), f"behind change {prefix}, with {kept} kept"
            assert rows_after_recovery(found) == rows
            outcomes.add(rows == new)
            append_rows(found, NEXT)
            assert rows_after_recovery(found) == (rows or []) + NEXT
    assert outcomes == {False, True}
    # What write has reported as written is on the disk.
    assert all(rows_for_readers(files.crash(len(files.trace), kept, seed)) == new for kept, seed in KEPT)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_leaves_the_old_or_the_new(name: str) -> None:
    files, act, old, new = prepare(name)
    act(files)
    for prefix in range(len(files.trace) + 1):
        found = files.killed(prefix)
        rows = rows_for_readers(found)
        assert rows in (old, new)
        assert rows_after_recovery(found) == rows


@pytest.mark.parametrize("name", ["append", "overwrite", "overwrite without exchange", "new"])
def test_a_crash_while_finishing_or_undoing_changes_nothing(name: str) -> None:
    files, act, _, _ = prepare(name)
    act(files)
    for prefix in range(len(files.trace) + 1):
        first = files.crash(prefix, Kept.ALL)
        rows = rows_for_readers(first)
        finish_or_undo(first, LAYOUT, TARGET)
        for second in range(len(first.trace) + 1):
            for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
                found = first.crash(second, kept)
                assert rows_for_readers(found) == rows
                assert rows_after_recovery(found) == rows


@pytest.mark.parametrize("name", ["overwrite", "overwrite by tasks", "overwrite without exchange"])
def test_nothing_old_is_removed_before_the_new_is_committed(name: str) -> None:
    files, act, _, _ = prepare(name)
    old = {name for name in files.tree(TARGET) if not name.startswith(".")}
    start = files.fork()
    act(files)
    decided = next(at for at, change in enumerate(files.trace) if _decides(change))
    synced = next(
        at
        for at, change in enumerate(files.trace)
        if at > decided and change.what == "sync" and change.directory
    )
    for prefix in range(synced + 1):
        found = {path.rpartition("/")[2]: data for path, data in files.killed(prefix).tree("/data").items()}
        assert old <= set(found)
    assert start.tree(TARGET).keys() == old


def _decides(change: Change) -> bool:
    return change.what == "exchange" or any(
        name == "commit.json" and after for _, name, _, after in change.names
    )


def test_the_target_may_stand_next_to_others() -> None:
    files = directory_before("old")
    # Directories that the system itself has scheduled for removal have the same form of name.
    theirs = LAYOUT.staging("box", "0123456789abcdef" * 2)
    files.put(f"/data/{theirs}/00000.seg", b"not ours")
    files.put("/data/box.txt", b"not ours")
    append_rows(files, NEW)
    assert files.tree("/data")[f"{theirs}/00000.seg"] == b"not ours"
    assert files.tree("/data")["box.txt"] == b"not ours"
