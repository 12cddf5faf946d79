"""Delete nodes from a tree, or redact their data, everywhere in a directory.

To a server it looks as if a client had deleted the nodes and set the data: each change is a transaction with its own zxid. The result is a
snapshot of the tree after the last of these. Older snapshots and logs, which contain what was removed, are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import Change, Removed, RepairPlan, edit_text
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string
from logwright.codec.option import Option, Options, parse_choice
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.names import CHECKED, snapshot_name, zxid_text
from logwright.codec.zookeeper.state.input_columns import InputColumns
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_defaults import SYSTEM
from logwright.codec.zookeeper.store import files, rolling
from logwright.codec.zookeeper.store.edits import Editor
from logwright.codec.zookeeper.store.resume import Resumed, resume
from logwright.codec.zookeeper.store.rolling import LogWriter
from logwright.codec.zookeeper.store.write import of_tree

BELOW = Option(
    "below",
    "error",
    "How to handle nodes below a dropped one that are not dropped themselves: error, or drop",
    parse_choice,
    choices=("error", "drop"),
)
EDIT_OPTIONS = (BELOW, encode.DIGEST_ENABLED, encode.LAST_PROCESSED_ENABLED, encode.METHOD)
_PORTION = 1 << 14
"""Nodes that are changed at a time."""


def edit(listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
    """See `codec.capability.Edit`. Raises `UsageError` if nodes that stay are below nodes that go."""
    resumed = resume(listing)
    dropped, redacted = _chosen(resumed.tree, change, below=options["below"] == "drop")
    own = [path for path in dropped if path in SYSTEM]
    if own:
        raise UsageError(
            f"{own[0].decode() or '/'} belongs to the server and cannot be dropped",
            advice="Exclude such nodes: ... and path != '/' and not path like '/zookeeper%'",
        )
    return _plan(listing, resumed, dropped, redacted, change, options)


def _chosen(tree: Tree, change: Change, *, below: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the paths of nodes to delete, children first, and of nodes whose data is replaced."""
    columns = list(dict.fromkeys(("path", *change.columns)))
    dropped: dict[bytes, None] = {}
    redacted: list[bytes] = []
    for rows in tree.nodes(["path_raw", *columns]):
        named_rows = rows.select(columns)
        drop, redact = change.drops(named_rows).tolist(), change.redacts(named_rows).tolist()
        paths = InputColumns(pa.Table.from_batches([rows.select(["path", "path_raw"])])).paths()
        # Children are deleted before their parents.
        for i, path in enumerate(paths.to_pylist()):
            above = path[: path.rfind(b"/")] if path else None
            if not drop[i] and above in dropped and not below:
                raise UsageError(
                    f"{java_string(path)} would stay while its ancestor {java_string(above) or '/'} is dropped",
                    advice="Drop it too, or pass below=drop to drop all descendants",
                )
            if drop[i] or above in dropped:
                dropped[path] = None
            elif redact[i]:
                redacted.append(path)
    return sorted(dropped, key=lambda path: path.count(b"/"), reverse=True), redacted


def _plan(
    listing: Listing,
    resumed: Resumed,
    dropped: Sequence[bytes],
    redacted: Sequence[bytes],
    change: Change,
    options: Options,
) -> RepairPlan:
    tree = resumed.tree
    out = Rebuild(listing, {})
    if dropped or redacted:
        _carry_out(resumed, dropped, redacted, change)
        data = [*files.snapshots(listing), *files.logs(listing)]
        asked = [option.name for option in EDIT_OPTIONS if option is not BELOW and options.given(option.name)]
        written = Options(encode.OPTIONS, {name: options[name] for name in asked})
        name = snapshot_name(tree.zxid, encode.method(options) or CHECKED)
        out = Rebuild(listing, {name: map(bytes, of_tree(tree, written))}, [file.name for file in data])
        counts = edit_text(len(dropped), len(redacted))
        why = f"{counts}; a snapshot of the tree without these takes its place"
        out.cut = [
            Removed(file.name, 0, file.size, why, rows_lost=0 if i else len(dropped))
            for i, file in enumerate(data)
        ]
        out.notes.append(
            f"The tree is that after zxid {zxid_text(tree.zxid)}; the history before it is gone."
        )
        if resumed.member:
            out.before_you_start.append(
                "Other members of the ensemble still have the removed data, and restore it: edit all of them, or start them empty."
            )
    out.rows, out.ids = len(tree), {"zxid": tree.zxid}
    return out


def _carry_out(resumed: Resumed, dropped: Sequence[bytes], redacted: Sequence[bytes], change: Change) -> None:
    """Apply the transactions to the tree."""
    tree, now = resumed.tree, time.time_ns() // 1_000_000
    editor = Editor(tree, resumed.next_zxid, time=now, timeout=0)
    writer = LogWriter(tree, Options((*EDIT_OPTIONS, *rolling.OPTIONS)))
    rows = [("setData", path, change.values["data"]) for path in redacted]
    rows += [("delete", path, None) for path in dropped]
    for at in range(0, len(rows), _PORTION):
        kinds, paths, data = zip(*rows[at : at + _PORTION], strict=True)
        arrays = [pa.array(kinds), pa.array(paths, pa.binary()), pa.array(data, pa.binary())]
        txns = editor.txns(pa.RecordBatch.from_arrays(arrays, names=["type", "path", "data"]), at)
        # Only the log's effect on the tree is needed, not the log.
        for _ in writer.add(txns, at):
            pass
