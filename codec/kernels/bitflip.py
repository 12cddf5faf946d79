"""Find the single flipped bit that explains a wrong checksum: a CRC-32C or a CRC-32.

CRCs are linear: the effect of a flipped bit on the checksum depends only on its distance from the end of the data, and is different for every
distance up to 256 MiB (CRC-32C) or 512 MiB (CRC-32). No error of two bits has the effect of one flipped bit, as long as the Hamming distance
of the CRC is 4: for CRC-32C up to 256 MiB, for CRC-32 up to about 11 KiB. Source: Koopman, "32-Bit Cyclic Redundancy Codes for Internet
Applications" (DSN 2002).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.crc32c import crc32c_bytes, slicing
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


def _backward(polynomial: int) -> npt.NDArray[np.int64]:
    """Return by the highest byte of a register: the last byte that went into it, and (256 on) what that byte added."""
    added = slicing(polynomial, 1)
    out = np.empty(512, np.int64)
    out[added >> 24] = np.arange(256)
    out[256 + (added >> 24)] = added
    return out


_BACKWARD_CRC32C, _BACKWARD_CRC32 = _backward(CRC32C), _backward(CRC32)


@kernel("i8, i8, const i8[]")
def _distance(change: int, size: int, backward: npt.NDArray[np.int64]) -> int:
    """Return how many bytes behind the flipped bit are, times 8, plus the bit; -1 if it is not in the `size` bytes."""
    for behind in range(size):
        highest = change >> 24
        change = (change ^ backward[256 + highest]) << 8 | backward[highest]
        if change < 256 and change & change - 1 == 0 and change > 0:
            bit = 0
            while change > 1:
                change >>= 1
                bit += 1
            return 8 * behind + bit
    return -1


def flipped_bit(change: int, size: int, polynomial: int) -> tuple[int, int] | None:
    """Return the only bit of `size` bytes, as (byte, bit), whose flip changes their reflected CRC by `change`; None if no single flip does.

    Takes time linear in `size`.
    """
    backward = _BACKWARD_CRC32C if polynomial == CRC32C else _BACKWARD_CRC32
    distance = int(_distance(change, size, backward))
    return None if distance < 0 else (size - 1 - distance // 8, distance % 8)


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
