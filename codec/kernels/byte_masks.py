"""Search for bytes 64 at a time, for kernels: a mask has a bit per byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.deferred import ir
from logwright.codec.kernels.intrinsics import load_u8, outside, refuse, view
from logwright.codec.kernels.kernel import CHECKED, intrinsic, kernel, mode

MASKED = 64
"""The number of bytes compared at a time."""


def _loaded(builder: Any, data: Any, at: Any) -> Any:
    """Emit: the 64 bytes at `at`."""
    many = ir.VectorType(ir.IntType(8), MASKED)
    return builder.load(builder.bitcast(builder.gep(data, [at]), many.as_pointer()), align=1)


def _repeated(builder: Any, value: Any) -> Any:
    """Emit: 64 times the byte `value`."""
    byte, index = ir.IntType(8), ir.IntType(32)
    undefined = ir.Constant(ir.VectorType(byte, MASKED), ir.Undefined)
    first = builder.insert_element(undefined, builder.trunc(value, byte), ir.Constant(index, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(index, MASKED), [0] * MASKED))


def _emit_mask(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array, at, value = args
    data, length = view(context, builder, signature.args[0], array)
    size = ir.Constant(at.type, MASKED)
    refuse(context, builder, outside(builder, at, size, length), "equal_mask reads outside of the buffer")
    values = _loaded(builder, data, at)
    return builder.bitcast(builder.icmp_unsigned("==", values, _repeated(builder, value)), ir.IntType(MASKED))


@intrinsic("const u1[], i8, i8 -> i8", _emit_mask)
def _mask_of_all(buf: Bytes, at: int, value: int) -> int:
    return sum(1 << int(i) for i in np.flatnonzero(buf[at : at + MASKED] == value))


def _emit_masks(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array, at, *bytes_ = args
    data, length = view(context, builder, signature.args[0], array)
    if mode() == CHECKED:
        size = ir.Constant(at.type, MASKED)
        refuse(context, builder, outside(builder, at, size, length), "masks_of outside of the buffer")
    values = _loaded(builder, data, at)
    masks = [builder.icmp_unsigned("==", values, _repeated(builder, value)) for value in bytes_]
    masks.append(builder.icmp_signed("<", values, ir.Constant(values.type, None)))
    masks = [builder.bitcast(mask, ir.IntType(MASKED)) for mask in masks]
    return context.make_tuple(builder, signature.return_type, masks)


@intrinsic("const u1[], i8, i8, i8 -> i8, i8, i8", _emit_masks)
def masks_of(buf: Bytes, at: int, first: int, second: int) -> tuple[int, int, int]:
    """Return which of the 64 bytes at `at` are `first`, which are `second`, and which are above 127. Compiled, the range is not checked,
    like indices of arrays: the kernel has done it. Compiled, bit 63 is the sign."""
    if at < 0 or at + MASKED > len(buf):
        raise IndexError("masks_of outside of the buffer")
    part = buf[at : at + MASKED]
    first_mask, second_mask, high = (
        sum(1 << int(i) for i in np.flatnonzero(test)) for test in (part == first, part == second, part > 127)
    )
    return first_mask, second_mask, high


def _emit_lowest(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))


@intrinsic("i8 -> i8", _emit_lowest)
def lowest_bit(value: int) -> int:
    """Return the index of the lowest bit that is set. `value` is not 0."""
    return (int(value) & -int(value)).bit_length() - 1


@kernel("const u1[], i8, i8, i8", inline=True)
def equal_mask(buf: Bytes, at: int, end: int, value: int) -> int:
    """Return in bit i whether byte i of `buf[at:end]` is `value`, for the first 64 bytes. Compiled, bit 63 is the sign."""
    mask = 0
    if len(buf) - at >= MASKED:
        mask = _mask_of_all(buf, at, value)
    else:
        for i in range(len(buf) - at):
            if load_u8(buf, at + i) == value:
                mask |= 1 << i
    return mask if end - at >= MASKED else mask & (1 << int(end - at)) - 1
