"""What of a segment is sound: runs of batches that a broker keeps and a consumer gets past, and what lies between them.

A batch is sound where its length, checksum and header are right and its records can be decoded. Whether it is in its place
is another matter (`repair.order`): base_offset is covered by no checksum.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

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
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.runs import Run, lost, offsets, place
from logwright.codec.kernels.intrinsics import load_i32be
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window

_PATCHED = 64 << 20
_GOOD, _HEADER, _ODD, _STUCK = range(4)
"""What becomes of a batch: kept; kept with a corrected header; looked at again with all others in mind; kept in part or not at all."""
_DELTA = RECORD_BATCH.offset("last_offset_delta")


@dataclass
class Examined:
    """A segment: its sound runs in the order of the file, those not in their place (`odd`), and what is neither."""

    copy: int
    file: PlannedFile
    good: list[Run] = field(default_factory=list)
    odd: list[Run] = field(default_factory=list)
    """Batches whose offsets don't fit those around them, or the file's range."""
    cut: list[Removed] = field(default_factory=list)
    first_damage: int | None = None
    """The first byte that is not as it should be."""
    notes: list[str] = field(default_factory=list)
    """What was corrected in headers."""
    newest: int = -1
    """The largest timestamp that a broker itself wrote: of markers, and of batches with LOG_APPEND_TIME; in milliseconds."""
    error: Removed | None = None
    """The first region of which a check says that it is an error; what a running broker leaves at its log's end is none."""

    @property
    def base(self) -> int:
        return int(self.file.hints["base_offset"])

    def damaged(self, at: int) -> None:
        self.first_damage = at if self.first_damage is None else min(at, self.first_damage)

    def wrong(self, cut: Removed) -> None:
        if self.error is None or cut.offset < self.error.offset:
            self.error = cut


def examine(listing: Listing, copy: int, file: PlannedFile, options: Options) -> Examined:
    """Read a segment from end to end."""
    return _Examiner(listing, copy, file, options).run()


def clock(examined: Iterable[Examined]) -> int:
    """Return the time, in milliseconds, against which `producer.id.expiration.ms` is held.

    A broker forgets producers that were idle for so long when it starts. When it did is not known: the newest time that a broker
    wrote into the log stands for it, and without one the time of the clock. So the result does not depend on when it is made, and
    has the producers that the broker had; where they are too many now, it forgets them when it loads the snapshot.
    """
    now = time.time_ns() // 1_000_000
    newest = max((one.newest for one in examined), default=-1)
    return min(now, newest) if newest >= 0 else now


class _Examiner:
    def __init__(self, listing: Listing, copy: int, file: PlannedFile, options: Options) -> None:
        self.listing, self.copy, self.file = listing, copy, file
        self.found = Examined(copy, file)
        given = {"max.decompressed.bytes": options["max.decompressed.bytes"]}
        opts = Options(log.CODEC.options, given)
        hints = {**file.hints, "directory": listing.name}
        # What a file that waits to be swapped in is called later.
        name = segment_name(self.found.base, ".log")
        self.context: LogContext = log.CODEC.context(name, opts, **hints)
        self._rows: LogContext = log.CODEC.context(name, opts, **hints)

    def run(self) -> Examined:
        file = ListedFile(self.listing, self.file.name, self.file.size)
        ended: Stretch | None = None
        for found in Walk(file, log.CODEC, self.context):
            if isinstance(found, Stretch):
                ended = found
                if len(found.frames):
                    self._sort(found.window, found.frames)
            else:
                assert ended is not None
                self._damage(ended, found)
        return self.found

    # Batches

    def _sort(self, window: Window, frames: Frames) -> None:
        by_broker = frames.header["attributes"] & (CONTROL | TIMESTAMP_TYPE) != 0
        times = frames.header["max_timestamp"][by_broker].astype(np.int64)
        self.found.newest = max(self.found.newest, int(times.max(initial=-1)))
        kind = np.zeros(len(frames), np.int8)
        why: dict[int, Fault] = {}
        starts = frames.start + window.offset
        for fault in frames.faults:
            i = int(np.searchsorted(starts, fault.offset))
            head = frames.header[i]
            corrected = int(head["last_offset"]) - int(head["base_offset"]) != _stored_delta(
                window, frames, i
            )
            found = _STUCK if fault.kind is not Kind.ORDER else _HEADER if corrected else _ODD
            kind[i] = max(int(kind[i]), found)
            why.setdefault(i, fault)
        for i, fault in self._undecodable(window, frames):
            kind[i] = _STUCK
            why[i] = fault
        edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]
        for low, high in pairwise(edges):
            if kind[low] == _GOOD:
                self._keep(self.found.good, window, frames, low, high)
            elif kind[low] == _ODD:
                self.found.damaged(int(starts[low]))
                size = int(frames.end[low] - frames.start[low])
                self.found.wrong(Removed(self.file.name, int(starts[low]), size, _why(why[low]), self.copy))
                self._keep(self.found.odd, window, frames, low, high)
            elif kind[low] == _HEADER:
                for i in range(low, high):
                    self._correct(window, frames, i, why[i])
            else:
                for i in range(low, high):
                    self._stuck(window, frames, i, why[i])

    def _undecodable(self, window: Window, frames: Frames) -> Iterator[tuple[int, Fault]]:
        """Batches whose records can't be decoded: a consumer stops there for good."""
        starts = frames.start + window.offset
        for decoded in log.CODEC.decode(window, frames, "rows", ["offset"], self._rows):
            for _, fault in decoded.faults:
                if fault.kind is Kind.PAYLOAD:
                    yield int(np.searchsorted(starts, fault.offset)), fault

    def _is_sound(self, batch: bytes) -> bool:
        window = Window(np.frombuffer(batch, np.uint8), 0, len(batch))
        heads = heads_at(window.data, np.array([0], np.int64))
        one = Frames(np.array([0], np.int64), np.array([len(batch)], np.int64), heads, len(batch))
        return self._is_fine(window, one)

    def _is_fine(self, window: Window, one: Frames) -> bool:
        """Whether its records can be decoded, and end a transaction if they should."""
        return not list(self._undecodable(window, one)) and not bad_markers(window, one)

    def _keep(self, to: list[Run], window: Window, frames: Frames, low: int, high: int) -> None:
        base, last = offsets(frames.header[low:high])
        # Within what is not in its place the order may be any.
        breaks = (np.flatnonzero(base[1:] <= np.maximum.accumulate(last)[:-1]) + 1).tolist()
        for first, end in zip([0, *breaks], [*breaks, high - low], strict=True):
            start = window.offset + int(frames.start[low + first])
            stop = window.offset + int(frames.end[low + end - 1])
            before = to[-1] if to else None
            if before is not None and not before.patch and before.stop == start and before.last < base[first]:
                to[-1] = replace(before, stop=stop, last=int(last[end - 1]))
                continue
            to.append(
                Run(
                    self.copy,
                    self.file.name,
                    self.found.base,
                    start,
                    stop,
                    int(base[first]),
                    int(last[end - 1]),
                ),
            )

    def _correct(self, window: Window, frames: Frames, i: int, fault: Fault) -> None:
        """Keep a batch with the last_offset_delta that its records and the other batches bear out."""
        start, end = int(frames.start[i]), int(frames.end[i])
        at = window.offset + start
        head = stored_heads(window.data, frames.start[i : i + 1])
        first, last = (int(one[0]) for one in offsets(frames.header[i : i + 1]))
        head["last_offset_delta"] = last - first
        patch = reseal(head, window.data[start + HEAD_SIZE : end].tobytes())
        self.found.damaged(at)
        self.found.wrong(Removed(self.file.name, at, end - start, _why(fault), self.copy))
        self.found.good.append(
            Run(self.copy, self.file.name, self.found.base, at + HEAD_SIZE, at + end - start, first, last, patch, at)
        )  # fmt: skip
        self.found.notes.append(
            f"{self.file.name}: last_offset_delta of the batch at byte {at} is set from {_stored_delta(window, frames, i)} to"
            f" {last - first}, as its records and the batches around it say, and its checksum is made to fit."
        )

    # Batches that stop a consumer

    def _stuck(self, window: Window, frames: Frames, i: int, fault: Fault) -> None:
        """A batch that is whole, and not what it should be. The records that a consumer gets before it stops are kept."""
        start, end = int(frames.start[i]), int(frames.end[i])
        at = window.offset + start
        self.found.damaged(at)
        head = frames.header[i : i + 1]
        rows, what = lost(self.listing, head)
        stored = window.data[start + HEAD_SIZE : end]
        text = _why(fault)
        control = bool(int(head["attributes"][0]) & CONTROL)
        rows = min(rows, max(int(what["last_offset"] - what["first_offset"]) + 1, 0))
        lost_rows = 0 if control else fault.rows_lost
        limit = self._rows.options["max.decompressed.bytes"]
        codec = int(head["attributes"][0]) & COMPRESSION
        rest, count = b"", 0
        if not control:
            got = consume(codec, stored, int(head["records_count"][0]), limit)
            rest, count = got.data, got.records
        base, last = (int(one[0]) for one in offsets(head))
        after = self.file.hints.get("next_base")
        if after is not None and base + count <= after <= last:
            # What is kept of it does not take the offsets of the next segment.
            last = after - 1
        new = stored_heads(window.data, frames.start[i : i + 1])
        new["last_offset_delta"] = last - base
        patch, kept = _shorter(new, rest, count)
        if count and self._is_sound(patch + stored[:kept].tobytes()):
            run = Run(
                self.copy, self.file.name, self.found.base, at + HEAD_SIZE, at + HEAD_SIZE + kept,
                base, last, patch, at, partial=True,
            )  # fmt: skip
            self.found.good.append(run)
            text += f"; the {count} record(s) before are kept"
            lost_rows = None if lost_rows is None else max(0, rows - count)
        self.found.cut.append(
            Removed(
                self.file.name, at, end - start, text, self.copy, lost_rows, {} if lost_rows == 0 else what
            )
        )
        self.found.wrong(self.found.cut[-1])

    # Damage

    def _damage(self, ended: Stretch, hole: Hole) -> None:
        damage, window, start = ended.damage, ended.window, ended.frames.stop
        assert damage is not None
        self.found.damaged(damage.offset)
        batch = window.data[start : start + damage.length]
        if damage.kind is Kind.ORDER and HEAD_SIZE <= damage.length == len(batch):
            # Its checksum is right: the batch is whole, only its offset is not that of its place.
            head = heads_at(window.data, np.array([start], np.int64))
            end = start + damage.length
            one = Frames(np.array([start], np.int64), np.array([end], np.int64), head, end)
            base, last = (int(one[0]) for one in offsets(head))
            if last >= base and self._is_fine(window, one):
                stop = damage.offset + damage.length
                self.found.wrong(
                    Removed(self.file.name, damage.offset, damage.length, _why(damage), self.copy)
                )
                self.found.odd.append(
                    Run(self.copy, self.file.name, self.found.base, damage.offset, stop, base, last)
                )
                resume = hole.fault.offset + hole.fault.length
                if stop < resume:
                    rest = replace(hole.fault, offset=stop, length=resume - stop, rows_lost=None)
                    self._cut(rest, hole)
                return
        self._cut(hole.fault, hole)

    def _cut(self, fault: Fault, hole: Hole) -> None:
        """Cut a damaged stretch, which is the hole or its end."""
        if not fault.length or self._mended(fault):
            return
        rows: int | None = fault.rows_lost
        what: Mapping[str, Any] = {}
        if hole.tail and (fault.severity is not Severity.ERROR or fault.kind is Kind.PADDING):
            rows = 0
        else:
            known, what = log.CODEC.loss_between(hole.before, hole.after, self.context)
            rows = known if rows is None else rows
        what = {**place(self.listing), **what} if what else {}
        self.found.cut.append(
            Removed(self.file.name, fault.offset, fault.length, _why(fault), self.copy, rows, what)
        )
        if fault.severity is Severity.ERROR:
            self.found.wrong(self.found.cut[-1])

    def _mended(self, fault: Fault) -> bool:
        """Where only the fields of a batch are wrong that no checksum covers, the checksum proves the rest of it."""
        if not HEAD_SIZE <= fault.length <= _PATCHED:
            return False
        try:
            data = self.listing.read(self.file.name, fault.offset, fault.length)
        except UnreadableError:
            return False
        head = np.frombuffer(data, HEAD, 1).copy()
        first = int(head["base_offset"][0])
        last = first + int(head["last_offset_delta"][0])
        if crc32c(data[CRC_START:]) != head["crc"][0] or not 0 <= first <= last:
            return False
        head["batch_length"], head["magic"] = fault.length - LENGTH_END, MAGIC
        patch = head.tobytes()
        if not self._is_sound(patch + data[HEAD_SIZE:]):
            return False
        self.found.wrong(Removed(self.file.name, fault.offset, fault.length, _why(fault), self.copy))
        start, stop = fault.offset + HEAD_SIZE, fault.offset + fault.length
        self.found.odd.append(
            Run(
                self.copy, self.file.name, self.found.base, start, stop, first, last, patch, fault.offset
            )
        )  # fmt: skip
        return True


def _why(fault: Fault) -> str:
    return f"{fault.kind}: {fault.detail}"


def _stored_delta(window: Window, frames: Frames, i: int) -> int:
    return load_i32be(window.data, int(frames.start[i]) + _DELTA)


def _shorter(head: npt.NDArray[Any], rest: bytes, count: int) -> tuple[bytes, int]:
    """The batch with only its first records: bytes that come first, and how many of its own follow its header.

    It takes the same offsets as before, as a batch does that was compacted. Compressed ones are stored plain.
    """
    new = head.copy()
    codec = int(new["attributes"][0]) & COMPRESSION
    new["attributes"] = new["attributes"][0] & ~COMPRESSION
    new["records_count"] = count
    new["batch_length"] = HEAD_SIZE - LENGTH_END + len(rest)
    sealed = reseal(new, rest)
    return (sealed + rest, 0) if codec else (sealed, len(rest))


def reseal(head: npt.NDArray[Any], rest: bytes) -> bytes:
    """The header of a batch with the checksum that it has with these records."""
    new = head.copy()
    new["crc"] = crc32c(rest, crc32c(new.tobytes()[CRC_START:]))
    return bytes(new.tobytes())
