"""Flipped bits of batches next to gaps that compaction left: the index or the producer's sequence numbers prove the offset. Without them,
everything else is corrected, and the report says what is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@pytest.mark.parametrize("change", [wrong_offset, wrong_entry])
def test_batch_with_another_offset_than_the_index_has_is_not_corrected(
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


def test_checksum_proves_a_batch_next_to_a_gap_but_not_its_offset(partition: Path) -> None:
    log = next(partition.glob("*.log"))
    before = log.read_bytes()
    position, _ = batch_at(log, 15)
    log.with_suffix(".index").unlink()
    flip(log, 8 * (position + BODY) + 2)
    text = "only what follows the leader epoch is proved, no checksum covers the rest of the frame"
    assert text in " ".join(str(lw.verify(partition)).split())
    report = lw.repair(partition, partition.parent / "out" / "orders-0")
    (correction,) = report.corrected or []
    assert (correction["offset"], correction["frame"]) == (position + BODY, position + 16)
    assert text in " ".join(str(report).split())
    assert (partition.parent / "out" / "orders-0" / log.name).read_bytes() == before


def _specimen(note: str = "compacted idempotent") -> Specimen:
    return next(sample for sample in PRIMARY_SAMPLES if sample.label == f"kafka.log 500 {note}").specimen()


def test_every_bit_under_a_checksum_comes_back_next_to_gaps() -> None:
    """So does every bit of the length. Those of the offset and the leader epoch come back if the batches around it prove them."""
    specimen = _specimen("compacted")
    for frame in specimen.read("frames", columns="*").table.to_pylist():
        for place in (*range(8, 12), 16, 18, 21, 40, 60, BODY, frame["size"] - 1):
            assert restored(specimen, frame["position"] + place) is Outcome.RESTORED, (frame, place)


def test_wrong_offset_within_a_gap_is_left_as_it_is_stored() -> None:
    """It contradicts nothing. The correction of the records does not claim it."""
    specimen = _specimen("compacted")
    frames = specimen.read("frames", columns="*").table.to_pylist()
    seen = []
    for before, frame, after in zip(frames, frames[1:], frames[2:], strict=False):
        step = 1 - 2 * (frame["base_offset"] & 1)
        fits = (
            before["last_offset"] < frame["base_offset"] + step
            and frame["last_offset"] + step < after["base_offset"]
        )
        places = frame["position"] + 7, frame["position"] + BODY
        starts = [frame["position"], after["position"]]
        assert restored(specimen, *places, starts=starts) is (Outcome.PART if fits else Outcome.LEFT)
        seen.append(fits)
    assert {*seen} == {True, False}


def restored(specimen: Specimen, *places: int, starts: Sequence[int] = ()) -> Outcome:
    """Return the outcome if the lowest bits of some bytes are flipped. `starts` as of `outcome`."""
    data = bytearray(specimen.all_bytes())
    for place in places:
        data[place] ^= 1
    return outcome(specimen, bytes(data), starts)


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


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("offset", "copied"), [(9, 8), (8, 9), (10, 8)])
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_copy_of_a_batch_nearby_is_not_corrected_to_the_offset_of_the_batch_it_overwrote(
    offset: int, copied: int, magic: int, tmp_path: Path
) -> None:
    """The two offsets differ in one bit, but no bit is flipped: its rows are those of another batch."""
    path = tmp_path / "orders-0"
    rows = [{"offset": n, "value": b"%04d" % n * 25, "timestamp": n} for n in range(16)]
    lw.write(rows, path, "kafka.partition", magic=magic, **{"batch.size": 1})
    log = next(path.glob("*.log"))
    data = bytearray(log.read_bytes())
    places = [frame["position"] for frame in lw.read(log, view="frames").to_pylist()]
    size = places[1]
    assert places == [size * n for n in range(16)]
    data[size * offset : size * (offset + 1)] = data[size * copied : size * (copied + 1)]
    log.write_bytes(data)
    lw.repair(path, tmp_path / "out" / "orders-0")
    kept = lw.read(tmp_path / "out" / "orders-0", columns=["offset", "value"]).to_pylist()
    expected = [{"offset": n, "value": row["value"]} for n, row in enumerate(rows) if n != offset]
    assert kept == expected
