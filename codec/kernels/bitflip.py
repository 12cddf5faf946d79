"""Find the single flipped bit that explains a wrong checksum: a CRC-32C or a CRC-32.

CRCs are linear: the effect of a flipped bit on the checksum depends only on its distance from the end of the data, and is different for every
distance up to 256 MiB (CRC-32C) or 512 MiB (CRC-32). No error of two bits has the effect of one flipped bit, as long as the Hamming distance
of the CRC is 4: for CRC-32C up to 256 MiB, for CRC-32 up to about 11 KiB. Source: Koopman, "32-Bit Cyclic Redundancy Codes for Internet
Applications" (DSN 2002).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.crc32c import crc32c_bytes, shifted, shifting, slicing
from logwright.codec.kernels.kernel import kernel

CRC32C, CRC32 = 0x82F63B78, 0xEDB88320
"""The polynomials, reflected."""
LONGEST_ALONE = {CRC32C: 16 << 10, CRC32: 91_607 // 8 - 4}
"""Bytes up to which a CRC is proof enough of a flipped bit. A CRC-32 of more takes two wrong bits for one. Of 100,000 ranges of 16 KiB with
three wrong bits, six have the CRC-32C of a range with one."""
UNMASK = "unmask"
"""The attribute of a checksum function that reverts a format's masking of a CRC-32C."""
KNOWN = "known"
"""The attribute of a checksum function that has only some bits of a CRC-32: these bits."""


class Flip(NamedTuple):
    """A bit of a byte that may be flipped.

    `alone`: its checksum proves it. Otherwise the frame must also be one that cannot be decoded with the bit as it is stored.
    """

    place: int
    bit: int
    alone: bool = True


_BLOCK = 512
"""Bytes whose bits are compared with a change at once."""
_ORDER = {CRC32C: (1 << 31) - 1, CRC32: (1 << 32) - 1}
"""Appending this many zero bytes changes no raw checksum. So that number less n undoes appending n of them."""


class _Changes(NamedTuple):
    """The changes of a CRC by each bit of the last `_BLOCK` bytes, in order, and the number of each: bytes behind it, times 8, plus the bit.
    `back` is the table that undoes appending `_BLOCK` zero bytes."""

    sorted: Int64s
    numbers: Int64s
    back: Int64s


@cache
def _changes(polynomial: int) -> _Changes:
    of_byte = slicing(polynomial, 1)
    rows = [of_byte[1 << np.arange(8)]]
    while len(rows) < _BLOCK:
        rows.append(rows[-1] >> 8 ^ of_byte[rows[-1] & 0xFF])
    changes = np.concatenate(rows)
    numbers = np.argsort(changes)
    return _Changes(changes[numbers], numbers, shifting(_ORDER[polynomial] - _BLOCK, polynomial))


@kernel("i8, i8, const i8[], const i8[]")
def _block_of(change: int, count: int, changes: Int64s, back: Int64s) -> tuple[int, int]:
    """Return how many of `count` blocks are behind the flipped bit, and the place of what it changes in its block among the sorted
    `changes`; -1 if no single bit changes this."""
    for block in range(count):
        low, high = 0, len(changes)
        while high - low > 1:
            middle = (low + high) // 2
            if changes[middle] <= change:
                low = middle
            else:
                high = middle
        if changes[low] == change:
            return block, low
        change = shifted(change, back)
    return -1, -1


def flipped_bit(change: int, size: int, polynomial: int) -> tuple[int, int] | None:
    """Return the only bit of `size` bytes, as (byte, bit), whose flip changes their reflected CRC by `change`; None if no single flip does.

    Takes time linear in `size`.
    """
    known = _changes(polynomial)
    if size <= _BLOCK:
        block, place = 0, int(np.searchsorted(known.sorted, change))
        if place == len(known.sorted) or known.sorted[place] != change:
            return None
    else:
        block, place = map(int, _block_of(change, -(-size // _BLOCK), known.sorted, known.back))
        if block < 0:
            return None
    behind, bit = divmod(int(known.numbers[place]), 8)
    behind += block * _BLOCK
    return (size - 1 - behind, bit) if behind < size else None


def find_flipped_bit(
    algorithm: Callable[[bytes], int], stored: int, computed: int, size: int
) -> tuple[int, int] | None:
    """Return the byte (of `size` covered bytes) and the bit that explain the mismatch; None if no single flip does, or for another checksum.

    Byte `size` stands for the stored checksum itself; its bits are those of the number, after masking.
    """
    unmask: Callable[[int], int] | None = getattr(algorithm, UNMASK, None)
    known: int | None = getattr(algorithm, KNOWN, None)
    polynomial = CRC32 if algorithm is zlib.crc32 or known is not None else CRC32C
    if algorithm not in (crc32c_bytes, zlib.crc32) and unmask is None and known is None:
        return None
    difference = stored ^ computed
    if difference & difference - 1 == 0:
        return size, difference.bit_length() - 1
    change = difference if unmask is None else unmask(stored) ^ unmask(computed)
    flips = flips_by_crc(0, size, change, polynomial, 0xFFFFFFFF if known is None else known)
    return next((flip[:2] for flip in flips), None)


def flips_by_crc(
    start: int, stop: int, change: int, polynomial: int, mask: int = 0xFFFFFFFF
) -> Iterator[Flip]:
    """Yield the bits of the bytes `[start, stop)` that change their CRC by `change`. `mask`: the known bits of `change`."""
    alone = stop - start <= LONGEST_ALONE[polynomial]
    for unknown in {0, ~mask & 0xFFFFFFFF}:
        bit = flipped_bit(change & mask ^ unknown, stop - start, polynomial)
        if bit is not None:
            yield Flip(start + bit[0], bit[1], alone)


def flips_of_stored(at: int, width: int, order: str, difference: int) -> Iterator[Flip]:
    """Yield the only bit in which a number of `width` bytes at `at` differs from the right one."""
    difference &= (1 << 8 * width) - 1
    if difference and difference & difference - 1 == 0:
        byte, bit = divmod(difference.bit_length() - 1, 8)
        yield Flip(at + (byte if order == "<" else width - 1 - byte), bit)
