"""The types of NumPy arrays, named after what they hold, and sets of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def stretches(values: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of equal values, in order."""
    edges = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    return pairwise([0, *edges, len(values)] if len(values) else [])


def groups(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, Int64s]]:
    """Yield each distinct value in ascending order, with the indices where it is, also in ascending order."""
    order = np.argsort(values, kind="stable")
    for start, stop in stretches(values[order]):
        yield int(values[order[start]]), order[start:stop]


def among(values: Int64s, known: Int64s) -> Bools:
    """Return which values are among the sorted numbers `known`. `numpy.isin` would sort or hash both again."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    equal: Bools = known[at] == values
    return equal
