"""Views: which stretches of which files are to be read, in which order, for what people want to see of some targets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Plan, Predicts, Role
from logwright.codec.fault import DamageError, Fault, UsageError
from logwright.codec.table import Column, Table
from logwright.readers.copies import one_of_each
from logwright.readers.filter import Filter
from logwright.readers.resolve import DirectoryTarget, FileTarget, Target, folder_of, kind
from logwright.readers.task import Task

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
    tasks: tuple[Task, ...]
    faults: tuple[tuple[str, Fault], ...] = ()
    """Of the directories, by file: `Plan.faults` of what is read."""
    notes: tuple[str, ...] = ()
    ready: tuple[pa.RecordBatch, ...] = ()
    """Rows that are known without reading a file (view "files"), with all columns."""
    live: bool | None = None
    systems: tuple[Mapping[str, Any], ...] = ()
    """What the real system would do with each directory, where that was asked (`Verdict.to_dict`)."""


@dataclass(frozen=True)
class Started:
    """Read what the real system would serve: the version asked about (None: the newest), and whether its last stop was clean
    (None: its own marker says)."""

    version: str | None = None
    clean: bool | None = None


def reading(targets: Sequence[Target], view: str | None = None, started: Started | None = None) -> Reading:
    """What is to be read for a view of these targets. Raises `UsageError` for a view that one of them does not have, and for
    copies of one thing where option `replicas` chooses none; with `started` `DamageError` where the system would not open it."""
    if view != "files":
        targets = one_of_each(targets)
    parts = [
        _of_file(t, view, started) if isinstance(t, FileTarget) else _of_directory(t, view, started)
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
    tasks = tuple(replace(task, file=task.path) for task in part.tasks)
    faults = tuple(
        (target.directory.shown(name) if name else target.path, fault) for name, fault in part.faults
    )
    return replace(part, tasks=tasks, faults=faults)


def _of_file(target: FileTarget, view: str | None, started: Started | None) -> Reading:
    if started is not None:
        raise UsageError(
            "what the real system would serve is asked of a directory, this is one file",
            path=target.path,
            advice=f"Read {folder_of(target.path) or '.'}, or take another mode",
        )
    table = _table_of(target, view or "rows")
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
    if view in GENERIC:
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


def _of_directory(target: DirectoryTarget, view: str | None, started: Started | None) -> Reading:
    layout, plan, directory = target.layout, target.plan, target.directory
    view = view or layout.default_view
    shown = directory.notes()
    if started is not None:
        return _as_system(target, view, started)
    if view == "files":
        return Reading(FILES, (), plan.faults, shown, (_files(plan),), target.live)
    if view in layout.views:
        table = registry.get(layout.views[view].codec).tables[layout.views[view].table]
        parts = layout.parts(directory, plan, view, target.layout_options)
        tasks = [
            _task(target, p.file, p.codec, p.table, p.hints, start=p.start, stop=p.stop, bounds=p.bounds)
            for p in parts
        ]
    elif view in GENERIC:
        codec = layout.views[layout.default_view].codec
        table = registry.get(codec).tables[view]
        files = [file for file in plan.files if file.role is Role.PRIMARY and file.codec == codec]
        tasks = [_task(target, file.name, codec, view, file.hints) for file in files]
    else:
        raise _no_view(view, (*layout.views, *GENERIC, "files"), target.path)
    read = {task.file for task in tasks} | {""}
    return Reading(
        table, tuple(tasks), tuple(one for one in plan.faults if one[0] in read), shown, (), target.live
    )


def _as_system(target: DirectoryTarget, view: str, started: Started) -> Reading:
    """What the real system would serve. That the rest of the directory is damaged is said in what it would do, not as faults."""
    layout = target.layout
    if not isinstance(layout, Predicts):
        raise UsageError(
            f"what the real system would serve of a {layout.name} is not known", path=target.path
        )
    if view not in layout.views:
        raise _no_view(view, tuple(layout.views), target.path)
    opened = layout.open_as(
        target.directory, target.plan, target.layout_options, version=started.version, clean=started.clean
    )
    verdict = opened.verdict
    if not verdict.opens:
        said = f"{verdict.error_class}: {verdict.error}" if verdict.error_class else str(verdict.error)
        raise DamageError(
            f"{verdict.name} {verdict.version}, after {'a clean' if verdict.clean else 'an unclean'} stop, does not open it ({said})",
            path=target.path,
            advice="See all of it with `logwright verify --as-system`, or read what is sound with mode=DROPMALFORMED",
        )
    named = layout.views[view]
    tasks = tuple(
        _task(target, p.file, p.codec, p.table, p.hints, start=p.start, stop=p.stop, bounds=p.bounds)
        for p in opened.parts(view)
    )
    table = registry.get(named.codec).tables[named.table]
    notes = target.directory.notes()
    if verdict.error is not None:
        notes += (f"its client stops at {verdict.serves.get('stops_at')}: {verdict.error}",)
    return Reading(table, tasks, (), notes, (), target.live, (verdict.to_dict(),))


def _task(
    target: DirectoryTarget, name: str, codec: str, table: str, hints: Mapping[str, Any], **rest: Any
) -> Task:
    directory = target.directory
    return Task(
        directory.shown(name),
        directory.real(name),
        name,
        codec,
        table,
        target.hints(hints),
        target.options,
        size=next((entry.size for entry in directory.entries() if entry.name == name), None),
        **rest,
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
