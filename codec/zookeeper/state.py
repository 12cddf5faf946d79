"""A tree in arrays, and the kernels that change it as `DataTree.processTxn` does.

A node is a row of `NODE_FIELDS` numbers; rows are never used again, so a parent comes before its children, and a child belongs to its parent
as long as that row is alive: a node that is deleted while it has children leaves them behind, where nobody lists them. Paths and data lie in
an arena of bytes. A table of hashed paths finds rows: an entry is the CRC-32 of the path, which the digest of the node begins with too, and
the row. ACLs are numbered as `ReferenceCountedACLCache` does it.

A kernel that has no room left, or meets what is rare, says why it stopped; what is done about it is in `replay`. It goes on where it was then.
Source: `DataTree`, `DataNode`, `NodeHashMapImpl`, `ReferenceCountedACLCache`, `EphemeralType` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.base import Bytes
from logwright.codec.intrinsics import copy, load_i32be, load_i64be, load_u8, store_32be, store_64be
from logwright.codec.kernel import kernel
from logwright.codec.zookeeper.bodies import (
    ACL_AT,
    ACL_COUNT,
    DATA_AT,
    DATA_LENGTH,
    FIELDS,
    FLAG,
    LIST_AT,
    LIST_COUNT,
    PATH_AT,
    PATH_LENGTH,
    SOUND,
    STATUS,
    TIME_TO_LIVE,
    VALUE,
    measure_body,
)
from logwright.codec.zookeeper.columns import CONTAINER, TTL_MASK, TTL_MAX, TTL_RESERVED
from logwright.codec.zookeeper.digest import counts, crc32_raw
from logwright.codec.zookeeper.jute import NULL, STAT_PERSISTED, Int64s, skip_acl
from logwright.codec.zookeeper.node import LENGTH, OPEN_ACL, SLASH, STAT, Int32s
from logwright.codec.zookeeper.records import SESSION, TIME, TYPE, ZXID
from logwright.codec.zookeeper.txns import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_SESSION,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    ERROR,
    LOWEST,
    MULTI,
    NUMBER,
    PATHS,
    RECONFIG,
    SET_ACL,
    SET_DATA,
    SUB_RECIPE_ARRAY,
    TXN,
)

(
    N_PATH, N_PATH_SIZE, N_DATA, N_DATA_SIZE, N_ROOM, N_ACL, N_CZXID, N_MZXID, N_CTIME, N_MTIME, N_VERSION, N_CVERSION, N_AVERSION,
    N_OWNER, N_PZXID, N_PARENT, N_CHILDREN, N_BEGUN, N_DIGEST, N_NEXT, N_ALIVE,
) = range(21)  # fmt: skip
"""Of a node: where its path and data lie, their sizes (-1 for null data), the room that data has there; the slot of its ACL; its stat; the
row of its parent (-1: none); how many children it has; the CRC-32 register after path and data; its digest (-1: does not count); the next
node of its owner; 1 while it is there."""
NODE_FIELDS = 21

(
    USED, GARBAGE, ROWS, LIVE, FILLED, TOTAL, LAST, UPTO, RECORD, SUB, POSITION, SESSIONS, SLOTS, ACL_INDEX, DETAIL, DIGESTS, EXTENDED,
    NAMED_PATHS, LOOKUPS, QUOTAS, PENDING, NOTES, EVENT, EVENT_ROW, CODE, COUNTED, UNAPPLIED, ORPHAN, STRANGER,
) = range(29)  # fmt: skip
"""Of the tree: bytes of the arena that are used, and those of them for nothing; rows; nodes; entries of the table, deleted ones too; the sum
of digests; the last zxid; the zxid to stop after; the record, the part of it and the byte to go on at (0: at its start); sessions; ACL slots,
the number given last, and where the list is that is not known, or the number that a server dies of; whether digests are kept, TTL nodes
known for such, the paths in closeSession deleted, ACLs looked up; quotas, and whether their sums wait to be written; notes kept; what
happened to a quota node, and to which; what a server dies of; all notes; transactions that could not be read; the first node that was
loaded whose parent is not there, and the first with an owner that can't be (-1: none)."""
STATE_FIELDS = 29

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
_TTL = TTL_MASK - (1 << 64)
_CZXID, _MZXID = STAT_PERSISTED.offset("czxid"), STAT_PERSISTED.offset("mzxid")
_CTIME, _MTIME = STAT_PERSISTED.offset("ctime"), STAT_PERSISTED.offset("mtime")
_VERSION, _CVERSION = STAT_PERSISTED.offset("version"), STAT_PERSISTED.offset("cversion")
_AVERSION, _OWNER = STAT_PERSISTED.offset("aversion"), STAT_PERSISTED.offset("ephemeral_owner")
_PZXID = STAT_PERSISTED.offset("pzxid")
_SUB_DATA = TXN.offset("data")
_HIGHEST_SUB = LOWEST + len(SUB_RECIPE_ARRAY)
STAT_SIZE = STAT


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


@kernel("const u1[], i8, i8")
def last_slash(buf: Bytes, at: int, size: int) -> int:
    """Where the last slash of a path is in it; -1 where there is none."""
    i = size - 1
    while i >= 0 and load_u8(buf, at + i) != SLASH:
        i -= 1
    return i


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


@kernel("i8[,], i8[], i8")
def release(slots: Int64s, lists: Int64s, slot: int) -> None:
    """`removeUsage`: a list that nobody uses is forgotten, and gets another number when it comes again."""
    if slot < 0 or slots[slot, A_GONE]:
        return
    slots[slot, A_REFS] -= 1
    if slots[slot, A_REFS] <= 0:
        slots[slot, A_GONE] = 1
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
    slot = nodes[row, N_ACL]
    return int(slots[slot, A_ID]) if slot >= 0 and slots[slot, A_GONE] and state[LOOKUPS] else OPEN_ACL


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


@kernel("i8, i8")
def owner_kind(owner: int, extended: int) -> int:
    """`EphemeralType.get`: whether an owner is a session, is none, or can't be."""
    if owner == 0:
        return OTHER
    if extended and owner & _TTL == _TTL:
        return OTHER if owner & TTL_RESERVED == 0 else INVALID
    return OTHER if owner == CONTAINER else NORMAL


@kernel("i8[], i8[,], i8[,], i8[], i8")
def own(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """Put a node on the list of its owner, if that is a session."""
    if owner_kind(nodes[row, N_OWNER], state[EXTENDED]) == NORMAL:
        session = session_of(state, sessions, hashed, nodes[row, N_OWNER])
        nodes[row, N_NEXT] = sessions[session, Z_HEAD]
        sessions[session, Z_HEAD] = row


# Loading


@kernel(
    "const u1[], const i8[], const i4[], const i4[], const i8[], i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], u1[], i8"
)
def load(
    buf: Bytes,
    starts: Int64s,
    paths: Int32s,
    data: Int32s,
    acls: Int64s,
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
        start = starts[i] + LENGTH
        size = paths[i]
        row = state[ROWS]
        cut = last_slash(buf, start, size)
        parent = -1
        crc = ONES
        if cut >= 0:
            # In pre-order it is the node before, or one above that.
            parent = previous
            while parent >= 0 and not (
                nodes[parent, N_ALIVE]
                and nodes[parent, N_PATH_SIZE] == cut
                and same(arena, nodes[parent, N_PATH], buf, start, cut)
            ):
                parent = nodes[parent, N_PARENT]
            crc = crc32_raw(ONES, buf, start, start + cut)
            if parent < 0:
                parent = find(arena, nodes, table, crc, buf, start, cut)
            crc = crc32_raw(crc, buf, start + cut, start + size)
        elif size:
            crc = crc32_raw(ONES, buf, start, start + size)
        before = find(arena, nodes, table, crc, buf, start, size)
        length = max(data[i], 0)
        used = state[USED]
        copy(arena, used, buf, start, size)
        copy(arena, used + size, buf, start + size + LENGTH, length)
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
        nodes[row, N_BEGUN] = crc
        nodes[row, N_DIGEST] = -1
        state[ROWS] += 1
        state[LIVE] += 1
        use(slots, acls[i])
        if before >= 0:
            # The last one counts. The other had its name among its parent's children already.
            leave(table, crc, before, row)
            bury(state, nodes, before)
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
        if parent < 0 and size and state[ORPHAN] < 0:
            state[ORPHAN] = row
        if owner_kind(nodes[row, N_OWNER], state[EXTENDED]) == INVALID and size and state[STRANGER] < 0:
            state[STRANGER] = row
        own(state, nodes, sessions, hashed, row)
        previous = row
    return len(starts)


@kernel("i8[], i8[,], i8")
def bury(state: Int64s, nodes: Int64s, row: int) -> None:
    """A node is no more: its bytes are free, its digest counts no more."""
    nodes[row, N_ALIVE] = 0
    state[LIVE] -= 1
    state[GARBAGE] += nodes[row, N_PATH_SIZE] + nodes[row, N_ROOM]
    if nodes[row, N_DIGEST] >= 0:
        state[TOTAL] -= nodes[row, N_DIGEST]


# Quotas


@kernel("i8[], i8[,], const i8[], const u1[], const u1[], i8, i8, i8, i8")
def count_quota(
    state: Int64s,
    quotas: Int64s,
    by_path: Int64s,
    kept: Bytes,
    buf: Bytes,
    at: int,
    size: int,
    nodes_more: int,
    bytes_more: int,
) -> None:
    """Add to the longest path with a quota that a node is at or below (`getMaxPrefixWithQuota`, `updateQuotaStat`)."""
    if not state[QUOTAS]:
        return
    mask = len(by_path) - 1
    found = -1
    crc = ONES
    done = 0
    for i in range(1, size + 1):
        if i < size and load_u8(buf, at + i) != SLASH:
            continue
        crc = crc32_raw(crc, buf, at + done, at + i)
        done = i
        place = crc & mask
        while by_path[place] != 0:
            one = by_path[place] - 1
            if (
                quotas[one, Q_HASH] == crc
                and quotas[one, Q_SIZE] == i
                and same(kept, quotas[one, Q_AT], buf, at, i)
            ):
                found = one
                break
            place = (place + 1) & mask
    if found >= 0:
        quotas[found, Q_COUNT] += nodes_more
        quotas[found, Q_BYTES] += bytes_more
        quotas[found, Q_TOUCHED] = 1
        state[PENDING] = 1


# Applying


@kernel("i8[], i8[,], i8, i8, i8")
def note(state: Int64s, notes: Int64s, code: int, at: int, size: int) -> None:
    """Remember what a transaction met, as long as there is room; all are counted."""
    state[COUNTED] += 1
    n = state[NOTES]
    if n < len(notes):
        notes[n, NOTE_RECORD] = state[RECORD]
        notes[n, NOTE_SUB] = state[SUB]
        notes[n, NOTE_CODE] = code
        notes[n, NOTE_AT] = at
        notes[n, NOTE_SIZE] = size
        state[NOTES] = n + 1


@kernel("i8[], i8, i8")
def die(state: Int64s, code: int, detail: int) -> int:
    state[CODE] = code
    state[DETAIL] = detail
    return DIED


@kernel("i8[], i8[,], i8, i8, i8, u1[]")
def grow_cversion(state: Int64s, nodes: Int64s, parent: int, number: int, zxid: int, stat: Bytes) -> None:
    """The parent's cversion is not made less by a transaction that is in the snapshot already."""
    if number == -1:
        number = nodes[parent, N_CVERSION] + 1
        if number > 0x7FFFFFFF:
            number -= 1 << 32
    if number > nodes[parent, N_CVERSION]:
        nodes[parent, N_CVERSION] = number
        nodes[parent, N_PZXID] = zxid
        changed(state, nodes, parent, stat)


@kernel(
    "const u1[], i8, const i8[,], i8, i8, i8, i8, i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], i8[,], i8[], const u1[], i8[,], const i8[],"
    " const u1[], u1[], i8[,]"
)
def create(
    buf: Bytes,
    kind: int,
    bodies: Int64s,
    body: int,
    client: int,
    zxid: int,
    time: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    hashed: Int64s,
    slots: Int64s,
    forms: Int64s,
    lists: Int64s,
    acl_bytes: Bytes,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """`DataTree.createNode`. Nothing is changed where it says that it needs something."""
    at = bodies[body, PATH_AT]
    size = bodies[body, PATH_LENGTH]
    owner = 0
    if kind == CREATE_TTL:
        if bodies[body, TIME_TO_LIVE] <= 0 or bodies[body, TIME_TO_LIVE] > TTL_MAX:
            return die(state, BAD_TTL, bodies[body, TIME_TO_LIVE])
        owner = _TTL | bodies[body, TIME_TO_LIVE]
    elif kind == CREATE_CONTAINER:
        owner = CONTAINER
    elif bodies[body, FLAG]:
        owner = client
    if size == NULL:
        return die(state, IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, NO_SLASH, size)
    crc = crc32_raw(ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    if parent < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    if no_acl(state, nodes, slots, parent) != OPEN_ACL:
        return die(state, NO_ACL, no_acl(state, nodes, slots, parent))
    length = max(bodies[body, DATA_LENGTH], 0)
    if state[ROWS] >= len(nodes):
        return NEED_ROWS
    if len(arena) - state[USED] < size + length:
        return NEED_BYTES
    if 2 * (state[FILLED] + 1) > len(table):
        return NEED_TABLE
    if state[SESSIONS] >= len(sessions):
        return NEED_SESSIONS
    slot = -1
    if bodies[body, ACL_COUNT] != NULL:
        start = bodies[body, ACL_AT]
        _, stop, _ = skip_acl(buf, start, len(buf))
        one = list_of(state, forms, slots, acl_bytes, buf, start, stop - start)
        if one < 0:
            state[DETAIL] = start
            return NEED_ACL
        slot = convert(state, slots, lists, one)
    number = bodies[body, VALUE] if bodies[body, FIELDS] & NUMBER else -1
    if size > 1:
        crc = crc32_raw(crc, buf, at + cut, at + size)
        existing = find(arena, nodes, table, crc, buf, at, size)
    else:
        existing = parent  # "/" is another name of the root
    if existing >= 0:
        nodes[existing, N_ACL] = slot
        note(state, notes, NODEEXISTS, at, size)
        if kind == CREATE:
            grow_cversion(state, nodes, parent, number, zxid, stat)
        return DONE
    grow_cversion(state, nodes, parent, number, zxid, stat)
    row = state[ROWS]
    used = state[USED]
    copy(arena, used, buf, at, size)
    copy(arena, used + size, buf, bodies[body, DATA_AT], length)
    state[USED] = used + size + length
    nodes[row, N_PATH] = used
    nodes[row, N_PATH_SIZE] = size
    nodes[row, N_DATA] = used + size
    nodes[row, N_DATA_SIZE] = bodies[body, DATA_LENGTH]
    nodes[row, N_ROOM] = length
    nodes[row, N_ACL] = slot
    nodes[row, N_CZXID] = zxid
    nodes[row, N_MZXID] = zxid
    nodes[row, N_CTIME] = time
    nodes[row, N_MTIME] = time
    nodes[row, N_VERSION] = 0
    nodes[row, N_CVERSION] = 0
    nodes[row, N_AVERSION] = 0
    nodes[row, N_OWNER] = owner
    nodes[row, N_PZXID] = zxid
    nodes[row, N_PARENT] = parent
    nodes[row, N_CHILDREN] = 0
    nodes[row, N_NEXT] = -1
    nodes[row, N_ALIVE] = 1
    nodes[row, N_BEGUN] = crc
    nodes[row, N_DIGEST] = -1
    state[ROWS] += 1
    state[LIVE] += 1
    nodes[parent, N_CHILDREN] += 1
    enter(state, table, crc, row)
    if state[DIGESTS] and counts(buf, at, at + size):
        crc = crc32_raw(crc, arena, used + size, used + size + length)
        nodes[row, N_BEGUN] = crc
        nodes[row, N_DIGEST] = digest_of(nodes, row, crc, stat)
        state[TOTAL] += nodes[row, N_DIGEST]
    if owner_kind(owner, state[EXTENDED]) == INVALID:
        return die(state, BAD_OWNER, owner)
    own(state, nodes, sessions, hashed, row)
    count_quota(state, quotas, by_path, quota_bytes, buf, at, size, 1, length)
    if is_quota_node(buf, at, size, cut):
        state[EVENT] = CREATED
        state[EVENT_ROW] = row
    return DONE


@kernel(
    "const u1[], i8, i8, i8, i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], const i8[], const u1[], u1[], i8[,]"
)
def delete(
    buf: Bytes,
    at: int,
    size: int,
    zxid: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    slots: Int64s,
    lists: Int64s,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """`DataTree.deleteNode`."""
    if size == NULL:
        return die(state, IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, NO_SLASH, size)
    crc = crc32_raw(ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    if parent < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    crc = crc32_raw(crc, buf, at + cut, at + size)
    row = find(arena, nodes, table, crc, buf, at, size) if size > 1 else -1
    if zxid > nodes[parent, N_PZXID]:
        nodes[parent, N_PZXID] = zxid
        changed(state, nodes, parent, stat)
    if row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    for one in (row, parent):
        if no_acl(state, nodes, slots, one) != OPEN_ACL:
            return die(state, NO_ACL, no_acl(state, nodes, slots, one))
    if nodes[row, N_PARENT] == parent:
        nodes[parent, N_CHILDREN] -= 1
    leave(table, crc, row, -1)
    bury(state, nodes, row)
    release(slots, lists, nodes[row, N_ACL])
    count_quota(state, quotas, by_path, quota_bytes, buf, at, size, -1, -max(nodes[row, N_DATA_SIZE], 0))
    if is_quota_node(buf, at, size, cut):
        state[EVENT] = DELETED
        state[EVENT_ROW] = row
    return DONE


@kernel(
    "const u1[], const i8[,], i8, i8, i8, i8[], u1[], i8[,], i8[], const i8[,], i8[,], const i8[], const u1[], u1[], i8[,]"
)
def set_data(
    buf: Bytes,
    bodies: Int64s,
    body: int,
    zxid: int,
    time: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    slots: Int64s,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """`DataTree.setData`."""
    at = bodies[body, PATH_AT]
    size = bodies[body, PATH_LENGTH]
    if size == NULL:
        return die(state, IS_NULL, 0)
    named = 0 if size == 1 and load_u8(buf, at) == SLASH else size
    crc = crc32_raw(ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    if no_acl(state, nodes, slots, row) != OPEN_ACL:
        return die(state, NO_ACL, no_acl(state, nodes, slots, row))
    length = max(bodies[body, DATA_LENGTH], 0)
    if length > nodes[row, N_ROOM]:
        if len(arena) - state[USED] < length:
            return NEED_BYTES
        state[GARBAGE] += nodes[row, N_ROOM]
        nodes[row, N_DATA] = state[USED]
        nodes[row, N_ROOM] = length
        state[USED] += length
    copy(arena, nodes[row, N_DATA], buf, bodies[body, DATA_AT], length)
    more = length - max(nodes[row, N_DATA_SIZE], 0)
    nodes[row, N_DATA_SIZE] = bodies[body, DATA_LENGTH]
    nodes[row, N_MTIME] = time
    nodes[row, N_MZXID] = zxid
    nodes[row, N_VERSION] = bodies[body, VALUE]
    if state[DIGESTS] and nodes[row, N_DIGEST] >= 0:
        nodes[row, N_BEGUN] = crc32_raw(crc, arena, nodes[row, N_DATA], nodes[row, N_DATA] + length)
        changed(state, nodes, row, stat)
    count_quota(state, quotas, by_path, quota_bytes, buf, at, size, 0, more)
    cut = last_slash(buf, at, size)
    if cut > 0 and is_quota_node(buf, at, size, cut):
        state[EVENT] = CHANGED
        state[EVENT_ROW] = row
    return DONE


@kernel("const u1[], const i8[,], i8, i8[], u1[], i8[,], i8[], i8[,], i8[,], i8[], const u1[], u1[], i8[,]")
def set_acl(
    buf: Bytes,
    bodies: Int64s,
    body: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    slots: Int64s,
    forms: Int64s,
    lists: Int64s,
    acl_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """`DataTree.setACL`."""
    at = bodies[body, PATH_AT]
    size = bodies[body, PATH_LENGTH]
    if size == NULL:
        return die(state, IS_NULL, 0)
    named = 0 if size == 1 and load_u8(buf, at) == SLASH else size
    crc = crc32_raw(ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    one = -1
    if bodies[body, ACL_COUNT] != NULL:
        start = bodies[body, ACL_AT]
        _, stop, _ = skip_acl(buf, start, len(buf))
        one = list_of(state, forms, slots, acl_bytes, buf, start, stop - start)
        if one < 0:
            state[DETAIL] = start
            return NEED_ACL
    release(slots, lists, nodes[row, N_ACL])
    nodes[row, N_ACL] = -1 if one < 0 else convert(state, slots, lists, one)
    nodes[row, N_AVERSION] = bodies[body, VALUE]
    changed(state, nodes, row, stat)
    return DONE


@kernel("const u1[], i8, i8, i8")
def parts_of(buf: Bytes, at: int, end: int, count: int) -> tuple[int, int]:
    """Whether the transactions of a multi are there as such (their bodies are not looked at), and whether one of them is an error."""
    failed = 0
    for _ in range(count):
        if end - at < _SUB_DATA + 4:
            return 0, 0
        length = load_i32be(buf, at + _SUB_DATA)
        failed |= load_i32be(buf, at) == ERROR
        at += _SUB_DATA + 4
        if length < NULL or length > end - at:
            return 0, 0
        at += max(length, 0)
    return 1, failed


@kernel("const u1[], i8, const i8[,], i8")
def is_multi(buf: Bytes, end: int, bodies: Int64s, i: int) -> int:
    """Whether a server reads a multi, a part of which can't be read: it is looked into only when it is applied."""
    at = bodies[i, LIST_AT]
    if end - at < 4:
        return 0
    whole, _ = parts_of(buf, at + 4, end, bodies[i, LIST_COUNT])
    return whole


@kernel(
    "const u1[], const i8[], const i8[,], const i8[,], i8[,], i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], i8[,], i8[], const u1[], i8[,],"
    " const i8[], const u1[], u1[], i8[], i8[,]"
)
def apply(
    buf: Bytes,
    ends: Int64s,
    heads: Int64s,
    bodies: Int64s,
    part: Int64s,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    hashed: Int64s,
    slots: Int64s,
    forms: Int64s,
    lists: Int64s,
    acl_bytes: Bytes,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    digests: Int64s,
    notes: Int64s,
) -> int:
    """Apply transactions from `state[RECORD]` on, whose headers and bodies were measured; `ends` are those of their payloads."""
    while state[RECORD] < len(heads):
        i = state[RECORD]
        zxid = heads[i, ZXID]
        kind = heads[i, TYPE]
        client = heads[i, SESSION]
        time = heads[i, TIME]
        if zxid > state[UPTO]:
            return REACHED
        why = DONE
        if bodies[i, STATUS] != SOUND and not (kind == MULTI and is_multi(buf, ends[i], bodies, i)):
            note(state, notes, UNREAD, 0, 0)
            digests[i] = state[TOTAL]
            state[UNAPPLIED] += 1
            state[RECORD] += 1
            continue
        if kind in (SET_DATA, RECONFIG):
            why = set_data(
                buf, bodies, i, zxid, time, state, arena, nodes, table, slots, quotas, by_path, quota_bytes, stat, notes
            )  # fmt: skip
        elif kind in (CREATE, CREATE2, CREATE_TTL, CREATE_CONTAINER):
            why = create(
                buf, kind, bodies, i, client, zxid, time, state, arena, nodes, table, sessions, hashed, slots, forms, lists, acl_bytes,
                quotas, by_path, quota_bytes, stat, notes,
            )  # fmt: skip
        elif kind in (DELETE, DELETE_CONTAINER):
            why = delete(
                buf, bodies[i, PATH_AT], bodies[i, PATH_LENGTH], zxid, state, arena, nodes, table, slots, lists, quotas, by_path,
                quota_bytes, stat, notes,
            )  # fmt: skip
        elif kind == SET_ACL:
            why = set_acl(
                buf, bodies, i, state, arena, nodes, table, slots, forms, lists, acl_bytes, stat, notes
            )
        elif kind == CREATE_SESSION:
            if state[SESSIONS] >= len(sessions):
                return NEED_SESSIONS
            session = session_of(state, sessions, hashed, client)
            sessions[session, Z_TIMEOUT] = bodies[i, VALUE]
            sessions[session, Z_OPEN] = 1
        elif kind == CLOSE_SESSION:
            why = close_session(
                buf, bodies, i, client, zxid, state, arena, nodes, table, sessions, hashed, slots, lists, quotas, by_path, quota_bytes,
                stat, notes,
            )  # fmt: skip
        elif kind == MULTI:
            why = multi(
                buf, ends[i], bodies, i, part, client, zxid, time, state, arena, nodes, table, sessions, hashed, slots, forms, lists,
                acl_bytes, quotas, by_path, quota_bytes, stat, notes,
            )  # fmt: skip
        if why != DONE and why != HAPPENED:
            return why
        if why == DONE:
            # All of the record is done.
            state[SUB] = -1
            state[POSITION] = 0
            state[LAST] = max(state[LAST], zxid)
            digests[i] = state[TOTAL]
            state[RECORD] += 1
        if state[EVENT]:
            return HAPPENED
    return DONE


@kernel(
    "const u1[], i8, const i8[,], i8, i8[,], i8, i8, i8, i8[], u1[], i8[,], i8[], i8[,], i8[], i8[,], i8[,], i8[], const u1[], i8[,],"
    " const i8[], const u1[], u1[], i8[,]"
)
def multi(
    buf: Bytes,
    end: int,
    bodies: Int64s,
    i: int,
    part: Int64s,
    client: int,
    zxid: int,
    time: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    hashed: Int64s,
    slots: Int64s,
    forms: Int64s,
    lists: Int64s,
    acl_bytes: Bytes,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """The transactions of a multi from part `state[SUB]` on, which is at `state[POSITION]`; none where one of them is an error. It ends at
    one that can't be read, or can't be in a multi."""
    count = bodies[i, LIST_COUNT]
    if count == NULL:
        return die(state, IS_NULL, 0)
    _, failed = parts_of(buf, bodies[i, LIST_AT] + 4, end, count)
    if not state[POSITION]:
        state[SUB] = 0
    at = state[POSITION] if state[POSITION] else bodies[i, LIST_AT] + 4
    while state[SUB] < count:
        kind = load_i32be(buf, at)
        start = at + _SUB_DATA + 4
        length = load_i32be(buf, at + _SUB_DATA)
        if length == NULL:
            return die(state, IS_NULL, 0)
        stop = start + length
        fields = SUB_RECIPE_ARRAY[kind - LOWEST] if LOWEST <= kind < _HIGHEST_SUB else 0
        if fields == 0 or measure_body(buf, kind, fields, start, stop, part, 0) != SOUND:
            note(state, notes, MARSHALLING, 0, 0)
            return DONE
        why = DONE
        if failed:
            pass
        elif kind == SET_DATA:
            why = set_data(
                buf, part, 0, zxid, time, state, arena, nodes, table, slots, quotas, by_path, quota_bytes, stat, notes
            )  # fmt: skip
        elif kind in (DELETE, DELETE_CONTAINER):
            why = delete(
                buf, part[0, PATH_AT], part[0, PATH_LENGTH], zxid, state, arena, nodes, table, slots, lists, quotas, by_path,
                quota_bytes, stat, notes,
            )  # fmt: skip
        elif kind != CHECK:
            why = create(
                buf, kind, part, 0, client, zxid, time, state, arena, nodes, table, sessions, hashed, slots, forms, lists, acl_bytes,
                quotas, by_path, quota_bytes, stat, notes,
            )  # fmt: skip
        if why == DONE:
            at = stop
            state[SUB] += 1
        state[POSITION] = at
        if why != DONE:
            return why
        if state[EVENT]:
            return HAPPENED
    return DONE


@kernel(
    "const u1[], const i8[,], i8, i8, i8, i8[], u1[], i8[,], i8[], i8[,], const i8[], i8[,], i8[], i8[,], const i8[], const u1[], u1[],"
    " i8[,]"
)
def close_session(
    buf: Bytes,
    bodies: Int64s,
    i: int,
    client: int,
    zxid: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    hashed: Int64s,
    slots: Int64s,
    lists: Int64s,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """`DataTree.killSession`: the nodes that the transaction names, then what the session owns besides."""
    session = session_row(sessions, hashed, client)
    if session >= 0:
        sessions[session, Z_OPEN] = 0
    count = bodies[i, LIST_COUNT] if bodies[i, FIELDS] & PATHS and state[NAMED_PATHS] else 0
    if not state[POSITION]:
        state[POSITION] = bodies[i, LIST_AT] + 4
        state[SUB] = 0
    while state[SUB] < count:
        size = load_i32be(buf, state[POSITION])
        why = delete(
            buf, state[POSITION] + 4, size, zxid, state, arena, nodes, table, slots, lists, quotas, by_path, quota_bytes, stat, notes
        )  # fmt: skip
        if why != DONE:
            return why
        state[POSITION] += 4 + size
        state[SUB] += 1
        if state[EVENT]:
            return HAPPENED
    if session < 0:
        return DONE
    return delete_owned(
        session,
        zxid,
        state,
        arena,
        nodes,
        table,
        sessions,
        slots,
        lists,
        quotas,
        by_path,
        quota_bytes,
        stat,
        notes,
    )


@kernel("i8, i8, i8[], u1[], i8[,], i8[], i8[,], i8[,], i8[], i8[,], const i8[], const u1[], u1[], i8[,]")
def delete_owned(
    session: int,
    zxid: int,
    state: Int64s,
    arena: Bytes,
    nodes: Int64s,
    table: Int64s,
    sessions: Int64s,
    slots: Int64s,
    lists: Int64s,
    quotas: Int64s,
    by_path: Int64s,
    quota_bytes: Bytes,
    stat: Bytes,
    notes: Int64s,
) -> int:
    """Delete the nodes of a session. Where a note is of one, its place is -1 - the place in the arena."""
    while sessions[session, Z_HEAD] >= 0:
        row = sessions[session, Z_HEAD]
        sessions[session, Z_HEAD] = nodes[row, N_NEXT]
        if not nodes[row, N_ALIVE]:
            continue
        noted = state[NOTES]
        why = delete(
            arena, nodes[row, N_PATH], nodes[row, N_PATH_SIZE], zxid, state, arena, nodes, table, slots, lists, quotas, by_path,
            quota_bytes, stat, notes,
        )  # fmt: skip
        if state[NOTES] > noted:
            notes[noted, NOTE_AT] = -1 - nodes[row, N_PATH]
        if why != DONE:
            return why
        if state[EVENT]:
            return HAPPENED
    return DONE


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
        if not nodes[row, N_ALIVE]:
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
