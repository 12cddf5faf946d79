"""After a repair in place is killed (SIGKILL), readers see the damaged or the repaired directory, the backup has the removed files,
and the same command continues. Uses the real file system and a real process; `test_crash_repair` covers every operation."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import logwright as lw

REPAIR = textwrap.dedent("""
    import os, signal, sys
    import logwright as lw
    from logwright.writers import filesystem

    path, backup, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
    left = [stop]
    def counted(name):
        plain = getattr(filesystem.LocalFileSystem, name)
        def call(self, *args, **named):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return plain(self, *args, **named)
        setattr(filesystem.LocalFileSystem, name, call)
    for name in ("create", "rename", "rename_new", "remove", "sync_directory"):
        counted(name)
    lw.repair(path, in_place=True, backup=backup)
""")


def files(path: Path) -> dict[str, bytes]:
    return (
        {child.name: child.read_bytes() for child in path.iterdir() if child.is_file()}
        if path.exists()
        else {}
    )


@pytest.mark.parametrize(
    "stop", [12, *(pytest.param(stop, marks=pytest.mark.extended) for stop in (2, 15, 18))]
)
def test_kill_leaves_the_old_or_the_new_files_and_the_command_continues(tmp_path: Path, stop: int) -> None:
    path, backup = tmp_path / "orders-0", tmp_path / "backup"
    rows = [{"value": b"value %03d" % n, "timestamp": 1_700_000_000_000} for n in range(60)]
    lw.write(
        rows, path, "kafka.partition", segment_bytes=600, batch_size=200, topic_id="q83vASNFZ4mrze8BI0VniQ"
    )
    first = path / "00000000000000000000.log"
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0x55
    first.write_bytes(data)
    before, sound = files(path), lw.scan(path, mode="DROPMALFORMED").to_table()
    words = [sys.executable, "-c", REPAIR, str(path), str(backup), str(stop)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    if lw.verify(path).ok:
        gone = {name: data for name, data in before.items() if files(path).get(name) != data}
        assert gone.items() <= files(backup).items()
    else:
        lw.repair(path, in_place=True, backup=backup)
    lw.repair(path, in_place=True, backup=tmp_path / "not needed")
    assert lw.verify(path).ok
    assert lw.read(path).equals(sound)
    assert not (path / ".logwright").exists()
    assert not (tmp_path / "not needed").exists()
