"""Load the timer: the timer wheel, and the timer log, whose last files are recovered.

Source: `TimerWheel`, `TimerLog` and `TimerMessageStore.recoverAndRevise` of RocketMQ. The slots that a broker corrects are not simulated.
"""

from __future__ import annotations

from logwright.codec.rocketmq.formats.page import TIMER_LOG_FLUSHED
from logwright.codec.rocketmq.formats.timer import BLANK, MAGIC_MASK, UNIT, WHEEL_SIZE
from logwright.codec.rocketmq.startup.mapped_file import LoadError, MappedFile, MappedFileQueue
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.overlay import Overlay

_HEAD = UNIT.offset("physical_offset")
"""Bytes of a unit that a recovery reads."""


def load_timer(overlay: Overlay, size: int, *, old: bool) -> None:
    """Load the timer, whose log files have `size` bytes. `old` is set for a release before 5.1.3. Raises `LoadError`."""
    length = overlay.size(tree.WHEEL) if tree.WHEEL in overlay else 0
    if length not in (0, WHEEL_SIZE):
        raise LoadError(f"Timer wheel length:{length} != expected:{WHEEL_SIZE}")
    log = MappedFileQueue(overlay, tree.TIMER, size)
    log.load((entry.name for entry in overlay.entries() if tree.first(entry.name) == tree.TIMER), old=old)
    stored = tree.content(overlay, tree.TIMER_CHECK, TIMER_LOG_FLUSHED, 8).ljust(8, b"\0")
    flushed = int.from_bytes(stored, "big", signed=True)
    first = max((i for i, file in enumerate(log.files) if file.base <= max(flushed - size, 0)), default=0)
    for file in log.files[first:]:
        end, valid = _end(file)
        if not valid or file is log.files[-1]:
            log.truncate(file.base + end)
            break


def _end(file: MappedFile) -> tuple[int, bool]:
    """Return the position where the units end, and whether a blank record or the end of the file is there."""
    data = file.read()
    magic = UNIT.offset("magic")
    for at in range(0, len(data), UNIT.min_size):
        kind = data[at + magic : at + magic + 4]
        if kind == BLANK["magic"].only.to_bytes(4, "big", signed=True):
            return at, True
        known = len(data) >= at + _HEAD and 0 <= int.from_bytes(kind, "big", signed=True) <= MAGIC_MASK
        if not known or int.from_bytes(data[at : at + 4], "big") != UNIT.min_size:
            return at, False
    return len(data), True
