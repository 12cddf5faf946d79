"""Make any operating-system call of logwright fail, for commands that run on real files.

`MemoryFileSystem` is better for failures and crashes of writers, because it knows the state of the disk. But readers, and the code
around both, call the operating system directly.
"""

from __future__ import annotations

import builtins
import errno
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from logwright.roundtrip.memory_filesystem import Failure

_READING = ("open", "stat", "lstat", "fstat", "scandir", "listdir", "preadv", "readlink")
_CHANGING = (
    "pwrite", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "link", "chmod", "chown", "utime", "ftruncate",
)  # fmt: skip
_OUR_OWN = ("logwright.codec.kernels.kernel", "logwright.codec.kernels.disk_cache", "logwright.roundtrip")
"""Modules whose calls never fail: the kernel cache and the harness."""
_DEPTH = 6


class FaultyCalls:
    """A context in which call number `at` of logwright fails: once, or (`forever`) with all later calls of the same function.

    `ticks` counts the calls, `what` names the failed function. `Failure.SHORT` halves a read or write and skips other calls. A full disk
    (ENOSPC) affects calls that change something.
    """

    def __init__(self, at: int = -1, failure: Failure = Failure.EIO, *, forever: bool = False) -> None:
        self.at, self.failure, self.forever = at, failure, forever
        self.ticks = 0
        self.what = ""
        self._real: dict[tuple[Any, str], Callable[..., Any]] = {}

    def __enter__(self) -> FaultyCalls:
        names = _CHANGING if self.failure is Failure.ENOSPC else (*_READING, *_CHANGING)
        for name in names:
            self._patch(os, name)
        if self.failure is not Failure.SHORT:
            self._patch(builtins, "open")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (module, name), real in self._real.items():
            setattr(module, name, real)
        self._real.clear()

    def _patch(self, module: Any, name: str) -> None:
        real = self._real[module, name] = getattr(module, name)
        halves: dict[str, Callable[..., int]] = {"preadv": _half_read, "pwrite": _half_write}
        halved = halves.get(name)

        def call(*args: Any, **more: Any) -> Any:
            if not _ours():
                return real(*args, **more)
            number, self.ticks = self.ticks, self.ticks + 1
            due = number == self.at or (self.forever and self.what == name)
            if not due:
                return real(*args, **more)
            self.what = name
            if self.failure is Failure.SHORT:
                return halved(real, *args) if halved else real(*args, **more)
            code = errno.EIO if self.failure is Failure.EIO else errno.ENOSPC
            raise OSError(code, os.strerror(code))

        setattr(module, name, call)


def _half_read(
    real: Callable[..., int], fd: int, views: Sequence[memoryview], offset: int, flags: int = 0
) -> int:
    view = views[0]
    return real(fd, [view[: len(view) // 2 or 1]], offset, flags)


def _half_write(real: Callable[..., int], fd: int, data: Any, offset: int) -> int:
    view = memoryview(data).cast("B")
    return real(fd, view[: len(view) // 2 or 1], offset)


def _ours() -> bool:
    """Return whether the call comes from logwright, directly or through functions of the standard library."""
    frame = sys._getframe(2)
    for _ in range(_DEPTH):
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_OUR_OWN) or name.startswith(("numba", "importlib")):
            return False
        if name.startswith("logwright"):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
