"""Holding `.index` and `.timeindex` against the batches of their segment, while these go by.

Not the equality with what would be built anew counts, but the truth of each entry. Any subset of the batches makes a valid index,
and brokers differ in what they write: up to 1.1 the first offset of the appended chunk, up to 4.0 the last one of the chunk, later
the last one of the batch; what compaction writes may be an offset within a batch. What is asked of an entry is that a lookup by
it finds all records there are (`OffsetIndex.lookup`, `TimeIndex.lookup`, `LogSegment.findOffsetByTimestamp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kafka.formats.index import INDEX_ENTRY
from logwright.codec.kafka.formats.timeindex import TIMEINDEX_ENTRY

Numbers = npt.NDArray[np.int64]

_REBUILT = "the broker makes it anew when it starts after an unclean stop"


@dataclass(slots=True)
class Batches:
    """Some good batches of a segment, in columns: offsets, largest timestamps, and their bytes in the file."""

    base: Numbers
    last: Numbers
    timestamp: Numbers
    start: Numbers
    end: Numbers


@dataclass(slots=True)
class Finding:
    """Entries of one file of which the same is wrong: the first in words, and how many there are."""

    detail: str
    severity: Severity
    system: str
    entries: list[int] = field(default_factory=list)

    def fault(self, codec: str, width: int) -> Fault:
        first, last = min(self.entries), max(self.entries)
        more = {1: "", 2: ", and so is 1 more of its entries"}.get(
            len(self.entries), f", and so are {len(self.entries) - 1} more of its entries"
        )
        length = (last - first + 1) * width
        return Fault(
            codec, first * width, length, Kind.LINK, self.detail + more, self.severity, system=self.system
        )


class _Entries:
    """The entries of an index file, and what was found wrong with them."""

    codec: str
    dtype: np.dtype[Any]

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        self.base, self.trusted = base, trusted
        self.entries = _without_tail(np.frombuffer(data, self.dtype, len(data) // self.dtype.itemsize))
        self.offset: Numbers = self.entries["relative_offset"].astype(np.int64) + base
        self.found: dict[str, Finding] = {}

    def wrong(
        self, kind: str, entry: int, detail: str, system: str, severity: Severity | None = None
    ) -> None:
        """Note an entry. `severity` and `system` hold where the broker trusts the file: elsewhere it makes a new one."""
        if not self.trusted:
            severity, system = Severity.WARNING, _REBUILT
        known = self.found.setdefault(kind, Finding(detail, severity or Severity.ERROR, system))
        known.entries.append(entry)

    @property
    def highest(self) -> int:
        """The highest offset of any entry, -1 without one."""
        return int(self.offset.max()) if len(self.offset) else -1

    @property
    def plausible(self) -> bool:
        """Whether its entries are in order, and none contradicts a batch: what it says of offsets beyond the end then counts."""
        ordered = bool((np.diff(self.offset) >= 0).all()) and (
            not len(self.offset) or self.offset[0] >= self.base
        )
        return ordered and not {"within", "behind", "before"} & set(self.found)

    def explained(self) -> None:
        """It is known that the log was longer: entries beyond its end are no news."""
        beyond = self.found.get("beyond")
        if beyond is not None and beyond.severity is Severity.WARNING:
            beyond.severity = Severity.INFO

    def faults(self) -> Iterator[Fault]:
        for finding in self.found.values():
            yield finding.fault(self.codec, self.dtype.itemsize)


_MISLED = "the broker trusts it: reads that start by it miss records, or fail"


class IndexCheck(_Entries):
    """One `.index`."""

    codec = "kafka.index"
    dtype = INDEX_ENTRY.head_dtype

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        super().__init__(data, base, trusted)
        self.position: Numbers = self.entries["position"].astype(np.int64)
        # Those out of order are a finding of the codec; each is looked at in its place all the same.
        self._order = np.argsort(self.position, kind="stable")
        self._sorted = self.position[self._order]
        self._done = int(np.searchsorted(self._sorted, 0))
        self._before: tuple[int, int] | None = None
        """End and last offset of the batch before."""
        self._later: dict[int, int] = {}
        """Entries by an offset that a later batch must end with."""

    def add(self, batches: Batches) -> None:
        upto = int(np.searchsorted(self._sorted, batches.end[-1]))
        covered = self._order[self._done : upto]
        self._done = upto
        if len(covered):
            self._look(batches, covered)
        if self._later:
            for offset in batches.last[np.isin(batches.last, list(self._later))].tolist():
                self._later.pop(offset, None)
        self._before = (int(batches.end[-1]), int(batches.last[-1]))

    def _look(self, batches: Batches, covered: Numbers) -> None:
        place = np.searchsorted(batches.start, self.position[covered], "right") - 1
        for entry, i in zip(covered.tolist(), place.tolist(), strict=True):
            at, offset = int(self.position[entry]), int(self.offset[entry])
            if i < 0 or at >= batches.end[i]:
                continue  # among damage, where nothing is known
            if at != batches.start[i]:
                text = f"entry {entry} says byte {at}, which is within the batch at {batches.start[i]}"
                self.wrong("within", entry, text, _MISLED)
                continue
            before = (int(batches.end[i - 1]), int(batches.last[i - 1])) if i else self._before
            if before is not None and before[0] == at and offset <= before[1]:
                text = f"entry {entry} says that offset {offset} is at byte {at} or behind it, it is before"
                self.wrong("behind", entry, text, _MISLED)
            elif offset > batches.last[i]:
                self._later[offset] = entry

    def finish(self, end: int, last_offset: int | None, *, live: bool, active: bool) -> None:
        """All batches went by: the last ends at byte `end`. `active`: it is the last segment, which tells where the log ends."""
        for entry in self._order[self._done :].tolist():
            at = int(self.position[entry])
            if live or at < end:
                continue
            text = f"entry {entry} says byte {at}, the batches end at byte {end}"
            system = "no read needs the entry"
            if active:
                system = f"the broker takes the log to end at offset {self.base}, and uses the offsets from there on again"
            self.wrong("beyond", entry, text, system, Severity.ERROR if active else Severity.WARNING)
            self._later.pop(int(self.offset[entry]), None)
        for offset, entry in self._later.items():
            if live and (last_offset is None or offset > last_offset):
                continue
            text = f"entry {entry} says offset {offset} of byte {int(self.position[entry])}, where no batch has it"
            self.wrong(
                "nobody's", entry, text, "reads start earlier than they would have to", Severity.WARNING
            )


class TimeIndexCheck(_Entries):
    """One `.timeindex`. `closed`: the segment was closed in order, so that the last entry has its largest timestamp."""

    codec = "kafka.timeindex"
    dtype = TIMEINDEX_ENTRY.head_dtype

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        super().__init__(data, base, trusted)
        self.timestamp: Numbers = self.entries["timestamp"].astype(np.int64)
        self._order = np.argsort(self.offset, kind="stable")
        self._sorted = self.offset[self._order]
        self._done = 0
        self._largest = -1
        self._before: tuple[int, int] | None = None
        self._ordered = True

    def add(self, batches: Batches) -> None:
        last = batches.last
        largest = np.maximum.accumulate(np.maximum(batches.timestamp, self._largest))
        before = self._before
        if (np.diff(last) < 0).any() or (before is not None and last[0] < before[1]):
            self._ordered = False  # then an offset says nothing of a place
        if self._ordered:
            upto = int(np.searchsorted(self._sorted, last[-1], "right"))
            covered = self._order[self._done : upto]
            self._done = upto
            for entry, i in zip(
                covered.tolist(), np.searchsorted(last, self.offset[covered]).tolist(), strict=True
            ):
                self._look(batches, entry, i, int(largest[i - 1]) if i else self._largest, int(largest[i]))
        self._largest = int(largest[-1])
        self._before = (int(batches.end[-1]), int(last[-1]))

    def _look(self, batches: Batches, entry: int, i: int, before: int, upto: int) -> None:
        """The batch `i` is the first whose last offset is not below that of the entry."""
        offset, timestamp = int(self.offset[entry]), int(self.timestamp[entry])
        end = int(batches.end[i - 1]) if i else 0 if self._before is None else self._before[0]
        if offset < batches.base[i] and end != batches.start[i]:
            return  # among damage
        if before > timestamp:
            text = f"entry {entry} says that up to offset {offset} no timestamp is above {timestamp}, there is {before}"
            system = "the broker trusts it: searches by time miss records"
            self.wrong("before", entry, text, system)
        elif upto < timestamp:
            text = f"entry {entry} says timestamp {timestamp} of offset {offset}, the largest up to there is {upto}"
            system = (
                "the broker trusts it: searches by time and retention take the segment for newer than it is"
            )
            self.wrong("after", entry, text, system, Severity.WARNING)

    def finish(self, *, closed: bool, complete: bool, live: bool) -> None:
        """All batches went by. `whole`: none was damaged."""
        if not complete or not self._ordered:
            return
        last = self._before[1] if self._before is not None else self.base - 1
        for entry in [] if live else self._order[self._done :].tolist():
            text = f"entry {entry} says offset {int(self.offset[entry])}, the segment ends at {last}"
            self.wrong("beyond", entry, text, "searches by time end behind the log", Severity.WARNING)
        known = int(self.timestamp.max()) if len(self.timestamp) else -1
        if closed and known < self._largest:
            text = f"its last timestamp is {known}, the segment has {self._largest}"
            if not len(self.timestamp):
                text = f"it is empty, the segment has timestamps up to {self._largest}"
            system = "the broker trusts it: searches by time pass over the segment"
            self.wrong("last", max(len(self.timestamp) - 1, 0), text, system, Severity.WARNING)


def _without_tail(entries: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Without the zeros allocated ahead: from the first entry on, but for the very first, that is zero like all after it."""
    used = np.flatnonzero(entries.view(np.uint8).reshape(len(entries), entries.dtype.itemsize).any(axis=1))
    return entries[: int(used[-1]) + 1 if len(used) else 0]
