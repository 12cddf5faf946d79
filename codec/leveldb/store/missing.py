"""Tables that the manifest names but the directory lacks, or of which no entry is readable: what is known to be lost with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec import plural
from logwright.codec.frames.walk import ListedFile, good_frames, walk_listed
from logwright.codec.leveldb.check.table import TableCheck
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import key_range, order, readable, user_key
from logwright.codec.leveldb.names import FileType, parse
from logwright.codec.leveldb.store.version import FileMetaData, Version
from logwright.codec.store.listing import Entry, Listing


def renamed_tables(listing: Listing, version: Version, comparator: Comparator) -> dict[str, int]:
    """Return the files, with the numbers of the tables that they are, of tables in use that exist under another name only: a file of the same
    size, with the same first and last internal key. Sequence numbers make those keys unique."""
    sizes = {number: known.size for number, (_, known) in version.files.items()}
    right: dict[str, int] = {}
    for entry in listing.entries():
        named = parse(entry.name)
        if named is not None and named.type is FileType.TABLE and entry.size == sizes.get(named.number):
            right[entry.name] = named.number
    missing = {number: known for number, (_, known) in version.files.items() if number not in right.values()}
    renamed: dict[str, int] = {}
    for entry in listing.entries() if missing else ():
        if entry.name in right:
            continue
        for number, known in missing.items():
            if entry.size == known.size and _has_ends(listing, entry, known, comparator):
                renamed[entry.name] = number
                del missing[number]
                break
    return renamed


def _has_ends(listing: Listing, entry: Entry, known: FileMetaData, comparator: Comparator) -> bool:
    """Return whether a file begins and ends with the internal keys of a table."""
    read = ListedFile(listing, entry.name, entry.size)
    check = TableCheck(read, MAX_DECOMPRESSED.default, comparator)
    for window, frames in good_frames(walk_listed(listing, entry.name, entry.size, table.CODEC)):
        check.add(window, frames)
    return (check.smallest, check.largest) == (known.smallest, known.largest)


def max_missing_entries(
    last_sequence: int, gone: Iterable[FileMetaData], tables: Iterable[TableCheck], logged: int
) -> int | None:
    """Return the largest number of entries that can be in the tables that are gone, as each write has its own sequence number.

    Returns None if entries share sequence numbers, as those of one bulk write do, or if there are more entries than numbers.
    """
    for known in gone:
        (low, tag), (high, other) = order(known.smallest), order(known.largest)
        if low != high and tag == other:
            return None
    seen, first = logged, 1
    for check in tables:
        if check.rows > check.high - check.low + 1 and check.rows:
            return None
        seen += check.rows
        # LevelDB begins with 1. Rows written with their own numbers may have 0.
        first = min(first, check.low)
    return last_sequence + 1 - first - seen if seen < last_sequence else None


def loss_of(known: FileMetaData, entries: int | None) -> Mapping[str, Any]:
    """Return what is lost with a table, for reports. `entries` is an upper bound for all tables that are gone."""
    lost: dict[str, Any] = {
        "file": known.number,
        **key_range(user_key(known.smallest), user_key(known.largest)),
        "bytes": known.size,
    }
    return lost if entries is None else {**lost, "entries_at_most": entries}


def describe(
    known: FileMetaData, level: int, entries: int | None, count: int, *, missing: bool = True
) -> str:
    """Describe one of `count` tables that are gone. Unless it is `missing`, none of its entries is readable."""
    bound = "" if entries is None else f"; at most {plural.count(entries, 'entry')}"
    together = f" in all {count} lost tables together" if bound and count > 1 else ""
    low, high = (readable(user_key(key)) for key in (known.smallest, known.largest))
    why = "is missing" if missing else "has no readable entry"
    return f"table {known.number} of level {level} {why}: {known.size:,} bytes, keys {low}..{high}{bound}{together}"
