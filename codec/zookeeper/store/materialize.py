"""The tree of a data directory, made of a snapshot and the transactions after it.

The newest snapshot that is sound is taken. Where none is, the logs alone make the tree if they go back to the first transaction; else
what is left of the newest one does.

All of it is one group, and so one task of Spark. What other tasks could do for it is to find the records and hold them against their
checksums; measured (600,000 nodes, as many transactions), that is a seventh of the processor's time, the rest is to apply them one after
the other and to write the rows. A task has no way to hand on what it found but files, which the one that replays would have to read as it
reads the logs now. So transactions (`txns`) and single snapshots are read by many tasks, and a tree by one.

Source: `FileTxnSnapLog.restore` and `FileSnap.deserialize` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

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
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_kernels import UNREAD
from logwright.codec.zookeeper.store.files import DataFile, base, candidates, snapshots
from logwright.codec.zookeeper.store.selection import below, check_time
from logwright.codec.zookeeper.store.succession import gaps, stop_of

NAME = "zookeeper.datadir"
LOG, SNAPSHOT = txnlog.CODEC.name, snapshot.CODEC.name
_MAX = (1 << 63) - 1


# What is to be read


def log_parts(listing: Listing, logs: Sequence[DataFile]) -> list[Part]:
    """The logs one after the other, each up to where the next one has put others in their place."""
    following: list[int | None] = [*(one.zxid for one in logs[1:]), None]
    return [
        Part(log.name, LOG, "rows", {}, stop=stop_of(listing, log, after))
        for log, after in zip(logs, following[: len(logs)], strict=True)
    ]


def group(listing: Listing, logs: Sequence[DataFile], params: Mapping[str, Any]) -> Group:
    """The snapshots that come into question, the best first, and the logs after the oldest of them."""
    upto = params["upto"]
    whole = candidates(listing)
    rest = [one for one in reversed(snapshots(listing)) if one not in whole and one.zxid >= 0]
    found = [one for one in (*whole, *rest) if upto is None or one.zxid <= upto]
    done = [one for one in found if upto is None or _reaches(listing, one) <= upto]
    complete = bool(logs) and logs[0].zxid <= 1
    missing = not found and not complete and bool(whole or rest)
    params = {
        **params,
        "complete": complete,
        "late": bool(found) and not done and not complete,
        "missing": missing,
    }
    if not params["late"]:
        found = done
    runs: list[Run] = []
    for place, one in enumerate(found):
        part = Part(one.name, SNAPSHOT, "rows", {})
        runs.append(Run((part,), {"base": place, "zxid": one.zxid, "name": one.name, "whole": one in whole}))
    first = 0 if complete else min((one.zxid for one in found), default=0) + 1
    runs += [
        Run((part,), {"base": None, "zxid": zxid, "next": after})
        for part, zxid, after in _from(listing, logs, first)
    ]
    return Group(tuple(runs), params)


def _from(listing: Listing, logs: Sequence[DataFile], first: int) -> Iterator[tuple[Part, int, int]]:
    """The logs that may hold a zxid from `first` on, with their own and the next one's zxid."""
    following = [*(one.zxid for one in logs[1:]), _MAX]
    kept = [(log, after) for log, after in zip(logs, following[: len(logs)], strict=True) if after > first]
    for part, (log, after) in zip(log_parts(listing, [log for log, _ in kept]), kept, strict=True):
        yield part, log.zxid, after


def check_alone(listing: Listing, at: int) -> None:
    """Raise `UsageError` where the tree of zxid `at` cannot be made from a single snapshot."""
    (one,) = snapshots(listing)
    check_time(at, one.zxid, _shape_of(listing, one))


def _shape_of(listing: Listing, one: DataFile) -> Shape | None:
    read = ListedFile(listing, one.name, one.size)
    if one.named.compression:
        context = snapshot.CODEC.context(base(one.name), Options(snapshot.CODEC.options))
        data = read(0, one.size)
        snapshot.CODEC.scan(Window(data, 0, len(data)), 0, context)
        return None if context.inner is None else context.inner.shape
    return Shape.of(read, one.size)


def _reaches(listing: Listing, one: DataFile) -> int:
    """The last transaction that a snapshot may hold something of: it is taken while others go on."""
    shape = _shape_of(listing, one)
    ending = None if shape is None else shape.ending
    if shape is None or ending is None:
        return one.zxid
    found = [shape.read(at, 8).tobytes() for at in (ending.digest, ending.last) if at is not None]
    return max([one.zxid, *(int.from_bytes(zxid, "big", signed=True) for zxid in found)])


# How it is put together


class _Replay:
    """Makes the tree of a group."""

    def __init__(
        self, params: Mapping[str, Any], runs: Sequence[Stream], report: Callable[[Fault], None]
    ) -> None:
        self.params, self.report = params, report
        self.upto: int | None = params["upto"]
        self.bases = [run for run in runs if run.params["base"] is not None]
        self.logs = [run for run in runs if run.params["base"] is None]

    def run(self) -> Tree:
        tree, zxid = self._base()
        self._replay(tree, zxid)
        tree.after_load()
        return tree

    def _fault(self, text: str, severity: Severity = Severity.ERROR, kind: Kind = Kind.LINK) -> None:
        self.report(Fault(NAME, 0, 0, kind, text, severity))

    # The snapshot

    def _base(self) -> tuple[Tree, int]:
        """What the transactions are applied to, and the last one that is in it."""
        if self.params["late"]:
            text = (
                f"no snapshot was done by {zxid_text(self.upto or 0)}, and the logs don't go back to the first transaction: what "
                "came later is in this tree"
            )
            self._fault(text)
        if self.params["missing"]:
            text = (
                f"every snapshot is later than {zxid_text(self.upto or 0)}, and the logs don't go back to the first transaction: "
                "the tree of that time cannot be made"
            )
            self._fault(text)
        damaged: list[Stream] = []
        for one in self.bases:
            tree = self._load(one) if one.params["whole"] else None
            if tree is not None:
                if damaged:
                    gone = ", ".join(each.params["name"] for each in damaged)
                    self._fault(
                        f"{gone}: damaged, the tree is made from {one.params['name']}", Severity.WARNING
                    )
                return tree, one.params["zxid"]
            damaged.append(one)
        if self.params["complete"] or not damaged:
            if not self.params["complete"] and self.logs:
                self._fault("there is no snapshot, and the logs don't go back to the first transaction")
            return Tree.empty(digests=False, extended_types=True), 0
        self._fault(
            f"no snapshot is sound: the tree is made from what is left of {damaged[0].params['name']}"
        )
        return self._load_all(damaged[0])[0], damaged[0].params["zxid"]

    def _load(self, one: Stream) -> Tree | None:
        """None where the snapshot is damaged."""
        tree, sound = self._load_all(one)
        return tree if sound else None

    def _load_all(self, one: Stream) -> tuple[Tree, bool]:
        """What can be read of a snapshot, and whether that is all of it, so that a server loads it too."""
        # TTL nodes count for such, whether the server was told to or not.
        tree = Tree.bare(digests=False, extended_types=True)
        begun, late, sound = False, 0, True
        for found in one.frames():
            shape = found.context.shape
            if not begun:
                tree.load_shape(shape, one.params["zxid"])
                begun = True
            sound &= tree.load_frames(found.window, found.frames, shape).orphan is None
            if self.upto is not None and len(found.frames):
                stats = Nodes(found.window, found.frames, shape).stats
                late = max(late, *(int(stats[name].max()) for name in ("czxid", "mzxid", "pzxid")))
        tree.loaded()
        if self.upto is not None and late > self.upto and not self.params["late"]:
            self._fault(f"{one.params['name']} holds what came later, up to {zxid_text(late)}")
        return tree, sound and not one.damaged

    # The transactions

    def _replay(self, tree: Tree, since: int) -> None:
        last = since
        for run in self.logs:
            if run.params["next"] <= since + 1:
                continue
            for found in run.frames():
                zxids = found.frames.header["zxid"]
                zxids = zxids[zxids > since]
                if self.upto is not None:
                    zxids = zxids[: int(np.argmax([*(zxids > self.upto), True]))]
                if len(zxids):
                    self._missing(last, zxids)
                    last = max(last, int(zxids.max()))
                if self._apply(tree, found.window, found.frames, since):
                    return
        if self.upto is not None and last < self.upto:
            text = f"the last transaction is {zxid_text(last)}, {zxid_text(self.upto)} is beyond it"
            self._fault(text, Severity.WARNING)

    def _apply(self, tree: Tree, window: Window, frames: Frames, since: int) -> bool:
        """Apply transactions. Return whether the last one that counts is among them."""
        while len(frames):
            done = tree.apply_frames(window, frames, since=since, upto=self.upto)
            for noted in done.noted:
                if noted.code == UNREAD:
                    self._fault(f"transaction {zxid_text(noted.zxid)} can't be read", kind=Kind.PAYLOAD)
            if done.died is None:
                return done.reached
            zxid = int(frames.header["zxid"][done.died.index])
            text = f"transaction {zxid_text(zxid)} is passed over: a server dies of it, {done.died.error}"
            self._fault(text, kind=Kind.PAYLOAD)
            frames = frames.pick(slice(done.died.index + 1, None))
        return False

    def _missing(self, last: int, zxids: Int64s) -> None:
        if any(run.damaged for run in self.logs):
            return  # what is missing was told where it was damaged
        for first, upto in gaps(last, zxids):
            self._fault(f"the transactions {zxid_text(first)} to {zxid_text(upto)} are in no log")


# Rows


def rows(
    view: View,
    params: Mapping[str, Any],
    runs: Sequence[Stream],
    columns: Sequence[str],
    report: Callable[[Fault], None],
) -> Iterator[pa.RecordBatch]:
    """The nodes, sessions or ACLs of the tree."""
    yield from rows_of(_Replay(params, runs, report).run(), view, params["prefix"], columns)


def rows_of(tree: Tree, view: View, prefix: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a view of the tree. `prefix`: only that node and those below it; "" for all."""
    if view.name == "tree":
        yield from _nodes(tree, prefix, columns)
        return
    counted, key, of = (
        ("ephemerals", "session_id", "ephemeral_owner")
        if view.name == "sessions"
        else ("nodes", "acl_id", "acl_id")
    )
    found = tree.sessions() if view.name == "sessions" else tree.acls()
    if counted in columns:
        found = found.append_column(counted, _counts(tree, of, np.asarray(found.column(key))))
    assert view.rows is not None
    yield pa.RecordBatch.from_arrays(
        [found.column(name) for name in columns], schema=view.rows.schema(columns)
    )


def _nodes(tree: Tree, prefix: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not prefix:
        yield from tree.nodes(columns)
        return
    for batch in tree.nodes(tuple(dict.fromkeys((*columns, "path")))):
        found = batch.filter(below(batch.column("path"), prefix))
        if found.num_rows:
            yield found.select(list(columns))


def _counts(tree: Tree, column: str, keys: Int64s) -> pa.Array:
    """How many nodes have each of these values in a column."""
    out = dict.fromkeys(keys.tolist(), 0)
    for batch in tree.nodes((column,), order=False):
        for value, count in zip(*np.unique(np.asarray(batch.column(0)), return_counts=True), strict=True):
            if int(value) in out:
                out[int(value)] += int(count)
    return numbers(pa.int64(), np.array([out[key] for key in keys.tolist()], np.int64))
