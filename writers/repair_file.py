"""One file, mended by its codec alone: every good frame's bytes are kept, what lies between them is cut.

What belongs to the file besides, indexes beside it say, is not touched: a directory is mended by its layout (`writers.mend`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import BusyError, DamageError, Fault, Severity, UsageError
from logwright.codec.frames.walk import Hole, Walk
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Entry, Listing, PlannedFile, Role
from logwright.codec.store.roots import Roots
from logwright.codec.window import Chunk
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.report_text import plural
from logwright.readers.resolve import FileTarget
from logwright.readers.source import STDIN, Source, is_remote, local_path
from logwright.readers.stream import named
from logwright.readers.task import codec_options
from logwright.writers.backup import WINDOW, Backup, refuse_backup_inside
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
) -> None:
    """Mend a file to `out`, or in place with its original in the directory `backup`, and tell the report, which has the faults.

    Raises `UsageError` for strategy "system", `DamageError` for a damaged file that is one frame as a whole.
    """
    if strategy is Strategy.SYSTEM:
        raise UsageError(
            "what the system would leave is known of a directory, not of a file",
            path=target.path,
            advice="Name its directory, or take the strategy salvage or prefix",
        )
    if backup is not None and (target.path == STDIN or is_remote(target.path)):
        raise UsageError("only local files are changed in place", path=target.path)
    with plain_errors(target.path):
        _Repair(target, strategy, files, report, untouched=untouched).run(out, backup, dry_run)


class FileMender:
    """Puts a file that is made of pieces of another one in its place, once it is known to be sound."""

    def __init__(self, target: FileTarget, files: FileSystem, report: Report) -> None:
        self._target, self._files, self._report = target, files, report
        self._untouched = False
        """The result is the file as it was, damage and all."""

    def _context(self) -> object:
        target = self._target
        return target.codec.context(target.name, codec_options(target.codec, target.options), **target.hints)

    def beside(self, source: Source, pieces: Pieces, out: str) -> int:
        found = self._files.stat(out)
        empty = found is not None and not found.directory and not found.size
        if found is not None and self._same(out):
            raise UsageError(
                "the result can't go where it is made from", path=out, advice="Name another file"
            )
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
            saved.save([name], lambda _: nullcontext(source), lambda _: os.path.join(folder, name), {})
            found = files.stat(os.path.join(folder, name))
            if found is None or found.size != source.size:
                raise BusyError(
                    "it has been changed by someone else while it was read; nothing was written", path=path
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
        """Write what is kept, and make sure that it is sound. Returns its rows."""
        for data in _windows(source, pieces):
            draft.write(data)
        path = self._target.path
        if path != STDIN and not is_remote(path):
            self._files.adopt(draft.path, self._files.real(local_path(path)), permissions=True)
        codec, entry = self._target.codec, FileReport(path, self._target.codec.name)
        columns = codec.tables["rows"].select(None)
        context = self._context()
        with FileSource(self._files, draft.path) as written:
            for found in Walk(written, codec, context):
                faults = [found.fault] if isinstance(found, Hole) else found.faults
                for fault in faults:
                    if fault.severity is Severity.ERROR and not self._untouched:
                        raise DamageError(
                            f"the result would not be sound, so nothing was written: at byte {fault.offset}: {fault.detail}",
                            path=path,
                        )
                if isinstance(found, Hole):
                    continue
                for decoded in (
                    codec.decode(found.window, found.frames, "rows", columns, context)
                    if len(found.frames)
                    else ()
                ):
                    entry.rows += decoded.batch.num_rows
        return entry.rows


class _Repair(FileMender):
    def __init__(
        self, target: FileTarget, strategy: Strategy, files: FileSystem, report: Report, *, untouched: bool
    ) -> None:
        super().__init__(target, files, report)
        self._strategy = strategy
        self._untouched = untouched

    def run(self, out: str | None, backup: str | None, dry_run: bool) -> None:
        target, report = self._target, self._report
        source = target.open()
        try:
            cut, pieces = self._judge(source)
            kept = [(piece.start, piece.stop) for piece in pieces if isinstance(piece, Copy)]
            saved_to = target.path
            if dry_run:
                rows = None
            elif out is not None:
                rows = self.beside(source, pieces, local_path(out))
            elif cut:
                assert backup is not None
                saved_to = os.path.join(backup, target.name)
                rows = self.in_place(source, pieces, local_path(backup))
            else:
                rows = None
        finally:
            if target.source is None:
                source.close()
        report.kept = [{"file": target.path, "offset": at, "length": end - at} for at, end in kept]
        report.cut = [removed_entry(one, target.path, saved_to) for one in cut]
        report.rows_kept = rows
        report.incomplete = any(one.rows_lost != 0 for one in cut)
        self._say(cut, rows, out, backup, dry_run)

    def _judge(self, source: Source) -> tuple[Sequence[Removed], list[Extent]]:
        """What is to be cut, and what the result is made of. A tail that is no damage (zeros made in advance, what a running system is
        writing) stays."""
        codec, target = self._target.codec, self._target
        if self._untouched:
            return [], [Copy(target.name, 0, source.size)]
        repair = codec.capabilities.repair
        if repair is not None:
            options = codec_options(codec, target.options)
            with named(source):
                file = PlannedFile(target.name, source.size, Role.PRIMARY, codec.name)
                pieces, gone = repair(Alone(target.name, source), file, self._strategy, options)
                return gone, list(pieces)
        cut = self._holes(source)
        if cut and self._strategy is Strategy.PREFIX:
            cut = [cut[0].to_end(source.size)]
        kept = _others([(one.offset, one.offset + one.length) for one in cut], source.size)
        return cut, [Copy(target.name, at, end) for at, end in kept]

    def _holes(self, source: Source) -> list[Removed]:
        codec, cut = self._target.codec, list[Removed]()
        with named(source):
            for found in Walk(source, codec, self._context()):
                if isinstance(found, Hole) and found.fault.severity is not Severity.INFO:
                    fault = found.fault
                    if codec.single_frame:
                        raise _one_frame(self._target, fault)
                    cut.append(Removed.damaged(self._target.name, fault))
                    if self._strategy is Strategy.PREFIX:
                        break
        return cut

    def _say(
        self, cut: Sequence[Removed], rows: int | None, out: str | None, backup: str | None, dry_run: bool
    ) -> None:
        report, target = self._report, self._target
        would = "would be " if dry_run else ""
        if cut:
            stretches = "1 stretch" if len(cut) == 1 else f"{len(cut):,} stretches"
            report.notes.append(f"{would}cut: {sum(one.length for one in cut):,} bytes in {stretches}")
        elif out is None:
            report.notes.append(
                "nothing needs to be cut" if dry_run else "nothing needed to be cut: the file is as it was"
            )
        if rows is not None:
            report.notes.append(f"kept: {rows:,} {report.nouns[0] if rows == 1 else plural(report.nouns[0])}")
        if backup is not None and cut and not dry_run:
            report.notes.append(f"the original is in {backup}")
        if cut and out is None and target.around:
            report.notes.append(
                "what is derived from the file is as it was: rebuild its directory, or repair that instead"
            )
        if dry_run:
            report.next = f"logwright repair {shlex.quote(target.path)} --out FILE"
        else:
            report.next = f"logwright verify {shlex.quote(out or target.path)}"


def _one_frame(target: FileTarget, fault: Fault) -> DamageError:
    error = DamageError(
        f"{fault.kind}: {fault.detail}; a file of {target.codec.name} is good as a whole or not at all, nothing can be cut from it",
        path=target.path,
        offset=fault.offset,
        advice="If it is made from other files, rebuild its directory",
    )
    error.fault = fault
    return error


def _others(gone: Stretches, size: int) -> Stretches:
    """What is left of `[0, size)` without some stretches, which are in order."""
    out: Stretches = []
    at = 0
    for start, stop in gone:
        if start > at:
            out.append((at, start))
        at = max(at, stop)
    return [*out, (at, size)] if at < size else out


def _windows(source: Source, pieces: Pieces) -> Iterator[Chunk]:
    for piece in pieces:
        if not isinstance(piece, Copy):
            yield piece
            continue
        at = piece.start
        while at < piece.stop:
            data = source.pread(at, min(WINDOW, piece.stop - at))
            if not len(data):
                raise BusyError(
                    "it has become shorter while it was read; nothing was written", path=source.path
                )
            yield data
            at += len(data)


def removed_entry(cut: Removed, file: str, saved_to: str | None) -> dict[str, Any]:
    """Return what `Report.cut` says of a removed range of a file, whose bytes are saved in another file."""
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
    """A file as a directory of its own. See `logwright.codec.layout.Listing`."""

    def __init__(self, name: str, source: Source, directory: str = "") -> None:
        self.name = directory
        self._file, self._source = name, source

    def entries(self) -> Sequence[Entry]:
        return (Entry(self._file, self._source.size),)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._source.pread(offset, self._source.size - offset if length is None else length).tobytes()

    def parent(self) -> Listing | None:
        return None
