"""Kernels for the parts of a tree in arrays (`tree_fields`): paths, digests, ACLs, sessions, and rows of nodes.

Source: `DataTree`, `DataNode`, `NodeHashMapImpl`, `ReferenceCountedACLCache`, `EphemeralType` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import load_i64be, load_u8, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH
from logwright.codec.zookeeper.jute import NULL
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.columns import CONTAINER, TTL_RESERVED

_QUOTA = np.frombuffer(b"/zookeeper/quota", np.uint8)
_LIMITS = np.frombuffer(b"zookeeper_limits", np.uint8)
_STATS = np.frombuffer(b"zookeeper_stats", np.uint8)


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
        if entry != f.GONE and entry >> f.ROW_BITS == crc:
            row = (entry & f.ROW_MASK) - 1
            if nodes[row, f.N_PATH_SIZE] == size and same(arena, nodes[row, f.N_PATH], buf, at, size):
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
        state[f.FILLED] += 1
    table[place] = crc << f.ROW_BITS | (row + 1)


@kernel("i8[], i8, i8, i8")
def leave(table: Int64s, crc: int, row: int, to: int) -> None:
    """Remove the entry of a row, or give it to another row of the same path."""
    mask = len(table) - 1
    place = crc & mask
    key = crc << f.ROW_BITS | (row + 1)
    while table[place] != key:
        place = (place + 1) & mask
    table[place] = f.GONE if to < 0 else crc << f.ROW_BITS | (to + 1)


@kernel("i8[], const i8[]")
def rehash(table: Int64s, old: Int64s) -> int:
    """Insert all entries of another table. Return their number."""
    mask = len(table) - 1
    n = 0
    for i in range(len(old)):
        entry = old[i]
        if entry > 0:
            place = (entry >> f.ROW_BITS) & mask
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
    store_64be(stat, 0, nodes[row, f.N_CZXID])
    store_64be(stat, 8, nodes[row, f.N_MZXID])
    store_64be(stat, 16, nodes[row, f.N_PZXID])
    store_64be(stat, 24, nodes[row, f.N_CTIME])
    store_64be(stat, 32, nodes[row, f.N_MTIME])
    store_32be(stat, 40, nodes[row, f.N_VERSION])
    store_32be(stat, 44, nodes[row, f.N_CVERSION])
    store_32be(stat, 48, nodes[row, f.N_AVERSION])
    store_64be(stat, 52, nodes[row, f.N_OWNER])
    return crc32_raw(crc, stat, 0, f.STAT_SIZE) ^ f.ONES


@kernel("i8[], i8[,], i8, i8, u1[]")
def count(state: Int64s, nodes: Int64s, row: int, crc: int, stat: Bytes) -> None:
    """Add the digest of a new node. `crc` is the register after its path and data."""
    nodes[row, f.N_BEGUN] = crc
    nodes[row, f.N_DIGEST] = digest_of(nodes, row, crc, stat)
    state[f.TOTAL] += nodes[row, f.N_DIGEST]


@kernel("i8[], i8[,], i8, u1[]")
def changed(state: Int64s, nodes: Int64s, row: int, stat: Bytes) -> None:
    """Recompute the digest of a node whose stat changed."""
    if state[f.DIGESTS] and nodes[row, f.N_DIGEST] >= 0:
        state[f.TOTAL] -= nodes[row, f.N_DIGEST]
        nodes[row, f.N_DIGEST] = digest_of(nodes, row, nodes[row, f.N_BEGUN], stat)
        state[f.TOTAL] += nodes[row, f.N_DIGEST]


# ACLs


@kernel("const i8[], const i8[,], const i8[,], const u1[], const u1[], i8, i8")
def list_of(state: Int64s, forms: Int64s, slots: Int64s, kept: Bytes, buf: Bytes, at: int, size: int) -> int:
    """Return the list of these bytes; -1 if they are unknown, or if a slot may be missing."""
    if state[f.SLOTS] >= len(slots):
        return -1
    crc = crc32_raw(f.ONES, buf, at, at + size)
    mask = len(forms) - 1
    place = crc & mask
    while forms[place, f.P_SIZE]:
        if (
            forms[place, f.P_HASH] == crc
            and forms[place, f.P_SIZE] == size
            and same(kept, forms[place, f.P_AT], buf, at, size)
        ):
            return int(forms[place, f.P_LIST])
        place = (place + 1) & mask
    return -1


@kernel("i8[,], i8")
def use(slots: Int64s, slot: int) -> None:
    """`addUsage`."""
    if slot >= 0 and not slots[slot, f.A_GONE]:
        slots[slot, f.A_REFS] += 1


@kernel("i8[], i8[,], i8[], i8")
def release(state: Int64s, slots: Int64s, lists: Int64s, slot: int) -> None:
    """`removeUsage`: an unused list is forgotten, and gets a new number if it occurs again."""
    if slot < 0 or slots[slot, f.A_GONE]:
        return
    slots[slot, f.A_REFS] -= 1
    if slots[slot, f.A_REFS] <= 0:
        slots[slot, f.A_GONE] = 1
        state[f.ANY_GONE] = 1
        lists[slots[slot, f.A_LIST]] = -1


@kernel("i8[], i8[,], i8[], i8")
def convert(state: Int64s, slots: Int64s, lists: Int64s, number: int) -> int:
    """`convertAcls`: return the slot of a list, with a new number if it has none."""
    slot = lists[number]
    if slot < 0:
        slot = state[f.SLOTS]
        state[f.SLOTS] += 1
        state[f.ACL_INDEX] += 1
        slots[slot, f.A_ID] = state[f.ACL_INDEX]
        slots[slot, f.A_REFS] = 0
        slots[slot, f.A_GONE] = 0
        slots[slot, f.A_LIST] = number
        lists[number] = slot
    slots[slot, f.A_REFS] += 1
    return int(slot)


@kernel("const i8[], const i8[,], const i8[,], i8")
def no_acl(state: Int64s, nodes: Int64s, slots: Int64s, row: int) -> int:
    """Return the ACL number of a node if its lookup is an exception (`convertLong`), else `OPEN_ACL`."""
    if not (state[f.LOOKUPS] and state[f.ANY_GONE]):
        return OPEN_ACL
    slot = nodes[row, f.N_ACL]
    return int(slots[slot, f.A_ID]) if slot >= 0 and slots[slot, f.A_GONE] else OPEN_ACL


# Sessions


@kernel("const i8[,], const i8[], i8")
def session_row(sessions: Int64s, hashed: Int64s, number: int) -> int:
    """Return the row of a session, or -1 minus the place where it would be inserted."""
    mask = len(hashed) - 1
    place = (number ^ number >> 16 ^ number >> 32) & mask
    while hashed[place] != 0:
        if sessions[hashed[place] - 1, f.Z_ID] == number:
            return int(hashed[place] - 1)
        place = (place + 1) & mask
    return -1 - place


@kernel("const i8[,], i8, i8[]")
def rehash_sessions(sessions: Int64s, count: int, hashed: Int64s) -> None:
    for row in range(count):
        hashed[-1 - session_row(sessions, hashed, sessions[row, f.Z_ID])] = row + 1


@kernel("i8[], i8[,], i8[], i8")
def session_of(state: Int64s, sessions: Int64s, hashed: Int64s, number: int) -> int:
    """Return the row of a session, adding it if necessary."""
    session = session_row(sessions, hashed, number)
    if session >= 0:
        return session
    row = state[f.SESSIONS]
    state[f.SESSIONS] += 1
    hashed[-1 - session] = row + 1
    sessions[row, f.Z_ID] = number
    sessions[row, f.Z_TIMEOUT] = 0
    sessions[row, f.Z_OPEN] = 0
    sessions[row, f.Z_HEAD] = -1
    return int(row)


@kernel("i8, i8")
def owner_kind(owner: int, settings: int) -> int:
    """`EphemeralType.get`: return whether an owner is a session, something else, or invalid."""
    if owner == 0:
        return f.OTHER
    if settings & f.TTL_TYPES and owner & f.TTL_OWNER == f.TTL_OWNER:
        return f.OTHER if owner & TTL_RESERVED == 0 else f.INVALID
    return f.OTHER if owner == CONTAINER and not settings & f.NO_CONTAINERS else f.NORMAL


@kernel("i8[], i8[,], i8[,], i8[], i8")
def own(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """Add a node to the list of its owner, if that is a session."""
    if owner_kind(nodes[row, f.N_OWNER], state[f.EXTENDED]) == f.NORMAL:
        session = session_of(state, sessions, hashed, nodes[row, f.N_OWNER])
        nodes[row, f.N_NEXT] = sessions[session, f.Z_HEAD]
        sessions[session, f.Z_HEAD] = row


@kernel("i8[], i8[,], i8[,], i8[]")
def own_all(state: Int64s, nodes: Int64s, sessions: Int64s, hashed: Int64s) -> None:
    """Rebuild the lists of all owners."""
    for session in range(state[f.SESSIONS]):
        sessions[session, f.Z_HEAD] = -1
    for row in range(state[f.ROWS]):
        nodes[row, f.N_NEXT] = -1
        own(state, nodes, sessions, hashed, row)


@kernel("i8[], i8[,], i8, i8, i8, i8, i8")
def new_row(state: Int64s, nodes: Int64s, size: int, data: int, acl: int, parent: int, crc: int) -> None:
    """Add the row of a node whose path, of `size` bytes, and data, of `data` bytes or -1 for null, follow the used bytes of the arena. Its
    stat is not set."""
    row = state[f.ROWS]
    room = max(data, 0)
    nodes[row, f.N_PATH] = state[f.USED]
    nodes[row, f.N_PATH_SIZE] = size
    nodes[row, f.N_DATA] = state[f.USED] + size
    nodes[row, f.N_DATA_SIZE] = data
    nodes[row, f.N_ROOM] = room
    nodes[row, f.N_ACL] = acl
    nodes[row, f.N_PARENT] = parent
    nodes[row, f.N_CHILDREN] = 0
    nodes[row, f.N_NEXT] = -1
    nodes[row, f.N_ALIVE] = 1
    nodes[row, f.N_GHOST] = 0
    nodes[row, f.N_BEGUN] = crc
    nodes[row, f.N_DIGEST] = -1
    state[f.USED] += size + room
    state[f.ROWS] += 1
    state[f.LIVE] += 1


@kernel("i8[], i8[,], i8[], i8, i8, i8")
def supplant(state: Int64s, nodes: Int64s, table: Int64s, crc: int, before: int, row: int) -> None:
    """Put a node in place of one that was not deleted: its path stays among those of its owner, and is deleted with the session."""
    leave(table, crc, before, row)
    bury(state, nodes, before)
    owner = nodes[before, f.N_OWNER]
    if owner != nodes[row, f.N_OWNER] and owner_kind(owner, state[f.EXTENDED]) == f.NORMAL:
        nodes[before, f.N_GHOST] = 1
        nodes[before, f.N_DATA_SIZE] = NULL
        nodes[before, f.N_ROOM] = 0
        state[f.GARBAGE] -= nodes[before, f.N_PATH_SIZE]
        state[f.GHOSTS] = 1


@kernel("i8[], const u1[], i8[,], const i8[,], const i8[], i8")
def lay(state: Int64s, arena: Bytes, nodes: Int64s, sessions: Int64s, hashed: Int64s, row: int) -> None:
    """Delete a node: its path is removed from those of its owner, however it got there."""
    if not state[f.GHOSTS] or owner_kind(nodes[row, f.N_OWNER], state[f.EXTENDED]) != f.NORMAL:
        return
    session = session_row(sessions, hashed, nodes[row, f.N_OWNER])
    node = sessions[session, f.Z_HEAD] if session >= 0 else -1
    while node >= 0:
        size = nodes[node, f.N_PATH_SIZE]
        if (
            nodes[node, f.N_GHOST]
            and size == nodes[row, f.N_PATH_SIZE]
            and same(arena, nodes[node, f.N_PATH], arena, nodes[row, f.N_PATH], size)
        ):
            nodes[node, f.N_GHOST] = 0
            state[f.GARBAGE] += size
        node = nodes[node, f.N_NEXT]


@kernel("i8[], i8[,], i8")
def bury(state: Int64s, nodes: Int64s, row: int) -> None:
    """Drop a node: its bytes are free, and its digest no longer counts."""
    nodes[row, f.N_ALIVE] = 0
    state[f.LIVE] -= 1
    state[f.GARBAGE] += nodes[row, f.N_PATH_SIZE] + nodes[row, f.N_ROOM]
    if nodes[row, f.N_DIGEST] >= 0:
        state[f.TOTAL] -= nodes[row, f.N_DIGEST]
