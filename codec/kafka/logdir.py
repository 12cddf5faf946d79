"""A broker's log directory: partitions, and the files that hold what is true of all of them."""

from __future__ import annotations

from logwright.codec.kafka.names import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
)
from logwright.codec.layout import Listing

_ABOVE = {
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
}


class LogDirectory:
    """See `logwright.codec.layout.Gathering`."""

    name = "kafka.logdir"
    title = "Kafka log directory: the partitions on one disk"
    of = "kafka.partition"

    def recognise(self, listing: Listing) -> bool:
        return any(entry.name in _ABOVE for entry in listing.entries())


LOG_DIRECTORY = LogDirectory()
