"""A server's configuration file (`zoo.cfg`): where the data is, and how it is read.

Names are those of `QuorumPeerConfig.parseProperties`; an unknown one is a property `zookeeper.NAME` of the server. No other value is kept,
because some are passwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logwright.codec.fault import UsageError
from logwright.codec.layout import Configuration
from logwright.codec.properties import properties
from logwright.codec.zookeeper.startup.settings import OPTIONS
from logwright.codec.zookeeper.store.files import DATA_LOG_DIR

_DATA_DIR = "dataDir"
_PROPERTIES = frozenset(option.name for option in OPTIONS)


class ServerConfiguration:
    """See `logwright.codec.layout.ConfigFile`."""

    layout = "zookeeper.datadir"

    def named(self, name: str) -> bool:
        return name.endswith(".cfg")

    def parse(self, data: bytes) -> Configuration | None:
        values = {name: value.strip() for name, value in properties(data)}
        if not values.get(_DATA_DIR):
            return None
        return Configuration("zookeeper", (_absolute(values, _DATA_DIR),), dict(_options(values)))


def _options(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if values.get(DATA_LOG_DIR) and values[DATA_LOG_DIR] != values[_DATA_DIR]:
        yield DATA_LOG_DIR, _absolute(values, DATA_LOG_DIR)
    for name in _PROPERTIES & values.keys():
        yield name, values[name]


def _absolute(values: Mapping[str, str], name: str) -> str:
    """Raises `UsageError` for a path that depends on where the server was started."""
    if not values[name].startswith("/"):
        raise UsageError(
            f"{name} is {values[name]!r}, which is relative to where the server was started",
            advice="Name the data directory itself",
        )
    return values[name]


CONFIGURATION = ServerConfiguration()
