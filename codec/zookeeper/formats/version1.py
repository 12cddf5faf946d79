"""Recognise the files of ZooKeeper before 3.1, which are in `version-1` or in the data directory itself. They are not read.

Their logs and snapshots have neither header nor checksums. Source: `UpgradeMain` and `UpgradeSnapShotV1` of ZooKeeper 3.4.
"""

from __future__ import annotations

from logwright.codec.fault import UnsupportedError
from logwright.codec.zookeeper.names import LOG, FileName

VERSION_1 = "version-1"
_LEAST = 32
"""Size of a transaction header in bytes."""
_ZXID_AT = 16
_SESSION = 12


def is_old_log(head: bytes, zxid: int | None) -> bool:
    """Return whether the first bytes are a transaction as those versions wrote it: its length, its header, and the end mark `B`."""
    if zxid is None or len(head) < _ZXID_AT + 8:
        return False
    length = int.from_bytes(head[:4], "big")
    first = int.from_bytes(head[_ZXID_AT : _ZXID_AT + 8], "big", signed=True)
    end = 4 + length
    return length >= _LEAST and first >> 32 == zxid >> 32 and head[end : end + 1] == b"B"


def is_old_snapshot(head: bytes) -> bool:
    """Return whether the first bytes are a list of sessions and the root of a tree."""
    count = int.from_bytes(head[:4], "big", signed=True)
    at = 4 + max(count, 0) * _SESSION
    return count >= 0 and len(head) >= at + 32 and head[at : at + 4] == bytes(4) and any(head[at : at + 32])


def refused(name: str) -> UnsupportedError:
    """Return the error for such a file or directory."""
    return UnsupportedError(
        f"{name} has format version 1 of ZooKeeper 3.0 and older, which is not supported; it was not checked",
        advice="Convert a copy with UpgradeMain of ZooKeeper 3.3 or 3.4, then read the version-2 that it writes",
    )


def is_old_file(head: bytes, named: FileName) -> bool:
    """Return whether the first bytes are those of such a log or snapshot."""
    if named.compression or named.rest:
        return False
    return is_old_log(head, named.zxid) if named.kind == LOG else is_old_snapshot(head)
