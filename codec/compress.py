"""The door to the compressors: one call a payload, output bounded, damage told in a sentence.

`decompress("zstd", data, limit=...)` and `compress("zstd", data)`, for these names:

- `none`: the bytes as they are.
- `gzip`: RFC 1952. Several members are read as one, what follows the last is ignored, as java.util.zip.GZIPInputStream does.
- `snappy`: the stream of snappy-java (xerial): 16 bytes of header, then lengths and raw blocks. A raw block alone is read too.
- `snappy-raw`: one raw block.
- `lz4`: one LZ4 frame, as org.apache.kafka.common.compress.Lz4BlockInputStream takes it: independent blocks, checksums of the
  header and of blocks verified, size and checksum of the content skipped, what follows the frame ignored.
- `lz4-magic0`: the same with the header checksum of Kafka before 0.10, which is counted over the magic number too. It is not
  verified, since files have both.
- `zstd`: any number of frames (RFC 8878), skippable ones included.
- `zstd-sized`: the same; written as one frame whose header says the size of the content, as LevelDB wants it.

Nothing here trusts a length: no buffer is larger than the limit (and one block), nor than the compressed bytes could fill.
Written payloads have the layout of the Java clients; compressed bytes themselves depend on the compressor's version.
"""

from __future__ import annotations

import functools
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import cramjam
import numpy as np
import numpy.typing as npt

from logwright.codec.intrinsics import load_u8, load_u16le, load_u32le
from logwright.codec.kernel import kernel

if TYPE_CHECKING:
    import zstandard

Bytes = npt.NDArray[np.uint8]
Data = bytes | bytearray | memoryview | Bytes
_Reader = Callable[[str, memoryview, int], Bytes]
_Writer = Callable[[memoryview, int], bytes]
# Arrays are buffers, which the type checker does not know before Python 3.12.
_snappy_into: Callable[[memoryview, Any], int] = cramjam.snappy.decompress_raw_into
_lz4_into: Callable[..., int] = cramjam.lz4.decompress_block_into


class CompressionError(ValueError):
    """A payload that does not decompress: what was expected, and what was found."""


class BombError(CompressionError):
    """A payload that would decompress to more bytes than allowed."""

    @classmethod
    def over(cls, codec: str, limit: int) -> BombError:
        return cls(f"{codec.partition('-')[0]}: decompresses to more than the limit of {limit} bytes")


def decompress(codec: str, data: Data, limit: int) -> Bytes:
    """The decompressed bytes, as an array that may be read-only; at most `limit` of them.

    Raises CompressionError where the payload is damaged, BombError where it holds more than `limit` bytes.
    """
    read: _Reader = _one_of(_READERS, codec)
    return read(codec, memoryview(data).cast("B"), limit)  # type: ignore[arg-type]


def compress(codec: str, data: Data, *, level: int | None = None) -> bytes:
    """The compressed bytes. Levels and their defaults are Kafka's (KIP-390): gzip -1 or 1 to 9 (default -1), lz4 1 to 17
    (default 9, which stands for the fast compressor), zstd -131072 to 22 (default 3); the others have none."""
    low, high, default = _LEVELS.get(codec, (0, 0, 0))
    if level is None:
        level = default
    elif codec not in _LEVELS or not low <= level <= high or (codec == "gzip" and level == 0):
        levels = f"levels from {low} to {high}" if codec in _LEVELS else "no levels"
        raise ValueError(f"{codec} has {levels}, not {level}")
    write: _Writer = _one_of(_WRITERS, codec)
    return write(memoryview(data).cast("B"), level)  # type: ignore[arg-type]


def compress_pieces(codec: str, pieces: Iterable[Any]) -> Iterator[bytes]:
    """What `compress` makes of these bytes one after the other, gzip or snappy, without holding them."""
    yield from _one_of(_PIECES, codec)(pieces)


def _one_of(table: dict[str, Any], codec: str) -> Any:
    try:
        return table[codec]
    except KeyError:
        raise ValueError(f"compression is one of {', '.join(_READERS)}, not {codec!r}") from None


def _array(data: bytes | memoryview) -> Bytes:
    return np.frombuffer(data, np.uint8)


# none


def _read_none(codec: str, data: memoryview, limit: int) -> Bytes:
    if len(data) > limit:
        raise BombError.over(codec, limit)
    return _array(data)


def _write_none(data: memoryview, level: int) -> bytes:
    return bytes(data)


# gzip

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_HEADER, _GZIP_TRAILER = 10, 8
_HEADER_CRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
# The first piece of a member that is fed to zlib, which copies what follows the member: small, or many members take for ever.
_FIRST_PIECE, _PIECE = 1 << 14, 1 << 20


def _read_gzip(codec: str, data: memoryview, limit: int) -> Bytes:
    parts: list[bytes] = []
    at = total = 0
    while at == 0 or _gzip_member_follows(data, at):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        piece = _FIRST_PIECE
        while not member.eof:
            if at >= len(data):
                raise CompressionError(
                    f"gzip: the stream is cut off after {len(data)} bytes, before its end and checksum"
                )
            fed = data[at : at + piece]
            try:
                # One byte more than allowed tells a bomb from what just fits.
                part = member.decompress(fed, limit - total + 1)
            except zlib.error as error:
                raise CompressionError(f"gzip: {_reason(error)}, at or before byte {at + len(fed)}") from None
            total += len(part)
            if total > limit:
                raise BombError.over(codec, limit)
            parts.append(part)
            at += len(fed) - len(member.unused_data)
            piece = _PIECE
    return _array(parts[0] if len(parts) == 1 else b"".join(parts))


def _reason(error: Exception) -> str:
    """zlib's own words without the frame around: "Error -3 while decompressing data: incorrect data check"."""
    return str(error).rpartition(": ")[2]


def _gzip_member_follows(data: memoryview, at: int) -> bool:
    """Whether a whole member header starts at `at`; whatever else is there, Java ignores."""
    if at + _GZIP_HEADER + _GZIP_TRAILER >= len(data) or data[at : at + 3] != _GZIP_MAGIC:
        return False
    flags = data[at + 3]
    if flags & _RESERVED:
        return False
    end = at + _GZIP_HEADER
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
_GZIP_HEAD = _GZIP_MAGIC + b"\x00" + b"\x00\x00\x00\x00" + b"\x00" + b"\xff"


def _write_gzip(data: memoryview, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEAD, deflate.compress(data), deflate.flush(), trailer))


def _gzip_pieces(pieces: Iterable[Any]) -> Iterator[bytes]:
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    yield _GZIP_HEAD
    crc = size = 0
    for piece in pieces:
        data = bytes(piece)
        crc, size = zlib.crc32(data, crc), size + len(data)
        yield deflate.compress(data)
    yield deflate.flush() + struct.pack("<II", crc, size & 0xFFFFFFFF)


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32768
# A header in place of a chunk's length: streams put together.
_XERIAL_AGAIN = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
# An element of a raw block makes at most 64 bytes from 3.
_SNAPPY_RATIO = 22


def _read_snappy(codec: str, data: memoryview, limit: int) -> Bytes:
    if len(data) < len(_XERIAL_HEADER) or data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _read_snappy_raw(codec, data, limit)
    chunks: list[tuple[int, int, int]] = []
    at = len(_XERIAL_HEADER)
    total = 0
    # Fewer than four bytes are the end of the stream.
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if length == _XERIAL_AGAIN:
            if at + len(_XERIAL_HEADER) > len(data):
                raise CompressionError(
                    f"snappy: a second header at byte {at} is cut off after {len(data) - at} bytes"
                )
            if data[at : at + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
                break
            (version,) = struct.unpack_from(">i", data, at + len(_XERIAL_MAGIC))
            if version < 1:
                raise CompressionError(
                    f"snappy: the header at byte {at} has version {version}; 1 and above are known"
                )
            at += len(_XERIAL_HEADER)
            continue
        at += 4
        if not 0 <= length <= len(data) - at:
            raise CompressionError(
                f"snappy: a chunk of {length} bytes at byte {at}, where {len(data) - at} are left"
            )
        size = _snappy_length(data[at : at + length], at)
        total += size
        if total > limit:
            raise BombError.over(codec, limit)
        chunks.append((at, length, size))
        at += length
    out = np.empty(total, np.uint8)
    made = 0
    for at, length, size in chunks:
        _snappy_block(data[at : at + length], out[made : made + size], at)
        made += size
    return out


def _read_snappy_raw(codec: str, data: memoryview, limit: int) -> Bytes:
    size = _snappy_length(data, 0)
    if size > limit:
        raise BombError.over(codec, limit)
    out = np.empty(size, np.uint8)
    _snappy_block(data, out, 0)
    return out


def _snappy_length(block: memoryview, at: int) -> int:
    """The decompressed length that a raw block declares, if so few bytes can make so many."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if size > _SNAPPY_RATIO * len(block):
                raise CompressionError(
                    f"snappy: the block at byte {at} claims to make {size} bytes from {len(block)}"
                )
            return size
    raise CompressionError(
        f"snappy: the block of {len(block)} bytes at byte {at} does not start with a length"
    )


def _snappy_block(block: memoryview, out: Bytes, at: int) -> None:
    try:
        made = _snappy_into(block, out) if len(out) else _snappy_empty(block)
    except cramjam.DecompressionError as error:
        raise CompressionError(
            f"snappy: the block at byte {at} is damaged: {_snappy_reason(error)}"
        ) from None
    if made != len(out):
        raise CompressionError(f"snappy: the block at byte {at} makes {made} bytes, and declares {len(out)}")


def _snappy_empty(block: memoryview) -> int:
    """Decompress a block that declares no bytes: there is nothing to write into."""
    return len(bytes(cramjam.snappy.decompress_raw(block)))


def _snappy_reason(error: Exception) -> str:
    return str(error).removeprefix("snappy: ").removeprefix("corrupt input ").strip("()")


def _write_snappy(data: memoryview, level: int) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += struct.pack(">i", len(block)), block
    return b"".join(parts)


def _snappy_pieces(pieces: Iterable[Any]) -> Iterator[bytes]:
    yield _XERIAL_HEADER
    held = b""
    for piece in pieces:
        held += bytes(piece)
        whole = len(held) - len(held) % _XERIAL_BLOCK
        yield _write_snappy(memoryview(held)[:whole], 0)[len(_XERIAL_HEADER) :]
        held = held[whole:]
    yield _write_snappy(memoryview(held), 0)[len(_XERIAL_HEADER) :]


def _write_snappy_raw(data: memoryview, level: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


# lz4

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_STORED = 1 << 31
# The longest match that a byte can lengthen.
_LZ4_RATIO = 255
# The bits of FLG, the first byte of the frame descriptor.
_FLG_VERSION, _FLG_INDEPENDENT, _FLG_BLOCK_CHECKSUM = 0xC0, 0x20, 0x10
_FLG_SIZE, _FLG_CHECKSUM, _FLG_RESERVED = 0x08, 0x04, 0x03
# What is written: version 1, independent blocks of 64 KiB, nothing else.
_LZ4_DESCRIPTOR = b"\x60\x40"
_LZ4_BLOCK = 1 << 16
_LZ4_FAST_LEVEL, _LZ4_HIGHEST = 9, 12

_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = _PRIMES
_LOW = 0xFFFFFFFF


@kernel("i8, i8")
def _rotated(value: int, by: int) -> int:
    """32 bits rotated left."""
    return (value << by | value >> 32 - by) & _LOW


@kernel("i8, i8")
def _round(lane: int, word: int) -> int:
    """One lane of xxHash32 and four more bytes."""
    return _product(_rotated((lane + _product(word, _PRIME_2)) & _LOW, 13), _PRIME_1)


@kernel("i8, i8")
def _product(a: int, b: int) -> int:
    """The low 32 bits of the product of two numbers of 32 bits, without leaving 63 bits on the way."""
    return (a * (b & 0xFFFF) + ((a * (b >> 16) & 0xFFFF) << 16)) & _LOW


@kernel("const u1[], i8, i8")
def xxhash32(buf: Bytes, at: int, end: int) -> int:
    """xxHash32 of `buf[at:end]` with seed 0, the checksum of the LZ4 frame format."""
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
def _lz4_header_checksum(descriptor: bytes) -> int:
    return xxhash32(_array(descriptor), 0, len(descriptor)) >> 8 & 0xFF


def _read_lz4(codec: str, data: memoryview, limit: int) -> Bytes:
    at, block_size, flags = _lz4_header(data, verify=codec != "lz4-magic0")
    blocks: list[tuple[int, int, bool]] = []
    most = 0
    checksum = 4 if flags & _FLG_BLOCK_CHECKSUM else 0
    while True:
        if at + 4 > len(data):
            raise CompressionError(f"lz4: the frame is cut off after {len(data)} bytes, before its end mark")
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if length == 0:
            break
        stored = length >= _LZ4_STORED
        length &= ~_LZ4_STORED
        if length > block_size:
            raise CompressionError(
                f"lz4: a block of {length} bytes at byte {at}, in a frame of blocks of {block_size} at most"
            )
        if at + length + checksum > len(data):
            raise CompressionError(
                f"lz4: the block at byte {at} takes {length + checksum} bytes, and {len(data) - at} are left"
            )
        blocks.append((at, length, stored))
        most += length if stored else min(block_size, _LZ4_RATIO * length)
        at += length + checksum
    if flags & _FLG_CHECKSUM and at + 4 > len(data):
        raise CompressionError(f"lz4: the frame is cut off after {len(data)} bytes, in its content checksum")
    # What one block more than the limit takes is enough to notice a bomb. The usual frame is one block that fills a part of what it
    # may: it is made where the last one was, and copied, since fresh memory of so many sizes costs more than the copy.
    room = min(most, limit + block_size)
    out = _scratch(room) if room <= _SCRATCH else np.empty(room, np.uint8)
    made = 0
    for at, length, stored in blocks:
        block = data[at : at + length]
        if checksum:
            _lz4_check_block(data, at, length)
        if stored:
            out[made : made + length] = _array(block)
            made += length
        else:
            made += _lz4_block(block, out[made : made + block_size], at)
        if made > limit:
            raise BombError.over(codec, limit)
    return out[:made].copy() if room <= _SCRATCH else out[:made]


_SCRATCH = 256 << 10
_own = threading.local()


def _scratch(size: int) -> Bytes:
    """Memory of this thread, the same each time."""
    found: Bytes | None = getattr(_own, "scratch", None)
    if found is None:
        found = _own.scratch = np.empty(_SCRATCH, np.uint8)
    return found[:size]


def _lz4_header(data: memoryview, *, verify: bool) -> tuple[int, int, int]:
    """Where the first block starts, the largest block size, and FLG."""
    if len(data) < 7:
        raise CompressionError(f"lz4: a frame header has 7 bytes at least, and there are {len(data)}")
    if data[:4] != _LZ4_MAGIC:
        raise CompressionError(f"lz4: a frame starts with {_LZ4_MAGIC.hex(' ')}, not {data[:4].hex(' ')}")
    flags, bd = data[4], data[5]
    if flags & _FLG_VERSION != 0x40:
        raise CompressionError(f"lz4: frame version {flags >> 6}; 1 is known")
    if flags & _FLG_RESERVED or bd & 0x8F:
        raise CompressionError(f"lz4: reserved bits are set in the frame descriptor {data[4:6].hex(' ')}")
    if not flags & _FLG_INDEPENDENT:
        raise CompressionError("lz4: the frame's blocks depend on each other, which Kafka does not read")
    if bd >> 4 not in _LZ4_BLOCK_SIZES:
        raise CompressionError(f"lz4: block size code {bd >> 4}; 4 to 7 are known")
    end = 14 if flags & _FLG_SIZE else 6
    if len(data) <= end:
        raise CompressionError(f"lz4: the frame header has {end + 1} bytes, and there are {len(data)}")
    if verify:
        expected = _lz4_header_checksum(bytes(data[4:end]))
        if data[end] != expected:
            raise CompressionError(
                f"lz4: the frame header's checksum is {data[end]:#04x}, and {expected:#04x} was expected"
            )
    return end + 1, _LZ4_BLOCK_SIZES[bd >> 4], flags


def _lz4_check_block(data: memoryview, at: int, length: int) -> None:
    (found,) = struct.unpack_from("<I", data, at + length)
    expected = xxhash32(_array(data[at : at + length]), 0, length)
    if found != expected:
        raise CompressionError(
            f"lz4: the checksum of the block at byte {at} is {found:#010x}, and {expected:#010x} was expected"
        )


def _lz4_block(block: memoryview, room: Bytes, at: int) -> int:
    try:
        return _lz4_into(block, room, output_len=len(room))
    except cramjam.DecompressionError:
        # The library says no more than this either.
        raise CompressionError(
            f"lz4: the block of {len(block)} bytes at byte {at} is damaged, or makes more than {len(room)} bytes"
        ) from None


def _write_lz4(data: memoryview, level: int) -> bytes:
    return _lz4_frame(data, level, _lz4_header_checksum(_LZ4_DESCRIPTOR))


def _write_lz4_magic0(data: memoryview, level: int) -> bytes:
    return _lz4_frame(data, level, _lz4_header_checksum(_LZ4_MAGIC + _LZ4_DESCRIPTOR))


def _lz4_frame(data: memoryview, level: int, header_checksum: int) -> bytes:
    # Imported when written: reading needs none of it.
    import lz4.block

    how: dict[str, Any] = {"mode": "default"}
    if level != _LZ4_FAST_LEVEL:
        how = {"mode": "high_compression", "compression": min(level, _LZ4_HIGHEST)}
    parts = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes([header_checksum])]
    for at in range(0, len(data), _LZ4_BLOCK):
        raw = data[at : at + _LZ4_BLOCK]
        block = lz4.block.compress(raw, store_size=False, **how)
        if len(block) < len(raw):
            parts += struct.pack("<I", len(block)), block
        else:
            parts += struct.pack("<I", len(raw) | _LZ4_STORED), bytes(raw)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


# zstd

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE, _ZSTD_SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_ZSTD_BLOCK = 1 << 17
_WHOLE, _CUT, _NO_MAGIC, _BAD_BLOCK, _BAD_HEADER = 0, 1, 2, 3, 4
_ZSTD_WRONG = {
    _CUT: "the frame that starts here is cut off",
    _NO_MAGIC: "neither a frame (28 b5 2f fd) nor a skippable one starts here",
    _BAD_BLOCK: "a block of the frame that starts here has the reserved type",
    _BAD_HEADER: "the header of the frame that starts here has its reserved bit set",
}


@kernel("const u1[], i8")
def _zstd_frame(data: Bytes, at: int) -> tuple[int, int, int]:
    """Walk the block headers of the frame at `at` (RFC 8878, 3.1.1): (where it ends, the most it can make, what is wrong).

    A skippable frame makes -1 bytes.
    """
    length = len(data)
    if length - at < 4:
        return at, 0, _CUT
    magic = load_u32le(data, at)
    if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE:
        if length - at < 8 or load_u32le(data, at + 4) > length - at - 8:
            return at, 0, _CUT
        return at + 8 + load_u32le(data, at + 4), -1, _WHOLE
    if magic != _ZSTD_MAGIC:
        return at, 0, _NO_MAGIC
    at += 4
    if at >= length:
        return at, 0, _CUT
    descriptor = load_u8(data, at)
    if descriptor & 0x08:
        return at, 0, _BAD_HEADER
    single = descriptor >> 5 & 1
    dictionary = descriptor & 3
    size = descriptor >> 6
    at += 1 + (1 - single) + (4 if dictionary == 3 else dictionary) + (single if size == 0 else 1 << size)
    most = 0
    last = 0
    while last == 0:
        if length - at < 3:
            return at, 0, _CUT
        header = load_u16le(data, at) | load_u8(data, at + 2) << 16
        at += 3
        last = header & 1
        kind = header >> 1 & 3
        size = header >> 3
        if kind == 3:
            return at, 0, _BAD_BLOCK
        most += _ZSTD_BLOCK if kind == 2 else size
        at += 1 if kind == 1 else size
        if at > length:
            return at, 0, _CUT
    if descriptor & 0x04:
        at += 4
        if at > length:
            return at, 0, _CUT
    return at, most, _WHOLE


class _Local(threading.local):
    """Compressors and decompressors are used again, but not by two threads at once."""

    def __init__(self) -> None:
        import zstandard

        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


@functools.cache
def _zstd_objects() -> _Local:
    return _Local()


def _read_zstd(codec: str, data: memoryview, limit: int) -> Bytes:
    import zstandard

    array = _array(data)
    parts: list[bytes] = []
    at = total = 0
    while at < len(data):
        end, most, wrong = _zstd_frame(array, at)
        if wrong:
            raise CompressionError(f"zstd: at byte {at} of {len(data)}: {_ZSTD_WRONG[wrong]}")
        allowed = limit - total
        frame = data[at:end]
        if most >= 0:
            try:
                # The library takes the declared size at its word, so it is compared first. -1 is "not declared".
                declared = zstandard.frame_content_size(frame)
                if declared > most:
                    raise CompressionError(
                        f"zstd: the frame at byte {at} declares {declared} bytes, and its blocks make {most} at most"
                    )
                if declared > allowed:
                    raise BombError.over(codec, limit)
                part = _zstd_objects().decompressor.decompress(frame, max_output_size=min(most, allowed) + 1)
            except zstandard.ZstdError as error:
                if most > allowed and _zstd_makes_more(frame, allowed):
                    raise BombError.over(codec, limit) from None
                raise CompressionError(f"zstd: the frame at byte {at} is damaged: {_reason(error)}") from None
            total += len(part)
            if total > limit:
                raise BombError.over(codec, limit)
            parts.append(part)
        at = end
    return _array(parts[0] if len(parts) == 1 else b"".join(parts))


def _zstd_makes_more(frame: memoryview, allowed: int) -> bool:
    """Whether a frame that did not fit is sound for one byte more than allowed: too large then, rather than damaged."""
    import zstandard

    try:
        with _zstd_objects().decompressor.stream_reader(frame) as reader:
            return len(reader.read(allowed + 1)) > allowed
    except zstandard.ZstdError:
        return False


def _write_zstd(data: memoryview, level: int) -> bytes:
    import zstandard

    compressors = _zstd_objects().compressors
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(
            level=level, write_content_size=False, write_checksum=False
        )
    stream = compressors[level].compressobj()
    # As zstd-jni closes its stream: what there is as a block that is not the last, then an empty last one.
    return b"".join((stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()))


def _write_zstd_sized(data: memoryview, level: int) -> bytes:
    import zstandard

    made = zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=False)
    return made.compress(data)


_READERS: dict[str, _Reader] = {
    "none": _read_none,
    "gzip": _read_gzip,
    "snappy": _read_snappy,
    "snappy-raw": _read_snappy_raw,
    "lz4": _read_lz4,
    "lz4-magic0": _read_lz4,
    "zstd": _read_zstd,
    "zstd-sized": _read_zstd,
}
_WRITERS: dict[str, _Writer] = {
    "none": _write_none,
    "gzip": _write_gzip,
    "snappy": _write_snappy,
    "snappy-raw": _write_snappy_raw,
    "lz4": _write_lz4,
    "lz4-magic0": _write_lz4_magic0,
    "zstd": _write_zstd,
    "zstd-sized": _write_zstd_sized,
}
_PIECES: dict[str, Callable[[Iterable[Any]], Iterator[bytes]]] = {
    "gzip": _gzip_pieces,
    "snappy": _snappy_pieces,
}
# Lowest, highest, default.
_LEVELS = {
    "gzip": (-1, 9, -1),
    "lz4": (1, 17, 9),
    "lz4-magic0": (1, 17, 9),
    "zstd": (-131072, 22, 3),
    "zstd-sized": (-131072, 22, 1),
}
