"""What the real system would do with a directory if it were started on it now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from logwright.codec.store.listing import Listing
from logwright.codec.store.view import Group, Part


@dataclass(frozen=True)
class Verdict:
    """What the real system would do with a directory if it were started on it now. Nothing is started for it.

    `scope` says what does not come up where `opens` is False: the whole "process", the "log_dir" (or what the system calls a
    disk of its own), or the "partition" (or ledger, or queue) alone. `error` is what it would say, `error_class` its exception.
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
    """So many rows does a client get by the default view; `rows_lost` are undamaged ones that it does not get."""
    rows_lost: int | None = None
    lost: tuple[Mapping[str, Any], ...] = ()
    serves: Mapping[str, Any] = field(default_factory=dict)
    """First and last of the system's own numbers that are served, and where its client stops with an error (or None)."""
    truncates: Mapping[str, int] = field(default_factory=dict)
    """File by the size that it is cut to."""
    removes: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mode: str | None = None
    """Mode of operation that was assumed, in the system's own word, and how it is known."""
    mode_from: str = ""
    title: str = ""
    """Name of the system in a sentence, where name and version do not say it."""

    def to_dict(self) -> dict[str, Any]:
        """As the report has it."""
        return {
            "name": self.name,
            "version": self.version,
            "clean": self.clean,
            "clean_from": self.clean_from,
            "opens": self.opens,
            "scope": self.scope,
            "error": self.error,
            "error_class": self.error_class,
            "rows": self.rows,
            "rows_lost": self.rows_lost,
            "lost": [dict(one) for one in self.lost],
            "serves": dict(self.serves),
            "truncates": dict(self.truncates),
            "removes": list(self.removes),
            "rewrites": list(self.rewrites),
            "creates": list(self.creates),
            "warnings": list(self.warnings),
            **({} if self.mode is None else {"mode": self.mode, "mode_from": self.mode_from}),
            **({"title": self.title} if self.title else {}),
        }


class Opened(Protocol):
    """A directory as the real system would leave it after its start."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def after(self) -> Listing:
        """The directory with everything cut, removed, renamed and made anew; the one asked about is as it was."""
        ...

    def parts(self, view: str) -> Sequence[Part | Group]:
        """What its clients get, in order, as stretches of the files as they are now. What lies behind the place where a client
        stops with an error is not among them."""
        ...

    def serves(self, view: str) -> bool:
        """Whether the rows of a view come from `serve`, because they are no stretches of files, and not from `parts`.

        Raises `UsageError` for a view that no client has.
        """
        ...

    def serve(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a view that `serves` names, with these columns of its table, in bounded memory."""
        ...


class RootState(StrEnum):
    """Whether a directory that a system is started on can be listed."""

    DIRECTORY = "directory"
    MISSING = "missing"
    FILE = "file"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Root:
    """One of the directories that a system is started on, whatever its state."""

    path: str
    state: RootState
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


@runtime_checkable
class Starts(Protocol):
    """Optional for a `Gathering`: predict the start of the system on all directories that it is given."""

    system: str
    """As in `Configuration.system`."""
    lock: str
    """Name of the lock file in each directory."""
    versions: Sequence[str]

    def start(
        self, roots: Sequence[Root], settings: Mapping[str, str] | None, *, version: str | None
    ) -> Verdict:
        """Predict what happens before data is loaded. `settings` are those of a configuration (`Configuration.settings`); None: a
        directory was given without its configuration. `version` None: the newest."""
        ...
