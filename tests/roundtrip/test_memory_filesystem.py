"""The file system in memory behaves like the real one, so that crash tests on it are valid."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.roundtrip.memory_filesystem import Failure, Interrupted, MemoryFileSystem
from logwright.writers.filesystem import FileSystem, LocalFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the error numbers are those of Linux")

Step = tuple[str, str, str]
NAMES = st.sampled_from(["a", "b", "a/c", "b/c", "a/c/d"])
ONE = (
    "mkdir",
    "create",
    "write",
    "read",
    "stat",
    "listdir",
    "remove",
    "rmdir",
    "sync_directory",
    "lock",
    "locked",
    "holder",
)
TWO = ("rename", "rename_new", "exchange", "adopt")
STEPS = st.lists(st.tuples(st.sampled_from(ONE + TWO), NAMES, NAMES), min_size=1, max_size=12)  # fmt: skip


def done(files: FileSystem, step: Step, root: str) -> Any:
    """Return the result of an operation, or its errno."""
    operation, path, other = step[0], os.path.join(root, step[1]), os.path.join(root, step[2])
    try:
        match operation:
            case "stat":
                actual = files.stat(path)
                return actual and (actual.directory, 0 if actual.directory else actual.size)
            case "listdir":
                return [(item.name, item.directory, item.size) for item in files.listdir(path)]
            case "create" | "write":
                file = files.create(path) if operation == "create" else files.open(path)
                taken = file.pwrite(step[1].encode(), 2)
                file.close()
                return taken
            case "read":
                return files.read(path), files.read(path, 1, 3), files.read(path, 9)
            case "lock":
                lock = files.lock(path)
                assert lock is not None
                held = files.locked(path), files.lock(path)
                lock.release()
                return held
            case "adopt":
                return files.adopt(path, path) if files.stat(path) else None
            case _:
                return getattr(files, operation)(*((path, other) if operation in TWO else (path,)))
    except OSError as error:
        if operation in TWO and error.errno in (errno.ENOENT, errno.ENOTDIR) and files.stat(path) is None:
            return "not there"  # where both are wrong, either may be told
        return error.errno


def tree(root: str) -> dict[str, bytes | None]:
    actual: dict[str, bytes | None] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            actual[os.path.relpath(path, root)] = None if name in folders else open(path, "rb").read()  # noqa: SIM115
    return actual


BEFORE: list[Step] = [
    ("mkdir", "empty", ""), ("mkdir", "full", ""), ("mkdir", "full/inner", ""), ("write", "full/inner", ""),
    ("create", "full/file", ""), ("create", "file", ""),
]  # fmt: skip
PLACES = (
    "empty", "full", "full/inner", "full/file", "file", "gone", "gone/x", "file/x", "empty/new", "empty/gone/x",
)  # fmt: skip


@pytest.mark.alike
@pytest.mark.parametrize("operation", ONE + TWO)
@pytest.mark.parametrize("path", PLACES)
def test_every_operation_behaves_as_on_disk(operation: str, path: str) -> None:
    for other in PLACES if operation in TWO else ("",):
        same([*BEFORE, (operation, path, other)])


@given(STEPS)
def test_operations_in_any_order_behave_as_on_disk(steps: list[Step]) -> None:
    same(steps)


def same(steps: list[Step]) -> None:
    memory, local = MemoryFileSystem(), LocalFileSystem()
    memory.make("/root")
    with tempfile.TemporaryDirectory() as root:
        for step in steps:
            assert done(memory, step, "/root") == done(local, step, root), step
        assert memory.tree("/root") == tree(root)
        assert memory.fork().tree("/root") == tree(root)


def test_tree_can_be_dumped_to_disk(tmp_path: Any) -> None:
    memory = MemoryFileSystem()
    memory.put("/a/b/file", b"content")
    memory.put("/a/other", b"")
    memory.make("/a/empty")
    memory.dump("/a", str(tmp_path))
    assert tree(str(tmp_path)) == memory.tree("/a")
    assert memory.tree("/nowhere") == {}
    assert memory.real("/a/../b/./c") == "/b/c"


def test_missing_exchange_other_devices_and_locks_are_simulated() -> None:
    memory = MemoryFileSystem(can_exchange=False)
    memory.make("/a")
    memory.make("/b")
    assert memory.exchange("/a", "/b") is False
    memory.devices["/a"] = 7
    actual = memory.stat("/a")
    assert actual is not None
    assert actual.device == 7
    memory.busy["/a/lock"] = "process 1"
    assert memory.holder("/a/lock") is None, "a file that is not there"
    memory.put("/a/lock", b"")
    assert memory.holder("/a/lock") == "process 1"
    memory.fail(1, None)
    memory.stat("/a")
    with pytest.raises(Interrupted):
        memory.stat("/a")
    assert memory.failed
    file = memory.create("/a/file")
    memory.fail(0, Failure.SHORT)
    assert file.pwrite(b"1234", 0) == 2
    assert file.pwrite(b"1", 0) == 1
    seen: list[int] = []
    memory.meanwhile(1, lambda: seen.append(memory.ticks))
    memory.stat("/a")
    assert not seen
    memory.stat("/a")
    assert len(seen) == 1
    assert memory.lives(memory.process())
    assert not memory.crash(0).lives(memory.process())
