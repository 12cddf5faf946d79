"""A tree in arrays, and the kernels that load it and look at it; those that change it are in `apply`.

A node is a row of `NODE_FIELDS` numbers; rows are never used again, so a parent comes before its children, and a child belongs to its parent
as long as that row is alive: a node that is deleted while it has children leaves them behind, where nobody lists them. Paths and data lie in
an arena of bytes. A table of hashed paths finds rows: an entry is the CRC-32 of the path, which the digest of the node begins with too, and
the row. ACLs are numbered as `ReferenceCountedACLCache` does it.

A kernel that has no room left, or meets what is rare, says why it stopped; what is done about it is in `replay`. It goes on where it was then.
Source: `DataTree`, `DataNode`, `NodeHashMapImpl`, `ReferenceCountedACLCache`, `EphemeralType` of ZooKeeper.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import (
    append,
    copy,
    load_i32be,
    load_i64be,
    load_u8,
    prefetch,
    store_32be,
    store_64be,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.memory import aligned
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import LENGTH, OPEN_ACL, SLASH, STAT, Int32s
from logwright.codec.zookeeper.jute import NULL, STAT_PERSISTED, Int64s
from logwright.codec.zookeeper.state.columns import CONTAINER, TTL_MASK, TTL_RESERVED
from logwright.codec.zookeeper.state.digest import counts

(
    N_PATH, N_PATH_SIZE, N_DATA, N_DATA_SIZE, N_ROOM, N_MZXID, N_MTIME, N_VERSION,
    N_CZXID, N_PZXID, N_CTIME, N_CVERSION, N_AVERSION, N_OWNER, N_BEGUN, N_DIGEST,
    N_ACL, N_PARENT, N_CHILDREN, N_NEXT, N_ALIVE, N_GHOST,
) = range(22)  # fmt: skip
"""Of a node: where its path and data lie, their sizes (-1 for null data), the room that data has there; its stat; the CRC-32 register after
path and data; its digest (-1: does not count); the slot of its ACL; the row of its parent (-1: none); how many children it has; the next
node of its owner; 1 while it is there; 1 for one that is no more but its path is still among those of its owner. In the order of the lines
of the processor's caches: setData, most of what most logs have, needs the first one, and with digests the second."""
NODE_FIELDS = 24
LINE = 8
"""Numbers of a cache line. A row is three."""

(
    USED, GARBAGE, ROWS, LIVE, FILLED, TOTAL, LAST, UPTO, RECORD, SUB, POSITION, SESSIONS, SLOTS, ACL_INDEX, DETAIL, DIGESTS, EXTENDED,
    NAMED_PATHS, LOOKUPS, QUOTAS, PENDING, NOTES, EVENT, EVENT_ROW, CODE, COUNTED, UNAPPLIED, ORPHAN, STRANGER, ANY_GONE, BY_PATH,
    MONOTONIC, NO_ALIAS, GHOSTS, NO_CREATE2, ROOT,
) = range(36)  # fmt: skip
"""Of the tree: bytes of the arena that are used, and those of them for nothing; rows; nodes; entries of the table, deleted ones too; the
sum of digests; the last zxid; the zxid to stop after; the record, the part of it and the byte to go on at (0: at its start); sessions; ACL
slots, the number given last, and where the list is that is not known, or the number that a server dies of; whether digests are kept, what
owners are, the paths in closeSession deleted, ACLs looked up; quotas, and whether their sums wait to be written; notes kept; what happened
to a quota node, and to which; what a server dies of; all notes; transactions that could not be read; the first node that was loaded whose
parent is not there, and the first with an owner that can't be (-1: none); whether an ACL slot is of none any more; whether a node is there
if its path is, or if its parent has it, and whether what a transaction says of the parent is left where it is less; whether "/" is no name
of the root any more; whether there are ghosts; whether a multi with a create2 ends there; the node loaded last whose path has no slash,
which is the root then (-1: none)."""
STATE_FIELDS = 36

A_ID, A_REFS, A_GONE, A_LIST = range(4)
"""Of an ACL slot: its number, users, whether the table has it no more, and the list that it is."""
ACL_FIELDS = 4
P_AT, P_SIZE, P_HASH, P_LIST = range(4)
"""Of a byte form of a list, a place of a hash table: where it lies, its size (0: free), its CRC-32, and the list (two may read the same)."""
FORM_FIELDS = 4
Z_ID, Z_TIMEOUT, Z_OPEN, Z_HEAD = range(4)
"""Of a session: its id, timeout, whether it is open, and the first of the nodes that it owns (-1: none)."""
SESSION_FIELDS = 4
Q_AT, Q_SIZE, Q_HASH, Q_COUNT, Q_BYTES, Q_TOUCHED = range(6)
"""Of a quota: its path, and by how much nodes and bytes below it have changed since its stats were written."""
QUOTA_FIELDS = 6
NOTE_RECORD, NOTE_SUB, NOTE_CODE, NOTE_AT, NOTE_SIZE = range(5)
NOTE_FIELDS = 5

DONE, REACHED, NEED_ROWS, NEED_BYTES, NEED_TABLE, NEED_ACL, NEED_SESSIONS, HAPPENED, DIED = range(9)
"""Why a kernel stopped: all is applied; the next record is beyond the zxid to stop after; it needs room for nodes, bytes, entries, an ACL
that it does not know, or sessions; something happened to a quota node; the server would not live on."""
NONODE, NODEEXISTS, MARSHALLING, UNREAD = -101, -110, -5, -1
"""Notes: what a transaction found, as `KeeperException.Code`; a part of a multi that can't be read, at which it ends; a transaction that
can't be read, and was not applied."""
NO_SLASH, IS_NULL, BAD_TTL, BAD_OWNER, NO_ACL, BAD_QUOTA = range(1, 7)
"""What a server dies of: a path without a slash; null where something must be; a TTL that can't be; an owner of an unknown kind; an ACL that
is not there; a quota of no path, or stats of one that are none."""
CREATED, DELETED, CHANGED = range(1, 4)
"""What happened to a quota node."""

ONES = 0xFFFFFFFF
ROW_BITS = 31
ROW_MASK = (1 << ROW_BITS) - 1
GONE = -1
"""An entry of the table that is no more; 0 is a free one."""
_QUOTA = np.frombuffer(b"/zookeeper/quota", np.uint8)
_LIMITS = np.frombuffer(b"zookeeper_limits", np.uint8)
_STATS = np.frombuffer(b"zookeeper_stats", np.uint8)
TTL_OWNER = TTL_MASK - (1 << 64)
"""The owner of a TTL node is this and its TTL."""
_CZXID, _MZXID = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
_CTIME, _MTIME = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
_VERSION, _CVERSION = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
_AVERSION, _OWNER = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
_PZXID = STAT_PERSISTED.offset("pzxid")
STAT_SIZE = STAT


AHEAD = 3
"""So many nodes are fetched at a time, some times before they are needed: one after the other each would be waited for, and of more at
a time the processor can't keep account."""
LARGE = 1 << 16
"""Smaller tables are in the processor's caches anyway."""


_Row = Annotated[Int64s, "i8[]"]
_Rows = Annotated[Int64s, "i8[,]"]
_Raw = Annotated[Bytes, "u1[]"]


class Arrays(NamedTuple):
    """All arrays of a tree, for kernels that change it."""

    state: _Row
    arena: _Raw
    """Paths and data."""
    nodes: _Rows
    table: _Row
    """The hash table of paths."""
    sessions: _Rows
    hashed: _Row
    """A hash table of sessions: rows, plus one."""
    slots: _Rows
    forms: _Rows
    lists: _Row
    acl_bytes: _Raw
    """See `acl_cache`."""
    quotas: _Rows
    by_path: _Row
    """A hash table of quotas: rows, plus one."""
    quota_bytes: _Raw
    stat: _Raw
    """Room for a stat as it counts in a digest."""
    notes: _Rows


# Paths


@kernel("const u1[], i8, const u1[], i8, i8")
def same(one: Bytes, i: int, two: Bytes, j: int, size: int) -> int:
    while size >= 8:
        if load_i64be(one, i) != load_i64be(two, j):
            return 0
        i += 8
        j += 8
        size -= 8
    for k in range(size):
        if load_u8(one, i + k) != load_u8(two, j + k):
            return 0
    return 1


@kernel("const u1[], const i8[,], const i8[], i8, const u1[], i8, i8")
def find(arena: Bytes, nodes: Int64s, table: Int64s, crc: int, buf: Bytes, at: int, size: int) -> int:
    """The row of the node of a path whose CRC-32 register is `crc`; -1 where there is none."""
    mask = len(table) - 1
    place = crc & mask
    while table[place] != 0:
        entry = table[place]
        if entry != GONE and entry >> ROW_BITS == crc:
            row = (entry & ROW_MASK) - 1
            if nodes[row, N_PATH_SIZE] == size and same(arena, nodes[row, N_PATH], buf, at, size):
                return int(row)
        place = (place + 1) & mask
    return -1


@kernel("i8[], i8[], i8, i8")
def enter(state: Int64s, table: Int64s, crc: int, row: int) -> None:
    mask = len(table) - 1
    place = crc & mask
    while table[place] > 0:
        place = (place + 1) & mask
    if table[place] == 0:
        state[FILLED] += 1
    table[place] = crc << ROW_BITS | (row + 1)


@kernel("i8[], i8, i8, i8")
def leave(table: Int64s, crc: int, row: int, to: int) -> None:
    """Take the entry of a row out, or give it to another row of the same path."""
    mask = len(table) - 1
    place = crc & mask
    wanted = crc << ROW_BITS | (row + 1)
    while table[place] != wanted:
        place = (place + 1) & mask
    table[place] = GONE if to < 0 else crc << ROW_BITS | (to + 1)


@kernel("i8[], const i8[]")
def rehash(table: Int64s, old: Int64s) -> int:
    """Enter all that is in another table; returns how many entries that is."""
    mask = len(table) - 1
    n = 0
    for i in range(len(old)):
        entry = old[i]
        if entry > 0:
            place = (entry >> ROW_BITS) & mask
            while table[place] != 0:
                place = (place + 1) & mask
            table[place] = entry
            n += 1
    return n


@kernel("i8, i8")
def crowded(entries: int, size: int) -> int:
    """Whether a hash table of that size has no room for so many entries."""
    return 1 if 8 * entries > 5 * size else 0


@kernel("const u1[], i8, i8")
def last_slash(buf: Bytes, at: int, size: int) -> int:
    """Where the last slash of a path is in it; -1 where there is none."""
    i = size - 1
    while i >= 0 and load_u8(buf, at + i) != SLASH:
        i -= 1
    return i


@kernel("const u1[], i8, i8")
def java_length(buf: Bytes, at: int, size: int) -> int:
    """`String.length` of UTF-8: in units of 16 bits."""
    count = 0
    for i in range(size):
        byte = load_u8(buf, at + i)
        if byte & 0xC0 != 0x80:
            count += 2 if byte >= 0xF0 else 1
    return count


@kernel("const u1[], i8, i8, const u1[]")
def starts_with(buf: Bytes, at: int, size: int, prefix: Bytes) -> int:
    return 1 if size >= len(prefix) and same(buf, at, prefix, 0, len(prefix)) else 0


@kernel("const u1[], i8, i8, i8")
def is_quota_node(buf: Bytes, at: int, size: int, cut: int) -> int:
    """Whether a path, whose last slash is at `cut`, is that of limits or stats."""
    if not starts_with(buf, at, cut, _QUOTA):
        return 0
    name = size - cut - 1
    start = at + cut + 1
    if name == len(_LIMITS) and same(buf, start, _LIMITS, 0, name):
        return 1
    return 1 if name == len(_STATS) and same(buf, start, _STATS, 0, name) else 0


# Digests


@kernel("const i8[,], i8, i8, u1[]")
def digest_of(nodes: Int64s, row: int, crc: int, stat: Bytes) -> int:
    """The digest of a node, `crc` being the register after its path and data."""
    store_64be(stat, 0, nodes[row, N_CZXID])
    store_64be(stat, 8, nodes[row, N_MZXID])
    store_64be(stat, 16, nodes[row, N_PZXID])
    store_64be(stat, 24, nodes[row, N_CTIME])
    store_64be(stat, 32, nodes[row, N_MTIME])
    store_32be(stat, 40, nodes[row, N_VERSION])
    store_32be(stat, 44, nodes[row, N_CVERSION])
    store_32be(stat, 48, nodes[row, N_AVERSION])
    store_64be(stat, 52, nodes[row, N_OWNER])
    return crc32_raw(crc, stat, 0, STAT_SIZE) ^ ONES


@kernel("i8[], i8[,], i8, u1[]")
def changed(state: Int64s, nodes: Int64s, row: int, stat: Bytes) -> None:
    """Count a node anew, of which a number of its stat is another now."""
    if state[DIGESTS] and nodes[row, N_DIGEST] >= 0:
        state[TOTAL] -= nodes[row, N_DIGEST]
        nodes[row, N_DIGEST] = digest_of(nodes, row, nodes[row, N_BEGUN], stat)
        state[TOTAL] += nodes[row, N_DIGEST]


# ACLs


@kernel("const i8[], const i8[,], const i8[,], const u1[], const u1[], i8, i8")
def list_of(state: Int64s, forms: Int64s, slots: Int64s, kept: Bytes, buf: Bytes, at: int, size: int) -> int:
    """The list that these bytes are; -1 where they are not known, or there might be no room for a slot."""
    if state[SLOTS] >= len(slots):
        return -1
    crc = crc32_raw(ONES, buf, at, at + size)
    mask = len(forms) - 1
    place = crc & mask
    while forms[place, P_SIZE]:
        if (
            forms[place, P_HASH] == crc
            and forms[place, P_SIZE] == size
            and same(kept, forms[place, P_AT], buf, at, size)
        ):
            return int(forms[place, P_LIST])
        place = (place + 1) & mask
    return -1


@kernel("i8[,], i8")
def use(slots: Int64s, slot: int) -> None:
    """`addUsage`."""
    if slot >= 0 and not slots[slot, A_GONE]:
        slots[slot, A_REFS] += 1


@kernel("i8[], i8[,], i8[], i8")
def release(state: Int64s, slots: Int64s, lists: Int64s, slot: int) -> None:
    """`removeUsage`: a list that nobody uses is forgotten, and gets another number when it comes again."""
    if slot < 0 or slots[slot, A_GONE]:
        return
    slots[slot, A_REFS] -= 1
    if slots[slot, A_REFS] <= 0:
        slots[slot, A_GONE] = 1
        state[ANY_GONE] = 1
        lists[slots[slot, A_LIST]] = -1


@kernel("i8[], i8[,], i8[], i8")
def convert(state: Int64s, slots: Int64s, lists: Int64s, one: int) -> int:
    """`convertAcls`: the slot of a list, which gets a number if it has none."""
    slot = lists[one]
    if slot < 0:
        slot = state[SLOTS]
        state[SLOTS] += 1
        state[ACL_INDEX] += 1
        slots[slot, A_ID] = state[ACL_INDEX]
        slots[slot, A_REFS] = 0
        slots[slot, A_GONE] = 0
        slots[slot, A_LIST] = one
        lists[one] = slot
    slots[slot, A_REFS] += 1
    return int(slot)


@kernel("const i8[], const i8[,], const i8[,], i8")
def no_acl(state: Int64s, nodes: Int64s, slots: Int64s, row: int) -> int:
    """The number of a node's ACL where asking for it is an exception (`convertLong`), else `OPEN_ACL`."""
    if not (state[LOOKUPS] and state[ANY_GONE]):
        return OPEN_ACL
    slot = nodes[row, N_ACL]
    return int(slots[slot, A_ID]) if slot >= 0 and slots[slot, A_GONE] else OPEN_ACL


# Sessions


@kernel("const i8[,], const i8[], i8")
def session_row(sessions: Int64s, hashed: Int64s, number: int) -> int:
    """The row of a session, or -1 - the place where it would be entered."""
    mask = len(hashed) - 1
    place = (number ^ number >> 16 ^ number >> 32) & mask
    while hashed[place] != 0:
        if sessions[hashed[place] - 1, Z_ID] == number:
            return int(hashed[place] - 1)
        place = (place + 1) & mask
    return -1 - place


@kernel("const i8[,], i8, i8[]")
def rehash_sessions(sessions: Int64s, count: int, hashed: Int64s) -> None:
    for row in range(count):
        hashed[-1 - session_row(sessions, hashed, sessions[row, Z_ID])] = row + 1


@kernel("i8[], i8[,], i8[], i8")
def session_of(state: Int64s, sessions: Int64s, hashed: Int64s, number: int) -> int:
    """The row of a session, a new one if there is none."""
    found = session_row(sessions, hashed, number)
    if found >= 0:
        return found
    row = state[SESSIONS]
    state[SESSIONS] += 1
    hashed[-1 - found] = row + 1
    sessions[row, Z_ID] = number
    sessions[row, Z_TIMEOUT] = 0
    sessions[row, Z_OPEN] = 0
    sessions[row, Z_HEAD] = -1
    return int(row)


NORMAL, OTHER, INVALID = range(3)


TTL_TYPES, NO_CONTAINERS = 1, 2
"""Settings that say what owners are: TTL nodes are known; containers are not."""


@kernel("i8, i8")
def owner_kind(owner: int, settings: int) -> int:
    """`EphemeralType.get`: whether an owner is a session, is none, or can't be."""
    if owner == 0:
        return OTHER
    if settings & TTL_TYPES and owner & TTL_OWNER == TTL_OWNER:
        return OTHER if owner & TTL_RESERVED == 0 else INVALID
    return OTHER if owner == CONTAINER and not settings & NO_CONTAINERS else NORMAL


@kernel("i8[], i8[,], i8[,], i8[], i8")
def own(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """Put a node on the list of its owner, if that is a session."""
    if owner_kind(nodes[row, N_OWNER], state[EXTENDED]) == NORMAL:
        session = session_of(state, sessions, hashed, nodes[row, N_OWNER])
        nodes[row, N_NEXT] = sessions[session, Z_HEAD]
        sessions[session, Z_HEAD] = row


@kernel("i8[], i8[,], i8[,], i8[]")
def own_all(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s) -> None:
    """Make the lists of all owners, who are known, anew."""
    for session in range(state[SESSIONS]):
        sessions[session, Z_HEAD] = -1
    for row in range(state[ROWS]):
        nodes[row, N_NEXT] = -1
        own(state, nodes, sessions, hashed, row)


# Loading


@kernel("const u1[], const i8[], const i4[], i8[]")
def hash_records(buf: Bytes, starts: Int64s, paths: Int32s, out: Int64s) -> None:
    """The CRC-32 registers after the paths of node records."""
    for i in range(len(starts)):
        at = starts[i] + LENGTH
        out[i] = crc32_raw(ONES, buf, at, at + paths[i])


@kernel(
    "const u1[], const i8[], const i4[], const i4[], const i8[], const i8[], i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], u1[], i8"
)
def load(
    buf: Bytes,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
    crcs: Int64s,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    hashed: Int64s,
    slots: Int64s,
    stat: Bytes,
    previous: int,
) -> int:
    """Add node records of a snapshot (`DataTree.deserialize`), as many as there is room for the sessions of; for all else there is.
    `acls` are slots. `previous` is the row before them. Returns how many."""
    for i in range(len(starts)):
        if state[SESSIONS] >= len(sessions):
            return i
        if i % AHEAD == 0 and len(table) >= LARGE:
            for k in range(min(i + AHEAD, len(crcs)), min(i + 2 * AHEAD, len(crcs))):
                prefetch(table, crcs[k] & (len(table) - 1))
        start = starts[i] + LENGTH
        size = paths[i]
        row = state[ROWS]
        cut = last_slash(buf, start, size)
        parent = -1
        crc = crcs[i]
        if cut >= 0:
            # In pre-order it is the node before, or one above that.
            parent = previous
            while parent >= 0 and not (
                nodes[parent, N_PATH_SIZE] == cut
                and nodes[parent, N_ALIVE]
                and same(arena, nodes[parent, N_PATH], buf, start, cut)
            ):
                parent = nodes[parent, N_PARENT]
            if parent < 0:
                parent = find(arena, nodes, table, crc32_raw(ONES, buf, start, start + cut), buf, start, cut)
        before = find(arena, nodes, table, crc, buf, start, size)
        length = max(data[i], 0)
        used = state[USED]
        append(arena, used, buf, start, size)
        append(arena, used + size, buf, start + size + LENGTH, length)
        state[USED] = used + size + length
        at = start + size + LENGTH + length + 8
        nodes[row, N_PATH] = used
        nodes[row, N_PATH_SIZE] = size
        nodes[row, N_DATA] = used + size
        nodes[row, N_DATA_SIZE] = data[i]
        nodes[row, N_ROOM] = length
        nodes[row, N_ACL] = acls[i]
        nodes[row, N_CZXID] = load_i64be(buf, at + _CZXID)
        nodes[row, N_MZXID] = load_i64be(buf, at + _MZXID)
        nodes[row, N_CTIME] = load_i64be(buf, at + _CTIME)
        nodes[row, N_MTIME] = load_i64be(buf, at + _MTIME)
        nodes[row, N_VERSION] = load_i32be(buf, at + _VERSION)
        nodes[row, N_CVERSION] = load_i32be(buf, at + _CVERSION)
        nodes[row, N_AVERSION] = load_i32be(buf, at + _AVERSION)
        nodes[row, N_OWNER] = load_i64be(buf, at + _OWNER)
        nodes[row, N_PZXID] = load_i64be(buf, at + _PZXID)
        nodes[row, N_PARENT] = parent
        nodes[row, N_CHILDREN] = 0
        nodes[row, N_NEXT] = -1
        nodes[row, N_ALIVE] = 1
        nodes[row, N_GHOST] = 0
        nodes[row, N_BEGUN] = crc
        nodes[row, N_DIGEST] = -1
        state[ROWS] += 1
        state[LIVE] += 1
        use(slots, acls[i])
        if before >= 0:
            # The last one counts. The other had its name among its parent's children already.
            supplant(state, nodes, table, crc, before, row)
            if nodes[before, N_PARENT] == parent and parent >= 0:
                nodes[parent, N_CHILDREN] -= 1
        else:
            enter(state, table, crc, row)
        if parent >= 0:
            nodes[parent, N_CHILDREN] += 1
        if state[DIGESTS] and counts(buf, start, start + size):
            crc = crc32_raw(crc, arena, used + size, used + size + length)
            nodes[row, N_BEGUN] = crc
            nodes[row, N_DIGEST] = digest_of(nodes, row, crc, stat)
            state[TOTAL] += nodes[row, N_DIGEST]
        if cut < 0:
            # Neither its parent nor its owner is looked at.
            state[ROOT] = row
        else:
            if parent < 0 and state[ORPHAN] < 0:
                state[ORPHAN] = row
            if owner_kind(nodes[row, N_OWNER], state[EXTENDED]) == INVALID and state[STRANGER] < 0:
                state[STRANGER] = row
            own(state, nodes, sessions, hashed, row)
        previous = row
    return len(starts)


@kernel("i8[], i8[,], i8[], i8, i8, i8")
def supplant(state: Int64s, nodes: Int64s, table: Int64s, crc: int, before: int, row: int) -> None:
    """Put a node in the place of one that nobody deleted: its path stays among those of its owner, to be deleted with the session."""
    leave(table, crc, before, row)
    bury(state, nodes, before)
    owner = nodes[before, N_OWNER]
    if owner != nodes[row, N_OWNER] and owner_kind(owner, state[EXTENDED]) == NORMAL:
        nodes[before, N_GHOST] = 1
        nodes[before, N_DATA_SIZE] = NULL
        nodes[before, N_ROOM] = 0
        state[GARBAGE] -= nodes[before, N_PATH_SIZE]
        state[GHOSTS] = 1


@kernel("i8[], const u1[], i8[,], const i8[,], const i8[], i8")
def lay(state: Int64s, arena: Bytes, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """A node is deleted: its path is not among those of its owner any more, however it came there."""
    if not state[GHOSTS] or owner_kind(nodes[row, N_OWNER], state[EXTENDED]) != NORMAL:
        return
    session = session_row(sessions, hashed, nodes[row, N_OWNER])
    one = sessions[session, Z_HEAD] if session >= 0 else -1
    while one >= 0:
        size = nodes[one, N_PATH_SIZE]
        if (
            nodes[one, N_GHOST]
            and size == nodes[row, N_PATH_SIZE]
            and same(arena, nodes[one, N_PATH], arena, nodes[row, N_PATH], size)
        ):
            nodes[one, N_GHOST] = 0
            state[GARBAGE] += size
        one = nodes[one, N_NEXT]


@kernel("i8[], i8[,], i8")
def bury(state: Int64s, nodes: Int64s, row: int) -> None:
    """A node is no more: its bytes are free, its digest counts no more."""
    nodes[row, N_ALIVE] = 0
    state[LIVE] -= 1
    state[GARBAGE] += nodes[row, N_PATH_SIZE] + nodes[row, N_ROOM]
    if nodes[row, N_DIGEST] >= 0:
        state[TOTAL] -= nodes[row, N_DIGEST]


# Looking


@kernel("const u1[], const i8[,], const i8[], const u1[], const i4[], i8[]")
def find_all(arena: Bytes, nodes: Int64s, table: Int64s, paths: Bytes, ends: Int32s, out: Int64s) -> None:
    """The row of each path; -1 where there is no such node."""
    for i in range(len(out)):
        start = ends[i]
        size = ends[i + 1] - start
        if size == 1 and load_u8(paths, start) == SLASH:
            size = 0
        out[i] = find(arena, nodes, table, crc32_raw(ONES, paths, start, start + size), paths, start, size)


@kernel("const i8[,], const i8[,], const u1[], const i8[], i8, u1[], i8[], i4[], i4[], i8[]")
def records(
    nodes: Int64s,
    slots: Int64s,
    arena: Bytes,
    rows: Int64s,
    with_data: int,
    out: Bytes,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
) -> int:
    """Write nodes as a snapshot has them, or without their data, as null; where they start, and what is in them. Returns where the last
    one ends."""
    at = 0
    for i in range(len(rows)):
        row = rows[i]
        starts[i] = at
        size = nodes[row, N_PATH_SIZE]
        paths[i] = size
        data[i] = nodes[row, N_DATA_SIZE] if with_data else NULL
        slot = nodes[row, N_ACL]
        acls[i] = slots[slot, A_ID] if slot >= 0 else OPEN_ACL
        at = store_32be(out, at, size)
        copy(out, at, arena, nodes[row, N_PATH], size)
        at = store_32be(out, at + size, data[i])
        size = max(data[i], 0)
        copy(out, at, arena, nodes[row, N_DATA], size)
        at = store_64be(out, at + size, acls[i])
        store_64be(out, at + _CZXID, nodes[row, N_CZXID])
        store_64be(out, at + _MZXID, nodes[row, N_MZXID])
        store_64be(out, at + _CTIME, nodes[row, N_CTIME])
        store_64be(out, at + _MTIME, nodes[row, N_MTIME])
        store_32be(out, at + _VERSION, nodes[row, N_VERSION])
        store_32be(out, at + _CVERSION, nodes[row, N_CVERSION])
        store_32be(out, at + _AVERSION, nodes[row, N_AVERSION])
        store_64be(out, at + _OWNER, nodes[row, N_OWNER])
        store_64be(out, at + _PZXID, nodes[row, N_PZXID])
        at += STAT_SIZE
    return at


@kernel("const i8[,], i8, u1[]")
def reach(nodes: Int64s, rows: int, out: Bytes) -> int:
    """Mark the nodes that are there and that a walk from the root meets; returns how many."""
    n = 0
    for row in range(rows):
        parent = nodes[row, N_PARENT]
        root = parent < 0 and nodes[row, N_PATH_SIZE] == 0
        met = 1 if nodes[row, N_ALIVE] and (root or (parent >= 0 and out[parent])) else 0
        out[row] = met
        n += met
    return n


@kernel("const i8[,], i8, const i8[], i8[,]")
def sum_quotas(nodes: Int64s, rows: int, which: Int64s, quotas: Int64s) -> None:
    """Count the nodes and their bytes at and below those rows whose `which` is a quota (`getCounts`)."""
    for row in range(rows):
        above = row
        while above >= 0 and nodes[above, N_ALIVE]:
            if which[above] >= 0:
                quotas[which[above], Q_COUNT] += 1
                quotas[which[above], Q_BYTES] += max(nodes[row, N_DATA_SIZE], 0)
            above = nodes[above, N_PARENT]


@kernel("const i8[,], i8, const u1[], const u1[], i8[]")
def below(nodes: Int64s, rows: int, arena: Bytes, prefix: Bytes, out: Int64s) -> int:
    """The nodes whose path begins so; returns how many, up to the room there is."""
    n = 0
    for row in range(rows):
        if (
            nodes[row, N_ALIVE]
            and n < len(out)
            and starts_with(arena, nodes[row, N_PATH], nodes[row, N_PATH_SIZE], prefix)
        ):
            out[n] = row
            n += 1
    return n


@kernel("i8[,], i8, const u1[], u1[]")
def compact(nodes: Int64s, rows: int, arena: Bytes, out: Bytes) -> int:
    """Copy the paths and data of all nodes that are there one after the other, without what is for nothing between them; returns the end."""
    at = 0
    for row in range(rows):
        if not nodes[row, N_ALIVE] and not nodes[row, N_GHOST]:
            nodes[row, N_PATH_SIZE] = 0
            nodes[row, N_ROOM] = 0
            continue
        size = nodes[row, N_PATH_SIZE]
        length = max(nodes[row, N_DATA_SIZE], 0)
        copy(out, at, arena, nodes[row, N_PATH], size)
        copy(out, at + size, arena, nodes[row, N_DATA], length)
        nodes[row, N_PATH] = at
        nodes[row, N_DATA] = at + size
        nodes[row, N_ROOM] = length
        at += size + length
    return at


def grown(array: Any, used: int, size: int) -> Any:
    """An array with room for so many rows: itself, or a larger one with those that are used."""
    if size <= len(array):
        return array
    shape = (max(size, 2 * used), *array.shape[1:])
    out = room(shape) if array.dtype == np.int64 else np.empty(shape, array.dtype)
    out[:used] = array[:used]
    return out


def room(shape: tuple[int, ...]) -> Int64s:
    """An array that begins with a line of the processor's caches, so that rows of whole lines do."""
    return aligned(8 * math.prod(shape)).view(np.int64).reshape(shape)
