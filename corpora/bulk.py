"""Generate columns of many rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def numbered(prefix: bytes, numbers: Any, digits: int) -> Any:
    """Return values like `user-007`: a prefix and a number with leading zeros."""
    out = np.empty((len(numbers), len(prefix) + digits), np.uint8)
    out[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    for i in range(digits):
        out[:, len(prefix) + i] = ord("0") + numbers // 10 ** (digits - 1 - i) % 10
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * out.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, _buffer(offsets), _buffer(out)])


def cut(pool: Any, places: Any, sizes: Any) -> Any:
    """Return slices of the pool."""
    ends = np.cumsum(sizes)
    within = np.arange(int(ends[-1])) - np.repeat(ends - sizes, sizes)
    data = pool[np.repeat(places, sizes) + within]
    offsets = np.zeros(len(sizes) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, _buffer(offsets), _buffer(data)])


def _buffer(array: Any) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array).data)
