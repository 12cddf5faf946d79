"""Read and write the RocksDB databases of DbLedgerStorage, `ledgers` and `locations`, with the package rocksdict.

A database is read from a copy, because opening it writes to its directory. A new one is written to a temporary directory.
Source: `LedgerMetadataIndex`, `EntryLocationIndex`, `DbLedgerStorageDataFormats.proto` of BookKeeper.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s, stretches
from logwright.codec.bookkeeper.pulsar.protobuf import Field, Fields, Kind, ProtobufError, read_message
from logwright.codec.bookkeeper.startup.errors import JavaError, io_error
from logwright.codec.fault import MissingPackageError
from logwright.codec.host import host
from logwright.codec.store.listing import Listing, export

_PACKAGE = "rocksdict"
_BATCH = 1 << 16
"""Number of rows in one write to a database."""
_OWN_FILES = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "rocksdict-config")
"""Prefixes of the names of files that RocksDB creates on opening, and of rocksdict's own files."""
CURRENT = "CURRENT"
"""The file that names the list of the files that belong to a database."""
_EXISTS, _FENCED, _KEY, _LAC, _LIMBO = 1, 2, 3, 4, 5
_FIELDS: Fields = {
    _FENCED: Field("fenced", Kind.BOOL),
    _KEY: Field("key", Kind.BYTES),
    _LAC: Field("lac", Kind.BYTES),
    _LIMBO: Field("limbo", Kind.BOOL),
}


@dataclass
class LedgerData:
    """A row of `ledgers`."""

    key: bytes
    fenced: bool = False
    lac: bytes | None = None
    limbo: bool = False

    @classmethod
    def parse(cls, data: bytes) -> LedgerData:
        """Parse the protobuf message. Raises `JavaError`."""
        try:
            return cls(**{"key": b"", **read_message(_FIELDS, data, 0, len(data))})
        except ProtobufError:
            raise io_error("invalid LedgerData") from None

    def pack(self) -> bytes:
        """Return the protobuf message, with its fields in order."""
        out = (
            bytes((_EXISTS << 3, 1, _FENCED << 3, int(self.fenced), _KEY << 3 | 2, len(self.key))) + self.key
        )
        if self.lac is not None:
            out += bytes((_LAC << 3 | 2, len(self.lac))) + self.lac
        return out + (bytes((_LIMBO << 3, 1)) if self.limbo else b"")


def available() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec(_PACKAGE) is not None


def require() -> None:
    """Raise `MissingPackageError` without the package."""
    if not available():
        raise MissingPackageError(
            "the RocksDB index of DbLedgerStorage cannot be read or written without the package rocksdict",
            advice='Install it: pip install "logwright[rocksdb]"',
        )


def _items(listing: Listing, folder: str, *, repaired: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a database. A missing one is empty. `repaired`: let RocksDB repair the copy first. Raises `JavaError`."""
    if not any(entry.name.startswith(folder) for entry in listing.entries()):
        return
    require()
    module: Any = importlib.import_module(_PACKAGE)
    with export(listing, folder) as path:
        try:
            if repaired:
                module.Rdict.repair(path, module.Options(raw_mode=True))
            database = module.Rdict(
                path, module.Options(raw_mode=True), access_type=module.AccessType.read_only()
            )
            try:
                yield from database.items()
            finally:
                database.close()
        except JavaError:
            raise
        except Exception as error:  # the package raises plain `Exception`
            text = str(error).partition(": ")[2] or str(error)
            raise io_error(
                "Error open RocksDB database", JavaError("org.rocksdb.RocksDBException", text)
            ) from None


def read_ledgers(listing: Listing, folder: str, *, repaired: bool = False) -> dict[int, LedgerData]:
    """Read the database `ledgers`. Later keys of a ledger win, as in a bookie, which reads only their first 8 bytes."""
    out = {}
    for key, value in _items(listing, folder, repaired=repaired):
        ledger = int.from_bytes(key[:8], "big", signed=True)
        if ledger >= 0:
            out[ledger] = LedgerData.parse(value)
    return out


def long_keys(listing: Listing, folder: str) -> list[int]:
    """Return the ledgers whose key in `ledgers` has more than 8 bytes, as `rebuild-db-ledgers-index` writes them."""
    return [int.from_bytes(key[:8], "big", signed=True) for key, _ in _items(listing, folder) if len(key) > 8]


def read_locations(
    listing: Listing, folder: str, *, repaired: bool = False
) -> dict[int, tuple[Int64s, Int64s]]:
    """Read the database `locations`: the entries of each ledger in order, and their locations."""
    keys, values = [], []
    for key, value in _items(listing, folder, repaired=repaired):
        if len(key) == 16 and len(value) == 8:
            keys.append(key)
            values.append(value)
    ids = np.frombuffer(b"".join(keys), ">i8").astype(np.int64).reshape(-1, 2)
    locations = np.frombuffer(b"".join(values), ">i8").astype(np.int64)
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    ids, locations = ids[order], locations[order]
    return {
        int(ids[start, 0]): (ids[start:stop, 1].copy(), locations[start:stop].copy())
        for start, stop in stretches(ids[:, 0])
    }


Base = tuple[Listing, str] | None
"""The listing and the folder of a database to which rows are added."""


def _written(
    rows: Iterable[tuple[bytes, bytes]], base: Base, *, locations: bool
) -> Iterator[tuple[str, bytes]]:
    """Write a database of rows sorted by key, and yield its files: names, and chunks in order.

    With a `base`, the rows are added to a copy of it, and the files are those that it does not have: numbers of files increase, and
    `CURRENT` names the list of those that count. RocksDB deletes the others.

    Bookies of all releases read the format. The options are those of a bookie (`conf/entry_location_rocksdb.conf.default`).
    """
    require()
    module: Any = importlib.import_module(_PACKAGE)

    def make(path: str) -> None:
        options, table = module.Options(raw_mode=True), module.BlockBasedOptions()
        table.set_format_version(2)
        table.set_checksum_type(module.ChecksumType.xxhash())
        if locations:
            table.set_block_size(64 << 10)
            table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        compression = module.DBCompressionType
        options.set_compression_type(compression.lz4() if locations else compression.snappy())
        database = module.Rdict(path, options)
        try:
            no_log = module.WriteOptions()
            no_log.disable_wal = True
            database.set_write_options(no_log)
            left = iter(rows)
            while block := list(itertools.islice(left, _BATCH)):
                batch = module.WriteBatch(raw_mode=True)
                for key, value in block:
                    batch.put(key, value)
                database.write(batch)
            database.flush()
        finally:
            database.close()

    known = set() if base is None else {entry.name for entry in base[0].entries()}
    prefix = "" if base is None else base[1]
    for name, chunk in host().files_of(make, None if base is None else export(*base)):
        if not name.startswith(_OWN_FILES) and (name == CURRENT or f"{prefix}{name}" not in known):
            yield name, chunk


def written_ledgers(ledgers: Mapping[int, LedgerData], base: Base = None) -> Iterator[tuple[str, bytes]]:
    """Write the database `ledgers`, or add to it, and yield its files."""
    return _written(
        ((ledger.to_bytes(8, "big"), data.pack()) for ledger, data in sorted(ledgers.items())),
        base,
        locations=False,
    )


def written_locations(
    ledgers: Mapping[int, tuple[Int64s, Int64s]], base: Base = None
) -> Iterator[tuple[str, bytes]]:
    """Write the database `locations` from the sorted entries of each ledger and their locations, or add to it, and yield its files."""

    def rows() -> Iterator[tuple[bytes, bytes]]:
        for ledger, (entries, locations) in sorted(ledgers.items()):
            head = ledger.to_bytes(8, "big")
            keys, values = (array.astype(">i8").tobytes() for array in (entries, locations))
            for at in range(0, len(keys), 8):
                yield head + keys[at : at + 8], values[at : at + 8]

    return _written(rows(), base, locations=True)


def is_direct_log(listing: Listing, name: str, size: int) -> bool:
    """Return whether the direct-I/O writer wrote an entry log: a filler frame follows its header."""
    return size > 1036 and listing.read(name, 1024, 12) == (3068).to_bytes(4, "big") + b"\xff" * 8


def is_direct(listing: Listing, prefix: str) -> bool:
    """Return whether the direct-I/O writer wrote an entry log of a directory."""
    return any(
        is_direct_log(listing, entry.name, entry.size)
        for entry in listing.entries()
        if entry.name.startswith(prefix)
        and entry.name.endswith(".log")
        and "/" not in entry.name[len(prefix) :]
    )
