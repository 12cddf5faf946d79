"""The views of a database: which files are merged for each, and how.

Source: `DBIter` and `MergingIterator` of LevelDB. Of each user key, the entry with the largest visible sequence number counts. If it is a
deletion, the key is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.columns import batch_of, constant, contents, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator, comparator_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.formats.table.tables import ROWS
from logwright.codec.leveldb.keys import BYTEWISE, TYPE_NAMES, VALUE, readable
from logwright.codec.leveldb.store.entry_states import BUDGET, LIVE, STATE_NAMES, EntryStates
from logwright.codec.leveldb.store.newest import Shape, first_disorder, merge_newest, sort_newest
from logwright.codec.leveldb.store.sorted_run import with_sort_keys, with_stored_keys
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.store.view import Group, Part, RowStream, Run, View
from logwright.codec.table import Column, Table
from logwright.codec.window import Frames, Window

NAME = "leveldb.db"
LOG, TABLE = log.CODEC.name, table.CODEC.name
KEY = "key"
MANY = 8
"""Maximum number of level 0 tables that are merged without reading their key ranges. LevelDB slows down writes from there on."""
IN_MEMORY = 128 << 20
"""Bytes of logs that are sorted in memory. Larger logs are split by key range and read once for each range."""
SAMPLE = 64 << 10
"""Bytes of a log for each key that is sampled to find these ranges."""
HISTORY = Table(
    "history",
    (
        *(column for column in ROWS.columns if not column.detail),
        Column(
            "state",
            pa.string(),
            "live: returned by an iterator; overwritten, deleted: by the next operation of the key (a deletion leaves nothing); "
            "unreferenced: in a file that the database does not read, or newer than its last sequence number",
            nullable=False,
        ),
        Column("file", pa.int64(), "number of the file, from its name"),
        Column("position", pa.int64(), "byte of the file where the operation's batch or block starts"),
        Column("level", pa.int32(), "level of the file; null for a log, or without a manifest"),
    ),
    "One row per operation, file by file.",
)
VIEWS = {
    view.name: view
    for view in (
        View(
            "live",
            TABLE,
            "rows",
            "what an iterator returns: the newest value of each key, in order",
            leaves="overwritten and deleted entries",
        ),
        View("rows", TABLE, "rows", "every operation of the tables and logs in use, file by file"),
        View("history", TABLE, "rows", "every operation of all files, and its state", HISTORY),
        View("batches", LOG, "records", "the write batches of the logs"),
    )
}
_STATES = contents(pa.string(), [name.encode() for name in STATE_NAMES])


def parts(listing: Listing, plan: Plan, view: str) -> Sequence[Part | Group]:
    """See `codec.layout.Layout.parts`."""
    comparator = plan.facts["comparator"]
    if view == "rows":
        return [_part(file, comparator) for file in _primary(plan, TABLE, LOG)]
    if view == "batches":
        return [Part(file.name, LOG, "records", file.hints) for file in _primary(plan, LOG)]
    params = {"comparator": comparator, "visible": last_sequence(listing, plan)}
    if view == "history":
        return _group(_each(plan, comparator), params)
    order = comparator_of(comparator)
    if not order.known:
        runs = [Run((_part(file, comparator),)) for file in _primary(plan, TABLE)]
        return _group([*runs, _logs(plan)], params)
    groups = _group([_logs(plan), *_tables(listing, plan, order)], params)
    if not groups or not order.bytewise:
        return groups
    return _cut(groups[0], _splitters(listing, _primary(plan, LOG)))


def _primary(plan: Plan, *codecs: str) -> list[PlannedFile]:
    return [file for file in plan.files if file.role is Role.PRIMARY and file.codec in codecs]


def _group(runs: Sequence[Run], params: Mapping[str, Any]) -> list[Group]:
    runs = [run for run in runs if run.parts]
    return [Group(tuple(runs), params, KEY, ordered=True)] if runs else []


def _part(file: PlannedFile, comparator: str, bounds: tuple[bytes, bytes] | None = None) -> Part:
    if bounds is None and comparator == BYTEWISE:
        bounds = file.hints.get("bounds")
    return Part(
        file.name, file.codec or "", "rows", file.hints, bounds={} if bounds is None else {KEY: bounds},
        leftover=file.role is Role.LEFTOVER,
    )  # fmt: skip


def _logs(plan: Plan) -> Run:
    """The logs, whose rows are the newest."""
    return Run(tuple(_part(file, "") for file in _primary(plan, LOG)), {"log": True})


Bounded = tuple[Part, bytes, bytes]
"""A table, and the sort keys of its smallest and largest user key."""


def _tables(listing: Listing, plan: Plan, order: Comparator) -> list[Run]:
    """Return the tables of level 0, newest first, then those of each level one after the other."""
    levels: dict[int, list[Bounded]] = {}
    alone: list[PlannedFile] = []
    for file in _primary(plan, TABLE):
        level = file.hints.get("level")
        if level and "bounds" in file.hints:
            levels.setdefault(level, []).append(_bounded(file, file.hints["bounds"], order))
        else:
            alone.append(file)
    if len(alone) <= MANY:
        runs = [Run((_part(file, order.name),)) for file in alone]
    else:
        # Larger numbers of tables rarely share a key range. Without a manifest, read it from the tables.
        known = [
            _bounded(file, file.hints.get("bounds") or key_range(listing, file, order), order)
            for file in alone
        ]
        runs = [Run(tuple(level_tables)) for level_tables in _disjoint(known, strictly=True)]
    for _, level_tables in sorted(levels.items()):
        runs += [Run(tuple(run)) for run in _disjoint(level_tables)]
    return runs


def _bounded(file: PlannedFile, bounds: tuple[bytes, bytes], order: Comparator) -> Bounded:
    # Rows are filtered by the bytes of their keys, which bounds in another order do not limit.
    part = _part(file, order.name, bounds if order.bytewise else None)
    return part, order.user(bounds[0]), order.user(bounds[1])


def _disjoint(parts: Sequence[Bounded], *, strictly: bool = False) -> list[list[Part]]:
    """Group tables into runs that can be read one after the other. A sound level is one run.

    If a key ends one table and begins the next, the first table has its newest rows. Outside of a level (`strictly`) this is unknown.
    """
    runs: list[list[Bounded]] = []
    for part in sorted(parts, key=lambda bounded: bounded[1:]):
        low = part[1]
        run = next(
            (run for run in runs if (high := run[-1][2]) < low or (high == low and not strictly)), None
        )
        if run is None:
            runs.append([part])
        else:
            run.append(part)
    return [[part for part, _, _ in run] for run in runs]


def key_range(
    listing: Listing, file: PlannedFile, order: Comparator = BYTEWISE_COMPARATOR
) -> tuple[bytes, bytes]:
    """Return the smallest and the largest user key that can be read from a table."""
    keys: list[bytes] = []
    walk = walk_file(listing, file, table.CODEC)
    for window, frames in good_frames(walk):
        frames = frames.pick(frames.header["kind"] == DATA)
        if table.CODEC.frame_bounds(frames, KEY)[0] is not None:
            # The index bounds the keys in between.
            frames = frames.pick(slice(None, None, max(1, len(frames) - 1)))
        for decoded in table.CODEC.decode(window, frames, "rows", (KEY,), walk.context):
            column = decoded.batch.column(KEY)
            if order.bytewise:
                keys += [reduce(column).as_py() for reduce in (pc.min, pc.max) if len(column)]
            else:
                edges = column.to_pylist()
                keys += [edge(edges, key=order.user) for edge in (min, max) if edges]
    return min(keys, key=order.user, default=b""), max(keys, key=order.user, default=b"")


def last_sequence(listing: Listing, plan: Plan) -> int | None:
    """Return the last sequence number that the database has used (`VersionSet::LastSequence` after `DBImpl::Recover`).

    None if no manifest records it, or not all tables are in the manifest, or there are no tables.
    """
    known: int | None = plan.facts["last_sequence"]
    levels = [file.hints.get("level") for file in _primary(plan, TABLE)]
    if known is None or "error" in plan.facts or not levels or None in levels:
        return None
    for _, frames, _ in _batches(listing, _primary(plan, LOG)):
        head = frames.header
        head = head[head["size"] >= BATCH_HEADER]
        last = head["sequence"].astype(np.int64) + head["count"] - 1
        known = max(known, int(last.max(initial=0)))
    return known


def _batches(listing: Listing, logs: Sequence[PlannedFile]) -> Iterator[tuple[Window, Frames, Any]]:
    """Yield the good batches of some logs, with their context."""
    for file in logs:
        walk = walk_file(listing, file, log.CODEC)
        yield from ((window, frames, walk.context) for window, frames in good_frames(walk))


def _splitters(listing: Listing, logs: Sequence[PlannedFile]) -> list[bytes]:
    """Return keys that split the logs into ranges that can be sorted in memory, or an empty list if everything fits."""
    total = sum(file.size for file in logs)
    if total <= IN_MEMORY:
        return []
    keys: list[bytes] = []
    for window, frames, context in _batches(listing, logs):
        for decoded in log.CODEC.decode(window, frames, "rows", (KEY,), context):
            column = decoded.batch.column(KEY)
            size = int((frames.end - frames.start).sum())
            step = max(1, len(column) * SAMPLE // max(size, 1))
            keys += column.take(pa.array(np.arange(0, len(column), step))).to_pylist()
    keys.sort()
    count = -(-2 * total // IN_MEMORY)
    found_keys = dict.fromkeys(keys[len(keys) * i // count] for i in range(1, count)) if keys else {}
    return [key for key in found_keys if key > keys[0]]


def _cut(group: Group, splitters: Sequence[bytes]) -> list[Group]:
    """Return the same rows as groups of key ranges."""
    ranges = zip([None, *splitters], [*splitters, None], strict=True)
    return [replace(group, low=low, high=high) for low, high in ranges]


def _each(plan: Plan, comparator: str) -> list[Run]:
    """Return each log and table as a run, in the order of the plan."""
    return [
        Run((_part(file, comparator),), {"referenced": file.role is Role.PRIMARY, "log": file.codec == LOG})
        for file in plan.files
        if file.codec in (LOG, TABLE)
    ]


def combine(
    view: str,
    params: Mapping[str, Any],
    runs: Sequence[RowStream],
    columns: Sequence[str],
    report: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    """See `codec.capability.Combine`."""
    if view == "history":
        yield from _history(params, runs, columns)
    elif comparator_of(params["comparator"]).known:
        yield from _iterate(params, runs, columns, report)
    else:
        yield from _unordered(params, runs, columns)


def _needed(columns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the columns to read, and the one that marks deletions."""
    marker = "value" if "value" in columns else "type"
    needed = dict.fromkeys((KEY, "sequence", *(name for name in columns if name != "type"), marker))
    return tuple(needed), marker


def _iterate(
    params: Mapping[str, Any],
    runs: Sequence[RowStream],
    columns: Sequence[str],
    report: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    needed, marker = _needed(columns)
    order = comparator_of(params["comparator"])
    reported: set[bool] = set()

    def disorder(before: bytes, key: bytes) -> None:
        if not reported:
            reported.add(True)
            report(_disorder(order, before, key))

    def sortable(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches if order.bytewise else (with_sort_keys(batch, order) for batch in batches)

    # The numbers in logs have all been used. In tables, numbers above those of manifest and logs are not visible.
    shape, all_seen = Shape(marker, params["visible"]), Shape(marker)
    for run in runs:
        if run.salvaged and not run.params.get("log"):
            # A merge of such a run gives a key twice, or a value that another run has overwritten.
            keys = first_disorder(sortable(run.survey((KEY, "sequence"))), shape)
            if keys is not None:
                disorder(*keys)
                yield from _unordered(params, runs, columns, order)
                return
    streams = [
        sort_newest(sortable(run(needed)), all_seen)
        if run.params.get("log")
        else map(shape.seen, sortable(run(needed)))
        for run in runs
    ]
    for batch in merge_newest(streams, all_seen, disorder):
        yield _chosen(with_stored_keys(batch), columns)


def _disorder(order: Comparator, before: bytes, key: bytes) -> Fault:
    """Return the fault of a table with these keys one after the other."""
    if before != key:
        text = f"the keys of a table are not in the order of {order.name}"
        shown = f": {readable(key)[:80]} comes after {readable(before)[:80]}"
    else:
        text = "the entries of a key are not in the order of their sequence numbers"
        shown = f": {readable(key)[:80]}"
    text += shown if order.bytewise else ""
    return Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, "LevelDB's iterators may skip keys")


def _chosen(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of rows that are values."""
    arrays = [
        constant(pa.string(), TYPE_NAMES[VALUE], batch.num_rows) if name == "type" else batch.column(name)
        for name in columns
    ]
    return batch_of(arrays, ROWS.schema(columns), batch.num_rows)


def _unordered(
    params: Mapping[str, Any],
    runs: Sequence[RowStream],
    columns: Sequence[str],
    order: Comparator = BYTEWISE_COMPARATOR,
) -> Iterator[pa.RecordBatch]:
    """Return the newest row of each key, file by file."""
    needed = _needed(columns)[0]
    seen = _limits(params, runs)
    entries = EntryStates(runs, [True] * len(runs), seen, BUDGET, order).compute()
    for batch, states in entries.rows(needed):
        chosen = states == LIVE
        yield _chosen(batch if chosen.all() else batch.filter(pa.array(chosen)), columns)


def _limits(params: Mapping[str, Any], runs: Sequence[RowStream]) -> list[int | None]:
    return [None if run.params.get("log") else params["visible"] for run in runs]


def _history(
    params: Mapping[str, Any], runs: Sequence[RowStream], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    referenced = [bool(run.params.get("referenced")) for run in runs]
    stored_columns = tuple(name for name in columns if name != "state") or ("sequence",)
    if "state" in columns:
        order = comparator_of(params["comparator"])
        rows = (
            EntryStates(runs, referenced, _limits(params, runs), BUDGET, order).compute().rows(stored_columns)
        )
    else:
        rows = ((batch, np.empty(0, np.uint8)) for run in runs for batch in run(stored_columns))
    for batch, states in rows:
        names = _STATES.take(numbers(pa.int64(), states.astype(np.int64)))
        arrays = [names if name == "state" else batch.column(name) for name in columns]
        yield batch_of(arrays, HISTORY.schema(columns), batch.num_rows)
