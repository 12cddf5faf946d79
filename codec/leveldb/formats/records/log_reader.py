"""Read a log or a manifest as LevelDB's own reader does: which records it delivers, and what it reports as dropped.

This is `log::Reader::ReadRecord` with checksums on, as `DBImpl::RecoverLogFile` and `VersionSet::Recover` call it (`Repairer` calls it with
checksums off). Nothing is salvaged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.leveldb.formats.records.layout import (
    AFTER,
    BAD_LENGTH,
    BAD_TYPE,
    BLOCK,
    CHAIN,
    CHECKSUM,
    CROWDED,
    EOF_TYPE,
    FULL,
    GATHERED,
    HEAD,
    HEADER,
    KIND,
    LENGTH,
    MIDDLE,
    MISSING,
    NEED,
    NEEDED,
    PARTIAL,
    PLACE,
    STATE,
    STOP,
    UNKNOWN,
    ZEROS,
    Int64s,
    scan_records,
)
from logwright.codec.window import Bytes, Frames, Window

_STEP = 4 << 20
_NO_LIMIT = 1 << 62
_CAPACITY = 1 << 15
"""Initial capacity for records. Room for as many as a window can have would take more memory than the window."""

MESSAGES = {BAD_LENGTH: "bad record length", CHECKSUM: "checksum mismatch"}
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


def scan(window: Window, at: int, *, check: bool, synced: bool, limit: int) -> tuple[Frames, int, list[int]]:
    """Return the logical records from `window.data[at]` on, why the scan ended, and its final state: see `layout.scan_records`."""
    capacity = min(max(len(window.data) - at, 0) // HEADER + 1, _CAPACITY)
    state = np.zeros(STATE, np.int64)
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    while True:
        starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        heads = np.empty((capacity, HEAD.itemsize // 8), np.int64)
        n, status = scan_records(
            window.data, at, window.offset, window.size, check, synced, limit, starts, ends, heads, state
        )
        parts.append((starts[:n], ends[:n], heads[:n]))
        if status != CROWDED:
            break
        at, synced, capacity = int(state[STOP]), True, 4 * capacity
    if len(parts) > 1:
        starts, ends, heads = (np.concatenate([part[i] for part in parts]) for i in range(3))
    else:
        starts, ends, heads = parts[0]
    return (
        Frames(starts, ends, heads.view(HEAD).reshape(len(starts)), int(state[STOP])),
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
            frames, status, state = scan(window, inside, check=check, synced=True, limit=_NO_LIMIT)
            if len(frames):
                yield Delivered(window, frames)
            inside = state[STOP]
            if status == NEED:
                break
            reports, resumed = _reports(window, status, state)
            yield from reports
            if resumed < 0:
                return
            inside = resumed
            if inside >= len(window.data):
                break
        length = max(step, 2 * state[NEEDED]) if status == NEED else step
        at += inside


def _reports(window: Window, status: int, state: list[int]) -> tuple[list[Dropped], int]:
    """Return what LevelDB reports at the end of a scan, and where in the window reading continues; -1 if it ends."""
    place, after, kind = state[PLACE], state[AFTER], state[KIND]
    at = window.offset + place
    chained, gathered = state[CHAIN] >= 0, state[GATHERED]
    broken = [Dropped(at, gathered, IN_MIDDLE)] if chained else []
    block_end = min(at + BLOCK - at % BLOCK, window.size)
    if status in MESSAGES:
        return [Dropped(at, block_end - at, MESSAGES[status]), *broken], block_end - window.offset
    if status == ZEROS:
        return broken, block_end - window.offset
    if status == PARTIAL:
        text = f"partial record without end({1 if kind == FULL else 2})"
        return [Dropped(at, gathered, text)], place
    if status == MISSING:
        text = f"missing start of fragmented record({1 if kind == MIDDLE else 2})"
        return [Dropped(at, state[LENGTH], text)], after
    if status == UNKNOWN and kind != EOF_TYPE:
        if kind == BAD_TYPE:
            return broken, after
        return [Dropped(at, state[LENGTH] + (gathered if chained else 0), unknown(kind))], after
    return [], -1


def unknown(kind: int) -> str:
    """Return LevelDB's message for an unknown type. It treats the byte as signed and prints it as an unsigned number."""
    return f"unknown record type {kind if kind < 128 else kind + (1 << 32) - 256}"
