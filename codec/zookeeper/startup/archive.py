"""Read jute exactly as a server does: truncated input, refused lengths, null values.

The codecs read whatever can be parsed. These kernels return what `BinaryInputArchive` and the `deserialize` methods of the records would do
with the same bytes. Source: `BinaryInputArchive`, `DataTree.deserialize`, `ReferenceCountedACLCache.deserialize`,
`SerializeUtils.deserializeTxn` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, SLASH
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.jute import NULL

SOUND, END_OF_FILE, UNREASONABLE, UNSUPPORTED, NULL_ACLS, NULL_PATH, FULL = range(7)
"""How reading ended: success; end of input; a refused length (the value); an unknown type (the value); a null ACL list; a node with a
null path; arrays full."""


# Strings and lists


@kernel("const u1[], i8, i8, i8")
def read_bytes(buf: Bytes, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """Read a string or buffer at `at` (`readString`, `readBuffer`): (status, where it ends, its length). With `UNREASONABLE` the length
    is the refused one."""
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
    """Read a list of ACLs at `at`: (status, where it ends, its count or the refused length); `NULL_ACLS` if it is null."""
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
    """`ReferenceCountedACLCache.deserialize`: (status, where it ends, the refused length)."""
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
    """Read the nodes of `DataTree.deserialize` up to the end of the tree: (nodes, where it stopped, status, the refused length).

    `strict`: a null path is met before its node is read, as up to 3.4. The arrays are those of `layout.hop`.
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
    """Read a body with these fields: (status, where it ends, the refused length). The parts of a multi are parsed only when it is
    applied, and an exception then goes unnoticed."""
    if fields & layout.PATH:
        status, at, length = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return status, at, length
    if fields & layout.DATA:
        status, at, length = read_bytes(buf, at, end, limit)
        if status != SOUND:
            return status, at, length
    if fields & layout.ACLS:
        status, at, length = read_acl(buf, at, end, limit)
        if status != SOUND and status != NULL_ACLS:
            return status, at, length
    at += (
        (1 if fields & layout.EPHEMERAL else 0)
        + (4 if fields & layout.NUMBER else 0)
        + (8 if fields & layout.TTL else 0)
    )
    if at > end:
        return END_OF_FILE, end, 0
    if fields & (layout.PATHS | layout.TXNS):
        if end - at < 4:
            return END_OF_FILE, end, 0
        count = load_i32be(buf, at)
        at += 4
        for _ in range(count):
            if fields & layout.TXNS:
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
    """`SerializeUtils.deserializeTxn` of the payloads `buf[starts[i] : ends[i]]`, up to the first unreadable one: (number of readable
    ones, status, the refused length or type). `close_session`: closeSession is read with its paths."""
    for i in range(len(starts)):
        at = starts[i]
        end = ends[i]
        if end - at < layout.TXN_HEADER:
            return i, END_OF_FILE, 0
        kind = load_i32be(buf, at + layout.TYPE_AT)
        at += layout.TXN_HEADER
        fields = 0
        if lowest <= kind < lowest + len(recipes):
            fields = recipes[kind - lowest]
        if fields == 0:
            return i, UNSUPPORTED, kind
        if kind == layout.CLOSE_SESSION and not close_session:
            continue
        status, _, length = read_body(buf, fields, at, end, limit)
        if status == END_OF_FILE and kind == layout.CREATE:
            # It may be a V0 create.
            status, _, length = read_body(buf, fields & ~layout.NUMBER, at, end, limit)
        if status != SOUND and not (status == END_OF_FILE and kind == layout.CLOSE_SESSION):
            # A truncated closeSession may be from before CloseSessionTxn was added.
            return i, status, length
    return len(starts), SOUND, 0
