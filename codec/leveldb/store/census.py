"""What becomes of each operation of some runs whose order is not known or does not matter: found key by key, in bounded memory.

All keys are gone through once, as many as fit in memory at a time, chosen by a hash where they don't all; a byte for each row says
what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.engine.merge import Int64s, Keys, sequences, sorted_order
from logwright.codec.kernels.intrinsics import load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.store.newest import Shape
from logwright.codec.store.view import RowStream
from logwright.codec.window import Bytes

UNREFERENCED, LIVE, OVERWRITTEN, DELETED = range(4)
STATE_NAMES = ("unreferenced", "live", "overwritten", "deleted")
"""What became of an operation, by number."""

BUDGET = 256 << 20
"""Bytes of keys that are held at a time."""
_PER_KEY = 48
"""What is held for each key besides its bytes."""
_ODD, _LOW = 0x45D9F3B, 0xFFFFFFFF


@kernel("const u1[], const i8[], i8, i8, i8, u1[]")
def among(keys: Bytes, ends: Int64s, rows: int, parts: int, part: int, chosen: Bytes) -> None:
    """Mark the keys that are of one part of so many (a power of two), by a hash."""
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


class Census:
    """The states of the rows of some runs, one after the other: those of a run that is not `referenced` stay `UNREFERENCED`."""

    def __init__(
        self,
        runs: Sequence[RowStream],
        referenced: Sequence[bool],
        visible: Sequence[int | None],
        budget: int,
        order: Comparator = BYTEWISE_COMPARATOR,
    ) -> None:
        """`visible` has for each run the largest sequence number that counts in it, None where all do. `order` says which keys are
        the same."""
        self.runs, self.budget, self.order = runs, budget, order
        self.shapes = [
            Shape("type", limit) if counts else None
            for counts, limit in zip(referenced, visible, strict=True)
        ]
        self.states = np.zeros(0, np.uint8)

    def take(self) -> Census:
        """Go through all of them."""
        todo = [(1, 0)]
        while todo:
            parts, part = todo.pop()
            parts = self._pass(parts, part, todo)
        return self

    def _pass(self, parts: int, part: int, todo: list[tuple[int, int]]) -> int:
        """One part of the keys; more parts are made of it where it does not fit."""
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
                held = [self._halved(one, parts, part) for one in held]
                size = sum(map(_size, held))
        if len(self.states) < row:
            self.states = np.concatenate((self.states, np.zeros(row - len(self.states), np.uint8)))
        self._judge(held)
        return parts

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, Shape | None]]:
        for run, shape in zip(self.runs, self.shapes, strict=True):
            for batch in run(("key", "sequence", "type")):
                if not self.order.bytewise:
                    batch = batch.set_column(0, batch.schema.field(0), self.order.column(batch.column(0)))
                yield batch, shape

    def _halved(
        self, one: tuple[pa.Array, Int64s, Int64s], parts: int, part: int
    ) -> tuple[pa.Array, Int64s, Int64s]:
        keys, tags, numbers = one
        chosen = self._chosen(keys, parts, part)
        return keys.filter(pa.array(chosen)), tags[chosen], numbers[chosen]

    def _chosen(self, array: pa.Array, parts: int, part: int) -> npt.NDArray[np.bool_]:
        keys = Keys.of(array)
        chosen = np.empty(len(keys), np.uint8)
        among(keys.data, keys.ends, len(keys), parts, part, chosen)
        return chosen.view(np.bool_)

    def _judge(self, held: Sequence[tuple[pa.Array, Int64s, Int64s]]) -> None:
        """Say of each of these rows what comes next of its key."""
        if not held:
            return
        array = pa.concat_arrays([keys for keys, _, _ in held])
        tags = np.concatenate([one for _, one, _ in held])
        numbers = np.concatenate([one for _, _, one in held])
        order = sorted_order(Keys.of(array), tags)
        first, _, _ = Keys.of(array.take(pa.array(order))).first_rows()
        values = tags[order] & 1
        # Newest first: a row's successor is the one before it, where that is of the same key.
        newer = np.concatenate((values[:1], values[:-1]))
        states = np.where(
            first, np.where(values == 1, LIVE, DELETED), np.where(newer == 1, OVERWRITTEN, DELETED)
        )
        self.states[numbers[order]] = states

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.uint8]]]:
        """All rows with these columns, and their states."""
        row = 0
        for run in self.runs:
            for batch in run(columns):
                states = self.states[row : row + batch.num_rows]
                row += batch.num_rows
                # A log that grew meanwhile has rows that nobody judged.
                yield batch.slice(0, len(states)), states


def _size(one: tuple[pa.Array, Int64s, Int64s]) -> int:
    return int(one[0].nbytes) + _PER_KEY * len(one[0])
