"""Derive index files from the places of entries in entry logs.

Source: `LedgerEntryPage`, `FileInfo`, `InterleavedStorageRegenerateIndexOp` of BookKeeper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from logwright.codec.bookkeeper.startup.index_file import FENCED, MAGIC, START
from logwright.codec.window import Zeros

Int64s = npt.NDArray[np.int64]


def index_header(key: bytes, *, fenced: bool = False, lac: bytes = b"", version: int = 1) -> bytes:
    """Return the header of an index file."""
    head = MAGIC + version.to_bytes(4, "big") + len(key).to_bytes(4, "big") + key
    head += (FENCED if fenced else 0).to_bytes(4, "big")
    if version:
        head += len(lac).to_bytes(4, "big") + lac
    return head.ljust(START, b"\0")


def index_file(header: bytes, entries: Int64s, locations: Int64s, page_size: int) -> Iterator[bytes | Zeros]:
    """Yield an index file: header, and pages of locations by entry. Pages without an entry are holes. `entries` are sorted."""
    yield header
    per_page = page_size // 8
    pages = entries // per_page
    at = 0
    edges = [0, *(np.flatnonzero(np.diff(pages)) + 1).tolist(), len(entries)]
    for start, stop in itertools.pairwise(edges):
        if stop == start:
            continue
        page = int(pages[start])
        if page > at:
            yield Zeros((page - at) * page_size)
        content = np.zeros(per_page, ">i8")
        content[entries[start:stop] - page * per_page] = locations[start:stop]
        yield content.tobytes()
        at = page + 1
    if not at:
        yield Zeros(page_size)


class LocationIndex:
    """Collects the locations of entries, in the order in which a bookie would index them."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Int64s, Int64s, Int64s]] = []

    def add(self, ledger: Int64s, entry: Int64s, location: Int64s) -> None:
        self._blocks.append((ledger, entry, location))

    def ledgers(self) -> Mapping[int, tuple[Int64s, Int64s]]:
        """Return the entries of each ledger in order, and their locations. The last location of an entry counts."""
        empty = np.empty(0, np.int64)
        ledger, entry, location = (
            np.concatenate([empty, *(block[i] for block in self._blocks)]) for i in range(3)
        )
        order = np.lexsort((np.arange(len(ledger)), entry, ledger))
        ledger, entry = ledger[order], entry[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = (ledger[1:] != ledger[:-1]) | (entry[1:] != entry[:-1])
        ledger, entry, location = ledger[last], entry[last], location[order[last]]
        edges = [0, *(np.flatnonzero(np.diff(ledger)) + 1).tolist(), len(ledger)]
        return {
            int(ledger[start]): (entry[start:stop], location[start:stop])
            for start, stop in itertools.pairwise(edges)
            if stop > start
        }

    def joined(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return ledger, entry and location of all entries, by location."""
        empty = np.empty(0, np.int64)
        ledger, entry, location = (
            np.concatenate([empty, *(block[i] for block in self._blocks)]) for i in range(3)
        )
        order = np.argsort(location, kind="stable")
        return ledger[order], entry[order], location[order]

    def repeated(self) -> tuple[int, int] | None:
        """Return the ids of an entry with several locations."""
        if not self._blocks:
            return None
        ids = np.stack([np.concatenate([block[i] for block in self._blocks]) for i in range(2)], axis=1)
        ids = ids[np.lexsort((ids[:, 1], ids[:, 0]))]
        copies = np.flatnonzero((ids[1:] == ids[:-1]).all(axis=1))
        return (int(ids[copies[0], 0]), int(ids[copies[0], 1])) if len(copies) else None
