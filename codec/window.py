"""A window of a file, the frames that a scan finds in it, and the rows that are decoded from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.arrays import Bytes as Bytes
from logwright.codec.fault import Fault


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zero bytes to be written. They take no memory and no disk space: they become a hole in the file."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return bytes(self.size)


Chunk = bytes | bytearray | memoryview | Bytes | Zeros
"""Bytes to be written."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of a file: `data[i]` is byte `offset + i` of a file of `size` bytes. Read-only."""

    data: Bytes
    offset: int
    size: int
    zeros_end: int | None = None
    """The bytes after the window are zeros up to here, or to the end of the file; None if that is not known."""

    @property
    def final(self) -> bool:
        return self.offset + len(self.data) >= self.size

    def zeros_from(self, at: int) -> int:
        """Return the number of zero bytes from `at` on. What follows the window counts as zeros if nothing is known of it."""
        zeros = zeros_in(self.data[at:])
        if at + zeros < len(self.data):
            return zeros
        return (self.size if self.zeros_end is None else self.zeros_end) - self.offset - at


def zeros_in(data: Bytes) -> int:
    """Return the number of zero bytes that `data` starts with."""
    at, step = 0, 256
    while at < len(data):
        if data[at : at + step].max():
            return at + int(np.flatnonzero(data[at : at + step])[0])
        at, step = at + step, min(2 * step, 1 << 20)
    return len(data)


@dataclass(slots=True)
class Frames:
    """The result of a scan: complete frames, the position where it stopped, and the reason.

    `start` and `end` are positions in `window.data`. `header` is the codec's own structured array, one element per frame.
    `stop` is the first byte that no frame covers, and the scan ended there for one of three reasons:

    - `need` > 0: the frame at `stop` exceeds the window, and `need` bytes from `stop` on are needed. If the window has at least 4096
      bytes from `stop` on, that is the size of the frame, so a walk over frame headers can skip its content.
    - `damage` is the fault at `stop`.
    - Neither: the end of the file.

    `faults` are findings that did not stop the scan. Offsets in faults count from the start of the file. `held` is what the codec keeps for
    the decoding of these frames; there may be nothing, or that of other frames.
    """

    start: Int64s
    end: Int64s
    header: npt.NDArray[Any]
    stop: int
    need: int = 0
    damage: Fault | None = None
    faults: list[Fault] = field(default_factory=list)
    held: Any = None

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, mask: Bools | Int64s | slice) -> Frames:
        """Return the result with only some of the frames."""
        return replace(self, start=self.start[mask], end=self.end[mask], header=self.header[mask])

    @classmethod
    def joined(cls, parts: Sequence[Frames]) -> Frames:
        """Return the frames of several scans, each of which continues the one before. The last one says how they end."""
        last = parts[-1]
        if len(parts) == 1:
            return last
        start, end = (
            np.concatenate(ends) for ends in zip(*((part.start, part.end) for part in parts), strict=True)
        )
        # As bytes if possible: field by field NumPy takes ten times as long. Without the dtype it converts the byte order.
        dtype = last.header.dtype
        heads = [part.header if dtype.hasobject else part.header.view(np.uint8) for part in parts]
        header = np.concatenate(heads, dtype=heads[0].dtype).view(dtype)
        faults = [fault for part in parts for fault in part.faults]
        return replace(last, start=start, end=end, header=header, faults=faults)

    def portions(self, limit: int) -> Iterator[Frames]:
        """Yield the frames in portions of up to `limit` bytes, or one frame if it is larger."""
        for at, stop in portions_of(self.end - self.start, limit):
            yield self if stop - at == len(self) else self.pick(slice(at, stop))


class Around(NamedTuple):
    """The good frames around a place of a file: the last ones before it, and the first one after it; None without frames."""

    before: Frames | None = None
    after: Frames | None = None


def portions_of(sizes: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of portions of items of these sizes: up to `limit` bytes together, or one item if it is larger."""
    ends = np.cumsum(sizes)
    if len(sizes) and ends[-1] <= limit:
        yield 0, len(sizes)
        return
    at = 0
    while at < len(sizes):
        below = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(ends, below + limit, "right")))
        yield at, stop
        at = stop


@dataclass(slots=True)
class Decoded:
    """A batch of decoded rows, and for each frame that could not be decoded: (number of rows before it, fault)."""

    batch: pa.RecordBatch
    faults: list[tuple[int, Fault]] = field(default_factory=list)


@dataclass(slots=True)
class RowFrames:
    """Frames that hold rows, the window and context to decode them with, and the faults of damaged ranges between them."""

    window: Window
    frames: Frames
    context: Any
    faults: list[Fault] = field(default_factory=list)
