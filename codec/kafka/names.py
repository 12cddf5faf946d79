"""Names in a log directory. Source: `LogFileUtils`, `UnifiedLog.parseTopicPartitionName` and `Topic` of Kafka."""

from __future__ import annotations

import re
from typing import NamedTuple

from logwright.codec.java import integer
from logwright.codec.kafka.startup.errors import BrokerError

EPOCH_FILE = "leader-epoch-checkpoint"
METADATA_FILE = "partition.metadata"
CLEANER_FILE = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOG_START_FILE = "log-start-offset-checkpoint"
META_PROPERTIES_FILE = "meta.properties"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
LOCK_FILE = ".lock"
CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE)
"""The checkpoints of offsets that a broker writes for all partitions of a log directory."""
LOG_DIRECTORY_FILES = frozenset({BOOTSTRAP_FILE, CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, *CHECKPOINTS})
"""The files that show that a directory is a log directory."""
REMOTE_INDEX_CACHE = "remote-log-index-cache"

FIRST_DIRTY = "first_dirty_offset"
"""Of the ids of a compacted partition: the offset in `CLEANER_FILE`."""
DELETE_SUFFIX = "-delete"
"""The end of the name of a directory that the broker will delete."""

_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))(?P<leftover>\.(?:deleted|swap|cleaned))?"
)
_KAFKA_SUFFIX = re.compile(r"(?P<prefix>[^.]*)\..*?(?:log|index|timeindex|txnindex|snapshot|swap|cleaned)")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_NO_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")
_MOVED = re.compile(r"(?P<name>\S+-\S+)\.(?P<id>\S+)-(?P<why>delete|future|stray)")
_JAVA_INT = re.compile(r"[+-]?[0-9]+")
_SET_ASIDE = {
    "-delete": "will be deleted by the broker",
    "-future": "is a future replica, which a broker does not serve before it replaces the current one",
    "-stray": "is a stray replica, which a broker does not serve",
}
MAX_NAME = 255
"""Bytes of a file name on the usual file systems."""
_MAX_LONG = (1 << 63) - 1


class SegmentFile(NamedTuple):
    """A file that belongs to a segment, or a snapshot."""

    base_offset: int
    suffix: str
    leftover: str


def segment_name(base_offset: int, suffix: str) -> str:
    """Return the name of a file: `segment_name(42, ".log")` is `00000000000000000042.log`. A negative number has a sign and 20 digits."""
    return f"{'-' if base_offset < 0 else ''}{abs(base_offset):020d}{suffix}"


def parse_segment(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file or a snapshot; None for any other name, and for a number that does not fit 64 bits."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match["base"]) > _MAX_LONG:
        return None
    return SegmentFile(int(match["base"]), match["suffix"], match["leftover"] or "")


def claims_to_be_kafkas(name: str) -> bool:
    """Return whether the broker mistakes the name for that of a segment's file: it then parses the number in it."""
    return _KAFKA_SUFFIX.fullmatch(name) is not None and parse_segment(name) is None


class TopicPartition(NamedTuple):
    """A partition, from the name of its directory."""

    topic: str
    partition: int


def parse_directory(name: str) -> TopicPartition | None:
    """Return topic and partition from the name of a directory, also of one that is marked as deleted, future or stray."""
    moved = _MOVED.fullmatch(name)
    match = _PARTITION.fullmatch(moved["name"] if moved else name)
    if match is None or match["topic"] in (".", "..") or int(match["partition"]) >= 1 << 31:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def loads_directory(name: str) -> bool:
    """Return whether a broker accepts a folder of this name in a log directory as a partition. Any other one ends its start.

    It accepts names that no topic can have. Source: `UnifiedLog.parseTopicPartitionName`.
    """
    if name.endswith(tuple(_SET_ASIDE)):
        if not _MOVED.fullmatch(name):
            return False
        name = name.rpartition(".")[0]
    topic, _, number = name.rpartition("-")
    return bool(topic) and _JAVA_INT.fullmatch(number) is not None and -(1 << 31) <= int(number) < 1 << 31


def loaded_as(name: str) -> TopicPartition | None:
    """Return the partition that a broker loads from a folder of this name; None if it sets it aside or does not accept it."""
    if not loads_directory(name) or name.endswith(tuple(_SET_ASIDE)):
        return None
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def is_partition(name: str) -> bool:
    """Return whether a broker gives a partition exactly this name: it is not set aside, and the number has no leading zeros."""
    parsed = parse_directory(name)
    return parsed is not None and name == f"{parsed.topic}-{parsed.partition}"


def why_misnamed(name: str) -> str:
    """Return why a folder of this name keeps a broker from starting on its log directory; "" if it does not."""
    loaded = loaded_as(name)
    if not loads_directory(name):
        return "does not have the name of a partition: a broker does not start with it in its log directory"
    if loaded is not None and name != f"{loaded.topic}-{loaded.partition}":
        return f"is taken for {loaded.topic}-{loaded.partition} by a broker, which does not start if that exists too"
    return ""


def why_unserved(name: str) -> str:
    """Return why a broker serves no records of a directory, by its suffix; "" if it does. Source: `LogManager.loadLog`."""
    return next(
        (why for suffix, why in _SET_ASIDE.items() if name.endswith(suffix) and _MOVED.fullmatch(name)), ""
    )


def delete_directory(name: str, token: str) -> str:
    """Return a valid name under which a broker deletes the directory `name`, whatever that is.

    `token` is 32 hexadecimal digits. Source: `UnifiedLog.logDeleteDirName`, which shortens the topic so that the name fits.
    """
    parsed = parse_directory(name)
    topic, partition = (_NO_TOPIC.sub("_", name), 0) if parsed is None else parsed
    suffix = f"-{partition}.{token}-delete"
    return topic[: MAX_NAME - len(suffix)] + suffix


def place_of(file: str) -> TopicPartition | None:
    """Return the partition to which a file of a log directory belongs."""
    folder, slash, _ = file.partition("/")
    return parse_directory(folder) if slash and is_partition(folder) else None


def number_of(name: str) -> int | None:
    """Return the number before the first dot; None without a dot. Raises `BrokerError` if it is not a 64-bit number."""
    prefix, dot, _ = name.partition(".")
    return long_of(prefix) if dot else None


def long_of(text: str) -> int:
    """Return a number as `Long.parseLong` does. Raises `BrokerError`."""
    try:
        return integer(text, 64)
    except ValueError as error:
        raise BrokerError(str(error), "java.lang.NumberFormatException") from None


def offset_of(name: str) -> int:
    """Return the number of a file whose name ends in one of Kafka's suffixes."""
    number = number_of(name)
    assert number is not None  # all suffixes have a dot
    return number
