"""The explanation as text for a terminal: a hex dump with one line per field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logwright.codec import plural
from logwright.codec.explain import PADDING, SKIPPED, UNEXPLAINED, Bits, Node, Space
from logwright.codec.fault import Fault, Severity
from logwright.explanation.value import cut, short, summary
from logwright.formats.text import escape
from logwright.readers.explain import Explained, Piece, spell

_BYTES = 8
"""The number of bytes per line."""
_LINES = 4
"""The maximum number of lines for the bytes of one field; a count of the rest follows."""
_NAME = 30
_VALUE = 24
_COLOURS = {
    "dim": "2",
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "magenta": "35",
}
_ITEM = re.compile(r"\[(\d+)(?:\.\.(\d+))?\]")
"""The name of an item of a list, or of several."""


def render(explained: Explained, *, colour: bool, items: int, width: int) -> str:
    """Return the text, one line per field."""
    return "\n".join(_Text(explained, colour, items, width).lines())


@dataclass
class _Text:
    explained: Explained
    colour: bool
    items: int
    width: int

    def lines(self) -> Iterator[str]:
        explained = self.explained
        size = plural.count(explained.size, "byte")
        yield f"{self._ink('bold', escape(explained.path))}  {explained.codec.name}: {explained.codec.title}, {size}"
        yield from (f"  {escape(note)}" for note in explained.notes)
        for piece in explained.pieces:
            yield ""
            yield from self._piece(piece)

    def _piece(self, piece: Piece) -> Iterator[str]:
        where = f"bytes {piece.start} to {piece.stop - 1} ({plural.count(piece.stop - piece.start, 'byte')})"
        if piece.fault is not None and piece.damaged:
            yield self._ink("red", f"DAMAGED  {where}: {piece.fault.kind}")
        else:
            yield self._ink("bold", where)
        if piece.fault is not None:
            yield from self._fault(piece.fault)
        for fault in piece.findings:
            yield from self._fault(fault)
        yield from self._nodes(piece.nodes, piece.data, piece.start, (), 0, piece)

    def _fault(self, fault: Fault) -> Iterator[str]:
        ink = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "dim"}[fault.severity]
        yield "  " + self._ink(ink, escape(fault.detail))
        if fault.system:
            yield "  " + self._ink("dim", escape(fault.system))

    def _nodes(
        self, nodes: Sequence[Node], data: bytes, base: int, around: tuple[int, ...], depth: int, piece: Piece,
        *, fields: bool = False,
    ) -> Iterator[str]:  # fmt: skip
        """Yield the lines of sibling nodes. Unless they are the `fields` of one structure, only the first and the requested ones are shown."""
        shown = 0
        passed: list[Node] = []
        for node in nodes:
            few = fields or shown < self.items or len(nodes) <= self.items + 1
            if node.kind != SKIPPED and (few or self._asked(node, around, piece)):
                yield from self._passed(passed, around, depth)
                passed = []
                shown += 1
                yield from self._node(node, data, base, around, depth, piece)
            else:
                passed.append(node)
        yield from self._passed(passed, around, depth)

    def _passed(self, nodes: Sequence[Node], around: tuple[int, ...], depth: int) -> Iterator[str]:
        if not nodes:
            return
        if len(nodes) == 1 and nodes[0].kind == SKIPPED:
            text = nodes[0].meaning
        else:
            # The last one may stand for several items of the list, such as "[20..133]".
            first, last = _ITEM.match(nodes[0].name), _ITEM.match(nodes[-1].name)
            number = int(last[2] or last[1]) - int(first[1]) + 1 if first and last else len(nodes)
            text = f"{number} more, not shown"
        size = nodes[-1].end - nodes[0].start
        name = f"{nodes[0].name} …" if nodes[0].name != nodes[-1].name else nodes[0].name
        yield self._line(
            _address(nodes[0].start, around), f"… {size:,} bytes", depth, name, "", text, ink="dim"
        )

    def _asked(self, node: Node, around: tuple[int, ...], piece: Piece) -> bool:
        """Return whether a node contains the requested position or row."""
        if piece.row is not None and any(each.row == piece.row for each in node.walk()):
            return True
        focus = self.explained.focus
        return focus[: len(around)] == around and len(focus) > len(around) and (
            node.start <= focus[len(around)] < node.end
        )  # fmt: skip

    def _node(
        self, node: Node, data: bytes, base: int, around: tuple[int, ...], depth: int, piece: Piece
    ) -> Iterator[str]:
        mark = self._marked(node, around, piece)
        address = _address(node.start, around)
        size = plural.count(node.end - node.start, "byte")
        if not node.children:
            yield from self._leaf(node, node.name, data, base, around, depth, mark)
        elif node.kind in ("bytes", "text") and len(node.children) <= 2 and node.children[0].role == "length":
            length = node.children[0]
            yield from self._leaf(length, f"{node.name}.length", data, base, around, depth, mark)
            for child in node.children[1:]:
                if child.children:
                    yield self._line(
                        _address(child.start, around),
                        "",
                        depth,
                        node.name,
                        short(node),
                        node.meaning,
                        ink="bold",
                    )
                    yield from self._nodes(child.children, data, base, around, depth + 1, piece)
                else:
                    yield from self._leaf(child, node.name, data, base, around, depth, False, node.doc)
        else:
            text = node.meaning or (summary(node) if node.kind == "struct" and depth else "") or node.doc
            name = (
                f"{node.name}  {node.type}" if node.kind == "struct" and node.name != node.type else node.name
            )
            yield self._line(address, size, depth, name, "", text, ink="bold", mark=mark)
            yield from self._problem(node, depth)
            fields = node.kind == "struct"
            yield from self._nodes(node.children, data, base, around, depth + 1, piece, fields=fields)
        if node.children and node.kind in ("bytes", "text"):
            yield from self._problem(node, depth)
        if node.space is not None:
            yield from self._space(node, node.space, around, depth, piece)

    def _space(
        self, node: Node, space: Space, around: tuple[int, ...], depth: int, piece: Piece
    ) -> Iterator[str]:
        here = (*around, space.start)
        text = f"{space.origin}: {plural.count(len(space.data), 'byte')}, from {spell((*here, 0))} on"
        yield self._line("", "", depth + 1, f"▼ {node.name}, {text}", "", "", ink="magenta")
        yield from self._nodes(space.nodes, space.data, 0, here, depth + 1, piece)

    def _leaf(
        self,
        node: Node,
        name: str,
        data: bytes,
        base: int,
        around: tuple[int, ...],
        depth: int,
        mark: bool,
        doc: str = "",
    ) -> Iterator[str]:
        raw = data[node.start - base : node.end - base]
        head = raw[: _LINES * _BYTES]
        rows = [head[i : i + _BYTES].hex(" ") for i in range(0, len(head), _BYTES)] or [""]
        text = (node.meaning if node.kind != "text" else "") or node.doc or doc
        ink = {PADDING: "dim", UNEXPLAINED: "yellow"}.get(node.kind, "")
        if node.check is not None:
            check = node.check
            covered = f"bytes {check.start} to {check.end - 1}" if check.end > check.start else "no bytes"
            text = f"correct, covers {covered}" if check.right else text
            ink = "green" if check.right else "red"
        if node.problem:
            ink = "red"
        size = plural.count(len(raw), "byte") if node.kind in (PADDING, UNEXPLAINED) else ""
        yield self._line(
            _address(node.start, around),
            rows[0],
            depth,
            name,
            size or short(node, _VALUE),
            text,
            ink=ink,
            mark=mark,
        )
        for i, row in enumerate(rows[1:], 1):
            yield self._line(_address(node.start + i * _BYTES, around), row, depth, "", "", "")
        if len(raw) > len(head):
            more = plural.count(len(raw) - len(head), "more byte")
            yield self._line("", f"… {more}", depth, "", "", "", ink="dim")
        yield from (self._bits(bit, depth + 1) for bit in node.bits)
        yield from self._problem(node, depth)

    def _bits(self, bits: Bits, depth: int) -> str:
        pattern = bits.pattern()
        if len(pattern) > 3 * _BYTES - 1:
            last = bits.low + bits.count - 1
            pattern = f"bit {last}" if bits.count == 1 else f"bits {bits.low}..{last}"
        return self._line("", pattern, depth, bits.name, str(bits.value), bits.meaning or bits.doc, ink="dim")

    def _problem(self, node: Node, depth: int) -> Iterator[str]:
        if node.problem:
            yield self._line("", "", depth, f"✗ {escape(node.problem)}", "", "", ink="red")

    def _marked(self, node: Node, around: tuple[int, ...], piece: Piece) -> bool:
        """Return whether the node is the requested row, or the innermost field of the requested byte."""
        if piece.row is not None:
            return node.row == piece.row
        focus = self.explained.focus
        if focus[:-1] != around or not focus or not node.start <= focus[-1] < node.end:
            return False
        holds = [child for child in node.children if child.start <= focus[-1] < child.end]
        return not holds or (node.kind in ("bytes", "text") and not holds[0].children)

    def _line(
        self, address: str, data: str, depth: int, name: str, value: str, text: str,
        *, ink: str = "", mark: bool = False,
    ) -> str:  # fmt: skip
        indent = "  " * min(depth, 10)
        left = f"{address:>10}  {data:<{3 * _BYTES - 1}}  "
        wide = max(_NAME, len(indent) + len(name)) if name and (value or text) else len(indent) + len(name)
        right = f"{indent}{name}".ljust(wide)
        if value or text:
            right += f" {value:<{_VALUE}}" if text and value else f" {value}".rstrip()
        room = self.width - len(left) - 2
        if text:
            free = room - len(right) - 1
            text = cut(escape(text), free) if free > 8 else ""
        if not text:
            right = right.rstrip()
        plain = f"{'►' if mark else ' '} {left if right else left.rstrip()}"
        if mark:
            plain = self._ink("cyan", plain)
        return plain + self._ink(ink, right) + (f" {self._ink(ink or 'dim', text)}" if text else "")

    def _ink(self, ink: str, text: str) -> str:
        return f"\x1b[{_COLOURS[ink]}m{text}\x1b[0m" if self.colour and ink and text else text


def _address(at: int, around: tuple[int, ...]) -> str:
    return f"+{at:07x}" if around else f"{at:08x}"
