"""Survey a segment: the runs of batches that a broker keeps and a consumer can read, and the damage between them.

A batch is sound if its length, checksum and header are right and its records can be decoded. `repair.reorder`
decides whether it is in its place: no checksum covers base_offset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Int64s, stretches
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.consumer import consume
from logwright.codec.kafka.formats.log.heads import heads_at, stored_heads
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL,
    CRC_START,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
)
from logwright.codec.kafka.formats.log.markers import bad_markers
from logwright.codec.kafka.formats.log.messages import open_wrappers
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.runs import Run, join, lost, one_batch
from logwright.codec.kafka.store.evidence import partition_of
from logwright.codec.kernels.crc32c import crc32c_bytes
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window

_LARGEST_PATCHED = 64 << 20
"""A larger batch whose length or magic is wrong is not corrected."""
_GOOD, _HEADER, _MISPLACED, _UNREADABLE = range(4)
"""What becomes of a batch: it is kept; it is kept with a corrected header; `repair.reorder` finds its place; a part of it is kept, or none."""
_DELTA = RECORD_BATCH.offset("last_offset_delta")
_OFFSET_SIZE = RECORD_BATCH.offset("batch_length")


@dataclass
class SegmentSurvey:
    """A segment as the survey found it."""

    copy: int
    file: PlannedFile
    good: list[Run] = field(default_factory=list)
    """The sound runs, in the order of the file."""
    misplaced: list[Run] = field(default_factory=list)
    """Batches whose offsets do not fit those around them, or the file's range."""
    cut: list[Removed] = field(default_factory=list)
    """Everything else."""
    notes: list[str] = field(default_factory=list)
    """Corrections of headers."""
    newest: int = -1
    """The largest timestamp that a broker itself wrote (in markers, and in batches with LOG_APPEND_TIME), in milliseconds."""
    error: Removed | None = None
    """The first region that a check reports as an error. The torn end of a running broker's log is not."""

    @property
    def base(self) -> int:
        return int(self.file.hints["base_offset"])

    @property
    def starts(self) -> Int64s:
        """The bytes where the first batches start, up to the first damage."""
        return self.good[0].begin + self.good[0].edges[:-1] if self.good else np.empty(0, np.int64)


def survey(
    listing: Listing, copy: int, file: PlannedFile, options: Options, *, correct: bool = True
) -> SegmentSurvey:
    """Read a segment from end to end. `correct`: whether single flipped bits are corrected."""
    return _Surveyor(listing, copy, file, options, correct=correct).run()


def clock(surveys: Iterable[SegmentSurvey]) -> int:
    """Return the time, in milliseconds, from which `producer.id.expiration.ms` counts back.

    A broker forgets idle producers when it starts. The time of that start is unknown, so the newest time that a broker wrote into
    the log stands for it, and without one the current time. The result then does not depend on when the repair runs, and has
    the producers that the broker had. Those that have expired since are forgotten when the broker loads the snapshot.
    """
    now = time.time_ns() // 1_000_000
    newest = max((segment.newest for segment in surveys), default=-1)
    return min(now, newest) if newest >= 0 else now


class _Surveyor:
    def __init__(
        self, listing: Listing, copy: int, file: PlannedFile, options: Options, *, correct: bool
    ) -> None:
        self.listing, self.copy, self.file, self.correct = listing, copy, file, correct
        self.result = SegmentSurvey(copy, file)
        own = Options(log.CODEC.options, {"max.decompressed.bytes": options["max.decompressed.bytes"]})
        hints = {**file.hints, "directory": listing.name}
        # A `.swap` file is read under the name that it gets when the broker finishes the operation.
        name = segment_name(self.result.base, ".log")
        self.context: LogContext = log.CODEC.context(name, own, **hints)
        self._rows: LogContext = log.CODEC.context(name, own, **hints)

    def run(self) -> SegmentSurvey:
        file = ListedFile(self.listing, self.file.name, self.file.size)
        ended: Stretch | None = None
        for item in Walk(file, log.CODEC, self.context):
            if isinstance(item, Stretch):
                ended = item
                if len(item.frames):
                    self._sort(item.window, item.frames)
            else:
                assert ended is not None
                self._damage(ended, item)
        self.result.good, self.result.misplaced = join(self.result.good), join(self.result.misplaced)
        return self.result

    # Batches

    def _sort(self, window: Window, frames: Frames) -> None:
        by_broker = frames.header["attributes"] & (CONTROL | TIMESTAMP_TYPE) != 0
        self.result.newest = max(
            self.result.newest, int(frames.header["max_timestamp"][by_broker].max(initial=-1))
        )
        kind = np.zeros(len(frames), np.int8)
        why: dict[int, Fault] = {}
        starts = frames.start + window.offset
        for fault in frames.faults:
            i = int(np.searchsorted(starts, fault.offset))
            head = frames.header[i]
            corrected = int(head["last_offset"]) != _stored_last(window, frames, i)
            order = _HEADER if corrected else _MISPLACED
            kind[i] = max(int(kind[i]), order if fault.kind is Kind.ORDER else _UNREADABLE)
            why.setdefault(i, fault)
        for i, fault in self._undecodable(window, frames):
            kind[i] = _UNREADABLE
            why[i] = fault
        for low, high in stretches(kind):
            if kind[low] == _GOOD:
                self._keep(self.result.good, window, frames.pick(slice(low, high)))
            elif kind[low] == _MISPLACED:
                size = int(frames.end[low] - frames.start[low])
                self._error(self._removed(int(starts[low]), size, why[low]))
                self._keep(self.result.misplaced, window, frames.pick(slice(low, high)))
            else:
                handle = self._correct if kind[low] == _HEADER else self._unreadable
                for i in range(low, high):
                    handle(window, frames.pick(slice(i, i + 1)), why[i])

    def _undecodable(self, window: Window, frames: Frames) -> Iterator[tuple[int, Fault]]:
        """Return the batches whose records cannot be decoded: no consumer gets past them."""
        starts = frames.start + window.offset
        for decoded in log.CODEC.decode(window, frames, "rows", ["offset"], self._rows):
            for _, fault in decoded.faults:
                if fault.kind is Kind.PAYLOAD:
                    yield int(np.searchsorted(starts, fault.offset)), fault

    def _is_sound(self, window: Window, batch: Frames) -> bool:
        """Return whether the records of a batch can be decoded, and end a transaction if they should."""
        return not list(self._undecodable(window, batch)) and not bad_markers(window, batch)

    def _keep(self, runs: list[Run], window: Window, frames: Frames) -> None:
        """Append runs of batches. Offsets need not ascend among the misplaced ones."""
        reached = np.maximum.accumulate(frames.header["last_offset"])
        breaks = np.flatnonzero(frames.header["base_offset"][1:] <= reached[:-1]) + 1
        for low, high in pairwise([0, *breaks.tolist(), len(frames)]):
            runs.append(Run.of(self.copy, self.file, window, frames.pick(slice(low, high))))

    def _correct(self, window: Window, batch: Frames, fault: Fault) -> None:
        """Keep a batch with the last_offset_delta that its records and the other batches prove; a wrapper of magic 0 with the offset."""
        start, end = int(batch.start[0]), int(batch.end[0])
        last = int(batch.header["last_offset"][0])
        if batch.header["magic"][0] < MAGIC:
            at, rest = window.offset + start, window.data[start + _OFFSET_SIZE : end].tobytes()
            self._error(self._removed(at, end - start, fault))
            patch = last.to_bytes(_OFFSET_SIZE, "big")
            self.result.good.append(Run.patched(self.copy, self.file, at, at + _OFFSET_SIZE, patch, rest))
            self.result.notes.append(
                f"{self.file.name}: offset of the message at byte {at} is changed from {_stored_last(window, batch, 0)} to {last}, which"
                " the messages in it and the batches around it prove (no checksum covers the field)."
            )
            return
        at, rest = window.offset + start, window.data[start + HEAD_SIZE : end].tobytes()
        delta = last - int(batch.header["base_offset"][0])
        head = stored_heads(window.data, batch.start)
        before = int(head["last_offset_delta"][0])
        head["last_offset_delta"] = delta
        self._error(self._removed(at, end - start, fault))
        self.result.good.append(
            Run.patched(self.copy, self.file, at, at + HEAD_SIZE, reseal(head, rest), rest)
        )
        self.result.notes.append(
            f"{self.file.name}: last_offset_delta of the batch at byte {at} is changed from {before} to"
            f" {delta}, which its records and the batches around it prove, and its checksum is computed again."
        )

    # Batches that stop a consumer

    def _unreadable(self, window: Window, batch: Frames, fault: Fault) -> None:
        """Keep the records of a batch that a consumer gets before it stops, in a shorter batch."""
        start, end = int(batch.start[0]), int(batch.end[0])
        at, stored = window.offset + start, window.data[start + HEAD_SIZE : end]
        rows, where = lost(self.listing, batch.header)
        base, last, attributes, declared = batch.header[
            ["base_offset", "last_offset", "attributes", "records_count"]
        ][0].item()
        rows = min(rows, max(last - base + 1, 0))
        codec, rest, count = attributes & COMPRESSION, b"", 0
        lost_rows: int | None = 0
        if not attributes & CONTROL:
            lost_rows = fault.rows_lost
            consumed = consume(codec, stored, declared, self._rows.options["max.decompressed.bytes"])
            rest, count = consumed.data, consumed.records
        after = self.file.hints.get("next_base")
        if after is not None and base + count <= after <= last:
            # The part that is kept does not take the offsets of the next segment.
            last = after - 1
        # It takes the same offsets as before, as a compacted batch does. Compressed records are stored uncompressed.
        head = stored_heads(window.data, batch.start)
        head["last_offset_delta"] = last - base
        head["attributes"] = head["attributes"][0] & ~COMPRESSION
        head["records_count"] = count
        head["batch_length"] = HEAD_SIZE - LENGTH_END + len(rest)
        patch = reseal(head, rest)
        why = _why(fault)
        if count and self._is_sound(*one_batch(patch + rest)):
            patch, rest = (patch + rest, b"") if codec else (patch, rest)
            self.result.good.append(
                Run.patched(self.copy, self.file, at, at + HEAD_SIZE, patch, rest, partial=True)
            )
            why += f"; {plural.count(count, 'record')} before it kept"
            lost_rows = None if lost_rows is None else max(0, rows - count)
        self.result.cut.append(
            self._removed(at, end - start, why, lost_rows, {} if lost_rows == 0 else where)
        )
        self._error(self.result.cut[-1])

    # Damage

    def _damage(self, ended: Stretch, hole: Hole) -> None:
        damage, window, start = ended.damage, ended.window, ended.frames.stop
        assert damage is not None
        end = start + damage.length
        if damage.kind is Kind.ORDER and end <= len(window.data):
            # Its checksum is right: the batch is complete, only its offset does not fit its place.
            starts = np.array([start], np.int64)
            head = heads_at(window.data, starts)
            batch = Frames(starts, np.array([end], np.int64), head, end)
            open_wrappers(window, batch, self.context)
            if head["last_offset"][0] >= head["base_offset"][0] and self._is_sound(window, batch):
                self._error(self._removed(damage.offset, damage.length, damage))
                self.result.misplaced.append(Run.of(self.copy, self.file, window, batch))
                stop, resume = damage.offset + damage.length, hole.fault.offset + hole.fault.length
                if stop < resume:
                    rest = replace(hole.fault, offset=stop, length=resume - stop, rows_lost=None)
                    self._cut(rest, hole)
                return
        self._cut(hole.fault, hole)

    def _cut(self, fault: Fault, hole: Hole) -> None:
        """Cut a damaged stretch, which is the hole or its end."""
        if not fault.length or self._restored(fault):
            return
        rows: int | None = fault.rows_lost
        where: Mapping[str, Any] = {}
        if hole.tail and (fault.severity is not Severity.ERROR or fault.kind is Kind.PADDING):
            rows = 0
        else:
            known, where = hole.loss(log.CODEC, self.context)
            rows = known if rows is None else rows
        where = {**partition_of(self.listing), **where} if where else {}
        self.result.cut.append(self._removed(fault.offset, fault.length, fault, rows, where))
        if fault.severity is Severity.ERROR:
            self._error(self.result.cut[-1])

    def _restored(self, fault: Fault) -> bool:
        """Restore the length and the magic of a batch whose checksum proves all the rest of it. Return whether that is possible."""
        if not HEAD_SIZE <= fault.length <= _LARGEST_PATCHED:
            return False
        try:
            data = self.listing.read(self.file.name, fault.offset, fault.length)
        except UnreadableError:
            return False
        head = np.frombuffer(data, HEAD, 1).copy()
        first = int(head["base_offset"][0])
        last = first + int(head["last_offset_delta"][0])
        if crc32c_bytes(data[CRC_START:]) != head["crc"][0] or not 0 <= first <= last:
            return False
        head["batch_length"], head["magic"] = fault.length - LENGTH_END, MAGIC
        patch, rest = head.tobytes(), data[HEAD_SIZE:]
        changed = int.from_bytes(patch, "big") ^ int.from_bytes(data[:HEAD_SIZE], "big")
        if changed.bit_count() == 1 and not self.correct:
            return False
        if not self._is_sound(*one_batch(patch + rest)):
            return False
        self._error(self._removed(fault.offset, fault.length, fault))
        run = Run.patched(self.copy, self.file, fault.offset, fault.offset + HEAD_SIZE, patch, rest)
        self.result.misplaced.append(run)
        return True

    def _removed(
        self, at: int, length: int, why: Fault | str, rows: int | None = None, where: Mapping[str, Any] | None = None
    ) -> Removed:  # fmt: skip
        text = why if isinstance(why, str) else _why(why)
        return Removed(self.file.name, at, length, text, self.copy, rows, where or {})

    def _error(self, removed: Removed) -> None:
        """Note a region that a check reports as an error."""
        error = self.result.error
        if error is None or removed.offset < error.offset:
            self.result.error = removed


def _why(fault: Fault) -> str:
    return f"{fault.kind}: {fault.detail}"


def _stored_last(window: Window, frames: Frames, i: int) -> int:
    """Return the last offset that the header of a batch has."""
    start = int(frames.start[i])
    offset = load_i64be(window.data, start)
    old = frames.header["magic"][i] < MAGIC
    return offset if old else offset + load_i32be(window.data, start + _DELTA)


def reseal(head: npt.NDArray[Any], rest: bytes) -> bytes:
    """Return the header of a batch with the checksum that fits it and these records."""
    head["crc"] = crc32c_bytes(rest, crc32c_bytes(head.tobytes()[CRC_START:]))
    return bytes(head.tobytes())
