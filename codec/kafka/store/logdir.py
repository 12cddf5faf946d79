"""A broker's log directory: the partitions, and the files that concern all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logwright.codec.deferred import deferred
from logwright.codec.kafka.formats.checkpoint import OFFSETS, Entry
from logwright.codec.kafka.names import (
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    FIRST_DIRTY,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    is_partition,
    parse_directory,
    parse_segment,
)
from logwright.codec.kafka.store.logdir_layout import LAYOUT
from logwright.codec.layout import Layout, RepairedStore
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing

if TYPE_CHECKING:
    from logwright.codec.engine.startup import Startup
    from logwright.codec.kafka.startup import server
    from logwright.codec.kafka.store import logdir_builder
else:
    server = deferred("logwright.codec.kafka.startup", "server")
    logdir_builder = deferred("logwright.codec.kafka.store", "logdir_builder")

_ABOVE = {
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
}
_SHOWN = 4
"""The number of changed checkpoint entries that a message names."""
_Partition = tuple[str, int]


class LogDirectory:
    """See `logwright.codec.layout.Container`."""

    name = "kafka.logdir"
    title = "Kafka log directory: the partitions on one disk"
    layout = "kafka.partition"
    own_files: Collection[str] = frozenset({*_ABOVE, CLEANER_FILE, LOCK_FILE})
    writer: Layout | None = LAYOUT
    lock = LOCK_FILE

    @property
    def startup(self) -> Startup:
        return server.STARTUP

    def recognise(self, listing: Listing) -> bool:
        return any(entry.name in _ABOVE for entry in listing.entries())

    def compacted(
        self, listing: Listing, stores: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, bytes] | None:
        """Return the checkpoint of the log cleaner. Source: `LogCleanerManager.updateCheckpoints`."""
        ends = {
            parse_directory(name): ids[FIRST_DIRTY]
            for name, ids in stores.items()
            if FIRST_DIRTY in ids and is_partition(name)
        }
        offsets = logdir_builder.stored_offsets(listing, CLEANER_FILE)
        if not ends:
            return None
        offsets |= {(place.topic, place.partition): end for place, end in ends.items() if place is not None}
        return CLEANER_FILE, logdir_builder.pack_offsets(offsets)

    def after_repair(
        self, name: str, data: bytes, stores: Sequence[RepairedStore]
    ) -> tuple[bytes | None, str]:
        if name == CLEAN_SHUTDOWN_FILE and any(store.changed for store in stores):
            # With this file a controller assumes that the broker has lost nothing.
            return None, f"{name} is removed, so that the broker checks the repaired logs when it starts"
        if name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE, LOG_START_FILE):
            return _checkpoint(name, data, _log_ends(stores))
        return data, ""


LOG_DIRECTORY = LogDirectory()


def _log_ends(stores: Sequence[RepairedStore]) -> Mapping[_Partition, int | None]:
    """Return the log end offset of each partition; None if it is unknown."""
    ends: dict[_Partition, int | None] = {}
    for store in stores:
        partition = parse_directory(store.name)
        if partition is None or not is_partition(store.name):
            continue
        segments = (parse_segment(name) for name in store.files)
        known = [
            segment.base_offset for segment in segments if segment is not None and segment.suffix == ".log"
        ]
        if "last_offset" in store.ids:
            known.append(store.ids["last_offset"] + 1)
        ends[partition.topic, partition.partition] = max(known, default=None)
    return ends


def _checkpoint(name: str, data: bytes, ends: Mapping[_Partition, int | None]) -> tuple[bytes, str]:
    """Return a checkpoint without offsets beyond the end of a log.

    With a recovery point beyond the end, the broker does not check the log after a crash. With a cleaner offset beyond it, the cleaner
    skips records that are appended later. With a log start offset beyond it, the broker deletes the log.
    """
    changes: list[str] = []
    try:
        before = OFFSETS.unpack(data)
    except ParseError as error:
        before = OFFSETS.salvage(data)
        changes.append(f"it was malformed ({error.message}); {len(before)} of its entries were kept")
    after: list[Entry] = []
    for entry in before:
        topic, partition, offset = str(entry[0]), int(entry[1]), int(entry[2])
        present = (topic, partition) in ends
        end = ends.get((topic, partition))
        if (present and end is not None and offset <= end) or (
            name == LOG_START_FILE and (not present or end is None)
        ):
            after.append(entry)
        elif name == LOG_START_FILE:
            changes.append(f"{topic}-{partition} removed ({offset} is beyond the log end offset {end})")
        elif end is not None:
            after.append((topic, partition, end))
            changes.append(f"{topic}-{partition} lowered from {offset} to the log end offset {end}")
        else:
            changes.append(f"{topic}-{partition} removed")
    if not changes:
        return data, ""
    more = f", and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return OFFSETS.pack(after), f"{name} is changed: {', '.join(changes[:_SHOWN])}{more}"
