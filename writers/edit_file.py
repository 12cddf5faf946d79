"""One file, edited by its codec alone; what is derived from it, indexes beside it say, is not touched."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Protocol, cast

from logwright.codec.base import Codec
from logwright.codec.engine.repair import Change, Removed
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import PlannedFile, Role
from logwright.readers.report import Report
from logwright.readers.resolve import FileTarget
from logwright.readers.source import STDIN, is_remote, local_path
from logwright.readers.stream import named
from logwright.writers.filesystem import plain_errors
from logwright.writers.repair import edited
from logwright.writers.repair_file import Alone, FileMender, removed_entry
from logwright.writers.request import Request


class MatchingChange(Change, Protocol):
    """A change that may need each of its filters to match a row."""

    def check_matched(self, path: str) -> None:
        """Raise `NotFoundError` if a filter matched no row."""
        ...


def edit_file(
    target: FileTarget, change: MatchingChange, options: Options, request: Request, report: Report
) -> None:
    """Edit a file as asked, and tell the report."""
    if request.in_place and (target.path == STDIN or is_remote(target.path)):
        raise UsageError("only local files are changed in place", path=target.path)
    codec: Codec = target.codec
    assert codec.capabilities.edit is not None
    mender = FileMender(target, request.files, report)
    with plain_errors(target.path):
        source = target.open()
        try:
            hints = {name: value for name, value in target.hints.items() if name != "live"}
            directory = str(hints.pop("directory", ""))
            planned = PlannedFile(target.name, source.size, Role.PRIMARY, target.codec.name, hints)
            with named(source):
                pieces, cuts = codec.capabilities.edit.edit(
                    Alone(target.name, source, directory), planned, change, options
                )
            change.check_matched(target.path)
            rows = None
            if not request.dry_run and request.out is not None:
                rows = mender.beside(source, pieces, local_path(request.out))
            elif not request.dry_run and cuts:
                rows = mender.in_place(source, pieces, local_path(cast(str, request.backup)))
        finally:
            if target.source is None:
                source.close()
    _tell(report, target, pieces, cuts, rows, request)


def _tell(
    report: Report, target: FileTarget, pieces: Sequence[Extent], cuts: Sequence[Removed], rows: int | None, request: Request
) -> None:  # fmt: skip
    path, room = target.path, report.max_faults
    saved = path if request.backup is None else os.path.join(request.backup, target.name)
    kept = [one for one in pieces if isinstance(one, Copy)]
    report.kept = [{"file": path, "offset": one.start, "length": one.stop - one.start} for one in kept[:room]]
    report.cut = [removed_entry(one, path, saved) for one in cuts[:room]]
    report.rows_kept = rows
    would = "would be " if request.dry_run and cuts else ""
    report.notes.append(f"{would}{edited(cuts, report.nouns[0])}")
    if cuts and target.around:
        report.notes.append(
            "what is derived from the file is as it was: rebuild its directory, or edit that instead"
        )
    if request.backup is not None and cuts and not request.dry_run:
        report.notes.append(f"the original is in {request.backup}: it has all that was taken out")
    report.next = f"logwright verify {shlex.quote(request.out or path)}"
