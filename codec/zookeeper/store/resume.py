"""The state that an append to a data directory continues from: the tree that a server would have, if it loses nothing.

Existing files are never extended: a server starts a new log too. Source: `FileTxnSnapLog.restore` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.frames.walk import Hole, ListedFile, walk_listed
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.names import CURRENT_EPOCH, counter_of, zxid_text
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.files import DataFile, base, candidates, logs, logs_from, snapshots
from logwright.codec.zookeeper.store.succession import gaps

_REPAIR = "Repair it first, or write to a new directory. `logwright verify` shows what is wrong"
_HARMLESS = (Kind.TRUNCATED, Kind.PADDING)
"""Faults that a stopped server normally leaves at the end of a log."""


@dataclass(frozen=True)
class Resumed:
    """A sound directory. `member`: of a server in an ensemble."""

    tree: Tree
    member: bool

    @property
    def next_zxid(self) -> int:
        """Return the next zxid. Raises `UsageError` if the epoch is used up."""
        if counter_of(self.tree.zxid) == 0xFFFFFFFF:
            raise UsageError(
                f"no zxid is left in the epoch of {zxid_text(self.tree.zxid)}: only a new leader starts the next epoch"
            )
        return self.tree.zxid + 1


def resume(listing: Listing) -> Resumed:
    """Return the state of a directory to append to. Raises `UsageError` if a server would not start, or would lose something."""
    snapshots_found = candidates(listing)
    if not snapshots_found:
        present = "logs and no snapshot" if logs(listing) else "no snapshot"
        if snapshots(listing):
            present += " that is undamaged"
        raise UsageError(f"the directory has {present}", advice=_REPAIR)
    newest = snapshots_found[0]
    tree, faults = Tree.of_snapshot(
        ListedFile(listing, newest.name, newest.size),
        zxid=newest.zxid,
        compression=COMPRESSION[newest.named.compression],
    )
    bad = [fault for fault in faults if fault.severity is Severity.ERROR]
    if bad:
        raise UsageError(f"{newest.name} is damaged: {bad[0].detail}", advice=_REPAIR)
    tree.loaded()
    for log in logs_from(logs(listing), newest.zxid + 1):
        _replay(listing, log, tree)
    names = {base(entry.name) for entry in listing.entries()}
    return Resumed(tree, CURRENT_EPOCH in names)


def _replay(listing: Listing, log: DataFile, tree: Tree) -> None:
    if not log.size:  # a server deletes an empty newest log at its start
        return
    ended: Fault | None = None
    for stretch in walk_listed(listing, log.name, log.size, txnlog.CODEC):
        if isinstance(stretch, Hole):
            ended = ended or stretch.fault
            if stretch.fault.kind not in _HARMLESS:
                raise _damaged(log, stretch.fault)
            continue
        later = stretch.frames.pick(stretch.frames.header["kind"] == TXN_FRAME)
        if not len(later):
            continue
        if ended is not None:
            raise _damaged(log, ended)
        zxids = np.ascontiguousarray(later.header["zxid"])
        zxids = zxids[zxids > tree.zxid]
        missing = gaps(tree.zxid, zxids) if len(zxids) else []
        if missing:
            low, high = (zxid_text(zxid) for zxid in missing[0])
            raise UsageError(f"{log.name}: the transactions {low} to {high} are missing", advice=_REPAIR)
        applied = tree.apply_frames(stretch.window, stretch.frames, since=tree.zxid)
        if applied.died is not None:
            raise UsageError(
                f"{log.name}: a server does not start on it: {applied.died.error}", advice=_REPAIR
            )


def _damaged(log: DataFile, fault: Fault) -> UsageError:
    return UsageError(f"{log.name} is damaged at byte {fault.offset}: {fault.detail}", advice=_REPAIR)
