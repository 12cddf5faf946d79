"""What lies at a path: a file and its codec, a directory and its layout, several of them for a list or a glob."""

from __future__ import annotations

import fnmatch
import glob as globbing
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec, Match
from logwright.codec.fault import AccessError, LogwrightError, NotFoundError, UnsupportedError, UsageError
from logwright.codec.frames.walk import zero_filled
from logwright.codec.layout import Configuration, Container, Layout
from logwright.codec.option import Option, Options, Verb, fold, parse_choice, word
from logwright.codec.store.listing import Plan
from logwright.codec.store.pointer import LARGEST as POINTER_SIZE
from logwright.codec.store.pointer import pointer_of
from logwright.codec.store.roots import holds_files
from logwright.readers import usage
from logwright.readers.listing import Directory, LoneFile, home, is_staging, open_listing, open_store
from logwright.readers.live import held
from logwright.readers.rescue import OPTIONS as RESCUE_OPTIONS
from logwright.readers.rescue import Rescue
from logwright.readers.source import (
    STDIN,
    Source,
    explain,
    file_system,
    is_remote,
    local_path,
    open_source,
)
from logwright.readers.task import known_options

_CONFIGURATION = 1 << 20
"""Configuration files are not longer."""
HEAD = 4096
"""So many first bytes are looked at to recognise a file."""
Path = str | os.PathLike[str]
COPIES_OPTIONS = (
    Option(
        "replicas",
        None,
        "Where copies of the same thing are found (replicas of a partition): read the first, or the longest.",
        parse_choice,
        ("first", "longest"),
    ),
)
"""For `readers.copies`."""


@dataclass(frozen=True)
class FileTarget:
    """One file."""

    path: str
    codec: Codec
    options: Mapping[str, Any]
    source: Source | None = None
    """Of standard input, which can't be opened again."""
    around: Mapping[str, Any] = field(default_factory=dict)
    """What the file's directory says of it, when it is one that we know: whether it is the last of its kind, say."""
    configured: frozenset[str] = frozenset()
    """As in `DirectoryTarget`."""

    @property
    def name(self) -> str:
        return _name(self.path)

    @property
    def given(self) -> list[str]:
        """The options that the caller gave."""
        return _given(self.options, self.configured)

    @property
    def hints(self) -> dict[str, Any]:
        """What decoding is told."""
        if self.path == STDIN:
            return {"directory": ""}
        if is_remote(self.path):
            return {"directory": self.path.rstrip("/").split("/")[-2]}
        folder = os.path.dirname(os.path.abspath(local_path(self.path)))
        return {"directory": os.path.basename(folder), **self.around}

    def open(self) -> Source:
        return self.source or open_source(self.path, rescue=Rescue.of(self.options))


@dataclass(frozen=True)
class DirectoryTarget:
    """One directory, understood."""

    path: str
    directory: Directory
    layout: Layout
    options: Mapping[str, Any]
    plan: Plan
    live: bool | None
    configured: frozenset[str] = frozenset()
    """The options that a configuration file gave, as `fold` spells them. What has no use for one does without."""

    @property
    def given(self) -> list[str]:
        """The options that the caller gave."""
        return _given(self.options, self.configured)

    @property
    def layout_options(self) -> Options:
        return Options(self.layout.read_options, known_options(self.options, self.layout.read_options))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Of its files, by name."""
        return {entry.name: entry.size for entry in self.directory.entries()}

    def hints(self, hints: Mapping[str, Any]) -> dict[str, Any]:
        """What decoding any file of the directory is told."""
        return {"directory": self.directory.name, "live": self.live, **hints}


Target = FileTarget | DirectoryTarget


def _given(options: Mapping[str, Any], configured: frozenset[str]) -> list[str]:
    return [name for name, value in options.items() if value is not None and fold(name) not in configured]


@dataclass(frozen=True)
class Stores:
    """A directory of stores: a log directory with its partitions, a folder of databases."""

    path: str
    directory: Directory
    container: Container | None
    """What the directory is, where it is known."""
    targets: Sequence[DirectoryTarget]
    """The stores, a directory before those inside it."""


def layouts_of(codec: Codec) -> list[tuple[Layout, Sequence[str]]]:
    """The layouts that have views of a single file of this codec, and these (`Layout.alone`)."""
    return [(one, one.alone[codec.name]) for one in registry.layouts() if codec.name in one.alone]


def alone(target: FileTarget, view: str) -> DirectoryTarget | None:
    """A file as if it were alone in its directory, where there is such a view of it."""
    layout = next((one for one, views in layouts_of(target.codec) if view in views), None)
    if layout is None or target.source is not None:
        return None
    with target.open() as source:
        directory = LoneFile(target.path, source.size, Rescue.of(target.options))
    known = Options(layout.read_options, known_options(target.options, layout.read_options))
    return DirectoryTarget(
        target.path, directory, layout, target.options, layout.plan(directory, known), None, target.configured
    )


def kind(target: Target) -> str:
    """The name of its codec or layout."""
    return target.codec.name if isinstance(target, FileTarget) else target.layout.name


def detect(path: Path) -> str | None:
    """The name of the codec of a file, of the layout of a directory, or of what holds several directories, which a system's
    configuration file stands for; None when it is none that we know."""
    text = expand(path)[0]
    if text != STDIN and _is_directory(text):
        found = registry.detect_layout(home(text)) or registry.container(open_listing(text))
        return None if found is None else found.name
    if configuration(text) is not None:
        kinds = [kind(one) for one in resolve(text, passed=[])]
        return next((one.name for one in registry.containers() if one.layout in kinds), kinds[0])
    with open_source(text) as source:
        codec = registry.detect(_name(text), zero_filled(source, 0, HEAD)[0].tobytes())
    return None if codec is None else codec.name


def resolve(
    path: Path | Sequence[Path],
    codec: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    passed: list[str] | None = None,
    gathered: bool = False,
    recursive: bool | None = None,
    verb: Verb | None = None,
) -> list[Target]:
    """What lies there: a file, a directory, a list of them, a glob, a URI, "-" for standard input.

    With `passed`, a directory that is none itself stands for all in it that we know (a log directory for its partitions), and a
    system's configuration file for the directories that it names; what was passed over is put there, in sentences. Without it such a
    file stands for what it names where that is one thing. With `verb` an option that it does not use is refused. `gathered`:
    only a directory that is known to hold several (`codec.layout.Container`) stands for these, and not for files beside them.
    `recursive`: include the stores in all sub-folders (True), or only say in `passed` that they are there (False), as all else
    that is skipped; None does not look for them.
    Raises `NotFoundError`, `AccessError`, `UsageError` when it is none that we know, or not what `codec` says.
    """
    container = None
    if passed is not None:
        container = next((one for one in registry.containers() if one.name == codec), None)
    wanted, layout = _named(codec if container is None else container.layout)
    targets: list[Target] = []
    for one in expand(path):
        said = None if wanted is not None else configuration(one)
        if said is not None:
            targets += _configured(one, said, layout, options or {}, passed, recursive)
            continue
        below: list[Target] = []
        if passed is not None and (not gathered or _gathers(one, container)):
            below = _below(one, wanted, layout, dict(options or {}), passed, recursive)
            below = [each for each in below if not gathered or isinstance(each, DirectoryTarget)]
        targets += below or [_target(one, wanted, layout, dict(options or {}))]
    _check_options(targets, options or {})
    if verb is not None:
        usage.check(targets, verb)
    return targets


def directories_of_stores(
    path: Path | Sequence[Path],
    codec: str | None,
    options: Mapping[str, Any],
    skipped: list[str],
    *,
    recursive: bool | None = False,
) -> list[Stores]:
    """The directories of stores that a path stands for: one, or those that a system's configuration file names.

    The list is empty where the path is a store or a file itself, and where several paths are given. What is skipped is put into
    `skipped`, in sentences.
    """
    if not isinstance(path, str | os.PathLike):
        given = list(path)
        if len(given) != 1:
            return []
        return directories_of_stores(given[0], codec, options, skipped, recursive=recursive)
    paths = expand(path)
    if len(paths) != 1 or paths[0] == STDIN:
        return []
    container = next((one for one in registry.containers() if one.name == codec), None)
    wanted, layout = _named(codec if container is None else container.layout)
    if wanted is not None:
        return []
    said = configuration(paths[0])
    given_names = {fold(name) for name in options}
    own = {} if said is None else {k: v for k, v in said.options.items() if fold(k) not in given_names}
    out = []
    for place in paths if said is None else said.directories:
        if not _is_directory(place):
            continue
        found = _below(place, None, layout, {**own, **options}, skipped, recursive)
        targets = [one for one in found if isinstance(one, DirectoryTarget)]
        if targets:
            directory = open_listing(place)
            out.append(Stores(place, directory, registry.container(directory), targets))
        elif said is not None and registry.detect_layout(home(place)) is None:
            skipped.append(f"{place} holds no store")
    return out


def _configured(
    path: str,
    said: Configuration,
    layout: Layout | None,
    options: Mapping[str, Any],
    passed: list[str] | None,
    recursive: bool | None = None,
) -> list[Target]:
    """All that lies in the directories of a configuration: one thing where nothing may be passed over. Its options hold where none are
    given."""
    places = ", ".join(said.directories)
    if passed is None:
        several = _configured(path, said, layout, options, [])
        if len(several) == 1:
            return several
        raise UsageError(
            f"this is the configuration of {said.system}, which says that the data is in {places}: {len(several)} directories that we "
            "know",
            path=path,
            advice=f"Name what is meant of that, like {several[0].path}",
        )
    known = {fold(name) for name in options}
    more = {name: value for name, value in said.options.items() if fold(name) not in known}
    given = more | dict(options)
    targets: list[Target] = []
    for place in said.directories:
        below = [
            one
            for one in _below(place, None, layout, given, passed, recursive)
            if isinstance(one, DirectoryTarget)
        ]
        if not below and _is_directory(place) and registry.detect_layout(home(place)) is not None:
            below = [_directory(place, None, layout, given)]
        if not below:
            passed.append(f"{place} holds nothing that we know")
        targets += below
    if not targets:
        raise UsageError(f"nothing that we know is in {places}, which this configuration names", path=path)
    return [replace(one, configured=frozenset(map(fold, more))) for one in targets]


def configuration(path: str) -> Configuration | None:
    """What a file says, when it is the configuration of a system."""
    name = _name(path)
    if (
        path == STDIN
        or is_remote(path)
        or not registry.may_configure(name)
        or not os.path.isfile(local_path(path))
    ):
        return None
    with open_source(path) as source:
        data = source.pread(0, _CONFIGURATION).tobytes()
    try:
        return registry.configuration(name, data)
    except UsageError as error:
        error.path = path
        raise


def _gathers(path: str, wanted: Container | None) -> bool:
    """Whether a path is that of a directory which holds several of a layout; of one that is asked for anything may be."""
    if path == STDIN or not _is_directory(path):
        return False
    return wanted is not None or registry.container(open_listing(path)) is not None


def expand(path: Path | Sequence[Path]) -> list[str]:
    """The paths that a path, a list of paths or a glob stands for. Raises `NotFoundError` for a glob that matches nothing."""
    given: Any = path
    if isinstance(given, bytes) or not isinstance(given, str | os.PathLike | Iterable):
        raise UsageError(f"a path is text, not {path!r}")
    if not isinstance(path, str | os.PathLike):
        out = [found for one in path for found in expand(one)]
        if not out:
            raise UsageError("an empty list of paths")
        return out
    text = os.fspath(path)
    if not isinstance(text, str):
        raise UsageError(f"a path is text, not {text!r}")
    if not text:
        raise UsageError("the path is empty")
    if "\0" in text:
        raise UsageError(f"a path holds no zero byte: {text!r}")
    if not globbing.has_magic(text) or (not is_remote(text) and os.path.lexists(local_path(text))):
        return [text]
    found = _remote_glob(text) if is_remote(text) else globbing.glob(local_path(text), recursive=True)
    if not found:
        raise NotFoundError("nothing matches this pattern", path=text)
    return sorted(found)


def _remote_glob(uri: str) -> list[str]:
    from pyarrow import fs

    system, pattern = file_system(uri)
    prefix = uri[: len(uri) - len(pattern)]
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    depth = pattern.count("/")
    infos = system.get_file_info(fs.FileSelector(fixed, recursive=True, allow_not_found=True))
    return [
        prefix + info.path
        for info in infos
        if info.path.count("/") == depth
        and all(
            fnmatch.fnmatchcase(a, b) for a, b in zip(info.path.split("/"), pattern.split("/"), strict=True)
        )
    ]


def _named(name: str | None) -> tuple[Codec | None, Layout | None]:
    name = word("codec", name)
    if name is None:
        return None, None
    if name in {layout.name for layout in registry.layouts()}:
        return None, registry.get_layout(name)
    return registry.get(name), None


def _target(path: str, wanted: Codec | None, layout: Layout | None, options: dict[str, Any]) -> Target:
    if path == STDIN:
        return _file(path, wanted, layout, options, open_source(path))
    if _is_directory(path):
        return _directory(path, wanted, layout, options)
    return _file(path, wanted, layout, options, None)


def _is_directory(path: str) -> bool:
    if not is_remote(path):
        try:
            return stat.S_ISDIR(os.stat(local_path(path)).st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        except OSError as error:
            raise explain(error, path) from error
    from pyarrow import fs

    system, inner = file_system(path)
    try:
        return bool(system.get_file_info(inner).type == fs.FileType.Directory)
    except OSError as error:
        raise explain(error, path) from error


def _file(
    path: str, wanted: Codec | None, layout: Layout | None, options: dict[str, Any], source: Source | None
) -> FileTarget:
    rescue = Rescue.of(options)
    rescue.check(path)
    opened = open_source(path, rescue=rescue) if source is None else source
    try:
        # Where the disk can't read it, the name has to say what it is.
        head, size = zero_filled(opened, 0, HEAD)[0].tobytes(), opened.size
        tail = zero_filled(opened, max(size - registry.TAIL, 0), registry.TAIL)[0].tobytes()
        if not is_remote(path) and not os.path.isfile(local_path(path)):
            source = opened  # standard input or a pipe: what was read can't be read again
    finally:
        if opened is not source:
            opened.close()
    name = _name(path)
    pointer = pointer_of(head) if size <= POINTER_SIZE else None
    if pointer is not None:
        raise UsageError(
            f"this file is {pointer[0]} ({size} bytes), not the data",
            path=path,
            advice=f"Fetch the data first: {pointer[1]}",
        )
    found = registry.detect(name, head) or registry.detect_by_end(tail)
    if layout is not None:
        if found is not None:
            advice = f"This file seems to be {found.name}"
            if folder_of(path):
                advice += f"; its directory {folder_of(path)} may be what you mean"
        else:
            advice = "Name its directory"
        raise UsageError(
            f"{layout.name} is the layout of a directory, this is a file", path=path, advice=advice
        )
    if wanted is None:
        if found is None:
            what = (
                "is empty, and its name says nothing" if not size else f"is none that we know ({size} bytes)"
            )
            raise UsageError(
                f"this file {what}",
                path=path,
                advice="Say what it is with codec (--codec), one of: "
                + ", ".join(codec.name for codec in registry.codecs()),
            )
        return FileTarget(path, found, options, source, _around(path, found))
    if found is not None and found.name != wanted.name and wanted.recognise(name, head) is Match.NO:
        raise UsageError(
            f"this does not look like {wanted.name}",
            path=path,
            advice=f"It seems to be {found.name}: leave codec away, or say codec={found.name!r}",
        )
    return FileTarget(path, wanted, options, source, _around(path, wanted))


def _around(path: str, codec: Codec) -> dict[str, Any]:
    """What the plan of the directory around a file says of it; nothing where there is no plan."""
    if path == STDIN or is_remote(path):
        return {}
    folder, name = os.path.split(os.path.abspath(local_path(path)))
    deepest = max(
        (pattern.count("/") + 1 for layout in registry.layouts() for pattern in layout.folders), default=0
    )
    for _ in range(deepest + 1):
        try:
            directory = open_listing(folder)
            layout = registry.detect_layout(directory)
            if layout is not None:
                options = Options(layout.read_options)
                plan = layout.plan(open_store(directory, layout, options), options)
                for file in plan.files:
                    if file.name == name and file.codec == codec.name:
                        return {"live": _live(folder, layout), **file.hints}
        except LogwrightError:
            pass
        folder, above = os.path.split(folder)
        name = f"{above}/{name}"
    return {}


def _live(path: str, layout: Layout) -> bool | None:
    return held(os.path.join(path, one) for one in layout.locks())


def _directory(
    path: str, wanted: Codec | None, layout: Layout | None, options: dict[str, Any]
) -> DirectoryTarget:
    rescue = Rescue.of(options)
    directory = home(path, layout, rescue)
    path = directory.path
    rescue.check(path, folder=True)
    found = registry.detect_layout(directory)
    if wanted is not None:
        raise UsageError(
            f"{wanted.name} is the codec of a file, this is a directory",
            path=path,
            advice=f"It seems to be {found.name}: leave codec away, or name one of its files"
            if found
            else "Name one of its files",
        )
    if layout is not None and layout.recognise(directory) is Match.NO:
        raise UsageError(
            f"this directory does not look like {layout.name}: {_holds(directory)}",
            path=path,
            advice=f"It seems to be {found.name}" if found else _inside(directory),
        )
    layout = layout or found
    if layout is None:
        raise UsageError(_unknown(directory), path=path, advice=_inside(directory))
    live = None
    if not is_remote(path):
        live = _live(local_path(path), layout)
    known = Options(layout.read_options, known_options(options, layout.read_options))
    directory = open_store(directory, layout, known)
    try:
        plan = layout.plan(directory, known)
    except UnsupportedError as error:
        error.path = error.path or path
        raise
    return DirectoryTarget(path, directory, layout, options, plan, live)


def reopened(target: DirectoryTarget) -> Directory:
    """The directory of a target, listed anew."""
    directory = open_listing(target.directory.path, target.directory.rescue)
    return open_store(directory, target.layout, target.layout_options)


def _below(
    path: str,
    wanted: Codec | None,
    layout: Layout | None,
    options: dict[str, Any],
    passed: list[str],
    recursive: bool | None = None,
) -> list[Target]:
    """The stores in a directory, and the files of ours beside them; nothing where the directory holds none, or is meant itself."""
    if path == STDIN or wanted is not None or not _is_directory(path):
        return []
    directory = open_listing(path)
    own = registry.detect_layout(home(path, layout))
    if not directory.folders() or (own is not None and recursive is None):
        return []
    search = _Search(layout, recursive, passed, None if recursive else _MOST_FOLDERS)
    found: list[Target] = []
    for inner, what in search.below(directory, own, 1 if own is None else 2):
        try:
            found.append(_directory(inner, None, what, options))
        except (AccessError, NotFoundError, UnsupportedError) as error:
            passed.append(f"{error}: passed over")
    if own is not None:
        search.say_skipped(path, [])
        return [_directory(path, None, layout, options), *found] if found else []
    if not found:
        return []
    others: list[str] = []
    container = registry.container(directory)
    for entry in directory.entries():
        codec = registry.detect(entry.name, b"")
        if codec is not None and layout is None and codec.recognise(entry.name, b"") >= Match.NAME:
            found.append(FileTarget(directory.shown(entry.name), codec, options))
        elif container is None or entry.name not in container.own_files:
            others.append(entry.name)
    search.say_skipped(path, others)
    return found


class _Search:
    """The search for stores in the sub-folders of a directory. `recursive` as for `resolve`; at most `limit` folders below the first
    level are searched."""

    def __init__(
        self, layout: Layout | None, recursive: bool | None, passed: list[str], limit: int | None = None
    ) -> None:
        self._layout, self._recursive, self._passed, self._limit = layout, recursive, passed, limit
        self._seen = 0
        self._deeper: list[tuple[str, Layout]] = []
        """Stores that are not included because they lie deeper."""
        self._empty: list[str] = []
        """Folders at the top that hold no store."""

    def below(self, directory: Directory, of: Layout | None, depth: int) -> Iterator[tuple[str, Layout]]:
        """The stores in the folders of a directory that is a store of layout `of`, or none. In a store only deeper ones are looked for:
        they count as of depth 2."""
        for name in directory.folders():
            if is_staging(name) or (
                of is not None and (name == of.data_folder or holds_files(name, of.folders))
            ):
                continue
            inner = f"{directory.path.rstrip('/')}/{name}"
            if depth > 1:
                self._seen += 1
                if self._full():
                    return
            link = not is_remote(inner) and os.path.islink(local_path(inner))
            if depth > 1 and link:
                self._passed.append(f"{inner} is a symbolic link to a directory: not followed")
                continue
            deeper, hit = len(self._deeper), False
            try:
                listing = open_listing(inner)
                what = registry.detect_layout(home(inner))
                if what is not None and what.discards(name):
                    self._passed.append(f"{inner} is about to be deleted by the system: passed over")
                    continue
                if what is not None and (self._layout is None or what is self._layout):
                    if depth == 1 or self._recursive:
                        hit = True
                        yield inner, what
                    else:
                        self._deeper.append((inner, what))
            except (AccessError, NotFoundError) as error:
                self._passed.append(f"{error}: passed over")
                continue
            if self._recursive is not None and not link:
                for one in self.below(listing, what, depth + 1):
                    hit = True
                    yield one
            if depth == 1 and not hit and len(self._deeper) == deeper:
                self._empty.append(name)

    def _full(self) -> bool:
        return self._limit is not None and self._seen > self._limit

    def say_skipped(self, path: str, files: Sequence[str]) -> None:
        """Tell what is not among the stores. Nothing is told where nobody asked for it."""
        if self._recursive is None:
            return
        if self._deeper:
            shown = [
                f"{inner.removeprefix(path.rstrip('/') + '/')} ({what.name})" for inner, what in self._deeper
            ]
            count = f"{len(shown)} store{'s' if len(shown) > 1 else ''}"
            self._passed.append(
                f"not looked at: {count} in sub-folders: {_some(shown)}; -r (recursive=True) includes them"
            )
        if self._full():
            self._passed.append(
                f"only the first {_MOST_FOLDERS:,} sub-folders were searched for stores; -r (recursive=True) searches all"
            )
        if self._empty:
            self._passed.append(f"skipped folders without a store: {_some(self._empty)}")
        if files:
            self._passed.append(f"skipped files outside of the stores: {_some(files)}")


_MOST_FOLDERS = 10_000
"""Sub-folders that are searched for stores that nobody asked for."""


def _some(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def folder_of(path: str) -> str:
    return os.path.dirname(path) if path != STDIN else ""


def _holds(directory: Directory) -> str:
    names = [entry.name for entry in directory.entries()]
    if not names:
        folders = len(directory.folders())
        return f"it holds no files, {folders} folders" if folders else "it is empty"
    more = "" if len(names) <= 4 else f" and {len(names) - 4} more"
    return f"it holds {', '.join(names[:4])}{more}"


def _unknown(directory: Directory) -> str:
    layouts = ", ".join(f"{layout.name} ({layout.title})" for layout in registry.layouts())
    return f"this directory is none that we know: {_holds(directory)}; known are {layouts}"


def _inside(directory: Directory) -> str:
    """What could be meant instead of a directory that is none."""
    known = []
    for name in directory.folders()[:1000]:
        try:
            below = open_listing(f"{directory.path.rstrip('/')}/{name}")
            layout = registry.detect_layout(below)
        except OSError:
            continue
        if layout is not None:
            known.append((name, layout.name))
    if known:
        first = f"{directory.path.rstrip('/')}/{known[0][0]}"
        more = "" if len(known) == 1 else f", or another of the {len(known)} folders that we know in it"
        return f"Try {first}, a {known[0][1]}{more}"
    for inner, what in _Search(None, True, [], _MOST_FOLDERS).below(directory, None, 1):
        return f"Its sub-folders hold stores, like {inner} ({what.name}): name one, or pass -r (recursive=True) to take all"
    for entry in directory.entries():
        codec = registry.detect(entry.name, directory.read(entry.name, 0, HEAD) if entry.size else b"")
        if codec is not None:
            return f"Its files can be read one by one: {directory.shown(entry.name)} is {codec.name}"
    return ""


def _check_options(targets: Sequence[Target], given: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an option that none of the targets takes."""
    declared: dict[str, Option] = {option.name: option for option in (*RESCUE_OPTIONS, *COPIES_OPTIONS)}
    for target in targets:
        taken: list[Option] = []
        if isinstance(target, FileTarget):
            taken += target.codec.options
            taken += [option for layout, _ in layouts_of(target.codec) for option in layout.read_options]
        else:
            taken += target.layout.read_options
            for name in {view.codec for view in target.layout.views.values()}:
                taken += registry.get(name).options
        declared.update({option.name: option for option in taken})
    known = set(map(fold, declared))
    for name in given:
        for target in targets if fold(name) not in known else ():
            own = target.codec if isinstance(target, FileTarget) else target.layout
            if any(fold(option.name) == fold(name) for option in usage.every_option(own)):
                raise usage.refused(name, target, "what is asked for")
    Options(declared.values(), given)
