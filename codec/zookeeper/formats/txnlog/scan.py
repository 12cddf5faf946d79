"""Finding the records of a log: from length to length, by checksum, and past damage.

A server stops reading a file, without an error, where a record is cut short, has no mark behind it, or has length 0 (the zeros that
are allocated ahead); a wrong checksum or a length that can't be keeps it from starting. Here the walk goes on at the next record
that is truly one. A log within the data of a node is none: where the damaged record says how long it is, or its checksum does, the
search begins behind it, and what is found must fit in by its zxid, or lead to the end of the log.
Source: `FileTxnLog.FileTxnIterator.next` and `Util.readTxnBytes` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.adler32 import MOD, adler32
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes, Window
from logwright.codec.zookeeper.formats.txnlog.layout import (
    CHECK,
    EOR,
    HEADER_SIZE,
    HIGHEST,
    LENGTH,
    LOWEST,
    OVERHEAD,
    PAYLOAD,
    RECIPES,
    TXN_HEADER,
)
from logwright.codec.zookeeper.names import counter_of, epoch_of

Int64s = npt.NDArray[np.int64]

BODY = LENGTH + 4
"""Where the payload starts in a record."""
_CLIENT, _CXID, ZXID_AT = PAYLOAD.offset("client_id"), PAYLOAD.offset("cxid"), PAYLOAD.offset("zxid")
_TIME, _TYPE = PAYLOAD.offset("time"), PAYLOAD.offset("type")
LEAST = OVERHEAD + TXN_HEADER
"""Bytes of the shortest record."""
MOST = 256 << 20
"""A payload that is larger counts as damage, whatever `jute.maxbuffer` was."""
REACH = 64 << 10
"""So far the end of a record is looked for by its checksum."""
_KNOWN = np.array(
    [int(bool(RECIPES[kind - LOWEST]) or kind == CHECK) for kind in range(LOWEST, HIGHEST + 1)], np.int64
)

END, NEED, CROWDED, TORN, ZERO, BAD_LENGTH, NO_EOR, CHECKSUM = range(8)
"""Why a scan ended: the end of the file; more bytes are needed; the arrays are full; the file ends in a record; a length of 0; a
length that can't be; no mark behind a record; a wrong checksum."""

HEAD = np.dtype(
    [(name, "<i8") for name in ("checksum", "length", "session_id", "cxid", "zxid", "time", "type", "kind")]
)
HEAD_FIELDS = len(HEAD.names or ())
"""What a scan says of a frame: the header of its transaction, zeros where the payload is too short for one."""
STORED, SIZE, SESSION, CXID, ZXID, TIME, TYPE, KIND = range(8)
FILE_HEADER_FRAME, TXN_FRAME = range(2)
"""A frame is the header of the file, or a transaction."""


@kernel("const u1[], i8, i8, i8, i8, i8[], i8[], i8[,]")
def scan_records(
    buf: Bytes, at: int, left: int, check: int, limit: int, starts: Int64s, ends: Int64s, heads: Int64s
) -> tuple[int, int, int, int, int]:
    """Find records from `buf[at]` on, with `left` bytes of the file from there. Payloads above `limit` must be whole to be taken.

    Returns (records, where it stopped, why, bytes needed from there, 0 where no length is above the limit and each zxid is the one
    before and 1).
    """
    n = 0
    odd = 0
    following = load_i64be(buf, at + BODY + ZXID_AT) if len(buf) - at >= LEAST else 0
    while True:
        here = len(buf) - at
        if left <= 0:
            return n, at, END, 0, odd
        if n >= len(starts):
            return n, at, CROWDED, 0, odd
        if left < BODY:
            return n, at, (TORN if here >= left else NEED), left, odd
        if here < BODY:
            return n, at, NEED, BODY, odd
        length = load_i32be(buf, at + LENGTH)
        if length == 0:
            return n, at, ZERO, 0, odd
        size = OVERHEAD + length
        if length < 0 or length > MOST or (size > left and length > limit):
            return n, at, BAD_LENGTH, 0, odd
        if size > left:
            return n, at, TORN, 0, odd
        if size > here:
            return n, at, NEED, size, odd
        if load_u8(buf, at + size - 1) != EOR:
            return n, at, (BAD_LENGTH if length > limit else NO_EOR), 0, odd
        stored = load_i64be(buf, at)
        if check and adler32(buf, at + BODY, at + size - 1) != stored:
            return n, at, (BAD_LENGTH if length > limit else CHECKSUM), 0, odd
        starts[n] = at
        ends[n] = at + size
        heads[n, STORED] = stored
        heads[n, SIZE] = length
        heads[n, KIND] = TXN_FRAME
        if length > limit:
            odd = 1
        if length >= TXN_HEADER:
            heads[n, SESSION] = load_i64be(buf, at + BODY + _CLIENT)
            heads[n, CXID] = load_i32be(buf, at + BODY + _CXID)
            zxid = load_i64be(buf, at + BODY + ZXID_AT)
            odd |= zxid ^ following
            following = zxid + 1
            heads[n, ZXID] = zxid
            heads[n, TIME] = load_i64be(buf, at + BODY + _TIME)
            heads[n, TYPE] = load_i32be(buf, at + BODY + _TYPE)
        else:
            odd = 1
            heads[n, SESSION] = 0
            heads[n, CXID] = 0
            heads[n, ZXID] = 0
            heads[n, TIME] = 0
            heads[n, TYPE] = 0
        n += 1
        at += size
        left -= size


@kernel("const i8[,], i8[], i8[], i8[], i4[]")
def split_heads(
    heads: Int64s, zxids: Int64s, times: Int64s, sessions: Int64s, cxids: npt.NDArray[np.int32]
) -> None:
    """The columns that transactions have of their headers."""
    for i in range(len(heads)):
        zxids[i] = heads[i, ZXID]
        times[i] = heads[i, TIME]
        sessions[i] = heads[i, SESSION]
        cxids[i] = heads[i, CXID]


# Past damage


@kernel("const u1[], i8, i8")
def true_end(buf: Bytes, at: int, stop: int) -> int:
    """Where the record at `at` ends by its checksum, whatever it says of its length, up to `stop`; -1 where nothing fits."""
    if stop - at < LEAST:
        return -1
    stored = load_i64be(buf, at)
    a = 1
    b = 0
    for i in range(at + BODY, stop):
        if b << 16 | a == stored and load_u8(buf, i) == EOR and i - at >= BODY + TXN_HEADER:
            return i + 1
        a += load_u8(buf, i)
        if a >= MOD:
            a -= MOD
        b += a
        if b >= MOD:
            b -= MOD
    return -1


@kernel("const u1[], i8, i4[], i4[]")
def prefix_sums(buf: Bytes, at: int, low: npt.NDArray[np.int32], high: npt.NDArray[np.int32]) -> None:
    """The two sums of Adler-32 of `buf[at : at + k]` with an initial value of 0, for each k."""
    a = 0
    b = 0
    low[0] = 0
    high[0] = 0
    for i in range(len(low) - 1):
        a += load_u8(buf, at + i)
        if a >= MOD:
            a -= MOD
        b += a
        if b >= MOD:
            b -= MOD
        low[i + 1] = a
        high[i + 1] = b


@kernel("const i4[], const i4[], i8, i8")
def sum_between(low: npt.NDArray[np.int32], high: npt.NDArray[np.int32], start: int, stop: int) -> int:
    """The Adler-32 of the bytes from `start` to `stop`, from the sums of all bytes before each."""
    n = stop - start
    before = int(low[start])
    a = (1 + int(low[stop]) - before + MOD) % MOD
    b = (n + int(high[stop]) - int(high[start]) + MOD - (n % MOD) * before % MOD + MOD) % MOD
    return int(b << 16 | a)


SOUND, UNSURE, NONE, BUSY = range(4)
"""What a search found: a record; what may be one, and needs more bytes; nothing; it takes too long without prefix sums."""


@kernel("const u1[], i8, i8, i8, const i8[], i8, const i4[], const i4[]")
def find_record(
    buf: Bytes,
    at: int,
    left: int,
    budget: int,
    known: Int64s,
    lowest: int,
    low: npt.NDArray[np.int32],
    high: npt.NDArray[np.int32],
) -> tuple[int, int, int]:
    """The next place from `buf[at]` on where a record is whole, by its checksum: (place, what was found, bytes needed from there).

    `left` are the bytes of the file from `at` on. Of payloads not more than `budget` bytes in all are summed; with prefix sums of the
    whole of `buf` in `low` and `high` none are.
    """
    first = at
    here = len(buf)
    while here - at >= BODY:
        # The upper half of the checksum is zero: what lies up to the next zero can't start a record.
        if load_u8(buf, at) != 0:
            at += 1
            continue
        if load_u32be(buf, at) != 0:
            at += 1
            continue
        length = load_i32be(buf, at + LENGTH)
        rest = left - (at - first)
        if length < TXN_HEADER or length > MOST or OVERHEAD + length > rest:
            at += 1
            continue
        if here - at < LEAST:
            return at, UNSURE, LEAST
        kind = load_i32be(buf, at + BODY + _TYPE)
        if kind < lowest or kind >= lowest + len(known) or known[kind - lowest] == 0:
            at += 1
            continue
        if load_i64be(buf, at + BODY + ZXID_AT) < 0:
            at += 1
            continue
        size = OVERHEAD + length
        if here - at < size:
            return at, UNSURE, size
        if load_u8(buf, at + size - 1) != EOR:
            at += 1
            continue
        if len(low) > 1:
            computed = sum_between(low, high, at + BODY, at + size - 1)
        else:
            if budget < length:
                return at, BUSY, 0
            budget -= length
            computed = adler32(buf, at + BODY, at + size - 1)
        if computed == load_i64be(buf, at):
            return at, SOUND, 0
        at += 1
    return at, NONE, 0


_NO_SUMS = np.zeros(1, np.int32)


class Search:
    """The search for records in one window."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._low = self._high = _NO_SUMS

    def next(self, at: int) -> tuple[int, int, int]:
        """As `find_record`."""
        window = self.window
        while True:
            left = window.size - window.offset - at
            budget = 4 * len(window.data)
            place, found, need = find_record(
                window.data, at, left, budget, _KNOWN, LOWEST, self._low, self._high
            )
            if found != BUSY:
                return place, found, need
            at = place
            self._low = np.empty(len(window.data) + 1, np.int32)
            self._high = np.empty(len(window.data) + 1, np.int32)
            prefix_sums(window.data, 0, self._low, self._high)

    def chain(self, at: int) -> tuple[int, bool]:
        """Where the records end that follow one another from `at` on, and whether that is, or may be, the end of the log."""
        window = self.window
        room = (len(window.data) - at) // (OVERHEAD + 1) + 1
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        heads = np.empty((room, HEAD_FIELDS), np.int64)
        left = window.size - window.offset - at
        _, stop, why, *_ = scan_records(window.data, at, left, 1, MOST, starts, ends, heads)
        if why == ZERO:
            return int(stop), not window.data[stop : stop + BODY].any()
        return int(stop), why in (END, NEED)


def at_header(window: Window, at: int) -> bool:
    return window.offset + at < HEADER_SIZE


def fits_in(zxid: int, before: int, between: int) -> bool:
    """Whether a zxid can be that of a transaction behind another one, with so many bytes between them."""
    room = 1 + max(between, 0) // LEAST
    if epoch_of(zxid) == epoch_of(before):
        return 0 < zxid - before <= room
    return epoch_of(zxid) > epoch_of(before) and 0 < counter_of(zxid) <= room


def scan_one(data: Bytes, at: int, left: int) -> bool:
    """Whether a whole record, with a right checksum, is at `at`."""
    one = np.empty(1, np.int64)
    found, *_ = scan_records(data, at, left, 1, MOST, one, one.copy(), np.empty((1, HEAD_FIELDS), np.int64))
    return bool(found)
