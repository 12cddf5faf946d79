"""A broker's configuration file (`server.properties`), as far as it says where the logs lie and how they are written.

Names and defaults are those of `ServerLogConfigs` and `KRaftConfigs`. No other value is kept: some of them are passwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logwright.codec.fault import UsageError
from logwright.codec.kafka.names import META_PROPERTIES_FILE
from logwright.codec.layout import Configuration
from logwright.codec.properties import properties

DEFAULT_DIRECTORY = "/tmp/kafka-logs"
"""Of `log.dir`."""
OPTIONS: Mapping[str, str] = {
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "message.max.bytes": "max.message.bytes",
    "producer.id.expiration.ms": "producer.id.expiration.ms",
}
"""A topic's own names of what a broker's configuration sets for all topics that don't."""
SETTINGS = (
    *("log.dirs", "log.dir", "metadata.log.dir", "process.roles", "node.id", "broker.id"),
    *("controller.quorum.voters", "zookeeper.connect"),
)
"""Settings that decide whether a broker starts on its log directories."""
_OURS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")
"""With none of these it is the configuration of something else."""


class BrokerConfiguration:
    """See `logwright.codec.layout.ConfigFile`."""

    layout = "kafka.partition"

    def named(self, name: str) -> bool:
        # What stands in a log directory under a like name is no configuration.
        return name.endswith(".properties") and name != META_PROPERTIES_FILE

    def parse(self, data: bytes) -> Configuration | None:
        settings = dict(properties(data))
        if not any(name in settings for name in _OURS):
            return None
        return Configuration(
            "kafka",
            tuple(_directories(settings)),
            {topics: settings[name] for name, topics in OPTIONS.items() if settings.get(name)},
            {name: settings[name] for name in SETTINGS if name in settings},
        )


def _directories(settings: Mapping[str, str]) -> Iterator[str]:
    """`log.dirs`, else `log.dir`; and where the metadata log is elsewhere, that. Raises `UsageError` for what can't be followed."""
    paths = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_DIRECTORY
    names = [name.strip() for name in paths.split(",")]
    for name in dict.fromkeys([*names, (settings.get("metadata.log.dir") or "").strip()]):
        if not name:
            continue
        if "${" in name:
            raise UsageError(
                f"log.dirs holds {name!r}, which a configuration provider of the broker's replaces",
                advice="Name the log directory itself",
            )
        if not name.startswith("/"):
            raise UsageError(
                f"log.dirs holds {name!r}, which is relative to where the broker was started",
                advice="Name the log directory itself",
            )
        yield name


CONFIGURATION = BrokerConfiguration()
