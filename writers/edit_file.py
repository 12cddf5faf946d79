"""Edit a single file with its codec. Files derived from it, such as indexes beside it, are not changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Protocol, cast

from logwright.codec.base import Codec
from logwright.codec.engine.repair import Change, Removed
from logwright.codec.fault import UsageError
from logwright.codec.option import Options, Verb
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import PlannedFile, Role
from logwright.readers.report import Report
from logwright.readers.source import STDIN, is_remote, local_path
from logwright.readers.stream import named
from logwright.readers.target import FileTarget, flags
from logwright.writers.filesystem import plain_errors
from logwright.writers.repair_file import Alone, FileWriter, removed_entry
from logwright.writers.repair_report import edited
from logwright.writers.request import Request


class MatchingChange(Change, Protocol):
    """A change that may require each of its filters to match a row."""

    def check_matched(self, path: str) -> None:
        """Raise `NotFoundError` if a filter matched no row."""
        ...


def edit_file(
    target: FileTarget, change: MatchingChange, options: Options, request: Request, report: Report
) -> None:
    """Edit a file as requested, and fill in the report."""
    if request.in_place and (target.path == STDIN or is_remote(target.path)):
        raise UsageError("only local files can be changed in place", path=target.path)
    codec: Codec = target.codec
    assert codec.capabilities.edit is not None
    writer = FileWriter(target, request.files, report)
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
                rows = writer.beside(source, pieces, local_path(request.out))
            elif not request.dry_run and cuts:
                rows = writer.in_place(source, pieces, local_path(cast(str, request.backup)))
        finally:
            if target.source is None:
                source.close()
    _tell(report, target, pieces, cuts, rows, request)


def _tell(
    report: Report, target: FileTarget, pieces: Sequence[Extent], cuts: Sequence[Removed], rows: int | None, request: Request
) -> None:  # fmt: skip
    path, room = target.path, report.max_faults
    saved = path if request.backup is None else os.path.join(request.backup, target.name)
    kept = [extent for extent in pieces if isinstance(extent, Copy)]
    report.kept = [
        {"file": path, "offset": extent.start, "length": extent.stop - extent.start} for extent in kept[:room]
    ]
    report.cut = [removed_entry(extent, path, saved) for extent in cuts[:room]]
    report.count_ranges(len(kept), len(cuts), [removed.rows_lost for removed in cuts])
    report.rows_kept = rows
    would = "would be " if request.dry_run and cuts else ""
    report.notes.append(f"{would}{edited(cuts, report.nouns[0])}")
    if cuts and target.around:
        report.notes.append(
            "files derived from this one are unchanged: rebuild its directory, or edit the directory instead"
        )
    if request.backup is not None and cuts and not request.dry_run:
        report.notes.append(f"the original is in {request.backup}, including everything removed")
    report.next = f"logwright verify {shlex.quote(request.out or path)}{flags(target, Verb.VERIFY)}"
