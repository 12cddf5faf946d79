"""Arrow arrays of decoded messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import contents, numbers
from logwright.codec.kafka.formats.internal.schema import Field, Kind, struct_type


def build(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """Return an array of values of one type. None is null."""
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if kind.fields is not None:
        return structures(kind.fields, values, null)
    if kind.item is not None:
        ends = np.zeros(len(values) + 1, np.int32)
        np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
        items = build(kind.item, [item for value in values if value is not None for item in value])
        offsets = numbers(pa.int32(), ends)
        return pa.ListArray.from_arrays(offsets, items, type=kind.arrow(), mask=numbers(pa.bool_(), null))
    arrow = kind.arrow()
    if pa.types.is_string(arrow):
        return contents(arrow, [None if value is None else value.encode() for value in values])
    if pa.types.is_binary(arrow):
        return contents(arrow, values)
    filled = np.array([0 if value is None else value for value in values], arrow.to_pandas_dtype())
    return numbers(arrow, filled, null)


def structures(fields: Sequence[Field], values: Sequence[Any], null: Bools | None = None) -> pa.StructArray:
    """Return an array of structures, each a mapping. A field that a mapping lacks is null."""
    children = [
        build(field.kind, [None if value is None else value.get(field.name) for value in values])
        for field in fields
    ]
    mask = None if null is None or not null.any() else numbers(pa.bool_(), null)
    return pa.StructArray.from_arrays(children, fields=list(struct_type(tuple(fields))), mask=mask)


def spread(pieces: Sequence[tuple[Int64s, pa.Array]], kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of `rows` rows. Each piece is the rows that it fills and their values; the others are null."""
    if not pieces:
        return pa.nulls(rows, kind)
    at = np.full(rows, -1, np.int64)
    before = 0
    for places, _ in pieces:
        at[places] = np.arange(before, before + len(places))
        before += len(places)
    joined = pieces[0][1] if len(pieces) == 1 else pa.concat_arrays([values for _, values in pieces])
    if before == rows and (at == np.arange(rows)).all():
        return joined
    return joined.take(numbers(pa.int64(), at, at < 0))
