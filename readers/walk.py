"""Walking over the frames of a file, window by window, past damage.

Memory is bounded by the window and the largest frame; time is linear in the file, whatever its bytes: a window that has to be
read again from a place near its own start is read at twice its length, so no byte is read more than a few times.

Where a scan stops at damage, the walk goes on at the next place where, says the codec, a frame truly starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logwright.codec.base import Codec, Frames, Positions, TellsLoss, Window
from logwright.codec.fault import Fault, Kind, Severity
from logwright.readers.source import Source

WINDOW = 4 << 20
"""Measured on segments of Kafka: smaller windows cost more in calls than they gain in the cache, larger ones gain nothing."""
_CAREFUL = 64 << 10
"""The window after damage, doubled with each that is sound."""
_HEAD = 4096
"""With so many bytes a scan knows the length of the frame (`Frames`)."""
WHOLE_LIMIT = 1 << 30
"""A file that has to be read as one window (`Codec.whole`) is refused when it is larger."""


@dataclass(slots=True)
class Stretch:
    """What one scan gave: frames and findings, then perhaps the fault that ended it; a `Hole` with its extent follows."""

    window: Window
    frames: Frames
    faults: list[Fault]
    damage: Fault | None = None


@dataclass(slots=True)
class Hole:
    """A damaged stretch: from where a scan stopped to where the next good frame starts, or the end of what is read."""

    fault: Fault
    tail: bool
    """It reaches to the end of the file."""


class Walk:
    """Iterate over what is found in `[start, stop)` of a file, which owns the frames that start in it.

    `start` must be a place where a frame starts. `covered` is where the last good frame ended, after the iteration.
    """

    def __init__(
        self,
        source: Source,
        codec: Codec,
        context: Any,
        *,
        start: int = 0,
        stop: int | None = None,
        check: bool = True,
        step: int = WINDOW,
    ) -> None:
        self.source, self.codec, self.context, self.check = source, codec, context, check
        self.size = source.size
        self.start, self.stop = start, stop
        self.covered = start
        self._step = self._full = max(step, _HEAD)
        self._window = Window(np.empty(0, np.uint8), start, self.size)
        self._fetched = False
        self._before: Frames | None = None

    @property
    def end(self) -> int:
        return self.size if self.stop is None else min(self.stop, self.size)

    @property
    def refused(self) -> bool:
        """Whether the file is too large to be read in one window, as it would have to be."""
        return self.codec.whole and self.size > WHOLE_LIMIT

    def __iter__(self) -> Iterator[Stretch | Hole]:
        if self.refused:
            text = f"{self.size} bytes; files of this kind are small, at most {WHOLE_LIMIT} bytes are read"
            yield Hole(Fault(self.codec.name, 0, self.size, Kind.LENGTH, text), tail=True)
        else:
            yield from self._walk()

    def _walk(self) -> Iterator[Stretch | Hole]:
        at, need = self.start, 0
        hole: Fault | None = None
        while at < self.end or (self.codec.whole and not self._fetched and self.size == 0):
            frames = self._scan(at, need)
            window = self._window
            place = window.offset + frames.stop
            if hole is not None and (len(frames) or not frames.need):
                yield self._hole(hole, frames)
                hole = None
            stretch = self._own(frames, window)
            if stretch.frames or stretch.faults or stretch.damage:
                if len(frames):
                    self.covered = window.offset + int(frames.end[-1])
                    self._before = frames.pick(slice(-1, None))
                yield stretch
            if stretch.damage is not None:
                self._step = min(_CAREFUL, self._full)
                at, need = self._recover(stretch.damage), 0
                hole = replace(stretch.damage, length=at - stretch.damage.offset)
                continue
            if window.final and (place <= at or not frames.need):
                break
            if place <= at and frames.need <= len(window.data) - (at - window.offset):
                break  # no frame and no wish for more bytes: what is left is not covered
            at, need = place, frames.need
            self._step = min(self._step * 2, self._full)
        if hole is not None:
            yield self._hole(hole, None)

    def starts(self) -> Iterator[Positions]:
        """Where frames start, by their lengths alone: over what does not fit the window the walk jumps. For `split`."""
        at, need, self._step = self.start, _HEAD, min(_CAREFUL, self._full)
        while at < self.end:
            inside = self._cover(at, min(need, self.size - at))
            window, need = self._window, _HEAD
            frames = self.codec.scan(window, inside, self.context, check=False)
            place = window.offset + frames.stop
            if len(frames):
                yield frames.start + window.offset
                self._step = min(self._step * 2, self._full)
            if frames.damage is not None:
                at = self._recover(frames.damage)
            elif place > at and (frames.need or not window.final):
                at, need = place, frames.need if _HEAD < frames.need <= _CAREFUL else _HEAD
            elif frames.need > len(window.data) - inside and not window.final:
                yield np.array([at], np.int64)
                at += frames.need
                self._step = 2 * _HEAD
            else:
                return

    def _own(self, frames: Frames, window: Window) -> Stretch:
        """The frames and faults that lie in this stretch of the file."""
        faults, damage = frames.faults, frames.damage
        if self.stop is not None and window.offset + len(window.data) > self.stop:
            frames = frames.pick(frames.start + window.offset < self.stop)
            faults = [fault for fault in faults if fault.offset < self.stop]
            damage = damage if damage is not None and damage.offset < self.stop else None
        return Stretch(window, frames, faults, damage)

    def _hole(self, fault: Fault, after: Frames | None) -> Hole:
        tail = fault.offset + fault.length >= self.size
        if not tail and fault.severity is not Severity.ERROR:
            # A torn tail or padding with good frames behind it is neither.
            fault = replace(fault, severity=Severity.ERROR)
        padding = tail and fault.kind is Kind.PADDING
        if isinstance(self.codec, TellsLoss) and not (
            fault.lost or padding or fault.severity is Severity.INFO
        ):
            first = after.pick(slice(0, 1)) if after is not None and len(after) else None
            rows, lost = self.codec.lost_between(self._before, first, self.context)
            fault = replace(fault, rows_lost=rows if fault.rows_lost is None else fault.rows_lost, lost=lost)
        return Hole(fault, tail)

    # Windows

    def _cover(self, at: int, need: int = 1) -> int:
        """Have the window hold `need` bytes from `at` on, or all up to the end of the file; where `at` is in it."""
        window = self._window
        inside = at - window.offset
        if self._fetched and inside >= 0 and inside + need <= len(window.data):
            return inside
        length = self._step if self.stop is None else min(self._step, max(self.stop - at, _HEAD))
        if self.codec.whole:
            length = max(length, self.size)
        length = max(length, need)
        if self._fetched and 0 <= inside < len(window.data) // 2 and need > len(window.data) - inside:
            length = max(length, 2 * len(window.data))
        data = self.source.pread(at, length)
        if len(data) < min(length, self.size - at):
            self.size = at + len(data)  # it became shorter while it was read
        elif at + length < self.end:
            self.source.ahead(at + length, 2 * self._step)
        self._window, self._fetched = Window(data, at, self.size), True
        return 0

    def _scan(self, at: int, need: int) -> Frames:
        inside = self._cover(at, max(need, 1))
        return self.codec.scan(self._window, inside, self.context, check=self.check)

    # Past damage

    def _recover(self, fault: Fault) -> int:
        """Where the next good frame after a damaged one starts; the end of what is read where there is none."""
        at, end = fault.offset + 1, self.end
        need = 1
        while at < end:
            # What a damaged frame says of its own length helps to judge: it stays in the window while that is no burden.
            base = fault.offset if at - fault.offset <= self._full else at
            inside = at - base + self._cover(base, min(at - base + need, self.size - base))
            window = self._window
            place, more = self.codec.resync(window, inside, self.context)
            if place >= 0 and not more:
                return min(window.offset + place, end)
            if place >= 0:
                at = window.offset + place
                # What wants more bytes than there are is no frame; what has them and wants more never gets enough.
                if at + more > self.size or more <= len(window.data) - place:
                    at, more = at + 1, 1
                need = more
                continue
            if window.final:
                return end
            at = max(at + 1, window.offset + len(window.data) - max(more, 0))
            need = window.offset + len(window.data) - at + 1
        return end
