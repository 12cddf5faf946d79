"""Take, load and remove snapshots of the producers as the broker does.

Source: `ProducerStateManager`, `UnifiedLog.rebuildProducerState`, `ProducerAppendInfo`, `EndTransactionMarker`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.describe import DescriptionError
from logwright.codec.kafka.formats.log.java_streams import INVALID_RECORD
from logwright.codec.kafka.formats.log.layout import CONTROL, MAGIC, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import failure, markers, reason
from logwright.codec.kafka.names import offset_of, segment_name
from logwright.codec.kafka.startup.entries import Entries
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kafka.state.producers import AbortedTxn, Problem, ProducerState
from logwright.codec.store.overlay import Overlay

_SUFFIX = ".snapshot"
_CONTROL_TYPES = {
    2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS",
}  # fmt: skip


def check(state: ProducerState, chunk: Entries, partition: str) -> tuple[int, BrokerError] | None:
    """Return the first of these batches that the broker refuses, and its exception. The state does not change."""
    header = chunk.header
    if not _may_fail(header) and not state.open_transactions:
        return None
    trial = state.copy()
    before = trial.batches
    frames = chunk.frames()
    marks = markers(chunk.window, frames)
    trial.add(header, marks)
    if trial.problem is None:
        return None
    at = trial.problem.batch - before
    head = header[at]
    if trial.problem.completed is not None:
        return at, not_started(trial.problem, partition)
    if int(head["attributes"]) & CONTROL:
        kind = int(marks[marks["frame"] == at]["type"][0])
        java = failure(kind)
        if java is not None:
            raised = CorruptRecord if java == INVALID_RECORD else BrokerError
            return at, raised(reason(chunk.window, frames, at), java)
        name = _CONTROL_TYPES.get(kind, "UNKNOWN")
        return at, BrokerError(
            f"Invalid control record type for end transaction marker {name}",
            "java.lang.IllegalArgumentException",
        )
    return at, BrokerError(
        f"Expected transactional write from producer {int(head['producer_id'])} at offset "
        f"(offset={int(head['base_offset'])}, segment=[-1:-1]) in partition {partition}",
        "org.apache.kafka.common.errors.InvalidTxnStateException",
    )


def not_started(problem: Problem, partition: str) -> BrokerError:
    return BrokerError(
        f"Attempted to complete transaction {problem.completed} on partition {partition} which was not started",
        "java.lang.IllegalArgumentException",
    )


def _may_fail(header: npt.NDArray[Any]) -> bool:
    """Return whether any of the batches can be refused. Most logs have no transactions."""
    flags = header["attributes"].astype(np.int64)
    return bool((flags & (CONTROL | TRANSACTIONAL) != 0).any())


class ProducerStateManager:
    """Producer state with its snapshots. The broker creates one for each segment that it recovers.

    With `now` and `expiration` (in milliseconds) idle producers are forgotten when a snapshot is loaded.
    """

    def __init__(self, overlay: Overlay, partition: str, now: int | None, expiration: int | None) -> None:
        self.overlay, self.partition, self.now, self.expiration = overlay, partition, now, expiration
        self.state = ProducerState()
        self.map_end = 0
        self._snap_end = 0
        self.snapshots: dict[int, str] = {}
        self._list()

    def _list(self) -> None:
        """List the snapshots. Raises `BrokerError` for a name without a number."""
        names = sorted(name for name in self.overlay.names() if name.endswith(_SUFFIX))
        self.snapshots = {offset_of(name): name for name in names}

    def add(self, header: npt.NDArray[Any], markers: npt.NDArray[Any]) -> list[AbortedTxn]:
        """Take batches that `check` has accepted."""
        aborted = self.state.add(header, markers)
        # `LogSegment.recover` does not count messages of magic 0 and 1.
        batches = np.flatnonzero(header["magic"] >= MAGIC)
        if len(batches):
            self.map_end = int(header["last_offset"][batches[-1]]) + 1
        return aborted

    def latest(self) -> int | None:
        return max(self.snapshots, default=None)

    def truncate_and_reload(self, start: int, end: int) -> None:
        """Remove snapshots out of range, and load the newest one that is valid."""
        for offset in [known for known in self.snapshots if known > end or known <= start]:
            self._remove(offset)
        if end == self.map_end:
            self.map_end = max(self.map_end, start)
            latest = self.latest()
            self._snap_end = start if latest is None else latest
            return
        self.state = ProducerState()
        while (latest := self.latest()) is not None:
            loaded = ProducerState()
            try:
                loaded.load(self.overlay.read(self.snapshots[latest]), self.now, self.expiration)
            except DescriptionError:
                self._remove(latest)
                continue
            self.state = loaded
            self.map_end = self._snap_end = latest
            return
        self.map_end = self._snap_end = start

    def take_snapshot(self) -> None:
        """Take a snapshot at the end of the batches taken, unless there is a later one."""
        if self.map_end > self._snap_end:
            name = segment_name(self.map_end, _SUFFIX)
            self.overlay.put(name, self.state.snapshot_bytes())
            self.snapshots[self.map_end] = name
            self._snap_end = self.map_end

    def remove_stray(self, bases: Collection[int]) -> None:
        """Remove snapshots that belong to no segment, except the newest if it is after all segments."""
        self._list()
        stray: int | None = None
        for offset in sorted(self.snapshots):
            if offset in bases:
                continue
            if stray is not None:
                self._remove(stray)
            stray = offset
        if stray is not None and bases and stray < max(bases):
            self._remove(stray)

    def remove_of(self, bases: Collection[int]) -> None:
        """Remove the snapshots at the starts of deleted segments, as far as this manager knows them."""
        for base in bases:
            self._remove(base)

    def start_at(self, offset: int) -> None:
        """Forget all producers and remove all snapshots."""
        for known in list(self.snapshots):
            self._remove(known)
        self.state = ProducerState()
        self._snap_end, self.map_end = 0, offset

    def _remove(self, offset: int) -> None:
        name = self.snapshots.pop(offset, None)
        if name is not None:
            self.overlay.delete(name)
