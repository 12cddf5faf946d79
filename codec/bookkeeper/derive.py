"""Derive index files from the locations of entries in entry logs.

Source: `LedgerEntryPage`, `FileInfo`, `InterleavedStorageRegenerateIndexOp` of BookKeeper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from logwright.codec.arrays import Int64s, stretches
from logwright.codec.window import Zeros


def index_file(header: bytes, entries: Int64s, locations: Int64s, page_size: int) -> Iterator[bytes | Zeros]:
    """Yield an index file: header, and pages of locations by entry. Pages without an entry are holes. `entries` are sorted."""
    yield header
    per_page = page_size // 8
    pages = entries // per_page
    at = 0
    edges = [0, *(np.flatnonzero(np.diff(pages) > 1) + 1).tolist(), len(entries)]
    for start, stop in itertools.pairwise(edges):
        if stop == start:
            continue
        page, end = int(pages[start]), int(pages[stop - 1]) + 1
        if page > at:
            yield Zeros((page - at) * page_size)
        content = np.zeros((end - page) * per_page, ">i8")
        content[entries[start:stop] - page * per_page] = locations[start:stop]
        yield content.tobytes()
        at = end
    if not at:
        yield Zeros(page_size)


def merged(entries: Int64s, locations: Int64s, more: Int64s, more_locations: Int64s) -> tuple[Int64s, Int64s]:
    """Return both sets of distinct entries in order, and their locations. That of the first set counts for an entry of both."""
    lacking = ~np.isin(more, entries)
    both = np.concatenate((entries, more[lacking]))
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate((locations, more_locations[lacking]))[order]


class LocationIndex:
    """Collects the locations of entries, in the order in which a bookie would index them."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Int64s, Int64s, Int64s]] = []
        self._ordered: tuple[Int64s, Int64s, Int64s] | None = None

    def add(self, ledger: Int64s, entry: Int64s, location: Int64s) -> None:
        self._blocks.append((ledger, entry, location))
        self._ordered = None

    def _all(self) -> tuple[Int64s, Int64s, Int64s]:
        empty = np.empty(0, np.int64)
        ledger, entry, location = (
            np.concatenate([empty, *(block[i] for block in self._blocks)]) for i in range(3)
        )
        return ledger, entry, location

    def _sorted(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return ledger, entry and location of all entries by ledger and entry. Copies of an entry are in the order of `add`."""
        if self._ordered is None:
            ledger, entry, location = self._all()
            order = np.lexsort((entry, ledger))
            self._ordered = ledger[order], entry[order], location[order]
        return self._ordered

    def ledgers(self) -> Mapping[int, tuple[Int64s, Int64s]]:
        """Return the entries of each ledger in order, and their locations. The last location of an entry counts."""
        ledger, entry, location = self._sorted()
        last = np.ones(len(ledger), np.bool_)
        last[:-1] = (ledger[1:] != ledger[:-1]) | (entry[1:] != entry[:-1])
        if not last.all():
            ledger, entry, location = ledger[last], entry[last], location[last]
        return {
            int(ledger[start]): (entry[start:stop], location[start:stop]) for start, stop in stretches(ledger)
        }

    def joined(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return ledger, entry and location of all entries, by location."""
        ledger, entry, location = self._all()
        order = np.argsort(location, kind="stable")
        return ledger[order], entry[order], location[order]

    def repeated(self) -> tuple[int, int] | None:
        """Return the ids of an entry with several locations."""
        ledger, entry, _ = self._sorted()
        copies = np.flatnonzero((ledger[1:] == ledger[:-1]) & (entry[1:] == entry[:-1]))
        return (int(ledger[copies[0]]), int(entry[copies[0]])) if len(copies) else None
