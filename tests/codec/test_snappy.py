"""The Snappy kernel gives the library's output and refuses the blocks it refuses."""

from __future__ import annotations

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.compress import decompress as library
from logwright.codec.kernels.snappy_blocks import decompress, lengths

pytestmark = pytest.mark.kernel_modes

_LIMIT = 1 << 20


def decompressed(block: bytes) -> bytes | None:
    """Return a block decompressed by the kernels; None if they refuse it."""
    buf = np.frombuffer(b"before" + block + b"behind", np.uint8).copy()
    start, end = np.array([6]), np.array([6 + len(block)])
    size = np.empty(1, np.int64)
    total = lengths(buf, start, end, _LIMIT, size)
    assert total == max(int(size[0]), 0)
    if size[0] < 0:
        return None
    out = np.zeros(4 + total + 4, np.uint8)
    stop = decompress(buf, 6, 6 + len(block), out, 4, 4 + total)
    assert stop in (-1, 4 + total)
    assert not out[:4].any()
    assert not out[4 + total :].any(), "written behind its end"
    return out[4 : 4 + total].tobytes() if stop >= 0 else None


def by_library(block: bytes) -> bytes | None:
    try:
        return library("snappy-raw", np.frombuffer(block, np.uint8), _LIMIT).tobytes()
    except CompressionError:
        return None


WORDS = st.lists(
    st.sampled_from([b"lima ", b"kilo ", b"a", b"\0" * 70, b"ab" * 40]) | st.binary(max_size=90), max_size=30
)


@given(WORDS)
def test_library_output_is_read(words: list[bytes]) -> None:
    data = b"".join(words)
    assert decompressed(bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize("size", [59, 60, 61, 256, 257, 65536, 65537, 200_000])
def test_long_literals_are_read(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert decompressed(bytes(cramjam.snappy.compress_raw(data))) == data


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


COPIES = {
    "near": b"\x01\x03",  # 4 bytes from 3 before
    "far": b"\xfe\x02\x00",  # 64 from 2 before
    "farthest": b"\x27\x01\x00\x00\x00",  # 10 from 1 before
}


@pytest.mark.parametrize("name", COPIES)
def test_every_kind_of_copy_is_read(name: str) -> None:
    literal = b"\x08abc"
    size = {"near": 4, "far": 64, "farthest": 10}[name]
    block = varint(3 + size) + literal + COPIES[name]
    expected = by_library(block)
    assert expected is not None
    assert len(expected) == 3 + size
    assert decompressed(block) == expected
    for cut in range(len(block)):
        assert decompressed(block[:cut]) is None
        assert decompressed(varint(200) + block[1 : 1 + cut]) is None
    assert decompressed(varint(2 + size) + block[1:]) is None
    assert decompressed(varint(3 + size) + COPIES[name] + literal) is None


def test_invalid_blocks_are_refused() -> None:
    assert decompressed(b"") is None
    assert decompressed(b"\x80") is None
    assert decompressed(b"\xff\xff\xff\xff\x0f\0") is None  # more than the limit
    assert decompressed(varint(100) + b"\0") is None  # more than that many bytes make
    assert decompressed(b"\x05\x10abc") is None  # a literal of five, three are there
    assert decompressed(b"\x04\x01\x00") is None  # from no bytes before
    assert decompressed(b"\x05\xf0") is None
    assert decompressed(b"\0") == b""
    assert decompress(np.zeros(0, np.uint8), 0, 0, np.zeros(0, np.uint8), 0, 0) == -1


@given(WORDS, st.data())
def test_damaged_blocks_are_refused_as_by_the_library(words: list[bytes], data: st.DataObject) -> None:
    block = bytearray(cramjam.snappy.compress_raw(b"".join(words)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(block) - 1))
        block[at] = data.draw(st.integers(0, 255))
    block = block[: data.draw(st.integers(0, len(block)))]
    assert decompressed(bytes(block)) == by_library(bytes(block))
