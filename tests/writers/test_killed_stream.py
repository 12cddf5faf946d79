"""A stream whose process is killed (SIGKILL) at any step of a commit, repeatedly, and restarted writes each row once. Uses the real
file system and real processes; `test_crash_stream` covers every operation and every crash of the machine, `tests/spark` a restart
by Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw

pytestmark = pytest.mark.extended  # Each test starts processes and kills them many times.

STREAM = textwrap.dedent("""
    import json, os, signal, sys
    import pyarrow as pa
    from logwright.writers import filesystem
    from logwright.writers.streamed import StreamWrite

    path, layout, checkpoint, stop = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    left = [stop]
    def counted(name):
        plain = getattr(filesystem.LocalFileSystem, name)
        def call(self, *args):
            if committing[0]:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
            return plain(self, *args)
        setattr(filesystem.LocalFileSystem, name, call)
    committing = [False]
    for name in ("create", "mkdir", "rename", "rename_new", "exchange", "remove", "rmdir", "sync_directory"):
        counted(name)
    # As Spark does it: what is planned is written down first, what is committed afterwards.
    done = json.load(open(checkpoint)) if os.path.exists(checkpoint) else -1
    for number in range(done + 1, 3):
        messages = []
        sink = StreamWrite(path, layout, "numbers")
        for part in range(2):
            task = sink.task(part)
            values = [b"%d" % n for n in range(20 * number + 10 * part, 20 * number + 10 * part + 10)]
            task.add(pa.record_batch({"key": [b"k" + v for v in values], "value": values}))
            messages.append(task.commit())
        committing[0] = True
        StreamWrite(path, layout, "numbers").commit(number, messages)
        committing[0] = False
        with open(checkpoint + ".new", "w") as file:
            json.dump(number, file)
        os.rename(checkpoint + ".new", checkpoint)
""")


def started(folder: Path, layout: str, stop: int) -> int:
    words = [str(folder / "orders-0"), layout, str(folder / "checkpoint"), str(stop)]
    done = subprocess.run([sys.executable, "-c", STREAM, *words], capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


@pytest.mark.parametrize("layout", ["kafka.partition", "leveldb.db"])
@pytest.mark.parametrize("each", [60, pytest.param(1, marks=pytest.mark.nightly)])
def test_each_row_is_written_once(tmp_path: Path, layout: str, each: int) -> None:
    expected = {b"k%d" % n: b"%d" % n for n in range(60)}
    kills = 0
    for stop in range(2, 10_000, each):
        folder = tmp_path / str(stop)
        folder.mkdir()
        killed = 0
        # Killed once more at the same step of the restart, but not so often that it never ends.
        while started(folder, layout, stop if killed < 2 else 1 << 30):
            killed += 1
            done = json.loads((folder / "checkpoint").read_text()) if (folder / "checkpoint").exists() else -1
            present = (
                lw.read(folder / "orders-0")["value"].to_pylist() if (folder / "orders-0").exists() else []
            )
            # The batches that Spark has marked as done are there, and possibly one more.
            assert len(present) in (20 * (done + 1), 20 * (done + 2)), stop
        present = lw.read(folder / "orders-0", columns=["key", "value"]).to_pylist()
        assert len(present) == len(expected)
        assert {row["key"]: row["value"] for row in present} == expected
        assert lw.verify(folder / "orders-0").ok
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["checkpoint", "orders-0"], left
        assert [path.name for path in (folder / "orders-0" / ".logwright").iterdir()] == ["transactions.json"]
        kills += killed
        if not killed:
            break
    assert kills > 2


def test_unrelated_files_are_kept(tmp_path: Path) -> None:
    assert started(tmp_path, "kafka.partition", 1 << 30) == 0
    lw.write(pa.table({"value": [b"x"]}), tmp_path / "orders-0", "kafka.partition", mode="append")
    assert started(tmp_path, "kafka.partition", 1 << 30) == 0
    assert len(lw.read(tmp_path / "orders-0")) == 61
