"""Find out whether the real system is running on a directory, by querying its lock without taking it."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterable

_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


def held(paths: Iterable[str]) -> bool | None:
    """Return whether any of these lock files is locked; None if unknown.

    The systems use POSIX record locks, and F_GETLK reports those of other processes. A missing lock file is not locked. Nothing is created
    or locked.
    """
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return None
    import fcntl

    known = False
    for path in paths:
        with contextlib.suppress(OSError):
            if not os.path.exists(path):
                known = True
                continue
            if held_here(path):
                return True
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                request = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
                type_ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, request))[0]
            finally:
                os.close(fd)
            if type_ != fcntl.F_UNLCK:
                return True
            known = True
    return False if known else None


def held_here(path: str) -> bool:
    """Return whether this process itself holds a POSIX record lock on a file, as a LevelDB in this process does.

    F_GETLK does not report it, and opening and closing the file would release it.
    """
    try:
        if not _is_open_here(path):
            return False
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file if "POSIX" in line]
        inode = str(os.stat(path).st_ino)
    except OSError:
        return False  # no /proc on this system
    # A line is "4: POSIX  ADVISORY  WRITE 4711 08:01:131 0 EOF"; a waiting one has "->" after the number.
    return any(fields[-4] == str(os.getpid()) and fields[-3].rpartition(":")[2] == inode for fields in locks)


def _is_open_here(path: str) -> bool:
    """Return whether this process has a file open. Checked first, because reading all locks of the machine takes milliseconds and blocks
    lockers."""
    status = os.stat(path)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(number)), status):
                return True
    return False
