"""Databases written in memory, and their contents."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.leveldb.formats.table.filter import Filter, may_match
from logwright.codec.leveldb.store.levels import max_bytes_for_level, user_key
from logwright.codec.leveldb.store.version import Descriptor, read_descriptor


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    types = {"key": pa.binary(), "value": pa.binary(), "sequence": pa.int64(), "type": pa.string()}
    names = [name for name in types if any(name in row for row in rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array([r.get(n) for r in rows], types[n]) for n in names], names=names
    )


def read_state(files: dict[str, bytes]) -> Descriptor:
    descriptor = read_descriptor(MemoryDirectory(files))
    assert descriptor.error is None
    return descriptor


def missed_key(filter_: Filter, block_offset: int, hashes: np.ndarray) -> int | None:
    """Return the first key of a data block, by hash, that the filter denies: the reference for `Filter.misses_of`."""
    where = filter_.of(block_offset)
    denied = [] if where is None else [not may_match(filter_.block, *where, int(h)) for h in hashes]
    return denied.index(True) if True in denied else None


def check_levels(files: dict[str, bytes]) -> None:
    """Check what LevelDB relies on: tables at levels above 0 are disjoint, and the next file number and last sequence exceed all others."""
    version = read_state(files).version
    # An added log is found by its number, which the next one exceeds.
    numbers = [
        int("".join(c for c in name if c.isdigit()) or 0) for name in files if not name.endswith(".log")
    ]
    assert (version.next_file_number or 0) > max(numbers)
    for level, tables in enumerate(version.levels):
        for table in tables:
            assert len(files[f"{table.number:06d}.ldb"]) == table.size
        if level:
            for a, b in itertools.pairwise(tables):
                assert user_key(a.largest) < user_key(b.smallest)
            assert sum(table.size for table in tables) < max_bytes_for_level(level)


KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\xff", b"\xff\xff", b"same", b"same\0", b"sam"])


def numbered_rows(*numbers: int, value: bytes = b"v", **columns: Any) -> list[dict[str, Any]]:
    return [{"key": b"%04d" % n, "value": value, **columns} for n in numbers]


def live_rows(path: Path) -> dict[bytes, bytes]:
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def tables(path: Path) -> list[tuple[int, bytes, bytes]]:
    version = read_state(
        {child.name: child.read_bytes() for child in path.iterdir() if child.is_file()}
    ).version
    return [
        (level, user_key(table_file.smallest), user_key(table_file.largest))
        for level, files in enumerate(version.levels)
        for table_file in files
    ]
