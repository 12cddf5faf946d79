"""Write the result of a repair plan for a directory, atomically, out of place or in place.

Out of place the result is staged beside `out` and renamed. In place only changed files are staged inside the directory; the originals are
saved (`writers.backup`), then the journal of `writers.commit` renames the new files. Either way the result is verified before the commit,
bytes are copied in windows of bounded size, and files that come out unchanged count as untouched.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from logwright.codec import plural, registry
from logwright.codec.arrays import Bytes
from logwright.codec.capability import CheckSettings
from logwright.codec.engine.fold import Fold
from logwright.codec.engine.repair import Removed, RepairPlan
from logwright.codec.fault import (
    BusyError,
    DamageError,
    Fault,
    Kind,
    LogwrightError,
    Severity,
    UnreadableError,
)
from logwright.codec.frames.walk import Hole, Walk
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Entry, Listing, Plan, Role
from logwright.codec.store.roots import name_without_roots
from logwright.codec.window import Chunk, Zeros
from logwright.readers.corrected import corrects, original
from logwright.readers.source import Source, is_remote, local_path
from logwright.writers.backup import WINDOW, Backup
from logwright.writers.commit import Method, Transaction
from logwright.writers.filesystem import FileSystem, as_view, plain_errors
from logwright.writers.stage import StagedFolder, checked

_BLOCK = 1 << 16
"""The smallest run of zeros that becomes a hole, in bytes."""


class Opens(Listing, Protocol):
    """A directory whose files can be opened."""

    def open(self, name: str) -> Source: ...


class Original(Opens, Protocol):
    """A directory to repair, or a replica of it, whose files have paths."""

    path: str

    def real(self, name: str) -> str: ...


MakePlan = Callable[[Sequence[Original], Sequence[Plan]], RepairPlan]
"""Makes the plan of the layout for some copies and their plans."""


@dataclass
class Done:
    """The work that was done, or would be done. Names are those of files of the first copy and of the result."""

    summary: Summary = field(default_factory=lambda: Summary(0))
    kept: list[Copy] = field(default_factory=list)
    """Ranges of primary files, in the order of the result."""
    cut: Sequence[Removed] = ()
    leaves_gaps: bool = False
    """See `RepairPlan`."""
    written: list[str] = field(default_factory=list)
    """Changed and new files, in the order of the commit."""
    changed: set[str] = field(default_factory=set)
    """Those of them that existed before; `derived` are those of these that are derived files."""
    derived: set[str] = field(default_factory=set)
    untouched: list[str] = field(default_factory=list)
    removed: tuple[str, ...] = ()
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    """Errors that remain in the result. Not empty only if that was allowed."""
    warnings: list[str] = field(default_factory=list)


class PlanWriter:
    """Writes the result for one directory.

    `copies` lists the directory and its replicas again; `reading` are the options of their plans. `known` are faults of the directory
    reported before, by `about`; `missing`: it lacked rows already. `tolerant`: a result that is still damaged is not an error. `show` is
    called with the number of bytes written since the last call. `gathers`: the result has the files of further roots in the store's own
    directory, and those of this directory in its folder `own`.
    """

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        copies: Callable[[], Sequence[Original]],
        make: MakePlan,
        reading: Options,
        *,
        known: Iterable[tuple[str, Kind, str]] = (),
        missing: bool = False,
        tolerant: bool = False,
        show: Callable[[int], None] = lambda done: None,
        gathers: bool = True,
        own: str = "",
    ) -> None:
        self._files, self._layout, self._open, self._make = files, layout, copies, make
        self._reading = reading
        self._missing, self._tolerant, self._show = missing, tolerant, show
        self._roots, self._gathers, self._own = layout.roots(reading), gathers, own
        self._known = {(self._placed(name), *rest) for name, *rest in known}

    def dry(self) -> Done:
        """Only find out what would be done."""
        copies = self._open()
        return self._mend(copies, None)

    def beside(self, out: str) -> Done:
        """Write the result to a new directory."""
        with plain_errors(out):
            transaction = Transaction.begin(self._files, self._layout, out, "error")
            try:
                copies = self._open()
                done = self._mend(copies, transaction.stage, everything=True)
                transaction.stage.flush()
                reading = _of_result(self._layout, self._reading)
                done.faults = self._check(transaction.stage, copies[0], reading, done)
                self._refuse_changed(copies)
                transaction.done = "the result is committed"
                transaction.then = "The next write to this path cleans up"
                transaction.commit(sorted(transaction.stage.staged()))
            except BaseException:
                transaction.fail()
                raise
            if transaction.ticket.method is Method.RENAME:
                # Only now, since nothing could be created in a read-only directory.
                self._adopt(transaction.target.path, copies[0], "", done)
            return done

    def in_place(self, path: str, backup: str) -> Done:
        """Change the directory itself. `path` is that of the first copy."""
        with plain_errors(path):
            transaction = Transaction.begin(self._files, self._layout, path, "append", roots=self._roots)
            saved: Backup | None = None
            try:
                copies = self._open()
                done = self._mend(copies, transaction.stage)
                transaction.stage.flush()
                result = _Overlay(copies[0], transaction.stage, done.removed)
                done.faults = self._check(result, copies[0], self._reading, done)
                if done.changed or done.removed:
                    saved = Backup(self._files, backup, transaction.target.roots)
                    self._save(saved, copies[0], done)
                transaction.done = "the directory is repaired"
                transaction.then = "The next repair of this directory, or write to it, finishes the cleanup"
                # Derived files are removed before their primary files are replaced, so that the system rebuilds them if it starts in
                # between.
                transaction.commit(done.written, {*done.removed, *done.derived})
            except BaseException:
                transaction.fail()
                if saved is not None:
                    with contextlib.suppress(OSError):
                        saved.keep() if transaction.committed else saved.undo()
                raise
            if saved is not None:
                with contextlib.suppress(OSError):
                    saved.keep()  # a lock file that stays is harmless, since the originals differ
            return done

    def _placed(self, name: str) -> str:
        """Return the name of a file in the result."""
        return name_without_roots(name, self._roots, self._own) if self._gathers else name

    # Staging

    def _mend(
        self, copies: Sequence[Original], stage: StagedFolder | None, *, everything: bool = False
    ) -> Done:
        """Stage the files of the result that differ from the first copy's, or (`everything`) all of them."""
        with plain_errors(copies[0].path):
            plans = [self._layout.plan(copy, self._reading) for copy in copies]
            plan = self._make(copies, plans)
        roles = [{file.name: file.role for file in plan.files} for plan in plans]
        before = {entry.name: entry.size for entry in copies[0].entries()}
        model = next((file.name for file in plans[0].files if file.role is Role.PRIMARY), "")
        done = Done()
        comparisons: dict[str, _Comparison] = {}
        for output in plan.files():
            name = checked(self._placed(output.name))
            if name in done.untouched or name in done.written:
                raise LogwrightError(f"layout {self._layout.name} made {name} twice")
            if isinstance(output, Piece):
                comparison = comparisons.setdefault(name, _Comparison(copies, name, before.get(name)))
                comparison.add(output)
                if stage is not None:
                    stage.take([replace(output, name=name)])
                    self._show(len(output.data))
                if not output.done:
                    continue
                same, like, extents = comparison.finish(), name, []
                if stage is not None and same and not everything:
                    stage.drop(name)
            else:
                extents, like = _joined(output.pieces), output.like or ""
                same = _same(copies, name, extents, before.get(name))
            done.kept += [
                extent
                for extent in extents
                if isinstance(extent, Copy) and roles[extent.copy].get(extent.file) is Role.PRIMARY
            ]
            if same:
                done.untouched.append(name)
            else:
                done.written.append(name)
                if name in before:
                    done.changed.add(name)
                    if roles[0].get(name) is Role.DERIVED:
                        done.derived.add(name)
            if stage is not None and (everything or not same):
                try:
                    if not isinstance(output, Piece):
                        self._stage(stage, copies, name, extents)
                except UnreadableError as error:
                    if not same or roles[0].get(name) in (Role.PRIMARY, Role.DERIVED):
                        raise
                    # The file was not checked, and nothing depends on it.
                    stage.drop(name)
                    done.warnings.append(
                        f"{name} cannot be read from the disk and is not in the result: {error.message}"
                    )
                    continue
                like = name if same else like if like in before else model
                self._adopt(stage.real(name), copies[0], like, done, times=same)
                if not isinstance(output, Piece):
                    stage.close_file(name)
        done.cut, done.summary, done.leaves_gaps = tuple(plan.cut), plan.summary(), plan.leaves_gaps
        done.removed = tuple(name for name in plan.removes if name in before)
        return done

    def _stage(
        self, stage: StagedFolder, copies: Sequence[Original], name: str, extents: Sequence[Extent]
    ) -> None:
        stage.append(name, b"")
        for extent in extents:
            for data in _windows(copies, extent):
                for part in _sparse(data):
                    stage.append(name, part)
                    self._show(len(part))

    def _adopt(self, path: str, copy: Original, name: str, done: Done, *, times: bool = False) -> None:
        """Give a path the owner and mode of a file of a copy, or ("") of the directory."""
        if is_remote(copy.path):
            return
        model = copy.real(name) if name else self._files.real(local_path(copy.path))
        try:
            complete = self._files.adopt(path, model, permissions=True, times=times)
        except OSError:
            complete = False  # the file itself is correct
        if (
            not complete
            and (text := "owner, mode or times of files could not be preserved") not in done.warnings
        ):
            done.warnings.append(text)

    # Before the commit

    def _check(
        self, result: Opens, before: Original, reading: Options, done: Done
    ) -> list[tuple[str, Fault]]:
        """Return the errors in the result. Raises `DamageError` for an error in a file unless allowed, and for a new error of the directory
        as a whole."""
        plan = self._layout.plan(result, reading)
        checker = None
        check = self._layout.capabilities.check
        if check is not None:
            checker = check(result, plan, reading, CheckSettings())
        in_files = _severe(_in_files(result, plan, checker))
        of_directory = _severe((*plan.faults, *(() if checker is None else checker.finish())))
        if done.leaves_gaps:
            of_directory = [entry for entry in of_directory if not entry[1].lost or entry[1].length]
        # Lost rows that were reported stay lost; other files of the result may describe them differently.
        new = in_files + [
            entry
            for entry in of_directory
            if about(*entry) not in self._known and not self._is_loss(entry[1], done.cut)
        ]
        if new and not self._tolerant:
            name, fault = new[0]
            error = DamageError(
                f"the result would be damaged, so nothing was written: {name or 'the directory'} at byte {fault.offset}: "
                f"{fault.kind}, {fault.detail}",
                path=before.path,
                advice="Try another strategy: salvage keeps every undamaged frame, prefix everything before the first damage",
            )
            error.fault = fault
            raise error
        return in_files + of_directory

    def _is_loss(self, fault: Fault, cuts: Iterable[Removed]) -> bool:
        """Return whether a fault only says that rows are missing which were reported as lost already."""
        reported = self._missing or any(cut.rows_lost != 0 for cut in cuts)
        return reported and bool(fault.lost) and not fault.length

    def _refuse_changed(self, copies: Iterable[Original]) -> None:
        for copy in copies:
            for entry in () if is_remote(copy.path) else copy.entries():
                status = self._files.stat(copy.real(entry.name))
                if status is None or status.size != entry.size:
                    raise BusyError(
                        f"{entry.name} was changed by someone else during the repair; nothing was written",
                        path=copy.path,
                        advice="Make sure that nothing writes to the directory, or repair a copy of it",
                    )

    def _save(self, saved: Backup, copy: Original, done: Done) -> None:
        names = sorted({*done.changed, *done.removed})
        cut = [
            {"file": removed.file, "offset": removed.offset, "length": removed.length, "why": removed.why}
            for removed in done.cut
            if removed.copy == 0
        ]
        saved.save(names, original(copy).open, copy.real, {"cut": cut})
        done.warnings += [
            f"{plural.count(length, 'byte')} of {name} cannot be read from the disk; the backup has zeros instead"
            for name, length in saved.unreadable.items()
        ]


class _Overlay:
    """A directory as it will be after the commit."""

    def __init__(self, below: Original, stage: StagedFolder, removed: Iterable[str]) -> None:
        self.name = below.name
        self._below, self._stage, self._removed = below, stage, set(removed)

    def entries(self) -> Sequence[Entry]:
        sizes = {entry.name: entry.size for entry in self._below.entries() if entry.name not in self._removed}
        return [Entry(name, size) for name, size in sorted({**sizes, **self._stage.staged()}.items())]

    def _of(self, name: str) -> Opens:
        return self._stage if name in self._stage.staged() else self._below

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._of(name).read(name, offset, length)

    def open(self, name: str) -> Source:
        return self._of(name).open(name)

    def parent(self) -> Listing | None:
        return self._below.parent()


def _of_result(layout: Layout, reading: Options) -> Options:
    """Return the read options of a result whose files are all in one directory."""
    passed = {name: value for name, value in reading.to_dict().items() if reading.given(name)}
    return Options(
        layout.read_options, {name: passed[name] for name in passed if name not in layout.root_options}
    )


def about(name: str, fault: Fault) -> tuple[str, Kind, str]:
    """Return what identifies a fault, wherever it is found."""
    return name, fault.kind, fault.detail


def _severe(faults: Iterable[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    return [entry for entry in faults if entry[1].severity is Severity.ERROR]


def _in_files(
    listing: Opens, plan: Plan, checker: Fold[Iterable[tuple[str, Fault]]] | None
) -> Iterator[tuple[str, Fault]]:
    """Iterate over the faults of the files of a directory, with checksums verified. Their frames go to the checker."""
    for file in plan.files:
        if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            continue
        codec = registry.get(file.codec)
        hints = {"directory": listing.name, "live": False, **file.hints}
        context = codec.context(file.name.rpartition("/")[2], Options(codec.options), **hints)
        fold = checker if file.role is Role.PRIMARY else None
        if fold is not None:
            fold.begin(file)
        with listing.open(file.name) as source:
            for step in Walk(source, codec, context):
                if isinstance(step, Hole):
                    yield file.name, step.fault
                    continue
                yield from ((file.name, fault) for fault in step.faults)
                if fold is not None and len(step.frames):
                    fold.add(step.window, step.frames)


# Extents


def _joined(extents: Iterable[Extent]) -> list[Extent]:
    """Return extents without empty ones, with adjacent ranges of one file joined."""
    out: list[Extent] = []
    for extent in extents:
        if not len(extent):
            continue
        last = out[-1] if out else None
        if (
            isinstance(extent, Copy)
            and isinstance(last, Copy)
            and (last.file, last.copy, last.stop) == (extent.file, extent.copy, extent.start)
        ):
            out[-1] = Copy(last.file, last.start, extent.stop, last.copy)
        else:
            out.append(extent)
    return out


def _sparse(data: Chunk) -> Iterator[Chunk]:
    """Yield the bytes of a window, with blocks of zeros as holes."""
    if isinstance(data, Zeros):
        yield data
        return
    view = as_view(data)
    values, begun = np.frombuffer(view, np.uint8), 0
    for empty, starts in itertools.groupby(
        range(0, len(view), _BLOCK), lambda at: _is_empty(values[at : at + _BLOCK])
    ):
        *_, last = starts
        stop = min(last + _BLOCK, len(view))
        yield Zeros(stop - begun) if empty else view[begun:stop]
        begun = stop


def _is_empty(block: Bytes) -> bool:
    return not (block[0] or block[-1] or block.any())


def _windows(copies: Sequence[Original], extent: Extent | Chunk) -> Iterator[Chunk]:
    """Iterate over the bytes of an extent. Raises `UnreadableError` for bytes that the disk cannot read."""
    if isinstance(extent, Zeros):
        for at in range(0, len(extent), WINDOW):
            yield Zeros(min(WINDOW, len(extent) - at))
        return
    if not isinstance(extent, Copy):
        yield extent
        return
    with copies[extent.copy].open(extent.file) as source:
        yield from copied(source, extent.start, extent.stop)


def copied(source: Source, at: int, stop: int) -> Iterator[Bytes]:
    """Iterate over the bytes `[at, stop)` of a file, in windows. Raises `BusyError` if it ends before."""
    while at < stop:
        data = source.pread(at, min(WINDOW, stop - at))
        if not len(data):
            raise BusyError(
                "the file was truncated while it was being read; nothing was written", path=source.path
            )
        yield data
        at += len(data)


class _Comparison:
    """Compares a file made of pieces with the file of this name in the first copy, of `size` bytes (None: no such file).

    Zeros may be overwritten later, so they are compared at the end.
    """

    def __init__(self, copies: Sequence[Original], name: str, size: int | None) -> None:
        self._copies, self._name, self._size = copies, name, size
        self._end, self._same = 0, size is not None
        self._zeros: list[tuple[int, int]] = []

    def add(self, piece: Piece) -> None:
        start = self._end if piece.offset is None else piece.offset
        stop = start + len(piece.data)
        self._end = max(self._end, stop)
        if isinstance(piece.data, Zeros):
            self._zeros.append((start, stop))
            return
        self._zeros = [(stop if start <= low < stop else low, high) for low, high in self._zeros]
        self._same = self._same and _equal(self._copies, self._name, start, piece.data)

    def finish(self) -> bool:
        """Return whether the files are equal."""
        return (
            self._same
            and self._end == self._size
            and all(
                _equal(self._copies, self._name, low, Zeros(high - low))
                for low, high in self._zeros
                if low < high
            )
        )


def _same(copies: Sequence[Original], name: str, extents: Sequence[Extent], size: int | None) -> bool:
    """Return whether extents are equal to a file of the first copy, of `size` bytes (None: no such file)."""
    if size is None or sum(map(len, extents)) != size:
        return False
    if corrects(copies[0], name):
        return False
    at = 0
    for extent in extents:
        untouched = isinstance(extent, Copy) and (extent.file, extent.copy, extent.start) == (name, 0, at)
        if not untouched and not _equal(copies, name, at, extent):
            return False
        at += len(extent)
    return True


def _equal(copies: Sequence[Original], name: str, at: int, extent: Extent | Chunk) -> bool:
    with copies[0].open(name) as source:
        for data in _windows(copies, extent):
            try:
                there = source.pread(at, len(data))
            except UnreadableError:
                return False
            if len(there) != len(data):
                return False
            if isinstance(data, Zeros):
                if there.any():
                    return False
            # Views are compared byte by byte, which takes sixty times as long.
            elif not pa.py_buffer(there).equals(pa.py_buffer(as_view(data))):
                return False
            at += len(data)
    return True
