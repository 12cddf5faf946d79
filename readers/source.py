"""Where bytes come from: local files, any file system that `pyarrow.fs` knows, standard input.

A source gives bytes by position. Local files are read by `pread` and never mapped: a file cut short under a map kills the
process. Whatever the operating system says on the way becomes one of our errors here, and only here. What a failing disk can't
read is found out by `readers.rescue`.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import os
import re
import stat
import sys
import tempfile
import time
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import numpy as np

from logwright.codec.fault import (
    AccessError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
)
from logwright.codec.frames.walk import RandomAccess
from logwright.codec.window import Bytes
from logwright.readers.rescue import STANDARD, Memory, Rescue, Rescuer, memory

STDIN = "-"
_SPOOL = 8 << 20
"""Standard input up to so many bytes is kept in memory, more goes to an unnamed temporary file."""
_PATIENCE = 10.0
"""Seconds to wait for whoever writes to a pipe."""
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


class Source(RandomAccess, Protocol):
    """An open file. `path` is what people see, `size` what it was when the file was opened. Raises `StorageError` for failures that
    have no place in the file."""

    path: str

    def close(self) -> None: ...

    def __enter__(self) -> Source: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class _Closing:
    def close(self) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def ahead(self, offset: int, length: int) -> None: ...


class _Rescued(_Closing):
    """A file whose reads are tried again, and in smaller pieces, where they fail."""

    path: str
    size: int
    _rescuer: Rescuer

    def pread(self, offset: int, length: int) -> Bytes:
        try:
            return self._rescuer.pread(offset, length)
        except LogwrightError:
            raise
        except OSError as error:
            raise explain(error, self.path, offset) from error


class LocalSource(_Rescued):
    """A local file, open for reading only. No lock is taken and nothing is created."""

    def __init__(self, path: str, fd: int, size: int, rescue: Rescue = STANDARD) -> None:
        self.path, self.size = path, size
        # The rescuer must not keep the source alive, which closes the file when it goes.
        self._open = [fd]
        read = functools.partial(_preadv, self._open)
        self._rescuer = Rescuer(path, size, read, memory(os.fstat(fd)), rescue)

    def ahead(self, offset: int, length: int) -> None:
        # What is in memory already is not asked for: that takes the kernel time for each page.
        if not all(map(self._at_hand, (offset, offset + length - 1))):
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(self._open[0], offset, length, os.POSIX_FADV_WILLNEED)

    def _at_hand(self, offset: int) -> bool:
        """Whether a byte can be read, or the file ends before it, without a wait for the disk."""
        try:
            os.preadv(self._open[0], [bytearray(1)], offset, os.RWF_NOWAIT)
        except (OSError, AttributeError):  # or nobody can say
            return False
        return True

    def close(self) -> None:
        if self._open[0] >= 0:
            os.close(self._open[0])
            self._open[0] = -1

    def __del__(self) -> None:
        if hasattr(self, "_rescuer"):
            self.close()


def _preadv(opened: list[int], view: memoryview, offset: int) -> int:
    return os.preadv(opened[0], [view], offset)


class MemorySource(_Closing):
    """Bytes that are in memory already."""

    def __init__(self, data: bytes | bytearray | memoryview, path: str = "memory") -> None:
        self.path = path
        self._data = np.frombuffer(data, np.uint8)
        self.size = len(self._data)

    def pread(self, offset: int, length: int) -> Bytes:
        # A copy, since kernels are compiled for arrays that may be written to, like those of files.
        return self._data[offset : offset + max(0, length)].copy()


class ArrowSource(_Rescued):
    """A file on a file system of `pyarrow.fs`."""

    def __init__(self, path: str, file: Any, rescue: Rescue = STANDARD) -> None:
        self.path, self._file = path, file
        self.size = int(file.size())
        self._rescuer = Rescuer(path, self.size, functools.partial(_read_at, file), Memory(), rescue)

    def close(self) -> None:
        self._file.close()


def _read_at(file: Any, view: memoryview, offset: int) -> int:
    data = file.read_at(len(view), offset)
    view[: len(data)] = data
    return len(data)


def is_uri(path: str) -> bool:
    """Whether a path begins with a scheme: `s3://`, `file://`."""
    return bool(_URI.match(path))


def local_path(path: str) -> str:
    """A local path as the operating system takes it: `file://` and `~` are taken away."""
    if path.startswith("file:/"):  # with one slash, as Java writes it
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(path).path)
    return os.path.expanduser(path) if path.startswith("~") and not os.path.lexists(path) else path


def is_remote(path: str) -> bool:
    """Whether it lies on a file system that `pyarrow.fs` has to open."""
    return is_uri(path) and not path.startswith("file://")


def file_system(uri: str) -> tuple[Any, str]:
    """The `pyarrow.fs` file system of a URI, and the path in it."""
    from pyarrow import ArrowException, fs

    try:
        system, inner = fs.FileSystem.from_uri(uri)
        return system, str(inner)
    except (ArrowException, OSError) as error:
        raise UsageError(
            f"no file system for this URI ({_first_line(error)})",
            path=uri,
            advice="Known are those of pyarrow.fs: file, s3, gs, hdfs, abfs",
        ) from error


def open_source(path: str, shown: str | None = None, rescue: Rescue = STANDARD) -> Source:
    """Open a file for reading. `shown` is the path in messages, where it is not the same; `rescue` says how a failing disk is read."""
    seen = path if shown is None else shown
    if path == STDIN:
        return _spool(sys.stdin.buffer, "stdin" if shown is None else shown)
    if is_remote(path):
        system, inner = file_system(path)
        try:
            return ArrowSource(seen, system.open_input_file(inner), rescue)
        except OSError as error:
            raise explain(error, seen) from error
    return _open_local(local_path(path), seen, rescue)


def _open_local(path: str, shown: str, rescue: Rescue) -> Source:
    try:
        # Else opening a pipe to which nobody writes would never end.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise explain(error, shown) from error
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise explain(IsADirectoryError(errno.EISDIR, "is a directory"), shown)
        if stat.S_ISREG(status.st_mode):
            source = LocalSource(shown, fd, status.st_size, rescue)
            fd = -1
            return source
        if stat.S_ISFIFO(status.st_mode):
            first = _begun(fd, shown)
            pipe = os.fdopen(fd, "rb")
            fd = -1
            with pipe:
                return _spool(pipe, shown, first)
        raise UsageError("is neither a file, a directory nor a pipe", path=shown)
    except LogwrightError:
        raise
    except OSError as error:
        raise explain(error, shown) from error
    finally:
        if fd >= 0:
            os.close(fd)


def _begun(fd: int, shown: str) -> bytes:
    """Wait until somebody writes to a pipe; what was read on trying. Raises `StorageError` where nobody does for long."""
    until = time.monotonic() + _PATIENCE
    try:
        while not (first := os.read(fd, 1)):
            if time.monotonic() > until:
                raise StorageError(
                    f"nobody has written to this pipe for {_PATIENCE:g} seconds", path=shown,
                    advice="Start what writes to it first",
                )  # fmt: skip
            time.sleep(0.01)
    except BlockingIOError:
        first = b""  # there is a writer, which takes its time
    os.set_blocking(fd, True)
    return first


def _spool(stream: BinaryIO, shown: str, begun: bytes = b"") -> Source:
    """All of a stream, which can't be read by position: in memory, or in an unnamed temporary file. `begun` was read already."""
    try:
        first = begun + stream.read(_SPOOL)
        if len(first) < _SPOOL:
            return MemorySource(first, shown)
        with tempfile.TemporaryFile(prefix="logwright-") as file:
            file.write(first)
            while piece := stream.read(1 << 20):
                file.write(piece)
            file.flush()
            return LocalSource(shown, os.dup(file.fileno()), file.tell())
    except OSError as error:
        raise explain(error, shown) from error


def explain(error: OSError, path: str, offset: int | None = None) -> LogwrightError:
    """What the operating system said, as one of our errors, with what to do about it."""
    if isinstance(error, LogwrightError):
        return error
    if isinstance(error, FileNotFoundError) and not is_remote(path) and os.path.islink(local_path(path)):
        goal = os.readlink(local_path(path))
        return NotFoundError(f"is a link to {goal}, which is not there", path=path)
    if error.errno == errno.ELOOP:
        return StorageError("is a link that leads to itself", path=path, offset=offset)
    if isinstance(error, FileNotFoundError):
        return NotFoundError("there is no such file or directory", path=path, advice=_nearest(path))
    if isinstance(error, NotADirectoryError):
        return NotFoundError("a part of this path is a file, not a directory", path=path)
    if isinstance(error, PermissionError):
        return AccessError("permission to read it is denied", path=path, advice=_owner(path))
    if isinstance(error, IsADirectoryError):
        return UsageError("is a directory, a file is needed here", path=path)
    text = error.strerror or _first_line(error)
    advice = ""
    if error.errno == errno.EIO:
        advice = (
            "The disk fails: copy what can be read with ddrescue, then read the copy with option ddrescue.map"
        )
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "Too many files are open: raise the limit with `ulimit -n`"
    return StorageError(f"reading failed: {text}", path=path, offset=offset, advice=advice)


def _nearest(path: str) -> str:
    """What is there instead of a path that is not."""
    if is_remote(path):
        return ""
    path = local_path(path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        while folder and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return f"Of this path, {folder or '.'} is there"
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    near = difflib.get_close_matches(os.path.basename(path), names, n=1)
    if near:
        return f"Did you mean {os.path.join(os.path.dirname(path), near[0])}?"
    shown = "the current directory" if folder == "." else folder
    return f"Nothing in {shown} has a name like it" if names else f"{shown} is empty"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _owner(path: str) -> str:
    try:
        status = os.stat(local_path(path))
    except OSError:
        return "Run it as a user who may look into its folder"
    try:
        import pwd

        user = pwd.getpwuid(status.st_uid).pw_name
    except (ImportError, KeyError):
        user = str(status.st_uid)
    return f"It belongs to {user} ({stat.filemode(status.st_mode)}): run it as that user, or copy it"
