"""Correct topics, queue ids and queue offsets of messages. No checksum covers them.

A correction must place a message between its neighbours in a queue. A consume queue unit that points to the message determines the place.
Without one, the neighbours must have the previous and the next queue offset, and no other message may fit, neither one that the log lacks.
A topic is corrected only by such a unit, if a message of that queue exists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.rocketmq.dispatch import Units
from logwright.codec.rocketmq.formats.commitlog.layout import AFTER_HOSTS, MESSAGE, parts_of

Place = tuple[str, int, int]
"""Topic, queue id and queue offset."""
_NONE = -(1 << 63)
"""Stands for the queue offset of the first message, which may be any."""


@dataclass
class Step:
    """A message whose queue offset is not the next one after `before`, the previous message of its queue (None for the first message)."""

    queue: tuple[str, int]
    phy: int
    number: int
    before: tuple[int, int] | None
    """Queue offset and physical offset."""
    after: int | None = None
    """The queue offset of the message after it in the queue."""


@dataclass
class Sequences:
    """Find the gaps and repeats in the queue offsets of all messages, whose units are added in log order."""

    last: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    _open: dict[tuple[str, int], Step] = field(default_factory=dict)
    _by_queue: dict[tuple[str, int], list[Step]] = field(default_factory=dict)

    def add(self, queue: tuple[str, int], units: Units) -> None:
        before = self.last.get(queue)
        step = self._open.pop(queue, None)
        if step is not None:
            step.after = int(units.number[0])
        expected = np.r_[_NONE if before is None else before[0] + 1, units.number[:-1] + 1]
        for i in np.flatnonzero(units.number != expected).tolist():
            earlier = (int(units.number[i - 1]), int(units.phy[i - 1])) if i else before
            step = Step(queue, int(units.phy[i]), int(units.number[i]), earlier)
            self.steps.append(step)
            self._by_queue.setdefault(queue, []).append(step)
            if i + 1 < len(units):
                step.after = int(units.number[i + 1])
            else:
                self._open[queue] = step
        self.last[queue] = int(units.number[-1]), int(units.phy[-1])

    def candidates(self) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Yield queue, queue offset and physical offset of messages with a possibly wrong header: both sides of each step, and the last one."""
        for step in self.steps:
            yield step.queue, step.number, step.phy
            if step.before is not None:
                yield step.queue, *step.before
        for queue, end in self.last.items():
            yield queue, *end

    def corrections(
        self, listed: Mapping[int, set[Place]], holes: Sequence[int], *, from_zero: bool
    ) -> dict[int, Place]:
        """Return the places of wrong messages by physical offset.

        `listed`: topic, queue id and queue offset of the units that point to a message, by its physical offset. `holes`: the physical offsets
        at which missing bytes of the log end, in order. `from_zero`: the log has its first file, in which queues begin at 0.
        """
        out: dict[int, Place] = {}
        claims: dict[Place, list[int]] = {}
        for (topic, queue_id), number, phy in dict.fromkeys(self.candidates()):
            places = [place for place in listed.get(phy, ()) if place[0] == topic] or [
                place for place in listed.get(phy, ()) if place[1:] == (queue_id, number)
                and place[0].isascii() and len(place[0]) == len(topic) and place[:2] in self.last
            ]  # fmt: skip
            if not places:
                places = [
                    (topic, queue_id, expected)
                    for expected in self._between(topic, queue_id, phy, from_zero=from_zero)
                ]
                places = places or [
                    (topic, other, number) for other in self._gaps(topic, queue_id, number, phy, holes)
                ]
                for place in places:
                    claims.setdefault(place, []).append(phy)
            fitting = [
                place for place in places if self._fits(*place, (topic, queue_id), phy, from_zero=from_zero)
            ]
            if len(fitting) == 1 and (topic, queue_id, number) not in places:
                out[phy] = fitting[0]
        for rivals in claims.values():
            for phy in rivals if len(rivals) > 1 else ():
                out.pop(phy, None)
        return out

    def has_room(self, queue: tuple[str, int], number: int, phy: int, corrected: Collection[int]) -> bool:
        """Return whether a lost message can have had this queue offset: queue offsets ascend with physical offsets.

        `corrected`: the physical offsets of messages whose headers are wrong. They prove nothing.
        """
        if queue not in self.last:
            return True
        last, end = self.last[queue]
        if end in corrected or (last < number and end < phy):
            return True
        steps = self._by_queue.get(queue, [])
        at = bisect_right(steps, phy, key=lambda step: step.phy)
        if at == len(steps):
            return False
        (low, start), high = steps[at].before or (-1, -1), steps[at].number
        wrong = steps[at].phy in corrected or start in corrected
        return start < phy and (wrong or low < number < high)

    def _between(self, topic: str, queue_id: int, phy: int, *, from_zero: bool) -> list[int]:
        """Return the queue offset that fits between both neighbours of a message. A queue begins at 0 in the first file of a log."""
        first = (-1, -1) if from_zero else None
        return [
            before[0] + 1 for step in self.steps
            if (*step.queue, step.phy) == (topic, queue_id, phy) and (before := step.before or first) and step.after == before[0] + 2
        ]  # fmt: skip

    def _gaps(self, topic: str, queue_id: int, number: int, phy: int, holes: Sequence[int]) -> list[int]:
        """Return the other queues of a topic in which exactly this message is missing between two others, and the log lacks no bytes."""
        return [
            gap.queue[1] for gap in self.steps
            if gap.queue[0] == topic and gap.queue[1] != queue_id and gap.number == number + 1 and gap.before is not None
            and gap.before[0] == number - 1 and gap.before[1] < phy < gap.phy
            and bisect_right(holes, gap.before[1]) == bisect_right(holes, gap.phy)
        ]  # fmt: skip

    def _fits(
        self, topic: str, queue_id: int, number: int, source: tuple[str, int], phy: int, *, from_zero: bool
    ) -> bool:
        """Return whether a queue has no message of this number, and it fits between the neighbours of the message."""
        if (topic, queue_id) == source:
            for step in self.steps:
                if (*step.queue, step.phy) == (topic, queue_id, phy):
                    before = number - 1 if step.before is None else step.before[0]
                    after = number + 1 if step.after is None else step.after
                    proved = step.before or step.after is not None or (from_zero and number == 0)
                    return bool(proved) and before < number < after and not before < step.number < after
            return False
        last, last_phy = self.last.get((topic, queue_id), (number - 1, -1))
        return (last == number - 1 and last_phy < phy) or any(
            gap.queue == (topic, queue_id) and gap.number == number + 1 and gap.phy > phy
            and (gap.before is None or (gap.before[0] == number - 1 and gap.before[1] < phy))
            for gap in self.steps
        )  # fmt: skip


def placed(message: bytes, place: Place | None, time: int | None) -> bytes:
    """Return a message with another topic of the same size, queue id and queue offset, or store time.

    The first two bytes of a port are 0 in the result.
    """
    data = bytearray(message)
    stored, body, _, at, size = parts_of(np.frombuffer(message, np.uint8), 0)
    for end in (stored, body - AFTER_HOSTS):
        data[end - 4 : end - 2] = bytes(2)
    if time is not None:
        data[stored : stored + 8] = time.to_bytes(8, "big", signed=True)
    if place is None:
        return bytes(data)
    topic, queue_id, number = place
    for name, value in (
        ("queue_id", queue_id.to_bytes(4, "big")),
        ("queue_offset", number.to_bytes(8, "big")),
    ):
        start = MESSAGE.offset(name)
        data[start : start + len(value)] = value
    if len(topic) == size:
        data[at : at + size] = topic.encode()
    return bytes(data)
