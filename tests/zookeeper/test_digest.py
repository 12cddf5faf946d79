"""The CRC-32 of digests and hashed paths in kernels: byte by byte, by eight and by sixteen."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from logwright.codec.java import int64
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.zookeeper.formats.snapshot.layout import LENGTH
from logwright.codec.zookeeper.state.digest import counts
from logwright.codec.zookeeper.state.tree_records import hash_records

pytestmark = pytest.mark.kernel_modes

ONES = 0xFFFFFFFF


def test_crc32_of_all_lengths() -> None:
    data = np.random.default_rng(2).integers(0, 256, 400, dtype=np.uint8)
    sizes = np.arange(100, dtype=np.int32)
    for start in range(9):
        out = np.empty(len(sizes), np.int64)
        hash_records(data, np.full(len(sizes), start, np.int64), sizes, out)
        at = start + LENGTH
        assert out.tolist() == [zlib.crc32(data[at : at + size]) ^ ONES for size in sizes.tolist()]


def test_crc32_can_be_continued() -> None:
    data = np.arange(60, dtype=np.uint8)
    half = crc32_raw(ONES, data, 0, 23)
    assert crc32_raw(half, data, 23, 60) ^ ONES == zlib.crc32(data)


def test_only_digested_fields_change_the_digest() -> None:
    for path, counted in (
        (b"", 1),
        (b"/zookeeper", 1),
        (b"/zookeepers/a", 1),
        (b"/zookeeper/", 0),
        (b"/zookeeper/a", 0),
    ):
        assert counts(np.frombuffer(path, np.uint8), 0, len(path)) == counted


def test_digest_sums_wrap_at_64_bits() -> None:
    assert [int64(item) for item in (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64)] == [
        0,
        (1 << 63) - 1,
        -(1 << 63),
        -1,
        0,
    ]
