"""The arrays of a tree, their fields, and the codes that kernels return.

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

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.memory import aligned
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import STAT
from logwright.codec.zookeeper.state.columns import TTL_MASK

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
    NAMED_PATHS, LOOKUPS, QUOTAS, PENDING, EVENT, EVENT_ROW, CODE, ORPHAN, STRANGER, ANY_GONE, BY_PATH, MONOTONIC, NO_ALIAS, GHOSTS,
    NO_CREATE2, ROOT,
) = range(33)  # fmt: skip
"""Numbers of the tree:

- the arena and the nodes: its used bytes, and those of them that hold nothing; rows; nodes; entries of the table, with deleted ones; the sum
  of the digests
- the place in the log: the last zxid; the zxid to stop after; the next record, its part, and the byte to continue at (0: its start)
- the number of sessions and of ACL slots; the last ACL number; the position of an unknown ACL, or the number in the error of a server
- settings: whether digests are kept; the known kinds of owners; whether the paths in closeSession are deleted; whether ACLs are looked up
- quotas: their number; whether their sums must be written; the change of a quota node, and its row
- why a server ends; the first loaded node without a parent, and the first with an invalid owner (-1: none); whether an ACL slot lost its number
- settings of older servers, see `TreeArrays`: `existing_by_path`, `monotonic`
- whether "/" is no longer a name of the root; whether there are ghosts; whether a create2 ends a multi; the last loaded node whose path has
  no slash, which is then the root (-1: none)"""
STATE_FIELDS = 33

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

DONE, REACHED, NEED_ROWS, NEED_BYTES, NEED_TABLE, NEED_ACL, NEED_SESSIONS, HAPPENED, DIED = range(9)
"""Why a kernel stopped: done; the next record is beyond the limit; it needs room for nodes, bytes, entries, an unknown ACL, or sessions;
a quota node changed; the server would end."""
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
TTL_OWNER = TTL_MASK - (1 << 64)
"""The owner of a TTL node is this plus its TTL."""
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


NORMAL, OTHER, INVALID = range(3)


TTL_TYPES, NO_CONTAINERS = 1, 2
"""Settings for owners: TTL nodes are known; containers are unknown."""


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
