"""Remove entries from a database, or values from entries. All other blocks and batches stay as they are.

Data blocks of a table are copied unless they change. Filter, index and footer depend on keys and positions and are rebuilt.

A log is copied up to the first batch that changes. The records after it are written again, since the position of a record in its block of
32 KiB decides how it is split. The manifest is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import joined
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.repair import Change, Removed, RepairPlan
from logwright.codec.fault import UnsupportedError, UsageError
from logwright.codec.frames.walk import Hole, ListedFile, Stretch
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.table.entries import Entries
from logwright.codec.leveldb.formats.table.portions import Portion, portions
from logwright.codec.leveldb.keys import MAX_SEQUENCE, TYPE_NAMES, VALUE
from logwright.codec.leveldb.names import number_in
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.rebuild import refuse_damaged
from logwright.codec.leveldb.repair.repair import REPAIR_OPTIONS, DatabaseRepair
from logwright.codec.leveldb.repair.table_blocks import Block, Table
from logwright.codec.leveldb.repair.tables import Tables, rebuilt
from logwright.codec.leveldb.store.guess_comparator import guess
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Bytes, Frames, Window

EDIT_OPTIONS = tuple(option for option in REPAIR_OPTIONS if option.name != "version")
_OF_FILES = ("comparator", "bloom_bits_per_key", "max.decompressed.bytes", "max.record.bytes")
FILE_OPTIONS = tuple(option for option in EDIT_OPTIONS if option.name in _OF_FILES)
"""Options of editing a single file."""


def edit(listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
    """See `codec.capability.Edit`."""
    _refuse_null(change)
    out = _EditPlan([listing], [plan], options).prepared()
    surveyed = out.surveyed
    refuse_damaged(surveyed)
    tables = [TableEdit(surveyed.reader, table, change) for table in surveyed.tables]
    out.edits = {log.file: LogEdit(listing, log, change, options) for log in surveyed.logs}
    logged = [cut for edited in out.edits.values() for cut in edited.cut]
    out.cut += [cut for edited in tables for cut in edited.cut] + logged
    touched = out.always = bool(out.cut)
    out.salvage()
    if touched and any(name.startswith("LOG") for name in surveyed.others):
        out.notes.append("LOG, LevelDB's own log file, is unchanged: it may contain keys.")
    if any(cut.rows_lost for cut in logged):
        out.notes.append(
            "Dropped operations leave gaps in the sequence numbers of logs, which LevelDB ignores."
        )
    if touched and set(change.columns) - {"key"}:
        out.notes.append(
            "The selection distinguishes entries of the same key: where newer entries were dropped, older ones may become visible again."
        )
    return out


class _EditPlan(DatabaseRepair):
    """A sound database whose logs are changed."""

    edits: dict[str, LogEdit]

    def log_pieces(self, log: Log) -> Iterator[Extent]:
        return self.edits[log.file].pieces()


def edit_table(
    listing: Listing, file: PlannedFile, change: Change, options: Options
) -> tuple[Sequence[Extent], Sequence[Removed]]:
    """See `codec.capability.EditFile`."""
    _refuse_null(change)
    comparator = options["comparator"] or guess(listing, [(file.name, file.size)])
    reader = Tables(listing, options, comparator_of(comparator))
    table = reader.survey(file.name, number_in(file.name), file.size, None, None)
    reader.settle([table])
    cut = TableEdit(reader, table, change).cut
    if table.smallest is None:
        raise UsageError(
            "it would be left without entries, and such a table is invalid",
            path=file.name,
            advice="Edit its database instead",
        )
    return reader.pieces(table)[0], cut


def edit_log(
    listing: Listing, file: PlannedFile, change: Change, options: Options
) -> tuple[Sequence[Extent], Sequence[Removed]]:
    """See `codec.capability.EditFile`."""
    _refuse_null(change)
    surveyed = logs.survey_log(listing, file.name, 0, file.size, options)
    edited = LogEdit(listing, surveyed, change, options)
    return list(edited.pieces()), edited.cut


def _refuse_null(change: Change) -> None:
    null = [name for name, value in change.values.items() if value is None]
    if null:
        raise UsageError(
            f"{null[0]} cannot be null here",
            advice="Set other bytes, such as an empty value, or drop the entries",
        )
    if "key" in change.values:
        raise UsageError(
            "a key cannot be redacted: the key determines the position of its entry",
            advice="Drop the entries",
        )


def _sound(walk: Iterable[Stretch | Hole]) -> Iterator[Stretch]:
    """Return the frames of a file without damage."""
    return (stretch for stretch in walk if isinstance(stretch, Stretch))


# Tables


def _decided(rows: pa.RecordBatch, change: Change) -> tuple[Bools, Bools]:
    """Return which entries to drop and which to redact."""
    drop = change.drops(rows)
    # A deletion has no value.
    has_value = np.asarray(pc.equal(rows.column("type"), TYPE_NAMES[VALUE]))
    return drop, change.redacts(rows) & ~drop & has_value


def _cut(surveyed: Table | Log, start: int, stop: int, drop: Bools, redact: Bools) -> Removed:
    """Return the range of a block or batch in which these entries change."""
    counts = int(drop.sum()), int(redact.sum())
    return Removed.edited(surveyed.file, start, stop, *counts, {"file": surveyed.number})


class TableEdit:
    """A table with changed entries, described by its `blocks`."""

    def __init__(self, reader: Tables, surveyed: Table, change: Change) -> None:
        self.change = change
        if surveyed.unsupported:
            raise UnsupportedError(
                "the table has blocks or entries of an unknown type, which cannot be searched for what to change",
                path=surveyed.file,
                advice="Edit it with the program that wrote it",
            )
        self.cut: list[Removed] = []
        blocks: list[Block] = []
        for stretch in _sound(reader.walk(ListedFile(reader.listing, surveyed.file, surveyed.size))):
            for portion in portions(stretch.window, stretch.frames, reader.limit):
                dropped, redacted = _decided(_rows(portion, surveyed), change)
                for i, (low, high) in enumerate(pairwise(portion.rows.tolist())):
                    block, _ = reader.block(surveyed, stretch.window, portion, None, i)
                    drop, redact = dropped[low:high], redacted[low:high]
                    if block is not None and (drop.any() or redact.any()):
                        self.cut.append(_cut(surveyed, block.start, block.stop, drop, redact))
                        block = self._block(stretch.window, portion, i, block, drop, redact)
                    if block is not None:
                        blocks.append(block)
        if self.cut:
            surveyed.blocks = blocks
            surveyed.known = None  # the manifest may contain dropped keys

    def _block(
        self, window: Window, portion: Portion, i: int, block: Block, drop: Bools, redact: Bools
    ) -> Block | None:
        """Return a block without the dropped entries, or None if it is empty."""
        entries, low = portion.entries, int(portion.rows[i])
        stay = (np.flatnonzero(~drop) + low).tolist()
        if not stay:
            return None
        new = self.change.values.get("value", b"") or b""
        keys = [entries.keys[int(entries.key_ends[n]) : int(entries.key_ends[n + 1])].tobytes() for n in stay]
        values = [
            new
            if redact[n - low]
            else entries.values[int(entries.value_ends[n]) : int(entries.value_ends[n + 1])].tobytes()
            for n in stay
        ]
        trailers = entries.trailers[stay]
        part = Entries(len(stay), *joined(keys), trailers, *joined(values))
        sequences = trailers >> 8 & MAX_SEQUENCE
        return replace(
            block, rows=len(stay), first=portion.entries.key(stay[0]), last=portion.entries.key(stay[-1]), key=None,
            low=int(sequences.min()), high=int(sequences.max()), rebuilt=rebuilt(window, portion, i, part),
        )  # fmt: skip


def _rows(portion: Portion, surveyed: Table) -> pa.RecordBatch:
    """Return its entries as rows of a table."""
    entries = portion.entries
    starts = np.repeat(portion.frames.start, entries.per_block)
    return pa.RecordBatch.from_pydict(
        {
            **entries.columns(),
            "file": pa.array(np.full(entries.rows, surveyed.number), pa.int64()),
            "position": pa.array(starts, pa.int64()),
            "level": pa.nulls(entries.rows, pa.int64()),
        }
    )


# Logs


class LogEdit:
    """A log with changed operations."""

    def __init__(self, listing: Listing, surveyed: Log, change: Change, options: Options) -> None:
        self.listing, self.log, self.change, self.options = listing, surveyed, change, options
        self.cut: list[Removed] = []
        self._new: dict[int, list[bytes]] = {}
        """The batches that replace a batch, by its position."""
        columns = log.ROWS.names(detail=True)
        for stretch in _sound(logs.walk_log(ListedFile(listing, surveyed.file, surveyed.size), options)):
            context = log.CODEC.context(surveyed.file, Options(log.CODEC.options))
            ends = stretch.frames.end + stretch.window.offset
            starts = stretch.frames.start + stretch.window.offset
            for decoded in log.CODEC.decode(stretch.window, stretch.frames, "rows", columns, context):
                rows = decoded.batch
                dropped, redacted = _decided(rows, change)
                places = np.asarray(rows.column("position"))
                for place in np.unique(places[dropped | redacted]).tolist():
                    mine = np.flatnonzero(places == place)
                    drop, redact = dropped[mine], redacted[mine]
                    stop = int(ends[np.searchsorted(starts, place)])
                    self.cut.append(_cut(surveyed, place, stop, drop, redact))
                    self._new[place] = self._batches(rows.slice(int(mine[0]), len(mine)), drop, redact)
        surveyed.rows -= sum(cut.rows_lost or 0 for cut in self.cut)

    def _batches(self, rows: pa.RecordBatch, drop: Bools, redact: Bools) -> list[bytes]:
        """Return the rest of a batch as one batch for each run of sequence numbers."""
        new = self.change.values.get("value", b"") or b""
        runs: list[list[dict[str, Any]]] = []
        first: list[int] = []
        for i, row in enumerate(rows.to_pylist()):
            if drop[i]:
                continue
            if not runs or row["sequence"] != first[-1] + len(runs[-1]):
                runs.append([])
                first.append(row["sequence"])
            value = new if redact[i] else row["value"]
            runs[-1].append({"type": TYPE_NAMES.index(row["type"]), "key": row["key"], "value": value or b""})
        return [
            WRITE_BATCH.pack({"sequence": sequence, "count": len(run), "operations": run})
            for sequence, run in zip(first, runs, strict=True)
        ]

    def pieces(self) -> Iterator[Extent]:
        surveyed = self.log
        if not self._new:
            yield Copy(surveyed.file, 0, surveyed.size)
            return
        walk = logs.walk_log(ListedFile(self.listing, surveyed.file, surveyed.size), self.options)
        yield from logs.rewritten(walk, surveyed.file, min(self._new), self._records)

    def _records(self, window: Window, frames: Frames) -> tuple[Bytes, Int64s]:
        """Return the records of some frames after the edit."""
        data, stops = logs.unchanged_records(window, frames)
        starts = (frames.start + window.offset).tolist()
        parts: list[bytes] = []
        for start, low, high in zip(starts, stops[:-1].tolist(), stops[1:].tolist(), strict=True):
            parts += self._new.get(start, [data[low:high].tobytes()])
        return joined(parts)
