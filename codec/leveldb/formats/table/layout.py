"""Blocks of a table: what is in them, packed and unpacked.

A block is entries whose keys share their beginning with the key before, then the places where they don't (restart points), then
the number of these. What lies in the file is that, compressed or not, and five bytes: a type and a masked checksum.
Source: `table/block.cc`, `table/block_builder.cc`, `table/format.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from logwright.codec.describe import U32LE, UVARINT, UVARLONG, Field, Int, Struct
from logwright.codec.kernels.bitflip import UNMASK
from logwright.codec.kernels.compress import CompressionError, compress, decompress
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import (
    copy,
    load_i64le,
    load_u8,
    load_u32le,
    read_uvarint,
    read_uvarlong,
    store_32le,
    store_64le,
    write_uvarlong,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.snappy_blocks import decompress as uncompress
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

NONE, SNAPPY, ZSTD, ZLIB_RAW = 0, 1, 2, 4
ZLIB = ZSTD
"""Mojang's fork gave this number to zlib before LevelDB gave it to zstd. The first bytes of a block tell them apart."""
TYPES = {"none": NONE, "snappy": SNAPPY, "zstd": ZSTD, "zlib": ZLIB, "zlib_raw": ZLIB_RAW}
"""The type byte of each compression: those of LevelDB, and those of Mojang's fork (Minecraft), zlib with its header and raw deflate."""
COMPRESSION_NAMES = tuple(TYPES)
STREAMS = {"snappy": "snappy-raw", "zstd": "zstd-sized", "zlib": "zlib", "zlib_raw": "deflate"}
"""The names of the compressors (`codec.kernels.compress`)."""

TYPE = Int(
    1,
    signed=False,
    values={NONE: "none", SNAPPY: "snappy", ZSTD: "zstd, or zlib in Mojang's fork", ZLIB_RAW: "zlib_raw"},
)

ENTRY = Struct(
    "BlockEntry",
    Field("shared", UVARINT, "bytes that the key shares with the key before; 0 at a restart point"),
    Field("non_shared", UVARINT, "bytes of the key that follow"),
    Field("value_length", UVARINT, "bytes of the value"),
    doc="The start of an entry of a block; the rest of the key and the value follow.",
    source="BlockBuilder",
)
RESTART = Struct(
    "Restart", Field("offset", U32LE, "where an entry starts that shares nothing"), source="BlockBuilder"
)
TRAILER = Struct(
    "BlockTrailer",
    Field("type", TYPE, "how the block before is compressed"),
    Field("crc", U32LE, "masked CRC-32C of the block as it is stored and of the type"),
    doc="Five bytes behind every block.",
    source="kBlockTrailerSize",
)
BLOCK_HANDLE = Struct(
    "BlockHandle",
    Field("offset", UVARLONG, "byte of the file"),
    Field("size", UVARLONG, "bytes of the block as it is stored, without its trailer"),
    source="BlockHandle",
)
TRAILER_SIZE = TRAILER.head_size
RESTART_SIZE = RESTART.head_size
MIN_ENTRY = ENTRY.min_size
"""With fewer bytes left, there is no entry (`DecodeEntry`)."""
KEY_TRAILER = 8
"""Bytes of sequence and type at the end of an internal key."""
MAX_SEQUENCE = (1 << 56) - 1
MAX_TYPE = 1
"""The largest type of an internal key: 0 a deletion, 1 a value (`kTypeValue`)."""
LARGEST = (1 << 32) - 1
"""Keys and values are longer than this only by mistake: their lengths would be cut to 32 bits."""

_ROTATE = 15
_MASK = 0xA282EAD8
_LOW = 0xFFFFFFFF


@kernel("i8")
def masked(crc: int) -> int:
    """A checksum as it is stored (`crc32c::Mask`), so that checksums of bytes that hold checksums are no trouble."""
    return ((crc >> _ROTATE | crc << 32 - _ROTATE) + _MASK) & _LOW


@kernel("i8")
def unmasked(stored: int) -> int:
    """The checksum that is stored so."""
    rotated = (stored - _MASK) & _LOW
    return (rotated >> 32 - _ROTATE | rotated << _ROTATE) & _LOW


def stored_crc(data: bytes) -> int:
    """The checksum of bytes as it is stored: masked."""
    return int(masked(crc32c(np.frombuffer(data, np.uint8), 0, len(data))))


setattr(stored_crc, UNMASK, unmasked)


@kernel("const u1[], i8, i8", brief=True)
def block_crc(buf: Bytes, at: int, size: int) -> int:
    """The checksum to be stored for the block of `size` bytes at `at` and its type, which are in the buffer."""
    return masked(crc32c(buf, at, at + size + 1))


# Reading. Why a block is read no further (`Block::NewIterator`, `DecodeEntry`, `ParseNextKey`):
SOUND, BAD_CONTENTS, BAD_ENTRY, TOO_LARGE = range(4)
MESSAGES = ("", "bad block contents", "bad entry in block", "the keys of the block are too large")

ENTRIES, KEY_BYTES, VALUE_BYTES, STATUS, STOPPED, INTERVAL, RESTARTS = range(7)
"""What `measure` says of a block: entries; bytes of their whole keys and of their values; why and where it is read no further;
entries from the first restart point to the second, or 0; where the restart points start."""
MEASURES = 7


@kernel("const u1[], i8, i8, i8, i8[]", brief=True)
def measure(buf: Bytes, start: int, end: int, limit: int, out: Int64s) -> int:
    """Go over the block `buf[start:end]`, uncompressed: puts `MEASURES` numbers into `out`, and returns why it stopped.

    All keys and values together may take `limit` bytes: keys that share everything make many bytes of few.
    """
    for i in range(MEASURES):
        out[i] = 0
    out[STOPPED] = start
    if end - start < RESTART_SIZE:
        out[STATUS] = BAD_CONTENTS
        return BAD_CONTENTS
    count = load_u32le(buf, end - RESTART_SIZE)
    if count > (end - start - RESTART_SIZE) // RESTART_SIZE:
        out[STATUS] = BAD_CONTENTS
        return BAD_CONTENTS
    stop = end - RESTART_SIZE - count * RESTART_SIZE
    out[RESTARTS] = stop
    if count == 0:
        return SOUND
    at = start + load_u32le(buf, stop)
    second = start + load_u32le(buf, stop + RESTART_SIZE) if count > 1 else -1
    length = 0
    total = 0
    status = SOUND
    while at < stop:
        if at == second and out[INTERVAL] == 0:
            out[INTERVAL] = out[ENTRIES]
        entry = at
        if stop - at < MIN_ENTRY:
            status = BAD_ENTRY
            break
        shared = load_u8(buf, at)
        fresh = load_u8(buf, at + 1)
        size = load_u8(buf, at + 2)
        if shared | fresh | size < 0x80:
            at += MIN_ENTRY  # as in `DecodeEntry`: most lengths are short
        else:
            fresh = 0
            size = 0
            shared, at = read_uvarint(buf, at, stop)
            if at >= 0:
                fresh, at = read_uvarint(buf, at, stop)
            if at >= 0:
                size, at = read_uvarint(buf, at, stop)
        if at < 0 or fresh > stop - at or size > stop - at - fresh or shared > length:
            status = BAD_ENTRY
            at = entry
            break
        length = shared + fresh
        total += length + size
        if total > limit:
            status = TOO_LARGE
            at = entry
            break
        out[ENTRIES] += 1
        out[KEY_BYTES] += length
        out[VALUE_BYTES] += size
        at += fresh + size
    if status == SOUND and at > stop:
        at = stop  # the first restart point lies behind all entries: there are none
    out[STATUS] = status
    out[STOPPED] = at
    return status


@kernel("const u1[], i8, i8, u1[], i8[], i8[], u1[], i8[], i8[]")
def unpack(
    buf: Bytes,
    first: int,
    stop: int,
    keys: Bytes,
    key_ends: Int64s,
    trailers: Int64s,
    values: Bytes,
    value_ends: Int64s,
    state: Int64s,
) -> int:
    """Unpack the entries in `buf[first:stop]` of a block that was measured: internal keys and values.

    `key_ends[0]` and `value_ends[0]` are where the arrays go on. User keys go to `keys`, which needs room for eight bytes more;
    sequence and type to `trailers`. Entries whose internal key is bad are left out: `state[0]` counts them. Returns the rows.
    """
    row = 0
    skipped = 0
    key_at = key_ends[0]
    value_at = value_ends[0]
    before = key_at
    at = first
    while at < stop:
        shared, at = read_uvarint(buf, at, stop)
        fresh, at = read_uvarint(buf, at, stop)
        size, at = read_uvarint(buf, at, stop)
        # The key before is overwritten from its own trailer on: the copy minds that.
        copy(keys, key_at, keys, before, shared)
        copy(keys, key_at + shared, buf, at, fresh)
        at += fresh
        length = shared + fresh
        before = key_at
        if length < KEY_TRAILER:
            skipped += 1
            at += size
            continue
        trailer = load_i64le(keys, key_at + length - KEY_TRAILER)
        if trailer & 0xFF > MAX_TYPE:
            skipped += 1
            at += size
            continue
        copy(values, value_at, buf, at, size)
        at += size
        key_at += length - KEY_TRAILER
        value_at += size
        trailers[row] = trailer
        row += 1
        key_ends[row] = key_at
        value_ends[row] = value_at
    state[0] = skipped
    return row


@kernel("const u1[], const i8[], const i8[], i8, i8[]")
def measure_all(buf: Bytes, starts: Int64s, ends: Int64s, limit: int, out: Int64s) -> None:
    """`measure` for many blocks, one after the other."""
    for i in range(len(starts)):
        measure(buf, starts[i], ends[i], limit, out[i * MEASURES : (i + 1) * MEASURES])


@kernel("const u1[], const i8[], const i8[], i8, i8, i8[]")
def measure_some(
    buf: Bytes, starts: Int64s, ends: Int64s, limit: int, most: int, out: Int64s
) -> tuple[int, int, int, int, int]:
    """`measure_all` for as many blocks as have `most` bytes of keys and values together, one at least.

    Returns how many, of them together entries, bytes of keys and of values, and how many can't be read from their start to their end.
    """
    entries = keys = values = wrong = 0
    for i in range(len(starts)):
        at = i * MEASURES
        status = measure(buf, starts[i], ends[i], limit, out[at : at + MEASURES])
        if i > 0 and keys + values + out[at + KEY_BYTES] + out[at + VALUE_BYTES] > most:
            return i, entries, keys, values, wrong
        entries += out[at + ENTRIES]
        keys += out[at + KEY_BYTES]
        values += out[at + VALUE_BYTES]
        stop = out[at + RESTARTS]
        if status != SOUND or load_u32le(buf, stop) != 0:
            wrong += 1
        elif stop == ends[i] - RESTART_SIZE and stop > starts[i]:
            wrong += 1  # it has entries and no restart point
    return len(starts), entries, keys, values, wrong


@kernel("const u1[], const i8[], const i8[], u1[], i8[], i8[], u1[], i8[], i8[], i8[]")
def unpack_all(
    buf: Bytes,
    starts: Int64s,
    found: Int64s,
    keys: Bytes,
    key_ends: Int64s,
    trailers: Int64s,
    values: Bytes,
    value_ends: Int64s,
    per_block: Int64s,
    skipped: Int64s,
) -> int:
    """`unpack` for many blocks that were measured. Returns the rows; `per_block` and `skipped` are for each block."""
    row = 0
    for i in range(len(starts)):
        at = i * MEASURES
        per_block[i] = 0
        skipped[i] = 0
        if found[at + ENTRIES] > 0:
            per_block[i] = unpack(
                buf,
                starts[i] + load_u32le(buf, found[at + RESTARTS]),
                found[at + STOPPED],
                keys,
                key_ends[row:],
                trailers[row:],
                values,
                value_ends[row:],
                skipped[i : i + 1],
            )
            row += per_block[i]
    return row


@kernel("const u1[], const i8[], const i8[], u1[], i4[], u1[], i4[], i8[], u1[], i8[], i8[]")
def unpack_rows(
    buf: Bytes,
    starts: Int64s,
    found: Int64s,
    keys: Bytes,
    key_ends: Int32s,
    values: Bytes,
    value_ends: Int32s,
    sequences: Int64s,
    kinds: Bytes,
    per_block: Int64s,
    skipped: Int64s,
) -> tuple[int, int]:
    """`unpack_all` straight into the columns of rows: offsets have 32 bits, sequence and type are apart. Returns the rows, and how
    many of them are deletions."""
    row = 0
    deletions = 0
    key_at = 0
    value_at = 0
    key_ends[0] = 0
    value_ends[0] = 0
    for i in range(len(starts)):
        block = i * MEASURES
        first_row = row
        skipped[i] = 0
        stop = found[block + STOPPED]
        at = stop
        if found[block + ENTRIES] > 0:
            at = starts[i] + load_u32le(buf, found[block + RESTARTS])
        before = key_at
        while at < stop:
            shared = load_u8(buf, at)
            fresh = load_u8(buf, at + 1)
            size = load_u8(buf, at + 2)
            if shared | fresh | size < 0x80:
                at += MIN_ENTRY
            else:
                shared, at = read_uvarint(buf, at, stop)
                fresh, at = read_uvarint(buf, at, stop)
                size, at = read_uvarint(buf, at, stop)
            copy(keys, key_at, keys, before, shared)
            copy(keys, key_at + shared, buf, at, fresh)
            at += fresh
            length = shared + fresh
            before = key_at
            trailer = MAX_TYPE + 1
            if length >= KEY_TRAILER:
                trailer = load_i64le(keys, key_at + length - KEY_TRAILER)
            kind = trailer & 0xFF
            if kind > MAX_TYPE:
                skipped[i] += 1
                at += size
                continue
            copy(values, value_at, buf, at, size)
            at += size
            key_at += length - KEY_TRAILER
            value_at += size
            sequences[row] = trailer >> 8 & MAX_SEQUENCE
            kinds[row] = kind
            deletions += 1 - kind
            row += 1
            key_ends[row] = key_at
            value_ends[row] = value_at
        per_block[i] = row - first_row
    return row, deletions


@kernel("const u1[], i8, i8, u1[], i8[], u1[], i8[]", brief=True)
def unpack_plain(
    buf: Bytes, first: int, stop: int, keys: Bytes, key_ends: Int64s, values: Bytes, value_ends: Int64s
) -> int:
    """The same for the whole keys as they are: of the index, whose values are handles, and of the metaindex. Returns the entries."""
    row = 0
    key_at = 0
    value_at = 0
    before = 0
    at = first
    while at < stop:
        shared, at = read_uvarint(buf, at, stop)
        fresh, at = read_uvarint(buf, at, stop)
        size, at = read_uvarint(buf, at, stop)
        copy(keys, key_at, keys, before, shared)
        copy(keys, key_at + shared, buf, at, fresh)
        before = key_at
        key_at += shared + fresh
        copy(values, value_at, buf, at + fresh, size)
        at += fresh + size
        value_at += size
        row += 1
        key_ends[row] = key_at
        value_ends[row] = value_at
    return row


@kernel("const u1[], const i8[], i8[], i8[]", brief=True)
def read_handles(values: Bytes, ends: Int64s, offsets: Int64s, sizes: Int64s) -> None:
    """The handle at the start of each value, `values[ends[i] : ends[i + 1]]`; -1 where there is none, or it is beyond 63 bits."""
    for i in range(len(offsets)):
        offset, at = read_uvarlong(values, ends[i], ends[i + 1])
        size = -1
        if at >= 0:
            size, at = read_uvarlong(values, at, ends[i + 1])
        good = at >= 0 and offset >= 0 and size >= 0
        offsets[i] = offset if good else -1
        sizes[i] = size if good else -1


class Slices(Sequence[bytes]):
    """Many byte strings that lie one after the other."""

    def __init__(self, data: Bytes, ends: Int64s) -> None:
        self.data, self.ends = data, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, i: int) -> bytes: ...
    @overload
    def __getitem__(self, i: slice) -> list[bytes]: ...
    def __getitem__(self, i: int | slice) -> bytes | list[bytes]:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.data[int(self.ends[i]) : int(self.ends[i + 1])].tobytes()


NOTHING = Slices(np.empty(0, np.uint8), np.zeros(1, np.int64))


def entries(plain: Bytes, limit: int) -> tuple[Slices, Slices, int]:
    """Keys and values of an uncompressed block, as far as it can be read, and why no further."""
    found = np.zeros(MEASURES, np.int64)
    status = measure(plain, 0, len(plain), limit, found)
    count = int(found[ENTRIES])
    keys, values = np.empty(int(found[KEY_BYTES]), np.uint8), np.empty(int(found[VALUE_BYTES]), np.uint8)
    ends, stops = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    if count:
        first = load_u32le(plain, int(found[RESTARTS]))
        unpack_plain(plain, first, int(found[STOPPED]), keys, ends, values, stops)
    return Slices(keys, ends), Slices(values, stops), int(status)


# Writing


@kernel("const u1[], i8, i8, const u1[], i8, i8")
def common(a: Bytes, a_at: int, a_end: int, b: Bytes, b_at: int, b_end: int) -> int:
    """How many first bytes of two ranges, which are within their buffers, are the same."""
    most = min(a_end - a_at, b_end - b_at)
    n = 0
    while most - n >= 8 and load_i64le(a, a_at + n) == load_i64le(b, b_at + n):
        n += 8
    while n < most and load_u8(a, a_at + n) == load_u8(b, b_at + n):
        n += 1
    return n


@kernel("i8, i8, const i8[], const u1[], const i8[], const i8[], const u1[], i8, i8, u1[], i8, i8[], u1[]")
def pack(
    row: int,
    rows: int,
    key_ends: Int64s,
    key_data: Bytes,
    trailers: Int64s,
    value_ends: Int64s,
    value_data: Bytes,
    interval: int,
    block_size: int,
    out: Bytes,
    at: int,
    restarts: Int64s,
    scratch: Bytes,
) -> tuple[int, int]:
    """Write one block at `at`: entries of the rows from `row` on, until it is `block_size` bytes or all `rows` are in it.

    Returns the row behind its last one, and where it ends. `out` has room for it, `restarts` for a place for each row, and
    `scratch` for two internal keys of any of the rows.
    """
    begin = at
    restarts[0] = 0
    points = 1
    counter = 0
    half = len(scratch) // 2
    now = 0
    before = half
    before_size = 0
    while row < rows:
        user = key_ends[row + 1] - key_ends[row]
        copy(scratch, now, key_data, key_ends[row], user)
        store_64le(scratch, now + user, trailers[row])
        size = user + KEY_TRAILER
        shared = 0
        if counter < interval:
            shared = common(scratch, before, before + before_size, scratch, now, now + size)
        else:
            restarts[points] = at - begin
            points += 1
            counter = 0
        value = value_ends[row + 1] - value_ends[row]
        at = write_uvarlong(out, at, shared)
        at = write_uvarlong(out, at, size - shared)
        at = write_uvarlong(out, at, value)
        copy(out, at, scratch, now + shared, size - shared)
        at += size - shared
        copy(out, at, value_data, value_ends[row], value)
        at += value
        counter += 1
        row += 1
        now, before = before, now
        before_size = size
        if block_size > 0 and at - begin + RESTART_SIZE * (points + 1) >= block_size:
            break
    for i in range(points):
        at = store_32le(out, at, restarts[i])
    return row, store_32le(out, at, points)


def pack_entries(pairs: list[tuple[bytes, bytes]], interval: int) -> bytes:
    """A small block of whole keys, in Python: the index (with an interval of 1), the metaindex, and the reference for `pack`."""
    out = bytearray()
    restarts = [0]
    counter, before = 0, b""
    for key, value in pairs:
        shared = 0
        if counter < interval:
            most = min(len(before), len(key))
            while shared < most and before[shared] == key[shared]:
                shared += 1
        else:
            restarts.append(len(out))
            counter = 0
        head = {"shared": shared, "non_shared": len(key) - shared, "value_length": len(value)}
        out += ENTRY.pack(head) + key[shared:] + value
        counter, before = counter + 1, key
    for place in [*restarts, len(restarts)]:
        out += RESTART.pack({"offset": place})
    return bytes(out)


# As it is stored


def stored(plain: Bytes | bytes, compression: str, level: int | None = None) -> tuple[int, Any]:
    """The type and the bytes to be stored: compressed where that saves more than an eighth (`TableBuilder::WriteBlock`)."""
    if compression != "none":
        level = level if compression == "zstd" else None
        small = compress(STREAMS[compression], np.frombuffer(plain, np.uint8), level=level)
        if len(small) < len(plain) - len(plain) // 8:
            return TYPES[compression], small
    return NONE, plain


def sealed(contents: Any, kind: int) -> bytes:
    """A block with its trailer, as it lies in the file."""
    data = bytes(contents) + bytes((kind,))
    crc = masked(crc32c(np.frombuffer(data, np.uint8), 0, len(data)))
    return data + crc.to_bytes(4, "little")


def _snappy(data: Bytes, limit: int) -> Bytes:
    _, after = read_uvarint(data, 0, len(data))
    if after < 0:
        raise CompressionError("corrupted snappy compressed block length")
    try:
        return decompress("snappy-raw", data, limit)
    except CompressionError as error:
        raise _named(error, "corrupted snappy compressed block contents") from None


def _zstd(data: Bytes, limit: int) -> Bytes:
    import zstandard

    try:
        size = zstandard.frame_content_size(data)  # type: ignore[arg-type]
    except zstandard.ZstdError as error:
        raise CompressionError(f"corrupted zstd compressed block length ({error})") from None
    if size <= 0:
        raise CompressionError("corrupted zstd compressed block length")
    try:
        return decompress("zstd", data, limit)
    except CompressionError as error:
        raise _named(error, "corrupted zstd compressed block contents") from None


def _named(error: CompressionError, message: str) -> CompressionError:
    return type(error)(f"{message} ({error})")


def _zlib(data: Bytes, limit: int) -> Bytes:
    return _inflated("zlib", data, limit)


def _zlib_raw(data: Bytes, limit: int) -> Bytes:
    return _inflated("deflate", data, limit)


def _inflated(name: str, data: Bytes, limit: int) -> Bytes:
    try:
        return decompress(name, data, limit)
    except CompressionError as error:
        raise _named(error, "corrupted compressed block contents") from None


_EXPAND: dict[str, Callable[[Bytes, int], Bytes]] = {
    "snappy": _snappy,
    "zstd": _zstd,
    "zlib": _zlib,
    "zlib_raw": _zlib_raw,
}
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
HEAD_SIZE = len(ZSTD_MAGIC)
"""Bytes of a stored block that `compression_of` needs."""


ANOTHER_PROGRAM = "the checksum is right, so another program wrote it, and only that can read it"


class UnknownTypeError(CompressionError):
    """A block of a type that is not read here. Under a right checksum it is no damage: another program wrote it."""


def compression_of(contents: Bytes, kind: int) -> str | None:
    """The name of how a block is compressed, from its type byte and its first bytes; None if it is not known.

    The first two bytes of a zlib stream (RFC 1950) and those of a zstd frame differ, so that type 2 is not ambiguous.
    """
    if kind != ZSTD:
        return _NAMES.get(kind)
    head = contents[:HEAD_SIZE].tobytes()
    if is_zlib(head):
        return "zlib"
    return "zstd" if head == ZSTD_MAGIC[: len(head)] else None


_NAMES = {kind: name for name, kind in TYPES.items() if kind != ZSTD}


def is_zlib(head: bytes) -> bool:
    """Whether bytes start like a zlib stream: deflate, a window of 32 KiB at most, a right check value, no preset dictionary."""
    return (
        len(head) >= 2
        and head[0] & 0x8F == 0x08
        and (head[0] << 8 | head[1]) % 31 == 0
        and not head[1] & 0x20
    )


def expand(contents: Bytes, kind: int, limit: int) -> Bytes:
    """The block uncompressed, `limit` bytes at most. Raises CompressionError with the message of LevelDB, or of Mojang's fork;
    UnknownTypeError for a type that is not known."""
    if kind == NONE:
        return contents
    name = compression_of(contents, kind)
    if name is None:
        what = ", and the bytes are neither zstd nor zlib" if kind == ZSTD else ""
        raise UnknownTypeError(f"bad block type ({kind}){what}: {ANOTHER_PROGRAM}")
    return _EXPAND[name](contents, limit)


def expand_zstd(contents: Bytes, limit: int) -> Bytes:
    """A block of type 2 as LevelDB itself reads it, which knows no zlib. Raises CompressionError with its message."""
    return _zstd(contents, limit)


@kernel("const u1[], const i8[], const i8[], const u1[], u1[], const i8[], u1[]")
def expand_all(
    buf: Bytes, starts: Int64s, ends: Int64s, kinds: Bytes, out: Bytes, bounds: Int64s, good: Bytes
) -> None:
    """Many blocks uncompressed, of which block `i` becomes `out[bounds[i] : bounds[i + 1]]`; their types are `NONE` or `SNAPPY`.
    `good[i]` is whether that could be done."""
    for i in range(len(good)):
        good[i] = 1
        if kinds[i] == NONE:
            copy(out, bounds[i], buf, starts[i], ends[i] - starts[i])
        elif uncompress(buf, starts[i], ends[i], out, bounds[i], bounds[i + 1]) < 0:
            good[i] = 0


def handle(offset: int, size: int) -> bytes:
    """A block handle as it is stored."""
    return BLOCK_HANDLE.pack({"offset": offset, "size": size})
