"""The ledgers that a bookie knows, and contexts for reading its files with them.

A record of a journal without a matching CRC may be garbage. It is an entry if its ledger is in the index, or if a journal of the bookie has
the ledger's master key: the bookie writes it before the first entry, perhaps to an earlier journal.

The only entry of a ledger in a file does not show the digest type of the ledger if it is damaged. Entries in other files do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.formats.digest import HEADER, matching_digest
from logwright.codec.bookkeeper.formats.entries import REACH
from logwright.codec.bookkeeper.formats.index import HEADER_SIZE, SLOT, FileInfo
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.bookkeeper.store.tree import DB, LEDGERS, LOCATIONS, Tree, log_id
from logwright.codec.fault import LogwrightError
from logwright.codec.frames.codec import FramedCodec
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.specification import CERTAIN
from logwright.codec.frames.walk import good_frames, walk_listed
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window

Locations = dict[int, tuple[Int64s, Int64s]]
"""The entries of each ledger, and their locations."""
_TRIED = 16
"""Number of entries of a ledger that are read for their digest type."""
_INDEX_READ = 1 << 20
_WHOLE = 64 << 20
"""The size of all index files up to which they are read to find out which entry is at a place."""
_BLOCK = 1 << 12
"""Number of locations of an index file that are read at a time."""


class KnownLedgers:
    """The ledgers with an index or a master key. Journals are read at the first question that the index files do not answer.

    `keys` are the master keys of the ledgers outside of index files, if they were read already.
    """

    def __init__(self, keys: Mapping[int, frozenset[bytes]], bookie: Tree | None = None) -> None:
        self._keys, self._bookie = dict(keys), bookie
        self._place = None if bookie is None else (bookie.listing, bookie.options)
        """The files that `crc_size` reads, also in another process."""
        self._tree = bookie
        self._sizes: dict[int, int | None] = {}
        """The results of `crc_size`."""
        self._in_journals: dict[int, int] | None = None
        """The sizes of the CRCs in the journals by ledger, once they are needed."""
        self._by_location: dict[int, tuple[Int64s, Int64s, Int64s]] = {}
        """The results of `by_location`, by the number of the directory."""
        self._databases: dict[str, Locations] = {}
        """The databases of locations that were read, by folder."""
        self._index_files = {} if bookie is None else bookie.index_files
        self._listing = None if bookie is None else bookie.listing

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._index_files or ledger in self._all()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownLedgers) and self._all() == other._all()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, ({**dict.fromkeys(self._index_files, frozenset()), **self._all()}, self._place)

    def master_keys(self, ledger: int) -> frozenset[bytes]:
        """Return the master keys of a ledger in its index and in the journals; more than one if one of them is damaged."""
        keys = self._all().get(ledger, frozenset())
        if self._listing is None or ledger not in self._index_files:
            return keys
        head = self._listing.read(self._index_files[ledger], 0, HEADER_SIZE)
        return keys | ({FileInfo.of(head).master_key} - {b""})

    def crc_size(self, ledger: int) -> int | None:
        """Return the size of the CRC that entries of a ledger have, by some entries that the index or a journal has; None without one."""
        if ledger not in self._sizes:
            self._sizes[ledger] = next(self._crc_sizes(ledger), None)
        return self._sizes[ledger]

    def in_file(self, name: str) -> LedgersOfFile:
        """Return the ledgers for reading one file."""
        return LedgersOfFile(self, name)

    @property
    def tree(self) -> Tree | None:
        """The files of the bookie; None if they are not known."""
        if self._tree is None and self._place is not None:
            self._tree = Tree(*self._place)
        return self._tree

    def locations(self, ledger: int, entries: Int64s) -> Int64s:
        """Return the locations that the index has of entries of a ledger, 0 of others."""
        out = np.zeros(len(entries), np.int64)
        if self.tree is None:
            return out
        name = self.tree.index_files.get(ledger)
        if name is not None:
            inside = np.flatnonzero(
                (entries >= 0) & (entries < max(self.tree.sizes[name] - HEADER_SIZE, 0) // SLOT)
            )
            blocks = entries[inside] // _BLOCK
            for block in np.unique(blocks).tolist():
                with contextlib.suppress(LogwrightError):
                    data = self.tree.listing.read(name, HEADER_SIZE + block * _BLOCK * SLOT, _BLOCK * SLOT)
                    slots = np.frombuffer(data[: len(data) // SLOT * SLOT], ">i8")
                    own = inside[blocks == block]
                    out[own] = slots[entries[own] - block * _BLOCK]
        elif self.tree.storage == DB and rocks.available() and self.tree.ledgers:
            number = ledger % len(self.tree.ledgers)
            known, places = _database(self.tree, number, self._databases).get(ledger, (out[:0], out[:0]))
            if len(known):
                at = np.minimum(np.searchsorted(known, entries), len(known) - 1)
                out = np.where(known[at] == entries, places[at], 0)
        return out

    def by_location(self, name: str) -> tuple[Int64s, Int64s, Int64s]:
        """Return the locations in the index that a bookie looks up in the ledger directory of an entry log, in order, and the ledger and the
        entry of each. A large index, which would take much memory, counts as empty."""
        tree = self.tree
        is_db = tree is not None and tree.storage == DB
        places = [] if tree is None or not is_db else tree.ledgers
        number = next((i for i, place in enumerate(places) if name.startswith(place.prefix)), 0)
        if number not in self._by_location:
            known: Iterable[tuple[int, tuple[Int64s, Int64s]]] = ()
            if tree is not None and is_db and rocks.available():
                known = _database(tree, number, self._databases).items()
            elif (
                tree is not None
                and not is_db
                and sum(tree.sizes[file] for file in tree.index_files.values()) <= _WHOLE
            ):
                known = _index_locations(tree)
            blocks = [np.empty((3, 0), np.int64)]
            blocks += [np.stack((at, np.full(len(at), ledger), ids)) for ledger, (ids, at) in known]
            joined = np.concatenate(blocks, axis=1)
            locations, ledgers, ids = joined[:, np.argsort(joined[0], kind="stable")]
            self._by_location[number] = locations, ledgers, ids
        return self._by_location[number]

    def log_of(self, ledger: int, number: int) -> str:
        """Return the entry log of this id in which a bookie looks for entries of a ledger; "" if no directory has it."""
        return "" if self.tree is None else self.tree.log_of(ledger, number)

    def _crc_sizes(self, ledger: int) -> Iterator[int]:
        bookie = self.tree
        if bookie is None:
            return
        indexed = False
        for name, at in _places(bookie, ledger, self._databases):
            if 4 <= at < bookie.sizes[name]:
                indexed = True
                head = bookie.listing.read(name, at - 4, 4)
                size = min(int.from_bytes(head, "big"), REACH, bookie.sizes[name] - at)
                entry = bookie.listing.read(name, at, size)
                if int.from_bytes(entry[:8], "big", signed=True) == ledger and len(entry) >= HEADER:
                    crc = int(matching_digest(np.frombuffer(entry, np.uint8), 0, len(entry)))
                    yield from [crc] if crc else []
        if not indexed:
            if self._in_journals is None:
                self._in_journals = _journal_sizes(bookie)
            if ledger in self._in_journals:
                yield self._in_journals[ledger]

    def _all(self) -> dict[int, frozenset[bytes]]:
        bookie, self._bookie = self._bookie, None
        if bookie is not None:
            for ledger, key in (*_in_database(bookie), *_in_journals(bookie)):
                self._keys[ledger] = self._keys.get(ledger, frozenset()) | {key}
        return self._keys


@dataclass(frozen=True)
class LedgersOfFile:
    """The ledgers of a bookie, and the places of their entries in one of its files. See `digest.StoredLedgers`."""

    bookie: KnownLedgers
    name: str

    def __contains__(self, ledger: object) -> bool:
        return ledger in self.bookie

    def master_keys(self, ledger: int) -> frozenset[bytes]:
        return self.bookie.master_keys(ledger)

    def crc_size(self, ledger: int) -> int | None:
        return self.bookie.crc_size(ledger)

    def positions(self, ledger: int, entries: Int64s) -> Int64s:
        locations = self.bookie.locations(ledger, entries)
        number = log_id(self.name.rpartition("/")[2])
        if number is None or not locations.any() or self.bookie.log_of(ledger, number) != self.name:
            return np.full(len(entries), -1)
        return np.where(locations >> 32 == number, (locations & 0xFFFFFFFF) - 4, -1)

    def entry_at(self, position: int) -> tuple[int, int] | None:
        number = log_id(self.name.rpartition("/")[2])
        if number is None:
            return None
        locations, ledgers, entries = self.bookie.by_location(self.name)
        first, last = np.searchsorted(locations, (number << 32 | position + 4) + np.arange(2)).tolist()
        return (int(ledgers[first]), int(entries[first])) if last == first + 1 else None

    def is_wrong(self, ledger: int, entry: int) -> bool:
        location = int(self.bookie.locations(ledger, np.array([entry]))[0])
        tree, name = self.bookie.tree, self.bookie.log_of(ledger, location >> 32)
        if not location or tree is None:
            return False
        if not name:
            return True
        with contextlib.suppress(LogwrightError):
            ids = tree.listing.read(name, location & 0xFFFFFFFF, 16)
            return ids != ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")
        return True


def _restored(keys: Mapping[int, frozenset[bytes]], place: tuple[Listing, Options] | None) -> KnownLedgers:
    known = KnownLedgers(keys)
    known._place = place
    return known


def known_ledgers(bookie: Tree) -> KnownLedgers:
    """Return the ledgers that a bookie knows."""
    return KnownLedgers({}, bookie)


def _in_database(bookie: Tree) -> Iterator[tuple[int, bytes]]:
    if bookie.storage != DB or not rocks.available():
        return
    with contextlib.suppress(JavaError):
        for place in bookie.indexes:
            for ledger, data in rocks.read_ledgers(bookie.listing, f"{place.prefix}{LEDGERS}/").items():
                yield ledger, data.key


def _in_journals(bookie: Tree) -> Iterator[tuple[int, bytes]]:
    for window, frames in _journal_frames(bookie):
        head = frames.header
        keys = (head["frame_kind"] == MAIN) & (head["entry_id"] == journal.MASTER_KEY)
        for i in np.flatnonzero(keys).tolist():
            record = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
            yield int(head["ledger_id"][i]), record[journal.IDS + 4 :]


def _journal_frames(bookie: Tree, *, check: bool = False) -> Iterator[tuple[Window, Frames]]:
    for name in bookie.all_journals:
        yield from good_frames(
            walk_listed(bookie.listing, name, bookie.sizes[name], journal.CODEC, check=check)
        )


def _journal_sizes(bookie: Tree) -> dict[int, int]:
    """Return the size of the CRC that entries in the journals have, by ledger."""
    out: dict[int, int] = {}
    for _, frames in _journal_frames(bookie, check=True):
        head = frames.header
        sizes = head["verdict"].astype(np.int64) - CERTAIN
        matched = (head["frame_kind"] == MAIN) & (sizes > 0)
        ledgers, first = np.unique(head["ledger_id"][matched], return_index=True)
        for ledger, size in zip(ledgers.tolist(), sizes[matched][first].tolist(), strict=True):
            out.setdefault(ledger, size)
    return out


def _places(bookie: Tree, ledger: int, databases: dict[str, Locations]) -> Iterator[tuple[str, int]]:
    """Yield some places of a ledger's entries by the index, the first and the last one among them: the entry log, and the position."""
    for prefix, locations in _locations(bookie, ledger, databases):
        logs = {identity: name for identity, name in bookie.logs if name.startswith(prefix)}
        chosen = np.linspace(0, len(locations) - 1, min(len(locations), _TRIED)).astype(np.int64)
        for location in locations[chosen].tolist():
            name = logs.get(location >> 32)
            if name is not None:
                yield name, location & 0xFFFFFFFF


def _locations(bookie: Tree, ledger: int, databases: dict[str, Locations]) -> Iterator[tuple[str, Int64s]]:
    """Yield the locations of a ledger's entries, and the start of the names of the logs that they are in."""
    name = bookie.index_files.get(ledger)
    if name is not None:
        size = min(max(bookie.sizes[name] - HEADER_SIZE, 0), _INDEX_READ)
        data = bookie.listing.read(name, HEADER_SIZE, size)
        locations = np.frombuffer(data, ">i8", len(data) // 8).astype(np.int64)
        yield "", locations[locations > 0]
    if bookie.storage == DB and rocks.available():
        for i, place in enumerate(bookie.ledgers):
            locations_of = _database(bookie, i, databases)
            if ledger in locations_of:
                yield place.prefix, locations_of[ledger][1]


def _index_locations(bookie: Tree) -> Iterator[tuple[int, tuple[Int64s, Int64s]]]:
    """Yield each ledger with an index file, and the entries and locations in it."""
    for ledger, name in bookie.index_files.items():
        with contextlib.suppress(LogwrightError):
            data = bookie.listing.read(name, HEADER_SIZE, max(bookie.sizes[name] - HEADER_SIZE, 0))
            stored = np.frombuffer(data[: len(data) // SLOT * SLOT], ">i8").astype(np.int64)
            entries = np.flatnonzero(stored)
            yield ledger, (entries, stored[entries])


def _database(bookie: Tree, number: int, databases: dict[str, Locations]) -> Locations:
    """Return the locations in the database of a ledger directory. One that cannot be read is empty."""
    folder = f"{bookie.indexes[min(number, len(bookie.indexes) - 1)].prefix}{LOCATIONS}/"
    if folder not in databases:
        databases[folder] = {}
        with contextlib.suppress(JavaError):
            databases[folder] = rocks.read_locations(bookie.listing, folder)
    return databases[folder]


def context_of(codec: FramedCodec, name: str, options: Options, known: KnownLedgers) -> Any:
    """Return the context for reading an entry log or a journal of a bookie."""
    return codec.context(name.rpartition("/")[2], options.only(codec.options), ledgers=known.in_file(name))
