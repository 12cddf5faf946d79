"""Kernels that load a tree in arrays (`tree_fields`) from the node records of a snapshot, write them, and search all nodes.

Source: `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.arrays import Int32s, Int64s
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
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot import layout
from logwright.codec.zookeeper.formats.snapshot.layout import LENGTH, OPEN_ACL, SLASH
from logwright.codec.zookeeper.jute import NULL
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.digest import counts
from logwright.codec.zookeeper.state.tree_kernels import (
    count,
    enter,
    find,
    last_slash,
    new_row,
    own,
    owner_kind,
    same,
    starts_with,
    supplant,
    use,
)

# Loading


@kernel("const u1[], const i8[], const i4[], i8[]")
def hash_records(buf: Bytes, starts: Int64s, paths: Int32s, out: Int64s) -> None:
    """Compute the CRC-32 registers after the paths of node records."""
    for i in range(len(starts)):
        at = starts[i] + LENGTH
        out[i] = crc32_raw(f.ONES, buf, at, at + paths[i])


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
        if state[f.SESSIONS] >= len(sessions):
            return i
        if i % f.AHEAD == 0 and len(table) >= f.LARGE:
            for k in range(min(i + f.AHEAD, len(crcs)), min(i + 2 * f.AHEAD, len(crcs))):
                prefetch(table, crcs[k] & (len(table) - 1))
        start = starts[i] + LENGTH
        size = paths[i]
        row = state[f.ROWS]
        cut = last_slash(buf, start, size)
        parent = -1
        crc = crcs[i]
        if cut >= 0:
            # In pre-order it is the previous node, or an ancestor of it.
            parent = previous
            while parent >= 0 and not (
                nodes[parent, f.N_PATH_SIZE] == cut
                and nodes[parent, f.N_ALIVE]
                and same(arena, nodes[parent, f.N_PATH], buf, start, cut)
            ):
                parent = nodes[parent, f.N_PARENT]
            if parent < 0:
                parent = find(
                    arena, nodes, table, crc32_raw(f.ONES, buf, start, start + cut), buf, start, cut
                )
        before = find(arena, nodes, table, crc, buf, start, size)
        length = max(data[i], 0)
        used = state[f.USED]
        append(arena, used, buf, start, size)
        append(arena, used + size, buf, start + size + LENGTH, length)
        at = start + size + LENGTH + length + 8
        new_row(state, nodes, size, data[i], acls[i], parent, crc)
        nodes[row, f.N_CZXID] = load_i64be(buf, at + layout.CZXID_AT)
        nodes[row, f.N_MZXID] = load_i64be(buf, at + layout.MZXID_AT)
        nodes[row, f.N_CTIME] = load_i64be(buf, at + layout.CTIME_AT)
        nodes[row, f.N_MTIME] = load_i64be(buf, at + layout.MTIME_AT)
        nodes[row, f.N_VERSION] = load_i32be(buf, at + layout.VERSION_AT)
        nodes[row, f.N_CVERSION] = load_i32be(buf, at + layout.CVERSION_AT)
        nodes[row, f.N_AVERSION] = load_i32be(buf, at + layout.AVERSION_AT)
        nodes[row, f.N_OWNER] = load_i64be(buf, at + layout.OWNER_AT)
        nodes[row, f.N_PZXID] = load_i64be(buf, at + layout.PZXID_AT)
        use(slots, acls[i])
        if before >= 0:
            # The last one counts. The other one is in the list of its parent's children already.
            supplant(state, nodes, table, crc, before, row)
            if nodes[before, f.N_PARENT] == parent and parent >= 0:
                nodes[parent, f.N_CHILDREN] -= 1
        else:
            enter(state, table, crc, row)
        if parent >= 0:
            nodes[parent, f.N_CHILDREN] += 1
        if state[f.DIGESTS] and counts(buf, start, start + size):
            crc = crc32_raw(crc, arena, used + size, used + size + length)
            count(state, nodes, row, crc, stat)
        if cut < 0:
            # Neither its parent nor its owner is checked.
            state[f.ROOT] = row
        else:
            if parent < 0 and state[f.ORPHAN] < 0:
                state[f.ORPHAN] = row
            if owner_kind(nodes[row, f.N_OWNER], state[f.EXTENDED]) == f.INVALID and state[f.STRANGER] < 0:
                state[f.STRANGER] = row
            own(state, nodes, sessions, hashed, row)
        previous = row
    return len(starts)


# Reading


@kernel("const u1[], const i8[,], const i8[], const u1[], const i4[], i8[]")
def find_all(arena: Bytes, nodes: Int64s, table: Int64s, paths: Bytes, ends: Int32s, out: Int64s) -> None:
    """Find the row of each path; -1 if there is no such node."""
    for i in range(len(out)):
        start = ends[i]
        size = ends[i + 1] - start
        if size == 1 and load_u8(paths, start) == SLASH:
            size = 0
        out[i] = find(arena, nodes, table, crc32_raw(f.ONES, paths, start, start + size), paths, start, size)


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
        size = nodes[row, f.N_PATH_SIZE]
        paths[i] = size
        data[i] = nodes[row, f.N_DATA_SIZE] if with_data else NULL
        slot = nodes[row, f.N_ACL]
        acls[i] = slots[slot, f.A_ID] if slot >= 0 else OPEN_ACL
        at = store_32be(out, at, size)
        copy(out, at, arena, nodes[row, f.N_PATH], size)
        at = store_32be(out, at + size, data[i])
        size = max(data[i], 0)
        copy(out, at, arena, nodes[row, f.N_DATA], size)
        at = store_64be(out, at + size, acls[i])
        store_64be(out, at + layout.CZXID_AT, nodes[row, f.N_CZXID])
        store_64be(out, at + layout.MZXID_AT, nodes[row, f.N_MZXID])
        store_64be(out, at + layout.CTIME_AT, nodes[row, f.N_CTIME])
        store_64be(out, at + layout.MTIME_AT, nodes[row, f.N_MTIME])
        store_32be(out, at + layout.VERSION_AT, nodes[row, f.N_VERSION])
        store_32be(out, at + layout.CVERSION_AT, nodes[row, f.N_CVERSION])
        store_32be(out, at + layout.AVERSION_AT, nodes[row, f.N_AVERSION])
        store_64be(out, at + layout.OWNER_AT, nodes[row, f.N_OWNER])
        store_64be(out, at + layout.PZXID_AT, nodes[row, f.N_PZXID])
        at += f.STAT_SIZE
    return at


@kernel("const i8[,], i8, u1[]")
def reach(nodes: Int64s, rows: int, out: Bytes) -> int:
    """Mark the nodes that are reachable from the root. Return their number."""
    n = 0
    for row in range(rows):
        parent = nodes[row, f.N_PARENT]
        root = parent < 0 and nodes[row, f.N_PATH_SIZE] == 0
        met = 1 if nodes[row, f.N_ALIVE] and (root or (parent >= 0 and out[parent])) else 0
        out[row] = met
        n += met
    return n


@kernel("const i8[,], i8, const i8[], i8[,]")
def sum_quotas(nodes: Int64s, rows: int, which: Int64s, quotas: Int64s) -> None:
    """Count the nodes and bytes at and below the rows whose `which` is a quota (`getCounts`)."""
    for row in range(rows):
        above = row
        while above >= 0 and nodes[above, f.N_ALIVE]:
            if which[above] >= 0:
                quotas[which[above], f.Q_COUNT] += 1
                quotas[which[above], f.Q_BYTES] += max(nodes[row, f.N_DATA_SIZE], 0)
            above = nodes[above, f.N_PARENT]


@kernel("const i8[,], i8, const u1[], const u1[], i8[]")
def below(nodes: Int64s, rows: int, arena: Bytes, prefix: Bytes, out: Int64s) -> int:
    """Find the nodes whose path has this prefix. Return their number, at most as many as fit."""
    n = 0
    for row in range(rows):
        if (
            nodes[row, f.N_ALIVE]
            and n < len(out)
            and starts_with(arena, nodes[row, f.N_PATH], nodes[row, f.N_PATH_SIZE], prefix)
        ):
            out[n] = row
            n += 1
    return n


@kernel("i8[,], i8, const u1[], u1[]")
def compact(nodes: Int64s, rows: int, arena: Bytes, out: Bytes) -> int:
    """Copy the paths and data of all nodes without the gaps between them. Return the end."""
    at = 0
    for row in range(rows):
        if not nodes[row, f.N_ALIVE] and not nodes[row, f.N_GHOST]:
            nodes[row, f.N_PATH_SIZE] = 0
            nodes[row, f.N_ROOM] = 0
            continue
        size = nodes[row, f.N_PATH_SIZE]
        length = max(nodes[row, f.N_DATA_SIZE], 0)
        copy(out, at, arena, nodes[row, f.N_PATH], size)
        copy(out, at + size, arena, nodes[row, f.N_DATA], length)
        nodes[row, f.N_PATH] = at
        nodes[row, f.N_DATA] = at + size
        nodes[row, f.N_ROOM] = length
        at += size + length
    return at
