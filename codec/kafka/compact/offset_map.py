"""The latest offset of each key: the first stage of a compaction.

Keys are compared by their MD5 digest, as in the broker's map (`SkimpyOffsetMap`). So memory does not depend on their length, and the same
records are kept. The map is full at the same number of keys. The round then ends, and later records are copied unchanged.
"""

from __future__ import annotations

import math

import numpy as np

from logwright.codec.arrays import Bools, Bytes, Int32s, Int64s
from logwright.codec.kafka.formats.log import arrow_input, pack
from logwright.codec.kernels.intrinsics import load_u8, load_u32le
from logwright.codec.kernels.kernel import kernel

BYTES_PER_KEY = 24
"""Size of an entry in the broker's map: a digest of 16 bytes, and the offset."""
LOAD_FACTOR = 0.9
"""The default of `log.cleaner.io.buffer.load.factor`."""
_LEAST = 1 << 10
_WORD = 0xFFFFFFFF
_SIGN = 1 << 31
_TABLE = np.array([int(abs(math.sin(i + 1)) * (1 << 32)) for i in range(64)], np.int64)
_TURNS = np.array([7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21], np.int64)
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)

# The columns of an entry of the map, and the slots of its state.
_LOW, _HIGH, _OFFSET = range(3)
_SIZE, _LATEST, _REASON = range(3)
_ALL, _GROW, _FULL = range(3)


@kernel("i8[], i8[]")
def _md5_block(words: Int64s, state: Int64s) -> None:
    """Add a block of 16 words to the state of a digest (RFC 1321). All numbers are unsigned words in 64 bits."""
    a = int(state[0])
    b = int(state[1])
    c = int(state[2])
    d = int(state[3])
    for i in range(16):
        mixed = a + ((b & c) | (~b & d)) + _TABLE[i] + words[i] & _WORD
        turn = _TURNS[i & 3]
        a, d, c = d, c, b
        b = b + (mixed << turn | mixed >> 32 - turn) & _WORD
    for i in range(16, 32):
        mixed = a + ((d & b) | (~d & c)) + _TABLE[i] + words[5 * i + 1 & 15] & _WORD
        turn = _TURNS[4 + (i & 3)]
        a, d, c = d, c, b
        b = b + (mixed << turn | mixed >> 32 - turn) & _WORD
    for i in range(32, 48):
        mixed = a + (b ^ c ^ d) + _TABLE[i] + words[3 * i + 5 & 15] & _WORD
        turn = _TURNS[8 + (i & 3)]
        a, d, c = d, c, b
        b = b + (mixed << turn | mixed >> 32 - turn) & _WORD
    for i in range(48, 64):
        mixed = a + (c ^ (b | (~d & _WORD))) + _TABLE[i] + words[7 * i & 15] & _WORD
        turn = _TURNS[12 + (i & 3)]
        a, d, c = d, c, b
        b = b + (mixed << turn | mixed >> 32 - turn) & _WORD
    state[0] = (int(state[0]) + a) & _WORD
    state[1] = (int(state[1]) + b) & _WORD
    state[2] = (int(state[2]) + c) & _WORD
    state[3] = (int(state[3]) + d) & _WORD


@kernel("const u1[], i8, i8, i8[], i8[]")
def _md5(data: Bytes, at: int, size: int, words: Int64s, state: Int64s) -> tuple[int, int]:
    """Return the MD5 digest of `size` bytes as two signed numbers. `words` (16) and `state` (4) are scratch space."""
    for i in range(4):
        state[i] = _START[i]
    end = at + size
    while end - at >= 64:
        for i in range(16):
            words[i] = load_u32le(data, at + 4 * i)
        _md5_block(words, state)
        at += 64
    for i in range(16):
        words[i] = 0
    left = end - at
    for i in range(left):
        words[i >> 2] |= load_u8(data, at + i) << (8 * (i & 3))
    words[left >> 2] |= 0x80 << (8 * (left & 3))
    if left >= 56:
        _md5_block(words, state)
        for i in range(16):
            words[i] = 0
    words[14] = (size << 3) & _WORD
    words[15] = size >> 29
    _md5_block(words, state)
    low = int(state[1])
    high = int(state[3])
    low = (low - 2 * _SIGN if low >= _SIGN else low) << 32
    high = (high - 2 * _SIGN if high >= _SIGN else high) << 32
    return low | int(state[0]), high | int(state[2])


@kernel("const i8[,], i8, i8")
def _place(entries: Int64s, low: int, high: int) -> int:
    """Return the row of a digest, or the free row for it."""
    mask = entries.shape[0] - 1
    at: int = low & mask
    while entries[at, _OFFSET] >= 0 and (entries[at, _LOW] != low or entries[at, _HIGH] != high):
        at = (at + 1) & mask
    return at


@kernel("const i8[,], i8[,]")
def _move(old: Int64s, new: Int64s) -> None:
    """Insert all entries of a map into a larger one."""
    for i in range(old.shape[0]):
        if old[i, _OFFSET] >= 0:
            at = _place(new, old[i, _LOW], old[i, _HIGH])
            for column in range(3):
                new[at, column] = old[i, column]


@kernel("i8, const i4[], const u1[], i8, const u1[], i8, const i8[], i8, i8, i8, i8[,], i8[], i8[], i8[]")
def _put(
    first: int, ends: Int32s, data: Bytes, mode: int, bits: Bytes, bit: int, offsets: Int64s, start: int,
    limit: int, room: int, entries: Int64s, state: Int64s, words: Int64s, digest: Int64s,
) -> int:  # fmt: skip
    """Insert the keys from row `first` on. Return the row at which the map must grow or is full; the number of rows if neither."""
    for i in range(first, len(offsets)):
        if offsets[i] < start or pack.null_at(mode, bits, bit, i):
            continue
        if state[_SIZE] >= limit:
            state[_REASON] = _FULL
            return i
        if state[_SIZE] >= room:
            state[_REASON] = _GROW
            return i
        at = int(ends[i])
        low, high = _md5(data, at, int(ends[i + 1]) - at, words, digest)
        place = _place(entries, low, high)
        if entries[place, _OFFSET] < 0:
            entries[place, _LOW] = low
            entries[place, _HIGH] = high
            state[_SIZE] += 1
        entries[place, _OFFSET] = offsets[i]
        state[_LATEST] = offsets[i]
    state[_REASON] = _ALL
    return len(offsets)


@kernel("const i4[], const u1[], i8, const u1[], i8, const i8[], i8, const i8[,], i8[], i8[], u1[]")
def _is_latest(
    ends: Int32s, data: Bytes, mode: int, bits: Bytes, bit: int, offsets: Int64s, latest: int,
    entries: Int64s, words: Int64s, digest: Int64s, out: Bytes,
) -> None:  # fmt: skip
    """Set `out[i]` to whether the map has no later offset for the key of row i. Rows without a key, or above `latest`, are left as they are."""
    for i in range(len(offsets)):
        if offsets[i] > latest or pack.null_at(mode, bits, bit, i):
            continue
        at = int(ends[i])
        low, high = _md5(data, at, int(ends[i + 1]) - at, words, digest)
        out[i] = 1 if offsets[i] >= entries[_place(entries, low, high), _OFFSET] else 0


class OffsetMap:
    """The latest offset of each key in the dirty part of a log. `memory` is `log.cleaner.dedupe.buffer.size`."""

    def __init__(self, memory: int) -> None:
        self._limit = int(memory // BYTES_PER_KEY * LOAD_FACTOR)
        self._entries = _empty(_LEAST)
        self._state = np.array([0, -1, _ALL], np.int64)
        self._scratch = np.empty(16, np.int64), np.empty(4, np.int64)

    def __len__(self) -> int:
        return int(self._state[_SIZE])

    @property
    def latest_offset(self) -> int:
        """The last offset in the map; -1 if it is empty. Later records are kept."""
        return int(self._state[_LATEST])

    def advance(self, offset: int) -> None:
        """Set the last offset, up to which all records were read."""
        self._state[_LATEST] = offset

    def put(self, keys: arrow_input.Binary, offsets: Int64s, start: int) -> int:
        """Insert keys with their offsets, except null keys and those below `start`. Return the row at which the map is full; the number of
        rows if it is not."""
        row = 0
        while True:
            room = len(self._entries) // 4 * 3
            row = _put(
                row, keys.ends, keys.data, keys.mode, keys.bits, keys.bit, offsets, start, self._limit, room, self._entries,
                self._state, *self._scratch,
            )  # fmt: skip
            if self._state[_REASON] != _GROW:
                return row
            larger = _empty(2 * len(self._entries))
            _move(self._entries, larger)
            self._entries = larger

    def is_latest(self, keys: arrow_input.Binary, offsets: Int64s) -> Bools:
        """Return which rows are the latest of their key. Rows without a key, or after the last offset, count as latest."""
        out = np.ones(len(offsets), np.uint8)
        _is_latest(
            keys.ends, keys.data, keys.mode, keys.bits, keys.bit, offsets, self.latest_offset, self._entries, *self._scratch, out
        )  # fmt: skip
        return out.view(np.bool_)


def _empty(rows: int) -> Int64s:
    out = np.empty((rows, 3), np.int64)
    out[:, _OFFSET] = -1
    return out
