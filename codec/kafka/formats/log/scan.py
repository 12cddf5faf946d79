"""Find record batches and older messages: follow the headers, check the checksums and offsets, and report the fault at which the scan
ends.

The rule for the end of a file is that of Kafka's `FileLogInputStream`: if fewer than 18 bytes are left, or less than the length of the
batch, the log ends without an error. Whether that is a torn tail of a running broker, damage or preallocated zeros is decided here,
by the bytes that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Bools, Bytes, Int64s
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames import scanner
from logwright.codec.frames.prefixes import prefixes_of
from logwright.codec.java import int64
from logwright.codec.kafka.formats.log.heads import HEADS, LIMIT, SCANNER, heads_at, offset_of
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL,
    CRC_START,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MAX_OFFSET_DELTA,
    MESSAGE,
    RECORD_BATCH,
    least_size,
)
from logwright.codec.kafka.formats.log.messages import open_wrappers
from logwright.codec.kafka.formats.log.resync import damaged_at, find_batch, lower_after
from logwright.codec.kafka.formats.log.rows import records_end
from logwright.codec.kafka.formats.log.tables import NAME, Damaged, HeaderClaim, LogContext
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import load_i32be, load_i32le, load_i64le, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Frames, Window

_LENGTH = RECORD_BATCH.offset("batch_length")
_MAGIC = RECORD_BATCH.offset("magic")
_CRC = RECORD_BATCH.offset("crc")
_WRAPPED = MESSAGE.offset("attributes")
_ROW, _BASE, _LAST, _COUNT = (
    HEADS.itemsize,
    offset_of("base_offset"),
    offset_of("last_offset"),
    offset_of("records_count"),
)
_HEADS_MAGIC = offset_of("magic")

HEAD_UP_TO_MAGIC = _MAGIC + 1
"""The bytes from which Kafka knows the size of an entry of any magic."""
LEGACY_MIN = 14
"""The smallest length that a broker accepts in an entry of any magic (`LegacyRecord.RECORD_OVERHEAD_V0`)."""
MAX_OFFSET = (1 << 63) - (1 << 32)
"""The offsets of a batch with a larger base offset may not fit 64 bits."""

MORE, END, BAD_SIZE, BAD_MAGIC, PARTIAL = range(5)
"""Why there is no entry at a place: more bytes are needed; the rest of the file is too short for one; an impossible length; an impossible
magic; the file ends in an entry."""


def why_stopped(data: Bytes, at: int, left: int) -> tuple[int, int]:
    """Return why there is no entry at `data[at]`, and the bytes needed from there. `left` are the bytes of the file from there on.

    The order of the tests is that of `FileLogInputStream`, which takes an entry of any magic by its length.
    """
    if left <= HEAD_UP_TO_MAGIC:
        return END, 0
    if len(data) - at < HEAD_UP_TO_MAGIC:
        return MORE, min(left, HEAD_SIZE)
    size, magic = load_i32be(data, at + _LENGTH), load_u8(data, at + _MAGIC)
    if size < LEGACY_MIN:
        return BAD_SIZE, 0
    if size > left - LENGTH_END:
        return PARTIAL, 0
    if magic > MAGIC:
        return BAD_MAGIC, LENGTH_END + size
    return (BAD_SIZE, 0) if LENGTH_END + size < least_size(magic) else (MORE, LENGTH_END + size)


def scan(window: Window, at: int, context: LogContext, *, check: bool = True) -> Frames:
    """Find entries from `window.data[at]` on. See `Codec.scan`."""
    # A misplaced batch ends the scan, and what was scanned after it is scanned again. After damage there may be many of them.
    context.begins = window.offset + at if context.begins is None else context.begins
    most = _AFTER_DAMAGE if check and context.damaged is not None else None
    parts = []
    while True:
        frames, complete = _scan_entries(window, at, most, context, check)
        parts.append(frames)
        if complete:
            break
        at, most = frames.stop, most and 4 * most
    frames = Frames.joined(parts)
    if frames.damage is None:
        context.damaged = None
    elif frames.damage.kind is Kind.ORDER:
        # Its checksum is right, so its length is too.
        behind = frames.damage.offset + frames.damage.length
        context.damaged = Damaged(frames.damage.offset, behind, -1, complete=True)
    else:
        context.damaged = damaged_at(window, frames.stop, context)
    return frames


def _scan_entries(
    window: Window, at: int, most: int | None, context: LogContext, check: bool
) -> tuple[Frames, bool]:
    """Find at most that number of entries. Return whether the scan ends with them."""
    data = window.data
    prefixes = prefixes_of(data, context.prefixes)
    good = SCANNER.frames(window, at, check=check, prefixes=prefixes, most=most)
    frames, stop = Frames(good.start, good.end, good.head, good.stop), good.stop
    open_wrappers(window, frames, context)
    if check and not context.stored:
        _check_order(window, frames, context)
    if frames.damage is not None or frames.need:
        return frames, True
    if good.why == scanner.FULL:
        return frames, False
    unsound = good.why == scanner.BAD_CHECKSUM
    if unsound and context.stored and data[stop + _MAGIC] < MAGIC and data[stop + _WRAPPED] & COMPRESSION:
        # It is a wrapper, and a consumer checks the messages in it only.
        wrapper = SCANNER.frames(window, stop, check=False, most=1)
        unchecked = Frames(wrapper.start, wrapper.end, wrapper.head, wrapper.stop)
        open_wrappers(window, unchecked, context)
        return Frames.joined([frames, unchecked]), False
    if unsound:
        frames.damage = _bad_checksum(window, stop, good.need)
        return frames, True
    if good.why == scanner.NEED and good.need > HEAD_SIZE:
        why, need = MORE, good.need
    else:
        why, need = why_stopped(data, stop, window.size - window.offset - stop)
    if why != MORE:
        frames.damage = _ending(window, stop, why, context, check)
    elif check and need > LIMIT:
        frames.damage = _too_long(window, stop, need, context)
    if why == MORE and frames.damage is None:
        frames.need = need
    return frames, True


def has_holes(header: npt.NDArray[Any]) -> bool:
    """Return whether offsets are missing within or between batches, as after compaction."""
    base, last = header["base_offset"], header["last_offset"]
    fewer = (header["records_count"] <= last - base) & (header["attributes"].astype(np.int64) & CONTROL == 0)
    return bool(fewer.any() or (base[1:] > last[:-1] + 1).any())


def _bad_checksum(window: Window, start: int, size: int) -> Fault:
    data, end, magic = window.data, start + size, int(window.data[start + _MAGIC])
    stored, computed = load_u32be(data, start + _CRC), crc32c(data, start + CRC_START, end)
    kind = Kind.CHECKSUM
    if magic < MAGIC:
        if size >= HEAD_SIZE and stored == computed:
            kind = Kind.MAGIC
        stored, computed = load_u32be(data, start + LENGTH_END), crc32(data, start + _MAGIC, end)
    text = f"crc mismatch: stored {stored:#010x}, computed {computed:#010x}"
    if kind is Kind.MAGIC:
        text = f"magic is {magic}, expected {MAGIC}: the checksum is that of magic {MAGIC}"
    return Fault(NAME, window.offset + start, size, kind, text, system=_CUTS)


_CUTS = "after an unclean stop the broker truncates the log here; otherwise consumers stop here (CorruptRecordException)"


_NAMES = HEADS.names or ()
_MAX_SIZE = LENGTH_END + (1 << 31) - 1
_AFTER_DAMAGE = 16
"""Entries that a scan after damage checks at first. Then it checks four times as many, and so on."""
_MOST_CLAIMS = 1024
"""The number of damaged batches in a row whose headers are used."""


def believe(window: Window, at: int, stop: int, context: LogContext) -> None:
    """Note the headers of the damaged batches from `window.data[at]` to `stop`, as long as each fits the ones around it: its offsets
    continue those before, and it has a record for each of them. `loss_between` uses them if good batches continue after one."""
    expected = context.base_offset if context.last_offset is None else context.last_offset + 1
    left = window.size - window.offset
    if expected is None:
        return
    start, rows, low, high = expected, 0, None, None
    if len(context.header_claims) > 2 * _MOST_CLAIMS:
        context.header_claims = dict(list(context.header_claims.items())[-_MOST_CLAIMS:])
    for _ in range(_MOST_CLAIMS):
        if at >= stop or len(window.data) - at < HEAD_SIZE:
            return
        head = dict(zip(_NAMES, heads_at(window.data, np.array([at]))[0].item(), strict=True))
        count, base, magic = head["records_count"], head["base_offset"], head["magic"]
        fits = 0 <= magic <= MAGIC and base == expected and least_size(magic) <= head["size"] <= _MAX_SIZE
        if not fits or count < 1 or count != head["last_offset"] - base + 1:
            return
        rows += 0 if head["attributes"] & CONTROL else count
        first, last = head["base_timestamp"], head["max_timestamp"]
        low, high = (first, last) if low is None or high is None else (min(low, first), max(high, last))
        expected = base + count
        at += head["size"]
        context.header_claims[start, expected] = HeaderClaim(rows, low, high, at > left)
        if at > left:
            return


def _too_long(window: Window, stop: int, need: int, context: LogContext) -> Fault | None:
    """Return the fault of a batch with an unusual length, if other batches are found within it. This avoids reading it."""
    after, more = find_batch(window, stop + 1, context, damaged_at(window, stop, context))
    if after < 0 or more:
        return None
    text = f"batch_length gives {need} bytes, but other batches start after {after - stop}"
    return Fault(NAME, window.offset + stop, after - stop, Kind.LENGTH, text)


# Order


def _check_order(window: Window, frames: Frames, context: LogContext) -> None:
    """Check that the offsets ascend and are within the file's range.

    A batch whose offsets the other batches exclude is damage, since no checksum covers base_offset: its rows would have wrong
    offsets. A last_offset_delta that the records and the next batch contradict is a fault, and is corrected in `frames.header`. A
    batch outside the file's range whose neighbours confirm its offsets is a fault too.
    """
    count = len(frames)
    if count == 0:
        return
    at = window.offset + int(frames.start[0])
    before = context.last_offset if context.last_offset is not None and at >= context.last_end else None
    # A task that begins inside a file begins at a batch whose offset fits the batch before it.
    if before is None and 0 < at == context.begins:
        before = int64(int(frames.header["base_offset"][0]) - 1)
    low = 0 if context.base_offset is None else context.base_offset
    high = (1 << 63) - 1
    if context.base_offset is not None:
        high = min(high, low + MAX_OFFSET_DELTA)
    if context.next_base is not None:
        high = min(high, context.next_base - 1)
    fine, top, filled = in_order(
        frames.header.view(np.uint8), count, low - 1 if before is None else before, low, high
    )
    if fine and at >= context.misplaced_end and (filled or not _is_in_question(window, frames)):
        context.last_offset, context.last_end = top, window.offset + int(frames.end[-1])
        _note_last(window, frames, context)
        return
    count = _look_closer(window, frames, before, low, high, context)
    if count:
        last = frames.header["last_offset"].astype(np.int64)
        context.last_offset = int(last.max() if before is None else max(before, last.max()))
        context.last_end = window.offset + int(frames.end[count - 1])
        _note_last(window, frames, context)


def _note_last(window: Window, frames: Frames, context: LogContext) -> None:
    position = window.offset + int(frames.start[-1])
    if context.last_batch is None or context.last_batch[0] < position:
        head = frames.header[-1]
        context.last_batch = position, int(head["base_offset"]), int(head["crc"])


@kernel("const u1[], i8, i8, i8, i8")
def in_order(heads: Bytes, count: int, above: int, low: int, high: int) -> tuple[bool, int, bool]:
    """Whether the offsets of all batches are above those before and within `[low, high]`, and none jumps ahead of the next; the last
    of them; and whether the last batch has a record for each. `heads` are the bytes of an array of `HEADS`."""
    filled = False
    for i in range(count):
        at = i * _ROW
        base = load_i64le(heads, at + _BASE)
        last = load_i64le(heads, at + _LAST)
        if last < base or base > MAX_OFFSET or base <= above or base < low or last > high:
            return False, above, filled
        records = load_i32le(heads, at + _COUNT)
        if records > last - base + 1 and load_i32le(heads, at + _HEADS_MAGIC) == MAGIC:
            return False, above, filled
        if base > above + 1 and (i + 1 == count or load_i64le(heads, at + _ROW + _BASE) <= last):
            return False, above, filled
        above, filled = last, records > last - base
    return True, above, filled


def _look_closer(
    window: Window, frames: Frames, before: int | None, low: int, high: int, context: LogContext
) -> int:
    """Find the suspect batches, and check each. Return how many batches are left."""
    base = frames.header["base_offset"].astype(np.int64)
    last = frames.header["last_offset"].astype(np.int64)
    delta = last - base
    count = frames.header["records_count"].astype(np.int64)
    above = np.concatenate(([-1 if before is None else before], np.maximum.accumulate(last)[:-1]))
    fits = (count <= delta + 1) | (frames.header["magic"] < MAGIC)
    fine = (base > above) & (base >= low) & (last <= high) & fits & (base <= MAX_OFFSET)
    gap = base > above + 1
    if before is None:
        gap[0] = base[0] != low
    follows = np.append(base[1:] > last[:-1], False)
    overlapped = np.append(base[1:] <= last[:-1], _is_in_question(window, frames))
    suspect = ~fine | (gap & ~follows) | (overlapped & (count <= delta))
    misplaced = window.offset + int(frames.start[0]) < context.misplaced_end
    if not (misplaced or suspect.any()):
        return len(frames)
    order = _Order(window, frames, base, last, before, low, high, context)
    return order.exclude_misplaced(0) if misplaced else order.check(suspect)


def _is_in_question(window: Window, frames: Frames) -> bool:
    """Return whether the last batch claims offsets without a record, and the next batch may start within them."""
    head = frames.header[-1]
    if head["records_count"] > int64(int(head["last_offset"]) - int(head["base_offset"])):
        return False
    base = frames.header["base_offset"].astype(np.int64)
    follower = _next_base(window, frames, base, len(frames) - 1)
    return follower is not None and follower <= int(head["last_offset"])


@dataclass
class _Order:
    """Check the offsets of suspect batches against those before and after them."""

    window: Window
    frames: Frames
    base: Int64s
    last: Int64s
    before: int | None
    """The highest offset before the frames."""
    low: int
    high: int
    context: LogContext

    def __post_init__(self) -> None:
        self.top = self.before
        """The highest offset of the batches checked so far."""

    def exclude_misplaced(self, i: int) -> int:
        """End the scan at a batch that is known to be misplaced (`LogContext.misplaced_end`). If its offsets are nowhere else, they are
        reported as lost at their own place. The last of them reports what they overwrote, if no damage does."""
        first, last = int(self.base[i]), int(self.last[i])
        text = f"offsets {first} to {last} are misplaced: the batches from byte {self.context.misplaced_end} on have lower ones"
        fault = replace(self._fault(i, text, _UNCOVERED), rows_lost=0)
        if fault.offset + fault.length == self.context.misplaced_end:
            due, follower = self._due_at(i), _next_base(self.window, self.frames, self.base, i)
            if follower is not None and due < follower < first:
                lost = {**self.context.place(), "first_offset": due, "last_offset": follower - 1}
                fault = replace(fault, rows_lost=None, lost=lost)
        return _end_at(self.frames, i, fault)

    def _exclude_before(self, i: int) -> int | None:
        """Batch i has lower offsets than those before it. If these are misplaced and not batch i, because more bytes of batches with lower
        offsets follow them, end the scan at the first of them."""
        first = int(self.base[i])
        j = int(np.argmax(self.last[:i] >= first)) if i else 0
        block = self.base[j:i]
        if not len(block) or not self._due_at(j) <= first < block[0] or (np.diff(block) <= 0).any():
            return None
        return self._exclude_block(j, int(self.frames.start[i]))

    def _exclude_block(self, i: int, at: int = -1) -> int | None:
        """End the scan at batch i if the good batches from it to byte `at` (-1: to the last of them) are misplaced. See `lower_after`."""
        frames, start = self.frames, int(self.frames.start[i])
        place, need = lower_after(self.window, self.context, start, at)
        if place >= 0:
            self.context.misplaced_end = self.window.offset + place
            frames.faults = [fault for fault in frames.faults if fault.offset < self.window.offset + start]
            return self.exclude_misplaced(i)
        if need:
            frames.need = need
            return _end_at(frames, i, None)
        return None

    def check(self, suspect: Bools) -> int:
        """Check the suspect frames one by one. A fault is noted, and damage ends the scan. Return how many frames are left."""
        done = 0
        for i in np.flatnonzero(suspect).tolist():
            if i > done:
                self._reach(int(self.last[done:i].max()))
            left = self._check_frame(i)
            if left is not None:
                return left
            self._reach(int(self.last[i]))
            done = i + 1
        return len(self.frames)

    def _reach(self, last: int) -> None:
        self.top = last if self.top is None else max(self.top, last)

    def _due(self) -> int:
        """Return the offset after the batches before."""
        return self.low if self.top is None else self.top + 1

    def _due_at(self, i: int) -> int:
        """Return the offset after the batches before batch i."""
        before = self.last[:i].max(initial=-1 if self.before is None else self.before)
        return self.low if self.before is None and not i else int(before) + 1

    def _check_frame(self, i: int) -> int | None:
        """Check one batch. If it ends the scan, return how many frames are left."""
        frames = self.frames
        follower = _next_base(self.window, frames, self.base, i)
        delta = int64(int(self.last[i]) - int(self.base[i]))
        overclaims = int(frames.header["records_count"][i]) <= delta
        first, last = int(self.base[i]), int(self.base[i]) + delta
        jumps = first > self._due()
        if follower == _UNKNOWN:
            frames.need = int(frames.end[i] - frames.start[i]) + HEAD_SIZE
            return _end_at(frames, i, None)
        count, is_batch = int(frames.header["records_count"][i]), int(frames.header["magic"][i]) == MAGIC
        if delta < 0 or (is_batch and count > delta + 1):
            wrong = self._too_low(i, first, delta)
        else:
            wrong = overclaims and self._too_high(i, first, last, follower)
        if wrong:
            last = int(self.last[i])
        elif delta < 0:
            return _end_at(
                frames, i, self._fault(i, f"last_offset_delta is {delta}, which is negative", _UNCOVERED)
            )
        outside = first < self.low or last > self.high
        below = self.top is not None and first <= self.top
        if (jumps or outside) and follower is not None and self._due() <= follower <= last:
            text = f"offsets {first} to {last} are misplaced: the next batch starts at {follower}"
            return self._exclude(i, last, follower, text)
        if below:
            left = self._exclude_before(i)
            if left is not None:
                return left
            text = f"offsets {first} to {last} are not above {self.top}, the last offset before them"
            return self._exclude(i, last, follower, text)
        if jumps and first > self.high and (left := self._exclude_block(i)) is not None:
            return left
        if outside:
            text = f"offsets {first} to {last} are outside the file's range, {self.low} to {self.high}"
            # If the file's name or another batch confirms the offset, the batch is not misplaced.
            if first != self._due() and follower != last + 1:
                return self._exclude(i, last, follower, text)
        if last < self.low or last > self.high:
            system = "after an unclean stop the broker does not start if an offset is below the file's base"
            frames.faults.append(self._fault(i, text, system))
        elif first < self.low and self.context.follows:
            text = f"offsets {first} to {last} begin below {self.low}, the base offset in the file's name"
            frames.faults.append(self._fault(i, text, "a consumer gets all its rows"))
        return None

    def _exclude(self, i: int, last: int, follower: int | None, text: str) -> int:
        """End the scan at a batch whose base_offset cannot be right. The batches around it show what is lost with it."""
        head, context, due = self.frames.header[i], self.context, self._due()
        same = (self.base[:i] == self.base[i]) & (self.frames.header["crc"][:i] == head["crc"])
        duplicate, before = bool(same.any()), context.last_batch
        fault = self._fault(i, text, _UNCOVERED)
        if before is not None and before[0] < fault.offset:
            duplicate |= before[1:] == (int(head["base_offset"]), int(head["crc"]))
        if duplicate:
            context.last_batch = fault.offset, int(head["base_offset"]), int(head["crc"])
            fault = replace(fault, detail=f"{text}; it is a duplicate of an earlier batch")
        if follower is None and fault.offset + fault.length >= self.window.size:
            follower = context.next_base
            if follower is None and (context.known_end or 0) > due:
                follower = context.known_end
        if duplicate or follower == due:
            return _end_at(self.frames, i, replace(fault, rows_lost=0))
        lost = context.place()
        if follower is not None and follower - due == last - int(self.base[i]) + 1:
            lost |= {"first_offset": due, "last_offset": follower - 1}
        rows = 0 if int(head["attributes"]) & CONTROL else max(0, int(head["records_count"]))
        return _end_at(self.frames, i, replace(fault, rows_lost=rows, lost=lost))

    # Headers that their records contradict

    def _too_low(self, i: int, first: int, delta: int) -> bool:
        """Return whether the records of a batch go beyond its last_offset_delta, which is then corrected."""
        end = self._records_end(i)
        if end is None or end < first or end <= first + delta:
            return False
        text = f"last_offset_delta is {delta}, but the last record of the batch has offset delta {end - first} (offset {end})"
        self._correct(
            i, end, text, "at the end of the log the broker assigns the offsets of these records again"
        )
        return True

    def _too_high(self, i: int, first: int, last: int, follower: int | None) -> bool:
        """Return whether a batch claims offsets without records that the next batch or segment has.

        Compaction leaves offsets without records, but never offsets that another batch has. So last_offset_delta is wrong, or the
        base_offset of this batch or of the next. It is last_offset_delta if the next batch continues right after the records, or
        if no other base_offset would fit.
        """
        limit = self.high + 1
        if follower is not None and first < follower <= last:
            limit = min(limit, follower)
        if not first < limit <= last:
            return False
        end = self._records_end(i)
        if end is None or end >= limit:
            return False
        fits = limit == follower and self._may_be_behind(i, last)
        room = limit - self._due()
        if end + 1 != limit and (fits or (first > self._due() and room > last - first)):
            return False
        where = "the next batch" if limit == follower else "the next segment"
        records = f"its records end at offset {end}" if end >= first else "it has no records"
        old = self.frames.header["magic"][i] < MAGIC
        field = f"offset is {last}" if old else f"last_offset_delta is {last - first}"
        text = f"{field}: the batch claims offsets up to {last}, but {records} and {where} starts at {limit}"
        self._correct(
            i, limit - 1, text, "a consumer whose fetch ends with this batch skips the records in between"
        )
        return True

    def _may_be_behind(self, i: int, last: int) -> bool:
        """Return whether the next batch would fit between the offsets that this one claims and the batch after the next."""
        if i + 1 >= len(self.frames):
            return True
        after = _next_base(self.window, self.frames, self.base, i + 1)
        size = int(self.last[i + 1]) - int(self.base[i + 1]) + 1
        return after is None or after == _UNKNOWN or after - last > size

    def _records_end(self, i: int) -> int | None:
        frames = self.frames
        limit = self.context.options["max.decompressed.bytes"]
        return records_end(self.window, frames.pick(slice(i, i + 1)), limit)

    def _correct(self, i: int, last: int, text: str, system: str) -> None:
        """Continue with the last offset that the records and the other batches prove."""
        self.frames.header["last_offset"][i] = last
        self.last[i] = last
        size = HEAD_SIZE
        offset = self.window.offset + int(self.frames.start[i])
        self.frames.faults.append(Fault(NAME, offset, size, Kind.ORDER, text, system=system, rows_lost=0))

    def _fault(self, i: int, text: str, system: str) -> Fault:
        start, end = int(self.frames.start[i]), int(self.frames.end[i])
        return Fault(NAME, self.window.offset + start, end - start, Kind.ORDER, text, system=system)


_UNCOVERED = "no checksum covers base_offset: the broker and its consumers accept it"

_UNKNOWN = -1 << 63


def _next_base(window: Window, frames: Frames, base: Int64s, i: int) -> int | None:
    """Return the base_offset of the batch after frame i; None at the end of the file, `_UNKNOWN` if the window ends before it."""
    if i + 1 < len(base):
        return int(base[i + 1])
    at = int(frames.end[i])
    if window.size - window.offset - at < HEAD_SIZE:
        return None
    if len(window.data) - at < HEAD_SIZE:
        return _UNKNOWN
    head = heads_at(window.data, np.array([at]))[0]
    magic = int(head["magic"])
    if (
        not 0 <= magic <= MAGIC
        or head["size"] < least_size(magic)
        or head["last_offset"] < head["base_offset"]
    ):
        return None
    if magic < MAGIC and head["attributes"] & COMPRESSION:
        return None  # the first offset is in the compressed messages
    return int(head["base_offset"])


def _end_at(frames: Frames, i: int, damage: Fault | None) -> int:
    """Drop frame i and all after it."""
    frames.stop = int(frames.start[i])
    if damage is not None:
        frames.need = 0
    frames.damage = damage
    frames.start, frames.end, frames.header = frames.start[:i], frames.end[:i], frames.header[:i]
    return i


# The end


def _ending(window: Window, stop: int, why: int, context: LogContext, check: bool) -> Fault | None:
    """Return the fault at the place where the scan stopped; None at a clean end of the file."""
    data = window.data
    offset = window.offset + stop
    left = window.size - offset
    if left == 0:
        return None
    zeros = window.zeros_from(stop)
    if zeros == left:
        text = "the file ends in preallocated zeros"
        return _tail(window, stop, left, Kind.PADDING, text, context, check)
    if why == END:
        text = f"{plural.count(left, 'byte')} at the end, too few for a batch"
        return _tail(window, stop, left, Kind.TRUNCATED, text, context, check)
    size = load_i32be(data, stop + _LENGTH)
    if why == PARTIAL:
        text = f"batch_length gives {LENGTH_END + size} bytes, but the file ends after {left}"
        return _tail(window, stop, left, Kind.TRUNCATED, text, context, check)
    if zeros >= HEAD_SIZE:
        length = zeros
        kind, text = Kind.PADDING, f"{zeros} zero bytes where a batch should start"
    elif why == BAD_SIZE:
        length = min(left, HEAD_SIZE)
        magic = min(MAGIC, int(data[stop + _MAGIC]))
        kind, text = Kind.LENGTH, f"batch_length is {size}, expected {least_size(magic) - LENGTH_END} or more"
    else:
        length = LENGTH_END + size
        magic = int(data[stop + _MAGIC : stop + _MAGIC + 1].view(np.int8)[0])
        kind, text = Kind.MAGIC, f"magic is {magic}, expected {MAGIC}"
    return Fault(NAME, offset, length, kind, text, system=_CUTS)


def _tail(
    window: Window, stop: int, left: int, kind: Kind, text: str, context: LogContext, check: bool
) -> Fault:
    """Return the fault of an apparent end of the log. It is the end unless a batch follows."""
    offset = window.offset + stop
    after, need = -1, 0
    if check and len(window.data) - stop > HEAD_SIZE:
        after, need = find_batch(window, stop + 1, context, damaged_at(window, stop, context))
    if after >= 0 and need == 0:
        damage = Kind.LENGTH if kind is Kind.TRUNCATED else kind
        return Fault(
            NAME, offset, after - stop, damage, f"{text}; another batch starts {after - stop} bytes later"
        )
    severity = Severity.ERROR
    if context.last and context.live:
        severity = Severity.INFO
    elif context.last and context.clean is not True and not _went_on(kind, context):
        # A broker that was killed leaves a torn batch, or zeros if it preallocates files.
        severity = Severity.INFO if kind is Kind.PADDING else Severity.WARNING
    return Fault(
        NAME,
        offset,
        left,
        kind,
        text,
        severity,
        system="after an unclean stop the broker truncates it; after a clean one it appends to it and corrupts the log",
    )


def _went_on(kind: Kind, context: LogContext) -> bool:
    """Return whether another file proves that the log continued where the file ends within a batch."""
    if (
        kind is Kind.PADDING
        or not context.known_by
        or context.known_end is None
        or context.base_offset is None
    ):
        return False
    last = context.base_offset - 1 if context.last_offset is None else context.last_offset
    return context.known_end > last + 1
