"""LZ4 frames, read as by Kafka's `Lz4BlockInputStream`, and their checksum xxHash32."""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress.payload import BombError, CompressionError, Output, array
from logwright.codec.kernels.intrinsics import load_u8, load_u32le
from logwright.codec.kernels.kernel import kernel

# Arrays are buffers, which the type checker does not know before Python 3.12.
_into: Callable[..., int] = cramjam.lz4.decompress_block_into

MAGIC = b"\x04\x22\x4d\x18"
_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_STORED = 1 << 31
_WORD = struct.Struct("<I")
# The largest number of bytes by which one byte can extend a match.
_RATIO = 255
# The bits of FLG, the first byte of the frame descriptor.
_FLG_VERSION, _FLG_INDEPENDENT, _FLG_BLOCK_CHECKSUM = 0xC0, 0x20, 0x10
_FLG_SIZE, _FLG_CHECKSUM, _FLG_RESERVED = 0x08, 0x04, 0x03
# Written frames: version 1, independent blocks of 64 KiB, no options.
_DESCRIPTOR = b"\x60\x40"
_BLOCK = 1 << 16
_FAST_LEVEL, _HIGHEST = 9, 12

_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = _PRIMES
_LOW = 0xFFFFFFFF


@kernel("i8, i8")
def _rotated(value: int, by: int) -> int:
    """Rotate 32 bits left."""
    return (value << by | value >> 32 - by) & _LOW


@kernel("i8, i8")
def _round(lane: int, word: int) -> int:
    """Update a lane of xxHash32 with four bytes."""
    return _product(_rotated((lane + _product(word, _PRIME_2)) & _LOW, 13), _PRIME_1)


@kernel("i8, i8")
def _product(a: int, b: int) -> int:
    """Return the low 32 bits of the product of two 32-bit numbers. Intermediate values fit 63 bits."""
    return (a * (b & 0xFFFF) + ((a * (b >> 16) & 0xFFFF) << 16)) & _LOW


@kernel("const u1[], i8, i8")
def xxhash32(buf: Bytes, at: int, end: int) -> int:
    """Return xxHash32 of `buf[at:end]` with seed 0, the checksum of the LZ4 frame format."""
    length = end - at
    if length >= 16:
        first, second = (_PRIME_1 + _PRIME_2) & _LOW, _PRIME_2
        third, fourth = 0, -_PRIME_1 & _LOW
        while end - at >= 16:
            first = _round(first, load_u32le(buf, at))
            second = _round(second, load_u32le(buf, at + 4))
            third = _round(third, load_u32le(buf, at + 8))
            fourth = _round(fourth, load_u32le(buf, at + 12))
            at += 16
        value = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    else:
        value = _PRIME_5
    value = (value + length) & _LOW
    while end - at >= 4:
        value = (value + _product(load_u32le(buf, at), _PRIME_3)) & _LOW
        value = _product(_rotated(value, 17), _PRIME_4)
        at += 4
    while at < end:
        value = (value + load_u8(buf, at) * _PRIME_5) & _LOW
        value = _product(_rotated(value, 11), _PRIME_1)
        at += 1
    value = _product(value ^ value >> 15, _PRIME_2)
    value = _product(value ^ value >> 13, _PRIME_3)
    return value ^ value >> 16


@functools.lru_cache(maxsize=256)
def _header_checksum(descriptor: bytes) -> int:
    return xxhash32(array(descriptor), 0, len(descriptor)) >> 8 & 0xFF


def read(codec: str, data: memoryview, limit: int) -> Bytes:
    # A typical frame is one block much smaller than its maximum: it is decompressed to a reused buffer and copied, because allocating
    # memory of varying sizes costs more than the copy.
    scratch = _scratch()
    out = Output(scratch)
    append(codec, data, out, limit)
    return out.array.copy() if out.end <= len(scratch) else out.array


def append(codec: str, data: memoryview, out: Output, limit: int) -> None:
    """Append the decompressed frame."""
    at, block_size, flags = _header(data, verify=codec != "lz4-magic0")
    blocks: list[tuple[int, int, bool]] = []
    most = 0
    checksum = 4 if flags & _FLG_BLOCK_CHECKSUM else 0
    while True:
        if at + 4 > len(data):
            raise CompressionError(f"lz4: the frame is cut off after {len(data)} bytes, before its end mark")
        (length,) = _WORD.unpack_from(data, at)
        at += 4
        if length == 0:
            break
        stored = length >= _STORED
        length &= ~_STORED
        if length > block_size:
            raise CompressionError(
                f"lz4: a block of {length} bytes at byte {at}, in a frame of blocks of {block_size} at most"
            )
        if at + length + checksum > len(data):
            raise CompressionError(
                f"lz4: the block at byte {at} takes {length + checksum} bytes, and {len(data) - at} are left"
            )
        blocks.append((at, length, stored))
        most += length if stored else min(block_size, _RATIO * length)
        at += length + checksum
    if flags & _FLG_CHECKSUM and at + 4 > len(data):
        raise CompressionError(f"lz4: the frame is cut off after {len(data)} bytes, in its content checksum")
    # Room for one block beyond the limit is enough to detect a bomb.
    out.room(min(most, limit + block_size))
    stop = out.end + limit
    for at, length, stored in blocks:
        block = data[at : at + length]
        if checksum:
            _check_block(data, at, length)
        if stored:
            out.put(block)
        else:
            out.end += _block(block, out.room(min(block_size, _RATIO * length)), at)
        if out.end > stop:
            raise BombError.over(codec, limit)


def read_raw(codec: str, data: memoryview, limit: int) -> Bytes:
    out = np.empty(min(limit, _RATIO * len(data)), np.uint8)
    return out[: _block(data, memoryview(out), 0)]  # type: ignore[arg-type]


_SCRATCH = 256 << 10
_own = threading.local()


def _scratch() -> Bytes:
    """Return this thread's reusable buffer."""
    scratch: Bytes | None = getattr(_own, "scratch", None)
    if scratch is None:
        scratch = _own.scratch = np.empty(_SCRATCH, np.uint8)
    return scratch


def _header(data: memoryview, *, verify: bool) -> tuple[int, int, int]:
    """Return the start of the first block, the maximum block size, and FLG."""
    if len(data) < 7:
        raise CompressionError(f"lz4: a frame header has 7 bytes at least, and there are {len(data)}")
    if data[:4] != MAGIC:
        raise CompressionError(f"lz4: the frame starts with {data[:4].hex(' ')}, expected {MAGIC.hex(' ')}")
    flags, bd = data[4], data[5]
    if flags & _FLG_VERSION != 0x40:
        raise CompressionError(f"lz4: frame version {flags >> 6}; 1 is known")
    if flags & _FLG_RESERVED or bd & 0x8F:
        raise CompressionError(f"lz4: reserved bits are set in the frame descriptor {data[4:6].hex(' ')}")
    if not flags & _FLG_INDEPENDENT:
        raise CompressionError("lz4: the frame's blocks depend on each other, which Kafka does not read")
    if bd >> 4 not in _BLOCK_SIZES:
        raise CompressionError(f"lz4: block size code {bd >> 4}; 4 to 7 are known")
    end = 14 if flags & _FLG_SIZE else 6
    if len(data) <= end:
        raise CompressionError(f"lz4: the frame header has {end + 1} bytes, and there are {len(data)}")
    if verify:
        expected = _header_checksum(bytes(data[4:end]))
        if data[end] != expected:
            raise CompressionError(
                f"lz4: the frame header's checksum is {data[end]:#04x}, and {expected:#04x} was expected"
            )
    return end + 1, _BLOCK_SIZES[bd >> 4], flags


def _check_block(data: memoryview, at: int, length: int) -> None:
    (stored,) = struct.unpack_from("<I", data, at + length)
    expected = xxhash32(array(data[at : at + length]), 0, length)
    if stored != expected:
        raise CompressionError(
            f"lz4: the checksum of the block at byte {at} is {stored:#010x}, and {expected:#010x} was expected"
        )


def _block(block: memoryview, room: memoryview, at: int) -> int:
    try:
        return _into(block, room, output_len=len(room))
    except cramjam.DecompressionError:
        # The library gives no details.
        raise CompressionError(
            f"lz4: the block of {len(block)} bytes at byte {at} is damaged, or makes more than {len(room)} bytes"
        ) from None


def write(data: memoryview, level: int) -> bytes:
    return _frame(data, level, _header_checksum(_DESCRIPTOR))


def write_magic0(data: memoryview, level: int) -> bytes:
    return _frame(data, level, _header_checksum(MAGIC + _DESCRIPTOR))


def write_raw(data: memoryview, level: int) -> bytes:
    # Imported when written: reading needs none of it.
    import lz4.block

    settings: dict[str, Any] = {"mode": "default"}
    if level != _FAST_LEVEL:
        settings = {"mode": "high_compression", "compression": min(level, _HIGHEST)}
    block: bytes = lz4.block.compress(data, store_size=False, **settings)
    return block


def _frame(data: memoryview, level: int, header_checksum: int) -> bytes:
    parts = [MAGIC, _DESCRIPTOR, bytes([header_checksum])]
    for at in range(0, len(data), _BLOCK):
        raw = data[at : at + _BLOCK]
        block = write_raw(raw, level)
        if len(block) < len(raw):
            parts += struct.pack("<I", len(block)), block
        else:
            parts += struct.pack("<I", len(raw) | _STORED), bytes(raw)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)
