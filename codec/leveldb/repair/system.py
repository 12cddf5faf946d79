"""Keep what LevelDB leaves of a database when it opens it.

Logs become tables, a new log and a new manifest are begun, what is not in use is deleted. The info log stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.engine.repair import Kept, OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError, Severity, UsageError
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.records.replay import Delivered, replay
from logwright.codec.leveldb.names import INFO_LOG, OLD_INFO_LOG, FileType, parse
from logwright.codec.leveldb.startup import start
from logwright.codec.option import Option, Options
from logwright.codec.store.listing import Listing, Plan, Role

_PASSED_OVER = "LevelDB passes over it, though its checksum is right"
_ORDER = (FileType.TABLE, FileType.LOG, FileType.DESCRIPTOR, FileType.CURRENT)


class SystemPlan(RepairPlan):
    """Strategy system."""

    def __init__(
        self, listing: Listing, plan: Plan, options: Options, reading: Sequence[Option], version: str | None
    ) -> None:
        super().__init__(listing)
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
        self.cut += [
            cut
            for file in plan.files
            if file.role is Role.PRIMARY and file.codec == log.NAME and file.name not in after
            for cut in _passed_over(listing, file.name, file.size)
        ]
        self.rows = verdict.rows or 0
        self.notes += verdict.warnings
        if verdict.error:
            where = verdict.serves.get("stops_at")
            self.notes.append(
                f"Iterators end with an error ({verdict.error}), the last key before it is {where}."
            )

    def outputs(self) -> Iterator[OutputFile]:
        after, info = self._opened.after, (INFO_LOG, OLD_INFO_LOG)
        yield from (self.unchanged(name) for name in self.sizes if name in info)
        for entry in sorted(after.entries(), key=lambda entry: _place(entry.name)):
            if entry.name in info:
                continue
            origin = after.origin(entry.name)
            like = entry.name if entry.name in self.sizes else None
            pieces = [Kept(*origin) if origin is not None else after.read(entry.name)]
            yield OutputFile(entry.name, pieces, like)


def _place(name: str) -> tuple[int, int, str]:
    named = parse(name)
    if named is None or named.type not in _ORDER:
        return -1, 0, name
    return _ORDER.index(named.type), named.number, name


def _passed_over(listing: Listing, name: str, size: int) -> Iterator[Removed]:
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
                yield Removed.damaged(name, fault)
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
            yield Removed(name, int(starts[low]), length, _PASSED_OVER, 0, rows, lost)
