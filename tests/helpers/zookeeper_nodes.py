"""Look at single nodes of a tree, and at its ACL cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.tree_read import STATS, TreeReader


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `stat` has the names of `tree_read.STATS`, as stored; `acl` is as in rows, None if the table lacks it."""

    path: bytes
    data: bytes | None
    acl: list[dict[str, Any]] | None
    acl_id: int
    stat: dict[str, int]
    num_children: int


def node_at(tree: TreeReader, path: bytes) -> Node | None:
    row = tree._row(path)
    if row < 0:
        return None
    stat = {name: int(tree._nodes[row, column]) for name, column in STATS.items()}
    slot = int(tree._nodes[row, f.N_ACL])
    return Node(
        tree._path(row),
        tree._data(row),
        tree._acl(slot),
        tree._acls.number(slot),
        stat,
        int(tree._nodes[row, f.N_CHILDREN]),
    )


def children_of(tree: TreeReader, path: bytes) -> list[bytes]:
    """Return the paths of a node's children, in order."""
    row = tree._row(path)
    if row < 0:
        return []
    used = tree._nodes[: tree._s[f.ROWS]]
    below = np.flatnonzero((used[:, f.N_PARENT] == row) & (used[:, f.N_ALIVE] == 1))
    return sorted(tree._path(child) for child in below.tolist())


def acl_uses(tree: TreeReader) -> dict[int, int]:
    """Return the usage count of each ACL number."""
    live = tree._acls._there()
    return dict(zip(live[:, f.A_ID].tolist(), live[:, f.A_REFS].tolist(), strict=True))
