"""The ledger storages of a bookie: what they index, how replayed records change them, and the entries that they return.

Source: `InterleavedLedgerStorage`, `SortedLedgerStorage`, `SingleDirectoryDbLedgerStorage`, `LedgerMetadataIndex` of BookKeeper.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.derive import merged
from logwright.codec.bookkeeper.startup import errors
from logwright.codec.bookkeeper.startup.entry_logger import EntryLogger
from logwright.codec.bookkeeper.startup.errors import JavaError, no_entry, no_ledger
from logwright.codec.bookkeeper.startup.index_file import IndexFile
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.bookkeeper.store.tree import DIRTY, Tree, index_path
from logwright.codec.java import integer
from logwright.codec.store.extents import Copy
from logwright.codec.store.overlay import Overlay

LAST_ENTRY = -1
_IN_MEMORY = -1
"""Stands for a location if the entry could not be flushed."""
_LEAST_ENTRY = 24
_READ_AHEAD = 100
"""The default of `dbStorage_readAheadCacheBatchSize`."""
_NUMBER_FORMAT = "java.lang.NumberFormatException"


class Storage(ABC):
    """A ledger storage. All methods raise `JavaError`."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        """The ledgers whose last-add-confirmed is in memory."""

    @abstractmethod
    def ledgers(self) -> Sequence[int]:
        """Return the ledgers that the bookie knows, in order."""

    @abstractmethod
    def master_key(self, ledger: int) -> bytes | None: ...

    @abstractmethod
    def set_master_key(self, ledger: int, key: bytes) -> None: ...

    @abstractmethod
    def fenced(self, ledger: int) -> bool: ...

    @abstractmethod
    def fence(self, ledger: int) -> None: ...

    @abstractmethod
    def explicit_lac(self, ledger: int) -> bytes | None: ...

    @abstractmethod
    def set_explicit_lac(self, ledger: int, buffer: bytes) -> None: ...

    @abstractmethod
    def add(self, ledger: int, entry: int, frame: Copy) -> None:
        """Add a replayed entry. `frame` is its record in a journal."""

    @abstractmethod
    def flush(self) -> None:
        """Write the replayed entries to entry logs and the index."""

    @property
    def rotations(self) -> int:
        """The number of entry logs that the replay has filled."""
        return 0

    @abstractmethod
    def close_logs(self) -> None:
        """Write the entry logs that entries were added to."""

    @abstractmethod
    def entries(self, ledger: int) -> tuple[Int64s, Int64s]:
        """Return the entries of a ledger that the bookie lists, and their locations."""

    @abstractmethod
    def last_entry(self, ledger: int) -> int: ...

    @abstractmethod
    def logger(self, ledger: int) -> EntryLogger:
        """Return the entry logs of a ledger."""

    def read(self, ledger: int, entry: int, location: int) -> bytes:
        """Return the content of an entry."""
        return self.logger(ledger).read(ledger, entry, location)

    def last_add_confirmed(self, ledger: int) -> None:
        """Read the last-add-confirmed of a ledger from its last entry, unless it is in memory. The bookie sends it with each entry."""
        if ledger not in self.confirmed:
            content = self.last_content(ledger)
            if len(content) < _LEAST_ENTRY:
                raise errors.unchecked(
                    "java.lang.IndexOutOfBoundsException",
                    f"readerIndex(16) + length(8) exceeds writerIndex({len(content)})",
                )
            self.confirmed.add(ledger)

    def last_content(self, ledger: int) -> bytes:
        """Return the content of the last entry."""
        entry = self.last_entry(ledger)
        return self.read(ledger, entry, self.location(ledger, entry))

    def location(self, ledger: int, entry: int) -> int:
        """Return the location of an entry, whether the bookie lists it or not."""
        entries, locations = self.entries(ledger)
        at = int(np.searchsorted(entries, entry))
        if at == len(entries) or entries[at] != entry:
            raise no_entry(ledger, entry)
        return int(locations[at])


class InterleavedStorage(Storage):
    """Index files, and entry logs shared by all ledgers. `sorted_`: replayed entries are sorted before they are written."""

    def __init__(self, overlay: Overlay, tree: Tree, settings: Any, *, sorted_: bool) -> None:
        super().__init__()
        self.overlay, self.tree, self.sorted = overlay, tree, sorted_
        self.page_size, self.heap = settings["pageSize"], settings["Xmx"]
        self._index: dict[int, IndexFile] = {}
        self._active = self._list()
        self._memory: dict[tuple[int, int], Copy] = {}
        prefixes = [place.prefix for place in tree.ledgers]
        self._logger = EntryLogger(overlay, prefixes, settings["logSizeLimit"], self.heap, direct=False)

    def _list(self) -> set[int]:
        """Return the ledgers with an index file in any directory, and finish interrupted moves of index files."""
        ledgers = set()
        for place in self.tree.indexes:
            for name in [entry.name for entry in self.overlay.entries()]:
                parts = name[len(place.prefix) :].split("/")
                if not name.startswith(place.prefix) or len(parts) != 3:
                    continue
                if not name.endswith((".idx", ".rloc")):
                    continue
                ledger = _parse_ledger(parts[2].replace(".rloc", "").replace(".idx", ""))
                if name.endswith(".rloc"):
                    if self._find(ledger) is not None:
                        self.overlay.delete(name)
                        continue
                    text = parts[2].replace(".rloc", "").replace(".idx", "")
                    self.overlay.rename(name, f"{place.prefix}{parts[0]}/{parts[1]}/{text}.idx")
                ledgers.add(ledger)
        return ledgers

    def _find(self, ledger: int) -> str | None:
        names = (f"{place.prefix}{index_path(ledger)}" for place in self.tree.indexes)
        return next((name for name in names if name in self.overlay), None)

    def _file(self, ledger: int, key: bytes | None = None) -> IndexFile:
        if ledger not in self._index:
            name = self._find(ledger)
            if name is None:
                if key is None:
                    raise no_ledger(ledger)
                name = f"{self.tree.indexes[0].prefix}{index_path(ledger)}"
            self._index[ledger] = IndexFile(self.overlay, name, key, self.page_size, self.heap)
            self._active.add(ledger)
        return self._index[ledger]

    def ledgers(self) -> Sequence[int]:
        return sorted(self._active)

    def master_key(self, ledger: int) -> bytes | None:
        return self._file(ledger).master_key()

    def set_master_key(self, ledger: int, key: bytes) -> None:
        self._file(ledger, key)

    def fenced(self, ledger: int) -> bool:
        return self._file(ledger).fenced()

    def fence(self, ledger: int) -> None:
        self._file(ledger).fence()

    def explicit_lac(self, ledger: int) -> bytes | None:
        try:
            file = self._file(ledger)
        except JavaError:
            return None
        return file.explicit_lac()

    def set_explicit_lac(self, ledger: int, buffer: bytes) -> None:
        self._file(ledger).set_explicit_lac(buffer)
        self.confirmed.add(ledger)

    def add(self, ledger: int, entry: int, frame: Copy) -> None:
        if self.sorted:
            self._memory.setdefault((ledger, entry), frame)
        else:
            location = self._logger.add(ledger, frame, roll=True)
            self._file(ledger).add(entry, location)
        self.confirmed.add(ledger)

    def flush(self) -> None:
        """Write the replayed entries. After an error they are served from memory."""
        for (ledger, entry), frame in sorted(self._memory.items()):
            location = self._logger.add(ledger, frame, roll=False)
            self._file(ledger).add(entry, location)
        self._memory = {}
        for file in self._index.values():
            if file.added:
                file.flush()

    @property
    def rotations(self) -> int:
        return self._logger.rotations

    def close_logs(self) -> None:
        self._logger.flush()

    def entries(self, ledger: int) -> tuple[Int64s, Int64s]:
        try:
            entries, locations = self._file(ledger).entries()
            waiting = [entry for owner, entry in self._memory if owner == ledger]
            added = np.array(waiting, np.int64)
            return merged(entries, locations, added, np.full(len(added), _IN_MEMORY))
        except JavaError as error:
            if error.name.endswith("NoLedgerException"):
                empty = np.zeros(0, np.int64)
                return empty, empty
            raise

    def location(self, ledger: int, entry: int) -> int:
        if (ledger, entry) in self._memory:
            return _IN_MEMORY
        location = self._file(ledger).location(entry)
        if not location:
            raise no_entry(ledger, entry)
        return location

    def last_entry(self, ledger: int) -> int:
        waiting = [entry for owner, entry in self._memory if owner == ledger]
        return max(waiting) if waiting else self._file(ledger).last_entry()

    def read(self, ledger: int, entry: int, location: int) -> bytes:
        if location == _IN_MEMORY and (ledger, entry) in self._memory:
            frame = self._memory[ledger, entry]
            return self.overlay.read(frame.file, frame.start + 4, len(frame) - 4)
        return super().read(ledger, entry, location)

    def logger(self, ledger: int) -> EntryLogger:
        return self._logger


def _parse_ledger(text: str) -> int:
    """Parse a file name as Java's `Long.parseLong` does."""
    try:
        return integer(text, 64, 16)
    except ValueError as error:
        raise errors.unchecked(_NUMBER_FORMAT, str(error)) from None


class DbStorage(Storage):
    """One RocksDB index and one set of entry logs for each ledger directory."""

    def __init__(self, overlay: Overlay, tree: Tree, settings: Any) -> None:
        super().__init__()
        self.parts = [_DbDirectory(overlay, tree, i, settings) for i in range(len(tree.ledgers))]

    def _of(self, ledger: int) -> _DbDirectory:
        return self.parts[ledger % len(self.parts)]

    def ledgers(self) -> Sequence[int]:
        return sorted(ledger for part in self.parts for ledger in part.data)

    def master_key(self, ledger: int) -> bytes:
        return self._of(ledger).of(ledger).key

    def set_master_key(self, ledger: int, key: bytes) -> None:
        data = self._of(ledger).data
        stored = data.get(ledger)
        if stored is None:
            data[ledger] = rocks.LedgerData(key)
        elif not any(stored.key):
            stored.key = key
        elif stored.key != key and any(key):
            raise errors.io_error("", JavaError(f"{errors.BOOKIE}BookieException$BookieIllegalOpException"))

    def fenced(self, ledger: int) -> bool:
        return self._of(ledger).of(ledger).fenced

    def fence(self, ledger: int) -> None:
        self._of(ledger).of(ledger).fenced = True

    def explicit_lac(self, ledger: int) -> bytes | None:
        return self._of(ledger).of(ledger).lac

    def set_explicit_lac(self, ledger: int, buffer: bytes) -> None:
        self._of(ledger).of(ledger).lac = buffer
        self.confirmed.add(ledger)

    def add(self, ledger: int, entry: int, frame: Copy) -> None:
        self._of(ledger).cache[ledger, entry] = frame

    def flush(self) -> None:
        for part in self.parts:
            part.flush()

    def close_logs(self) -> None:
        for part in self.parts:
            part.logger.flush()

    def entries(self, ledger: int) -> tuple[Int64s, Int64s]:
        return self._of(ledger).entries(ledger)

    def last_content(self, ledger: int) -> bytes:
        """Return the content of the last entry, which is not taken from those that were read ahead."""
        entry = self.last_entry(ledger)
        return self.logger(ledger).read(ledger, entry, self.location(ledger, entry))

    def last_entry(self, ledger: int) -> int:
        entries, _ = self.entries(ledger)
        if not len(entries):
            raise no_entry(ledger, LAST_ENTRY)
        return int(entries[-1])

    def read(self, ledger: int, entry: int, location: int) -> bytes:
        return self._of(ledger).read(ledger, entry, location)

    def logger(self, ledger: int) -> EntryLogger:
        return self._of(ledger).logger


class _DbDirectory:
    """A `SingleDirectoryDbLedgerStorage`. `cache` holds the replayed entries."""

    def __init__(self, overlay: Overlay, tree: Tree, number: int, settings: Any) -> None:
        place = tree.ledgers[number]
        index = tree.indexes[min(number, len(tree.indexes) - 1)]
        self.data = rocks.read_ledgers(overlay, f"{index.prefix}ledgers/")
        self._locations = rocks.read_locations(overlay, f"{index.prefix}locations/")
        direct = rocks.is_direct(overlay, place.prefix)
        self.logger = EntryLogger(
            overlay, [place.prefix], settings["logSizeLimit"], settings["Xmx"], direct=direct
        )
        self.cache: dict[tuple[int, int], Copy] = {}
        self._ahead: dict[tuple[int, int], bytes] = {}

    def read(self, ledger: int, entry: int, location: int) -> bytes:
        """Return the content of an entry. The entries that follow it in its log are read ahead, even if their location is another one."""
        content = self._ahead.get((ledger, entry))
        if content is not None:
            return content
        content = self.logger.read(ledger, entry, location)
        self._ahead = {key: value for key, value in self._ahead.items() if key > (ledger, entry)}
        following = content
        with contextlib.suppress(JavaError):
            for number in range(entry + 1, entry + 1 + _READ_AHEAD):
                location += 4 + len(following)
                following = self._ahead[ledger, number] = self.logger.read(ledger, number, location)
        return content

    def of(self, ledger: int) -> rocks.LedgerData:
        if ledger not in self.data:
            raise no_ledger(ledger)
        return self.data[ledger]

    def flush(self) -> None:
        if not self.cache:
            return
        added: dict[int, dict[int, int]] = {}
        for (ledger, entry), frame in sorted(self.cache.items()):
            added.setdefault(ledger, {})[entry] = self.logger.add(ledger, frame, roll=True)
        for ledger, locations in added.items():
            new = np.array(list(locations.items()), np.int64)
            self._locations[ledger] = merged(new[:, 0], new[:, 1], *self.entries(ledger))
        self.cache = {}

    def entries(self, ledger: int) -> tuple[Int64s, Int64s]:
        empty = np.zeros(0, np.int64)
        return self._locations.get(ledger, (empty, empty))


def mark_dirty(overlay: Overlay, tree: Tree) -> None:
    """Create the file that marks an unclean stop, as the server does before it opens the storage."""
    for place in tree.ledgers:
        overlay.put(f"{place.prefix}{DIRTY}", b"")
