"""Simulate the start of a real system on a directory: its changes to files, the rows that clients get, and the rows that are lost.

A system provides one function, `start(overlay, settings) -> Served | Refused`, which follows the system's own code and changes an overlay
of the directory. This module derives the verdict, the lost rows, the rows of mode AS_SYSTEM, and the repair strategy
`system`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.arrays import Bools, stretches
from logwright.codec.engine.repair import OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError, UsageError, join_lost
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Group, Part

MAX_RANGES = 1000
"""The number of ranges of lost rows that a verdict lists. Rows of further ranges are only counted."""

# The interface of a system


class DirectoryState(StrEnum):
    """Whether a directory that a server is started on can be listed."""

    DIRECTORY = "directory"
    MISSING = "missing"
    FILE = "file"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class ServerDirectory:
    """One of the directories that a server is started on, whatever its state."""

    path: str
    state: DirectoryState
    error: str = ""
    """The error of the operating system if it cannot be listed."""
    listing: Listing | None = None
    folders: frozenset[str] = frozenset()
    """The names of the sub-directories."""
    open: Callable[[str], Listing | None] = lambda name: None
    """List a sub-directory; None if that fails."""
    read_only: bool = False
    """The file system is mounted read-only."""
    locked: bool = False
    """Another process holds the lock of the system."""


@dataclass(frozen=True)
class Settings:
    """The conditions of a start that are not stored in the directory."""

    options: Options
    version: str
    """One of `Startup.versions`."""
    version_given: bool
    """Whether the user chose the version. Otherwise it is the newest."""
    clean: bool
    """Whether the last stop was clean; `clean_from` is the source of that."""
    clean_from: str
    plan: Plan
    """The layout's plan of the directory before the start."""
    roots: Sequence[ServerDirectory] = ()
    """All directories of a server, if it is started and not a single store."""
    configuration: Mapping[str, str] | None = None
    """The settings of a server (`Configuration.settings`); None without a configuration file."""


@dataclass(frozen=True)
class Mode:
    """A mode of operation in the system's own term, and the source of that information."""

    name: str
    known_from: str
    title: str = ""
    """The name of the system in a sentence, if name and version do not suffice."""


@dataclass(frozen=True)
class Answers:
    """The answers to a client that reads everything."""

    rows: int | None
    serves: Mapping[str, Any]
    """`first` and `last` of the system's own numbers that are served, `stops_at` where the client stops with an error, and more."""
    error: str | None = None
    error_class: str | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LostRows:
    """A run of undamaged rows that no client gets. `rows` is None if their number is unknown."""

    rows: int | None
    where: Mapping[str, Any]
    """As `Fault.lost`; empty if unknown."""
    continues: bool = False
    """Whether they directly follow the previous run, with no served row between."""
    warning: str = ""


@dataclass(frozen=True)
class Verdict:
    """The predicted outcome of starting the real system on a directory. Nothing is started.

    If the directory opens, `error` is the error that stops a client. See `Refused` and `Answers` for the other fields.
    """

    name: str
    version: str
    clean: bool
    """Whether the last stop was clean; `clean_from` is the source of that, "" if it makes no difference."""
    clean_from: str
    opens: bool = True
    scope: str | None = None
    error: str | None = None
    error_class: str | None = None
    rows: int | None = None
    rows_lost: int | None = None
    """The number of undamaged rows that a client does not get."""
    lost: tuple[Mapping[str, Any], ...] = ()
    serves: Mapping[str, Any] = field(default_factory=dict)
    truncates: Mapping[str, int] = field(default_factory=dict)
    """New sizes by file."""
    removes: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mode: str | None = None
    """See `Mode`."""
    mode_from: str = ""
    title: str = ""

    @property
    def reason(self) -> str:
        """The exception and its message; either may be absent."""
        return ": ".join(text for text in (self.error_class, self.error) if text)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries for the report. Fields of only some systems are omitted if empty."""
        out = asdict(self)
        for name in ("lost", "removes", "rewrites", "creates", "warnings"):
            out[name] = list(out[name])
        if self.mode is None:
            del out["mode"], out["mode_from"]
        if not self.title:
            del out["title"]
        return out


class Served(ABC):
    """The system has started, and serves the directory."""

    mode: Mode | None = None

    @abstractmethod
    def answers(self) -> Answers:
        """Read everything through the default view, as a client does."""
        ...

    @abstractmethod
    def lost(self) -> Iterable[LostRows] | None:
        """Return the rows that can be salvaged but are not served; None if unknown."""
        ...

    @abstractmethod
    def parts(self, view: str) -> Sequence[Part | Group] | None:
        """Return the rows of a view, in order, as ranges of the overlay's files; None if `rows` provides them.

        Files after the place where a client stops with an error are not included. Raises `UsageError` for a view that
        no client has.
        """
        ...

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a view that are not ranges of files, with these columns of its table, in bounded memory."""
        raise NotImplementedError(f"view {view} is read as parts")

    def settle(self, repair: SystemRepair) -> None:
        """For strategy system: adapt the overlay where the repair leaves other files than the system, and add the removed ranges of primary
        files."""
        repair.cut += [
            Removed(file.name, start, stop - start, "the system truncates or deletes it")
            for file, start, stop in repair.removed_ranges()
        ]


@dataclass(frozen=True)
class Refused:
    """The system does not start.

    `scope` is what fails with the store: the "process", the "log_dir", or only the "partition"; None if a library refuses to open it.
    `error` is the message it would print, `error_class` its exception.
    """

    scope: str | None
    error: str | None
    error_class: str | None
    warnings: Sequence[str] = ()
    rows: int | None = 0
    lost: Callable[[], Iterable[LostRows] | None] = lambda: None
    """As `Served.lost`."""
    mode: Mode | None = None


class Start(Protocol):
    """Follow the system's own code on an overlay of the directory, and make its changes there."""

    def __call__(self, overlay: Overlay, settings: Settings) -> Served | Refused: ...


def lost_runs(
    salvaged: Iterable[tuple[Bools, Callable[[int, int], Mapping[str, Any]]]],
) -> Iterator[LostRows]:
    """Yield the runs of lost rows among batches of salvaged rows.

    A batch is a mask of the lost rows and a function that describes the rows `[start, stop)` of the batch.
    """
    open_run = False
    for lost, where in salvaged:
        for start, stop in stretches(lost):
            if lost[start]:
                yield LostRows(stop - start, where(start, stop), continues=open_run)
            open_run = bool(lost[start])


# The simulation


@dataclass(frozen=True)
class Startup:
    """How a real system starts on a directory."""

    system: str
    """Its name, as in `Configuration.system`."""
    versions: Sequence[str]
    """The versions that can be simulated, the newest first."""
    start: Start
    last_stop: Callable[[Listing, bool | None], tuple[bool, str]] | None = None
    """Return whether the last stop was clean, and the source of that. The second argument is the option `clean`, None if it is absent.
    The field is None for a system that starts the same way after any stop; it refuses the option."""
    refusal: str = "the system does not start on it: {reason}"
    """The error of strategy `system` if the system does not start. `{error}` is its error, `{reason}` the error with its class."""
    advice: str = ""
    """The advice of that error: which strategy to use instead."""

    def version_of(self, asked: str | None, path: str | None = None) -> str:
        """Resolve a version: "4.3.0" and "kafka 4.3" are 4.3, and a line like "3.9" is its newest release.

        Raises `UsageError`.
        """
        number = self._number(asked)
        if not number:
            return self.versions[0]
        for known in self.versions:
            if f"{known}.".startswith(f"{number}.") or f"{number}.".startswith(f"{known}."):
                return known
        raise UsageError(
            f"unknown version {asked!r} of {self.system}",
            path=path,
            advice=f"Valid values: {', '.join(self.versions)}",
        )

    def run(
        self, listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
    ) -> Started:
        """Simulate the start. `version`: None is the newest. `clean`: None leaves it to the system's own marker.

        Raises `UsageError` for an unknown version.
        """
        return Started(self, Overlay(listing), self._settings(listing, plan, options, version, clean))

    def run_server(
        self,
        roots: Sequence[ServerDirectory],
        configuration: Mapping[str, str] | None,
        *,
        version: str | None,
    ) -> Started:
        """Simulate the start of a server on all its directories, up to loading data. Raises `UsageError` as `run` does."""
        listing = _Roots(roots)
        settings = self._settings(listing, Plan(()), Options(()), version, None)
        return Started(self, Overlay(listing), replace(settings, roots=roots, configuration=configuration))

    def _settings(
        self, listing: Listing, plan: Plan, options: Options, version: str | None, clean: bool | None
    ) -> Settings:
        stopped, known_from = (
            (bool(clean), "" if clean is None else "option")
            if self.last_stop is None
            else self.last_stop(listing, clean)
        )
        return Settings(
            options, self.version_of(version), self._number(version) != "", stopped, known_from, plan
        )

    def _number(self, asked: str | None) -> str:
        number = (asked or "").lower().removeprefix(self.system).strip(" -=v")
        return "" if number == "true" else number


class _Roots:
    """All files of a server's directories as one listing. Names are paths."""

    name = ""

    def __init__(self, roots: Sequence[ServerDirectory]) -> None:
        self._listings = {root.path: root.listing for root in roots if root.listing is not None}

    def entries(self) -> Sequence[Entry]:
        return [
            Entry(f"{path}/{entry.name}", entry.size)
            for path, listing in self._listings.items()
            for entry in listing.entries()
        ]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        path, _, inner = name.rpartition("/")
        return self._listings[path].read(inner, offset, length)

    def parent(self) -> None:
        return None


class Started:
    """A directory after the simulated start. Nothing is written.

    `after` is the directory as the system leaves it. `served` is None if the system does not start.
    """

    def __init__(self, startup: Startup, overlay: Overlay, settings: Settings) -> None:
        self.startup, self.after, self.settings = startup, overlay, settings
        self._outcome = startup.start(overlay, settings)

    @property
    def served(self) -> Served | None:
        return self._outcome if isinstance(self._outcome, Served) else None

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict. Computing it reads everything that is served."""
        outcome, settings, after = self._outcome, self.settings, self.after
        verdict = Verdict(self.startup.system, settings.version, settings.clean, settings.clean_from)
        answers: Answers | Refused = outcome if isinstance(outcome, Refused) else outcome.answers()
        if isinstance(outcome, Refused):
            verdict = replace(verdict, opens=False, scope=outcome.scope)
        served = {} if isinstance(answers, Refused) else answers.serves
        lost = outcome.lost()
        rows, ranges, warnings = (None, (), ()) if lost is None else _lost(lost)
        if outcome.mode is not None:
            mode = outcome.mode
            verdict = replace(verdict, mode=mode.name, mode_from=mode.known_from, title=mode.title)
        return replace(
            verdict,
            error=answers.error,
            error_class=answers.error_class,
            rows=answers.rows,
            rows_lost=rows,
            lost=ranges,
            serves={"first": None, "last": None, "stops_at": None, **served},
            truncates=after.truncated,
            removes=tuple(after.removed),
            rewrites=tuple(after.rewritten),
            creates=tuple(after.created),
            warnings=(*answers.warnings, *warnings),
        )

    def parts(self, view: str) -> Sequence[Part | Group] | None:
        """Return the rows of a view as ranges of the original files; None if `rows` provides them.

        Raises `UsageError` for a view that no client has.
        """
        parts = [] if self.served is None else self.served.parts(view)
        if parts is None:
            return None
        return [moved for part in parts for moved in self._below(part)]

    def _below(self, part: Part | Group) -> Iterator[Part | Group]:
        if isinstance(part, Group):
            yield part
            return
        origin = self.after.origin(part.file)
        if origin is not None and (part.stop is None or part.start < part.stop):
            stop = origin.stop if part.stop is None else origin.start + part.stop
            yield replace(part, file=origin.file, start=origin.start + part.start, stop=stop)

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Served.rows`."""
        if self.served is not None:
            yield from self.served.rows(view, columns)


def _lost(lost: Iterable[LostRows]) -> tuple[int | None, tuple[Mapping[str, Any], ...], list[str]]:
    """Return the number of lost rows, their ranges, and warnings."""
    total: int | None = 0
    ranges: list[dict[str, Any]] = []
    warnings = []
    current: dict[str, Any] = {}
    for run in lost:
        total = None if total is None or run.rows is None else total + run.rows
        if run.continues:
            current.update(join_lost(current, run.where))
        else:
            current = dict(run.where)
            if len(ranges) < MAX_RANGES:
                ranges.append(current)
        if run.warning:
            warnings.append(run.warning)
    return total, tuple(ranges), warnings


# Strategy system


class SystemRepair(RepairPlan):
    """Strategy system: keep the state that the real system leaves when it starts.

    `order` is `Layout.order`. Raises `DamageError` if the system does not start.
    """

    def __init__(self, started: Started, order: Callable[[Iterable[str]], Sequence[str]]) -> None:
        verdict, served, overlay = started.verdict, started.served, started.after
        super().__init__(overlay.below)
        if served is None:
            raise DamageError(
                started.startup.refusal.format(error=verdict.error, reason=verdict.reason),
                path=overlay.name,
                advice=started.startup.advice,
            )
        self.overlay, self.plan, self.verdict, self._order = overlay, started.settings.plan, verdict, order
        self.rows = verdict.rows or 0
        self.notes += verdict.warnings
        served.settle(self)

    def removed_ranges(self) -> Iterator[tuple[PlannedFile, int, int]]:
        """Yield the ranges `[start, stop)` of primary files that are in no file of the result."""
        kept: dict[str, list[tuple[int, int]]] = {}
        for entry in self.overlay.entries():
            for piece in self.overlay.pieces(entry.name):
                if isinstance(piece, Copy):
                    kept.setdefault(piece.file, []).append((piece.start, piece.stop))
        for file in self.plan.files:
            if file.role is not Role.PRIMARY:
                continue
            at = 0
            for start, stop in [*sorted(kept.get(file.name, [])), (file.size, file.size)]:
                if start > at:
                    yield file, at, start
                at = max(at, stop)

    def outputs(self) -> Iterator[OutputFile]:
        for name in self._order([entry.name for entry in self.overlay.entries()]):
            pieces = self.overlay.pieces(name)
            source = next((piece.file for piece in pieces if isinstance(piece, Copy)), None)
            yield OutputFile(name, pieces, name if name in self.sizes else source)
