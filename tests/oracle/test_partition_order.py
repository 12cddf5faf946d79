"""The order in which an append renames its files: Kafka's loader, started in between after a clean stop, finds every file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_crash import TARGET, prepared

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", ["append", "append by tasks"])
def test_every_log_has_its_indexes_by_offset_and_by_time(name: str, kafka: Any, tmp_path: Path) -> None:
    """If a `.index` is renamed before its `.timeindex`, the broker creates an empty one, in which no time is found."""
    files, act, _, _ = prepared(name)
    act(files)
    final = {path: data for path, data in files.tree(TARGET).items() if "/" not in path}
    states = {}
    for prefix in range(len(files.trace) + 1):
        actual = files.killed(prefix)
        states.setdefault(frozenset(path for path in actual.tree(TARGET) if "/" not in path), actual)
    assert len(states) > 6
    for number, actual in enumerate(states.values()):
        path = tmp_path / str(number) / "orders-0"
        path.mkdir(parents=True)
        actual.dump(TARGET, str(path))
        kafka.load(path, clean=True)
        for log in path.glob("*.log"):
            if log.stat().st_size:
                for item in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
                    assert item.read_bytes() == final[item.name], f"state {number}: {item.name}"
