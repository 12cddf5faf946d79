"""The promises about damage and failing disks, on files that brokers wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import kafka_log
import pytest
from failing_disk import FailingDisk, disk, forget_failures
from kafka_golden import CASES

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import DamageError, UnsupportedError
from logwright.codec.kafka.names import segment_name
from logwright.readers.stream import Mode
from logwright.roundtrip import fuzz, trust
from logwright.roundtrip.compare import plain_times
from logwright.roundtrip.specimen import Read, Specimen, attempt

__all__ = ["disk"]

MOST = 3000
"""Number of bytes of a file that are damaged one by one."""
QUICK = ("v2_txn_commit_abort", "v2_ts_create")


def golden(suffix: str) -> list[Path]:
    """Return small sound files, of brokers and others, equal contents once."""
    by_content: dict[bytes, Path] = {}
    for case in CASES.values():
        if case.kind in ("healthy", "crafted"):
            for path in case.files():
                if path.suffix == suffix and 0 < path.stat().st_size <= MOST:
                    by_content.setdefault(path.read_bytes(), path)
    return list(by_content.values())


def case_of(path: Path) -> str:
    return f"{path.parent.parent.parent.name}-{path.name}"


LOGS = golden(".log")


def sound(path: Path) -> bool:
    read = attempt(Specimen.of(path), Mode.FAILFAST)
    return isinstance(read, Read) and not read.report.faults


@pytest.mark.extended
@pytest.mark.parametrize(
    "path",
    [log for log in LOGS if case_of(log).split("-")[0] in QUICK and log.stat().st_size < 200],
    ids=case_of,
)
def test_every_flip_and_cut_of_a_golden_log_is_tried(path: Path) -> None:
    assert trust.damaged(path.read_bytes(), "kafka.log", path.name).cuts == path.stat().st_size


@pytest.mark.nightly
@pytest.mark.parametrize("path", LOGS, ids=case_of)
def test_flips_and_cuts_of_all_files(path: Path) -> None:
    if not sound(path):
        pytest.skip("it is damaged as it is")
    assert trust.damaged(path.read_bytes(), "kafka.log", path.name).cuts == path.stat().st_size


@pytest.mark.alike
@pytest.mark.parametrize("codec", ["kafka.log", "kafka.producer_snapshot", "kafka.txnindex"])
def test_mutated_files_of_brokers(codec: str) -> None:
    assert fuzz.fuzz(codec, count=60, seed=5, more=pool(codec)).mutations == 60


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("codec", ["kafka.log", "kafka.producer_snapshot", "kafka.txnindex"])
def test_mutated_files_of_brokers_for_a_minute(codec: str, seed: int) -> None:
    assert fuzz.fuzz(codec, seconds=60, seed=seed, more=pool(codec)).mutations > 100


def pool(codec: str) -> list[bytes]:
    suffix = {"kafka.log": ".log", "kafka.producer_snapshot": ".snapshot", "kafka.txnindex": ".txnindex"}[
        codec
    ]
    return [path.read_bytes() for path in golden(suffix)]


# A disk with one bad sector


def rows(path: Path, view: str) -> tuple[list[str], bool]:
    frames = lw.scan(path, view=view, mode="DROPMALFORMED")
    # Times as numbers, since Python's datetime ends with the year 9999.
    return [repr(row) for row in plain_times(frames.to_table()).to_pylist()], frames.report.ok


def every_sector(disk: FailingDisk, partition: Path, view: str, step: int) -> int:
    """Check with each sector of each log unreadable in turn: missing rows are reported, and no row is invented."""
    expected, _ = rows(partition, view)
    known, tried = set(expected), 0
    for log in sorted(partition.glob("*.log")):
        for at in range(0, log.stat().st_size, step):
            forget_failures()
            disk.bad = {log.name: [(at, at + 512)]}
            rows_read, ok = rows(partition, view)
            assert not ok
            # Without its marker a transaction may seem open, and aborted rows may appear.
            if view != "read_committed":
                assert len(rows_read) <= len(expected)
                assert set(rows_read) <= known
            with pytest.raises(DamageError, match="cannot read"):
                lw.read(partition, view=view)
            tried += 1
    disk.bad = {}
    return tried


@pytest.mark.parametrize("view", ["log", "read_uncommitted", "read_committed"])
def test_bad_sector_of_a_partition(disk: FailingDisk, tmp_path: Path, view: str) -> None:
    place = tmp_path / "orders-0"
    shutil.copytree(CASES["v2_txn_interleaved"].partition, place)
    assert every_sector(disk, place, view, 4096) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", [case.name for case in CASES.values() if case.kind == "healthy"])
def test_bad_sectors_of_all_partitions(disk: FailingDisk, tmp_path: Path, name: str) -> None:
    for partition in CASES[name].partitions:
        place = tmp_path / partition.name
        shutil.copytree(partition, place)
        try:
            expected, _ = rows(place, "log")
        except UnsupportedError:
            pytest.skip("of a message format that is not read yet")
        if expected:
            every_sector(disk, place, "log", 512)


def test_registered_codecs_are_covered() -> None:
    assert {"kafka.log", "kafka.producer_snapshot", "kafka.txnindex"} <= {
        codec.name for codec in registry.codecs()
    }


def test_largest_offset_is_read() -> None:
    """No broker assigns it, but base_offset is not covered by the checksum. Found by the fuzzer."""
    data = kafka_log.batch((1 << 63) - 1, [kafka_log.record(value=b"last")])
    name = segment_name((1 << 63) - 1, ".log")
    for file_name in (kafka_log.NAME, name):
        fuzz.fuzz_one("kafka.log", data, file_name)
    assert Specimen.of(data, "kafka.log", name).read().table["offset"].to_pylist() == [(1 << 63) - 1]
    # This offset is impossible in the segment that begins at 0: the record is not returned.
    read = Specimen.of(data, "kafka.log", kafka_log.NAME).read()
    assert (read.table.num_rows, read.report.errors) == (0, 1)
