"""Decompress many small raw Snappy blocks in one kernel call, where library calls would cost more than
the decompression itself.

Blocks that fail here are passed to the library, which reports the reason. Source: `format_description.txt` of Snappy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.deferred import ir
from logwright.codec.kernels.intrinsics import (
    copy,
    load_u8,
    load_u16le,
    load_u32le,
    outside,
    read_uvarint,
    refuse,
    view,
)
from logwright.codec.kernels.kernel import intrinsic, kernel

LITERAL, NEAR, FAR, FARTHEST = range(4)
"""The low two bits of a tag: literal bytes, or a copy from up to 2**11, 2**16, 2**32 bytes before."""
_SHORT = 60
"""The length of a longer literal follows the tag."""
RATIO = 22
"""The largest number of bytes that one byte decompresses to: a copy of 64 bytes takes three."""

_WIDTH = 64
"""The largest number of bytes of an element, except of a literal whose length follows its tag."""
_ALL_BITS, _SIZE_BITS, _BACK_BITS = -1, 0xFF, 0xFFFF
_BACK, _MASK, _KIND = 16, 32, 63
"""The first bits of these parts of an entry of `_ELEMENTS`: high bits of the distance, mask of the stored distance, 1 for a copy."""


def _entry(tag: int) -> int:
    """Return what a tag says about its element: the size in bits 0 to 7, and the parts above.

    The distance and its mask are 0 in a literal, and in the elements that the fast loop leaves out: their size exceeds their distance.
    """
    size = (tag >> 2) + 1
    if tag & 3 == LITERAL:
        return size if size <= _SHORT else _SIZE_BITS | _ALL_BITS << _KIND
    if tag & 3 == NEAR:
        return (tag >> 2 & 7) + 4 | tag >> 5 << 8 << _BACK | 0xFF << _MASK | _ALL_BITS << _KIND
    return (size | _BACK_BITS << _MASK if tag & 3 == FAR else _SIZE_BITS) | _ALL_BITS << _KIND


_ELEMENTS = np.array([_entry(tag) for tag in range(256)], np.int64)


def _emit_copy(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    out, to, buf, at, back, copied, size = args
    target, room = view(context, builder, signature.args[0], out)
    stored, length = view(context, builder, signature.args[2], buf)

    constant = to.type
    bad = builder.or_(
        outside(builder, to, constant(_WIDTH), room), outside(builder, at, constant(_WIDTH), length)
    )
    bad = builder.or_(bad, builder.icmp_unsigned(">", back, to))
    refuse(context, builder, bad, "copy outside of a buffer")
    to_place = builder.gep(target, [to])
    # Selecting the source takes no branch: literals and copies alternate without a pattern.
    source = builder.select(
        builder.icmp_signed("<", copied, constant(0)),
        builder.gep(target, [builder.sub(to, back)]),
        builder.gep(stored, [at]),
    )
    half = ir.VectorType(ir.IntType(8), _WIDTH // 2)

    def move(place: int) -> None:
        first = builder.bitcast(builder.gep(source, [constant(place)]), half.as_pointer())
        last = builder.bitcast(builder.gep(to_place, [constant(place)]), half.as_pointer())
        builder.store(builder.load(first, align=1), last, align=1)

    move(0)
    with builder.if_then(builder.icmp_signed(">", size, constant(_WIDTH // 2)), likely=False):
        move(_WIDTH // 2)
    return context.get_dummy_value()


@intrinsic("u1[], i8, const u1[], i8, i8, i8, i8 -> none", _emit_copy)
def _copy_element(out: Bytes, to: int, buf: Bytes, at: int, back: int, copied: int, size: int) -> None:
    """Copy the `size` bytes of an element to `out[to:]`, of which `_WIDTH` bytes become undefined: from `buf[at:]`, or if `copied` is -1
    from `back` bytes before, of which there are at least `size`."""
    if min(to, at) < 0 or to + _WIDTH > len(out) or at + _WIDTH > len(buf) or not 0 <= back <= to:
        raise IndexError("copy outside of a buffer")
    out[to : to + size] = out[to - back : to - back + size] if copied else buf[at : at + size]


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
    # Elements that start later are read below: here some bytes after an element are read and written.
    last_read = min(end, len(buf) - _WIDTH) - 1
    last_write = stop - _WIDTH
    while at < end:
        while at <= last_read and to <= last_write:
            tag = load_u8(buf, at)
            element = _ELEMENTS[tag]
            size = element & _SIZE_BITS
            copied = element >> _KIND
            back = (element >> _BACK & _BACK_BITS) | (load_u16le(buf, at + 1) & element >> _MASK)
            kind = tag & 3
            # Computed from the tag, not looked up: the next element waits for it.
            after = at + (kind + 1 if kind else (tag >> 2) + 2)
            if (back - size) & copied | (to - start - back) | (end - after) < 0:
                break
            _copy_element(out, to, buf, at + 1, back, copied, size)
            at = after
            to += size
        if at >= end:
            break
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
