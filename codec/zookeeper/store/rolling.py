"""Write transactions to logs: each is applied to the tree, whose new digest is stored with it.

Source: `FileTxnLog.append`, `FileTxnLog.commit` and `DataTree.processTxn` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options
from logwright.codec.store.build import Piece
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog import write as txnlog_encode
from logwright.codec.zookeeper.formats.txnlog.bodies import NO_DIGEST
from logwright.codec.zookeeper.formats.txnlog.scan import frames_of
from logwright.codec.zookeeper.formats.txnlog.tables import LIMITS, PREALLOC, TxnLogContext
from logwright.codec.zookeeper.formats.txnlog.tables import OPTIONS as TXNLOG_OPTIONS
from logwright.codec.zookeeper.names import log_name
from logwright.codec.zookeeper.state.digest import VERSION
from logwright.codec.zookeeper.store.files import APART, placed

if TYPE_CHECKING:
    from logwright.codec.zookeeper.state.tree import Tree

SIZE_LIMIT = Option(
    "txnLogSizeLimitInKb",
    None,
    "KiB after which a log is finished; by default there is one log",
    low=1,
    high=1 << 40,
)
OPTIONS = (*LIMITS, PREALLOC, SIZE_LIMIT, APART)


def longest(options: Options) -> int:
    """Return the longest data that a server reads."""
    return TxnLogContext(Options(TXNLOG_OPTIONS, options.passed(LIMITS))).limit


class LogWriter:
    """Logs of transactions in batches, in the order of their zxids."""

    def __init__(self, tree: Tree, options: Options) -> None:
        self.first: int | None = None
        """The zxid of the first transaction."""
        self.last = 0
        self.made = 0
        """The number of written transactions."""
        self._tree, self._options = tree, options
        self._limit = longest(options)
        self._size = 0
        self._name = ""

    def add(self, txns: pa.RecordBatch, first_row: int) -> Iterator[Piece]:
        """Write transactions (`edits.SCHEMA`). Raises `UsageError` for one that would end a server."""
        if not txns.num_rows:
            return
        cuts = np.arange(txns.num_rows + 1)
        records = txnlog_encode.records_of(txns, cuts, first_row, 0)
        sizes = np.diff(records.starts) - layout.OVERHEAD
        # The digest makes it longer.
        long = np.flatnonzero(sizes + layout.DIGEST_SIZE > self._limit)
        if len(long):
            raise UsageError(
                f"transaction {self.made + int(long[0])} has {int(sizes[long[0]])} bytes, a server reads at most {self._limit}",
                advice="Pass jute.maxbuffer as the server is run with",
            )
        window = Window(records.data, 0, len(records.data))
        applied = self._tree.apply_frames(window, frames_of(records.data))
        if applied.died is not None:
            raise UsageError(
                f"transaction {self.made + applied.died.index}: a server would not start with it: {applied.died.error}"
            )
        if self._options["digest.enabled"]:
            # Errors never have a digest.
            errors = np.asarray(pc.equal(txns.column("type"), "error"))
            versions = np.where(errors, NO_DIGEST, VERSION)
            records = txnlog_encode.records_of(txns, cuts, first_row, 0, (versions, applied.digests))
        zxids = np.asarray(txns.column("zxid"))
        self.first = int(zxids[0]) if self.first is None else self.first
        self.last = int(zxids[-1])
        self.made += txns.num_rows
        yield from self._pieces(records, zxids)

    def _pieces(
        self, records: txnlog_encode.Records, zxids: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Iterator[Piece]:
        limit = self._options["txnLogSizeLimitInKb"]
        starts, at = records.starts, 0
        while at < len(zxids):
            if not self._name:
                self._name = placed(log_name(int(zxids[at])), self._options)
                yield Piece(self._name, layout.FILE_HEADER.pack({}))
                self._size = layout.HEADER_SIZE
            stop = len(zxids)
            if limit is not None:
                room = int(starts[at]) + (limit << 10) - self._size
                stop = min(int(np.searchsorted(starts, room, "right")), stop)
            data = records.data[int(starts[at]) : int(starts[stop])]
            self._size += len(data)
            yield Piece(self._name, data)
            if limit is not None and self._size > limit << 10:
                yield from self.finish()
            at = stop

    def finish(self) -> Iterator[Piece]:
        """Finish the current log, if there is one."""
        if self._name:
            yield Piece(self._name, txnlog_encode.allocated(self._size, self._options), done=True)
        self._name, self._size = "", 0
