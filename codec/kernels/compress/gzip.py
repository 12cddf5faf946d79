"""Gzip (RFC 1952), as java.util.zip reads and writes it."""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress.payload import BombError, CompressionError, array, reason

_MAGIC = b"\x1f\x8b\x08"
PLAIN = _MAGIC + b"\x00"
"""The header of a member without optional fields starts with it."""
HEADER, TRAILER = 10, 8
_HEADER_CRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
# zlib copies the bytes after a member, so the first piece is small. Otherwise many members take quadratic time.
_FIRST_PIECE, _PIECE = 1 << 14, 1 << 20


@functools.cache
def _isal() -> Any:
    """Return the module that decompresses twice as fast as zlib (measured); None without the optional package isal."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    return isal_zlib


def read(codec: str, data: memoryview, limit: int) -> Bytes:
    member = _single_member(data, limit)
    return _members(data, limit) if member is None else array(member)


def _single_member(data: memoryview, limit: int) -> bytes | None:
    """Return the content of an undamaged member with a plain header and nothing after it. None if it is another one, or has to be read
    by zlib: that decides what is damaged."""
    isal = _isal()
    if isal is None or data[: len(PLAIN)] != PLAIN:
        return None
    member = isal.decompressobj(zlib.MAX_WBITS | 16)
    try:
        content: bytes = member.decompress(data, limit + 1)
    except isal.error:
        return None
    return content if member.eof and not member.unused_data and len(content) <= limit else None


def _members(data: memoryview, limit: int) -> Bytes:
    parts: list[bytes] = []
    at = total = 0
    while at == 0 or _member_follows(data, at):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        piece = _FIRST_PIECE
        while not member.eof:
            if at >= len(data):
                raise CompressionError(
                    f"gzip: the stream is cut off after {len(data)} bytes, before its end and checksum"
                )
            fed = data[at : at + piece]
            try:
                # One byte more than allowed distinguishes a payload that is too large from one that just fits.
                part = member.decompress(fed, limit - total + 1)
            except zlib.error as error:
                raise CompressionError(f"gzip: {reason(error)}, at or before byte {at + len(fed)}") from None
            total += len(part)
            if total > limit:
                raise BombError.over("gzip", limit)
            parts.append(part)
            at += len(fed) - len(member.unused_data)
            piece = _PIECE
    return array(parts[0] if len(parts) == 1 else b"".join(parts))


def _member_follows(data: memoryview, at: int) -> bool:
    """Return whether a complete member header starts at `at`. Java ignores anything else."""
    if at + HEADER + TRAILER >= len(data) or data[at : at + 3] != _MAGIC:
        return False
    flags = data[at + 3]
    if flags & _RESERVED:
        return False
    end = at + HEADER
    if flags & _EXTRA:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            while end < len(data) and data[end]:
                end += 1
            end += 1
    if flags & _HEADER_CRC:
        if end + 2 > len(data):
            return False
        if int.from_bytes(data[end : end + 2], "little") != zlib.crc32(data[at:end]) & 0xFFFF:
            return False
        end += 2
    return end <= len(data)


# java.util.zip.GZIPOutputStream: no time, no name, no extra flags; "unknown" as the system since JDK 16.
_HEAD = _MAGIC + b"\x00" + b"\x00\x00\x00\x00" + b"\x00" + b"\xff"


def write(data: memoryview, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_HEAD, deflate.compress(data), deflate.flush(), trailer))


def write_pieces(pieces: Iterable[Any]) -> Iterator[bytes]:
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    yield _HEAD
    crc = size = 0
    for piece in pieces:
        data = bytes(piece)
        crc, size = zlib.crc32(data, crc), size + len(data)
        yield deflate.compress(data)
    yield deflate.flush() + struct.pack("<II", crc, size & 0xFFFFFFFF)
