"""Match the rows of two sides, by key or one by one, and compare them column by column.

Both sides are streams of record batches, with one batch of each in memory. Where the keys of both sides agree row after row, which is
nearly everywhere, whole columns are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError

_SMALL, _LARGE = 1 << 10, 1 << 16
"""Number of rows of each side to match one by one after keys differ; it doubles while they keep differing."""


class Disordered(UsageError):
    """Rows cannot be matched by a key, because they are not sorted by it."""


@dataclass(frozen=True)
class Pairs:
    """Matched rows in order: row `ia[i]` of `a` and row `ib[i]` of `b`, -1 if a side has none.

    The first rows of `a` and `b` are rows `first_a` and `first_b` of their sides.
    """

    a: pa.RecordBatch
    b: pa.RecordBatch
    ia: Int64s
    ib: Int64s
    first_a: int
    first_b: int

    @property
    def aligned(self) -> bool:
        """Whether row i is matched with row i throughout."""
        return len(self.a) == len(self.b) == len(self.ia) and bool(
            (self.ia == self.ib).all() and (len(self.ia) == 0 or self.ia[0] == 0)
        )


class _Side:
    """The rows of one side that are not matched yet."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = 0
        """Number of rows matched."""
        self.batch: pa.RecordBatch | None = None
        self.schema: pa.Schema | None = None

    def fill(self) -> bool:
        """Load a batch with rows. Return False at the end."""
        while self.batch is None or not self.batch.num_rows:
            self.batch = next(self._batches, None)
            if self.batch is None:
                return False
            self.schema = self.batch.schema
        return True

    def take(self, count: int) -> pa.RecordBatch:
        assert self.batch is not None
        taken, self.batch = self.batch.slice(0, count), self.batch.slice(count)
        self.rows += count
        return taken

    def nothing(self) -> pa.RecordBatch:
        """Return an empty batch for the other side's rows."""
        return pa.RecordBatch.from_pylist([], schema=self.schema or pa.schema([]))


def match(
    a: Iterable[pa.RecordBatch], b: Iterable[pa.RecordBatch], key: Sequence[str] = ()
) -> Iterator[Pairs]:
    """Match all rows of both sides. `key`: columns by which the rows are sorted, each key once; `-name` is descending. Without a key, rows
    are matched one by one.

    Raises `Disordered`.
    """
    left, right = _Side(a), _Side(b)
    size = 0
    while left.fill() and right.fill():
        assert left.batch is not None
        assert right.batch is not None
        if not size:
            count = _same_keys(left.batch, right.batch, key)
            if count:
                yield _together(left, right, count)
                continue
            size = _SMALL
        at = left.rows, right.rows
        keys = [_keys(side.batch.slice(0, size), key) for side in (left, right) if side.batch is not None]
        ia, ib = _merge(*keys)
        rows = [int(indexes.max(initial=-1)) + 1 for indexes in (ia, ib)]
        yield Pairs(left.take(rows[0]), right.take(rows[1]), ia, ib, *at)
        # Return to whole columns if the last rows all matched; otherwise continue one by one with more rows.
        size = 0 if bool(((ia[-8:] >= 0) & (ib[-8:] >= 0)).all()) else min(2 * size, _LARGE)
    while left.fill():
        yield _alone(left, right, mine=True)
    while right.fill():
        yield _alone(right, left, mine=False)


def _together(left: _Side, right: _Side, count: int) -> Pairs:
    numbers = np.arange(count, dtype=np.int64)
    at = left.rows, right.rows
    return Pairs(left.take(count), right.take(count), numbers, numbers, *at)


def _alone(side: _Side, other: _Side, *, mine: bool) -> Pairs:
    assert side.batch is not None
    count, at = len(side.batch), side.rows
    numbers, none = np.arange(count, dtype=np.int64), np.full(count, -1, np.int64)
    if mine:
        return Pairs(side.take(count), other.nothing(), numbers, none, at, other.rows)
    return Pairs(other.nothing(), side.take(count), none, numbers, other.rows, at)


def _same_keys(a: pa.RecordBatch, b: pa.RecordBatch, key: Sequence[str]) -> int:
    """Return the number of rows at the start with equal keys on both sides."""
    count = min(len(a), len(b))
    for name in key:
        name = name.lstrip("-")
        different = unequal(a.column(name).slice(0, count), b.column(name).slice(0, count))
        if different.any():
            count = int(np.argmax(different))
    return count


def _keys(batch: pa.RecordBatch, key: Sequence[str]) -> list[tuple[Any, ...]]:
    columns = []
    for name in key:
        column = batch.column(name.lstrip("-"))
        if column.null_count:
            raise Disordered(
                f"cannot match rows by {name.lstrip('-')}: some rows have null", advice=_BY_PLACE
            )
        values = _values(_combined(column))
        try:
            columns.append([-value for value in values] if name.startswith("-") else values)
        except TypeError as error:
            raise Disordered(
                f"cannot match rows by {name[1:]} in descending order: its values are not numbers",
                advice=_BY_PLACE,
            ) from error
    keys = list(zip(*columns, strict=True))
    for before, now in pairwise(keys):
        try:
            ordered = before < now
        except TypeError as error:
            raise Disordered(f"values of {', '.join(key)} have no order", advice=_BY_PLACE) from error
        if not ordered:
            raise Disordered(
                f"the rows are not sorted by {', '.join(key)}, each key once: {now!r} follows {before!r}",
                advice=_BY_PLACE,
            )
    return keys


_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _values(column: pa.Array) -> list[Any]:
    """Return Python values for comparing; times as integers, which no calendar limits."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    factor = _NANOSECONDS[column.type.unit]
    return [value * factor for value in column.cast(pa.int64()).to_pylist()]


_BY_PLACE = "Match them one by one with an empty key (--key ''), or by other columns"


def _merge(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> tuple[Int64s, Int64s]:
    """Merge two lists of keys up to the end of the shorter one."""
    i = j = 0
    ia: list[int] = []
    ib: list[int] = []
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            ia.append(i)
            ib.append(j)
            i, j = i + 1, j + 1
        elif a[i] < b[j]:
            ia.append(i)
            ib.append(-1)
            i += 1
        else:
            ia.append(-1)
            ib.append(j)
            j += 1
    return np.array(ia, np.int64), np.array(ib, np.int64)


# Columns


def unequal(a: pa.Array, b: pa.Array) -> Bools:
    """Return in which rows two columns of equal length differ. Null equals only null."""
    kind = a.type
    if pa.types.is_dictionary(kind):
        return unequal(a.dictionary_decode(), b)
    a, b = _combined(a), _same_type(_combined(b), a.type)
    null_a, null_b = _mask(a.is_null()), _mask(b.is_null())
    out: Bools = null_a ^ null_b
    if pa.types.is_map(a.type):
        entries = pa.list_(pa.struct([("key", a.type.key_type), ("value", a.type.item_type)]))
        a, b = a.cast(entries), b.cast(entries)
    if _is_list(a.type):
        return _unequal_lists(a, b, out, ~(null_a | null_b))
    if pa.types.is_struct(a.type):
        for left_child, right_child in zip(a.flatten(), b.flatten(), strict=True):
            out |= unequal(left_child, right_child) & ~null_a & ~null_b
        return out
    if pa.types.is_null(a.type):
        return out
    return out | _mask(pc.fill_null(pc.not_equal(a, b), False))


def _unequal_lists(a: pa.Array, b: pa.Array, out: Bools, both: Bools) -> Bools:
    sizes_a, sizes_b = (np.asarray(pc.fill_null(pc.list_value_length(side), 0)) for side in (a, b))
    out |= both & (sizes_a != sizes_b)
    full = both & (sizes_a == sizes_b) & (sizes_a > 0)
    if full.any():
        where = pa.array(full)
        inside = unequal(a.filter(where).flatten(), b.filter(where).flatten())
        if inside.any():
            out[np.repeat(np.flatnonzero(full), sizes_a[full])[inside]] = True
    return out


def _combined(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _same_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise UsageError(
            f"cannot compare a column of {column.type} with one of {kind}: {str(error).splitlines()[0]}"
        ) from None


def _mask(values: Any) -> Bools:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def changed(pairs: Pairs, columns: Sequence[str]) -> dict[str, Bools]:
    """Return for each column with a difference the pairs that differ in it. Rows without a match differ in none."""
    if not len(pairs.ia):
        return {}
    a, b = pairs.a, pairs.b
    aligned = pairs.aligned
    both: Bools = np.ones(len(pairs.ia), np.bool_)
    if not aligned:
        both = (pairs.ia >= 0) & (pairs.ib >= 0)
        if not both.any():
            return {}
        a, b = a.take(pa.array(pairs.ia[both])), b.take(pa.array(pairs.ib[both]))
    out: dict[str, Bools] = {}
    for name in columns:
        different = unequal(a.column(name), b.column(name))
        if different.any():
            spread = np.zeros(len(pairs.ia), np.bool_)
            spread[both] = different
            out[name] = spread
    return out
