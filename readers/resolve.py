"""Find out what is at a path: a file and its codec, a directory and its layout, or several of them for a list or a glob."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logwright.codec import plural, registry
from logwright.codec.base import Codec, Match
from logwright.codec.deferred import deferred
from logwright.codec.fault import AccessError, LogwrightError, NotFoundError, UnsupportedError, UsageError
from logwright.codec.frames.walk import zero_filled
from logwright.codec.layout import Configuration, Layout
from logwright.codec.option import Option, Options, Verb, fold, word
from logwright.codec.store.listing import PlannedFile
from logwright.codec.store.pointer import LARGEST as POINTER_SIZE
from logwright.codec.store.pointer import pointer_of
from logwright.readers import usage
from logwright.readers.listing import Directory, home, open_listing, open_store
from logwright.readers.live import held
from logwright.readers.paths import Path, expand, folder_of, is_directory, name_of
from logwright.readers.rescue import OPTIONS as RESCUE_OPTIONS
from logwright.readers.rescue import Rescue
from logwright.readers.source import (
    STDIN,
    Source,
    is_remote,
    local_path,
    open_source,
)
from logwright.readers.target import (
    REPLICA_OPTIONS,
    DirectoryTarget,
    FileTarget,
    Skipped,
    Stores,
    Target,
    kind,
    layouts_of,
)
from logwright.readers.task import known_options

if TYPE_CHECKING:
    from logwright.readers import store_search
else:
    store_search = deferred("logwright.readers", "store_search")

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
"""Programs that pack files, by the first bytes of the result."""
_TABLE_MAGICS = (b"PAR1", b"ARROW1")
_TABLE_ENDINGS = (".csv", ".jsonl", ".ndjson")
_JSON_OBJECT = b'{"'
_REPLICA = frozenset(fold(option.name) for option in REPLICA_OPTIONS)
_CONFIGURATION = 1 << 20
"""Limit of the size of a configuration file."""


def detect(path: Path) -> str | None:
    """Return the name of the codec of a file, the layout of a directory, or the container of several directories; None if it is not
    recognised.

    A system's configuration file stands for the directories that it names.
    """
    text = expand(path)[0]
    if text != STDIN and is_directory(text):
        layout = home(text).layout or registry.container(open_listing(text))
        return None if layout is None else layout.name
    if configuration(text) is not None:
        kinds = [kind(container) for container in resolve(text, skipped=Skipped())]
        return next(
            (container.name for container in registry.containers() if container.layout in kinds), kinds[0]
        )
    with open_source(text) as source:
        codec = registry.detect(name_of(text), zero_filled(source, 0, store_search.HEAD)[0].tobytes())
    return None if codec is None else codec.name


def resolve(
    path: Path | Sequence[Path],
    codec: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    skipped: Skipped | None = None,
    stores_only: bool = False,
    recursive: bool | None = None,
    served: bool = False,
    view: str | None = None,
    verb: Verb | None = None,
    more: Sequence[Option] = (),
) -> list[Target]:
    """Return what is at a path: a file, a directory, a list of them, a glob, a URI, or "-" for standard input.

    With `skipped`, a directory that is not itself a store stands for all stores in it (a log directory for its partitions), and a
    configuration file for the directories that it names; what is skipped is added to it. Without it a configuration file must name
    exactly one store. `stores_only`: leave out files beside the stores. `recursive`: include the stores in all sub-folders (True), only
    mention them in `skipped` (False), or do not search (None). `served`: leave out stores of a directory or a configuration that the
    system does not serve (`Layout.unserved`), and those that cannot have rows of `view` (`Layout.in_view`); raise an error if one of a
    directory cannot be opened.
    Options that `verb` does not use are refused, or by default those that no reading uses; an error about an unknown option suggests the
    others, and `more` that the caller uses. `VERIFY` checks the paths that can be opened; the errors of the others are added
    to `skipped`.

    Raises `NotFoundError`, `AccessError`, and `UsageError` if it is not recognised or is not a `codec`.
    """
    container = None
    if skipped is not None and codec is not None:
        container = registry.named_container(codec)
    file_codec, layout = _named(codec if container is None else container.layout)
    is_check = verb is Verb.VERIFY

    def found(path: str) -> list[Target]:
        own = dict(options or {})
        config = None if file_codec is not None else configuration(path)
        if config is not None:
            try:
                named = _configured(path, config, layout, own, skipped, recursive, files=is_check)
            except UsageError as error:
                error.path = error.path or path  # a setting is invalid
                raise
            return _served(named, skipped, path, view) if served and skipped is not None else named
        below: list[Target] = []
        if skipped is not None:
            below = _below(path, file_codec, layout, own, skipped, recursive)
            below = [target for target in below if not stores_only or isinstance(target, DirectoryTarget)]
            below = _served(below, skipped, path, view) if served else below
        return below or [_target(path, file_codec, layout, own)]

    targets: list[Target] = []
    failed: list[LogwrightError] = []
    for part in expand(path, failed if is_check else None):
        try:
            targets += found(part)
        except LogwrightError as error:
            if not is_check:
                raise
            error.path = error.path or part
            failed.append(error)
    if failed and (skipped is None or not targets):
        raise failed[0]
    if skipped is not None:
        skipped.unopened += failed
    if served and skipped is not None and skipped.unopened:
        raise skipped.unopened[0]
    if not targets:
        text = "the system serves none of the stores there"
        raise UsageError(text, path=", ".join(expand(path)), advice="Pass one of them")
    _check_options(targets, options or {}, verb, more, view)
    return targets


def _served(targets: Sequence[Target], skipped: Skipped, path: str, view: str | None) -> list[Target]:
    """Return the targets that the system serves, and add the others to `skipped`. Those without rows of the view
    are left out. Raises `UsageError` if that is all of them."""
    left = []
    container = registry.container(open_listing(path)) if targets and is_directory(path) else None
    for target in targets:
        why = "" if isinstance(target, FileTarget) else target.layout.unserved(target.directory.name)
        if container is not None and isinstance(target, DirectoryTarget):
            why = why or container.unserved(target.directory.name)
        if why:
            skipped.notes.append(f"{target.path} {why}: skipped; pass its own path to read it")
        else:
            left.append(target)
    if view is None:
        return left
    shown = [
        target
        for target in left
        if isinstance(target, FileTarget) or target.layout.in_view(target.directory.name, view)
    ]
    if left and not shown:
        raise UsageError(
            f"no store there has rows of view {view!r} ({plural.count(len(left), 'store')} found)",
            path=path,
            advice="Use another view, or pass the path of one store to decode it all the same",
        )
    return shown


def directories_of_stores(
    path: Path | Sequence[Path],
    codec: str | None,
    options: Mapping[str, Any],
    skipped: Skipped,
    *,
    recursive: bool | None = False,
) -> list[Stores]:
    """Return the directories of stores that a path stands for: one, or those that a configuration file names.

    The list is empty if the path is itself a store or a file, or if there are several paths. What is skipped is added to `skipped`.
    """
    if not isinstance(path, str | os.PathLike):
        parts = list(path)
        if len(parts) != 1:
            return []
        return directories_of_stores(parts[0], codec, options, skipped, recursive=recursive)
    paths = expand(path)
    if len(paths) != 1 or paths[0] == STDIN:
        return []
    container = registry.named_container(codec)
    file_codec, layout = _named(codec if container is None else container.layout)
    if file_codec is not None:
        return []
    config = configuration(paths[0])
    given_names = {fold(name) for name in options}
    from_config = (
        {} if config is None else {k: v for k, v in config.options.items() if fold(k) not in given_names}
    )
    out = []
    for place in paths if config is None else config.directories:
        if not is_directory(place):
            continue
        below = _below(place, None, layout, {**from_config, **options}, skipped, recursive)
        targets = [each for each in below if isinstance(each, DirectoryTarget)]
        if targets:
            directory = open_listing(place)
            out.append(Stores(place, directory, registry.container(directory), targets))
        elif config is not None and home(place).layout is None:
            skipped.notes.append(f"{place}: no store found")
    return out


def _configured(
    path: str,
    config: Configuration,
    layout: Layout | None,
    options: Mapping[str, Any],
    skipped: Skipped | None,
    recursive: bool | None = None,
    *,
    files: bool = False,
) -> list[Target]:
    """Return the stores in the directories that a configuration names, with `files` also the recognised files beside them. Its options
    apply to the stores unless the caller passed them."""
    places = ", ".join(config.directories)
    if skipped is None:
        several = _configured(path, config, layout, options, Skipped())
        if len(several) == 1:
            return several
        raise UsageError(
            f"this configuration of {config.system} names {len(several)} stores, in {places}",
            path=path,
            advice=f"Pass one of them, such as {several[0].path}",
        )
    known = {fold(name) for name in options}
    from_config = {name: value for name, value in config.options.items() if fold(name) not in known}
    merged = from_config | dict(options)
    targets: list[Target] = []
    beside: list[Target] = []
    for place in (*config.directories, *config.others):
        if targets and place in config.others:
            break
        inside = _below(place, None, layout, merged, skipped, recursive)
        below = [target for target in inside if isinstance(target, DirectoryTarget)]
        beside += [
            replace(target, options=dict(options))
            for target in inside
            if isinstance(target, FileTarget) and files
        ]
        if not below and is_directory(place) and home(place).layout is not None:
            below = [_directory(place, None, layout, merged)]
        if not below:
            skipped.notes.append(f"{place}: no store found")
        targets += below
    if not targets:
        raise UsageError(
            f"this configuration names {places}, but no store was found there", path=path,
            advice="If the data has moved, pass its directory",
        )  # fmt: skip
    stores = [replace(target, configured=frozenset(map(fold, from_config))) for target in targets]
    return [*stores, *beside]


def configuration(path: str) -> Configuration | None:
    """Read a file as the configuration of a system; None if it is not one."""
    name = name_of(path)
    if (
        path == STDIN
        or is_remote(path)
        or is_directory(path)  # before the next question, which imports all systems
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


def _named(name: str | None) -> tuple[Codec | None, Layout | None]:
    name = word("codec", name)
    if name is None:
        return None, None
    if name in {layout.name for layout in registry.layouts()}:
        return None, registry.get_layout(name)
    return registry.get(name), None


def _target(path: str, codec: Codec | None, layout: Layout | None, options: dict[str, Any]) -> Target:
    if path == STDIN:
        return _file(path, codec, layout, options, open_source(path))
    if is_directory(path):
        return _directory(path, codec, layout, options)
    return _file(path, codec, layout, options, None)


def _file(
    path: str, codec: Codec | None, layout: Layout | None, options: dict[str, Any], source: Source | None
) -> FileTarget:
    rescue = Rescue.of(options)
    rescue.check(path)
    opened = open_source(path, rescue=rescue) if source is None else source
    try:
        # If the disk cannot read these bytes, the name alone decides.
        head, size = zero_filled(opened, 0, store_search.HEAD)[0].tobytes(), opened.size
        tail = zero_filled(opened, max(size - registry.TAIL, 0), registry.TAIL)[0].tobytes()
        if not is_remote(path) and not os.path.isfile(local_path(path)):
            source = opened  # standard input or a pipe cannot be read twice
    finally:
        if opened is not source:
            opened.close()
    name = name_of(path)
    pointer = pointer_of(head) if size <= POINTER_SIZE else None
    if pointer is not None:
        raise UsageError(
            f"this file is {pointer[0]} ({plural.count(size, 'byte')}), not the data",
            path=path,
            advice=f"Fetch the data first: {pointer[1]}",
        )
    detected = registry.detect(name, head) or registry.detect_by_end(tail)
    if codec is None and (detected is None or detected.recognise(name, head) is Match.MAYBE):
        # Its place tells more than its bytes, which may be damaged.
        planned = _planned(path, registry.layouts())
        detected = detected if planned is None else registry.get(planned[2].codec or "")
    if layout is not None:
        if detected is not None:
            advice = f"The file looks like {detected.name}"
            if folder_of(path):
                advice += f"; pass its directory instead: {folder_of(path)}"
        else:
            advice = "Pass its directory"
        raise UsageError(
            f"{layout.name} is a layout of directories, but this is a file", path=path, advice=advice
        )
    if codec is None:
        if detected is None:
            _refuse_table(path, name, head)
            problem = (
                "empty file with an unknown name"
                if not size
                else f"unrecognised file format ({plural.count(size, 'byte')})"
            )
            packed = next((program for magic, program in _PACKED.items() if head.startswith(magic)), None)
            raise UsageError(
                problem,
                path=path,
                advice="Pass its format with codec (--codec NAME); `logwright codecs` lists the names"
                if packed is None
                else f"It looks like a {packed} file: unpack it first",
            )
        return FileTarget(path, detected, options, source, _around(path, detected))
    if detected is not None and detected.name != codec.name and codec.recognise(name, head) is Match.NO:
        raise UsageError(
            f"this file does not look like {codec.name}",
            path=path,
            advice=f"It looks like {detected.name}: omit codec (--codec), or pass {detected.name}",
        )
    return FileTarget(path, codec, options, source, _around(path, codec))


def _refuse_table(path: str, name: str, head: bytes) -> None:
    """Raise `UsageError` for a file that is a table, by its first bytes or the ending of its name."""
    ending = os.path.splitext(name)[1].lower()
    if path == STDIN and head.startswith(_JSON_OBJECT):
        ending = ".jsonl"
    if not head.startswith(_TABLE_MAGICS) and ending not in _TABLE_ENDINGS:
        return
    if path == STDIN:
        advice = "Save it as a file whose name ends in .jsonl, .parquet or .arrow, and convert that"
    elif ending == ".csv":
        advice = "CSV is written, not read, since it keeps no types; use .parquet, .arrow or .jsonl"
    else:
        advice = f"To write it as native files: logwright convert {shlex.quote(path)} TARGET --codec NAME"
    raise UsageError("this is a table file, not a native file", path=path, advice=advice)


def _around(path: str, codec: Codec) -> dict[str, Any]:
    """Return what the plan of the surrounding directory says about a file; {} without a plan."""
    # The files of a layout are all of one system.
    system = codec.name.partition(".")[0]
    own = [layout for layout in registry.layouts() if layout.name.partition(".")[0] == system]
    planned = _planned(path, own)
    if planned is None or planned[2].codec != codec.name:
        return {}
    folder, layout, file = planned
    return {"live": _live(folder, layout), **file.hints}


def _planned(path: str, layouts: Sequence[Layout]) -> tuple[str, Layout, PlannedFile] | None:
    """Return the surrounding store of one of these layouts, and the plan of a file of it that has a codec."""
    if path == STDIN or is_remote(path):
        return None
    folder, name = os.path.split(os.path.abspath(local_path(path)))
    deepest = max((pattern.count("/") + 1 for layout in layouts for pattern in layout.folders), default=0)
    for _ in range(deepest + 1):
        try:
            directory = open_listing(folder)
            layout = directory.layout
            if layout is not None:
                options = Options(layout.read_options)
                plan = layout.plan(open_store(directory, layout, options), options)
                for file in plan.files:
                    if file.name == name and file.codec:
                        return folder, layout, file
        except LogwrightError:
            pass
        folder, above = os.path.split(folder)
        name = f"{above}/{name}"
    return None


def _live(path: str, layout: Layout) -> bool | None:
    return held(os.path.join(path, lock) for lock in layout.locks())


def _directory(
    path: str,
    codec: Codec | None,
    layout: Layout | None,
    options: dict[str, Any],
    above: Directory | None = None,
) -> DirectoryTarget:
    rescue = Rescue.of(options)
    directory = home(path, layout, rescue, above)
    path = directory.path
    rescue.check(path, folder=True)
    detected = directory.layout
    if codec is not None:
        raise UsageError(
            f"{codec.name} is a codec of files, but this is a directory",
            path=path,
            advice=f"It looks like {detected.name}: omit codec, or pass one of its files"
            if detected
            else "Pass one of its files",
        )
    container = None if detected is not None else registry.container(directory)
    if container is not None:
        stores = sum(open_listing(directory.shown(name)).layout is not None for name in directory.folders())
        raise UsageError(
            f"this is a {container.name} of {plural.count(stores, 'store')}: one {container.layout} was expected"
            if stores
            else f"this {container.name} has no {container.layout}",
            path=path,
            advice=store_search.suggestion(directory),
        )
    if layout is not None and _is_no(layout, directory, options):
        raise UsageError(
            f"this directory does not look like {layout.name}: {store_search.contents(directory)}",
            path=path,
            advice=f"It looks like {detected.name}" if detected else store_search.suggestion(directory),
        )
    layout = layout or detected
    if layout is None:
        names = [item.name for item in registry.layouts()] + [item.name for item in registry.containers()]
        raise UsageError(
            f"unrecognised directory: {store_search.contents(directory)}; known layouts: {', '.join(names)}",
            path=path,
            advice=store_search.suggestion(directory),
        )
    live = None
    if not is_remote(path):
        live = _live(local_path(path), layout)
    known = _known(layout, options)
    directory = open_store(directory, layout, known)
    try:
        plan = layout.plan(directory, known)
    except UnsupportedError as error:
        error.path = error.path or path
        raise
    return DirectoryTarget(path, directory, layout, options, plan, live)


def _known(layout: Layout, options: Mapping[str, Any]) -> Options:
    return Options(layout.read_options, known_options(options, layout.read_options))


def _is_no(layout: Layout, directory: Directory, options: Mapping[str, Any]) -> bool:
    """Return whether a directory is not recognised as this layout, even with its further roots."""
    return (
        layout.recognise(directory) is Match.NO
        and layout.recognise(open_store(directory, layout, _known(layout, options))) is Match.NO
    )


def reopened(target: DirectoryTarget) -> Directory:
    """Return the directory of a target, listed again."""
    known = target.directory
    above = None if is_remote(known.path) else known.parent()
    directory = open_listing(known.path, known.rescue, above=above)
    return open_store(directory, target.layout, target.layout_options)


def _below(
    path: str,
    codec: Codec | None,
    layout: Layout | None,
    options: dict[str, Any],
    skipped: Skipped,
    recursive: bool | None = None,
) -> list[Target]:
    """Return the stores in a directory and the recognised files beside them; [] if nothing is found, or if the directory is itself a store."""
    if path == STDIN or codec is not None or not is_directory(path):
        return []
    directory = open_listing(path)
    own = home(path, layout).layout
    if own is not None and recursive is None:
        return []
    container = registry.container(directory) if own is None else None
    if not (directory.folders() or container):
        return []
    search = store_search.StoreSearch(layout, recursive, skipped, bounded=not recursive)
    targets: list[Target] = []
    for inner, store_layout in search.below(directory, own, 1 if own is None else 2):
        try:
            above = directory if os.path.dirname(inner) == directory.path.rstrip("/") else None
            targets.append(_directory(inner, None, store_layout, options, above))
        except AccessError as error:
            skipped.unopened.append(error)
        except (NotFoundError, UnsupportedError) as error:
            skipped.notes.append(f"skipped: {error}")
    if own is not None:
        search.report_skipped(path, [])
        return [_directory(path, None, layout, options), *targets] if targets else []
    if not targets and container is None:
        return []
    others: list[str] = []
    strays: list[str] = []
    for entry in directory.entries():
        codec = registry.detect(entry.name, b"")
        own_file = container is not None and entry.name in container.own_files
        if codec is not None and layout is None and codec.recognise(entry.name, b"") >= Match.NAME:
            targets.append(FileTarget(directory.shown(entry.name), codec, options))
            strays += [] if container is None or own_file else [entry.name]
        elif not own_file:
            others.append(entry.name)
    if strays and container is not None:
        beside = f"{store_search.first_names(strays)}: beside the directories of layout {container.layout}"
        skipped.notes.append(f"{beside}, where the system does not read them")
    search.report_skipped(path, others)
    if recursive is None and container is None:
        search.report_empty()
    return targets


def _check_options(
    targets: Sequence[Target], options: Mapping[str, Any], verb: Verb | None, more: Sequence[Option], view: str | None
) -> None:  # fmt: skip
    """Raise `UsageError` for an option that a verb, by default reading, uses with no target. For an unknown one it lists those of the view."""
    passed = {fold(name) for name, value in options.items() if value is not None}
    if not passed:
        return
    candidates: dict[str, Option] = {}
    for target in targets:
        own = target.codec if isinstance(target, FileTarget) else target.layout
        for option in (*REPLICA_OPTIONS, *usage.every_option(own), *RESCUE_OPTIONS):
            candidates.setdefault(fold(option.name), option)
    looked_up = passed if passed <= candidates.keys() else candidates.keys()
    used = {
        name: option
        for name, option in candidates.items()
        if name in looked_up and any(_uses(target, option.name, verb) for target in targets)
    }
    for name in options:
        if fold(name) in (passed & candidates.keys()) - used.keys():
            raise usage.refused(name, targets[0], str(verb or Verb.READ).replace("read", "reading"))
    if verb in (Verb.READ, Verb.AS_SYSTEM) and not passed <= used.keys():
        for name in list(used):
            if not any(usage.view_uses(target, name, view, verb) for target in targets):
                del used[name]
    Options((*more, *used.values()), {name: value for name, value in options.items() if fold(name) in passed})


def _uses(target: Target, name: str, verb: Verb | None) -> bool:
    verbs = (Verb.READ, Verb.AS_SYSTEM) if verb is None else (verb,)
    if any(usage.uses(target, name, each) for each in verbs):
        return True
    if Verb.READ not in verbs and Verb.AS_SYSTEM not in verbs:
        return False
    # A lone file can be read through a view of its layout.
    layouts = [layout for layout, _ in layouts_of(target.codec)] if isinstance(target, FileTarget) else []
    return fold(name) in _REPLICA or any(
        usage.takes(layout, name, each) for layout in layouts for each in verbs
    )
