"""A ledger's index file as a bookie reads and writes it.

The header is read at the first access. If that fails, later accesses use the fields that were read.
Source: `FileInfo`, `IndexPersistenceMgr`, `IndexInMemPageMgr`, `LedgerEntryPage` of BookKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats.digest import LAC_SIZE
from logwright.codec.bookkeeper.formats.index import CODEC, FENCED, MAGIC, NEWEST, SLOT, FileInfo
from logwright.codec.bookkeeper.startup import errors
from logwright.codec.bookkeeper.startup.errors import JavaError, allocate, io_error, unchecked
from logwright.codec.fault import UnsupportedError
from logwright.codec.store.overlay import Overlay

START = 1024
LAC_OFFSET = 20
"""The position of an explicit last-add-confirmed in the header, plus the size of the master key."""
_MOST_SLOTS = 1 << 24
_OVERFLOW = "java.nio.BufferOverflowException"
_BUFFER = "UnpooledByteBufAllocator$InstrumentedUnpooledUnsafeHeapByteBuf"
SHORT_READ = f"{errors.BOOKIE}ShortReadException"


def opened(overlay: Overlay, name: str, heap: int = 600 << 20) -> tuple[IndexFile, JavaError | None]:
    """Open an index file. After an error, its header has the fields that were read."""
    file = IndexFile(overlay, name, None, 8192, heap)
    try:
        file.open()
    except JavaError as error:
        file.is_open = True
        return file, error
    return file, None


class IndexFile:
    """The index of one ledger. `locations` holds the entries that were added since the start."""

    def __init__(self, overlay: Overlay, name: str, key: bytes | None, page_size: int, heap: int) -> None:
        self.overlay, self.name, self.key, self.page_size, self.heap = overlay, name, key, page_size, heap
        self.state = 0
        self.lac: bytes | None = None
        self.version = NEWEST
        self.is_open = False
        self.dirty = False
        self.added: dict[int, int] = {}

    @property
    def exists(self) -> bool:
        return self.name in self.overlay

    def open(self) -> None:
        """Read the header at the first call. Raises `JavaError`."""
        if self.is_open:
            return
        if not self.exists:
            if self.key is None:
                raise io_error(f"{self.name} not found")
            return
        try:
            self._read_header()
        except JavaError as error:
            if error.name != errors.UNDERFLOW:
                raise
            if self.key is None:
                raise io_error(f"Error reading header {self.name}") from None
            self._write_header()

    def _read_header(self) -> None:
        self.is_open = True
        data = self.overlay.read(self.name, 0, START)
        at = 0

        def integer() -> int:
            nonlocal at
            if at + 4 > len(data):
                raise unchecked(errors.UNDERFLOW)
            at += 4
            return int.from_bytes(data[at - 4 : at], "big", signed=True)

        def array(length: int) -> bytes:
            nonlocal at
            if at + length > len(data):
                raise unchecked(errors.UNDERFLOW)
            at += length
            return data[at - length : at]

        where = f"while reading header for {self.name}"
        if integer() != int.from_bytes(MAGIC, "big"):
            raise io_error(f"Missing ledger signature {where}")
        version = integer()
        if version > NEWEST:
            raise io_error(f"Incompatible ledger version {version} {where}")
        self.version = version
        length = integer()
        if length < 0:
            raise io_error(f"Length {length} is invalid {where}")
        self.key = array(length)
        self.state = integer()
        if version >= 1:
            length = integer()
            if length == 0:
                self.lac = None
            elif length < LAC_SIZE:
                raise io_error(f"ExplicitLacBufLength {length} is invalid {where}")
            else:
                if self.lac is None:
                    allocate(length, self.heap)
                    self.lac = bytes(length) if length <= START else _Large(length)
                self.lac = array(length)
        self.dirty = False

    def _header(self) -> bytes:
        key = self.key or b""
        if 20 + len(key) + len(self.lac or b"") > START:
            raise unchecked(_OVERFLOW)
        lac = b"" if self.version < 1 else self.lac or b""
        return FileInfo(self.version, key, self.state, lac).form()

    def _write_header(self) -> None:
        header = self._header()
        rest = self.overlay.read(self.name, START) if self.exists else b""
        self.overlay.put(self.name, header + rest)

    # Fields

    def fenced(self) -> bool:
        self.open()
        return bool(self.state & FENCED)

    def master_key(self) -> bytes | None:
        self.open()
        return self.key

    def fence(self) -> None:
        self.open()
        if not self.state & FENCED:
            self.state |= FENCED
            self.dirty = True

    def explicit_lac(self) -> bytes | None:
        """Return the buffer, without reading the header. Raises `JavaError`."""
        if isinstance(self.lac, _Large):
            allocate(4 * len(self.lac), self.heap)  # the buffer, and copies of it to read and to answer
        return self.lac

    def set_explicit_lac(self, buffer: bytes) -> None:
        size = len(buffer) if self.lac is None else len(self.lac)
        if len(buffer) < size:
            raise unchecked(
                "java.lang.IndexOutOfBoundsException",
                f"readerIndex(0) + length({size}) exceeds writerIndex({len(buffer)}): "
                f"{_BUFFER}(ridx: 0, widx: {len(buffer)}, cap: {len(buffer)})",
            )
        if size < LAC_SIZE:
            raise unchecked(errors.UNDERFLOW)
        self.lac = buffer[:size]
        self.dirty = True

    # Locations

    @property
    def slots(self) -> int:
        """Locations that the file has room for. A partial one at the end is ignored."""
        return max(self.overlay.size(self.name) - START, 0) // SLOT if self.exists else 0

    @property
    def readable(self) -> bool:
        """Whether the locations can be read: the file is not too large."""
        return not self.exists or self.overlay.size(self.name) <= CODEC.largest

    def stored(self) -> Int64s:
        """Return the stored locations by entry. Raises `UnsupportedError` if the file is too large to be read."""
        self.open()
        if not self.exists:
            return np.zeros(0, np.int64)
        if not self.readable:
            raise UnsupportedError(
                f"the index file has {self.overlay.size(self.name)} bytes, at most {CODEC.largest} are read",
                path=self.name,
                advice="Read the entries from the entry logs: codec=bookkeeper.entrylog",
            )
        return np.frombuffer(self.overlay.read(self.name, START, SLOT * self.slots), ">i8").astype(np.int64)

    def location(self, entry: int) -> int:
        """Return the location of an entry, also in an incomplete page; 0 if the file has no location for it."""
        if entry in self.added:
            return self.added[entry]
        self.open()
        if not 0 <= entry < self.slots:
            return 0
        return int.from_bytes(self.overlay.read(self.name, START + SLOT * entry, SLOT), "big", signed=True)

    def add(self, entry: int, location: int) -> None:
        self.open()
        self.added[entry] = location

    def flush(self) -> None:
        """Write the header if it has changed, and the pages with added entries."""
        if self.dirty or not self.exists:
            self.open()
            self._write_header()
            self.is_open, self.dirty = True, False
        if not self.added:
            return
        stored = self.stored()
        per_page = self.page_size // 8
        count = max(len(stored), (max(self.added) // per_page + 1) * per_page)
        if START + 8 * count >= 1 << 63:
            raise unchecked(errors.ILLEGAL_ARGUMENT, "Negative position")
        if count > max(len(stored), _MOST_SLOTS):
            return  # a sparse file, which stays in memory here
        locations = np.zeros(count, ">i8")
        locations[: len(stored)] = stored
        entries = np.fromiter(self.added, np.int64, len(self.added))
        locations[entries] = np.fromiter(self.added.values(), np.int64, len(self.added))
        head = self.overlay.read(self.name, 0, START).ljust(START, b"\0")
        rest = self.overlay.read(self.name, START + 8 * count)
        self.overlay.put(self.name, head + locations.tobytes() + rest)
        self.added = {}

    def entries(self) -> tuple[Int64s, Int64s]:
        """Return the entries that the bookie lists, and their locations. Only complete pages are listed, and those in memory."""
        stored = self.stored()
        per_page = self.page_size // 8
        complete = len(stored) // per_page
        entries = np.flatnonzero(stored)
        added = self._listed()
        if not added:
            entries = entries[entries < complete * per_page]
            return entries, stored[entries]
        in_memory = {entry // per_page for entry in added}
        merged = {
            entry: int(stored[entry]) for entry in entries.tolist()
            if entry < complete * per_page or entry // per_page in in_memory
        }  # fmt: skip
        merged = dict(sorted({**merged, **added}.items()))
        return np.array(list(merged), np.int64), np.array(list(merged.values()), np.int64)

    def _listed(self) -> dict[int, int]:
        """Return the added entries, without those in a page whose end exceeds 64 bits."""
        last_page = (1 << 63) // (self.page_size // 8) - 1
        return {entry: at for entry, at in self.added.items() if entry // (self.page_size // 8) < last_page}

    def last_entry(self) -> int:
        """Return the last entry of the last page, or 0. Raises `JavaError` for a file without a complete page."""
        stored = self.stored()
        last = max(self._listed(), default=-1)
        if last >= max(len(stored) - 1, 0):
            return last
        if self.exists and self.overlay.size(self.name) > START and len(stored):
            page = self.page_size // 8
            start = max(len(stored) - page, 0)
            if len(stored) < page:
                at = max(self.overlay.size(self.name), START)
                ledger = int(self.name.rpartition("/")[2].removesuffix(".idx"), 16)
                cause = JavaError(SHORT_READ, f"Short read at {self.name}@{at}")
                raise JavaError(SHORT_READ, f"Short read on ledger {ledger} : ", cause)
            used = np.flatnonzero(stored[start:])
            if len(used):
                return start + int(used[-1])
        return 0


class _Large(bytes):
    """A buffer that is too large to hold here. Only its length is used."""

    def __new__(cls, length: int) -> _Large:
        out = super().__new__(cls)
        out.length = length
        return out

    length: int

    def __len__(self) -> int:
        return self.length
