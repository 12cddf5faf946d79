"""Tables that the manifest names but the directory lacks, or of which no entry is readable: what is known to be lost with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec import plural
from logwright.codec.leveldb.check.table import TableCheck
from logwright.codec.leveldb.keys import key_range, order, readable, user_key
from logwright.codec.leveldb.store.version import FileMetaData


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
    for table in tables:
        if table.rows > table.high - table.low + 1 and table.rows:
            return None
        seen += table.rows
        # LevelDB begins with 1. Rows written with their own numbers may have 0.
        first = min(first, table.low)
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
