"""The rows of a tree on their way into a snapshot: each as it is stored, with what is left out marked, in the order of the paths.

The key of a row is its path with 0 for each slash, so that the order of keys is that of a tree written depth first: a node, all
that is below it, and only then its siblings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import constant, contents, numbers
from logwright.codec.fault import UsageError
from logwright.codec.sorting import FIELDS
from logwright.codec.zookeeper.formats.snapshot.acl import flat
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH
from logwright.codec.zookeeper.formats.snapshot.pack import STATS, Values, column_of
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.state.columns import KINDS, ROOT, TTLS
from logwright.codec.zookeeper.state.input_columns import UNKNOWN, Given, no_bytes
from logwright.codec.zookeeper.state.paths import validate
from logwright.codec.zookeeper.state.tree_defaults import CONFIG, SYSTEM, config_list

CLIENT = "client_cversion"
ROWS = pa.schema(
    [
        *FIELDS,
        pa.field("acl", pa.binary()),
        *(pa.field(name, pa.int64(), nullable=False) for name in (*STATS, CLIENT)),
    ]
)
"""The columns of a run: `value` is the data, `acl` a packed list, null for one that lets anyone do anything. `UNKNOWN` stands for what
follows from the tree."""
GIVEN, MADE = 1, 0
"""What `sequence` is: rows that somebody gave come before those that a server makes."""


def columns(rows: pa.RecordBatch, first_row: int, zxid: int | None) -> pa.RecordBatch:
    """Rows as those of a run. Raises `UsageError` for what is no node; `first_row` is the number of the first one, for that."""
    given = Given(pa.Table.from_batches([rows]), first_row)
    paths = given.paths()
    validate(paths, first_row)
    czxid = given.numbers("czxid", 0 if zxid is None else zxid)
    ctime = given.times("ctime", 0)
    stats: dict[str, Values] = {
        "czxid": czxid,
        "mzxid": given.numbers("mzxid", czxid),
        "ctime": ctime,
        "mtime": given.times("mtime", ctime),
        "version": given.numbers("version", 0),
        "cversion": given.numbers("stored_cversion", UNKNOWN),
        "aversion": given.numbers("aversion", 0),
        "owner": _owners(given, first_row),
        "pzxid": given.numbers("pzxid", UNKNOWN),
        CLIENT: given.numbers("cversion", UNKNOWN),
    }
    acl = _lists(given, first_row)
    config = np.asarray(pc.equal(paths, CONFIG)) & np.asarray(acl.is_null())
    if config.any():
        # As a server makes it: what nobody says of it does not open it to all.
        acl = pc.if_else(pa.array(config), pa.scalar(config_list(), pa.binary()), acl)
        if given.column("aversion") is None:
            stats["aversion"] = np.where(config, -1, stats["aversion"])
    return _batch(_keys(paths), given.data(), GIVEN, acl, stats)


def _owners(given: Given, first_row: int) -> Int64s:
    kinds = given.column("kind")
    if kinds is not None:
        ttl = np.asarray(pc.equal(kinds, KINDS[TTLS]).fill_null(False))
        wrong = np.flatnonzero(ttl & (given.numbers("ttl", 0) < 1))
        if len(wrong):
            raise UsageError(
                f"zookeeper.snapshot: row {first_row + int(wrong[0])} is a ttl node without a ttl"
            )
    return given.owners()


def _lists(given: Given, first_row: int) -> pa.Array:
    said = given.acls()
    lists = contents(pa.binary(), said.lists).take(numbers(pa.int64(), said.codes, said.codes < 0))
    dangling = np.flatnonzero((given.numbers("acl_id", OPEN_ACL) != OPEN_ACL) & np.asarray(lists.is_null()))
    if len(dangling):
        raise UsageError(
            f"zookeeper.snapshot: row {first_row + int(dangling[0])} has the number of an ACL, but no list",
            advice="Give the list in the column 'acl'; null in 'acl_id' lets anyone do anything",
        )
    return lists


def _keys(paths: pa.Array) -> pa.Array:
    return _replaced(paths, SLASH, 0).cast(pa.large_binary())


def paths_of(keys: pa.Array) -> pa.Array:
    """The paths of keys, as they are stored."""
    return _replaced(keys.cast(pa.binary()), 0, SLASH)


def _replaced(strings: pa.Array, old: int, new: int) -> pa.Array:
    data, ends, _ = flat(strings)
    out = np.where(data == old, np.uint8(new), data)
    return pa.Array.from_buffers(
        pa.binary(), len(strings), [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(out)]
    )


def _batch(
    keys: pa.Array,
    data: pa.Array | pa.ChunkedArray,
    sequence: int,
    acl: pa.Array,
    stats: dict[str, Values],
) -> pa.RecordBatch:
    order = constant(pa.int64(), sequence, len(keys))
    columns = [keys, data, order, acl, *(column_of(stats[name]) for name in (*STATS, CLIENT))]
    joined = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
    return pa.RecordBatch.from_arrays(
        [one.cast(field.type) for one, field in zip(joined, ROWS, strict=True)], schema=ROWS
    )


def made(paths: list[bytes], zxid: int | None) -> pa.RecordBatch:
    """Nodes that nobody gave, as a server makes them."""
    count = len(paths)
    zero = np.zeros(count, np.int64)
    new = np.array([0 if one in SYSTEM or zxid is None else zxid for one in paths], np.int64)
    unknown = np.full(count, UNKNOWN)
    stats: dict[str, Values] = dict.fromkeys((*STATS, CLIENT), zero) | {"czxid": new, "mzxid": new}
    stats |= {"cversion": unknown, "pzxid": unknown, CLIENT: unknown}
    stats["aversion"] = np.array([-1 if one == CONFIG else 0 for one in paths], np.int64)
    acl = contents(pa.binary(), [config_list() if one == CONFIG else None for one in paths])
    return _batch(_keys(contents(pa.binary(), paths)), no_bytes(count), MADE, acl, stats)


def twice(row: dict[str, Any]) -> UsageError:
    """For a row whose path came before."""
    path = row["key"].replace(b"\0", b"/").decode("utf-8", "replace") or ROOT
    return UsageError(
        f"the path {path!r} comes more than once",
        advice="Give each path once, or pass on_duplicate=last to keep the last row of each",
    )
