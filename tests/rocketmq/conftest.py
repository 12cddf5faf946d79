"""Stores of several tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import SIZES

import logwright as lw


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A store of 100 messages with two keys each, in three commit log files and three index files of four slots."""
    rows = [
        {"topic": f"T{n % 3}", "queue_id": n % 2, "body": b"x" * n, "keys": f"k{n} größer{n}"} for n in range(100)
    ]  # fmt: skip
    lw.write(
        rows, tmp_path / "store", "rocketmq.store", mappedFileSizeCommitLog=1 << 13, maxHashSlotNum=4, maxIndexNum=81,
        mappedFileSizeConsumeQueue=400,
    )  # fmt: skip
    return tmp_path / "store"


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """A store of five messages of 193 bytes in one queue, in one file."""
    rows = [{"topic": "T", "body": b"x" * 100, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(5)]
    lw.write(rows, tmp_path / "five", "rocketmq.store", **SIZES)
    return tmp_path / "five"
