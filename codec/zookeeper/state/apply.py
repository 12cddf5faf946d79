"""Apply transactions to a tree in arrays, as `DataTree.processTxn` does. See `tree_fields` for the arrays, and for the reasons why a
kernel stops.

Source: `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import load_i32be, load_u8, prefetch
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH
from logwright.codec.zookeeper.formats.txnlog import bodies as measured
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.bodies import measure_body
from logwright.codec.zookeeper.formats.txnlog.scan import SESSION, TIME, TYPE, ZXID
from logwright.codec.zookeeper.jute import NULL
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.node_changes import create, delete, die, set_acl, set_data
from logwright.codec.zookeeper.state.tree_fields import Arrays
from logwright.codec.zookeeper.state.tree_kernels import session_of, session_row

HIGHEST_SUB = layout.LOWEST + len(layout.SUB_RECIPE_ARRAY)


# Transactions


@kernel("const u1[], const i8[,], i8")
def hash_path(buf: Bytes, bodies: Int64s, i: int) -> int:
    """Return the CRC-32 register after the path of a body. "/" is another name of the root, whose path is empty."""
    at = bodies[measured.PATH_AT, i]
    size = max(bodies[measured.PATH_LENGTH, i], 0)
    if size == 1 and load_u8(buf, at) == SLASH:
        size = 0
    return crc32_raw(f.ONES, buf, at, at + size)


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
    for i in range(min(first + 3 * f.AHEAD, last), min(first + 4 * f.AHEAD, last)):
        prefetch(table, crcs[i] & mask)
    for i in range(min(first + 2 * f.AHEAD, last), min(first + 3 * f.AHEAD, last)):
        entry = table[crcs[i] & mask]
        if entry > 0:
            at = ((entry & f.ROW_MASK) - 1) * f.NODE_FIELDS
            prefetch(nodes, at)
            if digests:
                prefetch(nodes, at + f.LINE)
    for i in range(min(first + f.AHEAD, last), min(first + 2 * f.AHEAD, last)):
        entry = table[crcs[i] & mask]
        if entry > 0:
            row = (entry & f.ROW_MASK) - 1
            prefetch(arena, nodes[row, f.N_PATH])
            at = nodes[row, f.N_DATA]
            end = at + nodes[row, f.N_ROOM]
            while at < end:
                prefetch(arena, at)
                at += 64


@kernel("const u1[], i8, i8, i8")
def parts_of(buf: Bytes, at: int, end: int, count: int) -> tuple[int, int]:
    """Return whether all parts of a multi are present (their bodies are not examined), and whether one of them is an error."""
    failed = 0
    for _ in range(count):
        if end - at < layout.SUB_DATA_AT + 4:
            return 0, 0
        length = load_i32be(buf, at + layout.SUB_DATA_AT)
        failed |= load_i32be(buf, at) == layout.ERROR
        at += layout.SUB_DATA_AT + 4
        if length < NULL or length > end - at:
            return 0, 0
        at += max(length, 0)
    return 1, failed


@kernel("const u1[], i8, i8, const i8[,], i8")
def is_multi(buf: Bytes, end: int, kind: int, bodies: Int64s, i: int) -> int:
    """Return whether a transaction with an unreadable part is a multi, which a server reads: it parses the parts only when it applies them."""
    at = bodies[measured.LIST_AT, i]
    if kind != layout.MULTI or end - at < 4:
        return 0
    parts, _ = parts_of(buf, at + 4, end, bodies[measured.LIST_COUNT, i])
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
    while state[f.RECORD] < len(heads):
        i = state[f.RECORD]
        zxid = heads[i, ZXID]
        kind = heads[i, TYPE]
        client = heads[i, SESSION]
        time = heads[i, TIME]
        if zxid > state[f.UPTO]:
            return f.REACHED
        if i % f.AHEAD == 0 and len(table) >= f.LARGE:
            fetch(crcs, i, table, nodes, arena, state[f.DIGESTS])
        why = f.DONE
        if bodies[measured.STATUS, i] != measured.SOUND and not is_multi(buf, ends[i], kind, bodies, i):
            digests[i] = state[f.TOTAL]
            state[f.RECORD] += 1
            continue
        if kind in (layout.SET_DATA, layout.RECONFIG):
            why = set_data(buf, bodies, i, crcs[i], zxid, time, t)
        elif kind in (layout.CREATE, layout.CREATE2, layout.CREATE_TTL, layout.CREATE_CONTAINER):
            why = create(buf, kind, bodies, i, client, zxid, time, t)
        elif kind in (layout.DELETE, layout.DELETE_CONTAINER):
            why = delete(buf, bodies[measured.PATH_AT, i], bodies[measured.PATH_LENGTH, i], zxid, t)
        elif kind == layout.SET_ACL:
            why = set_acl(buf, bodies, i, t)
        elif kind == layout.CREATE_SESSION:
            if state[f.SESSIONS] >= len(sessions):
                return f.NEED_SESSIONS
            session = session_of(state, sessions, hashed, client)
            sessions[session, f.Z_TIMEOUT] = bodies[measured.VALUE, i]
            sessions[session, f.Z_OPEN] = 1
        elif kind == layout.CLOSE_SESSION:
            why = close_session(buf, bodies, i, client, zxid, t)
        elif kind == layout.MULTI:
            why = multi(buf, ends[i], bodies, i, part, client, zxid, time, t)
        if why != f.DONE and why != f.HAPPENED:
            return why
        if why == f.DONE:
            # The whole record is applied.
            state[f.POSITION] = 0
            state[f.LAST] = max(state[f.LAST], zxid)
            digests[i] = state[f.TOTAL]
            state[f.RECORD] += 1
        if state[f.EVENT]:
            return f.HAPPENED
    return f.DONE


@kernel("const u1[], i8, const i8[,], i8, i8[,], i8, i8, i8, Arrays")
def multi(
    buf: Bytes, end: int, bodies: Int64s, i: int, part: Int64s, client: int, zxid: int, time: int, t: Arrays
) -> int:
    """Apply the transactions of a multi from part `state[SUB]` on, which is at `state[POSITION]`; none if one of them is an error. Stop
    at one that is unreadable or not allowed in a multi."""
    state = t.state
    count = bodies[measured.LIST_COUNT, i]
    if count == NULL:
        return die(state, f.IS_NULL, 0)
    _, failed = parts_of(buf, bodies[measured.LIST_AT, i] + 4, end, count)
    if not state[f.POSITION]:
        state[f.SUB] = 0
    at = state[f.POSITION] if state[f.POSITION] else bodies[measured.LIST_AT, i] + 4
    while state[f.SUB] < count:
        kind = load_i32be(buf, at)
        start = at + layout.SUB_DATA_AT + 4
        length = load_i32be(buf, at + layout.SUB_DATA_AT)
        if length == NULL:
            return die(state, f.IS_NULL, 0)
        stop = start + length
        fields = layout.SUB_RECIPE_ARRAY[kind - layout.LOWEST] if layout.LOWEST <= kind < HIGHEST_SUB else 0
        if kind == layout.CREATE2 and state[f.NO_CREATE2]:
            fields = 0
        if fields == 0 or measure_body(buf, kind, fields, start, stop, part, 0) != measured.SOUND:
            return f.DONE
        why = f.DONE
        if failed:
            pass
        elif kind == layout.SET_DATA:
            why = set_data(buf, part, 0, hash_path(buf, part, 0), zxid, time, t)
        elif kind in (layout.DELETE, layout.DELETE_CONTAINER):
            why = delete(buf, part[measured.PATH_AT, 0], part[measured.PATH_LENGTH, 0], zxid, t)
        elif kind != layout.CHECK:
            why = create(buf, kind, part, 0, client, zxid, time, t)
        if why == f.DONE:
            at = stop
            state[f.SUB] += 1
        state[f.POSITION] = at
        if why != f.DONE:
            return why
        if state[f.EVENT]:
            return f.HAPPENED
    return f.DONE


@kernel("const u1[], const i8[,], i8, i8, i8, Arrays")
def close_session(buf: Bytes, bodies: Int64s, i: int, client: int, zxid: int, t: Arrays) -> int:
    """`DataTree.killSession`: delete the nodes that the transaction names, then all others that the session owns."""
    state, sessions, hashed = t.state, t.sessions, t.hashed
    session = session_row(sessions, hashed, client)
    if session >= 0:
        sessions[session, f.Z_OPEN] = 0
    count = (
        bodies[measured.LIST_COUNT, i]
        if bodies[measured.FIELDS, i] & layout.PATHS and state[f.NAMED_PATHS]
        else 0
    )
    if not state[f.POSITION]:
        state[f.POSITION] = bodies[measured.LIST_AT, i] + 4
        state[f.SUB] = 0
    while state[f.SUB] < count:
        size = load_i32be(buf, state[f.POSITION])
        why = delete(buf, state[f.POSITION] + 4, size, zxid, t)
        if why != f.DONE:
            return why
        state[f.POSITION] += 4 + size
        state[f.SUB] += 1
        if state[f.EVENT]:
            return f.HAPPENED
    if session < 0:
        return f.DONE
    return delete_owned(session, zxid, t)


@kernel("i8, i8, Arrays")
def delete_owned(session: int, zxid: int, t: Arrays) -> int:
    """Delete the nodes of a session."""
    state, arena, nodes, sessions = t.state, t.arena, t.nodes, t.sessions
    while sessions[session, f.Z_HEAD] >= 0:
        row = sessions[session, f.Z_HEAD]
        sessions[session, f.Z_HEAD] = nodes[row, f.N_NEXT]
        if not nodes[row, f.N_ALIVE] and not nodes[row, f.N_GHOST]:
            continue
        why = delete(arena, nodes[row, f.N_PATH], nodes[row, f.N_PATH_SIZE], zxid, t)
        if why != f.DONE:
            return why
        if state[f.EVENT]:
            return f.HAPPENED
    return f.DONE
