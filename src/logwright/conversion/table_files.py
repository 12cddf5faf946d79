"""Conversion of native files to table files (Parquet, Arrow, JSON lines) and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.option import number
from logwright.codec.table import Table
from logwright.conversion.options import codec_named, is_layout, narrows, of_table
from logwright.conversion.result import result
from logwright.formats.sink import Sink, format_of
from logwright.readers.filter import Conditions, Filter, understand
from logwright.readers.stream import CORRUPT_NAMES
from logwright.scanning import scan as scan_of

TABLES = ("frames", "file")
FORMATS = ("parquet", "arrow", "jsonl")


def from_tables(
    source: str, target: str, codec: str, if_exists: str, rows_only: bool, options: dict[str, Any],
    columns: Any, filter: Any, limit: int | None,
) -> dict[str, Any]:  # fmt: skip
    from logwright.writers.write import write

    table = _rows_table(codec, options)
    data: Any = open_table(source, _known(codec, table))
    frames = file = None
    if columns is not None or filter is not None or limit is not None:
        data = _some(data, table, columns, filter, limit)
    elif not rows_only and not is_layout(codec):
        tables = registry.get(codec).tables
        frames, file = (_optional(beside(source, name), tables[name]) for name in TABLES)
    written = write(data, target, codec, frames=frames, file=file, mode=if_exists, **options)
    return result(written, None)


def to_tables(
    source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
    *, view: str | None, columns: Any, **reading: Any,
) -> dict[str, Any]:  # fmt: skip
    from logwright.readers.resolve import configuration, resolve
    from logwright.writers.file import whole_file

    exact = not rows_only and view is None and os.path.isfile(source) and configuration(source) is None
    if exact:
        # The frames table holds all rows, so it must not accompany a selection.
        chosen = reading["filter"] is not None or reading["limit"] is not None
        (origin,) = resolve(source, codec, options)
        exact = not chosen and not narrows(codec_named(origin), options)
    kind = format_of(target)
    assert kind is not None
    mode = reading.pop("mode")
    # Of the three tables the frames table has the damaged regions; the rows table has no place for them.
    permissive = mode.upper() == "PERMISSIVE"
    scan = scan_of(
        source, codec, view=view, columns="*" if exact and columns is None else columns,
        mode="DROPMALFORMED" if exact and permissive else mode, **reading, **options,
    )  # fmt: skip
    parts: list[tuple[str, Any]] = [(target, scan)]
    if exact:
        modes = {"frames": mode, "file": "DROPMALFORMED" if permissive else mode}
        parts += [
            (
                beside(target, name),
                scan_of(
                    source,
                    codec,
                    view=name,
                    columns="*",
                    mode=modes[name],
                    **of_table(codec_named(origin), name, options),
                ),
            )
            for name in TABLES
        ]
    rows = 0
    for path, part_scan in parts:
        schema = part_scan.schema
        if exact:
            schema = pa.schema([field for field in schema if field.name not in CORRUPT_NAMES])
        with whole_file(path, if_exists=if_exists) as stream, Sink(stream, kind, schema) as sink:
            for batch in part_scan:
                if exact and permissive and "position" in schema.names:
                    # A damaged end is in the file table.
                    batch = batch.filter(batch.column("position").is_valid())
                sink.write(batch.select(schema.names))
                rows += batch.num_rows if path == target else 0
    return {
        "files": [path for path, _ in parts],
        "rows": rows,
        "report": scan.report,
        "written": None,
        "notes": (),
    }


def codec_of(target: str) -> str:
    detected = registry.detect(os.path.basename(target), b"")
    if detected is None:
        raise UsageError(
            f"the format of {target!r} is unknown from its name", advice="Pass it with codec (--codec)"
        )
    return detected.name


def _some(
    reader: pa.RecordBatchReader, table: Table, columns: Any, filter: Conditions, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Select rows of a table file, by the columns of the target."""
    chosen = understand(filter, table)
    names = reader.schema.names
    selected = names if columns in (None, "*") else list(table.select(columns))
    for name in (*selected, *(chosen.columns if chosen is not None else ())):
        if name not in names:
            raise UsageError(
                f"the table file has no column {name!r}", advice=f"Valid values: {', '.join(names)}"
            )
    left = None if limit is None else number("limit", limit)

    def rows() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            if chosen is not None:
                batch = batch.take(_matching(batch, chosen, table))
            batch = batch.select(selected).slice(0, None if left is None else left - done)
            done += batch.num_rows
            yield batch
            if done == left:
                return

    return rows()


def _matching(batch: pa.RecordBatch, chosen: Filter, table: Table) -> pa.Array[Any]:
    """Return the indexes of the matching rows, compared in the types of the target."""
    try:
        columns = {name: batch.column(name).cast(table[name].type) for name in chosen.columns}
    except pa.ArrowException as error:
        raise UsageError(f"cannot filter the rows: {error}") from None
    numbered = pa.RecordBatch.from_pydict({**columns, "": pa.array(range(batch.num_rows), pa.int64())})
    return chosen.apply(numbered).column("")


def _rows_table(codec: str, options: Mapping[str, Any]) -> Table:
    from logwright.readers.task import typed_table
    from logwright.writers.write import taken_table

    if is_layout(codec):
        return taken_table(registry.get_writer(codec), options)
    return typed_table(codec, "rows", options)


def _known(codec: str, table: Table) -> Table:
    """Add the columns of all views of a layout, whose rows can be written again as JSON lines."""
    if not is_layout(codec):
        return table
    views = [view.rows for view in registry.get_writer(codec).views.values() if view.rows is not None]
    names = set(table.names(detail=True))
    more = {column.name: column for rows in views for column in rows.columns if column.name not in names}
    return replace(table, columns=(*table.columns, *more.values()))


def beside(path: str, name: str) -> str:
    """Insert a name into a path: `x.parquet` and `frames` give `x.frames.parquet`."""
    stem, dot = os.path.splitext(path)
    return f"{stem}.{name}{dot}"


def open_table(path: str, table: Table) -> pa.RecordBatchReader:
    """Open a Parquet or Arrow file (or stream), or JSON lines, as a stream of rows. `table` has the types for JSON."""
    if not os.path.exists(path):
        raise NotFoundError("no such file", path=path)
    try:
        if format_of(path) == "jsonl":
            from logwright.formats.jsonl import from_lines

            return from_lines(path, table)
        if format_of(path) == "parquet":
            from pyarrow import parquet

            file = parquet.ParquetFile(path)
            return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(64 * 1024))
        try:
            reader = pa.ipc.open_file(path)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(path)
        return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))
    except pa.ArrowInvalid as error:
        raise UsageError(f"not a valid {format_of(path)} file ({error})", path=path) from None


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _optional(path: str, table: Table) -> pa.Table | None:
    return open_table(path, table).read_all() if os.path.exists(path) else None


def is_table(path: str) -> bool:
    return format_of(path) in FORMATS and not os.path.isdir(path)
