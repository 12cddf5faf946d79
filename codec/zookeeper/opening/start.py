"""Starting a server in thought: the verdict, what is on the disk afterwards, and what its clients see. See `codec.predict.Predicts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from logwright.codec.disk import Disk
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.layout import Group, Listing, Part
from logwright.codec.option import Options
from logwright.codec.predict import Verdict
from logwright.codec.zookeeper import encode
from logwright.codec.zookeeper.files import apart, logs, logs_from, snapshots
from logwright.codec.zookeeper.names import VERSION_DIR, epoch_of, snapshot_name, zxid_text
from logwright.codec.zookeeper.opening.exceptions import Thrown
from logwright.codec.zookeeper.opening.file_txn_snap_log import EMPTY, FileTxnSnapLog, Restored
from logwright.codec.zookeeper.opening.lost import Lost, lost
from logwright.codec.zookeeper.opening.settings import OPTIONS, VERSIONS, Settings, version_of
from logwright.codec.zookeeper.replay import Tree
from logwright.codec.zookeeper.write import of_tree

__all__ = ["OPTIONS", "VERSIONS", "Opened", "open_datadir"]

VIEW = "tree"
_SHOWN = 5
"""So many of a kind are named in a warning."""


class Opened:
    """A data directory after a server's start. See `logwright.codec.predict.Opened` and `Serves`."""

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        listing: Listing,
        thrown: Thrown | None,
        restored: Restored | None,
        dead: Sequence[bytes] = (),
    ) -> None:
        self._disk, self.settings, self._listing = disk, settings, listing
        self.thrown, self.restored, self.dead = thrown, restored, dead

    @property
    def tree(self) -> Tree | None:
        """The tree that clients see; None where the server does not start."""
        return None if self.restored is None else self.restored.tree

    @property
    def saved(self) -> str | None:
        """The name of the snapshot that is written at the start."""
        if self.restored is None or not self.settings.saves_at_start:
            return None
        return snapshot_name(self.restored.last_processed, self.settings.method)

    @cached_property
    def after(self) -> Listing:
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
        removes = tuple(disk.removes)
        verdict = Verdict("zookeeper", self.settings.name, False, "", removes=removes)
        if self.thrown is not None:
            return replace(
                verdict,
                opens=False,
                scope="process",
                error=self.thrown.message or None,
                error_class=self.thrown.java,
                rows=0,
                serves={"stops_at": None},
            )
        assert self.restored is not None
        gone = self._gone()
        there = saved is not None and any(one.name == saved for one in self._listing.entries())
        return replace(
            verdict,
            rows=len(self.restored.tree),
            rows_lost=gone.rows,
            lost=tuple(gone.ranges),
            serves=self._serves(),
            rewrites=(saved,) if saved is not None and there else (),
            creates=(saved,) if saved is not None and not there else (),
            warnings=tuple(self._warnings()),
        )

    def _serves(self) -> dict[str, Any]:
        assert self.restored is not None
        restored = self.restored
        file = restored.loaded.file
        return {
            "snapshot": None if file is None else file.name,
            "zxid": zxid_text(restored.last_processed),
            "transactions": restored.transactions,
            "sessions": restored.tree.sessions().num_rows,
            "stops_at": None,
        }

    def _gone(self) -> Lost:
        """What is not served although it is undamaged. Only logs that end before their time hide anything, and gaps."""
        assert self.restored is not None
        restored = self.restored
        zxid = 0 if restored.loaded.file is None else restored.loaded.file.zxid
        if not restored.stops:
            return Lost()
        files = logs_from(logs(self._listing), zxid + 1)
        return lost(self._listing, files, restored.applied, zxid, self.settings.options)

    def _warnings(self) -> Iterator[str]:
        assert self.restored is not None
        restored = self.restored
        loaded = restored.loaded
        for name, failure in loaded.rejected:
            yield f"problem reading snap file {name}: {failure}"
        there = snapshots(self._listing)
        if loaded.file is None and there:
            yield f"none of {len(there)} snapshots is taken for whole: it starts with an empty tree"
        if loaded.file is None and restored.transactions:
            yield f"{EMPTY}This should only be allowed during upgrading."
        for stop in restored.stops:
            if stop.why:
                yield f"{stop.file.name}: read up to byte {stop.position}: {stop.why}"
        newest = max((one.zxid for one in there), default=0)
        if restored.last_processed < newest:
            yield f"the tree ends at {zxid_text(restored.last_processed)}, a snapshot of {zxid_text(newest)} is there"
        yield from self._jump()
        if restored.mismatches:
            first = zxid_text(restored.mismatches[0])
            yield (
                f"Digests are not matching: the tree is another than it was when its logs were written, from zxid {first} on "
                f"({len(restored.mismatches)} transactions)"
            )
        if restored.uncovered is not None:
            yield (
                f"Highest txn zxid {zxid_text(restored.zxid)} is not covering the snapshot digest zxid "
                f"{zxid_text(restored.uncovered.zxid)}, which might lead to inconsistent state"
            )
        if self.dead:
            shown = ", ".join(one.decode(errors="replace") for one in self.dead[:_SHOWN])
            more = f", and {len(self.dead) - _SHOWN} more" if len(self.dead) > _SHOWN else ""
            yield f"nodes of sessions that are gone are deleted: {shown}{more}"

    def _jump(self) -> Iterator[str]:
        """Transactions that are missing where nobody looks: between the snapshot and the first one that is applied."""
        assert self.restored is not None
        restored = self.restored
        zxid = 0 if restored.loaded.file is None else restored.loaded.file.zxid
        first = next((int(one[0]) for one in restored.applied if len(one)), None)
        if first is not None and first > zxid + 1 and epoch_of(first) == epoch_of(zxid):
            yield f"transactions {zxid_text(zxid + 1)} to {zxid_text(first - 1)} are not applied, and nothing is said of it"

    # What clients get

    def parts(self, view: str) -> Sequence[Part | Group]:
        """Nothing: no view of a server is a stretch of a file."""
        return []

    def serves(self, view: str) -> bool:
        """Raises `UsageError` for a view that a server does not have."""
        if view not in _VIEWS:
            raise UsageError(f"ZooKeeper serves no view {view!r}", advice=f"It serves {', '.join(_VIEWS)}")
        return True

    def serve(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.tree is not None:
            yield from _VIEWS[view](self.tree, columns)


def _sessions(tree: Tree, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield tree.sessions().select(list(columns))


def _acls(tree: Tree, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield tree.acls().select(list(columns))


_VIEWS: dict[str, Callable[[Tree, Sequence[str]], Iterator[pa.RecordBatch]]] = {
    VIEW: Tree.nodes,
    "sessions": _sessions,
    "acls": _acls,
}


def open_datadir(listing: Listing, options: Options, *, version: str | None, clean: bool | None) -> Opened:
    """Start a server in thought. See `logwright.codec.predict.Predicts`. A server does not care how it was stopped: `clean` is not
    looked at."""
    settings = Settings(version_of(version), options)
    disk = Disk(listing)
    files = FileTxnSnapLog(disk, settings, _above(listing))
    try:
        files.check()
        restored = files.restore()
    except Thrown as thrown:
        return Opened(disk, settings, listing, thrown, None)
    dead = restored.tree.after_load()
    return Opened(disk, settings, listing, None, restored, dead)


def _above(listing: Listing) -> frozenset[str]:
    """What is beside the directory of the logs, as far as it can be seen."""
    if listing.name != VERSION_DIR or apart(listing):
        return frozenset()
    try:
        above = listing.parent()
        return frozenset() if above is None else frozenset(one.name for one in above.entries())
    except LogwrightError:
        return frozenset()
