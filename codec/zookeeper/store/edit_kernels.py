"""What a batch of changes does to the nodes that it speaks of, one after the other; `edits` says what the changes are.

A node is a number of a table of all paths of the batch, with what a server has to know of it. Where a change would be refused, and where
something rare is asked for, a kernel stops: the changes are then gone through one by one (`edits.Editor`), which has the words.
Source: `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH, Int32s
from logwright.codec.zookeeper.jute import Int64s

THERE, VERSION, CVERSION, AVERSION, KIND, CHILDREN, PARENT, TOUCHED = range(8)
"""Of a node: 1 where it is there; its counters; what it is (`columns.KINDS`); how many children it has; the number of the one above it
(-1: not looked up); 1 where a row has spoken of it, 2 where it was made as what another one is below of."""
FIELDS = 8

CREATE, SESSION, SET, SET_ACL, DELETE, CHECK, NOTHING = range(7)
"""What a transaction does, as far as it matters here."""
LEFT_OUT = np.iinfo(np.int64).min
"""Of a version that follows from the tree."""
_EPHEMERAL = 1
_DEEP = 256
"""So many nodes above one that is made may be missing: each is looked for from below."""
_HALF = 1 << 31


@kernel("i8")
def wrapped(number: int) -> int:
    """As Java adds."""
    return (number + _HALF) % (2 * _HALF) - _HALF


@kernel("const u1[], const i4[], i4[]")
def above(paths: Bytes, ends: Int32s, out: Int32s) -> int:
    """How long each path is without its last part. Returns 0 where one does not begin with a slash, so that nothing is above it."""
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
    """What transactions leave out: `versions` and, of creates, `cversions` of the parents, where they are `LEFT_OUT`. Returns the first one
    that is refused, or as many as there are."""
    for i in range(len(does)):
        what, node = does[i], ids[i]
        if what in (NOTHING, SESSION):
            continue
        there = nodes[node, THERE]
        if what == CREATE:
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
        elif what == SET:
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, VERSION] + 1)
            nodes[node, VERSION] = versions[i]
        elif what == SET_ACL:
            if versions[i] == LEFT_OUT:
                versions[i] = wrapped(nodes[node, AVERSION] + 1)
            nodes[node, AVERSION] = versions[i]
        elif what == CHECK:
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
    """The transactions that bring nodes to what rows say: what each does, for which row, to which node, and its version (of creates, that
    of the parent). `data` and `acl` are 1 where they differ from what a node has that is there, `new_data` and `new_acl` from those that a
    parent is made with. `open_` are sessions that there are. Returns how many, or -1 where a row is refused."""
    made = 0
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
                does[made], rows[made], which[made], versions[made] = SET, i, node, nodes[node, VERSION]
                made += 1
            if changes_acl:
                nodes[node, AVERSION] = wrapped(nodes[node, AVERSION] + 1)
                does[made], rows[made], which[made], versions[made] = SET_ACL, i, node, nodes[node, AVERSION]
                made += 1
            continue
        # Those above it that are not there, the first one first.
        top = node
        depth = 0
        while nodes[top, PARENT] >= 0 and not nodes[nodes[top, PARENT], THERE]:
            if nodes[top, PARENT] == top or depth > _DEEP:
                return -1
            top = nodes[top, PARENT]
            depth += 1
        for step in range(depth + 1):
            one = node
            for _ in range(depth - step):
                one = nodes[one, PARENT]
            parent = nodes[one, PARENT]
            if parent < 0 or parent == one or nodes[parent, KIND] == _EPHEMERAL:
                return -1
            own = one == node
            if own and sessions[i] >= 0 and not open_[sessions[i]]:
                open_[sessions[i]] = 1
                does[made], rows[made], which[made], versions[made] = SESSION, i, node, LEFT_OUT
                made += 1
            does[made], rows[made], which[made], versions[made] = CREATE, i, one, LEFT_OUT
            _create(nodes, one, kinds[i] if own else 0, versions, made)
            if not own:
                nodes[one, TOUCHED] = 2
            made += 1
    return made
