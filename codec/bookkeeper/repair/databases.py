"""Rebuild the RocksDB databases of DbLedgerStorage that are damaged or do not match the entry logs.

Each ledger directory has its own entry logs and databases. `locations` has the entries of the ledgers in `ledgers` only, since entries of
deleted ledgers stay in the logs until these are compacted.
Source: `LocationsIndexRebuildOp`, `LedgersIndexRebuildOp` of BookKeeper.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.bookkeeper.derive import LocationIndex, merged
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.rocks import LedgerData
from logwright.codec.bookkeeper.store.tree import Place, Tree
from logwright.codec.store.listing import Listing

Locations = dict[int, tuple[Int64s, Int64s]]
"""Entries and locations by ledger, in order."""
_NOTHING = np.empty(0, np.int64), np.empty(0, np.int64)


@dataclass
class Databases:
    """The databases of one ledger directory. `damaged` are the names of those that are missing or that RocksDB cannot read.

    The rows of a damaged database are those that RocksDB's own repair saves.
    """

    number: int
    place: Place
    """The directory of the entry logs."""
    index: Place
    ledgers: dict[int, LedgerData] = field(default_factory=dict)
    locations: Locations = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    long_keys: bool = False
    """Whether `ledgers` has keys of 16 bytes, which hide later changes: BookKeeper's own `rebuild-db-ledgers-index` writes them."""

    def folder(self, name: str) -> str:
        return f"{self.index.prefix}{name}/"


def databases_of(listing: Listing, bookie: Tree) -> list[Databases]:
    """Read the databases of each ledger directory."""
    out = []
    for number, place in enumerate(bookie.ledgers):
        databases = Databases(number, place, bookie.indexes[min(number, len(bookie.indexes) - 1)])
        for name in (tree.LEDGERS, tree.LOCATIONS):
            read = rocks.read_ledgers if name == tree.LEDGERS else rocks.read_locations
            folder = databases.folder(name)
            try:
                setattr(databases, name, read(listing, folder))
                if not any(path.startswith(folder) for path in bookie.sizes):
                    databases.damaged.add(name)
            except JavaError:
                databases.damaged.add(name)
                with contextlib.suppress(JavaError):
                    setattr(databases, name, read(listing, folder, repaired=True))
        if tree.LEDGERS not in databases.damaged:
            databases.long_keys = bool(rocks.long_keys(listing, databases.folder(tree.LEDGERS)))
        out.append(databases)
    if any(databases.locations for databases in out) and not any(databases.ledgers for databases in out):
        # RocksDB reads a database whose log has lost its first block as an empty one.
        for databases in out:
            databases.damaged.add(tree.LEDGERS)
    return out


def complete_ledgers(
    databases: Databases, seen: Iterable[int], key: Callable[[int], bytes], count: int
) -> bool:
    """Add the ledgers of a directory that a damaged database `ledgers` lacks, and return whether it has to be written.

    `seen` are the ledgers of entry logs and journals, `count` the number of ledger directories. Whether they were fenced is not known, so
    they are marked as fenced, as `rebuild-db-ledgers-index` does: no client continues them.
    """
    if tree.LEDGERS in databases.damaged:
        for ledger in {*seen, *databases.locations}:
            if ledger >= 0 and ledger % count == databases.number and ledger not in databases.ledgers:
                databases.ledgers[ledger] = LedgerData(key(ledger), fenced=True)
    return databases.long_keys or (tree.LEDGERS in databases.damaged and bool(databases.ledgers))


def true_locations(databases: Databases, index: LocationIndex) -> tuple[Locations, bool]:
    """Return the locations of all entries of known ledgers, and whether the database has others or lacks some.

    `index` are the entries in the logs of the directory. Where an entry has several copies, the location in the database wins.
    """
    ledgers, ids, places = index.joined()
    by_ledger = index.ledgers()
    out: Locations = {}
    differs = tree.LOCATIONS in databases.damaged
    for ledger in sorted(databases.ledgers):
        entries, locations = by_ledger.get(ledger, _NOTHING)
        stored, stored_locations = databases.locations.get(ledger, _NOTHING)
        good = are_located(ledger, stored, stored_locations, (ledgers, ids, places))
        differs |= not np.isin(entries, stored[good]).all() or not good.all()
        both = merged(stored[good], stored_locations[good], entries, locations)
        if len(both[0]):
            out[ledger] = both
    return out, differs


def are_located(
    ledger: int, entries: Int64s, locations: Int64s, in_logs: tuple[Int64s, Int64s, Int64s]
) -> Bools:
    """Return which stored locations are correct. `in_logs` are ledger, entry and location of all entries in the logs, by location."""
    ledgers, ids, places = in_logs
    if not len(places):
        return np.zeros(len(entries), np.bool_)
    at = np.minimum(np.searchsorted(places, locations), len(places) - 1)
    good: Bools = (places[at] == locations) & (ledgers[at] == ledger) & (ids[at] == entries)
    return good


def database_files(folder: str, files: Iterator[tuple[str, bytes]]) -> Mapping[str, Sequence[bytes]]:
    """Return the files of a new database by path."""
    by_name = itertools.groupby(files, operator.itemgetter(0))
    return {f"{folder}{name}": [chunk for _, chunk in chunks] for name, chunks in by_name}
