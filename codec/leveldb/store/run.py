"""The rows of a database on their way into tables: what an internal key is made of, and the value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from logwright.codec.columns import constant
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table.write import prepare
from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.sorting import FIELDS

ROWS = pa.schema(FIELDS)
"""The columns of a run. A row is of type deletion where its value is null."""


STORED = pa.field("stored_key", pa.large_binary(), nullable=False)
"""The column of the keys as they are stored, where `key` is what they are sorted by."""


def schema_of(order: Comparator) -> pa.Schema:
    """The columns of a run that is sorted by `order`."""
    return ROWS if order.bytewise else ROWS.append(STORED)


def sortable(rows: pa.RecordBatch, order: Comparator) -> pa.RecordBatch:
    """Rows (`ROWS`) as those of a run that sorts bytewise."""
    if order.bytewise:
        return rows
    key = rows.column("key")
    arrays = [order.column(key), *rows.columns[1:], key]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(order))


def stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a run with their keys as they are stored."""
    if STORED.name not in rows.schema.names:
        return rows
    return pa.RecordBatch.from_arrays([rows.column(STORED.name), *rows.columns[1:3]], schema=ROWS)


def columns(rows: pa.RecordBatch, first_row: int, sequence: int | None) -> pa.RecordBatch:
    """Rows as those of a run: with the sequence numbers that they have, or all with the one given.

    Raises `UsageError` for what is no row of a database; `first_row` is the number of the first one, for that.
    """
    names = [name for name in ("key", "value", "sequence", "type") if rows.schema.get_field_index(name) >= 0]
    if sequence is not None and "sequence" in names:
        names.remove("sequence")
    given = {name: rows.column(name) for name in names}
    for name in ("key", "value"):
        if name in given and given[name].type != pa.large_binary():
            given[name] = _binary(name, given[name])
    made = prepare(pa.RecordBatch.from_pydict(given) if given else rows, first_row)
    if sequence is None:
        number = pa.array(made.trailers >> 8 & MAX_SEQUENCE, pa.int64())
    else:
        number = constant(pa.int64(), sequence, rows.num_rows)
    value = given.get("value", pa.nulls(rows.num_rows, pa.large_binary()))
    return pa.RecordBatch.from_arrays([given["key"], value, number], schema=ROWS)


def _binary(name: str, array: pa.Array[Any]) -> pa.Array[Any]:
    try:
        return array.cast(pa.large_binary())
    except pa.ArrowException:
        raise UsageError(f"column {name!r} has type {array.type}, binary or text is needed") from None


def twice(row: dict[str, Any]) -> UsageError:
    """For a row whose key and sequence number came before."""
    return UsageError(
        f"the key {_short(row.get(STORED.name, row['key']))} comes more than once with the sequence number {row['sequence']}",
        advice="Pass on_duplicate=last to keep the last row of each key, or give rows of one key different sequence numbers",
    )


def _short(key: bytes) -> str:
    return repr(key) if len(key) <= 40 else repr(key[:40]) + "..."
