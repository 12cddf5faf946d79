"""Flipped bits of batches next to gaps that compaction left: the index or the producer's sequence numbers prove the offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.roundtrip.corrections import Outcome, outcome
from logwright.roundtrip.specimen import Specimen
from logwright.roundtrip.specimens import PRIMARY_SAMPLES

BODY = 70
"""A byte of the records of a batch."""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of batches of 500 bytes with an index entry for each but the first. Offset 16 is missing, between two batches."""
    rows = [
        {"offset": n + (n >= 16), "value": b"%04d" % n * 25, "timestamp": 1_700_000_000_000 + n}
        for n in range(32)
    ]
    path = tmp_path / "orders-0"
    lw.write(rows, path, "kafka.partition", **{"batch.size": 530, "index.interval.bytes": 1})
    return path


def batch_at(log: Path, offset: int) -> tuple[int, int]:
    """Return the position of the batch with an offset, and its base offset."""
    frames = lw.read(log, view="frames", columns=["position", "base_offset", "last_offset"]).to_pylist()
    return next(
        (frame["position"], frame["base_offset"])
        for frame in frames
        if frame["base_offset"] <= offset <= frame["last_offset"]
    )


def flip(path: Path, *bits: int) -> None:
    data = bytearray(path.read_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("offset", [15, 17])
def test_index_proves_the_offset_of_a_batch_next_to_a_gap(partition: Path, offset: int) -> None:
    log = next(partition.glob("*.log"))
    before = log.read_bytes()
    position, _ = batch_at(log, offset)
    flip(log, 8 * (position + BODY) + 2)
    report = lw.repair(partition, partition.parent / "out" / "orders-0")
    assert [entry["offset"] for entry in report.corrected or []] == [position + BODY]
    assert (partition.parent / "out" / "orders-0" / log.name).read_bytes() == before


def wrong_offset(path: Path, position: int) -> None:
    """Flip the lowest bit of the base offset, which stays within the gap."""
    flip(path, 8 * (position + 7))


def wrong_entry(path: Path, position: int) -> None:
    """Flip a bit of each offset in the index."""
    index = path.with_suffix(".index")
    flip(index, *(8 * (8 * n + 3) for n in range(index.stat().st_size // 8)))


def no_index(path: Path, position: int) -> None:
    path.with_suffix(".index").unlink()


@pytest.mark.parametrize("change", [wrong_offset, wrong_entry, no_index])
def test_batch_next_to_a_gap_is_not_corrected_unless_the_index_has_its_offset(
    partition: Path, change: Callable[[Path, int], Any]
) -> None:
    """The base offset may be wrong too, as in the first case."""
    log = next(partition.glob("*.log"))
    position, base = batch_at(log, 15)
    assert base % 2 == 0
    flip(log, 8 * (position + BODY) + 2)
    change(log, position)
    report = lw.verify(partition)
    file = next(file for file in report["files"] if file["path"].endswith(log.name))
    assert not file.get("corrections")


def _specimen() -> Specimen:
    return next(
        sample for sample in PRIMARY_SAMPLES if sample.label == "kafka.log 500 compacted idempotent"
    ).specimen()


def restored(specimen: Specimen, *places: int) -> Outcome:
    """Return the outcome if the lowest bits of some bytes are flipped."""
    data = bytearray(specimen.all_bytes())
    for place in places:
        data[place] ^= 1
    return outcome(specimen, bytes(data))


def test_sequence_numbers_prove_the_offset_of_a_batch_next_to_a_gap() -> None:
    specimen = _specimen()
    frames = specimen.read("frames", columns="*").table.to_pylist()
    moved = 0
    for before, frame, after in zip(frames, frames[1:], frames[2:], strict=False):
        assert restored(specimen, frame["position"] + BODY) is Outcome.RESTORED
        step = 1 - 2 * (frame["base_offset"] & 1)
        if (
            before["last_offset"] < frame["base_offset"] + step
            and frame["last_offset"] + step < after["base_offset"]
        ):
            assert restored(specimen, frame["position"] + 7) is Outcome.RESTORED
            moved += 1
    assert moved


def test_batch_with_a_wrong_bit_in_its_records_and_its_offset_is_not_corrected() -> None:
    specimen = _specimen()
    for frame in specimen.read("frames", columns="*").table.to_pylist():
        assert restored(specimen, frame["position"] + 7, frame["position"] + BODY) is Outcome.LEFT
