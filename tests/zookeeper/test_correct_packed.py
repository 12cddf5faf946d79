"""A flipped bit of a compressed snapshot is corrected if the file is then exactly what the compressor makes of the right content."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import logwright as lw
from logwright.roundtrip.corrections import Outcome, by_field, corrections, damaged, outcome
from logwright.roundtrip.specimens import SAMPLES

_HARMLESS = range(4, 10)
"""Bytes of the header of gzip that nothing reads."""


@pytest.mark.parametrize(("name", "least"), [("snapshot.7.gz", 12), ("snapshot.7.snappy", 3)])
def test_flipped_bits_of_compressed_snapshots_come_back(name: str, least: int) -> None:
    specimen = next(sample for sample in SAMPLES if sample.name == name).specimen()
    places = [place for place in range(len(specimen.all_bytes())) if place not in _HARMLESS]
    bits = [8 * place + place % 8 for place in random.Random(name).sample(places, 12)]
    counts = sum(by_field(specimen, bits).values(), Counter())
    assert counts[Outcome.RESTORED] >= least
    assert counts[Outcome.WRONG] == 0


@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [("snapshot.7.gz", "2 bits", 63), ("snapshot.7.gz", "2 bits", 158), ("snapshot.7.snappy", "2 bits", 20)],
)
def test_bit_is_not_corrected_if_another_does_not_change_the_content(name: str, kind: str, seed: int) -> None:
    """One of the two bits is in a copy of equal bytes, or behind the end of the stream: the content is right with both of its values."""
    specimen = next(sample for sample in SAMPLES if sample.name == name).specimen()
    assert outcome(specimen, damaged(specimen.all_bytes(), kind, seed)) is Outcome.LEFT


def test_undamaged_compressed_snapshot_is_not_searched() -> None:
    specimen = next(sample for sample in SAMPLES if sample.name == "snapshot.7.gz").specimen()
    assert corrections(specimen) == ([], False)


def test_corrected_snapshot_is_repaired_in_its_directory(tmp_path: Path) -> None:
    rows = [{"path": f"/n{n}", "data": b"node %d" % n, "czxid": n + 1, "mzxid": n + 1} for n in range(9)]
    path = tmp_path / "data"
    options = {"write_as": "snapshot", "snapshot.compression.method": "gz"}
    lw.write(rows, path, "zookeeper.datadir", **options)
    (file,) = path.rglob("snapshot.*.gz")
    before = file.read_bytes()
    data = bytearray(before)
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    report = lw.repair(path, tmp_path / "out")
    assert "corrected: 1 bit at byte" in str(report)
    assert (tmp_path / "out" / file.relative_to(path)).read_bytes() == before
