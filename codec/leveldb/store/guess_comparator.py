"""Which comparator made tables that no manifest names one for: the known one that their keys follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from logwright.codec.fault import UnreadableError
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.leveldb import idb
from logwright.codec.leveldb.comparators import NAMES, comparator_of
from logwright.codec.leveldb.formats.table.index import DATA, survey
from logwright.codec.leveldb.formats.table.layout import TRAILER_SIZE, Slices, block_crc, entries, expand
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes

UNKNOWN = "unknown"
"""In the place of a comparator's name, where no known one fits."""
_BLOCKS = 64
"""Blocks of a table whose keys are looked at."""


def guess(listing: Listing, tables: Sequence[tuple[str, int]]) -> str:
    """The known comparator whose order the keys of all tables are in; `UNKNOWN` where there is none.

    Only keys under right checksums count. Tables without any are taken for LevelDB's own.
    """
    possible = list(NAMES)
    indexed_db = False
    for name, size in tables:
        for keys in _runs(listing, name, size):
            possible = [one for one in possible if _ordered(keys, one)]
            if keys and idb.NAME in possible:
                # Keys of another application are hardly ever decodable, and few keys may be in both orders.
                indexed_db = all(idb.decodable(key[:-KEY_TRAILER]) for key in keys)
                possible = [one for one in possible if indexed_db or one != idb.NAME]
    if indexed_db and idb.NAME in possible:
        return idb.NAME
    return possible[0] if possible else UNKNOWN


def _ordered(keys: Sequence[bytes], comparator: str) -> bool:
    order = comparator_of(comparator).order
    return all(a < b for a, b in pairwise(map(order, keys)))


def _runs(listing: Listing, name: str, size: int) -> Iterator[list[bytes]]:
    """Internal keys of a table that are to be in order: those of its index, and those of some blocks."""

    def read(offset: int, length: int) -> Bytes:
        return np.frombuffer(listing.read(name, offset, length), np.uint8)

    limit = MAX_DECOMPRESSED.default
    try:
        blocks = survey(read, size, limit)
        if blocks.sound and isinstance(blocks.keys, Slices):
            yield [key for key in blocks.keys if len(key) >= KEY_TRAILER]
        data = np.flatnonzero(blocks.kind == DATA)
        for i in data[:: max(1, len(data) // _BLOCKS)].tolist():
            length = int(blocks.size[i])
            stored = read(int(blocks.offset[i]), length + TRAILER_SIZE)
            if len(stored) < length + TRAILER_SIZE:
                continue
            if block_crc(stored, 0, length) != int.from_bytes(stored[length + 1 :].tobytes(), "little"):
                continue
            try:
                keys, _, status = entries(expand(stored[:length], int(stored[length]), limit), limit)
            except CompressionError:
                continue
            if not status and all(len(key) >= KEY_TRAILER for key in keys):
                yield list(keys)
    except UnreadableError:
        return
