"""A directory mended as its layout says: file by file, out of place or in place, whole or not at all.

Out of place the result is made beside `out` and renamed. In place only what changes is made anew, inside the directory; the originals
are saved (`writers.backup`), then the journal of `writers.commit` puts the new files in their places. Either way the result is
checked before it is committed, bytes are copied in windows of bounded size, and what comes out as it was counts as untouched
however it was made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from logwright.codec import registry
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
from logwright.codec.store.build import Summary
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Entry, Listing, Plan, Role
from logwright.codec.store.roots import name_without_roots
from logwright.codec.window import Chunk, Zeros
from logwright.readers.source import Source, is_remote, local_path
from logwright.writers.backup import WINDOW, Backup
from logwright.writers.commit import Method, Transaction
from logwright.writers.filesystem import FileSystem, as_view, plain_errors
from logwright.writers.stage import StagedFolder, checked


class Opens(Listing, Protocol):
    """A directory whose files can be opened."""

    def open(self, name: str) -> Source: ...


class Original(Opens, Protocol):
    """A directory that is mended, or a replica of it: its files have paths."""

    path: str

    def real(self, name: str) -> str: ...


Make = Callable[[Sequence[Original], Sequence[Plan]], RepairPlan]
"""What the layout says of some copies and their plans."""


@dataclass
class Done:
    """What mending did, or would do. Names are those of files of the first copy and of the result."""

    summary: Summary = field(default_factory=lambda: Summary(0))
    kept: list[Copy] = field(default_factory=list)
    """Stretches of primary files, in the order of the result."""
    cut: Sequence[Removed] = ()
    written: list[str] = field(default_factory=list)
    """Files changed or made, in the order in which they are put in place."""
    changed: set[str] = field(default_factory=set)
    """Those of them that were there before; `derived` those of these that are made from others."""
    derived: set[str] = field(default_factory=set)
    untouched: list[str] = field(default_factory=list)
    removed: tuple[str, ...] = ()
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    """What is left in the result, of severity error; not empty only where that was allowed."""
    warnings: list[str] = field(default_factory=list)


class Mender:
    """Mends one directory. `copies` opens it anew, first, and its replicas; `reading` are the options of their plans. `known` is
    what was said of the directory before, by `about`; with `missing` it lacked rows already. With `tolerant` a result that is still
    damaged is no error. `show` is told how many more bytes are done. With `gathers` the files of further roots lie in the store's own
    directory in the result."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        copies: Callable[[], Sequence[Original]],
        make: Make,
        reading: Options,
        *,
        known: Container[tuple[str, Kind, str]] = (),
        missing: bool = False,
        tolerant: bool = False,
        show: Callable[[int], None] = lambda done: None,
        gathers: bool = True,
    ) -> None:
        self._files, self._layout, self._open, self._make = files, layout, copies, make
        self._reading, self._known = reading, known
        self._missing, self._tolerant, self._show = missing, tolerant, show
        self._roots, self._gathers = layout.roots(reading), gathers

    def dry(self) -> Done:
        """Only say what would be done."""
        copies = self._open()
        return self._mend(copies, None)

    def beside(self, out: str) -> Done:
        """Write the result to a new directory."""
        with plain_errors(out):
            transaction = Transaction.begin(self._files, self._layout, out, "error")
            try:
                copies = self._open()
                done = self._mend(copies, transaction.stage, whole=True)
                transaction.stage.flush()
                reading = _of_result(self._layout, self._reading)
                done.faults = self._check(transaction.stage, copies[0], reading, done)
                self._refuse_changed(copies)
                transaction.done = "the result is in its place"
                transaction.then = "The next write to that place tidies up"
                transaction.commit(sorted(transaction.stage.staged()))
            except BaseException:
                transaction.fail()
                raise
            if transaction.ticket.method is Method.RENAME:
                # Only now: a directory that is not to be written to could not have been made.
                self._adopt(transaction.target.path, copies[0], "", done)
            return done

    def in_place(self, path: str, backup: str) -> Done:
        """Change the directory itself; `path` is that of the first copy."""
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
                transaction.done = "the directory is mended"
                transaction.then = "The next repair of this directory, or write to it, finishes that"
                # What is derived goes before what it is derived from is replaced: the system, started in between, makes it anew.
                transaction.commit(done.written, {*done.removed, *done.derived})
            except BaseException:
                transaction.fail()
                if saved is not None:
                    with contextlib.suppress(OSError):
                        saved.keep() if transaction.committed else saved.undo()
                raise
            if saved is not None:
                with contextlib.suppress(OSError):
                    saved.keep()  # its lock file, left behind, harms nobody: the originals differ
            return done

    # What the layout says

    def _mend(self, copies: Sequence[Original], stage: StagedFolder | None, *, whole: bool = False) -> Done:
        """Go through the files of the result, and stage those that differ from the first copy's, or (`whole`) all of them."""
        with plain_errors(copies[0].path):
            plans = [self._layout.plan(copy, self._reading) for copy in copies]
            mending = self._make(copies, plans)
        roles = [{file.name: file.role for file in plan.files} for plan in plans]
        before = {entry.name: entry.size for entry in copies[0].entries()}
        model = next((file.name for file in plans[0].files if file.role is Role.PRIMARY), "")
        done = Done()
        for mended in mending.files():
            pieces = _joined(mended.pieces)
            name = checked(name_without_roots(mended.name, self._roots) if self._gathers else mended.name)
            if name in done.untouched or name in done.written:
                raise LogwrightError(f"layout {self._layout.name} made {name} twice")
            same = _same(copies, name, pieces, before.get(name))
            done.kept += [
                piece
                for piece in pieces
                if isinstance(piece, Copy) and roles[piece.copy].get(piece.file) is Role.PRIMARY
            ]
            if same:
                done.untouched.append(name)
            else:
                done.written.append(name)
                if name in before:
                    done.changed.add(name)
                    if roles[0].get(name) is Role.DERIVED:
                        done.derived.add(name)
            if stage is not None and (whole or not same):
                try:
                    self._stage(stage, copies, name, pieces)
                except UnreadableError as error:
                    if not same or roles[0].get(name) in (Role.PRIMARY, Role.DERIVED):
                        raise
                    # Nobody judged what is in it, and nothing else stands on it.
                    stage.drop(name)
                    done.warnings.append(
                        f"{name} can't be read from the disk and is not in the result: {error.message}"
                    )
                    continue
                like = name if same else mended.like if mended.like in before else model
                self._adopt(stage.real(name), copies[0], like or "", done, times=same)
                stage.close_file(name)
        done.cut, done.summary = tuple(mending.cut), mending.summary()
        done.removed = tuple(name for name in mending.removes if name in before)
        return done

    def _stage(
        self, stage: StagedFolder, copies: Sequence[Original], name: str, pieces: Sequence[Extent]
    ) -> None:
        stage.append(name, b"")
        for piece in pieces:
            for data in _windows(copies, piece):
                stage.append(name, _sparse(data))
                self._show(len(data))

    def _adopt(self, path: str, copy: Original, name: str, done: Done, *, times: bool = False) -> None:
        """Owner and mode of a file of a copy, or ("") of the directory itself."""
        if is_remote(copy.path):
            return
        model = copy.real(name) if name else self._files.real(local_path(copy.path))
        try:
            whole = self._files.adopt(path, model, permissions=True, times=times)
        except OSError:
            whole = False  # the file is as it should be otherwise
        if not whole and (text := "owner, mode or times of files could not be kept") not in done.warnings:
            done.warnings.append(text)

    # Before the commit

    def _check(
        self, result: Opens, before: Original, reading: Options, done: Done
    ) -> list[tuple[str, Fault]]:
        """The errors in the result. Raises `DamageError` for one in a file unless that is allowed, and for one of the directory as a
        whole that was not there before: what is missing can't be mended."""
        plan = self._layout.plan(result, reading)
        checker = None
        check = self._layout.capabilities.check
        if check is not None:
            checker = check(result, plan, reading, clean=None, live=False, deep=True)
        wrong = _severe(_in_files(result, self._layout, plan, checker))
        around = _severe((*plan.faults, *(() if checker is None else checker.finish())))
        # Rows that are reported as lost stay lost: other files of the result may say so in other words.
        new = wrong + [
            one for one in around if about(*one) not in self._known and not self._is_loss(one[1], done.cut)
        ]
        if new and not self._tolerant:
            name, fault = new[0]
            error = DamageError(
                f"the result would not be sound, so nothing was written: {name or 'the directory'} at byte {fault.offset}: "
                f"{fault.kind}, {fault.detail}",
                path=before.path,
                advice="Another strategy may do (prefix keeps what is before the first damage)",
            )
            error.fault = fault
            raise error
        return wrong + around

    def _is_loss(self, fault: Fault, cuts: Iterable[Removed]) -> bool:
        """Whether a fault only says that rows are missing, where rows are reported as lost already."""
        reported = self._missing or any(cut.rows_lost != 0 for cut in cuts)
        return reported and bool(fault.lost) and not fault.length

    def _refuse_changed(self, copies: Iterable[Original]) -> None:
        for copy in copies:
            for entry in () if is_remote(copy.path) else copy.entries():
                found = self._files.stat(copy.real(entry.name))
                if found is None or found.size != entry.size:
                    raise BusyError(
                        f"{entry.name} has been changed by someone else while it was read; nothing was written",
                        path=copy.path,
                        advice="Make sure that nothing writes there, or mend a copy of the directory",
                    )

    def _save(self, saved: Backup, copy: Original, done: Done) -> None:
        names = sorted({*done.changed, *done.removed})
        cut = [
            {"file": one.file, "offset": one.offset, "length": one.length, "why": one.why}
            for one in done.cut
            if one.copy == 0
        ]
        saved.save(names, copy.open, copy.real, {"cut": cut})
        done.warnings += [
            f"{length} bytes of {name} can't be read from the disk: the backup has zeros for them"
            for name, length in saved.unreadable.items()
        ]


class _Overlay:
    """A directory as it will be once staged files have been put in their places."""

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
    """Return the options of reading a result whose files lie in one directory."""
    given = {name: value for name, value in reading.to_dict().items() if reading.given(name)}
    return Options(
        layout.read_options, {name: given[name] for name in given if name not in layout.root_options}
    )


def about(name: str, fault: Fault) -> tuple[str, Kind, str]:
    """What a fault is about, wherever it is found."""
    return name, fault.kind, fault.detail


def _severe(faults: Iterable[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    return [one for one in faults if one[1].severity is Severity.ERROR]


def _in_files(
    listing: Opens, layout: Layout, plan: Plan, checker: Fold[Iterable[tuple[str, Fault]]] | None
) -> Iterator[tuple[str, Fault]]:
    """What is wrong with the files of a directory, checksums included; their frames go to the checker."""
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
            for found in Walk(source, codec, context):
                if isinstance(found, Hole):
                    yield file.name, found.fault
                    continue
                yield from ((file.name, fault) for fault in found.faults)
                if fold is not None and len(found.frames):
                    fold.add(found.window, found.frames)


# Pieces


def _joined(pieces: Iterable[Extent]) -> list[Extent]:
    """The same without empty pieces, those put together that lie side by side in one file."""
    out: list[Extent] = []
    for piece in pieces:
        if not len(piece):
            continue
        last = out[-1] if out else None
        if (
            isinstance(piece, Copy)
            and isinstance(last, Copy)
            and (last.file, last.copy, last.stop) == (piece.file, piece.copy, piece.start)
        ):
            out[-1] = Copy(last.file, last.start, piece.stop, last.copy)
        else:
            out.append(piece)
    return out


def _sparse(data: Chunk) -> Chunk:
    """Return a window of a file, as a hole where it has nothing but zeros."""
    view = as_view(data)
    if not len(view) or view[0] or view[-1] or np.frombuffer(view, np.uint8).any():
        return data
    return Zeros(len(view))


def _windows(copies: Sequence[Original], piece: Extent) -> Iterator[Chunk]:
    """The bytes of a piece. What can't be read from the disk is never made up: `UnreadableError`."""
    if isinstance(piece, Zeros):
        for at in range(0, len(piece), WINDOW):
            yield Zeros(min(WINDOW, len(piece) - at))
        return
    if not isinstance(piece, Copy):
        yield piece
        return
    with copies[piece.copy].open(piece.file) as source:
        at = piece.start
        while at < piece.stop:
            data = source.pread(at, min(WINDOW, piece.stop - at))
            if not len(data):
                raise BusyError(
                    "it has become shorter while it was read; nothing was written", path=source.path
                )
            yield data
            at += len(data)


def _same(copies: Sequence[Original], name: str, pieces: Sequence[Extent], size: int | None) -> bool:
    """Whether pieces are the bytes of a file of the first copy, of `size` bytes (None: there is no such file)."""
    if size is None or sum(map(len, pieces)) != size:
        return False
    at = 0
    for piece in pieces:
        untouched = isinstance(piece, Copy) and (piece.file, piece.copy, piece.start) == (name, 0, at)
        if not untouched and not _equal(copies, name, at, piece):
            return False
        at += len(piece)
    return True


def _equal(copies: Sequence[Original], name: str, at: int, piece: Extent) -> bool:
    with copies[0].open(name) as source:
        for data in _windows(copies, piece):
            view = as_view(data)
            try:
                there = source.pread(at, len(view))
            except UnreadableError:
                return False
            if as_view(there) != view:
                return False
            at += len(view)
    return True
