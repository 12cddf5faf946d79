"""Minecraft worlds: Mojang's fork of LevelDB, through the package amulet-leveldb, judges types 2 (zlib) and 4 (raw deflate)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logwright as lw

leveldb = pytest.importorskip("leveldb", reason="amulet-leveldb is not installed (`make oracle` compiles it)")
pytestmark = pytest.mark.oracle

ENTRIES = 20_000


def _entries(seed: int, count: int) -> dict[bytes, bytes]:
    rng = random.Random(seed)
    return {
        b"%08x%c" % (rng.getrandbits(32), 47 + rng.randrange(12)): b"minecraft:stone" * rng.randrange(20)
        + rng.randbytes(rng.randrange(60))
        for _ in range(count)
    }


def _world(path: Path, seed: int) -> dict[bytes, bytes]:
    """Write a world with the fork: overwritten and deleted keys, tables and a log."""
    entries = _entries(seed, ENTRIES)
    database = leveldb.LevelDB(str(path), True)
    for key in entries:
        database.put(key, b"old")
    for key, value in entries.items():
        database.put(key, value)
    for key in list(entries)[::17]:
        database.delete(key)
        del entries[key]
    database.compact()
    later = _entries(seed + 1, 100)
    for key, value in later.items():
        database.put(key, value)
    database.close()
    return entries | later


def _of(path: Path) -> dict[bytes, bytes]:
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def _types(path: Path) -> dict[str, int]:
    types: dict[str, int] = lw.inspect(path)["facts"]["compression"]
    return types


def _of_fork(path: Path) -> dict[bytes, bytes]:
    database = leveldb.LevelDB(str(path))
    try:
        return dict(database.items())
    finally:
        database.close()


@pytest.mark.parametrize("seed", [1, 7])
def test_fork_world_is_read_verified_repaired_and_round_trips(tmp_path: Path, seed: int) -> None:
    world = tmp_path / "world"
    entries = _world(world, seed)
    assert _types(world).keys() <= {"zlib_raw", "none"}
    assert "zlib_raw" in _types(world)
    assert _of(world) == entries
    report = lw.verify(world)
    assert report.ok
    assert not report.unchecked
    assert report.faults == []
    lw.repair(world, tmp_path / "repaired")
    assert _of(tmp_path / "repaired") == entries
    assert lw.roundtrip(world).ok
    assert _of_fork(tmp_path / "repaired") == entries


@pytest.mark.parametrize("compression", ["zlib", "zlib_raw"])
def test_our_world_is_read_by_the_fork(tmp_path: Path, compression: str) -> None:
    entries = _entries(3, ENTRIES)
    world = tmp_path / "world"
    rows = [{"key": key, "value": value} for key, value in entries.items()]
    lw.write(rows, world, "leveldb.db", compression=compression, block_size=163840, bloom_bits_per_key=10)
    assert _types(world) == {compression: sum(_types(world).values())}
    assert lw.roundtrip(world).ok
    lw.repair(world, tmp_path / "repaired")
    assert _of(tmp_path / "repaired") == entries
    for path in (world, tmp_path / "repaired"):
        assert _of_fork(path) == entries


def test_world_with_both_compression_types_is_read_and_verified(tmp_path: Path) -> None:
    """The fork adds tables of type 4 to tables of type 2."""
    entries = _entries(5, ENTRIES)
    world = tmp_path / "world"
    rows = [{"key": key, "value": value} for key, value in entries.items()]
    lw.write(rows, world, "leveldb.db", compression="zlib", block_size=163840, max_file_size=1 << 20)
    later = _entries(6, 2 * ENTRIES)
    database = leveldb.LevelDB(str(world))
    for key, value in later.items():
        database.put(key, value)
    database.close()
    entries |= later
    assert set(_types(world)) >= {"zlib", "zlib_raw"}
    assert _of(world) == entries == _of_fork(world)
    assert lw.verify(world).ok
    assert lw.roundtrip(world).ok
    lw.repair(world, tmp_path / "repaired")
    assert _of(tmp_path / "repaired") == entries == _of_fork(tmp_path / "repaired")
