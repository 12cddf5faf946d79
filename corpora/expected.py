"""Rows as JSON lines, in the form of `logwright dump --format jsonl`, for comparison with its output.

Bytes are a string if they are valid UTF-8, else `{"$hex": ...}`. Times are integers in milliseconds.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SAFE = np.ones(256, np.bool_)
_SAFE[:32] = _SAFE[127:] = False
_SAFE[[ord('"'), ord("\\")]] = False


def lines(batch: pa.RecordBatch) -> bytes:
    """Return one line per row."""
    if not batch.num_rows:
        return b""
    pieces: list[Any] = []
    for i, name in enumerate(batch.schema.names):
        pieces += [("{" if i == 0 else ",") + json.dumps(name) + ":", _json(batch.column(i))]
    pieces.append("}\n")
    parts = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    joined: Any = pc.binary_join_element_wise(*parts, pa.scalar(""))
    offsets = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1, 4 * joined.offset)
    return bytes(joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _json(column: Any) -> Any:
    """Return the JSON text of each value."""
    kind = column.type
    if column.null_count == len(column):
        return pa.scalar("null")
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
        kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pa.types.is_list(kind) and not len(column.flatten()) and not column.null_count:
        return pa.scalar("[]")
    if (pa.types.is_binary(kind) or pa.types.is_string(kind)) and _plain(column):
        quote = pa.scalar('"')
        quoted = pc.binary_join_element_wise(quote, column.cast(pa.string()), quote, pa.scalar(""))
        return pc.fill_null(quoted, "null")
    return pa.array([json.dumps(_value(value), ensure_ascii=False) for value in column.to_pylist()])


def _plain(column: Any) -> bool:
    """Return whether no value needs escaping."""
    data = column.buffers()[2]
    return data is None or bool(_SAFE[np.frombuffer(data, np.uint8)].all())


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$hex": value.hex()}
    if isinstance(value, dict):
        return {name: _value(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_value(element) for element in value]
    return value
