"""Putting staged parts of a data directory together: what the driver does when all tasks have written theirs.

A part is a sorted run, the nodes of one task. A snapshot is one file, so all are merged into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from logwright.codec.layout import Piece, Placement, Stage, Summary
from logwright.codec.option import Options
from logwright.codec.sorting import SortedRun, read_framed
from logwright.codec.zookeeper.builder import RUN, SnapshotWriter
from logwright.codec.zookeeper.run import ROWS


def place(
    parts: Sequence[tuple[Stage, Summary]],
    extra: Stage,
    options: Options,
    order: Callable[[Iterable[str]], Sequence[str]],
) -> Placement:
    """See `Layout.place`. Raises `UsageError` where a path comes twice."""
    runs = [
        SortedRun(summary.facts["first"], summary.facts["last"], partial(read_framed, stage, RUN, ROWS))
        for stage, summary in parts
        if summary.rows
    ]
    writer = SnapshotWriter(options, runs)
    made: list[str] = []
    extra.take(_noted(writer.pieces(), made))
    return Placement(tuple((extra, name, name) for name in order(made)), writer.summary())


def _noted(pieces: Iterable[Piece], made: list[str]) -> Iterator[Piece]:
    for piece in pieces:
        if piece.done:
            made.append(piece.name)
        yield piece
