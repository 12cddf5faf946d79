"""Find a flipped bit by a wrong Adler-32, if there is only one.

When one byte changes, the lower of the two sums changes by the same amount, and the upper one by that amount times the number of bytes from
there to the end.
"""

from __future__ import annotations

from logwright.codec.kernels.adler32 import MOD, adler32
from logwright.codec.window import Bytes

CHECKSUM = -1
"""The position that stands for a bit of the checksum itself."""


def find_flipped_bit(data: Bytes, stored: int, computed: int | None = None) -> tuple[int, int] | None:
    """Return the position and the original value of the byte of `data` in which one flipped bit explains the stored checksum (64 bits),
    or (`CHECKSUM`, correct checksum) for a bit of the checksum. None for other damage, or if more than one bit would explain it."""
    if computed is None:
        computed = adler32(data, 0, len(data))
    change = (stored ^ computed) & (1 << 64) - 1
    flips = [(CHECKSUM, computed)] if change and not change & change - 1 else []
    if 0 <= stored <= 0xFFFFFFFF:
        flips += _in_data(data, stored, computed)
    return flips[0] if len(flips) == 1 else None


def _in_data(data: Bytes, stored: int, computed: int) -> list[tuple[int, int]]:
    by = ((stored & 0xFFFF) - (computed & 0xFFFF)) % MOD
    by -= MOD if by > MOD // 2 else 0
    if abs(by) & abs(by) - 1 or not 0 < abs(by) < 256:
        return []
    # The number of bytes from there to the end, modulo the prime.
    behind = ((stored >> 16) - (computed >> 16)) * pow(by, -1, MOD) % MOD or MOD
    places = range(len(data) - behind, -1, -MOD)
    return [
        (at, before)
        for at in places
        if 0 <= (before := int(data[at]) + by) < 256 and before ^ int(data[at]) == abs(by)
    ]
