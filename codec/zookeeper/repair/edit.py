"""Nodes taken out of a tree, or data out of nodes, with all that the directory holds of them.

To a server it is as if a client had deleted the nodes and set the data: each is a transaction with a zxid of its own. What is written is
a snapshot of the tree after the last of these; snapshots and logs from before, which tell of what was taken out, go.
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
from logwright.codec.zookeeper.state.input_columns import Given
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
    "What becomes of nodes below one that is dropped, if they are not dropped themselves: error, or they go too",
    parse_choice,
    choices=("error", "drop"),
)
EDIT_OPTIONS = (BELOW, encode.DIGEST_ENABLED, encode.LAST_PROCESSED_ENABLED, encode.METHOD)
_PORTION = 1 << 14
"""So many nodes are changed at a time."""


def edit(listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
    """See `codec.capability.Edit`. Raises `UsageError` where nodes that stay would be below others that go."""
    wrong = [name for name in change.values if name != "data"]
    if wrong:
        raise UsageError(
            f"a {wrong[0]} can't be redacted", advice="Data can; drop the nodes, or append others"
        )
    resumed = resume(listing)
    dropped, redacted = _chosen(resumed.tree, change, below=options["below"] == "drop")
    own = [path for path in dropped if path in SYSTEM]
    if own:
        raise UsageError(f"{own[0].decode() or '/'} is a server's own and can't be dropped")
    return _plan(listing, resumed, dropped, redacted, change, options)


def _chosen(tree: Tree, change: Change, *, below: bool) -> tuple[list[bytes], list[bytes]]:
    """The paths of nodes that go, those below before what they are below of; and of those that get other data."""
    columns = list(dict.fromkeys(("path", *change.columns)))
    dropped: dict[bytes, None] = {}
    redacted: list[bytes] = []
    for rows in tree.nodes(["path_raw", *columns]):
        given = rows.select(columns)
        drop, redact = change.drops(given).tolist(), change.redacts(given).tolist()
        paths = Given(pa.Table.from_batches([rows.select(["path", "path_raw"])])).paths()
        # A node comes after what it is below of.
        for i, path in enumerate(paths.to_pylist()):
            above = path[: path.rfind(b"/")] if path else None
            if not drop[i] and above in dropped and not below:
                raise UsageError(
                    f"{java_string(path)} would stay, and {java_string(above)} above it go",
                    advice="Drop it too, or pass below=drop to have all below a node go with it",
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
    changed = bool(dropped or redacted)
    if not changed:
        out = Rebuild(listing, {})
    else:
        _carry_out(resumed, dropped, redacted, change)
        data = [*files.snapshots(listing), *files.logs(listing)]
        named = {one: options[one] for one in _NAMES if options.given(one)}
        name = snapshot_name(tree.zxid, encode.method(options) or CHECKED)

        out = Rebuild(
            listing,
            {name: map(bytes, of_tree(tree, Options(encode.OPTIONS, named)))},
            [one.name for one in data],
        )
        why = (
            f"{edit_text(len(dropped), len(redacted))}; a snapshot of the tree without these takes its place"
        )
        out.cut = [
            Removed(one.name, 0, one.size, why, rows_lost=0 if i else len(dropped))
            for i, one in enumerate(data)
        ]
        out.notes.append(
            f"The tree is that after zxid {zxid_text(tree.zxid)}; there is no history before it any more."
        )
        if resumed.member:
            out.before_you_start.append(
                "Other members of the ensemble still have what was taken out, and bring it back: edit all of them, or start them empty."
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
        # The log itself is not wanted, but what it does to the tree.
        for _ in writer.add(txns, at):
            pass


_NAMES = tuple(one.name for one in EDIT_OPTIONS if one is not BELOW)
