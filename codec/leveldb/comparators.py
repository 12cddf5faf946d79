"""Comparators: the orders of user keys, by their names in manifests.

A known order is reduced to the bytewise one: `collate` returns bytes that compare as the keys do. Of any other comparator only the name is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.leveldb import idb, keys
from logwright.codec.leveldb.keys import BYTEWISE
from logwright.codec.window import Bytes

Order = tuple[bytes, int]


def _same(key: bytes) -> bytes:
    return key


@dataclass(frozen=True, slots=True)
class Comparator:
    """An order of user keys."""

    name: str
    collate: Callable[[bytes], bytes] | None
    """Returns bytes that compare as the key does. None if the order is unknown."""

    @property
    def bytewise(self) -> bool:
        return self.name == BYTEWISE

    @property
    def known(self) -> bool:
        return self.collate is not None

    def user(self, key: bytes) -> bytes:
        """Return the sort key of a user key; the key itself if the order is unknown."""
        return key if self.collate is None else self.collate(key)

    def order(self, key: bytes) -> Order:
        """Return the sort key of an internal key."""
        user, trailer = keys.order(key)
        return self.user(user), trailer

    def separator(self, last: bytes, following: bytes) -> bytes:
        """Return an index key between two internal keys. Other comparators than LevelDB's own shorten nothing."""
        return keys.separator(last, following) if self.bytewise else last

    def successor(self, last: bytes) -> bytes:
        """Return the index key after the last internal key of a table."""
        return keys.successor(last) if self.bytewise else last

    def column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        """Return the sort keys of a column of user keys."""
        if self.collate is None or self.bytewise:
            return column
        return pa.array([self.collate(key) for key in column.to_pylist()], column.type)

    def buffers(self, data: Bytes, ends: npt.NDArray[Any], less: int = 0) -> tuple[Bytes, Int64s]:
        """Return the sort keys of `data[ends[i] : ends[i + 1]]` in such a buffer. The last `less` bytes of each key are kept."""
        if self.collate is None or self.bytewise:
            return data, np.asarray(ends, np.int64)
        content, edges = data.tobytes(), ends.tolist()
        out = []
        for start, end in pairwise(edges):
            cut = end - less
            # A key that is too short for an internal key is kept.
            out.append(
                self.collate(content[start:cut]) + content[cut:end] if cut >= start else content[start:end]
            )
        sizes = np.array([0, *map(len, out)], np.int64)
        return np.frombuffer(b"".join(out), np.uint8), np.cumsum(sizes)


_KNOWN = {BYTEWISE: Comparator(BYTEWISE, _same), idb.NAME: Comparator(idb.NAME, idb.collate)}
NAMES = tuple(_KNOWN)
"""The names of the known comparators."""
BYTEWISE_COMPARATOR = _KNOWN[BYTEWISE]


def comparator_of(name: str | None) -> Comparator:
    """Return the comparator of that name; the default one for None."""
    return _KNOWN.get(name or BYTEWISE) or Comparator(name or BYTEWISE, None)
