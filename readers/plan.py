"""Plan which ranges of which files are read, and in which order, for a view of some targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.deferred import deferred
from logwright.codec.fault import DamageError, Fault, UsageError, did_you_mean
from logwright.codec.option import Verb, fold
from logwright.codec.store.listing import Plan, Role
from logwright.codec.store.view import Group, Part
from logwright.codec.table import Column, Table
from logwright.readers import usage
from logwright.readers.paths import folder_of
from logwright.readers.replicas import choose_replicas
from logwright.readers.target import DirectoryTarget, FileTarget, Target, alone, kind
from logwright.readers.task import Task, Work, table_of, typed_table

if TYPE_CHECKING:
    from logwright.codec.engine.startup import Started
    from logwright.readers import combined, served, verdict_text
    from logwright.readers.combined import Combined
    from logwright.readers.filter import Filter
    from logwright.readers.served import ServedRows
else:
    combined, served, verdict_text = deferred("logwright.readers", "combined", "served", "verdict_text")

GENERIC = ("rows", "frames", "file")
"""Views of every codec, and of a directory with the codec of its default view."""
FILES = Table(
    "files",
    (
        Column("name", pa.string(), "file name", nullable=False),
        Column("size", pa.int64(), "bytes", nullable=False),
        Column("role", pa.string(), "primary, derived, metadata, leftover or foreign", nullable=False),
        Column("codec", pa.string(), "null for files without a codec"),
        Column("note", pa.string(), "remark of the plan", nullable=False),
    ),
    "The files of a directory, as classified by its layout.",
)


@dataclass(frozen=True)
class Reading:
    """Everything to read for one view of some targets, in order."""

    table: Table
    tasks: tuple[Work, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    """Faults of the plans, by file, as far as they concern what is read. Files are named by their paths if there are several targets."""
    notes: tuple[str, ...] = ()
    ready: tuple[pa.RecordBatch, ...] = ()
    """Rows that are known without reading a file (view "files"), with all columns."""
    live: bool | None = None
    systems: tuple[Mapping[str, Any], ...] = ()
    """Behaviour of the real system for each directory, if simulated (`Verdict.to_dict`)."""
    several: bool = False
    """Whether there are several targets."""


@dataclass(frozen=True)
class AsSystem:
    """Read what the real system would serve. `version` None is the newest; with `clean` None its own marker decides."""

    version: str | None = None
    clean: bool | None = None


def reading(targets: Sequence[Target], view: str | None = None, as_system: AsSystem | None = None) -> Reading:
    """Plan a view of these targets.

    Raises `UsageError` for a view that a target does not have, and for replicas if option `replicas` is not set; with `as_system` raises
    `DamageError` if the system would not open a directory.
    """
    if view != "files":
        targets = choose_replicas(targets)
    parts = [
        _of_file(t, view, as_system) if isinstance(t, FileTarget) else _of_directory(t, view, as_system)
        for t in targets
    ]
    if len(targets) > 1:
        parts = [_named(part, target) for part, target in zip(parts, targets, strict=True)]
    if len({id(part.table) for part in parts}) > 1:
        kinds = {kind(target): target.path for target in reversed(targets)}
        examples = ", ".join(f"{path} ({name})" for name, path in kinds.items())
        advice = "Read them one by one"
        if not any(isinstance(target, FileTarget) for target in targets):
            advice += "; codec (--codec) chooses the stores of one kind in a folder"
        raise UsageError(f"files of different kinds cannot be read as one table: {examples}", advice=advice)
    live = [part.live for part in parts]
    return Reading(
        parts[0].table,
        tuple(task for part in parts for task in part.tasks),
        tuple(fault for part in parts for fault in part.faults),
        tuple(note for part in parts for note in part.notes),
        tuple(batch for part in parts for batch in part.ready),
        next((value for value in (True, False) if value in live), None),
        tuple(system for part in parts for system in part.systems),
        len(targets) > 1,
    )


def _named(part: Reading, target: Target) -> Reading:
    """Return the plan with files named by their paths, since two directories may have files of the same name."""
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
            "mode AS_SYSTEM reads a directory, but this is a file",
            path=target.path,
            advice=f"Read {folder_of(target.path) or '.'}, or use another mode",
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
        corrections=target.corrections,
    )
    return Reading(target.codec.table_of(table, task.context(target.codec)), (task,))


def _table_of(target: FileTarget, view: str) -> str:
    if view in GENERIC or view in target.codec.tables:
        return view
    views = [
        (layout, candidate)
        for layout in registry.layouts()
        for candidate in layout.views.values()
        if candidate.name == view and candidate.codec == target.codec.name
    ]
    if views and views[0][1].table != "rows":
        return views[0][1].table
    if views:
        folder = folder_of(target.path) or "."
        raise UsageError(
            f"view {view!r} needs a whole directory ({views[0][0].name}), but this is a file",
            path=target.path,
            advice=f"Read {folder}, or omit view",
        )
    raise _no_view(view, GENERIC, target.path)


def _no_view(view: str, known: Sequence[str], path: str) -> UsageError:
    return UsageError(f"unknown view {view!r}", path=path, advice=did_you_mean(view, known))


def _of_directory(target: DirectoryTarget, view: str | None, as_system: AsSystem | None) -> Reading:
    layout, plan, directory = target.layout, target.plan, target.directory
    view = view or layout.default_view
    shown = directory.notes()
    parts: Sequence[Part | Group] = ()
    if as_system is not None:
        return _as_system(target, view, as_system)
    if view == "files":
        usage.check_view(target, view, Verb.READ, ())
        return Reading(FILES, (), plan.faults, shown, (_files(plan),), target.live)
    if view in layout.views:
        table = table_of(layout.views[view], target.options)
        parts = layout.parts(directory, plan, view, target.layout_options)
        tasks = _tasks(target, view, parts)
    elif view in GENERIC:
        codec = layout.views[layout.default_view].codec
        table = typed_table(codec, view, target.options)
        files = [file for file in plan.files if file.role is Role.PRIMARY and file.codec == codec]
        tasks = [task_of(target, Part(file.name, codec, view, file.hints)) for file in files]
    else:
        raise _no_view(view, (*layout.views, *GENERIC, "files"), target.path)
    usage.check_view(target, view, Verb.READ, _decoded(target, view, tasks))
    read = {file.file for task in tasks for file in task.files} | {""}
    faults = [fault for fault in plan.faults if fault[0] in read]
    faults += [fault for part in parts if isinstance(part, Part) for fault in part.faults]
    # A running system creates and deletes files during the listing, so missing files are not faults.
    faults += [] if target.live else plan.missing
    return Reading(table, tuple(tasks), tuple(faults), shown, (), target.live)


def _decoded(target: DirectoryTarget, view: str, tasks: Sequence[Work]) -> set[tuple[str, str, bool]]:
    """Return what is decoded, for `usage.check_view`."""
    decoded = {(file.codec, file.table, isinstance(work, Task)) for work in tasks for file in work.files}
    if not tasks and view in target.layout.views:
        view_spec = target.layout.views[view]
        decoded.add((view_spec.codec, view_spec.table, True))
    return decoded


def _as_system(target: DirectoryTarget, view: str, as_system: AsSystem) -> Reading:
    """Plan to read what the real system would serve. Other damage is described by its verdict, not as faults."""
    layout = target.layout
    predict = layout.capabilities.predict
    if predict is None:
        raise UsageError(
            f"what the real system would serve of a {layout.name} is not known", path=target.path
        )
    if view not in layout.views:
        raise UsageError(
            f"mode AS_SYSTEM has no view {view!r}", path=target.path, advice=did_you_mean(view, layout.views)
        )
    if why := layout.unserved(target.directory.name):
        raise UsageError(f"it {why}", path=target.path, advice="Omit mode AS_SYSTEM to read what is in it")
    if as_system.clean is not None:
        usage.check_clean([target])
    started = predict.run(
        target.directory, target.plan, target.layout_options, version=as_system.version, clean=as_system.clean
    )
    verdict = started.verdict
    if not verdict.opens:
        raise DamageError(
            f"{verdict_text.after_stop(verdict.to_dict())} does not open it ({verdict.reason})",
            path=target.path,
            advice="`logwright verify --as-system` shows details; mode=DROPMALFORMED reads what is undamaged",
        )
    parts = started.parts(view)
    tasks = (
        (_served(target, view, as_system, started),) if parts is None else tuple(_tasks(target, view, parts))
    )
    usage.check_view(target, view, Verb.AS_SYSTEM, _decoded(target, view, tasks))
    table = table_of(layout.views[view], target.options)
    notes = target.directory.notes()
    if verdict.error is not None:
        stops = verdict.serves.get("stops_at")
        continues = f"clients {verdict_text.skips(verdict.to_dict())}"
        notes += (continues if stops is None else f"clients stop at {stops}: {verdict.error}",)
    return Reading(table, tasks, (), notes, (), target.live, (verdict.to_dict(),))


def _served(target: DirectoryTarget, view: str, as_system: AsSystem, started: Started) -> ServedRows:
    files = tuple(
        task_of(target, Part(file.name, file.codec, "rows", file.hints))
        for file in target.plan.files
        if file.role is Role.PRIMARY and file.codec is not None
    )
    return served.ServedRows(
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
    """Return the work for the parts of a view."""
    reported: set[str] = set()
    return [
        _group(target, view, part, reported) if isinstance(part, Group) else task_of(target, part)
        for part in parts
    ]


def _group(target: DirectoryTarget, view: str, group: Group, reported: set[str]) -> Combined:
    """Return the work for a group. `reported` are the files of earlier groups, whose damage is reported there."""
    # Combined files are read completely; options like `at_zxid` are applied by the layout.
    names = {fold(option.name) for option in target.layout.read_options if option.narrows}
    options = {name: value for name, value in target.options.items() if fold(name) not in names}
    runs = tuple(
        combined.TaskRun(
            tuple(replace(task_of(target, part), options=options) for part in run.parts), run.params
        )
        for run in group.runs
    )
    files = {task.file for run in runs for task in run.tasks}
    already_reported = frozenset(files & reported)
    reported |= files
    return combined.Combined(
        target.path,
        target.layout.name,
        view,
        runs,
        group.params,
        group.key,
        group.low,
        group.high,
        group.ordered,
        already_reported,
    )


def task_of(target: DirectoryTarget, part: Part) -> Task:
    """Return the task for a part of a view."""
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
        corrections=directory.corrections.get(part.file, ()),
        leftover=part.leftover,
        rest=part.rest,
    )


def _files(plan: Plan) -> pa.RecordBatch:
    columns = [[getattr(file, name) for file in plan.files] for name in FILES.names()]
    # Names of files need not be valid text.
    columns[0] = [name.encode(errors="surrogateescape").decode(errors="replace") for name in columns[0]]
    columns[2] = [str(role) for role in columns[2]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, FILES.schema(), strict=True)],
        schema=FILES.schema(),
    )


def ready(
    plan: Reading, columns: Sequence[str], filter: Filter | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Iterate over rows that are known without reading a file."""
    for batch in plan.ready:
        chosen = (filter.apply(batch) if filter is not None else batch).select(list(columns)).slice(0, limit)
        if limit is not None:
            limit -= chosen.num_rows
        yield chosen
