"""Find entries that the index of a bookie proves to have existed, and whose entry log is missing or too short.

A bookie deletes the index of a ledger before the entry logs without other ledgers, and changes the index before it deletes a log that it
has compacted. So each location is in an entry log, unless the bookie was killed and adds the entry again from a journal.

A read calls this, so its cost has a bound: of many ledgers some are looked at, and of a long index file its two ends. A check looks at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import START
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.known import known_ledgers
from logwright.codec.bookkeeper.store.stored import entries_of
from logwright.codec.bookkeeper.store.tree import Place, Tree
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity
from logwright.codec.option import Options
from logwright.codec.plural import count

NAME = "bookkeeper.bookie"
_MOST_LEDGERS = 1000
_END = 64 << 10
"""Bytes at each end of an index file that are read."""
_MOST_BYTES = 4 << 20
"""The size of the largest RocksDB database that is read although the directory has entry logs."""
_HEAD = 20
"""Bytes of the size and the ids of an entry."""
_AGREE = 3
"""Number of locations that prove what a single damaged one does not."""

Location = tuple[int, int, int]
"""Ledger, entry and location."""


def missing_entries(bookie: Tree, options: Options) -> Iterator[tuple[str, Fault]]:
    """Yield a fault for each entry log that is missing, or ends before entries that the index has in it.

    An index directory that is opened without ledger directories says nothing of their logs.
    """
    if not bookie.ledgers:
        return
    unresolved: dict[tuple[str, int, str], list[Location]] = {}
    last: dict[tuple[str, int, str], Location] = {}
    """The last entry of each log by the index."""
    for places, ledger, entries, locations in _indexes(bookie):
        for number in np.unique(locations >> 32).tolist():
            names = (f"{place.prefix}{number:x}.log" for place in places)
            name = next((name for name in names if name in bookie.sizes), "")
            inside = (locations >> 32 == number) & ((locations & 0xFFFFFFFF) - 4 <= bookie.sizes.get(name, 0))
            if name and inside.any():
                key, i = (places[0].prefix, number, name), int(np.argmax(np.where(inside, locations, -1)))
                entry = ledger, int(entries[i]), int(locations[i])
                last[key] = max(last.get(key, entry), entry, key=lambda location: location[2])
            outside = (locations >> 32 == number) & ((locations & 0xFFFFFFFF) >= bookie.sizes.get(name, 0))
            if outside.any():
                pairs = zip(entries[outside].tolist(), locations[outside].tolist(), strict=True)
                log = unresolved.setdefault((places[0].prefix, number, name), [])
                log += [(ledger, entry, location) for entry, location in pairs]
    torn = {key: location for key, location in last.items() if _is_torn(bookie, key[2], location)}
    for key, location in torn.items():
        unresolved[key] = list(dict.fromkeys([location, *unresolved.get(key, ())]))
    replayed = _replayed(bookie, options) if unresolved else set()
    for (prefix, number, name), outside_log in sorted(unresolved.items()):
        lost = [location for location in outside_log if location[:2] not in replayed]
        allocated = not name and 0 <= number <= _newest(bookie, prefix)
        if len(lost) >= (1 if allocated or torn.get((prefix, number, name)) in lost else _AGREE):
            yield name, _fault(f"{number & (1 << 64) - 1:x}.log", name, lost)


def _is_torn(bookie: Tree, name: str, last: Location) -> bool:
    """Return whether a log ends inside the entry at a location, which is the last one in the index, or at its start."""
    ledger, entry, location = last
    at, size = (location & 0xFFFFFFFF) - 4, bookie.sizes[name]
    if not 0 <= at <= size:
        return False
    head = bookie.listing.read(name, at, min(_HEAD, size - at))
    bounds = (0, 4), (4, 12), (12, _HEAD)
    length, *ids = (int.from_bytes(head[start:stop], "big", signed=True) for start, stop in bounds)
    return len(head) < _HEAD or (ids == [ledger, entry] and at + 4 + length > size)


def _fault(log: str, name: str, lost: Sequence[Location]) -> Fault:
    ledger, entry, location = lost[0]
    entries, first = count(len(lost), "entry"), f"the first is entry {entry} of ledger {ledger}"
    text = f"entry log {log} is missing; the index has {entries} in it, {first}"
    if name:
        text = f"the log ends before the end of entries in the index: of {entries}, {first} at {location & 0xFFFFFFFF}"
    return Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, "the bookie does not serve them")


def _newest(bookie: Tree, prefix: str) -> int:
    """Return the id of the newest entry log of a directory; the largest number if it has no log."""
    ids = [number for number, name in bookie.logs if bookie.storage != tree.DB or name.startswith(prefix)]
    if ids:
        with contextlib.suppress(LogwrightError, ValueError, KeyError):
            ids.append(int(bookie.listing.read(f"{prefix}{tree.LAST_ID}", 0, 64).decode("latin-1"), 16))
    return max(ids, default=1 << 31)


def _indexes(bookie: Tree) -> Iterator[tuple[Sequence[Place], int, Int64s, Int64s]]:
    """Yield the directories with the logs of a ledger, the ledger, and its entries and locations. Unreadable indexes are left out."""
    if bookie.storage == tree.DB:
        yield from _databases(bookie)
        return
    files = list(bookie.index_files.items())
    for i in np.unique(
        np.linspace(0, len(files) - 1, min(len(files), _MOST_LEDGERS), dtype=np.int64)
    ).tolist():
        ledger, name = files[i]
        slots = max(bookie.sizes[name] - START, 0) // 8
        head = min(slots, _END // 8)
        for first in dict.fromkeys((0, max(slots - head, head))):
            try:
                data = bookie.listing.read(name, START + 8 * first, 8 * min(head, slots - first))
            except LogwrightError:
                continue
            stored = np.frombuffer(data[: len(data) // 8 * 8], ">i8").astype(np.int64)
            used = np.flatnonzero(stored)
            if len(used):
                yield bookie.ledgers, ledger, used + first, stored[used]


def _databases(bookie: Tree) -> Iterator[tuple[Sequence[Place], int, Int64s, Int64s]]:
    if not rocks.available() or len(bookie.indexes) != len(bookie.ledgers):
        return
    for index, place in zip(bookie.indexes, bookie.ledgers, strict=True):
        folder = f"{index.prefix}{tree.LOCATIONS}/"
        size = sum(size for name, size in bookie.sizes.items() if name.startswith(folder))
        if size > _MOST_BYTES and any(name.startswith(place.prefix) for _, name in bookie.logs):
            continue
        try:
            known = rocks.read_ledgers(bookie.listing, f"{index.prefix}{tree.LEDGERS}/")
            located = rocks.read_locations(bookie.listing, folder) if known else {}
        except JavaError:
            continue
        yield from (([place], ledger, *arrays) for ledger, arrays in located.items() if ledger in known)


def _replayed(bookie: Tree, options: Options) -> set[tuple[int, int]]:
    """Return the entries that the bookie adds again from its journals: ledger and entry."""
    out: set[tuple[int, int]] = set()
    known = known_ledgers(bookie)
    for name, position in bookie.replayed.items():
        for stored in entries_of(bookie.listing, name, bookie.sizes[name], journal.CODEC, options, known):
            data = (stored.entry >= 0) & (stored.start >= position)
            out.update(zip(stored.ledger[data].tolist(), stored.entry[data].tolist(), strict=True))
    return out
