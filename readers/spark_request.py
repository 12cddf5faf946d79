"""What `spark.read` was given, understood: options, paths, what lies there, and what of it is asked for."""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, fold, parse_bool, parse_int, parse_text
from logwright.readers.copies import one_of_each
from logwright.readers.follow import PACE_OPTIONS, Following
from logwright.readers.plan import AsSystem, Reading, reading
from logwright.readers.resolve import DirectoryTarget, Target, expand, resolve
from logwright.readers.source import is_remote, local_path
from logwright.readers.stream import Mode
from logwright.readers.task import Task, Work, known_options

OPTIONS = (
    Option("codec", None, "What lies at the path; recognised when left away.", parse_text),
    Option("view", None, "What to see of it.", parse_text),
    Option("mode", "FAILFAST", "FAILFAST, PERMISSIVE, DROPMALFORMED or AS_SYSTEM.", parse_text),
    Option(
        "as_system",
        None,
        "The version of the system asked about, in mode AS_SYSTEM; the newest known.",
        parse_text,
    ),
    Option(
        "clean", None, "Whether its last stop was a clean one; by default its own marker says.", parse_bool
    ),
    Option("columns", None, 'Comma-separated; "*" is all, detail columns too.', parse_text),
    Option(
        "columnNameOfCorruptRecord",
        "_corrupt_record",
        "The name of the column with the bytes of a damaged region, in mode PERMISSIVE.",
        parse_text,
    ),
    Option(
        "badRecordsPath",
        None,
        "A folder where every fault met is written down: a dated folder for each read, JSON lines, a file for each task.",
        parse_text,
    ),
    Option("includeMetadata", False, "Add _path and _position (the byte of the frame).", parse_bool),
    Option("maxPartitionBytes", 128 << 20, "Bytes of files that one task reads.", parse_int, low=1),
    Option("pathGlobFilter", None, "Only files and directories with such names.", parse_text),
    Option(
        "recursiveFileLookup", False, "Take the path as a folder of directories at any depth.", parse_bool
    ),
    Option("ignoreMissingFiles", False, "A path that does not exist has no rows.", parse_bool),
    Option(
        "failOnDataLoss",
        True,
        "Whether it is an error that rows are gone which were not read yet.",
        parse_bool,
    ),
    Option("minPartitions", None, "So many tasks at least, as far as the files can be cut.", low=1),
    Option(
        "maxRecordsPerPartition",
        None,
        "So many offsets at most for one task, as far as the files can be cut.",
        low=1,
    ),
    *PACE_OPTIONS,
    Option(
        "pushFilters",
        False,
        "Skip frames by Spark's filters; needs spark.sql.python.filterPushdown.enabled.",
        parse_bool,
    ),
)
"""What the source takes besides the options of the codec."""


@dataclass(frozen=True)
class Request:
    """What `spark.read` was given, understood."""

    words: Options
    paths: tuple[str, ...]
    options: Mapping[str, Any]
    """The rest: for the codec or layout."""
    follow: Mapping[str, str] = field(default_factory=dict)
    """What is for `Follow.options`."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Request:
        known = {fold(option.name) for option in OPTIONS}
        words = {name: value for name, value in given.items() if fold(name) in known}
        rest = {name: value for name, value in given.items() if fold(name) not in known | {"path", "paths"}}
        follow = {name: value for name, value in rest.items() if fold(name) in follow_names()}
        rest = {name: value for name, value in rest.items() if name not in follow}
        return cls(Options(OPTIONS, words), paths_of(given), registry.numbers(rest), follow)

    def check_batch(self) -> None:
        """Raise `UsageError` for options that only a stream uses."""
        words = {option.name for option in PACE_OPTIONS} | ({"failOnDataLoss"} if not self.follow else set())
        for name in sorted(words):
            if self.words.given(name):
                raise UsageError(
                    f"option {name} has no effect here (spark.read)",
                    path=", ".join(self.paths),
                    advice="It works with spark.readStream. Leave it out here",
                )

    def reading(self) -> Reading | None:
        """What is to be read; None when nothing is there and that is allowed."""
        targets = self.targets()
        if not targets:
            return None
        if not self.follow:
            return reading(targets, self.words["view"], self.started)
        if self.started is not None:
            raise UsageError(
                f"{next(iter(self.follow))} does not go with mode=AS_SYSTEM", advice="Leave one of them away"
            )
        return self._part_of(targets)

    def _part_of(self, targets: Sequence[Target]) -> Reading:
        """What the words for following cut out."""
        following = self.following(self.layout_of(targets), lambda: targets)
        found = reading(targets, following.view)
        tasks: list[Work] = []
        for name, (target, low, high) in following.spans(stream=False).items():
            some = following.of(name).between(target, low, high, self.words["maxRecordsPerPartition"])
            tasks += [one.with_files(Task.named) if len(targets) > 1 else one for one in some]
        return replace(found, tasks=tuple(tasks))

    def following(self, layout: Layout, look: Callable[[], Sequence[Target]]) -> Following:
        """What follows directories of a layout."""

        def directories() -> list[DirectoryTarget]:
            found = look()
            return [one for one in one_of_each(found) if isinstance(one, DirectoryTarget)] if found else []

        words, view = self.follow_words(layout), self.words["view"]
        return Following(directories, layout, view, words, fail_on_loss=self.words["failOnDataLoss"])

    def follow_words(self, layout: Layout) -> Options:
        """The words for following, of this layout. Raises `UsageError` where it can't be followed."""
        if layout.capabilities.follow is None:
            word = next(iter(self.follow), None)
            said = "can't be followed" if word is None else f"knows no {word}"
            raise UsageError(
                f"a {layout.name} {said}: its rows have no positions that last, since its system writes its files anew",
                path=", ".join(self.paths),
                advice="Read it as it is now: spark.read",
            )
        return Options(layout.capabilities.follow.options, self.follow)

    def layout_of(self, targets: Sequence[Target]) -> Layout:
        """That of the targets, or the one that is named. Raises `UsageError` for files, and for different ones."""
        named = {layout.name: layout for layout in registry.layouts()}.get(self.words["codec"])
        layouts = {one.layout.name: one.layout for one in targets if isinstance(one, DirectoryTarget)}
        if any(not isinstance(one, DirectoryTarget) for one in targets):
            raise UsageError("this is a file, only a directory can be followed", path=", ".join(self.paths))
        if len(layouts) > 1:
            raise UsageError(
                f"these are of different kinds: {', '.join(layouts)}", path=", ".join(self.paths)
            )
        found = next(iter(layouts.values()), named)
        if found is None:
            raise NotFoundError(
                "nothing of what is asked for is there",
                path=", ".join(self.paths),
                advice='Say what it will be: .option("codec", ...)',
            )
        return found

    def targets(self) -> list[Target]:
        """What lies at the paths, and is asked for; nothing when nothing is there and that is allowed."""
        paths = [found for path in self.paths for found in self._below(path)]
        if self.words["ignoreMissingFiles"]:
            paths = [path for path in paths if is_remote(path) or os.path.exists(local_path(path))]
        if pattern := self.words["pathGlobFilter"]:
            paths = [
                path for path in paths if fnmatch.fnmatchcase(os.path.basename(path.rstrip("/")), pattern)
            ]
        if not paths:
            if self.words["ignoreMissingFiles"]:
                return []
            raise NotFoundError(
                "nothing to read here", path=", ".join(self.paths), advice="Check pathGlobFilter"
            )
        found = self._resolve(paths)
        if not self.follow:
            return found
        return [
            one
            for one in found
            if not isinstance(one, DirectoryTarget)
            or one.layout.capabilities.follow is None
            or one.layout.capabilities.follow.wanted(one.directory.name, self.follow_words(one.layout))
        ]

    def left_out(self) -> Sequence[str]:
        """Columns that are not given, where none are named."""
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
    def mode(self) -> Mode:
        return Mode.of(self.words["mode"])

    @property
    def started(self) -> AsSystem | None:
        """The system that is asked what it would serve, in mode `AS_SYSTEM`."""
        asked = AsSystem(self.words["as_system"], self.words["clean"])
        if self.mode is Mode.AS_SYSTEM:
            return asked
        if asked != AsSystem():
            raise UsageError(
                "as_system and clean say which system is asked", advice="They go with mode=AS_SYSTEM"
            )
        return None

    def _resolve(self, paths: Sequence[str]) -> list[Target]:
        try:
            found = resolve(paths, self.words["codec"], self.options, passed=[])
            if all(one.path in paths for one in found):
                return found
            # A folder stands for the directories in it that can be followed, a log directory for its partitions.
            inside = [
                one
                for one in found
                if isinstance(one, DirectoryTarget) and one.layout.capabilities.follow is not None
            ]
            return list(inside) or resolve(paths, self.words["codec"], self.options, passed=[], gathered=True)
        except UsageError as error:
            for name in self.options:
                ours = {fold(option.name): option.name for option in OPTIONS} | follow_names()
                near = difflib.get_close_matches(fold(name), ours, n=1, cutoff=0.7)
                if near and error.message == f"unknown option {name!r}":
                    error.advice = f"Did you mean {ours[near[0]]!r}?"
            raise

    def _below(self, path: str) -> Iterator[str]:
        try:
            found = expand(path)
        except NotFoundError:
            if self.words["ignoreMissingFiles"]:
                return
            raise
        for one in found:
            if self.words["recursiveFileLookup"] and not is_remote(one):
                inner = [
                    os.path.join(base, name) for base, names, _ in os.walk(local_path(one)) for name in names
                ]
                yield from sorted(folder for folder in [one, *inner] if _recognised(folder))
            else:
                yield one


def _recognised(folder: str) -> bool:
    from logwright.readers.listing import open_listing

    return registry.detect_layout(open_listing(folder)) is not None


def paths_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """`load(path)` comes as `path`, `load([a, b])` as JSON under `paths`."""
    found = [given["path"]] if given.get("path") else []
    if given.get("paths"):
        found += json.loads(given["paths"])
    if not found:
        raise UsageError("no path", advice="Name one: .load(path)")
    return tuple(path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path
                 for path in found)  # fmt: skip


def follow_names() -> dict[str, str]:
    """All words for following, by what they are when folded."""
    follows = [layout.capabilities.follow for layout in registry.layouts()]
    return {fold(option.name): option.name for one in follows if one is not None for option in one.options}
