"""Adler-32, the checksum of ZooKeeper's transactions and snapshots (`java.util.zip.Adler32`, initial value 1)."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.deferred import cgutils, ir
from logwright.codec.kernels.intrinsics import emit_loop, load_u8
from logwright.codec.kernels.kernel import INTERPRETED, intrinsic, kernel
from logwright.codec.kernels.kernel import mode as kernel_mode

MOD = 65521
"""The largest prime below 2**16 (`BASE` in RFC 1950)."""
_STEP = 1 << 20
"""The number of bytes summed before the sums are reduced. They fit easily into 64 bits."""
_LANES = 32
_UNIT = 4 * _LANES
"""The number of bytes summed without a branch. A mispredicted branch costs more than summing some zeros."""
_BLOCK = 5 * _UNIT
"""The number of bytes whose sums fit the 16 bits of a lane: after 20 steps at most 255 * 20 * 21 / 2."""


_LARGE = 1 << 18
"""The size in bytes from which on the kernel, several times as fast as zlib, is worth a call."""


def _by_zlib(buf: Bytes, at: int, end: int) -> int:
    return zlib.adler32(buf[at:end].data)


def adler32_of(data: bytes | bytearray | memoryview | Bytes, value: int = 1) -> int:
    """Continue a checksum with more bytes, like `zlib.adler32`."""
    if len(data) < _LARGE or not _compiles():
        return zlib.adler32(data, value)  # type: ignore[arg-type]
    buf = np.frombuffer(data, np.uint8)
    return int(adler32_combine.py_func(value, int(adler32.compile()(buf, 0, len(buf))), len(buf)))


def _compiles() -> bool:
    """Return whether the kernel is available without waiting for the compiler."""
    return kernel_mode() != INTERPRETED and "numba" in sys.modules and _kept()


@functools.cache
def _kept() -> bool:
    return adler32.cached()


def _emit_sums(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    at, n = args[1], args[2]
    byte, half, wide, long = (ir.IntType(bits) for bits in (8, 16, 32, 64))
    bytes_, halves, wides = (ir.VectorType(item, _LANES) for item in (byte, half, wide))

    def load(place: Any) -> Any:
        pointer = builder.bitcast(builder.gep(data, [place]), bytes_.as_pointer())
        return builder.load(pointer, align=1)

    def widened(values: Any) -> Any:
        return builder.zext(values, halves)

    # The first unit begins before `at` unless the size is a multiple of a unit. The bytes before `at` are masked.
    pad = builder.and_(builder.neg(n), long(_UNIT - 1))
    first = builder.sub(at, pad)
    padded = builder.insert_element(
        ir.Constant(bytes_, ir.Undefined), builder.trunc(pad, byte), ir.Constant(wide, 0)
    )
    pads = builder.shuffle_vector(padded, padded, ir.Constant(wides, [0] * _LANES))
    zeros = ir.Constant(bytes_, [0] * _LANES)

    def begin(k: int) -> Any:
        counts = builder.icmp_unsigned(">=", ir.Constant(bytes_, list(range(k, k + _LANES))), pads)
        return widened(builder.select(counts, load(builder.add(first, long(k))), zeros))

    def summed_up(values: Iterable[Any], total: Any, sums: Any) -> tuple[Any, Any]:
        for value in values:
            total = builder.add(total, value)
            sums = builder.add(sums, total)
        return total, sums

    places = range(0, _UNIT, _LANES)
    none = ir.Constant(halves, [0] * _LANES)
    begun = summed_up(map(begin, places), none, none)

    def more(place: Any, sums: Sequence[Any]) -> tuple[Any, Any]:
        return summed_up((widened(load(builder.add(place, long(k)))) for k in places), *sums)

    second, end = builder.add(first, long(_UNIT)), builder.add(at, n)
    _, (lanes, weights) = emit_loop(builder, second, end, long(_UNIT), begun, more)

    def summed(values: Any) -> Any:
        width = _LANES
        while width > 1:
            width //= 2
            low, high = (
                ir.Constant(ir.VectorType(wide, width), list(range(k, k + width))) for k in (0, width)
            )
            values = builder.add(
                builder.shuffle_vector(values, values, low), builder.shuffle_vector(values, values, high)
            )
        return builder.zext(builder.extract_element(values, ir.Constant(wide, 0)), long)

    # A byte is weighted by the number of bytes from it to the end: by blocks, minus its position in the block.
    lanes, weights = builder.zext(lanes, wides), builder.zext(weights, wides)
    weighted = builder.sub(
        builder.mul(weights, ir.Constant(wides, [_LANES] * _LANES)),
        builder.mul(lanes, ir.Constant(wides, list(range(_LANES)))),
    )
    return cgutils.pack_array(builder, [summed(lanes), summed(weighted)])


@intrinsic("const u1[], i8, i8 -> i8, i8", _emit_sums)
def _sums(buf: Bytes, at: int, n: int) -> tuple[int, int]:
    """Return the sum of 1 to `_BLOCK` bytes from `at` on, and the sum of all prefix sums. Unchecked: `at` must be at least `_UNIT`, because
    bytes before it are read."""
    values = buf[at : at + n].astype(np.int64)
    return int(values.sum()), int((values * np.arange(n, 0, -1)).sum())


@kernel("const u1[], i8, i8", python=_by_zlib, inline=True)
def adler32(buf: Bytes, at: int, end: int) -> int:
    """Return the checksum of `buf[at:end]`. Raises IndexError for a range outside of the buffer."""
    if at < 0 or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    n = end - at
    if at >= _UNIT and 0 < n <= _BLOCK:
        # The common case. 2**16 is `MOD` + 15 and the sums are small, so no division is needed.
        total, weighted = _sums(buf, at, n)
        a = total + 1
        b = weighted + n
        a = (a & 0xFFFF) + 15 * (a >> 16)
        b = (b & 0xFFFF) + 15 * (b >> 16)
        if a >= MOD:
            a -= MOD
        if b >= MOD:
            b -= MOD
        return b << 16 | a
    a = 1
    b = 0
    while at < min(end, _UNIT):
        a += load_u8(buf, at)
        b += a
        at += 1
    while at < end:
        stop = min(at + _STEP, end)
        while at < stop:
            n = min(stop - at, _BLOCK)
            total, weighted = _sums(buf, at, n)
            b += n * a + weighted
            a += total
            at += n
        a %= MOD
        b %= MOD
    return (b % MOD) << 16 | a % MOD


@kernel("i8, i8, i8")
def adler32_combine(first: int, second: int, length: int) -> int:
    """Return the checksum of A followed by B, from the checksums of A and B and the length of B."""
    a1 = first & 0xFFFF
    a = (a1 + (second & 0xFFFF) + MOD - 1) % MOD
    b = ((first >> 16) + (second >> 16) + (length % MOD) * ((a1 + MOD - 1) % MOD)) % MOD
    return b << 16 | a


@kernel("i8, const u1[], i8, i8")
def adler32_update(value: int, buf: Bytes, start: int, end: int) -> int:
    """Continue a checksum with `buf[start:end]`."""
    return adler32_combine(value, adler32(buf, start, end), end - start)


@kernel("i8, i8, i8")
def adler32_between(first: int, second: int, length: int) -> int:
    """Return the checksum of the last `length` bytes, from the checksums without and with them."""
    a1 = first & 0xFFFF
    a = ((second & 0xFFFF) - a1 + 1) % MOD
    b = ((second >> 16) - (first >> 16) - length % MOD * (a1 - 1)) % MOD
    return b << 16 | a
