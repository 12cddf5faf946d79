"""What of a file comes next, read by any thread of a crew while what came before is looked at.

Where frames end is not known before it is looked at them. So pieces follow one another whatever is in them, and each begins some bytes
before the end of the last one: a frame that was cut there is whole in the next. Nothing is copied for that, and little is read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from logwright.codec.fault import LogwrightError
from logwright.codec.window import Bytes
from logwright.readers.crew import Crew
from logwright.readers.source import Source

Piece = tuple[int, Bytes]
"""Where bytes begin in a file, and the bytes."""
_OVERLAP = 8 << 10
"""So many bytes are read twice, and as many more as were missed at a place before."""


class Ahead:
    """The bytes of a file up to `stop`, for who wants them from front to back."""

    def __init__(self, source: Source, crew: Crew, start: int, stop: int, step: int) -> None:
        self._source, self._start, self._stop, self._step = source, start, stop, step
        self._overlap = _OVERLAP
        # Side by side: who waits for a piece that another one reads can read the one behind it.
        lanes = [partial(self._read, lane) for lane in range(crew.threads)]
        self._lanes = deque(crew.each([read], lambda piece: len(piece[1])) for read in lanes)
        self._held: Piece | None = None
        self._over = False

    def close(self) -> None:
        """Nobody reads any more when this returns."""
        self._held, self._over = None, True
        for lane in self._lanes:
            lane.close()

    def piece(self, at: int, need: int) -> Piece | None:
        """One that has so many bytes from `at` on, which is not before what was asked for last; None where there is none, and what
        is missed, or can't be read, is to be read in another way."""
        while not self._over:
            if self._held is not None:
                offset, data = self._held
                if at < offset:
                    self._overlap = min(self._overlap + offset - at, self._step // 2)
                    return None
                if min(at + need, self._source.size) <= offset + len(data):
                    return self._held
            try:
                self._held = next(self._lanes[0])
                self._lanes.rotate(-1)
            except (StopIteration, LogwrightError):
                # Whoever reads there finds out what the matter is.
                self.close()
        return None

    def _read(self, lane: int) -> Iterator[Piece]:
        """Each so manieth piece."""
        lanes = len(self._lanes)
        for at in range(self._start + lane * self._step, self._stop, lanes * self._step):
            offset, stop = max(self._start, at - self._overlap), min(at + self._step, self._stop)
            data = self._source.pread(offset, stop - offset)
            yield offset, data
            if offset + len(data) < stop:
                return  # the file became shorter
            self._source.ahead(at + lanes * self._step, self._step)
