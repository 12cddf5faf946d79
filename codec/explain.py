"""Explain bytes as a tree of fields, from the description of a structure.

The leaves of the tree cover every byte exactly once: bytes that no field covers become a node of kind "unexplained", and bytes that do not
match their description end only the structure that they break.

The content of compressed bytes, or of bytes gathered from several places, is a `Space` with its own addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.describe import (
    Buffer,
    Bytes,
    Content,
    DescriptionError,
    Either,
    Enclosed,
    Field,
    Flags,
    Nothing,
    Repeated,
    Scope,
    Struct,
    Switch,
    Type,
    Varint,
)
from logwright.codec.describe import Int as IntType
from logwright.codec.expression import OUTER
from logwright.codec.kernels.bitflip import find_flipped_bit
from logwright.codec.window import Window

UNEXPLAINED, SKIPPED, PADDING = "unexplained", "skipped", "padding"
"""Kinds of nodes that are not fields: bytes that no field covers, list items that are not shown, and padding."""
_ABSENT = Nothing().label()
LIMIT = 256 << 20
"""The default size limit of a space."""
_AROUND = 2
"""The number of items shown after the requested one if a list is not shown completely."""


@dataclass(frozen=True, slots=True)
class Check:
    """A checksum: stored and computed value, and the covered bytes."""

    stored: int
    computed: int
    start: int
    end: int

    @property
    def right(self) -> bool:
        return self.stored == self.computed


@dataclass(frozen=True, slots=True)
class Bits:
    """Named bits of an integer of `width` bytes."""

    name: str
    low: int
    count: int
    value: int
    meaning: str
    doc: str
    width: int

    def pattern(self) -> str:
        """Return the bits as text: `.... .... ...1 ....`."""
        size = 8 * self.width
        digits = f"{self.value:0{self.count}b}"
        text = "." * (size - self.low - self.count) + digits + "." * self.low
        return " ".join(text[i : i + 4] for i in range(0, size, 4))


@dataclass(slots=True)
class Node:
    """Bytes `[start, end)` of a space and their meaning."""

    name: str
    start: int
    end: int
    kind: str
    """struct, list, int, flags, varint, bytes, text, `UNEXPLAINED`, `SKIPPED` or `PADDING`."""
    value: Any = None
    meaning: str = ""
    doc: str = ""
    type: str = ""
    source: str = ""
    problem: str = ""
    """An error message."""
    broken: bool = False
    """The end of the value is unknown, so the bytes after it cannot be explained."""
    children: list[Node] = field(default_factory=list)
    bits: tuple[Bits, ...] = ()
    check: Check | None = None
    space: Space | None = None
    """The unpacked content."""
    row: int | None = None
    """The number of the row that the node is, among the explained rows."""
    role: str = ""
    """"checksum", "length", or a term of the codec."""

    def leaves(self) -> Iterator[Node]:
        """Yield the nodes without children, in the order of their bytes."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below it in the same space."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class Space:
    """Bytes that are not stored as they are: unpacked, or gathered from several places.

    `start` is the start of their node in the enclosing space.
    """

    start: int
    data: bytes
    origin: str
    nodes: list[Node] = field(default_factory=list)
    gathered: tuple[tuple[int, int], ...] = ()
    """The ranges of the enclosing space that the bytes are gathered from, in order."""


@dataclass(frozen=True)
class Focus:
    """The position or row to show, if any.

    `at` is an address: byte `at[0]` of the file, then byte `at[1]` of the space at that byte, and so on. `items` is the number of list items
    to show.
    """

    at: tuple[int, ...] = ()
    row: int | None = None
    items: int = 1000
    limit: int = LIMIT

    def inside(self, start: int) -> Focus:
        """Return the focus for the space of the node that begins at `start`."""
        here = len(self.at) > 1 and self.at[0] == start
        return Focus(self.at[1:] if here else (), self.row, self.items, self.limit)


class Explainer:
    """Builds nodes from `buf`, which starts at byte `base` of its space."""

    def __init__(
        self, buf: Buffer, base: int = 0, focus: Focus = Focus(), rows: list[int] | None = None
    ) -> None:
        self.buf, self.base, self.focus = buf, base, focus
        self._rows = [0] if rows is None else rows
        """The number of rows so far, including inner spaces."""

    def all(
        self, kind: Type, at: int, end: int, scope: Scope | None = None, name: str = "", *, rows: bool = False
    ) -> list[Node]:
        """Explain `buf[at:end]` as one value of this type, followed by other bytes."""
        node = self.node(kind, at, end, scope or {}, name or kind.label(), rows=rows)
        return [node, *self.rest(node.end - self.base, end)]

    def rest(self, at: int, end: int, why: str = "no field covers these bytes") -> list[Node]:
        """Return nodes for bytes that no field covers."""
        if at >= end:
            return []
        data = np.frombuffer(self.buf, np.uint8, end - at, at)
        if not data.any():
            return [self.padding(at, end, f"{end - at} zero bytes")]
        return [Node(UNEXPLAINED, self.base + at, self.base + end, UNEXPLAINED, bytes(self.buf[at:end]), why)]

    def padding(self, at: int, end: int, meaning: str) -> Node:
        """Return a node for padding."""
        return Node(PADDING, self.base + at, self.base + end, PADDING, bytes(self.buf[at:end]), meaning)

    def node(
        self, kind: Type, at: int, end: int, scope: Scope, name: str, doc: str = "", *, rows: bool = False
    ) -> Node:
        """Explain one value of this type at `at`, which must not exceed `end`. `rows`: the items of the list are rows."""
        try:
            while isinstance(kind, Switch | Either):
                kind = kind.of(self.buf, at, end, scope)
            if isinstance(kind, Struct):
                return self._struct(kind, at, end, scope, name, doc)
            if isinstance(kind, Repeated):
                return self._list(kind, at, end, scope, name, doc, rows)
            if isinstance(kind, Enclosed):
                return self._enclosed(kind, at, end, scope, name, doc)
            if isinstance(kind, Bytes) and isinstance(kind.length, Type):
                return self._measured(kind, kind.length, at, end, scope, name, doc)
            value, stop = kind.unpack(self.buf, at, end, scope)
        except DescriptionError as error:
            return self._broken(kind, at, end, name, doc, error)
        return self._leaf(kind, at, stop, value, name, doc)

    def _leaf(self, kind: Type, at: int, stop: int, value: Any, name: str, doc: str) -> Node:
        node = Node(
            name, self.base + at, self.base + stop, _kind(kind), value, kind.meaning(value), doc, kind.label()
        )
        if isinstance(kind, Flags):
            node.bits = tuple(_bits(kind, value))
        return node

    def _broken(self, kind: Type, at: int, end: int, name: str, doc: str, error: DescriptionError) -> Node:
        """Return a node for bytes that are not a value of this type."""
        data = bytes(self.buf[at:end])
        return Node(
            name, self.base + at, self.base + end, UNEXPLAINED, data, "", doc, kind.label(),
            problem=error.message, broken=True,
        )  # fmt: skip

    def _measured(
        self, kind: Bytes, length: Type, at: int, end: int, scope: Scope, name: str, doc: str
    ) -> Node:
        """Explain bytes with a length prefix."""
        node = Node(name, self.base + at, self.base + end, _kind(kind), None, "", doc, kind.label())
        prefix, start = self._prefix(length, at, end, scope, "length", node)
        try:
            value, stop = kind.unpack(self.buf, at, end, scope)
        except DescriptionError as error:
            return self._wrong_length(node, prefix, start, end, error.message)
        node.value, node.end = value, self.base + stop
        if value is None:
            prefix.meaning = "null"
        else:
            node.meaning = kind.meaning(value)
            node.children.append(self._leaf(kind, start, stop, value, "data", ""))
        return node

    def _enclosed(self, kind: Enclosed, at: int, end: int, scope: Scope, name: str, doc: str) -> Node:
        """Explain a value with a length prefix."""
        node = Node(name, self.base + at, self.base + end, "struct", None, "", doc, kind.label())
        prefix, start = self._prefix(kind.length, at, end, scope, "length", node)
        if not 0 <= prefix.value <= end - start:
            text = f"expected {plural.count(prefix.value, 'more byte')}, found {end - start}"
            return self._wrong_length(node, prefix, start, end, text)
        node.end = self.base + start + prefix.value
        node.children += self.all(kind.item, start, start + prefix.value, scope)
        return node

    def _prefix(
        self, kind: Type, at: int, end: int, scope: Scope, name: str, parent: Node
    ) -> tuple[Node, int]:
        """Add the length or count in front of a value, and return it and its end."""
        value, stop = kind.unpack(self.buf, at, end, scope)
        prefix = self._leaf(kind, at, stop, value, name, "")
        prefix.role = "length"
        parent.children.append(prefix)
        return prefix, stop

    def _wrong_length(self, node: Node, prefix: Node, start: int, end: int, problem: str) -> Node:
        prefix.problem, node.broken = problem, True
        node.children += self.rest(start, end, "does not match the stored length")
        return node

    # Structures

    def _struct(self, kind: Struct, at: int, end: int, scope: Scope, name: str, doc: str) -> Node:
        inner: Scope = {OUTER: scope}
        node = Node(
            name, self.base + at, self.base + end, "struct", None, "", doc or kind.doc, kind.name, kind.source
        )
        stop = end
        children: dict[str, Node] = {}
        for each in kind.fields:
            try:
                room = kind.room(each, self.buf, at, stop, inner)
                child = self._field(each, at, room, inner)
            except DescriptionError as error:
                child = self._broken(each.type, at, stop, each.name, each.doc, error)
            if child.type != _ABSENT:
                node.children.append(child)
            children[each.name] = child
            at = child.end - self.base
            if child.broken:
                # If the structure's end is known, the bytes after it can still be explained.
                node.broken = stop == end
                break
            if each.sizes:
                size = inner[each.name]
                if 0 <= size <= stop - at:
                    stop = at + size
                else:
                    child.problem = f"expected {plural.count(size, 'more byte')}, found {stop - at}"
                    node.broken = True
        sized = any(each.sizes for each in kind.fields)
        if (sized or node.broken) and at < stop:
            node.children += self.rest(at, stop, f"unused bytes at the end of {kind.name}")
            at = stop
        node.end = self.base + at
        readable = [each for each in kind.fields if each.name in children and not children[each.name].broken]
        for each in readable:
            if each.holds is not None:
                self._open(each, each.holds, children[each.name], inner)
        self._checksums(readable, children, at)
        size = node.end - node.start
        for each in readable:
            child = children[each.name]
            if each.measures and not node.broken and child.value != size:
                child.problem = f"expected {size}, found {child.value}"
        return node

    def _field(self, field: Field, at: int, end: int, scope: Scope) -> Node:
        child = self.node(field.type, at, end, scope, field.name, field.doc, rows=field.rows)
        if child.broken:
            return child
        scope[field.name] = child.value
        if child.value is None and child.children:
            scope[field.name] = {inner.name: inner.value for inner in child.children}
        if field.sizes or field.measures:
            child.role = "length"
        if field.checksum:
            child.role = "checksum"
        if field.only is not None and child.value != field.only:
            child.problem = f"expected {_plain(field.only)}, found {_plain(child.value)}"
        if field.says is not None:
            child.meaning = field.says(child.value, scope) or child.meaning
        return child

    def _checksums(self, readable: Sequence[Field], children: dict[str, Node], end: int) -> None:
        names = {each.name for each in readable}
        for each in readable:
            if each.checksum is None or not {each.checksum[1], each.until or each.name} <= names:
                continue
            algorithm, first = each.checksum
            node = children[each.name]
            low = children[first].start - self.base
            last = children[each.until].end - self.base if each.until else end
            high = last if low >= node.end - self.base else node.start - self.base
            computed = algorithm(bytes(self.buf[low:high]))
            node.check = Check(node.value, computed, self.base + low, self.base + high)
            if not node.check.right:
                node.problem = f"checksum mismatch: stored {_hex(node.value)}, computed {_hex(computed)}"
                self._find_flip(algorithm, node, node.check, children)

    def _find_flip(
        self, algorithm: Callable[[bytes], int], node: Node, check: Check, children: dict[str, Node]
    ) -> None:
        """Report the single bit whose flip would explain a checksum mismatch."""
        flip = find_flipped_bit(algorithm, check.stored, check.computed, check.end - check.start)
        if flip is None:
            return
        position, bit = check.start + flip[0], flip[1]
        if position == check.end:
            node.problem += f". Only bit {bit} of the checksum itself differs"
            return
        node.problem += f". Flipping bit {bit} of byte {position} would fix it"
        for child in children.values():
            for leaf in child.leaves():
                if leaf.start <= position < leaf.end and not leaf.problem:
                    leaf.problem = f"bit {bit} of byte {position} is flipped, according to the checksum: {self.right(leaf, position, bit)}"

    def right(self, leaf: Node, position: int, bit: int) -> str:
        """Return the stored and the correct value of a leaf with a flipped bit; of the byte alone, if it is not a fixed-width integer."""
        raw = bytes(self.buf[leaf.start - self.base : leaf.end - self.base])
        fixed = bytearray(raw)
        at = position - leaf.start
        fixed[at] ^= 1 << bit
        if leaf.kind in ("int", "flags"):
            for order, signed in (("big", True), ("big", False), ("little", True), ("little", False)):
                if int.from_bytes(raw, order, signed=signed) == leaf.value:  # type: ignore[arg-type]
                    right = int.from_bytes(fixed, order, signed=signed)  # type: ignore[arg-type]
                    return f"stored {leaf.value}, correct {right}"
        return f"stored {raw[at]:#04x}, correct {fixed[at]:#04x}"

    def _open(self, field: Field, content: Content, node: Node, scope: Scope) -> None:
        """Explain the content of a bytes field."""
        if node.value is None:
            return
        try:
            kind = content.kind
            holder = node.children[-1] if node.children else node
            at, end = holder.start - self.base, holder.end - self.base
            if content.plain(scope):
                name = node.name if isinstance(kind, Repeated) else ""
                holder.children = self.all(kind, at, end, scope, name, rows=field.rows)
                return
            data = content.unpacked(bytes(self.buf[at:end]), scope, self.focus.limit)
            if data is None:
                return
        except DescriptionError as error:
            node.problem = error.message
            return
        node.space = self.space(node, data, "unpacked", kind, scope, rows=field.rows)

    def space(
        self,
        node: Node,
        data: bytes,
        origin: str,
        kind: Type,
        scope: Scope | None = None,
        gathered: tuple[tuple[int, int], ...] = (),
        *,
        rows: bool = False,
    ) -> Space:
        """Explain the content of a node as one value of this type."""
        inner = Explainer(data, 0, self.focus.inside(node.start), self._rows)
        name = node.name if isinstance(kind, Repeated) else ""
        nodes = inner.all(kind, 0, len(data), scope, name, rows=rows)
        return Space(node.start, data, origin, nodes, gathered)

    # Lists

    def _list(self, kind: Repeated, at: int, end: int, scope: Scope, name: str, doc: str, rows: bool) -> Node:
        node = Node(name, self.base + at, self.base + end, "list", None, "", doc, kind.label())
        count: int | None = None
        if isinstance(kind.count, Type):
            prefix, at = self._prefix(kind.count, at, end, scope, "count", node)
            count = int(prefix.value)
        elif kind.count != "rest":
            count = int(scope[kind.count])
        if count is not None and count < 0 and kind.null is not None:
            node.meaning = "null" if count == kind.null else "no items"
            node.end = self.base + at
            return node
        if count is not None and not 0 <= count <= end - at:
            node.problem = f"count {count}, but {plural.count(end - at, 'byte')} left"
            node.broken = True
            node.children += self.rest(at, end)
            return node
        done = self._items(kind, at, end, scope, count, node, rows)
        node.end = node.children[-1].end if node.children else self.base + at
        node.value = done
        node.meaning = f"{done} item{'' if done == 1 else 's'}"
        if node.broken and count is not None and not node.problem:
            node.problem = f"count {count}, but only {node.meaning} can be read"
        return node

    def _items(
        self, kind: Repeated, at: int, end: int, scope: Scope, count: int | None, parent: Node, rows: bool
    ) -> int:
        """Add the items to `parent`; each run of items that are not shown is one node. Returns the number of items."""
        done = skipped = 0
        left = self.focus.items
        first = at
        label = parent.name
        after = 0
        while kind.more(self.buf, at, end) if count is None else (done < count):
            room = min(at + kind.every, end) if kind.every else end
            is_row = rows and not (kind.blank and self.buf[at : at + len(kind.blank)] == kind.blank)
            row = self._rows[0] if is_row else None
            if left <= 0 and not after:
                # Skip the item unless it is the requested one.
                try:
                    stop = kind.item.unpack(self.buf, at, room, scope)[1]
                    stop = room if kind.every else stop
                except DescriptionError:
                    left = 1
                    continue
                if self._requested(at, stop, row):
                    after = _AROUND + 1
                    continue
                if not skipped:
                    first = at
                skipped += 1
                self._rows[0] += is_row
            else:
                if skipped:
                    parent.children.append(self._skipped(label, done - skipped, skipped, first, at))
                    skipped = 0
                item = self.node(kind.item, at, room, scope, f"[{done}]", "")
                if kind.every:
                    item.children += self.rest(item.end - self.base, room)
                    item.end = self.base + room
                if item.broken and item.end <= item.start:
                    parent.broken = True
                    break
                item.row = row
                parent.children.append(item)
                self._rows[0] += is_row
                left -= 1
                after = max(after - 1, 0)
                stop = item.end - self.base
                if item.broken:
                    parent.broken = True
                    break
            if stop == at and count is None:
                break
            at, done = stop, done + 1
        if skipped:
            parent.children.append(self._skipped(label, done - skipped, skipped, first, at))
        return done

    def _requested(self, at: int, stop: int, row: int | None) -> bool:
        asked = self.focus.at[0] - self.base if self.focus.at else -1
        return at <= asked < stop or (row is not None and row == self.focus.row)

    def _skipped(self, name: str, first: int, count: int, at: int, end: int) -> Node:
        return Node(
            f"[{first}..{first + count - 1}]", self.base + at, self.base + end, SKIPPED, bytes(self.buf[at:end]),
            f"{count} more {name}, not shown", type="skipped",
        )  # fmt: skip


def _kind(kind: Type) -> str:
    if isinstance(kind, Flags):
        return "flags"
    if isinstance(kind, IntType):
        return "int"
    if isinstance(kind, Varint):
        return "varint"
    return "text" if getattr(kind, "text", False) else "bytes"


def _bits(kind: Flags, value: int) -> Iterator[Bits]:
    known = 0
    for bit in kind.bits:
        part = bit.of(value)
        known |= bit.mask
        yield Bits(
            bit.name, bit.low, bit.count, part, (bit.values or {}).get(part, ""), bit.doc, kind.base.width
        )
    size = 8 * kind.base.width
    left = value & ~known & (1 << size) - 1
    for low in range(size):
        if left >> low & 1:
            yield Bits(f"bit {low}", low, 1, 1, "", "unknown", kind.base.width)


def _plain(value: Any) -> str:
    return value.hex(" ") if isinstance(value, bytes) else str(value)


def _hex(value: int) -> str:
    return f"{value:#010x}"


def explain_values(
    structure: Type | None, window: Window, focus: Focus, *, single: bool = False
) -> list[Node]:
    """Explain a window as consecutive values of one type, or with `single`, as a single value."""
    data = window.data.tobytes()
    explainer = Explainer(data, window.offset, focus)
    nodes: list[Node] = []
    at, end = 0, len(data)
    # Zeros at the end of consecutive values are padding.
    used = end if single else 1 + int(np.flatnonzero(window.data).max(initial=-1))
    while structure is not None and at < used and len(nodes) < (1 if single else focus.items):
        node = explainer.node(structure, at, end, {}, structure.label())
        nodes.append(node)
        if node.end - window.offset <= at:
            break
        at = node.end - window.offset
    return [*nodes, *explainer.rest(at, end)]
