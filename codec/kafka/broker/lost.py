"""What is undamaged in a partition and not served after a start: in numbers, and in the broker's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.base import Frames, Window
from logwright.codec.disk import Disk
from logwright.codec.kafka import log
from logwright.codec.kafka.broker.fetch import Served
from logwright.codec.kafka.names import TopicPartition, parse_segment, segment_name
from logwright.codec.kafka.walk import salvage
from logwright.codec.layout import Listing
from logwright.codec.option import Options

_RANGES = 1000


@dataclass
class Lost:
    """So many rows; and the ranges that they are in, the first thousand of them."""

    rows: int = 0
    ranges: list[Mapping[str, Any]] = field(default_factory=list)


def lost(
    listing: Listing,
    served: Served,
    where: TopicPartition | None,
    deleted: int = 0,
    after: Disk | None = None,
) -> Lost:
    """Rows of good batches that a consumer does not get. `deleted`: those below were deleted by somebody who asked for it
    (`DeleteRecords`), or by retention. `after` is the directory after the start, where it opened."""
    out = Lost()
    if after is not None and served.error is None and served.in_order and _all(listing, after, served):
        return out
    names = {} if where is None else {"topic": where.topic, "partition": where.partition}
    open_range: dict[str, Any] | None = None
    highest = max(deleted, 0) - 1
    for window, frames, base in _good(listing):
        context = log.CODEC.context(
            segment_name(base, ".log"), Options(log.CODEC.options), topic="", partition=0, control=False
        )
        for decoded in log.CODEC.decode(window, frames, "rows", ("offset", "timestamp_ms"), context):
            offsets = decoded.batch.column(0).to_numpy()
            times = decoded.batch.column(1).to_numpy()
            new = offsets > highest
            mask = new & ~served.covers(offsets)
            highest = max(highest, int(offsets.max(initial=-1)))
            # Runs of lost rows; what is served between two of them ends a range.
            for lost_run, run in _runs(mask, new):
                if not lost_run:
                    open_range = None
                    continue
                out.rows += len(run)
                known = times[run][times[run] >= 0]
                if open_range is None:
                    open_range = {**names, "first_offset": int(offsets[run[0]])}
                    if len(out.ranges) < _RANGES:
                        out.ranges.append(open_range)
                open_range["last_offset"] = int(offsets[run[-1]])
                if len(known):
                    low, high = int(known.min()), int(known.max())
                    open_range["first_timestamp"] = min(open_range.get("first_timestamp", low), low)
                    open_range["last_timestamp"] = max(open_range.get("last_timestamp", high), high)
    return out


def _runs(
    mask: np.ndarray[Any, Any], new: np.ndarray[Any, Any]
) -> Iterator[tuple[bool, np.ndarray[Any, Any]]]:
    """Stretches of equal values of the mask, among the rows that are new."""
    places = np.flatnonzero(new)
    values = mask[places]
    edges = np.flatnonzero(np.diff(values.astype(np.int8))) + 1
    for run in np.split(places, edges):
        if len(run):
            yield bool(mask[run[0]]), run


def _good(listing: Listing) -> Iterator[tuple[Window, Frames, int]]:
    """The good batches of all logs, also of those that are not in place."""
    logs = []
    for entry in listing.entries():
        found = parse_segment(entry.name)
        if found is not None and found.suffix == ".log":
            logs.append((found.base_offset, found.leftover, entry.name))
    for base, _, name in sorted(logs):
        for window, frames in salvage(listing, name, base):
            yield window, frames, base


def _all(listing: Listing, after: Disk, served: Served) -> bool:
    """Whether every log of the directory is as it was, and served from its first to its last byte."""
    stretches = {one.file: (one.start, one.stop) for one in served.stretches}
    for entry in listing.entries():
        found = parse_segment(entry.name)
        if found is None or found.suffix != ".log" or not entry.size:
            continue
        if entry.name not in after or after.origin(entry.name) != (entry.name, 0, entry.size):
            return False
        if stretches.get(entry.name) != (0, entry.size):
            return False
    return len(stretches) == len(served.stretches)
