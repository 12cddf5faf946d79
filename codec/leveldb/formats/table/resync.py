"""Find the blocks of a table by their checksums alone, if neither index nor footer gives their positions.

A block has no marker at its start and no length before it, only a type and a checksum after it. For each place where a block may start, the
checksum of the rest of the window is computed. Where a checksum may be stored, it is combined with that of the bytes from there on, which
gives the same number as for the place where its block starts. Equal numbers are looked up in a sorted list, which takes linear time for any
input.

A pair matches at random once in four billion, so each match must also be readable as a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.crc32c import POLYNOMIAL, crc32c_combine
from logwright.codec.kernels.intrinsics import load_u8, load_u32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table import layout
from logwright.codec.leveldb.formats.table.compression import ZSTD_MAGIC, expand
from logwright.codec.leveldb.formats.table.filter import BASE_LG, FILTER_END
from logwright.codec.leveldb.formats.table.layout import measure, unmasked
from logwright.codec.window import Bytes

Read = Callable[[int, int], Bytes]
"""`read(offset, length)` returns `length` bytes of the file, or fewer at its end."""

WINDOW = 1 << 20
LIMIT = 16 << 20
"""Maximum size of a block that is found this way."""
_CRC_SIZE = 4
_BEFORE_END = layout.RESTART_SIZE + 1
"""Bytes before a checksum that are evidence of it: the number of restart points and the type."""
_PART = 1 << 20
"""Number of bytes in which places are looked for at a time."""
_COMPILED = 1 << 17
"""Bytes from which `numbers` is compiled: interpreted, it takes far longer for a byte than other kernels, as it goes from bit to bit."""
_AHEAD = 16
"""Bytes that are evidence of a start."""
_VERIFY = 8
"""Limit for reading candidate blocks, in multiples of the window size."""
_POSITION_BITS = 31
_POSITION = (1 << _POSITION_BITS) - 1
COMPRESSED = (layout.SNAPPY, layout.ZSTD, layout.ZLIB_RAW)
_EMPTY_HEAD = b"\x00\x00\x00\x00\x01"
MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48


@kernel("const u1[], const i8[], const u1[], i8[]")
def numbers(buf: Bytes, places: Int64s, ends: Bytes, out: Int64s) -> None:
    """Compute for each place, in order, the number that is equal at the start of a block and at its checksum. `ends` says which kind a
    place is."""
    at = len(buf)
    ones = 0xFFFFFFFF
    # The raw checksum of the rest from 0, what the inverted start of a checksum contributes to it, and the factor of the next byte before.
    rest, inverted, factor = 0, ones, POLYNOMIAL
    for i in range(len(places) - 1, -1, -1):
        place = places[i]
        while at > place:
            at -= 1
            byte = load_u8(buf, at)
            for bit in range(7, -1, -1):
                rest ^= factor & -(byte >> bit & 1)
                factor = (factor >> 1) ^ (POLYNOMIAL & -(factor & 1))
                inverted = (inverted >> 1) ^ (POLYNOMIAL & -(inverted & 1))
        out[i] = rest ^ inverted ^ ones
        if ends[i]:
            out[i] = crc32c_combine(unmasked(load_u32le(buf, place)), out[i], len(buf) - place)


def _at(data: Bytes, pattern: bytes) -> Bools:
    """Return where a pattern starts."""
    room = max(len(data) - len(pattern) + 1, 0)
    matches = np.ones(room, np.bool_)
    for i, byte in enumerate(pattern):
        matches &= data[i : i + room] == byte
    return matches


def _starts(data: Bytes) -> Int64s:
    """Return where the first entry of a block may start, which shares nothing and has a key of at least eight bytes; or the compressed
    form of one; or an empty block."""
    size = len(data)
    starts = np.zeros(size + 16, np.bool_)
    starts[: max(size - 1, 0)] = (data[:-1] == 0) & (data[1:] >= layout.KEY_TRAILER)
    for pattern in (_EMPTY_HEAD, ZSTD_MAGIC):
        mask = _at(data, pattern)
        starts[: len(mask)] |= mask
    # Zlib: the header of a stream (`layout.is_zlib`). Raw deflate: any first block except a stored one, which saves nothing.
    header = data[:-1].astype(np.uint16) << 8 | data[1:]
    starts[: len(header)] |= (header & 0x8F00 == 0x0800) & (header % 31 == 0)
    starts[:size] |= (data >> 1 & 3 == 1) | (data >> 1 & 3 == 2)
    # Snappy: the length as a varint, which is not 0, a literal (its length in the tag or after it), whose first byte is 0.
    padded = np.concatenate((data, np.full(16, 0xFF, np.uint8)))
    more, literal = padded >= 0x80, padded & 3 == 0
    zero = padded == 0
    first = np.zeros(size + 16, np.bool_)
    places = np.flatnonzero(literal[: size + 8])
    first[places] = zero[places + 1 + np.maximum(padded[places] >> 2, 59).astype(np.int64) - 59]
    head = data != 0
    for length in range(1, 6):
        last = ~more[length - 1 : length - 1 + size]
        starts[:size] |= head & last & first[length : length + size]
        head &= more[length - 1 : length - 1 + size]
    return np.flatnonzero(starts[:size])


def _ends(data: Bytes, skipped: int) -> Int64s:
    """Return where the checksum of a block may be stored, after its type: after a plausible number of restart points or the end of a
    filter, or after anything that may be compressed. `skipped` is the number of bytes of the window before `data`.

    Zeros have no ends, so that a hole takes little time: no restart point, the type 0 and a checksum of 0 are not taken for one.
    """
    low = _BEFORE_END
    kind, before = data[low - 1 : -_CRC_SIZE], data[low - 2 : -_CRC_SIZE - 1]
    around = (data[i : i + len(kind)] for i in range(low + _CRC_SIZE))
    plain = (
        np.flatnonzero((kind == layout.NONE) & (before == 0) & reduce(np.bitwise_or, around).astype(np.bool_))
        + low
    )
    count = sum(data[plain - low + i].astype(np.int64) << 8 * i for i in range(layout.RESTART_SIZE))
    plain = plain[(count + 1) * layout.RESTART_SIZE < plain + skipped]
    other = np.flatnonzero(((kind == layout.NONE) & (before == BASE_LG)) | np.isin(kind, COMPRESSED)) + low
    return np.sort(np.concatenate((plain, other)))


def _candidates(data: Bytes) -> tuple[Int64s, Int64s]:
    """Return the results of `_starts` and `_ends`, computed in parts, as they take many times the memory of their input."""
    starts, ends = [np.zeros(1, np.int64)], []
    for at in range(0, max(len(data), 1), _PART):
        part = _starts(data[at : at + _PART + _AHEAD])
        starts.append(part[part < _PART] + at)
        skipped = max(at - _BEFORE_END, 0)
        part = _ends(data[skipped : at + _PART + _CRC_SIZE - 1], skipped) + skipped
        ends.append(part)
    return np.concatenate(starts), np.concatenate(ends)


def pairs(data: Bytes) -> tuple[Int64s, Int64s]:
    """Return starts and checksum positions of blocks whose checksum is right; of several, the nearest."""
    starts, ends = _candidates(data)
    starts = np.sort(np.concatenate((starts, ends + _CRC_SIZE)), kind="stable")
    starts = starts[np.diff(starts, prepend=-1) > 0]  # faster than np.union1d, which hashes
    starts = starts[starts <= len(data)]
    places = np.concatenate((starts, ends))
    order = np.argsort(places, kind="stable")
    place_numbers = np.empty(len(places), np.int64)
    kinds = np.concatenate((np.zeros(len(starts), np.uint8), np.ones(len(ends), np.uint8)))
    if len(data) >= _COMPILED:
        numbers.compile()
    numbers(data, places[order], kinds[order], place_numbers)
    keyed = np.empty(len(places), np.int64)
    keyed[order] = place_numbers
    keyed = keyed << _POSITION_BITS | places
    if not len(ends):
        return starts[:0], ends
    # Both are sorted: a search for numbers in any order would wait for memory at each step.
    left, right = np.sort(keyed[: len(starts)]), np.sort(keyed[len(starts) :])
    nearest = right[np.minimum(np.searchsorted(right, left, "right"), len(right) - 1)]
    match = (nearest > left) & (nearest >> _POSITION_BITS == left >> _POSITION_BITS)
    starts, ends = left[match] & _POSITION, nearest[match] & _POSITION
    order = np.argsort(starts)
    return starts[order], ends[order]


def is_filter(block: Bytes) -> bool:
    """Return whether an uncompressed block is a filter block. No other block has such a last byte, which belongs to the number of
    restart points."""
    end_size = FILTER_END.head_size
    if len(block) < end_size or block[-1] != BASE_LG:
        return False
    array = load_u32le(block, len(block) - end_size)
    return array <= len(block) - end_size and (len(block) - end_size - array) % 4 == 0


def is_block(contents: Bytes, kind: int, limit: int) -> bool:
    """Return whether bytes with a right checksum can be read as a block."""
    if kind == layout.NONE and is_filter(contents):
        return True
    try:
        plain = expand(contents, kind, limit)
    except CompressionError:
        return False
    measures = np.zeros(layout.MEASURES, np.int64)
    return measure(plain, 0, len(plain), limit, measures) == layout.SOUND


def find(read: Read, low: int, high: int, size: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks in `[low, high)` of a file of `size` bytes: (offset, size without trailer), in order.

    A table within a value of a damaged block has blocks too. Blocks that lead to a footer other than that of the file are skipped.
    """
    at, step = low, WINDOW
    while high - at > layout.TRAILER_SIZE:
        requested = min(step, high - at)
        data = read(at, requested)
        blocks, chained = _chains(data, limit)
        # The file may have been truncated meanwhile.
        last_window = len(data) < requested or at + requested >= high
        if not blocks and not last_window and step < LIMIT:
            step = min(4 * step, LIMIT)
            continue
        for start, end in blocks:
            yield at + start, end - 1 - start
        if last_window:
            return
        # The last blocks of a window may be incomplete and are searched again in the next one.
        at += chained if blocks else len(data) // 2
        step = WINDOW if blocks else step


def _chains(data: Bytes, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Return the blocks in a window as (start, checksum position), and where the last one ends with its trailer."""
    starts, ends = pairs(data)
    blocks: list[tuple[int, int]] = []
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
            blocks += _own(data, chain, broken)
            chain, broken = [], True
        chain.append((start, end))
        at = end + _CRC_SIZE
    blocks += _own(data, chain, broken)
    return blocks, at


def _own(data: Bytes, chain: list[tuple[int, int]], broken: bool) -> list[tuple[int, int]]:
    """Return a chain of blocks, unless it comes after damage and a footer follows, as for a table within a value."""
    if chain and broken:
        behind = chain[-1][1] + _CRC_SIZE + _FOOTER
        if behind < len(data) and data[behind - len(MAGIC) : behind].tobytes() == MAGIC:
            return []
    return chain
