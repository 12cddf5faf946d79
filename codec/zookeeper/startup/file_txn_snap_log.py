"""The tree of a server after its start: a snapshot with the transactions of the logs applied.

Source: `persistence/FileTxnSnapLog.java` (`restore`, `fastForwardFromEdits`), `ZKDatabase.addCommittedProposal`, `DataTree.compareDigest`,
`ZooKeeperServer.loadData` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.java import int64
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, frames_of
from logwright.codec.zookeeper.names import LOG, SNAPSHOT, zxid_text
from logwright.codec.zookeeper.startup.exceptions import (
    IllegalState,
    IOFailure,
    LogDirContent,
    NullPointer,
    SnapDirContent,
    died_of,
)
from logwright.codec.zookeeper.startup.file_snap import FileSnap, Loaded
from logwright.codec.zookeeper.startup.file_txn_log import FileTxnLog, Records, Stop
from logwright.codec.zookeeper.startup.nulls import in_txn
from logwright.codec.zookeeper.startup.settings import ServerSettings
from logwright.codec.zookeeper.state.tree import Applied, Tree
from logwright.codec.zookeeper.store.files import DATA_LOG_DIR, folder, has_log_directory

INITIALIZE = "initialize"
"""The file beside `version-2` that marks an empty directory as intended."""
_GAP = "Committed proposal cached out of order: {} is not the next proposal of {}"
EMPTY = "No snapshot found, but there are log entries. "


@dataclass
class Restored:
    """The state of a server after loading, and what it met on the way."""

    tree: Tree
    loaded: Loaded
    zxid: int = 0
    """The highest zxid, which `restore` returns."""
    last_processed: int = 0
    applied: list[Int64s] = field(default_factory=list)
    """The zxids of applied transactions, in order."""
    stops: list[Stop] = field(default_factory=list)
    mismatches: list[int] = field(default_factory=list)
    """Zxids after which the tree did not have the stored digest."""
    uncovered: int | None = None
    """The zxid of the snapshot's digest, if no transaction reached it."""

    @property
    def begun(self) -> int:
        """The zxid of the snapshot, 0 without one."""
        return 0 if self.loaded.file is None else self.loaded.file.zxid

    @property
    def transactions(self) -> int:
        return sum(map(len, self.applied))


class FileTxnSnapLog:
    """The files of a server. `above` are the names beside `version-2`. `separate`: whether logs and snapshots have their own directories,
    also if that of the logs is empty."""

    def __init__(
        self,
        disk: Overlay,
        settings: ServerSettings,
        above: frozenset[str] = frozenset(),
        *,
        separate: bool = False,
    ) -> None:
        self.disk, self.settings, self.above = disk, settings, above
        self.separate = separate or has_log_directory(disk)
        self.txn_log = FileTxnLog(disk, settings)
        self.snap_log = FileSnap(disk, settings)

    def check(self) -> None:
        """The constructor. It refuses snapshots among the logs, and logs among the snapshots, if each have their own directory. Raises
        `Thrown`."""
        if not self.settings.checks_directories or not self.separate:
            return
        names = [entry.name for entry in self.disk.entries()]
        if any(name.startswith(f"{DATA_LOG_DIR}/{SNAPSHOT}.") for name in names):
            raise LogDirContent(_MISPLACED.format("Log", "snapshot"))
        if any(not folder(name) and name.startswith(f"{LOG}.") for name in names):
            raise SnapDirContent(_MISPLACED.format("Snapshot", "log"))

    def restore(self) -> Restored:
        """Raises `Thrown`."""
        loaded = self.snap_log.deserialize()
        if loaded.tree is None:
            return self._without_snapshot(loaded)
        restored = Restored(loaded.tree, loaded, mismatches=[mismatch.zxid for mismatch in loaded.mismatches])
        self._fast_forward(restored)
        return restored

    def _without_snapshot(self, loaded: Loaded) -> Restored:
        restored = Restored(Tree.empty(version=self.settings.version, **self.settings.tree), loaded)
        if self.txn_log.last_logged_zxid() != -1:
            if self.settings.refuses_logs_alone:
                raise IOFailure(f"{EMPTY}Something is broken!")
            self._fast_forward(restored)
        elif not self.settings.trusts_empty and INITIALIZE not in self.above:
            restored.zxid = restored.last_processed = -1
        return restored

    def _fast_forward(self, restored: Restored) -> None:
        """`fastForwardFromEdits`."""
        restored.zxid = restored.tree.zxid
        committed = Committed(self.settings.refuses_gaps)
        for records in self.txn_log.read(int64(restored.tree.zxid + 1)):
            if isinstance(records, Stop):
                restored.stops.append(records)
                continue
            zxids = np.ascontiguousarray(records.frames.header["zxid"])
            gap = committed.add(zxids)
            if gap is not None:
                zxids = zxids[: gap.at + 1]
            self._apply(restored, records, zxids)
            if gap is not None:
                raise gap.failure
        restored.last_processed = restored.tree.zxid
        digest_zxid = restored.loaded.digest_zxid
        if digest_zxid is not None and not self._reached(restored, digest_zxid):
            restored.uncovered = digest_zxid

    def _reached(self, restored: Restored, zxid: int) -> bool:
        """Return whether the zxid of a snapshot's digest is that of the snapshot or of a later transaction."""
        file = restored.loaded.file
        if file is not None and file.zxid == zxid:
            return True
        return any((zxids == zxid).any() for zxids in restored.applied)

    def _apply(self, restored: Restored, records: Records, zxids: Int64s) -> None:
        """Apply transactions. Raises `Thrown` if one ends the server."""
        header = records.frames.header[: len(zxids)]
        first = 0
        closing = header["type"] == layout.CLOSE_SESSION
        for i in np.flatnonzero(closing).tolist() if restored.loaded.ephemerals else ():
            left = restored.loaded.ephemerals.pop(int(header["session_id"][i]), None)
            if left is not None:
                # The leftovers of a rejected snapshot are deleted with their session.
                self._apply_some(restored, records, slice(first, i))
                delete(restored.tree, left, int(zxids[i]))
                first = i
        self._apply_some(restored, records, slice(first, len(zxids)))

    def _apply_some(self, restored: Restored, records: Records, which: slice) -> None:
        frames = records.frames.pick(which)
        if not len(frames):
            return
        applied = restored.tree.apply_frames(records.window, frames, check=self.settings.digests)
        if applied.died is not None:
            thrown = died_of(applied.died.error)
            if isinstance(thrown, NullPointer) and not thrown.message:
                i = applied.died.index
                thrown = in_txn(records.window.data[frames.start[i] + BODY : frames.end[i] - 1].tobytes())
            raise thrown
        zxids = np.ascontiguousarray(frames.header["zxid"])
        restored.applied.append(zxids)
        mismatches = [mismatch.zxid for mismatch in applied.mismatches]
        if self.settings.close_session_txn:
            mismatches = _with_bodies(frames, mismatches)
        else:
            mismatches = _without_bodies(records.window, frames, applied, mismatches)
        restored.mismatches += mismatches
        restored.zxid = max(restored.zxid, int(zxids.max()))


def kill_dead_sessions(restored: Restored) -> tuple[list[bytes], list[bytes]]:
    """`ZooKeeperServer.loadData`: delete ephemeral nodes of closed sessions, and the nodes at the paths where rejected snapshots had
    such nodes. Return the paths of both."""
    tree = restored.tree
    gone = tree.after_load(restored.last_processed)
    left = restored.loaded.ephemerals
    paths = {path for session in left.keys() - tree.session_timeouts.keys() for path in left[session]}
    more = sorted(path for path in paths if path in tree)
    delete(tree, paths, restored.last_processed)
    return gone, more


def delete(tree: Tree, paths: Iterable[bytes], zxid: int) -> None:
    """`DataTree.deleteNodes`. The nodes may not exist."""
    header = {"client_id": 0, "cxid": 0, "zxid": zxid, "time": 0, "type": layout.DELETE}
    records = b"".join(
        layout.RECORD.pack({"payload": {**header, "body": {"path": path}, "digest": None}})
        for path in sorted(paths)
    )
    if records:
        data = np.frombuffer(records, np.uint8)
        tree.apply_frames(Window(data, 0, len(data)), frames_of(data))


def _with_bodies(frames: Frames, mismatches: list[int]) -> list[int]:
    """Return the mismatches if the body of closeSession is always read: a digest in its place is taken for paths and never compared."""
    payload = frames.end - frames.start - BODY - 1
    closed = (frames.header["type"] == layout.CLOSE_SESSION) & (
        payload == layout.TXN_HEADER + layout.TXN_DIGEST.head_size
    )
    alone = set(frames.header["zxid"][closed].tolist()) - set(frames.header["zxid"][~closed].tolist())
    return [zxid for zxid in mismatches if zxid not in alone]


def _without_bodies(window: Window, frames: Frames, applied: Applied, mismatches: list[int]) -> list[int]:
    """Return the mismatches if the body of closeSession is not read: the digest is expected in its place."""
    closed = frames.pick(frames.header["type"] == layout.CLOSE_SESSION)
    digests = applied.digests[frames.header["type"] == layout.CLOSE_SESSION]
    others = [zxid for zxid in mismatches if zxid not in closed.header["zxid"]]
    for start, end, zxid, digest in zip(
        closed.start, closed.end, closed.header["zxid"], digests, strict=True
    ):
        rest = window.data[start + BODY + layout.TXN_HEADER : end - 1].tobytes()
        if len(rest) >= layout.TXN_DIGEST.head_size:
            stored, _ = layout.TXN_DIGEST.unpack(rest)
            if stored["version"] == layout.DIGEST_VERSION and stored["tree_digest"] != digest:
                others.append(int(zxid))
    return sorted(others)


@dataclass(frozen=True, slots=True)
class Gap:
    """Return the first transaction that does not continue those before it."""

    at: int
    failure: IllegalState


class Committed:
    """`ZKDatabase.addCommittedProposal`: check that zxids are consecutive, if the version does so."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.max: int | None = None

    def add(self, zxids: Int64s) -> Gap | None:
        """Accept these zxids, in order. Smaller ones than before are skipped; a later epoch may begin anywhere."""
        if not self.strict or not len(zxids):
            return None
        first = int(zxids[0]) if self.max is None else self.max
        highest = np.maximum.accumulate(np.concatenate(([first], zxids)))
        before = highest[:-1]
        gaps = np.flatnonzero((zxids > before) & (zxids != before + 1) & (zxids >> 32 <= before >> 32))
        if len(gaps):
            at = int(gaps[0])
            text = _GAP.format(zxid_text(int(zxids[at])), zxid_text(int(before[at])))
            return Gap(at, IllegalState(text))
        self.max = int(highest[-1])
        return None


_MISPLACED = "{} directory has {} files. Check if dataLogDir and dataDir configuration is correct."
