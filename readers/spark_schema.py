"""Convert schemas between Arrow and Spark. Spark checks types, nullability and order, and has times in microseconds only."""

from __future__ import annotations

import warnings

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from logwright.codec import registry
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.table import Table
from logwright.readers.paths import name_of
from logwright.readers.plan import Reading
from logwright.readers.spark_request import Request
from logwright.readers.store_search import first_names
from logwright.readers.stream import CORRUPT, CORRUPT_NAMES, Mode
from logwright.readers.task import table_of

_MAX_MICROSECONDS = (1 << 63) // 1000
RECORD = CORRUPT_NAMES[0]
METADATA = (pa.field("_path", pa.string(), False), pa.field("_position", pa.int64()))
"""Columns that `includeMetadata` adds."""


def schema_of(request: Request) -> StructType:
    """Return the schema of `load` without a schema."""
    plan = request.reading()
    if plan is None:
        plan = Reading(_table_of_nothing(request), ())
    left_out = request.left_out()
    fields = [
        column.field()
        for column in map(plan.table.__getitem__, plan.table.select(request.columns))
        if column.name not in left_out
    ]
    # Rows that are known without reading a file include no damaged ones.
    if request.mode is Mode.PERMISSIVE and not plan.ready:
        check_corrupt_name(request, plan.table)
        fields = [field.with_nullable(True) for field in fields]
        fields += [field.with_name(outer(field.name, request)) for field in CORRUPT]
    if request.words["includeMetadata"]:
        fields += METADATA
    times = [
        pa.field(f.name, pa.timestamp("us", "UTC"), f.nullable) if pa.types.is_timestamp(f.type) else f
        for f in fields
    ]
    schema: StructType = from_arrow_schema(pa.schema(times))
    return schema


def _table_of_nothing(request: Request) -> Table:
    """Return the table of a named layout that can be followed, whose directories may appear later."""
    for layout in registry.layouts():
        if layout.name == request.words["codec"] and layout.capabilities.follow is not None:
            return table_of(layout.views[request.following(layout, list).view], request.options)
    if found := [name_of(target.path) for target in request.found()]:
        raise UsageError(
            f"nothing there matches {' and '.join(request.follow)}: it has {first_names(found)}",
            path=", ".join(request.paths),
            advice='A stream can wait for it: .option("codec", ...)',
        )
    raise UsageError("nothing exists yet, so the columns are unknown", advice="Pass a schema: .schema(...)")


def outer(name: str, request: Request) -> str:
    return request.words["columnNameOfCorruptRecord"] if name == RECORD else name


def check_corrupt_name(request: Request, table: Table) -> None:
    name = request.words["columnNameOfCorruptRecord"]
    if name in {*table.names(detail=True), "_path", "_position", *CORRUPT_NAMES[1:]}:
        raise UsageError(
            f"columnNameOfCorruptRecord: column {name!r} exists already", advice="Use another name"
        )


def castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether values can be converted to another type without changing their meaning."""
    if have == want:
        return True
    is_ = pa.types
    if is_.is_list(have) and is_.is_list(want):
        return castable(have.value_type, want.value_type)
    if is_.is_struct(have) and is_.is_struct(want):
        return [child.name for child in have] == [child.name for child in want] and all(
            castable(a.type, b.type) for a, b in zip(have, want, strict=True)
        )
    if is_.is_timestamp(have):
        return bool(is_.is_timestamp(want) and want.tz)
    if is_.is_integer(have):
        return bool(
            is_.is_integer(want) or is_.is_floating(want) or is_.is_decimal(want) or is_.is_string(want)
        )
    bytes_ = (is_.is_binary, is_.is_string)
    return any(child(have) for child in bytes_) and any(child(want) for child in bytes_)


def spelled(kind: pa.DataType) -> str:
    """Return a type as Spark writes it."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    name: str = from_arrow_schema(pa.schema([pa.field("x", kind)]))[0].dataType.simpleString()
    return name


def fit(array: pa.Array, field: pa.Field, name: str, path: str) -> pa.Array:
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(array.type) and array.type.unit == "ms":
        raw = array.cast(pa.int64())
        # A Python number would make PyArrow import pandas.
        extremes = [value for value in pc.min_max(raw).as_py().values() if value is not None]
        if any(abs(value) > _MAX_MICROSECONDS for value in extremes):
            beyond = pc.greater(pc.abs(raw), _MAX_MICROSECONDS)
            warnings.warn(
                f"{name}: times outside the range of Spark's microseconds are null; the detail column {name}_ms has them",
                stacklevel=2,
            )
            array = pc.if_else(beyond, pa.scalar(None, array.type), array)
    if array.type == field.type:
        return array
    if name == RECORD:
        # The bytes may not be valid text: escape them, so that nothing is lost.
        texts = [
            None if value is None else value.decode(errors="backslashreplace") for value in array.to_pylist()
        ]
        return pa.array(texts, field.type)
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"column {field.name!r} cannot be converted to {spelled(field.type)}: {str(error).splitlines()[0]}",
            path=path,
            advice=f"Use {spelled(array.type)} in the schema, and convert it with Spark",
        ) from None
