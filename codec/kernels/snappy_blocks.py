"""Decompress many small raw Snappy blocks in one kernel call, where library calls would cost more than
the decompression itself.

Blocks that fail here are passed to the library, which reports the reason. Source: `format_description.txt` of Snappy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.intrinsics import copy, load_u8, load_u16le, load_u32le, read_uvarint
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]

LITERAL, NEAR, FAR, FARTHEST = range(4)
"""The low two bits of a tag: literal bytes, or a copy from up to 2**11, 2**16, 2**32 bytes before."""
_SHORT = 60
"""The length of a longer literal follows the tag."""
RATIO = 22
"""The largest number of bytes that one byte decompresses to: a copy of 64 bytes takes three."""


@kernel("const u1[], const i8[], const i8[], i8, i8[]")
def lengths(buf: Bytes, starts: Int64s, ends: Int64s, limit: int, out: Int64s) -> int:
    """Read the decompressed length of each block `buf[starts[i]:ends[i]]` into `out`; -1 if it is missing, above `limit`, or impossible
    for the size of the block. Returns the sum of the lengths."""
    total = 0
    for i in range(len(starts)):
        size, at = read_uvarint(buf, starts[i], ends[i])
        if at < 0 or size > limit or size > RATIO * (ends[i] - starts[i]):
            size = -1
        out[i] = size
        total += max(size, 0)
    return total


@kernel("const u1[], i8, i8, u1[], i8, i8")
def decompress(buf: Bytes, at: int, end: int, out: Bytes, start: int, stop: int) -> int:
    """Decompress the block `buf[at:end]` to `out[start:stop]`, which has the declared length. Returns `stop`, or -1 for a block that
    is damaged."""
    _, at = read_uvarint(buf, at, end)
    if at < 0:
        return -1
    to = start
    while at < end:
        tag = load_u8(buf, at)
        at += 1
        kind = tag & 3
        if kind == LITERAL:
            size = (tag >> 2) + 1
            if size > _SHORT:
                width = size - _SHORT
                if width > end - at:
                    return -1
                size = 1
                for i in range(width):
                    size += load_u8(buf, at + i) << 8 * i
                at += width
            if size > end - at or size > stop - to:
                return -1
            copy(out, to, buf, at, size)
            at += size
            to += size
            continue
        if kind == NEAR:
            if at >= end:
                return -1
            size = (tag >> 2 & 7) + 4
            back = tag >> 5 << 8 | load_u8(buf, at)
            at += 1
        elif kind == FAR:
            if end - at < 2:
                return -1
            size = (tag >> 2) + 1
            back = load_u16le(buf, at)
            at += 2
        else:
            if end - at < 4:
                return -1
            size = (tag >> 2) + 1
            back = load_u32le(buf, at)
            at += 4
        if back == 0 or back > to - start or size > stop - to:
            return -1
        source = to - back
        # Source and target may overlap: the available source doubles with each step.
        while size > 0:
            step = min(size, to - source)
            copy(out, to, out, source, step)
            to += step
            size -= step
    return to if to == stop else -1
