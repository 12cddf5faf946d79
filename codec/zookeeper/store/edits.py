"""Edit a tree by the transactions that a server would make.

Nodes: a missing one is created with its missing parents, a different one is set, and an equal one needs no transaction. Transactions:
absent values follow from the tree. Source: `PrepRequestProcessor.pRequest2Txn` of ZooKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.zookeeper.formats.txnlog.columns import TxnColumns
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS
from logwright.codec.zookeeper.names import continues
from logwright.codec.zookeeper.store.edit_batches import SCHEMA, Operations, of_nodes

if TYPE_CHECKING:
    from logwright.codec.zookeeper.state.tree import Tree


class Editor:
    """Make transactions, from `zxid` on, for the wanted state of a tree. Each batch must be applied before the next one. `time` are the
    milliseconds of transactions without a time; `timeout` is that of new sessions."""

    def __init__(self, tree: Tree, zxid: int | None, *, time: int, timeout: int) -> None:
        self.zxid = zxid
        """The zxid of the next transaction; None: that of the first input."""
        self._tree, self._time, self._timeout = tree, time, timeout

    def nodes(self, rows: pa.RecordBatch, first_row: int, *, data: bool) -> pa.RecordBatch:
        """Return the transactions that give nodes the attributes of rows (`sorted_run.ROWS`). `data`: the rows have data, which is set."""
        assert self.zxid is not None
        txns = of_nodes(
            self._tree,
            rows,
            self.zxid,
            data=data,
            time=self._time,
            timeout=self._timeout,
            first_row=first_row,
        )
        self.zxid += txns.num_rows
        return txns

    def txns(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return complete transactions, from rows of a log that may lack values which follow from the tree."""
        if "sub" in rows.schema.names and rows.column("sub").null_count < rows.num_rows:
            raise UsageError(
                f"{NAME}: the transactions of a multi cannot be written as separate rows",
                advice="Pass each multi as a row with the column 'txns', as read with multi=nested",
            )
        typed = typed_rows(rows, first_row)
        zxids = typed.column("zxid")
        kept = zxids.null_count == 0
        if not kept and (zxids.null_count < len(zxids) or self.zxid is None):
            raise UsageError(
                f"{NAME}: null in column 'zxid'", advice="Leave the column out to have zxids assigned"
            )
        operations = Operations.of(typed)
        first = self.zxid or 0
        if kept:
            self._ordered(np.asarray(zxids), first_row)
            if operations.complete:
                return typed
        else:
            self.zxid = first + len(typed)
        return operations.filled(
            self._tree, first, kept=kept, time=self._time, timeout=self._timeout, first_row=first_row
        )

    def _ordered(self, zxids: Any, first_row: int) -> None:
        """Check that each zxid continues the one before. Raises `UsageError`."""
        before = np.concatenate(([zxids[0] - 1 if self.zxid is None else self.zxid - 1], zxids[:-1]))
        bad = np.flatnonzero(~continues(zxids, before))
        if len(bad):
            i = int(bad[0])
            raise UsageError(
                f"{NAME}: row {first_row + i}: zxid {int(zxids[i]):#x} does not follow {int(before[i]):#x}: a server would not start",
                advice="Leave the column 'zxid' out to have zxids assigned",
            )
        self.zxid = int(zxids[-1]) + 1


def typed_rows(rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """Return the columns of `SCHEMA`, null where rows lack them."""
    columns = TxnColumns(rows, first_row)
    arrays = {field.name: columns.get(field.name, field.type) for field in SCHEMA if field.name != "path"}
    arrays["path"] = columns.text("path")
    if columns.has("time") and not columns.has("time_ms"):
        kind = rows.schema.field("time").type
        time = columns.get("time", kind if pa.types.is_integer(kind) else ROWS["time"].type)
        arrays["time_ms"] = time.cast(pa.int64())
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in SCHEMA], schema=SCHEMA)
