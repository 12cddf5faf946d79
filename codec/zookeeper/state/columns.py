"""The columns of a tree: the attributes of a node for users, and how they are stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import contents, numbers
from logwright.codec.table import TIMESTAMP, Column
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE

ROOT = "/"
"""The path of the root for users. It is stored as the empty path."""

CONTAINER = -(1 << 63)
"""The stored owner of a container (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`)."""
TTL_MASK = 0xFF << 56
TTL_RESERVED = 0xFFFF << 40
TTL_MAX = (1 << 40) - 1
TTL = TTL_MASK - (1 << 64)
"""The stored owner of a TTL node is this plus its TTL in milliseconds (`EphemeralType.TTL`)."""

PERSISTENT, EPHEMERAL, CONTAINERS, TTLS = range(4)
KINDS = ("persistent", "ephemeral", "container", "ttl")
_KINDS = contents(pa.string(), [name.encode() for name in KINDS])

NODE_COLUMNS = (
    Column("path", pa.string(), 'full path, "/" for the root', nullable=False),
    Column("data", pa.binary(), "null and empty are different"),
    Column("acl", ACL_TYPE, "who may do what; null where the ACL table has no such list"),
    Column("czxid", pa.int64(), "zxid that created the node", hexadecimal=True),
    Column("mzxid", pa.int64(), "zxid that changed its data last", hexadecimal=True),
    Column("ctime", TIMESTAMP, "when it was created"),
    Column("mtime", TIMESTAMP, "when its data was changed last"),
    Column("version", pa.int32(), "changes of its data"),
    Column(
        "stored_cversion",
        pa.int32(),
        "children created; a client sees twice that less the number of children as cversion",
    ),
    Column("aversion", pa.int32(), "changes of its ACL"),
    Column("ephemeral_owner", pa.int64(), "session of an ephemeral node, else 0", hexadecimal=True),
    Column("pzxid", pa.int64(), "zxid that changed its children last", hexadecimal=True),
    Column("kind", pa.string(), "persistent, ephemeral, container or ttl"),
    Column("ttl", pa.int64(), "milliseconds that a ttl node may be unchanged and childless; null for others"),
    Column("data_length", pa.int32(), "bytes of data, 0 for null"),
    Column("acl_id", pa.int64(), "number of the list in the ACL table, -1: open to all", detail=True),
    Column(
        "path_raw", pa.binary(), "the path as it is stored, where that is not the text's form", detail=True
    ),
    Column(
        "acl_raw", ACL_RAW_TYPE, "the ACL as it is stored, where that is not the text's form", detail=True
    ),
    Column("ctime_ms", pa.int64(), "ctime as it is stored", detail=True),
    Column("mtime_ms", pa.int64(), "mtime as it is stored", detail=True),
)


def kinds_of(owners: Int64s) -> Int64s:
    """Return the kind of node that each stored owner stands for."""
    ttl = ((owners & np.int64(TTL)) == np.int64(TTL)) & ((owners & np.int64(TTL_RESERVED)) == 0)
    out = np.where(owners == 0, PERSISTENT, np.where(ttl, TTLS, EPHEMERAL))
    return np.where(owners == CONTAINER, CONTAINERS, out)


def kind_column(kinds: Int64s) -> pa.Array:
    return _KINDS.take(numbers(pa.int64(), kinds))


def owner_column(owners: Int64s, kinds: Int64s) -> pa.Array:
    return numbers(pa.int64(), np.where(kinds == EPHEMERAL, owners, 0))


def ttl_column(owners: Int64s, kinds: Int64s) -> pa.Array:
    return numbers(pa.int64(), np.where(kinds == TTLS, owners & np.int64(TTL_MAX), 0), kinds != TTLS)


def stored_owners(owners: Int64s, kinds: Int64s | None, ttl: Int64s | None) -> Int64s:
    """Return owners as stored, from the columns of rows. Without kinds, a TTL makes a TTL node and an owner an ephemeral one."""
    if kinds is None:
        kinds = np.where(owners != 0, EPHEMERAL, PERSISTENT)
        if ttl is not None:
            kinds = np.where(ttl > 0, TTLS, kinds)
    out = np.where(kinds == EPHEMERAL, owners, 0)
    out = np.where(kinds == CONTAINERS, CONTAINER, out)
    if ttl is not None:
        out = np.where(kinds == TTLS, np.int64(TTL) | ttl, out)
    return out
