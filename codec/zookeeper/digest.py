"""The digest of a tree: a sum over its nodes, so that any change of one adds and subtracts (`AdHash`).

Source: `DigestCalculator`, `util.AdHash`, `NodeHashMapImpl` of ZooKeeper.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Bytes
from logwright.codec.intrinsics import load_i64le, load_u8
from logwright.codec.kernel import kernel
from logwright.codec.zookeeper.jute import STAT_PERSISTED, Int64s
from logwright.codec.zookeeper.node import FIXED, LENGTH, Int32s

VERSION = 2
"""`DigestCalculator.DIGEST_VERSION`."""
EXCLUDED = "/zookeeper/"
"""Paths that begin so don't count: what is there is the server's own."""
_SYSTEM = np.frombuffer(EXCLUDED.encode(), np.uint8)
_POLYNOMIAL = 0xEDB88320
_ONES = 0xFFFFFFFF
_STAT = STAT_PERSISTED.head_size
_PZXID = STAT_PERSISTED.offset("pzxid")
"""The last field, which comes third here."""
_CTIME = STAT_PERSISTED.offset("ctime")


def _slices() -> npt.NDArray[np.int32]:
    """Row k: what a byte contributes to a CRC-32 when k more bytes follow it. As signed numbers, whose upper bits don't count."""
    row = np.arange(256, dtype=np.int64)
    for _ in range(8):
        row = (row >> 1) ^ (row & 1) * _POLYNOMIAL
    rows = [row]
    for _ in range(15):
        rows.append((rows[-1] >> 8) ^ rows[0][rows[-1] & 0xFF])
    return np.concatenate(rows).astype(np.uint32).view(np.int32)


_SLICES = _slices()


# Arrays are buffers, which the type checker does not know.
_crc32: Callable[[Any, int], int] = zlib.crc32


def _by_zlib(crc: int, buf: Bytes, at: int, end: int) -> int:
    return _crc32(buf[at:end], crc ^ _ONES) ^ _ONES


@kernel("i8, const u1[], i8, i8", python=_by_zlib)
def crc32_raw(crc: int, buf: Bytes, at: int, end: int) -> int:
    """The register of a CRC-32 (all bits inverted before and after) after `buf[at:end]`."""
    if at < 0 or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    while end - at >= 16:
        word = load_i64le(buf, at) ^ crc
        more = load_i64le(buf, at + 8)
        crc = (
            int(_SLICES[3840 + (word & 0xFF)])
            ^ int(_SLICES[3584 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[3328 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[3072 + (word >> 24 & 0xFF)])
            ^ int(_SLICES[2816 + (word >> 32 & 0xFF)])
            ^ int(_SLICES[2560 + (word >> 40 & 0xFF)])
            ^ int(_SLICES[2304 + (word >> 48 & 0xFF)])
            ^ int(_SLICES[2048 + (word >> 56 & 0xFF)])
            ^ int(_SLICES[1792 + (more & 0xFF)])
            ^ int(_SLICES[1536 + (more >> 8 & 0xFF)])
            ^ int(_SLICES[1280 + (more >> 16 & 0xFF)])
            ^ int(_SLICES[1024 + (more >> 24 & 0xFF)])
            ^ int(_SLICES[768 + (more >> 32 & 0xFF)])
            ^ int(_SLICES[512 + (more >> 40 & 0xFF)])
            ^ int(_SLICES[256 + (more >> 48 & 0xFF)])
            ^ int(_SLICES[more >> 56 & 0xFF])
        ) & _ONES
        at += 16
    if end - at >= 8:
        word = load_i64le(buf, at) ^ crc
        crc = (
            int(_SLICES[1792 + (word & 0xFF)])
            ^ int(_SLICES[1536 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[1280 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[1024 + (word >> 24 & 0xFF)])
            ^ int(_SLICES[768 + (word >> 32 & 0xFF)])
            ^ int(_SLICES[512 + (word >> 40 & 0xFF)])
            ^ int(_SLICES[256 + (word >> 48 & 0xFF)])
            ^ int(_SLICES[word >> 56 & 0xFF])
        ) & _ONES
        at += 8
    while at < end:
        crc = (crc >> 8) ^ (int(_SLICES[(crc ^ load_u8(buf, at)) & 0xFF]) & _ONES)
        at += 1
    return crc


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
