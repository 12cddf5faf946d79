"""Compare the files of a data directory: find missing transactions, and check the tree against the stored digests.

Severity: lost data, or anything that keeps a server from starting, is an error. What the server skips silently is a warning. Source:
`FileTxnSnapLog.restore`, `ZKDatabase`, `QuorumPeer.loadDataBase` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from logwright.codec import plural
from logwright.codec.capability import CheckSettings
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.snapshot.tables import NAME as SNAPSHOT
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC as LOG
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.names import epoch_of, zxid_text
from logwright.codec.zookeeper.repair import continuity, snapshots
from logwright.codec.zookeeper.repair.logs import Log, Part, zxids
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import first_zxid, last_zxid, superseded_by
from logwright.codec.zookeeper.state.columns import TTL_MASK
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store import files, trace
from logwright.codec.zookeeper.store.files import DataFile
from logwright.codec.zookeeper.store.trace import Loaded, Trace

LAYOUT = "zookeeper.datadir"
ADVICE = (
    "Copy the directory before a server is started on it: it writes a snapshot over one of the same name, and deletes the nodes of "
    "sessions that it does not know.",
    "Never leave a copy such as log.17.fixed or snapshot.16.bak in version-2: a server reads it. TxnLogToolkit -r makes such a copy "
    "and treats damaged records as correct.",
    "In an ensemble with an undamaged majority, delete version-2 of this server: it fetches the tree from the leader.",
)
_SILENT = (
    "the server applies the later transactions to a tree that lacks them; from 3.9.4 on it does not start (Committed proposal cached out of "
    "order) where it replays one before"
)
_AGAIN = "the server applies them after the later ones, so nodes may go back to older data"
_LOGGED = "the server reports it in its log and continues"
_MOST = 20


class DataDirChecker:
    """See `logwright.codec.capability.Check`. `deep`: replay the transactions and compare digests."""

    def __init__(self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> None:
        self._listing, self._plan, self._deep = listing, plan, settings.deep
        self._faults: list[tuple[str, Fault]] = []
        self._file: PlannedFile | None = None
        self._records: dict[str, list[Part]] = {}
        self._nodes: dict[str, snapshots.NodeSurvey] = {}

    def begin(self, file: PlannedFile) -> None:
        self._file = file

    def add(self, window: Window, frames: Frames) -> None:
        file = self._file
        if file is not None and file.codec == LOG.name:
            frames = frames.pick(frames.header["kind"] == TXN_FRAME)
            place = frames.start + window.offset, frames.end + window.offset
            part = *place, np.ascontiguousarray(frames.header["zxid"])
            self._records.setdefault(file.name, []).append(part)
        elif file is not None and file.codec == SNAPSHOT and self._deep:
            self._nodes.setdefault(file.name, snapshots.NodeSurvey()).add(window, frames)

    def finish(self) -> Iterator[tuple[str, Fault]]:
        logs = superseded_by([self._log(file) for file in files.logs(self._listing) if file.zxid >= 0])
        for log in logs:
            for cut in log.cut:
                if cut.why:
                    system = "the server does not see it"
                    self._report(log.file, cut.why, system, Kind.ORDER, Severity.WARNING, cut.offset)
        snapshots_read = self._snapshots()
        sound = [snapshot for snapshot in snapshots_read if snapshot.sound and not snapshot.cut]
        for snapshot in sound:
            if snapshot.early:
                system = "the server trusts the name: it skips the transactions in between, and reports different digests for later ones"
                self._report(snapshot.file, snapshot.early, system)
        if not sound:
            self._without(snapshots_read, logs)
        newest = max((snapshot.zxid for snapshot in sound), default=0)
        if sound or continuity.fresh(logs):
            self._gaps(logs, newest, snapshots_read)
            self._fuzzy(logs, sound)
        self._order(logs)
        self._epochs(last_zxid(logs, newest))
        if self._deep:
            self._replay(logs, sound)
        yield from self._faults

    def _log(self, file: DataFile) -> Log:
        log = Log.of(file.name, file.size, file.zxid, self._records.get(file.name, []))
        gaps = log.start[log.start != np.concatenate(([HEADER_SIZE], log.end))[: len(log.end)]]
        if len(gaps):
            # The damage itself is reported already. Only the transactions after it matter here.
            log.cut = [Removed(file.name, int(gaps[0]), 0, "")]
        return log

    def _snapshots(self) -> list[Snapshot]:
        """Return the snapshots that matter, newest first: up to the first sound one, or all of them if digests are compared."""
        out = []
        for file in reversed(files.snapshots(self._listing)):
            if file.zxid < 0:
                continue
            snapshot, _ = snapshots.read_only(
                self._listing, file.name, file.size, Options(snapshots.LIMITS), self._nodes.get(file.name)
            )
            out.append(snapshot)
            if snapshot.sound and not snapshot.cut and not self._deep:
                break
        return out

    # Missing transactions

    def _without(self, damaged: list[Snapshot], logs: list[Log]) -> None:
        """Report that no snapshot is sound."""
        first = first_zxid(logs)
        if first is None and not damaged:
            return
        text = "all snapshots are damaged" if damaged else "there is no snapshot"
        if first is None:
            text += ", and there are no transactions"
        elif continuity.fresh(logs):
            text += "; the logs begin with the first transaction, so the tree can be rebuilt from them alone"
        else:
            text += f", and the logs begin with {zxid_text(first)}: all earlier transactions are missing"
        self._report("", text, "")

    def _gaps(self, logs: list[Log], newest: int, read: list[Snapshot]) -> None:
        oldest = min((snapshot.zxid for snapshot in read if snapshot.sound), default=0)
        known = np.unique(zxids(logs))
        for gap in continuity.gaps(logs, oldest, [snapshot.zxid for snapshot in read if not snapshot.early]):
            log, i = continuity.place(logs, gap.record)
            at = int(log.start[i])
            if at != (log.end[i - 1] if i else HEADER_SIZE):
                continue  # the damage between them is reported already
            if np.diff(np.searchsorted(known, [gap.first, gap.last + 1]))[0] == gap.count:
                continue  # they come later
            if gap.last <= newest:
                text = f"{gap.text()} in no log; a later snapshot includes their effect"
                system = "the server does not need them as long as that snapshot is undamaged"
                self._report(log.file, text, system, severity=Severity.WARNING, at=at)
            else:
                text = f"{gap.text()} in no log and no snapshot"
                self._report(log.file, text, _SILENT, at=at, rows=gap.count, lost=gap.lost)

    def _order(self, logs: list[Log]) -> None:
        for record, highest in continuity.returns(logs)[:_MOST]:
            log, i = continuity.place(logs, record)
            text = (
                f"{zxid_text(int(log.zxid[i]))} comes after {zxid_text(highest)}: the transactions from here on are copies of others, or "
                "belong to another history"
            )
            self._report(log.file, text, _AGAIN, Kind.ORDER, at=int(log.start[i]))

    def _fuzzy(self, logs: list[Log], sound: list[Snapshot]) -> None:
        if not sound:
            return
        newest = max(sound, key=lambda snapshot: snapshot.zxid)
        until = continuity.furthest(logs, newest.zxid)
        if newest.until > until:
            text = (
                f"it was written while transactions up to {zxid_text(newest.until)} were made, but the logs end at "
                f"{zxid_text(until)}: the tree may contain some of the others"
            )
            lost = {"first_zxid": until + 1, "last_zxid": newest.until}
            self._report(newest.file, text, "the server does not notice", lost=lost)

    def _epochs(self, last: int) -> None:
        """Source: `QuorumPeer.loadDataBase`."""
        current, accepted = self._plan.facts.get("current_epoch"), self._plan.facts.get("accepted_epoch")
        if current is not None and current < epoch_of(last):
            text = f"the current epoch is {current}, but the last transaction, {zxid_text(last)}, has epoch {epoch_of(last)}"
            system = f"in an ensemble the server does not start: The current epoch, {current}, is older than the last zxid, {last}"
            self._report(names.CURRENT_EPOCH, text, system, Kind.ORDER)
        if current is not None and accepted is not None and accepted < current:
            text = f"the accepted epoch is {accepted}, below the current epoch, {current}"
            system = (
                "in an ensemble the server does not start: The accepted epoch is less than the current epoch"
            )
            self._report(names.ACCEPTED_EPOCH, text, system, Kind.ORDER)

    # The content of the tree

    def _replay(self, logs: list[Log], sound: list[Snapshot]) -> None:
        """Replay from the oldest snapshot that is followed by a complete log. The newest snapshot is checked in any case."""
        ours = {file.name: file for file in files.snapshots(self._listing)}
        newest, loaded = self._newest(
            [ours[snapshot.file] for snapshot in sorted(sound, key=lambda snapshot: -snapshot.zxid)]
        )
        complete = [snapshot for snapshot in sound if not continuity.gaps(logs, snapshot.zxid)]
        oldest = min(complete, key=lambda snapshot: snapshot.zxid, default=None)
        if oldest is not None:
            if newest is None or newest.name != oldest.file:
                loaded = None  # two trees would take twice the memory
            traced = trace.trace(self._listing, ours[oldest.file], loaded)
            later = None
            if traced.wrong and newest is not None and newest.name != oldest.file:
                later = trace.trace(self._listing, newest)
            self._report_mismatches(traced, oldest.file, later, "" if newest is None else newest.name)
        elif newest is not None:
            self._report_mismatches(trace.trace(self._listing, newest, loaded), newest.name)
        elif not sound and continuity.fresh(logs):
            self._report_mismatches(trace.trace(self._listing, None), "")

    def _newest(self, candidates: list[DataFile]) -> tuple[DataFile | None, Loaded | None]:
        """Return the newest snapshot that a server loads, and its tree. Report the problems of newer ones."""
        for candidate in candidates:
            loaded = trace.load(self._listing, candidate)
            tree, right, _ = loaded
            orphans = tree.orphans()
            for path in orphans[:_MOST]:
                text = f"{path.decode(errors='replace')} has no parent"
                if len(orphans) > _MOST and path == orphans[_MOST - 1]:
                    text += f" (and {plural.count(len(orphans) - _MOST, 'more node')} without one)"
                system = "Invalid Datatree, unable to find parent: the server loads the next older snapshot"
                self._report(candidate.name, text, system)
            if right is False and not orphans:
                text = "the digest of its tree differs from the stored one"
                self._report(candidate.name, text, _LOGGED, Kind.CHECKSUM)
            self._owners(candidate.name, tree)
            if not orphans:
                return candidate, loaded
        return None, None

    def _owners(self, name: str, tree: Tree) -> None:
        for batch in tree.nodes(("path", "ephemeral_owner"), order=False):
            owners = np.asarray(batch.column(1)).astype(np.int64)
            strange = owners >> 56 & 0xFF == TTL_MASK >> 56  # the owner field of TTL nodes is not a session
            for i in np.flatnonzero(strange)[:_MOST].tolist():
                text = f"the owner of {batch.column(0)[i].as_py()}, {zxid_text(int(owners[i]))}, is not valid"
                system = "with extendedTypesEnabled the server does not start: IllegalArgumentException: Invalid ephemeralOwner"
                self._report(name, text, system, Kind.PAYLOAD, Severity.WARNING)

    def _report_mismatches(
        self, traced: Trace, name: str, later: Trace | None = None, newest: str = ""
    ) -> None:
        """Report mismatches. `later` is a replay from the newest snapshot, which shows whether a mismatch is still there."""
        for mismatch in traced.wrong:
            if later is not None and mismatch not in later.wrong:
                text = f"the digests of transactions from {zxid_text(mismatch.zxid)} on are those of {newest}, not of what {name} leads to"
                system = (
                    "the server does not need the missing transactions as long as that snapshot is undamaged"
                )
                self._report(mismatch.file, text, system, Kind.LINK, Severity.WARNING, mismatch.offset)
                continue
            text = (
                f"the digest of the tree after {zxid_text(mismatch.zxid)}: stored {mismatch.stored & _ALL:#x}, computed "
                f"{mismatch.computed & _ALL:#x}; the data differs from what was written, from this transaction on"
            )
            self._report(mismatch.file, text, _LOGGED, Kind.CHECKSUM, at=mismatch.offset)
        if traced.never is not None:
            mismatch = traced.never
            text = f"the digests of transactions from {zxid_text(mismatch.zxid)} on are not those of the tree of {name or 'a new server'}"
            self._report(mismatch.file, text, _LOGGED, Kind.CHECKSUM, Severity.WARNING, mismatch.offset)

    def _report(
        self,
        name: str,
        text: str,
        system: str,
        kind: Kind = Kind.LINK,
        severity: Severity = Severity.ERROR,
        at: int = 0,
        rows: int | None = None,
        lost: Mapping[str, int] | None = None,
    ) -> None:
        fault = Fault(LAYOUT, at, 0, kind, text, severity, system, rows, dict(lost or {}))
        self._faults.append((name, fault))


_ALL = (1 << 64) - 1
