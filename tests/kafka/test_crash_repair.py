"""A Kafka partition repaired in place, through every crash: readers see the damaged one or the repaired one, and a broker that is started in
between opens it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kafka_crash_repair import BACKUP, LAYOUT, TARGET, damaged, repair

import logwright as lw
from logwright.codec.engine.repair import Strategy
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.recover import finish_or_undo


class Eye:
    """Looks at partitions in a file system in memory, at the same bytes only once."""

    def __init__(self, scratch: Path) -> None:
        self._place = scratch / "orders-0"
        self._opens: dict[object, bool] = {}

    def _dump(self, files: MemoryFileSystem, overlay: bool) -> Path:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        files.dump(TARGET, str(self._place))
        if not overlay:
            shutil.rmtree(self._place / LAYOUT.inner_staging, ignore_errors=True)
        return self._place

    def rows(self, files: MemoryFileSystem) -> list[bytes]:
        found: list[bytes] = (
            lw.scan(self._dump(files, True), mode="DROPMALFORMED").to_table()["value"].to_pylist()
        )
        return found

    def opens(self, files: MemoryFileSystem) -> bool:
        """Whether a broker would open what it sees, after a clean stop and after an unclean one."""
        held = tuple((name, data) for name, data in sorted(files.tree(TARGET).items()) if "/" not in name)
        if held not in self._opens:
            path = self._dump(files, False)
            self._opens[held] = all(
                lw.verify(path, as_system=True, clean=clean)["system"]["opens"] for clean in (True, False)
            )
        return self._opens[held]


@pytest.mark.parametrize("strategy", [Strategy.SALVAGE, Strategy.PREFIX])
def test_old_or_new_and_it_opens(strategy: Strategy, tmp_path: Path) -> None:
    files, eye = damaged(), Eye(tmp_path)
    before = files.tree(TARGET)
    old = eye.rows(files)
    repair(files, strategy)
    new = eye.rows(files)
    after = files.tree(TARGET)
    assert new == (old if strategy is Strategy.SALVAGE else old[: len(new)])
    seen, known = set(), set()
    for prefix in range(len(files.trace) + 1):
        assert eye.opens(files.killed(prefix)), f"behind change {prefix}"
        for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
            found = files.crash(prefix, kept)
            holds = tuple(sorted(found.tree().items()))
            if holds in known:
                continue
            known.add(holds)
            rows = eye.rows(found)
            assert rows in (old, new)
            finish_or_undo(found, LAYOUT, TARGET)
            assert found.tree(TARGET) in (before, after)
            seen.add(found.tree(TARGET) == after)
    assert seen == {False, True}
    changed = {name: data for name, data in before.items() if after.get(name) != data}
    saved = files.tree(BACKUP)
    assert {name: saved.get(name) for name in changed} == changed
