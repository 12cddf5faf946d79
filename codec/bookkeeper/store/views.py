"""The views of a bookie: the entries of its ledgers, the ledgers, and the journals.

Entries come from the entry logs and from the part of the journals that the bookie replays, which is newer. Of several copies of an entry
the last one counts: journals after entry logs, and entry logs by id. Copies with a wrong digest do not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s, stretches
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import read_map
from logwright.codec.bookkeeper.pulsar.messages import ENTRY_COLUMNS, MESSAGES, message_rows
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import opened
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.follow import file_bounds
from logwright.codec.bookkeeper.store.stored import ENTRIES
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.capability import Report
from logwright.codec.deferred import compute as pc
from logwright.codec.frames.walk import ListedFile
from logwright.codec.host import Spill, host
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import FILE_POSITION, Group, Part, Run, Stream, View
from logwright.codec.table import Column, Table

compute: Any = pc
_CHUNK = 512 << 20
"""Bytes of entries that are sorted in memory. If there are more, they go through a temporary file."""
_HELD = 64 << 20
"""Bytes of rows that wait for the temporary file."""
_ROWS = 1 << 15
LEDGERS = Table(
    "ledgers",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("first_entry_id", pa.int64(), "its first entry here"),
        Column("last_entry_id", pa.int64(), "its last entry here"),
        Column("entries", pa.int64(), "number of its entries here", nullable=False),
        Column("gaps", pa.int64(), "number of entries between first and last that are not here", nullable=False),
        Column("bytes", pa.int64(), "bytes of the payloads of these entries", nullable=False),
        Column("last_add_confirmed", pa.int64(), "the highest last-add-confirmed of entries, or the explicit one"),
        Column("fenced", pa.bool_(), "whether it is fenced; null if unknown"),
        Column("master_key", pa.bool_(), "whether its master key is in the index or in a journal; null if unknown"),
        Column("indexed", pa.bool_(), "whether the index has it; null if unknown"),
        Column("files", pa.list_(pa.string()), "the entry logs and journals with its entries", nullable=False),
    ),
    "One row per ledger.",
    key=("ledger_id",),
)  # fmt: skip
VIEWS = {
    view.name: view
    for view in (
        View(
            "entries", tree.ENTRY_LOG, "rows", "the entries of all ledgers, with the journals replayed over the entry logs",
            ENTRIES, "older copies of entries, and entries in journals before lastMark",
        ),
        View("ledgers", tree.ENTRY_LOG, "rows", "the ledgers: range of entries, bytes, gaps, and state in the index", LEDGERS),
        View(
            "pulsar", tree.ENTRY_LOG, "rows", "the messages of Apache Pulsar in the entries, with batches divided",
            MESSAGES, "what is stored around messages: the entries themselves",
        ),
        View("journal", tree.JOURNAL, "rows", "all records of the journals in order"),
        View(
            "entrylog", tree.ENTRY_LOG, "rows", "all entries in the entry logs, in the order of the files",
            leaves="entries that only the journals have",
        ),
    )
}  # fmt: skip
_BY_FILE = {"journal": tree.JOURNAL, "entrylog": tree.ENTRY_LOG}
"""The codecs of the views that show all rows of a file."""


@dataclass(frozen=True)
class IndexedLedger:
    """The state of a ledger in its index; None if its header is unreadable."""

    fenced: bool | None
    key: bool | None
    lac: int | None


def parts(listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
    """See `codec.layout.Layout.parts`."""
    if view in _BY_FILE:
        bounds = file_bounds(plan, view) or {}
        return [
            Part(
                file.name, _BY_FILE[view], "rows", file.hints,
                bounds={FILE_POSITION: bounds[file.name]} if file.name in bounds else {},
            )
            for file in plan.files
            if file.codec == _BY_FILE[view] and file.role is Role.PRIMARY
        ]  # fmt: skip
    bookie = Tree(listing, options)
    runs = []
    for file in plan.files:
        if file.role is not Role.PRIMARY or (file.codec == tree.JOURNAL and file.name not in bookie.replayed):
            continue
        bounds = _bounds(listing, file.name, file.size) if file.codec == tree.ENTRY_LOG else {}
        part = Part(file.name, file.codec or "", "rows", file.hints, bounds=bounds)
        params = {
            "file": file.name,
            "start": bookie.replayed.get(file.name, 0),
            "journal": file.codec == tree.JOURNAL,
        }
        runs.append(Run((part,), params))
    params = {"indexed": indexed(bookie)} if view == "ledgers" else {}
    return [Group(tuple(runs), params, key="ledger_id")] if runs or params.get("indexed") else []


def _bounds(listing: Listing, name: str, size: int) -> Mapping[str, tuple[Any, Any]]:
    """Return the range of ledgers in a log with a readable ledgers map."""
    ledgers_map = read_map(ListedFile(listing, name, size).pread, size)
    if ledgers_map is None or ledgers_map.error or not ledgers_map.sizes:
        return {}
    return {"ledger_id": (min(ledgers_map.sizes), max(ledgers_map.sizes))}


def indexed(bookie: Tree) -> dict[int, IndexedLedger] | None:
    """Return the state of each ledger in the index; None if the index cannot be read."""
    if bookie.storage == tree.DB:
        if not rocks.available():
            return None
        try:
            databases = [
                rocks.read_ledgers(bookie.listing, f"{place.prefix}{tree.LEDGERS}/")
                for place in bookie.indexes
            ]
        except JavaError:
            return None
        return {
            ledger: IndexedLedger(data.fenced, bool(data.key), _lac(data.lac))
            for ledgers in databases
            for ledger, data in ledgers.items()
        }
    overlay = Overlay(bookie.listing)
    out = {}
    for ledger, name in bookie.index_files.items():
        file, error = opened(overlay, name, 1 << 20)
        if error is None:
            out[ledger] = IndexedLedger(file.fenced(), bool(file.key), _lac(file.lac))
        else:
            out[ledger] = IndexedLedger(None, None, None)
    return out


def _lac(buffer: bytes | None) -> int | None:
    return None if buffer is None or len(buffer) < 16 else int.from_bytes(buffer[8:16], "big", signed=True)


# Merging


@dataclass
class Located:
    """Entries by ledger and entry: their ids, and the run, the position and the approximate size of the copy that counts."""

    ledger: Int64s
    entry: Int64s
    run: Int64s
    position: Int64s
    size: Int64s

    def __len__(self) -> int:
        return len(self.ledger)


def _entry_rows(batch: pa.RecordBatch, params: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the entries of a batch that the view shows: no other records, and nothing before the mark."""
    if not params["journal"]:
        return batch
    mask = compute.and_(
        compute.is_valid(batch["entry_id"]), compute.greater_equal(batch["position"], params["start"])
    )
    return batch.filter(mask)


def locate(runs: Sequence[Stream]) -> Located:
    """Return the copy that counts of each entry."""
    blocks = [np.empty((5, 0), np.int64)]
    for number, run in enumerate(runs):
        for batch in run(("ledger_id", "entry_id", "position")):
            rows = _entry_rows(batch, run.params)
            if not rows.num_rows:
                continue
            position = np.asarray(rows["position"], np.int64)
            size = np.diff(position, append=position[-1:] + 1024)
            ids = (np.asarray(rows[name], np.int64) for name in ("ledger_id", "entry_id"))
            blocks.append(np.stack((*ids, np.full(len(position), number), position, size)))
    ledger, entry, run_of, position, size = np.concatenate(blocks, axis=1)
    order = np.lexsort((position, run_of, entry, ledger))
    ledger, entry = ledger[order], entry[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (ledger[1:] != ledger[:-1]) | (entry[1:] != entry[:-1])
    order = order[last]
    return Located(ledger[last], entry[last], run_of[order], position[order], size[order])


def combine(
    view: str, params: Mapping[str, Any], runs: Sequence[Stream], columns: Sequence[str], report: Report
) -> Iterator[pa.RecordBatch]:
    """See `codec.capability.Combine`."""
    if view == "ledgers":
        yield _ledgers(params["indexed"], runs, columns)
    elif view == "pulsar":
        yield from message_rows(_entries(runs, ENTRY_COLUMNS), columns, report)
    else:
        yield from _entries(runs, columns)


def _entries(runs: Sequence[Stream], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    located = locate(runs)
    names = [run.params["file"] for run in runs]
    read = [name for name in columns if name not in _OWN]
    edges = _edges(located.size)
    if len(edges) <= 2 or not read:
        blocks = list(_located_rows(located, runs, read)) if read else []
        for start, stop in itertools.pairwise(edges):
            yield from _chunk(located, start, stop, names, columns, blocks)
        return
    with host().spill() as spill:
        spilled = _Spilled(spill, np.array(edges))
        for block in _located_rows(located, runs, read):
            spilled.add(block)
        for i, (start, stop) in enumerate(itertools.pairwise(edges)):
            yield from _chunk(located, start, stop, names, columns, spilled.blocks(i))


_OWN = ("ledger_id", "entry_id", "file", "position")
"""Columns that need no second read."""
_ORDER = "order"
"""The column with the index of a row in `Located`."""


def _edges(sizes: Int64s) -> list[int]:
    """Divide the located entries into chunks of about `_CHUNK` bytes. Return the start of each, and the end of the last one."""
    ends = np.cumsum(np.maximum(sizes, 1))
    edges = [0]
    while edges[-1] < len(sizes):
        limit = (int(ends[edges[-1] - 1]) if edges[-1] else 0) + _CHUNK
        edges.append(max(int(np.searchsorted(ends, limit, "right")), edges[-1] + 1))
    return edges


def _by_run(located: Located, runs: int) -> Iterator[Int64s]:
    """Yield the indices of the located entries of each run, by position."""
    order = np.lexsort((located.position, located.run))
    edges = np.searchsorted(located.run[order], np.arange(runs + 1))
    for start, stop in itertools.pairwise(edges.tolist()):
        yield order[start:stop]


def _located_rows(
    located: Located, runs: Sequence[Stream], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read each run once, and yield the rows of located entries, with the column `_ORDER`."""
    for run, index in zip(runs, _by_run(located, len(runs)), strict=True):
        if not len(index):
            continue
        known = located.position[index]
        for batch in run(list(dict.fromkeys(("position", *columns)))):
            places = np.asarray(batch["position"], np.int64)
            at = np.minimum(np.searchsorted(known, places), len(known) - 1)
            mask = known[at] == places
            if mask.any():
                rows = batch.filter(pa.array(mask)).select(columns)
                yield rows.append_column(_ORDER, pa.array(index[at[mask]]))


class _Spilled:
    """Rows in a temporary file, grouped by chunk: each is written once and read once. About `_HELD` bytes are held in memory."""

    def __init__(self, spill: Spill, edges: Int64s) -> None:
        self._spill, self._edges = spill, edges
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._held = 0
        self._places: dict[int, list[tuple[int, int]]] = {}
        self._schema: pa.Schema | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._schema = rows.schema
        chunks = np.searchsorted(self._edges, np.asarray(rows[_ORDER], np.int64), "right") - 1
        order = np.argsort(chunks, kind="stable")
        rows, chunks = rows.take(pa.array(order)), chunks[order]
        for start, stop in stretches(chunks):
            self._waiting.setdefault(int(chunks[start]), []).append(rows.slice(start, stop - start))
        self._held += rows.nbytes
        if self._held > _HELD:
            self._flush()

    def _flush(self) -> None:
        for chunk, batches in self._waiting.items():
            data = pa.concat_batches(batches).serialize()
            self._places.setdefault(chunk, []).append((self._spill.append(data), data.size))
        self._waiting, self._held = {}, 0

    def blocks(self, chunk: int) -> list[pa.RecordBatch]:
        """Return the rows of a chunk, in no order."""
        self._flush()
        return [
            pa.ipc.read_record_batch(pa.py_buffer(self._spill.read(at, size)), self._schema)
            for at, size in self._places.get(chunk, ())
        ]


def _chunk(
    located: Located,
    start: int,
    stop: int,
    names: Sequence[str],
    columns: Sequence[str],
    blocks: Sequence[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the entries `[start, stop)`. `blocks` have the columns that are read."""
    own: dict[str, pa.Array] = {
        "ledger_id": pa.array(located.ledger[start:stop]),
        "entry_id": pa.array(located.entry[start:stop]),
        "file": pa.array(names, pa.string()).take(pa.array(located.run[start:stop])),
        "position": pa.array(located.position[start:stop]),
    }
    table = pa.table({name: own[name] for name in columns if name in own} or {"position": own["position"]})
    read = [name for name in columns if name not in own]
    if read:
        order = np.concatenate([np.empty(0, np.int64), *(np.asarray(block[_ORDER]) for block in blocks)])
        if len(order) != len(table):  # a file has changed since the entries were located
            table = table.take(pa.array(np.sort(order) - start))
        if blocks:
            rows = pa.Table.from_batches(blocks).take(pa.array(np.argsort(order, kind="stable")))
            for name in read:
                table = table.append_column(name, rows[name])
    schema = ENTRIES.schema(columns)
    if len(table):
        for batch in table.select(list(columns)).cast(schema).to_batches(max_chunksize=_ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _ledgers(
    known: Mapping[int, IndexedLedger] | None, runs: Sequence[Stream], columns: Sequence[str]
) -> pa.RecordBatch:
    located = locate(runs)
    confirmed, sizes, marks = _totals(located, runs)
    ledgers = sorted({*located.ledger.tolist(), *(known or ()), *marks})
    starts = np.searchsorted(located.ledger, ledgers, "left")
    stops = np.searchsorted(located.ledger, ledgers, "right")
    rows = []
    for ledger, start, stop in zip(ledgers, starts.tolist(), stops.tolist(), strict=True):
        entry = located.entry[start:stop]
        index = (known or {}).get(ledger)
        fenced, key, lac = marks.get(ledger, (False, False, None))
        confirms = [
            value
            for value in (int(confirmed[start:stop].max()) if stop > start else None, lac)
            if value is not None
        ]
        if index is not None and index.lac is not None:
            confirms.append(index.lac)
        unknown = known is None or (index is not None and index.fenced is None)
        rows.append(
            {
                "ledger_id": ledger, "first_entry_id": int(entry[0]) if len(entry) else None,
                "last_entry_id": int(entry[-1]) if len(entry) else None, "entries": len(entry),
                "gaps": int(entry[-1] - entry[0] + 1 - len(entry)) if len(entry) else 0,
                "bytes": int(sizes[start:stop].sum()),
                "last_add_confirmed": max(confirms) if confirms else None,
                "fenced": True if fenced or (index is not None and index.fenced) else None if unknown else False,
                "master_key": True if key or (index is not None and index.key) else None if unknown else False,
                "indexed": None if known is None else index is not None,
                "files": [runs[i].params["file"] for i in np.unique(located.run[start:stop]).tolist()],
            }
        )  # fmt: skip
    schema = LEDGERS.schema(columns)
    return pa.RecordBatch.from_pylist([{name: row[name] for name in columns} for row in rows], schema=schema)


def _totals(
    located: Located, runs: Sequence[Stream]
) -> tuple[Int64s, Int64s, dict[int, tuple[bool, bool, int | None]]]:
    """Return the last-add-confirmed and the payload size of each located entry, and for each ledger the state in the journals:
    fenced, with a master key, explicit last-add-confirmed."""
    confirmed, sizes = np.full(len(located), -1, np.int64), np.zeros(len(located), np.int64)
    marks: dict[int, tuple[bool, bool, int | None]] = {}
    for run, indices in zip(runs, _by_run(located, len(runs)), strict=True):
        extra = ("kind", "data", "ledger_id", "entry_id") if run.params["journal"] else ()
        for batch in run(("position", "last_add_confirmed", "payload", *extra)):
            if run.params["journal"]:
                _note_records(batch, marks)
                batch = _entry_rows(batch, run.params)
            places = np.asarray(batch["position"], np.int64)
            if not len(indices) or not len(places):
                continue
            index = np.minimum(np.searchsorted(located.position[indices], places), len(indices) - 1)
            mask = located.position[indices][index] == places
            at = indices[index[mask]]
            confirmed[at] = np.asarray(compute.fill_null(batch["last_add_confirmed"], -1), np.int64)[mask]
            sizes[at] = np.asarray(compute.fill_null(compute.binary_length(batch["payload"]), 0), np.int64)[
                mask
            ]
    return confirmed, sizes, marks


def _note_records(batch: pa.RecordBatch, marks: dict[int, tuple[bool, bool, int | None]]) -> None:
    rows = batch.filter(compute.is_null(batch["entry_id"])).select(["ledger_id", "kind", "data"])
    for row in rows.to_pylist():
        fenced, key, lac = marks.get(row["ledger_id"], (False, False, None))
        if row["kind"] == "fence":
            fenced = True
        elif row["kind"] == "master_key":
            key = True
        elif row["kind"] == "explicit_lac":
            value = _lac(row["data"])
            lac = value if lac is None or (value is not None and value > lac) else lac
        marks[row["ledger_id"]] = fenced, key, lac
