"""Check files and directories and report every fault.

A directory is checked file by file. Faults that no single file shows come from `DirectoryCapabilities.check`, which sees the frames of all
files. `DirectoryCapabilities.predict` simulates the real system's start, on request and for damaged directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from logwright.codec import registry
from logwright.codec.capability import CheckSettings
from logwright.codec.engine.fold import Fold
from logwright.codec.engine.repair import OutputFile, Removed, Strategy
from logwright.codec.engine.startup import Startup
from logwright.codec.fault import (
    AccessError,
    DamageError,
    Fault,
    Kind,
    LogwrightError,
    MissingPackageError,
    NotFoundError,
    Severity,
    UsageError,
)
from logwright.codec.frames.walk import Stretch
from logwright.codec.option import Options, Verb
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import PlannedFile, Role
from logwright.codec.store.pointer import LARGEST as POINTER_SIZE
from logwright.codec.store.pointer import pointer_of
from logwright.readers import jobs as _jobs
from logwright.readers import usage
from logwright.readers.corrected import correctable, corrected_directory, healed_by_corrections
from logwright.readers.prefetch import FEW, INLINE, Prefetcher, usable
from logwright.readers.readahead import weight
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.resolve import resolve
from logwright.readers.source import STDIN
from logwright.readers.target import DirectoryTarget, FileTarget, Target, flags, kind
from logwright.readers.task import SPLIT_SIZE
from logwright.readers.verify_file import UNREAD_ERRORS, Depth, unread, walk_file

_SMALL = 64 << 20
"""With several processes, a smaller directory is one unit of work; in a larger one each file is."""


DirectoryCheck = Fold[Iterable[tuple[str, Fault]]]


@dataclass(frozen=True)
class VerifyOptions:
    """Options of a check. `system`: version of the real system to simulate ("": the newest), or None."""

    depth: Depth = Depth.RECORDS
    system: str | None = None
    clean: bool | None = None
    max_faults: int = 1000
    advise: bool = True
    """Whether to find out what a repair would lose."""
    container: bool = False
    """Whether the caller simulates the start on the directory around the targets."""


class Meter:
    """Progress in bytes."""

    def __init__(self, total: int = 0, show: Callable[[int, int], None] | None = None) -> None:
        self.done, self.total, self._show = 0, total, show

    def add(self, size: int) -> None:
        self.done += size
        if self._show is not None:
            self._show(self.done, self.total)


def verify(
    targets: Sequence[Target],
    report: Report,
    settings: VerifyOptions = VerifyOptions(),
    *,
    jobs: int = 1,
    show: Callable[[int, int], None] | None = None,
    unopened: Sequence[LogwrightError] = (),
) -> Report:
    """Check all targets. Faults are added to the report, or with several targets to a report for each.

    `unopened`: errors of further stores that cannot be checked. `jobs`: number of processes; the report does not depend on it. `show` is
    called with the bytes done and the total.

    Raises `UsageError` if a system cannot be simulated.
    """
    if settings.clean is not None:
        usage.check_clean(targets)
    if settings.system is not None:
        # Files beside directories, as in a log directory, are part of what the system does with these.
        directories = [target for target in targets if isinstance(target, DirectoryTarget)]
        for target in directories or (() if settings.container else targets):
            _prediction(target, settings.system)
    usage.check_jobs(targets, jobs)
    alone = len(targets) == 1 and not unopened
    parts = [report] if alone else [_report(target, settings) for target in targets]
    if not alone:
        report.parts = [*parts, *map(_unopened, unopened)]
    meter = Meter(sum(map(_size, targets)), show)
    if jobs > 1:
        _shared(targets, parts, settings, jobs, alone, meter)
    else:
        with Prefetcher(1 if 0 < meter.total < FEW else usable()) as prefetcher:
            for target, part in zip(targets, parts, strict=True):
                _one(target, part, settings, alone, meter, prefetcher)
    return report


def _size(target: Target) -> int:
    """Return the number of bytes to check; 0 for a single file, whose size is known once it is open."""
    return 0 if isinstance(target, FileTarget) else sum(file.size for file in _files(target))


def _report(target: Target, settings: VerifyOptions) -> Report:
    return Report(target.path, kind(target), max_faults=settings.max_faults)


def _one(
    target: Target,
    report: Report,
    settings: VerifyOptions,
    alone: bool,
    meter: Meter | None = None,
    prefetcher: Prefetcher = INLINE,
) -> Report:
    """Check one target. An error that prevents reading is raised if it is the only target, otherwise added to the report."""
    meter = meter or Meter()
    try:
        if isinstance(target, FileTarget):
            _lone(target, report, settings, meter, prefetcher)
        else:
            _directory(target, report, settings, meter, prefetcher)
    except LogwrightError as error:
        if alone:
            raise
        _failed(target, report, error)
    return report


def _failed(target: Target, report: Report, error: LogwrightError) -> None:
    """Report an error that prevents checking one of several targets."""
    entry = report.file(target.path if isinstance(target, FileTarget) else "", kind(target))
    entry.add(unread(error, kind(target), error.offset or 0, 0), denied=isinstance(error, AccessError))


def _unopened(error: LogwrightError) -> Report:
    """Return the report on a store or file, one of several, that could not be opened. That is no fault of it."""
    part = Report(error.path or "")
    part.error = error.reason
    return part


def _lone(
    target: FileTarget, report: Report, settings: VerifyOptions, meter: Meter, prefetcher: Prefetcher
) -> None:
    introduce(report, target)
    source = target.open()
    try:
        entry = report.file(target.path, target.codec.name)
        meter.total += source.size
        walked = walk_file(
            source, target.codec, target.options, target.hints, entry, settings.depth, prefetcher
        )
        for size, _ in _reached(walked):
            meter.add(size)
        report.healed = healed_by_corrections(report)
    finally:
        if target.source is None:
            source.close()


def _directory(
    target: DirectoryTarget, report: Report, settings: VerifyOptions, meter: Meter, prefetcher: Prefetcher
) -> None:
    checker = _checker(target, settings)
    _begin(target, report)
    for small, files_of_size in groupby(_files(target), lambda file: file.size <= SPLIT_SIZE):
        files = list(files_of_size)
        if small and len(files) > 1:
            ahead = prefetcher.iterate(
                [partial(_walk_file, target, file, settings) for file in files], _weight
            )
            for file in files:
                _take(report, _seen(ahead, target, file, checker, meter))
        else:
            for file in files:
                _take(
                    report,
                    _seen(_walk_file(target, file, settings, prefetcher), target, file, checker, meter),
                )
    _end(target, report, settings, [] if checker is None else list(checker.finish()))


def _files(target: DirectoryTarget) -> list[PlannedFile]:
    """Return the files to check."""
    return [
        file
        for file in target.plan.files
        if file.codec is not None
        and (file.role not in (Role.LEFTOVER, Role.FOREIGN) or file.codec in target.layout.leftovers_read)
    ]


def _checker(
    target: DirectoryTarget, settings: VerifyOptions, deep: Depth | None = None
) -> DirectoryCheck | None:
    """Return the check of the directory as a whole. `deep` is the requested level, if the files are read at another one here."""
    check = target.layout.capabilities.check
    if check is None:
        return None
    conditions = CheckSettings(settings.clean, target.live, (deep or settings.depth) is Depth.RECORDS)
    return check(target.directory, target.plan, target.layout_options, conditions)


def _begin(target: DirectoryTarget, report: Report) -> None:
    """Fill in what is known before any file is read."""
    report.live = target.live
    report.notes += target.directory.warnings
    introduce(report, target)


_TYPED = (Verb.READ, Verb.VERIFY, Verb.REPAIR, Verb.REBUILD, Verb.EDIT)
"""The verbs whose commands a report may name."""


def introduce(report: Report, target: Target) -> None:
    """Fill in the names and the advice of a target's layout."""
    report.flags = {verb: flags(target, verb) for verb in _TYPED}
    if isinstance(target, FileTarget):
        return
    layout = target.layout
    report.known = dict(target.plan.facts)
    report.repairs = layout.capabilities.repair is not None
    report.derived = frozenset(file.name for file in target.plan.files if file.role is Role.DERIVED)
    report.nouns, report.advice = layout.nouns, layout.advice
    report.rows_noun = layout.rows_noun


def _advise(target: DirectoryTarget, report: Report) -> None:
    """Find out what a repair would lose that returns to an earlier state: it can be more than the damaged rows, or less."""
    repair = target.layout.capabilities.repair
    if repair is None or repair.preferred is not Strategy.PREFIX:
        return
    try:
        directory = corrected_directory(target.directory, report)
        plan = repair.repair([directory], [target.plan], repair.preferred, Options(repair.options))
        same = {file.name for file in plan.files() if _is_unchanged(file, target.sizes)}
    except DamageError:
        report.strategy = str(Strategy.SALVAGE)
        return
    except LogwrightError:
        return  # The repair itself will raise this error.
    lost = [cut.rows_lost for cut in plan.cut]
    report.repair_loss = None if None in lost else sum(file or 0 for file in lost)
    report.healed |= healed(plan.cut)
    wrong = {
        path
        for path, fault in report.faults
        if fault.severity is Severity.ERROR and (path, fault.offset) not in report.healed
    }
    report.leaves = bool(wrong & same)


def _is_unchanged(file: OutputFile | Piece, sizes: Mapping[str, int]) -> bool:
    """Return whether a file of the result is unchanged."""
    extents = list(file.pieces) if isinstance(file, OutputFile) else []
    return len(extents) == 1 and extents[0] == Copy(file.name, 0, sizes.get(file.name, -1))


def healed(cuts: Iterable[Removed]) -> frozenset[tuple[str, int]]:
    """Return damage from which no row is lost."""
    return frozenset((cut.file, cut.offset) for cut in cuts if cut.rows_lost == 0 and cut.length)


def _take(report: Report, checked: FileReport) -> None:
    entry = report.file(checked.path, checked.codec)
    entry.merge(checked)
    entry.primary = checked.primary


def _end(
    target: DirectoryTarget, report: Report, settings: VerifyOptions, checked: Sequence[tuple[str, Fault]]
) -> None:
    """Fill in what is known once all files are read. A check of the whole would only repeat that a file was not read."""
    denied = report.denied
    checked = [] if denied else checked
    for name, fault in (*target.plan.faults, *checked):
        report.file(name, fault.codec).add(fault)
    report.notes += _pointers(target)
    for name, codec, text in target.directory.passed_over():
        report.file(name, codec.name).add(Fault(codec.name, 0, 0, Kind.LINK, text))
    wrong = report.worst in (Severity.ERROR, Severity.WARNING)
    filled, hidden = _corrected_gaps(target, report, settings, checked)
    for name, fault in filled:
        report.file(name, fault.codec).healed.add(fault.offset)
    for name, fault in hidden:
        report.file(name, fault.codec).add(fault)
    report.healed = healed_by_corrections(report)
    if not report.ok and not target.live and settings.advise and not denied:
        _advise(target, report)
    if settings.system is not None or (
        wrong and not denied and not target.live and target.layout.capabilities.predict is not None
    ):
        try:
            report.system = _predict(target, settings)
        except LogwrightError as error:
            if isinstance(error, MissingPackageError) and settings.system is not None:
                text = f"the start of the system is not simulated: {error.message}. {error.advice}"
                name = target.layout.name
                report.file("", name).add(Fault(name, 0, 0, Kind.UNSUPPORTED, text, Severity.WARNING))
            elif settings.system is not None:
                error.path = error.path or target.path
                raise
            elif not report.unchecked:
                report.notes.append(f"cannot simulate the start of the system: {error.message}")


def _corrected_gaps(
    target: DirectoryTarget, report: Report, settings: VerifyOptions, checked: Sequence[tuple[str, Fault]]
) -> tuple[list[tuple[str, Fault]], list[tuple[str, Fault]]]:
    """Return the gaps between frames that corrections fill, and those that are found only with the corrections, with their files.

    A damaged range at the end of a file counts as all that is missing there. The frame that a correction restores may end before that.
    """
    gaps = [(name, fault) for name, fault in checked if fault.rows_lost and not fault.length]
    corrected = corrected_directory(target.directory, report)
    at_end = any(
        fault.offset in file.healed
        and fault.lost
        and fault.offset + fault.length >= target.sizes.get(file.path, 0)
        for file in report.files
        for fault in file.faults
    )
    if corrected is target.directory or not (gaps or at_end):
        return [], []
    before = {_place(entry) for entry in checked}
    after = _check_whole(replace(target, directory=corrected), settings)
    left = {_place(entry) for entry in after}
    return (
        [entry for entry in gaps if _place(entry) not in left],
        [entry for entry in after if entry[1].is_gap and _place(entry) not in before],
    )


def _place(entry: tuple[str, Fault]) -> tuple[str, int, Kind]:
    return entry[0], entry[1].offset, entry[1].kind


def _pointers(target: DirectoryTarget) -> Iterator[str]:
    """Iterate over notes on files that are pointers to contents that were not fetched."""
    for file in target.plan.files:
        if not 0 < file.size <= POINTER_SIZE:
            continue
        try:
            pointer = pointer_of(target.directory.read(file.name, 0, file.size))
        except (LogwrightError, OSError):
            continue  # Checking the file reports this error.
        if pointer is not None:
            yield f"{file.name} is {pointer[0]}, not the data; fetch the data first: {pointer[1]}"


def look(
    target: DirectoryTarget, file: PlannedFile, settings: VerifyOptions, checker: DirectoryCheck | None = None
) -> FileReport:
    """Check one file of a directory."""
    return _seen(_walk_file(target, file, settings), target, file, checker, Meter())


def _walk_file(
    target: DirectoryTarget, file: PlannedFile, settings: VerifyOptions, prefetcher: Prefetcher = INLINE
) -> Iterator[Stretch | FileReport]:
    """Iterate over the good frames of one file of a directory, and last its report."""
    assert file.codec is not None
    codec = registry.get(file.codec)
    entry = FileReport(
        file.name, codec.name, max_faults=settings.max_faults, primary=file.role is Role.PRIMARY
    )
    hints = target.hints(file.hints)
    if settings.clean is not None and "clean" in hints:
        hints["clean"] = settings.clean
    if "hides" in hints:
        hints["hides"] = True  # rows are counted as the views of the directory show them
    try:
        with target.directory.open(file.name) as source:
            yield from walk_file(
                source,
                codec,
                target.options,
                hints,
                entry,
                settings.depth,
                prefetcher,
                correct=correctable(file),
            )
    except UNREAD_ERRORS as error:
        _note_unread(entry, error, target, file)
    if file.role is Role.LEFTOVER:
        entry.lower()
    yield entry


def _seen(
    steps: Iterator[Stretch | FileReport],
    target: DirectoryTarget,
    file: PlannedFile,
    checker: DirectoryCheck | None,
    meter: Meter,
) -> FileReport:
    """Consume the steps of the next file, pass its frames to the directory's check, and return its report."""
    failed: LogwrightError | None = None
    if file.role is not Role.PRIMARY:
        checker = None
    if checker is not None:
        checker.begin(file)
    for size, step in _reached(steps):
        if isinstance(step, FileReport):
            if failed is not None:
                _note_unread(step, failed, target, file)
            return step
        meter.add(size)
        if checker is not None and failed is None and len(step.frames):
            try:
                checker.add(step.window, step.frames)
            except UNREAD_ERRORS as error:
                failed = error
    raise AssertionError(f"no report of {file.name}")


def _reached(walked: Iterator[Stretch | FileReport]) -> Iterator[tuple[int, Stretch | FileReport]]:
    """Add to each step the number of bytes since the step before."""
    at = 0
    for step in walked:
        place = step.window.offset + step.frames.stop if isinstance(step, Stretch) else at
        yield place - at, step
        at = place


def _weight(step: Stretch | FileReport) -> int:
    return weight(step) if isinstance(step, Stretch) else 0


def _note_unread(
    entry: FileReport, error: LogwrightError, target: DirectoryTarget, file: PlannedFile
) -> None:
    fault = unread(error, entry.codec or "", error.offset or 0, max(0, file.size - (error.offset or 0)))
    if isinstance(error, NotFoundError) and target.live:
        fault = replace(fault, severity=Severity.INFO)
    entry.add(fault, denied=isinstance(error, AccessError))


# Behaviour of the real system


def _prediction(target: Target, version: str) -> Startup:
    """Return the simulation of the system's start on a target. Raises `UsageError` if no system can be simulated."""
    if isinstance(target, FileTarget):
        raise UsageError(
            "a system's start can be simulated on a directory, but this is a file",
            path=target.path,
            advice="Pass its directory",
        )
    predict = target.layout.capabilities.predict
    if predict is None:
        raise UsageError(
            f"the start of its system cannot be simulated on a {target.layout.name}", path=target.path
        )
    predict.version_of(version, target.path)
    return predict


def _predict(target: DirectoryTarget, settings: VerifyOptions) -> Mapping[str, Any]:
    started = _prediction(target, settings.system or "").run(
        target.directory,
        target.plan,
        target.layout_options,
        version=settings.system or None,
        clean=settings.clean,
    )
    return started.verdict.to_dict()


# Several processes


@dataclass(frozen=True)
class _Spec:
    """A target that another process can resolve."""

    path: str
    codec: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, target: Target) -> _Spec:
        return cls(target.path, kind(target), target.options)

    def target(self) -> Target:
        return resolve(self.path, self.codec, self.options)[0]

    def directory(self) -> DirectoryTarget:
        target = self.target()
        assert isinstance(target, DirectoryTarget)
        return target


def _target_job(spec: _Spec, settings: VerifyOptions, alone: bool) -> Report:
    target = spec.target()
    return _one(target, _report(target, settings), settings, alone)


def _file_job(spec: _Spec, name: str, settings: VerifyOptions) -> FileReport:
    target = spec.directory()
    return look(target, target.plan[name], settings)


def _directory_job(spec: _Spec, settings: VerifyOptions) -> list[tuple[str, Fault]]:
    return _check_whole(spec.directory(), settings)


def _check_whole(target: DirectoryTarget, settings: VerifyOptions) -> list[tuple[str, Fault]]:
    """Check the files of a directory against each other. The frames are scanned again, but not decoded."""
    shallow = replace(settings, depth=min(settings.depth, Depth.CHECKSUMS, key=list(Depth).index))
    checker = _checker(target, shallow, settings.depth)
    for file in _files(target) if checker is not None else ():
        if file.role is Role.PRIMARY:
            look(target, file, shallow, checker)
    return [] if checker is None else list(checker.finish())


def _end_job(
    spec: _Spec, settings: VerifyOptions, report: Report, checked: Sequence[tuple[str, Fault]], alone: bool
) -> Report:
    """Finish the report of a directory whose files have been checked."""
    target = spec.directory()
    try:
        _end(target, report, settings, checked)
    except LogwrightError as error:
        if alone:
            raise
        _failed(target, report, error)
    return report


def _shared(
    targets: Sequence[Target],
    parts: Sequence[Report],
    settings: VerifyOptions,
    jobs: int,
    alone: bool,
    meter: Meter,
) -> None:
    """As `_one` for each target, by several processes. Large directories are divided into files."""
    work: list[tuple[int, int, Callable[[], Any]]] = []
    large: list[int] = []
    for i, target in enumerate(targets):
        if target.path == STDIN or (isinstance(target, FileTarget) and target.source is not None):
            _one(target, parts[i], settings, alone, meter)
            continue
        spec, size = _Spec.of(target), _size(target)
        if isinstance(target, FileTarget) or (size < _SMALL and not alone):
            work.append((i, size, partial(_target_job, spec, settings, alone)))
            continue
        large.append(i)
        _begin(target, parts[i])
        work.append((i, 0, partial(_directory_job, spec, settings)))
        work += [(i, file.size, partial(_file_job, spec, file.name, settings)) for file in _files(target)]
    # The longest work comes first, so that it does not delay the end. Reports are combined in their own order.
    order = sorted(range(len(work)), key=lambda index: -work[index][1] if work[index][1] else -(1 << 62))
    done: dict[int, Any] = {}
    for index, result in zip(order, _jobs.run([work[index][2] for index in order], jobs), strict=True):
        done[index] = result
        meter.add(work[index][1])
    checked: dict[int, list[tuple[str, Fault]]] = {}
    for index, (i, _, _) in enumerate(work):
        result = done[index]
        if isinstance(result, Report):
            parts[i].become(result)
        elif isinstance(result, FileReport):
            _take(parts[i], result)
        else:
            checked[i] = result
    ends = [partial(_end_job, _Spec.of(targets[i]), settings, parts[i], checked[i], alone) for i in large]
    for i, report in zip(large, _jobs.run(ends, jobs), strict=True):
        parts[i].become(report)
