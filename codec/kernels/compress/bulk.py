"""Decompress many payloads one after the other in one kernel call.

The kernel does what the readers of gzip, snappy, lz4 and zstd do, for payloads without rare features and without damage. It stops at any
other payload, which is left to these readers.
"""

from __future__ import annotations

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.kernels.compress import gzip, lz4, snappy, zstd
from logwright.codec.kernels.compress.lz4 import xxhash32
from logwright.codec.kernels.compress.native import (
    INFLATE,
    INFLATE_STATE,
    LZ4,
    ZSTD,
    ZSTD_CONTEXT,
    decompress_lz4,
    decompress_zstd,
    functions,
    inflate,
)
from logwright.codec.kernels.compress.payload import Output
from logwright.codec.kernels.compress.zstd import frame
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import copy, load_i32be, load_i64be, load_u8, load_u32le, read_uvarint
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.snappy_blocks import RATIO
from logwright.codec.kernels.snappy_blocks import decompress as snappy_block

NUMBERS = {"none": 0, "snappy": 1, "lz4": 2, "lz4-magic0": 3, "zstd": 4, "gzip": 5}
"""The decompressors of `fill`."""
OTHER = -1
"""The number of any other compression."""
_NONE, _SNAPPY, _LZ4, _LZ4_MAGIC0, _ZSTD, _GZIP = NUMBERS.values()

_SNAPPY_MAGIC = int.from_bytes(snappy.MAGIC, "big", signed=True)
_SNAPPY_HEADER = len(snappy.HEADER)
_LZ4_MAGIC = int.from_bytes(lz4.MAGIC, "little")
_LZ4_HEADER = 7
_LZ4_PLAIN, _LZ4_LEAST, _LZ4_MOST = 0x60, 0x40, 0x70
"""FLG of independent blocks without options, and the lowest and the highest BD."""
_LZ4_STORED = 1 << 31
_ZSTD_SINGLE = zstd.SINGLE_SEGMENT
_ZSTD_WIDEST = 17 << 3
"""The first window descriptor that streaming decompressors refuse by default: 128 MiB."""
_GZIP_PLAIN = int.from_bytes(gzip.PLAIN, "little")
_GZIP_HEADER, _GZIP_TRAILER = gzip.HEADER, gzip.TRAILER
_GZIP_LONGEST = 1 << 30


@kernel("const u1[], i8, i8, u1[], i8, i8")
def _snappy(buf: Bytes, at: int, end: int, out: Bytes, to: int, limit: int) -> int:
    if end - at < _SNAPPY_HEADER or load_i64be(buf, at) != _SNAPPY_MAGIC:
        return -1
    at += _SNAPPY_HEADER
    while end - at >= 4:
        length = load_i32be(buf, at)
        at += 4
        if length < 0 or length > end - at:
            return -1
        size, body = read_uvarint(buf, at, at + length)
        # A fifth byte may hold bits that do not count.
        if body < 0 or body - at > 4 or size > RATIO * length or size > limit - to:
            return -1
        if snappy_block(buf, at, at + length, out, to, to + size) < 0:
            return -1
        at += length
        to += size
    return to


@kernel("const u1[], i8, i8, u1[], i8, i8, i8, i8")
def _lz4(buf: Bytes, at: int, end: int, out: Bytes, to: int, limit: int, verify: int, address: int) -> int:
    if address == 0 or end - at < _LZ4_HEADER or load_u32le(buf, at) != _LZ4_MAGIC:
        return -1
    bd = load_u8(buf, at + 5)
    if load_u8(buf, at + 4) != _LZ4_PLAIN or bd & 0x0F != 0 or bd < _LZ4_LEAST or bd > _LZ4_MOST:
        return -1
    if verify and load_u8(buf, at + 6) != xxhash32(buf, at + 4, at + 6) >> 8 & 0xFF:
        return -1
    largest = 1 << 8 + 2 * (bd >> 4)
    at += _LZ4_HEADER
    while end - at >= 4:
        length = load_u32le(buf, at)
        at += 4
        if length == 0:
            return to
        stored = length >= _LZ4_STORED
        length &= _LZ4_STORED - 1
        if length > largest or length > end - at:
            return -1
        if stored:
            if length > limit - to:
                return -1
            copy(out, to, buf, at, length)
            to += length
        else:
            if limit - to <= 0:
                return -1
            size = decompress_lz4(address, buf, at, length, out, to, min(largest, limit - to))
            if size < 0:
                return -1
            to += size
        at += length
    return -1


@kernel("const u1[], i8, i8, u1[], i8, i8, i8, i8")
def _zstd(buf: Bytes, at: int, end: int, out: Bytes, to: int, limit: int, address: int, state: int) -> int:
    if address == 0 or state == 0 or end - at < 6:
        return -1
    stop, most, wrong, is_wide = frame(buf, at, end)
    # Only where it decompresses in steps does the library refuse a block that is too large.
    if wrong != 0 or most < 0 or stop != end or is_wide:
        return -1
    if load_u8(buf, at + 4) & _ZSTD_SINGLE == 0 and load_u8(buf, at + 5) >= _ZSTD_WIDEST:
        return -1
    size = decompress_zstd(address, state, buf, at, end - at, out, to, min(limit - to, most))
    return -1 if size < 0 else to + size


@kernel("const u1[], i8, i8, u1[], i8, i8, i8, i8")
def _gzip(buf: Bytes, at: int, end: int, out: Bytes, to: int, limit: int, address: int, state: int) -> int:
    at += _GZIP_HEADER
    last = end - _GZIP_TRAILER
    if (
        address == 0
        or at > last
        or load_u32le(buf, at - _GZIP_HEADER) != _GZIP_PLAIN
        or last - at > _GZIP_LONGEST
    ):
        return -1
    size = inflate(address, state, buf, at, last - at, out, to, min(limit - to, _GZIP_LONGEST))
    if size < 0 or crc32(out, to, to + size) != load_u32le(buf, last) or size != load_u32le(buf, last + 4):
        return -1
    return to + size


@kernel("const u1[], const i8[], const i8[], const i8[], i8, i8, u1[], i8, i8[], const i8[]")
def fill(
    buf: Bytes, starts: Int64s, ends: Int64s, codecs: Int64s, first: int, limit: int, out: Bytes, to: int, edges: Int64s,
    native: Int64s,
) -> int:  # fmt: skip
    """Decompress the payloads `buf[starts[i] : ends[i]]` from `first` on to `out[to:]`, each to at most `limit` bytes. Returns the number of
    the payload at which it stopped: that does not fit, or is left to the readers. `edges[i + 1]` gets the end of payload i. `native` are the
    `functions` that the codecs need."""
    for i in range(first, len(starts)):
        at = starts[i]
        end = ends[i]
        codec = codecs[i]
        most = min(len(out), to + limit)
        if codec == _SNAPPY:
            stop = _snappy(buf, at, end, out, to, most)
        elif codec in (_LZ4, _LZ4_MAGIC0):
            stop = _lz4(buf, at, end, out, to, most, 1 if codec == _LZ4 else 0, int(native[LZ4]))
        elif codec == _ZSTD:
            stop = _zstd(buf, at, end, out, to, most, int(native[ZSTD]), int(native[ZSTD_CONTEXT]))
        elif codec == _GZIP:
            stop = _gzip(buf, at, end, out, to, most, int(native[INFLATE]), int(native[INFLATE_STATE]))
        elif codec == _NONE and end - at <= most - to:
            copy(out, to, buf, at, end - at)
            stop = to + end - at
        else:
            stop = -1
        if stop < 0:
            return i
        to = stop
        edges[i + 1] = to
    return len(starts)


def fill_output(
    buf: Bytes,
    starts: Int64s,
    ends: Int64s,
    codecs: Int64s,
    first: int,
    limit: int,
    out: Output,
    most: int,
    edges: Int64s,
) -> int:
    """Append payloads from `first` on to `out`, as long as it has room, has at most `most` bytes, and they need no reader. Returns the number
    of the next one."""
    if first == len(starts) or not fill.is_ready(int(ends[-1] - starts[first])):
        return first
    stopped = fill(
        buf, starts, ends, codecs, first, limit, out.memory[:most], out.end, edges, functions_of(codecs)
    )
    if stopped > first:
        out.end = int(edges[stopped])
    return stopped


def functions_of(codecs: Int64s) -> Int64s:
    """Return the `functions` that these codecs need."""
    return functions(zstd=_ZSTD in codecs, inflate=_GZIP in codecs)
