"""Copies, loads and stores, variable-length integers: the same in all modes, and never out of bounds.

Called from Python an intrinsic is its plain form, so each is called through a small kernel here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from logwright.codec.kernels import kernel as module
from logwright.codec.kernels.byte_masks import equal_mask, lowest_bit, masks_of
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


def test_copy_of_any_length_leaves_the_bytes_around_it() -> None:
    """Each length up to 32 is copied by separate code; one byte on each side is unchanged."""
    for n in (*range(70), 100, 1000, 70_000):
        src = np.random.default_rng(n).integers(0, 256, n + 7, np.uint8)
        dst = np.zeros(n + 9, np.uint8)
        copied(dst, 5, src, 3, n)
        assert bytes(dst) == bytes(5) + bytes(src[3 : 3 + n]) + bytes(4), n


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
@pytest.mark.parametrize("room", [0, 1, 31, 32, 200, 300])
def test_append_leaves_the_bytes_before_and_after_the_buffer(append: Any, room: int) -> None:
    """Bytes before and after the buffers are unchanged."""
    for n in (*range(70), *range(250, 260), 1000, 70_000):
        src = np.random.default_rng(n).integers(0, 256, n + 310, np.uint8)
        around = np.full(n + 320, 0xAA, np.uint8)
        append(around[: 5 + n + room], 5, src[: 3 + n + room], 3, n)
        assert bytes(around[: 5 + n]) == b"\xaa" * 5 + bytes(src[3 : 3 + n]), n
        assert bytes(around[5 + n + room :]) == b"\xaa" * (315 - room), n


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


def test_is_ascii_detects_any_high_byte() -> None:
    """Each length up to 16 is tested by separate code; bytes on both sides do not count."""
    for n in range(70):
        buf = np.full(n + 7, 0xFF, np.uint8)
        buf[3 : 3 + n] = np.arange(n) % 128
        assert plain(buf, 3, n), n
        for i in range(n):
            buf[3 + i] ^= 0x80
            assert not plain(buf, 3, n), (n, i)
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


@pytest.mark.extended
def test_intrinsics_compile_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, so that each run tests newly emitted code."""
    if mode() == "interpreted":
        pytest.skip("nothing is compiled with the JIT off")
    monkeypatch.setattr(module, "cache_place", lambda mode: None)
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


def test_results_are_plain_integers() -> None:
    """NumPy scalars are narrow, and computations with them warn of overflow."""
    buf = array(bytes(range(20)))
    assert {type(value) for value in loads(buf, 0)} == {int}
    assert {type(value) for read in READERS for value in read(buf, 0, 20)} == {int}


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
