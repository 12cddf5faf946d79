"""Copies, checksums, loads and stores, variable-length integers: the same in all modes, and never out of bounds.

Called from Python an intrinsic is its plain form, so each is called through a small kernel here.
"""

from __future__ import annotations

import functools
import os
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from typing import Any

import crc32c as package
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from modes import environment

from logwright.codec.kernels import crc32c as checksums
from logwright.codec.kernels import kernel as module
from logwright.codec.kernels.byte_masks import equal_mask, lowest_bit, masks_of
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c, crc32c_combine, crc32c_of_three, crc32c_update
from logwright.codec.kernels.intrinsics import (
    append,
    append_short,
    copy,
    copy_32,
    copy_64,
    is_ascii,
    load_i16be,
    load_i32be,
    load_i32le,
    load_i64be,
    load_i64le,
    load_u8,
    load_u16be,
    load_u16le,
    load_u32be,
    load_u32le,
    put,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    size_uvarlong,
    size_varlong,
    store_16be,
    store_16le,
    store_32be,
    store_32le,
    store_64be,
    store_64le,
    write_uvarlong,
    write_varlong,
)
from logwright.codec.kernels.kernel import Kernel, kernel, mode

pytestmark = pytest.mark.kernel_modes

ELSEWHERE = pytest.mark.skipif(
    mode() != module.COMPILED, reason="it starts a process that compiles for another processor"
)
"""For tests that do the same in every mode."""

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
# Near both ends and far beyond them: a sum of a place and a length must not wrap around either.
places = st.one_of(
    st.integers(-3, 80), st.sampled_from([-(1 << 63), -(1 << 62), (1 << 31), (1 << 62), (1 << 63) - 1])
)


def array(data: bytes) -> np.ndarray:
    """Return a read-only array, like a mapped file."""
    return np.frombuffer(data, np.uint8)


# Loads and stores


@kernel("const u1[], i8")
def loads(buf: Any, at: int) -> tuple[int, ...]:
    return (
        load_u8(buf, at),
        load_i16be(buf, at),
        load_u16be(buf, at),
        load_i32be(buf, at),
        load_u32be(buf, at),
        load_i64be(buf, at),
        load_u16le(buf, at),
        load_i32le(buf, at),
        load_u32le(buf, at),
        load_i64le(buf, at),
    )


FORMATS = ("B", ">h", ">H", ">i", ">I", ">q", "<H", "<i", "<I", "<q")


@given(st.binary(min_size=8, max_size=40), st.integers(0, 40))
def test_loads_equal_struct_unpack(data: bytes, at: int) -> None:
    assume(at + 8 <= len(data))
    assert loads(array(data), at) == tuple(struct.unpack_from(code, data, at)[0] for code in FORMATS)


# One kernel each, since a kernel that raises does nothing after it.
@kernel("const u1[], i8")
def load_1(buf: Any, at: int) -> int:
    return load_u8(buf, at)


@kernel("const u1[], i8")
def load_2(buf: Any, at: int) -> int:
    return load_i16be(buf, at)


@kernel("const u1[], i8")
def load_4(buf: Any, at: int) -> int:
    return load_u32le(buf, at)


@kernel("const u1[], i8")
def load_8(buf: Any, at: int) -> int:
    return load_i64be(buf, at)


@pytest.mark.parametrize(("load", "width"), [(load_1, 1), (load_2, 2), (load_4, 4), (load_8, 8)])
@given(size=st.integers(0, 12), at=places)
def test_load_out_of_bounds_raises(load: Callable[[Any, int], int], width: int, size: int, at: int) -> None:
    # A slice in the middle: the bytes around it are readable, but must not be read.
    buf = np.arange(100, dtype=np.uint8)[40 : 40 + size]
    if 0 <= at <= size - width:
        load(buf, at)
    else:
        with pytest.raises(IndexError, match="outside"):
            load(buf, at)


@kernel("u1[], i8, i8, i8")
def store(buf: Any, which: int, at: int, value: int) -> int:
    if which == 0:
        return store_16be(buf, at, value)
    if which == 1:
        return store_32be(buf, at, value)
    if which == 2:
        return store_64be(buf, at, value)
    if which == 3:
        return store_16le(buf, at, value)
    if which == 4:
        return store_32le(buf, at, value)
    return store_64le(buf, at, value)


@given(st.integers(0, 5), st.integers(0, 12), places, int64s)
def test_stores_equal_struct_pack(which: int, size: int, at: int, value: int) -> None:
    around = np.full(100, 0xAA, np.uint8)
    buf = around[40 : 40 + size]
    width = 2 << which % 3
    expected = bytearray(around)
    if 0 <= at <= size - width:
        order = "big" if which < 3 else "little"
        expected[40 + at : 40 + at + width] = (value % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
        assert store(buf, which, at, value) == at + width
    else:
        with pytest.raises(IndexError, match="outside"):
            store(buf, which, at, value)
    assert bytes(around) == bytes(expected)


# Copies


@kernel("u1[], i8, const u1[], i8, i8")
def copied(dst: Any, dst_at: int, src: Any, src_at: int, n: int) -> None:
    copy(dst, dst_at, src, src_at, n)


@pytest.mark.parametrize("n", [*range(70), 100, 1000, 70_000])
def test_copy_of_any_length_leaves_the_bytes_around_it(n: int) -> None:
    """Each length up to 32 is copied by separate code; one byte on each side is unchanged."""
    src = np.random.default_rng(n).integers(0, 256, n + 7, np.uint8)
    dst = np.zeros(n + 9, np.uint8)
    copied(dst, 5, src, 3, n)
    assert bytes(dst) == bytes(5) + bytes(src[3 : 3 + n]) + bytes(4)


@given(st.integers(0, 60), places, st.integers(0, 60), places, places)
@example(10, 0, 10, 0, -1)
@example(10, 5, 10, 0, 6)
@example(10, 0, 10, 5, 6)
@example(0, 0, 0, 0, 0)
def test_copy_never_leaves_its_buffers(size: int, dst_at: int, src_size: int, src_at: int, n: int) -> None:
    around = np.full(200, 0xAA, np.uint8)
    source = np.arange(200, dtype=np.uint8)
    dst, src = around[70 : 70 + size], source[70 : 70 + src_size]
    expected = bytearray(around)
    if n >= 0 and 0 <= dst_at <= size - n and 0 <= src_at <= src_size - n:
        expected[70 + dst_at : 70 + dst_at + n] = bytes(src[src_at : src_at + n])
        copied(dst, dst_at, src, src_at, n)
    else:
        with pytest.raises(IndexError, match="copy outside"):
            copied(dst, dst_at, src, src_at, n)
    assert bytes(around) == bytes(expected)


@kernel("u1[], i8, const u1[], i8, i8")
def appended(dst: Any, dst_at: int, src: Any, src_at: int, n: int) -> None:
    append(dst, dst_at, src, src_at, n)


@kernel("u1[], i8, const u1[], i8, i8")
def short_appended(dst: Any, dst_at: int, src: Any, src_at: int, n: int) -> None:
    append_short(dst, dst_at, src, src_at, n)


@pytest.mark.parametrize("append", [appended, short_appended])
@pytest.mark.parametrize("n", [*range(70), *range(250, 260), 1000, 70_000])
@pytest.mark.parametrize("room", [0, 1, 31, 32, 200, 300])
def test_append_leaves_the_bytes_before_and_after_the_buffer(append: Any, n: int, room: int) -> None:
    """Bytes before and after the buffers are unchanged."""
    src = np.random.default_rng(n).integers(0, 256, n + 310, np.uint8)
    around = np.full(n + 320, 0xAA, np.uint8)
    append(around[: 5 + n + room], 5, src[: 3 + n + room], 3, n)
    assert bytes(around[: 5 + n]) == b"\xaa" * 5 + bytes(src[3 : 3 + n])
    assert bytes(around[5 + n + room :]) == b"\xaa" * (315 - room)


@pytest.mark.parametrize("append", [appended, short_appended])
@pytest.mark.parametrize("where", [(0, 0, -1), (5, 0, 6), (0, 5, 6), (-1, 0, 1), (0, -1, 1), (0, 0, 1 << 62)])
def test_append_never_leaves_its_buffers(append: Any, where: tuple[int, int, int]) -> None:
    dst_at, src_at, n = where
    for size in (10, 100):  # `append_short` checks ranges of 32 bytes
        at = size - 10
        dst = np.zeros(size, np.uint8)
        with pytest.raises(IndexError, match=r"append(_short)? outside"):
            append(
                dst,
                dst_at + at if dst_at >= 0 else dst_at,
                np.ones(size, np.uint8),
                src_at + at if src_at >= 0 else src_at,
                n,
            )
        assert not dst.any()


@kernel("u1[], i8, const u1[], i8")
def copied_32(dst: Any, dst_at: int, src: Any, src_at: int) -> None:
    copy_32(dst, dst_at, src, src_at)


@kernel("u1[], i8, const u1[], i8")
def copied_64(dst: Any, dst_at: int, src: Any, src_at: int) -> None:
    copy_64(dst, dst_at, src, src_at)


BLOCKS = {32: copied_32, 64: copied_64}


@pytest.mark.parametrize("width", BLOCKS)
@given(dst_at=st.integers(0, 20), src_at=st.integers(0, 20))
def test_block_copies_move_exactly_their_width(width: int, dst_at: int, src_at: int) -> None:
    src = np.arange(20 + width, dtype=np.uint8)
    dst = np.full(20 + width, 0xAA, np.uint8)
    BLOCKS[width](dst, dst_at, src, src_at)
    expected = bytearray(b"\xaa" * (20 + width))
    expected[dst_at : dst_at + width] = bytes(src[src_at : src_at + width])
    assert bytes(dst) == bytes(expected)


@pytest.mark.skipif(mode() == module.COMPILED, reason="the kernel checks the ranges")
@pytest.mark.parametrize("width", BLOCKS)
@pytest.mark.parametrize("where", [(-1, 0), (0, -1), (9, 0), (0, 9), (1 << 62, 0)])
def test_block_copies_are_checked_for_debugging(width: int, where: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match=f"copy_{width} outside"):
        BLOCKS[width](np.zeros(width + 8, np.uint8), where[0], np.ones(width + 8, np.uint8), where[1])


@kernel("i4[], i8, i8")
def stored(array: Any, at: int, value: int) -> None:
    put(array, at, value)


@pytest.mark.parametrize("at", range(4))
def test_put_stores_one_number(at: int) -> None:
    array = np.zeros(4, np.int32)
    stored(array, at, -7)
    assert array.tolist() == [-7 if i == at else 0 for i in range(4)]


@pytest.mark.skipif(mode() == module.COMPILED, reason="the kernel checks the index")
@pytest.mark.parametrize("at", [-1, 4])
def test_put_is_checked_for_debugging(at: int) -> None:
    with pytest.raises(IndexError):
        stored(np.zeros(4, np.int32), at, 1)


@kernel("const u1[], i8, i8")
def plain(buf: Any, at: int, n: int) -> bool:
    return is_ascii(buf, at, n)


@pytest.mark.parametrize("n", range(70))
def test_is_ascii_detects_any_high_byte(n: int) -> None:
    """Each length up to 16 is tested by separate code; bytes on both sides do not count."""
    buf = np.full(n + 7, 0xFF, np.uint8)
    buf[3 : 3 + n] = np.arange(n) % 128
    assert plain(buf, 3, n)
    for i in range(n):
        buf[3 + i] ^= 0x80
        assert not plain(buf, 3, n)
        buf[3 + i] ^= 0x80


@given(st.integers(0, 60), places, places)
@example(10, 0, -1)
@example(10, 5, 6)
@example(0, 0, 0)
def test_is_ascii_never_leaves_its_buffer(size: int, at: int, n: int) -> None:
    buf = np.zeros(200, np.uint8)[70 : 70 + size]
    if n >= 0 and 0 <= at <= size - n:
        assert plain(buf, at, n)
    else:
        with pytest.raises(IndexError, match="is_ascii reads outside"):
            plain(buf, at, n)


@kernel("u1[], i8, i8, i8")
def moved(buf: Any, to: int, at: int, n: int) -> None:
    copy(buf, to, buf, at, n)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_copy_within_a_buffer(to: int, at: int, n: int) -> None:
    buf = np.arange(200, dtype=np.uint8)
    expected = bytearray(buf)
    expected[to : to + n] = expected[at : at + n]
    moved(buf, to, at, n)
    assert bytes(buf) == bytes(expected)


# Checksums


@kernel("const u1[], i8, i8")
def checksum(buf: Any, start: int, end: int) -> int:
    return crc32c(buf, start, end)


@kernel("i8, const u1[], i8, i8")
def continued(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32c_update(crc, buf, start, end)


DATA = np.random.default_rng(7).integers(0, 256, 20_000, np.uint8)


def test_crc32c_gives_the_checksums_of_rfc_3720() -> None:
    """RFC 3720, B.4."""
    known = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    assert {data: checksum(array(data), 0, len(data)) for data in known} == known


# Around each place where the way of summing changes, and around the next step after it.
EDGES = sorted(
    {edge + off for edge in (8, 16, 384, 768, 3072, 3456, 6144, 16384) for off in range(-9, 10)} - {-1}
)


@pytest.mark.parametrize("start", [0, 1, 5])
def test_crc32c_of_any_alignment(start: int) -> None:
    for size in EDGES:
        assert checksum(DATA, start, start + size) == package.crc32c(DATA[start : start + size]), size


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_crc32c_can_be_continued(a: int, b: int, c: int) -> None:
    a, b, c = sorted((a, b, c))
    first, second, both = (checksum(DATA, *ends) for ends in ((a, b), (b, c), (a, c)))
    assert both == package.crc32c(DATA[a:c])
    assert continued(first, DATA, b, c) == both
    assert crc32c_combine(first, second, c - b) == both
    # And backwards: from the checksums of two prefixes.
    assert crc32c_combine(first, both, c - b) == second


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 1 << 61),
    st.integers(0, 1 << 61),
)
def test_crc32c_combine_of_long_lengths(first: int, second: int, n: int, m: int) -> None:
    """Nobody has that many bytes: appending n and then m is appending n + m."""
    assert crc32c_combine(crc32c_combine(first, 0, n), second, m) == crc32c_combine(first, second, n + m)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 383, 384, 500, 3072, 3500])
def test_hardware_and_table_crc32c_agree(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the instruction and with tables, whichever the processor would choose, and both in plain Python."""
    ones = 0xFFFFFFFF
    expected = package.crc32c(DATA[3 : 3 + size]) ^ ones
    for way in (checksums._by_slicing, checksums._by_instruction):
        assert way.py_func(ones, DATA, 3, 3 + size) == expected
    assert sliced(DATA, 3, 3 + size) == expected
    assert crc32c.py_func(DATA, 3, 3 + size) == expected ^ ones
    assert not checksums._has_instruction()
    for has in (True, False):
        monkeypatch.setattr(checksums, "_has_instruction", lambda has=has: has)
        assert crc32c_update.py_func(0, DATA, 3, 3 + size) == expected ^ ones


@kernel("const u1[], i8, i8")
def sliced(buf: Any, start: int, end: int) -> int:
    return checksums._by_slicing(0xFFFFFFFF, buf, start, end)


@kernel("const u1[], i8, i8, i8, i8")
def three(buf: Any, first: int, second: int, third: int, size: int) -> tuple[int, int, int]:
    return crc32c_of_three(buf, first, second, third, size)


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), st.integers(-1, 110))
def test_crc32c_of_three_ranges_equals_three_checksums(starts: list[int], size: int) -> None:
    buf = DATA[100:200]

    def by_instruction(*args: Any) -> tuple[int, int, int]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(checksums, "_has_instruction", lambda: True)
            return crc32c_of_three.py_func(*args)

    for way in (three, crc32c_of_three.py_func, by_instruction):
        if size < 0 or max(starts) + size > 100:
            with pytest.raises(IndexError, match="checksum outside"):
                way(buf, *starts, size)
        else:
            assert list(way(buf, *starts, size)) == [package.crc32c(buf[at : at + size]) for at in starts]


@given(places, places)
def test_crc32c_never_leaves_its_buffer(start: int, end: int) -> None:
    buf = DATA[100:150]
    if 0 <= start <= end <= 50:
        assert checksum(buf, start, end) == package.crc32c(buf[start:end])
        return
    for refuse in (
        checksum,
        crc32c,
        functools.partial(continued, 0),
        functools.partial(crc32c_update.py_func, 0),
    ):
        with pytest.raises(IndexError, match="checksum outside"):
            refuse(buf, start, end)


@pytest.mark.parametrize(
    ("triple", "features", "widest"),
    [
        ("x86_64-unknown-linux-gnu", "+sse4.1,+sse4.2", "llvm.x86.sse42.crc32.64.64"),
        ("aarch64-unknown-linux-gnu", "+neon,+crc", "llvm.aarch64.crc32cx"),
        ("arm64-apple-darwin23.0.0", "+crc", "llvm.aarch64.crc32cx"),
        ("x86_64-unknown-linux-gnu", "+sse4.1,-sse4.2", None),
        ("aarch64-unknown-linux-gnu", "-crc", None),
        ("powerpc64le-unknown-linux-gnu", "+crc", None),
    ],
)
def test_instructions_are_called_as_llvm_declares_them(
    triple: str, features: str, widest: str | None
) -> None:
    """For other processors too: LLVM knows the types of all."""
    assert checksums._crc_instruction(triple, features, 8) == widest
    if widest is None:
        return
    ir, binding = pytest.importorskip("llvmlite.ir"), pytest.importorskip("llvmlite.binding")
    for width in (1, 2, 4, 8):
        name = checksums._crc_instruction(triple, features, width)
        built = ir.Module()
        i64 = ir.IntType(64)
        function = ir.Function(built, ir.FunctionType(i64, [i64, i64]), "step")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(checksums._emit_crc(builder, name, *function.args, width))
        binding.parse_assembly(str(built)).verify()


@ELSEWHERE
def test_crc32c_without_the_cpu_instruction() -> None:
    """Compiled for a processor that lacks it, the checksum comes from the tables."""
    script = """
        import numpy, crc32c as package
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32c import _has_instruction, crc32c
        @kernel("const u1[], i8")
        def checksum(buf, end):
            return _has_instruction(), crc32c(buf, 0, end)
        buf = numpy.arange(5000, dtype=numpy.uint8)
        assert all(checksum(buf, n) == (False, package.crc32c(buf[:n])) for n in (0, 1, 7, 8, 100, 5000))
        """
    settings = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "LOGWRIGHT_CACHE_DIR": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled") | settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_other_element_types_are_refused() -> None:
    """A wider or read-only array is refused when a kernel is compiled."""
    if mode() == "interpreted":
        pytest.skip("plain Python has no types")
    numbers, buf = np.zeros(4, np.int64), array(bytes(8))
    attempts: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda a: load_u8(a, 0), (numbers,)),
        (lambda a: store_16be(a, 0, 1), (numbers,)),
        (lambda a: store_16be(a, 0, 1), (buf,)),
        (lambda a, b: copy(a, 0, b, 0, 1), (buf, buf)),
        (lambda a, b: copy(a, 0, b, 0, 1), (np.zeros(4, np.uint8), numbers)),
    ]
    for function, args in attempts:
        with pytest.raises(Exception, match="No match") as caught:
            kernel(function)(*args)
        assert type(caught.value).__name__ == "TypingError"


# Variable-length integers


def unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


def leb128(value: int, extra: int = 0) -> bytes:
    """The plain definition, with `extra` bytes more than needed."""
    groups = []
    while True:
        groups.append(value & 0x7F)
        value >>= 7
        if not value:
            break
    groups += [0] * extra
    return bytes(group | 0x80 for group in groups[:-1]) + bytes([groups[-1]])


def zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


# kafka.md, 2.1: what Kafka writes.
SAMPLES = {
    0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", 300: "d804", -300: "d704",
    (1 << 31) - 1: "feffffff0f", -(1 << 31): "ffffffff0f", 1_700_000_000_000: "80a0abfef962",
    (1 << 63) - 1: "feffffffffffffffff01", -(1 << 63): "ffffffffffffffffff01",
}  # fmt: skip


@pytest.mark.parametrize("value", SAMPLES)
def test_varints_have_the_documented_bytes(value: int) -> None:
    encoded = bytes.fromhex(SAMPLES[value])
    assert read_varlong(array(encoded), 0, len(encoded)) == (value, len(encoded))
    if -(1 << 31) <= value < 1 << 31:
        assert read_varint(array(encoded), 0, len(encoded)) == (value, len(encoded))
    buf = np.zeros(12, np.uint8)
    assert write_varlong(buf, 1, value) == 1 + len(encoded) == 1 + size_varlong(value)
    assert bytes(buf) == b"\0" + encoded + bytes(11 - len(encoded))


READERS = {read_uvarint: (32, 5), read_varint: (32, 5), read_uvarlong: (64, 10), read_varlong: (64, 10)}


@given(int64s, st.integers(0, 9), st.integers(0, 5), st.binary(max_size=4))
def test_varints_of_any_length_are_read_and_cut_ones_refused(
    value: int, extra: int, at: int, after: bytes
) -> None:
    """Each value in its shortest form and longer ones, at any offset."""
    for read, (bits, most) in READERS.items():
        number = unsigned(value, bits)
        encoded = leb128(number, min(extra, most - len(leb128(number))))
        data = bytes(at) + encoded + after
        expected = number
        if read in (read_varint, read_varlong):
            expected = (number >> 1) ^ -(number & 1)
        elif read is read_uvarlong:
            expected = number - (number >> 63 << 64)
        assert read(array(data), at, len(data)) == (expected, at + len(encoded))
        # Cut anywhere, there is no value, whatever follows in the buffer.
        for end in range(at, at + len(encoded)):
            assert read(array(data), at, end) == (0, -1)


@given(st.lists(st.integers(0x80, 0xFF), min_size=12, max_size=12), st.integers(0, 0x7F))
def test_excess_bits_of_the_last_varint_byte_are_dropped(groups: list[int], last: int) -> None:
    """Kafka's ByteUtils shifts the bits beyond 32 or 64 out, and refuses a longer encoding."""
    for read, (bits, most) in READERS.items():
        data = bytes([*groups[: most - 1], last])
        number = unsigned(sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data)), bits)
        expected = number
        if read in (read_varint, read_varlong):
            expected = (number >> 1) ^ -(number & 1)
        elif read is read_uvarlong:
            expected = number - (number >> 63 << 64)
        assert read(array(data), 0, most) == (expected, most)
        data = bytes([*groups[:most], last])
        assert read(array(data), 0, len(data)) == (0, -1)


@given(st.binary(max_size=12), places, places)
def test_varint_readers_stay_in_bounds(data: bytes, at: int, end: int) -> None:
    around = np.zeros(100, np.uint8)
    buf = around[40 : 40 + len(data)]
    buf[:] = array(data)
    for read in READERS:
        value, after = read(buf, at, end)
        if after == -1:
            assert value == 0
        else:
            assert 0 <= at < after <= end <= len(data)


@given(int64s, st.integers(0, 12), places)
def test_varint_writers_stay_in_bounds(value: int, size: int, at: int) -> None:
    for write, measure, encoded in (
        (write_varlong, size_varlong, leb128(zigzag(value))),
        (write_uvarlong, size_uvarlong, leb128(unsigned(value, 64))),
    ):
        assert measure(value) == len(encoded)
        around = np.full(100, 0xAA, np.uint8)
        expected = bytearray(around)
        buf = around[40 : 40 + size]
        if 0 <= at <= size - len(encoded):
            expected[40 + at : 40 + at + len(encoded)] = encoded
            assert write(buf, at, value) == at + len(encoded)
        else:
            with pytest.raises(IndexError, match="outside"):
                write(buf, at, value)
        assert bytes(around) == bytes(expected)


@given(int32s)
def test_short_and_long_forms_agree(value: int) -> None:
    """Which is why there is one writer for both."""
    buf = np.zeros(10, np.uint8)
    end = write_varlong(buf, 0, value)
    assert end <= 5
    assert read_varint(buf, 0, end) == read_varlong(buf, 0, end) == (value, end)


def test_intrinsics_compile_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, so that each run tests newly emitted code."""
    if mode() == "interpreted":
        pytest.skip("nothing is compiled with the JIT off")
    monkeypatch.setattr(module, "_cache_place", lambda: None)
    monkeypatch.setattr(module, "_registry", {})

    def compiled(item: Any) -> Any:
        return Kernel(item.py_func, item.signature, None).compile()

    data = bytes(range(1, 41))
    assert compiled(loads)(array(data), 3) == tuple(struct.unpack_from(code, data, 3)[0] for code in FORMATS)
    for which in range(6):
        buf = np.zeros(9, np.uint8)
        assert compiled(store)(buf, which, 1, -2) == 1 + (2 << which % 3)
        assert sorted(buf)[-1] == 255
    copied_anew = compiled(copied)
    for n in range(40):
        dst = np.zeros(40, np.uint8)
        copied_anew(dst, 0, array(data), 0, n)
        assert bytes(dst) == data[:n] + bytes(40 - n)
    raw = package.crc32c(DATA) ^ 0xFFFFFFFF
    assert compiled(checksums._by_slicing)(0xFFFFFFFF, DATA, 0, len(DATA)) == raw
    if compiled(has_instruction)():
        assert compiled(checksums._by_instruction)(0xFFFFFFFF, DATA, 0, len(DATA)) == raw


@kernel("")
def has_instruction() -> bool:
    return checksums._has_instruction()


def test_results_are_plain_integers() -> None:
    """NumPy scalars are narrow, and computations with them warn of overflow."""
    buf = DATA[:20]
    assert {type(value) for value in loads(buf, 0)} == {int}
    assert {type(value) for read in READERS for value in read(buf, 0, 20)} == {int}
    assert type(checksum(buf, 0, 20)) is type(crc32c_combine(1, 2, 3)) is int


@kernel("const u1[], i8, i8, i8")
def masked(buf: Any, at: int, end: int, value: int) -> int:
    return equal_mask(buf, at, end, value)


@kernel("i8")
def lowest(value: int) -> int:
    return lowest_bit(value)


@given(st.lists(st.sampled_from([1, 2, 65, 255]), min_size=1, max_size=200).map(bytes), st.data())
def test_equal_mask_has_a_bit_per_byte_of_the_range_with_the_value(
    data: bytes, choice: st.DataObject
) -> None:
    at = choice.draw(st.integers(0, len(data)))
    end = choice.draw(st.integers(at, len(data)))
    for value in (1, 255):
        expected = sum(1 << i for i, byte in enumerate(data[at:end][:64]) if byte == value)
        mask = masked(np.frombuffer(data, np.uint8), np.int64(at), np.int64(end), value)  # type: ignore[arg-type]
        assert mask & (1 << 64) - 1 == expected


@kernel("const u1[], i8, i8, i8")
def all_masked(buf: Any, at: int, first: int, second: int) -> tuple[int, int, int]:
    return masks_of(buf, at, first, second)


@given(st.lists(st.sampled_from([1, 2, 65, 127, 128, 255]), min_size=64, max_size=90).map(bytes), st.data())
def test_masks_of_two_bytes_and_of_bytes_above_127(data: bytes, choice: st.DataObject) -> None:
    at = choice.draw(st.integers(0, len(data) - 64))
    part = data[at : at + 64]
    expected = [
        sum(1 << i for i, byte in enumerate(part) if test(byte))
        for test in (lambda byte: byte == 1, lambda byte: byte == 2, lambda byte: byte > 127)
    ]
    masks = all_masked(np.frombuffer(data, np.uint8), at, 1, 2)
    assert [mask & (1 << 64) - 1 for mask in masks] == expected


@pytest.mark.skipif(mode() == module.COMPILED, reason="the kernel checks the range")
@pytest.mark.parametrize("at", [-1, 1])
def test_masks_are_checked_for_debugging(at: int) -> None:
    with pytest.raises(IndexError, match="masks_of outside"):
        all_masked(np.zeros(64, np.uint8), at, 1, 2)


@given(st.integers(1, (1 << 63) - 1))
def test_lowest_bit_is_the_lowest_one_that_is_set(value: int) -> None:
    assert value >> lowest(value) & 1
    assert not value & (1 << lowest(value)) - 1


@kernel("i8, const u1[], i8, i8")
def continued_crc32(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32_update(crc, buf, start, end)


@pytest.mark.parametrize("crc", [0, 0x12345678, 0xFFFFFFFF])
def test_crc32_of_every_length_is_that_of_zlib(crc: int) -> None:
    data = np.random.default_rng(5).integers(0, 256, 5000, np.uint8)
    for size in (*range(400), 1023, 1024, 4095, 4096):
        assert continued_crc32(crc, data, size % 7, size % 7 + size) == zlib.crc32(
            data[size % 7 :][:size].tobytes(), crc
        )


@ELSEWHERE
@pytest.mark.parametrize(
    ("features", "folds"),
    [("", False), ("+sse4.2,+pclmul", True), ("+sse4.2,+avx,+avx2,+pclmul,+vpclmulqdq", True)],
)
def test_crc32_without_the_widest_products(features: str, folds: bool) -> None:
    """Compiled for a processor that multiplies two blocks at a time, one, or none, the checksum is the same."""
    import llvmlite.binding

    host = llvmlite.binding.get_host_cpu_features()
    if not all(host.get(feature[1:]) for feature in features.split(",") if feature):
        pytest.skip("this processor has no such carry-less product")
    script = f"""
        import numpy, zlib
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32 import _can_fold, crc32
        @kernel("const u1[], i8")
        def checksum(buf, end):
            return _can_fold(), crc32(buf, 0, end)
        buf = numpy.arange(5000, dtype=numpy.uint8)
        assert all(checksum(buf, n) == ({folds}, zlib.crc32(buf[:n])) for n in (0, 1, 7, 31, *range(32, 400), 5000))
        """
    settings = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "LOGWRIGHT_CACHE_DIR": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled") | settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's C library")
def test_crc32_touches_no_page_beside_its_buffer() -> None:
    """The first bytes are loaded as the end of a vector that starts before them."""
    script = """
        import ctypes, mmap, numpy, zlib
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32 import crc32
        @kernel("const u1[], i8, i8")
        def checksum(buf, start, end):
            return crc32(buf, start, end)
        page = mmap.PAGESIZE
        memory = numpy.frombuffer(mmap.mmap(-1, 3 * page), numpy.uint8)
        memory[page : 2 * page] = numpy.arange(page) * 7 % 251
        for first in (0, 2 * page):
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + first), ctypes.c_size_t(page), 0) == 0
        buf = memory[page : 2 * page]
        for n in range(32, 200):
            assert checksum(buf, 0, n) == zlib.crc32(buf[:n])
            assert checksum(buf, page - n, page) == zlib.crc32(buf[page - n :])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(mode() == "interpreted", reason="zlib sums slices, which end with the buffer")
def test_crc32_does_not_read_outside_of_the_buffer() -> None:
    data = np.zeros(64, np.uint8)
    for start, end in ((-1, 40), (0, 65), (60, 100)):
        with pytest.raises(IndexError):
            continued_crc32(0, data, start, end)
