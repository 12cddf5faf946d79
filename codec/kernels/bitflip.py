"""One bit that is turned over: a CRC-32C that is wrong tells which, where it is no more than one.

The checksum is linear: what a turned bit changes in it depends on how far from the end the bit is, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from crc32c import crc32c

_POLYNOMIAL = 0x82F63B78
MOST = 1 << 20
"""So many bytes are looked through. Behind more, a bit that fits by chance is not that rare, and it takes seconds."""
UNMASK = "unmask"
"""The attribute of a checksum function that takes what a format does to a CRC-32C away again."""


@cache
def _table() -> list[int]:
    """What a byte becomes by the eight steps of the register."""
    out = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        out.append(byte)
    return out


def find_flipped_bit(
    algorithm: Callable[[bytes], int], stored: int, computed: int, size: int
) -> tuple[int, int] | None:
    """The byte, of `size` that are covered, and the bit that would make the checksum what is stored; None where there is none, or the
    checksum is no CRC-32C. Byte `size` is the checksum itself: bits of what is stored, before it is masked, as a number."""
    unmask: Callable[[int], int] | None = getattr(algorithm, UNMASK, None)
    if algorithm is not crc32c and unmask is None:
        return None
    if unmask is None:
        change = stored ^ computed
    else:
        change = unmask(stored) ^ unmask(computed)
    own = stored ^ computed
    if own & own - 1 == 0:
        return size, own.bit_length() - 1
    table = _table()
    effects = [table[1 << bit] for bit in range(8)]
    for at in range(size - 1, max(size - MOST, 0) - 1, -1):
        if change in effects:
            return at, effects.index(change)
        effects = [table[one & 0xFF] ^ one >> 8 for one in effects]
    return None
