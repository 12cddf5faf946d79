"""The file system as writers use it: a small injected interface, and the local one.

Everything that changes a disk goes through `FileSystem`, so that a test can let any single operation fail, or end the trace
after any of them as a crash does. The operations are those of POSIX, with their guarantees and no more: written data is on the
disk after `OpenFile.sync`, a created, renamed or removed name after `sync_directory` of the directory that holds it.
Operations raise `OSError`; `plain_errors` turns these into sentences, in one place, at the outside.
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
    """What is at a path. `size` is in bytes, `modified` in seconds since 1970; `device` tells file systems apart."""

    directory: bool
    size: int
    modified: float
    device: int


@dataclass(frozen=True, slots=True)
class Item:
    """One name in a directory."""

    name: str
    directory: bool
    size: int


class OpenFile(Protocol):
    """A file open for writing."""

    def pwrite(self, data: Chunk, offset: int) -> int:
        """Write at a place; returns how many bytes were taken, which may be fewer than given."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size in bytes. Bytes that are added are zero, and take no space where the file system has holes."""
        ...

    def sync(self) -> None:
        """Return when the data is on the disk."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that the operating system frees when its holder dies."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Paths are absolute strings with `/`."""

    def real(self, path: str) -> str:
        """The absolute path, links resolved; what does not exist yet may be named."""
        ...

    def stat(self, path: str) -> Stat | None:
        """None when nothing is there."""
        ...

    def listdir(self, path: str) -> list[Item]: ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes: ...

    def create(self, path: str) -> OpenFile:
        """A new file; an existing one is an error."""
        ...

    def open(self, path: str) -> OpenFile:
        """An existing file, to change it."""
        ...

    def mkdir(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic. Replaces a file, or an empty directory by a directory."""
        ...

    def rename_new(self, old: str, new: str) -> None:
        """Like `rename`, but an existing file under the new name is an error."""
        ...

    def exchange(self, one: str, other: str) -> bool:
        """Swap two names atomically; False, and nothing done, where the file system can't."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the disk."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Lock a file, made if absent; None when someone else holds it."""
        ...

    def locked(self, path: str) -> bool:
        """Whether someone holds `lock` of a file; nothing is made, and a file that is not there is not locked."""
        ...

    def holder(self, path: str) -> str | None:
        """Who holds a lock of the operating system on a file (`process 4711`), tested without taking or making anything;
        None when nobody does or the file does not exist."""
        ...

    def adopt(self, path: str, model: str, *, permissions: bool = False, times: bool = False) -> bool:
        """Give a path the owner and group of another one, on demand its permissions and times too, as far as this user may;
        returns whether it has them now. A system that runs under its own user must be able to write what root made for it."""
        ...

    def now(self) -> float:
        """Seconds since 1970, by the clock of `Stat.modified`."""
        ...

    def process(self, pid: int | None = None) -> Mapping[str, Any]:
        """What identifies a process, this one by default, for `lives`; of plain values."""
        ...

    def lives(self, process: Mapping[str, Any]) -> bool | None:
        """Whether it still runs; None when that can't be told from here (another machine or container)."""
        ...


# The local file system

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# linux/fcntl.h on 64-bit machines: short l_type, short l_whence, off_t l_start, off_t l_len, pid_t l_pid
_FLOCK = struct.Struct("@hhqqi4x")
_CANT_RENAMEAT2 = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


class LocalFile:
    """A file of the local file system, open for writing."""

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
    """flock(2): per open file, so that it also holds between two writers of one process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalFileSystem:
    """The machine's own file systems. Stateless: one instance serves all, also after pickling."""

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def stat(self, path: str) -> Stat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(stat_bits.S_ISDIR(found.st_mode), found.st_size, found.st_mtime, found.st_dev)

    def listdir(self, path: str) -> list[Item]:
        items = []
        with os.scandir(path) as entries:
            for entry in entries:
                # A file may go while we look: then it is not there.
                # A link to a directory is no directory: nothing may be removed through it.
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

    def exchange(self, one: str, other: str) -> bool:
        return _renameat2(one, other, _RENAME_EXCHANGE)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = path
            # Some network file systems can't, and need not: their metadata is written through.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock | None:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The holder before may have removed the file between our open and our lock.
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
        wanted, found = os.stat(model), os.stat(path)
        whole = True
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            whole = _allowed(lambda: os.chown(path, wanted.st_uid, wanted.st_gid))
            found = os.stat(path)  # a new owner clears the bits for running as that user
        if permissions and wanted.st_mode != found.st_mode:
            # To run as its user is nothing to be given away with a file that has another one now.
            mode = stat_bits.S_IMODE(wanted.st_mode) & (0o7777 if whole else 0o777)
            whole = _allowed(lambda: os.chmod(path, mode)) and whole
        if times:
            whole = _allowed(lambda: os.utime(path, ns=(wanted.st_atime_ns, wanted.st_mtime_ns))) and whole
        return whole

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
    """Call renameat2(2); False when this system or file system has no such thing."""
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
        # Elsewhere the structure differs: try to share the lock for a moment.
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another process"
        fcntl.lockf(fd, fcntl.LOCK_UN)
        return None
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    return f"process {pid}" if pid > 0 else "a process of another container or machine"


def _host() -> str:
    """One boot of one machine, and the container on it: where a process number means something."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def _started(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot (proc(5), stat field 22); None when there is none."""
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
    errno.EDQUOT: (StorageError, "the disk quota is used up", "Free some space or write to another disk"),
    errno.EIO: (
        StorageError,
        "the disk reported an input/output error",
        "The kernel's log (`dmesg`) says more",
    ),
    errno.EROFS: (
        AccessError,
        "the file system is read-only",
        "Write to another place, or mount it writable",
    ),
    errno.EACCES: (
        AccessError,
        "the operating system does not allow this",
        "Run as the user that owns the directory, or write to another place",
    ),
    errno.ENOENT: (NotFoundError, "no such file or directory", ""),
    errno.EEXIST: (ExistsError, "it exists already", ""),
    errno.ENOTEMPTY: (ExistsError, "the directory is not empty", ""),
    errno.EAGAIN: (BusyError, "another process holds it", "Try again when that is done"),
    errno.ENOTDIR: (UsageError, "a part of the path is not a directory", ""),
    errno.EISDIR: (UsageError, "it is a directory, a file is needed", ""),
    errno.ENAMETOOLONG: (UsageError, "the name is too long for this file system", ""),
    errno.ENOLCK: (StorageError, "this file system has no locks", "Write to a local disk"),
}


_TOKEN = re.compile(r"[0-9a-f]{32}")
"""In the names of staging directories."""


def explained(error: OSError, path: str) -> LogwrightError:
    """An error of the operating system as one of ours."""
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
        where = path  # the staging directory beside it, which nobody knows
    said = kind(message, path=where, advice=advice)
    if isinstance(said, OSError):
        said.errno = error.errno
    return said


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Errors of the operating system become ours; ours get the path when they have none."""
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
    """The bytes of a chunk, not copied where they lie together."""
    if isinstance(data, Zeros):
        data = bytes(data)
    return memoryview(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data).cast("B")


def write_all(file: OpenFile, data: Chunk, offset: int) -> int:
    """Write all of the data; returns how many bytes that were. `Zeros` go to the end of the file only: they become a hole."""
    if isinstance(data, Zeros):
        if data:
            file.truncate(offset + len(data))
        return len(data)
    view = as_view(data)
    done = 0
    while done < len(view):
        took = file.pwrite(view[done:], offset + done)
        if took <= 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        done += took
    return done


def put_file(files: FileSystem, path: str, data: bytes) -> None:
    """Make a small file, on the disk when this returns (its name not yet)."""
    file = files.create(path)
    try:
        write_all(file, data, 0)
        file.sync()
    finally:
        file.close()


def remove_tree(files: FileSystem, path: str) -> None:
    """Remove a directory and all in it; what is gone already is fine."""
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
    """The files directly in a directory: their sizes by name."""
    return {item.name: item.size for item in files.listdir(path) if not item.directory}


def make_above(files: FileSystem, path: str) -> tuple[str, ...]:
    """Make a directory and those above it; returns those made, outermost first."""
    missing: list[str] = []
    while (found := files.stat(path)) is None:
        missing.append(path)
        path = os.path.dirname(path)
    if not found.directory:
        raise UsageError("it is a file: nothing can be made below it", path=path)
    made = tuple(reversed(missing))
    try:
        for one in made:
            files.mkdir(one)
            files.sync_directory(os.path.dirname(one))
    except BaseException:
        unmake(files, made)
        raise
    return made


def unmake(files: FileSystem, made: Iterable[str]) -> None:
    """Remove those of these directories again that are empty."""
    for path in reversed(tuple(made)):
        with contextlib.suppress(OSError):
            files.rmdir(path)
