"""Record batches as JSON lines, column by column: no Python object per row unless a value needs one.

Bytes are by default a string if they are valid UTF-8, else `{"$hex": "..."}`, so nothing is lost; `hex`,
`base64` and `utf8` choose one form throughout. Times are integers in milliseconds, null is null. In structures, times with microseconds are
in ISO 8601, dates and decimals are text, and a map is a list of pairs.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.table import Table

BYTES = ("auto", "hex", "base64", "utf8")

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))

# Other escapes are rare, so json.dumps handles them.
_CONTROL = [byte for byte in [*range(32), 127] if byte not in (9, 10, 13)]
_CONTROL_PATTERN = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"


def to_lines(batch: pa.RecordBatch, form: str = "auto") -> bytes:
    """Return the rows of a batch as JSON, one line each."""
    if batch.num_rows == 0:
        return b""
    pieces: list[Any] = []
    for i, field in enumerate(batch.schema):
        pieces.append(("{" if i == 0 else ",") + json.dumps(field.name) + ":")
        pieces.append(_json(batch.column(i), form))
    if not pieces:
        return bytes(b"{}\n" * batch.num_rows)
    pieces.append("}\n")
    lines = pc.binary_join_element_wise(*[_large(piece) for piece in pieces], _large(""))
    return _bytes_of(lines)


def _large(piece: Any) -> Any:
    if isinstance(piece, str):
        return pa.scalar(piece, pa.large_string())
    return piece.cast(pa.large_string())


def _bytes_of(lines: pa.Array) -> bytes:
    """Join the values of a string array without nulls."""
    _, offsets, data = lines.buffers()
    first = int.from_bytes(offsets[8 * lines.offset : 8 * lines.offset + 8].to_pybytes(), "little")
    at = 8 * (lines.offset + len(lines))
    last = int.from_bytes(offsets[at : at + 8].to_pybytes(), "little")
    return bytes(data[first:last]) if data is not None else b""


def _json(column: pa.Array, form: str) -> pa.Array:
    """Return the JSON text of each value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json(column.dictionary_decode(), form)
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(column), pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        text = column.cast(pa.string())
    elif pa.types.is_timestamp(kind):
        text = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).cast(pa.string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(column)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = _bytes(column, form)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        text = _list(column, form)
    else:
        text = pa.array(
            [None if v is None else json.dumps(plain(v, form)) for v in column.to_pylist()], pa.string()
        )
    return pc.fill_null(text, "null")


def _quoted(column: pa.Array) -> pa.Array:
    """Quote and escape strings. Nulls stay null."""
    present = np.bincount(_characters(column), minlength=256) > 0
    text = column
    for sign, escaped in _ESCAPES:
        if present[ord(sign)]:
            text = pc.replace_substring(text, sign, escaped)
    quote = pa.scalar('"', text.type)
    text = pc.binary_join_element_wise(quote, text, quote, pa.scalar("", text.type))
    if present[_CONTROL].any():
        text = _replaced(text, pc.match_substring_regex(column, _CONTROL_PATTERN), column, json.dumps)
    return text


def _characters(column: pa.Array) -> Bytes:
    """Return the bytes of a string array, possibly with those of its neighbours in the same buffer."""
    data = column.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _replaced(text: pa.Array, where: pa.Array, column: pa.Array, make: Callable[[Any], str]) -> pa.Array:
    """Replace the elements of `text` where `where` is true by `make(value)`."""
    if not pc.any(where).as_py():
        return text
    values = [make(v) for v in column.filter(where).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(where, False), pa.array(values, text.type))


def _bytes(column: pa.Array, form: str) -> pa.Array:
    if form == "hex":
        return _quoted(pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string()))
    if form == "base64":
        values = [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
        return _quoted(pa.array(values, pa.string()))
    try:
        return _quoted(column.cast(pa.large_string()))
    except pa.ArrowInvalid:
        pass  # some value is not UTF-8
    if form == "utf8":
        values = [None if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()]
        return _quoted(pa.array(values, pa.string()))
    return pa.array(
        [None if v is None else json.dumps(plain(v, form), ensure_ascii=False) for v in column.to_pylist()]
    )


def _list(column: pa.Array, form: str) -> pa.Array:
    """Most lists (record headers) are empty; only the others are converted one by one."""
    full = pc.greater(pc.list_value_length(column), 0)
    text = pc.if_else(column.is_valid(), pa.scalar("[]"), pa.scalar(None, pa.string()))

    def make(value: Any) -> str:
        return json.dumps(plain(value, form), ensure_ascii=False)

    return _replaced(text, full, column, make)


def plain(value: Any, form: str) -> Any:
    """Convert a Python value for JSON."""
    if isinstance(value, bytes):
        if form == "hex":
            return value.hex()
        if form == "base64":
            return base64.b64encode(value).decode()
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("utf-8", "replace") if form == "utf8" else {"$hex": value.hex()}
    if isinstance(value, dict):
        return {name: plain(element, form) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(element, form) for element in value]
    if hasattr(value, "timestamp"):
        return value.isoformat() if value.microsecond % 1000 else round(value.timestamp() * 1000)
    return str(value) if isinstance(value, (datetime.date, Decimal)) else value


# Reading

_ROWS = 1 << 14
"""The number of lines per batch."""


def from_lines(path: str, table: Table) -> pa.RecordBatchReader:
    """Read JSON lines as the columns of a table that the first lines name, in the order of the table.

    Bytes are text or `{"$hex": "..."}`, times are integers in milliseconds or ISO 8601, missing columns are null. Raises
    `UsageError` with the line number for invalid JSON and values of a wrong type.
    """
    with open(path, "rb") as stream:
        head = list(_objects(enumerate(stream, 1), path))
    named = dict.fromkeys(name for _, item in head for name in item)
    if head:
        table.select(list(named))  # raises, with the nearest name
    schema = pa.schema(
        [pa.field(column.name, column.type) for column in table.columns if column.name in named]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        with open(path, "rb") as stream:
            lines = enumerate(stream, 1)
            while rows := list(_objects(lines, path)):
                for number, row in rows:
                    new = next((name for name in row if name not in named), None)
                    if new is not None:
                        table.select([new])
                        raise UsageError(
                            f"line {number} has a column {new!r} that the first {len(head)} lines do not have",
                            path=path,
                            advice="Add it to the first line, with null",
                        )
                yield pa.RecordBatch.from_arrays(
                    [_read(field, rows, path) for field in schema], schema=schema
                )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _objects(lines: Iterator[tuple[int, bytes]], path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the next non-empty lines, with their numbers."""
    full = ((number, line) for number, line in lines if line.strip())
    for number, line in itertools.islice(full, _ROWS):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"line {number} is not JSON: {error}", path=path) from None
        if not isinstance(value, dict):
            shown = line[:40].decode("utf-8", "replace")
            raise UsageError(f"line {number} is not an object but {shown!r}", path=path)
        yield number, value


def _read(field: pa.Field, rows: list[tuple[int, dict[str, Any]]], path: str) -> pa.Array:
    values = []
    for number, row in rows:
        try:
            values.append(_value(row.get(field.name), field.type))
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise _misfit(number, field, row[field.name], path) from None
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, row in rows:
            try:
                pa.array([_value(row.get(field.name), field.type)], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise _misfit(number, field, row[field.name], path) from None
        raise


def _misfit(number: int, field: pa.Field, value: Any, path: str) -> UsageError:
    text = json.dumps(value)
    return UsageError(
        f"line {number}, column {field.name!r}: expected {field.type}, found {text if len(text) <= 60 else text[:57] + '...'}",
        path=path,
    )


def _value(value: Any, kind: pa.DataType) -> Any:
    """Convert a JSON value for an Arrow type."""
    if value is None:
        return None
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if isinstance(value, dict):
            ((sign, text),) = value.items()
            if sign != "$hex":
                raise ValueError(sign)
            return bytes.fromhex(text)
        return value.encode()
    if pa.types.is_timestamp(kind):
        if isinstance(value, str):
            when = datetime.datetime.fromisoformat(value)
            return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)
        return (
            _plain_int(value) * {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit] // 1000
        )
    if pa.types.is_boolean(kind):
        if not isinstance(value, bool):
            raise TypeError
        return value
    if pa.types.is_integer(kind):
        return _plain_int(value)
    if pa.types.is_floating(kind):
        return value if isinstance(value, float) else float(_plain_int(value))
    if pa.types.is_map(kind):
        # A string of two characters, or an object with such keys, would pass for a pair.
        if not isinstance(value, list) or not all(isinstance(pair, list) for pair in value):
            raise TypeError
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not isinstance(value, list):
            raise TypeError
        return [_value(element, kind.value_type) for element in value]
    if pa.types.is_struct(kind):
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        if set(value) - set(fields):
            raise ValueError
        return {name: _value(value.get(name), field) for name, field in fields.items()}
    if not isinstance(value, str):
        raise TypeError
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        try:
            return Decimal(value)
        except InvalidOperation:
            raise ValueError(value) from None
    return value


def _plain_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value
