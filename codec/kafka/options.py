"""The options of writing and of starting partitions and log directories. A layout lists them without importing the modules that use them."""

from __future__ import annotations

from logwright.codec.kafka.formats import payload
from logwright.codec.kafka.formats.log import settings
from logwright.codec.option import Option, parse_choice, parse_text

_INT_MAX = (1 << 31) - 1

WRITING = (
    *settings.OPTIONS,
    *payload.OPTIONS,
    Option("segment.bytes", 1 << 30, "The largest segment", low=14, high=_INT_MAX),
    Option("segment.ms", 604_800_000, "Time between the first batches of two segments", low=1),
    Option("segment.index.bytes", 10_485_760, "The largest index. A new segment is rolled when it is full", low=12, high=_INT_MAX),
    Option("index.interval.bytes", 4096, "Bytes of log between two index entries", low=0, high=_INT_MAX),
    Option("max.message.bytes", 1_048_588, "The largest batch", low=0, high=_INT_MAX),
    Option("offsets", None, "keep: use the column offset; assign: number the rows. By default keep if there is such a column",
           parse_choice, ("keep", "assign")),
    Option("first.offset", None, "First offset of a new partition if offsets are assigned. By default 0", low=0),
    Option("topic.id", None, "UUID of the topic in URL-safe base64. By default that of the directory, or a random one", parse_text),
)  # fmt: skip
"""The options of writing a partition."""

_OF_ONE = {"topic.id", "first.offset"}
LOG_DIRECTORY = (
    *(option for option in WRITING if option.name not in _OF_ONE),
    Option("topic.ids", "", "Ids of topics, as TOPIC=UUID,TOPIC=UUID. By default random, or with append those there are", parse_text),
    Option("cluster.id", "", "Id of the cluster: with node.id, meta.properties is written", parse_text),
    Option("node.id", None, "Id of the broker", low=0, high=(1 << 31) - 1),
    Option("directory.id", "", "UUID of the directory in meta.properties. By default a random one", parse_text),
)  # fmt: skip
"""Options of writing a log directory."""
LOG_START_OFFSET = Option(
    "log.start.offset",
    None,
    "Records below this offset are not served. By default the offset in ../log-start-offset-checkpoint",
    low=0,
    high=(1 << 63) - 1,
)
RECOVERY_POINT = Option(
    "recovery.point",
    None,
    "After an unclean stop the segment with this offset and all later ones are recovered. By default the offset in "
    "../recovery-point-offset-checkpoint, else 0",
    low=0,
    high=(1 << 63) - 1,
)
_WRITING = {option.name: option for option in WRITING}
INDEX_INTERVAL_BYTES, SEGMENT_INDEX_BYTES = (
    _WRITING[name] for name in ("index.interval.bytes", "segment.index.bytes")
)
TOPIC_ID = Option(
    "topic.id",
    None,
    "Topic id in the cluster's metadata. By default the one in partition.metadata",
    parse_text,
)

PRODUCER_ID_EXPIRATION_MS = Option(
    "producer.id.expiration.ms",
    None,
    "Producers idle for this many milliseconds are forgotten. By default none",
    low=1,
)
NOW = Option("now", None, "Time of the start in milliseconds. By default the current time", low=0)

STARTING = (
    LOG_START_OFFSET,
    RECOVERY_POINT,
    INDEX_INTERVAL_BYTES,
    SEGMENT_INDEX_BYTES,
    TOPIC_ID,
    PRODUCER_ID_EXPIRATION_MS,
    NOW,
)
"""The options of a start."""
