"""Find a flipped bit by a wrong Adler-32, if there is only one.

When one byte changes, the lower of the two sums changes by the same amount, and the upper one by that amount times the number of bytes from
there to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    flips += flips_in_data(lambda at: int(data[at]), len(data), stored, computed)
    return flips[0] if len(flips) == 1 else None


def flips_in_data(
    byte: Callable[[int], int], size: int, stored: int, computed: int
) -> Iterator[tuple[int, int]]:
    """Yield each byte of `size` covered ones, and its original value, in which one flipped bit explains the stored checksum. `byte`
    returns a byte."""
    by = ((stored & 0xFFFF) - (computed & 0xFFFF)) % MOD
    by -= MOD if by > MOD // 2 else 0
    if stored >> 32 or abs(by) & abs(by) - 1 or not 0 < abs(by) < 256:
        return
    # The number of bytes from there to the end, modulo the prime.
    behind = ((stored >> 16) - (computed >> 16)) * pow(by, -1, MOD) % MOD or MOD
    for at in range(size - behind, -1, -MOD):
        value = byte(at)
        before = value + by
        if 0 <= before < 256 and before ^ value == abs(by):
            yield at, before
