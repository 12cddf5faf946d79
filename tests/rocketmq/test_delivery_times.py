"""Delivery times in the units of delayed messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stores import LARGER, flip

import logwright as lw
from logwright.codec.fault import Severity

TOPIC = "SCHEDULE_TOPIC_XXXX"
TIME = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two levels, with four messages each."""
    rows: list[dict[str, Any]] = [
        {
            "topic": TOPIC,
            "queue_id": n % 2,
            "body": b"x",
            "store_timestamp_ms": TIME + 700 * n,
            "properties": [("DELAY", f"{n % 2 + 1}")],
        }
        for n in range(8)
    ]
    lw.write(rows, tmp_path / "store", "rocketmq.store", messageDelayLevel="2s 1d", **LARGER)
    return tmp_path / "store"


def warnings(path: Path, **options: str) -> list[tuple[str, int]]:
    report = lw.verify(path, **options)
    assert report.ok
    return [(name, fault.offset) for name, fault in report.faults if fault.severity is Severity.WARNING]


def test_delivery_time_that_differs_from_the_delay_of_its_message_is_reported_and_set_right(
    store: Path, tmp_path: Path
) -> None:
    queue = store / f"consumequeue/{TOPIC}/1/{0:020d}"
    before = queue.read_bytes()
    assert warnings(store, messageDelayLevel="2s 1d") == []
    flip(queue, 20 * 2 + 17)
    assert warnings(store, messageDelayLevel="2s 1d") == [(str(queue.relative_to(store)), 40)]
    lw.repair(store, tmp_path / "out", messageDelayLevel="2s 1d")
    assert (tmp_path / "out" / queue.relative_to(store)).read_bytes() == before


def test_delivery_times_of_unknown_delay_levels_are_no_faults_and_stay(store: Path, tmp_path: Path) -> None:
    assert warnings(store) == []
    lw.repair(store, tmp_path / "out")
    for queue in store.glob("consumequeue/*/*/*"):
        assert (tmp_path / "out" / queue.relative_to(store)).read_bytes() == queue.read_bytes()
