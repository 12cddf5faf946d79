"""Bloom filters: build and query the filter block of a table.

One filter covers the keys of all data blocks that start in the same 2 KiB of the file. The user key is hashed. Source:
`table/filter_block.cc`, `util/bloom.cc` and `util/hash.cc` of LevelDB.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.describe import U8, U32LE, Field, Repeated, Struct
from logwright.codec.kernels.intrinsics import load_u8, load_u32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

POLICY = "leveldb.BuiltinBloomFilter2"
"""The name in the metaindex, after `filter.`. Before LevelDB 1.18 it had no 2, and other bits on some machines."""
META_PREFIX = "filter."

BASE_LG = 11
BASE = 1 << BASE_LG

OFFSETS = Struct(
    "FilterOffsets",
    Field("offsets", Repeated(U32LE), "where each filter starts"),
    source="FilterBlockBuilder",
)
FILTER_END = Struct(
    "FilterBlockEnd",
    Field("array_offset", U32LE, "where the offsets of the filters start"),
    Field("base_lg", U8, "11: each filter is for 2 KiB of the file"),
    doc="The last bytes of a filter block.",
    source="FilterBlockBuilder",
)

_SEED = 0xBC9F1D34
_M = 0xC6A4A793
_LOW = 0xFFFFFFFF
_MOST_PROBES = 30


@kernel("const u1[], i8, i8")
def bloom_hash(buf: Bytes, at: int, end: int) -> int:
    """Return LevelDB's 32-bit hash of the key `buf[at:end]` (`Hash` with `BloomHash`'s seed)."""
    h = _SEED ^ ((end - at) * _M & _LOW)
    while end - at >= 4:
        h = ((h + load_u32le(buf, at)) & _LOW) * _M & _LOW
        h ^= h >> 16
        at += 4
    left = end - at
    if left > 0:
        if left > 2:
            h += load_u8(buf, at + 2) << 16
        if left > 1:
            h += load_u8(buf, at + 1) << 8
        h = ((h + load_u8(buf, at)) & _LOW) * _M & _LOW
        h ^= h >> 24
    return h


@kernel("const u1[], const i8[], i8, i8, i8[]")
def hash_keys(data: Bytes, ends: Int64s, first: int, stop: int, out: Int64s) -> None:
    """Hash the keys `first` to `stop`; key `i` is `data[ends[i] : ends[i + 1]]`."""
    for i in range(first, stop):
        out[i - first] = bloom_hash(data, int(ends[i]), int(ends[i + 1]))


@kernel("const i8[], i8, u1[], i8, i8")
def set_bits(hashes: Int64s, probes: int, out: Bytes, at: int, size: int) -> None:
    """Set the bits of all hashes in the filter of `size` bytes at `at`."""
    bits = size * 8
    for i in range(len(hashes)):
        h = int(hashes[i])
        delta = (h >> 17 | h << 15) & _LOW
        for _ in range(probes):
            bit = h % bits
            place = at + bit // 8
            out[place] = load_u8(out, place) | 1 << bit % 8
            h = (h + delta) & _LOW


@kernel("const u1[], i8, i8, i8")
def may_match(buf: Bytes, start: int, end: int, h: int) -> bool:
    """Return whether a key with the hash `h` may be in the filter `buf[start:end]` (`KeyMayMatch`)."""
    if end - start < 2:
        return False
    bits = (end - start - 1) * 8
    probes = load_u8(buf, end - 1)
    if probes > _MOST_PROBES:
        return True
    delta = (h >> 17 | h << 15) & _LOW
    for _ in range(probes):
        bit = h % bits
        if load_u8(buf, start + bit // 8) & 1 << bit % 8 == 0:
            return False
        h = (h + delta) & _LOW
    return True


@kernel("const u1[], i8, i8, i8, const i8[], const i8[], const i8[], i8[]")
def missed(
    block: Bytes, array: int, lg: int, count: int, offsets: Int64s, rows: Int64s, hashes: Int64s, out: Int64s
) -> int:
    """Query a filter block whose `count` offsets start at `array` for the keys of many data blocks. Block `i` is at `offsets[i]` of the
    file, and its keys have the hashes `rows[i]` to `rows[i + 1]`.

    Writes the first denied key of each block to `out`, counted from the first one of the block, or -1. Returns the number of blocks with a
    denied key.
    """
    bad = 0
    for i in range(len(offsets)):
        out[i] = -1
        slot = offsets[i] >> lg if lg < 63 else 0
        if slot >= count:
            continue
        start = load_u32le(block, array + 4 * slot)
        limit = load_u32le(block, array + 4 * slot + 4)
        if start > limit or (limit > array and start != limit):
            continue
        if limit > array:
            limit = start = 0
        for n in range(rows[i], rows[i + 1]):
            if not may_match(block, start, limit, hashes[n]):
                out[i] = n - rows[i]
                bad += 1
                break
    return bad


def probes_of(bits_per_key: int) -> int:
    """Return the number of bits set per key: ln 2 times the bits per key."""
    return max(1, min(_MOST_PROBES, int(bits_per_key * 0.69)))


def bloom(hashes: Int64s, bits_per_key: int) -> Bytes:
    """Return the filter of keys with these hashes."""
    size = (max(64, len(hashes) * bits_per_key) + 7) // 8
    probes = probes_of(bits_per_key)
    out = np.zeros(size + 1, np.uint8)
    set_bits(hashes, probes, out, 0, size)
    out[size] = probes
    return out


class FilterBuilder:
    """Builds a filter block (`FilterBlockBuilder`) from every data block, in order."""

    def __init__(self, bits_per_key: int) -> None:
        self.bits_per_key = bits_per_key
        self._filters: list[Bytes] = []
        self._offsets: list[int] = []
        self._size = 0
        self._pending: list[Int64s] = []

    def add(self, hashes: Int64s, next_offset: int) -> None:
        """Add the keys of a data block, and where in the file the next block starts."""
        if len(hashes):
            self._pending.append(hashes)
        while next_offset // BASE > len(self._offsets):
            self._generate()

    def _generate(self) -> None:
        self._offsets.append(self._size)
        if self._pending:
            block_filter = bloom(np.concatenate(self._pending), self.bits_per_key)
            self._filters.append(block_filter)
            self._size += len(block_filter)
            self._pending = []

    def finish(self) -> bytes:
        """Return the filter block."""
        if self._pending:
            self._generate()
        end = {"array_offset": self._size, "base_lg": BASE_LG}
        filters = b"".join(block_filter.tobytes() for block_filter in self._filters)
        return filters + OFFSETS.pack({"offsets": self._offsets}) + FILTER_END.pack(end)


class Filter:
    """An existing filter block, as LevelDB reads it (`FilterBlockReader`). A damaged one denies no key."""

    def __init__(self, block: Bytes) -> None:
        self.block = block
        size = len(block)
        self._count = 0
        if size < FILTER_END.head_size:
            return
        end, _ = FILTER_END.unpack(block.tobytes()[-FILTER_END.head_size :])
        self._lg, self._array = end["base_lg"], end["array_offset"]
        if self._array <= size - FILTER_END.head_size:
            self._count = (size - FILTER_END.head_size - self._array) // 4

    def of(self, block_offset: int) -> tuple[int, int] | None:
        """Return the range of the filter for the data block at `block_offset` of the file, or None if it denies no key."""
        slot = block_offset >> self._lg if self._count else 0
        if slot >= self._count:
            return None
        start = load_u32le(self.block, self._array + 4 * slot)
        limit = load_u32le(self.block, self._array + 4 * slot + 4)
        if start <= limit <= self._array:
            return start, limit
        return (0, 0) if start == limit else None

    def misses_of(self, offsets: Int64s, rows: Int64s, hashes: Int64s) -> Int64s | None:
        """Apply `missed` to many data blocks. Returns None if no key is missed."""
        if not self._count:
            return None
        out = np.empty(len(offsets), np.int64)
        bad = missed(self.block, self._array, self._lg, self._count, offsets, rows, hashes, out)
        return out if bad else None


def bits_per_key_of(block: Bytes, block_offset: int, keys: int) -> int:
    """Return the option that a filter block was built with, given a data block and the number of keys of its filter, all of which are
    known. Of several candidates the nearest to 10 is returned, and 0 without a candidate."""
    where = Filter(block).of(block_offset)
    if where is None or where[1] - where[0] < 2:
        return 0
    size, probes = where[1] - where[0] - 1, int(block[where[1] - 1])
    fits = [b for b in range(1, 128) if probes_of(b) == probes and (max(64, keys * b) + 7) // 8 == size]
    return min(fits, key=lambda b: abs(b - 10), default=0)
