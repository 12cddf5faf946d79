"""Starting a server in thought: the verdict, what is on the disk afterwards, and what its clients see. See `codec.predict.Predicts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Options
from logwright.codec.predict import Verdict
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.overlay import Disk
from logwright.codec.store.view import Group, Part
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.names import VERSION_DIR, snapshot_name
from logwright.codec.zookeeper.startup import verdict
from logwright.codec.zookeeper.startup.exceptions import Thrown
from logwright.codec.zookeeper.startup.file_txn_snap_log import FileTxnSnapLog, Restored, kill_dead_sessions
from logwright.codec.zookeeper.startup.quorum_peer import load_epochs
from logwright.codec.zookeeper.startup.settings import OPTIONS, VERSIONS, Settings, version_of
from logwright.codec.zookeeper.startup.verdict import NOTHING, Deleted
from logwright.codec.zookeeper.state.replay import Tree
from logwright.codec.zookeeper.store import materialize, views
from logwright.codec.zookeeper.store.files import apart
from logwright.codec.zookeeper.store.selection import prefix_of
from logwright.codec.zookeeper.store.write import of_tree

__all__ = ["OPTIONS", "VERSIONS", "Opened", "open_datadir"]

_VIEWS = ("tree", "sessions", "acls")


class Opened:
    """A data directory after a server's start. See `logwright.codec.predict.Opened`."""

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        listing: Listing,
        thrown: Thrown | None,
        restored: Restored | None,
        deleted: Deleted = NOTHING,
    ) -> None:
        self._disk, self.settings, self._listing = disk, settings, listing
        self.thrown, self.restored = thrown, restored
        self.deleted = deleted

    @property
    def tree(self) -> Tree | None:
        """The tree that clients see; None where the server does not start."""
        return None if self.restored is None else self.restored.tree

    @property
    def saved(self) -> str | None:
        """The name of the snapshot that is written at the start."""
        if self.restored is None or not self.settings.saves_at_start or self.settings.distributed:
            return None
        return snapshot_name(self.restored.last_processed, self.settings.method)

    @cached_property
    def after(self) -> Listing:
        """See `codec.predict.Opened`. The snapshot is made only when somebody asks: it has the size of the tree."""
        if self.tree is not None and self.saved is not None:
            options = Options(
                encode.OPTIONS,
                {
                    "digest.enabled": self.settings.digests,
                    "serializeLastProcessedZxid.enabled": self.settings.last_processed,
                    "snapshot.compression.method": self.settings.method,
                },
            )
            self._disk.put(self.saved, b"".join(bytes(one) for one in of_tree(self.tree, options)))
        return self._disk

    @cached_property
    def verdict(self) -> Verdict:
        disk, saved = self._disk, self.saved
        said = Verdict("zookeeper", self.settings.name, False, "", removes=tuple(disk.removes))
        if self.thrown is not None:
            return replace(
                said,
                opens=False,
                scope="process",
                error=self.thrown.message or None,
                error_class=self.thrown.java,
                rows=0,
                serves={"stops_at": None},
            )
        assert self.restored is not None
        restored, listing = self.restored, self._listing
        gone = verdict.gone(listing, restored, self.deleted, self.settings.options)
        written = set() if saved is None else {saved}
        before = {entry.name for entry in listing.entries()}
        return replace(
            said,
            rows=len(self.restored.tree),
            rows_lost=gone.rows,
            lost=tuple(gone.ranges),
            serves=verdict.serves(restored),
            rewrites=tuple(sorted({*disk.rewrites} | written & before)),
            creates=tuple(sorted({*disk.creates} | written - before)),
            warnings=tuple(verdict.warnings(listing, restored, self.deleted)),
        )

    # What clients get

    def parts(self, view: str) -> Sequence[Part | Group]:
        """Nothing: no view of a server is a stretch of a file."""
        return []

    def serves(self, view: str) -> bool:
        """Raises `UsageError` for a view that a server does not have, or not of another time."""
        if view not in _VIEWS:
            raise UsageError(f"ZooKeeper serves no view {view!r}", advice=f"It serves {', '.join(_VIEWS)}")
        if self.settings.options.given("at_zxid"):
            raise UsageError(
                "a server serves the tree as it is, not that of at_zxid", advice="Take another mode"
            )
        return True

    def serve(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = self.settings.options
        if self.tree is not None:
            prefix = prefix_of(options["path_prefix"] if options.given("path_prefix") else None)
            yield from materialize.rows_of(self.tree, views.VIEWS[view], prefix, columns)


def start(
    listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
) -> Opened:
    """See `codec.capability.Start`."""
    return open_datadir(listing, options, version=version, clean=clean)


def open_datadir(listing: Listing, options: Options, *, version: str | None, clean: bool | None) -> Opened:
    """Simulate the start of a server. A server does not care how it was stopped, so `clean` is ignored."""
    settings = Settings(version_of(version), options)
    disk = Disk(listing)
    files = FileTxnSnapLog(disk, settings, _above(listing))
    try:
        files.check()
        restored = files.restore()
        if settings.distributed:
            load_epochs(disk, restored.last_processed)
            return Opened(disk, settings, listing, None, restored)
    except Thrown as thrown:
        return Opened(disk, settings, listing, thrown, None)
    kept = [] if settings.extended_types else restored.tree.ttl_paths()
    dead, taken = kill_dead_sessions(restored)
    expired = sorted(set(dead).intersection(kept))
    deleted = Deleted(sorted(set(dead).difference(expired)), expired, taken)
    return Opened(disk, settings, listing, None, restored, deleted)


def _above(listing: Listing) -> frozenset[str]:
    """What is beside the directory of the logs, as far as it can be seen."""
    if listing.name != VERSION_DIR or apart(listing):
        return frozenset()
    try:
        above = listing.parent()
        return frozenset() if above is None else frozenset(one.name for one in above.entries())
    except LogwrightError:
        return frozenset()
