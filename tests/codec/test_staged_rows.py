"""Layouts whose files depend on the position of each row among those of all tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.writers.staged import StagedWrite

ROWS: dict[str, list[dict[str, Any]]] = {
    "rocketmq.store": [
        {
            "topic": f"T{n % 3}",
            "queue_id": n % 2,
            "keys": f"k{n}",
            "born_timestamp": n,
            "store_timestamp": n,
            "body": b"x" * n,
        }
        for n in range(1, 200)
    ],
    "bookkeeper.bookie": [
        {"ledger_id": n % 3, "entry_id": n // 3, "payload": b"%d" % n * 9} for n in range(200)
    ],
}

OPTIONS: dict[str, dict[str, int]] = {
    "rocketmq.store": {
        "mappedFileSizeCommitLog": 1 << 13, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 4, "maxIndexNum": 81,
    },
    "bookkeeper.bookie": {"logSizeLimit": 4096},
}  # fmt: skip


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("layout", ROWS)
def test_tasks_write_the_same_bytes_as_one_writer(layout: str, tmp_path: Path) -> None:
    rows = ROWS[layout]
    lw.write(rows, tmp_path / "one", layout, **OPTIONS[layout])
    staged = StagedWrite(str(tmp_path / "tasks"), layout, "error", OPTIONS[layout])
    messages = []
    for number, part in enumerate((rows[:50], [], rows[50:51], rows[51:])):
        task = staged.task(number)
        if part:
            task.add(pa.RecordBatch.from_pylist(part))
        messages.append(task.commit())
    assert staged.commit(messages).rows == len(rows)
    one, by_tasks = files(tmp_path / "one"), files(tmp_path / "tasks")
    assert by_tasks.keys() == one.keys()
    assert [name for name in one if by_tasks[name] != one[name]] == []
