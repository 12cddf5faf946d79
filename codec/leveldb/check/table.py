"""Check the contents of a table: the order of its keys, the keys of its index, its restart points, its filter.

LevelDB checks none of this when it reads. A misplaced key is found by an iterator but not by `Get`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb import idb
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table.compression import compression_of
from logwright.codec.leveldb.formats.table.filter import META_PREFIX, POLICY, Filter, hash_keys
from logwright.codec.leveldb.formats.table.index import (
    FILTER,
    INDEX,
    KIND_NAMES,
    METAINDEX,
    NAME,
    Blocks,
    contents,
    survey,
)
from logwright.codec.leveldb.formats.table.layout import (
    KEY_BYTES,
    KEY_TRAILER,
    NOTHING,
    TRAILER_SIZE,
    VALUE_BYTES,
    Slices,
    entries,
    handles_of,
)
from logwright.codec.leveldb.formats.table.portions import BEFORE, HIGH, INSIDE, LOW, Portion, portions
from logwright.codec.leveldb.formats.table.restarts import describe_wrong_points, hiding_fault, wrong_blocks
from logwright.codec.leveldb.formats.table.rows import plain as plain_of
from logwright.codec.leveldb.formats.table.rows import unknown_types
from logwright.codec.leveldb.keys import MAX_SEQUENCE, readable, user_key
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER_SIZE
from logwright.codec.window import Frames, Window

OUTSIDE = 16
"""The order violation of a block outside of the range of its table."""
_ORDER = {
    INSIDE: "its keys are not in order",
    BEFORE: "its first key is not after the last key of the block before",
    LOW: "its first key is not after the index key of the block before",
    HIGH: "its last key is after its own index key",
    OUTSIDE: "its keys are outside of the range of the table in the manifest",
}
_SEARCHES = "LevelDB finds a block by the index and a key in it by binary search: Get may miss keys that iterators return"
_UNUSED = "LevelDB may not find the filter named there, and then uses none"
_MISSES = "Get with this filter policy returns NotFound for it, while iterators return it"


@dataclass(frozen=True, slots=True)
class Place:
    """The range of internal keys of a block: above the index key of the block before, up to its own; within the range of the table."""

    low: bytes | None
    high: bytes
    included: bool
    """Whether `low` is the smallest key of the table, which is in the range."""

    def outside(self, first: bytes, last: bytes, comparator: Comparator) -> bool:
        """Return whether all keys of a block are outside of the range."""
        order = comparator.order
        if order(first) > order(self.high):
            return True
        if self.low is None:
            return False
        return bool(order(last) < order(self.low) or (not self.included and order(last) == order(self.low)))


class DisplacedBlocks:
    """Blocks in wrong places, by their first and last internal keys."""

    def __init__(self, blocks: Iterable[tuple[bytes, bytes]], comparator: Comparator) -> None:
        self._order = comparator.order
        self._blocks = sorted((self._order(first), self._order(last)) for first, last in blocks)

    def fill(self, place: Place) -> bool:
        """Return whether one of them belongs in a place."""
        at = 0 if place.low is None else bisect_left(self._blocks, self._order(place.low), key=itemgetter(0))
        # Blocks of a sound database do not overlap, so the first one decides.
        return at < len(self._blocks) and bool(self._blocks[at][1] <= self._order(place.high))


class TableCheck:
    """Checks the blocks of one table, in order. `faults` is the result, the other fields describe the contents."""

    def __init__(
        self,
        read: ListedFile,
        limit: int,
        comparator: Comparator,
        known: tuple[bytes, bytes] | None = None,
    ) -> None:
        """`limit`: see `max.decompressed.bytes`. `known`: the smallest and largest internal key in the manifest.
        The order of keys is not checked if `comparator` is unknown."""
        self.read, self.limit, self.comparator = read, limit, comparator
        self.blocks: Blocks = survey(read, read.size, limit)
        self.faults: list[Fault] = []
        self.rows = 0
        self.deletions = 0
        self.smallest: bytes | None = None
        """The first and the last internal key."""
        self.largest: bytes | None = None
        self.low, self.high = MAX_SEQUENCE, -1
        """The smallest and the largest sequence number."""
        self.unreadable: list[tuple[int, int, str]] = []
        """Data blocks with a right checksum that cannot be read to their end: bytes of the file, and the reason."""
        self.displaced: list[tuple[Fault, bytes, bytes, Place]] = []
        """Blocks outside of their place: the fault, the first and last key, and the place."""
        self.unplaced: list[tuple[bytes, bytes]] = []
        """The first and last key of all blocks, if no index gives them places."""
        self.foreign = 0
        """Number of blocks of an unsupported type, or with entries of an unsupported type."""

        self._ends = self._range_of(known)
        keys = self.blocks.keys
        self._index = keys if isinstance(keys, Slices) else NOTHING
        if self.blocks.sound and comparator.known:
            self._index = Slices(*comparator.buffers(self._index.data, self._index.ends, KEY_TRAILER))
        self._filter = filter_of(read, self.blocks, limit)
        if self.blocks.sound:
            self._check_named_blocks()

    def add(self, window: Window, frames: Frames) -> None:
        for portion in portions(window, frames, self.limit):
            self._errors(window, portion)
            self._check_points(window, portion)
            if portion.entries.rows:
                self._check_order(window, portion)
                self._check_filter(window, portion)
                self._count_entries(portion)

    def release(self) -> None:
        """Release what only the check of blocks needs."""
        self.blocks, self._index, self._filter = replace(self.blocks, keys=()), NOTHING, None

    def _errors(self, window: Window, portion: Portion) -> None:
        for i, text in portion.errors.items():
            start, end = portion.extent(window, i)
            self.unreadable.append((start, end, text))
            stored = window.data[start - window.offset : end - window.offset - TRAILER_SIZE]
            plain = portion.plain[int(portion.starts[i]) : int(portion.ends[i])]
            size = int(portion.measured[i, KEY_BYTES] + portion.measured[i, VALUE_BYTES])
            unknown = compression_of(stored, int(portion.frames.header["type"][i])) is None
            self.foreign += unknown or bool(unknown_types(plain, size))

    def _check_points(self, window: Window, portion: Portion) -> None:
        for i in wrong_blocks(portion.plain, portion.starts, portion.ends, portion.measured.reshape(-1)):
            data = portion.plain[int(portion.starts[i]) : int(portion.ends[i])]
            hidden = hiding_fault(data)
            if hidden is not None:
                # Reading the rows reports it.
                self.unreadable.append((*portion.extent(window, i), hidden.text))
                continue
            wrong = describe_wrong_points(data)
            self._fault(window, portion, i, Kind.PAYLOAD, wrong.text, wrong.system, wrong.severity)

    def _check_named_blocks(self) -> None:
        """Check the restart points of the index and the metaindex."""
        blocks = self.blocks
        for i in np.flatnonzero((blocks.kind == INDEX) | (blocks.kind == METAINDEX)).tolist():
            offset, size, kind = (int(columns[i]) for columns in (blocks.offset, blocks.size, blocks.kind))
            data = contents(self.read, offset, size)
            if data is None:
                continue
            columns = plain_of(data[:size], int(data[size]), self.limit)
            if wrong_blocks(
                columns.data, np.zeros(1, np.int64), np.full(1, len(columns.data), np.int64), columns.measures
            ):
                wrong = describe_wrong_points(columns.data)
                text = f"in the {KIND_NAMES[kind]}: {wrong.text}"
                system = _UNUSED if kind == METAINDEX else wrong.system
                self.faults.append(
                    Fault(NAME, offset, len(data), Kind.PAYLOAD, text, wrong.severity, system, rows_lost=0)
                )

    def _check_order(self, window: Window, portion: Portion) -> None:
        order = self.comparator.order
        if not self.comparator.known:
            return
        if not self.blocks.sound:
            filled = np.flatnonzero(portion.entries.per_block > 0)
            self.unplaced += portion.edges(filled.tolist())
        violations = portion.order_violations(self._index if self.blocks.sound else NOTHING, self.comparator)
        first = portion.entries.key(0)
        if self.largest is not None and order(first) <= order(self.largest):
            violations = np.zeros(len(portion.frames), np.int64) if violations is None else violations
            violations[int(np.argmax(portion.entries.per_block > 0))] |= BEFORE
        for i in self._edges_outside(portion):
            violations = np.zeros(len(portion.frames), np.int64) if violations is None else violations
            violations[i] |= OUTSIDE
        if violations is None:
            return
        rows = portion.rows
        for i in np.flatnonzero(violations).tolist():
            if not self.comparator.bytewise and self._undecodable(window, portion, i):
                continue
            problem = next(text for bit, text in _ORDER.items() if int(violations[i]) & bit)
            key = readable(user_key(portion.entries.key(int(rows[i]))))
            self._fault(window, portion, i, Kind.ORDER, f"{problem}; it begins with {key}", _SEARCHES)
            if int(violations[i]) & (LOW | HIGH | OUTSIDE):
                first, last = portion.entries.key(int(rows[i])), portion.entries.key(int(rows[i + 1]) - 1)
                place = self.place(int(portion.frames.header["entry"][i]))
                if place is not None and place.outside(first, last, self.comparator):
                    self.displaced.append((self.faults[-1], first, last, place))

    def _edges_outside(self, portion: Portion) -> Iterator[int]:
        """Yield the first and the last block of the table if the manifest's range excludes them. No other index key bounds them on one side."""
        if self._ends is None:
            return
        entry = portion.frames.header["entry"]
        for i in np.flatnonzero((entry == 0) | (entry == len(self.blocks.keys) - 1)).tolist():
            place = self.place(int(entry[i]))
            if (
                portion.entries.per_block[i]
                and place
                and place.outside(*portion.edges([i])[0], self.comparator)
            ):
                yield i

    def place(self, entry: int) -> Place | None:
        """Return the place of an entry of the index; None if it is not known."""
        keys = self.blocks.keys
        if not self.blocks.sound or not self.comparator.known or entry < 0:
            return None
        low, high = keys[entry - 1] if entry else None, keys[entry]
        if self._ends is not None:
            low = low if entry else self._ends[0]
            high = high if entry < len(keys) - 1 else self._ends[1]
        if len(high) < KEY_TRAILER_SIZE or (low is not None and len(low) < KEY_TRAILER_SIZE):
            return None
        return Place(low, high, entry == 0)

    def _range_of(self, known: tuple[bytes, bytes] | None) -> tuple[bytes, bytes] | None:
        """Return the key range in the manifest, if the index agrees with it: else it is that of another table."""
        keys, order = self.blocks.keys, self.comparator.order
        if known is None or not self.blocks.sound or not self.comparator.known or not len(keys):
            return None
        count = len(keys)
        first, last = keys[0], keys[count - 1]
        before = keys[count - 2] if count > 1 else None
        if min(len(key) for key in (first, last, before) if key is not None) < KEY_TRAILER_SIZE:
            return None
        agrees = order(known[0]) <= order(first) and order(known[1]) <= order(last)
        return known if agrees and (before is None or order(known[1]) > order(before)) else None

    def _undecodable(self, window: Window, portion: Portion, i: int) -> bool:
        """Return whether a block, or the one before it, has keys that the comparator cannot decode, so that their order means nothing."""
        low, high = int(portion.rows[i]), int(portion.rows[i + 1])
        for row in range(max(low - 1, 0), high):
            key = user_key(portion.entries.key(row))
            if not idb.decodable(key):
                text = f"{self.comparator.name} cannot decode the key {readable(key)}"
                system = "its comparator treats the key as equal to every other key: Get may miss it and keys near it"
                self._fault(window, portion, i, Kind.ORDER, text, system, Severity.WARNING)
                return True
        return False

    def _check_filter(self, window: Window, portion: Portion) -> None:
        if self._filter is None:
            return
        hashes = np.empty(portion.entries.rows, np.int64)
        hash_keys(portion.entries.keys, portion.entries.key_ends, 0, portion.entries.rows, hashes)
        rows = portion.rows
        misses = self._filter.misses_of(window.offset + portion.frames.start, rows, hashes)
        if misses is None:
            return
        for i in np.flatnonzero(misses >= 0).tolist():
            key = readable(user_key(portion.entries.key(int(rows[i]) + int(misses[i]))))
            self._fault(window, portion, i, Kind.LINK, f"the filter denies the key {key}", _MISSES)

    def _count_entries(self, portion: Portion) -> None:
        entries = portion.entries
        self.rows += entries.rows
        self.deletions += int(np.count_nonzero(entries.trailers & 0xFF == 0))
        sequences = entries.trailers >> 8 & MAX_SEQUENCE
        self.low, self.high = min(self.low, int(sequences.min())), max(self.high, int(sequences.max()))
        first, last = portion.entries.key(0), portion.entries.key(entries.rows - 1)
        self.smallest = first if self.smallest is None else self.smallest
        self.largest = last

    def _fault(
        self,
        window: Window,
        portion: Portion,
        i: int,
        kind: Kind,
        text: str,
        system: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        start, end = portion.extent(window, i)
        self.faults.append(Fault(NAME, start, end - start, kind, text, severity, system, rows_lost=0))


def policies(read: ListedFile, blocks: Blocks, limit: int) -> Iterator[tuple[str, int, int]]:
    """Yield the filters that the metaindex names: policy name, offset and size of the block."""
    for i in np.flatnonzero(blocks.kind == METAINDEX).tolist():
        offset, size = int(blocks.offset[i]), int(blocks.size[i])
        data = contents(read, offset, size)
        if data is None:
            continue
        block = plain_of(data[:size], int(data[size]), limit)
        names, values, _ = entries(block.data, limit)
        for name, at, length in zip(names, *(column.tolist() for column in handles_of(values)), strict=True):
            if name.startswith(META_PREFIX.encode()) and at >= 0:
                yield name[len(META_PREFIX) :].decode(errors="replace"), at, length


def filter_of(read: ListedFile, blocks: Blocks, limit: int) -> Filter | None:
    """Return the filter that LevelDB uses for a table, or None if it has no filter or a damaged one."""
    if not blocks.sound or not (blocks.kind == FILTER).any():
        return None
    for policy, offset, size in policies(read, blocks, limit):
        data = contents(read, offset, size)
        if policy == POLICY and data is not None:
            return Filter(data[:size])
    return None
