"""A broker's configuration file (`broker.conf`): the settings for the location and the format of its store.

Names are those of `MessageStoreConfig`. Other settings are ignored.
"""

from __future__ import annotations

from logwright.codec.fault import UsageError
from logwright.codec.layout import Configuration
from logwright.codec.properties import properties
from logwright.codec.rocketmq.store import tree

_ROOT = "storePathRootDir"
_OURS = ("brokerName", "brokerClusterName", "namesrvAddr", _ROOT)
_OPTIONS = (*tree.ROOTS, *tree.GEOMETRY, *tree.SETTINGS)


class BrokerConfiguration:
    """See `logwright.codec.layout.ConfigFile`."""

    layout = "rocketmq.store"

    def named(self, name: str) -> bool:
        return name.endswith((".conf", ".properties"))

    def parse(self, data: bytes) -> Configuration | None:
        values = {name: value.strip() for name, value in properties(data)}
        if not any(name in values for name in _OURS) or "log.dirs" in values:
            return None
        root = values.get(_ROOT, "")
        texts = [root, *(values.get(option.name, root) for option in tree.ROOTS)]
        paths = [path.strip() for text in texts for path in text.split(",")]
        if not root or not all(path.startswith("/") for path in paths):
            raise UsageError(
                f"{_ROOT} and commit log paths are {', '.join(map(repr, paths))}, expected absolute paths",
                advice="Pass the store directory instead of the configuration file",
            )
        options = {option.name: values[option.name] for option in _OPTIONS if values.get(option.name)}
        if options.get(tree.LOG_PATH.name, "").rstrip("/") == f"{root.rstrip('/')}/{tree.LOG}":
            del options[tree.LOG_PATH.name]
        return Configuration("rocketmq", (root,), options)


CONFIGURATION = BrokerConfiguration()
