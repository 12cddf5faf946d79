"""Choose levels for new tables such that older entries stay hidden and LevelDB finds nothing to compact.

Source: `VersionSet::Finalize` and `Version::PickLevelForMemTableOutput` in `db/version_set.cc`, `db/dbformat.h` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.formats.manifest.layout import LEVELS
from logwright.codec.leveldb.keys import user_key
from logwright.codec.leveldb.store.version import FileMetaData

COMPACTION_TRIGGER = 4
"""`config::kL0_CompactionTrigger`: the number of tables at which level 0 is compacted."""
LARGEST = 1 << 30
"""Size limit of a table at level 0. LevelDB's largest memtable (`write_buffer_size`) has as many bytes."""

Levels = Sequence[Sequence[FileMetaData]]


def max_bytes_for_level(level: int) -> float:
    """Return the size at which a level below 0 is compacted (`MaxBytesForLevel`). The last level never is."""
    return 10.0 * (1 << 20) * 10 ** (level - 1) if level < LEVELS - 1 else float("inf")


def free_levels(levels: Levels, first: bytes, last: bytes, order: Comparator = BYTEWISE_COMPARATOR) -> range:
    """Return the levels below 0 that entries with sort keys (`Comparator.user`) from `first` to `last` may be placed at, if they are
    newer than all existing ones.

    A newer entry must not be deeper than an older one of its key, so they cannot move below tables that they overlap.
    """
    for level, files in enumerate(levels):
        if any(
            first <= order.user(user_key(file.largest)) and order.user(user_key(file.smallest)) <= last
            for file in files
        ):
            return range(1, level)
    return range(1, LEVELS)


def level_of(levels: Levels, files: Sequence[FileMetaData], order: Comparator = BYTEWISE_COMPARATOR) -> int:
    """Return the level for tables that are in order, disjoint, and newer than the existing ones: the first level below 0 with room for
    them, or 0 if they overlap existing tables."""
    first, last = (order.user(user_key(key)) for key in (files[0].smallest, files[-1].largest))
    possible = free_levels(levels, first, last, order)
    total = sum(file.size for file in files)
    roomy = (at for at in possible if sum(file.size for file in levels[at]) + total < max_bytes_for_level(at))
    return next(roomy, max(possible, default=0))
