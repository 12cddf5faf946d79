"""Read a broker's configuration file (`server.properties`): the log directories, and how logs are written.

Names and defaults are those of `ServerLogConfigs` and `KRaftConfigs`. No other value is kept: some of them are passwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logwright.codec.fault import UsageError
from logwright.codec.kafka.names import META_PROPERTIES_FILE
from logwright.codec.layout import Configuration
from logwright.codec.properties import properties

DEFAULT_DIRECTORY = "/tmp/kafka-logs"
"""The default of `log.dir`."""
OPTIONS: Mapping[str, str] = {
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "message.max.bytes": "max.message.bytes",
    "producer.id.expiration.ms": "producer.id.expiration.ms",
}
"""Settings of a broker that are the defaults of its topics, with their names as topic settings."""
SETTINGS = (
    *("log.dirs", "log.dir", "metadata.log.dir", "process.roles", "node.id", "broker.id"),
    *("controller.quorum.voters", "zookeeper.connect"),
)
"""Settings that decide whether a broker starts on its log directories."""
_OURS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")
"""A file with none of these is not a broker's configuration."""


class BrokerConfiguration:
    """See `logwright.codec.layout.ConfigFile`."""

    layout = "kafka.partition"

    def named(self, name: str) -> bool:
        # `meta.properties` in a log directory is not a configuration.
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
    """Return the directories in `log.dirs` or `log.dir`, and in `metadata.log.dir`. Raises `UsageError` for one that cannot be resolved."""
    paths = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_DIRECTORY
    names = [name.strip() for name in paths.split(",")]
    for name in dict.fromkeys([*names, (settings.get("metadata.log.dir") or "").strip()]):
        if not name:
            continue
        if "${" in name:
            raise UsageError(
                f"log.dirs has {name!r}, which a configuration provider of the broker replaces",
                advice="Pass the log directory itself",
            )
        if not name.startswith("/"):
            raise UsageError(
                f"log.dirs has {name!r}, which is relative to the directory in which the broker was started",
                advice="Pass the log directory itself",
            )
        yield name


CONFIGURATION = BrokerConfiguration()
