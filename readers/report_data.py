"""The data of a report: counts and faults by file. A program reads it as a mapping; `readers.report_text` makes the text.

Counts are exact; the list of faults is limited to `max_faults`. Reports of parts of a file, or of several files, are combined with `merge`,
so that tasks can send theirs to a driver. If several stores or files are checked, each has its own report in `parts`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from typing import Any

from logwright.codec import plural
from logwright.codec.engine.correct import Fix, OfFile
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.option import Verb

VERSION = 1
MAX_FAULTS = 1000


@dataclass
class FileReport:
    """One file, or a range of it."""

    path: str
    codec: str | None
    bytes: int = 0
    bytes_damaged: int = 0
    frames: int = 0
    rows: int = 0
    faults: list[Fault] = field(default_factory=list)
    faults_total: int = 0
    corrections: list[Fix] = field(default_factory=list)
    """The flipped bits that a repair corrects."""
    healed: set[int] = field(default_factory=set)
    """The offsets of damage that these corrections remove completely."""
    errors: int = 0
    infos: int = 0
    max_faults: int = MAX_FAULTS
    primary: bool = True
    """Whether its frames and rows count in the report's totals. Those of derived files do not."""
    combined: bool = False
    """Its rows are combined with those of other files, so they do not count; the result does (`Report.combined_rows`)."""
    unchecked: bool = False
    """All or part of it has a recognised format that cannot be read."""
    denied: int = 0
    """Number of errors that are denied access, which is no damage."""
    unsupported: int = 0
    """Number of faults of kind `UNSUPPORTED`."""

    def add(self, fault: Fault, *, damaged: bool = False, denied: bool = False) -> None:
        """Add a fault. `damaged`: its bytes could not be read as frames. `denied`: the user may not read them.

        A note without a detail is the regular end of a file and is left out.
        """
        if not fault.detail and fault.severity is Severity.INFO:
            return
        self.faults_total += 1
        self.errors += fault.severity is Severity.ERROR
        self.infos += fault.severity is Severity.INFO
        self.denied += denied
        if fault.kind is Kind.UNSUPPORTED:
            self.unsupported += 1
            self.unchecked = True
        elif damaged and fault.severity is not Severity.INFO:
            self.bytes_damaged += fault.length
        # Almost always the last: regions without rows are added before the rows in front of them are decoded.
        bisect.insort(self.faults, fault, key=_offset)
        del self.faults[self.max_faults :]

    def correct(self, of_file: OfFile | None) -> None:
        """Add the correction that only the file as a whole proves."""
        if of_file is None:
            return
        fault, correction, remaining = of_file
        healed = {other.offset for other in self.faults} - remaining
        if not healed:
            self.add(fault, damaged=True)
        self.corrections.append(correction)
        self.healed |= healed or {fault.offset}

    def lower(self) -> None:
        """Turn every fault into a note, since the system does not use this file."""
        self.faults = [replace(fault, severity=Severity.INFO) for fault in self.faults]
        self.errors = self.denied = self.bytes_damaged = 0
        self.infos = self.faults_total
        self.unchecked = False

    def merge(self, other: FileReport) -> None:
        for name in (
            "bytes",
            "bytes_damaged",
            "frames",
            "rows",
            "faults_total",
            "errors",
            "infos",
            "denied",
            "unsupported",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unchecked |= other.unchecked
        self.combined |= other.combined
        self.corrections += other.corrections
        self.healed |= other.healed
        self.faults = sorted([*self.faults, *other.faults], key=_offset)[: self.max_faults]

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "bytes": self.bytes,
            "frames": self.frames,
            "rows": self.rows,
            "faults": [fault.to_dict() for fault in self.faults],
            **(
                {"corrections": [correction.to_dict() for correction in self.corrections[: self.max_faults]]}
                if self.corrections
                else {}
            ),
        }


def _offset(fault: Fault) -> int:
    return fault.offset


class ReportData(Mapping[str, Any]):
    """The result of reading or checking `path`. It is a mapping equal to `to_dict()`; `str()` is a text for an operator."""

    def __init__(
        self,
        path: str | Sequence[str],
        codec: str | None = None,
        *,
        live: bool | None = None,
        max_faults: int = MAX_FAULTS,
    ) -> None:
        self.paths = (path,) if isinstance(path, str) else tuple(path)
        self.codec, self.live, self.max_faults = codec, live, max_faults
        self.notes: list[str] = []
        """Sentences about the input, other than faults."""
        self.system: Mapping[str, Any] | None = None
        """Behaviour of the real system (`Verdict.to_dict`), if simulated."""
        self.kept: list[Mapping[str, Any]] | None = None
        """After a repair: ranges of primary files that are in the result, `{"file", "offset", "length"}`."""
        self.cut: list[Mapping[str, Any]] | None = None
        """After a repair: what was removed, `{"file", "offset", "length", "saved_to", "why"}`."""
        self.corrected: list[Mapping[str, Any]] | None = None
        """After a repair: the flipped bits that were corrected, `{"file", "offset", "bit", "stored", "value", "proved_by"}`."""
        self.rows_kept: int | None = None
        """After a repair: number of rows in the result, known without decoding."""
        self.combined_rows = 0
        """Number of rows combined from several files, whose own counts are of the rows read."""
        self.incomplete = False
        """After a repair: some input is not in the result."""
        self.ids: Mapping[str, Any] = {}
        """After a repair: `Summary.ids` of the result."""
        self.result_files: Sequence[str] = ()
        """After a repair: names of the files of the result."""
        self.changed = False
        """After a repair: primary files have changed."""
        self.out: str | None = None
        """Path of the result, if several stores were repaired."""
        self.error: str | None = None
        """Reason why this one of several stores could not be opened or repaired."""
        self.parts: list[ReportData] = []
        """Reports of the stores or files, if there are several."""
        self._files: dict[str, FileReport] = {}

        # For the text
        self.next: str | None = None
        """The command that ends the text; by default one that fits the faults."""
        self.nouns = ("row", "file")
        self.rows_noun: str | None = None
        """Names of a row and of a primary file."""
        self.known: Mapping[str, Any] = {}
        """Facts about everything in the report, such as the topic. They are not repeated for each fault."""
        self.advice: tuple[str, ...] = ()
        """Advice on damage with the system's own tools."""
        self.checked = True
        """Whether everything was checked, not only what was read."""
        self.repairs = False
        """Whether `logwright repair` supports it."""
        self.derived: frozenset[str] = frozenset()
        """The files that a repair can make again from the others."""
        self.repair_loss: int | None = None
        """Number of rows that a repair would lose, if known, including rows that are lost already."""
        self.rows_lost = 0
        """Number of rows that a repair has lost, as far as known."""
        self.loss_known = True
        self.healed: frozenset[tuple[str, int]] = frozenset()
        """Damage from which a repair loses no row, as file and offset."""
        self.flags: Mapping[Verb, str] = {}
        """For the commands that the text names: the options of the caller, as the command line takes them."""
        self.leaves = False
        """Whether a repair leaves some damaged files unchanged."""
        self.strategy: str | None = None
        """The strategy that a repair must be given, if the default one would be refused."""

    def file(self, path: str, codec: str | None) -> FileReport:
        """Return the entry of a file; create it if necessary."""
        entry = self._files.get(path)
        if entry is None:
            entry = self._files[path] = FileReport(path, codec, max_faults=self.max_faults)
        return entry

    @property
    def files(self) -> list[FileReport]:
        """Return the entries of all files. Files of `parts` are named by their paths."""
        return [*self._files.values(), *(replace(file, path=path) for path, file in self._below())]

    def _below(self) -> Iterator[tuple[str, FileReport]]:
        for part in self.parts:
            for file in part.files:
                yield part.shown(file.path), file

    @property
    def path(self) -> str:
        """The path, or several separated by commas."""
        return ", ".join(self.paths)

    def shown(self, file: str) -> str:
        """Return the path of a file, given its name in the report; "" is the directory itself."""
        return self.path if file in ("", self.path) else f"{self.path.rstrip('/')}/{file}"

    def _all(self) -> Iterator[FileReport]:
        yield from self._files.values()
        for part in self.parts:
            yield from part._all()

    @property
    def ok(self) -> bool:
        """Return whether there is no fault of severity error."""
        return not any(file.errors for file in self._all()) and not self.failed

    @property
    def failed(self) -> int:
        """Return the number of stores that could not be opened or repaired."""
        return (self.error is not None) + sum(part.failed for part in self.parts)

    @property
    def bytes(self) -> int:
        """Number of bytes of all files."""
        return sum(file.bytes for file in self._all())

    @property
    def bytes_damaged(self) -> int:
        """Number of bytes that could not be read as frames."""
        return sum(file.bytes_damaged for file in self._all())

    @property
    def frames(self) -> int:
        """Number of undamaged frames in the primary files."""
        return sum(file.frames for file in self._all() if file.primary)

    @property
    def rows(self) -> int:
        """Number of rows; after a repair, those of the result."""
        return self.rows_read if self.rows_kept is None else self.rows_kept

    @property
    def rows_read(self) -> int:
        """Number of undamaged rows of the input."""
        return self._combined_rows() + sum(
            file.rows for file in self._all() if file.primary and not file.combined
        )

    def _combined_rows(self) -> int:
        return self.combined_rows + sum(part._combined_rows() for part in self.parts)

    @property
    def faults_total(self) -> int:
        """Number of faults of every severity; the list may be shorter."""
        return sum(file.faults_total for file in self._all())

    @property
    def infos(self) -> int:
        """Number of faults that are only notes."""
        return sum(file.infos for file in self._all())

    def fault_counts(self) -> list[str]:
        """Return the number of faults, of notes, and of files that may not be read as text, without zeros."""
        denied = sum(file.denied for file in self._all())
        counts = ((self.faults_total - self.infos - denied, "fault"), (self.infos, "note"))
        unread = [f"{plural.count(denied, 'file')} not read"] * bool(denied)
        return [plural.count(number, noun) for number, noun in counts if number] + unread

    @property
    def faults(self) -> list[tuple[str, Fault]]:
        """Return the faults, each with its file."""
        return [(file.path, fault) for file in self.files for fault in file.faults][: self.max_faults]

    @property
    def worst(self) -> Severity | None:
        """Return the highest severity of all faults; None without faults."""
        if not self.ok:
            return Severity.ERROR
        order = [Severity.WARNING, Severity.INFO]
        severities = {fault.severity for file in self._all() for fault in file.faults}
        return next((severity for severity in order if severity in severities), None)

    @property
    def telling(self) -> bool:
        """Return whether a reader of the rows should see the report. Preallocated zeros, which most files have, are not worth it."""
        faults = (fault for file in self._all() for fault in file.faults)
        return self.missing or any(
            fault.severity is not Severity.INFO or fault.kind is not Kind.PADDING for fault in faults
        )

    @property
    def unchecked(self) -> bool:
        """Return whether something could not be checked."""
        return any(file.unchecked for file in self._all())

    @property
    def denied(self) -> bool:
        """Return whether nothing is known to be wrong but that something could not be opened, or may not be read."""
        return not self.ok and not self._any_missing() and all(f.errors == f.denied for f in self._all())

    def _any_missing(self) -> bool:
        return self.missing or any(part._any_missing() for part in self.parts)

    @property
    def unsupported(self) -> bool:
        """Return whether something with a valid checksum has an unknown version or type."""
        return any(file.unsupported for file in self._all())

    @property
    def safe(self) -> bool:
        """Return whether the real system opens everything and loses nothing. Damage in derived files that it rebuilds does not count."""
        if self.parts:
            asked = [part for part in self.parts if part.system is not None]
            others = [part for part in self.parts if part.system is None]
            return (
                bool(asked or self.system)
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
        """Return whether the real system, if simulated, serves less than what is undamaged."""
        verdict = self.system
        return verdict is not None and bool(
            not verdict["opens"]
            or verdict["error"] is not None
            or verdict["rows_lost"]
            or verdict["lost"]
            or verdict["serves"].get("stops_at") is not None
        )

    def merge(self, other: ReportData) -> ReportData:
        """Add the counts and faults of another report."""
        for theirs in other._files.values():
            ours = self.file(theirs.path, theirs.codec)
            ours.merge(theirs)
            ours.primary = theirs.primary
        self.combined_rows += other.combined_rows
        self.parts += other.parts
        self.notes += [note for note in other.notes if note not in self.notes]
        if self.live is None or other.live:
            self.live = other.live
        return self

    def starts(self, verdict: Mapping[str, Any]) -> None:
        """Set the verdict of a start on everything, which the system makes before it opens any store."""
        if self.parts or self.system is None or not verdict["opens"]:
            self.system = verdict
        else:
            # A single store has a verdict already.
            warnings = [*verdict["warnings"], *self.system["warnings"]]
            self.system = {**self.system, "warnings": list(dict.fromkeys(warnings))}

    def count_ranges(self, kept: int, cut: int, losses: Sequence[int | None]) -> None:
        """Set the number of lost rows, and note how many ranges are `kept` and `cut` if that is more than are listed."""
        self.rows_lost, self.loss_known = sum(loss or 0 for loss in losses), None not in losses
        for label, total in (("kept", kept), ("removed", cut)):
            if total > self.max_faults:
                self.notes.append(
                    f"of {total:,} ranges {label}, the first {self.max_faults:,} are listed (max_faults)"
                )

    def become(self, other: ReportData) -> None:
        """Replace the content by that of another report, keeping the notes."""
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
            **(
                {}
                if not self.parts
                else {"targets": [part._target(self.cut is not None) for part in self.parts]}
            ),
            **({} if self.kept is None else {"kept": [dict(entry) for entry in self.kept]}),
            **({} if self.cut is None else {"cut": [dict(entry) for entry in self.cut]}),
            **({} if not self.notes else {"notes": list(self.notes)}),
        }

    def _summary(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "codec": self.codec,
            "ok": self.ok,
            "live": self.live if not self.parts else alive([part.live for part in self.parts]),
            "bytes": self.bytes,
            "bytes_damaged": self.bytes_damaged,
            "frames": self.frames,
            "rows": self.rows,
            "faults_total": self.faults_total,
        }

    def _target(self, repaired: bool) -> dict[str, Any]:
        """Return the summary as one of several stores. Its files are listed with all others."""
        result: dict[str, Any] = {} if self.error is None else {"error": self.error}
        if repaired:
            result = {
                "out": self.out,
                "error": self.error,
                "incomplete": self.incomplete,
                "rows_lost": self.rows_lost if self.loss_known and not self.error else None,
            }
        return {
            **self._summary(),
            **result,
            **({} if self.system is None else {"system": dict(self.system)}),
        }

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


def alive(parts: Sequence[bool | None]) -> bool | None:
    """Return whether the system runs on any of several stores; None if that is unknown of all."""
    return next((value for value in (True, False) if value in parts), None)


@cache
def _version() -> str:
    try:
        return metadata.version("logwright")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a zip file
