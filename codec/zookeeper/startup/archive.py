"""Jute as a server reads it, to the letter: where the bytes end early, which length is refused, what is null.

The codecs read what can be understood; these kernels say what `BinaryInputArchive` and the records' own `deserialize` would do with the
same bytes. Source: `BinaryInputArchive`, `DataTree.deserialize`, `ReferenceCountedACLCache.deserialize`,
`SerializeUtils.deserializeTxn` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, SLASH, Int32s
from logwright.codec.zookeeper.formats.txnlog.layout import (
    ACLS,
    CLOSE_SESSION,
    CREATE,
    DATA,
    EPHEMERAL,
    NUMBER,
    PATH,
    PATHS,
    PAYLOAD,
    TTL,
    TXN_HEADER,
    TXNS,
)
from logwright.codec.zookeeper.jute import NULL, Int64s

SOUND, END_OF_FILE, UNREASONABLE, UNSUPPORTED, NULL_ACLS, NULL_PATH, FULL = range(7)
"""How reading ended: well; at the end of the bytes; at a length that is refused, the value; at a type that is not known, the value;
at an ACL list that is null; at a node whose path is null; the arrays are full."""

_TYPE = PAYLOAD.offset("type")

# Strings and lists


@kernel("const u1[], i8, i8, i8")
def read_bytes(buf: Bytes, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """`readString` or `readBuffer` at `at`: (status, where it ends, its length). At `UNREASONABLE` the length is the one refused."""
    if end - at < 4:
        return END_OF_FILE, end, 0
    length = load_i32be(buf, at)
    if length == NULL:
        return SOUND, at + 4, NULL
    if length < 0 or length > limit:
        return UNREASONABLE, at + 4, length
    if length > end - at - 4:
        return END_OF_FILE, end, length
    return SOUND, at + 4 + length, length


@kernel("const u1[], i8, i8, i8")
def read_acl(buf: Bytes, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """A list of ACLs at `at`: (status, where it ends, how many, or the length refused); `NULL_ACLS` where it is null."""
    if end - at < 4:
        return END_OF_FILE, end, 0
    count = load_i32be(buf, at)
    at += 4
    if count == NULL:
        return NULL_ACLS, at, 0
    for _ in range(count):
        if end - at < 4:
            return END_OF_FILE, end, 0
        at += 4
        for _ in range(2):
            status, at, length = read_bytes(buf, at, end, limit)
            if status != SOUND:
                return status, at, length
    return SOUND, at, count


@kernel("const u1[], i8, i8, i8")
def read_acl_table(buf: Bytes, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """`ReferenceCountedACLCache.deserialize`: (status, where it ends, the length refused)."""
    if end - at < 4:
        return END_OF_FILE, end, 0
    count = load_i32be(buf, at)
    at += 4
    while count > 0:
        if end - at < 8:
            return END_OF_FILE, end, 0
        status, at, length = read_acl(buf, at + 8, end, limit)
        if status != SOUND:
            return status, at, length
        count -= 1
    return SOUND, at, 0


@kernel("const u1[], i8, i8, i8, i8, i8[], i4[], i4[], i8[]")
def read_nodes(
    buf: Bytes,
    at: int,
    end: int,
    limit: int,
    strict: int,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
) -> tuple[int, int, int, int]:
    """The nodes of `DataTree.deserialize` up to the end of the tree: (nodes, where it stopped, status, the length refused).

    `strict`: a path that is null is met before its node is read, as up to 3.4. The arrays are as for `node.hop`.
    """
    n = 0
    while n < len(starts):
        start = at
        status, at, path = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return n, at, status, path
        if path == 1 and load_u8(buf, start + 4) == SLASH:
            return n, at, SOUND, 0
        if path == NULL and strict:
            return n, at, NULL_PATH, 0
        status, at, length = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return n, at, status, length
        if end - at < FIXED:
            return n, end, END_OF_FILE, 0
        if path == NULL:
            return n, at, NULL_PATH, 0
        starts[n] = start
        paths[n] = path
        data[n] = length
        acls[n] = load_i64be(buf, at)
        at += FIXED
        n += 1
    return n, at, FULL, 0


# Transactions


@kernel("const u1[], i8, i8, i8, i8")
def read_body(buf: Bytes, fields: int, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """A body with these fields: (status, where it ends, the length refused). What is in a multi is not looked at: that is done when it
    is applied, and an exception then goes unnoticed."""
    if fields & PATH:
        status, at, length = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return status, at, length
    if fields & DATA:
        status, at, length = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return status, at, length
    if fields & ACLS:
        status, at, length = read_acl(buf, at, end, limit)
        if status != SOUND and status != NULL_ACLS:
            return status, at, length
    at += (1 if fields & EPHEMERAL else 0) + (4 if fields & NUMBER else 0) + (8 if fields & TTL else 0)
    if at > end:
        return END_OF_FILE, end, 0
    if fields & (PATHS | TXNS):
        if end - at < 4:
            return END_OF_FILE, end, 0
        count = load_i32be(buf, at)
        at += 4
        for _ in range(count):
            if fields & TXNS:
                at += 4
                if at > end:
                    return END_OF_FILE, end, 0
            status, at, length = read_bytes(buf, at, end, limit)
            if status != SOUND:
                return status, at, length
    return SOUND, at, 0


@kernel("const u1[], const i8[], const i8[], const i8[], i8, i8, i8")
def read_txns(
    buf: Bytes, starts: Int64s, ends: Int64s, recipes: Int64s, lowest: int, limit: int, close_session: int
) -> tuple[int, int, int]:
    """`SerializeUtils.deserializeTxn` of payloads `buf[starts[i] : ends[i]]`, up to the first that can't be read: (how many can, status,
    the length or type refused). `close_session`: whether closeSession is read with its paths."""
    for i in range(len(starts)):
        at = starts[i]
        end = ends[i]
        if end - at < TXN_HEADER:
            return i, END_OF_FILE, 0
        kind = load_i32be(buf, at + _TYPE)
        at += TXN_HEADER
        fields = 0
        if lowest <= kind < lowest + len(recipes):
            fields = recipes[kind - lowest]
        if fields == 0:
            return i, UNSUPPORTED, kind
        if kind == CLOSE_SESSION and not close_session:
            continue
        status, _, length = read_body(buf, fields, at, end, limit)
        if status == END_OF_FILE and kind == CREATE:
            # Perhaps this is a V0 create.
            status, _, length = read_body(buf, fields & ~NUMBER, at, end, limit)
        if status != SOUND and not (status == END_OF_FILE and kind == CLOSE_SESSION):
            # A closeSession that ends early is perhaps from before CloseSessionTxn was added.
            return i, status, length
    return len(starts), SOUND, 0
