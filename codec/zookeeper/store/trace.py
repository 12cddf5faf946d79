"""Check the digests of a directory: from its newest snapshot on, transaction by transaction, as a server replays them.

A digest is a sum over the nodes of the tree, so a wrong one stays wrong. Only the first one is reported, and only if those before it were
right. After missing transactions nothing is known until a digest is right again. Source: `ZKDatabase.compareDigest`,
`DataTree.compareSnapshotDigests` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.fault import Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, walk_listed
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.bodies import DIGEST, NO_DIGEST, Bodies
from logwright.codec.zookeeper.formats.txnlog.layout import ERROR
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, TXN_FRAME
from logwright.codec.zookeeper.names import continues
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.files import DataFile, logs, logs_from


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A transaction after which the tree does not have the stored digest."""

    file: str
    offset: int
    zxid: int
    stored: int
    computed: int


@dataclass
class Trace:
    """A replay and the results of its digests."""

    tree: Tree
    zxid: int
    """The last applied transaction, or the zxid of the snapshot."""
    compared: int = 0
    """The number of compared digests."""
    wrong: list[Mismatch] = field(default_factory=list)
    """The first of each run of wrong digests that follows a right one."""
    right: set[int] = field(default_factory=set)
    """The watched zxids with a right digest."""
    never: Mismatch | None = None
    """The first digest, if it is wrong and none was right before."""


class _Tracer:
    def __init__(self, listing: Listing, tree: Tree, until: int, zxid: int, watch: frozenset[int]) -> None:
        self.listing, self.until, self.watch = listing, until, watch
        self.trace = Trace(tree, zxid)
        self.agreed: bool | None = None
        """Whether the last digest was right; None if unknown."""
        self.last = zxid
        self.begun = False
        """Whether the first transaction after the snapshot was met. A server applies all that follow, also lower ones."""

    def log(self, log: DataFile, upto: int | None) -> bool:
        """Apply the records of a log. Return whether to continue."""
        for step in walk_listed(self.listing, log.name, log.size, txnlog.CODEC):
            if isinstance(step, Hole):
                if step.fault.severity is not Severity.INFO:
                    self.agreed = None
                continue
            if not self._stretch(log, step, upto):
                return False
        return True

    def _stretch(self, log: DataFile, stretch: Stretch, upto: int | None) -> bool:
        frames = stretch.frames.pick(stretch.frames.header["kind"] == TXN_FRAME)
        if not self.begun:
            later = np.flatnonzero(frames.header["zxid"] > self.trace.zxid)
            frames = frames.pick(slice(int(later[0]) if len(later) else len(frames), None))
            self.begun = bool(len(later))
        more = True
        if upto is not None and len(frames):
            late = frames.header["zxid"] > upto
            if late.any():
                frames, more = frames.pick(slice(0, int(np.argmax(late)))), False
        for part in self._runs(frames):
            self._apply(log, stretch.window, part)
        return more

    def _runs(self, frames: Frames) -> Sequence[Frames]:
        """Split frames where transactions are missing, or where replacements stand for them."""
        if not len(frames):
            return ()
        zxid = np.ascontiguousarray(frames.header["zxid"])
        before = np.concatenate(([self.last], zxid[:-1]))
        odd = (zxid > before) & ~continues(zxid, before)
        odd |= (frames.header["type"] == ERROR) & (frames.header["session_id"] == 0)
        edges = [*np.flatnonzero(odd).tolist(), len(zxid)]
        parts, at = [], 0
        for edge in edges:
            if edge > at:
                parts.append(frames.pick(slice(at, edge)))
            at = edge
        self.last = int(zxid.max())
        return parts

    def _apply(self, log: DataFile, window: Window, frames: Frames) -> None:
        head = frames.header[0]
        first = int(head["zxid"])
        complete = first <= self.trace.zxid or continues(first, self.trace.zxid)
        if not complete or (int(head["type"]) == ERROR and not int(head["session_id"])):
            self.agreed = None
        applied = self.trace.tree.apply_frames(window, frames, check=True)
        reached = np.maximum(np.maximum.accumulate(frames.header["zxid"]), self.trace.zxid)
        self.trace.zxid = int(reached[-1])
        bodies, _ = Bodies.of(window.data, frames.start + BODY, frames.end - 1)
        has = (bodies.measures[DIGEST] != NO_DIGEST) & (reached >= self.until)
        stored = {entry.zxid: (entry.stored, entry.computed) for entry in applied.mismatches}
        for i in np.flatnonzero(has).tolist() if stored else ():
            zxid = int(frames.header["zxid"][i])
            if zxid not in stored:
                self.agreed = True
                continue
            mismatch = Mismatch(log.name, window.offset + int(frames.start[i]), zxid, *stored[zxid])
            if self.agreed:
                self.trace.wrong.append(mismatch)
            elif self.agreed is None and self.trace.never is None and not self.trace.compared:
                self.trace.never = mismatch
            self.agreed = False
        if not stored and has.any():
            self.agreed = True
        self.trace.compared += int(has.sum())
        if self.watch:
            digests = set(frames.header["zxid"][has].tolist())
            self.trace.right |= (digests & self.watch) - stored.keys()


Loaded = tuple[Tree, bool | None, int]
"""See `load`."""


def load(listing: Listing, file: DataFile) -> Loaded:
    """Load the tree of a snapshot. Return whether its own digest is right (None without one for exactly this tree), and the last
    transaction that was applied while it was written: earlier digests are not compared."""
    read = ListedFile(listing, file.name, file.size)
    tree, _ = Tree.of_snapshot(read, zxid=file.zxid, compression=COMPRESSION[file.named.compression])
    target = tree.target
    wrong, _ = tree.loaded()
    until = file.zxid if target is None else max(file.zxid, target[0])
    right = None if target is None or until > file.zxid else not wrong
    return tree, right, until


def trace(
    listing: Listing,
    file: DataFile | None,
    loaded: Loaded | None = None,
    *,
    upto: int | None = None,
    watch: frozenset[int] = frozenset(),
) -> Trace:
    """Replay all logs on a snapshot (`loaded`, if its tree is in memory), or on the tree of a new server. `watch`: see `Trace.right`."""
    tree, right, until = loaded or ((Tree.empty(), None, 0) if file is None else load(listing, file))
    tracer = _Tracer(listing, tree, until, 0 if file is None else file.zxid, watch)
    tracer.agreed = right
    for log in logs_from(logs(listing), tracer.trace.zxid + 1):
        if not tracer.log(log, upto):
            break
    return tracer.trace
