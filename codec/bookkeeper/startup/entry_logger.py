"""Read entries from entry logs, and write replayed ones to new logs, as a bookie does.

Source: `DefaultEntryLogger`, `EntryLogManagerForSingleEntryLog`, `EntryLoggerAllocator`, `LedgerDirUtil`, `DirectReader` of BookKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER_SIZE
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import log_header, map_bytes
from logwright.codec.bookkeeper.startup import errors
from logwright.codec.bookkeeper.startup.errors import JavaError, io_error, unchecked
from logwright.codec.bookkeeper.startup.journal import Reader
from logwright.codec.bookkeeper.store.tree import LAST_ID
from logwright.codec.java import first_line, integer
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.overlay import Overlay

_DIRECT_BLOCK = 8 << 20
_MAX_SANE = (5 << 20) - 500
LARGEST_POSITION = (1 << 31) - 1
LARGEST_ID = (1 << 31) - 1
_SMALLEST = 16
_NUMBER_FORMAT = "java.lang.NumberFormatException"
_LOG = re.compile(r"([0-9a-fA-F]+)\.log")
_COMPACTED = re.compile(r"([0-9a-fA-F]+)\.log\.[0-9a-fA-F]+\.compacted")


def location_of(log: int, position: int) -> int:
    """Return the location of an entry: its log, and the position of its content, four bytes after that of its size."""
    return log << 32 | position


def last_log_id(overlay: Overlay, prefix: str, files: Sequence[str]) -> int:
    """Return the last log id of a directory: the greater one of `lastId` and its files; -1 without either. Raises `JavaError`."""
    ids = []
    for file in files:
        match = _LOG.fullmatch(file) or _COMPACTED.fullmatch(file)
        if match:
            if int(match[1], 16) >= 1 << 32:
                raise unchecked(_NUMBER_FORMAT, f"String value {match[1]} exceeds range of unsigned int.")
            number = int(match[1], 16)
            ids.append(number - (number >> 31 << 32))
    stored = _stored_id(overlay, prefix)
    if stored <= 0:
        stored = max(ids, default=-1)
    return max(stored, _before_largest_gap(sorted(ids)))


def _stored_id(overlay: Overlay, prefix: str) -> int:
    name = f"{prefix}{LAST_ID}"
    if name not in overlay:
        return -1
    try:
        return integer(first_line(overlay.read(name, 0, 64)).decode("utf-8", "replace"), 64, 16)
    except ValueError:
        return -1


def _before_largest_gap(ids: Sequence[int]) -> int:
    """Return the id before the widest range of free ids, which ends at 2^31-1."""
    if not ids:
        return -1
    gaps = [(ids[0], -1)] if ids[0] > 0 else []
    gaps += [(after - before - 1, before) for before, after in zip(ids, [*ids[1:], LARGEST_ID], strict=True)]
    widest = max(size for size, _ in gaps)
    return next(before for size, before in gaps if size == widest)


@dataclass
class NewLog:
    """A log that the bookie writes. Its frames are copied from journals."""

    number: int
    pieces: list[Extent] = field(default_factory=list)
    at: int = HEADER_SIZE
    sizes: dict[int, int] = field(default_factory=dict)
    """The bytes of each ledger."""

    def add(self, ledger: int, frame: Copy) -> int:
        """Append a frame, and return the location of its entry."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, Copy) and last.file == frame.file and last.stop == frame.start:
            self.pieces[-1] = Copy(last.file, last.start, frame.stop)
        else:
            self.pieces.append(frame)
        self.sizes[ledger] = self.sizes.get(ledger, 0) + len(frame)
        self.at += len(frame)
        return location_of(self.number, self.at - len(frame) + 4)


class EntryLogger:
    """The entry logs of one or several ledger directories. `direct`: they are read by blocks with direct I/O."""

    def __init__(
        self, overlay: Overlay, prefixes: Sequence[str], limit: int, heap: int, *, direct: bool
    ) -> None:
        self.overlay, self.prefixes = overlay, prefixes
        self.limit, self.heap, self.direct = limit, heap, direct
        files: dict[str, list[str]] = {prefix: [] for prefix in prefixes}
        for entry in overlay.entries():
            folder, _, base = entry.name.rpartition("/")
            if f"{folder}/" in files:
                files[f"{folder}/"].append(base)
        self.last_id = max(
            (last_log_id(overlay, prefix, names) for prefix, names in files.items()), default=-1
        )
        self._current: NewLog | None = None
        self.rotations = 0
        self._active: int | None = None
        """The flushed log that entries are still added to."""
        self._readers: dict[int, Reader | None] = {}

    # Reading

    def name_of(self, log: int) -> str | None:
        """Return the file of a log. The first directory with one wins."""
        name = f"{log & (1 << 64) - 1:x}.log"
        return next(
            (f"{prefix}{name}" for prefix in self.prefixes if f"{prefix}{name}" in self.overlay), None
        )

    def read(self, ledger: int, entry: int, location: int) -> bytes:
        """Return the content of an entry. Raises `JavaError`."""
        log, position = location >> 32, location & 0xFFFFFFFF
        if log not in self._readers:
            name = self.name_of(log)
            self._readers[log] = None if name is None else Reader(self.overlay, name, self.overlay.size(name))
        reader = self._readers[log]
        try:
            if reader is None:
                raise JavaError(
                    f"{errors.LOOKUP}$MissingLogFileException",
                    f"Missing entryLog {log} for ledgerId {ledger}, entry {entry} at offset {position}",
                )
            if self.direct:
                return self._read_direct(reader, ledger, entry, log, position)
            size = self._validate(reader, ledger, entry, log, position)
            if size > errors.DIRECT_MEMORY:
                errors.allocate(size, self.heap)
            data = self._bytes(reader, log, position, size)
            if len(data) != size:
                raise JavaError(
                    errors.LOOKUP, f"Short read for {ledger}@{entry} in {log}@{position}({len(data)}!={size})"
                )
        except JavaError as error:
            if not error.name.startswith(errors.LOOKUP):
                raise
            raise io_error(f"Bad entry read from log file id: {log}", error) from None
        return data

    def _bytes(self, reader: Reader, log: int, position: int, length: int) -> bytes:
        """Read from a log. A read past the end of the log that is still written raises other errors. Raises `JavaError`."""
        if log == self._active:
            past = position - reader.size
            if past > 0:
                raise unchecked(errors.ILLEGAL_ARGUMENT, f"minWritableBytes : {-past} (expected: >= 0)")
            if past + length > 0:
                raise io_error("Read past EOF")
        return reader.read(position, length)

    def _validate(self, reader: Reader, ledger: int, entry: int, log: int, position: int) -> int:
        if position < 4 and reader.size:
            raise unchecked(errors.ILLEGAL_ARGUMENT, "Negative position")
        head = self._bytes(reader, log, position - 4, 20)
        if len(head) < 20:
            raise JavaError(
                f"{errors.LOOKUP}$MissingEntryException",
                f"pos {position - 4} (entry {entry} for ledgerId {ledger}) past end of entryLog {log}",
            )
        size, found_ledger, found_entry = (
            int.from_bytes(head[start:stop], "big", signed=True)
            for start, stop in ((0, 4), (4, 12), (12, 20))
        )
        if size < _SMALLEST:
            raise JavaError(
                f"{errors.LOOKUP}$InvalidEntryLengthException",
                f"Invalid entry length at pos {position} (entry {entry} for ledgerId {ledger}) for entryLog {log}",
            )
        if (found_ledger, found_entry) != (ledger, entry):
            raise JavaError(
                f"{errors.LOOKUP}$WrongEntryException",
                f"Found entry {found_entry}, ledger {found_ledger} at pos {position} entryLog {log}, "
                f"should have found entry {entry} for ledgerId {ledger}",
            )
        return size

    def _read_direct(self, reader: Reader, ledger: int, entry: int, log: int, position: int) -> bytes:
        """Read through a block buffer. Bytes of the buffer after the end of the file are zeros."""

        def read(at: int, length: int) -> bytes:
            block = at // _DIRECT_BLOCK * _DIRECT_BLOCK
            if at < 0 or at > reader.size:
                text = (
                    f"Invalid offset passed(offset={at},currentBlock={block},currentBlockEnd={reader.size})"
                )
                raise unchecked(errors.ILLEGAL_ARGUMENT, text)
            if at == reader.size:
                raise JavaError(
                    "java.io.EOFException", f"Not enough bytes available(offset={at},size={length})"
                )
            return reader.read(at, length).ljust(length, b"\0")

        size = int.from_bytes(read(position - 4, 4), "big", signed=True)
        if not 0 < size <= _MAX_SANE:
            raise io_error(
                f"Invalid entry size(offset={position},maxSaneEntrySize={_MAX_SANE},readEntrySize={size})"
            )
        data = read(position, size)
        stored = (
            int.from_bytes(data[:8], "big", signed=True),
            int.from_bytes(data[8:16], "big", signed=True),
        )
        if stored != (ledger, entry):
            raise io_error(f"Bad location: found entry {stored[1]} of ledger {stored[0]} in entry log {log}")
        return data

    # Writing

    def add(self, ledger: int, frame: Copy, *, roll: bool) -> int:
        """Write a frame to the current log, and return the location of its entry. `roll`: a full log is closed first. Raises `JavaError`."""
        if ledger < 0:
            raise unchecked(errors.ILLEGAL_ARGUMENT, "Keys and values must be >= 0")
        limit = self.limit if roll else LARGEST_POSITION
        if self._current is None or self._current.at + len(frame) > limit:
            if self._current is not None:
                self._write(rotated=True)
                self.rotations += 1
            self.last_id = self.last_id + 1 if self.last_id < LARGEST_ID else 0
            self._current = NewLog(self.last_id)
        return self._current.add(ledger, frame)

    def flush(self) -> None:
        """Write the current log, the empty log that is allocated next, and `lastId`."""
        if self._current is None:
            return
        self._write(rotated=False)
        self._active = self._current.number
        self.last_id += 1
        self.overlay.put(f"{self.prefixes[0]}{self.last_id:x}.log", b"")
        for prefix in self.prefixes:
            self.overlay.put(f"{prefix}{LAST_ID}", f"{self.last_id:x}\n".encode())
        self._current = None

    def _write(self, *, rotated: bool) -> None:
        log = self._current
        assert log is not None
        pieces = log.pieces
        header = log_header(log.at, len(log.sizes)) if rotated else log_header()
        if rotated:
            pieces = [*pieces, map_bytes(log.sizes)]
        self.overlay.assemble(f"{self.prefixes[0]}{log.number:x}.log", [header, *pieces])
        self._readers.pop(log.number, None)
