"""Frames that are undamaged but unknown: a repair refuses them, or copies their files unchanged.

A frame with a valid checksum and an unknown version, type or attribute was written by another program or a newer version. A repair could
only drop it or guess, so it does neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logwright.codec.engine.repair import OutputFile, RepairPlan
from logwright.codec.fault import Kind, UnsupportedError, UsageError
from logwright.codec.option import fold
from logwright.codec.store.build import Piece, Summary
from logwright.readers.report import Report

OPTION = "unsupported"
"""Name of an option of `repair` for all systems."""
REFUSE, COPY = "refuse", "copy"


def take(options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return whether to copy files with unsupported frames unchanged, and the other options."""
    rest = {name: value for name, value in options.items() if fold(name) != OPTION}
    choice = next((value for name, value in options.items() if fold(name) == OPTION), REFUSE)
    if choice not in (REFUSE, COPY):
        raise UsageError(f"invalid {OPTION}={choice!r}; valid values: {REFUSE}, {COPY}")
    return choice == COPY, rest


def files(report: Report, *, copy: bool) -> list[str]:
    """Return the files with unsupported frames. Raises `UnsupportedError` if there are any and they must not be copied."""
    names = [file.path for file in report.files if file.unsupported]
    if names and not copy:
        path, fault = next((path, fault) for path, fault in report.faults if fault.kind is Kind.UNSUPPORTED)
        error = UnsupportedError(
            f"{fault.kind}: {fault.detail}. A repair would drop it",
            path=report.shown(path),
            offset=fault.offset,
            advice=f"Repair it with the program that wrote it, or pass {OPTION}={COPY} (--{OPTION} {COPY}) to copy such files unchanged and "
            "repair the others",
        )
        error.fault = fault
        raise error
    return names


class Untouched(RepairPlan):
    """A repair that leaves some files unchanged."""

    def __init__(self, plan: RepairPlan, names: Sequence[str], *, everything: bool) -> None:
        """`everything`: leave all files unchanged, since a file that describes the others is among `names`."""
        super().__init__(plan.listing)
        self._plan, self._everything = plan, everything
        stems = {_stem(name) for name in names} - {""}
        self._names = {name for name in self.sizes if everything or name in names or _stem(name) in stems}

    def outputs(self) -> Iterator[OutputFile | Piece]:
        left = dict.fromkeys(name for name in self.sizes if name in self._names)
        for file in self._plan.files():
            if file.name in left:
                del left[file.name]
                yield self.unchanged(file.name)
            elif not self._everything and file.name not in self._names:
                yield file
        yield from map(self.unchanged, left)
        self.cut = [removed for removed in self._plan.cut if removed.copy or removed.file not in self._names]

    def summary(self) -> Summary:
        return self._plan.summary()


def _stem(name: str) -> str:
    """Return the number that a file shares with its derived files, such as a Kafka segment with its indexes; "" for other names."""
    stem = name.partition(".")[0]
    return stem if stem.isdigit() else ""
