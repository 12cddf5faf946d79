"""What lies in logs and snapshots, beyond a structure after the other: sections told by their place, seals over all that is before
them, and what a compressed snapshot holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logwright.codec.describe import Repeated
from logwright.codec.explain import Check, Explainer, Focus, Node, Space, explain_values
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST,
    END,
    HEADER,
    HEADER_SIZE,
    LAST_PROCESSED,
    SESSIONS,
    Ending,
    Seal,
    Shape,
)
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, MAGIC, MULTI_TXN, RECORD, TXN
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE as LOG_HEADER_SIZE

# Logs


def log_of(window: Window, focus: Focus, *, frame: bool, exploded: bool) -> list[Node]:
    """A stretch of a log: its header, transactions, zeros; `exploded`: what is in a multi are rows."""
    data = window.data.tobytes()
    explainer = Explainer(data, window.offset, focus)
    if not window.offset and data[: len(MAGIC)] == MAGIC:
        head = explainer.all(FILE_HEADER, 0, min(LOG_HEADER_SIZE, len(data)))
        behind = Window(window.data[LOG_HEADER_SIZE:], LOG_HEADER_SIZE, window.size)
        return [*head, *(log_of(behind, focus, frame=False, exploded=exploded) if len(behind.data) else ())]
    nodes = explain_values(RECORD, window, focus, single=frame)
    for one in nodes:
        _cover(one)
    if frame:
        _number(nodes[0], exploded=exploded)
    return nodes


def _cover(record: Node) -> None:
    """Say of the checksum which bytes it covers: neither the length of the payload nor the mark behind it."""
    for one in record.children:
        if one.check is not None:
            one.check = replace(one.check, start=one.check.start + 4, end=one.check.end - 1)


def _number(record: Node, *, exploded: bool) -> None:
    """Say which nodes are rows."""
    multi = next((one for one in record.walk() if one.type == MULTI_TXN.name), None)
    subs = [one for one in multi.walk() if one.type == TXN.name] if multi is not None and exploded else []
    for place, one in enumerate(subs):
        one.row = place
    if not subs:
        record.row = 0


# Snapshots

_NODES = Repeated(NODE)
_UNIT = {
    "header": HEADER,
    "sessions": SESSIONS,
    "acls": ACLS,
    "end": END,
    "digest": DIGEST,
    "last_processed": LAST_PROCESSED,
}


def snapshot_of(window: Window, shape: Shape | None, focus: Focus, *, frame: bool) -> list[Node]:
    """A stretch of a plain snapshot: a section or a node, or what is damaged."""
    explainer = Explainer(window.data.tobytes(), window.offset, focus)
    kind = _section_at(shape, window.offset) if shape is not None else None
    if not frame:
        if kind == "header" and len(window.data) >= HEADER_SIZE:
            return [
                *explainer.all(HEADER, 0, HEADER_SIZE),
                *explainer.rest(HEADER_SIZE, len(window.data), "damaged"),
            ]
        return explainer.rest(0, len(window.data), "neither a section nor a node")
    nodes = explainer.all(_UNIT.get(kind or "", NODE), 0, len(window.data))
    if kind is None:
        nodes[0].row = 0
    elif shape is not None:
        _seal(nodes[0], kind, window.offset, shape)
    return nodes


def _section_at(shape: Shape, place: int) -> str | None:
    """Which section begins at a place; None: a node, or nothing that is known."""
    if place == 0:
        return "header"
    if place == HEADER_SIZE:
        return "sessions"
    if place == shape.acls_at:
        return "acls"
    return next((seal.name for seal in _seals(shape) if seal.start == place), None)


def _ending(shape: Shape) -> Ending | None:
    return shape.ending or shape.behind


def _seals(shape: Shape) -> Sequence[Seal]:
    ending = _ending(shape)
    return () if ending is None else ending.seals


def _seal(node: Node, kind: str, place: int, shape: Shape) -> None:
    """What the checksum at the end of a section covers: all before it."""
    ending = _ending(shape)
    found = next((i for i, seal in enumerate(_seals(shape)) if seal.name == kind), None)
    if ending is None or found is None:
        return
    seal, computed = ending.seals[found], shape.sums_of(ending)[found]
    for one in node.children:
        if one.name == "checksum":
            one.role, one.check = "checksum", Check(seal.stored, computed, 0, seal.at)
            if not one.check.right:
                one.problem = f"checksum mismatch: stored {seal.stored:#010x}, computed {computed:#010x}"


def packed_of(
    window: Window, inner: bytes, shape: Shape | None, focus: Focus, *, how: str, problem: str
) -> list[Node]:
    """A compressed snapshot, and what it holds."""
    data = window.data.tobytes()
    node = Node(
        "compressed", window.offset, window.offset + len(data), "bytes", data, f"{how}, {len(inner)} bytes unpacked",
        "The whole snapshot, compressed.", how, "org.apache.zookeeper.server.persistence.SnapStream", problem,
    )  # fmt: skip
    if inner:
        node.space = Space(
            window.offset, inner, "unpacked", _inside(inner, shape, focus.inside(window.offset))
        )
    return [node]


def _inside(data: bytes, shape: Shape | None, focus: Focus) -> list[Node]:
    explainer = Explainer(data, 0, focus)
    if shape is None or shape.header is None or shape.acls_at is None or shape.nodes is None:
        return explainer.rest(0, len(data), "not understood")
    nodes: list[Node] = []
    ending = _ending(shape)
    for kind, at, end in (
        ("header", 0, HEADER_SIZE),
        ("sessions", HEADER_SIZE, shape.acls_at),
        ("acls", shape.acls_at, shape.nodes),
    ):
        nodes += explainer.all(_UNIT[kind], at, end)
    end = len(data) if ending is None else ending.end
    nodes += explainer.all(_NODES, shape.nodes, end, {}, "nodes", rows=True)
    for seal in _seals(shape):
        made = explainer.all(_UNIT[seal.name], seal.start, seal.stop)
        _seal(made[0], seal.name, seal.start, shape)
        nodes += made
    if ending is not None:
        nodes += explainer.rest(ending.stop, len(data))
    return nodes
