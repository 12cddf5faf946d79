"""Kernels that pack many blocks of a table at once, as its builder packs each.

Source: `table/table_builder.cc`, `table/block_builder.cc` and `util/comparator.cc` of LevelDB.
"""

from __future__ import annotations

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.intrinsics import (
    copy,
    load_u8,
    size_uvarlong,
    store_32le,
    store_64le,
    write_uvarlong,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table.layout import (
    KEY_TRAILER,
    RESTART_SIZE,
    TRAILER_SIZE,
    block_crc,
    common,
    pack,
)
from logwright.codec.leveldb.keys import MAX_SEQUENCE, VALUE
from logwright.codec.window import Bytes

_CRC_SIZE = TRAILER_SIZE - 1
_SEEK_TAG = MAX_SEQUENCE << 8 | VALUE
"""The same bits as a signed number, which is negative."""
_SIGNED_SEEK_TAG = _SEEK_TAG - (1 << 64)


@kernel(
    "i8, i8, const i8[], const u1[], const i8[], const i8[], const u1[], i8, i8, i8, i8, u1[], i8[], i8[], i8[], u1[]"
)
def pack_blocks(
    row: int,
    rows: int,
    key_ends: Int64s,
    key_data: Bytes,
    trailers: Int64s,
    value_ends: Int64s,
    value_data: Bytes,
    interval: int,
    block_size: int,
    most: int,
    finish: int,
    out: Bytes,
    row_ends: Int64s,
    ends: Int64s,
    restarts: Int64s,
    scratch: Bytes,
) -> int:
    """Pack blocks (`layout.pack`) of the rows from `row` on, until `out` has at least `most` bytes or the rows end. Rows at the end that
    do not fill a block are packed only with `finish`. Returns the number of blocks.

    Block `i` has the rows `row_ends[i]` to `row_ends[i + 1]`. It starts at `ends[i]` and ends before its trailer, for which there is room
    before `ends[i + 1]`. `out` has room for `most` bytes and one more block.
    """
    n = 0
    row_ends[0] = row
    ends[0] = 0
    at = 0
    while row < rows and at < most:
        row, end = pack(
            row, rows, key_ends, key_data, trailers, value_ends, value_data, interval, block_size, out, at, restarts, scratch,
        )  # fmt: skip
        if end - at < block_size and not finish:
            break
        at = end + TRAILER_SIZE
        n += 1
        row_ends[n] = row
        ends[n] = at
    return n


@kernel("u1[], const i8[], i8")
def seal_blocks(buf: Bytes, ends: Int64s, count: int) -> None:
    """Store the checksum of each block `buf[ends[i] : ends[i + 1]]` and its type, which is there already."""
    for i in range(count):
        size = ends[i + 1] - ends[i] - TRAILER_SIZE
        store_32le(buf, ends[i + 1] - _CRC_SIZE, block_crc(buf, ends[i], size))


@kernel("const u1[], const i8[], const i8[], const i8[], i8, i8, u1[], i8[]")
def separators(
    keys: Bytes,
    key_ends: Int64s,
    trailers: Int64s,
    row_ends: Int64s,
    count: int,
    bytewise: int,
    out: Bytes,
    ends: Int64s,
) -> int:
    """Write the index keys of the first `count - 1` blocks: `keys.separator` of their last row and the next one, or without `bytewise`
    the key of that last row. Key `i` is `out[ends[i] : ends[i + 1]]`, for which there is room. Returns the end."""
    at = 0
    ends[0] = 0
    for i in range(count - 1):
        following = row_ends[i + 1]
        start = key_ends[following - 1]
        middle = key_ends[following]
        end = key_ends[following + 1]
        size = middle - start
        same = common(keys, start, middle, keys, middle, end)
        cut = False
        if bytewise and same < min(size, end - middle) and same + 1 < size:
            byte = load_u8(keys, start + same)
            cut = byte < 0xFF and byte + 1 < load_u8(keys, middle + same)
        if cut:
            copy(out, at, keys, start, same + 1)
            at += same + 1
            out[at - 1] = byte + 1
            at = store_64le(out, at, _SIGNED_SEEK_TAG)
        else:
            copy(out, at, keys, start, size)
            at = store_64le(out, at + size, trailers[following - 1])
        ends[i + 1] = at
    return at


@kernel("const u1[], const i8[], const i8[], const i8[], u1[]")
def pack_index(keys: Bytes, key_ends: Int64s, offsets: Int64s, sizes: Int64s, out: Bytes) -> int:
    """Write the index block, all of whose entries are restart points. Key `i` is `keys[key_ends[i] : key_ends[i + 1]]`, its value the
    handle of the block of `sizes[i]` bytes at `offsets[i]`. Returns where it ends; `out` has room (`index_room`)."""
    at = 0
    count = len(offsets)
    points = len(out) - RESTART_SIZE * (count + 1)  # written there first, then moved
    for i in range(count):
        store_32le(out, points + RESTART_SIZE * i, at)
        size = key_ends[i + 1] - key_ends[i]
        at = write_uvarlong(out, at, 0)
        at = write_uvarlong(out, at, size)
        at = write_uvarlong(out, at, size_uvarlong(offsets[i]) + size_uvarlong(sizes[i]))
        copy(out, at, keys, key_ends[i], size)
        at = write_uvarlong(out, at + size, offsets[i])
        at = write_uvarlong(out, at, sizes[i])
    if count == 0:
        # A block without entries still has a restart point (`BlockBuilder`).
        return store_32le(out, store_32le(out, 0, 0), 1)
    copy(out, at, out, points, RESTART_SIZE * count)
    return store_32le(out, at + RESTART_SIZE * count, count)


def index_room(key_bytes: int, count: int) -> int:
    """Return the maximum number of bytes that `pack_index` writes."""
    return key_bytes + count * (32 + RESTART_SIZE) + 2 * RESTART_SIZE


def block_room(block_size: int, largest: int) -> int:
    """Return the maximum size of a block with its trailer. Its last entry exceeds `block_size`; `largest` bounds a key and a value
    together."""
    return block_size + largest + KEY_TRAILER + 32 + TRAILER_SIZE
