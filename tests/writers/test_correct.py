"""A single flipped bit is corrected where checksums and other evidence prove it, and nothing else is."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.engine import correct
from logwright.codec.fault import DamageWarning
from logwright.roundtrip.corrections import Outcome, by_field, corrections, outcome, outcomes
from logwright.roundtrip.corrections import damaged as flipped
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimens import PRIMARY_SAMPLES

STORES: dict[str, tuple[str, dict[str, Any]]] = {
    "kafka.partition": (".log", {}),
    "leveldb.db": (".ldb", {}),
}


@pytest.fixture(scope="module", params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and the name of its primary file."""
    layout: str = request.param
    path = tmp_path_factory.mktemp("stores") / "store-0"
    lw.generate(layout, path, rows=300, seed=11)
    suffix, _ = STORES[layout]
    primary = max(
        (file for file in path.iterdir() if file.suffix == suffix), key=lambda file: file.stat().st_size
    )
    return path, primary.relative_to(path)


LEAST = {
    "kafka.log 500 none": 59, "kafka.log 500 compacted idempotent": 59,
    "kafka.log 0 magic": 60, "leveldb.table 400 none 10": 60, "leveldb.log 4": 60,
    "leveldb.table 400 snappy 10": 60, "leveldb.manifest": 60, "zookeeper.txnlog nested": 25, "zookeeper.snapshot": 40,
    "rocketmq.commitlog __CRC32#": 60, "bookkeeper.entrylog CRC32C": 40, "bookkeeper.journal CRC32": 45,
}  # fmt: skip
"""Of 60 files with one flipped bit, those that come back. The others have it in bytes that nothing proves."""


@pytest.mark.alike
@pytest.mark.parametrize("label", sorted(LEAST))
def test_single_flipped_bits_of_primary_files_come_back(label: str) -> None:
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == label).specimen()
    bits = random.Random(label).sample(range(8 * len(specimen.all_bytes())), 60)
    counts = sum(by_field(specimen, bits).values(), Counter())
    assert counts[Outcome.RESTORED] >= LEAST[label]
    assert counts[Outcome.WRONG] == 0


@pytest.mark.parametrize("label", ["leveldb.table 400 none 10", "leveldb.table 400 snappy 10"])
def test_every_bit_of_a_footer_comes_back(label: str) -> None:
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == label).specimen()
    size = 8 * len(specimen.all_bytes())
    counts = sum(by_field(specimen, range(size - 8 * 48, size, 3)).values(), Counter())
    assert counts == {Outcome.RESTORED: 8 * 48 // 3}


def test_offset_is_not_corrected_to_follow_two_wrong_ones() -> None:
    """The same bit of two adjacent messages is flipped, so that they follow each other, and the next message follows neither."""
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == "kafka.log 1 magic").specimen()
    data = bytearray(specimen.all_bytes())
    for place in (243, 277):
        data[place] ^= 1
    assert outcome(specimen, bytes(data)) is Outcome.LEFT


SURPRISES = [
    ("kafka.log 500 compacted", "2 bits", 309_951),
    ("kafka.log 500 compacted", "8 bits", 309_724),
    ("zookeeper.snapshot gz", "zeroed", 303_760),
]


@pytest.mark.parametrize(("label", "kind", "seed"), SURPRISES)
def test_rare_damage_is_not_corrected_to_something_else(label: str, kind: str, seed: int) -> None:
    """The offset of a damaged batch does not show that the one before it is wrong; nothing shows the last byte of a header of gzip."""
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == label).specimen()
    counts = outcomes(specimen, kind, [seed])
    assert counts[Outcome.WRONG] == 0
    assert counts[Outcome.UNSEEN] == 0


@pytest.mark.parametrize("seed", [304_251, 305_563])
def test_type_that_makes_wrong_bytes_parse_proves_no_bit(seed: int) -> None:
    """Two wrong bits of a transaction in a multi, of which one is wrong in its length. With another type the bytes parse."""
    specimen = next(
        sample for sample in PRIMARY_SAMPLES if sample.label == "zookeeper.txnlog nested"
    ).specimen()
    assert outcome(specimen, flipped(specimen.all_bytes(), "2 bits", seed)) is Outcome.LEFT


def test_later_time_of_creation_proves_no_acl() -> None:
    """Two wrong bits of a node, one of them in its ACL number. A node that was created later may have that number."""
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == "zookeeper.snapshot").specimen()
    for seed in (7_001_196, 7_001_270, 7_002_162):
        assert outcome(specimen, flipped(specimen.all_bytes(), "2 bits", seed)) is Outcome.LEFT


def test_crc_of_a_long_range_does_not_prove_a_bit() -> None:
    """Three flipped bits of a record of 32 KiB, whose checksum is that of a record with one flipped bit elsewhere."""
    specimen = next(sample for sample in PRIMARY_SAMPLES if sample.label == "leveldb.log 1").specimen()
    assert outcome(specimen, flipped(specimen.all_bytes(), "3 bits", 300_889)) is Outcome.LEFT


@pytest.mark.parametrize(("compression", "corrected"), [("none", 0), ("gzip", 1)])
def test_long_batch_is_corrected_if_it_is_compressed(
    tmp_path: Path, compression: str, corrected: int
) -> None:
    rows = [{"value": random.Random(n).randbytes(9000), "timestamp": 1} for n in range(9)]
    path = tmp_path / "orders-0"
    options: dict[str, Any] = {"batch.size": 40_000, "compression.type": compression}
    lw.write(rows, path, "kafka.partition", **options)
    log = next(path.glob("*.log"))
    flip(log, 8 * 20_000 + 3)
    report = lw.verify(path)
    assert not report.ok
    assert len(report["files"][0].get("corrections") or []) == corrected


def flip(path: Path, *bits: int) -> None:
    data = bytearray(path.read_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def damaged(store: tuple[Path, Path], tmp_path: Path, *bits: int) -> Path:
    shutil.rmtree(tmp_path / "store-0", ignore_errors=True)
    path: Path = shutil.copytree(store[0], tmp_path / "store-0")
    flip(path / store[1], *bits)
    return path


def frame_of(store: tuple[Path, Path]) -> tuple[int, int]:
    """Return where the second frame of the primary file starts and ends."""
    frames = lw.read(store[0] / store[1], view="frames", columns=["position", "size"]).to_pylist()
    return frames[1]["position"], frames[1]["position"] + frames[1]["size"]


@pytest.mark.parametrize("seed", range(4))
def test_single_flipped_bit_comes_back_byte_for_byte(
    store: tuple[Path, Path], tmp_path: Path, seed: int
) -> None:
    start, stop = frame_of(store)
    bit = random.Random(seed).randrange(8 * start, 8 * stop)
    path = damaged(store, tmp_path, bit)
    report = lw.repair(path, tmp_path / "out" / "store-0")
    assert not report.incomplete
    assert report.corrected is not None
    assert [(entry["offset"], entry["bit"]) for entry in report.corrected] == [(bit // 8, bit % 8)]
    for file in store[0].iterdir():
        assert (tmp_path / "out" / "store-0" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("count", [2, 3, 8])
def test_several_flipped_bits_of_a_frame_are_not_corrected(
    store: tuple[Path, Path], tmp_path: Path, count: int
) -> None:
    start, stop = frame_of(store)
    bits = random.Random(count).sample(range(8 * start, 8 * stop), count)
    report = lw.repair(damaged(store, tmp_path, *bits), tmp_path / "out" / "store-0")
    assert report.corrected == []
    assert report.incomplete


def test_one_bit_in_each_of_two_frames_is_corrected(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, stop = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200, 8 * stop + 203)
    report = lw.repair(path, tmp_path / "out" / "store-0")
    assert len(report.corrected or []) == 2
    assert (tmp_path / "out" / "store-0" / store[1]).read_bytes() == (store[0] / store[1]).read_bytes()


def test_nothing_is_corrected_on_request(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, _ = frame_of(store)
    report = lw.repair(damaged(store, tmp_path, 8 * start + 200), tmp_path / "out" / "store-0", correct=False)
    assert report.corrected is None
    assert report.incomplete


def test_backup_of_a_correction_in_place_has_the_original_bytes(
    store: tuple[Path, Path], tmp_path: Path
) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    before = (path / store[1]).read_bytes()
    lw.repair(path, in_place=True, backup=tmp_path / "saved")
    assert (path / store[1]).read_bytes() == (store[0] / store[1]).read_bytes()
    assert (tmp_path / "saved" / store[1]).read_bytes() == before


def test_verify_says_what_repair_would_correct(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, _ = frame_of(store)
    report = lw.verify(damaged(store, tmp_path, 8 * start + 200))
    assert not report.ok
    (file,) = [file for file in report["files"] if file.get("corrections")]
    assert [(entry["offset"], entry["bit"]) for entry in file["corrections"]] == [(start + 25, 0)]
    assert "loses nothing" in str(report)


def test_single_file_is_corrected(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    lw.repair(path / store[1], tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == (store[0] / store[1]).read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_corrected_rows_are_read_with_a_warning(store: tuple[Path, Path], tmp_path: Path, jobs: int) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    expected: pa.Table = lw.read(store[0])
    with pytest.warns(DamageWarning, match="corrected: 1 bit at byte"):
        assert lw.read(path, correct=True, jobs=jobs).equals(expected)
    assert (path / store[1]).read_bytes() != (store[0] / store[1]).read_bytes()


def test_permissive_reading_names_the_flipped_bit(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    with pytest.warns(DamageWarning, match=f"bit 0 of byte {start + 25} is flipped"):
        rows = lw.read(path, mode="PERMISSIVE")
    assert rows["_corrupt_offset"].drop_null().to_pylist() == [start]


def test_strategy_system_corrects_nothing(store: tuple[Path, Path], tmp_path: Path) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    report = lw.repair(path, tmp_path / "out" / "store-0", strategy="system")
    assert report.corrected is None


def test_report_of_a_repair_without_corrections_calls_no_row_restored(
    store: tuple[Path, Path], tmp_path: Path
) -> None:
    start, _ = frame_of(store)
    path = damaged(store, tmp_path, 8 * start + 200)
    assert "restored" in str(lw.repair(path, tmp_path / "corrected" / "store-0"))
    for name, options in {"left": {"correct": False}, "system": {"strategy": "system"}}.items():
        report = lw.repair(path, tmp_path / name / "store-0", **options)
        assert "restored" not in str(report)


def test_frame_that_is_damaged_in_both_copies_is_combined(store: tuple[Path, Path], tmp_path: Path) -> None:
    if store[1].suffix != ".log":
        pytest.skip("a LevelDB database has no replicas")
    start, stop = frame_of(store)
    copies = []
    for n, at in enumerate((start + 70, stop - 90)):
        copies.append(Path(shutil.copytree(store[0], tmp_path / str(n) / "store-0")))
        data = bytearray((copies[n] / store[1]).read_bytes())
        data[at : at + 40] = bytes(byte ^ 0x55 for byte in data[at : at + 40])
        (copies[n] / store[1]).write_bytes(data)
    report = lw.repair([*copies], tmp_path / "out" / "store-0")
    assert not report.incomplete
    assert "combined: " in str(report)
    assert (tmp_path / "out" / "store-0" / store[1]).read_bytes() == (store[0] / store[1]).read_bytes()


_BODY = random.Random(5).randbytes(30_000)
LONG_CRC32 = {
    "kafka magic 0": Sample("kafka.log", f"{0:020d}.log", [{"offset": n, "value": _BODY} for n in range(3)], {"magic": 0}, {"next_base": 3}),
    "kafka magic 1": Sample(
        "kafka.log", f"{0:020d}.log", [{"offset": n, "value": _BODY, "timestamp": 1} for n in range(3)], {"magic": 1}, {"next_base": 3}
    ),
    "bookkeeper": Sample(
        "bookkeeper.entrylog",
        "1f.log",
        [{"ledger_id": 1, "entry_id": n, "last_add_confirmed": n - 1, "length": 30_000 * (n + 1), "payload": _BODY, "digest_type": "CRC32"}
         for n in range(3)],
    ),
    "rocketmq": Sample(
        "rocketmq.commitlog",
        f"{0:020d}",
        [{"topic": "Orders", "queue_offset": n, "body": _BODY, "store_timestamp_ms": 1_700_000_000_000,
          "properties": [{"key": "__CRC32#", "value": "0" * 10}]} for n in range(3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LONG_CRC32))
def test_long_crc32_proves_no_bit(name: str) -> None:
    """Beyond 11 KiB a CRC-32 takes some pairs of flipped bits for one bit elsewhere."""
    specimen = LONG_CRC32[name].specimen()
    right = specimen.all_bytes()
    for count in (1, 2):
        data = bytearray(right)
        for bit in random.Random(name).sample(range(8 * 50_000, 8 * 50_000 + 512), count):
            data[bit // 8] ^= 1 << bit % 8
        corrected, seen = corrections(specimen.with_bytes(bytes(data)))
        assert seen
        assert corrected == [], count


def test_number_of_trials_is_limited_for_small_frames_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches in descending order: each may have a flipped bit in its offset. Without the limit there are 97 trials."""
    path = tmp_path / "orders-0"
    lw.write([{"value": b"%d" % n} for n in range(40)], path, "kafka.partition", **{"batch.size": 1})
    log = path / f"{0:020d}.log"
    data, frames = log.read_bytes(), lw.read(log, view="frames").to_pylist()
    log.write_bytes(b"".join(data[frame["position"] :][: frame["size"]] for frame in reversed(frames)))
    trials = Counter[str]()

    def counted(*args: Any) -> Any:
        trials["made"] += 1
        return scan(*args)

    scan = correct.Corrector._scan
    monkeypatch.setattr(correct.Corrector, "_scan", counted)
    monkeypatch.setattr(correct, "_FREE", 20 << 14)
    lw.verify(path)
    assert 20 <= trials["made"] < 50
