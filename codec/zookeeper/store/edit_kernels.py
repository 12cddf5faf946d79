"""Simulate the effect of a batch of changes on its nodes, one after the other; `edit_batches` describes the changes.

A node is a number in a table of all paths of the batch, with its attributes that a server checks. A kernel stops at a change that would be
refused, and says why. Source: `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int8s, Int32s, Int64s
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.jute import Strings
from logwright.codec.zookeeper.state.tree_fields import OTHER, TTL_TYPES
from logwright.codec.zookeeper.state.tree_kernels import last_slash, owner_kind, same

THERE, VERSION, CVERSION, AVERSION, OWNER, CHILDREN, PARENT, BELOW, DATA, ACL = range(10)
"""Fields of a node: 1 if it exists; its counters; its owner; its number of children; the number of its parent (-1: not looked up; the root
is its own); its missing descendant that is created after it; its data: the number of a row, or -1 - i for value `i` of the stored ones, of
which the first is empty; the number of its ACL."""
FIELDS = 10

CREATE, SESSION, SET, SET_ACL, DELETE, CHECK, NOTHING = range(7)
"""The kinds of transactions that matter here."""
LEFT_OUT = np.iinfo(np.int64).min
"""A version that follows from the tree."""
(SOUND, EXISTS, NO_PARENT, NO_NODE, BELOW_EPHEMERAL, NO_SESSION, BAD_TTL, HAS_CHILDREN, OTHER_KIND) = range(9)
"""Why a change is refused."""
_HALF = 1 << 31


@kernel("i8")
def wrapped(number: int) -> int:
    """Add as Java does."""
    return (number + _HALF) % (2 * _HALF) - _HALF


@kernel("const u1[], const i4[], i4[]")
def above(paths: Bytes, ends: Int32s, out: Int32s) -> None:
    """Compute the length of each path without its last name. A path without a slash has no parent but itself."""
    for i in range(len(out)):
        size = ends[i + 1] - ends[i]
        cut = last_slash(paths, ends[i], size)
        out[i] = cut if cut >= 0 else size


@kernel("i8[,], i8, i8, i8[], i8")
def _create(nodes: Int64s, node: int, owner: int, cversions: Int64s, i: int) -> None:
    parent = nodes[node, PARENT]
    if cversions[i] == LEFT_OUT:
        cversions[i] = wrapped(nodes[parent, CVERSION] + 1)
    nodes[parent, CVERSION] = max(nodes[parent, CVERSION], cversions[i])
    nodes[parent, CHILDREN] += 1
    nodes[node, THERE] = 1
    nodes[node, VERSION] = 0
    nodes[node, CVERSION] = 0
    nodes[node, AVERSION] = 0
    nodes[node, OWNER] = owner
    nodes[node, CHILDREN] = 0


@kernel("const i8[,], i8")
def _is_below_ephemeral(nodes: Int64s, node: int) -> bool:
    """Return whether the parent of a node may not have children."""
    return owner_kind(nodes[nodes[node, PARENT], OWNER], TTL_TYPES) != OTHER


@kernel("const i1[], const i8[], const i8[], const i1[], i8, i8[,], i8[], i8[]")
def follow(
    does: Int8s,
    ids: Int64s,
    owners: Int64s,
    bad: Int8s,
    strict: int,
    nodes: Int64s,
    versions: Int64s,
    cversions: Int64s,
) -> tuple[int, int]:
    """Fill in what transactions lack: `versions`, and for creates the `cversions` of the parents, where they are `LEFT_OUT`.

    `bad` says why a create is refused whatever the tree is. `strict`: every transaction must have an effect. Return the index of the first
    refused one, and why; or the number of all, and `SOUND`.
    """
    for i in range(len(does)):
        action, node = does[i], ids[i]
        if action in (NOTHING, SESSION):
            continue
        there, parent = nodes[node, THERE], nodes[node, PARENT]
        has_parent = parent != node and nodes[parent, THERE]
        if action == CREATE:
            if strict and there:
                return i, EXISTS
            if not has_parent:
                if strict or cversions[i] == LEFT_OUT:
                    return i, NO_PARENT
                continue
            if strict and _is_below_ephemeral(nodes, node):
                return i, BELOW_EPHEMERAL
            if bad[i]:
                return i, bad[i]
            _create(nodes, node, owners[i], cversions, i)
        elif not there:
            if strict or (versions[i] == LEFT_OUT and action != DELETE):
                return i, NO_NODE
        elif action == DELETE:
            if strict and nodes[node, CHILDREN]:
                return i, HAS_CHILDREN
            nodes[node, THERE] = 0
            if has_parent:
                nodes[parent, CHILDREN] -= 1
        else:
            counter = AVERSION if action == SET_ACL else VERSION
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, counter] + 1)
            if action != CHECK:
                nodes[node, counter] = versions[i]
    return len(does), SOUND


@kernel("Strings, i8, Strings, i8")
def _equal(first: Strings, i: int, two: Strings, j: int) -> bool:
    """Return whether value `i` equals value `j` of the other column. Null is a value."""
    if first.valid[i] != two.valid[j] or not first.valid[i]:
        return bool(first.valid[i] == two.valid[j])
    start, at = first.ends[i], two.ends[j]
    size = first.ends[i + 1] - start
    return size == two.ends[j + 1] - at and same(first.data, start, two.data, at, size) == 1


@kernel(
    "const i8[], const i8[], const i1[], const i8[], const i8[], i8, i8, Strings, Strings, i8[,], u1[], i1[], i8[], i8[], i8[]"
)
def bring(
    ids: Int64s,
    owners: Int64s,
    bad: Int8s,
    sessions: Int64s,
    acls: Int64s,
    open_acl: int,
    data: int,
    values: Strings,
    stored: Strings,
    nodes: Int64s,
    open_: Bytes,
    does: Int8s,
    rows: Int64s,
    which: Int64s,
    versions: Int64s,
) -> tuple[int, int, int]:
    """Make the transactions that give nodes the attributes of rows: for each its kind, its row, its node, and its version (for creates,
    that of the parent).

    `bad` as in `follow`. `sessions` and `acls` are numbers, -1 for none. `data`: the rows have data. `stored` is the data of nodes in the
    tree. `open_` are existing sessions. Return the number of transactions, `SOUND`, and -1; or the refused row, why, and the node of which.
    """
    count = 0
    for i in range(len(ids)):
        node = ids[i]
        if nodes[node, THERE]:
            if owners[i] != 0 and owners[i] != nodes[node, OWNER]:
                return i, OTHER_KIND, node
            was = nodes[node, DATA]
            if data and not (
                _equal(values, i, values, was) if was >= 0 else _equal(values, i, stored, -1 - was)
            ):
                nodes[node, VERSION] = wrapped(nodes[node, VERSION] + 1)
                nodes[node, DATA] = i
                does[count], rows[count], which[count], versions[count] = SET, i, node, nodes[node, VERSION]
                count += 1
            if acls[i] >= 0 and acls[i] != nodes[node, ACL]:
                nodes[node, AVERSION] = wrapped(nodes[node, AVERSION] + 1)
                nodes[node, ACL] = acls[i]
                does[count], rows[count], which[count], versions[count] = (
                    SET_ACL,
                    i,
                    node,
                    nodes[node, AVERSION],
                )
                count += 1
            continue
        # Its missing ancestors, the topmost first.
        next_one = node
        while nodes[next_one, PARENT] != next_one and not nodes[nodes[next_one, PARENT], THERE]:
            nodes[nodes[next_one, PARENT], BELOW] = next_one
            next_one = nodes[next_one, PARENT]
        while True:
            own = next_one == node
            if nodes[next_one, PARENT] == next_one:
                return i, NO_PARENT, next_one
            if _is_below_ephemeral(nodes, next_one):
                return i, BELOW_EPHEMERAL, next_one
            if own and bad[i]:
                return i, bad[i], next_one
            if own and sessions[i] >= 0 and not open_[sessions[i]]:
                open_[sessions[i]] = 1
                does[count], rows[count], which[count], versions[count] = SESSION, i, node, LEFT_OUT
                count += 1
            does[count], rows[count], which[count], versions[count] = CREATE, i, next_one, LEFT_OUT
            _create(nodes, next_one, owners[i] if own else 0, versions, count)
            nodes[next_one, DATA] = i if own else -1
            nodes[next_one, ACL] = acls[i] if own and acls[i] >= 0 else open_acl
            count += 1
            if own:
                break
            next_one = nodes[next_one, BELOW]
    return count, SOUND, -1
