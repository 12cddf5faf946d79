"""Cutting a file into stretches that tasks read independently: each frame, and so each row, belongs to exactly one.

Cuts are places where frames start, found by walking their lengths from the start of the file. They are not guessed from bytes
around an offset: a legal value may hold whole frames with right checksums. Checksums are not looked at, that would be
reading the file; only where the chain of lengths breaks, the walk goes on as a reader would.

A file whose frames are out of order is not cut: what one frame gives may then depend on those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.frames.walk import Walk
from logwright.codec.window import Frames, Positions
from logwright.readers.source import Source

_STEP = 512 << 10


def split(source: Source, codec: Codec, context: Any, max_bytes: int) -> list[tuple[int, int]]:
    """Stretches `[start, stop)` of at most `max_bytes`, or of one frame where that is larger, that cover the file."""
    if codec.single_frame or codec.sequential or source.size <= max_bytes:
        return [(0, source.size)]
    walk = Walk(source, codec, context, check=False, step=_STEP)
    order = _Order(codec)
    stretches = cut(order.watch(walk.starts()), source.size, max_bytes)
    return stretches if order.kept else [(0, source.size)]


class _Order:
    """Whether the frames are in order, say their headers."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.kept = codec, True
        self._highest: int | None = None

    def watch(self, found: Iterable[tuple[Positions, Frames | None]]) -> Iterator[Positions]:
        for starts, frames in found:
            yield starts
            if self.codec.ordered is None or frames is None:
                continue
            low, high = self.codec.frame_bounds(frames, self.codec.ordered)
            if (low[1:] <= high[:-1]).any() or (self._highest is not None and low[0] <= self._highest):
                self.kept = False
                return
            self._highest = int(high[-1])


def cut(starts: Iterable[Positions], size: int, max_bytes: int) -> list[tuple[int, int]]:
    """The stretches, from where frames start, in order."""
    cuts, last = [0], 0
    for some in starts:
        while True:
            beyond = int(np.searchsorted(some, cuts[-1] + max_bytes, side="right"))
            if beyond:
                last = max(last, int(some[beyond - 1]))
            if beyond == len(some):
                break
            cuts.append(last if last > cuts[-1] else int(some[beyond]))
    if size - cuts[-1] > max_bytes and last > cuts[-1]:
        cuts.append(last)
    return list(zip(cuts, [*cuts[1:], size], strict=True))
