"""The files of consume queues, by queue and by queue offset."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.log import UNITS, is_empty
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role


class QueueFiles:
    """The consume queue files of a plan, by queue."""

    def __init__(self, listing: Listing, plan: Plan) -> None:
        self._listing = listing
        self.by_queue: dict[tuple[str, int], list[PlannedFile]] = {}
        for file in plan.files:
            queue = tree.queue_of(file.name)
            if file.role is Role.DERIVED and queue is not None and tree.first(file.name) in UNITS:
                self.by_queue.setdefault(queue, []).append(file)
        self._bases: dict[tuple[str, int], list[tuple[int, PlannedFile]]] = {}
        self._longest = 0
        for queue, files in self.by_queue.items():
            own = [(tree.start_of(file.name), file) for file in files if tree.first(file.name) == tree.QUEUE]
            self._bases[queue] = sorted(own, key=itemgetter(0))
            self._longest = max([self._longest, *(file.size for _, file in own)])

    def units(self, queue: tuple[str, int], first: int, stop: int) -> npt.NDArray[np.void]:
        """Return the units of queue offsets `first` to `stop` of a consume queue, as far as files have them."""
        low, high = first * UNIT.min_size, stop * UNIT.min_size
        data, files = [], self._bases.get(queue, [])
        for base, file in files[bisect_left(files, low - self._longest, key=itemgetter(0)) :]:
            if base >= high:
                break
            if low < base + file.size:
                start = max(low - base, 0)
                data.append(self._listing.read(file.name, start, min(high - base, file.size) - start))
        content = b"".join(data)
        return np.frombuffer(content[: len(content) // UNIT.min_size * UNIT.min_size], UNITS[tree.QUEUE])

    def lists_others(self, queue: tuple[str, int], first: int, stop: int, low: int) -> bool:
        """Return whether units other than those of queue offsets `first` to `stop` point into the log at `low` or above."""
        for file in self.by_queue.get(queue, ()):
            base, width = tree.start_of(file.name), UNIT.min_size
            if tree.first(file.name) != tree.QUEUE or base % width:
                return True
            before = self.units(queue, base // width, min(base // width + file.size // width, first))
            if ((before["physical_offset"] >= low) & (before["size"] != FILLER)).any():
                return True
            start = max(stop * width - base, 0)
            if start < file.size and not is_empty(self._listing, file.name, start, file.size):
                return True
        return False
