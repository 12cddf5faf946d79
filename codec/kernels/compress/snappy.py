"""Snappy: the stream of snappy-java (xerial), and single raw blocks. See `logwright.codec.kernels.snappy_blocks` for many small blocks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cramjam
import numpy as np
import snappy

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress.payload import BombError, CompressionError, Output

# python-snappy cannot decompress into an existing array, which is 1.2 times as fast (measured).
# Arrays are buffers, which the type checker does not know before Python 3.12.
_into: Callable[[memoryview, Any], int] = cramjam.snappy.decompress_raw_into

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + struct.pack(">ii", 1, 1)
_BLOCK = 32768
# Concatenated streams have a header in place of a chunk's length.
_AGAIN = int.from_bytes(MAGIC[:4], "big", signed=True)
# An element of a raw block decompresses at most 3 bytes to 64.
_RATIO = 22


def read(codec: str, data: memoryview, limit: int) -> Bytes:
    out = Output(np.empty(0, np.uint8))
    append(codec, data, out, limit)
    return out.array


def append(codec: str, data: memoryview, out: Output, limit: int) -> None:
    """Append the decompressed stream."""
    if len(data) < len(HEADER) or data[: len(MAGIC)] != MAGIC:
        out.put(read_raw(codec, data, limit))
        return
    chunks: list[tuple[int, int, int]] = []
    at = len(HEADER)
    total = 0
    # Fewer than four remaining bytes end the stream.
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if length == _AGAIN:
            if at + len(HEADER) > len(data):
                raise CompressionError(
                    f"snappy: a second header at byte {at} is cut off after {len(data) - at} bytes"
                )
            if data[at : at + len(MAGIC)] != MAGIC:
                break
            (version,) = struct.unpack_from(">i", data, at + len(MAGIC))
            if version < 1:
                raise CompressionError(
                    f"snappy: the header at byte {at} has version {version}; 1 and above are known"
                )
            at += len(HEADER)
            continue
        at += 4
        if not 0 <= length <= len(data) - at:
            raise CompressionError(
                f"snappy: a chunk of {length} bytes at byte {at}, where {len(data) - at} are left"
            )
        size = _length(data[at : at + length], at)
        total += size
        if total > limit:
            raise BombError.over(codec, limit)
        chunks.append((at, length, size))
        at += length
    room = out.room(total)
    done = 0
    for at, length, size in chunks:
        _block(data[at : at + length], room[done : done + size], at)
        done += size
    out.end += total


def read_raw(codec: str, data: memoryview, limit: int) -> Bytes:
    size = _length(data, 0)
    if size > limit:
        raise BombError.over(codec, limit)
    out = np.empty(size, np.uint8)
    _block(data, out, 0)
    return out


def _length(block: memoryview, at: int) -> int:
    """Return the declared decompressed length of a raw block. Raises `CompressionError` if it is impossible for the block's size."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if size > _RATIO * len(block):
                raise CompressionError(
                    f"snappy: the block at byte {at} claims to make {size} bytes from {len(block)}"
                )
            return size
    raise CompressionError(
        f"snappy: the block of {len(block)} bytes at byte {at} does not start with a length"
    )


def _block(block: memoryview, out: Any, at: int) -> None:
    try:
        size = _into(block, out) if len(out) else _empty(block)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: the block at byte {at} is damaged: {_reason(error)}") from None
    if size != len(out):
        raise CompressionError(f"snappy: the block at byte {at} makes {size} bytes, and declares {len(out)}")


def _empty(block: memoryview) -> int:
    """Decompress a block that declares zero bytes."""
    return len(cramjam.snappy.decompress_raw(block))


def _reason(error: Exception) -> str:
    return str(error).removeprefix("snappy: ").removeprefix("corrupt input ").strip("()")


def write(data: memoryview, level: int) -> bytes:
    parts = [HEADER]
    for at in range(0, len(data), _BLOCK):
        block = snappy.compress(data[at : at + _BLOCK])
        parts += struct.pack(">i", len(block)), block
    return b"".join(parts)


def write_pieces(pieces: Iterable[Any]) -> Iterator[bytes]:
    yield HEADER
    held = b""
    for piece in pieces:
        held += bytes(piece)
        full = len(held) - len(held) % _BLOCK
        yield write(memoryview(held)[:full], 0)[len(HEADER) :]
        held = held[full:]
    yield write(memoryview(held), 0)[len(HEADER) :]


def write_raw(data: memoryview, level: int) -> bytes:
    return bytes(snappy.compress(data))
