"""Blocks of a table: packing and unpacking their contents.

A block has entries whose keys share a prefix with the previous key, then the positions of those that share nothing (restart points), then
their number. It is stored compressed or not, followed by five bytes: a type and a masked checksum. Source: `table/block.cc`,
`table/block_builder.cc`, `table/format.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.describe import U32LE, UVARINT, UVARLONG, Field, Int, Struct
from logwright.codec.kernels.bitflip import UNMASK
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
from logwright.codec.window import Bytes

NONE, SNAPPY, ZSTD, ZLIB_RAW = 0, 1, 2, 4
ZLIB = ZSTD
"""Mojang's fork used this number for zlib before LevelDB used it for zstd. The first bytes of a block distinguish them."""
TYPES = {"none": NONE, "snappy": SNAPPY, "zstd": ZSTD, "zlib": ZLIB, "zlib_raw": ZLIB_RAW}
"""The type byte of each compression: those of LevelDB, and those of Mojang's fork (Minecraft), which are zlib with its header and raw
deflate."""
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
    Field("shared", UVARINT, "bytes that the key shares with the previous key; 0 at a restart point"),
    Field("non_shared", UVARINT, "bytes of the key that follow"),
    Field("value_length", UVARINT, "bytes of the value"),
    doc="The start of an entry of a block; the rest of the key and the value follow.",
    source="BlockBuilder",
)
RESTART = Struct(
    "Restart",
    Field("offset", U32LE, "position of an entry that shares no bytes with the previous key"),
    source="BlockBuilder",
)
TRAILER = Struct(
    "BlockTrailer",
    Field("type", TYPE, "compression of the block"),
    Field("crc", U32LE, "masked CRC-32C of the stored block and of the type"),
    doc="Five bytes after every block.",
    source="kBlockTrailerSize",
)
BLOCK_HANDLE = Struct(
    "BlockHandle",
    Field("offset", UVARLONG, "byte of the file"),
    Field("size", UVARLONG, "bytes of the stored block, without its trailer"),
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
"""Longer keys and values are rejected, since their lengths would be truncated to 32 bits."""

_ROTATE = 15
_MASK = 0xA282EAD8
_LOW = 0xFFFFFFFF


@kernel("i8")
def masked(crc: int) -> int:
    """Mask a checksum for storage (`crc32c::Mask`), since a checksum over bytes that contain checksums is problematic."""
    return ((crc >> _ROTATE | crc << 32 - _ROTATE) + _MASK) & _LOW


@kernel("i8")
def unmasked(stored: int) -> int:
    """Unmask a stored checksum."""
    rotated = (stored - _MASK) & _LOW
    return (rotated >> 32 - _ROTATE | rotated << _ROTATE) & _LOW


def stored_crc(data: bytes) -> int:
    """Return the masked checksum of bytes."""
    return int(masked(crc32c(np.frombuffer(data, np.uint8), 0, len(data))))


setattr(stored_crc, UNMASK, unmasked)


@kernel("const u1[], i8, i8", brief=True)
def block_crc(buf: Bytes, at: int, size: int) -> int:
    """Return the checksum to store for the block of `size` bytes at `at` and its type, which are in the buffer."""
    return masked(crc32c(buf, at, at + size + 1))


def is_sealed(block: Bytes) -> bool:
    """Return whether the checksum of a block with its trailer is right."""
    size = len(block) - TRAILER_SIZE
    return bool(block_crc(block, 0, size) == load_u32le(block, size + 1))


# Reading. Why a block is read no further (`Block::NewIterator`, `DecodeEntry`, `ParseNextKey`):
SOUND, BAD_CONTENTS, BAD_ENTRY, TOO_LARGE = range(4)
MESSAGES = ("", "bad block contents", "bad entry in block", "the keys of the block are too large")

ENTRIES, KEY_BYTES, VALUE_BYTES, STATUS, STOPPED, INTERVAL, RESTARTS = range(7)
"""The measures of a block: entries; bytes of their full keys and of their values; why and where reading stops; entries from the first
restart point to the second, or 0; where the restart points start."""
MEASURES = 7


@kernel("const u1[], i8, i8, i8, i8[]", brief=True)
def measure(buf: Bytes, start: int, end: int, limit: int, out: Int64s) -> int:
    """Measure the uncompressed block `buf[start:end]`. Writes `MEASURES` numbers to `out` and returns why reading stops.

    All keys and values together may take `limit` bytes. Keys that share everything expand a few bytes to very many.
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
        at = stop  # the first restart point is after all entries: the block is empty
    out[STATUS] = status
    out[STOPPED] = at
    return status


@kernel("const u1[], const i8[], const i8[], i8, i8[]")
def measure_all(buf: Bytes, starts: Int64s, ends: Int64s, limit: int, out: Int64s) -> None:
    """Measure many blocks."""
    for i in range(len(starts)):
        measure(buf, starts[i], ends[i], limit, out[i * MEASURES : (i + 1) * MEASURES])


@kernel("const u1[], const i8[], const i8[], i8, i8, i8[]")
def measure_some(
    buf: Bytes, starts: Int64s, ends: Int64s, limit: int, most: int, out: Int64s
) -> tuple[int, int, int, int, int]:
    """Measure blocks until they have `most` bytes of keys and values together, but at least one block.

    Returns the number of blocks, their entries, bytes of keys and of values, and the number of blocks that cannot be read completely.
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
            wrong += 1  # it has entries but no restart point
    return len(starts), entries, keys, values, wrong


@kernel("const u1[], const i8[], const i8[], u1[], i4[], u1[], i4[], i8[], u1[], i8[], i8[]")
def unpack_rows(
    buf: Bytes,
    starts: Int64s,
    measures: Int64s,
    keys: Bytes,
    key_ends: Int32s,
    values: Bytes,
    value_ends: Int32s,
    sequences: Int64s,
    kinds: Bytes,
    per_block: Int64s,
    skipped: Int64s,
) -> tuple[int, int]:
    """Unpack many measured blocks into the columns of rows: with 32-bit offsets, and sequence and type separated. Returns the number of
    rows, and of deletions among them.

    User keys go to `keys`, which needs room for eight more bytes. Entries with a bad internal key are skipped. `per_block` and `skipped`
    have a number for each block.
    """
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
        stop = measures[block + STOPPED]
        at = stop
        if measures[block + ENTRIES] > 0:
            at = starts[i] + load_u32le(buf, measures[block + RESTARTS])
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
    """Unpack full keys as they are, for the index, whose values are handles, and the metaindex. Returns the number of entries."""
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
    """Read the handle at the start of each value, `values[ends[i] : ends[i + 1]]`; -1 for a value without one, or if it exceeds 63 bits."""
    for i in range(len(offsets)):
        offset, at = read_uvarlong(values, ends[i], ends[i + 1])
        size = -1
        if at >= 0:
            size, at = read_uvarlong(values, at, ends[i + 1])
        good = at >= 0 and offset >= 0 and size >= 0
        offsets[i] = offset if good else -1
        sizes[i] = size if good else -1


class Slices(Sequence[bytes]):
    """Byte strings stored one after the other."""

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


def handles_of(values: Slices) -> tuple[Int64s, Int64s]:
    """Return offsets and sizes of the handles at the start of values: see `read_handles`."""
    offsets, sizes = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    read_handles(values.data, values.ends, offsets, sizes)
    return offsets, sizes


NOTHING = Slices(np.empty(0, np.uint8), np.zeros(1, np.int64))


def entries(plain: Bytes, limit: int) -> tuple[Slices, Slices, int]:
    """Return keys and values of an uncompressed block as far as it can be read, and why reading stops."""
    measures = np.zeros(MEASURES, np.int64)
    status = measure(plain, 0, len(plain), limit, measures)
    count = int(measures[ENTRIES])
    keys, values = (
        np.empty(int(measures[KEY_BYTES]), np.uint8),
        np.empty(int(measures[VALUE_BYTES]), np.uint8),
    )
    ends, stops = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    if count:
        first = load_u32le(plain, int(measures[RESTARTS]))
        unpack_plain(plain, first, int(measures[STOPPED]), keys, ends, values, stops)
    return Slices(keys, ends), Slices(values, stops), int(status)


# Writing


@kernel("const u1[], i8, i8, const u1[], i8, i8")
def common(a: Bytes, a_at: int, a_end: int, b: Bytes, b_at: int, b_end: int) -> int:
    """Return the length of the common prefix of two ranges within their buffers."""
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
    """Write a block at `at`: entries of the rows from `row` on, until it has `block_size` bytes or the `rows` rows end.

    Returns the row after its last one, and where the block ends. `out` has room for it, `restarts` for an entry for each row, and `scratch`
    for two internal keys of any of the rows.
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
    """Pack a small block of full keys in Python: the index (with an interval of 1), the metaindex, and the reference for `pack`."""
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


def handle(offset: int, size: int) -> bytes:
    """Return a stored block handle."""
    return BLOCK_HANDLE.pack({"offset": offset, "size": size})
