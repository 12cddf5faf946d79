"""CRC-32C (Castagnoli, RFC 3720 B.4), reflected. A "raw" checksum is the register, without the inversion before and
after.

Uses the processor's instruction if it has one, else tables. Callable inside kernels and from Python, like `intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.deferred import cgutils, crc32c_package, ir
from logwright.codec.kernels.intrinsics import emit_load, load_u8, prefetch, view
from logwright.codec.kernels.kernel import intrinsic, kernel

POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF


def _multiplied(a: Any, b: Any, polynomial: int) -> Any:
    """Return the product of two reflected polynomials (the highest bit is x**0), or of arrays of them, modulo that of a CRC."""
    product = 0
    for bit in range(31, -1, -1):
        product ^= b & -(a >> bit & 1)
        b = (b >> 1) ^ (polynomial & -(b & 1))
    return product


def slicing(polynomial: int, count: int) -> Int64s:
    """Return tables of a reflected 32-bit CRC. Row k holds the contribution of a byte that is followed by k more bytes."""
    row = np.arange(256, dtype=np.int64)
    for _ in range(8):
        row = (row >> 1) ^ (row & 1) * polynomial
    rows = [row]
    for _ in range(count - 1):
        rows.append((rows[-1] >> 8) ^ rows[0][rows[-1] & 0xFF])
    return np.concatenate(rows)


_DIGITS = 16 * 16
"""The values of the 16 hexadecimal digits of a number."""


@cache
def powers(polynomial: int) -> Int64s:
    """Return factors for appending zero bytes to a raw checksum: x**(8 * d * 16**k) at 16 * k + d. Those with one, two and three more zero
    bytes follow."""
    squares = [0x00800000]
    while len(squares) < 64:
        squares.append(_multiplied(squares[-1], squares[-1], polynomial))
    by_bit = np.array(squares, np.int64).reshape(16, 4)
    factors = np.full((16, 16), 1 << 31, np.int64)
    for bit in range(4):
        value = 1 << bit
        factors[:, value] = by_bit[:, bit]
        factors[:, value + 1 : 2 * value] = _multiplied(
            factors[:, 1:value], by_bit[:, bit : bit + 1], polynomial
        )
    rows, row = [factors.reshape(-1)], slicing(polynomial, 1)
    while len(rows) < 4:
        rows.append(rows[-1] >> 8 ^ row[rows[-1] & 0xFF])
    return np.concatenate(rows)


@kernel("i8, i8, const i8[], i8")
def appended(crc: int, zeros: int, factors: Int64s, polynomial: int) -> int:
    """Return the raw checksum after appending `zeros` zero bytes. `factors` are the `powers` of the polynomial."""
    at = 0
    while zeros > 0:
        # One multiplication per digit. The highest bit is x**0, so the highest byte takes the factor itself.
        place = at + (zeros & 15)
        first, second = int(factors[place]), int(factors[_DIGITS + place])
        third, fourth = int(factors[2 * _DIGITS + place]), int(factors[3 * _DIGITS + place])
        product = 0
        for bit in range(8):
            product = (
                (product >> 1 ^ polynomial & -(product & 1))
                ^ (first & -(crc >> 24 + bit & 1) ^ second & -(crc >> 16 + bit & 1))
                ^ (third & -(crc >> 8 + bit & 1) ^ fourth & -(crc >> bit & 1))
            )
        crc = product
        zeros >>= 4
        at += 16
    return crc


def shifting(zeros: int, polynomial: int) -> Int64s:
    """Return tables, 256 values for each byte of a raw checksum, for appending `zeros` zero bytes."""
    by = appended.py_func(1 << 31, zeros, powers(polynomial), polynomial)
    basis = _multiplied(1 << np.arange(32), by, polynomial)
    table = np.zeros((4, 256), np.int64)
    values = np.arange(256)
    for bit, image in enumerate(basis.tolist()):
        table[bit // 8] ^= np.where(values >> bit % 8 & 1, image, 0)
    return table.reshape(-1)


_POWERS = powers(POLYNOMIAL)
_SLICES = slicing(POLYNOMIAL, 8)
# Three parallel streams keep the CRC instruction busy: its latency is three cycles, its throughput one per cycle. Two sizes: the
# larger the streams, the fewer the combinations but the longer the remainder.
_LONG, _SHORT = 1024, 128
_SHIFT_LONG, _SHIFT_LONG_2 = (shifting(zeros, POLYNOMIAL) for zeros in (_LONG, 2 * _LONG))
_SHIFT_SHORT, _SHIFT_SHORT_2 = (shifting(zeros, POLYNOMIAL) for zeros in (_SHORT, 2 * _SHORT))


def _crc_instruction(triple: str, features: str, width: int) -> str | None:
    """Return LLVM's name of the CRC-32C instruction for `width` bytes, if the processor has one."""
    has = features.split(",")
    if triple.startswith("x86_64") and "+sse4.2" in has:
        return "llvm.x86.sse42.crc32.64.64" if width == 8 else f"llvm.x86.sse42.crc32.32.{8 * width}"
    if triple.startswith(("aarch64", "arm64")) and "+crc" in has:
        return "llvm.aarch64.crc32c" + {8: "x", 4: "w", 2: "h", 1: "b"}[width]
    return None


def processor() -> tuple[str, str]:
    """Return the target triple and the features of the processor that numba compiles for."""
    from numba.core.registry import cpu_target

    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple, features


def _emit_crc(builder: Any, instruction: str, crc: Any, word: Any, width: int) -> Any:
    """Emit a call of the instruction on a checksum and a word, both in 64 bits."""
    i64, i32 = ir.IntType(64), ir.IntType(32)
    # Arm's instructions use 32 bits except for the word of eight bytes; Intel's take words of 1, 2, 4 or 8 bytes.
    arm = "aarch64" in instruction
    result = i64 if width == 8 and not arm else i32
    operand = i64 if width == 8 else i32 if arm else ir.IntType(8 * width)
    if result != i64:
        crc = builder.trunc(crc, result)
    if operand != i64:
        word = builder.trunc(word, operand)
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(result, [result, operand]), instruction
    )
    after = builder.call(function, [crc, word])
    return after if result == i64 else builder.zext(after, i64)


def _emit_has_instruction(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return ir.Constant(ir.IntType(1), _crc_instruction(*processor(), 8) is not None)


@intrinsic("-> b1", _emit_has_instruction)
def _has_instruction() -> bool:
    """Return whether the processor computes CRC-32C. Known when a kernel is compiled, so the other branch costs nothing."""
    return False


def _step(name: str, width: int) -> Any:
    """Make an unchecked intrinsic `(crc, buf, at) -> crc`: the raw checksum after `width` more bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        instruction = _crc_instruction(*processor(), width)
        if instruction is None:
            # In a branch that never runs.
            return args[0]
        data, _ = view(context, builder, signature.args[1], args[1])
        word = emit_load(builder, data, args[2], width, "little", False)
        return _emit_crc(builder, instruction, args[0], word, width)

    def step(crc: int, buf: Bytes, at: int) -> int:
        for byte in buf[at : at + width].tobytes():
            crc = (crc >> 8) ^ int(_SLICES[(crc ^ byte) & 0xFF])
        return crc

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"The raw checksum after {width} more bytes."
    return intrinsic("i8, const u1[], i8 -> i8", generate)(step)


_step_8: Callable[[int, Bytes, int], int] = _step("_step_8", 8)
_step_4: Callable[[int, Bytes, int], int] = _step("_step_4", 4)
_step_2: Callable[[int, Bytes, int], int] = _step("_step_2", 2)
_step_1: Callable[[int, Bytes, int], int] = _step("_step_1", 1)


def _load_unchecked(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data, _ = view(context, builder, signature.args[0], args[0])
    return emit_load(builder, data, args[1], 8, "little", True)


@intrinsic("const u1[], i8 -> i8", _load_unchecked)
def _word(buf: Bytes, at: int) -> int:
    """Load eight bytes, unchecked."""
    return int.from_bytes(buf[at : at + 8].tobytes(), "little", signed=True)


@kernel("i8, const i8[]")
def shifted(crc: int, table: Int64s) -> int:
    """Return the raw checksum after appending the zero bytes that the table is for."""
    return (
        int(table[crc & 0xFF])
        ^ int(table[256 + (crc >> 8 & 0xFF)])
        ^ int(table[512 + (crc >> 16 & 0xFF)])
        ^ int(table[768 + (crc >> 24 & 0xFF)])
    )


@kernel("i8, const u1[], i8, i8")
def _by_instruction(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the raw checksum after `buf[at:end]`, computed by the processor's instruction. Unchecked."""
    while end - at >= 3 * _LONG:
        second = third = 0
        for line in range(at, at + _LONG, 64):
            # Each line of the cache that the next round reads: processors do not recognise three streams in turn.
            for stream in range(line + 3 * _LONG, line + 6 * _LONG, _LONG):
                prefetch(buf, stream)
            for i in range(line, line + 64, 8):
                crc = _step_8(crc, buf, i)
                second = _step_8(second, buf, i + _LONG)
                third = _step_8(third, buf, i + 2 * _LONG)
        crc = shifted(crc, _SHIFT_LONG_2) ^ shifted(second, _SHIFT_LONG) ^ third
        at += 3 * _LONG
    while end - at >= 3 * _SHORT:
        second = third = 0
        for i in range(at, at + _SHORT, 8):
            crc = _step_8(crc, buf, i)
            second = _step_8(second, buf, i + _SHORT)
            third = _step_8(third, buf, i + 2 * _SHORT)
        crc = shifted(crc, _SHIFT_SHORT_2) ^ shifted(second, _SHIFT_SHORT) ^ third
        at += 3 * _SHORT
    while end - at >= 8:
        crc = _step_8(crc, buf, at)
        at += 8
    if end - at >= 4:
        crc = _step_4(crc, buf, at)
        at += 4
    if end - at >= 2:
        crc = _step_2(crc, buf, at)
        at += 2
    if end > at:
        crc = _step_1(crc, buf, at)
    return crc


@kernel("i8, const u1[], i8, i8")
def _by_slicing(crc: int, buf: Bytes, at: int, end: int) -> int:
    """Return the same from tables, eight bytes per step."""
    while end - at >= 8:
        word = _word(buf, at) ^ crc
        crc = (
            int(_SLICES[1792 + (word & 0xFF)])
            ^ int(_SLICES[1536 + (word >> 8 & 0xFF)])
            ^ int(_SLICES[1280 + (word >> 16 & 0xFF)])
            ^ int(_SLICES[1024 + (word >> 24 & 0xFF)])
            ^ int(_SLICES[768 + (word >> 32 & 0xFF)])
            ^ int(_SLICES[512 + (word >> 40 & 0xFF)])
            ^ int(_SLICES[256 + (word >> 48 & 0xFF)])
            ^ int(_SLICES[word >> 56 & 0xFF])
        )
        at += 8
    while at < end:
        crc = (crc >> 8) ^ int(_SLICES[(crc ^ load_u8(buf, at)) & 0xFF])
        at += 1
    return crc


def crc32c_bytes(data: Any, crc: int = 0) -> int:
    """Return the CRC-32C of any buffer, or of a buffer after other bytes with the CRC-32C `crc`."""
    return crc32c_package.crc32c(data, crc)


def _update_by_package(crc: int, buf: Bytes, start: int, end: int) -> int:
    if start < 0 or end < start or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    return crc32c_bytes(buf[start:end], crc)


def _crc32c_by_package(buf: Bytes, start: int, end: int) -> int:
    return _update_by_package(0, buf, start, end)


@kernel("i8, const u1[], i8, i8", python=_update_by_package)
def crc32c_update(crc: int, buf: Bytes, start: int, end: int) -> int:
    """Continue a checksum with `buf[start:end]`. 0 is the checksum of nothing.

    Raises IndexError when the range is not within the buffer.
    """
    if start < 0 or end < start or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    if _has_instruction():
        return _by_instruction(crc ^ _ONES, buf, start, end) ^ _ONES
    return _by_slicing(crc ^ _ONES, buf, start, end) ^ _ONES


@kernel("const u1[], i8, i8", python=_crc32c_by_package)
def crc32c(buf: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of `buf[start:end]`. Raises IndexError for a range outside of the buffer."""
    return crc32c_update(0, buf, start, end)


@kernel("const u1[], i8, i8, i8, i8")
def crc32c_of_three(buf: Bytes, first: int, second: int, third: int, size: int) -> tuple[int, int, int]:
    """Return the checksums of three ranges of the same size, computed in parallel to hide the instruction's latency.

    Raises IndexError when a range is not within the buffer.
    """
    last = len(buf) - size
    if size < 0 or min(first, second, third) < 0 or max(first, second, third) > last:
        raise IndexError("checksum outside of the buffer")
    crc1 = crc2 = crc3 = 0
    done = 0
    if _has_instruction():
        crc1 = crc2 = crc3 = _ONES
        done = size & -8
        for i in range(0, done, 8):
            crc1 = _step_8(crc1, buf, first + i)
            crc2 = _step_8(crc2, buf, second + i)
            crc3 = _step_8(crc3, buf, third + i)
        crc1 ^= _ONES
        crc2 ^= _ONES
        crc3 ^= _ONES
    return (
        crc32c_update(crc1, buf, first + done, first + size),
        crc32c_update(crc2, buf, second + done, second + size),
        crc32c_update(crc3, buf, third + done, third + size),
    )


@kernel("i8, i8, i8")
def crc32c_combine(crc1: int, crc2: int, len2: int) -> int:
    """Return the checksum of A followed by B, from those of A and B and the length of B.

    It is self-inverse: from the checksums of two prefixes it computes that of the bytes between, so the
    checksum of any range comes from two checksums of prefixes: `crc32c_combine(crc[start], crc[end], end - start)`.
    """
    return appended(crc1, len2, _POWERS, POLYNOMIAL) ^ crc2
