"""Specimens of logs."""

from __future__ import annotations

from typing import Any

from leveldb_records import batch, written

from logwright.codec.fault import Fault
from logwright.roundtrip.specimen import Specimen

NAME = "000007.log"


def log_specimen(data: bytes, **options: Any) -> Specimen:
    return Specimen.of(data, "leveldb.log", NAME, **options)


def read_operations(specimen: Specimen) -> list[tuple[Any, ...]]:
    rows = specimen.read().table.to_pylist()
    return [(row["sequence"], row["key"], row["value"]) for row in rows]


def one_fault(specimen: Specimen) -> Fault:
    (fault,) = specimen.read().report.faults
    return fault


def round_trips(specimen: Specimen) -> bool:
    return specimen.encode(*specimen.tables()) == specimen.all_bytes()


THREE_BATCHES = written(
    [batch(1, (b"a", b"1")), batch(2, (b"b", b"2"), (b"c", None)), batch(4, (b"d", b"4"))]
)


GOOD_BATCH = batch(1, (b"a", b"1"))
