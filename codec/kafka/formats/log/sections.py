"""The record sections of batches as uncompressed bytes, in portions of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.kafka.formats.log.consumer import consume
from logwright.codec.kafka.formats.log.layout import COMPRESSION, COMPRESSION_NAMES, HEAD_SIZE
from logwright.codec.kernels.compress import CompressionError, decompress
from logwright.codec.window import Bytes, Frames, Window

PORTION = 32 << 20
"""Bytes of records in a portion, unless a single batch is larger."""


@dataclass(slots=True)
class Sections:
    """The records of the batches `frames` (a slice of the window's): `buf[start[i] : end[i]]`."""

    frames: slice
    buf: Bytes
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    faults: dict[int, str] = field(default_factory=dict)
    """The errors of sections that could not be decompressed, by batch. Such a section is empty."""


def sections(window: Window, frames: Frames, limit: int, *, partial: bool = False) -> Iterator[Sections]:
    """Iterate over portions of the batches, in order. `limit` bounds the decompressed records of a batch. With `partial`, a batch that
    cannot be decompressed has the records that a consumer gets before the error."""
    count = len(frames)
    codecs = frames.header["attributes"].astype(np.int64) & COMPRESSION
    start = frames.start + HEAD_SIZE
    if not codecs.any():
        ends = np.cumsum(frames.end - start)
        at = 0
        while at < count:
            below = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, below + PORTION, "right")))
            yield Sections(slice(at, stop), window.data, start[at:stop], frames.end[at:stop])
            at = stop
        return
    at = 0
    while at < count:
        pieces: list[Any] = []
        bounds = [0]
        faults: dict[int, str] = {}
        i = at
        while i < count and (i == at or bounds[-1] < PORTION):
            stored = window.data[int(start[i]) : int(frames.end[i])]
            plain: Any = stored
            if codecs[i]:
                try:
                    plain = expand(int(codecs[i]), stored, limit)
                except CompressionError as error:
                    faults[i - at] = str(error)
                    plain = b""
                    if partial:
                        records = int(frames.header["records_count"][i])
                        consumed = consume(int(codecs[i]), stored, records, limit)
                        plain = consumed.data
                        if consumed.error is None:
                            del faults[i - at]
            pieces.append(plain)
            bounds.append(bounds[-1] + len(plain))
            i += 1
        buf = np.frombuffer(b"".join(memoryview(piece) for piece in pieces), np.uint8)
        edges = np.array(bounds, np.int64)
        yield Sections(slice(at, i), buf, edges[:-1], edges[1:], faults)
        at = i


def expand(codec: int, stored: Bytes, limit: int) -> Any:
    """Return a decompressed section. Raises `CompressionError`."""
    if codec >= len(COMPRESSION_NAMES):
        raise CompressionError(
            f"compression {codec} is unknown: the checksum is right, so a newer version of Kafka wrote it"
        )
    return decompress(COMPRESSION_NAMES[codec], stored, limit=limit)
