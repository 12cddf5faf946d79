"""Process settings are changed only in our own processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import logwright as lw

LIBRARY = """
import sys
import logwright as lw

lw.generate("kafka.partition", "orders-0", rows=200, seed=7)
lw.write(lw.read("orders-0", columns=["key", "value"]), "copy-0", "kafka.partition", offsets="assign")
lw.verify("copy-0")
lw.repair("copy-0", "repaired-0")
lw.write([{"key": b"a", "value": b"b"}], "database", "leveldb.db")
lw.write([{"path": "/a", "data": b"b"}], "tree", "zookeeper.datadir")
lw.read("tree")
assert "logwright.readers.process" not in sys.modules
"""
COMMAND = """
import sys
from logwright.cli import main

try:
    main(["codecs"])
except SystemExit as status:
    assert status.code == 0
from logwright.readers.process import keep_freed_memory

assert keep_freed_memory.cache_info().currsize == 1
"""


def run(program: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_library_leaves_allocator_settings_alone(tmp_path: Path) -> None:
    run(LIBRARY, tmp_path)


def test_command_line_keeps_freed_memory(tmp_path: Path) -> None:
    run(COMMAND, tmp_path)


def test_command_line_does_not_import_pandas(tmp_path: Path) -> None:
    """PyArrow imports it for `pa.array`, which reading a database and checking a partition need."""
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=9, seed=7)
    lw.write([{"key": b"a", "value": b"b"}], tmp_path / "database", "leveldb.db")
    for name in ("orders-0", "database"):
        program = (
            f"import sys; sys.argv = ['logwright', 'verify', {name!r}]\n"
            "try:\n    from logwright.cli import main; main()\n"
            "finally:\n    assert 'pandas' not in sys.modules"
        )
        run(program, tmp_path)
