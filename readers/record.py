"""Faults as they occur: a report that passes each one on, and its description for a file of bad records.

A report keeps a limited number of faults; a listener gets all of them.
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
"""Writes the description of one fault."""


class Recorder(Protocol):
    """Where a read by many tasks writes its faults. Can be pickled."""

    def task(self, number: int) -> AbstractContextManager[Write]:
        """Open the output of one attempt of a task. Leaving without an exception means that the task is complete."""
        ...


@dataclass
class _Heard(FileReport):
    hear: Callable[[Fault], None] = lambda fault: None

    def add(self, fault: Fault, *, damaged: bool = False, denied: bool = False) -> None:
        super().add(fault, damaged=damaged, denied=denied)
        self.hear(fault)


class HeardReport(Report):
    """A report that passes every added fault to `hear`, with the name of the file."""

    hear: Callable[[str, Fault], None] | None = None

    def file(self, path: str, codec: str | None) -> FileReport:
        entry = self._files.get(path)
        if entry is None:
            entry = self._files[path] = _Heard(
                path, codec, max_faults=self.max_faults, hear=lambda fault: self._heard(path, fault)
            )
        return entry

    def _heard(self, path: str, fault: Fault) -> None:
        if self.hear is not None:
            self.hear(path, fault)


def described(path: str, fault: Fault, open: Callable[[], Source] | None) -> dict[str, Any]:
    """Describe a fault in the file `path`. `record` is base64 of its bytes: up to 64 KiB, up to the first that the disk cannot read, or
    None."""
    out = {"path": path, **fault.to_dict(), "record": None}
    if open is not None and fault.length:
        try:
            with open() as source:
                data, unreadable = zero_filled(source, fault.offset, min(fault.length, RECORD_LIMIT))
        except LogwrightError:
            return out  # The error is reported elsewhere, for example for a deleted file.
        if unreadable:
            data = data[: unreadable[0].start - fault.offset]
        if len(data):
            out["record"] = base64.b64encode(data.tobytes()).decode()
    return out
