"""Find the next batch after damage.

A value may contain complete batches (a log of Kafka stored in Kafka), so a right checksum is not enough. The header of a damaged
batch is trusted if at least six of eight points hold (`header_points`). These rules then decide, in this order:

1. The true end of the damaged batch, if it is known. If only its length, magic or offset is wrong, its checksum proves the end: at
   the length in its header, at the end of its records, or where the next batch starts. Nothing before that end is a batch, and
   nothing after it is hidden.
2. The end by its header, if the end of the file, zeros, or a batch (good or not) with a fitting offset is there. A batch before that
   end counts only by rule 1, or if good batches lead from it exactly to that end and take exactly the offsets between. In that
   case the length in the header is wrong, by a number of complete batches.
3. Complete records that follow the header are its content, whatever the header says.
4. Everything up to the end by its header is its content. (If that is beyond the file or more than `LIMIT` bytes, the end of its
   records by their lengths counts instead.) A batch in the content counts only if good batches lead from it across that end, or
   if three conditions hold: its offset is exactly the one after the last good batch (a broker appended it after a torn batch) or
   the one after the damaged batch (whose length is wrong); no length before it makes it the content of a value; and good batches
   lead from it to the end of the file, to zeros or to the header of another batch.

If the header of the damaged batch is lost, and after the end by its header, a batch counts unless it is the content of a value. It is
if a length before it ends exactly where a batch ends, or if the good batches that start with it are followed by the rest of a record.

So one damaged place never hides a complete batch, and never turns content into batches. Several damaged places in a row may. A
batch in a value is mistaken for one of the log if the header of the record's own batch is lost, the bytes between that and the value
are damaged too, and the value contains more than batches. A good batch is skipped if it is between two damaged ones, and the header
of the first covers it and takes offsets that are not known to end before it.

The candidates are those of `heads.SPECIFICATION`, with offsets above all earlier ones and within the file's range. A batch means an entry
of any magic: for these rules a message of magic 0 or 1 is a batch whose records end where its key and value end by their lengths.
"""

from __future__ import annotations

from logwright.codec.arrays import Bytes
from logwright.codec.frames.prefixes import range_sum
from logwright.codec.frames.resync import BROKEN, CUT, NONE, OVER, SOUND, follower
from logwright.codec.kafka.formats.log.heads import BATCHES, FINDER, LIMIT, MESSAGES, SPECIFICATION
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    CRC_START,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MESSAGE,
    MESSAGE_TIME,
    MIN_LENGTH,
    MIN_MESSAGE,
    MIN_RECORD,
    RECORD_BATCH,
)
from logwright.codec.kafka.formats.log.tables import Damaged, LogContext
from logwright.codec.kernels.intrinsics import (
    load_i16be,
    load_i32be,
    load_i64be,
    load_u8,
    load_u32be,
    read_varint,
    read_varlong,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Window

_LENGTH = RECORD_BATCH.offset("batch_length")
_EPOCH = RECORD_BATCH.offset("partition_leader_epoch")
_MAGIC = RECORD_BATCH.offset("magic")
_CRC = RECORD_BATCH.offset("crc")
_ATTRIBUTES = RECORD_BATCH.offset("attributes")
_DELTA = RECORD_BATCH.offset("last_offset_delta")
_PRODUCER = RECORD_BATCH.offset("producer_id")
_COUNT = RECORD_BATCH.offset("records_count")
_CODECS = len(COMPRESSION_NAMES)
_MESSAGE_ATTRIBUTES, _CONTENT = MESSAGE.offset("attributes"), MESSAGE.head_size

_CHAIN = 64 << 10
"""The number of bytes of good batches that are followed to see whether the rest of a record comes after them."""
_FAR = 16 << 20
"""A larger number before a batch is not taken for a length."""
_NEAR = 1 << 20
"""The distance within which the true end of a batch with a wrong length is searched, if a possible batch is before it."""
_CREDIBLE = 6
"""The points, of eight, of a header that is trusted."""
_END_OF_LOG = 1 << 62


def offset_range(context: LogContext, *, named: bool = True) -> tuple[int, int]:
    """Return the lowest and the highest offset that a later batch can have: above those before it, and if `named` within the file's range by
    the names of this file and the next. A name that the batches before contradict does not count."""
    base, after = context.named_range() if named else (None, None)
    last = context.last_offset
    low = 0 if base is None else base
    high = _END_OF_LOG if base is None else min(low + (1 << 31), 1 << 63) - 1
    # Batches of a later segment may have been written over those before. The ones after them then have lower offsets.
    if last is not None and not (named and after is None and context.next_base is not None):
        low = max(low, last + 1)
    if after is not None:
        high = min(high, after - 1)
    return low, high


def damaged_at(window: Window, stop: int, context: LogContext) -> Damaged:
    """Return what the header at `window.data[stop]`, where a scan stopped, is trusted for."""
    offset = window.offset + stop
    data, left = window.data, window.size - offset
    if len(data) - stop < MIN_MESSAGE:
        return Damaged(offset, -1, -1)
    size, after = claims(data, stop, left, *offset_range(context))
    if after < 0:
        # If the name of a file is wrong, the next batch is outside the range too.
        length, follows = claims(data, stop, left, *offset_range(context, named=False))
        if length > 0 <= follows and _Search(window, context, follows).is_due(stop + length):
            size, after = length, follows
    return Damaged(offset, offset + size if size >= 0 else -1, after)


@kernel("const u1[], i8, i8")
def records_end(buf: Bytes, at: int, count: int) -> int:
    """Return where `count` records from `at` on end, by their lengths: beyond the buffer if they do not end in it, or at the first
    one that cannot be a record."""
    for _ in range(count):
        size, after = read_varint(buf, at, len(buf))
        if after < 0:
            return len(buf) + 1 if len(buf) - at < 5 else at
        if size < MIN_RECORD - 1:
            return at
        if size > len(buf) - after:
            return len(buf) + 1
        at = after + size
    return at


@kernel("const u1[], i8, i8")
def headers_end(buf: Bytes, at: int, end: int) -> int:
    """Return where the headers of a record end, whose number is at `at`; -1 if they are invalid or do not end before `end`."""
    count, at = read_varint(buf, at, end)
    if at < 0 or count < 0 or count > end - at:
        return -1
    for i in range(2 * count):
        size, at = read_varint(buf, at, end)
        if at < 0 or size > end - at or size < -(i & 1):
            return -1
        at += max(size, 0)
    return at


@kernel("const u1[], i8, i8")
def record_end(buf: Bytes, at: int, least: int) -> int:
    """Return where the record at `at` ends; -1 if no complete record is there, or one whose offset delta is below `least`."""
    size, at = read_varint(buf, at, len(buf))
    if at < 0 or size < MIN_RECORD - 1 or size > len(buf) - at or load_u8(buf, at) != 0:
        return -1
    end = at + size
    _, at = read_varlong(buf, at + 1, end)
    if at < 0:
        return -1
    delta, at = read_varint(buf, at, end)
    if at < 0 or delta < least:
        return -1
    for _ in range(2):
        length, at = read_varint(buf, at, end)
        if at < 0 or length < -1 or length > end - at:
            return -1
        at += max(length, 0)
    return end if headers_end(buf, at, end) == end else -1


@kernel("const u1[], i8, i8")
def records_past(buf: Bytes, at: int, place: int) -> int:
    """Return where the complete records from `at` on end that begin before `place`; -1 if something else begins there."""
    while 0 <= at < place:
        at = record_end(buf, at, 0)
    return at


@kernel("const u1[], i8")
def message_end(buf: Bytes, at: int) -> int:
    """Return where the message at `at` ends by the lengths of its key and value; -1 if one of them is beyond the buffer."""
    at += _CONTENT + (MESSAGE_TIME if load_u8(buf, at + _MAGIC) == 1 else 0)
    for _ in range(2):
        if len(buf) - at < 4:
            return -1
        at += 4 + max(0, load_i32be(buf, at))
    return at


@kernel("const u1[], i8, i8, i8, i8")
def message_points(buf: Bytes, at: int, left: int, last: int, high: int) -> int:
    """Return how many of eight points hold for a message of magic 0 or 1 at `at`, after an entry with the last offset `last`."""
    points = 0
    size, magic = LENGTH_END + load_i32be(buf, at + _LENGTH), load_u8(buf, at + _MAGIC)
    least = MIN_MESSAGE + (MESSAGE_TIME if magic == 1 else 0)
    if least <= size <= left:
        points += 1
        if message_end(buf, at) == at + size:
            points += 1
    offset, attributes = load_i64be(buf, at), load_u8(buf, at + _MESSAGE_ATTRIBUTES)
    if last < offset <= high:
        # Only the last offset of a wrapper is known.
        points += 2 if offset == last + 1 or attributes & COMPRESSION else 1
    if magic < MAGIC:
        points += 1
    if attributes < 16 and (attributes & COMPRESSION) < _CODECS - 1 and (magic > 0 or attributes < 8):
        points += 1
    place = at + _CONTENT + (MESSAGE_TIME if magic == 1 else 0)
    if len(buf) - place >= 4 and -1 <= load_i32be(buf, place) <= size - least:
        points += 1
    if offset == last + 1:
        points += 1
    return points


@kernel("const u1[], i8, i8, i8, i8")
def header_points(buf: Bytes, at: int, left: int, last: int, high: int) -> int:
    """Return how many of eight points hold for the header of an entry at `at`, after an entry with the last offset `last`. They are counted
    as of a batch and as of a message, and the higher number counts."""
    points = message_points(buf, at, left, last, high)
    return points if len(buf) - at < HEAD_SIZE else max(points, batch_points(buf, at, left, last, high))


@kernel("const u1[], i8, i8, i8, i8")
def batch_points(buf: Bytes, at: int, left: int, last: int, high: int) -> int:
    """Return how many of eight points hold for the header of a batch of magic 2."""
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
    if load_i32be(buf, at + _EPOCH) >= -1:
        points += 1
    delta = load_i32be(buf, at + _DELTA)
    count = load_i32be(buf, at + _COUNT)
    if delta >= 0 and 0 <= count <= delta + 1:
        points += 1
    if load_i64be(buf, at + _PRODUCER) >= -1:
        points += 1
    return points


@kernel("const u1[], i8, i8, i8, i8")
def claims(buf: Bytes, at: int, left: int, low: int, high: int) -> tuple[int, int]:
    """Return the size of the entry at `at` and the offset after it, by its header; -1 if that is not trusted."""
    points = header_points(buf, at, left, low - 1, high)
    if points < _CREDIBLE:
        return -1, -1
    is_batch = len(buf) - at >= HEAD_SIZE and batch_points(buf, at, left, low - 1, high) == points
    size = LENGTH_END + load_i32be(buf, at + _LENGTH)
    offset = load_i64be(buf, at)
    delta = load_i32be(buf, at + _DELTA) if is_batch else 0
    after = offset + delta + 1 if delta >= 0 and low <= offset <= high - delta else -1
    return (size if (HEAD_SIZE if is_batch else MIN_MESSAGE) <= size <= left else -1), after


@kernel("const u1[], i8")
def content_end(buf: Bytes, at: int) -> int:
    """Return where the records of the damaged batch at `at` end, by their lengths; `at` if that is unknown."""
    if load_u8(buf, at + _MAGIC) < MAGIC or len(buf) - at < HEAD_SIZE:
        return max(at, message_end(buf, at))
    if load_i16be(buf, at + _ATTRIBUTES) & COMPRESSION:
        return at
    count = load_i32be(buf, at + _COUNT)
    return records_end(buf, at + HEAD_SIZE, min(count, (len(buf) - at) // MIN_RECORD + 1))


_follow = follower(SPECIFICATION)
_sum_of_batch, _sum_of_message = (range_sum(SPECIFICATION, which) for which in (BATCHES, MESSAGES))


class _Search:
    """A search through a window. `after` is the offset after the damaged batch, or -1."""

    def __init__(self, window: Window, context: LogContext, after: int) -> None:
        self.window, self.data, self.after = window, window.data, after
        self.size = window.size - window.offset
        """The end of the file, as a position in the window."""
        self.low, self.high = offset_range(context)
        if after >= 0 and not self.low < after <= self.high + 1:
            self.low, self.high = offset_range(context, named=False)
        self.prefixes = context.prefixes = FINDER.prefixes(window.data, context.prefixes)

    def next(self, at: int, end: int = -1) -> tuple[int, bool]:
        """Return the next good batch from `at` on, before `end`, and True; a possible batch that needs a larger window, and False; or
        -1 and False."""
        window, due = self.window, self.after
        if end >= 0:
            window, due = Window(self.data[:end], window.offset, window.offset + end), -1
        while True:
            place, verdict, _ = FINDER.next(window, at, self.prefixes, low=self.low, high=self.high, due=due)
            if verdict == NONE:
                return -1, False
            follows = end >= 0 or min(self.size, self.end_of(place) + HEAD_SIZE) <= len(self.data)
            if not (verdict == SOUND and follows and self.may_be_zeroed(place)):
                return place, verdict == SOUND and follows
            at = place + 1

    def may_be_zeroed(self, at: int) -> bool:
        """Return whether zeros that overwrote what is before the batch at `at` may reach into its base offset, and no batch after it has the
        offset due."""
        end = self.end_of(at)
        if self.offset(at) or not at or self.data[at - 1] or self.data[at + _MAGIC] < MAGIC:
            return False
        return len(self.data) - end < _LENGTH or self.offset(end) != load_i32be(self.data, at + _DELTA) + 1

    def follow(self, at: int, end: int, high: int | None = None) -> tuple[int, int, int]:
        """Follow good batches with ascending offsets (up to `high`) from `at` to `end` or beyond. Return where that ends, why, and the offset
        due there."""
        known, filled = self.prefixes.known, self.prefixes.filled
        high = self.high if high is None else high
        where, why, due = _follow(self.data, at, end, self.size - at, self.low, high, known, filled)
        return int(where), int(why), int(due)

    def end_of(self, at: int) -> int:
        return at + LENGTH_END + load_i32be(self.data, at + _LENGTH)

    def offset(self, at: int) -> int:
        return load_i64be(self.data, at)

    def ends_at(self, start: int, end: int) -> bool:
        """Return whether the checksum of the batch at `start` is right if it ends at `end`. The magic may be wrong, which only the checksum
        of a message covers."""
        data = self.data
        if start < 0 or end - start < MIN_MESSAGE or end > len(data):
            return False
        known, filled = self.prefixes.known, self.prefixes.filled
        if end - start >= HEAD_SIZE:
            summed = _sum_of_batch(data, known, filled, start + CRC_START, end)
            if summed == load_u32be(data, start + _CRC):
                return True
        if data[start + _MAGIC] >= MAGIC:
            return False
        return _sum_of_message(data, known, filled, start + _MAGIC, end) == load_u32be(
            data, start + LENGTH_END
        )

    def content_alone(self, start: int, end: int) -> bool:
        """Return whether only the content of the batch at `start` is damaged, the usual case: its checksum is wrong at the end of its
        records too, and the good batch that is due is at `end`, the end by its header."""
        content = content_end(self.data, start)
        if content <= len(self.data) and self.ends_at(start, content):
            return False
        return self.is_due(end)

    def is_due(self, at: int) -> bool:
        """Return whether a good batch with the offset after the damaged one is at `at`."""
        return at < len(self.data) and self.follow(at, at + 1)[1] == OVER and self.offset(at) == self.after

    def lengths_before(self, at: int) -> list[int]:
        """Return where a value that starts with the batch at `at` would end, for each possible length before it: a varint, zig-zag or
        not, or one more than the length, or four bytes. A varint does not end in a zero byte, but most records do."""
        data, size = self.data, self.end_of(at) - at
        places = []
        if at >= 4:
            places.append(load_i32be(data, at - 4))
        if at and 0 < data[at - 1] < 0x80:
            number = int(data[at - 1])
            for p in range(at - 2, max(-1, at - 6), -1):
                places += (number, number >> 1, number - 1)
                if data[p] < 0x80:
                    break
                number = number << 7 | int(data[p]) & 0x7F
            places += (number, number >> 1, number - 1)
        return [at + length for length in places if size <= length <= _FAR]

    def goes_on(self, at: int) -> bool:
        """Return whether the rest of a record whose value ended there is at `at`: its headers, then a record or a batch."""
        after = headers_end(self.data, at, len(self.data))
        if after < 0:
            return False
        return record_end(self.data, after, 1) >= 0 or self.follow(after, after + 1)[1] == OVER

    def ends_well(self, at: int, due: int) -> bool:
        """Return whether the file ends at `at`, or zeros or the header of a batch with the offset `due` are there."""
        if at == self.size or (at < len(self.data) and not self.data[at : at + HEAD_SIZE].any()):
            return True
        if len(self.data) - at < HEAD_SIZE:
            # The header is cut off. Its offset must be complete and right.
            return len(self.data) - at >= 8 and self.offset(at) == due
        return header_points(self.data, at, self.size - at, due - 1, self.high) >= _CREDIBLE

    def anchored(self, end: int) -> bool:
        """Return whether the bytes at `end` confirm that the damaged batch ends there."""
        if end > len(self.data):
            return False
        if self.after >= 0:
            return self.ends_well(end, self.after)
        return end == self.size or self.follow(end, end + 1)[1] == OVER

    def before_anchor(self, start: int, at: int, end: int) -> int:
        """Return the good batch from `at` on, before `end`, at which the damaged one ends by its own checksum, or from which good ones
        take exactly the offsets between the damaged one and the good one at `end`; otherwise `end`."""
        top = self.offset(end) if self.follow(end, end + 1)[1] == OVER else -1
        # The offsets in its header count if two of its fields agree.
        sure = start >= 0 and self.is_sure(start)
        while top != self.after or top < 0:
            p, _ = self.next(at, end)
            if p < 0:
                break
            at, _, due = self.follow(p, end)
            exact = sure and at == end and self.offset(p) == self.after and due == top
            if exact or self.ends_at(start, p):
                return p
        return end

    def is_sure(self, start: int) -> bool:
        """Return whether the offsets in the header of the damaged batch count: two of its fields agree, or it is a single message."""
        data = self.data
        if data[start + _MAGIC] < MAGIC or len(data) - start < HEAD_SIZE:
            return not data[start + _MESSAGE_ATTRIBUTES] & COMPRESSION
        return load_i32be(data, start + _COUNT) == load_i32be(data, start + _DELTA) + 1

    def at(self, place: int) -> tuple[int, int, bool]:
        """Return the result for a place where a batch has to start, or the file to end: (place, bytes needed, whether it is damaged too)."""
        if place == self.size:
            return -1, 0, False
        _, why, _ = self.follow(place, place + 1)
        if why != CUT:
            return place, 0, why == BROKEN
        size = HEAD_SIZE if len(self.data) - place < HEAD_SIZE else self.end_of(place) - place + HEAD_SIZE
        return place, min(self.size - place, size), False

    def verdict(self, p: int, barrier: int, end: int) -> tuple[int, int]:
        """Return whether the good batch at `p` counts (`_YES`, `_NO` or `_MORE`), and where the chain of good ones from it, or the value
        that contains it, ends."""
        lengths = self.lengths_before(p)
        for stop in lengths:
            at, why, _ = self.follow(p, stop)
            if why == CUT:
                return _MORE, at
            if why == OVER and at == stop:
                return _NO, at
        at, why, due = self.follow(p, max(barrier, p + _CHAIN))
        if why == BROKEN and self.goes_on(at):
            return _NO, at
        if p >= barrier or at > end >= 0:
            return _YES, at
        exact = self.offset(p) in (self.low, self.after) and not lengths
        if exact and (why != BROKEN or self.ends_well(at, due)):
            return _YES, at
        return (_MORE if why == CUT and end >= 0 else _NO), at

    def own_end(self, start: int, at: int) -> int:
        """Return the good batch from `at` on, within `_NEAR`, at which the damaged one ends by its own checksum; -1 without one."""
        while True:
            p, complete = self.next(at)
            if p < 0 or not complete or p - start > _NEAR:
                return -1
            if self.ends_at(start, p):
                return p
            at, _, _ = self.follow(p, self.size)

    def lower_after(self, p: int, at: int) -> tuple[int, int]:
        """Return whether (`_YES`, `_NO` or `_MORE`) good batches with offsets below those of the good ones from `p` to `at` follow, and
        where. If they are more bytes, those from `p` to `at` are misplaced: a block of the file was written at an earlier place."""
        if self.offset(p) in (self.low, self.after) or at >= self.size:
            return _NO, -1
        end = min(at + _CHAIN, self.size)
        if len(self.data) < min(end + _CHAIN, self.size):
            return _MORE, -1
        window = Window(self.data[:end], self.window.offset, self.window.offset + end)
        high = min(self.offset(p) - 1, self.high)
        place, outcome, _ = FINDER.next(window, at, self.prefixes, low=self.low, high=high)
        if outcome != SOUND:
            return _NO, -1
        _, _, due = self.follow(p, at, _END_OF_LOG)
        stop, _, _ = self.follow(place, place + (at - p) + 1, due - 1)
        counts = stop - place > at - p and self.verdict(place, place, -1)[0] == _YES
        return _YES if counts else _NO, place


_NO, _YES, _MORE = range(3)


def lower_after(window: Window, context: LogContext, start: int, at: int = -1) -> tuple[int, int]:
    """Return where the batches with lower offsets begin if the good ones from `window.data[start]` to `at` (-1: to the last of them) are
    misplaced, because more bytes of those follow; -1 if not; and the bytes needed from `start` on, if that is unknown."""
    search = _Search(window, context, -1)
    if at < 0:
        at, why, _ = search.follow(start, start + _CHAIN, _END_OF_LOG)
        if why == CUT and len(window.data) - start < (need := min(search.size - start, 4 * _CHAIN)):
            return -1, need
    if at - start >= _CHAIN:
        return -1, 0
    lower, place = search.lower_after(start, at)
    need = min(search.size - start, at + 3 * _CHAIN - start) if lower == _MORE else 0
    return place if lower == _YES else -1, need


def find_batch(
    window: Window, at: int, context: LogContext, damaged: Damaged | None = None
) -> tuple[int, int]:
    """Return the next batch from `window.data[at]` on. See `Codec.resync`.

    If another damaged batch is at the known end of the damaged one, the search continues from that one (`context.damaged`), and so on.
    """
    first_damage = damaged
    if damaged is not None and damaged.complete and at <= damaged.end - window.offset:
        # The next scan checks what is there, even if it is misplaced too.
        place = damaged.end - window.offset
        return (place, 0) if place < min(len(window.data), window.size - window.offset) else (-1, 0)
    if context.next_batch is not None and damaged is not None and context.next_batch[0] == damaged.start:
        _, place, size = context.next_batch
        if place < 0 and size == window.size and window.final:
            return -1, 0
        if at <= place - window.offset <= len(window.data):
            return place - window.offset, 0
    while True:
        place, need, known = _find(window, at, context, damaged)
        if not known:
            if first_damage is not None and not need and (place >= 0 or window.final):
                after = window.offset + place if place >= 0 else -1
                context.next_batch = first_damage.start, after, window.size
            return place, need
        at, damaged = place + 1, damaged_at(window, place, context)
        context.damaged = damaged


def _find(window: Window, at: int, context: LogContext, damaged: Damaged | None) -> tuple[int, int, bool]:
    """Return the same, and whether the result is a damaged batch at a place where one has to start."""
    start, end, after = -1, -1, -1
    if damaged is not None and damaged.start < window.offset + at:
        start, after = damaged.start - window.offset, damaged.after
        if 0 <= damaged.end - damaged.start <= LIMIT:
            end = damaged.end - window.offset
    search = _Search(window, context, after)
    content = -1 if start < 0 else start + HEAD_SIZE
    # Whether the damaged batch is in the window, and its header is trusted.
    bounded = start >= 0 and damaged is not None and (damaged.end >= 0 or after >= 0)
    barrier = end
    if bounded and at <= end and search.content_alone(start, end):
        return end, 0, False
    if bounded:
        by_lengths = content_end(window.data, start)
        for place in (end, by_lengths):
            if at <= place <= len(window.data) and search.ends_at(start, place):
                return search.at(place)
        if end < 0:
            barrier = by_lengths
    if at <= end and search.anchored(end):
        return search.at(search.before_anchor(start, at, end))
    while True:
        p, complete = search.next(at)
        if p < 0:
            return -1, 0 if window.final else min(len(window.data) - at, HEAD_SIZE - 1), False
        if not complete:
            # More than needed, so that a row of such batches does not grow the window in small steps.
            stop = search.end_of(p)
            return p, min(search.size - p, stop - p + HEAD_SIZE + (stop - p) // 2), False
        if bounded and search.ends_at(start, p):
            return p, 0, False
        if content < p and (content := int(records_past(window.data, content, p))) > p:
            at = content
            continue
        verdict, at = search.verdict(p, barrier, end)
        if verdict == _MORE:
            return p, min(search.size - p, 2 * (len(window.data) - p)), False
        if verdict == _YES:
            if at - p < _CHAIN and window.offset + p >= context.misplaced_end:
                lower, place = search.lower_after(p, at)
                if lower == _MORE:
                    return p, min(search.size - p, at + 3 * _CHAIN - p), False
                if lower == _YES:
                    context.misplaced_end = window.offset + place
            if bounded and at - p < _CHAIN:
                if at == search.size and search.ends_at(start, at):
                    return -1, 0, False
                other = search.own_end(start, at)
                p = p if other < 0 else other
            return p, 0, False
