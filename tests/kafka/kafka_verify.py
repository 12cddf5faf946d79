"""Faults of `verify`, and handmade segments of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_log import batch, record

import logwright as lw
from logwright.codec.fault import Fault, Severity
from logwright.codec.kafka.names import segment_name

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def severe_faults(report: lw.Report) -> list[tuple[str, Fault]]:
    return [(name, fault) for name, fault in report.faults if fault.severity is not INFO]


def log_name(base: int) -> str:
    return segment_name(base, ".log")


def frame_rows(place: Path, base: int) -> list[dict[str, Any]]:
    return lw.read(place / log_name(base), view="frames").to_pylist()


def data_batch(base: int, producer: int, *, transactional: bool = True, count: int = 1) -> bytes:
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": base}
    return batch(base, [record(i) for i in range(count)], attributes=0x10 * transactional, **fields)


def end_marker(base: int, producer: int, kind: int) -> bytes:
    marker_record = record(0, bytes([0, 0, 0, kind]), b"\0\0\0\0\0\7")
    return batch(base, [marker_record], attributes=0x30, producer_id=producer, producer_epoch=0)
