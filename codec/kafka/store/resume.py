"""Read the state from which an append to a partition continues: log end offset, producers, epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Severity, UnreadableError, UsageError
from logwright.codec.fixed import entries_of
from logwright.codec.frames.walk import Hole, Stretch, walk_file
from logwright.codec.kafka.derive import EpochCache, SegmentIndexer
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats import producer_snapshot as snapshot
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import (
    EPOCH_FILE,
    METADATA_FILE,
    claims_to_be_kafkas,
    parse_segment,
    segment_name,
)
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.kafka.store.builder import Resumed
from logwright.codec.kafka.store.evidence import parse_epochs, stored_epochs
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.window import Frames, Window

_LARGEST = 16 << 20
"""Read limit of small files in bytes."""


def resume(listing: Listing, plan: Plan) -> Resumed:
    """Return the state from which an append continues. Raises `UsageError` for a partition that cannot be appended to."""
    _refuse(listing, plan)
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    entries = {entry.name: entry for entry in listing.entries()}
    state, start = _latest_snapshot(listing, plan, segments)
    epochs = EpochCache()
    stored = stored_epochs(listing)
    epochs.entries = list(stored)
    log_start = plan.facts["log_start_offset"]
    end = segments[0].hints["base_offset"] if segments else log_start
    indexes = None
    for file in segments:
        base, after = file.hints["base_offset"], file.hints["next_base"]
        last = after is None
        if last and segment_name(base, ".index") in entries:
            indexes = Indexes(listing, entries, base)
        if after is not None and after <= start and stored:
            continue
        end = max(end, base)
        for window, frames in _batches(listing, file, last):
            head = frames.header
            offsets = head["base_offset"].astype(np.int64)
            fresh = frames.pick(offsets >= start)
            if len(fresh):
                state.add(fresh.header, markers(window, fresh))
            if not stored:
                epochs.add(head)
            if indexes is not None:
                indexes.add(head, frames.start + window.offset)
            end = int(head["last_offset"][-1]) + 1
    if log_start > end:
        raise UsageError(
            f"the log ends at {end}, below its start offset {log_start} in log-start-offset-checkpoint",
            advice="A broker would delete all of it. Remove the partition's line from that file first",
        )
    empty = bool(segments) and segments[-1].size == 0 and segments[-1].hints["base_offset"] == end
    return Resumed(
        next_offset=end,
        producers=state,
        epochs=epochs,
        stored_epochs=stored,
        rebuilt={} if indexes is None else indexes.rebuilt(),
        topic_id=plan.facts["topic_id"],
        has_segments=bool(segments),
        ends_empty=empty,
        clean=plan.facts["clean_shutdown"],
    )


def _batches(listing: Listing, file: PlannedFile, last: bool) -> Iterator[tuple[Window, Frames]]:
    """Iterate over the good batches of a segment. Raises `UsageError` for damage in the last one, whatever its severity.

    A broker would not see records after a torn tail or zeros.
    """
    for item in walk_file(listing, file, log.CODEC, check=last):
        faults = [item.fault] if isinstance(item, Hole) else item.faults
        wrong = [fault for fault in faults if isinstance(item, Hole) or fault.severity is Severity.ERROR]
        if last and wrong:
            raise UsageError(
                f"{file.name} is damaged at byte {wrong[0].offset}: {wrong[0].detail}",
                advice="Nothing is appended after damage. Run `logwright verify` to see it",
            )
        if isinstance(item, Stretch) and len(item.frames):
            yield item.window, item.frames


def _refuse(listing: Listing, plan: Plan) -> None:
    """Raise `UsageError` if anything but the content of the logs prevents an append."""
    for name, fault in (*plan.faults, *plan.missing):
        if fault.severity is Severity.ERROR:
            raise UsageError(
                f"{name or 'the directory'}: {fault.detail}",
                advice="Nothing is appended to a damaged partition. Run `logwright verify` to see the damage",
            )
    for file in plan.files:
        parsed = parse_segment(file.name)
        if parsed is not None and parsed.leftover in (".swap", ".cleaned"):
            raise UsageError(
                f"{file.name} is left by an interrupted operation",
                advice="Start the broker on it once, which finishes the operation, then append",
            )
        if claims_to_be_kafkas(file.name):
            raise UsageError(
                f"the broker mistakes {file.name} for a file of a segment",
                advice="Rename it or move it away first",
            )
        try:
            if file.name == EPOCH_FILE:
                parse_epochs(listing)
            elif file.name == METADATA_FILE:
                metadata.unpack(listing.read(file.name, 0, _LARGEST))
        except (DescriptionError, UnreadableError) as error:
            raise UsageError(
                f"{file.name} cannot be parsed: {error.message}",
                advice="A broker does not open the partition like this. Correct the file or delete it first",
            ) from None


class Indexes:
    """Compare the indexes of the last segment with its batches: after the append a broker trusts them, at least after a clean stop.

    A killed broker leaves them with preallocated zeros. If the log was changed by hand, they may contain anything.
    """

    def __init__(self, listing: Listing, entries: Mapping[str, Entry], base: int) -> None:
        self._indexer = SegmentIndexer(base)
        self._names = segment_name(base, ".index"), segment_name(base, ".timeindex")
        index = listing.read(self._names[0])
        stored = entries_of(INDEX_ENTRY, index)
        self._offset, self._position = (
            stored["relative_offset"] + np.int64(base),
            stored["position"].astype(np.int64),
        )
        self._good = len(index) % INDEX_ENTRY.head_size == 0 and self._times(listing, entries)
        self._good &= bool((np.diff(self._offset) > 0).all() and (np.diff(self._position) > 0).all())
        self._matched = 0
        self._end = base

    def _times(self, listing: Listing, entries: Mapping[str, Entry]) -> bool:
        """Return whether the time index exists and ends with an entry."""
        width = TIMEINDEX_ENTRY.min_size
        entry = entries.get(self._names[1])
        if entry is None or entry.size % width:
            return False
        return entry.size == 0 or any(listing.read(entry.name, entry.size - width, width))

    def add(self, header: npt.NDArray[Any], start: Int64s) -> None:
        """Take batches of the segment, and the byte where each starts."""
        self._indexer.add(header, start)
        self._end = int(header["last_offset"][-1]) + 1
        if not self._good:
            return
        low, high = np.searchsorted(self._position, [start[0], start[-1] + 1])
        at = np.searchsorted(start, self._position[low:high])
        # A broker up to 4.0 writes one entry for batches that arrive together: the last offset of the last, the position of the first.
        fits = start[at] == self._position[low:high]
        fits &= header["base_offset"][at] <= self._offset[low:high]
        self._good = bool(fits.all())
        self._matched += int(high - low)

    def rebuilt(self) -> dict[str, bytes]:
        """Return both indexes rebuilt, if one of them is wrong."""
        good = self._good and self._matched == len(self._offset)
        if good and (not len(self._offset) or self._offset[-1] < self._end):
            return {}
        index, times = self._names
        return {index: self._indexer.index_bytes(), times: self._indexer.timeindex_bytes()}


def _latest_snapshot(
    listing: Listing, plan: Plan, segments: Sequence[PlannedFile]
) -> tuple[ProducerState, int]:
    """Return the state in the newest valid snapshot at which a segment starts, and its offset."""
    bases = {file.hints["base_offset"] for file in segments}
    snapshots = [
        (parse_segment(file.name), file.name) for file in plan.files if file.codec == snapshot.CODEC.name
    ]
    state = ProducerState()
    for parsed, name in sorted(snapshots, reverse=True):
        if parsed is None or parsed.leftover or parsed.base_offset not in bases:
            continue
        try:
            state.load(listing.read(name))
        except (DescriptionError, UnreadableError):
            continue
        return state, parsed.base_offset
    return state, segments[0].hints["base_offset"] if segments else 0
