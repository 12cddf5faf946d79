"""Drop records of a partition, or values of records. All other batches stay byte for byte.

A changed batch keeps its header, and so its offsets, producer and transaction. Dropped records leave a gap in the offsets, as
compaction does (`LogCleaner`, `MemoryRecords.filterTo`). A batch without records is a header only. A broker would drop those that no
producer needs; all are kept here, so that the log end offset does not change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.repair import Change, Removed, RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log import write as encode
from logwright.codec.kafka.formats.log.layout import CONTROL, DELETE_HORIZON, LENGTH_END, MAGIC, RECORD_BATCH
from logwright.codec.kafka.formats.log.reencode import reencode
from logwright.codec.kafka.formats.log.settings import OPTIONS, BatchSettings
from logwright.codec.kafka.formats.log.tables import FRAMES, MAX_DECOMPRESSED, ROWS
from logwright.codec.kafka.options import STARTING
from logwright.codec.kafka.repair import resize
from logwright.codec.kafka.repair.rebatch import rebatched
from logwright.codec.kafka.repair.repair import (
    PRODUCER_EXPIRATION,
    deriver_of,
    log_start,
    sound_segments,
    surroundings,
)
from logwright.codec.kafka.repair.resize import Resizer
from logwright.codec.kafka.repair.runs import Run, append_extents
from logwright.codec.kafka.repair.write import PartitionPlan
from logwright.codec.kafka.store.evidence import partition_of
from logwright.codec.option import Options
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Frames, Window

_COMPRESSING = tuple(option for option in OPTIONS if option.name in encode.COMPRESSING)
FILE_OPTIONS = (MAX_DECOMPRESSED, *_COMPRESSING)
EDIT_OPTIONS = (*STARTING, PRODUCER_EXPIRATION, *FILE_OPTIONS)
_BATCH_SIZE = next(option for option in OPTIONS if option.name == "batch.size")
MOVES = (*resize.OPTIONS, _BATCH_SIZE)
RECODES = encode.COMPRESSING
_LENGTH = RECORD_BATCH.offset("batch_length")
_ALL_ROWS = ROWS.names(detail=True)
_ALL_FRAMES = FRAMES.names(detail=True)


def edit(listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
    """See `codec.capability.Edit`. The caller has checked that nothing is damaged."""
    cut: list[Removed] = []
    # The runs are generators, so that only those of one segment are in memory.
    if options.given("batch.size") and options["delete.before.offset"] is not None:
        raise UsageError(
            "batch.size cannot be combined with delete.before.offset",
            advice="Use one of them, and convert the result",
        )
    if options["delete.before.offset"] is not None:
        change = _Below(change, options["delete.before.offset"])
    segments = [
        (file.hints["base_offset"], _Editor(listing, file, change, options, cut).runs(), file.name)
        for file in sound_segments(plan)
    ]
    if not segments:
        raise UsageError("the partition has no log")
    first, notes, advice = surroundings([listing], [plan], options)
    now = time.time_ns() // 1_000_000 if options["now"] is None else options["now"]
    deriver, other = deriver_of(listing, plan, options, now, log_start(plan, options))
    resized: list[str] = []
    resizer = Resizer(listing, sound_segments(plan), options, deriver, now, resized, cut)
    out = PartitionPlan([listing], resizer.segments(segments), deriver, first=first)
    out.notes = resized
    out.cut = cut
    out.notes += [*notes, *other]
    out.before_you_start += advice
    if change.columns:
        out.before_you_start.append(
            "Other replicas still have the original records: edit them too, or delete them so that they are replicated again."
        )
    return out


def edit_file(
    listing: Listing, file: PlannedFile, change: Change, options: Options
) -> tuple[list[Extent], list[Removed]]:
    """See `codec.capability.EditFile`."""
    cut: list[Removed] = []
    out: list[Extent] = []
    for run in _Editor(listing, file, change, options, cut).runs():
        append_extents(out, run.extents())
    return out, cut


class _Below:
    """A change that also drops the rows below an offset."""

    def __init__(self, change: Change, offset: int) -> None:
        self._change, self._offset = change, offset
        self.every, self.values = change.every, change.values
        self.columns = (*change.columns, "offset")

    def drops(self, rows: pa.RecordBatch) -> Bools:
        return self._change.drops(rows) | (np.asarray(rows.column("offset")) < self._offset)

    def redacts(self, rows: pa.RecordBatch) -> Bools:
        return self._change.redacts(rows)


class _Editor:
    def __init__(
        self, listing: Listing, file: PlannedFile, change: Change, options: Options, cut: list[Removed]
    ) -> None:
        self.listing, self.file, self.change, self.cut = listing, file, change, cut
        own = Options(log.CODEC.options, options.passed(FILE_OPTIONS))
        settings = BatchSettings.of(own)
        self.compression = settings.compression if own.given("compression.type") else None
        self.rebatching = (
            replace(settings, batch_size=options["batch.size"]) if options.given("batch.size") else None
        )
        hints = {"directory": listing.name, **file.hints}
        self.context = log.CODEC.context(file.name, own, **hints)
        self.base: int = self.context.base_offset or 0

    def runs(self) -> Iterator[Run]:
        """Return all batches of the segment. Bytes after the last one (preallocated zeros, a torn write) are dropped."""
        at = 0
        for window, frames in good_frames(walk_file(self.listing, self.file, log.CODEC, check=False)):
            yield from self._window(window, frames)
            at = window.offset + int(frames.end[-1])
        if at < self.file.size:
            self.cut.append(Removed(self.file.name, at, self.file.size - at, "not a batch", 0, 0))

    def _window(self, window: Window, frames: Frames) -> Iterator[Run]:
        if self.rebatching is not None:
            for low, high, batches in rebatched(window, frames, self.context, self.rebatching):
                if not batches:
                    yield Run.of(0, self.file, window, frames.pick(slice(low, high)))
                begin, stop = (window.offset + int(at) for at in (frames.start[low], frames.end[high - 1]))
                for batch in batches:
                    yield Run.patched(0, self.file, begin, stop, batch)
            return
        touched = self._touched(window, frames)
        starts, stops = frames.start + window.offset, frames.end + window.offset
        edited = iter(self._encode(window, frames, touched)) if touched.any() else iter(())
        edges = [
            0,
            *(np.flatnonzero(np.diff(touched) | (starts[1:] != stops[:-1])) + 1).tolist(),
            len(frames),
        ]
        for low, high in pairwise(edges):
            if not touched[low]:
                yield Run.of(0, self.file, window, frames.pick(slice(low, high)))
                continue
            for i in range(low, high):
                for content in next(edited):
                    yield Run.patched(0, self.file, int(starts[i]), int(stops[i]), content)

    def _touched(self, window: Window, frames: Frames) -> Bools:
        """Return which batches change."""
        data = frames.header["attributes"].astype(np.int64) & CONTROL == 0
        if self.change.every:
            return np.asarray(data & (frames.header["records_count"] > 0), np.bool_)
        out = np.zeros(len(frames), np.bool_)
        starts = frames.start + window.offset
        columns = list(dict.fromkeys((*self.change.columns, "position")))
        for decoded in log.CODEC.decode(window, frames, "rows", columns, self.context):
            rows = decoded.batch
            mask = self.change.drops(rows) | self.change.redacts(rows)
            if mask.any():
                out[np.searchsorted(starts, np.asarray(rows.column("position"))[mask])] = True
        return np.asarray(out & data, np.bool_)

    def _encode(self, window: Window, frames: Frames, touched: Bools) -> list[list[bytes]]:
        """Encode the changed batches again, and return what replaces each: one batch. For magic 0 and 1 it is nothing if no record is left,
        and several messages if a wrapper is no longer compressed."""
        picked = frames.pick(touched)
        # A context must not see the same rows twice.
        context = log.CODEC.context(self.file.name, self.context.options, base_offset=self.base)
        tables = [
            pa.Table.from_batches(
                [decoded.batch for decoded in log.CODEC.decode(window, picked, name, columns, context)],
                log.CODEC.tables[name].schema(columns),
            ).combine_chunks()
            for name, columns in (("rows", _ALL_ROWS), ("frames", _ALL_FRAMES))
        ]
        rows, table = tables
        before = _per_frame(rows, table)
        none = np.zeros(0, np.bool_)
        drops = np.concatenate([none, *map(self.change.drops, rows.to_batches())])
        redacts = np.concatenate([none, *map(self.change.redacts, rows.to_batches())]) & ~drops
        positions = np.asarray(rows.column("position"))
        edited = _redacted(rows, redacts, self.change).filter(pa.array(~drops))
        after = _per_frame(edited, table)
        table = self._frames(table, edited, before, after)
        data = b"".join(bytes(chunk) for chunk in reencode(edited, table, context))
        starts = np.asarray(table.column("position"))
        for i, start in enumerate(starts.tolist()):
            gone = int(before[i] - after[i])
            changed = int(redacts[positions == start].sum())
            if gone or changed:
                stop = int(start + picked.end[i] - picked.start[i])
                where = partition_of(self.listing)
                self.cut.append(Removed.edited(self.file.name, int(start), stop, gone, changed, where))
        entries = _split(data)
        batch = np.asarray(table.column("magic")) >= MAGIC
        plain = np.asarray(pc.equal(table.column("compression"), "none"))
        counts = np.where(batch, 1, np.where(plain, after, np.minimum(after, 1)))
        return [list(islice(entries, count)) for count in counts.tolist()]

    def _frames(self, table: pa.Table, rows: pa.Table, before: Any, after: Any) -> pa.Table:
        """Return the frames table with the headers of the edited batches."""
        emptied = (after == 0) & (before > 0)
        flags = np.asarray(table.column("attributes").cast(pa.int64()))
        compression = table.column("compression").to_pylist()
        names = [
            "none" if gone else self.compression or name
            for name, gone in zip(compression, emptied, strict=True)
        ]
        table = _put(table, "compression", pa.array(names, pa.string()))
        table = _put(table, "payload", pa.nulls(len(table), pa.binary()))
        low = np.asarray(table.column("base_timestamp")).copy()
        low[emptied & (flags & DELETE_HORIZON == 0)] = -1
        table = _put(table, "base_timestamp", pa.array(low))
        # The largest timestamp that is left. It does not change with append time, nor in a batch without records.
        top = np.asarray(table.column("max_timestamp")).copy()
        create = np.asarray(table.column("timestamp_type")) == 0
        edges = np.concatenate(([0], np.cumsum(after)))
        times = np.asarray(rows.column("timestamp_ms"))
        for i in np.flatnonzero(create & (after > 0) & (after != before)).tolist():
            top[i] = times[edges[i] : edges[i + 1]].max()
        return _put(table, "max_timestamp", pa.array(top))


def _per_frame(rows: pa.Table, frames: pa.Table) -> Int64s:
    starts = np.asarray(frames.column("position"))
    which = np.searchsorted(starts, np.asarray(rows.column("position")))
    return np.bincount(which, minlength=len(starts)).astype(np.int64)


def _put(table: pa.Table, name: str, column: Any) -> pa.Table:
    i = table.schema.get_field_index(name)
    return table.set_column(i, table.schema.field(i), column)


def _redacted(rows: pa.Table, mask: Bools, change: Change) -> pa.Table:
    if not mask.any():
        return rows
    for name, value in change.values.items():
        kind = rows.schema.field(name).type
        if pa.types.is_list(kind):
            # Headers are removed, whatever the value.
            empty = [
                [] if gone else stored
                for gone, stored in zip(mask, rows.column(name).to_pylist(), strict=True)
            ]
            rows = _put(rows, name, pa.array(empty, kind))
            raw = rows.schema.field("headers_raw").type
            none = [
                None if gone else stored
                for gone, stored in zip(mask, rows.column("headers_raw").to_pylist(), strict=True)
            ]
            rows = _put(rows, "headers_raw", pa.array(none, raw))
            continue
        rows = _put(rows, name, pc.if_else(pa.array(mask), pa.scalar(value, kind), rows.column(name)))
    return rows


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = LENGTH_END + int.from_bytes(data[at + _LENGTH : at + _LENGTH + 4], "big")
        yield data[at : at + size]
        at += size
