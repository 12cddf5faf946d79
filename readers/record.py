"""Faults as they are met: a report that hands each on, and what is written down of one.

A report keeps a bounded number of faults; whoever wants them all listens.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from logwright.codec.fault import Fault, LogwrightError
from logwright.codec.frames.walk import zero_filled
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source
from logwright.readers.stream import RECORD_LIMIT

Write = Callable[[Mapping[str, Any]], None]
"""Takes what is written down of one fault."""


class Recorder(Protocol):
    """Where the faults of a read by many tasks go. Picklable."""

    def task(self, number: int) -> AbstractContextManager[Write]:
        """For an attempt of a task; left without an error when the task has met all there is."""
        ...


@dataclass
class _Heard(FileReport):
    hear: Callable[[Fault], None] = lambda fault: None

    def add(self, fault: Fault, *, damaged: bool = False) -> None:
        super().add(fault, damaged=damaged)
        self.hear(fault)


class HeardReport(Report):
    """A report that hands on every fault that is added, with the file's name."""

    hear: Callable[[str, Fault], None] | None = None

    def file(self, path: str, codec: str | None) -> FileReport:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = _Heard(
                path, codec, max_faults=self.max_faults, hear=lambda fault: self._heard(path, fault)
            )
        return found

    def _heard(self, path: str, fault: Fault) -> None:
        if self.hear is not None:
            self.hear(path, fault)


def described(path: str, fault: Fault, open: Callable[[], Source] | None) -> dict[str, Any]:
    """What is written down of a fault in the file `path`: `record` is up to 64 KiB of its bytes in base64, up to the first that the
    disk can't read, None where there are none."""
    out = {"path": path, **fault.to_dict(), "record": None}
    if open is not None and fault.length:
        try:
            with open() as source:
                data, unreadable = zero_filled(source, fault.offset, min(fault.length, RECORD_LIMIT))
        except LogwrightError:
            return out  # it is gone, say: that is told elsewhere
        if unreadable:
            data = data[: unreadable[0].start - fault.offset]
        if len(data):
            out["record"] = base64.b64encode(data.tobytes()).decode()
    return out
