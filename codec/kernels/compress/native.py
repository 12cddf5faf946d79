"""Call the decompressors of the packages lz4, zstandard and isal from kernels.

A call from Python costs a microsecond and a copy; many payloads decompress in ten. The packages' extension modules contain the C libraries
and export their functions. If one does not, its address is 0, and payloads are decompressed by the packages' Python functions.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
import zlib
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.deferred import ir
from logwright.codec.kernels.intrinsics import outside, refuse, view
from logwright.codec.kernels.kernel import intrinsic

_MESSAGE = "decompress outside of a buffer"


@functools.cache
def _library(module: str) -> ctypes.CDLL | None:
    """Return the C functions that an extension module contains; None if there is no such module."""
    try:
        place = importlib.util.find_spec(module)
        return None if place is None or place.origin is None else ctypes.CDLL(place.origin)
    except (ImportError, OSError):
        return None


def _address(library: ctypes.CDLL | None, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


@functools.cache
def lz4_address() -> int:
    """Return the address of `LZ4_decompress_safe`, or 0."""
    return _address(_library("lz4.block._block"), "LZ4_decompress_safe")


@functools.cache
def zstd_address() -> int:
    """Return the address of `ZSTD_decompressDCtx`, or 0."""
    library = _library("zstandard._cffi")
    names = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx")
    return min(_address(library, name) for name in names) and _address(library, names[-1])


@functools.cache
def inflate_address() -> int:
    """Return the address of `isal_inflate_stateless`, or 0. isal is optional, and its state is not opaque: the function counts as missing if a
    stream is not decompressed as expected."""
    address = _address(_library("isal.isal_zlib"), "isal_inflate_stateless")
    if address == 0 or inflate_state() == 0:
        return 0
    stream, content = zlib.compress(_CONTENT)[2:-4], np.zeros(2 * len(_CONTENT), np.uint8)
    size = inflate(
        address, inflate_state(), np.frombuffer(stream, np.uint8), 0, len(stream), content, 0, len(content)
    )
    return address if content[: max(0, size)].tobytes() == _CONTENT else 0


_CONTENT = bytes(range(256)) * 2


class _Inflate(ctypes.Structure):
    """The first fields of isal's `struct inflate_state`."""

    _fields_ = (
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint32),
        ("total_out", ctypes.c_uint32),
        ("next_in", ctypes.c_void_p),
        ("read_in", ctypes.c_uint64),
        ("avail_in", ctypes.c_uint32),
    )


_INFLATE_STATE = 1 << 18
"""More bytes than `struct inflate_state` takes, which are 86 thousand."""


class _State:
    """A decompression context of zstd; its address is 0 without the library."""

    def __init__(self) -> None:
        self.address = 0
        library = _library("zstandard._cffi")
        if library is not None and zstd_address():
            create, self._free = library.ZSTD_createDCtx, library.ZSTD_freeDCtx
            create.restype, self._free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
            self.address = create() or 0

    def __del__(self) -> None:
        if self.address:
            self._free(self.address)


_local = threading.local()


def zstd_context() -> int:
    """Return the address of this thread's decompression context, or 0. The context lives as long as the thread."""
    state: _State | None = getattr(_local, "state", None)
    if state is None:
        state = _local.state = _State()
    return state.address


def inflate_state() -> int:
    """Return the address of this thread's `struct inflate_state`, or 0. It lives as long as the thread."""
    state: Any = getattr(_local, "inflate", None)
    if state is None:
        library = _library("isal.isal_zlib")
        if _address(library, "isal_inflate_init") == 0:
            return 0
        state = _local.inflate = ctypes.create_string_buffer(_INFLATE_STATE)
        library.isal_inflate_init(state)  # type: ignore[union-attr]
    return ctypes.addressof(state)


LZ4, ZSTD, ZSTD_CONTEXT, INFLATE, INFLATE_STATE = range(5)


def functions(*, zstd: bool, inflate: bool) -> Int64s:
    """Return the addresses of the functions and of this thread's states, at the positions above. Those that are not wanted are 0."""
    context = zstd_context() if zstd else 0
    address = inflate_address() if inflate else 0
    return np.array(
        [
            lz4_address(),
            zstd_address() if context else 0,
            context,
            address,
            inflate_state() if address else 0,
        ]
    )


def _called(builder: Any, address: Any, result: Any, arguments: list[Any]) -> Any:
    """Emit a call of the C function at `address`."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


def _places(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, Any]:
    """Emit the check of `(buf, at, size, out, to, room)`; returns the addresses of the payload and of its place."""
    buf, at, size, out, to, room = args
    (data, length), (target, total) = (
        view(context, builder, kind, array) for kind, array in zip(signature, (buf, out), strict=True)
    )
    zero = ir.Constant(at.type, 0)
    bad = builder.or_(builder.icmp_signed("<", size, zero), builder.icmp_signed("<", room, zero))
    bad = builder.or_(bad, outside(builder, at, size, length))
    bad = builder.or_(bad, outside(builder, to, room, total))
    refuse(context, builder, bad, _MESSAGE)
    return builder.gep(data, [at]), builder.gep(target, [to])


def _emit_lz4(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    source, target = _places(context, builder, (signature.args[1], signature.args[4]), args[1:])
    number = ir.IntType(32)
    sizes = [builder.trunc(args[3], number), builder.trunc(args[6], number)]
    got = _called(builder, args[0], number, [source, target, *sizes])
    return builder.sext(got, ir.IntType(64))


@intrinsic("i8, const u1[], i8, i8, u1[], i8, i8 -> i8", _emit_lz4)
def decompress_lz4(address: int, buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int) -> int:
    """Decompress the LZ4 block `buf[at : at + size]` to `out[to : to + room]`; returns its size, negative if it is damaged or does not fit.

    `size` and `room` are below 2**31."""
    source, target = _checked(buf, at, size, out, to, room)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    return int(kind(address)(source, target, size, room))


def _emit_zstd(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    source, target = _places(context, builder, (signature.args[2], signature.args[5]), args[2:])
    state = builder.inttoptr(args[1], ir.IntType(8).as_pointer())
    return _called(builder, args[0], ir.IntType(64), [state, target, args[7], source, args[4]])


@intrinsic("i8, i8, const u1[], i8, i8, u1[], i8, i8 -> i8", _emit_zstd)
def decompress_zstd(
    address: int, state: int, buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int
) -> int:
    """Decompress the frame `buf[at : at + size]` to `out[to : to + room]`; returns its size, negative if it is damaged or does not fit.

    `state` is the address of the thread's context."""
    source, target = _checked(buf, at, size, out, to, room)
    pointer, length = ctypes.c_void_p, ctypes.c_size_t
    kind = ctypes.CFUNCTYPE(ctypes.c_ssize_t, pointer, pointer, length, pointer, length)
    return int(kind(address)(state, target, room, source, size))


def _emit_inflate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    source, target = _places(context, builder, (signature.args[2], signature.args[5]), args[2:])
    number, wide = ir.IntType(32), ir.IntType(64)
    state = builder.inttoptr(args[1], ir.IntType(8).as_pointer())

    def place(field: Any, kind: Any) -> Any:
        at = builder.gep(state, [ir.Constant(wide, field.offset)])
        return builder.bitcast(at, kind.as_pointer())

    builder.store(source, place(_Inflate.next_in, source.type))
    builder.store(builder.trunc(args[4], number), place(_Inflate.avail_in, number))
    builder.store(target, place(_Inflate.next_out, target.type))
    builder.store(builder.trunc(args[7], number), place(_Inflate.avail_out, number))
    result = _called(builder, args[0], number, [state])
    wrong = builder.or_(result, builder.load(place(_Inflate.avail_in, number)))
    got = builder.zext(builder.load(place(_Inflate.total_out, number)), wide)
    return builder.select(
        builder.icmp_signed("==", wrong, ir.Constant(number, 0)), got, ir.Constant(wide, -1)
    )


@intrinsic("i8, i8, const u1[], i8, i8, u1[], i8, i8 -> i8", _emit_inflate)
def inflate(address: int, state: int, buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int) -> int:
    """Decompress the deflate stream `buf[at : at + size]` to `out[to : to + room]`; returns its size, -1 if it is damaged, does not fit, or
    ends before or after `size` bytes.

    `state` is the address of the thread's state. `size` and `room` are below 2**31."""
    source, target = _checked(buf, at, size, out, to, room)
    fields = _Inflate.from_address(state)
    fields.next_in, fields.avail_in, fields.next_out, fields.avail_out = source, size, target, room
    wrong = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(state)
    return -1 if wrong or fields.avail_in else int(fields.total_out)


def _checked(buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int) -> tuple[int, int]:
    if min(at, size, to, room) < 0 or at + size > len(buf) or to + room > len(out):
        raise IndexError(_MESSAGE)
    return buf.ctypes.data + int(at), out.ctypes.data + int(to)
