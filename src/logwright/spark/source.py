"""The data source class of `format("logwright")`.

Each step of a query has its own Python process. Spark looks for sources in the first, so a method imports what it needs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from logwright.readers.traceback import short_traceback

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from logwright.codec.layout import Layout
    from logwright.codec.table import Table
    from logwright.readers.spark import SparkSource
    from logwright.readers.spark_stream import StreamSource
    from logwright.writers.bad_records import BadRecords
    from logwright.writers.spark import DoneAlready, SparkSink, StreamSink

_OF_SPARK = {"checkpointlocation", "queryname"}
"""Options of a stream that are not those of its sink."""


class DefaultSource(DataSource):
    """The source of `spark.read.format("logwright")` and `df.write.format("logwright")`."""

    @classmethod
    def name(cls) -> str:
        return "logwright"

    @short_traceback
    def schema(self) -> StructType:
        from logwright.readers.spark_request import Request
        from logwright.readers.spark_schema import schema_of

        return schema_of(Request.of(self.options))

    @short_traceback
    def reader(self, schema: StructType) -> SparkSource:
        from logwright.readers.spark import PushingSource, SparkSource
        from logwright.readers.spark_request import Request

        request = Request.of(self.options)
        request.check_batch()
        kind = PushingSource if request.words["pushFilters"] else SparkSource
        return kind(request, schema, _bad_records(request.words["badRecordsPath"]))

    @short_traceback
    def streamReader(self, schema: StructType) -> StreamSource:
        from logwright.readers.spark_request import Request
        from logwright.readers.spark_stream import StreamSource

        request = Request.of(self.options)
        return StreamSource(request, schema, _bad_records(request.words["badRecordsPath"]))

    @short_traceback
    def writer(self, schema: StructType, overwrite: bool) -> SparkSink | DoneAlready:
        from logwright.writers.spark import DoneAlready, SparkSink, txn_of
        from logwright.writers.staged import StagedWrite
        from logwright.writers.transactions import Repeated

        path, layout, options = self._target(schema)
        txn = txn_of(self.options)
        mode = "overwrite" if overwrite else "append"
        try:
            return SparkSink(StagedWrite(path, layout.name, mode, options, process=_driver(), txn=txn))
        except Repeated:
            return DoneAlready()

    @short_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        from logwright.writers.spark import StreamSink, app_of
        from logwright.writers.streamed import StreamWrite

        path, layout, options = self._target(schema, _OF_SPARK)
        app = app_of(self.options)
        mode = "overwrite" if overwrite else "append"
        return StreamSink(StreamWrite(path, layout.name, app, mode, options, process=_driver()))

    def _target(
        self, schema: StructType, ignored: Set[str] = frozenset()
    ) -> tuple[str, Layout, dict[str, Any]]:
        """Return the path, layout and options of a write, checked as far as possible. `ignored` are options for Spark itself."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from logwright.codec import registry
        from logwright.codec.fault import UsageError
        from logwright.codec.option import Options, fold
        from logwright.readers.spark_request import paths_of
        from logwright.writers.rows import ignored_columns, refuse_types
        from logwright.writers.spark import TXN_OPTIONS
        from logwright.writers.write import rows_table, taken_table

        ignored = {"path", "paths", "codec", *(fold(option.name) for option in TXN_OPTIONS), *ignored}
        (path,) = paths_of(self.options)
        options_by_name = {fold(name): value for name, value in self.options.items()}
        if "codec" not in options_by_name:
            names = ", ".join(layout.name for layout in registry.writers())
            raise UsageError(
                "option codec is missing", path=path, advice=f'Set .option("codec", ...) to one of: {names}'
            )
        layout = registry.get_writer(options_by_name["codec"])
        for text in ignored_columns(schema.names, rows_table(layout)):
            warnings.warn(text, stacklevel=2)
        options = registry.numbers(
            {name: value for name, value in self.options.items() if fold(name) not in ignored}
        )
        arrow, table = to_arrow_schema(schema, timezone="UTC"), taken_table(layout, options)
        refuse_types(arrow, table)
        # Pass one nearly empty row through a builder, so that wrong types and names are refused before any task runs.
        trial = layout.builder(
            None, os.path.basename(path.rstrip("/")), Options(layout.options, options), staged=True
        )
        list(trial.add(_trial(arrow, table, rows_table(layout).key, layout.trial_row)))
        return path, layout, options


def _bad_records(path: str | None) -> BadRecords | None:
    if path is None:
        return None
    from logwright.writers.bad_records import BadRecords

    return BadRecords.at(path)


def _trial(schema: pa.Schema, table: Table, key: Sequence[str], values: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a row of nulls, except for integers, non-nullable bytes and keys, where null would be refused, and for `values`."""
    import pyarrow as pa

    required = {
        column.name
        for column in table.columns
        if (column.type == pa.binary() and not column.nullable) or column.name in key
    }
    arrays = [
        pa.array([values[f.name]]).cast(f.type)
        if f.name in values and not pa.types.is_nested(f.type)
        else pa.array([0]).cast(f.type)
        if pa.types.is_integer(f.type)
        else pa.array([b""]).cast(f.type)
        if f.name in required and (pa.types.is_binary(f.type) or pa.types.is_string(f.type))
        else pa.nulls(1, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _driver() -> int:
    """Return the process that owns a write: the driver's JVM, an ancestor of the worker that plans it."""
    process = os.getpid()
    try:
        while process > 1:
            with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as file:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            if fields["Name"] == "java":
                return process
            process = int(fields["PPid"])
    except (OSError, KeyError, ValueError):
        pass  # no /proc on this system
    return os.getppid()
