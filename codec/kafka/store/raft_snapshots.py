"""Read the snapshots of the cluster's metadata, as a broker does that starts, and compare them with the log.

A snapshot begins with a control record SNAPSHOT_HEADER, which has the time of the batch of the log that it ends with, and ends with a
SNAPSHOT_FOOTER. All its batches have the epoch in its name. Source: `RecordsSnapshotReader`, `RecordsIterator` and `RecordsSnapshotWriter`
of Kafka. The exceptions were observed with 4.3.0, which does not miss a footer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.kafka.formats.log.consumer import consume_batch
from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    CONTROL_TYPES,
    CRC_START,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    RECORD,
)
from logwright.codec.kafka.formats.log.scan import HEAD_UP_TO_MAGIC, LEGACY_MIN
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kafka.store.raft_log import parse_snapshot
from logwright.codec.kernels.crc32c import crc32c_bytes
from logwright.codec.store.listing import Listing

_HEADER, _FOOTER = 3, 4
"""Types of control records."""
_TIME = slice(2, 10)
"""The place of the time in the value of a SNAPSHOT_HEADER, after its version."""
_LIMIT = 64 << 20
_STATE = "java.lang.IllegalStateException"


@dataclass
class Snapshot:
    """A snapshot of the metadata, and its flaw, if it has one."""

    name: str
    offset: int = -1
    """The offset after the last record of the log that it contains; -1 if the name has none."""
    epoch: int = -1
    """The epoch of that record."""
    flaw: str = ""
    """Why it is not the complete snapshot of its name."""
    error: BrokerError | None = None
    """The exception of a broker that loads it."""
    torn: bool = False
    """Whether the flaw is in the bytes of the file, and found without its name or the log."""
    time: int | None = None
    """The time of the batch of the log that it ends with."""

    def compare(self, heads: npt.NDArray[Any]) -> None:
        """Compare the time with that of the batch that it ends with, if it is among these batches of the log."""
        if self.flaw or self.time is None:
            return
        ending = heads[(heads["base_offset"] < self.offset) & (heads["last_offset"] >= self.offset - 1)]
        if len(ending) and int(ending["max_timestamp"][0]) != self.time:
            self.flaw = (
                f"it is the snapshot of another offset: it ends with a batch of time {self.time}, but offset {self.offset - 1} of the"
                f" log has time {ending['max_timestamp'][0]}"
            )


def read_snapshots(listing: Listing, sizes: Mapping[str, int]) -> list[Snapshot]:
    """Read the finished snapshots among these files, and those whose names the broker cannot parse."""
    out = []
    for name in sorted(sizes):
        try:
            parsed = parse_snapshot(name)
        except BrokerError as error:
            out.append(Snapshot(name, flaw="the broker cannot parse the name", error=error))
            continue
        if parsed is not None and parsed.finished:
            out.append(read_snapshot(listing, name, sizes[name]))
    return out


def read_snapshot(listing: Listing, name: str, size: int) -> Snapshot:
    """Read a snapshot up to its first flaw."""
    parsed = parse_snapshot(name)
    assert parsed is not None
    out = Snapshot(name, parsed.offset, parsed.epoch)
    first = last = None
    at = 0
    try:
        for batch in _batches(listing, name, size):
            head, control = batch[:HEAD_SIZE].view(HEAD)[0], _control(batch)
            if first is None:
                first = control
                out.time = _check_header(head, control)
            if int(head["partition_leader_epoch"]) != parsed.epoch and not out.flaw:
                epoch = int(head["partition_leader_epoch"])
                out.flaw = f"it is the snapshot of another epoch: its batches have epoch {epoch}, its name {parsed.epoch}"
            last, at = control, at + len(batch)
    except BrokerError as error:
        out.flaw, out.error, out.torn = error.message, error, isinstance(error, CorruptRecord)
        return out
    except UnreadableError as error:
        out.flaw, out.torn = f"it cannot be read: {error.message}", True
        return out
    if last is None:
        out.flaw, out.error, out.torn = "it has no complete batch", _without_batch(size), size > 0
    elif at < size:
        out.flaw, out.torn = f"it ends within the batch at byte {at}", True
    elif last[0] != _FOOTER and not out.flaw:
        out.flaw = "it has no footer: its end is missing"
    return out


def newest(snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """Return the snapshot that a broker loads."""
    named = (snapshot for snapshot in snapshots if snapshot.offset >= 0)
    return max(named, key=lambda snapshot: (snapshot.epoch, snapshot.offset), default=None)


def snapshot_faults(
    layout: str, snapshots: Sequence[Snapshot], sizes: Mapping[str, int]
) -> Iterator[tuple[str, Fault]]:
    """Yield the faults of snapshots, except those that a check of the file itself finds."""
    latest = newest(snapshots)
    for snapshot in snapshots:
        if not snapshot.flaw or snapshot.torn:
            continue
        severity, system = Severity.ERROR, "the broker does not start"
        if snapshot is not latest and snapshot.offset >= 0:
            severity, system = Severity.WARNING, "the broker loads a newer one"
        elif snapshot.error is None:
            system = "the broker starts with metadata that is not complete, or not that of its log"
        text = f"no valid snapshot of the metadata: {snapshot.flaw}"
        yield snapshot.name, Fault(layout, 0, sizes[snapshot.name], Kind.LINK, text, severity, system)


def _batches(listing: Listing, name: str, size: int) -> Iterator[Bytes]:
    """Iterate over the complete batches. Raises `BrokerError` and `UnreadableError`."""
    at = 0
    while size - at >= HEAD_UP_TO_MAGIC:
        length = int.from_bytes(listing.read(name, at + LENGTH_END - 4, 4), "big", signed=True)
        if length < LEGACY_MIN:
            text = f"Record size {length} is less than the minimum record overhead ({LEGACY_MIN})"
            raise CorruptRecord(text)
        if length > size - at - LENGTH_END:
            return
        batch = np.frombuffer(listing.read(name, at, LENGTH_END + length), np.uint8)
        if len(batch) < HEAD_SIZE:
            raise CorruptRecord(
                f"Record batch is corrupted (the size {len(batch)} is smaller than {HEAD_SIZE})"
            )
        stored, computed = int(batch[:HEAD_SIZE].view(HEAD)[0]["crc"]), crc32c_bytes(batch[CRC_START:])
        if stored != computed:
            raise CorruptRecord(f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")
        yield batch
        at += len(batch)


def _control(batch: Bytes) -> tuple[int | None, bytes]:
    """Return the type and the value of the last record of a control batch; None for other batches."""
    if not int(batch[:HEAD_SIZE].view(HEAD)[0]["attributes"]) & CONTROL:
        return None, b""
    records = consume_batch(batch, _LIMIT)
    kind, value, at = None, b"", 0
    try:
        for number in range(records.records):
            record, at = RECORD.unpack(records.data, at, len(records.data))
            key = CONTROL_RECORD_KEY.unpack(record["key"] or b"")[0]["type"]
            if number == 0 or key == _FOOTER:
                kind, value = int(key), record["value"] or b""
    except DescriptionError:
        return None, b""
    return kind, value


def _check_header(head: Any, control: tuple[int | None, bytes]) -> int | None:
    """Return the time in the header of a snapshot. Raises `BrokerError` if it begins with something else."""
    kind, value = control
    if not int(head["attributes"]) & CONTROL or head["records_count"] < 1:
        raise BrokerError("First batch is not a control batch with at least one record", _STATE)
    if kind != _HEADER:
        raise BrokerError(
            f"First control record is not a snapshot header ({CONTROL_TYPES.get(kind or 0, 'UNKNOWN')})",
            _STATE,
        )
    return int.from_bytes(value[_TIME], "big", signed=True) if len(value) >= _TIME.stop else None


def _without_batch(size: int) -> BrokerError:
    if 0 < size < HEAD_UP_TO_MAGIC:
        return BrokerError(
            'Cannot invoke "java.lang.Integer.intValue()" because the return value of '
            '"org.apache.kafka.common.record.internal.MemoryRecords.firstBatchSize()" is null',
            "java.lang.NullPointerException",
        )
    return BrokerError(
        "Received a fatal error while waiting for the controller to acknowledge that we are caught up"
    )
