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
    """Whether any of these lock files is locked by another process; None when that can't be told.

    The systems are Java programs: their locks are POSIX record locks on the file, which F_GETLK tells of. A lock file that is
    not there is not held. Nothing is created and nothing is locked.
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
