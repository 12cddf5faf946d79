"""A bookie's configuration file (`bk_server.conf`): its directories, and the settings that concern its files.

Names are those of `ServerConfiguration`. Other settings are ignored.
"""

from __future__ import annotations

from logwright.codec.bookkeeper.store.tree import (
    INDEX_DIRS,
    JOURNALS,
    LEDGER_DIRS,
    LOG_SIZE,
    PAGE_SIZE,
    SKIP_INVALID,
    STORAGE,
)
from logwright.codec.fault import UsageError
from logwright.codec.layout import Configuration
from logwright.codec.properties import properties

_DEFAULTS = {JOURNALS.name: "/tmp/bk-txn", LEDGER_DIRS.name: "/tmp/bk-data"}
_OLD_JOURNAL = "journalDirectory"
_OURS = (JOURNALS.name, _OLD_JOURNAL, LEDGER_DIRS.name, "ledgerStorageClass", "bookiePort")
_OPTIONS = (STORAGE, PAGE_SIZE, LOG_SIZE, SKIP_INVALID)


class BookieConfiguration:
    """See `logwright.codec.layout.ConfigFile`."""

    layout = "bookkeeper.bookie"

    def named(self, name: str) -> bool:
        return name.endswith(".conf")

    def parse(self, data: bytes) -> Configuration | None:
        values = {name: value.strip() for name, value in properties(data) if value.strip()}
        if not any(name in values for name in _OURS):
            return None
        if _OLD_JOURNAL in values:
            values.setdefault(JOURNALS.name, values[_OLD_JOURNAL])
        directories = {
            name: values.get(name, default)
            for name, default in (*_DEFAULTS.items(), (INDEX_DIRS.name, ""))
            if values.get(name, default)
        }
        for name, value in directories.items():
            if not all(path.strip().startswith("/") for path in value.split(",")):
                raise UsageError(
                    f"{name} is {value!r}, which is relative to where the bookie was started",
                    advice="Pass the directory that holds the journal and ledger directories",
                )
        options = {option.name: values[option.name] for option in _OPTIONS if option.name in values}
        own, *others = (
            path.strip() for option in (LEDGER_DIRS, JOURNALS) for path in directories[option.name].split(",")
        )
        return Configuration("bookkeeper", (own,), {**directories, **options}, others=tuple(others))


CONFIGURATION = BookieConfiguration()
