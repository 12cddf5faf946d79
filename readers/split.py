"""Divide a file into ranges that tasks read independently. Each frame, and so each row, belongs to exactly one range.

Ranges start where frames start, which is found by walking the lengths from the start of the file. They are not guessed from the bytes
around an offset, since a value may contain complete frames with valid checksums. Only the first frame of each range is verified, because
what counts as a frame after damage depends on the sound frames before it. To verify all would mean reading the whole file; this is done if
the chain of lengths breaks.

A file whose frames are out of order, or of which some seem to be missing, is not divided, because a frame may then depend on those before
it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.base import Codec
from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import Walk, zero_filled
from logwright.codec.window import Frames, Window
from logwright.readers.source import Source

_STEP = 512 << 10
_HEAD = 4096
"""Bytes of a frame that are read at first."""
_TRIED = 16
"""The number of frames before the end of a range of which one may start the next range."""


def split(source: Source, codec: Codec, context: Any, max_bytes: int) -> list[tuple[int, int]]:
    """Return ranges `[start, stop)` that cover the file. One has more than `max_bytes` if a frame is larger, or if too many are damaged."""
    if codec.single_frame or codec.sequential or source.size <= max_bytes:
        return [(0, source.size)]
    prepared = copy.copy(context)
    codec.prepare(lambda offset, length: zero_filled(source, offset, length)[0], source.size, prepared)

    def is_sound(before: int, place: int) -> bool:
        """Return whether a good frame is at `place`, after a good one that starts at `before`."""
        size = place - before + _HEAD
        while True:
            try:
                window = Window(source.pread(before, size), before, source.size)
            except UnreadableError:
                return False
            frames = codec.scan(window, 0, copy.copy(prepared))
            if (frames.start == place - before).any():
                return True
            size = frames.stop + frames.need
            if frames.damage is not None or not len(window.data) < size <= source.size - before:
                return False

    order = _Order(codec)
    walk = Walk(source, codec, copy.copy(context), check=False, step=_STEP)
    stretches = cut(order.watch(walk.starts()), source.size, max_bytes, is_sound)
    if walk.broken:
        order = _Order(codec)
        stretches = cut(order.watch(Walk(source, codec, context).checked_starts()), source.size, max_bytes)
    return stretches if order.kept else [(0, source.size)]


class _Order:
    """Checks by their headers that frames follow each other."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.kept = codec, True
        self._last = np.empty(0, np.int64)

    def watch(self, frames_found: Iterable[tuple[Int64s, Frames | None]]) -> Iterator[Int64s]:
        for starts, frames in frames_found:
            yield starts
            if self.codec.ordered is None or frames is None:
                continue
            values, _ = self.codec.frame_bounds(frames, self.codec.ordered)
            if not self.codec.follow(np.concatenate((self._last, values))):
                self.kept = False
                return
            self._last = values[-1:]


def cut(
    starts: Iterable[Int64s],
    size: int,
    max_bytes: int,
    is_sound: Callable[[int, int], bool] = lambda before, place: True,
) -> list[tuple[int, int]]:
    """Return the ranges, given the starts of frames in order. `is_sound` is true of the frame before each range but the first, and the one
    that starts it."""

    def choose(places: Int64s, limit: int) -> int:
        """Return the index of the last place up to `limit` that may start a range, or of the first one after it; 0 without one."""
        beyond = int(np.searchsorted(places, limit, side="right"))
        before = range(beyond - 1, max(beyond - _TRIED, 1) - 1, -1)
        candidates = chain(before, range(max(beyond, 1), len(places)))
        return next((i for i in candidates if is_sound(int(places[i - 1]), int(places[i]))), 0)

    cuts, places = [0], np.empty(0, np.int64)
    for group in starts:
        places = np.concatenate([places[-_TRIED - 1 :], group])
        while (
            len(places)
            and places[-1] > cuts[-1] + max_bytes
            and (chosen := choose(places, cuts[-1] + max_bytes))
        ):
            places = places[chosen:]
            cuts.append(int(places[0]))
    if size - cuts[-1] > max_bytes and (chosen := choose(places, size)):
        cuts.append(int(places[chosen]))
    return list(zip(cuts, [*cuts[1:], size], strict=True))
