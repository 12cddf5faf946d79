"""Fill in the report of a repair, a rebuild or an edit: what was kept, removed and written, as lists and as sentences."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault
from logwright.codec.option import Verb
from logwright.codec.plural import count
from logwright.codec.store.listing import Listing, Role
from logwright.codec.store.roots import split
from logwright.readers.report import Report
from logwright.readers.report_text import lost
from logwright.readers.source import local_path
from logwright.readers.target import DirectoryTarget, flags
from logwright.readers.verify import healed
from logwright.writers.apply_plan import Done
from logwright.writers.repair_file import removed_entry
from logwright.writers.request import Request

EDIT = "edit"
_SHOWN = 4
"""Number of files, faults and ranges to print."""


def missing_rows(report: Report, *, correct: bool) -> list[tuple[str, Fault]]:
    """Return the faults about missing rows of which no byte is left, with their files. With `correct`, not those that corrections fill."""
    return [
        (file.path, fault)
        for file in report.files
        if file.primary
        for fault in file.faults
        if fault.is_gap and not (correct and fault.offset in file.healed)
    ]


def overlap(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether the same rows may be lost in two places, by the ranges of their ids."""
    return all(max(low) <= min(high) for low, high in _ranges(first, second))


def _covered(lost: Mapping[str, Any], cuts: Iterable[Removed]) -> bool:
    """Return whether all that is lost in one place is lost in others too, of which each may have a part of its ids."""
    parts = []
    for part in (cut.lost for cut in cuts if cut.rows_lost != 0 and cut.lost):
        if part == lost:
            return True
        ranges = _ranges(part, lost)
        store = (name for name in part.keys() & lost.keys() if not name.startswith(("first_", "last_")))
        if not ranges or any(part[name] != lost[name] for name in store):
            continue
        if all(low[0] <= low[1] and high[0] >= high[1] for low, high in ranges):
            return True
        if len(ranges) == 1:
            parts += ranges
    if not parts:
        return False
    (_, missing), (_, last) = parts[0]
    for (low, _), (high, _) in sorted(parts):
        if low <= missing <= high:
            missing = high + 1
    return bool(missing > last)


def _ranges(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[list[Any], list[Any]]]:
    """Return the first and last ids that both have."""
    nouns = [name.removeprefix("first_") for name in first if name.startswith("first_")]
    both = [
        noun
        for noun in nouns
        if noun != "timestamp"
        and all(
            isinstance(lost.get(f"{end}_{noun}"), int)
            for lost in (first, second)
            for end in ("first", "last")
        )
    ]
    return [
        ([first[f"first_{n}"], second[f"first_{n}"]], [first[f"last_{n}"], second[f"last_{n}"]]) for n in both
    ]


def fill_report(
    report: Report,
    done: Done,
    copies: Sequence[DirectoryTarget],
    request: Request,
    verb: str,
    gone: Sequence[tuple[str, Fault]],
    *,
    correct: bool,
) -> None:
    """Add what was done to the report, as lists and as sentences. `correct`: whether bits were corrected."""
    several = len(copies) > 1
    summary = done.summary

    def where(copy: int) -> dict[str, str]:
        return {"copy": copies[copy].path} if several else {}

    def saved_to(cut: Removed) -> str:
        copy = copies[cut.copy]
        if request.in_place and request.backup is not None and not request.dry_run and cut.copy == 0:
            return os.path.join(request.backup, cut.file)
        return copy.directory.shown(cut.file)

    room = report.max_faults
    report.kept = [
        {
            "file": extent.file,
            "offset": int(extent.start),
            "length": int(extent.stop) - int(extent.start),
            **where(extent.copy),
        }
        for extent in done.kept[:room]
    ]
    report.cut = [removed_entry(cut, cut.file, saved_to(cut)) | where(cut.copy) for cut in done.cut[:room]]
    # No byte of these rows is left, so nothing is saved. A layout may already list them in what it removes.
    missing = [extent for extent in gone if verb != EDIT and not _covered(extent[1].lost, done.cut)]
    report.cut += [
        removed_entry(replace(Removed.damaged(name, fault), why=fault.detail), name, None) | where(0)
        for name, fault in missing[: max(0, room - len(report.cut))]
    ]
    losses = [*(cut.rows_lost for cut in done.cut), *(fault.rows_lost for _, fault in missing)]
    report.count_ranges(len(done.kept), len(done.cut), losses)
    report.rows_kept = summary.rows
    report.ids = dict(summary.ids)
    report.result_files = sorted({*done.written, *done.untouched})
    primary = {file.name for file in copies[0].plan.files if file.role is Role.PRIMARY}
    report.changed = bool(done.cut or primary & {*done.changed, *done.removed})
    if not correct:
        report.healed = frozenset()
        for file in report.files:
            file.healed.clear()
    report.healed |= healed(cut for cut in done.cut if cut.copy == 0)
    # Rows removed on request are not missing.
    report.incomplete = verb != EDIT and any(cut.rows_lost != 0 for cut in done.cut)
    report.notes += _sentences(done, request, copies, report.nouns[0], verb, missing=bool(missing))
    report.notes += [f"missing before the {verb}: {lost(fault, report)}" for _, fault in missing[:_SHOWN]]
    if len(missing) > _SHOWN:
        report.notes.append(f"and {len(missing) - _SHOWN:,} more ranges (--json lists all)")
    report.next = _next(done, copies, request, verb)


def edited(cuts: Sequence[Removed], noun: str) -> str:
    """Describe the size of an edit."""
    if not cuts:
        return "nothing matches"
    parts = [f"edited: {count(len(cuts), 'frame')}"]
    for action, number in (
        ("dropped", sum(cut.rows_lost or 0 for cut in cuts)),
        ("redacted", sum(cut.redacted for cut in cuts)),
    ):
        parts += [f"{count(number, noun)} {action}"] if number else []
    return ", ".join(parts)


def _sentences(
    done: Done, request: Request, copies: Sequence[DirectoryTarget], noun: str, verb: str, *, missing: bool
) -> list[str]:
    """Describe what was done, or would be. `missing`: rows are missing of which no byte is left."""
    would = "would be " if request.dry_run else ""
    layout = copies[0].layout
    ids = ", ".join(
        f"{name} {layout.printed.get(name, str)(value)}" for name, value in done.summary.ids.items()
    )
    system = layout.name.partition(".")[0]
    return [
        *_removed(done.cut, would, noun, verb, missing=missing),
        f"{would}kept: {count(done.summary.rows, noun)}{f' ({ids})' if ids and done.summary.rows else ''}",
        *_files(done, request, verb),
        *(
            f"still damaged: {name and name + ' '}at {fault.offset}, {fault.kind}, {fault.detail}"
            for name, fault in done.faults[:_SHOWN]
        ),
        *done.warnings,
        *done.summary.warnings,
        *(f"before starting {system}: {line}" for line in _before_starting(done, request, copies[0])),
    ]


def _removed(cuts: Sequence[Removed], would: str, noun: str, verb: str, *, missing: bool) -> Iterator[str]:
    """Describe what was removed, repaired or edited."""
    if verb == EDIT:
        yield f"{would if cuts else ''}{edited(cuts, noun)}"
        return
    if not cuts:
        return
    size, ranges = sum(cut.length for cut in cuts), count(len(cuts), "range")
    rows, known = sum(cut.rows_lost or 0 for cut in cuts), all(cut.rows_lost is not None for cut in cuts)
    if known or rows:
        loss = f"{'' if known else 'at least '}{count(rows, noun) if rows else 'nothing'} lost"
    else:
        loss = f"{noun} count unknown"
    if size and missing and known and not rows:
        # These bytes lose nothing, but other rows are missing.
        yield f"{would}repaired: {count(size, 'byte')} ({ranges})"
    elif size:
        yield f"{would}{'removed' if rows or not known else 'repaired'}: {count(size, 'byte')} ({ranges}; {loss})"
    elif rows:
        yield f"nothing to remove: {loss}"


def _files(done: Done, request: Request, verb: str) -> Iterator[str]:
    """Describe which files are changed, new and removed, and where the originals are."""
    if request.out is None and not (done.written or done.removed):
        yield "no changes needed" + ("" if request.dry_run else "; the directory is unchanged")
        return
    for past, future, names in (
        ("changed files", "would change files", [name for name in done.written if name in done.changed]),
        ("new files", "would create files", [name for name in done.written if name not in done.changed]),
        ("removed files", "would remove files", list(done.removed)),
    ):
        if names:
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            yield f"{future if request.dry_run else past}: {', '.join(names[:_SHOWN])}{more}"
    if request.backup is not None and (done.changed or done.removed):
        are = "would be" if request.dry_run else "are"
        too = ", including everything removed" if verb == EDIT and done.cut else ""
        yield f"the originals {are} in {request.backup}{too}"


def _before_starting(done: Done, request: Request, first: DirectoryTarget) -> Iterator[str]:
    """Say what to do before the system is started on the result. `first`: the first of the copies."""
    if request.out is not None and not request.dry_run:
        yield "replace the original directory with this one; do not keep both"
    roots = {root.name for root in first.layout.roots(first.layout_options)}
    if not request.in_place and any(split(name, roots)[0] for name in first.sizes):
        moved = ", ".join(first.layout.root_options)
        yield (
            f"all files are now in one directory: change {moved} in its configuration, or move the files to the configured directories"
        )
    yield from done.summary.before_you_start
    if request.out is not None and _name_matters(first, request.out):
        yield f"name the directory {first.directory.name}: the name is part of the data"


@dataclass(frozen=True)
class _Renamed:
    """A directory under another name, for recognising its layout."""

    name: str
    of: Listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


def _name_matters(copy: DirectoryTarget, out: str) -> bool:
    """Return whether the layout recognises the directory less well under the name of the result."""
    renamed: Any = _Renamed(os.path.basename(os.path.realpath(local_path(out))), copy.directory)
    return copy.layout.recognise(renamed) < copy.layout.recognise(copy.directory)


def _next(done: Done, copies: Sequence[DirectoryTarget], request: Request, verb: str) -> str:
    paths = " ".join(shlex.quote(copy.path) for copy in copies)
    if request.dry_run and (done.written or done.removed):
        if verb == EDIT:
            return "the same edit without dry_run writes the result"
        return f"logwright {verb} {paths}{flags(copies[0], Verb(verb))} --out DIR"
    options = flags(copies[0], Verb.VERIFY, roots=request.out is None)
    return f"logwright verify {shlex.quote(request.out or copies[0].path)}{options}"
