"""The promises of damage and failing disks, on files that brokers wrote."""

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
"""Bytes of a file each of whose bytes is damaged."""
QUICK = ("v2_txn_commit_abort", "v2_ts_create")


def golden(suffix: str) -> list[Path]:
    """Small files of brokers and of others that are sound, each content once."""
    found: dict[bytes, Path] = {}
    for case in CASES.values():
        if case.kind in ("healthy", "crafted"):
            for path in case.files():
                if path.suffix == suffix and 0 < path.stat().st_size <= MOST:
                    found.setdefault(path.read_bytes(), path)
    return list(found.values())


def case_of(path: Path) -> str:
    return f"{path.parent.parent.parent.name}-{path.name}"


LOGS = golden(".log")


def sound(path: Path) -> bool:
    read = attempt(Specimen.of(path), Mode.FAILFAST)
    return isinstance(read, Read) and not read.report.faults


@pytest.mark.extended
@pytest.mark.parametrize(
    "path",
    [one for one in LOGS if case_of(one).split("-")[0] in QUICK and one.stat().st_size < 200],
    ids=case_of,
)
def test_flips_and_cuts(path: Path) -> None:
    assert trust.damaged(path.read_bytes(), "kafka.log", path.name).cuts == path.stat().st_size


@pytest.mark.nightly
@pytest.mark.parametrize("path", LOGS, ids=case_of)
def test_flips_and_cuts_of_all(path: Path) -> None:
    if not sound(path):
        pytest.skip("it is damaged as it is")
    assert trust.damaged(path.read_bytes(), "kafka.log", path.name).cuts == path.stat().st_size


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
    found = lw.scan(path, view=view, mode="DROPMALFORMED")
    # Times as numbers, since Python's end with the year 9999.
    return [repr(row) for row in plain_times(found.to_table()).to_pylist()], found.report.ok


def every_sector(disk: FailingDisk, partition: Path, view: str, step: int) -> int:
    """With each sector of each log bad in turn: what is not given is said, and nothing is given that is not there."""
    whole, _ = rows(partition, view)
    known, tried = set(whole), 0
    for log in sorted(partition.glob("*.log")):
        for at in range(0, log.stat().st_size, step):
            forget_failures()
            disk.bad = {log.name: [(at, at + 512)]}
            found, ok = rows(partition, view)
            assert not ok
            # With a marker lost a transaction may be open that was not, and what was aborted may be seen.
            if view != "read_committed":
                assert len(found) <= len(whole)
                assert set(found) <= known
            with pytest.raises(DamageError, match="can't read"):
                lw.read(partition, view=view)
            tried += 1
    disk.bad = {}
    return tried


@pytest.mark.parametrize("view", ["log", "read_uncommitted", "read_committed"])
def test_a_bad_sector_of_a_partition(disk: FailingDisk, tmp_path: Path, view: str) -> None:
    place = tmp_path / "orders-0"
    shutil.copytree(CASES["v2_txn_interleaved"].partition, place)
    assert every_sector(disk, place, view, 4096) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", [case.name for case in CASES.values() if case.kind == "healthy"])
def test_bad_sectors_of_all(disk: FailingDisk, tmp_path: Path, name: str) -> None:
    for partition in CASES[name].partitions:
        place = tmp_path / partition.name
        shutil.copytree(partition, place)
        try:
            some, _ = rows(place, "log")
        except UnsupportedError:
            pytest.skip("of a message format that is not read yet")
        if some:
            every_sector(disk, place, "log", 512)


def test_the_registry_has_what_is_tried_here() -> None:
    assert {"kafka.log", "kafka.producer_snapshot", "kafka.txnindex"} <= {
        one.name for one in registry.codecs()
    }


def test_the_largest_offset_of_all_is_read() -> None:
    """No broker gives it, but base_offset is not covered by the checksum. Found by the fuzzer."""
    data = kafka_log.batch((1 << 63) - 1, [kafka_log.record(value=b"last")])
    name = segment_name((1 << 63) - 1, ".log")
    for one in (kafka_log.NAME, name):
        fuzz.fuzz_one("kafka.log", data, one)
    assert Specimen.of(data, "kafka.log", name).read().table["offset"].to_pylist() == [(1 << 63) - 1]
    # In the segment that begins at 0 this offset cannot be: its record is not given.
    read = Specimen.of(data, "kafka.log", kafka_log.NAME).read()
    assert (read.table.num_rows, read.report.errors) == (0, 1)
