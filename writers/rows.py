"""Convert the data that a caller passes to a stream of record batches of limited size."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.columns import is_text
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError, did_you_mean
from logwright.codec.table import Table
from logwright.readers.stream import CORRUPT_NAMES

BATCH_ROWS = 1 << 16
"""Maximum number of rows passed to a builder or encoder at a time."""

_PLACE = CORRUPT_NAMES[1]
_INDEXABLE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Types whose values PyArrow can look up in a dictionary, instead of those it cannot."""

_ACCEPTED = "Pass an object with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a list of dicts, or record batches"


def batches(data: Any, table: Table | None = None, *, damaged: bool = False) -> Iterator[pa.RecordBatch]:
    """Iterate over the rows of `data`: any object with an Arrow stream, dicts of values by column, or record batches and tables.

    Dicts are converted to the column types of `table`, if given. Unknown columns are passed through if at least one is known. Nothing is
    read ahead. Rows that mode `PERMISSIVE` returns for damaged regions are refused unless `damaged`.
    """
    seen = 0
    for batch in _batches(data, table):
        _refuse_repeated(batch.schema.names)
        if table is not None:
            _refuse_unknown(batch.schema.names, table)
        if not damaged:
            _refuse_damaged(batch, seen)
        seen += batch.num_rows
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = _decoded(batch.slice(start, BATCH_ROWS))
            if table is not None:
                refuse_types([f for f in part.schema if part[f.name].null_count < len(part)], table)
            yield part if table is None else _in_milliseconds(part, table)


def _batches(data: Any, table: Table | None) -> Iterable[pa.RecordBatch]:
    if isinstance(data, (str, bytes, os.PathLike)):
        raise UsageError(
            f"the data is {data!r}, not rows", advice=f"Read it first with logwright.read. {_ACCEPTED}"
        )
    if isinstance(data, pa.Table):
        return list(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return _read(data)
    if hasattr(data, "__arrow_c_stream__"):
        # Errors of a Python reader keep their types; through the C interface they would not.
        reader = data.to_reader() if hasattr(data, "to_reader") else None
        if isinstance(reader, pa.RecordBatchReader):
            return _read(reader)
        try:
            return _read(pa.RecordBatchReader.from_stream(data))
        except (pa.ArrowException, TypeError, ValueError) as error:
            # From pandas: duplicate column names, or values of several types in a column. Or the data is a single column.
            raise UsageError(
                f"cannot read the {type(data).__name__} as rows: {error}", advice=_ACCEPTED
            ) from None
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise UsageError(f"the data is of type {type(data).__name__}, not rows", advice=_ACCEPTED)
    return _mixed(data, table)


def whole(data: Any, table: Table, *, damaged: bool = False) -> pa.Table:
    """Return all rows, as `batches`, for encoders that need them at once."""
    tables = [pa.Table.from_batches([batch]) for batch in batches(data, table, damaged=damaged)]
    if not tables:
        return table.schema().empty_table()
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(f"the batches have columns of different types: {error}") from None


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode the columns that are dictionary-encoded or run-end-encoded."""
    for place, field in enumerate(batch.schema):
        kind, column = field.type, batch.column(place)
        try:
            if pa.types.is_dictionary(kind):
                values = column.dictionary.cast(_INDEXABLE.get(kind.value_type, kind.value_type))
                column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
            elif pa.types.is_run_end_encoded(kind):
                column = pc.run_end_decode(column)
            else:
                continue
        except pa.ArrowException as error:
            raise UsageError(f"column {field.name!r}: cannot decode {kind}: {error}") from None
        batch = batch.set_column(place, field.name, column)
    return batch


def _refuse_damaged(batch: pa.RecordBatch, seen: int) -> None:
    if _PLACE not in batch.schema.names or batch.column(_PLACE).null_count == batch.num_rows:
        return
    row = pc.index(batch.column(_PLACE).is_valid(), True).as_py()
    raise UsageError(
        f"row {seen + row} stands for the damaged region at byte {batch.column(_PLACE)[row].as_py()}, and has no values",
        advice=f"Read with mode=DROPMALFORMED, or drop the rows where {_PLACE} is not null",
    )


def _refuse_repeated(names: Sequence[str]) -> None:
    for name in names if len(set(names)) < len(names) else ():
        if names.count(name) > 1:
            raise UsageError(
                f"there are {names.count(name)} columns {name!r}", advice="Rename or drop all but one"
            )


def _refuse_unknown(names: Sequence[str], table: Table) -> None:
    """Refuse rows without a core column if most columns are unknown. Rows of another system may have a known one, such as `version`."""
    core = table.names()
    if 2 * len(set(names) & set(table.names(detail=True))) < len(names) and not set(names) & set(core):
        shown = ", ".join(map(str, names[:5]))
        raise UsageError(f"no core column among the columns {shown}", advice=did_you_mean(names[0], core))


def refuse_types(fields: Iterable[pa.Field], table: Table) -> None:
    """Refuse text or booleans for numbers, numbers for text, and so on, which a cast would accept. Builders check nested types."""
    types = {column.name: column.type for column in table.columns}
    for field in fields:
        expected = types.get(field.name, field.type)
        if not (pa.types.is_null(field.type) or _fits(field.type, expected)):
            expected = "bytes or text" if is_text(expected) else expected
            raise UsageError(f"column {field.name!r} has type {field.type}, expected {expected}")


def _fits(kind: pa.DataType, expected: pa.DataType) -> bool:
    if is_text(expected):
        return is_text(kind) or pa.types.is_nested(kind)
    if pa.types.is_timestamp(expected):
        return bool(pa.types.is_temporal(kind) or pa.types.is_integer(kind))
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(kind))
    return bool(pa.types.is_boolean(kind) or not pa.types.is_boolean(expected))


def ignored_columns(names: Iterable[str], table: Table) -> list[str]:
    """Return a sentence for each unknown column that resembles a missing one, whose values would stay null, and one for the others.
    Columns of readers are left out: their names start with an underscore (`_path`, `__index_level_0__`)."""
    passed = set(names)
    missing = {name.lower(): name for name in table.names() if name not in passed}
    out, others = [], []
    for name in sorted(passed - set(table.names(detail=True))):
        near = difflib.get_close_matches(name.lower(), missing, n=1)
        if near:
            out.append(f"ignored the unknown column {name!r}; did you mean {missing[near[0]]!r}?")
        elif not name.startswith("_"):
            others.append(repr(name))
    if others:
        out.append(f"ignored the unknown {'columns' if len(others) > 1 else 'column'} {', '.join(others)}")
    return out


@contextlib.contextmanager
def misfits_named(schema: pa.Schema, table: Table) -> Iterator[None]:
    """Raise `UsageError` instead of an error of PyArrow if some columns of rows with this schema have other types than those of the table."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError) as error:
        types = {column.name: column.type for column in table.columns}
        misfits = [
            f"{field.name!r} has type {field.type}, expected {types[field.name]}"
            for field in schema
            if (expected := types.get(field.name, field.type)) != field.type
            and not (pa.types.is_binary(expected) and is_text(field.type))
        ]
        if not misfits:
            raise
        raise UsageError(f"column {', column '.join(misfits)}: {error}") from None


def _in_milliseconds(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """Truncate times to milliseconds where the system stores them so. Those of Spark have microseconds, those of pandas nanoseconds."""
    stored = {
        column.name
        for column in table.columns
        if pa.types.is_timestamp(column.type) and column.type.unit == "ms"
    }
    for place, field in enumerate(batch.schema):
        if field.name in stored and pa.types.is_timestamp(field.type) and field.type.unit in ("us", "ns"):
            times = batch.column(place).cast(pa.timestamp("ms", field.type.tz), safe=False)
            batch = batch.set_column(place, field.name, times)
    return batch


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise UsageError(f"cannot read the data: {error}") from error


def _mixed(items: Iterable[Any], table: Table | None) -> Iterator[pa.RecordBatch]:
    seen = 0
    for kind, group in itertools.groupby(items, _kind):
        if kind is pa.RecordBatch:
            yield from group
        elif kind is pa.Table:
            for item_table in group:
                yield from item_table.to_batches()
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
    raise UsageError(f"a row must be a dict, not {type(item).__name__}", advice=_ACCEPTED)


def _from_dicts(rows: Sequence[Mapping[str, Any]], table: Table | None, seen: int) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise UsageError(f"row {seen} is an empty dict", advice="Pass None for a null column")
    known = {column.name: column.type for column in table.columns} if table is not None else {}
    arrays = [_column(name, [row.get(name) for row in rows], known.get(name), seen) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(name: str, values: list[Any], type_: pa.DataType | None, seen: int) -> pa.Array[Any]:
    try:
        if type_ is None:
            array: pa.Array[Any] = pa.array(values)
        else:
            array = pa.array([_shaped(value, type_) for value in values], type_)
        return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = str(error)
    if type_ is None:
        raise UsageError(f"column {name!r}: its values have no common type ({why})")
    for number, value in enumerate(values):
        misfit = _misfit(value, type_)
        if misfit is not None:
            raise UsageError(f"row {seen + number}, column {name!r}: {misfit}")
    raise UsageError(f"column {name!r}: {why}")


def _misfit(value: Any, type_: pa.DataType) -> str | None:
    """Return why a value is not of a type, or None."""
    try:
        pa.array([_shaped(value, type_)], type_)
    except UsageError as error:
        return str(error)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return f"{_short(value)} is not {type_}"
    return None


def _has_pairs(type_: pa.DataType) -> bool:
    """Return whether a list holds pairs of key and value, such as headers and properties."""
    item = type_.value_type
    return pa.types.is_struct(item) and [field.name for field in item] == ["key", "value"]


def _shaped(value: Any, type_: pa.DataType) -> Any:
    """Convert tuples to structures by position: a header may be `("name", b"value")`, and all headers of a row `{"name": b"value"}`.
    Raises `UsageError` for an unknown field, which PyArrow would leave out."""
    if value is None:
        return None
    if isinstance(value, float) and not value.is_integer() and not pa.types.is_floating(type_):
        raise ValueError(f"{value} is not {type_}")  # pyarrow would truncate it
    if isinstance(value, Mapping) and pa.types.is_list(type_) and _has_pairs(type_):
        value = list(value.items())
    if pa.types.is_list(type_) and isinstance(value, (list, tuple)):
        return [_shaped(item, type_.value_type) for item in value]
    if pa.types.is_map(type_) and isinstance(value, (Mapping, list, tuple)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_shaped(key, type_.key_type), _shaped(item, type_.item_type)) for key, item in pairs]
    if pa.types.is_struct(type_) and isinstance(value, (list, tuple)) and len(value) == type_.num_fields:
        value = {field.name: item for field, item in zip(type_, value, strict=True)}
    if pa.types.is_struct(type_) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in type_}
        for name in value:
            if name not in fields:
                raise UsageError(f"there is no field {name!r}", advice=did_you_mean(name, fields))
        return {name: _shaped(item, fields[name]) for name, item in value.items()}
    if pa.types.is_timestamp(type_) and type_.unit == "us" and isinstance(value, int):
        return value * 1000  # Numbers are milliseconds, as in JSON lines.
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
