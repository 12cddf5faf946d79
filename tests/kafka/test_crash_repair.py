"""A Kafka partition repaired in place: after every crash readers see the damaged or the repaired one, and a broker started in between
opens it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crash_repair import check_every_crash
from kafka_crash_repair import BACKUP, LAYOUT, TARGET, damaged, repair

import logwright as lw
from logwright.codec.engine.repair import Strategy
from logwright.roundtrip.memory_filesystem import MemoryFileSystem


class PartitionReader:
    """Reads partitions from a file system in memory, equal contents once."""

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
        rows: list[bytes] = (
            lw.scan(self._dump(files, True), mode="DROPMALFORMED").to_table()["value"].to_pylist()
        )
        return rows

    def opens(self, files: MemoryFileSystem) -> bool:
        """Return whether a broker would open what it sees, after a clean stop and after an unclean one."""
        held = tuple((name, data) for name, data in sorted(files.tree(TARGET).items()) if "/" not in name)
        if held not in self._opens:
            path = self._dump(files, False)
            self._opens[held] = all(
                lw.verify(path, as_system=True, clean=clean)["system"]["opens"] for clean in (True, False)
            )
        return self._opens[held]


@pytest.mark.parametrize("strategy", [Strategy.SALVAGE, Strategy.PREFIX])
def test_crash_leaves_the_old_or_the_new_partition_and_a_broker_opens_it(
    strategy: Strategy, tmp_path: Path
) -> None:
    files, reader = damaged(), PartitionReader(tmp_path)
    before = files.tree(TARGET)
    old = reader.rows(files)
    repair(files, strategy)
    new = reader.rows(files)
    assert new == (old if strategy is Strategy.SALVAGE else old[: len(new)])

    def check_killed(disk: MemoryFileSystem) -> None:
        assert reader.opens(disk)

    def check_readers(disk: MemoryFileSystem) -> None:
        assert reader.rows(disk) in (old, new)

    check_every_crash(files, LAYOUT, TARGET, BACKUP, before, check_killed, check_readers)
