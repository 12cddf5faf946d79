"""The node records of a snapshot: how they lie in the file, found by their lengths, and their columns.

A record is a path, data, the number of its ACL and the stat; nothing in it is a checksum. So a record is believed where what it says is
possible, and one that says something unlikely (an ACL that the table does not have, times that are none) only where another
record, or the end of the tree, follows it.
Source: `DataTree.deserialize`, `DataNode` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logwright.codec.describe import I64BE, Field, Struct
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import BUFFER, MAX_BUFFER, NULL, STAT_PERSISTED, USTRING, Int64s

Int32s = npt.NDArray[np.int32]

OPEN_ACL = -1
"""The ACL number of nodes that anyone may do anything with (`ReferenceCountedACLCache.OPEN_UNSAFE_ACL_ID`)."""

NODE = Struct(
    "node",
    Field("path", USTRING, 'full path; "" is the root'),
    Field("data", BUFFER, "what the node holds"),
    Field("acl", I64BE, "number of its list in the ACL table; -1: anyone may do anything"),
    Field("stat", STAT_PERSISTED),
    doc="One node. Parents come before their children, the root first.",
    source="org.apache.zookeeper.server.DataTree.serializeNodeData, DataNode.serialize",
)

LENGTH = 4
STAT = STAT_PERSISTED.head_size
FIXED = 8 + STAT
"""Bytes behind the data."""
NODE_MIN = NODE.min_size
SLASH = ord("/")
_CZXID, _MZXID = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
_CTIME, _MTIME = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
_VERSION, _CVERSION = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
_AVERSION, _OWNER = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
_PZXID = STAT_PERSISTED.offset("pzxid")
_TIME_LIMIT = 1 << 46
"""Milliseconds, in the year 4199: later times are taken for damage."""
LOOKAHEAD = 5
"""Bytes of what follows a record that tell whether it can be one."""
MOST_ACLS = 1 << 24
"""A server hands out numbers from 1 on: larger ones are unlikely."""
_LIMIT = 2 * MAX_BUFFER
"""The longest data that a server reads by default; longer ones are unlikely."""

HEAD = np.dtype([("kind", "u1"), ("path", "<i4"), ("data", "<i4"), ("acl", "<i8")], align=True)
"""What a scan says of a frame: a number of `snapshot.KINDS`; of a node the lengths of its path and data (-1: null), its ACL."""

DONE, NEED, END, BAD_PATH, BAD_DATA, TOO_LONG, UNLIKELY, CUT = range(8)
"""How `hop` ended: room or window at an end; more bytes needed; at the end of the tree; at what can't be a record, by its path,
its data's length, as it reaches behind the tree, or for what it says and what follows it; at the end of the file."""
MESSAGES = (
    "",
    "",
    "",
    "no path starts here: the length or the first or last character of one can't be",
    "the length of the data can't be",
    "the record would reach behind the end of the tree",
    "the record says what no node has, and no other follows it",
    "the file ends within a node",
)


@kernel("const i8[], i8")
def known(ids: Int64s, acl: int) -> int:
    """Where a number is among these, which are in order; -1 where not."""
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
    """Whether a path that a record can have, or the end of the tree, seems to be at `at`, with so many bytes up to the end of the
    tree; five of them are looked at."""
    length = load_i32be(buf, at)
    if load_u8(buf, at + LENGTH) != SLASH:
        return 0
    if length == 1:
        return 1
    return 1 if 2 <= length <= left - LENGTH - FIXED - LENGTH else 0


@kernel("const u1[], i8, i8, const i8[], i8")
def unlikely(buf: Bytes, tail: int, data: int, ids: Int64s, whole: int) -> int:
    """Whether a record says what few nodes have; `tail` is where its ACL is. `whole`: the ACL table has no other numbers than `ids`."""
    acl = load_i64be(buf, tail)
    if acl != OPEN_ACL and known(ids, acl) < 0 and (whole or acl <= 0 or acl > MOST_ACLS):
        return 1
    stat = tail + 8
    ctime = load_i64be(buf, stat + _CTIME)
    mtime = load_i64be(buf, stat + _MTIME)
    if ctime < 0 or mtime < 0 or ctime > _TIME_LIMIT or mtime > _TIME_LIMIT:
        return 1
    czxid = load_i64be(buf, stat + _CZXID)
    if czxid < 0 or load_i64be(buf, stat + _MZXID) < czxid or load_i64be(buf, stat + _PZXID) < 0:
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
    whole: int,
    open_end: int,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
) -> tuple[int, int, int, int]:
    """Records from `at` on, until one of the reasons of `DONE`: (records, where it stopped, reason, bytes needed from there).

    The tree ends at `end`, which may lie behind the buffer. `first` is where the root is. `ids` and `whole` as for
    `unlikely`. With `open_end` nothing is known of the end but that of the file.
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
        doubtful = (length == 0 and at != first) or unlikely(buf, tail, more, ids, whole)
        # What follows the tree is its end mark, which was seen.
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
def seek(buf: Bytes, at: int, end: int, ids: Int64s, whole: int) -> int:
    """The first place from `at` on where a likely record lies whole in the buffer, and before the end of the tree; -1 where there is none.

    Its path, the number of its ACL and its stat are together more than chance makes. The root is not looked for.
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
        if not unlikely(buf, tail, more, ids, whole) and clean(buf, at + LENGTH, place):
            return at
        at += 1
    return -1


@kernel("const u1[], i8, i8")
def clean(buf: Bytes, at: int, end: int) -> int:
    """Whether a path has only characters that ZooKeeper allows (`PathUtils.validatePath`), as far as bytes tell, and no empty name."""
    before = 0
    while at < end:
        byte = load_u8(buf, at)
        if byte < 0x20 or byte == 0x7F or (byte == SLASH and before == SLASH):
            return 0
        before = byte
        at += 1
    return 1


@kernel(
    "const u1[], const i8[], const i4[], const i4[], i8[], i8[], i8[], i8[], i8[], i8[], i8[], i8[], i8[]"
)
def stats(
    buf: Bytes,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    czxid: Int64s,
    mzxid: Int64s,
    ctime: Int64s,
    mtime: Int64s,
    version: Int64s,
    cversion: Int64s,
    aversion: Int64s,
    owner: Int64s,
    pzxid: Int64s,
) -> int:
    """The stats of records that `hop` found, one array a field. Returns how many."""
    for i in range(len(starts)):
        at = starts[i] + 2 * LENGTH + paths[i] + max(data[i], 0) + 8
        czxid[i] = load_i64be(buf, at + _CZXID)
        mzxid[i] = load_i64be(buf, at + _MZXID)
        ctime[i] = load_i64be(buf, at + _CTIME)
        mtime[i] = load_i64be(buf, at + _MTIME)
        version[i] = load_i32be(buf, at + _VERSION)
        cversion[i] = load_i32be(buf, at + _CVERSION)
        aversion[i] = load_i32be(buf, at + _AVERSION)
        owner[i] = load_i64be(buf, at + _OWNER)
        pzxid[i] = load_i64be(buf, at + _PZXID)
    return len(starts)
