"""Sorted runs of rows on their way into tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from logwright.codec.columns import constant
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table.write import large_binary, prepare
from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.sorting import FIELDS

ROWS = pa.schema(FIELDS)
"""The columns of a run. A row whose value is null is a deletion."""


STORED = pa.field("stored_key", pa.large_binary())
"""The column of the keys as stored, if `key` holds sort keys."""


def schema_of(order: Comparator) -> pa.Schema:
    """Return the columns of a run that is sorted by `order`."""
    return ROWS if order.bytewise else ROWS.append(STORED)


def with_sort_keys(rows: pa.RecordBatch, order: Comparator) -> pa.RecordBatch:
    """Return rows whose column `key` sorts bytewise. The stored keys are in an additional column `STORED`."""
    if order.bytewise:
        return rows
    at, key = rows.schema.get_field_index("key"), rows.column("key")
    return rows.append_column(STORED.name, key).set_column(at, rows.schema.field(at), order.column(key))


def with_stored_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with their stored keys, which may have sort keys (`with_sort_keys`)."""
    if STORED.name not in rows.schema.names:
        return rows
    at = rows.schema.get_field_index("key")
    return rows.set_column(at, rows.schema.field(at), rows.column(STORED.name)).drop_columns([STORED.name])


def columns(rows: pa.RecordBatch, first_row: int, sequence: int | None) -> pa.RecordBatch:
    """Convert rows to those of a run, with their own sequence numbers or all with `sequence`.

    Raises `UsageError` for an invalid row. `first_row` is the number of the first row, for the message.
    """
    names = [name for name in ("key", "value", "sequence", "type") if rows.schema.get_field_index(name) >= 0]
    if sequence is not None and "sequence" in names:
        names.remove("sequence")
    input_columns = {name: rows.column(name) for name in names}
    for name in ("key", "value"):
        if name in input_columns and input_columns[name].type != pa.large_binary():
            input_columns[name] = large_binary(name, input_columns[name])
    entries = prepare(pa.RecordBatch.from_pydict(input_columns) if input_columns else rows, first_row)
    if sequence is None:
        number = pa.array(entries.trailers >> 8 & MAX_SEQUENCE, pa.int64())
    else:
        number = constant(pa.int64(), sequence, rows.num_rows)
    value = input_columns.get("value", pa.nulls(rows.num_rows, pa.large_binary()))
    return pa.RecordBatch.from_arrays([input_columns["key"], value, number], schema=ROWS)


def twice(row: dict[str, Any]) -> UsageError:
    """Return the error for a row whose key and sequence number came before."""
    return UsageError(
        f"the key {_short(row.get(STORED.name, row['key']))} occurs more than once with sequence number {row['sequence']}",
        advice="Pass on_duplicate=last to keep the last row of each key, or give rows of one key different sequence numbers",
    )


def _short(key: bytes) -> str:
    return repr(key) if len(key) <= 40 else repr(key[:40]) + "..."
