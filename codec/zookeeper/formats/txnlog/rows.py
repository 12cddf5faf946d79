"""The rows of transactions: columns of their headers and bodies, with multis nested or exploded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import constant, numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.codec.window import Decoded, Frames, Window
from logwright.codec.zookeeper.formats.txnlog import bodies as measured
from logwright.codec.zookeeper.formats.txnlog.bodies import Bodies
from logwright.codec.zookeeper.formats.txnlog.layout import CHECK
from logwright.codec.zookeeper.formats.txnlog.scan import BODY
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE

NAME = "zookeeper.txnlog"
START_FAILS = "the server does not start"
STOPS = "the server stops reading the file here, without an error, and continues with the next log"

ROWS = Table(
    "rows",
    (
        Column("zxid", pa.int64(), "number of the transaction: epoch << 32 | counter", nullable=False, prunes=True, hexadecimal=True),
        Column("time", TIMESTAMP, "time of creation; null where it is -1", prunes=True),
        Column("session_id", pa.int64(), "of the client (clientId); 0 if the server itself is the client", hexadecimal=True),
        Column("cxid", pa.int32(), "number of the request within the session"),
        Column("type", pa.string(), "create, delete, setData, multi, error, ...", nullable=False),
        Column("path", pa.string(), "of the node, as Java reads it"),
        Column("data", pa.binary(), "of the node; null and empty differ"),
        Column("acl", ACL_TYPE, "of the node"),
        Column("ephemeral", pa.bool_(), "whether the node is deleted with the session"),
        Column("parent_cversion", pa.int32(), "cversion of the parent afterwards; null in logs up to 3.3: it is incremented"),
        Column("version", pa.int32(), "version of the data, or of the ACL, afterwards; of a check one more than the expected version"),
        Column("ttl", pa.int64(), "milliseconds without change after which the node is deleted"),
        Column("time_out", pa.int32(), "milliseconds after which a new session expires"),
        Column("err", pa.int32(), "why the request failed: KeeperException's code"),
        Column(
            "paths_to_delete",
            pa.list_(pa.string()),
            "the ephemeral nodes of a closed session; null where the log does not say",
        ),
        Column("txns", measured.TXNS_TYPE, "the transactions of a multi, in order; null if they are separate rows"),
        Column("sub", pa.int32(), "position in its multi, from 0; null outside of a multi"),
        Column("digest_version", pa.int32(), "of the tree's digest; null without one", detail=True),
        Column("tree_digest", pa.int64(), "digest of the whole tree after the transaction", detail=True),
        Column("time_ms", pa.int64(), "the time as a raw number of milliseconds", detail=True),
        Column("path_raw", pa.binary(), "the path where it is not UTF-8, else null", detail=True),
        Column("acl_raw", ACL_RAW_TYPE, "the ACL where a name in it is not UTF-8, else null", detail=True),
        Column("file", pa.int64(), "zxid in the name of the file", detail=True),
        Column("position", pa.int64(), "byte of the file where the transaction starts: position in frames", detail=True),
    ),
    "One row per transaction, in the order of the file.",
)  # fmt: skip


class Rows:
    """The rows of some transactions."""

    def __init__(self, window: Window, frames: Frames, context: TxnLogContext) -> None:
        self.window, self.frames, self.context = window, frames, context
        self.exploded = context.exploded
        ends = frames.end - 1
        self.all, total = Bodies.of(window.data, frames.start + BODY, ends)
        self.sound = self.all.measures[measured.STATUS] == measured.SOUND
        subs, owner = self.all.subs(ends, total)
        self.subs = subs
        which = np.flatnonzero(self.sound)
        self.bodies = self.all.pick(which) if len(which) < len(self.all) else self.all
        self.place: Int64s | None = None
        if self.exploded and total:
            # A multi without transactions stays a row.
            counts = np.where(self.all.in_multis, np.maximum(self.all.measures[measured.LIST_COUNT], 0), 0)[
                which
            ]
            alone = np.flatnonzero(counts == 0)
            frame = np.concatenate((which[alone], owner))
            order = np.argsort(frame, kind="stable")
            first = np.concatenate(([0], np.cumsum(counts)))[np.searchsorted(which, owner)]
            place = np.concatenate((np.full(len(alone), -1), np.arange(total) - first))
            self.bodies = self.bodies.pick(alone).joined(subs, order)
            self.place, which = place[order], frame[order]
        self.which = which

    def decoded(self, columns: Sequence[str]) -> Decoded:
        return Decoded(ROWS.batch(columns, self._column, len(self.which)), self._faults())

    def _column(self, name: str) -> pa.Array:
        kind = ROWS[name].type
        rows = len(self.which)
        if name in ("zxid", "session_id", "cxid"):
            return numbers(kind, self._head(name))
        if name in ("time", "time_ms"):
            times = self._head("time")
            return numbers(kind, times, times == -1 if name == "time" else None)
        if name == "file":
            return constant(kind, self.context.file, rows)
        if name == "position":
            return numbers(kind, self._of_frames(self.frames.start + self.window.offset))
        if name in ("digest_version", "tree_digest"):
            return digest_column(kind, *(self._of_frames(part) for part in self.all.digest(name)))
        if name == "sub":
            return pa.nulls(rows, kind) if self.place is None else numbers(kind, self.place, self.place < 0)
        if name == "txns":
            # A multi has none if its transactions are rows.
            return self.bodies.txns(self.subs.pick(np.empty(0, np.int64)) if self.exploded else self.subs)
        return self.bodies.column(name, kind)

    def _head(self, name: str) -> npt.NDArray[Any]:
        return self._of_frames(np.ascontiguousarray(self.frames.header[name]))

    def _of_frames(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Expand values of frames to values of rows."""
        return values if self.place is None and len(self.which) == len(values) else values[self.which]

    def _faults(self) -> list[tuple[int, Fault]]:
        """Return the faults of transactions whose checksum is right but that cannot be parsed, or that a server cannot parse."""
        faults = []
        for i in np.flatnonzero(~self.sound).tolist():
            before = int(np.searchsorted(self.which, i))
            start = self.window.offset + int(self.frames.start[i])
            size = int(self.frames.end[i] - self.frames.start[i])
            status = int(self.all.measures[measured.STATUS, i])
            text, system = WORDS[status]
            if status == measured.UNSUPPORTED:
                text = f"Unsupported Txn with type={int(self.frames.header['type'][i])}"
                system = f"{START_FAILS}: IOException: {text}"
            kind, severity = Kind.PAYLOAD, Severity.ERROR
            if status == measured.UNSUPPORTED and int(self.frames.header["type"][i]) != CHECK:
                kind, severity = Kind.UNSUPPORTED, Severity.WARNING
                text += ": the checksum is right, so another version wrote it, and only that can read it"
            zxid = int(self.frames.header["zxid"][i])
            lost = {} if status == measured.NO_HEADER else {"first_zxid": zxid, "last_zxid": zxid}
            faults.append((before, Fault(NAME, start, size, kind, text, severity, system, 1, lost)))
        return faults


WORDS = {
    measured.SHORT: ("the transaction ends early: EOFException", STOPS),
    measured.BAD_LENGTH: (
        "Unreasonable length in the transaction",
        f"{START_FAILS}: IOException: Unreasonable length",
    ),
    measured.UNSUPPORTED: ("", ""),
    measured.NO_HEADER: ("the payload is too short for the header of a transaction", STOPS),
}


def digest_column(kind: pa.DataType, values: Int64s, versions: Int64s) -> pa.Array:
    """Return digest_version or tree_digest of measured transactions with digests of these versions."""
    null = versions == measured.NO_DIGEST
    return numbers(kind, np.where(null, 0, values), null)
