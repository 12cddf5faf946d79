"""Find the single flipped bit that explains a CRC-32C mismatch.

CRCs are linear: the effect of a flipped bit on the checksum depends only on its distance from the end of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from crc32c import crc32c

_POLYNOMIAL = 0x82F63B78
MOST = 1 << 20
"""Search limit in bytes. Beyond it a coincidental match becomes likely, and the search takes seconds."""
UNMASK = "unmask"
"""The attribute of a checksum function that reverts a format's masking of a CRC-32C."""


@cache
def _table() -> list[int]:
    """The CRC of each byte value."""
    out = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        out.append(byte)
    return out


def find_flipped_bit(
    algorithm: Callable[[bytes], int], stored: int, computed: int, size: int
) -> tuple[int, int] | None:
    """Return the byte (of `size` covered bytes) and the bit that explain the mismatch; None if there is none, or for another checksum.

    Byte `size` stands for the stored checksum itself; its bits are those of the number, after masking.
    """
    unmask: Callable[[int], int] | None = getattr(algorithm, UNMASK, None)
    if algorithm is not crc32c and unmask is None:
        return None
    difference = stored ^ computed
    if difference & difference - 1 == 0:
        return size, difference.bit_length() - 1
    change = difference if unmask is None else unmask(stored) ^ unmask(computed)
    table = _table()
    effects = [table[1 << bit] for bit in range(8)]
    for at in range(size - 1, max(size - MOST, 0) - 1, -1):
        if change in effects:
            return at, effects.index(change)
        effects = [table[effect & 0xFF] ^ effect >> 8 for effect in effects]
    return None
