"""Faults of `verify`, and handmade segments of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
