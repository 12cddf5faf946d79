"""The consume queues of topics with batches. Source: `BatchConsumeQueue` of RocketMQ."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT
from logwright.codec.rocketmq.startup.consume_queue import FILTERED, Unit
from logwright.codec.rocketmq.startup.mapped_file import MappedFile, MappedFileQueue
from logwright.codec.rocketmq.startup.message import Message, batch_of
from logwright.codec.store.overlay import Overlay

SIZE = UNIT.min_size
_UNIT = struct.Struct(">qiqqqhii")
_RECOVERED = 3


def search(offsets: Sequence[int], number: int) -> int | None:
    """Return the index of the last offset up to `number`, or None (`binarySearch`). Damaged offsets may be in any order, so that the steps of
    the search decide which one is returned."""
    left, right = 0, len(offsets) - 1
    while left <= right:
        middle = (left + right) // 2
        if offsets[middle] == number:
            return middle
        if offsets[middle] > number:
            right = middle - 1
        elif middle == left:
            return middle + 1 if middle + 1 < len(offsets) and offsets[middle + 1] <= number else middle
        else:
            left = middle
    return None


def _is_good(unit: tuple[int, ...]) -> bool:
    return unit[0] >= 0 and unit[1] > 0 and unit[4] >= 0 and unit[5] > 0


class BatchConsumeQueue:
    """A batch consume queue. `max_phy` is the physical offset of the last message."""

    def __init__(self, overlay: Overlay, topic: str, queue_id: int, size: int) -> None:
        self.queue = MappedFileQueue(overlay, f"batchconsumequeue/{topic}/{queue_id}", size)
        self.max_phy = -1
        self.min_offset = self.max_offset = 0
        self._first_offsets: dict[int, MappedFile] = {}

    most_units = -(-FILTERED // SIZE)
    """Limit of the messages that one pull reads."""

    def _good(self, file: MappedFile) -> Iterator[tuple[int, ...]]:
        """Yield the units of a file up to the first invalid one."""
        for unit in _UNIT.iter_unpack(file.read(0, file.size // SIZE * SIZE)):
            if not _is_good(unit):
                return
            yield unit

    def recover(self) -> None:
        files, end = self.queue.files, 0
        for file in files[max(len(files) - _RECOVERED, 0) :]:
            used = 0
            for unit in self._good(file):
                used += SIZE
                self.max_phy = unit[0]
            end = file.base + used
            if used < file.size:
                break
        if files:
            self.queue.truncate(end)
            self._revise()

    def _revise(self) -> None:
        self._revise_min()
        last = [unit for file in self.queue.files[-2:] for unit in self._written(file)][-1:]
        self.max_offset = last[0][4] + last[0][5] if last else 0

    def _revise_min(self) -> None:
        if self.queue.files:
            self.min_offset = next((unit[4] for unit in self._written(self.queue.files[0])), -1)
        else:
            self.min_offset = self.max_offset = 0

    def _written(self, file: MappedFile) -> Iterator[tuple[int, ...]]:
        return _UNIT.iter_unpack(file.read(0, file.wrote // SIZE * SIZE))

    def truncate(self, phy_end: int) -> None:
        self.max_phy = phy_end - 1
        while self.queue.files:
            file = self.queue.files[-1]
            file.wrote = 0
            for i, unit in enumerate(_UNIT.iter_unpack(file.read(0, file.size // SIZE * SIZE))):
                if (i and not _is_good(unit)) or unit[0] >= phy_end:
                    break
                file.wrote += SIZE
                self.max_phy = unit[0]
            if file.wrote:
                break
            self.queue.delete(file)
        self._revise()

    def put(self, message: Message, number: int | None = None, tags_code: int | None = None) -> bool:
        if message.phy <= self.max_phy:
            return True
        base, count = batch_of(message)
        if base < 0 or count < 0:
            return True
        first = not self.queue.files
        file = self.queue.last_for(self.queue.max_offset)
        file.append(
            _UNIT.pack(
                message.phy, message.size, message.tags_code, message.store_timestamp, base, count, -1, 0
            )
        )
        self.max_phy, self.max_offset = message.phy, base + count
        if first:
            self.min_offset = base
        if file.wrote == SIZE:
            self._first_offsets[base] = file
        return True

    def correct_min(self, min_phy: int, *, old: bool, fails: bool = False) -> None:
        self._revise_min()
        self._first_offsets = {
            unit[4]: file for file in self.queue.files for unit in itertools.islice(self._written(file), 1)
        }
        for unit in self._written(self.queue.files[0]) if self.queue.files else ():
            if unit[0] >= min_phy:
                break
            self.min_offset = unit[4] + unit[5]

    def units(self, number: int) -> Iterator[Unit] | None:
        """Return the units from the one that the search for a queue offset ends at (`getBatchMsgIndexBuffer`).

        The search compares first offsets only, so an offset in a gap is answered with the batch before the gap.
        """
        file = self._file_of(number)
        units = [] if file is None else list(self._written(file))
        at = search([unit[4] for unit in units], number)
        return None if at is None else (Unit(unit[4], unit[5], unit[0], unit[1]) for unit in units[at:])

    def _file_of(self, number: int) -> MappedFile | None:
        if not self.queue.files:
            return None
        last = self.queue.files[-1]
        if any(unit[4] <= number for unit in itertools.islice(self._written(last), 1)):
            return last
        earlier = [first for first in self._first_offsets if first <= number]
        return self._first_offsets[max(earlier)] if earlier else None

    def next_file(self, number: int) -> int:
        return number + 1

    def skip(self, number: int) -> int:
        """Return the first queue offset from `number` on whose answer has other units than that of `number`, at the earliest."""
        later = [unit[4] for file in self.queue.files for unit in self._written(file) if unit[4] >= number]
        return max(number, min(later) - self.most_units + 1 if later else self.max_offset)

    def flush(self) -> None:
        self.queue.flush()
