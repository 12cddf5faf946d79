"""Types and errors that the compressors share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Data = bytes | bytearray | memoryview | Bytes


class CompressionError(ValueError):
    """A payload cannot be decompressed."""


class BombError(CompressionError):
    """A payload decompresses to more bytes than allowed."""

    @classmethod
    def over(cls, codec: str, limit: int) -> BombError:
        return cls(f"{codec.partition('-')[0]}: decompresses to more than the limit of {limit} bytes")


def array(data: bytes | memoryview) -> Bytes:
    """Return the bytes as an array, without a copy."""
    return np.frombuffer(data, np.uint8)


def reason(error: Exception) -> str:
    """Return the last part of zlib's message "Error -3 while decompressing data: incorrect data check"."""
    return str(error).rpartition(": ")[2]
