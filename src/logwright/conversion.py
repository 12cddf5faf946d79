"""Between native files and table files (Parquet, Arrow).

A native file becomes three table files, `x.parquet` (rows), `x.frames.parquet` and `x.file.parquet`, since the rows alone
don't say everything that is needed to write the same bytes again; a directory becomes one, the rows of a view. The way back
takes the three where they are there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.option import number
from logwright.codec.table import Table
from logwright.formats.sink import Sink, format_of
from logwright.readers.filter import Filter, Given, understand
from logwright.readers.stream import CORRUPT

TABLES = ("frames", "file")
_TABLE_FORMATS = ("parquet", "arrow")
_CORRUPT = {field.name for field in CORRUPT}


def convert(
    source: str, target: str, codec: str | None = None, *, view: str | None = None, columns: Any = None,
    filter: Any = None, limit: int | None = None, mode: str = "FAILFAST", if_exists: str = "error",
    rows_only: bool = False, as_system: str | None = None, clean: bool | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Convert `source` to `target`; what each is, its name tells, or `codec` (of the native side).

    Returns what was written: `{"files": [...], "rows": n, "report": the report of the reading or None, "written": Written}`.
    Raises `UsageError` when a table file would be made from a table file, `ExistsError` when the target is there.
    """
    from_table, to_table = _is_table(source), _is_table(target)
    if from_table and to_table:
        raise UsageError("both are table files", advice="One side must be a native file or directory")
    if to_table:
        return _to_tables(source, target, codec, if_exists, rows_only, options,
                          view=view, columns=columns, filter=filter, limit=limit, mode=mode,
                          as_system=as_system, clean=clean)  # fmt: skip
    from logwright import api

    data: Any
    frames = file = None
    reading = None
    if not from_table:
        data = reading = api.scan(source, view=view, columns=columns, filter=filter, limit=limit,
                                  mode=mode, as_system=as_system, clean=clean)  # fmt: skip
    if codec is None:
        found = registry.detect(os.path.basename(target), b"")
        if found is None:
            raise UsageError(
                f"what {target!r} is to be is not clear from its name", advice="Say it with codec (--codec)"
            )
        codec = found.name
    if from_table:
        if view is not None or mode.upper() != "FAILFAST" or as_system is not None or clean is not None:
            raise UsageError(
                "a table file holds rows as they are",
                path=source,
                advice="view, mode, as_system and clean go with native files",
            )
        data = open_table(source)
        if columns is not None or filter is not None or limit is not None:
            data = _some(data, _rows_table(codec), columns, filter, limit)
        elif not rows_only and not _is_layout(codec):
            frames, file = (_optional(beside(source, name)) for name in TABLES)
    written = api.write(data, target, codec, frames=frames, file=file, mode=if_exists, **options)
    return {
        "files": written.files,
        "rows": written.rows,
        "report": reading and reading.report,
        "written": written,
    }


def _to_tables(
    source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
    *, view: str | None, columns: Any, **reading: Any,
) -> dict[str, Any]:  # fmt: skip
    from logwright import api
    from logwright.writers.file import whole_file

    exact = not rows_only and view is None and os.path.isfile(source)
    kind = format_of(target)
    assert kind is not None
    mode = reading.pop("mode")
    # Of three tables the frames hold damaged stretches, as they are; rows for them have no place in the rows.
    permissive = mode.upper() == "PERMISSIVE"
    scan = api.scan(
        source, codec, view=view, columns="*" if exact and columns is None else columns,
        mode="DROPMALFORMED" if exact and permissive else mode, **reading, **options,
    )  # fmt: skip
    parts: list[tuple[str, Any]] = [(target, scan)]
    if exact:
        modes = {"frames": mode, "file": "DROPMALFORMED" if permissive else mode}
        parts += [
            (
                beside(target, name),
                api.scan(source, codec, view=name, columns="*", mode=modes[name], **options),
            )
            for name in TABLES
        ]
    rows = 0
    for path, one in parts:
        schema = one.schema
        if exact:
            schema = pa.schema([field for field in schema if field.name not in _CORRUPT])
        with whole_file(path, if_exists=if_exists) as stream, Sink(stream, kind, schema) as sink:
            for batch in one:
                if exact and permissive and "position" in schema.names:
                    # A damaged end is in the file table.
                    batch = batch.filter(batch.column("position").is_valid())
                sink.write(batch.select(schema.names))
                rows += batch.num_rows if path == target else 0
    return {"files": [path for path, _ in parts], "rows": rows, "report": scan.report, "written": None}


def _some(
    reader: pa.RecordBatchReader, table: Table, columns: Any, filter: Given, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Of the rows of a table file those that are wanted, by the columns of what they become."""
    chosen = understand(filter, table)
    names = reader.schema.names
    wanted = names if columns in (None, "*") else list(table.select(columns))
    for name in (*wanted, *(chosen.columns if chosen is not None else ())):
        if name not in names:
            raise UsageError(f"no column {name!r} in the table file", advice=f"There are: {', '.join(names)}")
    left = None if limit is None else number("limit", limit)

    def rows() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            if chosen is not None:
                batch = batch.take(_matching(batch, chosen, table))
            batch = batch.select(wanted).slice(0, None if left is None else left - done)
            done += batch.num_rows
            yield batch
            if done == left:
                return

    return rows()


def _matching(batch: pa.RecordBatch, chosen: Filter, table: Table) -> pa.Array[Any]:
    """Numbers of the rows that match; they are compared in the types that they get."""
    try:
        columns = {name: batch.column(name).cast(table[name].type) for name in chosen.columns}
    except pa.ArrowException as error:
        raise UsageError(f"the rows can't be filtered: {error}") from None
    numbered = pa.RecordBatch.from_pydict({**columns, "": pa.array(range(batch.num_rows), pa.int64())})
    return chosen.apply(numbered).column("")


def _rows_table(codec: str) -> Table:
    from logwright.writers.write import rows_table

    return rows_table(registry.get_layout(codec)) if _is_layout(codec) else registry.get(codec).tables["rows"]


def beside(path: str, name: str) -> str:
    """`x.parquet` and `frames` give `x.frames.parquet`."""
    stem, dot = os.path.splitext(path)
    return f"{stem}.{name}{dot}"


def open_table(path: str) -> pa.RecordBatchReader:
    """The rows of a Parquet or Arrow file (or stream), without loading the whole."""
    if not os.path.exists(path):
        raise NotFoundError("no such file", path=path)
    try:
        if format_of(path) == "parquet":
            from pyarrow import parquet

            table = parquet.ParquetFile(path)
            return pa.RecordBatchReader.from_batches(table.schema_arrow, table.iter_batches(64 * 1024))
        try:
            reader = pa.ipc.open_file(path)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(path)
        return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))
    except pa.ArrowInvalid as error:
        raise UsageError(f"not a readable {format_of(path)} file ({error})", path=path) from None


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _optional(path: str) -> pa.Table | None:
    return open_table(path).read_all() if os.path.exists(path) else None


def _is_table(path: str) -> bool:
    return format_of(path) in _TABLE_FORMATS and not os.path.isdir(path)


def _is_layout(codec: str | None) -> bool:
    return codec is not None and any(layout.name == codec for layout in registry.layouts())
