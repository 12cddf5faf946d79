"""Bloom filters: hash, bits, filter block, and the reading of damaged ones."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_build import missed_key

from logwright.codec.leveldb.formats.table.filter import (
    Filter,
    FilterBuilder,
    bits_per_key_of,
    bloom,
    bloom_hash,
    hash_keys,
    may_match,
    probes_of,
)

pytestmark = pytest.mark.kernel_modes


def hashes(*keys: bytes) -> np.ndarray:
    out = np.empty(len(keys), np.int64)
    ends = np.cumsum([0, *map(len, keys)])
    hash_keys(np.frombuffer(b"".join(keys), np.uint8), ends, 0, len(keys), out)
    return out


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", 0xBC9F1D34),
        ("62", 0xEF1345C4),
        ("c397", 0x5B663814),
        ("e299a5", 0x323C078F),
        ("e180b932", 0xED21633A),
        (b"hello".hex(), 0xF795964E),
        (b"foo".hex(), 0x9DFABE14),
    ],
)
def test_bloom_hash_equals_leveldbs(data: str, expected: int) -> None:
    raw = np.frombuffer(bytes.fromhex(data), np.uint8)
    assert bloom_hash(raw, 0, len(raw)) == expected


def test_bloom_filter_equals_leveldbs() -> None:
    assert bloom(hashes(b"hello", b"world"), 10).tobytes() == bytes.fromhex("114000414410401006")


@pytest.mark.parametrize(("bits", "probes"), [(1, 1), (10, 6), (14, 9), (50, 30)])
def test_number_of_probes_follows_bits_per_key(bits: int, probes: int) -> None:
    assert probes_of(bits) == probes


def test_filter_has_all_its_keys_and_few_others() -> None:
    keys = [b"key%d" % n for n in range(500)]
    built_filter = bloom(hashes(*keys), 10)
    assert all(may_match(built_filter, 0, len(built_filter), int(h)) for h in hashes(*keys))
    others = [
        may_match(built_filter, 0, len(built_filter), int(h))
        for h in hashes(*(b"other%d" % n for n in range(500)))
    ]
    assert sum(others) < 25
    assert not may_match(built_filter, 0, 1, 7)
    many = built_filter.copy()
    many[-1] = 31
    assert all(may_match(many, 0, len(many), int(h)) for h in hashes(b"anything"))


def test_filter_block_without_keys_has_five_bytes() -> None:
    assert FilterBuilder(10).finish() == bytes.fromhex("000000000b")


def test_filters_are_by_2_kib_of_the_file() -> None:
    builder = FilterBuilder(10)
    builder.add(hashes(b"a"), 5000)
    builder.add(hashes(b"b"), 6000)
    builder.add(hashes(b"c"), 6100)
    block = np.frombuffer(builder.finish(), np.uint8)
    parsed = Filter(block)
    assert parsed.of(0) == (0, 9)
    assert parsed.of(2048) == (9, 9)  # No block starts there: nothing matches.
    assert missed_key(parsed, 2048, hashes(b"a")) == 0
    assert missed_key(parsed, 0, hashes(b"a")) is None
    assert missed_key(parsed, 5000, hashes(b"b", b"c")) is None
    assert parsed.of(9000) is None
    assert missed_key(parsed, 9000, hashes(b"x")) is None


def test_lost_bit_is_noticed() -> None:
    builder = FilterBuilder(10)
    keys = [b"k%d" % n for n in range(20)]
    builder.add(hashes(*keys), 1000)
    block = np.frombuffer(builder.finish(), np.uint8).copy()
    assert missed_key(Filter(block), 0, hashes(*keys)) is None
    block[0] = 0
    assert missed_key(Filter(block), 0, hashes(*keys)) is not None


@pytest.mark.parametrize("data", [b"", b"\x0b", b"\xff\xff\xff\xff\x0b"])
def test_broken_filter_matches_every_key(data: bytes) -> None:
    assert Filter(np.frombuffer(data, np.uint8)).of(0) is None


def test_filter_with_malformed_offsets_is_ignored() -> None:
    # Two filters: the first starts after its end, the second is empty but out of range.
    block = bytes.fromhex("0b00000009000000 00000000 0b".replace(" ", ""))
    assert Filter(np.frombuffer(block, np.uint8)).of(0) is None
    outside = bytes.fromhex("0900000009000000 00000000 0b".replace(" ", ""))
    assert Filter(np.frombuffer(outside, np.uint8)).of(0) == (0, 0)


@pytest.mark.parametrize("bits", [1, 3, 10, 14, 50])
def test_bits_per_key_can_be_inferred_from_a_filter(bits: int) -> None:
    builder = FilterBuilder(bits)
    builder.add(hashes(*(b"%d" % n for n in range(100))), 100)
    assert bits_per_key_of(np.frombuffer(builder.finish(), np.uint8), 0, 100) == bits


def test_empty_filter_allows_no_inference() -> None:
    assert bits_per_key_of(np.frombuffer(FilterBuilder(9).finish(), np.uint8), 0, 9) == 0
    odd = np.array([*[0] * 8, 29, *[0] * 4, 9, 0, 0, 0, 11], np.uint8)
    assert bits_per_key_of(odd, 0, 5) == 0


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.lists(st.binary(max_size=6), max_size=8), max_size=8),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
)
def test_many_blocks_are_tested_as_one_by_one(
    blocks: list[list[bytes]], damage: list[tuple[int, int]]
) -> None:
    """For a damaged filter too."""
    builder, at, offsets, all_hashes = FilterBuilder(10), 0, list[int](), list[np.ndarray]()
    for keys in blocks:
        all_hashes_ = hashes(*keys)
        offsets.append(at)
        all_hashes.append(all_hashes_)
        at += 700
        builder.add(all_hashes_, at)
    data = bytearray(builder.finish())
    for place, byte in damage:
        data[place % len(data)] = byte
    filter_ = Filter(np.frombuffer(bytes(data), np.uint8))
    rows = np.cumsum([0, *map(len, all_hashes)])
    together = np.concatenate([np.empty(0, np.int64), *all_hashes])
    expected = [
        missed_key(filter_, offset, key_hashes)
        for offset, key_hashes in zip(offsets, all_hashes, strict=True)
    ]
    misses = filter_.misses_of(np.array(offsets, np.int64), rows, together)
    assert (misses is None) == all(entry is None for entry in expected)
    if misses is not None:
        assert [None if missed < 0 else missed for missed in misses.tolist()] == expected


def test_damaged_filter_misses_nothing() -> None:
    """With inconsistent offsets, or offsets beyond the filters, every key may be present."""
    block = np.frombuffer(
        bytes.fromhex("114000414410401006")  # One filter of two keys.
        + b"".join(n.to_bytes(4, "little") for n in (0, 9, 5, 900, 901, 901, 7))
        + (9).to_bytes(4, "little") + b"\x0b",
        np.uint8,
    )  # fmt: skip
    parsed = Filter(block)
    ours, other = hashes(b"hello", b"world"), hashes(b"nobody")
    offsets = np.arange(7, dtype=np.int64) << 11
    expected = []
    for slot in range(7):
        assert missed_key(parsed, slot << 11, ours) is None or slot != 0
        first = missed_key(parsed, slot << 11, other)
        expected.append(-1 if first is None else first)
    # The first is the filter; 9..5 and 7..9 are reversed, 5..900 exceeds the block; 901..901 is empty.
    rows = np.arange(8, dtype=np.int64)
    many = parsed.misses_of(offsets, rows, np.repeat(other, 7))
    assert (many if many is not None else np.full(7, -1)).tolist() == expected
    assert expected[0] == 0
    assert expected[1] == -1
