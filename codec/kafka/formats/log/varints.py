"""The kernels that read the variable-length integers of records, and tell whether a shorter form exists."""

from __future__ import annotations

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.intrinsics import load_u8
from logwright.codec.kernels.kernel import kernel


@kernel("const u1[], i8, i8")
def varint(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read a zig-zag varint of 32 bits: (value, next, odd). `next` is -1 if it is bad; `odd` is 1 if a shorter form exists."""
    number = 0
    shift = 0
    for i in range(at, min(end, at + 5)):
        byte = load_u8(buf, i)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            odd = 1 if (byte == 0 and shift > 0) or (shift == 28 and byte > 0x0F) else 0
            number &= 0xFFFFFFFF
            half = number >> 1
            return (half if number & 1 == 0 else -half - 1), i + 1, odd
        shift += 7
    return 0, -1, 0


@kernel("const u1[], i8, i8")
def varlong(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read a zig-zag varint of 64 bits: (value, next, odd), as `varint`. It is read in two parts, so that no sum overflows."""
    low = 0
    high = 0
    shift = 0
    for i in range(at, min(end, at + 10)):
        byte = load_u8(buf, i)
        if shift < 56:
            low |= (byte & 0x7F) << shift
        else:
            high |= (byte & 0x7F) << (shift - 56)
        if byte < 0x80:
            odd = 1 if (byte == 0 and shift > 0) or (shift == 63 and byte > 1) else 0
            half = (low >> 1) | ((high & 0xFF) << 55)
            return (half if low & 1 == 0 else -half - 1), i + 1, odd
        shift += 7
    return 0, -1, 0
