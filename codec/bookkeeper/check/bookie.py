"""Compare the files of a bookie: ledgers maps with entry logs, the index with the logs, marks with journals, and cookies with each other.

Source: `InterleavedLedgerStorage.localConsistencyCheck`, `LegacyCookieValidation`, `BookieImpl.replay` of BookKeeper.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.arrays import Bools, Int64s, among, groups
from logwright.codec.bookkeeper.formats.digest import LAC_SIZE, lac_matches
from logwright.codec.bookkeeper.formats.entries import entry_range
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import ledger_sizes, read_map
from logwright.codec.bookkeeper.formats.index import HEADER_SIZE, SLOT, most_entries
from logwright.codec.bookkeeper.formats.journal import EXPLICIT_LAC, IDS, MASTER_KEY, WRONG_LAC
from logwright.codec.bookkeeper.startup.bookie import Bookie
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import LAC_OFFSET, opened
from logwright.codec.bookkeeper.startup.journal import Reader, first_record, version_of
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.keys import MasterKeys
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.capability import CheckSettings
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Options
from logwright.codec.plural import count
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window

Logs = Mapping[str, Int64s]
"""The entries of entry logs, by file: rows of ledgers, entry ids, and the starts and ends of frames."""
Locations = dict[int, tuple[str, Int64s, Int64s]]
"""File, entries and locations, by ledger."""
_NOT_SERVED = "the bookie does not serve them"
_NONE = np.empty(0, np.int64)
NAME = "bookkeeper.bookie"
_DATA = (MASTER_KEY, EXPLICIT_LAC)
_KEY_OFFSET = 12
_MOST = 20
_SAMPLES = 3
"""Number of locations of a log that must agree on a shift."""


@dataclass
class JournalRecords:
    """The records of a journal: the start of each, the end of the last one, and the ledgers of entries and keys."""

    starts: set[int] = field(default_factory=set)
    end: int = 0
    entries: list[tuple[Int64s, Int64s, Int64s]] = field(default_factory=list)
    """Ledger, entry id and position of records."""


class BookieChecker:
    """See `logwright.codec.capability.Check`."""

    def __init__(self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> None:
        self._listing, self._plan = listing, plan
        self._tree = Tree(listing, options.only(tree.OPTIONS))
        self._passwords = options.to_dict().get("passwd")
        self._file: PlannedFile | None = None
        self._logs: dict[str, list[Int64s]] = {}
        self._journals: dict[str, JournalRecords] = {}
        self._keys: dict[int, dict[bytes, tuple[str, int]]] = {}
        """The different master keys of each ledger, each with a place that has it."""
        self._lacs: dict[int, tuple[str, int, bytes]] = {}
        """The explicit last-add-confirmed that the bookie replays last, by ledger, and its place."""

    def begin(self, file: PlannedFile) -> None:
        self._file = file
        if file.codec == tree.ENTRY_LOG:
            self._logs[file.name] = [np.empty((4, 0), np.int64)]
        elif file.codec == tree.JOURNAL:
            self._journals[file.name] = JournalRecords()

    def add(self, window: Window, frames: Frames) -> None:
        assert self._file is not None
        main = frames.header["frame_kind"] == MAIN
        start, end = frames.start + window.offset, frames.end + window.offset
        ledger, entry = (frames.header[name][main].astype(np.int64) for name in ("ledger_id", "entry_id"))
        if self._file.name in self._journals:
            records = self._journals[self._file.name]
            records.starts.update(start.tolist())
            records.end = int(end[-1])
            records.entries.append((ledger, entry, start[main]))
            for i in np.flatnonzero(
                (frames.header["frame_kind"] == MAIN) & np.isin(frames.header["entry_id"], _DATA)
            ).tolist():
                content = window.data[int(frames.start[i]) + IDS + 4 : int(frames.end[i])].tobytes()
                self._note(
                    int(frames.header["ledger_id"][i]),
                    int(frames.header["entry_id"][i]),
                    int(start[i]),
                    content,
                )
        elif self._file.name in self._logs:
            self._logs[self._file.name].append(np.stack((ledger, entry, start[main], end[main])))

    def _note(self, ledger: int, kind: int, at: int, content: bytes) -> None:
        """Note a master key, or an explicit last-add-confirmed that the bookie replays."""
        assert self._file is not None
        name = self._file.name
        if kind == MASTER_KEY:
            self._keys.setdefault(ledger, {}).setdefault(content, (name, at))
        elif at >= self._tree.replayed.get(name, at + 1):
            self._lacs[ledger] = name, at, content

    def finish(self) -> Iterator[tuple[str, Fault]]:
        yield from self._plan.missing
        yield from self._start()
        logs = {name: np.concatenate(blocks, axis=1) for name, blocks in self._logs.items()}
        for name, (ledger, _, start, end) in logs.items():
            yield from self._map(name, ledger, end - start)
        yield from self._misnamed_copies()
        yield from self._conflicts(logs)
        yield from self._index(logs)
        yield from self._marks()
        for ledger, (name, at, lac) in sorted(self._lacs.items()):
            yield from self._lac(ledger, name, lac, at + IDS + 4)
        yield from self._damaged_keys()

    def _start(self) -> Iterator[tuple[str, Fault]]:
        """Check that a bookie starts: its cookies, its journals, and the index of the ledgers in them."""
        if self._tree.storage == tree.DB and not rocks.available():
            return
        try:
            Bookie(Overlay(self._listing), self._tree, self._tree.options).start()
        except JavaError as error:
            yield "", _fault("the bookie does not start", " ".join(f"{error.name}: {error.message}".split()))

    # Entry logs

    def _map(self, name: str, ledger: Int64s, size: Int64s) -> Iterator[tuple[str, Fault]]:
        """Check that the ledgers map has the ledgers of the log and the bytes of their frames."""
        file = ListedFile(self._listing, name, self._tree.sizes[name])
        ledgers_map = read_map(file.pread, file.size)
        if ledgers_map is None or ledgers_map.error or not ledgers_map.sizes:
            return
        actual = dict(sorted(ledger_sizes(ledger, size).items()))
        wrong = sorted(
            number
            for number in {*actual, *ledgers_map.sizes}
            if actual.get(number) != ledgers_map.sizes.get(number)
        )
        if not wrong:
            return
        first = wrong[0]
        text = f"the ledgers map has {ledgers_map.sizes.get(first, 0)} bytes of ledger {first}, the log has {actual.get(first, 0)}"
        more = f" (and {count(len(wrong) - 1, 'other ledger')})" if len(wrong) > 1 else ""
        absent = [number for number in actual if number not in ledgers_map.sizes]
        system = (
            f"garbage collection ignores ledger {absent[0]} in this log, and may delete the log"
            if absent
            else "compaction misjudges the log"
        )
        yield name, _fault(text + more, system, Severity.WARNING, ledgers_map.offset)

    def _misnamed_copies(self) -> Iterator[tuple[str, Fault]]:
        """Report a copy that an interrupted compaction left under the decimal form of the log's hexadecimal id (apache/bookkeeper#4804)."""
        names = {name for _, name in self._tree.logs}
        for place in self._tree.ledgers:
            for file in self._tree.files(place):
                if not file.endswith(".compacted"):
                    continue
                number = tree.log_id(f"{file.split('.')[0]}.log")
                twin = f"{place.prefix}{number}.log"
                if number is None or f"{number:x}" == str(number) or twin not in names:
                    continue
                if self._tree.sizes[twin] == self._tree.sizes[f"{place.prefix}{file}"]:
                    text = f"the log is a copy of {file} under the decimal form of its id"
                    system = f"the bookie opens it as log {int(str(number), 16)} and never deletes {file}"
                    yield twin, _fault(text, system, Severity.WARNING)

    def _conflicts(self, logs: Logs) -> Iterator[tuple[str, Fault]]:
        """Check that all copies of an entry have the same bytes."""
        names = list(logs)
        number = np.repeat(np.arange(len(names)), np.array([log.shape[1] for log in logs.values()], np.int64))
        ledger, entry, start, end = np.concatenate([np.empty((4, 0), np.int64), *logs.values()], axis=1)
        order = np.lexsort((number, entry, ledger))
        same = (np.diff(ledger[order]) == 0) & (np.diff(entry[order]) == 0)
        count = 0
        for i in np.flatnonzero(same).tolist():
            a, b = int(order[i]), int(order[i + 1])
            first, second = (
                self._listing.read(names[int(number[k])], int(start[k]), int(end[k] - start[k]))
                for k in (a, b)
            )
            if first != second:
                count += 1
                if count <= _MOST:
                    text = f"entry {int(entry[a])} of ledger {int(ledger[a])} differs from its copy in {names[int(number[a])]}"
                    system = "the bookie serves the copy that the index names"
                    place = int(start[b]), int(end[b] - start[b])
                    yield names[int(number[b])], _fault(text, system, Severity.WARNING, *place)

    # The index

    def _index(self, logs: Logs) -> Iterator[tuple[str, Fault]]:
        """Check that each location is that of its entry, and that each entry has a location."""
        locations = yield from self._locations()
        if locations is None:
            return
        shifts: dict[str, list[int]] = {}
        replayed = self._replayed()
        for ledger, (file, entries, places) in sorted(locations.items()):
            wrong = []
            missing = []
            # The bookie adds these again, and replaces their locations.
            kept = ~among(entries, replayed.get(ledger, _NONE))
            entries, places = entries[kept], places[kept]
            for number in np.unique(places >> 32).tolist():
                mask = places >> 32 == number
                log = self._tree.log_of(ledger, number)
                if log not in logs:
                    missing.append(number)
                good = self._resolve(
                    logs.get(log), ledger, entries[mask], places[mask], shifts.setdefault(log, [])
                )
                wrong += entries[mask][~good].tolist()
            if wrong:
                text = f"the index has {count(len(wrong), 'entry')} of ledger {ledger} not at the stored location, the first is {wrong[0]}"
                if missing:
                    text += f"; entry log {missing[0] & (1 << 64) - 1:x}.log is missing"
                yield file, _fault(text, _NOT_SERVED, lost=entry_range(ledger, min(wrong), max(wrong)))
        for log, deltas in sorted(shifts.items()):
            if len(deltas) >= _SAMPLES and len(set(deltas)) == 1 and deltas[0]:
                text = f"the locations of {len(deltas)} entries in this log are off by the same distance: correct after adding {deltas[0]}"
                yield log, _fault(text)
        yield from self._unindexed(logs, locations, replayed)
        yield from self._before_marks(logs, locations, replayed)

    def _locations(self) -> Generator[tuple[str, Fault], None, Locations | None]:
        """Return the locations of each ledger: file, entries, locations; None without an index. Yields faults of index files."""
        out: Locations = {}
        if self._tree.storage == tree.DB:
            if not rocks.available():
                text = "the index is a RocksDB database, which is not checked: the package rocksdict is not installed"
                yield "", _fault(text, severity=Severity.INFO)
                return None
            known: set[int] = set()
            for place in self._tree.indexes:
                try:
                    ledgers = rocks.read_ledgers(self._listing, f"{place.prefix}{tree.LEDGERS}/")
                    known |= ledgers.keys()
                    by_ledger = rocks.read_locations(self._listing, f"{place.prefix}{tree.LOCATIONS}/")
                    keys = rocks.long_keys(self._listing, f"{place.prefix}{tree.LEDGERS}/")
                except JavaError as error:
                    text = f"the RocksDB index cannot be read: {error.message}"
                    yield "", _fault(text, "the bookie does not start", kind=Kind.PAYLOAD)
                    return None
                for ledger, data in ledgers.items():
                    self._keys.setdefault(ledger, {}).setdefault(data.key, ("", 0))
                    yield from self._lac(ledger, "", data.lac, 0)
                if keys:
                    text = f"ledger {keys[0]} has a key of 16 bytes in the database ledgers, as rebuild-db-ledgers-index writes it"
                    yield (
                        "",
                        _fault(text, "later changes of the ledger are lost at a restart", Severity.WARNING),
                    )
                out |= {ledger: ("", *arrays) for ledger, arrays in by_ledger.items()}
            if out and not known:
                text = f"the database ledgers has no ledger, but locations has {count(len(out), 'ledger')}"
                yield "", _fault(text, "the bookie knows no ledger")
                return out
            return {ledger: own for ledger, own in out.items() if ledger in known}
        overlay, page = Overlay(self._listing), self._tree.index_page
        if page is None:
            text = f"no index file has complete pages of {self._tree.options[tree.PAGE_SIZE.name]:,} bytes"
            system = "a bookie with this page size lists no entry of an incomplete page. If it has another one, pass the option pageSize"
            yield "", _fault(text, system, Severity.WARNING)
        for ledger, name in self._tree.index_files.items():
            file, failure = opened(overlay, name)
            if failure is not None:
                system = f"the first access to the ledger fails: {failure.name}: {failure.message}"
                kind = Kind.TRUNCATED if self._tree.sizes[name] < 1024 else Kind.PAYLOAD
                text = f"the header of the index file cannot be read: {failure.message or failure.name}"
                yield name, _fault(text, system, size=min(1024, self._tree.sizes[name]), kind=kind)
            else:
                self._keys.setdefault(ledger, {}).setdefault(file.key or b"", (name, _KEY_OFFSET))
                yield from self._lac(ledger, name, file.lac, LAC_OFFSET + len(file.key or b""))
            if not file.readable:
                continue  # reported by the codec
            stored = file.stored()
            entries = np.flatnonzero(stored)
            if page is not None and len(stored) * SLOT % page:
                yield name, _partial_page(ledger, len(stored), page, entries)
            out[ledger] = name, entries, stored[entries]
        return out

    def _lac(self, ledger: int, name: str, lac: bytes | None, at: int) -> Iterator[tuple[str, Fault]]:
        """Check the digest of an explicit last-add-confirmed that the bookie serves."""
        password = None if self._passwords is None else self._passwords.of(ledger)
        if lac and not lac_matches(ledger, lac, len(lac) - LAC_SIZE, password):
            system = f"a client cannot open ledger {ledger}"
            yield name, _fault(WRONG_LAC, system, at=at, size=len(lac) if name else 0, kind=Kind.PAYLOAD)

    def _damaged_keys(self) -> Iterator[tuple[str, Fault]]:
        """Check that all copies of a master key are equal, and that none is that of other ledgers with one bit flipped."""
        keys = MasterKeys(
            {ledger: frozenset(places) for ledger, places in self._keys.items()}, self._passwords
        )
        for ledger in keys.conflicts():
            places, right = self._keys[ledger], keys.right(ledger)
            name, at = next(place for key, place in places.items() if any(key) and key != right)
            text = f"the master key of ledger {ledger} is damaged"
            if right is None:
                others = sorted({file for file, _ in places.values()} - {name}) or [name]
                text = f"the master key of ledger {ledger} is not the one in {others[0]}"
            system = "a client may not be able to recover the ledger or to add to it: BookieUnauthorizedAccessException"
            yield name, _fault(text, system, Severity.WARNING, at, kind=Kind.PAYLOAD)

    def _resolve(
        self, log: Int64s | None, ledger: int, entries: Int64s, places: Int64s, shifts: list[int]
    ) -> Bools:
        """Return which locations are correct, and append to `shifts` the distance of each wrong one from its entry."""
        if log is None or not len(log[0]):
            return np.zeros(len(entries), np.bool_)
        ledgers, ids, starts, _ = log
        frames = (places & 0xFFFFFFFF) - 4
        at = np.minimum(np.searchsorted(starts, frames), len(starts) - 1)
        good = (starts[at] == frames) & (ledgers[at] == ledger) & (ids[at] == entries)
        if not good.all():
            own = np.flatnonzero(ledgers == ledger)
            order = own[np.argsort(ids[own], kind="stable")]
            k = np.minimum(np.searchsorted(ids[order], entries[~good]), max(len(order) - 1, 0))
            if len(order):
                hits = ids[order][k] == entries[~good]
                shifts.extend((starts[order][k] - frames[~good])[hits].tolist())
        sound: Bools = good
        return sound

    def _unindexed(
        self, logs: Logs, locations: Locations, replayed: Mapping[int, Int64s]
    ) -> Iterator[tuple[str, Fault]]:
        unknown: dict[int, str] = {}
        is_db = self._tree.storage == tree.DB
        room = 1 << 63 if is_db else most_entries(self._tree.options[tree.PAGE_SIZE.name])
        for name, (ledger, entry, _, _) in logs.items():
            for number, own in groups(ledger):
                if number not in locations:
                    if number not in self._tree.index_files:
                        unknown.setdefault(number, name)
                    continue
                ids, (file, entries, _) = entry[own], locations[number]
                missing = ids[~among(ids, entries)]
                if len(missing):
                    missing = np.setdiff1d(missing, replayed.get(number, _NONE))
                without_room = missing[missing >= room]
                if len(without_room):
                    text = (
                        f"an index file has room for entries up to {room - 1}, but not for {count(len(without_room), 'entry')} of ledger "
                        f"{number}, the first is {int(without_room[0])}"
                    )
                    yield name, _fault(text, _NOT_SERVED, Severity.WARNING)
                missing = missing[missing < room]
                if len(missing):
                    text = f"the index lacks {count(len(missing), 'entry')} of ledger {number} in {name}, the first is {int(missing[0])}"
                    yield file, _fault(text, _NOT_SERVED, lost=entry_range(number, missing[0], missing[-1]))
        for number, name in sorted(unknown.items())[:_MOST]:
            if number in replayed:
                continue
            text = f"ledger {number} is not in the index: it was deleted, or its index is lost"
            system = "the bookie does not serve it, and garbage collection deletes its entries"
            severity = Severity.WARNING if locations else Severity.ERROR
            yield name, _fault(text, system, severity, lost={"ledger_id": number})

    # Journals

    def _before_marks(
        self, logs: Logs, locations: Locations, replayed: Mapping[int, Int64s]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that entries before lastMark are in entry logs, to which the bookie adds them before it writes the mark."""
        for name in self._tree.all_journals:
            stop = self._tree.replayed.get(name, self._tree.sizes[name])
            for ledger, entry, start in self._journals.get(name, JournalRecords()).entries:
                data = np.flatnonzero((entry >= 0) & (start < stop))
                for number, own in groups(ledger[data]):
                    if number not in locations:
                        continue  # It was deleted.
                    at = data[own]
                    for known in (locations[number][1], replayed.get(number, _NONE)):
                        at = at[~among(entry[at], known)]
                    if len(at):
                        stored = [ids[ledgers == number] for ledgers, ids, _, _ in logs.values()]
                        at = at[~np.isin(entry[at], np.concatenate([_NONE, *stored]))]
                    if len(at):
                        ids, first = entry[at], int(start[at[0]])
                        text = f"no entry log has {count(len(ids), 'entry')} of ledger {number} before lastMark, the first is {int(ids[0])}"
                        lost = entry_range(number, ids.min(), ids.max())
                        yield name, _fault(text, "the bookie does not replay them", at=first, lost=lost)

    def _replayed(self) -> dict[int, Int64s]:
        """Return the entries in the part of the journals that the bookie replays, by ledger and in order."""
        out: dict[int, list[Int64s]] = {}
        for name, position in self._tree.replayed.items():
            for ledger, entry, start in self._journals.get(name, JournalRecords()).entries:
                mask = (start >= position) & (entry >= 0)
                for number, own in groups(ledger[mask]):
                    out.setdefault(number, []).append(entry[mask][own])
        return {number: np.unique(np.concatenate(blocks)) for number, blocks in out.items()}

    def _marks(self) -> Iterator[tuple[str, Fault]]:
        """Check that lastMark is at a record or at the end of a journal, and that the ledgers of replayed entries have a master key."""
        known = set(self._tree.index_files) if self._tree.storage != tree.DB else None
        for i, place in enumerate(self._tree.journals):
            identity, offset = self._tree.mark(i)
            names = dict(self._tree.journal_files(place))
            name = names.get(identity)
            if name is not None and offset > 0:
                yield from self._mark(name, offset)
            keyed: set[int] = set()
            reported: set[int] = set()
            for name, position in self._tree.marked(i):
                for ledger, entry, start in self._journals.get(name, JournalRecords()).entries:
                    mask = start >= position
                    for number, kind, at in zip(
                        ledger[mask].tolist(), entry[mask].tolist(), start[mask].tolist(), strict=True
                    ):
                        if kind == MASTER_KEY:
                            keyed.add(number)
                        elif (
                            known is not None
                            and number not in known
                            and number not in keyed
                            and number not in reported
                        ):
                            reported.add(number)
                            text = f"ledger {number} has no master key in a journal before this record, and no index file"
                            system = "the bookie skips its records without an error"
                            yield name, _fault(text, system, at=at, lost={"ledger_id": number})

    def _mark(self, name: str, offset: int) -> Iterator[tuple[str, Fault]]:
        records = self._journals.get(name)
        size = self._tree.sizes[name]
        try:
            first = first_record(version_of(Reader(self._listing, name, size)))
        except JavaError:
            return
        if records is None or offset in records.starts or offset in (first, records.end, records.end + 4):
            return
        text = f"lastMark is at {offset}, which is not the start of a record"
        system = (
            "the bookie reads a wrong length there: it does not start, or replays nothing of this journal"
        )
        yield name, Fault(NAME, min(offset, size), 0, Kind.LINK, text, Severity.ERROR, system)


def _partial_page(ledger: int, slots: int, page: int, entries: Int64s) -> Fault:
    """Return the fault of an index file whose last page is not complete. A bookie lists no entry of that page."""
    size = slots * SLOT % page
    lost = entries[entries >= slots - size // SLOT]
    text = f"the last page of locations has {count(size, 'byte')}, expected {page:,}"
    at = HEADER_SIZE + slots * SLOT - size
    if not len(lost):
        return _fault(text, "the bookie ignores it", Severity.WARNING, at, size, kind=Kind.TRUNCATED)
    bounds = entry_range(ledger, lost[0], lost[-1])
    return _fault(text, _NOT_SERVED, at=at, size=size, kind=Kind.TRUNCATED, lost=bounds)


def _fault(
    text: str, system: str = "", severity: Severity = Severity.ERROR, at: int = 0, size: int = 0, *,
    kind: Kind = Kind.LINK, lost: Mapping[str, Any] | None = None,
) -> Fault:  # fmt: skip
    """Return a fault that counts no lost rows: another one counts them, or they can still be read."""
    return Fault(NAME, at, size, kind, text, severity, system, 0, lost or {})
