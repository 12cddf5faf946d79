"""A snapshot as the stream that a server reads: what can be decompressed, and the exception after it.

Source: `SnapStream.getInputStream` of ZooKeeper, `java.util.zip.GZIPInputStream`, `org.xerial.snappy.SnappyInputStream`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from logwright.codec.kernels import snappy_blocks as snappy
from logwright.codec.kernels.intrinsics import load_i32be, read_uvarint
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.expand import SNAPPY_MAGIC
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.startup.exceptions import (
    EndOfFile,
    IOFailure,
    OutOfMemory,
    SnappyError,
    SnappyFailure,
    Thrown,
    ZipFailure,
)

_GZIP_HEADER = 10
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16
_TRAILER = 8
_HEAP = "Java heap space"
_PIECE = 4096
_SNAPPY_HEADER = len(SNAPPY_MAGIC) + 8
_SNAPPY_MAX_CHUNK = 512 << 20
"""`SnappyInputStream.MAX_CHUNK_SIZE`."""
_CONCATENATED = int.from_bytes(SNAPPY_MAGIC[:4], "big", signed=True)
"""The chunk length that marks the start of another stream (`SnappyCodec.MAGIC_HEADER_HEAD`)."""


@dataclass(frozen=True)
class Stream:
    """The readable bytes, and the exception of reading on."""

    data: Bytes
    end: Thrown

    @classmethod
    def of(cls, data: Bytes, compression: str, limit: int) -> Stream:
        """Return the stream of a file. Above `limit` bytes of output, a server is assumed to run out of memory. Raises `Thrown` if the
        stream cannot be opened."""
        if compression == GZIP:
            return _gzip(data.tobytes(), limit)
        if compression == SNAPPY:
            return _snappy(data, limit)
        return cls(data, EndOfFile())


def _gzip(data: bytes, limit: int) -> Stream:
    parts: list[bytes] = []
    at, left = _after_header(data, 0), limit
    while True:
        member, consumed, failure = _inflate(data[at:], left)
        parts.append(member)
        left -= len(member)
        if failure is not None:
            break
        at += consumed
        trailer = data[at : at + _TRAILER]
        if len(trailer) < _TRAILER:
            failure = EndOfFile()
            break
        if trailer != zlib.crc32(member).to_bytes(4, "little") + (len(member) & 0xFFFFFFFF).to_bytes(
            4, "little"
        ):
            failure = ZipFailure("Corrupt GZIP trailer")
            break
        failure = EndOfFile()
        # Another member may follow; anything else is ignored.
        try:
            at = _after_header(data, at + _TRAILER)
        except IOFailure:
            break
    return Stream(np.frombuffer(b"".join(parts), np.uint8), failure)


def _after_header(data: bytes, at: int) -> int:
    """Return where the compressed bytes begin (`GZIPInputStream.readHeader`). Raises `Thrown`."""
    start = at
    head = data[at : at + _GZIP_HEADER]
    if len(head) >= 2 and head[:2] != b"\x1f\x8b":
        raise ZipFailure("Not in GZIP format")
    if len(head) >= 3 and head[2] != 8:
        raise ZipFailure("Unsupported compression method")
    if len(head) < _GZIP_HEADER:
        raise EndOfFile()
    flags = head[3]
    at += _GZIP_HEADER
    if flags & _FEXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1 or len(data) + 1
    if flags & _FHCRC:
        stored = data[at : at + 2]
        if len(stored) == 2 and stored != (zlib.crc32(data[start:at]) & 0xFFFF).to_bytes(2, "little"):
            raise ZipFailure("Corrupt GZIP header")
        at += 2
    if at > len(data):
        raise EndOfFile()
    return at


def _inflate(data: bytes, limit: int) -> tuple[bytes, int, Thrown | None]:
    """Return the output, the number of bytes it took, and the exception that ends it, if any."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    parts: list[bytes] = []
    at, step, left = 0, _PIECE, limit
    while at < len(data) and not stream.eof:
        before = stream.copy()
        try:
            parts.append(stream.decompress(data[at : at + step]))
        except zlib.error as error:
            if step == 1:
                words = str(error).rpartition(": ")[2]
                return b"".join(parts), at, ZipFailure(words)
            # Output before the damage is delivered, so the damage is located byte by byte.
            stream, step = before, 1
            continue
        left -= len(parts[-1])
        if left < 0:
            return b"".join(parts)[:limit], at, OutOfMemory(_HEAP)
        at = min(at + step, len(data))
    if not stream.eof:
        return b"".join(parts), at, EndOfFile("Unexpected end of ZLIB input stream")
    return b"".join(parts), at - len(stream.unused_data), None


def _snappy(data: Bytes, limit: int) -> Stream:
    """Raises `Thrown` for a header that is cut short or of another version."""
    if len(data) < _SNAPPY_HEADER:
        raise EndOfFile()
    at, left = _SNAPPY_HEADER, limit
    parts: list[Bytes] = []
    failure: Thrown = EndOfFile()
    while len(data) - at >= 4:
        size = load_i32be(data, at)
        at += 4
        if size == _CONCATENATED:
            if len(data) - at < _SNAPPY_HEADER - 4:
                failure = SnappyFailure("Insufficient header size in a concatenated block")
                break
            at += _SNAPPY_HEADER - 4
            continue
        if size < 0:
            failure = SnappyError(f"[INVALID_CHUNK_SIZE] chunkSize is too big or negative : {size}")
            break
        if size > _SNAPPY_MAX_CHUNK:
            words = (
                f"Received chunkSize {size:,} is greater than max configured chunk size {_SNAPPY_MAX_CHUNK:,}"
            )
            failure = SnappyError(f"[FAILED_TO_UNCOMPRESS] {words}")
            break
        if size > len(data) - at:
            failure = IOFailure("failed to read chunk")
            break
        length, start = read_uvarint(data, at, at + size)
        left -= max(length, 0)
        if left < 0:
            failure = OutOfMemory(_HEAP)
            break
        out = np.empty(max(length, 0) if start >= 0 else 0, np.uint8)
        if start < 0 or snappy.decompress(data, at, at + size, out, 0, len(out)) < 0:
            failure = IOFailure("FAILED_TO_UNCOMPRESS(5)")
            break
        parts.append(out)
        at += size
    return Stream(np.concatenate(parts) if parts else np.zeros(0, np.uint8), failure)
