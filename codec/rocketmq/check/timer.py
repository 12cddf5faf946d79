"""Compare the timer wheel with the timer log: each unit that is still to be delivered must be reached from its slot.

A broker only follows the links from the last unit of a slot to the first. Source: `TimerMessageStore.dequeue` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.fixed import entries_of
from logwright.codec.rocketmq.check.times import NAME
from logwright.codec.rocketmq.formats.page import TIMER_LOG_FLUSHED
from logwright.codec.rocketmq.formats.timer import SLOT, UNIT, WHEEL_SIZE
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.listing import Listing

_AT_A_TIME = UNIT.min_size << 14
"""Bytes of the timer log that are read at once."""
_SLOTS = WHEEL_SIZE // SLOT.min_size
_BROKER = "a broker does not deliver these timer messages"


def timer_faults(listing: Listing, precision: int) -> Iterator[tuple[str, Fault]]:
    """Yield the faults of an existing wheel. `precision`: milliseconds of a slot."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    if sizes.get(tree.WHEEL) != WHEEL_SIZE or sizes.get(tree.TIMER_CHECK, 0) < TIMER_LOG_FLUSHED + 8:
        return
    read, flushed = _progress(listing)
    log = _log(listing)
    first = max(read // precision, 1)
    position, time, previous = _units(listing, log, precision, first)
    order = np.lexsort((position, time))
    position, time, previous = position[order], time[order], previous[order]
    same: Bools = np.zeros(len(time), np.bool_)
    same[1:] = time[1:] == time[:-1]
    unlinked = np.flatnonzero(same[1:] & (previous[1:] != position[:-1])) + 1
    if len(unlinked):
        at = int(position[unlinked].min())
        name, (base, _) = max(
            ((name, place) for name, place in log.items() if place[0] <= at), key=lambda item: item[1]
        )
        text = f"not linked to the unit before it in the slot: {plural.count(len(unlinked), 'unit')}, of which this is the first"
        yield name, _fault(at - base, UNIT.min_size, text)
    # A broker corrects the slots of the units that it reads on start.
    recovered = max(flushed - max((size for _, size in log.values()), default=0), 0)
    corrected = max((base for base, _ in log.values() if base <= recovered), default=0)
    wheel = entries_of(SLOT, listing.read(tree.WHEEL))
    last = np.append(~same[1:], True)[: len(time)]
    times, positions = (wheel[name].astype(np.int64) for name in ("time", "last_position"))
    bad = _wrong_slots(times, positions, time[last], position[last], first, corrected)
    if len(bad):
        text = f"not leading to the last unit in the timer log: {plural.count(len(bad), 'slot')}, of which this is the first"
        yield tree.WHEEL, _fault(int(bad[0]) * SLOT.min_size, SLOT.min_size, text)


def pending(listing: Listing, precision: int) -> int:
    """Return the number of units that are still to be delivered."""
    return len(_units(listing, _log(listing), precision, max(_progress(listing)[0] // precision, 1))[0])


def _progress(listing: Listing) -> tuple[int, int]:
    """Return up to which time the wheel was read, and up to which position the timer log was flushed: 0 without timercheck."""
    size = TIMER_LOG_FLUSHED + 8
    data = tree.content(listing, tree.TIMER_CHECK, 0, size).ljust(size, b"\0")
    read, flushed = np.frombuffer(data, ">i8").tolist()
    return read, flushed


def _log(listing: Listing) -> dict[str, tuple[int, int]]:
    """Return the position and size of each file of the timer log."""
    return {
        entry.name: (tree.start_of(entry.name), entry.size)
        for entry in listing.entries()
        if tree.first(entry.name) == tree.TIMER and tree.is_padded(entry.name)
    }


def _fault(offset: int, length: int, text: str) -> Fault:
    return Fault(NAME, offset, length, Kind.LINK, text, Severity.ERROR, _BROKER)


def _wrong_slots(
    times: Int64s, positions: Int64s, time: Int64s, position: Int64s, first: int, corrected: int
) -> Int64s:
    """Return the slots that do not lead to the last unit of a time. `times` and `positions` are those of the wheel."""
    slot = time % _SLOTS
    wrong = (position < corrected) & ((times[slot] != time) | (positions[slot] != position))
    used = np.flatnonzero(times >= first)
    return np.union1d(slot[wrong], used[~np.isin(times[used], time)])


def _units(
    listing: Listing, log: Mapping[str, tuple[int, int]], precision: int, first: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the positions, slot times and links of the units that are still to be delivered. `log` has the position and size of each file."""
    out = [np.zeros((3, 0), np.int64)]
    for name, (base, size) in log.items():
        for at in range(0, size, _AT_A_TIME):
            units = entries_of(UNIT, listing.read(name, at, _AT_A_TIME))
            valid = np.logical_and.accumulate(units["unit_size"] == UNIT.min_size)
            time = (units["write_time"].astype(np.int64) + units["delayed_time"]) // precision
            index = np.flatnonzero(valid & (time >= first))
            places = base + at + index * UNIT.min_size
            out.append(np.stack([places, time[index], units["previous"].astype(np.int64)[index]]))
            if not valid.all():
                break
    position, time, previous = np.concatenate(out, axis=1)
    return position, time, previous
