"""The history of nodes: every change in the logs, one row per node, with multis and closed sessions split up.

Transactions that a server would not apply are left out: a multi with a failed transaction, checks, errors. Whether the node existed is not
checked. Source: `DataTree.processTxn` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import contents
from logwright.codec.deferred import compute as pc
from logwright.codec.store.view import Stream
from logwright.codec.table import Table
from logwright.codec.zookeeper.formats.txnlog.layout import (
    CHECK,
    CLOSE_SESSION,
    CREATE_SESSION,
    ERROR,
    MULTI,
    TYPE_NAMES,
)
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.codec.zookeeper.store.selection import below

_OF_HEADER = ("zxid", "time", "session_id", "cxid")
_OF_BODY = ("type", "path", "data", "acl", "ephemeral", "parent_cversion", "version", "ttl")
HISTORY = Table(
    "history",
    tuple(ROWS[name] for name in (*_OF_HEADER, *_OF_BODY, "sub", "file", "position")),
    "One row per change of a node, in the order of the logs.",
)
_NEEDED = ("session_id", "type", "path", "ephemeral", "paths_to_delete", "sub")
"""The columns for who did what to which node."""
_NO_CHANGE = contents(
    pa.string(), [TYPE_NAMES[kind].encode() for kind in (CHECK, CLOSE_SESSION, CREATE_SESSION, ERROR, MULTI)]
)
_CREATES = contents(pa.string(), [b"create", b"create2"])
_DELETES = contents(pa.string(), [b"delete", b"deleteContainer"])


def rows(
    runs: Sequence[Stream], columns: Sequence[str], prefix: str, upto: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of the node `prefix` ("" for all) and its descendants, from the transactions of logs up to zxid `upto`. The runs
    are read with the transactions of multis as rows."""
    owners = _Owners()
    needed = tuple(dict.fromkeys((*_NEEDED, *columns, *(() if upto is None else ("zxid",)))))
    for run in runs:
        for batch in run(needed):
            if upto is not None:
                batch = batch.filter(pc.less_equal(batch.column("zxid"), upto))
            exploded = _explode(batch, owners)
            if prefix:
                exploded = exploded.filter(below(exploded.column("path"), prefix))
            if exploded.num_rows:
                yield exploded.select(list(columns))


class _Owners:
    """The ephemeral nodes of sessions, as far as the logs show: up to 3.5, closeSession does not name them."""

    def __init__(self) -> None:
        self._nodes: dict[int, dict[str, None]] = {}
        self._owner: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._owner)

    def create(self, path: str, session: int) -> None:
        self.delete(path)
        self._owner[path] = session
        self._nodes.setdefault(session, {})[path] = None

    def delete(self, path: str) -> None:
        owner = self._owner.pop(path, None)
        if owner is not None:
            self._nodes[owner].pop(path, None)

    def close(self, session: int) -> list[str]:
        gone = list(self._nodes.pop(session, ()))
        for path in gone:
            del self._owner[path]
        return gone


def _explode(batch: pa.RecordBatch, owners: _Owners) -> pa.RecordBatch:
    """Return one row per change."""
    if batch.column("sub").null_count < len(batch):
        batch = batch.filter(pa.array(~_failed(batch)))
    types = batch.column("type")
    closed = np.flatnonzero(_mask(pc.equal(types, TYPE_NAMES[CLOSE_SESSION])))
    gone = _gone(batch, closed, owners)
    changes = np.flatnonzero(~_mask(pc.is_in(types, _NO_CHANGE)))
    if not any(gone):
        return batch.take(pa.array(changes))
    counts = np.array([len(paths) for paths in gone])
    of = np.concatenate((changes, np.repeat(closed, counts)))
    paths = contents(pa.string(), [path.encode() for paths_of_row in gone for path in paths_of_row])
    row = batch.take(pa.array(of))
    place = row.schema.get_field_index("path")
    own = row.column("path").slice(0, len(changes))
    row = row.set_column(place, HISTORY["path"].field(), pa.concat_arrays([own, paths]))
    return row.take(pa.array(np.argsort(of, kind="stable")))


def _gone(batch: pa.RecordBatch, closed: Int64s, owners: _Owners) -> list[list[str]]:
    """Return the nodes that are deleted with each closed session."""
    types, paths, sessions = (batch.column(name) for name in ("type", "path", "session_id"))
    ephemeral = pc.and_(pc.fill_null(batch.column("ephemeral"), False), paths.is_valid())
    creates = _mask(pc.and_(pc.is_in(types, _CREATES), ephemeral))
    looked = creates.copy()
    looked[closed] = True
    deletes = np.zeros(len(batch), np.bool_)
    if owners or creates.any():
        deletes = _mask(pc.is_in(types, _DELETES))
        looked |= deletes
    stored = batch.column("paths_to_delete")
    out: list[list[str]] = []
    for i in np.flatnonzero(looked).tolist():
        if creates[i]:
            owners.create(paths[i].as_py(), sessions[i].as_py())
        elif deletes[i]:
            owners.delete(paths[i].as_py())
        else:
            own = owners.close(sessions[i].as_py())
            named = stored[i].as_py() if stored[i].is_valid else []
            out.append([path for path in dict.fromkeys((*named, *own)) if path is not None])
    return out


def _failed(batch: pa.RecordBatch) -> Bools:
    """Return the rows of multis that have an error."""
    subs = np.asarray(pc.fill_null(batch.column("sub"), -1))
    multi = np.cumsum(subs <= 0)
    errors = (subs >= 0) & _mask(pc.equal(batch.column("type"), TYPE_NAMES[ERROR]))
    return (subs >= 0) & np.isin(multi, multi[errors])


def _mask(values: pa.Array) -> Bools:
    return np.asarray(values)
