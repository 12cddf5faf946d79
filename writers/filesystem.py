"""The file system for writers: a small injected interface, and the local implementation.

Every change of a disk goes through `FileSystem`, so that a test can make any operation fail, or end the trace after any operation as a
crash does. The operations have POSIX guarantees and no more: data is durable after `OpenFile.sync`, and a created, renamed or removed name
after `sync_directory` of its directory. Operations raise `OSError`; `plain_errors` translates these in one place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat as stat_bits
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from logwright.codec.fault import (
    AccessError,
    BusyError,
    ExistsError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
)
from logwright.codec.window import Chunk, Zeros
from logwright.readers.live import held_here


@dataclass(frozen=True, slots=True)
class Stat:
    """Metadata of a path. `size` is in bytes, `modified` in seconds since 1970; `device` identifies the file system."""

    directory: bool
    size: int
    modified: float
    device: int


@dataclass(frozen=True, slots=True)
class Item:
    """A directory entry."""

    name: str
    directory: bool
    size: int


class OpenFile(Protocol):
    """A file open for writing."""

    def pwrite(self, data: Chunk, offset: int) -> int:
        """Write at an offset. Return the number of bytes written, which may be less than requested."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size in bytes. Added bytes are zero and, if supported, a hole."""
        ...

    def sync(self) -> None:
        """Return when the data is on the disk."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that the operating system releases when its holder dies."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """File system operations. Paths are absolute strings with `/`."""

    def real(self, path: str) -> str:
        """Return the absolute path with links resolved. It need not exist."""
        ...

    def stat(self, path: str) -> Stat | None:
        """Return the metadata of a path; None if it does not exist."""
        ...

    def listdir(self, path: str) -> list[Item]: ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes: ...

    def read_into(self, path: str, offset: int, out: memoryview) -> int:
        """Fill `out` with the bytes from `offset` on. Return how many there were, which may be less at the end of the file."""
        ...

    def is_hole(self, path: str, offset: int, length: int) -> bool:
        """Return whether a range is known to be a hole, so that its bytes are zeros. Only for files that this process wrote."""
        ...

    def create(self, path: str) -> OpenFile:
        """Create a file. It must not exist."""
        ...

    def open(self, path: str) -> OpenFile:
        """Open an existing file for writing."""
        ...

    def mkdir(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically. Replaces a file, or an empty directory by a directory."""
        ...

    def rename_new(self, old: str, new: str) -> None:
        """Rename, but fail if the new name is an existing file."""
        ...

    def exchange(self, first: str, second: str) -> bool:
        """Swap two names atomically. Return False, with nothing done, if the file system cannot."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the disk."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Lock a file, creating it if absent. Return None if it is locked by someone else."""
        ...

    def locked(self, path: str) -> bool:
        """Return whether a file is locked by `lock`. Nothing is created; a missing file is not locked."""
        ...

    def holder(self, path: str) -> str | None:
        """Return who holds an operating-system lock on a file (`process 4711`), without taking or creating anything; None if nobody does."""
        ...

    def adopt(self, path: str, model: str, *, permissions: bool = False, times: bool = False) -> bool:
        """Give a path the owner and group of another, optionally its permissions and times, as far as permitted. Return whether all were
        set. A system that runs as its own user must be able to write files that root made for it."""
        ...

    def now(self) -> float:
        """Return seconds since 1970, by the clock of `Stat.modified`."""
        ...

    def process(self, pid: int | None = None) -> Mapping[str, Any]:
        """Return plain values that identify a process, by default this one, for `lives`."""
        ...

    def lives(self, process: Mapping[str, Any]) -> bool | None:
        """Return whether a process is running; None if unknown (another machine or container)."""
        ...


# The local file system

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# linux/fcntl.h on 64-bit machines: short l_type, short l_whence, off_t l_start, off_t l_len, pid_t l_pid
_FLOCK = struct.Struct("@hhqqi4x")
_CANT_RENAMEAT2 = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


class LocalFile:
    """A local file, open for writing."""

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)

    def pwrite(self, data: Chunk, offset: int) -> int:
        try:
            return os.pwrite(self._fd, as_view(data), offset)
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            error.filename = self.path
            raise

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalLock:
    """A flock(2) lock. It belongs to the open file, so it also excludes two writers of one process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalFileSystem:
    """The local file systems. Stateless: one instance serves all, also after pickling."""

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def stat(self, path: str) -> Stat | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(stat_bits.S_ISDIR(status.st_mode), status.st_size, status.st_mtime, status.st_dev)

    def listdir(self, path: str) -> list[Item]:
        items = []
        with os.scandir(path) as entries:
            for entry in entries:
                # A file may be deleted meanwhile; it is then skipped. A link to a directory does not count as a directory, so nothing is
                # removed through it.
                with contextlib.suppress(FileNotFoundError):
                    directory = entry.is_dir(follow_symlinks=False)
                    follow = not entry.is_symlink() or os.path.exists(entry.path)
                    size = 0 if directory else entry.stat(follow_symlinks=follow).st_size
                    items.append(Item(entry.name, directory, size))
        return sorted(items, key=lambda item: item.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read() if length is None else file.read(length)

    def read_into(self, path: str, offset: int, out: memoryview) -> int:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < len(out) and (count := file.readinto(out[done:])):
                done += count
            return done

    def is_hole(self, path: str, offset: int, length: int) -> bool:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(fd, offset, os.SEEK_DATA) >= offset + length
        except OSError as error:
            return error.errno == errno.ENXIO  # no data follows
        finally:
            os.close(fd)

    def create(self, path: str) -> OpenFile:
        return LocalFile(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> OpenFile:
        return LocalFile(path, 0)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def rename_new(self, old: str, new: str) -> None:
        if not _renameat2(old, new, _RENAME_NOREPLACE):
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
            os.rename(old, new)

    def exchange(self, first: str, second: str) -> bool:
        return _renameat2(first, second, _RENAME_EXCHANGE)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = path
            # Some network file systems cannot, and need not, since they write metadata through.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock | None:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous holder may have removed the file between open and lock.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(fd), os.stat(path)):
                        return LocalLock(os.dup(fd))
            except BlockingIOError:
                return None
            except OSError as error:
                error.filename = path
                raise
            finally:
                os.close(fd)

    def locked(self, path: str) -> bool:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def holder(self, path: str) -> str | None:
        if held_here(path):
            return "this process"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            # Java's FileChannel.lock is fcntl(2), which flock(2) does not see.
            return _fcntl_holder(fd)
        finally:
            os.close(fd)

    def adopt(self, path: str, model: str, *, permissions: bool = False, times: bool = False) -> bool:
        reference, current = os.stat(model), os.stat(path)
        complete = True
        if (reference.st_uid, reference.st_gid) != (current.st_uid, current.st_gid):
            complete = _allowed(lambda: os.chown(path, reference.st_uid, reference.st_gid))
            current = os.stat(path)  # a new owner clears the set-user-ID bits
        if permissions and reference.st_mode != current.st_mode:
            # Set-user-ID bits must not be given to a file with another owner.
            mode = stat_bits.S_IMODE(reference.st_mode) & (0o7777 if complete else 0o777)
            complete = _allowed(lambda: os.chmod(path, mode)) and complete
        if times:
            complete = (
                _allowed(lambda: os.utime(path, ns=(reference.st_atime_ns, reference.st_mtime_ns)))
                and complete
            )
        return complete

    def now(self) -> float:
        return time.time()

    def process(self, pid: int | None = None) -> Mapping[str, Any]:
        pid = os.getpid() if pid is None else pid
        return {"host": _host(), "pid": pid, "started": _started(pid)}

    def lives(self, process: Mapping[str, Any]) -> bool | None:
        pid = process.get("pid")
        if process.get("host") != _host() or not isinstance(pid, int):
            return None
        started = _started(pid)
        return started is not None and started == process.get("started")


def _allowed(act: Callable[[], None]) -> bool:
    try:
        act()
    except PermissionError:
        return False
    return True


def _renameat2(old: str, new: str, flags: int) -> bool:
    """Call renameat2(2). Return False if the system or file system does not support it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANT_RENAMEAT2:
        return False
    raise OSError(code, os.strerror(code), old, None, new)


def _fcntl_holder(fd: int) -> str | None:
    if sys.platform != "linux":
        # On other systems the structure differs: try to take a shared lock briefly.
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another process"
        fcntl.lockf(fd, fcntl.LOCK_UN)
        return None
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    if kind == fcntl.F_UNLCK:
        return None
    return f"process {pid}" if pid > 0 else "a process of another container or machine"


def _host() -> str:
    """Identify the machine, its boot and the container, within which process numbers are unique."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def _started(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot (proc(5), stat field 22); None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0


# Errors

_WORDS: Mapping[int, tuple[type[LogwrightError], str, str]] = {
    errno.ENOSPC: (StorageError, "no space left on the disk", "Free some space or write to another disk"),
    errno.EDQUOT: (StorageError, "the disk quota is exceeded", "Free some space or write to another disk"),
    errno.EIO: (
        StorageError,
        "the disk reported an input/output error",
        "See the kernel log (`dmesg`)",
    ),
    errno.EROFS: (
        AccessError,
        "the file system is read-only",
        "Write elsewhere, or remount it writable",
    ),
    errno.EACCES: (
        AccessError,
        "permission denied",
        "Run as the owner of the directory, or write elsewhere",
    ),
    errno.ENOENT: (NotFoundError, "no such file or directory", ""),
    errno.EEXIST: (ExistsError, "it already exists", ""),
    errno.ENOTEMPTY: (ExistsError, "the directory is not empty", ""),
    errno.EAGAIN: (BusyError, "it is locked by another process", "Try again when that process is done"),
    errno.ENOTDIR: (UsageError, "a component of the path is a file, not a directory", "Use another path"),
    errno.EISDIR: (UsageError, "expected a file, found a directory", ""),
    errno.ENAMETOOLONG: (UsageError, "the name is too long for this file system", ""),
    errno.ENOLCK: (StorageError, "this file system does not support locks", "Write to a local disk"),
}


_TOKEN = re.compile(r"[0-9a-f]{32}")
"""Pattern of tokens in names of staging directories."""


def explained(error: OSError, path: str) -> LogwrightError:
    """Translate an error of the operating system."""
    if isinstance(error, LogwrightError):
        return error
    code = errno.EACCES if error.errno == errno.EPERM else error.errno
    unknown = (StorageError, error.strerror or str(error) or type(error).__name__, "")
    kind, message, advice = _WORDS.get(code or 0, unknown)
    filename = error.filename
    where = os.fsdecode(filename) if isinstance(filename, (str, bytes)) else path
    above, name = os.path.split(path.rstrip("/"))
    beside = os.path.relpath(where, os.path.realpath(above)).partition("/")[0]
    if _TOKEN.search(beside) and not _TOKEN.search(name):
        where = path  # the user does not know the staging directory beside it
    translated = kind(message, path=where, advice=advice)
    if isinstance(translated, OSError):
        translated.errno = error.errno
    return translated


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Translate errors of the operating system, and add the path to errors without one."""
    try:
        yield
    except LogwrightError as error:
        if error.path is None:
            error.path = path
        raise
    except OSError as error:
        raise explained(error, path) from error


# Compound operations


def as_view(data: Chunk) -> memoryview:
    """Return the bytes of a chunk, without a copy if they are contiguous."""
    if isinstance(data, Zeros):
        data = bytes(data)
    return memoryview(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data).cast("B")


def write_all(file: OpenFile, data: Chunk, offset: int) -> int:
    """Write all data and return its length. `Zeros` must be at the end of the file; they become a hole."""
    if isinstance(data, Zeros):
        if data:
            file.truncate(offset + len(data))
        return len(data)
    view = as_view(data)
    done = 0
    while done < len(view):
        took = file.pwrite(view[done:], offset + done)
        if took <= 0:
            raise OSError(errno.EIO, "the file accepts no more bytes")
        done += took
    return done


def put_file(files: FileSystem, path: str, data: bytes) -> None:
    """Create a small file and sync its data (not its name)."""
    file = files.create(path)
    try:
        write_all(file, data, 0)
        file.sync()
    finally:
        file.close()


def remove_tree(files: FileSystem, path: str) -> None:
    """Remove a directory tree. Missing entries are ignored."""
    try:
        items = files.listdir(path)
    except FileNotFoundError:
        return
    for item in items:
        inner = os.path.join(path, item.name)
        if item.directory:
            remove_tree(files, inner)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.remove(inner)
    with contextlib.suppress(FileNotFoundError):
        files.rmdir(path)


def sizes(files: FileSystem, path: str) -> dict[str, int]:
    """Return the sizes of the files directly in a directory, by name."""
    return {item.name: item.size for item in files.listdir(path) if not item.directory}


def make_above(files: FileSystem, path: str) -> tuple[str, ...]:
    """Make a directory and its parents. Return those made, outermost first."""
    missing: list[str] = []
    while (existing := files.stat(path)) is None:
        missing.append(path)
        path = os.path.dirname(path)
    if not existing.directory:
        raise UsageError("it is a file, so nothing can be created below it", path=path)
    created = tuple(reversed(missing))
    try:
        for directory in created:
            files.mkdir(directory)
            files.sync_directory(os.path.dirname(directory))
    except BaseException:
        unmake(files, created)
        raise
    return created


def unmake(files: FileSystem, created: Iterable[str]) -> None:
    """Remove the directories that are empty."""
    for path in reversed(tuple(created)):
        with contextlib.suppress(OSError):
            files.rmdir(path)
