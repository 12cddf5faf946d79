"""A request of `spark.read`, parsed: options, paths, and the targets to read."""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from logwright.codec import registry
from logwright.codec.deferred import deferred
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, fold, parse_bool, parse_int, parse_text
from logwright.readers.follow import PACE_OPTIONS, Following
from logwright.readers.listing import open_listing
from logwright.readers.paths import expand, is_directory
from logwright.readers.plan import AsSystem, Reading, reading
from logwright.readers.replicas import choose_replicas
from logwright.readers.resolve import resolve
from logwright.readers.source import is_remote, local_path
from logwright.readers.stream import CORRUPT_NAMES, Mode, stored_columns
from logwright.readers.target import DirectoryTarget, Skipped, Target
from logwright.readers.task import Task, Work, known_options

if TYPE_CHECKING:
    from logwright.readers import startup
else:
    startup = deferred("logwright.readers", "startup")

OPTIONS = (
    Option("codec", None, "Format of the path; detected by default.", parse_text),
    Option("view", None, "View to read.", parse_text),
    Option("mode", "FAILFAST", "FAILFAST, PERMISSIVE, DROPMALFORMED or AS_SYSTEM.", parse_text),
    Option(
        "as_system",
        None,
        "Version of the real system in mode AS_SYSTEM; the newest known by default.",
        parse_text,
    ),
    Option(
        "clean",
        None,
        "Whether the system was stopped cleanly; by default its own marker decides.",
        parse_bool,
    ),
    Option("columns", None, 'Comma-separated; "*" for all, including detail columns.', parse_text),
    Option(
        "columnNameOfCorruptRecord",
        "_corrupt_record",
        "Name of the column with the bytes of a damaged region, in mode PERMISSIVE.",
        parse_text,
    ),
    Option(
        "badRecordsPath",
        None,
        "Folder for all faults: a dated folder per read, with a JSON lines file per task.",
        parse_text,
    ),
    Option("includeMetadata", False, "Add _path and _position (byte offset of the frame).", parse_bool),
    Option("maxPartitionBytes", 128 << 20, "Maximum bytes of files per task.", parse_int, low=1),
    Option("pathGlobFilter", None, "Only files and directories with matching names.", parse_text),
    Option("recursiveFileLookup", False, "Search the path for directories at any depth.", parse_bool),
    Option("ignoreMissingFiles", False, "Treat a missing path as empty.", parse_bool),
    Option(
        "failOnDataLoss",
        True,
        "Fail if rows were deleted before they were read.",
        parse_bool,
    ),
    Option("minPartitions", None, "Minimum number of tasks, as far as files can be divided.", low=1),
    Option(
        "maxRecordsPerPartition",
        None,
        "Maximum number of offsets per task, as far as files can be divided.",
        low=1,
    ),
    *PACE_OPTIONS,
    Option(
        "pushFilters",
        False,
        "Skip frames by Spark's filters; requires spark.sql.python.filterPushdown.enabled.",
        parse_bool,
    ),
)
"""Options of the source, in addition to those of the codec."""


@dataclass(frozen=True)
class Request:
    """The parsed options of `spark.read`."""

    words: Options
    paths: tuple[str, ...]
    options: Mapping[str, Any]
    """Options of the codec or layout."""
    follow: Mapping[str, str] = field(default_factory=dict)
    """Options in `Follow.options`."""
    skipped: Skipped = field(default_factory=Skipped, compare=False)
    """Stores at the paths that are not read, as of the last search."""

    @classmethod
    def of(cls, passed: Mapping[str, str]) -> Request:
        known = {fold(option.name) for option in OPTIONS}
        words = {name: value for name, value in passed.items() if fold(name) in known}
        rest = {name: value for name, value in passed.items() if fold(name) not in known | {"path", "paths"}}
        follow = {name: value for name, value in rest.items() if fold(name) in follow_names()}
        rest = {name: value for name, value in rest.items() if name not in follow}
        return cls(Options(OPTIONS, words), paths_of(passed), registry.numbers(rest), follow)

    def check_batch(self) -> None:
        """Raise `UsageError` for options that only a stream uses."""
        words = {option.name for option in PACE_OPTIONS} | ({"failOnDataLoss"} if not self.follow else set())
        for name in sorted(words):
            if self.words.given(name):
                raise UsageError(
                    f"option {name} does not apply to spark.read",
                    path=", ".join(self.paths),
                    advice="It works with spark.readStream. Omit it",
                )

    def reading(self) -> Reading | None:
        """Plan the read; None if nothing exists and that is allowed."""
        targets = self.targets()
        if not targets:
            return None
        if not self.follow:
            if self.started is not None:
                startup.check_start(self.paths, self.words["codec"], version=self.started.version)
            plan = reading(targets, self.words["view"], self.started)
            return replace(plan, notes=(*self.skipped.sentences, *plan.notes))
        if self.started is not None:
            raise UsageError(
                f"{next(iter(self.follow))} cannot be combined with mode=AS_SYSTEM", advice="Omit one of them"
            )
        return self._part_of(targets)

    def _part_of(self, targets: Sequence[Target]) -> Reading:
        """Plan the part that the options for following select."""
        following = self.following(self.layout_of(targets), lambda: targets)
        plan = reading(targets, following.view)
        tasks: list[Work] = []
        for name, (target, low, high) in following.spans(stream=False).items():
            parts = following.of(name).between(target, low, high, self.words["maxRecordsPerPartition"])
            tasks += [part.with_files(Task.named) if len(targets) > 1 else part for part in parts]
        return replace(plan, tasks=tuple(tasks))

    def following(self, layout: Layout, look: Callable[[], Sequence[Target]]) -> Following:
        """Return a follower of directories of a layout."""

        def directories() -> list[DirectoryTarget]:
            targets = look()
            return (
                [target for target in choose_replicas(targets) if isinstance(target, DirectoryTarget)]
                if targets
                else []
            )

        words, view = self.follow_words(layout), self.words["view"]
        return Following(directories, layout, view, words, fail_on_loss=self.words["failOnDataLoss"])

    def follow_words(self, layout: Layout) -> Options:
        """Return the options for following a layout. Raises `UsageError` if it cannot be followed."""
        if layout.capabilities.follow is None:
            word = next(iter(self.follow), None)
            problem = "cannot be followed" if word is None else f"has no option {word}"
            raise UsageError(
                f"a {layout.name} {problem}: its rows have no stable positions, since its system rewrites its files",
                path=", ".join(self.paths),
                advice="Read its current content with spark.read",
            )
        return Options(layout.capabilities.follow.options, self.follow)

    def layout_of(self, targets: Sequence[Target]) -> Layout:
        """Return the layout of the targets, or the one named. Raises `UsageError` for files, and for different layouts."""
        named = {layout.name: layout for layout in registry.layouts()}.get(self.words["codec"])
        layouts = {
            target.layout.name: target.layout for target in targets if isinstance(target, DirectoryTarget)
        }
        if any(not isinstance(target, DirectoryTarget) for target in targets):
            raise UsageError(
                "only a directory can be followed, but this is a file", path=", ".join(self.paths)
            )
        if len(layouts) > 1:
            raise UsageError(
                f"directories of different layouts: {', '.join(layouts)}",
                path=", ".join(self.paths),
                advice='Choose one: .option("codec", ...)',
            )
        layout = next(iter(layouts.values()), named)
        if layout is None:
            raise NotFoundError(
                "no requested directory exists",
                path=", ".join(self.paths),
                advice='Set the format that it will have: .option("codec", ...)',
            )
        return layout

    def found(self) -> list[Target]:
        """Return all targets at the paths; [] if nothing exists and that is allowed."""
        paths = [targets for path in self.paths for targets in self._below(path)]
        if self.words["ignoreMissingFiles"]:
            paths = [path for path in paths if is_remote(path) or os.path.exists(local_path(path))]
        if pattern := self.words["pathGlobFilter"]:
            paths = [match for path in paths for match in self._matching(path, pattern)]
        if not paths:
            if self.words["ignoreMissingFiles"]:
                return []
            raise NotFoundError("no files to read", path=", ".join(self.paths), advice="Check pathGlobFilter")
        return self._resolve(paths)

    def _matching(self, path: str, pattern: str) -> list[str]:
        """Return the path if its name matches, or the paths of the matching stores in a directory of stores."""

        def matches(path: str) -> bool:
            return fnmatch.fnmatchcase(os.path.basename(path.rstrip("/")), pattern)

        if matches(path):
            return [path]
        if not is_directory(path) or open_listing(path).layout is not None:
            return []
        try:
            targets = self._resolve([path])
        except UsageError:  # no store there
            return []
        return [target.path for target in targets if matches(target.path)]

    def targets(self) -> list[Target]:
        """Return the requested targets; [] if nothing exists and that is allowed."""
        targets = self.found()
        if not self.follow:
            return targets
        return [
            target
            for target in targets
            if not isinstance(target, DirectoryTarget)
            or target.layout.capabilities.follow is None
            or target.layout.capabilities.follow.wanted(
                target.directory.name, self.follow_words(target.layout)
            )
        ]

    def left_out(self) -> Sequence[str]:
        """Return the columns to omit if no columns are named."""
        if not self.follow or self.words["columns"] is not None:
            return ()
        out: list[str] = []
        for layout in registry.layouts():
            follow = layout.capabilities.follow
            if follow is not None:
                words = Options(follow.options, known_options(self.follow, follow.options))
                out += follow.leaves_out(words)
        return out

    @property
    def columns(self) -> Sequence[str] | str | None:
        """The columns of the table that are requested by name."""
        added = (self.words["columnNameOfCorruptRecord"], *CORRUPT_NAMES)
        return stored_columns(self.words["columns"], self.mode, added)

    @property
    def mode(self) -> Mode:
        return Mode.of(self.words["mode"])

    @property
    def started(self) -> AsSystem | None:
        """Return the system whose rows are read in mode `AS_SYSTEM`."""
        requested = AsSystem(self.words["as_system"], self.words["clean"])
        if self.mode is Mode.AS_SYSTEM:
            return requested
        if requested != AsSystem():
            raise UsageError("as_system and clean need mode AS_SYSTEM", advice="Add mode=AS_SYSTEM")
        return None

    def _resolve(self, paths: Sequence[str]) -> list[Target]:
        try:
            self.skipped.notes.clear()
            self.skipped.unopened.clear()
            return resolve(
                paths, self.words["codec"], self.options,
                skipped=self.skipped, stores_only=True, served=True, view=self.words["view"],
            )  # fmt: skip
        except UsageError as error:
            for name in self.options:
                ours = {fold(option.name): option.name for option in OPTIONS} | follow_names()
                near = difflib.get_close_matches(fold(name), ours, n=1, cutoff=0.7)
                if near and error.message == f"unknown option {name!r}":
                    error.advice = f"Did you mean {ours[near[0]]!r}?"
            raise

    def _below(self, path: str) -> Iterator[str]:
        try:
            paths = expand(path)
        except NotFoundError:
            if self.words["ignoreMissingFiles"]:
                return
            raise
        for place in paths:
            if self.words["recursiveFileLookup"] and not is_remote(place):
                inner = (
                    os.path.join(base, name)
                    for base, names, _ in os.walk(local_path(place))
                    for name in names
                )
                stores: dict[str, Layout] = {}
                for folder in sorted([place, *inner]):
                    layout = open_listing(folder).layout
                    # A folder of a store may look like a store of its kind.
                    around = (other for above, other in stores.items() if folder.startswith(f"{above}/"))
                    if layout is not None and layout not in around:
                        stores[folder] = layout
                yield from stores
            else:
                yield place


def paths_of(passed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths: `load(path)` passes `path`, `load([a, b])` passes JSON in `paths`."""
    paths = [passed["path"]] if passed.get("path") else []
    if passed.get("paths"):
        paths += json.loads(passed["paths"])
    if not paths:
        raise UsageError("no path given", advice="Pass one: .load(path)")
    return tuple(path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path
                 for path in paths)  # fmt: skip


def follow_names() -> dict[str, str]:
    """Return all options for following, by folded name."""
    follows = [layout.capabilities.follow for layout in registry.layouts()]
    return {
        fold(option.name): option.name
        for follow in follows
        if follow is not None
        for option in follow.options
    }
