"""Find the state of each operation of runs in unknown order, key by key, in bounded memory.

A hash splits the keys into partitions that fit in memory, each of which is one pass over the runs. The result is one byte per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.engine.merge import Keys, sequences, sorted_order
from logwright.codec.kernels.intrinsics import load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.store.newest import Shape
from logwright.codec.store.view import RowStream
from logwright.codec.window import Bytes

UNREFERENCED, LIVE, OVERWRITTEN, DELETED = range(4)
STATE_NAMES = ("unreferenced", "live", "overwritten", "deleted")
"""Names of the states of an operation, by number."""

BUDGET = 256 << 20
"""Limit in bytes for keys in memory."""
_PER_KEY = 48
"""Bytes that a key takes in addition to its own."""
_ODD, _LOW = 0x45D9F3B, 0xFFFFFFFF


@kernel("const u1[], const i8[], i8, i8, i8, u1[]")
def hash_partition(keys: Bytes, ends: Int64s, rows: int, parts: int, part: int, chosen: Bytes) -> None:
    """Mark the keys whose hash falls in partition `part` of `parts`, a power of two."""
    for i in range(rows):
        at, end = ends[i], ends[i + 1]
        number = int(end - at)
        while at + 4 <= end:
            number = (number ^ load_u32be(keys, at)) * _ODD
            number = (number ^ number >> 24) & _LOW
            at += 4
        while at < end:
            number = (number ^ load_u8(keys, at)) * _ODD
            number = (number ^ number >> 24) & _LOW
            at += 1
        number = number * _ODD >> 8
        chosen[i] = 1 if number & parts - 1 == part else 0


class EntryStates:
    """The state of each row of several runs, in order. Rows of a run that is not `referenced` stay `UNREFERENCED`."""

    def __init__(
        self,
        runs: Sequence[RowStream],
        referenced: Sequence[bool],
        visible: Sequence[int | None],
        budget: int,
        order: Comparator = BYTEWISE_COMPARATOR,
    ) -> None:
        """`visible` is the largest visible sequence number for each run, None for no limit. `order` decides which keys are equal."""
        self.runs, self.budget, self.order = runs, budget, order
        self.shapes = [
            Shape("type", limit) if counts else None
            for counts, limit in zip(referenced, visible, strict=True)
        ]
        self.states = np.zeros(0, np.uint8)

    def compute(self) -> EntryStates:
        """Determine the states of all rows."""
        todo = [(1, 0)]
        while todo:
            parts, part = todo.pop()
            parts = self._pass(parts, part, todo)
        return self

    def _pass(self, parts: int, part: int, todo: list[tuple[int, int]]) -> int:
        """Process a partition of the keys. If it does not fit, add the remaining parts to `todo` and process a smaller one."""
        held: list[tuple[pa.Array, Int64s, Int64s]] = []
        size = row = 0
        for batch, shape in self._batches():
            numbers = np.arange(row, row + batch.num_rows)
            row += batch.num_rows
            if shape is None:
                continue
            if parts > 1:
                chosen = self._chosen(batch.column("key"), parts, part)
                batch, numbers = batch.filter(pa.array(chosen)), numbers[chosen]
            if shape.visible is not None:
                seen = sequences(batch) <= shape.visible
                batch, numbers = batch.filter(pa.array(seen)), numbers[seen]
            held.append((batch.column("key"), shape.tags(batch), numbers))
            size += _size(held[-1])
            while size > self.budget and parts < 1 << 30:
                todo.append((2 * parts, part + parts))
                parts *= 2
                held = [self._halved(batch_keys, parts, part) for batch_keys in held]
                size = sum(map(_size, held))
        if len(self.states) < row:
            self.states = np.concatenate((self.states, np.zeros(row - len(self.states), np.uint8)))
        self._set_states(held)
        return parts

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, Shape | None]]:
        for run, shape in zip(self.runs, self.shapes, strict=True):
            for batch in run.survey(("key", "sequence", "type")):
                if not self.order.bytewise:
                    batch = batch.set_column(0, batch.schema.field(0), self.order.column(batch.column(0)))
                yield batch, shape

    def _halved(
        self, entries: tuple[pa.Array, Int64s, Int64s], parts: int, part: int
    ) -> tuple[pa.Array, Int64s, Int64s]:
        keys, tags, numbers = entries
        chosen = self._chosen(keys, parts, part)
        return keys.filter(pa.array(chosen)), tags[chosen], numbers[chosen]

    def _chosen(self, array: pa.Array, parts: int, part: int) -> Bools:
        keys = Keys.of(array)
        chosen = np.empty(len(keys), np.uint8)
        hash_partition(keys.data, keys.ends, len(keys), parts, part, chosen)
        return chosen.view(np.bool_)

    def _set_states(self, held: Sequence[tuple[pa.Array, Int64s, Int64s]]) -> None:
        """Set the state of each row by the next newer row of its key."""
        if not held:
            return
        array = pa.concat_arrays([keys for keys, _, _ in held])
        tags = np.concatenate([batch_tags for _, batch_tags, _ in held])
        numbers = np.concatenate([rows for _, _, rows in held])
        order = sorted_order(Keys.of(array), tags)
        first, _, _ = Keys.of(array.take(pa.array(order))).first_rows()
        values = tags[order] & 1
        # Newest first: the next newer row is the previous one, if it has the same key.
        newer = np.concatenate((values[:1], values[:-1]))
        states = np.where(
            first, np.where(values == 1, LIVE, DELETED), np.where(newer == 1, OVERWRITTEN, DELETED)
        )
        self.states[numbers[order]] = states

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Bytes]]:
        """Return all rows with these columns, and their states."""
        row = 0
        for run in self.runs:
            for batch in run(columns):
                states = self.states[row : row + batch.num_rows]
                row += batch.num_rows
                # A log that grew in the meantime has rows without a state.
                yield batch.slice(0, len(states)), states


def _size(entries: tuple[pa.Array, Int64s, Int64s]) -> int:
    return int(entries[0].nbytes) + _PER_KEY * len(entries[0])
