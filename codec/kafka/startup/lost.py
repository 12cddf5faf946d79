"""What is undamaged in a partition and not served after a start: in numbers, and in the broker's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.fault import Kind
from logwright.codec.frames.walk import Stretch, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD, HEAD_SIZE
from logwright.codec.kafka.names import TopicPartition, parse_segment, segment_name
from logwright.codec.kafka.startup.fetch import Served
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile, Role
from logwright.codec.store.overlay import Disk
from logwright.codec.window import Frames, Window

_RANGES = 1000


@dataclass
class Lost:
    """So many rows; and the ranges that they are in, the first thousand of them."""

    rows: int = 0
    ranges: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


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
    misplaced: list[_Misplaced] = []
    for window, frames, base in _good(listing, misplaced):
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
    if misplaced:
        _count_misplaced(out, listing, served, misplaced, names, deleted)
    return out


@dataclass
class _Misplaced:
    """A batch that is whole, and whose base_offset does not fit the batches around it."""

    file: str
    position: int
    header: np.void
    due: int
    """The offset after the good batch before it."""
    behind: int | None = None
    """The first offset of the good batch after it."""

    @property
    def base(self) -> int:
        return int(self.header["base_offset"])

    @property
    def last(self) -> int:
        return self.base + int(self.header["last_offset_delta"])

    @property
    def rows(self) -> int:
        return 0 if int(self.header["attributes"]) & CONTROL else max(0, int(self.header["records_count"]))


def _count_misplaced(
    out: Lost,
    listing: Listing,
    served: Served,
    misplaced: list[_Misplaced],
    names: Mapping[str, Any],
    deleted: int,
) -> None:
    """Count the rows of misplaced batches, which no consumer gets at their own offsets, unless they are only moved or there twice."""
    heads = [frames.header for _, frames, _ in _good(listing, [])]
    good = np.concatenate(heads) if heads else np.empty(0, HEAD)
    first = good["base_offset"].astype(np.int64)
    last = first + good["last_offset_delta"]
    for one in misplaced:
        if not one.rows or ((first == one.base) & (good["crc"] == one.header["crc"])).any():
            continue
        free = not ((first <= one.last) & (last >= one.base)).any()
        moved = free and bool((last + 1 == one.base).any() or (first == one.last + 1).any())
        got = bool(served.covers(np.array([one.base], np.int64))[0])
        if moved and got:
            continue
        where: dict[str, Any] = {}
        if moved:
            where = {"first_offset": one.base, "last_offset": one.last}
        elif one.behind is not None and one.behind - one.due == one.last - one.base + 1:
            where = {"first_offset": one.due, "last_offset": one.behind - 1}
        if where and where["last_offset"] < deleted:
            continue
        out.rows += one.rows
        if len(out.ranges) < _RANGES:
            out.ranges.append({**names, **where})
        if got:
            out.warnings.append(
                f"consumers get {one.rows} records at offsets {one.base} to {one.last}, which are wrong: base_offset of the batch at "
                f"byte {one.position} of {one.file} does not fit the batches around it"
            )


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


def _good(listing: Listing, misplaced: list[_Misplaced]) -> Iterator[tuple[Window, Frames, int]]:
    """The good batches of all logs, also of those that are not in place. Those at wrong offsets go to `misplaced`."""
    logs = []
    for entry in listing.entries():
        found = parse_segment(entry.name)
        if found is not None and found.suffix == ".log":
            logs.append((found.base_offset, found.leftover, entry.name, entry.size))
    bases = sorted({base for base, leftover, *_ in logs if not leftover})
    for base, leftover, name, size in sorted(logs):
        later = [] if leftover else [one for one in bases if one > base]
        due, waiting = base, list[_Misplaced]()
        file = PlannedFile(name, size, Role.PRIMARY, hints={"base_offset": base, "next_base": None})
        for stretch in walk_file(listing, file, log.CODEC):
            if not isinstance(stretch, Stretch):
                continue
            window, frames, damage = stretch.window, stretch.frames, stretch.damage
            if len(frames):
                for one in waiting:
                    one.behind = int(frames.header["base_offset"][0])
                waiting = []
                due = int(frames.header["base_offset"][-1]) + int(frames.header["last_offset_delta"][-1]) + 1
                yield window, frames, base
            if damage is not None and damage.kind is Kind.ORDER and damage.length >= HEAD_SIZE:
                head = heads_at(window.data, np.array([frames.stop], np.int64))[0]
                waiting.append(_Misplaced(name, damage.offset, head, due))
                misplaced.append(waiting[-1])
        for one in waiting:
            one.behind = min(later, default=None)


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
