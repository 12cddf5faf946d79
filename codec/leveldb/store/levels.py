"""At which level tables may lie, so that what is there stays what it is and LevelDB finds nothing to compact.

Source: `VersionSet::Finalize` and `Version::PickLevelForMemTableOutput` in `db/version_set.cc`, `db/dbformat.h` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.formats.manifest.layout import LEVELS
from logwright.codec.leveldb.keys import TRAILER_SIZE
from logwright.codec.leveldb.store.version import FileMetaData

COMPACTION_TRIGGER = 4
"""`config::kL0_CompactionTrigger`: with so many tables at level 0 they are compacted."""
LARGEST = 1 << 30
"""The largest table that LevelDB makes of a memtable (`write_buffer_size`): of one at level 0."""

Levels = Sequence[Sequence[FileMetaData]]


def most_bytes(level: int) -> float:
    """The bytes from which on a level below 0 is compacted (`MaxBytesForLevel`). The last one never is."""
    return 10.0 * (1 << 20) * 10 ** (level - 1) if level < LEVELS - 1 else float("inf")


def user_key(internal: bytes) -> bytes:
    """An internal key without sequence number and type (`ExtractUserKey`)."""
    return internal[:-TRAILER_SIZE]


def free(levels: Levels, first: bytes, last: bytes, order: Comparator = BYTEWISE_COMPARATOR) -> range:
    """The levels below 0 at which entries of user keys from `first` to `last` may lie that are newer than all that is there. Both
    are what the keys are sorted by (`Comparator.user`).

    A newer entry must not lie deeper than an older one of its key, so they can't pass what they overlap.
    """
    for level, files in enumerate(levels):
        if any(
            first <= order.user(user_key(one.largest)) and order.user(user_key(one.smallest)) <= last
            for one in files
        ):
            return range(1, level)
    return range(1, LEVELS)


def level_of(levels: Levels, files: Sequence[FileMetaData], order: Comparator = BYTEWISE_COMPARATOR) -> int:
    """The level for tables that are in order, disjoint, and newer than what is there: the first below 0 that has room for them,
    or 0 where they overlap what is there."""
    first, last = (order.user(user_key(key)) for key in (files[0].smallest, files[-1].largest))
    possible = free(levels, first, last, order)
    total = sum(one.size for one in files)
    roomy = (at for at in possible if sum(one.size for one in levels[at]) + total < most_bytes(at))
    return next(roomy, max(possible, default=0))
