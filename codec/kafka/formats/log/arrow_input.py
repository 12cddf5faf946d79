"""Arrow columns in the form that the kernels take, which write records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int32s, Int64s
from logwright.codec.columns import is_text
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.kafka.formats.log.tables import HEADER_RAW

MAX_INT32 = (1 << 31) - 1
MAX_HEADER_OVERHEAD = 10
NO_NULLS, SOME_NULLS, ALL_NULL = range(3)


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary column: value i is `data[ends[i] : ends[i + 1]]`. If there are nulls, its bit is at `bit + i`."""

    ends: Int32s
    data: Bytes
    mode: int
    bits: Bytes
    bit: int

    @property
    def size(self) -> int:
        return int(self.ends[-1]) - int(self.ends[0]) if len(self.ends) else 0


_NO_BYTES = np.empty(0, np.uint8)
_NO_INT32 = np.empty(0, np.int32)
NOTHING = Binary(_NO_INT32, _NO_BYTES, ALL_NULL, _NO_BYTES, 0)


def binary(array: pa.Array, name: str) -> Binary:
    """Return a column of bytes or text. Raises `UsageError` for other types."""
    kind = array.type
    if pa.types.is_null(kind) or array.null_count == len(array):
        return NOTHING
    if not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise UsageError(f"column {name!r} has type {kind}, expected bytes or text")
    if array.nbytes > MAX_INT32:
        raise UsageError(
            f"column {name!r} takes {array.nbytes} bytes in one batch of rows, the limit is 2 GiB"
        )
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if array.type != pa.binary():
        array = array.cast(pa.binary())
    bits, ends, data = array.buffers()
    mode = SOME_NULLS if array.null_count else NO_NULLS
    return Binary(
        np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1],
        _NO_BYTES if data is None else np.frombuffer(data, np.uint8),
        mode,
        np.frombuffer(bits, np.uint8) if mode == SOME_NULLS else _NO_BYTES,
        array.offset,
    )


@dataclass(frozen=True, slots=True)
class Headers:
    """A column of headers: those of row i are `ends[i]` to `ends[i + 1]` of `names` and `contents`. No rows: no headers."""

    ends: Int32s
    names: Binary
    contents: Binary

    @property
    def size(self) -> int:
        count = int(self.ends[-1]) - int(self.ends[0]) if len(self.ends) else 0
        return self.names.size + self.contents.size + count * MAX_HEADER_OVERHEAD


NO_HEADERS = Headers(_NO_INT32, NOTHING, NOTHING)


def headers(array: pa.Array) -> Headers:
    """Return a column of lists of (key, value), or of maps. Raises `UsageError` for other types, and for a null key."""
    kind = array.type
    if pa.types.is_null(kind) or array.null_count == len(array):
        return NO_HEADERS
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and pa.types.is_null(kind.value_type):
        return NO_HEADERS
    entry = kind.value_type if is_list else None
    fits = (
        entry is not None
        and pa.types.is_struct(entry)
        and {field.name for field in entry} == {"key", "value"}
    )
    if not fits and not pa.types.is_map(kind):
        raise UsageError(f"column 'headers' has type {kind}, expected a list of structs of key and value")
    ends = np.asarray(array.offsets, np.int64)
    if array.null_count:
        # A null list may have entries underneath.
        array = _without_nulls(array)
        ends = np.asarray(array.offsets, np.int64)
    if pa.types.is_map(kind):
        names, contents = array.keys, array.items
    else:
        entries = array.values
        if entries.null_count:
            raise UsageError(
                "column 'headers': an entry is null", advice="Remove the entry, or give it a key"
            )
        names, contents = entries.field("key"), entries.field("value")
    first, last = int(ends[0]), int(ends[-1])
    names, contents = names.slice(first, last - first), contents.slice(first, last - first)
    if names.null_count:
        raise UsageError(
            "column 'headers': a key is null", advice="The key of a header may be empty, but not null"
        )
    ends = ends - first
    if last - first > MAX_INT32:
        raise UsageError(
            f"column 'headers': {last - first} headers in one batch of rows are too many, the limit is {MAX_INT32}"
        )
    if last == first:
        return NO_HEADERS
    return Headers(ends.astype(np.int32), binary(names, "headers.key"), binary(contents, "headers.value"))


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return the lists with empty ones in place of nulls."""
    lengths = np.diff(np.asarray(array.offsets, np.int64))
    valid = np.asarray(array.is_valid())
    ends = np.concatenate(([0], np.cumsum(np.where(valid, lengths, 0)))).astype(np.int32)
    # Flattening drops the entries under null lists.
    if pa.types.is_map(array.type):
        keep = np.repeat(valid, lengths.astype(np.intp))
        first, last = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
        mask = pa.array(keep)
        return pa.MapArray.from_arrays(
            pa.array(ends),
            array.keys.slice(first, last - first).filter(mask),
            array.items.slice(first, last - first).filter(mask),
        )
    return pa.ListArray.from_arrays(pa.array(ends), array.flatten())


def milliseconds(array: pa.Array, name: str) -> tuple[Int64s, Bools]:
    """Return a column of times in milliseconds, and where it is null. Times without a zone are UTC. Raises `UsageError`."""
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone, unit = (kind.tz, kind.unit) if pa.types.is_timestamp(kind) else (None, "")
        array = array.cast(pa.timestamp("ms", tz=zone), safe=unit == "s").cast(pa.int64())
    elif pa.types.is_integer(kind) or pa.types.is_null(kind):
        array = array.cast(pa.int64())
    else:
        raise UsageError(f"column {name!r} has type {kind}, expected a timestamp or milliseconds as int64")
    null = np.asarray(array.is_null())
    return np.asarray(array.fill_null(-1)).astype(np.int64, copy=False), null


def column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column; None if it is absent."""
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)


def with_raw(array: pa.Array, raw: pa.Array) -> pa.Array:
    """Return the headers with their raw keys, unless the text was changed."""

    out = array.cast(pa.list_(HEADER_RAW)).to_pylist()
    for i in np.flatnonzero(np.asarray(raw.is_valid())).tolist():
        stored = raw[i].as_py()
        text = [{"key": java_string(header["key"]).encode(), "value": header["value"]} for header in stored]
        if text == out[i]:
            out[i] = stored
    return pa.array(out, pa.list_(HEADER_RAW))
