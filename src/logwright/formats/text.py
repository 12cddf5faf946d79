"""Rows as text, one line each: times in UTC, control characters escaped. Bytes are text if they are UTF-8, else `x'00ff'`, as filters
accept them."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any

import pyarrow as pa

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def to_lines(batch: pa.RecordBatch, hexadecimal: Collection[str] = ()) -> str:
    """Format the columns that are not null as `name=value`. Numbers of `hexadecimal` columns are unsigned."""
    times = {field.name for field in batch.schema if pa.types.is_timestamp(field.type)}
    flat = pa.RecordBatch.from_arrays(
        [c.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()) if f.name in times else c
         for f, c in zip(batch.schema, batch.columns, strict=True)],
        names=batch.schema.names,
    )  # fmt: skip
    lines = []
    for row in flat.to_pylist():
        shown = (
            f"{name}={moment(value) if name in times else number(value) if name in hexadecimal else show(value)}"
            for name, value in row.items()
            if value is not None
        )
        lines.append("  ".join(shown))
    return "\n".join(lines) + "\n" if lines else ""


def number(value: int) -> str:
    """Format a 64-bit id in unsigned hexadecimal."""
    return f"{value & (1 << 64) - 1:#x}"


def moment(milliseconds: int) -> str:
    """Format a time; beyond the calendar's range, the number."""
    try:
        when = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds}ms"
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def show(value: Any) -> str:
    """Format a value on one line, without control characters."""
    if isinstance(value, bytes):
        try:
            return escape(value.decode())
        except UnicodeDecodeError:
            return f"x'{value.hex()}'"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return "[" + ", ".join(show(element) for element in value) + "]"
    if isinstance(value, dict):
        if set(value) == {"key", "value"}:
            return f"{show(value['key'])}: {show(value['value'])}"
        return "{" + ", ".join(f"{name}: {show(element)}" for name, element in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def escape(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
