"""Deflate streams with zlib's header (RFC 1950) and raw (RFC 1951), as inflate() and deflate() of zlib read and write them."""

from __future__ import annotations

import zlib

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress.payload import BombError, CompressionError, array, reason


def read_zlib(codec: str, data: memoryview, limit: int) -> Bytes:
    return _read(codec, data, limit, zlib.MAX_WBITS)


def read_flushed(codec: str, data: memoryview, limit: int) -> Bytes:
    return _read(codec, data, limit, zlib.MAX_WBITS, ends=False)


def read(codec: str, data: memoryview, limit: int) -> Bytes:
    return _read(codec, data, limit, -zlib.MAX_WBITS)


def _read(codec: str, data: memoryview, limit: int, window: int, *, ends: bool = True) -> Bytes:
    stream = zlib.decompressobj(window)
    try:
        # One byte more than allowed distinguishes a payload that is too large from one that just fits.
        out = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise CompressionError(f"{codec}: {reason(error)}") from None
    if len(out) > limit:
        raise BombError.over(codec, limit)
    if ends and not stream.eof:
        raise CompressionError(f"{codec}: the stream is cut off after {len(data)} bytes, before its end")
    return array(out)


def write_zlib(data: memoryview, level: int) -> bytes:
    return _write(data, level, zlib.MAX_WBITS)


def write_flushed(data: memoryview, level: int) -> bytes:
    stream = zlib.compressobj(level)
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


def write(data: memoryview, level: int) -> bytes:
    return _write(data, level, -zlib.MAX_WBITS)


def _write(data: memoryview, level: int, window: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, window, zlib.DEF_MEM_LEVEL)
    return stream.compress(data) + stream.flush()
