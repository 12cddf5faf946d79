"""The memtable that a log's batches fill: when it is full, and in which order it is written out.

How much memory the operations take decides how many tables are written from a log. The heights in the skip list are deterministic, since
its random numbers start from a constant seed.

Source: `db/memtable.cc`, `db/skiplist.h`, `util/arena.cc`, `util/random.h` of LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import numbers, one_batch
from logwright.codec.deferred import compute as pc
from logwright.codec.kernels.intrinsics import size_uvarlong
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.formats.log.codec import COLUMNS, Operations
from logwright.codec.leveldb.formats.log.layout import OPERATIONS, STATUS
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.keys import TRAILER_SIZE, TYPE_NAMES
from logwright.codec.window import Bytes

USED, LEFT, PLACE, SEED = range(4)
"""State of an arena and its skip list: bytes in use, bytes left in the block, alignment of these modulo 8, and the last random number."""
_ARENA_BLOCK = 4096
_LARGE = _ARENA_BLOCK // 4
"""A larger allocation gets a block of exactly its size."""
_POINTER = 8
_NODE = 8
"""Bytes of a skip list node without its links."""
_MAX_HEIGHT, _BRANCHING = 12, 4
_SEED = 0xDEADBEEF & 0x7FFFFFFF
_MODULUS, _FACTOR = 2147483647, 16807


@kernel("i8[], i8")
def _allocate(state: Int64s, size: int) -> None:
    """`Arena::Allocate`."""
    if size <= state[LEFT]:
        state[LEFT] -= size
        state[PLACE] = (state[PLACE] + size) % _POINTER
    elif size > _LARGE:
        state[USED] += size + _POINTER
    else:
        state[USED] += _ARENA_BLOCK + _POINTER
        state[LEFT] = _ARENA_BLOCK - size
        state[PLACE] = size % _POINTER


@kernel("i8[], i8")
def _allocate_aligned(state: Int64s, size: int) -> None:
    """`Arena::AllocateAligned`, for a node."""
    slop = (_POINTER - state[PLACE]) % _POINTER
    if size + slop <= state[LEFT]:
        _allocate(state, size + slop)
    else:
        # Blocks start aligned, and nodes are never large.
        state[LEFT] = 0
        _allocate(state, size)


@kernel("const i8[], i8, const i8[], const i8[], i8, i8[]")
def take(counts: Int64s, first: int, keys: Int64s, values: Int64s, limit: int, state: Int64s) -> int:
    """Add the operations of batches, `counts[i]` each. Their key and value sizes start at `keys[first]`. Returns the batch that takes
    the memory in use above `limit` bytes, or the number of batches."""
    row = first
    for i in range(len(counts)):
        for _ in range(counts[i]):
            key = keys[row] + TRAILER_SIZE
            _allocate(state, size_uvarlong(key) + key + size_uvarlong(values[row]) + values[row])
            height = 1
            while height < _MAX_HEIGHT:
                state[SEED] = state[SEED] * _FACTOR % _MODULUS
                if state[SEED] % _BRANCHING != 0:
                    break
                height += 1
            _allocate_aligned(state, _NODE + _POINTER * height)
            row += 1
        if state[USED] > limit:
            return i
    return len(counts)


def fresh() -> Int64s:
    """Return the state of an empty memtable, which has the head of its list."""
    state = np.array([0, 0, 0, _SEED], np.int64)
    _allocate_aligned(state, _NODE + _POINTER * _MAX_HEIGHT)
    return state


@dataclass(slots=True)
class Applied:
    """The operations of some batches, and for each batch their number and its status (`formats.log.layout.MESSAGES`)."""

    rows: pa.RecordBatch
    """Columns `key`, `value`, `sequence`, `type`, and `position`, the byte of the log where the operation's record starts."""
    counts: Int64s
    status: Int64s
    key_sizes: Int64s
    value_sizes: Int64s

    @classmethod
    def of(cls, records: Payloads, positions: Int64s) -> Applied:
        """Apply `WriteBatch::Iterate` to each record. A record has at least twelve bytes."""
        operations = Operations.of(records)
        arrays = [operations.column(name) for name in COLUMNS]
        arrays.append(numbers(pa.int64(), positions[operations.which]))
        rows = pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS, "position"])
        sizes = (np.diff(ends).astype(np.int64) for ends in (operations.key_ends, operations.value_ends))
        return cls(rows, operations.measured[:, OPERATIONS], operations.measured[:, STATUS], *sizes)

    def first(self, batches: int) -> Applied:
        """Return the first `batches` batches."""
        rows = int(self.counts[:batches].sum())
        return Applied(
            self.rows.slice(0, rows),
            self.counts[:batches],
            self.status[:batches],
            self.key_sizes[:rows],
            self.value_sizes[:rows],
        )


class MemTable:
    """Operations in memory."""

    def __init__(self, order: Comparator = BYTEWISE_COMPARATOR) -> None:
        self.order = order
        self.state = fresh()
        self._parts: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add operations (`Applied.rows`)."""
        if rows.num_rows:
            self._parts.append(rows)

    def sorted(self) -> pa.RecordBatch | None:
        """Return all operations in the order of internal keys, or None without any. Of two operations with the same internal key
        the later one wins."""
        if not self._parts:
            return None
        table = pa.Table.from_batches(self._parts).combine_chunks()
        kind = np.asarray(pc.equal(table["type"], TYPE_NAMES[1])).astype(np.int64)
        columns = {
            "key": self.order.column(table["key"].combine_chunks()),
            "trailer": numbers(pa.int64(), -(np.asarray(table["sequence"]) << 1 | kind)),
            "order": numbers(pa.int64(), -np.arange(table.num_rows)),
        }
        keys = [(name, "ascending") for name in columns]
        rows = one_batch(table.take(pc.sort_indices(pa.table(columns), sort_keys=keys)))
        repeated = _repeated(rows)
        return rows.filter(numbers(pa.bool_(), ~repeated)) if repeated.any() else rows


def _repeated(rows: pa.RecordBatch) -> Bools:
    """Return which rows have the same internal key as the row before."""
    same = np.zeros(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        sequence = np.asarray(rows.column("sequence"))
        near = np.flatnonzero(sequence[1:] == sequence[:-1])
        for i in near.tolist():
            same[i + 1] = all(
                rows.column(name)[i].equals(rows.column(name)[i + 1]) for name in ("key", "type")
            )
    return same


def batch_bounds(payloads: Bytes, start: Int64s) -> npt.NDArray[np.uint64]:
    """Return the last sequence of each batch as LevelDB computes it from the twelve bytes at its start, modulo 2^64."""
    header = np.stack([payloads[start + i] for i in range(12)], 1)
    sequence = np.ascontiguousarray(header[:, :8]).view("<u8").reshape(len(start))
    count = np.ascontiguousarray(header[:, 8:]).view("<i4").reshape(len(start)).astype(np.int64)
    return sequence + (count - 1).astype(np.uint64)
