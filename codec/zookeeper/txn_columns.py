"""The columns of rows that are transactions, each as it is stored; of those nested in a multi too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Bytes
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE, Int64s, stored_strings
from logwright.codec.zookeeper.rows import NAME, ROWS
from logwright.codec.zookeeper.txns import (
    LOWEST,
    RECIPE_ARRAY,
    RECIPES,
    SUB_RECIPE_ARRAY,
    SUB_RECIPES,
    TYPE_NAMES,
)

Int32s = npt.NDArray[np.int32]

_KINDS = {name: kind for kind, name in TYPE_NAMES.items()}
_UNKNOWN = LOWEST - 1


class TxnColumns:
    """The columns of some rows, with the types of the rows table (or of a transaction in a multi); absent ones are null."""

    def __init__(self, rows: pa.RecordBatch, first: int) -> None:
        self.rows, self.count, self.first = rows, rows.num_rows, first

    def has(self, name: str) -> bool:
        return name in self.rows.schema.names

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        if not self.has(name):
            return pa.nulls(self.count, kind)
        array = self.rows.column(self.rows.schema.get_field_index(name))
        try:
            return array.cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(f"{NAME}: column {name!r} is not {kind}: {error}") from None

    def text(self, name: str) -> pa.Array:
        """Strings as they are stored: of columns of bytes as given, else as Java writes them."""
        kind = self.rows.schema.field(name).type if self.has(name) else pa.null()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return self.get(name, pa.binary())
        return stored_strings(self.get(name, pa.string()))

    def number(self, name: str, default: int) -> Int64s:
        kind = ROWS[name].type if name in ROWS.names(detail=True) else pa.int64()
        return np.asarray(self.get(name, kind).cast(pa.int64()).fill_null(default), np.int64)

    def kinds(self, in_multi: npt.NDArray[np.bool_]) -> Int64s:
        """The types of rows as numbers. Raises `UsageError` for one that is not written so, or not there."""
        if not self.has("type"):
            raise UsageError(f"{NAME} needs a column 'type'", advice=f"It is one of: {', '.join(_KINDS)}")
        encoded = self.get("type", pa.string()).dictionary_encode()
        known = np.array([_KINDS.get(name, _UNKNOWN) for name in encoded.dictionary.to_pylist()] + [_UNKNOWN])
        kinds: Int64s = known[np.asarray(encoded.indices.fill_null(len(known) - 1), np.int64)]
        place = np.maximum(kinds, LOWEST) - LOWEST
        bad = (kinds == _UNKNOWN) | (np.where(in_multi, SUB_RECIPE_ARRAY[place], RECIPE_ARRAY[place]) == 0)
        if bad.any():
            row = int(np.argmax(bad))
            name = self.get("type", pa.string())[row].as_py()
            recipes, where = (SUB_RECIPES, "in a multi") if in_multi[row] else (RECIPES, "on its own")
            choices = ", ".join(one for one, kind in _KINDS.items() if recipes[kind - LOWEST])
            raise UsageError(
                f"{NAME}: row {self.first + row} is of type {name!r}, which is not written {where}",
                advice=f"It is one of: {choices}",
            )
        return kinds

    def path(self) -> pa.Array:
        """Paths as they are stored: `path_raw` where that says the same."""
        made = self.text("path")
        raw = self.get("path_raw", pa.binary())
        if raw.null_count == len(raw):
            return made
        chosen = [
            one if one is not None and plain is not None and java_string(one).encode() == plain else plain
            for one, plain in zip(raw.to_pylist(), made.to_pylist(), strict=True)
        ]
        return pa.array(chosen, pa.binary())

    def acl(self) -> pa.Array:
        """Lists as they are stored: `acl_raw` where that says the same."""
        if not self.has("acl"):
            return pa.nulls(self.count, ACL_RAW_TYPE)
        given = self.rows.column(self.rows.schema.get_field_index("acl"))
        try:
            lists = given.cast(ACL_TYPE)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(f"{NAME}: column 'acl' is not {ACL_TYPE}: {error}") from None
        ends, entries = list_ends(lists)
        fields = [entries.field(0), *(stored_strings(entries.field(k)) for k in (1, 2))]
        struct = pa.StructArray.from_arrays(fields, fields=list(ACL_RAW_TYPE.value_type))
        bits = None if not lists.null_count else pa.py_buffer(np.packbits(validity(lists), bitorder="little"))
        made = pa.Array.from_buffers(
            ACL_RAW_TYPE, len(lists), [bits, pa.py_buffer(np.ascontiguousarray(ends))], children=[struct]
        )
        raw = self.get("acl_raw", ACL_RAW_TYPE)
        if raw.null_count == len(raw):
            return made
        texts = lists.to_pylist()
        chosen = [
            one if one is not None and _as_java(one) == text else plain
            for one, text, plain in zip(raw.to_pylist(), texts, made.to_pylist(), strict=True)
        ]
        return pa.array(chosen, ACL_RAW_TYPE)


def _as_java(acl: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"perms": one["perms"]}
        | {name: None if one[name] is None else java_string(one[name]) for name in ("scheme", "id")}
        for one in acl
    ]


def validity(array: pa.Array) -> Bytes:
    """1 where there is a value."""
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    return np.asarray(array.is_valid()).astype(np.uint8)


def list_ends(array: pa.Array) -> tuple[Int32s, pa.Array]:
    """Where lists end in their values, which are those of lists that are not null, one after the other."""
    lengths = np.asarray(array.value_lengths().fill_null(0), np.int64)
    return ends_of(lengths).astype(np.int32), array.flatten()


def ends_of(sizes: Int64s) -> Int64s:
    """Where things of these sizes end that lie one after the other, from 0 on."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
