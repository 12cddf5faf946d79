"""Identify a partition, and summarise its headers: log end offset, times, sizes, open transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from logwright.codec.engine.fold import result
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import frames_of, good_frames, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    DELETE_HORIZON,
    TIMESTAMP_TYPE,
)
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import parse_directory
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.table import moment
from logwright.codec.window import Frames, Window


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    first: dict[str, Fault] = {}

    def report(name: str, fault: Fault) -> None:
        if fault.severity is Severity.ERROR and (name not in first or fault.offset < first[name].offset):
            first[name] = fault

    summary = result(frames_of(listing, segments, log.CODEC, check=False, report=report), PartitionFacts())
    damaged = [
        {"file": name, "offset": damage.offset, "detail": damage.detail} for name, damage in first.items()
    ]
    return {**summary, "damaged": damaged}


class PartitionFacts:
    """Fold the headers of batches into facts."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.batches = self.records = 0
        self.end: int | None = None
        self.compressions: Counter[str] = Counter()
        self.times: list[int] = []
        """The first and the last time that a batch claims; empty if no batch has one."""

    def begin(self, file: PlannedFile) -> None:
        base = file.hints["base_offset"]
        self.end = base if self.end is None else max(self.end, base)

    def add(self, window: Window, frames: Frames) -> None:
        head = frames.header
        self.state.add(head, markers(window, frames))
        self.batches += len(frames)
        self.records += int(head["records_count"].astype(np.int64).sum())
        self.end = int(head["last_offset"][-1]) + 1
        numbers, counts = np.unique(head["attributes"] & COMPRESSION, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            name = COMPRESSION_NAMES[number] if number < len(COMPRESSION_NAMES) else f"codec {number}"
            self.compressions[name] += count
        last = head["max_timestamp"].astype(np.int64)
        # The first record of a batch has its base timestamp, except where that is a delete horizon or the broker's time counts.
        other = (head["attributes"] & (DELETE_HORIZON | TIMESTAMP_TYPE)) != 0
        first = np.where(other, last, head["base_timestamp"])
        times = np.concatenate((first, last))
        times = times[times >= 0]
        if len(times):
            both = [*self.times, int(times.min()), int(times.max())]
            self.times = [min(both), max(both)]

    def finish(self) -> dict[str, Any]:
        return {
            "log_end_offset": self.end,
            "batches": self.batches,
            "records": self.records,
            "compression": dict(self.compressions),
            "timestamp": [moment(time) for time in self.times] or None,
            "open_transactions": [
                {"producer_id": key, "first_offset": first}
                for key, first in self.state.open_transactions.items()
            ],
        }


def copy_of(listing: Listing, plan: Plan) -> tuple[str, str | None] | None:
    """Return the name of the partition, and the id of its topic if that is known; None if the directory's name is not a partition's.

    A directory that will be deleted, or moved to another disk, is a copy too.
    """
    where = parse_directory(listing.name)
    return None if where is None else (f"{where.topic}-{where.partition}", plan.facts["topic_id"])


def reaches(listing: Listing, plan: Plan) -> int:
    """Return the log end offset, by the headers of the last segment that has batches."""
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    end = segments[-1].hints["base_offset"] if segments else 0
    for file in reversed(segments):
        has_batches = False
        for _, frames in good_frames(walk_file(listing, file, log.CODEC, check=False)):
            last = frames.header[-1]
            end = max(end, int(last["last_offset"]) + 1)
            has_batches = True
        if has_batches:
            break
    return int(end)
