"""Types and errors that the compressors share."""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes

Data = bytes | bytearray | memoryview | Bytes


class CompressionError(ValueError):
    """A payload cannot be decompressed."""


class BombError(CompressionError):
    """A payload decompresses to more bytes than allowed."""

    @classmethod
    def over(cls, codec: str, limit: int) -> BombError:
        return cls(f"{codec.partition('-')[0]}: decompresses to more than the limit of {limit} bytes")


class Output:
    """Decompressed payloads, one after the other in an array that grows."""

    def __init__(self, room: Bytes) -> None:
        self._array, self._view = room, room.data
        self.end = 0

    def room(self, size: int) -> memoryview:
        """Return the next `size` bytes, to be written. `end` is where they start."""
        if size > len(self._view) - self.end:
            grown = np.empty(max(self.end + size, 2 * len(self._view)), np.uint8)
            grown[: self.end] = self._array[: self.end]
            self._array, self._view = grown, grown.data
        return self._view[self.end : self.end + size]

    def put(self, data: Any) -> None:
        self.room(len(data))[:] = data
        self.end += len(data)

    @property
    def memory(self) -> Bytes:
        """The array, of which the first `end` bytes are used."""
        return self._array

    @property
    def array(self) -> Bytes:
        """All payloads."""
        return self._array[: self.end]


def array(data: bytes | memoryview) -> Bytes:
    """Return the bytes as an array, without a copy."""
    return np.frombuffer(data, np.uint8)


def reason(error: Exception) -> str:
    """Return the last part of zlib's message "Error -3 while decompressing data: incorrect data check"."""
    return str(error).rpartition(": ")[2]
