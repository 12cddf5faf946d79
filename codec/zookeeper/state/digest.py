"""The digest of a tree: a sum over its nodes, so that a change of one is a subtraction and an addition (`AdHash`).

Source: `DigestCalculator`, `util.AdHash`, `NodeHashMapImpl` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, LENGTH
from logwright.codec.zookeeper.jute import STAT_PERSISTED

VERSION = 2
"""`DigestCalculator.DIGEST_VERSION`."""
EXCLUDED = "/zookeeper/"
"""Paths with this prefix do not count: their nodes belong to the server."""
_SYSTEM = np.frombuffer(EXCLUDED.encode(), np.uint8)
_ONES = 0xFFFFFFFF
_STAT = STAT_PERSISTED.head_size
_PZXID = STAT_PERSISTED.offset("pzxid")
"""The last field of the stat, which is third in the digest."""
_CTIME = STAT_PERSISTED.offset("ctime")


@kernel("const u1[], i8, i8")
def counts(path: Bytes, at: int, end: int) -> int:
    """Return whether a node of that path counts in the digest."""
    if end - at < len(_SYSTEM):
        return 1
    for i in range(len(_SYSTEM)):
        if path[at + i] != _SYSTEM[i]:
            return 1
    return 0


@kernel("const u1[], const i8[], const i4[], const i4[], i8[]")
def node_digests(buf: Bytes, starts: Int64s, paths: Int32s, data: Int32s, out: Int64s) -> int:
    """Compute the digest of each record that starts there, 0 if it does not count: the checksum of path, data and stat as stored, but
    with pzxid before ctime. `paths` and `data` are lengths. Return the sum, which fits 63 bits."""
    total = 0
    for i in range(len(starts)):
        out[i] = 0
        at = starts[i] + LENGTH
        end = at + paths[i]
        if not counts(buf, at, end):
            continue
        crc = crc32_raw(_ONES, buf, at, end)
        at = end + LENGTH
        end = at + max(data[i], 0)
        crc = crc32_raw(crc, buf, at, end)
        at = end + FIXED - _STAT
        crc = crc32_raw(crc, buf, at, at + _CTIME)
        crc = crc32_raw(crc, buf, at + _PZXID, at + _PZXID + 8)
        crc = crc32_raw(crc, buf, at + _CTIME, at + _PZXID) ^ _ONES
        out[i] = crc
        total += crc
    return total
