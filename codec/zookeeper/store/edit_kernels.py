"""Simulate the effect of a batch of changes on its nodes, one after the other; `edits` describes the changes.

A node is a number in a table of all paths of the batch, with its attributes that a server checks. If a change would be refused, or is of a
rare kind, a kernel stops, and the changes are applied one by one (`edits.Editor`), which gives the messages. Source:
`PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH, Int32s
from logwright.codec.zookeeper.jute import Int64s

THERE, VERSION, CVERSION, AVERSION, KIND, CHILDREN, PARENT, TOUCHED = range(8)
"""Fields of a node: 1 if it exists; its counters; its kind (`columns.KINDS`); its number of children; the number of its parent (-1: not
looked up); 1 if a row has named it, 2 if it was added as an ancestor."""
FIELDS = 8

CREATE, SESSION, SET, SET_ACL, DELETE, CHECK, NOTHING = range(7)
"""The kinds of transactions that matter here."""
LEFT_OUT = np.iinfo(np.int64).min
"""A version that follows from the tree."""
_EPHEMERAL = 1
_DEEP = 256
"""The maximum number of missing ancestors of a new node. Each is searched for from below."""
_HALF = 1 << 31


@kernel("i8")
def wrapped(number: int) -> int:
    """Add as Java does."""
    return (number + _HALF) % (2 * _HALF) - _HALF


@kernel("const u1[], const i4[], i4[]")
def above(paths: Bytes, ends: Int32s, out: Int32s) -> int:
    """Compute the length of each path without its last name. Return 0 if one does not begin with a slash, so that it has no parent."""
    for i in range(len(out)):
        start, end = ends[i], ends[i + 1]
        if end > start and paths[start] != SLASH:
            return 0
        while end > start and paths[end - 1] != SLASH:
            end -= 1
        out[i] = max(end - start - 1, 0)
    return 1


@kernel("i8[,], i8, i8, i8[], i8")
def _create(nodes: Int64s, node: int, kind: int, cversions: Int64s, i: int) -> None:
    parent = nodes[node, PARENT]
    if cversions[i] == LEFT_OUT:
        cversions[i] = wrapped(nodes[parent, CVERSION] + 1)
    nodes[parent, CVERSION] = max(nodes[parent, CVERSION], cversions[i])
    nodes[parent, CHILDREN] += 1
    nodes[node, THERE] = 1
    nodes[node, VERSION] = 0
    nodes[node, CVERSION] = 0
    nodes[node, AVERSION] = 0
    nodes[node, KIND] = kind
    nodes[node, CHILDREN] = 0


@kernel("const i1[], const i8[], const i1[], i8[,], i8[], i8[]")
def follow(
    does: npt.NDArray[np.int8],
    ids: Int64s,
    kinds: npt.NDArray[np.int8],
    nodes: Int64s,
    versions: Int64s,
    cversions: Int64s,
) -> int:
    """Fill in what transactions lack: `versions`, and for creates the `cversions` of the parents, where they are `LEFT_OUT`. Return the
    index of the first refused one, or the number of all."""
    for i in range(len(does)):
        action, node = does[i], ids[i]
        if action in (NOTHING, SESSION):
            continue
        there = nodes[node, THERE]
        if action == CREATE:
            parent = nodes[node, PARENT]
            if (
                there
                or parent < 0
                or parent == node
                or not nodes[parent, THERE]
                or nodes[parent, KIND] == _EPHEMERAL
            ):
                return i
            _create(nodes, node, kinds[i], cversions, i)
        elif not there:
            return i
        elif action == SET:
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, VERSION] + 1)
            nodes[node, VERSION] = versions[i]
        elif action == SET_ACL:
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, AVERSION] + 1)
            nodes[node, AVERSION] = versions[i]
        elif action == CHECK:
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, VERSION] + 1)
        else:
            parent = nodes[node, PARENT]
            if nodes[node, CHILDREN] or parent < 0 or parent == node or not nodes[parent, THERE]:
                return i
            nodes[node, THERE] = 0
            nodes[parent, CHILDREN] -= 1
    return len(does)


@kernel(
    "const i8[], const i1[], const i8[], const u1[], const u1[], const u1[], const u1[], i8[,], u1[], i1[], i8[], i8[], i8[]"
)
def bring(
    ids: Int64s,
    kinds: npt.NDArray[np.int8],
    sessions: Int64s,
    data: Bytes,
    acl: Bytes,
    new_data: Bytes,
    new_acl: Bytes,
    nodes: Int64s,
    open_: Bytes,
    does: npt.NDArray[np.int8],
    rows: Int64s,
    which: Int64s,
    versions: Int64s,
) -> int:
    """Make the transactions that give nodes the attributes of rows: for each its kind, its row, its node, and its version (for creates,
    that of the parent).

    `data` and `acl` are 1 where they differ from those of an existing node, `new_data` and `new_acl` where they differ from those of an
    added parent. `open_` are existing sessions. Return the number of transactions, or -1 if a row is refused.
    """
    count = 0
    for i in range(len(ids)):
        node = ids[i]
        if nodes[node, TOUCHED] == 1:
            return -1
        changes_data, changes_acl = data[i], acl[i]
        if nodes[node, TOUCHED] == 2:
            if kinds[i] != 0:
                return -1
            changes_data, changes_acl = new_data[i], new_acl[i]
        nodes[node, TOUCHED] = 1
        if nodes[node, THERE]:
            if changes_data:
                nodes[node, VERSION] = wrapped(nodes[node, VERSION] + 1)
                does[count], rows[count], which[count], versions[count] = SET, i, node, nodes[node, VERSION]
                count += 1
            if changes_acl:
                nodes[node, AVERSION] = wrapped(nodes[node, AVERSION] + 1)
                does[count], rows[count], which[count], versions[count] = (
                    SET_ACL,
                    i,
                    node,
                    nodes[node, AVERSION],
                )
                count += 1
            continue
        # Its missing ancestors, the topmost first.
        top = node
        depth = 0
        while nodes[top, PARENT] >= 0 and not nodes[nodes[top, PARENT], THERE]:
            if nodes[top, PARENT] == top or depth > _DEEP:
                return -1
            top = nodes[top, PARENT]
            depth += 1
        for step in range(depth + 1):
            ancestor = node
            for _ in range(depth - step):
                ancestor = nodes[ancestor, PARENT]
            parent = nodes[ancestor, PARENT]
            if parent < 0 or parent == ancestor or nodes[parent, KIND] == _EPHEMERAL:
                return -1
            own = ancestor == node
            if own and sessions[i] >= 0 and not open_[sessions[i]]:
                open_[sessions[i]] = 1
                does[count], rows[count], which[count], versions[count] = SESSION, i, node, LEFT_OUT
                count += 1
            does[count], rows[count], which[count], versions[count] = CREATE, i, ancestor, LEFT_OUT
            _create(nodes, ancestor, kinds[i] if own else 0, versions, count)
            if not own:
                nodes[ancestor, TOUCHED] = 2
            count += 1
    return count
