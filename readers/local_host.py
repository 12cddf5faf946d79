"""The I/O that codecs ask for: secrets that options name, and temporary directories.

`env:NAME` is an environment variable, `file:PATH` a file. Messages never contain a secret.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any

LARGEST = 64 << 10
"""Largest size of a file with a secret, in bytes."""
_CHUNK = 8 << 20


class TemporarySpill:
    """See `codec.host.Spill`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._size = file, 0

    def append(self, data: Any) -> int:
        at, view = self._size, memoryview(data)
        done = 0
        while done < len(view):
            done += os.pwrite(self._file.fileno(), view[done:], at + done)
        self._size += len(view)
        return at

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, offset)


class LocalHost:
    """See `codec.host.Host`."""

    def read_secret(self, reference: str) -> bytes:
        """The line end at the end of a file does not belong to the secret."""
        kind, _, name = reference.partition(":")
        if not name or kind not in ("env", "file"):
            raise ValueError("expected env:NAME or file:PATH")
        if kind == "file":
            return _content(os.path.expanduser(name)).removesuffix(b"\n").removesuffix(b"\r")
        if name not in os.environ:
            raise ValueError(f"the environment variable {name} is not set")
        return os.fsencode(os.environ[name])

    def files_of(
        self, make: Callable[[str], None], folder: AbstractContextManager[str] | None = None
    ) -> Iterator[tuple[str, bytes]]:
        with folder or tempfile.TemporaryDirectory(prefix="logwright-") as path:
            make(path)
            for name in sorted(os.listdir(path)):
                with open(os.path.join(path, name), "rb") as file:
                    while chunk := file.read(_CHUNK):
                        yield name, chunk

    @contextmanager
    def spill(self) -> Iterator[TemporarySpill]:
        with tempfile.TemporaryFile(prefix="logwright-") as file:
            yield TemporarySpill(file)


def _content(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would block
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode):
                raise ValueError(f"{path} is not a regular file")
            if state.st_size > LARGEST:
                raise ValueError(f"{path} has {state.st_size} bytes; expected at most {LARGEST}")
            return os.read(file, LARGEST)
        finally:
            os.close(file)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
