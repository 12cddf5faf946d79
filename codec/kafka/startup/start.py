"""Starting a broker on a partition, in thought: what it reads above the partition, the load, and what its consumers then get.

Source: `LogManager.loadLogs`, `UnifiedLog.create`, `LeaderEpochFileCache`, `PartitionMetadataFile`; the exceptions decide how far
the damage goes: an `IOException` takes the log directory offline, any other one ends the start of the whole broker.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logwright.codec.fault import UnreadableError, UsageError
from logwright.codec.kafka.derive import EpochCache
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.checkpoint import OFFSETS, NoNumber
from logwright.codec.kafka.formats.log import codec as log
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
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.errors import BrokerError, Offline, Stray
from logwright.codec.kafka.startup.fetch import Consumer, Served, Stretch
from logwright.codec.kafka.startup.loader import Config, Loaded, LogLoader
from logwright.codec.kafka.startup.lost import lost
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.kafka.store import builder
from logwright.codec.kafka.store.raft_log import check_raft_log
from logwright.codec.option import Option, Options, parse_text
from logwright.codec.predict import Verdict
from logwright.codec.store.listing import Entry, Listing, Plan, folders_of
from logwright.codec.store.overlay import Disk
from logwright.codec.store.view import Part
from logwright.codec.whole import ParseError

VERSIONS = ("4.3",)

LOG_START_OFFSET = Option(
    "log.start.offset",
    None,
    "Records below are not served; by default what log-start-offset-checkpoint in the directory above says",
    low=0,
    high=(1 << 63) - 1,
)
RECOVERY_POINT = Option(
    "recovery.point",
    None,
    "After an unclean stop the segment that holds this offset and those behind it are recovered; by default what "
    "recovery-point-offset-checkpoint in the directory above says, else 0",
    low=0,
    high=(1 << 63) - 1,
)
_WRITING = {option.name: option for option in builder.OPTIONS}
INDEX_INTERVAL_BYTES, SEGMENT_INDEX_BYTES = (
    _WRITING[name] for name in ("index.interval.bytes", "segment.index.bytes")
)
TOPIC_ID = Option(
    "topic.id",
    None,
    "The topic's id in the cluster's metadata; by default that in partition.metadata",
    parse_text,
)

PRODUCER_ID_EXPIRATION_MS = Option(
    "producer.id.expiration.ms",
    None,
    "Producers that were idle for so many milliseconds are forgotten; by default none are",
    low=1,
)
NOW = Option("now", None, "The time of the start in milliseconds; by default that of the clock", low=0)

OPTIONS = (
    LOG_START_OFFSET,
    RECOVERY_POINT,
    INDEX_INTERVAL_BYTES,
    SEGMENT_INDEX_BYTES,
    TOPIC_ID,
    PRODUCER_ID_EXPIRATION_MS,
    NOW,
)

_IO_EXCEPTION = "java.io.IOException"


def version_of(asked: str | None) -> str:
    """The version asked about: "4.3", "4.3.0" or "kafka 4.3" are one. Raises `UsageError`."""
    if asked is None or asked.lower() in ("", "kafka", "true"):
        return VERSIONS[0]
    number = asked.lower().removeprefix("kafka").strip(" -=")
    for one in VERSIONS:
        if number == one or number.startswith(f"{one}."):
            return one
    raise UsageError(
        f"what Kafka {asked!r} would do is not known",
        advice=f"Versions that can be asked about: {', '.join(VERSIONS)}",
    )


class Started:
    """A partition after a start. See `logwright.codec.predict.Opened`."""

    def __init__(self, verdict: Verdict, disk: Disk, loaded: Loaded | None, partition: str) -> None:
        self.verdict, self.after = verdict, disk
        self._loaded, self._partition = loaded, partition

    @property
    def log_offsets(self) -> tuple[int, int] | None:
        """Log start offset and log end offset; None where it does not open."""
        return None if self._loaded is None else (self._loaded.log_start_offset, self._loaded.log_end_offset)

    def serves(self, view: str) -> bool:
        return False

    def serve(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError(f"view {view} is read as parts")

    def parts(self, view: str) -> Sequence[Part]:
        if self._loaded is None:
            return []
        if view in ("read_uncommitted", "read_committed"):
            served = consume(self.after, self._loaded, self._partition, committed=view == "read_committed")
            return [part for one in served.stretches for part in self._served(one)]
        return [part for segment in self._segments() for part in self._whole(segment, view)]

    def _segments(self) -> Sequence[LogSegment]:
        assert self._loaded is not None
        return [segment for _, segment in sorted(self._loaded.segments.items())]

    def _whole(self, segment: LogSegment, view: str) -> Iterator[Part]:
        later = [one.base_offset for one in self._segments() if one.base_offset > segment.base_offset]
        hints = {"base_offset": segment.base_offset, "next_base": min(later, default=None), "last": not later}
        table = "frames" if view == "batches" else "rows"
        yield from self._where(segment.log, table, hints, 0, segment.size)

    def _served(self, one: Stretch) -> Iterator[Part]:
        hints = {
            "base_offset": one.base_offset,
            "control": False,
            "partial": True,
            "stored": True,
            "start_offset": one.first_offset,
            "end_offset": one.next_offset,
            "aborted": one.aborted,
        }
        bounds = {"offset": (one.first_offset, one.next_offset - 1)}
        for part in self._where(one.file, "rows", hints, one.start, one.stop + one.partial):
            yield replace(part, bounds=bounds)

    def _where(
        self, file: str, table: str, hints: Mapping[str, Any], start: int, stop: int
    ) -> Iterator[Part]:
        """The stretch in the directory as it is, before anything was renamed or split."""
        origin = self.after.origin(file)
        if origin is not None and start < stop:
            yield Part(origin[0], log.CODEC.name, table, hints, origin[1] + start, origin[1] + stop)


def consume(disk: Disk, loaded: Loaded, partition: str, *, committed: bool = False) -> Served:
    """What a consumer gets."""
    return Consumer(disk, loaded, partition, Options(log.CODEC.options), committed=committed).run()


def start(
    listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
) -> Started:
    """See `codec.capability.Start`."""
    return start_broker(listing, options, version=version, clean=clean)


def start_broker(listing: Listing, options: Options, *, version: str | None, clean: bool | None) -> Started:
    """Simulate the start of a broker on a partition."""
    release = version_of(version)
    above = RaftLogAbove(listing) if listing.name == METADATA_PARTITION else Above(listing)
    was_clean, clean_from = above.clean(clean)
    mode, mode_from = above.mode(version)
    disk = Disk(listing)
    verdict = Verdict(
        "kafka", release, was_clean, clean_from, mode=mode, mode_from=mode_from, title=title_of(mode, release)
    )
    where = parse_directory(listing.name)
    loaded: Loaded | None = None
    deleted = 0
    try:
        above.identity(mode)
        config = above.config(options, was_clean)
        deleted = config.log_start_offset
        loaded = load(disk, listing.name, config)
        above.high_watermark()
        above.check(disk, loaded, mode, options["topic.id"])
        served = consume(disk, loaded, listing.name)
    except (BrokerError, UnreadableError) as error:
        verdict = above.refused(_refused(verdict, error))
        gone = lost(listing, Served(), where, deleted)
        loaded = None
    else:
        verdict = replace(
            verdict,
            rows=served.rows,
            serves={
                "first": served.first,
                "last": served.last,
                "stops_at": None if served.error is None else served.position,
            },
            error=served.error,
            error_class=served.error_class,
            warnings=(
                *loaded.warnings,
                *_ahead(disk, loaded),
                *([] if served.warning is None else [served.warning]),
            ),
        )
        # Where the log ends before its start, all of it is deleted, and one empty segment made.
        emptied = segment_name(loaded.log_start_offset, ".log") in disk.creates
        gone = lost(listing, served, where, 0 if emptied else deleted, after=disk)
    verdict = replace(
        verdict,
        truncates=disk.truncates,
        removes=tuple(disk.removes),
        rewrites=tuple(disk.rewrites),
        creates=tuple(disk.creates),
        warnings=(*above.warnings, *verdict.warnings, *gone.warnings),
        rows_lost=gone.rows,
        lost=tuple(gone.ranges),
    )
    return Started(verdict, disk, loaded, listing.name)


def _ahead(disk: Disk, loaded: Loaded) -> Iterator[str]:
    """What goes wrong as soon as something is appended: nothing of it is noticed when the broker starts."""
    active = loaded.segments[max(loaded.segments)]
    end, highest = 0, active.base_offset - 1
    try:
        for found in entries(disk, active.log, 0, active.size):
            end = int(found.position[-1] + found.end[-1] - found.start[-1])
            highest = max(highest, int(found.last_offset.max()))
    except BrokerError:
        pass  # what is behind it is no batch
    if end < active.size:
        yield (
            f"{active.size - end} bytes that are no batch stay at the end of {active.log}: what is appended comes behind them, and "
            "is out of reach"
        )
    if loaded.log_end_offset <= highest:
        yield (
            f"offsets from {loaded.log_end_offset} on are given again to what is appended, although {active.log} has records "
            f"up to {highest}"
        )


def _refused(verdict: Verdict, error: BrokerError | UnreadableError) -> Verdict:
    """It does not open: the exception says how far that goes."""
    if isinstance(error, UnreadableError):
        # Where batches are iterated over, the exception of the disk becomes one that nothing catches.
        error = BrokerError(f"{error.path}: {error.message}", "org.apache.kafka.common.KafkaException")
    return replace(
        verdict,
        opens=False,
        scope=error.scope,
        error=error.message,
        error_class=error.java or None,
        rows=0,
        serves={"first": None, "last": None, "stops_at": None},
    )


def load(disk: Disk, partition: str, config: Config) -> Loaded:
    """Load the log, and write down what the broker would. Raises `BrokerError`."""
    epochs = _epochs(disk)
    loaded = LogLoader(disk, partition, config, epochs).load()
    if epochs.changed:
        # By a temporary file that takes its place.
        disk.delete(f"{EPOCH_FILE}.tmp")
        disk.put(EPOCH_FILE, epochs.to_bytes())
    elif EPOCH_FILE not in disk:
        disk.put(EPOCH_FILE, b"")
    return loaded


def _epochs(disk: Disk) -> EpochCache:
    epochs = EpochCache()
    if EPOCH_FILE in disk:
        try:
            epochs.load(disk.read(EPOCH_FILE))
        except ParseError as error:
            name = "NumberFormatException" if isinstance(error, NoNumber) else "IllegalArgumentException"
            raise _text_error(EPOCH_FILE, error, f"java.lang.{name}") from error
    return epochs


def _text_error(name: str, error: ParseError, java: str) -> BrokerError:
    text = f"{name}: {error.message}"
    return BrokerError(text, java) if error.system else Offline(text, _IO_EXCEPTION)


def _topic(disk: Disk, topic_id: str | None, mode: str) -> None:
    """The topic id of the partition, which the cluster's metadata must know in KRaft mode."""
    if METADATA_FILE not in disk:
        if mode == ZOOKEEPER:
            return
        raise Stray(
            "partition.metadata is not there: the broker takes the log for a stray one and renames its directory"
        )
    content = disk.read(METADATA_FILE)
    try:
        found = metadata.unpack(content)[1]
    except ParseError as error:
        java = "NullPointerException" if len(content.splitlines()) < 2 else "IllegalArgumentException"
        raise _text_error(METADATA_FILE, error, f"java.lang.{java}") from error
    if topic_id is not None and topic_id != found and mode == KRAFT:
        raise Stray(
            f"the topic's id is {topic_id}, partition.metadata has {found}: the broker takes the log for a stray one and "
            "renames its directory"
        )


class Above:
    """The log directory that a partition lies in, where it can be read: what of it counts for the partition."""

    def __init__(self, listing: Listing) -> None:
        self.where = parse_directory(listing.name)
        self.parent = listing.parent()
        entries: Sequence[Entry] = [] if self.parent is None else self.parent.entries()
        self.names = {entry.name for entry in entries}
        self.warnings: list[str] = []

    def clean(self, asked: bool | None) -> tuple[bool, str]:
        """Whether the last stop counts as clean, and how that is known."""
        if asked is not None:
            return asked, "option"
        if self.parent is None:
            return False, "assumed: the directory above can't be read"
        if CLEAN_SHUTDOWN_FILE in self.names:
            return True, f"{CLEAN_SHUTDOWN_FILE} is there"
        return False, f"{CLEAN_SHUTDOWN_FILE} is not there"

    def config(self, options: Options, clean: bool) -> Config:
        """Raises `BrokerError`."""
        recovery = self._offset(RECOVERY_POINT_FILE)
        start = self._offset(LOG_START_FILE)
        return Config(
            clean=clean,
            log_start_offset=_given(options["log.start.offset"], start),
            recovery_point=_given(options["recovery.point"], recovery),
            index_interval_bytes=options["index.interval.bytes"],
            segment_index_bytes=options["segment.index.bytes"],
            producer_id_expiration_ms=options["producer.id.expiration.ms"],
            now=round(time.time() * 1000) if options["now"] is None else options["now"],
        )

    def high_watermark(self) -> None:
        """Read when the partition gets its leader; without other replicas the log's end counts. Raises `BrokerError`."""
        self._offset(HIGH_WATERMARK_FILE)

    def check(self, disk: Disk, loaded: Loaded, mode: str, topic_id: str | None) -> None:
        """Check the files that belong to the partition as a whole. Raises `BrokerError`."""
        _topic(disk, topic_id, mode)

    def refused(self, verdict: Verdict) -> Verdict:
        """The verdict on a partition that does not open."""
        return verdict

    def mode(self, version: str | None) -> tuple[str, str]:
        """The mode of the broker, and how it is known."""
        if not is_default_version(version):
            return KRAFT, f"Kafka {VERSIONS[0]} has no other mode"
        if self.parent is None:
            return KRAFT, "assumed: the directory above can't be read"
        if META_PROPERTIES_FILE not in self.names:
            return KRAFT, f"assumed: there is no {META_PROPERTIES_FILE}"
        return mode_of_directory(
            self.parent.read(META_PROPERTIES_FILE), {*self.names, *folders_of(self.parent)}
        )

    def identity(self, mode: str) -> None:
        """Check `meta.properties` of the log directory, where there is one. Raises `BrokerError`."""
        if self.parent is None or META_PROPERTIES_FILE not in self.names:
            return
        try:
            found = parse_meta_properties(self.parent.read(META_PROPERTIES_FILE))
        except MetaPropertiesError as error:
            raise Offline(
                f"Error while reading meta.properties file {self.parent.name}/{META_PROPERTIES_FILE}: {error}",
                error.java,
            ) from error
        if mode == KRAFT:
            for name, value in (("node", found.node_id), ("cluster", found.cluster_id)):
                if value is None:
                    raise BrokerError(f"Error: {name} ID not found in {self.parent.name}")

    def _offset(self, name: str) -> int | None:
        """The partition's entry in a checkpoint. A number that can't be parsed is a warning, anything else takes the disk offline."""
        if self.parent is None or name not in self.names:
            return None
        try:
            found: Mapping[Any, int] = {
                (topic, partition): int(offset)
                for topic, partition, offset in OFFSETS.unpack(self.parent.read(name))
            }
        except ParseError as error:
            if not error.system:
                raise Offline(f"Error while reading checkpoint file {name}: {error.message}") from error
            self.warnings.append(
                f"Error occurred while reading {name} file, resetting it to 0: {error.message}"
            )
            return None
        return found.get(self.where)


class RaftLogAbove(Above):
    """The log directory of the metadata log, whose checkpoints say nothing of it. Without this log the broker does not start."""

    def __init__(self, listing: Listing) -> None:
        super().__init__(listing)
        self.folders = folders_of(listing)

    def clean(self, asked: bool | None) -> tuple[bool, str]:
        return False, "the metadata log is recovered at every start"

    def _offset(self, name: str) -> int | None:
        return None

    def check(self, disk: Disk, loaded: Loaded, mode: str, topic_id: str | None) -> None:
        check_raft_log(disk, loaded.log_start_offset, self.folders)

    def refused(self, verdict: Verdict) -> Verdict:
        text, java = verdict.error, verdict.error_class
        if verdict.scope == "log_dir" and java == _IO_EXCEPTION:
            text = f"Error while reading checkpoint file {METADATA_PARTITION}/{text}"
            java = "org.apache.kafka.common.errors.KafkaStorageException"
        return replace(verdict, scope="process", error=text, error_class=java)


def is_default_version(version: str | None) -> bool:
    """Whether no version in particular was asked about."""
    return version is None or version.lower() in ("", "kafka", "true")


def mode_of_directory(content: bytes, names: Collection[str]) -> tuple[str, str]:
    """The mode of the broker of a log directory, by its `meta.properties` and the names in it; and how it is known."""
    try:
        found = parse_meta_properties(content)
    except MetaPropertiesError:
        return KRAFT, f"assumed: {META_PROPERTIES_FILE} can't be read"
    said = f"{META_PROPERTIES_FILE} has version={found.version}"
    if mode_of(found) == KRAFT:
        return KRAFT, said
    for name in (METADATA_PARTITION, BOOTSTRAP_FILE):
        if name in names:
            return KRAFT, f"{name} is there"
    if mode_of(found) == ZOOKEEPER:
        return ZOOKEEPER, f"{said} and broker.id={found.node_id}"
    return KRAFT, f"assumed: {META_PROPERTIES_FILE} has neither node.id nor broker.id"


def title_of(mode: str, release: str) -> str:
    """How a sentence calls a broker of this mode: the rules of the log are those of `release` in any mode."""
    return f"kafka in ZooKeeper mode (log rules of {release})" if mode == ZOOKEEPER else ""


def _given(option: int | None, checkpoint: int | None) -> int:
    return next((one for one in (option, checkpoint) if one is not None), 0)
