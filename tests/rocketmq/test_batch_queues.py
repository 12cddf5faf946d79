"""Messages that are batches, and the consume queues of their topics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stores import SIZES, batch

import logwright as lw


@pytest.mark.parametrize("rows", [[batch(0, 3), batch(3, 2)], [batch(0, 1), batch(1, 4), batch(5, 1)]])
def test_batches_leave_no_gap_although_no_file_names_their_topic(
    rows: list[dict[str, object]], tmp_path: Path
) -> None:
    """As in a store whose configuration and queues are in RocksDB."""
    home = tmp_path / "store"
    lw.write(rows, home, "rocketmq.store", batch_topics="B", **SIZES)
    assert lw.verify(home).ok
    for folder in ("config", "batchconsumequeue"):
        shutil.rmtree(home / folder)
    report = lw.verify(home)
    assert report.ok, report.text()
