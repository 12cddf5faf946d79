"""Read a long file ahead in worker threads while earlier data is processed.

The ends of frames are unknown until the bytes are scanned, so the parts start at fixed distances and overlap by a few bytes: a frame cut by
the end of one part is complete in the next. Nothing is copied, and little is read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from functools import partial

from logwright.codec.arrays import Bytes
from logwright.codec.fault import LogwrightError
from logwright.codec.frames.walk import Hole, RandomAccess, Stretch, Walk
from logwright.readers.prefetch import Prefetcher

_OVERLAP = 8 << 10
"""Initial overlap of two parts in bytes. A frame that does not fit adds the missing number of bytes."""
_LARGE = 4 << 20
"""A window of more bytes is large."""


def walk_ahead(walk: Walk, prefetcher: Prefetcher) -> Generator[Stretch | Hole, None, None]:
    """Iterate over a walk. In a long file one thread of the prefetcher reads ahead and another scans, while the caller uses the results.
    With two threads, the one that reads a large window also scans it, since the processor's cache still holds a part of it."""
    use_threads = prefetcher.threads > 1 and walk.end - walk.start > 2 * walk.full
    reads_alone = prefetcher.threads == 2 and walk.full > _LARGE
    if not use_threads or walk.codec.single_frame or reads_alone:
        return prefetcher.iterate([lambda: iter(walk)], weight, threaded=use_threads)
    ahead = Ahead(walk.file, prefetcher, walk.start, walk.end, walk.full)
    walk.prefetched = ahead.data

    def stretches() -> Iterator[Stretch | Hole]:
        try:
            yield from walk
        finally:
            ahead.close()

    return prefetcher.iterate([stretches], weight)


def weight(step: Stretch | Hole) -> int:
    """Return the number of bytes that are kept in memory with a result of a walk."""
    return len(step.window.data) if isinstance(step, Stretch) else 0


class Ahead:
    """The bytes of a file up to `stop`, read ahead for a reader that goes from front to back."""

    def __init__(self, file: RandomAccess, prefetcher: Prefetcher, start: int, stop: int, step: int) -> None:
        self._file, self._start, self._stop, self._step = file, start, stop, step
        self._overlap = _OVERLAP
        # Side by side: a thread that waits for a piece in one lane can read the next piece in another.
        lanes = [partial(self._read, lane) for lane in range(prefetcher.threads)]
        self._lanes = deque(prefetcher.iterate([read], lambda piece: len(piece[1])) for read in lanes)
        self._held: tuple[int, Bytes] | None = None
        self._over = False

    def close(self) -> None:
        """Stop reading. No thread reads any more when this returns."""
        self._held, self._over = None, True
        for lane in self._lanes:
            lane.close()

    def data(self, at: int, need: int) -> Bytes | None:
        """Return bytes from `at` on, at least `need` of them or all up to the end of the file.

        None where they were missed or cannot be read; the caller then reads them itself. `at` never goes back.
        """
        while not self._over:
            if self._held is not None:
                offset, data = self._held
                if at < offset:
                    self._overlap = min(self._overlap + offset - at, self._step // 2)
                    return None
                if min(at + need, self._file.size) <= offset + len(data):
                    return data[at - offset :]
            try:
                self._held = next(self._lanes[0])
                self._lanes.rotate(-1)
            except (StopIteration, LogwrightError):
                # The caller gets the error when it reads there itself.
                self.close()
        return None

    def _read(self, lane: int) -> Iterator[tuple[int, Bytes]]:
        """Iterate over every n-th part, n being the number of lanes: the offset and the bytes."""
        lanes = len(self._lanes)
        for at in range(self._start + lane * self._step, self._stop, lanes * self._step):
            offset, stop = max(self._start, at - self._overlap), min(at + self._step, self._stop)
            data = self._file.pread(offset, stop - offset)
            yield offset, data
            if offset + len(data) < stop:
                return  # the file became shorter
            self._file.ahead(at + lanes * self._step, self._step)
