"""The node records of a snapshot: their layout, the scan that follows their lengths, and their columns.

A record is a path, data, the number of its ACL and the stat. It has no checksum, so a record is accepted if its fields are possible. One
with unlikely fields (an ACL number that the table lacks, times out of range) is accepted only if another record or the end of the tree
follows. Source: `DataTree.deserialize`, `DataNode` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.describe import I64BE, Field, Struct
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import BUFFER, MAX_BUFFER, NULL, STAT_PERSISTED, USTRING

OPEN_ACL = -1
"""The ACL number of nodes that are open to everyone (`ReferenceCountedACLCache.OPEN_UNSAFE_ACL_ID`)."""

NODE = Struct(
    "node",
    Field("path", USTRING, 'full path; "" is the root'),
    Field("data", BUFFER, "the data of the node"),
    Field("acl", I64BE, "number of its list in the ACL table; -1: anyone may do anything"),
    Field("stat", STAT_PERSISTED),
    doc="One node. Parents come before their children, the root first.",
    source="org.apache.zookeeper.server.DataTree.serializeNodeData, DataNode.serialize",
)

LENGTH = 4
STAT = STAT_PERSISTED.head_size
FIXED = 8 + STAT
"""Size of the fields after the data."""
NODE_MIN = NODE.min_size
SLASH = ord("/")
CZXID_AT, MZXID_AT = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
CTIME_AT, MTIME_AT = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
VERSION_AT, CVERSION_AT = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
AVERSION_AT, OWNER_AT = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
PZXID_AT = STAT_PERSISTED.offset("pzxid")
_TIME_LIMIT = 1 << 46
"""Milliseconds, in the year 4199. Later times are regarded as damage."""
LOOKAHEAD = 5
"""Number of bytes after a record that show whether it is plausible."""
MOST_ACLS = 1 << 24
"""A server assigns numbers from 1 on. Larger ones are unlikely."""
_LIMIT = 2 * MAX_BUFFER
"""The longest data that a server reads by default. Longer data is unlikely."""

HEAD = np.dtype([("kind", "u1"), ("path", "<i4"), ("data", "<i4"), ("acl", "<i8")], align=True)
"""The scan's entry for a frame: its kind (an index of `KINDS`); for a node the lengths of its path and data (-1 for null), and its ACL."""

DONE, NEED, END, BAD_PATH, BAD_DATA, TOO_LONG, UNLIKELY, CUT = range(8)
"""Why `hop` ended: output or window full; more bytes needed; end of the tree; not a record because of its path, its data length, its
extent beyond the tree, or its fields and what follows; end of the file."""
MESSAGES = (
    "",
    "",
    "",
    "no path starts here: impossible length, or impossible first or last character",
    "impossible length of the data",
    "the record would extend beyond the end of the tree",
    "the record has implausible fields, and no other record follows it",
    "the file ends within a node",
)


@kernel("const i8[], i8")
def known(ids: Int64s, acl: int) -> int:
    """Return the index of a number among sorted ones, or -1."""
    low = 0
    high = len(ids)
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < acl:
            low = middle + 1
        else:
            high = middle
    if low < len(ids) and ids[low] == acl:
        return low
    return -1


@kernel("const u1[], i8, i8")
def begins(buf: Bytes, at: int, left: int) -> int:
    """Return whether a possible path, or the end of the tree, is at `at`. `left` bytes remain in the tree; five are examined."""
    length = load_i32be(buf, at)
    if load_u8(buf, at + LENGTH) != SLASH:
        return 0
    if length == 1:
        return 1
    return 1 if 2 <= length <= left - LENGTH - FIXED - LENGTH else 0


@kernel("const u1[], i8, i8, const i8[], i8")
def unlikely(buf: Bytes, tail: int, data: int, ids: Int64s, complete: int) -> int:
    """Return whether the fields of a record are unlikely. `tail` is the position of its ACL number. `complete`: the ACL table has only
    the numbers `ids`."""
    acl = load_i64be(buf, tail)
    if acl != OPEN_ACL and known(ids, acl) < 0 and (complete or acl <= 0 or acl > MOST_ACLS):
        return 1
    stat = tail + 8
    ctime = load_i64be(buf, stat + CTIME_AT)
    mtime = load_i64be(buf, stat + MTIME_AT)
    if ctime < 0 or mtime < 0 or ctime > _TIME_LIMIT or mtime > _TIME_LIMIT:
        return 1
    czxid = load_i64be(buf, stat + CZXID_AT)
    if czxid < 0 or load_i64be(buf, stat + MZXID_AT) < czxid or load_i64be(buf, stat + PZXID_AT) < 0:
        return 1
    return 1 if data > _LIMIT else 0


@kernel("const u1[], i8, i8, i8, i8, const i8[], i8, i8, i8[], i4[], i4[], i8[]")
def hop(
    buf: Bytes,
    at: int,
    end: int,
    first: int,
    check: int,
    ids: Int64s,
    complete: int,
    open_end: int,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
) -> tuple[int, int, int, int]:
    """Follow records from `at` on: (records, where it stopped, reason of `DONE`, bytes needed from there).

    The tree ends at `end`, which may be beyond the buffer. `first` is the position of the root. `ids` and `complete` are those of
    `unlikely`. With `open_end` only the end of the file is known.
    """
    count = 0
    size = len(buf)
    while count < len(starts):
        left = end - at
        if left < LENGTH + 1:
            if left == 0 and not open_end:
                return count, at, END, 0
            return count, at, CUT if open_end else TOO_LONG, 0
        if size - at < LENGTH + 1:
            return count, at, NEED, min(LENGTH + 1, left)
        length = load_i32be(buf, at)
        if length == 1 and load_u8(buf, at + LENGTH) == SLASH:
            return count, at, END if open_end else BAD_PATH, 0
        if length < 0 or length == 1 or (length > 0 and load_u8(buf, at + LENGTH) != SLASH):
            return count, at, BAD_PATH, 0
        place = at + LENGTH + length
        if end - place < LENGTH + FIXED:
            return count, at, CUT if open_end else TOO_LONG, 0
        if size - place < LENGTH:
            return count, at, NEED, place + LENGTH - at
        if length > 0 and load_u8(buf, place - 1) == SLASH:
            return count, at, BAD_PATH, 0
        more = load_i32be(buf, place)
        if more < NULL:
            return count, at, BAD_DATA, 0
        tail = place + LENGTH + max(more, 0)
        stop = tail + FIXED
        if stop > end:
            return count, at, CUT if open_end else TOO_LONG, 0
        if stop > size:
            return count, at, NEED, stop - at
        doubtful = (length == 0 and at != first) or unlikely(buf, tail, more, ids, complete)
        # The end mark follows the tree and was found already.
        if doubtful and (stop < end or open_end):
            if end - stop < LOOKAHEAD:
                return count, at, CUT if open_end else UNLIKELY, 0
            if size - stop < LOOKAHEAD:
                if check:
                    return count, at, NEED, stop + LOOKAHEAD - at
            elif not begins(buf, stop, end - stop):
                return count, at, UNLIKELY, 0
        starts[count] = at
        paths[count] = length
        data[count] = more
        acls[count] = load_i64be(buf, tail)
        count += 1
        at = stop
    return count, at, DONE, 0


@kernel("const u1[], i8, i8, const i8[], i8")
def seek(buf: Bytes, at: int, end: int, ids: Int64s, complete: int) -> int:
    """Return the first position from `at` on with a complete, likely record in the buffer and before the end of the tree; -1 if there is
    none.

    Path, ACL number and stat of random bytes are very unlikely to match. The root is not searched for.
    """
    size = min(len(buf), end)
    while at <= size - NODE_MIN - 2:
        length = load_i32be(buf, at)
        if length < 2 or length > size - at - LENGTH - LENGTH - FIXED or load_u8(buf, at + LENGTH) != SLASH:
            at += 1
            continue
        place = at + LENGTH + length
        more = load_i32be(buf, place)
        if more < NULL or more > size - place - LENGTH - FIXED or load_u8(buf, place - 1) == SLASH:
            at += 1
            continue
        tail = place + LENGTH + max(more, 0)
        if not unlikely(buf, tail, more, ids, complete) and clean(buf, at + LENGTH, place):
            return at
        at += 1
    return -1


@kernel("const u1[], i8, i8")
def clean(buf: Bytes, at: int, end: int) -> int:
    """Return whether a path has only characters that ZooKeeper allows (`PathUtils.validatePath`), as far as bytes show, and no empty
    name."""
    before = 0
    while at < end:
        byte = load_u8(buf, at)
        if byte < 0x20 or byte == 0x7F or (byte == SLASH and before == SLASH):
            return 0
        before = byte
        at += 1
    return 1


STATS = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "pzxid")
"""The fields of a node's stat. `owner` is as stored."""


@kernel("const u1[], const i8[], const i4[], const i4[], i8[,]")
def stats(buf: Bytes, starts: Int64s, paths: Int32s, data: Int32s, out: Int64s) -> None:
    """Read the stats of records that `hop` found, one row of `out` per field of `STATS`."""
    for i in range(len(starts)):
        at = starts[i] + 2 * LENGTH + paths[i] + max(data[i], 0) + 8
        out[0, i] = load_i64be(buf, at + CZXID_AT)
        out[1, i] = load_i64be(buf, at + MZXID_AT)
        out[2, i] = load_i64be(buf, at + CTIME_AT)
        out[3, i] = load_i64be(buf, at + MTIME_AT)
        out[4, i] = load_i32be(buf, at + VERSION_AT)
        out[5, i] = load_i32be(buf, at + CVERSION_AT)
        out[6, i] = load_i32be(buf, at + AVERSION_AT)
        out[7, i] = load_i64be(buf, at + OWNER_AT)
        out[8, i] = load_i64be(buf, at + PZXID_AT)
