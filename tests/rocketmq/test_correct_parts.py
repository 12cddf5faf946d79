"""Flipped bits of messages without the property `__CRC32#`: what their place, their lengths and the checksum of the body prove."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE
from logwright.roundtrip.corrections import DAMAGE, Outcome, by_field, corrections, outcome, outcomes
from logwright.roundtrip.specimen import Specimen
from logwright.roundtrip.specimens import PRIMARY_SAMPLES

PROVED = (
    "total_size",
    "magic_code",
    "body_crc",
    "physical_offset",
    "body_length",
    "topic.length",
    "properties.length",
    "body",
)

SIZES = {
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 8,
    "maxIndexNum": 60,
}


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return next(sample for sample in PRIMARY_SAMPLES if sample.label == "rocketmq.commitlog").specimen()


@pytest.fixture(scope="module")
def second(specimen: Specimen) -> int:
    """The start of the second message."""
    return int(specimen.read("frames", columns="*").table["position"][1].as_py())


def test_every_bit_of_a_field_with_a_second_witness_comes_back(specimen: Specimen) -> None:
    bits = random.Random(3).sample(range(8 * len(specimen.all_bytes())), 400)
    counts = by_field(specimen, bits)
    assert {name for name in PROVED if sum(counts[f"Message.{name}"].values())} == set(PROVED)
    for name in PROVED:
        assert set(counts[f"Message.{name}"]) == {Outcome.RESTORED}, name


@pytest.mark.alike
@pytest.mark.parametrize("kind", DAMAGE[1:])
def test_no_byte_is_corrected_to_another_value(specimen: Specimen, kind: str) -> None:
    assert outcomes(specimen, kind, range(300))[Outcome.WRONG] == 0


def flipped(specimen: Specimen, *bits: int) -> bytes:
    data = bytearray(specimen.all_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_correction_claims_only_the_field_that_is_proved(specimen: Specimen, second: int) -> None:
    """A flipped bit of `flag` has no witness: the correction of the physical offset does not say that the message is right."""
    place, flag = second + MESSAGE.offset("physical_offset"), second + MESSAGE.offset("flag")
    data = flipped(specimen, 8 * place + 60, 8 * flag)
    (correction,), seen = corrections(specimen.with_bytes(data))
    assert seen
    assert (correction.frame, correction.length) == (place, 8)
    assert correction.proved_by == ("its place", "what follows")
    assert outcome(specimen, data, [0, second, len(data)]) is Outcome.PART


def test_two_wrong_fields_are_left(specimen: Specimen, second: int) -> None:
    for name in ("total_size", "magic_code"):
        data = flipped(
            specimen,
            8 * (second + MESSAGE.offset(name)) + 24,
            8 * (second + MESSAGE.offset("physical_offset")) + 60,
        )
        assert outcome(specimen, data) is Outcome.LEFT


def test_message_that_had_the_property_is_proved_by_it_alone() -> None:
    """A flipped bit in the name of the property and one in the body: the checksum of the body alone does not prove the message."""
    specimen = next(
        sample for sample in PRIMARY_SAMPLES if sample.label == "rocketmq.commitlog __CRC32#"
    ).specimen()
    frames = specimen.read("frames", columns="*").table.to_pylist()
    end = frames[9]["position"] + frames[9]["size"]
    data = flipped(specimen, 8 * (end - 20), 8 * (frames[9]["position"] + 90))
    assert outcome(specimen, data) is Outcome.LEFT


def test_store_is_repaired_by_the_bit(tmp_path: Path) -> None:
    rows = [
        {
            "topic": "Orders",
            "queue_id": n % 2,
            "body": b"body %d" % n,
            "store_timestamp_ms": 1_700_000_000_000 + n,
        }
        for n in range(12)
    ]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    (log,) = (tmp_path / "store/commitlog").iterdir()
    before = log.read_bytes()
    position = lw.read(log, view="frames", columns=["position"])["position"][3].as_py()
    data = bytearray(before)
    data[position + 90] ^= 4
    log.write_bytes(data)
    text = "only the body is proved, no checksum covers the rest of the frame"
    assert f"repair corrects 1 bit: {text}" in " ".join(str(lw.verify(tmp_path / "store", **SIZES)).split())
    explained = str(lw.explain(log, at=position + 90))
    assert "Only the body has a checksum without __CRC32#" in explained
    assert f"Flipping bit 2 of byte {position + 90} would fix it" in explained
    report = lw.repair(tmp_path / "store", tmp_path / "out" / "store", **SIZES)
    assert [(entry["offset"], entry["bit"], entry["part"]) for entry in report.corrected or []] == [
        (position + 90, 2, "the body")
    ]
    assert text in " ".join(str(report).split())
    assert (tmp_path / "out/store/commitlog" / log.name).read_bytes() == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_gap_in_a_queue_that_a_correction_fills_is_not_lost(tmp_path: Path, jobs: int) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": b"body %d" % n} for n in range(5)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(b"body 2")] ^= 1
    log.write_bytes(data)
    report = lw.verify(tmp_path / "store", jobs=jobs)
    assert any(fault.rows_lost and not fault.length for _, fault in report.faults)
    assert "loses nothing" in str(report)
    report = lw.repair(tmp_path / "store", tmp_path / "out")
    assert (report.incomplete, report.cut) == (False, [])
    assert lw.read(tmp_path / "out")["body"].to_pylist() == [row["body"] for row in rows]
    report = lw.repair(tmp_path / "store", tmp_path / "less", correct=False)
    assert report.incomplete
