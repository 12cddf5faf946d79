"""What a server makes of its data directory when it is started on it, as a mending: its tree, in the snapshot that it writes at once.

A server leaves logs as they are, damaged ones too, and goes on in a new one. Here they end where it stops reading them, snapshots that it
passes over go, so that all that is left is sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.fault import DamageError
from logwright.codec.mending import Cut, Kept, Mended
from logwright.codec.option import Options
from logwright.codec.store.build import Summary
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.repair import logs
from logwright.codec.zookeeper.repair.examine import examine
from logwright.codec.zookeeper.repair.judge import judge
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.startup import start

_FRESH = 4
"""Nodes of a server that has done nothing yet."""


class SystemMending:
    """See `logwright.codec.mending.Mending`."""

    def __init__(self, listing: Listing, options: Options, version: str | None) -> None:
        given = {one.name: options[one.name] for one in start.OPTIONS if options.given(one.name)}
        self._opened = start.open_datadir(listing, Options(start.OPTIONS, given), version=version, clean=None)
        verdict = self._opened.verdict
        if not verdict.opens:
            raise DamageError(
                f"a server does not start on it: {verdict.error_class}{'' if verdict.error is None else f': {verdict.error}'}",
                path=listing.name,
                advice="Strategy prefix goes back to a history that it starts from, where there is one",
            )
        self._listing, self._saved = listing, self._opened.saved
        found = self._found = examine(listing, options)
        judge(found)
        gone: list[Cut] = []
        drops: list[str] = []
        for one in found.snapshots:
            if (one.cut or not one.sound) and one.file != self._saved:
                drops.append(one.file)
                gone += [self._passed_over(one, cut.why) for cut in one.cut[:1]]
        self._logs = []
        for log in found.logs:
            kept = self._up_to_damage(log)
            self._logs += [kept] if len(kept.zxid) or kept.sound else []
            gone += kept.cut
        self._logs.sort(key=lambda log: log.named)
        there = {log.file for log in self._logs}
        self.cut: Sequence[Cut] = gone
        self.removes: Sequence[str] = [
            *drops,
            *(log.file for log in found.logs if log.file not in there),
            *(file for file, _ in found.twice),
        ]

    def _passed_over(self, one: Snapshot, why: str) -> Cut:
        """A snapshot that a server does not take: what is in it may follow from others and the logs."""
        tree = self._opened.tree
        got = -1 if tree is None else tree.zxid
        if got >= one.zxid and (got or one.rows <= _FRESH):
            return Cut(one.file, 0, one.size, why, 0, 0)
        return Cut(one.file, 0, one.size, why, 0, None, {"first_zxid": got + 1, "last_zxid": one.zxid})

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
            Cut(
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

    def files(self) -> Iterator[Mended]:
        found, sizes = self._found, self._found.sizes
        for name in (*found.others, *found.epochs):
            yield Mended(name, [Kept(name, 0, sizes[name])], name)
        for one in found.snapshots:
            if one.file not in self.removes and one.file != self._saved:
                yield Mended(one.file, [Kept(one.file, 0, one.size)], one.file)
        if self._saved is not None:
            like = self._saved if self._saved in sizes else None
            yield Mended(self._saved, [self._opened.after.read(self._saved)], like)
        for log in self._logs:
            pieces = [Kept(log.file, 0, log.size)] if log.sound else list(logs.pieces(log))
            yield Mended(log.file, pieces, log.file)

    def summary(self) -> Summary:
        verdict, tree = self._opened.verdict, self._opened.tree
        assert tree is not None
        rows = (verdict.rows or 0) + sum(len(log.zxid) for log in self._logs)
        notes = [
            *verdict.warnings,
            f"The tree is that of transaction {zxid_text(tree.zxid)}, it has {len(tree):,} nodes.",
        ]
        return Summary(rows, {"last_zxid": zxid_text(tree.zxid)}, tuple(notes))
