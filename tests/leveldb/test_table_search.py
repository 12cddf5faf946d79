"""The search for the blocks of a damaged table by checksum."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logwright as lw
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.leveldb.formats.table import index, resync
from logwright.codec.leveldb.formats.table.index import Searches, survey
from logwright.codec.leveldb.formats.table.layout import masked
from logwright.codec.leveldb.formats.table.resync import numbers

LIMIT = 1 << 28


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """Count the searches by size of the table and offset."""
    counts: Counter[tuple[int, int]] = Counter()
    find = index.find

    def counted(read: Any, low: int, high: int, size: int, limit: int) -> Any:
        counts[size, low] += 1
        return find(read, low, high, size, limit)

    monkeypatch.setattr(index, "find", counted)
    monkeypatch.setattr(index, "_SEARCHES", Searches(1 << 20))
    return counts


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A database of two tables, both with a damaged index, and without its manifest."""
    path = tmp_path / "db"
    rows = [{"key": b"%06d" % n, "value": b"value %d" % n * 5} for n in range(3000)]
    lw.write(rows, path, "leveldb.db", compression="none", max_file_size=64 << 10)
    tables = sorted(path.glob("*.ldb"))
    assert len(tables) > 1
    for table in tables:
        data = bytearray(table.read_bytes())
        data[-60] ^= 1  # the index is directly before the footer
        table.write_bytes(data)
    (path / "CURRENT").unlink()
    return path


@pytest.mark.parametrize("verb", ["verify", "repair", "read"])
def test_operation_searches_a_damaged_table_once(
    verb: str, damaged: Path, searched: Counter[tuple[int, int]], tmp_path: Path
) -> None:
    if verb == "verify":
        assert not lw.verify(damaged).ok
    elif verb == "repair":
        lw.repair(damaged, tmp_path / "out")
        assert lw.verify(tmp_path / "out").ok
    else:
        with pytest.warns(lw.DamageWarning):
            assert len(lw.read(damaged, mode="PERMISSIVE"))
    sizes = {table.stat().st_size for table in damaged.glob("*.ldb")}
    assert {size for size, _ in searched} == sizes
    assert set(searched.values()) == {1}


def test_table_changed_in_place_is_searched_again(damaged: Path, searched: Counter[tuple[int, int]]) -> None:
    table = min(damaged.glob("*.ldb"))
    before = lw.verify(table)
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(data)
    after = lw.verify(table)
    assert max(searched.values()) == 2
    assert after.faults_total > before.faults_total


def test_kept_results_stay_within_their_limit(damaged: Path) -> None:
    data = np.frombuffer(min(damaged.glob("*.ldb")).read_bytes(), np.uint8)
    blocks = survey(lambda offset, length: data[offset : offset + length], len(data), LIMIT)
    assert blocks.memory > 32 * len(blocks.offset)
    kept = Searches(2 * blocks.memory)
    keys = [(bytes([n]), LIMIT) for n in range(5)]
    for key in keys:
        kept.put(key, blocks)
    assert [kept.get(key) is not None for key in keys] == [False, False, False, True, True]


@pytest.mark.kernel_modes
def test_numbers_of_the_start_and_the_checksum_of_a_block_are_equal() -> None:
    random = np.random.default_rng(5)
    data = random.integers(0, 256, 400, np.uint8)
    blocks = [(0, 40), (44, 200), (300, 310)]
    for start, end in blocks:
        stored = masked(crc32c(data, start, end))
        data[end : end + 4] = np.frombuffer(int(stored).to_bytes(4, "little"), np.uint8)
    places = np.array(sorted(place for block in blocks for place in block), np.int64)
    ends = np.array([place in [end for _, end in blocks] for place in places.tolist()], np.uint8)
    out = np.empty(len(places), np.int64)
    numbers(data, places, ends, out)
    number_at = dict(zip(places.tolist(), out.tolist(), strict=True))
    assert [number_at[start] for start, _ in blocks] == [number_at[end] for _, end in blocks]
    assert len(set(number_at.values())) == len(blocks)
    assert number_at[300] == crc32c(data, 300, 400)


@pytest.mark.parametrize("fill", ["zeros", "ones", "table"])
def test_work_of_a_search_without_blocks_is_linear(fill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "WINDOW", 1 << 10)
    monkeypatch.setattr(resync, "LIMIT", 1 << 14)
    work = Counter[str]()
    compute = resync.numbers

    def counted(data: Any, places: Any, ends: Any, out: Any) -> None:
        work["bytes"] += len(data)
        work["places"] += len(places)
        compute(data, places, ends, out)

    monkeypatch.setattr(resync, "numbers", counted)
    size = 1 << 18
    before = np.frombuffer(bytes(range(256)) * 4, np.uint8) if fill == "table" else np.empty(0, np.uint8)
    data = np.concatenate((before, np.full(size, 255 if fill == "ones" else 0, np.uint8)))
    assert list(resync.find(lambda at, length: data[at : at + length], 0, len(data), len(data), LIMIT)) == []
    assert size <= work["bytes"] <= 2.2 * size
    assert (
        work["places"] < size / 100
    )  # nothing in a run of equal bytes is taken for the start or the end of a block


@pytest.mark.alike
@pytest.mark.parametrize("hole", [1, 100, 1 << 20, (1 << 20) + 7, 3 << 20])
def test_blocks_around_zeros_are_found(hole: int) -> None:
    block = np.frombuffer(
        bytes([0, 9, 1]) + b"k" + bytes([1, *range(1, 8)]) + b"v" + bytes([0, 0, 0, 0, 1, 0, 0, 0]), np.uint8
    )
    sealed = np.concatenate((block, np.zeros(1, np.uint8)))
    sealed = np.concatenate(
        (sealed, np.frombuffer(int(masked(crc32c(sealed, 0, len(sealed)))).to_bytes(4, "little"), np.uint8))
    )
    zeros = np.zeros(hole, np.uint8)
    data = np.concatenate((sealed, zeros, sealed, zeros))
    blocks = resync.find(lambda at, length: data[at : at + length], 0, len(data), len(data), LIMIT)
    assert list(blocks) == [(0, len(block)), (len(sealed) + hole, len(block))]
