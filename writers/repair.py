"""`repair` and `rebuild`: check the request, write the result with `writers.apply_plan`, and fill in the report (`repair_report`).

A directory that the real system or another writer is using is refused, also as the input of a repair out of place, since it may change
while it is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from logwright.codec import plural
from logwright.codec.capability import DirectoryRepair
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.fault import BusyError, ExistsError, LogwrightError, UsageError, did_you_mean
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, Verb, fold
from logwright.codec.store.listing import Plan, folders_of
from logwright.readers import usage
from logwright.readers.corrected import corrected_directory, found_in, note_corrections
from logwright.readers.listing import Directory, own_folder
from logwright.readers.report import Report
from logwright.readers.resolve import directories_of_stores, reopened, resolve
from logwright.readers.source import STDIN, is_remote, local_path
from logwright.readers.store_search import first_names
from logwright.readers.target import DirectoryTarget, FileTarget, Skipped, Target, kind
from logwright.readers.task import known_options
from logwright.readers.usage import takes
from logwright.readers.verify import VerifyOptions, verify
from logwright.readers.verify_file import Depth
from logwright.writers import unsupported
from logwright.writers.apply_plan import MakePlan, Original, PlanWriter, about
from logwright.writers.backup import refuse_backup_inside
from logwright.writers.combine import combine_copies
from logwright.writers.filesystem import FileSystem, plain_errors
from logwright.writers.lock import busy_inside, refuse_running
from logwright.writers.repair_file import repair_file
from logwright.writers.repair_report import fill_report, missing_rows, overlap
from logwright.writers.repair_stores import repair_stores
from logwright.writers.request import Request
from logwright.writers.target import Target as Place
from logwright.writers.target import meant, refuse_remote


def repair(
    paths: Any, codec: str | None, strategy: str | None, request: Request, report_of: Callable[[Sequence[Target]], Report],
    options: Mapping[str, Any], recursive: bool | None = False,
) -> Report:  # fmt: skip
    """See `logwright.repair`."""
    requested = _strategy(strategy)
    request.check()
    skipped = Skipped()
    if containers := directories_of_stores(paths, codec, {}, skipped, recursive=recursive):

        def repair_store(target: DirectoryTarget, place: Request) -> Report:
            merged = with_configuration(target, options, Verb.REPAIR)
            return repair(target.path, target.layout.name, strategy, place, report_of, merged, None)

        return repair_stores(
            containers, partial(_resolve, options=unsupported.take(options)[1], verb=Verb.REPAIR), repair_store, request,
            "repair", paths, skipped, report_of
        )  # fmt: skip
    copied, options = unsupported.take(options)
    targets, own = _resolve(paths, codec, options, Verb.REPAIR)
    first = targets[0]
    chosen = requested or _preferred(first)
    able = first.layout.capabilities.repair if isinstance(first, DirectoryTarget) else None
    if able is not None:
        usage.check_strategy(able.options, options, str(chosen))
    if isinstance(first, FileTarget):
        if len(targets) > 1:
            raise UsageError("repair takes one file; several paths must be replicas of one directory")
        refuse_busy(request, targets)
        report = verify(targets, report_of(targets), VerifyOptions())
        untouched = bool(unsupported.files(report, copy=copied))
        repair_file(
            first,
            chosen,
            request.out,
            request.backup,
            request.dry_run,
            request.files,
            report,
            untouched=untouched,
            correct=request.correct,
        )
        report.notes += skipped.sentences
        return report
    copies = _copies(targets)
    able = _repairs(first, "repaired")

    def make(originals: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return able.repair(originals, plans, chosen, own, correct=request.correct)

    # Strategy `system` was requested explicitly, so unsupported files are not an obstacle.
    system = chosen is Strategy.SYSTEM
    report = carry_out(copies, make, request, report_of, "repair", system, copied=None if system else copied)
    report.notes += skipped.sentences
    return report


def rebuild(
    paths: Any, codec: str | None, what: str | Sequence[str] | None, request: Request,
    report_of: Callable[[Sequence[Target]], Report], options: Mapping[str, Any], recursive: bool | None = False,
) -> Report:  # fmt: skip
    """See `logwright.rebuild`."""
    request.check()
    skipped = Skipped()
    if containers := directories_of_stores(paths, codec, {}, skipped, recursive=recursive):

        def rebuild_store(target: DirectoryTarget, place: Request) -> Report:
            merged = with_configuration(target, options, Verb.REBUILD)
            return rebuild(target.path, target.layout.name, what, place, report_of, merged, None)

        def check_options(path: str, codec: str) -> None:
            (target,), _ = _resolve(path, codec, options, Verb.REBUILD)
            if isinstance(target, DirectoryTarget):
                _what(what, _repairs(target, "rebuilt").rebuilds)

        return repair_stores(
            containers, check_options, rebuild_store, request, "rebuild", paths, skipped, report_of
        )  # fmt: skip
    targets, own = _resolve(paths, codec, options, Verb.REBUILD)
    first = targets[0]
    if len(targets) > 1:
        raise UsageError("rebuild takes one directory at a time")
    if isinstance(first, FileTarget):
        raise UsageError(
            "only a directory can be rebuilt, since derived files are beside their file",
            path=first.path,
            advice=f"Pass its directory, {os.path.dirname(os.path.abspath(first.path))}",
        )
    able = _repairs(first, "rebuilt")
    chosen = _what(what, able.rebuilds)

    def make(originals: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return able.rebuild(originals[0], plans[0], chosen, own)

    report = carry_out([first], make, request, report_of, "rebuild", False)
    report.notes += skipped.sentences
    return report


def check(paths: Any, codec: str | None, strategy: str | None, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` for arguments that `repair` would refuse, before any work."""
    _strategy(strategy)
    _resolve(paths, codec, unsupported.take(options)[1], Verb.REPAIR)


# The request


def _preferred(target: Target) -> Strategy:
    """Return the default strategy."""
    repair = target.layout.capabilities.repair if isinstance(target, DirectoryTarget) else None
    if repair is not None:
        return repair.preferred
    return Strategy.SALVAGE


def _strategy(name: str | None) -> Strategy | None:
    if name is None:
        return None
    try:
        return Strategy(str(name).lower())
    except ValueError:
        raise UsageError(
            f"unknown strategy {name!r}", advice=did_you_mean(str(name).lower(), Strategy, cutoff=0.5)
        ) from None


def _what(what: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return what to rebuild, in the layout's order; everything by default."""
    if what is None:
        return list(known)
    requested = what.split(",") if isinstance(what, str) else list(what)
    requested = [name.strip().lower() for name in requested if name.strip()]
    if "all" in requested:
        return list(known)
    if not requested:
        raise UsageError("nothing to rebuild", advice=f"Valid values: {', '.join(known)}")
    names = {name.lower(): name for name in known}
    for name in requested:
        if name not in names:
            raise UsageError(
                f"{name!r} cannot be rebuilt", advice=did_you_mean(name.lower(), known, cutoff=0.5)
            )
    requested = [names[name] for name in requested]
    return [name for name in known if name in requested]


def _resolve(
    paths: Any, codec: str | None, options: Mapping[str, Any], verb: Verb
) -> tuple[list[Target], Options]:
    """Return the targets, and the options of the repair; the others are read options."""
    targets = resolve(paths, codec, {})
    declared: tuple[Option, ...] = ()
    own: dict[str, str] = {}
    first = targets[0]
    repair = first.layout.capabilities.repair if isinstance(first, DirectoryTarget) else None
    if isinstance(first, DirectoryTarget) and repair is not None:
        declared = repair.options
        shared = {fold(option.name) for option in first.layout.read_options}
        own = {fold(option.name): option.name for option in declared if fold(option.name) not in shared}
    reading = {name: value for name, value in options.items() if fold(name) not in own}
    merged = with_configuration(first, options, verb)
    repairing = Options(declared, known_options(merged, declared))
    for name in options:
        if fold(name) in own and isinstance(first, DirectoryTarget) and not takes(first.layout, name, verb):
            raise usage.refused(name, first, str(verb))
    return (resolve(paths, codec, reading, verb=verb) if reading else targets), repairing


def with_configuration(target: Target, options: Mapping[str, Any], verb: Verb) -> dict[str, Any]:
    """Return the caller's options with those of the configuration file that the verb uses."""
    if isinstance(target, FileTarget):
        return dict(options)
    passed = {fold(name) for name in options}
    more = {
        name: value
        for name, value in target.options.items()
        if fold(name) not in passed and takes(target.layout, name, verb)
    }
    return more | dict(options)


def _copies(targets: Sequence[Target]) -> list[DirectoryTarget]:
    copies = [target for target in targets if isinstance(target, DirectoryTarget)]
    if len(copies) < len(targets) or len({kind(target) for target in targets}) > 1:
        raise UsageError(
            f"several paths must be replicas of one directory, but these are {', '.join(kind(target) for target in targets)}",
            advice="Repair them one by one",
        )
    if len({os.path.realpath(local_path(copy.path)) for copy in copies}) < len(copies):
        raise UsageError("the same directory is passed twice", advice="Pass each replica once")
    return copies


def _repairs(target: DirectoryTarget, done: str) -> DirectoryRepair:
    repair = target.layout.capabilities.repair
    if repair is None:
        raise UsageError(f"a {target.layout.name} cannot be {done}", path=target.path)
    return repair


# The target


def refuse_busy(request: Request, targets: Sequence[Target]) -> None:
    """Raise `BusyError` if the system or another writer is using a directory, or the directory of a file."""
    for target in targets:
        if target.path == STDIN or is_remote(target.path):
            continue
        path = request.files.real(local_path(target.path))
        if isinstance(target, DirectoryTarget):
            instead = "make a copy of the directory and repair that"
            refuse_running(request.files, target.layout, path, instead)
            if not request.in_place and busy_inside(request.files, target.layout, path):
                raise BusyError(
                    "another logwright process is writing to it",
                    path=target.path,
                    advice="Try again when that process is done",
                )
        live = target.live if isinstance(target, DirectoryTarget) else target.hints.get("live")
        if live:
            raise BusyError(
                "the system that owns it is running",
                path=target.path,
                advice="Stop it first, or make a copy and repair that",
            )


def _refuse_places(copies: Sequence[DirectoryTarget], request: Request) -> None:
    files, layout, first = request.files, copies[0].layout, copies[0]
    roots = {root for copy in copies for root in _roots(files, layout, copy)}
    if request.backup is not None:
        refuse_backup_inside(files, local_path(request.backup), sorted(roots))
    if request.in_place and is_remote(first.path):
        refuse_remote(first.path)
    if request.out is None:
        return
    out = local_path(request.out)
    real = files.real(out)
    for copy in copies:
        if not is_remote(copy.path) and f"{real}/".startswith(f"{files.real(local_path(copy.path))}/"):
            raise UsageError(
                "the result cannot be written into the input directory",
                path=out,
                advice="Pass a path outside of it",
            )
    place = Place.at(files, layout, out)
    if place.occupied():
        raise ExistsError(
            "it already exists and is not empty", path=out, advice="Use a directory that is absent or empty"
        )
    above = {os.path.dirname(lock) for lock in _locks(files, layout, real)}
    if os.path.dirname(real) in above and place.name != first.directory.name:
        system = layout.name.partition(".")[0]
        raise UsageError(
            f"its parent directory is a data directory of {system}, which does not expect {place.name} there",
            path=out,
            advice="Write the result to another directory, under its own name",
        )


def _locks(files: FileSystem, layout: Layout, real: str) -> list[str]:
    """Return the lock files of the system that exist."""
    paths = [os.path.normpath(os.path.join(real, relative)) for relative in layout.locks()]
    return [path for path in paths if files.stat(path) is not None]


def _roots(files: FileSystem, layout: Layout, copy: DirectoryTarget) -> set[str]:
    """Return a directory with its roots, and the system's data directory that contains it."""
    if is_remote(copy.path):
        return set()
    real = files.real(local_path(copy.path))
    further = {
        files.real(meant(files, layout, local_path(root.path))) for root in layout.roots(copy.layout_options)
    }
    return {real, *further, *(os.path.dirname(lock) for lock in _locks(files, layout, real))}


# Execution


def carry_out(
    copies: Sequence[DirectoryTarget], make: MakePlan, request: Request, report_of: Callable[[Sequence[Target]], Report],
    verb: str, system: bool, *, copied: bool | None = None,
) -> Report:  # fmt: skip
    """Apply a repair plan and return the report. `copied`: whether files with unsupported frames are copied unchanged; if not, they are
    refused. None: they do not matter."""
    first = copies[0]
    report = report_of([first])
    with plain_errors(first.path):
        if not request.dry_run:
            refuse_busy(request, copies)
        elif any(copy.live for copy in copies):
            report.notes.append("the system is running: this is a snapshot of the current state")
        _refuse_places(copies, request)
    # A rebuild copies the rows unchanged, so they need not be decoded.
    depth = Depth.CHECKSUMS if verb == "rebuild" else Depth.RECORDS
    correct = request.correct and verb == "repair" and not system
    gone = missing_rows(verify([first], report, VerifyOptions(depth, advise=False)), correct=correct)
    checked = [report]
    if copied is not None:
        make = _keeping(make, unsupported.files(report, copy=copied), report)
    for copy in copies[1:]:
        replica_report = verify([copy], report_of([copy]), VerifyOptions(advise=False))
        checked.append(replica_report)
        others = missing_rows(replica_report, correct=correct)
        gone = [entry for entry in gone if any(overlap(entry[1].lost, other.lost) for _, other in others)]
        report.notes.append(f"replica {copy.path}: {', '.join(replica_report.fault_counts()) or 'ok'}")

    written = 0

    def show(more: int) -> None:
        nonlocal written
        written += more
        request.show(written)

    if correct and len(copies) > 1:
        combine_copies(copies, checked)

    def reopen() -> list[Directory]:
        directories = [reopened(copy) for copy in copies]
        if not correct:
            return directories
        return [
            corrected_directory(copy, of_copy) for copy, of_copy in zip(directories, checked, strict=True)
        ]

    writer = PlanWriter(
        request.files, first.layout, reopen, make, first.layout_options,
        known={about(name, fault) for name, fault in report.faults}, missing=bool(gone), tolerant=system, show=show,
        gathers=not request.in_place, own=own_folder(first.path, first.layout.roots(first.layout_options)),
    )  # fmt: skip
    try:
        if request.dry_run:
            done = writer.dry()
        elif request.out is not None:
            done = writer.beside(local_path(request.out))
        else:
            assert request.backup is not None
            done = writer.in_place(local_path(first.path), local_path(request.backup))
    except LogwrightError as error:
        # Layouts only know names within a directory.
        of = {entry.name: copy for copy in reversed(copies) for entry in copy.directory.entries()}
        if error.path in of:
            error.path = of[error.path].directory.shown(error.path)
        elif error.path == first.directory.name:
            error.path = first.path
        raise
    if correct:
        note_corrections(report, found_in(checked), "would be " if request.dry_run else "")
    fill_report(report, done, copies, request, verb, gone, correct=correct)
    if request.out is not None and (folders := _other_folders(first)):
        report.notes.append(
            f"not copied: {plural.count(len(folders), 'folder')} that a {first.layout.name} does not include: {first_names(folders)}"
        )
    report.incomplete |= bool(gone)
    return report


def _other_folders(copy: DirectoryTarget) -> list[str]:
    """Return the top-level folders whose files do not belong to a directory. In place they stay; another directory is without them."""
    own = [pattern.partition("/")[0] for pattern in copy.layout.folders]
    used = {entry.name.partition("/")[0] for entry in copy.directory.entries()}
    return sorted(
        name
        for name in folders_of(copy.directory)
        if name not in used and not any(fnmatchcase(name, pattern) for pattern in own)
    )


def _keeping(make: MakePlan, names: Sequence[str], report: Report) -> MakePlan:
    """Return the same repair with some files left unchanged."""
    if not names:
        return make
    described = any(not file.primary for file in report.files if file.path in names)
    report.notes.append(f"copied unchanged, since they are not fully supported: {', '.join(names[:5])}")

    def kept(originals: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return unsupported.Untouched(make(originals, plans), names, everything=described)

    return kept
