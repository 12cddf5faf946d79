"""Check the store times of messages and the content of the checkpoint.

A broker takes the store time while it holds the lock of the log, so times ascend unless its clock is set back. A time is wrong if it is far
from those of the messages before and after, and these are in order. The property `__CRC32#` proves a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.rocketmq.formats.commitlog.layout import has_trailer
from logwright.codec.rocketmq.formats.page import CHECKPOINT
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes

NAME = "rocketmq.store"
FAR = 60_000
"""Milliseconds by which a wrong time differs at least. Clocks are set back by less."""
_STARTS = "after an unclean stop a broker starts its recovery at another file"
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_OFFSETS = ("confirm_phy_offset", "logics_physical_offset")


@dataclass(frozen=True)
class WrongTime:
    """The store time of a message at a physical offset, and those before and after it, in milliseconds."""

    phy: int
    stored: int
    before: int
    after: int

    def fault(self, at: int) -> Fault:
        """Return the fault of a message at `at` in its file."""
        text = f"store_timestamp is {self.stored}, but those of the messages before and after are {self.before} and {self.after}"
        system = _STARTS if not at else "a broker that searches the queue by time finds another message"
        return Fault(NAME, at, 0, Kind.ORDER, text, Severity.WARNING, system, 0)


class StoreTimes:
    """A fold over all messages, in log order."""

    def __init__(self) -> None:
        self.wrong: list[WrongTime] = []
        self._newest = -1
        self._phy = self._stored = np.empty(0, np.int64)
        """The last two messages."""
        self._proved = False

    def add(self, data: Bytes, starts: Int64s, ends: Int64s, phy: Int64s, stored: Int64s) -> None:
        """Take messages, their physical offsets and store times."""
        held, phys, times = len(self._phy), np.r_[self._phy, phy], np.r_[self._stored, stored]
        odd = out_of_order(times, FAR)
        for i in np.flatnonzero(odd).tolist():
            proved = (
                self._proved if i < held else has_trailer(data, int(starts[i - held]), int(ends[i - held]))
            )
            if not proved:
                self.wrong.append(
                    WrongTime(*(int(number) for number in (phys[i], times[i], times[i - 1], times[i + 1])))
                )
        self._newest = max(self._newest, int(times[:-1][~odd[:-1]].max(initial=-1)))
        self._phy, self._stored = phys[-2:], times[-2:]
        if len(starts):
            self._proved = bool(has_trailer(data, int(starts[-1]), int(ends[-1])))

    @property
    def newest(self) -> int:
        """The newest store time, or -1 without messages."""
        return max(self._newest, int(self._stored[-1:].max(initial=-1)))


def out_of_order(times: Int64s, far: int) -> Bools:
    """Return which times are more than `far` before or after both neighbours, which are in order."""
    odd = np.zeros(len(times), np.bool_)
    if (times[1:] >= times[:-1]).all():
        return odd
    before, after = times[:-2], times[2:]
    odd[1:-1] = (before <= after) & ((times[1:-1] < before - far) | (times[1:-1] > after + far))
    return odd


def checkpoint_faults(listing: Listing, newest: int, end: int) -> Iterator[Fault]:
    """Yield the values of the checkpoint that no broker writes. `newest` is the newest store time of all messages, `end` the end of the log."""
    if newest < 0 or not any(entry.name == tree.CHECKPOINT for entry in listing.entries()):
        return
    try:
        (row,) = CHECKPOINT.parse(listing.read(tree.CHECKPOINT)).to_pylist()
    except (DescriptionError, UnreadableError):
        return  # the check of the file reports it
    limits = {**dict.fromkeys(_TIMES, newest), **dict.fromkeys(_OFFSETS, end)}
    for i, (name, value) in enumerate(row.items()):
        limit = limits.get(name)
        if limit is None or 0 <= value <= limit:
            continue
        known = f"the newest message has store time {limit}" if name in _TIMES else f"the log ends at {limit}"
        text = f"{name} is {value}, but {known}"
        yield Fault(NAME, 8 * i, 8, Kind.LINK, text, Severity.WARNING, _STARTS, 0)
