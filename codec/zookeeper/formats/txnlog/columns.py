"""The input columns of transactions in stored form, nested ones of multis included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE, raw_lists, stored_strings, text_entries

_KINDS = {name: kind for kind, name in layout.TYPE_NAMES.items()}
_UNKNOWN = layout.LOWEST - 1
_RECIPE_OF = dict(enumerate(layout.RECIPES, layout.LOWEST))
_TYPES = {column.name: column.type for column in ROWS.columns}


class TxnColumns:
    """The columns of some rows, with the types of the rows table or of a transaction in a multi. Absent columns are null."""

    def __init__(self, rows: pa.RecordBatch, first: int) -> None:
        self.rows, self.count, self.first = rows, rows.num_rows, first
        self.seen: tuple[int, ...] = ()
        """The distinct types, after a call of `kinds`."""

    def has(self, name: str) -> bool:
        return name in self.rows.schema.names

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        if not self.has(name):
            return pa.nulls(self.count, kind)
        array = self.rows.column(self.rows.schema.get_field_index(name))
        if array.type == kind:
            return array
        try:
            return array.cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(f"{NAME}: column {name!r} is not {kind}: {error}") from None

    def text(self, name: str) -> pa.Array:
        """Return strings as stored: those of binary columns unchanged, others as Java encodes them."""
        kind = self.rows.schema.field(name).type if self.has(name) else pa.null()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return self.get(name, pa.binary())
        return stored_strings(self.get(name, pa.string()))

    def number(self, name: str, default: int) -> Int64s:
        return integers(self.get(name, _TYPES.get(name, pa.int64())), default)

    def kinds(self, in_multi: Bools) -> Int64s:
        """Return the types of rows as numbers. Raises `UsageError` for a null or a type that cannot be written so."""
        if not self.has("type"):
            raise UsageError(f"{NAME} needs a column 'type'", advice=f"It is one of: {', '.join(_KINDS)}")
        names = self.get("type", pa.string()).dictionary_encode()
        codes = np.array(
            [_KINDS.get(name, _UNKNOWN) for name in [*names.dictionary.to_pylist(), None]], np.int64
        )
        kinds: Int64s = codes[np.asarray(names.indices.fill_null(-1) if names.null_count else names.indices)]
        self.seen = tuple(codes[:-1].tolist())
        if not names.null_count and not in_multi.any() and all(map(_RECIPE_OF.get, self.seen)):
            return kinds
        place = np.maximum(kinds, layout.LOWEST) - layout.LOWEST
        bad = (kinds == _UNKNOWN) | (
            np.where(in_multi, layout.SUB_RECIPE_ARRAY[place], layout.RECIPE_ARRAY[place]) == 0
        )
        if bad.any():
            row = int(np.argmax(bad))
            name = self.get("type", pa.string())[row].as_py()
            recipes, where = (
                (layout.SUB_RECIPES, "in a multi") if in_multi[row] else (layout.RECIPES, "on its own")
            )
            choices = ", ".join(name for name, kind in _KINDS.items() if recipes[kind - layout.LOWEST])
            raise UsageError(
                f"{NAME}: row {self.first + row} is of type {name!r}, which is not written {where}",
                advice=f"It is one of: {choices}",
            )
        return kinds

    def path(self) -> pa.Array:
        """Return paths as stored: `path_raw` where it decodes to the same text."""
        texts = self.text("path")
        raw = self.get("path_raw", pa.binary())
        if raw.null_count == len(raw):
            return texts
        chosen = [
            stored
            if stored is not None and plain is not None and java_string(stored).encode() == plain
            else plain
            for stored, plain in zip(raw.to_pylist(), texts.to_pylist(), strict=True)
        ]
        return pa.array(chosen, pa.binary())

    def acl(self) -> pa.Array:
        """Return ACLs as stored: `acl_raw` where it decodes to the same text."""
        if not self.has("acl"):
            return pa.nulls(self.count, ACL_RAW_TYPE)
        column = self.rows.column(self.rows.schema.get_field_index("acl"))
        if column.type == ACL_TYPE and column.null_count == len(column):
            return pa.nulls(self.count, ACL_RAW_TYPE)
        try:
            lists = column.cast(ACL_TYPE)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(f"{NAME}: column 'acl' is not {ACL_TYPE}: {error}") from None
        acls = raw_lists(lists, None)
        raw = self.get("acl_raw", ACL_RAW_TYPE)
        if raw.null_count == len(raw):
            return acls
        texts = lists.to_pylist()
        chosen = [
            stored if stored is not None and text_entries(stored) == text else plain
            for stored, text, plain in zip(raw.to_pylist(), texts, acls.to_pylist(), strict=True)
        ]
        return pa.array(chosen, ACL_RAW_TYPE)


def integers(array: pa.Array, default: int) -> Int64s:
    """Return integers or times, with a replacement for null."""
    if array.null_count == len(array):
        return np.full(len(array), default, np.int64)
    if not pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(default)
    return np.asarray(array).astype(np.int64, copy=False)


def list_ends(array: pa.Array) -> tuple[Int32s, pa.Array]:
    """Return where lists end in the consecutive values of all lists that are not null."""
    if array.null_count == len(array):
        return np.zeros(len(array) + 1, np.int32), pa.nulls(0, array.type.value_type)
    lengths = np.asarray(array.value_lengths().fill_null(0), np.int64)
    return ends_of(lengths).astype(np.int32), array.flatten()


def ends_of(sizes: Int64s) -> Int64s:
    """Return the cumulative sizes, from 0 on."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
