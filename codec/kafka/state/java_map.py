"""The iteration order of a `java.util.HashMap<Long, ?>`, which is the order of the entries of a producer snapshot.

The order is bucket by bucket, and in a bucket the order of insertion. The table starts with 16 buckets and doubles when it is three
quarters full, or when a bucket of eight gets a ninth key while there are fewer than 64 buckets. From 64 buckets on such a bucket
becomes a red-black tree. Its root moves to the front of the bucket, and new keys come after their parent in the tree. Source: the
documented implementation notes of that class (Java 8 and later).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from logwright.codec.arrays import Int64s

_FIRST_CAPACITY = 16
_TREES_FROM = 64
_CROWD, _FEW = 8, 6
"""A bucket with more than `_CROWD` keys becomes a tree. One with at most `_FEW` keys after a split becomes a list again."""

Keys = Int64s


def hash_map_order(keys: Keys | Iterable[int]) -> Keys:
    """Return keys (64-bit, distinct, in the order of insertion) in the order of iteration."""
    ordered = keys if isinstance(keys, np.ndarray) else np.array(list(keys), np.int64)
    code = _hash(ordered)
    capacity, plain = _grown(code)
    if plain:
        return ordered[np.argsort(code & capacity - 1, kind="stable")]
    return _replayed(ordered.tolist(), code.tolist())


def _hash(keys: Keys) -> Keys:
    """Return `Long.hashCode`, spread as `HashMap` does, without the sign."""
    low = (keys ^ keys >> 32) & 0xFFFFFFFF
    spread: Keys = low ^ low >> 16
    return spread


def _grown(code: Keys) -> tuple[int, bool]:
    """Return the final number of buckets, if no bucket was ever crowded; otherwise (0, False)."""
    capacity = _FIRST_CAPACITY
    while True:
        # The number of keys when the table doubles. The last one is inserted before that.
        most = min(len(code), capacity * 3 // 4 + 1)
        if most and int(np.bincount(code[:most] & capacity - 1).max()) > _CROWD:
            return 0, False
        if most <= capacity * 3 // 4:
            return capacity, True
        capacity *= 2


def _replayed(keys: list[int], code: list[int]) -> Keys:
    """Insert key by key, and return the order of iteration."""
    table = [_Bucket() for _ in range(_FIRST_CAPACITY)]
    for i in range(len(keys)):
        bucket = table[code[i] & len(table) - 1]
        # Trees are ordered by the hash as a signed number, then by the key.
        bucket.add((code[i] - ((code[i] & 1 << 31) << 1), keys[i]))
        if bucket.count > _CROWD and bucket.root is None:
            if len(table) < _TREES_FROM:
                table = _doubled(table)
            else:
                bucket.make_tree()
        if i + 1 > len(table) * 3 // 4:
            table = _doubled(table)
    return np.array([node.key[1] for bucket in table for node in bucket], np.int64)


def _doubled(table: list[_Bucket]) -> list[_Bucket]:
    pairs = [bucket.split(len(table)) for bucket in table]
    return [low for low, _ in pairs] + [high for _, high in pairs]


class _Node:
    """A key in its bucket, and in the tree if there is one."""

    __slots__ = ("after", "before", "key", "left", "parent", "red", "right")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.before: _Node | None = None
        self.after: _Node | None = None
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.red = False


class _Bucket:
    """The keys of a bucket as a linked list, and as a tree too if `root` is set."""

    __slots__ = ("count", "first", "last", "root")

    def __init__(self) -> None:
        self.count = 0
        self.first: _Node | None = None
        self.last: _Node | None = None
        self.root: _Node | None = None

    def __iter__(self) -> Iterator[_Node]:
        node = self.first
        while node is not None:
            # Read first: the caller may move the node to another bucket.
            after = node.after
            yield node
            node = after

    def add(self, key: tuple[int, int]) -> None:
        node = _Node(key)
        if self.root is None:
            self._link(node, self.last)
        else:
            self._link(node, self._insert(node))
            self._root_to_front()

    def make_tree(self) -> None:
        self.root = None
        for node in self:
            node.parent = node.left = node.right = None
            node.red = False
            if self.root is None:
                self.root = node
            else:
                self._insert(node)
        self._root_to_front()

    def split(self, bit: int) -> tuple[_Bucket, _Bucket]:
        """Split into the keys whose hash does not have the bit, and those whose hash has it."""
        low, high = _Bucket(), _Bucket()
        for node in self:
            half = high if node.key[0] & bit else low
            half._link(node, half.last)
        if self.root is not None:
            for half, other in ((low, high), (high, low)):
                if half.count > _FEW:
                    if other.count:
                        half.make_tree()
                    else:
                        half.root = self.root
        return low, high

    # The list

    def _link(self, node: _Node, before: _Node | None) -> None:
        """Insert a node after another, or first."""
        after = self.first if before is None else before.after
        node.before, node.after = before, after
        if before is None:
            self.first = node
        else:
            before.after = node
        if after is None:
            self.last = node
        else:
            after.before = node
        self.count += 1

    def _root_to_front(self) -> None:
        root = self.root
        if root is None or root.before is None:
            return
        root.before.after = root.after
        if root.after is None:
            self.last = root.before
        else:
            root.after.before = root.before
        self.count -= 1
        self._link(root, None)

    # The red-black tree: textbook insertion

    def _insert(self, node: _Node) -> _Node:
        """Insert a node into the tree. Return its parent at insertion."""
        assert self.root is not None
        parent = self.root
        at: _Node | None = parent
        while at is not None:
            parent, at = at, at.left if node.key < at.key else at.right
        node.parent, node.red = parent, True
        if node.key < parent.key:
            parent.left = node
        else:
            parent.right = node
        self._balance(node)
        return parent

    def _balance(self, node: _Node) -> None:
        while (parent := node.parent) is not None and parent.red:
            above = parent.parent
            assert above is not None  # the root is black
            first = parent is above.left
            uncle = above.right if first else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                node = above
                continue
            if node is (parent.right if first else parent.left):
                self._rotate(parent, left=first)
                node, parent = parent, node
            parent.red, above.red = False, True
            self._rotate(above, left=not first)
        assert self.root is not None
        self.root.red = False

    def _rotate(self, node: _Node, *, left: bool) -> None:
        """Rotate: the child on the other side takes the place of the node."""
        child = node.right if left else node.left
        assert child is not None
        inner = child.left if left else child.right
        if left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        child.parent = node.parent
        if node.parent is None:
            self.root = child
        elif node.parent.left is node:
            node.parent.left = child
        else:
            node.parent.right = child
        node.parent = child
