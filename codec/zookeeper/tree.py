"""A tree from rows: an order in which parents come first, parents that nobody gave, and the counters that follow from the tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.base import Bytes
from logwright.codec.columns import contents, numbers
from logwright.codec.fault import UsageError
from logwright.codec.intrinsics import load_i64be, load_u8
from logwright.codec.kernel import kernel
from logwright.codec.zookeeper.acl import flat, packed
from logwright.codec.zookeeper.digest import crc32_raw
from logwright.codec.zookeeper.encode import STATS, AclLists, Given, Nodes
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, Int64s
from logwright.codec.zookeeper.node import OPEN_ACL, SLASH, Int32s

SYSTEM = (b"", b"/zookeeper", b"/zookeeper/config", b"/zookeeper/quota")
"""The nodes that every tree has (`DataTree`)."""
_READ_ONLY = [{"perms": 1, "scheme": b"world", "id": b"anyone"}]
"""The ACL of /zookeeper/config."""
CONFIG = b"/zookeeper/config"
MISSING, TWICE = -2, -3


@kernel("const u1[], const i4[], i8[], i8[], i8[]")
def parents(paths: Bytes, ends: Int32s, stack: Int64s, out: Int64s, missing: Int64s) -> int:
    """The row of each node's parent in a tree in pre-order (each node followed by all that is below it); -1 for the root.

    `MISSING` where the parent does not come before it in that order, then `missing` tells how many bytes of the path the nearest
    ancestor has. `TWICE`: the path is that of the node before. `stack` has room. Returns the number of parents missing.
    """
    depth = 0
    lost = 0
    for i in range(len(ends) - 1):
        start = ends[i]
        size = ends[i + 1] - start
        missing[i] = 0
        if size == 0:
            out[i] = -1 if i == 0 else TWICE
            lost += i != 0
            depth = 1
            stack[0] = i
            continue
        cut = size - 1
        while cut > 0 and load_u8(paths, start + cut) != SLASH:
            cut -= 1
        while depth > 0:
            top = stack[depth - 1]
            length = ends[top + 1] - ends[top]
            if (
                length <= cut
                and same(paths, ends[top], start, length)
                and load_u8(paths, start + length) == SLASH
            ):
                break
            if length == size and same(paths, ends[top], start, length):
                break
            depth -= 1
        if depth == 0:
            out[i] = MISSING
            lost += 1
            stack[0] = i
            depth = 1
            continue
        top = stack[depth - 1]
        length = ends[top + 1] - ends[top]
        if length == size:
            out[i] = TWICE
            lost += 1
            continue
        if length == cut:
            out[i] = top
        else:
            out[i] = MISSING
            missing[i] = length
            lost += 1
        stack[depth] = i
        depth += 1
    return lost


@kernel("const u1[], i8, i8, i8")
def same(buf: Bytes, one: int, two: int, length: int) -> int:
    stop = one + length
    while stop - one >= 8:
        if load_i64be(buf, one) != load_i64be(buf, two):
            return 0
        one += 8
        two += 8
    while one < stop:
        if load_u8(buf, one) != load_u8(buf, two):
            return 0
        one += 1
        two += 1
    return 1


@kernel("const u1[], i8, i8")
def forbidden(buf: Bytes, at: int, end: int) -> int:
    """Whether a character of two or three bytes is none for a path: U+0080 to U+009F, U+D800 to U+F8FF, U+FFF0 to U+FFFF."""
    first = load_u8(buf, at)
    if first == 0xC2:
        return 1 if at + 1 < end and load_u8(buf, at + 1) < 0xA0 else 0
    if first < 0xED or first > 0xEF or end - at < 3:
        return 0
    code = (first & 0x0F) << 12 | (load_u8(buf, at + 1) & 0x3F) << 6 | (load_u8(buf, at + 2) & 0x3F)
    return 1 if 0xD800 <= code <= 0xF8FF or code >= 0xFFF0 else 0


@kernel("const u1[], const i4[]")
def first_bad(paths: Bytes, ends: Int32s) -> int:
    """The first path that no node can have (`PathUtils.validatePath`): it does not begin with a slash or ends with one, or has an empty
    name, a control character or another that is `forbidden`, "." or ".." for a name. The number of paths where there is none."""
    for i in range(len(ends) - 1):
        at = ends[i]
        end = ends[i + 1]
        if at == end:
            continue
        if load_u8(paths, at) != SLASH or load_u8(paths, end - 1) == SLASH:
            return i
        name = 0
        dots = 0
        for k in range(at + 1, end):
            byte = load_u8(paths, k)
            if byte == SLASH:
                if name == 0 or (dots == name and name <= 2):
                    return i
                name = 0
                dots = 0
                continue
            if byte < 0x20 or byte == 0x7F or forbidden(paths, k, end):
                return i
            name += 1
            dots += byte == 0x2E
        if dots == name and name <= 2:
            return i
    return len(ends) - 1


def order_of(paths: pa.Array, family: Family | None = None) -> Int64s | None:
    """The rows in pre-order, children by name; None where they are in a pre-order already, with all parents."""
    found, _ = family or family_of(paths)
    if not ((found == MISSING) | (found == TWICE)).any():
        return None
    data, ends, _ = flat(paths)
    # A slash before all else: what is below a node follows it.
    low = np.where(data == SLASH, 0, data).astype(np.uint8)
    keys = pa.Array.from_buffers(
        pa.binary(), len(paths), [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(low)]
    )
    order: Int64s = np.asarray(pc.sort_indices(keys)).astype(np.int64)
    return order


def _stack(ends: Int32s) -> Int64s:
    """Room for as many ancestors as the longest path can have: a name and its slash are two bytes."""
    return np.empty(int(np.diff(ends).max(initial=0)) // 2 + 2, np.int64)


Family = tuple[Int64s, Int64s]


def family_of(paths: pa.Array) -> Family:
    """What `parents` says of nodes: the row of each one's parent, and of those without one how much of the path there is."""
    data, ends, _ = flat(paths)
    out, missing = np.empty(len(paths), np.int64), np.empty(len(paths), np.int64)
    parents(data, np.ascontiguousarray(ends), _stack(ends), out, missing)
    return out, missing


def validate(paths: pa.Array, first: int = 0) -> None:
    """Raises `UsageError` for a path that no node can have; `first` is the number of the first row."""
    data, ends, _ = flat(paths)
    bad = int(first_bad(data, np.ascontiguousarray(ends)))
    if bad < len(paths):
        raise UsageError(
            f"zookeeper.snapshot: row {first + bad}: {paths[bad].as_py().decode('utf-8', 'replace')!r} is no path of a node",
            advice="A path begins with a slash and does not end with one; in it there is no empty name, '.' or '..', and no control, "
            "private or supplementary character",
        )


def missing_paths(paths: pa.Array, more: Iterable[bytes] = (), family: Family | None = None) -> list[bytes]:
    """The paths of parents, and of `more` nodes, that are not among these, which are in pre-order."""
    data, ends, _ = flat(paths)
    out, short = family or family_of(paths)
    made: set[bytes] = set()
    for i in np.flatnonzero(out == MISSING).tolist():
        path = data[int(ends[i]) : int(ends[i + 1])].tobytes()
        cut = path.rfind(b"/")
        while cut > int(short[i]) or (cut >= 0 and not short[i] and path):
            path = path[:cut]
            if path in made:
                break  # and so are those above it
            made.add(path)
            cut = path.rfind(b"/")
    if not len(paths) or len(paths[0].as_py()):
        made.add(b"")
    wanted = [one for one in more if one not in made]
    there = set(_among(paths, [*wanted, *made]))
    return sorted((made | set(wanted)) - there)


def _among(paths: pa.Array, some: list[bytes]) -> list[bytes]:
    """Those of some paths that are there."""
    found = paths.take(numbers(pa.int64(), _places(paths, some)))
    return [one for one in dict.fromkeys(found.to_pylist()) if one is not None]


def _places(paths: pa.Array, some: Sequence[bytes]) -> Int64s:
    """The rows whose path is one of these."""
    _, ends, _ = flat(paths)
    # Few paths are as long as one of these.
    near = np.flatnonzero(np.isin(np.diff(ends), [len(one) for one in some]))
    found = pc.is_in(paths.take(numbers(pa.int64(), near)), value_set=contents(pa.binary(), some))
    rows: Int64s = near[np.asarray(found)]
    return rows


_AHEAD = 32


@kernel("const u1[], const i4[], i8[], i8[]")
def repeated(paths: Bytes, ends: Int32s, places: Int64s, hashes: Int64s) -> int:
    """The first path that comes twice; the number of paths where there is none. `places`, all 0, are a power of two, and more than twice
    as many; in `hashes` there is room for some numbers."""
    mask = len(places) - 1
    count = len(ends) - 1
    seen = 0
    for i in range(count):
        if i % _AHEAD == 0:
            # Places are asked for together: one after the other each would be waited for.
            for k in range(min(_AHEAD, count - i)):
                hashes[k] = crc32_raw(0, paths, ends[i + k], ends[i + k + 1])
                seen ^= places[hashes[k] & mask]
            hashes[_AHEAD] = seen
        start = ends[i]
        size = ends[i + 1] - start
        found = hashes[i % _AHEAD]
        at = found & mask
        while places[at]:
            if places[at] >> 31 == found:
                other = (places[at] & 0x7FFFFFFF) - 1
                if ends[other + 1] - ends[other] == size and same(paths, ends[other], start, size):
                    return i
            at = (at + 1) & mask
        places[at] = found << 31 | (i + 1)
    return count


@kernel("const u1[], const i4[], i8")
def ascending(paths: Bytes, ends: Int32s, lowest: int) -> int:
    """Whether each path comes behind the one before, as bytes, of which `lowest` comes before all others: with a slash a node is followed
    by what is below it."""
    for i in range(1, len(ends) - 1):
        one = ends[i - 1]
        two = ends[i]
        size = min(two - one, ends[i + 1] - two)
        k = 0
        while size - k >= 8 and load_i64be(paths, one + k) == load_i64be(paths, two + k):
            k += 8
        while k < size and load_u8(paths, one + k) == load_u8(paths, two + k):
            k += 1
        if k == size:
            if ends[i + 1] - two <= two - one:
                return 0
            continue
        before = load_u8(paths, one + k)
        byte = load_u8(paths, two + k)
        if byte == lowest or (before != lowest and before > byte):
            return 0
    return 1


def twice(paths: pa.Array) -> int | None:
    """A row whose path was there before; None where there is none."""
    data, ends, _ = flat(paths)
    if ascending(data, np.ascontiguousarray(ends), SLASH):
        return None
    room = np.zeros(1 << (2 * len(paths) + 1).bit_length(), np.int64)
    row = int(repeated(data, np.ascontiguousarray(ends), room, np.empty(_AHEAD + 1, np.int64)))
    return None if row == len(paths) else row


def parents_of(paths: pa.Array) -> npt.NDArray[np.int64]:
    """The row of each node's parent, in a tree that is whole and in pre-order."""
    return family_of(paths)[0]


def stored(given: Given, acls: AclLists) -> Nodes:
    """Rows as they are, in their order."""
    paths = given.paths()
    numbers = acls.numbers(given.acls(), *_ids(given))
    stats = {
        "czxid": given.numbers("czxid", 0),
        "mzxid": given.numbers("mzxid", 0),
        "ctime": given.times("ctime", 0),
        "mtime": given.times("mtime", 0),
        "version": given.numbers("version", 0),
        "cversion": given.numbers("stored_cversion", 0),
        "aversion": given.numbers("aversion", 0),
        "owner": given.owners(),
        "pzxid": given.numbers("pzxid", 0),
    }
    data = given.data_pieces()
    return Nodes(
        paths, pa.nulls(len(given), pa.large_binary()) if data is None else data, numbers, stats, acls
    )


def empty(count: int) -> pa.Array:
    """Data of no bytes, which is not null."""
    ends = np.zeros(count + 1, np.int64)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(b"")])


def _ids(given: Given) -> tuple[Int64s, np.ndarray[Any, np.dtype[np.bool_]]]:
    found = given.column("acl_id")
    has = np.zeros(len(given), np.bool_) if found is None else np.asarray(found.is_valid())
    return given.numbers("acl_id", OPEN_ACL), has


def whole(given: Given, acls: AclLists, zxid: int | None, *, had: bool) -> Nodes:
    """A tree of the rows: in order, with all parents and the system's own nodes, and what they leave out derived."""
    paths = given.paths()
    validate(paths)
    family = family_of(paths)
    order = order_of(paths, family)
    row = twice(paths)
    if row is not None:
        raise UsageError(
            f"zookeeper.snapshot: the path {given.rows['path'][row].as_py()!r} of row {row} was there before",
            advice="Give each path once",
        )
    if order is not None:
        given = Given(given.rows.take(pa.array(order)))
        paths = given.paths()
        family = family_of(paths)
    czxid = given.numbers("czxid", 0 if zxid is None else zxid)
    mzxid = given.numbers("mzxid", czxid)
    ctime = given.times("ctime", 0)
    acl = acls.numbers(given.acls(), *_ids(given))
    data = given.data_pieces()
    made = missing_paths(paths, () if had else SYSTEM, family)
    count = len(given)
    stats = {
        "czxid": czxid,
        "mzxid": mzxid,
        "ctime": ctime,
        "mtime": given.times("mtime", ctime),
        "version": given.numbers("version", 0),
        "cversion": given.numbers("stored_cversion", UNKNOWN),
        "aversion": given.numbers("aversion", 0),
        "owner": given.owners(),
        "pzxid": given.numbers("pzxid", UNKNOWN),
    }
    client = given.numbers("cversion", UNKNOWN) if "cversion" in given.rows.column_names else None
    if data is None:
        data = (
            pa.nulls(count, pa.large_binary())
            if "data" in given.rows.column_names or not count
            else empty(count)
        )
    if made:
        new = np.array([0 if one in SYSTEM or zxid is None else zxid for one in made], np.int64)
        for name in STATS:
            fresh = new if name in ("czxid", "mzxid") else np.zeros(len(made), np.int64)
            if name in ("cversion", "pzxid"):
                fresh = np.full(len(made), UNKNOWN)
            if name == "aversion":
                fresh = np.array([-1 if one == CONFIG else 0 for one in made], np.int64)
            stats[name] = np.concatenate([stats[name], fresh])
        paths = pa.concat_arrays([paths, contents(pa.binary(), made)])
        pieces = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
        data = pa.chunked_array([*pieces, empty(len(made))], pa.large_binary())
        config = acls.number(config_list()) if CONFIG in made else OPEN_ACL
        acl = np.concatenate([acl, [config if one == CONFIG else OPEN_ACL for one in made]])
        if client is not None:
            client = np.concatenate([client, np.full(len(made), UNKNOWN)])
    nodes = Nodes(paths, data, acl, stats, acls)
    again = order_of(nodes.paths) if made else None
    if again is not None:
        nodes = nodes.take(again)
        client = None if client is None else client[again]
    _counters(nodes, client, family_of(nodes.paths)[0] if made else family[0])
    return nodes


UNKNOWN = np.iinfo(np.int64).min
"""A counter that nobody gave."""


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


def _counters(nodes: Nodes, client: Int64s | None, parent: Int64s) -> None:
    """What follows from the children: how many were created at least, and the last of these transactions."""
    children, last = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
    from_children(parent, nodes.stats["czxid"], children, last)
    # A server makes its own nodes without counting them.
    own = _places(nodes.paths, SYSTEM[1:])
    derived = children.copy()
    np.subtract.at(derived, parent[own[parent[own] >= 0]], 1)
    if client is not None:
        derived = np.where(client == UNKNOWN, derived, (client + children) // 2)
    stats = nodes.stats
    stats["cversion"] = np.where(stats["cversion"] == UNKNOWN, derived, stats["cversion"])
    stats["pzxid"] = np.where(stats["pzxid"] == UNKNOWN, last, stats["pzxid"])
