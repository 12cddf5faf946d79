"""What an append to a partition goes on from: where its log ends, its producers, its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logwright.codec.base import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import UsageError
from logwright.codec.kafka import snapshot
from logwright.codec.kafka.builder import Resumed
from logwright.codec.kafka.checkpoint import LEADER_EPOCH
from logwright.codec.kafka.derive import EpochCache, SegmentIndexer
from logwright.codec.kafka.markers import markers
from logwright.codec.kafka.names import EPOCH_FILE, parse_segment, segment_name
from logwright.codec.kafka.producers import ProducerState
from logwright.codec.kafka.walk import walk


def resume(listing: Listing, plan: Plan) -> Resumed:
    """What an append goes on from. Raises `UsageError` for a partition that can't be appended to as it is."""
    for file in plan.files:
        found = parse_segment(file.name)
        if found is not None and found.leftover in (".swap", ".cleaned"):
            raise UsageError(
                f"{file.name} is left of an operation that was cut short",
                advice="Start the broker on it once, which finishes the operation, then append",
            )
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    entries = {entry.name: entry for entry in listing.entries()}
    state, start = _latest_snapshot(listing, plan, segments)
    epochs = EpochCache()
    stored = stored_epochs(listing)
    epochs.entries = list(stored)
    end = segments[0].hints["base_offset"] if segments else 0
    stale: list[str] = []
    indexer = None
    for file in segments:
        base, after = file.hints["base_offset"], file.hints["next_base"]
        last = after is None
        if last and entries.get(segment_name(base, ".index")) is not None:
            stale = _allocated(listing, entries, base)
            indexer = SegmentIndexer(base) if stale else None
        if after is not None and after <= start and stored:
            continue
        end = max(end, base)
        for window, frames in walk(listing, file, check=last):
            head = frames.header
            offsets = head["base_offset"].astype(np.int64)
            fresh = offsets >= start
            if fresh.any():
                state.add(*_only(head, markers(window, frames), fresh))
            if not stored:
                epochs.add(head)
            if indexer is not None:
                indexer.add(head, frames.start + window.offset)
            end = int(offsets[-1]) + int(head["last_offset_delta"][-1]) + 1
    rebuilt = {}
    if indexer is not None:
        base = indexer.base_offset
        rebuilt = {
            segment_name(base, ".index"): indexer.index_bytes(),
            segment_name(base, ".timeindex"): indexer.timeindex_bytes(),
        }
    empty = bool(segments) and segments[-1].size == 0 and segments[-1].hints["base_offset"] == end
    return Resumed(
        end,
        state,
        epochs,
        rebuilt,
        plan.facts["topic_id"],
        bool(segments),
        empty,
        plan.facts["clean_shutdown"],
    )


def _only(head: Any, found: Any, fresh: Any) -> tuple[Any, Any]:
    """The batches from an offset on, and their markers by their new numbers."""
    number = np.cumsum(fresh) - 1
    kept = found[fresh[found["frame"]]].copy() if len(found) else found
    if len(kept):
        kept["frame"] = number[kept["frame"]]
    return head[fresh], kept


def stored_epochs(listing: Listing) -> list[tuple[int, int]]:
    if EPOCH_FILE not in {entry.name for entry in listing.entries()}:
        return []
    try:
        return [
            (int(epoch), int(offset))
            for epoch, offset in LEADER_EPOCH.unpack(listing.read(EPOCH_FILE, 0, 16 << 20))
        ]
    except DescriptionError:
        return []


def _latest_snapshot(
    listing: Listing, plan: Plan, segments: Sequence[PlannedFile]
) -> tuple[ProducerState, int]:
    """Producer state from the newest sound snapshot that a segment starts at, and the offset it is of."""
    bases = {file.hints["base_offset"] for file in segments}
    found = [
        (parse_segment(file.name), file.name) for file in plan.files if file.codec == snapshot.CODEC.name
    ]
    state = ProducerState()
    for parsed, name in sorted(found, reverse=True):
        if parsed is None or parsed.leftover or parsed.base_offset not in bases:
            continue
        try:
            state.load(listing.read(name))
        except DescriptionError:
            continue
        return state, parsed.base_offset
    return state, segments[0].hints["base_offset"] if segments else 0


def _allocated(listing: Listing, entries: Mapping[str, Entry], base: int) -> list[str]:
    """The indexes of a segment that still have the zeros they were allocated with."""
    out = []
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        entry = entries.get(segment_name(base, suffix))
        if entry is not None and entry.size > width:
            tail = listing.read(entry.name, entry.size - width, width)
            if not any(tail):
                out.append(entry.name)
    return out
