"""Sources of bytes: local files, file systems of `pyarrow.fs`, and standard input.

A source reads by position. Local files are read with `pread` and never mapped, since truncating a mapped file kills the process. Errors of
the operating system are translated here and nowhere else. `readers.rescue` finds out what a failing disk cannot read.
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

from logwright.codec import option
from logwright.codec.arrays import Bytes
from logwright.codec.fault import (
    AccessError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
)
from logwright.codec.frames.walk import RandomAccess
from logwright.readers.rescue import STANDARD, Memory, Rescue, Rescuer, memory

STDIN = "-"
_SPOOL = 8 << 20
"""Limit of bytes of standard input kept in memory; more goes to an unnamed temporary file."""
_HOLE = 64 << 10
"""Shortest read for which a hole is looked for."""
_PATIENCE = 10.0
"""Seconds to wait for the writer of a pipe, or to retry an unreachable server."""
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


class Source(RandomAccess, Protocol):
    """An open file. `path` is for messages; `size` is the size when opened. Raises `StorageError` for failures that have no position in the
    file."""

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
    """A file whose failing reads are retried, and repeated in smaller pieces."""

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
    """A local file, opened read-only. No lock is taken and nothing is created."""

    def __init__(self, path: str, fd: int, size: int, rescue: Rescue = STANDARD) -> None:
        self.path, self.size = path, size
        # The rescuer must not keep the source alive, whose destructor closes the file.
        self._open = [fd]
        read = functools.partial(_preadv, self._open)
        self._rescuer = Rescuer(path, size, read, memory(os.fstat(fd)), rescue)

    def ahead(self, offset: int, length: int) -> None:
        # Cached bytes are not announced, which would cost the kernel time for each page.
        if not all(map(self._at_hand, (offset, offset + length - 1))):
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(self._open[0], offset, length, os.POSIX_FADV_WILLNEED)

    def _at_hand(self, offset: int) -> bool:
        """Return whether a byte can be read, or is beyond the end, without waiting for the disk."""
        try:
            os.preadv(self._open[0], [bytearray(1)], offset, os.RWF_NOWAIT)
        except (OSError, AttributeError):  # or unsupported
            return False
        return True

    def close(self) -> None:
        if self._open[0] >= 0:
            os.close(self._open[0])
            self._open[0] = -1

    def reopened(self, path: str) -> LocalSource:
        return LocalSource(path, os.dup(self._open[0]), self.size)

    def __del__(self) -> None:
        if hasattr(self, "_rescuer"):
            self.close()


def _preadv(opened: list[int], view: memoryview, offset: int) -> int:
    if len(view) >= _HOLE and (holes := _hole(opened[0], offset, len(view))):
        np.frombuffer(view, np.uint8)[:holes] = 0
        return holes
    return os.preadv(opened[0], [view], offset)


def _hole(fd: int, offset: int, length: int) -> int:
    """Return how many bytes of a range a file has, if all of them are in a hole; 0 otherwise. The preallocated end of a log is one, and the
    kernel would fill its cache with the zeros."""
    try:
        return length if os.lseek(fd, offset, os.SEEK_DATA) >= offset + length else 0
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data follows
            return 0
    return min(length, max(0, os.fstat(fd).st_size - offset))


class MemorySource(_Closing):
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview, path: str = "memory") -> None:
        self.path = path
        self._data = np.frombuffer(data, np.uint8)
        self.size = len(self._data)

    def pread(self, offset: int, length: int) -> Bytes:
        # A copy, since kernels are compiled for writable arrays, like those of files.
        return self._data[offset : offset + max(0, length)].copy()

    def reopened(self, path: str) -> MemorySource:
        return MemorySource(memoryview(self._data.data), path)


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
    """Return whether a path begins with a scheme: `s3://`, `file://`."""
    return bool(_URI.match(path))


def local_path(path: str) -> str:
    """Return a local path for the operating system, without `file://` and with `~` expanded."""
    if path.startswith("file:/"):  # one slash, as Java writes it
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(path).path)
    return os.path.expanduser(path) if path.startswith("~") and not os.path.lexists(path) else path


def is_remote(path: str) -> bool:
    """Return whether `pyarrow.fs` must open a path."""
    return is_uri(path) and not path.startswith("file://")


def file_system(uri: str) -> tuple[Any, str]:
    """Return the `pyarrow.fs` file system of a URI, and the path in it."""
    from pyarrow import ArrowInvalid, fs

    limited = uri
    if uri.startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in uri:  # by default, 15 minutes
        limited = f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={_PATIENCE:.0f}"
    try:
        system, inner = fs.FileSystem.from_uri(limited)
        return system, str(inner)
    except ArrowInvalid as error:
        raise UsageError(
            f"unsupported URI ({_first_line(error)})",
            path=uri,
            advice="Supported schemes are those of pyarrow.fs: file, s3, gs, hdfs, abfs",
        ) from error
    except OSError as error:  # S3 is asked for the region of the bucket
        raise explain(error, uri) from error


def file_info(system: Any, place: Any, path: str) -> Any:
    """Return what a file system of `pyarrow.fs` has at a place, or by a selector. `path` is for messages."""
    from pyarrow import ArrowException

    try:
        return system.get_file_info(place)
    except (ArrowException, OSError) as error:  # Azure's errors are of no operating system
        raise explain(error if isinstance(error, OSError) else OSError(str(error)), path) from error


def open_source(path: str, shown: str | None = None, rescue: Rescue = STANDARD) -> Source:
    """Open a file for reading. `shown` is the path for messages, if different; `rescue` says how to read from a failing disk."""
    seen = path if shown is None else shown
    if path == STDIN:
        return _standard_input("stdin" if shown is None else shown)
    if is_remote(path):
        system, inner = file_system(path)
        try:
            return ArrowSource(seen, system.open_input_file(inner), rescue)
        except OSError as error:
            raise explain(error, seen) from error
    return _open_local(local_path(path), seen, rescue)


def _open_local(path: str, shown: str, rescue: Rescue) -> Source:
    try:
        # Otherwise opening a pipe without a writer would never return.
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
        raise _neither(shown)
    except LogwrightError:
        raise
    except OSError as error:
        raise explain(error, shown) from error
    finally:
        if fd >= 0:
            os.close(fd)


def _begun(fd: int, shown: str) -> bytes:
    """Wait until a pipe has a writer. Return the bytes read meanwhile. Raises `StorageError` after a timeout."""
    until = time.monotonic() + _PATIENCE
    try:
        while not (first := os.read(fd, 1)):
            if time.monotonic() > until:
                raise StorageError(
                    f"no process wrote to this pipe within {_PATIENCE:g} seconds", path=shown,
                    advice="Start its writer first",
                )  # fmt: skip
            time.sleep(0.01)
    except BlockingIOError:
        first = b""  # there is a writer, which has written nothing yet
    os.set_blocking(fd, True)
    return first


_stdin: tuple[BinaryIO, LocalSource | MemorySource] | None = None


def _standard_input(shown: str) -> Source:
    """Return all of standard input. It is read once and kept, since a command may open its input several times."""
    global _stdin
    stream = sys.stdin.buffer
    if _stdin is None or _stdin[0] is not stream:
        _stdin = stream, _spool(stream, shown)
    return _stdin[1].reopened(shown)


def _spool(stream: BinaryIO, shown: str, begun: bytes = b"") -> LocalSource | MemorySource:
    """Read all of a stream that cannot be read by position, into memory or an unnamed temporary file. `begun` has been read already."""
    try:
        first = begun + stream.read(_SPOOL)
        if len(first) < _SPOOL:
            return MemorySource(first, shown)
        with tempfile.TemporaryFile(prefix="logwright-") as file:
            file.write(first)
            while chunk := stream.read(1 << 20):
                file.write(chunk)
            file.flush()
            return LocalSource(shown, os.dup(file.fileno()), file.tell())
    except OSError as error:
        raise explain(error, shown) from error


def explain(error: OSError, path: str, offset: int | None = None) -> LogwrightError:
    """Translate an error of the operating system, with advice."""
    if isinstance(error, LogwrightError):
        return error
    if isinstance(error, FileNotFoundError) and not is_remote(path) and os.path.islink(local_path(path)):
        goal = os.readlink(local_path(path))
        return NotFoundError(f"dangling link to {goal}", path=path)
    if error.errno == errno.ELOOP:
        return StorageError("the link points to itself", path=path, offset=offset)
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file or directory", path=path, advice=_nearest(path))
    if isinstance(error, NotADirectoryError):
        return NotFoundError("a component of this path is a file, not a directory", path=path)
    if isinstance(error, PermissionError):
        return AccessError("permission denied", path=path, advice=_owner(path))
    if isinstance(error, IsADirectoryError):
        return UsageError("expected a file, found a directory", path=path)
    if error.errno == errno.ENXIO:
        return _neither(path)
    text = error.strerror or _first_line(error)
    advice = "Check the address, the network and the credentials" if is_remote(path) else ""
    if error.errno == errno.EIO:
        advice = "The disk is failing: copy it with ddrescue, then read the copy with option ddrescue.map"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "Too many open files: raise the limit with `ulimit -n`"
    return StorageError(f"read error: {text}", path=path, offset=offset, advice=advice)


def _neither(path: str) -> UsageError:
    return UsageError(
        "a socket or device; expected a file, directory or pipe",
        path=path,
        advice="Copy its content to a file, or pass it on standard input as '-'",
    )


def _nearest(path: str) -> str:
    """Suggest an existing path."""
    if is_remote(path):
        return ""
    path = local_path(path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        while folder and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return f"The nearest existing directory is {folder or '.'}"
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    near = difflib.get_close_matches(os.path.basename(path), names, n=1)
    if near:
        return f"Did you mean {os.path.join(os.path.dirname(path), near[0])}?"
    shown = "The current directory" if folder == "." else f"The directory {folder}"
    return f"{shown} has no similar name" if names else f"{shown} is empty"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _owner(path: str) -> str:
    try:
        status = os.stat(local_path(path))
    except OSError:
        return "Run as a user who may list its directory"
    try:
        import pwd

        user = pwd.getpwuid(status.st_uid).pw_name
    except (ImportError, KeyError):
        user = str(status.st_uid)
    return f"It belongs to {user} ({stat.filemode(status.st_mode)}): run as that user"


_LARGEST_OPTION_FILE = 64 << 20


def read_option_file(path: str) -> bytes:
    """Return the content of a file that an option names."""
    with open_source(path) as source:
        if source.size > _LARGEST_OPTION_FILE:
            raise UsageError(
                f"{source.size} bytes, expected at most {_LARGEST_OPTION_FILE} in a file that an option names",
                path=path,
            )
        return source.pread(0, source.size).tobytes()


option.file_reader = read_option_file
