"""Assemble staged parts of a data directory: the driver's work after all tasks have written theirs.

A part is a sorted run with the nodes of one task. A snapshot is one file, so all runs are merged into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.sorting import read_framed, unique
from logwright.codec.store.build import Piece, Placement, Stage, Summary, noted
from logwright.codec.zookeeper.state.sorted_run import ROWS, twice
from logwright.codec.zookeeper.store.builder import RUN, SnapshotWriter, Transactions, as_logs
from logwright.codec.zookeeper.store.resume import Resumed


def place(
    resumed: Resumed | None,
    parts: Sequence[tuple[Stage, Summary]],
    extra: Stage,
    options: Options,
    order: Callable[[Iterable[str]], Sequence[str]],
) -> Placement:
    """See `Layout.assemble`. Raises `UsageError` if a path occurs twice."""
    filled = [(stage, summary) for stage, summary in parts if summary.rows]
    runs = [
        SortedRun(summary.facts["first"], summary.facts["last"], partial(read_framed, stage, RUN, ROWS))
        for stage, summary in filled
    ]
    if as_logs(options, resumed):
        tells_data = {summary.facts["data"] for _, summary in filled}
        if len(tells_data) > 1:
            raise UsageError("some rows have data, others have no such column")
        if not runs and resumed is not None:
            return Placement((), Summary(0))
        logs = Transactions(options, resumed)
        return _placed(extra, _edited(logs, runs, options, data=tells_data == {True}), logs, order)
    writer = SnapshotWriter(options, runs)
    return _placed(extra, writer.pieces(), writer, order)


def _edited(
    logs: Transactions, runs: Sequence[SortedRun], options: Options, *, data: bool
) -> Iterator[Piece]:
    """Yield the nodes of all parts as transactions, in the order of their paths."""
    for batch in unique(merge(runs), last=options["on_duplicate"] == "last", twice=twice):
        yield from logs.nodes(batch, data=data)
    yield from logs.finish()


def _placed(
    extra: Stage,
    pieces: Iterator[Piece],
    writer: Transactions | SnapshotWriter,
    order: Callable[[Iterable[str]], Sequence[str]],
) -> Placement:
    names_made: list[str] = []
    extra.take(noted(pieces, names_made))
    return Placement(tuple((extra, name, name) for name in order(names_made)), writer.summary())
