"""Find and describe the first difference between bytes or tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_SHOWN = 80


def bytes_differ(expected: bytes, actual: bytes) -> tuple[int, str] | None:
    """Return the first differing byte and a description; None if equal."""
    if expected == actual:
        return None
    low, high = 0, min(len(expected), len(actual))
    if expected[:high] == actual[:high]:
        return high, f"expected {len(expected)} bytes, found {len(actual)}, equal up to byte {high}"
    while high - low > 1:
        middle = (low + high) // 2
        if expected[low:middle] == actual[low:middle]:
            low = middle
        else:
            high = middle
    here = slice(low, low + 8)
    return low, f"byte {low}: expected {expected[here].hex(' ')}, found {actual[here].hex(' ')}"


def tables_differ(expected: pa.Table, actual: pa.Table) -> tuple[int, str] | None:
    """Return the first differing row over the columns of `expected`, and a description; None if equal."""
    missing = [name for name in expected.schema.names if name not in actual.schema.names]
    if missing:
        return 0, f"no column {missing[0]!r}"
    expected, actual = plain_times(expected), plain_times(actual.select(expected.schema.names))
    rows = min(len(expected), len(actual))
    worst: tuple[int, str] | None = None
    for name in expected.schema.names:
        left, right = _combined(expected.column(name)), _combined(actual.column(name))
        if left.type != right.type:
            return 0, f"column {name!r}: expected type {left.type}, found {right.type}"
        at = _first(left.slice(0, rows), right.slice(0, rows))
        if at is not None and (worst is None or at < worst[0]):
            worst = at, f"row {at}, {name}: expected {_short(left[at])}, found {_short(right[at])}"
    if worst is None and len(expected) != len(actual):
        return rows, f"expected {len(expected)} rows, found {len(actual)}, equal up to row {rows}"
    return worst


def plain_times(table: pa.Table) -> pa.Table:
    """Convert timestamps to integers, because Python's end with the year 9999."""
    kinds = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
    return table.cast(pa.schema(fields))


def _combined(column: Any) -> Any:
    chunks = column.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _first(left: Any, right: Any) -> int | None:
    if left.equals(right):
        return None
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        if left.slice(low, middle - low).equals(right.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _short(value: Any) -> str:
    text = repr(value.as_py())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
