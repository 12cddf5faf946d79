"""Merge sorted runs of rows. Kernels find the order of the keys; the rows themselves are moved as Arrow columns.

A run is a sequence of record batches whose rows are in the bytewise order of their column `key`. Each row has a tag, by default its
sequence number. Of the rows of one key, the one with the highest tag comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int64s
from logwright.codec.kernels.intrinsics import load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel

Tags = Callable[[pa.RecordBatch], Int64s]
"""Returns the tag of each row."""

_SIGN = -(1 << 63)
"""Flipping this bit of both makes a signed comparison of two integers an unsigned one."""
_MAX = (1 << 63) - 1
PASS_THROUGH = 1024
"""At least this many rows that no other run has keys between are passed through as a separate batch."""
MAX_JOINED = 1 << 30
"""Byte limit for joining batches. The offsets of a binary column have 32 bits."""


# Kernels


@kernel("const u1[], i8, i8, const u1[], i8, i8")
def compare(a: Bytes, a_at: int, a_end: int, b: Bytes, b_at: int, b_end: int) -> int:
    """Return a negative number, 0 or a positive number, as the first key is less than, equal to or greater than the second."""
    shorter = min(a_end - a_at, b_end - b_at)
    i = 0
    while i + 8 <= shorter:
        x, y = load_i64be(a, a_at + i), load_i64be(b, b_at + i)
        if x != y:
            return -1 if x ^ _SIGN < y ^ _SIGN else 1
        i += 8
    if shorter >= 8 and i < shorter:
        # Load the last eight bytes, some of which have been compared already.
        x, y = load_i64be(a, a_at + shorter - 8), load_i64be(b, b_at + shorter - 8)
        if x != y:
            return -1 if x ^ _SIGN < y ^ _SIGN else 1
        i = shorter
    while i < shorter:
        difference = load_u8(a, a_at + i) - load_u8(b, b_at + i)
        if difference:
            return difference
        i += 1
    return a_end - a_at - (b_end - b_at)


@kernel("const u1[], i8, i8, i8")
def prefix(keys: Bytes, at: int, end: int, skip: int) -> int:
    """Return eight bytes of a key from byte `skip` on, padded with zeros, as an integer that compares as they do."""
    at = min(at + skip, end)
    if end - at >= 8:
        return load_i64be(keys, at) ^ _SIGN
    number = (load_u8(keys, at) if at < end else 0) - 128
    for i in range(1, 8):
        number = number << 8 | (load_u8(keys, at + i) if at + i < end else 0)
    return number


@kernel("const u1[], const i8[], const i8[], i8, i8[]")
def fill_prefixes(keys: Bytes, starts: Int64s, ends: Int64s, skip: int, prefixes: Int64s) -> None:
    """Compute `prefix` of each key."""
    for i in range(len(starts)):
        prefixes[i] = prefix(keys, starts[i], ends[i], skip)


@kernel("const u1[], const i8[], i8, const u1[], i8, u1[]")
def mark_first(
    keys: Bytes, ends: Int64s, rows: int, previous: Bytes, has_previous: int, first: Bytes
) -> tuple[int, int]:
    """Mark the first row of each key in `first`. `previous` is the key before the rows, if `has_previous`.

    Returns the number of rows not marked, and the first row whose key is less than the one before it, or -1.
    """
    repeated, unsorted = 0, -1
    for i in range(rows):
        at, end = ends[i], ends[i + 1]
        order = 1
        if i:
            before = ends[i - 1]
            shorter = min(end - at, at - before)
            if shorter >= 8:
                # `compare`, inlined: the call costs more than the comparison.
                done = 8
                x, y = load_i64be(keys, at), load_i64be(keys, before)
                while x == y and done < shorter:
                    done = min(done + 8, shorter)
                    x, y = load_i64be(keys, at + done - 8), load_i64be(keys, before + done - 8)
                order = end - at - (at - before)
                if x != y:
                    order = -1 if x ^ _SIGN < y ^ _SIGN else 1
            else:
                order = compare(keys, at, end, keys, before, at)
        elif has_previous:
            order = compare(keys, at, end, previous, 0, len(previous))
        first[i] = 1 if order else 0
        if order == 0:
            repeated += 1
        elif order < 0 and unsorted < 0:
            unsorted = i
    return repeated, unsorted


@kernel("const u1[], const i8[], i8")
def common_prefix(keys: Bytes, ends: Int64s, rows: int) -> int:
    """Return the length of the longest prefix that all keys share."""
    length = int(ends[1] - ends[0]) if rows else 0
    for i in range(1, rows):
        at, first = ends[i], ends[0]
        length = min(length, ends[i + 1] - at)
        same = 0
        while same < length and load_u8(keys, at + same) == load_u8(keys, first + same):
            same += 1
        length = same
    return length


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8, i8")
def _precedes(
    keys: Bytes, starts: Int64s, ends: Int64s, prefixes: Int64s, tags: Int64s, i: int, j: int
) -> bool:
    """Return whether row `i` precedes row `j`: by key, then by descending tag, then by row number."""
    if prefixes[i] != prefixes[j]:
        return bool(prefixes[i] < prefixes[j])
    order = compare(keys, starts[i], ends[i], keys, starts[j], ends[j])
    if order:
        return order < 0
    if tags[i] != tags[j]:
        return bool(tags[i] > tags[j])
    return i < j


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8[], i8[], i8, i8")
def _sift_down(
    keys: Bytes,
    starts: Int64s,
    ends: Int64s,
    prefixes: Int64s,
    tags: Int64s,
    heap: Int64s,
    runs: Int64s,
    size: int,
    at: int,
) -> None:
    row, run = heap[at], runs[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _precedes(keys, starts, ends, prefixes, tags, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(keys, starts, ends, prefixes, tags, heap[child], row):
            break
        heap[at], runs[at] = heap[child], runs[child]
        at = child
    heap[at], runs[at] = row, run


@kernel(
    "const u1[], const i8[], const i8[], const i8[], const i8[], i8[], const i8[], const u1[], i8, i8[], i8[], i8[]"
)
def merge_rows(
    keys: Bytes,
    starts: Int64s,
    ends: Int64s,
    prefixes: Int64s,
    tags: Int64s,
    heads: Int64s,
    stops: Int64s,
    finished: Bytes,
    newest: int,
    heap: Int64s,
    runs: Int64s,
    order: Int64s,
) -> tuple[int, int]:
    """Merge runs. Run `r` is rows `heads[r]` to `stops[r]`; further rows follow unless it is `finished`.

    Fills `order` with row numbers and advances `heads`. Returns how many rows there are, and the run that needs its next rows, or -1.
    With `newest` only the first row of each key is kept; the runs must then be complete and `order` have room for all rows.
    `heap` and `runs` have an entry for each run. A run need not be sorted: the least of the heads always comes next.
    """
    size = 0
    for r in range(len(heads)):
        if heads[r] < stops[r]:
            heap[size], runs[size] = heads[r], r
            size += 1
        elif not finished[r]:
            return 0, r
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(keys, starts, ends, prefixes, tags, heap, runs, size, at)
    count = 0
    while size and count < len(order):
        row, run = heap[0], runs[0]
        last = order[count - 1] if newest and count else -1
        if (
            last < 0
            or prefixes[last] != prefixes[row]
            or compare(keys, starts[last], ends[last], keys, starts[row], ends[row]) != 0
        ):
            order[count] = row
            count += 1
        heads[run] = row + 1
        if row + 1 < stops[run]:
            heap[0] = row + 1
        elif finished[run]:
            size -= 1
            heap[0], runs[0] = heap[size], runs[size]
        else:
            return count, run
        if size > 1:
            _sift_down(keys, starts, ends, prefixes, tags, heap, runs, size, 0)
    return count, -1


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8[], i8[]")
def _merge_sort(
    keys: Bytes, starts: Int64s, ends: Int64s, prefixes: Int64s, tags: Int64s, order: Int64s, scratch: Int64s
) -> None:
    """Sort the row numbers in `order`."""
    rows = len(order)
    width = 1
    while width < rows:
        for low in range(0, rows, 2 * width):
            middle, high = min(low + width, rows), min(low + 2 * width, rows)
            if middle >= high or _precedes(
                keys, starts, ends, prefixes, tags, order[middle - 1], order[middle]
            ):
                continue
            for i in range(low, middle):
                scratch[i] = order[i]
            left, right, at = low, middle, low
            while left < middle and right < high:
                if _precedes(keys, starts, ends, prefixes, tags, order[right], scratch[left]):
                    order[at] = order[right]
                    right += 1
                else:
                    order[at] = scratch[left]
                    left += 1
                at += 1
            while left < middle:
                order[at] = scratch[left]
                left += 1
                at += 1
        width *= 2


# Keys, and sorting


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch: `data[ends[i] : ends[i + 1]]`."""

    data: Bytes
    ends: Int64s

    @classmethod
    def of(cls, array: pa.Array) -> Keys:
        if not len(array):
            return cls(np.empty(0, np.uint8), np.zeros(1, np.int64))
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_binary(array.type) else np.int32)
        content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return cls(content, ends[array.offset : array.offset + len(array) + 1].astype(np.int64))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.data[int(self.ends[row]) : int(self.ends[row + 1])].tobytes()

    def prefixes(self, skip: int) -> Int64s:
        prefixes = np.empty(len(self), np.int64)
        fill_prefixes(self.data, self.ends[:-1], self.ends[1:], skip, prefixes)
        return prefixes

    def first_rows(self, previous: bytes | None = None) -> tuple[Bools, int, int]:
        """Return which rows are the first of their key, how many are not, and the first row out of order, or -1."""
        first = np.empty(len(self), np.uint8)
        before = np.frombuffer(previous or b"", np.uint8)
        repeated, unsorted = mark_first(
            self.data, self.ends, len(self), before, int(previous is not None), first
        )
        return first.view(np.bool_), repeated, unsorted

    def bisect(self, key: bytes, low: int, *, right: bool) -> int:
        """Return the first row, from `low` on, whose key is not less than `key`; with `right`, whose key is greater."""
        high = len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle] < key or (right and self[middle] == key):
                low = middle + 1
            else:
                high = middle
        return low


def sequences(batch: pa.RecordBatch) -> Int64s:
    """Return the sequence numbers of a batch, without copying them."""
    column = batch.column("sequence")
    data = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.empty(0, np.int64)
    return data[column.offset : column.offset + len(column)]


def sorted_order(keys: Keys, tags: Int64s) -> Int64s:
    """Return the order of rows by key, then by descending tag. The sort is stable."""
    prefixes = keys.prefixes(common_prefix(keys.data, keys.ends, len(keys)))
    # Mostly this sorts all rows. The kernel sorts keys that differ after the prefix only, and equal ones.
    order: Int64s = np.argsort(prefixes, kind="stable")
    scratch = np.empty(len(keys), np.int64)
    _merge_sort(keys.data, keys.ends[:-1], keys.ends[1:], prefixes, tags, order, scratch)
    return order


# Merging


@dataclass(frozen=True)
class SortedRun:
    """Sorted rows. `first` and `last` are the first and the last key; `first` may be less, to have the run opened earlier."""

    first: bytes
    last: bytes
    batches: Callable[[], Iterator[pa.RecordBatch]]


class _Cursor:
    """The current batch of a run."""

    def __init__(self, number: int, run: SortedRun, tags: Tags, newest: bool) -> None:
        self.number, self._batches, self._tags, self._newest = number, run.batches(), tags, newest
        self.at = 0
        self.batch: pa.RecordBatch
        self.keys: Keys
        self.reach: tuple[bytes, int]
        """The key and the negated tag of the last row. With `newest` the key alone decides."""

    def fill(self) -> bool:
        """Go to the next batch. Returns False at the end of the run."""
        for batch in self._batches:
            if batch.num_rows:
                self.batch, self.keys, self.at = batch, Keys.of(batch.column("key")), 0
                last = len(self.keys) - 1
                tag = -_MAX if self._newest else int(self._tags(batch.slice(last))[0])
                self.reach = self.keys[last], -tag
                return True
        return False

    @property
    def head(self) -> bytes:
        return self.keys[self.at]

    @property
    def left(self) -> int:
        return len(self.keys) - self.at

    def count(self, reach: tuple[bytes, int]) -> int:
        """Return the number of rows up to and including this key and negated tag."""
        key, tag = reach
        low = self.keys.bisect(key, self.at, right=False)
        high = self.keys.bisect(key, low, right=True)
        if high > low and not self._newest:
            high = low + int(np.count_nonzero(-self._tags(self.batch.slice(low, high - low)) <= tag))
        return high - self.at

    def take(self, count: int) -> pa.RecordBatch:
        rows = self.batch.slice(self.at, count)
        self.at += count
        return rows


def merge(
    runs: Sequence[SortedRun], tags: Tags = sequences, *, newest: bool = False
) -> Iterator[pa.RecordBatch]:
    """Merge runs into one. Rows of the same key and tag come in the order of the runs; no run may have two of them.

    With `newest` only the first row of each key is kept; no run may then have a key twice. A run is opened once its first key is reached.
    """
    waiting = sorted(range(len(runs)), key=lambda i: runs[i].first, reverse=True)
    active: list[_Cursor] = []
    while active or waiting:
        while waiting and all(runs[waiting[-1]].first <= cursor.reach[0] for cursor in active):
            number = waiting.pop()
            cursor = _Cursor(number, runs[number], tags, newest)
            if cursor.fill():
                active.append(cursor)
        active.sort(key=lambda cursor: cursor.number)
        if active:
            yield _step(active, tags, newest)
        active = [cursor for cursor in active if cursor.left or cursor.fill()]


def _step(active: Sequence[_Cursor], tags: Tags, newest: bool) -> pa.RecordBatch:
    """Return the next rows, at least one."""
    heads = [cursor.head for cursor in active]
    first = min(range(len(active)), key=heads.__getitem__)
    cursor = active[first]
    others = heads[:first] + heads[first + 1 :]
    alone = cursor.keys.bisect(min(others), cursor.at, right=False) - cursor.at if others else cursor.left
    if alone == cursor.left or alone >= PASS_THROUGH:
        return cursor.take(alone)
    # Rows that have not been read yet may follow the least of the last keys.
    reach = min(cursor.reach for cursor in active)
    counts = [cursor.count(reach) for cursor in active]
    parts = [cursor.take(count) for cursor, count in zip(active, counts, strict=True) if count]
    if len(parts) > 1:
        return _merged(parts, tags, newest, _shared_prefix(heads[first], reach[0]))
    # A run whose last key is less than its first one is not sorted as it should be.
    return parts[0] if parts else cursor.take(max(alone, 1))


def _merged(parts: Sequence[pa.RecordBatch], tags: Tags, newest: bool, skip: int) -> pa.RecordBatch:
    """Merge batches whose keys share their first `skip` bytes."""
    keys = Keys.of(pa.concat_arrays([batch.column("key") for batch in parts]))
    bounds = np.cumsum([0, *(batch.num_rows for batch in parts)])
    order = np.empty(len(keys), np.int64)
    count, _ = merge_rows(
        keys.data, keys.ends[:-1], keys.ends[1:], keys.prefixes(skip), np.concatenate([tags(batch) for batch in parts]),
        bounds[:-1].copy(), bounds[1:], np.ones(len(parts), np.uint8), int(newest),
        np.empty(len(parts), np.int64), np.empty(len(parts), np.int64), order,
    )  # fmt: skip
    return gather(parts, bounds, order[:count])


def _shared_prefix(low: bytes, high: bytes) -> int:
    """Return the number of first bytes that all keys between two keys share."""
    shorter = min(len(low), len(high))
    return next((i for i in range(shorter) if low[i] != high[i]), shorter)


def gather(batches: Sequence[pa.RecordBatch], bounds: Int64s, order: Int64s) -> pa.RecordBatch:
    """Return rows of several batches in the given order. Row `bounds[i] + j` is row `j` of batch `i`."""
    if sum(batch.get_total_buffer_size() for batch in batches) < MAX_JOINED:
        return pa.concat_batches(batches).take(pa.array(order))
    # Joined they might be too long for one column: take only the needed rows of each.
    batch_of = np.searchsorted(bounds, order, "right") - 1
    parts, places = [], []
    for i, batch in enumerate(batches):
        place = np.flatnonzero(batch_of == i)
        parts.append(batch.take(pa.array(order[place] - bounds[i])))
        places.append(place)
    back = np.empty(len(order), np.int64)
    back[np.concatenate(places)] = np.arange(len(order))
    return pa.concat_batches(parts).take(pa.array(back))
