"""Files of ZooKeeper 3.0 and older are recognised and refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import UnsupportedError

TXN = struct.pack(">qiqqii", 7, 1, 1, 1_200_000_000_000, -10, 30000)
LOG = struct.pack(">i", len(TXN)) + TXN + b"B"
SNAPSHOT = (
    struct.pack(">iqi", 1, 7, 30000)
    + struct.pack(">ii", 0, 0)
    + struct.pack(">iii", 1, 31, 5)
    + b"world"
    + bytes(80)
)


@pytest.fixture(params=["version-1", "data"])
def old(request: Any, tmp_path: Path) -> Path:
    folder = tmp_path / request.param
    folder.mkdir()
    (folder / "log.1").write_bytes(LOG)
    (folder / "snapshot.0").write_bytes(SNAPSHOT)
    return folder


@pytest.mark.parametrize("verb", [lw.read, lw.inspect, lw.verify, lambda path: lw.repair(path, dry_run=True)])
def test_directory_of_version_1_is_refused_by_name(old: Path, verb: Callable[[Path], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"ZooKeeper 3\.0 and older"):
        verb(old)


def test_log_of_version_1_is_refused_by_name(old: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"this log has format version 1"):
        lw.verify(old / "log.1")


def test_log_without_its_header_in_version_2_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2/log.1").write_bytes(LOG)
    assert not lw.verify(tmp_path / "version-2/log.1").ok
