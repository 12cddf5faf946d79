"""Scan a journal as a bookie does when it starts.

Source: `Journal.scanJournal`, `JournalChannel` of BookKeeper.
"""

from __future__ import annotations

from collections.abc import Callable

from logwright.codec.bookkeeper.formats.journal import MAGIC, NEWEST, PADDING_MASK
from logwright.codec.bookkeeper.startup.errors import (
    ILLEGAL_ARGUMENT,
    JavaError,
    allocate,
    io_error,
    unchecked,
)
from logwright.codec.store.listing import Listing

_HAS_PADDING = 5
_HEADER, _PADDED_HEADER = 8, 512
_FIRST_BUFFER = 64 << 10
_WINDOW = 1 << 20

Process = Callable[[int, int, bytes], None]
"""Takes the version of the journal, the position of a record, and its body."""


class Reader:
    """Reads a file by windows."""

    def __init__(self, listing: Listing, name: str, size: int) -> None:
        self._listing, self._name, self.size = listing, name, size
        self._at, self._data = 0, b""

    def read(self, at: int, length: int) -> bytes:
        """Return up to `length` bytes."""
        stop = min(at + length, self.size)
        if at >= stop:
            return b""
        if at < self._at or stop > self._at + len(self._data):
            self._at = at
            self._data = self._listing.read(self._name, at, min(max(_WINDOW, stop - at), self.size - at))
        return self._data[at - self._at : stop - self._at]


def version_of(reader: Reader) -> int:
    """Return the version of a journal. Raises `JavaError`."""
    head = reader.read(0, _HEADER)
    if len(head) < _HEADER or head[:4] != MAGIC:
        return 1
    version = int.from_bytes(head[4:], "big", signed=True)
    if not 1 <= version <= NEWEST:
        raise io_error(
            f"Invalid journal version, unable to read. Expected between (1) and ({NEWEST}), got ({version})"
        )
    return version


def first_record(version: int) -> int:
    return _PADDED_HEADER if version >= _HAS_PADDING else _HEADER if version > 1 else 0


def scan(reader: Reader, position: int, process: Process, heap: int, *, skip_invalid: bool) -> int:
    """Pass the records of a journal to `process`, and return the position where the scan ends.

    `position` is where it starts; 0 or less is the first record. Raises `JavaError`.
    """
    version = version_of(reader)
    at = position if position > 0 else first_record(version)
    capacity = _FIRST_BUFFER
    try:
        while True:
            start = at
            data = reader.read(at, 4)
            at = max(at, min(at + 4, reader.size))
            if len(data) < 4:
                return at
            length = int.from_bytes(data, "big", signed=True)
            if length == 0:
                return at
            padding = length == PADDING_MASK and version >= _HAS_PADDING
            if length < 0 and not padding:
                raise io_error(f"Invalid record found with negative length {length}")
            if padding:
                data = reader.read(at, 4)
                at = min(at + 4, reader.size)
                if len(data) < 4:
                    return at
                length = int.from_bytes(data, "big", signed=True)
                if length == 0:
                    continue
                if length < 0:
                    raise unchecked(ILLEGAL_ARGUMENT, f"newLimit < 0: ({length} < 0)")
            if length > capacity:
                allocate(length, heap)
                capacity = length
            if at + length > reader.size:
                return reader.size
            body, at = reader.read(at, length), at + length
            if not padding:
                process(version, start, body)
    except JavaError as error:
        # The position is that after the invalid record's length or body.
        if not (skip_invalid and error.handled):
            raise
        return at
