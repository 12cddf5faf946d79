"""A tree from rows: parents first, missing parents added, and counters that follow from the tree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import contents
from logwright.codec.fault import UsageError
from logwright.codec.kernels.kernel import kernel
from logwright.codec.zookeeper.formats.snapshot.acl import packed_list
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.formats.snapshot.pack import Nodes, Values
from logwright.codec.zookeeper.state.input_columns import UNKNOWN, InputColumns, no_bytes
from logwright.codec.zookeeper.state.paths import Family, places

SYSTEM = (b"", b"/zookeeper", b"/zookeeper/config", b"/zookeeper/quota")
"""The nodes that every tree has (`DataTree`)."""
_READ_ONLY = [{"perms": 1, "scheme": b"world", "id": b"anyone"}]
"""The ACL of /zookeeper/config."""
CONFIG = b"/zookeeper/config"


def stored(input_columns: InputColumns, acls: AclLists) -> Nodes:
    """Return the rows unchanged, in their order."""
    stats: dict[str, Values] = {
        "czxid": input_columns.values("czxid", 0),
        "mzxid": input_columns.values("mzxid", 0),
        "ctime": input_columns.times("ctime", 0),
        "mtime": input_columns.times("mtime", 0),
        "version": input_columns.values("version", 0),
        "cversion": input_columns.values("stored_cversion", 0),
        "aversion": input_columns.values("aversion", 0),
        "owner": input_columns.owners(),
        "pzxid": input_columns.values("pzxid", 0),
    }
    data = (
        input_columns.data() if input_columns.has("data") else pa.nulls(len(input_columns), pa.large_binary())
    )
    return Nodes.of(input_columns.paths(), data, input_columns.acl_numbers(acls), stats)


def complete(input_columns: InputColumns, acls: AclLists, zxid: int | None, *, had: bool) -> Nodes:
    """Return the tree of the rows: in order, with all parents and the system nodes, and with derived values for absent ones."""
    family = Family.of(input_columns.paths())
    family.validate()
    order = family.order()
    if order is None:
        _refuse_twice(input_columns, family)
    stats = input_stats(input_columns, zxid)
    client = input_columns.numbers("cversion", UNKNOWN) if input_columns.has("cversion") else None
    nodes = Nodes.of(family.paths, input_columns.data(), np.zeros(len(input_columns), np.int64), stats)
    if order is not None:
        nodes = nodes.take(order)
        client = None if client is None else client[order]
        ordered = Family.of(nodes.paths())
        if not ordered.ascending:
            _refuse_twice(input_columns, family)
        family = ordered
    nodes = nodes.with_number("acl", input_columns.acl_numbers(acls, order))
    created = family.missing(() if had else SYSTEM)
    if created:
        # At the end, if only system nodes are missing, which are right there; otherwise in the order of paths.
        order = None
        config = acls.number(config_list()) if CONFIG in created else OPEN_ACL
        numbered = np.array([config if path == CONFIG else OPEN_ACL for path in created], np.int64)
        names, stats = contents(pa.binary(), created), default_stats(created, zxid)
        nodes = nodes.and_more(Nodes.of(names, no_bytes(len(created)), numbered, stats))
        both = Family.of(nodes.paths())
        if both.lost:
            order = family.merged(created) if family.ascending else both.order()
        if client is not None:
            client = np.concatenate([client, np.full(len(created), UNKNOWN)])
        family = both
        if order is not None:
            nodes = nodes.take(order)
            client = None if client is None else client[order]
            family = Family.of(nodes.paths())
    return _counted(nodes, client, family)


def _refuse_twice(input_columns: InputColumns, family: Family) -> None:
    row = family.twice()
    if row is not None:
        raise UsageError(
            f"zookeeper.snapshot: the path {input_columns.rows['path'][row].as_py()!r} of row {row} occurred before",
            advice="Pass each path once",
        )


def input_stats(input_columns: InputColumns, zxid: int | None) -> dict[str, Values]:
    """Return the stats of rows, with values for absent ones, or `UNKNOWN` where they follow from the tree."""
    czxid = input_columns.values("czxid", 0 if zxid is None else zxid)
    ctime = input_columns.times("ctime", 0)
    return {
        "czxid": czxid,
        "mzxid": czxid if input_columns.pieces("mzxid") is None else input_columns.values("mzxid", czxid),
        "ctime": ctime,
        "mtime": input_columns.times("mtime", ctime),
        "version": input_columns.values("version", 0),
        "cversion": input_columns.values("stored_cversion", UNKNOWN),
        "aversion": input_columns.values("aversion", 0),
        "owner": input_columns.owners(),
        "pzxid": input_columns.values("pzxid", UNKNOWN),
    }


def default_stats(paths: list[bytes], zxid: int | None) -> dict[str, Values]:
    """Return the stats of nodes that no row defines, as a server makes them."""
    zero = np.zeros(len(paths), np.int64)
    new = np.array([0 if path in SYSTEM or zxid is None else zxid for path in paths], np.int64)
    unknown = np.full(len(paths), UNKNOWN)
    stats: dict[str, Values] = dict.fromkeys(("ctime", "mtime", "version", "owner"), zero)
    stats |= {"czxid": new, "mzxid": new, "cversion": unknown, "pzxid": unknown}
    stats["aversion"] = np.array([-1 if path == CONFIG else 0 for path in paths], np.int64)
    return stats


def config_list() -> bytes:
    """Return the encoded ACL of /zookeeper/config."""
    return packed_list(_READ_ONLY)


@kernel("const i8[], const i8[], i8, i4[], i8[]")
def from_children(parent: Int64s, czxid: Int64s, first: int, children: Int32s, last: Int64s) -> None:
    """Compute for nodes, from number `first` on: the number of children, and the latest of the transactions that created the node or a
    child. `parent` is a number too; below 0 means no parent."""
    for i in range(len(parent)):
        children[first + i] = 0
        last[first + i] = czxid[i]
    for i in range(len(parent)):
        above = parent[i]
        if above >= 0:
            children[above] += 1
            last[above] = max(last[above], czxid[i])


def derived_cversions(children: Int64s, own: Int64s, client: Int64s) -> Int64s:
    """Return the creations of children: those that a client's cversion tells, or as many as there are, without a server's `own` nodes,
    which it creates without counting them."""
    return np.where(client == UNKNOWN, children - own, (client + children) // 2)


def _counted(nodes: Nodes, client: Int64s | None, family: Family) -> Nodes:
    """Derive from the children: the number of creations at least, and the last of these transactions."""
    cversion, pzxid = (nodes.unknown(name, UNKNOWN) for name in ("cversion", "pzxid"))
    if cversion is None and pzxid is None:
        return nodes
    parent = family.parents
    children, last = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int64)
    from_children(parent, nodes.number("czxid"), 0, children, last)
    if cversion is not None:
        own = places(family.paths, SYSTEM[1:])
        counts = np.bincount(parent[own[parent[own] >= 0]], minlength=len(nodes))
        client = np.full(len(nodes), UNKNOWN) if client is None else client
        derived = derived_cversions(children.astype(np.int64), counts, client)
        nodes = nodes.with_number("cversion", np.where(cversion, derived, nodes.number("cversion")))
    if pzxid is not None:
        nodes = nodes.with_number("pzxid", np.where(pzxid, last, nodes.number("pzxid")))
    return nodes
