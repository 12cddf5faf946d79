"""Invariants of every explanation: its leaves cover the input, in order and once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import logwright as lw
from logwright.codec.explain import Node


def check_nodes_tile(nodes: Sequence[Node], data: bytes, base: int) -> None:
    """Check that the nodes are adjacent and equal the sum of their children, also within decompressed data."""
    leaves = (leaf for node in nodes for leaf in node.leaves())
    assert b"".join(data[leaf.start - base : leaf.end - base] for leaf in leaves) == data
    at = base
    for node in nodes:
        for leaf in node.leaves():
            assert leaf.start == at, leaf
            assert leaf.end >= at, leaf
            at = leaf.end
        for inner in node.walk():
            if inner.children:
                assert (inner.children[0].start, inner.children[-1].end) == (inner.start, inner.end), inner
            if inner.space is not None:
                check_nodes_tile(inner.space.nodes, inner.space.data, 0)
                if inner.space.gathered:
                    gathered = b"".join(data[a - base : b - base] for a, b in inner.space.gathered)
                    assert gathered == inner.space.data
    assert at == base + len(data)


def check_covers_file(explanation: lw.Explanation, data: bytes) -> None:
    """Check that the explanation covers each byte of the file once."""
    at = 0
    for piece in explanation.pieces:
        assert piece.start == at
        assert piece.data == data[piece.start : piece.stop]
        check_nodes_tile(piece.nodes, piece.data, piece.start)
        at = piece.stop
    assert at == len(data)


def all_nodes(explanation: lw.Explanation) -> Iterator[Node]:
    """Yield all nodes, those of decompressed data too."""
    for piece in explanation.pieces:
        yield from _all(piece.nodes)


def _all(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        for inner in node.walk():
            yield inner
            if inner.space is not None:
                yield from _all(inner.space.nodes)


def nodes_named(explanation: lw.Explanation, name: str) -> list[Node]:
    return [node for node in all_nodes(explanation) if node.name == name]
