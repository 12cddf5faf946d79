"""One file, mended by its codec alone: every good frame's bytes are kept, what lies between them is cut.

What belongs to the file besides, indexes beside it say, is not touched: a directory is mended by its layout (`writers.mend`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import nullcontext, suppress

from logwright.codec.base import Chunk, Strategy
from logwright.codec.fault import BusyError, DamageError, Fault, Severity, UsageError
from logwright.readers.report import FileReport, Report
from logwright.readers.resolve import FileTarget
from logwright.readers.source import STDIN, Source, is_remote, local_path
from logwright.readers.stream import named
from logwright.readers.task import codec_options
from logwright.readers.walk import Hole, Walk
from logwright.readers.words import plural
from logwright.writers.backup import WINDOW, Backup, refuse_backup_inside
from logwright.writers.file import Draft
from logwright.writers.filesystem import FileSystem, plain_errors
from logwright.writers.stage import FileSource

Stretches = list[tuple[int, int] | bytes]
"""What a file is made of: bytes of the one there is, from and to, and others."""


def repair_file(
    target: FileTarget,
    strategy: Strategy,
    out: str | None,
    backup: str | None,
    dry_run: bool,
    files: FileSystem,
    report: Report,
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
        _Repair(target, strategy, files, report).run(out, backup, dry_run)


class FileMender:
    """Puts a file that is made of stretches of another in its place, once it is known to be sound."""

    def __init__(self, target: FileTarget, files: FileSystem, report: Report) -> None:
        self._target, self._files, self._report = target, files, report

    def _context(self) -> object:
        target = self._target
        return target.codec.context(target.name, codec_options(target.codec, target.options), **target.hints)

    def beside(self, source: Source, kept: Stretches, out: str) -> int:
        found = self._files.stat(out)
        empty = found is not None and not found.directory and not found.size
        if found is not None and self._same(out):
            raise UsageError(
                "the result can't go where it is made from", path=out, advice="Name another file"
            )
        draft = Draft(self._files, out, "overwrite" if empty else "error")
        try:
            rows = self._fill(draft, source, kept)
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

    def in_place(self, source: Source, kept: Stretches, backup: str) -> int:
        files, path = self._files, local_path(self._target.path)
        folder, name = os.path.split(files.real(path))
        refuse_backup_inside(files, backup, [folder])
        draft = Draft(files, path, "overwrite")
        saved: Backup | None = None
        try:
            rows = self._fill(draft, source, kept)
            saved = Backup(files, backup, folder)
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

    def _fill(self, draft: Draft, source: Source, kept: Stretches) -> int:
        """Write what is kept, and make sure that it is sound. Returns its rows."""
        for data in _windows(source, kept):
            draft.write(data)
        path = self._target.path
        if path != STDIN and not is_remote(path):
            self._files.adopt(draft.path, self._files.real(local_path(path)), permissions=True)
        codec, entry = self._target.codec, FileReport(path, self._target.codec.name)
        columns = codec.tables["rows"].select(None)
        context = self._context()
        with FileSource(self._files, draft.path) as written:
            for found in Walk(written, codec, context):
                if isinstance(found, Hole):
                    if found.fault.severity is Severity.ERROR:
                        raise DamageError(
                            f"the result would not be sound, so nothing was written: at byte {found.fault.offset}: "
                            f"{found.fault.detail}",
                            path=path,
                        )
                    continue
                for decoded in (
                    codec.decode(found.window, found.frames, "rows", columns, context)
                    if len(found.frames)
                    else ()
                ):
                    entry.rows += decoded.batch.num_rows
        return entry.rows


class _Repair(FileMender):
    def __init__(self, target: FileTarget, strategy: Strategy, files: FileSystem, report: Report) -> None:
        super().__init__(target, files, report)
        self._strategy = strategy

    def run(self, out: str | None, backup: str | None, dry_run: bool) -> None:
        target, report = self._target, self._report
        source = target.open()
        try:
            cut = self._judge(source)
            kept = _others([(fault.offset, fault.offset + fault.length) for fault in cut], source.size)
            saved_to = target.path
            if dry_run:
                rows = None
            elif out is not None:
                rows = self.beside(source, [*kept], local_path(out))
            elif cut:
                assert backup is not None
                saved_to = os.path.join(backup, target.name)
                rows = self.in_place(source, [*kept], local_path(backup))
            else:
                rows = None
        finally:
            if target.source is None:
                source.close()
        report.kept = [{"file": target.path, "offset": at, "length": end - at} for at, end in kept]
        report.cut = [
            {
                "file": target.path, "offset": fault.offset, "length": fault.length, "saved_to": saved_to,
                "why": f"{fault.kind}: {fault.detail}", "rows_lost": fault.rows_lost, "lost": dict(fault.lost),
            }
            for fault in cut
        ]  # fmt: skip
        report.rows_kept = rows
        report.incomplete = any(fault.rows_lost != 0 for fault in cut)
        self._say(cut, rows, out, backup, dry_run)

    def _judge(self, source: Source) -> list[Fault]:
        """What is to be cut. A tail that is no damage (zeros made in advance, what a running system is writing) stays."""
        codec, size = self._target.codec, source.size
        cut: list[Fault] = []
        with named(source):
            for found in Walk(source, codec, self._context()):
                if isinstance(found, Hole) and found.fault.severity is not Severity.INFO:
                    if codec.whole:
                        raise _one_frame(self._target, found.fault)
                    cut.append(found.fault)
                    if self._strategy is Strategy.PREFIX:
                        break
        if cut and self._strategy is Strategy.PREFIX:
            return [_to_the_end(cut[0], size)]
        return cut

    def _say(
        self, cut: list[Fault], rows: int | None, out: str | None, backup: str | None, dry_run: bool
    ) -> None:
        report, target = self._report, self._target
        would = "would be " if dry_run else ""
        if cut:
            stretches = "1 stretch" if len(cut) == 1 else f"{len(cut):,} stretches"
            report.notes.append(f"{would}cut: {sum(fault.length for fault in cut):,} bytes in {stretches}")
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


def _to_the_end(fault: Fault, size: int) -> Fault:
    """All behind the first damage goes; how much that is in rows nobody has counted."""
    detail = f"{fault.detail}; all behind it is cut too"
    return Fault(fault.codec, fault.offset, size - fault.offset, fault.kind, detail, fault.severity)


def _others(gone: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """What is left of `[0, size)` without some stretches, which are in order."""
    out: list[tuple[int, int]] = []
    at = 0
    for start, stop in gone:
        if start > at:
            out.append((at, start))
        at = max(at, stop)
    return [*out, (at, size)] if at < size else out


def _windows(source: Source, kept: Stretches) -> Iterator[Chunk]:
    for piece in kept:
        if isinstance(piece, bytes):
            yield piece
            continue
        at, stop = piece
        while at < stop:
            data = source.pread(at, min(WINDOW, stop - at))
            if not len(data):
                raise BusyError(
                    "it has become shorter while it was read; nothing was written", path=source.path
                )
            yield data
            at += len(data)
