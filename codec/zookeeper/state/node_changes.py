"""Change one node of a tree in arrays (`tree_fields`): create, delete, setData and setACL.

Source: `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import append, copy, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH
from logwright.codec.zookeeper.formats.txnlog import bodies as measured
from logwright.codec.zookeeper.formats.txnlog.layout import CREATE, CREATE_CONTAINER, CREATE_TTL, NUMBER
from logwright.codec.zookeeper.jute import NULL, skip_acl
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.columns import CONTAINER, TTL_MAX
from logwright.codec.zookeeper.state.digest import counts
from logwright.codec.zookeeper.state.tree_fields import Arrays
from logwright.codec.zookeeper.state.tree_kernels import (
    bury,
    changed,
    convert,
    count,
    crowded,
    enter,
    find,
    is_quota_node,
    java_length,
    last_slash,
    lay,
    leave,
    list_of,
    new_row,
    no_acl,
    own,
    owner_kind,
    release,
    same,
    supplant,
)

_UNKNOWN = -2
"""Stands for an ACL that is not in the cache."""

# Quotas


@kernel("const u1[], i8, i8, i8, i8, Arrays")
def count_quota(buf: Bytes, at: int, size: int, nodes_more: int, bytes_more: int, t: Arrays) -> None:
    """Count a change for the longest path with a quota at or above a node (`getMaxPrefixWithQuota`, `updateQuotaStat`)."""
    state, quotas, by_path = t.state, t.quotas, t.by_path
    if not state[f.QUOTAS]:
        return
    mask = len(by_path) - 1
    quota = -1
    crc = f.ONES
    done = 0
    for i in range(1, size + 1):
        if i < size and load_u8(buf, at + i) != SLASH:
            continue
        crc = crc32_raw(crc, buf, at + done, at + i)
        done = i
        place = crc & mask
        while by_path[place] != 0:
            candidate = by_path[place] - 1
            if (
                quotas[candidate, f.Q_HASH] == crc
                and quotas[candidate, f.Q_SIZE] == i
                and same(t.quota_bytes, quotas[candidate, f.Q_AT], buf, at, i)
            ):
                quota = candidate
                break
            place = (place + 1) & mask
    if quota >= 0:
        quotas[quota, f.Q_COUNT] += nodes_more
        quotas[quota, f.Q_BYTES] += bytes_more
        quotas[quota, f.Q_TOUCHED] = 1
        state[f.PENDING] = 1


@kernel("i8[], i8, i8")
def die(state: Int64s, code: int, detail: int) -> int:
    state[f.CODE] = code
    state[f.DETAIL] = detail
    return f.DIED


@kernel("i8[], i8[,], i8, i8, i8, u1[]")
def set_cversion(state: Int64s, nodes: Int64s, parent: int, number: int, zxid: int, stat: Bytes) -> None:
    """Return the parent's new cversion: that of the transaction, or with -1 one more, as up to 3.5."""
    nodes[parent, f.N_CVERSION] = one_more(nodes[parent, f.N_CVERSION]) if number == -1 else number
    nodes[parent, f.N_PZXID] = zxid
    changed(state, nodes, parent, stat)


@kernel("i8")
def one_more(number: int) -> int:
    """Wrap to 32 bits."""
    return number + 1 if number < 0x7FFFFFFF else -0x80000000


@kernel("i8[], i8[,], i8, i8, i8, u1[]")
def grow_cversion(state: Int64s, nodes: Int64s, parent: int, number: int, zxid: int, stat: Bytes) -> None:
    """Update the cversion of the parent. A transaction that is in the snapshot already does not decrease it."""
    if number == -1:
        number = one_more(nodes[parent, f.N_CVERSION])
    if number > nodes[parent, f.N_CVERSION]:
        nodes[parent, f.N_CVERSION] = number
        nodes[parent, f.N_PZXID] = zxid
        changed(state, nodes, parent, stat)


@kernel("const u1[], const i8[,], i8, Arrays")
def list_in(buf: Bytes, bodies: Int64s, body: int, t: Arrays) -> int:
    """Return the ACL of a body, -1 for null; `_UNKNOWN` if it must be learned first, from `state[DETAIL]` on."""
    if bodies[measured.ACL_COUNT, body] == NULL:
        return -1
    start = bodies[measured.ACL_AT, body]
    _, stop, _ = skip_acl(buf, start, len(buf))
    acl = list_of(t.state, t.forms, t.slots, t.acl_bytes, buf, start, stop - start)
    if acl < 0:
        t.state[f.DETAIL] = start
        return _UNKNOWN
    return acl


@kernel("const u1[], i8, const i8[,], i8, i8, i8, i8, Arrays")
def create(
    buf: Bytes, kind: int, bodies: Int64s, body: int, client: int, zxid: int, time: int, t: Arrays
) -> int:
    """`DataTree.createNode`. If it returns that it needs something, nothing was changed."""
    state, arena, nodes, table, sessions, hashed = t.state, t.arena, t.nodes, t.table, t.sessions, t.hashed
    slots, lists, stat = t.slots, t.lists, t.stat
    at = bodies[measured.PATH_AT, body]
    size = bodies[measured.PATH_LENGTH, body]
    owner = 0
    if kind == CREATE_TTL:
        if bodies[measured.TIME_TO_LIVE, body] <= 0 or bodies[measured.TIME_TO_LIVE, body] > TTL_MAX:
            return die(state, f.BAD_TTL, bodies[measured.TIME_TO_LIVE, body])
        owner = f.TTL_OWNER | bodies[measured.TIME_TO_LIVE, body]
    elif kind == CREATE_CONTAINER:
        owner = CONTAINER
    elif bodies[measured.FLAG, body]:
        owner = client
    if size == NULL:
        return die(state, f.IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, f.NO_SLASH, java_length(buf, at, size))
    crc = crc32_raw(f.ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    if parent < 0:
        return f.DONE
    if no_acl(state, nodes, slots, parent) != OPEN_ACL:
        return die(state, f.NO_ACL, no_acl(state, nodes, slots, parent))
    length = max(bodies[measured.DATA_LENGTH, body], 0)
    if state[f.ROWS] >= len(nodes):
        return f.NEED_ROWS
    if len(arena) - state[f.USED] < size + length:
        return f.NEED_BYTES
    if crowded(state[f.FILLED] + 1, len(table)):
        return f.NEED_TABLE
    if state[f.SESSIONS] >= len(sessions):
        return f.NEED_SESSIONS
    acl = list_in(buf, bodies, body, t)
    if acl == _UNKNOWN:
        return f.NEED_ACL
    slot = convert(state, slots, lists, acl) if acl >= 0 and state[f.MONOTONIC] else -1
    number = bodies[measured.VALUE, body] if bodies[measured.FIELDS, body] & NUMBER else -1
    if size > 1 or state[f.NO_ALIAS]:
        crc = crc32_raw(crc, buf, at + cut, at + size)
        existing = find(arena, nodes, table, crc, buf, at, size)
    else:
        existing = parent  # "/" is another name of the root
    if existing >= 0 and (state[f.BY_PATH] or existing == parent or nodes[existing, f.N_PARENT] == parent):
        if state[f.BY_PATH]:
            nodes[existing, f.N_ACL] = slot
        if kind == CREATE:
            grow_cversion(state, nodes, parent, number, zxid, stat)
        return f.DONE
    if state[f.MONOTONIC]:
        grow_cversion(state, nodes, parent, number, zxid, stat)
    else:
        set_cversion(state, nodes, parent, number, zxid, stat)
        slot = convert(state, slots, lists, acl) if acl >= 0 else -1
    row = state[f.ROWS]
    used = state[f.USED]
    append(arena, used, buf, at, size)
    append(arena, used + size, buf, bodies[measured.DATA_AT, body], length)
    new_row(state, nodes, size, bodies[measured.DATA_LENGTH, body], slot, parent, crc)
    nodes[row, f.N_CZXID] = zxid
    nodes[row, f.N_MZXID] = zxid
    nodes[row, f.N_CTIME] = time
    nodes[row, f.N_MTIME] = time
    nodes[row, f.N_VERSION] = 0
    nodes[row, f.N_CVERSION] = 0
    nodes[row, f.N_AVERSION] = 0
    nodes[row, f.N_OWNER] = owner
    nodes[row, f.N_PZXID] = zxid
    nodes[parent, f.N_CHILDREN] += 1
    if existing >= 0:
        # It was left behind and is not a child of this parent.
        supplant(state, nodes, table, crc, existing, row)
    else:
        enter(state, table, crc, row)
    if state[f.DIGESTS] and counts(buf, at, at + size):
        crc = crc32_raw(f.ONES if size == 1 else crc, arena, used + size, used + size + length)
        count(state, nodes, row, crc, stat)
    if owner_kind(owner, state[f.EXTENDED]) == f.INVALID:
        return die(state, f.BAD_OWNER, owner)
    own(state, nodes, sessions, hashed, row)
    count_quota(buf, at, size, 1, length, t)
    if is_quota_node(buf, at, size, cut):
        state[f.EVENT] = f.CREATED
        state[f.EVENT_ROW] = row
    return f.DONE


@kernel("const u1[], i8, i8, i8, Arrays")
def delete(buf: Bytes, at: int, size: int, zxid: int, t: Arrays) -> int:
    """`DataTree.deleteNode`."""
    state, arena, nodes, table, sessions, hashed = t.state, t.arena, t.nodes, t.table, t.sessions, t.hashed
    slots, lists, stat = t.slots, t.lists, t.stat
    if size == NULL:
        return die(state, f.IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, f.NO_SLASH, java_length(buf, at, size))
    crc = crc32_raw(f.ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    crc = crc32_raw(crc, buf, at + cut, at + size)
    alias = parent if size == 1 and not state[f.NO_ALIAS] else -1
    row = find(arena, nodes, table, crc, buf, at, size) if alias < 0 else alias
    if state[f.MONOTONIC]:
        if parent >= 0 and zxid > nodes[parent, f.N_PZXID]:
            nodes[parent, f.N_PZXID] = zxid
            changed(state, nodes, parent, stat)
        if parent < 0 or row < 0:
            return f.DONE
    elif row < 0:
        return f.DONE
    elif parent < 0:
        leave(table, crc, row, -1)
        bury(state, nodes, row)
        release(state, slots, lists, nodes[row, f.N_ACL])
        return f.DONE
    else:
        nodes[parent, f.N_PZXID] = zxid
        changed(state, nodes, parent, stat)
    for ancestor in (row, parent):
        if no_acl(state, nodes, slots, ancestor) != OPEN_ACL:
            return die(state, f.NO_ACL, no_acl(state, nodes, slots, ancestor))
    if alias >= 0:
        # The root loses one of its two names and is no longer counted. Changes of it count as before.
        state[f.NO_ALIAS] = 1
        state[f.TOTAL] -= max(nodes[row, f.N_DIGEST], 0)
        release(state, slots, lists, nodes[row, f.N_ACL])
        return f.DONE
    if nodes[row, f.N_PARENT] == parent:
        nodes[parent, f.N_CHILDREN] -= 1
    leave(table, crc, row, -1)
    lay(state, arena, nodes, sessions, hashed, row)
    bury(state, nodes, row)
    release(state, slots, lists, nodes[row, f.N_ACL])
    count_quota(buf, at, size, -1, -max(nodes[row, f.N_DATA_SIZE], 0), t)
    if is_quota_node(buf, at, size, cut):
        state[f.EVENT] = f.DELETED
        state[f.EVENT_ROW] = row
    return f.DONE


@kernel("const u1[], const i8[,], i8, i8, i8, i8, Arrays")
def set_data(buf: Bytes, bodies: Int64s, body: int, crc: int, zxid: int, time: int, t: Arrays) -> int:
    """`DataTree.setData`. `crc` is that of the path (`hash_path`)."""
    state, arena, nodes, table, slots, stat = t.state, t.arena, t.nodes, t.table, t.slots, t.stat
    at = bodies[measured.PATH_AT, body]
    size = bodies[measured.PATH_LENGTH, body]
    if size == NULL:
        return die(state, f.IS_NULL, 0)
    named = size
    if size == 1 and load_u8(buf, at) == SLASH:
        named = 1 if state[f.NO_ALIAS] else 0
        crc = crc32_raw(f.ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        return f.DONE
    if no_acl(state, nodes, slots, row) != OPEN_ACL:
        return die(state, f.NO_ACL, no_acl(state, nodes, slots, row))
    length = max(bodies[measured.DATA_LENGTH, body], 0)
    if length > nodes[row, f.N_ROOM]:
        if len(arena) - state[f.USED] < length:
            return f.NEED_BYTES
        state[f.GARBAGE] += nodes[row, f.N_ROOM]
        nodes[row, f.N_DATA] = state[f.USED]
        nodes[row, f.N_ROOM] = length
        state[f.USED] += length
    copy(arena, nodes[row, f.N_DATA], buf, bodies[measured.DATA_AT, body], length)
    more = length - max(nodes[row, f.N_DATA_SIZE], 0)
    nodes[row, f.N_DATA_SIZE] = bodies[measured.DATA_LENGTH, body]
    nodes[row, f.N_MTIME] = time
    nodes[row, f.N_MZXID] = zxid
    nodes[row, f.N_VERSION] = bodies[measured.VALUE, body]
    if state[f.DIGESTS] and nodes[row, f.N_DIGEST] >= 0:
        nodes[row, f.N_BEGUN] = crc32_raw(crc, arena, nodes[row, f.N_DATA], nodes[row, f.N_DATA] + length)
        changed(state, nodes, row, stat)
    count_quota(buf, at, size, 0, more, t)
    cut = last_slash(buf, at, size)
    if cut > 0 and is_quota_node(buf, at, size, cut):
        state[f.EVENT] = f.CHANGED
        state[f.EVENT_ROW] = row
    return f.DONE


@kernel("const u1[], const i8[,], i8, Arrays")
def set_acl(buf: Bytes, bodies: Int64s, body: int, t: Arrays) -> int:
    """`DataTree.setACL`."""
    state, arena, nodes, table, slots = t.state, t.arena, t.nodes, t.table, t.slots
    lists, stat = t.lists, t.stat
    at = bodies[measured.PATH_AT, body]
    size = bodies[measured.PATH_LENGTH, body]
    if size == NULL:
        return die(state, f.IS_NULL, 0)
    named = 0 if size == 1 and load_u8(buf, at) == SLASH and not state[f.NO_ALIAS] else size
    crc = crc32_raw(f.ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        return f.DONE
    acl = list_in(buf, bodies, body, t)
    if acl == _UNKNOWN:
        return f.NEED_ACL
    release(state, slots, lists, nodes[row, f.N_ACL])
    nodes[row, f.N_ACL] = -1 if acl < 0 else convert(state, slots, lists, acl)
    nodes[row, f.N_AVERSION] = bodies[measured.VALUE, body]
    changed(state, nodes, row, stat)
    return f.DONE
