"""Merging sorted runs on columns: which rows come next is found by kernels on the keys, rows themselves are moved as Arrow columns.

A run is record batches in the order of internal keys, whose user keys are ordered byte by byte. The newest row of each key is kept;
deletions hide older rows and are dropped at the end. Where only one run has keys, its rows pass through as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.kernels.intrinsics import load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_SIGN = -(1 << 63)
"""Two numbers compare unsigned as their sums with it compare signed."""
PASS = 1024
"""So many rows that no other run has keys among are worth a batch of their own."""
PIECE = 64 << 20
"""Bytes of unsorted rows that are gathered before they are sorted."""
LARGEST = 1 << 30
"""Bytes of keys and values in a batch that is made here: Arrow's offsets have 32 bits."""


@kernel("const u1[], i8, i8, const u1[], i8, i8")
def compare(a: Bytes, a_at: int, a_end: int, b: Bytes, b_at: int, b_end: int) -> int:
    """Negative, 0 or positive, as one key comes before, is, or comes behind another (`BytewiseComparator`)."""
    most = min(a_end - a_at, b_end - b_at)
    i = 0
    while i + 8 <= most:
        x, y = load_i64be(a, a_at + i), load_i64be(b, b_at + i)
        if x != y:
            return -1 if x ^ _SIGN < y ^ _SIGN else 1
        i += 8
    if most >= 8 and i < most:
        # The last eight bytes, of which some are known to be the same.
        x, y = load_i64be(a, a_at + most - 8), load_i64be(b, b_at + most - 8)
        if x != y:
            return -1 if x ^ _SIGN < y ^ _SIGN else 1
        i = most
    while i < most:
        difference = load_u8(a, a_at + i) - load_u8(b, b_at + i)
        if difference:
            return difference
        i += 1
    return a_end - a_at - (b_end - b_at)


@kernel("const u1[], i8, i8, i8")
def prefix(keys: Bytes, at: int, end: int, skip: int) -> int:
    """Eight bytes of a key from `skip` on as a number that compares as they do, as if zeros followed it."""
    at = min(at + skip, end)
    if end - at >= 8:
        return load_i64be(keys, at) ^ _SIGN
    number = (load_u8(keys, at) if at < end else 0) - 128
    for i in range(1, 8):
        number = number << 8 | (load_u8(keys, at + i) if at + i < end else 0)
    return number


@kernel("const u1[], const i4[], i8, const u1[], i8, u1[]")
def firsts(keys: Bytes, ends: Int32s, rows: int, last: Bytes, known: int, keep: Bytes) -> tuple[int, int]:
    """Mark the first row of each key, of rows in order; `last` is the key before them where `known`.

    Returns the number of rows that are not, and the first row whose key comes before the one before it, or -1.
    """
    dropped, wrong = 0, -1
    for i in range(rows):
        at, end = ends[i], ends[i + 1]
        order = 1
        if i:
            before = ends[i - 1]
            most = min(end - at, at - before)
            if most >= 8:
                # `compare`, written out: a call costs more than this.
                done = 8
                x, y = load_i64be(keys, at), load_i64be(keys, before)
                while x == y and done < most:
                    done = min(done + 8, most)
                    x, y = load_i64be(keys, at + done - 8), load_i64be(keys, before + done - 8)
                order = end - at - (at - before)
                if x != y:
                    order = -1 if x ^ _SIGN < y ^ _SIGN else 1
            else:
                order = compare(keys, at, end, keys, before, at)
        elif known:
            order = compare(keys, at, end, last, 0, len(last))
        keep[i] = 1 if order else 0
        if order == 0:
            dropped += 1
        elif order < 0 and wrong < 0:
            wrong = i
    return dropped, wrong


@kernel("const u1[], const i4[], const i8[], const i8[], i8, i8")
def _before(keys: Bytes, ends: Int32s, heads: Int64s, tags: Int64s, i: int, j: int) -> bool:
    """Whether row `i` comes before row `j`: by key, then the newer first, then the one of the earlier run."""
    if heads[i] != heads[j]:
        return bool(heads[i] < heads[j])
    order = compare(keys, ends[i], ends[i + 1], keys, ends[j], ends[j + 1])
    if order:
        return order < 0
    if tags[i] != tags[j]:
        return bool(tags[i] > tags[j])
    return i < j


@kernel("const u1[], const i4[], const i8[], const i8[], i8[], i8[], i8, i8")
def _sink(
    keys: Bytes,
    ends: Int32s,
    heads: Int64s,
    tags: Int64s,
    heap: Int64s,
    runs: Int64s,
    size: int,
    at: int,
) -> None:
    """Put the row at a place of the heap where it belongs."""
    row, run = heap[at], runs[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(keys, ends, heads, tags, heap[child + 1], heap[child]):
            child += 1
        if not _before(keys, ends, heads, tags, heap[child], row):
            break
        heap[at], runs[at] = heap[child], runs[child]
        at = child
    heap[at], runs[at] = row, run


@kernel("const u1[], const i4[], i8, i8, i8[]")
def prefixes(keys: Bytes, ends: Int32s, rows: int, skip: int, heads: Int64s) -> None:
    """`prefix` of each key."""
    for i in range(rows):
        heads[i] = prefix(keys, ends[i], ends[i + 1], skip)


@kernel("const u1[], const i4[], const i8[], const i8[], const i8[], i8[], i8[], i8[]")
def newest(
    keys: Bytes,
    ends: Int32s,
    heads: Int64s,
    tags: Int64s,
    stops: Int64s,
    heap: Int64s,
    runs: Int64s,
    order: Int64s,
) -> int:
    """Merge runs that lie one behind the other, each of one row at least and without repetition of a key: run `r` is rows
    `[stops[r], stops[r + 1])`.

    Puts the rows that are the newest of their keys into `order`, in order, and returns how many. A tag is a sequence number and
    in its lowest bit whether it is a value. `heap` and `runs` have room for a number a run.
    """
    size = len(stops) - 1
    for r in range(size):
        heap[r], runs[r] = stops[r], r
    for at in range(size // 2 - 1, -1, -1):
        _sink(keys, ends, heads, tags, heap, runs, size, at)
    found = 0
    while size:
        row, run = heap[0], runs[0]
        last = order[found - 1] if found else -1
        if (
            last < 0
            or heads[last] != heads[row]
            or compare(keys, ends[last], ends[last + 1], keys, ends[row], ends[row + 1]) != 0
        ):
            order[found] = row
            found += 1
        if row + 1 < stops[run + 1]:
            heap[0] = row + 1
        else:
            size -= 1
            heap[0], runs[0] = heap[size], runs[size]
        if size > 1:
            _sink(keys, ends, heads, tags, heap, runs, size, 0)
    return found


@kernel("const u1[], const i4[], const i8[], const i8[], i8[], i8[]")
def sort(keys: Bytes, ends: Int32s, heads: Int64s, tags: Int64s, order: Int64s, scratch: Int64s) -> None:
    """Sort rows as `_before` has them: `order` comes with all rows, and leaves with them in order."""
    rows = len(order)
    width = 1
    while width < rows:
        # Where neighbours are in order already nothing moves.
        for low in range(0, rows, 2 * width):
            middle, high = min(low + width, rows), min(low + 2 * width, rows)
            if middle >= high or _before(keys, ends, heads, tags, order[middle - 1], order[middle]):
                continue
            for i in range(low, middle):
                scratch[i] = order[i]
            left, right, at = low, middle, low
            while left < middle and right < high:
                if _before(keys, ends, heads, tags, order[right], scratch[left]):
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


@kernel("const u1[], const i4[], i8")
def in_common(keys: Bytes, ends: Int32s, rows: int) -> int:
    """So many first bytes are the same in all keys."""
    most = int(ends[1] - ends[0]) if rows else 0
    for i in range(1, rows):
        at, first = ends[i], ends[0]
        most = min(most, ends[i + 1] - at)
        same = 0
        while same < most and load_u8(keys, at + same) == load_u8(keys, first + same):
            same += 1
        most = same
    return most


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch: `data[ends[i] : ends[i + 1]]`."""

    data: Bytes
    ends: Int32s

    @classmethod
    def of(cls, array: pa.Array) -> Keys:
        _, ends, data = array.buffers()
        bytes_ = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        found = np.zeros(1, np.int32) if ends is None else np.frombuffer(ends, np.int32)
        return cls(bytes_, found[array.offset : array.offset + len(array) + 1])

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.data[int(self.ends[row]) : int(self.ends[row + 1])].tobytes()

    def below(self, key: bytes, low: int, *, included: bool) -> int:
        """The first row from `low` on whose key is larger, or (without `included`) not smaller."""
        high = len(self)
        while low < high:
            middle = (low + high) // 2
            found = self[middle]
            if found < key or (included and found == key):
                low = middle + 1
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns the batches of runs have. `marker` tells deletions: "value", which is null then, or "type"; None: there are
    none. `visible` is the largest sequence number that counts; None: all do."""

    marker: str | None
    visible: int | None = None

    def values(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
        """Which rows are values; None where all are."""
        if self.marker is None:
            return None
        column = batch.column(self.marker)
        if self.marker == "value":
            return _bools(column.is_valid()) if column.null_count else None
        found = _bools(pc.equal(column, "value"))
        return None if found.all() else found

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that count."""
        if self.visible is None:
            return batch
        sequence = sequences(batch)
        if not len(sequence) or int(sequence.max()) <= self.visible:
            return batch
        return batch.filter(pa.array(sequence <= self.visible))

    def tags(self, batch: pa.RecordBatch) -> Int64s:
        """Of each row its sequence number, and in the lowest bit whether it is a value."""
        values = self.values(batch)
        number: Int64s = sequences(batch) << 1 | (1 if values is None else values)
        return number


def sequences(batch: pa.RecordBatch) -> Int64s:
    """The sequence numbers of a batch, not copied."""
    column = batch.column("sequence")
    data = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.empty(0, np.int64)
    return data[column.offset : column.offset + len(column)]


def _bools(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(array)
    return found


class _Cursor:
    """A run, as far as it has been read: rows without repetition of a key, deletions too."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], shape: Shape, disorder: Callable[[bytes, bytes], None]
    ) -> None:
        self._batches, self._shape, self._disorder = batches, shape, disorder
        self._reached: bytes | None = None
        self.at = 0
        self.batch: pa.RecordBatch
        self.keys: Keys
        self.last = b""

    def fill(self) -> bool:
        """Have rows; False where the run has ended."""
        while True:
            batch = next(self._batches, None)
            if batch is None:
                return False
            batch = self._shape.seen(batch)
            if not batch.num_rows:
                continue
            batch = self._unrepeated(batch)
            if batch.num_rows:
                self.batch, self.keys, self.at = batch, Keys.of(batch.column("key")), 0
                return True

    def _unrepeated(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = Keys.of(batch.column("key"))
        keep = np.empty(len(keys), np.uint8)
        last = np.frombuffer(self._reached or b"", np.uint8)
        dropped, wrong = firsts(keys.data, keys.ends, len(keys), last, int(self._reached is not None), keep)
        if wrong >= 0:
            before = keys[wrong - 1] if wrong else self._reached or b""
            self._disorder(before, keys[wrong])
        self._reached = self.last = keys[len(keys) - 1]
        return batch.filter(pa.array(keep.view(np.bool_))) if dropped else batch

    @property
    def head(self) -> bytes:
        return self.keys[self.at]

    @property
    def left(self) -> int:
        return len(self.keys) - self.at

    def take(self, count: int) -> pa.RecordBatch:
        taken = self.batch.slice(self.at, count)
        self.at += count
        return taken


def merge(
    runs: Sequence[Iterable[pa.RecordBatch]], shape: Shape, disorder: Callable[[bytes, bytes], None]
) -> Iterator[pa.RecordBatch]:
    """The newest row of each key, in order, where that is a value. An earlier run wins where two rows are equally new.

    `disorder` is told of two keys of a run that are not in order: what comes out then is what LevelDB might give, or might not.
    """
    cursors = [_Cursor(iter(one), shape, disorder) for one in runs]
    active = [cursor for cursor in cursors if cursor.fill()]
    while active:
        if len(active) == 1:
            found = active[0].take(active[0].left)
        else:
            found = _step(active, shape)
        yield values_only(found, shape)
        active = [cursor for cursor in active if cursor.left or cursor.fill()]


def values_only(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """Without deletions."""
    values = shape.values(batch)
    return batch if values is None else batch.filter(pa.array(values))


def _step(active: Sequence[_Cursor], shape: Shape) -> pa.RecordBatch:
    """The next rows of several runs, one at least."""
    heads = [cursor.head for cursor in active]
    first = min(range(len(active)), key=heads.__getitem__)
    cursor = active[first]
    following = min(head for i, head in enumerate(heads) if i != first)
    alone = cursor.keys.below(following, cursor.at, included=False) - cursor.at
    if alone == cursor.left or alone >= PASS:
        return cursor.take(alone)
    # Behind the smallest of the last keys there may be rows that are not read yet.
    bound = min(one.last for one in active)
    taken = []
    for one in active:
        count = one.keys.below(bound, one.at, included=True) - one.at
        if count:
            taken.append(one.take(count))
    if not taken:
        # A last key below the first: a run in another order, of which nothing is known where there is no manifest.
        return cursor.take(max(alone, 1))
    return _merged(taken, shape, heads[first], bound)


def _merged(taken: Sequence[pa.RecordBatch], shape: Shape, low: bytes, high: bytes) -> pa.RecordBatch:
    """The newest rows of some batches, deletions too. All keys lie between `low` and `high`."""
    keys = Keys.of(pa.concat_arrays([batch.column("key") for batch in taken]))
    tags = np.concatenate([shape.tags(batch) for batch in taken])
    stops = np.cumsum([0, *(batch.num_rows for batch in taken)])
    rows, most = len(keys), len(taken)
    heads, order = np.empty(rows, np.int64), np.empty(rows, np.int64)
    prefixes(keys.data, keys.ends, rows, shared(low, high), heads)
    heap, scratch = np.empty(most, np.int64), np.empty(most, np.int64)
    count = newest(keys.data, keys.ends, heads, tags, stops, heap, scratch, order)
    return gather(taken, stops, order[:count])


def shared(low: bytes, high: bytes) -> int:
    """So many first bytes have all keys between these in common."""
    most = min(len(low), len(high))
    return next((i for i in range(most) if low[i] != high[i]), most)


def gather(batches: Sequence[pa.RecordBatch], stops: Int64s, order: Int64s) -> pa.RecordBatch:
    """Rows of several batches in the order given; row `stops[i] + j` is row `j` of batch `i`."""
    if sum(batch.get_total_buffer_size() for batch in batches) < LARGEST:
        return pa.concat_batches(batches).take(pa.array(order))
    # Put together they might be too long for one column: only what is wanted of each.
    which = np.searchsorted(stops, order, "right") - 1
    pieces, places = [], []
    for i, batch in enumerate(batches):
        place = np.flatnonzero(which == i)
        pieces.append(batch.take(pa.array(order[place] - stops[i])))
        places.append(place)
    back = np.empty(len(order), np.int64)
    back[np.concatenate(places)] = np.arange(len(order))
    return pa.concat_batches(pieces).take(pa.array(back))


def sorting(keys: Keys, tags: Int64s) -> Int64s:
    """The order of rows by key, then the newer first, then as they come."""
    rows = len(keys)
    heads = np.empty(rows, np.int64)
    prefixes(keys.data, keys.ends, rows, in_common(keys.data, keys.ends, rows), heads)
    # Mostly that is all; what is left to the kernel are keys that differ further behind, or not at all.
    order: Int64s = np.argsort(heads, kind="stable")
    sort(keys.data, keys.ends, heads, tags, order, np.empty(rows, np.int64))
    return order


def ordered(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The newest row of each key of unsorted rows, deletions too, in order; of rows equally new the first."""
    rows = batch.num_rows
    order = sorting(Keys.of(batch.column("key")), shape.tags(batch))
    found = Keys.of(batch.column("key").take(pa.array(order)))
    keep = np.empty(rows, np.uint8)
    firsts(found.data, found.ends, rows, np.empty(0, np.uint8), 0, keep)
    chosen = order[keep.view(np.bool_)]
    if len(chosen) == rows and bool((np.diff(chosen) == 1).all()):
        return batch
    return batch.take(pa.array(chosen))


def sorted_run(batches: Iterable[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    """Unsorted rows as a run: the newest of each key. Memory is bounded by these and `PIECE`, twice."""
    held: list[pa.RecordBatch] = []
    size, most = 0, PIECE
    for batch in batches:
        batch = shape.seen(batch)
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= most:
            held = [ordered(_joined(held), shape)]
            size = held[0].nbytes
            most = max(PIECE, 2 * size)
    if held:
        yield ordered(_joined(held), shape)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
