"""Blocks that are decompressed together give the same rows as one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec.leveldb.formats.table import layout as block
from logwright.codec.leveldb.formats.table import rows
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.layout import pack_entries
from logwright.codec.leveldb.keys import internal_key
from logwright.readers.stream import Mode
from logwright.roundtrip.specimen import Specimen

pytestmark = pytest.mark.kernel_modes

NAME = "000005.ldb"


def table(count: int, size: int, compression: str) -> Specimen:
    empty = Specimen.of(
        b"", "leveldb.table", NAME, compression=compression, block_size=1024, block_restart_interval=4
    )
    random = np.random.default_rng(3)
    values = [
        random.integers(0, 256, size, np.uint8).tobytes() if n % 50 < 25 else b"word " * (size // 5)
        for n in range(count)
    ]
    table_rows = [{"key": b"key%06d" % n, "value": value, "sequence": n} for n, value in enumerate(values)]
    return empty.with_bytes(empty.encode(pa.Table.from_pylist(table_rows)))


@pytest.mark.parametrize("portion", [1, 5000, 20_000, 32 << 20])
def test_blocks_together_equal_blocks_one_by_one(portion: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(rows, "PORTION", portion)
    specimen = table(600, 100, "snappy")
    kinds = (
        specimen.read("frames").table.filter(pa.compute.field("kind") == "data")["compression"].to_pylist()
    )
    assert {"none", "snappy"} == set(kinds)
    together = specimen.read(columns="*").table
    assert len(together) == 600
    monkeypatch.setattr(rows, "_MANY", 1 << 30)
    assert specimen.read(columns="*").table == together
    monkeypatch.setattr(rows, "_MANY", 1)
    assert specimen.read(columns="*").table == together


@pytest.mark.parametrize(
    "contents", [b"", b"\x80", b"\xff\xff\xff\xff\x0f", b"\x50\x01\x00" + b"x" * 40, b"\x05\x10abc"]
)
def test_undecompressible_block_is_reported_by_itself(contents: bytes) -> None:
    specimen = table(600, 100, "snappy")
    data = specimen.all_bytes()
    frames = specimen.read("frames").table.to_pylist()
    bad = next(frame for frame in frames[20:] if frame["compression"] == "snappy" and frame["size"] > 60)
    place, size = bad["position"], bad["size"]
    stored = contents + bytes(size - len(contents))
    hurt = specimen.with_bytes(
        data[:place] + sealed(stored, block.SNAPPY) + data[place + size + block.TRAILER_SIZE :]
    )
    before = specimen.read(columns="*").table
    after = hurt.read(columns="*", mode=Mode.DROPMALFORMED)
    assert [fault.offset for fault in after.report.faults] == [place]
    assert "snappy" in after.report.faults[0].detail
    assert after.table == before.filter(pa.compute.field("position") != place)


@pytest.mark.parametrize("bad", [False, True])
def test_columns_of_sound_and_damaged_blocks_equal_their_entries(bad: bool) -> None:
    """Entries with a bad internal key are skipped, and a damaged block is read up to the damage."""
    sound = pack_entries(
        [
            (internal_key(b"a", 9, 1), b"x"),
            (internal_key(b"a", 7, 0), b""),
            *([(internal_key(b"ab", 3, 7), b"lost"), (b"short", b"lost")] if bad else []),
            (internal_key(b"abc", (1 << 56) - 1, 1), b""),
            (internal_key(b"b", 0, 0), b"kept"),
        ],
        2,
    )
    torn = sound[:20] + b"\xff" * 9 + sound[29:]
    blocks = [sound, pack_entries([], 2), b"", torn, sound]
    buf = np.frombuffer(b"".join(blocks), np.uint8)
    bounds = np.cumsum([0, *map(len, blocks)])
    starts, ends = bounds[:-1], bounds[1:]
    measures = np.empty(len(blocks) * block.MEASURES, np.int64)
    block.measure_all(buf, starts, ends, 1 << 20, measures)
    measured = np.empty_like(measures)
    count, *totals, wrong = block.measure_some(buf, starts, ends, 1 << 20, 1 << 20, measured)
    assert (count, wrong, measured.tolist()) == (len(blocks), 2, measures.tolist())
    assert totals[0] == measures.reshape(-1, block.MEASURES)[:, block.ENTRIES].sum()
    decoded = rows.Unpacked.many(buf, starts, measures)
    assert decoded.skipped.tolist()[0] == (2 if bad else 0)
    keys = [decoded.key(row) for row in range(decoded.rows)]
    good = [internal_key(b"a", 9, 1), internal_key(b"a", 7, 0), internal_key(b"abc", (1 << 56) - 1, 1), internal_key(b"b", 0, 0)]  # fmt: skip
    assert keys[:4] == keys[-4:] == good
    assert len(keys) == decoded.per_block.sum() > 8
    values = [decoded.values[low:high].tobytes() for low, high in pairwise(decoded.value_ends.tolist())]
    assert values[:4] == values[-4:] == [b"x", b"", b"", b"kept"]


def test_blocks_are_measured_up_to_the_buffer_size() -> None:
    """At least one block; totals are those of the measured blocks."""
    blocks = [pack_entries([(internal_key(b"k%d" % n, 1, 1), b"v" * n)], 2) for n in range(5)]
    bounds = np.cumsum([0, *map(len, blocks)])
    buf, measures = np.frombuffer(b"".join(blocks), np.uint8), np.empty(5 * block.MEASURES, np.int64)
    for most in range(70):
        fit = max(1, sum(sum(10 + n for n in range(count)) <= most for count in range(1, 6)))
        measured = block.measure_some(buf, bounds[:-1], bounds[1:], 1 << 20, most, measures)
        assert tuple(measured) == (fit, fit, 10 * fit, sum(range(fit)), 0)
