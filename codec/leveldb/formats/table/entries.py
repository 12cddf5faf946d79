"""Entries of blocks, between blocks and rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import from_offsets
from logwright.codec.leveldb.formats.table.layout import KEY_TRAILER, pack
from logwright.codec.leveldb.keys import DELETION, MAX_SEQUENCE, TRAILER, TYPE_NAMES
from logwright.codec.window import Bytes


@dataclass(slots=True)
class Entries:
    """Entries: `keys[key_ends[i] : key_ends[i + 1]]` is a user key, a trailer is sequence << 8 | type."""

    rows: int
    keys: Bytes
    key_ends: Int64s
    trailers: Int64s
    values: Bytes
    value_ends: Int64s

    def key(self, row: int) -> bytes:
        """Return the internal key of an entry."""
        user = self.keys[int(self.key_ends[row]) : int(self.key_ends[row + 1])].tobytes()
        return user + TRAILER.pack({"tag": int(self.trailers[row]) & (1 << 64) - 1})

    def largest(self) -> int:
        """Return the total size of the longest key and the longest value."""
        return int(np.diff(self.key_ends).max(initial=0) + np.diff(self.value_ends).max(initial=0))

    def scratch(self) -> Bytes:
        """Return room for two internal keys."""
        return np.empty(2 * (int(np.diff(self.key_ends).max(initial=0)) + KEY_TRAILER), np.uint8)

    def packed(self, interval: int) -> Bytes:
        """Pack the entries into one block."""
        size = int(self.key_ends[-1] - self.key_ends[0] + self.value_ends[-1] - self.value_ends[0])
        out, restarts = np.empty(size + self.rows * 40 + 64, np.uint8), np.empty(self.rows + 1, np.int64)
        _, end = pack(
            0, self.rows, self.key_ends, self.keys, self.trailers, self.value_ends, self.values, interval, 0,
            out, 0, restarts, self.scratch(),
        )  # fmt: skip
        return out[:end]

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns key, value, sequence and type."""
        deleted = self.trailers & 0xFF == DELETION
        return {
            "key": from_offsets(self.key_ends, self.keys),
            "value": from_offsets(self.value_ends, self.values, deleted),
            "sequence": pa.array(self.trailers >> 8 & MAX_SEQUENCE, pa.int64()),
            "type": pa.array(TYPE_NAMES, pa.string()).take(pa.array((~deleted).astype(np.int64))),
        }
