"""Write a bookie from rows: entry logs, index files or RocksDB databases, a journal, lastMark, lastId and cookies.

The entries go to entry logs and the index. The journal has the master keys of the ledgers, and the entries too if `journalWriteData` is
set; lastMark is at its end, so a bookie replays nothing.
Source: `DefaultEntryLogger`, `EntryLogManagerForSingleEntryLog`, `Journal`, `Cookie` of BookKeeper.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.bookkeeper.derive import LocationIndex, index_file, merged
from logwright.codec.bookkeeper.formats import digest, journal
from logwright.codec.bookkeeper.formats.cookie import NEWEST
from logwright.codec.bookkeeper.formats.digest import Passwords, master_key
from logwright.codec.bookkeeper.formats.entries import EntryWriter
from logwright.codec.bookkeeper.formats.entrylog.codec import CODEC as LOG
from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER_SIZE
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import ledger_sizes, log_header, map_bytes
from logwright.codec.bookkeeper.formats.index import FileInfo, most_entries
from logwright.codec.bookkeeper.startup.bookie import Bookie
from logwright.codec.bookkeeper.startup.cookie import Cookie, joined
from logwright.codec.bookkeeper.startup.entry_logger import LARGEST_POSITION, location_of
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import START
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.tree import Place, Tree
from logwright.codec.columns import distinct, gather
from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options, parse_bool, parse_choice, parse_text
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Chunk, Zeros

WRITE_JOURNAL = Option("journalWriteData", False, "Whether entries are written to a journal too", parse_bool)
JOURNAL_SIZE = Option("journalMaxSizeMB", 2048, "Size in MiB at which a journal is rolled", low=1)
BOOKIE_ID = Option("bookieId", "127.0.0.1:3181", "The bookie's id in the cookies", parse_text)
DUPLICATES = Option(
    "on_duplicate", "error", "Entries that occur twice: error, or last to index the last one", parse_choice, choices=("error", "last"),
)  # fmt: skip
OPTIONS = (
    *tree.ROOTS, tree.STORAGE, tree.PAGE_SIZE, tree.LOG_SIZE, tree.INSTANCE, WRITE_JOURNAL, JOURNAL_SIZE, BOOKIE_ID, DUPLICATES,
    *digest.OPTIONS,
)  # fmt: skip


class _NewPlaces:
    """The directories of a new bookie: those that options name, else `journal` and `ledger` below the own directory."""

    def __init__(self, name: str, options: Options) -> None:
        kinds = [tree.root_keys(options, option) for option in tree.ROOTS]
        if any(kinds):
            own = tree.own_root(options, name)
            paths = [[("" if key == own else key, path) for key, path in kind] for kind in kinds]
            if own is None:
                raise UsageError(
                    "the target is not one of the configured directories",
                    advice=f"Write to the first directory of {tree.LEDGER_DIRS.name}",
                )
        else:
            paths = [[("journal", "journal")], [("ledger", "ledger")], []]
        journals, ledgers, indexes = (
            [
                (Place(path, f"{key}/{tree.CURRENT}/" if key else f"{tree.CURRENT}/"), path)
                for key, path in kind
            ]
            for kind in paths
        )
        if not journals or not ledgers:
            raise UsageError(
                "a bookie has journal and ledger directories",
                advice=f"Pass both {tree.JOURNALS.name} and {tree.LEDGER_DIRS.name}, or neither",
            )
        self.journals = [place for place, _ in journals]
        self.ledgers = [place for place, _ in ledgers]
        self.indexes = [place for place, _ in indexes] or self.ledgers
        self.cookie = Cookie(
            NEWEST, options[BOOKIE_ID.name], ",".join(path for _, path in journals), joined([path for _, path in ledgers]),
            options[tree.INSTANCE.name], joined([path for _, path in indexes]) if indexes else None,
        )  # fmt: skip


class _LogWriter:
    """Writes the entry logs of one directory. `id` is that of the newest log, -1 before the first one."""

    def __init__(self, place: Place, limit: int, newest: int = -1) -> None:
        self.place, self.limit, self.id = place, limit, newest
        self.index = LocationIndex()
        self._at, self._sizes = 0, Counter[int]()

    @property
    def _name(self) -> str:
        return f"{self.place.prefix}{self.id:x}.log"

    def add(self, ledger: Int64s, entry: Int64s, data: Bytes, starts: Int64s) -> Iterator[Piece]:
        """Add entries, which start at `starts` in `data`; the last start is the end of the last entry."""
        at = 0
        while at < len(ledger):
            if self._at == 0 or self._at + int(starts[at + 1] - starts[at]) > self.limit:
                yield from self._roll()
            stop = int(np.searchsorted(starts, starts[at] + self.limit - self._at, "right")) - 1
            stop = max(stop, at + 1)
            position = self._at + starts[at:stop] - starts[at] + 4
            if int(position[-1]) > LARGEST_POSITION:
                raise UsageError(
                    f"entry {int(entry[stop - 1])} of ledger {int(ledger[stop - 1])} does not fit into an entry log"
                )
            self.index.add(ledger[at:stop], entry[at:stop], location_of(self.id, 0) + position)
            sizes = np.diff(starts[at : stop + 1])
            self._sizes.update(ledger_sizes(ledger[at:stop], sizes))
            yield Piece(self._name, data[int(starts[at]) : int(starts[stop])])
            self._at += int(starts[stop] - starts[at])
            at = stop

    def _roll(self) -> Iterator[Piece]:
        yield from self.close()
        self.id += 1
        if self.id >= LARGEST_POSITION:
            raise UsageError("the ids of entry logs are used up")
        self._at, self._sizes = HEADER_SIZE, Counter()
        yield Piece(self._name, log_header())

    def close(self) -> Iterator[Piece]:
        """Finish the open log with its ledgers map."""
        if self._at:
            yield Piece(self._name, map_bytes(self._sizes))
            yield Piece(self._name, log_header(self._at, len(self._sizes)), done=True, offset=0)
            self._at = 0


def _frames(data: Bytes, starts: Int64s, chosen: Int64s) -> tuple[Bytes, Int64s]:
    """Return the selected frames in `data`, where each starts, and where the last one ends."""
    if len(chosen) == len(starts) - 1:
        return data, starts
    sizes = np.diff(starts)[chosen]
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    out = np.empty(int(ends[-1]), np.uint8)
    gather(data, starts[chosen], sizes, np.empty(len(ends), np.int32), out)
    return out, ends


def _pieces(folder: str, files: Iterator[tuple[str, bytes]]) -> Iterator[Piece]:
    """Return the files of a database."""
    for name, chunks in itertools.groupby(files, operator.itemgetter(0)):
        yield from (Piece(f"{folder}{name}", chunk) for _, chunk in chunks)
        yield Piece(f"{folder}{name}", b"", done=True)


class BookieBuilder:
    """Writes a new bookie, or the files that an append changes. See `codec.store.build.Builder`."""

    def __init__(self, listing: Listing | None, name: str, options: Options) -> None:
        self.listing, self.options = listing, options
        self.is_db = options[tree.STORAGE.name] == tree.DB
        if self.is_db:
            rocks.require()
        self.passwords: Passwords | None = options["passwd"]
        self.writer = EntryWriter(LOG.name, self.passwords, options["digestType"])
        self.page_size, self.limit = options["pageSize"], min(options["logSizeLimit"], LARGEST_POSITION)
        self.rows = 0
        self.journal, self.journal_at = 0, 0
        self.keyed: set[int] = set()
        self.before: dict[int, tuple[Int64s, Int64s]] = {}
        self.cookie: Cookie | None = None
        if listing is None:
            new = _NewPlaces(name, options)
            self.journals, self.ledgers, self.indexes = new.journals, new.ledgers, new.indexes
            self.cookie = new.cookie
            if self.is_db and len(self.indexes) != len(self.ledgers):
                raise UsageError(
                    f"{len(self.indexes)} index directories and {len(self.ledgers)} ledger directories",
                    advice="With DbLedgerStorage each ledger directory has its own index directory",
                )
            places = self.ledgers if self.is_db else self.ledgers[:1]
            self.logs = [_LogWriter(place, self.limit) for place in places]
        else:
            self._resume(listing)

    def _resume(self, listing: Listing) -> None:
        """Continue an existing bookie. Raises `UsageError` if a bookie would not continue it unchanged."""
        passed = self.options.passed(option for option in tree.OPTIONS if option is not tree.BOOKIE_ID)
        existing = Tree(listing, Options(tree.OPTIONS, passed))
        passed.pop(tree.STORAGE.name, None)
        stored = Tree(listing, Options(tree.OPTIONS, passed)).storage
        self.is_db = existing.storage == tree.DB
        if existing.logs and self.is_db != (stored == tree.DB):
            raise UsageError(
                f"the bookie has the index of {stored}, not of {existing.storage}",
                advice=f"Omit {tree.STORAGE.name}",
            )
        if self.is_db:
            rocks.require()
        bookie = Bookie(Overlay(listing), existing, existing.options)
        try:
            bookie.start()
        except JavaError as error:
            raise UsageError(
                f"a bookie does not start on it: {error.name}: {error.message}", advice="Repair it first"
            ) from None
        if bookie.replayed:
            raise UsageError(
                f"a bookie would replay {bookie.replayed} entries of its journals",
                advice="Start and stop the bookie first",
            )
        self.journals, self.ledgers, self.indexes = existing.journals, existing.ledgers, existing.indexes
        self.existing, self.storage = existing, bookie.storage
        places = existing.ledgers if self.is_db else existing.ledgers[:1]
        self.logs = [
            _LogWriter(place, self.limit, bookie.storage.logger(i).last_id) for i, place in enumerate(places)
        ]
        self.journal = max(
            (i for place in existing.journals for i, _ in existing.journal_files(place)), default=0
        )

    # Entry logs

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if not rows.num_rows:
            return
        batch = LOG.complete(pa.Table.from_batches([rows]))
        ledger = np.asarray(batch["ledger_id"].fill_null(-1), np.int64)
        entry = np.asarray(batch["entry_id"].fill_null(-1), np.int64)
        if self.listing is not None:
            for number in np.unique(ledger).tolist():
                self._known(number)
        data, starts = self.writer.write(batch)
        yield from self._journal(ledger, data, starts)
        for number, log in enumerate(self.logs):
            own = (
                np.arange(len(ledger))
                if len(self.logs) == 1
                else np.flatnonzero(ledger % len(self.logs) == number)
            )
            yield from log.add(ledger[own], entry[own], *_frames(data, starts, own))
        self.rows += batch.num_rows

    def _known(self, ledger: int) -> None:
        """Load the entries of a ledger in an existing bookie, and the bytes of its payloads so far."""
        if self.listing is None or ledger in self.before:
            return
        if ledger not in self.storage.ledgers():
            self.before[ledger] = np.empty(0, np.int64), np.empty(0, np.int64)
            return
        name = self.existing.index_files.get(ledger)
        if name and (self.existing.sizes[name] - START) % self.page_size:
            raise UsageError(
                f"{name} does not consist of pages of {self.page_size} bytes",
                advice="Pass the pageSize of the bookie",
            )
        entries, locations = self.before[ledger] = self.storage.entries(ledger)
        if self.storage.fenced(ledger):
            raise UsageError(f"ledger {ledger} is fenced: a bookie adds no entries to it")
        if len(entries):
            content = self.storage.read(ledger, int(entries[-1]), int(locations[-1]))
            self.writer.totals.setdefault(ledger, int.from_bytes(content[24:32], "big"))

    # The journal

    @property
    def _journal_name(self) -> str:
        return f"{self.journals[0].prefix}{self.journal:x}.txn"

    def _key(self, ledger: int) -> bytes:
        password = None if self.passwords is None else self.passwords.of(ledger)
        return master_key(password or b"")

    def _journal(self, ledger: Int64s, data: Bytes, starts: Int64s) -> Iterator[Piece]:
        if self.journal_at > self.options[JOURNAL_SIZE.name] << 20:
            yield from self._close_journal()
        if not self.journal_at:
            self.journal += 1
            yield from self._record(journal.NEW_HEADER)
        at = 0
        with_data = self.options[WRITE_JOURNAL.name]
        ledgers, group = distinct(ledger)
        new = [i for i, number in enumerate(ledgers) if number not in self.keyed]
        firsts = np.unique(group, return_index=True)[1] if new else group
        for number, i in ((ledgers[i], int(firsts[i])) for i in new):
            self.keyed.add(number)
            if with_data:
                yield from self._record(data[int(starts[at]) : int(starts[i])])
                at = i
            yield from self._record(journal.special_record(number, "master_key", self._key(number)))
        if with_data:
            yield from self._record(data[int(starts[at]) :])

    def _record(self, data: Chunk) -> Iterator[Piece]:
        self.journal_at += len(data)
        if len(data):
            yield Piece(self._journal_name, data)

    def _close_journal(self) -> Iterator[Piece]:
        yield from self._record(journal.padding(self.journal_at))
        yield Piece(self._journal_name, b"", done=True)
        self.mark = (self.journal, self.journal_at)
        self.journal_at = 0

    # The other files

    def finish(self) -> Iterator[Piece]:
        for log in self.logs:
            repeated = log.index.repeated()
            if repeated is not None and self.options[DUPLICATES.name] == "error":
                raise UsageError(
                    f"ledger {repeated[0]} has two entries {repeated[1]}",
                    advice="Pass on_duplicate=last to index the last one",
                )
            yield from log.close()
        if self.is_db:
            yield from self._databases()
        else:
            for ledger, (entries, locations) in self.logs[0].index.ledgers().items():
                yield from self._index(ledger, entries, locations)
        if self.rows:
            yield from self._close_journal()
            name = f"{tree.LAST_MARK}.0" if len(self.journals) > 1 else tree.LAST_MARK
            mark = b"".join(value.to_bytes(8, "big") for value in self.mark)
            for number, place in enumerate(self.ledgers):
                newest = self.logs[number % len(self.logs)].id
                if newest >= 0:
                    yield Piece(f"{place.prefix}{tree.LAST_ID}", f"{newest:x}\n".encode(), done=True)
                yield Piece(f"{place.prefix}{name}", mark, done=True)
        if self.cookie is not None:
            places = {place.prefix for place in (*self.journals, *self.ledgers, *self.indexes)}
            for prefix in sorted(places):
                yield Piece(f"{prefix}{tree.VERSION}", self.cookie.text().encode(), done=True)

    def _databases(self) -> Iterator[Piece]:
        """Write the RocksDB databases of each ledger directory, or what an append changes in them."""
        for log, place in zip(self.logs, self.indexes, strict=True):
            index = log.index.ledgers()
            if not index:
                continue
            for ledger, (entries, _) in index.items():
                self._refuse_known(ledger, entries)
            known = set() if self.listing is None else set(self.storage.ledgers())
            new = {ledger: rocks.LedgerData(self._key(ledger)) for ledger in index if ledger not in known}
            folder = f"{place.prefix}{tree.LOCATIONS}/"
            yield from _pieces(folder, rocks.written_locations(index, self._base(folder)))
            folder = f"{place.prefix}{tree.LEDGERS}/"
            if new:
                yield from _pieces(folder, rocks.written_ledgers(new, self._base(folder)))

    def _base(self, folder: str) -> rocks.Base:
        return None if self.listing is None else (self.listing, folder)

    def _refuse_known(self, ledger: int, entries: Int64s) -> None:
        """Raise `UsageError` for entries that the bookie has, unless the new ones replace them."""
        if ledger not in self.before or self.options[DUPLICATES.name] != "error":
            return
        known, _ = self.before[ledger]
        both = known[np.isin(known, entries)]
        if len(both):
            raise UsageError(
                f"ledger {ledger} already has entry {int(both[0])}",
                advice="Pass on_duplicate=last to replace it in the index",
            )

    def _index(self, ledger: int, entries: Int64s, locations: Int64s) -> Iterator[Piece]:
        if ledger in self.before:
            self._refuse_known(ledger, entries)
            entries, locations = merged(entries, locations, *self.before[ledger])
        old = None if self.listing is None else self.existing.index_files.get(ledger)
        if len(entries) and entries[-1] >= most_entries(self.page_size):
            raise UsageError(
                f"entry_id of ledger {ledger} is {int(entries[-1])}, expected at most {most_entries(self.page_size) - 1} in an index file",
                advice="Pass ledgerStorageClass=DbLedgerStorage, whose index is a database",
            )
        header = FileInfo(master_key=self._key(ledger)).form()
        if old is not None and self.listing is not None:
            header = self.listing.read(old, 0, START)
        name = old or f"{self.indexes[0].prefix}{tree.index_path(ledger)}"
        for chunk in index_file(header, entries, locations, self.page_size):
            yield Piece(name, chunk)
        yield Piece(name, Zeros(0), done=True)

    def summary(self) -> Summary:
        ledgers = sorted(ledger for log in self.logs for ledger in log.index.ledgers())
        ids = {"first_ledger_id": ledgers[0], "last_ledger_id": ledgers[-1]} if ledgers else {}
        steps: list[str] = []
        if self.cookie is not None:
            if not self.cookie.instance:
                steps.append(
                    "Add the cluster's instanceId to the VERSION files (bookkeeper shell whatisinstanceid), or pass the option instanceId."
                )
            steps += (
                f"Configure the bookie with journalDirectories={self.cookie.journals} and the same ledger directories as in VERSION, "
                f"and store the cookie: bookkeeper shell cookie_create -cf VERSION {self.cookie.host}.",
                "Create the metadata of the ledgers before the first garbage collection, which deletes ledgers without metadata.",
            )
        return Summary(self.rows, ids, before_you_start=tuple(steps))
