"""Copies, unaligned loads and stores, and variable-length integers for kernels.

All functions can be called inside kernels and from Python, on arrays of bytes (uint8, one dimension, contiguous), and
give the same results in all three modes. numba's bounds checks do not cover them, so each checks its ranges itself in
every mode, and raises `IndexError` before an access outside of the array. A kernel on hostile input checks lengths first;
the error indicates a bug in a kernel. `copy_32`, `copy_64` and `put` are the exception: like numba's array indices they are
checked in the modes for debugging and fuzzing only.

All integers are int64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes as Bytes
from logwright.codec.deferred import cgutils, ir
from logwright.codec.kernels.kernel import CHECKED, intrinsic, kernel, mode


def view(context: Any, builder: Any, array_type: Any, value: Any) -> tuple[Any, Any]:
    """Return the address and length of an array."""
    array = context.make_array(array_type)(context, builder, value)
    return array.data, array.nitems


def refuse(context: Any, builder: Any, bad: Any, message: str) -> None:
    """Emit: raise `IndexError` if `bad`."""
    with builder.if_then(bad, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, (message,))


def outside(builder: Any, at: Any, width: Any, length: Any) -> Any:
    """Emit: whether `[at, at + width)` exceeds `length`. `width` is not negative. Cannot overflow."""
    before = builder.icmp_signed("<", at, ir.Constant(at.type, 0))
    return builder.or_(before, builder.icmp_signed(">", at, builder.sub(length, width)))


# Loads and stores of fixed width


def _load(name: str, width: int, order: str, *, signed: bool) -> Any:
    """Make an intrinsic `(buf, at) -> int64` that reads `width` bytes."""
    message = f"{name} reads outside of the buffer"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, length = view(context, builder, signature.args[0], args[0])
        size = ir.Constant(args[1].type, width)
        refuse(context, builder, outside(builder, args[1], size, length), message)
        return emit_load(builder, data, args[1], width, order, signed)

    def load(buf: Bytes, at: int) -> int:
        if at < 0 or at + width > len(buf):
            raise IndexError(message)
        if width == 1:
            return buf.item(at)
        return int.from_bytes(buf[at : at + width].tobytes(), order, signed=signed)  # type: ignore[arg-type]

    load.__name__ = load.__qualname__ = name
    load.__doc__ = f"The {8 * width}-bit {order}-endian {'signed' if signed else 'unsigned'} integer at `at`."
    return intrinsic("const u1[], i8 -> i8", generate)(load)


def emit_load(builder: Any, data: Any, at: Any, width: int, order: str, signed: bool) -> Any:
    number, wide = ir.IntType(8 * width), ir.IntType(64)
    pointer = builder.bitcast(builder.gep(data, [at]), number.as_pointer())
    value = builder.load(pointer, align=1)
    if order != sys.byteorder and width > 1:
        value = builder.bswap(value)
    if width == 8:
        return value
    return builder.sext(value, wide) if signed else builder.zext(value, wide)


def _store(name: str, width: int, order: str) -> Any:
    """Make an intrinsic `(buf, at, value) -> at + width` that writes the low `width` bytes of a signed or unsigned value."""
    message = f"{name} writes outside of the buffer"
    mask = (1 << 8 * width) - 1

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        buffer, at, value = args
        data, length = view(context, builder, signature.args[0], buffer)
        size = ir.Constant(at.type, width)
        refuse(context, builder, outside(builder, at, size, length), message)
        number = ir.IntType(8 * width)
        if width < 8:
            value = builder.trunc(value, number)
        if order != sys.byteorder and width > 1:
            value = builder.bswap(value)
        builder.store(value, builder.bitcast(builder.gep(data, [at]), number.as_pointer()), align=1)
        return builder.add(at, size)

    def store(buf: Bytes, at: int, value: int) -> int:
        if at < 0 or at + width > len(buf):
            raise IndexError(message)
        encoded = (int(value) & mask).to_bytes(width, order)  # type: ignore[arg-type]
        buf[at : at + width] = np.frombuffer(encoded, np.uint8)
        return at + width

    store.__name__ = store.__qualname__ = name
    store.__doc__ = (
        f"Write the low {8 * width} bits of a value at `at`, {order}-endian; returns where they end."
    )
    return intrinsic("u1[], i8, i8 -> i8", generate)(store)


Load = Callable[[Bytes, int], int]
Store = Callable[[Bytes, int, int], int]
Copy = Callable[[Bytes, int, Bytes, int, int], None]

load_u8: Load = _load("load_u8", 1, "big", signed=False)
load_i64be: Load = _load("load_i64be", 8, "big", signed=True)
load_i32be: Load = _load("load_i32be", 4, "big", signed=True)
load_u32be: Load = _load("load_u32be", 4, "big", signed=False)
load_i16be: Load = _load("load_i16be", 2, "big", signed=True)
load_u16be: Load = _load("load_u16be", 2, "big", signed=False)
load_i64le: Load = _load("load_i64le", 8, "little", signed=True)
load_i32le: Load = _load("load_i32le", 4, "little", signed=True)
load_u32le: Load = _load("load_u32le", 4, "little", signed=False)
load_u16le: Load = _load("load_u16le", 2, "little", signed=False)

store_64be: Store = _store("store_64be", 8, "big")
store_32be: Store = _store("store_32be", 4, "big")
store_16be: Store = _store("store_16be", 2, "big")
store_64le: Store = _store("store_64le", 8, "little")
store_32le: Store = _store("store_32le", 4, "little")
store_16le: Store = _store("store_16le", 2, "little")


def _emit_prefetch(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data, _ = view(context, builder, signature.args[0], args[0])
    place, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [place, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # For reading, into all cache levels, data.
    hints = [ir.Constant(number, value) for value in (0, 3, 1)]
    builder.call(function, [builder.bitcast(builder.gep(data, [args[1]]), place), *hints])
    return context.get_dummy_value()


@intrinsic("any[], i8 -> none", _emit_prefetch)
def prefetch(array: npt.NDArray[Any], at: int) -> None:
    """Prefetch the item with flat index `at` into the processor's cache. Does nothing for an index
    outside of the array."""


# Copies


def _copying(
    name: str,
    emit_move: Callable[[Any, Any, Any, Any, Any], None],
    emit_short: Callable[[Any, Any, Any], None] | None = None,
) -> Any:
    """Make an intrinsic `(dst, dst_at, src, src_at, n)`. `emit_move` copies `n` valid bytes between addresses. Its last argument is the
    number of bytes available at both. `emit_short` copies `_SHORT` bytes, for an `n` up to that where they are available."""
    message = f"{name} outside of a buffer"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dst, dst_at, src, src_at, n = args
        dst_data, dst_length = view(context, builder, signature.args[0], dst)
        src_data, src_length = view(context, builder, signature.args[2], src)
        target, source = builder.gep(dst_data, [dst_at]), builder.gep(src_data, [src_at])

        def beyond(size: Any) -> Any:
            return builder.or_(
                outside(builder, dst_at, size, dst_length), outside(builder, src_at, size, src_length)
            )

        def checked() -> None:
            bad = builder.or_(builder.icmp_signed("<", n, ir.Constant(n.type, 0)), beyond(n))
            refuse(context, builder, bad, message)
            to_end, from_end = builder.sub(dst_length, dst_at), builder.sub(src_length, src_at)
            room = builder.select(builder.icmp_signed("<", to_end, from_end), to_end, from_end)
            emit_move(builder, target, source, n, room)

        if emit_short is None:
            checked()
        else:
            size = ir.Constant(n.type, _SHORT)
            is_long = builder.or_(beyond(size), builder.icmp_unsigned(">", n, size))
            with builder.if_else(is_long, likely=False) as (yes, no):
                with yes:
                    checked()
                with no:
                    emit_short(builder, target, source)
        return context.get_dummy_value()

    def move(dst: Bytes, dst_at: int, src: Bytes, src_at: int, n: int) -> None:
        if n < 0 or dst_at < 0 or src_at < 0 or dst_at + n > len(dst) or src_at + n > len(src):
            raise IndexError(message)
        dst[dst_at : dst_at + n] = src[src_at : src_at + n]

    move.__name__ = move.__qualname__ = name
    return intrinsic("u1[], i8, const u1[], i8, i8 -> none", generate)(move)


def _move(builder: Any, kind: Any, target: Any, source: Any, places: Sequence[Any]) -> None:
    """Emit a copy of a value at each of these positions, which may overlap: all are read before one is written."""
    pointer = kind.as_pointer()
    values = [builder.load(builder.bitcast(builder.gep(source, [i]), pointer), align=1) for i in places]
    for i, value in zip(places, values, strict=True):
        builder.store(value, builder.bitcast(builder.gep(target, [i]), pointer), align=1)


def _below(builder: Any, n: Any, limit: int, short: Callable[[], None], other: Callable[[], None]) -> None:
    with builder.if_else(builder.icmp_signed("<", n, ir.Constant(n.type, limit))) as (yes, no):
        with yes:
            short()
        with no:
            other()


def emit_loop(
    builder: Any, place: Any, end: Any, step: Any, values: Sequence[Any], change: Callable[[Any, list[Any]], Sequence[Any]]
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Emit: while `place` is before `end`, let `change` compute the next values, and add `step` to it. Return the place and values after."""
    before, body, after = builder.block, *(builder.append_basic_block(name) for name in ("loop", "looped"))
    builder.cbranch(builder.icmp_signed("<", place, end), body, after)
    builder.position_at_end(body)
    firsts = [place, *values]
    phis = [builder.phi(first.type) for first in firsts]
    changed = change(phis[0], phis[1:])
    following = [builder.add(phis[0], step), *changed]
    builder.cbranch(builder.icmp_signed("<", following[0], end), body, after)
    builder.position_at_end(after)
    lasts = [builder.phi(first.type) for first in firsts]
    for phi, last, first, next_one in zip(phis, lasts, firsts, following, strict=True):
        for joined in (phi, last):
            joined.add_incoming(first, before)
            joined.add_incoming(next_one, body)
    return lasts[0], lasts[1:]


def _memmove(builder: Any, target: Any, source: Any, n: Any) -> None:
    """Emit memmove, not memcpy, because source and target may overlap. It is no slower."""
    cgutils.raw_memmove(builder, target, source, n, ir.Constant(n.type, 1))


def _emit_copy(builder: Any, target: Any, source: Any, n: Any, room: Any) -> None:
    constant = n.type

    def move(kind: Any, *places: Any) -> None:
        _move(builder, kind, target, source, places)

    def ends(kind: Any, width: int) -> Callable[[], None]:
        """Copy `width` to `2 * width` bytes as the first and the last `width` bytes."""
        return lambda: move(kind, constant(0), builder.sub(n, constant(width)))

    def below(limit: int, short: Callable[[], None], other: Callable[[], None]) -> None:
        _below(builder, n, limit, short, other)

    byte = ir.IntType(8)

    def one_to_three() -> None:
        move(byte, constant(0), builder.lshr(n, constant(1)), builder.sub(n, constant(1)))

    # Calling memmove costs more than a short copy, and most keys and many values are short.
    def up_to_seven() -> None:
        below(4, lambda: below(1, lambda: None, one_to_three), ends(ir.IntType(32), 4))

    def up_to_sixteen() -> None:
        below(8, up_to_seven, ends(ir.IntType(64), 8))

    def more() -> None:
        below(33, ends(ir.VectorType(byte, 16), 16), lambda: _memmove(builder, target, source, n))

    below(17, up_to_sixteen, more)


copy: Copy = _copying("copy", _emit_copy)
copy.__doc__ = """Copy `src[src_at : src_at + n]` to `dst[dst_at : dst_at + n]`; they may overlap.

    Raises IndexError, and writes nothing, for a negative `n` or a range outside of its buffer.
    """

_AT_ONCE = 64, 128, 256
"""The sizes to which short copies are rounded up."""


def _emit_append(builder: Any, target: Any, source: Any, n: Any, room: Any) -> None:
    few, more, many = _AT_ONCE
    kind, width = ir.VectorType(ir.IntType(8), 32), 32

    constant = n.type

    def move(size: int) -> Callable[[], None]:
        return lambda: _move(
            builder, kind, target, source, [constant(place) for place in range(0, size, width)]
        )

    short = builder.icmp_signed("<=", n, constant(many))
    with builder.if_else(builder.and_(short, builder.icmp_signed(">=", room, constant(many)))) as (yes, no):
        with yes:
            _below(
                builder, n, few + 1, move(few), lambda: _below(builder, n, more + 1, move(more), move(many))
            )
        with no:
            _memmove(builder, target, source, n)


append: Copy = _copying("append", _emit_append)
append.__doc__ = """Like `copy`, for buffers filled from front to back: some bytes of `dst` after the range become undefined.

    Copying values of varying sizes takes half the time, because there are fewer branches to mispredict.
    """


_SHORT = 32
"""The size to which `append_short` rounds up."""


def _emit_append_short(builder: Any, target: Any, source: Any) -> None:
    _move(builder, ir.VectorType(ir.IntType(8), _SHORT), target, source, [ir.Constant(ir.IntType(64), 0)])


append_short: Copy = _copying("append_short", _emit_append, _emit_append_short)
append_short.__doc__ = """Like `append`, for values that are rarely longer than 32 bytes."""


# Without a check of each access


def _block_copy(width: int) -> Any:
    """Make an intrinsic `(dst, dst_at, src, src_at)` that copies `width` bytes."""
    message = f"copy_{width} outside of a buffer"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dst, dst_at, src, src_at = args
        dst_data, dst_length = view(context, builder, signature.args[0], dst)
        src_data, src_length = view(context, builder, signature.args[2], src)
        if mode() == CHECKED:
            size = ir.Constant(dst_at.type, width)
            bad = outside(builder, dst_at, size, dst_length)
            refuse(context, builder, builder.or_(bad, outside(builder, src_at, size, src_length)), message)
        target, source = builder.gep(dst_data, [dst_at]), builder.gep(src_data, [src_at])
        _move(builder, ir.VectorType(ir.IntType(8), width), target, source, [ir.Constant(ir.IntType(64), 0)])
        return context.get_dummy_value()

    def move(dst: Bytes, dst_at: int, src: Bytes, src_at: int) -> None:
        if min(dst_at, src_at) < 0 or dst_at + width > len(dst) or src_at + width > len(src):
            raise IndexError(message)
        dst[dst_at : dst_at + width] = src[src_at : src_at + width]

    move.__name__ = move.__qualname__ = f"copy_{width}"
    move.__doc__ = f"""Copy {width} bytes. Compiled, the ranges are not checked, like indices of arrays: the kernel has done it."""
    return intrinsic("u1[], i8, const u1[], i8 -> none", generate)(move)


copy_32: Callable[[Bytes, int, Bytes, int], None] = _block_copy(32)
copy_64: Callable[[Bytes, int, Bytes, int], None] = _block_copy(64)


def _emit_put(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array, at, value = args
    data, length = view(context, builder, signature.args[0], array)
    if mode() == CHECKED:
        bad = outside(builder, at, ir.Constant(at.type, 1), length)
        refuse(context, builder, bad, "put outside of the array")
    number = data.type.pointee
    if number != value.type:
        value = builder.trunc(value, number)
    builder.store(value, builder.gep(data, [at]))
    return context.get_dummy_value()


@intrinsic("any[], i8, i8 -> none", _emit_put)
def put(array: npt.NDArray[Any], at: int, value: int) -> None:
    """Store `array[at] = value`, without the test for an index that counts from the end. Checked as `copy_32`."""
    if at < 0:
        raise IndexError("put outside of the array")
    array[at] = value


# Text


_ASCII = 16
"""The number of bytes tested at a time."""


def _emit_ascii(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    at, n = args[1:]
    data, length = view(context, builder, signature.args[0], args[0])
    bad = builder.or_(builder.icmp_signed("<", n, ir.Constant(n.type, 0)), outside(builder, at, n, length))
    refuse(context, builder, bad, "is_ascii reads outside of the buffer")
    start = builder.gep(data, [at])
    byte, wide = ir.IntType(8), ir.IntType(64)
    many = ir.VectorType(byte, _ASCII)
    # The bitwise or of all bytes, in 64 bits.
    seen = cgutils.alloca_once_value(builder, ir.Constant(wide, 0))

    constant = n.type

    def load(kind: Any, place: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(start, [place]), kind.as_pointer()), align=1)

    def ends(kind: Any, width: int) -> Callable[[], None]:
        """Test `width` to `2 * width` bytes as the first and the last `width` bytes."""

        def look() -> None:
            both = builder.or_(load(kind, constant(0)), load(kind, builder.sub(n, constant(width))))
            builder.store(builder.zext(both, wide) if width < 8 else both, seen)

        return look

    def one_to_three() -> None:
        first, middle, last = (
            load(byte, place)
            for place in (constant(0), builder.lshr(n, constant(1)), builder.sub(n, constant(1)))
        )
        builder.store(builder.zext(builder.or_(first, builder.or_(middle, last)), wide), seen)

    def long() -> None:
        last = builder.sub(n, constant(_ASCII))
        end = load(many, last)
        _, (all_of_it,) = emit_loop(
            builder, constant(0), last, constant(_ASCII), [end],
            lambda place, bits: [builder.or_(bits[0], load(many, place))],
        )  # fmt: skip
        halves = builder.bitcast(all_of_it, ir.VectorType(wide, 2))
        low, high = (builder.extract_element(halves, ir.Constant(ir.IntType(32), i)) for i in range(2))
        builder.store(builder.or_(low, high), seen)

    def below(limit: int, short: Callable[[], None], other: Callable[[], None]) -> None:
        _below(builder, n, limit, short, other)

    def up_to_seven() -> None:
        below(4, lambda: below(1, lambda: None, one_to_three), ends(ir.IntType(32), 4))

    below(_ASCII, lambda: below(8, up_to_seven, ends(wide, 8)), long)
    high_bits = builder.and_(builder.load(seen), ir.Constant(wide, 0x8080808080808080))
    return builder.icmp_unsigned("==", high_bits, ir.Constant(wide, 0))


@intrinsic("const u1[], i8, i8 -> b1", _emit_ascii)
def is_ascii(buf: Bytes, at: int, n: int) -> bool:
    """Return whether all of `buf[at : at + n]` are below 128. Raises IndexError for a range outside of the buffer."""
    if n < 0 or at < 0 or at + n > len(buf):
        raise IndexError("is_ascii reads outside of the buffer")
    return buf[at : at + n].tobytes().isascii()


# Variable-length integers: LEB128, low group first, zig-zag for signed ones. The high bit of a byte means that more follow.
# Readers accept overlong encodings and drop excess bits of the last byte, like Kafka
# (org.apache.kafka.common.utils.ByteUtils) and Protocol Buffers; writers produce the shortest form.


@kernel("const u1[], i8, i8")
def read_uvarint(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read an unsigned 32-bit integer of 1 to 5 bytes from `buf[at:end]`: (value, end).

    Returns (0, -1) for an integer that exceeds `end` or 5 bytes, and for a range outside of the buffer.
    """
    if at < 0 or end > len(buf):
        return 0, -1
    value = 0
    for shift in range(0, 28, 7):
        if at >= end:
            return 0, -1
        byte = load_u8(buf, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    if at >= end or load_u8(buf, at) >= 0x80:
        return 0, -1
    return value | (load_u8(buf, at) & 0x0F) << 28, at + 1


@kernel("const u1[], i8, i8")
def read_uvarlong(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read 64 bits of 1 to 10 bytes from `buf[at:end]`, as a signed integer: (value, end).

    Returns (0, -1) for an integer that exceeds `end` or 10 bytes, and for a range outside of the buffer.
    """
    if at < 0 or end > len(buf):
        return 0, -1
    value = 0
    for shift in range(0, 63, 7):
        if at >= end:
            return 0, -1
        byte = load_u8(buf, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    if at >= end or load_u8(buf, at) >= 0x80:
        return 0, -1
    # -1 << 63 is the same bit as 1 << 63, without overflow in Python's unbounded integers.
    return value | -(load_u8(buf, at) & 1) << 63, at + 1


@kernel("const u1[], i8, i8")
def read_varint(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a zig-zag 32-bit integer of 1 to 5 bytes from `buf[at:end]`: (value, end), or (0, -1) as `read_uvarint`."""
    value, after = read_uvarint(buf, at, end)
    return (value >> 1) ^ -(value & 1), after


@kernel("const u1[], i8, i8")
def read_varlong(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a zig-zag 64-bit integer of 1 to 10 bytes from `buf[at:end]`: (value, end), or (0, -1) as `read_uvarlong`."""
    value, after = read_uvarlong(buf, at, end)
    return (value >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), after


@kernel("i8")
def size_uvarlong(value: int) -> int:
    """Return the number of bytes that `write_uvarlong` writes, 1 to 10."""
    size = 1
    value = value >> 7 & 0x01FFFFFFFFFFFFFF
    while value:
        value >>= 7
        size += 1
    return size


@kernel("u1[], i8, i8")
def write_uvarlong(buf: Bytes, at: int, value: int) -> int:
    """Write 64 bits, a negative value as the unsigned integer of the same bits. Returns the end.

    Raises IndexError if the buffer is too small.
    """
    if at < 0 or size_uvarlong(value) > len(buf) - at:
        raise IndexError("variable-length integer outside of the buffer")
    rest = value >> 7 & 0x01FFFFFFFFFFFFFF
    group = value & 0x7F
    while rest:
        buf[at] = group | 0x80
        group = rest & 0x7F
        rest >>= 7
        at += 1
    buf[at] = group
    return at + 1


@kernel("i8")
def _zigzag(value: int) -> int:
    """Return (value << 1) ^ (value >> 63) as signed 64 bits, without overflow in Python's unbounded integers."""
    return ((value & 0x3FFFFFFFFFFFFFFF) << 1 | -(value >> 62 & 1) << 63) ^ value >> 63


@kernel("i8")
def size_varlong(value: int) -> int:
    """Return the number of bytes that `write_varlong` writes, 1 to 10."""
    return size_uvarlong(_zigzag(value))


@kernel("u1[], i8, i8")
def write_varlong(buf: Bytes, at: int, value: int) -> int:
    """Write a zig-zag 64-bit integer and return its end. Raises IndexError if the buffer is too small.

    A 32-bit value has the same bytes in 32-bit form, so there is no `write_varint`.
    """
    return write_uvarlong(buf, at, _zigzag(value))
