"""The newest row of each key: of sorted runs that are merged, and of unsorted rows. Deletions hide older rows and are dropped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.merge import Keys, SortedRun, merge, sequences, sorted_order

SORT_BYTES = 64 << 20
"""Bytes of unsorted rows that are collected before they are sorted."""
OnDisorder = Callable[[bytes, bytes], None]
"""Called with two keys of a run that are not in order, or one whose rows are not. LevelDB may or may not return the rows that come out then."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of the batches of runs. The column `marker` identifies deletions: "value", which is null for them, or "type"; None if
    there are no deletions. `visible` is the largest visible sequence number; None for no limit."""

    marker: str | None
    visible: int | None = None

    def values(self, batch: pa.RecordBatch) -> Bools | None:
        """Return which rows are values; None if all are."""
        if self.marker is None:
            return None
        column = batch.column(self.marker)
        if self.marker == "value":
            return np.asarray(column.is_valid()) if column.null_count else None
        values = np.asarray(pc.equal(column, "value"))
        return None if values.all() else values

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the visible rows."""
        if self.visible is None:
            return batch
        sequence = sequences(batch)
        if not len(sequence) or int(sequence.max()) <= self.visible:
            return batch
        return batch.filter(pa.array(sequence <= self.visible))

    def tags(self, batch: pa.RecordBatch) -> Int64s:
        """Return the sequence number of each row, and in the lowest bit whether it is a value."""
        values = self.values(batch)
        tags: Int64s = sequences(batch) << 1 | (1 if values is None else values)
        return tags

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are values."""
        values = self.values(batch)
        return batch if values is None else batch.filter(pa.array(values))


def merge_newest(
    runs: Sequence[Iterable[pa.RecordBatch]], shape: Shape, on_disorder: OnDisorder
) -> Iterator[pa.RecordBatch]:
    """Return the newest row of each key, in order, if it is a value. An earlier run wins where two rows are equally new."""
    sorted_runs = [SortedRun(b"", b"", partial(_distinct, run, shape, on_disorder)) for run in runs]
    return map(shape.live, merge(sorted_runs, shape.tags, newest=True))


def _distinct(
    batches: Iterable[pa.RecordBatch], shape: Shape, on_disorder: OnDisorder
) -> Iterator[pa.RecordBatch]:
    """Return the visible rows of a run without repetition of a key."""
    previous: bytes | None = None
    last = 0
    """The sequence number of the row before the batch."""
    for batch in map(shape.seen, batches):
        if not batch.num_rows:
            continue
        keys = Keys.of(batch.column("key"))
        first, repeated, unsorted = keys.first_rows(previous)
        if unsorted >= 0:
            on_disorder(keys[unsorted - 1] if unsorted else previous or b"", keys[unsorted])
        sequence = sequences(batch)
        if repeated:
            newer = np.flatnonzero(~first & (np.diff(sequence, prepend=last) > 0))
            if len(newer):
                on_disorder(keys[int(newer[0])], keys[int(newer[0])])
        previous, last = keys[len(keys) - 1], int(sequence[-1])
        yield batch.filter(pa.array(first)) if repeated else batch


def first_disorder(batches: Iterable[pa.RecordBatch], shape: Shape) -> tuple[bytes, bytes] | None:
    """Return the first two keys of a run that are not in order; a key twice if its rows are not, the newest first; else None."""
    pairs: list[tuple[bytes, bytes]] = []
    for _ in _distinct(batches, shape, lambda before, key: pairs.append((before, key))):
        if pairs:
            break
    return pairs[0] if pairs else None


def sort_newest(batches: Iterable[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    """Sort rows and return the newest of each key as a run. Memory is bounded by twice their size and `SORT_BYTES`."""
    held: list[pa.RecordBatch] = []
    size, limit = 0, SORT_BYTES
    for batch in map(shape.seen, batches):
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= limit:
            held = [_newest(held, shape)]
            size = held[0].nbytes
            limit = max(SORT_BYTES, 2 * size)
    if held:
        yield _newest(held, shape)


def _newest(batches: Sequence[pa.RecordBatch], shape: Shape) -> pa.RecordBatch:
    """Return the newest row of each key, deletions too, in order. Of rows equally new the first is kept."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    order = sorted_order(Keys.of(batch.column("key")), shape.tags(batch))
    first, _, _ = Keys.of(batch.column("key").take(pa.array(order))).first_rows()
    order = order[first]
    return batch if len(order) == len(batch) and (np.diff(order) == 1).all() else batch.take(pa.array(order))
