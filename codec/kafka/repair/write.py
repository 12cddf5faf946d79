"""Runs of batches made into the files of a partition: segments, and beside each what a recovering broker would derive from it.

One segment's derived files are in memory at a time. What a broker would not start on, and only the order of all batches shows, is
left out on the way: a batch that a producer wrote outside of the transaction that it has open.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

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
from logwright.codec.kafka.formats.log.markers import ABORT, markers
from logwright.codec.kafka.names import parse_segment, segment_name
from logwright.codec.kafka.repair.runs import Copies, Numbers, Run, lost, offsets, removed_run
from logwright.codec.store.extents import Extent
from logwright.codec.window import Frames, Window

_INT_MAX = (1 << 31) - 1


@dataclass
class Segment:
    """A segment of the result: the number in its name, what is in it, and the file that it takes owner and mode of."""

    base: int
    runs: list[Run] = field(default_factory=list)
    like: str | None = None


@dataclass
class _Out:
    """The log being written."""

    base: int
    like: str | None
    pieces: list[Extent] = field(default_factory=list)
    size: int = 0

    def keep(self, pieces: Iterable[Extent]) -> None:
        for piece in pieces:
            self.size += len(piece)
            self.pieces.append(piece)


def name_segments(runs: Iterable[tuple[Run, int]], bases: Sequence[int], empty: int) -> list[Segment]:
    """Runs in order, each with the base of the segment that it is to be in, as segments.

    `bases` are those of the first copy, which are kept, empty ones too. A segment whose number does not fit its batches is
    called by the first of these. `empty` is the base of the only segment where there is nothing.
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
    """Writes runs of batches as segments, each followed by what a recovering broker derives from it."""

    def __init__(
        self,
        copies: Copies,
        segments: Iterable[tuple[int, Iterable[Run], str | None]],
        deriver: PartitionDeriver,
        *,
        first: Sequence[OutputFile] = (),
        abort: bool = False,
        stop_at_damage: bool = False,
        only: Container[str] | None = None,
    ) -> None:
        """`segments`: the number in the name of each, its runs, and the file that it takes owner and mode of. `first` are files that
        are not made of batches. `abort`: end open transactions. `only`: the kinds of derived files that are made, while the logs stay
        as they are; None for all."""
        super().__init__(copies.listings[0])
        self.reader, self.segments, self.deriver = copies, segments, deriver
        self.first, self.abort, self.stop_at_damage, self.only = first, abort, stop_at_damage, only
        self._out: _Out | None = None
        self._time = 0
        self._stopped = False

    # Files

    def files(self) -> Iterator[OutputFile]:
        yield from super().files()
        self._note_removed()

    def outputs(self) -> Iterator[OutputFile]:
        yield from self.first
        for base, runs, like in self.segments:
            if self._stopped:
                self.cut += [removed_run(run, "behind the first damage", None, {}) for run in runs]
                continue
            yield from self._begin(base, like)
            for run in runs:
                yield from self._add(run)
        opened = self.deriver.producers.open_transactions
        if opened and self.abort:
            for run in self._aborts(opened):
                yield from self._add(run)
        elif opened:
            self._note_open(opened)
        self.deriver.finish()
        yield from self._close()

    def _begin(self, base: int, like: str | None = None) -> Iterator[OutputFile]:
        """Start the next segment. The files of the one before are complete."""
        self.deriver.begin(base)
        yield from self._close()
        self._out = _Out(base, like)

    def _close(self) -> Iterator[OutputFile]:
        out, files = self._out, self.deriver.files
        if out is None:
            return
        name = segment_name(out.base, ".log")
        if self.only is not None:
            yield self.unchanged(name)
        else:
            yield OutputFile(name, out.pieces, out.like if out.like in self.sizes else None)
        for name in list(files):
            data = files.pop(name)
            if self.only is None or kind_of(name) in self.only:
                yield self.made(name, data)

    # Batches

    def _add(self, run: Run) -> Iterator[OutputFile]:
        for some in self.reader.batches(run):
            header = some.frames.header
            size = some.frames.end - some.frames.start
            bad = self._forbidden(some.window, some.frames)
            fresh = ~bad
            if self.only is not None and bad.any():
                self._refuse(run, header, some.at, size, fresh, bad)
                raise damage(self.cut[-1])
            if self._stopped:
                fresh[:] = bad[:] = False
            elif self.stop_at_damage and bad.any():
                first = int(np.argmax(bad))
                fresh[first:] = bad[first + 1 :] = False
                self._stopped = True
            if not fresh.all():
                self._refuse(run, header, some.at, size, fresh, bad)
            yield from self._feed(run, some.window, some.frames.pick(fresh), some.at[fresh])

    def _feed(self, run: Run, window: Window, frames: Frames, at: Numbers) -> Iterator[OutputFile]:
        header, size, done = frames.header, frames.end - frames.start, 0
        base, last = offsets(header)
        while done < len(header):
            out = self._out
            assert out is not None
            ends = out.size + np.cumsum(size[done:])
            over = (ends > _INT_MAX) | (last[done:] - out.base > _INT_MAX)
            if out.size == 0 and last[done] - out.base <= _INT_MAX:
                over[0] = False
            fit = done + (int(np.argmax(over)) if over.any() else len(over))
            if fit == done:
                yield from self._begin(int(base[done]))
                continue
            part = frames.pick(slice(done, fit))
            self.deriver.add(part.header, ends[: fit - done] - size[done:fit], markers(window, part))
            low = done
            for i in [
                *(np.flatnonzero(at[done + 1 : fit] != (at + size)[done : fit - 1]) + done + 1).tolist(),
                fit,
            ]:
                out.keep(run.pieces(int(at[low]), int(at[i - 1] + size[i - 1])))
                low = i
            self._count(header[done:fit], base[done:fit], last[done:fit])
            done = fit

    def _count(self, header: npt.NDArray[Any], base: Numbers, last: Numbers) -> None:
        data = header["attributes"] & CONTROL == 0
        self.rows += int(np.maximum(header["records_count"].astype(np.int64), 0)[data].sum())
        self.ids = {"first_offset": self.ids.get("first_offset", int(base[0])), "last_offset": int(last[-1])}
        self._time = max(self._time, int(header["max_timestamp"].astype(np.int64).max()))

    def _refuse(
        self,
        run: Run,
        header: npt.NDArray[Any],
        at: Numbers,
        size: Numbers,
        fresh: npt.NDArray[np.bool_],
        bad: npt.NDArray[np.bool_],
    ) -> None:
        """Cut the batches that are not `fresh`: those that are forbidden (`bad`), and what lies behind such a one."""
        for i in np.flatnonzero(~fresh).tolist():
            rows, what = lost(self.reader.listings[run.copy], header[i : i + 1])
            why = "behind the first damage"
            if bad[i]:
                why = (
                    f"bad order: producer {int(header['producer_id'][i])} writes outside of the transaction that it has open;"
                    " the broker does not start on such a batch"
                )
            offset = run.begin + (0 if run.patch else int(at[i]))
            self.cut.append(Removed(run.file, offset, int(size[i]), why, run.copy, rows, what))

    # Transactions

    def _forbidden(self, window: Window, frames: Frames) -> npt.NDArray[np.bool_]:
        """The batches outside of an open transaction of their producer."""
        header = frames.header
        out = np.zeros(len(header), np.bool_)
        flags = header["attributes"].astype(np.int64)
        owned = header["producer_id"] >= 0
        data = owned & (flags & CONTROL == 0)
        plain = data & (flags & TRANSACTIONAL == 0)
        state = self.deriver.producers
        if not plain.any() or (state.first_unstable is None and not (data & ~plain).any()):
            return out
        opened = set(state.open_transactions)
        begun = set(header["producer_id"][data & ~plain].tolist())
        asked = np.isin(header["producer_id"], list(opened | begun))
        if not (plain & asked).any():
            return out
        ending = set(markers(window, frames)["frame"].tolist())
        for i in np.flatnonzero(asked).tolist():
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
        """Markers that end what is open, in the order in which it was begun."""
        state = self.deriver.producers.producers
        epochs = self.deriver.epochs.entries
        offset = self.deriver.next_offset
        for producer, first in sorted(opened.items(), key=lambda item: item[1]):
            one = state[producer]
            data = abort_marker(
                offset,
                producer,
                one.producer_epoch,
                max(0, one.coordinator_epoch),
                epochs[-1][0] if epochs else -1,
                self._time,
            )
            self.notes.append(
                f"The transaction of producer {producer}, open since offset {first}, is aborted by a marker at offset {offset}:"
                " read_committed consumers get none of its records, also where it had been committed and the marker was lost."
            )
            yield Run(0, "", 0, 0, 0, offset, offset, data)
            offset += 1

    def _note_removed(self) -> None:
        """Name the snapshots that are evidence of lost records: they cannot stay, since a broker deletes them."""
        end = self.deriver.next_offset
        for name in self.removes:
            found = parse_segment(name)
            if found is not None and found[1:] == (".snapshot", "") and found.base_offset > end:
                self.notes.append(
                    f"{name} says that the log went up to offset {found.base_offset - 1}, the log ends at {end} now. Keep the"
                    " original as evidence of the loss."
                )

    def _note_open(self, opened: dict[int, int]) -> None:
        first = min(opened.values())
        self.notes.append(
            f"{len(opened)} transaction(s) are open, from offset {first} on: read_committed consumers stop there until they are"
            " ended (kafka-transactions abort, or repair with open.transactions=abort)."
        )


def abort_marker(
    offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int,
    timestamp: int,
) -> bytes:
    """The batch by which a transaction coordinator aborts a producer's transaction (`EndTransactionMarker`)."""
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
    """What `rebuild` calls a derived file."""
    found = parse_segment(name)
    return name if found is None else found.suffix[1:]


def damage(cut: Removed) -> DamageError:
    """A refusal to work with a damaged log."""
    return DamageError(
        cut.why, path=cut.file, offset=cut.offset, advice="Mend the partition first, with `logwright repair`"
    )
