"""The tree of a data directory, made of a snapshot and the transactions after it.

The newest sound snapshot is used. Without one, the logs alone make the tree if they go back to the first transaction; otherwise it starts
from the readable part of the newest snapshot.

All of this is one group, and so one task of Spark. Other tasks could only find the records and verify their checksums, which is a seventh
of the processor time (measured with 600,000 nodes and as many transactions); the rest is applying them one after the other and writing the
rows. The results could only be passed on in files, which take as long to read as the logs. So transactions (`txns`) and single snapshots
are read by many tasks, and a tree by one. Source: `FileTxnSnapLog.restore` and `FileSnap.deserialize` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.store.view import Group, Part, Run, Stream, View
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.rows import Nodes
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.names import counter_of, is_first, zxid_text
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.files import DataFile, base, candidates, snapshots
from logwright.codec.zookeeper.store.selection import below, check_time
from logwright.codec.zookeeper.store.succession import first_in, gaps, stop_of

NAME = "zookeeper.datadir"
LOG, SNAPSHOT = txnlog.CODEC.name, snapshot.CODEC.name
_MAX = (1 << 63) - 1


# Selecting the files


def log_parts(listing: Listing, logs: Sequence[DataFile], **hints: Any) -> list[Part]:
    """Return the logs in order, each up to where the next one replaces its transactions. `hints`: see `Part`."""
    return [
        Part(log.name, LOG, "rows", hints, stop=stop_of(listing, log, after))
        for log, after in zip(logs, _following(logs), strict=True)
    ]


def _following(logs: Sequence[DataFile]) -> list[int | None]:
    """Return the zxid in the name of the next log, for each one."""
    return [*(log.zxid for log in logs[1:]), None][: len(logs)]


def group(listing: Listing, logs: Sequence[DataFile], params: Mapping[str, Any]) -> Group:
    """Return the candidate snapshots, the best first, and the logs after the oldest of them."""
    upto = params["upto"]
    intact = candidates(listing)
    rest = [file for file in reversed(snapshots(listing)) if file not in intact and file.zxid >= 0]
    bases = [file for file in (*intact, *rest) if upto is None or file.zxid <= upto]
    done = [file for file in bases if upto is None or _reaches(listing, file) <= upto]
    begin = first_in(listing, logs)
    complete = begin is not None and is_first(begin)
    late = bool(bases) and not done and not complete
    missing = not bases and not complete and bool(intact or rest)
    incomplete = begin is not None and not complete
    params = {**params, "complete": complete, "incomplete": incomplete, "late": late, "missing": missing}
    if not late:
        bases = done
    runs: list[Run] = []
    for place, file in enumerate(bases):
        facts = {"base": place, "zxid": file.zxid, "name": file.name, "whole": file in intact}
        runs.append(Run((Part(file.name, SNAPSHOT, "rows", {}),), facts))
    first = 0 if complete else min((file.zxid for file in bases), default=0) + 1
    kept = [log for log, after in zip(logs, _following(logs), strict=True) if after is None or after > first]
    runs += [
        Run((part,), {"base": None, "next": _MAX if after is None else after})
        for part, after in zip(log_parts(listing, kept), _following(kept), strict=True)
    ]
    return Group(tuple(runs), params)


def check_alone(listing: Listing, at: int) -> None:
    """Raise `UsageError` if a single snapshot does not hold the tree of zxid `at`."""
    (file,) = snapshots(listing)
    check_time(at, file.zxid, _shape_of(listing, file))


def _shape_of(listing: Listing, file: DataFile) -> Shape | None:
    read = ListedFile(listing, file.name, file.size)
    if file.named.compression:
        context = snapshot.CODEC.context(base(file.name), Options(snapshot.CODEC.options))
        data = read(0, file.size)
        snapshot.CODEC.scan(Window(data, 0, len(data)), 0, context)
        return None if context.inner is None else context.inner.shape
    return Shape.of(read, file.size)


def _reaches(listing: Listing, file: DataFile) -> int:
    """Return the last transaction that a snapshot may contain a part of: it is written while others are applied."""
    shape = _shape_of(listing, file)
    zxids = () if shape is None or shape.ending is None else shape.ending.zxids(shape.read)
    return max([file.zxid, *zxids])


# Replaying


class Replay:
    """Make the tree of a group."""

    def __init__(
        self, params: Mapping[str, Any], runs: Sequence[Stream], report: Callable[[Fault], None]
    ) -> None:
        self.params, self.report = params, report
        self.upto: int | None = params["upto"]
        self.bases = [run for run in runs if run.params["base"] is not None]
        self.logs = [run for run in runs if run.params["base"] is None]

    def run(self) -> Tree:
        tree, zxid = self._base()
        self._behind(self._replay(tree, zxid))
        tree.after_load()
        return tree

    def _fault(self, text: str, severity: Severity = Severity.ERROR, kind: Kind = Kind.LINK) -> None:
        self.report(Fault(NAME, 0, 0, kind, text, severity))

    # The snapshot

    def _base(self) -> tuple[Tree, int]:
        """Return the tree to start from, and the last transaction in it."""
        if self.params["late"]:
            text = (
                f"no snapshot was done by {zxid_text(self.upto or 0)}, and the logs do not go back to the first transaction: this "
                "tree includes later changes"
            )
            self._fault(text)
        if self.params["missing"]:
            text = (
                f"every snapshot is later than {zxid_text(self.upto or 0)}, and the logs do not go back to the first transaction: "
                "the tree of that time cannot be rebuilt"
            )
            self._fault(text)
        damaged: list[Stream] = []
        for stream in self.bases:
            if stream.params["whole"]:
                tree, sound = self._load(stream)
                if sound:
                    if damaged:
                        gone = ", ".join(each.params["name"] for each in damaged)
                        self._fault(
                            f"{gone}: damaged; the tree is built from {stream.params['name']}",
                            Severity.WARNING,
                        )
                    return tree, stream.params["zxid"]
                del tree  # two trees would take twice the memory
            damaged.append(stream)
        if self.params["complete"] or not damaged:
            if self.params["incomplete"]:
                self._fault("there is no snapshot, and the logs do not go back to the first transaction")
            return Tree.empty(digests=False, extended_types=True), 0
        self._fault(
            f"all snapshots are damaged: the tree is built from the readable part of {damaged[0].params['name']}"
        )
        return self._load(damaged[0])[0], damaged[0].params["zxid"]

    def _load(self, stream: Stream) -> tuple[Tree, bool]:
        """Load the readable part of a snapshot. Return whether that is all of it, so that a server loads it too."""
        # TTL nodes are treated as such, whatever the server's setting.
        tree = Tree(digests=False, extended_types=True)
        begun, late, sound = False, 0, True
        for part in stream.frames():
            shape = part.context.shape
            if not begun:
                tree.load_shape(shape, stream.params["zxid"])
                begun = True
            sound &= tree.load_frames(part.window, part.frames).orphan is None
            if self.upto is not None and len(part.frames):
                stats = Nodes(part.window, part.frames, shape).stats
                late = max(late, *(int(stats[name].max()) for name in ("czxid", "mzxid", "pzxid")))
        tree.loaded()
        if self.upto is not None and late > self.upto and not self.params["late"]:
            self._fault(f"{stream.params['name']} holds later changes, up to {zxid_text(late)}")
        return tree, sound and not stream.damaged

    # The transactions

    def _replay(self, tree: Tree, since: int) -> int:
        """Apply the transactions after `since`, and return the last one."""
        last = since
        for run in self.logs:
            if run.params["next"] <= since + 1:
                continue
            for part in run.frames():
                zxids = part.frames.header["zxid"]
                zxids = zxids[zxids > since]
                if self.upto is not None:
                    zxids = zxids[: int(np.argmax([*(zxids > self.upto), True]))]
                if len(zxids):
                    self._missing(last, zxids)
                    last = max(last, int(zxids.max()))
                if self._apply(tree, part.window, part.frames, since):
                    return last
        if self.upto is not None and last < self.upto:
            text = f"zxid {zxid_text(self.upto)} is beyond the last transaction, {zxid_text(last)}"
            self._fault(text, Severity.WARNING)
        return last

    def _behind(self, last: int) -> None:
        """Report a damaged snapshot with later transactions than the tree. The first snapshot of an epoch need not have any."""
        zxids = {base.params["zxid"]: base.params["name"] for base in self.bases}
        later = [zxid for zxid in zxids if zxid > last and counter_of(zxid)]
        if later:
            text = f"{zxids[max(later)]} is damaged, and transactions before it are in no log: the tree is that after {zxid_text(last)}"
            self._fault(text)

    def _apply(self, tree: Tree, window: Window, frames: Frames, since: int) -> bool:
        """Apply transactions. Return whether the last selected one is among them."""
        while len(frames):
            done = tree.apply_frames(window, frames, since=since, upto=self.upto)
            for zxid in done.unread:
                self._fault(f"transaction {zxid_text(zxid)} cannot be read", kind=Kind.PAYLOAD)
            if done.died is None:
                return done.reached
            zxid = int(frames.header["zxid"][done.died.index])
            text = f"transaction {zxid_text(zxid)} is skipped: a server fails on it: {done.died.error}"
            self._fault(text, kind=Kind.PAYLOAD)
            frames = frames.pick(slice(done.died.index + 1, None))
        return False

    def _missing(self, last: int, zxids: Int64s) -> None:
        if any(run.damaged for run in self.logs):
            return  # missing ones were reported with the damage
        for first, upto in gaps(last, zxids):
            self._fault(f"the transactions {zxid_text(first)} to {zxid_text(upto)} are in no log")
        lower = np.flatnonzero(zxids < np.maximum.accumulate(np.concatenate(([last], zxids[:-1]))))
        if len(lower):
            zxid = zxid_text(int(zxids[lower[0]]))
            text = f"{zxid} comes after later transactions: it is a copy, or belongs to another history"
            self._fault(text, kind=Kind.ORDER)


# Rows


def rows_of(tree: Tree, view: View, prefix: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a view of the tree. `prefix`: only that node and its descendants; "" for all."""
    if view.name == "tree":
        yield from _nodes(tree, prefix, columns)
        return
    counted, key, of = (
        ("ephemerals", "session_id", "ephemeral_owner")
        if view.name == "sessions"
        else ("nodes", "acl_id", "acl_id")
    )
    table = tree.sessions() if view.name == "sessions" else tree.acls()
    if counted in columns:
        table = table.append_column(counted, _counts(tree, of, np.asarray(table.column(key))))
    assert view.rows is not None
    yield pa.RecordBatch.from_arrays(
        [table.column(name) for name in columns], schema=view.rows.schema(columns)
    )


def _nodes(tree: Tree, prefix: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not prefix:
        yield from tree.nodes(columns)
        return
    for batch in tree.nodes(tuple(dict.fromkeys((*columns, "path")))):
        rows = batch.filter(below(batch.column("path"), prefix))
        if rows.num_rows:
            yield rows.select(list(columns))


def _counts(tree: Tree, column: str, keys: Int64s) -> pa.Array:
    """Return how many nodes have each of these values in a column."""
    out = dict.fromkeys(keys.tolist(), 0)
    for batch in tree.nodes((column,), order=False):
        for value, count in zip(*np.unique(np.asarray(batch.column(0)), return_counts=True), strict=True):
            if int(value) in out:
                out[int(value)] += int(count)
    return numbers(pa.int64(), np.array([out[key] for key in keys.tolist()], np.int64))
