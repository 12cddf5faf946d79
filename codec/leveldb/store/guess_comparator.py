"""Guess the comparator of tables without a manifest: the known one that their keys are ordered by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.leveldb import idb
from logwright.codec.leveldb.comparators import NAMES, comparator_of
from logwright.codec.leveldb.formats.table.compression import expand
from logwright.codec.leveldb.formats.table.index import DATA, contents, survey
from logwright.codec.leveldb.formats.table.layout import Slices, entries
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.store.listing import Listing

UNKNOWN = "unknown"
"""Stands for the name of a comparator if no known one fits."""
_BLOCKS = 64
"""Blocks sampled per table."""


def guess(listing: Listing, tables: Sequence[tuple[str, int]]) -> str:
    """Return the known comparator that the keys of all tables are ordered by, or `UNKNOWN`.

    Only keys under right checksums are used. Without any, LevelDB's own comparator is assumed.
    """
    possible = list(NAMES)
    indexed_db = False
    for name, size in tables:
        for keys in _runs(listing, name, size):
            possible = [comparator for comparator in possible if _ordered(keys, comparator)]
            if keys and idb.NAME in possible:
                # Keys of other applications are rarely decodable, and a few keys may be in both orders.
                indexed_db = all(idb.decodable(key[:-KEY_TRAILER]) for key in keys)
                possible = [comparator for comparator in possible if indexed_db or comparator != idb.NAME]
    if indexed_db and idb.NAME in possible:
        return idb.NAME
    return possible[0] if possible else UNKNOWN


def _ordered(keys: Sequence[bytes], comparator: str) -> bool:
    order = comparator_of(comparator).order
    return all(a < b for a, b in pairwise(map(order, keys)))


def _runs(listing: Listing, name: str, size: int) -> Iterator[list[bytes]]:
    """Return lists of internal keys that must be in order: the index keys of a table, and the keys of some blocks."""
    read, limit = ListedFile(listing, name, size).pread, MAX_DECOMPRESSED.default
    try:
        blocks = survey(read, size, limit)
        if blocks.sound and isinstance(blocks.keys, Slices):
            yield [key for key in blocks.keys if len(key) >= KEY_TRAILER]
        data = np.flatnonzero(blocks.kind == DATA)
        for i in data[:: max(1, len(data) // _BLOCKS)].tolist():
            length = int(blocks.size[i])
            stored = contents(read, int(blocks.offset[i]), length)
            if stored is None:
                continue
            try:
                keys, _, status = entries(expand(stored[:length], int(stored[length]), limit), limit)
            except CompressionError:
                continue
            if not status and all(len(key) >= KEY_TRAILER for key in keys):
                yield list(keys)
    except UnreadableError:
        return
