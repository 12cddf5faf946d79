"""The report: what was met while reading, by file, in numbers and as faults. For programs a mapping, for people a short text.

Numbers are exact; the list of faults is capped (`max_faults`). Reports of parts of one file or of several files add up
(`merge`), so that tasks send theirs to the driver.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

from logwright.codec.fault import Fault, Severity

VERSION = 1
MAX_FAULTS = 1000
_SHOWN = 8
"""So many faults are written out for people."""


@dataclass
class FileReport:
    """One file, or a stretch of it."""

    path: str
    codec: str | None
    bytes: int = 0
    bytes_damaged: int = 0
    frames: int = 0
    rows: int = 0
    faults: list[Fault] = field(default_factory=list)
    faults_total: int = 0
    errors: int = 0
    max_faults: int = MAX_FAULTS
    primary: bool = True
    """Whether its frames and rows count in the report's: those of files that are made from others don't."""

    def add(self, fault: Fault, *, damaged: bool = False) -> None:
        """Note a fault. `damaged`: its bytes are not among what was read."""
        self.faults_total += 1
        self.errors += fault.severity is Severity.ERROR
        if damaged and fault.severity is not Severity.INFO:
            self.bytes_damaged += fault.length
        if len(self.faults) < self.max_faults:
            self.faults.append(fault)

    def merge(self, other: FileReport) -> None:
        for name in ("bytes", "bytes_damaged", "frames", "rows", "faults_total", "errors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults = sorted([*self.faults, *other.faults], key=lambda fault: fault.offset)[: self.max_faults]

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "bytes": self.bytes,
            "frames": self.frames,
            "rows": self.rows,
            "faults": [fault.to_dict() for fault in self.faults],
        }


class Report(Mapping[str, Any]):
    """What was met while reading `path`. Reads like the dict of `to_dict()`; `str()` is the text for people."""

    def __init__(
        self,
        path: str | Sequence[str],
        codec: str | None = None,
        *,
        live: bool | None = None,
        max_faults: int = MAX_FAULTS,
    ) -> None:
        self.path = path if isinstance(path, str) else ", ".join(path)
        self.codec, self.live, self.max_faults = codec, live, max_faults
        self.notes: list[str] = []
        """Sentences on what was met, besides damage."""
        self.system: Mapping[str, Any] | None = None
        """What the real system would do (`Verdict.to_dict`), where that was asked."""
        self.kept: list[Mapping[str, Any]] | None = None
        """After a repair: stretches of primary files that are in the result, `{"file", "offset", "length"}`."""
        self.cut: list[Mapping[str, Any]] | None = None
        """After a repair: `{"file", "offset", "length", "saved_to", "why"}`."""
        self._files: dict[str, FileReport] = {}

    def file(self, path: str, codec: str | None) -> FileReport:
        """The entry of one file, made when it is not there yet."""
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = FileReport(path, codec, max_faults=self.max_faults)
        return found

    @property
    def files(self) -> list[FileReport]:
        return list(self._files.values())

    @property
    def ok(self) -> bool:
        """Whether there is no fault of severity error."""
        return not any(file.errors for file in self._files.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self._files.values())

    @property
    def bytes_damaged(self) -> int:
        return sum(file.bytes_damaged for file in self._files.values())

    @property
    def frames(self) -> int:
        return sum(file.frames for file in self._files.values() if file.primary)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files.values() if file.primary)

    @property
    def faults_total(self) -> int:
        return sum(file.faults_total for file in self._files.values())

    @property
    def faults(self) -> list[tuple[str, Fault]]:
        """Every fault kept, with its file."""
        return [(file.path, fault) for file in self._files.values() for fault in file.faults][
            : self.max_faults
        ]

    @property
    def worst(self) -> Severity | None:
        """The highest severity of any fault; None when there is none."""
        if not self.ok:
            return Severity.ERROR
        order = [Severity.WARNING, Severity.INFO]
        met = {fault.severity for _, fault in self.faults}
        return next((one for one in order if one in met), None)

    def merge(self, other: Report) -> Report:
        """Add the numbers and faults of another report to this one."""
        for theirs in other._files.values():
            ours = self.file(theirs.path, theirs.codec)
            ours.merge(theirs)
            ours.primary = theirs.primary
        self.notes += [note for note in other.notes if note not in self.notes]
        if self.live is None or other.live:
            self.live = other.live
        return self

    # For programs

    def to_dict(self) -> dict[str, Any]:
        room = self.max_faults
        files = []
        for file in self._files.values():
            entry = file.to_dict()
            entry["faults"] = entry["faults"][:room]
            room -= len(entry["faults"])
            files.append(entry)
        return {
            "report": VERSION,
            "logwright": _version(),
            "path": self.path,
            "codec": self.codec,
            "ok": self.ok,
            "live": self.live,
            "bytes": self.bytes,
            "bytes_damaged": self.bytes_damaged,
            "frames": self.frames,
            "rows": self.rows,
            "faults_total": self.faults_total,
            "files": files,
            **({} if self.system is None else {"system": dict(self.system)}),
            **({} if self.kept is None else {"kept": [dict(one) for one in self.kept]}),
            **({} if self.cut is None else {"cut": [dict(one) for one in self.cut]}),
        }

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    # For people

    def text(self) -> str:
        """A few lines that end in the next command to type."""
        lines = [self._headline()] if self.faults_total != 1 else []
        faults = sorted(self.faults, key=lambda one: _RANK[one[1].severity])
        for path, fault in faults[:_SHOWN]:
            where = f"{path}  " if path and path != self.path else ""
            word = _WORDS[fault.severity]
            head = f"{self.path}  {word}  " if self.faults_total == 1 else f"  {word}  "
            lines.append(
                f"{head}{where}at {fault.offset}, {fault.length} bytes: {fault.kind}, {fault.detail}"
            )
            if gone := _lost(fault):
                lines.append(f"  lost: {gone}")
            if fault.system:
                lines.append(f"  {fault.system}")
        if self.faults_total > _SHOWN:
            lines.append(f"  and {self.faults_total - _SHOWN:,} more")
        lines += [f"  {note}" for note in self.notes]
        lines.append(f"  {self._next()}")
        return "\n".join(lines)

    __str__ = text

    def __repr__(self) -> str:
        return f"<Report {self.path}: {'ok' if self.ok else 'damaged'}, {_count(self.faults_total, 'fault')}>"

    def _headline(self) -> str:
        size = _size(self.bytes)
        said = [size if self.ok else f"{_size(self.bytes_damaged)} of {size}"]
        files = sum(path != "" for path in self._files)  # "" is the directory itself
        said += [_count(files, "file")] if files != 1 else []
        said += [_count(self.frames, "frame"), _count(self.rows, "row")]
        if self.faults_total:
            said.append(_count(self.faults_total, "fault"))
        return f"{self.path}  {'ok' if self.ok else 'DAMAGED'}  {', '.join(said)}"

    def _next(self) -> str:
        path = shlex.quote(self.path)
        if not self.ok:
            return f"logwright dump {path} --mode DROPMALFORMED   gets every row that is sound"
        if self.faults_total:
            return f"logwright verify {path} --json   says all of it"
        return f"logwright dump {path} --limit 10"


_WORDS = {Severity.ERROR: "DAMAGED", Severity.WARNING: "warning", Severity.INFO: "note"}
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.1f} {unit}"
    return _count(number, "byte")


@cache
def _version() -> str:
    try:
        return metadata.version("logwright")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a zip


def _lost(fault: Fault) -> str:
    """`lost` in words: pairs of `first_x` and `last_x` (or smallest and largest) as ranges, times as dates."""
    said: list[str] = []
    lost = fault.lost
    extra = [] if fault.rows_lost is None else [_count(fault.rows_lost, "row")]
    for name, value in lost.items():
        if name.startswith("first_") and f"last_{name[6:]}" in lost:
            noun, top = name[6:], lost[f"last_{name[6:]}"]
            span = _span(noun, value, top)
            (extra if "timestamp" in noun else said).append(span)
        elif value is None:
            continue
        elif name.startswith("first_"):
            said.append(f"{name[6:]}s from {value} on")
        elif not name.startswith("last_"):
            said.append(f"{name} {value}")
        elif f"first_{name[5:]}" not in lost:
            said.append(f"{name[5:]}s up to {value}")
    text = ", ".join(said)
    return f"{text} ({', '.join(extra)})" if text and extra else text or ", ".join(extra)


def _span(noun: str, low: Any, high: Any) -> str:
    if low is None and high is None:
        return f"{noun} unknown"
    if "timestamp" in noun:
        low, high = _when(low), _when(high)
        if low == high:
            return f"{low} UTC"
        return f"{low}..{high[11:] if low[:11] == high[:11] else high} UTC"  # the same day is not said twice
    if low == high:
        return f"{noun} {low}"
    return f"{noun}s {'?' if low is None else low}..{'?' if high is None else high}"


def _when(value: Any) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, TypeError, ValueError):
        return "?" if value is None else str(value)
