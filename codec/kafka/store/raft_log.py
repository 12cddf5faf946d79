"""Check the files of KRaft in the directory of the metadata log: the vote, and snapshots of the metadata.

Source: `KafkaRaftLog.recoverSnapshots`, `Snapshots.parse`, `KafkaRaftClient.initialize` and `BatchFileReader` of Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log.consumer import consume_batch
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD, HEAD_SIZE, LENGTH_END
from logwright.codec.kafka.formats.log.scan import LEGACY_MIN
from logwright.codec.kafka.formats.quorum_state import (
    MAX_BYTES,
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    QUORUM_STATE_FILE,
    parse_quorum_state,
    unreadable,
)
from logwright.codec.kafka.names import METADATA_FILE, long_of
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing

SNAPSHOT_SUFFIX = ".checkpoint"
UNFINISHED = (".checkpoint.part", ".checkpoint.deleted")
"""The ends of names of snapshots that are being written or deleted. A broker removes them when it starts."""
_OFFSET, _EPOCH = (0, 20), (21, 31)
"""The positions of the two numbers in the name of a snapshot."""
_HEAD = 17
"""Bytes of a batch up to its magic. The broker reads no fewer."""


class SnapshotName(NamedTuple):
    """The name of a snapshot: the offset after its last record, and the epoch of that record."""

    offset: int
    epoch: int
    finished: bool


def parse_snapshot(name: str) -> SnapshotName | None:
    """Parse the name of a snapshot; None for any other file. Raises `BrokerError` if the broker's parser throws."""
    if not name.endswith((SNAPSHOT_SUFFIX, *UNFINISHED)):
        return None
    offset, epoch = (_number(name, *place) for place in (_OFFSET, _EPOCH))
    return SnapshotName(offset, epoch, name.endswith(SNAPSHOT_SUFFIX))


def _number(name: str, start: int, stop: int) -> int:
    if len(name) < stop:
        raise BrokerError(
            f"begin {start}, end {stop}, length {len(name)}", "java.lang.StringIndexOutOfBoundsException"
        )
    return long_of(name[start:stop])


def check_raft_log(listing: Listing, log_start_offset: int, folders: Collection[str] = ()) -> str | None:
    """Check the files that a broker reads with its metadata log, and return the name of the snapshot that it loads. `folders` are its
    sub-directories. Raises `BrokerError`."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    _check_topic_id(listing, sizes)
    latest = _latest_snapshot(sizes, log_start_offset)
    path = f"{METADATA_PARTITION}/{QUORUM_STATE_FILE}"
    if QUORUM_STATE_FILE in folders:
        unreadable(path, "Is a directory")
    if QUORUM_STATE_FILE in sizes:
        parse_quorum_state(listing.read(QUORUM_STATE_FILE, 0, MAX_BYTES), path)
    return latest


def _check_topic_id(listing: Listing, sizes: dict[str, int]) -> None:
    if METADATA_FILE not in sizes:
        return
    try:
        stored = metadata.unpack(listing.read(METADATA_FILE, 0, MAX_BYTES))[1]
    except ParseError as error:
        raise BrokerError(
            f"Error while reading partition metadata file {METADATA_PARTITION}/{METADATA_FILE}: {error.message}",
            "org.apache.kafka.common.errors.KafkaStorageException",
        ) from error
    if stored != METADATA_TOPIC_ID:
        raise BrokerError(
            f"Tried to assign topic ID Optional[{METADATA_TOPIC_ID}] to log for topic partition {METADATA_PARTITION},"
            f"but log already contained topic ID {stored}",
            "org.apache.kafka.common.errors.InconsistentTopicIdException",
        )


def _latest_snapshot(sizes: dict[str, int], log_start_offset: int) -> str | None:
    """Return the newest snapshot that the broker keeps. Without one the log must begin at 0."""
    snapshots = {name: parse_snapshot(name) for name in sorted(sizes)}
    kept = {
        name: at
        for name, at in snapshots.items()
        if at is not None and at.finished and at.offset >= log_start_offset
    }
    if log_start_offset > 0 and not kept:
        raise BrokerError(
            "Inconsistent snapshot state: there must be a snapshot at an offset larger then the current log start offset "
            f"{log_start_offset}, but the latest snapshot is Optional.empty",
            "java.lang.IllegalStateException",
        )
    return max(kept, key=lambda name: (kept[name].epoch, kept[name].offset), default=None)


def check_bootstrap(data: bytes, path: str) -> None:
    """Check `bootstrap.checkpoint`, which must have a record of the feature `metadata.version`. Raises `BrokerError`.

    The broker reads it without checking checksums.
    """
    if not any(_METADATA_VERSION in records for records in _data_records(data, path)):
        raise BrokerError(
            "No FeatureLevelRecord for metadata.version was found in the bootstrap metadata from the binary bootstrap "
            f"metadata file: {path}"
        )


_METADATA_VERSION = b"metadata.version"
_LIMIT = 64 << 20


def _data_records(data: bytes, path: str) -> Iterator[bytes]:
    """Return the decompressed records of each complete batch, except control batches."""
    at = 0
    while at + _HEAD <= len(data):
        size = int.from_bytes(data[at + LENGTH_END - 4 : at + LENGTH_END], "big", signed=True)
        if size < LEGACY_MIN:
            raise BrokerError(
                f"Found record size {size} smaller than minimum record overhead ({LEGACY_MIN}) in file {path}.",
                "org.apache.kafka.common.errors.CorruptRecordException",
            )
        batch = np.frombuffer(data[at : at + LENGTH_END + size], np.uint8)
        if len(batch) < LENGTH_END + size or len(batch) < HEAD_SIZE:
            return
        head = batch[:HEAD_SIZE].view(HEAD)[0]
        if head["records_count"] == 0:
            raise BrokerError(
                f"Batch must contain at least one record; baseOffset = {head['base_offset']}; epoch = "
                f"{head['partition_leader_epoch']}",
                "java.lang.IllegalArgumentException",
            )
        got = consume_batch(batch, _LIMIT)
        if got.error is not None:
            raise BrokerError(got.error.message or path, got.error.java)
        if not int(head["attributes"]) & CONTROL:
            yield bytes(got.data)
        at += len(batch)
