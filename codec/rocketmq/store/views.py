"""The views of a store: its messages, its queues, and index entries by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.config import CONSUMER_OFFSETS
from logwright.codec.rocketmq.formats.consumequeue import FILLER
from logwright.codec.rocketmq.startup.index_service import key_hash
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.follow import IN_ORDER, POSITION, bounds
from logwright.codec.rocketmq.store.log import Log, begins_elsewhere
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Group, Part, Run, Stream, View
from logwright.codec.table import Column, Table

LOG, QUEUE, BATCH, INDEX = (
    "rocketmq.commitlog",
    "rocketmq.consumequeue",
    "rocketmq.batchconsumequeue",
    "rocketmq.indexfile",
)
compute: Any = pc
_OFFSETS = pa.list_(pa.struct([pa.field("group", pa.string()), pa.field("offset", pa.int64())]))
QUEUES = Table(
    "queues",
    (
        Column("topic", pa.string(), "the topic", nullable=False),
        Column("queue_id", pa.int32(), "queue of the topic", nullable=False),
        Column("min_offset", pa.int64(), "offset of its first message; of the next one, if all are deleted"),
        Column("max_offset", pa.int64(), "offset of the next message"),
        Column("messages", pa.int64(), "number of units that point to a message", nullable=False),
        Column(
            "gaps",
            pa.int64(),
            "number of units between the first and the last message that point to no message",
            nullable=False,
        ),
        Column("first_physical_offset", pa.int64(), "physical offset of the first message"),
        Column("last_physical_offset", pa.int64(), "physical offset of the last message"),
        Column(
            "consumer_offsets",
            _OFFSETS,
            "next offset of each consumer group, if config/ has it",
            nullable=False,
        ),
    ),
    "One row per queue.",
    key=("topic", "queue_id"),
)
VIEWS = {
    view.name: view
    for view in (
        View(
            "messages",
            LOG,
            "rows",
            "all messages of the commit log in order, except placeholders of lost ones",
        ),
        View(
            "queues",
            QUEUE,
            "rows",
            "the consume queues with their offsets and those of consumer groups",
            QUEUES,
        ),
        View("index", INDEX, "rows", "the index entries; with key=TOPIC#KEY those of one key"),
    )
}
OPTIONS = (tree.KEY,)


def parts(listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
    """See `codec.layout.Layout.parts`."""
    if view == "queues":
        return _queues(listing, plan)
    if view != "index":
        messages = _messages(listing, plan)
        if view == IN_ORDER:
            return messages
        logs = _without_copies(listing)
        displaced = any(begins_elsewhere(logs, entry) for entry in tree.logs(logs))
        return _with_strays(messages, Log(logs, plan, options)) if displaced else messages
    selected = [
        Part(file.name, INDEX, "rows", file.hints)
        for file in plan.files
        if file.codec == INDEX and file.role is Role.DERIVED
    ]
    key = options[tree.KEY.name]
    if key is None:
        return selected
    topic, _, name = key.partition("#")
    return (
        [Group(tuple(Run((part,)) for part in selected), {"hash": key_hash(topic, name)})] if selected else []
    )


def _messages(listing: Listing, plan: Plan) -> list[Part]:
    """Return the commit log files, in each the messages that are in the file of their physical offset."""
    limits = bounds(listing)
    return [
        Part(file.name, LOG, "rows", {**file.hints, "hides": True}, bounds={POSITION: limits[file.name]})
        for file in plan.files
        if file.role is Role.PRIMARY
    ]


def _without_copies(listing: Listing) -> Listing:
    """Return the listing without the log files that are not read because another one has the same number."""
    overlay = Overlay(listing)
    for name in tree.copies(listing):
        overlay.delete(name)
    return overlay


def _with_strays(parts: Sequence[Part], log: Log) -> list[Part]:
    """Return the parts with the messages that are elsewhere or split by the end of a file, in the order of physical offsets."""
    for _ in log.read():
        pass
    own: dict[str, list[_Place]] = {part.file: [] for part in parts}
    for file in log.files:
        for run in file.runs:
            if run.name in own:
                own[run.name].append(
                    _Place(run.start - run.moved, file.base + run.start, file.base + run.stop)
                )
    for _ in log.strays():
        pass
    strays, taken = _stray_parts({part.file: part for part in parts}, log)
    sizes = {entry.name: entry.size for entry in tree.logs(log.listing)}
    for part in parts:
        size = sizes[part.file]
        high = int(part.hints["number"]) + max(log.config.log_size, size)
        strays += _rests(part, size, high, sorted(own[part.file]), sorted(taken[part.file]))
    return [part for _, part in sorted(strays, key=itemgetter(0))]


class _Place(NamedTuple):
    """A run of messages: where it starts in a file, and its physical offsets."""

    at: int
    phy: int
    stop: int


def _stray_parts(
    parts: Mapping[str, Part], log: Log
) -> tuple[list[tuple[int, Part]], dict[str, list[tuple[int, int]]]]:
    """Return a part for each run that is elsewhere, with its physical offset, and the ranges of each file that these parts read."""
    strays: list[tuple[int, Part]] = []
    taken: dict[str, list[tuple[int, int]]] = {name: [] for name in parts}
    for run, phy, text in log.stray_runs():
        if run.name not in parts:
            continue
        part, (first, *more) = parts[run.name], run.extents
        moved = phy - first.start - int(part.hints["number"])
        stray = replace(
            part, start=first.start, stop=first.stop, bounds={POSITION: (phy, phy + run.stop - run.start)},
            hints={**part.hints, "claims": (0, 1 << 62), "begins": (first.start, moved, text)},
            rest=b"".join(log.listing.read(extent.file, extent.start, len(extent)) for extent in more),
        )  # fmt: skip
        strays.append((phy, stray))
        for extent in run.extents:
            taken[extent.file].append((extent.start, extent.stop))
    return strays, taken


def _rests(
    part: Part, size: int, high: int, own: Sequence[_Place], taken: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, Part]]:
    """Yield the parts of a file of `size` bytes that no other part reads, each with the first physical offset in it. `own`: its messages, whose
    physical offsets are below `high`."""
    number, at = int(part.hints["number"]), 0
    places = [place.at for place in own]
    ends = list(accumulate((place.stop for place in own), max))
    for start, stop in [*taken, (size, size)]:
        if at < start:
            i, j = bisect_left(places, at), bisect_left(places, start)
            moved = own[i - 1].phy - number - own[i - 1].at if i else 0
            claims = max(number, ends[i - 1] if i else 0), high
            hints = {**part.hints, "claims": claims, "begins": (at, moved, "")}
            first = min((place.phy for place in own[i:j]), default=number + at)
            yield first, replace(part, hints=hints, start=at, stop=start if start < size else None)
        at = max(at, stop)


def consumer_offsets(listing: Listing) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the next offset of each consumer group, by queue."""
    offsets: dict[tuple[str, int], list[dict[str, Any]]] = {}
    try:
        rows = CONSUMER_OFFSETS.parse(tree.content(listing, tree.OFFSETS_FILE)).to_pylist()
    except DescriptionError:
        rows = []
    for row in rows:
        group = {"group": row["group"], "offset": row["offset"]}
        offsets.setdefault((row["topic"], row["queue_id"]), []).append(group)
    return offsets


def _queues(listing: Listing, plan: Plan) -> list[Group]:
    offsets, logs = consumer_offsets(listing), tree.logs(listing)
    queues: dict[tuple[str, int, bool], list[Part]] = {}
    for file in plan.files:
        queue = tree.queue_of(file.name)
        if file.codec in (QUEUE, BATCH) and file.role is Role.DERIVED and queue is not None:
            queues.setdefault((*queue, file.codec == BATCH), []).append(
                Part(file.name, file.codec, "rows", file.hints)
            )
    out = []
    for (topic, number, batch), queue_parts in sorted(queues.items()):
        params = {
            "topic": topic,
            "queue_id": number,
            "batch": batch,
            "offsets": offsets.get((topic, number), []),
            "log_start": tree.start_of(logs[0].name) if logs else 0,
        }
        out.append(Group((Run(tuple(queue_parts)),), params))
    return out


def combine(
    view: str,
    params: Mapping[str, Any],
    runs: Sequence[Stream],
    columns: Sequence[str],
    report: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    """See `codec.capability.Combine`."""
    if view == "index":
        for run in runs:
            for batch in run(list(dict.fromkeys((*columns, "key_hash")))):
                yield batch.filter(compute.equal(batch.column("key_hash"), params["hash"])).select(
                    list(columns)
                )
        return
    row = _queue_row(params, runs)
    yield pa.RecordBatch.from_pylist([{name: row[name] for name in columns}], schema=QUEUES.schema(columns))


def _queue_row(params: Mapping[str, Any], runs: Sequence[Stream]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": params["topic"], "queue_id": params["queue_id"], "messages": 0, "gaps": 0, "min_offset": None, "max_offset": None,
        "first_physical_offset": None, "last_physical_offset": None, "consumer_offsets": params["offsets"],
    }  # fmt: skip
    for run in runs:
        number = "base_offset" if params["batch"] else "queue_offset"
        for batch in run((number, "physical_offset", "size", *(("batch_size",) if params["batch"] else ()))):
            arrays = [np.asarray(column, np.int64) for column in batch.columns]
            if not params["batch"]:
                arrays.append(np.ones(len(arrays[0]), np.int64))
            first, phy, _, count = (values[arrays[2] != FILLER] for values in arrays)
            if not len(first):
                continue
            row["max_offset"] = int(first[-1] + count[-1])
            first, phy, count = (values[phy >= params["log_start"]] for values in (first, phy, count))
            if not len(first):
                continue  # their messages are deleted
            if row["min_offset"] is None:
                row["min_offset"], row["first_physical_offset"] = int(first[0]), int(phy[0])
            row["last_physical_offset"] = int(phy[-1])
            row["messages"] += int(count.sum())
    if row["min_offset"] is None:
        row["min_offset"] = row["max_offset"]
    if row["min_offset"] is not None:
        row["gaps"] = row["max_offset"] - row["min_offset"] - row["messages"]
    return row
