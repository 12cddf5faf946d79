"""Bodies that producers compressed. `sysFlag` has the compression type. Source: `CompressionType`, `ZlibCompressor` of RocketMQ."""

from __future__ import annotations

import zlib

from logwright.codec.kernels.compress import BombError, CompressionError
from logwright.codec.kernels.compress import compress as compress_as
from logwright.codec.kernels.compress import decompress as decompress_as
from logwright.codec.rocketmq.formats.commitlog.layout import COMPRESSION_SHIFT

_NAMES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_LEVEL = 5
"""`rocketmq.message.compressLevel`."""


def _name(sys_flag: int) -> str:
    kind = sys_flag >> COMPRESSION_SHIFT & 7
    if kind not in _NAMES:
        raise CompressionError(f"unknown compression type {kind}")
    return _NAMES[kind]


def decompress(sys_flag: int, stored: bytes, limit: int) -> bytes:
    """Decompress a body to at most `limit` bytes. Raises `CompressionError`."""
    name = _name(sys_flag)
    if name != "zlib":
        return decompress_as(name, stored, limit=limit).tobytes()
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(stored, limit + 1)
    except zlib.error as error:
        raise CompressionError(str(error)) from None
    if len(plain) > limit:
        raise BombError.over(name, limit)
    if not reader.eof:
        raise CompressionError("the zlib stream is truncated")
    return plain


def compress(sys_flag: int, body: bytes) -> bytes:
    """Compress a body with the type in `sysFlag`. Raises `CompressionError`."""
    name = _name(sys_flag)
    if name == "zlib":
        return zlib.compress(body, _LEVEL)
    return compress_as(name, body, level=_LEVEL if name == "zstd" else None)
