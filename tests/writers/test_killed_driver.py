"""A driver killed (SIGKILL) before or within its commit leaves the old or the new rows: for readers at once, on disk after the next
write. Uses the real file system and a real process; `test_crash_*` covers every operation."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw

pytestmark = pytest.mark.extended  # Each test starts processes and kills them many times.

DRIVER = textwrap.dedent("""
    import os, signal, sys
    import pyarrow as pa
    from logwright.writers import filesystem
    from logwright.writers.staged import StagedWrite

    path, mode, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
    write = StagedWrite(path, "kafka.partition", mode, {"segment.bytes": "600", "batch.size": "200", "topic.id": "q83vASNFZ4mrze8BI0VniQ"})
    messages = []
    for number in range(2):
        task = write.task(number, 0)
        task.add(pa.record_batch({"value": [b"new %d" % (20 * number + i) for i in range(20)]}))
        messages.append(task.commit())
    if stop < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left = [stop]
    def counted(name):
        plain = getattr(filesystem.LocalFileSystem, name)
        def call(self, *args):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return plain(self, *args)
        setattr(filesystem.LocalFileSystem, name, call)
    for name in ("rename", "rename_new", "exchange", "remove", "sync_directory"):
        if hasattr(filesystem.LocalFileSystem, name):
            counted(name)
    write.commit(messages)
""")
OLD = [b"old %d" % n for n in range(30)]
NEW = [b"new %d" % n for n in range(40)]


def values(path: Path) -> list[bytes]:
    rows: list[bytes] = lw.read(path)["value"].to_pylist()
    return rows


@pytest.mark.parametrize("mode", ["new", "append", "overwrite"])
def test_kill_leaves_the_old_or_the_new_rows(tmp_path: Path, mode: str) -> None:
    seen = set()
    for stop in (-1, 0, 2, 5, 9, 14, 20, 30):
        folder = tmp_path / f"{mode}-{stop}"
        folder.mkdir()
        target = folder / "orders-0"
        if mode != "new":
            lw.write(pa.table({"value": OLD}), target, "kafka.partition", topic_id="q83vASNFZ4mrze8BI0VniQ")
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(target), "append" if mode == "new" else mode, str(stop)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, -9), done.stderr
        old: list[bytes] | None = None if mode == "new" else OLD
        new = OLD + NEW if mode == "append" else NEW
        present = values(target) if target.exists() else None
        assert present in (old, new), (stop, present)
        seen.add(present == new)
        # The next writer finishes or undoes the write, and adds its own rows.
        lw.write(pa.table({"value": [b"next"]}), target, "kafka.partition", mode="append")
        assert values(target) == [*(present or []), b"next"]
        assert sorted(path.name for path in folder.iterdir()) == ["orders-0"]
        assert lw.verify(target).ok
    assert seen == {False, True}, "the sweep reaches over the commit"
