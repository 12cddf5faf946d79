"""The views of a database: which files are read side by side for them, and how their rows become one.

Source: `DBIter` and `MergingIterator` of LevelDB: of each user key the entry with the largest sequence number counts, up to the last
one that the database has given out; it is passed over where it is a deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Group, Listing, Part, Plan, PlannedFile, Role, Run, Stream, View
from logwright.codec.columns import constant, contents, numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.leveldb import log, table
from logwright.codec.leveldb.census import BUDGET, LIVE, STATE_NAMES, Census
from logwright.codec.leveldb.framing import BATCH_HEADER
from logwright.codec.leveldb.keys import BYTEWISE, TYPE_NAMES, VALUE
from logwright.codec.leveldb.merge import Shape, merge, sorted_run
from logwright.codec.leveldb.table import readable
from logwright.codec.leveldb.walk import Reader, Stretch, walk
from logwright.codec.option import Options
from logwright.codec.table import Column, Table

NAME = "leveldb.db"
LOG, TABLE = log.CODEC.name, table.CODEC.name
KEY = "key"
HISTORY = Table(
    "history",
    (
        *(column for column in table.ROWS.columns if not column.detail),
        Column(
            "state",
            pa.string(),
            "live: what an iterator gives; overwritten, deleted: by the next operation of the key, and of a deletion nothing is left; "
            "unreferenced: of a file that the database does not read, or newer than its last sequence number",
            nullable=False,
        ),
        Column("file", pa.int64(), "number of the file, from its name"),
        Column("position", pa.int64(), "byte of the file where the operation's batch or block starts"),
        Column("level", pa.int32(), "level of the file; null for a log, and where no manifest says it"),
    ),
    "One row an operation, file by file.",
)
VIEWS = {
    view.name: view
    for view in (
        View("live", TABLE, "rows", "what an iterator gives: the newest value of each key, in order"),
        View("history", TABLE, "rows", "every operation of all files, and what became of it", HISTORY),
        View("batches", LOG, "records", "the write batches of the logs"),
    )
}
_STATES = contents(pa.string(), [name.encode() for name in STATE_NAMES])


def live(plan: Plan, comparator: str, visible: int | None) -> Group | None:
    """The files that an iterator reads: logs first, as the newest, then level 0 from its newest table on, then the levels.

    `visible` is the last sequence number of which tables have rows.
    """
    files = [file for file in plan.files if file.role is Role.PRIMARY]
    how = {"comparator": comparator, "visible": visible}
    logs = tuple(_part(file, comparator) for file in files if file.codec == LOG)
    tables = [file for file in files if file.codec == TABLE]
    if comparator != BYTEWISE:
        runs = [Run((_part(file, comparator),)) for file in tables]
        return _group([*runs, Run(logs, {"log": True})], how)
    levels: dict[int, list[Part]] = {}
    alone = []
    for file in tables:
        level = file.hints.get("level")
        if level and "bounds" in file.hints:
            levels.setdefault(level, []).append(_part(file, comparator))
        else:
            alone.append(Run((_part(file, comparator),)))
    runs = [Run(logs, {"log": True}), *alone]
    for _, parts in sorted(levels.items()):
        runs += [Run(tuple(one)) for one in _disjoint(parts)]
    return _group(runs, how)


def _group(runs: Sequence[Run], how: Mapping[str, Any]) -> Group | None:
    runs = [run for run in runs if run.parts]
    return Group(tuple(runs), how, KEY) if runs else None


def _part(file: PlannedFile, comparator: str) -> Part:
    bounds = {KEY: file.hints["bounds"]} if comparator == BYTEWISE and "bounds" in file.hints else {}
    return Part(file.name, file.codec or "", "rows", file.hints, bounds=bounds)


def _disjoint(parts: Sequence[Part]) -> list[list[Part]]:
    """The tables of a level in runs that may be read one after the other: one run where the level is as it should be."""
    runs: list[list[Part]] = []
    for part in sorted(parts, key=lambda one: one.bounds[KEY]):
        low = part.bounds[KEY][0]
        run = next((run for run in runs if run[-1].bounds[KEY][1] <= low), None)
        if run is None:
            runs.append([part])
        else:
            run.append(part)
    return runs


def batches(plan: Plan) -> list[Part]:
    """The logs, one after the other."""
    return [
        Part(file.name, LOG, "records", file.hints)
        for file in plan.files
        if file.role is Role.PRIMARY and file.codec == LOG
    ]


def last_sequence(listing: Listing, plan: Plan) -> int | None:
    """The last sequence number that the database has given out (`VersionSet::LastSequence` after `DBImpl::Recover`); None where no
    manifest tells, or no table has rows that could be newer."""
    known: int | None = plan.facts["last_sequence"]
    files = [file for file in plan.files if file.role is Role.PRIMARY]
    if known is None or "error" in plan.facts or not any(file.codec == TABLE for file in files):
        return None
    for file in files:
        if file.codec != LOG:
            continue
        context = log.CODEC.context(file.name, Options(log.CODEC.options), **file.hints)
        for found in walk(Reader(listing, file.name, file.size), log.CODEC, context):
            if isinstance(found, Stretch) and len(found.frames):
                head = found.frames.header
                head = head[head["size"] >= BATCH_HEADER]
                last = head["sequence"].astype(np.int64) + head["count"] - 1
                known = max(known, int(last.max(initial=0)))
    return known


def history(plan: Plan, comparator: str, visible: int | None) -> Group | None:
    """Every log and table, each a run of its own, in the order of the plan."""
    runs = [
        Run((_part(file, comparator),), {"referenced": file.role is Role.PRIMARY, "log": file.codec == LOG})
        for file in plan.files
        if file.codec in (LOG, TABLE)
    ]
    return _group(runs, {"comparator": comparator, "visible": visible})


def combine(
    view: str,
    how: Mapping[str, Any],
    runs: Sequence[Stream],
    columns: Sequence[str],
    tell: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    """See `codec.base.Combines`."""
    if view == "history":
        yield from _history(how, runs, columns)
    elif how["comparator"] == BYTEWISE:
        yield from _iterate(how, runs, columns, tell)
    else:
        yield from _unordered(how, runs, columns)


def _needed(columns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """What is to be read for these columns, and which of them tells deletions."""
    marker = "value" if "value" in columns else "type"
    needed = dict.fromkeys((KEY, "sequence", *(one for one in columns if one != "type"), marker))
    return tuple(needed), marker


def _iterate(
    how: Mapping[str, Any], runs: Sequence[Stream], columns: Sequence[str], tell: Callable[[Fault], None]
) -> Iterator[pa.RecordBatch]:
    needed, marker = _needed(columns)
    told: set[bool] = set()

    def disorder(before: bytes, key: bytes) -> None:
        if not told:
            told.add(True)
            text = (
                f"the keys of a table are not in the order of {BYTEWISE}: {readable(key)[:80]} comes behind "
                f"{readable(before)[:80]}"
            )
            tell(
                Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, "LevelDB's iterators may pass over keys")
            )

    # All that logs hold was given out; of tables only what the manifest knows of, or a log.
    shape, all_seen = Shape(marker, how["visible"]), Shape(marker)
    streams = [
        sorted_run(run(needed), all_seen) if run.how.get("log") else map(shape.seen, run(needed))
        for run in runs
    ]
    for batch in merge(streams, all_seen, disorder):
        yield _chosen(batch, columns)


def _chosen(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The columns of values."""
    arrays = [
        constant(pa.string(), TYPE_NAMES[VALUE], batch.num_rows) if name == "type" else batch.column(name)
        for name in columns
    ]
    return _batch(arrays, table.ROWS, columns, batch.num_rows)


def _batch(arrays: Sequence[pa.Array], of: Table, columns: Sequence[str], rows: int) -> pa.RecordBatch:
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(arrays), schema=of.schema(columns))


def _unordered(
    how: Mapping[str, Any], runs: Sequence[Stream], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    needed = _needed(columns)[0]
    seen = _limits(how, runs)
    census = Census(runs, [True] * len(runs), seen, BUDGET).take()
    for batch, states in census.rows(needed):
        chosen = states == LIVE
        yield _chosen(batch if chosen.all() else batch.filter(pa.array(chosen)), columns)


def _limits(how: Mapping[str, Any], runs: Sequence[Stream]) -> list[int | None]:
    return [None if run.how.get("log") else how["visible"] for run in runs]


def _history(
    how: Mapping[str, Any], runs: Sequence[Stream], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    referenced = [bool(run.how.get("referenced")) for run in runs]
    wanted = tuple(name for name in columns if name != "state")
    if "state" not in columns:
        for run in runs:
            for batch in run(wanted or ("sequence",)):
                yield _with_states(batch, columns, None)
        return
    census = Census(runs, referenced, _limits(how, runs), BUDGET).take()
    for batch, states in census.rows(wanted or ("sequence",)):
        yield _with_states(batch, columns, _STATES.take(numbers(pa.int64(), states.astype(np.int64))))


def _with_states(batch: pa.RecordBatch, columns: Sequence[str], states: pa.Array | None) -> pa.RecordBatch:
    arrays = [states if name == "state" else batch.column(name) for name in columns]
    return _batch(arrays, HISTORY, columns, batch.num_rows)
