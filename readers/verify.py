"""Checking files and directories: every fault, nothing decoded for anybody.

A directory is checked file by file. Faults that no single file shows come from `DirectoryCapabilities.check`, which sees the frames
that went by. `DirectoryCapabilities.predict` says what the real system would do, where asked for, and where something is wrong.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.engine.fold import Fold
from logwright.codec.engine.repair import OutputFile, Removed, Strategy
from logwright.codec.engine.startup import Startup
from logwright.codec.fault import (
    AccessError,
    DamageError,
    Fault,
    Kind,
    LogwrightError,
    NotFoundError,
    Severity,
    StorageError,
    UnsupportedError,
    UsageError,
)
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import PlannedFile, Role
from logwright.codec.store.pointer import LARGEST as POINTER_SIZE
from logwright.codec.store.pointer import pointer_of
from logwright.readers import jobs as _jobs
from logwright.readers import usage
from logwright.readers.prefetch import FEW, INLINE, Prefetcher, usable
from logwright.readers.readahead import threaded, weight
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.resolve import DirectoryTarget, FileTarget, Target, kind, resolve
from logwright.readers.source import STDIN, Source
from logwright.readers.stream import named
from logwright.readers.task import PIECE, codec_options

_SMALL = 64 << 20
"""A directory with fewer bytes is one piece of work for several processes, in a larger one each file is."""


DirectoryCheck = Fold[Iterable[tuple[str, Fault]]]


class Depth(StrEnum):
    """How closely to look; each includes the ones before."""

    STRUCTURE = "structure"  # lengths, versions, order: what headers say
    CHECKSUMS = "checksums"
    RECORDS = "records"  # everything is decompressed and decoded

    @classmethod
    def of(cls, name: str) -> Depth:
        try:
            return cls(str(name).lower())
        except ValueError:
            near = difflib.get_close_matches(str(name).lower(), list(cls), n=1, cutoff=0.4)
            hint = f"Did you mean {str(near[0])!r}?" if near else f"There are: {', '.join(cls)}"
            raise UsageError(f"no depth {name!r}", advice=hint) from None


@dataclass(frozen=True)
class VerifyOptions:
    """What is wanted of a check. `system`: what the real system would do, too, of this version ("": the newest)."""

    depth: Depth = Depth.RECORDS
    system: str | None = None
    clean: bool | None = None
    max_faults: int = 1000
    advise: bool = True
    """Whether it is looked into what a repair would lose."""


class Meter:
    """How far the work is, for whoever watches."""

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
) -> Report:
    """Look at all that lies at some targets; everything is noted in the report, one target or not in reports of their own.

    With `jobs` above 1 that many processes share the work; the report is the same. `show` is told of the progress.

    Raises `UsageError` where it was asked what a system would do that is not known.
    """
    if settings.clean is not None:
        usage.check_clean(targets)
    if settings.system is not None:
        # Files beside directories, as those of a log directory, count for what the system does with these.
        whole = [target for target in targets if isinstance(target, DirectoryTarget)]
        for target in whole or targets:
            _prediction(target, settings.system)
    usage.check_jobs(targets, jobs)
    alone = len(targets) == 1
    parts = [report] if alone else [_report(target, settings) for target in targets]
    if not alone:
        report.parts = parts
    meter = Meter(sum(map(_size, targets)), show)
    if jobs > 1:
        _shared(targets, parts, settings, jobs, alone, meter)
    else:
        with Prefetcher(1 if 0 < meter.total < FEW else usable()) as prefetcher:
            for target, part in zip(targets, parts, strict=True):
                _one(target, part, settings, alone, meter, prefetcher)
    return report


def _size(target: Target) -> int:
    """Bytes that are to be looked at; of a lone file they are known when it is open."""
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
    """One target, whole. What keeps it from being read is raised where it is alone, else noted."""
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
    """Note what kept one of several from being looked at."""
    entry = report.file(target.path if isinstance(target, FileTarget) else "", kind(target))
    entry.add(_unread(error, kind(target), error.offset or 0, 0))


def _lone(
    target: FileTarget, report: Report, settings: VerifyOptions, meter: Meter, prefetcher: Prefetcher
) -> None:
    source = target.open()
    try:
        entry = report.file(target.path, target.codec.name)
        meter.total += source.size
        walked = _walked(
            source, target.codec, target.options, target.hints, entry, settings.depth, prefetcher
        )
        for size, _ in _reached(walked):
            meter.add(size)
    finally:
        if target.source is None:
            source.close()


def _directory(
    target: DirectoryTarget, report: Report, settings: VerifyOptions, meter: Meter, prefetcher: Prefetcher
) -> None:
    checker = _checker(target, settings)
    _begin(target, report)
    for small, some in groupby(_files(target), lambda file: file.size <= PIECE):
        files = list(some)
        if small and len(files) > 1:
            ahead = prefetcher.iterate([partial(_looking, target, file, settings) for file in files], _weight)
            for file in files:
                _take(report, _seen(ahead, target, file, checker, meter))
        else:
            for file in files:
                _take(
                    report, _seen(_looking(target, file, settings, prefetcher), target, file, checker, meter)
                )
    _end(target, report, settings, [] if checker is None else list(checker.finish()))


def _files(target: DirectoryTarget) -> list[PlannedFile]:
    """The files that are looked at."""
    return [
        file
        for file in target.plan.files
        if file.codec is not None
        and (file.role not in (Role.LEFTOVER, Role.FOREIGN) or file.codec in target.layout.leftovers_read)
    ]


def _checker(
    target: DirectoryTarget, settings: VerifyOptions, deep: Depth | None = None
) -> DirectoryCheck | None:
    """What holds the files against each other; `deep` is the depth that was asked for, where that is another than what is read here."""
    check = target.layout.capabilities.check
    if check is None:
        return None
    return check(
        target.directory, target.plan, target.layout_options, clean=settings.clean, live=target.live,
        deep=(deep or settings.depth) is Depth.RECORDS,
    )  # fmt: skip


def _begin(target: DirectoryTarget, report: Report) -> None:
    """What is known before a file is read."""
    report.live = target.live
    report.notes += target.directory.warnings
    introduce(report, target)


def introduce(report: Report, target: Target) -> None:
    """Tell a report which words fit what it is on."""
    if isinstance(target, FileTarget):
        return
    layout = target.layout
    report.flags = flags(target)
    report.known = dict(target.plan.facts)
    report.repairs = layout.capabilities.repair is not None
    report.nouns, report.advice = layout.nouns, layout.advice


def _advise(target: DirectoryTarget, report: Report) -> None:
    """What a repair would lose where it goes back to what is whole: that can be more than what is damaged, and less."""
    repair = target.layout.capabilities.repair
    if repair is None or repair.preferred is not Strategy.PREFIX:
        return
    try:
        mending = repair.repair([target.directory], [target.plan], repair.preferred, Options(repair.options))
        same = {one.name for one in mending.files() if _whole(one, target.sizes)}
    except DamageError:
        report.strategy = str(Strategy.SALVAGE)
        return
    except LogwrightError:
        return  # what it is says so when it is asked for
    lost = [cut.rows_lost for cut in mending.cut]
    report.mending = None if None in lost else sum(one or 0 for one in lost)
    report.healed = healed(mending.cut)
    wrong = {path for path, fault in report.faults if fault.severity is Severity.ERROR}
    report.leaves = bool(wrong & same)


def _whole(one: OutputFile, sizes: Mapping[str, int]) -> bool:
    """Whether a file of the result is as it was."""
    pieces = list(one.pieces)
    return len(pieces) == 1 and pieces[0] == Copy(one.name, 0, sizes.get(one.name, -1))


def flags(target: DirectoryTarget) -> str:
    """Return the options that name the further roots of a target, for a command line."""
    given = {name: target.layout_options[name] for name in target.layout.root_options}
    return "".join(f" --{name} {shlex.quote(str(path))}" for name, path in given.items() if path is not None)


def healed(cuts: Iterable[Removed]) -> frozenset[tuple[str, int]]:
    """Damage of which no row is lost."""
    return frozenset((one.file, one.offset) for one in cuts if one.rows_lost == 0 and one.length)


def _take(report: Report, found: FileReport) -> None:
    entry = report.file(found.path, found.codec)
    entry.merge(found)
    entry.primary = found.primary


def _end(
    target: DirectoryTarget, report: Report, settings: VerifyOptions, checked: Sequence[tuple[str, Fault]]
) -> None:
    """What is known when all files were read."""
    for name, fault in (*target.plan.faults, *checked):
        report.file(name, fault.codec).add(fault)
    report.notes += _pointers(target)
    for name, codec, said in target.directory.passed_over():
        report.file(name, codec.name).add(Fault(codec.name, 0, 0, Kind.LINK, said))
    wrong = report.worst in (Severity.ERROR, Severity.WARNING)
    if not report.ok and not target.live and settings.advise:
        _advise(target, report)
    if settings.system is not None or (
        wrong and not target.live and target.layout.capabilities.predict is not None
    ):
        try:
            report.system = _predict(target, settings)
        except LogwrightError as error:
            if settings.system is not None:
                error.path = error.path or target.path
                raise
            if not report.unchecked:
                report.notes.append(f"what the system would do with it can't be told: {error.message}")


def _pointers(target: DirectoryTarget) -> Iterator[str]:
    """A note on each file that stands for contents that were not fetched."""
    for file in target.plan.files:
        if not 0 < file.size <= POINTER_SIZE:
            continue
        try:
            pointer = pointer_of(target.directory.read(file.name, 0, file.size))
        except (LogwrightError, OSError):
            continue  # looking at it says what is wrong
        if pointer is not None:
            yield f"{file.name} is {pointer[0]}, not the data; fetch the data first: {pointer[1]}"


_UNREAD = (UnsupportedError, AccessError, NotFoundError, StorageError)
"""What keeps a file from being read is noted: the others are looked at all the same."""


def look(
    target: DirectoryTarget, file: PlannedFile, settings: VerifyOptions, checker: DirectoryCheck | None = None
) -> FileReport:
    """One file of a directory."""
    return _seen(_looking(target, file, settings), target, file, checker, Meter())


def _looking(
    target: DirectoryTarget, file: PlannedFile, settings: VerifyOptions, prefetcher: Prefetcher = INLINE
) -> Iterator[Stretch | FileReport]:
    """What there is in one file of a directory, and at last what is to be said of it."""
    assert file.codec is not None
    codec = registry.get(file.codec)
    entry = FileReport(
        file.name, codec.name, max_faults=settings.max_faults, primary=file.role is Role.PRIMARY
    )
    hints = target.hints(file.hints)
    if settings.clean is not None and "clean" in hints:
        hints["clean"] = settings.clean
    try:
        with target.directory.open(file.name) as source:
            yield from _walked(source, codec, target.options, hints, entry, settings.depth, prefetcher)
    except _UNREAD as error:
        _note_unread(entry, error, target, file)
    if file.role is Role.LEFTOVER:
        entry.lower()
    yield entry


def _seen(
    found: Iterator[Stretch | FileReport],
    target: DirectoryTarget,
    file: PlannedFile,
    checker: DirectoryCheck | None,
    meter: Meter,
) -> FileReport:
    """The next file of those that are looked at, given to what holds the files against each other."""
    failed: LogwrightError | None = None
    if file.role is not Role.PRIMARY:
        checker = None
    if checker is not None:
        checker.begin(file)
    for size, one in _reached(found):
        if isinstance(one, FileReport):
            if failed is not None:
                _note_unread(one, failed, target, file)
            return one
        meter.add(size)
        if checker is not None and failed is None and len(one.frames):
            try:
                checker.add(one.window, one.frames)
            except _UNREAD as error:
                failed = error
    raise AssertionError(f"nothing is said of {file.name}")


def _reached(walked: Iterator[Stretch | FileReport]) -> Iterator[tuple[int, Stretch | FileReport]]:
    """With the number of bytes that each stretch got further."""
    at = 0
    for found in walked:
        place = found.window.offset + found.frames.stop if isinstance(found, Stretch) else at
        yield place - at, found
        at = place


def _weight(found: Stretch | FileReport) -> int:
    return weight(found) if isinstance(found, Stretch) else 0


def _note_unread(
    entry: FileReport, error: LogwrightError, target: DirectoryTarget, file: PlannedFile
) -> None:
    fault = _unread(error, entry.codec or "", error.offset or 0, max(0, file.size - (error.offset or 0)))
    if isinstance(error, NotFoundError) and target.live:
        fault = replace(fault, severity=Severity.INFO)
    entry.add(fault)


def _unread(error: LogwrightError, codec: str, offset: int, length: int) -> Fault:
    """What can't be read is not checked: that is no damage where only we don't know the format."""
    if isinstance(error, UnsupportedError):
        text = f"not checked from there on: {error.message}"
        return Fault(codec, offset, length, Kind.UNSUPPORTED, text, Severity.WARNING)
    return Fault(codec, offset, length, Kind.LINK, f"can't be read: {error.message}")


def _walked(
    source: Source,
    codec: Codec,
    options: Mapping[str, Any],
    hints: Mapping[str, Any],
    entry: FileReport,
    depth: Depth,
    prefetcher: Prefetcher,
) -> Iterator[Stretch]:
    """What is found in a file; what is wrong with it is noted."""
    name = source.path.rstrip("/").rpartition("/")[2]
    context = codec.context(name, codec_options(codec, options), **hints)
    columns = codec.tables["rows"].select(None)
    entry.bytes += source.size
    walk = Walk(source, codec, context, check=depth is not Depth.STRUCTURE)
    with named(source):
        for found in threaded(walk, prefetcher):
            if isinstance(found, Hole):
                entry.add(found.fault, damaged=True)
            else:
                _frames(found, codec, columns, context, entry, depth)
                yield found


def _frames(
    found: Stretch, codec: Codec, columns: Sequence[str], context: Any, entry: FileReport, depth: Depth
) -> None:
    entry.frames += len(found.frames)
    for fault in found.faults:
        entry.add(fault)
    if depth is Depth.RECORDS and len(found.frames):
        for decoded in codec.decode(found.window, found.frames, "rows", columns, context):
            entry.rows += decoded.batch.num_rows
            for _, fault in decoded.faults:
                entry.add(fault, damaged=True)


# What the real system would do


def _prediction(target: Target, version: str) -> Startup:
    """Return what predicts the system's start on a target. Raises `UsageError` where nothing does."""
    if isinstance(target, FileTarget):
        raise UsageError(
            "what a system would do is known of whole directories, this is a file",
            path=target.path,
            advice="Name its directory",
        )
    predict = target.layout.capabilities.predict
    if predict is None:
        raise UsageError(
            f"what its system would do with a {target.layout.name} is not known", path=target.path
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
    """A target as another process finds it."""

    path: str
    codec: str
    options: Mapping[str, Any]

    def target(self) -> Target:
        return resolve(self.path, self.codec, self.options)[0]

    def directory(self) -> DirectoryTarget:
        target = self.target()
        assert isinstance(target, DirectoryTarget)
        return target


@dataclass(frozen=True)
class _Whole:
    """A piece of work: one target."""

    spec: _Spec
    settings: VerifyOptions
    alone: bool

    def __call__(self) -> Report:
        target = self.spec.target()
        return _one(target, _report(target, self.settings), self.settings, self.alone)


@dataclass(frozen=True)
class _File:
    """A piece of work: one file of a directory."""

    spec: _Spec
    name: str
    settings: VerifyOptions

    def __call__(self) -> FileReport:
        target = self.spec.directory()
        return look(target, target.plan[self.name], self.settings)


@dataclass(frozen=True)
class _Held:
    """A piece of work: the files of a directory held against each other. The frames are found again, nothing is decoded."""

    spec: _Spec
    settings: VerifyOptions

    def __call__(self) -> list[tuple[str, Fault]]:
        target = self.spec.directory()
        settings = replace(
            self.settings, depth=min(self.settings.depth, Depth.CHECKSUMS, key=list(Depth).index)
        )
        checker = _checker(target, settings, self.settings.depth)
        for file in _files(target) if checker is not None else ():
            if file.role is Role.PRIMARY:
                look(target, file, settings, checker)
        return [] if checker is None else list(checker.finish())


@dataclass(frozen=True)
class _Ended:
    """A piece of work: a directory whose files were read, to its end."""

    spec: _Spec
    settings: VerifyOptions
    report: Report
    checked: Sequence[tuple[str, Fault]]
    alone: bool

    def __call__(self) -> Report:
        target = self.spec.directory()
        try:
            _end(target, self.report, self.settings, self.checked)
        except LogwrightError as error:
            if self.alone:
                raise
            _failed(target, self.report, error)
        return self.report


def _shared(
    targets: Sequence[Target],
    parts: Sequence[Report],
    settings: VerifyOptions,
    jobs: int,
    alone: bool,
    meter: Meter,
) -> None:
    """As `_one` for each target, by several processes: large directories file by file."""
    work: list[tuple[int, int, Callable[[], Any]]] = []
    large: list[int] = []
    for i, target in enumerate(targets):
        if target.path == STDIN or (isinstance(target, FileTarget) and target.source is not None):
            _one(target, parts[i], settings, alone, meter)
            continue
        spec, size = _Spec(target.path, kind(target), target.options), _size(target)
        if isinstance(target, FileTarget) or (size < _SMALL and not alone):
            work.append((i, size, _Whole(spec, settings, alone)))
            continue
        large.append(i)
        _begin(target, parts[i])
        work.append((i, 0, _Held(spec, settings)))
        work += [(i, file.size, _File(spec, file.name, settings)) for file in _files(target)]
    # What takes longest first, so that it is not left for the end; a report is put together in its own order.
    order = sorted(range(len(work)), key=lambda one: -work[one][1] if work[one][1] else -(1 << 62))
    done: dict[int, Any] = {}
    for one, found in zip(order, _jobs.run([work[one][2] for one in order], jobs), strict=True):
        done[one] = found
        meter.add(work[one][1])
    checked: dict[int, list[tuple[str, Fault]]] = {}
    for one, (i, _, _) in enumerate(work):
        found = done[one]
        if isinstance(found, Report):
            parts[i].become(found)
        elif isinstance(found, FileReport):
            _take(parts[i], found)
        else:
            checked[i] = found
    ends = [_Ended(work_of, settings, parts[i], checked[i], alone) for i, work_of in _specs(targets, large)]
    for i, report in zip(large, _jobs.run(ends, jobs), strict=True):
        parts[i].become(report)


def _specs(targets: Sequence[Target], some: Sequence[int]) -> list[tuple[int, _Spec]]:
    return [(i, _Spec(targets[i].path, kind(targets[i]), targets[i].options)) for i in some]
