"""Simulate the start of a server: what is on the disk afterwards, and what its clients see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.engine.repair import Removed
from logwright.codec.engine.startup import Answers, LostRows, Refused, Served, Settings, Startup, SystemRepair
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.names import LOG, VERSION_DIR, parse, snapshot_name, zxid_text
from logwright.codec.zookeeper.repair import logs
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import reorder, survey
from logwright.codec.zookeeper.repair.validate import validate
from logwright.codec.zookeeper.startup.exceptions import Thrown
from logwright.codec.zookeeper.startup.file_txn_snap_log import FileTxnSnapLog, Restored, kill_dead_sessions
from logwright.codec.zookeeper.startup.lost import lost
from logwright.codec.zookeeper.startup.messages import Deleted, warnings
from logwright.codec.zookeeper.startup.quorum_peer import load_epochs
from logwright.codec.zookeeper.startup.settings import VERSIONS, ServerSettings
from logwright.codec.zookeeper.store import materialize, views
from logwright.codec.zookeeper.store.files import folder, has_log_directory
from logwright.codec.zookeeper.store.selection import prefix_of
from logwright.codec.zookeeper.store.write import of_tree

_VIEWS = ("tree", "sessions", "acls")
_FRESH = 4
"""Nodes of a new server."""


class ServedTree(Served):
    """A data directory after a server's start. Its clients see the tree in memory."""

    def __init__(
        self, overlay: Overlay, settings: ServerSettings, restored: Restored, deleted: Deleted
    ) -> None:
        self.overlay, self.settings, self.restored, self.deleted = overlay, settings, restored, deleted
        self.tree = restored.tree
        self.saved: str | None = None
        """The name of the snapshot that is written at the start."""
        if settings.saves_at_start and not settings.distributed:
            self.saved = snapshot_name(restored.last_processed, settings.method)
            # It has the size of the tree, so it is made only if it is read.
            overlay.put(self.saved, self._snapshot)

    def _snapshot(self) -> bytes:
        options = Options(
            encode.OPTIONS,
            {
                "digest.enabled": self.settings.digests,
                "serializeLastProcessedZxid.enabled": self.settings.last_processed,
                "snapshot.compression.method": self.settings.method,
            },
        )
        return b"".join(bytes(piece) for piece in of_tree(self.tree, options))

    def answers(self) -> Answers:
        restored = self.restored
        file = restored.loaded.file
        serves = {
            "last": restored.last_processed,
            "snapshot": None if file is None else file.name,
            "zxid": zxid_text(restored.last_processed),
            "transactions": restored.transactions,
            "sessions": len(restored.tree.session_timeouts),
        }
        notes = tuple(warnings(self.overlay.below, restored, self.deleted))
        return Answers(len(restored.tree), serves, warnings=notes)

    def lost(self) -> Iterable[LostRows]:
        return lost(self.overlay.below, self.restored, self.deleted, self.settings.options)

    def parts(self, view: str) -> None:
        """A server's view is not a byte range of a file."""
        if view not in _VIEWS:
            raise UsageError(f"ZooKeeper serves no view {view!r}", advice=f"It serves {', '.join(_VIEWS)}")

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = self.settings.options
        prefix = prefix_of(options["path_prefix"] if options.given("path_prefix") else None)
        yield from materialize.rows_of(self.tree, views.VIEWS[view], prefix, columns)

    # Strategy system

    def settle(self, repair: SystemRepair) -> None:
        """A server leaves damaged logs and snapshots unchanged and continues in a new log. Here, logs end where it stops reading, and
        skipped snapshots are removed, so that everything left is sound."""
        overlay = repair.overlay
        survey_result = survey(overlay.below, self.settings.options, by_content=False)
        reorder(survey_result, once=False)
        validate(survey_result, rename=False)
        for snapshot in survey_result.snapshots:
            if (snapshot.cut or not snapshot.sound) and snapshot.file != self.saved:
                overlay.delete(snapshot.file)
                repair.cut += [self._passed_over(snapshot, cut.why) for cut in snapshot.cut[:1]]
        for name, _ in survey_result.twice:
            overlay.delete(name)
        for log in map(_up_to_damage, survey_result.logs):
            repair.cut += log.cut
            repair.rows += len(log.zxid)
            if log.sound:
                overlay.restore(log.file)
            elif len(log.zxid):
                overlay.assemble(log.file, logs.pieces(log))
            else:
                overlay.delete(log.file)
        zxid = zxid_text(self.tree.zxid)
        repair.ids = {"last_zxid": zxid}
        repair.notes.append(
            f"The tree is that after transaction {zxid}; it has {plural.count(len(self.tree), 'node')}."
        )

    def _passed_over(self, snapshot: Snapshot, why: str) -> Removed:
        """Return the removal of a snapshot that the server skips. Its content may follow from others and the logs."""
        got = self.tree.zxid
        if got >= snapshot.zxid and (got or snapshot.rows <= _FRESH):
            return Removed(snapshot.file, 0, snapshot.size, why, 0, 0)
        lost = {"first_zxid": got + 1, "last_zxid": snapshot.zxid}
        return Removed(snapshot.file, 0, snapshot.size, why, 0, None, lost)


def _up_to_damage(log: Log) -> Log:
    """Return what a server sees of a log. It also misses the records after damage that a repair could correct."""
    if log.sound:
        return log
    behind = log.start >= log.damage
    lost = {}
    if behind.any():
        lost = {"first_zxid": int(log.zxid[behind][0]), "last_zxid": int(log.zxid[behind][-1])}
    first = log.cut[0]
    rows = int(np.count_nonzero(behind)) if behind.any() else first.rows_lost
    why = f"{first.why.partition(';')[0]}; a server stops reading there"
    replacements = log.drop(behind)
    replacements.cut = [
        Removed(log.file, first.offset, log.size - first.offset, why, 0, rows, lost or first.lost)
    ]
    return replacements


def _has_misplaced_log(plan: Plan) -> bool:
    """Return whether a log is among the snapshots although logs have their own directory."""
    return any(
        file.role is Role.LEFTOVER
        and not folder(file.name)
        and (named := parse(file.name)) is not None
        and named.kind == LOG
        and named.zxid >= 0
        for file in plan.files
    )


def start(overlay: Overlay, settings: Settings) -> ServedTree | Refused:
    """Follow the start of a server. See `codec.engine.startup.Start`."""
    server = ServerSettings(settings.version, settings.options)
    files = FileTxnSnapLog(overlay, server, _above(overlay), separate=_has_misplaced_log(settings.plan))
    try:
        files.check()
        restored = files.restore()
        if server.distributed:
            load_epochs(overlay, restored.last_processed)
            return ServedTree(overlay, server, restored, Deleted())
    except Thrown as thrown:
        return Refused("process", thrown.message or None, thrown.java)
    kept = [] if server.extended_types else restored.tree.ttl_paths()
    dead, taken = kill_dead_sessions(restored)
    expired = sorted(set(dead).intersection(kept))
    deleted = Deleted(sorted(set(dead).difference(expired)), expired, taken)
    return ServedTree(overlay, server, restored, deleted)


STARTUP = Startup(
    "zookeeper",
    VERSIONS,
    start,
    refusal="a server does not start on it: {reason}",
    advice="Strategy prefix goes back to a history from which a server starts, if there is one",
)


def _above(listing: Listing) -> frozenset[str]:
    """Return the names beside the directory of the logs, as far as they can be listed."""
    if listing.name != VERSION_DIR or has_log_directory(listing):
        return frozenset()
    try:
        above = listing.parent()
        return frozenset() if above is None else frozenset(entry.name for entry in above.entries())
    except LogwrightError:
        return frozenset()
