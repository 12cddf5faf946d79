"""Repair a log: keep every good batch, in order.

The bytes before the first damage are copied. Records after it are written again, since the position of a record in its block of 32 KiB
decides how it is split into physical records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Int64s
from logwright.codec.columns import joined
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.log import layout
from logwright.codec.leveldb.formats.records.codec import MAX_RECORD, Payloads
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER, written
from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes, Frames, Window

_COUNT = layout.WRITE_BATCH.offset("count")
_POISON = "a batch without operations at sequence number 0: LevelDB would continue from 2^64-1"


@dataclass
class Log:
    """A surveyed log."""

    file: str
    number: int
    size: int
    rows: int = 0
    low: int = MAX_SEQUENCE
    high: int = -1
    """The smallest and the largest sequence number of the kept operations."""
    cut: list[Removed] = field(default_factory=list)
    first: int | None = None
    """The first byte that is not copied."""
    rows_before: int = 0
    high_before: int = -1
    """Like `rows` and `high`, for the bytes before `first`."""

    def up_to_damage(self) -> Log:
        """Return the log up to its first damage."""
        assert self.first is not None
        behind = replace(self.cut[0], offset=self.first).to_end(self.size)
        return replace(self, rows=self.rows_before, high=self.high_before, cut=[behind])


def unchanged_records(window: Window, frames: Frames) -> tuple[Bytes, Int64s]:
    """Return the records of some frames unchanged: see `rewritten`."""
    payloads = Payloads.of(window, frames, joined=True)
    return payloads.data, payloads.stops


def survey_log(listing: Listing, file: str, number: int, size: int, options: Options) -> Log:
    """Survey a log."""
    surveyed = Log(file, number, size)
    read = ListedFile(listing, file, size)
    walk = walk_log(read, options)
    for step in walk:
        if isinstance(step, Hole):
            if step.fault.severity is not Severity.INFO:
                _cut(surveyed, Removed.damaged(file, step.fault_if_removed(walk.codec, walk.context)))
            continue
        kept = _KeptBatches.of(step.window, step.frames)
        for i in np.flatnonzero(kept.why != "").tolist():
            start, end = (step.window.offset + int(edge[i]) for edge in (step.frames.start, step.frames.end))
            text = str(kept.why[i])
            if kept.rows[i]:
                text += f"; {plural.count(int(kept.rows[i]), 'operation')} before it kept"
            lost: dict[str, Any] = {"file": number}
            if kept.first[i] >= 0:
                lost["first_sequence"] = int(kept.first[i] + kept.rows[i])
            _cut(surveyed, Removed(file, start, end - start, text, 0, kept.lost(i), lost))
        surveyed.rows += int(kept.rows.sum())
        before = kept.rows > 0
        if before.any():
            surveyed.low = min(surveyed.low, int(kept.first[before].min()))
            surveyed.high = max(surveyed.high, int((kept.first + kept.rows)[before].max()) - 1)
        if surveyed.first is not None:
            before &= step.frames.start + step.window.offset < surveyed.first
        if before.any():
            surveyed.rows_before += int(kept.rows[before].sum())
            surveyed.high_before = max(surveyed.high_before, int((kept.first + kept.rows)[before].max()) - 1)
    return surveyed


def pieces(listing: Listing, surveyed: Log, options: Options, *, prefix: bool = False) -> Iterator[Extent]:
    """Yield the extents of the repaired log."""
    if surveyed.first is None:
        yield Copy(surveyed.file, 0, surveyed.size)
        return
    if prefix:
        yield Copy(surveyed.file, 0, surveyed.first)
        return
    walk = walk_log(ListedFile(listing, surveyed.file, surveyed.size), options)
    yield from rewritten(
        walk, surveyed.file, surveyed.first, lambda window, frames: _KeptBatches.of(window, frames).kept()
    )


def rewritten(
    walk: Iterable[Stretch | Hole],
    file: str,
    first: int,
    records: Callable[[Window, Frames], tuple[Bytes, Int64s]] = unchanged_records,
) -> Iterator[Extent]:
    """Copy a file of records up to byte `first`, where a record starts, and write the records after it again.

    `records` returns the new records of some frames, one after the other, and where each starts, with the end of the last.
    """
    yield Copy(file, 0, first)
    at = first
    for step in walk:
        if isinstance(step, Hole):
            continue
        frames = step.frames.pick(step.frames.start + step.window.offset >= first)
        if len(frames):
            data = written(*records(step.window, frames), at)
            yield data.tobytes()
            at += len(data)


def walk_log(read: ListedFile, options: Options) -> Walk:
    """Walk a log with those options of a repair that the codec takes."""
    own = Options(log.CODEC.options, {MAX_RECORD.name: options[MAX_RECORD.name]})
    return Walk(read, log.CODEC, log.CODEC.context(read.name, own))


def _cut(surveyed: Log, cut: Removed) -> None:
    surveyed.cut.append(cut)
    surveyed.first = cut.offset if surveyed.first is None else min(surveyed.first, cut.offset)


@dataclass
class _KeptBatches:
    """Batches with right checksums, and how much of each is kept: `rows` operations from sequence number `first`, which is -1 for none.
    `why` is empty for an unchanged batch."""

    payloads: Payloads
    measured: Int64s
    first: Int64s
    rows: Int64s
    why: npt.NDArray[Any]

    @classmethod
    def of(cls, window: Window, frames: Frames) -> _KeptBatches:
        payloads = Payloads.of(window, frames, joined=True)
        measured = log.measured_batches(window, frames, payloads)
        head = frames.header
        first = np.where(head["size"] >= BATCH_HEADER, head["sequence"].astype(np.int64), -1)
        status, rows = measured[:, layout.STATUS], measured[:, layout.OPERATIONS].copy()
        rows[status == layout.TOO_HIGH] = 0
        why = np.array(layout.MESSAGES, object)[status]
        why[(status == layout.SOUND) & (rows == 0) & (first == 0)] = _POISON
        return cls(payloads, measured, first, rows, why)

    def lost(self, i: int) -> int | None:
        """Return the number of lost operations, or None if it is unknown."""
        if self.measured[i, layout.STATUS] == layout.SOUND or self.first[i] < 0:
            return 0
        start = int(self.payloads.start[i]) + _COUNT
        stored_count = int(self.payloads.data[start : start + 4].view("<i4")[0])
        rest = stored_count - int(self.rows[i])
        complete = self.measured[i, layout.STOPPED] == self.payloads.end[i] - self.payloads.start[i]
        return max(rest, 0) if not complete and rest > 0 else 0 if complete and self.rows[i] else None

    def kept(self) -> tuple[Bytes, Int64s]:
        """Return the kept payloads, one after the other, and where they end. A malformed batch is kept up to the malformed operation."""
        bad = self.why != ""
        if not bad.any():
            return self.payloads.data, self.payloads.stops
        parts: list[bytes] = []
        for i in np.flatnonzero(~bad | (self.rows > 0)).tolist():
            start, end = int(self.payloads.start[i]), int(self.payloads.end[i])
            if not bad[i]:
                parts.append(self.payloads.data[start:end].tobytes())
                continue
            data = bytearray(
                self.payloads.data[start : start + int(self.measured[i, layout.STOPPED])].tobytes()
            )
            data[_COUNT : _COUNT + 4] = int(self.rows[i]).to_bytes(4, "little")
            parts.append(bytes(data))
        return joined(parts)
