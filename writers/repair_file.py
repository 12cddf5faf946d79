"""Repair a single file with its codec: keep the bytes of every good frame, and remove what is between them.

Files derived from it, such as indexes beside it, are not changed; a directory is repaired by its layout (`writers.apply_plan`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from logwright.codec import plural
from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import BusyError, DamageError, Fault, Severity, UsageError
from logwright.codec.frames.walk import Hole, Walk
from logwright.codec.option import Verb
from logwright.codec.plural import count
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Entry, Listing, PlannedFile, Role
from logwright.codec.store.roots import Roots
from logwright.codec.window import Chunk
from logwright.readers.corrected import CorrectedSource, found_in, note_corrections, original
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.source import STDIN, Source, is_remote, local_path
from logwright.readers.stream import named
from logwright.readers.target import FileTarget, flags
from logwright.readers.task import codec_options
from logwright.writers.apply_plan import copied
from logwright.writers.backup import Backup, refuse_backup_inside
from logwright.writers.file import Draft
from logwright.writers.filesystem import FileSystem, plain_errors
from logwright.writers.stage import FileSource

Stretches = list[tuple[int, int]]
Pieces = Sequence[Extent]


def repair_file(
    target: FileTarget,
    strategy: Strategy,
    out: str | None,
    backup: str | None,
    dry_run: bool,
    files: FileSystem,
    report: Report,
    *,
    untouched: bool = False,
    correct: bool = True,
) -> None:
    """Repair a file to `out`, or in place with the original saved in `backup`, and fill in the report, which has the faults.

    Raises `UsageError` for strategy "system", and `DamageError` for a damaged file that is a single frame.
    """
    if strategy is Strategy.SYSTEM:
        raise UsageError(
            "strategy system works on a directory, but this is a file",
            path=target.path,
            advice="Pass its directory, or use strategy salvage or prefix",
        )
    if backup is not None and (target.path == STDIN or is_remote(target.path)):
        raise UsageError("only local files can be changed in place", path=target.path)
    with plain_errors(target.path):
        _Repair(target, strategy, files, report, untouched=untouched, correct=correct).run(
            out, backup, dry_run
        )


class FileWriter:
    """Writes a file made of extents of another one, and replaces the target after verifying it."""

    def __init__(self, target: FileTarget, files: FileSystem, report: Report) -> None:
        self._target, self._files, self._report = target, files, report
        self._untouched = False
        """Whether the result is the unchanged file, including its damage."""

    def _context(self) -> object:
        target = self._target
        return target.codec.context(target.name, codec_options(target.codec, target.options), **target.hints)

    def beside(self, source: Source, pieces: Pieces, out: str) -> int:
        status = self._files.stat(out)
        empty = status is not None and not status.directory and not status.size
        if status is not None and self._same(out):
            raise UsageError("the result cannot replace its own input", path=out, advice="Use another path")
        draft = Draft(self._files, out, "overwrite" if empty else "error")
        try:
            rows = self._fill(draft, source, pieces)
            draft.commit()
        except BaseException:
            draft.undo()
            raise
        return rows

    def _same(self, out: str) -> bool:
        path = self._target.path
        return (
            path != STDIN
            and not is_remote(path)
            and self._files.real(local_path(path)) == self._files.real(out)
        )

    def in_place(self, source: Source, pieces: Pieces, backup: str) -> int:
        files, path = self._files, local_path(self._target.path)
        folder, name = os.path.split(files.real(path))
        refuse_backup_inside(files, backup, [folder])
        draft = Draft(files, path, "overwrite")
        saved: Backup | None = None
        try:
            rows = self._fill(draft, source, pieces)
            saved = Backup(files, backup, Roots(folder))
            saved.save(
                [name], lambda _: nullcontext(original(source)), lambda _: os.path.join(folder, name), {}
            )
            status = files.stat(os.path.join(folder, name))
            if status is None or status.size != source.size:
                raise BusyError(
                    "it was changed by someone else during the repair; nothing was written", path=path
                )
            draft.commit()
        except BaseException:
            draft.undo()
            if saved is not None:
                with suppress(OSError):
                    saved.keep() if draft.committed else saved.undo()
            raise
        with suppress(OSError):
            saved.keep()
        return rows

    def _fill(self, draft: Draft, source: Source, pieces: Pieces) -> int:
        """Write the extents and verify the result. Return its number of rows."""
        for data in _windows(source, pieces):
            draft.write(data)
        path = self._target.path
        if path != STDIN and not is_remote(path):
            self._files.adopt(draft.path, self._files.real(local_path(path)), permissions=True)
        codec, entry = self._target.codec, FileReport(path, self._target.codec.name)
        context = self._context()
        columns = codec.checked_columns(context)
        with FileSource(self._files, draft.path) as written:
            for step in Walk(written, codec, context):
                faults = [step.fault] if isinstance(step, Hole) else step.faults
                for fault in faults:
                    if fault.severity is Severity.ERROR and not self._untouched:
                        raise DamageError(
                            f"the result would be damaged, so nothing was written: at byte {fault.offset}: {fault.detail}",
                            path=path,
                        )
                if isinstance(step, Hole):
                    continue
                for decoded in (
                    codec.decode(step.window, step.frames, "rows", columns, context)
                    if len(step.frames)
                    else ()
                ):
                    entry.rows += decoded.batch.num_rows
        return entry.rows


class _Repair(FileWriter):
    def __init__(
        self, target: FileTarget, strategy: Strategy, files: FileSystem, report: Report, *, untouched: bool,
        correct: bool,
    ) -> None:  # fmt: skip
        super().__init__(target, files, report)
        self._strategy, self._correct = strategy, correct
        self._untouched = untouched

    def run(self, out: str | None, backup: str | None, dry_run: bool) -> None:
        target, report = self._target, self._report
        opened = target.open()
        corrections = [c for file in report.files for c in file.corrections] if self._correct else []
        source: Source = CorrectedSource(opened, corrections) if corrections else opened
        try:
            cut, pieces = self._judge(source)
            kept = [(piece.start, piece.stop) for piece in pieces if isinstance(piece, Copy)]
            saved_to = target.path
            if dry_run:
                rows = None
            elif out is not None:
                rows = self.beside(source, pieces, local_path(out))
            elif cut or corrections:
                assert backup is not None
                saved_to = os.path.join(backup, target.name)
                rows = self.in_place(source, pieces, local_path(backup))
            else:
                rows = None
        finally:
            if target.source is None:
                source.close()
        if self._correct:
            note_corrections(report, found_in([report]), "would be " if dry_run else "")
        room = report.max_faults
        report.kept = [{"file": target.path, "offset": at, "length": end - at} for at, end in kept[:room]]
        report.cut = [removed_entry(removed, target.path, saved_to) for removed in cut[:room]]
        report.count_ranges(len(kept), len(cut), [removed.rows_lost for removed in cut])
        report.rows_kept = rows
        report.incomplete = any(removed.rows_lost != 0 for removed in cut)
        self._say(cut, bool(corrections), rows, out, backup, dry_run)

    def _judge(self, source: Source) -> tuple[Sequence[Removed], list[Extent]]:
        """Return what to remove, and the extents of the result. A tail that is not damage (preallocated zeros, data being written) stays."""
        codec, target = self._target.codec, self._target
        if self._untouched:
            return [], [Copy(target.name, 0, source.size)]
        repair = codec.capabilities.repair
        if repair is not None:
            options = codec_options(codec, target.options)
            with named(source):
                file = PlannedFile(target.name, source.size, Role.PRIMARY, codec.name)
                pieces, gone = repair(
                    Alone(target.name, source), file, self._strategy, options, correct=self._correct
                )
                return gone, list(pieces)
        cut = self._holes(source)
        if cut and self._strategy is Strategy.PREFIX:
            cut = [cut[0].to_end(source.size)]
        kept = _others([(removed.offset, removed.offset + removed.length) for removed in cut], source.size)
        return cut, [Copy(target.name, at, end) for at, end in kept]

    def _holes(self, source: Source) -> list[Removed]:
        codec, cut = self._target.codec, list[Removed]()
        with named(source):
            for step in Walk(source, codec, self._context()):
                if isinstance(step, Hole) and step.fault.severity is not Severity.INFO:
                    fault = step.fault
                    if codec.single_frame:
                        raise _one_frame(self._target, fault)
                    cut.append(Removed.damaged(self._target.name, fault))
                    if self._strategy is Strategy.PREFIX:
                        break
        return cut

    def _say(
        self, cut: Sequence[Removed], corrected: bool, rows: int | None, out: str | None, backup: str | None,
        dry_run: bool,
    ) -> None:  # fmt: skip
        report, target = self._report, self._target
        would = "would be " if dry_run else ""
        if cut:
            ranges = "1 range" if len(cut) == 1 else f"{len(cut):,} ranges"
            report.notes.append(
                f"{would}removed: {plural.count(sum(removed.length for removed in cut), 'byte')} ({ranges})"
            )
        elif out is None and not corrected:
            report.notes.append(
                "no changes needed" if dry_run else "no changes needed; the file is unchanged"
            )
        if rows is not None:
            report.notes.append(f"kept: {count(rows, report.nouns[0])}")
        if backup is not None and (cut or corrected) and not dry_run:
            report.notes.append(f"the original is in {backup}")
        if cut and out is None and target.around:
            report.notes.append(
                "files derived from this one are unchanged: rebuild its directory, or repair the directory instead"
            )
        if dry_run:
            report.next = (
                f"logwright repair {shlex.quote(target.path)}{flags(target, Verb.REPAIR)} --out FILE"
            )
        else:
            report.next = f"logwright verify {shlex.quote(out or target.path)}{flags(target, Verb.VERIFY)}"


def _one_frame(target: FileTarget, fault: Fault) -> DamageError:
    error = DamageError(
        f"{fault.kind}: {fault.detail}; a {target.codec.name} file is a single unit, so no part of it can be removed",
        path=target.path,
        offset=fault.offset,
        advice="If it is derived from other files, rebuild its directory",
    )
    error.fault = fault
    return error


def _others(gone: Stretches, size: int) -> Stretches:
    """Return the rest of `[0, size)` without some ranges, which are in order."""
    out: Stretches = []
    at = 0
    for start, stop in gone:
        if start > at:
            out.append((at, start))
        at = max(at, stop)
    return [*out, (at, size)] if at < size else out


def _windows(source: Source, pieces: Pieces) -> Iterator[Chunk]:
    for piece in pieces:
        if isinstance(piece, Copy):
            yield from copied(source, piece.start, piece.stop)
        else:
            yield piece


def removed_entry(cut: Removed, file: str, saved_to: str | None) -> dict[str, Any]:
    """Return the entry of `Report.cut` for a removed range, whose bytes are saved in another file."""
    return {
        "file": file,
        "offset": int(cut.offset),
        "length": int(cut.length),
        "saved_to": saved_to,
        "why": cut.why,
        "rows_lost": cut.rows_lost,
        "lost": dict(cut.lost),
    }


class Alone:
    """A file presented as a directory. See `logwright.codec.store.listing.Listing`."""

    def __init__(self, name: str, source: Source, directory: str = "") -> None:
        self.name = directory
        self._file, self._source = name, source

    def entries(self) -> Sequence[Entry]:
        return (Entry(self._file, self._source.size),)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._source.pread(offset, self._source.size - offset if length is None else length).tobytes()

    def parent(self) -> Listing | None:
        return None
