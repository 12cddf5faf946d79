"""Divide a file into ranges that tasks read independently. Each frame, and so each row, belongs to exactly one range.

Ranges start where frames start, which is found by walking the lengths from the start of the file. They are not guessed from the bytes
around an offset, since a value may contain complete frames with valid checksums. Checksums are not verified, which would mean reading the
whole file; where the chain of lengths breaks, the walk recovers as a reader would.

A file whose frames are out of order is not divided, because a frame may then depend on those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.base import Codec
from logwright.codec.frames.walk import Walk
from logwright.codec.window import Frames
from logwright.readers.source import Source

_STEP = 512 << 10


def split(source: Source, codec: Codec, context: Any, max_bytes: int) -> list[tuple[int, int]]:
    """Return ranges `[start, stop)` of at most `max_bytes`, or of one larger frame, that cover the file."""
    if codec.single_frame or codec.sequential or source.size <= max_bytes:
        return [(0, source.size)]
    walk = Walk(source, codec, context, check=False, step=_STEP)
    order = _Order(codec)
    stretches = cut(order.watch(walk.starts()), source.size, max_bytes)
    return stretches if order.kept else [(0, source.size)]


class _Order:
    """Checks by their headers that frames are in order."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.kept = codec, True
        self._highest: int | None = None

    def watch(self, frames_found: Iterable[tuple[Int64s, Frames | None]]) -> Iterator[Int64s]:
        for starts, frames in frames_found:
            yield starts
            if self.codec.ordered is None or frames is None:
                continue
            low, high = self.codec.frame_bounds(frames, self.codec.ordered)
            if (low[1:] <= high[:-1]).any() or (self._highest is not None and low[0] <= self._highest):
                self.kept = False
                return
            self._highest = int(high[-1])


def cut(starts: Iterable[Int64s], size: int, max_bytes: int) -> list[tuple[int, int]]:
    """Return the ranges, given the starts of frames in order."""
    cuts, last = [0], 0
    for group in starts:
        while True:
            beyond = int(np.searchsorted(group, cuts[-1] + max_bytes, side="right"))
            if beyond:
                last = max(last, int(group[beyond - 1]))
            if beyond == len(group):
                break
            cuts.append(last if last > cuts[-1] else int(group[beyond]))
    if size - cuts[-1] > max_bytes and last > cuts[-1]:
        cuts.append(last)
    return list(zip(cuts, [*cuts[1:], size], strict=True))
