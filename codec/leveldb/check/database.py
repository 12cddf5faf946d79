"""Compare the files of a database with each other.

Severity: hidden or lost entries are an error. What LevelDB skips but the reader should know is a warning.

Source of the rules: `VersionSet`, `DBImpl::Recover` and `Version::Get` of LevelDB, which checks none of them on opening.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from logwright.codec.capability import CheckSettings
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.check.table import DisplacedBlocks, TableCheck
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA, survey
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import BYTEWISE, key_range, readable, user_key
from logwright.codec.leveldb.names import FileType, log_name, named_files, number_in
from logwright.codec.leveldb.store.contents import misnamed
from logwright.codec.leveldb.store.missing import describe, loss_of, max_missing_entries
from logwright.codec.leveldb.store.version import FileMetaData, read_descriptor
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile
from logwright.codec.window import Frames, Window

LAYOUT = "leveldb.db"
_OLDER = "Get returns the value of the file searched first, an iterator that of the larger sequence number; a full compaction fixes it"

ADVICE = (
    "Copy the directory before anything opens it: on opening, LevelDB removes the logs that it has read, damaged ones too.",
    "LevelDB's own RepairDB verifies no checksums: it keeps wrong values and brings deleted keys back.",
)


class DatabaseChecker:
    """See `logwright.codec.capability.Check`. With `deep`, the contents of blocks are checked."""

    def __init__(self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> None:
        self._listing, self._deep = listing, settings.deep
        descriptor = read_descriptor(listing)
        self._version = descriptor.version if descriptor.error is None else None
        self._manifest = descriptor.manifest or ""
        self._comparator = comparator_of(plan.facts.get("comparator", BYTEWISE))
        self._limit = MAX_DECOMPRESSED.default
        self._renamed: Mapping[str, int] = plan.facts.get("renamed", {})
        self._faults: list[tuple[str, Fault]] = []
        self._file: PlannedFile | None = None
        self._at: tuple[PlannedFile, TableCheck] | None = None
        self._tables: dict[int, tuple[str, TableCheck]] = {}
        self._unread: dict[int, PlannedFile] = {}
        """Tables without a good data block so far, by number."""
        self._empty: dict[str, PlannedFile] = {}
        """Files without a good frame so far, by name."""
        self._sequence: int | None = None if self._version is None else self._version.last_sequence
        """The last sequence number of the manifest, then of the log so far."""
        self._highest = self._sequence or 0
        self._logged = 0
        """Entries of the sound batches of the logs."""
        self._lowest: dict[str, int] = {}
        """The lowest sequence number of each log."""
        self._log: tuple[str, int, int] = ("", 0, 0)
        """The current log, where its last good record ended, and its size."""

    def begin(self, file: PlannedFile) -> None:
        self._close()
        self._file = self._empty[file.name] = file
        if file.codec == table.CODEC.name:
            self._unread[self._number(file)] = file

    def add(self, window: Window, frames: Frames) -> None:
        file = self._file
        assert file is not None
        self._empty.pop(file.name, None)
        if file.codec == log.NAME:
            self._check_batches(file, window, frames)
            return
        if file.codec != table.CODEC.name:
            return
        if bool((frames.header["kind"] == DATA).any()):
            self._unread.pop(self._number(file), None)
        if self._deep:
            if self._at is None:
                read = ListedFile(self._listing, file.name, file.size)
                self._at = file, TableCheck(read, self._limit, self._comparator, self._range_of(file))
            self._at[1].add(window, frames)

    def _number(self, file: PlannedFile) -> int:
        return self._renamed.get(file.name, number_in(file.name))

    def _range_of(self, file: PlannedFile) -> tuple[bytes, bytes] | None:
        live = {} if self._version is None else self._version.files
        _, known = live.get(self._number(file), (0, None))
        return None if known is None else (known.smallest, known.largest)

    def _close(self) -> None:
        if self._at is None:
            return
        (file, check), self._at = self._at, None
        self._faults += [(file.name, fault) for fault in check.faults]
        self._tables[self._number(file)] = file.name, check
        check.release()

    # Logs

    def _check_batches(self, file: PlannedFile, window: Window, frames: Frames) -> None:
        frames = frames.pick(frames.header["size"] >= BATCH_HEADER)
        if not len(frames):
            return
        name, end, size = self._log
        first = frames.header["sequence"].astype(np.int64)
        counts = np.maximum(frames.header["count"].astype(np.int64), 0)
        self._logged += int(counts.sum())
        if counts.any():
            lowest = int(first[counts > 0].min())
            self._lowest[file.name] = min(lowest, self._lowest.get(file.name, lowest))
        last = first + counts - 1
        start = frames.start + window.offset
        from_start = start[0] == (end if name == file.name else 0)
        if name not in ("", file.name):
            # The next log continues the numbers of the one before, unless damage hides the last of them.
            from_start &= end == size
        before = np.concatenate(([self._sequence if self._sequence is not None else first[0] - 1], last[:-1]))
        contiguous = np.concatenate(([from_start], frames.start[1:] == frames.end[:-1]))
        begins = np.zeros(len(first), np.bool_)
        begins[0] = name != file.name
        for i in np.flatnonzero(contiguous & (first > before + 1)).tolist():
            text = f"the sequence numbers {int(before[i]) + 1} to {int(first[i]) - 1} are missing before this write"
            lost = {"first_sequence": int(before[i]) + 1, "last_sequence": int(first[i]) - 1}
            system = "LevelDB ignores this: writes were lost here, or skipped by an earlier start"
            self._report(file.name, Kind.ORDER, text, Severity.WARNING, system, int(start[i]), lost)
        # The manifest may be ahead of a log that was started before it was written.
        for i in np.flatnonzero(contiguous & ~begins & (first <= before)).tolist():
            text = f"the sequence number {int(first[i])} comes after {int(before[i])}"
            system = "LevelDB treats the write as older than those before it"
            self._report(file.name, Kind.ORDER, text, Severity.WARNING, system, int(start[i]))
        self._sequence = int(last.max())
        self._highest = max(self._highest, int(last.max()))
        self._log = file.name, int(frames.end[-1]) + window.offset, file.size

    # The whole database

    def finish(self) -> Iterator[tuple[str, Fault]]:
        self._close()
        self._check_displaced()
        for file in self._empty.values():
            if content := misnamed(self._listing, Entry(file.name, file.size)):
                text = f"it has the content of {content}: the file was renamed, copied or exchanged"
                self._report(file.name, Kind.MAGIC, text, Severity.ERROR, "")
        if self._version is not None:
            live = self._version.files
            self._check_missing(live)
            self._check_numbers(live)
            self._check_logs(live)
            self._check_levels()
            for number, (_, known) in live.items():
                if number in self._tables:
                    self._check_manifest_entry(known, *self._tables[number])
            self._check_ages()
        yield from self._faults

    def _check_displaced(self) -> None:
        """Report what blocks in the wrong places have overwritten, unless it is in another wrong place."""
        checks = [check for _, check in self._tables.values()]
        if not any(check.displaced for check in checks):
            return
        displaced_keys = [(first, last) for check in checks for _, first, last, _ in check.displaced]
        for number, (_, check) in self._tables.items():
            displaced_keys += [block for block in check.unplaced if self._is_alien(number, *block)]
        away = DisplacedBlocks(displaced_keys, self._comparator)
        lost = {
            id(fault): replace(
                fault,
                rows_lost=None,
                lost={"file": number, **key_range(place.low and user_key(place.low), user_key(place.high))},
            )
            for number, (_, check) in self._tables.items()
            for fault, _, _, place in check.displaced
            if not away.fill(place)
        }
        self._faults = [(name, lost.get(id(fault), fault)) for name, fault in self._faults]

    def _is_alien(self, number: int, first: bytes, last: bytes) -> bool:
        """Return whether a block has keys outside of the range of its table in the manifest."""
        if self._version is None or number not in self._version.files:
            return False
        _, known = self._version.files[number]
        order = self._comparator.order
        return bool(order(first) < order(known.smallest) or order(last) > order(known.largest))

    def _check_missing(self, live: Mapping[int, tuple[int, FileMetaData]]) -> None:
        """Report missing tables, and those of which no entry is readable."""
        there = {*(named.number for _, named in named_files(self._listing)), *self._renamed.values()}
        unread = [number for number in live if number in there and self._is_lost(number)]
        gone = sorted({*set(live) - there, *unread})
        entries = None
        if self._deep:
            checks = [check for number, (_, check) in self._tables.items() if number in live]
            entries = max_missing_entries(
                self._highest, [live[number][1] for number in gone], checks, self._logged
            )
        for number in gone:
            level, known = live[number]
            missing = number not in there
            text = describe(known, level, entries, len(gone), missing=missing)
            lost = loss_of(known, entries)
            name, system = ("", "LevelDB refuses to open") if missing else (self._unread[number].name, "")
            self._report(name, Kind.LINK, text, Severity.ERROR, system, lost=lost)

    def _is_lost(self, number: int) -> bool:
        """Return whether no entry of a table is readable. With a sound index, the damaged blocks report which keys are lost."""
        file = self._unread.get(number)
        if file is None:
            return False
        blocks = survey(ListedFile(self._listing, file.name, file.size), file.size, self._limit)
        return not blocks.sound and not blocks.unsupported

    def _check_numbers(self, live: Mapping[int, tuple[int, FileMetaData]]) -> None:
        version = self._version
        assert version is not None
        following = version.next_file_number or 0
        for number in sorted(live):
            if number >= following:
                text = f"table {number} is live, but the next number for a new file is {following}"
                system = "LevelDB gives the number to a new file and overwrites the table"
                self._report(self._manifest, Kind.LINK, text, Severity.ERROR, system)
        first = version.log_number or 0
        logs = [
            named.number
            for entry, named in named_files(self._listing, FileType.LOG)
            if entry.name == log_name(named.number)
        ]
        if first and not any(number >= first or number == version.prev_log_number for number in logs):
            text = f"{log_name(first)}, the current log by the manifest, is missing: its writes are lost, if it had any"
            system = "LevelDB opens without an error, and what was written to the log is lost"
            self._report("", Kind.LINK, text, Severity.WARNING, system)
        if self._deep:
            for number, (name, check) in self._tables.items():
                if check.high > self._highest and number in live:
                    text = f"it has sequence numbers up to {check.high}, but the last one of the database is {self._highest}"
                    system = "LevelDB hides entries with a larger one"
                    self._report(name, Kind.LINK, text, Severity.ERROR, system)

    def _check_logs(self, live: Mapping[int, tuple[int, FileMetaData]]) -> None:
        """Report logs whose writes are not newer than all tables, and empty ones before the current one."""
        newest = max((number for number in self._tables if number in live), key=self._high, default=None)
        first, highest = min(self._lowest.values(), default=0), 0 if newest is None else self._high(newest)
        known = 0 if self._version is None else self._version.last_sequence or 0
        for name, file in self._empty.items():
            later = any(number_in(other) > number_in(name) for other in self._lowest)
            if file.codec == log.NAME and not file.size and later and highest + 1 < first <= known + 1:
                text = f"it is empty, and the sequence numbers {highest + 1} to {first - 1} are in no table and no log"
                system = "LevelDB opens without an error, and what was written to the log is lost"
                lost = {"first_sequence": highest + 1, "last_sequence": first - 1}
                self._report(name, Kind.LINK, text, Severity.WARNING, system, lost=lost)
        for name, low in self._lowest.items():
            if newest is not None and low <= self._high(newest):
                text = f"it has the sequence number {low}, but table {newest} has numbers up to {self._high(newest)}"
                self._report(name, Kind.ORDER, text, Severity.WARNING, _OLDER)

    def _high(self, number: int) -> int:
        return self._tables[number][1].high

    def _check_levels(self) -> None:
        """Report overlapping tables of a level below 0."""
        version = self._version
        assert version is not None
        for level, files in enumerate(version.levels):
            if level == 0 or not self._comparator.known:
                continue
            for before, after in pairwise(files):
                if self._comparator.order(before.largest) >= self._comparator.order(after.smallest):
                    text = (
                        f"tables {before.number} and {after.number} of level {level} overlap: one ends with "
                        f"{readable(user_key(before.largest))}, the other begins with {readable(user_key(after.smallest))}"
                    )
                    system = "LevelDB searches one table of a level only: Get misses keys"
                    self._report(self._manifest, Kind.ORDER, text, Severity.ERROR, system)

    def _check_manifest_entry(self, known: FileMetaData, name: str, check: TableCheck) -> None:
        """Compare a table with its entry in the manifest. A key range wider than necessary does no harm."""
        if not self._comparator.known or check.smallest is None or check.largest is None:
            return
        system = "LevelDB does not search the table for keys outside of the range: Get misses them"
        if self._comparator.order(check.smallest) < self._comparator.order(known.smallest):
            text = f"its first key is {readable(user_key(check.smallest))}, before {readable(user_key(known.smallest))} in the manifest"
            self._report(name, Kind.LINK, text, Severity.ERROR, system)
        if self._comparator.order(check.largest) > self._comparator.order(known.largest):
            text = f"its last key is {readable(user_key(check.largest))}, after {readable(user_key(known.largest))} in the manifest"
            self._report(name, Kind.LINK, text, Severity.ERROR, system)

    def _check_ages(self) -> None:
        """Report overlapping tables if the one searched first does not have the newer entries: see `Version::Get`."""
        version = self._version
        assert version is not None
        if not self._comparator.known:
            return
        user = self._comparator.user
        levels = [[upper for upper in files if upper.number in self._tables] for files in version.levels]
        for level, files in enumerate(levels):
            for upper in files:
                check = self._tables[upper.number][1]
                if level == 0:
                    for other in files:
                        if other.number < upper.number:
                            self._compare_ages(upper, check, other)
                for below in levels[level + 1 :]:
                    ends = [user(user_key(other.largest)) for other in below]
                    for other in below[bisect_left(ends, user(user_key(upper.smallest))) :]:
                        if user(user_key(other.smallest)) > user(user_key(upper.largest)):
                            break
                        self._compare_ages(upper, check, other)

    def _compare_ages(self, upper: FileMetaData, check: TableCheck, lower: FileMetaData) -> None:
        name, other = self._tables[lower.number]
        user = self._comparator.user
        overlap = user(user_key(lower.smallest)) <= user(user_key(upper.largest)) and user(
            user_key(upper.smallest)
        ) <= user(user_key(lower.largest))
        if overlap and other.rows and check.rows and other.low > check.high:
            text = (
                f"it is newer (sequence numbers from {other.low}) than table {upper.number} (up to {check.high}), which is "
                "searched before it"
            )
            self._report(name, Kind.ORDER, text, Severity.WARNING, _OLDER)

    def _report(
        self,
        name: str,
        kind: Kind,
        text: str,
        severity: Severity,
        system: str,
        at: int = 0,
        lost: Mapping[str, Any] | None = None,
    ) -> None:
        codec = log.NAME if name.endswith(".log") else LAYOUT
        self._faults.append((name, Fault(codec, at, 0, kind, text, severity, system, lost=dict(lost or {}))))
