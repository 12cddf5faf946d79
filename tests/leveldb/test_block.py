"""Blocks: prefix compression compared with the description, compression, and the reading of malformed blocks."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import zstandard
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.kernels.compress import BombError, CompressionError, compress
from logwright.codec.leveldb.formats.table import compression
from logwright.codec.leveldb.formats.table import layout as block
from logwright.codec.leveldb.formats.table.codec import first_bad
from logwright.codec.leveldb.formats.table.rows import Unpacked, plain
from logwright.codec.leveldb.keys import internal_key, order, separator, successor

pytestmark = pytest.mark.kernel_modes
LIMIT = 1 << 20

ROWS = st.lists(
    st.tuples(
        st.binary(max_size=12) | st.sampled_from([b"", b"aaaaaaaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaaaaaab"]),
        st.integers(0, (1 << 56) - 1),
        st.sampled_from([0, 1]),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=40,
)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def unpacked(data: bytes, limit: int = LIMIT) -> Unpacked:
    return Unpacked.of(plain(array(data), block.NONE, limit))


def pairs_of(crafted: Unpacked) -> list[tuple[bytes, bytes]]:
    """Return internal keys and values as the kernels read them."""
    keys, values = crafted.keys.tobytes(), crafted.values.tobytes()
    k, v = crafted.key_ends.tolist(), crafted.value_ends.tolist()
    tags = [int(trailer).to_bytes(8, "little", signed=True) for trailer in crafted.trailers]
    return [(keys[k[i] : k[i + 1]] + tags[i], values[v[i] : v[i + 1]]) for i in range(crafted.rows)]


def described(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the pairs by the description, entry by entry."""
    count = block.RESTART.unpack(data, len(data) - 4)[0]["offset"]
    stop = len(data) - 4 * (count + 1)
    at, key, out = 0, b"", []
    while at < stop:
        head, at = block.ENTRY.unpack(data, at, stop)
        key = key[: head["shared"]] + data[at : at + head["non_shared"]]
        at += head["non_shared"]
        out.append((key, data[at : at + head["value_length"]]))
        at += head["value_length"]
    return out


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.integers(1, 20))
def test_kernels_equal_the_description(rows: list[tuple[bytes, int, int, bytes]], interval: int) -> None:
    pairs = [(internal_key(key, sequence, kind), value) for key, sequence, kind, value in rows]
    pairs.sort(key=lambda entry: order(entry[0]))
    data = block.pack_entries(pairs, interval)
    assert described(data) == pairs
    entries = unpacked(data)
    assert pairs_of(entries) == pairs
    keys, values, status = block.entries(array(data), LIMIT)
    assert (list(zip(keys, values, strict=True)), status) == (pairs, block.SOUND)
    assert keys[1:] == [key for key, _ in pairs[1:]]
    assert entries.packed(interval).tobytes() == data
    uncompressed = plain(array(data), block.NONE, LIMIT)
    assert uncompressed.interval == (interval if len(pairs) > interval else max(16, len(pairs)))


def test_block_without_entries_is_valid() -> None:
    data = bytes.fromhex("0000000001000000")
    assert block.pack_entries([], 16) == data
    assert plain(array(data), block.NONE, LIMIT).error == ""
    assert unpacked(data).rows == 0
    assert plain(array(b"\0\0\0\0"), block.NONE, LIMIT).error == ""  # No restart points: empty too.


PAIRS = [(internal_key(b"apple", 3, 0), b""), (internal_key(b"apricot", 2, 1), b"x" * 5)]
GOOD = block.pack_entries(PAIRS, 16)


@pytest.mark.parametrize(
    ("data", "message", "rows"),
    [
        (b"\0\0\0", "bad block contents", 0),
        (b"\0\0\0\0\xff\0\0\0", "bad block contents", 0),
        (b"\0\0" + b"\0\0\0\0\1\0\0\0", "bad entry in block", 0),  # Fewer than three bytes.
        (b"\1\0\0" + GOOD[3:], "bad entry in block", 0),  # Shares more than there is.
        (b"\x80\x80\x80" + b"\0\0\0\0\1\0\0\0", "bad entry in block", 0),  # An endless varint.
        (b"\0\x80\x80\x80" + b"\0\0\0\0\1\0\0\0", "bad entry in block", 0),
        (
            b"\0\0\xff\xff\xff\xff\x0f" + b"\0\0\0\0\1\0\0\0",
            "bad entry in block",
            0,
        ),  # A value beyond the block.
        (b"\0\x7f\0" + GOOD[3:], "bad entry in block", 0),  # A key beyond the block.
        (GOOD[:18] + b"\x7f" + GOOD[19:], "bad entry in block", 1),
    ],
)
def test_malformed_block_yields_the_rows_before_the_error(data: bytes, message: str, rows: int) -> None:
    assert plain(array(data), block.NONE, LIMIT).error == message
    assert pairs_of(unpacked(data)) == PAIRS[:rows]


def test_first_restart_point_after_all_entries_hides_them() -> None:
    stop = len(GOOD) - 8
    for first in (stop, stop + 9):
        data = GOOD[:stop] + first.to_bytes(4, "little") + GOOD[-4:]
        entries = plain(array(data), block.NONE, LIMIT)
        assert (entries.error, unpacked(data).rows) == ("", 0)


def test_fully_shared_keys_are_no_decompression_bomb() -> None:
    data = block.pack_entries([(b"k" * 5000, b"")] * 2000, 1 << 20)
    assert len(data) < 15_000
    assert plain(array(data), block.NONE, LIMIT).error == "the keys of the block are too large"
    assert plain(array(data), block.NONE, 64 << 20).error == ""


def test_invalid_internal_keys_are_skipped() -> None:
    short, strange = b"abc", b"abcd" + bytes((9,)) + bytes(7)
    pairs = [
        (short, b"1"),
        (internal_key(b"abd", 1, 1), b"2"),
        (strange, b"3"),
        (internal_key(b"abz", 2, 1), b"4"),
    ]
    entries = unpacked(block.pack_entries(pairs, 16))
    assert pairs_of(entries) == [pairs[1], pairs[3]]
    assert entries.skipped.tolist() == [2]


def test_versions_of_a_key_share_its_trailer() -> None:
    pairs = [(internal_key(b"k", n, 1), b"") for n in (9 << 40, 8 << 40, 7)]
    assert pairs_of(unpacked(block.pack_entries(pairs, 16))) == pairs


# Checksums


@pytest.mark.parametrize(
    ("data", "stored"),
    [
        (b"", "d8ea82a2"),
        (b"123456789", "e5b08ac7"),
        (b"foo", "618abefe"),
        (bytes(32), "faffd70f"),
        (b"\xff" * 32, "29b009f9"),
        (bytes(range(32)), "92781f95"),
    ],
)
def test_masked_checksum_equals_leveldbs(data: bytes, stored: str) -> None:
    from logwright.codec.kernels.crc32c import crc32c

    crc = crc32c(array(data), 0, len(data))
    assert block.masked(crc).to_bytes(4, "little").hex() == stored
    assert block.unmasked(block.masked(crc)) == crc


# Compression


@pytest.mark.parametrize("name", ["snappy", "zstd"])
def test_block_that_saves_less_than_an_eighth_is_stored(name: str) -> None:
    noise = np.random.default_rng(3).integers(0, 256, 800).astype(np.uint8)
    assert compression.stored(noise, name)[0] == block.NONE
    kind, small = compression.stored(bytes(4000), name)
    assert block.COMPRESSION_NAMES[kind] == name
    assert compression.expand(array(small), kind, LIMIT).tobytes() == bytes(4000)
    with pytest.raises(BombError):
        compression.expand(array(small), kind, 3999)


def test_zstd_frame_has_the_content_size() -> None:
    import zstandard

    _, small = compression.stored(bytes(4000), "zstd", 1)
    assert zstandard.frame_content_size(small) == 4000
    without = compress("zstd", bytes(4000))
    with pytest.raises(CompressionError, match="corrupted zstd compressed block length"):
        compression.expand(array(without), block.ZSTD, LIMIT)


@pytest.mark.parametrize("name", block.COMPRESSION_NAMES)
def test_every_compression_round_trips(name: str) -> None:
    data = b"minecraft:stone" * 50
    kind, contents = compression.stored(data, name)
    assert kind == block.TYPES[name]
    contents = array(bytes(contents))
    assert compression.compression_of(contents, kind) == name
    assert compression.expand(contents, kind, LIMIT).tobytes() == data


@pytest.mark.parametrize("level", [-1, 0, 1, 5, 9])
def test_type_2_is_zlib_or_zstd_by_its_first_bytes(level: int) -> None:
    """Mojang's fork and LevelDB use the number 2 for different compressions."""
    small = array(zlib.compress(b"x" * 99, level))
    assert compression.compression_of(small, 2) == "zlib"
    assert compression.compression_of(array(compress("zstd-sized", b"x" * 99)), 2) == "zstd"
    assert compression.compression_of(small, 4) == "zlib_raw"
    assert compression.compression_of(array(b"nonsense"), 2) is None
    assert compression.compression_of(small, 7) is None


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"\xff\xff", block.SNAPPY, "corrupted snappy compressed block length"),
        (b"\x05\x00", block.SNAPPY, "corrupted snappy compressed block contents"),
        (zstandard.MAGIC_NUMBER.to_bytes(4, "little"), block.ZSTD, "corrupted zstd compressed block length"),
        (b"nonsense", block.ZSTD, "bad block type"),
        (compress("zlib", bytes(400))[:-3], block.ZLIB, "corrupted compressed block contents"),
        (compress("deflate", bytes(400))[:-3], block.ZLIB_RAW, "corrupted compressed block contents"),
        (compress("deflate", bytes(LIMIT + 1)), block.ZLIB_RAW, "corrupted compressed block contents"),
        (compress("zstd-sized", bytes(400))[:-3], block.ZSTD, "corrupted zstd compressed block contents"),
        (b"", 3, "bad block type"),
    ],
)
def test_undecompressible_block_is_an_error(data: bytes, kind: int, message: str) -> None:
    with pytest.raises(CompressionError, match=message):
        compression.expand(array(data), kind, LIMIT)
    assert plain(array(data), kind, LIMIT).error.startswith(message)
    if kind == block.SNAPPY:
        keys, values, status = block.entries(array(b"\0"), LIMIT)
        assert (list(keys), list(values), status) == ([], [], block.BAD_CONTENTS)


# Keys between blocks


@pytest.mark.parametrize(
    ("last", "following", "expected"),
    [
        (b"the quick brown fox", b"the who", b"the r"),
        (b"abcdef", b"abz", b"abd"),
        (b"abc", b"abe", b"abc"),
        (b"abc", b"abd", b"abc"),
        (b"ab", b"abc", b"ab"),
        (b"a\xff\x01", b"b", b"a\xff\x01"),
        (b"a\xff\x01", b"c", b"b"),
        (b"k1005", b"k103", b"k101"),
        (b"k100", b"k102", b"k100"),
    ],
)
def test_separator_is_the_shortest_key_between_blocks(last: bytes, following: bytes, expected: bytes) -> None:
    a, b = internal_key(last, 7, 1), internal_key(following, 5, 0)
    split_key = separator(a, b)
    assert split_key == (a if expected == last else expected + bytes.fromhex("01ffffffffffffff"))
    assert order(a) <= order(split_key) < order(b)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b"abc", b"b"),
        (b"\xff\xff\x61", b"\xff\xff\x61"),
        (b"\xff\x62\xff", b"\xff\x63"),
        (b"\xff\xff", b"\xff\xff"),
        (b"", b""),
        (b"a", b"a"),
    ],
)
def test_successor_is_the_shortest_key_after_the_last_one(last: bytes, expected: bytes) -> None:
    a = internal_key(last, 7, 1)
    assert successor(a) == (a if expected == last else expected + bytes.fromhex("01ffffffffffffff"))


@pytest.mark.parametrize("count", range(8))
def test_first_block_with_a_wrong_checksum_is_found(count: int) -> None:
    """At any position among the blocks verified together, for any sizes."""
    rng = np.random.default_rng(count)
    blocks = [
        compression.sealed(rng.bytes(int(size)), 0) for size in rng.choice([1, 8, 50, 4096, 9000], count)
    ]
    ends = np.cumsum([3, *(len(block) for block in blocks)])
    data = np.frombuffer(b"abc" + b"".join(blocks), np.uint8).copy()
    assert first_bad(data, ends[:-1], ends[1:]) == count
    for wrong in reversed(range(count)):
        data[int(ends[wrong]) if wrong % 2 else int(ends[wrong + 1]) - 1] ^= 4
        assert first_bad(data, ends[:-1], ends[1:]) == wrong
