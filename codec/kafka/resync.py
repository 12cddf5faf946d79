"""Finding the next batch after damage.

A value may hold whole batches with right checksums (a log of Kafka kept in Kafka), so a right checksum alone is not enough.
What decides, in this order:

1. Where the damaged batch truly ends, if that can be told: its own checksum says so when only its length, its magic or its
   offset is wrong, at the end that its records have. Nothing before that place is a batch.
2. Where it says that it ends, if a good batch or the end of the file is there. Then a batch before that place counts only
   if good batches lead from it to that very place: it was the length that was wrong, by exactly whole batches.
3. What lies within what the damaged batch claims (or, where that is more than the file has, within its records by their
   lengths) is its content, unless good batches lead from there across the end that it claims. So a torn batch hides what was
   appended to it, until that is longer; but the content of a torn value is never taken for batches.
4. Otherwise a batch counts if what follows it is the end of the file, zeros, or looks like the header of a batch in all but
   one or two points: that one may be damaged as well.

Candidates are cheap to refuse by their offsets, which have to be above all before and within the file's range. Checksums of
candidates come from those of prefixes, so a file full of headers that each claim the rest of it takes no longer than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Bytes, Window
from logwright.codec.intrinsics import (
    crc32c_combine,
    crc32c_update,
    load_i16be,
    load_i32be,
    load_i64be,
    load_u8,
)
from logwright.codec.kafka.batch import (
    COMPRESSION,
    COMPRESSION_NAMES,
    CRC_START,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    MIN_RECORD,
    RECORD_BATCH,
)
from logwright.codec.kafka.records import varint
from logwright.codec.kernel import kernel

if TYPE_CHECKING:
    from logwright.codec.kafka.log import LogContext

_LENGTH = RECORD_BATCH.offset("batch_length")
_EPOCH = RECORD_BATCH.offset("partition_leader_epoch")
_MAGIC = RECORD_BATCH.offset("magic")
_CRC = RECORD_BATCH.offset("crc")
_ATTRIBUTES = RECORD_BATCH.offset("attributes")
_DELTA = RECORD_BATCH.offset("last_offset_delta")
_PRODUCER = RECORD_BATCH.offset("producer_id")
_COUNT = RECORD_BATCH.offset("records_count")
_CODECS = len(COMPRESSION_NAMES)

LIMIT = 64 << 20
"""A batch larger than this is not looked for after damage: `max.message.bytes` is 1 MiB unless someone raised it."""
_STEP = 1024
"""Bytes between two checksums of prefixes."""
_END_OF_LOG = 1 << 62


@dataclass(frozen=True, slots=True)
class Damaged:
    """The place where a scan stopped: offsets in the file of its first byte, and of its end as it says itself (or -1)."""

    start: int
    end: int


@kernel("const u1[], i8, i8, i8, i8")
def candidate(buf: Bytes, at: int, left: int, low: int, high: int) -> int:
    """The next place from `at` on where the header of a batch with offsets in `[low, high]` may be; -1 if there is none.

    `left` are the bytes of the file from `at` on.
    """
    for p in range(at, len(buf) - HEAD_SIZE + 1):
        if load_u8(buf, p + _MAGIC) != MAGIC:
            continue
        size = load_i32be(buf, p + _LENGTH)
        if size < MIN_LENGTH or size > left - (p - at) - LENGTH_END or size > LIMIT:
            continue
        offset = load_i64be(buf, p)
        delta = load_i32be(buf, p + _DELTA)
        if offset < low or delta < 0 or offset > high - delta:
            continue
        if (
            load_i32be(buf, p + _EPOCH) < -1
            or load_i64be(buf, p + _PRODUCER) < -1
            or load_i32be(buf, p + _COUNT) < 0
        ):
            continue
        return p
    return -1


@kernel("const u1[], i8, i8[]")
def prefixes(buf: Bytes, at: int, out: npt.NDArray[np.int64]) -> None:
    """The checksum of `buf[at : at + k * _STEP]` for each k."""
    crc = 0
    out[0] = 0
    for k in range(1, len(out)):
        crc = crc32c_update(crc, buf, at + (k - 1) * _STEP, at + k * _STEP)
        out[k] = crc


@kernel("const u1[], i8, const i8[], i8, i8")
def range_crc(buf: Bytes, at: int, known: npt.NDArray[np.int64], start: int, end: int) -> int:
    """The checksum of `buf[start:end]`, from those of the prefixes that start `at`."""
    k = (start - at) // _STEP
    first = crc32c_update(known[k], buf, at + k * _STEP, start)
    k = (end - at) // _STEP
    second = crc32c_update(known[k], buf, at + k * _STEP, end)
    return crc32c_combine(first, second, end - start)


@kernel("const u1[], i8, const i8[], i8")
def sound(buf: Bytes, at: int, known: npt.NDArray[np.int64], start: int) -> bool:
    """Whether the batch at `start`, which is within `buf`, has its checksum."""
    end = start + LENGTH_END + load_i32be(buf, start + _LENGTH)
    stored = load_i32be(buf, start + _CRC) & 0xFFFFFFFF
    return range_crc(buf, at, known, start + CRC_START, end) == stored


@kernel("const u1[], i8, i8")
def records_end(buf: Bytes, at: int, count: int) -> int:
    """Where `count` records from `at` on end, going by their lengths: beyond the buffer when they don't end in it, and where
    the first one starts that can't be a record."""
    for _ in range(count):
        size, after, _odd = varint(buf, at, len(buf))
        if after < 0:
            return len(buf) + 1 if len(buf) - at < 5 else at
        if size < MIN_RECORD - 1:
            return at
        if size > len(buf) - after:
            return len(buf) + 1
        at = after + size
    return at


@kernel("const u1[], i8, i8, i8, i8, i8")
def header_points(buf: Bytes, at: int, left: int, last: int, high: int, epoch: int) -> int:
    """How many of eight points speak for the header of a batch at `at`, after one with the offset `last`."""
    points = 0
    size = load_i32be(buf, at + _LENGTH)
    if MIN_LENGTH <= size <= left - LENGTH_END:
        points += 1
    offset = load_i64be(buf, at)
    if last < offset <= high:
        points += 1
    if offset == last + 1:
        points += 1
    if load_u8(buf, at + _MAGIC) == MAGIC:
        points += 1
    attributes = load_i16be(buf, at + _ATTRIBUTES)
    if 0 <= attributes < 0x80 and (attributes & 7) < _CODECS:
        points += 1
    if epoch <= load_i32be(buf, at + _EPOCH) <= epoch + 1:
        points += 1
    delta = load_i32be(buf, at + _DELTA)
    count = load_i32be(buf, at + _COUNT)
    if delta >= 0 and 0 <= count <= delta + 1:
        points += 1
    if load_i64be(buf, at + _PRODUCER) >= -1:
        points += 1
    return points


class _Search:
    """One search through a window, with the checksums of its prefixes."""

    def __init__(self, window: Window, origin: int, context: LogContext) -> None:
        self.window, self.data, self.origin = window, window.data, origin
        self.size = window.size - window.offset
        """Where the file ends, as a position in the window."""
        self.low = 0 if context.base_offset is None else context.base_offset
        if context.last_offset is not None:
            self.low = max(self.low, context.last_offset + 1)
        self.high = _END_OF_LOG
        if context.base_offset is not None:
            self.high = context.base_offset + (1 << 31) - 1
        if context.next_base is not None:
            self.high = min(self.high, context.next_base - 1)
        self._known: npt.NDArray[np.int64] | None = None
        self._leads: dict[int, int] = {}

    @property
    def known(self) -> npt.NDArray[np.int64]:
        if self._known is None:
            self._known = np.empty((len(self.data) - self.origin) // _STEP + 1, np.int64)
            prefixes(self.data, self.origin, self._known)
        return self._known

    def crc(self, start: int, end: int) -> int:
        return range_crc(self.data, self.origin, self.known, start, end)

    def end_of(self, at: int) -> int:
        return at + LENGTH_END + load_i32be(self.data, at + _LENGTH)

    def next(self, at: int) -> int:
        return candidate(self.data, at, self.size - at, self.low, self.high)

    def good(self, at: int) -> bool:
        """Whether a batch with a right checksum is at `at`, all of it in the window."""
        if at < self.origin or len(self.data) - at < HEAD_SIZE:
            return False
        head = self.data[at : at + HEAD_SIZE]
        if candidate(head, 0, self.size - at, self.low, self.high) != 0 or self.end_of(at) > len(self.data):
            return False
        return sound(self.data, self.origin, self.known, at)

    def leads_to(self, at: int, end: int) -> bool:
        """Whether good batches lie one after the other from `at` to exactly `end`."""
        return self._follow(at, end) == end

    def leads_over(self, at: int, end: int) -> bool:
        """Whether good batches lie one after the other from `at` to beyond `end`."""
        return self._follow(at, end) > end

    def _follow(self, at: int, end: int) -> int:
        """Go from batch to batch up to `end` or beyond; where that ends. Each batch is looked at once, however many lead to it."""
        passed: list[int] = []
        while at < end and at not in self._leads and self.good(at):
            passed.append(at)
            at = self.end_of(at)
        at = self._leads.get(at, at)
        self._leads.update(dict.fromkeys(passed, at))
        return at

    def ends_at(self, start: int, end: int) -> bool:
        """Whether the batch at `start` has its checksum when it ends at `end`."""
        if start < self.origin or end - start < HEAD_SIZE or end > len(self.data):
            return False
        return self.crc(start + CRC_START, end) == load_i32be(self.data, start + _CRC) & 0xFFFFFFFF

    def content_end(self, at: int) -> int:
        """Where the records end of the damaged batch at `at`, as far as its header and their lengths can be believed."""
        if at < self.origin or len(self.data) - at < HEAD_SIZE or load_u8(self.data, at + _MAGIC) != MAGIC:
            return at
        if header_points(self.data, at, 0, self.low - 1, self.high, -1) < 4:
            return at
        if load_i16be(self.data, at + _ATTRIBUTES) & COMPRESSION:
            return at
        count = load_i32be(self.data, at + _COUNT)
        return records_end(self.data, at + HEAD_SIZE, min(count, (len(self.data) - at) // MIN_RECORD + 1))

    def followed(self, at: int) -> bool:
        """Whether what follows the batch at `at` speaks for it."""
        end = self.end_of(at)
        left = self.size - end
        rest = self.data[end : end + HEAD_SIZE]
        if left == 0 or not rest.any():
            return True
        last = load_i64be(self.data, at) + load_i32be(self.data, at + _DELTA)
        if left < HEAD_SIZE:
            # A header cut off: all there is of its offset has to be right.
            return len(rest) >= 8 and (last + 1).to_bytes(8, "big") == rest[:8].tobytes()
        epoch = load_i32be(self.data, at + _EPOCH)
        return header_points(self.data, end, left, last, self.high, epoch) >= 6


def find_batch(
    window: Window, at: int, context: LogContext, damaged: Damaged | None = None
) -> tuple[int, int]:
    """The next batch from `window.data[at]` on, as `Codec.resync` says it."""
    data = window.data
    start, end = (-1, -1) if damaged is None else (damaged.start - window.offset, damaged.end - window.offset)
    inside = damaged is not None and 0 <= start <= at
    search = _Search(window, start if inside else at, context)
    if damaged is None or damaged.end < 0:
        end = -1
    if inside and search.ends_at(start, search.size):
        return -1, 0
    barrier = -1
    if inside:
        content = search.content_end(start)
        if at <= end <= len(data) and search.ends_at(start, end):
            at, end = end, -1
        elif content <= len(data) and search.ends_at(start, content):
            at, end = max(at, content), -1
        else:
            barrier = end if end >= 0 else content
    anchored = at <= end <= len(data) and (
        end == search.size or search.good(end) or not data[end : end + HEAD_SIZE].any()
    )
    p = search.next(at)
    while p >= 0:
        stop = search.end_of(p)
        follow = min(search.size, stop + HEAD_SIZE)
        if follow > len(data):
            # More than needed, so that many that ask do not each ask for a little more.
            return p, min(search.size - p, follow - p + (stop - p) // 2)
        if sound(data, search.origin, search.known, p):
            if inside and search.ends_at(start, p):
                return p, 0
            if anchored and p <= end:
                accepted = search.leads_to(p, end) and search.good(p)
            elif p < barrier:
                accepted = end >= 0 and search.leads_over(p, end)
            else:
                accepted = search.followed(p)
            if accepted:
                return p, 0
        p = search.next(p + 1)
    return -1, 0 if window.final else min(len(data) - at, HEAD_SIZE - 1)
