"""A server's configuration file (`zoo.cfg`), as far as it says where the data lies and how it is read.

Names are those of `QuorumPeerConfig.parseProperties`; what it does not know itself is a property `zookeeper.NAME` of the server. No
other value is kept: some of them are passwords.
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
        found = {name: value.strip() for name, value in properties(data)}
        if not found.get(_DATA_DIR):
            return None
        return Configuration("zookeeper", (_absolute(found, _DATA_DIR),), dict(_options(found)))


def _options(found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if found.get(DATA_LOG_DIR) and found[DATA_LOG_DIR] != found[_DATA_DIR]:
        yield DATA_LOG_DIR, _absolute(found, DATA_LOG_DIR)
    for name in _PROPERTIES & found.keys():
        yield name, found[name]


def _absolute(found: Mapping[str, str], name: str) -> str:
    """Raises `UsageError` for a place that depends on where the server was started."""
    if not found[name].startswith("/"):
        raise UsageError(
            f"{name} is {found[name]!r}, which is relative to where the server was started",
            advice="Name the data directory itself",
        )
    return found[name]


CONFIGURATION = ServerConfiguration()
