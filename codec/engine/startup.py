"""Simulate the start of a real system on a directory: what it does to the files, what its clients then get, and what is lost.

A system gives one function, `start(overlay, settings) -> Served | Refused`, which follows the system's own code and changes an overlay of
the directory. All else is here, once for all systems: the verdict, the lost rows, what mode AS_SYSTEM reads, and the repair strategy
`system`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.engine.repair import OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError, UsageError, join_lost
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Group, Part

MAX_RANGES = 1000
"""The most ranges of lost rows that a verdict lists; rows of further ones are counted."""

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
    """Error of the operating system, where it cannot be listed."""
    listing: Listing | None = None
    folders: frozenset[str] = frozenset()
    """The names of the sub-directories."""
    open: Callable[[str], Listing | None] = lambda name: None
    """List a sub-directory; None where that fails."""
    read_only: bool = False
    """The file system is mounted read-only."""
    locked: bool = False
    """Another process holds the lock of the system."""


@dataclass(frozen=True)
class Settings:
    """The conditions of a start that are not in the files of its directory."""

    options: Options
    version: str
    """One of `Startup.versions`."""
    version_given: bool
    """False where no version was asked for, and this is the newest."""
    clean: bool
    """Whether the last stop counts as clean, and `clean_from` how that is known."""
    clean_from: str
    plan: Plan
    """What the layout says of the directory as it is."""
    roots: Sequence[ServerDirectory] = ()
    """The directories of a whole server, where it is started and not one of its stores."""
    configuration: Mapping[str, str] | None = None
    """What the configuration of a server says (`Configuration.settings`); None: its directories were given without it."""


@dataclass(frozen=True)
class Mode:
    """A mode of operation, in the system's own word, and how it is known."""

    name: str
    known_from: str
    title: str = ""
    """Name of the system in a sentence, where its name and version do not say it."""


@dataclass(frozen=True)
class Answers:
    """What a client gets when it reads everything."""

    rows: int | None
    serves: Mapping[str, Any]
    """First and last of the system's own numbers that are served, and where the client stops with an error (or None)."""
    error: str | None = None
    error_class: str | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LostRows:
    """Some undamaged rows, next to each other, that no client gets. `rows` is None where their number is not known."""

    rows: int | None
    where: Mapping[str, Any]
    """As `Fault.lost`; empty where it is not known."""
    continues: bool = False
    """They follow on the lost rows before, with no row between that is served."""
    warning: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the real system would do with a directory if it were started on it now. Nothing is started for it.

    `error` of a directory that opens is what its client stops with. See `Refused` and `Answers` for the other fields.
    """

    name: str
    version: str
    clean: bool
    """Whether the last stop counts as a clean one, and `clean_from` how that is known; "" where it makes no difference."""
    clean_from: str
    opens: bool = True
    scope: str | None = None
    error: str | None = None
    error_class: str | None = None
    rows: int | None = None
    rows_lost: int | None = None
    """Undamaged rows that a client does not get."""
    lost: tuple[Mapping[str, Any], ...] = ()
    serves: Mapping[str, Any] = field(default_factory=dict)
    truncates: Mapping[str, int] = field(default_factory=dict)
    """File by the size that it is cut to."""
    removes: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mode: str | None = None
    """Mode of operation, and `mode_from` how it is known, as in `Mode`."""
    mode_from: str = ""
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the report's form: plain lists and dictionaries, without what only some systems say."""
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
        """Read everything by the default view, as a client does."""
        ...

    @abstractmethod
    def lost(self) -> Iterable[LostRows] | None:
        """Return the rows that can be salvaged and are not served; None where that is not known."""
        ...

    @abstractmethod
    def parts(self, view: str) -> Sequence[Part | Group] | None:
        """Return what clients get by a view, in order, as stretches of the overlay's files; None where `rows` gives it.

        Files after the place where a client stops with an error are not included. Raises `UsageError` for a view that
        no client has.
        """
        ...

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a view that are not stretches of files, with these columns of its table, in bounded memory."""
        raise NotImplementedError(f"view {view} is read as parts")

    def settle(self, repair: SystemRepair) -> None:
        """For strategy system: change the overlay where the repair leaves other files than the system does, and note what of primary
        files is not kept."""
        repair.cut += [
            Removed(file.name, start, stop - start, "the system truncates or deletes it")
            for file, start, stop in repair.removed_ranges()
        ]


@dataclass(frozen=True)
class Refused:
    """The system does not come up.

    `scope` is what does not: the whole "process", the "log_dir" (or the system's word for one disk), or the "partition"
    (or ledger, or queue) alone. `error` is what it would print, `error_class` its exception.
    """

    scope: str
    error: str | None
    error_class: str | None
    serves: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    rows: int | None = 0
    lost: Callable[[], Iterable[LostRows] | None] = lambda: None
    """As `Served.lost`."""
    mode: Mode | None = None


class Start(Protocol):
    """Follow the system's own code on an overlay of the directory, which then has every change that the system would make."""

    def __call__(self, overlay: Overlay, settings: Settings) -> Served | Refused: ...


def lost_runs(
    salvaged: Iterable[tuple[npt.NDArray[np.bool_], Callable[[int, int], Mapping[str, Any]]]],
) -> Iterator[LostRows]:
    """Return the runs of rows that are lost, of salvaged rows piece by piece.

    Each piece is a mask of the rows that are lost, and a function that describes the rows `[start, stop)` of the piece.
    """
    open_run = False
    for lost, where in salvaged:
        if not len(lost):
            continue
        edges = [0, *(np.flatnonzero(np.diff(lost)) + 1).tolist(), len(lost)]
        for start, stop in pairwise(edges):
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
    """Return whether the last stop was clean, and how that is known. Its second argument is what the user says, None where that is
    nothing. The field is None for a system that starts alike after any stop: the option `clean` is refused."""
    refusal: str = "the system does not start on it: {reason}"
    """The error of strategy `system` where the system does not start. `{error}` is its error, `{reason}` the error with its class."""
    advice: str = ""
    """The advice of that error: which strategy to use instead."""

    def version_of(self, asked: str | None, path: str | None = None) -> str:
        """Return the version that is meant: "4.3.0" and "kafka 4.3" are 4.3, and a line like "3.9" is its newest release.

        Raises `UsageError`.
        """
        number = self._number(asked)
        if not number:
            return self.versions[0]
        for known in self.versions:
            if f"{known}.".startswith(f"{number}.") or f"{number}.".startswith(f"{known}."):
                return known
        raise UsageError(
            f"no version {asked!r} of the system is known",
            path=path,
            advice=f"There are: {', '.join(self.versions)}",
        )

    def run(
        self, listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
    ) -> Started:
        """Simulate the start. `version` None is the newest; `clean` None: the system's own marker decides.

        Raises `UsageError` for a version that is not known.
        """
        return Started(self, Overlay(listing), self._settings(listing, plan, options, version, clean))

    def run_server(
        self,
        roots: Sequence[ServerDirectory],
        configuration: Mapping[str, str] | None,
        *,
        version: str | None,
    ) -> Started:
        """Simulate the start of a server on all its directories, before it loads data. Raises `UsageError` as `run` does."""
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
    """The files of the directories of a server as one listing, each under the path of its directory."""

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
    """A directory after the simulated start. Nothing is started, and nothing is written.

    `after` is the directory as the system leaves it, `served` None where it does not come up.
    """

    def __init__(self, startup: Startup, overlay: Overlay, settings: Settings) -> None:
        self.startup, self.after, self.settings = startup, overlay, settings
        self._outcome = startup.start(overlay, settings)

    @property
    def served(self) -> Served | None:
        return self._outcome if isinstance(self._outcome, Served) else None

    @cached_property
    def verdict(self) -> Verdict:
        """All that is served is read for it."""
        outcome, settings, after = self._outcome, self.settings, self.after
        verdict = Verdict(self.startup.system, settings.version, settings.clean, settings.clean_from)
        answers: Answers | Refused = outcome if isinstance(outcome, Refused) else outcome.answers()
        if isinstance(outcome, Refused):
            verdict = replace(verdict, opens=False, scope=outcome.scope)
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
            serves=answers.serves,
            truncates=after.truncated,
            removes=tuple(after.removed),
            rewrites=tuple(after.rewritten),
            creates=tuple(after.created),
            warnings=(*answers.warnings, *warnings),
        )

    def parts(self, view: str) -> Sequence[Part | Group] | None:
        """Return what clients get by a view, as stretches of the files as they are now; None where `rows` gives it.

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
    """Leave of a directory what the real system leaves when it starts.

    `order` is that of the layout (`Layout.order`). Raises `DamageError` where the system does not start.
    """

    def __init__(self, started: Started, order: Callable[[Iterable[str]], Sequence[str]]) -> None:
        verdict, served, overlay = started.verdict, started.served, started.after
        super().__init__(overlay.below)
        if served is None:
            reason = ": ".join(text for text in (verdict.error_class, verdict.error) if text)
            raise DamageError(
                started.startup.refusal.format(error=verdict.error, reason=reason),
                path=overlay.name,
                advice=started.startup.advice,
            )
        self.overlay, self.plan, self.verdict, self._order = overlay, started.settings.plan, verdict, order
        self.rows = verdict.rows or 0
        self.notes += verdict.warnings
        served.settle(self)

    def removed_ranges(self) -> Iterator[tuple[PlannedFile, int, int]]:
        """Return the ranges `[start, stop)` of primary files of which no file of the result is made."""
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
