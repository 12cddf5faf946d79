"""Remove transactions that are there twice: after a log was copied, or bytes of one log into another, a server applies them again. Remove
those of another history too, as in a log of another ensemble. Put in order what was exchanged or moved within a log, or between logs.

A zxid is assigned once, so records with the same zxid and the same bytes are one transaction. Source: `FileTxnSnapLog.fastForwardFromEdits`
of ZooKeeper, which reports lower zxids and applies them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from logwright.codec.engine.repair import Removed
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.repair.logs import Log, zxids

Place = tuple[int, int]
"""A record: the number of its log, and its number in there."""


def _is_ordered(logs: Sequence[Log]) -> bool:
    return bool((np.diff(zxids(logs)) >= 0).all())


def without_copies(listing: Listing, logs: Sequence[Log]) -> list[Log]:
    """Return the logs with each transaction once: in the log whose name is next below it, or at its first place there."""
    if _is_ordered(logs):
        return list(logs)
    all_ = zxids(logs)
    places: dict[int, list[Place]] = defaultdict(list)
    repeated = set(np.sort(all_)[1:][np.diff(np.sort(all_)) == 0].tolist())
    for n, log in enumerate(logs):
        for i in np.flatnonzero(np.isin(log.zxid, list(repeated))).tolist():
            places[int(log.zxid[i])].append((n, i))
    gone: dict[int, dict[int, str]] = defaultdict(dict)
    for zxid, same in places.items():
        # The places are in the order of the logs, so the last of these logs is the one that is named next below.
        home = max((n for n, _ in same if logs[n].named <= zxid), default=same[0][0])
        kept = next(place for place in same if place[0] == home)
        data = _bytes(listing, logs, kept)
        for n, i in same:
            if (n, i) != kept and _bytes(listing, logs, (n, i)) == data:
                gone[n][i] = logs[home].file
    return [_without(log, gone[n]) if n in gone else log for n, log in enumerate(logs)]


def without_strays(logs: Sequence[Log]) -> list[Log]:
    """Return the logs without the transactions of one that is from another history: all its zxids are in other logs too, with other bytes,
    and those have more transactions, are under their right names, and have no others twice."""
    if _is_ordered(logs):
        return list(logs)
    covered = {}
    for n, log in enumerate(logs):
        others = {m: np.isin(log.zxid, other.zxid) for m, other in enumerate(logs) if m != n}
        sharing = {m: which for m, which in others.items() if which.any()}
        if sharing and np.logical_or.reduce([*sharing.values()]).all():
            covered[n] = sharing
    out = list(logs)
    for n, sharing in covered.items():
        if covered.keys() & sharing.keys() or any(logs[m].renamed for m in sharing):
            continue  # nothing tells which of them is right
        log, names_ = logs[n], ", ".join(logs[m].file for m in sharing)
        first, last = int(log.zxid[0]), int(log.zxid[-1])
        why = (
            f"{names_} has other transactions with the zxids {names.zxid_text(first)} to {names.zxid_text(last)}, and those around them: "
            "they belong to another history"
        )
        lost = {"first_zxid": first, "last_zxid": last}
        start, end = int(log.start[0]), int(log.end[-1])
        gone = Removed(log.file, start, end - start, why, 0, len(log.zxid), lost)
        out[n] = log.drop(np.ones(len(log.zxid), np.bool_)).with_cut(gone)
    return out if _is_ordered(out) else list(logs)


def in_order(listing: Listing, logs: Sequence[Log]) -> list[Log]:
    """Return the logs with their records in the order of their zxids, if each zxid is there once: a server assigns them in that order, so
    records were exchanged or moved. Each belongs to the last log whose name is not above it."""
    named, all_ = [log.named for log in logs], zxids(logs)
    ordered = _is_ordered(logs) and len({*named}) == len(logs)
    if not ordered and len(np.unique(all_)) == len(all_):
        logs = _moved(listing, logs, named)
    return [_sorted(log) for log in logs]


def _moved(listing: Listing, logs: Sequence[Log], named: Sequence[int]) -> list[Log]:
    """Return the logs with the records that belong to another one at the end of that log."""
    out = list(logs)
    for n, log in enumerate(logs):
        homes = np.maximum(np.searchsorted(named, log.zxid, "right") - 1, 0)
        for home in np.unique(homes[homes != n]).tolist():
            index = np.flatnonzero(homes == home)
            data = [_bytes(listing, logs, (n, i)) for i in index.tolist()]
            first, last = (names.zxid_text(int(log.zxid[i])) for i in index[[0, -1]])
            why = f"the transactions {first} to {last} are moved from {log.file} to {out[home].file}, where their zxids belong"
            moved = np.isin(out[n].start, log.start[index])
            out[n] = out[n].drop(moved).with_cut(Removed(log.file, int(log.start[index[0]]), 0, why, 0, 0))
            out[home] = out[home].with_records(log.zxid[index], data)
            out[home] = out[home].with_cut(Removed(out[home].file, out[home].size, 0, why, 0, 0))
            # They are not lost, although the damage at their place says so.
            out[home].cut = [
                replace(cut, rows_lost=0, lost={})
                if {*cut.lost.values()} & {*log.zxid[index].tolist()}
                else cut
                for cut in out[home].cut
            ]
    return out


def _sorted(log: Log) -> Log:
    order = np.argsort(log.zxid, kind="stable")
    moved = np.flatnonzero(order != np.arange(len(order)))
    if not len(moved) or not np.diff(log.zxid[order]).all():
        return log
    low, high = int(moved[0]), int(moved[-1])
    start = int(log.start[low])
    first, last = (names.zxid_text(int(log.zxid[order[i]])) for i in (low, high))
    why = f"the transactions {first} to {last} are not in the order of their zxids: they are put in order"
    out = replace(log, start=log.start[order], end=log.end[order], zxid=log.zxid[order])
    return out.with_cut(Removed(log.file, start, max(int(log.end[high]) - start, 0), why, 0, 0))


def conflicting(listing: Listing, log: Log, others: Sequence[Log]) -> str:
    """Return the name of a log that has another transaction with a zxid of `log`; "" without one."""
    for other in others:
        _, own, theirs = np.intersect1d(log.zxid, other.zxid, return_indices=True)
        for i, j in zip(own.tolist(), theirs.tolist(), strict=True):
            if _bytes(listing, (log, other), (0, i)) != _bytes(listing, (log, other), (1, j)):
                return other.file
    return ""


def _bytes(listing: Listing, logs: Sequence[Log], place: Place) -> bytes:
    log, i = logs[place[0]], place[1]
    start, end = int(log.start[i]), int(log.end[i])
    return log.replacements.get(start) or listing.read(log.file, start, end - start)


def _without(log: Log, gone: dict[int, str]) -> Log:
    """Return a log without the records of these numbers, which another log, or the same one, has too."""
    which = np.zeros(len(log.zxid), np.bool_)
    which[list(gone)] = True
    cut = []
    for run in np.split(np.flatnonzero(which), np.flatnonzero(np.diff(np.flatnonzero(which)) != 1) + 1):
        first, last = (int(log.zxid[i]) for i in run[[0, -1]])
        start, end = int(log.start[run[0]]), int(log.end[run[-1]])
        text = (
            names.zxid_text(first)
            if first == last
            else f"{names.zxid_text(first)} to {names.zxid_text(last)}"
        )
        where = "before it in the log" if gone[int(run[0])] == log.file else f"in {gone[int(run[0])]}"
        why = f"a copy of {text}, which {'is' if first == last else 'are'} {where}: a server applies both"
        cut.append(Removed(log.file, start, end - start, why, 0, 0))
    return log.drop(which).with_cut(*cut)
