"""Tables built by kernels equal those of the description block by block, for any chunking of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.formats.table.compression import sealed, stored
from logwright.codec.leveldb.formats.table.filter import FilterBuilder, hash_keys
from logwright.codec.leveldb.formats.table.layout import NONE, RESTART_SIZE, handle, pack_entries
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings, footer, metaindex_block
from logwright.codec.leveldb.keys import internal_key, order, separator, successor

pytestmark = pytest.mark.kernel_modes

Pairs = list[tuple[bytes, bytes]]


def described(pairs: Pairs, settings: TableSettings) -> bytes:
    """Build a table in Python as LevelDB's `TableBuilder` does."""
    out = bytearray()
    index: Pairs = []
    filters = FilterBuilder(settings.bloom_bits_per_key)
    pending: tuple[bytes, bytes] | None = None
    block: Pairs = []

    def put(plain: bytes) -> bytes:
        kind, contents = stored(plain, settings.compression, settings.zstd_compression_level)
        place = handle(len(out), len(contents))
        out.extend(sealed(contents, kind))
        return place

    def close() -> None:
        nonlocal pending
        plain = pack_entries(block, settings.block_restart_interval)
        pending = block[-1][0], put(plain)
        users = [key[:-8] for key, _ in block]
        ends = np.cumsum([0, *map(len, users)])
        hashes = np.empty(len(users), np.int64)
        hash_keys(np.frombuffer(b"".join(users) or b"\0", np.uint8), ends, 0, len(users), hashes)
        filters.add(hashes, len(out))
        block.clear()

    for key, value in pairs:
        if pending is not None:
            index.append((separator(pending[0], key), pending[1]))
            pending = None
        block.append((key, value))
        points = -(-len(block) // settings.block_restart_interval)
        entries = len(pack_entries(block, settings.block_restart_interval)) - RESTART_SIZE * (points + 1)
        if entries + RESTART_SIZE * (points + 1) >= settings.block_size:
            close()
    if block:
        close()
    filter_place = None
    if settings.bloom_bits_per_key:
        contents = filters.finish()
        filter_place = handle(len(out), len(contents))
        out.extend(sealed(contents, NONE))
    meta = put(metaindex_block(filter_place, settings.block_restart_interval))
    if pending is not None:
        index.append((successor(pending[0]), pending[1]))
    return bytes(out) + _ended(put, out, meta, index)


def _ended(put: Any, out: bytearray, meta: bytes, index: Pairs) -> bytes:
    before = len(out)
    place = put(pack_entries(index, 1))
    return bytes(out[before:]) + footer(meta, place)


SETTINGS = st.builds(
    TableSettings,
    block_size=st.sampled_from([1, 40, 200, 4096]),
    block_restart_interval=st.sampled_from([1, 2, 5, 16]),
    compression=st.sampled_from(["none", "snappy", "zstd"]),
    bloom_bits_per_key=st.sampled_from([0, 10]),
)
KEYS = st.binary(max_size=6) | st.sampled_from(
    [b"\xff" * 9, b"a" * 20, b"a" * 19 + b"b", b"abc", b"abd", b"ab\xff"]
)
ROWS = st.dictionaries(
    st.tuples(KEYS, st.integers(0, (1 << 56) - 1)), st.none() | st.binary(max_size=40) | st.just(b"v" * 300), max_size=40
)  # fmt: skip


def batch(pairs: Pairs) -> pa.RecordBatch:
    tags = [int.from_bytes(key[-8:], "little") for key, _ in pairs]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key[:-8] for key, _ in pairs], pa.binary()),
            pa.array([value if tag & 1 else None for (_, value), tag in zip(pairs, tags, strict=True)], pa.binary()),
            pa.array([tag >> 8 for tag in tags], pa.int64()),
        ],
        names=["key", "value", "sequence"],
    )  # fmt: skip


def pairs_of(rows: dict[tuple[bytes, int], bytes | None]) -> Pairs:
    internal = [(internal_key(key, seq, int(v is not None)), v or b"") for (key, seq), v in rows.items()]
    return sorted(internal, key=lambda pair: order(pair[0]))


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, SETTINGS, st.integers(1, 30), st.sampled_from([1, 100, 1 << 20]))
def test_tables_equal_the_description(
    rows: dict[tuple[bytes, int], bytes | None], table_settings: TableSettings, step: int, portion: int
) -> None:
    pairs = pairs_of(rows)
    builder = TableBuilder(table_settings)
    data = b""
    before = encode._PORTION
    encode._PORTION = portion
    try:
        for at in range(0, len(pairs), step):
            data += builder.add(batch(pairs[at : at + step]))[0]
            assert builder.size == len(data)
        data += builder.finish()
    finally:
        encode._PORTION = before
    assert data == described(pairs, table_settings)
    assert builder.rows == len(pairs)
    assert builder.size == len(data)
    if pairs:
        assert (builder.smallest, builder.largest) == (pairs[0][0], pairs[-1][0])
        assert builder.largest_sequence == max(sequence for _, sequence in rows)


@settings(max_examples=examples(40), deadline=None)
@given(ROWS, SETTINGS, st.integers(1, 30), st.integers(1, 900))
def test_tables_of_limited_size(
    rows: dict[tuple[bytes, int], bytes | None], table_settings: TableSettings, step: int, limit: int
) -> None:
    """A table is full with the block that reaches the limit; the next one starts with the following row."""
    pairs = pairs_of(rows)
    at = 0
    while at < len(pairs):
        builder = TableBuilder(table_settings)
        data, first = b"", at
        while at < len(pairs) and builder.size < limit:
            part, taken = builder.add(batch(pairs[at : at + step]), limit)
            data, at = data + part, at + taken
            assert taken == min(step, len(pairs) - at + taken) or builder.size >= limit
        data += builder.finish()
        assert data == described(pairs[first:at], table_settings)
        assert builder.rows == at - first


def test_index_of_an_unknown_comparator_holds_complete_keys() -> None:
    pairs = [(internal_key(key, 5, 1), b"v" * 50) for key in (b"b", b"abc", b"abd", b"z", b"a")]
    builder = TableBuilder(TableSettings(block_size=1, compression="none", comparator="test.Other"))
    data = builder.add(batch(pairs))[0] + builder.finish()
    assert all(data.count(key) == 2 for key, _ in pairs), "each key whole in its block and in the index"
