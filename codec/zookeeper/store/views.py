"""The views of a data directory: which files they read, and how their rows are combined.

Source: `FileTxnSnapLog.restore` of ZooKeeper: the newest loadable snapshot, with all later transactions applied. A server refuses to start,
or says nothing, where these views report what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.fault import Fault
from logwright.codec.option import Options, Verb, used_by
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.view import Group, Part, Run, Stream, View
from logwright.codec.table import Column, Table
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.tables import ACL_ROWS, SESSION_ROWS
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.state.tree_read import COLUMNS
from logwright.codec.zookeeper.store import history, materialize
from logwright.codec.zookeeper.store.files import DataFile, logs
from logwright.codec.zookeeper.store.selection import AT_ZXID, PATH_PREFIX, prefix_of

LOG, SNAPSHOT = txnlog.CODEC.name, snapshot.CODEC.name
_COLUMNS = {column.name: column for column in COLUMNS}
_FIRST = (
    *("path", "data", "acl", "czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion"),
    *("ephemeral_owner", "pzxid", "kind", "ttl", "data_length", "num_children", "stored_cversion"),
)
TREE = Table(
    "tree",
    (*(_COLUMNS[name] for name in _FIRST), *(column for column in COLUMNS if column.detail)),
    "One row per node, in the order of their paths.",
    key=("path",),
)
SESSIONS = Table(
    "sessions",
    (
        *SESSION_ROWS.columns,
        Column("ephemerals", pa.int64(), "how many ephemeral nodes it has", nullable=False),
    ),
    "One row per open session, in the order of their ids.",
    key=("session_id",),
)
ACLS = Table(
    "acls",
    (*ACL_ROWS.columns, Column("nodes", pa.int64(), "how many nodes have it", nullable=False)),
    "One row per list of the ACL table, in the order of their numbers.",
    key=("acl_id",),
)
VIEWS = {
    view.name: view
    for view in (
        View(
            "tree",
            SNAPSHOT,
            "rows",
            "the nodes of a server after its start: a snapshot, and the transactions after it; or at any zxid (at_zxid)",
            TREE,
            leaves="the changes and deletions since",
        ),
        View(
            "txns", LOG, "rows", "every transaction of the logs, in the order in which a server applies them"
        ),
        View(
            "history",
            LOG,
            "rows",
            "every change of a node in the logs, with multis and closed sessions split up; of one path with path_prefix",
            history.HISTORY,
        ),
        View("sessions", SNAPSHOT, "sessions", "the sessions that are open, as `tree`", SESSIONS),
        View("acls", SNAPSHOT, "acls", "the ACL table, as `tree`", ACLS),
    )
}


ALONE = {SNAPSHOT: ("tree",), LOG: ("history",)}
"""The views of a single file."""


_OF_TREE = ("tree", "sessions", "acls")
_OF_LOGS = ("txns", "history")
OPTIONS = (
    *used_by({Verb.READ}, AT_ZXID, views=(*_OF_TREE, *_OF_LOGS)),
    *used_by({Verb.READ, Verb.AS_SYSTEM}, PATH_PREFIX, views=("tree", *_OF_LOGS)),
)


def parts(listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
    """See `codec.layout.Layout.parts`."""
    if options["at_zxid"] is not None and getattr(listing, "lone", False) and view in _OF_TREE:
        materialize.check_alone(listing, options["at_zxid"])
    if view == "txns":
        return materialize.log_parts(listing, _used(listing, plan))
    params: dict[str, Any] = {"prefix": prefix_of(options["path_prefix"]), "upto": options["at_zxid"]}
    if view == "history":
        runs = [Run((part,)) for part in materialize.log_parts(listing, _used(listing, plan), split=True)]
        return [Group(tuple(runs), params)] if runs else []
    return [materialize.group(listing, _used(listing, plan), params)]


def _used(listing: Listing, plan: Plan) -> list[DataFile]:
    """Return the logs that a server needs."""
    primary = {file.name for file in plan.files if file.role is Role.PRIMARY}
    return [log for log in logs(listing) if log.name in primary]


def combine(
    view: str,
    params: Mapping[str, Any],
    runs: Sequence[Stream],
    columns: Sequence[str],
    report: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    """See `codec.capability.Combine`."""
    if view == "history":
        yield from history.rows(runs, columns, params["prefix"], params["upto"])
    else:
        tree = materialize.Replay(params, runs, report).run()
        yield from materialize.rows_of(tree, VIEWS[view], params["prefix"], columns)
