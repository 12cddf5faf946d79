"""Whether the real system is running on a directory: by asking about its lock, without taking one."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterable

_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


def held(paths: Iterable[str]) -> bool | None:
    """Whether any of these lock files is locked; None when that can't be told.

    The systems' locks are POSIX record locks on the file, of which F_GETLK tells where another process has them. A lock file that
    is not there is not held. Nothing is created and nothing is locked.
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
                asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
                found = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
            finally:
                os.close(fd)
            if found != fcntl.F_UNLCK:
                return True
            known = True
    return False if known else None


def held_here(path: str) -> bool:
    """Whether this very process has a POSIX record lock on a file, as a LevelDB that runs in it has.

    F_GETLK does not tell of it, and to open the file and close it again would release it.
    """
    try:
        if not _is_open_here(path):
            return False
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file if "POSIX" in line]
        inode = str(os.stat(path).st_ino)
    except OSError:
        return False  # no /proc here
    # "4: POSIX  ADVISORY  WRITE 4711 08:01:131 0 EOF", with "->" behind the number where it is waited for.
    return any(one[-4] == str(os.getpid()) and one[-3].rpartition(":")[2] == inode for one in locks)


def _is_open_here(path: str) -> bool:
    """Whether this process has a file open. To ask for all locks of the machine takes milliseconds, and stops those who take one."""
    wanted = os.stat(path)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(number)), wanted):
                return True
    return False
