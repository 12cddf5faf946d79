"""Repair or rebuild a directory of stores: each store separately, then the files of the directory itself.

A failure in one store does not stop the others. A result out of place has the shape of the input: `OUT/<store>`, with the directory's own
files (`codec.layout.Container.own_files`) beside the stores. A backup has the same shape.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from logwright.codec.fault import ExistsError, LogwrightError, UsageError
from logwright.codec.layout import Container, Layout, RepairedStore
from logwright.codec.option import Verb
from logwright.codec.store.roots import Roots
from logwright.readers.report import Report
from logwright.readers.source import is_remote, local_path
from logwright.readers.target import DirectoryTarget, Skipped, Stores, Target
from logwright.writers.backup import Backup, refuse_backup_inside
from logwright.writers.file import Draft
from logwright.writers.filesystem import FileSystem, plain_errors
from logwright.writers.request import Request

OwnFiles = dict[str, tuple[bytes, bytes | None]]
"""Own files of a directory of stores: the old and the new content; None if removed."""


def repair_stores(
    several: Sequence[Stores],
    check: Callable[[str, str], object],
    repair_store: Callable[[DirectoryTarget, Request], Report],
    request: Request,
    verb: str,
    path: Any,
    skipped: Skipped,
    report_of: Callable[[Sequence[Target]], Report],
) -> Report:
    """Repair every store. `check` raises `UsageError` for options that a layout does not accept, `repair_store` repairs one store.

    The report has the reports of the stores in `parts`; one that could not be repaired has an `error`.
    """
    targets = [target for stores in several for target in stores.targets]
    for target in {target.layout.name: target for target in targets}.values():
        check(target.path, target.layout.name)
    _refuse_places(several, request)
    report = report_of(targets)
    report.paths = (os.fspath(path if isinstance(path, str | os.PathLike) else next(iter(path))),)
    containers = {stores.container for stores in several}
    if len(containers) == 1 and (container := next(iter(containers))) is not None:
        report.codec = container.name
    report.notes += skipped.notes
    written = 0
    for stores, inner in zip(several, _places(several), strict=True):
        parts: list[Report] = []
        for target in stores.targets:
            done_before = written

            def show(done: int, before: int = done_before) -> None:
                nonlocal written
                written = before + done
                request.show(written)

            name = os.path.join(inner, _inside(stores.path, target.path))
            place = replace(
                request,
                out=None if request.out is None else os.path.join(request.out, name).rstrip("/"),
                backup=None if request.backup is None else os.path.join(request.backup, name).rstrip("/"),
                show=show,
            )
            parts.append(_one(target, place, repair_store))
        report.parts += parts
        report.notes += _misnamed(stores)
        if stores.container is not None and not all(part.error for part in parts):
            try:
                with plain_errors(stores.path):
                    report.notes += _own_files(stores, stores.container, parts, inner, request, verb)
            except LogwrightError as error:
                report.parts.append(_failed(stores.path, stores.container.name, error))
    report.parts += [
        _failed(error.path or report.path, report.codec or "", error) for error in skipped.unopened
    ]
    _sum_up(report, request, verb)
    return report


def _one(
    target: DirectoryTarget, place: Request, repair_store: Callable[[DirectoryTarget, Request], Report]
) -> Report:
    try:
        part = repair_store(target, place)
    except LogwrightError as error:
        return _failed(target.path, target.layout.name, error)
    except Exception as error:  # a bug must not stop the other stores
        bug = LogwrightError(
            f"internal error in logwright ({type(error).__name__}: {error})", path=target.path
        )
        return _failed(target.path, target.layout.name, bug)
    part.out = None if place.dry_run else place.out
    return part


def _failed(path: str, codec: str, error: LogwrightError) -> Report:
    part = Report(path, codec)
    part.error = str(error)
    return part


# Targets


def _places(several: Sequence[Stores]) -> list[str]:
    """Return the folder of each directory of stores in the result: "" for a single one, otherwise its path below the common directory."""
    if len(several) == 1:
        return [""]
    paths = [os.path.abspath(local_path(stores.path)) for stores in several]
    above = os.path.commonpath(paths)
    return [os.path.relpath(path, above) for path in paths]


def _inside(path: str, store: str) -> str:
    """Return the path of a store within a directory; "" for the directory itself."""
    return store.removeprefix(path.rstrip("/")).strip("/")


def _refuse_places(several: Sequence[Stores], request: Request) -> None:
    files = request.files
    roots = [files.real(local_path(stores.path)) for stores in several if not is_remote(stores.path)]
    if request.backup is not None:
        refuse_backup_inside(files, local_path(request.backup), roots)
    if request.out is None:
        return
    real = files.real(local_path(request.out))
    if any(f"{real}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        raise UsageError(
            "the result cannot be written into the input directory",
            path=request.out,
            advice="Pass a path outside of it",
        )
    with plain_errors(request.out):
        status = files.stat(real)
        if status is not None and (not status.directory or files.listdir(real)):
            raise ExistsError(
                "it already exists and is not empty",
                path=request.out,
                advice="Use a directory that is absent or empty",
            )


def _misnamed(stores: Stores) -> list[str]:
    """Return notes on stores under names with which the system does not start."""
    if stores.container is None:
        return []
    names = [target.directory.name for target in stores.targets]
    whys = [(name, stores.container.unserved(name)) for name in names]
    return [f"{name} {why}: move it elsewhere before the start" for name, why in whys if why]


# The directory's own files


def repaired_own_files(
    stores: Stores, container: Container, parts: Sequence[Report]
) -> tuple[OwnFiles, list[str]]:
    """Return the content of each of the directory's own files after a repair, and notes on the changes. Lock files are left out."""
    repaired = [
        RepairedStore(os.path.basename(part.path), part.changed, part.ids, part.result_files)
        for part in parts
        if part.error is None
    ]
    files: OwnFiles = {}
    notes: list[str] = []
    for name in own_names(stores, container):
        data = stores.directory.read(name)
        after, note = container.after_repair(name, data, repaired)
        files[name] = data, after
        notes += [note] if note else []
    return files, notes


def own_names(stores: Stores, container: Container) -> list[str]:
    """Return the names of a directory's own files, without lock files."""
    locks = {os.path.basename(lock) for lock in _layout(stores).locks()}
    names = [entry.name for entry in stores.directory.entries()]
    return [name for name in names if name in container.own_files and name not in locks]


def _layout(stores: Stores) -> Layout:
    return stores.targets[0].layout


def _own_files(
    stores: Stores, container: Container, parts: Sequence[Report], inner: str, request: Request, verb: str
) -> list[str]:
    if verb == "rebuild":
        files: OwnFiles = {}
        for name in own_names(stores, container):
            data = stores.directory.read(name)
            files[name] = data, data
        notes: list[str] = []
    else:
        files, notes = repaired_own_files(stores, container, parts)
    if request.dry_run:
        return notes
    if request.out is not None:
        copied = write_own_files(request.files, stores, files, os.path.join(local_path(request.out), inner))
        if copied:
            notes.append(f"copied unchanged: {', '.join(copied)}")
    elif request.backup is not None:
        backup = os.path.join(local_path(request.backup), inner, container.name)
        _change_own_files(request.files, stores, files, backup)
    return notes


def write_own_files(files: FileSystem, stores: Stores, contents: OwnFiles, out: str) -> list[str]:
    """Write a directory's own files beside the results. Return the names of the unchanged ones."""
    copied = []
    for name, (before, after) in contents.items():
        if after is None:
            continue
        _write(files, stores, name, after, os.path.join(out, name), "error")
        if after == before:
            copied.append(name)
    return copied


def _change_own_files(files: FileSystem, stores: Stores, contents: OwnFiles, backup: str) -> None:
    """Change a directory's own files in place, and save the originals."""
    root = files.real(local_path(stores.path))
    names = [name for name, (before, after) in contents.items() if before != after]
    if not names:
        return
    saved = Backup(files, backup, Roots(root))
    changed = False
    try:
        saved.save(names, stores.directory.open, stores.directory.real, {})
        for name in names:
            after, path = contents[name][1], os.path.join(root, name)
            if after is None:
                files.remove(path)
            else:
                _write(files, stores, name, after, path, "overwrite")
            changed = True
        files.sync_directory(root)
    except BaseException:
        with suppress(OSError):
            saved.keep() if changed else saved.undo()
        raise
    saved.keep()


def _write(files: FileSystem, stores: Stores, name: str, data: bytes, path: str, mode: str) -> None:
    draft = Draft(files, path, mode)
    try:
        draft.write(data)
        if not is_remote(stores.path):
            with suppress(OSError):
                files.adopt(draft.path, stores.directory.real(name), permissions=True)
        draft.commit()
    except BaseException:
        draft.undo()
        raise


# The report


def _sum_up(report: Report, request: Request, verb: str) -> None:
    """Fill in the totals of all stores."""
    room, parts = report.max_faults, report.parts
    done = [part for part in parts if part.error is None]
    report.incomplete = any(part.incomplete for part in done)
    report.rows_kept = sum(part.rows for part in done)
    report.kept = [_of_part(part, entry) for part in done for entry in part.kept or ()][:room]
    report.cut = [_of_part(part, entry) for part in done for entry in part.cut or ()][:room]
    changed = [note.partition(" is ")[0] for note in report.notes]
    starts = [note for part in done for note in part.notes if note.startswith("before starting")]
    # The note of a store may ask for something that is done already.
    report.notes += [
        note
        for note in dict.fromkeys(starts)
        if not any(name.endswith("checkpoint") and name in note for name in changed)
    ]
    next_verb = Verb(verb) if request.dry_run else Verb.VERIFY
    options = parts[0].flags.get(next_verb, "") if parts else ""
    if request.dry_run:
        report.next = f"logwright {verb} {shlex.quote(report.path)}{options} --out DIR"
    else:
        result = request.out if done else None  # nothing is written if all stores failed
        report.next = f"logwright verify {shlex.quote(result or report.path)}{options}"


def _of_part(part: Report, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of `kept` or `cut` with the full path of its file."""
    return {**entry, "file": part.shown(entry["file"])}
