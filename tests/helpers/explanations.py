"""What must be true of every explanation: its leaves, one after the other, are the bytes that were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import logwright as lw
from logwright.codec.explain import Node, joined


def check_nodes_tile(nodes: Sequence[Node], data: bytes, base: int) -> None:
    """The nodes lie side by side, each is all of its children, and so on inside of what is packed."""
    assert joined(nodes, data, base) == data
    at = base
    for node in nodes:
        for leaf in node.leaves():
            assert leaf.start == at, leaf
            assert leaf.end >= at, leaf
            at = leaf.end
        for one in node.walk():
            if one.children:
                assert (one.children[0].start, one.children[-1].end) == (one.start, one.end), one
            if one.space is not None:
                check_nodes_tile(one.space.nodes, one.space.data, 0)
                if one.space.gathered:
                    gathered = b"".join(data[a - base : b - base] for a, b in one.space.gathered)
                    assert gathered == one.space.data
    assert at == base + len(data)


def check_covers_file(found: lw.Explanation, data: bytes) -> None:
    """All of a file is in the explanation, just once."""
    at = 0
    for piece in found.pieces:
        assert piece.start == at
        assert piece.data == data[piece.start : piece.stop]
        check_nodes_tile(piece.nodes, piece.data, piece.start)
        at = piece.stop
    assert at == len(data)


def all_nodes(found: lw.Explanation) -> Iterator[Node]:
    """All nodes, those inside of what is packed too."""
    for piece in found.pieces:
        yield from _all(piece.nodes)


def _all(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        for one in node.walk():
            yield one
            if one.space is not None:
                yield from _all(one.space.nodes)


def nodes_named(found: lw.Explanation, name: str) -> list[Node]:
    return [one for one in all_nodes(found) if one.name == name]
