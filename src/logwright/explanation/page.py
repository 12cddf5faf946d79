"""The explanation as a self-contained page: it opens from disk, loads nothing, and runs only its own script.

Bytes and fields are data in it, not markup: content of the file is only shown as text (`page.js` creates elements, never
HTML). Fields are columns of numbers and a table of strings: some hundred thousand of them take a few megabytes. The page
draws only the visible ones.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from logwright.codec.explain import Node, Space
from logwright.explanation.value import short, summary
from logwright.formats.text import escape
from logwright.readers.explain import Explained, Piece

_VALUE = 240
"""The number of characters of a value in the page. All of its bytes are included."""
_COLUMNS = ("depth", "space", "start", "length", "kind", "name", "value", "meaning", "doc", "type", "problem")


def page(explained: Explained) -> str:
    """Return the page."""
    builder = _Data()
    for piece in explained.pieces:
        builder.piece(piece)
    data = {
        "path": escape(explained.path),
        "codec": explained.codec.name,
        "title": explained.codec.title,
        "size": explained.size,
        "notes": [escape(note) for note in explained.notes],
        "strings": [escape(string) for string in builder.strings],
        "nodes": {name: builder.columns[name] for name in _COLUMNS},
        "more": builder.more,
        "spaces": builder.finished(),
        "focus": list(explained.focus),
        "row": next((item.row for item in explained.pieces if item.row is not None), None),
    }
    # Within a script element only "</" and "<!--" are special.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    home = resources.files("logwright.explanation")
    style, script, frame = (
        (home / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "page.html")
    )
    name = explained.path.rstrip("/").rpartition("/")[2]
    # External text is inserted last, so that placeholders in it are not replaced.
    before, after = frame.split("__DATA__")
    before = before.replace("__STYLE_HASH__", _hash(style)).replace("__SCRIPT_HASH__", _hash(script))
    before = before.replace("__STYLE__", style)
    before = before.replace("__TITLE__", html.escape(escape(f"{name}: {explained.codec.name}")))
    return before + text + after.replace("__SCRIPT__", script)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _troubled(node: Node) -> bool:
    """Return whether a node, or one inside of it, has a problem."""
    inside = (*node.children, *(node.space.nodes if node.space is not None else ()))
    return bool(node.problem) or any(map(_troubled, inside))


@dataclass
class _Data:
    """Nodes as columns, depth first; strings by number."""

    columns: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    more: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Rare attributes of nodes, by node number."""
    spaces: list[dict[str, Any]] = field(
        default_factory=lambda: [{"node": -1, "around": -1, "start": 0, "how": "", "ranges": [], "bytes": []}]
    )
    """The spaces. The first is the file."""

    def piece(self, piece: Piece) -> None:
        """Add a range of the file and its nodes."""
        file = self.spaces[0]
        kind = "damage" if piece.damaged else "piece"
        file["ranges"].append([piece.start, len(piece.data)])
        file["bytes"].append(piece.data)
        faults = [finding for finding in (piece.fault, *piece.findings) if finding is not None]
        depth = 0
        if faults or len(piece.nodes) != 1 or piece.unread:
            name = f"bytes {piece.start} to {piece.stop - 1}"
            text = "; ".join(fault.detail for fault in faults)
            grave = piece.damaged or any(fault.severity == "error" for fault in faults)
            # A problem that fields of the range show is counted there.
            problem = text if grave and not any(map(_troubled, piece.nodes)) else ""
            i = self._add(
                0, 0, piece.start, len(piece.data), kind, name, "", "" if problem else text, "", "", problem
            )
            systems = [fault.system for fault in faults if fault.system]
            if systems:
                self.more[i] = {"system": escape(systems[0])}
            depth = 1
        for node in piece.nodes:
            self._node(node, depth, 0)

    def _node(self, node: Node, depth: int, space: int) -> None:
        kind = node.role if node.role in ("checksum", "length") and not node.children else node.kind
        i = self._add(
            depth,
            space,
            node.start,
            node.end - node.start,
            kind,
            node.name,
            short(node, _VALUE),
            (node.meaning or (summary(node) if node.kind == "struct" else "")) if node.kind != "text" else "",
            node.doc,
            node.type,
            node.problem,
        )
        more: dict[str, Any] = {}
        if node.source:
            more["source"] = node.source
        if node.row is not None:
            more["row"] = node.row
        if node.bits:
            more["bits"] = [[b.name, b.pattern(), str(b.value), b.meaning or b.doc] for b in node.bits]
        if node.check is not None:
            check = node.check
            more["check"] = [
                f"{check.stored:#010x}",
                f"{check.computed:#010x}",
                check.start,
                check.end,
                check.right,
            ]
        for child in node.children:
            self._node(child, depth + 1, space)
        if node.space is not None:
            more["inside"] = len(self.spaces)
            self._space(node.space, i, depth + 1, space)
        if more:
            self.more[i] = more

    def _space(self, inner: Space, node: int, depth: int, around: int) -> None:
        number = len(self.spaces)
        self.spaces.append(
            {
                "node": node, "around": around, "start": inner.start, "how": inner.origin,
                "ranges": [[0, len(inner.data)]], "bytes": [inner.data], "from": list(inner.gathered),
            }
        )  # fmt: skip
        for item in inner.nodes:
            self._node(item, depth, number)

    def _add(
        self, depth: int, space: int, start: int, length: int,
        kind: str, name: str, value: str, meaning: str, doc: str, label: str, problem: str,
    ) -> int:  # fmt: skip
        texts = map(self._string, (kind, name, value, meaning, doc, label, problem))
        for column, item in zip(self.columns.values(), (depth, space, start, length, *texts), strict=True):
            column.append(item)
        return len(self.columns["depth"]) - 1

    def _string(self, text: str) -> int:
        number = self.strings.get(text)
        if number is None:
            number = self.strings[text] = len(self.strings)
        return number

    def finished(self) -> list[dict[str, Any]]:
        for space in self.spaces:
            space["bytes"] = base64.b64encode(b"".join(space["bytes"])).decode()
        return self.spaces
