"""What bytes mean, byte by byte: a tree of fields, made from the description of a structure.

Nothing is left out: the children of a node lie side by side and are all of it, what no field covers is a node of its own
("unexplained"), and bytes that don't fit their description end as much of the tree as they have to. So the bytes of the leaves, one
after the other, are the bytes that were given.

Bytes that hold others (compressed, or gathered from several places) have a `Space`: its bytes have addresses of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.describe import (
    Buffer,
    Bytes,
    Content,
    DescriptionError,
    Either,
    Enclosed,
    Field,
    Flags,
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
"""Kinds of nodes that are no fields: bytes that no field covers; items that are counted and not shown; bytes that fill a place."""
LIMIT = 256 << 20
"""Bytes that a space may have, where nothing else is said."""
_AROUND = 2
"""So many items before and behind the one that is asked for are shown, where not all are."""


@dataclass(frozen=True, slots=True)
class Check:
    """A checksum: what is stored, what the bytes have, and which bytes these are."""

    stored: int
    computed: int
    start: int
    end: int

    @property
    def right(self) -> bool:
        return self.stored == self.computed


@dataclass(frozen=True, slots=True)
class Bits:
    """Some bits of an integer of `width` bytes."""

    name: str
    low: int
    count: int
    value: int
    meaning: str
    doc: str
    width: int

    def pattern(self) -> str:
        """As people draw it: `.... .... ...1 ....`."""
        size = 8 * self.width
        digits = f"{self.value:0{self.count}b}"
        text = "." * (size - self.low - self.count) + digits + "." * self.low
        return " ".join(text[i : i + 4] for i in range(0, size, 4))


@dataclass(slots=True)
class Node:
    """Bytes `[start, end)` of a space and what they are."""

    name: str
    start: int
    end: int
    kind: str
    """struct, list, int, flags, varint, bytes, text, or one of those above."""
    value: Any = None
    meaning: str = ""
    doc: str = ""
    type: str = ""
    source: str = ""
    problem: str = ""
    """What is wrong with it."""
    broken: bool = False
    """It does not end where its description would have it end: what follows can't be understood."""
    children: list[Node] = field(default_factory=list)
    bits: tuple[Bits, ...] = ()
    check: Check | None = None
    space: Space | None = None
    """What it holds, unpacked."""
    row: int | None = None
    """It is the row of this number, of those in what was explained."""
    role: str = ""
    """checksum, length, or what the codec says."""

    def leaves(self) -> Iterator[Node]:
        """The nodes without children, in the order of their bytes."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def walk(self) -> Iterator[Node]:
        """This node and all below it in the same space."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class Space:
    """Bytes that lie nowhere as they are: unpacked, or gathered. `start` is where in the space around their node begins."""

    start: int
    data: bytes
    how: str
    nodes: list[Node] = field(default_factory=list)
    gathered: tuple[tuple[int, int], ...] = ()
    """Where the pieces lie in the space around that it is gathered from, one after the other."""


@dataclass(frozen=True)
class Focus:
    """What is asked for: a byte, `at[0]` of the file, then of the space that is there, and so on; or a row; or nothing in particular.

    `items`: so many of a list are shown, the others counted.
    """

    at: tuple[int, ...] = ()
    row: int | None = None
    items: int = 1000
    limit: int = LIMIT

    def inside(self, start: int) -> Focus:
        """For the space of the bytes that begin at `start`."""
        here = len(self.at) > 1 and self.at[0] == start
        return Focus(self.at[1:] if here else (), self.row, self.items, self.limit)


class Explainer:
    """Makes nodes from the bytes `buf`, the first of which is byte `base` of their space."""

    def __init__(
        self, buf: Buffer, base: int = 0, focus: Focus = Focus(), rows: list[int] | None = None
    ) -> None:
        self.buf, self.base, self.focus = buf, base, focus
        self._rows = [0] if rows is None else rows
        """How many were met, here and in the spaces within."""

    def all(
        self,
        kind: Type,
        at: int,
        end: int,
        scope: Scope | None = None,
        name: str = "",
        *,
        rows: bool = False,
    ) -> list[Node]:
        """All of `buf[at:end]` as one value of this type, and what it leaves over."""
        made = self.node(kind, at, end, scope or {}, name or kind.label(), rows=rows)
        return [made, *self.rest(made.end - self.base, end)]

    def rest(self, at: int, end: int, why: str = "no field covers these bytes") -> list[Node]:
        """What no field covers."""
        if at >= end:
            return []
        data = np.frombuffer(self.buf, np.uint8, end - at, at)
        if not data.any():
            return [self.padding(at, end, f"{end - at} zero bytes")]
        return [Node(UNEXPLAINED, self.base + at, self.base + end, UNEXPLAINED, bytes(self.buf[at:end]), why)]

    def padding(self, at: int, end: int, meaning: str) -> Node:
        """Bytes that only fill a place."""
        return Node(PADDING, self.base + at, self.base + end, PADDING, bytes(self.buf[at:end]), meaning)

    def node(
        self, kind: Type, at: int, end: int, scope: Scope, name: str, doc: str = "", *, rows: bool = False
    ) -> Node:
        """One value of this type at `at`, which has to end at `end`. `rows`: where it is a list, its items are the rows."""
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
        made = Node(
            name, self.base + at, self.base + stop, _kind(kind), value, kind.meaning(value), doc, kind.label()
        )
        if isinstance(kind, Flags):
            made.bits = tuple(_bits(kind, value))
        return made

    def _broken(self, kind: Type, at: int, end: int, name: str, doc: str, error: DescriptionError) -> Node:
        """What was to be a value of this type, and is not."""
        data = bytes(self.buf[at:end])
        return Node(
            name, self.base + at, self.base + end, UNEXPLAINED, data, "", doc, kind.label(),
            problem=error.message, broken=True,
        )  # fmt: skip

    def _measured(
        self, kind: Bytes, length: Type, at: int, end: int, scope: Scope, name: str, doc: str
    ) -> Node:
        """A length, and so many bytes."""
        made = Node(name, self.base + at, self.base + end, _kind(kind), None, "", doc, kind.label())
        size, start = length.unpack(self.buf, at, end, scope)
        before = self._leaf(length, at, start, size, "length", "")
        before.role = "length"
        made.children.append(before)
        try:
            value, stop = kind.unpack(self.buf, at, end, scope)
        except DescriptionError as error:
            before.problem = error.message
            made.broken = True
            made.children += self.rest(start, end, "not of the length that is said")
            return made
        made.value, made.end = value, self.base + stop
        if value is None:
            before.meaning = "null"
        else:
            made.meaning = kind.meaning(value)
            made.children.append(self._leaf(kind, start, stop, value, "data", ""))
        return made

    def _enclosed(self, kind: Enclosed, at: int, end: int, scope: Scope, name: str, doc: str) -> Node:
        """A length, and something that is all of so many bytes."""
        made = Node(name, self.base + at, self.base + end, "struct", None, "", doc, kind.label())
        size, start = kind.length.unpack(self.buf, at, end, scope)
        before = self._leaf(kind.length, at, start, size, "length", "")
        before.role = "length"
        made.children.append(before)
        if not 0 <= size <= end - start:
            before.problem = f"{size} bytes should follow, there are {end - start}"
            made.broken = True
            made.children += self.rest(start, end, "not of the length that is said")
            return made
        made.end = self.base + start + size
        made.children += self.all(kind.item, start, start + size, scope)
        return made

    # Structures

    def _struct(self, kind: Struct, at: int, end: int, scope: Scope, name: str, doc: str) -> Node:
        inner: Scope = {OUTER: scope}
        made = Node(
            name, self.base + at, self.base + end, "struct", None, "", doc or kind.doc, kind.name, kind.source
        )
        stop = end
        there: dict[str, Node] = {}
        for one in kind.fields:
            try:
                room = kind.room(one, self.buf, at, stop, inner)
                child = self._field(one, at, room, inner)
            except DescriptionError as error:
                child = self._broken(one.type, at, stop, one.name, one.doc, error)
            made.children.append(child)
            there[one.name] = child
            at = child.end - self.base
            if child.broken:
                # Up to where the structure is said to end, it is of no use; behind that, all may be well.
                made.broken = stop == end
                break
            if one.sizes:
                size = inner[one.name]
                if 0 <= size <= stop - at:
                    stop = at + size
                else:
                    child.problem = f"{size} bytes should follow, there are {stop - at}"
                    made.broken = True
        sized = any(one.sizes for one in kind.fields)
        if (sized or made.broken) and at < stop:
            left = self.rest(at, stop, f"left over at the end of {kind.name}")
            made.children += left
            at = stop
        made.end = self.base + at
        for one in kind.fields:
            if one.holds is not None and one.name in there and not there[one.name].broken:
                self._open(one, one.holds, there[one.name], inner)
        self._checksums(kind, there, at)
        for one in kind.fields:
            if (
                one.measures
                and one.name in there
                and not made.broken
                and there[one.name].value != made.end - made.start
            ):
                there[
                    one.name
                ].problem = f"{made.end - made.start} is expected, {there[one.name].value} found"
        return made

    def _field(self, one: Field, at: int, end: int, scope: Scope) -> Node:
        child = self.node(one.type, at, end, scope, one.name, one.doc, rows=one.rows)
        if child.broken:
            return child
        scope[one.name] = child.value
        if one.sizes or one.measures:
            child.role = "length"
        if one.checksum:
            child.role = "checksum"
        if one.only is not None and child.value != one.only:
            child.problem = f"{_plain(one.only)} is expected, {_plain(child.value)} found"
        if one.says is not None:
            child.meaning = one.says(child.value, scope) or child.meaning
        return child

    def _checksums(self, kind: Struct, there: dict[str, Node], end: int) -> None:
        for one in kind.fields:
            if one.checksum is None or one.name not in there or there[one.name].broken:
                continue
            algorithm, first = one.checksum
            node = there[one.name]
            if first not in there or there[first].broken:
                continue
            low = there[first].start - self.base
            if one.until and (one.until not in there or there[one.until].broken):
                continue
            last = there[one.until].end - self.base if one.until else end
            high = last if low >= node.end - self.base else node.start - self.base
            computed = algorithm(bytes(self.buf[low:high]))
            node.check = Check(node.value, computed, self.base + low, self.base + high)
            if not node.check.right:
                node.problem = f"{_hex(computed)} is expected, {_hex(node.value)} found"
                self._find_flip(algorithm, node, node.check, there)

    def _find_flip(
        self, algorithm: Callable[[bytes], int], node: Node, check: Check, there: dict[str, Node]
    ) -> None:
        """Where a single bit makes a checksum wrong, say which."""
        found = find_flipped_bit(algorithm, check.stored, check.computed, check.end - check.start)
        if found is None:
            return
        place, bit = check.start + found[0], found[1]
        if place == check.end:
            node.problem += f": bit {bit} of the checksum itself is turned over"
            return
        node.problem += f": right with bit {bit} of byte {place} turned over"
        for one in there.values():
            for leaf in one.leaves():
                if leaf.start <= place < leaf.end and not leaf.problem:
                    leaf.problem = f"bit {bit} of byte {place} is turned over, says the checksum"

    def _open(self, one: Field, content: Content, node: Node, scope: Scope) -> None:
        """What lies in the bytes of a node."""
        if node.value is None:
            return
        try:
            kind = content.kind
            holder = node.children[-1] if node.children else node
            at, end = holder.start - self.base, holder.end - self.base
            if content.plain(scope):
                name = node.name if isinstance(kind, Repeated) else ""
                holder.children = self.all(kind, at, end, scope, name, rows=one.rows)
                return
            data = content.unpacked(bytes(self.buf[at:end]), scope, self.focus.limit)
            if data is None:
                return
        except DescriptionError as error:
            node.problem = error.message
            return
        node.space = self.space(node, data, "unpacked", kind, scope, rows=one.rows)

    def space(
        self,
        node: Node,
        data: bytes,
        how: str,
        kind: Type,
        scope: Scope | None = None,
        gathered: tuple[tuple[int, int], ...] = (),
        *,
        rows: bool = False,
    ) -> Space:
        """The bytes that a node holds, explained as one value of this type."""
        inner = Explainer(data, 0, self.focus.inside(node.start), self._rows)
        name = node.name if isinstance(kind, Repeated) else ""
        nodes = inner.all(kind, 0, len(data), scope, name, rows=rows)
        return Space(node.start, data, how, nodes, gathered)

    # Lists

    def _list(self, kind: Repeated, at: int, end: int, scope: Scope, name: str, doc: str, rows: bool) -> Node:
        made = Node(name, self.base + at, self.base + end, "list", None, "", doc, kind.label())
        count: int | None = None
        if isinstance(kind.count, Type):
            count, start = kind.count.unpack(self.buf, at, end, scope)
            before = self._leaf(kind.count, at, start, count, "count", "")
            before.role = "length"
            made.children.append(before)
            at = start
        elif kind.count != "rest":
            count = int(scope[kind.count])
        if count is not None and count < 0 and kind.null is not None:
            made.meaning = "null" if count == kind.null else "no items"
            made.end = self.base + at
            return made
        if count is not None and not 0 <= count <= end - at:
            made.problem = f"{count} are announced, {end - at} bytes are left"
            made.broken = True
            made.children += self.rest(at, end)
            return made
        done = self._items(kind, at, end, scope, count, made, rows)
        made.end = made.children[-1].end if made.children else self.base + at
        made.value = done
        made.meaning = f"{done} item{'' if done == 1 else 's'}"
        if made.broken and count is not None and not made.problem:
            made.problem = f"{count} are announced, {done} can be read"
        return made

    def _items(
        self, kind: Repeated, at: int, end: int, scope: Scope, count: int | None, made: Node, rows: bool
    ) -> int:
        """The items, those that are not shown as one node. Returns how many there are."""
        done = skipped = 0
        left = self.focus.items
        first = at
        label = made.name
        after = 0
        while kind.more(self.buf, at, end) if count is None else (done < count):
            room = min(at + kind.every, end) if kind.every else end
            row = self._rows[0] if rows else None
            if left <= 0 and not after:
                # Passed over, unless it turns out to be what was asked for.
                try:
                    stop = kind.item.unpack(self.buf, at, room, scope)[1]
                    stop = room if kind.every else stop
                except DescriptionError:
                    left = 1
                    continue
                if self._wanted(at, stop, row):
                    after = _AROUND + 1
                    continue
                if not skipped:
                    first = at
                skipped += 1
                self._rows[0] += rows
            else:
                if skipped:
                    made.children.append(self._skipped(label, done - skipped, skipped, first, at))
                    skipped = 0
                item = self.node(kind.item, at, room, scope, f"[{done}]", "")
                if kind.every:
                    item.children += self.rest(item.end - self.base, room)
                    item.end = self.base + room
                if item.broken and item.end <= item.start:
                    made.broken = True
                    break
                item.row = row
                made.children.append(item)
                self._rows[0] += rows
                left -= 1
                after = max(after - 1, 0)
                stop = item.end - self.base
                if item.broken:
                    made.broken = True
                    break
            if stop == at and count is None:
                break
            at, done = stop, done + 1
        if skipped:
            made.children.append(self._skipped(label, done - skipped, skipped, first, at))
        return done

    def _wanted(self, at: int, stop: int, row: int | None) -> bool:
        asked = self.focus.at[0] - self.base if self.focus.at else -1
        return at <= asked < stop or (row is not None and row == self.focus.row)

    def _skipped(self, name: str, first: int, count: int, at: int, end: int) -> Node:
        return Node(
            f"[{first}..{first + count - 1}]", self.base + at, self.base + end, SKIPPED, bytes(self.buf[at:end]),
            f"{count} more {name}, not shown one by one", type="skipped",
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


# What codecs make of it


def explain_values(
    structure: Type | None, window: Window, focus: Focus, *, one: bool = False, name: str = ""
) -> list[Node]:
    """A stretch of a file, made of nothing but values of one type, as far as it is: the window is all of it.

    With `one`, of one value.
    """
    data = window.data.tobytes()
    explainer = Explainer(data, window.offset, focus)
    nodes: list[Node] = []
    at, end = 0, len(data)
    # Zeros to the end are no values, but in what is known to be one.
    used = end if one else 1 + int(np.flatnonzero(window.data).max(initial=-1))
    while structure is not None and at < used and len(nodes) < (1 if one else focus.items):
        made = explainer.node(structure, at, end, {}, name or structure.label())
        nodes.append(made)
        if made.end - window.offset <= at:
            break
        at = made.end - window.offset
    return [*nodes, *explainer.rest(at, end)]


def joined(nodes: Sequence[Node], data: Buffer, base: int) -> bytes:
    """The bytes of the leaves, one after the other: those that were given."""
    return b"".join(
        bytes(data[leaf.start - base : leaf.end - base]) for node in nodes for leaf in node.leaves()
    )
