"""Build Arrow arrays from NumPy arrays and bytes without `pa.array` and `pa.scalar`.

Those import pandas if it is installed, which takes longer than reading a small file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int32s, Int64s
from logwright.codec.kernels.intrinsics import append, copy, prefetch
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.memory import aligned

_BOOLEAN = pa.bool_().id
_INTEGERS = (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)
_DTYPES: dict[int, Any] = {
    **{kind().id: np.dtype(kind.__name__) for kind in _INTEGERS}, pa.float64().id: np.float64, pa.timestamp("us").id: np.int64,
}  # fmt: skip
_AHEAD = 16
"""How many positions ahead are prefetched: they may be anywhere in memory."""


def numbers(kind: pa.DataType, values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
    """Return an array of numbers or booleans. `null` marks null values. The array may share the memory of `values`."""
    if kind.id == _BOOLEAN:
        data = np.packbits(values, bitorder="little")
    else:
        data = np.ascontiguousarray(values, _DTYPES[kind.id])
    return pa.Array.from_buffers(kind, len(values), [_bits(null), pa.py_buffer(data)])


def contents(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return a binary or string array of bytes (text as UTF-8); None is null."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    null = np.array([value is None for value in values], np.bool_)
    data = b"".join(value for value in values if value is not None)
    return pa.Array.from_buffers(kind, len(values), [_bits(null), pa.py_buffer(ends), pa.py_buffer(data)])


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are bytes or text."""
    return str(kind).removeprefix("large_").startswith(("binary", "fixed_size_binary", "string"))


_constants: dict[tuple[pa.DataType, Any], pa.Array] = {}


def constant(kind: pa.DataType, value: Any, rows: int) -> pa.Array:
    """Return a column of one repeated value: a slice of a cached array."""
    cached = _constants.get((kind, value))
    if cached is None or len(cached) < rows:
        if len(_constants) >= 64:
            _constants.clear()
        cached = _constants[kind, value] = _repeated(kind, value, 1 << max(10, (rows - 1).bit_length()))
    return cached.slice(0, rows)


def _repeated(kind: pa.DataType, value: Any, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return numbers(kind, np.full(rows, value))
    data = value.encode() if isinstance(value, str) else value
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def _bits(null: Bools | None) -> pa.Buffer | None:
    if null is None or not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


@kernel("const u1[], const i8[], const i8[], i4[], u1[]")
def gather(buf: Bytes, starts: Int64s, lengths: Int64s, ends: Int32s, out: Bytes) -> int:
    """Copy `lengths[i]` bytes from `starts[i]`, concatenated. Null (-1) copies no bytes. `ends` is filled with Arrow's offsets."""
    at = 0
    ends[0] = 0
    for i in range(len(starts)):
        length = lengths[i]
        if length > 0:
            append(out, at, buf, starts[i], length)
            at += length
        ends[i + 1] = at
    return at


def slices(buf: Bytes, starts: Int64s, ends: Int64s) -> pa.Array:
    """Return a binary column of the ranges of `buf`, in total less than 2 GiB. Adjacent ranges are not copied."""
    if not len(starts) or (starts[1:] != ends[:-1]).any():
        return binary(buf, starts, ends - starts)
    first = int(starts[0])
    places = np.empty(len(starts) + 1, np.int32)
    places[:-1], places[-1] = starts - first, ends[-1] - first
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(places), pa.py_buffer(buf[first : int(ends[-1])])]
    )


def binary(buf: Bytes, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Return a binary column of values anywhere in `buf`, in total less than 2 GiB. A length of -1 is null."""
    null = lengths < 0
    size = int(lengths.sum() + np.count_nonzero(null))
    out, ends = aligned(size), np.empty(len(starts) + 1, np.int32)
    gather(buf, starts, lengths, ends, out)
    bits = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return pa.Array.from_buffers(pa.binary(), len(starts), [bits, pa.py_buffer(ends), pa.py_buffer(out)])


def from_offsets(ends: npt.NDArray[Any], data: Bytes, null: Bools | None = None) -> pa.Array:
    """Return a column whose value `i` is `data[ends[i] : ends[i + 1]]`: binary for 32-bit offsets, else large binary."""
    kind = pa.binary() if ends.dtype == np.int32 else pa.large_binary()
    return pa.Array.from_buffers(kind, len(ends) - 1, [_bits(null), pa.py_buffer(ends), pa.py_buffer(data)])


def list_of(values: pa.Array, counts: Int64s) -> pa.Array:
    """Return consecutive lists of these sizes; -1 for null."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.maximum(counts, 0), out=ends[1:])
    kind = pa.list_(values.type)
    buffers = [_bits(counts < 0), pa.py_buffer(ends)]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[values])


def counts_of(lists: pa.Array) -> Int64s:
    """Return the sizes of lists; -1 for null. The inverse of `list_of`, with `lists.flatten()`."""
    return np.asarray(lists.value_lengths().fill_null(-1)).astype(np.int64)


def joined(parts: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Concatenate byte strings, such as frames that a format writes one by one. Part `i` is `data[starts[i] : starts[i + 1]]`."""
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return np.frombuffer(b"".join(parts), np.uint8), starts


_NO_COLUMNS = pa.struct([])


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch of `rows` rows, possibly without columns."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, _NO_COLUMNS))


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return the rows as one batch."""
    if not rows.num_rows:
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in rows.schema], schema=rows.schema
        )
    # `combine_chunks` copies even a single chunk.
    batches = rows.to_batches()
    (batch,) = batches if len(batches) == 1 else rows.combine_chunks().to_batches()
    return batch


def distinct(values: Int64s) -> tuple[list[int], Int64s]:
    """Return the distinct values in the order of their first occurrence, and the index of each value among them."""
    encoded = numbers(pa.int64(), values).dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices, np.int64)


def values_of(array: pa.Array) -> tuple[Bytes, Int32s]:
    """Return the bytes of a binary or string column, and offsets: value `i` is `[ends[i], ends[i + 1])`. Null is empty."""
    kind = pa.binary() if pa.types.is_binary(array.type) else pa.string()
    plain = array.cast(kind) if array.null_count == 0 else array.cast(pa.binary()).fill_null(b"")
    _, places, data = plain.buffers()
    if not len(plain) or places is None:
        return np.empty(0, np.uint8), np.zeros(len(plain) + 1, np.int32)
    ends = np.frombuffer(places, np.int32)[plain.offset : plain.offset + len(plain) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), ends


@kernel("const u1[], const i8[], i8, u1[]")
def gather_fixed(buf: Bytes, at: Int64s, width: int, out: Bytes) -> None:
    """Copy `width` bytes from each position, concatenated."""
    for i in range(len(at)):
        if i + _AHEAD < len(at):
            prefetch(buf, at[i + _AHEAD])
        copy(out, i * width, buf, at[i], width)


def fixed_at(buf: Bytes, at: Int64s, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values of a fixed-width type, in either byte order, at these positions of `buf`."""
    kind = np.dtype(dtype)
    out = np.empty(len(at) * kind.itemsize, np.uint8)
    gather_fixed(buf, at, kind.itemsize, out)
    return out.view(kind)
