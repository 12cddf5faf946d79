"""What the compressors share: bytes as arrays, and how damage is told."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Data = bytes | bytearray | memoryview | Bytes


class CompressionError(ValueError):
    """A payload that does not decompress: what was expected, and what was found."""


class BombError(CompressionError):
    """A payload that would decompress to more bytes than allowed."""

    @classmethod
    def over(cls, codec: str, limit: int) -> BombError:
        return cls(f"{codec.partition('-')[0]}: decompresses to more than the limit of {limit} bytes")


def array(data: bytes | memoryview) -> Bytes:
    """The bytes as an array, not copied."""
    return np.frombuffer(data, np.uint8)


def reason(error: Exception) -> str:
    """zlib's own words without the frame around: "Error -3 while decompressing data: incorrect data check"."""
    return str(error).rpartition(": ")[2]
