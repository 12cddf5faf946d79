"""What kernels need of the machine: copies, checksums, unaligned loads and stores, variable-length integers.

Everything here is called inside kernels and from Python alike, on arrays of bytes (uint8, one dimension, contiguous), and
gives the same in all three modes. Bounds checking by numba does not see what these do, so each checks its ranges itself in
every mode, and raises `IndexError` before it touches a byte that is not there. A kernel on hostile input checks lengths first;
the error is for mistakes in kernels.

Integers are int64 in and out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import crc32c as _package
import numpy as np
import numpy.typing as npt

from logwright.codec.kernel import intrinsic, kernel

Bytes = npt.NDArray[np.uint8]

# Arrays are buffers, which the type checker does not know before Python 3.12.
_package_crc32c: Callable[[Any, int], int] = _package.crc32c


def _is_bytes(array: Any) -> bool:
    """Whether a numba type is an array of bytes."""
    from numba.core import types

    return (
        isinstance(array, types.Array)
        and array.dtype == types.uint8
        and array.ndim == 1
        and array.layout == "C"
    )


def _view(context: Any, builder: Any, array_type: Any, value: Any) -> tuple[Any, Any]:
    """Address and length of an array."""
    array = context.make_array(array_type)(context, builder, value)
    return array.data, array.nitems


def _refuse(context: Any, builder: Any, bad: Any, message: str) -> None:
    """Leave the kernel with an `IndexError` where `bad`."""
    with builder.if_then(bad, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, (message,))


def _outside(builder: Any, at: Any, width: Any, length: Any) -> Any:
    """Whether `[at, at + width)` is not all within `length`; `width` is not negative. Nothing here can overflow."""
    from llvmlite import ir

    before = builder.icmp_signed("<", at, ir.Constant(at.type, 0))
    return builder.or_(before, builder.icmp_signed(">", at, builder.sub(length, width)))


# Loads and stores of fixed width


def _load(name: str, width: int, order: str, *, signed: bool) -> Any:
    """An intrinsic `(buf, at) -> int64` that reads `width` bytes."""
    message = f"{name} reads outside of the buffer"

    def emit(typing_context: Any, buf: Any, at: Any) -> Any:
        from numba.core import types

        if not _is_bytes(buf) or not isinstance(at, types.Integer):
            return None

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            from llvmlite import ir

            data, length = _view(context, builder, signature.args[0], args[0])
            _refuse(
                context,
                builder,
                _outside(builder, args[1], ir.Constant(args[1].type, width), length),
                message,
            )
            return _emit_load(builder, data, args[1], width, order, signed)

        return types.int64(buf, types.int64), generate

    def load(buf: Bytes, at: int) -> int:
        if at < 0 or at + width > len(buf):
            raise IndexError(message)
        if width == 1:
            return buf.item(at)
        return int.from_bytes(buf[at : at + width].tobytes(), order, signed=signed)  # type: ignore[arg-type]

    load.__name__ = load.__qualname__ = name
    load.__doc__ = f"The {8 * width}-bit {order}-endian {'signed' if signed else 'unsigned'} integer at `at`."
    return intrinsic(emit)(load)


def _emit_load(builder: Any, data: Any, at: Any, width: int, order: str, signed: bool) -> Any:
    import sys

    from llvmlite import ir

    number, wide = ir.IntType(8 * width), ir.IntType(64)
    pointer = builder.bitcast(builder.gep(data, [at]), number.as_pointer())
    value = builder.load(pointer, align=1)
    if order != sys.byteorder and width > 1:
        value = builder.bswap(value)
    if width == 8:
        return value
    return builder.sext(value, wide) if signed else builder.zext(value, wide)


def _store(name: str, width: int, order: str) -> Any:
    """An intrinsic `(buf, at, value) -> at + width` that writes the low `width` bytes of a value, signed or not."""
    message = f"{name} writes outside of the buffer"
    mask = (1 << 8 * width) - 1

    def emit(typing_context: Any, buf: Any, at: Any, value: Any) -> Any:
        from numba.core import types

        if not _is_bytes(buf) or not buf.mutable or not isinstance(at, types.Integer):
            return None

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            import sys

            from llvmlite import ir

            buffer, at, value = args
            data, length = _view(context, builder, signature.args[0], buffer)
            size = ir.Constant(at.type, width)
            _refuse(context, builder, _outside(builder, at, size, length), message)
            number = ir.IntType(8 * width)
            if width < 8:
                value = builder.trunc(value, number)
            if order != sys.byteorder and width > 1:
                value = builder.bswap(value)
            builder.store(value, builder.bitcast(builder.gep(data, [at]), number.as_pointer()), align=1)
            return builder.add(at, size)

        return types.int64(buf, types.int64, types.int64), generate

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
    return intrinsic(emit)(store)


Load = Callable[[Bytes, int], int]
Store = Callable[[Bytes, int, int], int]

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


def _emit_prefetch(typing_context: Any, buf: Any, at: Any) -> Any:
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir
        from numba.core import cgutils

        declared: Any = cgutils.get_or_insert_function
        data, _ = _view(context, builder, signature.args[0], args[0])
        place, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place, number, number, number])
        function = declared(builder.module, kind, "llvm.prefetch.p0")
        # To be read, to be kept in all caches, data.
        how = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(function, [builder.bitcast(builder.gep(data, [args[1]]), place), *how])
        return context.get_dummy_value()

    return types.none(buf, types.int64), generate


@intrinsic(_emit_prefetch)
def prefetch(array: npt.NDArray[Any], at: int) -> None:
    """Have the processor fetch the item `at`, counted through all of its dimensions, which is needed soon. Nothing happens where that is
    outside of the array."""


# Copies


def _emit_copy(typing_context: Any, dst: Any, dst_at: Any, src: Any, src_at: Any, n: Any) -> Any:
    from numba.core import types

    if not _is_bytes(dst) or not dst.mutable or not _is_bytes(src):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir
        from numba.core import cgutils

        raw_memmove: Any = cgutils.raw_memmove
        dst, dst_at, src, src_at, n = args
        dst_data, dst_length = _view(context, builder, signature.args[0], dst)
        src_data, src_length = _view(context, builder, signature.args[2], src)

        def constant(value: int) -> Any:
            return ir.Constant(n.type, value)

        bad = builder.icmp_signed("<", n, constant(0))
        bad = builder.or_(bad, _outside(builder, dst_at, n, dst_length))
        bad = builder.or_(bad, _outside(builder, src_at, n, src_length))
        _refuse(context, builder, bad, "copy outside of a buffer")
        target, source = builder.gep(dst_data, [dst_at]), builder.gep(src_data, [src_at])

        def move(kind: Any, *places: Any) -> None:
            """Copy a value of a kind at each of these places, which may overlap: all are read before one is written."""
            pointer = kind.as_pointer()
            values = [
                builder.load(builder.bitcast(builder.gep(source, [i]), pointer), align=1) for i in places
            ]
            for i, value in zip(places, values, strict=True):
                builder.store(value, builder.bitcast(builder.gep(target, [i]), pointer), align=1)

        def ends(kind: Any, width: int) -> Callable[[], None]:
            """For `width` to `2 * width` bytes: the first ones and the last ones."""
            return lambda: move(kind, constant(0), builder.sub(n, constant(width)))

        def below(limit: int, short: Callable[[], None], other: Callable[[], None]) -> None:
            with builder.if_else(builder.icmp_signed("<", n, constant(limit))) as (yes, no):
                with yes:
                    short()
                with no:
                    other()

        byte = ir.IntType(8)

        def one_to_three() -> None:
            move(byte, constant(0), builder.lshr(n, constant(1)), builder.sub(n, constant(1)))

        # A call to memmove costs more than such a copy itself, and most keys and many values are short.
        def up_to_seven() -> None:
            below(4, lambda: below(1, lambda: None, one_to_three), ends(ir.IntType(32), 4))

        def up_to_sixteen() -> None:
            below(8, up_to_seven, ends(ir.IntType(64), 8))

        def more() -> None:
            # memmove, since both may be the same buffer; it is no slower than memcpy.
            below(
                33,
                ends(ir.VectorType(byte, 16), 16),
                lambda: raw_memmove(builder, target, source, n, constant(1)),
            )

        below(17, up_to_sixteen, more)
        return context.get_dummy_value()

    return types.none(dst, types.int64, src, types.int64, types.int64), generate


@intrinsic(_emit_copy)
def copy(dst: Bytes, dst_at: int, src: Bytes, src_at: int, n: int) -> None:
    """Copy `src[src_at : src_at + n]` to `dst[dst_at : dst_at + n]`; they may overlap.

    Raises IndexError, and writes nothing, when `n` is negative or one of the ranges is not within its buffer.
    """
    if n < 0 or dst_at < 0 or src_at < 0 or dst_at + n > len(dst) or src_at + n > len(src):
        raise IndexError("copy outside of a buffer")
    dst[dst_at : dst_at + n] = src[src_at : src_at + n]


# Text


_ASCII = 16
"""So many bytes are looked at at a time."""


def _emit_ascii(typing_context: Any, buf: Any, at: Any, n: Any) -> Any:
    from numba.core import types

    if not _is_bytes(buf):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir
        from numba.core import cgutils

        at, n = args[1:]
        data, length = _view(context, builder, signature.args[0], args[0])
        bad = builder.or_(
            builder.icmp_signed("<", n, ir.Constant(n.type, 0)), _outside(builder, at, n, length)
        )
        _refuse(context, builder, bad, "is_ascii reads outside of the buffer")
        start = builder.gep(data, [at])
        byte, wide = ir.IntType(8), ir.IntType(64)
        many = ir.VectorType(byte, _ASCII)
        allocated: Any = cgutils.alloca_once_value
        # All bytes, or-ed into the 64 bits of one number.
        seen = allocated(builder, ir.Constant(wide, 0))

        def constant(value: int) -> Any:
            return ir.Constant(n.type, value)

        def load(kind: Any, place: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(start, [place]), kind.as_pointer()), align=1)

        def ends(kind: Any, width: int) -> Callable[[], None]:
            """For `width` to `2 * width` bytes: the first ones and the last ones."""

            def look() -> None:
                both = builder.or_(load(kind, constant(0)), load(kind, builder.sub(n, constant(width))))
                builder.store(builder.zext(both, wide) if width < 8 else both, seen)

            return look

        def one_to_three() -> None:
            one, two, three = (
                load(byte, place)
                for place in (constant(0), builder.lshr(n, constant(1)), builder.sub(n, constant(1)))
            )
            builder.store(builder.zext(builder.or_(one, builder.or_(two, three)), wide), seen)

        def long() -> None:
            last = builder.sub(n, constant(_ASCII))
            end = load(many, last)
            before = builder.block
            body, after = (builder.append_basic_block(name) for name in ("look", "looked"))
            builder.cbranch(builder.icmp_signed(">", last, constant(0)), body, after)
            builder.position_at_end(body)
            place, found = builder.phi(n.type), builder.phi(many)
            more = builder.or_(found, load(many, place))
            following = builder.add(place, constant(_ASCII))
            for phi, first, next_one in ((place, constant(0), following), (found, end, more)):
                phi.add_incoming(first, before)
                phi.add_incoming(next_one, body)
            builder.cbranch(builder.icmp_signed("<", following, last), body, after)
            builder.position_at_end(after)
            all_of_it = builder.phi(many)
            all_of_it.add_incoming(end, before)
            all_of_it.add_incoming(more, body)
            halves = builder.bitcast(all_of_it, ir.VectorType(wide, 2))
            low, high = (builder.extract_element(halves, ir.Constant(ir.IntType(32), i)) for i in range(2))
            builder.store(builder.or_(low, high), seen)

        def below(limit: int, short: Callable[[], None], other: Callable[[], None]) -> None:
            with builder.if_else(builder.icmp_signed("<", n, constant(limit))) as (yes, no):
                with yes:
                    short()
                with no:
                    other()

        def up_to_seven() -> None:
            below(4, lambda: below(1, lambda: None, one_to_three), ends(ir.IntType(32), 4))

        below(_ASCII, lambda: below(8, up_to_seven, ends(wide, 8)), long)
        high_bits = builder.and_(builder.load(seen), ir.Constant(wide, 0x8080808080808080))
        return builder.icmp_unsigned("==", high_bits, ir.Constant(wide, 0))

    return types.boolean(buf, types.int64, types.int64), generate


@intrinsic(_emit_ascii)
def is_ascii(buf: Bytes, at: int, n: int) -> bool:
    """Whether `buf[at : at + n]` are all below 128. Raises IndexError when the range is not within the buffer."""
    if n < 0 or at < 0 or at + n > len(buf):
        raise IndexError("is_ascii reads outside of the buffer")
    return buf[at : at + n].tobytes().isascii()


# CRC-32C (Castagnoli, RFC 3720 B.4): reflected, as all of its users have it. "Raw" below is the register: all bits
# inverted before and after.

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF


def _multiplied(a: int, b: int) -> int:
    """The product of two polynomials, reflected (the highest bit is x**0), modulo the CRC's."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _powers() -> npt.NDArray[np.int64]:
    """x**(8 * 2**k) for k from 0 to 62: what appending 2**k zero bytes multiplies a raw checksum by."""
    powers = [0x00800000]
    while len(powers) < 63:
        powers.append(_multiplied(powers[-1], powers[-1]))
    return np.array(powers, np.int64)


def slicing(polynomial: int, count: int) -> npt.NDArray[np.int64]:
    """Of a reflected CRC of 32 bits, rows of 256 values. Row k: what a byte contributes when k more bytes follow it."""
    row = np.arange(256, dtype=np.int64)
    for _ in range(8):
        row = (row >> 1) ^ (row & 1) * polynomial
    rows = [row]
    for _ in range(count - 1):
        rows.append((rows[-1] >> 8) ^ rows[0][rows[-1] & 0xFF])
    return np.concatenate(rows)


def _shifting(zeros: int) -> npt.NDArray[np.int64]:
    """For each byte of a raw checksum 256 values: what `zeros` appended zero bytes, a power of two, make of it."""
    by = int(_POWERS[zeros.bit_length() - 1])
    basis = [_multiplied(1 << bit, by) for bit in range(32)]
    table = np.zeros((4, 256), np.int64)
    values = np.arange(256)
    for bit, image in enumerate(basis):
        table[bit // 8] ^= np.where(values >> bit % 8 & 1, image, 0)
    return table.reshape(-1)


_POWERS = _powers()
_SLICES = slicing(_POLYNOMIAL, 8)
# Three streams side by side keep the CRC instruction busy, which takes three cycles but can start in each. Two sizes: the
# larger the streams, the fewer the combinations, the longer the rest.
_LONG, _SHORT = 1024, 128
_SHIFT_LONG, _SHIFT_LONG_2 = _shifting(_LONG), _shifting(2 * _LONG)
_SHIFT_SHORT, _SHIFT_SHORT_2 = _shifting(_SHORT), _shifting(2 * _SHORT)


def _crc_instruction(triple: str, features: str, width: int) -> str | None:
    """LLVM's name of a processor's CRC-32C instruction for `width` bytes, if it has one."""
    has = features.split(",")
    if triple.startswith("x86_64") and "+sse4.2" in has:
        return "llvm.x86.sse42.crc32.64.64" if width == 8 else f"llvm.x86.sse42.crc32.32.{8 * width}"
    if triple.startswith(("aarch64", "arm64")) and "+crc" in has:
        return "llvm.aarch64.crc32c" + {8: "x", 4: "w", 2: "h", 1: "b"}[width]
    return None


def _our_crc_instruction(width: int) -> str | None:
    """The one of the processor that numba compiles for."""
    from numba.core.registry import cpu_target

    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return _crc_instruction(triple, features, width)


def _emit_crc(builder: Any, instruction: str, crc: Any, word: Any, width: int) -> Any:
    """Call the instruction on a checksum and a word, both in 64 bits."""
    from llvmlite import ir
    from numba.core import cgutils

    declared: Any = cgutils.get_or_insert_function
    i64, i32 = ir.IntType(64), ir.IntType(32)
    # Arm's take and give 32 bits but for the word of eight bytes; Intel's take words as wide as they are.
    arm = "aarch64" in instruction
    result = i64 if width == 8 and not arm else i32
    operand = i64 if width == 8 else i32 if arm else ir.IntType(8 * width)
    if result != i64:
        crc = builder.trunc(crc, result)
    if operand != i64:
        word = builder.trunc(word, operand)
    function = declared(builder.module, ir.FunctionType(result, [result, operand]), instruction)
    after = builder.call(function, [crc, word])
    return after if result == i64 else builder.zext(after, i64)


def _emit_has_instruction(typing_context: Any) -> Any:
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.boolean, _our_crc_instruction(8) is not None)

    return types.boolean(), generate


@intrinsic(_emit_has_instruction)
def _has_instruction() -> bool:
    """Whether the processor computes CRC-32C; known when a kernel is compiled, so the other branch costs nothing."""
    return False


def _step(name: str, width: int) -> Any:
    """An intrinsic `(crc, buf, at) -> crc`: the raw checksum after `width` more bytes. Nothing is checked here."""

    def emit(typing_context: Any, crc: Any, buf: Any, at: Any) -> Any:
        from numba.core import types

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            instruction = _our_crc_instruction(width)
            if instruction is None:
                # Compiled in a branch that is never taken.
                return args[0]
            data, _ = _view(context, builder, signature.args[1], args[1])
            word = _emit_load(builder, data, args[2], width, "little", False)
            return _emit_crc(builder, instruction, args[0], word, width)

        return types.int64(types.int64, buf, types.int64), generate

    def step(crc: int, buf: Bytes, at: int) -> int:
        for byte in buf[at : at + width].tobytes():
            crc = (crc >> 8) ^ int(_SLICES[(crc ^ byte) & 0xFF])
        return crc

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"The raw checksum after {width} more bytes."
    return intrinsic(emit)(step)


_step_8: Callable[[int, Bytes, int], int] = _step("_step_8", 8)
_step_4: Callable[[int, Bytes, int], int] = _step("_step_4", 4)
_step_2: Callable[[int, Bytes, int], int] = _step("_step_2", 2)
_step_1: Callable[[int, Bytes, int], int] = _step("_step_1", 1)


def _load_unchecked(typing_context: Any, buf: Any, at: Any) -> Any:
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, _ = _view(context, builder, signature.args[0], args[0])
        return _emit_load(builder, data, args[1], 8, "little", True)

    return types.int64(buf, types.int64), generate


@intrinsic(_load_unchecked)
def _word(buf: Bytes, at: int) -> int:
    """Eight bytes, unchecked."""
    return int.from_bytes(buf[at : at + 8].tobytes(), "little", signed=True)


@kernel("i8, const i8[]")
def _shifted(crc: int, table: npt.NDArray[np.int64]) -> int:
    """The raw checksum after as many zero bytes as the table is for."""
    return (
        int(table[crc & 0xFF])
        ^ int(table[256 + (crc >> 8 & 0xFF)])
        ^ int(table[512 + (crc >> 16 & 0xFF)])
        ^ int(table[768 + (crc >> 24 & 0xFF)])
    )


@kernel("i8, const u1[], i8, i8")
def _by_instruction(crc: int, buf: Bytes, at: int, end: int) -> int:
    """The raw checksum after `buf[at:end]`, by the processor's instruction. The range has been checked."""
    while end - at >= 3 * _LONG:
        second = third = 0
        for i in range(at, at + _LONG, 8):
            crc = _step_8(crc, buf, i)
            second = _step_8(second, buf, i + _LONG)
            third = _step_8(third, buf, i + 2 * _LONG)
        crc = _shifted(crc, _SHIFT_LONG_2) ^ _shifted(second, _SHIFT_LONG) ^ third
        at += 3 * _LONG
    while end - at >= 3 * _SHORT:
        second = third = 0
        for i in range(at, at + _SHORT, 8):
            crc = _step_8(crc, buf, i)
            second = _step_8(second, buf, i + _SHORT)
            third = _step_8(third, buf, i + 2 * _SHORT)
        crc = _shifted(crc, _SHIFT_SHORT_2) ^ _shifted(second, _SHIFT_SHORT) ^ third
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
    """The same from tables, eight bytes a step, for processors without the instruction."""
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


def _update_by_package(crc: int, buf: Bytes, start: int, end: int) -> int:
    if start < 0 or end < start or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    return _package_crc32c(buf[start:end], crc)


def _crc32c_by_package(buf: Bytes, start: int, end: int) -> int:
    return _update_by_package(0, buf, start, end)


@kernel("i8, const u1[], i8, i8", python=_update_by_package)
def crc32c_update(crc: int, buf: Bytes, start: int, end: int) -> int:
    """The checksum of what `crc` is the checksum of, followed by `buf[start:end]`. 0 is the checksum of nothing.

    Raises IndexError when the range is not within the buffer.
    """
    if start < 0 or end < start or end > len(buf):
        raise IndexError("checksum outside of the buffer")
    if _has_instruction():
        return _by_instruction(crc ^ _ONES, buf, start, end) ^ _ONES
    return _by_slicing(crc ^ _ONES, buf, start, end) ^ _ONES


@kernel("const u1[], i8, i8", python=_crc32c_by_package)
def crc32c(buf: Bytes, start: int, end: int) -> int:
    """The CRC-32C of `buf[start:end]`, from 0 to 2**32 - 1. Raises IndexError when the range is not within the buffer."""
    return crc32c_update(0, buf, start, end)


@kernel("const u1[], i8, i8, i8, i8")
def crc32c_of_three(buf: Bytes, first: int, second: int, third: int, size: int) -> tuple[int, int, int]:
    """The checksums of three ranges of the same size: the processor goes on with one while it waits for another.

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
    """The checksum of A followed by B, from that of A, that of B and the length of B.

    It undoes itself: from the checksums of a prefix and of a longer prefix it makes that of the bytes between, so the
    checksum of any range comes from two checksums of prefixes: `crc32c_combine(crc[start], crc[end], end - start)`.
    """
    # Appending zero bytes is multiplying by a power of x, which is made of the powers for the ones in the length.
    k = 0
    while len2 > 0:
        if len2 & 1:
            factor = int(_POWERS[k])
            product = 0
            for bit in range(31, -1, -1):
                product ^= factor & -(crc1 >> bit & 1)
                factor = (factor >> 1) ^ (_POLYNOMIAL & -(factor & 1))
            crc1 = product
        len2 >>= 1
        k += 1
    return crc1 ^ crc2


# Variable-length integers: LEB128, low group first, the high bit of a byte says that more follow; zig-zag for signed ones.
# Readers take encodings longer than needed, and drop what does not fit the last byte's share, as Kafka does
# (org.apache.kafka.common.utils.ByteUtils) and Protocol Buffers do; writers make the shortest.


@kernel("const u1[], i8, i8")
def read_uvarint(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read an unsigned 32-bit integer of 1 to 5 bytes from `buf[at:end]`: (value, where it ends).

    (0, -1) when it does not end before `end`, or not after 5 bytes, or when the range is not within the buffer.
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
    """Read 64 bits of 1 to 10 bytes from `buf[at:end]`, as a signed integer of the same bits: (value, where it ends).

    (0, -1) when it does not end before `end`, or not after 10 bytes, or when the range is not within the buffer.
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
    # -1 << 63 rather than 1 << 63: the same bit, and no overflow where integers have no end.
    return value | -(load_u8(buf, at) & 1) << 63, at + 1


@kernel("const u1[], i8, i8")
def read_varint(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a zig-zag 32-bit integer of 1 to 5 bytes from `buf[at:end]`: (value, where it ends); (0, -1) as `read_uvarint`."""
    value, after = read_uvarint(buf, at, end)
    return (value >> 1) ^ -(value & 1), after


@kernel("const u1[], i8, i8")
def read_varlong(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a zig-zag 64-bit integer of 1 to 10 bytes from `buf[at:end]`: (value, where it ends); (0, -1) as `read_uvarlong`."""
    value, after = read_uvarlong(buf, at, end)
    return (value >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), after


@kernel("i8")
def size_uvarlong(value: int) -> int:
    """How many bytes `write_uvarlong` writes, 1 to 10."""
    size = 1
    value = value >> 7 & 0x01FFFFFFFFFFFFFF
    while value:
        value >>= 7
        size += 1
    return size


@kernel("u1[], i8, i8")
def write_uvarlong(buf: Bytes, at: int, value: int) -> int:
    """Write 64 bits, a negative value as the unsigned integer of the same bits; returns where they end.

    Raises IndexError when the buffer ends before.
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
    """(value << 1) ^ (value >> 63) in 64 bits, signed, without overflow where integers have no end."""
    return ((value & 0x3FFFFFFFFFFFFFFF) << 1 | -(value >> 62 & 1) << 63) ^ value >> 63


@kernel("i8")
def size_varlong(value: int) -> int:
    """How many bytes `write_varlong` writes, 1 to 10."""
    return size_uvarlong(_zigzag(value))


@kernel("u1[], i8, i8")
def write_varlong(buf: Bytes, at: int, value: int) -> int:
    """Write a zig-zag 64-bit integer; returns where it ends. Raises IndexError when the buffer ends before.

    The 32-bit form of a 32-bit value is the same bytes, so there is no `write_varint`.
    """
    return write_uvarlong(buf, at, _zigzag(value))
