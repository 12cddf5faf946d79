"""Check a partition: its derived files against the logs, and its segments against each other.

A fault that makes a broker serve wrong data or lose data is an error, and one that it repairs by itself a warning. After an unclean
stop a broker rebuilds the derived files of the segments from the recovery point on. It trusts all others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Bytes
from logwright.codec.capability import CheckSettings
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity
from logwright.codec.frames.prefixes import prefixes_of
from logwright.codec.kafka.check.epochs import EpochCheck
from logwright.codec.kafka.check.indexes import Batches, IndexCheck, TimeIndexCheck
from logwright.codec.kafka.check.producers import ProducerCheck, TxnIndexCheck
from logwright.codec.kafka.formats.log.heads import SCANNER
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD_SIZE, LENGTH_END
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    parse_directory,
    parse_segment,
    segment_name,
)
from logwright.codec.kafka.store.evidence import (
    BEGAN,
    GAP,
    Evidence,
    Witness,
    ends_early,
    gone,
    known_end,
    readable_checkpoint,
    stored_epochs,
)
from logwright.codec.kafka.store.partition import log_start
from logwright.codec.kafka.store.raft_snapshots import read_snapshots, snapshot_faults
from logwright.codec.kafka.store.uncompacted import never_compacted
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.window import Frames, Window

LAYOUT = "kafka.partition"
_READ = 64 << 20
"""Larger damaged stretches are not searched for misplaced batches."""
_HOLES = 1000
"""The number of damaged stretches of a segment that are searched."""


class PartitionChecker:
    """The check of a partition. See `codec.capability.Check`."""

    def __init__(
        self, listing: Listing, plan: Plan, clean: bool | None, live: bool | None, start: int | None = None
    ) -> None:
        """`start` is the log start offset, if a checkpoint or an option gives it."""
        self._listing, self._live, self._start = listing, bool(live), start
        self._clean = plan.facts.get("clean_shutdown") if clean is None else clean
        self._segments = [file for file in plan.files if file.role is Role.PRIMARY]
        self._derived = {file.name: file for file in plan.files if file.role is Role.DERIVED}
        bases = [file.hints["base_offset"] for file in self._segments]
        self._evidence = Evidence.of(
            listing, {file.name: file.size for file in plan.files}, bases, start, never_compacted
        )
        recovery_points = readable_checkpoint(listing.parent(), RECOVERY_POINT_FILE) or {}
        self._recovery_point = recovery_points.get(parse_directory(listing.name), 0)
        """The offset up to which the broker trusts the log after an unclean stop."""
        snapshots = {
            parsed.base_offset: data
            for name in self._derived
            if (parsed := parse_segment(name)) is not None
            and parsed.suffix == ".snapshot"
            and (data := _content(listing, name)) is not None
        }
        self._taken = sorted(snapshots)
        self._producers = ProducerCheck(bases[0] if bases else None, snapshots)
        self._epochs = EpochCheck(stored_epochs(listing))
        sizes = {file.name: file.size for file in plan.files}
        self._sizes = sizes if listing.name == METADATA_PARTITION else {}
        self._snapshots = read_snapshots(listing, self._sizes)
        """The snapshots of the metadata, if this is its log."""
        self._at: _Segment | None = None
        self._end: int | None = None
        """The offset after the last batch; None before the first segment."""
        self._gaps: list[tuple[str, int, int]] = []
        self._between: set[int] = set()
        """The first offsets of gaps between two segments."""
        self._faults: list[tuple[str, Fault]] = []
        self._compacted = False
        """Whether records are missing within a batch, as after compaction."""
        self._torn = False
        """Whether the segment before ended in damage."""

    def add(self, window: Window, frames: Frames) -> None:
        segment = self._at
        assert segment is not None
        file = segment.file
        start, end = frames.start + window.offset, frames.end + window.offset
        head = frames.header
        base = head["base_offset"].astype(np.int64)
        last = head["last_offset"].astype(np.int64)
        for snapshot in self._snapshots:
            snapshot.compare(head)
        batches = Batches(base, last, head["max_timestamp"].astype(np.int64), start, end, head["magic"] == 0)
        before_end = np.concatenate(([segment.end], end[:-1]))
        before_last = np.maximum.accumulate(np.concatenate(([segment.last], last[:-1])))
        # No batch has these offsets, although no damage is between the batches.
        for i in np.flatnonzero((start == before_end) & (base > before_last + 1)).tolist():
            self._gaps.append((file.name, int(before_last[i]) + 1, int(base[i])))
        self._producers.compacted |= bool(self._gaps)
        for check in (segment.index, segment.times):
            if check is not None:
                check.add(batches)
        records = head["attributes"].astype(np.int64) & CONTROL == 0
        self._compacted |= bool((head["records_count"] <= last - base)[records].any())
        self._epochs.add(file.name, head, start, end)
        holes = np.flatnonzero(before_end != start).tolist()
        cuts = sorted({0, *holes, len(frames)})
        for low, high in itertools.pairwise(cuts):
            if low in holes:
                self._producers.lose()
                self._stray(segment, window, int(before_end[low]), int(start[low]))
            marks = markers(window, frames.pick(slice(low, high)))
            self._producers.add(file.name, head[low:high], start[low:high], marks, segment.transactions)
        segment.complete = segment.complete and not holes
        segment.first = int(base[0]) if segment.first is None else segment.first
        segment.end, segment.last = int(end[-1]), max(int(last.max()), segment.last)
        self._end = max(segment.last + 1, self._end or 0)

    def _stray(self, segment: _Segment, window: Window | None, start: int, stop: int) -> bool:
        """Note the batches that fill a hole: only their place is wrong. Return whether there are any."""
        segment.holes += 1
        if segment.holes > _HOLES or stop - start > _READ:
            return False
        if window is not None and start >= window.offset:
            data = window.data[start - window.offset : stop - window.offset]
        else:
            stored = _content(self._listing, segment.file.name, start, stop - start)
            data = np.frombuffer(stored or b"", np.uint8)
        batches = _complete_batches(data)
        segment.strays += batches
        return bool(batches)

    def begin(self, file: PlannedFile) -> None:
        """Begin the next segment, which the one before may overlap."""
        self._close()
        base, after = file.hints["base_offset"], file.hints["next_base"]
        trusted = self._clean is not False or (after is not None and after <= self._recovery_point)
        parts = {suffix: self._read(base, suffix) for suffix in (".index", ".timeindex", ".txnindex")}
        self._at = _Segment(
            file,
            None if parts[".index"] is None else IndexCheck(parts[".index"], base, trusted),
            None if parts[".timeindex"] is None else TimeIndexCheck(parts[".timeindex"], base, trusted),
            TxnIndexCheck(parts[".txnindex"], base, trusted),
        )
        if self._end is None:
            self._end = base
        elif base > self._end:
            if not self._torn and not self._missing(self._end, base):
                self._gaps.append((file.name, self._end, base))
                self._between.add(self._end)
            self._end = base
        self._producers.begin(base)

    def _missing(self, first: int, after: int) -> bool:
        """Return whether a segment is missing: its other files are there. Otherwise compaction may have left the gap."""
        fault = self._evidence.between_gone(first, after)
        if fault is None:
            return False
        self._faults.append(fault)
        self._producers.lose()
        return True

    def _read(self, base: int, suffix: str) -> bytes | None:
        name = segment_name(base, suffix)
        return _content(self._listing, name) if name in self._derived else None

    def _close(self) -> None:
        segment, self._at = self._at, None
        if segment is None:
            return
        file, active = segment.file, segment.file.name == self._segments[-1].name
        base = file.hints["base_offset"]
        torn = segment.end < file.size and not self._zeros(segment)
        if torn:
            segment.complete = False
            self._producers.lose()
        last = segment.last if segment.last >= base else None
        overwritten = self._evidence.overwritten(base, segment.first or base, segment.last + 1)
        if overwritten is not None:
            self._faults.append(overwritten)
            self._gaps = [gap for gap in self._gaps if gap[0] != file.name or gap[2] != segment.first]
        if segment.index is not None:
            end = file.size if torn else segment.end
            segment.index.finish(end, last, live=self._live, active=active)
        if segment.times is not None:
            closed = not active or self._clean is True
            segment.times.finish(closed=closed, complete=segment.complete, live=self._live)
        if not torn:
            self._producers.reach(segment.last + 1)
        known = self._producers.known
        torn_batch = torn and not self._stray(segment, None, segment.end, file.size)
        short = not (active and self._live) and self._cut_short(segment, active, torn_batch)
        self._torn = short or torn
        if self._torn:
            self._producers.lose()
        for check, suffix in ((segment.index, ".index"), (segment.times, ".timeindex")):
            if check is not None:
                if self._torn:
                    check.explained()
                self._note(segment, suffix, check.faults())
        if known:
            self._note(segment, ".txnindex", segment.transactions.faults(segment.last + 1, self._live))

    def _note(self, segment: _Segment, suffix: str, faults: Iterator[Fault]) -> None:
        name = segment_name(segment.file.hints["base_offset"], suffix)
        self._faults += [(name, fault) for fault in faults]

    def _zeros(self, segment: _Segment) -> bool:
        """Return whether the file continues with preallocated zeros."""
        return not any(_content(self._listing, segment.file.name, segment.end, HEAD_SIZE) or b"\1")

    def _partial(self, segment: _Segment) -> bool:
        """Return whether the file ends within a batch."""
        head = _content(self._listing, segment.file.name, segment.end, LENGTH_END) or b""
        left = segment.file.size - segment.end
        return (
            left < LENGTH_END + max(0, int.from_bytes(head[-4:], "big", signed=True))
            or len(head) < LENGTH_END
        )

    def _cut_short(self, segment: _Segment, active: bool, torn: bool) -> bool:
        """Return whether other files prove that the segment was longer. It ends with a complete batch, or is `torn` within one."""
        # If the name is wrong, what the indexes prove counts from it.
        misnamed = segment.first is not None and segment.last < segment.file.hints["base_offset"]
        if misnamed and not active:
            return False
        end, known = segment.last + 1, self._known_end(segment, active, indexed=not misnamed)
        for base, last in sorted(segment.strays):
            end = last + 1 if base == end else end  # it is there, but misplaced
        self._end = max(self._end or 0, end)
        if active and (trailing := [base for base in self._evidence.segments.orphans if base >= end]):
            # The fault of the torn batch reports what is lost with it.
            self._faults.append(self._evidence.last_gone(min(trailing) if torn else end, trailing, known))
            return True
        # A torn end that no crash leaves is reported as damage already.
        if known.end <= end or (torn and not (active and self._clean is not True and self._partial(segment))):
            return False
        lost: dict[str, Any] = {}
        if not torn or (segment.file.hints.get("known_end") or 0) <= end:
            # Otherwise the fault of the torn batch reports the loss.
            lost = {
                **self._evidence.partition,
                "first_offset": max(end, self._start or 0),
                "last_offset": known.end - 1,
            }
        fault = ends_early(end, known, active, segment.file.size, lost)
        self._faults.append((segment.file.name, fault))
        return fault.severity is Severity.ERROR

    def _known_end(self, segment: _Segment, active: bool, *, indexed: bool) -> Witness:
        """Return the highest offset that another file proves for the end of the segment: its indexes too, if `indexed`."""
        base, after = segment.file.hints["base_offset"], segment.file.hints["next_base"]
        known: list[Witness | None] = [Witness(0, "")]
        if indexed:
            known += [self._evidence.reached(base, after), segment.transactions.reached()]
        if active:
            known += [
                Witness(offset, segment_name(offset, ".snapshot")) for offset in self._producers.waiting[-1:]
            ]
            known += [*self._evidence.orphans(base), *self._evidence.checkpointed]
        end = known_end(item for item in known if item is not None and (after is None or item.end <= after))
        assert end is not None
        return end

    def finish(self) -> Iterator[tuple[str, Fault]]:
        self._close()
        end = self._end or 0
        self._gap_faults()
        if not self._live:
            self._first_faults()
        yield from itertools.starmap(self._evidence.naming_deleted, self._faults)
        yield from snapshot_faults(LAYOUT, self._snapshots, self._sizes)
        self._producers.compacted |= bool(self._gaps)
        yield from self._producers.finish(end, self._live)
        first = self._segments[0].hints["base_offset"] if self._segments else None
        known = None if self._torn or self._live else end
        yield from self._epochs.finish(first, known, clean=self._clean is True, live=self._live)

    def _gap_faults(self) -> None:
        """Report the offsets that are in no batch, unless a better reason is known."""
        if not self._gaps:
            return
        compacted = self._compacted or self._evidence.checkpoints.compacted is True
        reasons = [self._begun(first, after) for _, first, after in self._gaps]
        if not self._compacted and None not in reasons:
            # The log is complete but for gaps between segments: only a checkpoint can prove compaction.
            for (_, first, after), reason in zip(self._gaps, reasons, strict=True):
                assert reason is not None
                text, proven = f"offsets {first} to {after - 1} are in no batch, and {reason[0]}", reason[1]
                if compacted or not proven:
                    text += ": unless the topic is compacted, a segment began there and is missing"
                    self._faults.append(gone(first, text, Severity.WARNING, GAP, {}))
                    continue
                lost = {**self._evidence.partition, "first_offset": first, "last_offset": after - 1}
                self._faults.append(gone(first, f"{text}: {BEGAN}", Severity.ERROR, GAP, lost))
            return
        name, first, after = self._gaps[0]
        missing = sum(high - low for _, low, high in self._gaps)
        text = f"offsets {first} to {after - 1} are in no batch ({name})"
        if len(self._gaps) > 1:
            text += f", {plural.count(missing, 'offset')} in {plural.count(len(self._gaps), 'gap')} in all"
        severity = Severity.INFO
        if self._evidence.checkpoints.compacted is False and not compacted:
            # A follower copies the gaps of a leader that compacted its log.
            text += ": lost, unless another replica compacted the log"
            severity = Severity.WARNING
        else:
            text += ": compacted away, or lost"
        self._faults.append(("", Fault(LAYOUT, 0, 0, Kind.ORDER, text, severity)))

    def _begun(self, first: int, after: int) -> tuple[str, bool] | None:
        """Return why a segment may have begun in a gap, and whether that is proof; None without a reason."""
        if first not in self._between:
            return None
        last = self._evidence.written(after, first)
        taken = next((offset for offset in self._taken if first <= offset < after), None)
        # A broker takes a snapshot where a segment begins, but also when it stops. Compaction may remove what it appends after that.
        proven = self._evidence.uncompacted(first, last)
        if taken is not None:
            return f"a producer snapshot was taken at {taken}", proven
        if last is not None:
            return f"{segment_name(after, '.snapshot')} shows that a producer wrote up to {last}", proven
        return None

    def _first_faults(self) -> None:
        """Report logs that are missing before the first one, or all of them, if other files prove where the log started."""
        epochs = self._epochs.entries
        first_epoch = epochs[0][1] if epochs else None
        if not self._segments:
            self._faults += [fault for fault in [self._evidence.all_gone(first_epoch)] if fault is not None]
            return
        base, fault = self._segments[0].hints["base_offset"], self._evidence.first_gone(first_epoch)
        if fault is not None:
            self._faults.append(fault)
        if fault is not None or self._start is None or self._start >= base:
            return
        text = (
            f"the log starts at {self._start} by ../{LOG_START_FILE}, but the first segment begins at {base}:"
            " retention removed the segments before it, they are in remote storage, or they are missing"
        )
        # A broker writes the checkpoint once a minute and when it stops.
        severity = Severity.WARNING if self._clean is True else Severity.INFO
        lost = {**self._evidence.partition, "first_offset": self._start, "last_offset": base - 1}
        system = "the broker begins at the first segment that is there"
        self._faults.append(gone(base, text, severity, system, lost if severity is Severity.WARNING else {}))


class _Segment:
    """The segment that is being checked."""

    def __init__(
        self,
        file: PlannedFile,
        index: IndexCheck | None,
        times: TimeIndexCheck | None,
        transactions: TxnIndexCheck,
    ) -> None:
        self.file, self.index, self.times, self.transactions = file, index, times, transactions
        self.end = 0
        """The byte after the last good batch."""
        self.first: int | None = None
        self.last: int = file.hints["base_offset"] - 1
        self.complete = True
        self.holes = 0
        """The number of damaged stretches."""
        self.strays: list[tuple[int, int]] = []
        """First and last offset of complete batches that the scan took for damage."""


def _complete_batches(data: Bytes) -> list[tuple[int, int]]:
    """Return the offsets of the batches that these bytes are: only their place is wrong. Empty for other bytes."""
    good = SCANNER.frames(Window(data, 0, len(data)), 0, check=True, prefixes=prefixes_of(data, None))
    heads = good.head if good.stop == len(data) else good.head[:0]
    return list(zip(heads["base_offset"].tolist(), heads["last_offset"].tolist(), strict=True))


def _content(listing: Listing, name: str, offset: int = 0, length: int | None = None) -> bytes | None:
    """Return bytes of a file; None if it cannot be read, which the check of the file itself reports."""
    try:
        return listing.read(name, offset, length)
    except LogwrightError:
        return None


def check(listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> PartitionChecker:
    """See `codec.capability.Check`."""
    return PartitionChecker(listing, plan, settings.clean, settings.live, log_start(listing, options)[0])
