"""Tables that the manifest has and the directory has not: what is known to be lost with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec.leveldb.check.table import TableCheck
from logwright.codec.leveldb.formats.table.entries import user_key
from logwright.codec.leveldb.keys import order, readable
from logwright.codec.leveldb.store.version import FileMetaData


def entries_at_most(
    last_sequence: int, missing: Iterable[FileMetaData], tables: Iterable[TableCheck], logged: int
) -> int | None:
    """The largest number of entries that are in none of the tables and logs that are there: each write has a sequence number of its own.

    None where entries share sequence numbers, as those of one bulk write do, and where there are more than numbers.
    """
    for known in missing:
        (low, tag), (high, other) = order(known.smallest), order(known.largest)
        if low != high and tag == other:
            return None
    seen, first = logged, 1
    for one in tables:
        if one.rows > one.high - one.low + 1 and one.rows:
            return None
        seen += one.rows
        # LevelDB begins with 1; rows that were written with their own numbers may have 0.
        first = min(first, one.low)
    return last_sequence + 1 - first - seen if seen < last_sequence else None


def lost_with(known: FileMetaData, entries: int | None) -> Mapping[str, Any]:
    """What is lost with a table, for reports. `entries` is an upper bound, of all missing tables together."""
    lost: dict[str, Any] = {
        "file": known.number,
        "smallest": readable(user_key(known.smallest)),
        "largest": readable(user_key(known.largest)),
        "bytes": known.size,
    }
    return lost if entries is None else {**lost, "entries_at_most": entries}


def describe(known: FileMetaData, level: int, entries: int | None, count: int) -> str:
    """One sentence on a missing table, of `count`."""
    bound = "" if entries is None else f"; at most {entries:,} entries"
    together = f" in the {count} missing tables together" if bound and count > 1 else ""
    low, high = (readable(user_key(key)) for key in (known.smallest, known.largest))
    return f"table {known.number} of level {level} is missing: {known.size:,} bytes, keys from {low} to {high}{bound}{together}"
