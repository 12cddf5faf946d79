"""Sorted runs: rows of nodes in stored form, in the order of paths, with absent values marked.

The key of a row is its path with 0 for each slash, so that keys are in the depth-first order of a tree: a node, its descendants, then its
siblings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.columns import constant, contents, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.sorting import FIELDS
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH, STATS
from logwright.codec.zookeeper.formats.snapshot.pack import Values, column_of
from logwright.codec.zookeeper.jute import flat
from logwright.codec.zookeeper.state.columns import KINDS, ROOT, TTLS
from logwright.codec.zookeeper.state.input_columns import UNKNOWN, InputColumns, no_bytes
from logwright.codec.zookeeper.state.paths import validate
from logwright.codec.zookeeper.state.tree_defaults import CONFIG, config_list, default_stats, input_stats

CLIENT = "client_cversion"
ROWS = pa.schema(
    [
        *FIELDS,
        pa.field("acl", pa.binary()),
        *(pa.field(name, pa.int64(), nullable=False) for name in (*STATS, CLIENT)),
    ]
)
"""The columns of a run: `value` is the data, `acl` an encoded list, null for the open ACL. `UNKNOWN` stands for values that follow from
the tree."""
GIVEN, MADE = 1, 0
"""Values of `sequence`: input rows come before those that a server makes."""


def columns(rows: pa.RecordBatch, first_row: int, zxid: int | None) -> pa.RecordBatch:
    """Convert rows to those of a run. Raises `UsageError` for an invalid node; `first_row` is the number of the first row, for the
    message."""
    input_columns = InputColumns(pa.Table.from_batches([rows]), first_row)
    paths = input_columns.paths()
    validate(paths, first_row)
    _validate_ttls(input_columns, first_row)
    stats = input_stats(input_columns, zxid) | {CLIENT: input_columns.numbers("cversion", UNKNOWN)}
    acl = _lists(input_columns, first_row)
    config = np.asarray(pc.equal(paths, CONFIG)) & np.asarray(acl.is_null())
    if config.any():
        # As a server makes it: a missing ACL must not open it to everyone.
        acl = pc.if_else(pa.array(config), pa.scalar(config_list(), pa.binary()), acl)
        if input_columns.column("aversion") is None:
            stats["aversion"] = np.where(config, -1, stats["aversion"])
    return _batch(_keys(paths), input_columns.data(), GIVEN, acl, stats)


def _validate_ttls(input_columns: InputColumns, first_row: int) -> None:
    kinds = input_columns.column("kind")
    if kinds is not None:
        ttl = np.asarray(pc.equal(kinds, KINDS[TTLS]).fill_null(False))
        wrong = np.flatnonzero(ttl & (input_columns.numbers("ttl", 0) < 1))
        if len(wrong):
            raise UsageError(
                f"zookeeper.snapshot: row {first_row + int(wrong[0])} is a ttl node without a ttl"
            )


def _lists(input_columns: InputColumns, first_row: int) -> pa.Array:
    coded = input_columns.acls()
    lists = contents(pa.binary(), coded.lists).take(numbers(pa.int64(), coded.codes, coded.codes < 0))
    dangling = np.flatnonzero(
        (input_columns.numbers("acl_id", OPEN_ACL) != OPEN_ACL) & np.asarray(lists.is_null())
    )
    if len(dangling):
        raise UsageError(
            f"zookeeper.snapshot: row {first_row + int(dangling[0])} has the number of an ACL, but no list",
            advice="Give the list in the column 'acl'; null in 'acl_id' lets anyone do anything",
        )
    return lists


def _keys(paths: pa.Array) -> pa.Array:
    return _replaced(paths, SLASH, 0).cast(pa.large_binary())


def paths_of(keys: pa.Array) -> pa.Array:
    """Return the paths of keys, as stored."""
    return _replaced(keys.cast(pa.binary()), 0, SLASH)


def _replaced(strings: pa.Array, old: int, new: int) -> pa.Array:
    data, ends, _ = flat(strings)
    out = np.where(data == old, np.uint8(new), data)
    return pa.Array.from_buffers(
        pa.binary(), len(strings), [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(out)]
    )


def _batch(
    keys: pa.Array, data: pa.Array | pa.ChunkedArray, sequence: int, acl: pa.Array, stats: dict[str, Values]
) -> pa.RecordBatch:
    order = constant(pa.int64(), sequence, len(keys))
    columns = [keys, data, order, acl, *(column_of(stats[name]) for name in (*STATS, CLIENT))]
    joined = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(joined, ROWS, strict=True)], schema=ROWS
    )


def default_nodes(paths: list[bytes], zxid: int | None) -> pa.RecordBatch:
    """Return the nodes that no row defines, as a server makes them."""
    stats = default_stats(paths, zxid) | {CLIENT: np.full(len(paths), UNKNOWN)}
    acl = contents(pa.binary(), [config_list() if path == CONFIG else None for path in paths])
    return _batch(_keys(contents(pa.binary(), paths)), no_bytes(len(paths)), MADE, acl, stats)


def twice(row: dict[str, Any]) -> UsageError:
    """The error for a row whose path occurred before."""
    path = row["key"].replace(b"\0", b"/").decode("utf-8", "replace") or ROOT
    return UsageError(
        f"the path {path!r} occurs more than once",
        advice="Pass each path once, or set on_duplicate=last to keep the last row of each",
    )
