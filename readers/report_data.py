"""The report: what was met while reading, by file, in numbers and as faults. For programs a mapping, for people a short text
(`readers.report_text`).

Numbers are exact; the list of faults is capped (`max_faults`). Reports of parts of one file or of several files add up
(`merge`), so that tasks send theirs to the driver. Where several things were looked at each has a report of its own (`parts`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from typing import Any

from logwright.codec.fault import Fault, Kind, Severity

VERSION = 1
MAX_FAULTS = 1000


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
    combined: bool = False
    """Its rows were put together with those of other files: they don't count, what came of it does (`Report.given`)."""
    unchecked: bool = False
    """It is of a format, or has a part of one, that is recognised and not read."""
    unsupported: int = 0
    """Faults of kind `UNSUPPORTED`."""

    def add(self, fault: Fault, *, damaged: bool = False) -> None:
        """Note a fault. `damaged`: its bytes are not among what was read."""
        self.faults_total += 1
        self.errors += fault.severity is Severity.ERROR
        if fault.kind is Kind.UNSUPPORTED:
            self.unsupported += 1
            self.unchecked = True
        elif damaged and fault.severity is not Severity.INFO:
            self.bytes_damaged += fault.length
        # Nearly always the last: what gives no rows is noted before what lies before it has been decoded.
        bisect.insort(self.faults, fault, key=_offset)
        del self.faults[self.max_faults :]

    def lower(self) -> None:
        """Make every fault a note: the system does not use this file."""
        self.faults = [replace(fault, severity=Severity.INFO) for fault in self.faults]
        self.errors = self.bytes_damaged = 0
        self.unchecked = False

    def merge(self, other: FileReport) -> None:
        for name in ("bytes", "bytes_damaged", "frames", "rows", "faults_total", "errors", "unsupported"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unchecked |= other.unchecked
        self.combined |= other.combined
        self.faults = sorted([*self.faults, *other.faults], key=_offset)[: self.max_faults]

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "bytes": self.bytes,
            "frames": self.frames,
            "rows": self.rows,
            "faults": [fault.to_dict() for fault in self.faults],
        }


def _offset(fault: Fault) -> int:
    return fault.offset


class ReportData(Mapping[str, Any]):
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
        self.rows_kept: int | None = None
        """After a repair: rows in the result, where nothing was decoded to count them."""
        self.given = 0
        """Rows that were put together from those of several files, whose own numbers say what was read for it."""
        self.incomplete = False
        """After a repair: something that was there is not in the result."""
        self.ids: Mapping[str, Any] = {}
        """After a repair: `Summary.ids` of the result."""
        self.result_files: Sequence[str] = ()
        """After a repair: the names of the files of the result."""
        self.changed = False
        """After a repair: primary files of the result are not what they were."""
        self.out: str | None = None
        """Where the result of one of several repairs is."""
        self.error: str | None = None
        """What kept one of several from being repaired."""
        self.parts: list[ReportData] = []
        """Where several things were looked at, what was met in each."""
        self._files: dict[str, FileReport] = {}

        # For people
        self.next: str | None = None
        """The command line that the text ends in; by default one that fits what was met."""
        self.nouns = ("row", "file")
        """What a row and a primary file are called."""
        self.known: Mapping[str, Any] = {}
        """What is true of all that was looked at, like its topic: it is not said again of each fault."""
        self.advice: tuple[str, ...] = ()
        """What could be done about damage with the system's own means."""
        self.checked = True
        """Whether all was looked at, and not only what was read."""
        self.repairs = False
        """Whether `logwright repair` takes it."""
        self.mending: int | None = None
        """Rows that a repair would lose, those too that are nowhere any more, where that is known."""
        self.healed: frozenset[tuple[str, int]] = frozenset()
        """Damage of which a repair loses no row: its file and where it begins."""
        self.flags = ""
        """Options without which its path is not all of it, for a command line."""
        self.leaves = False
        """Whether a repair leaves files as they are in which there is something wrong."""
        self.strategy: str | None = None
        """What a repair has to be told, where it would refuse without."""

    def file(self, path: str, codec: str | None) -> FileReport:
        """The entry of one file, made when it is not there yet."""
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = FileReport(path, codec, max_faults=self.max_faults)
        return found

    @property
    def files(self) -> list[FileReport]:
        """Those of the parts are named by their paths."""
        return [*self._files.values(), *(replace(file, path=path) for path, file in self._below())]

    def _below(self) -> Iterator[tuple[str, FileReport]]:
        for part in self.parts:
            for file in part.files:
                yield part.shown(file.path), file

    def shown(self, file: str) -> str:
        """The path of one of the files, which is named within what was looked at; "" is that itself."""
        return self.path if file in ("", self.path) else f"{self.path.rstrip('/')}/{file}"

    def _all(self) -> Iterator[FileReport]:
        yield from self._files.values()
        for part in self.parts:
            yield from part._all()

    @property
    def ok(self) -> bool:
        """Whether there is no fault of severity error."""
        return not any(file.errors for file in self._all()) and not self.failed

    @property
    def failed(self) -> int:
        """How many of several could not be repaired."""
        return (self.error is not None) + sum(part.failed for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self._all())

    @property
    def bytes_damaged(self) -> int:
        return sum(file.bytes_damaged for file in self._all())

    @property
    def frames(self) -> int:
        return sum(file.frames for file in self._all() if file.primary)

    @property
    def rows(self) -> int:
        if self.rows_kept is not None:
            return self.rows_kept
        return self._given() + sum(file.rows for file in self._all() if file.primary and not file.combined)

    def _given(self) -> int:
        return self.given + sum(part._given() for part in self.parts)

    @property
    def faults_total(self) -> int:
        return sum(file.faults_total for file in self._all())

    @property
    def faults(self) -> list[tuple[str, Fault]]:
        """Every fault kept, with its file."""
        return [(file.path, fault) for file in self.files for fault in file.faults][: self.max_faults]

    @property
    def worst(self) -> Severity | None:
        """The highest severity of any fault; None when there is none."""
        if not self.ok:
            return Severity.ERROR
        order = [Severity.WARNING, Severity.INFO]
        met = {fault.severity for file in self._all() for fault in file.faults}
        return next((one for one in order if one in met), None)

    @property
    def telling(self) -> bool:
        """Whether there is anything to say to a person who only wanted the rows: zeros that a system has allocated ahead are in most
        of its files."""
        met = (fault for file in self._all() for fault in file.faults)
        return self.missing or any(
            fault.severity is not Severity.INFO or fault.kind is not Kind.PADDING for fault in met
        )

    @property
    def unchecked(self) -> bool:
        """Whether there is something that could not be looked at."""
        return any(file.unchecked for file in self._all())

    @property
    def unsupported(self) -> bool:
        """Whether something with a right checksum is of a version or type that is not known here."""
        return any(file.unsupported for file in self._all())

    @property
    def safe(self) -> bool:
        """Whether the real system, asked about, opens all of it and loses nothing: damage in what it makes anew does not count."""
        if self.parts:
            asked = [part for part in self.parts if part.system is not None]
            others = [part for part in self.parts if part.system is None]
            return (
                bool(asked)
                and not self.missing
                and all(part.safe for part in asked)
                and all(part.ok and not part.unchecked for part in others)
            )
        return (
            self.system is not None
            and not self.missing
            and not any(file.errors for file in self._all() if file.primary)
        )

    @property
    def missing(self) -> bool:
        """Whether the real system, which was asked, does not serve all that is sound."""
        said = self.system
        return said is not None and bool(
            not said["opens"]
            or said["error"] is not None
            or said["rows_lost"]
            or said["lost"]
            or said["serves"].get("stops_at") is not None
        )

    def merge(self, other: ReportData) -> ReportData:
        """Add the numbers and faults of another report to this one."""
        for theirs in other._files.values():
            ours = self.file(theirs.path, theirs.codec)
            ours.merge(theirs)
            ours.primary = theirs.primary
        self.given += other.given
        self.parts += other.parts
        self.notes += [note for note in other.notes if note not in self.notes]
        if self.live is None or other.live:
            self.live = other.live
        return self

    def starts(self, said: Mapping[str, Any]) -> None:
        """Note what the system does when it starts on all that was looked at, before it loads any of it."""
        if self.parts or self.system is None or not said["opens"]:
            self.system = said
        else:
            # Of one thing alone, what becomes of it is told.
            warnings = [*said["warnings"], *self.system["warnings"]]
            self.system = {**self.system, "warnings": list(dict.fromkeys(warnings))}

    def become(self, other: ReportData) -> None:
        """Take over all that another report says."""
        notes = [note for note in self.notes if note not in other.notes]
        self.__dict__.update(other.__dict__)
        self.notes = notes + self.notes

    # For programs

    def to_dict(self) -> dict[str, Any]:
        room = self.max_faults
        files = []
        for file in self.files:
            entry = file.to_dict()
            entry["faults"] = entry["faults"][:room]
            room -= len(entry["faults"])
            files.append(entry)
        return {
            "report": VERSION,
            "logwright": _version(),
            **self._summary(),
            "files": files,
            **({} if self.system is None else {"system": dict(self.system)}),
            **({} if not self.parts else {"targets": [part._target() for part in self.parts]}),
            **({} if self.kept is None else {"kept": [dict(one) for one in self.kept]}),
            **({} if self.cut is None else {"cut": [dict(one) for one in self.cut]}),
            **({} if not self.notes else {"notes": list(self.notes)}),
        }

    def _summary(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "ok": self.ok,
            "live": self.live if not self.parts else _alive([part.live for part in self.parts]),
            "bytes": self.bytes,
            "bytes_damaged": self.bytes_damaged,
            "frames": self.frames,
            "rows": self.rows,
            "faults_total": self.faults_total,
        }

    def _target(self) -> dict[str, Any]:
        """As one of several: its files are among all."""
        repaired = {}
        if self.cut is not None or self.error is not None:
            lost = [cut["rows_lost"] for cut in self.cut or ()]
            repaired = {
                "out": self.out,
                "error": self.error,
                "incomplete": self.incomplete,
                "rows_lost": None if None in lost or self.error else sum(lost),
            }
        return {
            **self._summary(),
            **repaired,
            **({} if self.system is None else {"system": dict(self.system)}),
        }

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


def _alive(parts: Sequence[bool | None]) -> bool | None:
    return next((one for one in (True, False) if one in parts), None)


@cache
def _version() -> str:
    try:
        return metadata.version("logwright")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a zip
