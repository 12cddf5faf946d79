"""Files with corrected bits, read as if the corrections were on the disk. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from logwright.codec import registry
from logwright.codec.arrays import Bytes
from logwright.codec.engine.correct import Correction, Fix, patched
from logwright.codec.fault import Fault
from logwright.codec.store.listing import Entry, PlannedFile, Role
from logwright.readers.listing import Directory
from logwright.readers.report_data import ReportData
from logwright.readers.source import Source

_SHOWN = 4
"""Number of corrections to print."""
Corrections = Mapping[str, Sequence[Fix]]
"""The corrections of the files of a directory, by name."""


class CorrectedSource:
    """A source with corrections, and with more bytes at its end."""

    def __init__(self, source: Source, corrections: Sequence[Fix], rest: bytes = b"") -> None:
        self.path, self.size = source.path, source.size + len(rest)
        self.original, self._corrections, self._rest = source, corrections, np.frombuffer(rest, np.uint8)

    def pread(self, offset: int, length: int) -> Bytes:
        data = patched(self.original.pread(offset, length), offset, self._corrections)
        if not len(self._rest) or offset + length <= self.original.size:
            return data
        at = max(offset - self.original.size, 0)
        return np.concatenate([data, self._rest[at : offset + length - self.original.size]])

    def ahead(self, offset: int, length: int) -> None:
        self.original.ahead(offset, length)

    def close(self) -> None:
        self.original.close()

    def __enter__(self) -> CorrectedSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def with_corrections(source: Source, corrections: Sequence[Fix], rest: bytes = b"") -> Source:
    """Return a source with corrections in its bytes, and with the bytes `rest` at its end."""
    return CorrectedSource(source, corrections, rest) if corrections or rest else source


class CorrectedDirectory(Directory):
    """A directory with corrections in its files."""

    def __init__(self, original: Directory, corrections: Corrections) -> None:
        self.original, self.corrections = original, corrections
        self.path, self.name, self.warnings = original.path, original.name, original.warnings
        self.rescue, self.odd = original.rescue, original.odd

    def entries(self) -> Sequence[Entry]:
        return self.original.entries()

    def folders(self) -> Sequence[str]:
        return self.original.folders()

    def inner_folders(self) -> Sequence[str]:
        return self.original.inner_folders()

    def parent(self) -> Directory | None:
        return self.original.parent()

    def real(self, name: str) -> str:
        return self.original.real(name)

    def shown(self, name: str) -> str:
        return self.original.shown(name)

    def open(self, name: str) -> Source:
        return with_corrections(self.original.open(name), self.corrections.get(name, ()))


def corrected_directory(directory: Directory, report: ReportData) -> Directory:
    """Return a directory with the corrections that a check of it found."""
    corrections = {file.path: file.corrections for file in report.files if file.corrections}
    return CorrectedDirectory(directory, corrections) if corrections else directory


def healed_by_corrections(report: ReportData) -> frozenset[tuple[str, int]]:
    """Return the damage that corrections remove, by file and offset."""
    return frozenset((file.path, offset) for file in report.files for offset in file.healed)


def unproved(report: ReportData, path: str, fault: Fault) -> Iterator[str]:
    """Yield what the corrections of a fault do not prove. After a repair the notes say it."""
    fixes = [fix for file in report.files if file.path == path for fix in file.corrections]
    for fix in fixes if report.cut is None else ():
        inside = fault.offset <= fix.offset < fault.offset + fault.length
        if inside and isinstance(fix, Correction) and fix.part:
            yield f"repair corrects 1 bit: {fix.limits}"


def original(corrected: Any) -> Any:
    """Return a directory or a source without corrections."""
    return corrected.original if isinstance(corrected, CorrectedDirectory | CorrectedSource) else corrected


def corrects(directory: Any, name: str) -> bool:
    """Return whether a file of a directory has corrections."""
    return isinstance(directory, CorrectedDirectory) and name in directory.corrections


def correctable(file: PlannedFile) -> bool:
    """Return whether flipped bits of a file are corrected: a primary one, or another one in use that has checksums, such as a manifest."""
    if file.role is Role.PRIMARY or file.codec is None:
        return file.role is Role.PRIMARY
    return file.role in (Role.DERIVED, Role.METADATA) and bool(registry.get(file.codec).checksum)


def found_in(reports: Sequence[ReportData]) -> list[tuple[str, Fix]]:
    """Return the corrections that checks found, with their files."""
    return [
        (file.path, correction)
        for report in reports
        for file in report.files
        for correction in file.corrections
    ]


def note_corrections(report: ReportData, corrections: Sequence[tuple[str, Fix]], would: str = "") -> None:
    """Add corrections to a report, as a list and as sentences. `would` is "would be " if nothing is corrected yet."""
    report.corrected = [
        {"file": path, **correction.to_dict()} for path, correction in corrections[: report.max_faults]
    ]
    for path, correction in corrections[:_SHOWN]:
        where = "" if path == report.path else f" of {path}"
        report.notes.append(f"{would}{correction.note(where)}")
    if len(corrections) > _SHOWN:
        report.notes.append(f"{would}corrected: {len(corrections) - _SHOWN:,} more (--json lists them)")
