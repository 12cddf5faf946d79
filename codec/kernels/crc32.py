"""CRC-32 (zlib, IEEE 802.3), inside kernels and from Python: by carry-less multiplication if the processor has it, else from tables.

A "raw" checksum is the register, without the inversion before and after.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.deferred import cgutils, ir
from logwright.codec.kernels.crc32c import appended, powers, processor, slicing
from logwright.codec.kernels.intrinsics import emit_loop, load_i64le, load_u8, load_u32le
from logwright.codec.kernels.kernel import intrinsic, kernel

_POLYNOMIAL = 0xEDB88320
_ONES = 0xFFFFFFFF
_SLICES = slicing(_POLYNOMIAL, 16).astype(np.uint32).view(np.int32)
"""Stored as signed numbers; the upper bits are masked."""


def _multiplier(bits: int) -> int:
    """Return x**bits modulo the polynomial, reflected and shifted left by one for carry-less products of reflected numbers."""
    value = 1 << 31
    for _ in range(bits):
        value = (value >> 1) ^ (value & 1) * _POLYNOMIAL
    return value << 1


_AT_ONCE = 4
"""The number of blocks of sixteen bytes that are moved together."""
_FACTORS = [(0, 0), *((_multiplier(128 * n + 32), _multiplier(128 * n - 32)) for n in range(1, _AT_ONCE + 1))]
"""The factors that move the first and the second eight bytes of a block n blocks forward."""
_PLACES = [*(16 * [0x80]), *range(16)]
"""Sixteen of these numbers from number n on choose a block of zeros that ends with n bytes of another block."""
_REGISTER_AT = [*(64 * [0]), *(4 * [0xFF]), *(124 * [0])]
"""From number 64 - n on, the bytes that a register of four bytes takes n bytes after the start of a vector of 64 bytes."""
_NEAR = _FACTORS[1][1]
_LAST = _multiplier(64)
"""The factor of the last four of twelve bytes."""
_QUOTIENT, _DIVISOR = 0x1F7011641, _POLYNOMIAL << 1 | 1
"""The factors of Barrett's reduction of eight bytes: x**64 divided by the polynomial, and the polynomial."""


def _has_product(triple: str, features: str) -> bool:
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


def _blocks(features: str) -> int:
    """Return the number of blocks that one instruction moves."""
    has = set(features.split(","))
    if "+vpclmulqdq" not in has:
        return 1
    return 4 if "+avx512bw" in has else 2


def _emit_can_fold(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return ir.Constant(ir.IntType(1), _has_product(*processor()))


@intrinsic("-> b1", _emit_can_fold)
def _can_fold() -> bool:
    """Return whether the processor has carry-less multiplication. Known when a kernel is compiled."""
    return False


def _emit_fold(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    crc, array, at, end = args
    data = context.make_array(signature.args[1])(context, builder, array).data
    long, byte, index = (ir.IntType(bits) for bits in (64, 8, 32))
    pair = ir.VectorType(long, 2)
    has_product = _has_product(*processor())
    blocks = _blocks(processor()[1])

    def load(place: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(data, [place]), pair.as_pointer()), align=1)

    def product(value: Any, factors: Sequence[int], which: int) -> Any:
        if not has_product:
            return value  # in a branch that never runs
        kind = ir.FunctionType(pair, [pair, pair, byte])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
        return builder.call(function, [value, ir.Constant(pair, factors), ir.Constant(byte, which)])

    def moved(value: Any, onto: Any) -> Any:
        factors = _FACTORS[1]
        return builder.xor(builder.xor(product(value, factors, 0x00), product(value, factors, 0x11)), onto)

    def low(value: Any) -> Any:
        return builder.insert_element(ir.Constant(pair, [0, 0]), value, ir.Constant(index, 0))

    def shifted(value: Any, size: Any) -> Any:
        """Return a block of zeros that ends with the first `size` bytes of `value`."""
        if not has_product:
            return value
        block = ir.VectorType(byte, 16)
        kind = ir.FunctionType(block, [block, block])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.ssse3.pshuf.b.128")
        places = cgutils.global_constant(builder, "places", ir.Constant(ir.ArrayType(byte, 32), _PLACES))
        which = builder.gep(builder.bitcast(places, byte.as_pointer()), [size])
        which = builder.load(builder.bitcast(which, block.as_pointer()), align=1)
        return builder.bitcast(builder.call(function, [builder.bitcast(value, block), which]), pair)

    if has_product and blocks == _AT_ONCE:
        return _emit_reduced(builder, _emit_vectors(builder, data, crc, at, end), product)
    # The first 1 to 16 bytes become the end of a block that starts with zeros, so that the rest consists of complete blocks.
    size = builder.add(builder.and_(builder.sub(builder.sub(end, at), long(1)), long(15)), long(1))
    begun = shifted(builder.xor(load(at), low(crc)), size)
    # A register of four bytes reaches into the second block if the first has fewer.
    shift = builder.shl(size, long(3))
    reaches = builder.icmp_signed("<", size, long(4))
    left = builder.select(reaches, builder.lshr(crc, builder.and_(shift, long(63))), long(0))
    second = builder.add(at, size)
    first = moved(begun, builder.xor(load(second), low(left)))
    step = long(16)
    third = builder.add(second, step)
    if has_product:
        third, first = _emit_wide(builder, data, third, end, first, moved, blocks)
    _, (last,) = emit_loop(
        builder, third, end, step, [first], lambda place, held: [moved(held[0], load(place))]
    )
    return _emit_reduced(builder, last, product)


def _emit_reduced(builder: Any, block: Any, product: Callable[[Any, Sequence[int], int], Any]) -> Any:
    """Emit: reduce a block from 16 to 12 to 8 bytes, and by Barrett's reduction to 4. Only in vectors, since moving a number out of one and
    back takes as long as a product."""
    long, index = ir.IntType(64), ir.IntType(32)
    pair, words = ir.VectorType(long, 2), ir.VectorType(index, 4)

    def without(value: Any, count: int) -> Any:
        """Remove the first `count` words of four bytes."""
        which = ir.Constant(words, [ir.Constant(index, count + i) for i in range(4)])
        shifted = builder.shuffle_vector(builder.bitcast(value, words), ir.Constant(words, [0] * 4), which)
        return builder.bitcast(shifted, pair)

    def first_word(value: Any) -> Any:
        return builder.and_(value, ir.Constant(pair, (_ONES, 0)))

    twelve = builder.xor(product(block, (_NEAR, 0), 0x00), without(block, 2))
    eight = builder.xor(product(first_word(twelve), (_LAST, 0), 0x00), without(twelve, 1))
    quotient = product(first_word(eight), (_QUOTIENT, 0), 0x00)
    multiple = product(first_word(quotient), (_DIVISOR, 0), 0x00)
    result = builder.bitcast(builder.xor(multiple, eight), words)
    return builder.zext(builder.extract_element(result, ir.Constant(index, 1)), long)


def _emit_moved(builder: Any, multiply: Any, value: Any, distances: Sequence[int]) -> Any:
    """Emit: move each of the blocks of a vector forward by its number of blocks. `multiply` is the function for vectors of this size."""
    factors = ir.Constant(value.type, [factor for distance in distances for factor in _FACTORS[distance]])
    halves = [builder.call(multiply, [value, factors, ir.IntType(8)(which)]) for which in (0x00, 0x11)]
    return builder.xor(*halves)


def _emit_block(builder: Any, value: Any, which: int) -> Any:
    """Emit: a block of a vector, by its number."""
    lanes = ir.VectorType(ir.IntType(32), 2)([2 * which, 2 * which + 1])
    return builder.shuffle_vector(value, value, lanes)


def _emit_vectors(builder: Any, data: Any, crc: Any, at: Any, end: Any) -> Any:
    """Emit: fold vectors of 64 bytes. Return a block with the same checksum.

    The first 1 to 64 bytes are loaded as the end of a vector that starts with zeros. So the only branch is that of the loop over vectors:
    branches on the size of a rest are mispredicted when sizes vary."""
    long, byte, index = (ir.IntType(bits) for bits in (64, 8, 32))
    wide, bytes_ = ir.VectorType(long, 8), ir.VectorType(byte, 64)
    bits = ir.VectorType(ir.IntType(1), 64)
    kind = ir.FunctionType(wide, [wide, wide, byte])
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq.512")
    kind = ir.FunctionType(bytes_, [bytes_.as_pointer(), index, bits, bytes_])
    load_some = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v64i8.p0")

    def load(array: Any, place: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(array, [place]), wide.as_pointer()), align=1)

    def moved(value: Any, distances: Sequence[int]) -> Any:
        return _emit_moved(builder, multiply, value, distances)

    before = builder.and_(builder.sub(at, end), long(63))  # zeros in front
    mask = builder.bitcast(builder.shl(long(-1), before), bits)
    place = builder.sub(at, before)
    pointer = builder.bitcast(builder.gep(data, [place]), bytes_.as_pointer())
    first = builder.call(load_some, [pointer, ir.Constant(index, 1), mask, ir.Constant(bytes_, None)])
    # The register, rotated to where its bytes belong, in up to two vectors.
    turn = builder.and_(builder.shl(before, long(3)), long(31))
    both = builder.shl(builder.or_(crc, builder.shl(crc, long(32))), turn)
    turned = builder.lshr(both, long(32))
    turned = builder.or_(turned, builder.shl(turned, long(32)))
    all_lanes = ir.Constant(ir.VectorType(index, 8), [0] * 8)
    register = builder.insert_element(ir.Constant(wide, ir.Undefined), turned, ir.Constant(index, 0))
    register = builder.shuffle_vector(register, register, all_lanes)
    table = cgutils.global_constant(
        builder, "register_at", ir.Constant(ir.ArrayType(byte, 192), _REGISTER_AT)
    )
    table = builder.bitcast(table, byte.as_pointer())
    begun, carried = (
        builder.and_(register, load(table, builder.sub(long(size), before))) for size in (64, 128)
    )
    begun = builder.xor(begun, builder.bitcast(first, wide))
    second = builder.add(place, long(64))
    zeros = ir.Constant(wide, None)

    def folded(place: Any, held: list[Any]) -> list[Any]:
        value, carry = held
        return [
            builder.xor(builder.xor(moved(value, [_AT_ONCE] * _AT_ONCE), load(data, place)), carry),
            zeros,
        ]

    _, (last, _) = emit_loop(builder, second, end, long(64), [begun, carried], folded)

    near = moved(last, range(_AT_ONCE - 1, -1, -1))
    first, second, third = (_emit_block(builder, near, which) for which in range(3))
    return builder.xor(builder.xor(builder.xor(first, second), third), _emit_block(builder, last, 3))


def _emit_wide(
    builder: Any, data: Any, at: Any, end: Any, value: Any, moved: Callable[[Any, Any], Any], blocks: int
) -> tuple[Any, Any]:
    """Emit: fold 64 bytes at a time while there are as many. Return where the rest starts, and the value of what is before it.

    An instruction moves a vector of `blocks`."""
    long, byte, index = (ir.IntType(bits) for bits in (64, 8, 32))
    pair, wide = ir.VectorType(long, 2), ir.VectorType(long, 2 * blocks)
    kind = ir.FunctionType(wide, [wide, wide, byte])
    name = "llvm.x86.pclmulqdq"
    function = cgutils.get_or_insert_function(
        builder.module, kind, name if blocks == 1 else f"{name}.{128 * blocks}"
    )
    step = ir.Constant(long, 16 * _AT_ONCE)
    vectors = range(0, _AT_ONCE, blocks)

    def load(place: Any) -> list[Any]:
        places = [builder.add(place, ir.Constant(long, 16 * i)) for i in vectors]
        pointers = [builder.bitcast(builder.gep(data, [i]), wide.as_pointer()) for i in places]
        return [builder.load(pointer, align=1) for pointer in pointers]

    def product(value: Any, distances: Sequence[int]) -> Any:
        return _emit_moved(builder, function, value, distances)

    def split(value: Any) -> list[Any]:
        """Return the blocks of a vector."""
        return [_emit_block(builder, value, block) for block in range(blocks)]

    def with_first(value: Any, first: Any) -> Any:
        """Add to the first of the blocks."""
        for i in (0, 1):
            lane = ir.Constant(index, i)
            both = builder.xor(builder.extract_element(value, lane), builder.extract_element(first, lane))
            value = builder.insert_element(value, both, lane)
        return value

    before, begin, after = builder.block, *(builder.append_basic_block(name) for name in ("wide", "narrow"))
    builder.cbranch(builder.icmp_signed("<=", builder.add(at, step), end), begin, after)
    builder.position_at_end(begin)
    started = load(at)
    started[0] = with_first(started[0], moved(value, ir.Constant(pair, [0, 0])))
    second = builder.add(at, step)

    def folded(place: Any, states: list[Any]) -> list[Any]:
        return [
            builder.xor(product(state, [_AT_ONCE] * blocks), added)
            for state, added in zip(states, load(place), strict=True)
        ]

    limit = builder.sub(end, ir.Constant(long, 16 * _AT_ONCE - 1))  # from here on there are fewer bytes
    rest, lasts = emit_loop(builder, second, limit, step, started, folded)
    sums = [
        block
        for i, last in zip(vectors, lasts, strict=True)
        for block in split(product(last, [_AT_ONCE - 1 - i - j for j in range(blocks)]))
    ]
    reduced = builder.xor(builder.xor(*sums[:2]), builder.xor(sums[2], split(lasts[-1])[-1]))
    reduce = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    out, result = builder.phi(long), builder.phi(pair)
    for phi, start, next_one in ((out, at, rest), (result, value, reduced)):
        phi.add_incoming(start, before)
        phi.add_incoming(next_one, reduce)
    return out, result


@intrinsic("i8, const u1[], i8, i8 -> i8", _emit_fold)
def _fold(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`, at least 32 bytes. Unchecked."""
    raise NotImplementedError("only where `_can_fold`")


# Arrays are buffers, which the type checker does not know.
_crc32: Callable[[Any, int], int] = zlib.crc32


def _by_zlib(crc: int, buf: Bytes, at: int, end: int) -> int:
    return _crc32(buf[at:end], crc ^ _ONES) ^ _ONES


@kernel("i8, i8", inline=True)
def _four(word: int, at: int) -> int:
    """Return the sum of four bytes, each from its own table. The last byte has the table that starts at `at`."""
    return (
        int(_SLICES[at + 768 + (word & 0xFF)])
        ^ int(_SLICES[at + 512 + (word >> 8 & 0xFF)])
        ^ int(_SLICES[at + 256 + (word >> 16 & 0xFF)])
        ^ int(_SLICES[at + (word >> 24 & 0xFF)])
    )


@kernel("i8, i8", inline=True)
def _eight(word: int, at: int) -> int:
    """Return the same of eight bytes."""
    return _four(word, at + 1024) ^ _four(word >> 32, at)


@kernel("i8, const u1[], i8, i8")
def _by_slicing(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`, computed from tables."""
    while end - at >= 16:
        crc = (_eight(load_i64le(buf, at) ^ crc, 2048) ^ _eight(load_i64le(buf, at + 8), 0)) & _ONES
        at += 16
    if end - at >= 8:
        crc = _eight(load_i64le(buf, at) ^ crc, 0) & _ONES
        at += 8
    if end - at >= 4:
        crc = _four(load_u32le(buf, at) ^ crc, 0) & _ONES
        at += 4
    while at < end:
        crc = (crc >> 8) ^ (int(_SLICES[(crc ^ load_u8(buf, at)) & 0xFF]) & _ONES)
        at += 1
    return crc


@kernel("i8, const u1[], i8, i8", python=_by_zlib, inline=True)
def crc32_raw(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`."""
    if at < 0 or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    if _can_fold() and end - at >= 32:
        return _fold(crc, buf, at, end)
    return _by_slicing(crc, buf, at, end)


_POWERS = powers(_POLYNOMIAL)


@kernel("i8, const u1[], i8, i8")
def crc32_update(crc: int, buf: Bytes, start: int, end: int) -> int:
    """Continue a checksum with `buf[start:end]`. 0 is the checksum of nothing."""
    return crc32_raw(crc ^ _ONES, buf, start, end) ^ _ONES


@kernel("const u1[], i8, i8", inline=True)
def crc32(buf: Bytes, start: int, end: int) -> int:
    """Return the CRC-32 of `buf[start:end]`. Raises IndexError for a range outside of the buffer."""
    return crc32_raw(_ONES, buf, start, end) ^ _ONES


@kernel("i8, i8, i8")
def crc32_combine(crc1: int, crc2: int, len2: int) -> int:
    """Return the checksum of A followed by B, from those of A and B and the length of B. Self-inverse like `crc32c_combine`."""
    return appended(crc1, len2, _POWERS, _POLYNOMIAL) ^ crc2
