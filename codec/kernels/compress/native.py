"""Call the decompressors of the packages lz4 and zstandard from kernels.

A call from Python costs a microsecond and a copy; many payloads decompress in ten. The packages' extension modules contain the C libraries
and export their functions. If one does not, its address is 0, and payloads are decompressed by the packages' Python functions.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
from typing import Any

from logwright.codec.kernels.compress.payload import Bytes
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


def _called(builder: Any, address: Any, result: Any, arguments: list[Any]) -> Any:
    """Emit a call of the C function at `address`."""
    from llvmlite import ir

    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


def _places(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, Any]:
    """Emit the check of `(buf, at, size, out, to, room)`; returns the addresses of the payload and of its place."""
    from llvmlite import ir

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


def _emit_lz4(
    typing_context: Any, address: Any, buf: Any, at: Any, size: Any, out: Any, to: Any, room: Any
) -> Any:
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        source, target = _places(context, builder, (signature.args[1], signature.args[4]), args[1:])
        number = ir.IntType(32)
        sizes = [builder.trunc(args[3], number), builder.trunc(args[6], number)]
        got = _called(builder, args[0], number, [source, target, *sizes])
        return builder.sext(got, ir.IntType(64))

    integers = (types.int64,) * 2
    return types.int64(types.int64, buf, *integers, out, *integers), generate


@intrinsic(_emit_lz4)
def decompress_lz4(address: int, buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int) -> int:
    """Decompress the LZ4 block `buf[at : at + size]` to `out[to : to + room]`; returns its size, negative if it is damaged or does not fit.

    `size` and `room` are below 2**31."""
    source, target = _checked(buf, at, size, out, to, room)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    return int(kind(address)(source, target, size, room))


def _emit_zstd(
    typing_context: Any, address: Any, state: Any, buf: Any, at: Any, size: Any, out: Any, to: Any, room: Any
) -> Any:  # fmt: skip
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        source, target = _places(context, builder, (signature.args[2], signature.args[5]), args[2:])
        state = builder.inttoptr(args[1], ir.IntType(8).as_pointer())
        return _called(builder, args[0], ir.IntType(64), [state, target, args[7], source, args[4]])

    integers = (types.int64,) * 2
    return types.int64(*integers, buf, *integers, out, *integers), generate


@intrinsic(_emit_zstd)
def decompress_zstd(
    address: int, state: int, buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int
) -> int:
    """Decompress the frame `buf[at : at + size]` to `out[to : to + room]`; returns its size, negative if it is damaged or does not fit.

    `state` is the address of the thread's context."""
    source, target = _checked(buf, at, size, out, to, room)
    pointer, length = ctypes.c_void_p, ctypes.c_size_t
    kind = ctypes.CFUNCTYPE(ctypes.c_ssize_t, pointer, pointer, length, pointer, length)
    return int(kind(address)(state, target, room, source, size))


def _checked(buf: Bytes, at: int, size: int, out: Bytes, to: int, room: int) -> tuple[int, int]:
    if min(at, size, to, room) < 0 or at + size > len(buf) or to + room > len(out):
        raise IndexError(_MESSAGE)
    return buf.ctypes.data + int(at), out.ctypes.data + int(to)
