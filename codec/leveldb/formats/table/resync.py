"""Finding the blocks of a table by their checksums alone, where neither index nor footer says where they are.

A block has no mark at its start and no length before it; only behind it a type and a checksum. So for places where a block may
start and places where a checksum may lie, the checksum of all bytes before is brought to the end of the window, as if zeros
followed. What is stored behind a block, put together with that of all bytes before it, gives the very same number for the place
where the block starts: equal numbers are looked up in a sorted list, which takes linear time, whatever the bytes.

A number agrees by chance once in four billion pairs, so what is found is read too: a block has to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.crc32c import crc32c_combine, crc32c_update
from logwright.codec.kernels.intrinsics import load_u32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table.filter import BASE_LG, FILTER_END
from logwright.codec.leveldb.formats.table.layout import (
    KEY_TRAILER,
    MEASURES,
    NONE,
    RESTART_SIZE,
    SNAPPY,
    SOUND,
    TRAILER_SIZE,
    ZLIB_RAW,
    ZSTD,
    ZSTD_MAGIC,
    expand,
    measure,
    unmasked,
)
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Read = Callable[[int, int], Bytes]
"""`read(offset, length)`: so many bytes of the file, or fewer at its end."""

WINDOW = 1 << 20
LIMIT = 16 << 20
"""A block that is larger is not found this way."""
_CRC_SIZE = 4
_VERIFY = 8
"""What is found is read as long as all that takes is no more than so many times the window."""
_POSITION_BITS = 31
COMPRESSED = (SNAPPY, ZSTD, ZLIB_RAW)
_EMPTY_HEAD = b"\x00\x00\x00\x00\x01"
MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48


@kernel("const u1[], const i8[], const u1[], i8[]")
def numbers(buf: Bytes, places: Int64s, ends: Bytes, out: Int64s) -> None:
    """For each place the number that is the same where a block starts and where its checksum lies. `ends` says which are which."""
    crc = 0
    at = 0
    for i in range(len(places)):
        place = places[i]
        crc = crc32c_update(crc, buf, at, place)
        at = place
        here = crc ^ unmasked(load_u32le(buf, place)) if ends[i] else crc
        out[i] = crc32c_combine(here, 0, len(buf) - place)


def _at(data: Bytes, pattern: bytes) -> npt.NDArray[np.bool_]:
    """Where a pattern starts."""
    room = max(len(data) - len(pattern) + 1, 0)
    found = np.ones(room, np.bool_)
    for i, byte in enumerate(pattern):
        found &= data[i : i + room] == byte
    return found


def _starts(data: Bytes) -> Int64s:
    """Where the first entry of a block may be, which shares nothing and has a key of eight bytes at least; or what compressors make
    of that; or an empty block."""
    size = len(data)
    found = np.zeros(size + 16, np.bool_)
    found[: max(size - 1, 0)] = (data[:-1] == 0) & (data[1:] >= KEY_TRAILER)
    for pattern in (_EMPTY_HEAD, ZSTD_MAGIC):
        mask = _at(data, pattern)
        found[: len(mask)] |= mask
    # Zlib: the header of a stream (`block.is_zlib`). Raw deflate: any first block but a stored one, which saves nothing.
    header = data[:-1].astype(np.int64) << 8 | data[1:]
    found[: len(header)] |= (header & 0x8F00 == 0x0800) & (header % 31 == 0)
    found[:size] |= (data >> 1 & 3 == 1) | (data >> 1 & 3 == 2)
    # Snappy: the length as a varint, a literal (its length in the tag or behind it), of which the first byte is 0.
    padded = np.concatenate((data, np.full(16, 0xFF, np.uint8)))
    more, literal = padded >= 0x80, padded & 3 == 0
    zero = padded == 0
    first = np.zeros(size + 16, np.bool_)
    places = np.flatnonzero(literal[: size + 8])
    first[places] = zero[places + 1 + np.maximum(padded[places] >> 2, 59).astype(np.int64) - 59]
    head = np.ones(size, np.bool_)
    for length in range(1, 6):
        last = ~more[length - 1 : length - 1 + size]
        found[:size] |= head & last & first[length : length + size]
        head &= more[length - 1 : length - 1 + size]
    return np.flatnonzero(found[:size])


def _ends(data: Bytes) -> Int64s:
    """Where the checksum of a block may lie, behind its type: after what may be a number of restart points or the end of a filter,
    or after anything that may be compressed."""
    low = RESTART_SIZE + 1
    kind, before = data[low - 1 : -_CRC_SIZE], data[low - 2 : -_CRC_SIZE - 1]
    plain = np.flatnonzero((kind == NONE) & (before == 0)) + low
    count = sum(data[plain - low + i].astype(np.int64) << 8 * i for i in range(RESTART_SIZE))
    plain = plain[(count + 1) * RESTART_SIZE < plain]
    other = np.flatnonzero(((kind == NONE) & (before == BASE_LG)) | np.isin(kind, COMPRESSED)) + low
    return np.sort(np.concatenate((plain, other)))


def pairs(data: Bytes) -> tuple[Int64s, Int64s]:
    """Where blocks start whose checksum agrees, and where that checksum lies; of several the nearest."""
    ends = _ends(data)
    starts = np.union1d(_starts(data), np.concatenate((np.zeros(1, np.int64), ends + _CRC_SIZE)))
    starts = starts[starts <= len(data)]
    places = np.concatenate((starts, ends))
    order = np.argsort(places, kind="stable")
    found = np.empty(len(places), np.int64)
    kinds = np.concatenate((np.zeros(len(starts), np.uint8), np.ones(len(ends), np.uint8)))
    numbers(data, places[order], kinds[order], found)
    keyed = np.empty(len(places), np.int64)
    keyed[order] = found
    keyed = keyed << _POSITION_BITS | places
    left, right = keyed[: len(starts)], np.sort(keyed[len(starts) :])
    if not len(right):
        return starts[:0], ends
    nearest = np.minimum(np.searchsorted(right, left, "right"), len(right) - 1)
    match = (right[nearest] > left) & (right[nearest] >> _POSITION_BITS == left >> _POSITION_BITS)
    return starts[match], right[nearest[match]] & ((1 << _POSITION_BITS) - 1)


def is_filter(block: Bytes) -> bool:
    """Whether an uncompressed block is a filter block: no other has such a last byte, which is of the number of restart points."""
    end_size = FILTER_END.head_size
    if len(block) < end_size or block[-1] != BASE_LG:
        return False
    array = load_u32le(block, len(block) - end_size)
    return array <= len(block) - end_size and (len(block) - end_size - array) % 4 == 0


def is_block(contents: Bytes, kind: int, limit: int) -> bool:
    """Whether bytes whose checksum is right can be read as a block."""
    if kind == NONE and is_filter(contents):
        return True
    try:
        plain = expand(contents, kind, limit)
    except CompressionError:
        return False
    found = np.zeros(MEASURES, np.int64)
    return measure(plain, 0, len(plain), limit, found) == SOUND


def find(read: Read, low: int, high: int, size: int, limit: int) -> Iterator[tuple[int, int]]:
    """The blocks in `[low, high)` of a file of `size` bytes: (offset, size without trailer), in order.

    A table within a value of a damaged block has blocks too: those that lead to a footer which is not that of the file are left out.
    """
    at, step = low, WINDOW
    while high - at > TRAILER_SIZE:
        wanted = min(step, high - at)
        data = read(at, wanted)
        found, chained = _chains(data, limit)
        # The file may have become shorter.
        whole = len(data) < wanted or at + wanted >= high
        if not found and not whole and step < LIMIT:
            step = min(4 * step, LIMIT)
            continue
        for start, end in found:
            yield at + start, end - 1 - start
        if whole:
            return
        # What a window begins to hold is looked at again, whole, in the next.
        at += chained if found else len(data) // 2
        step = WINDOW


def _chains(data: Bytes, limit: int) -> tuple[list[tuple[int, int]], int]:
    """The blocks in a window, as (start, where the checksum lies), and where the last one ends with its trailer."""
    starts, ends = pairs(data)
    found: list[tuple[int, int]] = []
    chain: list[tuple[int, int]] = []
    at, budget = 0, _VERIFY * max(len(data), 1 << 16)
    broken = False
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start < at or budget < 0:
            continue
        budget -= end - start
        if not is_block(data[start : end - 1], int(data[end - 1]), limit):
            continue
        if start > at:
            found += _own(data, chain, broken)
            chain, broken = [], True
        chain.append((start, end))
        at = end + _CRC_SIZE
    found += _own(data, chain, broken)
    return found, at


def _own(data: Bytes, chain: list[tuple[int, int]], broken: bool) -> list[tuple[int, int]]:
    """A chain of blocks, unless it comes after damage and a footer follows it, which a table within a value has."""
    if chain and broken:
        behind = chain[-1][1] + _CRC_SIZE + _FOOTER
        if behind < len(data) and data[behind - len(MAGIC) : behind].tobytes() == MAGIC:
            return []
    return chain
