"""What people hand over as data, as a stream of record batches of bounded size."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.table import Table

BATCH_ROWS = 1 << 16
"""The most rows that a builder or encoder is given at a time."""

_WANTED = "Anything with an Arrow stream is taken (pyarrow, pandas, Polars, DuckDB), a list of dicts, or record batches"


def batches(data: Any, table: Table | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of `data` in order: anything with an Arrow stream, dicts of values by column, or record batches and tables.

    Dicts are converted to the types of the columns of `table` where it has them. Further columns are let through, as long as
    one is known. Nothing is read ahead.
    """
    for batch in _batches(data, table):
        if table is not None:
            _refuse_unknown(batch.schema.names, table)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _batches(data: Any, table: Table | None) -> Iterable[pa.RecordBatch]:
    if isinstance(data, (str, bytes, os.PathLike)):
        raise UsageError(
            f"the data is {data!r}, not rows", advice=f"Read it first with logwright.read. {_WANTED}"
        )
    if isinstance(data, pa.Table):
        return list(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return _read(data)
    if hasattr(data, "__arrow_c_stream__"):
        # Where there is a reader on this side of the C interface its errors arrive as they were raised.
        reader = data.to_reader() if hasattr(data, "to_reader") else None
        if isinstance(reader, pa.RecordBatchReader):
            return _read(reader)
        try:
            return _read(pa.RecordBatchReader.from_stream(data))
        except (pa.ArrowException, TypeError, ValueError) as error:
            # Of pandas: columns of one name, or with values of several types. Of a lone column: it is no table.
            raise UsageError(
                f"the {type(data).__name__} can't be taken as rows: {error}", advice=_WANTED
            ) from None
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise UsageError(f"the data is a {type(data).__name__}, not rows", advice=_WANTED)
    return _mixed(data, table)


def whole(data: Any, table: Table) -> pa.Table:
    """All rows at once, for encoders that need them so."""
    found = [pa.Table.from_batches([batch]) for batch in batches(data, table)]
    if not found:
        return table.schema().empty_table()
    try:
        return pa.concat_tables(found, promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(f"the batches have columns of different types: {error}") from None


def _refuse_unknown(names: Sequence[str], table: Table) -> None:
    known = table.names(detail=True)
    if names and not set(names) & set(known):
        near = difflib.get_close_matches(names[0], known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"
        raise UsageError(f"none of the columns is known: {', '.join(map(str, names[:5]))}", advice=hint)


def misspelt(names: Iterable[str], table: Table) -> list[str]:
    """A sentence for each column that is not known, where it looks like one that is missing: a value that stays null."""
    given = set(names)
    missing = {name.lower(): name for name in table.names() if name not in given}
    out = []
    for name in sorted(given - set(table.names(detail=True))):
        near = difflib.get_close_matches(name.lower(), missing, n=1, cutoff=0.75)
        if near:
            out.append(f"column {name!r} is not known and was left out: is {missing[near[0]]!r} meant?")
    return out


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise UsageError(f"the data can't be read: {error}") from error


def _mixed(items: Iterable[Any], table: Table | None) -> Iterator[pa.RecordBatch]:
    seen = 0
    for kind, group in itertools.groupby(items, _kind):
        if kind is pa.RecordBatch:
            yield from group
        elif kind is pa.Table:
            for one in group:
                yield from one.to_batches()
        else:
            while rows := list(itertools.islice(group, BATCH_ROWS)):
                yield _from_dicts(rows, table, seen)
                seen += len(rows)


def _kind(item: Any) -> Any:
    for kind in (pa.RecordBatch, pa.Table):
        if isinstance(item, kind):
            return kind
    if isinstance(item, Mapping):
        return dict
    raise UsageError(f"a {type(item).__name__} is no row", advice=_WANTED)


def _from_dicts(rows: Sequence[Mapping[str, Any]], table: Table | None, seen: int) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in rows for name in row))
    known = {column.name: column.type for column in table.columns} if table is not None else {}
    arrays = [_column(name, [row.get(name) for row in rows], known.get(name), seen) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(name: str, values: list[Any], type_: pa.DataType | None, seen: int) -> pa.Array[Any]:
    try:
        if type_ is None:
            found: pa.Array[Any] = pa.array(values)
        else:
            found = pa.array([_shaped(value, type_) for value in values], type_)
        return found
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = str(error)
    if type_ is None:
        raise UsageError(f"column {name!r}: its values have no common type ({why})")
    at = next((number for number, value in enumerate(values) if not _fits(value, type_)), None)
    if at is None:
        raise UsageError(f"column {name!r}: {why}")
    raise UsageError(f"row {seen + at}, column {name!r}: {_short(values[at])} is no {type_}")


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.array([_shaped(value, type_)], type_)
        return True
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _shaped(value: Any, type_: pa.DataType) -> Any:
    """Pairs where a structure is wanted are taken by position: a header as `("name", b"value")`."""
    if value is None:
        return None
    if isinstance(value, float) and not value.is_integer() and not pa.types.is_floating(type_):
        raise ValueError(f"{value} is no {type_}")  # pyarrow would cut it
    if pa.types.is_list(type_) and isinstance(value, (list, tuple)):
        return [_shaped(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_) and isinstance(value, (list, tuple)) and len(value) == type_.num_fields:
        return {type_.field(at).name: one for at, one in enumerate(value)}
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
