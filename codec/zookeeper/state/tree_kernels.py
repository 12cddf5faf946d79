"""A tree in arrays, and the kernels that load and read it. Those that change it are in `apply`.

A node is a row of `NODE_FIELDS` numbers. Rows are never reused, so a parent comes before its children, and a child belongs to its parent as
long as that row is alive: a node that is deleted while it has children leaves them behind, where nothing lists them. Paths and data are in
an arena of bytes. A hash table of paths finds rows: an entry is the CRC-32 of the path, with which the digest of the node begins too, and
the row. ACLs are numbered as in `ReferenceCountedACLCache`.

A kernel that has no room left, or meets a rare case, returns why it stopped. `tree` handles that and calls it again; it continues where it
stopped. Source: `DataTree`, `DataNode`, `NodeHashMapImpl`, `ReferenceCountedACLCache`, `EphemeralType` of ZooKeeper.
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
"""Fields of a node: positions of its path and data, their sizes (-1 for null data), the room for the data; its stat; the CRC-32 register
after path and data; its digest (-1: does not count); the slot of its ACL; the row of its parent (-1: none); its number of children; the
next node of its owner; 1 while it exists; 1 if it was replaced but its path is still among those of its owner. The order follows cache
lines: setData, the most frequent transaction, needs the first line, and with digests the second."""
NODE_FIELDS = 24
LINE = 8
"""Numbers in a cache line. A row takes three lines."""

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
"""Fields of an ACL slot: its number, its users, whether the table lacks it, and its list."""
ACL_FIELDS = 4
P_AT, P_SIZE, P_HASH, P_LIST = range(4)
"""Fields of a byte form of a list, an entry of a hash table: its position, its size (0: free), its CRC-32, and its list (two forms may
decode to the same)."""
FORM_FIELDS = 4
Z_ID, Z_TIMEOUT, Z_OPEN, Z_HEAD = range(4)
"""Fields of a session: its id, timeout, whether it is open, and the first of the nodes that it owns (-1: none)."""
SESSION_FIELDS = 4
Q_AT, Q_SIZE, Q_HASH, Q_COUNT, Q_BYTES, Q_TOUCHED = range(6)
"""Fields of a quota: its path, and the changes of nodes and bytes below it since its stats were written."""
QUOTA_FIELDS = 6
NOTE_RECORD, NOTE_SUB, NOTE_CODE, NOTE_AT, NOTE_SIZE = range(5)
NOTE_FIELDS = 5

DONE, REACHED, NEED_ROWS, NEED_BYTES, NEED_TABLE, NEED_ACL, NEED_SESSIONS, HAPPENED, DIED = range(9)
"""Why a kernel stopped: done; the next record is beyond the limit; it needs room for nodes, bytes, entries, an unknown ACL, or sessions;
a quota node changed; the server would end."""
NONODE, NODEEXISTS, MARSHALLING, UNREAD = -101, -110, -5, -1
"""Notes on transactions, as `KeeperException.Code`; an unreadable part of a multi, at which it ends; an unreadable transaction, which
was not applied."""
NO_SLASH, IS_NULL, BAD_TTL, BAD_OWNER, NO_ACL, BAD_QUOTA = range(1, 7)
"""Reasons why a server ends: a path without a slash; an invalid null; an invalid TTL; an owner of an unknown kind; an unknown ACL; a
quota without a path, or with invalid stats."""
CREATED, DELETED, CHANGED = range(1, 4)
"""Changes of a quota node."""

ONES = 0xFFFFFFFF
ROW_BITS = 31
ROW_MASK = (1 << ROW_BITS) - 1
GONE = -1
"""A deleted entry of the table; 0 is a free one."""
_QUOTA = np.frombuffer(b"/zookeeper/quota", np.uint8)
_LIMITS = np.frombuffer(b"zookeeper_limits", np.uint8)
_STATS = np.frombuffer(b"zookeeper_stats", np.uint8)
TTL_OWNER = TTL_MASK - (1 << 64)
"""The owner of a TTL node is this plus its TTL."""
_CZXID, _MZXID = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
_CTIME, _MTIME = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
_VERSION, _CVERSION = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
_AVERSION, _OWNER = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
_PZXID = STAT_PERSISTED.offset("pzxid")
STAT_SIZE = STAT


AHEAD = 3
"""Number of nodes that are prefetched at a time. Processors track only a limited number of outstanding misses."""
LARGE = 1 << 16
"""Smaller tables are in the caches anyway."""


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
    """Room for a stat in the form of a digest."""
    notes: _Rows


# Paths


@kernel("const u1[], i8, const u1[], i8, i8")
def same(first: Bytes, i: int, two: Bytes, j: int, size: int) -> int:
    while size >= 8:
        if load_i64be(first, i) != load_i64be(two, j):
            return 0
        i += 8
        j += 8
        size -= 8
    for k in range(size):
        if load_u8(first, i + k) != load_u8(two, j + k):
            return 0
    return 1


@kernel("const u1[], const i8[,], const i8[], i8, const u1[], i8, i8")
def find(arena: Bytes, nodes: Int64s, table: Int64s, crc: int, buf: Bytes, at: int, size: int) -> int:
    """Return the row of the node of a path whose CRC-32 register is `crc`, or -1."""
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
    """Remove the entry of a row, or give it to another row of the same path."""
    mask = len(table) - 1
    place = crc & mask
    key = crc << ROW_BITS | (row + 1)
    while table[place] != key:
        place = (place + 1) & mask
    table[place] = GONE if to < 0 else crc << ROW_BITS | (to + 1)


@kernel("i8[], const i8[]")
def rehash(table: Int64s, old: Int64s) -> int:
    """Insert all entries of another table. Return their number."""
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
    """Return whether a hash table of that size is too small for this number of entries."""
    return 1 if 8 * entries > 5 * size else 0


@kernel("const u1[], i8, i8")
def last_slash(buf: Bytes, at: int, size: int) -> int:
    """Return the position of the last slash in a path, or -1."""
    i = size - 1
    while i >= 0 and load_u8(buf, at + i) != SLASH:
        i -= 1
    return i


@kernel("const u1[], i8, i8")
def java_length(buf: Bytes, at: int, size: int) -> int:
    """`String.length` of UTF-8, in units of 16 bits."""
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
    """Return whether a path, whose last slash is at `cut`, is that of a limits or stats node."""
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
    """Return the digest of a node. `crc` is the register after its path and data."""
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
    """Recompute the digest of a node whose stat changed."""
    if state[DIGESTS] and nodes[row, N_DIGEST] >= 0:
        state[TOTAL] -= nodes[row, N_DIGEST]
        nodes[row, N_DIGEST] = digest_of(nodes, row, nodes[row, N_BEGUN], stat)
        state[TOTAL] += nodes[row, N_DIGEST]


# ACLs


@kernel("const i8[], const i8[,], const i8[,], const u1[], const u1[], i8, i8")
def list_of(state: Int64s, forms: Int64s, slots: Int64s, kept: Bytes, buf: Bytes, at: int, size: int) -> int:
    """Return the list of these bytes; -1 if they are unknown, or if a slot may be missing."""
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
    """`removeUsage`: an unused list is forgotten, and gets a new number if it occurs again."""
    if slot < 0 or slots[slot, A_GONE]:
        return
    slots[slot, A_REFS] -= 1
    if slots[slot, A_REFS] <= 0:
        slots[slot, A_GONE] = 1
        state[ANY_GONE] = 1
        lists[slots[slot, A_LIST]] = -1


@kernel("i8[], i8[,], i8[], i8")
def convert(state: Int64s, slots: Int64s, lists: Int64s, number: int) -> int:
    """`convertAcls`: return the slot of a list, with a new number if it has none."""
    slot = lists[number]
    if slot < 0:
        slot = state[SLOTS]
        state[SLOTS] += 1
        state[ACL_INDEX] += 1
        slots[slot, A_ID] = state[ACL_INDEX]
        slots[slot, A_REFS] = 0
        slots[slot, A_GONE] = 0
        slots[slot, A_LIST] = number
        lists[number] = slot
    slots[slot, A_REFS] += 1
    return int(slot)


@kernel("const i8[], const i8[,], const i8[,], i8")
def no_acl(state: Int64s, nodes: Int64s, slots: Int64s, row: int) -> int:
    """Return the ACL number of a node if its lookup is an exception (`convertLong`), else `OPEN_ACL`."""
    if not (state[LOOKUPS] and state[ANY_GONE]):
        return OPEN_ACL
    slot = nodes[row, N_ACL]
    return int(slots[slot, A_ID]) if slot >= 0 and slots[slot, A_GONE] else OPEN_ACL


# Sessions


@kernel("const i8[,], const i8[], i8")
def session_row(sessions: Int64s, hashed: Int64s, number: int) -> int:
    """Return the row of a session, or -1 minus the place where it would be inserted."""
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
    """Return the row of a session, adding it if necessary."""
    session = session_row(sessions, hashed, number)
    if session >= 0:
        return session
    row = state[SESSIONS]
    state[SESSIONS] += 1
    hashed[-1 - session] = row + 1
    sessions[row, Z_ID] = number
    sessions[row, Z_TIMEOUT] = 0
    sessions[row, Z_OPEN] = 0
    sessions[row, Z_HEAD] = -1
    return int(row)


NORMAL, OTHER, INVALID = range(3)


TTL_TYPES, NO_CONTAINERS = 1, 2
"""Settings for owners: TTL nodes are known; containers are unknown."""


@kernel("i8, i8")
def owner_kind(owner: int, settings: int) -> int:
    """`EphemeralType.get`: return whether an owner is a session, something else, or invalid."""
    if owner == 0:
        return OTHER
    if settings & TTL_TYPES and owner & TTL_OWNER == TTL_OWNER:
        return OTHER if owner & TTL_RESERVED == 0 else INVALID
    return OTHER if owner == CONTAINER and not settings & NO_CONTAINERS else NORMAL


@kernel("i8[], i8[,], i8[,], i8[], i8")
def own(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """Add a node to the list of its owner, if that is a session."""
    if owner_kind(nodes[row, N_OWNER], state[EXTENDED]) == NORMAL:
        session = session_of(state, sessions, hashed, nodes[row, N_OWNER])
        nodes[row, N_NEXT] = sessions[session, Z_HEAD]
        sessions[session, Z_HEAD] = row


@kernel("i8[], i8[,], i8[,], i8[]")
def own_all(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s) -> None:
    """Rebuild the lists of all owners."""
    for session in range(state[SESSIONS]):
        sessions[session, Z_HEAD] = -1
    for row in range(state[ROWS]):
        nodes[row, N_NEXT] = -1
        own(state, nodes, sessions, hashed, row)


# Loading


@kernel("const u1[], const i8[], const i4[], i8[]")
def hash_records(buf: Bytes, starts: Int64s, paths: Int32s, out: Int64s) -> None:
    """Compute the CRC-32 registers after the paths of node records."""
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
    """Add node records of a snapshot (`DataTree.deserialize`), as many as the session table has room for; other arrays are large enough.
    `acls` are slots. `previous` is the row before them. Return the number added."""
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
            # In pre-order it is the previous node, or an ancestor of it.
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
            # The last one counts. The other one is in the list of its parent's children already.
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
            # Neither its parent nor its owner is checked.
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
    """Put a node in place of one that was not deleted: its path stays among those of its owner, and is deleted with the session."""
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
    """Delete a node: its path is removed from those of its owner, however it got there."""
    if not state[GHOSTS] or owner_kind(nodes[row, N_OWNER], state[EXTENDED]) != NORMAL:
        return
    session = session_row(sessions, hashed, nodes[row, N_OWNER])
    node = sessions[session, Z_HEAD] if session >= 0 else -1
    while node >= 0:
        size = nodes[node, N_PATH_SIZE]
        if (
            nodes[node, N_GHOST]
            and size == nodes[row, N_PATH_SIZE]
            and same(arena, nodes[node, N_PATH], arena, nodes[row, N_PATH], size)
        ):
            nodes[node, N_GHOST] = 0
            state[GARBAGE] += size
        node = nodes[node, N_NEXT]


@kernel("i8[], i8[,], i8")
def bury(state: Int64s, nodes: Int64s, row: int) -> None:
    """Drop a node: its bytes are free, and its digest no longer counts."""
    nodes[row, N_ALIVE] = 0
    state[LIVE] -= 1
    state[GARBAGE] += nodes[row, N_PATH_SIZE] + nodes[row, N_ROOM]
    if nodes[row, N_DIGEST] >= 0:
        state[TOTAL] -= nodes[row, N_DIGEST]


# Reading


@kernel("const u1[], const i8[,], const i8[], const u1[], const i4[], i8[]")
def find_all(arena: Bytes, nodes: Int64s, table: Int64s, paths: Bytes, ends: Int32s, out: Int64s) -> None:
    """Find the row of each path; -1 if there is no such node."""
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
    """Write nodes as a snapshot has them, or with null for their data; and where they start, and the parts of each. Return where the
    last one ends."""
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
    """Mark the nodes that are reachable from the root. Return their number."""
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
    """Count the nodes and bytes at and below the rows whose `which` is a quota (`getCounts`)."""
    for row in range(rows):
        above = row
        while above >= 0 and nodes[above, N_ALIVE]:
            if which[above] >= 0:
                quotas[which[above], Q_COUNT] += 1
                quotas[which[above], Q_BYTES] += max(nodes[row, N_DATA_SIZE], 0)
            above = nodes[above, N_PARENT]


@kernel("const i8[,], i8, const u1[], const u1[], i8[]")
def below(nodes: Int64s, rows: int, arena: Bytes, prefix: Bytes, out: Int64s) -> int:
    """Find the nodes whose path has this prefix. Return their number, at most as many as fit."""
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
    """Copy the paths and data of all nodes without the gaps between them. Return the end."""
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
    """Return an array with room for this number of rows: the same, or a larger one with the used rows."""
    if size <= len(array):
        return array
    shape = (max(size, 2 * used), *array.shape[1:])
    out = room(shape) if array.dtype == np.int64 else np.empty(shape, array.dtype)
    out[:used] = array[:used]
    return out


def room(shape: tuple[int, ...]) -> Int64s:
    """Return an array that begins at a cache line."""
    return aligned(8 * math.prod(shape)).view(np.int64).reshape(shape)
