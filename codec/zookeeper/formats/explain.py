"""Explain logs and snapshots: sections that are identified by their position, seals over all bytes before them, and the content of a
compressed snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from logwright.codec.describe import Repeated
from logwright.codec.explain import Check, Explainer, Focus, Node, Space, explain_values
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.snapshot import sections
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, MAGIC, MULTI_TXN, RECORD, TXN
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE as LOG_HEADER_SIZE

# Logs


def log_of(window: Window, focus: Focus, *, frame: bool, exploded: bool) -> list[Node]:
    """Explain a region of a log: file header, transactions, zeros. `exploded`: the transactions of a multi are separate rows."""
    data = window.data.tobytes()
    explainer = Explainer(data, window.offset, focus)
    if not window.offset and data[: len(MAGIC)] == MAGIC:
        head = explainer.all(FILE_HEADER, 0, min(LOG_HEADER_SIZE, len(data)))
        behind = Window(window.data[LOG_HEADER_SIZE:], LOG_HEADER_SIZE, window.size)
        return [*head, *(log_of(behind, focus, frame=False, exploded=exploded) if len(behind.data) else ())]
    nodes = explain_values(RECORD, window, focus, single=frame)
    for node in nodes:
        _cover(node)
    if frame:
        _number(nodes[0], exploded=exploded)
    return nodes


def _cover(record: Node) -> None:
    """Add which bytes the checksum covers: neither the payload length nor the end-of-record mark."""
    for child in record.children:
        if child.check is not None:
            child.check = replace(child.check, start=child.check.start + 4, end=child.check.end - 1)


def _number(record: Node, *, exploded: bool) -> None:
    """Number the nodes that are rows."""
    multi = next((descendant for descendant in record.walk() if descendant.type == MULTI_TXN.name), None)
    subs = (
        [descendant for descendant in multi.walk() if descendant.type == TXN.name]
        if multi is not None and exploded
        else []
    )
    for place, sub in enumerate(subs):
        sub.row = place
    if not subs:
        record.row = 0


# Snapshots

_NODES = Repeated(NODE)
_UNIT = {
    "header": sections.HEADER,
    "sessions": sections.SESSIONS,
    "acls": ACLS,
    "end": sections.END,
    "digest": sections.DIGEST,
    "last_processed": sections.LAST_PROCESSED,
}


def snapshot_of(window: Window, shape: Shape | None, focus: Focus, *, frame: bool) -> list[Node]:
    """Explain a region of an uncompressed snapshot: a section, a node, or damaged bytes."""
    explainer = Explainer(window.data.tobytes(), window.offset, focus)
    kind = _section_at(shape, window.offset) if shape is not None else None
    if not frame:
        if kind == "header" and len(window.data) >= sections.HEADER_SIZE:
            return [
                *explainer.all(sections.HEADER, 0, sections.HEADER_SIZE),
                *explainer.rest(sections.HEADER_SIZE, len(window.data), "damaged"),
            ]
        return explainer.rest(0, len(window.data), "neither a section nor a node")
    nodes = explainer.all(_UNIT.get(kind or "", NODE), 0, len(window.data))
    if kind is None:
        nodes[0].row = 0
    elif shape is not None:
        _seal(nodes[0], kind, shape)
    return nodes


def _section_at(shape: Shape, place: int) -> str | None:
    """Return the section that begins at a position, or None for a node or unknown bytes."""
    if place == 0:
        return "header"
    if place == sections.HEADER_SIZE:
        return "sessions"
    if place == shape.acls_at:
        return "acls"
    return next((seal.name for seal in shape.seals if seal.start == place), None)


def _seal(node: Node, kind: str, shape: Shape) -> None:
    """Explain the range that the checksum at the end of a section covers: all bytes before it."""
    seal = next((seal for seal in shape.seals if seal.name == kind), None)
    if seal is None:
        return
    computed = shape.computed(seal)
    for child in node.children:
        if child.name == "checksum":
            child.role, child.check = "checksum", Check(seal.stored, computed, 0, seal.at)
            if not child.check.right:
                child.problem = f"checksum mismatch: stored {seal.stored:#010x}, computed {computed:#010x}"


def name_flip(nodes: Sequence[Node], window: Window, place: int, bit: int) -> None:
    """Add the correct value to the field with a flipped bit, and its place to the checksums that it makes wrong."""
    explainer = Explainer(window.data.tobytes(), window.offset)
    for leaf in (leaf for node in nodes for leaf in node.leaves()):
        if leaf.start <= place < leaf.end and not leaf.check:
            leaf.problem = f"bit {bit} of byte {place} is flipped, according to the seals: {explainer.right(leaf, place, bit)}"
        elif leaf.check is not None and not leaf.check.right:
            leaf.problem += f". Flipping bit {bit} of byte {place} would fix it"


def packed_of(
    window: Window, inner: bytes, shape: Shape | None, focus: Focus, *, compression: str, problem: str
) -> list[Node]:
    """Explain a compressed snapshot and its content."""
    data = window.data.tobytes()
    node = Node(
        "compressed", window.offset, window.offset + len(data), "bytes", data, f"{compression}, {len(inner)} bytes unpacked",
        "The whole snapshot, compressed.", compression, "org.apache.zookeeper.server.persistence.SnapStream", problem,
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
    ending = shape.found_ending
    places = (0, sections.HEADER_SIZE, shape.acls_at, shape.nodes)
    for kind, (at, end) in zip(("header", "sessions", "acls"), pairwise(places), strict=True):
        nodes += explainer.all(_UNIT[kind], at, end)
    end = len(data) if ending is None else ending.end
    nodes += explainer.all(_NODES, shape.nodes, end, {}, "nodes", rows=True)
    for seal in shape.seals:
        children = explainer.all(_UNIT[seal.name], seal.start, seal.stop)
        _seal(children[0], seal.name, shape)
        nodes += children
    if ending is not None:
        nodes += explainer.rest(ending.stop, len(data))
    return nodes
