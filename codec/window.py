"""A window of a file, the frames that a scan finds in it, and the rows that are decoded from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.fault import Fault

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zero bytes that are to be written. They take no memory, and no space on the disk: they become a hole in the file."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return bytes(self.size)


Chunk = bytes | bytearray | memoryview | Bytes | Zeros
"""Bytes to be written."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some bytes of a file: `data[i]` is byte `offset + i` of a file of `size` bytes. The data is never written to."""

    data: Bytes
    offset: int
    size: int

    @property
    def final(self) -> bool:
        return self.offset + len(self.data) >= self.size


@dataclass(slots=True)
class Frames:
    """What a scan found in a window: whole frames, where it stopped, and why.

    `start` and `end` are positions in `window.data`; `header` is the codec's own structured array, one element a frame.
    `stop` is the first byte not covered. `need` > 0: the frame at `stop` is longer than the window, so many bytes are
    needed from `stop` on; where the window has 4096 bytes or more from `stop` on, that is the size of the whole frame, so that
    a walk over the frames may jump. `damage` is the fault at `stop` that ended the scan (`need` is 0 then). Neither: the end
    of the file.
    `faults` are further findings that did not stop the scan. Offsets in faults count from the start of the file.
    """

    start: Positions
    end: Positions
    header: npt.NDArray[Any]
    stop: int
    need: int = 0
    damage: Fault | None = None
    faults: list[Fault] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, mask: npt.NDArray[np.bool_] | slice) -> Frames:
        """The same with only some of the frames."""
        return Frames(
            self.start[mask],
            self.end[mask],
            self.header[mask],
            self.stop,
            self.need,
            self.damage,
            self.faults,
        )


@dataclass(slots=True)
class Decoded:
    """Some decoded rows, and the frames among them that could not be decoded: (rows before it, fault)."""

    batch: pa.RecordBatch
    faults: list[tuple[int, Fault]] = field(default_factory=list)


@dataclass(slots=True)
class RowFrames:
    """Frames that hold rows, with the window and the context that decode them, and the faults of places where more frames were."""

    window: Window
    frames: Frames
    context: Any
    faults: list[Fault] = field(default_factory=list)
