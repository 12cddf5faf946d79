"""Undamaged rows that no client can read once LevelDB has opened the database: salvaged rows minus served rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s, among
from logwright.codec.base import Codec
from logwright.codec.engine.merge import Keys
from logwright.codec.engine.repair import Removed
from logwright.codec.engine.startup import LostRows, lost_runs
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk, walk_listed
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.records.log_reader import Delivered, read_records
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.filter import hash_keys
from logwright.codec.leveldb.formats.table.portions import portions
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED, ROWS, TableContext
from logwright.codec.leveldb.keys import key_range
from logwright.codec.leveldb.names import number_in
from logwright.codec.leveldb.store import live
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Group, Run

_COLUMNS = ("key", "sequence")
_PASSED_OVER = "LevelDB skips it although its checksum is right"
_CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (log.CODEC, table.CODEC)}


class _Salvaged:
    """The undamaged rows of a run. See `logwright.codec.layout.Stream`."""

    def __init__(self, listing: Listing, run: Run, sizes: Mapping[str, int]) -> None:
        self.listing, self.run, self.sizes = listing, run, sizes

    @property
    def params(self) -> Mapping[str, Any]:
        return self.run.params

    @property
    def salvaged(self) -> bool:
        return True

    def survey(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self(columns)

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in self.run.parts:
            codec = _CODECS[part.codec]
            context = codec.context(part.file, Options(codec.options), **part.hints)
            reader = ListedFile(self.listing, part.file, self.sizes[part.file])
            for stretch in Walk(reader, codec, context):
                if not isinstance(stretch, Stretch) or not len(stretch.frames):
                    continue
                batches = list(codec.decode(stretch.window, stretch.frames, "rows", columns, context))
                if part.codec == table.CODEC.name and any(decoded.faults for decoded in batches):
                    yield from _all_entries(stretch, columns, context)
                else:
                    yield from (decoded.batch for decoded in batches)


def _all_entries(stretch: Stretch, columns: Sequence[str], context: TableContext) -> Iterator[pa.RecordBatch]:
    """Return keys, sequence numbers and types of all entries of table blocks, including those that wrong restart points hide from
    LevelDB."""
    limit = context.options[MAX_DECOMPRESSED.name]
    schema = ROWS.schema(columns)
    for portion in portions(stretch.window, stretch.frames, limit, repair=True):
        arrays = portion.entries.columns()
        yield pa.RecordBatch.from_arrays(
            [arrays[field.name].cast(field.type) for field in schema], schema=schema
        )


def ids(batch: pa.RecordBatch) -> Int64s:
    """Return a number for each row that identifies it, derived from its key and sequence number."""
    keys = Keys.of(batch.column("key"))
    hashes = np.empty(len(keys), np.int64)
    hash_keys(keys.data, keys.ends, 0, len(keys), hashes)
    numbered: Int64s = np.asarray(batch.column("sequence")) << 32
    return hashes | numbered


def lost(listing: Listing, plan: Plan, served: Iterable[pa.RecordBatch]) -> Iterator[LostRows]:
    """Return the undamaged rows of the view that are not among those `served`."""
    got = np.unique(np.concatenate([np.empty(0, np.int64), *map(ids, served)]))
    return lost_runs((~among(ids(batch), got), _range(batch)) for batch in _salvaged(listing, plan))


def _salvaged(listing: Listing, plan: Plan) -> Iterator[pa.RecordBatch]:
    sizes = {entry.name: entry.size for entry in listing.entries()}
    for group in live.parts(listing, plan, "live"):
        if isinstance(group, Group):
            streams = [_Salvaged(listing, run, sizes) for run in group.runs]
            yield from live.combine("live", group.params, streams, _COLUMNS, _nothing)


def _range(batch: pa.RecordBatch) -> Callable[[int, int], Mapping[str, Any]]:
    return lambda start, stop: key_range(*(batch.column("key")[i].as_py() for i in (start, stop - 1)))


def _nothing(fault: Fault) -> None:
    """Ignore damage: reading the files reports it."""


# Strategy system


def removed(overlay: Overlay, plan: Plan) -> Iterator[Removed]:
    """Return the parts of the logs that are in none of the tables that LevelDB writes from them."""
    for file in plan.files:
        if file.role is Role.PRIMARY and file.codec == log.NAME and file.name not in overlay:
            yield from _skipped_records(overlay.below, file.name, file.size)


def _skipped_records(listing: Listing, name: str, size: int) -> Iterator[Removed]:
    """Return the parts of a log that reach no table: damaged ones, and those that LevelDB's reader skips."""
    read = ListedFile(listing, name, size)
    seen: set[int] = set()
    for event in read_records(read, size):
        if isinstance(event, Delivered):
            seen.update((event.frames.start + event.window.offset).tolist())
    sorted_ = np.array(sorted(seen), np.int64)
    for stretch in walk_listed(listing, name, size, log.CODEC):
        if isinstance(stretch, Hole):
            fault = stretch.fault
            if fault.severity is not Severity.INFO:
                yield Removed.damaged(name, fault)
            continue
        head, frames = stretch.frames.header, stretch.frames
        starts = frames.start + stretch.window.offset
        gone = np.flatnonzero(~np.isin(starts, sorted_))
        for run in np.split(gone, np.flatnonzero(np.diff(gone) != 1) + 1) if len(gone) else ():
            low, high = int(run[0]), int(run[-1])
            batches = head[low : high + 1]
            batches = batches[batches["size"] >= BATCH_HEADER]
            rows = int(np.maximum(batches["count"].astype(np.int64), 0).sum())
            lost = {"file": number_in(name)}
            if rows:
                lost["first_sequence"] = int(batches["sequence"][0])
                lost["last_sequence"] = int(batches["sequence"][-1] + batches["count"][-1]) - 1
            length = int(frames.end[high] - frames.start[low])
            yield Removed(name, int(starts[low]), length, _PASSED_OVER, 0, rows, lost)
