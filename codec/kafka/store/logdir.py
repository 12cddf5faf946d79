"""A broker's log directory: the partitions, and the files that concern all of them.

The layout `kafka.logdir` is for writing. For reading, the partitions are separate stores of a container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from logwright.codec.base import Match
from logwright.codec.deferred import deferred
from logwright.codec.fault import Fault, Kind
from logwright.codec.kafka.formats.checkpoint import OFFSETS, Entry
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    FIRST_DIRTY,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_DIRECTORY_FILES,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    METADATA_FILE,
    RECOVERY_POINT_FILE,
    delete_directory,
    is_partition,
    parse_directory,
    parse_segment,
    place_of,
    why_misnamed,
)
from logwright.codec.kafka.options import LOG_DIRECTORY
from logwright.codec.kafka.store.evidence import readable_checkpoint
from logwright.codec.kafka.store.partition import LAYOUT as PARTITION
from logwright.codec.layout import Layout, RepairedStore
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.build import Builder, Parts, Placement, Stage
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role, folders_of
from logwright.codec.store.view import Part

if TYPE_CHECKING:
    from logwright.codec.engine.startup import Startup
    from logwright.codec.kafka.startup import server
    from logwright.codec.kafka.store import logdir_builder
else:
    server = deferred("logwright.codec.kafka.startup", "server")
    logdir_builder = deferred("logwright.codec.kafka.store", "logdir_builder")

_OWN = {*CHECKPOINTS, CLEANER_FILE, CLEAN_SHUTDOWN_FILE, LOCK_FILE, META_PROPERTIES_FILE}


class LogDirectoryLayout(Layout):
    """A log directory. A broker reads the regular files of its folders, whose names must be those of partitions."""

    name = "kafka.logdir"
    title = "Kafka log directory: the partitions on one disk"
    views = PARTITION.views
    default_view = PARTITION.default_view
    options = LOG_DIRECTORY
    folders = tuple(f"{start}*-{'[0-9]' * digits}" for start in ("", ".") for digits in range(1, 11))
    nouns = PARTITION.nouns
    inner_staging = delete_directory("logwright", "0" * 32)
    """A broker that starts here deletes this folder. Any other name would prevent the start."""
    withheld = (META_PROPERTIES_FILE,)
    trial_row = MappingProxyType({"topic": "topic", "partition": 0})

    def recognise(self, listing: Listing) -> Match:
        names = [entry.name for entry in listing.entries()]
        known = any(name in _OWN or place_of(name) is not None for name in names)
        return Match.NAME if known else Match.NO

    def plan(self, listing: Listing, options: Options) -> Plan:
        return Plan(tuple(PlannedFile(file.name, file.size, _role(file.name)) for file in listing.entries()))

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        return ()

    def locks(self) -> Sequence[str]:
        return (LOCK_FILE,)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Return the files of each partition in its own order, then files that concern all partitions. meta.properties is last: without it a
        broker does not start."""
        folders: dict[str, list[str]] = {}
        own = []
        for name in sorted(names):
            folder, slash, file = name.partition("/")
            if slash:
                folders.setdefault(folder, []).append(file)
            else:
                own.append(name)
        inner = [f"{folder}/{file}" for folder, files in folders.items() for file in PARTITION.order(files)]
        return [*inner, *sorted(own, key=lambda name: (name == META_PROPERTIES_FILE, name))]

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        return logdir_builder.LogDirectoryBuilder(options, None if staged else listing, staged=staged)

    def assemble(
        self, listing: Listing | None, name: str, parts: Parts, extra: Stage, options: Options
    ) -> Placement:
        return logdir_builder.assemble(listing, parts, extra, options).ordered(self.order)


def _role(name: str) -> Role:
    """Return the role of a file. The cluster's own metadata is foreign: no rows can replace it."""
    if name in _OWN:
        return Role.METADATA
    if place_of(name) is None or name.startswith(f"{METADATA_PARTITION}/"):
        return Role.FOREIGN
    return Role.PRIMARY


LAYOUT = LogDirectoryLayout()


# For reading

_SHOWN = 4
"""The number of changed checkpoint entries that a message names."""
_Partition = tuple[str, int]


class LogDirectory:
    """See `logwright.codec.layout.Container`."""

    name = "kafka.logdir"
    title = "Kafka log directory: the partitions on one disk"
    layout = "kafka.partition"
    own_files: Collection[str] = frozenset({*LOG_DIRECTORY_FILES, CLEANER_FILE, LOCK_FILE})
    writer: Layout | None = LAYOUT
    lock = LOCK_FILE

    @property
    def startup(self) -> Startup:
        return server.STARTUP

    def recognise(self, listing: Listing) -> bool:
        return any(entry.name in LOG_DIRECTORY_FILES for entry in listing.entries())

    unserved = staticmethod(why_misnamed)

    def check(
        self, listing: Listing, stores: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, str, Fault]]:
        yield from _missing_partitions(listing, stores)
        yield from _topic_ids(stores)

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


CONTAINER = LogDirectory()


def _missing_partitions(listing: Listing, stores: Collection[str]) -> Iterator[tuple[str, str, Fault]]:
    """Yield the partitions that have records by a checkpoint, and no folder or nothing in it. A broker removes the entries of a partition
    that it deletes."""
    folders = [name for name in folders_of(listing) if name in stores or not is_partition(name)]
    present = {parse_directory(name) for name in folders} - {None}
    starts = readable_checkpoint(listing, LOG_START_FILE) or {}
    gone: set[_Partition] = set()
    for name in (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE) if present else ():
        for place, end in sorted((readable_checkpoint(listing, name) or {}).items()):
            start = starts.get(place, 0)
            if place in present or place in gone or end <= start:
                continue
            gone.add(place)
            topic, partition = place
            text = f"the partition is missing, but {name} has offset {end}"
            lost = {"topic": topic, "partition": partition, "first_offset": start, "last_offset": end - 1}
            system = "the broker begins with an empty log"
            fault = Fault(LogDirectory.name, 0, 0, Kind.LINK, text, system=system, lost=lost)
            yield f"{topic}-{partition}", "", fault


def _topic_ids(stores: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, Fault]]:
    """Yield the partitions whose topic id is also that of another topic, or is not that of the topic's other partitions."""
    ids = {name: facts.get("topic_id") for name, facts in stores.items() if is_partition(name)}
    topics = {name: place.topic for name in ids if (place := parse_directory(name)) is not None}
    for name, own in ids.items():
        same_id = sorted(
            {topics[other] for other in ids if own is not None and ids[other] == own} - {topics[name]}
        )
        same_topic = sorted(
            {str(ids[other]) for other in ids if topics[other] == topics[name] and ids[other]} - {str(own)}
        )
        if own is None or not (same_id or same_topic):
            continue
        text = (
            f"the topic id {own} is also that of topic {same_id[0]}"
            if same_id
            else (f"the topic id is {own}, but that of other partitions of the topic is {same_topic[0]}")
        )
        system = "a broker sets a partition aside if its topic does not have this id"
        yield name, METADATA_FILE, Fault(LogDirectory.name, 0, 0, Kind.LINK, text, system=system)


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
