"""The explanation of a file's bytes, as text for a terminal, as an HTML page, and as data for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from logwright.codec.explain import Node, Space
from logwright.codec.fault import Severity
from logwright.explanation import value
from logwright.readers.explain import Explained, Piece, spell

VERSION = 1


class Explanation:
    """A range of a file and every field in it. `str()` is text for a terminal; `html()` is a self-contained page."""

    def __init__(self, explained: Explained) -> None:
        self.explained = explained

    @property
    def path(self) -> str:
        return self.explained.path

    @property
    def codec(self) -> str:
        """The name of the file's codec."""
        return self.explained.codec.name

    @property
    def pieces(self) -> list[Piece]:
        """The explained ranges: frames, damage, and other bytes."""
        return self.explained.pieces

    @property
    def problems(self) -> int:
        """The number of problems in the shown range."""
        return sum(1 for _ in self._problems())

    def text(self, *, colour: bool = False, items: int = 16, width: int = 118) -> str:
        """Return text for a terminal. `items`: the number of items shown of a longer list, plus those around the requested one."""
        from logwright.explanation.text import render

        return render(self.explained, colour=colour, items=items, width=width)

    def html(self) -> str:
        """Return a self-contained page: bytes on one side, fields on the other."""
        from logwright.explanation.page import page

        return page(self.explained)

    def to_dict(self) -> dict[str, Any]:
        explained = self.explained
        return {
            "explain": VERSION,
            "path": explained.path,
            "codec": explained.codec.name,
            "title": explained.codec.title,
            "bytes": explained.size,
            "focus": spell(explained.focus) if explained.focus else None,
            "pieces": [_piece(piece) for piece in explained.pieces],
            "notes": list(explained.notes),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        shown = ", ".join(f"{piece.start}..{piece.stop}" for piece in self.pieces[:3])
        return f"<Explanation {self.path}: {shown}{', ...' if len(self.pieces) > 3 else ''}>"

    def _problems(self) -> Iterator[str]:
        for piece in self.pieces:
            faults = [*piece.findings] if piece.fault is None else [piece.fault, *piece.findings]
            yield from (fault.detail for fault in faults if fault.severity is not Severity.INFO)
            for node in piece.nodes:
                yield from _problems(node)


def _problems(node: Node) -> Iterator[str]:
    if node.problem:
        yield node.problem
    for child in (*node.children, *(node.space.nodes if node.space is not None else ())):
        yield from _problems(child)


def _piece(piece: Piece) -> dict[str, Any]:
    kind = "frame" if piece.frame else "damage" if piece.damaged else "other"
    out: dict[str, Any] = {"offset": piece.start, "length": piece.stop - piece.start, "kind": kind}
    if piece.row is not None:
        out["row"] = piece.row
    faults = [finding.to_dict() for finding in (piece.fault, *piece.findings) if finding is not None]
    if faults:
        out["faults"] = faults
    out["fields"] = [_node(node, piece.data, piece.start, ()) for node in piece.nodes]
    return out


def _node(node: Node, data: bytes, base: int, around: tuple[int, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": node.name,
        "kind": node.kind,
        "type": node.type,
        "at": spell((*around, node.start)),
        "offset": node.start,
        "length": node.end - node.start,
    }
    for name in ("meaning", "doc", "source", "role", "problem"):
        if getattr(node, name):
            out[name] = getattr(node, name)
    if node.row is not None:
        out["row"] = node.row
    if node.children:
        out["fields"] = [_node(child, data, base, around) for child in node.children]
    else:
        out["raw"] = data[node.start - base : node.end - base].hex()
    if node.value is not None and node.kind not in value.WITHOUT:
        out["value"] = value.plain(node.value)
    if node.bits:
        out["bits"] = [
            {
                "name": b.name,
                "low": b.low,
                "count": b.count,
                "value": b.value,
                "meaning": b.meaning,
                "doc": b.doc,
            }
            for b in node.bits
        ]
    if node.check is not None:
        check = node.check
        out["checksum"] = {
            "stored": check.stored, "computed": check.computed, "right": check.right,
            "offset": check.start, "length": check.end - check.start,
        }  # fmt: skip
    if node.space is not None:
        out["inside"] = _space(node.space, around)
    return out


def _space(space: Space, around: tuple[int, ...]) -> dict[str, Any]:
    here = (*around, space.start)
    out: dict[str, Any] = {"at": spell((*here, 0)), "length": len(space.data), "how": space.origin}
    if space.gathered:
        out["from"] = [{"offset": a, "length": b - a} for a, b in space.gathered]
    out["fields"] = [_node(node, space.data, 0, here) for node in space.nodes]
    return out
