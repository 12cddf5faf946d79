"""A driver that is killed (SIGKILL) before or within its commit: the target is the old one or the new one, for readers at once, on
the disk after the next write. The real file system, a real process; every operation is swept in `test_crash_*`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw

pytestmark = pytest.mark.extended  # each starts processes and kills them many times

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
    found: list[bytes] = lw.read(path)["value"].to_pylist()
    return found


@pytest.mark.parametrize("mode", ["new", "append", "overwrite"])
def test_old_or_new(tmp_path: Path, mode: str) -> None:
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
        found = values(target) if target.exists() else None
        assert found in (old, new), (stop, found)
        seen.add(found == new)
        # The next writer finishes or undoes, whatever it was, and adds its own.
        lw.write(pa.table({"value": [b"next"]}), target, "kafka.partition", mode="append")
        assert values(target) == [*(found or []), b"next"]
        assert sorted(path.name for path in folder.iterdir()) == ["orders-0"]
        assert lw.verify(target).ok
    assert seen == {False, True}, "the sweep reaches over the commit"
