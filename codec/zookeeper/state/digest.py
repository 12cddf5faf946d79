"""The digest of a tree: a sum over its nodes, so that any change of one adds and subtracts (`AdHash`).

Source: `DigestCalculator`, `util.AdHash`, `NodeHashMapImpl` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, LENGTH, Int32s
from logwright.codec.zookeeper.jute import STAT_PERSISTED, Int64s

VERSION = 2
"""`DigestCalculator.DIGEST_VERSION`."""
EXCLUDED = "/zookeeper/"
"""Paths that begin so don't count: what is there is the server's own."""
_SYSTEM = np.frombuffer(EXCLUDED.encode(), np.uint8)
_ONES = 0xFFFFFFFF
_STAT = STAT_PERSISTED.head_size
_PZXID = STAT_PERSISTED.offset("pzxid")
"""The last field, which comes third here."""
_CTIME = STAT_PERSISTED.offset("ctime")


@kernel("const u1[], i8, i8")
def counts(path: Bytes, at: int, end: int) -> int:
    """Whether a node of that path counts in the digest."""
    if end - at < len(_SYSTEM):
        return 1
    for i in range(len(_SYSTEM)):
        if path[at + i] != _SYSTEM[i]:
            return 1
    return 0


@kernel("const u1[], const i8[], const i4[], const i4[], i8[]")
def node_digests(buf: Bytes, starts: Int64s, paths: Int32s, data: Int32s, out: Int64s) -> int:
    """The digest of each record that starts there (0 where it does not count): the checksum of its path, its data and its stat as
    they are stored, but with pzxid before ctime. `paths` and `data` are lengths. Returns the sum, which fits 63 bits."""
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


def signed(total: int) -> int:
    """A sum modulo 2**64, as Java's long."""
    total &= (1 << 64) - 1
    return total - (1 << 64) if total >> 63 else total
