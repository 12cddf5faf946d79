"""Targets: a file with its codec, or a directory with its layout and plan."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.engine.correct import Fix
from logwright.codec.fault import LogwrightError
from logwright.codec.layout import Container, Layout
from logwright.codec.option import Option, Options, Verb, fold, parse_choice, sealed
from logwright.codec.store.listing import Plan
from logwright.readers import usage
from logwright.readers.corrected import with_corrections
from logwright.readers.listing import Directory, LoneFile
from logwright.readers.paths import name_of
from logwright.readers.rescue import OPTIONS as RESCUE_OPTIONS
from logwright.readers.rescue import Rescue
from logwright.readers.source import STDIN, Source, is_remote, local_path, open_source
from logwright.readers.task import known_options

REPLICA_OPTIONS = (
    Option(
        "replicas",
        None,
        "If a partition (or other store) is found more than once: read the first or the longest replica.",
        parse_choice,
        ("first", "longest"),
    ),
)
"""Options of `readers.replicas`."""


@dataclass
class Skipped:
    """The stores that a search left out."""

    notes: list[str] = field(default_factory=list)
    """A sentence about each thing."""
    unopened: list[LogwrightError] = field(default_factory=list)
    """The errors of stores, or of folders that may be stores, that could not be opened. A caller that needs all stores raises the first."""

    @property
    def sentences(self) -> list[str]:
        """A sentence about each thing, and about each error."""
        return [*self.notes, *(f"skipped: {error}" for error in self.unopened)]


@dataclass(frozen=True)
class FileTarget:
    """A file and its codec."""

    path: str
    codec: Codec
    options: Mapping[str, Any]
    source: Source | None = None
    """The open standard input, which cannot be opened again."""
    around: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the file from the plan of its directory, such as whether it is the last of its kind."""
    configured: frozenset[str] = frozenset()
    """As in `DirectoryTarget`."""
    corrections: Sequence[Fix] = ()
    """As in `Task`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sealed(self.options, self.codec.options))

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def passed_options(self) -> list[str]:
        """Return the names of the options that the caller passed."""
        return _passed_options(self.options, self.configured)

    @property
    def hints(self) -> dict[str, Any]:
        """Return the hints for decoding."""
        if self.path == STDIN:
            return {"directory": ""}
        if is_remote(self.path):
            return {"directory": self.path.rstrip("/").split("/")[-2]}
        folder = os.path.dirname(os.path.abspath(local_path(self.path)))
        return {"directory": os.path.basename(folder), **self.around}

    def open(self) -> Source:
        return self.source or with_corrections(
            open_source(self.path, rescue=Rescue.of(self.options)), self.corrections
        )


@dataclass(frozen=True)
class DirectoryTarget:
    """A directory, its layout and its plan."""

    path: str
    directory: Directory
    layout: Layout
    options: Mapping[str, Any]
    plan: Plan
    live: bool | None
    configured: frozenset[str] = frozenset()
    """Folded names of options from a configuration file. They are ignored where they do not apply."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sealed(self.options, self.layout.read_options))

    @property
    def passed_options(self) -> list[str]:
        """Return the names of the options that the caller passed."""
        return _passed_options(self.options, self.configured)

    @property
    def layout_options(self) -> Options:
        return Options(self.layout.read_options, known_options(self.options, self.layout.read_options))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of its files by name."""
        return {entry.name: entry.size for entry in self.directory.entries()}

    def hints(self, hints: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hints for decoding a file, given those of its plan."""
        return {"directory": self.directory.name, "live": self.live, **hints}


Target = FileTarget | DirectoryTarget


def _passed_options(options: Mapping[str, Any], configured: frozenset[str]) -> list[str]:
    return [name for name, value in options.items() if value is not None and fold(name) not in configured]


@dataclass(frozen=True)
class Stores:
    """A directory of stores, such as a log directory with its partitions or a folder of databases."""

    path: str
    directory: Directory
    container: Container | None
    """Its kind, if known."""
    targets: Sequence[DirectoryTarget]
    """The stores; a directory comes before those inside it."""


def layouts_of(codec: Codec) -> list[tuple[Layout, Sequence[str]]]:
    """Return the layouts with views that need only a file of this codec, and these views (`Layout.alone`)."""
    return [(layout, layout.alone[codec.name]) for layout in registry.layouts() if codec.name in layout.alone]


def alone(target: FileTarget, view: str) -> DirectoryTarget | None:
    """Return the file as the only file of a directory, for a view of a layout; None if there is no such view."""
    layout = next((candidate for candidate, views in layouts_of(target.codec) if view in views), None)
    if layout is None or target.source is not None:
        return None
    with target.open() as source:
        directory = LoneFile(target.path, source.size, Rescue.of(target.options))
    known = Options(layout.read_options, known_options(target.options, layout.read_options))
    return DirectoryTarget(
        target.path, directory, layout, target.options, layout.plan(directory, known), None, target.configured
    )


def kind(target: Target) -> str:
    """Return the name of the codec or layout."""
    return target.codec.name if isinstance(target, FileTarget) else target.layout.name


def flags(target: Target, verb: Verb, *, roots: bool = True) -> str:
    """Return the options of a target that a verb uses, as its command line takes them.

    These are the options that the caller passed, those of a configuration file that differ from their defaults, and, unless `roots` is
    false, the further roots of a directory.
    """
    owner, declared = _declared(target)
    known = Options(declared, known_options(target.options, declared))
    values: dict[str, Any] = {}
    for option in declared:
        value = known[option.name]
        if isinstance(owner, Layout) and option.name in owner.root_options:
            shown = value if roots else None
        elif known.given(option.name) and value != option.default:
            shown = _shown(target, option, value)
        else:
            shown = None
        if shown is not None and usage.uses(target, option.name, verb):
            values[option.name] = shown
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in values.items())


def _declared(target: Target) -> tuple[Codec | Layout, Sequence[Option]]:
    """Return the codec or layout of a target, and its options for reading."""
    if isinstance(target, FileTarget):
        return target.codec, (*target.codec.options, *RESCUE_OPTIONS)
    return target.layout, (*target.layout.read_options, *RESCUE_OPTIONS)


def _shown(target: Target, option: Option, value: Any) -> Any:
    """Return the value of an option as the caller gave it, or for a secret one where it is."""
    if option.secret:
        return value.origin or "env:NAME"
    passed = next(text for name, text in target.options.items() if fold(name) == fold(option.name))
    return passed if isinstance(passed, str | int | float) else value
