"""Repair a bookie, so that it starts and serves every undamaged entry.

Entry logs keep the positions of their entries, unless bytes of the header are missing: fillers replace damage, and the ledgers map is
rewritten. Damaged journals are rewritten from their undamaged records. Entries that exist only in a journal before lastMark or on another
bookie go to a new journal, from which the bookie adds them to its logs and its index. Index files that do not match the result are rebuilt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.bookkeeper.derive import LocationIndex, index_file, merged
from logwright.codec.bookkeeper.formats import cookie, digest, journal, smallfiles
from logwright.codec.bookkeeper.formats.digest import master_key
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import ledger_sizes, read_map
from logwright.codec.bookkeeper.formats.index import CODEC as INDEX_FILE
from logwright.codec.bookkeeper.formats.index import FENCED, NEWEST, SLOT, FileInfo, most_entries
from logwright.codec.bookkeeper.repair.cookies import replacements
from logwright.codec.bookkeeper.repair.databases import (
    Databases,
    are_located,
    complete_ledgers,
    database_files,
    true_locations,
)
from logwright.codec.bookkeeper.repair.log_files import repaired_journal, repaired_log
from logwright.codec.bookkeeper.repair.survey import LedgerState, Survey, SurveyedFile
from logwright.codec.bookkeeper.startup.entry_logger import LARGEST_POSITION, location_of
from logwright.codec.bookkeeper.startup.index_file import START
from logwright.codec.bookkeeper.startup.start import STARTUP
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.layout import LAYOUT, single_directory
from logwright.codec.bookkeeper.store.tree import Place
from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError, UnsupportedError, UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Option, Options
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan

OPTIONS: tuple[Option, ...] = (*tree.OPTIONS, *digest.OPTIONS)
INDEX, MAP = "index", "ledgersMap"
REBUILDS = (INDEX, MAP, tree.LAST_ID, tree.LAST_MARK)
_TEXT = 1 << 16
"""Bytes of a small file that are read to check it. Its first line counts."""
_NAMED = 5
"""Number of ledgers that a note names."""
_MISSING = 64
"""A larger gap between the ids of journals is not filled."""


class BookieRepair(Repairer):
    """The phases of a repair. The first copy is repaired, the others are donors."""

    one_copy: ClassVar[tuple[str, str]] = ("{} bookies were passed", "Strategy system takes one bookie")
    merges_copies: ClassVar[bool] = True

    surveys: Sequence[Survey]

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        return SystemRepair(STARTUP.run(listing, plan, options, version=None, clean=None), LAYOUT.order)

    def survey(self) -> None:
        self.surveys = [Survey(listing, self.options, copy) for copy, listing in enumerate(self.copies)]
        text, advice = single_directory(self.surveys[0].tree)
        if text:
            raise UsageError(
                f"{text}, so it cannot be repaired",
                path=self.surveys[0].listing.name,
                advice=f"{advice[0].upper()}{advice[1:]}",
            )
        flat = [place for place in self.surveys[0].tree.places.values() if place.flat]
        if flat:
            raise DamageError(
                f"{flat[0].name} has the layout of BookKeeper 4.0, without {tree.CURRENT}/: no later bookie starts on it",
                path=self.surveys[0].listing.name,
                advice="Upgrade it with BookKeeper's own tool first: bookkeeper upgrade --upgrade",
            )

    def reorder(self) -> None:
        """Check that the copies of an entry on different bookies agree. Files are already in order."""
        own = _lengths(self.surveys[0])
        for survey in self.surveys[1:]:
            other = _lengths(survey)
            both = np.concatenate((own, other))
            both = both[np.lexsort((both[:, 2], both[:, 1], both[:, 0]))]
            same = (both[1:, :2] == both[:-1, :2]).all(axis=1) & (both[1:, 2] != both[:-1, 2])
            if same.any():
                ledger, entry, _ = both[int(np.flatnonzero(same)[0])].tolist()
                raise UsageError(
                    f"the bookies have diverged: entry {entry} of ledger {ledger} is not the same on {survey.listing.name}",
                    advice="Pass bookies of one cluster",
                )

    def salvage(self) -> RepairPlan:
        return RepairedBookie(self.surveys, self.options)

    def go_back(self) -> RepairPlan:
        """End each entry log, and the journals of each directory, before the first damage. No other file fills the gap after it."""
        self.surveys[0].end_at_damage()
        return RepairedBookie(self.surveys, self.options)


def _lengths(survey: Survey) -> Int64s:
    """Return ledger, entry and length of all entries of a bookie."""
    blocks = [np.empty((0, 3), np.int64)]
    for file, i in survey.entries():
        blocks.append(np.stack((file.ledger[i], file.entry[i], file.length[i]), axis=1))
    return np.concatenate(blocks)


def absent(ids: Int64s, known: Int64s) -> Bools:
    """Return which rows (ledger, entry) are not among the known ones."""
    _, index = np.unique(np.concatenate((known, ids)), axis=0, return_inverse=True)
    index = index.reshape(-1)
    return ~np.isin(index[len(known) :], index[: len(known)])


def _first(ledger: Int64s, which: Bools) -> dict[int, int]:
    """Return the index of the first of some records of each ledger."""
    at = np.flatnonzero(which)
    ledgers, first = np.unique(ledger[at], return_index=True)
    return dict(zip(ledgers.tolist(), at[first].tolist(), strict=True))


class RepairedBookie(RepairPlan):
    """The repaired bookie."""

    def __init__(self, surveys: Sequence[Survey], options: Options) -> None:
        super().__init__(surveys[0].listing)
        self.survey, self.donors, self.options = surveys[0], surveys[1:], options
        self.tree = self.survey.tree
        self.is_db = self.tree.storage == tree.DB
        self.kept_logs: list[tuple[int, SurveyedFile]] = []
        self.replaced: set[str] = set()
        self.dropped: set[str] = set()
        self.keyed: set[int] = set()
        """The ledgers with a master key in the part of the journals that the bookie replays."""
        self.unkeyed: set[int] = set()
        """The ledgers with other records in that part, before the one with the master key. The bookie skips them if it has no index file."""
        self.fenced: set[int] = set()
        """The ledgers that the repair marks as fenced, because nothing tells whether they were."""
        self.made_files: dict[str, Sequence[Extent]] = {}
        self.moved: dict[str, str] = {}
        """The new names of entry logs that move to another ledger directory."""
        self._plan()

    def _plan(self) -> None:
        for number, file in self.survey.logs:
            self._plan_log(number, file)
        self._move_logs() if self.is_db else self._renumber_logs()
        marks = [self._plan_journals(i) for i in range(len(self.tree.journals))]
        self._plan_small_files()
        self._plan_names()
        have = self._recover(marks)
        if not self.is_db:
            self._plan_index()
        elif rocks.available():
            self._plan_databases()
        else:
            self.notes.append(
                "whether the RocksDB index is damaged is unknown: the package rocksdict is not installed"
            )
            self.before_you_start.append(
                "The RocksDB index is unchanged. If it is damaged, run: bookkeeper shell rebuild-db-ledger-locations-index."
            )
        self.rows = len(have)
        self._count_losses(have)

    # Entry logs

    def _plan_log(self, number: int, file: SurveyedFile) -> None:
        ledgers_map = read_map(ListedFile(self.listing, file.name, file.size).pread, file.size)
        fits = (
            ledgers_map is not None
            and not ledgers_map.error
            and (
                ledgers_map.version < 1  # which has no map
                or not ledgers_map.offset
                or dict(ledgers_map.sizes) == ledger_sizes(file.ledger, file.end - file.start)
            )
        )
        if not file.size or (file.header and not file.bad and fits):
            self.kept_logs.append((number, file))
            return
        self.cut += file.removed
        if not len(file.entry):
            self.cut.append(Removed(file.name, 0, file.size, "it has no undamaged entry", rows_lost=None))
            self.dropped.add(file.name)
            return
        self.kept_logs.append((number, file))
        self.made_files[file.name] = repaired_log(self.listing, file)

    def _move_logs(self) -> None:
        """Move the logs whose ledgers all belong to another ledger directory there, unless directories are exchanged."""
        places = self.tree.ledgers
        if not self.survey.databases or any(map(self._is_exchanged, self.survey.databases)):
            return
        targets: dict[int, Place] = {}
        for i, (_, file) in enumerate(self.kept_logs):
            owners = np.unique(file.ledger % len(places)).tolist()
            if len(owners) == 1 and not file.name.startswith(places[owners[0]].prefix):
                targets[i] = places[owners[0]]
        taken = {file.name for i, (_, file) in enumerate(self.kept_logs) if i not in targets}
        names = [self.kept_logs[i][1].name for i in targets]
        contents = {name: self.made_files.pop(name, [Copy(name, 0, self.sizes[name])]) for name in names}
        for i, place in targets.items():
            number, file = self.kept_logs[i]
            newest = int(last_id(self.tree, place), 16)
            while (name := f"{place.prefix}{number:x}.log") in taken:
                number = newest = max(number, newest) + 1
                self.made_files[f"{place.prefix}{tree.LAST_ID}"] = [f"{newest:x}\n".encode()]
            taken.add(name)
            self.made_files[name] = contents[file.name]
            self.moved[file.name] = name
            self.kept_logs[i] = number, file
            self.notes.append(f"{file.name} is moved to {name}, the directory of its ledgers")
        self.dropped |= {name for name in names if name not in taken}

    def _is_exchanged(self, database: Databases) -> bool:
        """Return whether no ledger of a database belongs to its directory."""
        count = len(self.tree.ledgers)
        return bool(database.ledgers) and all(
            ledger % count != database.number for ledger in database.ledgers
        )

    def _renumber_logs(self) -> None:
        """Give a log a new id if a directory before its own has a log of the same id, which hides it, and only it has some entries."""
        seen: dict[int, SurveyedFile] = {}
        newest = first = max((int(last_id(self.tree, place), 16) for place in self.tree.ledgers), default=0)
        for i, (number, file) in enumerate(self.kept_logs):
            if number not in seen:
                seen[number] = file
                continue
            others = [other for _, other in self.kept_logs if other is not file]
            known = np.concatenate([np.stack((other.ledger, other.entry), axis=1) for other in others])
            if not absent(np.stack((file.ledger, file.entry), axis=1), known).any():
                continue
            newest += 1
            name = f"{file.name.rpartition('/')[0]}/{newest:x}.log"
            self.made_files[name] = self.made_files.pop(file.name, [Copy(file.name, 0, file.size)])
            self.dropped.add(file.name)
            self.kept_logs[i] = newest, file
            self.notes.append(
                f"{file.name} is renamed to {newest:x}.log, because {seen[number].name} hides it"
            )
        if newest > first:
            for place in self.tree.ledgers:
                self.made_files[f"{place.prefix}{tree.LAST_ID}"] = [f"{newest:x}\n".encode()]

    # Journals

    def _plan_journals(self, i: int) -> tuple[int, int]:
        """Plan the journals of a directory, and return the mark of the result."""
        keys: dict[int, bytes] = {}
        place = self.tree.journals[i]
        kept: dict[int, SurveyedFile] = {}
        last = max((number for number, _ in self.survey.journals[i]), default=0)
        for number, file in self.survey.journals[i]:
            conflicts = self._damaged_records(file, keys)
            right = {at: record for at, (_, record) in conflicts.items() if record}
            complete = self.survey.replays(file, 0, self.options["Xmx"])
            if complete and not conflicts and not file.bad:
                kept[number] = file
                continue
            self.replaced.add(file.name)
            self.cut += file.removed
            good = np.setdiff1d(np.arange(len(file.entry)), list(conflicts.keys() - right.keys()))
            for at, (why, _) in conflicts.items():
                size = int(file.end[at] - file.start[at])
                self.cut.append(Removed(file.name, int(file.start[at]), size, why, rows_lost=0))
            if len(good):
                kept[number] = file
                self.made_files[file.name] = repaired_journal(file, good, right)
            elif kept and number < last:
                # Without the file a journal would be missing between two others.
                kept[number] = file
                self.made_files[file.name] = [journal.NEW_HEADER]
            else:
                self.dropped.add(file.name)
        mark = self._mark(i, kept)
        name = f"{tree.LAST_MARK}.{i}" if len(self.tree.journals) > 1 else tree.LAST_MARK
        for ledger_place in self.tree.ledgers:
            path = f"{ledger_place.prefix}{name}"
            if mark == (0, 0):
                if self.sizes.get(path) != 16 or any(self.listing.read(path, 0, 16)):
                    self.dropped |= {path} & self.sizes.keys()
            elif mark != self.tree.mark(i) or self.sizes.get(path, 16) != 16:
                self.made_files[path] = [b"".join(value.to_bytes(8, "big") for value in mark)]
        for before, after in pairwise(sorted(kept)):
            if after - before > _MISSING:
                self.notes.append(f"{place.prefix}: journals before {after:x}.txn are missing")
            elif after > before + 1:
                self.notes.append(
                    f"{place.prefix}: empty journals replace the missing ones before {after:x}.txn"
                )
                for number in range(before + 1, after):
                    self.made_files[f"{place.prefix}{number:x}.txn"] = [journal.NEW_HEADER]
        return mark

    def _mark(self, i: int, kept: Mapping[int, SurveyedFile]) -> tuple[int, int]:
        """Return the mark of a directory: the present one if the bookie can start from it, else one before the first journal."""
        identity, offset = self.tree.mark(i)
        if identity <= 0:
            return 0, 0
        file = kept.get(identity)
        sound = file is not None and file.name not in self.replaced and 0 <= offset <= file.size
        if (
            file is not None
            and sound
            and file.is_mark(offset)
            and self.survey.replays(file, offset, self.options["Xmx"])
        ):
            return identity, offset
        self.notes.append(
            f"lastMark was at {offset} of {identity:x}.txn; the bookie replays all journals instead"
        )
        return (min(kept), 0) if kept else (0, 0)

    def _damaged_records(self, file: SurveyedFile, keys: dict[int, bytes]) -> dict[int, tuple[str, bytes]]:
        """Return the records of a wrong master key or of an explicit last-add-confirmed with a wrong digest: the reason, and the right record
        if it is known. If it is unknown which key of a ledger is right, the first one counts."""
        out: dict[int, tuple[str, bytes]] = {}
        for i in np.flatnonzero(file.entry < 0).tolist():
            ledger, at = int(file.ledger[i]), int(file.start[i]) + 24
            data = self.listing.read(file.name, at, max(int(file.end[i]) - at, 0))
            if file.entry[i] == journal.MASTER_KEY:
                right = self.survey.keys.right(ledger)
                if right is not None and data != right:
                    out[i] = "the master key is damaged", journal.special_record(ledger, "master_key", right)
                elif keys.setdefault(ledger, data) != data:
                    out[i] = "it is a second master key of the ledger", b""
            elif file.entry[i] == journal.EXPLICIT_LAC and not self.survey.is_lac(ledger, data):
                out[i] = journal.WRONG_LAC, b""
        return out

    # Entries from elsewhere

    def _recover(self, marks: Sequence[tuple[int, int]]) -> Int64s:
        """Plan a journal of the entries that the result lacks, and return the ids of all entries of the result."""
        have = [np.empty((0, 2), np.int64)]
        have += [np.stack((file.ledger, file.entry), axis=1) for _, file in self.kept_logs]
        spare: list[tuple[int, SurveyedFile, Int64s]] = []
        replays: set[int] = set()
        for (identity, offset), files in zip(marks, self.survey.journals, strict=True):
            with_key: set[int] = set()
            for number, file in files:
                data = file.entry >= 0
                after = (number > identity) | ((number == identity) & (file.start >= offset))
                first_keys = _first(file.ledger, after & (file.entry == journal.MASTER_KEY))
                for ledger, at in _first(file.ledger, after & (file.entry != journal.MASTER_KEY)).items():
                    if ledger not in with_key and first_keys.get(ledger, at) >= at:
                        self.unkeyed.add(ledger)
                with_key |= first_keys.keys()
                replayed = data & after
                replays.update(file.ledger[replayed].tolist())
                have.append(np.stack((file.ledger[replayed], file.entry[replayed]), axis=1))
                spare.append((0, file, np.flatnonzero(data & ~replayed)))
            self.keyed |= with_key
        known = np.unique(np.concatenate(have), axis=0)
        ledgers = {*self.survey.ledgers, *known[:, 0].tolist()}
        indexed = self._indexed_ledgers() or ledgers
        if not self.is_db:
            # A ledger with entries in a log gets an index file again, so all of its entries are served.
            indexed = indexed.union(*(file.ledger.tolist() for _, file in self.kept_logs))
        # So is one whose entries are replayed with a master key.
        indexed = indexed.union(ledger for ledger in replays if ledger in self.keyed or self._key(ledger))
        for donor in self.donors:
            spare += [(donor.copy, file, i) for file, i in donor.entries()]
        missing: dict[int, list[Copy]] = {}
        for copy, file, i in spare:
            ids = np.stack((file.ledger[i], file.entry[i]), axis=1)
            allowed = list(ledgers if copy else indexed)
            mask = np.isin(ids[:, 0], np.array(allowed, np.int64)) & absent(ids, known)
            for k in i[mask].tolist():
                frame = Copy(file.name, int(file.start[k]), int(file.end[k]), copy)
                missing.setdefault(int(file.ledger[k]), []).append(frame)
            known = np.unique(np.concatenate((known, ids[mask])), axis=0)
        if missing:
            self._add_journal(missing)
        return known

    def _indexed_ledgers(self) -> set[int]:
        """Return the ledgers in the index. Others may have been deleted. The set is empty if the index cannot be read."""
        if not self.is_db:
            return set(self.survey.index)
        if any(tree.LEDGERS in database.damaged for database in self.survey.databases):
            return set()
        return {ledger for database in self.survey.databases for ledger in database.ledgers}

    def _add_journal(self, missing: Mapping[int, Sequence[Copy]]) -> None:
        pieces: list[Extent] = [journal.NEW_HEADER]
        for ledger, frames in sorted(missing.items()):
            pieces += [journal.special_record(ledger, "master_key", self._key(ledger)), *frames]
        place = self.tree.journals[0]
        newest = max((number for number, _ in self.tree.journal_files(place)), default=0)
        self.made_files[f"{place.prefix}{newest + 1:x}.txn"] = [
            *pieces,
            journal.padding(sum(map(len, pieces))),
        ]
        count = sum(map(len, missing.values()))
        self.notes.append(
            f"the bookie adds {plural.count(count, 'entry')} that the entry logs lack but other files have, from journal {newest + 1:x}.txn"
        )

    def _key(self, ledger: int) -> bytes:
        """Return the master key of a ledger: from a journal or the index of any bookie, else from the password."""
        states = (survey.ledgers.get(ledger, LedgerState()) for survey in (self.survey, *self.donors))
        key = next((state.key for state in states if state.key), None)
        if key is not None:
            return key
        password = None if self.options["passwd"] is None else self.options["passwd"].of(ledger)
        return b"" if password is None else master_key(password)

    # The index

    def _plan_index(self) -> None:
        """Rebuild the index files that do not have exactly the entries of the result."""
        index = self._locations_in("")
        places = index.ledgers()
        in_logs = index.joined()
        ledgers = {*places, *self.survey.ledgers, *self.unkeyed}
        unknown = [
            ledger
            for ledger in sorted(self.unkeyed - places.keys())
            if ledger not in self.tree.index_files and not self._key(ledger)
        ]
        if unknown:
            self.notes.append(
                f"the master key of {plural.count(len(unknown), 'ledger')} is unknown, the first is {unknown[0]}: the bookie skips their "
                "records in the journals. The repair computes a key from the password: pass the option passwd (--passwd env:NAME)"
            )
        for ledger in sorted(ledgers):
            if ledger >= 0:
                self._plan_index_file(ledger, *places.get(ledger, (np.empty(0, np.int64),) * 2), in_logs)
        self._note_fenced()

    def _note_fenced(self) -> None:
        if self.fenced:
            shown = ", ".join(map(str, sorted(self.fenced)[:_NAMED]))
            more = f" and {len(self.fenced) - _NAMED:,} more" if len(self.fenced) > _NAMED else ""
            self.notes.append(
                f"fenced, since whether they were is unknown: {'ledger' if len(self.fenced) == 1 else 'ledgers'} {shown}{more}. Clients can "
                "read, but a writer gets LedgerFencedException and has to continue in a new ledger"
            )

    def _plan_index_file(
        self, ledger: int, entries: Int64s, locations: Int64s, in_logs: tuple[Int64s, Int64s, Int64s]
    ) -> None:
        state = self.survey.ledgers.get(ledger, LedgerState())
        name = self.tree.index_files.get(ledger)
        stored, stored_locations = self.survey.index.get(ledger, (np.empty(0, np.int64),) * 2)
        good = are_located(ledger, stored, stored_locations, in_logs)
        lac, header_lac = (
            buffer if buffer and self.survey.is_lac(ledger, buffer) else b""
            for buffer in (state.lac, state.header_lac)
        )
        headed = (
            state.headed
            and header_lac == (state.header_lac or b"")
            and state.header_key in (b"", self.survey.keys.right(ledger) or state.header_key)
        )
        page = self.options["pageSize"]
        room = most_entries(page)
        size = 0 if name is None else self.sizes[name]
        unread = size > INDEX_FILE.largest
        if unread and len(entries) and entries[-1] >= room:
            raise UnsupportedError(
                f"the index file has {size} bytes, at most {INDEX_FILE.largest} are read and written, and entry {int(entries[-1])} "
                f"of ledger {ledger} needs more",
                path=name,
                advice="Read the entries from the entry logs: codec=bookkeeper.entrylog",
            )
        if name is not None and headed and good.all() and not unread:
            full = size > START and (size - START) % (self.tree.index_page or SLOT) == 0
            if full and not len(np.setdiff1d(entries, stored)):
                return
        if name is None and not len(entries) and (ledger not in self.unkeyed or not self._key(ledger)):
            return  # the bookie creates it from the journal, or cannot
        if name is None and len(entries):
            self.notes.append(
                f"the index file of ledger {ledger} is rebuilt; if the ledger was deleted, the bookie deletes it again"
            )
        if name is not None and headed and self.sizes[name] >= START:
            header = self.listing.read(name, 0, START)
        else:
            if not state.headed and not state.fenced:
                self.fenced.add(ledger)
            fenced = FENCED if state.fenced or ledger in self.fenced else 0
            header = FileInfo(NEWEST, self._key(ledger), fenced, lac).form()
        name = name or f"{self.tree.indexes[0].prefix}{tree.index_path(ledger)}"
        every, places = merged(stored[good], stored_locations[good], entries, locations)
        if len(every) and every[-1] >= room:
            self.notes.append(
                f"entry {int(every[-1])} of ledger {ledger} is in no index file, which has room for entries up to {room - 1} here: the bookie "
                "does not serve it"
            )
            every, places = every[every < room], places[every < room]
        self.made_files[name] = list(index_file(header, every, places, page))

    def _plan_databases(self) -> None:
        """Rebuild the databases of DbLedgerStorage that are damaged or do not match the result."""
        count = len(self.tree.ledgers)
        for database in self.survey.databases:
            if self._is_exchanged(database):
                self.notes.append(
                    f"{database.place.prefix}: no ledger in it belongs there; the ledger directories are probably configured in the wrong order"
                )
            index = self._locations_in(database.place.prefix)
            seen = {*index.ledgers(), *self.survey.ledgers}
            known = set(database.ledgers)
            corrected = [self._correct(ledger, data) for ledger, data in database.ledgers.items()]
            if complete_ledgers(database, seen, self._key, count) or any(corrected):
                self.fenced |= database.ledgers.keys() - known
                self._put_database(database.folder(tree.LEDGERS), rocks.written_ledgers(database.ledgers))
            locations, differs = true_locations(database, index)
            if differs and (locations or database.locations):
                self._put_database(database.folder(tree.LOCATIONS), rocks.written_locations(locations))
        self._note_fenced()

    def _correct(self, ledger: int, data: rocks.LedgerData) -> bool:
        """Correct a damaged master key and remove a wrong explicit last-add-confirmed, and return whether there was one."""
        right = self.survey.keys.right(ledger) if any(data.key) else None
        key, lac = data.key, data.lac
        data.key = right or key
        data.lac = lac if lac and self.survey.is_lac(ledger, lac) else None
        return (data.key, data.lac or b"") != (key, lac or b"")

    def _locations_in(self, prefix: str) -> LocationIndex:
        """Return the locations of all entries in the logs of a directory. Of logs with the same id the first one counts."""
        index, seen = LocationIndex(), set[int]()
        for number, file in self.kept_logs:
            if number not in seen and self.moved.get(file.name, file.name).startswith(prefix):
                seen.add(number)
                index.add(file.ledger, file.entry, location_of(number, 0) + file.start + file.shift + 4)
        return index

    def _put_database(self, folder: str, files: Iterator[tuple[str, bytes]]) -> None:
        self.dropped |= {name for name in self.sizes if name.startswith(folder)}
        self.made_files |= database_files(folder, files)
        self.notes.append(f"the RocksDB database {folder.rstrip('/')} is rebuilt")

    # Small files and names

    def _plan_small_files(self) -> None:
        cookies, unknown = replacements(self.tree)
        self.made_files |= {name: [data] for name, data in cookies.items()}
        self.notes += [unknown] if unknown else []
        for place in self.tree.places.values():
            name = f"{place.prefix}{tree.VERSION}"
            if name not in cookies and self._is_unreadable(name, cookie.CODEC):
                self._drop(name, "no bookie can read this cookie, and no other directory has a valid one")
        for place in self.tree.ledgers:
            name = f"{place.prefix}{tree.LAST_MARK}"
            if not self.tree.journals and self._is_unreadable(name, smallfiles.LAST_MARK):
                self._drop(name, "it is no position in a journal")
            name = f"{place.prefix}{tree.LAST_ID}"
            if self._is_unreadable(name, smallfiles.LAST_ID):
                self.made_files[name] = [last_id(self.tree, place)]
            name = f"{place.prefix}{tree.STATUS}"
            if self._is_unreadable(name, smallfiles.STATUS):
                self._drop(name, "the bookie cannot read this status; without the file it starts writable")

    def _is_unreadable(self, name: str, codec: SmallFileCodec) -> bool:
        """Return whether there is such a file, and it is too large or cannot be parsed."""
        if name in self.sizes:
            if self.sizes[name] > codec.largest:
                return True
            try:
                codec.parse(self.listing.read(name, 0, min(self.sizes[name], _TEXT)))
            except ParseError:
                return True
        return False

    def _plan_names(self) -> None:
        """Drop the files whose names keep a bookie from starting, and index files at paths that no bookie reads."""
        places = self.tree.places.values()
        for place in places:
            for file in self.tree.files(place):
                number, _, extension = file.rpartition(".")
                digits = number != "" and all(c in "0123456789abcdefABCDEF" for c in number)
                if (extension == "txn" and tree.journal_id(file) is None) or (
                    extension == "log" and digits and len(number) > 8
                ):
                    self._drop(f"{place.prefix}{file}", "a bookie does not start with a file of this name")
        if not self.is_db:
            used = set(self.tree.index_files.values())
            for name in self.sizes:
                inside = any(name.startswith(place.prefix) for place in self.tree.indexes)
                if inside and name.endswith(".idx") and name not in used:
                    self._drop(name, "no bookie reads an index file at this path")

    def _drop(self, name: str, why: str) -> None:
        self.dropped.add(name)
        self.cut.append(Removed(name, 0, self.sizes[name], why, rows_lost=0))

    def _count_losses(self, have: Int64s) -> None:
        """Complete the removed ranges. Entries that exist in other files are not lost.

        A range of unknown entries loses nothing if the index lists all entries and the result has these. Donors prove less: any bookie may
        have had an entry that no other one has.
        """
        listed = [
            np.stack((np.full(len(entries), ledger), entries), axis=1)
            for ledger, (entries, _) in self.survey.index.items()
        ]
        lost = np.concatenate([np.empty((0, 2), np.int64), *listed])
        lost = lost[absent(lost, have)]
        for ledger in np.unique(lost[:, 0]).tolist():
            entries = lost[lost[:, 0] == ledger][:, 1]
            low, high = int(entries.min()), int(entries.max())
            self.notes.append(
                f"lost {plural.count(len(entries), 'entry')} of ledger {ledger} that the index lists: "
                f"{low if low == high else f'{low} to {high}'}"
            )
        known = set(map(tuple, have.tolist())) if any(removed.lost for removed in self.cut) else set()
        listed_all = bool(self.survey.index) and not len(lost)
        for i, removed in enumerate(self.cut):
            first = (removed.lost.get("ledger_id"), removed.lost.get("first_entry_id"))
            # The index need not list the entries that a bookie would add from the journals.
            flushed = removed.offset + removed.length <= self.tree.replayed.get(removed.file, 1 << 63)
            if first in known or (removed.rows_lost is None and listed_all and flushed):
                self.cut[i] = replace(removed, rows_lost=0, lost={})

    def outputs(self) -> Iterator[OutputFile]:
        names = [name for name in self.sizes if name not in self.dropped and name not in self.made_files]
        for name in LAYOUT.order([*names, *self.made_files]):
            if name in self.made_files:
                pieces = self.made_files[name]
                yield OutputFile(name, pieces, name if name in self.sizes else None)
            else:
                yield self.unchanged(name)


def last_id(bookie: tree.Tree, place: tree.Place) -> bytes:
    """Return the content of lastId: the id of the newest entry log, or the stored one if it is larger."""
    name = f"{place.prefix}{tree.LAST_ID}"
    newest = [
        number for number, log in bookie.logs if bookie.storage != tree.DB or log.startswith(place.prefix)
    ]
    if name in bookie.sizes:
        with contextlib.suppress(ValueError):
            newest.append(int(bookie.listing.read(name, 0, 64).decode("latin-1").strip(), 16))
    return f"{max([0, *(number for number in newest if number < LARGEST_POSITION)]):x}\n".encode()


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. The index of all ledgers is rebuilt from the entry logs in one pass."""
    repair = BookieRepair([listing], [plan], options).prepared()
    survey = repair.surveys[0]
    for _, file in survey.logs:
        if file.removed:
            first = file.removed[0]
            raise DamageError(
                "the entry log is damaged; index and ledgers map can only be rebuilt from undamaged logs",
                path=first.file, offset=first.offset, advice="Repair the bookie instead",
            )  # fmt: skip
    rebuilt: dict[str, Sequence[Extent]] = {}
    dropped: list[str] = []
    if MAP in kinds:
        rebuilt |= {file.name: repaired_log(listing, file) for _, file in survey.logs if len(file.entry)}
    result = RepairedBookie(repair.surveys, options)
    planned, result.made_files, result.notes = result.made_files, {}, []
    if tree.LAST_MARK in kinds:
        marks = [name for name in planned if tree.mark_index(name.rpartition("/")[2]) is not None]
        rebuilt |= {name: planned[name] for name in marks}
    if tree.LAST_ID in kinds:
        rebuilt |= {
            f"{place.prefix}{tree.LAST_ID}": [last_id(survey.tree, place)]
            for place in survey.tree.ledgers
            if survey.logs
        }
    if INDEX in kinds:
        if result.is_db:
            rocks.require()
            for database in survey.databases:
                if tree.LEDGERS in database.damaged:
                    raise DamageError(
                        "the RocksDB database ledgers is damaged or missing",
                        path=database.folder(tree.LEDGERS), advice="Repair the bookie instead",
                    )  # fmt: skip
                database.locations = {}
                locations, _ = true_locations(database, result._locations_in(database.place.prefix))
                result._put_database(database.folder(tree.LOCATIONS), rocks.written_locations(locations))
            dropped = [name for name in result.sizes if f"/{tree.LOCATIONS}/" in name]
        else:
            survey.index = {}
            result._plan_index()
        rebuilt |= result.made_files
    out = Rebuild(listing, rebuilt, dropped)
    out.notes = result.notes
    out.rows = sum(len(file.entry) for _, file in survey.logs)
    return out
