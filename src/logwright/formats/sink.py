"""Writers of rows, one per format, to a binary stream."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, Any

import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.formats import jsonl, text

FORMATS = ("text", "jsonl", "csv", "parquet", "arrow")

_SUFFIXES = {
    ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv",
    ".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip


ENDINGS = tuple(_SUFFIXES)
"""The endings of file names whose format is known."""


def format_of(name: str) -> str | None:
    """Return the format of a file name's extension."""
    return next((kind for suffix, kind in _SUFFIXES.items() if name.lower().endswith(suffix)), None)


class Sink(AbstractContextManager["Sink"]):
    """Writes record batches of one schema. The output is complete after `close`."""

    def __init__(
        self, stream: IO[bytes], kind: str, schema: pa.Schema, *, form: str = "auto", hexadecimal: Collection[str] = ()
    ) -> None:  # fmt: skip
        """`form`: the format of bytes. `hexadecimal`: columns printed in hexadecimal."""
        if form not in jsonl.BYTES:
            raise UsageError(
                f"unknown form of bytes {form!r}", advice=f"Valid values: {', '.join(jsonl.BYTES)}"
            )
        if form != "auto" and kind not in ("jsonl", "csv"):
            raise UsageError(
                f"format {kind} has one form of bytes", advice="Omit --bytes, or use jsonl or csv"
            )
        self._stream, self._kind, self._form = stream, kind, form
        self._hexadecimal = hexadecimal
        self._writer: Any = None
        if kind == "parquet":
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(stream, schema, compression="zstd", compression_level=1)
        elif kind == "arrow":
            self._writer = pa.ipc.new_file(stream, schema)
        elif kind == "csv":
            from pyarrow import csv

            self._writer = csv.CSVWriter(stream, pa.schema([_csv_field(field) for field in schema]))
        elif kind not in ("text", "jsonl"):
            raise UsageError(f"no format {kind!r}", advice=f"Valid values: {', '.join(FORMATS)}")

    def write(self, batch: pa.RecordBatch) -> None:
        if self._kind == "jsonl":
            self._stream.write(jsonl.to_lines(batch, self._form))
        elif self._kind == "text":
            self._stream.write(text.to_lines(batch, self._hexadecimal).encode("utf-8", "backslashreplace"))
        elif self._kind == "csv":
            self._writer.write_batch(_csv_batch(batch, self._form))
        else:
            self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _csv_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def _csv_field(field: pa.Field) -> pa.Field:
    if pa.types.is_timestamp(field.type):
        return pa.field(field.name, pa.int64())
    return field if _csv_plain(field.type) else pa.field(field.name, pa.string())


def _csv_batch(batch: pa.RecordBatch, form: str) -> pa.RecordBatch:
    """Convert times to milliseconds, bytes to text, and lists and other bytes to JSON."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("ms", field.type.tz), safe=False).cast(pa.int64())
        elif not _csv_plain(field.type):
            column = pa.array([_csv_text(value, form) for value in column.to_pylist()], pa.string())
        columns.append(column)
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([_csv_field(field) for field in batch.schema])
    )


def _csv_text(value: Any, form: str) -> str | None:
    import json

    if value is None:
        return None
    plain = jsonl.plain(value, form)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
