"""Rebuild the timer from the timer queue: the timer wheel, the timer log and timercheck.

These files have no checksums, and units are linked, so damage to one of them makes others unreachable. A new timer log has the messages that
are still to be delivered. A broker takes later ones from the timer queue itself.

Source: `TimerMessageStore.doEnqueue`, `TimerMessageStore.recover` and `TimerLog.append` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.frames.codec import Part
from logwright.codec.java import integer
from logwright.codec.rocketmq.dispatch import dispatches
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE
from logwright.codec.rocketmq.formats.page import PAGE, TIMER_CHECK
from logwright.codec.rocketmq.formats.timer import BLANK, SLOT, UNIT, WHEEL_SIZE
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC, properties_of, string_hash
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Zeros

_WINDOW = 172_800
"""Slots after which a message with a longer delay is put into the timer queue again (`timerRollWindowSlot`)."""
_MARGIN = 60_000
"""Without timercheck, messages due up to this many milliseconds before the last message of the store are still to be delivered."""
_DEFAULT, _ROLL, _DELETE = 1, 2, 4
"""Bits of the magic of a unit."""
(_CHECK,) = TIMER_CHECK.structures


@dataclass(frozen=True)
class TimerMessage:
    """A message of the timer queue. `due` is its delivery time in milliseconds since 1970."""

    number: int
    phy: int
    size: int
    due: int
    deletes: bool
    topic_hash: int
    key: str
    """Its unique key."""
    rolled: bool
    """Whether it was put into the queue again, and replaces an earlier message with the same key."""


class Timer:
    """Collects the messages of the timer queue in log order, and forms the files of the timer.

    `listing` has timercheck, which may be damaged. `size` is that of a timer log file, `precision` the milliseconds of a slot.
    """

    def __init__(self, listing: Listing, size: int, precision: int) -> None:
        self.size, self.precision = size, precision
        self._check = _stored(listing)
        self._known = self._check["last_read_time"] > 0
        self._read = self._check["last_read_time"] // precision * precision
        """Messages due from then on are still to be delivered."""
        self._pending: dict[int, TimerMessage] = {}
        """By queue offset."""
        self._numbers: dict[tuple[str, int], int] = {}
        """The queue offset of the last message with a unique key and a delivery time."""
        self._next = 0
        """The queue offset from which on messages are not in the timer."""
        self._last: TimerMessage | None = None
        """The last message before."""
        self._newest = 0
        """The store time of the last message of the store."""

    def add(self, part: Part) -> None:
        try:
            added = dispatches(part.data, part.start, part.end, tags=False)
        except IndexError:
            return  # a message that a broker refuses
        self._newest = max(self._newest, int(added.stored.max(initial=0)))
        if (TIMER_TOPIC, 0) not in added.queues:
            return
        units = added.units.pick(np.flatnonzero(added.units.queue == added.queues.index((TIMER_TOPIC, 0))))
        index = np.flatnonzero(np.isin(added.phy, units.phy))
        for i, number, phy in zip(index.tolist(), units.number.tolist(), units.phy.tolist(), strict=True):
            message = _parsed(number, phy, part.data[int(part.start[i]) : int(part.end[i])].tobytes())
            if message is not None:
                self._add(message)

    def _add(self, message: TimerMessage) -> None:
        number = message.number
        if message.key and message.due >= self._read:
            before = self._numbers.get((message.key, message.due))
            if message.rolled and before is not None:
                self._pending.pop(before, None)
            self._numbers[message.key, message.due] = number
        if self._known and number >= self._check["last_timer_queue_offset"]:
            return
        self._next, self._last = number + 1, message
        if message.due >= self._read:
            self._pending[number] = message

    def files(self) -> Iterator[tuple[str, list[Extent]]]:
        """Yield the files of the timer."""
        read = self._read
        if not self._known:
            read = max(self._newest - _MARGIN, 0) // self.precision * self.precision
        units = {number: message for number, message in self._pending.items() if message.due >= read}
        if self._last is not None:
            # A broker continues in the timer queue after the message of the last unit.
            units[self._last.number] = self._last
        log, slots = self._log(units.values(), read)
        for at in range(0, len(log), self.size):
            yield f"{tree.TIMER}/{at:020d}", [log[at : at + self.size].ljust(self.size, b"\0")]
        if slots:
            yield tree.WHEEL, list(_wheel(slots.values()))
        check = self._check | {
            "last_read_time": read, "last_timer_log_flush_pos": len(log), "last_timer_queue_offset": self._next,
            "master_timer_queue_offset": self._next,
        }  # fmt: skip
        yield tree.TIMER_CHECK, [_CHECK.pack(check).ljust(PAGE, b"\0")]

    def _log(self, messages: Iterable[TimerMessage], read: int) -> tuple[bytes, dict[int, dict[str, int]]]:
        """Return the timer log, and its slots by time."""
        out = bytearray()
        slots: dict[int, dict[str, int]] = {}
        window = _WINDOW * self.precision
        for message in sorted(messages, key=lambda message: message.number):
            left = -len(out) % self.size or self.size
            if left < UNIT.min_size + BLANK.min_size:
                out += BLANK.pack({"unit_size": left, "magic": BLANK["magic"].only}).ljust(left, b"\0")
            magic = _DEFAULT | (_DELETE if message.deletes else 0)
            # A slot that was read is not read again.
            due = max(message.due, read - self.precision)
            if due - read >= window:
                magic |= _ROLL
                due = read + (window // 2 if due - read - window < window // 3 else window)
            second = due // self.precision
            slot = slots.setdefault(
                second, {"time": second, "first_position": len(out), "last_position": -1, "count": 0}
            )
            unit = {
                "previous": slot["last_position"], "magic": magic, "write_time": min(read, due), "delayed_time": max(due - read, 0),
                "physical_offset": message.phy, "message_size": message.size, "topic_hash": message.topic_hash,
            }  # fmt: skip
            slot["last_position"] = len(out)
            slot["count"] += -1 if message.deletes else 1
            out += UNIT.pack(unit)
        return bytes(out), slots


def _parsed(number: int, phy: int, data: bytes) -> TimerMessage | None:
    """Return a message of the timer queue, or None if it has no delivery time."""
    properties = properties_of(MESSAGE.unpack(data, 0, len(data))[0]["properties"])
    try:
        due = integer(properties.get("TIMER_OUT_MS", ""), 64)
    except ValueError:
        return None
    return TimerMessage(
        number, phy, len(data), due, "TIMER_DEL_UNIQKEY" in properties, string_hash(properties.get("REAL_TOPIC", "")),
        properties.get("UNIQ_KEY", ""), "TIMER_ROLL_TIMES" in properties,
    )  # fmt: skip


def _stored(listing: Listing) -> dict[str, int]:
    """Return the fields of timercheck. Missing ones are 0."""
    fields, _ = _CHECK.unpack(tree.content(listing, tree.TIMER_CHECK).ljust(PAGE, b"\0"))
    return {name: max(value, 0) for name, value in fields.items() if name != "rest"}


def _wheel(slots: Iterable[dict[str, int]]) -> Iterator[Extent]:
    """Return a wheel with these slots."""
    width, at = SLOT.min_size, 0
    for start, slot in sorted((slot["time"] * width % WHEEL_SIZE, slot) for slot in slots):
        yield Zeros(start - at)
        yield SLOT.pack(slot)
        at = start + width
    yield Zeros(WHEEL_SIZE - at)
