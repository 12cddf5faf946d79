"""Arrow arrays from NumPy arrays and bytes, without `pa.array` and `pa.scalar`: those import pandas where it is installed,
which takes longer than reading a small file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(
    kind: pa.DataType, values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Numbers or booleans; `null` says where they are null. The array may share the memory of `values`."""
    if pa.types.is_boolean(kind):
        data = np.packbits(values, bitorder="little")
    else:
        data = np.ascontiguousarray(values, _dtype(kind))
    return pa.Array.from_buffers(kind, len(values), [_bits(null), pa.py_buffer(data)])


def contents(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Bytes (or text as UTF-8) of a binary or string type; None is null."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    null = np.array([value is None for value in values], np.bool_)
    data = b"".join(value for value in values if value is not None)
    return pa.Array.from_buffers(kind, len(values), [_bits(null), pa.py_buffer(ends), pa.py_buffer(data)])


_constants: dict[tuple[pa.DataType, Any], pa.Array] = {}


def constant(kind: pa.DataType, value: Any, rows: int) -> pa.Array:
    """A column that is the same everywhere: a slice of one kept for the purpose."""
    kept = _constants.get((kind, value))
    if kept is None or len(kept) < rows:
        if len(_constants) >= 64:
            _constants.clear()
        kept = _repeated(kind, value, 1 << max(10, (rows - 1).bit_length()))
        _constants[kind, value] = kept
    return kept.slice(0, rows)


def _repeated(kind: pa.DataType, value: Any, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if not pa.types.is_string(kind):
        return numbers(kind, np.full(rows, value))
    data = value.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def _dtype(kind: pa.DataType) -> Any:
    return np.int64 if pa.types.is_timestamp(kind) else np.dtype(str(kind))


def _bits(null: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    if null is None or not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))
