"""Keep what a server has of its data directory when it starts: its tree, in the snapshot that it writes at once.

A server leaves logs as they are, damaged ones too, and goes on in a new one. Here they end where it stops reading them, snapshots that it
passes over go, so that all that is left is sound.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from logwright.codec.engine.repair import OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.repair import logs
from logwright.codec.zookeeper.repair.examine import examine, reorder
from logwright.codec.zookeeper.repair.judge import judge
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.startup import start

_FRESH = 4
"""Nodes of a server that has done nothing yet."""


class SystemPlan(RepairPlan):
    """Strategy system."""

    def __init__(self, listing: Listing, options: Options, version: str | None) -> None:
        super().__init__(listing)
        given = {one.name: options[one.name] for one in start.OPTIONS if options.given(one.name)}
        self._opened = start.open_datadir(listing, Options(start.OPTIONS, given), version=version, clean=None)
        verdict = self._opened.verdict
        if not verdict.opens:
            raise DamageError(
                f"a server does not start on it: {verdict.error_class}{'' if verdict.error is None else f': {verdict.error}'}",
                path=listing.name,
                advice="Strategy prefix goes back to a history that it starts from, where there is one",
            )
        self._saved = self._opened.saved
        found = self._found = examine(listing, options)
        reorder(found)
        judge(found)
        self._dropped: list[str] = []
        for one in found.snapshots:
            if (one.cut or not one.sound) and one.file != self._saved:
                self._dropped.append(one.file)
                self.cut += [self._passed_over(one, cut.why) for cut in one.cut[:1]]
        self._logs = []
        for log in found.logs:
            kept = self._up_to_damage(log)
            self._logs += [kept] if len(kept.zxid) or kept.sound else []
            self.cut += kept.cut
        self._logs.sort(key=lambda log: log.named)
        tree = self._opened.tree
        assert tree is not None
        self.rows = (verdict.rows or 0) + sum(len(log.zxid) for log in self._logs)
        self.ids = {"last_zxid": zxid_text(tree.zxid)}
        self.notes += verdict.warnings
        self.notes.append(
            f"The tree is that of transaction {zxid_text(tree.zxid)}, it has {len(tree):,} nodes."
        )

    def _passed_over(self, one: Snapshot, why: str) -> Removed:
        """A snapshot that a server does not take: what is in it may follow from others and the logs."""
        tree = self._opened.tree
        got = -1 if tree is None else tree.zxid
        if got >= one.zxid and (got or one.rows <= _FRESH):
            return Removed(one.file, 0, one.size, why, 0, 0)
        return Removed(one.file, 0, one.size, why, 0, None, {"first_zxid": got + 1, "last_zxid": one.zxid})

    def _up_to_damage(self, log: Log) -> Log:
        """What a server sees of a log."""
        if log.sound:
            return log
        behind = log.start >= log.damage
        # Those that were put right here a server does not see either.
        lost = {}
        if behind.any():
            lost = {"first_zxid": int(log.zxid[behind][0]), "last_zxid": int(log.zxid[behind][-1])}
        first = log.cut[0]
        rows = int(np.count_nonzero(behind)) if behind.any() else first.rows_lost
        made = log.drop(behind)
        why = first.why.partition(";")[0]
        made.cut = [
            Removed(
                log.file,
                first.offset,
                log.size - first.offset,
                f"{why}; a server stops reading there",
                0,
                rows,
                lost or first.lost,
            )
        ]
        return made

    def outputs(self) -> Iterator[OutputFile]:
        found = self._found
        for name in (*found.others, *found.epochs):
            yield self.unchanged(name)
        for one in found.snapshots:
            if one.file not in self._dropped and one.file != self._saved:
                yield self.unchanged(one.file)
        if self._saved is not None:
            yield self.made(self._saved, self._opened.after.read(self._saved))
        for log in self._logs:
            name = log.file
            yield (
                self.unchanged(log.file, name)
                if log.sound
                else OutputFile(name, list(logs.pieces(log)), log.file)
            )
