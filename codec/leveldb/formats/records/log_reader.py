"""Read a log or a manifest as LevelDB's own reader does: which records it delivers, and what it reports as dropped.

This is `log::Reader::ReadRecord` with checksums on, as `DBImpl::RecoverLogFile` and `VersionSet::Recover` call it (`Repairer` calls it with
checksums off). Nothing is salvaged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.leveldb.formats.records import layout
from logwright.codec.leveldb.formats.records.layout import scan_records
from logwright.codec.window import Bytes, Frames, Window

_STEP = 4 << 20
_NO_LIMIT = 1 << 62
_CAPACITY = 1 << 15
"""Initial capacity for records. Room for as many as a window can have would take more memory than the window."""

IN_MIDDLE = "error in middle of record"


@dataclass(frozen=True, slots=True)
class Delivered:
    """Logical records that the reader delivers, in order. Positions in `frames` count from `window.offset`."""

    window: Window
    frames: Frames


@dataclass(frozen=True, slots=True)
class Dropped:
    """A report (`Reader::Reporter::Corruption`): the number of dropped bytes, and the reason. `position` is the reader's position in the
    file."""

    position: int
    bytes: int
    reason: str


def scan(window: Window, at: int, *, check: bool, limit: int) -> tuple[Frames, int, list[int]]:
    """Return the logical records from `window.data[at]` on, why the scan ended, and its final state: see `layout.scan_records`."""
    capacity = min(max(len(window.data) - at, 0) // layout.HEADER + 1, _CAPACITY)
    state = np.zeros(layout.STATE, np.int64)
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    while True:
        starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        heads = np.empty((capacity, layout.HEAD.itemsize // 8), np.int64)
        n, status = scan_records(
            window.data, at, window.offset, window.size, check, limit, starts, ends, heads, state
        )
        parts.append((starts[:n], ends[:n], heads[:n]))
        if status != layout.CROWDED:
            break
        at, capacity = int(state[layout.STOP]), 4 * capacity
    if len(parts) > 1:
        starts, ends, heads = (np.concatenate([part[i] for part in parts]) for i in range(3))
    else:
        starts, ends, heads = parts[0]
    return (
        Frames(starts, ends, heads.view(layout.HEAD).reshape(len(starts)), int(state[layout.STOP])),
        int(status),
        state.tolist(),
    )


def read_records(
    read: Callable[[int, int], Bytes], size: int, *, check: bool = True, step: int = _STEP
) -> Iterator[Delivered | Dropped]:
    """Read a file of `size` bytes as LevelDB's reader does.

    `read(offset, length)` returns `length` bytes, or fewer at the end of the file.
    """
    at = 0
    length = step
    while at < size:
        requested = min(length, size - at)
        data = read(at, requested)
        if len(data) < requested:
            size = at + len(data)  # the file was truncated meanwhile
        window = Window(data, at, size)
        inside = 0
        while True:
            frames, status, state = scan(window, inside, check=check, limit=_NO_LIMIT)
            if len(frames):
                yield Delivered(window, frames)
            inside = state[layout.STOP]
            if status == layout.NEED:
                break
            reports, resumed = _reports(window, status, state)
            yield from reports
            if resumed < 0:
                return
            inside = resumed
            if inside >= len(window.data):
                break
        length = max(step, 2 * state[layout.NEEDED]) if status == layout.NEED else step
        at += inside


def _reports(window: Window, status: int, state: list[int]) -> tuple[list[Dropped], int]:
    """Return what LevelDB reports at the end of a scan, and where in the window reading continues; -1 if it ends."""
    place, after, kind = state[layout.PLACE], state[layout.AFTER], state[layout.KIND]
    at = window.offset + place
    chained, gathered = state[layout.CHAIN] >= 0, state[layout.GATHERED]
    broken = [Dropped(at, gathered, IN_MIDDLE)] if chained else []
    block_end = min(at + layout.BLOCK - at % layout.BLOCK, window.size)
    text = message(status, kind)
    if status in (layout.BAD_LENGTH, layout.CHECKSUM):
        return [Dropped(at, block_end - at, text), *broken], block_end - window.offset
    if status == layout.ZEROS:
        return broken, block_end - window.offset
    if status == layout.PARTIAL:
        return [Dropped(at, gathered, text)], place
    if status == layout.MISSING:
        return [Dropped(at, state[layout.LENGTH], text)], after
    if status == layout.UNKNOWN and kind != layout.EOF_TYPE:
        if kind == layout.BAD_TYPE:
            return broken, after
        return [Dropped(at, state[layout.LENGTH] + (gathered if chained else 0), text)], after
    return [], -1


def message(status: int, kind: int) -> str:
    """Return LevelDB's message for a record of that type at which a scan ended; "" where it has none."""
    match status:
        case layout.BAD_LENGTH:
            return "bad record length"
        case layout.CHECKSUM:
            return "checksum mismatch"
        case layout.PARTIAL:
            return f"partial record without end({1 if kind == layout.FULL else 2})"
        case layout.MISSING:
            return f"missing start of fragmented record({1 if kind == layout.MIDDLE else 2})"
        case layout.UNKNOWN:
            # It treats the byte as signed and prints it as an unsigned number.
            return f"unknown record type {kind if kind < 128 else kind + (1 << 32) - 256}"
    return ""
