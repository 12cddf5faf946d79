"""Iterate over the entries of a `.log` as the broker does: by length alone, of any magic, whatever their content.

Source: `FileLogInputStream.nextBatch`, `DefaultRecordBatch.ensureValid`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.fault import UnsupportedError
from logwright.codec.kafka.formats.log.heads import SCANNER, heads_at
from logwright.codec.kafka.formats.log.layout import CRC_START, HEAD_SIZE, LENGTH_END, MAGIC, RECORD_BATCH
from logwright.codec.kafka.formats.log.scan import BAD_SIZE, END, LEGACY_MIN, MORE, PARTIAL, why_stopped
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes, Frames, Positions, Window

_WINDOW = 1 << 20
_READ_IN_FULL = 64 << 20
"""A longer entry is read in full only if its checksum is needed."""
_LENGTH, _MAGIC_AT, _CRC = (RECORD_BATCH.offset(name) for name in ("batch_length", "magic", "crc"))
_LEGACY_CRC, _LEGACY_ATTRIBUTES = 12, 17
_KNOWN_COMPRESSIONS = 4


@dataclass
class Entries:
    """Consecutive entries. Either all have magic 2 or above, or there is one with an older or impossible magic (`legacy`).

    `complete` is False if only the header of the single entry is in the window.
    """

    window: Window
    start: Positions
    end: Positions
    header: npt.NDArray[Any]
    legacy: bool = False
    complete: bool = True

    def __len__(self) -> int:
        return len(self.start)

    @property
    def position(self) -> Positions:
        """Their positions in the file."""
        return self.start + self.window.offset

    @property
    def base_offset(self) -> Positions:
        """Raises `BrokerError` as `baseOffset()` does for an entry of an older format, which it has to decompress."""
        if self.legacy:
            kind = int(self.window.data[int(self.start[0]) + _LEGACY_ATTRIBUTES]) & 7
            if kind > _KNOWN_COMPRESSIONS:
                raise BrokerError(
                    f"Unknown compression type id: {kind}", "java.lang.IllegalArgumentException"
                )
            if kind:
                raise CorruptRecord(
                    "a compressed message of an older format cannot be decompressed",
                    "org.apache.kafka.common.InvalidRecordException",
                )
        return self.header["base_offset"].astype(np.int64)

    @property
    def last_offset(self) -> Positions:
        return self.header["base_offset" if self.legacy else "last_offset"].astype(np.int64)

    def frames(self) -> Frames:
        return Frames(self.start, self.end, self.header, int(self.end[-1]) if len(self) else 0)

    def pick(self, which: slice | npt.NDArray[Any]) -> Entries:
        return Entries(
            self.window, self.start[which], self.end[which], self.header[which], self.legacy, self.complete
        )

    def invalid(self) -> tuple[int, CorruptRecord] | None:
        """Return the first entry that `ensureValid` refuses, and its exception; None if all are valid.

        Raises `UnsupportedError` for a valid entry of an older format.
        """
        if self.legacy:
            return self._invalid_legacy()
        size = int(self.end[0] - self.start[0])
        if size < HEAD_SIZE:  # such an entry is the only one
            return 0, CorruptRecord(
                f"Record batch is corrupted (the size {size} is smaller than the minimum allowed overhead {HEAD_SIZE})"
            )
        bad = _first_bad(self.window.data, self.start, self.end)
        if bad == len(self):
            return None
        stored, computed = (
            int(self.header["crc"][bad]),
            crc32c(self.window.data, int(self.start[bad]) + CRC_START, int(self.end[bad])),
        )
        return bad, CorruptRecord(f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")

    def _invalid_legacy(self) -> tuple[int, CorruptRecord] | None:
        # `entries` refuses entries that are smaller than their fixed fields.
        start, end = int(self.start[0]), int(self.end[0])
        content = self.window.data[start:end].tobytes()
        stored = int.from_bytes(content[_LEGACY_CRC : _LEGACY_CRC + 4], "big")
        computed = zlib.crc32(content[_LEGACY_CRC + 4 :])
        if stored != computed:
            return 0, CorruptRecord(f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")
        raise UnsupportedError(
            f"the entry at byte {int(self.position[0])} has message format v{int(content[_MAGIC_AT])}: a broker's start on this"
            " format cannot be simulated yet"
        )


@kernel("const u1[], const i8[], const i8[]")
def _first_bad(buf: Bytes, starts: Positions, ends: Positions) -> int:
    """Return the first entry with a wrong checksum, or the number of entries."""
    for i in range(len(starts)):
        if crc32c(buf, starts[i] + CRC_START, ends[i]) != load_u32be(buf, starts[i] + _CRC):
            return i
    return len(starts)


def entries(listing: Listing, file: str, start: int, end: int, *, check: bool = False) -> Iterator[Entries]:
    """Iterate over the entries in bytes `[start, end)` of a log, up to a torn one. With `check` the windows hold all of each entry.

    Raises `CorruptRecord` for a length that is too small.
    """
    at, length = start, _WINDOW
    data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    first = start
    while True:
        if at - first + HEAD_SIZE > len(data) or length > len(data) - (at - first):
            data, first = np.frombuffer(listing.read(file, at, length), np.uint8), at
        inside, length = at - first, HEAD_SIZE
        window = Window(data, first, end)
        cut = Window(data[: max(inside, end - first)], first, end)
        scanned = SCANNER.frames(cut, inside, check=False)
        if len(scanned.start):
            yield Entries(window, scanned.start, scanned.end, scanned.head)
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
                f"Found record size {size} smaller than minimum record overhead ({LEGACY_MIN}) in file {file}."
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
    legacy = not MAGIC <= magic < 128
    if len(data) < HEAD_SIZE:
        if not legacy:
            raise BrokerError(
                f"Failed to load record batch at position {at} from {file}",
                "org.apache.kafka.common.KafkaException",
            )
        data = np.concatenate([data, np.zeros(HEAD_SIZE - len(data), np.uint8)])
    start = np.zeros(1, np.int64)
    return Entries(
        Window(data, at, end), start, np.array([size], np.int64), heads_at(data, start), legacy, complete
    )
