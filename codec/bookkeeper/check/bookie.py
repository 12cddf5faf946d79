"""Compare the files of a bookie: ledgers maps with entry logs, the index with the logs, marks with journals, and cookies with each other.

Source: `InterleavedLedgerStorage.localConsistencyCheck`, `LegacyCookieValidation`, `BookieImpl.replay` of BookKeeper.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Bools, Int64s, among, groups
from logwright.codec.bookkeeper.formats.digest import LAC_SIZE, lac_matches
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import LedgersMap, read_map
from logwright.codec.bookkeeper.startup.bookie import KEY, Bookie
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import LAC_OFFSET, IndexFile
from logwright.codec.bookkeeper.startup.journal import Reader, first_record, version_of
from logwright.codec.bookkeeper.store import rocks, tree
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

Locations = dict[int, tuple[str, Int64s, Int64s]]
"""File, entries and locations, by ledger."""
NAME = "bookkeeper.bookie"
_MOST = 20
_SAMPLES = 3
"""Number of locations of a log that must agree on a shift."""


@dataclass
class LogEntries:
    """The entries of an entry log: ids, and the start and end of their frames."""

    ledger: list[Int64s] = field(default_factory=list)
    entry: list[Int64s] = field(default_factory=list)
    start: list[Int64s] = field(default_factory=list)
    end: list[Int64s] = field(default_factory=list)

    def joined(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        empty = np.empty(0, np.int64)
        ledger, entry, start, end = (
            np.concatenate([empty, *blocks]) for blocks in (self.ledger, self.entry, self.start, self.end)
        )
        return ledger, entry, start, end


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
        self._tree = Tree(listing, Options((*tree.READ_OPTIONS, *tree.SETTINGS), _known(options)))
        self._passwords = options.to_dict().get("passwd")
        self._file: PlannedFile | None = None
        self._logs: dict[str, LogEntries] = {}
        self._journals: dict[str, JournalRecords] = {}

    def begin(self, file: PlannedFile) -> None:
        self._file = file
        if file.codec == tree.ENTRY_LOG:
            self._logs[file.name] = LogEntries()
        elif file.codec == tree.JOURNAL:
            self._journals[file.name] = JournalRecords()

    def add(self, window: Window, frames: Frames) -> None:
        assert self._file is not None
        main = frames.header["frame_kind"] == MAIN
        start, end = frames.start + window.offset, frames.end + window.offset
        if self._file.name in self._journals:
            records = self._journals[self._file.name]
            records.starts.update(start.tolist())
            records.end = int(end[-1])
            ids = [frames.header[name][main].astype(np.int64) for name in ("ledger_id", "entry_id")]
            records.entries.append((ids[0], ids[1], start[main]))
        elif self._file.name in self._logs:
            log = self._logs[self._file.name]
            log.ledger.append(frames.header["ledger_id"][main].astype(np.int64))
            log.entry.append(frames.header["entry_id"][main].astype(np.int64))
            log.start.append(start[main])
            log.end.append(end[main])

    def finish(self) -> Iterator[tuple[str, Fault]]:
        yield from self._plan.missing
        yield from self._start()
        logs = {name: log.joined() for name, log in self._logs.items()}
        for name, (ledger, _, start, end) in logs.items():
            yield from self._map(name, ledger, end - start)
        yield from self._misnamed_copies()
        yield from self._conflicts(logs)
        yield from self._index(logs)
        yield from self._marks()

    def _start(self) -> Iterator[tuple[str, Fault]]:
        """Check that a bookie starts: its cookies, its journals, and the index of the ledgers in them."""
        if self._tree.storage == tree.DB and not rocks.available():
            return
        try:
            Bookie(Overlay(self._listing), self._tree, self._tree.options).start()
        except JavaError as error:
            text = f"the bookie does not start: {error.name}"
            yield "", Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, " ".join(error.message.split()), 0)

    # Entry logs

    def _map(self, name: str, ledger: Int64s, size: Int64s) -> Iterator[tuple[str, Fault]]:
        """Check that the ledgers map has the ledgers of the log and the bytes of their frames."""
        ledgers_map = self._read_map(name)
        if ledgers_map is None or ledgers_map.error or not ledgers_map.sizes:
            return
        ledgers, index = np.unique(ledger, return_inverse=True)
        sums = np.bincount(index, size, len(ledgers)).astype(np.int64)
        actual = dict(zip(ledgers.tolist(), sums.tolist(), strict=True))
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
        yield name, Fault(NAME, ledgers_map.offset, 0, Kind.LINK, text + more, Severity.WARNING, system, 0)

    def _read_map(self, name: str) -> LedgersMap | None:
        file = ListedFile(self._listing, name, self._tree.sizes[name])
        return read_map(file.pread, file.size)

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
                    yield twin, Fault(NAME, 0, 0, Kind.LINK, text, Severity.WARNING, system, 0)

    def _conflicts(
        self, logs: Mapping[str, tuple[Int64s, Int64s, Int64s, Int64s]]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that all copies of an entry have the same bytes."""
        names = list(logs)
        number = np.concatenate(
            [np.empty(0, np.int64), *(np.full(len(logs[name][0]), i) for i, name in enumerate(names))]
        )
        ledger, entry, start, end = (
            np.concatenate([np.empty(0, np.int64), *(logs[name][i] for name in names)]) for i in range(4)
        )
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
                    where = names[int(number[b])]
                    fault = Fault(NAME, int(start[b]), int(end[b] - start[b]), Kind.LINK, text, Severity.WARNING,
                                  "the bookie serves the copy that the index names", 0)  # fmt: skip
                    yield where, fault

    # The index

    def _index(
        self, logs: Mapping[str, tuple[Int64s, Int64s, Int64s, Int64s]]
    ) -> Iterator[tuple[str, Fault]]:
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
            kept = ~among(entries, replayed.get(ledger, np.empty(0, np.int64)))
            entries, places = entries[kept], places[kept]
            for number in np.unique(places >> 32).tolist():
                mask = places >> 32 == number
                log = self._log_of(ledger, number)
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
                lost = {"ledger_id": ledger, "first_entry_id": min(wrong), "last_entry_id": max(wrong)}
                yield (
                    file,
                    Fault(
                        NAME, 0, 0, Kind.LINK, text, Severity.ERROR, "the bookie does not serve them", 0, lost
                    ),
                )
        for log, deltas in sorted(shifts.items()):
            if len(deltas) >= _SAMPLES and len(set(deltas)) == 1 and deltas[0]:
                text = f"the locations of {len(deltas)} entries in this log are off by the same distance: correct after adding {deltas[0]}"
                yield log, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, "", 0)
        yield from self._unindexed(logs, locations, replayed)
        yield from self._before_marks(logs, locations, replayed)

    def _log_of(self, ledger: int, number: int) -> str:
        """Return the entry log of this id in which a bookie looks for entries of a ledger; "" if no directory has it."""
        places = self._tree.ledgers
        if self._tree.storage == tree.DB:
            places = [places[ledger % len(places)]]
        names = (f"{place.prefix}{number:x}.log" for place in places)
        return next((name for name in names if name in self._tree.sizes), "")

    def _locations(self) -> Generator[tuple[str, Fault], None, Locations | None]:
        """Return the locations of each ledger: file, entries, locations; None without an index. Yields faults of index files."""
        out: Locations = {}
        if self._tree.storage == tree.DB:
            if not rocks.available():
                text = "the index is a RocksDB database, which is not checked: the package rocksdict is not installed"
                yield "", Fault(NAME, 0, 0, Kind.LINK, text, Severity.INFO, "", 0)
                return None
            known: set[int] = set()
            for place in self._tree.indexes:
                try:
                    known |= rocks.read_ledgers(self._listing, f"{place.prefix}{tree.LEDGERS}/").keys()
                    by_ledger = rocks.read_locations(self._listing, f"{place.prefix}{tree.LOCATIONS}/")
                    keys = rocks.long_keys(self._listing, f"{place.prefix}{tree.LEDGERS}/")
                except JavaError as error:
                    text = f"the RocksDB index cannot be read: {error.message}"
                    yield (
                        "",
                        Fault(NAME, 0, 0, Kind.PAYLOAD, text, Severity.ERROR, "the bookie does not start", 0),
                    )
                    return None
                if keys:
                    text = f"ledger {keys[0]} has a key of 16 bytes in the database ledgers, as rebuild-db-ledgers-index writes it"
                    yield (
                        "",
                        Fault(
                            NAME,
                            0,
                            0,
                            Kind.LINK,
                            text,
                            Severity.WARNING,
                            "later changes of the ledger are lost at a restart",
                            0,
                        ),
                    )
                out |= {ledger: ("", *arrays) for ledger, arrays in by_ledger.items()}
            if out and not known:
                text = f"the database ledgers has no ledger, but locations has {count(len(out), 'ledger')}"
                yield "", Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, "the bookie knows no ledger", 0)
                return out
            return {ledger: own for ledger, own in out.items() if ledger in known}
        overlay = Overlay(self._listing)
        for ledger, name in self._tree.index_files.items():
            file = IndexFile(overlay, name, None, 8192, 600 << 20)
            try:
                file.open()
            except JavaError as error:
                system = f"the first access to the ledger fails: {error.name}: {error.message}"
                kind = Kind.TRUNCATED if self._tree.sizes[name] < 1024 else Kind.PAYLOAD
                text = f"the header of the index file cannot be read: {error.message or error.name}"
                yield (
                    name,
                    Fault(NAME, 0, min(1024, self._tree.sizes[name]), kind, text, Severity.ERROR, system, 0),
                )
                file.is_open = True
            else:
                yield from self._lac(ledger, name, file)
            stored = file.stored()
            entries = np.flatnonzero(stored)
            out[ledger] = name, entries, stored[entries]
        return out

    def _lac(self, ledger: int, name: str, file: IndexFile) -> Iterator[tuple[str, Fault]]:
        """Check the digest of the explicit last-add-confirmed in the header of an index file."""
        lac = file.lac
        password = None if self._passwords is None else self._passwords.of(ledger)
        if lac and not lac_matches(ledger, lac, len(lac) - LAC_SIZE, password):
            at = LAC_OFFSET + len(file.key or b"")
            text = "the digest of the explicit last-add-confirmed is wrong"
            system = f"a client cannot open ledger {ledger}"
            yield name, Fault(NAME, at, len(lac), Kind.PAYLOAD, text, Severity.ERROR, system, 0)

    def _resolve(
        self, log: tuple[Int64s, Int64s, Int64s, Int64s] | None, ledger: int, entries: Int64s, places: Int64s,
        shifts: list[int],
    ) -> Bools:  # fmt: skip
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
        self,
        logs: Mapping[str, tuple[Int64s, Int64s, Int64s, Int64s]],
        locations: Mapping[int, tuple[str, Int64s, Int64s]],
        replayed: Mapping[int, Int64s],
    ) -> Iterator[tuple[str, Fault]]:
        unknown: dict[int, str] = {}
        for name, (ledger, entry, _, _) in logs.items():
            for number, own in groups(ledger):
                if number not in locations:
                    unknown.setdefault(number, name)
                    continue
                ids, (file, entries, _) = entry[own], locations[number]
                missing = ids[~among(ids, entries)]
                if len(missing):
                    missing = np.setdiff1d(missing, replayed.get(number, np.empty(0, np.int64)))
                if len(missing):
                    text = f"the index lacks {count(len(missing), 'entry')} of ledger {number} in {name}, the first is {int(missing[0])}"
                    lost = {
                        "ledger_id": number,
                        "first_entry_id": int(missing[0]),
                        "last_entry_id": int(missing[-1]),
                    }
                    yield (
                        file,
                        Fault(
                            NAME,
                            0,
                            0,
                            Kind.LINK,
                            text,
                            Severity.ERROR,
                            "the bookie does not serve them",
                            0,
                            lost,
                        ),
                    )
        for number, name in sorted(unknown.items())[:_MOST]:
            if number in replayed:
                continue
            text = f"ledger {number} is not in the index: it was deleted, or its index is lost"
            system = "the bookie does not serve it, and garbage collection deletes its entries"
            severity = Severity.WARNING if locations else Severity.ERROR
            yield name, Fault(NAME, 0, 0, Kind.LINK, text, severity, system, 0, {"ledger_id": number})

    # Journals

    def _before_marks(
        self,
        logs: Mapping[str, tuple[Int64s, Int64s, Int64s, Int64s]],
        locations: Mapping[int, tuple[str, Int64s, Int64s]],
        replayed: Mapping[int, Int64s],
    ) -> Iterator[tuple[str, Fault]]:
        """Check that entries before lastMark are in entry logs, to which the bookie adds them before it writes the mark."""
        for i, place in enumerate(self._tree.journals):
            marked = dict(self._tree.marked(i))
            for _, name in self._tree.journal_files(place):
                stop = marked.get(name, self._tree.sizes[name])
                for ledger, entry, start in self._journals.get(name, JournalRecords()).entries:
                    data = np.flatnonzero((entry >= 0) & (start < stop))
                    for number, own in groups(ledger[data]):
                        if number not in locations:
                            continue  # It was deleted.
                        at = data[own]
                        for known in (locations[number][1], replayed.get(number, entry[:0])):
                            at = at[~among(entry[at], known)]
                        if len(at):
                            stored = [ids[ledgers == number] for ledgers, ids, _, _ in logs.values()]
                            at = at[~np.isin(entry[at], np.concatenate([entry[:0], *stored]))]
                        if len(at):
                            ids = entry[at]
                            text = f"no entry log has {count(len(ids), 'entry')} of ledger {number} before lastMark, the first is {int(ids[0])}"
                            lost = {
                                "ledger_id": number,
                                "first_entry_id": int(ids.min()),
                                "last_entry_id": int(ids.max()),
                            }
                            system = "the bookie does not replay them"
                            yield (
                                name,
                                Fault(
                                    NAME,
                                    int(start[at[0]]),
                                    0,
                                    Kind.LINK,
                                    text,
                                    Severity.ERROR,
                                    system,
                                    0,
                                    lost,
                                ),
                            )

    def _replayed(self) -> dict[int, Int64s]:
        """Return the entries in the part of the journals that the bookie replays, by ledger and in order."""
        out: dict[int, list[Int64s]] = {}
        for i in range(len(self._tree.journals)):
            for name, position in self._tree.marked(i):
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
                        if kind == KEY:
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
                            fault = Fault(
                                NAME, at, 0, Kind.LINK, text, Severity.ERROR, system, 0, {"ledger_id": number}
                            )
                            yield name, fault

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


def _known(options: Options) -> dict[str, object]:
    known = {option.name for option in (*tree.READ_OPTIONS, *tree.SETTINGS)}
    return {name: value for name, value in options.to_dict().items() if name in known and value is not None}
