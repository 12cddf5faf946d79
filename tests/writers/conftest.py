"""The fake store that can be repaired."""

from __future__ import annotations

from pathlib import Path

import pytest
from repairable_store import DAMAGED, repairable_store, write_files

__all__ = ["repairable_store"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A damaged store. Tests that use it register its layout with `repairable_store`."""
    return write_files(tmp_path / "data" / "store", DAMAGED)
