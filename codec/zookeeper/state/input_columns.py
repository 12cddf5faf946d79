"""The input columns of nodes in stored form. Absent values get a default, or are left to the tree (`tree_defaults`, `sorted_run`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import counts_of, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.table import Column
from logwright.codec.zookeeper.formats.snapshot.acl import packed, texts
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists, Coded, coded, coded_lists
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH
from logwright.codec.zookeeper.formats.snapshot.pack import Values
from logwright.codec.zookeeper.jute import ACL_TYPE, acl_column, flat, raw_lists, stored_strings
from logwright.codec.zookeeper.state.columns import (
    EPHEMERAL,
    KINDS,
    NODE_COLUMNS,
    PERSISTENT,
    TTL_MAX,
    TTLS,
    stored_owners,
)

UNKNOWN = np.iinfo(np.int64).min
"""A counter without an input value."""
_COLUMNS: Mapping[str, Column] = {
    column.name: column for column in (*NODE_COLUMNS, Column("cversion", pa.int32(), "as a client sees it"))
}
_EITHER_BINARY = (pa.binary(), pa.large_binary())


@dataclass(frozen=True)
class InputColumns:
    """The columns of rows, each in its type, or None if absent. `first` is the number of the first row, for messages."""

    rows: pa.Table
    first: int = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def has(self, name: str) -> bool:
        return name in self.rows.column_names

    def pieces(self, name: str, kind: pa.DataType | None = None) -> pa.ChunkedArray | None:
        """Return a column in its pieces, without a copy if it has its type."""
        if not self.has(name):
            return None
        column = self.rows.column(name)
        column_type = kind or _COLUMNS[name].type
        if column.type != column_type:
            try:
                column = column.cast(column_type)
            except pa.ArrowException as error:
                raise UsageError(
                    f"zookeeper.snapshot: column {name!r} is not {column_type}: {error}"
                ) from None
        return None if column.null_count == len(column) and len(column) else column

    def column(self, name: str) -> pa.Array | None:
        """Return a column in one piece."""
        pieces = self.pieces(name)
        return None if pieces is None else pieces.combine_chunks()

    def values(self, name: str, default: Any) -> Values:
        """Return integers of up to 64 bits. `default` is a number, or one per row, for null and absent values."""
        pieces = self.pieces(name)
        if pieces is None or pieces.null_count:
            return self.numbers(name, default)
        return pieces.cast(pa.int64()) if pa.types.is_timestamp(pieces.type) else pieces

    def numbers(self, name: str, default: Any) -> Int64s:
        """Return numbers of 64 bits."""
        pieces = self.pieces(name)
        if pieces is None:
            return np.broadcast_to(np.asarray(default, np.int64), len(self)).copy()
        if not pieces.null_count:
            return np.asarray(pieces.cast(pa.int64()))
        values = np.asarray(pieces.cast(pa.int64()).fill_null(0))
        return np.where(np.asarray(pieces.is_null()), default, values).astype(np.int64)

    def times(self, name: str, default: Any) -> Values:
        """Return milliseconds, or the stored value if the row has it."""
        raw = self.pieces(f"{name}_ms")
        if raw is None:
            return self.values(name, default)
        return raw if not raw.null_count else self.numbers(f"{name}_ms", self.numbers(name, default))

    def data(self) -> pa.Array | pa.ChunkedArray:
        """Return data in either binary type. Without the column the data is empty, not null."""
        if not self.has("data"):
            return no_bytes(len(self))
        kind = self.rows.schema.field("data").type
        pieces = self.pieces("data", kind if kind in _EITHER_BINARY else pa.large_binary())
        return pa.nulls(len(self), pa.large_binary()) if pieces is None else pieces

    def paths(self) -> pa.Array:
        """Return paths as stored: the root is the empty one."""
        if not self.has("path"):
            raise UsageError("zookeeper.snapshot needs a column 'path'")
        paths = self.column("path")
        if paths is None or paths.null_count:
            row = 0 if paths is None else int(np.flatnonzero(np.asarray(paths.is_null()))[0])
            raise UsageError(f"zookeeper.snapshot: the path of row {self.first + row} is null")
        stored = _without_roots(stored_strings(paths))
        raw = self.column("path_raw")
        if raw is None:
            return stored
        # A raw path is used as long as it decodes to the text.
        same = np.asarray(pc.fill_null(pc.equal(texts(raw)[0], paths), False))
        both = pa.concat_arrays([stored, raw])
        return both.take(
            numbers(pa.int64(), np.where(same, np.arange(len(raw)) + len(raw), np.arange(len(raw))))
        )

    def acls(self) -> Coded:
        """Return the lists of the rows, null for none."""
        pieces = self.pieces("acl")
        if pieces is None:
            return Coded(np.full(len(self), -1, np.int64), [])
        raw = self.column("acl_raw")
        if raw is None:
            return coded_lists(pieces)
        entries = raw.flatten().flatten()
        names = (texts(strings)[0] for strings in entries[1:])
        shown = packed(raw_lists(acl_column(ACL_TYPE, [entries[0], *names], counts_of(raw)), None))
        same = np.asarray(pc.equal(shown, packed(raw_lists(pieces, None))).fill_null(False))
        same &= np.asarray(raw.is_valid())
        return coded(packed(raw_lists(pieces, raw.take(numbers(pa.int64(), np.arange(len(raw)), ~same)))))

    def acl_numbers(self, acls: AclLists, order: Int64s | None = None) -> Int64s:
        """Return the numbers of the rows' lists in that table, in the given order of rows, in which new numbers are assigned."""
        pieces, coded = self.pieces("acl_id"), self.acls()
        numbers, has = self.numbers("acl_id", OPEN_ACL), np.zeros(len(self), np.bool_)
        if pieces is not None:
            has = np.asarray(pieces.is_valid())
        if order is not None:
            coded, numbers, has = coded.take(order), numbers[order], has[order]
        return acls.numbers(coded, numbers, has)

    def owners(self) -> Int64s:
        kinds = self.pieces("kind")
        ttl = None if self.pieces("ttl") is None else self.numbers("ttl", 0)
        if kinds is not None and ttl is None and _all(kinds, KINDS[PERSISTENT]):
            return np.zeros(len(self), np.int64)
        owners = self.numbers("ephemeral_owner", 0)
        codes = None
        if kinds is not None:
            indices = pc.index_in(kinds, pa.array(KINDS))
            codes = np.asarray(indices.fill_null(-1)).astype(np.int64)
            if (codes < 0).any():
                row = int(np.flatnonzero(codes < 0)[0])
                if kinds[row].is_valid:
                    raise UsageError(
                        f"zookeeper.snapshot: the kind of row {self.first + row}, {kinds[row].as_py()!r}, is not one of {', '.join(KINDS)}"
                    )
                guessed = np.where(owners != 0, EPHEMERAL, PERSISTENT)
                codes = np.where(
                    codes < 0, guessed if ttl is None else np.where(ttl > 0, TTLS, guessed), codes
                )
            if ttl is None and (codes == TTLS).any():
                raise UsageError("zookeeper.snapshot: a ttl node needs a column 'ttl'")
        if ttl is not None and ((ttl < 0) | (ttl > TTL_MAX)).any():
            row = int(np.flatnonzero((ttl < 0) | (ttl > TTL_MAX))[0])
            raise UsageError(
                f"zookeeper.snapshot: the ttl of row {self.first + row}, {ttl[row]}, is not from 0 to {TTL_MAX} ms"
            )
        return stored_owners(owners, codes, ttl)


def no_bytes(count: int) -> pa.Array:
    """Return a column of empty data, not null."""
    ends = np.zeros(count + 1, np.int64)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(b"")])


def _without_roots(paths: pa.Array) -> pa.Array:
    """Return paths with "" for "/"."""
    data, ends, _ = flat(paths)
    short: Int64s = np.flatnonzero(np.diff(ends) == 1)
    roots = short[data[ends[short]] == SLASH]
    if not len(roots):
        return paths
    if len(roots) == 1 and not roots[0]:
        # Usually it is the first row, which begins where the next one does.
        moved = np.concatenate((ends[1:2], ends[1:]))
        return pa.Array.from_buffers(pa.binary(), len(paths), [None, pa.py_buffer(moved), paths.buffers()[2]])
    chosen = np.arange(len(paths))
    chosen[roots] = len(paths)
    both = pa.concat_arrays([paths, pa.array([b""], pa.binary())])
    return both.take(numbers(pa.int64(), chosen))


def _all(column: pa.ChunkedArray, value: str) -> bool:
    """Return whether all values of a column are this text."""
    return not column.null_count and pc.all(pc.equal(column, value)).as_py() is True
