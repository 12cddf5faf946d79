"""Copies of golden partitions that a test may change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_golden import CASES


@pytest.fixture
def copy_partition(tmp_path: Path) -> Callable[[str], Path]:
    """Copy the data of a case to a log directory. Return the copied partition."""

    def copy(name: str) -> Path:
        shutil.copytree(CASES[name].data, tmp_path / "logs")
        for path in (tmp_path / "logs").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return tmp_path / "logs" / CASES[name].partition.name

    return copy


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of four segments, in a log directory after a clean stop."""
    place = tmp_path / "logs" / "dmg_base-0"
    shutil.copytree(CASES["dmg_base"].partition, place)
    (tmp_path / "logs" / ".kafka_cleanshutdown").touch()
    return place
