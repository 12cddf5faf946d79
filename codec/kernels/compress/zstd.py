"""Zstandard (RFC 8878): any number of frames, skippable ones included."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress.payload import BombError, CompressionError, array, reason
from logwright.codec.kernels.intrinsics import load_u8, load_u16le, load_u32le
from logwright.codec.kernels.kernel import kernel

if TYPE_CHECKING:
    import zstandard

_MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_BLOCK = 1 << 17
SINGLE_SEGMENT = 0x20
"""The bit of the frame header descriptor that is set if the frame has no window descriptor."""
_WHOLE, _CUT, _NO_MAGIC, _BAD_BLOCK, _BAD_HEADER = 0, 1, 2, 3, 4
_WRONG = {
    _CUT: "the frame that starts here is cut off",
    _NO_MAGIC: "neither a frame (28 b5 2f fd) nor a skippable one starts here",
    _BAD_BLOCK: "a block of the frame that starts here has the reserved type",
    _BAD_HEADER: "the header of the frame that starts here has its reserved bit set",
}


@kernel("const u1[], i8, i8")
def frame(data: Bytes, at: int, length: int) -> tuple[int, int, int, bool]:
    """Walk the block headers of the frame at `at` in `data[:length]` (RFC 8878, 3.1.1).

    Returns (end, maximum decompressed size, error code, whether a block is larger than the format allows). The size of a skippable frame
    is -1.
    """
    if length - at < 4:
        return at, 0, _CUT, False
    magic = load_u32le(data, at)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        if length - at < 8 or load_u32le(data, at + 4) > length - at - 8:
            return at, 0, _CUT, False
        return at + 8 + load_u32le(data, at + 4), -1, _WHOLE, False
    if magic != _MAGIC:
        return at, 0, _NO_MAGIC, False
    at += 4
    if at >= length:
        return at, 0, _CUT, False
    descriptor = load_u8(data, at)
    if descriptor & 0x08:
        return at, 0, _BAD_HEADER, False
    single = (descriptor & SINGLE_SEGMENT) // SINGLE_SEGMENT
    window = _BLOCK
    if single == 0 and at + 1 < length:
        value = load_u8(data, at + 1)
        window = 1 << 10 + (value >> 3)
        window = min(window + (window >> 3) * (value & 7), _BLOCK)
    dictionary = descriptor & 3
    size = descriptor >> 6
    at += 1 + (1 - single) + (4 if dictionary == 3 else dictionary) + (single if size == 0 else 1 << size)
    most = widest = 0
    last = 0
    while last == 0:
        if length - at < 3:
            return at, 0, _CUT, False
        header = load_u16le(data, at) | load_u8(data, at + 2) << 16
        at += 3
        last = header & 1
        kind = header >> 1 & 3
        size = header >> 3
        if kind == 3:
            return at, 0, _BAD_BLOCK, False
        most += _BLOCK if kind == 2 else size
        widest = max(widest, size)
        at += 1 if kind == 1 else size
        if at > length:
            return at, 0, _CUT, False
    if descriptor & 0x04:
        at += 4
        if at > length:
            return at, 0, _CUT, False
    return at, most, _WHOLE, widest > window


class _Local(threading.local):
    """Reused compressors and decompressors, one set per thread."""

    def __init__(self) -> None:
        import zstandard

        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


@functools.cache
def _objects() -> _Local:
    return _Local()


def read(codec: str, data: memoryview, limit: int) -> Bytes:
    import zstandard

    buffer = array(data)
    parts: list[bytes] = []
    at = total = 0
    while at < len(data):
        end, most, wrong, _ = frame(buffer, at, len(buffer))
        if wrong:
            raise CompressionError(f"zstd: at byte {at} of {len(data)}: {_WRONG[wrong]}")
        allowed = limit - total
        stored = data[at:end]
        if most >= 0:
            try:
                # The library trusts the declared size, so it is checked first. -1 is "not declared".
                declared = zstandard.frame_content_size(stored)
                if declared > most:
                    raise CompressionError(
                        f"zstd: the frame at byte {at} declares {declared} bytes, and its blocks make {most} at most"
                    )
                if declared > allowed:
                    raise BombError.over(codec, limit)
                part = _objects().decompressor.decompress(stored, max_output_size=min(most, allowed) + 1)
            except zstandard.ZstdError as error:
                if most > allowed and _makes_more(stored, allowed):
                    raise BombError.over(codec, limit) from None
                raise CompressionError(f"zstd: the frame at byte {at} is damaged: {reason(error)}") from None
            total += len(part)
            if total > limit:
                raise BombError.over(codec, limit)
            parts.append(part)
        at = end
    return array(parts[0] if len(parts) == 1 else b"".join(parts))


def _makes_more(stored: memoryview, allowed: int) -> bool:
    """Return whether a frame that did not fit decompresses to more than allowed, and so is too large, not damaged."""
    import zstandard

    try:
        with _objects().decompressor.stream_reader(stored) as reader:
            return len(reader.read(allowed + 1)) > allowed
    except zstandard.ZstdError:
        return False


def write(data: memoryview, level: int) -> bytes:
    import zstandard

    compressors = _objects().compressors
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(
            level=level, write_content_size=False, write_checksum=False
        )
    stream = compressors[level].compressobj()
    # Like zstd-jni on close: the data as a block that is not the last, then an empty last block.
    return b"".join((stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()))


def write_sized(data: memoryview, level: int) -> bytes:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=False)
    return compressor.compress(data)
