"""Find the flipped bit of a compressed snapshot: the only one without which it decompresses to a snapshot with right seals.

gzip has a CRC-32 of the content, next to the seals in it. Snappy has no checksum, so a bit is corrected as in an uncompressed snapshot:
if more than the seals proves it. In both the file must be exactly what the compressor makes of the content, since several streams can have
one content. A limited number of bits is tried, with gzip those before the place where decompression fails, so that large snapshots take
no longer than small ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from logwright.codec.base import Codec, ProvedPart
from logwright.codec.kernels import snappy_blocks as snappy
from logwright.codec.kernels.compress import compress_pieces
from logwright.codec.kernels.intrinsics import load_i32be, read_uvarint
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.expand import (
    GZIP_HEADER_SIZE,
    MAGICS,
    SNAPPY_CHUNK,
    SNAPPY_HEADER_SIZE,
    expand,
)
from logwright.codec.zookeeper.formats.snapshot.frames import SnapshotContext
from logwright.codec.zookeeper.formats.snapshot.sections import Read, Shape
from logwright.codec.zookeeper.formats.snapshot.suspects import Flip, SnapshotFacts, facts_of

_REACH = 8192
"""Bytes before the place where decompression fails, in which bits are tried."""
_WORK = 512 << 20
"""Bytes that the trials may decompress."""
_PIECE = 512
_NEAR = 1024
"""Bytes of the stream that are decompressed again for each bit. After more, a copy of the state of zlib, with its 32 KiB, takes less time."""
_GZIP_HEADERS = tuple(MAGICS["gzip"] + b"\x08" + bytes(6) + system for system in (b"\x00", b"\xff"))
"""The headers that Java writes: the last byte is 255 from Java 16 on."""
_SYSTEM = GZIP_HEADER_SIZE - 1
"""The byte of the header that may have either of these values."""
_TRAILER = 8
_MOST = 4
"""The number of bits that are tried by reading the content."""


def flip_of_packed(
    codec: Codec, read: Read, size: int, context: SnapshotContext
) -> tuple[Flip, tuple[str, ...]] | None:
    """Return the only flipped bit of a compressed snapshot, and its proofs."""
    if context.expanded is None or not size:
        return None
    if not context.expanded.error and _sealed(context):
        return None
    limit = int(context.options["max.decompressed.bytes"])
    data = np.array(read(0, size), np.uint8)
    if context.compression == "gzip":
        flips, known = _flips_of_gzip(data.tobytes(), limit), "CRC-32"
    else:
        flips, known = _flips_of_snappy(data, context.expanded.data), "Adler-32"
    proved: list[tuple[Flip, tuple[str, ...]]] = []
    stored = _facts(codec, context.expanded.data, context)
    for number, (place, bit) in enumerate(flips):
        if number == _MOST:
            return None
        data[place] ^= 1 << bit
        expanded = expand(context.compression, data, limit)
        exact = not expanded.error and _is_output(context.compression, data.tobytes(), expanded.data)
        data[place] ^= 1 << bit
        if not exact:
            continue
        facts = _facts(codec, expanded.data, context)
        proofs = facts.proves(stored)
        if not proofs and facts.complete and (known == "CRC-32" or context.expanded.error):
            proofs = ("Adler-32", "its structure")
        if proofs:
            proved.append(((place, bit), tuple(dict.fromkeys((known, *proofs)))))
    return proved[0] if len(proved) == 1 else None


def _is_output(compression: str, data: bytes, content: Bytes) -> bool:
    """Return whether a server's compressor makes these bytes of the content. Others may have another flipped bit, which decompression does
    not show."""
    recompressed = b"".join(compress_pieces(compression, [content.tobytes()]))
    if compression == "gzip":
        return (
            data[:GZIP_HEADER_SIZE] in _GZIP_HEADERS
            and data[GZIP_HEADER_SIZE:] == recompressed[GZIP_HEADER_SIZE:]
        )
    return data == recompressed


def _sealed(context: SnapshotContext) -> bool:
    shape = context.plain
    return shape is not None and shape.ending is not None and not list(shape.wrong())


def _facts(codec: Codec, content: Bytes, context: SnapshotContext) -> SnapshotFacts:
    inner = SnapshotContext(context.options, context.zxid)
    return facts_of(codec, lambda at, length: content[at : at + length], len(content), inner)


# gzip


def _flips_of_gzip(data: bytes, limit: int) -> Iterator[Flip]:
    """Yield the bits without which the stream ends with its checksum."""
    if len(data) < GZIP_HEADER_SIZE + _TRAILER:
        return
    change = min((_bits(data, header) for header in _GZIP_HEADERS), key=int.bit_count)
    if change:
        # A bit that nothing reads may be flipped in the header as well.
        if change.bit_count() == 1:
            place, bit = GZIP_HEADER_SIZE - 1 - (change.bit_length() - 1) // 8, (change.bit_length() - 1) % 8
            if place != _SYSTEM:
                yield place, bit
        return
    fails = _failure(data)
    low = max(GZIP_HEADER_SIZE, fails - _REACH)
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    stream.decompress(data[:low])
    work = _WORK
    for place in range(low, min(fails, len(data))):
        near = place < _NEAR
        before, after = data[:place] if near else b"", data[place + 1 : place + 1 + _PIECE]
        for bit in range(8):
            length = _length(
                zlib.decompressobj(16 + zlib.MAX_WBITS) if near else stream.copy(),
                before + bytes([data[place] ^ 1 << bit]) + after,
                data,
                place + 1 + len(after),
                limit,
            )
            work -= abs(length) + _PIECE
            if length > 0:
                yield place, bit
            if work < 0:
                return
        try:
            stream.decompress(data[place : place + 1])
        except zlib.error:
            return


def part_of_gzip(place: int, size: int, proofs: tuple[str, ...]) -> ProvedPart:
    """Return the part of a file that a corrected bit proves: the content, or the header. Nothing proves the last byte of the header."""
    if place < _SYSTEM:
        return ProvedPart(0, _SYSTEM, "the gzip header up to its last byte", proofs)
    return ProvedPart(GZIP_HEADER_SIZE, size, "what follows the gzip header", proofs)


def _bits(data: bytes, header: bytes) -> int:
    return int.from_bytes(data[: len(header)], "big") ^ int.from_bytes(header, "big")


def _failure(data: bytes) -> int:
    """Return the byte before which decompression fails; the size of the file if only its end shows the damage."""
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for at in range(0, len(data), _PIECE):
        try:
            stream.decompress(data[at : at + _PIECE])
        except zlib.error:
            return min(at + _PIECE, len(data))
    return len(data)


def _length(stream: zlib._Decompress, piece: bytes, data: bytes, at: int, limit: int) -> int:
    """Return the size of the content of a piece of the stream and of the rest of it, which is at `data[at]`; the negative number of bytes that
    were decompressed if that fails."""
    done = 0
    try:
        while True:
            done += len(stream.decompress(piece))
            if stream.eof:
                complete = not stream.unused_data and at >= len(data)
                return done + 1 if complete else -done
            if at >= len(data) or done > limit:
                return -done
            piece = data[at : at + 8 * _PIECE]
            at += len(piece)
    except zlib.error:
        return -done


# Snappy


def _flips_of_snappy(data: Bytes, content: Bytes) -> Iterator[Flip]:
    """Yield the bits of the chunks without which the first seal may be right: those that change the Adler-32 of the content to it."""
    shape = Shape.of(lambda at, length: content[at : at + length], len(content))
    if not shape.seals:
        return
    seal = shape.seals[0]
    work, at, total = _WORK, SNAPPY_HEADER_SIZE, 0
    while at + 4 <= len(data) and total < seal.at:
        end = at + 4 + load_i32be(data, at)
        at += 4
        if not at < end <= len(data):
            return
        size, start = read_uvarint(data, at, end)
        if start < 0 or not 0 < size <= SNAPPY_CHUNK:
            return
        out = np.zeros(size, np.uint8)
        before = zlib.adler32(content[:total].tobytes())
        after = content[total + size : seal.at].tobytes()
        for place in range(at, end):
            for bit in range(8):
                work -= size + len(after)
                if work < 0:
                    return
                data[place] ^= 1 << bit
                fits = snappy.decompress(data, at, end, out, 0, size) >= 0
                data[place] ^= 1 << bit
                chunk = out[: max(0, seal.at - total)]
                if fits and zlib.adler32(after, zlib.adler32(chunk.tobytes(), before)) == seal.stored:
                    yield place, bit
        total += size
        at = end
