"""Adler-32, the checksum of transactions and the seal of snapshots (`java.util.zip.Adler32`, initial value 1)."""

from __future__ import annotations

import zlib

from logwright.codec.base import Bytes
from logwright.codec.intrinsics import load_u8
from logwright.codec.kernel import kernel

MOD = 65521
"""The largest prime below 2**16 (`BASE` in RFC 1950)."""
_STEP = 1 << 20
"""So many bytes may be summed before the sums are reduced: they fit 64 bits by far."""


def _by_zlib(buf: Bytes, at: int, end: int) -> int:
    return zlib.adler32(buf[at:end].data)


@kernel("const u1[], i8, i8", python=_by_zlib)
def adler32(buf: Bytes, at: int, end: int) -> int:
    """The checksum of `buf[at:end]`."""
    a = 1
    b = 0
    while at < end:
        stop = min(at + _STEP, end)
        n = stop - at
        total = 0
        weighted = 0
        for i in range(n):
            byte = load_u8(buf, at + i)
            total += byte
            weighted += (n - i) * byte
        b = (b + n * a + weighted) % MOD
        a = (a + total) % MOD
        at = stop
    return b << 16 | a


@kernel("i8, i8, i8")
def adler32_combine(one: int, two: int, length: int) -> int:
    """The checksum of two pieces one after the other, of which the second has so many bytes."""
    a1 = one & 0xFFFF
    a = (a1 + (two & 0xFFFF) + MOD - 1) % MOD
    b = ((one >> 16) + (two >> 16) + (length % MOD) * ((a1 + MOD - 1) % MOD)) % MOD
    return b << 16 | a
