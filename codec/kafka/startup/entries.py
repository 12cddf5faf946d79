"""Iterate over the entries of a `.log` as the broker does: by length alone, of any magic, whatever their content.

Source: `FileLogInputStream.nextBatch`, `DefaultRecordBatch.ensureValid`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.fault import UnsupportedError
from logwright.codec.kafka.formats.log.deep_records import first_offset
from logwright.codec.kafka.formats.log.heads import SCANNER, heads_at
from logwright.codec.kafka.formats.log.java_streams import INVALID_RECORD, Thrown
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CRC_START,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    RECORD_BATCH,
)
from logwright.codec.kafka.formats.log.scan import BAD_SIZE, END, LEGACY_MIN, MORE, PARTIAL, why_stopped
from logwright.codec.kafka.formats.log.tables import MAX_DECOMPRESSED
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window

_WINDOW = 1 << 20
_READ_IN_FULL = 64 << 20
"""A longer entry is read in full only if its checksum is needed."""
_LENGTH, _MAGIC_AT, _CRC = (RECORD_BATCH.offset(name) for name in ("batch_length", "magic", "crc"))
_KNOWN_COMPRESSIONS = 4
_ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"


@dataclass
class Entries:
    """Consecutive entries. `odd`: a single one that the scanner does not accept, as its magic is negative or it is too small.

    `complete` is False if only the header of the single entry is in the window. `failure` is the exception of `baseOffset()`, for a single
    wrapper that cannot be opened.
    """

    window: Window
    start: Int64s
    end: Int64s
    header: npt.NDArray[Any]
    odd: bool = False
    complete: bool = True
    failure: BrokerError | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def position(self) -> Int64s:
        """Their positions in the file."""
        return self.start + self.window.offset

    @property
    def stop(self) -> int:
        """The position after the last one."""
        return self.window.offset + int(self.end[-1])

    @property
    def base_offset(self) -> Int64s:
        """Raises `BrokerError` as `baseOffset()` does for a message of an older format, which it has to decompress."""
        if self.failure is not None:
            raise self.failure
        return self.header["base_offset"].astype(np.int64)

    @property
    def last_offset(self) -> Int64s:
        return self.header["last_offset"].astype(np.int64)

    def frames(self) -> Frames:
        return Frames(self.start, self.end, self.header, int(self.end[-1]) if len(self) else 0)

    def pick(self, which: slice | npt.NDArray[Any]) -> Entries:
        return replace(self, start=self.start[which], end=self.end[which], header=self.header[which])

    def invalid(self) -> tuple[int, CorruptRecord] | None:
        """Return the first entry that `ensureValid` refuses, and its exception; None if all are valid.

        Raises `UnsupportedError` for a valid entry that is too small for its magic.
        """
        size, data = int(self.end[0] - self.start[0]), self.window.data
        if size < HEAD_SIZE and self.header["magic"][0] >= MAGIC:  # such an entry is the only one
            return 0, CorruptRecord(
                f"Record batch is corrupted (the size {size} is smaller than the minimum allowed overhead {HEAD_SIZE})"
            )
        bad = _first_bad(data, self.start, self.end)
        if bad == len(self):
            if self.odd and self.header["magic"][0] < MAGIC:
                raise UnsupportedError(
                    f"the entry at byte {int(self.position[0])} has {size} bytes and magic {self.header['magic'][0]}: a broker's start on"
                    " it cannot be simulated"
                )
            return None
        start, end = int(self.start[bad]), int(self.end[bad])
        old = self.header["magic"][bad] < MAGIC
        computed = crc32(data, start + _MAGIC_AT, end) if old else crc32c(data, start + CRC_START, end)
        stored = int(self.header["crc"][bad])
        return bad, CorruptRecord(f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")


@kernel("const u1[], const i8[], const i8[]")
def _first_bad(buf: Bytes, starts: Int64s, ends: Int64s) -> int:
    """Return the first entry with a wrong checksum, or the number of entries."""
    for i in range(len(starts)):
        at = starts[i]
        if MAGIC <= load_u8(buf, at + _MAGIC_AT) < 128:
            if crc32c(buf, at + CRC_START, ends[i]) != load_u32be(buf, at + _CRC):
                return i
        elif crc32(buf, at + _MAGIC_AT, ends[i]) != load_u32be(buf, at + LENGTH_END):
            return i
    return len(starts)


def _opened(chunk: Entries) -> Iterator[Entries]:
    """Fill in the first offsets of wrappers. A wrapper that cannot be opened is separated from the others."""
    header = chunk.header
    at = 0
    for i in np.flatnonzero((header["magic"] < MAGIC) & (header["attributes"] & COMPRESSION != 0)).tolist():
        try:
            entry = chunk.window.data[int(chunk.start[i]) : int(chunk.end[i])]
            header["base_offset"][i] = first_offset(entry, MAX_DECOMPRESSED.default)
        except Thrown as error:
            if i > at:
                yield chunk.pick(slice(at, i))
            bad = chunk.pick(slice(i, i + 1))
            bad.failure = (CorruptRecord if error.java == INVALID_RECORD else BrokerError)(
                error.message or "", error.java
            )
            yield bad
            at = i + 1
    if at < len(chunk):
        yield chunk.pick(slice(at, len(chunk))) if at else chunk


def entries(listing: Listing, file: str, start: int, end: int, *, check: bool = False) -> Iterator[Entries]:
    """Iterate over the entries in bytes `[start, end)` of a log, up to a torn one. With `check` the windows hold all of each entry.

    Raises `CorruptRecord` for a length that is too small.
    """
    at, length = start, _WINDOW
    data: Bytes = np.empty(0, np.uint8)
    first = start
    while True:
        if at - first + HEAD_SIZE > len(data) or length > len(data) - (at - first):
            data, first = np.frombuffer(listing.read(file, at, length), np.uint8), at
        inside, length = at - first, HEAD_SIZE
        window = Window(data, first, end)
        cut = Window(data[: max(inside, end - first)], first, end)
        scanned = SCANNER.frames(cut, inside, check=False)
        if len(scanned.start):
            yield from _opened(Entries(window, scanned.start, scanned.end, scanned.head))
        at = first + scanned.stop
        why, need = why_stopped(cut.data, scanned.stop, end - at)
        if why in (END, PARTIAL):
            return
        if why == MORE and (check or need <= _READ_IN_FULL):
            length = max(need, _WINDOW)
            continue
        size = _size(listing, file, at)
        if why == BAD_SIZE and size < LEGACY_MIN:
            raise CorruptRecord(
                f"Found record size {size} smaller than minimum record overhead ({LEGACY_MIN}) in file {listing.name}/{file}."
            )
        yield (single := _single(listing, file, at, LENGTH_END + size, end, check))
        at += int(single.end[0] - single.start[0])


def _size(listing: Listing, file: str, at: int) -> int:
    return int.from_bytes(listing.read(file, at + _LENGTH, 4), "big", signed=True)


def _single(listing: Listing, file: str, at: int, size: int, end: int, check: bool) -> Entries:
    """Return an entry that the scanner does not accept: it has another magic, is too small, or too long to be read for its header."""
    complete = check or size <= _READ_IN_FULL
    # A broker reads the header from the file even if the entry is shorter.
    data = np.frombuffer(listing.read(file, at, max(size if complete else 0, HEAD_SIZE)), np.uint8)
    magic = int(data[_MAGIC_AT])
    if len(data) < HEAD_SIZE:
        if MAGIC <= magic < 128:
            raise BrokerError(
                f"Failed to load record batch at position {at} from {listing.name}/{file}",
                "org.apache.kafka.common.KafkaException",
            )
        data = np.concatenate([data, np.zeros(HEAD_SIZE - len(data), np.uint8)])
    start = np.zeros(1, np.int64)
    header = heads_at(data, start)
    single = Entries(Window(data, at, end), start, np.array([size], np.int64), header, True, complete)
    if header["magic"][0] < MAGIC:
        kind = int(header["attributes"][0]) & COMPRESSION
        if kind > _KNOWN_COMPRESSIONS:
            single.failure = BrokerError(f"Unknown compression type id: {kind}", _ILLEGAL_ARGUMENT)
        elif kind:
            text = f"Invalid wrapper magic found in legacy deep record iterator {header['magic'][0]}"
            single.failure = CorruptRecord(text, INVALID_RECORD)
    return single
