"""What the headers of a partition's batches say: where the log ends, times, sizes, transactions that are open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import COMPRESSION, COMPRESSION_NAMES
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.store.listing import Listing, Plan, Role

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    state, batches, records, end = ProducerState(), 0, 0, None
    kinds: dict[str, int] = {}
    low, high = None, None
    damaged: list[dict[str, Any]] = []
    for file in segments:
        found: list[Fault] = []
        end = file.hints["base_offset"] if end is None else max(end, file.hints["base_offset"])
        for one in walk_file(listing, file, log.CODEC, check=False):
            found += [one.fault] if isinstance(one, Hole) else one.faults
            if isinstance(one, Hole) or not len(one.frames):
                continue
            window, frames = one.window, one.frames
            head = frames.header
            state.add(head, markers(window, frames))
            batches += len(frames)
            records += int(head["records_count"].astype(np.int64).sum())
            end = int(head["last_offset"][-1]) + 1
            for number, count in zip(
                *np.unique(head["attributes"] & COMPRESSION, return_counts=True), strict=True
            ):
                name = COMPRESSION_NAMES[number] if number < len(COMPRESSION_NAMES) else f"codec {number}"
                kinds[name] = kinds.get(name, 0) + int(count)
            times = head["max_timestamp"].astype(np.int64)
            times = times[times >= 0]
            if len(times):
                low = int(times.min()) if low is None else min(low, int(times.min()))
                high = int(times.max()) if high is None else max(high, int(times.max()))
        bad = [fault for fault in found if fault.severity is Severity.ERROR]
        if bad:
            first = min(bad, key=lambda fault: fault.offset)
            damaged.append({"file": file.name, "offset": first.offset, "detail": first.detail})
    return {
        "log_end_offset": end,
        "batches": batches,
        "records": records,
        "compression": kinds,
        "max_timestamp": [_moment(low), _moment(high)] if low is not None and high is not None else None,
        "open_transactions": [
            {"producer_id": key, "first_offset": first} for key, first in state.open_transactions.items()
        ],
        "damaged": damaged,
    }


def _moment(milliseconds: int) -> Any:
    """As a time, where the calendar goes so far."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
