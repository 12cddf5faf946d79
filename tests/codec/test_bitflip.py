"""Find a flipped bit from a checksum mismatch."""

from __future__ import annotations

import zlib

import pytest
from explanations import all_nodes, check_covers_file
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.kernels.bitflip import find_flipped_bit
from logwright.codec.kernels.crc32c import crc32c_bytes as crc32c
from logwright.codec.leveldb.formats.table.layout import stored_crc
from logwright.corpora.cases import cases


@given(st.binary(min_size=1, max_size=200), st.data())
@pytest.mark.parametrize("algorithm", [crc32c, stored_crc, zlib.crc32])
def test_single_flipped_bit_is_found(algorithm: object, data: bytes, draw: st.DataObject) -> None:
    assert callable(algorithm)
    at, bit = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(0, 7))
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    assert find_flipped_bit(algorithm, algorithm(data), algorithm(bytes(changed)), len(data)) == (at, bit)


def test_flipped_bit_of_the_checksum_itself() -> None:
    right = crc32c(b"abc")
    assert find_flipped_bit(crc32c, right ^ 1 << 7, right, 3) == (3, 7)
    assert find_flipped_bit(stored_crc, stored_crc(b"abc") ^ 2, stored_crc(b"abc"), 3) == (3, 1)


def test_two_flipped_bits_are_not_found() -> None:
    assert find_flipped_bit(crc32c, crc32c(b"abcd"), crc32c(b"wxyz"), 4) is None
    assert find_flipped_bit(zlib.crc32, zlib.crc32(b"abcd"), zlib.crc32(b"abba"), 4) is None


def test_flipped_bit_outside_the_covered_bytes_is_not_found() -> None:
    data = bytes(5000)
    changed = b"\x01" + data[1:]
    assert find_flipped_bit(crc32c, crc32c(data), crc32c(changed), 4999) is None
    assert find_flipped_bit(crc32c, crc32c(data), crc32c(changed), 5000) == (0, 0)


@pytest.mark.parametrize("algorithm", [crc32c, stored_crc, zlib.crc32])
@pytest.mark.parametrize("behind", [0, 1, 510, 511, 512, 513, 1023, 1024, 100_000])
def test_flipped_bit_is_found_at_any_distance_from_the_end(algorithm: object, behind: int) -> None:
    assert callable(algorithm)
    data = bytearray(100_003)
    right = algorithm(bytes(data))
    data[len(data) - 1 - behind] ^= 0x10
    wrong = algorithm(bytes(data))
    assert find_flipped_bit(algorithm, right, wrong, len(data)) == (len(data) - 1 - behind, 4)
    assert find_flipped_bit(algorithm, right, wrong, behind + 1) == (0, 4)
    assert find_flipped_bit(algorithm, right, wrong, behind) is None


@pytest.mark.parametrize(
    ("case", "field"), [("dmg_flip_lastdelta", "last_offset_delta"), ("dmg_flip_count", "records_count")]
)
def test_fault_names_the_field_of_the_flipped_bit(case: str, field: str) -> None:
    explanation = lw.explain(cases("kafka")[case].partition, fault=1)
    problems = {node.name: node.problem for node in all_nodes(explanation) if node.problem}
    assert "is flipped, according to the checksum" in problems[field]
    assert "Flipping bit" in problems["crc"]


def test_flipped_bits_of_blocks_and_records_are_found() -> None:
    tried = 0
    for case in ("wal_flip_payload", "table_flip_data", "wal_flip_crc"):
        for path in sorted((cases("leveldb")[case].path / "db").iterdir()):
            if path.suffix in (".log", ".ldb") and path.stat().st_size:
                explanation = lw.explain(path)
                check_covers_file(explanation, path.read_bytes())
                tried += any("Flipping bit" in node.problem for node in all_nodes(explanation))
    assert tried >= 1
