"""What LevelDB would leave of a database when it opens it, as a mending: the files as they are then.

Logs become tables, a new log and a new manifest are begun, what is not in use is deleted. The info log stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.fault import DamageError, Severity, UsageError
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.records.replay import Delivered, replay
from logwright.codec.leveldb.names import INFO_LOG, OLD_INFO_LOG, FileType, parse
from logwright.codec.leveldb.startup import start
from logwright.codec.mending import Cut, Kept, Mended
from logwright.codec.option import Option, Options
from logwright.codec.store.build import Summary
from logwright.codec.store.listing import Listing, Plan, Role

_PASSED_OVER = "LevelDB passes over it, though its checksum is right"
_ORDER = (FileType.TABLE, FileType.LOG, FileType.DESCRIPTOR, FileType.CURRENT)


class SystemMending:
    """See `logwright.codec.mending.Mending`."""

    def __init__(
        self, listing: Listing, plan: Plan, options: Options, reading: Sequence[Option], version: str | None
    ) -> None:
        self.listing, self.plan = listing, plan
        if not comparator_of(plan.facts["comparator"]).known:
            raise UsageError(
                f"the order of comparator {plan.facts['comparator']} is not known: what LevelDB would write of the logs cannot be computed",
                advice="Use strategy salvage or prefix, which need no order",
            )
        given = {option.name: options[option.name] for option in reading if options.given(option.name)}
        given.setdefault("comparator", plan.facts["comparator"])
        self._opened = start.open_database(
            listing, Options(tuple(reading), given), version=version, clean=None
        )
        verdict = self._opened.verdict
        if not verdict.opens:
            raise DamageError(
                f"LevelDB does not open the database: {verdict.error_class}: {verdict.error}",
                path=listing.name,
                advice="Strategy salvage keeps every sound block and batch, and leaves what LevelDB opens",
            )
        after = {entry.name for entry in self._opened.after.entries()}
        self._info = [entry.name for entry in listing.entries() if entry.name in (INFO_LOG, OLD_INFO_LOG)]
        self.removes: Sequence[str] = [name for name in verdict.removes if name not in self._info]
        self.cut: Sequence[Cut] = [
            cut
            for file in plan.files
            if file.role is Role.PRIMARY and file.codec == log.NAME and file.name not in after
            for cut in _passed_over(listing, file.name, file.size)
        ]

    def files(self) -> Iterator[Mended]:
        after = self._opened.after
        sizes = {entry.name: entry.size for entry in self.listing.entries()}
        for name in self._info:
            yield Mended(name, [Kept(name, 0, sizes[name])], name)
        for entry in sorted(after.entries(), key=lambda entry: _place(entry.name)):
            if entry.name in (INFO_LOG, OLD_INFO_LOG):
                continue
            origin = after.origin(entry.name)
            like = entry.name if entry.name in sizes else None
            yield Mended(entry.name, [Kept(*origin) if origin is not None else after.read(entry.name)], like)

    def summary(self) -> Summary:
        verdict = self._opened.verdict
        warnings = list(verdict.warnings)
        if verdict.error:
            where = verdict.serves.get("stops_at")
            warnings.append(
                f"Iterators end with an error ({verdict.error}), the last key before it is {where}."
            )
        return Summary(verdict.rows or 0, {}, tuple(warnings))


def _place(name: str) -> tuple[int, int, str]:
    named = parse(name)
    if named is None or named.type not in _ORDER:
        return -1, 0, name
    return _ORDER.index(named.type), named.number, name


def _passed_over(listing: Listing, name: str, size: int) -> Iterator[Cut]:
    """What of a log is in none of the tables that are made of it: what is damaged, and what LevelDB's reader does not get to."""
    read = ListedFile(listing, name, size)
    seen: set[int] = set()
    for one in replay(read, size):
        if isinstance(one, Delivered):
            seen.update((one.frames.start + one.window.offset).tolist())
    sorted_ = np.array(sorted(seen), np.int64)
    named = parse(name)
    number = 0 if named is None else named.number
    context = log.CODEC.context(name, Options(log.CODEC.options))
    for found in Walk(read, log.CODEC, context):
        if isinstance(found, Hole):
            fault = found.fault
            if fault.severity is not Severity.INFO:
                why = f"{fault.kind}: {fault.detail}"
                yield Cut(name, fault.offset, fault.length, why, 0, fault.rows_lost, fault.lost)
            continue
        head, frames = found.frames.header, found.frames
        starts = frames.start + found.window.offset
        gone = np.flatnonzero(~np.isin(starts, sorted_))
        for some in np.split(gone, np.flatnonzero(np.diff(gone) != 1) + 1) if len(gone) else ():
            low, high = int(some[0]), int(some[-1])
            batches = head[low : high + 1]
            batches = batches[batches["size"] >= BATCH_HEADER]
            rows = int(np.maximum(batches["count"].astype(np.int64), 0).sum())
            lost = {"file": number}
            if rows:
                lost["first_sequence"] = int(batches["sequence"][0])
                lost["last_sequence"] = int(batches["sequence"][-1] + batches["count"][-1]) - 1
            length = int(frames.end[high] - frames.start[low])
            yield Cut(name, int(starts[low]), length, _PASSED_OVER, 0, rows, lost)
