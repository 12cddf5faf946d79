"""LevelDB's iterator over a database: merges tables by internal key and returns the newest visible value of each user key.

Nothing here relies on sorted keys. In a damaged database they may not be, and the result is still what LevelDB returns.

Source: `Version::AddIterators`, `table/two_level_iterator.cc`, `table/merger.cc` and `db/db_iter.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import batch_of, binary, constant, numbers
from logwright.codec.engine.merge import compare, fill_prefixes, merge_rows
from logwright.codec.kernels.intrinsics import copy, load_i64le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.formats.table.layout import KEY_TRAILER, MAX_TYPE
from logwright.codec.leveldb.formats.table.tables import ROWS
from logwright.codec.leveldb.keys import MAX_SEQUENCE, TYPE_NAMES, VALUE
from logwright.codec.leveldb.startup.status import Corruption, Status
from logwright.codec.leveldb.startup.table import Chunk
from logwright.codec.window import Bytes

Pieces = Iterator[Chunk | Status]

_BUFFERS = 32 << 20
_SMALLEST, _LARGEST = 64 << 10, 1 << 20
"""Bytes of entries buffered for all children, and the least and the most for each of them."""
_OUT = 1 << 15
"""Maximum number of rows in a batch."""
BAD_KEY = Corruption("corrupted internal key in DBIter")

SKIPPING, SKIP_SIZE, BAD, BACKWARDS = range(4)
"""State of a `DBIter`: whether keys up to the one in `skip` are skipped, the size of that key, whether a malformed internal key was met,
and whether a key came before the previous one and so may be skipped wrongly."""
STATE = 4
_SIGN = -1 << 63


@kernel("const u1[], const i8[], const i8[], i8[], i8[]")
def split_keys(keys: Bytes, starts: Int64s, ends: Int64s, user_ends: Int64s, tags: Int64s) -> None:
    """Compute where the user key of each internal key ends, and the number in its last eight bytes, converted to compare unsigned.

    A key that is too short counts as an empty user key.
    """
    for i in range(len(starts)):
        user = ends[i] - KEY_TRAILER
        user_ends[i] = max(starts[i], user)
        tags[i] = load_i64le(keys, user) ^ _SIGN if user >= starts[i] else -1


@kernel("const u1[], const i8[], const i8[], const i8[], i8, i8, i8[], u1[], i8[]")
def visible(
    keys: Bytes,
    starts: Int64s,
    ends: Int64s,
    order: Int64s,
    rows: int,
    sequence: int,
    state: Int64s,
    skip: Bytes,
    out: Int64s,
) -> int:
    """Put the entries that an iterator returns, of `rows` merged ones, into `out` and return their number (`DBIter::FindNextUserEntry`)."""
    n = 0
    for i in range(rows):
        row = order[i]
        start, user = starts[row], ends[row] - KEY_TRAILER
        if user < start:
            state[BAD] = 1
            continue
        trailer = load_i64le(keys, user)
        kind = trailer & 0xFF
        if kind > MAX_TYPE:
            state[BAD] = 1
            continue
        if trailer >> 8 & MAX_SEQUENCE > sequence:
            continue
        if state[SKIPPING]:
            difference = compare(keys, start, user, skip, 0, state[SKIP_SIZE])
            if difference < 0:
                state[BACKWARDS] = 1
            if kind == VALUE and difference <= 0:
                continue
        if kind == VALUE:
            out[n] = row
            n += 1
        state[SKIPPING] = 1
        state[SKIP_SIZE] = user - start
        copy(skip, 0, keys, start, user - start)
    return n


@dataclass(slots=True)
class Child:
    """One of the merged iterators."""

    open: Callable[[int], Pieces]
    """Opens the iterator. Takes the approximate size of a chunk in bytes."""
    status: Status | None = None
    """The status at its end: its first error."""
    pieces: Pieces = field(init=False)

    def next(self) -> Chunk | None:
        """Return the next entries, or None at the end."""
        for piece in self.pieces:
            if isinstance(piece, Status):
                self.status = self.status or piece
            elif piece.rows:
                return piece
        return None


class _Slabs:
    """The buffered entries of all children. Each child has a slot of the same size in shared arrays."""

    def __init__(self, count: int) -> None:
        self.chunks: list[Chunk | None] = [None] * count
        self.heads, self.stops = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.finished = np.zeros(count, np.uint8)
        self.room = (0, 0, 0, 0)
        """Capacity of a slot: rows, bytes of keys, of values and of stored keys."""
        self.longest = 0
        self._grow((1, 1, 1, 1))

    def put(self, c: int, chunk: Chunk | None) -> None:
        """Buffer the next entries of a child whose previous ones are used up."""
        self.chunks[c] = chunk
        if chunk is None:
            self.finished[c] = 1
            return
        stored = 0 if chunk.stored is None else len(chunk.stored[0])
        needed = (chunk.rows, len(chunk.keys), len(chunk.values), stored)
        if any(size > room for size, room in zip(needed, self.room, strict=True)):
            self._grow(needed)
        else:
            self._set(c, chunk)
        self.heads[c], self.stops[c] = c * self.room[0], c * self.room[0] + chunk.rows

    def _set(self, c: int, chunk: Chunk) -> None:
        rows, key_at, value_at, stored_at = (c * size for size in self.room)
        place = slice(rows, rows + chunk.rows)
        self.keys[key_at : key_at + len(chunk.keys)] = chunk.keys
        self.values[value_at : value_at + len(chunk.values)] = chunk.values
        self.key_starts[place], self.key_ends[place] = (
            chunk.key_ends[:-1] + key_at,
            chunk.key_ends[1:] + key_at,
        )
        self.value_starts[place] = chunk.value_ends[:-1] + value_at
        self.value_ends[place] = chunk.value_ends[1:] + value_at
        self.position[place] = chunk.position
        starts, users = self.key_starts[place], self.user_ends[place]
        split_keys(self.keys, starts, self.key_ends[place], users, self.tags[place])
        fill_prefixes(self.keys, starts, users, 0, self.prefixes[place])
        if chunk.stored is not None:
            keys, ends = chunk.stored
            self.stored_keys[stored_at : stored_at + len(keys)] = keys
            self.stored_starts[place], self.stored_ends[place] = ends[:-1] + stored_at, ends[1:] + stored_at
        self.longest = max(self.longest, int(np.diff(chunk.key_ends).max(initial=0)))

    def _grow(self, needed: tuple[int, ...]) -> None:
        before = self.room[0]
        rows, keys, values, stored = (
            max(room, size + size // 4) for size, room in zip(needed, self.room, strict=True)
        )
        self.room = (rows, keys, values, stored)
        count = len(self.chunks)
        self.keys, self.values = np.empty(count * keys, np.uint8), np.empty(count * values, np.uint8)
        self.stored_keys = np.empty(count * stored, np.uint8)
        self.key_starts, self.key_ends, self.value_starts, self.value_ends, self.position = (
            np.zeros(count * rows, np.int64) for _ in range(5)
        )
        self.user_ends, self.tags, self.prefixes = (np.zeros(count * rows, np.int64) for _ in range(3))
        self.stored_starts, self.stored_ends = (np.zeros(count * rows, np.int64) for _ in range(2))
        moved = np.arange(count) * (rows - before)
        self.heads += moved
        self.stops += moved
        for c, chunk in enumerate(self.chunks):
            if chunk is not None:
                self._set(c, chunk)

    @property
    def shown(self) -> tuple[Bytes, Int64s, Int64s]:
        """The keys as stored."""
        if any(chunk is not None and chunk.stored is not None for chunk in self.chunks):
            return self.stored_keys, self.stored_starts, self.stored_ends
        return self.keys, self.key_starts, self.key_ends


class DBIter:
    """An iterator over all keys of its children. At the end `status` is its status (None is OK), and `backwards` says whether keys were
    out of order."""

    def __init__(
        self, children: Sequence[Child], sequence: int, order: Comparator = BYTEWISE_COMPARATOR
    ) -> None:
        self.order = order
        self.children, self.sequence = children, min(sequence, MAX_SEQUENCE)
        self._bad_key = self.backwards = False

    @property
    def status(self) -> Status | None:
        if self._bad_key:
            return BAD_KEY
        return next((child.status for child in self.children if child.status is not None), None)

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return all rows, with these columns of the rows of a table."""
        for slabs, taken in self._taken():
            yield _batch(slabs, taken, columns)

    def count(self) -> tuple[int, bytes | None, bytes | None]:
        """Return the number of rows, and the first and the last key."""
        total, first, last = 0, None, None
        for slabs, taken in self._taken():
            total += len(taken)
            first = first if first is not None else _key(slabs, int(taken[0]))
            last = _key(slabs, int(taken[-1]))
        return total, first, last

    def _taken(self) -> Iterator[tuple[_Slabs, Int64s]]:
        """Return visible entries as rows of the slots, valid until the next call."""
        slabs = _Slabs(len(self.children))
        target = min(max(_BUFFERS // max(len(self.children), 1), _SMALLEST), _LARGEST)
        for c, child in enumerate(self.children):
            child.pieces = _with_sort_keys(child.open(target), self.order)
            slabs.put(c, child.next())
        state, skip = np.zeros(STATE, np.int64), np.empty(0, np.uint8)
        order, out = np.empty(_OUT, np.int64), np.empty(_OUT, np.int64)
        heap, runs = (np.empty(len(self.children), np.int64) for _ in range(2))
        while True:
            if len(skip) < slabs.longest:
                skip = np.concatenate([skip, np.empty(slabs.longest, np.uint8)])
            merged, empty = merge_rows(
                slabs.keys, slabs.key_starts, slabs.user_ends, slabs.prefixes, slabs.tags,
                slabs.heads, slabs.stops, slabs.finished, 0, heap, runs, order,
            )  # fmt: skip
            n = visible(
                slabs.keys, slabs.key_starts, slabs.key_ends, order, merged, self.sequence, state, skip, out
            )
            if n:
                yield slabs, out[:n]
            self._bad_key, self.backwards = bool(state[BAD]), bool(state[BACKWARDS])
            if empty >= 0:
                slabs.put(empty, self.children[empty].next())
            elif merged < len(order):
                return


def _with_sort_keys(pieces: Pieces, order: Comparator) -> Pieces:
    for piece in pieces:
        yield piece if isinstance(piece, Status) else piece.with_sort_keys(order)


def _key(slabs: _Slabs, row: int) -> bytes:
    keys, starts, ends = slabs.shown
    return keys[int(starts[row]) : int(ends[row]) - KEY_TRAILER].tobytes()


def _batch(slabs: _Slabs, rows: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of some rows, which are all values."""
    arrays = []
    for name in columns:
        kind = ROWS[name].type
        if name == "key":
            keys, starts, ends = slabs.shown
            array = binary(keys, starts[rows], ends[rows] - starts[rows] - KEY_TRAILER)
        elif name == "value":
            starts = slabs.value_starts[rows]
            array = binary(slabs.values, starts, slabs.value_ends[rows] - starts)
        elif name == "sequence":
            array = numbers(kind, (slabs.tags[rows] ^ _SIGN) >> 8 & MAX_SEQUENCE)
        elif name == "type":
            array = constant(kind, TYPE_NAMES[VALUE], len(rows))
        elif name == "position":
            array = numbers(kind, slabs.position[rows])
        else:
            child = rows // slabs.room[0]
            known = [None if chunk is None else getattr(chunk, name) for chunk in slabs.chunks]
            null = np.array([number is None for number in known])
            values = np.array([number or 0 for number in known], np.int64)
            array = numbers(kind, values[child], null[child])
        arrays.append(array)
    return batch_of(arrays, ROWS.schema(columns), len(rows))
