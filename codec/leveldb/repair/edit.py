"""Entries taken out of a database, or values out of entries; blocks and batches that none of them is in stay as they are.

A table keeps its data blocks byte for byte but for those that change; what lies behind them, filter, index and footer, tells of keys and
places, and is made anew. A log stays byte for byte up to the first batch that changes: where a batch lies in its block of 32 KiB decides
how it is cut, so that those behind are cut anew, and hold what they held. The manifest is made anew, since it tells of keys too; files
that are not in use any more are left out, since nobody knows what of that is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.engine.repair import Change, Removed, RepairPlan
from logwright.codec.fault import UnsupportedError, UsageError
from logwright.codec.frames.walk import Hole, ListedFile, Stretch
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import Int64s
from logwright.codec.leveldb.formats.table.entries import Portion, portions
from logwright.codec.leveldb.formats.table.layout import INTERVAL, sealed, stored
from logwright.codec.leveldb.formats.table.rows import DEFAULT_INTERVAL, Unpacked, packed
from logwright.codec.leveldb.keys import DELETION, MAX_SEQUENCE, TYPE_NAMES
from logwright.codec.leveldb.names import parse
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.rebuild import refuse_damaged
from logwright.codec.leveldb.repair.repair import REPAIR_OPTIONS, DatabaseRepair
from logwright.codec.leveldb.repair.tables import Block, Table, Tables, compression
from logwright.codec.leveldb.store.guess_comparator import guess
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Bytes, Frames, Window

Mask = npt.NDArray[np.bool_]
EDIT_OPTIONS = tuple(one for one in REPAIR_OPTIONS if one.name != "version")
_OF_FILES = ("comparator", "bloom_bits_per_key", "max.decompressed.bytes", "max.record.bytes")
FILE_OPTIONS = tuple(one for one in EDIT_OPTIONS if one.name in _OF_FILES)
"""What editing a single file takes."""


def edit(listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
    """See `codec.capability.Edit`."""
    _refuse_null(change)
    out = _EditPlan([listing], [plan], options).prepared()
    found = out.found
    refuse_damaged(found)
    tables = [TableEdit(found.reader, one, change) for one in found.tables]
    out.edits = {log.file: LogEdit(listing, log, change, options) for log in found.logs}
    logged = [cut for one in out.edits.values() for cut in one.cut]
    out.cut += [cut for one in tables for cut in one.cut] + logged
    touched = out.always = bool(out.cut)
    out.salvage()
    if touched and any(name.startswith("LOG") for name in found.others):
        out.notes.append("LOG, what LevelDB says of its work, is as it was: it may name keys.")
    if any(cut.rows_lost for cut in logged):
        out.notes.append(
            "Of what was dropped from logs, sequence numbers are missing there: LevelDB does not mind."
        )
    if touched and set(change.columns) - {"key"}:
        out.notes.append(
            "What was asked for tells entries of one key apart: where newer ones of a key went, older ones may be seen again."
        )
    return out


class _EditPlan(DatabaseRepair):
    """A sound database, whose logs are changed."""

    edits: dict[str, LogEdit]

    def log_pieces(self, log: Log) -> Iterator[Extent]:
        return self.edits[log.file].pieces()


def edit_table(
    listing: Listing, file: PlannedFile, change: Change, options: Options
) -> tuple[Sequence[Extent], Sequence[Removed]]:
    """See `codec.capability.EditFile`."""
    _refuse_null(change)
    named = parse(file.name)
    comparator = options["comparator"] or guess(listing, [(file.name, file.size)])
    reader = Tables(listing, options, comparator_of(comparator))
    found = reader.examine(file.name, 0 if named is None else named.number, file.size, None, None)
    cut = TableEdit(reader, found, change).cut
    if found.smallest is None:
        raise UsageError(
            "nothing would be left of it, and a table without entries is none",
            path=file.name,
            advice="Edit its database instead",
        )
    return reader.pieces(found)[0], cut


def edit_log(
    listing: Listing, file: PlannedFile, change: Change, options: Options
) -> tuple[Sequence[Extent], Sequence[Removed]]:
    """See `codec.capability.EditFile`."""
    _refuse_null(change)
    found = logs.examine(listing, file.name, 0, file.size, options)
    edited = LogEdit(listing, found, change, options)
    return list(edited.pieces()), edited.cut


def _refuse_null(change: Change) -> None:
    null = [name for name, value in change.values.items() if value is None]
    if null:
        raise UsageError(
            f"{null[0]} can't be null here",
            advice="Give it other bytes, none for example; or drop the entries",
        )
    if "key" in change.values:
        raise UsageError("a key can't be redacted: it says where an entry lies", advice="Drop the entries")


def _sound(found: Iterable[Stretch | Hole]) -> Iterator[Stretch]:
    """The frames of a file in which nothing is damaged."""
    return (one for one in found if isinstance(one, Stretch))


# Tables


@dataclass
class _Judged:
    """What becomes of entries."""

    drop: Mask
    redact: Mask

    @classmethod
    def of(cls, rows: pa.RecordBatch, change: Change, kinds: Int64s) -> _Judged:
        drop = change.drops(rows)
        # A deletion has no value.
        return cls(drop, change.redacts(rows) & ~drop & (kinds != DELETION))


class TableEdit:
    """A table in which entries are changed: `found.blocks` says what it is made of."""

    def __init__(self, reader: Tables, found: Table, change: Change) -> None:
        self.reader, self.found, self.change = reader, found, change
        if found.unsupported:
            raise UnsupportedError(
                "the table has blocks or entries of a type that is not known here, so what to change in it can't be seen",
                path=found.file,
                advice="Edit it with the program that wrote it",
            )
        self.cut: list[Removed] = []
        blocks: list[Block] = []
        for one in _sound(reader.walk(ListedFile(reader.listing, found.file, found.size))):
            for portion in portions(one.window, one.frames, reader.limit):
                judged = _Judged.of(_rows(portion, found), change, portion.made.trailers & 0xFF)
                rows = portion.rows
                for i in range(len(portion.frames)):
                    block, _ = reader.block(found, one.window, portion, None, i)
                    low, high = int(rows[i]), int(rows[i + 1])
                    drop, redact = judged.drop[low:high], judged.redact[low:high]
                    if block is not None and (drop.any() or redact.any()):
                        self.cut.append(
                            Removed.edited(
                                found.file,
                                block.start,
                                block.stop,
                                int(drop.sum()),
                                int(redact.sum()),
                                {"file": found.number},
                            )
                        )
                        block = self._block(one.window, portion, i, block, drop, redact)
                    if block is not None:
                        blocks.append(block)
        if self.cut:
            found.blocks = blocks
            found.known = None  # it tells of keys that may be gone

    def _block(
        self, window: Window, portion: Portion, i: int, block: Block, drop: Mask, redact: Mask
    ) -> Block | None:
        """A block without what is dropped; None where nothing is left."""
        made, low = portion.made, int(portion.rows[i])
        stay = (np.flatnonzero(~drop) + low).tolist()
        if not stay:
            return None
        new = self.change.values.get("value", b"") or b""
        keys = [made.keys[int(made.key_ends[n]) : int(made.key_ends[n + 1])].tobytes() for n in stay]
        values = [
            new
            if redact[n - low]
            else made.values[int(made.value_ends[n]) : int(made.value_ends[n + 1])].tobytes()
            for n in stay
        ]
        trailers = made.trailers[stay]
        part = Unpacked(
            len(stay), _joined(keys), _ends(keys), trailers, _joined(values), _ends(values),
            np.array([len(stay)], np.int64), np.zeros(1, np.int64),
        )  # fmt: skip
        data = packed(part, int(portion.measured[i, INTERVAL]) or DEFAULT_INTERVAL)
        kind, content = stored(data, compression(window, portion.frames, i))
        sequences = trailers >> 8 & MAX_SEQUENCE
        return replace(
            block, rows=len(stay), first=portion.key(stay[0]), last=portion.key(stay[-1]), key=None,
            low=int(sequences.min()), high=int(sequences.max()), made=sealed(content, kind),
        )  # fmt: skip


def _joined(parts: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    # The kernel that reads keys looks beyond the last one.
    return np.frombuffer(b"".join(parts) + bytes(8), np.uint8)


def _ends(parts: Sequence[bytes]) -> Int64s:
    return np.cumsum([0, *(len(one) for one in parts)], dtype=np.int64)


def _rows(portion: Portion, found: Table) -> pa.RecordBatch:
    """Its entries, as the columns of a table's rows."""
    made = portion.made
    deleted = made.trailers & 0xFF == DELETION
    starts = np.repeat(portion.frames.start, made.per_block)
    return pa.RecordBatch.from_pydict(
        {
            "key": _binary(made.keys, made.key_ends),
            "value": _binary(made.values, made.value_ends, deleted),
            "sequence": pa.array(made.trailers >> 8 & MAX_SEQUENCE, pa.int64()),
            "type": pa.array([TYPE_NAMES[int(gone)] for gone in ~deleted], pa.string()),
            "file": pa.array(np.full(made.rows, found.number), pa.int64()),
            "position": pa.array(starts, pa.int64()),
            "level": pa.nulls(made.rows, pa.int64()),
        }
    )


def _binary(data: Any, ends: Int64s, null: Mask | None = None) -> pa.Array:
    found = pa.Array.from_buffers(
        pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(data)]
    )
    if null is not None and null.any():
        found = pc.if_else(pa.array(~null), found, pa.scalar(None, found.type))
    return found


# Logs


class LogEdit:
    """A log in which operations are changed."""

    def __init__(self, listing: Listing, found: Log, change: Change, options: Options) -> None:
        self.listing, self.found, self.change, self.options = listing, found, change, options
        self.cut: list[Removed] = []
        self._new: dict[int, list[bytes]] = {}
        """The batches that take the place of one, by where that starts."""
        columns = log.ROWS.names(detail=True)
        for one in _sound(logs.walk_log(ListedFile(listing, found.file, found.size), options)):
            context = log.CODEC.context(found.file, Options(log.CODEC.options))
            ends = one.frames.end + one.window.offset
            starts = one.frames.start + one.window.offset
            for decoded in log.CODEC.decode(one.window, one.frames, "rows", columns, context):
                rows = decoded.batch
                kinds = np.array(
                    [name == TYPE_NAMES[1] for name in rows.column("type").to_pylist()], np.int64
                )
                judged = _Judged.of(rows, change, kinds)
                places = np.asarray(rows.column("position"))
                for place in np.unique(places[judged.drop | judged.redact]).tolist():
                    mine = np.flatnonzero(places == place)
                    drop, redact = judged.drop[mine], judged.redact[mine]
                    stop = int(ends[np.searchsorted(starts, place)])
                    self.cut.append(
                        Removed.edited(
                            found.file,
                            place,
                            stop,
                            int(drop.sum()),
                            int(redact.sum()),
                            {"file": found.number},
                        )
                    )
                    self._new[place] = self._batches(rows.slice(int(mine[0]), len(mine)), drop, redact)
        found.rows -= sum(one.rows_lost or 0 for one in self.cut)

    def _batches(self, rows: pa.RecordBatch, drop: Mask, redact: Mask) -> list[bytes]:
        """What is left of a batch: as many as there are runs of sequence numbers."""
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
        found = self.found
        if not self._new:
            yield Copy(found.file, 0, found.size)
            return
        walk = logs.walk_log(ListedFile(self.listing, found.file, found.size), self.options)
        yield from logs.rewritten(walk, found.file, min(self._new), self._records)

    def _records(self, window: Window, frames: Frames) -> tuple[Bytes, Int64s]:
        """Return the records of some frames after the edit."""
        data, stops = logs.unchanged_records(window, frames)
        starts = (frames.start + window.offset).tolist()
        parts: list[bytes] = []
        for start, low, high in zip(starts, stops[:-1].tolist(), stops[1:].tolist(), strict=True):
            parts += self._new.get(start, [data[low:high].tobytes()])
        return np.frombuffer(b"".join(parts), np.uint8), _ends(parts)
