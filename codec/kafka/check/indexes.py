"""Check `.index` and `.timeindex` against the batches of their segment.

Each entry must be true; it need not equal what a rebuild would write. Any subset of the batches makes a valid index, and brokers
write different offsets: up to 1.1 the first one of the appended chunk, up to 4.0 the last one of the chunk, later the last one of
the batch. Compaction may write an offset within a batch. An entry is right if a lookup that uses it finds all records
(`OffsetIndex.lookup`, `TimeIndex.lookup`, `LogSegment.findOffsetByTimestamp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY
from logwright.codec.kafka.store.evidence import used

_REBUILT = "the broker rebuilds it when it starts after an unclean stop"


@dataclass(slots=True)
class Batches:
    """Good batches of a segment, in columns: offsets, largest timestamps, and positions in the file."""

    base: Int64s
    last: Int64s
    timestamp: Int64s
    start: Int64s
    end: Int64s
    untimed: Bools
    """Those of magic 0, which have no timestamps."""


@dataclass(slots=True)
class Finding:
    """Entries of one file with the same fault: the first one described, the others counted."""

    detail: str
    severity: Severity
    system: str
    entries: list[int] = field(default_factory=list)

    def fault(self, codec: str, width: int) -> Fault:
        first, last = min(self.entries), max(self.entries)
        others = len(self.entries) - 1
        more = f"; {plural.count(others, 'other entry')} with the same fault" if others else ""
        length = (last - first + 1) * width
        return Fault(
            codec, first * width, length, Kind.LINK, self.detail + more, self.severity, system=self.system
        )


class _Entries:
    """The entries of an index file, and their faults."""

    codec: str
    dtype: np.dtype[Any]

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        self.base, self.trusted = base, trusted
        self.entries = used(data, self.dtype)
        self.offset: Int64s = self.entries["relative_offset"].astype(np.int64) + base
        self.findings: dict[str, Finding] = {}

    def wrong(
        self, kind: str, entry: int, detail: str, system: str, severity: Severity | None = None
    ) -> None:
        """Note a wrong entry. `severity` and `system` apply if the broker trusts the file. Otherwise it rebuilds the file."""
        if not self.trusted:
            severity, system = Severity.WARNING, _REBUILT
        known = self.findings.setdefault(kind, Finding(detail, severity or Severity.ERROR, system))
        known.entries.append(entry)

    def explained(self) -> None:
        """Downgrade entries beyond the end of the log: it is reported already that the log was longer."""
        beyond = self.findings.get("beyond")
        if beyond is not None and beyond.severity is Severity.WARNING:
            beyond.severity = Severity.INFO

    def faults(self) -> Iterator[Fault]:
        for finding in self.findings.values():
            yield finding.fault(self.codec, self.dtype.itemsize)


_MISLED = "the broker trusts it: reads that use it miss records, or fail"


class IndexCheck(_Entries):
    """Check one `.index`."""

    codec = "kafka.index"
    dtype = INDEX_ENTRY.head_dtype

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        super().__init__(data, base, trusted)
        self.position: Int64s = self.entries["position"].astype(np.int64)
        # The codec reports entries that are out of order. Each is checked against its own position all the same.
        self._order = np.argsort(self.position, kind="stable")
        self._sorted = self.position[self._order]
        self._done = int(np.searchsorted(self._sorted, 0))
        self._before: tuple[int, int] | None = None
        """End and last offset of the batch before."""
        self._later: dict[int, int] = {}
        """Entries whose offset must be the last offset of a later batch, by that offset."""

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

    def _look(self, batches: Batches, covered: Int64s) -> None:
        place = np.searchsorted(batches.start, self.position[covered], "right") - 1
        for entry, i in zip(covered.tolist(), place.tolist(), strict=True):
            at, offset = int(self.position[entry]), int(self.offset[entry])
            if i < 0 or at >= batches.end[i]:
                continue  # in a damaged stretch, where nothing is known
            if at != batches.start[i]:
                text = f"entry {entry} has byte {at}, which is within the batch at byte {batches.start[i]}"
                self.wrong("within", entry, text, _MISLED)
                continue
            before = (int(batches.end[i - 1]), int(batches.last[i - 1])) if i else self._before
            if before is not None and before[0] == at and offset <= before[1]:
                text = f"entry {entry} has offset {offset} at byte {at}, but the offset is before that byte"
                self.wrong("behind", entry, text, _MISLED)
            elif offset > batches.last[i]:
                self._later[offset] = entry

    def finish(self, end: int, last_offset: int | None, *, live: bool, active: bool) -> None:
        """Finish after the last batch, which ends at byte `end`. `active`: it is the last segment, whose index decides where the log ends."""
        for entry in self._order[self._done :].tolist():
            at = int(self.position[entry])
            if live or at < end:
                continue
            text = f"entry {entry} has byte {at}, but the batches end at byte {end}"
            system = "no read needs the entry"
            if active:
                system = f"the broker assumes that the log ends at offset {self.base}, and assigns the offsets from there on again"
            self.wrong("beyond", entry, text, system, Severity.ERROR if active else Severity.WARNING)
            self._later.pop(int(self.offset[entry]), None)
        for offset, entry in self._later.items():
            if live and (last_offset is None or offset > last_offset):
                continue
            text = f"entry {entry} has offset {offset} at byte {int(self.position[entry])}, where no batch has that offset"
            self.wrong("unknown", entry, text, "reads start earlier than necessary", Severity.WARNING)


class TimeIndexCheck(_Entries):
    """Check one `.timeindex`."""

    codec = "kafka.timeindex"
    dtype = TIMEINDEX_ENTRY.head_dtype

    def __init__(self, data: bytes, base: int, trusted: bool) -> None:
        super().__init__(data, base, trusted)
        self.timestamp: Int64s = self.entries["timestamp"].astype(np.int64)
        self._order = np.argsort(self.offset, kind="stable")
        self._sorted = self.offset[self._order]
        self._done = 0
        self._largest = -1
        self._before: tuple[int, int] | None = None
        self._ordered = True
        self._untimed = False

    def add(self, batches: Batches) -> None:
        last = batches.last
        # A broker may have converted records with timestamps to magic 0, and kept the timestamps in the index.
        self._untimed |= bool(batches.untimed.any())
        largest = np.maximum.accumulate(np.maximum(batches.timestamp, self._largest))
        before = self._before
        if (last[1:] < last[:-1]).any() or (before is not None and last[0] < before[1]):
            self._ordered = False  # an offset then does not imply a position
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
        """Check an entry. The batch `i` is the first whose last offset is not below that of the entry."""
        offset, timestamp = int(self.offset[entry]), int(self.timestamp[entry])
        end = int(batches.end[i - 1]) if i else 0 if self._before is None else self._before[0]
        if offset < batches.base[i] and end != batches.start[i]:
            return  # in a damaged stretch
        if before > timestamp:
            text = f"entry {entry} has timestamp {timestamp} as the largest up to offset {offset}, but there is {before}"
            system = "the broker trusts it: searches by time miss records"
            self.wrong("before", entry, text, system)
        elif upto < timestamp and not self._untimed:
            text = f"entry {entry} has timestamp {timestamp} at offset {offset}, but the largest up to there is {upto}"
            system = "the broker trusts it: to searches by time and to retention the segment seems newer than it is"
            self.wrong("after", entry, text, system, Severity.WARNING)

    def finish(self, *, closed: bool, complete: bool, live: bool) -> None:
        """Finish after the last batch. `closed`: the broker closed the segment, so that its largest timestamp has an entry. `complete`: no
        batch was damaged."""
        if not complete or not self._ordered:
            return
        last = self._before[1] if self._before is not None else self.base - 1
        for entry in [] if live else self._order[self._done :].tolist():
            text = (
                f"entry {entry} has offset {int(self.offset[entry])}, but the segment ends at offset {last}"
            )
            self.wrong("beyond", entry, text, "searches by time end beyond the log", Severity.WARNING)
        known = int(self.timestamp.max()) if len(self.timestamp) else -1
        if closed and known < self._largest:
            text = f"its last timestamp is {known}, but the segment has {self._largest}"
            if not len(self.timestamp):
                text = f"it is empty, but the segment has timestamps up to {self._largest}"
            system = "the broker trusts it: searches by time skip the segment"
            self.wrong("last", max(len(self.timestamp) - 1, 0), text, system, Severity.WARNING)
