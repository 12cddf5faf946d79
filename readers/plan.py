"""Views: which stretches of which files are to be read, in which order, for what people want to see of some targets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.engine.startup import Started
from logwright.codec.fault import DamageError, Fault, UsageError
from logwright.codec.option import Verb, fold
from logwright.codec.store.listing import Plan, Role
from logwright.codec.store.view import Group, Part
from logwright.codec.table import Column, Table
from logwright.readers import usage
from logwright.readers.combined import Combined, TaskRun
from logwright.readers.copies import one_of_each
from logwright.readers.filter import Filter
from logwright.readers.report_text import after_stop, skips
from logwright.readers.resolve import DirectoryTarget, FileTarget, Target, alone, folder_of, kind
from logwright.readers.served import ServedRows
from logwright.readers.task import Task, Work

GENERIC = ("rows", "frames", "file")
"""The views that exist for every codec, and for a directory: those of its primary files."""
FILES = Table(
    "files",
    (
        Column("name", pa.string(), "file name", nullable=False),
        Column("size", pa.int64(), "bytes", nullable=False),
        Column("role", pa.string(), "primary, derived, metadata, leftover or foreign", nullable=False),
        Column("codec", pa.string(), "null where no codec is its own"),
        Column("note", pa.string(), "what the plan says of it", nullable=False),
    ),
    "The files of a directory, as its layout understands them.",
)


@dataclass(frozen=True)
class Reading:
    """All that is to be read for one view of some targets, in order."""

    table: Table
    tasks: tuple[Work, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    """Of the directories, by file: `Plan.faults` of what is read."""
    notes: tuple[str, ...] = ()
    ready: tuple[pa.RecordBatch, ...] = ()
    """Rows that are known without reading a file (view "files"), with all columns."""
    live: bool | None = None
    systems: tuple[Mapping[str, Any], ...] = ()
    """What the real system would do with each directory, where that was asked (`Verdict.to_dict`)."""


@dataclass(frozen=True)
class AsSystem:
    """Read what the real system would serve. Version None is the newest; clean None: the system's own marker decides."""

    version: str | None = None
    clean: bool | None = None


def reading(targets: Sequence[Target], view: str | None = None, as_system: AsSystem | None = None) -> Reading:
    """What is to be read for a view of these targets. Raises `UsageError` for a view that one of them does not have, and for
    copies of one thing where option `replicas` chooses none; with `as_system` `DamageError` where the system would not open it."""
    if view != "files":
        targets = one_of_each(targets)
    parts = [
        _of_file(t, view, as_system) if isinstance(t, FileTarget) else _of_directory(t, view, as_system)
        for t in targets
    ]
    if len(targets) > 1:
        parts = [_named(part, target) for part, target in zip(parts, targets, strict=True)]
    if len({id(part.table) for part in parts}) > 1:
        kinds = ", ".join(f"{target.path} ({kind(target)})" for target in targets[:4])
        raise UsageError(
            f"files of different kinds can't be read as one table: {kinds}", advice="Read them one by one"
        )
    live = [part.live for part in parts]
    return Reading(
        parts[0].table,
        tuple(task for part in parts for task in part.tasks),
        tuple(fault for part in parts for fault in part.faults),
        tuple(note for part in parts for note in part.notes),
        tuple(batch for part in parts for batch in part.ready),
        next((one for one in (True, False) if one in live), None),
        tuple(system for part in parts for system in part.systems),
    )


def _named(part: Reading, target: Target) -> Reading:
    """The same with files named by their paths, since two directories may have files of one name."""
    if isinstance(target, FileTarget):
        return part
    tasks = tuple(task.with_files(Task.named) for task in part.tasks)
    faults = tuple(
        (target.directory.shown(name) if name else target.path, fault) for name, fault in part.faults
    )
    return replace(part, tasks=tasks, faults=faults)


def _of_file(target: FileTarget, view: str | None, as_system: AsSystem | None) -> Reading:
    if as_system is not None:
        raise UsageError(
            "what the real system would serve is asked of a directory, this is one file",
            path=target.path,
            advice=f"Read {folder_of(target.path) or '.'}, or take another mode",
        )
    single = alone(target, view) if view is not None else None
    if single is not None:
        return _of_directory(single, view, None)
    table = _table_of(target, view or "rows")
    usage.check_file(target, table)
    task = Task(
        target.path,
        target.path,
        target.path,
        target.codec.name,
        table,
        target.hints,
        target.options,
        source=target.source,
    )
    return Reading(target.codec.tables[table], (task,))


def _table_of(target: FileTarget, view: str) -> str:
    if view in GENERIC or view in target.codec.tables:
        return view
    named = [
        (layout, one)
        for layout in registry.layouts()
        for one in layout.views.values()
        if one.name == view and one.codec == target.codec.name
    ]
    if named and named[0][1].table != "rows":
        return named[0][1].table
    if named:
        folder = folder_of(target.path) or "."
        raise UsageError(
            f"view {view!r} is one of a whole directory ({named[0][0].name}), this is one file",
            path=target.path,
            advice=f"Read {folder}, or leave view away",
        )
    raise _no_view(view, GENERIC, target.path)


def _no_view(view: str, known: Sequence[str], path: str) -> UsageError:
    near = difflib.get_close_matches(view, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"
    return UsageError(f"no view {view!r}", path=path, advice=hint)


def _of_directory(target: DirectoryTarget, view: str | None, as_system: AsSystem | None) -> Reading:
    layout, plan, directory = target.layout, target.plan, target.directory
    view = view or layout.default_view
    shown = directory.notes()
    if as_system is not None:
        return _as_system(target, view, as_system)
    if view == "files":
        usage.check_view(target, view, Verb.READ, ())
        return Reading(FILES, (), plan.faults, shown, (_files(plan),), target.live)
    if view in layout.views:
        table = registry.table_of(layout.views[view])
        tasks = _tasks(target, view, layout.parts(directory, plan, view, target.layout_options))
    elif view in GENERIC:
        codec = layout.views[layout.default_view].codec
        table = registry.get(codec).tables[view]
        files = [file for file in plan.files if file.role is Role.PRIMARY and file.codec == codec]
        tasks = [task_of(target, Part(file.name, codec, view, file.hints)) for file in files]
    else:
        raise _no_view(view, (*layout.views, *GENERIC, "files"), target.path)
    usage.check_view(target, view, Verb.READ, _decoded(target, view, tasks))
    read = {file.file for task in tasks for file in task.files} | {""}
    faults = [one for one in plan.faults if one[0] in read]
    # A running system creates and deletes files while they are listed.
    faults += [] if target.live else plan.missing
    return Reading(table, tuple(tasks), tuple(faults), shown, (), target.live)


def _decoded(target: DirectoryTarget, view: str, tasks: Sequence[Work]) -> set[tuple[str, str, bool]]:
    """For `usage.check_view`."""
    found = {(file.codec, file.table, isinstance(work, Task)) for work in tasks for file in work.files}
    if not tasks and view in target.layout.views:
        one = target.layout.views[view]
        found.add((one.codec, one.table, True))
    return found


def _as_system(target: DirectoryTarget, view: str, as_system: AsSystem) -> Reading:
    """What the real system would serve. That the rest of the directory is damaged is said in what it would do, not as faults."""
    layout = target.layout
    predict = layout.capabilities.predict
    if predict is None:
        raise UsageError(
            f"what the real system would serve of a {layout.name} is not known", path=target.path
        )
    if view not in layout.views:
        raise _no_view(view, tuple(layout.views), target.path)
    if as_system.clean is not None:
        usage.check_clean([target])
    started = predict.run(
        target.directory, target.plan, target.layout_options, version=as_system.version, clean=as_system.clean
    )
    verdict = started.verdict
    if not verdict.opens:
        said = f"{verdict.error_class}: {verdict.error}" if verdict.error_class else str(verdict.error)
        raise DamageError(
            f"{after_stop(verdict.to_dict())} does not open it ({said})",
            path=target.path,
            advice="See all of it with `logwright verify --as-system`, or read what is sound with mode=DROPMALFORMED",
        )
    parts = started.parts(view)
    tasks = (
        (_served(target, view, as_system, started),) if parts is None else tuple(_tasks(target, view, parts))
    )
    usage.check_view(target, view, Verb.AS_SYSTEM, _decoded(target, view, tasks))
    table = registry.table_of(layout.views[view])
    notes = target.directory.notes()
    if verdict.error is not None:
        stops = verdict.serves.get("stops_at")
        goes_on = f"its clients {skips(verdict.to_dict())}"
        notes += (goes_on if stops is None else f"its client stops at {stops}: {verdict.error}",)
    return Reading(table, tasks, (), notes, (), target.live, (verdict.to_dict(),))


def _served(target: DirectoryTarget, view: str, as_system: AsSystem, started: Started) -> ServedRows:
    files = tuple(
        task_of(target, Part(file.name, file.codec, "rows", file.hints))
        for file in target.plan.files
        if file.role is Role.PRIMARY and file.codec is not None
    )
    return ServedRows(
        target.path,
        target.layout.name,
        target.options,
        view,
        as_system.version,
        as_system.clean,
        files,
        started,
    )


def _tasks(target: DirectoryTarget, view: str, parts: Sequence[Part | Group]) -> list[Work]:
    """What is to be read for the parts of a view."""
    reported: set[str] = set()
    return [
        _group(target, view, part, reported) if isinstance(part, Group) else task_of(target, part)
        for part in parts
    ]


def _group(target: DirectoryTarget, view: str, group: Group, reported: set[str]) -> Combined:
    """`reported` are the files of earlier groups: what is damaged in them is reported there."""
    # What is combined is read whole: `at_zxid` and the like are for the layout.
    names = {fold(one.name) for one in target.layout.read_options if one.narrows}
    options = {name: value for name, value in target.options.items() if fold(name) not in names}
    runs = tuple(
        TaskRun(tuple(replace(task_of(target, part), options=options) for part in run.parts), run.params)
        for run in group.runs
    )
    files = {task.file for run in runs for task in run.tasks}
    already_reported = frozenset(files & reported)
    reported |= files
    return Combined(
        target.path,
        target.layout.name,
        view,
        runs,
        group.params,
        group.key,
        group.low,
        group.high,
        already_reported,
    )


def task_of(target: DirectoryTarget, part: Part) -> Task:
    """What is to be read for a part of a view."""
    directory = target.directory
    return Task(
        directory.shown(part.file),
        directory.real(part.file),
        part.file,
        part.codec,
        part.table,
        target.hints(part.hints),
        target.options,
        part.start,
        part.stop,
        part.bounds,
        target.sizes.get(part.file),
    )


def _files(plan: Plan) -> pa.RecordBatch:
    columns = [[getattr(file, name) for file in plan.files] for name in FILES.names()]
    # Names on disk need not be text.
    columns[0] = [name.encode(errors="surrogateescape").decode(errors="replace") for name in columns[0]]
    columns[2] = [str(role) for role in columns[2]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, FILES.schema(), strict=True)],
        schema=FILES.schema(),
    )


def ready(
    found: Reading, columns: Sequence[str], filter: Filter | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows that are known without reading a file."""
    for batch in found.ready:
        chosen = (filter.apply(batch) if filter is not None else batch).select(list(columns)).slice(0, limit)
        if limit is not None:
            limit -= chosen.num_rows
        yield chosen
