"""The consume queues of a store. Source: `ConsumeQueue`, `ConsumeQueueExt` of RocketMQ."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from logwright.codec.java import int64
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import ADDRESS, FIRST_TAG
from logwright.codec.rocketmq.formats.consumequeue_ext import UNIT as EXT_UNIT
from logwright.codec.rocketmq.startup.mapped_file import LoadError, MappedFile, MappedFileQueue
from logwright.codec.rocketmq.startup.message import Message, ThrownError
from logwright.codec.store.overlay import Overlay

SIZE = UNIT.min_size
_UNIT = struct.Struct(">qiq")
_RECOVERED = 3
"""Number of files at the end of a queue that are read on start."""
_NO_ADDRESS = 1
FILTERED = 16_000
"""Limit of the bytes of units that one pull reads (`maxFilterMessageSize`)."""


def _phy_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "big", signed=True)


@dataclass(frozen=True)
class Unit:
    """A unit as a pull returns it: queue offset, number of messages, and their physical offset and size."""

    number: int
    count: int
    phy: int
    size: int
    tags_code: int = 0


class ConsumeQueueExt:
    """The extension files of a queue."""

    def __init__(self, overlay: Overlay, folder: str, size: int) -> None:
        self.queue = MappedFileQueue(overlay, folder, size)

    def _size_at(self, file: MappedFile, position: int) -> int:
        data = file.read(position, 2)
        return int.from_bytes(data, "big", signed=True) if len(data) == 2 else 0

    def recover(self) -> None:
        """Find the end of the last unit. Raises `LoadError` for a size that exceeds its file."""
        position = 0
        for file in self.queue.files:
            position = 0
            while True:
                if position + 2 > file.size:
                    raise LoadError("java.nio.BufferUnderflowException")
                size = self._size_at(file, position)
                if size <= 0:
                    break
                position += size
                if position > file.size:
                    raise LoadError(
                        f"java.lang.IllegalArgumentException: newPosition > limit: ({position} > {file.size})"
                    )
        if self.queue.files:
            self.queue.truncate(self.queue.files[-1].base + position)

    def truncate_to(self, address: int) -> None:
        """Truncate the extension after the unit at `address`. Raises `LoadError` if its bitmap exceeds the file."""
        offset = address + ADDRESS
        file = self.queue.find(offset) if address <= FIRST_TAG else None
        if file is not None and file.wrote > offset % file.size:
            if self.breaks(address):
                raise LoadError("java.nio.BufferUnderflowException")
            self.queue.truncate(offset + max(self._size_at(file, offset % file.size), 0))

    def breaks(self, address: int) -> bool:
        """Return whether reading the unit at `address` throws an exception (`CqExtUnit.read`)."""
        offset = address + ADDRESS
        file = self.queue.find(offset, or_first=offset == 0)
        if file is None or offset % file.size >= file.wrote:
            return False
        data = file.read(offset % file.size, file.wrote - offset % file.size)
        if len(data) < 2 or int.from_bytes(data[:2], "big", signed=True) < 1:
            return False
        return len(data) < 20 or 20 + int.from_bytes(data[18:20], "big", signed=True) > len(data)

    def truncate_from(self, address: int) -> None:
        """Delete the extension files before the unit at `address`."""
        if address <= FIRST_TAG:
            for file in list(self.queue.files):
                if file.base + file.size < address + ADDRESS:
                    self.queue.delete(file)

    def put(self, message: Message) -> int:
        data = EXT_UNIT.pack({"tags_code": message.tags_code, "store_timestamp": message.store_timestamp})
        while True:
            file = self.queue.last_for(0)
            if len(data) <= file.size - file.wrote - 4:
                offset = file.base + file.wrote
                file.append(data)
                return offset - ADDRESS
            file.write(file.wrote, struct.pack(">h", -1))
            file.wrote = file.size


class ConsumeQueue:
    """A consume queue. `max_phy` is the end of its last message in the log."""

    def __init__(
        self, overlay: Overlay, topic: str, queue_id: int, size: int, ext: ConsumeQueueExt | None
    ) -> None:
        self.topic, self.queue_id, self.ext = topic, queue_id, ext
        self.queue = MappedFileQueue(overlay, f"consumequeue/{topic}/{queue_id}", size)
        self.max_phy = -1
        self.min_logic = 0

    most_units = FILTERED // SIZE
    """Limit of the units that one pull reads."""

    @property
    def min_offset(self) -> int:
        return self.min_logic // SIZE

    @property
    def max_offset(self) -> int:
        return self.queue.max_offset // SIZE

    def _address(self, tags_code: int, before: int) -> int:
        return tags_code if tags_code <= FIRST_TAG else before

    def recover(self) -> None:
        files = self.queue.files
        if not files:
            return
        address, end = _NO_ADDRESS, 0
        for file in files[max(len(files) - _RECOVERED, 0) :]:
            used = 0
            for phy, size, tags_code in _UNIT.iter_unpack(file.read()):
                if phy < 0 or size <= 0:
                    break
                used += SIZE
                self.max_phy = int64(phy + size)
                address = self._address(tags_code, address)
            end = file.base + used
            if used < file.size:
                break
        self.queue.truncate(end)
        if self.ext is not None:
            self.ext.recover()
            self.ext.truncate_to(address)

    def truncate(self, phy_end: int) -> None:
        """Truncate the units that point at or after the end of the log (`truncateDirtyLogicFiles`)."""
        self.max_phy = phy_end
        address = _NO_ADDRESS
        while self.queue.files:
            file = self.queue.files[-1]
            file.wrote = 0
            for i, (phy, size, tags_code) in enumerate(_UNIT.iter_unpack(file.read())):
                if i and (phy < 0 or size <= 0 or phy >= phy_end):
                    return
                if phy >= phy_end:
                    break
                file.wrote += SIZE
                self.max_phy = int64(phy + size)
                address = self._address(tags_code, address)
            else:
                return
            self.queue.delete(file)
        if self.ext is not None:
            self.ext.truncate_to(address)

    def put(self, message: Message, number: int | None = None, tags_code: int | None = None) -> bool:
        """Append a message, unless the queue has it or a later one."""
        number = message.queue_offset if number is None else number
        if tags_code is None:
            tags_code = message.tags_code if self.ext is None else self.ext.put(message)
        end = int64(message.phy + message.size)
        if end <= self.max_phy:
            return True
        expected = int64(number * SIZE)
        file = self.queue.last_for(expected)
        if file.is_first and number and not file.wrote:
            self.min_logic = expected
            file.append(_UNIT.pack(0, FILLER, 0) * (expected % file.size // SIZE if expected > 0 else 0))
        if number and expected < file.base + file.wrote:
            return True
        self.max_phy = end
        file.append(_UNIT.pack(message.phy, message.size, tags_code))
        return True

    def correct_min(self, min_phy: int, *, old: bool, fails: bool = False) -> None:
        """Set `min_logic` to the first unit that points into the log (`correctMinOffset`)."""
        address = _NO_ADDRESS
        if old:
            for file in self.queue.files[:1]:
                # The broker ignores the error that an incomplete unit at the end is.
                units = file.read(0, file.wrote // SIZE * SIZE)
                for i, (phy, _, tags_code) in enumerate(_UNIT.iter_unpack(units)):
                    if phy >= min_phy:
                        self.min_logic = file.base + i * SIZE
                        address = self._address(tags_code, address)
                        break
        else:
            if not self.queue.files or self.min_logic >= self.queue.max_offset:
                return
            last, file = self.queue.files[-1], self.queue.files[0]
            if fails and not last.wrote:
                raise LoadError("IllegalArgumentException: newPosition < 0: (-20 < 0)")
            if last.wrote >= SIZE and _UNIT.unpack(last.read(last.wrote - SIZE, SIZE))[0] < min_phy:
                self.min_logic = last.base + last.wrote
                return
            start = self.min_logic - file.base
            intact = start >= 0
            start = max(start, 0)
            if start >= file.wrote:
                return
            data = file.read(start, file.wrote - start)
            if len(data) < 8 or (intact and _phy_at(data, 0) >= min_phy):
                return
            # If the file's name is not a multiple of its size, the last unit may be incomplete.
            low, high = 0, len(data) - SIZE
            while high - low > SIZE:
                middle = (low + high) // 2 // SIZE * SIZE
                phy = _phy_at(data, middle)
                low, high = low if phy > min_phy else middle, middle if phy >= min_phy else high
            for at in range(low, high + 1, SIZE):
                phy, _, tags_code = _UNIT.unpack_from(data, at)
                if phy >= min_phy:
                    self.min_logic = file.base + start + at
                    address = self._address(tags_code, address)
                    break
        if self.ext is not None:
            self.ext.truncate_from(address)

    def units(self, number: int) -> Iterator[Unit] | None:
        """Return the units that a pull at queue offset `number` reads, all of one file, or None if there are no units."""
        offset = number * SIZE
        file = self.queue.find(offset) if offset >= self.min_logic else None
        if file is None or offset % file.size >= file.wrote:
            return None
        start = offset % file.size
        data = file.read(start, min(file.wrote - start, (self.most_units + 1) * SIZE))
        return self._units(data, (file.base + start) // SIZE)

    def _units(self, data: bytes, number: int) -> Iterator[Unit]:
        """Yield units, the first with this queue offset. Raises `ThrownError` if the last one is incomplete."""
        for at in range(0, len(data), SIZE):
            if at + SIZE > len(data):
                raise ThrownError("java.nio.BufferUnderflowException")
            yield Unit(number + at // SIZE, 1, *_UNIT.unpack_from(data, at))

    def check_extension(self, unit: Unit) -> None:
        """Raise `ThrownError` if a unit's extension address is wrong such that the bitmap there exceeds its file."""
        if self.ext is not None and unit.tags_code <= FIRST_TAG and self.ext.breaks(unit.tags_code):
            raise ThrownError("java.nio.BufferUnderflowException")

    def next_file(self, number: int) -> int:
        per_file = self.queue.size // SIZE
        return number + per_file - number % per_file

    def skip(self, number: int) -> int:
        """Return the first queue offset from `number` on, by steps of `next_file`, that a file has; or the end of the queue."""
        offset, size = number * SIZE, self.queue.size
        steps = [
            offset if file.base <= offset else -(-file.base // size) * size
            for file in self.queue.files
            if offset < file.base + size
        ]
        return min(steps) // SIZE if steps else max(number, self.max_offset)

    def flush(self) -> None:
        for queue in (self.queue, *(() if self.ext is None else (self.ext.queue,))):
            queue.flush()
