"""Apply transactions to a tree in arrays, as `DataTree.processTxn` does. See `tree_kernels` for the arrays, and for the reasons why a
kernel stops.

Source: `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import append, copy, load_i32be, load_u8, prefetch
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, SLASH
from logwright.codec.zookeeper.formats.txnlog.bodies import (
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
from logwright.codec.zookeeper.formats.txnlog.layout import (
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
from logwright.codec.zookeeper.formats.txnlog.scan import SESSION, TIME, TYPE, ZXID
from logwright.codec.zookeeper.jute import NULL, Int64s, skip_acl
from logwright.codec.zookeeper.state.columns import CONTAINER, TTL_MAX
from logwright.codec.zookeeper.state.digest import counts
from logwright.codec.zookeeper.state.tree_kernels import (
    AHEAD,
    BAD_OWNER,
    BAD_TTL,
    BY_PATH,
    CHANGED,
    CODE,
    COUNTED,
    CREATED,
    DELETED,
    DETAIL,
    DIED,
    DIGESTS,
    DONE,
    EVENT,
    EVENT_ROW,
    EXTENDED,
    FILLED,
    GARBAGE,
    HAPPENED,
    INVALID,
    IS_NULL,
    LARGE,
    LAST,
    LINE,
    LIVE,
    MARSHALLING,
    MONOTONIC,
    N_ACL,
    N_ALIVE,
    N_AVERSION,
    N_BEGUN,
    N_CHILDREN,
    N_CTIME,
    N_CVERSION,
    N_CZXID,
    N_DATA,
    N_DATA_SIZE,
    N_DIGEST,
    N_GHOST,
    N_MTIME,
    N_MZXID,
    N_NEXT,
    N_OWNER,
    N_PARENT,
    N_PATH,
    N_PATH_SIZE,
    N_PZXID,
    N_ROOM,
    N_VERSION,
    NAMED_PATHS,
    NEED_ACL,
    NEED_BYTES,
    NEED_ROWS,
    NEED_SESSIONS,
    NEED_TABLE,
    NO_ACL,
    NO_ALIAS,
    NO_CREATE2,
    NO_SLASH,
    NODE_FIELDS,
    NODEEXISTS,
    NONODE,
    NOTE_AT,
    NOTE_CODE,
    NOTE_RECORD,
    NOTE_SIZE,
    NOTE_SUB,
    NOTES,
    ONES,
    PENDING,
    POSITION,
    Q_AT,
    Q_BYTES,
    Q_COUNT,
    Q_HASH,
    Q_SIZE,
    Q_TOUCHED,
    QUOTAS,
    REACHED,
    RECORD,
    ROW_MASK,
    ROWS,
    SESSIONS,
    SUB,
    TOTAL,
    TTL_OWNER,
    UNAPPLIED,
    UNREAD,
    UPTO,
    USED,
    Z_HEAD,
    Z_OPEN,
    Z_TIMEOUT,
    Arrays,
    bury,
    changed,
    convert,
    crowded,
    digest_of,
    enter,
    find,
    is_quota_node,
    java_length,
    last_slash,
    lay,
    leave,
    list_of,
    no_acl,
    own,
    owner_kind,
    release,
    same,
    session_of,
    session_row,
    supplant,
)

SUB_DATA = TXN.offset("data")
HIGHEST_SUB = LOWEST + len(SUB_RECIPE_ARRAY)


# Quotas


@kernel("const u1[], i8, i8, i8, i8, Arrays")
def count_quota(buf: Bytes, at: int, size: int, nodes_more: int, bytes_more: int, t: Arrays) -> None:
    """Count a change for the longest path with a quota at or above a node (`getMaxPrefixWithQuota`, `updateQuotaStat`)."""
    state, quotas, by_path = t.state, t.quotas, t.by_path
    if not state[QUOTAS]:
        return
    mask = len(by_path) - 1
    quota = -1
    crc = ONES
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
                quotas[candidate, Q_HASH] == crc
                and quotas[candidate, Q_SIZE] == i
                and same(t.quota_bytes, quotas[candidate, Q_AT], buf, at, i)
            ):
                quota = candidate
                break
            place = (place + 1) & mask
    if quota >= 0:
        quotas[quota, Q_COUNT] += nodes_more
        quotas[quota, Q_BYTES] += bytes_more
        quotas[quota, Q_TOUCHED] = 1
        state[PENDING] = 1


# Transactions


@kernel("const u1[], const i8[,], i8")
def hash_path(buf: Bytes, bodies: Int64s, i: int) -> int:
    """Return the CRC-32 register after the path of a body. "/" is another name of the root, whose path is empty."""
    at = bodies[PATH_AT, i]
    size = max(bodies[PATH_LENGTH, i], 0)
    if size == 1 and load_u8(buf, at) == SLASH:
        size = 0
    return crc32_raw(ONES, buf, at, at + size)


@kernel("const u1[], const i8[,], i8[]")
def hash_paths(buf: Bytes, bodies: Int64s, out: Int64s) -> None:
    for i in range(len(out)):
        out[i] = hash_path(buf, bodies, i)


@kernel("const i8[], i8, const i8[], const i8[,], const u1[], i8")
def fetch(crcs: Int64s, first: int, table: Int64s, nodes: Int64s, arena: Bytes, digests: int) -> None:
    """Prefetch the memory that later transactions will read, so that their cache misses overlap: two groups ahead the table entry of the
    node, one group ahead its path and data."""
    mask = len(table) - 1
    last = len(crcs)
    for i in range(min(first + 3 * AHEAD, last), min(first + 4 * AHEAD, last)):
        prefetch(table, crcs[i] & mask)
    for i in range(min(first + 2 * AHEAD, last), min(first + 3 * AHEAD, last)):
        entry = table[crcs[i] & mask]
        if entry > 0:
            at = ((entry & ROW_MASK) - 1) * NODE_FIELDS
            prefetch(nodes, at)
            if digests:
                prefetch(nodes, at + LINE)
    for i in range(min(first + AHEAD, last), min(first + 2 * AHEAD, last)):
        entry = table[crcs[i] & mask]
        if entry > 0:
            row = (entry & ROW_MASK) - 1
            prefetch(arena, nodes[row, N_PATH])
            at = nodes[row, N_DATA]
            end = at + nodes[row, N_ROOM]
            while at < end:
                prefetch(arena, at)
                at += 64


@kernel("i8[], i8[,], i8, i8, i8")
def note(state: Int64s, notes: Int64s, code: int, at: int, size: int) -> None:
    """Record a note on a transaction, as long as there is room; all are counted."""
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
def set_cversion(state: Int64s, nodes: Int64s, parent: int, number: int, zxid: int, stat: Bytes) -> None:
    """Return the parent's new cversion: that of the transaction, or with -1 one more, as up to 3.5."""
    nodes[parent, N_CVERSION] = one_more(nodes[parent, N_CVERSION]) if number == -1 else number
    nodes[parent, N_PZXID] = zxid
    changed(state, nodes, parent, stat)


@kernel("i8")
def one_more(number: int) -> int:
    """Wrap to 32 bits."""
    return number + 1 if number < 0x7FFFFFFF else -0x80000000


@kernel("i8[], i8[,], i8, i8, i8, u1[]")
def grow_cversion(state: Int64s, nodes: Int64s, parent: int, number: int, zxid: int, stat: Bytes) -> None:
    """Update the cversion of the parent. A transaction that is in the snapshot already does not decrease it."""
    if number == -1:
        number = one_more(nodes[parent, N_CVERSION])
    if number > nodes[parent, N_CVERSION]:
        nodes[parent, N_CVERSION] = number
        nodes[parent, N_PZXID] = zxid
        changed(state, nodes, parent, stat)


@kernel("const u1[], i8, const i8[,], i8, i8, i8, i8, Arrays")
def create(
    buf: Bytes, kind: int, bodies: Int64s, body: int, client: int, zxid: int, time: int, t: Arrays
) -> int:
    """`DataTree.createNode`. If it returns that it needs something, nothing was changed."""
    state, arena, nodes, table, sessions, hashed = t.state, t.arena, t.nodes, t.table, t.sessions, t.hashed
    slots, forms, lists, acl_bytes, stat, notes = t.slots, t.forms, t.lists, t.acl_bytes, t.stat, t.notes
    at = bodies[PATH_AT, body]
    size = bodies[PATH_LENGTH, body]
    owner = 0
    if kind == CREATE_TTL:
        if bodies[TIME_TO_LIVE, body] <= 0 or bodies[TIME_TO_LIVE, body] > TTL_MAX:
            return die(state, BAD_TTL, bodies[TIME_TO_LIVE, body])
        owner = TTL_OWNER | bodies[TIME_TO_LIVE, body]
    elif kind == CREATE_CONTAINER:
        owner = CONTAINER
    elif bodies[FLAG, body]:
        owner = client
    if size == NULL:
        return die(state, IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, NO_SLASH, java_length(buf, at, size))
    crc = crc32_raw(ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    if parent < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    if no_acl(state, nodes, slots, parent) != OPEN_ACL:
        return die(state, NO_ACL, no_acl(state, nodes, slots, parent))
    length = max(bodies[DATA_LENGTH, body], 0)
    if state[ROWS] >= len(nodes):
        return NEED_ROWS
    if len(arena) - state[USED] < size + length:
        return NEED_BYTES
    if crowded(state[FILLED] + 1, len(table)):
        return NEED_TABLE
    if state[SESSIONS] >= len(sessions):
        return NEED_SESSIONS
    slot = -1
    acl = -1
    if bodies[ACL_COUNT, body] != NULL:
        start = bodies[ACL_AT, body]
        _, stop, _ = skip_acl(buf, start, len(buf))
        acl = list_of(state, forms, slots, acl_bytes, buf, start, stop - start)
        if acl < 0:
            state[DETAIL] = start
            return NEED_ACL
        if state[MONOTONIC]:
            slot = convert(state, slots, lists, acl)
    number = bodies[VALUE, body] if bodies[FIELDS, body] & NUMBER else -1
    if size > 1 or state[NO_ALIAS]:
        crc = crc32_raw(crc, buf, at + cut, at + size)
        existing = find(arena, nodes, table, crc, buf, at, size)
    else:
        existing = parent  # "/" is another name of the root
    if existing >= 0 and (state[BY_PATH] or existing == parent or nodes[existing, N_PARENT] == parent):
        if state[BY_PATH]:
            nodes[existing, N_ACL] = slot
        note(state, notes, NODEEXISTS, at, size)
        if kind == CREATE:
            grow_cversion(state, nodes, parent, number, zxid, stat)
        return DONE
    if state[MONOTONIC]:
        grow_cversion(state, nodes, parent, number, zxid, stat)
    else:
        set_cversion(state, nodes, parent, number, zxid, stat)
        slot = convert(state, slots, lists, acl) if bodies[ACL_COUNT, body] != NULL else -1
    row = state[ROWS]
    used = state[USED]
    append(arena, used, buf, at, size)
    append(arena, used + size, buf, bodies[DATA_AT, body], length)
    state[USED] = used + size + length
    nodes[row, N_PATH] = used
    nodes[row, N_PATH_SIZE] = size
    nodes[row, N_DATA] = used + size
    nodes[row, N_DATA_SIZE] = bodies[DATA_LENGTH, body]
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
    nodes[row, N_GHOST] = 0
    nodes[row, N_BEGUN] = crc
    nodes[row, N_DIGEST] = -1
    state[ROWS] += 1
    state[LIVE] += 1
    nodes[parent, N_CHILDREN] += 1
    if existing >= 0:
        # It was left behind and is not a child of this parent.
        supplant(state, nodes, table, crc, existing, row)
    else:
        enter(state, table, crc, row)
    if state[DIGESTS] and counts(buf, at, at + size):
        crc = crc32_raw(ONES if size == 1 else crc, arena, used + size, used + size + length)
        nodes[row, N_BEGUN] = crc
        nodes[row, N_DIGEST] = digest_of(nodes, row, crc, stat)
        state[TOTAL] += nodes[row, N_DIGEST]
    if owner_kind(owner, state[EXTENDED]) == INVALID:
        return die(state, BAD_OWNER, owner)
    own(state, nodes, sessions, hashed, row)
    count_quota(buf, at, size, 1, length, t)
    if is_quota_node(buf, at, size, cut):
        state[EVENT] = CREATED
        state[EVENT_ROW] = row
    return DONE


@kernel("const u1[], i8, i8, i8, Arrays")
def delete(buf: Bytes, at: int, size: int, zxid: int, t: Arrays) -> int:
    """`DataTree.deleteNode`."""
    state, arena, nodes, table, sessions, hashed = t.state, t.arena, t.nodes, t.table, t.sessions, t.hashed
    slots, lists, stat, notes = t.slots, t.lists, t.stat, t.notes
    if size == NULL:
        return die(state, IS_NULL, 0)
    cut = last_slash(buf, at, size)
    if cut < 0:
        return die(state, NO_SLASH, java_length(buf, at, size))
    crc = crc32_raw(ONES, buf, at, at + cut)
    parent = find(arena, nodes, table, crc, buf, at, cut)
    crc = crc32_raw(crc, buf, at + cut, at + size)
    alias = parent if size == 1 and not state[NO_ALIAS] else -1
    row = find(arena, nodes, table, crc, buf, at, size) if alias < 0 else alias
    if state[MONOTONIC]:
        if parent >= 0 and zxid > nodes[parent, N_PZXID]:
            nodes[parent, N_PZXID] = zxid
            changed(state, nodes, parent, stat)
        if parent < 0 or row < 0:
            note(state, notes, NONODE, at, size)
            return DONE
    elif row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    elif parent < 0:
        leave(table, crc, row, -1)
        bury(state, nodes, row)
        release(state, slots, lists, nodes[row, N_ACL])
        note(state, notes, NONODE, at, size)
        return DONE
    else:
        nodes[parent, N_PZXID] = zxid
        changed(state, nodes, parent, stat)
    for ancestor in (row, parent):
        if no_acl(state, nodes, slots, ancestor) != OPEN_ACL:
            return die(state, NO_ACL, no_acl(state, nodes, slots, ancestor))
    if alias >= 0:
        # The root loses one of its two names and is no longer counted. Changes of it count as before.
        state[NO_ALIAS] = 1
        state[TOTAL] -= max(nodes[row, N_DIGEST], 0)
        release(state, slots, lists, nodes[row, N_ACL])
        return DONE
    if nodes[row, N_PARENT] == parent:
        nodes[parent, N_CHILDREN] -= 1
    leave(table, crc, row, -1)
    lay(state, arena, nodes, sessions, hashed, row)
    bury(state, nodes, row)
    release(state, slots, lists, nodes[row, N_ACL])
    count_quota(buf, at, size, -1, -max(nodes[row, N_DATA_SIZE], 0), t)
    if is_quota_node(buf, at, size, cut):
        state[EVENT] = DELETED
        state[EVENT_ROW] = row
    return DONE


@kernel("const u1[], const i8[,], i8, i8, i8, i8, Arrays")
def set_data(buf: Bytes, bodies: Int64s, body: int, crc: int, zxid: int, time: int, t: Arrays) -> int:
    """`DataTree.setData`. `crc` is that of the path (`hash_path`)."""
    state, arena, nodes, table, slots, stat = t.state, t.arena, t.nodes, t.table, t.slots, t.stat
    notes = t.notes
    at = bodies[PATH_AT, body]
    size = bodies[PATH_LENGTH, body]
    if size == NULL:
        return die(state, IS_NULL, 0)
    named = size
    if size == 1 and load_u8(buf, at) == SLASH:
        named = 1 if state[NO_ALIAS] else 0
        crc = crc32_raw(ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    if no_acl(state, nodes, slots, row) != OPEN_ACL:
        return die(state, NO_ACL, no_acl(state, nodes, slots, row))
    length = max(bodies[DATA_LENGTH, body], 0)
    if length > nodes[row, N_ROOM]:
        if len(arena) - state[USED] < length:
            return NEED_BYTES
        state[GARBAGE] += nodes[row, N_ROOM]
        nodes[row, N_DATA] = state[USED]
        nodes[row, N_ROOM] = length
        state[USED] += length
    copy(arena, nodes[row, N_DATA], buf, bodies[DATA_AT, body], length)
    more = length - max(nodes[row, N_DATA_SIZE], 0)
    nodes[row, N_DATA_SIZE] = bodies[DATA_LENGTH, body]
    nodes[row, N_MTIME] = time
    nodes[row, N_MZXID] = zxid
    nodes[row, N_VERSION] = bodies[VALUE, body]
    if state[DIGESTS] and nodes[row, N_DIGEST] >= 0:
        nodes[row, N_BEGUN] = crc32_raw(crc, arena, nodes[row, N_DATA], nodes[row, N_DATA] + length)
        changed(state, nodes, row, stat)
    count_quota(buf, at, size, 0, more, t)
    cut = last_slash(buf, at, size)
    if cut > 0 and is_quota_node(buf, at, size, cut):
        state[EVENT] = CHANGED
        state[EVENT_ROW] = row
    return DONE


@kernel("const u1[], const i8[,], i8, Arrays")
def set_acl(buf: Bytes, bodies: Int64s, body: int, t: Arrays) -> int:
    """`DataTree.setACL`."""
    state, arena, nodes, table, slots, forms = t.state, t.arena, t.nodes, t.table, t.slots, t.forms
    lists, acl_bytes, stat, notes = t.lists, t.acl_bytes, t.stat, t.notes
    at = bodies[PATH_AT, body]
    size = bodies[PATH_LENGTH, body]
    if size == NULL:
        return die(state, IS_NULL, 0)
    named = 0 if size == 1 and load_u8(buf, at) == SLASH and not state[NO_ALIAS] else size
    crc = crc32_raw(ONES, buf, at, at + named)
    row = find(arena, nodes, table, crc, buf, at, named)
    if row < 0:
        note(state, notes, NONODE, at, size)
        return DONE
    acl = -1
    if bodies[ACL_COUNT, body] != NULL:
        start = bodies[ACL_AT, body]
        _, stop, _ = skip_acl(buf, start, len(buf))
        acl = list_of(state, forms, slots, acl_bytes, buf, start, stop - start)
        if acl < 0:
            state[DETAIL] = start
            return NEED_ACL
    release(state, slots, lists, nodes[row, N_ACL])
    nodes[row, N_ACL] = -1 if acl < 0 else convert(state, slots, lists, acl)
    nodes[row, N_AVERSION] = bodies[VALUE, body]
    changed(state, nodes, row, stat)
    return DONE


@kernel("const u1[], i8, i8, i8")
def parts_of(buf: Bytes, at: int, end: int, count: int) -> tuple[int, int]:
    """Return whether all parts of a multi are present (their bodies are not examined), and whether one of them is an error."""
    failed = 0
    for _ in range(count):
        if end - at < SUB_DATA + 4:
            return 0, 0
        length = load_i32be(buf, at + SUB_DATA)
        failed |= load_i32be(buf, at) == ERROR
        at += SUB_DATA + 4
        if length < NULL or length > end - at:
            return 0, 0
        at += max(length, 0)
    return 1, failed


@kernel("const u1[], i8, const i8[,], i8")
def is_multi(buf: Bytes, end: int, bodies: Int64s, i: int) -> int:
    """Return whether a server reads a multi with an unreadable part. The parts are parsed only when it is applied."""
    at = bodies[LIST_AT, i]
    if end - at < 4:
        return 0
    parts, _ = parts_of(buf, at + 4, end, bodies[LIST_COUNT, i])
    return parts


@kernel("const u1[], const i8[], const i8[,], const i8[,], const i8[], i8[,], i8[], Arrays")
def apply(
    buf: Bytes,
    ends: Int64s,
    heads: Int64s,
    bodies: Int64s,
    crcs: Int64s,
    part: Int64s,
    digests: Int64s,
    t: Arrays,
) -> int:
    """Apply transactions from `state[RECORD]` on. Their headers and bodies were measured; `ends` are the ends of their payloads."""
    state, arena, nodes, table, sessions, hashed = t.state, t.arena, t.nodes, t.table, t.sessions, t.hashed
    notes = t.notes
    while state[RECORD] < len(heads):
        i = state[RECORD]
        zxid = heads[i, ZXID]
        kind = heads[i, TYPE]
        client = heads[i, SESSION]
        time = heads[i, TIME]
        if zxid > state[UPTO]:
            return REACHED
        if i % AHEAD == 0 and len(table) >= LARGE:
            fetch(crcs, i, table, nodes, arena, state[DIGESTS])
        why = DONE
        if bodies[STATUS, i] != SOUND and not (kind == MULTI and is_multi(buf, ends[i], bodies, i)):
            note(state, notes, UNREAD, 0, 0)
            digests[i] = state[TOTAL]
            state[UNAPPLIED] += 1
            state[RECORD] += 1
            continue
        if kind in (SET_DATA, RECONFIG):
            why = set_data(buf, bodies, i, crcs[i], zxid, time, t)
        elif kind in (CREATE, CREATE2, CREATE_TTL, CREATE_CONTAINER):
            why = create(buf, kind, bodies, i, client, zxid, time, t)
        elif kind in (DELETE, DELETE_CONTAINER):
            why = delete(buf, bodies[PATH_AT, i], bodies[PATH_LENGTH, i], zxid, t)
        elif kind == SET_ACL:
            why = set_acl(buf, bodies, i, t)
        elif kind == CREATE_SESSION:
            if state[SESSIONS] >= len(sessions):
                return NEED_SESSIONS
            session = session_of(state, sessions, hashed, client)
            sessions[session, Z_TIMEOUT] = bodies[VALUE, i]
            sessions[session, Z_OPEN] = 1
        elif kind == CLOSE_SESSION:
            why = close_session(buf, bodies, i, client, zxid, t)
        elif kind == MULTI:
            why = multi(buf, ends[i], bodies, i, part, client, zxid, time, t)
        if why != DONE and why != HAPPENED:
            return why
        if why == DONE:
            # The whole record is applied.
            state[SUB] = -1
            state[POSITION] = 0
            state[LAST] = max(state[LAST], zxid)
            digests[i] = state[TOTAL]
            state[RECORD] += 1
        if state[EVENT]:
            return HAPPENED
    return DONE


@kernel("const u1[], i8, const i8[,], i8, i8[,], i8, i8, i8, Arrays")
def multi(
    buf: Bytes, end: int, bodies: Int64s, i: int, part: Int64s, client: int, zxid: int, time: int, t: Arrays
) -> int:
    """Apply the transactions of a multi from part `state[SUB]` on, which is at `state[POSITION]`; none if one of them is an error. Stop
    at one that is unreadable or not allowed in a multi."""
    state, notes = t.state, t.notes
    count = bodies[LIST_COUNT, i]
    if count == NULL:
        return die(state, IS_NULL, 0)
    _, failed = parts_of(buf, bodies[LIST_AT, i] + 4, end, count)
    if not state[POSITION]:
        state[SUB] = 0
    at = state[POSITION] if state[POSITION] else bodies[LIST_AT, i] + 4
    while state[SUB] < count:
        kind = load_i32be(buf, at)
        start = at + SUB_DATA + 4
        length = load_i32be(buf, at + SUB_DATA)
        if length == NULL:
            return die(state, IS_NULL, 0)
        stop = start + length
        fields = SUB_RECIPE_ARRAY[kind - LOWEST] if LOWEST <= kind < HIGHEST_SUB else 0
        if kind == CREATE2 and state[NO_CREATE2]:
            fields = 0
        if fields == 0 or measure_body(buf, kind, fields, start, stop, part, 0) != SOUND:
            note(state, notes, MARSHALLING, 0, 0)
            return DONE
        why = DONE
        if failed:
            pass
        elif kind == SET_DATA:
            why = set_data(buf, part, 0, hash_path(buf, part, 0), zxid, time, t)
        elif kind in (DELETE, DELETE_CONTAINER):
            why = delete(buf, part[PATH_AT, 0], part[PATH_LENGTH, 0], zxid, t)
        elif kind != CHECK:
            why = create(buf, kind, part, 0, client, zxid, time, t)
        if why == DONE:
            at = stop
            state[SUB] += 1
        state[POSITION] = at
        if why != DONE:
            return why
        if state[EVENT]:
            return HAPPENED
    return DONE


@kernel("const u1[], const i8[,], i8, i8, i8, Arrays")
def close_session(buf: Bytes, bodies: Int64s, i: int, client: int, zxid: int, t: Arrays) -> int:
    """`DataTree.killSession`: delete the nodes that the transaction names, then all others that the session owns."""
    state, sessions, hashed = t.state, t.sessions, t.hashed
    session = session_row(sessions, hashed, client)
    if session >= 0:
        sessions[session, Z_OPEN] = 0
    count = bodies[LIST_COUNT, i] if bodies[FIELDS, i] & PATHS and state[NAMED_PATHS] else 0
    if not state[POSITION]:
        state[POSITION] = bodies[LIST_AT, i] + 4
        state[SUB] = 0
    while state[SUB] < count:
        size = load_i32be(buf, state[POSITION])
        why = delete(buf, state[POSITION] + 4, size, zxid, t)
        if why != DONE:
            return why
        state[POSITION] += 4 + size
        state[SUB] += 1
        if state[EVENT]:
            return HAPPENED
    if session < 0:
        return DONE
    return delete_owned(session, zxid, t)


@kernel("i8, i8, Arrays")
def delete_owned(session: int, zxid: int, t: Arrays) -> int:
    """Delete the nodes of a session. The place of a note about one is -1 minus its place in the arena."""
    state, arena, nodes, sessions, notes = t.state, t.arena, t.nodes, t.sessions, t.notes
    while sessions[session, Z_HEAD] >= 0:
        row = sessions[session, Z_HEAD]
        sessions[session, Z_HEAD] = nodes[row, N_NEXT]
        if not nodes[row, N_ALIVE] and not nodes[row, N_GHOST]:
            continue
        noted = state[NOTES]
        why = delete(arena, nodes[row, N_PATH], nodes[row, N_PATH_SIZE], zxid, t)
        if state[NOTES] > noted:
            notes[noted, NOTE_AT] = -1 - nodes[row, N_PATH]
        if why != DONE:
            return why
        if state[EVENT]:
            return HAPPENED
    return DONE
