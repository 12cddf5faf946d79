"""Find the records of a log: the specification of its frames, and the rules for the search after damage.

A server stops reading a file, without an error, at a record that is cut short, lacks its end mark, or has length 0 (preallocated zeros). A
wrong checksum or an impossible length keeps it from starting. A scan continues at the next record. The data of a node may contain a log, so
the search begins at the end of the damaged record, if its length or checksum shows that end. A record found there must continue the zxids,
or lead to the end of the log.

Source: `FileTxnLog.FileTxnIterator.next` and `Util.readTxnBytes` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.describe import I32BE, Field, Struct
from logwright.codec.frames import scanner
from logwright.codec.frames.prefixes import Prefixes
from logwright.codec.frames.resync import Finder
from logwright.codec.frames.scanner import Scanned, Scanner
from logwright.codec.frames.specification import (
    ADLER32,
    Ascending,
    Checksum,
    Equals,
    FrameSpec,
    Heads,
    Length,
)
from logwright.codec.kernels.adler32 import MOD
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, load_u32be, store_64le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes, Frames, Window
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.names import counter_of, epoch_of

BODY = layout.LENGTH + 4
"""Position of the payload in a record."""
LEAST = layout.OVERHEAD + layout.TXN_HEADER
"""Size of the shortest record that holds a transaction."""
MOST = 256 << 20
"""A larger payload is regarded as damage, whatever `jute.maxbuffer` was."""
LONGEST_DATA = 2 << 20
"""A longer chain of records is no data of a node, unless `jute.maxbuffer` was larger than its default."""
REACH = 64 << 10
"""Bytes in which the end of a record is searched for by its checksum."""
_KNOWN = np.array(
    [
        int(bool(layout.RECIPES[kind - layout.LOWEST]) or kind == layout.CHECK)
        for kind in range(layout.LOWEST, layout.HIGHEST + 1)
    ],
    np.int64,
)

HEAD = np.dtype(
    [(name, "<i8") for name in ("checksum", "length", "session_id", "cxid", "zxid", "time", "type", "kind")]
)
HEAD_FIELDS = len(HEAD.names or ())
"""The scan's entry for a frame: the header of its transaction, or zeros if the payload is too short for one."""
STORED, SIZE, SESSION, CXID, ZXID, TIME, TYPE, KIND = range(8)
FILE_HEADER_FRAME, TXN_FRAME = range(2)
"""Kinds of frames: the file header, or a transaction."""


@kernel("u1[], i8, const u1[], i8, i8", inline=True)
def put_head(heads: Bytes, place: int, buf: Bytes, at: int, size: int) -> None:
    """Put the head of the record `buf[at : at + size]` at `heads[place]`, as `HEAD`."""
    store_64le(heads, place, load_i64be(buf, at))
    store_64le(heads, place + 8, size - layout.OVERHEAD)
    store_64le(heads, place + 56, TXN_FRAME)
    at += BODY
    if size >= LEAST:
        store_64le(heads, place + 16, load_i64be(buf, at + layout.CLIENT_AT))
        store_64le(heads, place + 24, load_i32be(buf, at + layout.CXID_AT))
        store_64le(heads, place + 32, load_i64be(buf, at + layout.ZXID_AT))
        store_64le(heads, place + 40, load_i64be(buf, at + layout.TIME_AT))
        store_64le(heads, place + 48, load_i32be(buf, at + layout.TYPE_AT))
    else:
        for i in range(place + 16, place + 56, 8):
            store_64le(heads, i, 0)


@kernel("const u1[], i8")
def may_be_record(buf: Bytes, at: int) -> bool:
    """Return whether the head of a transaction may be at `at`: the upper half of its checksum is zero, and its type is known."""
    if load_u32be(buf, at) != 0:
        return False
    place = load_i32be(buf, at + BODY + layout.TYPE_AT) - layout.LOWEST
    if place < 0 or place >= len(_KNOWN) or _KNOWN[place] == 0:
        return False
    return load_i64be(buf, at + BODY + layout.ZXID_AT) >= 0


SPECIFICATION = FrameSpec(
    "zookeeper.txnlog",
    Struct("TxnHead", layout.RECORD["checksum"], Field("length", I32BE), *layout.PAYLOAD.fields[:5]),
    Length(
        "length",
        bias=layout.OVERHEAD,
        low=layout.OVERHEAD + 1,
        high=layout.OVERHEAD + MOST,
        reach=layout.OVERHEAD + MOST,
    ),
    mark=Equals("eor", (layout.EOR,)),
    checksums=(Checksum(ADLER32, "checksum", "client_id", tail=1),),
    claims=Ascending("zxid"),
    zero_ends=True,
    head_rule=may_be_record,
    heads=Heads(HEAD, put_head),
)
SCANNER, FINDER = Scanner(SPECIFICATION), Finder(SPECIFICATION)


def frames_of(data: Bytes) -> Frames:
    """Return the records that begin these bytes, one after the other, whatever their checksums."""
    scanned = SCANNER.frames(Window(data, 0, len(data)), 0, check=False)
    return Frames(scanned.start, scanned.end, scanned.head, scanned.stop)


def why_stopped(data: Bytes, scanned: Scanned, limit: int) -> int:
    """Return why a scan stopped, for a server that reads payloads of up to `limit` bytes. It checks nothing but the length of a longer
    one."""
    if (
        scanned.why in (scanner.TORN, scanner.BAD_MARK, scanner.BAD_CHECKSUM)
        and len(data) - scanned.stop >= BODY
    ):
        return scanner.BAD_LENGTH if load_i32be(data, scanned.stop + layout.LENGTH) > limit else scanned.why
    return scanned.why


def in_order(scanned: Scanned, limit: int) -> bool:
    """Return whether each zxid is its predecessor plus 1, and no payload is longer than `limit`."""
    if not scanned.consecutive:
        return False
    longest = limit + layout.OVERHEAD
    # A longer record would cover one of the positions `longest` bytes apart.
    for position in range(int(scanned.start[0]), scanned.stop, longest):
        i = scanned.start.searchsorted(position, "right") - 1
        if scanned.end[i] - scanned.start[i] > longest:
            return False
    return True


# The search after damage


@kernel("const u1[], i8, i8")
def true_end(buf: Bytes, at: int, stop: int) -> int:
    """Return where the record at `at` ends by its checksum, up to `stop`, whatever its length field says; -1 if no end matches."""
    if stop - at < LEAST:
        return -1
    stored = load_i64be(buf, at)
    a = 1
    b = 0
    for i in range(at + BODY, stop):
        if b << 16 | a == stored and load_u8(buf, i) == layout.EOR and i - at >= BODY + layout.TXN_HEADER:
            return i + 1
        a += load_u8(buf, i)
        if a >= MOD:
            a -= MOD
        b += a
        if b >= MOD:
            b -= MOD
    return -1


def chain(window: Window, at: int, prefixes: Prefixes | None) -> tuple[int, bool, int]:
    """Follow the chain of good records at `at`. Return where it ends, whether it is the log's own, because it leads to the end of the log or
    is longer than the data of a node; and how many bytes from `at` on have to be known to tell, if they are more than the window has."""
    scanned = SCANNER.frames(window, at, prefixes=prefixes)
    size = scanned.stop - at
    if scanned.why == scanner.NEED and size < LONGEST_DATA:
        return scanned.stop, False, size + scanned.need
    if scanned.why == scanner.ZERO and size < LONGEST_DATA:
        return scanned.stop, not window.data[scanned.stop : scanned.stop + BODY].any(), 0
    return scanned.stop, scanned.why == scanner.END or size >= LONGEST_DATA, 0


def fits_in(zxid: int, before: int, between: int) -> bool:
    """Return whether a zxid is possible `between` bytes after another one."""
    room = 1 + max(between, 0) // LEAST
    if epoch_of(zxid) == epoch_of(before):
        return 0 < zxid - before <= room
    return epoch_of(zxid) > epoch_of(before) and 0 < counter_of(zxid) <= room
