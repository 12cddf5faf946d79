"""CRC-32 (zlib, IEEE 802.3), inside kernels and from Python: by carry-less multiplication if the processor has it, else from tables.

A "raw" checksum is the register, without the inversion before and after.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logwright.codec.kernels.crc32c import appended, powers, slicing
from logwright.codec.kernels.intrinsics import Bytes, load_i64le, load_u8, load_u32le
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
"""The number of blocks of sixteen bytes that one instruction moves, on processors that have it."""
_FACTORS = [(0, 0), *((_multiplier(128 * n + 32), _multiplier(128 * n - 32)) for n in range(1, _AT_ONCE + 1))]
"""The factors that move the first and the second eight bytes of a block n blocks forward."""
_NEAR = _FACTORS[1][1]
_LAST = _multiplier(64)
"""The factor of the last four of twelve bytes."""
_QUOTIENT, _DIVISOR = 0x1F7011641, _POLYNOMIAL << 1 | 1
"""The factors of Barrett's reduction of eight bytes: x**64 divided by the polynomial, and the polynomial."""


def _has_product(triple: str, features: str) -> bool:
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


def _has_wide_product(features: str) -> bool:
    return {"+avx512f", "+vpclmulqdq"} <= set(features.split(","))


def _emit_can_fold(typing_context: Any) -> Any:
    from numba.core import types
    from numba.core.registry import cpu_target

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        triple, _, features = cpu_target.target_context.codegen().magic_tuple()
        return context.get_constant(types.boolean, _has_product(triple, features))

    return types.boolean(), generate


@intrinsic(_emit_can_fold)
def _can_fold() -> bool:
    """Return whether the processor has carry-less multiplication. Known when a kernel is compiled."""
    return False


def _emit_fold(typing_context: Any, crc: Any, buf: Any, at: Any, end: Any) -> Any:
    from numba.core import types
    from numba.core.registry import cpu_target

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir
        from numba.core import cgutils

        crc, array, at, end = args
        data = context.make_array(signature.args[1])(context, builder, array).data
        long, byte, index, wide = (ir.IntType(bits) for bits in (64, 8, 32, 128))
        pair = ir.VectorType(long, 2)
        triple, _, features = cpu_target.target_context.codegen().magic_tuple()

        def number(value: int) -> Any:
            return ir.Constant(long, value)

        def load(place: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(data, [place]), pair.as_pointer()), align=1)

        def product(value: Any, factors: Sequence[int], which: int) -> Any:
            if not _has_product(triple, features):
                return value  # in a branch that never runs
            declared: Any = cgutils.get_or_insert_function
            kind = ir.FunctionType(pair, [pair, pair, byte])
            function = declared(builder.module, kind, "llvm.x86.pclmulqdq")
            return builder.call(function, [value, ir.Constant(pair, factors), ir.Constant(byte, which)])

        def moved(value: Any, onto: Any) -> Any:
            factors = _FACTORS[1]
            return builder.xor(
                builder.xor(product(value, factors, 0x00), product(value, factors, 0x11)), onto
            )

        def half(value: Any, which: int) -> Any:
            return builder.extract_element(value, ir.Constant(index, which))

        def low(value: Any) -> Any:
            return builder.insert_element(ir.Constant(pair, [0, 0]), value, ir.Constant(index, 0))

        # The first 1 to 16 bytes become the end of a block that starts with zeros, so that the rest consists of complete blocks.
        size = builder.add(builder.and_(builder.sub(builder.sub(end, at), number(1)), number(15)), number(1))
        begun = builder.bitcast(builder.xor(load(at), low(crc)), wide)
        begun = builder.shl(begun, builder.zext(builder.shl(builder.sub(number(16), size), number(3)), wide))
        # A register of four bytes reaches into the second block if the first has fewer.
        shift = builder.and_(builder.shl(size, number(3)), number(63))
        reaches = builder.icmp_signed("<", size, number(4))
        left = builder.select(reaches, builder.lshr(crc, shift), number(0))
        second = builder.add(at, size)
        first = moved(builder.bitcast(begun, pair), builder.xor(load(second), low(left)))
        step = number(16)
        third = builder.add(second, step)
        if _has_wide_product(features):
            third, first = _emit_wide(builder, data, third, end, first, moved)
        before, body, after = (
            builder.block,
            *(builder.append_basic_block(name) for name in ("fold", "folded")),
        )
        builder.cbranch(builder.icmp_signed("<", third, end), body, after)
        builder.position_at_end(body)
        place, value = builder.phi(long), builder.phi(pair)
        more = moved(value, load(place))
        following = builder.add(place, step)
        for phi, start, next_one in ((place, third, following), (value, first, more)):
            phi.add_incoming(start, before)
            phi.add_incoming(next_one, body)
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(after)
        last = builder.phi(pair)
        last.add_incoming(first, before)
        last.add_incoming(more, body)
        # From 16 to 12 to 8 bytes, and by Barrett's reduction to 4.
        mask = number(_ONES)
        twelve = builder.xor(product(low(half(last, 0)), (_NEAR, 0), 0x00), low(half(last, 1)))
        upper = builder.or_(
            builder.lshr(half(twelve, 0), number(32)), builder.shl(half(twelve, 1), number(32))
        )
        lower = product(low(builder.and_(half(twelve, 0), mask)), (_LAST, 0), 0x00)
        eight = builder.xor(half(lower, 0), upper)
        quotient = product(low(builder.and_(eight, mask)), (_QUOTIENT, 0), 0x00)
        multiple = product(low(builder.and_(half(quotient, 0), mask)), (_DIVISOR, 0), 0x00)
        return builder.lshr(builder.xor(half(multiple, 0), eight), number(32))

    return types.int64(types.int64, buf, types.int64, types.int64), generate


def _emit_wide(
    builder: Any, data: Any, at: Any, end: Any, value: Any, moved: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Emit: fold 64 bytes at a time while there are as many. Return where the rest starts, and the value of what is before it."""
    from llvmlite import ir
    from numba.core import cgutils

    long, byte, index = (ir.IntType(bits) for bits in (64, 8, 32))
    pair, wide = ir.VectorType(long, 2), ir.VectorType(long, 2 * _AT_ONCE)
    declared: Any = cgutils.get_or_insert_function
    kind = ir.FunctionType(wide, [wide, wide, byte])
    function = declared(builder.module, kind, "llvm.x86.pclmulqdq.512")
    step = ir.Constant(long, 16 * _AT_ONCE)

    def load(place: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(data, [place]), wide.as_pointer()), align=1)

    def product(value: Any, distances: Sequence[int]) -> Any:
        """Move each of the blocks forward by its number of blocks."""
        factors = ir.Constant(wide, [factor for distance in distances for factor in _FACTORS[distance]])
        halves = [
            builder.call(function, [value, factors, ir.Constant(byte, which)]) for which in (0x00, 0x11)
        ]
        return builder.xor(*halves)

    def block(value: Any, which: int) -> Any:
        lanes = [ir.Constant(index, 2 * which + i) for i in (0, 1)]
        return builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(index, 2), lanes))

    def with_first(value: Any, first: Any) -> Any:
        """Add to the first of the blocks."""
        for i in (0, 1):
            lane = ir.Constant(index, i)
            both = builder.xor(builder.extract_element(value, lane), builder.extract_element(first, lane))
            value = builder.insert_element(value, both, lane)
        return value

    before, begin, body, reduce, after = (
        builder.block,
        *(builder.append_basic_block(name) for name in ("begin_wide", "fold_wide", "reduce", "narrow")),
    )
    builder.cbranch(builder.icmp_signed("<=", builder.add(at, step), end), begin, after)
    builder.position_at_end(begin)
    started = with_first(load(at), moved(value, ir.Constant(pair, [0, 0])))
    second = builder.add(at, step)
    builder.cbranch(builder.icmp_signed("<=", builder.add(second, step), end), body, reduce)
    builder.position_at_end(body)
    place, state = builder.phi(long), builder.phi(wide)
    folded = builder.xor(product(state, [_AT_ONCE] * _AT_ONCE), load(place))
    following = builder.add(place, step)
    for phi, start, next_one in ((place, second, following), (state, started, folded)):
        phi.add_incoming(start, begin)
        phi.add_incoming(next_one, body)
    builder.cbranch(builder.icmp_signed("<=", builder.add(following, step), end), body, reduce)
    builder.position_at_end(reduce)
    rest, last = builder.phi(long), builder.phi(wide)
    for phi, start, next_one in ((rest, second, following), (last, started, folded)):
        phi.add_incoming(start, begin)
        phi.add_incoming(next_one, body)
    sums = product(last, range(_AT_ONCE - 1, -1, -1))
    early, late = (builder.xor(block(sums, i), block(sums, i + 1)) for i in (0, 2))
    reduced = builder.xor(builder.xor(early, late), block(last, _AT_ONCE - 1))
    builder.branch(after)
    builder.position_at_end(after)
    out, result = builder.phi(long), builder.phi(pair)
    for phi, start, next_one in ((out, at, rest), (result, value, reduced)):
        phi.add_incoming(start, before)
        phi.add_incoming(next_one, reduce)
    return out, result


@intrinsic(_emit_fold)
def _fold(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`, at least 32 bytes. Unchecked."""
    raise NotImplementedError("only where `_can_fold`")


# Arrays are buffers, which the type checker does not know.
_crc32: Callable[[Any, int], int] = zlib.crc32


def _by_zlib(crc: int, buf: Bytes, at: int, end: int) -> int:
    return _crc32(buf[at:end], crc ^ _ONES) ^ _ONES


@kernel("i8, const u1[], i8, i8", python=_by_zlib)
def crc32_raw(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`."""
    if at < 0 or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    if _can_fold() and end - at >= 32:
        return _fold(crc, buf, at, end)
    while end - at >= 16:
        word = load_i64le(buf, at) ^ crc
        more = load_i64le(buf, at + 8)
        crc = (
            int(_SLICES[3840 + (word & 0xFF)])
            ^ int(_SLICES[3584 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[3328 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[3072 + (word >> 24 & 0xFF)])
            ^ int(_SLICES[2816 + (word >> 32 & 0xFF)])
            ^ int(_SLICES[2560 + (word >> 40 & 0xFF)])
            ^ int(_SLICES[2304 + (word >> 48 & 0xFF)])
            ^ int(_SLICES[2048 + (word >> 56 & 0xFF)])
            ^ int(_SLICES[1792 + (more & 0xFF)])
            ^ int(_SLICES[1536 + (more >> 8 & 0xFF)])
            ^ int(_SLICES[1280 + (more >> 16 & 0xFF)])
            ^ int(_SLICES[1024 + (more >> 24 & 0xFF)])
            ^ int(_SLICES[768 + (more >> 32 & 0xFF)])
            ^ int(_SLICES[512 + (more >> 40 & 0xFF)])
            ^ int(_SLICES[256 + (more >> 48 & 0xFF)])
            ^ int(_SLICES[more >> 56 & 0xFF])
        ) & _ONES
        at += 16
    if end - at >= 8:
        word = load_i64le(buf, at) ^ crc
        crc = (
            int(_SLICES[1792 + (word & 0xFF)])
            ^ int(_SLICES[1536 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[1280 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[1024 + (word >> 24 & 0xFF)])
            ^ int(_SLICES[768 + (word >> 32 & 0xFF)])
            ^ int(_SLICES[512 + (word >> 40 & 0xFF)])
            ^ int(_SLICES[256 + (word >> 48 & 0xFF)])
            ^ int(_SLICES[word >> 56 & 0xFF])
        ) & _ONES
        at += 8
    if end - at >= 4:
        word = load_u32le(buf, at) ^ crc
        crc = (
            int(_SLICES[768 + (word & 0xFF)])
            ^ int(_SLICES[512 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[256 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[word >> 24 & 0xFF])
        ) & _ONES
        at += 4
    while at < end:
        crc = (crc >> 8) ^ (int(_SLICES[(crc ^ load_u8(buf, at)) & 0xFF]) & _ONES)
        at += 1
    return crc


_POWERS = powers(_POLYNOMIAL)


@kernel("i8, const u1[], i8, i8")
def crc32_update(crc: int, buf: Bytes, start: int, end: int) -> int:
    """Continue a checksum with `buf[start:end]`. 0 is the checksum of nothing."""
    return crc32_raw(crc ^ _ONES, buf, start, end) ^ _ONES


@kernel("const u1[], i8, i8")
def crc32(buf: Bytes, start: int, end: int) -> int:
    """Return the CRC-32 of `buf[start:end]`. Raises IndexError for a range outside of the buffer."""
    return crc32_raw(_ONES, buf, start, end) ^ _ONES


@kernel("i8, i8, i8")
def crc32_combine(crc1: int, crc2: int, len2: int) -> int:
    """Return the checksum of A followed by B, from those of A and B and the length of B. Self-inverse like `crc32c_combine`."""
    return appended(crc1, len2, _POWERS, _POLYNOMIAL) ^ crc2
