"""Build a data directory: nodes in any order into a snapshot, or as transactions, in input order, into logs.

Additions to an existing directory are always transactions, because a server has no other way to change its tree. Source:
`FileTxnSnapLog.save`, `FileTxnLog.append` and `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options, parse_choice
from logwright.codec.sorting import Sorter, chunked, framed, unique
from logwright.codec.store.build import Piece, Stage, Summary
from logwright.codec.zookeeper.formats.epochs import MOST_MYID
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.formats.snapshot.tables import ROWS as NODES
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS as TXNS
from logwright.codec.zookeeper.names import (
    ACCEPTED_EPOCH,
    CHECKED,
    CURRENT_EPOCH,
    MYID,
    counter_of,
    epoch_of,
    snapshot_name,
    zxid_text,
)
from logwright.codec.zookeeper.state.columns import TTLS, kinds_of
from logwright.codec.zookeeper.state.sorted_run import ROWS, columns, twice
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_stream import Portion, WholeTree, portions
from logwright.codec.zookeeper.store import rolling
from logwright.codec.zookeeper.store.edit_batches import SCHEMA
from logwright.codec.zookeeper.store.edits import Editor
from logwright.codec.zookeeper.store.resume import Resumed
from logwright.codec.zookeeper.store.rolling import LogWriter
from logwright.codec.zookeeper.store.write import of_rows, of_tree

EPOCH = Option(
    CURRENT_EPOCH,
    None,
    "The epoch of a server that is a member of an ensemble: acceptedEpoch and currentEpoch are written with it",
    low=0,
    high=(1 << 31) - 1,
)
SERVER = Option(
    MYID,
    None,
    "The number of the server in its ensemble: the file myid beside version-2 is written with it",
    low=1,
    high=MOST_MYID,
)
LAST = Option(
    "on_duplicate",
    "error",
    "How to handle a path that occurs twice in a snapshot: error, or last, which keeps the last row",
    parse_choice,
    choices=("error", "last"),
)
SORT_BUFFER = Option(
    "sort_buffer_size",
    64 << 20,
    "Bytes of rows that are sorted at a time, in four times that; more wait in files",
    low=1 << 10,
)
WRITE_AS = Option(
    "write_as",
    None,
    "Form of nodes: a snapshot, or logs of the transactions that create them, which is the only way to extend a directory",
    parse_choice,
    choices=("snapshot", "logs"),
)
OPTIONS = (*encode.OPTIONS, *rolling.OPTIONS, EPOCH, SERVER, WRITE_AS, LAST, SORT_BUFFER)

TAKES = (*NODES.columns, *(column for column in TXNS.columns if column.name in {*SCHEMA.names, "time"}))
"""The input columns: those of transactions are accepted too, and those that only a snapshot has of a node."""

RUN = "run"
"""The file that a task stages: its rows in order."""
_CHUNK = 1 << 20


class NodeRows:
    """Nodes in any order, as sorted runs."""

    def __init__(self, options: Options, extra: Stage | None) -> None:
        self.rows = 0
        self._zxid = options["zxid"] if options.given("zxid") else None
        self._limit = rolling.longest(options)
        self._sorter = Sorter(
            extra, options["sort_buffer_size"], ROWS, twice, last=options["on_duplicate"] == "last"
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._sorter.add(self.checked(rows))

    def checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to those of a run. Raises `UsageError` for data that no server reads."""
        stored = columns(rows, self.rows, self._zxid)
        long = np.flatnonzero(
            np.asarray(pc.fill_null(pc.binary_length(stored.column("value")), 0)) > self._limit
        )
        if len(long):
            raise UsageError(
                f"row {self.rows + int(long[0])}: {len(stored.column('value')[long[0]].as_py())} bytes of data, "
                f"a server reads at most {self._limit}",
                advice="Pass jute.maxbuffer as the server is run with",
            )
        self.rows += rows.num_rows
        return stored

    def streams(self) -> list[SortedRun]:
        return self._sorter.streams()


class SnapshotWriter:
    """Write a snapshot of sorted runs, and the epoch files if the options ask for them."""

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
        name = snapshot_name(self.zxid, encode.method(self.options) or CHECKED)
        for data in of_rows(self._tree, self.options, self.zxid):
            yield Piece(name, data)
        yield Piece(name, b"", done=True)

    def summary(self) -> Summary:
        warnings, before = [], []
        if self._tree.owners:
            warnings.append(
                f"No client keeps the sessions of ephemeral nodes alive ({len(self._tree.owners)}): "
                "the nodes are deleted when the sessions expire."
            )
        if self._kinds[TTLS]:
            before.append(
                "Run the server with zookeeper.extendedTypesEnabled=true: without it, it deletes TTL nodes when it starts."
            )
        return Summary(self.rows, {"zxid": self.zxid}, tuple(warnings), tuple(before))


def epochs(options: Options, zxid: int) -> Iterator[Piece]:
    """Return acceptedEpoch and currentEpoch. Raises `UsageError` if a server would not start with them."""
    epoch = options[CURRENT_EPOCH]
    if epoch is None:
        return
    if epoch < epoch_of(zxid):
        raise UsageError(
            f"currentEpoch {epoch} is older than the last zxid, {zxid_text(zxid)}: a server does not start",
            advice=f"Pass {epoch_of(zxid)} or more",
        )
    for name in (ACCEPTED_EPOCH, CURRENT_EPOCH):
        yield Piece(name, str(epoch).encode(), done=True)


class Transactions:
    """Rows as transactions in logs, onto a tree: that of the existing directory, or a new one."""

    def __init__(self, options: Options, resumed: Resumed | None) -> None:
        self.rows = 0
        self._options, self._resumed = options, resumed
        self._tree = Tree.empty() if resumed is None else resumed.tree
        self._fresh = resumed is None
        epoch = options[CURRENT_EPOCH] or 0
        self._next = max(epoch << 32, 0) + 1 if resumed is None else resumed.next_zxid
        self._editor = Editor(
            self._tree,
            None if resumed is None else self._next,
            time=time.time_ns() // 1_000_000,
            timeout=options["session.timeout"],
        )
        self._writer = LogWriter(self._tree, options)

    def nodes(self, rows: pa.RecordBatch, *, data: bool) -> Iterator[Piece]:
        """Add nodes (`sorted_run.ROWS`) with the attributes of these rows."""
        if self._editor.zxid is None:
            self._editor.zxid = self._next
        yield from self._write(self._editor.nodes(rows, self.rows, data=data), rows.num_rows)

    def txns(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if self._editor.zxid is None and "zxid" not in rows.schema.names:
            self._editor.zxid = self._next
        yield from self._write(self._editor.txns(rows, self.rows), rows.num_rows)

    def _write(self, txns: pa.RecordBatch, rows: int) -> Iterator[Piece]:
        if self._fresh and txns.num_rows:
            yield from self._snapshot(txns.column("zxid")[0].as_py())
        yield from self._writer.add(txns, self.rows)
        self.rows += rows

    def _snapshot(self, first: int) -> Iterator[Piece]:
        """Write the snapshot that the logs follow: of a new tree."""
        self._fresh = False
        before = 0 if counter_of(first) <= 1 else first - 1
        options = Options(encode.OPTIONS, {"zxid": before})
        for data in of_tree(self._tree, options):
            yield Piece(snapshot_name(before), data)
        yield Piece(snapshot_name(before), b"", done=True)

    def finish(self) -> Iterator[Piece]:
        if self._fresh:
            yield from self._snapshot(1)
        yield from self._writer.finish()
        if self._resumed is None:
            yield from epochs(self._options, self._writer.last)

    def summary(self) -> Summary:
        if self._writer.first is None:
            return Summary(self.rows)
        before = ["Do not run a server on the directory while it is written to: servers do not lock it."]
        if self._resumed is not None and self._resumed.member:
            before.append(
                "It belongs to a member of an ensemble: if others have more transactions, or a later epoch, theirs win, and the changes "
                "are lost; start this one with others that have the same files, or none."
            )
        ids = {"first_zxid": self._writer.first, "last_zxid": self._writer.last}
        return Summary(self.rows, ids, before_you_start=tuple(before))


class DirectoryBuilder:
    """See `logwright.codec.layout.Builder`. With `resumed` the files are those of an append. `staged`: nodes in order, in their own
    file; whatever concerns the whole tree is left to `assemble`."""

    def __init__(
        self,
        options: Options,
        resumed: Resumed | None = None,
        extra: Stage | None = None,
        *,
        staged: bool = False,
    ) -> None:
        self.options, self.staged = options, staged
        self._resumed = resumed
        self._as_logs = as_logs(options, resumed)
        self._nodes = NodeRows(options, extra)
        self._logs: Transactions | None = None
        self._what = ""
        self._data: bool | None = None
        self._summary = Summary(0)

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if not rows.num_rows:
            return
        kind = "transactions" if "type" in rows.schema.names else "nodes"
        data = "data" in rows.schema.names
        if self._what not in ("", kind) or (kind == "nodes" and self._data not in (None, data)):
            raise UsageError(
                "some rows are transactions (they have a column 'type'), others are nodes"
                if self._what != kind
                else "some rows have data, others have no such column"
            )
        self._what, self._data = kind, data
        if kind == "transactions":
            if self.staged:
                raise UsageError(
                    "transactions are written by one writer, in the order of the rows",
                    advice="Use logwright.write, or pass nodes",
                )
            yield from self._transactions().txns(rows)
        elif self._as_logs and not self.staged:
            logs = self._transactions()
            yield from logs.nodes(self._nodes.checked(rows), data=data)
        else:
            self._nodes.add(rows)

    def _transactions(self) -> Transactions:
        if self._logs is None:
            if self.options.given("zxid"):
                raise UsageError("zxid is that of a snapshot of nodes: transactions have their own zxids")
            self._logs = Transactions(self.options, self._resumed)
        return self._logs

    def finish(self) -> Iterator[Piece]:
        if self.staged:
            yield from self._run(self._nodes.streams())
            return
        if self._logs is None and self._resumed is not None:
            return  # nothing to add
        if self._logs is not None or self._as_logs:
            logs = self._transactions()
            yield from logs.finish()
            self._summary = logs.summary()
            return
        writer = SnapshotWriter(self.options, self._nodes.streams())
        yield from writer.pieces()
        self._summary = writer.summary()

    def _run(self, streams: Sequence[SortedRun]) -> Iterator[Piece]:
        facts: dict[str, Any] = {}
        rows = 0
        for batch in unique(merge(streams), last=self.options["on_duplicate"] == "last", twice=twice):
            for chunk in chunked(batch, _CHUNK):
                facts.setdefault("first", chunk.column("key")[0].as_py())
                facts["last"] = chunk.column("key")[-1].as_py()
                rows += chunk.num_rows
                yield Piece(RUN, framed(chunk))
        if facts:
            yield Piece(RUN, b"", done=True)
        self._summary = Summary(rows, facts={**facts, "data": self._data})

    def summary(self) -> Summary:
        return self._summary


def as_logs(options: Options, resumed: Resumed | None) -> bool:
    """Return whether nodes are written as transactions."""
    asked: str | None = options["write_as"]
    if resumed is not None and asked == "snapshot":
        raise UsageError(
            "an existing directory is extended by transactions: a snapshot would hide its content",
            advice="Leave out write_as, or write to a new directory",
        )
    return resumed is not None or asked == "logs"
