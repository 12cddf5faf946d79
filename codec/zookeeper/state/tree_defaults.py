"""A tree from rows: an order in which parents come first, parents that nobody gave, and the counters that follow from the tree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from logwright.codec.columns import contents
from logwright.codec.fault import UsageError
from logwright.codec.kernels.kernel import kernel
from logwright.codec.zookeeper.formats.snapshot.acl import packed
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.formats.snapshot.pack import Nodes, Values
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, Int64s
from logwright.codec.zookeeper.state.input_columns import UNKNOWN, Given, no_bytes
from logwright.codec.zookeeper.state.paths import Family, places

SYSTEM = (b"", b"/zookeeper", b"/zookeeper/config", b"/zookeeper/quota")
"""The nodes that every tree has (`DataTree`)."""
_READ_ONLY = [{"perms": 1, "scheme": b"world", "id": b"anyone"}]
"""The ACL of /zookeeper/config."""
CONFIG = b"/zookeeper/config"


def stored(given: Given, acls: AclLists) -> Nodes:
    """Rows as they are, in their order."""
    stats: dict[str, Values] = {
        "czxid": given.values("czxid", 0),
        "mzxid": given.values("mzxid", 0),
        "ctime": given.times("ctime", 0),
        "mtime": given.times("mtime", 0),
        "version": given.values("version", 0),
        "cversion": given.values("stored_cversion", 0),
        "aversion": given.values("aversion", 0),
        "owner": given.owners(),
        "pzxid": given.values("pzxid", 0),
    }
    data = given.data() if given.has("data") else pa.nulls(len(given), pa.large_binary())
    return Nodes.of(given.paths(), data, given.acl_numbers(acls), stats)


def whole(given: Given, acls: AclLists, zxid: int | None, *, had: bool) -> Nodes:
    """A tree of the rows: in order, with all parents and the system's own nodes, and what they leave out derived."""
    family = Family.of(given.paths())
    family.validate()
    order = family.order()
    if order is None:
        _refuse_twice(given, family)
    czxid = given.values("czxid", 0 if zxid is None else zxid)
    ctime = given.times("ctime", 0)
    stats: dict[str, Values] = {
        "czxid": czxid,
        "mzxid": czxid if given.pieces("mzxid") is None else given.values("mzxid", czxid),
        "ctime": ctime,
        "mtime": given.times("mtime", ctime),
        "version": given.values("version", 0),
        "cversion": given.values("stored_cversion", UNKNOWN),
        "aversion": given.values("aversion", 0),
        "owner": given.owners(),
        "pzxid": given.values("pzxid", UNKNOWN),
    }
    client = given.numbers("cversion", UNKNOWN) if given.has("cversion") else None
    nodes = Nodes.of(family.paths, given.data(), np.zeros(len(given), np.int64), stats)
    if order is not None:
        nodes = nodes.take(order)
        client = None if client is None else client[order]
        ordered = Family.of(nodes.paths())
        if not ordered.ascending:
            _refuse_twice(given, family)
        family = ordered
    nodes = nodes.with_number("acl", given.acl_numbers(acls, order))
    made = family.missing(() if had else SYSTEM)
    if made:
        # At the end, where they are in their place if all that is missing is a server's own; else where the order of paths has them.
        order = None
        nodes = nodes.and_more(_made(made, acls, zxid))
        both = Family.of(nodes.paths())
        if both.lost:
            order = family.merged(made) if family.ascending else both.order()
        if client is not None:
            client = np.concatenate([client, np.full(len(made), UNKNOWN)])
        family = both
        if order is not None:
            nodes = nodes.take(order)
            client = None if client is None else client[order]
            family = Family.of(nodes.paths())
    return _counted(nodes, client, family)


def _refuse_twice(given: Given, family: Family) -> None:
    row = family.twice()
    if row is not None:
        raise UsageError(
            f"zookeeper.snapshot: the path {given.rows['path'][row].as_py()!r} of row {row} was there before",
            advice="Give each path once",
        )


def _made(paths: list[bytes], acls: AclLists, zxid: int | None) -> Nodes:
    """Nodes that nobody gave, as a server makes them."""
    zero = np.zeros(len(paths), np.int64)
    new = np.array([0 if one in SYSTEM or zxid is None else zxid for one in paths], np.int64)
    unknown = np.full(len(paths), UNKNOWN)
    stats: dict[str, Values] = dict.fromkeys(("ctime", "mtime", "version", "owner"), zero)
    stats |= {"czxid": new, "mzxid": new, "cversion": unknown, "pzxid": unknown}
    stats["aversion"] = np.array([-1 if one == CONFIG else 0 for one in paths], np.int64)
    config = acls.number(config_list()) if CONFIG in paths else OPEN_ACL
    numbered = np.array([config if one == CONFIG else OPEN_ACL for one in paths], np.int64)
    return Nodes.of(contents(pa.binary(), paths), no_bytes(len(paths)), numbered, stats)


def config_list() -> bytes:
    """The ACL of /zookeeper/config, packed."""
    one: bytes = packed(pa.array([_READ_ONLY], ACL_RAW_TYPE))[0].as_py()
    return one


@kernel("const i8[], const i8[], i8[], i8[]")
def from_children(parent: Int64s, czxid: Int64s, children: Int64s, last: Int64s) -> None:
    """How many children each node has, and the latest of the transactions that created it and these. `parent` below 0 is none."""
    for i in range(len(parent)):
        children[i] = 0
        last[i] = czxid[i]
    for i in range(len(parent)):
        above = parent[i]
        if above >= 0:
            children[above] += 1
            last[above] = max(last[above], czxid[i])


def _counted(nodes: Nodes, client: Int64s | None, family: Family) -> Nodes:
    """With what follows from the children: how many were created at least, and the last of these transactions."""
    cversion, pzxid = (nodes.unknown(name, UNKNOWN) for name in ("cversion", "pzxid"))
    if cversion is None and pzxid is None:
        return nodes
    parent = family.parents
    children, last = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
    from_children(parent, nodes.number("czxid"), children, last)
    if cversion is not None:
        # A server makes its own nodes without counting them.
        own = places(family.paths, SYSTEM[1:])
        derived = children.copy()
        np.subtract.at(derived, parent[own[parent[own] >= 0]], 1)
        if client is not None:
            derived = np.where(client == UNKNOWN, derived, (client + children) // 2)
        nodes = nodes.with_number("cversion", np.where(cversion, derived, nodes.number("cversion")))
    if pzxid is not None:
        nodes = nodes.with_number("pzxid", np.where(pzxid, last, nodes.number("pzxid")))
    return nodes
