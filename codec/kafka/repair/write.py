"""Write runs of batches as the files of a partition: segments, and the files that a recovering broker derives from each.

The derived files of one segment are in memory at a time. A batch that a producer wrote outside of its open transaction is dropped on
the way: a broker does not start on it, and only the order of all batches shows it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Bools
from logwright.codec.engine.repair import OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    RECORD_BATCH,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import ABORT
from logwright.codec.kafka.names import parse_segment, segment_name
from logwright.codec.kafka.repair.ends import TransactionEnds
from logwright.codec.kafka.repair.runs import Heads, Run, append_extents, lost, removed_run
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, PlannedFile, Role

_INT_MAX = (1 << 31) - 1


@dataclass
class Segment:
    """A segment of the result: its base offset, its runs, and the file whose owner and mode it takes."""

    base: int
    runs: list[Run] = field(default_factory=list)
    like: str | None = None


@dataclass
class _Output:
    """The log that is being written."""

    base: int
    like: str | None
    extents: list[Extent] = field(default_factory=list)
    size: int = 0


def name_segments(runs: Iterable[tuple[Run, int]], bases: Sequence[int], empty: int) -> list[Segment]:
    """Return the segments of runs, each of which comes with the base offset of its segment.

    `bases` are those of the first copy. They are kept, even for empty segments. A segment whose base does not fit its batches gets the
    offset of the first one. `empty` is the base of the only segment of an empty log.
    """
    out: list[Segment] = []
    waiting = sorted(bases, reverse=True)
    current = -1
    for run, key in runs:
        while waiting and waiting[-1] <= key:
            current = waiting.pop()
            out.append(Segment(current, like=segment_name(current, ".log")))
        if not out or key > current:
            current = key
            out.append(Segment(current))
        out[-1].runs.append(run)
    out += [Segment(base, like=segment_name(base, ".log")) for base in reversed(waiting)]
    end = -1
    named: list[Segment] = []
    for segment in out:
        if not segment.runs:
            if segment.base <= end:
                continue
        else:
            first = segment.runs[0].first
            if not end < segment.base <= first <= segment.base + _INT_MAX:
                segment.base = first
            end = segment.runs[-1].last
        while named and not named[-1].runs and named[-1].base >= segment.base:
            named.pop()
        named.append(segment)
    return named or [Segment(empty)]


class PartitionPlan(RepairPlan):
    """Write runs of batches as segments, each followed by the files that a recovering broker derives from it."""

    def __init__(
        self,
        copies: Sequence[Listing],
        segments: Iterable[tuple[int, Iterable[Run], str | None]],
        deriver: PartitionDeriver,
        *,
        first: Sequence[OutputFile] = (),
        abort: bool = False,
        stop_at_damage: bool = False,
        only: Container[str] | None = None,
        ends: TransactionEnds | None = None,
    ) -> None:
        """`segments`: base offset, runs, and the file whose owner and mode the segment takes. `first` are files that are not made of
        batches. `abort`: end open transactions. `only`: the types of derived files to make, without changing the logs; None: write
        everything. `ends`: what is known about lost markers."""
        super().__init__(copies[0])
        self.copies, self.segments, self.deriver = copies, segments, deriver
        self.first, self.abort, self.stop_at_damage, self.only = first, abort, stop_at_damage, only
        self._ends = ends or TransactionEnds()
        self._out: _Output | None = None
        self._time = 0
        self._stopped = False

    # Files

    def files(self) -> Iterator[OutputFile | Piece]:
        yield from super().files()
        self._note_removed()

    def outputs(self) -> Iterator[OutputFile]:
        yield from self.first
        for base, runs, like in self.segments:
            if self._stopped:
                self.cut += [removed_run(run, "after the first damage", None, {}) for run in runs]
                continue
            yield from self._restore_markers(base)
            yield from self._begin(base, like)
            for run in runs:
                yield from self._add(run)
        yield from self._restore_markers()
        opened = self.deriver.producers.open_transactions
        if opened and self.abort:
            for run in self._aborts(opened):
                yield from self._add(run)
        elif opened:
            self.notes.append(
                f"open transactions: {len(opened)}, from offset {min(opened.values())} on: read_committed consumers stop there until the"
                " transactions are ended (kafka-transactions abort, or repair with open.transactions=abort)."
            )
        self.notes += self._ends.notes()
        self.deriver.finish()
        yield from self._close()

    def _begin(self, base: int, like: str | None = None) -> Iterator[OutputFile]:
        """Begin the next segment. The files of the one before are complete."""
        self.deriver.begin_segment(base)
        yield from self._close()
        self._out = _Output(base, like)

    def _close(self) -> Iterator[OutputFile]:
        out, files = self._out, self.deriver.files
        if out is None:
            return
        name = segment_name(out.base, ".log")
        if self.only is not None:
            yield self.unchanged(name)
        else:
            yield OutputFile(name, out.extents, out.like if out.like in self.sizes else None)
        for name in list(files):
            data = files.pop(name)
            if self.only is None or kind_of(name) in self.only:
                yield self.rewritten(name, data)

    # Batches

    def _add(self, run: Run) -> Iterator[OutputFile]:
        """Append a run, with the markers that are lost before its batches."""
        gaps = self._ends.gaps(self.deriver.next_offset, run)
        for i, part in enumerate(run.parts(*[gap for gap in gaps if gap])):
            if i or gaps[:1] == [0]:
                yield from self._restore_markers(part.first)
            yield from self._add_batches(part)

    def _restore_markers(self, before: int | None = None) -> Iterator[OutputFile]:
        """Write the ABORT markers again that are lost before an offset (None: at the end of the log), as far as they are proved."""
        due, state = self.deriver.next_offset, self.deriver.producers
        for txn in self._ends.aborted(due, before, state.open_transactions):
            yield from self._write(self._abort(txn.last_offset, txn.producer_id))
        self._ends.lose(due, before, state.open_transactions)

    def _add_batches(self, run: Run) -> Iterator[OutputFile]:
        forbidden = self._forbidden(run)
        keep = ~forbidden
        if self.only is not None and forbidden.any():
            self._refuse(run, keep, forbidden)
            raise damage(self.cut[-1])
        if self._stopped:
            keep[:] = forbidden[:] = False
        elif self.stop_at_damage and forbidden.any():
            first = int(np.argmax(forbidden))
            keep[first:] = forbidden[first + 1 :] = False
            self._stopped = True
        if not keep.all():
            self._refuse(run, keep, forbidden)
        cuts = (np.flatnonzero(np.diff(keep)) + 1).tolist()
        for part, kept in zip(run.parts(*cuts), keep[[0, *cuts]], strict=True):
            if kept:
                yield from self._write(part)

    def _write(self, run: Run) -> Iterator[OutputFile]:
        """Append batches to the segment. It is rolled where it is full."""
        while True:
            out = self._out
            assert out is not None
            edges = out.size + run.edges
            over = (edges[1:] > _INT_MAX) | (run.heads["last_offset"] - out.base > _INT_MAX)
            if out.size == 0 and run.heads["last_offset"][0] - out.base <= _INT_MAX:
                over[0] = False
            fit = int(np.argmax(over)) if over.any() else len(over)
            if not fit:
                yield from self._begin(run.first)
                continue
            part, *rest = run.parts(fit)
            self.deriver.add_batches(part.heads, edges[:fit], part.markers)
            self._ends.add(part)
            append_extents(out.extents, part.extents())
            out.size = int(edges[fit])
            self._count(part.heads)
            if not rest:
                return
            run = rest[0]

    def _count(self, heads: Heads) -> None:
        data = heads["attributes"] & CONTROL == 0
        records = np.maximum(heads["records_count"].astype(np.int64), 0)
        self.rows += int(records[data].sum())
        first, last = int(heads["base_offset"][0]), int(heads["last_offset"][-1])
        self.ids = {**self.ids, "first_offset": self.ids.get("first_offset", first), "last_offset": last}
        if not data.all():  # `verify` counts them among the records
            self.ids["control_records"] = self.ids.get("control_records", 0) + int(records[~data].sum())
        self._time = max(self._time, int(heads["max_timestamp"].max()))

    def _refuse(self, run: Run, keep: Bools, forbidden: Bools) -> None:
        """Cut the batches that are not kept: forbidden ones, and those after the first damage."""
        edges = run.edges
        for i in np.flatnonzero(~keep).tolist():
            rows, where = lost(self.copies[run.copy], run.heads[i : i + 1])
            why = "after the first damage"
            if forbidden[i]:
                why = (
                    f"bad order: producer {int(run.heads['producer_id'][i])} writes outside of the transaction that it has open;"
                    " the broker does not start on such a batch"
                )
            at, size = run.begin + int(edges[i]), int(edges[i + 1] - edges[i])
            self.cut.append(Removed(run.file, at, size, why, run.copy, rows, where))

    # Transactions

    def _forbidden(self, run: Run) -> Bools:
        """Return which batches are outside an open transaction of their producer."""
        header = run.heads
        out = np.zeros(len(header), np.bool_)
        flags = header["attributes"].astype(np.int64)
        owned = header["producer_id"] >= 0
        data = owned & (flags & CONTROL == 0)
        plain = data & (flags & TRANSACTIONAL == 0)
        state = self.deriver.producers
        opened = set(state.open_transactions)
        if not plain.any() or not (opened or (data & ~plain).any()):
            return out
        begun = set(header["producer_id"][data & ~plain].tolist())
        transactional = np.isin(header["producer_id"], list(opened | begun))
        if not (plain & transactional).any():
            return out
        ending = set(run.markers["frame"].tolist())
        for i in np.flatnonzero(transactional).tolist():
            producer = int(header["producer_id"][i])
            if flags[i] & CONTROL:
                if i in ending:
                    opened.discard(producer)
            elif flags[i] & TRANSACTIONAL:
                opened.add(producer)
            elif producer in opened:
                out[i] = True
        return out

    def _aborts(self, opened: dict[int, int]) -> Iterator[Run]:
        """Return markers that end the open transactions, in the order of their first offsets."""
        offset = self.deriver.next_offset
        for producer, first in sorted(opened.items(), key=lambda item: item[1]):
            self.notes.append(
                f"The transaction of producer {producer}, open since offset {first}, is aborted by a marker at offset {offset}:"
                " read_committed consumers get none of its records, even if it was committed and the marker was lost."
            )
            yield self._abort(offset, producer)
            offset += 1

    def _abort(self, offset: int, producer: int) -> Run:
        """Return a marker that aborts the open transaction of a producer."""
        entry, epochs = self.deriver.producers.producers[producer], self.deriver.epochs.entries
        coordinator, leader = max(0, entry.coordinator_epoch), epochs[-1][0] if epochs else -1
        data = abort_marker(offset, producer, entry.producer_epoch, coordinator, leader, self._time)
        return Run.patched(0, PlannedFile("", 0, Role.PRIMARY), 0, 0, data)

    def _note_removed(self) -> None:
        """Note the last snapshot that proves lost records. Such snapshots are removed, as by a broker."""
        names = {
            parsed.base_offset: name
            for name in self.removes
            if (parsed := parse_segment(name)) is not None and parsed[1:] == (".snapshot", "")
        }
        last = max(names, default=0)
        if last > self.deriver.next_offset:
            now = f"ends at offset {self.ids['last_offset']}" if self.ids else "is empty"
            self.notes.append(
                f"{names[last]} proves that the log reached offset {last - 1}, but it {now} now. Keep the original as evidence of the loss."
            )


def abort_marker(
    offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int,
    timestamp: int,
) -> bytes:
    """Return the batch with which a coordinator aborts a producer's transaction (`EndTransactionMarker`)."""
    record = {
        "key": CONTROL_RECORD_KEY.pack({"type": ABORT}),
        "value": END_TXN_MARKER.pack({"coordinator_epoch": coordinator_epoch}),
    }
    return RECORD_BATCH.pack(
        {
            "base_offset": offset,
            "partition_leader_epoch": leader_epoch,
            "attributes": TRANSACTIONAL | CONTROL,
            "base_timestamp": timestamp,
            "max_timestamp": timestamp,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "records_count": 1,
            "records": [record],
        }
    )


def kind_of(name: str) -> str:
    """Return the type of a derived file, in the words of `rebuild`."""
    parsed = parse_segment(name)
    return name if parsed is None else parsed.suffix[1:]


def damage(cut: Removed) -> DamageError:
    """Return the error of an operation that needs an undamaged log."""
    return DamageError(
        cut.why,
        path=cut.file,
        offset=cut.offset,
        advice="Repair the partition first, with `logwright repair`",
    )
