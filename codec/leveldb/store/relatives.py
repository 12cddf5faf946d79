"""Refuse databases that descend from LevelDB and share its file names but have other formats.

Source: `table/block_based/block_based_table_builder.cc` and `file/filename.cc` of RocksDB, `sstable/table.go` of Pebble.
"""

from __future__ import annotations

import re

from logwright.codec.fault import UnreadableError, UnsupportedError
from logwright.codec.leveldb.names import FileType, named_files
from logwright.codec.store.listing import Listing

ROCKSDB, PEBBLE = "RocksDB", "Pebble"
MAGIC_SIZE = 8
MAGICS = {bytes.fromhex("f7cff485b741e288"): ROCKSDB, bytes.fromhex("f09faab3f09faab3"): PEBBLE}
"""The last bytes of a table."""
_NAMES = (
    (re.compile(r"marker\.(?:format-version|manifest)\.\d+\..+"), PEBBLE),
    (re.compile(r"IDENTITY|OPTIONS-\d+"), ROCKSDB),
)
"""Names of files that LevelDB never writes. Pebble writes OPTIONS files too."""
_TABLES = 8
"""Number of tables whose last bytes are read."""


def refuse(listing: Listing) -> None:
    """Raise `UnsupportedError` if the directory is another system's database."""
    for pattern, system in _NAMES:
        for entry in listing.entries():
            if pattern.fullmatch(entry.name):
                raise _refused(system, f"it has a file {entry.name}")
    tables = [entry for entry, _ in named_files(listing, FileType.TABLE) if entry.size >= MAGIC_SIZE]
    for entry in tables[:_TABLES]:
        try:
            owner = MAGICS.get(bytes(listing.read(entry.name, entry.size - MAGIC_SIZE, MAGIC_SIZE)))
        except UnreadableError:
            continue  # reading the table reports it
        if owner is not None:
            raise _refused(owner, f"{entry.name} is a table of {owner}")


def _refused(system: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"a {system} database, which is not supported: {why}",
        advice=f"Use the tools of {system}. The database may be undamaged",
    )
