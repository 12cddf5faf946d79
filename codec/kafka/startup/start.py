"""Simulate the start of a broker on a partition: it reads the files above the partition, loads the log and serves consumers.

Source: `LogManager.loadLogs`, `UnifiedLog.create`, `LeaderEpochFileCache`, `PartitionMetadataFile`. The exception decides the scope
of a failure: an `IOException` takes the log directory offline, any other one ends the start of the whole broker.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from logwright.codec import plural
from logwright.codec.engine.repair import Removed
from logwright.codec.engine.startup import (
    Answers,
    LostRows,
    Mode,
    Refused,
    Served,
    Settings,
    Startup,
    SystemRepair,
)
from logwright.codec.fault import UnreadableError, join_lost
from logwright.codec.kafka.derive import EpochCache
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.tables import DECODED
from logwright.codec.kafka.formats.meta_properties import (
    KRAFT,
    ZOOKEEPER,
    MetaPropertiesError,
    mode_of,
    parse_meta_properties,
)
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import (
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    EPOCH_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    METADATA_FILE,
    RECOVERY_POINT_FILE,
    parse_directory,
    segment_name,
)
from logwright.codec.kafka.repair.runs import lost as lost_batches
from logwright.codec.kafka.repair.survey import survey
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.errors import BrokerError, NotLed, Offline, Stray, text_error
from logwright.codec.kafka.startup.fetch import Consumed, Consumer, Stretch
from logwright.codec.kafka.startup.loader import Config, Loaded, LogLoader
from logwright.codec.kafka.startup.lost import lost
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.kafka.store.evidence import read_checkpoint
from logwright.codec.kafka.store.raft_log import check_raft_log
from logwright.codec.kafka.store.raft_snapshots import read_snapshot
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Entry, Listing, PlannedFile, folders_of
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Part

VERSIONS = ("4.3",)


class ServedPartition(Served):
    """A loaded partition. Records below the offset `deleted` were deleted on purpose."""

    def __init__(
        self,
        overlay: Overlay,
        options: Options,
        mode: Mode,
        loaded: Loaded,
        consumed: Consumed,
        deleted: int,
        warnings: Sequence[str],
    ) -> None:
        self.overlay, self.options, self.mode = overlay, options, mode
        self.loaded, self._consumed, self._deleted, self._warnings = loaded, consumed, deleted, warnings

    def answers(self) -> Answers:
        consumed = self._consumed
        return Answers(
            consumed.rows,
            {
                "first": consumed.first,
                "last": consumed.last,
                "stops_at": None if consumed.error is None else consumed.position,
            },
            consumed.error,
            consumed.error_class,
            (
                *self._warnings,
                *self.loaded.warnings,
                *_append_warnings(self.overlay, self.loaded),
                *([] if consumed.warning is None else [consumed.warning]),
            ),
        )

    def lost(self) -> Iterable[LostRows]:
        # If the log ends before its start, the broker deletes all of it and creates an empty segment.
        emptied = segment_name(self.loaded.log_start_offset, ".log") in self.overlay.created
        return lost(self.overlay, self._consumed, 0 if emptied else self._deleted)

    def parts(self, view: str) -> Sequence[Part]:
        if view not in ("log", "batches"):
            consumed = consume(self.overlay, self.loaded, committed=view == "read_committed")
            table = view if view in DECODED else "rows"
            return [_consumed_part(stretch, table) for stretch in consumed.stretches]
        bases = sorted(self.loaded.segments)
        return [
            _segment_part(self.loaded.segments[base], following, view)
            for base, following in zip(bases, [*bases[1:], None], strict=True)
        ]

    def settle(self, repair: SystemRepair) -> None:
        repair.cut += [
            _removed(repair.listing, *removed, self.options) for removed in repair.removed_ranges()
        ]
        serves = repair.verdict.serves
        if serves["first"] is not None:
            repair.ids = {"first_offset": serves["first"], "last_offset": serves["last"]}
        if repair.verdict.error:
            repair.notes.append(f"Consumers stop at offset {serves['stops_at']}: {repair.verdict.error}")


def _segment_part(segment: LogSegment, next_base: int | None, view: str) -> Part:
    hints = {"base_offset": segment.base_offset, "next_base": next_base, "last": next_base is None}
    table = "frames" if view == "batches" else "rows"
    return Part(segment.log, log.CODEC.name, table, hints, 0, segment.size)


def _consumed_part(stretch: Stretch, table: str) -> Part:
    hints = {
        "base_offset": stretch.base_offset,
        "control": False,
        "partial": True,
        "stored": True,
        "start_offset": stretch.first_offset,
        "end_offset": stretch.next_offset,
        "skipped": stretch.skipped,
    }
    bounds = {"offset": (stretch.first_offset, stretch.next_offset - 1)}
    stop = stretch.stop + stretch.partial
    return Part(stretch.file, log.CODEC.name, table, hints, stretch.start, stop, bounds)


def _removed(listing: Listing, file: PlannedFile, start: int, stop: int, options: Options) -> Removed:
    """Count the records of a range of a log that is not in the result."""
    segment = survey(listing, 0, file, options)
    rows: int | None = 0
    lost_range: dict[str, Any] = {}
    for cut in segment.cut:
        if start <= cut.offset < stop and cut.rows_lost != 0:
            rows = None if rows is None or cut.rows_lost is None else rows + cut.rows_lost
            lost_range = join_lost(lost_range, cut.lost)
    for run in [*segment.good, *segment.misplaced]:
        position = run.begin + run.edges[:-1]
        heads = run.heads[(position >= start) & (position < stop)]
        more, where = lost_batches(listing, heads)
        rows = None if rows is None else rows + more
        lost_range = join_lost(lost_range, where)
    return Removed(file.name, start, stop - start, "the broker truncates or deletes it", 0, rows, lost_range)


def consume(overlay: Overlay, loaded: Loaded, *, committed: bool = False) -> Consumed:
    """Return what a consumer gets."""
    return Consumer(overlay, loaded, overlay.name, Options(log.CODEC.options), committed=committed).run()


def start(overlay: Overlay, settings: Settings) -> ServedPartition | Refused:
    """Follow a broker that starts on a partition. See `codec.engine.startup.Start`."""
    options = settings.options
    above = above_of(overlay.below)
    mode = above.mode(settings)
    deleted = 0
    try:
        above.identity(mode.name)
        config = above.config(options, settings.clean)
        deleted = config.log_start_offset
        loaded = load(overlay, overlay.name, config)
        watermark = above.high_watermark()
        above.check(overlay, loaded, mode.name, options["topic.id"])
        if watermark is not None:
            lead(loaded, watermark)
        consumed = consume(overlay, loaded)
    except UnreadableError as error:
        # The iteration over batches turns the disk's exception into one that nothing catches.
        text = f"{error.path}: {error.message}"
        return _refused(
            overlay, above, mode, BrokerError(text, "org.apache.kafka.common.KafkaException"), deleted
        )
    except BrokerError as error:
        return _refused(overlay, above, mode, error, deleted)
    return ServedPartition(overlay, options, mode, loaded, consumed, deleted, above.warnings)


def _refused(overlay: Overlay, above: Above, mode: Mode, error: BrokerError, deleted: int) -> Refused:
    return above.refused(
        Refused(
            error.scope,
            error.message,
            error.java or None,
            warnings=tuple(above.warnings),
            lost=lambda: lost(overlay, None, deleted),
            mode=mode,
        )
    )


def last_stop(listing: Listing, clean: bool | None) -> tuple[bool, str]:
    """Return whether the last stop of the broker was clean. See `codec.engine.startup.Startup`."""
    return above_of(listing).clean(clean)


STARTUP = Startup(
    "kafka",
    VERSIONS,
    start,
    last_stop,
    "the broker does not open the partition: {error}",
    "Strategy salvage keeps every undamaged batch; a broker opens the result",
)


def _append_warnings(overlay: Overlay, loaded: Loaded) -> Iterator[str]:
    """Warn of errors that the first append would cause. The broker does not notice them when it starts."""
    active = loaded.segments[max(loaded.segments)]
    end, highest = 0, active.base_offset - 1
    try:
        for chunk in entries(overlay, active.log, 0, active.size):
            end = chunk.stop
            highest = max(highest, int(chunk.last_offset.max()))
    except BrokerError:
        pass  # the bytes after it are not a batch
    if end < active.size:
        yield (
            f"{plural.count(active.size - end, 'byte')} that are not a batch stay at the end of {active.log}: "
            "records appended after them cannot be read"
        )
    if loaded.log_end_offset <= highest:
        yield (
            f"offsets from {loaded.log_end_offset} on are assigned again to appended records, although {active.log} has records"
            f" up to {highest}"
        )


def load(overlay: Overlay, partition: str, config: Config) -> Loaded:
    """Load the log, and write the files that the broker writes. Raises `BrokerError`."""
    epochs = _epochs(overlay)
    loaded = LogLoader(overlay, partition, config, epochs).load()
    if epochs.changed:
        # The broker writes a temporary file and renames it.
        overlay.delete(f"{EPOCH_FILE}.tmp")
        overlay.put(EPOCH_FILE, epochs.to_bytes())
    elif EPOCH_FILE not in overlay:
        overlay.put(EPOCH_FILE, b"")
    return loaded


def lead(loaded: Loaded, watermark: int) -> None:
    """Look up the high watermark, as a broker does that becomes the leader of a partition. Raises `NotLed`. Source:
    `Partition.maybeIncrementLeaderHW`, `UnifiedLog.fetchHighWatermarkMetadata`."""
    offset = max(watermark, loaded.log_start_offset)
    segment = loaded.floor(offset) if offset < loaded.log_end_offset else None
    try:
        while segment is not None and segment.translate(offset) is None:
            segment = loaded.higher(segment.base_offset)
    except BrokerError as error:
        raise NotLed(error.message, error.java) from error


def _epochs(overlay: Overlay) -> EpochCache:
    epochs = EpochCache()
    if EPOCH_FILE in overlay:
        try:
            epochs.load(overlay.read(EPOCH_FILE))
        except ParseError as error:
            raise text_error(f"{overlay.name}/{EPOCH_FILE}", error) from error
    return epochs


def _topic(overlay: Overlay, topic_id: str | None, mode: str) -> None:
    """Check the topic id of the partition, which the cluster's metadata must have in KRaft mode."""
    if METADATA_FILE not in overlay:
        if mode == ZOOKEEPER:
            return
        raise Stray(
            "partition.metadata is missing: the broker treats the partition as stray and renames its directory"
        )
    content = overlay.read(METADATA_FILE)
    try:
        stored = metadata.unpack(content)[1]
    except ParseError as error:
        raise text_error(f"{overlay.name}/{METADATA_FILE}", error) from error
    if topic_id is not None and topic_id != stored and mode == KRAFT:
        raise Stray(
            f"the topic id is {topic_id}, but partition.metadata has {stored}: the broker treats the partition as stray and"
            " renames its directory"
        )


class Above:
    """The log directory above a partition, if it can be read."""

    def __init__(self, listing: Listing) -> None:
        self.listing, self.where = listing, parse_directory(listing.name)
        self.parent = listing.parent()
        entries: Sequence[Entry] = [] if self.parent is None else self.parent.entries()
        self.names = {entry.name for entry in entries}
        self.warnings: list[str] = []

    def clean(self, option: bool | None) -> tuple[bool, str]:
        """Return whether the last stop counts as clean, and how that is known."""
        if option is not None:
            return option, "option"
        if self.parent is None:
            return False, "assumed: the log directory cannot be read"
        if CLEAN_SHUTDOWN_FILE in self.names:
            return True, f"{CLEAN_SHUTDOWN_FILE} exists"
        return False, f"{CLEAN_SHUTDOWN_FILE} does not exist"

    def config(self, options: Options, clean: bool) -> Config:
        """Return the settings of the broker. Raises `BrokerError`."""
        recovery = self._offset(RECOVERY_POINT_FILE)
        start = self._offset(LOG_START_FILE)
        return Config(
            clean=clean,
            log_start_offset=_first_given(options["log.start.offset"], start),
            recovery_point=_first_given(options["recovery.point"], recovery),
            index_interval_bytes=options["index.interval.bytes"],
            segment_index_bytes=options["segment.index.bytes"],
            producer_id_expiration_ms=options["producer.id.expiration.ms"],
            now=round(time.time() * 1000) if options["now"] is None else options["now"],
        )

    def high_watermark(self) -> int | None:
        """Return the high watermark that a new leader begins with; None if it is unknown. Raises `BrokerError`."""
        watermark = self._offset(HIGH_WATERMARK_FILE)
        return None if self.parent is None else watermark or 0

    def check(self, overlay: Overlay, loaded: Loaded, mode: str, topic_id: str | None) -> None:
        """Check the files that belong to the partition as a whole. Raises `BrokerError`."""
        _topic(overlay, topic_id, mode)

    def refused(self, refused: Refused) -> Refused:
        """Return the failure as the broker reports it."""
        return refused

    def mode(self, settings: Settings) -> Mode:
        """Return the mode of the broker."""
        if settings.version_given:
            return mode_of_version(settings.version)
        if self.parent is None:
            return Mode(KRAFT, "assumed: the log directory cannot be read")
        if META_PROPERTIES_FILE not in self.names:
            return Mode(KRAFT, f"assumed: there is no {META_PROPERTIES_FILE}")
        return mode_of_directory(
            self.parent.read(META_PROPERTIES_FILE), {*self.names, *folders_of(self.parent)}
        )

    def identity(self, mode: str) -> None:
        """Check `meta.properties` of the log directory, if it exists. Raises `BrokerError`."""
        if self.parent is None or META_PROPERTIES_FILE not in self.names:
            return
        try:
            properties = parse_meta_properties(self.parent.read(META_PROPERTIES_FILE))
        except MetaPropertiesError as error:
            raise Offline(
                f"Error while reading meta.properties file {self.parent.name}/{META_PROPERTIES_FILE}: {error}",
                error.java,
            ) from error
        if mode == KRAFT:
            for name, value in (("node", properties.node_id), ("cluster", properties.cluster_id)):
                if value is None:
                    raise BrokerError(f"Error: {name} ID not found in {self.parent.name}")

    def _offset(self, name: str) -> int | None:
        """Return the partition's entry in a checkpoint. A number that cannot be parsed is a warning. Any other error takes the log directory
        offline."""
        try:
            return (read_checkpoint(self.listing.parent(), name) or {}).get(self.where)
        except ParseError as error:
            if not error.system:
                raise text_error(name, error) from error
            self.warnings.append(
                f"Error occurred while reading {name} file, resetting it to 0: {error.message}"
            )
            return None


class RaftLogAbove(Above):
    """The log directory above the metadata log, which no checkpoint mentions. Without this log the broker does not start."""

    def __init__(self, listing: Listing) -> None:
        super().__init__(listing)
        self.folders = folders_of(listing)

    def clean(self, option: bool | None) -> tuple[bool, str]:
        return False, "the metadata log is recovered at every start"

    def high_watermark(self) -> int | None:
        return None

    def _offset(self, name: str) -> int | None:
        return None

    def check(self, overlay: Overlay, loaded: Loaded, mode: str, topic_id: str | None) -> None:
        name = check_raft_log(overlay, loaded.log_start_offset, self.folders)
        if name is not None:
            snapshot = read_snapshot(overlay, name, overlay.size(name))
            if snapshot.error is not None:
                raise snapshot.error
            if snapshot.flaw:
                self.warnings.append(
                    f"{name}: {snapshot.flaw}. The broker loads the records before it, and stops if its log needs others"
                )

    def refused(self, refused: Refused) -> Refused:
        text, java = refused.error, refused.error_class
        if refused.scope == Offline.scope and (java or "").startswith(("java.io.", "java.nio.")):
            text = f"Error while reading checkpoint file {METADATA_PARTITION}/{EPOCH_FILE}: {text}"
            java = "org.apache.kafka.common.errors.KafkaStorageException"
        return replace(refused, scope=BrokerError.scope, error=text, error_class=java)


def above_of(listing: Listing) -> Above:
    return RaftLogAbove(listing) if listing.name == METADATA_PARTITION else Above(listing)


def mode_of_version(release: str) -> Mode:
    return Mode(KRAFT, f"Kafka {release} has no other mode")


def mode_of_directory(content: bytes, names: Collection[str]) -> Mode:
    """Return the mode of the broker of a log directory, by its `meta.properties` and the names in it."""
    try:
        properties = parse_meta_properties(content)
    except MetaPropertiesError:
        return Mode(KRAFT, f"assumed: {META_PROPERTIES_FILE} cannot be read")
    version = f"{META_PROPERTIES_FILE} has version={properties.version}"
    if mode_of(properties) == KRAFT:
        return Mode(KRAFT, version)
    for name in (METADATA_PARTITION, BOOTSTRAP_FILE):
        if name in names:
            return Mode(KRAFT, f"{name} exists")
    if mode_of(properties) == ZOOKEEPER:
        return zookeeper_mode(f"{version} and broker.id={properties.node_id}")
    return Mode(KRAFT, f"assumed: {META_PROPERTIES_FILE} has neither node.id nor broker.id")


def zookeeper_mode(known_from: str) -> Mode:
    """Return ZooKeeper mode. The log rules are those of the newest version in any mode."""
    return Mode(ZOOKEEPER, known_from, f"kafka in ZooKeeper mode (log rules of {VERSIONS[0]})")


def _first_given(option: int | None, checkpoint: int | None) -> int:
    return next((offset for offset in (option, checkpoint) if offset is not None), 0)
