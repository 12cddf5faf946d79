"""Repair a log: every good batch is kept, in its order.

Bytes before the first damage stay. Records behind it are written again, since the place of a record in its block of 32 KiB decides how it
is split into physical records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.log.layout import (
    MEASURES,
    MESSAGES,
    OPERATIONS,
    SOUND,
    STATUS,
    STOPPED,
    TOO_HIGH,
    WRITE_BATCH,
    measure,
)
from logwright.codec.leveldb.formats.records.codec import MAX_RECORD, Payloads
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER, Int64s, room_for, write_records
from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes, Frames, Window

_COUNT = WRITE_BATCH.offset("count")
_POISON = "a batch without operations at sequence number 0: LevelDB would count on from 2^64-1"


@dataclass
class Log:
    """A log as it was found."""

    file: str
    number: int
    size: int
    rows: int = 0
    low: int = MAX_SEQUENCE
    high: int = -1
    """The smallest and the largest sequence number of the operations that are kept."""
    cut: list[Removed] = field(default_factory=list)
    first: int | None = None
    """The first byte that does not stay as it lies."""
    rows_before: int = 0
    high_before: int = -1
    """As `rows` and `high`, of what lies before that byte."""

    def up_to_damage(self) -> Log:
        """The same with nothing behind the first damage."""
        assert self.first is not None
        behind = replace(self.cut[0], offset=self.first).to_end(self.size)
        return Log(
            self.file, self.number, self.size, self.rows_before, self.low, self.high_before, [behind], self.first,
            self.rows_before, self.high_before,
        )  # fmt: skip


def unchanged_records(window: Window, frames: Frames) -> tuple[Bytes, Int64s]:
    """Return the records of some frames as they are: see `rewritten`."""
    payloads = Payloads.of(window, frames, joined=True)
    return payloads.data, np.concatenate((payloads.start[:1], payloads.end))


def examine(listing: Listing, file: str, number: int, size: int, options: Options) -> Log:
    """Read a log from end to end."""
    found = Log(file, number, size)
    read = ListedFile(listing, file, size)
    walk = walk_log(read, options)
    for one in walk:
        if isinstance(one, Hole):
            if one.fault.severity is not Severity.INFO:
                _cut(found, Removed.damaged(file, one.fault_if_removed(walk.codec, walk.context)))
            continue
        judged = _Judged.of(one.window, one.frames)
        for i in np.flatnonzero(judged.why != "").tolist():
            start, end = (one.window.offset + int(edge[i]) for edge in (one.frames.start, one.frames.end))
            text = (
                f"{judged.why[i]}; the {int(judged.rows[i])} operation(s) before are kept"
                if judged.rows[i]
                else judged.why[i]
            )
            lost: dict[str, Any] = {"file": number}
            if judged.first[i] >= 0:
                lost["first_sequence"] = int(judged.first[i] + judged.rows[i])
            _cut(found, Removed(file, start, end - start, str(text), 0, judged.lost(i), lost))
        found.rows += int(judged.rows.sum())
        before = judged.rows > 0
        if before.any():
            found.low = min(found.low, int(judged.first[before].min()))
            found.high = max(found.high, int((judged.first + judged.rows)[before].max()) - 1)
        if found.first is not None:
            before &= one.frames.start + one.window.offset < found.first
        if before.any():
            found.rows_before += int(judged.rows[before].sum())
            found.high_before = max(found.high_before, int((judged.first + judged.rows)[before].max()) - 1)
    return found


def pieces(listing: Listing, found: Log, options: Options, *, prefix: bool = False) -> Iterator[Extent]:
    """Yield what the repaired log is made of."""
    if found.first is None:
        yield Copy(found.file, 0, found.size)
        return
    if prefix:
        yield Copy(found.file, 0, found.first)
        return
    walk = walk_log(ListedFile(listing, found.file, found.size), options)
    yield from rewritten(
        walk, found.file, found.first, lambda window, frames: _Judged.of(window, frames).kept()
    )


def rewritten(
    walk: Iterable[Stretch | Hole],
    file: str,
    first: int,
    records: Callable[[Window, Frames], tuple[Bytes, Int64s]] = unchanged_records,
) -> Iterator[Extent]:
    """Keep a file of records up to the byte `first`, where a record starts, and write the records behind it again.

    `records` returns the new records of some frames, one after the other, and where each starts, with the end of the last.
    """
    yield Copy(file, 0, first)
    at = first
    for one in walk:
        if isinstance(one, Hole):
            continue
        frames = one.frames.pick(one.frames.start + one.window.offset >= first)
        if len(frames):
            data, stops = records(one.window, frames)
            out = np.empty(room_for(len(data), len(stops) - 1), np.uint8)
            size = int(write_records(data, stops, at, out))
            yield out[:size].tobytes()
            at += size


def walk_log(read: ListedFile, options: Options) -> Walk:
    """Go over a log with the options of a repair, of which the codec takes one."""
    own = Options(log.CODEC.options, {MAX_RECORD.name: options[MAX_RECORD.name]})
    return Walk(read, log.CODEC, log.CODEC.context(read.name, own))


def _cut(found: Log, cut: Removed) -> None:
    found.cut.append(cut)
    found.first = cut.offset if found.first is None else min(found.first, cut.offset)


@dataclass
class _Judged:
    """Batches whose checksums are right, and how much of each is kept: `rows` operations, from sequence number `first` on (-1: it is
    none). `why` is empty for one that stays as it is."""

    payloads: Payloads
    measured: Int64s
    first: Int64s
    rows: Int64s
    why: npt.NDArray[Any]

    @classmethod
    def of(cls, window: Window, frames: Frames) -> _Judged:
        payloads = Payloads.of(window, frames, joined=True)
        measured = np.zeros((len(frames), MEASURES), np.int64)
        measure(payloads.data, payloads.start, payloads.end, measured)
        head = frames.header
        first = np.where(head["size"] >= BATCH_HEADER, head["sequence"].astype(np.int64), -1)
        status, rows = measured[:, STATUS], measured[:, OPERATIONS].copy()
        rows[status == TOO_HIGH] = 0
        why = np.array(MESSAGES, object)[status]
        why[(status == SOUND) & (rows == 0) & (first == 0)] = _POISON
        return cls(payloads, measured, first, rows, why)

    def lost(self, i: int) -> int | None:
        """How many operations are not kept; None where that is not known."""
        if self.measured[i, STATUS] == SOUND or self.first[i] < 0:
            return 0
        start = int(self.payloads.start[i]) + _COUNT
        said = int(self.payloads.data[start : start + 4].view("<i4")[0])
        rest = said - int(self.rows[i])
        whole = self.measured[i, STOPPED] == self.payloads.end[i] - self.payloads.start[i]
        return max(rest, 0) if not whole and rest > 0 else 0 if whole and self.rows[i] else None

    def kept(self) -> tuple[Bytes, Int64s]:
        """The payloads that are kept, one after the other, and where they end; of a batch that goes wrong what is before that."""
        bad = self.why != ""
        if not bad.any():
            stops = (
                np.concatenate((self.payloads.start[:1], self.payloads.end))
                if len(bad)
                else np.zeros(1, np.int64)
            )
            return self.payloads.data, stops
        parts: list[bytes] = []
        for i in np.flatnonzero(~bad | (self.rows > 0)).tolist():
            start, end = int(self.payloads.start[i]), int(self.payloads.end[i])
            if not bad[i]:
                parts.append(self.payloads.data[start:end].tobytes())
                continue
            data = bytearray(self.payloads.data[start : start + int(self.measured[i, STOPPED])].tobytes())
            data[_COUNT : _COUNT + 4] = int(self.rows[i]).to_bytes(4, "little")
            parts.append(bytes(data))
        stops = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
        return np.frombuffer(b"".join(parts), np.uint8), stops
