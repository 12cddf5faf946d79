"""Kafka's own loader, started after any change a repair in place makes, opens the partition; at the end it finds all kept records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_crash_repair import GOOD, TARGET, damaged, repair

from logwright.codec.engine.repair import Strategy

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("strategy", [Strategy.SALVAGE, Strategy.PREFIX])
def test_loader_opens_what_a_killed_repair_left(
    strategy: Strategy, clean: bool, kafka: Any, tmp_path: Path
) -> None:
    files = damaged()
    repair(files, strategy)
    ends: dict[object, int] = {}
    for prefix in range(len(files.trace) + 1):
        actual = files.killed(prefix)
        held = tuple(sorted((name, data) for name, data in actual.tree(TARGET).items() if "/" not in name))
        if held not in ends:
            path = tmp_path / str(len(ends)) / "orders-0"
            path.mkdir(parents=True)
            actual.dump(TARGET, str(path))
            ends[held] = int(kafka.load(path, clean=clean)["log_end_offset"])
    assert len(ends) > 4
    last = list(ends.values())[-1]
    assert last == len(GOOD) if strategy is Strategy.SALVAGE else 0 < last < len(GOOD)
