"""Making a data directory: nodes in any order into a snapshot, or as transactions, in the order in which they come, into logs.

What is added to a directory that is there is always written as transactions: a server has no other way to change its tree.
Source: `FileTxnSnapLog.save`, `FileTxnLog.append` and `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.fault import UsageError
from logwright.codec.layout import Piece, Stage, Summary
from logwright.codec.option import Option, Options, parse_choice
from logwright.codec.sorting import SortedRun, Sorter, chunked, framed, merge, unique
from logwright.codec.zookeeper import again, encode, txnlog
from logwright.codec.zookeeper.columns import TTLS, kinds_of
from logwright.codec.zookeeper.names import (
    ACCEPTED_EPOCH,
    CHECKED,
    CURRENT_EPOCH,
    epoch_of,
    snapshot_name,
    zxid_text,
)
from logwright.codec.zookeeper.run import ROWS, columns, twice
from logwright.codec.zookeeper.whole import Portion, WholeTree, portions
from logwright.codec.zookeeper.write import of_rows

EPOCH = Option(
    CURRENT_EPOCH,
    None,
    "The epoch of a server that is a member of an ensemble: acceptedEpoch and currentEpoch are written with it",
    low=0,
    high=(1 << 31) - 1,
)
LAST = Option(
    "on_duplicate",
    "error",
    "What is done where a path comes twice in a snapshot: error, or the last is taken",
    parse_choice,
    choices=("error", "last"),
)
SORT_BUFFER = Option(
    "sort_buffer_size",
    64 << 20,
    "Bytes of rows that are sorted at a time, in four times that; more wait in files",
    low=1 << 10,
)
OPTIONS = (*encode.OPTIONS, *txnlog.LIMITS, EPOCH, LAST, SORT_BUFFER)
"""What writing a data directory takes."""

RUN = "run"
"""The file that a task stages: its rows in order."""
_CHUNK = 1 << 20


def longest(options: Options) -> int:
    """The most bytes of data that a server reads."""
    named = {one.name: options[one.name] for one in txnlog.LIMITS if options.given(one.name)}
    return txnlog.TxnLogContext(Options(txnlog.OPTIONS, named)).limit


class NodeRows:
    """Nodes that come in any order, as sorted runs."""

    def __init__(self, options: Options, extra: Stage | None) -> None:
        self.rows = 0
        self._zxid = options["zxid"] if options.given("zxid") else None
        self._limit = longest(options)
        self._sorter = Sorter(
            extra, options["sort_buffer_size"], ROWS, twice, last=options["on_duplicate"] == "last"
        )

    def add(self, rows: pa.RecordBatch) -> None:
        made = columns(rows, self.rows, self._zxid)
        long = np.flatnonzero(
            np.asarray(pc.fill_null(pc.binary_length(made.column("value")), 0)) > self._limit
        )
        if len(long):
            raise UsageError(
                f"row {self.rows + int(long[0])}: {len(made.column('value')[long[0]].as_py())} bytes of data, a server reads {self._limit}",
                advice="Pass jute.maxbuffer as the server is run with",
            )
        self.rows += rows.num_rows
        self._sorter.add(made)

    def streams(self) -> list[SortedRun]:
        return self._sorter.streams()


class SnapshotWriter:
    """A snapshot of sorted runs, and the epochs beside it where they are asked for."""

    def __init__(self, options: Options, streams: Sequence[SortedRun]) -> None:
        self.options = options
        asked = options["zxid"] if options.given("zxid") else None
        last = options["on_duplicate"] == "last"
        self._kinds = np.zeros(4, np.bool_)
        self._tree = WholeTree(partial(self._portions, streams, asked, last))
        self.zxid: int = self._tree.highest if asked is None else asked
        self.rows = self._tree.rows

    def _portions(self, streams: Sequence[SortedRun], zxid: int | None, last: bool) -> Iterator[Portion]:
        for portion in portions(streams, zxid, last=last, twice=twice):
            self._kinds[np.unique(kinds_of(portion.stat("owner")))] = True
            yield portion

    def pieces(self) -> Iterator[Piece]:
        yield from epochs(self.options, self.zxid)
        name = snapshot_name(self.zxid, again.method(self.options) or CHECKED)
        for data in of_rows(self._tree, self.options, self.zxid):
            yield Piece(name, data)
        yield Piece(name, b"", done=True)

    def summary(self) -> Summary:
        warnings, before = [], []
        if self._tree.owners:
            warnings.append(
                f"Nobody keeps up the sessions of ephemeral nodes ({len(self._tree.owners)}): the nodes go when these expire."
            )
        if self._kinds[TTLS]:
            before.append(
                "Run the server with zookeeper.extendedTypesEnabled=true: without it, it deletes TTL nodes when it starts."
            )
        return Summary(self.rows, {"zxid": self.zxid}, tuple(warnings), tuple(before))


def epochs(options: Options, zxid: int) -> Iterator[Piece]:
    """acceptedEpoch and currentEpoch. Raises `UsageError` where a server would not start with them."""
    epoch = options[CURRENT_EPOCH]
    if epoch is None:
        return
    if epoch < epoch_of(zxid):
        raise UsageError(
            f"currentEpoch {epoch} is older than the last zxid, {zxid_text(zxid)}: no server starts with that",
            advice=f"Pass {epoch_of(zxid)} or more",
        )
    for name in (ACCEPTED_EPOCH, CURRENT_EPOCH):
        yield Piece(name, str(epoch).encode(), done=True)


class DirectoryBuilder:
    """See `logwright.codec.layout.Builder`.

    `staged`: the rows in order, in a file of their own, and what concerns the tree as a whole is left to `place`.
    """

    def __init__(self, options: Options, extra: Stage | None = None, *, staged: bool = False) -> None:
        self.options, self.staged = options, staged
        self._nodes = NodeRows(options, extra)
        self._summary = Summary(0)

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        self._nodes.add(rows)
        yield from ()

    def finish(self) -> Iterator[Piece]:
        streams = self._nodes.streams()
        if self.staged:
            yield from self._run(streams)
            return
        writer = SnapshotWriter(self.options, streams)
        yield from writer.pieces()
        self._summary = writer.summary()

    def _run(self, streams: Sequence[SortedRun]) -> Iterator[Piece]:
        facts: dict[str, Any] = {}
        rows = 0
        for batch in unique(merge(streams), last=self.options["on_duplicate"] == "last", twice=twice):
            for one in chunked(batch, _CHUNK):
                facts.setdefault("first", one.column("key")[0].as_py())
                facts["last"] = one.column("key")[-1].as_py()
                rows += one.num_rows
                yield Piece(RUN, framed(one))
        if facts:
            yield Piece(RUN, b"", done=True)
        self._summary = Summary(rows, facts=facts)

    def summary(self) -> Summary:
        return self._summary
