"""The consume queues of topics with batches. Source: `BatchConsumeQueue` of RocketMQ."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT
from logwright.codec.rocketmq.startup.consume_queue import FILTERED, Unit
from logwright.codec.rocketmq.startup.mapped_file import MappedFile, MappedFileQueue
from logwright.codec.rocketmq.startup.message import Message
from logwright.codec.store.overlay import Overlay

SIZE = UNIT.min_size
_UNIT = struct.Struct(">qiqqqhii")
_RECOVERED = 3
INNER_NUM, INNER_BASE = "INNER_NUM", "INNER_BASE"


def batch_of(message: Message) -> tuple[int, int]:
    """Return the queue offset of the first message of a batch, and the number of its messages."""
    if INNER_NUM in message.properties and INNER_BASE in message.properties:
        return int(message.properties[INNER_BASE]), int(message.properties[INNER_NUM])
    return message.queue_offset, 1


class BatchConsumeQueue:
    """A batch consume queue. `max_phy` is the physical offset of the last message."""

    def __init__(self, overlay: Overlay, topic: str, queue_id: int, size: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.queue = MappedFileQueue(overlay, f"batchconsumequeue/{topic}/{queue_id}", size)
        self.max_phy = -1
        self.min_offset = self.max_offset = 0

    most_units = -(-FILTERED // SIZE)
    """Limit of the messages that one pull reads."""

    def _good(self, file: MappedFile) -> Iterator[tuple[int, ...]]:
        """Yield the units of a file up to the first invalid one."""
        for unit in _UNIT.iter_unpack(file.read(0, file.size // SIZE * SIZE)):
            if unit[0] < 0 or unit[1] <= 0 or unit[4] < 0 or unit[5] <= 0:
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
        written = [unit for file in self.queue.files for unit in self._written(file)]
        self.min_offset = written[0][4] if written else 0
        self.max_offset = written[-1][4] + written[-1][5] if written else 0

    def _written(self, file: MappedFile) -> Iterator[tuple[int, ...]]:
        return _UNIT.iter_unpack(file.read(0, file.wrote // SIZE * SIZE))

    def truncate(self, phy_end: int) -> None:
        self.max_phy = phy_end
        while self.queue.files:
            file = self.queue.files[-1]
            file.wrote = 0
            for i, unit in enumerate(_UNIT.iter_unpack(file.read(0, file.size // SIZE * SIZE))):
                good = unit[0] >= 0 and unit[1] > 0 and unit[4] >= 0 and unit[5] > 0
                if (i and not good) or unit[0] >= phy_end:
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
        return True

    def correct_min(self, min_phy: int, *, old: bool, fails: bool = False) -> None:
        for file in self.queue.files:
            for unit in self._written(file):
                if unit[0] >= min_phy:
                    self.min_offset = unit[4]
                    return

    def units(self, number: int) -> Iterator[Unit] | None:
        for file in self.queue.files:
            matching = [unit for unit in self._written(file) if unit[4] + unit[5] > number]
            if matching:
                return (Unit(unit[4], unit[5], unit[0], unit[1]) for unit in matching)
        return None

    def next_file(self, number: int) -> int:
        return number + 1

    def flush(self) -> None:
        self.queue.flush()
