"""CRC-32 (zlib, IEEE 802.3), inside kernels and from Python: by carry-less multiplication if the processor has it, else from tables.

A "raw" checksum is the register, without the inversion before and after.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
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


_FAR, _NEAR = _multiplier(128 + 32), _multiplier(128 - 32)
"""The factors that move the first and the second eight bytes sixteen bytes forward."""


def _has_product(triple: str, features: str) -> bool:
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


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

        pack: Any = cgutils.pack_array
        crc, array, at, end = args
        data = context.make_array(signature.args[1])(context, builder, array).data
        long, byte, index = ir.IntType(64), ir.IntType(8), ir.IntType(32)
        pair = ir.VectorType(long, 2)
        triple, _, features = cpu_target.target_context.codegen().magic_tuple()

        def load(place: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(data, [place]), pair.as_pointer()), align=1)

        def product(value: Any, which: int) -> Any:
            if not _has_product(triple, features):
                return value  # in a branch that never runs
            declared: Any = cgutils.get_or_insert_function
            kind = ir.FunctionType(pair, [pair, pair, byte])
            function = declared(builder.module, kind, "llvm.x86.pclmulqdq")
            by = ir.Constant(pair, [_FAR, _NEAR])
            return builder.call(function, [value, by, ir.Constant(byte, which)])

        start = builder.insert_element(ir.Constant(pair, [0, 0]), crc, ir.Constant(index, 0))
        first = builder.xor(load(at), start)
        step = ir.Constant(long, 16)
        before, body, after = (
            builder.block,
            *(builder.append_basic_block(name) for name in ("fold", "folded")),
        )
        second = builder.add(at, step)
        builder.cbranch(builder.icmp_signed("<", second, end), body, after)
        builder.position_at_end(body)
        place, value = builder.phi(long), builder.phi(pair)
        moved = builder.xor(builder.xor(product(value, 0x00), product(value, 0x11)), load(place))
        following = builder.add(place, step)
        for phi, begun, next_one in ((place, second, following), (value, first, moved)):
            phi.add_incoming(begun, before)
            phi.add_incoming(next_one, body)
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(after)
        last = builder.phi(pair)
        last.add_incoming(first, before)
        last.add_incoming(moved, body)
        words = [builder.extract_element(last, ir.Constant(index, i)) for i in range(2)]
        return pack(builder, words)

    pair: Any = types.UniTuple
    return pair(types.int64, 2)(types.int64, buf, types.int64, types.int64), generate


@intrinsic(_emit_fold)
def _fold(crc: int, buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Fold `buf[at:end]`, a positive multiple of 16 bytes, to two words whose checksum from register 0 is that of the range from `crc`.
    Unchecked."""
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
    folds = _can_fold() and end - at >= 32
    while end - at >= 16:
        if folds:
            word, more = _fold(crc, buf, at, at + (end - at & ~15))
            at += (end - at & ~15) - 16
            folds = False
        else:
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
